"""The dependent click model against enumeration of where the user leaves, and a general optimizer."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from sinkprop import Queries
from sinkprop.clicks import ClickLog, simulate_clicks
from sinkprop.clicks.models.cascade import CascadeModel
from sinkprop.clicks.models.dependent_click import DependentClickModel


def documents(n):
    return Queries(np.zeros((n, 1)), np.zeros(n), qid=np.zeros(n, dtype=int))


def left_after(clicks, relevance, continuation):
    """Probability of the clicks of a session and of leaving after each of its positions, (n,).

    `relevance` is that of the documents shown. Those who never leave leave after the last position.
    """
    joint = []
    for end in range(1, len(clicks) + 1):
        p = 1.0
        for i in range(end):
            p *= relevance[i] if clicks[i] else 1 - relevance[i]
            if i < end - 1:
                p *= continuation[i] if clicks[i] else 1
        leaves = 1.0 if end == len(clicks) else (1 - continuation[end - 1]) * clicks[end - 1]
        joint.append(p * leaves * (not any(clicks[end:])))
    return np.array(joint)


def session(clicks, rows=None):
    n = len(clicks)
    return ClickLog(documents(n), np.arange(n) if rows is None else rows, list(clicks), [0, n])


def random_log(seed=0, n=5, size=300, K=4):
    rng = np.random.default_rng(seed)
    truth = DependentClickModel(rng.uniform(0.3, 0.9, K - 1))
    scores = rng.normal(size=(6, n))
    log = simulate_clicks(
        documents(n), scores, size, truth, relevance=rng.uniform(0.1, 0.8, n), k=K, seed=seed
    )
    shorter = np.minimum(rng.integers(1, K + 1, size), log.sizes)  # sessions of all lengths
    kept = log.positions <= np.repeat(shorter, log.sizes)
    return ClickLog(
        log.documents, log.rows[kept], log.clicked[kept], np.concatenate([[0], np.cumsum(shorter)])
    )


relevances = st.lists(st.floats(0.01, 0.99), min_size=5, max_size=5)


@given(st.integers(1, 5), relevances, relevances)
def test_probabilities_of_all_sessions(n, relevance, continuation):
    total = 0.0
    for clicks in itertools.product([False, True], repeat=n):
        log = session(clicks)
        model = DependentClickModel(continuation[: n - 1], relevance[:n])
        p = np.exp(n * model.log_likelihood(log))
        assert p == pytest.approx(left_after(clicks, relevance, continuation).sum(), rel=1e-6, abs=1e-12)
        total += p
    assert total == pytest.approx(1, rel=1e-6)


@given(st.lists(st.booleans(), min_size=1, max_size=5), relevances, relevances)
def test_propensities_are_the_posterior_of_still_reading(clicks, relevance, continuation):
    model = DependentClickModel(continuation, relevance[: len(clicks)])
    slope = model.propensities(session(clicks)).slope
    for i in range(len(clicks)):
        joint = left_after(clicks[:i], relevance, continuation) if i else np.ones(1)
        reads_on = joint[-1] * (continuation[i - 1] if i and clicks[i - 1] else 1)
        assert slope[i] == pytest.approx(reads_on / joint.sum(), rel=1e-9)


def test_examination_returns_only_with_a_click():
    model = DependentClickModel([0.5, 0.5, 0.5], [0.5] * 4)
    # after the first click 1/2; not clicked: 1/4 to 1/2 is 1/3
    assert model.propensities(session([1, 0, 0, 0])).slope == pytest.approx([1, 1 / 2, 1 / 3, 1 / 5])
    assert model.propensities(session([1, 0, 1, 0])).slope == pytest.approx([1, 1 / 2, 1 / 3, 1 / 2])


def test_certain_relevance_and_continuation():
    assert (
        DependentClickModel([1.0, 1.0], [1.0] * 3).propensities(session([0, 1, 0])).slope.tolist() == [1] * 3
    )
    stopped = DependentClickModel([0.5, 0.5], [0.2, 1.0, 0.2]).propensities(session([1, 0, 0])).slope
    assert stopped == pytest.approx([1, 0.5, 0], abs=1e-9)


def test_no_continuation_is_the_cascade_model():
    users = CascadeModel()
    log = simulate_clicks(documents(4), [3, 2, 1, 0], 50, users, relevance=[0.2, 0.3, 0.5, 0.1], seed=0)
    model = DependentClickModel(np.zeros(3), [0.2, 0.3, 0.5, 0.1])
    assert model.propensities(log).slope.tolist() == users.propensities(log).slope.tolist()


def objective(parameters, log, average):
    """Minus the log likelihood, session by session, and one observation for each parameter."""
    p = 1 / (1 + np.exp(-parameters))
    r, c = p[: len(log.documents)], p[len(log.documents) :]
    value = (average * np.log(r) + (1 - average) * np.log1p(-r)).sum() + (np.log(c) + np.log1p(-c)).sum() / 2
    for s in range(log.n_sessions):
        rows = log.rows[log.offsets[s] : log.offsets[s + 1]]
        value += np.log(left_after(log.clicked[log.offsets[s] : log.offsets[s + 1]], r[rows], c).sum())
    return -value


def average_down_to_the_last_click(log):
    seen = 0
    for s in range(log.n_sessions):
        clicked = log.clicked[log.offsets[s] : log.offsets[s + 1]]
        seen += np.flatnonzero(clicked)[-1] + 1 if clicked.any() else len(clicked)
    return log.n_clicks / seen


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_the_maximum_that_an_optimizer_finds(seed):
    log = random_log(seed, size=100)
    arguments = (log, average_down_to_the_last_click(log))
    best = minimize(objective, np.zeros(8), args=arguments, method="BFGS", options={"gtol": 1e-4})
    model = DependentClickModel.fit(log)
    found = np.concatenate([model.relevance, model.continuation])
    assert found == pytest.approx(1 / (1 + np.exp(-best.x)), abs=1e-4)


def test_weights_are_repeated_sessions():
    log = random_log()
    times = np.random.default_rng(0).poisson(1.0, log.n_sessions)
    repeated = log.select(np.repeat(np.arange(log.n_sessions), times))
    model, other = DependentClickModel.fit(log, weight=times), DependentClickModel.fit(repeated)
    assert model.relevance == pytest.approx(other.relevance, rel=1e-9)
    assert model.continuation == pytest.approx(other.continuation, rel=1e-9)
    assert model.examination_curve() == pytest.approx(other.examination_curve(), rel=1e-9)


def test_simulated_clicks_give_back_the_parameters():
    truth = DependentClickModel([0.9, 0.7, 0.5, 0.3])
    relevance = np.array([0.1, 0.3, 0.5, 0.7, 0.2])
    scores = np.random.default_rng(0).normal(size=(10, 5))
    log = simulate_clicks(documents(5), scores, 100_000, truth, relevance=relevance, seed=0)
    model = DependentClickModel.fit(log)
    assert model.relevance == pytest.approx(relevance, abs=0.02)
    assert model.continuation == pytest.approx(truth.continuation, abs=0.04)


def test_the_curve_is_the_probability_of_examination():
    relevance, continuation = np.array([0.6, 0.4, 0.5]), np.array([0.7, 0.2])
    log = simulate_clicks(
        documents(3), [3, 2, 1], 50_000, DependentClickModel(continuation), relevance=relevance, seed=0
    )
    second = 1 - 0.6 * (1 - 0.7)
    third = second * (1 - 0.4 * (1 - 0.2))
    curve = DependentClickModel.fit(log).examination_curve()
    assert curve == pytest.approx([1, second, third], abs=0.02)


def test_draws_have_the_probabilities_of_enumeration():
    relevance, continuation, size = np.array([0.5, 0.4, 0.7]), np.array([0.6, 0.3]), 20_000
    model = DependentClickModel(continuation)
    clicked = model.draw(np.tile(relevance, size), np.arange(0, 3 * size + 1, 3), np.random.default_rng(0))
    found = np.bincount(clicked.reshape(-1, 3) @ [4, 2, 1], minlength=8) / size
    every = itertools.product([False, True], repeat=3)
    expected = [left_after(clicks, relevance, continuation).sum() for clicks in every]
    assert found == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(size))


def test_held_out_sessions_with_documents_never_shown_have_probabilities():
    table = documents(4)
    train = ClickLog(table, [0, 1, 1, 0], [1, 0, 1, 1], [0, 2, 4])
    held_out = ClickLog(table, [3, 2], [0, 1], [0, 2])
    model = DependentClickModel.fit(train)
    assert (
        model.relevance[2] == model.relevance[3] == 1.0
    )  # all impressions down to the last click are clicked
    more = DependentClickModel.fit(ClickLog(table, [0, 1, 1, 0], [1, 0, 0, 1], [0, 2, 4]))
    assert more.relevance[2] == pytest.approx(2 / 3)
    assert np.isfinite(more.log_likelihood(held_out))


def test_given_relevance_counts_for_examination_too():
    log = session([1, 0, 0])
    one, two = np.array([0.5, 0.2, 0.5]), np.array([0.5, 0.9, 0.5])
    given = DependentClickModel([0.5, 0.5], one).probabilities(log, two)
    assert given == pytest.approx(DependentClickModel([0.5, 0.5], two).probabilities(log))


class TestErrors:
    def test_one_position(self):
        with pytest.raises(ValueError, match="one position only"):
            DependentClickModel.fit(ClickLog(documents(2), [0, 1], [0, 1], [0, 1, 2]))

    def test_no_clicks(self):
        with pytest.raises(ValueError, match="no session has a click"):
            DependentClickModel.fit(session([0, 0]))

    def test_more_positions_than_the_model(self):
        with pytest.raises(ValueError, match=r"continuation has 1 positions.*log\.first\(2\)"):
            DependentClickModel([0.5], [0.5] * 3).propensities(session([0, 0, 0]))
        with pytest.raises(ValueError, match="continuation has 1 positions"):
            DependentClickModel([0.5]).draw(np.ones(3), np.array([0, 3]), np.random.default_rng(0))

    @pytest.mark.parametrize("relevance", [None, [0.5]])
    def test_relevance_of_other_documents(self, relevance):
        with pytest.raises(ValueError, match="relevance must have one number per document of the log"):
            DependentClickModel([0.5], relevance).propensities(session([0, 0]))

    @pytest.mark.parametrize("continuation", [[1.5], [np.nan], 0.5])
    def test_continuation(self, continuation):
        with pytest.raises(ValueError, match="continuation must have"):
            DependentClickModel(continuation)

    def test_curve_without_a_log(self):
        with pytest.raises(ValueError, match=r"DependentClickModel\.fit"):
            DependentClickModel([0.5]).examination_curve()
