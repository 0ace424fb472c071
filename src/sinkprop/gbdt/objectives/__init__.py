"""Objectives and metrics for LightGBM, XGBoost and CatBoost, independent of `BoostedRanker`."""
