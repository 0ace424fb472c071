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
from sinkprop.metrics.ranking import one_score_per_row, ranks_of
from sinkprop.objective.expected_gain import ranking_gain
from sinkprop.objective.gains import NDCG, Gain, Precision, RankLinearGain, as_gain

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
    """Metrics for LightGBM, with a stated convention.

    Pass the result as `feval` to `lightgbm.train` or as `eval_metric` to `LGBMRanker.fit`.

    Parameters
    ----------
    metrics : str, Metric, Gain or sequence of these, default "ndcg@10"
        Names such as "ndcg@10" or "ndcg@1,5,map", `Metric` values, or gains. The value of a `Gain` is the
        gain of the ranking itself, not its expected value.
    convention : str or Convention, default "standard"
        Convention of the metrics, see `evaluate`.
    query_weight : "dataset", optional
        "dataset" weights the means by the Dataset's `weight`, which must be the same for all rows of a query.
        By default all queries count equally.
    **options
        Options that replace those of the convention, such as `empty`, `ties` or `threshold`; see
        `Convention`.

    Returns
    -------
    LightGBMMetric
        Function that returns a list of (name, value, True), where True says that larger is better.

    Notes
    -----
    LightGBM's `first_metric_only` uses the first of the metrics. LightGBM also computes its own metrics,
    unless you set metric="None".

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.gbdt import lightgbm_metric
    >>> feval = lightgbm_metric("ndcg@5,map", convention="letor", ties="average")
    >>> labels, scores, sizes = np.array([0.0, 1.0, 0.0]), np.zeros(3), np.array([2, 1])
    >>> feval(labels, scores, None, sizes)  # as LGBMRanker calls it
    [('ndcg@5', 0.0, True), ('map', 0.375, True)]
    """
    one_of("query_weight", query_weight or "dataset", ("dataset",))
    return LightGBMMetric(RankingMetrics.of(metrics, convention, options), query_weight=query_weight)


class LightGBMMetric:
    """Metrics of the scores of a LightGBM Dataset: see `lightgbm_metric`."""

    def __init__(self, metrics: RankingMetrics, *, query_weight: Literal["dataset"] | None = None) -> None:
        self.metrics, self.query_weight = metrics, query_weight

    # LGBMRanker counts the parameters of this function: with fewer than four, it would not pass the groups.
    def __call__(
        self, y_true: Any, y_pred: Any, weight: Any = None, group: Any = None
    ) -> list[tuple[str, float, bool]]:
        """List of (name, value, True), where True says that larger is better.

        `LGBMRanker` calls it as f(y_true, y_pred, weight, group), `lightgbm.train` as f(preds, dataset).
        """
        scores, labels, weight, group, _ = for_lightgbm.rows_of(y_true, y_pred, weight, group)
        groups = for_lightgbm.groups_of(group, len(labels))
        # `weight` is None also if all weights are 1, because LightGBM then drops them
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
    """Metrics for XGBoost, with a stated convention.

    Pass the result as `custom_metric` to `xgboost.train` or `xgboost.cv`.

    Parameters
    ----------
    metrics : str, Metric, Gain or sequence of these, default "ndcg@10"
        Names such as "ndcg@10" or "ndcg@1,5,map", `Metric` values, or gains. The value of a `Gain` is the
        gain of the ranking itself, not its expected value.
    convention : str or Convention, default "standard"
        Convention of the metrics, see `evaluate`.
    query_weight : {"dataset", None}, default "dataset"
        "dataset" weights the means by the DMatrix's `weight`, one number per query, if it has one. With None
        all queries count equally.
    **options
        Options that replace those of the convention, such as `empty`, `ties` or `threshold`; see
        `Convention`.

    Returns
    -------
    XGBoostMetric
        Function of (preds, dmatrix) that returns a list of (name, value).

    Notes
    -----
    XGBoost's early stopping uses the last metric. It decides by the metric's name whether larger is better,
    and minimizes a metric whose name does not start with "ndcg" or "map": pass maximize=True for it.
    """
    one_of("query_weight", query_weight or "dataset", ("dataset",))
    return XGBoostMetric(RankingMetrics.of(metrics, convention, options), query_weight=query_weight)


class XGBoostMetric:
    """Metrics of the scores of an XGBoost DMatrix: see `xgboost_metric`."""

    def __init__(
        self, metrics: RankingMetrics, *, query_weight: Literal["dataset"] | None = "dataset"
    ) -> None:
        self.metrics, self.query_weight = metrics, query_weight

    def __call__(self, preds: Any, dmatrix: Any) -> list[tuple[str, float]]:
        """List of (name, value); XGBoost calls it as f(preds, dmatrix)."""
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
    """Metric for CatBoost, with a stated convention: the `eval_metric` of a `catboost_objective`.

    Parameters
    ----------
    metric : str, Metric or Gain, default "ndcg@10"
        A name such as "ndcg@10", a `Metric`, or a `Gain`. The value of a `Gain` is the gain of the ranking
        itself, not its expected value.
    objective : CatBoostObjective
        Objective of the same training. It knows the queries, and the metric passes it the scores of each
        round.
    convention : str or Convention, default "standard"
        Convention of the metric, see `evaluate`.
    **options
        Options that replace those of the convention, such as `empty`, `ties` or `threshold`; see
        `Convention`.

    Returns
    -------
    CatBoostMetric
        Metric to pass as `eval_metric`.

    Notes
    -----
    CatBoost takes one metric of this kind, which early stopping and `use_best_model` use. In `evals_result_`
    it has the name of its class, "CatBoostMetric".
    """
    metrics = RankingMetrics.of(metric, convention, options)
    if len(metrics.metrics) != 1:
        raise ValueError(f"metric must be one metric, as CatBoost takes no more; got {metric!r}.")
    if not isinstance(objective, CatBoostObjective):
        raise TypeError(f"objective must be a catboost_objective; got {objective!r}.")
    return CatBoostMetric(metrics, objective)


class CatBoostMetric:
    """Metric of the data sets of a CatBoost objective: see `catboost_metric`."""

    no_jit = True

    def __init__(self, metrics: RankingMetrics, objective: CatBoostObjective) -> None:
        self.metrics, self.objective = metrics, objective

    def is_max_optimal(self) -> bool:
        """Whether a larger value of the metric is better; CatBoost calls it."""
        return True

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """Compute the mean of the metric over the queries of a data set; CatBoost calls it.

        Returns the mean, and 1 as the weight that CatBoost expects with it.
        """
        for rows in (self.objective.rows, *self.objective.eval_rows):
            order = rows.find(target)
            if order is not None:
                scores = self.objective.see(rows, order, np.asarray(approxes[0]))
                ((_, value),) = self.metrics.values(rows.labels, scores, rows.groups)
                return value, 1.0
        raise ValueError(
            "the labels of the Pools must be the objective's `label` and `eval_labels`, which identify the "
            "rows."
        )

    def get_final_error(self, error: float, weight: float) -> float:
        """Return the metric, given the value and the weight that `evaluate` returned; CatBoost calls it."""
        return error / weight

    # CatBoost copies its parameters, but the metric must keep its objective, so a copy is the same object.
    def __copy__(self) -> CatBoostMetric:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CatBoostMetric:
        return self

    def __repr__(self) -> str:
        return f"catboost_metric({self.metrics.text()}, objective={self.objective!r})"


@dataclass(frozen=True)
class RankingMetrics:
    """Metrics, and gains used as metrics, under one convention."""

    metrics: tuple[Metric | Gain, ...]
    convention: Convention

    @staticmethod
    def of(metrics: Metrics, convention: str | Convention, options: dict[str, Any]) -> RankingMetrics:
        """Make the metrics from names, metrics or gains; `options` replace those of the convention."""
        rules = replace(as_convention(convention), **options)
        chosen: dict[Metric | Gain, None] = {}
        for item in [metrics] if isinstance(metrics, str | Metric | Gain) else metrics:
            named = [as_gain(item, rules.discount)] if isinstance(item, Gain) else parse_metrics([item])
            chosen.update(dict.fromkeys(named))
        if not chosen:
            parse_metrics([])  # raises an error that lists the metrics
        names = [_name(metric) for metric in chosen]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"metrics must have different names; two are called {name!r}.")
        return RankingMetrics(tuple(chosen), rules)

    def values(
        self, labels: ArrayLike, scores: ArrayLike, groups: Groups, query_weight: ArrayLike | None = None
    ) -> list[tuple[str, float]]:
        """Name of each metric and its mean over the queries, in the order of the metrics.

        query_weight  One weight per query (Q,), or one per row (N,), equal for all rows of a query.
        """
        x = one_score_per_row(scores)
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
        """Metrics and convention as text for a repr."""
        names = ",".join(_name(metric) for metric in self.metrics)
        return f"{names!r}, convention={self.convention.name!r}"


def _name(metric: Metric | Gain) -> str:
    return gain_name(metric) if isinstance(metric, Gain) else str(metric)


def gain_name(gain: Gain) -> str:
    """Return the name under which a gain is reported as a metric.

    The name states all settings that differ between conventions. It contains neither spaces nor colons.

    >>> gain_name(NDCG(10, discount="letor")), gain_name(Precision(5))
    ('ndcg(discount=letor,gain=exponential)@10', 'p(threshold=1)@5')
    """
    if isinstance(gain, NDCG):
        return text_form("ndcg", [f"discount={gain.discount}", f"gain={gain.gain}"], gain.k)
    if isinstance(gain, Precision):
        return text_form("p", [f"threshold={digits(gain.threshold)}"], gain.k)
    return gain.text or "gain"


def gain_values(gain: Gain, y: Floats, x: Floats, groups: Groups, *, ties: Ties = "file") -> Floats:
    """Compute the gain of each query (Q,) when its documents are ranked by decreasing score.

    This is the gain itself, not its expected value. A normalized gain is 0 for a query whose best ranking has
    gain 0. Raises a ValueError for ties="best" or "worst" if the gain is a table over labels and ranks,
    because such a gain does not define which of two labels is better.

    y     Labels (N,).
    x     Scores (N,).
    ties  Rule for documents with equal scores, see `Convention`.
    """
    if not isinstance(gain, RankLinearGain):
        if ties != "file":
            raise ValueError(f"ties must be 'file' for the gain {gain}; got {ties!r}.")
        return ranking_gain(gain, y, ranks_of(x, groups), groups)
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


def _table_values(gain: RankLinearGain, y: Floats, x: Floats, groups: Groups, ties: Ties) -> Floats:
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
