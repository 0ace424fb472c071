"""Position bias by every method: exact counts, closed forms, simulations, intervals, laws and bad input."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import BaseEstimator

from sinkprop import Queries, SinkPropRanker
from sinkprop.clicks import (
    ClickLog,
    PositionBasedModel,
    TrustBiasModel,
    estimate_position_bias,
    examination_interval,
    harvest_bias,
    simulate_clicks,
    swap_bias,
)
from sinkprop.clicks.reading import NO_FEATURES

THETA = np.array([1.0, 0.6, 0.45, 0.2])
USERS = PositionBasedModel(THETA)
FIT = PositionBasedModel.fit
METHODS = {
    "documents": FIT,
    "linear": partial(FIT, relevance="linear"),
    "swaps": swap_bias,
    "harvest": harvest_bias,
}
every_method = pytest.mark.parametrize("method", METHODS)


def documents(n, X=None):
    return Queries(np.zeros((n, 1)) if X is None else X, np.zeros(n), qid=np.zeros(n, dtype=int))


def log_of(lists, clicks, X=None, **more):
    """A log of sessions of one query, each a list of rows."""
    rows = np.concatenate(lists)
    offsets = np.cumsum([0, *map(len, lists)])
    return ClickLog(documents(rows.max() + 1, X), rows, np.concatenate(clicks), offsets, **more)


def expected_log(queries, rankings, relevance, size, theta=THETA):
    """A log with each possible outcome of each ranking, and weights of sessions: `size` times its chance."""
    rows, clicked, policy, weight = [], [], [], []
    for i, ranking in enumerate(rankings):
        p = theta[: len(ranking)] * relevance[ranking]
        for outcome in itertools.product([0, 1], repeat=len(ranking)):
            rows += list(ranking)
            clicked += outcome
            policy.append(i % 2)
            weight.append(size * np.prod(np.where(outcome, p, 1 - p)))
    sizes = np.repeat([len(r) for r in rankings], [2 ** len(r) for r in rankings])
    offsets = np.r_[0, np.cumsum(sizes)]
    log = ClickLog(queries, rows, clicked, offsets, policy=np.array(policy), policies=("a", "b"))
    return log, np.array(weight)


def labeled(seed=0, Q=60, n=4, noise=0.5):
    """Documents, and a relevance that features tell except for noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(Q * n, 3))
    relevance = expit(X @ [1.0, -0.7, 0] - 1 + noise * rng.normal(size=Q * n))
    return Queries(X, np.zeros(Q * n), np.repeat(np.arange(Q), n)), relevance


@pytest.fixture(scope="module")
def several():
    """A log of three rankers, one of which knows the relevance."""
    queries, relevance = labeled()
    scores = np.vstack([np.random.default_rng(1).random((2, len(queries))), relevance])
    return simulate_clicks(queries, scores, 40_000, USERS, relevance=relevance, seed=2), relevance


@pytest.fixture(scope="module")
def swapped():
    queries, relevance = labeled()
    return simulate_clicks(queries, relevance, 40_000, USERS, relevance=relevance, swaps="pairs", seed=3)


@pytest.fixture(scope="module")
def fixed():
    """A log of one ranker, which orders by one of the features that tell the relevance."""
    queries, relevance = labeled(Q=300)
    return simulate_clicks(queries, queries.X[:, 0], 40_000, USERS, relevance=relevance, seed=4)


def close(model, theta=THETA, most=0.1):
    """Whether the unsmoothed estimate is within 4 standard errors, which are small, of the truth."""
    error = np.sqrt(np.diag(model.fitted.covariance))
    assert error.max() < most
    return (np.abs(np.log(model.fitted.raw / theta))[1:] < 4 * error).all()


class TestExactCounts:
    RELEVANCE = np.array([0.9, 0.5, 0.3, 0.05])

    @pytest.mark.parametrize("method", ["documents", "swaps", "harvest"])
    def test_give_examination_and_relevance(self, method):
        rankings = [list(order) for order in itertools.permutations(range(4))]
        log, weight = expected_log(documents(4), rankings, self.RELEVANCE, 1e6)
        model = METHODS[method](log, smooth=False, weight=weight)
        np.testing.assert_allclose(model.examination, THETA, rtol=1e-8)
        np.testing.assert_allclose(model.relevance, self.RELEVANCE, rtol=1e-5)
        assert (model.fitted.method, model.fitted.n_documents) == (method, 4)
        smooth = METHODS[method](log, weight=weight)
        np.testing.assert_allclose(smooth.examination, THETA, rtol=1e-4)

    def test_of_two_rankings_with_one_exchange_give_examination(self):
        log, weight = expected_log(documents(4), [[0, 1, 2, 3], [1, 2, 3, 0]], self.RELEVANCE, 1e6)
        for method in ("documents", "harvest"):
            found = METHODS[method](log, smooth=False, weight=weight).examination
            np.testing.assert_allclose(found, THETA, rtol=1e-8)

    def test_of_one_ranking_and_features_that_tell_the_relevance_give_examination(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(160, 2))
        queries = Queries(X, np.zeros(160), np.repeat(np.arange(40), 4))
        relevance = expit(X @ [1, -1] - 1)
        rankings = np.argsort(-X[:, 0].reshape(40, 4), axis=1) + 4 * np.arange(40)[:, None]
        log, weight = expected_log(queries, rankings, relevance, 1e6)
        model = FIT(log, relevance="linear", smooth=False, weight=weight, max_iter=3000, tol=0.0)
        # 0.1 % of the coefficients' size is lost to the penalty
        np.testing.assert_allclose(model.examination, THETA, rtol=2e-3)
        np.testing.assert_allclose(model.relevance, relevance, rtol=1e-2)
        # the confounded ratio of click rates, which ignores features
        n, x = np.bincount(log.positions - 1, weight[log.sessions]), weight[log.sessions] * log.clicked
        rates = np.bincount(log.positions - 1, x) / n
        assert np.abs(rates / rates[0] - THETA).max() > 0.1


class TestTwoPositions:
    @pytest.mark.parametrize("method", ["documents", "swaps", "harvest"])
    def test_equal_impressions_give_the_ratio_of_clicks(self, method):
        # document 0 is clicked 3 times of 4 at position 1 and 2 times of 4 at position 2, document 1 2 and 1
        lists = [[0, 1]] * 4 + [[1, 0]] * 4
        clicks = [[1, 0], [1, 0], [1, 1], [0, 0], [1, 1], [1, 1], [0, 0], [0, 0]]
        log = log_of(lists, clicks, policy=np.repeat([0, 1], 4), policies=("a", "b"))
        model = METHODS[method](log)
        assert model.examination == pytest.approx([1, (2 + 1) / (3 + 2)], rel=1e-12)

    @pytest.mark.parametrize("method", ["documents", "swaps", "harvest"])
    def test_other_impressions_solve_one_equation(self, method):
        rng = np.random.default_rng(0)
        lists = [[0, 1]] * 30 + [[1, 0]] * 10 + [[2, 3]] * 9 + [[3, 2]] * 25
        clicks = rng.random((74, 2)) < [0.6, 0.3]
        log = log_of(lists, clicks, policy=np.arange(74) % 2, policies=("a", "b"))
        n = np.array([[30, 10], [10, 30], [9, 25], [25, 9]])
        x = np.zeros((4, 2))
        np.add.at(x, (log.rows, log.positions - 1), log.clicked)

        def equation(theta):
            share = n[:, 1] * theta / (n[:, 0] + n[:, 1] * theta)
            return (x[:, 1] - share * x.sum(axis=1)).sum()

        theta = brentq(equation, 1e-3, 1e3, xtol=1e-14)
        assert METHODS[method](log).examination == pytest.approx([1, theta], rel=1e-8)


class TestRecovery:
    @pytest.mark.parametrize("method", ["documents", "linear", "harvest"])
    def test_from_several_rankers(self, method, several):
        log, relevance = several
        model = METHODS[method](log)
        assert close(model)
        assert model.fitted.method == method
        assert (np.abs(model.examination - THETA) < 0.04).all()
        shown = np.bincount(log.rows, THETA[log.positions - 1])
        error = np.sqrt(relevance / shown)
        assert (np.abs(model.relevance - relevance) < 5 * error).all()
        assert ((model.interval[0] <= model.examination) & (model.examination <= model.interval[1])).all()

    def test_from_swaps_and_all_pairs_of_them(self, swapped):
        only_first, all_of_them = swap_bias(swapped), FIT(swapped)
        assert close(only_first)
        assert close(all_of_them)
        assert only_first.fitted.method == "swaps"

    def test_harvest_is_the_likelihood_of_documents(self, several):
        found, expected = harvest_bias(several[0]), FIT(several[0])
        np.testing.assert_array_equal(found.examination, expected.examination)
        np.testing.assert_array_equal(found.relevance, expected.relevance)

    def test_from_features_of_one_ranker(self, fixed):
        model = FIT(fixed, relevance="linear")
        assert close(model, most=0.15)
        # r = m g with E g^2 = 1 + 1 / shape, where ln g has about the variance 0.5^2 (1 - m)^2
        assert 4 < model.fitted.shape < 40

    def test_trees_and_rankers_find_most_of_what_features_tell(self, fixed):
        rates = np.bincount(fixed.positions - 1, fixed.clicked) / np.bincount(fixed.positions - 1)
        of_rates = np.abs(np.log(rates / rates[0] / THETA)).max()
        assert of_rates > 0.7
        for relevance in ("trees", LeastSquares()):
            model = FIT(fixed, relevance=relevance)
            assert np.abs(np.log(model.examination / THETA)).max() < 0.35 * of_rates
            assert model.fitted.method == (relevance if relevance == "trees" else "ranker")

    def test_a_ranker_of_this_library(self, several):
        ranker = SinkPropRanker(max_iter=20)
        model = FIT(several[0], relevance=ranker)
        assert close(model)
        assert not hasattr(ranker, "coef_")  # a copy was fitted

    def test_documents_without_sessions_get_the_average_or_the_prediction(self, several):
        log, _ = several
        keep = log.queries != 3
        for method in ("documents", "linear"):
            model = METHODS[method](log.select(keep))
            of_query = model.relevance[log.documents.groups.codes == 3]
            assert len(of_query) == 4
            assert (np.ptp(of_query) > 0.01) == (method == "linear")
            assert ((of_query > 0) & (of_query < 1)).all()

    def test_a_sudden_drop_is_seen_with_many_clicks(self):
        queries, relevance = labeled(Q=20, n=6)
        theta = np.array([1.0, 0.95, 0.9, 0.2, 0.19, 0.18])
        scores = np.random.default_rng(0).random((4, len(queries)))
        log = simulate_clicks(
            queries, scores, 100_000, PositionBasedModel(theta), relevance=relevance, seed=0
        )
        np.testing.assert_allclose(FIT(log).examination, theta, rtol=0.08)


class TestIntervals:
    @pytest.mark.parametrize("method", ["documents", "linear", "swaps"])
    def test_cover_95_of_100_truths(self, method):
        covered, repeats, errors, claimed = np.zeros(3), 100, [], []
        for seed in range(repeats):
            queries, relevance = labeled(seed, Q=40)
            scores = np.random.default_rng(seed).random((3, len(queries)))
            log = simulate_clicks(
                queries, scores, 1500, USERS, relevance=relevance, swaps="pairs", seed=seed + 1000
            )
            model = METHODS[method](log, smooth=False)
            low, high = model.interval
            covered += ((low <= THETA) & (high >= THETA))[1:]
            errors.append(np.log(model.examination / THETA)[1:])
            claimed.append(np.log(high / low)[1:] / (2 * 1.959964))
        assert binom.ppf(0.001, repeats, 0.95) <= covered.min()
        ratio = np.mean(claimed, axis=0) / np.std(errors, axis=0)
        assert ((ratio > 0.8) & (ratio < 1.35)).all()  # a standard deviation of 100 has an error of 7 %

    @pytest.mark.parametrize("fit", [FIT, swap_bias])
    def test_cover_where_documents_are_shown_once_at_each_position(self, fit):
        covered, repeats = 0, 100
        pairs = np.arange(800).reshape(400, 2)
        rows = np.concatenate([pairs, pairs[:, ::-1]]).ravel()
        queries = Queries(np.zeros((800, 1)), np.zeros(800), np.repeat(np.arange(400), 2))
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            relevance = rng.uniform(0.02, 0.3, 800)
            clicked = rng.random(1600) < np.tile([1, 0.5], 800) * relevance[rows]
            low, high = fit(ClickLog(queries, rows, clicked, np.arange(0, 1601, 2))).interval[:, 1]
            covered += low <= 0.5 <= high
        assert binom.ppf(0.001, repeats, 0.95) <= covered <= binom.ppf(0.999, repeats, 0.95)

    def test_are_as_wide_as_the_root_of_the_number_of_sessions_says(self, several):
        log, _ = several
        few, many = (
            np.log(m.interval[1] / m.interval[0])[1:]
            for m in (FIT(log.select(np.arange(4000)), smooth=False), FIT(log, smooth=False))
        )
        np.testing.assert_allclose(few / many, np.sqrt(10), rtol=0.1)

    def test_of_smooth_curves_are_narrower_with_smoothing(self):
        queries, relevance = labeled(Q=30, n=8)
        theta = np.arange(1.0, 9) ** -0.7
        scores = np.random.default_rng(0).random((3, len(queries)))
        log = simulate_clicks(queries, scores, 2000, PositionBasedModel(theta), relevance=relevance, seed=5)
        smooth, raw = FIT(log), FIT(log, smooth=False)
        assert (
            np.log(smooth.interval[1] / smooth.interval[0])[4:]
            < 0.8 * np.log(raw.interval[1] / raw.interval[0])[4:]
        ).all()
        assert (
            np.abs(np.log(smooth.examination / theta)).sum() < np.abs(np.log(raw.examination / theta)).sum()
        )

    @pytest.mark.parametrize("method", ["documents", "linear", "swaps"])
    def test_of_resampled_sessions_agree(self, method, swapped):
        log = swapped.select(np.arange(8000))
        fit = partial(METHODS[method], smooth=False)
        low, high = examination_interval(fit, log, n=150, seed=0)
        expected = fit(log).interval
        assert (low[0], high[0]) == (1, 1)
        width = np.log(high / low)[1:] / np.log(expected[1] / expected[0])[1:]
        assert ((width > 0.75) & (width < 1.3)).all()  # of 150 samples, with an error of 8 %
        middle = np.sqrt(low * high / (expected[0] * expected[1]))
        np.testing.assert_allclose(middle[1:], 1, atol=0.05)

    def test_of_resampled_queries_count_the_errors_of_predictions(self, fixed):
        sessions, queries = (
            examination_interval(METHODS["linear"], fixed, n=50, by=by, seed=0)
            for by in ("sessions", "queries")
        )
        assert (np.log(queries[1] / queries[0])[1:] > np.log(sessions[1] / sessions[0])[1:]).all()

    def test_of_resampling_have_their_level_and_seed(self, swapped):
        log = swapped.select(np.arange(2000))
        wide, narrow, again = (
            examination_interval(swap_bias, log, n=40, level=level, seed=3) for level in (0.9, 0.5, 0.5)
        )
        np.testing.assert_array_equal(narrow, again)
        assert ((wide[0] < narrow[0]) & (narrow[1] < wide[1]))[1:].all()

    def test_of_resampled_queries_draw_those_with_sessions(self):
        queries = Queries(np.zeros((400, 1)), np.zeros(400), np.repeat(np.arange(200), 2))
        log = ClickLog(queries, [0, 1, 1, 0, 6, 7, 9, 8], [1, 0] * 4, [0, 2, 4, 6, 8])
        drawn = []

        def fit(log, *, weight):
            drawn.append(weight)
            return USERS

        examination_interval(fit, log, n=40, by="queries", seed=0)
        weights = np.array(drawn)
        np.testing.assert_array_equal(weights[:, 0], weights[:, 1])  # sessions of one query
        assert (weights[:, 1:].sum(axis=1) == 3).all()  # of three queries
        assert (weights == 0).any()


class TestLaws:
    @every_method
    def test_weights_are_repeated_sessions(self, method, several):
        log = several[0].select(np.arange(6000))
        weight = np.random.default_rng(0).integers(0, 4, log.n_sessions)
        found = METHODS[method](log, weight=weight)
        expected = METHODS[method](log.select(np.repeat(np.arange(log.n_sessions), weight)))
        tol = 1e-6 if method == "linear" else 1e-9
        np.testing.assert_allclose(found.examination, expected.examination, rtol=tol)
        np.testing.assert_allclose(found.interval, expected.interval, rtol=tol)
        np.testing.assert_allclose(found.relevance, expected.relevance, rtol=1e-5)

    @every_method
    def test_weights_of_1_are_no_weights(self, method, several):
        log = several[0].select(np.arange(6000))
        found, expected = METHODS[method](log, weight=np.ones(6000)), METHODS[method](log)
        np.testing.assert_array_equal(found.examination, expected.examination)

    @every_method
    def test_the_order_of_sessions_and_documents_changes_nothing(self, method, several):
        log = several[0].select(np.arange(6000))
        expected = METHODS[method](log)
        rng = np.random.default_rng(0)
        order = rng.permutation(6000)
        of_sessions = METHODS[method](log.select(order))
        np.testing.assert_allclose(of_sessions.examination, expected.examination, atol=1e-9)
        order = rng.permutation(len(log.documents))
        table = Queries(log.documents.X[order], np.zeros(len(order)), log.documents.qid[order])
        other = METHODS[method](replace(log, documents=table, rows=np.argsort(order)[log.rows]))
        tol = 1e-6 if method == "linear" else 1e-9
        np.testing.assert_allclose(other.examination, expected.examination, atol=tol)
        np.testing.assert_allclose(other.interval, expected.interval, atol=tol)
        np.testing.assert_allclose(other.relevance, expected.relevance[order], atol=1e-5)

    @pytest.mark.parametrize("method", ["documents", "swaps", "harvest"])
    def test_the_unit_of_weights_does_not_change_the_unsmoothed_estimate(self, method, several):
        log = several[0].select(np.arange(6000))
        one, other = (METHODS[method](log, smooth=False, weight=np.full(6000, w)) for w in (1.0, 0.37))
        np.testing.assert_allclose(one.examination, other.examination, atol=1e-9)

    @every_method
    def test_without_smoothing_the_estimate_is_raw(self, method, several):
        log = several[0].select(np.arange(6000))
        raw, smooth = METHODS[method](log, smooth=False), METHODS[method](log)
        np.testing.assert_array_equal(raw.examination, raw.fitted.raw)
        np.testing.assert_array_equal(smooth.fitted.raw, raw.fitted.raw)
        assert (smooth.examination != raw.examination).any()
        low, high = raw.interval
        error = np.r_[0, np.sqrt(np.diag(raw.fitted.covariance))]
        np.testing.assert_allclose(low, raw.examination * np.exp(-1.959964 * error), rtol=1e-6)
        np.testing.assert_allclose(high, raw.examination * np.exp(1.959964 * error), rtol=1e-6)

    def test_units_of_features_do_not_matter(self, several):
        log = several[0].select(np.arange(6000))
        X = np.sign(log.documents.X)  # features of which logarithms are multiples
        tables = [
            Queries(X * unit, np.zeros(len(X)), log.documents.qid) for unit in ([1, 1, 1], [1e6, 1e-3, 7])
        ]
        one, other = (FIT(replace(log, documents=t), relevance="linear").examination for t in tables)
        np.testing.assert_allclose(one, other, atol=1e-6)


class LeastSquares(BaseEstimator):
    """A ranker of which only fit and predict are known."""

    def __init__(self, value=0.0):
        self.value = value

    def fit(self, X, y, *, qid):
        self.b_ = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
        return self

    def predict(self, X, *, qid):
        return np.column_stack([X, np.ones(len(X))]) @ self.b_ + self.value


class Opposite(LeastSquares):
    """A ranker that is wrong."""

    def predict(self, X, *, qid):
        return -super().predict(X, qid=qid)


class TestFeatures:
    def test_missing_values_are_the_average(self, several):
        log = several[0].select(np.arange(10_000))
        X = log.documents.X.copy()
        X[::7, 0] = np.nan
        X[:, 2] = np.nan
        table = Queries(X, np.zeros(len(X)), log.documents.qid, allow_nan=True)
        for relevance in ("linear", "trees"):
            assert close(FIT(replace(log, documents=table), relevance=relevance, smooth=False), most=0.2)

    def test_constant_features_beside_others_are_left_out(self, several):
        log = several[0].select(np.arange(6000))
        X = np.column_stack([np.full(len(log.documents), 7.0), log.documents.X])
        table = Queries(X, np.zeros(len(X)), log.documents.qid)
        one, other = (
            FIT(of_log, relevance="linear").examination for of_log in (log, replace(log, documents=table))
        )
        np.testing.assert_allclose(one, other, atol=1e-6)

    @pytest.mark.parametrize("ranker", [Opposite(), LeastSquares(1e9)])
    def test_scores_that_say_nothing_are_not_used(self, ranker, several):
        log = several[0].select(np.arange(10_000))
        assert close(FIT(log, relevance=ranker, smooth=False), most=0.2)

    def test_one_query(self):
        X = np.random.default_rng(0).normal(size=(8, 2))
        relevance = expit(X @ [1, 1] - 1)
        scores = np.random.default_rng(1).random((5, 8))
        users = PositionBasedModel(THETA[:3])
        log = simulate_clicks(documents(8, X), scores, 5000, users, relevance=relevance, k=3, seed=0)
        for relevance in ("documents", "linear", "trees", LeastSquares()):
            assert close(FIT(log, relevance=relevance, smooth=False), THETA[:3], most=0.2)


class TestEstimate:
    def test_auto_assumes_as_little_as_the_log_allows(self, several, fixed):
        log, _ = several
        assert estimate_position_bias(log).fitted.method == "harvest"
        one = log.select(log.policy == 0)
        assert one.policies == log.policies
        assert estimate_position_bias(one).fitted.method == "linear"
        assert estimate_position_bias(fixed).fitted.method == "linear"
        explored = replace(log, policy=None, policies=(), propensity=np.full(len(log), 0.5))
        assert estimate_position_bias(explored).fitted.method == "documents"

    @pytest.mark.parametrize("name", [NO_FEATURES, "price"])
    def test_auto_needs_no_features(self, several, name):
        log, _ = several
        n = len(log.documents)
        bare = Queries(np.zeros((n, 1)), np.zeros(n), log.documents.qid, feature_names=(name,))
        found = estimate_position_bias(replace(log, documents=bare, policy=None, policies=()))
        assert found.fitted.method == "documents"

    @pytest.mark.parametrize("method", ["harvest", "documents", "linear", "swaps"])
    def test_methods_are_those_of_the_functions(self, method, several):
        log = several[0].select(np.arange(6000))
        found, expected = estimate_position_bias(log, method), METHODS[method](log)
        np.testing.assert_array_equal(found.examination, expected.examination)
        assert found.fitted.method == method

    def test_wrong_methods(self, several):
        with pytest.raises(ValueError, match=r"method must be 'auto' or 'swaps' or .*; got 'em'"):
            estimate_position_bias(several[0], "em")


class TestModel:
    @pytest.mark.parametrize(
        "examination", [[], [1, 0], [0.0, 0.0], [1, np.nan], [1, -0.5], [1, np.inf], [[1.0, 0.5]], 1.0]
    )
    def test_examination_is_above_0(self, examination):
        with pytest.raises(ValueError, match="examination must have one finite number above 0 per position"):
            PositionBasedModel(examination)

    def test_propensities_are_the_examination_of_positions(self):
        p = USERS.propensities(log_of([[0, 1, 2], [2, 0]], [[0, 0, 1], [1, 0]]))
        assert p.slope.tolist() == [1.0, 0.6, 0.45, 1.0, 0.6]
        assert not p.intercept.any()

    def test_a_log_that_is_longer_than_the_model(self):
        log = log_of([[0, 1, 2]], [[0, 0, 1]])
        with pytest.raises(ValueError, match=r"the log has 3 positions, and the model 2; .*log\.first\(k\)"):
            PositionBasedModel([1, 0.5]).propensities(log)


SHOWN_TWICE = [[0, 1], [1, 0]] * 4
CLICKS = [[1, 0], [1, 0], [0, 1], [1, 1]] * 2


class TestErrors:
    @pytest.mark.parametrize("fit", [*METHODS.values(), TrustBiasModel.fit])
    def test_one_position(self, fit):
        log = log_of([[0], [1]], [[1], [0]], policy=[0, 1], policies=("a", "b"), X=[[0.0], [1.0]])
        with pytest.raises(ValueError, match=r"sessions of this log have one position each; .*Log all doc"):
            fit(log)

    @pytest.mark.parametrize("fit", [*METHODS.values(), TrustBiasModel.fit])
    def test_no_clicks(self, fit):
        log = log_of([[0, 1], [1, 0]], [[0, 0]] * 2, policy=[0, 1], policies=("a", "b"), X=[[0.0], [1.0]])
        with pytest.raises(ValueError, match=r"no impression of this log has a click; .*column of clicks"):
            fit(log)

    @pytest.mark.parametrize("fit", [*METHODS.values(), TrustBiasModel.fit])
    def test_a_position_without_clicks(self, fit):
        lists, clicks = [[0, 1, 2], [2, 0, 1], [1, 2, 0]] * 2, [[1, 0, 0], [0, 1, 0]] * 3
        of_rankers = {"policy": [0, 1] * 3, "policies": ("a", "b")}
        log = log_of(lists, clicks, X=[[0.0], [1.0], [2.0]], **of_rankers)
        with pytest.raises(
            ValueError, match=r"position 3 was shown 6 times and has no click.*log\.first\(2\)"
        ):
            fit(log)
        log = log_of(lists, [[0, 1, 1]] * 6, X=[[0.0], [1.0], [2.0]], **of_rankers)
        with pytest.raises(ValueError, match=r"position 1 was shown 6 times .*log sessions with such clicks"):
            fit(log)

    def test_one_fixed_ranker(self):
        log = log_of([[0, 1, 2]] * 4, [[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
        message = "no such documents connect the positions 2 and 3 with position 1: .*relevance='linear'"
        with pytest.raises(ValueError, match=message):
            FIT(log)
        with pytest.raises(ValueError, match="no clicked document was shown at position 1 and at the posi"):
            swap_bias(log)
        with pytest.raises(ValueError, match=r"the documents that|two clicked documents or more"):
            TrustBiasModel.fit(log)

    def test_swaps_that_leave_out_a_position(self):
        lists = [[0, 1, 2], [1, 0, 2], [0, 2, 1]] * 2
        log = log_of(lists, [[1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 1]])
        assert FIT(log).examination.shape == (3,)
        lists = [[0, 1, 3], [1, 0, 2], [0, 2, 3]] * 2
        log = log_of(lists, [[1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 1]])
        with pytest.raises(ValueError, match="no clicked document was shown at position 1 and at position 3"):
            swap_bias(log)

    def test_harvest_needs_two_rankers(self):
        log = log_of(SHOWN_TWICE, CLICKS)
        with pytest.raises(
            ValueError, match="sessions of several rankers, named by `policy`; got no `policy`"
        ):
            harvest_bias(log)
        with pytest.raises(ValueError, match=r"got sessions of one ranker only.*relevance='documents'"):
            harvest_bias(replace(log, policy=np.zeros(8, int), policies=("a", "b")))

    def test_harvest_needs_rankers_that_differ(self):
        log = log_of([[0, 1]] * 8, CLICKS, policy=[0, 1] * 4, policies=("a", "b"))
        with pytest.raises(ValueError, match="no clicked documents by which position 2 could be compared"):
            harvest_bias(log)

    @pytest.mark.parametrize("fit", [FIT, swap_bias, harvest_bias])
    def test_clicks_at_one_side_only(self, fit):
        # document 0 has clicks at position 1 only, and document 2 is shown at position 2 only
        log = log_of(
            [[0, 1], [3, 0], [1, 2]] * 3,
            [[1, 0], [0, 0], [0, 1]] * 3,
            policy=[0, 1, 0] * 3,
            policies=("a", "b"),
        )
        with pytest.raises(
            ValueError, match=r"too few clicks compare position 2 with position 1: .* 0 or inf"
        ):
            fit(log)

    @pytest.mark.parametrize("relevance", ["em", "Linear"])
    def test_names_of_relevance(self, relevance):
        with pytest.raises(ValueError, match="relevance must be 'documents' or 'linear' or 'trees'; got"):
            FIT(log_of(SHOWN_TWICE, CLICKS), relevance=relevance)

    @pytest.mark.parametrize("relevance", [None, 3, SinkPropRanker, np.zeros(2), ["linear"]])
    def test_relevance_is_a_name_or_a_ranker(self, relevance):
        with pytest.raises(ValueError, match=r"or a ranker with fit\(X, y, qid=\) and predict"):
            FIT(log_of(SHOWN_TWICE, CLICKS), relevance=relevance)

    def test_scores_that_are_not_numbers(self, several):
        with pytest.raises(ValueError, match="predict of LeastSquares must return one finite score per doc"):
            FIT(several[0], relevance=LeastSquares(np.nan))

    @pytest.mark.parametrize("relevance", ["linear", "trees", LeastSquares()])
    @pytest.mark.parametrize("value", [0.0, 7.0, np.nan])
    def test_features_that_tell_nothing(self, relevance, value):
        table = Queries(np.full((2, 1), value), [0, 0], [0, 0], allow_nan=True, feature_names=(NO_FEATURES,))
        log = replace(log_of(SHOWN_TWICE, CLICKS), documents=table)
        with pytest.raises(ValueError, match=r"all documents of the log have the same ones.*'documents'"):
            FIT(log, relevance=relevance)

    @pytest.mark.parametrize("fit", [*METHODS.values(), TrustBiasModel.fit])
    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ([1, 2], r"weight must have one number per session, \(8,\); got \(2,\)"),
            (np.ones((8, 1)), "weight must have one number per session"),
            (1.0, "weight must have one number per session"),
            ([1, 1, 1, 1, 1, 1, 1, -1], "weight must be finite, at least 0"),
            ([1, 1, 1, 1, 1, 1, 1, np.nan], "weight must be finite, at least 0"),
            ([0] * 8, "above 0 for one session or more"),
        ],
    )
    def test_weights(self, fit, weight, message):
        more = {"policy": [0, 1] * 4, "policies": ("a", "b"), "X": [[0.0], [1.0]]}
        with pytest.raises(ValueError, match=message):
            fit(log_of(SHOWN_TWICE, CLICKS, **more), weight=weight)

    @pytest.mark.parametrize(
        ("argument", "value", "message"),
        [
            ("smooth", 1, "smooth must be True or False; got 1"),
            ("max_iter", 0, "max_iter must be at least 1; got 0"),
            ("tol", -1.0, "tol must be a finite number, not below 0; got -1.0"),
        ],
    )
    def test_options(self, argument, value, message):
        with pytest.raises(ValueError, match=message):
            FIT(log_of(SHOWN_TWICE, CLICKS), **{argument: value})
        if argument == "smooth":
            for fit in (swap_bias, harvest_bias):
                with pytest.raises(ValueError, match=message):
                    fit(log_of(SHOWN_TWICE, CLICKS), smooth=value)

    @pytest.mark.parametrize(
        ("argument", "value", "message"),
        [
            ("n", 1, "n must be at least 2"),
            ("level", 1.0, "level must be below 1"),
            ("level", 0, "level must be a finite number, above 0"),
            ("by", "documents", "by must be 'sessions' or 'queries'"),
        ],
    )
    def test_options_of_resampling(self, argument, value, message):
        with pytest.raises(ValueError, match=message):
            examination_interval(FIT, log_of(SHOWN_TWICE, CLICKS), **{argument: value})

    def test_resampled_queries_of_a_log_of_one_query(self):
        with pytest.raises(
            ValueError, match=r'by="queries" needs sessions of two queries or more.*"sessions"'
        ):
            examination_interval(FIT, log_of(SHOWN_TWICE, CLICKS), by="queries")

    def test_a_position_that_samples_lose(self):
        lists = SHOWN_TWICE * 5 + [[0, 1, 2], [2, 0, 1]]
        clicks = CLICKS * 5 + [[1, 0, 1], [1, 0, 0]]
        log = log_of(lists, clicks)
        assert FIT(log).examination.shape == (3,)
        with pytest.raises(ValueError, match=r"resampled log.*connect position 3 with.* log\.first\(k\)"):
            examination_interval(FIT, log, n=50, seed=0)
