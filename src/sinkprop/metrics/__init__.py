"""Metrics of rankings, each evaluated under a stated convention; they are exact, not smoothed."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names
from sinkprop.metrics.ranking import Ranking, ranking  # not lazy: the function has the name of its module

if TYPE_CHECKING:
    from sinkprop.metrics.conventions import CONVENTIONS, Convention, as_convention
    from sinkprop.metrics.evaluation import Evaluation, evaluate
    from sinkprop.metrics.measures import Metric, parse_metric, parse_metrics

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

# A service that ranks documents needs no metrics.
_LAZY = {
    "CONVENTIONS": "sinkprop.metrics.conventions",
    "Convention": "sinkprop.metrics.conventions",
    "Evaluation": "sinkprop.metrics.evaluation",
    "Metric": "sinkprop.metrics.measures",
    "as_convention": "sinkprop.metrics.conventions",
    "evaluate": "sinkprop.metrics.evaluation",
    "parse_metric": "sinkprop.metrics.measures",
    "parse_metrics": "sinkprop.metrics.measures",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
