"""Explanations of rankings: what each feature does to the expected ranks of documents and to the metric."""

from sinkprop.explain.explanation import RankingExplanation
from sinkprop.explain.ranking import explain_ranking

__all__ = ["RankingExplanation", "explain_ranking"]
