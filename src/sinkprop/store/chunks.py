"""Chunks of rows, which every kind of input file gives to the writer of a stored set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.compressed import compression_by_content, damage, damaged, opened
from sinkprop.common.progress import Notify
from sinkprop.common.types import Floats, Integers, Singles

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Chunk", "Inputs", "Place", "TextChunk", "text_chunks"]

PIECE = 8 << 20  # bytes of text that are read at a time


@dataclass(frozen=True)
class Place:
    """Where a chunk begins: the file's number, the offset in its text, its line from 0, its row from 0."""

    file: int
    at: int
    line: int
    row: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of one file, checked.

    X      (n, D) float32        y  (n,) float64, finite and not below 0
    qid    (n,) int64 or string  docid  (n,) string, or None
    place  where the first row stands    done  bytes of all files that have been read by now
    """

    place: Place
    done: int
    X: Singles
    y: Floats
    qid: pa.Array
    docid: pa.Array | None

    def rows(self, first: int, last: int) -> Chunk:
        """Rows [first, last); the place stays that of the chunk."""
        docid = None if self.docid is None else self.docid.slice(first, last - first)
        return Chunk(
            self.place, self.done, self.X[first:last], self.y[first:last],
            self.qid.slice(first, last - first), docid,
        )  # fmt: skip


class Inputs(Protocol):
    """Files of one kind, which are read in their order.

    prepare  looks at what has to be known before the first row, such as the number of features
    chunks   all rows from a place on, which is one that a chunk of the same files had, or None for the start
    locate   where the row of a number (from 0) of a file stands, as a person would look it up
    """

    paths: tuple[str, ...]
    n_features: int
    feature_names: tuple[str, ...] | None
    qid: str
    docid: bool

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]: ...
    def chunks(self, start: Place | None) -> Iterator[Chunk]: ...
    def locate(self, file: int, row: int) -> str: ...


@dataclass(frozen=True, eq=False)
class TextChunk:
    """Whole lines of a text: their bytes, the offset and the line of the first, bytes of the file read."""

    at: int
    line: int
    data: NDArray[np.uint8]
    read: int


def text_chunks(path: str, at: int = 0, line: int = 0, *, size: int | None = None) -> Iterator[TextChunk]:
    """The lines of a text file from an offset on, plain or compressed, in pieces of about `size` bytes.

    The offset is one in the text, not in the compressed file. A longer line is a piece of its own.
    """
    size = PIECE if size is None else size
    with open(path, "rb", buffering=0) as file:
        compression = compression_by_content(file.read(6))
        file.seek(at if compression is None else 0)
        stream = file if compression is None else opened(compression, file, "rb")
        done = 0 if compression is not None else at
        try:
            while done < at:
                skipped = len(stream.read(min(size, at - done)))
                if not skipped:
                    break
                done += skipped
            rest = b""
            while True:
                block = stream.read(size)
                done += len(block)
                text = rest + block if rest else block
                cut = text.rfind(b"\n", len(rest)) + 1 if block else len(text)
                if cut:
                    yield TextChunk(at, line, np.frombuffer(text, np.uint8, cut), file.tell())
                    at += cut
                    line += text.count(b"\n", 0, cut)
                    rest = text[cut:]
                else:
                    rest = text
                if not block:
                    return
        except damage() as error:
            if compression is None:
                raise
            raise damaged(path, compression, done, error) from error


def text_places(text: NDArray[np.uint8], places: Integers) -> pa.Array:
    """The words at (n, 2) begins and ends of a text, as Arrow's strings; they must be UTF-8."""
    import pyarrow as pa

    lengths = places[:, 1] - places[:, 0]
    ends = np.cumsum(lengths)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    offsets[1:] = ends
    index = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(places[:, 0] - (ends - lengths), lengths)
    words = text[index]
    if len(words) and words.max() >= 128:
        for first, last in places.tolist():
            text[first:last].tobytes().decode("utf-8")
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(words))


def sizes_of(paths: tuple[str, ...]) -> list[int]:
    return [os.stat(path).st_size for path in paths]
