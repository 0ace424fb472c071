"""The cascade model: propensities and estimates against counts made by hand, and the clicks it draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import Queries
from sinkprop.clicks import ClickLog, simulate_clicks
from sinkprop.clicks.models.cascade import CascadeModel
from sinkprop.clicks.models.sequences import clicks_above


def documents(n):
    return Queries(np.zeros((n, 1)), np.zeros(n), qid=np.zeros(n, dtype=int))


def small_log():
    """Sessions 0 1 2 with a click on 1, 0 1 2 with a click on 2, and 1 3 without clicks; 4 is never shown."""
    return ClickLog(documents(5), [0, 1, 2, 0, 1, 2, 1, 3], [0, 1, 0, 0, 0, 1, 0, 0], [0, 3, 6, 8])


def test_propensities_are_1_down_to_the_first_click():
    p = CascadeModel().propensities(small_log())
    assert p.slope.tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    assert not p.intercept.any()


def test_relevance_is_clicks_by_examined_impressions_with_one_average_impression():
    average = 2 / 7
    expected = [average / 3, (1 + average) / 4, (1 + average) / 2, average / 2, average]
    model = CascadeModel.fit(small_log())
    assert model.relevance == pytest.approx(expected, rel=1e-14)
    assert model.examination_curve() == pytest.approx([1, 1, 1 / 2], rel=1e-14)


def test_weights_are_repeated_sessions():
    log = small_log()
    repeated = log.select(np.array([0, 0, 0, 2]))
    model, other = CascadeModel.fit(log, weight=[3, 0, 1]), CascadeModel.fit(repeated)
    assert model.relevance == pytest.approx(other.relevance, rel=1e-14)
    assert model.examination_curve() == pytest.approx(other.examination_curve(), rel=1e-14)


def test_probabilities_of_sessions_sum_to_one():
    relevance = np.array([0.2, 0.9, 0.4])
    total = 0.0
    for first in range(4):  # the position of the click, or none
        clicked = np.arange(3) == first
        log = ClickLog(documents(3), [2, 0, 1], clicked, [0, 3])
        total += np.exp(3 * CascadeModel(relevance).log_likelihood(log))
    assert total == pytest.approx(1, rel=1e-9)


def test_simulated_clicks_give_back_the_relevance():
    truth = np.array([0.3, 0.8, 0.1, 0.5])
    scores = np.random.default_rng(0).normal(size=(8, 4))
    log = simulate_clicks(documents(4), scores, 40_000, CascadeModel(), relevance=truth, seed=1)
    assert np.add.reduceat(log.clicked, log.offsets[:-1], dtype=int).max() == 1
    model = CascadeModel.fit(log)
    examined = np.bincount(log.rows, model.propensities(log).slope)
    assert np.abs(model.relevance - truth).max() < 5 * np.sqrt(0.25 / examined.min())


def test_draws_have_the_probabilities():
    relevance, size = np.array([0.5, 0.2, 0.7]), 20_000
    rng = np.random.default_rng(0)
    clicked = CascadeModel().draw(np.tile(relevance, size), np.arange(0, 3 * size + 1, 3), rng)
    expected = relevance * [1, 0.5, 0.5 * 0.8]
    assert clicked.reshape(-1, 3).mean(axis=0) == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(size))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=6))
def test_clicks_above_are_counted_session_by_session(sessions):
    expected = [sum(s[:i]) for s in sessions for i in range(len(s))]
    offsets = np.cumsum([0] + [len(s) for s in sessions])
    assert clicks_above(np.concatenate(sessions), offsets).tolist() == expected


def test_one_document():
    model = CascadeModel.fit(ClickLog(documents(1), [0], [1], [0, 1]))
    assert model.relevance.tolist() == [1.0]
    assert model.examination_curve().tolist() == [1.0]


class TestErrors:
    def test_several_clicks_advise_the_dependent_click_model(self):
        log = ClickLog(documents(3), [0, 0, 1, 2], [0, 1, 1, 1], [0, 1, 4])
        with pytest.raises(ValueError, match=r"session 1 has several clicks.* 2 clicks.*DependentClickModel"):
            CascadeModel.fit(log)

    def test_no_clicks(self):
        with pytest.raises(ValueError, match="no session has a click"):
            CascadeModel.fit(ClickLog(documents(2), [0, 1], [0, 0], [0, 2]))
        with pytest.raises(ValueError, match="no session has a click"):
            CascadeModel.fit(small_log(), weight=[0, 0, 1])

    @pytest.mark.parametrize("weight", [[1, 2], [1, 1, -1], [0, 0, 0], [1, np.nan, 1], 1.0])
    def test_weights(self, weight):
        with pytest.raises(ValueError, match="weight must"):
            CascadeModel.fit(small_log(), weight=weight)

    @pytest.mark.parametrize("relevance", [[0.1, 1.2], [np.nan], [[0.5]]])
    def test_relevance(self, relevance):
        with pytest.raises(ValueError, match="relevance must have one probability"):
            CascadeModel(relevance)

    def test_curve_without_a_log(self):
        with pytest.raises(ValueError, match=r"CascadeModel\.fit"):
            CascadeModel().examination_curve()
