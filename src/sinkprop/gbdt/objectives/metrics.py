"""Metrics with a stated convention, as the tree libraries take them for early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import one_of
from sinkprop.common.text_forms import digits, text_form
from sinkprop.common.types import Floats
from sinkprop.data.checks import as_labels, as_query_weight
from sinkprop.data.queries import Groups
from sinkprop.gbdt.objectives import lightgbm as for_lightgbm
from sinkprop.gbdt.objectives import xgboost as for_xgboost
from sinkprop.gbdt.objectives.catboost import CatBoostObjective
from sinkprop.gbdt.objectives.prepared import present
from sinkprop.metrics.conventions import Convention, as_convention
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.measures import Metric, parse_metrics
from sinkprop.metrics.ranked_labels import Ranked, Ties
from sinkprop.metrics.ranking import as_one_score_a_row
from sinkprop.objective.gains import NDCG, Gain, Precision, RankLinear

__all__ = [
    "CatBoostMetric",
    "LightGBMMetric",
    "RankingMetrics",
    "XGBoostMetric",
    "catboost_metric",
    "gain_name",
    "gain_values",
    "lightgbm_metric",
    "xgboost_metric",
]

Metrics = str | Metric | Gain | Iterable[str | Metric | Gain]


def lightgbm_metric(
    metrics: Metrics = "ndcg@10",
    *,
    convention: str | Convention = "standard",
    query_weight: Literal["dataset"] | None = None,
    **options: Any,
) -> LightGBMMetric:
    """Metrics for LightGBM: `feval` of `lightgbm.train` and `eval_metric` of `LGBMRanker.fit`.

    metrics       names such as "ndcg@10" or "ndcg@1,5,map", `Metric` values, or a `Gain`: what its objective
                  makes large, of the ranking itself
    convention    see `evaluate`
    query_weight  "dataset": means weighted by the Dataset's `weight`, one number within a query; None: plain
    options       in place of the convention's: `empty`, `ties`, `threshold` and the others of `Convention`

    The first metric named is the one that `first_metric_only` looks at. LightGBM computes metrics of its own
    besides, unless it is told metric="None".

    >>> feval = lightgbm_metric("ndcg@5,map", convention="letor", ties="average")
    >>> labels, scores, sizes = np.array([0.0, 1.0, 0.0]), np.zeros(3), np.array([2, 1])
    >>> feval(labels, scores, None, sizes)  # as LGBMRanker calls it
    [('ndcg@5', 0.0, True), ('map', 0.375, True)]
    """
    one_of("query_weight", query_weight or "dataset", ("dataset",))
    return LightGBMMetric(RankingMetrics.of(metrics, convention, options), query_weight=query_weight)


class LightGBMMetric:
    """Metrics of a Dataset under a model's scores: see `lightgbm_metric`."""

    def __init__(self, metrics: RankingMetrics, *, query_weight: Literal["dataset"] | None = None) -> None:
        self.metrics, self.query_weight = metrics, query_weight

    # Four parameters, as LightGBM counts them: with fewer, LGBMRanker would pass no groups.
    def __call__(
        self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None
    ) -> list[tuple[str, float, bool]]:
        """[(name, value, True), ...]: f(y_true, y_pred, weight, group), or for `train`, f(preds, dataset)."""
        scores, labels, weight, group, _ = for_lightgbm.rows_of(y_true, y_pred, weight, group)
        groups = for_lightgbm.groups_of(group, len(labels))
        # LightGBM drops weights that are all ones
        weights = None if self.query_weight is None or weight is None else np.asarray(weight)
        found = self.metrics.values(labels, scores, groups, weights)
        return [(name, value, True) for name, value in found]

    def __repr__(self) -> str:
        weights = "" if self.query_weight is None else f", query_weight={self.query_weight!r}"
        return f"lightgbm_metric({self.metrics.text()}{weights})"


def xgboost_metric(
    metrics: Metrics = "ndcg@10",
    *,
    convention: str | Convention = "standard",
    query_weight: Literal["dataset"] | None = "dataset",
    **options: Any,
) -> XGBoostMetric:
    """Metrics for XGBoost: `custom_metric` of `xgboost.train` and of `xgboost.cv`.

    query_weight  "dataset": means weighted by the DMatrix's `weight`, one number a query, where it has one;
                  None: plain means

    The other arguments are those of `lightgbm_metric`. XGBoost goes by the name where it stops early, and
    takes what does not begin as "ndcg" or "map" for a loss: pass maximize=True. It looks at the last metric.
    """
    one_of("query_weight", query_weight or "dataset", ("dataset",))
    return XGBoostMetric(RankingMetrics.of(metrics, convention, options), query_weight=query_weight)


class XGBoostMetric:
    """Metrics of a DMatrix under a model's scores: see `xgboost_metric`."""

    def __init__(
        self, metrics: RankingMetrics, *, query_weight: Literal["dataset"] | None = "dataset"
    ) -> None:
        self.metrics, self.query_weight = metrics, query_weight

    def __call__(self, preds: Any, dmatrix: Any) -> list[tuple[str, float]]:
        """[(name, value), ...]: called as f(preds, dmatrix)."""
        labels, weight, pointers = for_xgboost.rows_of(dmatrix)
        groups = for_xgboost.groups_of(pointers, len(labels))
        if weight is not None:
            weight = None if self.query_weight is None else present(weight, groups, len(pointers) - 1)
        return self.metrics.values(labels, preds, groups, weight)

    def __repr__(self) -> str:
        weights = ", query_weight=None" if self.query_weight is None else ""
        return f"xgboost_metric({self.metrics.text()}{weights})"


def catboost_metric(
    metric: str | Metric | Gain = "ndcg@10",
    *,
    objective: CatBoostObjective,
    convention: str | Convention = "standard",
    **options: Any,
) -> CatBoostMetric:
    """A metric for CatBoost: the `eval_metric` that belongs to a `catboost_objective`.

    metric      a name such as "ndcg@10", a `Metric`, or a `Gain`: what its objective makes large
    objective   that of the same training, which gets the scores of each round from here, and has the queries
    convention  see `evaluate`
    options     in place of the convention's: `empty`, `ties`, `threshold` and the others of `Convention`

    CatBoost takes one metric of this kind; it is what early stopping and `use_best_model` go by. In
    `evals_result_` it has the name of its class, "CatBoostMetric".
    """
    metrics = RankingMetrics.of(metric, convention, options)
    if len(metrics.metrics) != 1:
        raise ValueError(f"metric must be one metric, as CatBoost takes no more; got {metric!r}.")
    if not isinstance(objective, CatBoostObjective):
        raise TypeError(f"objective must be a catboost_objective; got {objective!r}.")
    return CatBoostMetric(metrics, objective)


class CatBoostMetric:
    """A metric of the data sets of an objective: see `catboost_metric`."""

    no_jit = True

    def __init__(self, metrics: RankingMetrics, objective: CatBoostObjective) -> None:
        self.metrics, self.objective = metrics, objective

    def is_max_optimal(self) -> bool:
        return True

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """The mean over queries, and 1, as CatBoost calls it with the scores of a whole data set."""
        for rows in (self.objective.rows, *self.objective.eval_rows):
            order = rows.find(target)
            if order is not None:
                scores = self.objective.see(rows, order, np.asarray(approxes[0]))
                ((_, value),) = self.metrics.values(rows.labels, scores, rows.groups)
                return value, 1.0
        raise ValueError(
            "the labels of the Pools must be the objective's `label` and `eval_labels`, which tell the rows."
        )

    def get_final_error(self, error: float, weight: float) -> float:
        return error / weight

    # as the objective's
    def __copy__(self) -> CatBoostMetric:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CatBoostMetric:
        return self

    def __repr__(self) -> str:
        return f"catboost_metric({self.metrics.text()}, objective={self.objective!r})"


@dataclass(frozen=True)
class RankingMetrics:
    """Metrics, and gains as metrics, under one convention."""

    metrics: tuple[Metric | Gain, ...]
    convention: Convention

    @staticmethod
    def of(metrics: Metrics, convention: str | Convention, options: dict[str, Any]) -> RankingMetrics:
        chosen: dict[Metric | Gain, None] = {}
        for item in [metrics] if isinstance(metrics, str | Metric | Gain) else metrics:
            chosen.update(dict.fromkeys([item] if isinstance(item, Gain) else parse_metrics([item])))
        if not chosen:
            parse_metrics([])  # says what there is
        names = [_name(metric) for metric in chosen]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"metrics must have names of their own; two are called {name!r}.")
        return RankingMetrics(tuple(chosen), replace(as_convention(convention), **options))

    def values(
        self, labels: ArrayLike, scores: ArrayLike, groups: Groups, query_weight: ArrayLike | None = None
    ) -> list[tuple[str, float]]:
        """The mean of each metric over the queries, (name, value), in their order.

        query_weight  (Q,), or (N,) with one number within a query
        """
        x = as_one_score_a_row(scores)
        y = as_labels(labels, len(x))
        weights = None if query_weight is None else as_query_weight(query_weight, groups, len(x))
        found: dict[str, float] = {}
        if plain := [metric for metric in self.metrics if isinstance(metric, Metric)]:
            found.update(evaluate(y, x, groups.codes, plain, self.convention, query_weight=weights))
        for gain in self.metrics:
            if isinstance(gain, Gain):
                per_query = gain_values(gain, y, x, groups, ties=self.convention.ties)
                shares = np.full(len(per_query), 1 / len(per_query)) if weights is None else weights
                found[gain_name(gain)] = math.fsum(shares * per_query) / math.fsum(shares)
        return [(_name(metric), found[_name(metric)]) for metric in self.metrics]

    def text(self) -> str:
        names = ",".join(_name(metric) for metric in self.metrics)
        return f"{names!r}, convention={self.convention.name!r}"


def _name(metric: Metric | Gain) -> str:
    return gain_name(metric) if isinstance(metric, Gain) else str(metric)


def gain_name(gain: Gain) -> str:
    """The name of a gain as a metric, with all that a convention could change stated; no blank, no colon.

    >>> gain_name(NDCG(10)), gain_name(Precision(5))
    ('ndcg(discount=letor,gain=exponential)@10', 'p(threshold=1)@5')
    """
    if isinstance(gain, NDCG):
        return text_form("ndcg", [f"discount={gain.discount}", f"gain={gain.gain}"], gain.k)
    if isinstance(gain, Precision):
        return text_form("p", [f"threshold={digits(gain.threshold)}"], gain.k)
    return "gain" if isinstance(gain, RankLinear) else str(gain)


def gain_values(gain: Gain, y: Floats, x: Floats, groups: Groups, *, ties: Ties = "file") -> Floats:
    """The gain of each query's documents ranked by decreasing score, (Q,): no expectation, no relaxation.

    A query whose best ranking is worth 0 has the value 0 under a gain that divides by it. Ties are taken as
    in `Convention`; "best" and "worst" go by what a label is worth, which a table of labels and ranks does
    not tell.
    """
    if not gain.separable:
        return _table_values(gain, y, x, groups, ties)
    worth, codes = np.unique(gain.gains(y), return_inverse=True)
    ranked = Ranked.of(codes.astype(np.float64), x, groups, ties)
    D = gain.discounts(groups.longest)
    (values,) = ranked.sums(ranked.by_rank(worth), D, [None])
    if gain.normalized:
        (best,) = ranked.sums(worth[ranked.ideal], D, [None])
        values = values / (best + (best == 0))
    return values


def _table_values(gain: Gain, y: Floats, x: Floats, groups: Groups, ties: Ties) -> Floats:
    if ties not in ("file", "average"):
        raise ValueError(f"ties must be 'file' or 'average' for a gain with a table; got {ties!r}.")
    classes, D = gain.class_discounts(y, groups.longest)
    ranked = Ranked.of(classes.astype(np.float64), x, groups, ties)
    if ranked.blocks is None:
        terms = D[ranked.codes, ranked.ranks - 1]
    else:
        terms = sum(
            ranked.by_rank(one) * row[ranked.ranks - 1] for one, row in zip(np.eye(len(D)), D, strict=True)
        )
    (values,) = ranked.sums(terms, None, [None])
    return values
