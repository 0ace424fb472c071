"""Stored sets as boosted trees take them: labels and query sizes in memory, features as they are read."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from sinkprop.data import Groups, as_query_weight
from sinkprop.gbdt.rows import SparseRows, StreamedRows
from sinkprop.linear import TrainingSet

__all__ = [
    "as_stored",
    "dense",
    "is_dask_frame",
    "is_local",
    "is_remote_pair",
    "is_set",
    "is_stored_set",
    "stored_set",
]


def is_stored_set(X: Any) -> bool:
    """Whether it is a stored set, or what can only be the path of one."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def as_stored(X: Any) -> Any:
    """The stored set that is given, itself or by its path; None for anything else."""
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        return open_queries(X)
    return X if is_stored_set(X) else None


def is_set(X: Any) -> bool:
    """Whether it is what workers of a cluster read themselves: a stored set, files, a Dask DataFrame."""
    files = isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(x, str | os.PathLike) for x in X)
    return is_stored_set(X) or files or is_dask_frame(X)


def is_dask_frame(X: Any) -> bool:
    return hasattr(X, "npartitions") and hasattr(X, "to_delayed")


def is_remote_pair(item: Any) -> bool:
    """Whether it is (X, y) of a Dask DataFrame."""
    return isinstance(item, tuple | list) and len(item) == 2 and is_dask_frame(item[0])


def is_local(X: Any) -> bool:
    """Whether the rows are in this process."""
    return not is_set(X)


def dense(data: TrainingSet) -> TrainingSet:
    """Rows as they are sent to workers."""
    if isinstance(data.X, SparseRows):
        raise ValueError("a sparse matrix cannot be sent to a cluster: give X.toarray(), or convert it.")
    return data


def stored_set(
    stored: Any, *, query_weight: ArrayLike | Mapping[Hashable, float] | None = None
) -> TrainingSet:
    """The queries of a stored set, whose features are read block by block each time they are needed."""
    groups = Groups(stored.offsets, None, stored.query_ids, int(stored.longest))
    weight = None if query_weight is None else as_query_weight(query_weight, groups, len(stored))
    rows: Any = StreamedRows(
        lambda: (block.X for block in stored.blocks()), (stored.n_rows, stored.n_features)
    )
    return TrainingSet(rows, stored.labels(), groups, None, weight)
