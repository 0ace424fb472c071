"""Rows of minibatches, from memory or from a stored set that is read ahead of the training.

A feed takes indices of queries and returns the rows of these queries, prepared for the network. There are two
kinds. `Held` keeps all rows in memory. `Streamed` reads a stored set again in every epoch. It shuffles the
blocks of the file (runs of queries that are read together) and groups them into windows of at most
WINDOW_BYTES. It then shuffles the queries within each window. A thread reads the next window while the
network trains on the current one. So only whole blocks are read, and at most two windows are in memory. With
the default block size, the queries of a minibatch come from about thirty blocks.
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
from sinkprop.data.missing import MissingValues, has_missing, learned_from
from sinkprop.data.queries import Groups, offsets_of
from sinkprop.data.training_set import TrainingSet
from sinkprop.torch.neural.preparation import MOMENT_ROWS, Known, Moments, Preparation
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.scoring import cut
from sinkprop.torch.neural.stored import Data, StoredSet, sizes_of

__all__ = [
    "Feed",
    "Held",
    "Rows",
    "Shard",
    "Streamed",
    "ahead",
    "feed_of",
    "missing_values",
    "spans_of",
    "training_moments",
]

T = TypeVar("T")
M = TypeVar("M", Moments, Known)

HELD_BYTES = 1 << 28  # stored features of up to this size are held in memory
WINDOW_BYTES = 1 << 28  # largest size of a window (queries that are read and shuffled together)
_SPAN_ROWS = 1 << 16  # largest number of rows that one call scores for validation


@dataclass(frozen=True, eq=False)
class Shard:
    """Whole queries prepared for a network: features (n, D), labels (n,) and row weights (n,) or None."""

    features: Tensor
    labels: Tensor
    sample_weight: Tensor | None


class Rows(Protocol):
    """Source of rows: returns the rows of queries, given the indices of the queries.

    Several threads may use it in parallel.
    """

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        """Yield, for each array of query indices in `parts`, the rows of these queries as one `Shard`."""


class Feed(Protocol):
    """Object from which a network gets the queries for its training or validation.

    The rows of the queries are in memory or on disk.

    sizes   (Q,) number of documents of each query
    weight  (Q,) query weights; None if all are 1
    """

    sizes: Integers
    weight: Floats | None

    def windows(self, rng: np.random.Generator) -> list[Integers]:
        """Return the indices of all queries in random order, as a list of windows.

        A window is an array of indices of queries that are read from disk together.
        """

    def sources(self, groups: Sequence[Sequence[Integers]]) -> Iterator[Rows]:
        """Yield, for each minibatch of each group in turn, a `Rows` object that returns the minibatch's rows.

        A minibatch is an array of query indices. All minibatches of a group are read from disk together.
        """

    def everything(self) -> Rows:
        """Return a `Rows` object that returns the rows of any query.

        It is meant for reading all queries in the order in which they are stored.
        """

    def spans(self, spans: Sequence[Integers]) -> Iterator[tuple[Tensor | NDArray[Any], TrainingSet]]:
        """Yield, for each span, its rows and a `TrainingSet` with its labels and weights, for validation.

        A span is an array of indices of consecutive queries. The rows are a tensor if they are prepared for
        the network, and an array if they are raw features. The features of the `TrainingSet` are not used.
        """


def ahead(calls: Iterable[Callable[[], T]], depth: int = 1, threads: int = 1) -> Iterator[T]:
    """Yield the results of the calls in order, while threads already compute the next `depth` results."""
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
    """A `Feed` that keeps all rows in memory.

    A network gets the queries for its training or validation from a feed.
    """

    def __init__(self, data: TrainingSet, preparation: Preparation) -> None:
        self.sizes, self.weight = np.diff(data.groups.offsets), data.query_weight
        self._data, self._offsets, self._sample_weight = data, data.groups.offsets, data.sample_weight
        self._rows, self._preparation = preparation.kept(data.X), preparation
        self._labels = torch.from_numpy(data.labels)

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
            y, columns = self._data.y[rows], self._data.columns
            columns = None if columns is None else columns[rows]
            yield self._rows[rows], TrainingSet(np.empty((len(y), 0)), y, groups, weight, columns=columns)


class Streamed:
    """A `Feed` that reads rows from a stored set on disk when they are needed.

    A network gets the queries for its training or validation from a feed.
    """

    def __init__(self, data: StoredSet, preparation: Preparation, threads: int = 1) -> None:
        self.data = data
        self.sizes, self.weight = data.sizes, data.query_weight
        self._preparation, self._threads = preparation, threads
        self._row_bytes = 4 * max(data.n_features, 1)

    def windows(self, rng: np.random.Generator) -> list[Integers]:
        found = self._windows(rng)
        # If all queries are in one window, use the same random order as for queries in memory (`Held`).
        if len(found) == 1:
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
        """Yield, for each minibatch of each group in turn, a `Rows` object that returns the minibatch's rows.

        A minibatch is an array of query indices. A thread reads the next group while the current one is in
        use. If a group takes more than twice WINDOW_BYTES, its rows are read only when they are asked for.
        """

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
        """Read the rows of these queries, prepare them for the network, and return them as a `Rows` object.

        `queries` must be increasing.
        """
        sizes = self.sizes[queries]
        n = int(sizes.sum())
        features = torch.empty((n, self._preparation.n_columns), dtype=self._preparation.dtype)
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
        """Read the given queries from disk, and return their prepared rows as one `Shard`."""
        part = self.data.take(queries)
        return Shard(self._preparation(part.X), torch.from_numpy(part.y), None)

    def spans(self, spans: Sequence[Integers]) -> Iterator[tuple[Tensor | NDArray[Any], TrainingSet]]:
        for part in ahead(partial(self.data.take, span) for span in spans):
            yield part.X, part


@dataclass(frozen=True, eq=False)
class _Loaded:
    """Rows of some queries of a stored set that have been read into memory."""

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
    """Rows of a stored set that are read from disk only when `shards` asks for them.

    While one shard (the rows of some queries) is in use, a thread reads the next one.
    """

    feed: Streamed

    def shards(self, parts: Sequence[Integers]) -> Iterator[Shard]:
        return ahead(partial(self.feed.shard, part) for part in parts)


def feed_of(data: Data, preparation: Preparation, threads: int = 1) -> Held | Streamed:
    """Return the object from which the training or validation reads the queries of `data`.

    It is `Held`, which keeps all rows in memory, if the rows are in memory already or take at most
    HELD_BYTES. Otherwise it is `Streamed`, which reads rows from disk when they are needed.
    """
    if isinstance(data, TrainingSet):
        return Held(data, preparation)
    if data.n_bytes <= HELD_BYTES:
        return Held(data.load(), preparation)
    return Streamed(data, preparation, threads)


def spans_of(feed: Feed) -> list[Integers]:
    """Cut all queries, in order, into spans: runs of queries that are scored together for validation."""
    return cut(np.arange(len(feed.sizes)), feed.sizes, _SPAN_ROWS) if len(feed.sizes) else []


def training_moments(
    part: Data | None,
    n_columns: int,
    transform: str,
    missing: MissingValues | None,
    threads: int,
    processes: OneProcess,
) -> Moments:
    """Return the mean and the variation of each column (`Moments`) over the training rows of all processes.

    They are computed after the transform and the treatment of missing values.
    """
    nothing = Moments(0, np.zeros(n_columns), np.zeros(n_columns))
    of = partial(Moments.of, transform=transform, missing=missing)
    return _over_chunks(part, of, nothing, threads, processes)


def missing_values(
    treatment: str,
    part: Data | None,
    held_out: Sequence[Data],
    transform: str,
    n_features: int,
    threads: int,
    processes: OneProcess,
) -> MissingValues | None:
    """Return the treatment of missing values, learned from the training rows of all processes.

    It is None if no value is missing in the training rows `part` and the validation rows `held_out`.

    treatment  "indicator" or "mean"; see `learned_from`.
    transform  Transform of the features that has not been applied to them yet.
    """
    with processes.together():
        some = any(_has_missing(data) for data in (part, *held_out) if data is not None)
    if not processes.gather(np.array([float(some)])).any():
        return None
    nothing = Known(0, np.zeros(n_features), np.zeros(n_features))
    found = _over_chunks(part, partial(Known.of, transform=transform), nothing, threads, processes)
    return learned_from(treatment, found.n, found.sums, found.absent.astype(np.int64))


def _has_missing(data: Data) -> bool:
    return has_missing(data.X) if isinstance(data, TrainingSet) else bool(data.stored.has_nan)


def _over_chunks(
    part: Data | None, of: Callable[[NDArray[Any]], M], nothing: M, threads: int, processes: OneProcess
) -> M:
    """Return the sum of a function of the training rows of all processes.

    The function is computed for chunks of consecutive rows, and the results are added in order. Processes
    that have the same rows share the work.
    """
    with processes.together():
        n_rows = 0 if part is None else int(sizes_of(part).sum())
        n = -(-n_rows // MOMENT_ROWS)
        mine = range(n) if processes.own else processes.share(n)
        found = [] if part is None else _of_chunks(part, mine, of, threads)
        if processes.own:
            n, found = 1, [reduce(add, found, nothing)]
    most = n if processes.own else -(-n // processes.size)
    found += [nothing] * (most - len(found))
    vectors = processes.gather(np.stack([chunk.vector() for chunk in found]))
    return reduce(add, map(nothing.from_vector, vectors.reshape(-1, len(nothing.vector()))), nothing)


def _of_chunks(data: Data, chunks: range, of: Callable[[NDArray[Any]], M], threads: int) -> list[M]:
    """Return the function `of` the rows of each chunk; `chunks` are the indices of the chunks.

    Chunk i consists of MOMENT_ROWS consecutive rows, from row i * MOMENT_ROWS on.
    """
    ends = offsets_of(sizes_of(data))

    def of_chunk(chunk: int) -> M:
        first, last = chunk * MOMENT_ROWS, min((chunk + 1) * MOMENT_ROWS, int(ends[-1]))
        if isinstance(data, TrainingSet):
            return of(data.X[first:last])
        begin = int(np.searchsorted(ends, first, side="right")) - 1
        end = int(np.searchsorted(ends, last))
        return of(data.take(np.arange(begin, end)).X[first - int(ends[begin]) : last - int(ends[begin])])

    return list(ahead((partial(of_chunk, chunk) for chunk in chunks), threads, threads))


def _rows_of(queries: Integers, starts: Integers, sizes: Integers) -> Integers:
    """Indices of the rows of these queries, query by query."""
    counts = sizes[queries]
    ends = np.cumsum(counts)
    rows: Integers = np.arange(int(ends[-1])) + np.repeat(starts[queries] - (ends - counts), counts)
    return rows
