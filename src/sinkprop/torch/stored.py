"""Queries on disk as a network is trained on and judged by them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.data import Groups
from sinkprop.linear import TrainingSet, fingerprint
from sinkprop.scaling import scale_by_query
from sinkprop.torch.preparation import transformed

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "Data",
    "StoredSet",
    "as_stored",
    "check_like_training",
    "check_stored",
    "digest_of",
    "is_stored_set",
    "sizes_of",
]

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StoredSet:
    """Some queries of a stored set, as a `TrainingSet` is of queries in memory.

    numbers       (Q,) which queries of the stored set, rising
    query_weight  (Q,) of these queries
    by_query      the transform that is done before features are normalized query by query; None where they
                  are not
    """

    stored: StoredQueries
    numbers: Numbers
    query_weight: Floats | None = None
    by_query: str | None = None

    sample_weight = None  # a stored set has none

    @property
    def n_queries(self) -> int:
        return len(self.numbers)

    @property
    def n_features(self) -> int:
        return int(self.stored.n_features)

    @cached_property
    def sizes(self) -> Numbers:
        sizes: Numbers = self.stored.sizes[self.numbers]
        return sizes

    @property
    def n_rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def n_bytes(self) -> int:
        """Of the features, as they are stored."""
        return 4 * self.n_rows * self.n_features

    @cached_property
    def blocks(self) -> Numbers:
        """(Q,) the block in which each query stands."""
        return np.searchsorted(self.stored.block_queries, self.numbers, side="right") - 1

    def select(self, queries: Numbers) -> StoredSet:
        """The queries of these numbers here, in their order here."""
        chosen = np.zeros(self.n_queries, dtype=bool)
        chosen[queries] = True
        weight = None if self.query_weight is None else self.query_weight[chosen]
        return replace(self, numbers=self.numbers[chosen], query_weight=weight)

    def take(self, queries: Numbers) -> TrainingSet:
        """These queries in memory, in the order given."""
        found = self.stored.take(self.numbers[queries])
        sizes = self.sizes[queries]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        groups = Groups(offsets, None, np.arange(len(sizes)), int(sizes.max(initial=0)))
        X: NDArray[Any] = found.X
        if self.by_query is not None:
            X = scale_by_query(transformed(X, self.by_query), groups)
        weight = None if self.query_weight is None else self.query_weight[queries]
        return TrainingSet(X, found.y, groups, None, weight)

    def load(self) -> TrainingSet:
        """All of them in memory."""
        return self.take(np.arange(self.n_queries))

    def digest(self) -> str:
        """Of all that a fit depends on."""
        found = hashlib.sha256(f"stored {self.stored.digest} {self.by_query}".encode())
        found.update(np.ascontiguousarray(self.numbers).data)
        if self.query_weight is not None:
            found.update(np.ascontiguousarray(self.query_weight).data)
        return found.hexdigest()


Data = TrainingSet | StoredSet


def sizes_of(data: Data) -> Numbers:
    """(Q,) documents of each query."""
    return data.sizes if isinstance(data, StoredSet) else np.diff(data.groups.offsets)


def is_stored_set(X: Any) -> bool:
    """Whether it is a stored set, or what can only be the path of one."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def as_stored(X: Any) -> StoredQueries | None:
    """The stored set that is given, itself or by its path; None for anything else."""
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        return open_queries(X)
    return X if is_stored_set(X) else None


def check_stored(stored: StoredQueries, name: str) -> None:
    """A ValueError where a network cannot be trained on a stored set, or judged by it."""
    if stored.has_nan:
        raise ValueError(
            f"{name} holds NaN, of which a network can make nothing. Fill in what is missing and convert it "
            "again, or take boosted trees, BoostedRanker, for which NaN is a value."
        )
    if not stored.labeled:
        raise ValueError(f"{name} has no labels: convert documents that are judged.")


def check_like_training(ranker: Any, stored: StoredQueries, name: str) -> None:
    """A ValueError where a stored set has not the features that the ranker is trained on."""
    if stored.n_features != ranker.n_features_in_:
        raise ValueError(
            f"{name} must have the {ranker.n_features_in_} features of the training queries; it has "
            f"{stored.n_features}."
        )
    names, found = getattr(ranker, "feature_names_in_", None), stored.feature_names
    if names is not None and found is not None and tuple(names) != found:
        i = next(i for i, name in enumerate(names) if name != found[i])
        raise ValueError(
            f"{name} must have the features of the training queries, in their order; feature {i} is "
            f"{found[i]!r}, not {names[i]!r}."
        )


def digest_of(data: Data) -> str:
    """Of the queries and their weights."""
    return data.digest() if isinstance(data, StoredSet) else fingerprint("", data)
