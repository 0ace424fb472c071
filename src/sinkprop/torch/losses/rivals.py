"""The losses that ranking networks are trained with today: ListNet, ApproxNDCG, LambdaRank and its kin.

All are called as `sinkprop_loss` is, on the same batches, so one can stand where another stood:

    loss(scores, labels, lengths=None, *, mask=, offsets=, qid=, query_weight=, reduction="mean", padding=-1)

They are plain torch: any device, float32 and float64, differentiable as often as one likes. ListNet takes
linear time; those that look at pairs take time and memory of the relevant documents times the documents of
their query. A query without a relevant document counts 0. Scores beyond 1e30, 1e300 in float64, count so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sinkprop.torch.losses.batches import alike, flat_values, layout_of, without_last_axis
from sinkprop.torch.losses.checks import check_labels, check_reduction, check_scores, floating
from sinkprop.torch.losses.sinkprop import Reduction, reduced

__all__ = ["LOSSES", "Scheme", "approx_ndcg_loss", "lambda_loss", "listnet_loss"]

Scheme = Literal["lambdarank", "ndcg-loss2", "ndcg-loss2++", "ranknet"]
# scores, labels and mask of some queries, (b, n) each, to their losses (b,)
Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def listnet_loss(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    query_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    padding: float = -1,
) -> Tensor:
    """Cross entropy of top-one probabilities, -sum_j softmax(labels)_j log softmax(scores)_j.

    Cao, Qin, Liu, Tsai and Li 2007, with the exponential of a label for its weight, as in the paper and in
    allRank; `baselines/listnet_loss.py` is the same for NumPy arrays, and has the top two and more. A
    query without a relevant document counts 0 here: its target is the uniform distribution, which says
    nothing of its ranking.

    >>> scores, labels = torch.tensor([0.2, 1.5, 0.3]), torch.tensor([2, 0, 1])
    >>> round(listnet_loss(scores, labels).item(), 4)
    1.6119
    """

    def core(s: Tensor, y: Tensor, documents: Tensor) -> Tensor:
        target = functional.softmax(y.masked_fill(~documents, -math.inf), dim=1).to(s.dtype)
        log_p = functional.log_softmax(s.masked_fill(~documents, -math.inf), dim=1)
        return -(target * log_p.masked_fill(~documents, 0)).sum(1)

    return _loss(core, scores, labels, lengths, mask, offsets, qid, query_weight, reduction, padding)


def approx_ndcg_loss(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    query_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    padding: float = -1,
) -> Tensor:
    """Minus the NDCG at smoothed ranks, 1 + sum over the other documents of sigmoid(alpha (s_i - s_j)).

    Qin, Liu and Li 2010, with the exponential gain and 1/log2(1 + rank). A larger `alpha` is nearer to the
    ranks and flatter between them: 1 is allRank's, 10 TensorFlow Ranking's.

    >>> scores, labels = torch.tensor([0.2, 1.5, 0.3]), torch.tensor([2, 0, 1])
    >>> round(approx_ndcg_loss(scores, labels, alpha=1.0).item(), 4)
    -0.6406
    """
    alpha = _positive("alpha", alpha)

    def core(s: Tensor, y: Tensor, documents: Tensor) -> Tensor:
        q, i = (y > 0).nonzero(as_tuple=True)
        above = torch.sigmoid(alpha * (s.index_select(0, q) - s[q, i][:, None]))
        if not bool(documents.all()):
            above = above.masked_fill(~documents[q], 0)
        rank = 0.5 + above.sum(1)  # the document itself adds sigmoid(0) = 1/2 to the sum
        worth = _gains(y, None)[q, i].to(s.dtype)
        return -_by_query(worth / torch.log2(1 + rank), q, s)

    return _loss(core, scores, labels, lengths, mask, offsets, qid, query_weight, reduction, padding)


def lambda_loss(
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None = None,
    *,
    scheme: Scheme = "lambdarank",
    k: int | None = None,
    sigma: float = 1.0,
    mu: float = 10.0,
    mask: Tensor | None = None,
    offsets: Tensor | None = None,
    qid: Tensor | None = None,
    query_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    padding: float = -1,
) -> Tensor:
    """Sum over the pairs with label_i > label_j of weight_ij log2(1 + exp(-sigma (s_i - s_j))).

    Wang, Li, Golbandi, Bendersky and Najork 2018. The weights are those of the ranking by the present
    scores, and are not differentiated; with G the gain 2^label - 1 over the ideal DCG and D(r) = log2(1 + r):

        "lambdarank"     |G_i - G_j| |1/D(rank_i) - 1/D(rank_j)|, what exchanging the two changes in NDCG
        "ndcg-loss2"     |G_i - G_j| (1/D(m) - 1/D(m + 1)) with m = |rank_i - rank_j|
        "ndcg-loss2++"   mu times the second plus the first
        "ranknet"        1

    k   only pairs of which one document, or both, is among the first k, in NDCG@k: beyond k, 1/D is 0 and the
        ideal DCG ends. allRank's k asks that both are among the first k

    >>> scores, labels = torch.tensor([0.2, 1.5, 0.3]), torch.tensor([2, 0, 1])
    >>> round(lambda_loss(scores, labels).item(), 4)
    1.2105
    """
    sigma, mu = _positive("sigma", sigma), _positive("mu", mu)
    if scheme not in get_args(Scheme):
        raise ValueError(f"scheme must be one of {', '.join(map(repr, get_args(Scheme)))}; got {scheme!r}.")
    if k is not None and (isinstance(k, bool) or int(k) != k or k < 1):
        raise ValueError(f"k must be a whole number of at least 1, or None for every rank; got {k!r}.")

    def core(s: Tensor, y: Tensor, documents: Tensor) -> Tensor:
        q, i = (y > 0).nonzero(as_tuple=True)
        worth = y if scheme == "ranknet" else _gains(y, k).to(s.dtype)
        worth = worth.masked_fill(~documents, math.inf)  # nothing is worth more than no document
        more = worth[q, i][:, None] - worth[q]
        rank = _ranks(s, documents)
        if scheme == "ranknet":
            weight = (more > 0).to(s.dtype)
        else:
            weight = more.clamp_(min=0) * _exchange(rank, q, i, scheme, k, mu, s.dtype)
        if k is not None:
            weight = weight.masked_fill(torch.minimum(rank[q, i][:, None], rank[q]) > k, 0)
        log_p = functional.logsigmoid(sigma * (s[q, i][:, None] - s.index_select(0, q)))
        return -_by_query((weight * log_p).sum(1), q, s) / math.log(2)

    return _loss(core, scores, labels, lengths, mask, offsets, qid, query_weight, reduction, padding)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "listnet": listnet_loss,
    "approxndcg": approx_ndcg_loss,
    "lambdarank": lambda_loss,
}


def _exchange(
    rank: Tensor, q: Tensor, i: Tensor, scheme: str, k: int | None, mu: float, dtype: torch.dtype
) -> Tensor:
    """(R, n) what a scheme gives the ranks of document i of query q and of each other one of the query."""
    D = torch.log2(torch.arange(1, rank.shape[1] + 3, dtype=dtype, device=rank.device))  # of rank 0 and on
    if scheme == "lambdarank":
        inverse = (1 / D)[rank]
        if k is not None:
            inverse = inverse.masked_fill(rank > k, 0)
        return (inverse[q, i][:, None] - inverse[q]).abs_()
    apart = (1 / D[:-1] - 1 / D[1:]).clamp(max=1)  # at 0, a document and itself, which has no weight
    second = apart[(rank[q, i][:, None] - rank[q]).abs_()]
    if scheme == "ndcg-loss2":
        return second
    return mu * second + _exchange(rank, q, i, "lambdarank", k, mu, dtype)


def _gains(y: Tensor, k: int | None) -> Tensor:
    """(b, n) float64: 2^label - 1 over the DCG@k of the best ranking; 0 in a query that is worth nothing."""
    if float(y.max()) >= 960:  # float64 ends at 2^1024
        raise ValueError(f"labels must be below 960, for 2^label - 1; got {float(y.max())!r}.")
    G = torch.expm1(y * math.log(2))
    ranks = torch.arange(1, G.shape[1] + 1, device=G.device, dtype=G.dtype)
    ideal = (G.sort(dim=1, descending=True).values / torch.log2(1 + ranks))[:, :k].sum(1, keepdim=True)
    return G / torch.where(ideal > 0, ideal, 1)


def _ranks(s: Tensor, documents: Tensor) -> Tensor:
    """(b, n) 1 for the highest score; ties as they come, places without a document last."""
    order = s.detach().masked_fill(~documents, -math.inf).argsort(dim=1, descending=True, stable=True)
    ranks = torch.arange(1, s.shape[1] + 1, device=s.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, ranks)


def _by_query(values: Tensor, q: Tensor, s: Tensor) -> Tensor:
    """Sums (b,) of values that belong to the queries q."""
    return torch.zeros(len(s), dtype=s.dtype, device=s.device).index_add(0, q, values)


def _loss(
    core: Core,
    scores: Tensor,
    labels: Tensor,
    lengths: Tensor | None,
    mask: Tensor | None,
    offsets: Tensor | None,
    qid: Tensor | None,
    query_weight: Tensor | None,
    reduction: str,
    padding: float,
) -> Tensor:
    check_reduction(reduction)
    scores, labels = floating("scores", scores), torch.as_tensor(labels)
    scores = without_last_axis(scores, flat=offsets is not None or qid is not None)
    layout = layout_of(scores, labels, mask=mask, lengths=lengths, offsets=offsets, qid=qid, padding=padding)
    scores, labels = flat_values(scores), flat_values(labels).to(torch.float64)
    check_scores(scores, layout)
    check_labels(labels, layout)
    s, y, documents = layout.pad(scores), layout.pad(labels), layout.padded_mask()
    if documents is None:
        documents = torch.ones_like(y, dtype=torch.bool)
    # padding may hold anything, and NaN * 0 is NaN; so is the 0 of a weight times an overflow
    limit = 1e30 if s.dtype == torch.float32 else 1e300
    s = s.masked_fill(~documents, 0).clamp(-limit, limit)
    y = y.masked_fill(~documents, 0)
    parts = list(alike(documents))
    values = torch.cat([core(s[q, :n], y[q, :n], documents[q, :n]) for q, n in parts])
    values = values[torch.cat([q for q, _ in parts]).argsort()]
    return reduced(torch.where((y > 0).any(1), values, 0), layout, query_weight, reduction)


def _positive(name: str, value: float) -> float:
    number = float(value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number above 0; got {value!r}.")
    return number
