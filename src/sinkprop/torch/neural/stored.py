"""Training and validation queries of a network that are read from disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.categories import refuse_categories
from sinkprop.data.doubtful_data import warn_of_equal_labels
from sinkprop.data.feature_scaling import scale_by_query, transformed
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet, fingerprint

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["Data", "StoredSet", "digest_of", "largest_label", "sizes_of"]


@dataclass(frozen=True, eq=False)
class StoredSet:
    """Some queries of a stored set, to train on: like `TrainingSet`, but the rows stay on disk.

    numbers       (Q,) indices of the queries in the stored set, increasing
    query_weight  (Q,) weights of these queries, or None
    by_query      Name of the transform before feature scaling by query; None if the scaling is not by query.
    columns       Index of each training feature's column in the stored set; None if the order is the same.
    """

    stored: StoredQueries
    numbers: Integers
    query_weight: Floats | None = None
    by_query: str | None = None
    columns: list[int] | None = None

    sample_weight = None  # a stored set has no row weights

    @classmethod
    def of(
        cls, stored: StoredQueries, who: str, by_query: str | None, *, allow_nan: bool, name: str = ""
    ) -> StoredSet:
        """Select all queries of a stored set; raise an error if a ranker cannot train on it.

        who        Name of the ranker, for the error message.
        allow_nan  Whether the ranker takes missing values.
        name       Prefix of argument names in warnings: "eval_set " for an evaluation set, else empty.
        """
        if not allow_nan:
            stored.require_finite(who)
        refuse_categories(stored, who, str(stored.path))
        stored.require_labels("training")
        stored.verify()
        warn_of_equal_labels((labels for labels, _ in stored.labels_by_block()), name=name)
        return cls(stored, np.arange(stored.n_queries), None, by_query)

    @property
    def n_queries(self) -> int:
        return len(self.numbers)

    @property
    def n_features(self) -> int:
        return int(self.stored.n_features)

    @cached_property
    def sizes(self) -> Integers:
        sizes: Integers = self.stored.sizes[self.numbers]
        return sizes

    @property
    def n_rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def n_bytes(self) -> int:
        """Size of the features on disk, in bytes."""
        return 4 * self.n_rows * self.n_features

    @cached_property
    def blocks(self) -> Integers:
        """Index of the block that contains each query, (Q,).

        A block is a part of the file that is read as a whole.
        """
        return np.searchsorted(self.stored.block_queries, self.numbers, side="right") - 1

    def select(self, queries: Integers) -> StoredSet:
        """Return the queries at these positions, in the order of this set, without reading them."""
        chosen = np.zeros(self.n_queries, dtype=bool)
        chosen[queries] = True
        weight = None if self.query_weight is None else self.query_weight[chosen]
        return replace(self, numbers=self.numbers[chosen], query_weight=weight)

    def take(self, queries: Integers) -> TrainingSet:
        """Read the queries at these positions into memory, in the given order."""
        found = self.stored.take(self.numbers[queries])
        sizes = self.sizes[queries]
        groups = Groups.of_sizes(sizes)
        X: NDArray[Any] = found.X if self.columns is None else found.X[:, self.columns]
        if self.by_query is not None:
            X = scale_by_query(transformed(X, self.by_query), groups)
        weight = None if self.query_weight is None else self.query_weight[queries]
        return TrainingSet(X, found.y, groups, None, weight)

    def load(self) -> TrainingSet:
        """Read all queries into memory."""
        return self.take(np.arange(self.n_queries))

    def digest(self) -> str:
        """Return a SHA-256 digest of everything in this set on which a fit depends."""
        found = hashlib.sha256(f"stored {self.stored.digest} {self.by_query} {self.columns}".encode())
        found.update(np.ascontiguousarray(self.numbers).data)
        if self.query_weight is not None:
            found.update(np.ascontiguousarray(self.query_weight).data)
        return found.hexdigest()


Data = TrainingSet | StoredSet


def sizes_of(data: Data) -> Integers:
    """Return the number of documents of each query, (Q,)."""
    return data.sizes if isinstance(data, StoredSet) else np.diff(data.groups.offsets)


def largest_label(data: Data) -> float:
    """Return the largest label of the queries."""
    if isinstance(data, TrainingSet):
        return float(data.y.max())
    chosen, first, largest = np.zeros(data.stored.n_queries, dtype=bool), 0, 0.0
    chosen[data.numbers] = True
    for labels, groups in data.stored.labels_by_block():
        mine = chosen[first : first + len(groups.queries)]
        largest = max(largest, float(labels[np.repeat(mine, np.diff(groups.offsets))].max(initial=0.0)))
        first += len(groups.queries)
    return largest


def digest_of(data: Data) -> str:
    """Return a digest of the queries and their weights, to tell whether two sets are equal."""
    return data.digest() if isinstance(data, StoredSet) else fingerprint("", data)
