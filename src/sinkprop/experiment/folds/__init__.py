"""Data sets on disk, as files of folds: their layout, their queries, and checks of published counts."""
