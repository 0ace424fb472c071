"""Objectives and metrics for LightGBM, XGBoost and CatBoost; they know nothing of `BoostedRanker`."""
