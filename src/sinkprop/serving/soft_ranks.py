"""Pair potentials of BoltzRank, summed over each document's query without enumerating the pairs.

A hidden unit with direction u compares two documents with features x_j and x_k by a sigmoid phi,

    psi(x_j, x_k) = phi(u (x_j - x_k)),    phi(t) = sign(t) (1 - exp(-|t|)),    phi'(t) = exp(-|t|),

and the unit's value for a document is the mean of psi over the other documents of its query. This is the
document's rank among them by u x, from -1 at the bottom to 1 at the top, smoothed between documents whose u x
differ by less than 1. Let a_1 >= ... >= a_m be the sorted values u x of a query. Since phi has exponential
tails, the sum of phi over the query is

    sum_k phi(a_i - a_k) = (m - i) - (i - 1) + L_i - R_i,
    L_i = exp(a_i - a_(i-1)) (L_(i-1) + 1),    R_i = exp(a_(i+1) - a_i) (R_(i+1) + 1),    L_1 = R_m = 0.

L_i is the sum of exp(-|a_i - a_k|) over the documents k before i, and R_i is the same sum over the documents
k after i. So the m^2 pairs of a query cost one sort and two sweeps over its documents, from the top for L and
from the bottom for R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import ranking

__all__ = ["SoftRanks", "pair_scores"]


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Arrays that `SoftRanks.forward` returns because `SoftRanks.reverse` needs them.

    There are N documents and H hidden units. For each unit with direction u, the queries follow one another,
    and the documents of a query are sorted by decreasing a = u x, where x are the features.

    rows         (N, H) original row of each sorted document.
    decays       (N, 2 H) factors exp(a_i - a_(i-1)) of the sweep from the top, then exp(a_(i+1) - a_i) of the
                 sweep from the bottom. Rows are in the packed order that `SoftRanks.__init__` explains.
    kernel_sums  (N, H) sum_k exp(-|a_i - a_k|) over the documents k of the query of document i.
    """

    rows: Integers
    decays: Floats
    kernel_sums: Floats


class SoftRanks:
    """Soft ranks of the documents in each query, for any number of hidden units.

    A soft rank is a smooth function of the values a of a query's documents, from -1 for a document far below
    all others to 1 for one far above them; see `forward`.

    offsets  (Q + 1,) first row of each query; rows are sorted by query.

    The soft ranks are computed by two passes over the sorted documents, one from the top and one from the
    bottom. Each step of a pass handles one document of every query, for all units: the first documents, then
    the second ones, and so on. So the number of steps is the size of the longest query.

    >>> F, _ = SoftRanks(np.array([0, 3])).forward(np.array([[0.0], [50.0], [100.0]]))
    >>> F.ravel()
    array([-1.,  0.,  1.])
    """

    def __init__(self, offsets: Integers) -> None:
        sizes = np.diff(offsets)
        self._codes = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        others = np.repeat(sizes - 1, sizes)
        self._above_below = (others - 2 * place).astype(np.float64)[:, None]
        self._share = 1 / np.maximum(others, 1).astype(np.float64)[:, None]
        self._first = offsets[:-1]
        # Packed order: the first documents of all queries, then the second ones, and so on, each time with
        # the largest queries first. So the queries with an i-th document are the first few of those with an
        # (i - 1)-th document, in the same order.
        longest_first = np.argsort(-sizes, kind="stable")
        number = np.empty_like(longest_first)
        number[longest_first] = np.arange(len(sizes))
        self._down = np.lexsort((number[self._codes], place))
        self._up = np.lexsort((number[self._codes], others - place))
        ends = np.cumsum(np.bincount(place)).tolist()
        self._steps = list(zip([0, *ends[:-1]], ends, strict=True))

    def forward(self, A: Floats) -> tuple[Floats, _Sorted]:
        """Return the soft ranks F (N, H) of each document and hidden unit, and the arrays for `reverse`.

        The soft rank of document j is the mean of phi(a_j - a_k) over the other documents k of its query,
        where phi(t) = sign(t) (1 - exp(-|t|)). A (N, H) holds the values a of each document and unit.
        """
        H = A.shape[1]
        rows = np.stack([ranking(column, self._codes).rows for column in A.T], axis=1)
        a = np.take_along_axis(A, rows, axis=0)
        # Within a query, the differences are at most 0. The minimum prevents overflow where two queries meet;
        # there, the next line replaces the result.
        e = np.exp(np.minimum(np.diff(a, axis=0, prepend=a[:1]), 0.0))
        e[self._first] = 0
        from_below = np.concatenate([e[1:], np.zeros((1, H))])
        decays = np.concatenate([e[self._down], from_below[self._up]], axis=1)
        down, up = self._swept(decays, np.ones_like(a))
        sums = (self._above_below + down - up) * self._share
        # Documents of equal a have equal sums except for rounding, so all of them take the sum of the first.
        tied = np.concatenate([np.zeros((1, H), dtype=bool), a[1:] == a[:-1]])
        tied[self._first] = False
        first = np.maximum.accumulate(np.where(tied, 0, np.arange(len(a))[:, None]), axis=0)
        sums = np.take_along_axis(sums, first, axis=0)
        out = np.empty_like(A)
        np.put_along_axis(out, rows, sums, axis=0)
        return out, _Sorted(rows, decays, down + up - 1)

    def reverse(self, state: _Sorted, F_bar: Floats) -> Floats:
        """Return the gradient df/da (N, H) of a function f of the soft ranks F, given F_bar = df/dF (N, H).

        `state` is the second result of `forward`. Since phi'(t) = e^(-|t|), the derivative df/da_j is
        sum_k e^(-|a_j - a_k|) (F_bar_j - F_bar_k) / (m - 1), where k runs over the m documents of the query.
        """
        weights = np.take_along_axis(F_bar, state.rows, axis=0) * self._share
        down, up = self._swept(state.decays, weights)
        sums = weights * state.kernel_sums - (down + up - weights)
        out = np.empty_like(F_bar)
        np.put_along_axis(out, state.rows, sums, axis=0)
        return out

    def _swept(self, decays: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return two sums of w_k exp(-|a_i - a_k|) for each document i and unit, each sum of shape (N, H).

        The documents of each query are sorted by decreasing a. The first sum is over the documents k of the
        query of i from the top down to i, and the second over those from the bottom up to i. Each includes i.

        decays   `decays` of `_Sorted`: the factors exp(-|a_i - a_k|) of neighboring documents.
        weights  (N, H) weights w of the sorted documents.
        """
        H = weights.shape[1]
        packed = np.concatenate([weights[self._down], weights[self._up]], axis=1)
        carried = np.empty_like(decays[: self._steps[0][1]])
        last = 0
        for first, end in self._steps[1:]:
            n = end - first
            np.multiply(packed[last : last + n], decays[first:end], out=carried[:n])
            packed[first:end] += carried[:n]
            last = first
        down, up = np.empty_like(weights), np.empty_like(weights)
        down[self._down], up[self._up] = packed[:, :H], packed[:, H:]
        return down, up


def pair_scores(scores: Floats, a: Floats, strengths: Floats, groups: Groups) -> Floats:
    """Scores (N,) of documents, to which the values of the hidden units are added in place.

    a          (N, H) value u x of each document and hidden unit, or (N,) for one unit.
    strengths  (H,) weights of the hidden units in the score.
    """
    rows: Any = slice(None) if groups.rows is None else groups.rows
    found, _ = SoftRanks(groups.offsets).forward(a.reshape(len(a), -1)[rows])
    scores[rows] += found @ strengths
    return scores
