"""Metrics of rankings, each evaluated under a stated convention; they are exact, not smoothed."""

from sinkprop.metrics.conventions import CONVENTIONS, Convention, as_convention
from sinkprop.metrics.evaluation import Evaluation, evaluate
from sinkprop.metrics.measures import Metric, parse_metric, parse_metrics
from sinkprop.metrics.ranking import Ranking, ranking

__all__ = [
    "CONVENTIONS",
    "Convention",
    "Evaluation",
    "Metric",
    "Ranking",
    "as_convention",
    "evaluate",
    "parse_metric",
    "parse_metrics",
    "ranking",
]
