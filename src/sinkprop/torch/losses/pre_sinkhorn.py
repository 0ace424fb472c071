"""Pre-Sinkhorn matrices A from scores, in torch's operations, each with its reverse pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.objective.native_terms import NativeGains, native_settings
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.torch.losses.modes import call, forward_mode, in_place

__all__ = ["in_score_order", "partitioned", "pre_sinkhorn", "sigma_within"]

_GAUSS_LEGENDRE = tuple(x.tolist() for x in np.polynomial.legendre.leggauss(16))


def pre_sinkhorn(
    scores: Tensor, mask: Tensor | None, relaxation: Relaxation
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return the pre-Sinkhorn matrices of a padded batch as (A, rows, columns, order).

    A        (B, n, n) the matrices
    rows     (B, n) mask of A's rows: True for a document; None if there is no padding
    columns  (B, n) mask of A's columns: True for a rank that a document can have; None if there is no padding
    order    (B, n) index of the document in each row of A; None if the rows are in the order of the input

    For a smoothed indicator, rows are sorted by decreasing score, padding last. A is then symmetric, so
    `rows` is also the mask of the columns, and `columns` is None. For a partitioned measure, `order` is None.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if isinstance(relaxation, PartitionedMeasure):
        columns = None
        if mask is not None:
            columns = torch.arange(mask.shape[-1], device=mask.device) < mask.sum(-1, keepdim=True)
        theta = scores if relaxation.width == 2 else _with_shared_scale(scores, mask, relaxation)
        return partitioned(theta, mask, relaxation), mask, columns, None
    if not isinstance(relaxation, SmoothedIndicator):
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}."
        )
    y, rows, order = in_score_order(scores, mask)
    A = call(_Kernel, y, sigma_within(relaxation, y.dtype), relaxation.kernel)
    return A, rows, None, order


def in_score_order(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return scores y (B, n) in decreasing order with padding last, their mask, and the order.

    The order (B, n) has the index of the document at each place, and no gradient. Half precision becomes
    single precision. Padding gets the lowest score of its query.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    key, rows = scores.detach(), None
    if mask is not None:
        # Padding may hold any score, including inf and NaN. Replace it by the query's lowest score, so that
        # the scores still decrease after sorting.
        least = torch.where(mask, key, math.inf).amin(-1, keepdim=True)
        least = torch.where(least < math.inf, least, 0)
        key, scores = torch.where(mask, key, -math.inf), torch.where(mask, scores, least)
    order = torch.sort(key, dim=-1, descending=True, stable=True).indices
    if mask is not None:
        rows = mask.gather(-1, order)
    return scores.gather(-1, order), rows, order


def sigma_within(relaxation: SmoothedIndicator, dtype: torch.dtype) -> float:
    """Return sigma, within limits for float32, which would round a tiny one to 0 and a huge one to inf."""
    return relaxation.sigma if dtype is torch.float64 else min(max(relaxation.sigma, 1e-30), 1e30)


class _Kernel(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Autograd function from scores y (B, n), in decreasing order, to A[b, i, k] = K((y_i - y_k) / sigma).

    K(t) is exp(-t^2 / 2) for the Gaussian kernel and exp(-|t|) for the Laplace kernel, see
    `reference.smoothed_indicator`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, sigma: float, kernel: str) -> Tensor:
        t = _distances(y, sigma, kernel)
        t = (
            in_place(in_place(t, "mul", t), "mul", -0.5)
            if kernel == "gaussian"
            else in_place(t, "mul", -_above(y))
        )
        return in_place(t, "exp")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, ctx.sigma, ctx.kernel = inputs
        ctx.save_for_backward(y, output)

    @staticmethod
    def backward(ctx: Any, A_bar: Tensor) -> tuple[Tensor, None, None]:
        y, A = ctx.saved_tensors
        # the derivative of -ln K(t) with respect to t, for t = (y_i - y_k) / sigma
        slope = _distances(y, ctx.sigma, ctx.kernel) if ctx.kernel == "gaussian" else _above(y)
        t_bar = in_place(A_bar * A, "mul", slope)
        return (t_bar.sum(-2) - t_bar.sum(-1)) / ctx.sigma, None, None


def _distances(y: Tensor, sigma: float, kernel: str) -> Tensor:
    """Return the scaled differences of scores, t[b, i, k] = (y_i - y_k) / sigma, clamped to a range.

    At the limits of this range, the kernel K(t) is already 0 in float64.
    """
    limit = 40.0 if kernel == "gaussian" else 750.0
    return in_place(in_place(y.unsqueeze(-1) - y.unsqueeze(-2), "div", sigma), "clamp", -limit, limit)


def _above(y: Tensor) -> Tensor:
    """Return the sign of y_i - y_k, (n, n), for scores y in decreasing order: 1 if k > i, -1 if k < i.

    This ignores ties: the sign is 0 only if k = i.
    """
    i = torch.arange(y.shape[-1], device=y.device)
    return (i - i.unsqueeze(-1)).sign().to(y.dtype)


def partitioned(theta: Tensor, mask: Tensor | None, measure: PartitionedMeasure) -> Tensor:
    """Return A (B, n, n): A[b, j, k - 1] = F(k/m; theta_j) - F((k-1)/m; theta_j) for ranks k = 1, ..., m.

    theta (B, n, 2) holds two parameters theta_j for each document j, F is the distribution function of the
    measure's family, and m is the number of documents of query b. Columns past rank m are 0. Parameters
    beyond the measure's limits are clamped to them and get no gradient.
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
    """Return the edges of the bins, one bin for each rank, and the widths of the bins.

    Edge k of a query is Q(k/size), where size is the query's number of documents, and Q is the quantile
    function of the family at location 0 and scale 1. There are n + 1 edges, k = 0, ..., n, in the shape
    (B, n + 1), or (n + 1,) if `sizes` is one number. Edge 0 is -1e35, and all edges with k >= size are 1e35,
    instead of infinite, so that the derivative with respect to the scale exists. No document's distribution
    has probability beyond them.
    """
    # Bins are narrow compared to the magnitude of their edges, so differences of edges need float64.
    dtype = torch.float64 if like.device.type != "mps" else torch.float32
    k = torch.arange(n + 1, device=like.device)
    above = sizes - k
    i, j = k.clamp(min=1).to(dtype), above.clamp(min=1).to(dtype)
    if family == "logit-logistic":
        Q = i.log() - j.log()
    else:  # normal quantiles Q, from the smaller of k/size and 1 - k/size: so they lose no digits
        near = torch.special.ndtri(torch.minimum(i, j) / (i + j))
        Q = torch.where(i < j, near, -near)
    Q = torch.where(above <= 0, 1e35, torch.where(k == 0, -1e35, Q))
    widths = torch.where(above[..., :-1] <= 0, 1e35, Q[..., 1:] - Q[..., :-1])
    return Q.to(like.dtype), widths.to(like.dtype)


class _Masses(torch.autograd.Function):  # type: ignore[misc]
    """Autograd function that computes A (B, n, n), the probability of each bin for each document.

    There is one bin for each rank. A[b, j, k] is the probability of bin k under the distribution of document
    j, which is of a location-scale family. theta (B, n, 2) holds the location and the logarithm of the scale
    of each distribution. The edges and widths of the bins come from `_edges`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(theta: Tensor, edges: Tensor, widths: Tensor, family: str) -> Tensor:
        z = _standardized(theta, edges, family)
        lower, upper = z[..., :-1], z[..., 1:]
        width = in_place(widths.unsqueeze(-2) * (-theta[..., 1:]).exp(), "clamp", 0.0, 1e4)
        if family == "logit-logistic":
            # sigmoid(z) - sigmoid(y) = sigmoid(z) sigmoid(-y) (1 - exp(y - z)), without cancellation
            A = in_place(in_place(in_place(width, "neg"), "expm1"), "neg")
            return in_place(in_place(A, "mul", upper.sigmoid()), "mul", in_place(-lower, "sigmoid"))
        # Differences of F below the median, and of S = 1 - F above it, keep the digits of the tails.
        F, S = _normal_cdf(z), _normal_cdf(-z)
        A = torch.where(F[..., :-1] > 0.5, S[..., :-1] - S[..., 1:], F[..., 1:] - F[..., :-1])
        # In a narrow bin, a difference of distribution functions loses digits. There, integrate the density
        # by Gauss-Legendre quadrature, which does not.
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
            density = in_place(in_place(-z, "sigmoid"), "mul", z.sigmoid())
        # an inner edge is the upper end of one bin and the lower end of the next
        z_bar = in_place(A_bar[..., :-1] - A_bar[..., 1:], "mul", density)
        mu_bar = -z_bar.sum(-1) * (-theta[..., 1]).exp()
        return torch.stack([mu_bar, -in_place(z_bar, "mul", z).sum(-1)], -1), None, None, None


def _standardized(theta: Tensor, edges: Tensor, family: str) -> Tensor:
    """Return the edges of the bins, standardized for each document j: z[b, j, k] = (edge_k - mu_j) / s_j.

    mu_j and s_j are the location and scale of the document's distribution; theta_j = (mu_j, ln s_j). z is
    clamped to a range beyond which the tail probability and the density are 0 in floating point.
    """
    limit = 800.0 if family == "logit-logistic" else 40.0
    z = in_place(edges.unsqueeze(-2) - theta[..., :1], "mul", (-theta[..., 1:]).exp())
    return in_place(z, "clamp", -limit, limit)


def _with_shared_scale(scores: Tensor, mask: Tensor | None, measure: PartitionedMeasure) -> Tensor:
    """Return the two parameters of each document, (B, n, 2), from scores (B, n) and the measure's scale."""
    if mask is None:
        x = scores - scores.mean(-1, keepdim=True)
    else:  # padding may hold any score, including inf and NaN
        scores = torch.where(mask, scores, 0)
        mean = scores.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
        x = torch.where(mask, scores - mean, 0)
    log_sigma = math.log(measure.sigma or 1.0)
    if measure.family == "beta":
        total = math.log(4) - 2 * log_sigma
        log = torch.nn.functional.logsigmoid
        return torch.stack([total + log(-x), total + log(x)], -1)
    return torch.stack([-x, torch.full_like(x, log_sigma)], -1)


def _normal_density(z: Tensor) -> Tensor:
    return in_place(in_place(in_place(z * z, "mul", -0.5), "exp"), "div", math.sqrt(2 * math.pi))


def _normal_cdf(z: Tensor) -> Tensor:
    return in_place(in_place(z / -math.sqrt(2), "erfc"), "div", 2)


def _beta_masses(theta: Tensor, mask: Tensor | None) -> Tensor:
    """Return the pre-Sinkhorn matrices A, of shape (B, n, n), of the beta distribution.

    Native code computes them, since torch cannot differentiate the distribution function with respect to the
    parameters of the beta distribution. Raises a NotImplementedError if theta is not on the CPU, and in
    torch.compile and forward-mode differentiation.
    """
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
            _native.project(x, offsets, None, np.eye(n), _BETA, n_threads=1, out=masses)
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
    """Autograd function for the reverse pass of `_BetaMasses`, which computes A from theta.

    Takes A_bar, the gradient with respect to A, and returns the gradient with respect to theta. The
    result equals the gradient of an expected gain in which every document has the gain 1, and the discounts
    of document j are row j of A_bar.
    """

    @staticmethod
    def forward(theta: Tensor, mask: Tensor, A_bar: Tensor) -> Tensor:
        x, offsets, rows = _present(theta, mask)
        theta_bar = torch.zeros(mask.numel(), 2, dtype=torch.float64)
        if len(rows):
            D = A_bar.reshape(mask.numel(), -1)[rows].double().numpy()
            per_query, gradient = np.empty(len(offsets) - 1), np.empty_like(x)
            classes = np.arange(len(x), dtype=np.int32)
            _native.expected_gain(
                x,
                offsets=offsets,
                rows=None,
                gains=NativeGains(
                    gains=np.ones(len(x)), exponential=False, classes=classes, discounts=D, normalize=False
                ),
                settings=_BETA,
                n_threads=1,
                per_query=per_query,
                gradient=gradient,
            )
            # the native code returns the gradient of the mean over the queries, not of the sum
            theta_bar[rows] = torch.from_numpy(gradient) * len(per_query)
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


def _present(theta: Tensor, mask: Tensor) -> tuple[Floats, Integers, Tensor]:
    """Remove the padding from theta; return three arrays.

    These are theta without padding, (N, 2); the offsets of the nonempty queries in it; and the index of each
    of its N rows in the padded batch, flattened.
    """
    rows = mask.reshape(-1).nonzero().squeeze(-1)
    sizes = mask.reshape(-1, mask.shape[-1]).sum(-1)
    offsets = torch.nn.functional.pad(sizes[sizes > 0].cumsum(0), (1, 0))
    return theta.reshape(-1, 2)[rows].double().numpy(), offsets.numpy(), rows


def _batched(info: Any, axes: tuple[int | None, ...], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the inputs with the vmap axis moved to the front, or added there if an input has none."""
    return [
        x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
        for x, axis in zip(inputs, axes, strict=True)
    ]
