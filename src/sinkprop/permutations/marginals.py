"""Marginals of random matchings: the probability of each entry under weights that are products of entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import one_of, threads
from sinkprop.common.types import Floats
from sinkprop.permutations.accept_reject import DrawLimits, accepted_matchings
from sinkprop.permutations.blocks import Block, matrix_of, require_matching, submatrix
from sinkprop.permutations.exact import block_marginals

__all__ = ["MatchingMarginals", "matching_marginals"]

Method = Literal["auto", "exact", "accept-reject"]

_LARGEST = 20  # rows of a block whose marginals are computed exactly


@dataclass(frozen=True, eq=False)
class MatchingMarginals:
    """Result of `matching_marginals`.

    Attributes
    ----------
    matrix : array of shape (n, n)
        Probability of each entry to be in a random matching: doubly stochastic.
    lower : array of shape (n, n)
        Lower ends of intervals of the probabilities; `matrix` itself if it is exact.
    upper : array of shape (n, n)
        Upper ends of the intervals.
    method : str
        "exact" or "accept-reject".
    confidence : float
        Probability with which all intervals together contain the probabilities; 1 if they are exact.
    n_draws : int
        Number of draws; 0 if the probabilities are exact.
    n_accepted : int
        Number of these that were accepted: the matchings whose frequencies `matrix` has.
    """

    matrix: Floats
    lower: Floats
    upper: Floats
    method: str
    confidence: float = 1.0
    n_draws: int = 0
    n_accepted: int = 0


def matching_marginals(
    A: npt.ArrayLike,
    method: Method = "auto",
    *,
    n_accepted: int = 10_000,
    max_draws: int = 10_000_000,
    confidence: float = 0.95,
    seed: int | np.random.Generator | None = None,
    n_threads: int | None = None,
) -> MatchingMarginals:
    """Probabilities of the entries in a random matching of rows with columns.

    A matching has a probability proportional to the product of its entries. The result is doubly stochastic:
    the probabilities are the rank probabilities that Sinkhorn's limit of A approximates.

    Parameters
    ----------
    A : array of shape (n, n)
        Finite and nonnegative, with at least one perfect matching of positive entries.
    method : {"auto", "exact", "accept-reject"}, default "auto"
        "exact" sums over subsets of columns, in time proportional to n 2^n, for blocks (see `permanent`) of
        at most 20 rows. "accept-reject" counts exact draws of matchings, with intervals. "auto" is "exact"
        where possible.
    n_accepted : int, default 10_000
        Number of matchings that "accept-reject" counts.
    max_draws : int, default 10_000_000
        Number of draws after which "accept-reject" ends in any case.
    confidence : float, default 0.95
        Probability with which all intervals of "accept-reject" contain their probabilities.
    seed : int or numpy.random.Generator, optional
        Seed of the draws; the same seed gives the same result, for any number of threads.
    n_threads : int, optional
        Number of threads of "accept-reject". By default all processors that this process may use.

    Returns
    -------
    MatchingMarginals
        The probabilities and their intervals.

    Examples
    --------
    >>> matching_marginals([[1, 2], [3, 4]]).matrix.round(3)  # weights 1 * 4 and 2 * 3
    array([[0.4, 0.6],
           [0.6, 0.4]])
    """
    B = matrix_of(A)
    one_of("method", method, get_args(Method))
    limits = DrawLimits(n_accepted, max_draws, confidence, seed)
    n_threads = threads(n_threads, 4000)
    blocks = require_matching(B)
    largest = max(map(len, blocks))
    if method == "exact" and largest > _LARGEST:
        of_block = f"A has a block of {largest} rows" if largest < len(B) else f"A has {largest} rows"
        raise ValueError(
            f"method='exact' is for at most {_LARGEST} rows; {of_block}, which would take "
            f"2^{largest} numbers of memory. Use method='accept-reject'."
        )
    if method == "accept-reject" or largest > _LARGEST:
        return _counted(B, blocks, limits, n_threads)
    matrix = np.zeros_like(B)
    for block in blocks:
        matrix[np.ix_(block.rows, block.columns)] = block_marginals(submatrix(B, block))
    return MatchingMarginals(matrix, matrix, matrix, "exact")


def _counted(B: Floats, blocks: list[Block], limits: DrawLimits, n_threads: int) -> MatchingMarginals:
    """Frequencies of the entries in drawn matchings, with Clopper-Pearson intervals after Bonferroni."""
    from scipy.special import betaincinv

    n = len(B)
    matchings, counted = accepted_matchings(
        B, blocks, limits.n_accepted, limits.max_draws, limits.seed, n_threads
    )
    size = len(matchings)
    counts = np.bincount((matchings + n * np.arange(n)).ravel(), minlength=n * n).reshape(n, n)
    lower, upper = np.zeros_like(B), np.zeros_like(B)
    uncertain = np.zeros(B.shape, dtype=np.bool_)
    for block in blocks:
        at = np.ix_(block.rows, block.columns)
        if len(block) == 1:
            lower[at] = upper[at] = 1.0
        else:
            uncertain[at] = B[at] > 0
    k, tail = counts[uncertain], (1 - limits.confidence) / (2 * max(1, int(uncertain.sum())))
    lower[uncertain] = np.where(k > 0, betaincinv(np.maximum(k, 1), size - k + 1, tail), 0.0)
    upper[uncertain] = np.where(k < size, betaincinv(k + 1, np.maximum(size - k, 1), 1 - tail), 1.0)
    return MatchingMarginals(
        counts / size, lower, upper, "accept-reject", limits.confidence, counted.n_draws, size
    )
