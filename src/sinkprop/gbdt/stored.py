"""Stored sets as boosted trees take them: labels and query sizes in memory, features as they are read."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from sinkprop.data import Groups, as_query_weight
from sinkprop.gbdt.rows import StreamedRows
from sinkprop.linear import TrainingSet

__all__ = ["as_stored", "is_stored_set", "stored_set"]


def is_stored_set(X: Any) -> bool:
    """Whether it is a stored set, or what can only be the path of one."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def as_stored(X: Any) -> Any:
    """The stored set that is given, itself or by its path; None for anything else."""
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        return open_queries(X)
    return X if is_stored_set(X) else None


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
