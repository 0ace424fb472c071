"""Memory-mapped access to one part of a stored set: arrays that are views of the part's file."""

from __future__ import annotations

import mmap
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Singles
from sinkprop.store.format import Manifest, StoreError, rows_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MappedPart", "text_column"]


class MappedPart:
    """One part of a stored set, that is, one Arrow file with rows of documents, mapped into memory.

    A page of the file takes memory from its first use until it is released. The pages of a block are released
    when its array of features and all views of that array have been deleted, if the operating system supports
    that. `labels` reads only the pages of the labels. They are released when the array of labels and all its
    views have been deleted.

    The argument `local` of the methods is the index of a block among the blocks of this part.
    """

    def __init__(self, folder: Path, manifest: Manifest, number: int) -> None:
        import pyarrow as pa

        part = manifest.parts[number]
        path = folder / part.file
        self._n_features, self._docid = manifest.n_features, manifest.docid
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        whole = pa.py_buffer(self._map)
        self._address = whole.address
        try:
            self._reader = pa.ipc.open_file(pa.BufferReader(whole))
        except pa.ArrowInvalid as error:
            raise StoreError(f"{path}: not an Arrow file: {error}. Convert the data again.") from None
        schema = self._reader.schema
        kind = schema.field("features").type if "features" in schema.names else None
        width = getattr(kind, "list_size", None)
        if width is not None and width != manifest.n_features:
            raise StoreError(
                f"{path}: the part has {width} features, but the set has {manifest.n_features}. Convert the "
                "data again."
            )
        known = [rows_schema(manifest.n_features, manifest.qid, docid) for docid in (False, True)]
        if schema not in known or (manifest.docid and schema != known[1]):
            raise StoreError(
                f"{path}: the columns {schema.names} are not those of a stored set. Convert the data again."
            )
        if self._reader.num_record_batches != len(part.blocks):
            raise StoreError(
                f"{path}: the part has {self._reader.num_record_batches} blocks, but the manifest says "
                f"{len(part.blocks)}. Convert the data again."
            )
        first = [row for _, row in part.blocks]
        self._sizes = np.diff([*first, first[0] + part.rows])
        self._path = path

    def _batch(self, local: int) -> pa.RecordBatch:
        batch = self._reader.get_batch(local)
        if batch.num_rows != self._sizes[local]:
            raise StoreError(
                f"{self._path}: block {local} has {batch.num_rows} rows, but the manifest says "
                f"{self._sizes[local]}. Convert the data again."
            )
        return batch

    def rows(self, local: int, *, read: bool = False) -> tuple[Singles, Floats, NDArray[Any] | None]:
        """Return the features, the labels and the document names of a block.

        Features and labels are views of the file. The names are a copy, or None if documents have no names.
        If `read` is True, the whole block is read from the disk before the method returns.
        """
        batch = self._batch(local)
        pages = self._range(batch)
        if read:
            self._read(*pages)
        features, label = batch.column(0), batch.column(1)
        flat = np.frombuffer(features.buffers()[2], np.float32)
        n = batch.num_rows
        self._give_back_after(flat, *pages)
        y = np.frombuffer(label.buffers()[1], np.float64)[:n]
        docid = text_column(batch.column(3)) if self._docid else None
        return flat[: n * self._n_features].reshape(n, self._n_features), y, docid

    def labels(self, local: int) -> Floats:
        """Labels of a block, as a view."""
        column = self._batch(local).column(1)
        buffer = column.buffers()[1]
        flat = np.frombuffer(buffer, np.float64)
        self._give_back_after(flat, *self._pages([buffer]))
        return flat[: len(column)]

    def names(self, local: int) -> NDArray[Any]:
        """Names of the documents of a block."""
        return text_column(self._batch(local).column(3))

    def _read(self, start: int, size: int) -> None:
        """Read `size` bytes of the file, from the offset `start` on, into memory.

        One byte of each page is accessed, so that the operating system reads the whole page from the disk. A
        NumPy function does that, and lets other Python threads run meanwhile.
        """
        # tell the system that these bytes are needed soon; not every system supports that
        with suppress(AttributeError, OSError, ValueError):
            self._map.madvise(mmap.MADV_WILLNEED, start, size)
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
    """Arrow strings as an array of str."""
    from sinkprop.data.letor import words_at

    n = len(column)
    if not n:
        return np.empty(0, "<U1")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + n + 1].astype(np.int64)
    places = np.stack([ends[:-1], ends[1:]], axis=1)
    text = np.empty(0, np.uint8) if data is None or not data.size else np.frombuffer(data, np.uint8)
    return words_at(text, places, 1)
