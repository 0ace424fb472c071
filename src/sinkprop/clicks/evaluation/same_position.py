"""Documents that the log shows at their new ranks: how probable that was, by the propensities of its rankers.

Let document j have the rank k in the new ranking, and n sessions of its query. Some of them are *trusted*:
their ranker draws rankings, and shows j at k with a probability pi > 0, which the log has if it did. Let u be
their number. The other sessions are of rankers that always or never show j at k, or of which this is not
known; in c of them, j is at k. With any g > 0, the chance of an impression of j at k is

    rho = (c + g u) / n           in one of the c sessions,
    rho = (c / g + u) pi / n      in a trusted session.

Given c, the sum of 1 / rho over the impressions has the expectation n if u or c is above 0. For g = pi, this
is the balance heuristic: rho is the propensity of the mixture of all rankers. But pi is unknown if no trusted
session shows j at k, and a g that depends on this causes bias. So g is 1 / (number of documents).

A ranker that does not cover the new ranking is recognized by its mean weight, the mean over sessions of
sum lambda_j / pi over the impressions: it should be the sum of lambda_j over the documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.clicks.evaluation.folds import N_FOLDS, folds_of, sums_by_fold
from sinkprop.clicks.evaluation.targets import Target
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.sequences import sums
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["Chances", "chances_of"]

_CERTAIN = 1 - 1e-9  # propensity from which on no other document can be at this position
_ERRORS = 4.0  # standard errors by which a mean weight differs from its expectation if propensities are wrong


@dataclass(frozen=True, eq=False)
class Chances:
    """The I impressions of counted documents at their new ranks.

    kept         (M,) mask of these impressions of the log.
    chance       (I,) rho.
    counted      (I,) whether it is one of the c impressions.
    estimated    whether u = 0 for all documents.
    shares       (F, N) share of the sessions of each fold in the expected sum of 1 / rho, given c.
    mean_weight  Mean weight of the sessions, as a share of its expectation, if it shows that the propensities
                 are not those of the rankers that made the lists. No session is trusted then. Else None.
    """

    kept: Mask
    chance: Floats
    counted: Mask
    estimated: bool
    shares: Floats
    mean_weight: float | None


def chances_of(log: ClickLog, target: Target, codes: Integers, shown: Integers) -> Chances:
    """Return the impressions at the new ranks and their chances.

    codes  (N,) query of each document.
    shown  (N,) n, the number of sessions of the document's query.
    """
    if log.propensity is None:
        raise ValueError(
            "without a click model, the log needs `propensity`, the probability with which the ranker that "
            "made the list shows each document at its position. Pass model=, an estimate of position bias, "
            "or log propensities: rankings drawn at random, of known probability."
        )
    of_impression = log.sessions
    kept = target.counted[log.rows] & (target.ranks[log.rows] == log.positions)
    rows, sessions, propensity = log.rows[kept], of_impression[kept], log.propensity[kept]
    certain = propensity >= _CERTAIN
    taken = _taken(log, target, codes, of_impression)
    drawn = np.bincount(rows[~certain], minlength=len(codes)) > 0
    weights = _SessionWeights(
        sums(target.weights[rows] / propensity * ~certain, sessions, log.n_sessions),
        taken.free(target.weights * drawn),
        taken.free(target.weights),
    )
    trusted, mean_weight = _trusted(log, weights)
    counted = certain | ~trusted[sessions]
    folds = folds_of(log.n_sessions, N_FOLDS)
    us = np.stack([taken.n_free(trusted & (folds == f)) for f in range(N_FOLDS)])
    cs = sums_by_fold(folds[sessions], rows, counted * 1.0, (N_FOLDS, len(codes)))
    u, c = us.sum(axis=0), cs.sum(axis=0)
    n, size = np.maximum(shown, 1), log.documents.groups.sizes[codes]  # g = 1 / size
    chance = np.where(counted, ((c + u / size) / n)[rows], ((c * size + u) / n)[rows] * propensity)
    shares = np.where(c + u > 0, (cs * size + us) / np.maximum(c * size + u, 1), 1 / N_FOLDS)
    return Chances(kept, chance, counted, not u[target.counted].any(), shares, mean_weight)


@dataclass(frozen=True, eq=False)
class _Taken:
    """Impressions with the propensity 1, where no other document can be.

    sessions   (F,) session of each of them.
    documents  (F,) row of the document whose new rank is at this position.
    codes      (N,) query of each document.
    queries    (S,) query of each session.
    """

    sessions: Integers
    documents: Integers
    codes: Integers
    queries: Integers

    def free(self, values: Floats) -> Floats:
        """Sums (S,) of values (N,) over the documents whose new ranks are free in a session."""
        of_query = sums(values, self.codes, int(self.codes.max()) + 1)[self.queries]
        return of_query - sums(values[self.documents], self.sessions, len(self.queries))

    def n_free(self, chosen: Mask) -> Integers:
        """Number (N,) of chosen sessions (S,) of the query in which the new rank of the document is free."""
        of_query = np.bincount(self.queries[chosen], minlength=int(self.codes.max()) + 1)
        taken = np.bincount(self.documents[chosen[self.sessions]], minlength=len(self.codes))
        n_free: Integers = of_query[self.codes] - taken
        return n_free


def _taken(log: ClickLog, target: Target, codes: Integers, of_impression: Integers) -> _Taken:
    """Impressions of the log with the propensity 1; `of_impression` (M,) has the sessions."""
    starts = log.documents.groups.offsets
    in_order = np.empty(len(codes), np.int64)  # rows, query after query, by new rank
    in_order[starts[codes] + target.ranks - 1] = np.arange(len(codes))
    found = np.flatnonzero(log.propensity >= _CERTAIN)  # type: ignore[operator]
    sessions, queries = of_impression[found], log.queries
    return _Taken(sessions, in_order[starts[queries[sessions]] + log.positions[found] - 1], codes, queries)


@dataclass(frozen=True, eq=False)
class _SessionWeights:
    """Weights of the sessions, and their expectations if every ranker covers the new ranking.

    found     (S,) sum of lambda / propensity over the impressions at new ranks that are not certain.
    least     (S,) its expectation over the documents that the log shows at their new ranks, not for certain.
    most      (S,) its expectation over all documents.
    """

    found: Floats
    least: Floats
    most: Floats

    def wrong(self, groups: Integers, n_groups: int) -> tuple[Mask, Mask]:
        """Groups (G,) of sessions whose mean weight is too small for its expectation, and too large.

        groups  (S,) group of each session; those below 0 are left out.

        The variance of a sum of rare weights is m times its expectation, where m is the sum of their squares
        over their sum. A group without weights has the m of all sessions.
        """
        mine = groups >= 0
        found, squares, least, most = (
            sums(x[mine], groups[mine], n_groups) for x in (self.found, self.found**2, self.least, self.most)
        )
        if not found.any():
            return np.zeros(n_groups, bool), np.zeros(n_groups, bool)
        m = np.where(found > 0, squares / np.where(found > 0, found, 1.0), squares.sum() / found.sum())
        low: Mask = least - found > _ERRORS * np.sqrt(m * least)
        high: Mask = found - most > _ERRORS * np.sqrt(squares)
        return low, high

    def mean(self, chosen: Mask, expected: Floats) -> float:
        """Mean weight of the chosen sessions (S,) as a share of its expectation."""
        return float(self.found[chosen].sum() / expected[chosen].sum())


def _trusted(log: ClickLog, weights: _SessionWeights) -> tuple[Mask, float | None]:
    """Sessions (S,) of rankers that cover the new ranking; and the mean weight if it refutes propensities."""
    trusted = np.ones(log.n_sessions, bool)
    if log.policy is not None and len(log.policies) > 1:
        low, high = weights.wrong(log.policy, len(log.policies))
        if high.any():
            return ~trusted, weights.mean(high[log.policy], weights.most)
        trusted = ~low[log.policy]
    low, high = weights.wrong(np.where(trusted, 0, -1), 1)
    if low[0] or high[0]:
        return np.zeros_like(trusted), weights.mean(trusted, weights.least if low[0] else weights.most)
    return trusted, None
