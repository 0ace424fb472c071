"""Chunks of rows, in which every kind of input is passed to the writer of a stored set."""

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

READ_BYTES = 8 << 20  # bytes of text per read


@dataclass(frozen=True)
class Place:
    """Start of a chunk in the input; all fields count from 0.

    file  Index of the input file.
    at    Offset, in bytes of decompressed text, in the file. For inputs that are not text, the row.
    line  Line in the file. For inputs that are not text, the row.
    row   Row in the file, that is, the number of documents before the chunk.
    """

    file: int
    at: int
    line: int
    row: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive, checked rows of one file.

    place  Place of the first row in the input.
    done   Number of bytes read so far, summed over all input files. For queries in memory, the
           number of rows before this chunk.
    X      (n, D) features, float32.
    y      (n,) labels, float64, finite and not below 0.
    qid    (n,) query ids, int64 or string.
    docid  (n,) document names, string; or None.
    """

    place: Place
    done: int
    X: Singles
    y: Floats
    qid: pa.Array
    docid: pa.Array | None

    def rows(self, first: int, last: int) -> Chunk:
        """Return the rows [first, last) as a chunk. Its `place` is still the start of this whole chunk."""
        docid = None if self.docid is None else self.docid.slice(first, last - first)
        return Chunk(
            self.place, self.done, self.X[first:last], self.y[first:last],
            self.qid.slice(first, last - first), docid,
        )  # fmt: skip


class Inputs(Protocol):
    """Files of one kind, which are read in order.

    prepare  Finds and returns the properties that must be known before the first row is read, such as the
             number of features. If an earlier run is being resumed, `known` is what `prepare` returned in
             that run; otherwise it is None.
    chunks   Yields the rows from the place `start` on, in chunks. `start` is the place of a chunk of an
             earlier run; None yields all rows.
    locate   Describes the place of a row for an error message, such as "a.csv:12". The arguments `file` and
             `row` count from 0.
    """

    paths: tuple[str, ...]
    n_features: int
    feature_names: tuple[str, ...] | None
    qid: str
    docid: bool
    categories: dict[str, tuple[Any, ...]]
    ordered: tuple[str, ...]

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]: ...
    def chunks(self, start: Place | None) -> Iterator[Chunk]: ...
    def locate(self, file: int, row: int) -> str: ...


@dataclass(frozen=True, eq=False)
class TextChunk:
    """Whole lines of a text.

    at    Offset of the first line, in bytes of decompressed text.
    line  Number of the first line, from 0.
    data  Bytes of the lines.
    read  Number of bytes of the file that have been read so far; compressed bytes, if it is compressed.
    """

    at: int
    line: int
    data: NDArray[np.uint8]
    read: int


def text_chunks(path: str, at: int = 0, line: int = 0, *, size: int | None = None) -> Iterator[TextChunk]:
    """Read the lines of a text file, plain or compressed, in chunks of about `size` bytes.

    Reading starts at the offset `at` of the decompressed text, where line number `line` (from 0) begins. Each
    chunk consists of whole lines, so a line longer than `size` makes its chunk longer.
    """
    size = READ_BYTES if size is None else size
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
    """Copy n words out of a UTF-8 text, as Arrow strings.

    `places` (n, 2) holds the byte offsets at which each word begins and ends. Raises UnicodeDecodeError if a
    word is not valid UTF-8.
    """
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
    """Sizes of files in bytes."""
    return [os.stat(path).st_size for path in paths]
