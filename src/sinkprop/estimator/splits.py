"""The split of queries into those that a fit trains on and those that choose among its candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats
from sinkprop.data.training_set import TrainingSet, joined
from sinkprop.estimator.selection import Selection

__all__ = ["Division", "divide"]


@dataclass(frozen=True, eq=False)
class Division:
    """The queries as they are trained on and judged by.

    parts     of training queries, on each of which the same fit runs; the first is the model's own
    judges    (number of a part, queries that judge the fit on it)
    judged_by in words: "cross-validation over 84 queries in 5 parts"
    """

    parts: tuple[TrainingSet, ...]
    judges: tuple[tuple[int, TrainingSet], ...]
    judged_by: str

    @property
    def weight(self) -> Floats | None:
        """(Q,) weights of the judging queries, in their order; None where all count alike."""
        if all(part.query_weight is None for _, part in self.judges):
            return None
        weight = np.concatenate(
            [
                np.ones(part.n_queries) if part.query_weight is None else part.query_weight
                for _, part in self.judges
            ]
        )
        return weight if weight.sum() > 0 else None


def divide(
    data: TrainingSet, validation: TrainingSet | None, selection: Selection, rng: np.random.Generator
) -> Division:
    """The division that the selection asks for."""
    n_queries = data.n_queries + (0 if validation is None else validation.n_queries)
    if n_queries < 2:
        return Division((data,), ((0, data),), "the one training query itself")
    if selection.cross_validates(n_queries):
        pool = data if validation is None else joined(data, validation)
        n_splits = min(selection.n_splits, pool.n_queries)
        order = rng.permutation(pool.n_queries)
        held = [np.sort(order[k::n_splits]) for k in range(n_splits)]
        rest = [pool.select(np.setdiff1d(order, part)) for part in held]
        return Division(
            (data, *rest),
            tuple((k, pool.select(part)) for k, part in enumerate(held, 1)),
            f"cross-validation over {pool.n_queries} queries in {n_splits} parts",
        )
    if validation is None:
        order = rng.permutation(data.n_queries)
        n = max(1, min(data.n_queries - 1, round(selection.fraction * data.n_queries)))
        return Division((data.select(order[n:]),), ((0, data.select(order[:n])),), f"{n} queries held out")
    return Division((data,), ((0, validation),), f"{validation.n_queries} validation queries")
