"""The rows of some queries, and what a ranker of any kind gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.data import Queries

__all__ = ["predicted", "ranking_scores", "rows_of_queries"]

Floats = NDArray[np.float64]


def rows_of_queries(queries: Queries, numbers: Iterable[int]) -> list[NDArray[np.int64]]:
    """The rows of each query with these numbers, in file order."""
    offsets, rows = queries.groups.offsets, queries.groups.rows
    if rows is None:
        rows = np.arange(len(queries))
    return [rows[offsets[q] : offsets[q + 1]] for q in numbers]


def ranking_scores(ranker: Any, test: Queries) -> Floats:
    """Scores (N,) in the order in which the ranker ranks: its ranks with a minus sign, where it has ranks."""
    if callable(getattr(ranker, "rank", None)):
        return -np.asarray(ranker.rank(test.X, qid=test.qid), dtype=np.float64)
    return np.asarray(ranker.predict(test.X), dtype=np.float64)


def predicted(ranker: Any, X: NDArray[Any], codes: NDArray[np.int64]) -> Floats:
    """What `predict` gives rows of the queries with these numbers, whatever kind of estimator it is."""
    from sinkprop.estimator import BaseRanker

    more = {"qid": codes} if isinstance(ranker, BaseRanker) else {}
    return np.asarray(ranker.predict(X, **more), dtype=np.float64)
