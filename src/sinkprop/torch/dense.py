"""The expected gain in torch's operations: on any device, under `torch.compile` and `torch.func`.

In the scaling form of `normalization.py`, Pi = diag(u) (A + epsilon) diag(v). What is wanted of Pi are its
products with the discounts, E[j, u] = sum_k Pi[j, k] d[u, k], and f = sum_ju g[j, u] E[j, u]. Two functions
with reverse passes of their own lie on the way, scores -> A and A -> E. The second saves the very tensor that
the first put out, so that a graph keeps one n x n matrix a query, and the scaling vectors.

Queries of different lengths are padded, (B, n), with a mask. A is not masked: the scaling vectors are 0 at
padding, and so is all that is made of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from sinkprop import _native
from sinkprop.objective import native_settings
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.torch.batches import tracing

__all__ = [
    "Normalization",
    "call",
    "expected_gain",
    "forward_mode",
    "normalization_rev",
    "normalized",
    "partitioned",
    "pre_sinkhorn",
    "project",
]

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

    scores     (B, n), or (B, n, 2) for a partitioned measure; larger is better
    gains      (B, n, U) what each document adds under each discount, divided by the query's ideal
    discounts  (U, n)
    mask       (B, n) True for a document; None where there is no padding

    Differentiable in scores, gains and discounts.
    """
    E = project(scores, discounts, mask, relaxation, half_steps, epsilon)
    # where there is no document, its gain may be anything
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
    D = discounts.to(A.dtype)
    E, _ = call(_Projection, A, D, rows, columns, half_steps, epsilon, order is not None)
    return _in_input_order(E.mT, order)


def normalized(
    scores: Tensor, mask: Tensor | None, relaxation: Relaxation, half_steps: int, epsilon: float
) -> Tensor:
    """Pi (B, n, n), documents in input order; rows and columns of padding are 0."""
    A, rows, columns, order = pre_sinkhorn(scores, mask, relaxation)
    Pi, _ = call(Normalization, A, rows, columns, half_steps, epsilon, order is not None)
    return _in_input_order(Pi, order)


def _in_input_order(x: Tensor, order: Tensor | None) -> Tensor:
    """Rows of x (B, n, ...) taken back from `order`."""
    if order is None:
        return x
    return torch.zeros_like(x).scatter(-2, order.unsqueeze(-1).expand_as(x), x)


def call(function: Any, *arguments: Any) -> Any:
    """The function with its own reverse pass; step by step where a forward-mode derivative is being taken.

    torch.compile does not take functions with a rule of their own for that mode, and torch.func applies
    such a rule wrongly to second derivatives.
    """
    return (function.forward if forward_mode() else function.apply)(*arguments)


def forward_mode() -> bool:
    """Whether a derivative is being taken forwards: by torch.func.jvp, or by dual numbers."""
    return bool(forward_ad._current_level >= 0)


def full_precision(x: Tensor) -> Any:
    """A context in which autocast does not halve the digits of products."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def pre_sinkhorn(
    scores: Tensor, mask: Tensor | None, relaxation: Relaxation
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """A (B, n, n), masks (B, n) of its rows and of its columns, and the documents in the order of its rows.

    A mask is None for all. For a smoothed indicator the order (B, n) is that of the scores, padding last, and
    A is symmetric: the mask of its columns is that of its rows, and None is given. For a partitioned measure
    the order is None, the input's.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if isinstance(relaxation, PartitionedMeasure):
        columns = None
        if mask is not None:
            columns = torch.arange(mask.shape[-1], device=mask.device) < mask.sum(-1, keepdim=True)
        return partitioned(scores, mask, relaxation), mask, columns, None
    if not isinstance(relaxation, SmoothedIndicator):
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}."
        )
    key, rows = scores.detach(), None
    if mask is not None:
        # A score at padding may be anything, infinite and NaN too. The least one keeps the scores falling.
        least = torch.where(mask, key, math.inf).amin(-1, keepdim=True)
        least = torch.where(least < math.inf, least, 0)
        key, scores = torch.where(mask, key, -math.inf), torch.where(mask, scores, least)
    order = torch.sort(key, dim=-1, descending=True, stable=True).indices
    if mask is not None:
        rows = mask.gather(-1, order)
    sigma = relaxation.sigma
    if scores.dtype is torch.float32:  # in which a smaller one would be 0, a larger one infinite
        sigma = min(max(sigma, 1e-30), 1e30)
    A = call(_Kernel, scores.gather(-1, order), sigma, relaxation.kernel)
    return A, rows, None, order


class _Kernel(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """A[b, i, k] = K((y_i - y_k) / sigma) of scores y (B, n) that fall: `reference.smoothed_indicator`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, sigma: float, kernel: str) -> Tensor:
        t = _distances(y, sigma, kernel)
        t = _do(_do(t, "mul", t), "mul", -0.5) if kernel == "gaussian" else _do(t, "mul", -_above(y))
        return _do(t, "exp")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, ctx.sigma, ctx.kernel = inputs
        ctx.save_for_backward(y, output)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None, None]:
        y, A = ctx.saved_tensors
        # the derivative of -ln K(t) in t
        slope = _distances(y, ctx.sigma, ctx.kernel) if ctx.kernel == "gaussian" else _above(y)
        t_bar = _do(A_bar * A, "mul", slope)
        return (t_bar.sum(-2) - t_bar.sum(-1)) / ctx.sigma, None, None


def _distances(y: Tensor, sigma: float, kernel: str) -> Tensor:
    """Distances t[b, i, k] = (y_i - y_k) / sigma, no further than makes K(t) 0 in double precision."""
    limit = 40.0 if kernel == "gaussian" else 750.0
    return _do(_do(y.unsqueeze(-1) - y.unsqueeze(-2), "div", sigma), "clamp", -limit, limit)


def _do(x: Tensor, operation: str, *arguments: Any) -> Tensor:
    """The operation on x, in its place where no graph is made: a new matrix costs more than most operations.

    No argument may have an axis of a vmap that x has not.
    """
    in_place = not (torch.is_grad_enabled() or tracing())
    result: Tensor = getattr(x, operation + "_" * in_place)(*arguments)
    return result


def _above(y: Tensor) -> Tensor:
    """The sign of t by the ranks: a document counts as above those that follow it, also where they tie."""
    i = torch.arange(y.shape[-1], device=y.device)
    return (i - i.unsqueeze(-1)).sign().to(y.dtype)


def partitioned(theta: Tensor, mask: Tensor | None, measure: PartitionedMeasure) -> Tensor:
    """A[b, j, k] = F(k/n; theta_j) - F((k-1)/n; theta_j) for theta (B, n, 2), n each query's own number.

    Columns past the n-th are 0. Parameters beyond the measure's limits are taken at them, without gradient.
    """
    if mask is not None:
        theta = torch.where(mask.unsqueeze(-1), theta, 0)
    (low_0, low_1), (high_0, high_1) = measure.limits
    theta = torch.stack([theta[..., 0].clamp(low_0, high_0), theta[..., 1].clamp(low_1, high_1)], -1)
    if measure.family == "beta":
        return _beta_masses(theta, mask)
    n = theta.shape[-2]
    edges, widths = _edges(n if mask is None else mask.sum(-1, keepdim=True), n, measure.family, theta)
    A: Tensor = call(_Masses, theta, edges, widths, measure.family)
    return A


def _edges(sizes: int | Tensor, n: int, family: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """Q(k/size) for k = 0, ..., n, (B, n + 1) or (n + 1,), and their differences.

    The ends are finite, for the derivative by s, and beyond every distribution.
    """
    # bins are narrow beside the edges between which they lie: their widths need the digits
    dtype = torch.float64 if like.device.type != "mps" else torch.float32
    k = torch.arange(n + 1, device=like.device)
    above = sizes - k
    i, j = k.clamp(min=1).to(dtype), above.clamp(min=1).to(dtype)
    if family == "logit-logistic":
        Q = i.log() - j.log()
    else:  # from the nearer end, where a quotient keeps its digits
        near = torch.special.ndtri(torch.minimum(i, j) / (i + j))
        Q = torch.where(i < j, near, -near)
    Q = torch.where(above <= 0, 1e35, torch.where(k == 0, -1e35, Q))
    widths = torch.where(above[..., :-1] <= 0, 1e35, Q[..., 1:] - Q[..., :-1])
    return Q.to(like.dtype), widths.to(like.dtype)


class _Masses(torch.autograd.Function):  # type: ignore[misc]
    """A (B, n, n) of a family with a location and a scale, from theta and the edges and widths of bins."""

    generate_vmap_rule = True

    @staticmethod
    def forward(theta: Tensor, edges: Tensor, widths: Tensor, family: str) -> Tensor:
        z = _standardized(theta, edges, family)
        lower, upper = z[..., :-1], z[..., 1:]
        width = _do(widths.unsqueeze(-2) * (-theta[..., 1:]).exp(), "clamp", 0.0, 1e4)
        if family == "logit-logistic":
            # sigmoid(z) - sigmoid(y) = sigmoid(z) sigmoid(-y) (1 - exp(y - z)), without cancellation
            A = _do(_do(_do(width, "neg"), "expm1"), "neg")
            return _do(_do(A, "mul", upper.sigmoid()), "mul", _do(-lower, "sigmoid"))
        # from F below the median and S = 1 - F above it, which keeps the tails
        F, S = _normal_cdf(z), _normal_cdf(-z)
        A = torch.where(F[..., :-1] > 0.5, S[..., :-1] - S[..., 1:], F[..., 1:] - F[..., :-1])
        # A difference of Phi cancels in a narrow bin, where Gauss-Legendre is exact to rounding.
        middle, half = (lower + upper) / 2, width / 2
        narrow = half * (1 + middle.abs()) < 0.5
        half = torch.where(narrow, half, 0)
        mean = sum(w * _normal_density(middle + half * x) for x, w in zip(*_GAUSS_LEGENDRE, strict=True))
        return torch.where(narrow, half * mean, A)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        theta, edges, _, ctx.family = inputs
        ctx.save_for_backward(theta, edges)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None, None, None]:
        theta, edges = ctx.saved_tensors
        z = _standardized(theta, edges, ctx.family)[..., 1:-1]
        if ctx.family == "probit":
            density = _normal_density(z)
        else:
            density = _do(_do(-z, "sigmoid"), "mul", z.sigmoid())
        # an edge closes one bin and opens the next
        z_bar = _do(A_bar[..., :-1] - A_bar[..., 1:], "mul", density)
        mu_bar = -z_bar.sum(-1) * (-theta[..., 1]).exp()
        return torch.stack([mu_bar, -_do(z_bar, "mul", z).sum(-1)], -1), None, None, None


def _standardized(theta: Tensor, edges: Tensor, family: str) -> Tensor:
    """z[b, j, k] = (Q(k/n) - mu_j) / s_j, no further than makes the smaller tail and the density 0."""
    limit = 800.0 if family == "logit-logistic" else 40.0
    z = _do(edges.unsqueeze(-2) - theta[..., :1], "mul", (-theta[..., 1:]).exp())
    return _do(z, "clamp", -limit, limit)


def _normal_density(z: Tensor) -> Tensor:
    return _do(_do(_do(z * z, "mul", -0.5), "exp"), "div", math.sqrt(2 * math.pi))


def _normal_cdf(z: Tensor) -> Tensor:
    return _do(_do(z / -math.sqrt(2), "erfc"), "div", 2)


def _beta_masses(theta: Tensor, mask: Tensor | None) -> Tensor:
    """A (B, n, n) of the beta distribution, whose derivatives by a and b torch lacks: by the native layer."""
    if theta.device.type != "cpu" or torch.compiler.is_compiling() or forward_mode():
        raise NotImplementedError(
            "relaxation: the beta distribution is evaluated on the CPU, outside of torch.compile and of "
            f"forward-mode derivatives; got scores on {theta.device.type!r}. Move them to the CPU, or use "
            "PartitionedMeasure('logit-logistic') or PartitionedMeasure('probit')."
        )
    if mask is None:
        mask = torch.ones_like(theta[..., 0], dtype=torch.bool)
    A: Tensor = _BetaMasses.apply(theta, mask)
    return A


class _BetaMasses(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(theta: Tensor, mask: Tensor) -> Tensor:
        x, offsets, rows = _present(theta, mask)
        n = mask.shape[-1]
        A = torch.zeros(mask.numel(), n, dtype=torch.float64)
        if len(rows):
            masses = np.empty((len(x), n))
            _native.project(x, offsets, None, np.eye(n), *_BETA, 1, masses)
            A[rows] = torch.from_numpy(masses)
        return A.to(theta.dtype).reshape(*mask.shape, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None]:
        theta, mask = ctx.saved_tensors
        return _BetaMassesRev.apply(theta, mask, A_bar), None

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return _BetaMasses.apply(*_batched(info, axes, inputs)), 0


class _BetaMassesRev(torch.autograd.Function):  # type: ignore[misc]
    """theta_bar from A_bar, as the gradient of a gain in which each document has a discount of its own."""

    @staticmethod
    def forward(theta: Tensor, mask: Tensor, A_bar: Tensor) -> Tensor:
        x, offsets, rows = _present(theta, mask)
        theta_bar = torch.zeros(mask.numel(), 2, dtype=torch.float64)
        if len(rows):
            D = A_bar.reshape(mask.numel(), -1)[rows].double().numpy()
            per_query, gradient = np.empty(len(offsets) - 1), np.empty_like(x)
            classes = np.arange(len(x), dtype=np.int32)
            _native.expected_gain(
                x, offsets, None, np.ones(len(x)), False, classes, D, False, *_BETA, 1, per_query, gradient
            )
            theta_bar[rows] = torch.from_numpy(gradient) * len(per_query)  # of their mean
        return theta_bar.to(theta.dtype).reshape(theta.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, theta_bar_bar: Tensor) -> tuple[None, None, None]:
        raise NotImplementedError(
            "relaxation: the beta distribution has no second derivative here; use "
            "PartitionedMeasure('logit-logistic') or PartitionedMeasure('probit')."
        )

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return _BetaMassesRev.apply(*_batched(info, axes, inputs)), 0


_BETA = native_settings(PartitionedMeasure("beta"), 0, 0.0)


def _present(theta: Tensor, mask: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64], Tensor]:
    """The parameters of the documents, where each query that has any begins, and which rows they are."""
    rows = mask.reshape(-1).nonzero().squeeze(-1)
    sizes = mask.reshape(-1, mask.shape[-1]).sum(-1)
    offsets = torch.nn.functional.pad(sizes[sizes > 0].cumsum(0), (1, 0))
    return theta.reshape(-1, 2)[rows].double().numpy(), offsets.numpy(), rows


def _batched(info: Any, axes: tuple[int | None, ...], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The inputs with the axis of a vmap in front."""
    return [
        x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
        for x, axis in zip(inputs, axes, strict=True)
    ]


class _Projection(torch.autograd.Function):  # type: ignore[misc]
    """E' (B, U, n) from A (B, n, n) and the discounts D (U, n), and the scaling vectors, (B, T + 2, n)."""

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
    """Pi = diag(u) (A + epsilon) diag(v), (B, n, n), and the scaling vectors, (B, T + 2, n)."""

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
            # u v' first: u A alone can underflow where u A v does not
            return _do(u.mT * v, "mul", A + epsilon if epsilon else A), torch.cat(q, -2)

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
    """The reverse pass of `Normalization`, whose scaling vectors were saved."""
    with full_precision(A):
        q = _scalings_again(A, rows, columns, saved, half_steps, epsilon, symmetric)
        u, v = _row_and_column(q)
        C = Pi_bar * (A + epsilon if epsilon else A)
        A_bar = _scalings_rev(A, q, v @ C.mT, u @ C, epsilon, symmetric, [], [])
        return A_bar + _do(Pi_bar * u.mT, "mul", v)


# Vectors are rows, (B, 1, n), and several of them (B, U, n): torch multiplies a row by a batch of matrices an
# order of magnitude faster than a batch of matrices by a column.


def _scalings(
    A: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    half_steps: int,
    epsilon: float,
    symmetric: bool,
) -> list[Tensor]:
    """Ones for the columns, then q_0, ..., q_T, of rows for an even index and of columns for an odd one.

    The two last are u and v, also where T is 0. At padding all are 0.
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
    """The scaling vectors for a reverse pass: those saved, unless the pass is differentiated.

    The saved ones know nothing of A.
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
    """A_bar, of what reaches A through the scaling vectors and of the terms left' right, (B, U, n), given.

    w = A q contributes w_bar q' to A_bar and A' w_bar to q_bar; q = 1 / w makes w_bar = -q^2 q_bar.
    """
    T = len(q) - 2
    q_bar, before_bar = (v_bar, u_bar) if T % 2 else (u_bar, v_bar)
    for t in range(T, 0, -1):
        q_t, q_before = q[t + 1], q[t]
        w_bar = -q_t * (q_t * q_bar)
        left, right = [*left, q_before if t % 2 else w_bar], [*right, w_bar if t % 2 else q_before]
        if t > 1:  # q_0 is constant
            q_bar = _times(w_bar, A.mT if t % 2 and not symmetric else A, epsilon)
            if t == T:
                q_bar = q_bar + before_bar
    return torch.cat(left, -2).mT @ torch.cat(right, -2) if left else 0.0


def _row_and_column(q: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The last scaling vectors of rows and of columns, u and v."""
    return (q[-2], q[-1]) if len(q) % 2 else (q[-1], q[-2])


def _reciprocal(w: Tensor, mask: Tensor | None) -> Tensor:
    """1 / w; 0 at padding, and where a line of zeros has nothing to normalize."""
    void = w < torch.finfo(w.dtype).tiny
    if mask is not None:
        void = void | ~mask.unsqueeze(-2)
    return torch.where(void, 0, 1 / torch.where(void, 1, w))


def _times(x: Tensor, A: Tensor, epsilon: float) -> Tensor:
    """Products x (A + epsilon) for x (B, U, n)."""
    y = x @ A
    return y + epsilon * x.sum(-1, keepdim=True) if epsilon else y
