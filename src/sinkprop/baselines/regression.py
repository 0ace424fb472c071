"""Least squares on the labels, the simplest rival."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.data import Groups
from sinkprop.estimator import BaseRanker
from sinkprop.linear import TrainingSet, linear_scores
from sinkprop.regression import least_squares
from sinkprop.scaling import fit_scaling

__all__ = ["RegressionRanker"]

Floats = NDArray[np.float64]


class RegressionRanker(BaseRanker):
    """Ordinary least squares of the labels on the features, with an intercept: LETOR's Regression baseline.

    normalization  of features, see `SinkPropRanker`; "none" and "standard" give the same ranking
    metric         of `score`, under `convention`

    A row's weight is its own times its query's; an eval_set is checked and not used.

    After `fit`: `coef_` (D,), the weights of normalized features, and `intercept_`.

    >>> X, y = [[0.0], [1.0], [2.0]], [0, 0, 1]
    >>> RegressionRanker().fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 2, 1])
    """

    def __init__(
        self, *, normalization: str = "none", metric: str = "ndcg@10", convention: str = "letor"
    ) -> None:
        self.normalization = normalization
        self.metric = metric
        self.convention = convention

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        self.scaling_ = fit_scaling(self.normalization, data.X)
        w, c = least_squares(data.X, data.y, sample_weight=data.row_weight)
        used = self.scaling_.factor > 0
        self.coef_ = np.where(used, w / np.where(used, self.scaling_.factor, 1.0), 0.0)
        self.intercept_ = float(c + w @ self.scaling_.shift)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return linear_scores(X, self.coef_, self.scaling_) + self.intercept_

    def _parameters_to_save(self) -> dict[str, Any]:
        return {**self.get_params(deep=False), "metric": str(self.metric), "convention": str(self.convention)}

    def _fitted_state(self) -> dict[str, Any]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.coef_, self.intercept_ = state["coef"], float(state["intercept"])
