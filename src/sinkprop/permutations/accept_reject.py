"""Matchings drawn with probability proportional to their weight, by acceptance and rejection.

The weight of a matching s of rows with columns is prod_i A[i, s(i)]. Huber and Law (2008) bound the permanent
of a matrix with entries of at most 1 by prod_i h(r_i) / e, where r_i are the row sums and

    h(r) = r + log(r) / 2 + e - 1  for r >= 1,    h(r) = 1 + (e - 1) r  for r <= 1.

Match the columns one after the other. A row is chosen for a column with probability proportional to its entry
times the bound for what is left after this choice, relative to the bound before the choice. These
probabilities sum to at most 1, and with the probability that is left the draw is rejected. So a matching is
drawn with probability weight / bound, and a draw is accepted with probability permanent / bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sinkprop import _native
from sinkprop.common.arguments import threads, whole
from sinkprop.common.types import Floats, Integers
from sinkprop.objective.sinkhorn import log_entries
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit
from sinkprop.permutations.blocks import Block, matrix_of, require_matching

__all__ = ["Accepted", "DrawLimits", "accepted_matchings", "count_accepted", "sample_matchings"]

_ENTRIES = 2**21  # of the matchings that are drawn at once


class DrawLimits:
    """Checked arguments of acceptance and rejection: when it ends, its confidence and its seed."""

    def __init__(
        self, n_accepted: int, max_draws: int, confidence: float, seed: int | np.random.Generator | None
    ) -> None:
        self.n_accepted = whole("n_accepted", n_accepted, 2)
        self.max_draws = whole("max_draws", max_draws, 1)
        self.confidence = confidence_of(confidence)
        self.seed = seed_of(seed)


@dataclass(frozen=True)
class Accepted:
    """Number of draws, of accepted ones, and the bound: the permanent is the bound times the acceptance rate.

    The draws ended with the last accepted one if `complete`, otherwise at the largest number of draws.
    """

    n_draws: int
    n_accepted: int
    log_bound: float
    complete: bool

    def log_permanent(self, confidence: float) -> tuple[float, float, float]:
        """Logarithms of the unbiased estimate and of the ends of its interval.

        The interval is exact for draws that end with a given number of accepted ones or after a given number
        of draws, whichever is first: it inverts two tests, as Clopper and Pearson do for a given number.
        """
        from scipy.special import betaincinv

        k, n, tail = self.n_accepted, self.n_draws, (1 - confidence) / 2
        rate = (k - 1) / (n - 1) if self.complete else k / n
        below = float(betaincinv(k, n - k + 1, tail))
        above = 1.0
        if n > k:
            above = float(betaincinv(*((k, n - k) if self.complete else (k + 1, n - k)), 1 - tail))
        return (
            self.log_bound + math.log(rate),
            self.log_bound + math.log(below) if below > 0 else -math.inf,
            self.log_bound + math.log(above),
        )


def sample_matchings(
    A: npt.ArrayLike,
    size: int = 1,
    *,
    seed: int | np.random.Generator | None = None,
    max_draws: int = 10_000_000,
    n_threads: int | None = None,
) -> Integers:
    """Random matchings of rows with columns, with probability proportional to the product of their entries.

    The draws are independent and exact: acceptance and rejection by Huber and Law (2008). Few are accepted
    if the matrix is large and its rows are dominated by a few entries.

    Parameters
    ----------
    A : array of shape (n, n)
        Finite and nonnegative, with at least one perfect matching of positive entries.
    size : int, default 1
        Number of matchings.
    seed : int or numpy.random.Generator, optional
        Seed of the draws; the same seed draws the same matchings, for any number of threads.
    max_draws : int, default 10_000_000
        Largest number of draws, accepted or rejected, after which a RuntimeError is raised.
    n_threads : int, optional
        Number of threads. By default all processors that this process may use.

    Returns
    -------
    array of int of shape (size, n)
        The column of each row, for each matching.

    Examples
    --------
    >>> drawn = sample_matchings([[1, 1, 0], [1, 1, 1], [0, 1, 1]], 3000, seed=0)
    >>> drawn.shape, sorted(set(map(tuple, drawn.tolist())))
    ((3000, 3), [(0, 1, 2), (0, 2, 1), (1, 0, 2)])
    """
    B = matrix_of(A)
    size = whole("size", size, 1)
    max_draws = whole("max_draws", max_draws, 1)
    seed = seed_of(seed)
    n_threads = threads(n_threads, 4000)
    matchings, counted = accepted_matchings(B, require_matching(B), size, max_draws, seed, n_threads)
    if len(matchings) < size:
        raise RuntimeError(
            f"{len(matchings)} of {counted.n_draws} draws were accepted, fewer than size={size}: raise "
            "max_draws, or ask for fewer matchings."
        )
    return matchings


def count_accepted(B: Floats, blocks: list[Block], limits: DrawLimits, n_threads: int) -> Accepted:
    """Draw until a number of draws is accepted; raise a RuntimeError if none is within the limit."""
    tables = _Tables(B, blocks)
    accepted = draws = 0
    for matchings in _batches(tables, limits.seed, limits.max_draws, n_threads):
        kept = np.flatnonzero(matchings[:, 0] >= 0)
        if accepted + len(kept) >= limits.n_accepted:
            draws += int(kept[limits.n_accepted - accepted - 1]) + 1
            return Accepted(draws, limits.n_accepted, tables.log_bound, complete=True)
        accepted += len(kept)
        draws += len(matchings)
    if not accepted:
        raise RuntimeError(_none_accepted(draws, tables.log_bound, limits.confidence))
    return Accepted(draws, accepted, tables.log_bound, complete=False)


def accepted_matchings(
    B: Floats, blocks: list[Block], size: int, max_draws: int, seed: int, n_threads: int
) -> tuple[Integers, Accepted]:
    """Return up to `size` accepted matchings, fewer only after `max_draws` draws."""
    tables = _Tables(B, blocks)
    found, accepted, draws = [], 0, 0
    for matchings in _batches(tables, seed, max_draws, n_threads):
        kept = matchings[matchings[:, 0] >= 0][: size - accepted]
        found.append(kept)
        accepted += len(kept)
        draws += len(matchings)
        if accepted == size:
            break
    if not accepted:
        raise RuntimeError(_none_accepted(draws, tables.log_bound, 0.95))
    columns = tables.columns(np.concatenate(found))
    return columns, Accepted(draws, accepted, tables.log_bound, complete=accepted == size)


def seed_of(seed: int | np.random.Generator | None) -> int:
    """Return a seed of the native generator; raise a ValueError unless NumPy accepts the seed."""
    try:
        rng = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(
            "seed must be a whole number that is not below 0, a numpy.random.Generator or None; got "
            f"{seed!r}."
        ) from None
    return int(rng.integers(2**63))


def confidence_of(confidence: float) -> float:
    """Return the confidence; raise a ValueError unless it is between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be a number above 0 and below 1; got {confidence!r}.")
    return float(confidence)


class _Tables:
    """Probabilities from which the native code draws matchings.

    They are of the matrix, or of its transpose if the bound of the transpose is lower.
    """

    def __init__(self, B: Floats, blocks: list[Block]) -> None:
        log_A = np.full_like(B, -np.inf)
        log_v, log_u = np.zeros(len(B)), np.zeros(len(B))
        for block in blocks:
            at = np.ix_(block.rows, block.columns)
            log_A[at] = log_entries(B[at])
            limit = sinkhorn_limit(B[at], tol=1e-6)
            log_u[block.rows], log_v[block.columns] = limit.log_u, limit.log_v
        upright, turned = _bounded(log_A, log_v), _bounded(log_A.T, log_u)
        self.transposed = turned[0] < upright[0]
        self.log_bound, entries = turned if self.transposed else upright
        # rest[j, i]: sum of row i from column j on
        rest = np.vstack([np.cumsum(entries.T[::-1], axis=0)[::-1], np.zeros(len(B))])
        h = _huber_law(rest)
        self.weights = np.ascontiguousarray(math.e * entries.T / h[1:])
        self.shrink = np.ascontiguousarray(h[1:] / h[:-1])

    def columns(self, matchings: npt.NDArray[np.int32]) -> Integers:
        """The column of each row of the matrix, from accepted matchings of the native code."""
        found = matchings.astype(np.int64)
        return np.argsort(found, axis=1) if self.transposed else found


def _bounded(log_A: Floats, log_v: Floats) -> tuple[float, Floats]:
    """Return the logarithm of the bound on the permanent, and the matrix with the largest entry 1 per row."""
    scaled = log_A + log_v
    largest = scaled.max(axis=1)
    with np.errstate(under="ignore"):
        entries = np.exp(scaled - largest[:, None])
    log_h = np.log(_huber_law(entries.sum(axis=1)))
    return float((log_h - 1).sum() + largest.sum() - log_v.sum()), entries


def _huber_law(r: Floats) -> Floats:
    return np.where(r > 1, r + 0.5 * np.log(np.maximum(r, 1)) + math.e - 1, 1 + (math.e - 1) * r)


def _batches(tables: _Tables, seed: int, max_draws: int, n_threads: int) -> Iterator[npt.NDArray[np.int32]]:
    """Yield matchings in the order of their numbers, with -1 in the rows of rejected draws."""
    n = len(tables.weights)
    first, count = 0, 512
    while first < max_draws:
        count = min(count, max(64, _ENTRIES // n), max_draws - first)
        matchings = np.empty((count, n), dtype=np.int32)
        _native.draw_matchings(tables.weights, tables.shrink, seed, first, n_threads, matchings)
        yield matchings
        first += count
        count *= 2


def _none_accepted(n_draws: int, log_bound: float, confidence: float) -> str:
    log_upper = log_bound + math.log(-math.expm1(math.log1p(-confidence) / n_draws))
    return (
        f"None of {n_draws} draws was accepted, so the permanent is below exp({log_upper:.4g}) with "
        f"confidence {confidence:g}: raise max_draws, or use permanent(A, 'bounds')."
    )
