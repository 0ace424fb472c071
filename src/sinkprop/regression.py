"""Least squares on the labels: the start of the paper's recipe, and its simplest rival."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["least_squares"]

Floats = NDArray[np.float64]

_CHUNK = 1 << 10  # rows of a few hundred features that stay in the cache


def least_squares(
    X: NDArray[Any], y: Floats, *, penalty: float = 0.0, sample_weight: Floats | None = None
) -> tuple[Floats, float]:
    """The w and c that minimize the mean of (y - X w - c)^2 + penalty |w|^2, of least norm if several do.

    The intercept c is not penalized. The rows are reduced to a triangle by orthogonal transformations, one
    chunk at a time: linear in the rows, with one chunk of memory, and as accurate as a factorization of
    the whole.

    X              (N, D) features
    y              (N,) labels
    sample_weight  (N,) row weights: the mean is weighted

    >>> w, c = least_squares(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> w.round(12), round(c, 12)
    (array([2.]), 1.0)
    """
    from threadpoolctl import threadpool_limits

    total = float(len(X)) if sample_weight is None else float(sample_weight.sum())
    if not total > 0:
        raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
    # One thread: those of BLAS wait for each other longer than they work where others use the processors.
    with threadpool_limits(1, user_api="blas"):
        R = _triangle(X, y, sample_weight) / np.sqrt(total)
        return _solve(R, penalty)


def _triangle(X: NDArray[Any], y: Floats, sample_weight: Floats | None) -> Floats:
    """The R of the rows [1, x, y]: (D + 2, D + 2)."""
    n, n_features = X.shape
    R = np.zeros((0, n_features + 2))
    for start in range(0, n, _CHUNK):
        rows = slice(start, min(start + _CHUNK, n))
        block = np.empty((rows.stop - rows.start, n_features + 2))
        block[:, 0] = 1
        block[:, 1:-1] = X[rows]
        block[:, -1] = y[rows]
        if sample_weight is not None:
            block *= np.sqrt(sample_weight[rows])[:, None]
        R = np.asarray(np.linalg.qr(np.concatenate([R, block]), mode="r"))
    return np.concatenate([R, np.zeros((max(0, n_features + 2 - len(R)), n_features + 2))])


def _solve(R: Floats, penalty: float) -> tuple[Floats, float]:
    n_features = R.shape[1] - 2
    # The first row of R alone holds the intercept: what is below is the problem without it.
    A, b = R[1:, 1:-1], R[1:, -1]
    norms = np.sqrt(np.square(A).sum(axis=0))
    norms[norms <= 1e-13 * np.abs(R[0, 1:-1])] = 0  # a constant feature, but for rounding
    A = A * (norms > 0)
    if np.linalg.norm(b) <= 1e-13 * np.abs(R[0, -1]):  # so are the labels
        b = np.zeros_like(b)
    units = np.where(norms > 0, norms, 1.0)  # so that features of any magnitude count alike in the rank
    if penalty > 0:
        units = np.ones(n_features)
        A = np.concatenate([A, np.sqrt(penalty) * np.eye(n_features)])
        b = np.concatenate([b, np.zeros(n_features)])
    w = np.linalg.lstsq(A / units, b, rcond=None)[0] / units
    intercept = (R[0, -1] - R[0, 1:-1] @ w) / R[0, 0]
    return w, float(intercept)
