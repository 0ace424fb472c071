"""BoostedRanker with data frames, and saved to files."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sinkprop
from sinkprop import RankLinear, load_model
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.objective.gains.custom import UnsavedGain

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

from sinkprop.gbdt import BoostedRanker  # noqa: E402

SMALL = {
    "n_estimators": 12, "num_leaves": 5, "learning_rate": 0.1, "min_child_samples": 5,
    "cat_l2": 0.1, "cat_smooth": 1, "min_data_per_group": 5,
}  # fmt: skip
COLORS = ["blue", "green", "red", "teal", "umber", "violet"]


def ranking_data(n_queries=20, seed=0):
    """Labels by a number and a color, whose names are in no useful order."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(10, 30, n_queries))
    number, code = rng.normal(size=len(qid)), rng.integers(0, 6, len(qid))
    return number, code, (np.isin(code, [1, 4]) * 2 + (number > 0)).astype(float), qid


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def by_number(data):
    """A ranker that was told which numbers are colors."""
    number, code, y, qid = data
    X = np.column_stack([number, code])
    return BoostedRanker(**SMALL).fit(X, y, qid=qid, categorical_feature=[1]), X


@pytest.fixture(scope="module")
def pandas():
    return pytest.importorskip("pandas", reason="pandas is not installed")


def frame_of(pandas, number, code, *, order=COLORS, ordered=False):
    color = pandas.Categorical([COLORS[i] for i in code], categories=order, ordered=ordered)
    return pandas.DataFrame({"a number": number, "color": color})


class TestPandas:
    def test_categories_are_found_and_named(self, data, by_number, pandas):
        number, code, y, qid = data
        frame = frame_of(pandas, number, code)
        ranker = BoostedRanker(**SMALL).fit(frame, y, qid=pandas.Series(qid))
        assert_array_equal(ranker.predict(frame), by_number[0].predict(by_number[1]))
        assert list(ranker.feature_names_in_) == ["a number", "color"]
        assert ranker.booster_.feature_name() == ["a_number", "color"]
        assert list(frame["color"][:3]) == [COLORS[i] for i in code[:3]], "the frame is as it was"
        whole = lightgbm.Dataset(frame, y).construct()
        assert ranker.booster_.pandas_categorical == whole.pandas_categorical

    def test_a_frame_with_its_categories_in_another_order(self, data, by_number, pandas):
        number, code, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(frame_of(pandas, number, code), y, qid=qid)
        other = frame_of(pandas, number, code, order=COLORS[::-1])
        assert_array_equal(ranker.predict(other), by_number[0].predict(by_number[1]))
        assert_array_equal(ranker.booster_.predict(other), ranker.predict(other))
        evaluated = BoostedRanker(**SMALL).fit(
            frame_of(pandas, number, code), y, qid=qid, eval_set=[(other, y)], eval_qid=[qid]
        )
        X = by_number[1]
        expected = BoostedRanker(**SMALL).fit(
            X, y, qid=qid, categorical_feature=[1], eval_set=[(X, y)], eval_qid=[qid]
        )
        assert evaluated.fit_result_ == expected.fit_result_

    def test_new_and_missing_categories(self, data, by_number, pandas):
        number, code, y, qid = data
        ranker = BoostedRanker(**SMALL).fit(frame_of(pandas, number, code), y, qid=qid)
        color = pandas.Categorical(["mauve", None, "red"], categories=["mauve", "red"])
        frame = pandas.DataFrame({"a number": [0.5, 0.5, 0.5], "color": color})
        expected = by_number[0].predict([[0.5, np.nan], [0.5, np.nan], [0.5, 2]])
        with pytest.warns(UserWarning, match="X has categories .* count as missing: 'mauve' of 'color'"):
            assert_array_equal(ranker.predict(frame), expected)

    def test_ordered_categories_are_numbers(self, data, pandas):
        number, code, y, qid = data
        frame = frame_of(pandas, number, code, ordered=True)
        ranker = BoostedRanker(**SMALL).fit(frame, y, qid=qid)
        X = np.column_stack([number, code])
        assert_array_equal(ranker.predict(frame), BoostedRanker(**SMALL).fit(X, y, qid=qid).predict(X))
        told = BoostedRanker(**SMALL).fit(frame, y, qid=qid, categorical_feature=["color"])
        as_numbers = BoostedRanker(**SMALL).fit(X, y, qid=qid, categorical_feature=[1])
        assert_array_equal(told.predict(frame), as_numbers.predict(X))
        untold = BoostedRanker(**SMALL).fit(
            frame_of(pandas, number, code), y, qid=qid, categorical_feature=[]
        )
        assert_array_equal(untold.predict(frame), ranker.predict(frame))

    def test_columns_of_another_kind(self, data, pandas):
        number, code, y, qid = data
        frame = frame_of(pandas, number, code)
        ranker = BoostedRanker(**SMALL).fit(frame, y, qid=qid)
        with pytest.raises(ValueError, match="column 'color' of X was categorical"):
            ranker.predict(frame.assign(color=code))
        with pytest.raises(ValueError, match="column 'a number' of X was not categorical"):
            ranker.predict(frame.assign(**{"a number": frame["color"]}))
        with pytest.raises(ValueError, match="column 'color' of eval_set X was categorical"):
            BoostedRanker(**SMALL).fit(
                frame, y, qid=qid, eval_set=[(frame.assign(color=code), y)], eval_qid=[qid]
            )
        with pytest.raises(ValueError, match="feature names"):
            ranker.predict(frame[["color", "a number"]].rename(columns={"color": "colour"}))
        with pytest.raises(ValueError, match="could not convert string to float"):
            BoostedRanker().fit(frame.astype({"color": str}), y, qid=qid)
        days = pandas.Categorical(pandas.Timestamp(2020, 1, 1) + pandas.to_timedelta(code, "D"))
        with pytest.raises(ValueError, match="categories of column 'day' must be text or numbers"):
            BoostedRanker().fit(pandas.DataFrame({"day": days}), y, qid=qid)

    def test_categories_that_are_numbers(self, data, pandas, tmp_path):
        number, code, y, qid = data
        for values in (np.arange(6) * 10, np.arange(6) / 4):
            frame = pandas.DataFrame({"n": number, "c": pandas.Categorical(values[code])})
            ranker = BoostedRanker(**SMALL).fit(frame, y, qid=qid)
            X = np.column_stack([number, code])
            expected = BoostedRanker(**SMALL).fit(X, y, qid=qid, categorical_feature=[1])
            assert_array_equal(ranker.predict(frame), expected.predict(X))
            ranker.save(tmp_path / "m")
            assert_array_equal(load_model(tmp_path / "m").predict(frame), ranker.predict(frame))
        truth = pandas.DataFrame({"n": number, "c": pandas.Categorical(code > 3)})
        ranker = BoostedRanker(**SMALL).fit(truth, y, qid=qid)
        ranker.save(tmp_path / "m")
        assert_array_equal(load_model(tmp_path / "m").predict(truth), ranker.predict(truth))

    def test_missing_numbers_of_all_kinds(self, data, pandas):
        number, code, y, qid = data
        X = np.column_stack([np.where(number > 1, np.nan, number), code])
        frame = pandas.DataFrame(
            {"n": pandas.array(np.where(number > 1, None, number), dtype="Float64"), "c": code}
        )
        expected = BoostedRanker(**SMALL).fit(X, y, qid=qid).predict(X)
        assert_array_equal(BoostedRanker(**SMALL).fit(frame, y, qid=qid).predict(frame), expected)

    def test_names_that_lightgbm_cannot_have(self, data, pandas, tmp_path):
        number, code, y, qid = data
        frame = pandas.DataFrame({'title:"bm25"': number, "título, [len]": code})
        ranker = BoostedRanker(**SMALL).fit(frame, y, qid=qid, categorical_feature=["título, [len]"])
        assert ranker.booster_.feature_name() == ["title__bm25_", "título___len_"]
        ranker.save(tmp_path / "m")
        loaded = load_model(tmp_path / "m")
        assert list(loaded.feature_names_in_) == list(frame.columns)
        assert_array_equal(loaded.predict(frame), ranker.predict(frame))
        alike = pandas.DataFrame({"a b": number, "a:b": code})
        assert BoostedRanker(**SMALL).fit(alike, y, qid=qid).booster_.feature_name() == [
            "Column_0",
            "Column_1",
        ]

    def test_trees_that_come_first_have_the_same_categories(self, data, pandas):
        number, code, y, qid = data
        frame = frame_of(pandas, number, code)
        first = BoostedRanker(**SMALL).fit(frame, y, qid=qid)
        again = BoostedRanker(**SMALL).fit(frame, y, qid=qid, init_model=first)
        assert again.n_trees_ == 24
        with pytest.raises(ValueError, match="init_model must have been fitted to the same categories"):
            BoostedRanker(**SMALL).fit(
                frame_of(pandas, number, code, order=COLORS[::-1]), y, qid=qid, init_model=first
            )


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_polars(data, by_number, kind):
    pl = pytest.importorskip("polars", reason="polars is not installed")
    number, code, y, qid = data
    dtype = pl.Enum(COLORS) if kind == "Enum" else pl.Categorical
    frame = pl.DataFrame({"n": number, "c": pl.Series([COLORS[i] for i in code], dtype=dtype)})
    ranker = BoostedRanker(**SMALL).fit(frame, y, qid=qid)
    assert list(ranker.feature_names_in_) == ["n", "c"]
    assert_array_equal(ranker.predict(frame), by_number[0].predict(by_number[1]))
    part = frame.with_columns(pl.Series("c", [None, "mauve", "red"] * len(y))[: len(y)].cast(pl.Categorical))
    expected = by_number[1].copy()
    expected[:, 1] = np.tile([np.nan, np.nan, 2], len(y))[: len(y)]
    with pytest.warns(UserWarning, match="'mauve' of 'c'"):
        assert_array_equal(ranker.predict(part), by_number[0].predict(expected))
    with pytest.raises(ValueError, match="column 'c' of X was categorical"):
        ranker.predict(frame.with_columns(pl.lit(1.0).alias("c")))
    plain = pl.DataFrame({"n": number, "c": code})
    assert_array_equal(
        BoostedRanker(**SMALL).fit(plain, y, qid=qid, categorical_feature=["c"]).predict(plain),
        by_number[0].predict(by_number[1]),
    )


def test_pyarrow(data, by_number):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    number, code, y, qid = data
    colors = pa.array([COLORS[i] for i in code]).dictionary_encode()
    table = pa.table({"n": number, "c": colors})
    ranker = BoostedRanker(**SMALL).fit(table, y, qid=qid)
    assert_array_equal(ranker.predict(table), by_number[0].predict(by_number[1]))
    missing = pa.table({"n": [0.5, None], "c": pa.array(["mauve", "red"]).dictionary_encode()})
    with pytest.warns(UserWarning, match="'mauve' of 'c'"):
        assert_array_equal(ranker.predict(missing), by_number[0].predict([[0.5, np.nan], [np.nan, 2]]))


class TestFiles:
    def test_a_model_comes_back(self, data, pandas, tmp_path):
        number, code, y, qid = data
        frame = frame_of(pandas, number, code)
        ranker = BoostedRanker(
            "ndcg@5",
            **SMALL,
            criterion=("ndcg@3", "map"),
            metric="p@3",
            convention="letor",
            monotone_constraints=[1, 0],
            max_depth=np.int64(4),
            n_threads=1,
        ).fit(frame, y, qid=qid, eval_set=[(frame, y)], eval_qid=[qid])
        ranker.save(tmp_path / "m")
        for again in (load_model(tmp_path / "m"), BoostedRanker.load(tmp_path / "m")):
            assert_array_equal(again.predict(frame), ranker.predict(frame))
            assert again.score(frame, y, qid=qid) == ranker.score(frame, y, qid=qid)
            assert again.convention == "letor"
            assert again.fit_result_ == ranker.fit_result_
            assert again.history_ == ranker.history_
            assert (again.n_trees_, again.best_iteration_) == (ranker.n_trees_, ranker.best_iteration_)
            assert (again.n_rows_, again.n_queries_) == (len(y), 20)
            assert_array_equal(again.feature_importances_, ranker.feature_importances_)
            assert list(again.feature_names_in_) == ["a number", "color"]
            assert (again.max_depth, again.gain, list(again.criterion)) == (4, "ndcg@5", ["ndcg@3", "map"])
            assert_array_equal(again.booster_.predict(frame), ranker.predict(frame))
            again.save(tmp_path / "n")
            assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()
            refitted = again.fit(frame, y, qid=qid, eval_set=[(frame, y)], eval_qid=[qid])
            assert_array_equal(refitted.predict(frame), ranker.predict(frame))
        about = read_model(tmp_path / "m").about
        assert about["metric"] == "p@3"
        assert about["training"] == {"rows": len(y), "queries": 20, "features": 2}

    def test_the_same_bytes_whatever_the_threads(self, data, tmp_path):
        number, code, y, qid = data
        X = np.column_stack([number, code])
        files = []
        for n in (1, 2):
            BoostedRanker(**SMALL, n_threads=n).fit(X, y, qid=qid).save(tmp_path / f"{n}")
            files.append((tmp_path / f"{n}").read_bytes())
        BoostedRanker(**SMALL, n_jobs=2).fit(X, y, qid=qid).save(tmp_path / "jobs")
        assert files[0] == files[1] == (tmp_path / "jobs").read_bytes()

    def test_a_model_without_trees(self, tmp_path):
        ranker = BoostedRanker().fit([[1.0], [1.0]], [0, 1], qid=[0, 0])
        ranker.save(tmp_path / "m")
        assert_array_equal(load_model(tmp_path / "m").predict([[3.0]]), [0.0])

    def test_a_gain_of_ones_own_is_not_data(self, data, tmp_path):
        number, code, y, qid = data
        X = np.column_stack([number, code])
        own = RankLinear(gain=np.sqrt, discount=lambda k: 1 / k)
        ranker = BoostedRanker(own, random_state=np.random.RandomState(3), **SMALL).fit(X, y, qid=qid)
        ranker.save(tmp_path / "m")
        again = load_model(tmp_path / "m")
        assert again.gain == UnsavedGain("RankLinear")
        assert again.random_state is None
        assert_array_equal(again.predict(X), ranker.predict(X))

    def test_every_changed_byte_is_an_error(self, data, tmp_path):
        """LightGBM, given a damaged text, may end the process: it must not see one."""
        number, code, y, qid = data
        X = np.column_stack([number, code])
        BoostedRanker(**{**SMALL, "n_estimators": 2}).fit(X, y, qid=qid).save(tmp_path / "m")
        whole = (tmp_path / "m").read_bytes()
        rng = np.random.default_rng(0)
        trees = range(whole.index(b"Tree=0"), whole.index(b"end of trees"))
        for place in (*rng.integers(0, len(whole), 150), *rng.choice(trees, 100)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(rng.integers(0, 8))
            (tmp_path / "d").write_bytes(damaged)
            with pytest.raises(ModelFileError):
                load_model(tmp_path / "d")
        for cut in rng.integers(0, len(whole), 30):
            (tmp_path / "d").write_bytes(whole[:cut])
            with pytest.raises(ModelFileError):
                load_model(tmp_path / "d")

    def test_a_whole_file_that_is_no_ranker(self, data, tmp_path):
        number, code, y, qid = data
        X = np.column_stack([number, code])
        BoostedRanker(**SMALL).fit(X, y, qid=qid).save(tmp_path / "m")
        state = read_model(tmp_path / "m").state
        for change in (
            {"n_features": 3},
            {"fitted": {}},
            {"parameters": {**state["parameters"], "num_leafs": 3}},
        ):
            write_model(tmp_path / "d", "BoostedRanker", {**state, **change})
            with pytest.raises(ModelFileError, match="the file is complete, but it is not a BoostedRanker"):
                load_model(tmp_path / "d")
        with pytest.raises(ModelFileError, match="of the kind BoostedRanker"):
            sinkprop.SinkPropRanker.load(tmp_path / "m")

    def test_what_cannot_be_saved_says_so(self, data, tmp_path):
        from sklearn.exceptions import NotFittedError

        with pytest.raises(NotFittedError):
            BoostedRanker().save(tmp_path / "m")
        assert not (tmp_path / "m").exists()

    def test_lightgbm_reads_the_booster_of_a_file(self, data, tmp_path):
        number, code, y, qid = data
        X = np.column_stack([number, code])
        ranker = BoostedRanker(**SMALL).fit(X, y, qid=qid)
        ranker.save(tmp_path / "m")
        lines = json.loads((tmp_path / "m").read_text())["state"]["fitted"]["lightgbm"]
        booster = lightgbm.Booster(model_str="\n".join(lines))
        assert_array_equal(booster.predict(X), ranker.predict(X))
        ranker.booster_.save_model(tmp_path / "lightgbm.txt")
        assert_array_equal(
            lightgbm.Booster(model_file=tmp_path / "lightgbm.txt").predict(X), ranker.predict(X)
        )
