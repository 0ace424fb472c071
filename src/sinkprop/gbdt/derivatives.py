"""What boosted trees are grown on: the expected gain's gradient and a curvature, from one native call."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.data import Groups, as_labels, as_query_weight, as_sample_weight, as_scores
from sinkprop.gains import Gain, as_gain
from sinkprop.objective import grouped_gain, native_settings
from sinkprop.relaxations import SmoothedIndicator

__all__ = ["Derivatives", "TreeLoss"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

CURVATURES = ("gradient", "constant")


@dataclass(frozen=True)
class TreeLoss:
    """How the scores of a query become derivatives.

    gain       what is to be large: see `expected_gain`
    width      of the Laplace kernel
    curvature  "gradient": the absolute value of the gradient; "constant"
    n_iter     Sinkhorn iterations
    epsilon    added to every entry of the matrix before them
    """

    gain: str | Gain = "ndcg"
    width: float = 1.0
    curvature: str = "gradient"
    n_iter: float = 5
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        object.__setattr__(self, "gain", as_gain(self.gain))
        if self.curvature not in CURVATURES:
            raise ValueError(
                f"curvature must be {' or '.join(map(repr, CURVATURES))}; got {self.curvature!r}."
            )
        native_settings(SmoothedIndicator(self.width, kernel="laplace"), self.n_iter, self.epsilon)


class Derivatives:
    """The derivatives of minus the sum over queries of their expected gains, for scores of these rows."""

    def __init__(
        self,
        loss: TreeLoss,
        labels: ArrayLike,
        groups: Groups,
        *,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        n_threads: int | None = None,
    ) -> None:
        n = int(groups.offsets[-1])
        self.loss, self.groups, self.n_threads = loss, groups, n_threads
        self.labels = as_labels(labels, n)
        self.sample_weight = None if sample_weight is None else as_sample_weight(sample_weight, n)
        self.query_weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        as_gain(loss.gain).gains(self.labels) if as_gain(loss.gain).separable else None
        relaxation = SmoothedIndicator(loss.width, kernel="laplace")
        self._settings = native_settings(relaxation, loss.n_iter, loss.epsilon)

    def __call__(self, scores: ArrayLike) -> tuple[Singles, Singles]:
        """Gradient and curvature (N,), as boosters take them."""
        _, gradient = self._gain(scores)
        gradient *= -len(self.groups.queries)
        if self.query_weight is not None:
            by_row = np.repeat(self.query_weight, np.diff(self.groups.offsets))
            if self.groups.rows is not None:
                unsorted = np.empty_like(by_row)
                unsorted[self.groups.rows] = by_row
                by_row = unsorted
            gradient *= by_row
        hessian = np.abs(gradient) if self.loss.curvature == "gradient" else np.full_like(gradient, 0.1)
        return gradient.astype(np.float32), np.maximum(hessian, 1e-16).astype(np.float32)

    def value(self, scores: ArrayLike) -> float:
        """The weighted mean of the expected gains."""
        per_query, _ = self._gain(scores)
        if self.query_weight is None:
            return math.fsum(per_query) / len(per_query)
        return math.fsum(per_query * self.query_weight) / math.fsum(self.query_weight)

    def _gain(self, scores: ArrayLike) -> tuple[Floats, Floats]:
        x = as_scores(scores, 1)
        if len(x) != len(self.labels):
            raise ValueError(
                f"scores must have one value a row: {len(self.labels)} rows, but {len(x)} scores."
            )
        gain = as_gain(self.loss.gain)
        return grouped_gain(
            x, self.labels, self.groups, gain, self._settings, self.sample_weight, self.n_threads
        )
