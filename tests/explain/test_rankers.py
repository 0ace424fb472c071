"""`predict(pred_contrib=True)` and `explain` of fitted rankers, next to the definition of Shapley values."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from sinkprop import Queries, SinkPropRanker
from sinkprop.baselines import (
    BoltzRankRanker,
    CatBoostRanker,
    FeatureRanker,
    LightGBMRanker,
    ListNetRanker,
    RegressionRanker,
    XGBoostRanker,
)
from sinkprop.gbdt import BoostedRanker
from sinkprop.objective.relaxations import PartitionedMeasure
from sinkprop.store import open_queries, save_queries

D = 3


def queries(seed=0, *, missing=False, n_queries=40, n=12, names=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(2.0, 1.5, size=(n_queries * n, D))
    y = np.digitize(X @ [1.0, -0.6, 0.2] + rng.normal(size=len(X)), [2.0, 4.0])
    if missing:
        X[rng.random(X.shape) < 0.15] = np.nan
    qid = rng.permutation(np.repeat(np.arange(n_queries), n))
    return Queries(X, y, qid, allow_nan=missing, feature_names=names)


TREES = {"num_leaves": 4, "n_estimators": 6, "step": 3, "verbose": False}
RANKERS = {
    "sinkprop": lambda: SinkPropRanker(penalty=1e-2, verbose=False),
    "query": lambda: SinkPropRanker(penalty=1e-2, normalization="query", verbose=False),
    "shared scale": lambda: SinkPropRanker("ndcg", "probit", penalty=1e-2, max_iter=2, verbose=False),
    "two outputs": lambda: SinkPropRanker(
        "ndcg", PartitionedMeasure("beta"), penalty=1e-2, max_iter=2, verbose=False
    ),
    "ridge": lambda: RegressionRanker(verbose=False),
    "listnet": lambda: ListNetRanker(verbose=False),
    "boltzrank": lambda: BoltzRankRanker(n_hidden=1, potential="single", max_iter=3, verbose=False),
    "feature": lambda: FeatureRanker(-2),
    "boosted": lambda: BoostedRanker(n_estimators=6, n_boosters=1, n_threads=1, verbose=False),
    "lightgbm": lambda: LightGBMRanker(**TREES, n_threads=1),
    "xgboost": lambda: XGBoostRanker(**TREES, n_threads=1),
    "catboost": lambda: CatBoostRanker(n_estimators=6, depth=2, step=3, n_threads=1, verbose=False),
}


@pytest.fixture(scope="module")
def fitted():
    train, vali = queries(), queries(1)
    kept = {}

    def fit(name, *, missing=False):
        if (name, missing) not in kept:
            parts = (queries(missing=True), queries(1, missing=True)) if missing else (train, vali)
            kept[name, missing] = RANKERS[name]().fit(parts[0], eval_set=parts[1])
        return kept[name, missing]

    return fit


@pytest.mark.parametrize("name", RANKERS)
def test_contributions_sum_to_the_score(name, fitted):
    ranker, test = fitted(name), queries(2)
    parts = ranker.predict(test, pred_contrib=True)
    assert parts.shape == (len(test), D + 1)
    tolerance = 1e-5 if name == "xgboost" else 1e-11  # XGBoost's are in single precision
    assert parts.sum(axis=1) == pytest.approx(ranker.predict(test), abs=tolerance)
    assert np.ptp(parts[:, :D], axis=0).max() > 0
    assert ranker.explainable


@pytest.mark.parametrize("name", ["sinkprop", "query", "listnet", "ridge", "boosted"])
def test_missing_values_count_to_their_feature(name, fitted):
    ranker, test = fitted(name, missing=True), queries(2, missing=True)
    parts = ranker.predict(test, pred_contrib=True)
    assert parts.shape == (len(test), D + 1)
    assert parts.sum(axis=1) == pytest.approx(ranker.predict(test), abs=1e-11)
    if name == "sinkprop":
        assert len(ranker.missing_.indicators) == D
        absent = np.isnan(test.X[:, 0])
        indicator = ranker.coef_[D] * (1 - ranker.scaling_.shift[D]) * ranker.scaling_.factor[D]
        # the mean in its place contributes 0, apart from its rounding to single precision
        assert parts[absent, 0] == pytest.approx(indicator, abs=1e-6)


def shapley(value, n):
    """Shapley values of a set function, by its definition."""
    found = np.zeros(n)
    for i in range(n):
        others = [j for j in range(n) if j != i]
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for chosen in combinations(others, size):
                found[i] += share * (value({*chosen, i}) - value(set(chosen)))
    return found


@pytest.mark.parametrize("name", ["sinkprop", "listnet", "two outputs"])
def test_linear_contributions_are_shapley_values_against_the_training_mean(name, fitted):
    ranker, test = fitted(name), queries(2)
    mean = queries().X.mean(axis=0)
    parts = ranker.predict(test, pred_contrib=True)
    for row in (0, 7):

        def value(known, row=row):
            x = np.where([j in known for j in range(D)], test.X[row], mean)
            return ranker.predict(x[None])[0]

        assert parts[row, :D] == pytest.approx(shapley(value, D), abs=1e-9)
        assert parts[row, D] == pytest.approx(value(set()), abs=1e-9)


def test_contributions_under_query_normalization_are_relative_to_the_query(fitted):
    ranker, test = fitted("query"), queries(2)
    parts = ranker.predict(test, pred_contrib=True)
    scores = ranker.predict(test)
    for query in test.groups.queries[:3]:
        rows = test.qid == query
        assert parts[rows, :D].mean(axis=0) == pytest.approx(0, abs=1e-12)
        assert parts[rows, D] == pytest.approx(scores[rows].mean(), abs=1e-12)
    with pytest.raises(ValueError, match="needs qid="):
        ranker.predict(test.X, pred_contrib=True)


@pytest.mark.parametrize("name", ["boosted", "lightgbm"])
def test_trees_have_shapley_values_of_their_conditional_expectation(name, fitted):
    ranker, test = fitted(name), queries(2)
    trees = [tree["tree_structure"] for tree in ranker.booster_.dump_model()["tree_info"]]

    def expectation(node, x, known):
        if "leaf_value" in node:
            return node["leaf_value"], node.get("leaf_count", 1)
        sides = [expectation(node[side], x, known) for side in ("left_child", "right_child")]
        counts = [count for _, count in sides]
        if node["split_feature"] in known:
            side = 0 if x[node["split_feature"]] <= node["threshold"] else 1
            return sides[side][0], sum(counts)
        return sum(v * c for v, c in sides) / sum(counts), sum(counts)

    parts = ranker.predict(test, pred_contrib=True)
    for row in (0, 11):

        def value(known, row=row):
            return sum(expectation(tree, test.X[row], known)[0] for tree in trees)

        assert parts[row, :D] == pytest.approx(shapley(value, D), abs=1e-8)
        assert parts[row, D] == pytest.approx(value(set()), abs=1e-8)


@pytest.mark.parametrize("name", ["sinkprop", "query", "two outputs", "boosted", "catboost"])
def test_a_ranker_explains_the_expected_ranks_that_it_reports(name, fitted):
    ranker, test = fitted(name), queries(2, n_queries=6)
    found = ranker.explain(test)
    assert found.expected_ranks == pytest.approx(ranker.expected_rank(test), abs=1e-6)
    assert found.ranks.sum(axis=1) == pytest.approx(ranker.expected_rank(test) - 6.5, abs=0.05)
    assert found.feature_names == ("feature 1", "feature 2", "feature 3")
    assert found.queries.tolist() == test.groups.queries.tolist()
    assert found.metric_name == "ndcg@10"
    assert found.of_query(test.groups.queries[0])
    unlabeled = ranker.explain(test.X, qid=test.qid)
    assert unlabeled.ranks == pytest.approx(found.ranks, abs=1e-9)
    assert unlabeled.metric.shape == found.metric.shape
    assert np.abs(unlabeled.metric - found.metric).max() > 1e-3


def test_ranks_without_calibration_are_those_of_the_relaxation(fitted):
    ranker, test = fitted("sinkprop"), queries(2, n_queries=4)
    for options in ({"calibrated": False}, {"sigma": 0.4}):
        found = ranker.explain(test, metric="map", **options)
        assert found.expected_ranks == pytest.approx(ranker.expected_rank(test, **options), abs=1e-9)
        assert found.metric_name == "map"
    with pytest.raises(ValueError, match="a partitioned measure is not supported"):
        fitted("shared scale").explain(test, calibrated=False)


def test_a_stored_set_gives_the_contributions_of_its_rows(fitted, tmp_path):
    test = queries(2)
    rows = np.argsort(test.qid, kind="stable")
    by_query = Queries(test.X[rows].astype(np.float32), test.y[rows], test.qid[rows])
    save_queries(tmp_path / "test.queries", by_query)
    stored = open_queries(tmp_path / "test.queries")
    for name in ("sinkprop", "query"):
        parts = fitted(name).predict(stored, pred_contrib=True)
        assert parts == pytest.approx(fitted(name).predict(by_query, pred_contrib=True), abs=1e-12)


def test_features_have_the_names_of_the_fit():
    train = queries(names=("a", "b", "c"))
    ranker = RegressionRanker(verbose=False).fit(train)
    found = ranker.explain(train.select(train.groups.queries[:2]), calibrated=False)
    assert found.feature_names == ("a", "b", "c")
    assert {name for name, _ in found.of_document(0)} == {"a", "b", "c"}


def test_rankers_without_contributions_say_so(fitted):
    train = queries(n_queries=12)
    pairs = BoltzRankRanker(n_hidden=2, potential="pair", max_iter=2, verbose=False).fit(train)
    for question in (
        lambda: pairs.predict(train, pred_contrib=True),
        lambda: pairs.explain(train, calibrated=False),
    ):
        with pytest.raises(ValueError, match="BoltzRankRanker has no contributions of features") as error:
            question()
        assert "explain_ranking" in str(error.value)
    assert not pairs.explainable


def test_networks_say_so_and_autoranker_sums_its_members(fitted):
    pytest.importorskip("torch")
    from sinkprop import AutoRanker
    from sinkprop.torch import NeuralRanker

    train = queries(n_queries=12)
    network = NeuralRanker(max_epochs=1, verbose=False).fit(train)
    with pytest.raises(ValueError, match="NeuralRanker has no contributions of features"):
        network.predict(train, pred_contrib=True)
    assert not network.explainable
    both = AutoRanker(methods="ridge", verbose=False).fit(train)
    parts = both.predict(train, pred_contrib=True)
    assert parts.sum(axis=1) == pytest.approx(both.predict(train), abs=1e-10)
    assert both.explainable
