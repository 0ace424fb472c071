"""Least squares on the labels, the simplest rival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.baselines.base import TunedRanker
from sinkprop.common.arguments import numbers
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.least_squares import ridge_path
from sinkprop.linear.problem import LinearProblem, linear_scores

__all__ = ["PENALTIES", "RegressionRanker"]


# For features of variance 1: from where only the direction of the weights is left to where none is held
PENALTIES = tuple(10.0**k for k in range(2, -7, -1))


class RegressionRanker(TunedRanker):
    """Least squares of the labels on the features, with an intercept.

    Minimizes the mean over rows of (y - x w - c)^2, plus penalty |w|^2: ordinary least squares, LETOR's
    Regression baseline, where the penalty is 0, and ridge, its L2 Regression, where it is not. The intercept
    c is not penalized.

    penalty        a number; several, of which one is chosen; or "auto", for 100, 10, ... 1e-6. It is on the
                   weights of normalized features and stands beside a mean over rows, so it does not depend
                   on their number: scikit-learn's alpha is the number of rows times it
    selection      how one of several penalties is chosen: a `Selection`, or the name of its method
    normalization  of features, see `SinkPropRanker`. Without a penalty "none" and "standard" give the same
                   ranking; a penalty treats features alike only where they are of one scale: "standard"
    metric         of `score`, under `convention`
    random_state   of splits, where there are several penalties and no eval_set
    n_threads      has no effect; the model is the same whatever it is
    verbose        False: no progress line even on a terminal

    A row's weight is its own times its query's. A single penalty uses no eval_set, which is checked only.

    After `fit`: `coef_` (D,), the weights of normalized features, `intercept_`, `penalty_`, and
    `fit_result_`, the record of the choice.

    >>> X, y = [[0.0], [1.0], [2.0]], [0, 0, 1]
    >>> RegressionRanker().fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 2, 1])
    """

    def __init__(
        self,
        *,
        penalty: float | Sequence[float] | str = 0.0,
        selection: str | Selection = "validation",
        normalization: str = "none",
        metric: str = "ndcg@10",
        convention: str = "letor",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.penalty = penalty
        self.selection = selection
        self.normalization = normalization
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        return len(self._penalties())

    def _penalties(self) -> list[float]:
        """From the largest, which is the most regular, to the least."""
        if isinstance(self.penalty, str) and self.penalty != "auto":
            raise ValueError(f"penalty must be a number, several of them, or 'auto'; got {self.penalty!r}.")
        given: Any = PENALTIES if isinstance(self.penalty, str) else self.penalty
        return list(numbers("penalty", given)[::-1])

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data, penalties = problem.data, self._penalties()
        path = ridge_path(data.X, data.y, penalties, scaling=problem.scaling, sample_weight=data.row_weight)
        for i, penalty in enumerate(penalties):
            model = path.weights[i], float(path.intercepts[i])
            yield Candidate({"penalty": penalty}, model, float(path.values[i]), (i, 0))

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        weights, intercept = model
        return linear_scores(X, weights, self.scaling_) + float(intercept)

    def _set_model(self, model: Any) -> None:
        self.coef_, self.intercept_ = model
        self.penalty_ = float(self.fit_result_.chosen.setting["penalty"])

    def _model(self) -> Any:
        return self.coef_, self.intercept_

    def _model_state(self) -> Any:
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _model_from(self, state: Any) -> Any:
        if np.shape(state["coef"]) != (self.n_features_in_,):
            raise ValueError(f"weights of shape {np.shape(state['coef'])} for {self.n_features_in_} features")
        return state["coef"], float(state["intercept"])
