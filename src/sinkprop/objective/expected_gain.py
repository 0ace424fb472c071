"""The expected gain and its gradient, for users, linear models, SoftRank and the native torch loss."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats, Integers, Reals
from sinkprop.data.checks import as_label_columns, as_query_weight, as_sample_weight, as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.objective.exact_sum import exact_sum
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.gains.base import with_bound_arrays
from sinkprop.objective.native_terms import (
    NativeGains,
    NativeSettings,
    NativeTerms,
    known_settings,
    native_gains,
    native_settings,
)
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator

if TYPE_CHECKING:
    from sinkprop.objective.normalization import Iterations

__all__ = ["ExpectedGain", "expected_gain"]

Scores = TypeVar("Scores", bound=Reals)


@dataclass(frozen=True)
class ExpectedGain:
    """An expected gain and its gradient, as returned by `expected_gain`.

    Attributes
    ----------
    value : float
        Mean over the queries; weighted if query weights were given.
    per_query : array of shape (Q,)
        One value per query, in the order of `queries`.
    gradient : array of shape (N,) or (N, 2)
        Gradient d value / d scores, in the shape and row order of the scores, and in float64.
    queries : array of shape (Q,)
        Query ids in order of first appearance.
    residual : array of shape (Q,), or None
        Largest deviation of a row or column sum of Pi from 1 in each query, if `n_iter` is the limit
        ("converged"). None for a number of iterations. A query whose documents can gain nothing has 0.
    """

    value: float
    per_query: Floats
    gradient: Floats
    queries: NDArray[Any]
    residual: Floats | None = None

    def __init__(
        self,
        value: float,
        per_query: Floats,
        gradient: Floats,
        queries: NDArray[Any],
        residual: Floats | None = None,
    ) -> None:
        # in half the time of the __init__ of a frozen dataclass, which calls object.__setattr__ per field
        fields = self.__dict__
        fields["value"], fields["per_query"], fields["gradient"] = value, per_query, gradient
        fields["queries"], fields["residual"] = queries, residual


def expected_gain(
    scores: ArrayLike,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    gain: str | Gain = "ndcg",
    relaxation: str | Relaxation = SmoothedIndicator(),  # noqa: B008 - a frozen value
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    sample_weight: ArrayLike | None = None,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    n_threads: int | None = None,
) -> ExpectedGain:
    """Expected gain under rank probabilities that are made from the scores, with its exact gradient.

    The value is the mean over queries of ::

        sum_jk l(r_j, k) Pi[j, k],    Pi = Z^n_iter(A + epsilon)

    where l(r_j, k) is the gain of document j with label r_j at rank k, the relaxation makes the matrix A from
    the scores, Z is one Sinkhorn iteration, and Pi[j, k] is the probability that document j is at rank k.
    Gains that are not rank-linear, such as MAP, are functions of Pi that equal the metric if Pi is the matrix
    of a ranking. `sinkprop.reference` defines them all. The time is linear in the number of documents for
    `SmoothedIndicator` and quadratic for most of `PartitionedMeasure`. The derivative holds the order of the
    documents fixed.

    Parameters
    ----------
    scores : array of shape (N,) or (N, 2)
        One score per document, larger is better; two parameters per document for a `PartitionedMeasure`.
    labels : array of shape (N,) or (N, L)
        Relevance of each document, at least 0. Several columns are for gains that read several labels, such
        as `AlphaNDCG`, or one other than the first (`Gain.on`); a sparse matrix of SciPy is taken, too.
    qid : array of shape (N,), optional
        Query id of each row: any hashable ids, in any order. By default all rows form one query.
    gain : str or Gain, default "ndcg"
        The gain, or its text form, such as "ndcg@10". If it does not state the discount of NDCG, the discount
        is LETOR's, as in the paper: 1 at ranks 1 and 2, and 1/log2(rank) after.
    relaxation : str or Relaxation, default SmoothedIndicator()
        The map from scores to A, or its name: "gaussian", "laplace", "logit-logistic", "probit" or "beta".
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations; each normalizes columns, then rows. An extra half iteration, such as
        5.5, normalizes the columns once more at the end. 0.5 with `epsilon` 0 is the objective of SmoothRank.
        "converged" takes the limit of the iterations, in which all rows and columns of Pi sum to 1, and its
        exact gradient; `Converged` sets its tolerance.
    epsilon : float, default 1e-6
        Constant added to every entry of A.
    sample_weight : array of shape (N,), optional
        Row weights, at least 0. Each multiplies its document's gain l(r_j, k), also in the best ranking by
        which a normalized gain is divided; or the attributes of its document, such as its relevance in MAP.
        If the labels are clicks, use inverse propensities: 1 divided by the probability that the user looked
        at the document. A gain that is not normalized is then an
        unbiased estimate of the gain for the true relevance. A document of weight 0 contributes nothing at
        any rank, but still occupies one.
    query_weight : array of shape (Q,) or (N,), or mapping, optional
        Query weights c_q: per query in order of first appearance, per row, or {id: weight}. The value is the
        weighted mean sum_q c_q f_q / sum_q c_q, where f_q is the value of query q. The attribute `per_query`
        of the result holds the f_q.
    n_threads : int, optional
        Number of threads, among which the queries are divided. The default is SINKPROP_NUM_THREADS if set, or
        the number of CPU cores; small inputs use one. Does not change any bit of the result.

    Returns
    -------
    ExpectedGain
        Value, value per query, gradient and query ids.

    Examples
    --------
    >>> r = expected_gain([0.2, 1.5, 0.3], [2, 0, 1], gain="ndcg@10", relaxation=SmoothedIndicator(sigma=0.5))
    >>> round(r.value, 4), r.gradient.round(4)
    (0.8191, array([ 0.044 , -0.0189, -0.0251]))
    """
    gain, settings = as_gain(gain), known_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, settings.width)
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
    """Expected gain of scores x that have been checked, for a relaxation given as `NativeSettings`.

    The time for a query of n documents is taken to grow as n**power: `power` is 1 for linear time and 2 for
    quadratic time. This decides whether the input is large enough for several threads. The other arguments
    are as in `expected_gain`.
    """
    gain, y = with_bound_arrays(gain, as_label_columns(labels, len(x)))
    groups = group_rows(qid, len(x))
    row_weights = None if sample_weight is None else as_sample_weight(sample_weight, len(x))
    query_weights = None if query_weight is None else as_query_weight(query_weight, groups, len(x))
    residual = np.empty(len(groups.offsets) - 1) if settings.tol else None
    gains = native_gains(gain, y, groups, row_weights)
    per_query, gradient = prepared_gain(x, groups, gains, settings, n_threads, power=power, residual=residual)
    if query_weights is not None:
        shares = query_weights / exact_sum(query_weights)
        scale_queries(gradient, shares * len(shares), groups)
        return ExpectedGain(exact_sum(shares * per_query), per_query, gradient, groups.queries, residual)
    # the mean does not depend on how NumPy splits a sum
    return ExpectedGain(exact_sum(per_query) / len(per_query), per_query, gradient, groups.queries, residual)


def grouped_gain(
    x: Scores,
    y: Floats,
    groups: Groups,
    gain: Gain,
    settings: NativeSettings,
    row_weights: Floats | None,
    n_threads: int | None,
    *,
    power: int = 1,
    factor: float | None = None,
    residual: Floats | None = None,
) -> tuple[Floats, Scores]:
    """Return the expected gain (Q,) of each query, and the gradient with respect to the scores x.

    The gradient is that of the mean over the queries or, if `factor` is given, of `factor` times their sum.
    It has the dtype of x, float64 or float32; in float32, it is the gradient at the same scores in float64,
    rounded.
    The arrays must have been checked. Rows of x that belong to no query have gradient 0; their labels must
    still be valid for the gain. `power` is as in `native_gain`. For the limit of the normalization, the
    `ExpectedGain.residual` of each query is written to `residual` (Q,), if it is given.
    """
    prepared = native_gains(gain, y, groups, row_weights)
    return prepared_gain(
        x, groups, prepared, settings, n_threads, power=power, factor=factor, residual=residual
    )


def prepared_gain(
    x: Scores,
    groups: Groups,
    gains: NativeGains | NativeTerms,
    settings: NativeSettings,
    n_threads: int | None,
    *,
    power: int = 1,
    factor: float | None = None,
    residual: Floats | None = None,
) -> tuple[Floats, Scores]:
    """Compute `grouped_gain` for a gain that `native_gains` has converted, which can be used many times."""
    covered = groups.offsets[-1] == len(x)
    per_query = np.empty(len(groups.offsets) - 1)
    allocated: Any = np.empty if covered else np.zeros
    gradient: Scores = allocated(x.shape, x.dtype)
    n_threads = threads(n_threads, len(x) * groups.longest ** (power - 1))
    evaluate: Any = _native.expected_gain if isinstance(gains, NativeGains) else _native.terms_gain
    if settings.tol and residual is None:
        residual = np.empty_like(per_query)
    # The arguments are passed by position: passing them by name would double the time of a small query.
    evaluate(
        x, groups.offsets, groups.rows, gains, settings, n_threads, per_query, gradient, factor, residual
    )
    if residual is not None:
        from sinkprop.objective.normalization import warn_unconverged

        warn_unconverged(residual, settings.tol, stacklevel=4)
    return per_query, gradient


def ranking_gain(
    gain: Gain, y: Floats, ranks: Integers, groups: Groups, row_weights: Floats | None = None
) -> Floats:
    """Return the gain (Q,) of a ranking of each query, in which row i has the rank ranks[i].

    The scores are the negative ranks, which are at least 1 apart, and sigma is 0.05. With such a small sigma,
    the matrix of rank probabilities is exactly the permutation matrix of the ranking, and the expected gain
    is the gain of the ranking.
    """
    settings = native_settings(SmoothedIndicator(0.05), 1, 0)
    return grouped_gain(-ranks.astype(np.float64), y, groups, gain, settings, row_weights, None)[0]


def scale_queries(gradient: Floats, factors: Floats, groups: Groups) -> None:
    """Multiply the gradient rows of each query by the factor of the query, in place."""
    by_row = np.repeat(factors, groups.sizes).reshape((-1,) + (1,) * (gradient.ndim - 1))
    if groups.rows is None:
        gradient *= by_row
    else:
        gradient[groups.rows] *= by_row
