"""Mutations of stored sets: bytes and numbers changed at random, with or without new checksums.

    python tests/helpers/stored_mutations.py SET FIRST STOP

tries the mutations FIRST to STOP - 1 of a set one after the other. Every second one gets new checksums, as
somebody would make them who wants the set to be read. Prints a line for each: its number, its outcome and
what was changed. The outcome is `right` if the rows of the original were read, `refused` if a StoreError of
one line names the set, and `other` if other rows were read. The process ends with a traceback at any other
outcome, and after 60 s without one.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sinkprop.store.checks import xxh64

Files = dict[str, bytes]  # content of every file of a set, by its name
MANIFEST = "manifest.json"
_NUMBERS = (-1, 0, 1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
_HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**62,
    2**63,
    1e308,
    0.5,
    "",
    "x",
    "..",
    "\0",
    [],
    {},
    [[]],
)


def read_set(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_set(folder: Path, files: Files) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def flip(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def insert(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = draw.randbytes(draw.choice((1, 8, 64)))


def remove(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.choice((1, 8, 64))]


def cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def clear(data: bytearray, draw: random.Random) -> None:
    at, size = draw.randrange(len(data)), draw.choice((4, 16, 256))
    data[at : at + size] = bytes([draw.choice((0, 255))]) * len(data[at : at + size])


def copy(data: bytearray, draw: random.Random) -> None:
    size = min(len(data), draw.choice((8, 64, 512)))
    a, b = (draw.randrange(len(data) - size + 1) for _ in range(2))
    data[a : a + size] = data[b : b + size]


def number(data: bytearray, draw: random.Random) -> None:
    """Replace an aligned number of 4 or 8 bytes."""
    size = draw.choice((4, 8))
    at = draw.randrange(max(1, len(data) // size)) * size
    old = int.from_bytes(data[at : at + size], "little")
    new = draw.choice((*_NUMBERS, old + 1, old - 1, 2 * old, -old))
    data[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")[: len(data[at : at + size])]


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip,
    flip,
    number,
    number,
    insert,
    remove,
    cut,
    clear,
    copy,
)


def leaf(record: Any, draw: random.Random) -> str:
    """Replace, remove or repeat a random value somewhere in JSON; return where."""
    at = ""
    while True:
        keys = list(record) if isinstance(record, dict) else range(len(record))
        key = draw.choice(list(keys))
        at += f"/{key}"
        value = record[key]
        if isinstance(value, dict | list) and value and draw.random() < 0.9:
            record = value
            continue
        change = draw.random()
        if change < 0.1:
            del record[key]
        elif change < 0.2 and isinstance(record, list):
            record.append(value)
        elif change < 0.6 and type(value) is int:
            record[key] = value + draw.choice((-8, -1, 1, 8))
        else:
            record[key] = draw.choice(_HOSTILE)
        return at


def written(record: dict[str, Any], checksum: str | None = None) -> bytes:
    """A manifest with its checksum or the given one, whatever its values are."""
    values = {name: value for name, value in record.items() if name != "sha256"}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in values.items()]
    return signed(("{\n" + "".join(lines)).encode(), checksum)


def signed(text: bytes, checksum: str | None = None) -> bytes:
    return text + f'  "sha256": "{checksum or hashlib.sha256(text).hexdigest()}"\n}}\n'.encode()


def as_version_1(files: Files) -> Files:
    """The set as format version 1 has it: without the checksums of blocks."""
    record = json.loads(files[MANIFEST])
    record["version"] = 1
    for part in record["parts"]:
        del part["tail"]
        part["blocks"] = [block[:2] for block in part["blocks"]]
    return {**files, MANIFEST: written(record)}


def with_checksums(files: Files) -> Files:
    """The set with new checksums and sizes in its manifest, as far as the manifest can be understood."""
    try:
        record = json.loads(files[MANIFEST])
        for entry in [record["index"], *record["parts"]]:
            data = files[entry["file"]]
            entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        for part in record["parts"]:
            _sum_blocks(part, files[part["file"]], record["n_features"])
        return {**files, MANIFEST: written(record)}
    except (LookupError, TypeError, ValueError, AttributeError):
        head, _, _ = files.get(MANIFEST, b"").rpartition(b'  "sha256"')
        return {**files, MANIFEST: signed(head)}


def _sum_blocks(part: dict[str, Any], data: bytes, n_features: int) -> None:
    first = part["blocks"][0][1]
    ends = [*(block[1] for block in part["blocks"][1:]), first + part["rows"]]
    start = 0
    for block, last in zip(part["blocks"], ends, strict=True):
        if len(block) == 2:  # format version 1
            return
        end, features = block[2:4]
        after = features + 4 * n_features * (last - block[1])
        block[4:] = [xxh64(data[features:after]), xxh64(data[start:features], data[after:end])]
        start = end
    part["tail"] = xxh64(data[start:])


def mutated(files: Files, draw: random.Random) -> tuple[Files, str]:
    """A set with one change, and what was changed."""
    name = draw.choice([*files, MANIFEST])
    if name == MANIFEST and draw.random() < 0.7:
        record = json.loads(files[name])
        checksum = record["sha256"]
        at = leaf(record, draw)
        return {**files, name: written(record, checksum)}, f"{name}{at}"
    if draw.random() < 0.03:
        other = draw.choice(list(files))
        return {**files, name: files[other]}, f"{name} is a copy of {other}"
    data, change = bytearray(files[name]), draw.choice(BYTES)
    change(data, draw)
    return {**files, name: bytes(data)}, f"{name} {change.__name__}"


def mutation(files: Files, number: int) -> tuple[Files, str]:
    """The mutation of a set that has this number, and what was changed; odd numbers get new checksums."""
    found, what = mutated(files, random.Random(number))
    return (with_checksums(found), f"{what}, new checksums") if number % 2 else (found, what)


def rows_read(folder: Path) -> list[bytes]:
    """All rows of a set as bytes, read by each of the ways to read them."""
    import numpy as np

    from sinkprop.store import open_queries

    stored = open_queries(folder)
    names = stored.without_features()
    some = stored.take([stored.n_queries - 1, 0])
    rows = stored.load()
    if not np.array_equal(rows.y, stored.labels()) or len(rows) != stored.offsets[-1] != len(some):
        raise AssertionError("the rows depend on how they are read")
    with np.errstate(all="ignore"):  # other rows may have any values
        one = rows.X.astype(np.float64).sum(1)
    if np.isfinite(one).all():
        from sinkprop.metrics import evaluate

        evaluate(rows.y, one, rows.qid, "ndcg@3")
    docid = [] if names.docid is None else [names.docid, rows.docid]
    return [np.ascontiguousarray(a).astype("U").tobytes() for a in (rows.qid, *docid)] + [
        a.tobytes() for a in (rows.X, rows.y)
    ]


def outcome(folder: Path, expected: list[bytes]) -> str:
    from sinkprop.store import StoreError

    try:
        found = rows_read(folder)
    except StoreError as error:
        text = str(error)
        if "\n" in text or str(folder) not in text or len(text) > 500:
            raise AssertionError(f"the message is not one line that names the set: {text}") from error
        return "refused"
    return "right" if found == expected else "other"


def main() -> None:
    source, first, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    files, expected = read_set(source), rows_read(source)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "mutated.queries")
        folder.mkdir()
        for i in range(first, stop):
            changed, what = mutation(files, i)
            print(i, end=" ", flush=True)
            faulthandler.dump_traceback_later(60, exit=True)
            write_set(folder, changed)
            print(outcome(folder, expected), what, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    main()
