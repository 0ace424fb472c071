"""Code that models of users who read from the top down share: clicks above, averages, and checks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.clicks.log import ClickLog
from sinkprop.common.types import Floats, Integers, Mask

__all__ = [
    "average_examination",
    "checked_relevance",
    "checked_weights",
    "clicks_above",
    "require_clicks",
    "smoothed",
    "sums",
]


def sums(values: Floats, index: Integers, size: int) -> Floats:
    """Sum of the values with each index, (size,).

    >>> sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]), 3)
    array([5., 0., 2.])
    """
    return np.bincount(index, values, size).astype(np.float64)


def clicks_above(clicked: Mask, offsets: Integers) -> NDArray[np.int32]:
    """Number of clicks above each impression in its session, (M,).

    >>> clicks_above(np.array([True, False, True, False]), np.array([0, 3, 4]))
    array([0, 1, 1, 0], dtype=int32)
    """
    before = np.cumsum(clicked, dtype=np.int32) - clicked
    return before - np.repeat(before[offsets[:-1]], np.diff(offsets))


def smoothed(clicks: Floats, examined: Floats, average: float) -> Floats:
    """Relevance of documents: clicks and impressions, to which one of average relevance is added."""
    return (clicks + average) / (examined + 1)


def require_clicks(log: ClickLog, weights: Floats) -> None:
    """Raise a ValueError if no session of a weight above 0 has a click."""
    if not (log.clicked & (weights > 0)).any():
        raise ValueError(
            "log: no session has a click, so the relevance of documents cannot be estimated; log sessions "
            "with clicks as well, and check the column of clicks."
        )


def checked_relevance(relevance: ArrayLike) -> Floats:
    """Return the relevance of documents as float64; raise a ValueError unless all are from 0 to 1."""
    array = np.asarray(relevance, dtype=np.float64)
    wrong = ~((array >= 0) & (array <= 1))
    if array.ndim != 1 or wrong.any():
        got = f"shape {array.shape}" if array.ndim != 1 else str(array[np.argmax(wrong)])
        raise ValueError(f"relevance must have one probability from 0 to 1 per document; got {got}.")
    return array


def checked_weights(log: ClickLog, weight: ArrayLike | None) -> Floats:
    """Weight of the session of each impression, (M,); raise a ValueError for weights that are not valid."""
    if weight is None:
        return np.ones(len(log))
    weights = np.asarray(weight, dtype=np.float64)
    if weights.shape != (log.n_sessions,):
        raise ValueError(
            f"weight must have one number per session, ({log.n_sessions},); got {weights.shape}."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError("weight must be finite, at least 0, and above 0 for one session or more.")
    return np.repeat(weights, log.sizes)


def average_examination(log: ClickLog, examined: Floats, weights: Floats) -> Floats:
    """Weighted average at each position of the probability that an impression is examined, (K,).

    Positions that only sessions of weight 0 have get 0.
    """
    at = log.positions - 1
    total = np.bincount(at, weights)
    average: Floats = np.bincount(at, examined * weights) / np.where(total > 0, total, 1.0)
    return average
