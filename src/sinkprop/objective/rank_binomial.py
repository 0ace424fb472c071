"""SoftRank's rank-binomial distribution over ranks, and the expected gain under it (Taylor et al. 2008).

Independent normal noise of standard deviation sigma is added to the scores s_i. Document i then beats
document j, that is, has the larger noisy score, with probability

    pi_ij = Phi((s_i - s_j) / (sqrt(2) sigma)),

where Phi is the distribution function of the standard normal distribution. The rank of j is 1 plus the number
r of documents that beat j. SoftRank (Taylor, Guiver, Robertson and Minka 2008) computes the distribution p_j
of r as if the documents beat j independently of one another. It starts from p_j(0) = 1, without other
documents, and adds the other documents i one by one:

    p_j(r) <- (1 - pi_ij) p_j(r) + pi_ij p_j(r - 1).

The result is the rank-binomial distribution. Each row of the matrix p_j(r), which belongs to a document j,
sums to 1. A column, which belongs to a rank, need not sum to 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from sinkprop import _native
from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.objective.expected_gain import ExpectedGain, native_gain
from sinkprop.objective.gains import Gain, as_rank_linear
from sinkprop.objective.native_terms import NativeSettings
from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.sinkhorn import sinkhorn
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit

__all__ = [
    "balanced_distribution",
    "balanced_ranks",
    "checked_sigma",
    "soft_gain",
    "soft_rank_distribution",
]


_RANK_BINOMIAL = 5  # id of this relaxation in the native layer
_LEAST = 1e-300  # added to rank probabilities so that no column is all zeros; negligible otherwise


def soft_gain(
    scores: ArrayLike,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    gain: str | Gain = "ndcg",
    sigma: float = 1.0,
    sample_weight: ArrayLike | None = None,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    n_threads: int | None = None,
) -> ExpectedGain:
    """Expected gain under the rank-binomial distribution, and its exact gradient with respect to the scores.

    The value is the mean over queries of sum_jk l(r_j, k) P[j, k], where l(r_j, k) is the gain of label r_j
    at rank k and P[j, k] the probability that document j has rank k. For a normalized gain it is divided by
    the value of the best ranking; for "ndcg", it is SoftNDCG. A query of n documents, m of which have a gain,
    takes O(m n^2) time, or O(m n K) if only K ranks count, such as for "ndcg@10". Ties need no special
    treatment: each of two documents with equal scores beats the other with probability 1/2.

    Parameters
    ----------
    scores : array of shape (N,)
        Finite scores; larger is better.
    labels : array of shape (N,)
        Labels: the relevance of each document, 0 or more.
    qid : array of shape (N,), optional
        Query id of each row: any hashable values, in any order. None puts all rows in one query.
    gain : str or Gain, default "ndcg"
        Gain. A `RankLinear` with a table l(r, k) takes no more time than a product of a gain of the label and
        a discount of the rank. An unstated discount of NDCG is LETOR's, see `expected_gain`.
    sigma : float, default 1.0
        Standard deviation of the noise of a score, in the scores' units, from 1e-300 to 1e300.
    sample_weight : array of shape (N,), optional
        Row weights; see `sinkprop.expected_gain`.
    query_weight : array of shape (Q,) or (N,), or mapping, optional
        Query weights; see `sinkprop.expected_gain`.
    n_threads : int, optional
        Number of threads; see `sinkprop.expected_gain`.

    Returns
    -------
    ExpectedGain
        The expected gain and its gradient.

    Examples
    --------
    >>> r = soft_gain([0.2, 1.5, 0.3], [2, 0, 1], gain="ndcg@10", sigma=0.5)
    >>> round(r.value, 4), r.gradient.round(4)
    (0.812, array([ 0.1163, -0.0215, -0.0948]))
    """
    settings = _settings(sigma)
    gain = as_rank_linear(gain, "soft_gain")
    x = as_scores(scores, 1)
    return native_gain(x, labels, qid, gain, settings, sample_weight, query_weight, n_threads, power=2)


def soft_rank_distribution(scores: ArrayLike, sigma: float = 1.0) -> Floats:
    """Rank-binomial distribution of the documents of one query.

    Parameters
    ----------
    scores : array of shape (n,)
        Finite scores; larger is better.
    sigma : float, default 1.0
        Standard deviation of the noise of a score; see `soft_gain`.

    Returns
    -------
    array of shape (n, n)
        P[j, r - 1] is the probability that document j, in the order of the scores given, has rank r. Rows sum
        to 1; columns need not.

    Examples
    --------
    >>> soft_rank_distribution([0.2, 1.5, 0.3], sigma=0.5).round(3)
    array([[0.015, 0.447, 0.538],
           [0.924, 0.075, 0.001],
           [0.025, 0.551, 0.424]])
    """
    settings = _settings(sigma)
    x = as_scores(scores, 1)
    n = len(x)
    P, groups = np.empty((n, n)), group_rows(None, n)
    _native.project(x, groups.offsets, None, np.eye(n), settings, n_threads=1, out=P)
    return P


def balanced_distribution(scores: Floats, sigma: float, balance: bool | int) -> Floats:
    """Return the rank-binomial distribution (n, n) of one query's scores (n,), balanced if asked for.

    sigma    Standard deviation of the noise of a score.
    balance  False for no Sinkhorn normalization, True for its limit, or a number of iterations.
    """
    P = soft_rank_distribution(scores, sigma)
    if balance is False:
        return P
    if balance is True:
        return sinkhorn_limit(P + _LEAST).matrix
    return sinkhorn(P, whole("balance", balance, 1), epsilon=_LEAST)


def balanced_ranks(scores: Floats, groups: Groups, sigma: float, balance: int, *, top: int) -> Integers:
    """Ranks (N,) of documents by the likeliest assignment under the balanced distribution of each query.

    top  Number of documents that the assignment reorders; see `choose_permutation`.
    """
    top = whole("top", top, 1)
    ranks = np.empty(len(scores), dtype=np.int64)
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        P = balanced_distribution(scores[rows], sigma, balance)
        ranks[rows[choose_permutation(P, "shortcut", top=top)]] = np.arange(1, len(rows) + 1)
        # Documents with equal scores have equal probabilities, so their order is arbitrary: as for other
        # rankers, the earlier row ranks higher.
        by_row, by_rank = np.lexsort((rows, scores[rows])), np.lexsort((ranks[rows], scores[rows]))
        ranks[rows[by_row]] = ranks[rows[by_rank]]
    return ranks


def checked_sigma(sigma: float) -> float:
    """Return sigma as a float.

    Raises a TypeError if it is not a number, and a ValueError if it does not lie between 1e-300 and 1e300.
    """
    if not isinstance(sigma, Real) or isinstance(sigma, bool):
        raise TypeError(f"sigma must be a number above 0; got {sigma!r}.")
    if not 0 < sigma < inf:
        raise ValueError(
            f"sigma must be finite and above 0; got {float(sigma)!r}. Start near the spread of the scores."
        )
    if not 1e-300 <= sigma <= 1e300:  # outside this range, a gradient would overflow
        raise ValueError(f"sigma must be from 1e-300 to 1e300; got {float(sigma)!r}. Rescale the scores.")
    return float(sigma)


def _settings(sigma: float) -> NativeSettings:
    return NativeSettings(_RANK_BINOMIAL, checked_sigma(sigma), exact=True, half_steps=0, epsilon=0.0)
