"""Transform, missing values and scaling of the features of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling, scaling_of
from sinkprop.data.missing import MissingValues, filled

__all__ = ["MOMENT_ROWS", "TRANSFORMS", "Known", "Moments", "Preparation", "make_preparation"]


TRANSFORMS = ("log1p", "none")
MOMENT_ROWS = 1 << 15  # rows per chunk; moments are computed for each chunk and then combined

_KEPT_BYTES = 1 << 30  # features up to this size are prepared once, larger ones for every minibatch
# Number of rows that are prepared at a time, in one buffer that is reused and fits the CPU caches. A new
# buffer for all rows would take longer to allocate than the logarithms take to compute.
_CHUNK = 1 << 10


@dataclass(frozen=True, eq=False)
class Preparation:
    """Preparation of features for the network: the transform, missing values, then the feature scaling.

    transform  "log1p", which is sign(x) log(1 + |x|), or "none"
    scaling    The feature scaling. If it is by query, the rows that are passed have been transformed and
               scaled already.
    missing    Treatment of missing values; None if there were none in the fit. Then a missing value gets the
               mean of its feature if the scaling is "standard", and is an error otherwise.
    """

    transform: str
    scaling: Scaling
    dtype: torch.dtype
    missing: MissingValues | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns of the prepared rows: the features, and the indicators of missing values."""
        return len(self.scaling.shift)

    def __call__(self, X: NDArray[Any], out: Tensor | None = None) -> Tensor:
        """Return the rows (N, D) prepared for the network, (N, D + I) with I indicators of missing values.

        They are written to `out` if it is given. Raises a ValueError if a value is too large for the dtype.
        """
        if out is None:
            out = torch.empty((len(X), self.n_columns), dtype=self.dtype)
        standard = self.scaling.kind == "standard"
        shift, factor = torch.tensor(self.scaling.shift), torch.tensor(self.scaling.factor)
        room = torch.empty((min(_CHUNK, len(X)), X.shape[1]), dtype=torch.float64)
        for start in range(0, len(X), _CHUNK):
            given = X[start : start + _CHUNK]
            rows = room[: len(given)]
            rows.numpy()[...] = given
            if self.transform == "log1p" and self.scaling.kind != "query":
                _log1p(rows)
            if self.missing is not None or bool(rows.sum().isnan()):
                rows = torch.from_numpy(filled(rows.numpy(), self.missing, self.scaling))
            if standard:
                rows.sub_(shift).mul_(factor)
            out[start : start + _CHUNK] = rows
        # If the sum is finite, so are all values; this check is quick. Otherwise check each value, because
        # perhaps only the sum overflowed.
        if not bool(out.sum().isfinite()) and not bool(out.isfinite().all()):
            row, column = (~out.isfinite()).nonzero()[0].tolist()
            raise ValueError(
                f"X holds {X[row, column]!r} in row {row}, column {column}, which is too large for "
                f"{str(self.dtype).rpartition('.')[2]}. Use input_transform='log1p' or "
                "normalization='standard', or dtype='float64'."
            )
        return out

    def kept(self, X: NDArray[Any]) -> Tensor | NDArray[Any]:
        """Return the prepared rows, to be kept in memory; return `X` itself if they exceed _KEPT_BYTES."""
        return self(X) if X.size * self.dtype.itemsize <= _KEPT_BYTES else X


def _transformed_copy(X: NDArray[Any], transform: str) -> Floats:
    rows = torch.from_numpy(X.astype(np.float64))
    if transform == "log1p":
        _log1p(rows)
    values: Floats = rows.numpy()
    return values


def _log1p(rows: Tensor) -> None:
    """Apply the transform "log1p" in place, by torch, whose logarithm takes a third of NumPy's time."""
    signs = rows.clone()
    rows.abs_().log1p_().copysign_(signs)


@dataclass(frozen=True, eq=False)
class Moments:
    """Number and moments of some rows.

    n       Number of rows.
    mean    (D,) mean of each feature
    square  (D,) sum of squared distances from the mean, for each feature
    """

    n: int
    mean: Floats
    square: Floats

    @classmethod
    def of(cls, X: NDArray[Any], transform: str, missing: MissingValues | None = None) -> Moments:
        """Compute the moments of the rows of X after the transform and the treatment of missing values."""
        values = _transformed_copy(X, transform)
        if missing is not None:
            values = missing(values)
        mean = values.sum(axis=0) / max(len(values), 1)
        values -= mean
        return cls(len(values), mean, np.square(values, out=values).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the union of the rows of both operands."""
        if not other.n:
            return self
        n, apart = self.n + other.n, other.mean - self.mean
        share = other.n / n
        return Moments(
            n, self.mean + apart * share, self.square + other.square + np.square(apart) * (self.n * share)
        )

    def vector(self) -> Floats:
        """The moments as one vector (1 + 2 D,), to be sent between processes."""
        return np.concatenate([[float(self.n)], self.mean, self.square])

    @classmethod
    def from_vector(cls, vector: Floats) -> Moments:
        n_features = len(vector) // 2
        return cls(int(vector[0]), vector[1 : n_features + 1], vector[n_features + 1 :])


@dataclass(frozen=True, eq=False)
class Known:
    """Known values of some rows.

    n       Number of rows.
    sums    (D,) sum of the known values of each feature
    absent  (D,) number of rows in which each feature is missing
    """

    n: int
    sums: Floats
    absent: Floats

    @classmethod
    def of(cls, X: NDArray[Any], transform: str) -> Known:
        """Compute the sums of the rows of X after the transform."""
        values = _transformed_copy(X, transform)
        absent = np.isnan(values)
        return cls(len(X), np.where(absent, 0.0, values).sum(axis=0), absent.sum(axis=0).astype(np.float64))

    def __add__(self, other: Known) -> Known:
        return Known(self.n + other.n, self.sums + other.sums, self.absent + other.absent)

    def vector(self) -> Floats:
        """The numbers as one vector (1 + 2 D,), to be sent between processes."""
        return np.concatenate([[float(self.n)], self.sums, self.absent])

    @classmethod
    def from_vector(cls, vector: Floats) -> Known:
        n_features = len(vector) // 2
        return cls(int(vector[0]), vector[1 : n_features + 1], vector[n_features + 1 :])


def make_preparation(
    transform: str,
    normalization: str,
    moments: Moments | None,
    n_features: int,
    dtype: torch.dtype,
    missing: MissingValues | None = None,
) -> Preparation:
    """Create a preparation from the names of its transform and its feature scaling (`normalization`).

    moments  Moments of the training rows after the transform and the treatment of missing values; needed only
             for the scaling "standard".
    missing  Treatment of missing values.
    """
    n_columns = n_features if missing is None else missing.n_columns
    mean, std = np.zeros(n_columns), np.ones(n_columns)
    if moments is not None:
        mean, std = moments.mean, np.sqrt(moments.square / max(moments.n, 1))
    return Preparation(transform, scaling_of(normalization, mean, std), dtype, missing)
