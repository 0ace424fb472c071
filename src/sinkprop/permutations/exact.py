"""Exact permanents of blocks: a sum over subsets of columns, or Glynn's formula.

The sum over subsets adds only positive numbers. Glynn's formula (2010) needs less memory and, for larger
matrices, less time, but its terms have both signs. So the rows and columns are scaled first, by powers of
two, which is exact, such that all sums are near 1.
"""

from __future__ import annotations

import math
import time

import numpy as np

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.objective.sinkhorn import log_entries, logsumexp
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit

__all__ = ["LARGEST", "block_marginals", "block_permanent", "time_of_glynn"]

LARGEST = 34  # rows of a block up to which its permanent is computed
_SUBSETS = 8  # rows up to which the sum over subsets is taken
_SWEEPS = 10  # of Sinkhorn normalization before faster but more expensive steps
_AT_ONCE = 0.5  # seconds of native code between two chances of Ctrl-C


def block_permanent(B: Floats, n_threads: int) -> tuple[float, int]:
    """Return a mantissa and an exponent: the permanent is the mantissa times this power of two."""
    C, exponent = _near_one(B)
    n = len(C)
    if n <= _SUBSETS:
        return _native.matching_marginals(C, np.empty((n, n))), exponent
    return math.ldexp(_glynn(C, n_threads), 1 - n), exponent


def block_marginals(B: Floats) -> Floats:
    """Probability of each entry to be in a matching that is drawn with probability proportional to weight."""
    C, _ = _near_one(B)
    marginals = np.empty_like(C)
    total = _native.matching_marginals(C, marginals)
    marginals /= total
    return marginals


def time_of_glynn(n: int, n_threads: int) -> str:
    """The time that Glynn's formula would take for an (n, n) matrix, in words; it is measured with n = 20."""
    small, seconds = 20, math.inf
    A = np.full((small, small), 1 / small)
    sums = np.empty((_native.glynn_groups(small), 2))
    for _ in range(5):
        start = time.perf_counter()
        _native.glynn_sums(A, 0, 1, sums)
        seconds = min(seconds, max(time.perf_counter() - start, 1e-5))
    log10 = math.log10(seconds * n / small / n_threads) + (n - small) * math.log10(2)
    for unit, size in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        count = log10 - math.log10(size)
        if count > 5:
            return f"1e{count:.0f} {unit}"
        if count > 0.3:
            return f"{10**count:.0f} {unit}"
    return f"{10**log10:.0f} seconds"


def _near_one(B: Floats) -> tuple[Floats, int]:
    """Return a matrix whose rows and columns are multiplied by powers of two, and the exponent to undo it."""
    if len(B) == 1:
        return B.copy(), 0
    rows, columns = map(_powers, _factors(B))
    with np.errstate(under="ignore"):
        C: Floats = np.ldexp(B, rows[:, None] + columns)
    return C, -int(rows.sum() + columns.sum())


def _factors(B: Floats) -> tuple[Floats, Floats]:
    """Logarithms of factors of rows and columns that make all sums about 1."""
    log_B = log_entries(B)
    log_v = np.zeros(len(B))
    for _ in range(_SWEEPS):
        log_u = -logsumexp(log_B + log_v, axis=1)
        sums = logsumexp(log_B + log_u[:, None], axis=0)
        if np.abs(sums + log_v).max() < 0.1:
            return log_u, log_v
        log_v = -sums
    limit = sinkhorn_limit(B, tol=1e-2)
    return limit.log_u, limit.log_v


def _powers(logs: Floats) -> Integers:
    return np.rint(logs / math.log(2)).astype(np.int64)


def _glynn(A: Floats, n_threads: int) -> float:
    """Return the sum of Glynn's formula, 2^(n - 1) times the permanent."""
    groups = _native.glynn_groups(len(A))
    sums = np.empty((groups, 2))
    first, count = 0, min(groups, 256)
    while first < groups:
        start = time.perf_counter()
        _native.glynn_sums(A, first, n_threads, sums[first : first + count])
        first += count
        if time.perf_counter() - start < _AT_ONCE / 2:
            count *= 2
        count = min(count, groups - first)
    return math.fsum(sums.ravel())
