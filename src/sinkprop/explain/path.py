"""Path integrals: what each feature contributes to the expected ranks and to the expected metric of a query.

With c_d (n,) the contributions of feature d to the scores s of a query's documents, less their mean, the path

    s(t) = t sum_d c_d,    0 <= t <= 1,

goes from tied documents, which all have the expected rank (n + 1) / 2, to the scores. A function f of the
scores gets from feature d the share

    phi_d = int_0^1 grad f(s(t)) . c_d dt,

the value of Aumann and Shapley. Along the path the order of the documents does not change, so f(s(t)) is smooth.
The shares sum to f(s(1)) - f(s(0)), apart from the error of the quadrature. It has twice as many nodes until
this error is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sinkprop.calibration.widths import EPSILON, N_ITER, RankMixture, warp_slope, warped
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.explain.derivatives import Smoothing, rank_rates
from sinkprop.objective.expected_gain import prepared_gain
from sinkprop.objective.native_terms import NativeGains, NativeSettings, NativeTerms, native_settings
from sinkprop.objective.normalization import Converged, Iterations, as_iterations
from sinkprop.objective.rank_distribution import projected
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["LEAST", "MOST", "Path", "RankModel", "Shares", "metric_shares", "rank_shares"]

LEAST, MOST = 8, 256  # nodes of the quadrature
_TIED = 1e-10  # distance of scores, relative to the largest, that is a rounding error
_POWER = 3  # t = u^3: with small widths, f changes most near the beginning of the path


@dataclass(frozen=True)
class RankModel:
    """Rank probabilities as a mixture of smoothed indicators of g(z), for scores z in units of `scale`.

    warp        The function g; see `RankMixture`.
    components  Weight and smoothed indicator of each component.
    uniform     Weight of equal probabilities.
    """

    scale: float
    warp: tuple[str, float]
    components: tuple[tuple[float, SmoothedIndicator], ...]
    uniform: float
    n_iter: Iterations
    epsilon: float

    @classmethod
    def calibrated(cls, mixture: RankMixture, n: int) -> RankModel:
        """Return the probabilities of a calibration for queries of n documents."""
        *weights, uniform = mixture.weights_of(np.array([n]))[0].tolist()
        parts = [
            (weight, SmoothedIndicator(width))
            for weight, width in zip(weights, mixture.widths.tolist(), strict=True)
            if weight > 0
        ]
        return cls(mixture.scale, mixture.warp, tuple(parts), uniform, N_ITER, EPSILON)

    @classmethod
    def of_relaxation(cls, relaxation: SmoothedIndicator, n_iter: Iterations, epsilon: float) -> RankModel:
        """Return the probabilities of a smoothed indicator."""
        return cls(1.0, ("exponential", 0.0), ((1.0, relaxation),), 0.0, n_iter, epsilon)

    def smoothings(self) -> list[tuple[float, Smoothing]]:
        """Weight and smoothing of each component, for `rank_rates`."""
        found = []
        for weight, part in self.components:
            settings = self.settings(part)
            limit = isinstance(as_iterations(self.n_iter), Converged)
            found.append(
                (weight, Smoothing(part.kernel, part.sigma, settings.half_steps, self.epsilon, limit))
            )
        return found

    def settings(self, part: SmoothedIndicator) -> NativeSettings:
        """Settings of a component for native functions."""
        return native_settings(part, self.n_iter, self.epsilon)

    def expected_ranks(self, path: Path) -> Floats:
        """Expected ranks (n,) at the end of a path, in its order."""
        n = len(path.z)
        one, ranks = Groups.of_sizes(np.array([n])), np.arange(1.0, n + 1)[None]
        x, total = warped(path.z, self.warp), np.full(n, self.uniform * (n + 1) / 2)
        for weight, part in self.components:
            total += weight * projected(x, one, ranks, self.settings(part), None)[:, 0]
        return total


@dataclass(frozen=True, eq=False)
class Path:
    """The path of one query, with the documents in the order of their scores.

    order   (n,) row of the document at each place.
    z       (n,) scores at the end of the path, less their mean, in units of the model's scale; documents
            whose scores differ by rounding errors are tied.
    rates   (n, D) contributions, in the same units.
    starts  (G,) first place of each set of tied documents.
    """

    order: Integers
    z: Floats
    rates: Floats
    starts: Integers

    @classmethod
    def of(cls, contributions: Floats, scale: float) -> Path:
        """Return the path of a query whose documents have these contributions (n, D) to their scores."""
        largest = float(np.abs(contributions).max())
        unit = largest if largest > 0 else 1.0  # sums do not overflow
        rates = contributions / unit
        rates -= rates.mean(axis=0)
        z = rates.sum(axis=1)
        order = np.argsort(-z, kind="stable")
        z = z[order]
        gap = _TIED * max(1.0, float(np.abs(z).max()))
        starts = np.flatnonzero(np.append(True, z[:-1] - z[1:] > gap))
        sizes = np.diff(np.append(starts, len(z)))
        z = np.repeat(np.add.reduceat(z, starts) / sizes, sizes)
        order = _rows_in_order(order, starts, sizes)
        factor = min(unit / scale, 1e15)  # farther documents count as equally far
        return cls(order, z * factor, rates[order] * factor, starts)

    @property
    def tied(self) -> bool:
        """Whether some documents are tied."""
        return len(self.starts) < len(self.z)

    def place_rates(self) -> Floats:
        """Rates of the places: means of `rates` over tied documents."""
        return self.rates if not self.tied else self.group_means(self.rates)

    def group_means(self, values: Floats) -> Floats:
        """Mean of values (n,) or (n, D) over tied documents, at each of their places."""
        sizes = self.sizes
        shape = (-1,) + (1,) * (values.ndim - 1)
        means: Floats = np.add.reduceat(values, self.starts, axis=0) / sizes.reshape(shape)
        return np.repeat(means, sizes, axis=0)

    @property
    def sizes(self) -> Integers:
        return np.diff(np.append(self.starts, len(self.z)))


def _rows_in_order(order: Integers, starts: Integers, sizes: Integers) -> Integers:
    """Sort the rows of tied documents."""
    return order[np.lexsort((order, np.repeat(np.arange(len(starts)), sizes)))]


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of the features in functions of a query's scores, and how far they are from complete.

    shares  (..., D) shares.
    change  (...) f(s(1)) - f(s(0)), which the shares of a function should sum to.
    error   Largest distance from it.
    """

    shares: Floats
    change: Floats
    error: float


def rank_shares(path: Path, model: RankModel, change: Floats, tol: float) -> Shares:
    """Shares (n, D) of the features in the expected ranks of all documents, in quadratic time and memory.

    change  (n,) expected ranks less their mean, in the order of the path.
    """
    smoothings, places = model.smoothings(), path.place_rates()

    def rates(t: float) -> Floats:
        x, slope = _at(path, model, t)
        rows = slope[:, None] * path.rates
        columns = slope[:, None] * places if places is not path.rates else rows
        total = np.zeros_like(rows)
        for weight, smoothing in smoothings:
            total += weight * rank_rates(x, rows, columns, smoothing)
        return total

    return _integrated(rates, path, change, tol)


def metric_shares(
    path: Path, model: RankModel, gains: list[NativeGains | NativeTerms], tol: float
) -> tuple[Shares, Floats]:
    """Shares (F, D) of the features in the expected gains, in linear time, and the gains (F,) at the beginning.

    gains  F functions of the ranking; the documents are in the order of the path.
    """
    groups = Groups.of_sizes(np.array([len(path.z)]))
    settings = [(weight, model.settings(part)) for weight, part in model.components]
    turned = _turned(path)
    shifted = [_rows_of(own, turned) for own in gains] if path.tied else []

    def values(x: Floats) -> Floats:
        return np.array([prepared_gain(x, groups, own, settings[0][1], None)[0][0] for own in gains])

    start = values(np.zeros(len(path.z)))
    end = model.uniform * start
    for weight, own in settings:
        x, _ = _at(path, model, 1.0)
        end = end + weight * np.array([prepared_gain(x, groups, each, own, None)[0][0] for each in gains])

    def rates(t: float) -> Floats:
        x, slope = _at(path, model, t)
        total = np.zeros((len(gains), len(x)))
        for f, own in enumerate(gains):
            for weight, setting in settings:
                gradient = prepared_gain(x, groups, own, setting, None)[1]
                if path.tied:
                    other = prepared_gain(x, groups, shifted[f], setting, None)[1]
                    gradient = _without_order(path, gradient, other)
                total[f] += weight * gradient
        found: Floats = (total * slope) @ path.rates
        return found

    return _integrated(rates, path, end - start, tol), start


def _at(path: Path, model: RankModel, t: float) -> tuple[Floats, Floats]:
    """Scores (n,) that the indicators smooth, at t, and their rates of change per unit of z."""
    z = t * path.z
    return warped(z, model.warp), warp_slope(z, model.warp)


def _integrated(rates: Any, path: Path, change: Floats, tol: float) -> Shares:
    nodes = LEAST
    while True:
        points, weights = _nodes(nodes)
        shares = sum(weight * rates(t) for t, weight in zip(points, weights, strict=True))
        error = float(np.abs(shares.sum(axis=-1) - change).max(initial=0.0))
        if error <= tol or nodes >= MOST or not path.z.any():
            return Shares(shares, change, error)
        nodes *= 2


@cache
def _nodes(n: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1]: those of Gauss and Legendre in the variable u, where t = u^3."""
    u, w = np.polynomial.legendre.leggauss(n)
    u = (u + 1) / 2
    return tuple((u**_POWER).tolist()), tuple((w / 2 * _POWER * u ** (_POWER - 1)).tolist())


def _turned(path: Path) -> Integers:
    """Documents (n,) at each place if, of tied documents, each takes the place before, and the first the last."""
    turned = np.arange(1, len(path.z) + 1)
    turned[np.append(path.starts[1:], len(path.z)) - 1] = path.starts
    return turned


def _rows_of(gains: NativeGains | NativeTerms, rows: Integers) -> NativeGains | NativeTerms:
    """Return the gains of the documents `rows`."""
    if isinstance(gains, NativeTerms):
        return gains._replace(attributes=np.ascontiguousarray(gains.attributes[:, rows]))
    classes = None if gains.classes is None else gains.classes[rows]
    return gains._replace(gains=gains.gains[rows], classes=classes)


def _without_order(path: Path, gradient: Floats, turned: Floats) -> Floats:
    """Mean of the gradient over all orders of the tied documents.

    Of the gradient of document j at place k, one summand depends on j and one on k. From `turned`, the gradient
    with each tied document at the place before, we get the differences of the second between places, and
    replace it by its mean.
    """
    steps = np.zeros_like(gradient)
    steps[1:] = gradient[1:] - turned[:-1]
    steps[path.starts] = 0
    of_place = np.cumsum(steps)
    first: Floats = np.repeat(of_place[path.starts], path.sizes)
    of_place -= first  # within each set of tied documents
    return gradient - of_place + path.group_means(of_place)
