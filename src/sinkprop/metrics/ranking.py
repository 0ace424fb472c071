"""The ranking of each query's documents by their scores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_scores
from sinkprop.data.queries import Groups, group_rows

__all__ = ["Ranking", "one_score_per_row", "ranking", "ranks_in_order", "ranks_of", "sorted_order"]


# If queries have at least this many documents on average, one sort per query is faster than two sorts of all
# rows.
_LOOP_SIZE = 16


@dataclass(frozen=True, eq=False)
class Ranking:
    """The rows of each query, best first.

    Query q has the rows rows[offsets[q]:offsets[q + 1]], which ``ranking[q]`` returns.

    Parameters
    ----------
    rows : array of shape (N,)
        Row indices, query after query, best first within each query.
    offsets : array of shape (Q + 1,)
        Start of each query in `rows`, and the end of the last.
    queries : array of shape (Q,)
        Query ids in order of first appearance.
    """

    rows: Integers
    offsets: Integers
    queries: NDArray[Any]

    @property
    def ranks(self) -> Integers:
        """Rank of each row in its query, from 1, in the order of the input rows, of shape (N,)."""
        ranks = np.empty_like(self.rows)
        ranks[self.rows] = ranks_in_order(self.offsets)
        return ranks

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, q: int) -> Integers:
        if not -len(self) <= q < len(self):
            raise IndexError(f"there are {len(self)} queries; got {q}.")
        q %= len(self)
        return self.rows[self.offsets[q] : self.offsets[q + 1]]


def ranking(scores: ArrayLike, qid: ArrayLike | Sequence[Hashable] | None) -> Ranking:
    """Rank the documents of each query by decreasing score; ties keep their input order.

    Parameters
    ----------
    scores : array of shape (N,)
        Finite scores; larger is better.
    qid : array of shape (N,) or None
        Query id of each row: any hashable ids, in any order. With None all rows form one query.

    Returns
    -------
    Ranking
        The rows of each query, best first.

    Examples
    --------
    >>> r = ranking([0.1, 0.7, 0.9, 0.7], ["b", "a", "b", "a"])
    >>> r.queries.tolist(), r.rows, r.offsets
    (['b', 'a'], array([2, 0, 1, 3]), array([0, 2, 4]))
    >>> r.ranks, r[1]
    (array([2, 1, 1, 2]), array([1, 3]))
    """
    x = one_score_per_row(scores)
    groups = group_rows(qid, len(x))
    return Ranking(sorted_order(x, groups), groups.offsets, groups.queries)


def one_score_per_row(scores: ArrayLike) -> Floats:
    """Return scores as float64 of shape (N,); raise a ValueError for other shapes or if one is not finite."""
    shape = np.shape(scores)
    if len(shape) > 1:
        raise ValueError(f"scores must be one number per document, of shape (N,); got {shape}.")
    return as_scores(scores, 1)


def sorted_order(x: Floats, groups: Groups) -> Integers:
    """Return the row indices (N,), query after query, by decreasing score within each query.

    Ties stay in input order.
    """
    n, offsets, rows = len(x), groups.offsets, groups.rows
    if groups.longest == 1:
        return np.arange(n, dtype=np.int64) if rows is None else rows
    grouped = x if rows is None else x[rows]
    order, by_score = np.empty(n, np.int64), np.empty(n)
    n_queries, shift = len(offsets) - 1, n.bit_length()
    if n_queries * _LOOP_SIZE <= n or n_queries.bit_length() + shift > 63:
        for a, b in pairwise(offsets.tolist()):
            _native.sort_descending(grouped[a:b], order[a:b], by_score[a:b])
        order += np.repeat(offsets[:-1], np.diff(offsets))
    else:
        # Sort all rows by score, then by query. The key of the second sort holds the query in its high bits
        # and the position after the first sort in its low bits, so that the order by score is kept.
        _native.sort_descending(grouped, order, by_score)
        key = np.repeat(np.arange(n_queries, dtype=np.int64) << shift, np.diff(offsets))[order]
        key |= np.arange(n, dtype=np.int64)
        key.sort()
        key &= (1 << shift) - 1
        order = order[key]
    return order if rows is None else rows[order]


def ranks_of(x: Floats, groups: Groups) -> Integers:
    """Rank (N,) of each row in its query, 1 for the top, from scores that have been checked."""
    return Ranking(sorted_order(x, groups), groups.offsets, groups.queries).ranks


def ranks_in_order(offsets: Integers) -> Integers:
    """Ranks (N,) of documents that are stored in rank order, query after query: 1, 2, ... in each query.

    offsets  (Q + 1,) start of each query, and the end of the last.
    """
    return np.arange(1, offsets[-1] + 1, dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))
