"""A plan that divides a user's data into partitions of whole queries, and checks of the data before a fit."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.cluster.calls import call
from sinkprop.cluster.connecting import ask, workers_of
from sinkprop.cluster.partitions import (
    Held,
    Stored,
    Summary,
    load_frame_partition,
    queries_of,
    see,
    sorted_rows,
    summarize,
    unseen,
    verify,
)
from sinkprop.cluster.placement import Arrays, File, Frame, InFile, Placement, Recipe
from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import cut, rows_digest
from sinkprop.data.checks import as_query_weight
from sinkprop.data.kinds import is_files, is_frame_of_cluster
from sinkprop.data.queries import Groups, Queries
from sinkprop.data.training_set import TrainingSet, fingerprint

if TYPE_CHECKING:
    from distributed import Client

    from sinkprop.store import StoredQueries

__all__ = ["Plan", "plan_of"]

# Least and greatest number of partitions, and bytes of features per partition of an array. The number of
# partitions depends only on the data, so that the result does not depend on the cluster. It is large enough
# to share the work evenly, and small enough to describe all partitions in one message.
_LEAST, _MOST, _BYTES = 64, 4096, 8 << 20


@dataclass(frozen=True, eq=False)
class Plan:
    """Partitions of a data set, and the metadata of its queries.

    recipes        Instructions to make each partition, see `Recipe`.
    first          Index of the first query of each partition; the last entry is the number of queries.
    rows           Number of rows of each partition.
    sizes          Number of documents of each query (Q,).
    query_ids      Query ids (Q,).
    n_features     Number of features.
    feature_names  Names of the features, or None.
    digest         Checksum of the rows. A fit resumes from a checkpoint only if this checksum is the same.
    placement      Assignment of the partitions to workers, if the workers have already loaded the partitions
                   for the checks; otherwise None.
    query_weight   Query weights (Q,), if the data has them.
    weighted_rows  Whether rows have weights.
    """

    recipes: Sequence[Recipe]
    first: list[int]
    rows: list[int]
    sizes: Integers
    query_ids: NDArray[Any]
    n_features: int
    feature_names: tuple[str, ...] | None
    digest: str
    placement: Placement | None = None
    query_weight: Floats | None = None
    weighted_rows: bool = False

    @property
    def n_rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def n_queries(self) -> int:
        return len(self.sizes)

    def release(self) -> None:
        """Free the partitions that the workers loaded while the arguments of the fit were checked."""
        if self.placement is not None:
            self.placement.release()

    def weights_of_queries(self, weight: ArrayLike | Mapping[Hashable, float] | None) -> Floats | None:
        """Check the argument `weight`, and return it as query weights of shape (Q,).

        If `weight` is None, returns the query weights of the data, or None if the data has none.
        """
        if weight is None:
            return self.query_weight
        return as_query_weight(weight, Groups.of_sizes(self.sizes, self.query_ids), self.n_rows)


def plan_of(
    client: Client,
    X: Any,
    y: Any,
    qid: Any,
    *,
    by_query: bool,
    allow_nan: bool = False,
    n_features: int | None,
    name: str,
) -> Plan:
    """Make a plan for data of any kind; the arguments are those of `cluster_source`."""
    if is_frame_of_cluster(X):
        return _frames(client, X, y, qid, by_query=by_query, allow_nan=allow_nan, name=name)
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        X = open_queries(Path(X).absolute())
    if hasattr(X, "block_queries"):
        return _stored(client, X, by_query=by_query)
    if is_files(X):
        return _files(client, X, by_query=by_query, allow_nan=allow_nan, n_features=n_features)
    if isinstance(X, Queries):
        X, y, qid = X.X, X.y, X.qid
    if not isinstance(X, TrainingSet):
        if y is None or qid is None:
            raise ValueError(
                f"{name}X is an array: give y and qid with it, one label and one query id per row."
            )
        X = sorted_rows(Queries(X, y, qid, allow_nan=allow_nan), by_query=by_query)
    return _arrays(X)


def _stored(client: Client, stored: StoredQueries, *, by_query: bool) -> Plan:
    """Plan of a stored set, which the workers read from disk."""
    path, digest = os.path.abspath(stored.path), stored.digest
    _check_stored(client, stored, path)
    offsets = np.asarray(stored.offsets)
    bounds = cut(offsets, _number(len(stored.block_queries) - 1))
    recipes = [
        InFile(Stored(path, digest, first, stop, by_query), f"{path}, queries {first} to {stop - 1}")
        for first, stop in bounds
    ]
    return Plan(
        recipes,
        [first for first, _ in bounds] + [stored.n_queries],
        [int(offsets[stop] - offsets[first]) for first, stop in bounds],
        np.asarray(stored.sizes),
        np.asarray(stored.query_ids),
        stored.n_features,
        stored.feature_names,
        digest,
    )


def _check_stored(client: Client, stored: StoredQueries, path: str) -> None:
    """Check that every worker can open the stored set, and that the checksum of each of its files is right.

    Each file is read by only one of the workers.
    """
    answers = ask(client, see, path, stored.digest)
    for address in sorted(answers):
        if answers[address] is not None:
            raise ValueError(
                f"the worker {address} cannot use {path}: {_line(answers[address])} Give a path that every "
                "worker can read, such as one on a shared file system."
            )
    missing = set(range(len(stored.manifest.parts)))
    while missing:
        numbers, workers = sorted(missing), sorted(workers_of(client))
        count = len(numbers)
        places = [workers[i % len(workers)] for i in numbers]
        try:
            checked = call(
                client,
                verify,
                places,
                [path] * count,
                [stored.digest] * count,
                numbers,
                name="sinkprop-verify",
            )
        except ValueError as error:
            raise type(error)(*error.args) from None  # leave out the worker's traceback, which adds nothing
        missing -= {numbers[i] for i in checked}


def _files(
    client: Client, paths: Sequence[Any], *, by_query: bool, allow_nan: bool, n_features: int | None
) -> Plan:
    """Plan of LETOR files, one partition per file, which the workers load."""
    names = [os.path.abspath(os.fsdecode(path)) for path in paths]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"{name} is in the list of files twice; give each file once.")
        if not os.path.exists(name):
            raise FileNotFoundError(2, "No such file", name)
    for address, missing in sorted(ask(client, unseen, names).items()):
        if missing is not None:
            raise ValueError(
                f"the worker {address} does not find {missing}. Give paths that every worker can read, "
                "such as those on a shared file system."
            )
    files: list[Recipe] = [File(name, n_features, by_query, allow_nan) for name in names]
    sizes = [os.path.getsize(name) for name in names]
    return _held(client, files, Placement(client, files, sizes), hint=_FILES_HINT)


def _frames(client: Client, X: Any, y: Any, qid: Any, *, by_query: bool, allow_nan: bool, name: str) -> Plan:
    """Plan of a Dask DataFrame, one partition per partition of the frame."""
    import dask

    roles = {"y": y, "qid": qid}
    columns = [str(column) for column in X.columns]
    for role, given in roles.items():
        if isinstance(given, str):
            if given not in columns and given != X.index.name:
                raise ValueError(f"{role}={given!r} is not a column of {name}X; it has {', '.join(columns)}.")
        elif not (hasattr(given, "npartitions") and hasattr(given, "to_delayed")):
            what = "None" if given is None else type(given).__name__
            raise ValueError(
                f"{role} must be the name of a column of {name}X, or a Dask Series with the same partitions, "
                f"if {name}X is a Dask DataFrame; got {what}."
            )
        elif given.npartitions != X.npartitions:
            raise ValueError(
                f"{role} must have the {X.npartitions} partitions of {name}X; it has {given.npartitions}."
            )
    named = {given for given in roles.values() if isinstance(given, str)}
    single = all(X.dtypes[column] == np.float32 for column in X.columns if column not in named)
    count = X.npartitions
    parts = X.to_delayed()
    labels = [y] * count if isinstance(y, str) else y.to_delayed()
    ids = [qid] * count if isinstance(qid, str) else qid.to_delayed()
    call = uuid4().hex
    make = dask.delayed(load_frame_partition, pure=False)
    made = [
        make(
            parts[i], labels[i], ids[i], f"{name}X, partition {i}", by_query, single, allow_nan,
            dask_key_name=f"sinkprop-load-{call}-{i}",
        )
        for i in range(count)
    ]  # fmt: skip
    futures = client.compute(made)
    frames: list[Recipe] = [Frame(future, f"{name}X, partition {i}") for i, future in enumerate(futures)]
    key = qid if isinstance(qid, str) else "qid"
    hint = f"Put the rows of each query into one partition, for example with X.set_index({key!r})."
    return _held(client, frames, Placement(client, frames, [1] * count), hint=hint)


def _arrays(data: TrainingSet) -> Plan:
    """Plan of rows in this process, which are sent to the workers."""
    offsets = data.groups.offsets
    bounds = cut(offsets, _number(-(-data.X.nbytes // _BYTES)))
    recipes = [
        Arrays(Held(queries_of(data, first, stop, None)), f"queries {first} to {stop - 1}")
        for first, stop in bounds
    ]
    return Plan(
        recipes,
        [first for first, _ in bounds] + [data.n_queries],
        [int(offsets[stop] - offsets[first]) for first, stop in bounds],
        np.diff(offsets),
        data.groups.queries,
        int(data.X.shape[1]),
        None,
        rows_digest(data),
        query_weight=data.query_weight,
        weighted_rows=data.sample_weight is not None,
    )


_FILES_HINT = (
    "Put its documents into one file, or convert the files into one set with `sinkprop convert`, which says "
    "where they are."
)


def _held(client: Client, recipes: list[Recipe], placement: Placement, *, hint: str) -> Plan:
    """Plan of partitions that the workers load before the fit; they are freed if a check fails.

    hint  Advice at the end of the error message if a query is in two partitions.
    """
    try:
        return _compared(client, recipes, placement, hint)
    except BaseException:  # free the partitions now: the traceback would keep them alive
        placement.release()
        raise


def _compared(client: Client, recipes: list[Recipe], placement: Placement, hint: str) -> Plan:
    """Load the partitions on the workers, compare them, and return the plan of those that are not empty.

    Raises a ValueError if partitions differ in their features, if a query is in two partitions, or if all
    partitions are empty.
    """
    found: dict[int, Summary | None] = {}
    while len(found) < len(recipes):
        placement.refresh(at_once=True)
        missing = [i for i in range(len(recipes)) if i not in found]
        answers = call(
            client,
            summarize,
            [placement.where[i] for i in missing],
            [placement.loaded[i] for i in missing],
            name="sinkprop-summary",
        )
        found.update({missing[i]: summary for i, summary in answers.items()})
    kept = [i for i in range(len(recipes)) if found[i] is not None]
    if not kept:
        raise ValueError("X must hold at least one document; all of its partitions are empty.")
    summaries = [summary for i in kept if (summary := found[i]) is not None]
    names = [recipes[i].name for i in kept]
    _check_features(summaries, names)
    _check_queries(summaries, names, hint)
    placement = Placement(
        client,
        [recipes[i] for i in kept],
        [summary.n_rows for summary in summaries],
        placement.workers,
        [placement.where[i] for i in kept],
        [placement.loaded[i] for i in kept],
    )
    first = np.cumsum([0] + [len(summary.sizes) for summary in summaries]).tolist()
    digests = "\n".join(summary.digest for summary in summaries)
    return Plan(
        placement.recipes,
        first,
        [summary.n_rows for summary in summaries],
        np.concatenate([summary.sizes for summary in summaries]).astype(np.int64),
        _joined([summary.queries for summary in summaries]),
        summaries[0].n_features,
        summaries[0].feature_names,
        fingerprint(digests),
        placement,
    )


def _check_features(summaries: Sequence[Summary], names: Sequence[str]) -> None:
    """Raise a ValueError if partitions differ in the number or names of features."""
    one = summaries[0]
    for other, name in zip(summaries[1:], names[1:], strict=True):
        if other.n_features != one.n_features:
            raise ValueError(
                f"{name} has {other.n_features} features, but {names[0]} has {one.n_features}. If lines "
                f"leave out zeros, convert the files with `sinkprop convert --n-features "
                f"{max(other.n_features, one.n_features)}`."
            )
        if other.feature_names != one.feature_names:
            here, there = other.feature_names or (), one.feature_names or ()
            at = next((i for i, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), 0)
            raise ValueError(
                f"{name} has other features than {names[0]}: column {at} is {_at(here, at)} instead of "
                f"{_at(there, at)}. Give every partition the same columns in the same order."
            )


def _at(names: Sequence[str], at: int) -> str:
    return repr(names[at]) if at < len(names) else "without a name"


def _check_queries(summaries: Sequence[Summary], names: Sequence[str], hint: str) -> None:
    """Raise a ValueError if a query is in two partitions."""
    ids = _joined([summary.queries for summary in summaries])
    part = np.repeat(np.arange(len(summaries)), [len(summary.queries) for summary in summaries])
    seen: dict[Hashable, int] = {}
    if ids.dtype.kind in "iu":  # compare sorted ids: a dictionary of ten million ids takes a gigabyte
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if not len(again):
            return
        two = order[again[0]], order[again[0] + 1]
        _raise_split(ids[two[0]].item(), names[part[two[0]]], names[part[two[1]]], hint)
    for i, query in enumerate(ids.tolist()):
        if query in seen:
            _raise_split(query, names[part[seen[query]]], names[part[i]], hint)
        seen[query] = i


def _raise_split(query: Hashable, one: str, other: str, hint: str) -> None:
    raise ValueError(f"the query {query!r} is in {one} and in {other}; a query must be whole. {hint}")


def _joined(ids: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join the query ids of all partitions into one array, in which each id keeps its own type.

    `np.concatenate` alone would convert numbers to text if other ids are text.
    """
    kinds = {"i" if array.dtype.kind in "iu" else array.dtype.kind for array in ids}
    if kinds <= {"i"} or kinds <= {"U"}:
        return np.concatenate(ids)
    together = np.empty(sum(map(len, ids)), dtype=object)
    together[:] = [query for array in ids for query in array.tolist()]
    return together


def _number(blocks: int) -> int:
    """Number of partitions for data of `blocks` blocks: one per block, but at least 64 and at most 4096."""
    return int(np.clip(blocks, _LEAST, _MOST))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
