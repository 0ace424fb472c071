"""The limit of Sinkhorn normalization in torch's operations, with derivatives of all orders.

In the limit, all rows and columns of Pi = diag(u) (A + epsilon) diag(v) sum to 1. The reverse pass solves a
linear system, which is differentiable itself. If A is symmetric and positive semidefinite, as for a smoothed
indicator in score order, u = v = x is found by the two-step iteration of native/kernels/converged.hpp.
Other matrices are normalized by half iterations; if these converge slowly, Newton steps are tried as well.

Vectors are stored as rows, (B, 1, n), as in `dense`. Masks (B, n) are True for documents (rows of A) and
ranks (columns of A), or None without padding, where u and v are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sinkprop.objective.normalization import warn_unconverged
from sinkprop.torch.losses.modes import call, forward_mode, full_precision, hidden, tracing

__all__ = ["limit_scalings", "symmetric_limit"]

_FIXED = 30  # number of iterations where the values of tensors cannot be seen
_NEAR = 0.5  # largest deviation at which the two-step iteration begins
_SWEEPS = 20  # number of half iterations for the columns before Newton steps are tried
_PATIENCE = 30  # number of iterations without progress, at which rounding errors prevent more of it


def limit_scalings(
    A: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    epsilon: float,
    symmetric: bool,
    tol: float,
    max_iter: int,
) -> tuple[Tensor, Tensor]:
    """Return u and v (B, 1, n), with which all rows and columns of diag(u) (A + epsilon) diag(v) sum to 1.

    Differentiable in A (B, n, n). With `symmetric`, A must be symmetric and positive semidefinite. A warning
    states the largest deviation of a sum from 1 if it is above `tol`, or above what the dtype allows, after
    `max_iter` iterations.
    """
    if not symmetric and (tracing() or forward_mode()):
        raise ValueError(
            "n_iter='converged' for a matrix that is not symmetric, as of a partitioned measure, cannot run "
            "under torch.compile, torch.func or forward-mode differentiation; give a number of iterations."
        )
    if symmetric:
        columns = None  # that of the rows; torch.compile does not take the same tensor twice
    with full_precision(A):
        scalings: tuple[Tensor, Tensor] = call(_Scalings, A, rows, columns, epsilon, symmetric, tol, max_iter)
    return scalings


class _Scalings(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    generate_vmap_rule = True

    @staticmethod
    def forward(
        A: Tensor,
        rows: Tensor | None,
        columns: Tensor | None,
        epsilon: float,
        symmetric: bool,
        tol: float,
        max_iter: int,
    ) -> tuple[Tensor, Tensor]:
        tol = max(tol, 50 * torch.finfo(A.dtype).eps)
        if symmetric:
            present = torch.ones_like(A[..., :1, :], dtype=torch.bool) if rows is None else rows.unsqueeze(-2)

            def times(x: Tensor) -> Tensor:
                return x @ A + epsilon * x.sum(-1, keepdim=True)

            x, residual = symmetric_limit(times, present, A.dtype, tol, max_iter)
            if not _blind(A):
                warn_unconverged(residual.amax((-1, -2)).cpu().numpy(), tol, stacklevel=3)
            return x, x.clone()
        return _limit(A, rows, columns, epsilon, tol, max_iter)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        A, rows, columns, *ctx.settings = inputs
        ctx.save_for_backward(A, rows, columns, *output)

    @staticmethod
    def backward(ctx: Any, u_bar: Tensor, v_bar: Tensor) -> tuple[Tensor | None, ...]:
        A, rows, columns, u, v = ctx.saved_tensors
        epsilon, symmetric, *_ = ctx.settings
        if torch.is_grad_enabled():  # the saved vectors are detached from A
            u, v = call(_Scalings, A, rows, columns, *ctx.settings)
        with full_precision(A):
            Pi = u.mT * v * (A + epsilon)
            a, b = u * u_bar, v * v_bar
            eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
            if symmetric:
                alpha = torch.linalg.solve(eye + Pi, (a + b).mT).mT
                A_bar = -(u * alpha).mT @ u
            else:
                beta = torch.linalg.solve(_laplacian(Pi, columns, eye), (b - a @ Pi).mT).mT
                alpha = a - beta @ Pi.mT
                A_bar = -(u * alpha).mT @ v - u.mT @ (v * beta)
        return A_bar, None, None, None, None, None, None


def _laplacian(Pi: Tensor, columns: Tensor | None, eye: Tensor) -> Tensor:
    """Return diag(Pi' 1) - Pi' Pi, made invertible.

    Constants are the null space of the matrix; in it and in the padding, another matrix is added that does
    not change the other solutions.
    """
    n = Pi.shape[-1]
    present = torch.ones_like(Pi[..., :1, :]) if columns is None else columns.unsqueeze(-2).to(Pi.dtype)
    ridge = 4 * torch.finfo(Pi.dtype).eps
    diagonal = Pi.sum(-2, keepdim=True) + (1 - present) + ridge
    return eye * diagonal - Pi.mT @ Pi + present.mT * present / n


def symmetric_limit(
    times: Callable[[Tensor], Tensor], present: Tensor, dtype: torch.dtype, tol: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Return x with x * (A + epsilon) x = 1, and the deviation of each of these sums from 1.

    times    function that multiplies a vector by A + epsilon, a positive semidefinite matrix
    present  True for a document, False at padding, where x is 0; vectors have its shape
    """
    x = present.to(dtype)
    blind = _blind(x)
    r, least, waiting = 0.0, float("inf"), 0
    change = residual = torch.zeros_like(x)
    for made in range(_FIXED if blind else max_iter):
        s = torch.where(present, x * times(x), 1)
        residual = (s - 1).abs().detach()
        worst = _NEAR if blind else float(residual.amax())
        waiting = 0 if worst < 0.5 * least else waiting + 1
        least = min(least, worst)
        if not blind and (worst <= tol or waiting > _PATIENCE):
            break
        if made < 1 or (made < 4 if blind else worst > _NEAR):
            x, r = x / s.sqrt(), 0.0
            continue
        before, r = r, 1 / (6 - r) if r else 1 / 3
        step = _bounded_power(s, 4 * r if before else 2 / 3)
        change = step * _bounded_power(change, -r * before) if before else step
        x = x * change
    return x, residual


def _blind(x: Tensor) -> bool:
    """Whether the values of tensors cannot be seen, so that the number of iterations must be fixed."""
    return hidden(x) or forward_mode()


def _bounded_power(s: Tensor, w: float) -> Tensor:
    """A rational function of s >= 0 that is s^-w up to terms of (s - 1)^3, and bounded above and below."""
    return ((1 - w) * s + (1 + w)) / ((1 + w) * s + (1 - w))


def _limit(
    A: Tensor, rows: Tensor | None, columns: Tensor | None, epsilon: float, tol: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Return u and v of the limit for any nonnegative A that has one."""
    B = A + epsilon
    for mask, axis in ((rows, -1), (columns, -2)):
        if mask is not None:
            B = torch.where(mask.unsqueeze(axis), B, 0)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    present = torch.ones_like(B[..., :1, :]) if columns is None else columns.unsqueeze(-2).to(B.dtype)

    def balanced(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return u, the column sums of Pi, and the largest deviation of a column sum from 1 per query."""
        u = _reciprocal(v @ B.mT)
        c = v * (u @ B)
        return u, c, (c - present).abs().amax((-1, -2))

    v = _reciprocal(B.sum(-2, keepdim=True))
    u, c, error = balanced(v)
    best, waiting = float("inf"), 0
    for made in range(1, max_iter):
        worst = float(error.max()) if len(error) else 0.0
        waiting = 0 if worst < 0.9 * best else waiting + 1
        best = min(best, worst)
        if worst <= tol or waiting > 10 * _PATIENCE:
            break
        v_next = v * _reciprocal(c)
        u_next, c_next, error_next = balanced(v_next)
        if made > _SWEEPS:
            step = torch.linalg.solve(_laplacian(u.mT * v * B, columns, eye), (present - c).mT).mT
            v_newton = v * step.clamp(-20, 20).nan_to_num(0.0).exp()
            u_newton, c_newton, error_newton = balanced(v_newton)
            better = (error_newton < error_next)[:, None, None]
            v_next, u_next = torch.where(better, v_newton, v_next), torch.where(better, u_newton, u_next)
            c_next = torch.where(better, c_newton, c_next)
            error_next = torch.where(better[:, 0, 0], error_newton, error_next)
        v, u, c, error = v_next, u_next, c_next, error_next
    warn_unconverged(error.detach().cpu().numpy(), tol, stacklevel=4)
    return u, v


def _reciprocal(w: Tensor) -> Tensor:
    """Return 1 / w; 0 where w is 0."""
    void = w < torch.finfo(w.dtype).tiny
    return torch.where(void, 0, 1 / torch.where(void, 1, w))
