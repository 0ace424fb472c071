"""BoostedRanker on stored sets: the trees of the same rows in memory, without the rows in memory."""

import numpy as np
import pytest
from tree_problems import ranking_data

from sinkprop import Queries
from sinkprop.gbdt import BoostedRanker
from sinkprop.gbdt.boosters import booster_text

pytest.importorskip("lightgbm", reason="LightGBM is not installed")


class Stored:
    """What the trees see of a stored set: queries in blocks, each read as often as it is asked for."""

    path = "train.queries"

    def __init__(self, queries, cuts):
        self.queries, self.block_queries = queries, np.array([0, *cuts, queries.n_queries])
        self.offsets, self.query_ids = queries.groups.offsets, queries.groups.queries
        self.sizes, self.longest = np.diff(self.offsets), queries.groups.longest
        self.n_rows, self.n_queries, self.n_features = len(queries), queries.n_queries, queries.n_features
        self.feature_names, self.read = queries.feature_names, []

    def __len__(self):
        return self.n_rows

    def labels(self):
        return self.queries.y

    def blocks(self):
        for number, (first, last) in enumerate(zip(self.block_queries, self.block_queries[1:], strict=False)):
            rows = np.arange(self.offsets[first], self.offsets[last])
            self.read.append(number)
            yield self.queries.take(rows)


def stored(n_queries=40, seed=0, *, missing=False, names=None, cuts=(7, 8, 30)):
    X, y, qid = ranking_data(n_queries, seed, n_features=6)
    X = X.astype(np.float32)
    X[:, 3] = np.random.default_rng(seed).integers(0, 6, len(X))
    X[:, 4] = np.where(X[:, 4] > 1.5, X[:, 4], 0)  # mostly 0
    if missing:
        X[::7, 1] = np.nan
    # Queries refuses NaN, which stored sets may hold
    queries = Queries(np.nan_to_num(X), y, qid, feature_names=names)
    object.__setattr__(queries, "X", X)
    return Stored(queries, cuts)


def take(queries, rows):
    part = Queries(np.nan_to_num(queries.X[rows]), queries.y[rows], queries.qid[rows])
    object.__setattr__(part, "X", queries.X[rows])
    return part


@pytest.fixture(autouse=True)
def nan_in_blocks(monkeypatch):
    monkeypatch.setattr(Queries, "take", take)


def in_memory(ranker, data, judges=None, **options):
    if judges is not None:
        options |= {"eval_set": [(judges.queries.X, judges.queries.y)], "eval_qid": [judges.queries.qid]}
    return ranker.fit(data.queries.X, data.queries.y, qid=data.queries.qid, **options)


SMALL = {"n_estimators": 15, "min_child_samples": 5, "n_threads": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bin_construct_sample_cnt": 150},
        {"max_bin": 7, "min_child_samples": 1},
        {"subsample": 0.5},
        {"validation_fraction": 0.25, "early_stopping_rounds": 3},
        {"boosting": "dart"},
        {"feature_pre_filter": False, "colsample_bytree": 0.5},
    ],
    ids=str,
)
def test_the_trees_are_those_of_the_rows_in_memory(settings):
    data = stored(missing=True)
    a = BoostedRanker(**{**SMALL, **settings}).fit(data)
    b = in_memory(BoostedRanker(**{**SMALL, **settings}), data)
    assert booster_text(a.booster_) == booster_text(b.booster_)
    assert a.fit_result_ == b.fit_result_
    assert (a.n_rows_, a.n_queries_, a.n_features_in_) == (len(data), data.n_queries, 6)
    assert np.array_equal(a.predict(data.queries.X), b.predict(data.queries.X))


def test_queries_that_judge_may_be_stored_too():
    data, judges = stored(), stored(12, seed=5, cuts=(3,))
    settings = {**SMALL, "n_estimators": 60, "early_stopping_rounds": 5, "learning_rate": 0.3}
    a = BoostedRanker(**settings).fit(data, eval_set=[judges])
    b = in_memory(BoostedRanker(**settings), data, judges)
    assert a.fit_result_ == b.fit_result_
    assert a.fit_result_.status == "stopped early"
    assert booster_text(a.booster_) == booster_text(b.booster_)
    pair = (judges.queries.X, judges.queries.y)
    c = BoostedRanker(**settings).fit(data, eval_set=[pair, judges], eval_qid=[judges.queries.qid])
    assert c.fit_result_.judged_by == "24 validation queries"
    # every query twice: the same mean
    assert c.fit_result_.values == pytest.approx(a.fit_result_.values, rel=1e-12)
    d = in_memory(BoostedRanker(**settings), data, None, eval_set=judges)  # rows in memory, judges on disk
    assert d.fit_result_ == a.fit_result_


def test_weights_and_categories():
    data = stored()
    weight = np.random.default_rng(1).integers(0, 3, data.n_queries).astype(float)  # some of them 0
    options = {"query_weight": weight, "categorical_feature": [3]}
    a = BoostedRanker(**SMALL).fit(data, **options)
    b = in_memory(BoostedRanker(**SMALL), data, **options)
    assert booster_text(a.booster_) == booster_text(b.booster_)
    by_id = dict(zip(data.query_ids.tolist(), weight, strict=True))
    c = BoostedRanker(**SMALL).fit(data, query_weight=by_id, categorical_feature=[3])
    assert booster_text(c.booster_) == booster_text(a.booster_)


def test_names_and_first_trees():
    names = ("title: bm25", "b", "c", "site", "e", "f")
    data, judges = stored(names=names), stored(12, seed=5, cuts=(3,))
    first = BoostedRanker(**SMALL).fit(data, categorical_feature=["site"])
    assert first.feature_names_in_.tolist() == list(names)
    assert first.booster_.feature_name()[0] == "title__bm25"
    more = BoostedRanker(**SMALL).fit(data, init_model=first, eval_set=[judges])
    assert more.n_trees_ == SMALL["n_estimators"] + more.best_iteration_
    bare = stored()  # without names, a fit forgets those that it had
    assert not hasattr(first.fit(bare), "feature_names_in_")
    assert booster_text(more.booster_).count("Tree=") == more.n_trees_


def test_first_trees_give_what_rows_in_memory_get():
    data, judges = stored(), stored(12, seed=5, cuts=(3,))
    first = BoostedRanker(**SMALL).fit(data)
    a = BoostedRanker(**SMALL).fit(data, init_model=first, eval_set=[judges])
    b = in_memory(BoostedRanker(**SMALL), data, judges, init_model=first)
    assert booster_text(a.booster_) == booster_text(b.booster_)
    assert a.fit_result_ == b.fit_result_


def test_blocks_are_read_one_after_another():
    data = stored()
    BoostedRanker(**SMALL).fit(data)
    # once for the sample that finds the bins, once for the rows themselves
    assert data.read == [0, 1, 2, 3] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_weight": np.ones(3)}, "no sample_weight with a stored set, which has no row weights"),
        ({"y": np.ones(3)}, "no y with a stored set, which has its own"),
        ({"qid": np.ones(3)}, "no qid with a stored set, which has its own"),
        (
            {"eval_set": [stored(3, cuts=())], "narrow": True},
            "has 6 features, but .* fitted to 2",
        ),
        ({"query_weight": np.ones(3)}, "one weight a query"),
    ],
)
def test_what_does_not_fit_is_named(options, words):
    options = dict(options)
    data = stored()
    if options.pop("narrow", False):
        queries = Queries(data.queries.X[:, :2], data.queries.y, data.queries.qid)
        data = Stored(queries, (7,))
    with pytest.raises(ValueError, match=words):
        BoostedRanker(**SMALL).fit(data, options.pop("y", None), **options)


def test_linear_trees_want_the_features():
    with pytest.raises(ValueError, match="linear_tree needs the features in memory"):
        BoostedRanker(**SMALL, linear_tree=True).fit(stored())


def test_a_set_that_shrinks_is_noticed():
    data = stored()
    data.n_rows += 5
    with pytest.raises(ValueError, match="the stored set has changed"):
        BoostedRanker(**SMALL).fit(data)
