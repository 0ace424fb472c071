"""Reader of LETOR text in chunks, with the parser and the error messages of `load_letor`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads as _threads
from sinkprop.common.compressed import Source, StrPath
from sinkprop.common.progress import Notify
from sinkprop.common.types import Integers
from sinkprop.data.letor import DENSE_LIMIT, LARGEST, LEAST_FILLED
from sinkprop.data.letor_errors import (
    line_at,
    line_of_document,
    raise_fault,
    raise_too_sparse,
    shown_line,
)
from sinkprop.data.query_sizes import raise_wrong_sizes, sizes_for
from sinkprop.store.chunks import Chunk, Place, TextChunk, sizes_of, text_chunks, text_places

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LetorInputs"]

_THREAD_CHUNK = 1 << 18  # bytes of text per task of a thread
# Limit, in bytes, of a chunk's feature matrix. A short text with few features per line can need a large one.
_LARGEST_X = 64 << 20
_NONE, _NUMBERS, _NAMES = 0, 1, 2  # values of the enum LetorIds in native/letor/letor.hpp
_FIRST_LINES = {_NONE: b"0\n", _NUMBERS: b"0 qid:0\n", _NAMES: b"0 qid:a\n"}
_KINDS = {_NONE: "no query ids", _NUMBERS: "whole numbers", _NAMES: "names"}
_SINGLE = np.dtype(np.float32)
_LARGEST = LARGEST[_SINGLE]


class LetorInputs:
    """Input from files of LETOR text, with the options of `load_letor`.

    A value written NULL becomes the number `null` if that is given, else NaN if `allow_nan` is True.
    Otherwise it is an error.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        n_features: int | None,
        null: float | None,
        zero_based: bool,
        group: StrPath | Sequence[int] | NDArray[Any] | None,
        allow_nan: bool,
        n_threads: int | None,
    ) -> None:
        self.paths = tuple(paths)
        self.feature_names: tuple[str, ...] | None = None
        self.docid = True
        self.categories: dict[str, tuple[Any, ...]] = {}
        self.ordered: tuple[str, ...] = ()
        self.n_features = 0
        self.qid = "int64"
        self._given = n_features
        self._zero_based = zero_based
        self._group = group
        self._null = math.nan if null is None and allow_nan else null
        self._n_threads = n_threads
        self._before = [0, *np.cumsum(sizes_of(self.paths)).tolist()]

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]:
        """Find the type of the query ids and the number of features.

        The first document of each file shows whether its query ids are whole numbers, names, or missing.
        Raises ValueError if this is not the same in all files. The whole text is read to find the number of
        features, unless that number is given as an option or known from an earlier run.
        """
        with self._faults_first():
            self._kind = self._common_kind()
            self.qid = "string" if self._kind == _NAMES else "int64"
            if self._kind and self._group is not None:
                raise ValueError(
                    f"{self.paths[0]} has a qid on its lines; group= is only for files without qid. Leave it "
                    "out."
                )
            if known is not None:
                self.n_features = int(known["n_features"])
            elif self._given is not None:
                self.n_features = self._given
            else:
                self.n_features = self._scan(notify)
        return {"n_features": self.n_features}

    @contextmanager
    def _faults_first(self) -> Iterator[None]:
        """Replace a ValueError of a `with` block by the error for the first faulty line, if there is one.

        The error of the block may be a consequence of that line: a picture, for example, has no features.
        """
        try:
            yield
        except ValueError:
            for file, path in enumerate(self.paths):
                kind = self._kind_in(path)
                for text_chunk in text_chunks(path):
                    layout = _native.letor_scan(text_chunk.data, _THREAD_CHUNK, 1)
                    place = Place(file, text_chunk.at, text_chunk.line, 0)
                    self._parsed(text_chunk, layout, place, path, kind=kind, keep=False)
            raise

    def _common_kind(self) -> int:
        """Return the kind of the query ids. Raises ValueError if files differ, or if one has no document."""
        kinds: list[int] = []
        for path in self.paths:
            kind = self._kind_in(path)
            if kind is None:
                empty = not next(text_chunks(path), None)
                what = "is empty" if empty else "holds no document, only comments or blank lines"
                raise ValueError(
                    f"{path}: the file {what}; expected one line per document, such as `2 qid:7 1:0.5`."
                )
            kinds.append(kind)
        if len(set(kinds)) > 1:
            other = next(i for i, found in enumerate(kinds) if found != kinds[0])
            raise ValueError(
                f"{self.paths[other]}: its lines have {_KINDS[kinds[other]]}, but those of {self.paths[0]} "
                f"have {_KINDS[kinds[0]]} as query ids; all query ids of a set must be of one kind. Convert "
                "the files separately."
            )
        return kinds[0]

    @staticmethod
    def _kind_in(path: str) -> int | None:
        """Return the kind of the query id of a file's first document; None if the file has no document."""
        for text_chunk in text_chunks(path):
            layout = _native.letor_scan(text_chunk.data, len(text_chunk.data), 1)
            if layout.rows:
                return int(layout.ids)
        return None

    def _scan(self, notify: Notify) -> int:
        """Read all files, and return the number of features that follows from the largest feature id.

        Raises ValueError if no line has a feature, or if the feature matrix would be large but nearly empty.
        """
        rows = filled = 0
        largest, where = -1, ("", 0)
        for file, path in enumerate(self.paths):
            for text_chunk in text_chunks(path):
                threads = _threads(self._n_threads, len(text_chunk.data) >> 8)
                layout = _native.letor_scan(text_chunk.data, _THREAD_CHUNK, threads)
                rows += layout.rows
                filled += _native.letor_count_features(text_chunk.data, layout, threads)
                if layout.largest_id > largest:
                    largest = layout.largest_id
                    number, _ = line_at(text_chunk.data, layout.largest_line)
                    where = (path, text_chunk.line + number)
                notify(self._before[file] + text_chunk.read, self._before[-1], "counting features")
        columns = max(0, largest + self._zero_based)
        size = rows * columns * _SINGLE.itemsize
        if not columns:
            raise ValueError(
                f"{self.paths[0]}: no line has a feature; expected features such as 1:0.5 after the qid."
            )
        if size > DENSE_LIMIT and filled < LEAST_FILLED * rows * columns:
            raise_too_sparse(where, largest, rows, columns, size)
        return columns

    def chunks(self, start: Place | None) -> Iterator[Chunk]:
        """Yield the rows in chunks.

        To resume an interrupted conversion, pass as `start` the place in the input where the first chunk to
        yield begins, as that conversion recorded it. If `start` is None, all rows are yielded.
        """
        begin = Place(0, 0, 0, 0) if start is None else start
        numbered = 0
        for file, path in enumerate(self.paths):
            with self._faults_first():
                sizes = self._sizes(path) if self._kind == _NONE else None
            if file >= begin.file:
                here = begin if file == begin.file else Place(file, 0, 0, 0)
                yield from self._file(here, path, sizes, numbered)
            numbered += 0 if sizes is None else len(sizes.ends)

    def _file(self, start: Place, path: str, sizes: _Sizes | None, numbered: int) -> Iterator[Chunk]:
        row = start.row
        for whole in text_chunks(path, start.at, start.line):
            for text_chunk, layout in self._bounded(whole):
                if not layout.rows:
                    continue
                place = Place(start.file, text_chunk.at, text_chunk.line, row)
                chunk = self._parsed(text_chunk, layout, place, path, kind=self._kind)
                if sizes is not None:
                    chunk = sizes.numbered(chunk, numbered)
                row += len(chunk.y)
                yield chunk
        if sizes is not None:
            sizes.check(row)

    def _bounded(self, text_chunk: TextChunk) -> Iterator[tuple[TextChunk, _native.LetorLayout]]:
        """Split a chunk of text into parts whose feature matrices have about `_LARGEST_X` bytes or less.

        Yields pairs (part, layout); a small chunk is a single part. The layout is the result of a native
        scan of the part, such as its number of rows and the type of its query ids.
        """
        threads = _threads(self._n_threads, len(text_chunk.data) >> 8)
        layout = _native.letor_scan(text_chunk.data, _THREAD_CHUNK, threads)
        parts = math.ceil(layout.rows * self.n_features * _SINGLE.itemsize / _LARGEST_X)
        if parts <= 1 or layout.rows == 1:
            yield text_chunk, layout
            return
        ends = np.flatnonzero(text_chunk.data == 10) + 1
        if not len(ends) or ends[-1] != len(text_chunk.data):
            ends = np.append(ends, len(text_chunk.data))
        step = max(1, len(ends) // parts)
        first = first_line = 0
        for line in range(step, len(ends) + step, step):
            last = int(ends[min(line, len(ends)) - 1])
            part = TextChunk(
                text_chunk.at + first,
                text_chunk.line + first_line,
                text_chunk.data[first:last],
                text_chunk.read,
            )
            yield part, _native.letor_scan(part.data, _THREAD_CHUNK, threads)
            first, first_line = last, line

    def _parsed(
        self,
        text_chunk: TextChunk,
        layout: _native.LetorLayout,
        place: Place,
        path: str,
        *,
        kind: int | None,
        keep: bool = True,
    ) -> Chunk:
        """Parse a chunk of text, and return its rows; raises ValueError if a line is invalid.

        kind  Kind of the query ids in the file.
        keep  Whether to keep the features. If not, the chunk that is returned has none.

        The parser takes the type of the query ids from the first line that it gets, and accepts a byte order
        mark before that line. So it would miss two errors at the start of a chunk: ids of another type than
        in the lines before, and a byte order mark that is not at the start of the file. In these two cases,
        a line with an id of the file's type is put before the chunk, so that the parser reports the error.
        """
        import pyarrow as pa

        data, extra = text_chunk.data, 0
        threads = _threads(self._n_threads, len(data) >> 8)
        if kind is not None and (
            layout.ids != kind or (text_chunk.at and data[:3].tobytes() == b"\xef\xbb\xbf")
        ):
            first = _FIRST_LINES[kind]
            data, extra = np.concatenate([np.frombuffer(first, np.uint8), data]), 1
            layout = _native.letor_scan(data, _THREAD_CHUNK, threads)
        n = layout.rows
        columns = (self._given or 0) if not keep else self.n_features
        X = np.empty((n, columns if keep else 0), np.float32)
        y = np.empty(n)
        numbers = np.empty(n, np.int64) if layout.ids == _NUMBERS else None
        names = np.empty((n, 2), np.int64) if layout.ids == _NAMES else None
        docids = np.empty((n, 2), np.int64) if layout.comments else None

        fault, *at = _native.letor_read(
            data,
            layout,
            X=X if keep else None,
            columns=columns,
            y=y,
            qid=numbers,
            names=names,
            docids=docids,
            zero_based=self._zero_based,
            limited=self._given is not None,
            null=self._null,
            largest=_LARGEST,
            n_threads=threads,
        )
        if fault:
            raise_fault(
                Source(path, data, path), fault, *at, n_features=self._given,
                zero_based=self._zero_based, kind=_SINGLE, lines_before=text_chunk.line - extra,
            )  # fmt: skip
        if numbers is not None:
            qid = pa.array(numbers)
        elif names is not None:
            qid = text_places(data, names)
        else:
            qid = pa.array(np.zeros(n, np.int64))
        if docids is None:
            docid = pa.array([""]).take(pa.array(np.zeros(n, np.int8)))
        else:
            docid = self._docid(data, docids, text_chunk, extra, path)
        done = self._before[place.file] + text_chunk.read
        chunk = Chunk(place, done, X, y, qid, docid)
        return chunk.rows(extra, n) if extra else chunk

    def _docid(
        self, data: NDArray[np.uint8], places: Integers, text_chunk: TextChunk, extra: int, path: str
    ) -> pa.Array:
        try:
            return text_places(data, places)
        except UnicodeDecodeError:
            for first, last in places.tolist():
                word = data[first:last].tobytes()
                try:
                    word.decode("utf-8")
                except UnicodeDecodeError:
                    line = text_chunk.line - extra + data[:first].tobytes().count(b"\n") + 1
                    raise ValueError(
                        f"{path}, line {line}: the docid {shown_line(word, 0)} is not UTF-8, which a stored "
                        "set requires. Write the file as UTF-8."
                    ) from None
            raise

    def _sizes(self, path: str) -> _Sizes:
        source = Source(path, np.empty(0, np.uint8), path)
        return _Sizes(source, self._group)

    def locate(self, file: int, row: int) -> str:
        """Return the path and line of a document, such as "a.txt:12", for error messages.

        file  Index of the input file, from 0.
        row   Row of the document in that file, from 0. Lines that are not documents are not counted.
        """
        path = self.paths[file]
        line = line_of_document(((chunk.line, chunk.data) for chunk in text_chunks(path)), row)
        if line is None:
            raise ValueError(f"{path}: the file has changed while it was read.")
        return f"{path}:{line}"


class _Sizes:
    """Sizes of the queries of a text without qid, for example from LightGBM's .query files."""

    def __init__(self, source: Source, group: Any) -> None:
        self._source = source
        sizes, self._name, self._place = sizes_for(source, group)
        # no file has 1 << 40 rows, so that limit changes no valid size; it keeps the sums from overflowing
        self.ends = np.cumsum(np.minimum(sizes, 1 << 40))

    def numbered(self, chunk: Chunk, before: int) -> Chunk:
        """Return the chunk with query ids that number the queries.

        The first query of this file gets the id `before` + 1, where `before` is the number of queries in
        earlier files.
        """
        import pyarrow as pa

        rows = np.arange(chunk.place.row, chunk.place.row + len(chunk.y))
        if rows[-1] >= self.ends[-1]:  # too many rows: `check` reports the error at the end of the file
            rows = np.minimum(rows, self.ends[-1] - 1)
        qid = np.searchsorted(self.ends, rows, side="right") + 1 + before
        return Chunk(chunk.place, chunk.done, chunk.X, chunk.y, pa.array(qid), chunk.docid)

    def check(self, rows: int) -> None:
        """Raise a ValueError if the sizes do not sum to the number of rows."""
        if self.ends[-1] != rows:
            raise_wrong_sizes(self._source, self._name, self._place, self.ends, rows)
