"""Rank probabilities of documents: the matrix Pi, expected ranks, top-k probabilities, one ranking."""

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
from sinkprop.objective.normalization import Iterations, rows_sum_to_one, warn_unconverged
from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator, as_relaxation

__all__ = [
    "chosen_ranks",
    "doubly_stochastic",
    "expected_ranks",
    "partitioned_ranks",
    "projected",
    "top_k_probability",
]


def expected_ranks(
    scores: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    relaxation: str | Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    n_threads: int | None = None,
) -> Floats:
    """Expected rank of each document in its query, sum_k k Pi[j, k].

    Pi[j, k] is the probability that document j is at rank k. For a `SmoothedIndicator` the matrix Pi is never
    formed, and the time is linear.

    Parameters
    ----------
    scores : array of shape (N,) or (N, 2)
        One score per document, larger is better; two parameters per document for a `PartitionedMeasure`.
    qid : array of shape (N,), optional
        Query id of each row: any hashable ids, in any order. By default all rows form one query.
    relaxation : str or Relaxation, default SmoothedIndicator()
        The map from scores to a matrix A, which the Sinkhorn iterations turn into Pi, or the name of the map:
        "gaussian", "laplace", "logit-logistic", "probit" or "beta".
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations; each normalizes columns, then rows. An extra half iteration, such as
        5.5, normalizes the columns once more at the end. "converged" takes the limit, in which rows and
        columns sum to 1.
    epsilon : float, default 1e-6
        Constant added to every entry of A.
    n_threads : int, optional
        Number of threads. The default is SINKPROP_NUM_THREADS if set, or the number of CPU cores; small
        inputs use one.

    Returns
    -------
    array of shape (N,)
        Expected ranks; the top rank is 1.

    Examples
    --------
    >>> expected_ranks([0.2, 1.5, 0.3], relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([2.468, 1.074, 2.434])
    """
    relaxation = as_relaxation(relaxation)
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    groups = group_rows(qid, len(x))
    columns = np.arange(1.0, groups.longest + 1).reshape(1, -1)
    return projected(x, groups, columns, settings, n_threads)[:, 0]


def top_k_probability(
    scores: ArrayLike,
    k: int,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    relaxation: str | Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    n_threads: int | None = None,
) -> Floats:
    """Probability that each document is among the first k of its query, sum_(k' <= k) Pi[j, k'].

    Pi[j, k'] is the probability that document j is at rank k'. These probabilities come from
    the relaxation and are not calibrated: they need not agree with observed frequencies. For a
    `SmoothedIndicator` the matrix Pi is never formed, and the time is linear.

    Parameters
    ----------
    scores : array of shape (N,) or (N, 2)
        One score per document, larger is better; two parameters per document for a `PartitionedMeasure`.
    k : int
        Number of ranks, at least 1.
    qid : array of shape (N,), optional
        Query id of each row: any hashable ids, in any order. By default all rows form one query.
    relaxation : str or Relaxation, default SmoothedIndicator()
        The map from scores to a matrix A, which the Sinkhorn iterations turn into Pi, or the name of the map:
        "gaussian", "laplace", "logit-logistic", "probit" or "beta".
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations; each normalizes columns, then rows. An extra half iteration, such as
        5.5, normalizes the columns once more at the end. "converged" takes the limit, in which rows and
        columns sum to 1.
    epsilon : float, default 1e-6
        Constant added to every entry of A.
    n_threads : int, optional
        Number of threads. The default is SINKPROP_NUM_THREADS if set, or the number of CPU cores; small
        inputs use one.

    Returns
    -------
    array of shape (N,)
        Probabilities.

    Examples
    --------
    >>> top_k_probability([0.2, 1.5, 0.3], 1, relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([0.027, 0.946, 0.043])
    """
    k = whole("k", k, 1)
    relaxation = as_relaxation(relaxation)
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    groups = group_rows(qid, len(x))
    columns = (np.arange(groups.longest) < k).astype(np.float64).reshape(1, -1)
    return _as_probabilities(projected(x, groups, columns, settings, n_threads)[:, 0], n_iter)


def doubly_stochastic(
    scores: ArrayLike,
    *,
    ranks: ArrayLike | None = None,
    relaxation: str | Relaxation = SmoothedIndicator(),  # noqa: B008
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
) -> Floats:
    """Matrix Pi of rank probabilities of one query.

    Parameters
    ----------
    scores : array of shape (n,) or (n, 2)
        One score per document, larger is better; two parameters per document for a `PartitionedMeasure`.
    ranks : int or array of int, optional
        Ranks, from 1 to n, whose columns are computed, in linear time per rank for a `SmoothedIndicator`. By
        default all columns are computed, in quadratic time.
    relaxation : str or Relaxation, default SmoothedIndicator()
        The map from scores to a matrix A, which the Sinkhorn iterations turn into Pi, or the name of the map:
        "gaussian", "laplace", "logit-logistic", "probit" or "beta".
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations; each normalizes columns, then rows. An extra half iteration, such as
        5.5, normalizes the columns once more at the end. "converged" takes the limit, in which rows and
        columns sum to 1.
    epsilon : float, default 1e-6
        Constant added to every entry of A.

    Returns
    -------
    array of shape (n, n), or (n, len(ranks)) with `ranks`
        Pi[j, k - 1] is the probability that document j, in input order, is at rank k. After whole iterations
        rows sum to 1 and columns to about 1; after an extra half iteration, columns sum to 1 and rows to
        about 1; in the limit both sum to 1.

    Examples
    --------
    >>> doubly_stochastic([0.2, 1.5, 0.3], relaxation=SmoothedIndicator(sigma=0.5)).round(3)
    array([[0.027, 0.479, 0.495],
           [0.946, 0.033, 0.02 ],
           [0.043, 0.48 , 0.477]])
    """
    relaxation = as_relaxation(relaxation)
    settings = native_settings(relaxation, n_iter, epsilon)
    x = as_scores(scores, relaxation.width)
    n = len(x)
    if ranks is None:
        from sinkprop.objective.sinkhorn import sinkhorn
        from sinkprop.reference import pre_sinkhorn

        if isinstance(relaxation, PartitionedMeasure):
            if relaxation.width == 2:
                x = x.clip(*relaxation.limits)
            # A itself: the product with the identity, without iterations
            A = projected(x, group_rows(None, n), np.eye(n), native_settings(relaxation, 0, 0.0), 1)
        elif settings.tol:
            return _as_probabilities(projected(x, group_rows(None, n), np.eye(n), settings, 1), n_iter)
        else:
            A = pre_sinkhorn(x, relaxation)
        # a difference of two distribution functions can round to just below 0
        return sinkhorn(np.maximum(A, 0), n_iter, epsilon=epsilon)
    chosen = chosen_ranks(ranks, n)
    columns = np.zeros((len(chosen), n))
    columns[np.arange(len(chosen)), chosen - 1] = 1
    return _as_probabilities(projected(x, group_rows(None, n), columns, settings, 1), n_iter)


def chosen_ranks(ranks: ArrayLike, n: int) -> NDArray[Any]:
    """Return one or several ranks as an array; raise a ValueError unless all are integers from 1 to n."""
    chosen: NDArray[Any] = np.atleast_1d(np.asarray(ranks))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not chosen.size:
        raise ValueError(f"ranks must be whole numbers from 1 to {n}; got {ranks!r}.")
    if chosen.min() < 1 or chosen.max() > n:
        bad = chosen[(chosen < 1) | (chosen > n)][0]
        raise ValueError(f"ranks must be from 1 to {n}, the number of documents; got {bad}.")
    return chosen


def _as_probabilities(p: Floats, n_iter: Iterations) -> Floats:
    """Return p, with values below 0 set to 0 and, if rows were normalized last, values above 1 set to 1.

    Only rounding errors can produce such values.
    """
    return p.clip(0, 1 if rows_sum_to_one(n_iter) else None)


def projected(
    x: Floats,
    groups: Groups,
    columns: Floats,
    settings: NativeSettings,
    n_threads: int | None,
) -> Floats:
    """Return the array of shape (N, C) with the entries sum_k Pi[j, k] columns[c, k].

    Pi[j, k] is the probability that document j is at rank k of its query. Each of the C rows of `columns`
    holds one number per rank.
    """
    out = np.empty((len(x), len(columns)))
    residual = np.empty(len(groups.offsets) - 1) if settings.tol else None
    n_threads = threads(n_threads, len(x))
    _native.project(x, groups.offsets, groups.rows, columns, settings, n_threads, out, residual)
    if residual is not None:
        warn_unconverged(residual, settings.tol, stacklevel=3)
    return out


def partitioned_ranks(
    theta: Floats, groups: Groups, relaxation: Relaxation, *, n_iter: Iterations, epsilon: float, top: int
) -> Integers:
    """Ranks (N,) of documents with the parameters theta of a partitioned measure.

    They come from the method "shortcut" of `choose_permutation`, with which the paper ranks test queries.
    """
    ranks = np.empty(len(theta), dtype=np.int64)
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        Pi = doubly_stochastic(theta[rows], relaxation=relaxation, n_iter=n_iter, epsilon=epsilon)
        ranks[rows[choose_permutation(Pi, method="shortcut", top=top)]] = np.arange(1, len(rows) + 1)
    return ranks
