"""Random copies of queries, with documents drawn with replacement, and the gradient of the originals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups

__all__ = ["gathered", "resampled"]

_LARGEST = 200  # the paper's bound on the number of documents of a resampled query
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the constant of SplitMix64


def resampled(groups: Groups, numbers: Integers, times: int, seed: Sequence[int]) -> tuple[Integers, Groups]:
    """Make `times` random copies of each query, with documents drawn from the query with replacement.

    Returns the row of each drawn document, and the copies as `Groups`.

    The size of a copy is Poisson-distributed with the original's size as mean, limited to 1 ... 200. The
    draws for a query depend only on the seed, the query's size and the query's index in the whole set, which
    `numbers` holds.
    """
    from scipy.special import pdtr, pdtrik

    sizes, starts = np.tile(groups.sizes, times), np.tile(groups.offsets[:-1], times)
    keys = np.repeat(np.arange(times, dtype=np.uint64), len(numbers))
    for part in (*(np.full(1, each) for each in seed), np.tile(numbers, times)):
        keys = _mixed(keys ^ _mixed(part.astype(np.uint64)))
    u, mean = _uniform(keys), sizes.astype(np.float64)
    drawn = np.ceil(pdtrik(u, mean))
    fewer = (drawn - 1).clip(0)
    drawn = np.where(pdtr(fewer, mean) >= u, fewer, drawn).clip(1, _LARGEST).astype(np.int64)
    copies = Groups.of_sizes(drawn)
    of = np.repeat(np.arange(len(drawn)), drawn)
    place = (np.arange(len(of)) - copies.offsets[:-1][of] + 1).astype(np.uint64)
    rows = starts[of] + np.floor(_uniform(_mixed(keys[of] + place * _GOLDEN)) * sizes[of]).astype(np.int64)
    if groups.rows is not None:
        rows = groups.rows[rows]
    return rows, copies


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash of integers by SplitMix64's mixing function, used as a source of random bits."""
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _uniform(bits: NDArray[np.uint64]) -> Floats:
    """Uniform random numbers in (0, 1) from random bits."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gathered(gradient: Floats, rows: Integers, n: int) -> Floats:
    """Sum of the gradient over the copies of each of n rows; `rows` is the original row of each copy."""
    if gradient.ndim == 1:
        return np.asarray(np.bincount(rows, weights=gradient, minlength=n), dtype=np.float64)
    return np.stack([np.bincount(rows, weights=column, minlength=n) for column in gradient.T], axis=1)
