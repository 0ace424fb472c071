"""Incomplete Sinkhorn normalization of a nonnegative square matrix, and its reverse pass.

One iteration is two half iterations: the first normalizes columns, the second rows. After T half iterations
the result is ``diag(u) A diag(v)`` with scaling vectors u and v. Starting from ``q_0 = 1``, let::

    q_(t+1) = 1 / (A' q_t)  for even t,      q_(t+1) = 1 / (A q_t)  for odd t.

Then u and v are the last two q: ``u = q_T`` and ``v = q_(T-1)`` for an even T, the reverse for an odd T. So
no matrix except A is stored. While every ``q`` stays within a safe range of floating-point numbers, plain
matrix products are used; otherwise log-sum-exp products of ``log A`` and ``log q``, which neither overflow
nor underflow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import half_steps, number
from sinkprop.common.types import Floats
from sinkprop.objective.normalization import Converged, Iterations, as_iterations, warn_unconverged

__all__ = ["sinkhorn", "sinkhorn_vjp"]


# With A <= 1e100 and every q within [1e-100, 1e100] no product overflows, and the terms that underflow are
# below 1e-200 of the sum that they belong to.
LARGE = 1e100


def sinkhorn(A: npt.ArrayLike, n_iter: Iterations = 5, *, epsilon: float = 0.0) -> Floats:
    """Incomplete Sinkhorn normalization Z^n_iter(A + epsilon): columns first, then rows, `n_iter` times.

    Parameters
    ----------
    A : array of shape (n, n)
        Finite and nonnegative, of any magnitude; with `epsilon` 0, no row or column may be all zeros.
    n_iter : float, "converged" or Converged, default 5
        Number of iterations. An extra half iteration, such as 5.5, normalizes the columns once more at the
        end. 0 gives a copy of ``A + epsilon``; 0.5 normalizes columns only. "converged" gives the matrix of
        `sinkhorn_limit`; if A has no such limit, a ValueError is raised.
    epsilon : float, default 0.0
        Constant added to every entry of A first.

    Returns
    -------
    array of shape (n, n)
        The normalized matrix, float64. After whole iterations the rows sum to 1, after an extra half
        iteration the columns; in the limit both do (`sinkhorn_limit`).

    Examples
    --------
    >>> sinkhorn([[1, 3], [1, 1]], n_iter=1)  # columns: [[1/2, 3/4], [1/2, 1/4]]; then rows
    array([[0.4       , 0.6       ],
           [0.66666667, 0.33333333]])
    """
    n_iter = as_iterations(n_iter)
    B, T = _checked(A, 1 if isinstance(n_iter, Converged) else n_iter, epsilon)
    if isinstance(n_iter, Converged):
        return _limit_of(B, n_iter)[0]
    if T == 0:
        return B
    try:
        before, last = deque(_scalings(B, T), maxlen=2)
    except _OutOfRangeError:
        log_B = log_entries(B)
        log_before, _ = deque(_log_scalings(log_B, T), maxlen=2)
        return softmax((log_B.T + log_before).T if T % 2 else log_B + log_before, axis=1 - T % 2)
    u, v = (before, last) if T % 2 else (last, before)
    with np.errstate(under="ignore"):
        # Multiply u and v first: diag(u) A can underflow even if diag(u) A diag(v) does not.
        Z: Floats = np.outer(u, v)
        Z *= B
    return Z


def sinkhorn_vjp(
    A: npt.ArrayLike, cotangent: npt.ArrayLike, n_iter: Iterations = 5, *, epsilon: float = 0.0
) -> Floats:
    """Gradient of ``sum(cotangent * sinkhorn(A, n_iter, epsilon=epsilon))`` with respect to A.

    This is the reverse pass of exactly `n_iter` iterations. It needs A and, from the forward pass, one vector
    of row or column factors per half iteration.

    Parameters
    ----------
    A : array of shape (n, n)
        The matrix, as for `sinkhorn`. The derivative with respect to a zero entry is one-sided and well
        defined.
    cotangent : array of shape (n, n)
        Finite weights of the entries of the result.
    n_iter : float, "converged" or Converged, default 5
        Number of iterations, as for `sinkhorn`. "converged" gives the gradient of the limit.
    epsilon : float, default 0.0
        Constant added to every entry of A first.

    Returns
    -------
    array of shape (n, n)
        The gradient, float64. A derivative beyond the largest float64 (an entry of A below 1e-308 can have
        one) is infinite, with its sign.

    Examples
    --------
    The rows of the result sum to 1 for every A, so equal weights have no gradient:

    >>> sinkhorn_vjp([[1, 3], [1, 1]], [[1, 1], [1, 1]]).round(12) + 0.0
    array([[0., 0.],
           [0., 0.]])
    """
    n_iter = as_iterations(n_iter)
    B, T = _checked(A, 1 if isinstance(n_iter, Converged) else n_iter, epsilon)
    C = _checked_cotangent(cotangent, B.shape)
    if isinstance(n_iter, Converged):
        return _limit_vjp(B, C, n_iter)
    if T == 0:
        return C
    # The gradient is linear in the cotangent. So the cotangent is divided by its largest entry, which keeps
    # every intermediate derivative within range, and the result is multiplied by it.
    scale = float(np.abs(C).max())
    if scale == 0.0:
        return C
    C /= scale
    try:
        q = np.stack(list(_scalings(B, T)))
    except _OutOfRangeError:
        log_B = log_entries(B)
        log_q = np.stack(list(_log_scalings(log_B, T)))
        with np.errstate(over="ignore", under="ignore"):
            return _log_scalings_rev(log_B, C, log_q, math.log(scale))
    with np.errstate(over="ignore", under="ignore"):
        return _scalings_rev(B, C, q) * scale


def _limit_of(A: Floats, settings: Converged) -> tuple[Floats, Floats, Floats]:
    """Return the limit of the Sinkhorn iterations and the logarithms of its scaling vectors u and v.

    Warns if the limit is not reached within the tolerance; raises a ValueError if there is none.
    """
    from sinkprop.objective.sinkhorn_limit import SinkhornStatus, sinkhorn_limit

    limit = sinkhorn_limit(A, tol=settings.tol, max_iter=settings.max_iter)
    if limit.status is SinkhornStatus.NO_SUPPORT:
        raise ValueError(limit.message)
    warn_unconverged(np.array([max(limit.row_error, limit.column_error)]), settings.tol, stacklevel=3)
    return limit.matrix, limit.log_u, limit.log_v


def _limit_vjp(A: Floats, C: Floats, settings: Converged) -> Floats:
    """Gradient of sum(C * Pi) with respect to A, where Pi = diag(u) A diag(v) is the limit.

    It is u v' * (C - alpha 1' - 1 beta'), where alpha + Pi beta and Pi' alpha + beta are the row and column
    sums of C * Pi. The system for beta has the null space of constants (of one constant per block if Pi has
    several blocks), in which any solution will do.
    """
    Pi, log_u, log_v = _limit_of(A, settings)
    with np.errstate(over="ignore", under="ignore"):
        a, b = (C * Pi).sum(axis=1), (C * Pi).sum(axis=0)
        H = np.diag(Pi.sum(axis=0)) - Pi.T @ Pi
        beta = np.linalg.lstsq(H, b - Pi.T @ a, rcond=1e-13)[0]
        alpha = a - Pi @ beta
        gradient: Floats = np.exp(log_u[:, None] + log_v) * (C - alpha[:, None] - beta)
    return gradient


class _OutOfRangeError(ArithmeticError):
    """Raised if A or a scaling vector (the factors of all rows or of all columns) has extreme values.

    Products of A and such vectors could overflow or underflow, so logarithms must be used instead.
    """


def _scalings(A: Floats, T: int) -> Iterator[Floats]:
    """Yield the scaling vectors q_0, ..., q_T, each (n,), of T half iterations.

    All entries of q_0 are 1. The result of half iteration t is A with its columns multiplied by q_t and its
    rows by q_(t-1) for odd t, and with its rows multiplied by q_t and its columns by q_(t-1) for even t.
    Raises an `_OutOfRangeError` if products with A could overflow or underflow.
    """
    if A.max() > LARGE:
        raise _OutOfRangeError
    q = np.ones(len(A))
    yield q
    for t in range(T):
        with np.errstate(under="ignore"):
            w = q @ A if t % 2 == 0 else A @ q
        if w.min() < 1 / LARGE or w.max() > LARGE:
            raise _OutOfRangeError
        q = 1.0 / w
        yield q


def _scalings_rev(A: Floats, C: Floats, q: Floats) -> Floats:
    """Gradient of sum(C * diag(u) A diag(v)) with respect to A, from the scaling vectors q of `_scalings`.

    u and v are the last two scaling vectors, as in the docstring of this module. For any quantity x, x_bar is
    the derivative of the sum with respect to x. A product w = A q contributes w_bar q' to A_bar and A' w_bar
    to q_bar; q = 1 / w makes w_bar = -q^2 q_bar.
    """
    T = q.shape[0] - 1
    w_bar = np.empty((T, A.shape[0]))
    CA = C * A
    q_bar, before_bar = (q[T - 1] @ CA, CA @ q[T]) if T % 2 else (CA @ q[T - 1], q[T] @ CA)
    for t in range(T, 0, -1):
        w_bar[t - 1] = -q[t] * (q[t] * q_bar)
        q_bar = w_bar[t - 1] @ A if t % 2 == 0 else A @ w_bar[t - 1]
        if t == T:
            q_bar += before_bar
    # The products are w_t = A' q_(t-1) for odd t and w_t = A q_(t-1) for even t.
    u, v = (q[T - 1], q[T]) if T % 2 else (q[T], q[T - 1])
    return C * np.outer(u, v) + q[0:T:2].T @ w_bar[0::2] + w_bar[1::2].T @ q[1:T:2]


def _log_scalings(log_A: Floats, T: int) -> Iterator[Floats]:
    """Yield the logarithms l_t = log q_t of the scaling vectors q_0, ..., q_T.

    l_0 = 0 and l_(t+1) = -LSE(log A + l_t), where LSE is log-sum-exp over each column for even t and over
    each row for odd t.
    """
    log_q = np.zeros(len(log_A))
    yield log_q
    for t in range(T):
        log_q = -logsumexp(log_A + (log_q[:, None] if t % 2 == 0 else log_q), axis=t % 2)
        yield log_q


def _log_scalings_rev(log_A: Floats, C: Floats, log_q: Floats, log_scale: float) -> Floats:
    """Gradient of exp(log_scale) * sum(C * diag(u) A diag(v)) with respect to A, from `_log_scalings`.

    u and v are the last two scaling vectors, as in the docstring of this module, and l_t = log q_t. For any
    quantity x, x_bar is the derivative of the expression above with respect to x. Let
    S_t = diag(q_t) A diag(q_(t-1)) for even t and S_t = diag(q_t) A' diag(q_(t-1)) for odd t. Then
    l_bar_(t-1) = -S_t' l_bar_t, and step t contributes -(l_bar_t * q_t) q_(t-1)' to A_bar (to its transpose
    for odd t). These terms can have any magnitude, so their sum is held as ``total * exp(peak)``.
    """
    T = log_q.shape[0] - 1
    log_u, log_v = (log_q[T - 1], log_q[T]) if T % 2 else (log_q[T], log_q[T - 1])
    CP = C * np.exp(log_u[:, None] + log_A + log_v)
    l_bar, before_bar = CP.sum(axis=1 - T % 2), CP.sum(axis=T % 2)
    total, peak = np.zeros_like(C), np.full_like(C, -1e300)
    for t in range(T, 0, -1):
        even, odd = (t, t - 1) if t % 2 == 0 else (t - 1, t)
        exponent = log_q[even][:, None] + log_q[odd]
        S = np.exp(log_A + exponent)
        coefficient = np.broadcast_to(-l_bar[:, None] if t % 2 == 0 else -l_bar, C.shape)
        l_bar = -(l_bar @ S if t % 2 == 0 else S @ l_bar)
        if t == T:
            coefficient, l_bar = coefficient + C, l_bar + before_bar
        exponent += log_entries(np.abs(coefficient))
        new_peak = np.maximum(peak, exponent)
        total = total * np.exp(peak - new_peak) + np.sign(coefficient) * np.exp(exponent - new_peak)
        peak = new_peak
    return np.sign(total) * np.exp(log_entries(np.abs(total)) + peak + log_scale)


def softmax(X: Floats, axis: int = 1) -> Floats:
    """Normalized exponentials along an axis."""
    with np.errstate(under="ignore"):
        P: Floats = np.exp(X - X.max(axis=axis, keepdims=True))
        P /= P.sum(axis=axis, keepdims=True)
    return P


def logsumexp(X: Floats, axis: int) -> Floats:
    """log(sum(exp(X))) along an axis; entries may be -inf, but not all entries of one sum."""
    peak = X.max(axis=axis, keepdims=True)
    with np.errstate(under="ignore"):
        result: Floats = np.log(np.exp(X - peak).sum(axis=axis)) + np.squeeze(peak, axis=axis)
    return result


def log_entries(A: Floats) -> Floats:
    """Logarithms of the entries, -inf for 0."""
    with np.errstate(divide="ignore"):
        log_A: Floats = np.log(A)
    return log_A


def nonnegative_square(A: npt.ArrayLike, name: str) -> Floats:
    """Return a float64 copy of a matrix; raise a ValueError unless it is finite, nonnegative and square.

    An empty matrix is an error, too. The error message calls the matrix `name`.
    """
    B = _real_array(A, name)
    if B.ndim != 2 or B.shape[0] != B.shape[1] or B.size == 0:
        raise ValueError(f"{name} must be a square matrix with at least one row, got shape {B.shape}")
    if not (B.min() >= 0.0 and B.max() < math.inf):
        i, j = np.argwhere(~(np.isfinite(B) & (B >= 0.0)))[0]
        raise ValueError(
            f"{name} must have finite, nonnegative entries, got {name}[{i}, {j}] = {B[i, j]}; "
            "remove or replace such entries first"
        )
    return B


def _real_array(A: npt.ArrayLike, name: str) -> Floats:
    try:
        raw = np.asarray(A)
    except ValueError as error:
        raise ValueError(f"{name} must be a matrix, got rows of different lengths or kinds") from error
    if raw.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a dense array of real numbers, got dtype {raw.dtype}; convert it to float first "
            "(a sparse matrix with .toarray())"
        )
    with np.errstate(over="ignore", under="ignore"):
        return raw.astype(np.float64, order="C", copy=True)


def _checked(A: npt.ArrayLike, n_iter: float, epsilon: float) -> tuple[Floats, int]:
    """Return A + epsilon as a new float64 matrix, and the number of half iterations.

    Raises a ValueError if the matrix cannot be normalized or an argument is invalid.
    """
    B = nonnegative_square(A, "A")
    T = half_steps(n_iter)
    epsilon = number("epsilon", epsilon)
    if epsilon > 0.0:
        with np.errstate(over="ignore"):
            B += epsilon
        if B.max() == math.inf:
            raise ValueError(
                f"epsilon must leave A + epsilon finite, got {epsilon!r}; divide both by a constant"
            )
    for axis, noun in ((1, "row"), (0, "column")):
        empty = ~B.any(axis=axis)
        if T > 0 and empty.any():
            raise ValueError(
                f"A must have a positive entry in every row and column, got {noun} {np.argmax(empty)} all "
                "zeros, which cannot be normalized; remove it, or pass epsilon > 0"
            )
    return B, T


def _checked_cotangent(cotangent: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    C = _real_array(cotangent, "cotangent")
    if C.shape != shape:
        raise ValueError(f"cotangent must have the shape of A, {shape}, got shape {C.shape}")
    if not np.isfinite(C).all():
        i, j = np.argwhere(~np.isfinite(C))[0]
        raise ValueError(
            f"cotangent must have finite entries, got cotangent[{i}, {j}] = {C[i, j]}; "
            "remove or replace such entries first"
        )
    return C
