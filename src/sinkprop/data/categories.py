"""Categories of features: the categorical columns of data frames as codes, and codes matched by value."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers

__all__ = [
    "NO_CATEGORIES",
    "Categories",
    "CategoryColumn",
    "CategoryFinder",
    "Recoding",
    "arrow_category_column",
    "arrow_category_kind",
    "categories_of",
    "category_column",
    "category_kind",
    "checked_categories",
    "coded_columns",
    "encoded",
    "frame_names",
    "in_order",
    "is_frame",
    "listed_column",
    "refuse_categories",
]

MOST = 1 << 24  # largest number of categories of a feature: float32 holds the codes below this number exactly
_SHOWN = 5


@dataclass(frozen=True)
class Categories:
    """Categories of the categorical features of a ranker.

    values     Categories of each feature, by column number. A category's code is its position in the list.
    unordered  Column numbers of the features whose categories have no order. By default these features are
               the ones that trees split by sets of categories.
    """

    values: dict[int, list[Any]]
    unordered: tuple[int, ...]

    @classmethod
    def of(cls, data: Any) -> Categories:
        """Categories of `Queries` or a stored set."""
        columns = {name: i for i, name in enumerate(data.feature_names or ())}
        values = {columns[name]: list(own) for name, own in data.categories.items()}
        return cls(values, tuple(sorted(columns[n] for n in data.categories if n not in data.ordered)))

    @classmethod
    def from_record(cls, state: Mapping[str, Any]) -> Categories:
        """Read what `record` returned."""
        values = {int(i): list(items) for i, items in state["categories"].items()}
        return cls(values, tuple(state["unordered"])) if values else NO_CATEGORIES

    def record(self) -> dict[str, Any]:
        """The categories as a dict of values that a model file can hold."""
        return {
            "categories": {str(i): values for i, values in self.values.items()},
            "unordered": list(self.unordered),
        }


NO_CATEGORIES = Categories({}, ())


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """One categorical column of a table.

    values   Its categories: in the order that the column's type declares, or else sorted.
    codes    (N,) position in `values` of each row's category; -1 if it is missing.
    ordered  Whether the type of the column says that the categories have an order.
    """

    values: list[Any]
    codes: Integers
    ordered: bool

    def coded(self, known: Sequence[Any]) -> tuple[Floats, list[Any]]:
        """Return the position (N,) in `known` of each row's category, and the categories not in `known`.

        The position is NaN if the category is missing or not in `known`. Only categories that occur in a row
        are returned.
        """
        table = _table(self.values, known)
        unseen = np.isnan(table[:-1])
        lacking = np.unique(self.codes[self.codes >= 0][unseen[self.codes[self.codes >= 0]]])
        return table[self.codes], [self.values[i] for i in lacking.tolist()]


def _table(values: Sequence[Any], known: Sequence[Any]) -> Floats:
    """Return the position in `known` of each of `values`, NaN if it has none; and, at the end, NaN."""
    places = {value: float(place) for place, value in enumerate(known)}
    return np.array([*(places.get(value, math.nan) for value in values), math.nan])


def in_order(values: Any) -> list[Any]:
    """Sort categories whose type declares no order, so that they do not depend on which occurs first."""
    return sorted(values, key=lambda value: (type(value).__name__, value))


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars DataFrame or a pyarrow Table."""
    return _is_pandas(X) or _is_polars(X) or _is_arrow(X)


def _is_pandas(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes")


def _is_polars(X: Any) -> bool:
    return hasattr(X, "get_column") and hasattr(X, "columns") and hasattr(X, "dtypes")


def _is_arrow(X: Any) -> bool:
    return hasattr(X, "column_names") and hasattr(X, "schema")


def frame_names(X: Any) -> list[Any]:
    """Column names of a data frame."""
    return list(X.column_names if _is_arrow(X) else X.columns)


def category_kind(X: Any, column: int) -> str:
    """Kind of a column of a data frame: "unordered" or "ordered" if its type is categorical, "" if not."""
    if _is_pandas(X):
        dtype = X.dtypes.iloc[column]
        if str(dtype) != "category":
            return ""
        return "ordered" if dtype.ordered else "unordered"
    if _is_polars(X):
        return "unordered" if str(X.dtypes[column]).partition("(")[0] in ("Categorical", "Enum") else ""
    return arrow_category_kind(X.schema.field(column))


def arrow_category_kind(field: Any) -> str:
    """Kind of a pyarrow column, given its field in the schema; see `category_kind`."""
    if not str(field.type).startswith("dictionary<"):
        return ""
    # polars calls the categories of an Enum ordered, though its rows are no more ordered than a Categorical's
    enum = any(key.startswith(b"_PL_ENUM") for key in field.metadata or ())
    return "ordered" if field.type.ordered and not enum else "unordered"


def category_column(X: Any, column: int) -> CategoryColumn:
    """Read a column of a data frame, of any type, as categories.

    Raises a ValueError if a value is neither text nor a finite number.
    """
    name = frame_names(X)[column]
    if _is_pandas(X):
        series = X.iloc[:, column]
        if str(series.dtype) != "category":
            series = series.astype("category")
        values = _plain(list(series.cat.categories), name)
        return CategoryColumn(values, series.cat.codes.to_numpy(np.int64), bool(series.cat.ordered))
    if _is_polars(X):
        import polars as pl

        series = X.to_series(column)
        return _factored((series.cast(pl.String) if category_kind(X, column) else series).to_list(), name)
    return arrow_category_column(X.column(column), X.schema.field(column))


def arrow_category_column(column: Any, field: Any) -> CategoryColumn:
    """Read a pyarrow column as categories, given its field in the schema; see `category_column`."""
    import pyarrow as pa

    ordered = arrow_category_kind(field) == "ordered"
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if ordered and len({tuple(chunk.dictionary.to_pylist()) for chunk in chunks}) > 1:
        raise ValueError(
            f"column {field.name!r} has ordered categories, but not the same ones in all of its parts. Give "
            "all rows the same categories."
        )
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    found = _plain(whole.dictionary.to_pylist(), field.name, missing=True)
    codes = whole.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    used = {found[i] for i in np.unique(codes[codes >= 0]).tolist()} - {None}
    values = [value for value in found if value is not None] if ordered else in_order(used)
    places = {value: place for place, value in enumerate(values)}
    table = np.array([*(places.get(value, -1) for value in found), -1], dtype=np.int64)
    return CategoryColumn(values, table[codes], ordered)


def listed_column(rows: Sequence[Any], name: Any) -> CategoryColumn:
    """Read one category per row, None or NaN if it is missing; see `category_column`."""
    return _factored(list(rows), name)


def _factored(rows: list[Any], name: Any) -> CategoryColumn:
    rows = _plain(rows, name, missing=True)
    values = in_order(set(rows) - {None})
    places: dict[Any, int] = {value: place for place, value in enumerate(values)}
    return CategoryColumn(values, np.array([places.get(value, -1) for value in rows], dtype=np.int64), False)


def _plain(values: list[Any], name: Any, *, missing: bool = False) -> list[Any]:
    """Return the values as Python's own, after a check that a model file can hold them as categories.

    With `missing`, None and NaN are allowed, and NaN becomes None.
    """
    found = [value.item() if isinstance(value, np.generic) else value for value in values]
    for i, value in enumerate(found):
        if missing and (value is None or (isinstance(value, float) and math.isnan(value))):
            found[i] = None
        elif not isinstance(value, bool | int | float | str) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            raise ValueError(
                f"the categories of column {name!r} must be text or numbers, which a model file can hold; "
                f"got {value!r}. Convert them, for example with .cat.rename_categories(str)."
            )
    return found


def categories_of(X: Any) -> Categories:
    """Categories of the columns of a data frame; `NO_CATEGORIES` if X is not a data frame."""
    if not is_frame(X):
        return NO_CATEGORIES
    kinds = {i: kind for i in range(len(frame_names(X))) if (kind := category_kind(X, i))}
    values = {i: category_column(X, i).values for i in kinds}
    return Categories(values, tuple(i for i, kind in kinds.items() if kind == "unordered"))


def encoded(X: Any, known: Categories, name: str, *, names: Sequence[str] | None = None) -> Any:
    """Replace the categories of a data frame by codes: positions in the known categories, NaN if unknown.

    Warns of categories that are not known. Returns X unchanged if it is not a data frame; its numbers are
    then taken as codes. Also returns X unchanged if its column names are not `names`: scikit-learn then
    raises its own error. `name` is the name of X in error messages.
    """
    if not is_frame(X) or (names is not None and list(names) != frame_names(X)):
        return X
    for i, column in enumerate(frame_names(X)):
        if bool(category_kind(X, i)) != (i in known.values):
            raise ValueError(_another_kind(column, name, i in known.values))
    if not known.values:
        return X
    codes = coded_columns({i: (frame_names(X)[i], category_column(X, i)) for i in known.values}, known, name)
    if _is_pandas(X):
        X = X.copy(deep=False)
        for i, column in codes.items():
            X.isetitem(i, column)
        return X
    if _is_polars(X):
        import polars as pl

        return X.with_columns([pl.Series(X.columns[i], column) for i, column in codes.items()])
    import pyarrow as pa

    for i, column in codes.items():
        X = X.set_column(i, X.column_names[i], pa.array(column))
    return X


def coded_columns(
    columns: Mapping[int, tuple[Any, CategoryColumn]], known: Categories, name: str
) -> dict[int, Floats]:
    """Return the codes (N,) of categorical columns {number: (column name, column)} in the known categories.

    A missing category and one that is not known become NaN. Warns of those that are not known. `name` is the
    name of the table in the warning.
    """
    codes, unseen = {}, {}
    for i, (column_name, column) in columns.items():
        codes[i], unseen[column_name] = column.coded(known.values[i])
    _warn_of_unseen(unseen, name)
    return codes


def _another_kind(column: Any, name: str, was: bool) -> str:
    then, now = ("was", "is not") if was else ("was not", "is")
    how = "; load_frame and load_parquet take categorical=[...]" if was else ""
    return (
        f"column {str(column)!r} of {name} {then} categorical when the ranker was fitted, and {now} here. "
        f"Give it the same type{how}."
    )


def _warn_of_unseen(unseen: Mapping[Any, Sequence[Any]], name: str) -> None:
    """Warn of categories {column: categories} that the ranker does not know, if there are any."""
    parts = []
    for column, values in unseen.items():
        if values:
            more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            parts.append(f"{', '.join(map(repr, values[:_SHOWN]))}{more} of {str(column)!r}")
    if parts:
        warnings.warn(
            f"{name} has categories that were not in the training data, and count as missing: "
            f"{'; '.join(parts)}.",
            UserWarning,
            stacklevel=2,
        )


class Recoding:
    """Function of rows (N, D) that replaces codes of their own categories by codes of a ranker's categories.

    The rows come from one set of queries. A category that the ranker does not know becomes NaN. The first
    time this happens, the function warns.

    data   `Queries` or a stored set; its `categories` are the categories of the rows.
    known  Categories of the ranker, by column number.
    names  Names of the ranker's features, or None.
    name   Name of the rows in messages.
    """

    def __init__(self, data: Any, known: Categories, names: Sequence[str] | None, name: str) -> None:
        self._name = name
        self._tables: dict[int, Floats] = {}
        self._unseen: dict[str, list[Any]] = {}
        self._warned = False
        own = data.feature_names
        if own is None:  # the numbers are taken as codes, as in an array
            return
        wanted = {str((own if names is None else names)[i]): values for i, values in known.values.items()}
        for column, feature in enumerate(own):
            if (feature in wanted) != (feature in data.categories):
                raise ValueError(_another_kind(feature, name, feature in wanted))
            if feature in wanted and list(data.categories[feature]) != list(wanted[feature]):
                self._tables[column] = _table(data.categories[feature], wanted[feature])
                lacking = np.flatnonzero(np.isnan(self._tables[column][:-1])).tolist()
                self._unseen[feature] = [data.categories[feature][i] for i in lacking]

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        if not self._tables:
            return X
        X = X.copy()
        unseen = False
        for column, table in self._tables.items():
            known = ~np.isnan(X[:, column])
            codes = X[known, column]
            if ((codes < 0) | (codes >= len(table) - 1) | (codes != np.floor(codes))).any():
                raise ValueError(f"{self._name}: column {column} holds numbers that are not its categories.")
            X[known, column] = table[codes.astype(np.int64)]
            unseen |= bool(np.isnan(X[known, column]).any())
        if unseen and not self._warned:
            self._warned = True
            _warn_of_unseen(self._unseen, self._name)
        return X


class CategoryFinder:
    """Categories of a table's columns, found batch by batch."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._values: dict[str, Any] = {name: set() for name in columns}
        self._ordered: set[str] = set()

    def add(self, name: str, part: CategoryColumn) -> None:
        """Add a batch of the column `name`.

        Raises a ValueError if its categories have an order, and are not those of the earlier batches.
        """
        known = self._values[name]
        if not part.ordered and name not in self._ordered:
            known.update(part.values)
        elif not known or (part.ordered and known == part.values):
            self._values[name] = part.values
            self._ordered.add(name)
        else:
            raise ValueError(
                f"column {name!r} has ordered categories, but not the same ones in all rows. Give all rows "
                "the same categories."
            )

    def found(self) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
        """Return the categories by column, and the names of the columns whose categories have an order."""
        categories = {
            name: tuple(values if name in self._ordered else in_order(values))
            for name, values in self._values.items()
        }
        return categories, tuple(name for name in categories if name in self._ordered)


def refuse_categories(data: Any, who: str, where: str = "") -> None:
    """Raise a ValueError if `Queries` or a stored set have categories, which the ranker `who` does not take.

    The message begins with `where`, the path of a stored set.
    """
    names = list(data.categories)
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        shown = ", ".join(map(repr, names[:_SHOWN])) + more
        what = f"feature {shown} holds" if len(names) == 1 else f"features {shown} hold"
        raise ValueError(
            f"{where + ': ' * bool(where)}the {what} categories, which {who} does not accept. Leave "
            "them out, encode them as columns of 0 and 1, or use BoostedRanker, whose trees take categories."
        )


def checked_categories(
    categories: Mapping[str, Sequence[Any]],
    ordered: Sequence[str],
    feature_names: Sequence[str] | None,
    X: NDArray[Any] | None = None,
) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """Return the arguments `categories` and `ordered` of `Queries`, in the order of the features.

    Raises a ValueError if they are invalid, or if a column of X holds a number that is not a code.
    """
    columns = {name: i for i, name in enumerate(feature_names or ())}
    for name in categories:
        if name not in columns:
            raise ValueError(f"categories: {name!r} is not in feature_names.")
    for name in ordered:
        if name not in categories:
            raise ValueError(f"ordered: {name!r} is not a feature with categories.")
    found = {}
    for name in sorted(categories, key=columns.__getitem__):
        if isinstance(categories[name], str):
            raise ValueError(f"categories[{name!r}] must be a sequence of categories; got a text.")
        values = tuple(_plain(list(categories[name]), name))
        if len(set(values)) < len(values) or len(values) > MOST:
            what = f"at most {MOST:,} categories" if len(values) > MOST else "each category once"
            raise ValueError(f"categories[{name!r}] must have {what}.")
        found[name] = values
        if X is not None:
            _check_codes(X[:, columns[name]], len(values), name)
    return found, tuple(name for name in found if name in ordered)


def _check_codes(column: NDArray[Any], count: int, name: str) -> None:
    with np.errstate(invalid="ignore"):
        wrong = ~np.isnan(column) & ~((column >= 0) & (column < count) & (column == np.floor(column)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"X must hold the codes 0 to {count - 1} of the categories of {name!r}; row {row} holds "
            f"{column[row]}."
        )
