"""Writer of a stored set: blocks of whole queries, parts (files of blocks), and a journal of finished parts.

The writer works in a folder `NAME.queries.unfinished` beside the set::

    journal.json        the input, the finished parts, and the place in the input where the next part begins
    lock                file that a process locks while it works in this folder
    queries-00000.arrow ids and sizes of the queries of part 0
    set/                the new set, renamed to the folder NAME.queries after its manifest is written

The ends of blocks and parts depend on the rows alone. So a run that is killed at any point and resumed after
the last part in the journal writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.atomic import write_atomically
from sinkprop.common.types import Integers
from sinkprop.data.split_queries import SplitQueryError
from sinkprop.store.checks import block_sums
from sinkprop.store.chunks import Chunk, Place
from sinkprop.store.format import (
    INDEX,
    MANIFEST,
    Block,
    Manifest,
    Part,
    part_name,
    rows_schema,
    sizes_schema,
)
from sinkprop.store.seen_ids import SeenIds

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Layout", "Progress", "SetWriter"]

JOURNAL, SET = "journal.json", "set"
_ALIGNMENT = 64


@dataclass(frozen=True)
class Layout:
    """Properties that all parts (files) of a set share, and the limits at which blocks and parts end.

    n_features     Number of features.
    feature_names  Names of the features, or None.
    qid            Type of the query ids, "int64" or "string".
    docid          Whether rows have document names.
    labeled        Whether rows have labels.
    allow_nan      Whether features may be NaN.
    categories     Categories of the categorical features, by name.
    ordered        Names of the categorical features whose categories have an order.
    block_bytes    Largest size of a block in bytes. A larger query gets its own block.
    part_bytes     Size in bytes. A part ends with the first block that brings it to this size or above.
    """

    n_features: int
    feature_names: tuple[str, ...] | None
    qid: str
    docid: bool
    labeled: bool
    allow_nan: bool
    categories: dict[str, tuple[Any, ...]]
    ordered: tuple[str, ...]
    block_bytes: int
    part_bytes: int

    @property
    def row_bytes(self) -> int:
        """Number of bytes that a row adds to the sizes of blocks and parts."""
        return 4 * self.n_features + 16

    @property
    def block_rows(self) -> int:
        """Largest number of rows of a block of several queries."""
        return max(1, self.block_bytes // self.row_bytes)


@dataclass(frozen=True)
class Progress:
    """Progress of a conversion, as kept in its journal: the finished parts (files), and facts on their rows.

    parts     Finished parts.
    next      Where the next part starts in the input: the place of a chunk, and the number of rows to skip
              from there. None if no part is finished, or if all are.
    complete  Whether all rows are in finished parts.
    longest   Number of documents of the largest query.
    whole     Whether all labels are whole numbers.
    named     Whether any document has a name.
    has_nan   Whether any feature value is NaN.
    first     For each input file of which rows have been read: index, in the set, of the file's first row.
    """

    parts: tuple[Part, ...] = ()
    next: tuple[Place, int] | None = None
    complete: bool = False
    longest: int = 0
    whole: bool = True
    named: bool = False
    has_nan: bool = False
    first: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows in the finished parts."""
        return sum(part.rows for part in self.parts)

    @property
    def queries(self) -> int:
        """Number of queries in the finished parts."""
        return sum(part.queries for part in self.parts)

    def record(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold; `of` is the inverse."""
        found = asdict(self)
        found["parts"] = [part.record() for part in self.parts]
        found["next"] = None if self.next is None else [asdict(self.next[0]), self.next[1]]
        return found

    @classmethod
    def of(cls, record: dict[str, Any]) -> Progress:
        """Create a `Progress` from a dict that `record` returned."""
        after = record["next"]
        return cls(
            **{
                **record,
                "parts": tuple(map(Part.of, record["parts"])),
                "next": None if after is None else (Place(**after[0]), int(after[1])),
                "first": tuple(record["first"]),
            }
        )


@dataclass
class _Pending:
    """Queue of the rows that have been read but not written to a block yet.

    chunks  Pairs (chunk, skipped). The first `skipped` rows of the original chunk were removed, and
            `chunk` has the remaining rows.
    """

    chunks: list[tuple[Chunk, int]] = field(default_factory=list)

    def add(self, chunk: Chunk, skipped: int) -> None:
        """Append the rows of `chunk`, from which the first `skipped` rows have been removed already."""
        self.chunks.append((chunk, skipped))

    def take(self, n: int) -> list[Chunk]:
        """Remove and return the first n rows."""
        taken = []
        while n:
            chunk, skipped = self.chunks.pop(0)
            size = len(chunk.y)
            if size > n:
                self.chunks.insert(0, (chunk.rows(n, size), skipped + n))
                chunk, size = chunk.rows(0, n), n
            taken.append(chunk)
            n -= size
        return taken

    @property
    def next(self) -> tuple[Place, int] | None:
        """Position in the input of the first row of the queue; None if the queue is empty.

        A pair: the place of the chunk that holds the row, and the number of rows before it in that chunk.
        """
        return (self.chunks[0][0].place, self.chunks[0][1]) if self.chunks else None


class SetWriter:
    """Writer of chunks of rows to the files of a set. Call `add` for every chunk in order, then `finish`.

    folder    Folder of the unfinished conversion.
    layout    Properties of the set, and the limits of its blocks and parts.
    progress  Progress of the earlier run that is being resumed, or an empty `Progress`.
    save      Function that writes the journal. Called with the new progress after every part.
    locate    Function of a file's index and a row in it, from 0. Describes that place for error messages.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        progress: Progress,
        *,
        save: Callable[[Progress], None],
        locate: Callable[[int, int], str],
    ) -> None:
        self._folder, self._layout = folder, layout
        self._progress = progress  # progress at the end of the last finished part
        self._now = progress  # progress including the rows of the part that is being written
        self._save, self._locate = save, locate
        self._schema = rows_schema(layout.n_features, layout.qid, layout.docid)
        self._pending = _Pending()
        self._sizes: list[int] = []  # number of rows of each query in _pending; the last query may grow
        self._ids: list[Any] = []
        self._added = progress.rows
        self._file = -1
        self._part: _PartFile | None = None
        self._part_ids: list[pa.Array] = []  # query ids of each block of the current part
        self._part_sizes: list[Integers] = []
        self._part_rows = 0
        self._part_blocks: list[tuple[int, int]] = []
        self._seen = SeenIds(layout.qid)
        for number in range(len(progress.parts)):
            self._seen.add(self._queries_of(number).column("id"))

    def add(self, chunk: Chunk, skipped: int = 0) -> None:
        """Add the rows of a chunk, and write the blocks that are complete.

        The first `skipped` rows are left out, because an earlier run wrote them to a finished part.
        """
        import pyarrow.compute as pc

        place = chunk.place
        first = list(self._now.first)
        while len(first) <= place.file:
            first.append(self._added - skipped - place.row)
        self._now = replace(self._now, first=tuple(first))
        n = len(chunk.y) - skipped
        if n <= 0:
            return
        rows = chunk.rows(skipped, len(chunk.y)) if skipped else chunk
        qid = rows.qid
        changes = np.flatnonzero(
            pc.not_equal(qid.slice(1), qid.slice(0, n - 1)).to_numpy(zero_copy_only=False)
        )
        starts = np.concatenate([[0], changes + 1])
        sizes = np.diff(starts, append=n).tolist()
        ids = qid.take(_array(starts)).to_pylist()
        if self._ids and place.file == self._file and ids[0] == self._ids[-1]:
            self._sizes[-1] += sizes.pop(0)
            del ids[0]
        self._ids += ids
        self._sizes += sizes
        self._file = place.file
        self._pending.add(rows, skipped)
        self._added += n
        self._write_blocks(last=False)

    def _write_blocks(self, *, last: bool) -> None:
        """Divide the pending rows into blocks, and write every block to which no more rows can be added.

        A block has as many queries as fit, or one query that is too large to fit. `last` says that all rows
        have been read, so that the last block is complete, too.
        """
        capacity = self._layout.block_rows
        done = 0
        while done < len(self._sizes):
            total = self._sizes[done]
            stop = done + 1
            while stop < len(self._sizes) and total + self._sizes[stop] <= capacity:
                total += self._sizes[stop]
                stop += 1
            if stop == len(self._sizes) and not last:  # the next chunk may add to the query or the block
                break
            self._write_block(self._ids[done:stop], self._sizes[done:stop], total)
            done = stop
        del self._ids[:done], self._sizes[:done]

    def _write_block(self, ids: list[Any], sizes: list[int], rows: int) -> None:
        import pyarrow as pa

        if self._part_rows * self._layout.row_bytes >= self._layout.part_bytes:
            self._end_part()
        now, query = self._now, self._progress.queries + sum(map(len, self._part_ids))
        row = self._progress.rows + self._part_rows
        column = pa.array(ids, type=self._schema.field("qid").type)
        for repeated in self._seen.repeated(column):
            self._check_repeated(repeated, ids, sizes, row)
        chunks = self._pending.take(rows)
        X = chunks[0].X if len(chunks) == 1 else np.concatenate([chunk.X for chunk in chunks])
        y = chunks[0].y if len(chunks) == 1 else np.concatenate([chunk.y for chunk in chunks])
        values = pa.Array.from_buffers(
            pa.float32(), X.size, [None, pa.py_buffer(np.ascontiguousarray(X).reshape(-1))]
        )
        columns = [
            pa.FixedSizeListArray.from_arrays(values, type=self._schema.field("features").type),
            pa.array(y),
            pa.concat_arrays([chunk.qid for chunk in chunks]),
        ]
        named = now.named
        if self._layout.docid:
            docid = pa.concat_arrays([chunk.docid for chunk in chunks])
            columns.append(docid)
            named = named or (docid.buffers()[2] is not None and _any_text(docid))
        if self._part is None:
            name = part_name(len(self._progress.parts))
            self._part = _PartFile(self._folder / SET / name, self._schema)
        self._part.write(pa.record_batch(columns, schema=self._schema))
        self._part_ids.append(column)
        self._part_sizes.append(np.array(sizes, np.int64))
        self._part_rows += rows
        self._part_blocks.append((query, row))
        self._now = replace(
            now,
            longest=max(now.longest, *sizes),
            whole=now.whole and bool((y == np.floor(y)).all()),
            named=named,
            has_nan=now.has_nan or (self._layout.allow_nan and bool(np.isnan(X).any())),
        )

    def _end_part(self) -> None:
        """Finish the current part: close its file, write the list of its queries, then the journal."""
        import pyarrow as pa

        part = self._part
        if part is None:
            return
        size, digest = part.close()
        sums, tail = block_sums(part.path, part.ends)
        number = len(self._progress.parts)
        schema = sizes_schema(self._layout.qid)
        sizes = np.concatenate(self._part_sizes)
        batch = pa.record_batch([pa.concat_arrays(self._part_ids), pa.array(sizes)], schema=schema)
        queries = _PartFile(self._folder / f"queries-{number:05d}.arrow", schema)
        queries.write(batch)
        queries.close()
        done = Part(
            part.path.name,
            self._part_rows,
            len(sizes),
            size,
            digest,
            tail,
            tuple(Block(*first, own) for first, own in zip(self._part_blocks, sums, strict=True)),
        )
        self._part, self._part_rows = None, 0
        self._part_ids, self._part_sizes, self._part_blocks = [], [], []
        after = self._pending.next
        self._now = replace(
            self._now, parts=(*self._progress.parts, done), next=after, complete=after is None
        )
        self._progress = self._now
        self._save(self._progress)

    def finish(self, sources: list[tuple[str, int]]) -> Manifest:
        """Write the remaining rows, the list of queries and, last, the manifest, which completes the set.

        Returns the manifest.

        sources  Name and size of each input file, for the manifest.
        """
        if not self._progress.complete:
            self._write_blocks(last=True)
            self._end_part()
        layout, done = self._layout, self._progress
        index = _PartFile(self._folder / SET / INDEX, sizes_schema(layout.qid))
        for number in range(len(done.parts)):
            for batch in self._queries_of(number).to_batches():
                index.write(batch)
        size, digest = index.close()
        manifest = Manifest(
            n_features=layout.n_features,
            feature_names=layout.feature_names,
            rows=done.rows,
            queries=done.queries,
            longest=done.longest,
            label="none" if not layout.labeled else "whole" if done.whole else "real",
            qid=layout.qid,
            docid=done.named,
            has_nan=done.has_nan,
            sources=tuple(sources),
            index=(INDEX, size, digest),
            parts=done.parts,
            categories=layout.categories,
            ordered=layout.ordered,
        )
        write_atomically(self._folder / SET / MANIFEST, manifest.to_bytes())
        return manifest

    def abandon(self) -> None:
        """Close the open file, after an error."""
        if self._part is not None:
            with suppress(OSError, ValueError):
                self._part.abandon()

    def _queries_of(self, number: int) -> pa.Table:
        import pyarrow as pa

        with pa.OSFile(str(self._folder / f"queries-{number:05d}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()

    def _check_repeated(self, query: Any, ids: list[Any], sizes: list[int], row: int) -> None:
        """Raise SplitQueryError if a query occurs in two places of the input.

        query  Query id that `SeenIds` reported as repeated. It may be new: two ids can have the same hash.
        ids    Ids of the queries of the block that is about to be written.
        sizes  Numbers of rows of these queries.
        row    Index, in the set, of the first row of the block.
        """
        places = self._rows_of(query)
        for q, size in zip(ids, sizes, strict=True):
            if q == query:
                places.append(row)
            row += size
        if len(places) < 2:
            return
        first, second = (self._name_of(place) for place in places[:2])
        raise SplitQueryError(query, first, second)

    def _rows_of(self, query: Any) -> list[int]:
        """Index of the first row of each occurrence of a query in the finished parts and the current one."""
        found = []
        for number, part in enumerate(self._progress.parts):
            table = self._queries_of(number)
            sizes = table.column("documents").to_numpy()
            ends = part.blocks[0].row + np.cumsum(sizes)
            found += [
                int(ends[i] - sizes[i])
                for i, other in enumerate(table.column("id").to_pylist())
                if other == query
            ]
        row = self._progress.rows
        for ids, sizes in zip(self._part_ids, self._part_sizes, strict=True):
            for other, size in zip(ids.to_pylist(), sizes.tolist(), strict=True):
                if other == query:
                    found.append(row)
                row += size
        return found

    def _name_of(self, row: int) -> str:
        first = self._now.first
        file = int(np.searchsorted(first, row, side="right")) - 1
        return self._locate(file, row - first[file])


def _array(values: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)


def _any_text(column: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.max(pc.binary_length(column)).as_py())


class _PartFile:
    """An Arrow file that is hashed while it is written under a temporary name, and renamed when complete."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow as pa

        self.path = path
        self._temporary = path.with_name(path.name + ".tmp")
        self._sink = _HashingFile(open(self._temporary, "wb"))  # noqa: SIM115 - closed by close
        self._stream = pa.PythonFile(self._sink, mode="w")
        self._writer = pa.ipc.new_file(self._stream, schema)
        self._first_bytes, self._later_bytes = _metadata_bytes(schema)
        self.ends: list[int] = []  # offset in the file after each batch

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a record batch so that its first buffer starts at a multiple of 64 bytes in the file.

        The metadata of the batch comes before the buffer. Spaces are added to it to fill the gap.
        """
        # Arrow's own metadata before the buffer; for the first batch of the file, also the schema
        before = self._later_bytes if self._sink.size else self._first_bytes
        fill = -(self._sink.size + before) % _ALIGNMENT
        self._writer.write_batch(batch, custom_metadata={"fill": " " * fill})
        self.ends.append(self._sink.size)

    def close(self) -> tuple[int, str]:
        """Flush, close and rename the file; return its size and its SHA-256."""
        self._writer.close()
        self._stream.close()
        file = self._sink.file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(self._temporary, self.path)
        flush_folder(self.path.parent)
        return self._sink.size, self._sink.hash.hexdigest()

    def abandon(self) -> None:
        """Close the file and leave it under its temporary name."""
        self._sink.file.close()


class _HashingFile:
    """File object for pyarrow that hashes the bytes it writes."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.file.write(view)
        self.hash.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Do nothing, because `_PartFile.close` flushes the file."""

    def close(self) -> None:
        """Do nothing: `_PartFile.close` flushes the file to the disk before closing it."""


def _metadata_bytes(schema: pa.Schema) -> tuple[int, int]:
    """Return how many bytes Arrow writes to a file before the first buffer of a record batch.

    Returns two numbers: one for the first batch of a file, before which Arrow also writes the schema, and one
    for every later batch.
    """
    import pyarrow as pa

    sink, places = pa.BufferOutputStream(), []
    empty = {"qid": 0, "id": 0, "label": 0.0, "documents": 0, "docid": "", "features": None}
    row = {name: empty[name] for name in schema.names}
    for name in {"qid", "id"} & row.keys():
        row[name] = "" if pa.types.is_string(schema.field(name).type) else 0
    if "features" in row:
        row["features"] = [0.0] * schema.field("features").type.list_size
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in range(2):
            places.append(sink.tell())
            writer.write_batch(batch, custom_metadata={"fill": ""})
    written = sink.getvalue()
    reader = pa.ipc.open_file(pa.BufferReader(written))
    first, later = (
        min(b.address for column in reader.get_batch(i).columns for b in column.buffers() if b is not None)
        - written.address
        - places[i]
        for i in range(2)
    )
    return first, later


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    with suppress(OSError):  # not every file system can flush a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_journal(folder: Path, fingerprint: dict[str, Any], known: dict[str, Any], done: Progress) -> None:
    """Write the journal of a conversion, from which the conversion can be resumed.

    fingerprint  Input files and options, by which a later run finds out whether it may resume.
    known        Properties of the input, such as the number of features, as `Inputs.prepare` returned them.
    done         Finished parts (files), and where the next one starts in the input.
    """
    record = {"fingerprint": fingerprint, "known": known, "progress": done.record()}
    write_atomically(folder / JOURNAL, json.dumps(record) + "\n")


def read_journal(folder: Path) -> dict[str, Any] | None:
    """Return what `write_journal` wrote to a folder, as a dict; None if the folder has no journal."""
    try:
        record = json.loads((folder / JOURNAL).read_bytes())
    except FileNotFoundError:
        return None
    return record if isinstance(record, dict) else None
