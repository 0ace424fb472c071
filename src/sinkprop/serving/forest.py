"""Questions about features as bytes of columns, from which native code scores documents.

`native/trees/forest_view.hpp` defines the words. The rules of each library for missing values, zeros,
categories and rounding are applied once, when the cuts of the features and the columns' tables are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["ColumnTables", "Intervals", "column_tables"]

_LEAST, _MOST = -128, 127  # of a byte
_PER_COLUMN = 255  # cuts that a byte tells apart
_LARGEST = 2**28  # bytes of all tables; a model has thousands


@dataclass(frozen=True, eq=False)
class Intervals:
    """A question with the answer no for values x with low < x <= high, for one of the pairs.

    lows, highs  (m,) ends of the intervals, in increasing order.
    missing_no   Whether the answer is no for a missing value.
    """

    lows: Floats
    highs: Floats
    missing_no: bool


@dataclass(frozen=True, eq=False)
class ColumnTables:
    """Cuts of features, tables of columns, and K questions to them, as `_native.Forest` takes them.

    features     (V,) feature of each variable.
    cut_ends     (V + 1,) where the cuts of each variable begin and end.
    cuts         Cuts of all variables, increasing for each.
    column_ends  (V + 1,) where the columns of each variable begin and end.
    tables       For each column one byte per cut of its variable, and two more: one for each rank, and one
                 for missing values.
    columns      (K,) column of each question.
    bounds       (K,) the answer is yes if the column's byte is above this number.
    """

    features: NDArray[np.int32]
    cut_ends: Integers
    cuts: Floats
    column_ends: Integers
    tables: NDArray[np.int8]
    columns: NDArray[np.int32]
    bounds: NDArray[np.int8]


def column_tables(
    features: Integers, at_most: Floats, missing_no: Mask, intervals: Mapping[int, Intervals]
) -> ColumnTables:
    """Columns from which K questions can be answered.

    Question k has the answer no if the value of feature `features[k]` is at most `at_most[k]`, or if it is
    missing and `missing_no[k]`, and otherwise yes. If k is in `intervals`, these tell the answer instead.
    """
    used, variable = np.unique(features, return_inverse=True)
    order = np.argsort(variable, kind="stable")
    ends = np.searchsorted(variable[order], np.arange(len(used) + 1))
    own_cut = np.ones(len(features), dtype=bool)
    own_cut[list(intervals)] = False
    columns, bounds = np.zeros(len(features), np.int32), np.zeros(len(features), np.int8)
    cuts: list[Floats] = []
    tables: list[NDArray[np.int8]] = []
    column_ends, size = [0], 0
    for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        questions = order[first:last]
        plain = questions[own_cut[questions]]
        special = [] if len(plain) == len(questions) else questions[~own_cut[questions]].tolist()
        sides = [side for k in special for side in (intervals[k].lows, intervals[k].highs)]
        own = np.unique(np.concatenate([at_most[plain], *sides]))
        ranks = np.arange(len(own) + 1)
        found: dict[bytes, int] = {}

        def column(table: NDArray[np.int8], found: dict[bytes, int] = found) -> int:
            nonlocal size
            number = found.setdefault(table.tobytes(), len(tables))
            if number == len(tables):
                size += len(table)
                if size > _LARGEST:
                    raise ValueError("the sets of categories of its splits are too large")
                tables.append(table)
            return number

        place = np.searchsorted(own, at_most[plain])
        kind = 2 * (place // _PER_COLUMN) + missing_no[plain]
        for code in np.unique(kind).tolist():
            base, here = code // 2 * _PER_COLUMN, kind == code
            table = np.append(np.clip(ranks - base, 0, 255) + _LEAST, _LEAST if code % 2 else _MOST)
            columns[plain[here]] = column(table.astype(np.int8))
            bounds[plain[here]] = place[here] - base + _LEAST
        for k in special:
            # the ranks of values in an interval: those behind its low end, up to its high end
            inside = np.zeros(len(own) + 2, dtype=np.int64)
            inside[np.searchsorted(own, intervals[k].lows) + 1] += 1
            inside[np.searchsorted(own, intervals[k].highs) + 1] -= 1
            no = np.append(np.cumsum(inside[:-1]) > 0, intervals[k].missing_no)
            columns[k], bounds[k] = column(np.where(no, _LEAST, _MOST).astype(np.int8)), 0
        cuts.append(own)
        column_ends.append(len(tables))
    return ColumnTables(
        used.astype(np.int32),
        np.concatenate([[0], np.cumsum([len(own) for own in cuts])]).astype(np.int64),
        np.concatenate([np.zeros(0), *cuts]),
        np.array(column_ends, dtype=np.int64),
        np.concatenate([np.zeros(0, np.int8), *tables]),
        columns,
        bounds,
    )
