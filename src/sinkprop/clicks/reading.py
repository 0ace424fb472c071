"""Readers of click logs: data frames, Parquet and CSV files, one batch of rows after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.log_columns import ID_ROLES, LogColumns
from sinkprop.clicks.log_files import LogPart, file_and_row, log_parts
from sinkprop.clicks.log_ids import Ids, TableRows, id_array, refuse_other_documents
from sinkprop.clicks.log_sessions import Sessions
from sinkprop.common.arguments import one_of
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.categories import CategoryColumn, CategoryFinder
from sinkprop.data.frames import feature_matrix, frame_columns, number_column
from sinkprop.data.queries import Queries

__all__ = ["NO_FEATURES", "read_clicks"]

NO_FEATURES = "(no features)"  # the name of the only column, of zeros, of documents without features
_NUMBERS = {  # each with advice for a column that does not hold numbers
    "position": "Expected whole numbers, 1 for the top.",
    "clicked": "Expected numbers 0 and 1, or booleans.",
    "propensity": "Expected probabilities.",
    "value": "Expected numbers that are not below 0.",
}
_FEATURE = "Leave it out with features=[...], or encode it as numbers."

_Place: TypeAlias = Callable[[int], str]
_Features: TypeAlias = tuple[NDArray[Any], dict[str, tuple[Any, ...]], tuple[str, ...]]


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

    Files are read batch by batch, and of a Parquet or CSV file only the columns that are used. Memory holds
    the features of each document once, and about 100 bytes per row: 10 million rows, with session ids and
    without features, took 1 GB. One feature of 200 of a Parquet file with 1 million rows, 2 GB, took 0.3 GB.

    Parameters
    ----------
    source : DataFrame, path or sequence of paths
        A pandas or polars DataFrame or a pyarrow Table; or Parquet (.parquet) or CSV (.csv, .csv.gz) files,
        a folder of Parquet files, or a pattern such as "clicks/*.parquet". Files need pyarrow, which the
        extra "parquet" installs. All files need the columns of the first one that has rows, in any order.
        The ids in CSV files (of queries, documents, sessions and policies) are read as text: "1" and "01" are
        different.
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
        Feature columns, in order. The default is all other columns, with a warning if some have names of
        other things, such as user_id or timestamp; no file may then have more columns than the first. The
        index of a pandas frame is not a feature, even if a file keeps it as a column without a name. Of
        several impressions of a document, the first gives its features.
    documents : Queries, optional
        A table of the documents and their features, such as `load_frame` makes, instead of feature columns.
        `query` and `doc` are then ids in the table, or `doc` is a row of the table, counted from 0, if it has
        no `docid`. Ids that are text on one side and numbers on the other are compared as text.
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
        2, ..., n, if a session shows several queries or a document twice, if files have different columns, or
        if `documents` does not have a document or has it twice. The message names the row, counted from 0
        over all files, and the file.

    Examples
    --------
    >>> import pandas
    >>> rows = [("a", "x", 1, 0, 0.3), ("a", "y", 2, 1, 0.9), ("a", "y", 1, 1, 0.9), ("a", "x", 2, 0, 0.3)]
    >>> log = read_clicks(pandas.DataFrame(rows, columns=["query", "doc", "position", "clicked", "bm25"]))
    >>> log
    <ClickLog: 2 sessions of 1 query, 4 impressions of 2 documents, 2 clicks, positions 1 to 2>
    >>> log.documents.docid[log.rows].tolist(), log.documents.feature_names
    (['x', 'y', 'y', 'x'], ('bm25',))
    """
    one_of("without_clicks", without_clicks, ("keep", "drop"))
    named = {"query": query, "doc": doc, "position": position, "clicked": clicked, "session": session}
    named |= {"propensity": propensity, "policy": policy, "value": value}
    if documents is not None:
        refuse_other_documents(documents, query, doc, features)
    reader = _Reader(named, features, documents)
    for part in log_parts(source):
        if not part.empty:
            reader.read(part)
    log = reader.log()
    if without_clicks == "drop":
        with_click = np.logical_or.reduceat(log.clicked, log.offsets[:-1])
        if not with_click.any():
            raise ValueError("no session has a click, so that without_clicks='drop' leaves none.")
        log = log.select(with_click)
    return log


class _Reader:
    """The columns of a log, read batch by batch.

    named      {role: column or None}, the arguments of `read_clicks`.
    features   Its argument `features`.
    documents  Its argument `documents`.
    """

    def __init__(
        self, named: dict[str, str | None], features: Sequence[str] | None, documents: Queries | None
    ) -> None:
        self._named, self._chosen, self._documents = named, features, documents
        self._columns: LogColumns | None = None
        self._ids = {role: Ids() for role in ID_ROLES}
        self._table: TableRows | None = None
        if documents is not None:
            self._table = TableRows(documents, self._ids["query"], self._ids["doc"], str(named["doc"]))
        self._pairs = Ids()  # of the numbers of a query and a document
        self._n_rows = self._n_documents = 0
        self._files: list[tuple[int, str]] = []  # (number of its first row, name) of each file
        self._batches: dict[str, list[NDArray[Any]]] = {}
        self._features: list[_Features] = []  # of new documents

    def read(self, part: LogPart) -> None:
        """Read a part that has rows."""
        if self._columns is None:
            own = self._documents is None
            self._columns = LogColumns.of(part, self._named, self._chosen, own_features=own)
        else:
            self._columns.check(part)
        of_role, start = self._columns.of_role, self._n_rows
        self._files.append((start, part.name))
        numbers = dict.fromkeys(self._columns.features, _FEATURE)
        numbers |= {of_role[role]: advice for role, advice in _NUMBERS.items() if role in of_role}
        ids = {of_role[role] for role in ID_ROLES if role in of_role}
        for frame in part.batches(numbers, ids, start):
            if not len(frame):
                continue
            try:
                self._read(frame, self._columns)
            except ValueError as error:
                raise ValueError(f"{self._where(start)}{error}") from None
            self._n_rows += len(frame)

    def _where(self, *rows: Any) -> str:
        """Names of the files of some rows, as the beginning of a message."""
        files = [self._files[bisect_right(self._files, row, key=lambda file: file[0]) - 1] for row in rows]
        named = dict.fromkeys(file_and_row(name, first) for first, name in files if name)
        return " and ".join(named) + ": " * bool(named)

    def _read(self, frame: Any, columns: LogColumns) -> None:
        first, of_role = self._n_rows, columns.of_role
        _, column = frame_columns(frame)

        def place(row: int) -> str:
            return f"row {first + row}"

        found: dict[str, NDArray[Any]] = {}
        for role, name in of_role.items():
            if role in ID_ROLES:
                found[role] = self._ids[role].read(frame, name, place)
            else:
                values = number_column(column, name, _NUMBERS[role], place=place)
                found[role] = _CHECKED[role](values, name, place)
        q, d = found["query"], found.pop("doc", None)
        if self._table is not None:
            assert d is not None
            found["row"] = self._table.rows(q, d, place)
        else:
            found["row"], new = self._rows(q, d)
            self._add_documents(frame, columns, new, place)
            self._add("query of document", q[new].astype(np.int32))
            if d is not None:
                self._add("id of document", d[new].astype(np.int32))
        for role, values in found.items():
            narrow = np.int32 if role in (*ID_ROLES, "row") and self._n_documents < 2**31 else values.dtype
            self._add(role, values.astype(narrow, copy=False))

    def _add(self, name: str, values: NDArray[Any]) -> None:
        self._batches.setdefault(name, []).append(values)

    def _rows(self, q: Integers, d: Integers | None) -> tuple[Integers, Integers]:
        """Row of the document of each row of a batch, and the rows of the batch that show a new document."""
        before = self._n_documents
        if d is None:
            self._n_documents += len(q)
            return np.arange(before, self._n_documents), np.arange(len(q))
        row = self._pairs.codes(q * np.int64(2**32) + d)
        self._n_documents = len(self._pairs.names)
        fresh = np.flatnonzero(row >= before)
        return row, fresh[np.unique(row[fresh], return_index=True)[1]]

    def _add_documents(self, frame: Any, columns: LogColumns, new: Integers, place: _Place) -> None:
        """Keep the features of new documents, which rows `new` of a batch show."""
        if len(new) and columns.features:
            part = _taken(frame, columns.features, new)
            self._features.append(
                feature_matrix(
                    part,
                    columns.features,
                    allow_nan=True,
                    advice=_FEATURE,
                    place=lambda i: place(int(new[i])),
                )
            )

    def log(self) -> ClickLog:
        """Assemble the log."""
        if self._columns is None:
            raise ValueError("the log has no rows; expected one row per document shown.")
        columns = {name: _joined(parts) for name, parts in self._batches.items()}
        queries, docs = columns.pop("query of document", None), columns.pop("id of document", None)
        documents = self._documents
        if documents is None:
            assert queries is not None
            documents = self._own_documents(self._columns, queries, docs)
        session, query = columns.pop("session", None), columns.pop("query")
        sessions = Sessions.of(session, query, columns["position"], self._where)
        del session, query
        for name, values in columns.items():
            columns[name] = sessions.sorted(values)
        sessions.check_positions(columns.pop("position"), columns["clicked"])
        policy = columns.get("policy")
        if policy is not None:
            sessions.check_policies(policy)
            policy = policy[sessions.offsets[:-1]]
        try:
            return ClickLog(
                documents,
                columns["row"],
                columns["clicked"],
                sessions.offsets,
                propensity=columns.get("propensity"),
                policy=policy,
                policies=tuple(self._ids["policy"].names),
                value=columns.get("value"),
            )
        except ValueError as error:
            names = self._ids["session"].names or range(len(sessions))
            twice = sessions.repeated(columns["row"], documents, names)
            raise ValueError(twice or str(error)) from None

    def _own_documents(self, columns: LogColumns, queries: Integers, docs: Integers | None) -> Queries:
        """The documents of the log, given the numbers of their queries and of their ids."""
        names = tuple(map(str, columns.features)) or (NO_FEATURES,)
        categories, ordered = _recoded(self._features, names)
        parts = [X for X, _, _ in self._features]
        self._features.clear()
        X = _joined(parts) if parts else np.zeros((len(queries), 1), dtype=np.float32)
        return Queries(
            X,
            np.zeros(len(X)),
            id_array(self._ids["query"].names)[queries],
            None if docs is None else id_array(self._ids["doc"].names)[docs],
            names,
            allow_nan=bool(np.isnan(X).any()),
            categories=categories,
            ordered=ordered,
        )


def _recoded(
    parts: Sequence[_Features], names: Sequence[str]
) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """Replace the codes of categories in all parts by codes of the same categories, which are returned."""
    columns = [j for j, name in enumerate(names) if parts and name in parts[0][1]]
    finder = CategoryFinder([names[j] for j in columns])
    for _, own, ordered in parts:
        for j in columns:
            no_rows = np.empty(0, dtype=np.int64)
            finder.add(names[j], CategoryColumn(list(own[names[j]]), no_rows, names[j] in ordered))
    categories, ordered = finder.found()
    for X, own, _ in parts:
        for j in columns:
            codes = np.where(np.isnan(X[:, j]), -1, X[:, j]).astype(np.int64)
            X[:, j] = CategoryColumn(list(own[names[j]]), codes, False).coded(categories[names[j]])[0]
    return categories, ordered


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays, and let go of each of them."""
    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), np.result_type(*parts))
    end = 0
    while parts:
        part = parts.pop(0)
        whole[end : end + len(part)] = part
        end += len(part)
    return whole


def _positions(values: NDArray[Any], name: str, place: _Place) -> Integers:
    wrong = (values != np.floor(values)) | (values < 1) | (values > 2**30)
    if wrong.any():
        row = int(np.argmax(wrong))
        hint = " Positions count from 1: add 1 to them." if values[row] == 0 else ""
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; expected a position, 1 or more.{hint}"
        )
    return values.astype(np.int32)


def _clicked(values: NDArray[Any], name: str, place: _Place) -> Mask:
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; expected 0 or 1, whether the document was "
            "clicked. Name a column of dwell times or order values with value=."
        )
    return values.astype(bool)


def _propensities(values: NDArray[Any], name: str, place: _Place) -> Floats:
    wrong = ~((values > 0) & (values <= 1 + 1e-9))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; propensity must be above 0 and at most 1. "
            "It is the probability with which the ranker that made the list shows this document at this "
            "position, which cannot be 0 for a document that was shown."
        )
    return values.astype(np.float64)


def _values(values: NDArray[Any], name: str, place: _Place) -> Floats:
    wrong = values < 0
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"column {name!r} holds {values[row]} in {place(row)}; value must not be below 0.")
    return values.astype(np.float64)


_CHECKED: dict[str, Callable[[NDArray[Any], str, _Place], NDArray[Any]]] = {
    "position": _positions,
    "clicked": _clicked,
    "propensity": _propensities,
    "value": _values,
}


def _taken(frame: Any, columns: list[Any], rows: Integers) -> Any:
    """Some columns and rows of a frame, as a frame of the same kind."""
    if hasattr(frame, "iloc"):
        return frame[columns].iloc[rows]
    chosen = frame.select(columns)
    if hasattr(frame, "get_column"):
        return chosen[rows]
    for i, kind in enumerate(chosen.schema.types):
        if str(kind) == "string_view":  # of which Arrow takes no rows
            chosen = chosen.set_column(i, chosen.column_names[i], chosen.column(i).cast("string"))
    return chosen.take(rows)
