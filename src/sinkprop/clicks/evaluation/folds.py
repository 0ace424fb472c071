"""Folds of the sessions for cross-fitting: the relevance for a session is estimated from the other folds."""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats, Integers

__all__ = ["N_FOLDS", "folds_of", "sums_by_fold"]

N_FOLDS = 5
_GOLDEN = (5**0.5 - 1) / 2


def folds_of(n_sessions: int, n_folds: int) -> Integers:
    """Fold of each session, (S,), from 0 to n_folds - 1.

    Multiples of the golden ratio modulo 1 are spread evenly, and so are those of each p-th session. Folds are
    of about the same size, and not related to policies that take turns.
    """
    folds: Integers = (np.arange(n_sessions) * _GOLDEN % 1 * n_folds).astype(np.int64)
    return folds


def sums_by_fold(folds: Integers, cells: Integers, values: Floats, shape: tuple[int, int]) -> Floats:
    """Sums (F, C) of values (I,) in each fold (I,) and cell (I,), for the shape (F, C)."""
    sums = np.bincount(folds * np.int64(shape[1]) + cells, values, shape[0] * shape[1])
    return sums.astype(np.float64, copy=False).reshape(shape)
