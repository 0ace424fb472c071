"""SoftRank: the expected gain when scores carry normal noise, in cubic time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import ArrayLike, NDArray

from sinkprop.baselines.base import LinearBaseline
from sinkprop.common.arguments import numbers, whole
from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.estimator.criteria import gain_under
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.annealed import PENALTIES
from sinkprop.linear.problem import LinearProblem, spread
from sinkprop.objective.gains import NDCG, Gain, as_rank_linear
from sinkprop.objective.rank_binomial import balanced_distribution, balanced_ranks, checked_sigma, soft_gain
from sinkprop.objective.rank_distribution import chosen_ranks
from sinkprop.serving.linear_scores import linear_scores

__all__ = ["SoftRankRanker"]


SIGMAS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
# Position of the least-squares weights on the grid of penalties and sigmas. A selection may average the value
# of a candidate with those of its neighbors. These weights have none: the other positions start at (0, 0).
_START = (-9, -9)


@dataclass(frozen=True, eq=False)
class Model:
    """A linear model: weights (D,) of the features, and the standard deviation `sigma` of the scores' noise.

    Weights and sigma are multiplied by the same number, so that the scores have a standard deviation of 1
    within training queries.
    """

    weights: Floats
    sigma: float


class SoftRankRanker(LinearBaseline):
    """SoftRank (Taylor, Guiver, Robertson and Minka 2008): a linear ranker trained on SoftNDCG.

    Normal noise of standard deviation sigma is added to the scores. The rank of a document is one more than
    the number of documents that beat it, and documents are assumed to beat it independently of one another.
    The soft gain is the expected gain under the resulting distribution of ranks, the rank-binomial
    distribution. For each penalty, starting from the least-squares weights w_0, L-BFGS maximizes ::

        soft gain(X w; sigma) - penalty / 2 |w - w_0|^2

    at the first sigma, then continues from the result at the next sigma, and so on. The weights at each sigma
    are a candidate, and so is w_0. A query of n documents, m of which are relevant, takes O(m n^2) time.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain to maximize, such as "ndcg", "ndcg@10", "p@5" or "rbp@0.8". If it does not
        state the discount of NDCG, the discount is that of `convention`.
    sigma : float or sequence of float, default (4.0, 2.0, 1.0, 0.5, 0.25, 0.125)
        Values of sigma to try, or a single one, in units of the least-squares scores' standard deviation
        within queries. They are used from the largest to the smallest.
    penalty : float or sequence of float, default (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
        Regularization strengths to try, or a single one. They apply to the weights of normalized features.
    balance : bool or int, default False
        Sinkhorn normalization of the rank distribution: False for none, True for its limit, or a number of
        iterations. As in the paper, it plays no role in training. `rank_distribution` returns the normalized
        matrix. `rank` computes the most likely assignment of documents to ranks under this matrix, by the
        short-cut Hungarian algorithm. The assignment is always the order of the scores, so `balance` changes
        the probabilities, but not the ranking.
    top : int, default 200
        If `balance` is not False: number of first documents that the Hungarian algorithm assigns to ranks.
        The documents after these are sorted without it.
    max_iter : int, default 20
        Maximum number of L-BFGS iterations at each sigma.
    tol : float, default 1e-9
        Relative improvement below which the optimization at a sigma ends.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method. The default takes the best one
        on the validation set.
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
        Weights of normalized features. Their scores have a standard deviation of 1 within training queries.
    intercept_ : float
        Always 0.
    sigma_ : float
        Sigma of the model, in units of its scores.
    fit_result_ : TuningResult
        Record of every candidate.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    A row's weight multiplies the gain of its document, also in the best ranking, by which NDCG divides. Query
    weights are the weights of the mean over queries.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> ranker = SoftRankRanker(sigma=0.5, penalty=1e-3).fit(X, y, qid=qid)
    >>> ranker.rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        *,
        sigma: float | Sequence[float] = SIGMAS,
        penalty: float | Sequence[float] = PENALTIES,
        balance: bool | int = False,
        top: int = 200,
        max_iter: int = 20,
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
        self.gain = gain
        self.sigma = sigma
        self.penalty = penalty
        self.balance = balance
        self.top = top
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

    def _plain_distribution(
        self, X: NDArray[Any], groups: Groups, ranks: ArrayLike | None, sigma: float | None
    ) -> Floats:
        scores = self._score_rows(X, groups)
        P = self._distribution(scores, self.sigma_ if sigma is None else checked_sigma(sigma))
        return P if ranks is None else P[:, chosen_ranks(ranks, len(P)) - 1]

    def _distribution(self, scores: Floats, sigma: float) -> Floats:
        return balanced_distribution(scores, sigma, self.balance)

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        if self.balance is False:  # then the likeliest assignment is the order of the scores
            return super()._ranks(X, groups)
        return balanced_ranks(self._score_rows(X, groups), groups, self.sigma_, self.balance, top=self.top)

    def _checked(self) -> int:
        as_rank_linear(self.gain, "SoftRankRanker")
        if not isinstance(self.balance, bool):
            whole("balance", self.balance, 1)
        whole("top", self.top, 1)
        whole("max_iter", self.max_iter, 1)
        if not isinstance(self.tol, int | float) or not 0 <= self.tol < math.inf:
            raise ValueError(f"tol must be a number, not below 0; got {self.tol!r}.")
        sigmas, penalties = self._grid()
        for sigma in sigmas:
            checked_sigma(sigma)
        n_settings = len(sigmas) * len(penalties)
        return n_settings + (n_settings > 1)

    def _grid(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Sigmas and penalties, each from the largest, which regularizes most, to the smallest."""
        return numbers("sigma", self.sigma, least=math.ulp(0.0))[::-1], numbers("penalty", self.penalty)[::-1]

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data, start = problem.data, problem.start
        gain = gain_under(self.gain, self.convention)

        def value(w: Floats, sigma: float) -> tuple[float, Floats]:
            r = soft_gain(
                problem.scores(w),
                data.y,
                data.codes,
                gain=gain,
                sigma=sigma,
                sample_weight=data.sample_weight,
                query_weight=data.query_weight,
                n_threads=self.n_threads,
            )
            return r.value, problem.gradient(r.gradient)

        def climbed(w: Floats, sigma: float, penalty: float) -> Floats:
            def loss(v: Floats) -> tuple[float, Floats]:
                soft, gradient = value(v, sigma)
                away = v - start
                return -soft + penalty / 2 * float(away @ away), penalty * away - gradient

            return descend(loss, w, max_iter=self.max_iter, tol=self.tol)

        def candidate(w: Floats, sigma: float, penalty: float, position: tuple[int, int]) -> Candidate:
            width = spread(problem.scores(w), data) or 1.0
            setting = {"sigma": sigma, "penalty": penalty}
            return Candidate(setting, Model(w / width, sigma / width), value(w, sigma)[0], position)

        sigmas, penalties = self._grid()
        if len(sigmas) * len(penalties) > 1:
            yield candidate(start, sigmas[0], math.inf, _START)
        weights = [start] * len(penalties)
        for i, sigma in enumerate(sigmas):
            for k, penalty in enumerate(penalties):
                weights[k] = climbed(weights[k], sigma, penalty)
                yield candidate(weights[k], sigma, penalty, (k, i))

    def _criterion(self) -> str:
        gain = as_rank_linear(self.gain, "SoftRankRanker")
        return super()._criterion() if isinstance(gain, NDCG) or gain.text is None else gain.text

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        return linear_scores(X, model.weights, self.scaling_)

    def _set_model(self, model: Any) -> None:
        super()._set_model(model.weights)
        self.sigma_ = float(model.sigma)

    def _model(self) -> Any:
        return Model(self.coef_, self.sigma_)

    def _model_state(self) -> Any:
        return asdict(self._model())

    def _model_from(self, state: Any) -> Any:
        return Model(super()._model_from(state["weights"]), checked_sigma(state["sigma"]))
