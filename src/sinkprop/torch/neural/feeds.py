"""Rows of minibatches, from memory or from a stored set that is read ahead of the training.

A feed has queries by number and gives their rows, prepared for the network, in any order. `Held` has all of
them in memory. `Streamed` reads a stored set anew in every epoch: it shuffles the blocks of the file, fills a
window with as many as fit, shuffles the queries of the window, and reads the next window on a thread of its
own while the network is trained on this one. So reading is of whole blocks, two windows are in memory at
most, and a minibatch has queries from some thirty places of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups, offsets_of
from sinkprop.data.training_set import TrainingSet
from sinkprop.torch.neural.preparation import MOMENT_ROWS, Moments, Preparation
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.scoring import cut
from sinkprop.torch.neural.stored import Data, StoredSet, sizes_of

__all__ = ["Feed", "Held", "Rows", "Shard", "Streamed", "ahead", "feed_of", "spans_of", "training_moments"]

T = TypeVar("T")

HELD_BYTES = 1 << 28  # stored features up to this size are held in memory
WINDOW_BYTES = 1 << 28  # of features that are shuffled together; two windows are in memory
_SPAN_ROWS = 1 << 16  # of queries that are judged at once


@dataclass(frozen=True, eq=False)
class Shard:
    """Whole queries as a network takes them: features (n, D), labels (n,) and row weights (n,), or None."""

    features: Tensor
    labels: Tensor
    sample_weight: Tensor | None


class Rows(Protocol):
    """Rows that can be had by the numbers of their queries, on several threads at once."""

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        """One shard per part, in their order."""


class Feed(Protocol):
    """Queries that a network is trained on, or judged by.

    sizes   (Q,) documents of each query
    weight  (Q,) what each counts; None for 1
    """

    sizes: Integers
    weight: Floats | None

    def windows(self, rng: np.random.Generator) -> list[Integers]:
        """A random order of all queries, cut into windows that are each read from disk in one go."""

    def sources(self, groups: Sequence[Sequence[Integers]]) -> Iterator[Rows]:
        """One source of rows per set of queries, for all groups in turn; a group is read in one go."""

    def everything(self) -> Rows:
        """The source of the rows of all queries, for passes in their own order."""

    def spans(self, spans: Sequence[Integers]) -> Iterator[tuple[Tensor | NDArray[Any], TrainingSet]]:
        """Consecutive queries for validation: rows, prepared where they are a tensor, labels and weights."""


def ahead(calls: Iterable[Callable[[], T]], depth: int = 1, threads: int = 1) -> Iterator[T]:
    """The results of the calls, in order; `depth` of them are made on threads while the last one is used."""
    waiting: list[Future[T]] = []
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sinkprop-read")
    try:
        for call in calls:
            waiting.append(pool.submit(call))
            if len(waiting) > depth:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class Held:
    """A feed from memory."""

    def __init__(self, data: TrainingSet, preparation: Preparation) -> None:
        self.sizes, self.weight = np.diff(data.groups.offsets), data.query_weight
        self._offsets, self._y, self._sample_weight = data.groups.offsets, data.y, data.sample_weight
        self._rows, self._preparation = preparation.kept(data.X), preparation
        self._labels = torch.from_numpy(data.y)

    def windows(self, rng: np.random.Generator) -> list[Integers]:
        return [rng.permutation(len(self.sizes))]

    def sources(self, groups: Sequence[Sequence[Integers]]) -> Iterator[Rows]:
        return (self for group in groups for _ in group)

    def everything(self) -> Rows:
        return self

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        return map(self._shard, parts)

    def _shard(self, queries: Integers) -> Shard:
        rows = _rows_of(queries, self._offsets[:-1], self.sizes)
        index = torch.from_numpy(rows)
        kept, weight = self._rows, self._sample_weight
        return Shard(
            kept[index] if isinstance(kept, Tensor) else self._preparation(kept[rows]),
            self._labels[index],
            None if weight is None else torch.from_numpy(weight[rows]),
        )

    def spans(self, spans: Sequence[Integers]) -> Iterator[tuple[Tensor | NDArray[Any], TrainingSet]]:
        for span in spans:
            first, last = int(span[0]), int(span[-1]) + 1
            ends = self._offsets[first : last + 1]
            rows = slice(int(ends[0]), int(ends[-1]))
            groups = Groups.of_sizes(np.diff(ends))
            weight = None if self._sample_weight is None else self._sample_weight[rows]
            y = self._y[rows]
            yield self._rows[rows], TrainingSet(np.empty((len(y), 0)), y, groups, weight)


class Streamed:
    """A feed from a stored set."""

    def __init__(self, data: StoredSet, preparation: Preparation, threads: int = 1) -> None:
        self.data = data
        self.sizes, self.weight = data.sizes, data.query_weight
        self._preparation, self._threads = preparation, threads
        self._row_bytes = 4 * max(data.n_features, 1)

    def windows(self, rng: np.random.Generator) -> list[Integers]:
        found = self._windows(rng)
        if len(found) == 1:  # as in memory
            return [rng.permutation(len(self.sizes))]
        return [rng.permutation(window) for window in found]

    def _windows(self, rng: np.random.Generator) -> list[Integers]:
        if self.data.n_bytes <= WINDOW_BYTES:
            return [np.arange(len(self.sizes))]
        starts = np.flatnonzero(np.diff(self.data.blocks, prepend=-1))
        blocks = np.split(np.arange(len(self.sizes)), starts[1:])
        rows = np.add.reduceat(self.sizes, starts)
        parts = cut(rng.permutation(len(blocks)), rows, max(1, WINDOW_BYTES // self._row_bytes))
        return [np.concatenate([blocks[b] for b in np.sort(part)]) for part in parts]

    def sources(self, groups: Sequence[Sequence[Integers]]) -> Iterator[Rows]:
        """The group after the one in use is read on a thread; one too large for memory is read by shards."""

        def load(group: Sequence[Integers]) -> Rows:
            queries = np.concatenate([*group, np.empty(0, np.int64)])
            if int(self.sizes[queries].sum()) * self._row_bytes > 2 * WINDOW_BYTES:
                return _Unread(self)
            return self._loaded(np.sort(queries))

        calls = (partial(load, group) for group in groups)
        for group, rows in zip(groups, ahead(calls), strict=True):
            for _ in group:
                yield rows

    def everything(self) -> Rows:
        return _Unread(self)

    def _loaded(self, queries: Integers) -> Rows:
        """The rows of these queries, rising numbers, in memory and prepared."""
        sizes = self.sizes[queries]
        n = int(sizes.sum())
        features = torch.empty((n, self.data.n_features), dtype=self._preparation.dtype)
        labels = torch.empty(n, dtype=torch.float64)
        ends = offsets_of(sizes)
        bounds = np.flatnonzero(np.diff(self.data.blocks[queries])) + 1
        pieces = np.split(np.arange(len(queries)), bounds) if n else []

        def read(piece: Integers) -> None:
            part = self.data.take(queries[piece])
            rows = slice(int(ends[piece[0]]), int(ends[piece[-1] + 1]))
            self._preparation(part.X, features[rows])
            labels[rows] = torch.from_numpy(part.y)

        for _ in ahead((partial(read, piece) for piece in pieces), self._threads, self._threads):
            pass
        return _Loaded(queries, sizes, ends[:-1], features, labels)

    def shard(self, queries: Integers) -> Shard:
        """The given queries, read now."""
        part = self.data.take(queries)
        return Shard(self._preparation(part.X), torch.from_numpy(part.y), None)

    def spans(self, spans: Sequence[Integers]) -> Iterator[tuple[Tensor | NDArray[Any], TrainingSet]]:
        for part in ahead(partial(self.data.take, span) for span in spans):
            yield part.X, part


@dataclass(frozen=True, eq=False)
class _Loaded:
    """Rows of some queries of a stored set, in memory."""

    queries: Integers
    sizes: Integers
    starts: Integers
    features: Tensor
    labels: Tensor

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        for part in parts:
            at = np.searchsorted(self.queries, part)
            index = torch.from_numpy(_rows_of(at, self.starts, self.sizes))
            yield Shard(self.features[index], self.labels[index], None)


@dataclass(frozen=True, eq=False)
class _Unread:
    """Rows of a stored set, read shard by shard, one ahead of the one in use."""

    feed: Streamed

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        return ahead(partial(self.feed.shard, part) for part in parts)


def feed_of(data: Data, preparation: Preparation, threads: int = 1) -> Held | Streamed:
    """The feed of queries in memory, or of stored ones: these are held in memory where they are few."""
    if isinstance(data, TrainingSet):
        return Held(data, preparation)
    if data.n_bytes <= HELD_BYTES:
        return Held(data.load(), preparation)
    return Streamed(data, preparation, threads)


def spans_of(feed: Feed) -> list[Integers]:
    """All queries in their order, cut into what is judged at once."""
    return cut(np.arange(len(feed.sizes)), feed.sizes, _SPAN_ROWS) if len(feed.sizes) else []


def training_moments(
    part: Data | None, n_features: int, transform: str, threads: int, processes: OneProcess
) -> Moments:
    """Moments of all training rows after the transform; processes with the same rows share the work.

    They are taken of chunks of consecutive rows and put together in their order.
    """
    nothing = Moments(0, np.zeros(n_features), np.zeros(n_features))
    with processes.together():
        n_rows = 0 if part is None else int(sizes_of(part).sum())
        n = -(-n_rows // MOMENT_ROWS)
        mine = range(n) if processes.own else processes.share(n)
        found = [] if part is None else _chunk_moments(part, mine, transform, threads)
        if processes.own:
            n, found = 1, [reduce(add, found, nothing)]
    most = n if processes.own else -(-n // processes.size)
    found += [nothing] * (most - len(found))
    vectors = processes.gather(np.stack([chunk.vector() for chunk in found]))
    return reduce(add, map(Moments.from_vector, vectors.reshape(-1, 1 + 2 * n_features)), nothing)


def _chunk_moments(data: Data, chunks: range, transform: str, threads: int) -> list[Moments]:
    """The moments of each of these chunks of consecutive rows."""
    ends = offsets_of(sizes_of(data))

    def of(chunk: int) -> Moments:
        first, last = chunk * MOMENT_ROWS, min((chunk + 1) * MOMENT_ROWS, int(ends[-1]))
        if isinstance(data, TrainingSet):
            return Moments.of(data.X[first:last], transform)
        begin = int(np.searchsorted(ends, first, side="right")) - 1
        end = int(np.searchsorted(ends, last))
        rows = data.take(np.arange(begin, end)).X[first - int(ends[begin]) : last - int(ends[begin])]
        return Moments.of(rows, transform)

    return list(ahead((partial(of, chunk) for chunk in chunks), threads, threads))


def _rows_of(queries: Integers, starts: Integers, sizes: Integers) -> Integers:
    """The rows of these queries, one query after the other."""
    counts = sizes[queries]
    ends = np.cumsum(counts)
    rows: Integers = np.arange(int(ends[-1])) + np.repeat(starts[queries] - (ends - counts), counts)
    return rows
