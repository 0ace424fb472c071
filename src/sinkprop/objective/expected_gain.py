"""The expected gain and its gradient: the one call that every trainer and front end makes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats
from sinkprop.data.checks import as_labels, as_query_weight, as_sample_weight, as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.native_terms import NativeSettings, native_gains, native_settings
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator

__all__ = ["ExpectedGain", "expected_gain"]


@dataclass(frozen=True)
class ExpectedGain:
    """An expected gain and its gradient.

    value      mean over the queries, weighted where query weights were given
    per_query  (Q,) one value a query, in the order of `queries`
    gradient   d value / d scores, in the shape and row order of the scores
    queries    (Q,) query ids, by first appearance
    """

    value: float
    per_query: Floats
    gradient: Floats
    queries: NDArray[Any]


def expected_gain(
    scores: ArrayLike,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    gain: str | Gain = "ndcg",
    relaxation: Relaxation = SmoothedIndicator(),  # noqa: B008 - a frozen value
    n_iter: float = 5,
    epsilon: float = 1e-6,
    sample_weight: ArrayLike | None = None,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    n_threads: int | None = None,
) -> ExpectedGain:
    """Expected gain under the incompletely Sinkhorn-normalized matrix, and its exact gradient in the scores.

    The mean over queries of sum_jk l(r_j, k) Pi[j, k] with Pi = Z^n_iter(A + epsilon), where the relaxation
    makes A from the scores; `reference.py` holds the definition. Linear time for `SmoothedIndicator`,
    quadratic for `PartitionedMeasure`. The order of the documents is held fixed by the derivative.

    scores         (N,), or (N, 2) for a partitioned measure; larger is better
    labels         (N,) relevance, not below 0
    qid            (N,) the query of each row, any hashable ids in any order; None makes one query of all rows
    sample_weight  (N,) row weights, not below 0: each multiplies what its document adds, l(r_j, k), in the
                   best ranking too. Inverse propensities make the gain of clicked documents unbiased; a
                   document of weight 0 is worth nothing wherever it stands, but still takes a rank.
    query_weight   (Q,) query weights in order of first appearance, (N,) by row, or {id: weight}: the value is
                   the weighted mean, sum_q c_q f_q / sum_q c_q. `per_query` is without them.
    n_iter         Sinkhorn iterations, of columns, then rows; a half more ends with columns: 0.5, with
                   epsilon = 0, is the objective of SmoothRank
    n_threads      threads over queries; None takes the processors there are, or SINKPROP_NUM_THREADS.
                   The result has the same bits whatever their number.

    >>> r = expected_gain([0.2, 1.5, 0.3], [2, 0, 1], gain="ndcg@10", relaxation=SmoothedIndicator(sigma=0.5))
    >>> round(r.value, 4), r.gradient.round(4)
    (0.8191, array([ 0.044 , -0.0189, -0.0251]))
    """
    gain = as_gain(gain)
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    return native_gain(x, labels, qid, gain, settings, sample_weight, query_weight, n_threads)


def native_gain(
    x: Floats,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None,
    gain: Gain,
    settings: NativeSettings,
    sample_weight: ArrayLike | None,
    query_weight: ArrayLike | Mapping[Hashable, float] | None,
    n_threads: int | None,
    *,
    power: int = 1,
) -> ExpectedGain:
    """The expected gain of checked scores x, under settings of the native layer.

    power  of the query's size to which its cost grows: costlier queries are worth a second thread sooner
    """
    y = as_labels(labels, len(x))
    groups = group_rows(qid, len(x))
    row_weights = None if sample_weight is None else as_sample_weight(sample_weight, len(x))
    query_weights = None if query_weight is None else as_query_weight(query_weight, groups, len(x))
    per_query, gradient = grouped_gain(x, y, groups, gain, settings, row_weights, n_threads, power=power)
    if query_weights is not None:
        shares = query_weights / math.fsum(query_weights)
        scale_queries(gradient, shares * len(shares), groups)
        return ExpectedGain(math.fsum(shares * per_query), per_query, gradient, groups.queries)
    # fsum is exact, so the mean does not depend on how NumPy splits a sum
    return ExpectedGain(math.fsum(per_query) / len(per_query), per_query, gradient, groups.queries)


def grouped_gain(
    x: Floats,
    y: Floats,
    groups: Groups,
    gain: Gain,
    settings: NativeSettings,
    row_weights: Floats | None,
    n_threads: int | None,
    *,
    power: int = 1,
    factor: float | None = None,
) -> tuple[Floats, Floats]:
    """Values (Q,) and the gradient of their mean, or of `factor` times their sum, from checked arrays.

    Rows of x that belong to no query have the gradient 0. Their labels must be such as the gain takes.
    """
    gains = native_gains(gain, y, groups, row_weights)
    covered = groups.offsets[-1] == len(x)
    per_query, gradient = np.empty(len(groups.offsets) - 1), np.empty_like(x) if covered else np.zeros_like(x)
    # by position: names would cost a small query as much again as its mathematics
    n_threads = threads(n_threads, len(x) * groups.longest ** (power - 1))
    _native.expected_gain(
        x, groups.offsets, groups.rows, *gains, *settings, n_threads, per_query, gradient, factor
    )
    return per_query, gradient


def scale_queries(gradient: Floats, factors: Floats, groups: Groups) -> None:
    """Multiply the rows of each query by its factor, in place."""
    by_row = np.repeat(factors, groups.sizes).reshape((-1,) + (1,) * (gradient.ndim - 1))
    if groups.rows is None:
        gradient *= by_row
    else:
        gradient[groups.rows] *= by_row
