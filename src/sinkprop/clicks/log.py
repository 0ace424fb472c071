"""The type `ClickLog`: which documents were shown at which positions, and which of them were clicked."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups, Queries, offsets_of

__all__ = ["ClickCounts", "ClickLog"]


@dataclass(frozen=True, eq=False)
class ClickCounts:
    """Impressions and clicks of each document at each position at which it was shown.

    Attributes
    ----------
    rows : array of int of shape (C,)
        Row of the document in the table of documents.
    positions : array of int of shape (C,)
        Position, 1 for the top.
    impressions : array of shape (C,)
        Number of sessions that showed this document at this position, or their total weight.
    clicks : array of shape (C,)
        Number of these sessions in which it was clicked, or their total weight.
    """

    rows: Integers
    positions: Integers
    impressions: Floats
    clicks: Floats

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False, repr=False)
class ClickLog:
    """Sessions: for each, the ranking that was shown for a query, and the documents that were clicked.

    An impression is a document shown at a position. The impressions of a session are consecutive, and their
    positions are 1, 2, and so on. `read_clicks` makes a log of a data frame or of files, and
    `simulate_clicks` draws one.

    Parameters
    ----------
    documents : Queries
        One row per distinct document of a query. Its labels are not used.
    rows : array of int of shape (M,)
        Row in `documents` of each impression.
    clicked : array of bool of shape (M,)
        Whether the document was clicked.
    offsets : array of int of shape (S + 1,)
        Session s has the impressions offsets[s], ..., offsets[s + 1] - 1, from the top position down.
    propensity : array of shape (M,), optional
        Probability, above 0 and at most 1, with which the ranker that made the list shows this document at
        this position.
    policy : array of int of shape (S,), optional
        Index in `policies` of the ranker that made the list of each session.
    policies : tuple, optional
        Names of the rankers.
    value : array of shape (M,), optional
        Value of each impression, such as the time spent on the document or the amount of an order; 0 or more.

    Examples
    --------
    >>> documents = Queries([[0.2], [0.7], [0.1]], [0, 0, 0], qid=["a", "a", "b"])
    >>> log = ClickLog(documents, rows=[1, 0, 0, 1, 2], clicked=[1, 0, 1, 0, 0], offsets=[0, 2, 4, 5])
    >>> log
    <ClickLog: 3 sessions of 2 queries, 5 impressions of 3 documents, 2 clicks, positions 1 to 2>
    >>> log.positions
    array([1, 2, 1, 2, 1], dtype=int32)
    >>> log.counts.clicks
    array([1., 0., 1., 0., 0.])
    """

    documents: Queries
    rows: Integers
    clicked: Mask
    offsets: Integers
    propensity: Floats | None = None
    policy: Integers | None = None
    policies: tuple[Hashable, ...] = ()
    value: Floats | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        n = len(self.documents)
        rows = _whole("rows", self.rows)
        offsets = _whole("offsets", self.offsets).astype(np.int64, copy=False)
        m = len(rows)
        if m == 0:
            raise ValueError("the log has no impressions; expected one row per document shown.")
        if rows.min() < 0 or rows.max() >= n:
            raise ValueError(
                f"rows must be rows of documents, 0 to {n - 1}; got {rows.min()} to {rows.max()}."
            )
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != m or (np.diff(offsets) < 1).any():
            raise ValueError(
                f"offsets must increase from 0 to the number of impressions, {m}: the start of each session, "
                "and the end of the last."
            )
        put(self, "rows", rows.astype(np.int32, copy=False) if n < 2**31 else rows)
        put(self, "offsets", offsets)
        put(self, "clicked", _clicks(self.clicked, m))
        self._check_sessions()
        put(self, "propensity", _propensities(self.propensity, m))
        put(self, "value", _values(self.value, m))
        put(self, "policies", tuple(self.policies))
        if self.policy is not None:
            policy = _whole("policy", self.policy)
            if len(policy) != self.n_sessions or policy.min() < 0 or policy.max() >= len(self.policies):
                raise ValueError(
                    f"policy must have one index of policies for each of the {self.n_sessions} sessions; "
                    f"policies has {len(self.policies)} names."
                )
            put(self, "policy", policy.astype(np.int32, copy=False))

    def _check_sessions(self) -> None:
        """Raise a ValueError if a session has documents of two queries, or a document at two positions."""
        of_query = self.documents.groups.codes.astype(np.int32)[self.rows]
        changed = np.diff(of_query) != 0
        changed[self.offsets[1:-1] - 1] = False
        if changed.any():
            s = int(np.searchsorted(self.offsets, np.argmax(changed), side="right")) - 1
            raise ValueError(
                f"session {s} shows documents of several queries; expected one query per session."
            )
        twice = self._repeated()
        if twice is not None:
            s = int(np.searchsorted(self.offsets, twice, side="right")) - 1
            raise ValueError(
                f"session {s} shows the document in row {self.rows[twice]} of documents at two positions."
            )

    def _repeated(self) -> int | None:
        """Index of an impression whose document occurs in its session again; None if there is none."""
        # Sessions in blocks, because the keys take 8 bytes per impression.
        step = 1 << 20
        n = np.int64(len(self.documents))
        for first in range(0, self.n_sessions, step):
            start, end = self.offsets[first], self.offsets[min(first + step, self.n_sessions)]
            sizes = np.diff(self.offsets[first : first + step + 1])
            keys = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes) * n + self.rows[start:end]
            order = np.argsort(keys, kind="stable")
            same = keys[order[1:]] == keys[order[:-1]]
            if same.any():
                return int(start + order[int(np.argmax(same))])
        return None

    def __repr__(self) -> str:
        sessions = _number_of(self.n_sessions, "session")
        queries = _number_of(self.documents.n_queries, "query", "queries")
        impressions = _number_of(len(self), "impression")
        documents = _number_of(len(self.documents), "document")
        clicks = _number_of(self.n_clicks, "click")
        positions = "position 1" if self.longest == 1 else f"positions 1 to {self.longest}"
        return f"<ClickLog: {sessions} of {queries}, {impressions} of {documents}, {clicks}, {positions}>"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_sessions(self) -> int:
        """Number of sessions, S."""
        return len(self.offsets) - 1

    @cached_property
    def n_clicks(self) -> int:
        """Number of impressions that were clicked."""
        return int(np.count_nonzero(self.clicked))

    @cached_property
    def longest(self) -> int:
        """Number of positions of the longest session."""
        return int(np.diff(self.offsets).max())

    @property
    def sizes(self) -> Integers:
        """Number of positions of each session, (S,)."""
        return np.diff(self.offsets)

    @cached_property
    def positions(self) -> Integers:
        """Position of each impression, (M,), 1 for the top."""
        starts = np.repeat(self.offsets[:-1], self.sizes)
        return (np.arange(1, len(self) + 1) - starts).astype(np.int32)

    @property
    def sessions(self) -> Integers:
        """Index of the session of each impression, (M,)."""
        return np.repeat(np.arange(self.n_sessions, dtype=np.int32), self.sizes)

    @cached_property
    def queries(self) -> Integers:
        """Index of the query of each session, (S,), in the order of `documents.groups.queries`."""
        codes: Integers = self.documents.groups.codes[self.rows[self.offsets[:-1]]]
        return codes

    @property
    def groups(self) -> Groups:
        """The impressions of each session, as the rows of a query."""
        return Groups.of_sizes(self.sizes)

    @cached_property
    def _cells(self) -> tuple[Integers, Integers]:
        """(cell of each impression, key of each cell): a cell is a document at a position."""
        K = self.longest
        keys = self.rows.astype(np.int64) * K + (self.positions - 1)
        size = len(self.documents) * K
        if size <= max(4 * len(self), 1 << 20):  # a table of all keys is smaller than sorting them
            present = np.zeros(size, dtype=bool)
            present[keys] = True
            number = np.cumsum(present, dtype=np.int32) - 1
            return number[keys], np.flatnonzero(present)
        found, cells = np.unique(keys, return_inverse=True)
        return cells.astype(np.int32), found

    def counted(self, weight: Floats | None = None) -> ClickCounts:
        """Impressions and clicks of each document at each position, with sessions weighted.

        Parameters
        ----------
        weight : array of shape (S,), optional
            Weight of each session, such as the number of times that a bootstrap sample has it. By default 1.

        Returns
        -------
        ClickCounts
            The totals, in order of rows and positions. A cell whose sessions all have weight 0 is kept.
        """
        cells, keys = self._cells
        of_impression = None if weight is None else np.repeat(np.asarray(weight, np.float64), self.sizes)
        impressions = np.bincount(cells, of_impression, len(keys)).astype(np.float64)
        clicked = self.clicked if of_impression is None else self.clicked * of_impression
        clicks: Floats = np.bincount(cells, clicked, len(keys)).astype(np.float64)
        rows, positions = np.divmod(keys, self.longest)
        return ClickCounts(rows, positions + 1, impressions, clicks)

    @cached_property
    def counts(self) -> ClickCounts:
        """Impressions and clicks of each document at each position."""
        return self.counted()

    def select(self, sessions: NDArray[Any]) -> ClickLog:
        """Select sessions.

        Parameters
        ----------
        sessions : array of int or array of bool of shape (S,)
            Indices of sessions, from 0 to S - 1, in the order in which they are wanted, or a mask of
            sessions.

        Returns
        -------
        ClickLog
            The sessions, with the same table of documents.
        """
        chosen = _chosen(sessions, self.n_sessions)
        offsets = offsets_of(self.sizes[chosen])
        within = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], np.diff(offsets))
        log: ClickLog = object.__new__(ClickLog)
        taken = {"rows": self.rows[within], "clicked": self.clicked[within], "offsets": offsets}
        taken["propensity"] = None if self.propensity is None else self.propensity[within]
        taken["value"] = None if self.value is None else self.value[within]
        taken["policy"] = None if self.policy is None else self.policy[chosen]
        for name, of_log in {"documents": self.documents, "policies": self.policies, **taken}.items():
            object.__setattr__(log, name, of_log)
        return log

    def first(self, k: int) -> ClickLog:
        """Keep only the first k positions of each session.

        Parameters
        ----------
        k : int
            Number of positions, at least 1.

        Returns
        -------
        ClickLog
            The sessions with at most k impressions each.
        """
        k = whole("k", k, 1)
        kept = self.positions <= k
        return replace(
            self,
            rows=self.rows[kept],
            clicked=self.clicked[kept],
            offsets=offsets_of(np.minimum(self.sizes, k)),
            propensity=None if self.propensity is None else self.propensity[kept],
            value=None if self.value is None else self.value[kept],
        )

    def satisfied(self, least: float) -> ClickLog:
        """Count only clicks with a large enough value, such as 30 seconds of dwell time.

        Parameters
        ----------
        least : float
            Smallest `value` with which a click counts.

        Returns
        -------
        ClickLog
            The same impressions; clicks with smaller values are none.

        Examples
        --------
        >>> documents = Queries([[0.2], [0.7]], [0, 0], qid=["a", "a"])
        >>> log = ClickLog(documents, rows=[1, 0], clicked=[1, 1], offsets=[0, 2], value=[4.5, 60])
        >>> log.satisfied(30).clicked
        array([False,  True])
        """
        if self.value is None:
            raise ValueError("the log has no values; read_clicks(..., value=) names their column.")
        return replace(self, clicked=self.clicked & (self.value >= number("least", least)))


def _number_of(n: int, one: str, several: str | None = None) -> str:
    """A number with its noun, such as "1 click" or "1,200 clicks"."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def _chosen(sessions: Any, n: int) -> Integers:
    """Indices of the sessions that are selected of n."""
    chosen = np.asarray(sessions)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "biu"):
        raise ValueError(
            "sessions must be a 1-d array of whole numbers or a mask of sessions; got "
            f"{chosen.dtype} of shape {chosen.shape}."
        )
    if chosen.dtype == bool:
        if len(chosen) != n:
            raise ValueError(f"a mask of sessions needs {n} entries; got {len(chosen)}.")
        chosen = np.flatnonzero(chosen)
    if not len(chosen):
        raise ValueError("no session is selected; a log needs at least one.")
    wrong = (chosen < 0) | (chosen >= n)
    if wrong.any():
        raise ValueError(
            f"sessions must be indices of sessions, 0 to {n - 1}; got {chosen[int(np.argmax(wrong))]}."
        )
    return chosen.astype(np.int64, copy=False)


def _whole(name: str, values: Any) -> Integers:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be a 1-d array of whole numbers; got {array.dtype} of shape {array.shape}."
        )
    return array


def _clicks(clicked: Any, m: int) -> Mask:
    array = np.asarray(clicked)
    if array.shape != (m,):
        raise ValueError(f"clicked must have one entry per impression, ({m},); got {array.shape}.")
    if array.dtype != bool:
        wrong = ~np.isin(array, (0, 1))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"clicked must be 0 or 1, or False or True; impression {i} has {array[i]}. Give dwell times "
                "or order values as `value`."
            )
        array = array.astype(bool)
    return array


def _propensities(propensity: Any, m: int) -> Floats | None:
    if propensity is None:
        return None
    array = np.asarray(propensity, dtype=np.float64)
    if array.shape != (m,):
        raise ValueError(f"propensity must have one number per impression, ({m},); got {array.shape}.")
    wrong = ~((array > 0) & (array <= 1 + 1e-9))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"propensity must be above 0 and at most 1; impression {i} has {array[i]}. It is the probability "
            "with which the ranker that made the list shows this document at this position, which cannot be "
            "0 for a document that was shown."
        )
    return np.minimum(array, 1.0)


def _values(value: Any, m: int) -> Floats | None:
    if value is None:
        return None
    array = np.asarray(value, dtype=np.float64)
    if array.shape != (m,):
        raise ValueError(f"value must have one number per impression, ({m},); got {array.shape}.")
    wrong = ~((array >= 0) & np.isfinite(array))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(f"value must be finite and not below 0; impression {i} has {array[i]}.")
    return array
