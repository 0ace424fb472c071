"""Damaged and hostile stored sets: the right rows or one clear line, never a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import stored_mutations
from stored_mutations import Files, as_version_1, read_set, signed, with_checksums, write_set, written

from sinkprop.baselines import RegressionRanker
from sinkprop.data import Queries
from sinkprop.store import StoredQueries, StoreError, open_queries, save_queries
from sinkprop.store.checks import xxh64

pa = pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

PART = "part-00000.arrow"


def some_queries(*, names: bool = False) -> Queries:
    rng = np.random.default_rng(0)
    ids = np.array([f"Q{i}" for i in range(12)]) if names else np.arange(12)
    X, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 3, 60).astype(float)
    return Queries(X, y, np.repeat(ids, 5), np.array([f"d{i:03d}" for i in range(60)]))


@pytest.fixture
def stored(tmp_path: Path) -> StoredQueries:
    return save_queries(tmp_path / "a.queries", some_queries(), block_bytes=400, part_bytes=900)


def column_place(stored: StoredQueries, column: int, buffer: int, block: int = 0) -> int:
    """Offset in the first part of a buffer of a block."""
    whole = pa.py_buffer((stored.path / PART).read_bytes())
    batch = pa.ipc.open_file(pa.BufferReader(whole)).get_batch(block)
    return batch.column(column).buffers()[buffer].address - whole.address


def put(folder: Path, name: str, at: int, value: np.generic, *, checksums: bool) -> None:
    files = read_set(folder)
    data, new = bytearray(files[name]), value.tobytes()
    data[at : at + len(new)] = new
    files[name] = bytes(data)
    write_set(folder, with_checksums(files) if checksums else files)


READERS: dict[str, Callable[[StoredQueries], object]] = {
    "load": StoredQueries.load,
    "block": lambda stored: stored.block(0),
    "take": lambda stored: stored.take([0]),
    "without_features": StoredQueries.without_features,
}


@pytest.mark.parametrize("checksums", [False, True], ids=["damaged", "new checksums"])
@pytest.mark.parametrize("way", READERS)
def test_names_whose_offsets_decrease_are_refused(stored: StoredQueries, way: str, checksums: bool) -> None:
    at = column_place(stored, 3, 1) + 2 * 4  # the end of the second name
    put(stored.path, PART, at, np.int32(1), checksums=checksums)
    again = open_queries(stored.path, verify=checksums)
    with pytest.raises(StoreError, match=rf"{PART}: (block 0 is damaged|not an Arrow file of a stored set)"):
        READERS[way](again)


def index_place(stored: StoredQueries) -> int:
    """Offset in the list of queries of the sizes."""
    whole = pa.py_buffer((stored.path / "queries.arrow").read_bytes())
    batch = pa.ipc.open_file(pa.BufferReader(whole)).get_batch(0)
    return batch.column(1).buffers()[1].address - whole.address


@pytest.mark.parametrize("size", [0, -5, 4, 6, 2**62, -(2**63)])
def test_a_query_of_another_size_is_refused_when_the_set_is_opened(stored: StoredQueries, size: int) -> None:
    at = index_place(stored)
    put(stored.path, "queries.arrow", at, np.int64(size), checksums=False)
    with pytest.raises(StoreError, match=r"queries\.arrow: the file is damaged: its SHA-256"):
        open_queries(stored.path)
    put(stored.path, "queries.arrow", at, np.int64(size), checksums=True)
    with pytest.raises(StoreError, match=r"queries\.arrow: the (sizes of the queries are not|queries have)"):
        open_queries(stored.path)


def test_a_document_moved_to_the_next_query_is_refused(stored: StoredQueries) -> None:
    def move(record: dict[str, object]) -> None:
        record["longest"] = 6

    at = index_place(stored)
    put(stored.path, "queries.arrow", at + 3 * 8, np.array([4, 6], np.int64), checksums=True)
    change(stored.path, move)
    first = [block.query for part in stored.manifest.parts for block in part.blocks]
    assert 4 in first, "the two queries are in different blocks"
    with pytest.raises(StoreError, match=r"queries\.arrow: the blocks of the manifest do not begin with"):
        open_queries(stored.path)


def test_damage_is_found_before_the_first_use_of_its_block(stored: StoredQueries) -> None:
    ranker = RegressionRanker().fit(stored)
    at = stored.manifest.parts[0].blocks[1].sums.features
    put(stored.path, PART, at, np.float32(7), checksums=False)
    again = open_queries(stored.path)
    np.testing.assert_array_equal(again.labels(), some_queries().y)  # needs no features
    assert len(again.block(0)) == again.block_rows[1]
    message = rf"{PART}: the features of block 1 are damaged: their checksum is not that of the manifest"
    for use in (ranker.predict, ranker.score, ranker.rank, StoredQueries.load, lambda s: s.block(1)):
        with pytest.raises(StoreError, match=message) as found:
            use(again)
        assert "\n" not in str(found.value)
    other = column_place(stored, 1, 1)
    put(stored.path, PART, other, np.float64(1 + again.labels()[0]), checksums=False)
    with pytest.raises(StoreError, match=rf"{PART}: block 0 is damaged"):
        open_queries(stored.path).labels()


def test_a_block_is_checked_once(stored: StoredQueries, monkeypatch: pytest.MonkeyPatch) -> None:
    from sinkprop.store import mapped

    calls = []
    monkeypatch.setattr(mapped, "xxh64", lambda *pieces: calls.append(pieces) or xxh64(*pieces))
    again = open_queries(stored.path)
    calls.clear()
    for _ in range(3):
        again.load()
        again.labels()
    assert len(calls) == 2 * again.n_blocks
    again = open_queries(stored.path, verify=True)
    calls.clear()
    again.load()
    assert not calls


def test_a_set_of_format_version_1_is_read_and_checked(stored: StoredQueries) -> None:
    expected = stored.load()
    write_set(stored.path, as_version_1(read_set(stored.path)))
    old = open_queries(stored.path)
    assert old.manifest.parts[0].blocks[0].sums is None
    np.testing.assert_array_equal(old.load().X, expected.X)
    assert old.digest == stored.digest
    put(stored.path, PART, stored.manifest.parts[0].blocks[0].sums.features, np.float32(7), checksums=False)
    with pytest.raises(StoreError, match=rf"{PART}: the file is damaged: its SHA-256"):
        open_queries(stored.path).labels()


@pytest.mark.parametrize(
    ("label", "value"), [("whole", 0.5), ("whole", -1.0), ("real", np.nan), ("none", 1.0)]
)
def test_labels_that_the_manifest_excludes_are_refused(
    stored: StoredQueries, label: str, value: float
) -> None:
    def of_kind(record: dict[str, object]) -> None:
        record["label"] = label

    change(stored.path, of_kind)
    put(stored.path, PART, column_place(stored, 1, 1), np.float64(value), checksums=True)
    again = open_queries(stored.path)
    for use in (StoredQueries.load, StoredQueries.labels):
        with pytest.raises(StoreError, match=rf"{PART}: block 0 has a label"):
            use(again)


def test_nulls_are_refused(stored: StoredQueries) -> None:
    files = as_version_1(read_set(stored.path))
    with pa.ipc.open_file(pa.BufferReader(files[PART])) as reader:
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        schema = reader.schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            labels = pa.array([None, *batch.column(1).to_pylist()[1:]], pa.float64())
            columns = [batch.column(0), labels, *batch.columns[2:]]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    write_set(stored.path, with_checksums({**files, PART: sink.getvalue().to_pybytes()}))
    with pytest.raises(StoreError, match=rf"{PART}: block 0 has nulls"):
        open_queries(stored.path)


# The manifest


def change(folder: Path, how: Callable[[dict[str, object]], None]) -> None:
    record = json.loads((folder / "manifest.json").read_bytes())
    how(record)
    (folder / "manifest.json").write_bytes(written(record))


BAD_MANIFESTS: dict[str, Callable[[dict], object]] = {
    "a negative number": lambda r: r.update(rows=-1),
    "a fraction": lambda r: r.update(rows=60.0),
    "true for a number": lambda r: r.update(n_features=True),
    "no features": lambda r: r.update(n_features=0),
    "too many features": lambda r: r.update(n_features=2**31),
    "infinity": lambda r: r.update(longest=float("inf")),
    "text for a flag": lambda r: r.update(docid="false"),
    "too few names": lambda r: r.update(feature_names=["a"]),
    "a name that is half a character": lambda r: r.update(feature_names=["a", "b", "\ud800"]),
    "a number for a name": lambda r: r.update(feature_names=[1, 2, 3]),
    "a list": lambda r: r.update(parts=[[]]),
    "a file outside the folder": lambda r: r["parts"][0].update(file=".."),
    "a zero byte in a name": lambda r: r["index"].update(file="a\0b"),
    "a deep list": lambda r: r.update(sources=json.loads("[" * 900 + "]" * 900)),
    "no blocks": lambda r: r["parts"][0].update(blocks=[]),
    "blocks that do not rise": lambda r: r["parts"][0]["blocks"].reverse(),
    "a block of no queries": lambda r: r["parts"][0]["blocks"].insert(1, r["parts"][0]["blocks"][0]),
    "a block of more queries than rows": lambda r: r["parts"][0]["blocks"][1].__setitem__(0, 11),
    "a block past the end": lambda r: r["parts"][0]["blocks"][0].__setitem__(2, 10**9),
    "a checksum that is none": lambda r: r["parts"][0].update(tail="x"),
}


@pytest.mark.parametrize("fault", BAD_MANIFESTS)
def test_a_manifest_that_says_the_impossible_is_refused(stored: StoredQueries, fault: str) -> None:
    change(stored.path, BAD_MANIFESTS[fault])
    with pytest.raises(
        StoreError, match=r"manifest\.json: the file is complete, but not a manifest"
    ) as found:
        open_queries(stored.path)
    assert "\n" not in str(found.value)


def test_a_manifest_of_deep_lists_is_refused(stored: StoredQueries) -> None:
    path = stored.path / "manifest.json"
    head, _, _ = path.read_bytes().rpartition(b'  "sha256"')
    path.write_bytes(signed(head + b'  "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b",\n"))
    with pytest.raises(StoreError, match=r"manifest\.json: the file is complete, but .*RecursionError"):
        open_queries(stored.path)


def test_a_part_that_is_no_regular_file_is_refused(stored: StoredQueries) -> None:
    (stored.path / PART).unlink()
    (stored.path / PART).mkdir()
    with pytest.raises(StoreError, match=rf"{PART}: not a regular file"):
        open_queries(stored.path)


# Mutations


def of_numbers(files: Files) -> Files:
    return files


@pytest.mark.parametrize(
    ("names", "form", "first"),
    [(False, of_numbers, 0), (True, of_numbers, 200), (True, as_version_1, 400)],
    ids=["numbers", "names", "version 1"],
)
def test_mutated_sets_have_the_right_rows_or_are_refused(
    tmp_path: Path, names: bool, form: Callable[[Files], Files], first: int
) -> None:
    whole = save_queries(tmp_path / "a.queries", some_queries(names=names), block_bytes=400, part_bytes=900)
    write_set(whole.path, form(read_set(whole.path)))
    command = [sys.executable, stored_mutations.__file__, whole.path, str(first), str(first + 200)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, (lines[-1:], run.stderr)
    outcomes = [line.split(" ", 2) for line in lines]
    assert len(outcomes) == 200
    assert not [line for line in outcomes if int(line[0]) % 2 == 0 and line[1] == "other"]
    assert sum(line[1] == "refused" for line in outcomes) > 100


# XXH64


def plain_xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 as its specification has it."""
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5, mask = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, 2**64 - 1

    def turned(x: int, r: int) -> int:
        return ((x << r) | (x >> (64 - r))) & mask

    def mixed(lane: int, value: int) -> int:
        return turned((lane + value * p2) & mask, 31) * p1 & mask

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    at, h = 0, (seed + p5) & mask
    if len(data) >= 32:
        lanes = [(seed + p1 + p2) & mask, (seed + p2) & mask, seed, (seed - p1) & mask]
        for at in range(0, len(data) - 31, 32):
            lanes = [mixed(lane, number(at + 8 * i, 8)) for i, lane in enumerate(lanes)]
        at += 32
        h = sum(turned(lane, r) for lane, r in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            h = ((h ^ mixed(0, lane)) * p1 + p4) & mask
    h = (h + len(data)) & mask
    while at + 8 <= len(data):
        h = (turned(h ^ mixed(0, number(at, 8)), 27) * p1 + p4) & mask
        at += 8
    if at + 4 <= len(data):
        h = (turned(h ^ (number(at, 4) * p1 & mask), 23) * p2 + p3) & mask
        at += 4
    for byte in data[at:]:
        h = turned(h ^ (byte * p5 & mask), 11) * p1 & mask
    h = (h ^ h >> 33) * p2 & mask
    h = (h ^ h >> 29) * p3 & mask
    return h ^ h >> 32


def test_the_checksum_of_blocks_is_xxh64() -> None:
    assert xxh64(b"") == "ef46db3751d8e999"  # known values
    assert xxh64(b"a") == "d24ec4f1a98c6e5b"
    data = np.random.default_rng(0).bytes(300)
    for size in [*range(100), 300]:
        assert xxh64(data[:size]) == f"{plain_xxh64(data[:size]):016x}"
        assert xxh64(b"x", data[:size]) == f"{plain_xxh64(data[:size], plain_xxh64(b'x')):016x}"
