"""Learning to rank on the expected value of the metric itself, by Sinkhorn propagation, in linear time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sinkprop.data.frames import load_frame, load_parquet
from sinkprop.data.letor import load_letor, load_queries, save_letor
from sinkprop.data.queries import Fold, Queries
from sinkprop.data.query_sizes import load_query_sizes
from sinkprop.estimator.selection import Selection
from sinkprop.linear.records import Annealing, FitResult
from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.evaluation import Evaluation, evaluate
from sinkprop.metrics.measures import Metric, parse_metric, parse_metrics
from sinkprop.metrics.ranking import Ranking, ranking
from sinkprop.objective.expected_gain import ExpectedGain, expected_gain
from sinkprop.objective.gains import NDCG, RBP, Gain, Precision, RankLinear, parse_gain
from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks, top_k_probability
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.objective.sinkhorn import sinkhorn, sinkhorn_vjp
from sinkprop.objective.sinkhorn_limit import SinkhornLimit, SinkhornStatus, sinkhorn_limit

if TYPE_CHECKING:
    from sinkprop import baselines, datasets
    from sinkprop import export as export
    from sinkprop import gbdt as gbdt
    from sinkprop import plot as plot
    from sinkprop import report as report
    from sinkprop import store as store
    from sinkprop import torch as torch
    from sinkprop.linear.ranker import SinkPropRanker
    from sinkprop.registry import load_model
    from sinkprop.store import StoredQueries, open_queries

__version__ = "0.1.0"

__all__ = [
    "NDCG",
    "RBP",
    "Annealing",
    "Convention",
    "Evaluation",
    "ExpectedGain",
    "FitResult",
    "Fold",
    "Gain",
    "Metric",
    "PartitionedMeasure",
    "Precision",
    "Queries",
    "RankLinear",
    "Ranking",
    "Relaxation",
    "Selection",
    "SinkPropRanker",
    "SinkhornLimit",
    "SinkhornStatus",
    "SmoothedIndicator",
    "StoredQueries",
    "baselines",
    "choose_permutation",
    "datasets",
    "doubly_stochastic",
    "evaluate",
    "expected_gain",
    "expected_ranks",
    "load_frame",
    "load_letor",
    "load_model",
    "load_parquet",
    "load_queries",
    "load_query_sizes",
    "open_queries",
    "parse_gain",
    "parse_metric",
    "parse_metrics",
    "ranking",
    "save_letor",
    "sinkhorn",
    "sinkhorn_limit",
    "sinkhorn_vjp",
    "top_k_probability",
]

# What needs scikit-learn or torch is imported when it is asked for: `import sinkprop` loads NumPy only, and
# `from sinkprop import *` no torch.
_LAZY = {
    "SinkPropRanker": "sinkprop.linear.ranker",
    "load_model": "sinkprop.registry",
    "StoredQueries": "sinkprop.store",
    "open_queries": "sinkprop.store",
    "baselines": "sinkprop.baselines",
    "datasets": "sinkprop.datasets",
    "experiment": "sinkprop.experiment",
    "export": "sinkprop.export",
    "gbdt": "sinkprop.gbdt",
    "plot": "sinkprop.plot",
    "report": "sinkprop.report",
    "store": "sinkprop.store",
    "torch": "sinkprop.torch",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sinkprop' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if _LAZY[name] == f"sinkprop.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
