"""Kinds of data that a caller may pass in place of arrays, told apart without importing their packages."""

from __future__ import annotations

import os
from typing import Any

from sinkprop.data.queries import Queries

__all__ = ["has_own_queries", "is_elsewhere", "is_files", "is_frame_of_cluster", "is_stored_set"]


def has_own_queries(item: Any) -> bool:
    """Whether it is `Queries` or a stored set, which have labels and query ids of their own."""
    return isinstance(item, Queries) or is_stored_set(item)


def is_elsewhere(X: Any) -> bool:
    """Whether X is anything but rows in memory."""
    return is_stored_set(X) or is_files(X) or is_frame_of_cluster(X)


def is_stored_set(X: Any) -> bool:
    """Whether it is a stored set, or what can only be the path of one."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def is_files(X: Any) -> bool:
    """Whether it is a list of paths."""
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(p, str | os.PathLike) for p in X)


def is_frame_of_cluster(X: Any) -> bool:
    """Whether it is a Dask DataFrame, told without an import of Dask."""
    return hasattr(X, "npartitions") and hasattr(X, "to_delayed") and hasattr(X, "columns")
