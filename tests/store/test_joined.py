"""Queries in several places of the input of `convert`: they are put together in memory, up to a limit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import sinkprop
from sinkprop.data import Queries
from sinkprop.store import chunks, convert, joined

pa = pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

SMALL = {"block_bytes": 300, "part_bytes": 300}


def scattered(*, names: bool, n: int = 60) -> Queries:
    rng = np.random.default_rng(1)
    qid = rng.integers(0, 9, n)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    docid = np.array([f"d{i}" for i in range(n)])
    return Queries(X, rng.integers(0, 4, n), np.char.add("q", qid.astype(str)) if names else qid, docid)


def check(stored, expected: Queries) -> None:
    together = expected.take(expected.groups.rows)
    found = stored.load()
    np.testing.assert_array_equal(found.X, together.X)
    np.testing.assert_array_equal(found.y, together.y)
    assert found.qid.tolist() == together.qid.tolist()
    assert found.docid.tolist() == together.docid.tolist()


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "csv", "parquet", "two files"])
@pytest.mark.parametrize("names", [False, True])
def test_rows_of_a_query_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, names: bool
) -> None:
    monkeypatch.setattr(chunks, "READ_BYTES", 200)
    monkeypatch.setattr(joined, "_CHUNK", 100)
    data, options = scattered(names=names), {}
    paths = [tmp_path / f"a.{kind}"]
    if kind in ("csv", "parquet"):
        options["docid"] = "docid"
        columns = {"qid": data.qid, "label": data.y, "docid": data.docid}
        table = pa.table(columns | {f"f{j}": data.X[:, j] for j in range(4)})
        if kind == "csv":
            from pyarrow import csv

            csv.write_csv(table, paths[0])
        else:
            pytest.importorskip("pyarrow.parquet").write_table(table, paths[0])
    elif kind == "two files":
        paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
        sinkprop.save_letor(paths[0], data.take(np.arange(25)))
        sinkprop.save_letor(paths[1], data.take(np.arange(25, len(data))))
    else:
        sinkprop.save_letor(paths[0], data)
    with pytest.raises(ValueError, match=r"occurs in two places.*pass split_queries='join'"):
        convert(paths, tmp_path / "a.queries", **options, **SMALL)
    check(convert(paths, tmp_path / "a.queries", split_queries="join", **options, **SMALL), data)
    assert sorted(os.listdir(tmp_path)) == sorted(["a.queries", *(path.name for path in paths)])


def test_larger_inputs_are_refused_unless_their_queries_are_whole(tmp_path: Path) -> None:
    data, text = scattered(names=False), tmp_path / "a.txt"
    sinkprop.save_letor(text, data)
    size = len(data) * (4 * 4 + 16)
    options = {"split_queries": "join", **SMALL}
    with pytest.raises(ValueError, match=r"take more than 1919 bytes.*`sort -s -k2,2 FILE`, or raise join_"):
        convert(text, tmp_path / "a.queries", join_bytes=size - 1, **options)
    assert os.listdir(tmp_path) == ["a.txt"]
    check(convert(text, tmp_path / "a.queries", join_bytes=size, **options), data)
    lines = sorted(text.read_text().splitlines(keepends=True), key=lambda line: line.split()[1])
    text.write_text("".join(lines))  # as the error advises
    whole = convert(text, tmp_path / "b.queries", join_bytes=1, **options)
    assert whole.n_queries == data.n_queries
    for wrong in (0, 1.5, True, "1"):
        with pytest.raises(ValueError, match="join_bytes must be a whole number, at least 1"):
            convert(text, tmp_path / "c.queries", join_bytes=wrong)
    with pytest.raises(ValueError, match=r"split_queries must be 'error' or 'join'; got 'sort'\."):
        convert(text, tmp_path / "c.queries", split_queries="sort")


class Killed(BaseException):
    """In place of a signal, at a place that a test chooses."""


def test_a_run_that_ends_at_any_step_is_resumed_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is cut here
    monkeypatch.setattr(joined, "_CHUNK", 100)
    text, options = tmp_path / "a.txt.gz", {"split_queries": "join", **SMALL}
    sinkprop.save_letor(text, scattered(names=True))

    def content(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())}

    rename, steps, last = os.replace, 0, -1

    def counted(*arguments: object) -> None:
        nonlocal steps
        if steps == last:
            raise Killed
        steps += 1
        rename(*arguments)

    monkeypatch.setattr(os, "replace", counted)
    convert(text, tmp_path / "whole.queries", **options)
    total, expected = steps, content("whole.queries")
    assert total > 15
    for stop in range(total):
        steps, last = 0, stop
        with pytest.raises(Killed):
            convert(text, tmp_path / f"{stop}.queries", **options)
        last = -1
        convert(text, tmp_path / f"{stop}.queries", **options)
        assert content(f"{stop}.queries") == expected
