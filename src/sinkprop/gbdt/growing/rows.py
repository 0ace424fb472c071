"""Features as LightGBM takes them: sparse rows, rows read on demand, and numbers of categorical columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import whole
from sinkprop.common.types import Mask
from sinkprop.data.categories import Categories
from sinkprop.data.checks import as_query_weight
from sinkprop.data.doubtful_data import warn_of_equal_labels
from sinkprop.data.training_set import TrainingSet, joined

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "SparseRows",
    "StreamedRows",
    "categorical_columns",
    "joined_rows",
    "plain_rows",
    "streamed_training_set",
]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A sparse matrix (N, D) whose len() is the number of rows, N; SciPy's sparse matrices have no len()."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> SparseRows:
        return SparseRows(self.matrix[rows])

    def check_finite(self, name: str) -> None:
        """Raise a ValueError if an entry is infinite. NaN is a missing value."""
        X = self.matrix
        if np.isinf(X.data).any():
            place = int(np.argmax(np.isinf(X.data)))
            row = int(np.searchsorted(X.indptr, place, side="right")) - 1
            raise ValueError(
                f"{name} must be finite, or NaN for missing; row {row}, column {X.indices[place]} holds "
                f"{X.data[place]}."
            )


class StreamedRows:
    """Rows (N, D) that are read again, chunk by chunk, each time you iterate over them.

    read    Function that returns an iterator over the chunks, each of shape (n, D), in order.
    shape   Shape (N, D) of all chunks together.
    chosen  Mask (N,) of the rows to keep, or None to keep all rows.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[NDArray[Any]]],
        shape: tuple[int, int],
        chosen: Mask | None = None,
    ) -> None:
        self._read, self._chosen = read, chosen
        self.shape = (shape[0] if chosen is None else int(np.count_nonzero(chosen)), shape[1])
        self._all = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Mask) -> StreamedRows:
        """Select the rows where the mask is True."""
        if self._chosen is not None:
            chosen = self._chosen.copy()
            chosen[chosen] = rows
        else:
            chosen = np.asarray(rows, dtype=bool)
        return StreamedRows(self._read, self._all, chosen)

    def row_blocks(self) -> Iterator[NDArray[Any]]:
        """Chunks of the chosen rows, in order."""
        first = 0
        for block in self._read():
            last = first + len(block)
            if self._chosen is None:
                yield block
            elif (part := self._chosen[first:last]).any():
                yield block if part.all() else block[part]
            first = last


def plain_rows(X: Any) -> Any:
    """Rows in memory, in a type that LightGBM accepts."""
    return X.matrix if isinstance(X, SparseRows) else X


def joined_rows(a: TrainingSet, b: TrainingSet) -> TrainingSet:
    """Join two sets: the rows of a, then those of b.

    The features are `StreamedRows` if those of a or b are. Otherwise they are `SparseRows` if those of a or b
    are. Otherwise they are an array.
    """
    bare = [replace(part, X=np.empty((len(part.y), 0))) for part in (a, b)]
    parts: list[Any] = [a.X, b.X]
    if any(isinstance(X, StreamedRows) for X in parts):
        shape = (len(a.X) + len(b.X), int(a.X.shape[1]))
        read: Any = StreamedRows(lambda: chain.from_iterable(map(_row_blocks, parts)), shape)
        return replace(joined(*bare), X=read)
    if not any(isinstance(X, SparseRows) for X in parts):
        return replace(joined(*bare), X=np.concatenate(parts))
    from scipy.sparse import csr_matrix, vstack

    rows: Any = SparseRows(vstack([csr_matrix(plain_rows(X)) for X in parts], format="csr"))
    return replace(joined(*bare), X=rows)


def _row_blocks(X: Any) -> Iterator[NDArray[Any]]:
    if isinstance(X, StreamedRows):
        yield from X.row_blocks()
    elif isinstance(X, SparseRows):
        for first in range(0, len(X), 4096):
            yield X.matrix[first : first + 4096].toarray()
    else:
        yield X


def categorical_columns(
    given: str | Sequence[str | int], found: Categories, names: Sequence[str], n_features: int
) -> list[int]:
    """Return the column numbers of the categorical features.

    given  Names or column numbers of these features, or "auto" for the features whose categories have no
           order.
    found  Categories of the training data.
    """
    if isinstance(given, str):
        if given != "auto":
            raise ValueError(
                "categorical_feature must be 'auto', or a list of names or numbers of features; got "
                f"{given!r}. Use [{given!r}]."
            )
        return list(found.unordered)
    columns = set()
    for feature in given:
        if isinstance(feature, str):
            if feature not in names:
                raise ValueError(f"categorical_feature: {feature!r} is not the name of a feature of X.")
            columns.add(list(names).index(feature))
        else:
            column = whole("categorical_feature", feature, 0)
            if column >= n_features:
                raise ValueError(
                    f"categorical_feature: there is no feature {column}; X has {n_features}, counted from 0."
                )
            columns.add(column)
    return sorted(columns)


def streamed_training_set(
    stored: StoredQueries,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    taken: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    name: str = "",
) -> TrainingSet:
    """Queries of a stored set; their features are read block by block each time they are needed.

    taken  Function that turns the rows of a block into the features of the ranker. None takes them unchanged.
    name   Prefix of argument names in warnings: "eval_set " for an evaluation set, else empty.
    """
    stored.require_labels("training")
    stored.verify()
    labels = stored.labels()
    warn_of_equal_labels([labels], name=name)
    weight = None if query_weight is None else as_query_weight(query_weight, stored.groups, len(stored))
    rows: Any = StreamedRows(
        lambda: (block.X if taken is None else taken(block.X) for block in stored.blocks()),
        (stored.n_rows, stored.n_features),
    )
    return TrainingSet(rows, labels, stored.groups, None, weight)
