"""Click logs read from Parquet and CSV files: several files as one log, types of columns, and memory."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sinkprop import Queries
from sinkprop.clicks import PositionBasedModel, log_files, read_clicks, simulate_clicks

FRAME = pd.DataFrame(
    {
        "query": ["a", "a", "b", "b"],
        "doc": ["x", "y", "x", "z"],
        "position": [1, 2, 1, 2],
        "clicked": [0, 1, 1, 0],
        "f1": [0.1, 0.2, 0.3, 0.4],
        "f2": [10.0, 20.0, 30.0, 40.0],
    }
)
LATER = FRAME.assign(query=["c", "c", "d", "d"], f1=FRAME.f1 + 1, f2=FRAME.f2 + 1)
HEADER = "query,doc,position,clicked,f1"


@pytest.fixture
def stored(tmp_path):
    """Function that writes frames as Parquet files and text as CSV files, and returns their paths."""

    def write(*contents, suffix=".csv"):
        paths = []
        for i, content in enumerate(contents):
            path = tmp_path / f"{i}{suffix if isinstance(content, str) else '.parquet'}"
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            else:
                content.to_parquet(path, index=False)
            paths.append(path)
        return paths

    return write


# several files


def sessions_of(log):
    """[(query, documents, clicks)] of each session."""
    documents = log.documents
    return [
        (documents.qid[log.rows[a]], documents.docid[log.rows[a:b]].tolist(), log.clicked[a:b].tolist())
        for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True)
    ]


def test_files_in_batches_give_the_log_of_one_frame(tmp_path, monkeypatch):
    queries = Queries(
        np.random.default_rng(0).normal(size=(60, 3)),
        np.arange(60) % 3,
        np.repeat([f"q{q}" for q in range(6)], 10),
        np.array([f"d{row}" for row in range(60)]),
    )
    made = simulate_clicks(queries, queries.X[:, 0], 300, PositionBasedModel(1 / np.arange(1, 11)), seed=1)
    frame = pd.DataFrame(
        {
            "request": made.sessions,
            "query": queries.qid[made.rows],
            "doc": queries.docid[made.rows],
            "position": made.positions,
            "clicked": made.clicked,
            **{f"f{j}": queries.X[made.rows, j] for j in range(3)},
        }
    )
    whole = read_clicks(frame, session="request")
    assert sessions_of(whole) == sessions_of(made)
    table = pa.Table.from_pandas(frame)
    (tmp_path / "parts").mkdir()
    pq.write_table(table.slice(0, 1234), tmp_path / "parts/1.parquet")
    pq.write_table(table.slice(1234), tmp_path / "parts/2.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "all.csv")
    frame.to_csv(tmp_path / "all.tsv.gz", sep="\t")
    monkeypatch.setattr(log_files, "_PARQUET", 100 * 8)
    monkeypatch.setattr(log_files, "_CSV", 4096)
    parts = [tmp_path / "parts/1.parquet", tmp_path / "parts/2.parquet"]
    sources = [tmp_path / "parts", str(tmp_path / "parts/*.parquet"), parts]
    for source in [*sources, tmp_path / "all.csv", tmp_path / "all.tsv.gz"]:
        log = read_clicks(source, session="request")
        np.testing.assert_array_equal(log.rows, whole.rows)
        np.testing.assert_array_equal(log.clicked, whole.clicked)
        np.testing.assert_array_equal(log.offsets, whole.offsets)
        np.testing.assert_array_equal(log.documents.X, whole.documents.X)
        assert log.documents.docid.tolist() == whole.documents.docid.tolist()
        assert log.documents.qid.tolist() == whole.documents.qid.tolist()
        assert log.documents.feature_names == ("f0", "f1", "f2")


def test_columns_of_later_files_are_found_by_name(stored):
    log = read_clicks(stored(FRAME, LATER[["f2", "clicked", "f1", "position", "doc", "query"]]))
    assert log.documents.feature_names == ("f1", "f2")
    np.testing.assert_array_equal(log.documents.X, pd.concat([FRAME, LATER])[["f1", "f2"]])


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ((FRAME, LATER.rename(columns={"f2": "g"})), r"1.parquet has no column 'f2', which .*0.parquet has"),
        ((FRAME, LATER.drop(columns="f1")), r"1.parquet has no column 'f1', which"),
        ((FRAME, LATER.drop(columns="doc")), r"1.parquet has no column 'doc', which"),
        (
            (FRAME, LATER.assign(f3=1.0)),
            r"1.parquet has a column 'f3', which .*0.parquet does not have. Give all files the same",
        ),
        (
            (FRAME, LATER.assign(propensity=0.5)),
            r"1.parquet has a column 'propensity', which .*same columns.$",
        ),
        ((FRAME, LATER.assign(session=1)), r"1.parquet has a column 'session', which"),
        ((FRAME.assign(session=1), LATER), r"1.parquet has no column 'session', which"),
        ((FRAME.assign(propensity=1.0), LATER), r"1.parquet has no column 'propensity', which"),
        ((FRAME.drop(columns="doc"), LATER), r"0.parquet: doc='doc' is not a column of the log"),
        (
            (FRAME, LATER.assign(query=[1, 1, 2, 2])),
            r"'query' holds numbers in .*1.parquet, but text in .*0.par",
        ),
        ((FRAME.assign(doc=[1, 2, 3, 4]), LATER), r"'doc' holds text in .*1.parquet, but numbers in"),
        ((FRAME.assign(doc=[1, 2, 3, 4]), f"{HEADER},f2\nc,1,1,1,0,0\n"), r"1.csv, but numbers in .*as text"),
        (
            (FRAME, LATER.assign(f2=pd.Categorical(["u", "v", "u", "v"]))),
            r"'f2' is categorical in .*1.parquet, but not in .*0.par",
        ),
        ((FRAME, f"{HEADER},f2,f2\nc,x,1,1,0,0,1\n"), r"1.csv: the frame has 2 columns called 'f2'"),
    ],
)
def test_files_with_other_columns_are_refused(stored, frames, message):
    with pytest.raises(ValueError, match=message):
        read_clicks(stored(*frames))


def test_with_features_named_other_columns_may_differ(stored):
    paths = stored(FRAME.assign(note="n"), LATER.assign(f3=1.0, f4="text").drop(columns="f1"))
    log = read_clicks(paths, features=["f2"])
    assert log.documents.X[:, 0].tolist() == [10, 20, 30, 40, 11, 21, 31, 41]
    table = Queries(np.ones((8, 1)), np.zeros(8), list("aabbccdd"), list("xyxz" * 2))
    assert read_clicks(paths, documents=table).rows.tolist() == list(range(8))
    with pytest.raises(ValueError, match=r"1.parquet has a column 'value', which"):
        read_clicks(stored(FRAME, LATER.assign(value=1.0)), features=["f2"])


def test_files_without_rows_are_skipped(stored):
    other = pd.DataFrame({"nothing": pd.Series(dtype=float)})
    whole = read_clicks(stored(FRAME, LATER))
    for frames in ((FRAME[:0], FRAME, other, LATER, f"{HEADER}\n"), (other, FRAME, LATER[:0], LATER)):
        log = read_clicks(stored(*frames))
        np.testing.assert_array_equal(log.documents.X, whole.documents.X)
    with pytest.raises(ValueError, match="the log has no rows"):
        read_clicks(stored(FRAME[:0], f"{HEADER}\n"))


def test_a_session_may_go_on_in_the_next_file(stored):
    paths = stored(FRAME[:3].assign(session=[1, 1, 2]), FRAME[3:].assign(session=2))
    assert read_clicks(paths).sizes.tolist() == [2, 2]


CATEGORIES = (["u", "v", "u", "v"], ["w", "v", None, "t"])


@pytest.mark.parametrize("batch", [None, 1])
def test_categories_of_several_files_and_batches_are_united(stored, monkeypatch, batch):
    if batch:
        monkeypatch.setattr(log_files, "_PARQUET", batch)
    parts = [frame.assign(f2=pd.Categorical(f)) for frame, f in zip((FRAME, LATER), CATEGORIES, strict=True)]
    documents = read_clicks(stored(*parts)).documents
    values = documents.categories["f2"]
    assert values == ("t", "u", "v", "w")
    found = [None if np.isnan(code) else values[int(code)] for code in documents.X[:, 1]]
    assert found == [*CATEGORIES[0], *CATEGORIES[1]]


def test_categories_in_another_order_are_refused(stored):
    orders = (["u", "v"], ["v", "u"])
    parts = [
        frame.assign(f2=pd.Categorical(["u", "v", "u", "v"], categories=order, ordered=True))
        for frame, order in zip((FRAME, LATER), orders, strict=True)
    ]
    with pytest.raises(ValueError, match="column 'f2' has ordered categories, but not the same ones"):
        read_clicks(stored(*parts))


# rows and files in messages


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("clicked", 1, 3, r"1.parquet \(from row 4\): column 'clicked' holds 3 in row 5"),
        ("position", 0, 0, r"1.parquet \(from row 4\): column 'position' holds 0 in row 4"),
        ("position", 3, 3, r"1.parquet \(from row 4\): row 7 shows position 3, but its session does not"),
        ("position", 3, 1, r"1.parquet \(from row 4\): rows 6 and 7 are both at position 1 of one session"),
        ("doc", 1, "x", r"1.parquet \(from row 4\): session 'c' shows a document at two .* in rows 4 and 5"),
        ("f1", 2, np.inf, r"1.parquet \(from row 4\): column 'f1' holds inf in row 6"),
        ("query", 1, None, r"1.parquet \(from row 4\): column 'query' .*has no value in row 5"),
        (
            "session",
            1,
            "a",
            r"0.parquet and .*1.parquet \(from row 4\): rows 1 and 5 have the same session but",
        ),
    ],
)
def test_errors_name_the_row_of_the_whole_input_and_the_file(stored, column, row, value, message):
    parts = [frame.assign(session=frame["query"]) for frame in (FRAME, LATER)]
    parts[1].loc[row, column] = value
    with pytest.raises(ValueError, match=message):
        read_clicks(stored(*parts))


def test_a_row_of_the_first_file_is_named_without_an_offset(stored):
    with pytest.raises(ValueError, match=r"0.parquet: column 'clicked' holds 3 in row 1"):
        read_clicks(stored(FRAME.assign(clicked=[0, 3, 0, 0])))


def test_a_document_that_the_table_does_not_have_is_named_with_its_file(stored):
    table = Queries([[0.0], [0.0]], [0, 0], ["a", "a"], ["x", "y"])
    with pytest.raises(ValueError, match=r"1.parquet \(from row 2\): row 2 shows document 'x' of query 'c'"):
        read_clicks(stored(FRAME[:2], LATER), documents=table)


def test_files_that_are_not_logs_are_refused(tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"broken.parquet: not a Parquet or CSV file"):
        read_clicks(broken)
    (tmp_path / "ragged.csv").write_text("query,doc\n1\n")
    with pytest.raises(ValueError, match=r"ragged.csv: not a Parquet or CSV file"):
        read_clicks(tmp_path / "ragged.csv")
    with pytest.raises(FileNotFoundError):
        read_clicks([broken, tmp_path / "missing.parquet"])
    with pytest.raises(ValueError, match="no file matches"):
        read_clicks(str(tmp_path / "*.tsv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no files whose names end in \.parquet"):
        read_clicks(tmp_path / "empty")
    with pytest.raises(ValueError, match="a list that holds a int"):
        read_clicks([broken, 1])


# CSV


def test_ids_in_csv_files_are_text(stored):
    paths = stored(f"{HEADER}\n1,01,1,1,0\n1,1,2,0,0\n", f"{HEADER}\n001,1,1,1,0\nb,1.0,1,1,0\n")
    documents = read_clicks(paths).documents
    assert documents.qid.tolist() == ["1", "1", "001", "b"]
    assert documents.docid.tolist() == ["01", "1", "1", "1.0"]
    log = read_clicks(stored("session,policy,query,doc,position,clicked\n1,1,q,d,1,1\n01,null,q,d,1,1\n"))
    assert (log.n_sessions, log.policies) == (2, ("1", "null"))


def test_an_empty_id_is_missing(stored):
    with pytest.raises(ValueError, match=r"1.csv \(from row 1\): column 'doc' .*has no value in row 2"):
        read_clicks(stored(f"{HEADER}\na,x,1,1,0\n", f'{HEADER}\na,x,1,1,0\na,"",2,1,0\n'))


def test_numbers_in_csv_files_may_become_fractions_late(stored, monkeypatch):
    monkeypatch.setattr(log_files, "_CSV", 256)
    lines = [f"q{i},d,1,{i % 2},{5 if i < 199 else 5.5}" for i in range(200)]
    log = read_clicks(stored("\n".join([HEADER, *lines])))
    assert log.documents.X[:, 0].tolist() == [5.0] * 199 + [5.5]


def test_text_in_csv_files_is_named_with_its_row(stored, monkeypatch):
    monkeypatch.setattr(log_files, "_CSV", 256)
    lines = [f"q{i},d,1,{i % 2},{5 if i < 199 else 'n.a.'}" for i in range(200)]
    text = "\n".join([HEADER, *lines])
    message = r"1.csv \(from row 200\): column 'f1' must hold numbers; it has 'n.a.' in row 399. Leave it out"
    with pytest.raises(ValueError, match=message):
        read_clicks(stored(text.replace("n.a.", "7"), text))
    with pytest.raises(
        ValueError, match=r"column 'position' must hold numbers; it has 'top' in row 0. Expected"
    ):
        read_clicks(stored(f"{HEADER}\na,x,top,1,0\n"))


@pytest.mark.parametrize(("no", "yes"), [("False", "True"), ("false", "true"), ("0", "1"), ("0.0", "1.0")])
def test_clicks_in_csv_files_may_be_booleans(stored, no, yes):
    log = read_clicks(stored(f"{HEADER}\na,x,1,{no},{yes}\na,y,2,{yes},\n"))
    assert log.clicked.tolist() == [False, True]
    assert log.documents.X[0].tolist() == [1]
    assert np.isnan(log.documents.X[1, 0])


def test_csv_files_may_be_compressed_and_keep_the_index_of_pandas(tmp_path):
    path = tmp_path / "log.csv.gz"
    with gzip.open(path, "wt") as file:
        FRAME.to_csv(file)
    assert read_clicks(path).documents.feature_names == ("f1", "f2")


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("numbers", [False, True])
def test_a_csv_file_finds_its_documents_in_a_table(tmp_path, suffix, numbers):
    queries = [7, 7, 8] if numbers else ["q7", "q7", "q8"]
    table = Queries([[1.0], [2.0], [3.0]], [0, 0, 0], queries, [1, 2, 1] if numbers else ["d", "e", "d"])
    rows = np.array([1, 0, 2, 0])
    frame = pd.DataFrame(
        {
            "query": table.qid[rows],
            "doc": table.docid[rows],
            "position": [1, 2, 1, 1],
            "clicked": [True, False, False, True],
        }
    )
    path = tmp_path / f"log{suffix}"
    frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    assert read_clicks(path, documents=table).rows.tolist() == [1, 0, 2, 0]
    unnamed = Queries(table.X, table.y, table.qid)
    frame.assign(doc=rows).to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    assert read_clicks(path, documents=unnamed).rows.tolist() == [1, 0, 2, 0]


# memory


@pytest.fixture
def requests(monkeypatch):
    """[(rows of a batch, columns)] that Parquet files are asked for."""
    asked = []
    iter_batches = pq.ParquetFile.iter_batches

    def recorded(file, batch_size, columns):
        asked.append((batch_size, set(columns)))
        return iter_batches(file, batch_size, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recorded)
    return asked


def test_only_the_columns_that_are_used_are_read(stored, requests):
    paths = stored(FRAME.assign(session=["s", "s", "t", "t"], other=1.0))
    used = {"session", "query", "doc", "position", "clicked"}
    for options, features in (
        ({"features": ["f2"]}, {"f2"}),
        ({"features": []}, set()),
        ({}, {"f1", "f2", "other"}),
        ({"documents": Queries(np.ones((4, 1)), [0] * 4, list("aabb"), list("xyxz"))}, set()),
    ):
        requests.clear()
        read_clicks(paths, **options)
        assert [columns for _, columns in requests] == [used | features]


def test_batches_of_wide_files_have_fewer_rows(stored, requests):
    wide = pd.concat([FRAME, pd.DataFrame(np.ones((4, 120)), columns=[f"g{j}" for j in range(120)])], axis=1)
    for frame in (FRAME, wide):
        read_clicks(stored(frame))
    narrow, wide = (rows * len(columns) * 8 for rows, columns in requests)
    assert 12e6 < wide <= narrow < 20e6


def test_names_of_columns_may_have_points(stored):
    frame = FRAME.rename(columns={"f1": "f", "f2": "f.g"})
    log = read_clicks(stored(frame), features=["f"])
    assert (log.documents.feature_names, log.documents.X[:, 0].tolist()) == (("f",), [0.1, 0.2, 0.3, 0.4])
    assert read_clicks(stored(frame), features=["f.g"]).documents.X[0, 0] == 10
