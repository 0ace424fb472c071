"""The permanent of a nonnegative matrix: exact, between certified bounds, or estimated with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import one_of, threads
from sinkprop.common.types import Floats
from sinkprop.permutations.accept_reject import DrawLimits, count_accepted
from sinkprop.permutations.blocks import Block, Violator, blocks_of, matrix_of, submatrix
from sinkprop.permutations.bounds import block_bounds
from sinkprop.permutations.exact import LARGEST, block_permanent, time_of_glynn

__all__ = ["Permanent", "permanent"]

Method = Literal["auto", "exact", "bounds", "accept-reject"]

_QUICK = 24  # rows of the largest block up to which method="auto" computes the permanent


@dataclass(frozen=True, eq=False)
class Permanent:
    """Result of `permanent`: a value and an interval, with their logarithms.

    Attributes
    ----------
    value : float
        The permanent; its estimate, for method "accept-reject"; the geometric mean of the two bounds, for
        method "bounds". It is infinite above the range of float64 and 0 below it; `log_value` is neither.
    log_value : float
        Natural logarithm of the value; -inf if the permanent is 0.
    log_lower : float
        Logarithm of the lower end of the interval.
    log_upper : float
        Logarithm of the upper end of the interval. With method "exact" both ends are the value.
    method : str
        "exact", "bounds" or "accept-reject".
    confidence : float
        Probability with which the interval contains the permanent; 1 for the other two methods.
    n_draws : int
        Number of draws; 0 for the other methods.
    n_accepted : int
        Number of these that were accepted.
    lower_bounds : mapping
        With method "bounds", the logarithms of all lower bounds by their names. `log_lower` is the largest,
        or the sum over the blocks of the largest of each.
    upper_bounds : mapping
        With method "bounds", the logarithms of all upper bounds by their names.
    message : str
        The result in one sentence. If the permanent is 0, it names a Hall violator: rows whose nonzero
        entries all lie in fewer columns.
    """

    value: float
    log_value: float
    log_lower: float
    log_upper: float
    method: str
    confidence: float = 1.0
    n_draws: int = 0
    n_accepted: int = 0
    lower_bounds: Mapping[str, float] = field(default_factory=dict)
    upper_bounds: Mapping[str, float] = field(default_factory=dict)
    message: str = ""

    @property
    def lower(self) -> float:
        """Lower end of the interval; infinite or 0 beyond the range of float64."""
        return self.value if self.method == "exact" else _exp(self.log_lower)

    @property
    def upper(self) -> float:
        """Upper end of the interval; infinite or 0 beyond the range of float64."""
        return self.value if self.method == "exact" else _exp(self.log_upper)


def permanent(
    A: npt.ArrayLike,
    method: Method = "auto",
    *,
    n_accepted: int = 1000,
    max_draws: int = 10_000_000,
    confidence: float = 0.95,
    seed: int | np.random.Generator | None = None,
    n_threads: int | None = None,
) -> Permanent:
    """Permanent of a nonnegative matrix: the sum over all permutations s of prod_i A[i, s(i)].

    Entries that lie on no positive diagonal (n nonzero entries, one in each row and each column) are left
    out. The rest falls into blocks without common rows and columns, whose permanents are multiplied, so the
    size of the largest block decides what is feasible.

    Parameters
    ----------
    A : array of shape (n, n)
        Finite and nonnegative, with zeros in any pattern.
    method : {"auto", "exact", "bounds", "accept-reject"}, default "auto"
        "exact" takes time proportional to n 2^n and is for blocks of at most 34 rows. "bounds" computes
        certified lower and upper bounds by Sinkhorn scaling, for thousands of rows. "accept-reject" draws
        random matchings (Huber and Law 2008): an unbiased estimate with an exact interval, if the matrix is
        dense. "auto" is "exact" for blocks of at most 24 rows, otherwise "bounds".
    n_accepted : int, default 1000
        Number of accepted draws after which "accept-reject" ends. The relative standard error is about
        ``1 / sqrt(n_accepted)``.
    max_draws : int, default 10_000_000
        Number of draws after which "accept-reject" ends in any case.
    confidence : float, default 0.95
        Coverage of the interval of "accept-reject".
    seed : int or numpy.random.Generator, optional
        Seed of the draws; the same seed gives the same estimate, for any number of threads.
    n_threads : int, optional
        Number of threads. By default all processors that this process may use.

    Returns
    -------
    Permanent
        The value and its interval, with their logarithms.

    Examples
    --------
    >>> permanent([[1, 2], [3, 4]]).value  # 1 * 4 + 2 * 3
    10.0
    >>> import numpy as np
    >>> ones = permanent(np.ones((200, 200)), "bounds")  # 200! is beyond the range of float64
    >>> print(round(ones.log_lower, 2), round(ones.log_upper, 2), round(sum(np.log(np.arange(1, 201))), 2))
    863.23 863.23 863.23
    >>> print(permanent([[1, 1, 1], [0, 0, 1], [0, 0, 2]]).message)
    The permanent is 0: rows 1, 2 have all their nonzero entries in column 2.
    """
    B = matrix_of(A)
    one_of("method", method, get_args(Method))
    limits = DrawLimits(n_accepted, max_draws, confidence, seed)
    n_threads = threads(n_threads, 4000)
    blocks = blocks_of(B)
    if isinstance(blocks, Violator):
        zero, found = -math.inf, "exact" if method == "auto" else method
        return Permanent(0.0, zero, zero, zero, found, message=f"The permanent is 0: {blocks}.")
    largest = max(map(len, blocks))
    if method == "exact" or (method == "auto" and largest <= _QUICK):
        return _exact(B, blocks, n_threads)
    if method == "accept-reject":
        return _estimate(B, blocks, limits, n_threads)
    return _bounds(B, blocks)


def _exact(B: Floats, blocks: list[Block], n_threads: int) -> Permanent:
    largest = max(map(len, blocks))
    if largest > LARGEST:
        of_block = f"A has a block of {largest} rows" if largest < len(B) else f"A has {largest} rows"
        raise ValueError(
            f"method='exact' is for at most {LARGEST} rows; {of_block}, which would take about "
            f"{time_of_glynn(largest, n_threads)}. Use method='bounds' or 'accept-reject'."
        )
    mantissa, exponent = 1.0, 0
    for block in blocks:
        factor, power = block_permanent(submatrix(B, block), n_threads)
        mantissa, shift = math.frexp(mantissa * math.frexp(factor)[0])
        exponent += power + shift + math.frexp(factor)[1]
    log_value = math.log(mantissa) + exponent * math.log(2)
    try:
        value = math.ldexp(mantissa, exponent)
    except OverflowError:
        value = math.inf
    message = f"The permanent is {_shown(value, log_value)}."
    return Permanent(value, log_value, log_value, log_value, "exact", message=message)


def _bounds(B: Floats, blocks: list[Block]) -> Permanent:
    lower: dict[str, float] = {}
    upper: dict[str, float] = {}
    log_lower = log_upper = 0.0
    for i, block in enumerate(blocks):
        below, above = block_bounds(submatrix(B, block))
        log_lower += max(below.values())
        log_upper += min(above.values())
        for total, part in ((lower, below), (upper, above)):
            for name, bound in part.items():
                total[name] = bound + (total[name] if i else 0.0)
    slack = np.finfo(float).eps * len(blocks) * (1 + abs(log_lower) + abs(log_upper))
    log_lower, log_upper = log_lower - slack, log_upper + slack
    middle = (log_lower + log_upper) / 2
    names = max(lower, key=lambda name: lower[name]), min(upper, key=lambda name: upper[name])
    message = (
        f"The permanent is between {_shown(_exp(log_lower), log_lower)} ({names[0]}) and "
        f"{_shown(_exp(log_upper), log_upper)} ({names[1]})."
    )
    return Permanent(
        _exp(middle),
        float(middle),
        float(log_lower),
        float(log_upper),
        "bounds",
        lower_bounds=lower,
        upper_bounds=upper,
        message=message,
    )


def _estimate(B: Floats, blocks: list[Block], limits: DrawLimits, n_threads: int) -> Permanent:
    counted = count_accepted(B, blocks, limits, n_threads)
    log_value, log_lower, log_upper = counted.log_permanent(limits.confidence)
    message = (
        f"The permanent is about {_shown(_exp(log_value), log_value)}; the interval from "
        f"{_shown(_exp(log_lower), log_lower)} to {_shown(_exp(log_upper), log_upper)} contains it with "
        f"probability {limits.confidence:g}."
    )
    return Permanent(
        _exp(log_value),
        log_value,
        log_lower,
        log_upper,
        "accept-reject",
        limits.confidence,
        counted.n_draws,
        counted.n_accepted,
        message=message,
    )


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _shown(value: float, log_value: float) -> str:
    return f"{value:.6g}" if 0 < value < math.inf else f"exp({log_value:.6g})"
