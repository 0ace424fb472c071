"""A single ranking from a doubly-stochastic matrix.

Pi[j, k] is the probability that document j is at rank k. The likeliest ranking maximizes
sum_k ln Pi[s[k], k], where s[k] is the document at rank k. Finding it is an assignment problem, which takes
time cubic in the number of documents. The shortcut of Adams and Zemel sorts all documents by expected rank
and solves the assignment problem for the first ones only.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import one_of, whole
from sinkprop.common.types import Floats, Positions
from sinkprop.objective.assignment import largest_assignment
from sinkprop.objective.sinkhorn import nonnegative_square

__all__ = ["choose_permutation"]

Method = Literal["shortcut", "hungarian", "sort"]


def choose_permutation(Pi: npt.ArrayLike, method: Method = "shortcut", *, top: int = 200) -> Positions:
    """Choose one ranking from a matrix of rank probabilities.

    Parameters
    ----------
    Pi : array of shape (n, n)
        Rows are documents, columns are ranks; finite and nonnegative.
    method : {"shortcut", "hungarian", "sort"}, default "shortcut"
        "hungarian" maximizes sum_k ln Pi[s[k], k], where s[k] is the document at rank k. If zero entries of
        Pi cannot be avoided, it uses as few of them as possible, then makes the sum over the other entries as
        large as possible. "sort" orders the documents j by their expected ranks sum_k k Pi[j, k]; ties are in
        input order. "shortcut" sorts, then reorders the first `top` documents among the first `top` ranks by
        the Hungarian algorithm.
    top : int, default 200
        Number of documents that "shortcut" reorders. With ``top >= n`` it maximizes the same sum as
        "hungarian".

    Returns
    -------
    array of int of shape (n,)
        Document indices, best first: ``s[0]`` is the document at the top rank.

    Examples
    --------
    >>> Pi = [[0.5, 0.0, 0.5], [0.4, 0.5, 0.1], [0.1, 0.5, 0.4]]
    >>> choose_permutation(Pi, "sort")  # expected ranks 2.0, 1.7, 2.3
    array([1, 0, 2])
    >>> choose_permutation(Pi, "hungarian")  # 0.5 * 0.5 * 0.4
    array([0, 1, 2])
    """
    P = nonnegative_square(Pi, "Pi")
    one_of("method", method, get_args(Method))
    top = whole("top", top, 1)

    if method == "hungarian":
        return _assignment(P)
    order = np.argsort(_expected_rank(P), kind="stable")
    if method == "shortcut":
        head = order[:top]
        order[:top] = head[_assignment(P[head, :top])]
    return order


def _expected_rank(P: Floats) -> Floats:
    """Expected ranks sum_k k P[j, k], divided by the largest entry of P if that is above 1.

    A matrix product could round equal rows differently. It is not used, so equal rows of P have exactly equal
    expected ranks.
    """
    rank = np.arange(1.0, P.shape[1] + 1.0)
    scale = max(1.0, float(P.max()))
    with np.errstate(under="ignore"):
        expected: Floats = (P / scale * rank).sum(axis=1)
    return expected


def _assignment(P: Floats) -> Positions:
    """Assign one row to each column, and return the row of each column.

    The assignment uses as few zero entries of P as possible and, among such assignments, maximizes the sum of
    the logarithms of the other entries.
    """
    positive = P > 0.0
    log_P = np.log(P, where=positive, out=np.zeros_like(P))
    if not positive.all():
        # The logarithm of a zero entry is replaced by a finite number. It is so low that an assignment with
        # one more zero entry always has the smaller sum, however large its other logarithms are.
        logs = log_P[positive]
        low, high = (float(logs.min()), float(logs.max())) if logs.size else (0.0, 0.0)
        log_P[~positive] = low - len(P) * (high - low) - 1.0
    order = np.empty(len(P), dtype=np.intp)
    order[largest_assignment(log_P)] = np.arange(len(P))
    return order
