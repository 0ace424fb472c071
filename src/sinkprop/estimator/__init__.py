"""Code shared by all rankers: arguments of `fit`, splits, criteria, selection; imports no ranker."""
