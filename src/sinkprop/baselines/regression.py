"""Least squares on the labels, the simplest rival."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.estimator import BaseRanker, Ids
from sinkprop.linear import linear_scores
from sinkprop.regression import least_squares
from sinkprop.scaling import fit_scaling

__all__ = ["RegressionRanker"]

Floats = NDArray[np.float64]


class RegressionRanker(BaseRanker):
    """Ordinary least squares of the labels on the features, with an intercept: LETOR's Regression baseline.

    normalization  of features, see `SinkPropRanker`; "none" and "standard" give the same ranking
    metric         of `score`, under `convention`

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

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        eval_set: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
        eval_qid: Sequence[Ids] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    ) -> RegressionRanker:
        """Fit to X (N, D) and y (N,). A row's weight is its own times its query's; eval_set is not used."""
        data = self._training_set(X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight)
        self._evaluation_sets(eval_set, eval_qid, eval_group)  # checked all the same
        self.scaling_ = fit_scaling(self.normalization, data.X)
        w, c = least_squares(data.X, data.y, sample_weight=data.row_weight)
        used = self.scaling_.factor > 0
        self.coef_ = np.where(used, w / np.where(used, self.scaling_.factor, 1.0), 0.0)
        self.intercept_ = float(c + w @ self.scaling_.shift)
        self.n_rows_, self.n_queries_ = len(data.y), data.n_queries
        return self

    def _score_rows(self, X: NDArray[Any]) -> Floats:
        return linear_scores(X, self.coef_, self.scaling_) + self.intercept_

    def _parameters_to_save(self) -> dict[str, Any]:
        return {**self.get_params(deep=False), "metric": str(self.metric), "convention": str(self.convention)}

    def _fitted_state(self) -> dict[str, Any]:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.coef_, self.intercept_ = state["coef"], float(state["intercept"])
