"""SinkPropRanker: the paper's method as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sinkprop.common.types import Floats
from sinkprop.estimator.cluster_parameter import cloned, portable
from sinkprop.estimator.inputs import Ids
from sinkprop.estimator.selection import Selection
from sinkprop.linear.annealed import PENALTIES, AnnealedRanker
from sinkprop.linear.records import Annealing, Stage
from sinkprop.objective.gains import Gain
from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator

__all__ = ["SinkPropRanker"]


class SinkPropRanker(AnnealedRanker):
    """A linear ranker trained on the expected value of its metric, by Sinkhorn propagation.

    Starts at the least-squares weights on the labels, maximizes the expected gain less a penalty on the
    squared distance to them by L-BFGS, at ever less smoothing, and lets queries that took no part judge where
    to stop (Adams and Zemel 2011; the choice is `Selection`'s).

    gain           what is maximized: "ndcg", "ndcg@10", "p@5", "rbp@0.8", or a `Gain`
    relaxation     "gaussian" (the paper's smoothed indicator) or "laplace"; or a partitioned measure
                   "logit-logistic", "probit" or "beta", with two outputs a document; or a `Relaxation`, whose
                   sigma the annealing sets
    penalty        the penalties tried, or one of them
    annealing      `Annealing`: the sigmas, from smooth to sharp. A partitioned measure has as many stages
                   without a sigma
    selection      `Selection`, or the name of its method
    normalization  of features: "standard", "query" (LETOR's QueryLevelNorm; then `predict` needs qid) or
                   "none". It is part of the model. The penalty is on weights of normalized features
    resample       copies of each training query with its documents drawn anew, 20 in the paper; 0 for none
    n_iter         Sinkhorn iterations        epsilon     what is added to every entry of A
    max_iter       L-BFGS iterations a stage  tol         relative improvement below which a stage ends
    top            documents to which the Hungarian algorithm is applied when a partitioned measure ranks
    metric         of `score`                 convention  of the metrics, see `evaluate`
    checkpoint     a file to which the fit writes as it goes, and from which it resumes; removed when done
    on_stage       a function called with the `Stage` that was finished, while the fit goes on
    n_threads      see `expected_gain`        verbose     False: no progress line even on a terminal
    cluster        where the fit runs: None for this process; a Dask `Client` or cluster, the address of a
                   scheduler, or a number of worker processes on this machine. The model is the same
    random_state   of splits and resampling. The same gives the same model, whatever the number of threads

    A row's weight multiplies the gain of its document, in the best ranking too.

    After `fit`: `coef_` (D,), the weights of normalized features; `intercept_`; `sigma_` and `relaxation_` of
    the model's scores; `fit_result_`, the record of every stage; `scaling_`. An interrupt from the keyboard
    ends the fit with the best model so far.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> ranker = SinkPropRanker().fit(X, y, qid=qid)
    >>> ranker.rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        *,
        penalty: float | Sequence[float] = PENALTIES,
        annealing: Annealing | None = None,
        selection: str | Selection = "auto",
        normalization: str = "standard",
        resample: int = 0,
        n_iter: float = 5,
        epsilon: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-9,
        top: int = 200,
        metric: str = "ndcg@10",
        convention: str = "letor",
        checkpoint: str | os.PathLike[str] | None = None,
        on_stage: Callable[[Stage], None] | None = None,
        n_threads: int | None = None,
        cluster: Any = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.gain = gain
        self.relaxation = relaxation
        self.penalty = penalty
        self.annealing = annealing
        self.selection = selection
        self.normalization = normalization
        self.resample = resample
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.tol = tol
        self.top = top
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.on_stage = on_stage
        self.n_threads = n_threads
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> Any:
        return cloned(self, super().__sklearn_clone__.__func__)

    def __getstate__(self) -> dict[str, Any]:
        return portable(super().__getstate__())

    def rank_distribution(
        self,
        X: ArrayLike,
        *,
        ranks: ArrayLike | None = None,
        sigma: float | None = None,
        qid: Ids | None = None,
    ) -> Floats:
        """Pi of one query, the rows of X: Pi[j, k - 1] is the probability that row j is at rank k.

        `ranks` asks for some columns only. `sigma` is in units of the model's scores, whose spread within
        training queries is 1; the default is that of the fit. `qid` need not be given; rows of several
        queries are then an error.
        """
        rows, _ = self._rows_of_one_query(X, qid, "rank_distribution")
        return doubly_stochastic(
            self._theta(rows),
            ranks=ranks,
            relaxation=self._relaxation_at(sigma),
            n_iter=self.n_iter,
            epsilon=self.epsilon,
        )

    def expected_rank(
        self,
        X: ArrayLike,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        sigma: float | None = None,
    ) -> Floats:
        """Expected rank of each row in its query, (N,): sum_k k Pi[j, k]."""
        X, groups = self._rows_in_queries(X, qid, group, "expected_rank")
        return expected_ranks(
            self._theta(self._by_query(X, groups)),
            groups.codes,
            relaxation=self._relaxation_at(sigma),
            n_iter=self.n_iter,
            epsilon=self.epsilon,
            n_threads=self.n_threads,
        )

    def _relaxation_at(self, sigma: float | None) -> Relaxation:
        check_is_fitted(self)
        if sigma is None:
            return self.relaxation_
        if not isinstance(self.relaxation_, SmoothedIndicator):
            raise ValueError("sigma is a setting of the smoothed indicator; a partitioned measure has none.")
        return dataclasses.replace(self.relaxation_, sigma=sigma)
