"""Simulated logs: what they refuse. Fits to logs whose sessions have weights, and likelihoods of logs."""

from functools import partial

import numpy as np
import pytest

from sinkprop import Queries
from sinkprop.clicks import (
    CascadeModel,
    ClickLog,
    ClickModel,
    DependentClickModel,
    PositionBasedModel,
    TrustBiasModel,
    estimate_position_bias,
    examination_interval,
    harvest_bias,
    simulate_clicks,
    swap_bias,
)
from sinkprop.clicks.estimation import BIAS_METHODS
from sinkprop.datasets import make_ranking

QUERIES = Queries(np.eye(5), [0, 1, 2, 0, 1], [0, 0, 0, 1, 1])
SCORES = np.arange(5.0)
USERS = PositionBasedModel([1, 0.5, 0.25])


class TestRefusals:
    @pytest.mark.parametrize(
        ("relevance", "message"),
        [
            (np.zeros(4), r"relevance must have one number per document, \(5,\); got \(4,\)"),
            (np.zeros(6), r"relevance must have one number per document, \(5,\); got \(6,\)"),
            (np.zeros((5, 1)), r"one probability from 0 to 1 per document; got shape \(5, 1\)"),
            (0.5, r"one probability from 0 to 1 per document; got shape \(\)"),
            ([0, 0, np.nan, 0, 0], "one probability from 0 to 1 per document; got nan"),
            ([0, 5.0, 0, 0, 0], "one probability from 0 to 1 per document; got 5.0"),
            ([0, 0, 0, 0, -0.1], "one probability from 0 to 1 per document; got -0.1"),
        ],
    )
    def test_relevance(self, relevance, message):
        with pytest.raises(ValueError, match=message):
            simulate_clicks(QUERIES, SCORES, 10, USERS, relevance=relevance, seed=0)

    @pytest.mark.parametrize(
        ("scores", "message"),
        [
            ([0, 1, 2, np.nan, 4], "that of row 3 by ranker 0 is nan"),
            ([[0, 1, 2, 3, 4], [np.nan, 1, 2, 3, 4]], "that of row 0 by ranker 1 is nan"),
            ([0, 1, 2], r"scores must have the shape \(5,\) or \(P, 5\)"),
            (np.zeros((0, 5)), r"scores must have the shape \(5,\) or \(P, 5\)"),
        ],
    )
    def test_scores(self, scores, message):
        with pytest.raises(ValueError, match=message):
            simulate_clicks(QUERIES, scores, 10, USERS, seed=0)

    @pytest.mark.parametrize(
        "model",
        [
            PositionBasedModel([1, 0.5]),
            TrustBiasModel([0.8, 0.4], [0.1, 0.1]),
            DependentClickModel([0.5]),
        ],
    )
    def test_models_with_too_few_positions(self, model):
        with pytest.raises(ValueError, match=r"positions.* sessions of 3"):
            simulate_clicks(QUERIES, SCORES, 100, model, seed=0)
        assert simulate_clicks(QUERIES, SCORES, 100, model, k=2, seed=0).longest == 2

    def test_the_limits_of_what_is_accepted(self):
        best = [-np.inf, 0, np.inf, 1, 2]
        log = simulate_clicks(QUERIES, best, 50, PositionBasedModel(np.ones(3)), relevance=[0, 1, 0, 1, 0])
        assert {tuple(log.rows[a:b]) for a, b in zip(log.offsets, log.offsets[1:], strict=False)} == {
            (2, 1, 0),
            (4, 3),
        }
        np.testing.assert_array_equal(log.clicked, np.isin(log.rows, [1, 3]))
        # the cascade holds no values per position, so that sessions of any length can be drawn
        fitted = CascadeModel([0.5] * 5, examination=[1, 0.5])
        assert simulate_clicks(QUERIES, SCORES, 50, fitted, seed=0).longest == 3


@pytest.fixture(scope="module")
def log():
    """Sessions of two rankers, of which documents are exchanged too."""
    queries = make_ranking(40, sizes=(3, 3), random_state=0)
    scores = queries.X[:, [0, 8]].T
    return simulate_clicks(queries, scores, 6000, USERS, swaps="pairs", policies=["old", "new"], seed=1)


class TestWeights:
    @pytest.mark.parametrize("method", BIAS_METHODS)
    def test_position_bias_of_weighted_sessions_is_that_of_repeated_ones(self, log, method):
        weight = np.random.default_rng(0).integers(0, 3, log.n_sessions)
        found = estimate_position_bias(log, method, weight=weight)
        repeated = estimate_position_bias(log.select(np.repeat(np.arange(log.n_sessions), weight)), method)
        assert found.fitted.method == repeated.fitted.method
        # sums in another order change the splits of trees
        tol = 1e-2 if method == "trees" else 1e-5
        np.testing.assert_allclose(found.examination, repeated.examination, rtol=tol)
        assert not np.allclose(found.examination, estimate_position_bias(log, method).examination, rtol=1e-4)

    def test_the_method_does_not_depend_on_the_weights(self, log):
        one_ranker = (log.policy == 0).astype(float)
        assert estimate_position_bias(log, weight=one_ranker).fitted.method == "harvest"

    def test_intervals_of_the_estimate_are_those_of_its_method(self, log):
        found, expected = (
            examination_interval(fit, log, n=5, seed=0) for fit in (estimate_position_bias, harvest_bias)
        )
        np.testing.assert_array_equal(found, expected)
        assert (found[0] < found[1])[1:].all()
        fit = partial(estimate_position_bias, method="swaps")
        np.testing.assert_array_equal(
            examination_interval(fit, log, n=5, seed=0), examination_interval(swap_bias, log, n=5, seed=0)
        )

    def test_queries_are_not_resampled_if_there_is_only_one(self, log):
        of_one = log.select(log.queries == log.queries[0])
        with pytest.raises(ValueError, match=r'by="queries" needs sessions of two .* Use by="sessions"'):
            examination_interval(harvest_bias, of_one, n=5, by="queries", seed=0)
        low, high = examination_interval(harvest_bias, of_one.first(2), n=5, seed=0)
        assert low[1] < high[1]
        of_two = log.select(np.isin(log.queries, log.queries[:2]))
        assert (
            np.ptp(examination_interval(harvest_bias, of_two.first(2), n=5, by="queries", seed=0)[:, 1]) > 0
        )


class TestLikelihood:
    LOG = ClickLog(QUERIES, [2, 0, 1, 3], [1, 0, 1, 0], [0, 3, 4])
    RELEVANCE = (0.25, 0.5, 0.75, 0.125, 0.0)

    @pytest.mark.parametrize(
        "model", [USERS, DependentClickModel([0.5, 0.5]), TrustBiasModel([0.8, 0.4, 0.2], [0.1, 0.05, 0.01])]
    )
    @pytest.mark.parametrize("kind", [list, tuple, np.float32])
    def test_of_relevance_of_any_kind(self, model, kind):
        expected = model.log_likelihood(self.LOG, np.array(self.RELEVANCE))
        assert model.log_likelihood(self.LOG, kind(self.RELEVANCE)) == expected
        assert model.perplexity(self.LOG, kind(self.RELEVANCE)).tolist() == (
            model.perplexity(self.LOG, np.array(self.RELEVANCE)).tolist()
        )

    def test_of_a_session_by_hand(self):
        p = [0.75, 1 - 0.5 * 0.25, 0.25 * 0.5, 1 - 0.125]
        assert USERS.log_likelihood(self.LOG, list(self.RELEVANCE)) == pytest.approx(np.log(p).mean())

    def test_documents_that_are_not_shown_may_be_unknown(self):
        unknown = [*self.RELEVANCE[:4], np.nan]
        assert USERS.log_likelihood(self.LOG, unknown) == USERS.log_likelihood(self.LOG, self.RELEVANCE)

    @pytest.mark.parametrize(
        ("relevance", "message"),
        [
            ([0.5] * 4, r"one number per document of the log, \(5,\); got \(4,\)"),
            ([[0.5] * 5], r"one number per document of the log, \(5,\); got \(1, 5\)"),
            (0.5, r"one number per document of the log, \(5,\); got \(\)"),
            ([0.5, np.nan, 0.5, 0.5, 0.5], "that of row 1 is nan"),
            ([0.5, 0.5, 0.5, np.inf, 0.5], "that of row 3 is inf"),
        ],
    )
    def test_refuses(self, relevance, message):
        assert isinstance(USERS, ClickModel)
        for method in (USERS.log_likelihood, USERS.perplexity):
            with pytest.raises(ValueError, match=message):
                method(self.LOG, relevance)
