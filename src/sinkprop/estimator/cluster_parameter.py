"""Handling of a ranker's parameter `cluster` when the ranker is cloned or pickled."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["cloned", "portable"]


def cloned(ranker: Any, clone: Any) -> Any:
    """Clone a ranker with the function `clone`. Both share the cluster client, which cannot be copied."""
    bare = copy.copy(ranker)
    bare.cluster = None
    made = clone(bare)
    made.cluster = ranker.cluster
    return made


def portable(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes {name: value} of a ranker in a form that can be pickled.

    state  The attributes. A Dask cluster or client among them is replaced by the address of its scheduler.
    """
    cluster = state.get("cluster")
    if cluster is None or isinstance(cluster, str | int):
        return state
    address = getattr(cluster, "scheduler_address", None)
    if address is None:
        address = getattr(getattr(cluster, "scheduler", None), "address", None)
    return {**state, "cluster": address}
