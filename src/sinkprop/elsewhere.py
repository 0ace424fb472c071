"""What a fit may be given in place of arrays: stored sets, files, frames of a cluster."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sinkprop.data import Queries

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "as_stored",
    "cloned",
    "in_memory",
    "is_elsewhere",
    "is_files",
    "is_frame_of_cluster",
    "is_stored_set",
    "no_arrays",
    "portable",
]

E = TypeVar("E")


def is_elsewhere(X: Any) -> bool:
    """Whether X is anything but rows in memory."""
    return is_stored_set(X) or is_files(X) or is_frame_of_cluster(X)


def is_stored_set(X: Any) -> bool:
    """Whether it is a stored set, or what can only be the path of one."""
    return isinstance(X, str | os.PathLike) or hasattr(X, "block_queries")


def is_files(X: Any) -> bool:
    """Whether it is a list of paths."""
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(p, str | os.PathLike) for p in X)


def is_frame_of_cluster(X: Any) -> bool:
    """Whether it is a Dask DataFrame, told without an import of Dask."""
    return hasattr(X, "npartitions") and hasattr(X, "to_delayed") and hasattr(X, "columns")


def as_stored(X: Any) -> StoredQueries | None:
    """The stored set that is given, itself or by its path; None for anything else."""
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        return open_queries(X)
    return X if is_stored_set(X) else None


def no_arrays(X: Any, *, y: Any, qid: Any, group: Any, sample_weight: Any, cluster: bool = False) -> None:
    """A ValueError where arrays were given beside queries that have their own.

    cluster  whether the fit is on one, where X may be a Dask DataFrame
    """
    if not cluster:
        _no_frame_of_cluster(X)
    what, given = "a Dask DataFrame", {"group": group, "sample_weight": sample_weight}
    if not is_frame_of_cluster(X):  # of which y and qid are columns
        what, given = "a stored set" if is_stored_set(X) else "a list of files", {"y": y, "qid": qid, **given}
    for name, value in given.items():
        if value is None:
            continue
        has = "no row weights: give query_weight" if name == "sample_weight" else "its own"
        raise ValueError(f"fit: give no {name} with {what}, which has {has}.")


def _no_frame_of_cluster(X: Any) -> None:
    if is_frame_of_cluster(X):
        raise ValueError(
            "X is a Dask DataFrame: give cluster=, as SinkPropRanker(cluster=client), or take X.compute(), "
            "which has its rows in memory."
        )


def in_memory(X: Any) -> Queries:
    """A stored set, or files of LETOR text, as arrays to train on or to judge by."""
    stored = as_stored(X)
    if stored is not None:
        stored.require_labels("training")
        stored.verify()
        return stored.load()
    _no_frame_of_cluster(X)
    return _read(X)


def _read(paths: Sequence[Any]) -> Queries:
    """The queries of several files of LETOR text; a query in two of them is an error."""
    from sinkprop.readers import load_letor

    parts = [load_letor(path) for path in paths]
    first: dict[Any, int] = {}
    for i, (path, part) in enumerate(zip(paths, parts, strict=True)):
        if part.n_features != parts[0].n_features:
            raise ValueError(
                f"{os.fspath(path)} has {part.n_features} features, but {os.fspath(paths[0])} has "
                f"{parts[0].n_features}. If lines leave out zeros, convert the files by `sinkprop convert` "
                f"with --n-features {max(part.n_features, parts[0].n_features)}."
            )
        for query in part.groups.queries.tolist():
            if first.setdefault(query, i) != i:
                raise ValueError(
                    f"query {query!r} is in two files, {os.fspath(paths[first[query]])} and "
                    f"{os.fspath(path)}. Put its documents into one."
                )
    X, y, qid = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "qid"))
    return Queries(X, y, qid)


def cloned(ranker: Any, clone: Any) -> Any:
    """A clone that works on the same cluster: a client is no parameter to copy."""
    bare = copy.copy(ranker)
    bare.cluster = None
    made = clone(bare)
    made.cluster = ranker.cluster
    return made


def portable(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a ranker with the address of its cluster in place of a connection to it."""
    cluster = state.get("cluster")
    if cluster is None or isinstance(cluster, str | int):
        return state
    address = getattr(cluster, "scheduler_address", None)
    if address is None:
        address = getattr(getattr(cluster, "scheduler", None), "address", None)
    return {**state, "cluster": address}
