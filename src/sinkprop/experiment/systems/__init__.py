"""Comparison of systems by their scores of the same documents, such as a new model and today's ranking."""

from sinkprop.experiment.systems.comparison import QueryDifference, ScoreComparison, ScoreDifference
from sinkprop.experiment.systems.scores import compare_scores

__all__ = ["QueryDifference", "ScoreComparison", "ScoreDifference", "compare_scores"]
