"""Format of the folder of a stored set: its manifest, its Arrow schemas, and the error for an invalid set.

A set has these files::

    NAME.queries/
      manifest.json      description of the set, with the size and SHA-256 of every other file
      queries.arrow      one row per query: its id and its number of documents
      part-00000.arrow   rows of documents, one record batch per block of whole queries

The part files, of which a large set has several, hold the rows. The Arrow files use the IPC file format
without compression. A manifest is JSON text whose last entry is the SHA-256 of all bytes before that entry.
The manifest is written last, so a folder without a complete manifest is not a set. Version 2 of the format
added the checksums of blocks and the categories to the manifest; the other files are those of version 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sinkprop
from sinkprop.common.compressed import StrPath
from sinkprop.data.categories import checked_categories

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMAT_VERSION",
    "INDEX",
    "MANIFEST",
    "Block",
    "Manifest",
    "Part",
    "StoreError",
    "Sums",
    "is_stored",
    "need_pyarrow",
    "part_name",
    "read_manifest",
    "rows_schema",
    "sizes_schema",
]

FORMAT_VERSION = 2
MANIFEST, INDEX = "manifest.json", "queries.arrow"

_OPENING = re.compile(rb'\{\n  "format": "sinkprop-queries",\n  "version": ([1-9][0-9]{0,8}),\n')
_CLOSING = re.compile(rb'  "sha256": "([0-9a-f]{64})"\n\}\n')
_CLOSING_BYTES = 81
_LABELS = ("whole", "real", "none")
_IDS = ("int64", "string")
_MOST = (1 << 62) - 1  # largest number of rows, queries or bytes, whose sums fit in 64 bits
_MOST_FEATURES = (1 << 31) - 1
_SHA256, _XXH64 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{16}")


class StoreError(ValueError):
    """Error for a stored set that cannot be used; its message names the file and a remedy."""


class Sums(NamedTuple):
    """Place of a block in its file, and its checksums (XXH64, in hexadecimal).

    end       Offset of the end of the block, which begins where the block before it ends, or at 0.
    features  Offset of the first feature. All features of the block follow one another.
    values    Checksum of the features.
    rest      Checksum of the other bytes of the block: those after the features, with the checksum of those
              before the features as the seed.
    """

    end: int
    features: int
    values: str
    rest: str


class Block(NamedTuple):
    """A block of whole queries, which is one record batch of a part.

    query  Index of its first query, counted from the start of the set.
    row    Index of its first row, counted from the start of the set.
    sums   Its place in the file, and its checksums; None in a set of format version 1.
    """

    query: int
    row: int
    sums: Sums | None


@dataclass(frozen=True)
class Part:
    """One file of a stored set that holds rows of documents.

    file     Name of the file.
    rows     Number of rows in it.
    queries  Number of queries in it.
    bytes    Size of the file in bytes.
    sha256   SHA-256 of the file, in hexadecimal.
    tail     Checksum (XXH64) of the bytes after the last block; None in a set of format version 1.
    blocks   The blocks, in the order of the file.
    """

    file: str
    rows: int
    queries: int
    bytes: int
    sha256: str
    tail: str | None
    blocks: tuple[Block, ...]

    @property
    def block_rows(self) -> list[int]:
        """Number of rows of each block."""
        starts = [block.row for block in self.blocks]
        return [end - start for start, end in pairwise([*starts, starts[0] + self.rows])]

    def record(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold; `of` is the inverse."""
        return {
            "file": self.file,
            "rows": self.rows,
            "queries": self.queries,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "tail": self.tail,
            "blocks": [[block.query, block.row, *(block.sums or ())] for block in self.blocks],
        }

    @classmethod
    def of(cls, record: dict[str, Any], version: int = FORMAT_VERSION) -> Part:
        """Create a part from `record`, a dict that the method `Part.record` of a format version returned.

        Raises KeyError, TypeError or ValueError if the dict is invalid.
        """
        summed = version > 1
        part = cls(
            _text(record["file"]),
            _whole(record["rows"], 1),
            _whole(record["queries"], 1),
            _whole(record["bytes"], 1),
            _digest(record["sha256"], _SHA256),
            _digest(record["tail"], _XXH64) if summed else None,
            tuple(_block(block, summed) for block in record["blocks"]),
        )
        part.check()
        return part

    def check(self) -> None:
        """Raise ValueError unless the blocks follow one another and have at least one query each."""
        if not self.blocks:
            raise ValueError(f"{self.file} has no blocks")
        query, row = self.blocks[0].query + self.queries, self.blocks[0].row + self.rows
        for block, after in pairwise([*self.blocks, Block(query, row, None)]):
            # a query has one row or more
            if not 0 < after.query - block.query <= after.row - block.row:
                raise ValueError(f"{self.file} has a block of no queries or too few rows")
        end = 0
        for block in self.blocks:
            if block.sums is not None:
                if not end <= block.sums.features <= block.sums.end <= self.bytes:
                    raise ValueError(f"{self.file} has a block outside the file")
                end = block.sums.end


def _block(record: list[Any], summed: bool) -> Block:
    if not summed:
        query, row = record
        return Block(_whole(query), _whole(row), None)
    query, row, end, features, values, rest = record
    sums = Sums(_whole(end), _whole(features), _digest(values, _XXH64), _digest(rest, _XXH64))
    return Block(_whole(query), _whole(row), sums)


def _whole(value: Any, least: int = 0, most: int = _MOST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}, got {_shown(value)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {_shown(value)}")
    value.encode()  # raises UnicodeEncodeError, a ValueError, for text that cannot be printed
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {_shown(value)}")
    return value


def _digest(value: Any, form: re.Pattern[str]) -> str:
    if not form.fullmatch(_text(value)):
        raise ValueError(f"expected a checksum, got {_shown(value)}")
    return str(value)


def _shown(value: Any) -> str:
    return ascii(value)[:40]


@dataclass(frozen=True)
class Manifest:
    """Description of a stored set.

    n_features     Number of features.
    feature_names  Names of the features, or None.
    rows           Number of documents.
    queries        Number of queries.
    longest        Number of documents of the largest query.
    label          "whole" if all labels are whole numbers, "real" if not. "none" if the documents have no
                   labels; then every label is read as 0.
    qid            Type of the query ids, "int64" or "string".
    docid          Whether documents have names.
    has_nan        Whether any feature value is NaN, that is, missing.
    categories     Categories of the categorical features, by name. The rows hold the position of a category.
    ordered        Names of the categorical features whose categories have an order.
    sources        Name and size of each input file; empty if the set was written from memory.
    index          Name, size and SHA-256 of the file that lists the queries.
    parts          The files that hold the rows.
    """

    n_features: int
    feature_names: tuple[str, ...] | None
    rows: int
    queries: int
    longest: int
    label: str
    qid: str
    docid: bool
    has_nan: bool
    sources: tuple[tuple[str, int], ...]
    index: tuple[str, int, str]
    parts: tuple[Part, ...]
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    ordered: tuple[str, ...] = ()

    @property
    def files(self) -> list[tuple[str, int, str]]:
        """Name, size and SHA-256 of every file except the manifest."""
        return [self.index, *((part.file, part.bytes, part.sha256) for part in self.parts)]

    def to_bytes(self) -> bytes:
        """Return the content of manifest.json.

        The same version of sinkprop returns the same bytes for equal manifests.
        """
        record = {
            "library": sinkprop.__version__,
            "n_features": self.n_features,
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "rows": self.rows,
            "queries": self.queries,
            "longest": self.longest,
            "label": self.label,
            "qid": self.qid,
            "docid": self.docid,
            "has_nan": self.has_nan,
            "categories": self.categories,
            "ordered": self.ordered,
            "sources": [{"name": name, "bytes": size} for name, size in self.sources],
            "index": dict(zip(("file", "bytes", "sha256"), self.index, strict=True)),
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in record.items()]
        parts = ",\n".join(f"    {json.dumps(part.record())}" for part in self.parts)
        text = (
            f'{{\n  "format": "sinkprop-queries",\n  "version": {FORMAT_VERSION},\n{"".join(lines)}'
            f'  "parts": [\n{parts}\n  ],\n'
        ).encode()
        return text + f'  "sha256": "{hashlib.sha256(text).hexdigest()}"\n}}\n'.encode()


def is_stored(path: StrPath) -> bool:
    """Whether a folder has the manifest of a stored set.

    Only the beginning of the manifest is read; `open_queries` checks whether the set is complete.

    Parameters
    ----------
    path : path
        The folder.

    Returns
    -------
    bool
        Whether the folder claims to be a stored set.
    """
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            return _OPENING.match(file.read(64)) is not None
    except OSError:
        return False


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a set.

    Raises StoreError if the manifest is missing or damaged, or if its format is newer than this version of
    sinkprop can read. Raises FileNotFoundError if there is no such folder.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_set(folder) from None
    opening = _OPENING.match(data)
    if opening is None:
        raise StoreError(
            f"{path}: not the manifest of a stored set, or a damaged one. Convert the data again."
        )
    version = int(opening[1])
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path}: the set has format version {version}, but sinkprop {sinkprop.__version__} reads "
            f"versions up to {FORMAT_VERSION}. Upgrade sinkprop, or convert the data again with this version."
        )
    closing = _CLOSING.fullmatch(data[-_CLOSING_BYTES:])
    if closing is None:
        raise StoreError(f"{path}: the manifest is damaged or cut off. Convert the data again.")
    found = hashlib.sha256(data[:-_CLOSING_BYTES]).hexdigest()
    if found != closing[1].decode():
        raise StoreError(
            f"{path}: the manifest is damaged: its SHA-256 is {found[:12]}..., but it records "
            f"{closing[1].decode()[:12]}.... Convert the data again."
        )
    try:
        return _manifest(json.loads(data), version)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: the file is complete, but not a manifest that sinkprop {sinkprop.__version__} can read "
            f"({type(error).__name__}: {error})."
        ) from None


def _manifest(record: dict[str, Any], version: int) -> Manifest:
    names = record["feature_names"]
    index = record["index"]
    known = record if version > 1 else {"categories": {}, "ordered": ()}
    categories, ordered = checked_categories(known["categories"], known["ordered"], names)
    manifest = Manifest(
        n_features=_whole(record["n_features"], 1, _MOST_FEATURES),
        feature_names=None if names is None else tuple(map(_text, names)),
        rows=_whole(record["rows"], 1),
        queries=_whole(record["queries"], 1),
        longest=_whole(record["longest"], 1),
        label=_text(record["label"]),
        qid=_text(record["qid"]),
        docid=_flag(record["docid"]),
        has_nan=_flag(record["has_nan"]),
        sources=tuple((_text(source["name"]), _whole(source["bytes"])) for source in record["sources"]),
        index=(_text(index["file"]), _whole(index["bytes"], 1), _digest(index["sha256"], _SHA256)),
        parts=tuple(Part.of(part, version) for part in record["parts"]),
        categories=categories,
        ordered=ordered,
    )
    if manifest.label not in _LABELS or manifest.qid not in _IDS:
        raise ValueError(f"label {_shown(manifest.label)}, qid {_shown(manifest.qid)}")
    if manifest.feature_names is not None and len(manifest.feature_names) != manifest.n_features:
        raise ValueError(f"expected the names of {manifest.n_features} features")
    query = row = 0
    for part in manifest.parts:
        if part.blocks[0][:2] != (query, row):
            raise ValueError(f"{_shown(part.file)} begins at {part.blocks[0][:2]}, not at {(query, row)}")
        query, row = query + part.queries, row + part.rows
    if (query, row) != (manifest.queries, manifest.rows):
        raise ValueError(f"the parts have {query} queries and {row} rows")
    expected = [INDEX, *map(part_name, range(len(manifest.parts)))]
    if [name for name, _, _ in manifest.files] != expected:
        raise ValueError("expected files with the names of a stored set")
    return manifest


def part_name(number: int) -> str:
    """Return the name of the file of a part, from its index."""
    return f"part-{number:05d}.arrow"


def _no_set(folder: Path) -> Exception:
    """Return the error to raise for a path without a manifest; its message gives the probable cause."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    if unfinished.is_dir():
        return StoreError(
            f"{folder}: the conversion to it was not finished. Run the same `sinkprop convert` again to "
            "resume it."
        )
    if not folder.exists():
        return FileNotFoundError(2, os.strerror(2), str(folder))
    if folder.is_dir():
        return StoreError(
            f"{folder}: not a stored set: the folder has no {MANIFEST}. `sinkprop convert` creates sets."
        )
    return StoreError(f"{folder}: a file, but a stored set is a folder. `sinkprop convert` creates sets.")


def need_pyarrow(what: str) -> None:
    """Raise ImportError if pyarrow is not installed.

    The message says that `what` (the name of a function) needs pyarrow, and how to install it.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{what} needs pyarrow: pip install "sinkprop[parquet]"') from error


def rows_schema(n_features: int, qid: str, docid: bool) -> pa.Schema:
    """Columns of a part: features, label, qid, and docid if documents have names."""
    import pyarrow as pa

    value = pa.field("item", pa.float32(), nullable=False)
    fields = [
        pa.field("features", pa.list_(value, n_features), nullable=False),
        pa.field("label", pa.float64(), nullable=False),
        pa.field("qid", pa.int64() if qid == "int64" else pa.string(), nullable=False),
    ]
    if docid:
        fields.append(pa.field("docid", pa.string(), nullable=False))
    return pa.schema(fields)


def sizes_schema(qid: str) -> pa.Schema:
    """Columns of the file that lists the queries: id and number of documents."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64() if qid == "int64" else pa.string(), nullable=False),
            pa.field("documents", pa.int64(), nullable=False),
        ]
    )
