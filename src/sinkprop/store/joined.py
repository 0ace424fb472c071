"""Input whose queries are in several places: its rows, brought together by query in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sinkprop.common.progress import Notify
from sinkprop.common.types import Integers
from sinkprop.data.letor_errors import size_in_words
from sinkprop.data.queries import group_rows
from sinkprop.store.chunks import Chunk, Inputs, Place, sizes_of

__all__ = ["JoinedInputs"]

_CHUNK = 8 << 20  # bytes per chunk, counted as `_row_bytes` per row


class JoinedInputs:
    """The rows of another input, sorted by query: queries in order of first appearance, rows as before.

    All rows are read into memory. Raises a ValueError when they take more than `limit` bytes, counted as 4
    bytes per feature and 16 bytes per row.

    source  Input that has been prepared.
    """

    def __init__(self, source: Inputs, limit: int, notify: Notify) -> None:
        self._source, self._limit, self._notify = source, limit, notify
        self.paths = source.paths
        self.n_features, self.feature_names = source.n_features, source.feature_names
        self.qid, self.docid = source.qid, source.docid
        self.categories, self.ordered = source.categories, source.ordered
        self._row_bytes = 4 * source.n_features + 16

    def prepare(self, notify: Notify, known: dict[str, Any] | None) -> dict[str, Any]:
        """Prepare the other input again, and return what is known of it."""
        return self._source.prepare(notify, known)

    def chunks(self, start: Place | None) -> Iterator[Chunk]:
        """Yield the sorted rows in chunks, from the row of `start` on.

        The place of a chunk counts the sorted rows, as if they all came from the first file.
        """
        parts = self._read()
        ids = [part.qid.to_numpy(zero_copy_only=False) for part in parts]
        before = np.cumsum([0, *map(len, ids)])
        n, done = int(before[-1]), parts[-1].done
        rows = group_rows(np.concatenate(ids), n).rows
        order = np.arange(n) if rows is None else rows
        step = max(1, _CHUNK // self._row_bytes)
        for first in range(0 if start is None else start.row, n, step):
            yield _gathered(parts, before, order[first : first + step], Place(0, first, first, first), done)

    def _read(self) -> list[Chunk]:
        parts, n, total = [], 0, sum(sizes_of(self.paths))
        for part in self._source.chunks(None):
            parts.append(part)
            n += len(part.y)
            if n * self._row_bytes > self._limit:
                raise ValueError(
                    f"the rows take more than {size_in_words(self._limit)}, so the documents of split "
                    "queries are not put together in memory. Sort the rows by query first, for example lines "
                    "of LETOR text with `sort -s -k2,2 FILE`, or raise join_bytes."
                )
            self._notify(part.done, total, "reading all rows, to sort them by query")
        return parts

    def locate(self, file: int, row: int) -> str:
        """Return the place of a row of the other input, for error messages."""
        return self._source.locate(file, row)


def _gathered(parts: list[Chunk], before: Integers, rows: Integers, place: Place, done: int) -> Chunk:
    """Return rows of several chunks as one chunk.

    parts   The chunks.
    before  Number of rows before each chunk, and the number of all rows.
    rows    Indices of the rows to take, in order, counted over all chunks.
    place   Place of the new chunk.
    done    Number of bytes read, for the new chunk.
    """
    import pyarrow as pa

    owner = np.searchsorted(before, rows, side="right") - 1
    by_owner = np.argsort(owner, kind="stable")
    back = np.empty_like(by_owner)
    back[by_owner] = np.arange(len(rows))
    X = np.empty((len(rows), parts[0].X.shape[1]), np.float32)
    y = np.empty(len(rows))
    qid, docid = [], []
    for i in np.unique(owner).tolist():
        at = np.flatnonzero(owner == i)
        here = rows[at] - before[i]
        part = parts[i]
        X[at], y[at] = part.X[here], part.y[here]
        qid.append(part.qid.take(pa.array(here)))
        if part.docid is not None:
            docid.append(part.docid.take(pa.array(here)))
    in_order = pa.array(back)
    return Chunk(
        place, done, X, y,
        pa.concat_arrays(qid).take(in_order),
        pa.concat_arrays(docid).take(in_order) if docid else None,
    )  # fmt: skip
