"""ListNet's loss: the cross entropy of two Plackett-Luce models over the first places of each query."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import threads, whole
from sinkprop.common.types import Floats
from sinkprop.data.checks import as_labels, as_query_weight, as_scores
from sinkprop.data.queries import Groups, group_rows
from sinkprop.objective.expected_gain import scale_queries
from sinkprop.objective.gains import NDCG

__all__ = ["ListNetLoss", "listnet_loss"]

LabelGain = Literal["linear", "exponential"]

MOST_STEPS = 1e8  # a second or so; past it an evaluation is not what anyone meant


@dataclass(frozen=True)
class ListNetLoss:
    """ListNet's loss and its gradient.

    value      mean over the queries, weighted where query weights were given
    per_query  (Q,) one value a query, in the order of `queries`
    gradient   (N,) d value / d scores, in the row order of the scores
    queries    (Q,) query ids, by first appearance
    """

    value: float
    per_query: Floats
    gradient: Floats
    queries: NDArray[Any]


def listnet_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    *,
    top_k: int = 1,
    gain: LabelGain = "linear",
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    n_threads: int | None = None,
) -> ListNetLoss:
    """Cross entropy of the labels' and the scores' top-k probabilities, and its gradient in the scores.

    A Plackett-Luce model draws documents one after another, each with a probability proportional to the
    exponential of its score among those that are left. The loss of a query is

        - sum over ordered k-tuples of documents of P(tuple; labels) log P(tuple; scores)

    (Cao, Qin, Liu, Tsai and Li 2007). A query of fewer than k documents is drawn to its end; one document
    has no loss. Time is linear in the documents for k = 1 and k = 2, and grows by a factor of a query's size
    with each further k: an error asks for a smaller k past 10^8 steps. Scores may be of any size;
    differences beyond 1e300 count as that.

    scores        (N,) finite; larger is better
    labels        (N,) relevance, not below 0
    qid           (N,) the query of each row, any hashable ids in any order; None makes one query of all rows
    top_k         k, at least 1
    gain          what of a label is the target's score: "linear", the label, as in the paper, or
                  "exponential", 2^label - 1
    query_weight  (Q,) query weights in order of first appearance, (N,) by row, or {id: weight}: the value is
                  the weighted mean. `per_query` is without them
    n_threads     see `expected_gain`

    >>> r = listnet_loss([0.2, 1.5, 0.3], [2, 0, 1])
    >>> round(r.value, 4), r.gradient.round(4)
    (1.6119, array([-0.4921,  0.5454, -0.0533]))
    """
    k = whole("top_k", top_k, 1)
    x = as_scores(scores, 1)
    groups = group_rows(qid, len(x))
    target = target_scores(as_labels(labels, len(x)), gain)
    weight = None if query_weight is None else as_query_weight(query_weight, groups, len(x))
    check_steps(k, groups)
    per_query, gradient = evaluate_listnet(x, target, groups, k, threads(n_threads, len(x)))
    value = weighted_mean(per_query, gradient, groups, weight)
    return ListNetLoss(value, per_query, gradient, groups.queries)


def target_scores(labels: Floats, gain: str) -> Floats:
    """The scores whose Plackett-Luce model is the target, (N,)."""
    if gain not in get_args(LabelGain):
        raise ValueError(f"gain must be 'linear' or 'exponential'; got {gain!r}.")
    return labels if gain == "linear" else NDCG(gain=cast(LabelGain, gain)).gains(labels)


def check_steps(k: int, groups: Groups) -> None:
    """Fail where the loss would take absurdly long: n (n - 1) ... (n - k + 2) steps a query for k > 2."""
    if k <= 2:
        return
    sizes = groups.sizes.astype(np.float64)
    steps = sizes.copy()
    for i in range(1, min(k - 1, groups.longest)):
        steps *= np.maximum(sizes - i, 1)
        if steps.sum() > MOST_STEPS:
            raise ValueError(
                f"top_k = {k} takes more than {MOST_STEPS:.0e} steps an evaluation where the largest query "
                f"has {groups.longest} documents: a factor of a query's size with each k past 2. Give a "
                "smaller top_k; 1 and 2 take linear time."
            )


def evaluate_listnet(
    x: Floats, target: Floats, groups: Groups, k: int, n_threads: int
) -> tuple[Floats, Floats]:
    """The loss of each query (Q,) and the gradient of their mean (N,), of checked arrays."""
    per_query, gradient = np.empty(len(groups.queries)), np.empty_like(x)
    # past the longest query there is nothing left to draw
    k = min(k, groups.longest)
    _native.listnet(
        x,
        offsets=groups.offsets,
        rows=groups.rows,
        target=target,
        k=k,
        n_threads=n_threads,
        per_query=per_query,
        gradient=gradient,
    )
    return per_query, gradient


def weighted_mean(per_query: Floats, gradient: Floats, groups: Groups, weight: Floats | None) -> float:
    """The mean loss; the gradient is changed, in place, from that of the plain mean to that of this one."""
    # fsum is exact, so the mean does not depend on how NumPy splits a sum
    if weight is None:
        return math.fsum(per_query) / len(per_query)
    shares = weight / math.fsum(weight)
    scale_queries(gradient, shares * len(shares), groups)
    return math.fsum(shares * per_query)
