"""Scores of many documents whose backward pass holds the activations of one mini-batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["replayed_scores"]


def replayed_scores(score: Callable[[Any], Tensor], batches: Sequence[Any]) -> Tensor:
    """Return the scores (N,) of all mini-batches, for whose gradient each mini-batch is scored again.

    The forward pass keeps no activations. The backward pass runs once for the whole list: it takes the
    gradient of the loss in each mini-batch's scores, scores this mini-batch again with the same random
    numbers (dropout) under the same autocast, and propagates through it.

    score    a mini-batch to its scores, of shape (documents,) or (documents, 1)
    batches  mini-batches, in the order of the documents
    """
    if len(batches) == 1 or not torch.is_grad_enabled():  # nothing to save
        return torch.cat([score(batch).reshape(-1) for batch in batches])
    return torch.cat([checkpoint(score, batch, use_reentrant=False).reshape(-1) for batch in batches])
