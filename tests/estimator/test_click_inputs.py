"""Rankers fitted to click logs: the same models as fits to the debiased labels."""

import numpy as np
import pytest

from sinkprop import NDCG, Queries, SinkPropRanker, load_model
from sinkprop.baselines import LightGBMRanker, ListNetRanker, RegressionRanker, SmoothRankRanker
from sinkprop.clicks import (
    ClickLog,
    DebiasedClicks,
    PositionBasedModel,
    click_relevance,
    debias,
    simulate_clicks,
)
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


def gain_of(ranker):
    """Gain of a ranker, "" for a squared error."""
    return "" if isinstance(ranker, RegressionRanker) else getattr(ranker, "gain", None)


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

    gain = {"rbp@0.8": "linear", "linear": "linear", "": "linear"}.get(gain_of(ranker), "exponential")
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


def test_a_squared_error_is_of_the_estimates_themselves():
    # Document 1 of each query is better, and examined so rarely that its estimates vary a lot: the mean of
    # their logarithms is less than that of the other document.
    n = 4000
    documents = Queries(np.tile(np.eye(2), (n, 1)), np.zeros(2 * n), np.repeat(np.arange(n), 2))
    relevance = np.tile([0.30, 0.32], n)
    users = PositionBasedModel([1, 0.1])
    log = simulate_clicks(documents, np.tile([1, 0], n), 40 * n, users, relevance=relevance, k=2, seed=3)
    clicks = debias(log, users, method="inverse propensity", clip=0.0)
    labels = clicks.queries().y.reshape(n, 2).mean(axis=0)
    assert labels[0] > labels[1]
    assert np.diff(RegressionRanker().fit(clicks).predict(np.eye(2))) > 0


def test_a_squared_error_gets_one_shift_for_all_queries():
    log = ClickLog(QUERIES.select([1, 2]), rows=[0, 1, 30], clicked=[0, 1, 1], offsets=[0, 2, 3])
    clicks = DebiasedClicks(
        log, None, "inverse propensity", np.r_[-0.5, 0.25, 1, np.full(len(log.documents) - 3, np.nan)],
        np.ones(len(log.documents)), np.ones(2), 0.0, None,
    )  # fmt: skip
    np.testing.assert_allclose(clicks.queries(NDCG(gain="linear"), shift="log").y, [0, 0.75, 1.5])


@pytest.mark.parametrize("metric", ["map", "p@5", "err", "rbp(threshold=1)@0.8"])
def test_metrics_that_count_grades_are_refused(metric, clicks):
    with pytest.raises(ValueError, match="metric: clicks give estimates of relevance, not grades"):
        SinkPropRanker(metric=metric).fit(clicks)


def test_a_log_does_not_evaluate_a_fit_to_labels(clicks):
    with pytest.raises(ValueError, match="eval_set is a click log, but the training data have labels"):
        SinkPropRanker().fit(QUERIES, eval_set=clicks.log)


def test_an_error_of_an_evaluation_log_names_it(clicks):
    longer = simulate_clicks(QUERIES, QUERIES.X[:, 1], 500, USERS, k=30, seed=1)
    of_twenty = debias(clicks.log, PositionBasedModel(1 / np.arange(1.0, 21)))
    with pytest.raises(ValueError, match="eval_set: the log has 30 positions, and the model 20"):
        SinkPropRanker().fit(of_twenty, eval_set=longer)
