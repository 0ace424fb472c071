"""Click logs read from frames, and the errors of logs that are not as they should be."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sinkprop import Queries
from sinkprop.clicks import read_clicks
from sinkprop.data.frames import load_frame
from sinkprop.store import save_queries

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


BARE = FRAME.drop(columns="bm25")
TABLE = Queries([[1.0], [2.0], [3.0]], [0, 0, 0], ["q1", "q2", "q1"], ["y", "x", "x"])


def test_a_table_of_documents_gives_the_features():
    log = read_clicks(BARE, documents=TABLE)
    assert log.documents is TABLE
    assert log.rows.tolist() == [2, 0, 1, 0, 2]


def test_a_table_without_names_is_meant_by_row():
    table = Queries([[1.0], [2.0], [3.0]], [0, 0, 0], ["q1", "q2", "q1"])
    for rows in ([2, 0, 1, 0, 2], ["2", "0", "1", "0", "2"]):
        assert read_clicks(BARE.assign(doc=rows), documents=table).rows.tolist() == [2, 0, 1, 0, 2]


@pytest.mark.parametrize("ids", ["table", "log"])
@pytest.mark.parametrize("named", [False, True])
def test_ids_that_are_numbers_and_ids_that_are_text_are_compared_as_text(ids, named):
    number = {"q1": 1, "q2": 2, "x": 7, "y": 8}
    log, table = BARE, TABLE
    if ids == "log":
        log = BARE.replace({"query": number, "doc": number if named else {}}).infer_objects()
        table = Queries(table.X, table.y, ["1", "2", "1"], ["8", "7", "7"] if named else table.docid)
    else:
        log = BARE.replace({"query": {"q1": "1", "q2": "2"}, "doc": {"x": "7", "y": "8"} if named else {}})
        table = Queries(table.X, table.y, [1.0, 2.0, 1.0], [8, 7, 7] if named else table.docid)
    assert read_clicks(log, documents=table).rows.tolist() == [2, 0, 1, 0, 2]


def test_the_table_may_come_from_a_frame_with_integer_ids():
    ids = BARE.replace({"query": {"q1": 1, "q2": 2}, "doc": {"x": 7, "y": 8}}).infer_objects()
    frame = pd.DataFrame({"query": [1, 2, 1], "doc": [8, 7, 7], "f": [1.0, 2.0, 3.0]})
    table = load_frame(frame, qid="query", docid="doc", label=None)
    assert read_clicks(ids, documents=table).rows.tolist() == [2, 0, 1, 0, 2]
    text = pa.Table.from_pandas(frame.astype({"query": str, "doc": str}))
    for i, name in enumerate(("query", "doc")):
        text = text.set_column(i, name, text.column(i).cast(pa.string_view()))
    table = load_frame(text, qid="query", docid="doc", label=None)
    assert read_clicks(ids, documents=table).rows.tolist() == [2, 0, 1, 0, 2]


UNNAMED = Queries([[1.0], [2.0]], [0, 0], ["q1", "q2"])


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (
            BARE,
            {"documents": TABLE.take(np.array([0, 2]))},
            r"^row 2 shows document 'x' of query 'q2', which",
        ),
        (BARE.assign(query="q3"), {"documents": TABLE}, "row 0 shows document 'x' of query 'q3', which docu"),
        (
            BARE,
            {"documents": TABLE.take(np.array([0, 2, 1, 0]))},
            "rows 0 and 3 of documents are both docume",
        ),
        (
            BARE.assign(doc=[0, 2, 1, 0, 0]),
            {"documents": UNNAMED},
            "row 1 has 2 in .* must hold its rows, 0 to 1",
        ),
        (
            BARE.assign(doc=[0, -1, 1, 0, 0]),
            {"documents": UNNAMED},
            "row 1 has -1 in column 'doc', but documen",
        ),
        (BARE, {"documents": UNNAMED}, "row 0 has 'x' in column 'doc', but documents has no docid"),
        (
            BARE.assign(doc=[0, 0, 0, 0, 0], position=1, session=range(5)),
            {"documents": UNNAMED},
            "row 2 shows row 0 of documents for query 'q2', but this row is of query 'q1'",
        ),
        (BARE, {"documents": TABLE, "features": ["bm25"]}, "features must not be given with documents"),
        (BARE, {"documents": TABLE, "doc": None}, "doc must name a column"),
        (
            BARE,
            {"documents": FRAME},
            r"got pandas.*Pass load_frame\(documents, qid='query', docid='doc', label=",
        ),
        (BARE, {"documents": [TABLE]}, "documents must be Queries; got builtins.list. load_frame makes them"),
    ],
)
def test_a_wrong_table_of_documents_is_refused(frame, options, message):
    with pytest.raises(ValueError, match=message):
        read_clicks(frame, **options)


def test_a_stored_set_is_not_a_table_of_documents(tmp_path):
    with pytest.raises(ValueError, match=r"got sinkprop.*StoredQueries. Pass documents.load\(\)"):
        read_clicks(BARE, documents=save_queries(tmp_path / "s", TABLE))


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
        (changed(3, doc=None), "column 'doc' .* has no value in row 3"),
        (changed(2, bm25=np.inf), "column 'bm25' holds inf in row 2"),
        (
            changed(2, bm25="high"),
            r"'bm25' must hold numbers; it is .* with 'high' in row 2. Leave it out with features=\[...\]",
        ),
        (changed(2, position="1"), "'1' in row 2. Expected whole numbers, 1 for the top.$"),
        (FRAME.assign(value="high"), "'high' in row 0. Expected numbers that are not below 0.$"),
        (FRAME.drop(columns="clicked"), "clicked='clicked' is not a column of the log"),
        (FRAME.drop(columns="doc"), "With doc=None, each row is a document of its own"),
        (FRAME[:0], "the log has no rows"),
        (FRAME.assign(policy=["a", "b", "c", "d", "d"]), "rows 0 and 1 have the same session but different"),
        (
            FRAME.assign(propensity=[1, 1, 1, 1.5, 1]),
            "holds 1.5 in row 3; propensity must be above 0 and at m",
        ),
        (FRAME.assign(value=[1, 1, -2, 1, 1]), "column 'value' holds -2 in row 2; value must not be below 0"),
        (changed(1, doc="x"), "session 's1' shows a document at two positions: 'x', in rows 0 and 1"),
    ],
)
def test_a_log_with_a_fault_is_refused_with_its_place(frame, message):
    with pytest.raises(ValueError, match=message):
        read_clicks(frame)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("propensity", 0, "'propensity' holds 0.0 in row {}"),
        ("value", -1, "'value' holds -1.0 in row {}"),
        ("doc", "x", "'x', in rows {} and {}"),
        ("query", "q2", "rows {} and {} have the same session but different queries"),
        ("position", 1, "rows {} and {} are both at position 1"),
    ],
)
def test_rows_are_those_of_the_input_if_it_is_not_sorted(column, value, message):
    frame = FRAME.assign(propensity=1.0, value=1.0)
    frame.loc[4, column] = value
    order = [4, 2, 1, 3, 0]
    rows = sorted(order.index(row) for row in ((4, 3) if message.count("{") == 2 else (4,)))
    if column == "doc":
        frame.loc[3, "doc"] = value
    with pytest.raises(ValueError, match=message.format(*rows)):
        read_clicks(frame.iloc[order].reset_index(drop=True))


# ids


def test_large_ids_are_not_rounded():
    ids = [2**63 + 1, 2**63 + 1, -1, 2**63, 2**63]
    frame = FRAME.assign(query=pd.Series(ids, dtype=object), session=[0, 0, 1, 2, 2])
    assert read_clicks(frame).documents.qid.tolist() == [2**63 + 1, 2**63 + 1, -1, 2**63, 2**63]
    frame = FRAME.assign(doc=np.array([2**63 + 1, 2**63, 5, 2**63, 2**63 + 1], dtype=np.uint64))
    assert read_clicks(frame).documents.docid.tolist() == [2**63 + 1, 2**63, 5]


def test_integer_ids_stay_integers():
    documents = read_clicks(FRAME.assign(query=[1, 1, 2, 1, 1], doc=[5, 6, 5, 6, 5])).documents
    assert (documents.qid.dtype.kind, documents.docid.dtype.kind) == ("i", "i")


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_arrow_type_of_text_is_read(kind):
    table = pa.Table.from_pandas(FRAME)
    for name in ("query", "doc", "session"):
        i = table.column_names.index(name)
        table = table.set_column(i, name, pa.chunked_array([table.column(i).combine_chunks().cast(kind)]))
    assert sessions_of(read_clicks(table)) == EXPECTED
    assert sessions_of(read_clicks(table.to_batches()[0])) == EXPECTED


def test_chunks_with_other_dictionaries_are_read():
    parts = [pa.Table.from_pandas(FRAME.iloc[rows]) for rows in (slice(0, 2), slice(2, 5))]
    parts = [part.set_column(2, "doc", part.column("doc").dictionary_encode()) for part in parts]
    assert sessions_of(read_clicks(pa.concat_tables(parts))) == EXPECTED


UNUSED = pd.Categorical(["b", "b", "a", "a", "a"], categories=["a", "no ranker", "b"])


def test_policies_are_those_of_sessions_in_order_of_appearance():
    for frame in (FRAME.assign(policy=UNUSED), pa.Table.from_pandas(FRAME.assign(policy=UNUSED))):
        log = read_clicks(frame)
        assert (log.policies, log.policy.tolist()) == (("b", "a"), [0, 1, 1])


LISTS = [[1], [2], [3], [4], [5]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.assign(doc=LISTS), r"column 'doc' holds \[1\] in row 0, which cannot be an id"),
        (pl.from_pandas(FRAME).with_columns(doc=pl.Series(LISTS)), "in row 0, which cannot be an id"),
        (pa.table({**pa.Table.from_pandas(FRAME).to_pydict(), "doc": LISTS}), r"holds \[1\] in row 0, which"),
        (FRAME.assign(doc=["x", "y", {}, "y", "x"]), "holds {} in row 2, which cannot be an id"),
        (pa.Table.from_pandas(FRAME).set_column(2, "doc", pa.nulls(5)), "'doc' .null. has no value in row 0"),
        (
            pa.Table.from_pandas(FRAME).set_column(2, "doc", pa.array([1.0, 2, np.nan, 1, 2])),
            "column 'doc' holds nan in row 2; expected a finite number",
        ),
        (
            pa.Table.from_pandas(FRAME).set_column(5, "bm25", pa.array(list("abcde"), pa.string_view())),
            "column 'bm25' must hold numbers",
        ),
        ([FRAME, FRAME], "source must be one frame or paths of files; got a list that holds a DataFrame"),
    ],
)
def test_what_cannot_be_read_is_refused(frame, message):
    with pytest.raises(ValueError, match=message):
        read_clicks(frame)


# features


def test_doubtful_names_of_features_are_warned_of_once():
    names = {"user_id": 1, "timestamp": 2, "session_id": 3, "label": 4}
    frame = FRAME.assign(**names)
    with pytest.warns(UserWarning, match="'user_id' .an id., 'timestamp'.*'session_id'.*'label'") as found:
        assert read_clicks(frame).documents.feature_names == ("bm25", *names)
    assert len(found) == 1
    assert found[0].filename == __file__
    assert read_clicks(frame, features=["user_id", "bm25"]).documents.feature_names == ("user_id", "bm25")
    assert read_clicks(frame, documents=TABLE).documents is TABLE


@pytest.mark.parametrize("name", ["clicked", "position", "query", "doc"])
def test_columns_with_another_role_are_no_features(name):
    with pytest.raises(ValueError, match=f"features must not name '{name}', the {name} column of the log"):
        read_clicks(FRAME, features=["bm25", name])


def test_optional_columns_become_features_only_if_the_caller_names_no_other_role():
    frame = FRAME.assign(value=range(5))
    log = read_clicks(frame, features=["value"])
    assert log.value is None
    assert log.documents.X[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="features must not name 'value', the value column"):
        read_clicks(frame, features=["value"], value="value")


def test_a_log_may_be_read_without_features():
    assert read_clicks(FRAME, features=[]).documents.n_features == 1
    with pytest.raises(ValueError, match=r"Use \['bm25'\]"):
        read_clicks(FRAME, features="bm25")
    with pytest.raises(ValueError, match="'bm52' is not a column of the frame"):
        read_clicks(FRAME, features=["bm52"])


def test_missing_features_are_kept_as_missing():
    log = read_clicks(changed(0, bm25=None))
    assert np.isnan(log.documents.X).sum() == 1
    assert log.documents.allow_nan
