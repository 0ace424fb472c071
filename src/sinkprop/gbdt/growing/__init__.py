"""The growth of boosted trees in one process: rows, bins, rounds, bagging and validation."""
