"""The folder of a stored set: its manifest, its schema, and errors that say what is wrong with one.

    NAME.queries/
      manifest.json      what the set is, with the size and SHA-256 of every other file
      queries.arrow      a row a query: id, documents
      part-00000.arrow   rows of documents, a record batch a block of whole queries

The Arrow files are of the IPC file format, not compressed. A manifest is JSON text whose last line is the
SHA-256 of all bytes before it, and is written last: a folder without a whole manifest is no set.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sinkprop
from sinkprop.common.compressed import StrPath

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FORMAT_VERSION",
    "INDEX",
    "MANIFEST",
    "Manifest",
    "Part",
    "StoreError",
    "is_stored",
    "need_pyarrow",
    "read_manifest",
    "rows_schema",
    "sizes_schema",
]

FORMAT_VERSION = 1
MANIFEST, INDEX = "manifest.json", "queries.arrow"

_OPENING = re.compile(rb'\{\n  "format": "sinkprop-queries",\n  "version": ([1-9][0-9]{0,8}),\n')
_CLOSING = re.compile(rb'  "sha256": "([0-9a-f]{64})"\n\}\n')
_CLOSING_BYTES = 81
_LABELS = ("whole", "real", "none")
_IDS = ("int64", "string")


class StoreError(ValueError):
    """A stored set that cannot be used as it is: one line that names the file and says what to do."""


@dataclass(frozen=True)
class Part:
    """One file of rows. `blocks` are (first query, first row) of each record batch, counted in the set."""

    file: str
    rows: int
    queries: int
    bytes: int
    sha256: str
    blocks: tuple[tuple[int, int], ...]

    def record(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "rows": self.rows,
            "queries": self.queries,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "blocks": [list(block) for block in self.blocks],
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> Part:
        blocks = tuple((int(query), int(row)) for query, row in record["blocks"])
        if not blocks:
            raise ValueError("a part without blocks")
        return cls(
            str(record["file"]),
            int(record["rows"]),
            int(record["queries"]),
            int(record["bytes"]),
            str(record["sha256"]),
            blocks,
        )


@dataclass(frozen=True)
class Manifest:
    """What a stored set is.

    label    "whole" or "real" numbers, or "none" for documents not judged, whose labels are 0
    qid      the type of the query ids, "int64" or "string"
    docid    whether documents have names
    has_nan  whether a feature is NaN, for missing
    sources  name and size of each file that was converted
    index    name, size and SHA-256 of the file of queries
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

    @property
    def files(self) -> list[tuple[str, int, str]]:
        """Name, size and SHA-256 of every file but the manifest."""
        return [self.index, *((part.file, part.bytes, part.sha256) for part in self.parts)]

    def to_bytes(self) -> bytes:
        """The text of manifest.json: the same set makes the same bytes."""
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
    """Whether a folder says of itself that it is a stored set; `open_queries` tells whether it is whole."""
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            return _OPENING.match(file.read(64)) is not None
    except OSError:
        return False


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a set, or a StoreError where it is none, damaged, or of a newer library."""
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
            f"{path}: the set is of version {version}, and sinkprop {sinkprop.__version__} reads version "
            f"{FORMAT_VERSION}. Upgrade sinkprop, or convert the data with this one."
        )
    closing = _CLOSING.fullmatch(data[-_CLOSING_BYTES:])
    if closing is None:
        raise StoreError(f"{path}: the manifest is damaged or cut off. Convert the data again.")
    found = hashlib.sha256(data[:-_CLOSING_BYTES]).hexdigest()
    if found != closing[1].decode():
        raise StoreError(
            f"{path}: the manifest is damaged: its SHA-256 is {found[:12]}..., and it says "
            f"{closing[1].decode()[:12]}.... Convert the data again."
        )
    try:
        return _manifest(json.loads(data))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path}: a whole file, but not a manifest that sinkprop {sinkprop.__version__} can read "
            f"({type(error).__name__}: {error})."
        ) from None


def _manifest(record: dict[str, Any]) -> Manifest:
    names = record["feature_names"]
    index = record["index"]
    manifest = Manifest(
        n_features=int(record["n_features"]),
        feature_names=None if names is None else tuple(map(str, names)),
        rows=int(record["rows"]),
        queries=int(record["queries"]),
        longest=int(record["longest"]),
        label=record["label"],
        qid=record["qid"],
        docid=bool(record["docid"]),
        has_nan=bool(record["has_nan"]),
        sources=tuple((str(source["name"]), int(source["bytes"])) for source in record["sources"]),
        index=(str(index["file"]), int(index["bytes"]), str(index["sha256"])),
        parts=tuple(map(Part.of, record["parts"])),
    )
    if manifest.label not in _LABELS or manifest.qid not in _IDS:
        raise ValueError(f"label {manifest.label!r}, qid {manifest.qid!r}")
    query = row = 0
    for part in manifest.parts:
        if part.blocks[0] != (query, row) or part.blocks != tuple(sorted(part.blocks)):
            raise ValueError(f"{part.file} begins at {part.blocks[0]}, and not at {(query, row)}")
        query, row = query + part.queries, row + part.rows
    if (query, row) != (manifest.queries, manifest.rows):
        raise ValueError(f"the parts have {query} queries and {row} rows")
    if any(os.path.basename(name) != name for name, _, _ in manifest.files):
        raise ValueError("a file outside the folder")
    return manifest


def _no_set(folder: Path) -> Exception:
    """What to say of a path at which there is no manifest."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    if unfinished.is_dir():
        return StoreError(
            f"{folder}: the conversion to it was not finished. Give the same `sinkprop convert` again, which "
            "goes on where it was."
        )
    if not folder.exists():
        return FileNotFoundError(2, os.strerror(2), str(folder))
    if folder.is_dir():
        return StoreError(
            f"{folder}: not a stored set: the folder has no {MANIFEST}. `sinkprop convert` makes one."
        )
    return StoreError(f"{folder}: a file, but a stored set is a folder, which `sinkprop convert` makes.")


def need_pyarrow(what: str) -> None:
    """An ImportError that names the extra, where pyarrow is not there."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{what} needs pyarrow: pip install "sinkprop[parquet]"') from error


def rows_schema(n_features: int, qid: str, docid: bool) -> pa.Schema:
    """The columns of a part: features, label, qid, and docid where documents have names."""
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
    """The columns of the file of queries."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("id", pa.int64() if qid == "int64" else pa.string(), nullable=False),
            pa.field("documents", pa.int64(), nullable=False),
        ]
    )
