"""Learning to rank on the expected value of the metric itself, by Sinkhorn propagation, in linear time."""

from sinkprop.balance import SinkhornLimit, SinkhornStatus, sinkhorn_limit
from sinkprop.conventions import CONVENTIONS, Convention
from sinkprop.data import Fold, Queries
from sinkprop.gains import NDCG, RBP, Gain, Precision, RankLinear, parse_gain
from sinkprop.metrics import Evaluation, Metric, evaluate, parse_metric, parse_metrics
from sinkprop.normalization import sinkhorn, sinkhorn_vjp
from sinkprop.objective import (
    ExpectedGain,
    doubly_stochastic,
    expected_gain,
    expected_ranks,
    top_k_probability,
)
from sinkprop.permutation import choose_permutation
from sinkprop.ranked import Ranking, ranking
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__version__ = "0.1.0"

__all__ = [
    "CONVENTIONS",
    "NDCG",
    "RBP",
    "Convention",
    "Evaluation",
    "ExpectedGain",
    "Fold",
    "Gain",
    "Metric",
    "PartitionedMeasure",
    "Precision",
    "Queries",
    "RankLinear",
    "Ranking",
    "Relaxation",
    "SinkhornLimit",
    "SinkhornStatus",
    "SmoothedIndicator",
    "choose_permutation",
    "doubly_stochastic",
    "evaluate",
    "expected_gain",
    "expected_ranks",
    "parse_gain",
    "parse_metric",
    "parse_metrics",
    "ranking",
    "sinkhorn",
    "sinkhorn_limit",
    "sinkhorn_vjp",
    "top_k_probability",
]
