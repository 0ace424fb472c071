"""BoltzRank (Volkovs and Zemel 2009): the expected gain under a Boltzmann distribution over rankings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sinkprop.baselines.base import TunedRanker
from sinkprop.baselines.boltzmann import BoltzmannObjective, draw_rankings
from sinkprop.common.arguments import numbers, whole
from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import gain_under
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.problem import LinearProblem, spread
from sinkprop.model_files import saved_floats
from sinkprop.objective.gains import Gain, as_rank_linear
from sinkprop.serving.linear_scores import linear_scores
from sinkprop.serving.soft_ranks import SoftRanks, pair_scores

__all__ = ["BoltzRankRanker"]

Potential = Literal["single", "pair"]

PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03)


@dataclass(frozen=True, eq=False)
class Model:
    """Model with the scores s_j = w x_j + sum_h v_h mean_(k != j) phi(u_h (x_j - x_k)).

    x_j are the normalized features of document j, and k runs over the other documents of the query. Each of
    the H hidden units compares j with k along its direction u_h by the sigmoid
    phi(t) = sign(t) (1 - exp(-|t|)).

    weights     (D,) weights w of the features.
    directions  (D, H) matrix U with the directions u_h as columns; H = 0 without pair potentials.
    strengths   (H,) weights v_h of the hidden units.
    """

    weights: Floats
    directions: Floats
    strengths: Floats


class BoltzRankRanker(TunedRanker):
    """BoltzRank: a ranker trained on the expected gain under a Boltzmann distribution over rankings.

    For each training query, a fixed set of rankings is drawn (Volkovs and Zemel 2009). Scores give each
    ranking the probability exp(-energy) / Z; rankings that agree with the scores have a low energy. For each
    of several penalties and mixing weights, L-BFGS maximizes ::

        mixing * expected gain - (1 - mixing) * KL divergence - penalty / 2 |weights|^2

    The divergence is KL(T || P), where P is the model's distribution and T the one that has the labels as
    scores. Each result is a candidate, and validation queries select one. Documents are ranked by their
    scores, which is the most probable ranking.

    Parameters
    ----------
    potential : {"single", "pair"}, default "single"
        "single" scores are linear. "pair" adds, for each of `n_hidden` sigmoid units, the mean of the unit's
        comparisons of the document with the others of its query; `predict` then needs qid.
    gain : str or Gain, default "ndcg"
        Gain whose expectation is maximized, such as "ndcg", "ndcg@10" or "p@5". If it does not
        state the discount of NDCG, the discount is that of `convention`.
    mixing : float or sequence of float, default 0.5
        Weights of the expected gain to try, or a single one, from 0 to 1.
    penalty : float or sequence of float, default (3.0, 1.0, 0.3, 0.1, 0.03)
        Regularization strengths to try, or a single one. They apply to the weights of normalized features;
        for the directions of hidden units, to the distance from their starting point.
    n_rankings : int, default 300
        Number of rankings per query: an ideal one, and the others drawn uniformly. A query with no more than
        that many rankings uses all of them.
    sharpness : float, default 0.4
        Standard deviation, over all rankings, of the energies that define T.
    n_hidden : int, default 10
        Number of hidden units of the pair potential.
    max_iter : int, default 50
        Maximum number of L-BFGS iterations per candidate.
    tol : float, default 1e-7
        Relative improvement below which the optimization of a candidate ends.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method.
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
        Seed of splits, rankings and hidden units.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    coef_ : array of shape (D,)
        Weights of normalized features.
    intercept_ : float
        Always 0.
    directions_ : array of shape (D, H)
        Directions of the hidden units; H = 0 with "single".
    strengths_ : array of shape (H,)
        Strengths of the hidden units.
    fit_result_ : TuningResult
        Record of every candidate.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    Query weights are the weights of the means over queries. Row weights that are not all equal are an error,
    since the model gives probabilities to whole rankings, not to documents. A query whose labels are all
    equal pulls its scores towards each other; if none of its documents is relevant, its gain is also 0.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> BoltzRankRanker().fit(X, y, qid=qid).rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    no_row_weights = "rankings have probabilities, not documents"

    def __init__(
        self,
        potential: Potential = "single",
        *,
        gain: str | Gain = "ndcg",
        mixing: float | Sequence[float] = 0.5,
        penalty: float | Sequence[float] = PENALTIES,
        n_rankings: int = 300,
        sharpness: float = 0.4,
        n_hidden: int = 10,
        max_iter: int = 50,
        tol: float = 1e-7,
        selection: str | Selection = "validation",
        normalization: str = "standard",
        missing: str = "indicator",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.potential = potential
        self.gain = gain
        self.mixing = mixing
        self.penalty = penalty
        self.n_rankings = n_rankings
        self.sharpness = sharpness
        self.n_hidden = n_hidden
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
        if self.potential not in get_args(Potential):
            raise ValueError(f"potential must be 'single' or 'pair'; got {self.potential!r}.")
        as_rank_linear(self.gain, "BoltzRankRanker")
        whole("n_rankings", self.n_rankings, 1)
        whole("n_hidden", self.n_hidden, 1)
        whole("max_iter", self.max_iter, 1)
        for name in ("sharpness", "tol"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
                raise ValueError(f"{name} must be a finite number, not below 0; got {value!r}.")
        return len(numbers("mixing", self.mixing, most=1.0)) * len(numbers("penalty", self.penalty))

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data = problem.data
        objective = BoltzmannObjective(
            data.y,
            data.groups.offsets,
            _rankings(data, int(self.n_rankings), seed),
            gain=as_rank_linear(gain_under(self.gain, self.convention), "BoltzRankRanker"),
            sharpness=float(self.sharpness),
            query_weight=data.query_weight,
        )
        n_hidden = int(self.n_hidden) if self.potential == "pair" else 0
        training = _Training(problem, objective, _start(problem, n_hidden, np.random.default_rng([seed, 2])))
        for i, mixing in enumerate(numbers("mixing", self.mixing, most=1.0)):
            at = training.start
            for j, penalty in enumerate(reversed(numbers("penalty", self.penalty))):
                loss = partial(training.loss, mixing=mixing, penalty=penalty)
                at = descend(loss, at, max_iter=int(self.max_iter), tol=float(self.tol))
                value = objective(training.scores(at), mixing).value
                yield Candidate({"mixing": mixing, "penalty": penalty}, training.model(at), value, (j, i))

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        scores = linear_scores(X, model.weights, self.scaling_)
        if not len(model.strengths):
            return scores
        if groups is None:
            raise ValueError(
                "predict needs qid= with potential='pair': a document's score depends on the others of its "
                "query."
            )
        a = linear_scores(X, _with_intercepts(model.directions), self.scaling_)
        return pair_scores(scores, a, model.strengths, groups)

    def _linear_model(self) -> tuple[Floats, float] | None:
        # with pair potentials, a score is not a sum of contributions of the document's own features
        return None if len(self.strengths_) else super()._linear_model()

    def _set_model(self, model: Any) -> None:
        self.coef_, self.intercept_ = model.weights, 0.0
        self.directions_, self.strengths_ = model.directions, model.strengths

    def _model(self) -> Model:
        return Model(self.coef_, self.directions_, self.strengths_)

    def _model_state(self) -> Any:
        return asdict(self._model())

    def _model_from(self, state: Any) -> Model:
        n, n_hidden = self._n_columns, len(state["strengths"])
        shapes = {"weights": (n,), "directions": (n, n_hidden), "strengths": (n_hidden,)}
        return Model(**{name: saved_floats(name, state[name], shape) for name, shape in shapes.items()})


class _Training:
    """Training loss as a function of one flat array of all parameters of a `Model`.

    The array holds the weights, then the rows of the matrix of directions, then the strengths.
    """

    def __init__(self, problem: LinearProblem, objective: BoltzmannObjective, start: Model) -> None:
        self._problem, self._objective = problem, objective
        self._shape = start.directions.shape
        self._soft_ranks = SoftRanks(problem.data.groups.offsets) if self._shape[1] else None
        self.start = np.concatenate([start.weights, start.directions.ravel(), start.strengths])

    def model(self, at: Floats) -> Model:
        n_features, n_hidden = self._shape
        w, U, v = np.split(at, [n_features, n_features * (1 + n_hidden)])
        return Model(w, U.reshape(self._shape), v)

    def scores(self, at: Floats) -> Floats:
        return self._forward(self.model(at))[0]

    def loss(self, at: Floats, *, mixing: float, penalty: float) -> tuple[float, Floats]:
        """Return the loss and its gradient at the parameters `at`.

        The loss is penalty / 2 (|w|^2 + |U - U_0|^2 + |v|^2) minus the value of the `BoltzmannObjective`.
        w, U and v are the weights, directions and strengths of the `Model`, and U_0 is the initial U.

        mixing  Weight of the expected gain in the objective, from 0 to 1.
        """
        model = self.model(at)
        scores, F, state = self._forward(model)
        r = self._objective(scores, mixing)
        g = -r.gradient
        parts = [self._problem.gradient(g)]
        if self._soft_ranks is not None:
            a_bar = self._soft_ranks.reverse(state, np.outer(g, model.strengths))
            parts += [self._problem.gradient(a_bar)[:-1].ravel(), g @ F]
        # difference from the start, where w = 0, U = U_0 and v = 0: it consists of w, U - U_0 and v
        away = at - self.start
        return -r.value + penalty / 2 * float(away @ away), np.concatenate(parts) + penalty * away

    def _forward(self, model: Model) -> tuple[Floats, Floats, Any]:
        scores = self._problem.scores(model.weights)
        if self._soft_ranks is None:
            return scores, model.directions, None
        F, state = self._soft_ranks.forward(self._problem.scores(_with_intercepts(model.directions)))
        return scores + F @ model.strengths, F, state


def _start(problem: LinearProblem, n_hidden: int, rng: np.random.Generator) -> Model:
    """Starting point: zero weights, and hidden units of random directions and zero strengths.

    Directions are scaled so that the projections of documents on each have a standard deviation of 1 within
    queries.
    """
    n_features = problem.data.X.shape[1]
    U = rng.normal(size=(n_features, n_hidden))
    a = problem.scores(_with_intercepts(U)) if n_hidden else np.empty((0, 0))
    widths = np.array([spread(column, problem.data) for column in a.T])
    U = U / np.where(widths > 0, widths, 1.0)
    return Model(np.zeros(n_features), U, np.zeros(n_hidden))


def _rankings(data: TrainingSet, n_rankings: int, seed: int) -> Callable[[int], Integers]:
    """Function that draws the rankings of a query, given the query's index.

    The draws depend only on the seed and on the labels and features of the query. So neither the order of the
    rows nor the other queries change the model.
    """
    keys = _keys(data.X, data.y)

    def of_query(q: int) -> Integers:
        rows = slice(*data.groups.offsets[q : q + 2])
        order = np.argsort(keys[rows])
        rng = np.random.default_rng([seed, 1, int(keys[rows].sum(dtype=np.uint64))])
        drawn = draw_rankings(data.y[rows][order], n_rankings, rng)
        ranks = np.empty_like(drawn)
        ranks[:, order] = drawn
        return ranks

    return of_query


def _keys(X: NDArray[Any], y: Floats) -> NDArray[np.uint64]:
    """Hash (N,) of the features and the label of each row.

    The bits of each value, as a 64-bit integer, are multiplied by an odd number that depends on the column.
    The hash is the sum of these products modulo 2^64. Equal rows have equal hashes, whether X is in single or
    double precision; the hashes of different rows practically always differ.
    """
    odd = np.random.default_rng(0).integers(2**63, size=X.shape[1] + 1, dtype=np.uint64) * 2 + 1
    # + 0.0 turns -0.0 into 0.0, so that the two, which are equal numbers, have the same bits
    keys: NDArray[np.uint64] = (y + 0.0).view(np.uint64) * odd[-1]
    for column, number in zip(X.T, odd[:-1], strict=True):
        keys += (column.astype(np.float64) + 0.0).view(np.uint64) * number
    return keys


def _with_intercepts(U: Floats) -> Floats:
    """Append a row of zeros to the directions U (D, H); return the result, (D + 1, H).

    `linear_scores` takes the weights of H linear functions in this form, with their intercepts in the last
    row. So it can compute the products u x of all directions u with the features x.
    """
    return np.concatenate([U, np.zeros((1, U.shape[1]))])
