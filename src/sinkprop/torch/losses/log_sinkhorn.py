"""Sinkhorn normalization by logarithms, for entries too far apart in magnitude for plain products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sinkprop.torch.losses import dense

__all__ = ["LogBeginning", "LogNormalization", "WideNormalization", "first_factors", "within_range"]


def within_range(q: Tensor, A: Tensor | None = None) -> bool:
    """Whether a Sinkhorn normalization with the scaling vectors q can use plain products.

    It can if no entry of q is very large or very small, and no entry of the matrix A, if given, is very
    large. Otherwise products could overflow or underflow, and logarithms are needed.
    """
    large = torch.finfo(q.dtype).tiny ** (-1 / 3)
    fine = (q.amax() < large) & (q.amin() > 1 / large)
    return bool(fine if A is None else fine & (A.amax() < large))


class LogBeginning(torch.autograd.Function):  # type: ignore[misc]
    """Sinkhorn normalization Pi of A from log A: one iteration by logarithms, the others by plain products.

    Returns Pi, the logarithms of the scaling vectors of the first iteration, and the scaling vectors of the
    other iterations. After the first iteration no entry is above 1, and no row or column sum is below 1/n, so
    the other iterations rarely need logarithms. The caller checks the later scaling vectors by `within_range`
    and uses `LogNormalization` if they are too large or too small.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(log_A: Tensor, half_steps: int) -> tuple[Tensor, Tensor, Tensor]:
        log_q = _log_scalings(log_A, 2)
        K = _log_scaled(log_A, log_q)
        Pi, q = dense.Normalization.forward(K, None, None, half_steps - 2, 0.0, False)
        return Pi, torch.stack(log_q, -2), q

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        log_A, ctx.half_steps = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(log_A, *output[1:])

    @staticmethod
    def backward(ctx: Any, Pi_bar: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        log_A, log_saved, saved = ctx.saved_tensors
        log_q = _log_scalings(log_A, 2) if torch.is_grad_enabled() else log_saved.unbind(-2)
        K = _log_scaled(log_A, log_q)
        K_bar = dense.normalization_rev(K, None, None, saved, Pi_bar, ctx.half_steps - 2, 0.0, False)
        return _log_scalings_rev(log_A, log_q, K_bar), None


class LogNormalization(torch.autograd.Function):  # type: ignore[misc]
    """Sinkhorn normalization Pi (B, n, n) of A from log A, by logarithms alone.

    Also returns the logarithms of the scaling vectors of T = `half_steps` half steps, (B, T + 1, n).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(log_A: Tensor, half_steps: int) -> tuple[Tensor, Tensor]:
        log_q = _log_scalings(log_A, half_steps)
        return _log_scaled(log_A, log_q), torch.stack(log_q, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        log_A, ctx.half_steps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(log_A, output[1])

    @staticmethod
    def backward(ctx: Any, Pi_bar: Tensor, _: Tensor) -> tuple[Tensor, None]:
        log_A, saved = ctx.saved_tensors
        # The saved scaling vectors are detached from A. If the reverse pass itself is to be differentiated,
        # they must be computed from A again.
        again = torch.is_grad_enabled()
        log_q = _log_scalings(log_A, ctx.half_steps) if again else saved.unbind(-2)
        return _log_scalings_rev(log_A, log_q, Pi_bar), None


class WideNormalization(torch.autograd.Function):  # type: ignore[misc]
    """Sinkhorn normalization Pi (B, n, n) of an A with entries of widely different magnitudes, by logarithms.

    The input is A, so the reverse pass computes the gradient with respect to A, not to log A. The terms of
    this gradient can have any magnitude, even where A is 0. To avoid overflow, their sum is represented as
    total * exp(peak), where peak is the largest exponent so far.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, half_steps: int, epsilon: float) -> tuple[Tensor, Tensor]:
        log_A = (A + epsilon).log()
        log_q = _log_scalings(log_A, half_steps)
        stacked = torch.stack(log_q, -2)
        ctx.save_for_backward(A, stacked)
        ctx.mark_non_differentiable(stacked)
        ctx.epsilon = epsilon
        return _log_scaled(log_A, log_q), stacked

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, Pi_bar: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        A, log_q = ctx.saved_tensors
        log_A = (A + ctx.epsilon).log()
        total, peak = torch.zeros_like(A), torch.full_like(A, torch.finfo(A.dtype).min)
        for coefficient, exponent in _log_terms(log_A, log_q.unbind(-2), Pi_bar):
            size = exponent + coefficient.abs().log()
            new_peak = torch.maximum(peak, size)
            total = total * (peak - new_peak).exp() + coefficient.sign() * (size - new_peak).exp()
            peak = new_peak
        return total.sign() * (total.abs().log() + peak).exp(), None, None


def first_factors(log_A: Tensor) -> Tensor:
    """Return the logarithms (B, n, n) of the factors by which one iteration multiplies the entries of A."""
    log_q = _log_scalings(log_A, 2)
    return log_q[2].unsqueeze(-1) + log_q[1].unsqueeze(-2)


def _log_scalings(log_A: Tensor, half_steps: int) -> list[Tensor]:
    """Return the logarithms l_t (B, n) of the scaling vectors: l_0 = 0, l_(t+1) = -logsumexp(log A + l_t).

    The logsumexp is over each column if t is even, and over each row if t is odd. T = `half_steps` gives the
    T + 1 vectors l_0, ..., l_T.
    """
    log_q = [torch.zeros_like(log_A[..., 0])]
    for t in range(half_steps):
        scaled = log_A + log_q[-1].unsqueeze(-2 if t % 2 else -1)
        log_q.append(-torch.logsumexp(scaled, -1 if t % 2 else -2))
    return log_q


def _log_scaled(log_A: Tensor, log_q: Any) -> Tensor:
    T = len(log_q) - 1
    if T == 0:
        return log_A.exp()
    # A softmax applies the last scaling vector, so that the sums are 1 to the last digit.
    return (log_A + log_q[T - 1].unsqueeze(-1 if T % 2 else -2)).softmax(-2 if T % 2 else -1)


def _log_scalings_rev(log_A: Tensor, log_q: Any, C: Tensor) -> Tensor:
    """Return the gradient with respect to log A, given the gradient with respect to Pi.

    Pi is the Sinkhorn normalization of A.

    log_q  Logarithms of the scaling vectors, see `_log_scalings`.
    C      Gradient with respect to Pi.
    """
    total = torch.zeros_like(log_A)
    for coefficient, exponent in _log_terms(log_A, log_q, C):
        total = total + coefficient * (log_A + exponent).exp()
    return total


def _log_terms(log_A: Tensor, log_q: Any, C: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the terms of the gradient with respect to A, as pairs (coefficient, exponent) of matrices.

    The gradient is the sum of coefficient * exp(exponent) over the pairs.

    log_A  Logarithms of A, whose Sinkhorn normalization is Pi.
    log_q  Logarithms l_t = log q_t of the scaling vectors q_0, ..., q_T of the T half steps.
    C      Gradient with respect to Pi.

    For any x, x_bar is the gradient with respect to x. Half step t chooses q_t such that the rows of
    S_t = diag(q_t) A diag(q_(t-1)) sum to 1. Its reverse pass adds -(l_bar_t * q_t) q_(t-1)' to A_bar, and
    computes l_bar_(t-1) = -S_t' l_bar_t. The last half step gives Pi = S_T, which also depends on A directly:
    this adds C * q_T q_(T-1)' to A_bar. The row sums of C * Pi are l_bar_T, and its column sums are added to
    l_bar_(T-1). If t is odd, the half step is for the columns, and all matrices are transposed in this.
    """
    T = len(log_q) - 1
    if T == 0:
        yield C, torch.zeros_like(log_A)
    l_bar = before_bar = torch.zeros_like(log_A[..., 0])
    for t in range(T, 0, -1):
        rows, columns = (log_q[t - 1], log_q[t]) if t % 2 else (log_q[t], log_q[t - 1])
        exponent = rows.unsqueeze(-1) + columns.unsqueeze(-2)
        S = (log_A + exponent).exp()
        across, along = (-1, -2) if t % 2 else (-2, -1)
        if t == T:
            CP = C * S
            l_bar, before_bar = CP.sum(along), CP.sum(across)
        wide = l_bar.unsqueeze(along)
        yield (C - wide if t == T else -wide.expand_as(C)), exponent
        l_bar = -(wide * S).sum(across)
        if t == T:
            l_bar = l_bar + before_bar
