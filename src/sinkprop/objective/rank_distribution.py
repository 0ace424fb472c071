"""The distribution over ranks: columns of Pi, expected ranks, top-k probabilities, assignment."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads, whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.objective.native_terms import NativeSettings, native_settings
from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__all__ = ["chosen_ranks", "doubly_stochastic", "expected_ranks", "partitioned_ranks", "top_k_probability"]


def expected_ranks(
    scores: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    relaxation: Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: float = 5,
    epsilon: float = 1e-6,
    n_threads: int | None = None,
) -> Floats:
    """Expected rank of each document in its query, sum_k k Pi[j, k]: (N,), 1 for the top.

    Pi is never formed for a `SmoothedIndicator`: linear time.

    >>> expected_ranks([0.2, 1.5, 0.3], relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([2.468, 1.074, 2.434])
    """
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    groups = group_rows(qid, len(x))
    columns = np.arange(1.0, groups.longest + 1).reshape(1, -1)
    return _project(x, groups, columns, settings, n_threads)[:, 0]


def top_k_probability(
    scores: ArrayLike,
    k: int,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    relaxation: Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: float = 5,
    epsilon: float = 1e-6,
    n_threads: int | None = None,
) -> Floats:
    """Probability of each document to be among the first k of its query, sum_(k' <= k) Pi[j, k']: (N,).

    Pi is never formed for a `SmoothedIndicator`: linear time.

    >>> top_k_probability([0.2, 1.5, 0.3], 1, relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([0.027, 0.946, 0.043])
    """
    k = whole("k", k, 1)
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    groups = group_rows(qid, len(x))
    columns = (np.arange(groups.longest) < k).astype(np.float64).reshape(1, -1)
    return _as_probabilities(_project(x, groups, columns, settings, n_threads)[:, 0], n_iter)


def doubly_stochastic(
    scores: ArrayLike,
    *,
    ranks: ArrayLike | None = None,
    relaxation: Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: float = 5,
    epsilon: float = 1e-6,
) -> Floats:
    """Pi of one query: Pi[j, k - 1] is the probability that document j, in the input's order, is at rank k.

    All columns, (n, n), in quadratic time, or with `ranks` (1 to n) only those, (n, len(ranks)), in linear
    time each for a `SmoothedIndicator`. Rows sum to 1; after an incomplete normalization, columns nearly
    (with a half iteration at the end, columns to 1 and rows nearly).

    >>> doubly_stochastic([0.2, 1.5, 0.3], relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([[0.027, 0.479, 0.495],
           [0.946, 0.033, 0.02 ],
           [0.043, 0.48 , 0.477]])
    """
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    n = len(x)
    if ranks is None:
        from sinkprop.objective.sinkhorn import sinkhorn
        from sinkprop.reference import pre_sinkhorn

        if isinstance(relaxation, PartitionedMeasure):
            x = x.clip(*relaxation.limits)
        # a difference of two distribution functions can round to just below 0
        return sinkhorn(np.maximum(pre_sinkhorn(x, relaxation), 0), n_iter, epsilon=epsilon)
    chosen = chosen_ranks(ranks, n)
    columns = np.zeros((len(chosen), n))
    columns[np.arange(len(chosen)), chosen - 1] = 1
    return _as_probabilities(_project(x, group_rows(None, n), columns, settings, 1), n_iter)


def chosen_ranks(ranks: ArrayLike, n: int) -> NDArray[Any]:
    """The ranks, one or several, checked: whole numbers from 1 to n."""
    chosen: NDArray[Any] = np.atleast_1d(np.asarray(ranks))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not chosen.size:
        raise ValueError(f"ranks must be whole numbers from 1 to {n}; got {ranks!r}.")
    if chosen.min() < 1 or chosen.max() > n:
        bad = chosen[(chosen < 1) | (chosen > n)][0]
        raise ValueError(f"ranks must be from 1 to {n}, the number of documents; got {bad}.")
    return chosen


def _as_probabilities(p: Floats, n_iter: float) -> Floats:
    """Probabilities without the last digits of a sum that stray below 0 or, for normalized rows, above 1."""
    rows_last = n_iter > 0 and n_iter == int(n_iter)
    return p.clip(0, 1 if rows_last else None)


def _project(
    x: Floats,
    groups: Groups,
    columns: Floats,
    settings: NativeSettings,
    n_threads: int | None,
) -> Floats:
    """sum_k Pi[j, k] columns[c, k] for each document and each c: (N, C)."""
    out = np.empty((len(x), len(columns)))
    _native.project(x, groups.offsets, groups.rows, columns, *settings, threads(n_threads, len(x)), out)
    return out


def partitioned_ranks(
    theta: Floats, groups: Groups, relaxation: Relaxation, *, n_iter: float, epsilon: float, top: int
) -> Integers:
    """Ranks (N,) by the short-cut Hungarian algorithm on each query's Pi, as the paper ranks test queries."""
    ranks = np.empty(len(theta), dtype=np.int64)
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        Pi = doubly_stochastic(theta[rows], relaxation=relaxation, n_iter=n_iter, epsilon=epsilon)
        ranks[rows[choose_permutation(Pi, method="shortcut", top=top)]] = np.arange(1, len(rows) + 1)
    return ranks
