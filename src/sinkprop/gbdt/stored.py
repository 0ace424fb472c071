"""Stored sets as boosted trees take them: labels and query sizes in memory, features as they are read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from sinkprop.data import Groups, as_query_weight
from sinkprop.gbdt.rows import StreamedRows
from sinkprop.linear import TrainingSet

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["stored_set"]


def stored_set(
    stored: StoredQueries,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    columns: list[int] | None = None,
) -> TrainingSet:
    """The queries of a stored set, whose features are read block by block each time they are needed.

    columns  of the set that are the features, in this order; None for all as they stand
    """
    stored.require_labels("training")
    stored.verify()
    groups = Groups(stored.offsets, None, stored.query_ids, int(stored.longest))
    weight = None if query_weight is None else as_query_weight(query_weight, groups, len(stored))
    rows: Any = StreamedRows(
        lambda: (block.X if columns is None else block.X[:, columns] for block in stored.blocks()),
        (stored.n_rows, stored.n_features),
    )
    return TrainingSet(rows, stored.labels(), groups, None, weight)
