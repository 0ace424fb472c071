"""Queries that `fit` accepts instead of arrays: stored sets, files and Dask DataFrames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.data.kinds import is_frame_of_cluster, is_stored_set
from sinkprop.data.queries import Queries

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["as_stored", "in_memory", "no_arrays", "nothing_beside"]


def as_stored(X: Any) -> StoredQueries | None:
    """Return X if it is a stored set, or open it if it is the path of one. None for any other X."""
    if isinstance(X, str | os.PathLike):
        from sinkprop.store import open_queries

        return open_queries(X)
    return X if is_stored_set(X) else None


def no_arrays(X: Any, *, y: Any, qid: Any, group: Any, sample_weight: Any, cluster: bool = False) -> None:
    """Raise a ValueError if labels, query ids or row weights are given with an X that holds its own queries.

    cluster  Whether the fit runs on a cluster, so that X may be a Dask DataFrame.
    """
    if not cluster:
        _no_frame_of_cluster(X)
    given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
    what, has = ("a stored set" if is_stored_set(X) else "a list of files"), "which has its own"
    if isinstance(X, Queries):
        what, has = "Queries", "which have their own"
        del given["sample_weight"]
    elif is_frame_of_cluster(X):
        what = "a Dask DataFrame"
        del given["y"], given["qid"]  # these are allowed, since they may name columns of X
    for name, value in given.items():
        if value is not None:
            because = "which has no row weights: give query_weight" if name == "sample_weight" else has
            raise ValueError(f"fit: give no {name} with {what}, {because}.")


def nothing_beside(what: str, **given: Any) -> None:
    """Raise a ValueError if any value of `given` is not None.

    what  Description of the data that already hold these values, such as "the Queries".
    """
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is already in {what}; do not give it again.")


def _no_frame_of_cluster(X: Any) -> None:
    if is_frame_of_cluster(X):
        raise ValueError(
            "X is a Dask DataFrame: give cluster=, for example SinkPropRanker(cluster=client), or take "
            "X.compute(), which loads its rows into memory."
        )


def in_memory(X: Any, *, allow_nan: bool = False) -> Queries:
    """Load a stored set or files of LETOR text into arrays, for training or validation.

    allow_nan  Whether values in the files may be missing, that is, written NULL.
    """
    stored = as_stored(X)
    if stored is not None:
        stored.require_labels("training")
        stored.verify()
        return stored.load()
    _no_frame_of_cluster(X)
    return _read(X, allow_nan=allow_nan)


def _read(paths: Sequence[Any], *, allow_nan: bool) -> Queries:
    """Load the queries of several files of LETOR text.

    Raises a ValueError if a query occurs in two files, or if the files differ in their number of features.
    """
    from sinkprop.data.letor import load_letor

    parts = [load_letor(path, allow_nan=allow_nan) for path in paths]
    first: dict[Any, int] = {}
    for i, (path, part) in enumerate(zip(paths, parts, strict=True)):
        if part.n_features != parts[0].n_features:
            raise ValueError(
                f"{os.fspath(path)} has {part.n_features} features, but {os.fspath(paths[0])} has "
                f"{parts[0].n_features}. If lines leave out zeros, convert the files with `sinkprop convert` "
                f"with --n-features {max(part.n_features, parts[0].n_features)}."
            )
        for query in part.groups.queries.tolist():
            if first.setdefault(query, i) != i:
                raise ValueError(
                    f"query {query!r} is in two files, {os.fspath(paths[first[query]])} and "
                    f"{os.fspath(path)}. Put its documents into one file."
                )
    X, y, qid = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "qid"))
    return Queries(X, y, qid, allow_nan=allow_nan)
