"""Clicks of documents at positions, arranged for estimation: documents that were shown, numbered from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickCounts, ClickLog
from sinkprop.common.types import Floats, Integers

__all__ = ["Cells", "cells_of"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Impressions and clicks of each document at each position, (C,), in order of documents.

    rows       (D,) row of each document in the table of documents.
    starts     (D + 1,) cells of document d: starts[d], ..., starts[d + 1] - 1.
    positions  (C,) positions from 0.
    n          (C,) impressions, above 0.
    x          (C,) clicks.
    K          Number of positions.
    """

    rows: Integers
    starts: Integers
    positions: Integers
    n: Floats
    x: Floats
    K: int

    @property
    def documents(self) -> Integers:
        """Document of each cell, (C,)."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.starts))

    @property
    def clicks(self) -> Floats:
        """Clicks of each document, (D,)."""
        return self.by_document(self.x)

    def by_document(self, values: Floats) -> Floats:
        """Sum of values of cells over each document, (D,)."""
        total: Floats = np.add.reduceat(values, self.starts[:-1])
        return total

    def to_cells(self, values: Any) -> Any:
        """Values of documents, repeated for each of their cells, (C,)."""
        return np.repeat(values, np.diff(self.starts))

    def by_position(self, values: Floats) -> Floats:
        """Sum of values of cells over each position, (K,)."""
        return np.bincount(self.positions, values, self.K).astype(np.float64)

    def matrix(self, values: Floats) -> Any:
        """Sparse matrix (D, K) of values of cells."""
        from scipy.sparse import csr_matrix

        return csr_matrix((values, self.positions, self.starts), (len(self.rows), self.K))

    def of_at_least(self, least: float) -> Cells:
        """Cells with at least this number of impressions."""
        kept = self.n >= least
        sizes = np.bincount(self.documents[kept], minlength=len(self.rows))
        starts = np.r_[0, np.cumsum(sizes[sizes > 0])]
        of_cells = (self.positions[kept], self.n[kept], self.x[kept])
        return Cells(self.rows[sizes > 0], starts, *of_cells, self.K)

    def keep(self, documents: Any) -> Cells:
        """Cells of the documents that a mask (D,) selects."""
        kept = self.to_cells(documents)
        sizes = np.diff(self.starts)[documents]
        starts = np.r_[0, np.cumsum(sizes)]
        of_cells = (self.positions[kept], self.n[kept], self.x[kept])
        return Cells(self.rows[documents], starts, *of_cells, self.K)


def cells_of(log: ClickLog, weight: ArrayLike | None = None) -> Cells:
    """Cells of a log, whose sessions may have weights (S,); checks that position bias can be estimated.

    Weights are those of a resampled log, in which a position may have lost all of its clicks.
    """
    counts = log.counts if weight is None else _shown(log.counted(_checked(weight, log)))
    if log.longest < 2:
        raise ValueError(
            "the sessions of this log have one position each; position bias is the difference between "
            "positions. Log all documents that were shown, also those without a click."
        )
    if not counts.clicks.any():
        raise ValueError(
            "no impression of this log has a click; position bias is estimated from clicks. Check that "
            "`clicked` is the column of clicks, or log more sessions."
        )
    first = np.flatnonzero(np.r_[True, counts.rows[1:] != counts.rows[:-1]])
    starts = np.r_[first, len(counts)]
    of_cells = (counts.positions - 1, counts.impressions, counts.clicks)
    cells = Cells(counts.rows[first], starts, *of_cells, log.longest)
    if weight is None:
        _check_positions(cells)
    return cells


def _checked(weight: ArrayLike, log: ClickLog) -> Floats:
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != (log.n_sessions,):
        raise ValueError(f"weight must have one number per session, ({log.n_sessions},); got {array.shape}.")
    if not (np.isfinite(array) & (array >= 0)).all() or not array.any():
        raise ValueError("weight must be finite, at least 0, and above 0 for one session or more.")
    return array


def _shown(counts: ClickCounts) -> ClickCounts:
    kept = counts.impressions > 0
    return ClickCounts(
        counts.rows[kept], counts.positions[kept], counts.impressions[kept], counts.clicks[kept]
    )


def _check_positions(cells: Cells) -> None:
    clicks = cells.by_position(cells.x)
    if not clicks.all():
        k = int(np.argmin(clicks > 0))
        shown = cells.by_position(cells.n)[k]
        remedy = f"log.first({k}) keeps the positions above" if k else "log sessions with such clicks"
        raise ValueError(
            f"position {k + 1} was shown {shown:,.0f} times and has no click, so that its examination cannot "
            f"be estimated; {remedy}."
        )
