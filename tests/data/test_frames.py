"""Rows of data frames: pandas, polars and pyarrow give the same queries and the same errors."""

from __future__ import annotations

import datetime
import pathlib
import re
import sys
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinkprop import load_frame, load_parquet, load_queries

LIBRARIES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "pandas, Arrow types": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "record batch": lambda columns: pa.table(columns).combine_chunks().to_batches()[0],
}
COLUMNS = {
    "bm25": [0.5, 1.5, -2.0],
    "query": ["b", "a", "b"],
    "grade": [0, 2, 1],
    "length": [7, 8, 9],
    "is_home": [True, False, True],
    "doc": ["d1", "d2", "é"],
}


@pytest.fixture(params=LIBRARIES)
def frame_of(request: pytest.FixtureRequest):
    return LIBRARIES[request.param]


def test_columns_by_role(frame_of) -> None:
    q = load_frame(frame_of(COLUMNS), qid="query", label="grade", docid="doc")
    np.testing.assert_array_equal(q.X, [[0.5, 7, 1], [1.5, 8, 0], [-2, 9, 1]])
    assert q.X.dtype == np.float64
    assert q.X.flags.c_contiguous
    np.testing.assert_array_equal(q.y, [0, 2, 1])
    assert q.y.dtype == np.float64
    assert q.qid.tolist() == ["b", "a", "b"]
    assert q.docid.tolist() == ["d1", "d2", "é"]
    assert q.feature_names == ("bm25", "length", "is_home")


def test_features_in_the_order_given(frame_of) -> None:
    q = load_frame(frame_of(COLUMNS), qid="query", label="grade", features=("length", "bm25"))
    np.testing.assert_array_equal(q.X, [[7, 0.5], [8, 1.5], [9, -2]])
    assert (q.feature_names, q.docid) == (("length", "bm25"), None)


def test_whole_numbers_stay_exact(frame_of) -> None:
    big = 2**53 + 1
    q = load_frame(
        frame_of({"qid": [big, big + 1], "label": [0, 1], "x": [1, 2], "doc": [5, big]}), docid="doc"
    )
    assert q.qid.dtype.kind == "i"
    assert q.qid.tolist() == [big, big + 1]
    assert q.docid.tolist() == ["5", str(big)]


def test_float32_is_kept_where_all_are(frame_of) -> None:
    columns = {"qid": [1, 1], "label": [0, 1], "x": np.float32([0.1, 0.2]), "z": np.float32([1, 2])}
    assert load_frame(frame_of(columns)).X.dtype == np.float32
    columns["z"] = np.array([1.0, 2.0])
    q = load_frame(frame_of(columns))
    assert q.X.dtype == np.float64
    np.testing.assert_array_equal(q.X[:, 0], np.float32([0.1, 0.2]))


def test_many_rows(frame_of) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    columns = {"qid": np.repeat(np.arange(100), 100), "label": rng.integers(0, 5, 10_000)}
    q = load_frame(frame_of(columns | {f"f{j}": X[:, j] for j in range(3)}))
    np.testing.assert_array_equal(q.X, X)
    assert q.n_queries == 100


@pytest.mark.parametrize(
    ("changes", "options", "what"),
    [
        ({}, {"qid": "qid"}, r"^qid='qid' is not a column of the frame\. .*It has 'bm25', 'query'"),
        ({}, {"label": "grades"}, r"^label='grades' is not a column of the frame\. Did you mean 'grade'\?"),
        ({}, {"docid": "id"}, r"^docid='id' is not a column"),
        (
            {},
            {"features": ["bm25", "lenght"]},
            r"^features: 'lenght' is not a column .* Did you mean 'length'\?",
        ),
        ({}, {"features": "bm25"}, r"^features must be a sequence of names; got 'bm25'\. Use \['bm25'\]"),
        ({}, {"features": []}, r"^features must name at least one column"),
        ({}, {"features": ["bm25", "bm25"]}, r"^features must name a column once; got 'bm25' again"),
        ({}, {"features": ["bm25", "grade"]}, r"^features must not name 'grade', which is the label"),
        ({}, {"features": ["query"]}, r"^features must not name 'query', which is the qid"),
        ({}, {"label": "query"}, r"must name different columns; got \['query', 'query'"),
        (
            {},
            {"docid": None},
            r"^column 'doc' must hold numbers; it is .*, with 'd1' in row 0\. Leave it out with",
        ),
        ({}, {"docid": None, "features": ["doc"]}, r"^column 'doc' must hold numbers"),
        ({}, {"label": "doc", "docid": None}, r"^column 'doc' must hold numbers"),
        ({"bm25": [0.5, float("nan"), 1]}, {}, r"^column 'bm25' .*in row 1"),
        (
            {"bm25": [0.5, 1, float("-inf")]},
            {},
            r"^column 'bm25' holds -inf in row 2; expected a finite number",
        ),
        (
            {"length": [1, None, 3]},
            {},
            r"^column 'length' .*has no value in row 1\. Fill it in, or pass allow_nan=True",
        ),
        ({"is_home": [True, False, None]}, {}, r"^column 'is_home' .*has no value in row 2"),
        ({"grade": [None, 1, 2]}, {}, r"^column 'grade' .*has no value in row 0"),
        ({"grade": [0, -1, 2]}, {}, r"^column 'grade' holds -1\.0 in row 1; labels must not be below 0"),
        ({"grade": [0.0, 1.0, float("inf")]}, {}, r"^column 'grade' holds inf in row 2"),
        ({"query": ["a", None, "b"]}, {}, r"^column 'query' .*has no value in row 1"),
        ({"query": [1.0, 2.0, float("nan")]}, {}, r"^column 'query' .*in row 2"),
        ({"doc": ["a", "b", None]}, {}, r"^column 'doc' .*has no value in row 2"),
        ({"length": [datetime.date(2024, 1, 2)] * 3}, {}, r"^column 'length' must hold numbers"),
        ({name: values[:0] for name, values in COLUMNS.items()}, {}, r"^the frame has no rows"),
    ],
)
def test_wrong_columns_are_named_with_their_rows(frame_of, changes, options, what) -> None:
    if not len(changes.get("query", [1])) and frame_of is LIBRARIES["record batch"]:
        pytest.skip("no batch without rows")
    with pytest.raises(ValueError, match=what):
        load_frame(
            frame_of(COLUMNS | changes), **{"qid": "query", "label": "grade", "docid": "doc"} | options
        )


def test_no_features_left(frame_of) -> None:
    with pytest.raises(ValueError, match=r"^the frame has no columns besides \['qid', 'label'\]"):
        load_frame(frame_of({"qid": [1], "label": [1]}))


def test_pandas_types() -> None:
    columns = {
        "qid": pd.Series(["a", "b"], dtype="category"),
        "label": pd.Series([0, 1], dtype="Int8"),
        "x": pd.Series([1, 2], dtype="UInt16"),
        "new": pd.Series([True, False], dtype="boolean"),
        "z": pd.Series([0.5, 0.25], dtype="Float32"),
        "doc": pd.Series(["p", "q"], dtype="string"),
    }
    q = load_frame(pd.DataFrame(columns), docid="doc")
    np.testing.assert_array_equal(q.X, [[1, 1, 0.5], [2, 0, 0.25]])
    assert (q.qid.tolist(), q.docid.tolist()) == (["a", "b"], ["p", "q"])
    assert load_frame(pd.DataFrame(columns), docid="doc", features=["z"]).X.dtype == np.float32
    with pytest.raises(ValueError, match=r"^column 'x' \(UInt16\) has no value in row 1"):
        load_frame(pd.DataFrame(columns | {"x": pd.Series([1, None], dtype="UInt16")}), docid="doc")
    with pytest.raises(ValueError, match=r"^column 'z' must hold numbers; it is object, with 1 in row 0"):
        load_frame(pd.DataFrame(columns | {"z": pd.Series([1, 2], dtype=object)}), docid="doc")


def test_pandas_index_and_names() -> None:
    frame = pd.DataFrame({"qid": [1, 1], "label": [0, 1], 7: [0.5, 1]}, index=[9, 4])
    assert load_frame(frame).feature_names == ("7",)
    with pytest.raises(
        ValueError, match=r"^qid='qid' is not a column .*in the index: call frame\.reset_index\(\)"
    ):
        load_frame(frame.set_index("qid"))
    with pytest.raises(ValueError, match=r"^the frame has 2 columns called 'label'; expected one"):
        load_frame(pd.concat([frame, frame["label"]], axis=1))


def test_an_index_of_pandas_is_no_feature(tmp_path: pathlib.Path) -> None:
    frame = pd.DataFrame({"qid": [2, 2, 1], "label": [0, 1, 2], "bm25": [0.5, 1, 2]}, index=[9, 4, 7])
    path = tmp_path / "a.parquet"
    for index, kept in ((None, "__index_level_0__"), ("row", "row"), (["a", "b"], "b")):
        other = frame.copy()
        if isinstance(index, list):
            other.index = pd.MultiIndex.from_arrays([[9, 4, 7], [1, 2, 3]], names=index)
        else:
            other.index.name = index
        other.to_parquet(path)
        assert kept in pq.read_schema(path).names
        for q in (load_parquet(path), load_frame(pq.read_table(path)), load_frame(other)):
            assert q.feature_names == ("bm25",)
            np.testing.assert_array_equal(q.X, [[0.5], [1], [2]])
        assert load_parquet(path, features=["bm25", kept]).n_features == 2
    frame.to_parquet(path)  # polars knows nothing of pandas' records, but the name is pandas' own
    assert load_frame(pl.read_parquet(path)).feature_names == ("bm25",)
    frame.set_index("qid").to_parquet(path)
    assert load_parquet(path).qid.tolist() == [2, 2, 1]


def test_a_query_in_two_places_of_a_file_is_refused_and_one_of_a_frame_is_not(tmp_path: pathlib.Path) -> None:
    frame = pd.DataFrame({"qid": [2, 1, 2], "label": [0, 1, 2], "bm25": [0.5, 1, 2]})
    path = tmp_path / "a.parquet"
    frame.to_parquet(path)
    expected = (
        rf"^{re.escape(str(path))}: the query 2 occurs in two places, row 0 and row 2\. If they are one "
    )
    for load in (load_parquet, load_queries):
        with pytest.raises(ValueError, match=expected):
            load(path)
        assert load(path, split_queries="join").groups.sizes.tolist() == [2, 1]
    with pytest.raises(ValueError, match=r"split_queries must be 'error' or 'join'; got 'sort'\."):
        load_parquet(path, split_queries="sort")
    assert load_frame(frame).groups.sizes.tolist() == [2, 1]


def test_a_label_that_is_too_large_is_refused_with_its_row() -> None:
    frame = pd.DataFrame({"qid": [1, 1], "label": [0, 99999999999999999999.0], "bm25": [0.5, 1]})
    with pytest.raises(
        ValueError, match=r"column 'label' holds 1e\+20 in row 1; labels must not be above 2\^53"
    ):
        load_frame(frame)


def test_documents_without_labels(frame_of) -> None:
    columns = {name: values for name, values in COLUMNS.items() if name != "grade"}
    q = load_frame(frame_of(columns), qid="query", label=None, docid="doc")
    expected = load_frame(frame_of(COLUMNS), qid="query", label="grade", docid="doc")
    np.testing.assert_array_equal(q.X, expected.X)
    assert q.feature_names == expected.feature_names
    assert q.y.tolist() == [0.0] * len(q)


def test_dictionaries_of_text() -> None:
    table = pa.table(
        {"qid": pa.array(["a", "b", "a"]).dictionary_encode(), "label": [0, 1, 2], "x": [1.0, 2, 3]}
    )
    assert load_frame(table).qid.tolist() == ["a", "b", "a"]
    frame = pl.DataFrame({"qid": ["a", "b", "a"], "label": [0, 1, 2], "x": [1.0, 2, 3]})
    assert load_frame(frame.with_columns(pl.col("qid").cast(pl.Categorical))).qid.tolist() == ["a", "b", "a"]


def test_other_objects() -> None:
    lazy = pl.DataFrame({"qid": [1], "label": [1], "x": [1.0]}).lazy()
    with pytest.raises(
        TypeError, match=r"^frame must be a pandas or polars .*LazyFrame\. Call its collect\(\)"
    ):
        load_frame(lazy)
    for other in ({"qid": [1]}, np.ones((2, 3)), "a.parquet", None):
        with pytest.raises(
            TypeError, match=r"^frame must be a pandas or polars DataFrame or a pyarrow Table"
        ):
            load_frame(other)


def test_parquet(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    expected = load_frame(pa.table(COLUMNS), qid="query", label="grade", docid="doc")
    for load in (partial(load_parquet, split_queries="join"), partial(load_queries, split_queries="join")):
        q = load(path, qid="query", label="grade", docid="doc")
        np.testing.assert_array_equal(q.X, expected.X)
        np.testing.assert_array_equal(q.y, expected.y)
        assert q.qid.tolist() == expected.qid.tolist()
        assert q.docid.tolist() == expected.docid.tolist()
        assert q.feature_names == expected.feature_names
        assert load(str(path), qid="query", label="grade", features=["length"]).feature_names == ("length",)


def test_parquet_errors_name_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    with pytest.raises(ValueError, match=r"a\.parquet: qid='qid' is not a column"):
        load_parquet(path)
    with pytest.raises(ValueError, match=r"a\.parquet: features: 'lenght' is not a column"):
        load_parquet(path, qid="query", label="grade", features=["lenght"])
    with pytest.raises(ValueError, match=r"Did you mean 'length'\? It has 'bm25', .*'is_home'"):
        load_parquet(path, qid="query", label="grade", features=["bm25", "lenght"])
    whole = path.read_bytes()
    for damaged in (b"", b"1 qid:1 1:1\n", whole[:-20], b"PAR1" + bytes(100) + b"PAR1"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.parquet: not a Parquet file that can be read"):
            load_parquet(path)
    with pytest.raises(FileNotFoundError):
        load_parquet(tmp_path / "none.parquet")


def test_parquet_without_pyarrow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'^load_parquet needs pyarrow: pip install "sinkprop\[parquet\]"$'):
        load_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_missing_values_are_kept_as_nan(kind):
    columns = {"qid": [1, 1], "label": [0, 1], "a": [1.5, None], "b": [3, None], "c": [1, 2]}
    package = pytest.importorskip(kind, reason=f"frames of {kind}")
    frame = package.table(columns) if kind == "pyarrow" else package.DataFrame(columns)
    q = load_frame(frame, allow_nan=True)
    np.testing.assert_array_equal(q.X, [[1.5, 3, 1], [np.nan, np.nan, 2]])
    assert q.allow_nan
    for values, message in (
        ([float("inf"), None], "holds inf in row 0"),
        (["1", None], "must hold numbers; .* with '1' in row 0.*categorical=\\["),
    ):
        bad = {**columns, "a": values}
        frame = package.table(bad) if kind == "pyarrow" else package.DataFrame(bad)
        with pytest.raises(ValueError, match=message):
            load_frame(frame, allow_nan=True)
    with pytest.raises(ValueError, match=r"'a' .*has no value in row 1"):
        load_frame(package.table(columns) if kind == "pyarrow" else package.DataFrame(columns))
