"""Partitions of whole queries on a worker, and tasks carried out over them."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sinkprop.cluster.reduction import Node, reduced
from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import Block, Team, combined, consecutive, cut
from sinkprop.data.feature_scaling import scale_by_query
from sinkprop.data.queries import Queries
from sinkprop.data.training_set import TrainingSet

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "FitPartition",
    "Held",
    "Partition",
    "Share",
    "Stored",
    "Summary",
    "blocks",
    "evaluate",
    "load_frame_partition",
    "load_letor_partition",
    "queries_of",
    "see",
    "share",
    "sorted_rows",
    "summarize",
    "unseen",
    "verify",
]

_BLOCK = 1 << 22  # bytes of features per block; a thread works on one block at a time
_FEW = 16  # a worker combines the results of its partitions only when more than this many are in memory


@dataclass(frozen=True, eq=False, repr=False)
class Held:
    """A partition in memory: rows sorted by query, with row weights but without query weights."""

    data: TrainingSet
    feature_names: tuple[str, ...] | None = None

    def __sizeof__(self) -> int:
        arrays = (self.data.X, self.data.y, self.data.groups.queries, self.data.sample_weight)
        return sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True)
class Stored:
    """A partition on disk: the queries first to stop - 1 of a stored set, read when they are needed."""

    path: str
    digest: str
    first: int
    stop: int
    by_query: bool


Partition: TypeAlias = Held | Stored


@dataclass(frozen=True, eq=False)
class FitPartition:
    """Index of a partition, with the weights and codes that a fit gives to its queries.

    A code is an integer that tells tasks how to use a query, such as its fold of cross-validation.

    number        Index of the partition.
    first         Index of its first query in the whole data set.
    query_weight  Weights of its queries, or None.
    codes         Codes of its queries, or None. See `ClusterSource.with_codes`.
    """

    number: int
    first: int
    query_weight: Floats | None
    codes: NDArray[np.int16] | None


@dataclass(frozen=True, eq=False, repr=False)
class Share:
    """Share of one worker: the partitions that it works on, in order.

    entries     Index of each partition, with the weights and codes of its queries. A code is an integer that
                tells tasks how to use a query.
    partitions  Data of each partition.
    held        For partitions that are in memory: the partition's blocks (groups of whole queries, on which
                a task is run separately), by the partition's index.
    """

    entries: tuple[FitPartition, ...]
    partitions: tuple[Partition, ...]
    held: dict[int, list[Block]]

    # Dask asks for the memory that a share uses. The partitions are left out of it, because Dask already
    # counts them as results of the tasks that loaded them.
    def __sizeof__(self) -> int:
        extras = [array for entry in self.entries for array in (entry.query_weight, entry.codes)]
        return 200 * len(self.entries) + sum(array.nbytes for array in extras if array is not None)


@dataclass(frozen=True, eq=False)
class Summary:
    """Metadata of a partition that a worker sends to the client."""

    n_rows: int
    n_features: int
    feature_names: tuple[str, ...] | None
    queries: NDArray[Any]
    sizes: Integers
    digest: str


def share(entries: Sequence[FitPartition], *partitions: Partition) -> Share:
    """Return a `Share`: the partitions that one worker works on, divided into blocks if they are in memory.

    Blocks of partitions in memory live as long as the share, so that later tasks can use results that an
    earlier task stored in a block; see `Block.keep`.
    """
    held = {
        entry.number: _held_blocks(entry, partition)
        for entry, partition in zip(entries, partitions, strict=True)
        if isinstance(partition, Held)
    }
    return Share(tuple(entries), partitions, held)


def evaluate(own: Share, task: bytes, n: int) -> dict[Node, Any]:
    """Run a pickled task on the partitions of one worker, and return the results, partly combined.

    The results of all partitions are the leaves of a binary tree, in which a node's result combines those of
    its two children; see `sinkprop.cluster.reduction`. If this worker has the results of both children, it
    combines them and drops the two. The nodes that are left are returned as {(level, i): result}, for node i
    of a level; leaves have level 0.

    own  The partitions of this worker.
    n    Number of partitions of the whole data set.
    """
    from distributed import get_worker

    run = pickle.loads(task)
    nodes: dict[Node, Any] = {}
    most = _FEW
    with closing(Team(get_worker().state.nthreads)) as team:
        parts = team.results(lambda each: (each[0], run(each[1])), blocks(own))
        for number, of_partition in groupby(parts, key=itemgetter(0)):
            nodes[0, number] = combined((part for _, part in of_partition), run.combine)
            if len(nodes) > most:
                nodes = reduced(nodes, n, run.combine)
                most = max(_FEW, 2 * len(nodes))
    return reduced(nodes, n, run.combine)


def blocks(own: Share) -> Iterator[tuple[int, Block]]:
    """Yield (index of the partition, block) for each block of the partitions that a worker works on."""
    at = 0
    while at < len(own.entries):
        partition = own.partitions[at]
        if isinstance(partition, Held):
            number = own.entries[at].number
            yield from ((number, block) for block in own.held[number])
            at += 1
            continue
        run = at + 1  # consecutive partitions of a stored set are read in one pass
        while run < len(own.entries) and _follows(own.partitions[run - 1], own.partitions[run]):
            run += 1
        yield from _stored_blocks(own.entries[at:run], own.partitions[at:run])  # type: ignore[arg-type]
        at = run


def _follows(one: Partition, other: Partition) -> bool:
    """Whether the queries of `other` directly follow those of `one` in the same stored set."""
    return (
        isinstance(one, Stored)
        and isinstance(other, Stored)
        and one.path == other.path
        and one.stop == other.first
    )


def _held_blocks(entry: FitPartition, held: Held) -> list[Block]:
    """Divide a partition in memory into blocks of whole queries.

    Each block has about `_BLOCK` bytes of features.
    """
    data = held.data
    return [
        _block(data, entry, first, stop, entry.first + first)
        for first, stop in cut(data.groups.offsets, -(-data.X.nbytes // _BLOCK))
    ]


def _stored_blocks(entries: Sequence[FitPartition], parts: Sequence[Stored]) -> Iterator[tuple[int, Block]]:
    """Read consecutive partitions of a stored set; yields (index of the partition, block) for each block."""
    stored = opened(parts[0].path, parts[0].digest)
    edges = stored.block_queries
    start = int(np.searchsorted(edges, parts[0].first, side="right")) - 1
    stop = int(np.searchsorted(edges, parts[-1].stop, side="left"))
    at = 0
    for b, queries in enumerate(stored.blocks(start, stop), start):
        data = TrainingSet(queries.X, queries.y, queries.groups)
        while at < len(parts):
            first = max(parts[at].first, int(edges[b]))
            last = min(parts[at].stop, int(edges[b + 1]))
            if first < last:
                block = _block(data, entries[at], first - int(edges[b]), last - int(edges[b]), first)
                yield entries[at].number, _by_query(block) if parts[at].by_query else block
            if parts[at].stop > edges[b + 1]:
                break
            at += 1


def _by_query(block: Block) -> Block:
    """Return a copy of a block in which the features are normalized query by query."""
    data = block.data
    X = scale_by_query(data.X, data.groups)
    return Block(replace(data, X=X), block.first, block.codes)


def _block(data: TrainingSet, entry: FitPartition, first: int, stop: int, number: int) -> Block:
    """Make a block of the queries first:stop of `data`, without copying rows.

    entry   Partition of these queries, with their weights and codes.
    number  Index of the first of these queries in the whole data set.
    """
    own = slice(number - entry.first, number - entry.first + stop - first)
    weight = None if entry.query_weight is None else entry.query_weight[own]
    codes = None if entry.codes is None else entry.codes[own]
    return Block(queries_of(data, first, stop, weight), number, codes)


def queries_of(data: TrainingSet, first: int, stop: int, weight: Floats | None) -> TrainingSet:
    """Return the queries first:stop of `data`, as views of its arrays, with the query weights `weight`."""
    return replace(consecutive(data, first, stop), query_weight=weight)


def sorted_rows(queries: Queries, *, by_query: bool) -> TrainingSet:
    """Return the rows of `queries`, sorted by query.

    If `by_query` is True, the features are normalized query by query.
    """
    X, y, groups = queries.X, queries.y, queries.groups
    if by_query:
        X = scale_by_query(X, groups)
    if groups.rows is not None:
        X, y = X[groups.rows], y[groups.rows]
        groups = groups.sorted
    return TrainingSet(X, y, groups)


def load_letor_partition(path: str, n_features: int | None, by_query: bool, allow_nan: bool = False) -> Held:
    """Load a LETOR file as a partition.

    n_features  Number of features; None means the largest feature id in the file.
    by_query    Whether to normalize the features query by query.
    allow_nan   Whether values may be missing, that is, written NULL.
    """
    from sinkprop.data.letor import load_letor

    queries = load_letor(path, n_features=n_features, allow_nan=allow_nan)
    return Held(sorted_rows(queries, by_query=by_query))


def load_frame_partition(
    frame: Any, label: Any, qid: Any, name: str, by_query: bool, single: bool, allow_nan: bool = False
) -> Held | None:
    """Make a partition from one partition of a Dask DataFrame; returns None if it has no rows.

    label, qid  Labels and query ids: each is a column name of `frame`, or a series with one value per row.
    name        Name of the partition in error messages.
    by_query    Whether to normalize the features query by query.
    single      Whether to keep features in single precision; otherwise they become double precision.
    allow_nan   Whether features may be missing or NaN.
    """
    from sinkprop.data.frames import load_frame

    if not len(frame):
        return None
    named = {}
    for role, given in (("label", label), ("qid", qid)):
        if isinstance(given, str):
            named[role] = given
            # set_index has made this column the frame's index: make it a column again
            if given not in frame.columns and given == frame.index.name:
                frame = frame.reset_index()
        else:
            named[role] = f"__{role}__"
            if len(given) != len(frame):
                raise ValueError(f"{name}: {len(frame)} rows, but {len(given)} values of {role}.")
            frame = frame.assign(**{named[role]: given.to_numpy()})
    try:
        queries = load_frame(frame, qid=named["qid"], label=named["label"], allow_nan=allow_nan)
        if queries.categories:
            raise ValueError(
                f"column {next(iter(queries.categories))!r} holds categories, whose codes may differ between "
                "the partitions of a Dask DataFrame. Leave it out, encode it as numbers, or convert the data "
                "to a stored set."
            )
        wanted = np.float32 if single else np.float64
        if queries.X.dtype != wanted:
            queries = replace(queries, X=queries.X.astype(wanted))
        return Held(sorted_rows(queries, by_query=by_query), queries.feature_names)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def summarize(held: Held | None) -> Summary | None:
    """Describe a partition for the client; returns None if the partition is empty."""
    if held is None:
        return None
    data = held.data
    digest = hashlib.sha256()
    for array in (data.X, data.y, data.groups.offsets):
        digest.update(repr((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    n, n_features = data.X.shape
    return Summary(
        n,
        n_features,
        held.feature_names,
        data.groups.queries,
        data.groups.sizes,
        digest.hexdigest(),
    )


@lru_cache(maxsize=16)
def opened(path: str, digest: str) -> StoredQueries:
    """Open the stored set at a path; raises a ValueError if it does not have the checksum `digest`."""
    from sinkprop.store import open_queries

    stored = open_queries(path)
    if stored.digest != digest:
        raise ValueError(f"{path}: not the set that the fit was started with: its checksums differ.")
    return stored


def see(path: str, digest: str) -> None:
    """Raise an error if this worker cannot open the stored set, or if its checksum is not `digest`."""
    opened.cache_clear()  # the set may have been replaced since an earlier fit opened it
    opened(path, digest)


def verify(path: str, digest: str, number: int) -> None:
    """Raise a StoreError if the data file with the index `number` of a stored set has a wrong checksum."""
    from sinkprop.store import StoredQueries

    stored = opened(path, digest)
    part = replace(stored.manifest, parts=(stored.manifest.parts[number],))
    StoredQueries(stored.path, part).verify(n_threads=1)


def unseen(paths: Sequence[str]) -> str | None:
    """First path that does not exist on this worker, or None."""
    return next((path for path in paths if not os.path.exists(path)), None)
