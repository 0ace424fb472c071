"""Derivatives of trees for gains that are not rank-linear: ties, several labels, fits, and objectives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import (
    ERR,
    ERRIA,
    NDCG,
    AlphaNDCG,
    AveragePrecision,
    ColumnGain,
    ExpectedExposure,
    ExposureGap,
    RankLinear,
    ReciprocalRank,
    RowGain,
    SmoothedIndicator,
    evaluate,
    expected_gain,
    load_model,
)
from sinkprop.data.queries import group_rows
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker, Derivatives, TreeLoss, lightgbm_objective

WIDTHS = (0.1, 1.0)
GAINS = [
    AveragePrecision(),
    ReciprocalRank(3),
    ERR(max_label=3),
    0.5 * NDCG(discount="log2") + AveragePrecision(2),
    NDCG(discount="log2") - 2 * RankLinear(table=lambda r, k: np.cos(r * k) / k),
    ExpectedExposure(),
    ColumnGain(attributes=lambda y: y / 3, function=lambda R: (R * np.cumsum(R)).sum()),
    RowGain(function=lambda E, y: -((E - y / 4) ** 4).sum()),
    AlphaNDCG(3),
    ERRIA(4),
    NDCG(3, discount="log2").on(1) - 0.5 * ExposureGap(2, 0),
]


def labels_of(gain, n, rng):
    return rng.integers(0, 3, (n, 3)) * 1.0 if gain in GAINS[-3:] else rng.integers(0, 4, n) * 1.0


def name_of(gain):
    return gain.text or type(gain).__name__


def by_widths(scores, y, gain, n_iter):
    found = [
        expected_gain(scores, y, gain=gain, n_iter=n_iter, relaxation=SmoothedIndicator(w, kernel="laplace"))
        for w in WIDTHS
    ]
    return np.mean([r.value for r in found]), np.mean([r.gradient for r in found], axis=0)


@pytest.mark.parametrize("gain", GAINS, ids=name_of)
@pytest.mark.parametrize("n_iter", [0, 0.5, 2, 2.5])
def test_ties_are_a_mean_over_their_orders(gain, n_iter):
    rng = np.random.default_rng(3)
    orders = list(itertools.permutations(range(4)))
    for tied in ([0.0] * 4, [0.4, 0.0, 0.4, 0.4], [0.2, 0.1, 0.2, -1.0]):
        scores, y = np.array(tied), labels_of(gain, 4, rng)
        y[0], y[1] = 2, 0
        total = np.zeros(4)
        for order in map(list, orders):
            total[order] += by_widths(scores[order], y[order], gain, n_iter)[1]
        found = Derivatives(TreeLoss(gain, noise=0, n_iter=n_iter), y, group_rows(None, 4))
        assert_allclose(found(scores)[0], -4 * total / len(orders), rtol=1e-6, atol=1e-7)
        assert found.value(scores) == pytest.approx(by_widths(scores, y, gain, n_iter)[0], abs=1e-12)


@pytest.mark.parametrize("gain", GAINS, ids=name_of)
def test_without_ties_they_are_the_expected_gains(gain):
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=60), labels_of(gain, 60, rng)
    found = Derivatives(TreeLoss(gain, noise=0), y, group_rows(None, 60))
    value, slope = by_widths(scores, y, gain, 2)
    assert found.value(scores) == pytest.approx(value, rel=1e-12)
    assert_allclose(found(scores)[0], -60 * slope, rtol=1e-5, atol=1e-5)
    noisy = Derivatives(TreeLoss(gain), y, group_rows(None, 60), n_threads=2)
    assert_array_equal(noisy(scores)[0], Derivatives(TreeLoss(gain), y, group_rows(None, 60))(scores)[0])


def test_equal_labels_give_no_derivatives():
    for gain in ("map", "mrr", "alphandcg"):
        y = np.ones(7) if gain != "alphandcg" else np.ones((7, 2))
        found = Derivatives(TreeLoss(gain, noise=0), y, group_rows(None, 7))
        assert_array_equal(found(np.arange(7.0))[0], 0)


def test_documents_that_should_have_equal_exposure_are_drawn_together():
    found = Derivatives(TreeLoss(-ExpectedExposure(), noise=0), np.ones(5), group_rows(None, 5))
    gradient = found(np.arange(5.0))[0]
    assert gradient[0] < 0 < gradient[-1]  # the loss falls if the last document is raised


def test_a_ranker_is_trained_on_map_and_keeps_its_gain(tmp_path):
    queries = make_ranking(n_queries=60, random_state=0)
    ranker = BoostedRanker(gain="map", n_estimators=20, effort="fast", random_state=0).fit(queries)
    found = evaluate(queries, ranker.predict(queries), metrics="map")["map"]
    assert found > evaluate(queries, queries.X[:, 0], metrics="map")["map"]
    ranker.save(tmp_path / "trees.model")
    loaded = load_model(tmp_path / "trees.model")
    assert loaded.gain == "map"
    assert_array_equal(loaded.predict(queries), ranker.predict(queries))


def test_err_takes_its_highest_grade_from_all_training_labels():
    queries = make_ranking(n_queries=40, random_state=0)
    settings = {"n_estimators": 5, "effort": "fast", "random_state": 0}
    largest = queries.y.max()
    implicit = BoostedRanker(gain="err@10", **settings).fit(queries)
    stated = BoostedRanker(gain=ERR(10, max_label=largest), **settings).fit(queries)
    assert_array_equal(implicit.predict(queries), stated.predict(queries))


def test_several_labels_and_arrays_in_the_gain_train_the_same_trees():
    queries = make_ranking(n_queries=50, random_state=1)
    groups = np.random.default_rng(0).integers(0, 2, len(queries))
    columns = np.stack([queries.y, groups], axis=1)
    settings = {"n_estimators": 8, "effort": "fast", "random_state": 0}
    by_column = BoostedRanker(gain=NDCG(10) - 0.5 * ExposureGap(1), **settings)
    by_column.fit(queries.X, columns, qid=queries.qid)
    by_array = BoostedRanker(gain=NDCG(10) - 0.5 * ExposureGap(groups), **settings).fit(queries)
    assert_array_equal(by_column.predict(queries), by_array.predict(queries))
    with pytest.raises(ValueError, match="holds an array with one row per training document, and eval_set"):
        by_array.fit(queries, eval_set=queries)
    validated = BoostedRanker(gain=AlphaNDCG(10), **settings)
    intents = np.stack([queries.y > 1, queries.X[:, 0] > 0], axis=1) * 1.0
    validated.fit(
        queries.X, intents, qid=queries.qid, eval_set=[(queries.X, intents)], eval_qid=[queries.qid]
    )
    assert validated.fit_result_.criterion == "expected alphandcg@10"
    before = evaluate(intents, queries.X[:, 1], queries.qid, "alphandcg@10")["alphandcg@10"]
    assert evaluate(intents, validated.predict(queries), queries.qid, "alphandcg@10")["alphandcg@10"] > before


def test_lightgbm_trains_on_map_and_on_intents_in_the_gain():
    lightgbm = pytest.importorskip("lightgbm")
    queries = make_ranking(n_queries=50, random_state=2)
    intents = np.stack([queries.y > 1, queries.X[:, 0] > 0], axis=1) * 1.0
    for gain in ("map", "mrr@10", AlphaNDCG(10).on(intents)):
        data = lightgbm.Dataset(queries.X, queries.y, group=queries.groups.sizes)
        parameters = {"objective": lightgbm_objective(gain), "verbose": -1, "num_leaves": 7}
        booster = lightgbm.train(parameters, data, num_boost_round=10)
        assert np.ptp(booster.predict(queries.X)) > 0
