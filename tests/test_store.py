"""Stored sets: what is converted reads back as the in-memory readers have it, a block at a time."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import sinkprop
from sinkprop.data import Queries

pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

from sinkprop.store import StoredQueries, convert, is_stored, open_queries

SIZES = (3, 1, 40, 2, 7, 90, 5, 5, 11, 1)


def some_queries(*, names: bool = False, seed: int = 0, sizes: tuple[int, ...] = SIZES) -> Queries:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    numbers = rng.permutation(len(sizes)) + 1
    ids = np.array([f"Q-{number}" for number in numbers]) if names else numbers
    X = rng.normal(size=(n, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0
    docid = np.array([f"d{i}" for i in range(n)])
    return Queries(X, rng.integers(0, 4, n).astype(float), np.repeat(ids, sizes), docid)


def same(found: Queries, expected: Queries) -> None:
    """Equal in every field, types included."""
    for name in ("X", "y", "qid", "docid"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype.kind == b.dtype.kind, name
            assert a.dtype == b.dtype or a.dtype.kind == "U", name
            np.testing.assert_array_equal(a, b, err_msg=name)
    np.testing.assert_array_equal(found.groups.queries, expected.groups.queries)
    np.testing.assert_array_equal(found.groups.offsets, expected.groups.offsets)
    assert found.groups.rows is None
    assert found.groups.longest == expected.groups.longest
    assert found.feature_names == expected.feature_names


@pytest.fixture(params=[False, True], ids=["numbers", "names"])
def letor(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    sinkprop.save_letor(path, some_queries(names=request.param))
    return path


@pytest.fixture
def stored(letor: Path, tmp_path: Path) -> StoredQueries:
    return convert(letor, tmp_path / "train.queries", block_bytes=600, part_bytes=500)


def test_a_stored_set_reads_back_as_the_reader_in_memory_has_it(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    same(stored.load(), expected)
    assert len(stored) == stored.n_rows == len(expected)
    assert (stored.n_queries, stored.n_features) == (expected.n_queries, expected.n_features)
    assert stored.longest == max(SIZES)
    np.testing.assert_array_equal(stored.sizes, SIZES)
    np.testing.assert_array_equal(stored.offsets, expected.groups.offsets)
    np.testing.assert_array_equal(stored.query_ids, expected.groups.queries)
    np.testing.assert_array_equal(stored.labels(), expected.y)
    assert len(stored.manifest.parts) > 2
    assert is_stored(stored.path)
    stored.verify()


def test_blocks_are_whole_queries_in_order(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    blocks = list(stored.blocks())
    assert len(blocks) == stored.n_blocks > 3
    row = 0
    for b, block in enumerate(blocks):
        first, last = stored.block_queries[b : b + 2]
        same(block, expected.take(np.arange(row, row + len(block))))
        np.testing.assert_array_equal(block.groups.queries, stored.query_ids[first:last])
        assert block.X.dtype == np.float32
        assert block.X.ctypes.data % 64 == 0
        same(stored.block(b), block)
        row += len(block)
    assert row == len(stored)
    some = list(stored.blocks(1, 3, ahead=0))
    assert [len(block) for block in some] == [len(block) for block in blocks[1:3]]


def test_queries_are_taken_by_number_in_the_order_asked_for(stored: StoredQueries, letor: Path) -> None:
    expected = sinkprop.load_letor(letor, dtype=np.float32)
    numbers = [7, 0, 9, 5, 0]
    offsets = expected.groups.offsets
    rows = np.concatenate([np.arange(offsets[q], offsets[q + 1]) for q in numbers])
    found = stored.take(numbers)
    np.testing.assert_array_equal(found.X, expected.X[rows])
    np.testing.assert_array_equal(found.y, expected.y[rows])
    np.testing.assert_array_equal(found.qid, expected.qid[rows])
    np.testing.assert_array_equal(found.docid, expected.docid[rows])
    np.testing.assert_array_equal(np.diff(found.groups.offsets), stored.sizes[numbers])


def test_a_set_is_pickled_by_its_path(stored: StoredQueries) -> None:
    data = pickle.dumps(stored)
    assert len(data) < 1000
    again = pickle.loads(data)
    same(again.load(), stored.load())
    assert again.digest == stored.digest


def test_the_size_of_blocks_and_parts_changes_no_row(letor: Path, tmp_path: Path) -> None:
    one = convert(letor, tmp_path / "one.queries")
    many = convert(letor, tmp_path / "many.queries", block_bytes=1, part_bytes=1)
    assert one.n_blocks == 1
    assert many.n_blocks == many.n_queries == len(many.manifest.parts)
    same(one.load(), many.load())


def test_the_names_are_there_without_an_import_of_pyarrow() -> None:
    assert sinkprop.open_queries is open_queries
    assert sinkprop.StoredQueries is StoredQueries
