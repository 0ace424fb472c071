"""Rank probabilities given that some documents are at some ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sinkprop.common.types import Floats
from sinkprop.permutations.beliefs import BeliefMatrix
from sinkprop.policies.doubly_stochastic import rank_probabilities

__all__ = ["condition"]


def condition(Pi: npt.ArrayLike, document: int | Sequence[int], rank: int | Sequence[int]) -> Floats:
    """Rank probabilities given that a document is at a rank, or several documents at several ranks.

    The entry becomes 1, the others of its row and column 0, and Sinkhorn normalization restores the other
    sums. For the distribution over rankings s that is proportional to the product of the entries
    Pi[s(k), k - 1], this is the exact condition, in any order of the observations; see `BeliefMatrix`.

    Parameters
    ----------
    Pi : array of shape (n, n)
        Probability of each document (row) at each rank (column). Sums that are only about 1, as after a few
        Sinkhorn iterations, are scaled to 1.
    document : int or sequence of int
        Documents that were observed, from 0.
    rank : int or sequence of int
        Their ranks, from 1.

    Returns
    -------
    array of shape (n, n)
        The conditional rank probabilities.

    Examples
    --------
    >>> condition([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]], 0, 1).round(4)
    array([[1.    , 0.    , 0.    ],
           [0.    , 0.6667, 0.3333],
           [0.    , 0.3333, 0.6667]])
    """
    P = rank_probabilities(Pi, "Pi")
    if P.shape[0] != P.shape[1]:
        raise ValueError(f"Pi must be a square matrix; got shape {P.shape}. Pass the columns of all ranks.")
    documents, ranks = np.atleast_1d(document).tolist(), np.atleast_1d(rank).tolist()
    if np.ndim(document) > 1 or np.ndim(document) != np.ndim(rank) or len(documents) != len(ranks):
        raise ValueError(
            f"document and rank must be two numbers, or two sequences of the same length; got {document!r} "
            f"and {rank!r}."
        )
    belief = BeliefMatrix(P)
    for j, k in zip(documents, ranks, strict=True):
        belief = belief.observe(j, k)
    return belief.matrix.copy()
