"""Ids of a click log as whole numbers, and the rows of its documents in a table of documents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Integers
from sinkprop.data.categories import is_frame
from sinkprop.data.frames import frame_columns, known_column
from sinkprop.data.queries import Queries

__all__ = ["Ids", "TableRows", "id_array", "refuse_other_documents"]


class Ids:
    """Whole numbers 0, 1, ... for ids, in order of first appearance.

    names  The ids, in this order.
    """

    def __init__(self) -> None:
        self.names: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}

    def read(self, frame: Any, name: str, place: Callable[[int], str]) -> Integers:
        """Return the numbers of the ids in a column of a frame.

        Raises a ValueError if an id is missing, not finite or not hashable. The function `place` turns a row
        index into the text by which the message refers to the row, such as "row 3".
        """
        if hasattr(frame, "column_names"):
            return np.concatenate(
                [self._coded(*part) for part in _arrow_parts(frame.column(name), name, place)]
            )
        ids = known_column(frame_columns(frame)[1], name, place=place)
        if ids.dtype.kind in "iub":
            return self.codes(ids)
        rows = ids.tolist()
        try:
            table = {i: self._number(i) for i in dict.fromkeys(rows)}
        except TypeError:
            row = next(row for row, i in enumerate(rows) if not _hashable(i))
            raise _no_ids(name, rows[row], place(row)) from None
        return np.fromiter(map(table.__getitem__, rows), np.int64, len(rows))

    def codes(self, ids: NDArray[Any]) -> Integers:
        """Return the numbers of ids that are integers."""
        distinct, codes = np.unique(ids, return_inverse=True)
        return self._coded(distinct.tolist(), codes)

    def _coded(self, distinct: Sequence[Hashable], codes: Integers) -> Integers:
        """Return the numbers of the ids distinct[codes]."""
        n = len(codes)
        first = np.full(len(distinct), n)
        first[codes[::-1]] = np.arange(n - 1, -1, -1)  # of repeated indices, the last assignment stays
        table = np.empty(len(distinct), dtype=np.int64)
        for i in np.argsort(first)[: np.count_nonzero(first < n)].tolist():
            table[i] = self._number(distinct[i])
        return table[codes]

    def _number(self, name: Hashable) -> int:
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def _arrow_parts(
    column: Any, name: str, place: Callable[[int], str]
) -> Iterator[tuple[list[Hashable], Integers]]:
    """Yield (distinct ids, index of the id of each row) for each chunk of a pyarrow column."""
    start = 0
    for chunk in column.chunks if hasattr(column, "chunks") else [column]:
        if not len(chunk):
            continue
        try:
            kind = str(chunk.type)
            plain = chunk.cast(f"large_{kind[:-5]}") if kind in ("string_view", "binary_view") else chunk
            coded = plain if hasattr(plain, "dictionary") else plain.dictionary_encode()
        except NotImplementedError:  # Arrow finds no equal values in lists and structures
            raise _no_ids(name, chunk[0].as_py(), place(start)) from None
        distinct = coded.dictionary.to_pylist()
        codes = coded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
        unknown = codes < 0
        for i, value in enumerate(distinct):
            if value is None or (isinstance(value, float) and not isfinite(value)):
                unknown |= codes == i
        if unknown.any():
            row = int(np.argmax(unknown))
            value = chunk[row].as_py()
            holds = f"({column.type}) has no value" if value is None else f"holds {value}"
            more = "" if value is None else "; expected a finite number"
            raise ValueError(f"column {name!r} {holds} in {place(start + row)}{more}.")
        yield distinct, codes
        start += len(chunk)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _no_ids(name: str, value: Any, place: str) -> ValueError:
    return ValueError(
        f"column {name!r} holds {value!r} in {place}, which cannot be an id; expected text or numbers."
    )


def id_array(ids: Sequence[Hashable]) -> NDArray[Any]:
    """Make an array of ids, of a numeric type if they all are integers or all are floats.

    >>> id_array([2**63, -1]).tolist()
    [9223372036854775808, -1]
    """
    for kind, dtypes in ((int, "iub"), (float, "f")):
        if all(isinstance(i, kind) for i in ids):
            numbers = np.array(ids)
            if numbers.dtype.kind in dtypes:  # NumPy turns 2**63 and -1 into floats, which may coincide
                return numbers
    array = np.empty(len(ids), dtype=object)
    array[:] = ids
    return array


def refuse_other_documents(documents: Any, query: str, doc: str | None, features: Any) -> None:
    """Raise a ValueError if the arguments of `read_clicks` do not name documents in a table."""
    if not isinstance(documents, Queries):
        if is_frame(documents):
            how = f" Pass load_frame(documents, qid={query!r}, docid={doc!r}, label=None)."
        else:
            how = " Pass documents.load()." if hasattr(documents, "load") else " load_frame makes them."
        kind = type(documents)
        raise ValueError(f"documents must be Queries; got {kind.__module__}.{kind.__qualname__}.{how}")
    if doc is None:
        raise ValueError("doc must name a column if a table of documents is given.")
    if features is not None:
        raise ValueError(
            "features must not be given with documents, whose features are used. Choose features when the "
            "table is read, for example with load_frame(..., features=[...])."
        )


class TableRows:
    """Rows of a table of documents, found by the ids of a log.

    An id of the log and one of the table are the same if they are equal. If one of both has text as ids, and
    the other has numbers, they are compared as text.

    table    The table. Without `docid`, the document ids of the log are rows of it.
    queries  Query ids of the log.
    docs     Document ids of the log.
    column   Name of the log's column of document ids.

    Raises a ValueError if the table has the same document of a query twice.
    """

    def __init__(self, table: Queries, queries: Ids, docs: Ids, column: str) -> None:
        self.table = table
        self._queries, self._docs, self._column = queries, docs, column
        self._groups = table.groups.codes
        # by query id; by (number of its query in the table, document id); by the numbers of a log's two ids
        self._group_of = {query: group for group, query in enumerate(table.groups.queries.tolist())}
        self._row_of: dict[tuple[int, Hashable], int] = {}
        self._row_of_pair: dict[int, int] = {}
        self._text_queries = self._text_docs = False  # whether ids are compared as text
        if table.docid is None:
            return
        for row, pair in enumerate(zip(self._groups.tolist(), table.docid.tolist(), strict=True)):
            other = self._row_of.setdefault(pair, row)
            if other != row:
                query = table.groups.queries.tolist()[pair[0]]
                raise ValueError(
                    f"rows {other} and {row} of documents are both document {pair[1]!r} of query {query!r}; "
                    "expected each document of a query once."
                )

    def rows(self, q: Integers, d: Integers, place: Callable[[int], str]) -> Integers:
        """Return the rows of documents, given the numbers of their queries and of their ids.

        Raises a ValueError if the table does not have one of them.
        """
        if not self._row_of_pair:
            self._compare_as_text()
        pairs, first, inverse = np.unique(q * np.int64(2**32) + d, return_index=True, return_inverse=True)
        found = np.empty(len(pairs), dtype=np.int64)
        for i in np.argsort(first).tolist():
            pair = int(pairs[i])
            if pair not in self._row_of_pair:
                row = self._row(self._queries.names[pair >> 32], self._docs.names[pair % 2**32])
                if isinstance(row, str):
                    raise ValueError(f"{place(int(first[i]))} {row}")
                self._row_of_pair[pair] = row
            found[i] = self._row_of_pair[pair]
        return found[inverse]

    def _compare_as_text(self) -> None:
        """Turn ids of the table into text if they or those of the log are text, and the others numbers."""
        # All batches have ids of one type, so that the first one tells how to compare.
        if {_kind(self._group_of), _kind(self._queries.names)} == {"text", "numbers"}:
            self._text_queries = True
            self._group_of = {_text(query): group for query, group in self._group_of.items()}
        if {_kind(name for _, name in self._row_of), _kind(self._docs.names)} == {"text", "numbers"}:
            self._text_docs = True
            self._row_of = {(group, _text(name)): row for (group, name), row in self._row_of.items()}

    def _row(self, query: Hashable, doc: Hashable) -> int | str:
        """Row of a document, or the rest of a sentence that tells why it is none."""
        group = self._group_of.get(_text(query) if self._text_queries else query, -1)
        if self.table.docid is not None:
            row = self._row_of.get((group, _text(doc) if self._text_docs else doc))
            if row is None:
                return f"shows document {doc!r} of query {query!r}, which documents does not have."
            return row
        n = len(self.table)
        text = _text(doc)
        if isinstance(doc, float) or not text.isdecimal() or int(text) >= n:
            return (
                f"has {doc!r} in column {self._column!r}, but documents has no docid, so that column "
                f"{self._column!r} must hold its rows, 0 to {n - 1}."
            )
        row = int(text)
        if self._groups[row] != group:
            other = self.table.qid[row : row + 1].tolist()[0]
            return f"shows row {row} of documents for query {query!r}, but this row is of query {other!r}."
        return row


def _kind(ids: Iterable[Hashable]) -> str:
    kinds = set(map(type, ids))
    if all(issubclass(kind, str) for kind in kinds):
        return "text"
    return "numbers" if all(issubclass(kind, int | float | np.number) for kind in kinds) else "others"


def _text(name: Any) -> str:
    """Text of an id; 2.0 is "2"."""
    return str(int(name)) if isinstance(name, float | np.floating) and float(name).is_integer() else str(name)
