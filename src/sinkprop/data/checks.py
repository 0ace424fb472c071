"""Checks of the arrays that callers pass: scores, features, labels and weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Reals

if TYPE_CHECKING:
    from sinkprop.data.queries import Groups

__all__ = [
    "as_features",
    "as_label_columns",
    "as_labels",
    "as_query_weight",
    "as_real_scores",
    "as_sample_weight",
    "as_scores",
    "nan_for_masked",
    "unmasked",
]


_MISSING = (
    " Fill in missing values, for example with sklearn.impute.SimpleImputer, or use a ranker that takes "
    "them: a linear or neural one with missing='indicator', or trees, such as BoostedRanker."
)


_LARGEST = float(np.finfo(np.float64).max)
_LARGEST_LABEL = _native.LARGEST_LABEL
_DOUBLE = np.dtype(np.float64)


def unmasked(name: str, values: Any) -> Any:
    """Return a masked array of NumPy without its mask, and any other value as it is.

    Raises a ValueError that calls the array `name` if an entry is masked, because the value under a mask
    is not meant to be used.

    >>> unmasked("labels", np.ma.array([1, 2], mask=[False, False]))
    array([1, 2])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    masked = np.argwhere(np.ma.getmaskarray(values))
    if len(masked):
        place = ", column ".join(map(str, masked[0].tolist()))
        raise ValueError(
            f"{name} must not have masked entries; row {place} is masked. Leave out the masked rows, or fill "
            "them in with the method filled()."
        )
    return values.data


def nan_for_masked(X: Any) -> Any:
    """Return features X with NaN, which means missing, in place of masked entries.

    Anything other than a masked array of NumPy is returned as it is.

    >>> nan_for_masked(np.ma.array([[1, 2]], mask=[[False, True]]))
    array([[ 1., nan]])
    """
    if not isinstance(X, np.ma.MaskedArray) or X.dtype.kind not in "fiub":
        return X
    if not np.ma.getmaskarray(X).any():
        return X.data
    return np.ma.filled(X.astype(X.dtype if X.dtype.kind == "f" else np.float64), np.nan)


def as_scores(scores: ArrayLike, width: int) -> Floats:
    """Return scores as float64, of shape (N,) for width 1 and (N, width) otherwise.

    Raises a ValueError if the shape is wrong or a score is not finite.
    """
    if width == 1 and type(scores) is np.ndarray and _native.is_valid_vector(scores, -_LARGEST, _LARGEST):
        return scores  # as most are: one call makes all checks, of which those below name the one that fails
    array = _as_floats("scores", scores)
    _check_scores(array, width)
    return array


def as_real_scores(scores: ArrayLike, width: int) -> Reals:
    """Return scores as `as_scores` does, except that an array of float32 is not converted."""
    if not (type(scores) is np.ndarray and scores.dtype == np.float32 and scores.flags.c_contiguous):
        return as_scores(scores, width)
    _check_scores(scores, width)
    return scores


def _check_scores(array: Reals, width: int) -> None:
    if array.ndim != (1 if width == 1 else 2) or (width > 1 and array.shape[1] != width):
        expected = "(N,)" if width == 1 else f"(N, {width})"
        raise ValueError(
            f"scores must have the shape {expected} for this relaxation, which takes {width} "
            f"{'number' if width == 1 else 'numbers'} per document; got {array.shape}."
        )
    if not len(array):
        raise ValueError("scores must hold at least one document; got none.")
    bad = _native.first_invalid(array, -_LARGEST, _LARGEST)
    if bad >= 0:
        row, value = bad // width, array.reshape(-1)[bad]
        raise ValueError(f"scores must be finite; row {row} holds {value}.")


def as_features(
    X: ArrayLike,
    *,
    name: str = "X",
    allow_nan: bool = False,
    columns: Sequence[str] | None = None,
    missing: str = _MISSING,
) -> NDArray[Any]:
    """Return features as a C-ordered (N, D) array; float32 stays float32, other types become float64.

    Raises a ValueError if a value is not finite; with `allow_nan`, it may be NaN, which means missing. A
    masked entry counts as NaN. The error message calls the array `name`, and names the feature if the
    feature names `columns` are given. For a value that is NaN, it ends with the advice `missing`.
    """
    try:
        array = np.asarray(nan_for_masked(X))
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        kind = np.float32 if array.dtype == np.float32 else np.float64
        array = np.ascontiguousarray(array, dtype=kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {error}.") from None
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape (N, D), one row per document; got {array.shape}.")
    if not array.shape[0] or not array.shape[1]:
        raise ValueError(f"{name} must hold at least one document and one feature; got {array.shape}.")
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # quick test in one pass: if every entry is finite, so is the sum, unless it overflows (very rare)
        if not np.isfinite(array.sum()):
            bad = np.argwhere(np.isinf(array) if allow_nan else ~np.isfinite(array))
            if len(bad):
                row, column = bad[0]
                expected = "finite, or NaN for missing" if allow_nan else "finite, without NaN or inf"
                called = "" if columns is None else f" ({str(columns[column])!r})"
                advice = missing if np.isnan(array[row, column]) else ""
                raise ValueError(
                    f"{name} must be {expected}; row {row}, column {column}{called} holds "
                    f"{array[row, column]}.{advice}"
                )
    return array


def as_labels(labels: ArrayLike, n: int, *, rows_of: str = "scores") -> Floats:
    """Return labels as float64 of shape (n,).

    Raises a ValueError if a label is not from 0 to 2^53, or if the number of labels is not n. Up to 2^53,
    every whole number is exact in float64; a gain of 2^label has a lower limit of its own. `rows_of` is used
    in the error message: it names the array whose n rows the labels belong to.
    """
    array = _as_floats("labels", labels)
    if array.ndim != 1:
        raise ValueError(f"labels must have the shape ({n},); got {array.shape}.")
    return _checked_labels(array, n, rows_of)


def _checked_labels(array: Floats, n: int, rows_of: str) -> Floats:
    if len(array) != n:
        raise ValueError(
            f"labels must have one value per row of {rows_of}: {n} rows, but {len(array)} labels."
        )
    bad = _native.first_invalid(array, 0.0, _LARGEST_LABEL)
    if bad >= 0:
        raise ValueError(f"labels must be finite {_label_limit(array[bad])}; row {bad} holds {array[bad]}.")
    return array


def as_label_columns(labels: Any, n: int, *, rows_of: str = "scores") -> Floats:
    """Return labels as C-ordered float64: (n,) for one label per row, (n, I) for I > 1 labels per row.

    `labels` is an array of shape (n,), an array of shape (n, I) with one column per intent, or a SciPy sparse
    matrix or array of shape (n, I). A single column becomes shape (n,). Raises a ValueError if a label is not
    from 0 to 2^53, or if the number of rows is not n. `rows_of` is used in the error message: it names the
    array whose n rows the labels belong to.
    """
    valid = type(labels) is np.ndarray and _native.is_valid_vector(labels, 0.0, _LARGEST_LABEL)
    if valid and len(labels) == n:
        return cast(Floats, labels)  # as most are
    if not isinstance(labels, np.ndarray) and hasattr(labels, "nnz"):
        labels = _dense_labels(labels, n, rows_of)
    array = _as_floats("labels", labels)
    if array.ndim == 1:
        return _checked_labels(array, n, rows_of)
    if array.ndim != 2:
        raise ValueError(
            f"labels must have the shape ({n},), or ({n}, I) with one column per intent; got {array.shape}."
        )
    _check_label_shape(array.shape, n, rows_of)
    if array.shape[1] == 1:
        return _checked_labels(array.reshape(-1), n, rows_of)
    bad = _native.first_invalid(array, 0.0, _LARGEST_LABEL)
    if bad >= 0:
        row, column = divmod(bad, array.shape[1])
        raise ValueError(
            f"labels must be finite {_label_limit(array[row, column])}; row {row}, column {column} holds "
            f"{array[row, column]}."
        )
    return array


def _dense_labels(labels: Any, n: int, rows_of: str) -> NDArray[Any]:
    """Return a SciPy sparse matrix or array of labels as a dense array.

    The shape is checked before the dense array is made, which may be large.
    """
    from scipy.sparse import issparse

    if not issparse(labels):
        raise ValueError(
            f"labels must be an array or a SciPy sparse matrix; got {type(labels).__name__}. Convert it to a "
            "NumPy array."
        )
    if labels.ndim == 2:
        _check_label_shape(labels.shape, n, rows_of)
    dense: NDArray[Any] = labels.toarray()
    return dense


def _check_label_shape(shape: tuple[int, ...], n: int, rows_of: str) -> None:
    if shape[0] != n:
        raise ValueError(
            f"labels must have one row per row of {rows_of}: {n} rows, but {shape[0]} of labels."
        )
    if not shape[1]:
        raise ValueError(f"labels must have at least one column, one per intent; got the shape {shape}.")


def _label_limit(label: float) -> str:
    """Say which limit a label violates, for an error message."""
    return "and not above 2^53" if _LARGEST_LABEL < label < np.inf else "and not below 0"


def as_sample_weight(weight: ArrayLike, n: int) -> Floats:
    """Return row weights as float64 of shape (n,); raise a ValueError if one is not finite or is below 0."""
    array = _as_floats("sample_weight", weight)
    if array.shape != (n,):
        raise ValueError(f"sample_weight must have one weight per row, ({n},); got {array.shape}.")
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        raise ValueError(f"sample_weight must be finite and not below 0; row {bad} holds {array[bad]}.")
    return array


def as_query_weight(weight: ArrayLike | Mapping[Hashable, float], groups: Groups, n: int) -> Floats:
    """Return query weights (Q,) in the order of `groups.queries`.

    `weight` is one weight per query in order of first appearance, one weight per row (equal within each
    query), or a mapping from query id to weight. Raises a ValueError if a weight is not finite or is below 0,
    or if their sum is 0.
    """
    Q = len(groups.queries)
    if isinstance(weight, Mapping):
        missing = [q for q in groups.queries.tolist() if q not in weight]
        if missing:
            raise ValueError(
                f"query_weight must have a weight for every query; there is none for {missing[0]!r}."
            )
        weight = [weight[q] for q in groups.queries.tolist()]
    array = _as_floats("query_weight", weight)
    if array.shape not in {(Q,), (n,)}:
        raise ValueError(
            f"query_weight must have one weight per query, ({Q},), or one per row, ({n},); got {array.shape}."
        )
    if len(array) != Q:
        rows = array if groups.rows is None else array[groups.rows]
        least = np.minimum.reduceat(rows, groups.offsets[:-1])
        most = np.maximum.reduceat(rows, groups.offsets[:-1])
        if not np.array_equal(least, most):  # also true for NaN, which is not equal to itself
            q = groups.queries[int(np.argmin(least == most))]
            raise ValueError(
                "query_weight with one value per row must have equal, finite values within each query; it "
                f"does not in query {q!r}."
            )
        array = least
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        q = groups.queries[bad]
        raise ValueError(f"query_weight must be finite and not below 0; query {q!r} has {array[bad]}.")
    if not 0 < array.sum() < np.inf:
        raise ValueError(f"query_weight must have a finite sum above 0; got {array.sum()}.")
    return array


def _as_floats(name: str, values: ArrayLike) -> Floats:
    """Return the values as a C-ordered float64 array.

    Raises a ValueError if they are not an array of real numbers; a single number is not one. The error
    message calls the values `name`.
    """
    if type(values) is np.ndarray and values.dtype is _DOUBLE and values.ndim and values.flags.c_contiguous:
        return values  # as most arrays are
    values = unmasked(name, values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        if not array.ndim:  # ascontiguousarray would turn a single number into an array
            raise TypeError("a single number")
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {error}.") from None
