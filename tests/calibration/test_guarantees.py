"""Statements with a guarantee: thresholds by direct definitions, and coverage by simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, binomtest

from sinkprop.calibration import guarantees
from sinkprop.calibration.guarantees import (
    AnswerScores,
    IntervalRisk,
    PrefixScores,
    answer_from,
    answer_record,
    answer_scores,
    interval_from,
    interval_record,
    interval_risk,
    least_queries,
    prefix_from,
    prefix_record,
    prefix_scores,
    rank_bounds,
)
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.widths import RankMixture
from sinkprop.data.queries import Groups, group_rows

PERCENTS = st.integers(1, 99)
CHANCE = 1e-6  # of a failure of each test by simulation


def mixture(width=0.8):
    return RankMixture(
        1.0, ("exponential", 0.0), np.array([width]), np.tile([0.95, 0.05], (2, 1)), np.ones(2)
    )


def by_loop(p, wanted, scores):
    """Largest 1 - S(m) of the ranks up to the first wanted document of a query; None without one."""
    missed, depth = 1.0, 0.0
    for j in sorted(range(len(p)), key=lambda j: (-scores[j], j)):
        depth = max(depth, 1 - missed * p[j])
        if wanted[j]:
            return depth
        missed *= 1 - p[j]
    return None


def queries(n_queries=30, size=7, seed=0):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), size))
    p = rng.random(len(qid)) ** 3
    return p, rng.random(len(qid)) < p / 2, rng.normal(size=len(qid)).round(1), qid


class TestPrefixScores:
    def test_scores_are_those_of_a_loop(self):
        p, wanted, scores, qid = queries()
        found = prefix_scores(p, wanted, scores, group_rows(qid, len(qid)))
        each = [by_loop(p[qid == q], wanted[qid == q], scores[qid == q]) for q in range(30)]
        expected = sorted(value for value in each if value is not None)
        assert 0 < len(expected) < 30
        assert found.n_queries == len(expected)
        assert_allclose(found.scores, expected, atol=1e-12)

    def test_prefixes_are_those_of_a_loop(self):
        p, _, scores, qid = queries()
        known = PrefixScores(np.linspace(0.1, 0.9, 20), 20)
        chosen = known.chosen(p, scores, group_rows(qid, len(qid)), 0.6)
        limit = known.threshold(0.6)
        for q in range(30):
            own = np.flatnonzero(qid == q)
            missed, depth = 1.0, 0.0
            for rank, j in enumerate(sorted(own, key=lambda j: (-scores[j], j))):
                depth = max(depth, 1 - missed * p[j])
                assert chosen[j] == (depth <= limit or rank == 0)
                missed *= 1 - p[j]

    def test_nan_leaves_a_query_out(self):
        p, wanted, scores = np.array([np.nan, 0.5, 0.2, 0.3]), np.ones(4, dtype=bool), np.zeros(4)
        found = prefix_scores(p, wanted, scores, Groups.of_sizes(np.array([2, 2])))
        assert found.n_queries == 1
        assert_allclose(found.scores, [0.8])

    def test_certain_and_impossible_documents(self):
        p = np.array([0.0, 1.0, 0.5, 1.0])
        found = prefix_scores(p, np.array([False, False, False, True]), -np.arange(4.0), group_rows(None, 4))
        assert found.scores.tolist() == [1.0]
        first = PrefixScores(np.zeros(1), 1).chosen(p, -np.arange(4.0), group_rows(None, 4), 0.5)
        assert first.tolist() == [True, False, False, False]  # a prefix has at least one document
        certain = PrefixScores(np.zeros(1), 1).chosen(p[1:], -np.arange(3.0), group_rows(None, 3), 0.5)
        assert certain.tolist() == [True, False, False]

    def test_a_query_is_on_its_own_to_the_last_bit(self):
        p = queries(200)[0]
        together = guarantees._depths(p, Groups.of_sizes(np.full(200, 7)))
        for q in range(200):
            own = slice(7 * q, 7 * q + 7)
            assert_array_equal(together[own], guarantees._depths(p[own], group_rows(None, 7)))

    @given(st.integers(1, 300), PERCENTS)
    def test_threshold_is_an_order_statistic(self, n, percent):
        scores = np.random.default_rng(n).random(n)
        place = math.ceil((n + 1) * Fraction(percent, 100))
        expected = np.sort(scores)[place - 1] if place <= n else math.inf
        assert PrefixScores(np.sort(scores), n).threshold(percent / 100) == expected

    @given(PERCENTS)
    def test_least_queries(self, percent):
        coverage, n = percent / 100, least_queries(percent / 100)
        assert n == math.ceil(Fraction(percent, 100) / (1 - Fraction(percent, 100)))
        assert PrefixScores(np.zeros(n), n).threshold(coverage) < math.inf
        assert PrefixScores(np.zeros(n - 1), n - 1).threshold(coverage) == math.inf

    @pytest.mark.parametrize("n", [2002, 2003, 4001, 7777, 29_999])
    def test_thresholds_of_the_scores_that_are_kept_are_the_next_larger(self, n):
        scores = np.arange(n) / n
        # the only document is the wanted one, so that S(r) is p
        found = prefix_scores(
            1 - scores, np.ones(n, dtype=bool), np.zeros(n), Groups.of_sizes(np.ones(n, int))
        )
        assert len(found.scores) == 2001
        assert found.n_queries == n
        for percent in range(1, 100):
            exact = scores[math.ceil((n + 1) * Fraction(percent, 100)) - 1]
            assert exact - 1e-9 <= found.threshold(percent / 100) <= exact + 1 / 2000 + 1 / n

    @pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
    def test_coverage_of_split_conformal_prediction(self, coverage):
        # The probabilities are wrong on purpose: the guarantee does not depend on them.
        rng = np.random.default_rng(int(100 * coverage))
        n, size, trials = 19, 8, 3000
        groups, one = Groups.of_sizes(np.full(n, size)), group_rows(None, size)
        covered = 0
        for _ in range(trials):
            scores = rng.normal(size=(n + 1) * size)
            wanted = rng.random(len(scores)) < 0.6 / (1 + np.exp(1 - scores))
            wanted[size * np.arange(n + 1) + rng.integers(0, size, n + 1)] = True
            p = 1 / (1 + np.exp(3 - 2 * scores))
            found = prefix_scores(p[:-size], wanted[:-size], scores[:-size], groups)
            chosen = found.chosen(p[-size:], scores[-size:], one, coverage)
            covered += (chosen & wanted[-size:]).any()
        # at least the coverage and, where scores have no ties, at most 1 / (n + 1) more
        assert binomtest(covered, trials, coverage, alternative="less").pvalue > CHANCE
        assert covered / trials < 1

    def test_round_trip_is_exact(self):
        for found in (PrefixScores(np.array([0.1, 0.1, 0.7]), 3), PrefixScores(np.empty(0), 0)):
            read = prefix_from(prefix_record(found))
            assert_array_equal(read.scores, found.scores)
            assert read.n_queries == found.n_queries

    @pytest.mark.parametrize(
        "change",
        [
            {"n_queries": 2}, {"n_queries": 4}, {"n_queries": True}, {"n_queries": -1}, {"n_queries": 3.0},
            {"n_queries": 10**400}, {"scores": np.array([0.2, 0.1, 0.3])}, {"scores": np.full(3, np.nan)},
            {"scores": None}, {"scores": [0.1, 0.2, 0.3]}, {"scores": np.zeros((3, 1))},
        ],
    )  # fmt: skip
    def test_what_is_not_valid(self, change):
        with pytest.raises((TypeError, ValueError)):
            prefix_from({"scores": np.array([0.1, 0.1, 0.7]), "n_queries": 3} | change)


class TestIntervals:
    def test_bounds_of_a_short_query_are_those_of_its_matrix(self):
        rng = np.random.default_rng(0)
        sizes = [1, 5, 60]
        qid = rng.permutation(np.repeat([0, 1, 2], sizes))
        scores = rng.normal(size=len(qid))
        found = rank_bounds(mixture(), scores, group_rows(qid, len(qid)), 0.1)
        for q, n in enumerate(sizes):
            own = np.flatnonzero(qid == q)
            Pi = mixture().project(scores[own], group_rows(None, n), np.eye(n))
            for j, row in zip(own, np.cumsum(Pi, axis=1), strict=True):
                low = next((k for k in range(n) if row[k] > 0.1), n - 1) + 1
                high = next((k for k in range(n) if row[k] >= 0.9), n - 1) + 1
                assert found[j].tolist() == [low, high]

    def test_other_queries_change_nothing(self):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=800)
        together = rank_bounds(mixture(), scores, Groups.of_sizes(np.array([20, 80, 700])), 0.05)
        for a, b in ((0, 20), (20, 100), (100, 800)):
            assert_array_equal(
                rank_bounds(mixture(), scores[a:b], group_rows(None, b - a), 0.05), together[a:b]
            )

    def test_pieces_of_the_grid_change_nothing(self, monkeypatch):
        scores, groups = np.random.default_rng(0).normal(size=500), Groups.of_sizes(np.array([150, 350]))
        whole = rank_bounds(mixture(), scores, groups, 0.05)
        monkeypatch.setattr(guarantees, "_CELLS", 5000)
        assert_array_equal(rank_bounds(mixture(), scores, groups, 0.05), whole)

    @pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 10**6])
    def test_grid(self, n):
        grid = guarantees._grid(n)
        assert grid[: min(n, 64)].tolist() == list(range(1, min(n, 64) + 1))
        assert n <= grid[-1] <= 1.1 * n + 1
        assert (np.diff(grid) <= 1 + 0.1 * grid[:-1]).all()
        assert len(grid) < 200

    def test_intervals_grow_with_the_coverage_to_all_ranks(self):
        scores = np.random.default_rng(0).normal(size=150)
        before = None
        for tail in guarantees._TAILS[::-1]:
            low, high = rank_bounds(mixture(), scores, group_rows(None, 150), tail).T
            assert (low <= high).all()
            if before is not None:
                assert (low <= before[0]).all()
                assert (high >= before[1]).all()
            before = low, high
        assert (before[0] == 1).all()
        assert (before[1] == 150).all()

    def test_risk_is_the_share_outside(self):
        rng = np.random.default_rng(1)
        groups = Groups.of_sizes(np.array([3, 9, 30, 1]))
        scores, labels = rng.normal(size=43), rng.integers(0, 3, 43) * 1.0
        found = interval_risk(mixture(), scores, labels, groups)
        ideal = ideal_ranks(labels, groups)
        assert found.n_queries == 4
        for tail, risk in zip(guarantees._TAILS, found.risk, strict=True):
            bounds = rank_bounds(mixture(), scores, groups, tail)
            outside = 1 - ideal.within(bounds[:, 0], bounds[:, 1])
            assert risk == pytest.approx(
                np.mean([outside[groups.codes == q].mean() for q in range(4)]), abs=1e-12
            )

    def test_few_long_queries_are_all_used(self, monkeypatch):
        monkeypatch.setattr(guarantees, "_INTERVAL_ROWS", 50)
        groups = Groups.of_sizes(np.full(30, 20))
        scores = np.random.default_rng(0).normal(size=600)
        assert interval_risk(mixture(), scores, (scores > 0) * 1.0, groups).n_queries == 30

    def test_tail_is_the_largest_with_the_corrected_risk(self):
        tails, n = guarantees._TAILS, 50
        risk = np.linspace(0, 0.4, len(tails))
        found = IntervalRisk(risk, n).tail(0.9)
        allowed = [tail for tail, r in zip(tails, risk, strict=True) if (n * r + 1) / (n + 1) <= 0.1]
        assert found == max(allowed)
        assert IntervalRisk(risk, 8).tail(0.9) == 0  # 1 / 9 alone is more than .1
        assert IntervalRisk(np.zeros(31), 9).tail(0.9) == tails[-1]

    def test_coverage_of_conformal_risk_control(self):
        rng, coverage, n, size, trials = np.random.default_rng(0), 0.8, 15, 6, 400
        outside = []
        for _ in range(trials):
            scores = rng.normal(size=(n + 1) * size)
            labels = (scores + 2 * rng.normal(size=len(scores)) > 0.5) * 1.0
            known = interval_risk(
                mixture(0.2), scores[:-size], labels[:-size], Groups.of_sizes(np.full(n, size))
            )
            one = group_rows(None, size)
            low, high = rank_bounds(mixture(0.2), scores[-size:], one, known.tail(coverage)).T
            outside.append((1 - ideal_ranks(labels[-size:], one).within(low, high)).mean())
        # Hoeffding's bound for the mean of losses from 0 to 1
        assert np.mean(outside) < 1 - coverage + math.sqrt(math.log(1 / CHANCE) / (2 * trials))
        assert np.mean(outside) > 0.02

    def test_round_trip_is_exact(self):
        found = IntervalRisk(np.linspace(0, 0.5, 31) / 3, 17)
        read = interval_from(interval_record(found))
        assert_array_equal(read.risk, found.risk)
        assert read.n_queries == 17

    @pytest.mark.parametrize(
        "change",
        [{"n_queries": -1}, {"n_queries": None}, {"n_queries": 1e3}, {"risk": np.zeros(30)}, {"risk": 0.5}],
    )
    def test_what_is_not_valid(self, change):
        with pytest.raises(ValueError, match=r"n_queries|risk"):
            interval_from({"risk": np.zeros(31), "n_queries": 3} | change)


class TestAnswers:
    def test_counts_are_those_of_a_loop(self):
        rng = np.random.default_rng(0)
        p = rng.random(57).round(1)  # with ties
        right = rng.random(57) < p
        found = answer_scores(np.append(p, np.nan), np.append(right, True))
        for i, limit in enumerate(found.thresholds):
            assert found.answered[i] == sum(value >= limit for value in p) >= 57 * (i + 1) / 10
            assert found.right[i] == sum(r for value, r in zip(p, right, strict=True) if value >= limit)
        assert found.answered[-1] == 57

    @pytest.mark.parametrize("precision", [0.5, 0.8, 0.95])
    @pytest.mark.parametrize("confidence", [0.5, 0.9])
    def test_threshold_is_the_least_that_the_exact_test_shows(self, precision, confidence):
        rng = np.random.default_rng(3)
        p = rng.random(400)
        found = answer_scores(p, rng.random(400) < 0.5 + 0.5 * p)
        shown = [
            limit
            for limit, n, right in zip(found.thresholds, found.answered, found.right, strict=True)
            if binomtest(int(right), int(n), precision, alternative="greater").pvalue <= (1 - confidence) / 10
        ]
        assert found.threshold(precision, confidence) == min(shown, default=math.inf)

    def test_precision_holds_with_the_confidence(self):
        # Given p, the first document is right with probability p; the precision above t is (1 + t) / 2.
        rng, precision, confidence, trials = np.random.default_rng(0), 0.8, 0.7, 2000
        wrong = 0
        for _ in range(trials):
            p = rng.random(150)
            limit = answer_scores(p, rng.random(150) < p).threshold(precision, confidence)
            wrong += limit < 2 * precision - 1
        assert binomtest(wrong, trials, 1 - confidence, alternative="greater").pvalue > CHANCE

    @pytest.mark.parametrize(("precision", "confidence"), [(0.9, 0.9), (0.5, 0.5), (0.99, 0.95)])
    def test_least_queries(self, precision, confidence):
        known = answer_scores(np.ones(1), np.ones(1, dtype=bool))
        n = known.least_queries(precision, confidence)
        assert answer_scores(np.ones(n), np.ones(n, dtype=bool)).threshold(precision, confidence) == 1
        fewer = answer_scores(np.ones(n - 1), np.ones(n - 1, dtype=bool))
        assert fewer.threshold(precision, confidence) == math.inf
        assert binom.sf(n - 1, n, precision) <= (1 - confidence) / 10

    def test_no_queries(self):
        found = answer_scores(np.full(3, np.nan), np.zeros(3, dtype=bool))
        assert found.threshold(0.5, 0.5) == math.inf
        assert found.answered.tolist() == [0] * 10

    def test_round_trip_is_exact(self):
        found = answer_scores(np.random.default_rng(0).random(30), np.arange(30) % 3 > 0)
        read = answer_from(answer_record(found))
        for name in ("thresholds", "answered", "right"):
            assert_array_equal(getattr(read, name), getattr(found, name))

    @pytest.mark.parametrize(
        "change",
        [
            {"right": np.full(10, 6.0)}, {"right": np.full(10, -1.0)}, {"answered": np.full(10, 5.5)},
            {"answered": np.full(9, 5.0)}, {"answered": None}, {"thresholds": np.full(10, np.nan)},
        ],
    )  # fmt: skip
    def test_what_is_not_valid(self, change):
        with pytest.raises(ValueError, match=r"right|answer|thresholds"):
            answer_from(answer_record(AnswerScores(*np.full((3, 10), 5.0))) | change)
