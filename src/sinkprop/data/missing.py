"""Missing values of linear and neural rankers: a mean in their place, and columns that say where they were.

A model contains its treatment of missing values, which is learned from the training rows. Trees need none,
since their splits send missing values left or right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.feature_scaling import Scaling

__all__ = [
    "DEFAULT",
    "MISSING",
    "MissingValues",
    "filled",
    "has_missing",
    "learned_from",
    "learned_from_rows",
]

Treatment = Literal["indicator", "mean", "error"]

MISSING: tuple[Treatment, ...] = ("indicator", "mean", "error")
DEFAULT: Treatment = "indicator"

_CHUNK = 1 << 15  # rows per chunk; chunks avoid a second copy of all features


@dataclass(frozen=True, eq=False)
class MissingValues:
    """The treatment of missing values (NaN) in a model with D features.

    A missing value is replaced by the mean of its feature. Behind the D features, there is an indicator, a
    column that is 1 where the value of a feature was missing and 0 elsewhere, for each of the I features
    `indicators`.

    mean        (D,) mean of each feature over the training rows in which it is known; 0 for a feature that is
                known in none of them. If the features are scaled within their query or transformed for a
                network, it is the mean of the scaled or transformed values.
    indicators  (I,) columns, in increasing order, of the features that have an indicator: those that are
                missing in some training rows and known in others, or none of them.
    """

    mean: Floats
    indicators: Integers

    @property
    def n_columns(self) -> int:
        """Number of columns of the treated features, D + I."""
        return len(self.mean) + len(self.indicators)

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """Treat the rows X (N, D); returns a new array (N, D + I) of the same type."""
        absent, n_features = np.isnan(X), len(self.mean)
        out = np.empty((len(X), self.n_columns), dtype=X.dtype)
        out[:, :n_features] = np.where(absent, self.mean.astype(X.dtype), X)
        out[:, n_features:] = absent[:, self.indicators]
        return out

    def names(self, features: Sequence[str]) -> list[str]:
        """Names of the D + I columns, given the names of the D features.

        >>> MissingValues(np.zeros(2), np.array([1])).names(["title", "bm25"])
        ['title', 'bm25', 'missing(bm25)']
        """
        known = [str(name) for name in features]
        return known + [f"missing({known[i]})" for i in self.indicators.tolist()]

    def record(self) -> dict[str, Any]:
        """The treatment as a dict of arrays, for a model file."""
        return {"mean": self.mean, "indicators": self.indicators}

    @classmethod
    def from_record(cls, record: dict[str, Any], n_features: int) -> MissingValues:
        """Return the treatment that `record` described. Raises a ValueError if it does not fit the model."""
        mean = np.asarray(record["mean"], dtype=np.float64)
        indicators = np.asarray(record["indicators"])
        if mean.shape != (n_features,) or not np.isfinite(mean).all():
            raise ValueError(f"means of shape {mean.shape}, or not finite, for {n_features} features")
        known = np.arange(n_features)
        if indicators.dtype.kind not in "iu" or not np.array_equal(
            indicators, np.intersect1d(indicators, known)
        ):
            raise ValueError(f"indicators that are not increasing columns of {n_features} features")
        return cls(mean, indicators.astype(np.int64))


def has_missing(X: NDArray[Any]) -> bool:
    """Whether a value of X is NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        # one quick pass: the sum of an array with NaN is NaN, and hardly any other sum is
        return bool(np.isnan(X.sum()) and np.isnan(X).any())


def learned_from(treatment: str, n_rows: int, sums: Floats, absent: Integers) -> MissingValues:
    """Return the treatment for training rows with these missing values.

    treatment  "indicator" for means and indicators, "mean" for means only.
    n_rows     Number of rows.
    sums       (D,) sum of the known values of each feature.
    absent     (D,) number of rows in which each feature is missing.

    Raises a ValueError if every value is missing.
    """
    known = n_rows - absent
    if not known.any():
        raise ValueError(f"X has no values: every feature is missing (NaN) in all {n_rows} training rows.")
    mean = np.where(known > 0, sums / np.maximum(known, 1), 0.0)
    # Rounded to single precision, a mean is the same number in rows of float32 and of float64.
    with np.errstate(over="ignore"):
        single = mean.astype(np.float32).astype(np.float64)
    mean = np.where(np.isfinite(single), single, mean)
    some: Mask = (absent > 0) & (known > 0)
    return MissingValues(mean, np.flatnonzero(some if treatment == "indicator" else np.zeros_like(some)))


def learned_from_rows(treatment: str, X: NDArray[Any]) -> MissingValues:
    """Return the treatment for the training rows X (N, D), which are in memory.

    >>> learned_from_rows("indicator", np.array([[1.0, np.nan], [2.0, 6.0]]))(np.array([[np.nan, np.nan]]))
    array([[1.5, 6. , 1. ]])
    """
    sums, absent = np.zeros(X.shape[1]), np.zeros(X.shape[1], dtype=np.int64)
    for start in range(0, len(X), _CHUNK):
        rows = X[start : start + _CHUNK]
        gone = np.isnan(rows)
        sums += np.where(gone, 0.0, rows).sum(axis=0)
        absent += gone.sum(axis=0)
    return learned_from(treatment, len(X), sums, absent)


def filled(X: NDArray[Any], missing: MissingValues | None, scaling: Scaling) -> NDArray[Any]:
    """Return the rows X (N, D) of a prediction, treated as in the training of the model.

    missing  Treatment of the model; None if it was trained without missing values. Then the mean of a feature
             is known only from a scaling of the kind "standard". Raises a ValueError if it is needed but not
             known.
    scaling  Feature scaling of the model.
    """
    if missing is not None:
        return missing(X)
    if not has_missing(X):
        return X
    if scaling.kind != "standard":
        column = int(np.argmax(np.isnan(X).any(axis=0)))
        raise ValueError(
            f"X has missing values (NaN) in column {column}. The model was trained without missing values "
            f"and with normalization={scaling.kind!r}, so it has no mean to put in their place. Fill them "
            "in, or train with normalization='standard' or on data that have missing values."
        )
    return MissingValues(scaling.shift, np.zeros(0, dtype=np.int64))(X)
