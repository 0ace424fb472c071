"""Statements about rankings that hold with a given probability, by conformal prediction over queries.

If p_j is the model's probability that document j of a ranking is wanted, S(m) = p_m prod_(j < m) (1 - p_j)
is the probability that the first wanted document is at rank m. If it is at rank r in a held-out query, the
query's score is 1 - S(r). At a threshold t, the prefix of all ranks m with 1 - S(m) <= t holds a wanted
document if and only if 1 - S(r) <= t. If t is the ceil((Q + 1) c)-th smallest of the scores of Q held-out
queries, this has at least the probability c for a new query that comes from the same source, however wrong
the model is (split conformal prediction). The scores of held-out queries come from models that were fitted to
other queries. Of all prefixes with this coverage, those that stop where S becomes too small are the shortest
on average, if the model is right: a further document of a hopeless query helps less than one of another.

Rank intervals use conformal risk control: the loss of a query is the share of its documents whose ideal rank
is outside of its interval. The precision of answers uses exact binomial tests of several thresholds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sinkprop.calibration.binomial import binomial_tail
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.widths import RankMixture, query_means
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import sorted_order
from sinkprop.model_files import saved_floats

__all__ = [
    "AnswerScores",
    "IntervalRisk",
    "PrefixScores",
    "answer_scores",
    "interval_risk",
    "least_queries",
    "prefix_scores",
    "rank_bounds",
    "saved_count",
]

_KEPT = 2001  # largest number of held-out scores that a model keeps
_TAILS = np.concatenate([[0.0], np.geomspace(0.001, 0.5, 30)])  # probabilities cut off at each end
_INTERVAL_ROWS, _INTERVAL_QUERIES = 20_000, 100  # of held-out queries, at most, but not fewer queries
_CELLS = 1 << 25  # probabilities in memory at a time
_ROUNDING = 1e-9
_FRACTIONS = np.arange(1, 11) / 10  # of queries that are answered, whose precision is tested


def least_queries(coverage: float) -> int:
    """Number of held-out queries with which a coverage can be guaranteed with less than all documents."""
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


@dataclass(frozen=True, eq=False)
class PrefixScores:
    """Scores 1 - S(r) of held-out queries with a wanted document, sorted.

    scores     At most 2,001 of them. If there were more queries, evenly spaced ones; the largest is kept.
    n_queries  Number of held-out queries with a wanted document.
    """

    scores: Floats
    n_queries: int

    def threshold(self, coverage: float) -> float:
        """The threshold t for a coverage; infinite if all documents are needed."""
        place = math.ceil((self.n_queries + 1) * coverage - _ROUNDING)
        if place > self.n_queries:
            return math.inf
        if len(self.scores) == self.n_queries:
            return float(self.scores[place - 1])
        # the next larger of the scores that were kept
        return float(self.scores[math.ceil((place - 1) / (self.n_queries - 1) * (len(self.scores) - 1))])

    def chosen(self, p: Floats, scores: Floats, groups: Groups, coverage: float) -> Mask:
        """Documents (N,) of the prefixes; p are their probabilities of being wanted.

        A prefix has at least one document.
        """
        order = sorted_order(scores, groups)
        inside = _depths(p[order], groups) <= self.threshold(coverage)
        inside[groups.offsets[:-1]] = True
        taken = np.empty(len(p), dtype=bool)
        taken[order] = inside
        return taken


def prefix_scores(p: Floats, wanted: Mask, scores: Floats, groups: Groups) -> PrefixScores:
    """Scores of held-out queries. NaN in p leaves a query out."""
    order = sorted_order(scores, groups)
    depths = _depths(p[order], groups)
    firsts = np.flatnonzero(wanted[order] & ~np.isnan(depths))
    queries, index = np.unique(groups.sorted.codes[firsts], return_index=True)
    found = np.sort(depths[firsts[index]])
    if len(found) > _KEPT:
        found = found[np.round(np.linspace(0, len(found) - 1, _KEPT)).astype(np.int64)]
    return PrefixScores(found, len(queries))


def _depths(p: Floats, groups: Groups) -> Floats:
    """1 - S(m) of each document, which grows down each ranking. Documents are in rank order."""
    with np.errstate(divide="ignore"):
        # -745 is the logarithm of the smallest number
        wanted, others = np.maximum(np.log(p), -745.0), np.maximum(np.log1p(-p), -745.0)
    depths = np.empty(len(p))
    for a, b in pairwise(groups.offsets.tolist()):  # each query alone, so that its sums depend on no other
        logs = wanted[a:b]
        logs[1:] += np.cumsum(others[a : b - 1])
        np.maximum.accumulate(-np.expm1(logs), out=depths[a:b])  # it may only fall by rounding
    depths[np.repeat(np.isnan(np.add.reduceat(p, groups.offsets[:-1])), groups.sizes)] = np.nan
    return depths


@dataclass(frozen=True, eq=False)
class IntervalRisk:
    """Risk of rank intervals on held-out queries.

    risk       (31,) for each tail probability, the mean over queries of the share of documents outside.
    n_queries  Number of held-out queries.
    """

    risk: Floats
    n_queries: int

    def tail(self, coverage: float) -> float:
        """Largest tail probability whose intervals have the coverage; 0 if there is none."""
        bound = (self.n_queries * self.risk + 1) / (self.n_queries + 1)
        allowed = np.flatnonzero(bound <= 1 - coverage + _ROUNDING)
        return float(_TAILS[allowed[-1]]) if len(allowed) else 0.0


def interval_risk(mixture: RankMixture, scores: Floats, labels: Floats, groups: Groups) -> IntervalRisk:
    """Risk of intervals on held-out queries, some of them if there are many documents."""
    n_queries = len(groups.queries)
    step = min(math.ceil(len(scores) / _INTERVAL_ROWS), max(1, n_queries // _INTERVAL_QUERIES))
    chosen = np.arange(0, n_queries, step)
    taken = np.isin(groups.codes, chosen)
    some, y, g = scores[taken], labels[taken], Groups.of_sizes(groups.sizes[chosen])
    ideal = ideal_ranks(y, g)
    outside = [
        1 - ideal.within(low, high) for low, high in zip(*_bounds(mixture, some, g, _TAILS), strict=True)
    ]
    return IntervalRisk(np.array([query_means(share, g).mean() for share in outside]), len(chosen))


def rank_bounds(mixture: RankMixture, scores: Floats, groups: Groups, tail: float) -> Integers:
    """First and last rank (N, 2) of each document's interval, which cuts off `tail` at each end."""
    low, high = _bounds(mixture, scores, groups, np.array([tail]))
    return np.stack([low[0], high[0]], axis=1)


def _bounds(mixture: RankMixture, scores: Floats, groups: Groups, tails: Floats) -> tuple[Integers, Integers]:
    """First and last ranks, both (T, N), of intervals that cut off each tail at each end."""
    grid, sizes = _grid(groups.longest), groups.sizes[groups.codes]
    below, short = np.zeros((2, len(tails), len(scores)), dtype=np.int64)
    before: Floats = np.zeros(len(scores))
    for ranks in np.array_split(grid, math.ceil(len(grid) * len(scores) / _CELLS)):
        columns = (np.arange(1, groups.longest + 1) <= ranks[:, None]).astype(np.float64)
        cdf = mixture.project(scores, groups, columns)
        cdf[ranks >= sizes[:, None]] = 1.0
        np.maximum(cdf[:, 0], before, out=cdf[:, 0])
        np.maximum.accumulate(cdf, axis=1, out=cdf)
        before = cdf[:, -1].copy()
        for i, tail in enumerate(tails.tolist()):
            below[i] += np.count_nonzero(cdf <= tail, axis=1)
            short[i] += np.count_nonzero(cdf < 1 - tail, axis=1)
    low = np.minimum(np.append(0, grid)[below] + 1, sizes)
    high = np.minimum(grid[short], sizes)
    return np.minimum(low, high), high


def _grid(n: int) -> Integers:
    """Ranks of which intervals are made: all up to 64, and then each a tenth larger, up to n or above."""
    ranks = list(range(1, min(n, 64) + 1))
    while ranks[-1] < n:
        ranks.append(math.ceil(1.1 * ranks[-1]))
    return np.array(ranks)


@dataclass(frozen=True, eq=False)
class AnswerScores:
    """Probabilities of first documents at which a share of held-out queries is answered, and the outcomes.

    thresholds  (10,) probabilities that .1, .2, ..., 1 of the held-out queries reach.
    answered    (10,) number of queries that reach them.
    right       (10,) number of these whose first document was relevant.
    """

    thresholds: Floats
    answered: Floats
    right: Floats

    def threshold(self, precision: float, confidence: float) -> float:
        """Least probability at which the precision is significant; infinite if there is none."""
        # the probability of as many right answers or more, if each is right with probability `precision`
        counts = zip(self.right.tolist(), self.answered.tolist(), strict=True)
        chance = np.array([binomial_tail(right, answered, precision) for right, answered in counts])
        passed = np.flatnonzero(chance <= (1 - confidence) / len(_FRACTIONS))
        return float(self.thresholds[passed].min()) if len(passed) else math.inf

    def least_queries(self, precision: float, confidence: float) -> int:
        """Number of held-out queries with which the precision can be shown if all answers are right."""
        return math.ceil(math.log((1 - confidence) / len(_FRACTIONS)) / math.log(precision))


def answer_scores(p: Floats, right: Mask) -> AnswerScores:
    """Outcomes of the first documents of held-out queries; p are their probabilities, both of shape (Q,)."""
    known = ~np.isnan(p)
    p, right = p[known], right[known]
    if not len(p):
        return AnswerScores(np.ones(len(_FRACTIONS)), *np.zeros((2, len(_FRACTIONS))))
    ordered = np.sort(p)[::-1]
    thresholds = ordered[np.ceil(_FRACTIONS * len(p)).astype(np.int64) - 1]
    reached = p >= thresholds[:, None]
    return AnswerScores(
        thresholds, reached.sum(axis=1).astype(np.float64), (reached & right).sum(axis=1).astype(np.float64)
    )


def prefix_record(found: PrefixScores) -> dict[str, Any]:
    """Plain data for a model file."""
    return {"scores": found.scores, "n_queries": found.n_queries}


def prefix_from(state: dict[str, Any]) -> PrefixScores:
    """Read what `prefix_record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
    scores = saved_floats("scores", state["scores"], (len(state["scores"]),))
    n = saved_count(state["n_queries"])
    if len(scores) != min(n, _KEPT) or (scores[1:] < scores[:-1]).any():
        raise ValueError("calibration: scores of prefixes are missing or not sorted")
    return PrefixScores(scores, n)


def answer_record(found: AnswerScores) -> dict[str, Any]:
    """Plain data for a model file."""
    return {"thresholds": found.thresholds, "answered": found.answered, "right": found.right}


def answer_from(state: dict[str, Any]) -> AnswerScores:
    """Read what `answer_record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
    n = (len(_FRACTIONS),)
    values = [saved_floats(name, state[name], n) for name in ("thresholds", "answered", "right")]
    counts = np.stack(values[1:])
    if (counts[1] > counts[0]).any() or (counts < 0).any() or (counts % 1 != 0).any():
        raise ValueError(
            "calibration: answers must be whole numbers, and not more of them right than there are"
        )
    return AnswerScores(*values)


def interval_record(found: IntervalRisk) -> dict[str, Any]:
    """Plain data for a model file."""
    return {"risk": found.risk, "n_queries": found.n_queries}


def interval_from(state: dict[str, Any]) -> IntervalRisk:
    """Read what `interval_record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
    return IntervalRisk(saved_floats("risk", state["risk"], _TAILS.shape), saved_count(state["n_queries"]))


def saved_count(value: Any) -> int:
    """Return a saved number of queries. Raises a ValueError if it is not a whole number from 0 to 2^53."""
    if type(value) is not int or not 0 <= value <= 2**53:
        raise ValueError(f"calibration: n_queries must be a whole number from 0 to 2^53; got {value!r:.40}")
    return value
