"""Features as LightGBM takes them: sparse rows, rows read on demand, and categories as numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats, Mask
from sinkprop.data.checks import as_query_weight
from sinkprop.data.training_set import TrainingSet, joined

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = [
    "NO_CATEGORIES",
    "Categories",
    "SparseRows",
    "StreamedRows",
    "categorical_columns",
    "categories_of",
    "encoded",
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

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Chunks of the chosen rows, in order."""
        first = 0
        for piece in self._read():
            last = first + len(piece)
            if self._chosen is None:
                yield piece
            elif (part := self._chosen[first:last]).any():
                yield piece if part.all() else piece[part]
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
        read: Any = StreamedRows(lambda: chain.from_iterable(map(_pieces, parts)), shape)
        return replace(joined(*bare), X=read)
    if not any(isinstance(X, SparseRows) for X in parts):
        return replace(joined(*bare), X=np.concatenate(parts))
    from scipy.sparse import csr_matrix, vstack

    rows: Any = SparseRows(vstack([csr_matrix(plain_rows(X)) for X in parts], format="csr"))
    return replace(joined(*bare), X=rows)


def _pieces(X: Any) -> Iterator[NDArray[Any]]:
    if isinstance(X, StreamedRows):
        yield from X.pieces()
    elif isinstance(X, SparseRows):
        for first in range(0, len(X), 4096):
            yield X.matrix[first : first + 4096].toarray()
    else:
        yield X


@dataclass(frozen=True)
class Categories:
    """Categories of the categorical columns of a data frame.

    values     Categories of each column, by column number. A category's code is its position in the list.
    unordered  Column numbers of the columns whose categories have no order. By default these columns are the
               categorical features.
    """

    values: dict[int, list[Any]]
    unordered: tuple[int, ...]


NO_CATEGORIES = Categories({}, ())


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars DataFrame or a pyarrow Table."""
    return _is_pandas(X) or _is_polars(X) or _is_arrow(X)


def _is_pandas(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes")


def _is_polars(X: Any) -> bool:
    return hasattr(X, "get_column") and hasattr(X, "columns") and hasattr(X, "dtypes")


def _is_arrow(X: Any) -> bool:
    return hasattr(X, "column_names") and hasattr(X, "schema")


def _names(X: Any) -> list[Any]:
    return list(X.column_names if _is_arrow(X) else X.columns)


def _kind(X: Any, column: int) -> str:
    """Kind of a column: "unordered" or "ordered" if it is categorical, "" if not."""
    if _is_pandas(X):
        dtype = X.dtypes.iloc[column]
        if str(dtype) != "category":
            return ""
        return "ordered" if dtype.ordered else "unordered"
    if _is_polars(X):
        return "unordered" if str(X.dtypes[column]).partition("(")[0] in ("Categorical", "Enum") else ""
    kind = X.schema.field(column).type
    if not str(kind).startswith("dictionary<"):
        return ""
    return "ordered" if kind.ordered else "unordered"


def categories_of(X: Any) -> Categories:
    """Categories of the columns of a data frame; `NO_CATEGORIES` if X is not a data frame."""
    if not is_frame(X):
        return NO_CATEGORIES
    kinds = {i: kind for i in range(len(_names(X))) if (kind := _kind(X, i))}
    values = {i: _plain(_column_categories(X, i), _names(X)[i]) for i in kinds}
    return Categories(values, tuple(i for i, kind in kinds.items() if kind == "unordered"))


def _column_categories(X: Any, column: int) -> list[Any]:
    if _is_pandas(X):
        return list(X.iloc[:, column].cat.categories)
    if _is_polars(X) and str(X.dtypes[column]).startswith("Enum"):
        return list(X.dtypes[column].categories)
    found = {value for value in _column_values(X, column) if value is not None}
    # sorted, as in pandas: the order must not depend on which value occurs first
    return sorted(found, key=lambda value: (type(value).__name__, value))


def _column_values(X: Any, column: int) -> list[Any]:
    if _is_polars(X):
        import polars as pl

        return list(X.to_series(column).cast(pl.String).to_list())
    return list(X.column(column).to_pylist())


def _plain(values: list[Any], name: Any) -> list[Any]:
    found = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value in found:
        if not isinstance(value, bool | int | float | str):
            raise ValueError(
                f"the categories of column {name!r} must be text or numbers, which a model file can hold; "
                f"got {value!r}. Convert them, for example with .cat.rename_categories(str)."
            )
    return found


def encoded(X: Any, known: Categories, name: str, *, names: Sequence[str] | None = None) -> Any:
    """Replace the categories of a data frame by codes: positions in the known categories, NaN if unknown.

    Returns X unchanged if it is not a data frame; its numbers are then taken as codes. Also returns X
    unchanged if its column names are not `names`: scikit-learn then raises its own error. `name` is the name
    of X in error messages.
    """
    if not is_frame(X) or (names is not None and list(names) != _names(X)):
        return X
    for i, column in enumerate(_names(X)):
        if bool(_kind(X, i)) != (i in known.values):
            was, now = ("was", "is not") if i in known.values else ("was not", "is")
            raise ValueError(
                f"column {column!r} of {name} {was} categorical when the ranker was fitted, and {now} "
                "here. Give it the same type."
            )
    if not known.values:
        return X
    if _is_pandas(X):
        X = X.copy(deep=False)
        for i, values in known.values.items():
            codes = X.iloc[:, i].cat.set_categories(values).cat.codes.to_numpy(dtype=np.float64)
            X.isetitem(i, np.where(codes < 0, np.nan, codes))
        return X
    columns = {i: _codes(_column_values(X, i), values) for i, values in known.values.items()}
    if _is_polars(X):
        import polars as pl

        return X.with_columns([pl.Series(X.columns[i], codes) for i, codes in columns.items()])
    import pyarrow as pa

    for i, codes in columns.items():
        X = X.set_column(i, X.column_names[i], pa.array(codes))
    return X


def _codes(values: list[Any], known: list[Any]) -> Floats:
    places = {value: float(place) for place, value in enumerate(known)}
    return np.array([places.get(value, np.nan) for value in values])


def categorical_columns(
    given: str | Sequence[str | int], found: Categories, names: Sequence[str], n_features: int
) -> list[int]:
    """Return the column numbers of the categorical features.

    given  Names or column numbers of these features, or "auto" for the columns of a data frame whose
           categories have no order.
    found  Categories of the data frame.
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
    columns: list[int] | None = None,
) -> TrainingSet:
    """Queries of a stored set; their features are read block by block each time they are needed.

    columns  Indices of the stored set's columns to use as features, in this order; None for all columns.
    """
    stored.require_labels("training")
    stored.verify()
    weight = None if query_weight is None else as_query_weight(query_weight, stored.groups, len(stored))
    rows: Any = StreamedRows(
        lambda: (block.X if columns is None else block.X[:, columns] for block in stored.blocks()),
        (stored.n_rows, stored.n_features),
    )
    return TrainingSet(rows, stored.labels(), stored.groups, None, weight)
