"""More rankers of every kind, fitted and calibrated, for the tests of scorers."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
from export_rankers import ALL, fitted, real_queries, training

from sinkprop import AutoRanker, SinkPropRanker
from sinkprop.baselines import BoltzRankRanker, SoftRankRanker
from sinkprop.torch import MLP, ListTransformer, NeuralRanker

_SHORT = {"max_epochs": 2, "validation_fraction": 0, "verbose": False}
_EMPTY = {
    "mean": lambda: SinkPropRanker(missing="mean", penalty=0.01, verbose=False),
    "indicator, query": lambda: SinkPropRanker(normalization="query", penalty=0.01, verbose=False),
    "network, missing, query": lambda: NeuralRanker(normalization="query", **_SHORT),
    "network, missing": lambda: NeuralRanker(**_SHORT),
}
MORE = {
    "softrank, in order": lambda: SoftRankRanker(penalty=0.1, max_iter=2, balance=False, verbose=False),
    "softrank, three": lambda: SoftRankRanker(penalty=0.1, max_iter=2, balance=3, verbose=False),
    "boltzrank, pairs": lambda: BoltzRankRanker(potential="pair", penalty=0.1, max_iter=3, verbose=False),
    "partitioned, query": lambda: SinkPropRanker(
        relaxation="logit-logistic", normalization="query", penalty=0.01, max_iter=2, verbose=False
    ),
    "networks": lambda: NeuralRanker(n_networks=2, **_SHORT),
    "network, no linear": lambda: NeuralRanker(network=MLP((6,), linear=False), **_SHORT),
    "attention": lambda: NeuralRanker(network=ListTransformer(8), **_SHORT),
    "attention, two blocks, beta": lambda: NeuralRanker(
        network=ListTransformer(8, blocks=2, relative=False, linear=False, activation="gelu"),
        relaxation="beta",
        **_SHORT,
    ),
    "attention, two": lambda: NeuralRanker(network=ListTransformer(8), n_networks=2, **_SHORT),
    "auto with networks": lambda: AutoRanker(
        methods="ridge,networks", time_budget=1e6, selection="cross-validation", verbose=False
    ),
}
NETWORKS = [name for name in (*ALL, *MORE, *_EMPTY) if name.startswith(("network", "attention", "auto with"))]
EXACT = [name for name in (*ALL, *MORE, *_EMPTY) if name not in NETWORKS]


def with_missing(X):
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X


@cache
def ranker_of(name):
    """A fitted ranker that is calibrated on real queries."""
    if name in ALL:
        ranker = deepcopy(fitted(name))  # which other tests share
    else:
        queries = training()
        X = with_missing(queries.X) if name in _EMPTY else queries.X
        ranker = {**MORE, **_EMPTY}[name]().fit(X, queries.y, qid=queries.qid)
    queries = real_queries()
    return ranker.calibrate(queries.X, queries.y, qid=queries.qid)
