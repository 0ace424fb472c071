"""Contributions of the features to scores: those of a linear model, and the check of given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues
from sinkprop.data.queries import Groups

__all__ = ["checked_contributions", "linear_contributions"]


def linear_contributions(
    X: NDArray[Any],
    weights: Floats,
    intercept: float,
    scaling: Scaling,
    missing: MissingValues | None,
    groups: Groups | None,
) -> Floats:
    """Contributions (N, D + 1) of the features to the scores of a linear model; the last column is the base.

    Feature j contributes w_j (x_j - m_j), where m_j is its mean: over the training rows if the model has it,
    and over the rows of the query if features are scaled within queries. With neither, m_j is 0. The base is
    the score of a document with these means. What the indicator of a missing value contributes is part of the
    contribution of its feature.

    X        (N, D + I) rows as the model scores them, before `scaling` is applied.
    weights  (D + I,) weights of the scaled columns.
    groups   Queries of the rows; needed if the scaling is of the kind "query".
    """
    parts = (np.asarray(X, dtype=np.float64) - scaling.shift) * (scaling.factor * weights)
    base = np.full(len(X), float(intercept))
    if scaling.kind == "query" and groups is not None:
        rows = slice(None) if groups.rows is None else groups.rows
        means = np.add.reduceat(parts[rows], groups.offsets[:-1], axis=0) / groups.sizes[:, None]
        parts -= means[groups.codes]
        base += means.sum(axis=1)[groups.codes]
    if missing is not None and len(missing.indicators):
        n_features = len(missing.mean)
        parts[:, missing.indicators] += parts[:, n_features:]
        parts = parts[:, :n_features]
    return np.concatenate([parts, base[:, None]], axis=1)


def checked_contributions(
    given: Any, *, base: bool, feature_names: Sequence[str] | None
) -> tuple[Floats, Floats | None, tuple[str, ...]]:
    """Contributions (N, D), the base value (N,) of each row, if there is one, and the names of the features.

    given  Array (N, D + 1), or (N, D) if `base` is False; or an explanation of shap, with the attributes
           `values` (N, D), `base_values` and `feature_names`.
    """
    values, bases, names = given, None, feature_names
    if hasattr(given, "base_values"):
        values, bases = given.values, given.base_values
        names = getattr(given, "feature_names", None) if names is None else names
    array = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            "contributions must be numbers of shape (N, D + 1), as predict(X, pred_contrib=True) returns "
            "them, or an explanation of shap with values of shape (N, D); got "
            f"{array.dtype} of shape {array.shape}."
        )
    array = array.astype(np.float64)
    if bases is not None:
        bases = np.broadcast_to(np.asarray(bases, dtype=np.float64).reshape(-1), (len(array),))
    elif base:
        array, bases = array[:, :-1], array[:, -1]
    n, n_features = array.shape
    if not n or not n_features:
        raise ValueError(f"contributions must have at least one row and one feature; got {n} x {n_features}.")
    finite = np.isfinite(array).all(axis=1) & (True if bases is None else np.isfinite(bases))
    if not finite.all():
        raise ValueError(f"contributions must be finite; row {int(np.argmin(finite))} is not.")
    if names is None:
        names = [f"feature {i}" for i in range(1, n_features + 1)]
    if len(names) != n_features:
        raise ValueError(
            f"feature_names has {len(names)} names for {n_features} features. The last column of "
            "contributions is the base value; give base=False if it is a feature."
        )
    return array, bases, tuple(map(str, names))
