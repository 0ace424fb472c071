"""Format of the folder of a stored set: its manifest, its Arrow schemas, and the error for an invalid set.

A set has these files::

    NAME.queries/
      manifest.json      description of the set, with the size and SHA-256 of every other file
      queries.arrow      one row per query: its id and its number of documents
      part-00000.arrow   rows of documents, one record batch per block of whole queries

The part files, of which a large set has several, hold the rows. The Arrow files use the IPC file format
without compression. A manifest is JSON text whose last entry is the SHA-256 of all bytes before that entry.
The manifest is written last, so a folder without a complete manifest is not a set.
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
    """Error for a stored set that cannot be used; its message names the file and a remedy."""


@dataclass(frozen=True)
class Part:
    """One file of a stored set that holds rows of documents.

    file     Name of the file.
    rows     Number of rows in it.
    queries  Number of queries in it.
    bytes    Size of the file in bytes.
    sha256   SHA-256 of the file, in hexadecimal.
    blocks   For each block (one record batch): index of its first query and index of its first row. Both
             count from the start of the set.
    """

    file: str
    rows: int
    queries: int
    bytes: int
    sha256: str
    blocks: tuple[tuple[int, int], ...]

    def record(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold; `of` is the inverse."""
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
        """Create a part from `record`, a dict that the method `Part.record` returned.

        Raises KeyError, TypeError or ValueError if the dict is invalid.
        """
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
            f"version {FORMAT_VERSION}. Upgrade sinkprop, or convert the data again with this version."
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
        return _manifest(json.loads(data))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path}: the file is complete, but not a manifest that sinkprop {sinkprop.__version__} can read "
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
            raise ValueError(f"{part.file} begins at {part.blocks[0]}, not at {(query, row)}")
        query, row = query + part.queries, row + part.rows
    if (query, row) != (manifest.queries, manifest.rows):
        raise ValueError(f"the parts have {query} queries and {row} rows")
    if any(os.path.basename(name) != name for name, _, _ in manifest.files):
        raise ValueError("a file outside the folder")
    return manifest


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
