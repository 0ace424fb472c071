"""Learning to rank on the expected value of the metric itself, by Sinkhorn propagation, in linear time."""

from sinkprop.balance import SinkhornLimit, SinkhornStatus, sinkhorn_limit
from sinkprop.data import Fold, Queries
from sinkprop.gains import NDCG, RBP, Gain, Precision, RankLinear, parse_gain
from sinkprop.normalization import sinkhorn, sinkhorn_vjp
from sinkprop.objective import (
    ExpectedGain,
    doubly_stochastic,
    expected_gain,
    expected_ranks,
    top_k_probability,
)
from sinkprop.permutation import choose_permutation
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__version__ = "0.1.0"

__all__ = [
    "NDCG",
    "RBP",
    "ExpectedGain",
    "Fold",
    "Gain",
    "PartitionedMeasure",
    "Precision",
    "Queries",
    "RankLinear",
    "Relaxation",
    "SinkhornLimit",
    "SinkhornStatus",
    "SmoothedIndicator",
    "choose_permutation",
    "doubly_stochastic",
    "expected_gain",
    "expected_ranks",
    "parse_gain",
    "sinkhorn",
    "sinkhorn_limit",
    "sinkhorn_vjp",
    "top_k_probability",
]
