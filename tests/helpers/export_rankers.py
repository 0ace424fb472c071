"""Rankers of every kind, fitted to a few real queries, for the tests of exports."""

from __future__ import annotations

from functools import cache

import numpy as np

from sinkprop import AutoRanker, PartitionedMeasure, Queries, SinkPropRanker, datasets
from sinkprop.baselines import (
    AdaRankRanker,
    BoltzRankRanker,
    CatBoostRanker,
    FeatureRanker,
    LightGBMRanker,
    ListNetRanker,
    RegressionRanker,
    SmoothRankRanker,
    SoftRankRanker,
    XGBoostRanker,
)
from sinkprop.estimator.base import BaseRanker
from sinkprop.gbdt.ranker import BoostedRanker
from sinkprop.linear.records import Annealing
from sinkprop.torch import MLP, NeuralRanker

_SHORT = {"annealing": Annealing(0.5, 0.25), "penalty": 0.01, "verbose": False}
_NETWORK = {"max_epochs": 3, "validation_fraction": 0, "verbose": False}
_NO_LOG = {**_NETWORK, "input_transform": "none"}
_PENALTY = {"penalty": 0.1, "verbose": False}
LINEAR = {
    "sinkprop": lambda: SinkPropRanker(**_SHORT),
    "sinkprop, laplace, raw": lambda: SinkPropRanker(relaxation="laplace", normalization="none", **_SHORT),
    "regression": RegressionRanker,
    "ridge": lambda: RegressionRanker(penalty=1.0, normalization="standard"),
    "listnet": lambda: ListNetRanker(penalty=0.1, verbose=False),
    "adarank": lambda: AdaRankRanker(n_rounds=5, verbose=False),
    "smoothrank": lambda: SmoothRankRanker(**_SHORT),
    "softrank": lambda: SoftRankRanker(max_iter=2, **_PENALTY),
    "boltzrank": lambda: BoltzRankRanker(max_iter=3, **_PENALTY),
    "feature": lambda: FeatureRanker("whole_bm25"),
    "feature, reversed": lambda: FeatureRanker(-8),
}
PARTITIONED = {
    family: lambda family=family: SinkPropRanker(relaxation=PartitionedMeasure(family), max_iter=2, **_SHORT)
    for family in ("logit-logistic", "probit", "beta")
}
TREES = {
    "boosted": lambda: BoostedRanker(n_estimators=40, verbose=False),
    "boosted, mean of three": lambda: BoostedRanker(n_estimators=20, n_boosters=3, verbose=False),
    "lightgbm": lambda: LightGBMRanker(n_estimators=20, num_leaves=10, verbose=False),
    "xgboost": lambda: XGBoostRanker(
        n_estimators=20, num_leaves=10, min_child_weight=1.0, learning_rate=0.3, verbose=False
    ),
    "catboost": lambda: CatBoostRanker(
        n_estimators=20, depth=4, l2_leaf_reg=None, learning_rate=0.3, verbose=False
    ),
}
NETWORKS = {  # that Solr can hold
    "network": lambda: NeuralRanker(**_NO_LOG),
    "network, three layers, batch": lambda: NeuralRanker(
        network=MLP((12, 8, 4), layer_normalization="batch"), **_NO_LOG
    ),
    "network, one layer, raw": lambda: NeuralRanker(network=MLP((5,)), normalization="none", **_NO_LOG),
    "network, no layer": lambda: NeuralRanker(network=MLP(()), **_NO_LOG),
}
MORE_NETWORKS = {  # that only ONNX can
    "network, log": lambda: NeuralRanker(**_NETWORK),
    "network, gelu, layer": lambda: NeuralRanker(
        network=MLP(activation="gelu", layer_normalization="layer"), **_NETWORK
    ),
    "network, silu, batch": lambda: NeuralRanker(
        network=MLP(activation="silu", layer_normalization="batch"), **_NETWORK
    ),
    "network, elu": lambda: NeuralRanker(network=MLP(activation="elu"), **_NETWORK),
    "network, tanh": lambda: NeuralRanker(network=MLP(activation="tanh"), **_NETWORK),
    "network, float64": lambda: NeuralRanker(dtype="float64", **_NETWORK),
    "network, listnet": lambda: NeuralRanker("listnet", **_NETWORK),
    "network, beta": lambda: NeuralRanker(relaxation="beta", **_NETWORK),
}
BY_QUERY = {
    "sinkprop, query": lambda: SinkPropRanker(normalization="query", **_SHORT),
    "lightgbm, query": lambda: LightGBMRanker(
        n_estimators=20, num_leaves=4, normalization="query", verbose=False
    ),
    "network, query": lambda: NeuralRanker(normalization="query", **_NETWORK),
}
NOT_EXPORTED = {"auto": lambda: AutoRanker(methods="ridge,trees", time_budget=1e6, verbose=False)}
ALL = {**NOT_EXPORTED, **LINEAR, **PARTITIONED, **TREES, **NETWORKS, **MORE_NETWORKS, **BY_QUERY}


@cache
def training() -> Queries:
    """12 queries of pydocs, of 20 documents each."""
    train = datasets.load_pydocs(1).train
    rows = [np.flatnonzero(train.qid == q)[:20] for q in np.unique(train.qid)[:12]]
    return train.take(np.concatenate(rows))


@cache
def real_queries() -> Queries:
    """All 32 of the fold."""
    return datasets.load_pydocs(1).test


@cache
def fitted(name: str, n_threads: int | None = None) -> BaseRanker:
    train = training()
    ranker = ALL[name]()
    if n_threads is not None and "n_threads" in ranker.get_params():
        ranker.set_params(n_threads=n_threads)
    if isinstance(ranker, FeatureRanker):
        ranker.feature_names = list(train.feature_names)
    return ranker.fit(train.X, train.y, qid=train.qid)
