"""The assignment problem: the ranks of documents with the largest sum of a matrix's entries."""

from __future__ import annotations

import numpy as np

from sinkprop import _native
from sinkprop.common.types import Floats, Positions

__all__ = ["largest_assignment"]


def largest_assignment(values: Floats) -> Positions:
    """Column (n,) of each row of values (n, n) in the assignment with the largest sum.

    No two rows have the same column, and no row has one in which its value is minus infinity; raises a
    ValueError if there is no such assignment. The time is cubic in n.

    >>> largest_assignment(np.array([[1.0, 9.0, 2.0], [3.0, 8.0, 1.0], [7.0, 4.0, 6.0]]))
    array([1, 0, 2])
    """
    columns = np.empty(len(values), dtype=np.int64)
    if not _native.assign(np.ascontiguousarray(-values, dtype=np.float64), columns):
        raise ValueError("every assignment of rows to columns has a value of minus infinity.")
    return columns
