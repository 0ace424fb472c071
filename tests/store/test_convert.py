"""Files to stored sets: held to the readers in memory, byte for byte after every kill."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkprop
from sinkprop.common.atomic import write_atomically
from sinkprop.data import Queries
from sinkprop.store import StoredQueries, StoreError, chunks, convert, open_queries, save_queries, writer
from sinkprop.store import from_letor as letor
from sinkprop.store import from_tables as tables

pa = pytest.importorskip("pyarrow", reason="stored sets are Arrow files")


def make_queries(sizes: list[int], *, n_features: int = 4, names: bool = False, seed: int = 0) -> Queries:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = rng.normal(size=(n, n_features)).astype(np.float32)
    X[rng.random(X.shape) < 0.4] = 0
    numbers = rng.permutation(len(sizes)) * 3 + 7
    ids = np.array([f"Q-{number}" for number in numbers]) if names else numbers
    docid = np.array([f"d{i}" for i in range(n)])
    return Queries(X, rng.integers(0, 4, n).astype(float), np.repeat(ids, sizes), docid)


def same(stored: StoredQueries, expected: Queries) -> None:
    """The rows of the set are those expected, in every field."""
    found = stored.load()
    assert found.X.dtype == np.float32
    np.testing.assert_array_equal(found.X, expected.X.astype(np.float32))
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.qid, expected.qid)
    assert (found.qid.dtype.kind in "UO") == (expected.qid.dtype.kind in "UO")
    docid = expected.docid
    if docid is None or not any(docid.tolist()):
        assert found.docid is None
    else:
        np.testing.assert_array_equal(found.docid, docid)
    assert found.feature_names == expected.feature_names
    np.testing.assert_array_equal(np.concatenate([block.X for block in stored.blocks()]), found.X)


def content(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a set."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def frame_of(queries: Queries) -> pa.Table:
    columns = {"label": queries.y, "qid": queries.qid.tolist(), "docid": queries.docid.tolist()}
    columns |= {f"f{j}": queries.X[:, j] for j in range(queries.n_features)}
    return pa.table(columns)


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text and tables in chunks of a line or two, so that queries are cut everywhere."""
    monkeypatch.setattr(chunks, "READ_BYTES", 70)
    monkeypatch.setattr(letor, "_LARGEST_X", 40)
    monkeypatch.setattr(tables, "_BATCH", 48)


# LETOR text


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    read_bytes=st.integers(1, 400),
    largest=st.integers(1, 2000),
    block_bytes=st.integers(1, 800),
    part_bytes=st.integers(1, 2000),
    names=st.booleans(),
    sparse=st.booleans(),
    documents=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_letor_text_reads_back_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    read_bytes: int,
    largest: int,
    block_bytes: int,
    part_bytes: int,
    names: bool,
    sparse: bool,
    documents: bool,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("letor")
    made = make_queries(sizes, names=names, seed=seed)
    if not documents:
        made = Queries(made.X, made.y, made.qid)
    sinkprop.save_letor(folder / "a.txt", made, sparse=sparse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "READ_BYTES", read_bytes)
        patch.setattr(letor, "_LARGEST_X", largest)
        stored = convert(
            folder / "a.txt", folder / "a.queries", block_bytes=block_bytes, part_bytes=part_bytes
        )
    same(stored, sinkprop.load_letor(folder / "a.txt", dtype=np.float32))
    stored.verify()
    # a block is as many queries as fit in, or one
    capacity = max(1, block_bytes // (4 * made.n_features + 16))
    for first, last in zip(stored.block_queries[:-1], stored.block_queries[1:], strict=True):
        assert last - first == 1 or stored.sizes[first:last].sum() <= capacity
        if last < stored.n_queries:
            assert stored.sizes[first : last + 1].sum() > capacity


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_compressed_text_and_several_files_make_one_set(tmp_path: Path, suffix: str) -> None:
    whole = make_queries([3, 5, 1, 8, 2, 4])
    rows = whole.groups.offsets
    cuts = [(0, int(rows[2])), (int(rows[2]), int(rows[3])), (int(rows[3]), len(whole))]
    paths = []
    for number, (first, last) in enumerate(cuts):
        paths.append(tmp_path / f"part{number}.txt{suffix}")
        sinkprop.save_letor(paths[-1], whole.take(np.arange(first, last)), sparse=True)
    stored = convert(paths, tmp_path / "all.queries", block_bytes=200, part_bytes=300)
    same(stored, whole)
    assert stored.manifest.sources == tuple((path.name, path.stat().st_size) for path in paths)


def test_text_without_qid_takes_the_sizes_of_its_queries(tmp_path: Path) -> None:
    for name, sizes in (("a", [2, 1]), ("b", [3])):
        lines = [f"{i % 2} 1:{i + 1}" for i in range(sum(sizes))]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.txt.query").write_text("\n".join(map(str, sizes)) + "\n")
    one = convert(tmp_path / "a.txt", tmp_path / "a.queries")
    same(one, sinkprop.load_letor(tmp_path / "a.txt", dtype=np.float32))
    both = convert([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "both.queries")
    assert both.query_ids.tolist() == [1, 2, 3]
    assert both.sizes.tolist() == [2, 1, 3]
    given = convert(tmp_path / "a.txt", tmp_path / "c.queries", group=[1, 2])
    assert given.sizes.tolist() == [1, 2]


LINES = ["1 qid:1 1:0.5 2:1", "# a comment", "", "0 qid:1 1:2", "2 qid:2 2:3 # x", "0 qid:2 1:1"]

FAULTS = {
    "label": (4, "x qid:2 1:1"),
    "negative label": (4, "-1 qid:2 1:1"),
    "value": (5, "0 qid:2 1:abc"),
    "overflow": (5, "0 qid:2 1:1e39"),
    "null": (5, "0 qid:2 1:NULL"),
    "order": (3, "0 qid:1 2:2 1:2"),
    "name": (4, "2 qid:b 2:3"),
    "no qid": (5, "0 1:1"),
    "zero": (3, "0 qid:1 0:1"),
    "mark": (4, "\ufeff2 qid:2 1:1"),
    "return": (3, "0 qid:1 1:2\r 2:1"),
}


@pytest.mark.parametrize("read_bytes", [1, 1000])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_line_has_the_message_of_the_reader_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, read_bytes: int
) -> None:
    at, line = FAULTS[fault]
    lines = [*LINES]
    lines[at] = line
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    with pytest.raises(ValueError, match=rf"a\.txt, line {at + 1}: ") as expected:
        sinkprop.load_letor(path, dtype=np.float32)
    monkeypatch.setattr(chunks, "READ_BYTES", read_bytes)
    with pytest.raises(ValueError, match=rf"a\.txt, line {at + 1}: ") as found:
        convert(path, tmp_path / "a.queries")
    assert str(found.value) == str(expected.value)
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("# nothing\n\n", {}),
        ("1 qid:1\n", {}),
        ("1 1:2\n", {}),
        ("1 1:2\n0 1:3\n", {"group": [1, 2]}),
        ("1 qid:1 1:2\n", {"group": [1]}),
        ("1 qid:1 1:2 3:4\n", {"n_features": 2}),
    ],
)
def test_what_the_reader_in_memory_refuses_is_refused(
    tmp_path: Path, text: str, options: dict[str, object]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.txt") as expected:
        sinkprop.load_letor(path, **options)
    with pytest.raises(ValueError, match=r"a\.txt") as found:
        convert(path, tmp_path / "a.queries", **options)
    assert str(found.value) == str(expected.value)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_matrix_that_would_be_nearly_empty_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    lines = [f"0 qid:{i} 1:1" for i in range(100)]
    lines[70] = "0 qid:70 1:1 1000000:1"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"a.txt, line 71: the feature id 1000000 asks for a dense matrix"):
        convert(path, tmp_path / "a.queries")


def test_options_of_the_reader_are_those_of_convert(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 qid:1 0:0.5 2:NULL\n0 qid:1 1:2\n")
    options = {"zero_based": True, "null": -1.5, "n_features": 5}
    stored = convert(path, tmp_path / "a.queries", **options)
    same(stored, sinkprop.load_letor(path, dtype=np.float32, **options))
    kept = convert(path, tmp_path / "b.queries", zero_based=True, allow_nan=True)
    assert kept.has_nan
    np.testing.assert_array_equal(kept.block(0).X, np.array([[0.5, 0, np.nan], [0, 2, 0]], np.float32))
    assert not stored.has_nan


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1 qid:1 1:1 2:NULL\n")
    made = convert(path, tmp_path / "a.queries", n_features=np.int64(3), null=np.float32(-1))
    assert made.load().X.tolist() == [[1, -1, 0]]


def test_names_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"1 qid:1 1:1 # \xc3\xa4\n0 qid:1 1:2 # \xff\n")
    with pytest.raises(ValueError, match=r"a.txt, line 2: the docid .* is not UTF-8"):
        convert(path, tmp_path / "a.queries")
    path.write_bytes(b"1 qid:1 1:1 # \xc3\xa4\n0 qid:1 1:2 # o\n")
    assert convert(path, tmp_path / "a.queries").load().docid.tolist() == ["\u00e4", "o"]


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"1 qid:1 1:0.123\n" * 5000)[:-30])
    with pytest.raises(ValueError, match=r"a.txt.gz: the compressed stream \(gzip\) is damaged or cut off"):
        convert(path, tmp_path / "a.queries", n_features=1)


# Tables


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("names", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "tsv"])
def test_tables_read_back_as_frames_do(tmp_path: Path, kind: str, names: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet comes with pyarrow")
    from pyarrow import csv

    table = frame_of(make_queries([3, 5, 1, 8, 2, 4], names=names))
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=5, compression="zstd")
    else:
        options = csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
        csv.write_csv(table, tmp_path / "plain", options)
        data = (tmp_path / "plain").read_bytes().replace(b"\n", b"\r\n")
        path.write_bytes(gzip.compress(data) if kind == "csv.gz" else data)
    stored = convert(path, tmp_path / "a.queries", docid="docid", block_bytes=200, part_bytes=300)
    same(stored, sinkprop.load_frame(table, docid="docid"))
    some = convert(path, tmp_path / "b.queries", features=["f2", "f0"])
    same(some, sinkprop.load_frame(table, features=["f2", "f0"]))
    bare = convert(path, tmp_path / "c.queries", label=None, docid="docid", features=["f1"])
    assert not bare.labeled
    assert not bare.labels().any()


def test_missing_values_are_an_error_or_nan(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet comes with pyarrow")
    table = pa.table({"qid": [1, 1, 2], "label": [0, 1, 0], "a": [1.0, None, 2.0], "b": [1, 2, None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("qid,label,a,b\n1,0,1,1\n1,1,,2\n2,0,2,NA\n")
    expected = np.array([[1, 1], [np.nan, 2], [2, np.nan]], np.float32)
    for name, place in (("a.parquet", "row 1"), ("a.csv", "line 3")):
        with pytest.raises(ValueError, match=rf"{name}: column 'a' \(double\) has no value in {place}\."):
            convert(tmp_path / name, tmp_path / "a.queries")
        stored = convert(tmp_path / name, tmp_path / f"{name}.queries", allow_nan=True)
        assert stored.has_nan
        np.testing.assert_array_equal(stored.load().X, expected)
        with pytest.raises(ValueError, match="are NaN \\(missing\\), which RegressionRanker does not accept"):
            stored.require_finite("RegressionRanker")


CSV_FAULTS = {
    "columns": ("1,0,3", r"line 4: expected 4 columns, as in the first line; got 3: '1,0,3'\."),
    "text": ("1,0,3,x", r"column 'b' must hold numbers; line 4 has 'x'\."),
    "label": ("1,yes,3,4", r"column 'label' must hold numbers; line 4 has 'yes'\."),
    "negative": ("1,-2,3,4", r"column 'label' holds -2.0 in line 4; labels must not be below 0\."),
    "infinite": ("1,0,3,inf", r"column 'b' holds inf in line 4; expected a finite number"),
    "overflow": ("1,0,3,-1e39", r"column 'b' holds -1e\+39 in line 4, which is too large for float32"),
    "id": ("x,0,3,4", r"column 'qid' must hold whole numbers, as in the rows before.*line 4 has 'x'"),
}


@pytest.mark.parametrize("fault", CSV_FAULTS)
def test_a_faulty_line_of_csv_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    line, message = CSV_FAULTS[fault]
    path = tmp_path / "a.csv"
    path.write_text(f"qid,label,a,b\n1,0,1,2\n\n{line}\n1,1,1,1\n")
    monkeypatch.setattr(chunks, "READ_BYTES", 8)
    with pytest.raises(ValueError, match=f"a.csv: {message}"):
        convert(path, tmp_path / "a.queries")
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv: the file is empty"),
        ("qid,label,a\n", "a.csv: the frame has no rows"),
        ("qid,a\n1,2\n", "a.csv: label='label' is not a column of the frame"),
        ("qid,label\n1,2\n", "a.csv: the frame has no columns besides"),
        ("qid,label,a,a\n1,2,3,4\n", "a.csv: the frame has 2 columns called 'a'"),
        (",qid,label,a\n0,1,2,3\n", "a.csv: column 0 has no name, like the index that pandas writes"),
        ("qid,label,a\n,2,3\n", "a.csv: column 'qid' has no value in line 2"),
    ],
)
def test_a_csv_file_that_is_no_table_of_documents_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        convert(path, tmp_path / "a.queries")


def test_files_of_a_set_have_the_same_features(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("qid,label,x,u\n1,0,1,2\n")
    (tmp_path / "b.csv").write_text("label,u,qid,x\n1,4,2,3\n")
    stored = convert([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "a.queries")
    np.testing.assert_array_equal(stored.load().X, np.array([[1, 2], [3, 4]], np.float32))
    (tmp_path / "c.csv").write_text("qid,label,x,z\n3,0,1,2\n")
    with pytest.raises(ValueError, match=r"c.csv: the file lacks the column 'u', unlike .*a.csv"):
        convert([tmp_path / "a.csv", tmp_path / "c.csv"], tmp_path / "b.queries")
    (tmp_path / "d.txt").write_text("1 qid:1 1:1\n")
    with pytest.raises(ValueError, match="must be of one kind; got csv and letor"):
        convert([tmp_path / "a.csv", tmp_path / "d.txt"], tmp_path / "b.queries")
    with pytest.raises(ValueError, match=r"n_features= is for LETOR text, but these files are CSV"):
        convert(tmp_path / "a.csv", tmp_path / "b.queries", n_features=3)
    with pytest.raises(ValueError, match=r"features= is for CSV and Parquet"):
        convert(tmp_path / "d.txt", tmp_path / "b.queries", features=["x"])


# Queries that do not stand together


@pytest.mark.parametrize("read_bytes", [1, 30, 1000])
def test_a_query_in_two_places_is_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(chunks, "READ_BYTES", read_bytes)
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("# made\n1 qid:1 1:1\n0 qid:1 1:2\n\n0 qid:2 1:1\n0 qid:3 1:1\n1 qid:1 1:4\n")
    options = {"block_bytes": 1, "part_bytes": 1}
    with pytest.raises(ValueError, match=r"the query 1 occurs in two places, .*a.txt:2 and .*a.txt:7\."):
        convert(a, tmp_path / "a.queries", **options)
    a.write_text("1 qid:x 1:1\n0 qid:y 1:2\n")
    b.write_text("# b\n0 qid:y 1:1\n0 qid:z 1:1\n")  # also where one file ends and the next begins
    for sizes in ({}, options):
        with pytest.raises(
            ValueError, match=r"the query 'y' occurs in two places, .*a.txt:2 and .*b.txt:2\."
        ):
            convert([a, b], tmp_path / "a.queries", **sizes)
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_a_query_in_two_places_of_tables(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet comes with pyarrow")
    table = pa.table({"qid": ["a", "b", "a"], "label": [0, 1, 0], "x": [1.0, 3.0, 2.0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        ValueError,
        match=r"the query 'a' occurs in two places, row 0 of .*a.parquet and row 2 of .*a.parquet\.",
    ):
        convert(tmp_path / "a.parquet", tmp_path / "a.queries")
    (tmp_path / "a.csv").write_text("qid,label,x\n5,0,1\n\n6,1,1\n5,0,1\n")
    with pytest.raises(ValueError, match=r"the query 5 occurs in two places, .*a.csv:2 and .*a.csv:5\."):
        convert(tmp_path / "a.csv", tmp_path / "a.queries")


def test_seen_ids_find_every_repetition_and_no_other() -> None:
    from sinkprop.store.seen_ids import SeenIds

    rng = np.random.default_rng(0)
    ids = rng.permutation(300_000)
    seen = SeenIds("int64")
    for first in range(0, len(ids), 9_000):
        assert seen.repeated(pa.array(ids[first : first + 9_000])) == []
    again = rng.choice(ids, 5, replace=False)
    fresh = np.arange(400_000, 400_100)
    assert sorted(seen.repeated(pa.array(np.concatenate([fresh, again])))) == sorted(again.tolist())


# Kills


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    sinkprop.save_letor(path, make_queries([7, 2, 9, 4] * 5, n_features=6))
    return path


SMALL = {"block_bytes": 300, "part_bytes": 300}


class Killed(BaseException):
    """In place of a signal, at a place that a test chooses."""


@pytest.mark.parametrize(("read_bytes", "batch"), [(70, 48), (1100, 1000)])
@pytest.mark.parametrize("kind", ["letor", "csv", "parquet"])
def test_a_run_that_ends_at_any_step_is_resumed_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path, kind: str, read_bytes: int, batch: int
) -> None:
    monkeypatch.setattr(chunks, "READ_BYTES", read_bytes)
    monkeypatch.setattr(tables, "_BATCH", batch)
    path = text_file
    if kind != "letor":
        table = frame_of(sinkprop.load_letor(text_file)).drop_columns("docid")
        path = tmp_path / f"train.{kind}"
        if kind == "csv":
            from pyarrow import csv

            csv.write_csv(table, path)
        else:
            pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=25)
    whole = convert(path, tmp_path / "whole.queries", **SMALL)
    expected = content(whole.path)
    assert len(expected) > 8
    rename, steps = os.replace, 0
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here

    def counted(*arguments: object) -> None:
        nonlocal steps
        steps += 1
        rename(*arguments)

    monkeypatch.setattr(os, "replace", counted)
    convert(path, tmp_path / "count.queries", **SMALL)
    monkeypatch.setattr(os, "replace", rename)
    out = tmp_path / "killed.queries"
    for stop in range(0, steps, 4):  # a part is three steps, so each of them is met
        leave_unfinished(path, out, monkeypatch, after=stop)
        assert not out.exists()
        with pytest.raises(StoreError, match="the conversion to it was not finished"):
            open_queries(out)
        convert(path, out, **SMALL)
        assert content(out) == expected
        assert not Path(f"{out}.unfinished").exists()
        for file in out.iterdir():
            file.unlink()
        out.rmdir()


@pytest.mark.parametrize("stop", range(3))
def test_a_set_that_is_put_in_its_place_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path, stop: int
) -> None:
    out = tmp_path / "a.queries"
    before = content(convert(text_file, out, n_features=9).path)
    expected = content(convert(text_file, tmp_path / "b.queries").path)
    rename, remove, left = os.rename, shutil.rmtree, stop

    def killed(*arguments: object, **options: object) -> None:
        nonlocal left
        if Path(str(arguments[0])).name in ("a.queries", "set", "a.queries.replaced"):
            if not left:
                raise Killed
            left -= 1
        (rename if len(arguments) > 1 else remove)(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            convert(text_file, out, overwrite=True)
    assert not out.exists() or content(out) in (before, expected)
    convert(text_file, out, overwrite=stop < 2)
    assert content(out) == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.queries", "b.queries", "train.txt"]


def start_conversion(path: Path, out: Path) -> subprocess.Popen[bytes]:
    code = f"from sinkprop.store import convert; convert({str(path)!r}, {str(out)!r}, **{SMALL!r})"
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_process_that_is_killed_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    sinkprop.save_letor(path, make_queries([7, 2, 9, 4] * 9, n_features=6))
    expected = content(convert(path, tmp_path / "whole.queries", **SMALL).path)
    out = tmp_path / "killed.queries"
    parts = tmp_path / "killed.queries.unfinished" / "set"
    rng = np.random.default_rng(8)
    n_parts = len(expected) - 2
    for target in sorted(rng.integers(1, n_parts - 10, 2).tolist()):
        process = start_conversion(path, out)
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if parts.is_dir() and len(list(parts.glob("part-*.arrow"))) >= target:
                    break
                time.sleep(0.001)  # the processor is for the conversion
            time.sleep(rng.uniform(0, 0.005))
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not out.exists()
    convert(path, out, **SMALL)
    assert content(out) == expected


def leave_unfinished(path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, after: int = 5) -> None:
    """A conversion that ends where it would rename a file, after it has renamed so many."""
    rename, left = os.replace, after

    def killed(*arguments: object) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        rename(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            convert(path, out, **SMALL)


def test_what_a_killed_process_left_does_not_get_into_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    out, work = tmp_path / "a.queries", tmp_path / "a.queries.unfinished"
    expected = content(convert(text_file, tmp_path / "whole.queries", **SMALL).path)
    leave_unfinished(text_file, out, monkeypatch)
    for folder in (work, work / "set"):
        (folder / ".sinkprop-0123").mkdir()
        (folder / ".sinkprop-0123" / "manifest.json").write_text("half")
    (work / "set" / "part-00077.arrow").write_text("half")
    (work / "set" / "part-00001.arrow.tmp").write_text("half")
    (work / "set" / "queries.arrow").write_text("half")
    assert content(convert(text_file, out, **SMALL).path) == expected
    assert not work.exists()


def test_other_work_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path) -> None:
    out = tmp_path / "a.queries"
    leave_unfinished(text_file, out, monkeypatch)
    other = tmp_path / "other.txt"
    other.write_bytes(text_file.read_bytes())
    with pytest.raises(StoreError, match=r"holds an unfinished conversion of other files\."):
        convert(other, out, **SMALL)
    with pytest.raises(StoreError, match=r"with n_features=None, not 9\."):
        convert(text_file, out, n_features=9, **SMALL)
    with pytest.raises(StoreError, match=r"with block_bytes=300, not 400\."):
        convert(text_file, out, block_bytes=400, part_bytes=300)
    os.utime(text_file, ns=(1, 1))
    with pytest.raises(StoreError, match=r"of an earlier version of train.txt\. Finish it as it was"):
        convert(text_file, out, **SMALL)
    expected = content(convert(text_file, tmp_path / "b.queries", **SMALL).path)
    assert content(convert(text_file, out, overwrite=True, **SMALL).path) == expected


def test_a_new_start_is_made_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    out = tmp_path / "a.queries"
    leave_unfinished(text_file, out, monkeypatch)
    stored = convert(text_file, out, resume=False, n_features=9)
    assert stored.n_features == 9


def test_a_set_is_replaced_only_when_told_to_and_only_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    out = tmp_path / "a.queries"
    convert(text_file, out)
    before = content(out)
    with pytest.raises(FileExistsError, match="A stored set exists there"):
        convert(text_file, out, n_features=9)
    bad = tmp_path / "bad.txt"
    bad.write_text("1 qid:1 1:x\n")
    with pytest.raises(ValueError, match=r"bad\.txt, line 1"):
        convert(bad, out, overwrite=True)
    assert content(out) == before
    assert convert(text_file, out, n_features=9, overwrite=True).n_features == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.queries", "bad.txt", "train.txt"]


def test_a_folder_or_file_that_is_no_set_is_left_alone(tmp_path: Path, text_file: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("folder", "file"):
        with pytest.raises(FileExistsError, match="exists"):
            convert(text_file, tmp_path / name, overwrite=True)
    assert (tmp_path / "folder" / "mine.txt").read_text() == "precious"
    assert (tmp_path / "file").read_text() == "precious"
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        convert(tmp_path / "none.txt", tmp_path / "a.queries")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        convert(text_file, tmp_path / "nowhere" / "a.queries")


def test_two_conversions_to_one_folder_are_kept_apart(tmp_path: Path, text_file: Path) -> None:
    fcntl = pytest.importorskip("fcntl", reason="locks are of POSIX systems")
    out = tmp_path / "a.queries"
    (tmp_path / "a.queries.unfinished").mkdir()
    with open(tmp_path / "a.queries.unfinished" / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process is converting to it"):
            convert(text_file, out)
    convert(text_file, out)


def test_a_full_disk_is_the_error_of_the_system_and_the_work_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    out = tmp_path / "a.queries"
    write, left = writer._HashingFile.write, 12

    def full(self: object, data: object) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(writer._HashingFile, "write", full)
        with pytest.raises(OSError, match=r"No space left on device: .*a.queries"):
            convert(text_file, out, **SMALL)
    expected = content(convert(text_file, tmp_path / "b.queries", **SMALL).path)
    assert content(convert(text_file, out, **SMALL).path) == expected


# Progress, and the command line


def test_progress_is_told_in_bytes_of_the_files(tmp_path: Path, text_file: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    convert(text_file, tmp_path / "a.queries", progress=lambda *told: seen.append(told))
    size = text_file.stat().st_size
    assert seen[0] == (size, size, "counting features")
    assert seen[-1] == (size, size, "converting train.txt")


def test_queries_from_memory_are_saved_as_files_are(tmp_path: Path, text_file: Path) -> None:
    queries = sinkprop.load_letor(text_file, dtype=np.float32)
    shuffled = queries.take(np.random.default_rng(0).permutation(len(queries)))
    stored = save_queries(tmp_path / "a.queries", shuffled)
    same(stored, shuffled.take(shuffled.groups.rows))
    rows = queries.groups.offsets

    def parts() -> Iterator[Queries]:
        for first, last in ((0, 9), (9, 20)):
            yield queries.take(np.arange(rows[first], rows[last]))

    same(save_queries(tmp_path / "b.queries", parts(), **SMALL), queries)
    with pytest.raises(ValueError, match="occurs in two places, row 0 and row 110"):
        save_queries(tmp_path / "c.queries", [queries, queries])
    with pytest.raises(ValueError, match="must have the same features as the first ones"):
        save_queries(tmp_path / "c.queries", [queries, Queries([[1.0]], [0], [99])])
    with pytest.raises(ValueError, match=r"whole numbers or text; got 1.5"):
        save_queries(tmp_path / "c.queries", Queries([[1.0]], [0], [1.5]))
    with pytest.raises(ValueError, match="X must fit into float32"):
        save_queries(tmp_path / "c.queries", Queries([[1e300]], [0], [1]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.queries", "b.queries", "train.txt"]


def run_program(*words: object) -> Callable[[], None]:
    click = pytest.importorskip("click", reason="the command line comes with the extra cli")
    pytest.importorskip("rich", reason="the command line comes with the extra cli")
    del click
    from sinkprop.cli import main

    return lambda: main([str(word) for word in words])


def program(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        run_program(*words)()
    told = capsys.readouterr()
    return int(done.value.code or 0), told.out, told.err


def test_the_command_converts_and_says_what_it_made(
    tmp_path: Path, text_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.queries"
    status, said, error = program(capsys, "convert", text_file, "-o", out)
    assert (status, error) == (0, "")
    assert "110 documents in 20 queries, 6 features, at most 9 documents per query" in said
    same(open_queries(out), sinkprop.load_letor(text_file, dtype=np.float32))
    status, said, error = program(capsys, "convert", text_file, "-o", out)
    assert (status, said) == (1, "")
    assert error == f"sinkprop: {out}: A stored set exists there; give --force to replace it.\n"
    assert program(capsys, "convert", text_file, "-o", out, "--force", "--n-features", "8")[0] == 0
    assert open_queries(out).n_features == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--qid-column", "q"], "--qid-column applies only to CSV and Parquet"),
        (["--from", "csv", "--null", "0"], "--null applies only to LETOR text"),
        (["--unlabeled"], "--unlabeled applies only to CSV and Parquet"),
        (["--n-features", "2"], "is past the last of --n-features 2"),
    ],
)
def test_options_that_do_not_fit_are_named_as_options(
    tmp_path: Path, text_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    status, said, error = program(capsys, "convert", text_file, "-o", tmp_path / "a.queries", *words)
    assert status in (1, 2)
    assert said == ""
    assert message in error
    assert error.count("\n") == 1
    assert os.listdir(tmp_path) == ["train.txt"]


def test_a_column_of_names_is_found_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("qid,label,docid,x\n1,0,one,1\n1,1,two,2\n")
    assert program(capsys, "convert", tmp_path / "a.csv", "-o", tmp_path / "a.queries")[0] == 0
    stored = open_queries(tmp_path / "a.queries")
    assert stored.load().docid.tolist() == ["one", "two"]
    assert stored.feature_names == ("x",)


def test_the_manifest_names_no_time_and_no_folder(tmp_path: Path, text_file: Path) -> None:
    stored = convert(text_file, tmp_path / "a.queries")
    record = json.loads((stored.path / "manifest.json").read_text())
    assert str(tmp_path) not in json.dumps(record)
    assert record["sources"] == [{"name": "train.txt", "bytes": text_file.stat().st_size}]


def test_others_read_a_part_without_this_library(tmp_path: Path, text_file: Path) -> None:
    stored = convert(text_file, tmp_path / "a.queries")
    code = textwrap.dedent(
        """
        import sys, numpy as np, pyarrow as pa
        table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
        X = np.stack(table["features"].to_numpy())
        print(X.shape, X.dtype, X.sum(dtype=np.float64), "sinkprop" in sys.modules)
        """
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(stored.path / "part-00000.arrow")],
        capture_output=True,
        text=True,
        check=True,
    )
    X = sinkprop.load_letor(text_file, dtype=np.float32).X
    assert found.stdout == f"{X.shape} float32 {X.sum(dtype=np.float64)} False\n"


def test_a_kill_during_the_cleanup_leaves_nothing_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
    out, remove = tmp_path / "out" / "a.queries", shutil.rmtree
    out.parent.mkdir()

    def killed(folder: str, **options: bool) -> None:
        """Remove a folder; a working folder only up to its journal, which may come first."""
        for journal in Path(folder).rglob(writer.JOURNAL):
            journal.unlink()
            raise Killed
        remove(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            convert(text_file, out, **SMALL)
    write_atomically(out.parent / "next", b"")
    assert {path.name for path in out.parent.iterdir()} == {"a.queries", "next"}
    open_queries(out, verify=True)
