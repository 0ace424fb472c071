"""Sessions of a click log, found in its rows, and the errors of rows that do not form sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Integers, Mask
from sinkprop.data.queries import Queries

__all__ = ["Sessions"]


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions of a log.

    order    (M,) rows by session and position; None if they are in this order.
    offsets  (S + 1,) start of each session among these rows, and the end of the last.
    where    Function of rows that names their files, as the beginning of a message.
    """

    order: Integers | None
    offsets: Integers
    where: Callable[..., str]

    @classmethod
    def of(
        cls, session: Integers | None, query: Integers, position: Integers, where: Callable[..., str]
    ) -> Sessions:
        """Find the sessions, given the number of each row's session, if known, its query and its position.

        Raises a ValueError if a session has several queries.
        """
        if session is None:
            begins = np.r_[True, (query[1:] != query[:-1]) | (position[1:] <= position[:-1])]
            return cls(None, np.r_[np.flatnonzero(begins), len(query)], where)
        key = session.astype(np.int64) * (int(position.max()) + 1) + position
        order = np.argsort(key, kind="stable") if (key[1:] < key[:-1]).any() else None
        if order is not None:
            session, query = session[order], query[order]
        begins = np.r_[True, session[1:] != session[:-1]]
        sessions = cls(order, np.r_[np.flatnonzero(begins), len(query)], where)
        sessions._refuse_several(
            query,
            "queries; a session is one ranking for one query. Use the id of the request rather than that of "
            "the visit",
        )
        return sessions

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the rows, by session and position."""
        return values if self.order is None else values[self.order]

    def _rows(self, *sorted_rows: Any) -> list[int]:
        """Rows of the log, in its order, given their places by session and position."""
        return sorted(int(i if self.order is None else self.order[i]) for i in sorted_rows)

    def _refuse_several(self, values: NDArray[Any], what: str) -> None:
        """Raise a ValueError if a session has several of the values, which are by session and position."""
        changed = values[1:] != values[:-1]
        changed[self.offsets[1:-1] - 1] = False
        if changed.any():
            i = np.argmax(changed)
            a, b = self._rows(i, i + 1)
            raise ValueError(
                f"{self.where(a, b)}rows {a} and {b} have the same session but different {what}."
            )

    def check_policies(self, policy: Integers) -> None:
        """Raise a ValueError if a session has several policies, given those of the sorted rows."""
        self._refuse_several(policy, "policies")

    def check_positions(self, position: Integers, clicked: Mask) -> None:
        """Raise a ValueError unless the positions of each session are 1, 2, ..., n, given the sorted rows."""
        expected = np.arange(1, len(position) + 1) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        wrong = position != expected
        if not wrong.any():
            return
        i = int(np.argmax(wrong))
        if i and position[i] == position[i - 1] and expected[i] > 1:
            a, b = self._rows(i - 1, i)
            raise ValueError(
                f"{self.where(a, b)}rows {a} and {b} are both at position {position[i]} of one session. If "
                "they belong to two rankings, name a column that tells them apart with session=."
            )
        (row,) = self._rows(i)
        what = "has a click at" if clicked[i] else "shows"
        raise ValueError(
            f"{self.where(row)}row {row} {what} position {position[i]}, but its session does not show "
            f"position {int(expected[i])}. A log needs every document that was shown down to the last, "
            "whether it was clicked or not; if rows of a session are not consecutive, name the column of "
            "sessions with session=."
        )

    def repeated(self, rows: Integers, documents: Queries, names: Sequence[Any]) -> str | None:
        """Message about a session that shows a document twice; None if there is none.

        rows   Rows in `documents` of the sorted rows.
        names  Ids of the sessions.
        """
        session = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        by_document = np.lexsort((rows, session))
        same = (np.diff(rows[by_document]) == 0) & (np.diff(session[by_document]) == 0)
        if not same.any():
            return None
        i, j = by_document[np.argmax(same) + np.arange(2)]
        (a, b), row = self._rows(i, j), int(rows[i])
        ids = documents.docid
        name = f"row {row} of documents" if ids is None else repr(ids[row : row + 1].tolist()[0])
        return (
            f"{self.where(a, b)}session {names[session[i]]!r} shows a document at two positions: {name}, in "
            f"rows {a} and {b}."
        )
