"""Readers of CSV and Parquet in chunks, with the checks and error messages of `load_frame`."""

from __future__ import annotations

import csv
import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.compressed import compression_by_name
from sinkprop.common.progress import Notify
from sinkprop.common.types import Mask
from sinkprop.data import frames
from sinkprop.data.categories import (
    CategoryColumn,
    CategoryFinder,
    arrow_category_column,
    arrow_category_kind,
)
from sinkprop.data.doubtful_data import warn_of_column_names
from sinkprop.data.letor_errors import shown_line
from sinkprop.store.chunks import Chunk, Place, TextChunk, sizes_of, text_chunks

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvInputs", "ParquetInputs", "column_names"]

_BATCH = 8 << 20  # bytes of features per batch
_STREAM = 1 << 16  # bytes per read of a Parquet column
_FILL = "Fill it in, or pass allow_nan=True, for boosted trees, which accept missing values."


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Prefix the messages of ValueErrors in a `with` block with the file's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def column_names(path: str, kind: str, delimiter: str | None = None) -> list[str]:
    """Return the names of a file's columns, or an empty list if the file cannot be read.

    It raises no error, because the conversion reads the file again and reports the error then.
    """
    with suppress(ImportError, OSError, ValueError):
        if kind == "csv":
            options = dict.fromkeys(("label", "docid", "features", "categorical")) | {"qid": ""}
            return CsvInputs([path], delimiter=delimiter, allow_nan=False, **options)._header(path)[0]
        import pyarrow.parquet as pq

        return list(pq.read_schema(path).names)
    return []


class _TableInputs:
    """Files with named columns. The first file determines the features; the others must have the same."""

    _empty_is_missing = False  # whether an empty text counts as a missing query id

    def __init__(
        self,
        paths: Sequence[str],
        *,
        qid: str,
        label: str | None,
        docid: str | None,
        features: Sequence[str] | None,
        categorical: Sequence[str] | None,
        allow_nan: bool,
    ) -> None:
        self.paths = tuple(paths)
        self.n_features = 0
        self.feature_names: tuple[str, ...] | None = None
        self.qid = "int64"
        self.docid = docid is not None
        self.categories: dict[str, tuple[Any, ...]] = {}
        self.ordered: tuple[str, ...] = ()
        self._categorical = categorical
        self._roles: dict[str, Any] = {"qid": qid, "label": label, "docid": docid}
        self._features = features
        self._allow_nan = allow_nan
        self._chosen: list[str] = []
        self._before = [0, *np.cumsum(sizes_of(self.paths)).tolist()]

    @property
    def _columns(self) -> list[str]:
        return [*(name for name in self._roles.values() if name is not None), *self._chosen]

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]:
        """Take the feature columns from the first file, and find the type of the query ids and categories.

        Raises ValueError if another file does not have the same feature columns.
        """
        with _named(self.paths[0]):
            self._chosen = self._names_in(self.paths[0])
            named = frames.category_names(self._categorical, self._chosen)
        for path in self.paths[1:]:
            with _named(path):
                found = set(self._names_in(path))
                lacks = [name for name in self._chosen if name not in found]
                alone = sorted(found - set(self._chosen))
                if lacks or alone:
                    what = f"lacks the column {lacks[0]!r}" if lacks else f"has the column {alone[0]!r}"
                    raise ValueError(
                        f"the file {what}, unlike {self.paths[0]}; all files must have the same features."
                    )
        if self._features is None and known is None:
            warn_of_column_names(self._chosen)
        self.n_features = len(self._chosen)
        self.feature_names = tuple(map(str, self._chosen))
        self.qid = self._kind_of_ids()
        record: dict[str, Any] = {"columns": self._chosen, "qid": self.qid}
        columns = [name for name in self._chosen if name in named | self._category_types()]
        if columns:
            if known is None:
                self._find_categories(columns, notify)
            else:
                self.categories = {name: tuple(values) for name, values in known["categories"].items()}
                self.ordered = tuple(known["ordered"])
            record |= {"categories": self.categories, "ordered": self.ordered}
        return record

    def _find_categories(self, columns: list[str], notify: Notify) -> None:
        """Read columns of all files to find their categories."""
        finder = CategoryFinder(columns)
        for path, before in zip(self.paths, self._before, strict=False):
            with _named(path):
                for batch in self._batches_of(path, columns):
                    notify(before, self._before[-1], "finding categories")
                    for name in columns:
                        finder.add(name, self._category_column(batch, name))
        self.categories, self.ordered = finder.found()

    def _category_column(self, batch: Any, name: str) -> CategoryColumn:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = batch.column(name)
        if self._empty_is_missing:
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
        return arrow_category_column(column, batch.schema.field(name))

    @abstractmethod
    def _category_types(self) -> set[str]:
        """Names of the columns whose type is categorical."""

    @abstractmethod
    def _batches_of(self, path: str, columns: list[str]) -> Iterator[Any]:
        """Read columns of a file, in batches of rows."""

    @abstractmethod
    def _names_in(self, path: str) -> list[str]:
        """Feature columns of a file."""

    @abstractmethod
    def _kind_of_ids(self) -> str:
        """Type of the query ids: "int64" or "string"."""

    def _selected(self, names: list[str], frame: Any) -> list[str]:
        return frames.feature_columns(frame, names, **self._roles, features=self._features)

    def _chunk(
        self, batch: pa.Table | pa.RecordBatch, place: Place, done: int, where: Callable[[int], str]
    ) -> Chunk:
        """Check the rows of an Arrow batch, and return them as a chunk.

        place  Place of the first row in the input.
        done   Number of bytes read so far, summed over all input files.
        where  where(i) describes row i of the batch, from 0, for error messages, such as "line 3".
        """
        n = batch.num_rows
        X = np.empty((n, self.n_features), np.float32)

        def column(name: Any) -> tuple[NDArray[Any] | None, Mask, str]:
            return frames.arrow_values(batch.column(name))

        columns = [
            self._codes(batch, name, where)
            if name in self.categories
            else self._feature(batch.column(name), name, where)
            for name in self._chosen
        ]
        # 4096 rows of X stay in the processor's cache while all columns are copied to them
        for first in range(0, n, 4096):
            for j, values in enumerate(columns):
                X[first : first + 4096, j] = values[first : first + 4096]
        label = self._roles["label"]
        y = np.zeros(n) if label is None else frames.label_column(column, label, place=where)
        qid = self._ids(batch, where)
        docid = None
        if self._roles["docid"] is not None:
            docid = _as_text(_whole_array(batch.column(self._roles["docid"])), self._roles["docid"], where)
        return Chunk(place, done, X, y, qid, docid)

    def _codes(self, batch: Any, name: str, where: Callable[[int], str]) -> NDArray[Any]:
        """Return the codes of a categorical column, NaN for missing values.

        Raises ValueError if a value is missing although `allow_nan` is False.
        """
        found = self._category_column(batch, name)
        if not self._allow_nan and (found.codes < 0).any():
            row = int(np.argmax(found.codes < 0))
            raise ValueError(f"column {name!r} has no value in {where(row)}. {_FILL}")
        codes, unseen = found.coded(self.categories[name])
        if unseen:
            raise ValueError("the file has changed while it was read.")
        return codes.astype(np.float32)

    def _feature(self, column: Any, name: str, where: Callable[[int], str]) -> NDArray[Any]:
        """Return the values of a feature column as float32.

        Raises ValueError if a value is not a number, is infinite, is too large for float32, or is missing
        although `allow_nan` is False.
        """
        if self._allow_nan and _is_number(column.type):
            values = column.to_numpy(zero_copy_only=False)  # missing values become NaN
            if np.isinf(values).any():
                row = int(np.argmax(np.isinf(values)))
                raise ValueError(
                    f"column {name!r} holds {values[row]} in {where(row)}; expected a finite number."
                )
        else:
            values = frames.number_column(
                lambda _: frames.arrow_values(column), name, frames.NOT_NUMBERS, _FILL, place=where
            )
        with np.errstate(over="ignore"):
            single: NDArray[Any] = values.astype(np.float32)
        if np.isinf(single).any():
            row = int(np.argmax(np.isinf(single)))
            raise ValueError(
                f"column {name!r} holds {values[row]} in {where(row)}, which is too large for float32, in "
                "which a stored set keeps features."
            )
        return single

    def _ids(self, batch: Any, where: Callable[[int], str]) -> pa.Array:
        """Return the query ids of a batch, converted to the set's type of ids.

        Raises ValueError if an id is missing or cannot be converted.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._roles["qid"]
        array = _whole_array(batch.column(name))
        if array.null_count:
            row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
            raise ValueError(f"column {name!r} ({array.type}) has no value in {where(row)}.")
        if self._empty_is_missing and (empty := pc.equal(array, "")).true_count:
            row = int(np.argmax(empty.to_numpy(zero_copy_only=False)))
            raise ValueError(f"column {name!r} has no value in {where(row)}.")
        if self.qid == "string":
            return _as_text(array, name, where)
        try:
            return pc.cast(array, pa.int64())
        except pa.ArrowInvalid:
            values = array.to_pylist()
            row = next(i for i, value in enumerate(values) if not _is_whole(value))
            raise ValueError(
                f"column {name!r} must hold whole numbers, as in the rows before, or text in all of them; "
                f"{where(row)} has {values[row]!r}."
            ) from None


class ParquetInputs(_TableInputs):
    """Parquet files, read in batches of rows, so that only a small part is in memory."""

    def _opened(self, path: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(path, buffer_size=_STREAM, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"not a Parquet file that can be read: {error}") from error

    def _names_in(self, path: str) -> list[str]:
        with self._opened(path) as file:
            names = list(file.schema_arrow.names)
            frames.no_repeated(names)
            if not file.metadata.num_rows:
                raise ValueError("the frame has no rows; expected one row per document.")
            return self._selected(names, file.schema_arrow.empty_table())

    def _kind_of_ids(self) -> str:
        name, kinds = self._roles["qid"], []
        for path in self.paths:
            with self._opened(path) as file:
                kind = file.schema_arrow.field(name).type
            found = _kind_of_type(kind)
            if found is None:
                raise ValueError(
                    f"{path}: column {name!r} must hold whole numbers or text in a stored set; it is {kind}."
                )
            kinds.append(found)
            if found != kinds[0]:
                raise ValueError(
                    f"{path}: column {name!r} is {kind}, unlike in {self.paths[0]}; all query ids of a set "
                    "must be of one kind."
                )
        return kinds[0]

    def _category_types(self) -> set[str]:
        found: set[str] = set()
        for path in self.paths:
            with _named(path), self._opened(path) as file:
                found |= {field.name for field in file.schema_arrow if arrow_category_kind(field)}
        return found

    def _batches_of(self, path: str, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa

        with self._opened(path) as file:
            try:
                yield from file.iter_batches(batch_size=max(1, _BATCH // (8 * len(columns))), columns=columns)
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"the file cannot be read: {error}") from error

    def chunks(self, start: Place | None) -> Iterator[Chunk]:
        """Yield the rows in chunks.

        To resume an interrupted conversion, pass as `start` the place in the input where the first chunk to
        yield begins, as that conversion recorded it. If `start` is None, all rows are yielded.
        """
        begin = Place(0, 0, 0, 0) if start is None else start
        for number in range(begin.file, len(self.paths)):
            path = self.paths[number]
            with _named(path), self._opened(path) as file:
                yield from self._file(file, number, begin.row if number == begin.file else 0)

    def _file(self, file: Any, number: int, row: int) -> Iterator[Chunk]:
        import pyarrow as pa

        groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        ends = np.cumsum(groups)
        first_group = bisect_right(ends.tolist(), row)
        skip = row - (int(ends[first_group - 1]) if first_group else 0)
        size = max(1, _BATCH // (4 * self.n_features))
        batches = file.iter_batches(
            batch_size=size, row_groups=range(first_group, len(groups)), columns=self._columns
        )
        whole = self._before[number + 1] - self._before[number]
        total = max(1, int(ends[-1]))
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"the file cannot be read from row {row} on: {error}") from error
            if skip:
                here = min(skip, batch.num_rows)
                batch, skip = batch.slice(here), skip - here
            if not batch.num_rows:
                continue
            done = self._before[number] + whole * (row + batch.num_rows) // total
            yield self._chunk(batch, Place(number, row, row, row), done, partial(_row_name, row))
            row += batch.num_rows

    def locate(self, file: int, row: int) -> str:
        """Return the row and path of a document, such as "row 12 of a.parquet", for error messages.

        file  Index of the input file, from 0.
        row   Row of the document in that file, from 0.
        """
        return f"row {row} of {self.paths[file]}"


class CsvInputs(_TableInputs):
    """CSV files with a line of column names, then one document per line; features and labels are numbers."""

    _empty_is_missing = True

    def __init__(self, paths: Sequence[str], *, delimiter: str | None, **options: Any) -> None:
        super().__init__(paths, **options)
        self._delimiters = [_delimiter(path) if delimiter is None else delimiter for path in self.paths]
        self._headers: dict[str, tuple[list[str], int]] = {}

    def _header(self, path: str) -> tuple[list[str], int]:
        """Column names in the first line, and its length in bytes."""
        if path not in self._headers:
            text_chunk = next(text_chunks(path, size=1 << 16), None)
            if text_chunk is None:
                raise ValueError("the file is empty; expected a line with the names of the columns.")
            size = (
                int(np.argmax(text_chunk.data == 10)) + 1
                if (text_chunk.data == 10).any()
                else len(text_chunk.data)
            )
            line = text_chunk.data[:size].tobytes()
            try:
                text = line.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"line 1 is not UTF-8 text: {shown_line(line, 0)}.") from None
            names = next(csv.reader([text], delimiter=self._delimiters[self.paths.index(path)]), [])
            self._headers[path] = names, size
        return self._headers[path]

    def _names_in(self, path: str) -> list[str]:
        names, _ = self._header(path)
        frames.no_repeated(names)
        if "" in names and self._features is None:
            raise ValueError(
                f"column {names.index('')} has no name, like the index that pandas writes; write the file "
                "with index=False, or name the features with features=[...]."
            )
        return self._selected(names, None)

    def _kind_of_ids(self) -> str:
        import pyarrow as pa
        import pyarrow.compute as pc

        path = self.paths[0]
        with _named(path):
            text_chunk = next(self._text_chunks(path, 0, 0), None)
            if text_chunk is None:
                raise ValueError("the frame has no rows; expected one row per document.")
            ids = _whole_array(self._read(path, text_chunk, [self._roles["qid"]]).column(0))
            try:
                pc.cast(ids, pa.int64())
            except pa.ArrowInvalid:
                return "string"
            return "int64"

    def _category_types(self) -> set[str]:
        return set()

    def _batches_of(self, path: str, columns: list[str]) -> Iterator[Any]:
        for text_chunk in self._text_chunks(path, 0, 0):
            yield self._read(path, text_chunk, columns)

    def _text_chunks(self, path: str, at: int, line: int) -> Iterator[TextChunk]:
        """Yield the text of a file in chunks of whole lines, except chunks that have only blank lines.

        Reading starts at the offset `at`, where line number `line` (from 0) begins. If `at` is 0, reading
        starts after the line of column names.
        """
        if not at:
            at, line = self._header(path)[1], 1
        for text_chunk in text_chunks(path, at, line):
            if text_chunk.data.tobytes().strip(b"\r\n"):
                yield text_chunk

    def _read(
        self, path: str, text_chunk: TextChunk, wanted: list[str] | None = None, *, text: bool = False
    ) -> pa.Table:
        """Parse a chunk of CSV text to an Arrow table.

        Query ids, document names and categories are strings.

        wanted  Names of the columns to read. By default all columns that the set needs.
        text    Whether to read features and labels as strings. By default they are read as numbers.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        names, _ = self._header(path)
        text_columns = {self._roles["qid"], self._roles["docid"], *(self._categorical or ())}
        wanted = self._columns if wanted is None else wanted
        types = {name: pa.string() if text or name in text_columns else pa.float64() for name in wanted}
        wrong: list[Any] = []

        def invalid(row: Any) -> str:
            wrong.append(row)
            return "error"

        try:
            return arrow_csv.read_csv(
                pa.py_buffer(text_chunk.data),
                read_options=arrow_csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=len(text_chunk.data) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiters[self.paths.index(path)], invalid_row_handler=invalid
                ),
                convert_options=arrow_csv.ConvertOptions(include_columns=wanted, column_types=types),
            )
        except pa.ArrowInvalid as error:
            if wrong:
                row = wrong[0]
                raise ValueError(
                    f"line {_line_of(text_chunk, row.number - 1)}: expected {row.expected_columns} columns, "
                    f"as in the first line; got {row.actual_columns}: {shown_line(row.text.encode(), 0)}."
                ) from None
            if text:
                raise ValueError(f"lines from {text_chunk.line + 1} on: {error}") from None
            self._raise_not_a_number(path, text_chunk, error)
            raise

    def _raise_not_a_number(self, path: str, text_chunk: TextChunk, error: Exception) -> None:
        """Raise ValueError for the first feature or label in a chunk that is not a number.

        `error` is the error of the parser. Its message is used if no such value is found.
        """
        table = self._read(path, text_chunk, text=True)
        found: tuple[int, str, str] | None = None
        for name in [self._roles["label"], *self._chosen]:
            if name is None or name in self.categories:
                continue
            for row, value in enumerate(table.column(name).to_pylist()):
                if found is not None and row >= found[0]:
                    break
                if not _is_csv_number(value):
                    found = row, name, value
        if found is None:
            raise ValueError(f"lines from {text_chunk.line + 1} on: {error}") from None
        row, name, value = found
        advice = "Labels are numbers, larger for more relevant."
        if name != self._roles["label"]:
            advice = frames.NOT_NUMBERS
        raise ValueError(
            f"column {name!r} must hold numbers; line {_line_of(text_chunk, row)} has {value!r}. {advice}"
        ) from None

    def chunks(self, start: Place | None) -> Iterator[Chunk]:
        """Yield the rows in chunks.

        To resume an interrupted conversion, pass as `start` the place in the input where the first chunk to
        yield begins, as that conversion recorded it. If `start` is None, all rows are yielded.
        """
        begin = Place(0, 0, 0, 0) if start is None else start
        for number in range(begin.file, len(self.paths)):
            path = self.paths[number]
            here = begin if number == begin.file else Place(number, 0, 0, 0)
            row = here.row
            with _named(path):
                for text_chunk in self._text_chunks(path, here.at, here.line):
                    table = self._read(path, text_chunk)
                    place = Place(number, text_chunk.at, text_chunk.line, row)
                    done = self._before[number] + text_chunk.read
                    yield self._chunk(table, place, done, partial(_line_name, text_chunk))
                    row += table.num_rows
                if not row:
                    raise ValueError("the frame has no rows; expected one row per document.")

    def locate(self, file: int, row: int) -> str:
        """Return the path and line of a document, such as "a.csv:12", for error messages.

        file  Index of the input file, from 0.
        row   Row of the document in that file, from 0. Lines that are not documents are not counted.
        """
        path = self.paths[file]
        for text_chunk in self._text_chunks(path, 0, 0):
            rows = _read_rows(text_chunk)
            if row < rows:
                return f"{path}:{_line_of(text_chunk, row)}"
            row -= rows
        raise ValueError(f"{path}: the file has changed while it was read.")


def _read_rows(text_chunk: TextChunk) -> int:
    return sum(1 for line in text_chunk.data.tobytes().split(b"\n") if line.strip(b"\r"))


def _delimiter(path: str) -> str:
    stem = os.path.splitext(path)[0] if compression_by_name(path) else path
    return "\t" if stem.lower().endswith(".tsv") else ","


def _row_name(first: int, row: int) -> str:
    return f"row {first + row}"


def _line_name(text_chunk: TextChunk, row: int) -> str:
    return f"line {_line_of(text_chunk, row)}"


def _line_of(text_chunk: TextChunk, row: int) -> int:
    """Return the line number of a document in its file, from 1, for error messages.

    `row` is the index of the document in the chunk, from 0, without counting blank lines.
    """
    for number, line in enumerate(text_chunk.data.tobytes().split(b"\n"), text_chunk.line + 1):
        if line.strip(b"\r"):
            if not row:
                return number
            row -= 1
    return text_chunk.line + 1


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_csv_number(value: str | None) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if value is None or value in ("", "NULL", "null", "NA", "N/A", "NaN", "nan"):
        return True
    try:
        pc.cast(pa.array([value]), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_whole(value: Any) -> bool:
    try:
        return -(2**63) <= int(value) < 2**63 and float(int(value)) == float(value)
    except (TypeError, ValueError):
        return False


def _kind_of_type(kind: pa.DataType) -> str | None:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind):
        return "int64"
    view = getattr(types, "is_string_view", lambda _: False)
    return "string" if types.is_string(kind) or types.is_large_string(kind) or view(kind) else None


def _whole_array(column: Any) -> pa.Array:
    """Column as one array, with dictionary encoding removed."""
    import pyarrow as pa

    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _as_text(array: pa.Array, name: str, where: Callable[[int], str]) -> pa.Array:
    """Convert a column of text or whole numbers to Arrow strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"column {name!r} ({array.type}) has no value in {where(row)}.")
    try:
        return pc.cast(array, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"column {name!r} must hold text or whole numbers; it is {array.type}.") from None
