"""Queries whose documents are in two places of a file: the option for them, and the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sinkprop.common.arguments import one_of
from sinkprop.data.queries import Groups

__all__ = ["SplitQueryError", "check_option", "refuse_split"]

# Advice for the error, where the option `split_queries` can be given
ADVICE = (
    "If they are one query, pass split_queries='join' to put its documents together; if not, give each query "
    "its own id."
)


class SplitQueryError(ValueError):
    """The documents of a query are in two places of the input. `first` and `second` describe the places."""

    def __init__(self, query: Any, first: str, second: str) -> None:
        super().__init__(f"the query {query!r} occurs in two places, {first} and {second}.")


def check_option(split_queries: str) -> None:
    """Raise a ValueError unless the option `split_queries` is "error" or "join"."""
    one_of("split_queries", split_queries, ("error", "join"))


def refuse_split(groups: Groups, locate: Callable[[int], str]) -> None:
    """Raise a ValueError for the first query of a file whose rows are not consecutive.

    groups  The queries of the file's rows.
    locate  Function of a row, from 0. Describes its place for the error message, such as "a.txt:12".
    """
    if groups.rows is None:
        return
    codes = groups.codes
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
    _, first_runs = np.unique(codes[starts], return_index=True)
    returns = np.ones(len(starts), dtype=bool)
    returns[first_runs] = False
    second = int(starts[np.argmax(returns)])
    query = int(codes[second])
    first = int(np.argmax(codes == query))
    error = SplitQueryError(groups.queries.tolist()[query], locate(first), locate(second))
    raise ValueError(f"{error} {ADVICE}")
