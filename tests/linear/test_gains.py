"""Linear rankers on gains that are not rank-linear: fits, label columns, stored sets, model files, errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sinkprop import (
    ERR,
    NDCG,
    AlphaNDCG,
    AveragePrecision,
    ColumnGain,
    ExposureGap,
    SinkPropRanker,
    evaluate,
    load_model,
    save_letor,
    store,
)
from sinkprop.baselines import BoltzRankRanker, RegressionRanker, SoftRankRanker
from sinkprop.datasets import make_ranking

FAST = {"penalty": (1e-2, 1e-3), "max_iter": 10, "verbose": False, "random_state": 0}


@pytest.fixture(scope="module")
def queries():
    return make_ranking(n_queries=60, random_state=0)


@pytest.mark.parametrize("gain", ["map", "mrr@10", "err@10", "recall@5", "f@5", "0.5*ndcg@10 + 0.5*map"])
def test_a_ranker_is_trained_on_the_metric_and_chosen_by_it(queries, gain, tmp_path):
    ranker = SinkPropRanker(gain=gain, **FAST).fit(queries)
    assert ranker.fit_result_.criterion.startswith(gain.split("@", maxsplit=1)[0].split("*")[0][:3])
    assert ranker.score(queries) > evaluate(queries, queries.X[:, 0])["ndcg@10"]
    ranker.save(tmp_path / "linear.model")
    loaded = load_model(tmp_path / "linear.model")
    assert loaded.gain == gain
    assert_array_equal(loaded.predict(queries), ranker.predict(queries))


def test_the_expected_gain_rises_from_the_start(queries):
    for gain in ("map", "mrr"):
        result = SinkPropRanker(gain=gain, **FAST).fit(queries).fit_result_
        values = [stage.expected_gain for stage in result.stages]
        assert values[-1] > values[0]


def test_err_takes_its_highest_grade_from_all_training_labels(queries, tmp_path):
    implicit = SinkPropRanker(gain="err@10", **FAST).fit(queries)
    stated = SinkPropRanker(gain=ERR(10, max_label=queries.y.max()), **FAST).fit(queries)
    assert_array_equal(implicit.coef_, stated.coef_)
    assert "max_grade" in stated.fit_result_.criterion
    # the largest label may be in another block than the one that is evaluated
    save_letor(tmp_path / "queries.txt", queries)
    store.convert(tmp_path / "queries.txt", tmp_path / "set", block_bytes=20_000)
    stored = [SinkPropRanker(gain=gain, **FAST).fit(tmp_path / "set") for gain in ("err@10", stated.gain)]
    assert_array_equal(stored[0].coef_, stored[1].coef_)


def test_label_columns_and_arrays_in_the_gain_train_the_same_model(queries):
    groups = np.random.default_rng(0).integers(0, 2, len(queries))
    columns = np.stack([queries.y, groups], axis=1)
    by_column = SinkPropRanker(gain=NDCG(10) - 0.5 * ExposureGap(1), **FAST)
    by_column.fit(queries.X, columns, qid=queries.qid)
    by_array = SinkPropRanker(gain=NDCG(10) - 0.5 * ExposureGap(groups), **FAST).fit(queries)
    assert_array_equal(by_column.coef_, by_array.coef_)
    plain = SinkPropRanker(gain=NDCG(10), **FAST).fit(queries)
    assert not np.array_equal(plain.coef_, by_array.coef_)
    place = np.arange(len(queries)) - np.repeat(queries.groups.offsets[:-1], queries.groups.sizes)
    order = np.argsort(place, kind="stable")  # the first documents of all queries, then the second ones, ...
    mixed = SinkPropRanker(gain=NDCG(10) - 0.5 * ExposureGap(1), **FAST)
    mixed.fit(queries.X[order], columns[order], qid=queries.qid[order])
    assert_array_equal(mixed.coef_, by_column.coef_)
    with pytest.raises(ValueError, match="holds an array with one row per training document, and eval_set"):
        by_array.fit(queries, eval_set=queries)


def test_diversity_is_trained_on_intents(queries):
    rng = np.random.default_rng(0)
    intents = np.stack([queries.y > 1, queries.X[:, 0] + rng.normal(size=len(queries)) > 1], axis=1) * 1.0
    given = {"qid": queries.qid, "eval_set": [(queries.X, intents)], "eval_qid": [queries.qid]}
    ranker = SinkPropRanker(gain=AlphaNDCG(10), metric="alphandcg@10", **FAST).fit(
        queries.X, intents, **given
    )
    assert ranker.fit_result_.criterion == "alphandcg@10"
    on_first = SinkPropRanker(gain=NDCG(10), metric="alphandcg@10", **FAST).fit(queries.X, intents, **given)
    scores = [each.score(queries.X, intents, qid=queries.qid) for each in (ranker, on_first)]
    assert scores[0] > scores[1]


def test_several_objectives_in_one(queries):
    margin = np.random.default_rng(0).uniform(size=len(queries)) + (queries.X[:, 1] > 0)
    columns = np.stack([queries.y, margin], axis=1)
    found = {}
    for weight in (0.0, 0.9):
        gain = (1 - weight) * NDCG(10) + weight * NDCG(10, gain="linear").on(1)
        scores = SinkPropRanker(gain=gain, **FAST).fit(queries.X, columns, qid=queries.qid).predict(queries)
        found[weight] = evaluate(margin, scores, queries.qid, "ndcg(gain=linear)@10")["ndcg(gain=linear)@10"]
    assert found[0.9] > found[0.0]


def test_a_custom_gain_is_trained_on_but_not_saved(queries, tmp_path):
    gain = ColumnGain(
        attributes=lambda y: (y > 0) * 1.0,
        function=lambda R: (R / np.arange(1, len(R) + 1)).sum(),
        gradient=lambda R: 1 / np.arange(1, len(R) + 1),
    )
    ranker = SinkPropRanker(gain=gain, **FAST).fit(queries)
    assert ranker.fit_result_.criterion == "gain"
    ranker.save(tmp_path / "own.model")
    loaded = load_model(tmp_path / "own.model")
    np.testing.assert_array_equal(loaded.predict(queries), ranker.predict(queries))
    with pytest.raises(ValueError, match=r"gain was a ColumnGain with .* set_params\(gain=\.\.\.\)"):
        loaded.fit(queries)
    loaded.save(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "own.model").read_bytes()
    assert type(loaded.set_params(gain="ndcg").fit(queries).gain) is str


def test_what_cannot_be_trained_is_explained(queries):
    with pytest.raises(
        ValueError, match=r"exposuregap.groups=1. reads label column 1, but there is one column"
    ):
        SinkPropRanker(gain="ndcg - exposuregap(groups=1)", **FAST).fit(queries)
    with pytest.raises(ValueError, match=r"SoftRankRanker takes rank-linear gains only.*got 'map'"):
        SoftRankRanker(gain="map").fit(queries)
    with pytest.raises(ValueError, match="BoltzRankRanker takes rank-linear gains only"):
        BoltzRankRanker(gain=AveragePrecision()).fit(queries)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        RegressionRanker().fit(queries.X, np.stack([queries.y, queries.y], axis=1), qid=queries.qid)
    bad = np.stack([queries.y, queries.y - 1 - queries.y[0]], axis=1)
    with pytest.raises(ValueError, match="row 0, column 1 holds -1"):
        SinkPropRanker(gain=AlphaNDCG(10)).fit(queries.X, bad, qid=queries.qid)
    intents = np.stack([queries.y > 1, queries.y > 0], axis=1) * 1.0
    given = {"eval_set": [(queries.X, queries.y)], "eval_qid": [queries.qid]}
    with pytest.raises(ValueError, match="reads label column 1, but there is one column"):
        SinkPropRanker(gain=NDCG(10).on(1), **FAST).fit(queries.X, intents, qid=queries.qid, **given)
