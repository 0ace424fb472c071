"""Gains that are sums of terms, in torch's operations: terms of a padded batch, and their values.

`objective/gains/base.py` describes terms, and `sinkprop.reference` defines their functions and norms in plain
NumPy. The attributes of the documents come from `Gain.terms`, which is NumPy. torch.compile and torch.func
hide the labels from NumPy, so `traced_terms` computes the attributes of simple gains by torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sinkprop.common.types import Floats
from sinkprop.objective.gains import (
    ERR,
    NDCG,
    RBP,
    AveragePrecision,
    FMeasure,
    Gain,
    GainSum,
    OnLabels,
    Precision,
    RankLinearGain,
    Recall,
    ReciprocalRank,
    Term,
)
from sinkprop.objective.traced_terms import label_attributes, untraceable
from sinkprop.torch.losses.modes import forward_mode, tracing

__all__ = [
    "BatchTerm",
    "batch_term",
    "check_traceable",
    "gain_of_statistics",
    "label_gains",
    "rank_discounts",
    "traced_terms",
]


class BatchTerm(NamedTuple):
    """A `Term` for the documents of a padded batch of B queries.

    form        Function of the statistics R_c[k] = sum_j Pi[j, k] a_c[j] or E[j] = sum_k Pi[j, k] e[k].
    attributes  (B, n, C) attributes a_c of the documents; 0 at padding, but -1 for the form "gap". For the
                form "row", they are in float64 on the CPU: only the user's function reads them.
    discounts   (1, n) or (C, n) discounts of the ranks, or the weights e of the ranks.
    factor      (B,) weight of the term divided by its norm; 0 for a query whose norm is 0.
    alpha       Factor of R in the form "cascade".
    function    The user's function, for the forms "column" and "row".
    """

    form: str
    attributes: Tensor
    discounts: Tensor
    factor: Tensor
    alpha: float = 1.0
    function: Callable[[Floats, Floats, Floats], float] | None = None

    @property
    def of_rows(self) -> bool:
        """Whether the statistics are those of documents, E; otherwise they are those of ranks, R."""
        return self.form in ("target", "gap", "row")

    def times(self, weight: float) -> BatchTerm:
        """Return the term multiplied by a number."""
        return BatchTerm(*self[:3], weight * self.factor, self.alpha, self.function)


def gain_of_statistics(
    terms: Sequence[BatchTerm], statistics: Sequence[Tensor], mask: Tensor | None
) -> Tensor:
    """Return the sum of the terms for each query, (B,).

    statistics  for each term, R (B, C, n) of its C attributes, or E (B, 1, n); 0 at padding
    mask        (B, n) True for a document; None if there is no padding
    """
    found = zip(terms, statistics, strict=True)
    return torch.stack([term.factor * _value(term, S, mask) for term, S in found]).sum(0)


def _value(term: BatchTerm, S: Tensor, mask: Tensor | None) -> Tensor:
    """Return the function of a term for each query, (B,), without its factor."""
    a, d = term.attributes, term.discounts
    if term.function is not None:
        return _user_values(term, S, mask)
    if term.form == "linear":
        return (d * S).sum((-2, -1))
    # An attribute of one document is at one rank only, and the expectation is linear in R.
    several = ((a != 0).sum(-2) > 1).to(S.dtype).unsqueeze(-1)
    if term.form == "precisions":
        above = several * (S.cumsum(-1) - S)
        return (d * S * (1 + above)).sum((-2, -1))
    if term.form == "cascade":
        interest = functional.pad(1 - term.alpha * several * S[..., :-1], (1, 0), value=1.0).cumprod(-1)
        return (d * S * interest).sum((-2, -1))
    E = S.squeeze(-2)
    if term.form == "target":
        return (E - a[..., 0]).square().sum(-1)
    # "gap": the mean over pairs of m groups of (X_g - X_h)^2 is 2 / (m - 1) times sum_g (X_g - mean)^2
    belongs = a[..., 0] >= 0
    group = torch.where(belongs, a[..., 0], 0).long()
    X = torch.zeros_like(E).scatter_add(-1, group, torch.where(belongs, a[..., 1] * E, 0))
    seen = torch.zeros_like(E).scatter_add(-1, group, belongs.to(E.dtype)) > 0
    m = seen.sum(-1, keepdim=True)
    mean = X.sum(-1, keepdim=True) / m.clamp(min=1)
    squares = torch.where(seen, (X - mean).square(), 0).sum(-1)
    return 2 * squares / (m.squeeze(-1) - 1).clamp(min=1)


def _user_values(term: BatchTerm, S: Tensor, mask: Tensor | None) -> Tensor:
    """Return the values (B,) of a user's function of the statistics S (B, P, n)."""
    if forward_mode():
        raise NotImplementedError(
            "gain: a ColumnGain or RowGain has no forward-mode derivatives; use reverse mode (backward)."
        )
    if mask is None:
        mask = torch.ones_like(S[:, 0], dtype=torch.bool)
    # Exposures are at the places of the documents, and the m ranks of a query at the first m places.
    at = mask if term.form == "row" else mask.sort(dim=-1, descending=True).values
    values: Tensor = _UserFunction.apply(
        S, term.function, *(x.numpy(force=True) for x in (term.attributes.mT, mask, at))
    )
    return values


class _UserFunction(torch.autograd.Function):  # type: ignore[misc]
    """Autograd function from statistics (B, P, n) to a user's function of them, (B,)."""

    @staticmethod
    def forward(
        ctx: Any,
        S: Tensor,
        function: Callable[[Floats, Floats, Floats], float],
        attributes: Floats,
        documents: Any,
        at: Any,
    ) -> Tensor:
        s = S.numpy(force=True).astype(np.float64)
        values, S_bar = np.zeros(len(s)), np.zeros(s.shape)
        for q in np.flatnonzero(documents.any(axis=1)):
            D = np.zeros((s.shape[1], int(at[q].sum())))
            values[q] = function(s[q][:, at[q]], attributes[q][:, documents[q]], D)
            S_bar[q][:, at[q]] = D
        ctx.save_for_backward(_like(S, torch.from_numpy(S_bar)))
        return _like(S, torch.from_numpy(values))

    @staticmethod
    def backward(ctx: Any, values_bar: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "gain: a ColumnGain or RowGain has no second derivative; call backward without create_graph."
            )
        (S_bar,) = ctx.saved_tensors
        return values_bar[:, None, None] * S_bar, None, None, None, None


def batch_term(term: Term, columns: Tensor, mask: Tensor | None, scores: Tensor) -> BatchTerm:
    """Return a term, whose attributes and norms NumPy computes in float64, for a padded batch.

    columns  (B, n) column of each document in the term's attributes; arbitrary at padding
    mask     (B, n) True for a document; None if there is no padding
    scores   (B, n) or (B, n, 2), which determines the dtype and the device
    """
    n = columns.shape[1]
    a = torch.tensor(term.attributes)[:, columns.cpu()].permute(1, 2, 0)
    if mask is not None:
        a = torch.where(mask.cpu().unsqueeze(-1), a, -1.0 if term.form == "gap" else 0.0)
    d = torch.tensor(term.discounts)  # a copy, since the array may be read-only
    d = functional.pad(d, (0, max(n - d.shape[1], 0)))[:, :n]
    factor = _factors(term.weight, term.norm, term.constants, term.alpha, a, d[0])
    if term.form == "linear":  # scaled in float64, so that large gains do not overflow in float32
        a, factor = a * factor[:, None, None], torch.ones_like(factor)
    return BatchTerm(
        term.form,
        a if term.form == "row" else _like(scores, a),
        _like(scores, d),
        _like(scores, factor),
        term.alpha,
        term.function,
    )


def _factors(
    weight: float, norm: str, constants: tuple[float, float], alpha: float, a: Tensor, d: Tensor
) -> Tensor:
    """Return the weight of a term divided by its norm for each query, (B,); 0 if the norm is 0.

    a  (B, n, C) attributes
    d  (n,) discounts
    """
    if norm == "none":
        return torch.full_like(a[:, 0, 0], weight)
    c0, c1 = constants
    if norm == "ideal":
        norms = (a[..., 0].sort(dim=-1, descending=True).values * d).sum(-1)
    elif norm == "count":
        total = a.sum((-2, -1))
        norms = torch.where(total > 0, c0 + c1 * total, 0)
    elif norm == "intents":
        norms = c0 * (a > 0).any(-2).sum(-1).to(a.dtype)
    else:
        norms = _greedy(alpha, a, d)
    return torch.where(norms > 0, weight / torch.where(norms > 0, norms, 1), 0)


def _greedy(alpha: float, a: Tensor, d: Tensor) -> Tensor:
    """Return the value (B,) of the ranking that has the document that adds most at each rank in turn."""
    left, queries = a.clone(), torch.arange(len(a))
    value, interest = torch.zeros_like(a[:, 0, 0]), torch.ones_like(a[:, 0])
    for discount in d.tolist():
        most, best = (left * interest[:, None]).sum(-1).max(-1)
        if discount == 0 or not bool((most > 0).any()):
            break
        value += discount * most
        interest *= 1 - alpha * left[queries, best]
        left[queries, best] = 0
    return value


def _like(x: Tensor, values: Tensor) -> Tensor:
    return values.to(x.dtype).to(x.device)  # in this order, since a device may not have float64


_WHO = "torch.compile and torch.func"
_FORMS: dict[type[Gain], tuple[str, str]] = {
    AveragePrecision: ("precisions", "count"),
    ERR: ("cascade", "none"),
    FMeasure: ("linear", "count"),
    Recall: ("linear", "count"),
    ReciprocalRank: ("cascade", "none"),
}


def traced_terms(gain: Gain, labels: Tensor, mask: Tensor | None, weight: Tensor | None) -> list[BatchTerm]:
    """Return the terms of a gain, computed by torch's operations alone.

    Raises a NotImplementedError unless the gain is a built-in rank-linear gain, MAP, MRR, ERR, recall or the
    F-measure, or consists of these.

    labels  (B, n, L) labels; 0 at padding
    mask    (B, n) True for a document; None if there is no padding
    weight  (B, n) row weights, or None
    """
    if isinstance(gain, GainSum):
        return [
            term.times(part_weight)
            for part_weight, part in gain.parts
            for term in traced_terms(part, labels, mask, weight)
        ]
    if isinstance(gain, OnLabels):
        _check_columns(gain, labels)
        return traced_terms(gain.gain, labels[..., list(gain.labels)], mask, weight)
    y = labels[..., 0]
    ranks = torch.arange(1, y.shape[-1] + 1, device=y.device).to(y.dtype)
    constants = (0.0, 1.0)
    if isinstance(gain, RankLinearGain) and gain.separable:
        form, norm = "linear", "ideal" if gain.normalized else "none"
        a, d = label_gains(gain, y), rank_discounts(gain, ranks)
    elif isinstance(gain, ERR | AveragePrecision | FMeasure | Recall | ReciprocalRank):
        form, norm = _FORMS[type(gain)]
        a = label_attributes(torch, gain, labels, _WHO)[..., 0]
        if isinstance(gain, FMeasure):
            constants = (gain.k / (1 + gain.beta**2), gain.beta**2 / (1 + gain.beta**2))
        d = torch.ones_like(ranks) if isinstance(gain, Recall | FMeasure) else 1 / ranks
        d = d if gain.k is None else torch.where(ranks <= gain.k, d, 0)
    else:
        raise untraceable(gain, _WHO)
    if weight is not None:
        a = a * weight
    if mask is not None:
        a = torch.where(mask, a, 0)
    a = a.unsqueeze(-1)
    return [BatchTerm(form, a, d[None], _factors(1.0, norm, constants, 1.0, a, d))]


def _check_columns(gain: OnLabels, labels: Tensor) -> None:
    if max(gain.labels) >= labels.shape[-1]:
        raise ValueError(
            f"labels: {gain} reads label column {max(gain.labels)}, numbered from 0, but the number of label "
            f"columns is {labels.shape[-1]}. Pass labels of shape (B, n, L), one column per kind of label."
        )


def label_gains(gain: RankLinearGain, labels: Tensor) -> Tensor:
    """Return the gain of each label: by torch's operations for built-in gains, by NumPy for custom gains."""
    if isinstance(gain, NDCG | Precision | RBP):
        return label_attributes(torch, gain, labels.unsqueeze(-1), _WHO)[..., 0]
    check_traceable(gain)
    values = gain.gains(labels.reshape(-1).numpy(force=True))
    return torch.from_numpy(values).to(labels).reshape(labels.shape)


def rank_discounts(gain: RankLinearGain, ranks: Tensor) -> Tensor:
    """Return the discount at each rank: by torch's operations for built-in gains, by NumPy for custom gains.

    `ranks` is the tensor 1, ..., n and not the number n, because torch.compile may not know n.
    """
    if isinstance(gain, NDCG):
        D = 1 / torch.log2(ranks + 1 if gain.discount == "log2" else ranks.clamp(min=2))
        return D if gain.k is None else torch.where(ranks <= gain.k, D, 0)
    if isinstance(gain, Precision):
        return (ranks <= gain.k).to(ranks.dtype) / gain.k
    if isinstance(gain, RBP):
        return (1 - gain.p) * gain.p ** (ranks - 1)
    check_traceable(gain)
    return torch.from_numpy(gain.discounts(len(ranks)).copy()).to(ranks)


def check_traceable(gain: Gain) -> None:
    """Raise a NotImplementedError in torch.compile and torch.func, for a gain that NumPy computes."""
    if tracing():
        raise untraceable(gain, _WHO)
