"""ListNet's loss: the cross entropy of two Plackett-Luce models over the first ranks of each query."""

from __future__ import annotations

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
from sinkprop.objective.exact_sum import exact_sum
from sinkprop.objective.expected_gain import scale_queries
from sinkprop.objective.gains import NDCG

__all__ = ["ListNetLoss", "listnet_loss"]

LabelGain = Literal["linear", "exponential"]

# An evaluation of this many steps takes about a second. A slower one is probably a mistake, so `check_steps`
# raises an error.
MOST_STEPS = 1e8


@dataclass(frozen=True)
class ListNetLoss:
    """ListNet's loss and its gradient.

    Parameters
    ----------
    value : float
        Mean over the queries, weighted if query weights were given.
    per_query : array of shape (Q,)
        One value per query, in the order of `queries`.
    gradient : array of shape (N,)
        Derivatives d value / d scores, in the row order of the scores.
    queries : array of shape (Q,)
        Query ids, in order of first appearance.
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
    """Cross entropy of the labels' and the scores' top-k probabilities, and its gradient.

    A Plackett-Luce model draws documents one after another from those that are left, each with a probability
    proportional to the exponential of its score. The loss of a query is ::

        - sum over ordered k-tuples of documents of P(tuple; labels) log P(tuple; scores)

    (Cao, Qin, Liu, Tsai and Li 2007). If a query has fewer than k documents, all of them are drawn; a query
    of one document has no loss. For k = 1 and k = 2, the time is linear in the number of documents. For
    larger k, a query of n documents takes n (n - 1) ... (n - k + 2) steps, and a ValueError is raised if all
    queries together take more than 10^8 steps. Scores may have any magnitude; differences of scores beyond
    1e300 count as 1e300.

    Parameters
    ----------
    scores : array of shape (N,)
        Finite scores; larger is better.
    labels : array of shape (N,)
        Labels: the relevance of each document, 0 or more.
    qid : array of shape (N,), optional
        Query id of each row: any hashable values, in any order. None puts all rows in one query.
    top_k : int, default 1
        Number of first ranks, k.
    gain : {"linear", "exponential"}, default "linear"
        Score of a document in the model of the labels: its label, as in the paper, or 2^label - 1.
    query_weight : array of shape (Q,) or (N,), or mapping, optional
        Query weights of the mean: one per query in order of first appearance, one per row, or {id: weight}.
        They do not change `per_query`.
    n_threads : int, optional
        Number of threads; see `expected_gain`.

    Returns
    -------
    ListNetLoss
        The loss and its gradient.

    Examples
    --------
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
    """Scores (N,) that define the Plackett-Luce model of the labels, from the labels (N,)."""
    if gain not in get_args(LabelGain):
        raise ValueError(f"gain must be 'linear' or 'exponential'; got {gain!r}.")
    return labels if gain == "linear" else NDCG(gain=cast(LabelGain, gain)).gains(labels)


def check_steps(k: int, groups: Groups) -> None:
    """Raise a ValueError if an evaluation of the loss would take more than `MOST_STEPS` steps.

    k is the number of first ranks in the loss. For k > 2, a query of n documents takes
    n (n - 1) ... (n - k + 2) steps. For k = 1 and k = 2, the time is linear in n, and no error is raised.
    """
    if k <= 2:
        return
    sizes = groups.sizes.astype(np.float64)
    steps = sizes.copy()
    for i in range(1, min(k - 1, groups.longest)):
        steps *= np.maximum(sizes - i, 1)
        if steps.sum() > MOST_STEPS:
            raise ValueError(
                f"top_k = {k} takes more than {MOST_STEPS:.0e} steps per evaluation, since the largest query "
                f"has {groups.longest} documents: each k beyond 2 multiplies the steps by a query's size. "
                "Give a smaller top_k; 1 and 2 take linear time."
            )


def evaluate_listnet(
    x: Floats, target: Floats, groups: Groups, k: int, n_threads: int
) -> tuple[Floats, Floats]:
    """Return the loss of each query, (Q,), and the gradient (N,) of the mean loss.

    The arguments must have been checked.

    x       (N,) scores, with respect to which the gradient is computed.
    target  (N,) scores that define the model of the labels; see `target_scores`.
    groups  The rows of each query.
    k       Number of first ranks in the loss.
    """
    per_query, gradient = np.empty(len(groups.queries)), np.empty_like(x)
    # beyond the size of the longest query, there are no documents left to draw
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
    """Mean of the losses, weighted by `weight`.

    `gradient` holds the gradient of the unweighted mean. It is changed in place to that of the weighted mean.
    """
    # the mean does not depend on how NumPy splits a sum
    if weight is None:
        return exact_sum(per_query) / len(per_query)
    shares = weight / exact_sum(weight)
    scale_queries(gradient, shares * len(shares), groups)
    return exact_sum(shares * per_query)
