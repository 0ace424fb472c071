"""The smoothed indicator in linear time by torch's operations, on any device and where values are hidden.

`objective/sweeps.py` has the mathematics. The autograd function of this module keeps the scaling vectors, a
few numbers per document, and recomputes the tables of the kernel in the reverse pass. It is differentiable
again: then the scaling vectors are recomputed, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sinkprop.objective import sweeps
from sinkprop.objective.normalization import warn_unconverged
from sinkprop.objective.relaxations import SmoothedIndicator
from sinkprop.torch.losses.limit import symmetric_limit
from sinkprop.torch.losses.modes import call, forward_mode, full_precision, hidden
from sinkprop.torch.losses.pre_sinkhorn import in_score_order, sigma_within

__all__ = ["expected"]


def expected(
    scores: Tensor,
    discounts: Tensor,
    attributes: Tensor | None,
    mask: Tensor | None,
    relaxation: SmoothedIndicator,
    half_steps: int,
    epsilon: float,
    tol: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return what is expected for each document and at each rank, in linear time and memory.

    E[b, j, m] = sum_k Pi_b[j, k] discounts[m, k], (B, n, M), with documents in the order of the input, and
    R[b, c, k] = sum_j Pi_b[j, k] attributes[b, j, c], (B, C, n). Both are 0 at padding.

    scores      (B, n), larger is better
    discounts   (M, n) numbers of the ranks
    attributes  (B, n, C) numbers of the documents, or None if C is 0
    mask        (B, n) True for a document; None if there is no padding
    tol         as in `expectations.expected_gain`

    Differentiable in scores, discounts and attributes.
    """
    y, rows, order = in_score_order(scores, mask)
    B, n = y.shape
    kernel = sweeps.smoothing(
        relaxation.kernel, sigma_within(relaxation, y.dtype), epsilon, exact=y.dtype is torch.float64
    )
    queries = torch.arange(B, device=y.device)[:, None].expand(B, n)
    if rows is not None:
        queries = torch.where(rows, queries, -1)
    d = discounts.to(y.dtype)[:, None, :].expand(-1, B, n)
    if attributes is None:
        a = y.new_zeros((0, B, n))
    else:
        a = attributes.to(y.dtype).gather(1, order[..., None].expand_as(attributes))
        if rows is not None:  # padding may hold any attribute, including NaN
            a = torch.where(rows[..., None], a, 0)
        a = a.permute(2, 0, 1)
    places = [_lengthened(x.reshape(*x.shape[:-2], B * n), kernel.block) for x in (y, d, a)]
    ids = _lengthened(queries.reshape(-1), kernel.block, -1)
    E, R, _ = call(_Statistics, places[0], ids, *places[1:], kernel, half_steps, tol, n)
    E, R = (x[:, : B * n].reshape(-1, B, n) for x in (E, R))
    E = torch.zeros_like(E).scatter(-1, order.expand_as(E), E)
    return E.permute(1, 2, 0), R.permute(1, 0, 2)


def _lengthened(x: Tensor, block: int, value: float = 0) -> Tensor:
    """Lengthen the last axis of x to a multiple of the block size."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % block), value=value)


class _Statistics(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Autograd function from scores (N,), d (M, N) and a (C, N), by place, to E (M, N) and R (C, N).

    It also returns the scaling vectors of all half steps, (T + 1, N), or the one vector of the limit.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        y: Tensor,
        queries: Tensor,
        d: Tensor,
        a: Tensor,
        kernel: sweeps.Kernel,
        half_steps: int,
        tol: float,
        n: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with full_precision(y):
            table = sweeps.tables(torch, y, queries, kernel, n)
            scaled = _scaled(table, kernel, half_steps, tol, n)
            E, R = sweeps.statistics(torch, table, scaled, d, a, kernel)
        return E, R, torch.cat(scaled.q)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        y, queries, d, a, *ctx.settings = inputs
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(y, queries, d, a, output[2])

    @staticmethod
    def backward(ctx: Any, E_bar: Tensor, R_bar: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        y, queries, d, a, saved = ctx.saved_tensors
        kernel, half_steps, tol, n = ctx.settings
        with full_precision(y):
            table = sweeps.tables(torch, y, queries, kernel, n)
            if torch.is_grad_enabled():  # the saved vectors are detached from the scores
                scaled = _scaled(table, kernel, half_steps, tol, n)
            elif tol:
                scaled = sweeps.Scalings([saved], saved, saved)
            else:
                scaled = sweeps.Scalings.of_steps(list(saved.split(1)))
            reverse = sweeps.limit_statistics_rev if tol else sweeps.statistics_rev
            y_bar, d_bar, a_bar = reverse(torch, table, scaled, d, a, E_bar, R_bar, kernel)
        return y_bar, None, d_bar, a_bar, None, None, None, None


def _scaled(
    table: sweeps.Tables, kernel: sweeps.Kernel, half_steps: int, tol: float, n: int
) -> sweeps.Scalings:
    """Return the scalings of queries of n places each: after `half_steps`, or the limit."""
    if not tol:
        return sweeps.scalings(torch, table, kernel, half_steps)
    y, present = table.y, table.queries.reshape(1, -1) >= 0
    tol = max(tol, 50 * torch.finfo(y.dtype).eps)
    x, residual = symmetric_limit(
        lambda x: sweeps.product(torch, table, x, kernel), present, y.dtype, tol, half_steps
    )
    if not (hidden(y) or forward_mode()):
        by_query = residual[0, : y.numel() // n * n].reshape(-1, n)
        warn_unconverged(by_query.amax(-1).cpu().numpy(), tol, stacklevel=4)
    return sweeps.Scalings([x], x, x)
