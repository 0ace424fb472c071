"""AdaRank: boosting of single features on a ranking measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sinkprop.baselines.base import LinearBaseline
from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.selection import Selection, as_selection
from sinkprop.estimator.tuning import Candidate
from sinkprop.linear.problem import LinearProblem
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.measures import parse_metric

__all__ = ["AdaRankRanker"]

Variant = Literal["paper", "ranklib"]

# A weak ranker that is right on every query would get an infinite weight. So 1 - (its mean performance) is
# taken to be at least this number, and no weight exceeds ln(2 / 1e-6) / 2 = 7.25.
LEAST_ERROR = 1e-6
# After the first phase of `ranklib_rounds`, a weak ranker is left out if it is best again in this many rounds
# in a row without changing the mean performance. RankLib calls this number maxSelCount.
MOST_REPEATS = 5


class AdaRankRanker(LinearBaseline):
    """AdaRank: a sum of features, chosen and weighted by boosting on a ranking measure (Xu and Li 2007).

    Every round adds one weighted feature to the sum. P(q) is the share of query q in the round, and E(q) is
    the measure of a feature's ranking of query q. The round takes the feature with the largest sum_q P E and
    gives it the weight 1/2 ln(sum_q P (1 + E) / sum_q P (1 - E)). In the next round, P(q) is proportional to
    exp(-F(q)), where F(q) is the measure of the ranking of query q by the sum so far. So queries that the sum
    ranks badly count more.

    Parameters
    ----------
    measure : str, default "map"
        Ranking measure: "map", "ndcg@5", or any metric with values in [0, 1], under `convention`. The
        convention also determines how documents with equal values of a feature rank: in file order under
        "letor".
    variant : {"paper", "ranklib"}, default "paper"
        "ranklib" follows RankLib's AdaRank, whose rules keep a strong feature from being taken repeatedly;
        `docs/baselines.md` summarizes them.
    both_directions : bool, default False
        Whether a feature may also rank its smallest value first. In the paper, the largest is always first.
    n_rounds : int, optional
        Number of rounds. The model after each round is a candidate, and `selection` chooses one of them. None
        means 100, or 500 for "ranklib", as in RankLib.
    tolerance : float, default 0.002
        For "ranklib": if a round lowers the mean measure on the training queries by at least this much, it is
        undone. The search then goes on with a feature that RankLib's rules had set aside, or ends if there
        is none.
    selection : str or Selection, default "validation"
        How the candidate is chosen: a `Selection`, or the name of its method. Unless it names a criterion,
        the criterion is `measure`.
    normalization : {"standard", "query", "none"}, default "none"
        Feature scaling; see `SinkPropRanker`. Since normalized features are summed, features on different
        scales need "query" or "standard". LETOR's features are already on one scale.
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
        Record of every round. Its values are means of the measure over the training queries.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    A query's weight multiplies its part of P in every round: a query of weight 2 counts as two. Row weights
    that are not all equal are an error, since a measure of rankings has no row weights. Features that are
    constant in every training query are not used.

    Examples
    --------
    >>> X, y, qid = [[0.1, 0.2], [0.9, 0.5], [0.5, 0.1], [0.2, 0.8]], [1, 0, 0, 2], [1, 1, 2, 2]
    >>> ranker = AdaRankRanker(n_rounds=1).fit(X, y, qid=qid)
    >>> ranker.coef_.round(4), ranker.rank(X, qid=qid)
    (array([0.   , 0.973]), array([2, 1, 2, 1]))
    """

    no_row_weights = "a measure of rankings has no row weights"

    def __init__(
        self,
        *,
        measure: str = "map",
        variant: Variant = "paper",
        both_directions: bool = False,
        n_rounds: int | None = None,
        tolerance: float = 0.002,
        selection: str | Selection = "validation",
        normalization: str = "none",
        missing: str = "indicator",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.measure = measure
        self.variant = variant
        self.both_directions = both_directions
        self.n_rounds = n_rounds
        self.tolerance = tolerance
        self.selection = selection
        self.normalization = normalization
        self.missing = missing
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _checked(self) -> int:
        parse_metric(str(self.measure))
        if self.variant not in ("paper", "ranklib"):
            raise ValueError(f"variant must be 'paper' or 'ranklib'; got {self.variant!r}.")
        if not isinstance(self.tolerance, int | float) or not 0 <= self.tolerance < math.inf:
            raise ValueError(f"tolerance must be a number, not below 0; got {self.tolerance!r}.")
        return self._rounds()

    def _rounds(self) -> int:
        if self.n_rounds is None:
            return 500 if self.variant == "ranklib" else 100
        return whole("n_rounds", self.n_rounds, 1)

    def _criterion(self) -> str:
        return str(self.measure)

    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        data, n_rounds = problem.data, self._rounds()

        def measured(scores: Floats) -> Floats:
            result = evaluate(data.y, scores, data.codes, metrics=self.measure, convention=self.convention)
            (values,) = result.per_query.values()
            return _between_0_and_1(values, self.measure)

        shares = np.ones(data.n_queries) if data.query_weight is None else data.query_weight
        shares = np.where(np.isnan(measured(np.zeros(len(data.y)))), 0.0, shares)
        if shares.sum() == 0:  # in cross-validation, all training queries may have weight 0; then all get 1
            shares = np.ones(data.n_queries)

        def performance(scores: Floats) -> Floats:
            return np.nan_to_num(measured(scores), nan=0.0)

        weak = weak_rankers(data, performance, both_directions=bool(self.both_directions))

        def combined(v: Floats) -> Floats:
            used = np.flatnonzero(v)
            # a positive multiple of one weak ranker ranks like the weak ranker, which was evaluated before
            if len(used) == 1 and v[used[0]] > 0:
                return weak.performance[:, used[0]]
            return performance(problem.scores(weak.weights(v)))

        if self.variant == "paper":
            rounds = paper_rounds(weak.performance, combined, shares, n_rounds)
        else:
            rounds = ranklib_rounds(weak.performance, combined, shares, n_rounds, float(self.tolerance))
        same_criterion = as_selection(self.selection).criterion is None
        for number, (v, value) in enumerate(rounds, 1):
            training = value if same_criterion else None
            yield Candidate({"round": number}, weak.weights(v), value, (0, number), training=training)


@dataclass(frozen=True, eq=False)
class WeakRankers:
    """H weak rankers, each of which sorts the documents of a query by the values of one feature.

    performance  (Q, H) measure of each training query's ranking by each weak ranker.
    features     (H,) column of the weak ranker's feature.
    signs        (H,) 1 if the largest value of the feature ranks first, -1 if the smallest does.
    n_features   Number of features, D.
    """

    performance: Floats
    features: Integers
    signs: Floats
    n_features: int

    def weights(self, v: Floats) -> Floats:
        """Weight (D,) of each feature in the weighted sum in which weak ranker h has the weight v[h]."""
        w = np.zeros(self.n_features)
        np.add.at(w, self.features, self.signs * v)
        return w


def weak_rankers(
    data: TrainingSet, measured: Callable[[Floats], Floats], *, both_directions: bool
) -> WeakRankers:
    """Weak rankers of the features that vary within some training query, in the order of the features.

    If no feature varies, all of them are used. Each weak ranker is evaluated here, once for all rounds.

    measured         Function from the scores (N,) of all rows to the measure (Q,) of each query's ranking.
    both_directions  Whether each feature gives two weak rankers: largest value first, and smallest first.
    """
    starts = data.groups.offsets[:-1]
    varies = np.maximum.reduceat(data.X, starts, axis=0) != np.minimum.reduceat(data.X, starts, axis=0)
    used = np.flatnonzero(varies.any(axis=0))
    if not len(used):
        used = np.arange(data.X.shape[1])
    columns, features, signs = [], [], []
    for feature in used:
        column = data.X[:, feature].astype(np.float64)
        for sign in (1.0, -1.0) if both_directions else (1.0,):
            columns.append(measured(sign * column))
            features.append(feature)
            signs.append(sign)
    return WeakRankers(np.stack(columns, axis=1), np.array(features), np.array(signs), data.X.shape[1])


Combined = Callable[[Floats], Floats]


def paper_rounds(
    E: Floats, combined: Combined, shares: Floats, n_rounds: int
) -> Iterator[tuple[Floats, float]]:
    """Run AdaRank, and yield the result of each round.

    A result is the weights (H,) of the weak rankers, and the mean performance of their weighted sum. The
    performance on a query is the measure of its ranking, between 0 and 1.

    E         (Q, H) performance of each weak ranker on each query.
    combined  Function from weights (H,) to the performance (Q,) of the weighted sum of weak rankers.
    shares    (Q,) query weights.
    """
    v, P = np.zeros(E.shape[1]), shares / shares.sum()
    for _ in range(n_rounds):
        best = int(np.argmax(P @ E))
        v[best] += _weight(P, E[:, best])
        performance = combined(v)
        yield v.copy(), _mean(performance, shares)
        P = shares * np.exp(-performance)
        P /= P.sum()


def ranklib_rounds(
    E: Floats, combined: Combined, shares: Floats, n_rounds: int, tolerance: float
) -> Iterator[tuple[Floats, float]]:
    """Run AdaRank by RankLib's rules. Arguments and results have the same form as those of `paper_rounds`.

    The results are the models among which RankLib would choose, one per round. If they are fewer than
    `n_rounds`, RankLib's last model is repeated. In each round, the distribution P over queries is multiplied
    by exp(-alpha E), where alpha is the weight of the weak ranker that the round adds, and E is the
    performance of the weighted sum.

    In the first phase, a weak ranker that is best twice in a row is set aside. Its first round is undone, and
    the models found so far are forgotten: they are results only if no model is found later. A phase ends when
    no weak ranker is left, or with a round that lowers the mean performance by at least `tolerance`. This
    round is undone, but its model is one of the results.

    After the first phase, the weak rankers that were set aside return one by one, the last one first, and
    each return starts another phase. In these phases, a weak ranker is left out after five rounds in
    a row in which it is best, as in the round before, and the mean performance does not change. It returns as
    soon as a round changes the mean performance or another weak ranker is best.
    """
    run = _RankLib(E, combined, shares, n_rounds, tolerance)
    run.phase(setting_aside=True)
    while run.aside:
        run.aside.pop()
        run.phase(setting_aside=False)
    # Setting a weak ranker aside moves the models found so far to `forgotten`. They are used only if no model
    # was found after the last time that this happened.
    found = run.found or run.forgotten
    for number in range(n_rounds):
        yield found[number] if number < len(found) else run.last or found[-1]


class _RankLib:
    """A run of AdaRank by RankLib's rules: its current model, and the models found so far.

    `ranklib_rounds` explains the rules.
    """

    def __init__(
        self, E: Floats, combined: Combined, shares: Floats, n_rounds: int, tolerance: float
    ) -> None:
        self._E, self._combined, self._shares, self._tolerance = E, combined, shares, tolerance
        self._rounds_left = n_rounds
        self._v, self._P = np.zeros(E.shape[1]), shares / shares.sum()
        self._value = -1.0
        self._before = (self._v, self._P, self._value)
        self._latest, self._repeats = -1, 0
        self._left_out: set[int] = set()
        self.aside: list[int] = []
        self.found: list[tuple[Floats, float]] = []
        self.forgotten: list[tuple[Floats, float]] = []

    @property
    def last(self) -> tuple[Floats, float] | None:
        return (self._v, self._value) if self._v.any() else None

    def phase(self, *, setting_aside: bool) -> None:
        while self._rounds_left > 0:
            best = self._best()
            if best is None:
                return
            if not setting_aside or best != self._latest:
                if self._ends_with(best, setting_aside=setting_aside):
                    return
            else:
                self.aside.append(best)
                self._v, self._P, self._value = self._before
                self.forgotten, self.found = self.found or self.forgotten, []
            self._rounds_left -= 1

    def _best(self) -> int | None:
        means = self._P @ self._E
        means[[*self.aside, *self._left_out]] = -1.0
        best = int(np.argmax(means))
        return best if means[best] >= 0 else None

    def _ends_with(self, best: int, *, setting_aside: bool) -> bool:
        """Add the weak ranker `best` to the weighted sum; return whether this ends the phase.

        It does if the mean performance drops by at least the tolerance. Then the sum stays unchanged.

        setting_aside  Whether this is the first phase, in which weak rankers are set aside.
        """
        if setting_aside:
            self._before = (self._v, self._P, self._value)
        weight = _weight(self._P, self._E[:, best])
        v = self._v.copy()
        v[best] += weight
        performance = self._combined(v)
        value = _mean(performance, self._shares)
        if not setting_aside:
            self._count_repeats(best, changed=value != self._value)
        self._latest = best
        self.found.append((v, value))
        if value + self._tolerance <= self._value:
            return True
        P = self._P * np.exp(-weight * performance)
        self._v, self._P, self._value = v, P / P.sum(), value
        return False

    def _count_repeats(self, best: int, *, changed: bool) -> None:
        if changed or best != self._latest:
            self._repeats = 0
            self._left_out.clear()
            return
        self._repeats += 1
        if self._repeats == MOST_REPEATS:
            self._repeats = 0
            self._left_out.add(best)


def _weight(P: Floats, E: Floats) -> float:
    """Weight of a weak ranker, 1/2 ln(sum P (1 + E) / sum P (1 - E)), at most 7.25.

    P  (Q,) distribution over queries.
    E  (Q,) performance of the weak ranker on each query.
    """
    mean = float(P @ E)
    return 0.5 * math.log((1 + mean) / max(1 - mean, LEAST_ERROR))


def _mean(performance: Floats, shares: Floats) -> float:
    return math.fsum(shares * performance) / math.fsum(shares)


def _between_0_and_1(values: Floats, measure: Any) -> Floats:
    """Return the values (Q,) of the measure per query. Raises a ValueError if one lies outside [0, 1].

    NaN, the value of a query that the convention leaves out of the mean, is allowed. `measure` is the name of
    the measure, for the error message.
    """
    least, most = np.nanmin(values), np.nanmax(values)
    if least < 0 or most > 1 + 1e-9:
        raise ValueError(
            f"measure must have values in [0, 1], such as 'map' or 'ndcg@10'; {measure!r} is "
            f"{most if most > 1 else least:g} for a training query."
        )
    return np.minimum(values, 1.0)
