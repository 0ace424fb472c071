"""Least squares on the labels, the simplest baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from sinkprop.baselines.base import TunedRanker
from sinkprop.common.arguments import numbers
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.least_squares import ridge_path
from sinkprop.linear.problem import LinearProblem
from sinkprop.model_files import saved_floats
from sinkprop.serving.linear_scores import linear_scores

__all__ = ["PENALTIES", "RegressionRanker"]


# For features of variance 1. The largest penalty shrinks the weights so much that only their direction
# matters; the smallest is too small to shrink any of them.
PENALTIES = tuple(10.0**k for k in range(2, -7, -1))


class RegressionRanker(TunedRanker):
    """Least squares of the labels on the features, with an intercept.

    It minimizes the mean over rows of (y - x w - c)^2, plus penalty |w|^2. With penalty 0 this is ordinary
    least squares, LETOR's Regression baseline; otherwise it is ridge regression, LETOR's L2 Regression. The
    intercept c is not penalized.

    Parameters
    ----------
    penalty : float, sequence of float or "auto", default 0.0
        Regularization strengths to try, or a single one; "auto" means 100, 10, ..., 1e-6. They apply to the
        weights of normalized features. Since the squared error is a mean over rows, the penalty does not
        depend on their number: scikit-learn's alpha is the number of rows times this penalty.
    selection : str or Selection, default "validation"
        How one of several penalties is chosen: a `Selection`, or the name of its method.
    normalization : {"standard", "query", "none"}, default "none"
        Feature scaling; see `SinkPropRanker`. Without a penalty, "none" and "standard" give the same ranking.
        With a penalty, use "standard", so that all features are on the same scale.
    missing : {"indicator", "mean", "error"}, default "indicator"
        Treatment of missing values (NaN); see `SinkPropRanker`.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    n_threads : int, optional
        Has no effect.
    random_state : int, optional, default 0
        Seed of the split, if there are several penalties and the selection holds out queries or
        cross-validates.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    coef_ : array of shape (D,)
        Weights of normalized features.
    intercept_ : float
        Intercept c.
    penalty_ : float
        Chosen penalty.
    fit_result_ : TuningResult
        Record of every penalty.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    The weight of a row is its `sample_weight` times the weight of its query. With a single penalty there is
    nothing to choose, so an eval_set is checked but not used.

    Examples
    --------
    >>> X, y = [[0.0], [1.0], [2.0]], [0, 0, 1]
    >>> RegressionRanker().fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 2, 1])
    """

    _squares_labels = True

    def __init__(
        self,
        *,
        penalty: float | Sequence[float] | str = 0.0,
        selection: str | Selection = "validation",
        normalization: str = "none",
        missing: str = "indicator",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.penalty = penalty
        self.selection = selection
        self.normalization = normalization
        self.missing = missing
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        return len(self._penalties())

    def _penalties(self) -> list[float]:
        """Penalties from the largest, which regularizes most, to the smallest."""
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
        return saved_floats("weights", state["coef"], (self._n_columns,)), float(state["intercept"])
