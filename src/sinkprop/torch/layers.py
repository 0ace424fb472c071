"""Differentiable layers around Sinkhorn normalization, for models of other people's making.

Leading axes are batches. Everything is float32 or float64, as the input is; half precision is computed in
float32. A single ranking from a doubly-stochastic matrix is `sinkprop.choose_permutation`'s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkprop.arguments import half_steps, whole
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.torch import dense
from sinkprop.torch.batches import layout_of

__all__ = ["doubly_stochastic", "expected_ranks", "gumbel_sinkhorn", "partitioned", "sinkhorn", "top_k"]


def sinkhorn(A: Tensor, n_iter: float = 5, *, epsilon: float = 0.0, log: bool = False) -> Tensor:
    """Z^n_iter(A + epsilon), columns first, then rows, of each square matrix in A (..., n, n)."""
    log_A = A if log else A.log()
    if epsilon:
        log_A = torch.logaddexp(log_A, torch.full_like(log_A, epsilon).log())
    for t in range(half_steps(n_iter)):
        log_A = log_A.log_softmax(-1 if t % 2 else -2)
    return log_A.exp()


def gumbel_sinkhorn(
    log_A: Tensor,
    *,
    tau: float = 1.0,
    noise: float = 1.0,
    n_samples: int | None = None,
    n_iter: float = 20,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Near-permutations at random: Z^n_iter(exp((log_A + noise * Gumbel) / tau)), (n_samples, ..., n, n)."""
    shape = log_A.shape if n_samples is None else (n_samples, *log_A.shape)
    G = _gumbel(log_A.expand(shape), generator)
    return sinkhorn((log_A + noise * G) / tau, n_iter, log=True)


def doubly_stochastic(
    scores: Tensor,
    *,
    mask: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: float = 5,
    epsilon: float = 1e-6,
    gumbel: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Pi[..., j, k - 1], the probability that document j, in the input's order, is at rank k: (..., n, n)."""
    relaxation = _as_relaxation(relaxation)
    if gumbel:
        scores = scores + gumbel * _gumbel(scores, generator)
    end = scores.ndim - (relaxation.width > 1)
    shape = scores.shape[:end]
    x = scores.reshape(-1, *scores.shape[end - 1 :])
    m = None if mask is None else mask.reshape(-1, shape[-1])
    identity = torch.eye(shape[-1], dtype=x.dtype, device=x.device)
    return dense.project(x, identity, m, relaxation, half_steps(n_iter), epsilon).reshape(*shape, shape[-1])


def partitioned(theta: Tensor, family: str = "logit-logistic", *, mask: Tensor | None = None) -> Tensor:
    """The pre-Sinkhorn matrix A[..., j, k - 1] = F(k/n; theta_j) - F((k-1)/n; theta_j): (..., n, n)."""
    shape = theta.shape[:-1]
    x = theta.reshape(-1, *theta.shape[-2:])
    m = None if mask is None else mask.reshape(-1, shape[-1])
    A, rows, columns, _ = dense.pre_sinkhorn(x, m, PartitionedMeasure(family))
    if rows is not None and columns is not None:
        A = torch.where(rows.unsqueeze(-1) & columns.unsqueeze(-2), A, 0)
    return A.reshape(*shape, shape[-1])


def expected_ranks(
    scores: Tensor,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: float = 5,
    epsilon: float = 1e-6,
) -> Tensor:
    """Expected rank of each document in its query, sum_k k Pi[j, k], 1 for the top; 0 at padding."""
    return _projected(
        scores, lambda n: torch.arange(1.0, n + 1), mask, offsets, qid, relaxation, n_iter, epsilon
    )


def top_k(
    scores: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: float = 5,
    epsilon: float = 1e-6,
) -> Tensor:
    """Probability of each document to be among the first k of its query; 0 at padding."""
    k = whole("k", k, 1)
    return _projected(
        scores, lambda n: (torch.arange(n) < k).double(), mask, offsets, qid, relaxation, n_iter, epsilon
    )


def _projected(scores, column, mask, offsets, qid, relaxation, n_iter, epsilon):
    relaxation = _as_relaxation(relaxation)
    layout = layout_of(scores, width=relaxation.width, mask=mask, offsets=offsets, qid=qid)
    x = layout.pad(scores)
    d = column(x.shape[1]).to(x)
    E = dense.project(x, d[None], layout.padded_mask(), relaxation, half_steps(n_iter), epsilon)
    return layout.unpad(E.squeeze(-1))


def _as_relaxation(given: str | Relaxation) -> Relaxation:
    if isinstance(given, Relaxation):
        return given
    if given in ("gaussian", "laplace"):
        return SmoothedIndicator(kernel=given)
    return PartitionedMeasure(given)


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    exponential = torch.empty_like(like, memory_format=torch.contiguous_format).exponential_(
        generator=generator
    )
    return -exponential.clamp(min=torch.finfo(like.dtype).tiny).log()
