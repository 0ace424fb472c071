"""The loss: minus the expected gain of a batch of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from sinkprop import _native
from sinkprop.common.types import Floats, Mask, Reals
from sinkprop.data.checks import as_sample_weight
from sinkprop.data.queries import Groups
from sinkprop.objective.expected_gain import grouped_gain
from sinkprop.objective.gains import Gain, RankLinearGain, as_gain, bound
from sinkprop.objective.native_terms import NativeSettings, native_settings
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import Relaxation, as_relaxation
from sinkprop.torch.losses import expectations
from sinkprop.torch.losses.batches import (
    Layout,
    Part,
    as_tensor,
    flat_values,
    in_batch_order,
    layout_of,
    without_last_axis,
)
from sinkprop.torch.losses.checks import check_labels, check_reduction, check_scores, check_values, floating
from sinkprop.torch.losses.modes import hidden
from sinkprop.torch.losses.native import (
    Backend,
    as_array,
    as_real_array,
    check_backend,
    native_threads,
    native_values,
    takes_native,
)
from sinkprop.torch.losses.start import SMOOTHING, relative_scores, start_gradient
from sinkprop.torch.losses.terms import (
    batch_term,
    check_traceable,
    gain_of_statistics,
    label_gains,
    rank_discounts,
    traced_terms,
)

__all__ = ["LossSettings", "Reduction", "SinkPropLoss", "batch_loss", "reduced", "sinkprop_loss"]

Reduction = Literal["mean", "sum", "none"]

_LARGEST = float(np.finfo(np.float64).max)


@final
@dataclass(frozen=True)
class LossSettings:
    """The arguments of `sinkprop_loss` that are not tensors, checked on construction.

    gain, relaxation  A `Gain` and a `Relaxation`. Names are accepted and replaced by the objects they name.
                      A discount of NDCG that the gain leaves open is "log2". A gain that holds an array is a
                      ValueError, because the array could not be matched to the documents of a batch. The
                      relaxation None stands for the default, see `losses/start.py`.
    smoothing         The relaxation, or the one that is applied to relative scores if it is None.
    native            Smoothing and Sinkhorn normalization in the form that the kernels take.
    """

    gain: Gain
    relaxation: Relaxation | None
    n_iter: Iterations = 5
    epsilon: float = 1e-6
    reduction: Reduction = "mean"
    padding: float = -1
    backend: Backend = "auto"
    n_threads: int | None = None
    smoothing: Relaxation = field(init=False)
    native: NativeSettings = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gain", as_gain(self.gain, "log2"))
        _check_unbound(self.gain)
        if self.relaxation is not None:
            object.__setattr__(self, "relaxation", as_relaxation(self.relaxation))
        object.__setattr__(self, "smoothing", self.relaxation or SMOOTHING)
        object.__setattr__(self, "native", native_settings(self.smoothing, self.n_iter, self.epsilon))
        check_reduction(self.reduction)
        check_backend(self.backend)


def _check_unbound(gain: Gain) -> None:
    arrays = [] if isinstance(gain, RankLinearGain) else bound(gain)[1]
    if arrays:
        raise ValueError(
            f"gain: a loss cannot match an array to the documents of a batch; {gain} holds one "
            f"({arrays[0].name}). Pass the array as further columns of the labels, (B, n, L) or (N, L), and "
            "the number of the column, from 0, to the gain."
        )


def _settings(*given: Any) -> LossSettings:
    """Return checked settings from a user's arguments, in which gain and relaxation may be names."""
    return LossSettings(*given)


def _setting(name: str) -> Any:
    """Property of `SinkPropLoss` for the setting `name`; assigning to it checks the value."""

    def assign(loss: SinkPropLoss, value: Any) -> None:
        loss.settings = replace(loss.settings, **{name: value})

    return property(lambda loss: getattr(loss.settings, name), assign)


class SinkPropLoss(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Minus the expected gain of a batch of queries, as a module.

    The settings are checked once, on construction. A call takes only the tensors of `sinkprop_loss`. You can
    assign a setting between steps: to reduce the smoothing during training, set
    ``loss.relaxation = SmoothedIndicator(sigma)``.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        The metric whose expected value is maximized: an object, or its name, such as "ndcg@10". If it does
        not state the discount of NDCG, the discount of rank k is 1 / log2(k + 1).
    relaxation : str or Relaxation, optional
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize: an object or its name,
        such as "gaussian" for ``SmoothedIndicator(1.0)``. By default, a Gaussian whose width is a quarter of
        the standard deviation of the query's scores, but at most 1, with a start for networks, see Notes.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, each of which normalizes the columns, then the rows. An additional half
        iteration, as in 5.5, normalizes the columns once more. "converged" takes their limit and its
        gradient; see `sinkprop.Converged`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    reduction : {"mean", "sum", "none"}, default "mean"
        Weighted mean or weighted sum over the queries, or one weighted value per query, see `sinkprop_loss`.
    padding : float, default -1
        Label that marks padding if neither `lengths` nor `mask` is given.
    backend : {"auto", "native", "torch"}, default "auto"
        Native kernels on the CPU, or torch's operations on any device, see `sinkprop_loss`.
    n_threads : int, optional
        Number of threads of the native backend, see `expected_gain`.

    Notes
    -----
    Without a relaxation, the width is not differentiated, and for NDCG, P, RBP, MAP, MRR, ERR, recall and the
    F-measure, the gradient also has a second part: with d the standard deviation of the query's scores, that
    of ``1 / (1 + (d/3)^2)`` times the cross entropy between the gains of the documents and the softmax of
    their scores. The value of the loss does not contain it. Networks then start faster and do not let their
    scores grow without bound. Optimizers that compare values with gradients, such as L-BFGS, need a
    relaxation: then the gradient is that of the value.

    Examples
    --------
    >>> loss = SinkPropLoss("ndcg(discount=log2)@10", "laplace")
    >>> scores = torch.tensor([[0.2, 1.5, 0.3], [1.0, 0.0, 9.0]], requires_grad=True)
    >>> labels = torch.tensor([[2, 0, 1], [1, 0, -1]])  # -1: the second query has two documents
    >>> loss(scores, labels).backward()
    >>> scores.grad.sign().int().tolist()  # a step against the gradient raises relevant documents
    [[-1, 1, -1], [-1, 1, 0]]
    """

    gain, relaxation, n_iter, epsilon = map(_setting, ("gain", "relaxation", "n_iter", "epsilon"))
    reduction, padding, backend, n_threads = map(_setting, ("reduction", "padding", "backend", "n_threads"))

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation | None = None,
        *,
        n_iter: Iterations = 5,
        epsilon: float = 1e-6,
        reduction: Reduction = "mean",
        padding: float = -1,
        backend: Backend = "auto",
        n_threads: int | None = None,
    ) -> None:
        super().__init__()
        self.settings = _settings(gain, relaxation, n_iter, epsilon, reduction, padding, backend, n_threads)

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
        """Loss of a batch of queries, see `sinkprop_loss`.

        Parameters
        ----------
        scores : Tensor of shape (B, n) or (N,), or nested
            Scores; larger is better. If the relaxation is a `PartitionedMeasure`, a last axis of length 2
            holds the two parameters of each document.
        labels : Tensor of shape (B, n) or (N,), or nested; or (B, n, L) or (N, L)
            Relevance, one value per document, not below 0, or L label columns.
        lengths : Tensor of shape (B,), optional
            Number of documents at the start of each row of a padded batch.
        mask : Tensor of bool of shape (B, n), optional
            True for a document, False for padding.
        offsets : Tensor of shape (Q + 1,), optional
            For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
        qid : Tensor of shape (N,), optional
            For flat scores: the query of each row, integers in any order.
        sample_weight : Tensor of shape (B, n) or (N,), or nested, optional
            Row weights, see `expected_gain`.
        query_weight : Tensor of shape (Q,), optional
            One weight per query. With `qid`, queries are in the order in which their ids first appear.

        Returns
        -------
        Tensor
            One number, or one value per query of shape (Q,) with ``reduction="none"``.
        """
        return batch_loss(
            self.settings, scores, labels, lengths, mask, offsets, qid, sample_weight, query_weight
        )

    def extra_repr(self) -> str:
        """Settings shown in the module's repr.

        Returns
        -------
        str
            Gain, relaxation and number of Sinkhorn iterations.
        """
        return f"gain={self.gain}, relaxation={self.relaxation}, n_iter={self.n_iter}"


def sinkprop_loss(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    gain: str | Gain = "ndcg",
    relaxation: str | Relaxation | None = None,
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    sample_weight: Tensor | None = None,
    query_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    padding: float = -1,
    backend: Backend = "auto",
    n_threads: int | None = None,
) -> Tensor:
    """Minus the expected gain of a batch of queries, differentiable in the scores.

    Parameters
    ----------
    scores : Tensor of shape (B, n) or (N,), or nested
        Scores; larger is better. Padded batches have the shape (B, n), flat ones (N,). If the
        relaxation is a `PartitionedMeasure`, a last axis of length 2 holds the two parameters of each
        document. A last axis of length 1, which many networks output, is dropped from
        (B, n, 1), and from (N, 1) with `offsets` or `qid`.
    labels : Tensor of shape (B, n) or (N,), or nested; or (B, n, L) or (N, L)
        Relevance, one value per document, not below 0. Gains that read several labels per document, such as
        `AlphaNDCG`, or another label than the first, such as ``NDCG(10).on(1)``, take a last axis of L label
        columns.
    lengths : Tensor of shape (B,), optional
        Number of documents at the start of each row of a padded batch.
    mask : Tensor of bool of shape (B, n), optional
        True for a document, False for padding. Without `lengths` and `mask`, the label `padding`, in the
        first label column, marks padding. Scores and other labels at padding may be anything.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order. Without `offsets` and `qid`, all
        documents of flat scores are one query.
    gain : str or Gain, default "ndcg"
        The metric whose expected value is maximized: an object, or its name, such as "ndcg@10" or "map". If
        it does not state the discount of NDCG, the discount of rank k is 1 / log2(k + 1). ERR without
        `max_label` takes the largest label of the batch.
    relaxation : str or Relaxation, optional
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize: an object or its name,
        such as "gaussian" for ``SmoothedIndicator(1.0)``. By default, a Gaussian whose width is a quarter of
        the standard deviation of the query's scores, but at most 1, with a start for networks, see Notes of
        `SinkPropLoss`.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, each of which normalizes the columns, then the rows. An additional half
        iteration, as in 5.5, normalizes the columns once more. "converged" takes their limit and its
        gradient; see `sinkprop.Converged`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    sample_weight : Tensor of shape (B, n) or (N,), or nested, optional
        Row weights, see `expected_gain`.
    query_weight : Tensor of shape (Q,), optional
        One weight per query. With `qid`, queries are in the order in which their ids first appear.
    reduction : {"mean", "sum", "none"}, default "mean"
        Weighted mean or weighted sum over the queries, or one weighted value per query. A row of a padded
        batch that holds no document is not a query: its value is 0 with "none", and the mean does not count
        it.
    padding : float, default -1
        Label that marks padding if neither `lengths` nor `mask` is given.
    backend : {"auto", "native", "torch"}, default "auto"
        "native" runs the kernels of `expected_gain` on the CPU, in linear time for a smoothed indicator.
        "torch" uses torch's operations on any device and keeps one n x n matrix per query. "auto" uses
        "native" where possible, and "torch" for other devices, torch.compile and torch.func.
    n_threads : int, optional
        Number of threads of the native backend, see `expected_gain`.

    Returns
    -------
    Tensor
        One number, or one value per query of shape (Q,) with ``reduction="none"``. The dtype is
        that of the scores, or float32 for half-precision scores. The native backend computes in float64 and
        rounds each query's value and each entry of its gradient once.

    Raises
    ------
    ValueError
        If a score is NaN or infinite. Under torch.compile and torch.func, which hide values, scores are not
        checked.
    NotImplementedError
        Under torch.compile and torch.func, if the gain is computed by NumPy functions: custom gains,
        `AlphaNDCG`, `ERRIA`, `ExposureGap` and `ExpectedExposure`. For second derivatives of a `ColumnGain`
        or `RowGain`.

    Examples
    --------
    >>> scores = torch.tensor([0.2, 1.5, 0.3, 1.0, 0.0], requires_grad=True)
    >>> loss = sinkprop_loss(scores, torch.tensor([2.0, 0, 1, 1, 0]), qid=torch.tensor([7, 7, 7, 9, 9]))
    >>> round(loss.item(), 4)
    -0.8094
    """
    make = _settings_not_compiled if _ends_graph(scores, offsets, qid) else _settings
    settings = make(gain, relaxation, n_iter, epsilon, reduction, padding, backend, n_threads)
    return batch_loss(settings, scores, labels, lengths, mask, offsets, qid, sample_weight, query_weight)


def batch_loss(
    settings: LossSettings,
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    sample_weight: Tensor | None = None,
    query_weight: Tensor | None = None,
) -> Tensor:
    """Compute `sinkprop_loss` with settings that have been checked."""
    if _ends_graph(scores, offsets, qid):
        return _not_compiled(
            settings, scores, labels, lengths, mask, offsets, qid, sample_weight, query_weight
        )
    scores, labels, width = floating("scores", scores), as_tensor("labels", labels), settings.smoothing.width
    if width == 1:
        scores = without_last_axis(scores, flat=offsets is not None or qid is not None)
    layout = layout_of(
        scores,
        labels,
        width=width,
        mask=mask,
        lengths=lengths,
        offsets=offsets,
        qid=qid,
        padding=settings.padding,
        label_columns=True,
    )
    scores, labels = flat_values(scores), flat_values(labels)
    if sample_weight is not None:
        sample_weight = flat_values(as_tensor("sample_weight", sample_weight, scores.device))
        if tuple(sample_weight.shape) != layout.shape:
            raise ValueError(
                f"sample_weight must have one weight per document, {layout.shape}; got "
                f"{tuple(sample_weight.shape)}."
            )
    gain = _BatchGain(settings, layout, labels, sample_weight)
    native = takes_native(scores, settings.backend)
    if not (native or hidden(scores)):
        check_values(scores, labels, sample_weight, layout)
    x, spread = (scores, None) if settings.relaxation else relative_scores(scores, layout)
    values = native_values(x, gain) if native else gain.by_torch(x)
    if spread is not None and torch.is_grad_enabled():
        start = start_gradient(scores, labels, spread, layout, settings.gain, sample_weight)
        values = values if start is None else values - start
    return -reduced(values, layout, query_weight, settings.reduction)


def _ends_graph(scores: Tensor, offsets: Tensor | None, qid: Tensor | None) -> bool:
    """Whether the loss must run outside of the graph of torch.compile.

    Flat batches are padded to the longest query, whose length torch.compile does not know.
    """
    flat = offsets is not None or qid is not None
    return bool(torch.compiler.is_compiling() and (flat or scores.is_nested))


_not_compiled = torch.compiler.disable(batch_loss)
_settings_not_compiled = torch.compiler.disable(_settings)


def reduced(values: Tensor, layout: Layout, query_weight: Tensor | None, reduction: str) -> Tensor:
    """Return the mean of the queries' values (Q,), their sum, or the values themselves.

    `reduction` says which: "mean", "sum" or "none". Each value is weighted if weights are given.
    """
    weight = None
    if query_weight is not None:
        weight = as_tensor("query_weight", query_weight, values.device).to(values.dtype)
        if weight.shape != values.shape:
            raise ValueError(
                f"query_weight must have one weight per query, {tuple(values.shape)}; got "
                f"{tuple(weight.shape)}."
            )
        if not hidden(weight) and not bool((weight.isfinite() & (weight >= 0)).all()):
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
    if not hidden(total) and not bool(total > 0):
        raise ValueError("query_weight must have a sum above 0 for the mean.")
    return values.sum() / total


@dataclass(frozen=True, eq=False)
class _BatchGain:
    """Expected gain of each query of a batch, as a function of the scores."""

    settings: LossSettings
    layout: Layout
    labels: Tensor
    sample_weight: Tensor | None

    def by_kernels(self, scores: Tensor) -> tuple[Floats, Reals]:
        """Return the expected gains (Q,), and the gradient of their sum with respect to the scores.

        The gradient has one row per document, and the dtype of the scores.
        """
        settings, documents = self.settings, self._documents()
        y, weight, groups, present = self._arrays(documents)
        width, x = settings.smoothing.width, as_real_array(scores)
        x = x.reshape(-1) if width == 1 else x.reshape(-1, width)
        shape, x = x.shape, x if documents is None else x[documents]
        if _native.first_invalid(x, -_LARGEST, _LARGEST) >= 0:
            check_scores(scores, self.layout)
        n_threads = native_threads(settings.n_threads)
        values, gradient = grouped_gain(
            x, y, groups, settings.gain, settings.native, weight, n_threads, power=width, factor=1.0
        )
        if documents is not None:
            gradient, of_documents = np.zeros(shape, x.dtype), gradient
            gradient[documents] = of_documents
        if present is not None:
            values, of_present = np.zeros(len(present)), values
            values[present] = of_present
        return values, gradient

    def by_torch(self, scores: Tensor) -> Tensor:
        """Expected gains (Q,) by torch's operations."""
        parts = self.layout.parts()
        gain = self.settings.gain
        if isinstance(gain, RankLinearGain):
            return in_batch_order(self._rank_linear(gain, scores, parts), parts)
        return in_batch_order(self._of_terms(gain, scores, parts), parts)

    def _rank_linear(self, gain: RankLinearGain, scores: Tensor, parts: list[Part]) -> list[Tensor]:
        relaxation, native = self.settings.smoothing, self.settings.native
        values = []
        for part in parts:
            x = part.of(scores, self.layout)
            y, weight = self._labels(part, x.dtype)
            gains, D = _gain_tables(gain, y[..., 0], part.mask, weight)
            values.append(
                expectations.expected_gain(
                    x, gains, D, part.mask, relaxation, native.half_steps, native.epsilon, native.tol
                )
            )
        return values

    def _of_terms(self, gain: Gain, scores: Tensor, parts: list[Part]) -> list[Tensor]:
        relaxation, native = self.settings.smoothing, self.settings.native
        if not hidden(scores):
            documents = self._documents()
            labels, weights, groups, _ = self._arrays(documents)
            found, columns = gain.terms(labels, groups, weights), self._columns(documents)
        values = []
        for part in parts:
            x = part.of(scores, self.layout)
            if hidden(scores):
                y, weight = self._labels(part, x.dtype)
                terms = traced_terms(gain, y, part.mask, weight)
            else:
                at = part.of(columns, self.layout)
                terms = [batch_term(term, at, part.mask, x) for term in found]
            S = expectations.statistics(
                terms, x, part.mask, relaxation, native.half_steps, native.epsilon, native.tol
            )
            values.append(gain_of_statistics(terms, S, part.mask))
        return values

    def _labels(self, part: Part, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Return the labels (B, n, L) and row weights (B, n) of a part; labels are 0 at padding."""
        y = part.of(self.labels, self.layout).to(dtype)
        if self.labels.ndim == len(self.layout.shape):
            y = y.unsqueeze(-1)
        if part.mask is not None:
            y = torch.where(part.mask.unsqueeze(-1), y, 0)
        weight = self.sample_weight
        return y, None if weight is None else part.of(weight, self.layout).to(dtype)

    def _documents(self) -> Mask | None:
        """Mask of the documents among the rows of a padded batch, flattened; None if there is no padding."""
        mask = self.layout.mask
        return None if mask is None else mask.numpy(force=True).reshape(-1)

    def _columns(self, documents: Mask | None) -> Tensor:
        """Return the row of each place of the batch in the arrays of `_arrays`, in the layout's shape."""
        shape, device = self.layout.shape, self.labels.device
        if documents is None:
            return torch.arange(math.prod(shape), device=device).reshape(shape)
        return torch.from_numpy(documents.cumsum() - 1).to(device).reshape(shape)

    def _arrays(self, documents: Mask | None) -> tuple[Floats, Floats | None, Groups, Mask | None]:
        """Return labels (N,) or (N, L), row weights and queries of the documents, without padding.

        The last value is a mask of the queries that have documents; None if all have.
        """
        groups, present = self.layout.groups()
        y, weight = as_array(self.labels), None
        columns = y.ndim > len(self.layout.shape) and y.shape[-1] > 1
        y = y.reshape(-1, y.shape[-1]) if columns else y.reshape(-1)
        if documents is not None:
            y, groups = y[documents], groups.sorted
        if _native.first_invalid(y, 0.0, _LARGEST) >= 0:
            check_labels(self.labels, self.layout)
        if self.sample_weight is not None:
            weight = as_array(self.sample_weight).reshape(-1)
            weight = as_sample_weight(weight if documents is None else weight[documents], len(y))
        return y, weight, groups, present


def _gain_tables(
    gain: RankLinearGain, labels: Tensor, mask: Tensor | None, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the gains (B, n, U) of each document under each of U discounts, and the discounts (U, n).

    discounts[m, k - 1] is discount m at rank k. If the metric is normalized, such as NDCG, the gains of a
    query are divided by the metric's value for the best ranking of the query.
    """
    n = labels.shape[-1]
    if gain.separable:
        ranks = torch.arange(1, n + 1, device=labels.device).to(labels.dtype)
        discounts = rank_discounts(gain, ranks)[None]
        gains = label_gains(gain, labels)[..., None]
    else:
        check_traceable(gain)
        classes, table = gain.class_discounts(labels.reshape(-1).numpy(force=True), n)
        discounts = torch.from_numpy(table).to(labels)
        gains = nn.functional.one_hot(torch.from_numpy(classes).to(labels.device).long(), len(table))
        gains = gains.reshape(*labels.shape, len(table)).to(labels.dtype)
    if weight is not None:
        gains = gains * weight[..., None]
    if mask is not None:
        gains = torch.where(mask[..., None], gains, 0)
    if gain.normalized:
        # This is a sum and not a matrix product, because autocast would reduce a product's precision.
        best = (gains[..., 0].sort(dim=-1, descending=True).values * discounts[0]).sum(dim=-1)
        gains = gains / torch.where(best > 0, best, 1)[:, None, None]
        if not hidden(best) and not bool(best.isfinite().all()):
            raise ValueError(
                f"labels are too large for {gain} in {labels.dtype}: the largest is {labels.max().item():g}. "
                "Give float64 scores, or gain='linear'."
            )
    return gains, discounts
