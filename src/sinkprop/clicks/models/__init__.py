"""Click models: how users examine a ranking and what they click, fitted to logs."""
