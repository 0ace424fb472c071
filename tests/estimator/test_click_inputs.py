"""Rankers fitted to click logs: the same models as fits to the debiased labels."""

import numpy as np
import pytest

from sinkprop import SinkPropRanker, load_model
from sinkprop.baselines import LightGBMRanker, ListNetRanker, RegressionRanker, SmoothRankRanker
from sinkprop.clicks import PositionBasedModel, click_relevance, debias, simulate_clicks
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker

QUERIES = make_ranking(40, random_state=1)
USERS = PositionBasedModel(1 / np.arange(1.0, 121))


@pytest.fixture(scope="module")
def clicks():
    log = simulate_clicks(
        QUERIES, QUERIES.X[:, 1], 4000, USERS, relevance=click_relevance(QUERIES.y), k=20, seed=0
    )
    return debias(log, USERS)


@pytest.mark.parametrize(
    "ranker",
    [
        SinkPropRanker(max_iter=5),
        SinkPropRanker(gain="rbp@0.8", max_iter=5),
        BoostedRanker(n_estimators=5),
        ListNetRanker(),
        RegressionRanker(),
        SmoothRankRanker(),
        LightGBMRanker(n_estimators=5),
    ],
    ids=lambda ranker: f"{type(ranker).__name__} {getattr(ranker, 'gain', '')}",
)
def test_a_fit_to_clicks_is_the_fit_to_their_labels(ranker, clicks):
    from sklearn.base import clone

    gain = {"rbp@0.8": "linear", "linear": "linear"}.get(getattr(ranker, "gain", None), "exponential")
    queries = clicks.queries()
    if gain == "linear":
        queries = type(queries)(queries.X, 2**queries.y - 1, queries.qid, feature_names=queries.feature_names)
    of_log = clone(ranker).fit(clicks)
    of_labels = clone(ranker).fit(queries, query_weight=clicks.query_weight)
    np.testing.assert_allclose(of_log.predict(QUERIES), of_labels.predict(QUERIES), rtol=1e-6, atol=1e-9)
    assert of_log.clicks_["sessions"] == 4000
    assert of_labels.clicks_ is None


def test_networks_take_clicks(clicks):
    pytest.importorskip("torch")
    from sinkprop.torch import NeuralRanker

    ranker = NeuralRanker(max_epochs=2, random_state=0)
    of_log = ranker.fit(clicks).predict(QUERIES)
    of_labels = ranker.fit(clicks.queries(), query_weight=clicks.query_weight).predict(QUERIES)
    np.testing.assert_array_equal(of_log, of_labels)


def test_a_later_fit_to_labels_forgets_the_clicks(clicks, tmp_path):
    ranker = SinkPropRanker(max_iter=3).fit(clicks)
    assert ranker.clicks_["method"] == "doubly robust"
    assert not hasattr(ranker, "predict_proba")  # estimates from clicks do not calibrate probabilities
    ranker.save(tmp_path / "clicks.model")
    assert load_model(tmp_path / "clicks.model").clicks_ == ranker.clicks_
    ranker.fit(QUERIES)
    assert ranker.clicks_ is None


def test_logs_as_evaluation_sets_get_labels_from_the_same_click_model(clicks):
    held_out = clicks.log.select(np.arange(500))
    ranker = BoostedRanker(n_estimators=5)
    of_log = ranker.fit(clicks, eval_set=held_out).predict(QUERIES)
    labels = debias(held_out, USERS, clip=clicks.clip)
    of_labels = ranker.fit(clicks, eval_set=[labels.queries()]).predict(QUERIES)
    np.testing.assert_array_equal(of_log, of_labels)


@pytest.mark.parametrize("name", ["y", "qid", "group", "sample_weight", "query_weight"])
def test_a_log_comes_without_labels_ids_and_weights(name, clicks):
    with pytest.raises(ValueError, match=f"{name} is already in the click log"):
        SinkPropRanker().fit(clicks, **{name: np.ones(3)})
