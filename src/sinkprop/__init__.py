"""Learning to rank on the expected value of the metric itself, by Sinkhorn propagation, in linear time."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop import auto as auto
    from sinkprop import baselines, datasets
    from sinkprop import calibration as calibration
    from sinkprop import clicks as clicks
    from sinkprop import explain as explain
    from sinkprop import export as export
    from sinkprop import gbdt as gbdt
    from sinkprop import permutations as permutations
    from sinkprop import plot as plot
    from sinkprop import policies as policies
    from sinkprop import report as report
    from sinkprop import serving as serving
    from sinkprop import store as store
    from sinkprop import torch as torch
    from sinkprop.auto.ranker import AutoRanker
    from sinkprop.calibration import RankCalibration
    from sinkprop.data.diversity_qrels import DiversityQrels, load_diversity_qrels
    from sinkprop.data.frames import load_frame, load_parquet
    from sinkprop.data.letor import load_letor, load_queries, save_letor
    from sinkprop.data.queries import Fold, Queries
    from sinkprop.data.query_sizes import load_query_sizes
    from sinkprop.estimator.selection import Selection
    from sinkprop.experiment.systems import compare_scores
    from sinkprop.explain import explain_ranking
    from sinkprop.linear.ranker import SinkPropRanker
    from sinkprop.linear.records import Annealing, FitResult
    from sinkprop.metrics.conventions import Convention
    from sinkprop.metrics.evaluation import Evaluation, evaluate
    from sinkprop.metrics.measures import Metric, parse_metric, parse_metrics
    from sinkprop.metrics.ranking import Ranking, ranking
    from sinkprop.objective.expected_gain import ExpectedGain, expected_gain
    from sinkprop.objective.gains import NDCG, RBP, Gain, Precision, RankLinear, parse_gain
    from sinkprop.objective.gains.columns import (
        ERR,
        ERRIA,
        AlphaNDCG,
        AveragePrecision,
        FMeasure,
        Recall,
        ReciprocalRank,
    )
    from sinkprop.objective.gains.custom import ColumnGain, RowGain
    from sinkprop.objective.gains.rows import ExpectedExposure, ExposureGap
    from sinkprop.objective.normalization import Converged
    from sinkprop.objective.permutation import choose_permutation
    from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks, top_k_probability
    from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
    from sinkprop.objective.sinkhorn import sinkhorn, sinkhorn_vjp
    from sinkprop.objective.sinkhorn_limit import SinkhornLimit, SinkhornStatus, sinkhorn_limit
    from sinkprop.policies import birkhoff, exposure_policy, sample_rankings
    from sinkprop.registry import load_model
    from sinkprop.store import StoredQueries, open_queries

__version__ = "0.1.0"

__all__ = [
    "ERR",
    "ERRIA",
    "NDCG",
    "RBP",
    "AlphaNDCG",
    "Annealing",
    "AutoRanker",
    "AveragePrecision",
    "ColumnGain",
    "Convention",
    "Converged",
    "DiversityQrels",
    "Evaluation",
    "ExpectedExposure",
    "ExpectedGain",
    "ExposureGap",
    "FMeasure",
    "FitResult",
    "Fold",
    "Gain",
    "Metric",
    "PartitionedMeasure",
    "Precision",
    "Queries",
    "RankCalibration",
    "RankLinear",
    "Ranking",
    "Recall",
    "ReciprocalRank",
    "Relaxation",
    "RowGain",
    "Selection",
    "SinkPropRanker",
    "SinkhornLimit",
    "SinkhornStatus",
    "SmoothedIndicator",
    "StoredQueries",
    "baselines",
    "birkhoff",
    "choose_permutation",
    "compare_scores",
    "datasets",
    "doubly_stochastic",
    "evaluate",
    "expected_gain",
    "expected_ranks",
    "explain_ranking",
    "exposure_policy",
    "load_diversity_qrels",
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
    "sample_rankings",
    "save_letor",
    "sinkhorn",
    "sinkhorn_limit",
    "sinkhorn_vjp",
    "top_k_probability",
]

# All names are imported on first use, so `import sinkprop` loads no other package, a service that only scores
# loads little, and `from sinkprop import *` does not load torch.
_LAZY = {
    "ERR": "sinkprop.objective.gains.columns",
    "ERRIA": "sinkprop.objective.gains.columns",
    "NDCG": "sinkprop.objective.gains",
    "RBP": "sinkprop.objective.gains",
    "AlphaNDCG": "sinkprop.objective.gains.columns",
    "Annealing": "sinkprop.linear.records",
    "AutoRanker": "sinkprop.auto.ranker",
    "AveragePrecision": "sinkprop.objective.gains.columns",
    "ColumnGain": "sinkprop.objective.gains.custom",
    "Convention": "sinkprop.metrics.conventions",
    "Converged": "sinkprop.objective.normalization",
    "DiversityQrels": "sinkprop.data.diversity_qrels",
    "Evaluation": "sinkprop.metrics.evaluation",
    "ExpectedExposure": "sinkprop.objective.gains.rows",
    "ExpectedGain": "sinkprop.objective.expected_gain",
    "ExposureGap": "sinkprop.objective.gains.rows",
    "FMeasure": "sinkprop.objective.gains.columns",
    "FitResult": "sinkprop.linear.records",
    "Fold": "sinkprop.data.queries",
    "Gain": "sinkprop.objective.gains",
    "Metric": "sinkprop.metrics.measures",
    "PartitionedMeasure": "sinkprop.objective.relaxations",
    "Precision": "sinkprop.objective.gains",
    "Queries": "sinkprop.data.queries",
    "RankCalibration": "sinkprop.calibration",
    "RankLinear": "sinkprop.objective.gains",
    "Ranking": "sinkprop.metrics.ranking",
    "Recall": "sinkprop.objective.gains.columns",
    "ReciprocalRank": "sinkprop.objective.gains.columns",
    "Relaxation": "sinkprop.objective.relaxations",
    "RowGain": "sinkprop.objective.gains.custom",
    "Selection": "sinkprop.estimator.selection",
    "SinkPropRanker": "sinkprop.linear.ranker",
    "SinkhornLimit": "sinkprop.objective.sinkhorn_limit",
    "SinkhornStatus": "sinkprop.objective.sinkhorn_limit",
    "SmoothedIndicator": "sinkprop.objective.relaxations",
    "StoredQueries": "sinkprop.store",
    "auto": "sinkprop.auto",
    "baselines": "sinkprop.baselines",
    "birkhoff": "sinkprop.policies",
    "calibration": "sinkprop.calibration",
    "choose_permutation": "sinkprop.objective.permutation",
    "clicks": "sinkprop.clicks",
    "cluster": "sinkprop.cluster",
    "compare_scores": "sinkprop.experiment.systems",
    "datasets": "sinkprop.datasets",
    "doubly_stochastic": "sinkprop.objective.rank_distribution",
    "evaluate": "sinkprop.metrics.evaluation",
    "expected_gain": "sinkprop.objective.expected_gain",
    "expected_ranks": "sinkprop.objective.rank_distribution",
    "experiment": "sinkprop.experiment",
    "explain": "sinkprop.explain",
    "explain_ranking": "sinkprop.explain",
    "export": "sinkprop.export",
    "exposure_policy": "sinkprop.policies",
    "gbdt": "sinkprop.gbdt",
    "load_diversity_qrels": "sinkprop.data.diversity_qrels",
    "load_frame": "sinkprop.data.frames",
    "load_letor": "sinkprop.data.letor",
    "load_model": "sinkprop.registry",
    "load_parquet": "sinkprop.data.frames",
    "load_queries": "sinkprop.data.letor",
    "load_query_sizes": "sinkprop.data.query_sizes",
    "metrics": "sinkprop.metrics",
    "model_files": "sinkprop.model_files",
    "open_queries": "sinkprop.store",
    "parse_gain": "sinkprop.objective.gains",
    "parse_metric": "sinkprop.metrics.measures",
    "parse_metrics": "sinkprop.metrics.measures",
    "permutations": "sinkprop.permutations",
    "plot": "sinkprop.plot",
    "policies": "sinkprop.policies",
    "ranking": "sinkprop.metrics.ranking",
    "reference": "sinkprop.reference",
    "report": "sinkprop.report",
    "sample_rankings": "sinkprop.policies",
    "save_letor": "sinkprop.data.letor",
    "serving": "sinkprop.serving",
    "sinkhorn": "sinkprop.objective.sinkhorn",
    "sinkhorn_limit": "sinkprop.objective.sinkhorn_limit",
    "sinkhorn_vjp": "sinkprop.objective.sinkhorn",
    "store": "sinkprop.store",
    "top_k_probability": "sinkprop.objective.rank_distribution",
    "torch": "sinkprop.torch",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
