"""Code shared by all rankers: arguments of `fit`, splits, criteria, selection; no ranker is named here."""
