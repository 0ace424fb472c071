"""Weights of the members in an AutoRanker's score, found on queries that the members have not seen.

Taking the weights that are best on the held-out queries would overfit them if they are few, and so would
taking the one best member. The weights are the mean of two rules that both become sharper with more queries:

- The queries are drawn with replacement many times, and each draw takes the best point of a grid of weights.
  The rule is the mean of these points.
- The members that are at most two standard errors behind the best one get equal weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Integers

__all__ = ["Stack", "paired_error", "simplex", "stacked"]

_STEPS = 4  # weights on the grid are multiples of 1/4
_DRAWS = 200
_BEHIND = 2.0  # a member that is more standard errors than this behind the best one gets no equal weight
_SMALLEST = 0.05  # members with a smaller weight are left out of the model


@dataclass(frozen=True, eq=False)
class Stack:
    """Outcome of `stacked` for M members.

    weights  (M,) weights of the members: not below 0, with sum 1.
    values   (M, Q) criterion of each member on each query.
    shares   (Q,) weight of each query in means; 0 if the criterion does not count it.
    gain     Mean difference in the criterion between combination and best member, cross-validated: for the
             queries of each fold, the other folds choose both.
    error    Standard error of this difference.
    """

    weights: Floats
    values: Floats
    shares: Floats
    gain: float
    error: float


def simplex(n: int, steps: int = _STEPS) -> Floats:
    """All points (P, n) with sum 1 whose coordinates are multiples of 1/steps and not below 0.

    >>> simplex(2, 2)
    array([[0. , 1. ],
           [0.5, 0.5],
           [1. , 0. ]])
    """
    points: list[list[int]] = [[]]
    for _ in range(n - 1):
        points = [[*point, k] for point in points for k in range(steps - sum(point) + 1)]
    return np.array([[*point, steps - sum(point)] for point in points]) / steps


def stacked(
    value: Callable[[Floats], Floats],
    n_members: int,
    folds: Integers,
    weight: Floats | None,
    rng: np.random.Generator,
) -> Stack:
    """Find the weights of the members.

    value   Function from weights (M,) to the criterion (Q,) of the weighted sum of the members' scores.
    folds   (Q,) number of the fold in which each query was held out.
    weight  (Q,) query weights.
    """
    points = simplex(n_members)
    grid = _Grid(points, np.array([value(point) for point in points]))
    shares = _shares(grid.values, weight)
    weights = grid.weights(shares, rng)
    gain, error = _validated(value, grid, folds, shares, rng)
    return Stack(weights, grid.members, shares, gain, error)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Points (P, M) of a grid of weights, and the criterion (P, Q) of each on each query."""

    points: Floats
    values: Floats

    @property
    def members(self) -> Floats:
        """(M, Q) criterion of each member by itself."""
        found: Floats = self.values[[int(np.argmax(column)) for column in self.points.T]]
        return found

    def weights(self, shares: Floats, rng: np.random.Generator) -> Floats:
        """Weights (M,) from queries with the given shares in the mean; weights that are small become 0."""
        found = 0.5 * self._mean_of_best(shares, rng) + 0.5 * self._equal(shares)
        found[found < _SMALLEST] = 0
        found /= found.sum()
        return found

    def _mean_of_best(self, shares: Floats, rng: np.random.Generator) -> Floats:
        """Mean, over draws of queries with replacement, of the best point."""
        counted = np.flatnonzero(shares)
        if len(counted) == 0:
            return np.full(self.points.shape[1], 1 / self.points.shape[1])
        drawn = rng.multinomial(len(counted), np.full(len(counted), 1 / len(counted)), size=_DRAWS)
        means = self.values[:, counted] @ (drawn * shares[counted]).T  # (P, draws)
        # a draw in which several points are equally good takes the mean of them
        best = means >= means.max(axis=0) - 1e-12
        found: Floats = (self.points.T @ (best / best.sum(axis=0))).mean(axis=1)
        return found

    def _equal(self, shares: Floats) -> Floats:
        """Equal weights of the members that are at most two standard errors behind the best one."""
        members = self.members
        means = _means(members, shares)
        best = int(np.argmax(means))
        errors = np.array([paired_error(values - members[best], shares) for values in members])
        near = means >= means[best] - _BEHIND * errors
        found: Floats = near / near.sum()
        return found


def _validated(
    value: Callable[[Floats], Floats],
    grid: _Grid,
    folds: Integers,
    shares: Floats,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Cross-validated gain of the combination over the best member, and its standard error."""
    members = grid.members
    if len(members) == 1:
        return 0.0, 0.0
    parts = folds if len(np.unique(folds)) > 1 else np.arange(len(folds)) % 5
    difference = np.zeros(len(shares))
    for part in np.unique(parts):
        others = np.where(parts == part, 0.0, shares)
        best = int(np.argmax(_means(members, others)))
        together = value(grid.weights(others, rng))
        difference[parts == part] = (together - members[best])[parts == part]
    return float(_means(difference, shares)), paired_error(difference, shares)


def paired_error(difference: Floats, shares: Floats) -> float:
    """Standard error of the weighted mean of differences (Q,) between two methods on the same queries."""
    counted = shares > 0
    if not counted.any():
        return 0.0
    part, own = difference[counted], shares[counted] / shares.sum()
    n = len(part)
    away = (part - (part * own).sum()) * own
    return float(np.sqrt(np.square(away).sum() * n / max(n - 1, 1)))


def _shares(values: Floats, weight: Floats | None) -> Floats:
    """(Q,) weight of each query in means; 0 if the criterion does not count it."""
    counted = ~np.isnan(values).any(axis=0)
    shares: Floats = counted * (np.ones(values.shape[1]) if weight is None else weight)
    return shares


def _means(values: Floats, shares: Floats) -> Floats:
    """Weighted means (...) of values (..., Q) over the queries with shares above 0; 0 if there are none."""
    counted = shares > 0
    found: Floats = values[..., counted] @ shares[counted] / max(shares.sum(), 1e-300)
    return found
