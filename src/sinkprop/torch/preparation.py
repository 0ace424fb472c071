"""What happens to features before a network sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sinkprop.scaling import Scaling, fit_scaling

__all__ = ["TRANSFORMS", "Preparation", "fit_preparation", "transformed"]

TRANSFORMS = ("log1p", "none")

_KEPT_BYTES = 1 << 30  # features up to this size are prepared once, larger ones minibatch by minibatch
_CHUNK = 1 << 13  # rows


@dataclass(frozen=True, eq=False)
class Preparation:
    """What happens to features before the network sees them: the transform, then the normalization.

    transform  "log1p": sign(x) log(1 + |x|), or "none". Where the scaling is by query it has been done
               before, with the scaling
    """

    transform: str
    scaling: Scaling
    dtype: torch.dtype

    def __call__(self, X: NDArray[Any]) -> Tensor:
        """Rows (N, D) as the network takes them."""
        out = torch.empty(X.shape, dtype=self.dtype)
        into = out.numpy()
        for start in range(0, len(X), _CHUNK):
            rows = X[start : start + _CHUNK].astype(np.float64)
            if self.scaling.kind != "query":
                rows = transformed(rows, self.transform)
            if self.scaling.kind == "standard":
                rows -= self.scaling.shift
                rows *= self.scaling.factor
            with np.errstate(over="ignore"):
                into[start : start + _CHUNK] = rows
        if not bool(out.isfinite().all()):
            row, column = np.argwhere(~np.isfinite(into))[0].tolist()
            raise ValueError(
                f"X holds {X[row, column]!r} in row {row}, column {column}, which is too large for "
                f"{str(self.dtype).rpartition('.')[2]}. Use input_transform='log1p' or "
                "normalization='standard', or dtype='float64'."
            )
        return out

    def kept(self, X: NDArray[Any]) -> Tensor | NDArray[Any]:
        """The rows prepared, to be used again and again; or as they are, where that takes much memory."""
        return self(X) if X.size * self.dtype.itemsize <= _KEPT_BYTES else X


def transformed(X: NDArray[Any], transform: str) -> NDArray[Any]:
    """sign(x) log(1 + |x|) for "log1p": small numbers as they are, counts and lengths by their logarithms."""
    return np.copysign(np.log1p(np.abs(X)), X) if transform == "log1p" else X


class RowsAs:
    """Rows that go through a function as they are looked at, a slice at a time: no copy of all is made."""

    dtype, itemsize = np.dtype(np.float64), 8

    def __init__(self, X: NDArray[Any], function: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        self._X, self._function, self.shape = X, function, X.shape

    def __len__(self) -> int:
        return len(self._X)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._function(self._X[rows]).astype(np.float64, copy=False)


def fit_preparation(transform: str, normalization: str, X: NDArray[Any], dtype: torch.dtype) -> Preparation:
    """The preparation named, with what it needs from the training rows (N, D)."""
    rows: Any = X
    if normalization != "query":
        rows = RowsAs(X, lambda part: transformed(part.astype(np.float64), transform))
    return Preparation(transform, fit_scaling(normalization, rows), dtype)
