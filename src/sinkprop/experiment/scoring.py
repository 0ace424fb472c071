"""Scores of rankers of any kind on queries in memory or in a stored set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.missing import MissingValues
from sinkprop.data.queries import Queries
from sinkprop.experiment.folds.files import AnyQueries
from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.evaluation import Evaluation, evaluate, evaluate_blocks
from sinkprop.metrics.measures import Metric

__all__ = [
    "evaluated",
    "largest_label",
    "loaded",
    "predicted",
    "ranking_scores",
    "rows_of_queries",
    "spread",
    "taken_queries",
]


def rows_of_queries(queries: Queries, numbers: Iterable[int]) -> list[Integers]:
    """Return the row indices, in file order, of each query whose index is in `numbers`."""
    offsets, rows = queries.groups.offsets, queries.groups.rows
    if rows is None:
        rows = np.arange(len(queries))
    return [rows[offsets[q] : offsets[q + 1]] for q in numbers]


def taken_queries(queries: AnyQueries, numbers: Sequence[int] | Integers) -> Queries:
    """The queries whose indices are `numbers`, one after another, each with its rows in file order."""
    if not isinstance(queries, Queries):
        return queries.take(numbers)
    return queries.take(np.concatenate(rows_of_queries(queries, numbers)))


def loaded(queries: AnyQueries) -> Queries:
    """The queries, loaded into memory if they are in a stored set."""
    return queries if isinstance(queries, Queries) else queries.load()


def largest_label(queries: AnyQueries) -> float:
    """Largest label of the queries."""
    return float(queries.y.max()) if isinstance(queries, Queries) else queries.largest_label


def spread(queries: AnyQueries, missing: MissingValues | None = None) -> Floats:
    """Standard deviation (D,) of each feature, or (D + I,) with the indicators of missing values.

    missing  Treatment of missing values, which is applied first; None if there are none.
    """

    def rows(part: Queries) -> NDArray[Any]:
        return part.X if missing is None else missing(part.X)

    if isinstance(queries, Queries):
        found: Floats = rows(queries).std(axis=0, dtype=np.float64)
        return found
    n = len(queries)
    mean = sum((rows(block).sum(axis=0, dtype=np.float64) for block in queries.blocks()), np.zeros(1)) / n
    square = sum(
        (np.square(rows(block) - mean).sum(axis=0) for block in queries.blocks()), np.zeros_like(mean)
    )
    return np.sqrt(square / n)


def evaluated(
    queries: AnyQueries,
    scores: Floats,
    metrics: tuple[Metric, ...],
    convention: Convention,
    max_grade: float | None = None,
) -> Evaluation:
    """Return metrics of the ranking by the scores (N,). `max_grade` is the highest label, for ERR."""
    if isinstance(queries, Queries):
        return evaluate(queries, scores, metrics=metrics, convention=convention, max_grade=max_grade)
    ends = np.cumsum([0, *np.diff(queries.block_rows)])
    return evaluate_blocks(
        (
            (labels, scores[ends[b] : ends[b + 1]], groups)
            for b, (labels, groups) in enumerate(queries.labels_by_block())
        ),
        queries.query_ids,
        queries.largest_label,
        metrics,
        convention,
        max_grade=max_grade,
    )


def ranking_scores(ranker: Any, test: AnyQueries) -> Floats:
    """Scores (N,) that sort documents like the ranker: its negated ranks if it has `rank`, or its scores."""
    if callable(getattr(ranker, "rank", None)):
        return -ranked(ranker, test).astype(np.float64)
    return predicted(ranker, loaded(test))


def ranked(ranker: Any, queries: AnyQueries) -> Integers:
    """Call the method `rank` of a ranker from sinkprop or any other package, and return the ranks (N,)."""
    if _is_ours(ranker):
        return np.asarray(ranker.rank(queries))
    queries = loaded(queries)
    return np.asarray(ranker.rank(queries.X, qid=queries.qid))


def predicted(ranker: Any, queries: Queries) -> Floats:
    """Call the method `predict` of an estimator from sinkprop or elsewhere, and return the scores (N,)."""
    return np.asarray(ranker.predict(queries if _is_ours(ranker) else queries.X), dtype=np.float64)


def _is_ours(ranker: Any) -> bool:
    from sinkprop.estimator.base import BaseRanker

    return isinstance(ranker, BaseRanker)
