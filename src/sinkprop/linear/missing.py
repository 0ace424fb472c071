"""Missing values of a linear fit: their treatment, learned block by block, and sources of treated rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import ArraySource, Block, Source, Task
from sinkprop.data.missing import MissingValues, learned_from
from sinkprop.linear.exact_sums import exponents
from sinkprop.linear.tasks import Extent, Sums

__all__ = ["learned", "treated"]

P = TypeVar("P")


@dataclass(frozen=True)
class Absent:
    """Task that counts the rows in which each feature is missing, (D,)."""

    def __call__(self, block: Block) -> Integers:
        return np.asarray(np.isnan(block.data.X).sum(axis=0))

    def combine(self, parts: Sequence[Integers]) -> Integers:
        return np.asarray(np.sum(parts, axis=0))


@dataclass(frozen=True, eq=False)
class Filled(Generic[P]):
    """Task that runs another task on blocks whose missing values have been treated."""

    task: Task[P]
    missing: MissingValues

    def __call__(self, block: Block) -> P:
        return self.task(replace(block, data=replace(block.data, X=self.missing(block.data.X))))

    def combine(self, parts: Sequence[P]) -> P:
        return self.task.combine(parts)


class FilledSource:
    """Queries on disk or on a cluster, with their missing values treated.

    Each task treats the rows of a block before it uses them, so no treated rows are stored or sent.
    """

    def __init__(self, source: Source, missing: MissingValues) -> None:
        self._source, self._missing = source, missing

    n_rows = property(lambda self: int(self._source.n_rows))
    n_queries = property(lambda self: int(self._source.n_queries))
    n_features = property(lambda self: int(self._missing.n_columns))
    longest = property(lambda self: int(self._source.longest))
    weighted_rows = property(lambda self: bool(self._source.weighted_rows))

    @property
    def sizes(self) -> Integers:
        return self._source.sizes

    @property
    def query_weight(self) -> Floats | None:
        return self._source.query_weight

    @property
    def digest(self) -> str:
        return self._source.digest

    def with_codes(self, codes: NDArray[np.int16]) -> FilledSource:
        return FilledSource(self._source.with_codes(codes), self._missing)

    def run(self, task: Task[P]) -> P:
        return self._source.run(Filled(task, self._missing))

    def close(self) -> None:
        self._source.close()


def treated(source: Source, missing: MissingValues) -> Source:
    """Return a source of the same queries, with their missing values treated."""
    if isinstance(source, ArraySource):
        return source.with_features(missing(source.data.X))
    return FilledSource(source, missing)


def learned(treatment: str, data: Source, extent: Floats, validation: Source | None) -> MissingValues | None:
    """Return the treatment of missing values for a fit; None if no value is missing.

    The sums of the known values are exact, so the treatment does not depend on how the queries are divided
    into blocks or distributed over threads and machines.

    treatment   "indicator" or "mean"; see `learned_from`.
    data        Training queries, from which the treatment is learned.
    extent      Result of the task `Extent` on the training queries.
    validation  Validation queries, or None.
    """
    if not np.isnan(extent).any() and (validation is None or not np.isnan(validation.run(Extent())).any()):
        return None
    n_features = data.n_features
    known = treated(data, MissingValues(np.zeros(n_features), np.zeros(0, dtype=np.int64)))
    sums, _ = known.run(Sums(exponents(known.run(Extent()) * data.longest) + 1))
    return learned_from(treatment, data.n_rows, sums.value(), data.run(Absent()))
