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

# A weak ranker that is right on every query would weigh infinitely much: 1 - (its mean performance) is taken
# as this at least, so that no weight is above ln(2 / 1e-6) / 2 = 7.25.
LEAST_ERROR = 1e-6
MOST_REPEATS = 5  # RankLib's maxSelCount


class AdaRankRanker(LinearBaseline):
    """A sum of features, chosen and weighted by boosting on a ranking measure (Xu and Li 2007).

    Every round takes the feature that ranks best by itself, E(q) being the measure of its ranking of query q
    and P the distribution over queries, and adds it with the weight 1/2 ln(sum P (1 + E) / sum P (1 - E)).
    The next P is proportional to exp(-E) of the sum so far, so that queries that it ranks badly count more.

    measure        E: "map", "ndcg@5", or any metric with values in [0, 1], under `convention`, which also
                   says how documents with the same value of a feature rank: in file order under "letor"
    variant        "paper", or "ranklib" for the rules of RankLib's AdaRank, which keep a strong feature from
                   being taken over and over; docs/baselines.md has them
    both_directions  whether a feature may also rank its smallest value first; the paper has the largest
    n_rounds       rounds, the number of candidates; None for 100, or 500 for "ranklib", as RankLib has
    tolerance      "ranklib" only: the loss of training performance at which a phase ends
    selection      `Selection`, or the name of its method: how the round is chosen, by the same measure
                   unless it names others
    normalization  of features, see `SinkPropRanker`. The sum is of normalized features, so features on
                   different scales need "query" or "standard"; LETOR's are on one scale already
    metric         of `score`                convention  of the metrics, see `evaluate`
    n_threads      see `expected_gain`       verbose     False: no progress line even on a terminal
    random_state   of the queries held out, where the selection holds out some

    A query's weight multiplies its part of P in every round: a query of weight 2 counts as two. Row weights
    other than equal ones are an error: a measure of rankings has none. Features that are constant in every
    training query take no part.

    After `fit`: `coef_` (D,), the weights of normalized features; `fit_result_`, the record of every round,
    whose values are the measure's means over the training queries; `scaling_`.

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
        metric: str = "ndcg@10",
        convention: str = "letor",
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
        if shares.sum() == 0:  # a part of the queries, for cross-validation, may have no weight at all
            shares = np.ones(data.n_queries)

        def performance(scores: Floats) -> Floats:
            return np.nan_to_num(measured(scores), nan=0.0)

        weak = weak_rankers(data, performance, both_directions=bool(self.both_directions))

        def combined(v: Floats) -> Floats:
            used = np.flatnonzero(v)
            if len(used) == 1 and v[used[0]] > 0:  # any multiple of one weak ranker ranks as it does
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
    """Single features as rankers of the training queries.

    performance  (Q, H) the measure of each query ranked by each of them
    features     (H,) which feature it is      signs  (H,) 1 for the largest value first, -1 for the smallest
    n_features   D
    """

    performance: Floats
    features: Integers
    signs: Floats
    n_features: int

    def weights(self, v: Floats) -> Floats:
        """The weights of the features, (D,), from those of the weak rankers, (H,)."""
        w = np.zeros(self.n_features)
        np.add.at(w, self.features, self.signs * v)
        return w


def weak_rankers(
    data: TrainingSet, measured: Callable[[Floats], Floats], *, both_directions: bool
) -> WeakRankers:
    """The features that vary within a training query, in order, each direction if wanted; all if none does.

    One evaluation each, whatever the number of rounds.
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
    """The weights of the weak rankers (H,) after each round, and the mean performance of their sum.

    E         (Q, H) performance of each weak ranker on each query
    combined  the performance (Q,) of the weighted sum of weak rankers
    shares    (Q,) what each query counts
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
    """As `paper_rounds`, by RankLib's rules: the models that it would choose among, then its last one.

    P is multiplied by exp(-alpha E), alpha being the last weight, rather than made anew. In the first phase a
    weak ranker that is best twice in a row is set aside, with its first round undone; what was chosen before
    that is forgotten. A phase ends with a round that costs more than `tolerance` of the training performance,
    which is undone, or when no weak ranker is left. Then those set aside come back, the last first, each with
    a phase of its own, in which one that is best five times in a row without effect is left out until
    there is an effect, or another is best.
    """
    run = _RankLib(E, combined, shares, n_rounds, tolerance)
    run.phase(setting_aside=True)
    while run.aside:
        run.aside.pop()
        run.phase(setting_aside=False)
    found = run.found or run.forgotten  # forgotten ones count only if the rounds ended with an undone one
    for number in range(n_rounds):
        yield found[number] if number < len(found) else run.last or found[-1]


class _RankLib:
    """The state of a run, which goes through its phases."""

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
        """Add a weak ranker; whether it cost too much, and was undone."""
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
    """1/2 ln(sum P (1 + E) / sum P (1 - E)) for a distribution P, at most 7.25."""
    mean = float(P @ E)
    return 0.5 * math.log((1 + mean) / max(1 - mean, LEAST_ERROR))


def _mean(performance: Floats, shares: Floats) -> float:
    return math.fsum(shares * performance) / math.fsum(shares)


def _between_0_and_1(values: Floats, measure: Any) -> Floats:
    """The measure of each query; NaN where it is left out, as `Convention.empty` may say."""
    least, most = np.nanmin(values), np.nanmax(values)
    if least < 0 or most > 1 + 1e-9:
        raise ValueError(
            f"measure must have values in [0, 1], such as 'map' or 'ndcg@10'; {measure!r} is "
            f"{most if most > 1 else least:g} for a training query."
        )
    return np.minimum(values, 1.0)
