"""Checks for kinds of data that a caller may pass instead of arrays, without importing their packages."""

from __future__ import annotations

import os
from typing import Any

from sinkprop.data.queries import Queries

__all__ = ["has_own_queries", "is_elsewhere", "is_files", "is_frame_of_cluster", "is_stored_set"]


def has_own_queries(item: Any) -> bool:
    """Whether `item` is `Queries` or a stored set, which include labels and query ids."""
    return isinstance(item, Queries) or is_stored_set(item)


def is_elsewhere(X: Any) -> bool:
    """Whether X is not in memory: a stored set, a list of files or a Dask DataFrame."""
    return is_stored_set(X) or is_files(X) or is_frame_of_cluster(X)


def is_stored_set(X: Any) -> bool:
    """Whether X is a stored set or a path. A path is always taken to be that of a stored set."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def is_files(X: Any) -> bool:
    """Whether X is a nonempty list or tuple of paths."""
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(p, str | os.PathLike) for p in X)


def is_frame_of_cluster(X: Any) -> bool:
    """Whether X is a Dask DataFrame, checked without importing Dask."""
    return hasattr(X, "npartitions") and hasattr(X, "to_delayed") and hasattr(X, "columns")
