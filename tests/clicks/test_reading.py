"""Click logs read from frames and files, and the errors of logs that are not as they should be."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sinkprop import Queries
from sinkprop.clicks import PositionBasedModel, read_clicks, simulate_clicks
from sinkprop.clicks import reading as reading_module

ROWS = [
    ("s1", "q1", "x", 1, 0, 0.3),
    ("s1", "q1", "y", 2, 1, 0.9),
    ("s2", "q2", "x", 1, 0, 0.5),
    ("s3", "q1", "y", 1, 1, 0.9),
    ("s3", "q1", "x", 2, 0, 0.3),
]
FRAME = pd.DataFrame(ROWS, columns=["session", "query", "doc", "position", "clicked", "bm25"])


def sessions_of(log):
    """{(query, documents from the top, clicks): number of sessions}, by names."""
    found = {}
    names, queries = log.documents.docid, log.documents.qid
    for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True):
        rows = log.rows[a:b]
        key = (queries[rows[0]], tuple(names[rows]), tuple(log.clicked[a:b].astype(int)))
        found[key] = found.get(key, 0) + 1
    return found


EXPECTED = {("q1", ("x", "y"), (0, 1)): 1, ("q2", ("x",), (0,)): 1, ("q1", ("y", "x"), (1, 0)): 1}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_every_kind_of_frame_gives_the_same_log(kind):
    frame = {"pandas": FRAME, "polars": pl.from_pandas(FRAME), "arrow": pa.Table.from_pandas(FRAME)}[kind]
    log = read_clicks(frame)
    assert sessions_of(log) == EXPECTED
    assert log.documents.feature_names == ("bm25",)
    assert log.documents.X[:, 0].tolist() == [0.3, 0.9, 0.5]


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_of_sessions_may_be_in_any_order(shuffled):
    frame = FRAME.sample(frac=1, random_state=4) if shuffled else FRAME
    assert sessions_of(read_clicks(frame)) == EXPECTED


def test_without_session_ids_a_session_begins_where_the_position_does_not_increase():
    assert sessions_of(read_clicks(FRAME.drop(columns="session"))) == EXPECTED


def test_without_document_ids_each_row_is_a_document():
    log = read_clicks(FRAME.drop(columns="doc"), doc=None)
    assert len(log.documents) == 5
    assert log.documents.docid is None
    assert log.rows.tolist() == [0, 1, 2, 3, 4]


def test_files_in_batches_give_the_log_of_one_frame(tmp_path, monkeypatch):
    queries = Queries(
        np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3, np.repeat(range(6), 10)
    )
    made = simulate_clicks(queries, queries.X[:, 0], 300, PositionBasedModel(1 / np.arange(1, 11)), seed=1)
    frame = pd.DataFrame(
        {
            "request": made.sessions,
            "query": queries.qid[made.rows],
            "doc": [f"d{row}" for row in made.rows],
            "position": made.positions,
            "clicked": made.clicked,
            **{f"f{j}": queries.X[made.rows, j] for j in range(3)},
        }
    )
    whole = read_clicks(frame, session="request")
    assert sessions_of(whole) == sessions_of_simulated(made)
    table = pa.Table.from_pandas(frame)
    pq.write_table(table.slice(0, 1234), tmp_path / "1.parquet")
    pq.write_table(table.slice(1234), tmp_path / "2.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "all.csv")
    monkeypatch.setattr(reading_module, "_BATCH", 100)
    paths = [tmp_path, str(tmp_path / "*.parquet"), [tmp_path / "1.parquet", tmp_path / "2.parquet"]]
    for path in [*paths, tmp_path / "all.csv"]:
        log = read_clicks(path, session="request")
        np.testing.assert_array_equal(log.rows, whole.rows)
        np.testing.assert_array_equal(log.clicked, whole.clicked)
        np.testing.assert_array_equal(log.offsets, whole.offsets)
        np.testing.assert_array_equal(log.documents.X, whole.documents.X)
        assert log.documents.docid.tolist() == whole.documents.docid.tolist()
        assert log.documents.qid.tolist() == whole.documents.qid.tolist()


def sessions_of_simulated(log):
    named = Queries(
        log.documents.X,
        log.documents.y,
        log.documents.qid,
        np.array([f"d{row}" for row in range(len(log.documents))]),
    )
    object.__setattr__(log, "documents", named)
    return sessions_of(log)


def test_optional_columns_are_read_and_are_no_features():
    frame = FRAME.assign(propensity=[0.5, 1, 1, 0.25, 1], policy=["a", "a", "b", "b", "b"], value=range(5))
    log = read_clicks(frame)
    assert log.documents.feature_names == ("bm25",)
    assert log.propensity.tolist() == [0.5, 1, 1, 0.25, 1]
    assert [log.policies[code] for code in log.policy] == ["a", "b", "b"]
    assert log.value.tolist() == [0, 1, 2, 3, 4]
    renamed = read_clicks(frame.rename(columns={"value": "dwell"}), value="dwell")
    assert renamed.value.tolist() == [0, 1, 2, 3, 4]


def test_sessions_without_clicks_are_dropped_if_asked():
    assert read_clicks(FRAME, without_clicks="drop").n_sessions == 2
    with pytest.raises(ValueError, match="no session has a click"):
        read_clicks(FRAME.assign(clicked=0), without_clicks="drop")


def test_a_table_of_documents_gives_the_features():
    table = Queries([[1.0], [2.0], [3.0]], [0, 0, 0], ["q1", "q2", "q1"], ["y", "x", "x"])
    log = read_clicks(FRAME.drop(columns="bm25"), documents=table)
    assert log.rows.tolist() == [2, 0, 1, 0, 2]
    numbered = FRAME.assign(doc=[2, 0, 1, 0, 2])
    by_number = read_clicks(numbered, documents=Queries([[1.0], [2.0], [3.0]], [0, 0, 0], [1, 2, 1]))
    assert by_number.rows.tolist() == [2, 0, 1, 0, 2]
    with pytest.raises(ValueError, match="row 2 shows document 'x' of query 'q2', which documents does not"):
        read_clicks(FRAME, documents=table.take(np.array([0, 2])))
    with pytest.raises(ValueError, match="column 'doc' must hold its rows, 0 to 0"):
        read_clicks(numbered, documents=Queries([[1.0]], [0], [1]))


def test_a_log_without_features_can_be_read_but_not_trained_on():
    from sinkprop import SinkPropRanker

    log = read_clicks(FRAME.drop(columns="bm25"))
    assert sessions_of(log) == EXPECTED
    with pytest.raises(ValueError, match="the click log has no feature columns"):
        SinkPropRanker().fit(log)


def changed(row, **values):
    frame = FRAME.copy()
    for name, value in values.items():
        frame[name] = frame[name].astype(object)
        frame.loc[row, name] = value
    return frame.infer_objects()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.assign(position=FRAME.position - 1), r"row 0; expected a position.*add 1 to them"),
        (changed(1, position=3), "row 1 has a click at position 3, but its session does not show position 2"),
        (changed(4, position=7), "row 4 shows position 7, but its session does not show position 2"),
        (changed(4, position=1), "rows 3 and 4 are both at position 1 of one session"),
        (changed(1, position=1.5), "row 1; expected a position"),
        (changed(2, clicked=3), "column 'clicked' holds 3 in row 2; expected 0 or 1"),
        (changed(1, query="q2"), "rows 0 and 1 have the same session but different queries"),
        (changed(3, doc=None), "column 'doc'"),
        (changed(2, bm25=np.inf), "column 'bm25' holds inf"),
        (changed(3, bm25="high"), "column 'bm25' must hold numbers"),
        (FRAME.drop(columns="clicked"), "clicked='clicked' is not a column of the log"),
        (FRAME.drop(columns="doc"), "With doc=None, each row is a document of its own"),
        (FRAME[:0], "the log has no rows"),
        (FRAME.assign(policy=["a", "b", "c", "d", "d"]), "rows 0 and 1 have the same session but different"),
        (FRAME.assign(propensity=[0, 1, 1, 1, 1]), "propensity must be above 0"),
        (changed(1, doc="x"), "session 0 shows the document in row 0 of documents at two positions"),
    ],
)
def test_a_log_with_a_fault_is_refused_with_its_place(frame, message):
    with pytest.raises(ValueError, match=message):
        read_clicks(frame)


def test_files_that_are_not_logs_are_refused(tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match="not a Parquet or CSV file"):
        read_clicks(broken)
    with pytest.raises(FileNotFoundError):
        read_clicks(tmp_path / "missing.parquet")
    with pytest.raises(ValueError, match="no file matches"):
        read_clicks(str(tmp_path / "*.csv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no files whose names end in \.parquet"):
        read_clicks(tmp_path / "empty")


def test_missing_features_are_kept_as_missing():
    log = read_clicks(changed(0, bm25=None))
    assert np.isnan(log.documents.X).sum() == 1
    assert log.documents.allow_nan
