"""Checks of the arguments of `fit` other than features: labels, weights, groups, evaluation sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from sinkprop.common.types import Floats
from sinkprop.data.checks import as_sample_weight, unmasked
from sinkprop.data.kinds import has_own_queries

__all__ = [
    "evaluation_items",
    "expanded_weight",
    "is_pair",
    "label_column",
    "one_each",
    "text_column",
]


def label_column(y: ArrayLike, name: str) -> NDArray[Any]:
    """Labels as an array with one number per row; errors use scikit-learn's wording."""
    column: NDArray[Any] = column_or_1d(unmasked(f"{name}y", y), warn=True)
    if column.dtype.kind in "OU":  # a column of objects or text may hold numbers
        try:
            column = column.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}y must hold numbers; {error}. Give each grade its number: 0 for not relevant, larger "
                "for more relevant."
            ) from None
    if column.dtype.kind == "f" and np.isinf(column).any():
        row = int(np.argmax(np.isinf(column)))
        raise ValueError(
            "Input y contains infinity or a value too large for dtype('float64'). "
            f"Labels must be finite; row {row} of {name}y holds {column[row]}."
        )
    return column


def text_column(X: Any) -> Any:
    """Name of the first column of a frame that does not hold numbers.

    None if all columns hold numbers or X is not a frame.
    """
    return next((name for name in getattr(X, "columns", ()) if not _is_numeric(np.asarray(X[name]))), None)


def _is_numeric(values: NDArray[Any]) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def expanded_weight(weight: ArrayLike, n: int) -> Floats:
    """Row weights (n,) from an array, or from one number for all rows."""
    array = np.asarray(unmasked("sample_weight", weight))
    return as_sample_weight(np.full(n, array) if array.ndim == 0 else array, n)


def is_pair(eval_set: Any) -> bool:
    """Whether `eval_set` is a single (X, y) pair rather than a list of pairs."""
    return isinstance(eval_set, tuple) and len(eval_set) == 2 and not isinstance(eval_set[0], tuple)


def evaluation_items(eval_set: Any) -> list[Any]:
    """The evaluation sets as a list. A single set need not be given in a list."""
    return [eval_set] if is_pair(eval_set) or has_own_queries(eval_set) else list(eval_set)


def one_each(values: Any, n: int, name: str) -> list[Any]:
    """Values of `eval_qid` or `eval_group` as a list with one item per evaluation set.

    The array of a single set need not be given in a list.
    """
    if values is None:
        return [None] * n
    several = isinstance(values, list | tuple) and len(values) > 0 and np.ndim(values[0]) == 1
    items = list(values) if several else [values]
    if len(items) != n:
        raise ValueError(f"{name} must have one item per evaluation set: {n}; got {len(items)}.")
    return items
