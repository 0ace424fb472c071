"""Scores of saved models with NumPy alone."""
