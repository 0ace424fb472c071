"""The Boltzmann distribution over rankings, on a fixed set of them for each query (Volkovs and Zemel 2009).

The energy of a ranking R, which puts document j at rank r_j, given the scores s of m documents, is

    E(R | s) = 2 / (m (m - 1)) sum_(r_j < r_k) g(r_k - r_j) (s_k - s_j)

with g(x) > 0 for x > 0, and P(R | s) = exp(-E(R | s)) / Z. Collecting what each document adds,

    E(R | s) = sum_j c(r_j) s_j,    c(r) = 2 / (m (m - 1)) (G(r - 1) - G(m - r)),    G(n) = g(1) + ... + g(n),

so that a set of rankings is a matrix of coefficients, and the energies of all of them one product. c rises
with the rank: the most probable ranking is the sort by scores, whatever g is. Z is a sum over m! rankings; a
fixed set of them stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.objective.gains import Gain

__all__ = ["BoltzmannObjective", "BoltzmannValue", "draw_rankings", "rank_coefficients", "unit_coefficients"]


def rank_coefficients(m: int, g: Callable[[Floats], Floats] | None = None) -> Floats:
    """c(1), ..., c(m), with which the energy of a ranking is sum_j c(r_j) s_j; zeros for one document.

    g  a function of the differences 1.0, ..., m - 1 of ranks, above 0; None for g(x) = x

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
    """`rank_coefficients` of g(x) = alpha x, with which scores of variance 1 have energies of variance 1.

    The variances are those over the query's documents and over all m! rankings: queries of any size are
    then alike in how far scores of a given spread are from saying nothing.

    >>> unit_coefficients(2), unit_coefficients(1)
    (array([-0.5,  0.5]), array([0.]))
    """
    c = rank_coefficients(m)
    # sum_j c(r_j) s_j has the variance sum c^2 sum (s - mean)^2 / (m - 1) over rankings, as c sums to 0
    return c / math.sqrt(float(c @ c) * m / (m - 1)) if m > 1 else c


def draw_rankings(y: Floats, n_rankings: int, rng: np.random.Generator) -> Integers:
    """Ranks (K, m), from 0, of documents with the labels y: all m! rankings where these are no more.

    Otherwise the first is a best one, documents of one label in random order, and the others are drawn
    uniformly.

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
    """mixing * expected_gain - (1 - mixing) * divergence, means over the queries, and its gradient.

    gradient  (N,) of `value` in the scores
    """

    value: float
    expected_gain: float
    divergence: float
    gradient: Floats


@dataclass(frozen=True, eq=False)
class _Batch:
    """The B queries of one size m, with K rankings each."""

    rows: Integers  # (B, m)
    C: Floats  # (B, K, m) coefficients
    gains: Floats  # (B, K)
    log_target: Floats  # (B, K)
    shares: Floats  # (B,) of the queries in the mean


class BoltzmannObjective:
    """BoltzRank's objective for the scores of the documents of several queries.

    y, offsets    (N,) labels of rows that stand query after query, and (Q + 1,) where each begins
    rankings      of the query of a number: ranks (K, m) from 0 of its m rows, no two of a ranking equal; K is
                  the same for queries of one size
    gain          whose expectation is wanted
    sharpness     of the target distribution, that of the labels as scores: the standard deviation of its
                  energies over all rankings. A query whose labels are equal has the uniform distribution
    query_weight  (Q,) weights of the queries in the means

    Memory: one number for each ranking and document. Time: twice that many multiplications.
    """

    def __init__(
        self,
        y: Floats,
        offsets: Integers,
        rankings: Callable[[int], Integers],
        *,
        gain: Gain,
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
        """The value at scores (N,), finite; `mixing` is the weight of the expected gain, 0 to 1."""
        gradient = np.empty(self._n)
        expected_gain = divergence = 0.0
        for batch in self._batches:
            E = np.matmul(batch.C, scores[batch.rows][:, :, None])[:, :, 0]
            log_P = _log_softmax(-E)
            P, T = np.exp(log_P), np.exp(batch.log_target)
            mean = (P * batch.gains).sum(axis=1)
            expected_gain += float(batch.shares @ mean)
            divergence += float(batch.shares @ (T * (batch.log_target - log_P)).sum(axis=1))
            # d mean / dE = -P (gain - mean) and d divergence / dE = T - P
            E_bar = -mixing * P * (batch.gains - mean[:, None]) - (1 - mixing) * (T - P)
            E_bar *= batch.shares[:, None]
            gradient[batch.rows] = np.matmul(E_bar[:, None, :], batch.C)[:, 0, :]
        value = mixing * expected_gain - (1 - mixing) * divergence
        return BoltzmannValue(value, expected_gain, divergence, gradient)


def _standardized(y: Floats) -> Floats:
    """Labels (B, m) less their mean, over their standard deviation; zeros where they are equal."""
    largest = y.max(axis=1, keepdims=True)
    y = y / np.where(largest > 0, largest, 1.0)  # squares of labels of any magnitude are finite
    y = y - y.mean(axis=1, keepdims=True)
    std = np.sqrt(np.square(y).mean(axis=1, keepdims=True))
    constant = std <= 1e-12
    return np.where(constant, 0.0, y / np.where(constant, 1.0, std))


def _gains(gain: Gain, y: Floats, ranks: Integers) -> Floats:
    """The gain (K,) of rankings (K, m) of documents with the labels y (m,)."""
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
    """log(exp(X) / sum(exp(X))) by rows."""
    X = X - X.max(axis=1, keepdims=True)
    log_P: Floats = X - np.log(np.exp(X).sum(axis=1, keepdims=True))
    return log_P
