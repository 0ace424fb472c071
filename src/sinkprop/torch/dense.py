"""The expected gain in plain torch: any device, `torch.compile` and the transforms of `torch.func`.

In the scaling form of `normalization.py`: with Pi = diag(u) (A + epsilon) diag(v), what is wanted of Pi are its
products with the discounts, E[j, u] = sum_k Pi[j, k] d[u, k], and f = sum_ju g[j, u] E[j, u]. Two functions with
backward passes of their own lie on the way, scores -> A and A -> E; the second saves the very tensor that the
first put out, so that a graph holds one n x n matrix a query, and 2 n_iter + 1 vectors.

Queries of different lengths are padded, (B, n), with a mask. A is not masked: the scaling vectors are 0 at
padding, and so is all that is made of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__all__ = ["expected_gain", "partitioned", "pre_sinkhorn", "project"]

_GAUSS_LEGENDRE = tuple(x.tolist() for x in np.polynomial.legendre.leggauss(16))


def expected_gain(
    scores: Tensor,
    gains: Tensor,
    discounts: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
) -> Tensor:
    """f_b = sum_ju gains[b, j, u] sum_k Pi_b[j, k] discounts[u, k], one value a query: (B,).

    scores     (B, n), or (B, n, 2) for a partitioned measure
    gains      (B, n, U) what each document adds under each discount, divided by the query's ideal
    discounts  (U, n)
    mask       (B, n) True for a document; None where there is no padding
    """
    E = project(scores, discounts, mask, relaxation, half_steps, epsilon)
    # where a document is not, its gain may be anything
    products = gains * E if mask is None else torch.where(mask.unsqueeze(-1), gains, 0) * E
    return products.sum((-2, -1))


def project(
    scores: Tensor,
    discounts: Tensor,
    mask: Tensor | None,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
) -> Tensor:
    """E[b, j, u] = sum_k Pi_b[j, k] discounts[u, k], documents in input order: (B, n, U), 0 at padding."""
    A, rows, columns, order = pre_sinkhorn(scores, mask, relaxation)
    symmetric = order is not None
    D = discounts.to(A.dtype)
    E: Tensor = _Projection.apply(A, D, rows, columns, half_steps, epsilon, symmetric)[0]
    if order is None:
        return E
    return torch.zeros_like(E).scatter(-2, order.unsqueeze(-1).expand_as(E), E)


def pre_sinkhorn(
    scores: Tensor, mask: Tensor | None, relaxation: Relaxation
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """A (B, n, n), which of its rows and columns count, and the documents in the order of the rows.

    Masks are None for all. The order (B, n) is that of the scores, padding last, for a smoothed indicator, whose
    A is symmetric so; None, the input's, for a partitioned measure.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if isinstance(relaxation, SmoothedIndicator):
        key = scores.detach()
        if mask is not None:
            # a padded score may be anything, infinite and NaN too
            scores = torch.where(mask, scores, 0)
            key = torch.where(mask, key, -torch.inf)
        order = torch.sort(key, dim=-1, descending=True, stable=True).indices
        rows = None if mask is None else mask.gather(-1, order)
        sigma = relaxation.sigma
        if scores.dtype is torch.float32:  # in which the rest would be 0 or infinite
            sigma = min(max(sigma, 1e-30), 1e30)
        A = _Kernel.apply(scores.gather(-1, order), sigma, relaxation.kernel)
        return A, rows, rows, order
    if not isinstance(relaxation, PartitionedMeasure):
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}."
        )
    if mask is not None:
        scores = torch.where(mask.unsqueeze(-1), scores, 0)
    n = scores.shape[-2]
    if mask is None:
        sizes = torch.full(scores.shape[:-2], n, device=scores.device)
        columns = None
    else:
        sizes = mask.sum(-1)
        columns = torch.arange(n, device=scores.device) < sizes.unsqueeze(-1)
    return partitioned(scores, sizes, relaxation), mask, columns, None


def partitioned(theta: Tensor, sizes: Tensor, measure: PartitionedMeasure) -> Tensor:
    """A[b, j, k] = F(k/n; theta_j) - F((k-1)/n; theta_j), with n = sizes[b] bins: theta (B, n, 2) to (B, n, n).

    Parameters beyond the measure's limits are taken at the limits and get no gradient.
    """
    low, high = measure.limits
    theta = torch.stack([theta[..., i].clamp(low[i], high[i]) for i in range(2)], -1)
    if measure.family == "beta":
        raise NotImplementedError
    edges, widths = _edges(sizes, theta.shape[-2], measure.family, theta.dtype)
    return _Masses.apply(theta, edges, widths, measure.family)


def _edges(sizes: Tensor, n: int, family: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Q(k/sizes[b]), k = 0, ..., n, infinite at the ends, and their differences: (B, n + 1) and (B, n)."""
    double = torch.float32 if sizes.device.type == "mps" else torch.float64
    k, of = torch.arange(n + 1, device=sizes.device), sizes.unsqueeze(-1)
    below, above = k.clamp(min=1).to(double), (of - k).clamp(min=1).to(double)
    if family == "logit-logistic":
        Q = below.log() - above.log()
    else:  # from the nearer end, where the quotient keeps its digits
        near = torch.special.ndtri(torch.minimum(below, above) / (below + above))
        Q = torch.where(below < above, near, -near)
    Q = torch.where(k == 0, -torch.inf, torch.where(k >= of, torch.inf, Q))
    widths = Q.diff(dim=-1)
    widths = torch.where(k[:-1] >= of, torch.inf, widths)  # no inf - inf past the last
    return Q.to(dtype), widths.to(dtype)


class _Masses(torch.autograd.Function):
    """A (B, n, n) of the families with a location and a scale: see `reference.partitioned_measure`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(theta: Tensor, edges: Tensor, widths: Tensor, family: str) -> Tensor:
        z = _standardized(theta, edges, family)
        lower, upper = z[..., :-1], z[..., 1:]
        width = widths.unsqueeze(-2) * (-theta[..., 1:]).exp()
        if family == "logit-logistic":
            # sigmoid(z) - sigmoid(y) = sigmoid(z) sigmoid(-y) (1 - exp(y - z)), without cancellation
            return upper.sigmoid() * (-lower).sigmoid() * -torch.expm1(-width)
        F, S = _normal_cdf(z), _normal_cdf(-z)
        A = torch.where(F[..., :-1] > 0.5, S[..., :-1] - S[..., 1:], F[..., 1:] - F[..., :-1])
        # A difference of Phi cancels in a narrow bin, where Gauss-Legendre is exact to rounding.
        mid, half = (lower + upper) / 2, width / 2
        narrow = half * (1 + mid.abs()) < 0.5
        half = torch.where(narrow, half, 0)
        mass = torch.zeros_like(A)
        for node, weight in zip(*_GAUSS_LEGENDRE, strict=True):
            mass = mass + weight * _normal_density(mid + half * node)
        return torch.where(narrow, half * mass, A)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        theta, edges, _, ctx.family = inputs
        ctx.save_for_backward(theta, edges)
        ctx.save_for_forward(theta, edges)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None, None, None]:
        theta, edges = ctx.saved_tensors
        z = _standardized(theta, edges, ctx.family)[..., 1:-1]
        # an edge closes one bin and opens the next
        z_bar = (A_bar[..., :-1] - A_bar[..., 1:]) * _density(z, ctx.family)
        mu_bar = -z_bar.sum(-1) * (-theta[..., 1]).exp()
        return torch.stack([mu_bar, -(z_bar * z).sum(-1)], -1), None, None, None

    @staticmethod
    def jvp(ctx: Any, theta_dot: Tensor, *_: None) -> Tensor:
        theta, edges = ctx.saved_tensors
        z = _standardized(theta, edges, ctx.family)
        mu_dot, log_s_dot = theta_dot[..., :1], theta_dot[..., 1:]
        F_dot = -_density(z, ctx.family) * (mu_dot * (-theta[..., 1:]).exp() + z * log_s_dot)
        return F_dot.diff(dim=-1)


def _standardized(theta: Tensor, edges: Tensor, family: str) -> Tensor:
    """z[b, j, k] = (Q(k/n) - mu_j) / s_j, within what makes the smaller tail and the density 0: (B, n, n + 1)."""
    limit = 800.0 if family == "logit-logistic" else 40.0
    # infinite edges would make NaN of the derivative by s
    Q = edges.unsqueeze(-2)
    inner = Q.isfinite()
    z = (torch.where(inner, Q, 0) - theta[..., :1]) * (-theta[..., 1:]).exp()
    return torch.where(inner, z, Q).clamp(-limit, limit)


def _density(z: Tensor, family: str) -> Tensor:
    return _normal_density(z) if family == "probit" else z.sigmoid() * (-z).sigmoid()


def _normal_density(z: Tensor) -> Tensor:
    return (-0.5 * z * z).exp() / math.sqrt(2 * math.pi)


def _normal_cdf(z: Tensor) -> Tensor:
    return torch.erfc(-z / math.sqrt(2)) / 2


class _Kernel(torch.autograd.Function):
    """A[b, i, k] = K((y_i - y_k) / sigma) for y (B, n) that fall: see `reference.smoothed_indicator`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, sigma: float, kernel: str) -> Tensor:
        t = _distances(y, sigma, kernel)
        if kernel == "gaussian":
            return t.square_().mul_(-0.5).exp_()
        return t.abs_().neg_().exp_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, ctx.sigma, ctx.kernel = inputs
        ctx.save_for_backward(y, output)
        ctx.save_for_forward(y, output)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None, None]:
        y, A = ctx.saved_tensors
        W = A_bar * A * _slope(y, ctx.sigma, ctx.kernel)
        return (W.sum(-2) - W.sum(-1)) / ctx.sigma, None, None

    @staticmethod
    def jvp(ctx: Any, y_dot: Tensor, *_: None) -> Tensor:
        y, A = ctx.saved_tensors
        t_dot = (y_dot.unsqueeze(-1) - y_dot.unsqueeze(-2)) / ctx.sigma
        return -A * _slope(y, ctx.sigma, ctx.kernel) * t_dot


def _distances(y: Tensor, sigma: float, kernel: str) -> Tensor:
    """(y_i - y_k) / sigma, at most at what makes K(t) and its derivative 0 in double precision."""
    limit = 40.0 if kernel == "gaussian" else 750.0
    return ((y.unsqueeze(-1) - y.unsqueeze(-2)) / sigma).clamp(-limit, limit)


def _slope(y: Tensor, sigma: float, kernel: str) -> Tensor:
    """The derivative of -ln K(t) in t; for the Laplace kernel the sign of the ranks, which parts ties."""
    if kernel == "gaussian":
        return _distances(y, sigma, kernel)
    i = torch.arange(y.shape[-1], device=y.device)
    return (i - i.unsqueeze(-1)).sign().to(y.dtype)


class _Projection(torch.autograd.Function):
    """E (B, n, U) from A (B, n, n) and discounts (U, n), and the scaling vectors q (B, T + 1, n)."""

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
        with torch.autocast(A.device.type, enabled=False):
            q = scalings(A, rows, columns, half_steps, epsilon, symmetric)
            u, v = row_and_column(q)
            return u.unsqueeze(-1) * times(A, v.unsqueeze(-1) * D.mT, epsilon), torch.stack(q, -2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        A, D, rows, columns, ctx.half_steps, ctx.epsilon, ctx.symmetric = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(A, D, rows, columns, output[1])
        ctx.save_for_forward(A, D, rows, columns)

    @staticmethod
    def backward(ctx: Any, E_bar: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        A, D, rows, columns, stacked = ctx.saved_tensors
        epsilon = ctx.epsilon
        with torch.autocast(A.device.type, enabled=False):
            # The saved vectors know nothing of A: a derivative of this pass needs those that do.
            q = (
                scalings(A, rows, columns, ctx.half_steps, epsilon, ctx.symmetric)
                if torch.is_grad_enabled()
                else stacked.unbind(-2)
            )
            u, v = row_and_column(q)
            left, right = u.unsqueeze(-1) * E_bar, v.unsqueeze(-1) * D.mT
            u_bar = (E_bar * times(A, right, epsilon)).sum(-1)
            from_columns = times(A if ctx.symmetric else A.mT, left, epsilon)
            v_bar = (from_columns * D.mT).sum(-1)
            A_bar = scalings_rev(A, q, u_bar, v_bar, left, right, epsilon, ctx.symmetric)
            D_bar = None
            if ctx.needs_input_grad[1]:
                D_bar = (from_columns * v.unsqueeze(-1)).sum(0).mT
            return A_bar, D_bar, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, A_dot: Tensor | None, D_dot: Tensor | None, *_: None) -> tuple[Tensor, None]:
        A, D, rows, columns = ctx.saved_tensors
        epsilon = ctx.epsilon
        with torch.autocast(A.device.type, enabled=False):
            q = scalings(A, rows, columns, ctx.half_steps, epsilon, ctx.symmetric)
            q_dot = scalings_dot(A, A_dot, q, epsilon)
            (u, v), (u_dot, v_dot) = row_and_column(q), row_and_column(q_dot)
            x = v.unsqueeze(-1) * D.mT
            x_dot = v_dot.unsqueeze(-1) * D.mT
            if D_dot is not None:
                x_dot = x_dot + v.unsqueeze(-1) * D_dot.mT
            y_dot = times(A, x_dot, epsilon)
            if A_dot is not None:
                y_dot = y_dot + A_dot @ x
            return u_dot.unsqueeze(-1) * times(A, x, epsilon) + u.unsqueeze(-1) * y_dot, None


def scalings(
    A: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    half_steps: int,
    epsilon: float,
    symmetric: bool,
) -> list[Tensor]:
    """1 of columns, then q_0, ..., q_T, each (B, n): of rows for an even index, of columns for an odd one.

    The two last are u and v, also where T is 0. At padding they are 0.
    """
    ones = torch.ones_like(A[..., 0])
    q = [ones if mask is None else mask.to(A.dtype) for mask in (columns, rows)]
    At = A if symmetric else A.mT
    for t in range(half_steps):
        w = times(A if t % 2 else At, q[-1].unsqueeze(-1), epsilon).squeeze(-1)
        q.append(_reciprocal(w, rows if t % 2 else columns))
    return q


def scalings_dot(A: Tensor, A_dot: Tensor | None, q: Sequence[Tensor], epsilon: float) -> list[Tensor]:
    """The derivatives of the scaling vectors along A_dot."""
    q_dot = [torch.zeros_like(x) for x in q]
    for t in range(len(q) - 2) if A_dot is not None else ():
        B, B_dot = (A, A_dot) if t % 2 else (A.mT, A_dot.mT)
        w_dot = B_dot @ q[t + 1].unsqueeze(-1) + times(B, q_dot[t + 1].unsqueeze(-1), epsilon)
        q_dot[t + 2] = -q[t + 2] * (q[t + 2] * w_dot.squeeze(-1))
    return q_dot


def scalings_rev(
    A: Tensor,
    q: Sequence[Tensor],
    u_bar: Tensor,
    v_bar: Tensor,
    left: Tensor,
    right: Tensor,
    epsilon: float,
    symmetric: bool,
) -> Tensor:
    """A_bar = left right' + what reaches A through the scaling vectors, from the derivatives by u and v.

    w = A q contributes w_bar q' to A_bar and A' w_bar to q_bar; q = 1 / w makes w_bar = -q^2 q_bar. left and
    right are (B, n, U).
    """
    T = len(q) - 2
    At = A if symmetric else A.mT
    lefts, rights = [left], [right]
    q_bar, before_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)
    for t in range(T, 0, -1):
        q_t, q_before = q[t + 1], q[t].unsqueeze(-1)
        w_bar = (-q_t * (q_t * q_bar)).unsqueeze(-1)
        lefts.append(q_before if t % 2 else w_bar)
        rights.append(w_bar if t % 2 else q_before)
        if t > 1:  # q_0 is constant
            q_bar = times(A if t % 2 else At, w_bar, epsilon).squeeze(-1)
            if t == T:
                q_bar = q_bar + before_bar
    return torch.cat(lefts, -1) @ torch.cat(rights, -1).mT


def _reciprocal(w: Tensor, mask: Tensor | None) -> Tensor:
    """1 / w, and 0 at padding and where a line of zeros has nothing to normalize."""
    void = w < torch.finfo(w.dtype).tiny
    if mask is not None:
        void = void | ~mask
    return torch.where(void, 0, 1 / torch.where(void, 1, w))


def row_and_column(q: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """u and v, the two last scaling vectors: of rows and of columns."""
    return (q[-2], q[-1]) if len(q) % 2 else (q[-1], q[-2])


def times(A: Tensor, x: Tensor, epsilon: float) -> Tensor:
    """(A + epsilon) x for x (B, n, U)."""
    return A @ x + epsilon * x.sum(-2, keepdim=True)
