"""A finite mixture of rankings: permutations with weights that sum to 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Positions

__all__ = ["RankingMixture"]


@dataclass(frozen=True, eq=False)
class RankingMixture:
    """Rankings of the same documents, each with the probability of being shown.

    Attributes
    ----------
    weights : array of shape (M,)
        Probabilities of the rankings; above 0, with sum 1.
    rankings : array of int of shape (M, K)
        Documents of each ranking, best first: indices from 0 to n_documents - 1. K is n_documents, or the
        number of ranks that are shown.
    n_documents : int
        Number of documents.
    remainder : float, default 0.0
        Weight that was left undistributed by the decomposition of a matrix, before the weights were divided
        by their sum.
    largest_change : float, default 0.0
        Largest change of an entry of that matrix before its decomposition, which made its sums equal to 1.
    """

    weights: Floats
    rankings: Positions
    n_documents: int
    remainder: float = 0.0
    largest_change: float = 0.0

    def matrix(self) -> Floats:
        """Probability of each document at each rank.

        Returns
        -------
        array of shape (n_documents, K)
            The matrix sum_m weights[m] P_m, where P_m is the permutation matrix of ranking m.
        """
        n_ranks = self.rankings.shape[1]
        cells = self.rankings * n_ranks + np.arange(n_ranks)
        weights = np.broadcast_to(self.weights[:, None], cells.shape)
        total = np.bincount(cells.ravel(), weights.ravel(), self.n_documents * n_ranks)
        return np.asarray(total, dtype=np.float64).reshape(self.n_documents, n_ranks)
