"""Bagging by query: each tree, or each booster, is grown on some of the queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Mask
from sinkprop.data.queries import Groups

__all__ = ["QueryBagging", "WithoutQueries", "query_bagging"]

Function = Callable[[Floats], tuple[Any, Any]]


class QueryBagging:
    """Function from scores to derivatives, in which only a random sample of the queries counts.

    The derivatives of the documents of all other queries are set to 0. LightGBM's own bagging_by_query does
    not work with derivatives from a user-defined objective.

    fraction  Fraction of the queries in a sample.
    every     Number of rounds after which a new sample is drawn.
    seed      Seed of the samples.
    """

    def __init__(
        self, derivatives: Function, groups: Groups, *, fraction: float, every: int, seed: int
    ) -> None:
        self._derivatives, self._sizes = derivatives, groups.sizes
        self._count = max(1, round(fraction * len(self._sizes)))
        self._every, self._seed, self._round = every, seed, 0
        self._out = np.zeros(0, dtype=bool)

    def skip(self, rounds: int) -> None:
        """Set the number of rounds already grown, so that a resumed fit draws the same samples."""
        self._round = rounds

    def __call__(self, scores: Floats) -> tuple[Any, Any]:
        draw, phase = divmod(self._round, self._every)
        if phase == 0 or not len(self._out):
            order = np.random.default_rng([self._seed, 1, draw]).permutation(len(self._sizes))
            out = np.ones(len(self._sizes), dtype=bool)
            out[order[: self._count]] = False
            self._out = np.repeat(out, self._sizes)
        self._round += 1
        gradient, hessian = (np.array(each) for each in self._derivatives(scores))
        gradient[self._out] = 0
        hessian[self._out] = 0
        return gradient, hessian


class WithoutQueries:
    """Function from scores to derivatives that are 0 for the documents of some queries.

    out  (N,) whether each row belongs to a query that does not count.
    """

    def __init__(self, derivatives: Function, out: Mask) -> None:
        self._derivatives, self._out = derivatives, out

    def __call__(self, scores: Floats) -> tuple[Any, Any]:
        gradient, hessian = (np.array(each) for each in self._derivatives(scores))
        gradient[self._out] = 0
        hessian[self._out] = 0
        return gradient, hessian


def query_bagging(others: dict[str, Any], seed: int) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Separate the parameters of bagging by query from LightGBM's other parameters.

    Returns two values: the arguments of `QueryBagging` (None without bagging by query), and the parameters to
    pass to LightGBM. LightGBM does bagging by row itself.
    """
    others, fraction = dict(others), others.get("bagging_fraction", 1.0)
    every = whole("bagging_freq", others.get("bagging_freq", 1), 0)
    by_query = others.pop("bagging_by_query", True)
    if number("bagging_fraction", fraction, above=True) >= 1 or every == 0:
        return None, others
    if not by_query:
        return None, {**others, "bagging_freq": every}
    seed = whole("bagging_seed", others.get("bagging_seed", seed), 0)
    drawing = {"fraction": fraction, "every": every, "seed": seed}
    return drawing, {**others, "bagging_fraction": 1.0, "bagging_freq": 0}
