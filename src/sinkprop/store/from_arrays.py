"""Queries in memory as input of a stored set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.progress import Notify
from sinkprop.common.types import Singles
from sinkprop.data.queries import Queries
from sinkprop.store.chunks import Chunk, Place

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["QueriesInputs"]


class QueriesInputs:
    """Input from one or several `Queries`. They do not come from files, so `paths` is empty."""

    paths: tuple[str, ...] = ()

    def __init__(self, queries: Iterable[Queries]) -> None:
        self._queries = iter(queries)
        self._first: Queries | None = None
        self.n_features = 0
        self.feature_names: tuple[str, ...] | None = None
        self.qid = "int64"
        self.docid = False
        self.categories: dict[str, tuple[Any, ...]] = {}
        self.ordered: tuple[str, ...] = ()

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]:
        """Set the number and names of the features, and the type of query ids, from the first `Queries`.

        Returns an empty dict, because a conversion of queries in memory cannot be resumed.
        """
        self._first = next(self._queries, None)
        if not isinstance(self._first, Queries):
            found = "none" if self._first is None else type(self._first).__name__
            raise ValueError(f"queries must be Queries, or an iterable of one or more of them; got {found}.")
        self.n_features, self.feature_names = self._first.n_features, self._first.feature_names
        self.qid = "string" if self._is_text(self._first) else "int64"
        self.docid = self._first.docid is not None
        self.categories, self.ordered = dict(self._first.categories), self._first.ordered
        return {}

    @staticmethod
    def _is_text(queries: Queries) -> bool:
        ids = queries.groups.queries
        if ids.dtype.kind in "iub" and (ids.dtype.kind != "u" or ids.max() < 2**63):
            return False
        if all(isinstance(q, str) for q in ids.tolist()):
            return True
        raise ValueError(
            "query ids of a stored set must be whole numbers or text; got "
            f"{next(q for q in ids.tolist() if not isinstance(q, str))!r}."
        )

    def chunks(self, start: Place | None) -> Iterator[Chunk]:
        """Yield one chunk per `Queries`, with the rows of each query brought together; ignores `start`."""
        row, queries = 0, self._first
        while queries is not None:
            self._check(queries)
            rows = queries.groups.rows
            together = queries if rows is None else queries.take(rows)
            yield Chunk(
                Place(0, row, row, row),
                row,
                np.ascontiguousarray(_as_float32(together.X)),
                together.y,
                self._ids(together.qid),
                None if together.docid is None else _as_text(together.docid),
            )
            row += len(together)
            queries = next(self._queries, None)

    def _ids(self, qid: NDArray[Any]) -> pa.Array:
        import pyarrow as pa

        kind = pa.string() if self.qid == "string" else pa.int64()
        return pa.array(qid.tolist() if qid.dtype.kind in "UO" else qid, type=kind)

    def _check(self, queries: Queries) -> None:
        if not isinstance(queries, Queries):
            raise ValueError(f"queries must be Queries; got {type(queries).__name__}.")
        if queries.n_features != self.n_features or queries.feature_names != self.feature_names:
            raise ValueError(
                f"queries must have the same features as the first ones, {self.n_features}; got "
                f"{queries.n_features}, or features with other names."
            )
        if ("string" if self._is_text(queries) else "int64") != self.qid:
            raise ValueError("queries must all have whole numbers or all have text as ids; got both.")
        if (queries.categories, queries.ordered) != (self.categories, self.ordered):
            raise ValueError("queries must have the same categories, in the same order, as the first ones.")
        if (queries.docid is not None) != self.docid:
            raise ValueError("either all queries or none of them must have docid.")

    def locate(self, file: int, row: int) -> str:
        """Return the name of a row for error messages, such as "row 3"."""
        return f"row {row}"


def _as_float32(X: NDArray[Any]) -> Singles:
    with np.errstate(over="ignore"):
        single: Singles = X.astype(np.float32, copy=False)
    if X.dtype != np.float32 and np.isinf(single).any():
        row, column = np.argwhere(np.isinf(single))[0]
        raise ValueError(
            f"X must fit into float32, in which a stored set keeps features; row {row}, column {column} "
            f"holds {X[row, column]}."
        )
    return single


def _as_text(docid: NDArray[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array([str(name) for name in docid.tolist()], type=pa.string())
    except UnicodeEncodeError as error:
        raise ValueError(f"docid must be text that UTF-8 can hold; got {error.object!r}.") from None
