"""Baseline losses for ranking networks: ListNet, ApproxNDCG, LambdaRank and its variants.

All are called like `sinkprop_loss`, on the same batches, so you can exchange one for another::

    loss(scores, labels, lengths=None, *, mask=, offsets=, qid=, query_weight=, reduction="mean", padding=-1)

They use only torch's operations, so they run on any device, in float32 and float64, and have derivatives of
any order. ListNet takes linear time. The other losses compare pairs of documents: their time and memory per
query are proportional to the number of relevant documents times the number of all documents. A query without
a relevant document has the loss 0. Scores are clamped to [-1e30, 1e30], or to [-1e300, 1e300] in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sinkprop.torch.losses.batches import alike, as_tensor, flat_values, layout_of, without_last_axis
from sinkprop.torch.losses.checks import check_labels, check_reduction, check_scores, floating
from sinkprop.torch.losses.sinkprop import Reduction, reduced

__all__ = ["LOSSES", "Scheme", "approx_ndcg_loss", "lambda_loss", "listnet_loss"]

Scheme = Literal["lambdarank", "ndcg-loss2", "ndcg-loss2++", "ranknet"]
# A function that takes the scores, labels and mask of b queries, each of shape (b, n), and returns the
# losses of these queries, of shape (b,).
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
    """ListNet's loss: the cross entropy between the softmax of the labels and the softmax of the scores.

    The loss of a query (Cao, Qin, Liu, Tsai and Li 2007) is::

        -sum_j softmax(labels)_j log softmax(scores)_j

    Parameters
    ----------
    scores : Tensor of shape (B, n) or (N,), or nested
        Scores; larger is better. Batches take the same forms as in `sinkprop_loss`.
    labels : Tensor of shape (B, n) or (N,), or nested
        Relevance, one value per document, not below 0.
    lengths : Tensor of shape (B,), optional
        Number of documents at the start of each row of a padded batch.
    mask : Tensor of bool of shape (B, n), optional
        True for a document, False for padding.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order.
    query_weight : Tensor of shape (Q,), optional
        One weight per query. With `qid`, queries are in the order in which their ids first appear.
    reduction : {"mean", "sum", "none"}, default "mean"
        Weighted mean or weighted sum over the queries, or one weighted value per query.
    padding : float, default -1
        Label that marks padding if neither `lengths` nor `mask` is given.

    Returns
    -------
    Tensor
        One number, or one value per query of shape (Q,) with ``reduction="none"``.

    Notes
    -----
    In the softmax of the labels, a label y has the weight exp(y), as in the paper and in allRank.
    `sinkprop.baselines` has ListNet for NumPy arrays, with probabilities of the top two and more documents. A
    query without a relevant document has the loss 0: its target is the uniform distribution, which says
    nothing about its ranking.

    Examples
    --------
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
    """ApproxNDCG's loss: minus the NDCG at smoothed ranks.

    The smoothed rank of document j (Qin, Liu and Li 2010), where s_j is its score, is::

        1 + sum over the other documents i of sigmoid(alpha (s_i - s_j))

    The NDCG has the exponential gain 2^label - 1 and the discount 1/log2(1 + rank).

    Parameters
    ----------
    scores : Tensor of shape (B, n) or (N,), or nested
        Scores; larger is better. Batches take the same forms as in `sinkprop_loss`.
    labels : Tensor of shape (B, n) or (N,), or nested
        Relevance, one value per document, from 0 to below 960.
    lengths : Tensor of shape (B,), optional
        Number of documents at the start of each row of a padded batch.
    alpha : float, default 1.0
        Steepness of the sigmoid, above 0. With a larger value, the smoothed ranks are closer to the true
        ranks, but the gradient is closer to 0 except where scores nearly tie. allRank's default is 1,
        TensorFlow Ranking's is 10.
    mask : Tensor of bool of shape (B, n), optional
        True for a document, False for padding.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order.
    query_weight : Tensor of shape (Q,), optional
        One weight per query. With `qid`, queries are in the order in which their ids first appear.
    reduction : {"mean", "sum", "none"}, default "mean"
        Weighted mean or weighted sum over the queries, or one weighted value per query.
    padding : float, default -1
        Label that marks padding if neither `lengths` nor `mask` is given.

    Returns
    -------
    Tensor
        One number, or one value per query of shape (Q,) with ``reduction="none"``. A query without a relevant
        document has the loss 0.

    Examples
    --------
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
    """Pairwise logistic loss with the weights of LambdaRank, NDCG-Loss2, NDCG-Loss2++ or RankNet.

    The loss of a query (Wang, Li, Golbandi, Bendersky and Najork 2018) is::

        sum over the pairs with label_i > label_j of weight_ij log2(1 + exp(-sigma (s_i - s_j)))

    where s_i is the score of document i. Let rank_i be its rank by the current scores, let G_i be its gain
    2^label_i - 1 divided by the query's ideal DCG, and let D(r) = log2(1 + r). The weights, which are not
    differentiated, are::

        "lambdarank"     |G_i - G_j| |1/D(rank_i) - 1/D(rank_j)|, the change in NDCG if i and j are exchanged
        "ndcg-loss2"     |G_i - G_j| (1/D(m) - 1/D(m + 1)) with m = |rank_i - rank_j|
        "ndcg-loss2++"   mu times the weight of "ndcg-loss2" plus that of "lambdarank"
        "ranknet"        1

    Parameters
    ----------
    scores : Tensor of shape (B, n) or (N,), or nested
        Scores; larger is better. Batches take the same forms as in `sinkprop_loss`.
    labels : Tensor of shape (B, n) or (N,), or nested
        Relevance, one value per document, not below 0; below 960 unless `scheme` is "ranknet".
    lengths : Tensor of shape (B,), optional
        Number of documents at the start of each row of a padded batch.
    scheme : {"lambdarank", "ndcg-loss2", "ndcg-loss2++", "ranknet"}, default "lambdarank"
        Weights of the document pairs, as given above.
    k : int, optional
        Truncation for NDCG@k: only pairs with at least one document among the first k count. 1/D(rank) is
        taken as 0 for ranks beyond k, and the ideal DCG sums only the first k ranks. allRank's k requires
        both documents to be among the first k. By default there is no truncation.
    sigma : float, default 1.0
        Steepness of the logistic function, above 0.
    mu : float, default 10.0
        Weight of "ndcg-loss2" within "ndcg-loss2++", above 0.
    mask : Tensor of bool of shape (B, n), optional
        True for a document, False for padding.
    offsets : Tensor of shape (Q + 1,), optional
        For flat scores: query q has the rows ``offsets[q]`` to ``offsets[q + 1]``.
    qid : Tensor of shape (N,), optional
        For flat scores: the query of each row, integers in any order.
    query_weight : Tensor of shape (Q,), optional
        One weight per query. With `qid`, queries are in the order in which their ids first appear.
    reduction : {"mean", "sum", "none"}, default "mean"
        Weighted mean or weighted sum over the queries, or one weighted value per query.
    padding : float, default -1
        Label that marks padding if neither `lengths` nor `mask` is given.

    Returns
    -------
    Tensor
        One number, or one value per query of shape (Q,) with ``reduction="none"``. A query without a relevant
        document has the loss 0.

    Examples
    --------
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
        # For pairs with padding, this makes the difference `more` -inf, and so their weight 0.
        worth = worth.masked_fill(~documents, math.inf)
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
    """Return one factor for each of several document pairs, (R, n), computed from the ranks of the pair.

    The weight of a pair in the loss is its difference of gains times this factor. Row r of the result,
    r = 0, ..., R - 1, is for the pairs of document i[r] of query q[r] with each of the n documents of that
    query.
    """
    # D[r] = log2(1 + r) for r = 0, 1, ...
    D = torch.log2(torch.arange(1, rank.shape[1] + 3, dtype=dtype, device=rank.device))
    if scheme == "lambdarank":
        inverse = (1 / D)[rank]
        if k is not None:
            inverse = inverse.masked_fill(rank > k, 0)
        return (inverse[q, i][:, None] - inverse[q]).abs_()
    # 1 / D[0] is infinite. The clamp makes the value at distance 0 finite: there a document is paired with
    # itself, its gain difference is 0, and 0 times infinity would be NaN.
    apart = (1 / D[:-1] - 1 / D[1:]).clamp(max=1)
    second = apart[(rank[q, i][:, None] - rank[q]).abs_()]
    if scheme == "ndcg-loss2":
        return second
    return mu * second + _exchange(rank, q, i, "lambdarank", k, mu, dtype)


def _gains(y: Tensor, k: int | None) -> Tensor:
    """Gains (b, n) in float64: 2^label - 1 divided by the query's ideal DCG@k; 0 if the ideal DCG is 0."""
    if float(y.max()) >= 960:  # below 960, neither 2^label nor its sums overflow in float64
        raise ValueError(f"labels must be below 960, for 2^label - 1; got {float(y.max())!r}.")
    G = torch.expm1(y * math.log(2))
    ranks = torch.arange(1, G.shape[1] + 1, device=G.device, dtype=G.dtype)
    ideal = (G.sort(dim=1, descending=True).values / torch.log2(1 + ranks))[:, :k].sum(1, keepdim=True)
    return G / torch.where(ideal > 0, ideal, 1)


def _ranks(s: Tensor, documents: Tensor) -> Tensor:
    """Ranks (b, n), 1 for the highest score; ties keep the order of the input, padding comes last."""
    order = s.detach().masked_fill(~documents, -math.inf).argsort(dim=1, descending=True, stable=True)
    ranks = torch.arange(1, s.shape[1] + 1, device=s.device).expand_as(order)
    return torch.zeros_like(order).scatter(1, order, ranks)


def _by_query(values: Tensor, q: Tensor, s: Tensor) -> Tensor:
    """Return the sum of the values of each of the b queries, (b,); q[r] is the query of values[r]."""
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
    scores, labels = floating("scores", scores), as_tensor("labels", labels)
    scores = without_last_axis(scores, flat=offsets is not None or qid is not None)
    layout = layout_of(scores, labels, mask=mask, lengths=lengths, offsets=offsets, qid=qid, padding=padding)
    scores, labels = flat_values(scores), flat_values(labels).to(torch.float64)
    check_scores(scores, layout)
    check_labels(labels, layout)
    s, y, documents = layout.pad(scores), layout.pad(labels), layout.padded_mask()
    if documents is None:
        documents = torch.ones_like(y, dtype=torch.bool)
    # Padding may hold NaN, and differences of huge scores may be infinite. Both would give NaN even when
    # multiplied by a weight of 0, so padding is set to 0 and scores are clamped.
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
