"""Explanations in a report: the features that move each document, and what each does to a query's metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries
from sinkprop.estimator.criteria import gain_under
from sinkprop.experiment.details import FoldData
from sinkprop.experiment.scoring import taken_queries
from sinkprop.explain import RankingExplanation, explain_ranking
from sinkprop.metrics.conventions import Convention
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["explanations"]

METRIC = "ndcg@10"
LONGEST = 300  # queries with more documents are not explained
# Limit of the sum of n^2 (n + D) over the explained queries of a report: about a minute of one processor
MAX_WORK = 4e8
MAX_DOCUMENTS = 20_000  # of a report that are explained, about 50 bytes each
TOP = 5  # features per document
_OF_QUERY = 10  # features per query


def explanations(
    models: Mapping[str, Any],
    test: Queries,
    data: FoldData,
    distributions: Mapping[str, Mapping[str, Any]],
    convention: Convention,
) -> dict[str, Any]:
    """Explanations of the queries `data.shown` by the models that have contributions of features.

    The result has features, the names; metric; and methods, {method: one record or None per shown query}. A
    record has documents, for each document a flat list [feature, ranks, feature, ranks, ...] with negative
    ranks for features that move it up; query, the same list for the metric; and the expected metric and that
    of a random order. Empty if there is nothing to explain.

    distributions  {method: settings of the rank distribution that the explorer shows}, whose expected ranks
                   are explained.
    """
    able = [name for name, ranker in models.items() if _explained(ranker, distributions.get(str(name)))]
    lengths = np.array([data.lengths[q] for q in data.shown], dtype=np.int64)
    chosen = _chosen(lengths, test.n_features, len(able))
    if not len(chosen):
        return {}
    queries = taken_queries(test, np.array(data.shown)[chosen])
    ends = np.cumsum(lengths[chosen])[:-1]
    names = data.feature_names or [f"feature {i}" for i in range(1, test.n_features + 1)]
    methods = {}
    for name in able:
        found = _explanation(models[name], queries, distributions[str(name)], convention)
        records: list[dict[str, Any] | None] = [None] * len(lengths)
        for i, (place, ranks) in enumerate(zip(chosen.tolist(), np.split(found.ranks, ends), strict=True)):
            records[place] = _record(found, i, ranks)
        methods[str(name)] = records
    return {"features": list(names), "metric": METRIC, "methods": methods}


def _explained(ranker: Any, settings: Mapping[str, Any] | None) -> bool:
    """Whether the ranker has contributions, and the explorer shows ranks that can be explained."""
    if settings is None or not getattr(ranker, "explainable", False):
        return False
    return "mixture" in settings or isinstance(
        getattr(ranker, "relaxation_", SmoothedIndicator()), SmoothedIndicator
    )


def _chosen(lengths: Integers, n_features: int, n_methods: int) -> Integers:
    """Indices of the queries to explain: evenly spaced, as many as the limits allow."""
    short = np.flatnonzero(lengths <= LONGEST)
    work = lengths.astype(np.float64) ** 2 * (lengths + n_features) * n_methods
    for count in range(len(short) if n_methods else 0, 0, -1):
        taken = short[np.round(np.linspace(0, len(short) - 1, count)).astype(np.int64)]
        if work[taken].sum() <= MAX_WORK and lengths[taken].sum() * n_methods <= MAX_DOCUMENTS:
            return taken
    return short[:0]


def _explanation(
    ranker: Any, queries: Queries, settings: Mapping[str, Any], convention: Convention
) -> RankingExplanation:
    own: dict[str, Any] = {"calibration": ranker.calibration_}
    if "mixture" not in settings:
        relaxation = SmoothedIndicator(settings["sigma"], settings["kernel"])
        own = {"relaxation": relaxation, "n_iter": settings["n_iter"], "epsilon": settings["epsilon"]}
    parts = ranker.predict(queries, pred_contrib=True)
    return explain_ranking(parts, queries.qid, queries.y, metric=gain_under(METRIC, convention), **own)


def _record(found: RankingExplanation, i: int, ranks: Floats) -> dict[str, Any]:
    assert found.metric is not None
    assert found.expected_metric is not None
    assert found.random_metric is not None
    return {
        "documents": [_largest(own, TOP, 2) for own in ranks],
        "query": _largest(found.metric[i], _OF_QUERY, 4),
        "expected": round(float(found.expected_metric[i]), 4),
        "random": round(float(found.random_metric[i]), 4),
    }


def _largest(values: Floats, count: int, digits: int) -> list[float]:
    """Index and rounded value of the largest contributions, in turn, except those that round to 0."""
    order = np.argsort(-np.abs(values), kind="stable")[:count].tolist()
    return [x for i in order if (value := round(float(values[i]), digits)) for x in (i, value)]
