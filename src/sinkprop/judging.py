"""Who judges the candidates of a fit, and by what: queries that took no part in a candidate's training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.conventions import Convention
from sinkprop.gains import NDCG, Gain, RankLinear
from sinkprop.linear import TrainingSet, joined
from sinkprop.metrics import evaluate, parse_metrics
from sinkprop.objective import expected_gain
from sinkprop.ranked import ranking
from sinkprop.relaxations import SmoothedIndicator
from sinkprop.selection import Selection, mean_over_queries

__all__ = ["Division", "Judge", "divide", "gain_judge", "mean_criterion", "metric_judge"]

Floats = NDArray[np.float64]
Judge = Callable[[TrainingSet, Floats], Floats]


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


def mean_criterion(judge: Judge, part: TrainingSet, scores: Floats) -> float:
    """The mean criterion of scores over a part's own queries, which count by their weights."""
    weight = part.query_weight
    return float(
        mean_over_queries(judge(part, scores), None if weight is None or not weight.any() else weight)
    )


def metric_judge(names: str | Sequence[str], convention: str | Convention) -> tuple[Judge, str]:
    """The mean of these metrics for each query, and its name."""
    metrics = parse_metrics(names)

    def judge(part: TrainingSet, scores: Floats) -> Floats:
        result = evaluate(part.y, scores, part.codes, metrics=metrics, convention=convention)
        values = list(result.per_query.values())
        # one after the other: np.mean would add those of a single query in another order than those of many
        return reduce(np.add, values) / len(values)

    return judge, names if isinstance(names, str) else ",".join(map(str, names))


def gain_judge(gain: Gain, selection: Selection, convention: str, *, weighted: bool) -> tuple[Judge, str]:
    """The function that gives the criterion of each query, and its name: where none is named, the gain's."""
    if selection.criterion is None and (weighted or not isinstance(gain, NDCG)):

        def gain_itself(part: TrainingSet, scores: Floats) -> Floats:
            # whole numbers, twenty sigmas apart: Pi is the permutation matrix to the last bit
            apart = -ranking(scores, part.codes).ranks.astype(np.float64)
            return expected_gain(
                apart,
                part.y,
                part.codes,
                gain=gain,
                relaxation=SmoothedIndicator(0.05),
                n_iter=1,
                epsilon=0,
                sample_weight=part.sample_weight,
            ).per_query

        return gain_itself, "gain" if isinstance(gain, RankLinear) else str(gain)
    names: Any = selection.criterion
    if names is None:
        names = "ndcg@1-10"
        convention = "letor" if gain.discount == "letor" else "standard"  # type: ignore[attr-defined]
    return metric_judge(names, convention)
