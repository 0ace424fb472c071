"""The split into training and validation queries of a network, in one process or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sinkprop.common.types import Integers
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.splits import split_queries
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.stored import Data, sizes_of

__all__ = ["divided", "totals"]


def totals(data: Data, processes: OneProcess) -> tuple[int, int]:
    """Return the numbers of documents and of queries in all processes together."""
    mine = np.array([float(sizes_of(data).sum()), float(data.n_queries)])
    rows, queries = (processes.total(mine) if processes.own else mine).astype(int).tolist()
    return rows, queries


def divided(
    data: Data, validation: Sequence[Data], fraction: float, seed: int, processes: OneProcess
) -> tuple[Data | None, list[Data], str]:
    """Return training queries, validation queries, and a description of the validation queries in words.

    fraction  Fraction of the queries that is held out if there is no validation set. Processes with their
              own queries draw from the queries of all processes, concatenated in order of rank.

    If there is only one query, it is used for both training and validation. A process with its own queries
    may have none left to train on. Then its training queries are None.
    """
    mine = np.arange(data.n_queries)
    if validation:
        n = sum(part.n_queries for part in validation)
        n = int(processes.total(np.array([float(n)]))[0]) if processes.own else n
        return _counting(data, mine, processes), list(validation), f"{n} validation queries"
    first, n_queries = 0, data.n_queries
    if processes.own:
        counts = processes.gather(np.array([float(n_queries)]))[:, 0].astype(int)
        first, n_queries = int(counts[: processes.rank].sum()), int(counts.sum())
    if fraction == 0:
        return _counting(data, mine, processes), [], ""
    selection = Selection("validation", fraction=fraction)
    split = split_queries(n_queries, 0, selection, np.random.default_rng([seed, 0]))
    if split.codes is None:
        return _counting(data, mine, processes), [data], split.in_words
    held = split.codes[first + mine] == 0
    held_out = [data.select(mine[held])] if held.any() else []
    return _counting(data, mine[~held], processes), held_out, split.in_words


def _counting(data: Data, queries: Integers, processes: OneProcess) -> Data | None:
    """Select those of `queries` whose weight is above 0, or return None if this process has no such query.

    Raises a ValueError if no process has a query with a weight above 0.
    """
    weight = data.query_weight
    kept = queries if weight is None else queries[weight[queries] > 0]
    n = np.array([float(len(kept))])
    if not (processes.total(n) if processes.own else n)[0]:
        raise ValueError("query_weight must have a sum above 0; every weight is zero.")
    if len(kept) == data.n_queries:
        return data
    return data.select(kept) if len(kept) else None
