"""Linear scorers in memory: scores, gradients in the weights, and the least-squares starting point."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.training_set import TrainingSet
from sinkprop.linear.least_squares import least_squares
from sinkprop.linear.products import Products
from sinkprop.serving.linear_scores import linear_scores, unscaled

__all__ = ["LinearProblem", "spread"]


class LinearProblem:
    """Scores of a linear scorer on training queries, and gradients with respect to its weights."""

    def __init__(self, data: TrainingSet, scaling: Scaling, multiply: Products) -> None:
        self.data, self.scaling, self._multiply = data, scaling, multiply

    @cached_property
    def start(self) -> Floats:
        """Least-squares weights (D,), scaled so that scores have a standard deviation of 1 within queries."""
        return _start(self.data, self.scaling)

    def scores(self, W: Floats, X: NDArray[Any] | None = None) -> Floats:
        """Scores of the rows X, by default the training rows, for weights W of normalized features."""
        V, shift = unscaled(W, self.scaling)
        X = self.data.X if X is None else X
        return self._multiply.forward(X, V[0] if W.ndim == 1 else V.T) - (shift[0] if W.ndim == 1 else shift)

    def gradient(self, g: Floats) -> Floats:
        """Gradient, with respect to the weights, of a function of the scores.

        g is the gradient of this function with respect to the scores. The result has shape (D,), or
        (D + 1, 2) with intercepts if there are two outputs per document. With one score per document, g sums
        to 0 over each query, since adding a constant to all scores of a query changes nothing.
        """
        by_feature = self._multiply.backward(self.data.X, g)
        if g.ndim == 1:
            return by_feature * self.scaling.factor
        total = g.sum(axis=0)
        offset = np.outer(self.scaling.shift * self.scaling.factor, total)
        return np.concatenate([by_feature * self.scaling.factor[:, None] - offset, total[None]])


def _start(data: TrainingSet, scaling: Scaling) -> Floats:
    raw, _ = least_squares(data.X, data.y, sample_weight=data.row_weight)
    used = scaling.factor > 0
    w = np.where(used, raw / np.where(used, scaling.factor, 1.0), 0.0)
    width = spread(linear_scores(data.X, w, scaling), data)
    return w / width if width > 0 else np.zeros_like(w)


def spread(scores: Floats, data: TrainingSet) -> float:
    """Standard deviation of the scores within queries, weighted by query weights."""
    sizes = data.groups.sizes
    means = np.add.reduceat(scores, data.groups.offsets[:-1]) / sizes
    weight = None if data.query_weight is None else np.repeat(data.query_weight, sizes)
    width = math.sqrt(np.average(np.square(scores - np.repeat(means, sizes)), weights=weight))
    # scores that are equal except for rounding have a spread this small
    return width if width > 1e-12 * float(np.abs(scores).max()) else 0.0
