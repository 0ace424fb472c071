"""Boosted trees grown by CatBoost: the ranker, and its trees as plain data."""
