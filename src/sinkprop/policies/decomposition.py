"""The Birkhoff-von Neumann decomposition: a doubly-stochastic matrix as a mixture of rankings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Mask, Positions
from sinkprop.policies.doubly_stochastic import rank_probabilities, repaired
from sinkprop.policies.mixture import RankingMixture

__all__ = ["birkhoff"]


def birkhoff(Pi: npt.ArrayLike, *, tol: float = 1e-9, max_terms: int | None = None) -> RankingMixture:
    """Birkhoff-von Neumann decomposition: rankings and weights whose mixture has the rank probabilities Pi.

    Each step takes the ranking whose least probable document has the largest probability, as often as that
    entry permits, and subtracts it. The first rankings have most of the weight: for n documents, typically
    some hundred of them have all but .001 of it, and about 8 n leave less than the default `tol`.

    Parameters
    ----------
    Pi : array of shape (n, n)
        Pi[j, k - 1] is the probability that document j is at rank k. If its row and column sums are only
        about 1, as after a few Sinkhorn iterations, the limit of the iterations is decomposed.
    tol : float, default 1e-9
        The decomposition ends once the weights sum to more than 1 - tol.
    max_terms : int, optional
        Largest number of rankings. By default there is no limit.

    Returns
    -------
    RankingMixture
        The rankings in the order in which they were found, the larger weights first, and their weights,
        divided by their sum. `remainder` is the weight that was left before this division, and
        `largest_change` the largest change of an entry of Pi by the scaling of its sums to 1.

    Examples
    --------
    >>> mixture = birkhoff([[0.6, 0.4, 0.0], [0.4, 0.3, 0.3], [0.0, 0.3, 0.7]])
    >>> mixture.rankings
    array([[1, 0, 2],
           [0, 2, 1],
           [0, 1, 2]])
    >>> mixture.weights.round(3)
    array([0.4, 0.3, 0.3])
    """
    P = rank_probabilities(Pi, "Pi")
    if P.shape[0] != P.shape[1]:
        raise ValueError(f"Pi must be a square matrix; got shape {P.shape}. Pass the columns of all ranks.")
    tol = number("tol", tol, above=True, below=1.0)
    most = len(P) ** 2 if max_terms is None else whole("max_terms", max_terms, 1)
    matrix, largest_change = repaired(P)

    rest, rank, bound = matrix.copy(), np.arange(len(P)), 1.0
    weights: list[float] = []
    rankings: list[Positions] = []
    remainder = 1.0
    while remainder > tol and len(weights) < most:
        ranking = _bottleneck(rest, bound)
        if ranking is None:  # the rest consists of rounding errors
            break
        bound = float(rest[ranking, rank].min())
        rest[ranking, rank] -= bound
        remainder -= bound
        weights.append(bound)
        rankings.append(ranking)
    found = np.array(weights)
    return RankingMixture(
        found / found.sum(),
        np.array(rankings),
        len(P),
        remainder=max(remainder, 0.0),
        largest_change=largest_change,
    )


def _bottleneck(rest: Floats, bound: float) -> Positions | None:
    """Ranking whose smallest entry rest[ranking[k], k] is largest, if that is not above `bound`.

    Returns None if every ranking has a zero entry. A threshold is possible if the entries that reach it
    contain a ranking. The search starts at the upper bound, because that is often close.
    """
    bound = min(bound, float(rest.max(axis=0).min()), float(rest.max(axis=1).min()))
    high, drop, threshold = bound, 1 / 64, bound
    while (best := _matching(rest >= threshold)) is None:
        if drop > 1:
            return None
        high, drop = threshold, 2 * drop
        threshold = max(bound * (1 - drop), np.finfo(np.float64).tiny)
    rank = np.arange(len(rest))
    while True:
        low = rest[best, rank].min()
        between = rest[(rest > low) & (rest < high)]
        if high <= low or not between.size:
            return best
        threshold = np.partition(between, between.size // 2)[between.size // 2]
        ranking = _matching(rest >= threshold)
        if ranking is None:
            high = threshold
        else:
            best = ranking


def _matching(possible: Mask) -> Positions | None:
    """Ranking whose entries are all possible, or None if there is none."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    match: Positions = maximum_bipartite_matching(csr_matrix(possible), perm_type="row").astype(np.intp)
    return None if np.any(match < 0) else match
