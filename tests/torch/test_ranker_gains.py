"""NeuralRanker on gains that are not rank-linear: fits, label columns, arrays in the gain, model files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("torch")

from sinkprop import ERR, NDCG, AlphaNDCG, ColumnGain, ExposureGap, evaluate, load_model
from sinkprop.datasets import make_ranking
from sinkprop.torch import MLP, NeuralRanker

FAST = {"network": MLP((8,)), "max_epochs": 4, "random_state": 0, "verbose": False}


@pytest.fixture(scope="module")
def queries():
    return make_ranking(n_queries=40, random_state=0)


def test_a_network_is_trained_on_the_metric(queries, tmp_path):
    ranker = NeuralRanker(gain="map", **FAST).fit(queries)
    assert ranker.fit_result_.criterion == "map"
    ranker.save(tmp_path / "network.model")
    loaded = load_model(tmp_path / "network.model")
    assert loaded.gain == "map"
    assert_array_equal(loaded.predict(queries), ranker.predict(queries))


def test_err_takes_its_highest_grade_from_all_training_labels(queries):
    implicit = NeuralRanker(gain="err@10", **FAST).fit(queries)
    stated = NeuralRanker(gain=ERR(10, max_label=queries.y.max()), **FAST).fit(queries)
    assert_array_equal(implicit.predict(queries), stated.predict(queries))


def test_label_columns_and_arrays_in_the_gain_train_the_same_network(queries):
    groups = np.random.default_rng(0).integers(0, 2, len(queries))
    by_column = NeuralRanker(gain=NDCG(10) - 0.5 * ExposureGap(1), **FAST)
    by_column.fit(queries.X, np.stack([queries.y, groups], axis=1), qid=queries.qid)
    by_array = NeuralRanker(gain=NDCG(10) - 0.5 * ExposureGap(groups), **FAST).fit(queries)
    assert_array_equal(by_column.predict(queries), by_array.predict(queries))
    with pytest.raises(ValueError, match="holds an array with one row per training document, and eval_set"):
        by_array.fit(queries, eval_set=queries)


def test_diversity_and_custom_gains(queries):
    intents = np.stack([queries.y > 1, queries.X[:, 0] > 0], axis=1) * 1.0
    ranker = NeuralRanker(gain=AlphaNDCG(10), **FAST)
    ranker.fit(queries.X, intents, qid=queries.qid, eval_set=[(queries.X, intents)], eval_qid=[queries.qid])
    found = evaluate(intents, ranker.predict(queries), queries.qid, "alphandcg@10")["alphandcg@10"]
    assert found == pytest.approx(max(epoch.criterion for epoch in ranker.fit_result_.epochs), abs=1e-6)
    own = ColumnGain(attributes=lambda y: (y > 0) * 1.0, function=lambda R: R[:5].sum() / 5)
    assert NeuralRanker(gain=own, **FAST).fit(queries).fit_result_.criterion == "gain"
