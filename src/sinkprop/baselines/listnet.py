"""ListNet: a linear ranker trained on the cross entropy of Plackett-Luce models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sinkprop.baselines.base import LinearBaseline
from sinkprop.baselines.listnet_loss import check_steps, evaluate_listnet, target_scores, weighted_mean
from sinkprop.common.arguments import numbers, threads, whole
from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.problem import LinearProblem

__all__ = ["ListNetRanker"]


PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 1e-5)


class ListNetRanker(LinearBaseline):
    """A linear ranker that minimizes ListNet's loss (Cao, Qin, Liu, Tsai and Li 2007).

    The labels of a query and the scores of its documents each define a Plackett-Luce model of its rankings.
    The loss is the cross entropy of these two models over the first `top_k` ranks, plus penalty / 2 |w|^2,
    where w are the weights. The loss is convex.
    L-BFGS finds its minimum for each penalty, from the largest to the smallest; each search starts from the
    previous solution, and the first from w = 0. The paper uses validation queries to stop gradient descent
    early; here they choose the penalty.

    Parameters
    ----------
    top_k : int, default 1
        Number of first ranks in the loss. 1, as in the paper, and 2 take linear time.
    gain : {"linear", "exponential"}, default "linear"
        Score of a document in the model of the labels: its label, as in the paper, or 2^label - 1.
    penalty : float or sequence of float, default (10.0, 3.0, 1.0, ..., 1e-4, 1e-5)
        Regularization strengths to try, or a single one. They apply to the weights of normalized features.
    max_iter : int, default 200
        Maximum number of L-BFGS iterations per penalty.
    tol : float, default 1e-9
        Relative improvement below which the optimization for a penalty ends.
    selection : str or Selection, default "validation"
        How the penalty is chosen: a `Selection`, or the name of its method.
    normalization : {"standard", "query", "none"}, default "standard"
        Feature scaling; see `SinkPropRanker`.
    missing : {"indicator", "mean", "error"}, default "indicator"
        Treatment of missing values (NaN); see `SinkPropRanker`.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`. Does
        not change the model.
    random_state : int, optional, default 0
        Seed of the split, if the selection holds out queries or cross-validates.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    coef_ : array of shape (D,)
        Weights of normalized features.
    intercept_ : float
        Always 0.
    fit_result_ : TuningResult
        Record of every penalty.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    Query weights are the weights of the mean loss. Row weights that are not all equal are an error, since the
    loss concerns a distribution over all documents of a query.

    Examples
    --------
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 2]
    >>> ListNetRanker(penalty=0.1).fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 2, 1])
    """

    no_row_weights = "its loss concerns a distribution over all documents of a query"

    def __init__(
        self,
        *,
        top_k: int = 1,
        gain: str = "linear",
        penalty: float | Sequence[float] = PENALTIES,
        max_iter: int = 200,
        tol: float = 1e-9,
        selection: str | Selection = "validation",
        normalization: str = "standard",
        missing: str = "indicator",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.top_k = top_k
        self.gain = gain
        self.penalty = penalty
        self.max_iter = max_iter
        self.tol = tol
        self.selection = selection
        self.normalization = normalization
        self.missing = missing
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        whole("top_k", self.top_k, 1)
        whole("max_iter", self.max_iter, 1)
        if not isinstance(self.tol, int | float) or not 0 <= self.tol < math.inf:
            raise ValueError(f"tol must be a number, not below 0; got {self.tol!r}.")
        target_scores(np.zeros(1), self.gain)
        return len(self._penalties())

    def _penalties(self) -> tuple[float, ...]:
        """Penalties, the largest first."""
        return numbers("penalty", self.penalty)[::-1]

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data, k = problem.data, whole("top_k", self.top_k, 1)
        check_steps(k, data.groups)
        target, n_threads = target_scores(data.y, self.gain), threads(self.n_threads, len(data.y))
        weight = data.query_weight
        # in cross-validation, all training queries may have weight 0; then they count the same
        if weight is not None and weight.sum() == 0:
            weight = None

        def loss(w: Floats) -> tuple[float, Floats]:
            per_query, g = evaluate_listnet(problem.scores(w), target, data.groups, k, n_threads)
            return weighted_mean(per_query, g, data.groups, weight), problem.gradient(g)

        w = np.zeros(data.X.shape[1])
        for number, penalty in enumerate(self._penalties()):
            w = _minimum(loss, penalty, w, max_iter=self.max_iter, tol=float(self.tol))
            yield Candidate({"penalty": penalty}, w, loss(w)[0], (number, 0))


def _minimum(loss: Any, penalty: float, w: Floats, *, max_iter: int, tol: float) -> Floats:
    """Weights that minimize the loss plus penalty / 2 |w|^2, by L-BFGS starting from w."""

    def penalized(v: Floats) -> tuple[float, Floats]:
        value, gradient = loss(v)
        return value + penalty / 2 * float(v @ v), gradient + penalty * v

    return descend(penalized, w, max_iter=max_iter, tol=tol)
