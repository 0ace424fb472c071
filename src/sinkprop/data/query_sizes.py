"""Sizes of consecutive queries, for LETOR text without query ids: from `.query` files or the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.compressed import Source, StrPath, compression_by_name, read_source
from sinkprop.common.types import Integers
from sinkprop.data.checks import unmasked
from sinkprop.data.letor_errors import shown_line

__all__ = ["load_query_sizes", "raise_wrong_sizes", "sizes_for"]


def load_query_sizes(path: StrPath | IO[bytes] | IO[str]) -> Integers:
    r"""Read the sizes of consecutive queries from a file such as LightGBM's `.query` files.

    Parameters
    ----------
    path : path or open file
        A file with one whole number of at least 1 per line, plain or compressed by gzip, xz or bzip2.

    Returns
    -------
    array of shape (Q,)
        Number of documents of each query, int64.

    Examples
    --------
    >>> import io
    >>> load_query_sizes(io.StringIO("3\n1\n"))
    array([3, 1])
    """
    return _read_sizes(read_source(path))[0]


def _read_sizes(source: Source) -> tuple[Integers, list[int]]:
    """Return the query sizes in a file, and the line number of each."""
    sizes, lines = [], []
    text = source.data.tobytes().removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(text.split(b"\n"), 1):
        word = line.strip(b" \t\r")
        if not word:
            continue
        if not re.fullmatch(rb"[0-9]{1,19}", word) or not 1 <= int(word) < 2**63:
            raise ValueError(
                f"{source.name}, line {number}: expected the size of a query, a whole number of at least 1; "
                f"got {shown_line(word, 0)}."
            )
        sizes.append(int(word))
        lines.append(number)
    if not sizes:
        raise ValueError(f"{source.name}: the file holds no sizes; expected one line per query.")
    return np.array(sizes, np.int64), lines


def sizes_for(
    source: Source, group: StrPath | Sequence[int] | NDArray[Any] | None
) -> tuple[Integers, str, Callable[[int], str]]:
    """Return the query sizes for a file without qid, and how error messages refer to them.

    `group` holds the sizes or the path of a file with the sizes. If it is None, they are read from the
    `.query` file beside the source.

    Returns (sizes, name, place). Error messages call the sizes `name`, and place(i) is the position of the
    i-th size, such as "line 3".
    """
    if group is None:
        group = _sibling(source)
    if isinstance(group, str | os.PathLike):
        file = read_source(group)
        sizes, lines = _read_sizes(file)
        return sizes, file.name, lambda i: f"line {lines[i]}"
    return _given_sizes(group), "group", lambda i: f"group[{i}]"


def raise_wrong_sizes(
    source: Source, name: str, place: Callable[[int], str], ends: NDArray[Any], n: int
) -> NoReturn:
    """Raise the ValueError for query sizes that do not sum to n, the number of documents in the source.

    `name` and `place` come from `sizes_for`, and `ends` are the running sums of the sizes.
    """
    past = f", past it from {place(int(np.argmax(ends > n)))} on" if ends[-1] > n else ""
    raise ValueError(
        f"{name}: the sizes must sum to {n}, the number of documents in {source.name}; the {len(ends)} "
        f"sizes sum to {ends[-1]}{past}."
    )


def _sibling(source: Source) -> str:
    """Return the path of the `.query` file beside a source; raise a ValueError if there is none."""
    if source.path is not None:
        stem = os.path.splitext(source.path)[0]
        for path in (source.path, stem) if compression_by_name(source.path) else (source.path,):
            if os.path.exists(path + ".query"):
                return path + ".query"
    beside = f" nor a file {source.path}.query beside it" if source.path is not None else ""
    raise ValueError(
        f"{source.name}: there is no qid on its lines{beside}, so its queries are not known. Pass group=, "
        "the sizes of its queries in order, or the path of a file with one size per line."
    )


def _given_sizes(group: Sequence[int] | NDArray[Any]) -> Integers:
    sizes = np.asarray(unmasked("group", group))
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iuf":
        raise ValueError(f"group must hold the sizes of the queries, whole numbers; got {group!r}.")
    bad = ~((sizes >= 1) & (sizes < 2**63) & (sizes == np.floor(sizes)))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"group[{i}] must be a size, a whole number of at least 1; got {sizes[i]}.")
    return sizes.astype(np.int64)
