"""BoostedRanker on stored sets: the trees of the same rows in memory, without the rows in memory."""

from types import SimpleNamespace

import numpy as np
import pytest
from tree_problems import ranking_data

from sinkprop import Queries
from sinkprop.gbdt import BoostedRanker
from sinkprop.gbdt.boosters import booster_text
from sinkprop.gbdt.growing.bins import Bins
from sinkprop.gbdt.growing.rows import StreamedRows
from sinkprop.store import StoredQueries, StoreError, save_queries

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")


class Given:
    """Queries in memory, and the same as a stored set of several blocks."""

    def __init__(self, folder, n_queries=40, seed=0, *, missing=False, names=None, width=6):
        X, y, qid = ranking_data(n_queries, seed, n_features=6)
        X = X.astype(np.float32)
        X[:, 3] = np.random.default_rng(seed).integers(0, 6, len(X))
        X[:, 4] = np.where(X[:, 4] > 1.5, X[:, 4], 0)  # mostly 0
        queries = Queries(X[:, :width], y, qid, feature_names=names)
        if missing:  # which Queries refuses, and a stored set may hold
            X[::7, 1] = np.nan
        self.X, self.y, self.qid, self.weight_of = queries.X, y, qid, queries.groups.queries
        self.stored = save_queries(folder / f"{seed}-{width}.queries", queries, block_bytes=4000)
        assert len(self.stored.block_queries) > 3
        assert self.stored.has_nan == missing

    def fit(self, ranker, vali=None, **options):
        """A fit to the rows in memory."""
        if vali is not None:
            options |= {"eval_set": [(vali.X, vali.y)], "eval_qid": [vali.qid]}
        return ranker.fit(self.X, self.y, qid=self.qid, **options)


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
def test_the_trees_are_those_of_the_rows_in_memory(tmp_path, settings):
    data = Given(tmp_path, missing=True)
    a = BoostedRanker(**{**SMALL, **settings}).fit(data.stored)
    b = data.fit(BoostedRanker(**{**SMALL, **settings}))
    assert booster_text(a.booster_) == booster_text(b.booster_)
    assert a.fit_result_ == b.fit_result_
    assert (a.n_rows_, a.n_queries_, a.n_features_in_) == (len(data.y), 40, 6)
    assert np.array_equal(a.predict(data.stored), b.predict(data.X))


def test_validation_queries_may_be_stored_too(tmp_path):
    data, vali = Given(tmp_path), Given(tmp_path, 12, seed=5)
    settings = {**SMALL, "n_estimators": 60, "early_stopping_rounds": 5, "learning_rate": 0.3}
    a = BoostedRanker(**settings).fit(data.stored, eval_set=[vali.stored])
    b = data.fit(BoostedRanker(**settings), vali)
    assert a.fit_result_ == b.fit_result_
    assert a.fit_result_.status == "stopped early"
    assert booster_text(a.booster_) == booster_text(b.booster_)
    pair = (vali.X, vali.y)
    c = BoostedRanker(**settings).fit(data.stored, eval_set=[pair, vali.stored], eval_qid=[vali.qid])
    assert c.fit_result_.validated_on == "24 validation queries"
    # every query twice: the same mean
    assert c.fit_result_.values == pytest.approx(a.fit_result_.values, rel=1e-12)
    d = data.fit(BoostedRanker(**settings), eval_set=vali.stored.path)  # rows in memory, validation on disk
    assert d.fit_result_ == a.fit_result_


def test_weights_and_categories(tmp_path):
    data = Given(tmp_path)
    weight = np.random.default_rng(1).integers(0, 3, 40).astype(float)  # some of them 0
    options = {"query_weight": weight, "categorical_feature": [3]}
    a = BoostedRanker(**SMALL).fit(data.stored.path, **options)
    b = data.fit(BoostedRanker(**SMALL), **options)
    assert booster_text(a.booster_) == booster_text(b.booster_)
    by_id = dict(zip(data.weight_of.tolist(), weight, strict=True))
    c = BoostedRanker(**SMALL).fit(data.stored, query_weight=by_id, categorical_feature=[3])
    assert booster_text(c.booster_) == booster_text(a.booster_)


def test_names(tmp_path):
    names = ("title: bm25", "b", "c", "site", "e", "f")
    data, bare = Given(tmp_path, names=names), Given(tmp_path, seed=1)
    ranker = BoostedRanker(**SMALL).fit(data.stored, categorical_feature=["site"])
    assert ranker.feature_names_in_.tolist() == list(names)
    assert ranker.booster_.feature_name()[0] == "title__bm25"
    assert not hasattr(ranker.fit(bare.stored), "feature_names_in_")  # those of the last fit are forgotten


def test_trees_that_come_first(tmp_path):
    data, vali = Given(tmp_path), Given(tmp_path, 12, seed=5)
    first = BoostedRanker(**SMALL).fit(data.stored)
    a = BoostedRanker(**SMALL).fit(data.stored, init_model=first, eval_set=[vali.stored])
    b = data.fit(BoostedRanker(**SMALL), vali, init_model=first)
    assert a.n_trees_ == SMALL["n_estimators"] + a.best_iteration_
    assert booster_text(a.booster_) == booster_text(b.booster_)
    assert a.fit_result_ == b.fit_result_


def test_the_set_is_read_twice_and_never_held(tmp_path, monkeypatch):
    data, calls = Given(tmp_path), []
    blocks = StoredQueries.blocks
    monkeypatch.setattr(StoredQueries, "blocks", lambda self: calls.append("blocks") or blocks(self))
    for name in ("load", "take"):
        monkeypatch.setattr(StoredQueries, name, lambda self, name=name: calls.append(name))
    BoostedRanker(**SMALL).fit(data.stored)
    # once for the sample that finds the bins, once for the rows themselves
    assert calls == ["blocks", "blocks"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_weight": np.ones(3)}, "no sample_weight with a stored set, which has no row weights"),
        ({"y": np.ones(3)}, "no y with a stored set, which has its own"),
        ({"qid": np.ones(3)}, "no qid with a stored set, which has its own"),
        ({"query_weight": np.ones(3)}, "one weight per query"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        BoostedRanker(**SMALL).fit(Given(tmp_path).stored, options.get("y"), **without(options, "y"))


def without(options, name):
    return {key: value for key, value in options.items() if key != name}


def test_eval_sets_of_other_features_are_named(tmp_path):
    data, narrow = Given(tmp_path), Given(tmp_path, width=2)
    with pytest.raises(ValueError, match=r"2\.queries.* has 2 features, but BoostedRanker is fitted to 6"):
        BoostedRanker(**SMALL).fit(data.stored, eval_set=[narrow.stored])


def test_eval_sets_go_by_the_names_of_their_features(tmp_path):
    data = Given(tmp_path, names=tuple("abcdef"))
    vali = Given(tmp_path, 12, seed=5, names=tuple("abcdef"))
    turned = Queries(vali.X[:, ::-1], vali.y, vali.qid, feature_names=tuple("fedcba"))
    other = save_queries(tmp_path / "turned.queries", turned, block_bytes=4000)
    expected = BoostedRanker(**SMALL).fit(data.stored, eval_set=[vali.stored])
    assert BoostedRanker(**SMALL).fit(data.stored, eval_set=[other]).fit_result_ == expected.fit_result_
    unlike = Queries(vali.X, vali.y, vali.qid, feature_names=tuple("abcdeg"))
    with pytest.raises(ValueError, match=r"unlike\.queries: .* only one of them has 'f'"):
        BoostedRanker(**SMALL).fit(data.stored, eval_set=[save_queries(tmp_path / "unlike.queries", unlike)])


def test_a_damaged_set_is_named(tmp_path):
    stored = Given(tmp_path).stored
    part = next(stored.path.glob("part-*.arrow"))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(StoreError, match=r"part-00000\.arrow: the file is damaged") as error:
        BoostedRanker(**SMALL).fit(stored)
    assert "\n" not in str(error.value)


def test_a_frame_of_a_cluster_needs_one():
    frame = SimpleNamespace(npartitions=1, columns=("a", "label", "qid"), to_delayed=None)
    with pytest.raises(ValueError, match="X is a Dask DataFrame: give cluster="):
        BoostedRanker().fit(frame, "label", qid="qid")


def test_linear_trees_want_the_features(tmp_path):
    with pytest.raises(ValueError, match="linear_tree needs the features in memory"):
        BoostedRanker(**SMALL, linear_tree=True).fit(Given(tmp_path).stored)


@pytest.mark.parametrize("n", [3, 20])
def test_a_set_of_other_size_than_it_says_is_noticed(n):
    rows = StreamedRows(lambda: iter([np.zeros((n, 2), np.float32)]), (10, 2))
    bins = Bins({"verbosity": -1}).find(np.random.default_rng(0).normal(size=(2, 10)), 10, 10)
    with pytest.raises(ValueError, match="the stored set has changed: it no longer has 10 documents"):
        bins.dataset(rows, "auto")


def test_files_are_loaded(tmp_path):
    data = Given(tmp_path, 12)
    lines = [
        f"{label:g} qid:{query} " + " ".join(f"{i}:{float(x)!r}" for i, x in enumerate(row, 1))
        for row, label, query in zip(data.X, data.y, data.qid, strict=True)
    ]
    half = int(np.searchsorted(data.qid, 6))
    for name, part in (("a.txt", lines[:half]), ("b.txt", lines[half:])):
        (tmp_path / name).write_text("\n".join(part) + "\n")
    a = BoostedRanker(**SMALL).fit([tmp_path / "a.txt", tmp_path / "b.txt"])
    b = BoostedRanker(**SMALL).fit(data.X.astype(float), data.y, qid=data.qid)
    assert booster_text(a.booster_) == booster_text(b.booster_)
