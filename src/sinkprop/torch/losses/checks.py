"""Checks of the tensors that losses and layers take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sinkprop.torch.losses.batches import NO_DOCUMENT, Layout

__all__ = ["check_labels", "check_reduction", "check_scores", "check_values", "floating"]


def floating(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(x).__name__}.")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype; got {x.dtype}.")
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def check_scores(scores: Tensor, layout: Layout) -> None:
    fine = scores.isfinite()
    place = _first(fine if fine.ndim == len(layout.shape) else fine.all(dim=-1), layout)
    if place is not None:
        raise ValueError(
            f"scores must be finite; {_named(place)} has {scores[place].tolist()}. If a network gave it, its "
            "parameters or features have overflowed: lower the learning rate, or clip the gradient."
        )


def check_values(scores: Tensor, labels: Tensor, sample_weight: Tensor | None, layout: Layout) -> None:
    if layout.mask is not None and not bool(layout.mask.any()):
        raise ValueError(NO_DOCUMENT)
    check_scores(scores, layout)
    check_labels(labels, layout)
    if sample_weight is not None:
        place = _first(sample_weight.isfinite() & (sample_weight >= 0), layout)
        if place is not None:
            raise ValueError(
                f"sample_weight must be finite and not below 0; {_named(place)} has "
                f"{sample_weight[place].tolist()}."
            )


def check_labels(labels: Tensor, layout: Layout) -> None:
    fine = labels.isfinite() & (labels >= 0)
    fine = fine if fine.ndim == len(layout.shape) else fine.all(dim=-1)
    place = _first(fine, layout)
    if place is not None:
        hint = "Mark padding by `padding` or a mask."
        if layout.mask is not None and bool((fine != layout.mask).all()):
            hint = (
                "mask looks inverted: it is True exactly where the labels mark padding. It must be True for "
                "a document; pass ~mask."
            )
        raise ValueError(
            f"labels must be finite and not below 0; {_named(place)} has {labels[place].tolist()}. {hint}"
        )


def _first(fine: Tensor, layout: Layout) -> tuple[int, ...] | None:
    """Index of the first document for which `fine` is False, or None; padding is ignored."""
    bad = ~fine if layout.mask is None else layout.mask & ~fine
    return tuple(bad.nonzero()[0].tolist()) if bool(bad.any()) else None


def _named(place: tuple[int, ...]) -> str:
    return f"document {place[0]}" if len(place) == 1 else f"document {place[1]} of query {place[0]}"


def check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none'; got {reduction!r}.")
