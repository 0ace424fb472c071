"""Categories in frames, Parquet and `Queries`: codes, order, missing values, and errors."""

import numpy as np
import pytest
from category_frames import SITES, SIZES, frame
from numpy.testing import assert_array_equal

from sinkprop.data.categories import Categories, Recoding
from sinkprop.data.frames import load_frame, load_parquet
from sinkprop.data.letor import save_letor
from sinkprop.data.queries import Queries

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def rows():
    return frame(pd, 3)


def codes(values, known):
    return [known.index(value) if value in known else np.nan for value in values]


def of_kind(kind, rows):
    if kind == "pandas":
        return rows
    if kind == "pyarrow":
        return pa.Table.from_pandas(rows, preserve_index=False)
    pl = pytest.importorskip("polars", reason="polars is not installed")
    columns = {name: [None if v != v else v for v in rows[name]] for name in rows}  # noqa: PLR0124
    schema = {"site": pl.Categorical, "size": pl.Enum(SIZES)}
    return pl.DataFrame(columns, schema_overrides=schema)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_columns_of_a_categorical_type_become_codes(kind, rows):
    found = load_frame(of_kind(kind, rows), allow_nan=True)
    assert found.categories["site"] == SITES
    assert_array_equal(found.X[:, 1], codes(rows["site"], SITES))
    assert_array_equal(found.X[:, 2], codes(rows["size"], found.categories["size"]))
    # only pandas and Arrow can say that categories have an order
    assert (found.categories["size"], found.ordered) == (
        (tuple(sorted(SIZES)), ()) if kind == "polars" else (SIZES, ("size",))
    )
    assert_array_equal(found.X[:, 0], rows["bm25"])
    part = found.select([1])
    assert (part.categories, part.ordered, part.allow_nan) == (found.categories, found.ordered, True)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_categories_from_parquet(kind, rows, tmp_path):
    table = of_kind(kind, rows)
    path = tmp_path / "a.parquet"
    if kind == "pandas":
        table.to_parquet(path, row_group_size=10)
    else:
        table.write_parquet(path, row_group_size=10)
    expected, found = load_frame(table, allow_nan=True), load_parquet(path, allow_nan=True)
    assert_array_equal(found.X, expected.X)
    assert (found.categories, found.ordered) == (expected.categories, expected.ordered)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_text_and_numbers_are_categories_if_named(kind):
    columns = {
        "qid": [1, 1, 2, 2],
        "label": [0, 1, 0, 1],
        "lang": ["fr", None, "de", "fr"],
        "shop": [30, 10, 30, 20],
    }
    package = pytest.importorskip(kind, reason=f"frames of {kind}")
    table = package.table(columns) if kind == "pyarrow" else package.DataFrame(columns)
    found = load_frame(table, allow_nan=True, categorical=["lang", "shop"])
    assert found.categories == {"lang": ("de", "fr"), "shop": (10, 20, 30)}
    assert_array_equal(found.X, [[1, 2], [np.nan, 0], [0, 2], [1, 1]])
    assert {type(value) for value in found.categories["shop"]} == {int}
    with pytest.raises(
        ValueError, match=r"column 'lang' must hold numbers; .*'fr' in row 0.*categorical=\[\.\.\.\]"
    ):
        load_frame(table, allow_nan=True)
    with pytest.raises(ValueError, match=r"column 'lang' .*has no value in row 1.*allow_nan=True"):
        load_frame(table, categorical=["lang"])
    with pytest.raises(ValueError, match=r"categorical: 'land' is not a feature column.*Did you mean 'lang'"):
        load_frame(table, categorical=["land"])
    with pytest.raises(
        ValueError, match=r"categorical must be a sequence of names; got 'lang'. Use \['lang'\]"
    ):
        load_frame(table, categorical="lang")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_columns_without_any_value(kind):
    columns = {"qid": [1, 1], "label": [0, 1], "a": [None, None], "c": [None, None], "b": [True, None]}
    package = pytest.importorskip(kind, reason=f"frames of {kind}")
    table = package.table(columns) if kind == "pyarrow" else package.DataFrame(columns)
    found = load_frame(table, allow_nan=True, categorical=["c"])
    assert found.categories == {"c": ()}
    assert_array_equal(found.X, [[np.nan, np.nan, 1], [np.nan, np.nan, np.nan]])


def test_ordered_categories_that_differ_between_chunks():
    chunks = [pa.DictionaryArray.from_arrays([0], words, ordered=True) for words in (["a", "b"], ["b", "a"])]
    table = pa.table({"qid": [1, 1], "label": [0, 1], "c": pa.chunked_array(chunks)})
    with pytest.raises(ValueError, match="column 'c' has ordered categories, but not the same ones"):
        load_frame(table)
    plain = [pa.DictionaryArray.from_arrays([0], words) for words in (["b", "unused"], ["a", "b"])]
    found = load_frame(pa.table({"qid": [1, 1], "label": [0, 1], "c": pa.chunked_array(plain)}))
    assert (found.categories, found.X.tolist()) == ({"c": ("a", "b")}, [[1], [0]])


def test_queries_check_their_categories():
    good = {"feature_names": ["c"], "categories": {"c": ["a", "b"]}}
    found = Queries([[0], [1]], [0, 1], [1, 1], **good, ordered=["c"])
    assert (found.categories, found.ordered) == ({"c": ("a", "b")}, ("c",))
    for X, change, message in [
        ([[0], [2]], {}, "the codes 0 to 1 of the categories of 'c'; row 1 holds 2"),
        ([[0], [0.5]], {}, "row 1 holds 0.5"),
        ([[-1], [0]], {}, "row 0 holds -1"),
        ([[0], [1]], {"feature_names": None}, "categories: 'c' is not in feature_names"),
        ([[0], [1]], {"ordered": ["d"]}, "ordered: 'd' is not a feature with categories"),
        ([[0], [1]], {"categories": {"c": ["a", "a"]}}, "each category once"),
        ([[0], [1]], {"categories": {"c": "ab"}}, "must be a sequence of categories"),
        ([[0], [1]], {"categories": {"c": ["a", float("inf")]}}, "must be text or numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            Queries(X, [0, 1], [1, 1], **{**good, **change})
    with pytest.raises(ValueError, match=r"X must be finite.*Pass allow_nan=True"):
        Queries([[np.nan], [1]], [0, 1], [1, 1])


def test_letor_text_cannot_hold_categories(tmp_path):
    queries = Queries([[0], [1]], [0, 1], [1, 1], feature_names=["c"], categories={"c": ("a", "b")})
    with pytest.raises(ValueError, match="LETOR text has numbers only, but 'c' holds categories"):
        save_letor(tmp_path / "a.txt", queries)


def test_codes_of_no_category_are_refused():
    # a stored set is not checked row by row when it is opened
    groups = Queries([[0]], [0], [1]).groups
    names = {"feature_names": ("c",), "categories": {"c": ("b", "a")}}
    bad = Queries.trusted(np.array([[7.0]], np.float32), np.zeros(1), groups, **names)
    with pytest.raises(ValueError, match="column 0 holds numbers that are not its categories"):
        Recoding(bad, Categories({0: ["a", "b"]}, (0,)), ["c"], "X")(bad.X)
