"""Memory-mapped access to one part of a stored set: arrays that are views of the part's file."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Singles
from sinkprop.store.checks import arrow_errors, check_sha256, check_size, missing, sha256_of, xxh64
from sinkprop.store.format import Manifest, StoreError, rows_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["VERIFIED", "MappedPart", "text_column"]

_LARGEST = float(np.finfo(np.float64).max)
VERIFIED = "verified"  # entry of the set `checked` of a part after its SHA-256 was compared
_VALUES, _REST, _CONTENT = "values", "rest", "content"


class MappedPart:
    """One part of a stored set, that is, one Arrow file with rows of documents, mapped into memory.

    A page of the file takes memory from its first use until it is released. The pages of a block are released
    when its array of features and all views of that array have been deleted, if the operating system supports
    that. `labels` reads only the pages of the labels. They are released when the array of labels and all its
    views have been deleted.

    The structure of the file is checked when it is mapped: its size, its columns, and where the buffers of
    each block are. The checksums of a block, and the values that must be valid, are checked before its first
    use: those of the features when features are used, all others when the block is used. A set of format
    version 1 has no checksums of blocks; the SHA-256 of the whole file is compared before its first use.

    The argument `local` of the methods is the index of a block among the blocks of this part.

    checked  Set in which the part notes what was checked, so that it is not checked again when the part is
             mapped again. It contains `VERIFIED` if the SHA-256 of the file is known to be right.
    """

    def __init__(self, folder: Path, manifest: Manifest, number: int, checked: set[Hashable]) -> None:
        import pyarrow as pa

        self._part, self._manifest, self._checked = manifest.parts[number], manifest, checked
        self._path = folder / self._part.file
        self._sizes = self._part.block_rows
        self._checking, self._reading = threading.Lock(), threading.Lock()
        try:
            check_size(self._path, self._part.bytes, self._path.stat())
            self._file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            raise missing(self._path) from None
        weakref.finalize(self, os.close, self._file)
        check_size(self._path, self._part.bytes, os.fstat(self._file))
        self._map = mmap.mmap(self._file, self._part.bytes, access=mmap.ACCESS_READ)
        self._check_tail()
        whole = pa.py_buffer(self._map)
        self._address = whole.address
        with arrow_errors(self._path):
            self._reader = pa.ipc.open_file(pa.BufferReader(whole))
            self._check_columns(self._reader.schema)
            found = self._reader.num_record_batches
        if found != len(self._sizes):
            raise self._wrong(f"the part has {found} blocks, but the manifest says {len(self._sizes)}")
        for local in range(found):
            self._batch(local)

    def _wrong(self, what: str) -> StoreError:
        return StoreError(f"{self._path}: {what}. Convert the data again.")

    def _check_tail(self) -> None:
        """Raise a StoreError if the bytes after the last block, where Arrow lists the blocks, are damaged."""
        last, tail = self._part.blocks[-1].sums, self._part.tail
        if last is not None and xxh64(memoryview(self._map)[last.end :]) != tail:
            raise self._wrong("the end of the file is damaged: its checksum is not that of the manifest")

    def _check_columns(self, schema: pa.Schema) -> None:
        manifest = self._manifest
        kind = schema.field("features").type if schema.names.count("features") == 1 else None
        width = getattr(kind, "list_size", None)
        if width is not None and width != manifest.n_features:
            raise self._wrong(f"the part has {width} features, but the set has {manifest.n_features}")
        known = [rows_schema(manifest.n_features, manifest.qid, docid) for docid in (False, True)]
        if schema not in known or (manifest.docid and schema != known[1]):
            raise self._wrong("its columns are not those of a stored set")

    def _batch(self, local: int) -> pa.RecordBatch:
        """Return a block as a record batch whose buffers are known to be in the file and large enough."""
        with arrow_errors(self._path):
            with self._reading:  # several threads read ahead; Arrow's reader may serve one at a time
                batch = self._reader.get_batch(local)
            if batch.num_rows != self._sizes[local]:
                raise self._wrong(
                    f"block {local} has {batch.num_rows} rows, but the manifest says {self._sizes[local]}"
                )
            batch.validate()
        first, last = self._bounds(local)
        for i, column in enumerate(batch.columns):
            bitmaps = 1 if i else 2  # the first buffers: bitmaps of nulls, of a list also that of its items
            if column.offset or any(buffer is not None for buffer in column.buffers()[:bitmaps]):
                raise self._wrong(f"block {local} has nulls")
            for buffer in column.buffers()[bitmaps:]:
                at = 0 if buffer is None or not buffer.size else buffer.address - self._address
                if at and (at < first or at + buffer.size > last or at % 8):
                    raise self._wrong(f"block {local} is not where the manifest says")
        sums = self._part.blocks[local].sums
        if sums is not None and batch.column(0).buffers()[2].address - self._address != sums.features:
            raise self._wrong(f"the features of block {local} are not where the manifest says")
        return batch

    def _bounds(self, local: int) -> tuple[int, int]:
        """Return the offsets between which a block is in the file."""
        blocks = self._part.blocks
        here, before = blocks[local].sums, blocks[local - 1].sums if local else None
        return (0 if before is None else before.end), (self._part.bytes if here is None else here.end)

    def is_checked(self, local: int) -> bool:
        """Whether the checksums of a block were compared already, so that it can be used at once."""
        checked = self._checked
        return VERIFIED in checked or {(local, _VALUES), (local, _REST)} <= checked

    def _check(self, local: int, batch: pa.RecordBatch, *, values: bool) -> None:
        """Compare the checksums of a block before its first use; that of the features only if `values`.

        Raises a StoreError if one differs, or if labels or document names are not valid.
        """
        if VERIFIED not in self._checked:
            self._check_sums(local, values=values)
        if (local, _CONTENT) not in self._checked:
            self._check_content(batch, local)
            self._checked.add((local, _CONTENT))

    def _check_sums(self, local: int, *, values: bool) -> None:
        """Raise a StoreError if a checksum of a block is not that of the manifest."""
        sums = self._part.blocks[local].sums
        if sums is None:
            with self._checking:
                if VERIFIED not in self._checked:
                    check_sha256(self._path, sha256_of(self._path), self._part.sha256)
                    self._checked.add(VERIFIED)
            return
        start, end = self._bounds(local)
        after = sums.features + 4 * self._sizes[local] * self._manifest.n_features
        view = memoryview(self._map)
        if (local, _REST) not in self._checked:
            if xxh64(view[start : sums.features], view[after:end]) != sums.rest:
                raise self._wrong(f"block {local} is damaged: its checksum is not that of the manifest")
            self._checked.add((local, _REST))
            if not values:
                self._release(after, end)
        if values and (local, _VALUES) not in self._checked:
            if xxh64(view[sums.features : after]) != sums.values:
                raise self._wrong(
                    f"the features of block {local} are damaged: their checksum is not that of the manifest"
                )
            self._checked.add((local, _VALUES))

    def _release(self, start: int, end: int) -> None:
        """Release the whole pages of a range of the file."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED") and end > first:
            _give_back(self._map, first, end - first)

    def _check_content(self, batch: pa.RecordBatch, local: int) -> None:
        """Raise a StoreError if the labels or the document names of a block are not valid."""
        labels = np.frombuffer(batch.column(1).buffers()[1], np.float64, batch.num_rows)
        kind = self._manifest.label
        if _native.first_invalid(labels, 0.0, 0.0 if kind == "none" else _LARGEST) >= 0 or (
            kind == "whole" and not (labels == np.floor(labels)).all()
        ):
            raise self._wrong(f"block {local} has a label that is not one of a set with the labels {kind!r}")
        if self._manifest.docid:
            with arrow_errors(self._path):
                batch.column(3).validate(full=True)

    def rows(self, local: int, *, read: bool = False) -> tuple[Singles, Floats, NDArray[Any] | None]:
        """Return the features, the labels and the document names of a block.

        Features and labels are views of the file. The names are a copy, or None if documents have no names.
        If `read` is True, the whole block is read from the disk before the method returns.
        """
        batch = self._batch(local)
        pages = self._range(batch)
        if read:
            self._read(*pages, touch=self.is_checked(local))
        self._check(local, batch, values=True)
        n, width = batch.num_rows, self._manifest.n_features
        flat = np.frombuffer(batch.column(0).buffers()[2], np.float32, n * width)
        self._give_back_after(flat, *pages)
        y = np.frombuffer(batch.column(1).buffers()[1], np.float64, n)
        docid = text_column(batch.column(3)) if self._manifest.docid else None
        return flat.reshape(n, width), y, docid

    def labels(self, local: int) -> Floats:
        """Labels of a block, as a view."""
        batch = self._batch(local)
        self._check(local, batch, values=False)
        buffer = batch.column(1).buffers()[1]
        labels = np.frombuffer(buffer, np.float64, batch.num_rows)
        self._give_back_after(labels, *self._pages([buffer]))
        return labels

    def names(self, local: int) -> NDArray[Any]:
        """Names of the documents of a block."""
        batch = self._batch(local)
        self._check(local, batch, values=False)
        return text_column(batch.column(3))

    def _read(self, start: int, size: int, *, touch: bool) -> None:
        """Ask the system to read `size` bytes of the file, from the offset `start` on, into memory.

        If `touch` is True, they are in memory when the method returns: one byte of each page is accessed, so
        that the operating system reads the whole page from the disk. A NumPy function does that, and lets
        other Python threads run meanwhile.
        """
        # tell the system that these bytes are needed soon; not every system supports that
        with suppress(AttributeError, OSError, ValueError):
            self._map.madvise(mmap.MADV_WILLNEED, start, size)
        if touch:
            np.frombuffer(self._map, np.uint8, size, start)[:: mmap.PAGESIZE].max(initial=0)

    def is_cached(self, local: int) -> bool:
        """Whether a block is probably in the operating system's file cache.

        Only the first, the middle and the last byte of the block are tested. The result is False on systems
        that cannot tell.
        """
        if not hasattr(os, "RWF_NOWAIT"):
            return False
        start, size = self._range(self._batch(local))
        try:
            return all(
                os.preadv(self._file, [bytearray(1)], at, os.RWF_NOWAIT) == 1
                for at in (start + size - 1, start + size // 2, start)
            )
        except OSError:  # a byte is not in the cache, or the system cannot tell whether it is
            return False

    def _range(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return the offset and the size, in bytes, of the part of the file that holds a block.

        The offset is rounded down to the start of a page.
        """
        return self._pages(
            [b for column in batch.columns for b in column.buffers() if b is not None and b.size]
        )

    def _pages(self, buffers: list[pa.Buffer]) -> tuple[int, int]:
        first = min(b.address for b in buffers) - self._address
        last = max(b.address + b.size for b in buffers) - self._address
        start = first // mmap.PAGESIZE * mmap.PAGESIZE
        return start, last - start

    def _give_back_after(self, array: NDArray[Any], start: int, size: int) -> None:
        """Arrange that a range of the file leaves memory when `array` and all its views have been deleted.

        The range has `size` bytes and begins at the offset `start`. On an operating system that cannot
        release pages, nothing happens.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            weakref.finalize(array, _give_back, self._map, start, size).atexit = False


def _give_back(pages: mmap.mmap, start: int, size: int) -> None:
    with suppress(OSError, ValueError):
        pages.madvise(mmap.MADV_DONTNEED, start, size)


def text_column(column: pa.Array) -> NDArray[Any]:
    """Arrow strings as an array of str; the column must have been checked by `validate(full=True)`."""
    from sinkprop.data.letor import words_at

    n = len(column)
    if not n:
        return np.empty(0, "<U1")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, column.offset + n + 1)[column.offset :].astype(np.int64)
    places = np.stack([ends[:-1], ends[1:]], axis=1)
    text = np.empty(0, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)
    return words_at(text, places, 1)
