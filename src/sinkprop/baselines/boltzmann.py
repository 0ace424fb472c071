"""The Boltzmann distribution over a fixed set of rankings per query (Volkovs and Zemel 2009).

The energy of a ranking R, which puts document j at rank r_j, given the scores s of m documents, is

    E(R | s) = 2 / (m (m - 1)) sum_(r_j < r_k) g(r_k - r_j) (s_k - s_j)

with any function g that is positive for x > 0. The probability of the ranking is exp(-E(R | s)) / Z, where Z
is the sum of exp(-E) over the rankings. Collecting the terms of each document gives

    E(R | s) = sum_j c(r_j) s_j,    c(r) = 2 / (m (m - 1)) (G(r - 1) - G(m - r)),    G(n) = g(1) + ... + g(n).

So a set of rankings is a matrix of coefficients, and a single product gives the energies of all of them. c
increases with the rank, so the most probable ranking is the order of the scores, for any g. There are m!
rankings, too many to sum over, so Z is approximated by the sum over a fixed set of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.objective.gains import RankLinearGain

__all__ = ["BoltzmannObjective", "BoltzmannValue", "draw_rankings", "rank_coefficients", "unit_coefficients"]


def rank_coefficients(m: int, g: Callable[[Floats], Floats] | None = None) -> Floats:
    """Return the coefficients c(1), ..., c(m) of the energy of a ranking of m documents.

    The energy is sum_j c(r_j) s_j, where document j has rank r_j and score s_j. The coefficient of rank r is
    c(r) = 2 / (m (m - 1)) times (the sum of g(r - k) over all ranks k < r, minus the sum of g(k - r) over all
    ranks k > r). If m is 1, c(1) is 0.

    m  Number of documents.
    g  Positive function, called with the array of rank differences 1.0, ..., m - 1. None means g(x) = x.

    >>> rank_coefficients(3)
    array([-1.,  0.,  1.])
    >>> rank_coefficients(4, np.square).round(4)
    array([-2.3333, -0.6667,  0.6667,  2.3333])
    """
    if m == 1:
        return np.zeros(1)
    differences = np.arange(1, m, dtype=np.float64)
    G = np.concatenate([[0.0], np.cumsum(differences if g is None else g(differences))])
    c: Floats = 2 / (m * (m - 1)) * (G - G[::-1])
    return c


def unit_coefficients(m: int) -> Floats:
    """Return `rank_coefficients(m)`, scaled so that energies have the same variance as scores.

    The variance of scores is over the m documents of a query, and the variance of energies is over all m!
    rankings of these documents. So the same spread of scores makes the distribution over rankings equally far
    from uniform for queries of any size.

    >>> unit_coefficients(2), unit_coefficients(1)
    (array([-0.5,  0.5]), array([0.]))
    """
    c = rank_coefficients(m)
    # Since c sums to 0, the energy sum_j c(r_j) s_j has the variance A B / (m - 1) over all rankings, where A
    # is the sum of the squares of c, and B the sum of the squares of s - mean(s).
    return c / math.sqrt(float(c @ c) * m / (m - 1)) if m > 1 else c


def draw_rankings(y: Floats, n_rankings: int, rng: np.random.Generator) -> Integers:
    """Rankings of documents with labels y (m,), as ranks (K, m) that start at 0.

    If there are at most `n_rankings` rankings, the result holds all m! of them. Otherwise the first is an
    ideal ranking, with documents of equal labels in random order, and the others are drawn uniformly.

    >>> draw_rankings(np.array([0.0, 2.0]), 10, np.random.default_rng(0)).tolist()
    [[0, 1], [1, 0]]
    """
    m = len(y)
    if m <= 12 and math.factorial(m) <= n_rankings:
        return np.array(list(permutations(range(m))), dtype=np.int64)
    ranks = np.argsort(rng.random((n_rankings, m)), axis=1)
    ranks[0, np.lexsort((ranks[0], -y))] = np.arange(m)
    return ranks


@dataclass(frozen=True, eq=False)
class BoltzmannValue:
    """Value and gradient of BoltzRank's objective. The first three fields are means over the queries.

    P is the Boltzmann distribution that the scores define. T is the one that results if the labels are used
    as scores.

    value          mixing * expected_gain - (1 - mixing) * divergence.
    expected_gain  Expected gain under P.
    divergence     KL(T || P).
    gradient       (N,) gradient of `value` with respect to the scores.
    """

    value: float
    expected_gain: float
    divergence: float
    gradient: Floats


@dataclass(frozen=True, eq=False)
class _Batch:
    """The B queries of one size m, with K rankings each.

    rows        (B, m) rows of each query.
    C           (B, K, m) coefficient of each document's score in the energy of each ranking.
    gains       (B, K) gain of each ranking.
    log_target  (B, K) log probability of each ranking under T, the distribution with the labels as scores.
    shares      (B,) weights of the queries in the mean; they sum to 1 over all batches.
    """

    rows: Integers
    C: Floats
    gains: Floats
    log_target: Floats
    shares: Floats


class BoltzmannObjective:
    """BoltzRank's objective for the scores of the documents of several queries.

    y             (N,) labels of rows sorted by query.
    offsets       (Q + 1,) first row of each query.
    rankings      Function from the index of a query to its rankings: ranks (K, m), starting at 0, of its m
                  rows. K is the same for queries of the same size.
    gain          Gain whose expectation is computed.
    sharpness     Standard deviation, over all rankings, of the energies of the target distribution, which has
                  the labels as scores. A query whose labels are all equal has a uniform target.
    query_weight  (Q,) weights of the queries in the means.

    The objective stores one number per document of each ranking. An evaluation with its gradient takes twice
    that many multiplications.
    """

    def __init__(
        self,
        y: Floats,
        offsets: Integers,
        rankings: Callable[[int], Integers],
        *,
        gain: RankLinearGain,
        sharpness: float,
        query_weight: Floats | None = None,
    ) -> None:
        self._n = len(y)
        sizes = np.diff(offsets)
        weight = np.ones(len(sizes)) if query_weight is None else query_weight
        shares = weight / (weight.sum() or 1.0)
        self._batches: list[_Batch] = []
        for m in np.unique(sizes):
            c = unit_coefficients(int(m))
            queries = np.flatnonzero(sizes == m)
            ranks = np.stack([rankings(int(q)) for q in queries])
            rows = offsets[queries, None] + np.arange(m)
            C = c[ranks]
            energies = np.matmul(C, sharpness * _standardized(y[rows])[:, :, None])[:, :, 0]
            gains = np.stack([_gains(gain, y[r], R) for r, R in zip(rows, ranks, strict=True)])
            self._batches.append(_Batch(rows, C, gains, _log_softmax(-energies), shares[queries]))

    def __call__(self, scores: Floats, mixing: float) -> BoltzmannValue:
        """Return the objective and its gradient at finite scores (N,).

        mixing  Weight of the expected gain in the objective, from 0 to 1.
        """
        gradient = np.empty(self._n)
        expected_gain = divergence = 0.0
        for batch in self._batches:
            E = np.matmul(batch.C, scores[batch.rows][:, :, None])[:, :, 0]
            log_P = _log_softmax(-E)
            P, T = np.exp(log_P), np.exp(batch.log_target)
            mean = (P * batch.gains).sum(axis=1)
            expected_gain += float(batch.shares @ mean)
            divergence += float(batch.shares @ (T * (batch.log_target - log_P)).sum(axis=1))
            # Derivatives with respect to the energies E: -P (gains - mean) for the expected gain `mean`, and
            # T - P for the divergence KL(T || P), where P and T are the probabilities of the rankings.
            E_bar = -mixing * P * (batch.gains - mean[:, None]) - (1 - mixing) * (T - P)
            E_bar *= batch.shares[:, None]
            gradient[batch.rows] = np.matmul(E_bar[:, None, :], batch.C)[:, 0, :]
        value = mixing * expected_gain - (1 - mixing) * divergence
        return BoltzmannValue(value, expected_gain, divergence, gradient)


def _standardized(y: Floats) -> Floats:
    """Labels (B, m) minus their query's mean, divided by its standard deviation; zeros for equal labels."""
    largest = y.max(axis=1, keepdims=True)
    y = y / np.where(largest > 0, largest, 1.0)  # so that the squares of large labels do not overflow
    y = y - y.mean(axis=1, keepdims=True)
    std = np.sqrt(np.square(y).mean(axis=1, keepdims=True))
    constant = std <= 1e-12
    return np.where(constant, 0.0, y / np.where(constant, 1.0, std))


def _gains(gain: RankLinearGain, y: Floats, ranks: Integers) -> Floats:
    """Gains (K,) of rankings (K, m) of documents with labels y (m,)."""
    m = len(y)
    if not gain.separable:
        classes, D = gain.class_discounts(y, m)
        return np.asarray(D[classes, ranks].sum(axis=1))
    G, D = gain.gains(y), gain.discounts(m)
    values: Floats = D[ranks] @ G
    if not gain.normalized:
        return values
    best = float(np.sort(G)[::-1] @ D)
    return values / best if best > 0 else np.zeros(len(ranks))


def _log_softmax(X: Floats) -> Floats:
    """Logarithm of the softmax of each row of X."""
    X = X - X.max(axis=1, keepdims=True)
    log_P: Floats = X - np.log(np.exp(X).sum(axis=1, keepdims=True))
    return log_P
