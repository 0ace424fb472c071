"""Rank probabilities and their projections by matrices, in torch's operations.

The pre-Sinkhorn matrix A of a query is normalized to the rank probabilities::

    Pi = diag(u) (A + epsilon) diag(v)

where u and v are the last scaling vectors of Sinkhorn's iterations (see `objective/sinkhorn.py`). With
d[m, k] discount m at rank k, the expected discounts of document j are::

    E[j, m] = sum_k Pi[j, k] d[m, k]

Two autograd functions, each with its own reverse pass, compute it: scores -> A and A -> E. The second saves
the tensor A that the first returned, so the autograd graph keeps one n x n matrix per query and the scaling
vectors. For any tensor x, x_bar is the gradient of the final result with respect to x.

Queries of different lengths are padded to (B, n), with a mask. A is not masked. The scaling vectors are 0 at
padding, and so is everything computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sinkprop.objective.relaxations import Relaxation
from sinkprop.torch.losses.limit import limit_scalings
from sinkprop.torch.losses.modes import call, full_precision, in_place
from sinkprop.torch.losses.pre_sinkhorn import pre_sinkhorn

__all__ = ["Normalization", "normalization_rev", "normalized", "project"]


def project(
    scores: Tensor,
    discounts: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> Tensor:
    """Return the expected value of each discount for each document, E (B, n, U); 0 at padding.

    E[b, j, m] = sum_k Pi_b[j, k] discounts[m, k], where Pi_b[j, k] is the probability that document j of
    query b is at rank k. Documents are in the order of the input. `tol` is as in
    `expectations.expected_gain`.
    """
    A, rows, columns, order = pre_sinkhorn(scores, mask, relaxation)
    D = discounts.to(A.dtype)
    if tol:
        u, v = limit_scalings(A, rows, columns, epsilon, order is not None, tol, half_steps)
        with full_precision(A):
            return _in_input_order((u * _times(v * D, A.mT, epsilon)).mT, order)
    E, _ = call(_Projection, A, D, rows, columns, half_steps, epsilon, order is not None)
    return _in_input_order(E.mT, order)


def normalized(
    scores: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> Tensor:
    """Return Pi (B, n, n): Pi[b, j, k - 1] is the probability that document j of query b is at rank k.

    Documents are in the order of the input. Rows and columns of padding are 0. `tol` is as in
    `expectations.expected_gain`.
    """
    A, rows, columns, order = pre_sinkhorn(scores, mask, relaxation)
    if tol:
        u, v = limit_scalings(A, rows, columns, epsilon, order is not None, tol, half_steps)
        return _in_input_order(u.mT * v * (A + epsilon), order)
    Pi, _ = call(Normalization, A, rows, columns, half_steps, epsilon, order is not None)
    return _in_input_order(Pi, order)


def _in_input_order(x: Tensor, order: Tensor | None) -> Tensor:
    """Put the rows of x (B, n, ...) in the order of the input: row i of x[b] is for document order[b, i].

    If `order` is None, the rows are in this order already.
    """
    if order is None:
        return x
    return torch.zeros_like(x).scatter(-2, order.unsqueeze(-1).expand_as(x), x)


class _Projection(torch.autograd.Function):  # type: ignore[misc]
    """Autograd function from A (B, n, n) and discounts D (U, n) to D Pi', (B, U, n).

    Pi = diag(u) (A + epsilon) diag(v) is the Sinkhorn normalization of A, so entry (m, j) of the result is
    the expected value of discount m for row j of A. The function also returns the scaling vectors of all
    T = `half_steps` half steps, (B, T + 2, n), see `_scalings`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        A: Tensor,
        D: Tensor,
        rows: Tensor | None,
        columns: Tensor | None,
        half_steps: int,
        epsilon: float,
        symmetric: bool,
    ) -> tuple[Tensor, Tensor]:
        with full_precision(A):
            q = _scalings(A, rows, columns, half_steps, epsilon, symmetric)
            u, v = _row_and_column(q)
            return u * _times(v * D, A if symmetric else A.mT, epsilon), torch.cat(q, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        A, D, rows, columns, *ctx.settings = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(A, D, rows, columns, output[1])

    @staticmethod
    def backward(ctx: Any, E_bar: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        A, D, rows, columns, saved = ctx.saved_tensors
        _, epsilon, symmetric = ctx.settings
        with full_precision(A):
            q = _scalings_again(A, rows, columns, saved, *ctx.settings)
            u, v = _row_and_column(q)
            left, right = u * E_bar, v * D
            u_bar = (E_bar * _times(right, A if symmetric else A.mT, epsilon)).sum(-2, keepdim=True)
            y = _times(left, A, epsilon)
            v_bar = (y * D).sum(-2, keepdim=True)
            A_bar = _scalings_rev(A, q, u_bar, v_bar, epsilon, symmetric, [left], [right])
            D_bar = (y * v).sum(0) if ctx.needs_input_grad[1] else None
            return A_bar, D_bar, None, None, None, None, None


class Normalization(torch.autograd.Function):  # type: ignore[misc]
    """Autograd function from A (B, n, n) to its Sinkhorn normalization Pi = diag(u) (A + epsilon) diag(v).

    u and v are the last scaling vectors of the rows and of the columns. The function also returns the scaling
    vectors of all T = `half_steps` half steps, (B, T + 2, n), see `_scalings`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        A: Tensor,
        rows: Tensor | None,
        columns: Tensor | None,
        half_steps: int,
        epsilon: float,
        symmetric: bool,
    ) -> tuple[Tensor, Tensor]:
        with full_precision(A):
            q = _scalings(A, rows, columns, half_steps, epsilon, symmetric)
            u, v = _row_and_column(q)
            # multiply u v' first, because u A alone can underflow where u A v does not
            return in_place(u.mT * v, "mul", A + epsilon if epsilon else A), torch.cat(q, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        A, rows, columns, *ctx.settings = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(A, rows, columns, output[1])

    @staticmethod
    def backward(ctx: Any, Pi_bar: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        A, rows, columns, saved = ctx.saved_tensors
        return normalization_rev(A, rows, columns, saved, Pi_bar, *ctx.settings), None, None, None, None, None


def normalization_rev(
    A: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    saved: Tensor,
    Pi_bar: Tensor,
    half_steps: int,
    epsilon: float,
    symmetric: bool,
) -> Tensor:
    """Reverse pass of `Normalization`, which computes Pi from A: return the gradient with respect to A.

    Pi_bar  Gradient with respect to Pi.
    saved   Scaling vectors that `Normalization` returned.
    """
    with full_precision(A):
        q = _scalings_again(A, rows, columns, saved, half_steps, epsilon, symmetric)
        u, v = _row_and_column(q)
        C = Pi_bar * (A + epsilon if epsilon else A)
        A_bar = _scalings_rev(A, q, v @ C.mT, u @ C, epsilon, symmetric, [], [])
        return A_bar + in_place(Pi_bar * u.mT, "mul", v)


# Vectors are stored as rows, (B, 1, n) or, for U vectors, (B, U, n): torch multiplies a row by a batch of
# matrices an order of magnitude faster than a batch of matrices by a column.


def _scalings(
    A: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    half_steps: int,
    epsilon: float,
    symmetric: bool,
) -> list[Tensor]:
    """Return T + 2 vectors: ones for the columns, then the scaling vectors q_0, q_1, ..., q_T.

    T is `half_steps`; two half steps are one Sinkhorn iteration. q_0 holds ones for the rows. If t is odd,
    q_t scales the columns such that they sum to 1; if t is even, it scales the rows. So one of the last two
    vectors is for the rows and the other for the columns, even if T is 0; see `_row_and_column`. All vectors
    are 0 at padding.
    """
    if symmetric:
        columns = rows
    ones = torch.ones_like(A[..., :1, :])
    q = [ones if mask is None else mask.unsqueeze(-2).to(A.dtype) for mask in (columns, rows)]
    for t in range(half_steps):
        w = _times(q[-1], A.mT if t % 2 and not symmetric else A, epsilon)
        q.append(_reciprocal(w, rows if t % 2 else columns))
    return q


def _scalings_again(
    A: Tensor, rows: Tensor | None, columns: Tensor | None, saved: Tensor, *settings: Any
) -> Sequence[Tensor]:
    """Return the scaling vectors for a reverse pass: the saved ones, or new ones for second derivatives.

    The saved vectors are detached from A. If the reverse pass itself is differentiated, the vectors must be
    computed from A again.
    """
    if torch.is_grad_enabled():
        return _scalings(A, rows, columns, *settings)
    q: Sequence[Tensor] = saved.split(1, -2)
    return q


def _scalings_rev(
    A: Tensor,
    q: Sequence[Tensor],
    u_bar: Tensor,
    v_bar: Tensor,
    epsilon: float,
    symmetric: bool,
    left: list[Tensor],
    right: list[Tensor],
) -> Tensor | float:
    """Return A_bar, the part of the gradient with respect to A that comes through the scaling vectors.

    q            Scaling vectors that `_scalings` computed from A.
    u_bar        Gradient with respect to the last scaling vector of the rows.
    v_bar        Gradient with respect to the last scaling vector of the columns.
    left, right  Lists of matrices (B, U, n). The products left[i]' right[i] are added to the result.

    For any x, x_bar is the gradient with respect to x. Half step t computes w = A q_(t-1) and q_t = 1 / w.
    Its reverse pass computes w_bar = -q_t^2 q_bar_t, then adds w_bar q_(t-1)' to A_bar and A' w_bar to
    q_bar_(t-1). If t is odd, the half step is for the columns, and A and A_bar are transposed in this.
    """
    T = len(q) - 2
    q_bar, before_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)
    for t in range(T, 0, -1):
        q_t, q_before = q[t + 1], q[t]
        w_bar = -q_t * (q_t * q_bar)
        left, right = [*left, q_before if t % 2 else w_bar], [*right, w_bar if t % 2 else q_before]
        if t > 1:  # the first scaling vector, q_0, is constant and needs no gradient
            q_bar = _times(w_bar, A.mT if t % 2 and not symmetric else A, epsilon)
            if t == T:
                q_bar = q_bar + before_bar
    return torch.cat(left, -2).mT @ torch.cat(right, -2) if left else 0.0


def _row_and_column(q: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return u and v, the last scaling vectors of the rows and of the columns, respectively."""
    return (q[-2], q[-1]) if len(q) % 2 else (q[-1], q[-2])


def _reciprocal(w: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 / w for the sums w of rows or columns; 0 at padding and where w is 0."""
    void = w < torch.finfo(w.dtype).tiny
    if mask is not None:
        void = void | ~mask.unsqueeze(-2)
    return torch.where(void, 0, 1 / torch.where(void, 1, w))


def _times(x: Tensor, A: Tensor, epsilon: float) -> Tensor:
    """Return the matrix products x (A + epsilon), where x has the shape (B, U, n) and A (B, n, n)."""
    y = x @ A
    return y + epsilon * x.sum(-1, keepdim=True) if epsilon else y
