"""Checks of the arrays that callers pass: scores, features, labels and weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.types import Floats

if TYPE_CHECKING:
    from sinkprop.data.queries import Groups

__all__ = ["as_features", "as_labels", "as_query_weight", "as_sample_weight", "as_scores"]


_MISSING = (
    " Fill in missing values, for example with sklearn.impute.SimpleImputer, or use BoostedRanker, whose "
    "trees accept NaN."
)


_LARGEST = float(np.finfo(np.float64).max)


def as_scores(scores: ArrayLike, width: int) -> Floats:
    """Scores as float64, of shape (N,) for width 1 and (N, width) otherwise; every value is finite."""
    array = _as_floats("scores", scores)
    expected = "(N,)" if width == 1 else f"(N, {width})"
    if array.ndim != (1 if width == 1 else 2) or (width > 1 and array.shape[1] != width):
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
    return array


def as_features(
    X: ArrayLike, *, name: str = "X", allow_nan: bool = False, columns: Sequence[str] | None = None
) -> NDArray[Any]:
    """Features as a C-ordered (N, D) array; float32 stays float32, other types become float64.

    Every value is finite; with `allow_nan` a value may also be NaN, which means that it is missing. `columns`
    are the names of the features for the error message, if known.
    """
    try:
        array = np.asarray(X)
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
    ):  # quick test in one pass: a sum is finite unless an entry is not, or, very rarely, it overflows
        if not np.isfinite(array.sum()):
            bad = np.argwhere(np.isinf(array) if allow_nan else ~np.isfinite(array))
            if len(bad):
                row, column = bad[0]
                expected = "finite, or NaN for missing" if allow_nan else "finite, without NaN or inf"
                called = "" if columns is None else f" ({str(columns[column])!r})"
                advice = _MISSING if np.isnan(array[row, column]) else ""
                raise ValueError(
                    f"{name} must be {expected}; row {row}, column {column}{called} holds "
                    f"{array[row, column]}.{advice}"
                )
    return array


def as_labels(labels: ArrayLike, n: int, *, rows_of: str = "scores") -> Floats:
    """Labels as float64 of shape (n,), finite and not below 0."""
    array = _as_floats("labels", labels)
    if array.ndim != 1:
        raise ValueError(f"labels must have the shape ({n},); got {array.shape}.")
    if len(array) != n:
        raise ValueError(
            f"labels must have one value per row of {rows_of}: {n} rows, but {len(array)} labels."
        )
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        raise ValueError(f"labels must be finite and not below 0; row {bad} holds {array[bad]}.")
    return array


def as_sample_weight(weight: ArrayLike, n: int) -> Floats:
    """Row weights as float64 of shape (n,), finite and not below 0."""
    array = _as_floats("sample_weight", weight)
    if array.shape != (n,):
        raise ValueError(f"sample_weight must have one weight per row, ({n},); got {array.shape}.")
    bad = _native.first_invalid(array, 0.0, _LARGEST)
    if bad >= 0:
        raise ValueError(f"sample_weight must be finite and not below 0; row {bad} holds {array[bad]}.")
    return array


def as_query_weight(weight: ArrayLike | Mapping[Hashable, float], groups: Groups, n: int) -> Floats:
    """Query weights (Q,) in the order of `groups.queries`, finite, not below 0, with a sum above 0.

    They are given as one weight per query in order of first appearance, as one per row (equal within each
    query), or as a mapping from query id to weight.
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
    """C-ordered float64 array of at least one axis; errors call it `name`."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        if not array.ndim:  # ascontiguousarray would turn it into an array of shape (1,)
            raise TypeError("a single number")
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {error}.") from None
