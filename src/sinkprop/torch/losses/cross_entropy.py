"""The cross entropy between a query's gains and the softmax of its scores, which starts the training."""

from __future__ import annotations

import torch
from torch import Tensor

from sinkprop.torch.losses.batches import Layout

__all__ = ["cross_entropies", "gain_cross_entropy"]


def gain_cross_entropy(
    scores: Tensor, gains: Tensor, offsets: Tensor, query_weight: Tensor | None = None
) -> Tensor:
    """Return the weighted mean, over the queries, of -sum_j gains_j / sum(gains) log softmax(scores)_j.

    It is a convex function of the scores that bounds the loss of NDCG (Bruch, Wang, Bendersky and Najork
    2019), and its gradient is not 0 if all scores are equal. A query whose gains are all 0 has the value 0.

    scores   (N,) scores of a flat batch, in linear time and memory
    gains    (N,) gains of the documents, not below 0
    offsets  (Q + 1,) first row of each query, and N

    >>> scores, offsets = torch.tensor([1.0, 3.0, 5.0]).log(), torch.tensor([0, 2, 3])
    >>> gain_cross_entropy(scores, torch.tensor([1.0, 0.0, 0.0]), offsets)  # (log 4 + 0) / 2
    tensor(0.6931)
    """
    values = cross_entropies(scores, gains, Layout((len(scores),), None, offsets))
    if query_weight is None:
        return values.mean()
    weight = query_weight.to(values.dtype)
    return (weight * values).sum() / weight.sum()


def cross_entropies(scores: Tensor, gains: Tensor, layout: Layout) -> Tensor:
    """Return the cross entropy of each query, (Q,); see `gain_cross_entropy`. Padding is ignored."""
    if layout.mask is not None:
        scores, gains = (torch.where(layout.mask, x, 0) for x in (scores, gains))
    sums = layout.total(gains)
    targets = (gains / layout.spread(torch.where(sums > 0, sums, 1))).to(scores.dtype)
    # The limits keep everything finite, at padding and for scores of a network that has diverged.
    below = (scores - layout.spread(layout.largest(scores.detach()))).clamp(min=-1e30, max=0)
    log_p = below - layout.spread(layout.total(below.exp()).clamp(min=1).log())
    return -layout.total(targets * log_p)
