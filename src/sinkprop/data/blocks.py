"""Blocks of whole queries, and sources that run tasks on them: in memory, from a file, on a cluster.

A source holds blocks of whole queries and can run a task on each of them. Everything that a linear fit
computes from its queries is such a task (`linear/tasks.py`), so a fit does not depend on where the queries
are: in memory, in a file or on a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import threads
from sinkprop.common.types import Floats, Integers
from sinkprop.data.feature_scaling import scale_by_query
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet, fingerprint

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "ArraySource",
    "Block",
    "Source",
    "StoredSource",
    "Task",
    "Team",
    "combined",
    "consecutive",
    "cut",
    "one_blas_thread",
    "rows_digest",
]

B = TypeVar("B")
P = TypeVar("P")

# Size of a block: so small that its features are still in the cache when the gradient is computed.
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive queries of a larger set, each with all its rows.

    data   Rows of the queries, sorted by query.
    first  Index of the first query in the whole set.
    codes  (q,) number of the path that validates on each query. A path is one of several fits that run side
           by side, such as those of cross-validation; paths are numbered from 0. The path codes[i] validates
           on query i, and all other paths train on it. If codes[i] is `NO_PATH`, no path validates on query
           i, and all paths train on it. If `codes` is None, every path trains and validates on all queries.
    """

    data: TrainingSet
    first: int
    codes: NDArray[np.int16] | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def keep(self, name: Any, make: Callable[[], P]) -> P:
        """Return the cached result for this name; the first call computes it as make()."""
        if name not in self._kept:
            self._kept[name] = make()
        made: P = self._kept[name]
        return made

    def trained(self, path: int) -> Groups | None:
        """Queries of this block on which a path trains; None if there are none.

        A path is one of several fits that run side by side, such as those of cross-validation. `path` is its
        number.
        """
        if self.codes is None:
            return self.data.groups
        return self.keep(("trained", path), lambda: _chosen(self.data.groups, self.codes != path))

    def validation(self, path: int) -> Groups | None:
        """Queries of this block on which a path validates; None if there are none.

        A path is one of several fits that run side by side, such as those of cross-validation. `path` is its
        number.
        """
        if self.codes is None:
            return self.data.groups
        return self.keep(("validation", path), lambda: _chosen(self.data.groups, self.codes == path))


def _chosen(groups: Groups, chosen: Any) -> Groups | None:
    if chosen.all():
        return groups
    if not chosen.any():
        return None
    sizes = groups.sizes
    rows = np.flatnonzero(np.repeat(chosen, sizes))
    return Groups.of_sizes(sizes[chosen], groups.queries[chosen], rows)


class Task(Protocol[P]):
    """A computation that is run on each block. It is sent to the process that holds the block."""

    def __call__(self, block: Block) -> P: ...

    def combine(self, parts: Sequence[P]) -> P:
        """Combine the results on several blocks, given in the order of the blocks."""


class Source(Protocol):
    """Queries cut into blocks.

    sizes          (Q,) number of documents of each query.
    query_weight   (Q,) query weights, or None.
    weighted_rows  Whether the rows have weights.
    digest         Hash of the contents of the rows.
    """

    @property
    def n_rows(self) -> int: ...
    @property
    def n_queries(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def sizes(self) -> Integers: ...
    @property
    def query_weight(self) -> Floats | None: ...
    @property
    def weighted_rows(self) -> bool: ...
    @property
    def digest(self) -> str: ...

    def with_codes(self, codes: NDArray[np.int16]) -> Source:
        """Return a source of the same queries, whose blocks have the given `codes`.

        `codes` (Q,) holds, for each query, the number of the fit that validates on it; all other fits train
        on it. See `Block`.
        """

    def run(self, task: Task[P]) -> P:
        """Run the task on every block and combine the results in the order of the blocks."""

    def close(self) -> None:
        """Stop the threads of the source and free its other resources."""


class ArraySource:
    """Queries in memory. Each block is a view of their rows, and several threads work on the blocks."""

    def __init__(self, data: TrainingSet, n_threads: int | None = None) -> None:
        self.data = data
        self._team = Team(threads(n_threads, len(data.y)))
        self.blocks = [Block(consecutive(data, a, b), a) for a, b in _cuts(data, self._team.n_threads)]

    @property
    def n_rows(self) -> int:
        return len(self.data.y)

    @property
    def n_queries(self) -> int:
        return self.data.n_queries

    @property
    def n_features(self) -> int:
        return int(self.data.X.shape[1])

    @property
    def longest(self) -> int:
        return self.data.groups.longest

    @property
    def sizes(self) -> Integers:
        return self.data.groups.sizes

    @property
    def query_weight(self) -> Floats | None:
        return self.data.query_weight

    @property
    def weighted_rows(self) -> bool:
        return self.data.sample_weight is not None

    @property
    def digest(self) -> str:
        return rows_digest(self.data)

    def with_codes(self, codes: NDArray[np.int16]) -> ArraySource:
        other = object.__new__(ArraySource)
        other.data, other._team = self.data, self._team
        other.blocks = [
            Block(block.data, block.first, codes[block.first : block.first + block.data.n_queries])
            for block in self.blocks
        ]
        return other

    def with_features(self, X: NDArray[Any]) -> ArraySource:
        """Return a source of the same queries with other features X; it uses the threads of this source."""
        other = object.__new__(ArraySource)
        other.data, other._team = replace(self.data, X=X), self._team
        other.blocks = [
            Block(consecutive(other.data, block.first, block.first + block.data.n_queries), block.first)
            for block in self.blocks
        ]
        return other

    def run(self, task: Task[P]) -> P:
        return combined(self._team.results(task, self.blocks), task.combine)

    def close(self) -> None:
        self._team.close()


class StoredSource:
    """Queries of a stored set. Blocks are read ahead of the computation, and only a few are in memory."""

    def __init__(
        self,
        stored: StoredQueries,
        n_threads: int | None = None,
        *,
        by_query: bool = False,
        query_weight: Floats | None = None,
    ) -> None:
        self.stored, self.query_weight, self._by_query = stored, query_weight, by_query
        self._team = Team(threads(n_threads, stored.n_rows))
        self._codes: NDArray[np.int16] | None = None

    n_rows = property(lambda self: int(self.stored.n_rows))
    n_queries = property(lambda self: int(self.stored.n_queries))
    n_features = property(lambda self: int(self.stored.n_features))
    longest = property(lambda self: int(self.stored.longest))
    weighted_rows = False

    @property
    def sizes(self) -> Integers:
        return self.stored.sizes

    @property
    def digest(self) -> str:
        return self.stored.digest

    def with_codes(self, codes: NDArray[np.int16]) -> StoredSource:
        other = object.__new__(StoredSource)
        other.__dict__.update(self.__dict__)
        other._codes = codes
        return other

    def run(self, task: Task[P]) -> P:
        return combined(self._team.results(task, self._blocks()), task.combine)

    def close(self) -> None:
        self._team.close()

    def _blocks(self) -> Iterator[Block]:
        firsts = self.stored.block_queries[:-1].tolist()
        ahead = self._team.n_threads + 1
        for first, queries in zip(firsts, self.stored.blocks(ahead=ahead), strict=True):
            X = scale_by_query(queries.X, queries.groups) if self._by_query else queries.X
            last = first + queries.n_queries
            weight = None if self.query_weight is None else self.query_weight[first:last]
            codes = None if self._codes is None else self._codes[first:last]
            yield Block(TrainingSet(X, queries.y, queries.groups, None, weight), first, codes)


def combined(parts: Iterable[P], combine: Callable[[Sequence[P]], P]) -> P:
    """Combine a stream of n results pairwise, in order; at most log2(n) + 1 of them are in memory at a time.

    >>> combined(iter("abcde"), "".join)
    'abcde'
    """
    stack: list[tuple[int, P]] = []  # pairs (level, combination of 2**level results), by decreasing level
    for part in parts:
        level = 0
        while stack and stack[-1][0] == level:
            part = combine([stack.pop()[1], part])  # noqa: PLW2901
            level += 1
        stack.append((level, part))
    if not stack:
        return combine([])
    total = stack.pop()[1]
    while stack:
        total = combine([stack.pop()[1], total])
    return total


def rows_digest(data: TrainingSet) -> str:
    """Return a hash of the contents of a training set in memory, without its query weights."""
    return fingerprint("rows", replace(data, query_weight=None))


class Team:
    """A pool of threads, each of which works on one block at a time."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="sinkprop") if n_threads > 1 else None

    def results(self, task: Callable[[B], P], blocks: Iterable[B]) -> Iterator[P]:
        """Yield the result of the task on each block, in order.

        Blocks are fetched when they are needed, only a few ahead of the results.
        """
        if self._pool is None or (isinstance(blocks, Sequence) and len(blocks) == 1):
            for block in blocks:
                yield task(block)
            return
        waiting: deque[Future[P]] = deque()
        try:
            for block in blocks:
                if len(waiting) > self.n_threads:
                    yield waiting.popleft().result()
                waiting.append(self._pool.submit(task, block))
            while waiting:
                yield waiting.popleft().result()
        finally:  # after an error or an interrupt, do not start work on the waiting blocks
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context manager: limit BLAS to one thread, because several threads already work on blocks."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


def _cuts(data: TrainingSet, n_threads: int) -> list[tuple[int, int]]:
    """Return the range (first, stop) of the queries of each block.

    Each thread gets equally many blocks, and each block fits in the cache. More blocks would be slower: every
    block needs some Python code, and while one thread runs Python code the other threads wait.
    """
    total = len(data.y) * data.X.shape[1] * data.X.itemsize
    count = max(1, -(-total // _BLOCK_BYTES))
    if total >> 16 >= n_threads:
        count = -(-count // n_threads) * n_threads
    return cut(data.groups.offsets, count)


def cut(offsets: Integers, n: int) -> list[tuple[int, int]]:
    """Cut queries into at most n ranges (first, stop) of queries, with about equally many rows each.

    `offsets` (Q + 1,) holds the first row of each query, and the end of the last.

    >>> cut(np.array([0, 1, 2, 8, 9, 10]), 2)
    [(0, 3), (3, 5)]
    """
    wanted = offsets[0] + np.arange(1, n) * (offsets[-1] - offsets[0]) / max(n, 1)
    inner = np.searchsorted(offsets, wanted, side="left")
    edges = np.unique(np.concatenate([[0], inner, [len(offsets) - 1]])).tolist()
    return list(pairwise(edges))


def consecutive(data: TrainingSet, first: int, last: int) -> TrainingSet:
    """Return the queries first, ..., last - 1 of a training set, with views of its arrays."""
    if (first, last) == (0, data.n_queries):
        return data
    offsets = data.groups.offsets[first : last + 1]
    rows = slice(int(offsets[0]), int(offsets[-1]))
    groups = Groups.of_sizes(np.diff(offsets), data.groups.queries[first:last])
    return replace(
        data,
        X=data.X[rows],
        y=data.y[rows],
        groups=groups,
        sample_weight=None if data.sample_weight is None else data.sample_weight[rows],
        query_weight=None if data.query_weight is None else data.query_weight[first:last],
        columns=None if data.columns is None else data.columns[rows],
    )
