"""The loss: minus the expected gain of a batch of queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sinkprop import _native
from sinkprop.common.types import Floats
from sinkprop.data.checks import as_sample_weight
from sinkprop.objective.expected_gain import grouped_gain
from sinkprop.objective.gains import NDCG, RBP, Gain, Precision, as_gain
from sinkprop.objective.native_terms import NativeSettings, native_settings
from sinkprop.objective.relaxations import Relaxation, as_relaxation
from sinkprop.torch.losses import dense
from sinkprop.torch.losses.batches import Layout, alike, flat_values, layout_of, without_last_axis
from sinkprop.torch.losses.checks import check_labels, check_reduction, check_scores, check_values, floating
from sinkprop.torch.losses.modes import tracing
from sinkprop.torch.losses.native import (
    Backend,
    as_array,
    check_backend,
    native_threads,
    native_values,
    takes_native,
)

__all__ = ["SinkPropLoss", "reduced", "sinkprop_loss"]

Reduction = Literal["mean", "sum", "none"]

_LARGEST = float(np.finfo(np.float64).max)


class SinkPropLoss(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Minus the expected gain, as a module: the call is `sinkprop_loss`, which says what it takes.

    `relaxation` and `gain` may be assigned between steps: training that sharpens sets
    `loss.relaxation = SmoothedIndicator(sigma)`.

    >>> loss = SinkPropLoss("ndcg(discount=log2)@10", "laplace")
    >>> scores = torch.tensor([[0.2, 1.5, 0.3], [1.0, 0.0, 9.0]], requires_grad=True)
    >>> labels = torch.tensor([[2, 0, 1], [1, 0, -1]])  # -1: the second query has two documents
    >>> loss(scores, labels).backward()
    >>> scores.grad.sign().int().tolist()  # a step against it raises what is relevant
    [[-1, 1, -1], [-1, 1, 0]]
    """

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        *,
        n_iter: float = 5,
        epsilon: float = 1e-6,
        reduction: Reduction = "mean",
        padding: float = -1,
        backend: Backend = "auto",
        n_threads: int | None = None,
    ) -> None:
        super().__init__()
        self.gain = as_gain(gain)
        self.relaxation = as_relaxation(relaxation)
        self.n_iter, self.epsilon = n_iter, epsilon
        self.reduction, self.padding = reduction, padding
        self.backend, self.n_threads = backend, n_threads
        native_settings(self.relaxation, n_iter, epsilon)  # what cannot be fails here
        check_reduction(reduction)
        check_backend(backend)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        lengths: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        offsets: Tensor | None = None,
        qid: Tensor | None = None,
        sample_weight: Tensor | None = None,
        query_weight: Tensor | None = None,
    ) -> Tensor:
        return sinkprop_loss(
            scores,
            labels,
            lengths,
            mask=mask,
            offsets=offsets,
            qid=qid,
            gain=self.gain,
            relaxation=self.relaxation,
            n_iter=self.n_iter,
            epsilon=self.epsilon,
            sample_weight=sample_weight,
            query_weight=query_weight,
            reduction=self.reduction,
            padding=self.padding,
            backend=self.backend,
            n_threads=self.n_threads,
        )

    def extra_repr(self) -> str:
        return f"gain={self.gain}, relaxation={self.relaxation}, n_iter={self.n_iter:g}"


def sinkprop_loss(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    gain: str | Gain = "ndcg",
    relaxation: str | Relaxation = "gaussian",
    n_iter: float = 5,
    epsilon: float = 1e-6,
    sample_weight: Tensor | None = None,
    query_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    padding: float = -1,
    backend: Backend = "auto",
    n_threads: int | None = None,
) -> Tensor:
    """Minus the expected gain of a batch of queries, differentiable in the scores.

    scores         (B, n) padded; (N,) flat; or nested. With one axis more, of 2, for a partitioned measure;
                   an axis of 1, as networks end with, is dropped from (B, n, 1), and from (N, 1) with offsets
                   or qid
    labels         relevance, one value a document, not below 0
    lengths        (B,) how many documents each row of a padded batch begins with; or
    mask           (B, n) True for a document. Without either, places whose label is `padding` hold none. What
                   stands there among the scores does not matter
    offsets, qid   of flat scores: (Q + 1,) where each query begins, and the end; or (N,) whole numbers in any
                   order. Without either, all are one query
    sample_weight  like labels; query_weight (Q,), by first appearance for qid: see `expected_gain`
    reduction      "mean" over the queries, by their weights; "sum"; or "none" for (Q,). A row of a padded
                   batch that holds no document is no query: 0 in "none", and not counted in the mean
    backend        "native" runs the kernels of `expected_gain`, on the CPU, in linear time; "torch" is made
                   of torch's operations, on any device, and keeps one n x n matrix a query. "auto" takes the
                   first where it can: the second for other devices, torch.compile and torch.func

    The result is of the scores' dtype, float32 for half precision. A score that is NaN or infinite is a
    ValueError, except where torch.compile or torch.func hide it.

    >>> scores = torch.tensor([0.2, 1.5, 0.3, 1.0, 0.0], requires_grad=True)
    >>> loss = sinkprop_loss(scores, torch.tensor([2.0, 0, 1, 1, 0]), qid=torch.tensor([7, 7, 7, 9, 9]))
    >>> round(loss.item(), 4)
    -0.9261
    """
    if torch.compiler.is_compiling() and (offsets is not None or qid is not None or scores.is_nested):
        # the longest query is a value, on which shapes depend: the graph ends before it and begins anew after
        return _not_compiled(
            scores,
            labels,
            offsets=offsets,
            qid=qid,
            gain=gain,
            relaxation=relaxation,
            n_iter=n_iter,
            epsilon=epsilon,
            sample_weight=sample_weight,
            query_weight=query_weight,
            reduction=reduction,
            backend=backend,
            n_threads=n_threads,
        )
    gain, relaxation = as_gain(gain), as_relaxation(relaxation)
    settings = native_settings(relaxation, n_iter, epsilon)
    check_reduction(reduction)
    scores, labels = floating("scores", scores), torch.as_tensor(labels)
    if relaxation.width == 1:
        scores = without_last_axis(scores, flat=offsets is not None or qid is not None)
    layout = layout_of(
        scores,
        labels,
        width=relaxation.width,
        mask=mask,
        lengths=lengths,
        offsets=offsets,
        qid=qid,
        padding=padding,
    )
    scores, labels = flat_values(scores), flat_values(labels)
    if sample_weight is not None:
        sample_weight = flat_values(torch.as_tensor(sample_weight, device=scores.device))
        if sample_weight.shape != labels.shape:
            raise ValueError(
                f"sample_weight must have one weight a document, {tuple(labels.shape)}; got "
                f"{tuple(sample_weight.shape)}."
            )

    def by_torch(x: Tensor) -> Tensor:
        return _dense_values(x, labels, layout, gain, relaxation, settings[3], epsilon, sample_weight)

    if takes_native(scores, backend):
        values = _native_values(
            scores, labels, layout, gain, relaxation.width, settings, sample_weight, n_threads, by_torch
        )
    else:
        if not tracing():
            check_values(scores, labels, sample_weight, layout)
        values = by_torch(scores)
    return -reduced(values, layout, query_weight, reduction)


_not_compiled = torch.compiler.disable(sinkprop_loss)


def reduced(values: Tensor, layout: Layout, query_weight: Tensor | None, reduction: str) -> Tensor:
    """Values (Q,) of queries as they are, their sum or their mean, by weights where there are any."""
    weight = None
    if query_weight is not None:
        weight = torch.as_tensor(query_weight, device=values.device).to(values.dtype)
        if weight.shape != values.shape:
            raise ValueError(
                f"query_weight must have one weight a query, {tuple(values.shape)}; got "
                f"{tuple(weight.shape)}."
            )
        if not tracing() and not bool((weight.isfinite() & (weight >= 0)).all()):
            raise ValueError(f"query_weight must be finite and not below 0; got {weight.tolist()}.")
        values = values * weight
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    if layout.mask is not None and len(layout.shape) == 2:
        present = layout.mask.any(dim=-1).to(values.dtype)
        weight = present if weight is None else weight * present
    if weight is None:
        return values.mean()
    total = weight.sum()
    if not tracing() and not bool(total > 0):
        raise ValueError("query_weight must have a sum above 0 for the mean.")
    return values.sum() / total


def _native_values(
    scores: Tensor,
    labels: Tensor,
    layout: Layout,
    gain: Gain,
    width: int,
    settings: NativeSettings,
    sample_weight: Tensor | None,
    n_threads: int | None,
    by_torch: Callable[[Tensor], Tensor],
) -> Tensor:
    groups, present = layout.groups()
    documents = None if layout.mask is None else layout.mask.numpy(force=True).reshape(-1)
    y, weight = as_array(labels).reshape(-1), None
    if documents is not None:
        y = np.where(documents, y, 0.0)
    if _native.first_invalid(y, 0.0, _LARGEST) >= 0:
        check_labels(labels, layout)
    if sample_weight is not None:
        weight = as_array(sample_weight).reshape(-1)
        weight = as_sample_weight(weight if documents is None else np.where(documents, weight, 0.0), len(y))

    def evaluate(x: Floats) -> tuple[Floats, Floats]:
        x = x.reshape(-1) if width == 1 else x.reshape(-1, width)
        if _native.first_invalid(x, -_LARGEST, _LARGEST) >= 0:
            check_scores(scores, layout)  # what remains stands where there is no document
            x = np.nan_to_num(x)
        values, gradient = grouped_gain(
            x, y, groups, gain, settings, weight, native_threads(n_threads), power=width
        )
        gradient *= len(values)
        if present is not None:
            values, of_present = np.zeros(len(present)), values
            values[present] = of_present
        return values, gradient

    return native_values(scores, layout, evaluate, by_torch)


def _dense_values(
    scores: Tensor,
    labels: Tensor,
    layout: Layout,
    gain: Gain,
    relaxation: Relaxation,
    half_steps: int,
    epsilon: float,
    sample_weight: Tensor | None,
) -> Tensor:
    x, mask = layout.pad(scores), layout.padded_mask()
    y = layout.pad(labels).to(x.dtype)
    if mask is not None:
        y = torch.where(mask, y, 0)
    weight = None if sample_weight is None else layout.pad(sample_weight).to(x.dtype)
    gains, discounts = _gain_tables(gain, y, mask, weight)
    if mask is None or tracing():
        return dense.expected_gain(x, gains, discounts, mask, relaxation, half_steps, epsilon)
    parts = list(alike(mask))
    values = torch.cat(
        [
            dense.expected_gain(
                x[q, :n], gains[q, :n], discounts[:, :n], mask[q, :n], relaxation, half_steps, epsilon
            )
            for q, n in parts
        ]
    )
    return values[torch.cat([q for q, _ in parts]).argsort()]


def _gain_tables(
    gain: Gain, labels: Tensor, mask: Tensor | None, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What each document adds under each discount, (B, n, U), divided by the best ranking's, and (U, n)."""
    n = labels.shape[-1]
    if gain.separable:
        discounts = _discounts(gain, torch.arange(1, n + 1, device=labels.device).to(labels.dtype))[None]
        gains = _gains(gain, labels)[..., None]
    else:
        _check_own_functions_run()
        classes, table = gain.class_discounts(labels.reshape(-1).numpy(force=True), n)
        discounts = torch.from_numpy(table).to(labels)
        gains = nn.functional.one_hot(torch.from_numpy(classes).to(labels.device).long(), len(table))
        gains = gains.reshape(*labels.shape, len(table)).to(labels.dtype)
    if weight is not None:
        gains = gains * weight[..., None]
    if mask is not None:
        gains = torch.where(mask[..., None], gains, 0)
    if gain.normalized:
        # not a product of matrices, which autocast would round
        best = (gains[..., 0].sort(dim=-1, descending=True).values * discounts[0]).sum(dim=-1)
        gains = gains / torch.where(best > 0, best, 1)[:, None, None]
        if not tracing() and not bool(best.isfinite().all()):
            raise ValueError(
                f"labels are too large for {gain} in {labels.dtype}: the largest is {labels.max().item():g}. "
                "Give float64 scores, or gain='linear'."
            )
    return gains, discounts


def _gains(gain: Gain, labels: Tensor) -> Tensor:
    """G of the labels, in torch's operations for the gains that the library has."""
    if isinstance(gain, NDCG):
        return labels.exp2() - 1 if gain.gain == "exponential" else labels
    if isinstance(gain, Precision):
        return (labels >= gain.threshold).to(labels.dtype)
    if isinstance(gain, RBP):
        return labels
    _check_own_functions_run()
    values = gain.gains(labels.reshape(-1).numpy(force=True))
    return torch.from_numpy(values).to(labels).reshape(labels.shape)


def _discounts(gain: Gain, ranks: Tensor) -> Tensor:
    """D of the ranks 1, ..., n, whose number may be unknown to torch.compile; as `_gains`."""
    if isinstance(gain, NDCG):
        D = 1 / torch.log2(ranks.clamp(min=2) if gain.discount == "letor" else ranks + 1)
        return D if gain.k is None else torch.where(ranks <= gain.k, D, 0)
    if isinstance(gain, Precision):
        return (ranks <= gain.k).to(ranks.dtype) / gain.k
    if isinstance(gain, RBP):
        return (1 - gain.p) * gain.p ** (ranks - 1)
    _check_own_functions_run()
    return torch.from_numpy(gain.discounts(len(ranks)).copy()).to(ranks)


def _check_own_functions_run() -> None:
    if tracing():
        raise NotImplementedError(
            "a gain of one's own is a NumPy function, which torch.compile and torch.func cannot run; call "
            "the loss outside of them."
        )
