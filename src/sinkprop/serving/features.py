"""Features that a saved model scores, from arrays, data frames, columns by name, records or queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.data.categories import (
    Categories,
    Recoding,
    coded_columns,
    encoded,
    frame_names,
    is_frame,
    listed_column,
    refuse_categories,
)
from sinkprop.data.checks import as_features
from sinkprop.data.queries import Queries

__all__ = ["Features"]

_ADVICE = "The model was fitted to numbers in this column."


class Features:
    """The features of a model, as a function from the documents X to an array (N, D) of numbers.

    n_features  Number of features, D.
    names       Their names, or None.
    categories  Categories of the categorical features.
    takes_nan   Whether a feature may be missing.
    kind        Kind of the model, for messages.
    """

    def __init__(
        self, n_features: int, names: list[str] | None, categories: Categories, *, takes_nan: bool, kind: str
    ) -> None:
        self.n_features, self.names = n_features, names
        self.categories, self._takes_nan, self._kind = categories, takes_nan, kind

    def __call__(self, X: Any) -> NDArray[Any]:
        """Return the features of documents, C-ordered, in float64 or, if X is of float32, in float32.

        Raises a ValueError if X does not have the features of the model, or holds a value that is not finite
        where it may not be missing.
        """
        if type(X) is not np.ndarray:
            X = self._array(X)
        elif X.dtype == object:
            X = _numbers(X)
        if X.ndim == 2 and X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, but the model has {self.n_features}.")
        return as_features(X, allow_nan=self._takes_nan, columns=self.names)

    def _array(self, X: Any) -> NDArray[Any]:
        if isinstance(X, Queries):
            return self._of_queries(X)
        if is_frame(X):
            return self._of_frame(X)
        if isinstance(X, Mapping):
            return self._of_columns(X)
        if isinstance(X, Sequence) and not isinstance(X, str) and len(X) and isinstance(X[0], Mapping):
            return self._of_records(X)
        if hasattr(X, "collect"):
            raise ValueError(f"X is a {type(X).__name__}, which is not in memory: call its collect() first.")
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
        return _numbers(array) if array.dtype == object else array

    def _of_queries(self, queries: Queries) -> NDArray[Any]:
        if self.categories.values:
            X = Recoding(queries, self.categories, self.names, "X")(queries.X)
        else:
            refuse_categories(queries, self._kind)
            X = queries.X
        columns = queries.columns_of(self.names)
        return X if columns is None else X[:, columns]

    def _of_frame(self, frame: Any) -> NDArray[Any]:
        names = frame_names(frame)
        if self.names is not None and names != self.names:
            self._check_names(names)
            raise ValueError(
                f"X has the columns of the model in another order; the first that differs is "
                f"{next(a for a, b in zip(names, self.names, strict=True) if a != b)!r}. Give "
                "X[scorer.feature_names], a frame in the order of the model."
            )
        frame = encoded(frame, self.categories, "X", names=self.names)
        if hasattr(frame, "to_numpy"):  # pandas and polars
            array: NDArray[Any] = frame.to_numpy()
            if array.dtype.kind in "fiub":
                return array
        from sinkprop.data.frames import feature_matrix

        return feature_matrix(frame, names, allow_nan=True, advice=_ADVICE)[0]

    def _of_columns(self, columns: Mapping[Any, Any]) -> NDArray[Any]:
        names = self._named("columns")
        self._check_names(list(columns), more=True)
        values = [columns[name] for name in names]
        sizes = [len(column) if hasattr(column, "__len__") else -1 for column in values]
        if isinstance(values[0], str) or min(sizes) < 0 or len(set(sizes)) > 1:
            shown = ", ".join(
                f"{n!r} {size if size >= 0 else 'no list'}" for n, size in zip(names, sizes, strict=True)
            )
            raise ValueError(f"X must have one value per document in each column; the lengths are {shown}.")
        return self._joined(names, values)

    def _of_records(self, records: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        names = self._named("records")
        for row, record in enumerate(records):
            if not isinstance(record, Mapping):
                raise ValueError(f"X must hold one mapping per document; item {row} is {record!r}.")
            if not all(name in record for name in names):
                try:
                    self._check_names(list(record), more=True)
                except ValueError as error:
                    raise ValueError(f"document {row}: {error}") from None
        return self._joined(names, [[record[name] for record in records] for name in names])

    def _joined(self, names: list[str], columns: list[Any]) -> NDArray[Any]:
        listed = {i: (names[i], listed_column(columns[i], names[i])) for i in self.categories.values}
        codes = coded_columns(listed, self.categories, "X") if listed else {}
        found = [
            codes[i] if i in codes else _number_column(column, names[i]) for i, column in enumerate(columns)
        ]
        return np.stack(found, axis=1)

    def _named(self, what: str) -> list[str]:
        if self.names is None:
            raise ValueError(
                f"the model has no feature names, by which it could take {what}: give an array with "
                f"{self.n_features} columns, or fit it to a frame or to queries that have feature names."
            )
        return self.names

    def _check_names(self, given: list[Any], *, more: bool = False) -> None:
        """Raise a ValueError if features are missing or, unless `more`, if columns are not features."""
        assert self.names is not None
        have, known = set(given), set(self.names)
        lacking = [name for name in self.names if name not in have]
        unknown = [name for name in given if name not in known]
        if not lacking and (more or not unknown):
            if len(given) != len(have) and not more:
                twice = next(name for name in given if given.count(name) > 1)
                raise ValueError(f"X has {given.count(twice)} columns called {twice!r}; expected one.")
            return
        parts = []
        if lacking:
            parts.append(f"has no {_shown(lacking)}, which the model needs")
        if unknown and not (more and lacking):
            parts.append(f"has {_shown(unknown)}, which the model does not know")
        from difflib import get_close_matches

        close = get_close_matches(str(lacking[0]), [str(n) for n in unknown], n=1) if lacking else []
        hint = f" Was {lacking[0]!r} renamed {close[0]!r}?" if close else ""
        if unknown and not lacking:
            hint = " Give X[scorer.feature_names]."
        raise ValueError(f"X {' and '.join(parts)}.{hint}")


def _shown(names: Sequence[Any]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    """An array of objects as numbers, with NaN for None. Raises a ValueError if it holds anything else."""
    for place, value in np.ndenumerate(array):
        if value is not None and not isinstance(value, int | float | np.number | np.bool_):
            raise ValueError(f"X must hold numbers; row {place[0]} holds {value!r}.")
    return array.astype(np.float64)


def _number_column(values: Any, name: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"column {name!r} of X must hold one value per document; got {column.shape}.")
    if column.dtype == object:
        bad = [x for x in column.tolist() if x is not None and not isinstance(x, int | float)]
        if not bad:
            return column.astype(np.float64)
    elif column.dtype.kind in "fiub":
        return column
    else:
        bad = column.tolist()
    raise ValueError(f"column {name!r} of X must hold numbers; it holds {bad[0]!r}. {_ADVICE}")
