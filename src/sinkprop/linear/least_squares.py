"""Least squares on the labels, with or without a ridge penalty: a baseline, and a starting point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling, fit_scaling

__all__ = ["RidgePath", "least_squares", "ridge_path"]


_CHUNK = 1 << 10  # number of rows that fit into the cache if they have a few hundred features


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Least-squares solutions for P ridge penalties.

    weights     (P, D) weights of normalized features.
    intercepts  (P,) intercepts.
    values      (P,) minimal values of the objective.
    """

    weights: Floats
    intercepts: Floats
    values: Floats


def least_squares(
    X: NDArray[Any], y: Floats, *, penalty: float = 0.0, sample_weight: Floats | None = None
) -> tuple[Floats, float]:
    """Weights w and intercept c that minimize the mean of (y - X w - c)^2 + penalty |w|^2.

    If several w attain the minimum, the one with the smallest norm is returned. The norm is that of the
    weights for features scaled to equal spread.

    X              (N, D) features.
    y              (N,) labels.
    penalty        Ridge penalty.
    sample_weight  (N,) row weights of the mean.

    >>> w, c = least_squares(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0]))
    >>> w.round(12), round(c, 12)
    (array([2.]), 1.0)
    """
    path = ridge_path(X, y, [penalty], scaling=fit_scaling("none", X), sample_weight=sample_weight)
    return path.weights[0], float(path.intercepts[0])


def ridge_path(
    X: NDArray[Any],
    y: Floats,
    penalties: Sequence[float],
    *,
    scaling: Scaling,
    sample_weight: Floats | None = None,
) -> RidgePath:
    """Minimize the mean over rows of (y - z w - c)^2, plus penalty |w|^2, for each penalty.

    z are the features after scaling by `scaling`, w are the weights, and c is the intercept, which is not
    penalized. Several w can be optimal only if the penalty is 0. Then the one with the smallest norm is
    taken. The norm is that of the weights for features scaled to equal spread.

    Orthogonal transformations reduce the rows to a triangular matrix, one chunk of rows at a time. This takes
    time linear in the number of rows and the memory of one chunk, and is as accurate as a factorization of
    the whole matrix. One singular value decomposition of the triangular matrix then serves all penalties,
    each of which costs a product with a (D, D) matrix.

    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0])
    >>> path = ridge_path(X, y, [2 / 3, 0.0], scaling=fit_scaling("none", X))
    >>> path.weights.round(12), path.intercepts.round(12)
    (array([[1.],
           [2.]]), array([2., 1.]))
    """
    from threadpoolctl import threadpool_limits

    total = float(len(X)) if sample_weight is None else float(sample_weight.sum())
    if not total > 0:
        raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
    # One thread: BLAS threads wait for each other longer than they work if other processes use the cores.
    with threadpool_limits(1, user_api="blas"):
        R = _triangle(X, y, sample_weight) / np.sqrt(total)
        return _solve(R, np.asarray(penalties, dtype=np.float64), scaling)


def _triangle(X: NDArray[Any], y: Floats, sample_weight: Floats | None) -> Floats:
    """Triangular factor R, (D + 2, D + 2), of the QR decomposition of the matrix with columns [1, X, y].

    Each row of the matrix is multiplied by the root of its weight, if there are weights.
    """
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


def _solve(R: Floats, penalties: Floats, scaling: Scaling) -> RidgePath:
    # Only the first row of R involves the intercept: the rows below are the problem without it.
    A, b = R[1:, 1:-1], R[1:, -1]
    norms = np.sqrt(np.square(A).sum(axis=0))
    norms[norms <= 1e-13 * np.abs(R[0, 1:-1])] = 0  # a constant feature, except for rounding
    A = A * (norms > 0)
    if np.linalg.norm(b) <= 1e-13 * np.abs(R[0, -1]):  # constant labels, except for rounding
        b = np.zeros_like(b)
    # `raw`: weights of the unscaled features
    weights, raw = np.empty((2, len(penalties), A.shape[1]))
    free, used = penalties == 0, scaling.factor > 0
    if free.any():
        units = np.where(norms > 0, norms, 1.0)  # makes the numerical rank independent of feature magnitudes
        raw[free] = np.linalg.lstsq(A / units, b, rcond=None)[0] / units
        weights[free] = np.where(used, raw[free] / np.where(used, scaling.factor, 1.0), 0.0)
    if not free.all():
        weights[~free] = _penalized(A * scaling.factor, b, penalties[~free])
        raw[~free] = weights[~free] * scaling.factor
    intercepts = np.array([(R[0, -1] - R[0, 1:-1] @ w) / R[0, 0] + w @ scaling.shift for w in raw])
    values = np.square(b - raw @ A.T).sum(axis=1) + penalties * np.square(weights).sum(axis=1)
    return RidgePath(weights, intercepts, values)


def _penalized(A: Floats, b: Floats, penalties: Floats) -> Floats:
    """Weights w that minimize |A w - b|^2 + penalty |w|^2: (P, D), one row for each of the P penalties.

    A  (n, D) matrix.
    b  (n,) vector.
    """
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    # smaller singular values are rounding errors
    kept = s > np.finfo(np.float64).eps * max(A.shape) * s.max(initial=0.0)
    U, s, Vt = U[:, kept], s[kept], Vt[kept]
    # `shrunk` is s / (s^2 + penalty), written without s^2, which may overflow.
    with np.errstate(over="ignore"):
        shrunk = 1 / (s + penalties[:, None] / s)
    w: Floats = (shrunk * (U.T @ b)) @ Vt
    return w
