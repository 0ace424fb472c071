"""Readers of click logs: data frames, Parquet and CSV files, one batch of rows after another."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import escape, glob, has_magic
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkprop.clicks.log import ClickLog
from sinkprop.common.arguments import one_of
from sinkprop.common.types import Integers, Mask
from sinkprop.data.frames import frame_columns, known_column, load_frame, number_column
from sinkprop.data.queries import Queries

__all__ = ["NO_FEATURES", "read_clicks"]

NO_FEATURES = "(no features)"  # the name of the only column, of zeros, of documents without features
_BATCH = 1 << 20  # rows
_OPTIONAL = ("session", "propensity", "policy", "value")


def read_clicks(
    source: Any,
    *,
    query: str = "query",
    doc: str | None = "doc",
    position: str = "position",
    clicked: str = "clicked",
    session: str | None = None,
    propensity: str | None = None,
    policy: str | None = None,
    value: str | None = None,
    features: Sequence[str] | None = None,
    documents: Queries | None = None,
    without_clicks: Literal["keep", "drop"] = "keep",
) -> ClickLog:
    """Read a click log, one row per document shown.

    Files are read batch by batch: memory holds a few bytes per row, and the features of each document once.

    Parameters
    ----------
    source : DataFrame, path or sequence of paths
        A pandas or polars DataFrame or a pyarrow Table; or Parquet (.parquet) or CSV (.csv, .csv.gz) files,
        a folder of Parquet files, or a pattern such as "clicks/*.parquet". Files need pyarrow, which the
        extra "parquet" installs.
    query : str, default "query"
        Column of the query ids.
    doc : str or None, default "doc"
        Column of the document ids. Rows with the same query and the same document are impressions of one
        document. With None, each row is a document of its own.
    position : str, default "position"
        Column of the positions: whole numbers, 1 for the top.
    clicked : str, default "clicked"
        Column that tells whether the document was clicked: 0 or 1, or False or True.
    session : str, optional
        Column of session ids, one per ranking shown. By default the column "session", if there is one. If
        there is none, a session begins where the query changes or the position does not increase.
    propensity : str, optional
        Column of the probability with which the ranker shows the document at this position. By default the
        column "propensity", if there is one.
    policy : str, optional
        Column of the name of the ranker that made the list. By default the column "policy", if there is one.
    value : str, optional
        Column of the value of an impression, such as dwell time. By default the column "value", if there is
        one.
    features : sequence of str, optional
        Feature columns, in order. The default is all other columns. Of several impressions of a document, the
        first gives its features.
    documents : Queries, optional
        A table of the documents and their features, instead of feature columns. `query` and `doc` are then
        ids in the table, or `doc` is a row of the table, counted from 0, if it has no `docid`.
    without_clicks : {"keep", "drop"}, default "keep"
        Whether to keep sessions without a click. Position-based models need them. Dropping them raises all
        click rates.

    Returns
    -------
    ClickLog
        The log.

    Raises
    ------
    ValueError
        If a column is missing or has a value that it must not have, if the positions of a session are not 1,
        2, ..., n, or if a session shows several queries. The message names the row, counted from 0.

    Examples
    --------
    >>> import pandas
    >>> rows = [("a", "x", 1, 0, 0.3), ("a", "y", 2, 1, 0.9), ("a", "y", 1, 1, 0.9), ("a", "x", 2, 0, 0.3)]
    >>> log = read_clicks(pandas.DataFrame(rows, columns=["query", "doc", "position", "clicked", "bm25"]))
    >>> log
    <ClickLog: 2 sessions of 1 queries, 4 impressions of 2 documents, 2 clicks, positions 1 to 2>
    >>> log.documents.docid[log.rows].tolist(), log.documents.feature_names
    (['x', 'y', 'y', 'x'], ('bm25',))
    """
    one_of("without_clicks", without_clicks, ("keep", "drop"))
    given = {"session": session, "propensity": propensity, "policy": policy, "value": value}
    reader = _Reader(query, doc, position, clicked, given, features, documents)
    for first, frame in _frames(source):
        reader.read(frame, first)
    log = reader.log()
    if without_clicks == "drop":
        with_click = np.logical_or.reduceat(log.clicked, log.offsets[:-1])
        if not with_click.any():
            raise ValueError("no session has a click, so that without_clicks='drop' leaves none.")
        log = log.select(with_click)
    return log


@dataclass
class _Ids:
    """Whole numbers 0, 1, ... for ids, in order of first appearance."""

    numbers: dict[Hashable, int] = field(default_factory=dict)

    def codes(self, ids: NDArray[Any]) -> Integers:
        numbers = self.numbers
        if ids.dtype.kind not in "iub":
            found = [numbers.setdefault(i, len(numbers)) for i in ids.tolist()]
            return np.array(found, dtype=np.int64)
        distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        of_distinct = np.empty(len(distinct), dtype=np.int64)
        for place in np.argsort(first, kind="stable").tolist():
            of_distinct[place] = numbers.setdefault(distinct[place].item(), len(numbers))
        return of_distinct[inverse]


@dataclass
class _Reader:
    """The columns of a log, read batch by batch."""

    query: str
    doc: str | None
    position: str
    clicked: str
    given: dict[str, str | None]
    features: Sequence[str] | None
    documents: Queries | None
    queries: _Ids = field(default_factory=_Ids)
    docs: _Ids = field(default_factory=_Ids)
    rows_of: _Ids = field(default_factory=_Ids)
    sessions: _Ids = field(default_factory=_Ids)
    policies: _Ids = field(default_factory=_Ids)
    tables: list[Queries] = field(default_factory=list)
    pairs: list[tuple[Integers, Integers]] = field(default_factory=list)
    batches: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    columns: dict[str, str] | None = None  # of the optional columns that the log has

    def read(self, frame: Any, first: int) -> None:
        """Read a batch whose first row has the number `first`."""
        names, column = frame_columns(frame)
        if self.columns is None:
            self.columns = self._optional(names)
        self._require(names)

        def place(row: int) -> str:
            return f"row {first + row}"

        def number(name: str) -> NDArray[Any]:
            return number_column(column, name, "It must hold numbers.", place=place)

        def ids(name: str) -> NDArray[Any]:
            return known_column(column, name, place=place)

        n = len(frame)
        if n == 0:
            return
        q = self.queries.codes(ids(self.query))
        row, new = self._rows(q, None if self.doc is None else ids(self.doc), n, place)
        self._add("row", row.astype(np.int32 if len(self.rows_of.numbers) < 2**31 else np.int64))
        self._add("query", q.astype(np.int32))
        self._add("position", _positions(number(self.position), self.position, place))
        self._add("clicked", _clicked(number(self.clicked), self.clicked, place))
        for kind, name in self.columns.items():
            if kind == "session":
                self._add(kind, self.sessions.codes(ids(name)).astype(np.int32))
            elif kind == "policy":
                self._add(kind, self.policies.codes(ids(name)).astype(np.int32))
            else:
                self._add(kind, number(name).astype(np.float64))
        if self.documents is None and len(new):
            self._add_documents(frame, names, new, q[new], first)

    def _add(self, name: str, values: NDArray[Any]) -> None:
        self.batches.setdefault(name, []).append(values)

    def _optional(self, names: Sequence[Any]) -> dict[str, str]:
        columns = {}
        for kind in _OPTIONAL:
            name = self.given[kind]
            if name is not None:
                columns[kind] = name
            elif kind in names and kind not in (self.features or ()):
                columns[kind] = kind
        return columns

    def _roles(self) -> dict[str, str]:
        roles = {"query": self.query, "position": self.position, "clicked": self.clicked}
        if self.doc is not None:
            roles["doc"] = self.doc
        return roles | (self.columns or {})

    def _require(self, names: Sequence[Any]) -> None:
        for role, name in self._roles().items():
            if name not in names:
                hint = " With doc=None, each row is a document of its own." if role == "doc" else ""
                shown = ", ".join(map(repr, names[:20]))
                raise ValueError(
                    f"{role}={name!r} is not a column of the log, which has {shown}. Name the column with "
                    f"{role}=.{hint}"
                )

    def _rows(self, q: Integers, doc: NDArray[Any] | None, n: int, place: Any) -> tuple[Integers, Integers]:
        """Row of the document of each row of a batch, and the rows of the batch that show a new document."""
        if self.documents is not None:
            if doc is None:
                raise ValueError("doc must name a column if a table of documents is given.")
            return self._known_rows(q, doc, place), np.empty(0, dtype=np.int64)
        before = len(self.rows_of.numbers)
        if doc is None:
            self.rows_of.numbers.update((i, i) for i in range(before, before + n))
            return np.arange(before, before + n), np.arange(n)
        d = self.docs.codes(doc)
        row = self.rows_of.codes(q * np.int64(2**32) + d)
        fresh = np.flatnonzero(row >= before)
        _, first = np.unique(row[fresh], return_index=True)
        return row, fresh[first]

    def _known_rows(self, q: Integers, doc: NDArray[Any], place: Any) -> Integers:
        """Rows in the table of documents that was given."""
        table = self.documents
        assert table is not None
        if table.docid is None:
            rows = np.asarray(doc)
            if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(table):
                raise ValueError(
                    f"documents has no docid, so that column {self.doc!r} must hold its rows, 0 to "
                    f"{len(table) - 1}."
                )
            return rows.astype(np.int64)
        if not self.rows_of.numbers:
            known = zip(table.qid.tolist(), table.docid.tolist(), strict=True)
            self.rows_of.numbers.update({pair: row for row, pair in enumerate(known)})
        names = list(self.queries.numbers)
        found = np.empty(len(doc), dtype=np.int64)
        for i, (query, name) in enumerate(zip(q.tolist(), doc.tolist(), strict=True)):
            row = self.rows_of.numbers.get((names[query], name))
            if row is None:
                raise ValueError(
                    f"{place(i)} shows document {name!r} of query {names[query]!r}, which documents does not "
                    "have."
                )
            found[i] = row
        return found

    def _add_documents(self, frame: Any, names: list[Any], new: Integers, q: Integers, first: int) -> None:
        """Keep the features of new documents, which rows `new` of a batch show for the queries `q`."""
        taken = set(self._roles().values())
        chosen = list(self.features) if self.features is not None else [c for c in names if c not in taken]
        part = _taken(frame, new)
        _, column = frame_columns(part)
        docid = None if self.doc is None else known_column(column, self.doc)
        if chosen:
            try:
                table = load_frame(part, qid=self.query, label=None, features=chosen, allow_nan=True)
            except ValueError as error:
                raise ValueError(
                    f"{error} Rows are counted among the {len(new)} documents that rows {first} and later "
                    "show first."
                ) from None
        else:
            zeros = np.zeros((len(new), 1), dtype=np.float32)
            table = Queries(zeros, np.zeros(len(new)), q, feature_names=(NO_FEATURES,))
        if self.tables and table.categories != self.tables[0].categories:
            raise ValueError("categorical features need a log in one data frame; got files read in batches.")
        self.tables.append(table)
        self.pairs.append((q, np.arange(len(new)) if docid is None else docid))

    def log(self) -> ClickLog:
        """Assemble the log."""
        if "row" not in self.batches:
            raise ValueError("the log has no rows; expected one row per document shown.")
        columns = {name: _joined(parts) for name, parts in self.batches.items()}
        self.batches.clear()
        documents = self._table() if self.documents is None else self.documents
        query, position = columns.pop("query"), columns.pop("position")
        order, offsets = _sessions(columns.get("session"), query, position)
        columns.pop("session", None)
        if order is not None:
            query, position = query[order], position[order]
            columns = {name: values[order] for name, values in columns.items()}
        _check_positions(position, offsets, columns["clicked"], order)
        policy = columns.get("policy")
        if policy is not None:
            _check_policies(policy, offsets, order)
            policy = policy[offsets[:-1]]
        return ClickLog(
            documents,
            columns["row"],
            columns["clicked"],
            offsets,
            propensity=columns.get("propensity"),
            policy=policy,
            policies=tuple(self.policies.numbers),
            value=columns.get("value"),
        )

    def _table(self) -> Queries:
        ids = np.empty(len(self.queries.numbers), dtype=object)
        ids[:] = list(self.queries.numbers)
        if all(isinstance(i, int) for i in self.queries.numbers):
            ids = np.array(list(self.queries.numbers))
        first = self.tables[0]
        X = np.concatenate([table.X for table in self.tables])
        docid = None if self.doc is None else np.concatenate([docid for _, docid in self.pairs])
        return Queries(
            X,
            np.zeros(len(X)),
            ids[np.concatenate([q for q, _ in self.pairs])],
            docid,
            first.feature_names,
            allow_nan=bool(np.isnan(X).any()),
            categories=first.categories,
            ordered=first.ordered,
        )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays, and let go of each of them."""
    whole = np.empty(sum(map(len, parts)), np.result_type(*parts))
    end = 0
    while parts:
        part = parts.pop(0)
        whole[end : end + len(part)] = part
        end += len(part)
    return whole


def _positions(values: NDArray[Any], name: str, place: Any) -> Integers:
    wrong = (values != np.floor(values)) | (values < 1) | (values > 2**30)
    if wrong.any():
        row = int(np.argmax(wrong))
        hint = " Positions count from 1: add 1 to them." if values[row] == 0 else ""
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; expected a position, 1 or more.{hint}"
        )
    return values.astype(np.int32)


def _clicked(values: NDArray[Any], name: str, place: Any) -> Mask:
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; expected 0 or 1, whether the document was "
            "clicked. Name a column of dwell times or order values with value=."
        )
    return values.astype(bool)


def _sessions(
    session: Integers | None, query: Integers, position: Integers
) -> tuple[Integers | None, Integers]:
    """Order of the rows by session and position, None if they are ordered, and the sessions' offsets."""
    n = len(query)
    if session is None:
        begins = np.r_[True, (query[1:] != query[:-1]) | (position[1:] <= position[:-1])]
        return None, np.r_[np.flatnonzero(begins), n]
    key = session.astype(np.int64) * (int(position.max()) + 1) + position
    order = None
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key, kind="stable")
        session, query = session[order], query[order]
    begins = np.r_[True, session[1:] != session[:-1]]
    changed = ~begins[1:] & (query[1:] != query[:-1])
    if changed.any():
        rows = np.argmax(changed) + np.arange(2)
        first, second = rows if order is None else order[rows]
        raise ValueError(
            f"rows {first} and {second} have the same session but different queries; a session is one "
            "ranking for one query. Use the id of the request rather than that of the visit."
        )
    return order, np.r_[np.flatnonzero(begins), n]


def _check_positions(position: Integers, offsets: Integers, clicked: Mask, order: Integers | None) -> None:
    """Raise a ValueError unless the positions of each session are 1, 2, ..., n."""
    expected = np.arange(1, len(position) + 1) - np.repeat(offsets[:-1], np.diff(offsets))
    wrong = position != expected
    if not wrong.any():
        return
    i = int(np.argmax(wrong))
    row = i if order is None else int(order[i])
    if i and position[i] == position[i - 1] and expected[i] > 1:
        other = i - 1 if order is None else int(order[i - 1])
        raise ValueError(
            f"rows {other} and {row} are both at position {position[i]} of one session. If they belong to "
            "two rankings, name a column that tells them apart with session=."
        )
    missing = int(expected[i])
    what = "has a click at" if clicked[i] else "shows"
    raise ValueError(
        f"row {row} {what} position {position[i]}, but its session does not show position {missing}. A log "
        "needs every document that was shown down to the last, whether it was clicked or not; if rows of a "
        "session are not consecutive, name the column of sessions with session=."
    )


def _check_policies(policy: Integers, offsets: Integers, order: Integers | None) -> None:
    changed = policy[1:] != policy[:-1]
    changed[offsets[1:-1] - 1] = False
    if changed.any():
        rows = np.argmax(changed) + np.arange(2)
        first, second = rows if order is None else order[rows]
        raise ValueError(f"rows {first} and {second} have the same session but different policies.")


def _taken(frame: Any, rows: Integers) -> Any:
    """Rows of a frame, as a frame of the same kind."""
    if hasattr(frame, "iloc"):
        return frame.iloc[rows]
    return frame[rows] if hasattr(frame, "get_column") else frame.take(rows)


def _frames(source: Any) -> Iterator[tuple[int, Any]]:
    """Yield (number of its first row, frame) for each batch of rows."""
    if not isinstance(source, str | os.PathLike | list | tuple):
        yield 0, source
        return
    first = 0
    for path in _paths(source):
        for frame in _batches(path):
            yield first, frame
            first += len(frame)


def _paths(source: Any) -> list[str]:
    """Files that a path, a folder, a pattern or a sequence of these names."""
    if isinstance(source, list | tuple):
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


def glob_escaped(name: str) -> str:
    """The name of a folder as a pattern that matches only it."""
    from glob import escape

    return escape(name)


def _batches(path: str) -> Iterator[Any]:
    """Yield the rows of a file as Arrow tables."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError('read_clicks needs pyarrow for files: pip install "sinkprop[parquet]"') from error
    with open(path, "rb"):  # a path that cannot be opened raises Python's usual error
        pass
    try:
        if path.lower().endswith((".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".tsv", ".tsv.gz")):
            tabs = ".tsv" in path.lower()
            parse = pyarrow.csv.ParseOptions(delimiter="\t" if tabs else ",")
            options = pyarrow.csv.ReadOptions(block_size=1 << 26)
            with pyarrow.csv.open_csv(path, parse_options=parse, read_options=options) as file:
                for batch in file:
                    yield pa.Table.from_batches([batch])
        else:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH):
                    yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a Parquet or CSV file that can be read: {error}") from error
