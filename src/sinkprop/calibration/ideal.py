"""Ideal ranks of documents, from their labels: documents with equal labels share their ranks evenly.

The ideal matrix T of a query has T[j, k] = 1 / (b - a + 1) if document j belongs to a grade whose documents
have the ranks a to b, and a <= k <= b. Its rows and columns sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import ranks_in_order, sorted_order

__all__ = ["IdealRanks", "ideal_ranks", "informative"]


@dataclass(frozen=True, eq=False)
class IdealRanks:
    """First and last ideal rank of each document, both of shape (N,): the ranks of its grade in its query."""

    first: Integers
    last: Integers

    def within(self, first: Integers | int, last: Integers | int) -> Floats:
        """Share (N,) of each document's ideal ranks from `first` to `last`, ends included."""
        shared = np.minimum(self.last, last) - np.maximum(self.first, first) + 1
        share: Floats = np.maximum(shared, 0) / (self.last - self.first + 1)
        return share

    def cells(self, n_ranks: int) -> tuple[Integers, Integers, Floats]:
        """Entries of T above 0 in its first columns: rows, columns from 0, and values."""
        ranks = np.arange(1, n_ranks + 1)
        rows, columns = np.nonzero((self.first[:, None] <= ranks) & (ranks <= self.last[:, None]))
        return rows, columns, 1.0 / (self.last - self.first + 1)[rows]


def ideal_ranks(labels: Floats, groups: Groups) -> IdealRanks:
    """Ideal ranks of documents with these labels.

    >>> found = ideal_ranks(np.array([0.0, 2.0, 0.0]), Groups.of_sizes(np.array([3])))
    >>> found.first, found.last, found.within(1, 2)
    (array([2, 1, 2]), array([3, 1, 3]), array([0.5, 1. , 0.5]))
    """
    order = sorted_order(labels, groups)
    ranks, y = ranks_in_order(groups.offsets), labels[order]
    starts = np.ones(len(y), dtype=bool)
    starts[1:] = y[1:] != y[:-1]
    starts[groups.offsets[:-1]] = True
    block = np.cumsum(starts) - 1
    heads = np.flatnonzero(starts)
    sizes = np.diff(np.append(heads, len(y)))
    first, last = np.empty_like(ranks), np.empty_like(ranks)
    first[order] = ranks[heads][block]
    last[order] = (ranks[heads] + sizes - 1)[block]
    return IdealRanks(first, last)


def informative(labels: Floats, groups: Groups) -> Mask:
    """Queries (Q,) with at least two different labels."""
    y = labels if groups.rows is None else labels[groups.rows]
    starts = groups.offsets[:-1]
    different: Mask = np.maximum.reduceat(y, starts) > np.minimum.reduceat(y, starts)
    return different
