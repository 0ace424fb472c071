"""The cross entropy between a query's gains and the softmax of its scores, which starts the training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["gain_cross_entropy"]


def gain_cross_entropy(
    scores: Tensor, gains: Tensor, offsets: Tensor, query_weight: Tensor | None = None
) -> Tensor:
    """Return the weighted mean, over the queries, of -sum_j gains_j / sum(gains) log softmax(scores)_j.

    It is a convex function of the scores that bounds the loss of NDCG (Bruch, Wang, Bendersky and Najork
    2019), and its gradient is not 0 if all scores are equal. A query whose gains are all 0 has the value 0.

    scores   (N,) scores of a flat batch, in linear time and memory
    gains    (N,) gains of the documents, not below 0
    offsets  (Q + 1,) first row of each query, and N

    >>> scores, offsets = torch.tensor([0.0, math.log(3), 5.0]), torch.tensor([0, 2, 3])
    >>> gain_cross_entropy(scores, torch.tensor([1.0, 0.0, 0.0]), offsets)  # (log 4 + 0) / 2
    tensor(0.6931)
    """
    sizes = offsets.diff()
    query = torch.repeat_interleave(torch.arange(len(sizes)), sizes)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(sizes), dtype=values.dtype).index_add(0, query, values)

    top = torch.full((len(sizes),), -math.inf, dtype=scores.dtype)
    top = top.scatter_reduce(0, query, scores.detach(), "amax")
    below = scores - top[query]
    log_p = below - total(below.exp()).log()[query]
    gains = gains.to(scores.dtype)
    sums = total(gains)
    values = -total(gains * log_p) / torch.where(sums > 0, sums, 1)
    if query_weight is None:
        return values.mean()
    weight = query_weight.to(values.dtype)
    return (weight * values).sum() / weight.sum()
