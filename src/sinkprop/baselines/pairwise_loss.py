"""The pairwise logistic loss of RankNet and its first and second derivatives with respect to the scores.

With scores s and row weights w, the loss of a query is the sum

    loss = sum_ij w_i w_j log(1 + exp(s_j - s_i))

over all pairs of its documents (i, j) in which i has the larger label. See Burges et al., *Learning to Rank
using Gradient Descent*, ICML 2005. The time is linear in the number of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sinkprop import _native
from sinkprop.common.types import Floats, Integers

__all__ = ["PairwiseLogistic"]


@dataclass(frozen=True, eq=False)
class PairwiseLogistic:
    """Pairwise logistic loss for given labels, on rows sorted by query.

    The results have the same bits for any number of threads.

    Parameters
    ----------
    y : array of shape (N,)
        Labels. Only their order within a query matters.
    offsets : array of shape (Q + 1,)
        Query q has the rows offsets[q]:offsets[q + 1].
    sample_weight : array of shape (N,), optional
        Row weights. The weight of a pair is their product, so a row of weight 2 counts as two rows.
    query_weight : array of shape (Q,), optional
        Weight of the pairs of each query.

    Examples
    --------
    >>> loss = PairwiseLogistic(np.array([0.0, 2.0, 2.0]), np.array([0, 3]))
    >>> loss.n_pairs, loss.values(np.zeros(3)).round(4)
    (2, array([1.3863]))
    >>> gradient, hessian = loss.derivatives(np.zeros(3))
    >>> gradient, hessian
    (array([ 1. , -0.5, -0.5]), array([0.5 , 0.25, 0.25]))
    """

    y: Floats
    offsets: Integers
    sample_weight: Floats | None = None
    query_weight: Floats | None = None
    _rows: Integers = field(init=False, repr=False)
    _lower: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sizes = np.diff(self.offsets)
        codes = np.repeat(np.arange(len(sizes)), sizes)
        rows = np.lexsort((-self.y, codes)).astype(np.int64)  # by query, then by decreasing label
        labels = self.y[rows]
        # A run is a sequence of rows of one query with equal labels. The query's documents with lower labels
        # begin where the run ends.
        begins = np.ones(len(rows), dtype=bool)
        begins[1:] = (labels[1:] != labels[:-1]) | (codes[1:] != codes[:-1])
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(rows))
        lower = np.repeat(ends, ends - starts) - np.repeat(self.offsets[:-1], sizes)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_lower", lower.astype(np.int64))

    @property
    def n_pairs(self) -> int:
        """Number of pairs with different labels, over all queries."""
        return int((np.repeat(np.diff(self.offsets), np.diff(self.offsets)) - self._lower).sum())

    def values(self, scores: Floats, *, n_threads: int = 1) -> Floats:
        """Loss (Q,) of each query, times its weight."""
        out = np.empty(len(self.offsets) - 1)
        _native.pairwise_loss(**self._arguments(scores), n_threads=n_threads, per_query=out)
        return out

    def derivatives(self, scores: Floats, *, n_threads: int = 1) -> tuple[Floats, Floats]:
        """First and second derivatives, (N,) and (N,), of the sum of `values` with respect to each score."""
        gradient, hessian = np.empty(len(self.y)), np.empty(len(self.y))
        _native.pairwise_derivatives(
            **self._arguments(scores), n_threads=n_threads, gradient=gradient, hessian=hessian
        )
        return gradient, hessian

    def _arguments(self, scores: Floats) -> dict[str, Any]:
        return {
            "scores": np.ascontiguousarray(scores, dtype=np.float64),
            "offsets": self.offsets,
            "rows": self._rows,
            "lower": self._lower,
            "sample_weight": self.sample_weight,
            "query_weight": self.query_weight,
        }
