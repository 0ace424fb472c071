"""Differentiable layers around Sinkhorn normalization, for use in any PyTorch model.

Leading axes are batch axes. Results have the dtype of the input, float32 or float64; half-precision input
gives float32. Autocast does not change that. To get one ranking from a doubly-stochastic matrix, call
`sinkprop.choose_permutation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sinkprop import _native
from sinkprop.common.arguments import number, threads, whole
from sinkprop.common.types import Reals
from sinkprop.objective.native_terms import NativeGains, NativeSettings, native_settings
from sinkprop.objective.normalization import Iterations, rows_sum_to_one, warn_unconverged
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, as_relaxation
from sinkprop.torch.losses import dense, expectations, pre_sinkhorn
from sinkprop.torch.losses.batches import Layout, flat_values, layout_of
from sinkprop.torch.losses.checks import check_scores, floating
from sinkprop.torch.losses.limit import limit_scalings
from sinkprop.torch.losses.log_sinkhorn import (
    LogBeginning,
    LogNormalization,
    WideNormalization,
    first_factors,
    within_range,
)
from sinkprop.torch.losses.modes import call, hidden
from sinkprop.torch.losses.native import (
    Backend,
    as_array,
    as_real_array,
    check_backend,
    native_threads,
    takes_native,
)

__all__ = ["doubly_stochastic", "expected_ranks", "gumbel_sinkhorn", "partitioned", "sinkhorn", "top_k"]


def sinkhorn(A: Tensor, n_iter: Iterations = 5, *, epsilon: float = 0.0, log: bool = False) -> Tensor:
    """Incomplete Sinkhorn normalization: `n_iter` iterations on each matrix in ``A + epsilon``.

    Parameters
    ----------
    A : Tensor of shape (..., n, n)
        Finite entries, not below 0. Unless `epsilon` is above 0, no row or column may be all zeros. With
        ``log=True``, logarithms of the entries.
    n_iter : float, "converged" or Converged, default 5
        Number of iterations, each of which normalizes the columns, then the rows. An additional half
        iteration, as in 5.5, normalizes the columns once more. 0 gives ``A + epsilon``. "converged" gives the
        limit, in which all rows and columns sum to 1, and its gradient; see `sinkprop.Converged`.
    epsilon : float, default 0.0
        Added to every entry before the first iteration. Must be 0 with ``log=True``.
    log : bool, default False
        Whether `A` holds logarithms, which may be of any magnitude, with -inf for an entry of 0.

    Returns
    -------
    Tensor of shape (..., n, n)
        The normalized matrices. Unless `n_iter` is 0, their rows sum to 1; with a half iteration at the end,
        their columns do.

    Notes
    -----
    If the entries differ too much in magnitude for plain products, the function switches to logarithms. It
    cannot do so under torch.compile and torch.func, which hide the values. There, pass the logarithms of the
    entries and ``log=True``.
    The autograd graph keeps A and 2 n_iter + 2 vectors of length n.

    Examples
    --------
    >>> sinkhorn(torch.tensor([[1.0, 3.0], [1.0, 1.0]]), n_iter=1)  # columns: [[1/2, 3/4], [1/2, 1/4]]
    tensor([[0.4000, 0.6000],
            [0.6667, 0.3333]])
    """
    A = floating("A", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or not A.shape[-1]:
        raise ValueError(f"A must hold square matrices, (..., n, n), n at least 1; got {tuple(A.shape)}.")
    settings = native_settings(as_relaxation("gaussian"), n_iter, epsilon)
    T, epsilon = 2 if settings.tol else settings.half_steps, settings.epsilon
    if log and epsilon:
        raise ValueError(f"epsilon goes with log=False; got epsilon={epsilon} with log=True.")
    matrices = A.reshape(-1, *A.shape[-2:])
    seen = not hidden(A)
    if seen:
        _check_matrices(matrices.detach(), T, epsilon, log)
    if settings.tol:
        return _to_limit(matrices, settings, log).reshape(A.shape)
    if log and seen and T > 2:
        Pi, _, q = call(LogBeginning, matrices, T)
        if not within_range(q):
            Pi, _ = call(LogNormalization, matrices, T)
    elif log:
        Pi, _ = call(LogNormalization, matrices, T)
    else:
        Pi, q = call(dense.Normalization, matrices, None, None, T, epsilon, False)
        if seen and T and not within_range(q, matrices.detach()):
            Pi, _ = WideNormalization.apply(matrices, T, epsilon)
    return Pi.reshape(A.shape)


def _to_limit(matrices: Tensor, settings: NativeSettings, log: bool) -> Tensor:
    """Return the limit of the Sinkhorn iterations for matrices A (B, n, n), or for their logarithms.

    The limit does not change if rows or columns of A are multiplied by constants. So A is first multiplied by
    those of one iteration, by logarithms, which makes its entries at most 1.
    """
    A = matrices + settings.epsilon if settings.epsilon else matrices
    log_factors = first_factors(A.detach() if log else A.detach().log())
    K = (A + log_factors).exp() if log else A * log_factors.exp()
    u, v = limit_scalings(K, None, None, 0.0, False, settings.tol, settings.half_steps)
    return u.mT * v * K


def gumbel_sinkhorn(
    log_A: Tensor,
    *,
    tau: float = 1.0,
    noise: float = 1.0,
    n_samples: int | None = None,
    n_iter: Iterations = 20,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Random matrices close to permutation matrices: `sinkhorn` of ``exp((log_A + noise * G) / tau)``.

    G is standard Gumbel noise, one independent number per entry. Gradients flow to `log_A` through each
    sample.

    Parameters
    ----------
    log_A : Tensor of shape (..., n, n)
        Any real numbers; larger where row j fits column k better.
    tau : float, default 1.0
        Temperature, above 0. As it goes to 0, a sample becomes the permutation matrix of the best assignment
        under ``log_A + noise * G``, a draw from the Gumbel-Matching distribution (Mena et al., ICLR 2018).
    noise : float, default 1.0
        Scale of the noise, not below 0. With 0, the normalization is deterministic.
    n_samples : int, optional
        Number of samples, on a new first axis. By default, one sample without that axis.
    n_iter : float, "converged" or Converged, default 20
        Number of Sinkhorn iterations, or their limit; see `sinkhorn`.
    generator : torch.Generator, optional
        Source of the random numbers. By default, torch's global generator.

    Returns
    -------
    Tensor of shape (..., n, n) or (n_samples, ..., n, n)
        The samples.

    Examples
    --------
    >>> samples = gumbel_sinkhorn(torch.zeros(3, 3), tau=0.1, n_samples=100, n_iter=50)
    >>> samples.shape, bool((samples.sum(-1) - 1).abs().max() < 1e-5)
    (torch.Size([100, 3, 3]), True)
    """
    log_A = floating("log_A", log_A)
    tau, noise = number("tau", tau, above=True), number("noise", noise)
    shape = log_A.shape if n_samples is None else (whole("n_samples", n_samples, 1), *log_A.shape)
    noisy = log_A + noise * _gumbel(shape, log_A, generator) if noise else log_A.expand(shape)
    return sinkhorn(noisy / tau, n_iter, log=True)


def doubly_stochastic(
    scores: Tensor,
    *,
    mask: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    gumbel: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Matrices Pi of rank probabilities: Pi[..., j, k - 1] is the probability that document j is at rank k.

    Parameters
    ----------
    scores : Tensor of shape (..., n), or (..., n, 2) for a partitioned measure
        Scores; larger is better. If the relaxation is a `PartitionedMeasure`, a last axis of length 2 holds
        the two parameters of each document.
    mask : Tensor of bool of shape (..., n), optional
        True for a document, False for padding. By default there is no padding.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize: an object or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit; see `sinkhorn`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    gumbel : float, default 0.0
        Scale of Gumbel noise added to the scores, one draw per document. The order of the noisy scores is a
        draw from the Plackett-Luce model with the weights ``exp(scores / gumbel)``. As the width sigma of the
        relaxation goes to 0, Pi becomes the permutation matrix of that order. Must be 0 for a partitioned
        measure, whose two scores per document already describe how uncertain its rank is.
    generator : torch.Generator, optional
        Source of the random numbers. By default, torch's global generator.

    Returns
    -------
    Tensor of shape (..., n, n)
        One row per document, in the order of the input. Rows sum to 1 and columns nearly; after a half
        iteration at the end, columns sum to 1 and rows nearly. Rows of padding and columns past the last
        rank are 0.

    Notes
    -----
    The autograd graph keeps one n x n matrix per query and the scaling vectors.

    Examples
    --------
    >>> from sinkprop import SmoothedIndicator
    >>> doubly_stochastic(torch.tensor([0.2, 1.5, 0.3]), relaxation=SmoothedIndicator(0.5))
    tensor([[0.0266, 0.4787, 0.4947],
            [0.9463, 0.0333, 0.0204],
            [0.0430, 0.4802, 0.4768]])
    """
    relaxation = as_relaxation(relaxation)
    settings = native_settings(relaxation, n_iter, epsilon)
    x, m, shape = _padded("scores", scores, mask, relaxation.width)
    if number("gumbel", gumbel):
        if isinstance(relaxation, PartitionedMeasure):
            raise ValueError(f"gumbel goes with a SmoothedIndicator; got {relaxation}.")
        x = x + gumbel * _gumbel(x.shape, x, generator)
    Pi = dense.normalized(x, m, relaxation, settings.half_steps, settings.epsilon, settings.tol)
    return Pi.reshape(*shape, shape[-1])


def partitioned(
    theta: Tensor,
    family: Literal["logit-logistic", "probit", "beta"] = "logit-logistic",
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """Pre-Sinkhorn matrix of a partitioned measure, in which each document has its own distribution.

    The distribution is on (0, 1), which is cut into n equal bins, one per rank. With F the distribution
    function of the family and n the number of documents of the query::

        A[..., j, k - 1] = F(k/n; theta_j) - F((k-1)/n; theta_j)

    Parameters
    ----------
    theta : Tensor of shape (..., n, 2)
        Two parameters per document; `PartitionedMeasure` says what they mean in each family.
    family : {"logit-logistic", "probit", "beta"}, default "logit-logistic"
        Family of the distributions.
    mask : Tensor of bool of shape (..., n), optional
        True for a document, False for padding. By default there is no padding.

    Returns
    -------
    Tensor of shape (..., n, n)
        Matrices whose rows sum to 1; pass them to `sinkhorn` to normalize the columns too. Rows and columns
        of padding are 0. The autograd graph keeps only theta.

    Examples
    --------
    >>> partitioned(torch.tensor([[0.0, 0.0], [-1.0, 0.0]]))
    tensor([[0.5000, 0.5000],
            [0.7311, 0.2689]])
    """
    measure = PartitionedMeasure(family)
    x, m, shape = _padded("theta", theta, mask, 2)
    A = pre_sinkhorn.partitioned(x, m, measure)
    if m is not None:
        A = torch.where(m.unsqueeze(-1), A, 0)
    return A.reshape(*shape, shape[-1])


def expected_ranks(
    scores: Tensor,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    backend: Backend = "auto",
    n_threads: int | None = None,
) -> Tensor:
    """Expected rank of each document in its query, sum_k k Pi[j, k], where rank 1 is the top.

    Pi[j, k] is the probability that document j has rank k, see `doubly_stochastic`.

    Parameters
    ----------
    scores : Tensor of shape (..., n) or (N,), or nested
        Scores; larger is better. Shape (..., n) with the documents of a query along the last axis;
        (N,) with `offsets` or `qid`; or a nested tensor. If the relaxation is a
        `PartitionedMeasure`, a last axis of length 2 holds the two parameters of each document.
    mask : Tensor of bool of shape (..., n), optional
        True for a document, False for padding. By default there is no padding.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order. Without `offsets` and `qid`, all
        documents of flat scores are one query.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize: an object or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit; see `sinkhorn`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    backend : {"auto", "native", "torch"}, default "auto"
        "native" runs on the CPU and takes linear time and memory for a smoothed indicator. "torch" runs on
        any device and keeps one n x n matrix per query. "auto" uses "native" where possible.
    n_threads : int, optional
        Number of threads of the native backend, see `expected_gain`.

    Returns
    -------
    Tensor of shape (..., n) or (N,)
        Expected ranks, one per document; flat for nested scores. Padding has rank 0.

    Examples
    --------
    >>> from sinkprop import SmoothedIndicator
    >>> expected_ranks(torch.tensor([0.2, 1.5, 0.3]), relaxation=SmoothedIndicator(0.5))
    tensor([2.4681, 1.0741, 2.4337])
    """
    batch, settings = (mask, offsets, qid), (relaxation, (n_iter, epsilon), backend, n_threads)
    return _project_batch(scores, lambda n: torch.arange(1, n + 1, dtype=torch.float64), batch, *settings)


def top_k(
    scores: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    backend: Backend = "auto",
    n_threads: int | None = None,
) -> Tensor:
    """Probability that each document is among the first k of its query, sum_(k' <= k) Pi[j, k'].

    Pi[j, k] is the probability that document j has rank k, see `doubly_stochastic`.

    Parameters
    ----------
    scores : Tensor of shape (..., n) or (N,), or nested
        Scores; larger is better. Shape (..., n) with the documents of a query along the last axis;
        (N,) with `offsets` or `qid`; or a nested tensor. If the relaxation is a
        `PartitionedMeasure`, a last axis of length 2 holds the two parameters of each document.
    k : int
        Number of top ranks, at least 1.
    mask : Tensor of bool of shape (..., n), optional
        True for a document, False for padding. By default there is no padding.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order. Without `offsets` and `qid`, all
        documents of flat scores are one query.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize: an object or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit; see `sinkhorn`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    backend : {"auto", "native", "torch"}, default "auto"
        "native" runs on the CPU and takes linear time and memory for a smoothed indicator. "torch" runs on
        any device and keeps one n x n matrix per query. "auto" uses "native" where possible.
    n_threads : int, optional
        Number of threads of the native backend, see `expected_gain`.

    Returns
    -------
    Tensor of shape (..., n) or (N,)
        Probabilities, one per document; flat for nested scores. Padding has the probability 0.

    Examples
    --------
    >>> from sinkprop import SmoothedIndicator
    >>> top_k(torch.tensor([0.2, 1.5, 0.3]), 1, relaxation=SmoothedIndicator(0.5))
    tensor([0.0266, 0.9463, 0.0430])
    """
    k = whole("k", k, 1)
    batch, settings = (mask, offsets, qid), (relaxation, (n_iter, epsilon), backend, n_threads)
    E = _project_batch(scores, lambda n: (torch.arange(n) < k).double(), batch, *settings)
    # Rounding errors can make a probability negative or larger than 1, and a cross-entropy would fail on it.
    # The clamp changes the value but not the gradient.
    return E + (E.clamp(0, 1 if rows_sum_to_one(n_iter) else None) - E).detach()


def _project_batch(scores: Tensor, column: Any, batch: Any, *settings: Any) -> Tensor:
    """Call `_project`; under torch.compile, call it outside of the compiled graph if the batch is flat.

    Flat batches are padded to the longest query, whose length torch.compile does not know.
    """
    flat = batch[1] is not None or batch[2] is not None or scores.is_nested
    project = _project_eagerly if flat and torch.compiler.is_compiling() else _project
    E: Tensor = project(scores, column, batch, *settings)
    return E


def _project(
    scores: Tensor,
    column: Callable[[int], Tensor],
    batch: tuple[Tensor | None, Tensor | None, Tensor | None],
    relaxation: str | Relaxation,
    normalization: tuple[Iterations, float],
    backend: Backend,
    n_threads: int | None,
) -> Tensor:
    """Compute sum_k Pi[j, k] d_k for each document j.

    Pi[j, k] is the probability that document j is at rank k.

    column         Function of n that returns the numbers d_1, ..., d_n, one per rank.
    batch          The arguments (mask, offsets, qid).
    normalization  The arguments (n_iter, epsilon).
    """
    relaxation = as_relaxation(relaxation)
    settings = native_settings(relaxation, *normalization)
    check_backend(backend)
    scores, (mask, offsets, qid) = floating("scores", scores), batch
    shape, extra = scores.shape, relaxation.width > 1
    if scores.ndim > 2 + extra and not scores.is_nested:
        scores = scores.reshape(-1, *shape[scores.ndim - 1 - extra :])
        if mask is not None and mask.shape == shape[: mask.ndim]:
            mask = mask.reshape(-1, mask.shape[-1])
    layout = layout_of(scores, width=relaxation.width, mask=mask, offsets=offsets, qid=qid)
    nested, scores = scores.is_nested, flat_values(scores)
    if not hidden(scores):
        check_scores(scores, layout)

    def by_torch(x: Tensor) -> Tensor:
        values, parts = [], layout.parts()
        for part in parts:
            padded = part.of(x, layout)
            D = column(padded.shape[1]).to(padded)[None]
            half_steps, epsilon, tol = settings.half_steps, settings.epsilon, settings.tol
            E = expectations.project(padded, D, part.mask, relaxation, half_steps, epsilon, tol)
            values.append(E.squeeze(-1))
        return layout.of_parts(values, parts)

    if takes_native(scores, backend):
        E: Tensor = _NativeProjection.apply(scores, layout, column, settings, n_threads, by_torch)
    else:
        E = by_torch(scores)
    return E if nested else E.reshape(shape[:-1] if extra else shape)


_project_eagerly = torch.compiler.disable(_project)


class _NativeProjection(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Autograd function that computes E_j = sum_k Pi[j, k] d_k from the scores, by the native code.

    Pi[j, k] is the probability that document j is at rank k, and d_k is a given number for rank k. The
    reverse pass gets E_bar, the gradient with respect to E, and returns the gradient of sum_j E_bar_j E_j
    with respect to the scores. This sum is an expected gain: document j has the gain E_bar_j, and rank k has
    the discount d_k.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        layout: Layout,
        column: Callable[[int], Tensor],
        settings: NativeSettings,
        n_threads: int | None,
        by_torch: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.arguments = layout, column, settings, n_threads, by_torch
        groups, _ = layout.groups()
        x = _as_rows(scores, layout)
        E = np.zeros((len(x), 1), x.dtype)  # rows of padding belong to no query and stay 0
        columns = column(groups.longest)[None].numpy()
        n_threads = threads(native_threads(n_threads), len(x))
        residual = np.empty(len(groups.offsets) - 1) if settings.tol else None
        _native.project(
            x,
            offsets=groups.offsets,
            rows=groups.rows,
            columns=columns,
            settings=settings,
            n_threads=n_threads,
            out=E,
            residual=residual,
        )
        if residual is not None:
            warn_unconverged(residual, settings.tol, stacklevel=3)
        return torch.from_numpy(E).reshape(layout.shape)

    @staticmethod
    def backward(ctx: Any, E_bar: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        settings: NativeSettings
        layout, column, settings, n_threads, by_torch = ctx.arguments
        # Use torch's operations in two cases that the native code does not support: if the gradient itself
        # will be differentiated (create_graph=True), and if E_bar is a batch of several gradients
        # (is_grads_batched=True).
        again = torch.is_grad_enabled()
        if again or torch._C._functorch.is_legacy_batchedtensor(E_bar):
            with torch.enable_grad():
                E = by_torch(scores)
            (scores_bar,) = torch.autograd.grad(E, scores, E_bar, create_graph=again)
            return scores_bar, None, None, None, None, None
        groups, _ = layout.groups()
        x = _as_rows(scores, layout)
        per_query, gradient = np.empty(len(groups.offsets) - 1), np.zeros_like(x)
        _native.expected_gain(
            x,
            offsets=groups.offsets,
            rows=groups.rows,
            gains=NativeGains(
                gains=as_array(E_bar).reshape(-1),
                exponential=False,
                classes=None,
                discounts=column(groups.longest)[None].numpy(),
                normalize=False,
            ),
            settings=settings,
            n_threads=threads(native_threads(n_threads), len(x)),
            per_query=per_query,
            gradient=gradient,
            factor=1.0,
        )
        scores_bar = torch.from_numpy(gradient).reshape(scores.shape)
        return scores_bar, None, None, None, None, None


def _as_rows(scores: Tensor, layout: Layout) -> Reals:
    """Return the scores as an array with one row per document or padding entry, in their dtype.

    NaN and infinite numbers are replaced by finite ones. Only padding can hold them, because the scores of
    documents have been checked.
    """
    x = as_real_array(scores)
    if layout.mask is not None:
        x = x.copy()
        np.nan_to_num(x, copy=False)
    return x.reshape(-1) if scores.ndim == len(layout.shape) else x.reshape(-1, scores.shape[-1])


def _padded(
    name: str, scores: Tensor, mask: Tensor | None, width: int
) -> tuple[Tensor, Tensor | None, tuple[int, ...]]:
    """Return the scores as (B, n) or (B, n, 2), the mask as (B, n) or None, and the given shape (..., n).

    Raises a ValueError if the shapes do not fit or the scores are not finite.
    """
    scores = floating(name, scores)
    shape = tuple(scores.shape[:-1] if width > 1 else scores.shape)
    if not shape or 0 in shape or (width > 1 and scores.shape[-1] != width):
        end = f", {width}" if width > 1 else ""
        raise ValueError(
            f"{name} must have the shape (..., n{end}), n at least 1; got {tuple(scores.shape)}."
        )
    if mask is not None and (mask.dtype is not torch.bool or tuple(mask.shape) != shape):
        raise ValueError(
            f"mask must be of dtype bool, True for a document, and of shape {shape}; got {mask.dtype} of "
            f"shape {tuple(mask.shape)}."
        )
    x = scores.reshape(-1, *scores.shape[len(shape) - 1 :])
    m = None if mask is None else mask.to(x.device).reshape(-1, shape[-1])
    if not hidden(x):
        check_scores(x, Layout((len(x), shape[-1]), m))
    return x, m, shape


def _gumbel(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw standard Gumbel noise, as -ln of exponentially distributed numbers."""
    exponential = torch.empty(shape, dtype=like.dtype, device=like.device).exponential_(generator=generator)
    return -exponential.clamp(min=torch.finfo(like.dtype).tiny).log()


def _check_matrices(A: Tensor, T: int, epsilon: float, log: bool) -> None:
    """Raise a ValueError if a matrix cannot be normalized: invalid entries, or a row or column of zeros."""
    low, high = A.amin(), A.amax()  # both are NaN if any entry is NaN
    if not bool((high < math.inf) & ((low >= 0) | log)):
        bad = ~(A.lt(math.inf) if log else A.ge(0) & A.lt(math.inf))
        place = bad.nonzero()[0].tolist()
        wanted = "numbers below infinity, -inf for 0" if log else "finite and not below 0"
        raise ValueError(
            f"A must be {wanted}; matrix {place[0]} has {A[tuple(place)].item()} at {place[1:]}."
        )
    zero = -math.inf if log else 0.0
    if T and not epsilon and bool(low == zero):
        for dim, noun in ((-1, "row"), (-2, "column")):
            empty = A.eq(zero).all(dim=dim)
            if bool(empty.any()):
                matrix, line = empty.nonzero()[0].tolist()
                raise ValueError(
                    f"A must have a positive entry in every row and column; {noun} {line} of matrix {matrix} "
                    "is all zeros, which cannot be normalized. Remove it, or pass epsilon > 0."
                )
