"""Calibrated rank probabilities: a mixture of smoothed indicators of several widths.

With z the scores of a query less their mean, in units of their usual spread, and x = g(z) for an increasing
function g, the probability of document j at rank k is

    Pi[j, k] = w_0 / n + sum_m w_m Pi_m[j, k],

where Pi_m is the doubly-stochastic matrix of a Gaussian smoothed indicator of x with width m. A mixture of
doubly-stochastic matrices is doubly stochastic. Narrow and wide components together have a tail that is
heavier than a Gaussian's, and w_0 is the uniform part. The weights go over from those of short queries to
those of long ones with log n. For a given g, the cross entropy between the ideal matrix T of the labels and
Pi is convex in the weights, and the EM algorithm finds its minimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.model_files import saved_floats
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.rank_distribution import projected
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = [
    "RANKS",
    "RankMixture",
    "fit_mixture",
    "log_score",
    "query_means",
    "scaled",
    "typical_spread",
    "warp_slope",
    "warped",
]

RANKS = 10  # ranks whose columns of Pi are fitted
N_ITER, EPSILON = 30, 1e-9
WIDTHS = (0.12, 0.25, 0.45, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5)
# Increasing functions g of the standardized scores: "exponential" with its rate, which expands the top if it
# is above 0, and "softplus" with the score below which documents count as almost tied.
WARPS = (
    ("exponential", 0.0),
    ("exponential", -0.4),
    ("exponential", -0.2),
    ("exponential", 0.2),
    ("softplus", -1.5),
    ("softplus", -0.75),
    ("softplus", 0.0),
)
_LEAST_WEIGHT = 1e-12  # of a component during the fit
_UNIFORM = 1e-3  # least weight of the uniform part, so that no probability is 0
# Documents on which g and the weights are fitted, at most, but not fewer queries than the last number.
_SEARCH_ROWS, _MOST_ROWS, _LEAST_QUERIES = 6_000, 60_000, 10


@dataclass(frozen=True, eq=False)
class RankMixture:
    """Parameters of the mixture.

    scale    Usual spread of the scores of a query.
    warp     Name and parameter of the function g.
    widths   (M,) widths of the components, in units of the spread.
    weights  (2, M + 1) weights of the components for short and for long queries; the uniform part is last.
    lengths  (2,) numbers of documents of a short and of a long query.
    """

    scale: float
    warp: tuple[str, float]
    widths: Floats
    weights: Floats
    lengths: Floats

    def project(
        self, scores: Floats, groups: Groups, columns: Floats, n_threads: int | None = None
    ) -> Floats:
        """Sums (N, C) of Pi[j, k] columns[c, k] over the ranks k of document j's query.

        The matrix is not formed: the time is linear in the number of documents, per component and column.
        """
        sizes, codes = groups.sizes, groups.codes
        x = warped(standardized(scores, groups, self.scale), self.warp)
        weights = self.weights_of(sizes)[codes]
        sums = np.concatenate([np.zeros((len(columns), 1)), np.cumsum(columns, axis=1)], axis=1)
        total: Floats = (sums[:, sizes] / sizes).T[codes]
        total *= weights[:, -1:]
        for m, width in enumerate(self.widths.tolist()):
            settings = native_settings(SmoothedIndicator(width), N_ITER, EPSILON)
            part = projected(x, groups, columns, settings, n_threads)
            part *= weights[:, m, None]
            total += part
        return total

    def weights_of(self, sizes: Any) -> Floats:
        """Weights (Q, M + 1) of the components for queries of these sizes."""
        t = _position(sizes, self.lengths)[:, None]
        weights: Floats = (1 - t) * self.weights[0] + t * self.weights[1]
        return weights

    def record(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {
            "scale": self.scale, "warp": list(self.warp), "widths": self.widths,
            "weights": self.weights, "lengths": self.lengths,
        }  # fmt: skip

    @classmethod
    def from_record(cls, state: dict[str, Any]) -> RankMixture:
        """Read what `record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
        kind, parameter = state["warp"]
        n = len(state["widths"])
        widths = saved_floats("widths", state["widths"], (n,))
        weights = saved_floats("weights", state["weights"], (2, n + 1))
        lengths = saved_floats("lengths", state["lengths"], (2,))
        scale = state["scale"]
        if (kind, parameter) not in WARPS or type(scale) is not float or not 0 < scale < math.inf:
            raise ValueError("calibration: warp or scale is not valid")
        inside = (weights >= 0).all() and (weights <= 1).all()
        if (widths <= 0).any() or not inside or (np.abs(weights.sum(axis=1) - 1) > 1e-9).any():
            raise ValueError("calibration: widths must be above 0, and weights must sum to 1")
        if not 1 <= lengths[0] <= lengths[1]:
            raise ValueError("calibration: lengths must be increasing")
        return cls(scale, (kind, float(parameter)), widths, weights, lengths)


def query_means(values: Floats, groups: Groups) -> Floats:
    """Mean (Q,) of a value over the documents of each query."""
    means: Floats = np.bincount(groups.codes, values, len(groups.queries)) / groups.sizes
    return means


def typical_spread(scores: Floats, groups: Groups) -> float:
    """Mean over queries of the standard deviation of the scores of a query; 1 if all are equal."""
    largest = float(np.abs(scores).max())
    if largest == 0:
        return 1.0
    s = scores / largest  # sums and squares do not overflow
    away = s - query_means(s, groups)[groups.codes]
    spread = largest * float(np.sqrt(query_means(away * away, groups)).mean())
    return spread if spread > 0 else 1.0


def scaled(scores: Floats, scale: float) -> Floats:
    """Scores in units of `scale`. Those beyond 10^15 units count as tied, so that no square overflows."""
    with np.errstate(over="ignore"):
        s: Floats = np.clip(scores / scale, -1e15, 1e15)
    return s


def standardized(scores: Floats, groups: Groups, scale: float) -> Floats:
    """Scores less the mean of their query, in units of `scale`."""
    s = scaled(scores, scale)
    s -= query_means(s, groups)[groups.codes]
    return s


def warped(z: Floats, warp: tuple[str, float]) -> Floats:
    """The increasing function g of standardized scores."""
    kind, parameter = warp
    if kind == "softplus":
        soft: Floats = 0.5 * np.logaddexp(0.0, 2 * (z - parameter))
        return soft
    if parameter == 0:
        return z
    # beyond the limits scores count as tied, so that no width is needed for a single outlier
    grown: Floats = np.expm1(np.clip(parameter * z, -6, 6)) / parameter
    return grown


def warp_slope(z: Floats, warp: tuple[str, float]) -> Floats:
    """Derivative of `warped`."""
    kind, parameter = warp
    if kind == "softplus":
        with np.errstate(over="ignore"):
            rising: Floats = 1 / (1 + np.exp(-2 * (z - parameter)))
        return rising
    if parameter == 0:
        return np.ones_like(z)
    inside = np.abs(parameter * z) < 6
    grown: Floats = np.where(inside, np.exp(np.clip(parameter * z, -6, 6)), 0.0)
    return grown


def fit_mixture(scores: Floats, labels: Floats, groups: Groups, n_threads: int | None = None) -> RankMixture:
    """Fit the mixture to documents of queries that the scores were not trained on.

    The groups must be consecutive rows. The function g is the one with the least cross entropy of the first
    ranks, fitted on some of the queries if there are many documents.
    """
    scale = typical_spread(scores, groups)
    few = _some_queries(scores, labels, groups, _SEARCH_ROWS)
    losses = [_fitted(*few, scale, warp, WIDTHS[::2], n_threads, n_steps=20)[1] for warp in WARPS]
    best = WARPS[int(np.argmin(losses))]
    some = _some_queries(scores, labels, groups, _MOST_ROWS)
    return _fitted(*some, scale, best, WIDTHS, n_threads, n_steps=300)[0]


def log_score(Pi: Floats, labels: Floats, groups: Groups) -> Floats:
    """Cross entropy (Q,) between ideal ranks and forecasts, in nats per rank; smaller is better.

    For each query it is the mean over ranks k of -sum_j T[j, k] ln Pi[j, k].

    Pi  (N, K) probability of each document at the first K ranks.
    """
    rows, columns, T = ideal_ranks(labels, groups).cells(Pi.shape[1])
    with np.errstate(divide="ignore"):
        terms = -T * np.log(Pi[rows, columns])
    totals = np.bincount(groups.codes[rows], terms, len(groups.queries))
    score: Floats = totals / np.minimum(groups.sizes, Pi.shape[1])
    return score


def _some_queries(
    scores: Floats, labels: Floats, groups: Groups, n_rows: int
) -> tuple[Floats, Floats, Groups]:
    """Queries spread evenly over all, with about `n_rows` documents, and no very long one if it can be."""
    sizes = groups.sizes
    if len(scores) <= n_rows:
        return scores, labels, groups
    chosen = np.flatnonzero(sizes <= n_rows / _LEAST_QUERIES)
    if len(chosen) < _LEAST_QUERIES:
        chosen = np.sort(np.argsort(sizes, kind="stable")[:_LEAST_QUERIES])
    else:
        chosen = chosen[:: math.ceil(sizes[chosen].sum() / n_rows)]
    rows = np.flatnonzero(np.isin(groups.codes, chosen))
    return scores[rows], labels[rows], Groups.of_sizes(sizes[chosen])


def _position(sizes: Any, lengths: Floats) -> Floats:
    """Place (Q,) of queries between short (0) and long (1), by the logarithm of their size."""
    low, high = np.log(lengths)
    t: Floats = np.clip((np.log(sizes) - low) / (high - low), 0, 1) if high > low else np.zeros(len(sizes))
    return t


def _fitted(
    scores: Floats,
    labels: Floats,
    groups: Groups,
    scale: float,
    warp: tuple[str, float],
    widths: tuple[float, ...],
    n_threads: int | None,
    *,
    n_steps: int,
) -> tuple[RankMixture, float]:
    """The mixture with a given function g, and its cross entropy per rank."""
    sizes = groups.sizes
    lengths = np.maximum(np.quantile(sizes, [0.1, 0.9]), 1.0)
    if lengths[1] < 1.5 * lengths[0] or len(sizes) < 50:
        lengths = np.full(2, np.median(sizes).clip(1))
    rows, columns, T = ideal_ranks(labels, groups).cells(min(RANKS, groups.longest))
    x = warped(standardized(scores, groups, scale), warp)
    unit = np.eye(min(RANKS, groups.longest), groups.longest)
    P = np.empty((len(widths) + 1, len(T)))
    for m, width in enumerate(widths):
        settings = native_settings(SmoothedIndicator(width), N_ITER, EPSILON)
        P[m] = projected(x, groups, unit, settings, n_threads)[rows, columns]
    codes = groups.codes
    P[-1] = 1.0 / sizes[codes[rows]]
    np.maximum(P, 0, out=P)
    t = _position(sizes, lengths)[codes[rows]]
    weights, loss = _em(P, T, t, n_steps)
    kept = np.append(weights[:, :-1].max(axis=0) > 1e-4, True)
    weights = weights[:, kept]
    weights[:, -1] = np.maximum(weights[:, -1], _UNIFORM)
    weights /= weights.sum(axis=1, keepdims=True)
    return RankMixture(scale, warp, np.array(widths)[kept[:-1]], weights, lengths), loss


def _em(P: Floats, T: Floats, t: Floats, n_steps: int) -> tuple[Floats, float]:
    """Weights (2, M) that minimize -sum T ln sum_m ((1 - t) a_m + t b_m) P[m], and the least mean.

    A step of the EM algorithm multiplies each weight by a factor. Powers of the factors with an exponent
    above 1 make longer steps. The exponent grows until a step does not lower the loss.
    """
    weights, exponent = np.full((2, len(P)), 1.0 / len(P)), 1.0
    loss, factors = _loss_and_factors(P, T, t, weights)
    for _ in range(n_steps):
        longer = np.maximum(weights * factors**exponent, _LEAST_WEIGHT)
        longer /= longer.sum(axis=1, keepdims=True)
        new_loss, new_factors = _loss_and_factors(P, T, t, longer)
        if new_loss > loss and exponent > 1:
            exponent = 1.0
            continue
        gained, weights, loss, factors = loss - new_loss, longer, new_loss, new_factors
        if gained < 1e-7:
            break
        exponent = min(1.5 * exponent, 30.0)
    return weights, loss


def _loss_and_factors(P: Floats, T: Floats, t: Floats, weights: Floats) -> tuple[float, Floats]:
    """The mean of -T ln of the mixture, and the factors (2, M) of a step of the EM algorithm."""
    mixed = weights[0] @ P
    if t.any():
        mixed += t * (weights[1] @ P - mixed)
        ratio = T / mixed
        of_long = t * ratio
        factors = np.stack([P @ (ratio - of_long), P @ of_long])
    else:
        factors = np.tile(P @ (T / mixed), (2, 1))
    factors /= (weights * factors).sum(axis=1, keepdims=True)
    return float(-(T @ np.log(mixed)) / T.sum()), factors
