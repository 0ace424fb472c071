"""Trust bias: exact counts, numerical derivatives, simulated logs, few impressions, laws and bad input."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import binom

from sinkprop import Queries
from sinkprop.clicks import (
    ClickLog,
    PositionBasedModel,
    TrustBiasModel,
    examination_interval,
    simulate_clicks,
)
from sinkprop.clicks.models.cells import cells_of
from sinkprop.clicks.models.trust_bias import _loss

THETA = np.array([1.0, 0.6, 0.4])
PLUS, MINUS = np.array([0.9, 0.85, 0.8]), np.array([0.3, 0.15, 0.05])
USERS = TrustBiasModel.of_examination(THETA, PLUS, MINUS)
FIRST = (0.3, 0.9)


def documents(n):
    return Queries(np.zeros((n, 1)), np.zeros(n), qid=np.zeros(n, dtype=int))


def expected_log(rankings, relevance, size):
    """A log with each possible outcome of each ranking, and weights of sessions: `size` times its chance."""
    rows, clicked, weight = [], [], []
    for ranking in rankings:
        k = len(ranking)
        p = USERS.slope[:k] * relevance[list(ranking)] + USERS.intercept[:k]
        for outcome in itertools.product([0, 1], repeat=len(ranking)):
            rows += ranking
            clicked += outcome
            weight.append(size * np.prod(np.where(outcome, p, 1 - p)))
    offsets = np.arange(0, len(rows) + 1, len(rankings[0]))
    return ClickLog(documents(len(relevance)), rows, clicked, offsets), np.array(weight)


def simulated(seed, Q, size, *, informed=True, rankers=3):
    """A log of rankers that know something of the relevance or nothing, and the relevance."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 2, 3 * Q)
    queries = Queries(np.zeros((3 * Q, 1)), np.zeros(3 * Q), np.repeat(np.arange(Q), 3))
    scores = informed * relevance + 0.3 * rng.normal(size=(rankers, 3 * Q))
    return simulate_clicks(queries, scores, size, USERS, relevance=relevance, seed=rng), relevance


@pytest.fixture(scope="module")
def log():
    return simulated(0, 20, 60_000)


class TestExactCounts:
    RELEVANCE = np.array([0.0, 0.25, 0.6, 1.0])
    RANKINGS = tuple(itertools.permutations(range(4), 3))

    def test_give_slopes_intercepts_and_relevance(self):
        counts, weight = expected_log(self.RANKINGS, self.RELEVANCE, 1e6)
        model = TrustBiasModel.fit(counts, first=FIRST, smooth=False, weight=weight)
        np.testing.assert_allclose(model.slope, USERS.slope, rtol=1e-3)
        np.testing.assert_allclose(model.intercept, USERS.intercept, atol=1e-3)
        np.testing.assert_allclose(model.relevance, self.RELEVANCE, atol=1e-3)

    def test_give_the_click_rates_of_the_log_in_the_normalization_of_position_1(self):
        counts, weight = expected_log(self.RANKINGS, self.RELEVANCE, 1e6)
        model = TrustBiasModel.fit(counts, smooth=False, weight=weight)
        assert (model.slope[0], model.intercept[0]) == (1, 0)
        np.testing.assert_allclose(model.relevance, 0.3 + 0.6 * self.RELEVANCE, atol=1e-3)
        expected = USERS.probabilities(counts, self.RELEVANCE)
        np.testing.assert_allclose(model.probabilities(counts), expected, atol=1e-3)
        # a document that is never clicked at position 1 has a negative rate at the others
        np.testing.assert_allclose(model.intercept, USERS.intercept - 0.3 * USERS.slope / 0.6, atol=1e-3)

    def test_of_two_documents_are_two_points_of_a_line(self):
        counts, weight = expected_log([(0, 1), (1, 0)], np.array([0.1, 0.9]), 1e6)
        model = TrustBiasModel.fit(counts, first=FIRST, weight=weight)
        np.testing.assert_allclose(model.slope, USERS.slope[:2], rtol=1e-3)
        np.testing.assert_allclose(model.intercept, USERS.intercept[:2], atol=1e-3)


class TestLoss:
    def problem(self, log):
        cells = cells_of(log)
        y = cells.x / cells.n
        rng = np.random.default_rng(0)
        w = cells.n * rng.uniform(1, 9, len(y))
        return cells, y, w, y * (1 - y) / (cells.n - 1)

    def test_is_the_sum_of_squares_and_the_variance_of_rates_document_by_document(self, log):
        cells, y, w, s = self.problem(log[0])
        point = np.array([-0.4, -0.8, 0.1, -0.2])
        a, c = np.exp([0.0, -0.4, -0.8]), np.array([0.0, 0.1, -0.2])
        total = 0.0
        for i, j in itertools.pairwise(cells.starts):
            at, wd = cells.positions[i:j], w[i:j]
            best = wd * a[at] / (wd * a[at] ** 2).sum()  # rate by y - a c
            rho = best @ (y[i:j] - a[at] * c[at])
            squares = wd * (y[i:j] - a[at] * (rho + c[at])) ** 2
            total += squares.sum() + (wd * a[at] ** 2).sum() * (best**2 @ s[i:j])
        assert _loss(cells, y, w, s, point)[0] == pytest.approx(total / 2 / len(y), rel=1e-12)

    def test_gradient(self, log):
        problem = self.problem(log[0])
        for point in (np.zeros(4), np.array([-0.4, -0.8, 0.1, -0.2])):
            expected = approx_fprime(point, lambda x: _loss(*problem, x)[0], 1e-6)
            np.testing.assert_allclose(_loss(*problem, point)[1], expected, rtol=1e-3, atol=1e-4)

    def test_has_its_least_mean_over_all_clicks_at_the_truth(self):
        """With any weights that do not depend on the clicks, and two impressions of each document."""
        rng = np.random.default_rng(0)
        a = THETA[:2] * (PLUS - MINUS)[:2] / (PLUS - MINUS)[0]
        c = (USERS.intercept / USERS.slope * 0.6)[:2] - 0.3
        counts, weight = expected_log([(0, 1), (1, 0)], np.array([0.2, 0.9]), 1.0)
        cells = cells_of(counts, weight)
        w = rng.uniform(1, 5, 4)
        rates = 0.3 + 0.6 * np.array([0.2, 0.9])
        p = (a * (rates[:, None] + c)).ravel()  # cells are those of documents at positions 1 and 2
        n = np.array([2, 3, 2, 4])

        outcomes = [np.array(x) for x in itertools.product(*(range(k + 1) for k in n))]
        chances = [binom.pmf(x, n, p).prod() for x in outcomes]

        def mean_loss(point):
            value, gradient = 0.0, np.zeros(2)
            for x, chance in zip(outcomes, chances, strict=True):
                y = x / n
                of_x = _loss(replace(cells, n=n), y, w, y * (1 - y) / (n - 1), point)
                value, gradient = value + chance * of_x[0], gradient + chance * of_x[1]
            return value, gradient

        best = minimize(mean_loss, [0.0, 0.0], jac=True, method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(best.x, [np.log(a[1]), c[1]], atol=1e-5)


class TestRecovery:
    def test_from_several_rankers(self, log):
        found = TrustBiasModel.fit(log[0], first=FIRST)
        np.testing.assert_allclose(found.slope, USERS.slope, rtol=0.1)
        np.testing.assert_allclose(found.intercept, USERS.intercept, atol=0.02)
        np.testing.assert_allclose(found.relevance, log[1], atol=0.1)
        error = np.log(found.interval[1] / found.interval[0])[1:] / (2 * 1.959964)
        errors = np.log(found.examination_curve() * USERS.slope[0] / USERS.slope)[1:]
        assert (np.abs(errors) < 4 * error).all()
        assert error.max() < 0.1

    def test_position_bias_alone_underestimates_the_lower_positions(self, log):
        without = PositionBasedModel.fit(log[0])
        trusting = TrustBiasModel.fit(log[0], first=FIRST)
        assert without.interval[1, 2] < trusting.examination_curve()[2]
        assert trusting.log_likelihood(log[0]) > without.log_likelihood(log[0])

    def test_users_without_trust_have_slopes_that_are_the_examination(self):
        rng = np.random.default_rng(0)
        relevance = rng.uniform(0.05, 0.9, 60)
        queries = Queries(np.zeros((60, 1)), np.zeros(60), np.repeat(np.arange(20), 3))
        users = PositionBasedModel(THETA)
        log = simulate_clicks(queries, rng.random((3, 60)), 40_000, users, relevance=relevance, seed=1)
        found = TrustBiasModel.fit(log)
        np.testing.assert_allclose(found.slope, THETA, rtol=0.1)
        np.testing.assert_allclose(found.intercept, 0, atol=0.02)

    @pytest.mark.parametrize("informed", [False, True])
    @pytest.mark.parametrize(("Q", "size"), [(5, 3000), (60, 6000), (600, 12_000)])
    def test_intervals_cover_and_estimates_have_no_bias(self, Q, size, informed):
        """Also if documents have few impressions, 7 at each position with 600 queries."""
        covered, repeats, errors, claimed = np.zeros(2), 60, [], []
        truth = USERS.slope / USERS.slope[0]
        for seed in range(repeats):
            counts, _ = simulated(seed, Q, size, informed=informed)
            model = TrustBiasModel.fit(counts, first=FIRST, smooth=False)
            low, high = model.interval
            covered += ((low <= truth) & (high >= truth))[1:]
            errors.append(np.log(model.examination_curve() / truth)[1:])
            claimed.append(np.log(high / low)[1:] / (2 * 1.959964))
        errors = np.array(errors)
        spread = errors.std(axis=0)
        assert (np.abs(np.median(errors, axis=0)) < 4 * 1.25 * spread / np.sqrt(repeats)).all()
        assert binom.ppf(0.001, repeats, 0.95) <= covered.min()
        ratio = np.median(claimed, axis=0) / spread
        assert ((ratio > 0.7) & (ratio < 1.5)).all()

    def test_two_impressions_of_each_of_many_documents_at_each_position(self):
        rng, Q = np.random.default_rng(0), 15_000
        relevance = rng.beta(0.5, 0.5, 2 * Q)
        queries = Queries(np.zeros((2 * Q, 1)), np.zeros(2 * Q), np.repeat(np.arange(Q), 2))
        pairs = np.arange(2 * Q).reshape(Q, 2)
        rows = np.concatenate([pairs, pairs[:, ::-1]] * 2).ravel()
        users = TrustBiasModel([0.9, 0.3], [0.05, 0.3])
        offsets = np.arange(0, len(rows) + 1, 2)
        log = ClickLog(queries, rows, users.draw(relevance[rows], offsets, rng), offsets)
        found = TrustBiasModel.fit(log, first=(0.05, 0.95))
        error = np.log(found.interval[1, 1] / found.interval[0, 1]) / (2 * 1.959964)
        assert error < 0.06
        assert abs(np.log(found.slope[1] / 0.3)) < 3 * error

    def test_of_resampled_sessions_agree(self, log):
        counts = log[0].select(np.arange(20_000))
        low, high = examination_interval(
            lambda of_log, weight: TrustBiasModel.fit(of_log, smooth=False, weight=weight),
            counts,
            n=60,
            seed=0,
        )
        expected = TrustBiasModel.fit(counts, smooth=False).interval
        width = np.log(high / low)[1:] / np.log(expected[1] / expected[0])[1:]
        assert ((width > 0.65) & (width < 1.5)).all()  # of 60 samples, with an error of 13 %

    def test_documents_without_sessions_have_the_average(self, log):
        counts, _ = log
        model = TrustBiasModel.fit(counts.select(counts.queries != 3), first=FIRST)
        of_query = model.relevance[9:12]
        assert np.ptp(of_query) == 0
        assert of_query[0] == pytest.approx(np.delete(model.relevance, range(9, 12)).mean(), abs=0.1)


class TestLaws:
    def same(self, one, other, rtol):
        np.testing.assert_allclose(one.slope, other.slope, rtol=rtol)
        np.testing.assert_allclose(one.intercept, other.intercept, atol=rtol)
        np.testing.assert_allclose(one.interval, other.interval, rtol=10 * rtol)
        np.testing.assert_allclose(one.relevance, other.relevance, atol=rtol)

    def test_weights_are_repeated_sessions(self, log):
        counts = log[0].select(np.arange(10_000))
        weight = np.random.default_rng(0).integers(0, 4, 10_000)
        repeated = counts.select(np.repeat(np.arange(10_000), weight))
        self.same(TrustBiasModel.fit(counts, weight=weight), TrustBiasModel.fit(repeated), 1e-9)

    def test_the_order_of_sessions_changes_nothing(self, log):
        counts = log[0].select(np.arange(10_000))
        order = np.random.default_rng(0).permutation(10_000)
        self.same(TrustBiasModel.fit(counts), TrustBiasModel.fit(counts.select(order)), 1e-9)

    def test_the_order_of_documents_changes_nothing(self, log):
        counts = log[0].select(np.arange(10_000))
        order = np.random.default_rng(0).permutation(60)
        table = Queries(np.zeros((60, 1)), np.zeros(60), counts.documents.qid[order])
        moved = replace(counts, documents=table, rows=np.argsort(order)[counts.rows])
        one, other = TrustBiasModel.fit(counts), TrustBiasModel.fit(moved)
        self.same(replace(one, relevance=one.relevance[order]), other, 1e-5)

    def test_first_changes_only_the_scale_of_the_relevance(self, log):
        one, other = TrustBiasModel.fit(log[0]), TrustBiasModel.fit(log[0], first=(0.2, 0.95))
        np.testing.assert_allclose(one.slope * 0.75, other.slope)
        np.testing.assert_allclose(one.intercept + 0.2 * one.slope, other.intercept)
        np.testing.assert_allclose(np.clip((one.relevance - 0.2) / 0.75, 0, 1), other.relevance)
        np.testing.assert_array_equal(one.interval, other.interval)

    def test_documents_shown_at_one_position_do_not_change_the_curves(self, log):
        counts = log[0].select(np.arange(10_000))
        more = Queries(np.zeros((63, 1)), np.zeros(63), [*counts.documents.qid, 99, 99, 99])
        longer = ClickLog(
            more,
            np.r_[counts.rows, np.tile([60, 61, 62], 50)],
            np.r_[counts.clicked, np.ones(150, bool)],
            np.r_[counts.offsets, counts.offsets[-1] + np.arange(3, 153, 3)],
        )
        one, other = TrustBiasModel.fit(counts), TrustBiasModel.fit(longer)
        np.testing.assert_array_equal(one.slope, other.slope)
        assert (other.relevance[60:] > 0.8).all()


class TestModel:
    def test_of_examination(self):
        assert USERS.slope == pytest.approx([0.6, 0.6 * 0.7, 0.4 * 0.75])
        assert USERS.intercept == pytest.approx([0.3, 0.6 * 0.15, 0.4 * 0.05])
        assert USERS.examination_curve() == pytest.approx([1, 0.42 / 0.6, 0.3 / 0.6])

    def test_propensities_are_slopes_and_intercepts_of_positions(self):
        log = ClickLog(documents(3), [0, 1, 2, 2, 0], [0, 0, 1, 1, 0], [0, 3, 5])
        p = USERS.propensities(log)
        np.testing.assert_array_equal(p.slope, USERS.slope[[0, 1, 2, 0, 1]])
        np.testing.assert_array_equal(p.intercept, USERS.intercept[[0, 1, 2, 0, 1]])

    def test_draws_have_the_probabilities(self):
        relevance, size = np.array([0.5, 0.0, 1.0]), 20_000
        clicked = USERS.draw(
            np.tile(relevance, size), np.arange(0, 3 * size + 1, 3), np.random.default_rng(0)
        )
        expected = USERS.slope * relevance + USERS.intercept
        assert clicked.reshape(-1, 3).mean(axis=0) == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(size))

    @pytest.mark.parametrize("slope", [[], [1, 0], [1, -1], [1, np.nan], [[1.0]], 1.0])
    def test_slopes_are_above_0(self, slope):
        with pytest.raises(ValueError, match="slope must have one finite number above 0 per position"):
            TrustBiasModel(slope, np.zeros(np.shape(slope)))

    @pytest.mark.parametrize("intercept", [[0.1], [0, np.nan], [[0, 0]], 0.0, [0, 0, 0]])
    def test_intercepts_are_as_many(self, intercept):
        with pytest.raises(ValueError, match=r"intercept must have one finite number per position, \(2,\)"):
            TrustBiasModel([1, 0.5], intercept)

    def test_clicks_of_examined_documents_are_as_many_and_more_for_the_relevant(self):
        with pytest.raises(ValueError, match=r"one number per position each; got the shapes \(2,\), \(3,\)"):
            TrustBiasModel.of_examination([1, 0.5], [0.9] * 3, [0.1] * 3)
        with pytest.raises(ValueError, match="slope must have one finite number above 0"):
            TrustBiasModel.of_examination([1, 0.5], [0.1, 0.1], [0.9, 0.9])

    def test_a_log_that_is_longer_than_the_model(self, log):
        with pytest.raises(ValueError, match=r"the log has 3 positions, and the model 2; .*log\.first\(k\)"):
            TrustBiasModel([1, 0.5], [0, 0]).propensities(log[0])


class TestErrors:
    @pytest.mark.parametrize(
        "first", [(0.9, 0.3), (0.5, 0.5), (-0.1, 1), (0, 2), (np.nan, 1), (0.3,), 0.5, (0, 0.5, 1), ((0, 1),)]
    )
    def test_first(self, log, first):
        with pytest.raises(
            ValueError, match=r"first must be the two probabilities .* second larger than the"
        ):
            TrustBiasModel.fit(log[0], first=first)

    def test_one_document_that_connects_positions(self):
        log = ClickLog(documents(4), [0, 1, 2, 0] * 3, [1, 1, 0, 1] * 3, np.arange(0, 13, 2))
        with pytest.raises(
            ValueError, match="two clicked documents or more that were shown at the positions"
        ):
            TrustBiasModel.fit(log)

    def test_documents_that_are_shown_once_at_a_position(self):
        log = ClickLog(documents(2), [0, 1, 1, 0], [1, 1, 1, 1], [0, 2, 4])
        with pytest.raises(ValueError, match=r"shown at position 2 and at other .*at least twice at each"):
            TrustBiasModel.fit(log)

    def test_one_ranker(self):
        log = ClickLog(documents(3), [0, 1, 2] * 4, [1, 0, 1, 0, 1, 1] * 2, np.arange(0, 13, 3))
        with pytest.raises(
            ValueError, match=r"shown at the positions 2 and 3 and at other .*log\.first\(k\)"
        ):
            TrustBiasModel.fit(log)

    def test_clicks_at_one_side_only(self):
        # documents 0 and 1 are clicked at position 1 only, and 2 is shown at position 2 only
        rows = [0, 1, 1, 0, 3, 2] * 4
        log = ClickLog(documents(4), rows, [1, 0, 1, 0, 0, 1] * 4, np.arange(0, 25, 2))
        with pytest.raises(ValueError, match="too few clicks compare position 2 with position 1"):
            TrustBiasModel.fit(log)

    def test_documents_of_equal_relevance_have_an_interval_that_says_nothing(self):
        rows = np.tile([0, 1, 1, 0], 50)
        clicked = np.tile([1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0], 200 // 12 + 1)[:200]
        model = TrustBiasModel.fit(ClickLog(documents(2), rows, clicked, np.arange(0, 201, 2)))
        assert model.interval[0, 1] < 0.01
        assert model.interval[1, 1] > 10

    @pytest.mark.parametrize(
        ("argument", "value", "message"),
        [
            ("smooth", None, "smooth must be True or False; got None"),
            ("max_iter", 0, "max_iter must be at least 1; got 0"),
            ("max_iter", 1.5, "max_iter must be a whole number, at least 1; got 1.5"),
        ],
    )
    def test_options(self, log, argument, value, message):
        with pytest.raises(ValueError, match=message):
            TrustBiasModel.fit(log[0], **{argument: value})
