"""Readers of data frames (pandas, polars, pyarrow) and Parquet files; the packages are imported when used."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence, Set
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.compressed import StrPath
from sinkprop.common.types import Floats, Mask
from sinkprop.data.categories import category_column, category_kind
from sinkprop.data.doubtful_data import warn_of_column_names
from sinkprop.data.queries import Queries
from sinkprop.data.split_queries import check_option, refuse_split

__all__ = ["feature_matrix", "frame_columns", "known_column", "load_frame", "load_parquet", "number_column"]

_FILL = (
    "Fill it in, or pass allow_nan=True to keep missing values, for rankers that accept them, such as "
    "BoostedRanker."
)
NOT_NUMBERS = (  # advice for a column that does not hold numbers
    "Leave it out with features=[...], encode it as numbers, or read it as categories with "
    "categorical=[...], for boosted trees."
)
_ROW = "row {}".format

_Column: TypeAlias = "Callable[[Any], tuple[NDArray[Any] | None, Mask, str]]"


def load_frame(
    frame: Any,
    *,
    qid: str = "qid",
    label: str | None = "label",
    docid: str | None = None,
    features: Sequence[str] | None = None,
    allow_nan: bool = False,
    categorical: Sequence[str] | None = None,
) -> Queries:
    """Convert a data frame with one row per document to queries.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        The rows. The index of a pandas frame is not a feature, even if a Table or a Parquet file keeps it as
        a column.
    qid : str, default "qid"
        Column of the query ids.
    label : str or None, default "label"
        Column of the labels. None is for documents without labels: every label becomes 0.
    docid : str, optional
        Column of the document names.
    features : sequence of str, optional
        Feature columns, in order. The default is all other columns, with a warning if some have names of
        other things, such as position, clicked, session_id or date. `feature_names` of the result says which
        columns became features.
    allow_nan : bool, default False
        Whether a feature may be missing or NaN. Most rankers accept such queries.
    categorical : sequence of str, optional
        Feature columns of text or numbers to read as categories. Columns of a categorical type (pandas'
        category, polars' Categorical and Enum, Arrow's dictionary) are read as categories in any case.

    Returns
    -------
    Queries
        The documents. The feature columns give `feature_names`; X is float32 if all of them are.

    Raises
    ------
    ValueError
        If a column is missing, or if a value is missing (unless `allow_nan`), infinite, or neither a number
        (booleans count as numbers) nor a category. The message names the column and the row, counted from 0.

    Examples
    --------
    >>> import pandas
    >>> q = load_frame(pandas.DataFrame({"qid": [1, 1], "label": [0, 2], "bm25": [3.5, 4], "len": [7, 9]}))
    >>> q.X, q.feature_names
    (array([[3.5, 7. ],
           [4. , 9. ]]), ('bm25', 'len'))
    """
    names, column = frame_columns(frame)
    chosen = feature_columns(frame, names, qid=qid, label=label, docid=docid, features=features)
    n = len(frame)
    if not n:
        raise ValueError("the frame has no rows; expected one row per document.")
    named = category_names(categorical, chosen)
    X, categories, ordered = feature_matrix(frame, chosen, categorical=named, allow_nan=allow_nan)
    y = np.zeros(n) if label is None else label_column(column, label)
    ids = known_column(column, qid)
    names_of_documents = None
    if docid is not None:
        names_of_documents = known_column(column, docid)
        if names_of_documents.dtype.kind in "iu":
            names_of_documents = names_of_documents.astype(str)
    queries = Queries(
        X,
        y,
        ids,
        names_of_documents,
        tuple(map(str, chosen)),
        allow_nan=allow_nan,
        categories=categories,
        ordered=ordered,
    )
    if features is None:
        warn_of_column_names(chosen)
    return queries


def feature_matrix(
    frame: Any,
    chosen: Sequence[Any],
    *,
    categorical: Set[Any] = frozenset(),
    allow_nan: bool = False,
    advice: str = NOT_NUMBERS,
    place: Callable[[int], str] = _ROW,
) -> tuple[NDArray[Any], dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """Return (X, categories, ordered), as `Queries` has them, of the columns `chosen` of a frame.

    Columns of a categorical type, and those in `categorical`, are read as categories. Raises a ValueError if
    a value is infinite, or missing without `allow_nan`, or neither a number nor a category. The message ends
    with the text `advice` if the column does not hold numbers. The function `place` turns a row index into
    the text by which the message refers to the row, such as "row 3".
    """
    names, column = frame_columns(frame)
    numbers = {name: i for i, name in enumerate(names)}
    columns: list[NDArray[Any]] = []
    categories: dict[str, tuple[Any, ...]] = {}
    ordered: list[str] = []
    for name in chosen:
        if name in categorical or category_kind(frame, numbers[name]):
            found = category_column(frame, numbers[name])
            if not allow_nan and (found.codes < 0).any():
                known_column(column, name, _FILL, place=place)
            columns.append(np.where(found.codes < 0, np.nan, found.codes).astype(np.float32))
            categories[str(name)] = tuple(found.values)
            ordered += [str(name)] * found.ordered
        elif allow_nan:
            columns.append(_nan_column(frame, column, name, advice, place))
        else:
            columns.append(number_column(column, name, advice, _FILL, place=place))
    single = all(values.dtype == np.float32 for values in columns)
    n = len(frame)
    X = np.empty((n, len(columns)), np.float32 if single else np.float64)
    for first in range(0, n, 4096):  # 4096 rows of X stay in the cache while all columns are copied into them
        for j, values in enumerate(columns):
            X[first : first + 4096, j] = values[first : first + 4096]
    return X, categories, tuple(ordered)


def category_names(categorical: Sequence[str] | None, chosen: Sequence[Any]) -> set[Any]:
    """Return the names of the features that the argument `categorical` of `load_frame` names.

    Raises a ValueError if a name is not one of the features `chosen`.
    """
    if isinstance(categorical, str):
        raise ValueError(
            f"categorical must be a sequence of names; got {categorical!r}. Use [{categorical!r}]."
        )
    found = set(categorical or ())
    for name in categorical or ():
        if name not in chosen:
            raise ValueError(_no_column(f"categorical: {name!r}", name, list(chosen), None, "feature column"))
    return found


def feature_columns(
    frame: Any,
    names: list[Any],
    *,
    qid: str,
    label: str | None,
    docid: str | None,
    features: Sequence[str] | None,
) -> list[Any]:
    """Return the names of the feature columns, given all column names of the frame.

    Raises a ValueError if a requested column is missing.
    """
    named = {"qid": qid, "label": label, "docid": docid}
    roles = {role: name for role, name in named.items() if name is not None}
    for role, name in roles.items():
        if name not in names:
            raise ValueError(_no_column(f"{role}={name!r}", name, names, frame))
    if len(set(roles.values())) < len(roles):
        raise ValueError(f"{', '.join(roles)} must name different columns; got {list(roles.values())}.")
    if features is not None:
        return _chosen_features(features, roles, names, frame)
    without = {*roles.values(), *_index_columns(frame, names)}
    chosen = [name for name in names if name not in without]
    if not chosen:
        raise ValueError(f"the frame has no columns besides {list(roles.values())}; expected features.")
    return chosen


def frame_columns(frame: Any) -> tuple[list[Any], _Column]:
    """Return the column names of a frame, and a function that reads the column of a name.

    The function returns (values, missing, type): the values, or None if any is missing; a mask of the missing
    values; and the name of the column's type.
    """
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        names, column = list(frame.columns), _pandas_column
    elif hasattr(frame, "get_column"):
        names, column = list(frame.columns), _polars_column
    elif hasattr(frame, "column_names") and hasattr(frame, "schema"):
        names, column = list(frame.column_names), _arrow_column
    else:
        hint = " Call its collect() first." if hasattr(frame, "collect") else ""
        raise TypeError(
            "frame must be a pandas or polars DataFrame or a pyarrow Table; got "
            f"{type(frame).__module__}.{type(frame).__qualname__}.{hint}"
        )
    no_repeated(names)
    return names, lambda name: column(frame, name)


def no_repeated(names: list[Any]) -> None:
    """Raise a ValueError if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"the frame has {names.count(twice)} columns called {twice!r}; expected one.")


def _index_columns(frame: Any, names: list[Any]) -> set[Any]:
    """Return the columns in which a Table or a Parquet file keeps the index of a pandas frame."""
    # pandas gives these names to index levels without a name
    unnamed = {name for name in names if re.fullmatch(r"__index_level_\d+__", str(name))}
    metadata = getattr(getattr(frame, "schema", None), "pandas_metadata", None) or {}
    kept = metadata.get("index_columns", ())  # a RangeIndex is a dictionary here, not a column name
    return unnamed | {name for name in kept if isinstance(name, str)}


def _pandas_column(frame: Any, name: Any) -> tuple[NDArray[Any] | None, Mask, str]:
    series = frame[name]
    missing = series.isna().to_numpy()
    if missing.any():
        return None, missing, str(series.dtype)
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return series.to_numpy(), missing, str(kind)
    plain = {"i": np.int64, "u": np.uint64, "b": np.bool_, "f": np.float64}.get(
        getattr(kind, "kind", "O"), object
    )
    if plain is np.float64 and getattr(kind, "itemsize", 8) == 4:
        plain = np.float32
    return series.to_numpy(dtype=plain), missing, str(kind)


def _polars_column(frame: Any, name: Any) -> tuple[NDArray[Any] | None, Mask, str]:
    series = frame.get_column(name)
    missing = series.is_null().to_numpy()
    return None if missing.any() else series.to_numpy(), missing, str(series.dtype)


def _arrow_column(frame: Any, name: Any) -> tuple[NDArray[Any] | None, Mask, str]:
    return arrow_values(frame.column(name))


def arrow_values(array: Any) -> tuple[NDArray[Any] | None, Mask, str]:
    """Return (values, missing, type) of a pyarrow column.

    values   Its values, or None if any is missing.
    missing  Mask of the missing values.
    type     Name of its type.
    """
    missing = _arrow_to_numpy(array.is_null())
    return None if missing.any() else _arrow_to_numpy(array), missing, str(array.type)


def _arrow_to_numpy(array: Any) -> NDArray[Any]:
    if str(array.type) in ("string_view", "binary_view"):  # which Arrow does not convert
        array = array.cast(f"large_{array.type}".removesuffix("_view"))
    # An Array (a column of a RecordBatch) may be copied only with this option; a ChunkedArray needs none.
    values: NDArray[Any] = array.to_numpy(**({} if hasattr(array, "chunks") else {"zero_copy_only": False}))
    return values


def known_column(
    column: _Column, name: Any, fill: str = "", *, place: Callable[[int], str] = _ROW
) -> NDArray[Any]:
    """Return the values of a column; raise a ValueError if one is missing or not finite.

    The message ends with the advice `fill`. The function `place` turns a row index into the text by which the
    message refers to the row, such as "row 3".
    """
    values, missing, kind = column(name)
    advice = f" {fill}" if fill else ""
    if values is None:
        raise ValueError(
            f"column {name!r} ({kind}) has no value in {place(int(np.argmax(missing)))}.{advice}"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"column {name!r} holds {values[row]} in {place(row)}; expected a finite number.{advice}"
        )
    return values


def number_column(
    column: _Column, name: Any, advice: str, fill: str = "", *, place: Callable[[int], str] = _ROW
) -> NDArray[Any]:
    """Return the values of a column of finite numbers, or raise a ValueError.

    The message ends with the text `advice` if the column does not hold numbers, and with the text `fill` if
    a value is missing or not finite. The function `place` turns a row index into the text by which the
    message refers to the row, such as "row 3".
    """
    values = known_column(column, name, fill, place=place)
    if values.dtype.kind not in "biuf":
        raise _not_numbers(values, column(name)[2], name, advice, place)
    return values


def _not_numbers(
    values: NDArray[Any], kind: str, name: Any, advice: str, place: Callable[[int], str]
) -> ValueError:
    others = (i for i, x in enumerate(values) if x is not None and not isinstance(x, int | float))
    row = next(others, 0)  # 1.5 tells nothing in a column of numbers and text
    shown = values[row : row + 1].tolist()[0]
    return ValueError(
        f"column {name!r} must hold numbers; it is {kind}, with {shown!r} in {place(row)}. {advice}"
    )


def _nan_column(
    frame: Any, column: _Column, name: Any, advice: str, place: Callable[[int], str]
) -> NDArray[Any]:
    """Return the values of a column of numbers, with NaN for missing values.

    Raises a ValueError if a value is infinite or the column does not hold numbers. If it does not hold
    numbers, the message ends with the text `advice`.
    """
    values, missing, kind = column(name)
    if missing.all():
        return np.full(len(missing), np.nan, np.float32)
    if values is None:
        values = _with_missing(frame, name, missing)
    if values.dtype.kind not in "biuf":
        raise _not_numbers(values, kind, name, advice, place)
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise ValueError(f"column {name!r} holds {values[row]} in {place(row)}; expected a finite number.")
    return values


def _with_missing(frame: Any, name: Any, missing: Mask) -> NDArray[Any]:
    """Return the values of a column in which some are missing: NaN in numbers, None in other values."""
    if hasattr(frame, "iloc"):
        if getattr(frame[name].dtype, "kind", "O") in "biuf":
            found: NDArray[Any] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
            return found
        values: NDArray[Any] = frame[name].to_numpy(dtype=object, na_value=None)
    elif hasattr(frame, "get_column"):  # polars and pyarrow convert missing numbers to NaN
        values = frame.get_column(name).to_numpy()
    else:
        values = _arrow_to_numpy(frame.column(name))
    if values.dtype == object and all(isinstance(value, bool) for value in values[~missing]):
        return np.where(missing, np.nan, values).astype(np.float64)
    return values


def label_column(column: _Column, name: Any, *, place: Callable[[int], str] = _ROW) -> Floats:
    """Return the labels of a column as float64; raise a ValueError if one is missing or not from 0 to 2^53.

    The function `place` turns a row index into the text by which the message refers to the row, such as
    "row 3".
    """
    advice = "Labels are numbers, larger for more relevant."
    y = number_column(column, name, advice, place=place).astype(np.float64)
    for wrong, what in ((y < 0, "below 0"), (y > _native.LARGEST_LABEL, "above 2^53")):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"column {name!r} holds {y[row]} in {place(row)}; labels must not be {what}.")
    return y


def _chosen_features(
    features: Sequence[str], roles: dict[str, str], names: list[Any], frame: Any
) -> list[Any]:
    if isinstance(features, str):
        raise ValueError(f"features must be a sequence of names; got {features!r}. Use [{features!r}].")
    chosen = list(features)
    if not chosen:
        raise ValueError("features must name at least one column; got none.")
    known, seen = set(names), set()
    for name in chosen:
        if name not in known:
            raise ValueError(_no_column(f"features: {name!r}", name, names, frame))
        if name in seen:
            raise ValueError(f"features must name a column once; got {name!r} again.")
        for role, taken in roles.items():
            if name == taken:
                raise ValueError(f"features must not name {name!r}, which is the {role}.")
        seen.add(name)
    return chosen


def _no_column(argument: str, name: Any, names: list[Any], frame: Any, kind: str = "column") -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name), [str(known) for known in names], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if name in (getattr(getattr(frame, "index", None), "names", None) or ()):
        hint = " It is in the index: call frame.reset_index() first."
    shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    return f"{argument} is not a {kind} of the frame.{hint} It has {shown}."


def load_parquet(
    path: StrPath,
    *,
    qid: str = "qid",
    label: str | None = "label",
    docid: str | None = None,
    features: Sequence[str] | None = None,
    allow_nan: bool = False,
    categorical: Sequence[str] | None = None,
    split_queries: Literal["error", "join"] = "error",
) -> Queries:
    """Read a Parquet file with one row per document.

    Needs pyarrow, which the extra "parquet" installs.

    Parameters
    ----------
    path : path
        The file.
    qid : str, default "qid"
        Column of the query ids.
    label : str or None, default "label"
        Column of the labels. None is for documents without labels: every label becomes 0.
    docid : str, optional
        Column of the document names.
    features : sequence of str, optional
        Feature columns, in order; only the named columns are read. The default is all other columns.
    allow_nan : bool, default False
        Whether a feature may be missing or NaN. Most rankers accept such queries.
    categorical : sequence of str, optional
        Feature columns of text or numbers to read as categories. Dictionary columns, as which pandas and
        polars write categories of text, are read as categories in any case.
    split_queries : {"error", "join"}, default "error"
        What to do if the rows of a query are not consecutive. "error" raises an error that names both rows.
        "join" reads all rows with the same id as one query, as `load_frame` does.

    Returns
    -------
    Queries
        The documents, as `load_frame` returns them.

    Raises
    ------
    ValueError
        If the file is not readable Parquet, or for a reason listed under `load_frame`.
    """
    check_option(split_queries)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError('load_parquet needs pyarrow: pip install "sinkprop[parquet]"') from error
    name = os.fsdecode(path)
    with open(name, "rb"):  # a path that cannot be opened raises Python's usual error
        pass
    try:
        # Pass the name, not an open file: Arrow's threads may use a Python file after the read has ended, and
        # then abort the process at exit.
        with pq.ParquetFile(name) as file:
            known, wanted = file.schema_arrow.names, None
            if features is not None and not isinstance(features, str):
                wanted = [c for c in known if c in {qid, label, docid, *features}]
            lacking = {qid, label, docid, *(features or ())} - {None, *known}
            # If a column is missing, no rows are read: load_frame will raise an error that lists all columns.
            table = file.schema_arrow.empty_table() if lacking else file.read(columns=wanted)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a Parquet file that can be read: {error}") from error
    try:
        queries = load_frame(
            table,
            qid=qid,
            label=label,
            docid=docid,
            features=features,
            allow_nan=allow_nan,
            categorical=categorical,
        )
        if split_queries == "error":
            refuse_split(queries.groups, _ROW)
        return queries
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
