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

    The labels of a query and the scores of its documents each make a Plackett-Luce model of its rankings; the
    loss is their cross entropy over the first `top_k` places (`listnet_loss`), here with
    penalty / 2 |w|^2. It is convex: L-BFGS finds its minimum for each penalty, the largest first, each from
    the one before and the first from w = 0. Where the paper stops a gradient descent early, by validation
    queries, these choose the penalty.

    top_k          places that the loss looks at; 1, as in the paper, and 2 take linear time
    gain           what of a label is the target's score: "linear", the label, as in the paper, or
                   "exponential", 2^label - 1
    penalty        the penalties tried, or one of them
    max_iter       L-BFGS iterations a penalty      tol         relative improvement below which one ends
    selection      `Selection`, or the name of its method: how the penalty is chosen
    normalization  of features, see `SinkPropRanker`; the penalty is on weights of normalized features
    metric         of `score`                       convention  of the metrics, see `evaluate`
    n_threads      see `expected_gain`              verbose     False: no progress line even on a terminal
    random_state   of the queries held out, where the selection holds out some

    A query's weight is its share of the mean loss. Row weights other than equal ones
    are an error: the loss is of a distribution
    over all documents of a query.

    After `fit`: `coef_` (D,), the weights of normalized features; `fit_result_`, the record of every
    penalty; `scaling_`.

    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 2]
    >>> ListNetRanker(penalty=0.1).fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 2, 1])
    """

    no_row_weights = "its loss is of a distribution over all documents of a query"

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
        metric: str = "ndcg@10",
        convention: str = "letor",
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
        """The penalties, the largest first."""
        return numbers("penalty", self.penalty)[::-1]

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data, k = problem.data, whole("top_k", self.top_k, 1)
        check_steps(k, data.groups)
        target, n_threads = target_scores(data.y, self.gain), threads(self.n_threads, len(data.y))
        weight = data.query_weight
        if weight is not None and weight.sum() == 0:  # a part of the queries, for cross-validation
            weight = None

        def loss(w: Floats) -> tuple[float, Floats]:
            per_query, g = evaluate_listnet(problem.scores(w), target, data.groups, k, n_threads)
            return weighted_mean(per_query, g, data.groups, weight), problem.gradient(g)

        w = np.zeros(data.X.shape[1])
        for number, penalty in enumerate(self._penalties()):
            w = _minimum(loss, penalty, w, max_iter=self.max_iter, tol=float(self.tol))
            yield Candidate({"penalty": penalty}, w, loss(w)[0], (number, 0))


def _minimum(loss: Any, penalty: float, w: Floats, *, max_iter: int, tol: float) -> Floats:
    """The weights at which the loss and penalty / 2 |w|^2 are least, by L-BFGS from w."""

    def penalized(v: Floats) -> tuple[float, Floats]:
        value, gradient = loss(v)
        return value + penalty / 2 * float(v @ v), gradient + penalty * v

    return descend(penalized, w, max_iter=max_iter, tol=tol)
