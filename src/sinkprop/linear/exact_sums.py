"""Exact sums over queries, with the same bits in any order of addition.

A floating-point sum depends on the order of its terms, and so on the number of threads and machines that
share the work. Training amplifies such differences between sums. Here the contribution of a query, which
depends on its own rows only, becomes a fixed-point number of three 31-bit words, and words are added as
integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Integers

__all__ = ["ExactSum", "add_products", "add_rows", "exponent", "exponents", "until_it_fits", "within"]

S = TypeVar("S")

_BITS = 31
_LEAST, _MOST = -1000, 1000


@dataclass(frozen=True, eq=False)
class ExactSum:
    """Sum of arrays: (words[0] 2^-31 + words[1] 2^-62 + words[2] 2^-93) 2^exponent.

    words     (3, ...) integers.
    exponent  (...) exponents such that the absolute value of every contribution is below 2^exponent.
    fits      Whether every contribution was below that bound. If not, the words are meaningless.

    Up to 2^31 contributions can be added.
    """

    words: Integers
    exponent: Integers
    fits: bool = True

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.words + other.words, self.exponent, self.fits and other.fits)

    def __sub__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.words - other.words, self.exponent, self.fits and other.fits)

    def value(self) -> Floats:
        """The sum, rounded once."""
        shape = self.words.shape[1:]
        high, middle, low = (part.ravel().tolist() for part in self.words)
        at = np.broadcast_to(self.exponent, shape).ravel().tolist()
        total = [
            math.ldexp((a << 2 * _BITS) + (b << _BITS) + c, e - 3 * _BITS)
            for a, b, c, e in zip(high, middle, low, at, strict=True)
        ]
        return np.array(total, dtype=np.float64).reshape(shape)


def exponents(bound: Any) -> Integers:
    """Smallest e with bound < 2^e, for each bound; -1000 for a bound of 0. Limited to -1000 ... 1000."""
    bound = np.asarray(bound, dtype=np.float64)
    return within(np.where(bound > 0, np.frexp(bound)[1], _LEAST).astype(np.int64))


def exponent(bound: float) -> int:
    """Smallest e with bound < 2^e, for a single bound; see `exponents`."""
    return min(max(math.frexp(bound)[1], _LEAST), _MOST) if bound > 0 else _LEAST


def within(exponent: Integers) -> Integers:
    """Exponents clipped to -1000 ... 1000, so that 2^exponent is neither 0 nor infinite."""
    return np.minimum(np.maximum(exponent, _LEAST), _MOST)


def add_rows(values: Floats, exponent: Integers) -> ExactSum:
    """Exact sum of values (Q, ...) over their first axis.

    exponent  Exponents of bounds on the values: |value| < 2^exponent; see `ExactSum`.

    >>> add_rows(np.array([1e16, 1.0, -1e16]), np.array(60)).value()
    array(1.)
    """
    shape = values.shape[1:]
    size = math.prod(shape)
    words = np.zeros((3, size), dtype=np.int64)
    rows = np.ascontiguousarray(values, dtype=np.float64).reshape(len(values), size)
    fits = _native.add_words(rows, _scales(exponent, shape).reshape(size), words)
    return ExactSum(words.reshape(3, *shape), exponent, fits)


def add_products(X: NDArray[Any], g: Floats, offsets: Integers, exponent: Integers) -> ExactSum:
    """Return the product X' g as an exact sum over queries, of shape (D,) or (k, D).

    X         (N, D) rows; those of a query are consecutive.
    g         (N,) or (N, k) factors of the rows.
    offsets   (Q + 1,) row at which each query starts; the last entry is N.
    exponent  (D,) or (k, D) exponents of bounds on the product of one query: |value| < 2^exponent; see
              `ExactSum`.
    """
    columns = np.ascontiguousarray(g.reshape(len(g), -1))
    k, d = columns.shape[1], X.shape[1]
    words = np.zeros((3, k, d), dtype=np.int64)
    fits = _native.add_products(X, columns, offsets, _scales(exponent, (k, d)), words)
    return ExactSum(words if g.ndim == 2 else words[:, 0], exponent, fits)


def until_it_fits(run: Callable[[int], S], fits: Callable[[S], bool]) -> S:
    """Call run(extra) with increasing `extra` until fits(result) is true; return this result.

    `run` computes exact sums and adds `extra` to their exponents, so that larger contributions fit. Raises a
    FloatingPointError if the contributions are too large for any exponent.
    """
    extra = 0
    while not fits(result := run(extra)):
        if extra > 2 * _MOST:
            raise FloatingPointError("a sum over the queries overflows: features or scores are too large.")
        # small steps at first, so that few of the 93 bits of a sum stay unused
        extra += 24 if extra < 240 else extra
    return result


def _scales(exponent: Integers, shape: tuple[int, ...]) -> Floats:
    scale = np.ldexp(1.0, -within(exponent))
    if scale.shape != shape:
        scale = np.ascontiguousarray(np.broadcast_to(scale, shape))
    return scale
