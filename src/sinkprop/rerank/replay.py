"""Scores of many documents whose backward pass holds the activations of one mini-batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from sentence_transformers.cross_encoder.losses.cached_multiple_negatives_ranking import RandContext
from torch import Tensor

__all__ = ["replayed_scores"]

Score = Callable[[Any], Tensor]


def replayed_scores(score: Score, batches: Sequence[dict[str, Any]], model: Any) -> Tensor:
    """Return the scores (N,) of all mini-batches, for whose gradient each mini-batch is scored again.

    The forward pass keeps no activations. The backward pass gets the gradient of the loss in all scores at
    once. It scores one mini-batch after the other again, with the same random numbers (dropout) and the same
    autocast, and propagates the gradient of its scores to the parameters.

    score    function from a mini-batch to its scores, of shape (documents,) or (documents, 1)
    batches  mini-batches, dictionaries of tensors, in the order of the documents
    model    what `score` calls; DistributedDataParallel synchronizes gradients after the last mini-batch only
    """
    if len(batches) == 1 or not torch.is_grad_enabled():  # nothing to save
        return torch.cat([score(batch).reshape(-1) for batch in batches])
    start = torch.zeros((), requires_grad=True)  # an argument that needs a gradient
    scores: Tensor = _Replayed.apply(start, score, batches, model)
    return scores


class _Replayed(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, start: Tensor, score: Score, batches: Sequence[Any], model: Any) -> Tensor:
        ctx.score, ctx.batches, ctx.model, ctx.random, scores = score, batches, model, [], []
        for batch in batches:  # without a graph, as in every forward pass of a Function
            ctx.random.append(RandContext(*batch.values()))
            scores.append(score(batch).reshape(-1))
        device = scores[0].device.type
        ctx.autocast = {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }
        ctx.sizes = [len(of) for of in scores]
        torch.clear_autocast_cache()  # casts made without a graph must not be used in the replay
        return torch.cat(scores)

    @staticmethod
    def backward(ctx: Any, scores_bar: Tensor) -> tuple[None, ...]:
        last = len(ctx.batches) - 1
        for i, (batch, bar) in enumerate(zip(ctx.batches, scores_bar.split(ctx.sizes), strict=True)):
            unsynchronized = getattr(ctx.model, "no_sync", nullcontext) if i < last else nullcontext
            with unsynchronized():
                with ctx.random[i], torch.enable_grad(), torch.autocast(**ctx.autocast):
                    scores = ctx.score(batch).reshape(-1)
                torch.autograd.backward(scores, bar)
            del scores  # its graph, before the next is built
        return None, None, None, None
