"""Rankings drawn from rank probabilities, with the probability of every document at its position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sinkprop import _native
from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_scores
from sinkprop.objective.rank_distribution import doubly_stochastic
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator, as_relaxation
from sinkprop.policies.doubly_stochastic import as_numbers, rank_probabilities, repaired
from sinkprop.policies.mixture import RankingMixture

__all__ = ["SampledRankings", "sample_rankings"]

_DENSE = 200  # largest number of documents for which all ranks are computed although only k are asked for
_ITERATIONS = 50.5  # of Sinkhorn normalization for longer lists; columns are normalized last


@dataclass(frozen=True, eq=False)
class SampledRankings:
    """Rankings drawn by `sample_rankings`, and their probabilities.

    Attributes
    ----------
    rankings : array of int of shape (size, k)
        Documents of each ranking, best first: indices from 0 to n - 1.
    propensities : array of shape (size, k)
        Probability of each document of a ranking at its rank: matrix[rankings[s, i], i].
    matrix : array of shape (n, k)
        Probability of each document at each rank.
    largest_change : float
        Largest change of an entry of a given matrix, which made its sums equal to 1; 0 for scores and
        mixtures.
    """

    rankings: Integers
    propensities: Floats
    matrix: Floats
    largest_change: float


def sample_rankings(
    source: npt.ArrayLike | RankingMixture,
    size: int = 1,
    *,
    k: int | None = None,
    seed: int | np.random.Generator | None = None,
    relaxation: str | Relaxation = SmoothedIndicator(),  # noqa: B008
) -> SampledRankings:
    """Rankings of one query drawn at random, such that each document has given probabilities of the ranks.

    In every ranking, document j is at rank i with the probability Pi[j, i - 1]. The rankings of one call are
    not independent of each other: together they are closer to Pi than independent ones. Make one call per
    ranking if they must be independent.

    Parameters
    ----------
    source : array of shape (n,), (n, n) or (n, K), or RankingMixture
        Scores of the documents, larger is better; or the matrix Pi of rank probabilities, or its columns of
        the first K ranks; or a mixture, whose rankings are drawn by their weights. Scores get the limit of
        Sinkhorn normalization; with `k` and more than 200 documents, 50 iterations and linear time. A
        matrix whose sums are only about 1, as after a few Sinkhorn iterations, is scaled to sums of 1.
    size : int, default 1
        Number of rankings.
    k : int, optional
        Number of ranks to draw. By default all ranks of `source`.
    seed : int or numpy.random.Generator, optional
        Seed of the draws; the same seed draws the same rankings. By default every call draws others.
    relaxation : str or SmoothedIndicator, default SmoothedIndicator()
        The map from scores to probabilities, or its name, "gaussian" or "laplace". Only scores use it.

    Returns
    -------
    SampledRankings
        Rankings, propensities and the matrix of probabilities.

    Examples
    --------
    >>> drawn = sample_rankings([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [0.0, 0.25, 0.75]], 4, seed=0)
    >>> np.bincount(drawn.rankings[:, 0])  # of the top rank: documents 0 and 1, each twice
    array([2, 2])
    >>> top = sample_rankings([2.0, 1.9, 0.3, 0.1], k=2, seed=0)
    >>> top.rankings.shape, top.matrix.shape
    ((1, 2), (4, 2))
    """
    size = whole("size", size, 1)
    if k is not None:
        k = whole("k", k, 1)
    relaxation = as_relaxation(relaxation)
    rng = np.random.default_rng(seed)
    largest_change = 0.0
    if isinstance(source, RankingMixture):
        matrix = source.matrix()
    elif (numbers := as_numbers(source, "source")).ndim == 1:
        matrix = _limit(numbers, k, relaxation)
    else:
        matrix, largest_change = repaired(rank_probabilities(numbers, "source"))
    n_ranks = matrix.shape[1]
    if k is not None and k > n_ranks:
        raise ValueError(f"k must be at most {n_ranks}, the number of ranks of source; got {k}.")
    matrix = np.ascontiguousarray(matrix[:, :k])
    if isinstance(source, RankingMixture):
        rankings = _terms(source, size, rng)[:, :k]
    else:
        rankings = np.empty((size, matrix.shape[1]), dtype=np.int64)
        _native.draw_rankings(matrix, int(rng.integers(2**63)), rankings)
    propensities = matrix[rankings, np.arange(matrix.shape[1])]
    return SampledRankings(rankings, propensities, matrix, largest_change)


def _limit(scores: Floats, k: int | None, relaxation: Relaxation) -> Floats:
    """Rank probabilities of documents with these scores: of all ranks, or of the first k."""
    if not isinstance(relaxation, SmoothedIndicator):
        raise ValueError(
            f"relaxation must be a SmoothedIndicator, which has one score per document; got {relaxation}. "
            "Pass the matrix doubly_stochastic(scores, relaxation=relaxation) instead of the scores."
        )
    x = as_scores(scores, relaxation.width)
    if k is None or k >= len(x) or len(x) <= _DENSE:
        return repaired(doubly_stochastic(x, relaxation=relaxation))[0]
    top = doubly_stochastic(x, ranks=np.arange(1, k + 1), relaxation=relaxation, n_iter=_ITERATIONS)
    return repaired(top)[0]


def _terms(mixture: RankingMixture, size: int, rng: np.random.Generator) -> Integers:
    """Rankings of a mixture in random order, each as often as its weight times `size`, rounded at random."""
    ends = np.cumsum(mixture.weights)
    points = (rng.random() + np.arange(size)) * (ends[-1] / size)
    chosen = np.minimum(np.searchsorted(ends, points, side="right"), len(ends) - 1)
    drawn: Integers = mixture.rankings[rng.permutation(chosen)].astype(np.int64)
    return drawn
