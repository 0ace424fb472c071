"""Frames and files of a click log, read as batches of rows of some tens of megabytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape, glob, has_magic
from typing import Any, TypeAlias

from sinkprop.data.frames import frame_columns

__all__ = ["LogPart", "file_and_row", "log_parts"]

_PARQUET = 1 << 21  # values of a batch, of 8 bytes or more
_CSV = 1 << 24  # bytes of text of a batch

# columns of numbers, each with advice for the case that it holds something else; columns of ids; first row
_Batches: TypeAlias = Callable[[Mapping[str, str], Collection[str], int], Iterator[Any]]


@dataclass(frozen=True)
class LogPart:
    """A frame or a file of a click log.

    name     Path of the file; "" for a frame in memory.
    header   Frame with the columns of the part; only their names and types matter. All ids of a CSV file are
             text.
    empty    Whether the part has no rows.
    batches  Function that yields frames, given columns of numbers {name: advice if it holds other values},
             columns of ids, and the number of the part's first row. The frames of a file have only these
             columns.
    """

    name: str
    header: Any
    empty: bool
    batches: _Batches


def log_parts(source: Any) -> Iterator[LogPart]:
    """Yield the parts of the argument `source` of `read_clicks`."""
    if not isinstance(source, str | os.PathLike | list | tuple):
        frame_columns(source)  # raises an error if it is no frame
        yield LogPart("", source, not len(source), lambda numbers, ids, first: iter([source]))
        return
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ImportError('read_clicks needs pyarrow for files: pip install "sinkprop[parquet]"') from error
    paths = _paths(source)
    for path in paths:
        with open(path, "rb"):  # a path that cannot be opened raises Python's usual error
            pass
    for path in paths:
        yield (_csv_part if _is_csv(path) else _parquet_part)(path)


def file_and_row(name: str, first: int) -> str:
    """Name of a file in messages about its rows, which are counted over all files."""
    return f"{name} (from row {first})" if first else name


def _paths(source: Any) -> list[str]:
    """Files that a path, a folder, a pattern or a sequence of these names."""
    if isinstance(source, list | tuple):
        for item in source:
            if not isinstance(item, str | os.PathLike):
                raise ValueError(
                    f"source must be one frame or paths of files; got a {type(source).__name__} that holds a "
                    f"{type(item).__qualname__}. Concatenate frames, for example with pandas.concat."
                )
        return [path for item in source for path in _paths(item)]
    name = os.fsdecode(source)
    if os.path.isdir(name):
        found = sorted(glob(os.path.join(escape(name), "*.parquet")))
        if not found:
            raise ValueError(f"{name}: the folder has no files whose names end in .parquet.")
        return found
    if has_magic(name) and not os.path.exists(name):
        found = sorted(glob(name))
        if not found:
            raise ValueError(f"{name}: no file matches this pattern.")
        return found
    return [name]


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn Arrow's errors in a `with` block into a ValueError that names the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a Parquet or CSV file that can be read: {error}") from error


def _parquet_part(path: str) -> LogPart:
    import pyarrow.parquet as pq

    with _readable(path), pq.ParquetFile(path) as file:
        header, empty = file.schema_arrow.empty_table(), not file.metadata.num_rows
    return LogPart(path, header, empty, partial(_parquet_batches, path))


def _parquet_batches(
    path: str, numbers: Mapping[str, str], ids: Collection[str], first: int
) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(dict.fromkeys([*ids, *numbers]))
    # With pre_buffer, Arrow holds all columns of the file; without a buffer size, those of a row group.
    with _readable(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
        for batch in file.iter_batches(max(1, _PARQUET // len(columns)), columns=columns):
            yield pa.Table.from_batches([batch]).select(columns)


def _is_csv(path: str) -> bool:
    return re.search(r"\.[ct]sv(\.\w+)?$", path.lower()) is not None


def _csv_part(path: str) -> LogPart:
    import pyarrow as pa

    with _readable(path), _open_csv(path) as file:
        text = pa.schema([(name, pa.string()) for name in file.schema.names])
        booleans = {field.name for field in file.schema if pa.types.is_boolean(field.type)}
        empty = next(iter(file), None) is None
    return LogPart(path, text.empty_table(), empty, partial(_csv_batches, path, booleans))


def _open_csv(path: str, types: Mapping[str, Any] | None = None) -> Any:
    """Open a CSV file, to read the columns in `types` as these types, or all columns as they seem."""
    from pyarrow import csv

    tabs = ".tsv" in os.path.basename(path).lower()
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_CSV),
        parse_options=csv.ParseOptions(delimiter="\t" if tabs else ","),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types or ())),
    )


def _csv_batches(
    path: str, booleans: Collection[str], numbers: Mapping[str, str], ids: Collection[str], first: int
) -> Iterator[Any]:
    import pyarrow as pa

    types = {name: pa.bool_() if name in booleans else pa.float64() for name in numbers}
    types |= dict.fromkeys(ids, pa.dictionary(pa.int32(), pa.string()))
    with _readable(path):
        try:
            with _open_csv(path, types) as file:
                for batch in file:
                    yield _without_empty(pa.Table.from_batches([batch]), ids)
        except pa.ArrowInvalid as error:
            wrong = re.search(r"CSV column #(\d+): .*: invalid value '(.*)'", str(error), re.DOTALL)
            if wrong is None:
                raise
            with _open_csv(path) as file:
                name = file.schema.names[int(wrong[1])]
            row = _row_of(path, name, wrong[2])
            found = repr(wrong[2]) + ("" if row is None else f" in row {first + row}")
            raise ValueError(
                f"{file_and_row(path, first)}: column {name!r} must hold numbers; it has {found}. "
                f"{numbers[name]}"
            ) from None


def _without_empty(table: Any, ids: Collection[str]) -> Any:
    """Replace empty text in columns of ids by missing values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for i, name in enumerate(table.column_names):
        if name in ids and any("" in chunk.dictionary.to_pylist() for chunk in table.column(i).chunks):
            column = table.column(i).cast(pa.string())
            missing = pa.scalar(None, pa.string())
            table = table.set_column(i, name, pc.if_else(pc.equal(column, ""), missing, column))
    return table


def _row_of(path: str, name: str, text: str) -> int | None:
    """First row of a CSV file in which the column `name` has this text; None if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = 0
    with _open_csv(path, {name: pa.string()}) as file:
        for batch in file:
            row: int = pc.index(batch.column(0), text).as_py()
            if row >= 0:
                return first + row
            first += len(batch)
    return None
