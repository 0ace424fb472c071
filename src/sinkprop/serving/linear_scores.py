"""Scores of linear models, the same to the last bit for a row alone and among any other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling

__all__ = ["linear_scores", "row_scores", "unscaled"]


def linear_scores(X: NDArray[Any], W: Floats, scaling: Scaling) -> Floats:
    """Scores of rows X: their normalized features times weights W.

    W is (D,), or (D + 1, 2) if the model has two outputs per document; its last row then holds the
    intercepts. If the normalization is "query", X must already be scaled within queries, and `scaling`
    changes nothing. Native code computes the product row by row, so that the score of a row is the same, to
    the last bit, for any other rows in X.
    """
    return row_scores(X, *unscaled(W, scaling))


def unscaled(W: Floats, scaling: Scaling) -> tuple[Floats, Floats]:
    """V (k, D) and shift (k,) such that V x - shift are the k outputs of weights W for raw features x."""
    columns = W[:, None] if W.ndim == 1 else W[:-1]
    V = np.ascontiguousarray((columns * scaling.factor[:, None]).T)
    shift = (scaling.shift * scaling.factor) @ columns
    return V, shift if W.ndim == 1 else shift - W[-1]


def row_scores(X: NDArray[Any], V: Floats, shift: Floats) -> Floats:
    """X V' - shift in float64: (N,) for V (1, D), and (N, k) for V (k, D)."""
    out = np.empty((len(X), len(V)))
    _native.row_scores(X, V, out)
    out -= shift
    return out[:, 0] if len(V) == 1 else out
