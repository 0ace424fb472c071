"""Training queries in memory: rows sorted by query, with their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups

__all__ = ["TrainingSet", "fingerprint", "joined"]


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Checked training rows, sorted by query, with their weights.

    X              (N, D) features.
    y              (N,) labels.
    groups         The rows of each query.
    sample_weight  (N,) row weights, or None.
    query_weight   (Q,) query weights, or None.
    columns        (N, L) label columns, if a gain reads several labels per document; y is then what the gain
                   takes for a single label.
    """

    X: NDArray[Any]
    y: Floats
    groups: Groups
    sample_weight: Floats | None = None
    query_weight: Floats | None = None
    columns: Floats | None = None

    @property
    def labels(self) -> Floats:
        """(N,) or (N, L) labels that gains and metrics read."""
        return self.y if self.columns is None else self.columns

    @property
    def n_queries(self) -> int:
        return len(self.groups.queries)

    @property
    def codes(self) -> Integers:
        """(N,) index of each row's query."""
        return self.groups.codes

    @property
    def row_weight(self) -> Floats | None:
        """(N,) weight of each row in a sum over all rows: its row weight times the weight of its query."""
        if self.query_weight is None:
            return self.sample_weight
        by_row = np.repeat(self.query_weight, self.groups.sizes)
        return by_row if self.sample_weight is None else by_row * self.sample_weight

    def select(self, queries: Integers) -> TrainingSet:
        """Return the queries with the given indices; their order in this set is kept."""
        chosen = np.zeros(self.n_queries, dtype=bool)
        chosen[queries] = True
        sizes = self.groups.sizes
        rows = np.repeat(chosen, sizes)
        return TrainingSet(
            self.X[rows],
            self.y[rows],
            Groups.of_sizes(sizes[chosen], self.groups.queries[chosen]),
            None if self.sample_weight is None else self.sample_weight[rows],
            None if self.query_weight is None else self.query_weight[chosen],
            None if self.columns is None else self.columns[rows],
        )


def fingerprint(settings: str, *sets: TrainingSet | None, arrays: Iterable[NDArray[Any]] = ()) -> str:
    """Return a hash of everything that a fit depends on: settings as text, training sets, further arrays."""
    digest = hashlib.sha256(settings.encode())
    of_sets = [
        array
        for part in sets
        for array in (
            (None,)
            if part is None
            else (part.X, part.labels, part.groups.offsets, part.sample_weight, part.query_weight)
        )
    ]
    for array in (*of_sets, *arrays):
        digest.update(repr(None if array is None else (array.shape, array.dtype)).encode())
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def with_dtype(data: TrainingSet, dtype: Any) -> TrainingSet:
    """The same rows, with features of the given type."""
    return data if data.X.dtype == dtype else replace(data, X=data.X.astype(dtype))


def joined(a: TrainingSet, b: TrainingSet) -> TrainingSet:
    """Join two sets into one, in which queries with equal ids stay separate.

    If only one of the sets has weights, those of the other are 1.
    """

    def together(x: Floats | None, y: Floats | None, n: int, m: int) -> Floats | None:
        if x is None and y is None:
            return None
        return np.concatenate([np.ones(n) if x is None else x, np.ones(m) if y is None else y])

    if a.labels.shape[1:] != b.labels.shape[1:]:
        raise ValueError(
            "eval_set: all sets must have the same number of label columns; got labels of shape "
            f"{a.labels.shape} and {b.labels.shape}."
        )
    columns = None
    if a.columns is not None and b.columns is not None:
        columns = np.concatenate([a.columns, b.columns])
    return TrainingSet(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.y, b.y]),
        Groups.of_sizes(np.concatenate([a.groups.sizes, b.groups.sizes])),
        together(a.sample_weight, b.sample_weight, len(a.y), len(b.y)),
        together(a.query_weight, b.query_weight, a.n_queries, b.n_queries),
        columns,
    )
