"""Feature scaling: the normalization of features before they are scored.

A model contains its normalization, so that features are scaled in the same way for training and prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups

__all__ = ["SCALINGS", "Scaling", "check_kind", "fit_scaling", "scale_by_query", "scaling_of", "transformed"]

Kind = Literal["none", "query", "standard"]

SCALINGS: tuple[Kind, ...] = ("none", "query", "standard")

_CHUNK = 1 << 15  # rows per chunk; chunks avoid a second copy of all features


@dataclass(frozen=True, eq=False)
class Scaling:
    """A scaling of features x: (x - shift) * factor, or a scaling within each query.

    kind    "none"      Unchanged.
            "query"     (x - min) / (max - min) over the query's rows, to [0, 1], as in LETOR's
                        QueryLevelNorm; a feature that is constant in a query becomes 0.
            "standard"  (x - mean) / std over the training rows; a constant feature becomes 0.
    shift   (D,) subtracted from the features; 0 unless the kind is "standard".
    factor  (D,) multiplies the difference; 1 unless the kind is "standard".
    """

    kind: Kind
    shift: Floats
    factor: Floats


def fit_scaling(kind: str, X: NDArray[Any]) -> Scaling:
    """Return the `Scaling` of a kind, fitted to the training rows X (N, D)."""
    check_kind(kind)
    if kind != "standard":
        return scaling_of(kind, np.zeros(X.shape[1]), np.ones(X.shape[1]))
    return scaling_of(kind, *moments(X))


def scaling_of(kind: str, mean: Floats, std: Floats) -> Scaling:
    """Return the `Scaling` of a kind, from the mean and standard deviation (D,) of the training features."""
    check_kind(kind)
    if kind != "standard":
        return Scaling(cast(Kind, kind), np.zeros(len(mean)), np.ones(len(mean)))
    # rounding gives a constant feature of large values a standard deviation slightly above 0
    constant = std <= 1e-12 * np.abs(mean)
    return Scaling("standard", mean, np.where(constant, 0.0, 1 / np.where(constant, 1.0, std)))


def check_kind(kind: str) -> None:
    """Raise a ValueError if there is no normalization of this name."""
    if kind not in SCALINGS:
        raise ValueError(f"normalization must be {' or '.join(map(repr, SCALINGS))}; got {kind!r}.")


def moments(X: NDArray[Any]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column, in two passes over chunks of rows."""
    n = len(X)
    mean = sum((_chunk.sum(axis=0, dtype=np.float64) for _chunk in _chunks(X)), np.zeros(X.shape[1])) / n
    square = np.zeros(X.shape[1])
    for chunk in _chunks(X):
        square += np.square(chunk - mean).sum(axis=0)
    return mean, np.sqrt(square / n)


def scale_by_query(X: NDArray[Any], groups: Groups) -> NDArray[Any]:
    """Return a new array with each feature x scaled to (x - min) / (max - min) within each query.

    A feature that is constant in a query becomes 0 there. NaN stays NaN and is ignored in the minimum and the
    maximum.
    """
    ordered = X if groups.rows is None else X[groups.rows]
    starts, sizes = groups.offsets[:-1], groups.sizes
    least = np.fmin.reduceat(ordered, starts, axis=0)
    width = np.fmax.reduceat(ordered, starts, axis=0) - least
    constant = width == 0
    factor = np.where(constant, 0, 1 / np.where(constant, 1, width)).astype(X.dtype)
    scaled: NDArray[Any] = (ordered - np.repeat(least, sizes, axis=0)) * np.repeat(factor, sizes, axis=0)
    if groups.rows is None:
        return scaled
    out = np.empty_like(scaled)
    out[groups.rows] = scaled
    return out


def transformed(X: NDArray[Any], transform: str) -> NDArray[Any]:
    """Features after a transform: sign(x) log(1 + |x|) for "log1p", unchanged for "none"."""
    return np.copysign(np.log1p(np.abs(X)), X) if transform == "log1p" else X


def _chunks(X: NDArray[Any]) -> Any:
    return (X[start : start + _CHUNK] for start in range(0, len(X), _CHUNK))
