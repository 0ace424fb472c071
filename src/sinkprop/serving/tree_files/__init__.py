"""Models of LightGBM, XGBoost and CatBoost as plain data: checked, and read without these libraries."""
