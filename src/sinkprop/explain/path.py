"""Path integrals: what each feature contributes to the expected ranks and to the expected metric of a query.

With c_d (n,) the contributions of feature d to the scores s of a query's documents, less their mean, the path

    s(t) = t sum_d c_d,    0 <= t <= 1,

goes from tied documents, which all have the expected rank (n + 1) / 2, to the scores. A function f of the
scores gets from feature d the share

    phi_d = int_0^1 grad f(s(t)) . c_d dt,

the value of Aumann and Shapley. Along the path the order of the documents does not change, so f(s(t)) is
smooth. The shares sum to f(s(1)) - f(s(0)), apart from the error of the quadrature, which takes more nodes
until this error is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

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

LEAST, MOST = 8, 300  # nodes of the quadrature
_MANY = 40  # half steps after which a derivative may be that of the limit
_TIED = 1e-10  # distance of scores, relative to the largest, that is a rounding error


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
        unit = replace(relaxation, sigma=1.0)
        return cls(relaxation.sigma, ("exponential", 0.0), ((1.0, unit),), 0.0, n_iter, epsilon)

    def smoothing(self, part: SmoothedIndicator, *, limit: bool = False) -> Smoothing:
        """Settings of a component for `rank_rates`; with `limit`, those of the limit of the iterations."""
        limit = limit or isinstance(as_iterations(self.n_iter), Converged)
        half_steps = self.settings(part).half_steps
        return Smoothing(part.kernel, part.sigma, half_steps, self.epsilon, limit)

    def settings(self, part: SmoothedIndicator) -> NativeSettings:
        """Settings of a component for native functions."""
        return native_settings(part, self.n_iter, self.epsilon)

    def expected_ranks(self, path: Path) -> Floats:
        """Expected ranks (n,) at the end of a path, in its order."""
        total = np.full(len(path.z), self.uniform * (len(path.z) + 1) / 2)
        for weight, part in self.components:
            total += weight * _expected_ranks(path, self, part)
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


def rank_shares(path: Path, model: RankModel, tol: float) -> Shares:
    """Shares (n, D) of the features in the expected ranks of all documents, in quadratic time and memory."""
    places = path.place_rates()

    def rates(t: float, smoothing: Smoothing) -> Floats:
        x, slope = _at(path, model, t)
        rows = slope[:, None] * path.rates
        columns = rows if places is path.rates else slope[:, None] * places
        return rank_rates(x, rows, columns, smoothing)

    def component(part: SmoothedIndicator) -> _Component:
        change = _expected_ranks(path, model, part) - (len(path.z) + 1) / 2
        own = model.smoothing(part)
        ways = [partial(rates, smoothing=own)]
        if own.half_steps >= _MANY and not own.limit:
            # Many iterations nearly reach the limit, whose derivative takes a tenth of the time. It serves if
            # the shares sum to the change in the given number of iterations.
            ways.insert(0, partial(rates, smoothing=model.smoothing(part, limit=True)))
        return _Component(ways, change)

    return _over_components(path, model, component, tol)


def metric_shares(
    path: Path, model: RankModel, gains: list[NativeGains | NativeTerms], tol: float
) -> tuple[Shares, Floats]:
    """Shares (F, D) of the features in F expected gains, in linear time, and the gains of tied documents.

    gains  The documents are in the order of the path.
    """
    groups = Groups.of_sizes(np.array([len(path.z)]))
    turned = _turned(path)
    shifted = [_rows_of(own, turned) for own in gains] if path.tied else []

    def values(x: Floats, settings: NativeSettings) -> Floats:
        return np.array([prepared_gain(x, groups, own, settings, None)[0][0] for own in gains])

    def component(part: SmoothedIndicator) -> _Component:
        settings = model.settings(part)

        def rates(t: float) -> Floats:
            x, slope = _at(path, model, t)
            gradients = np.empty((len(gains), len(x)))
            for f, own in enumerate(gains):
                gradients[f] = prepared_gain(x, groups, own, settings, None)[1]
                if path.tied:
                    other = prepared_gain(x, groups, shifted[f], settings, None)[1]
                    gradients[f] = _without_order(path, gradients[f], other)
            found: Floats = (gradients * slope) @ path.rates
            return found

        return _Component([rates], values(_at(path, model, 1.0)[0], settings) - start)

    start = values(np.zeros(len(path.z)), model.settings(model.components[0][1]))
    return _over_components(path, model, component, tol), start


def _at(path: Path, model: RankModel, t: float) -> tuple[Floats, Floats]:
    """Scores (n,) that the indicators smooth, at t, and their rates of change per unit of z."""
    z = t * path.z
    return warped(z, model.warp), warp_slope(z, model.warp)


def _expected_ranks(path: Path, model: RankModel, part: SmoothedIndicator) -> Floats:
    """Expected ranks (n,) of one component at the end of a path, in its order."""
    n = len(path.z)
    one, ranks = Groups.of_sizes(np.array([n])), np.arange(1.0, n + 1)[None]
    x, _ = _at(path, model, 1.0)
    return projected(x, one, ranks, model.settings(part), None)[:, 0]


class _Component(NamedTuple):
    """Functions of one component of the mixture.

    ways    Ways to compute their rates of change (..., D) at t, the fastest first.
    change  (...) their values at the end of the path less those at its beginning.
    """

    ways: Sequence[Callable[[float], Floats]]
    change: Floats


def _over_components(
    path: Path, model: RankModel, component: Callable[[SmoothedIndicator], _Component], tol: float
) -> Shares:
    """Shares in a mixture. Each component is integrated to an equal part of the tolerance."""
    found = []
    for weight, part in model.components:
        own = component(part)
        limit = tol / (len(model.components) * weight)
        found.append((weight * _integrated(path, own, part.sigma, limit), weight * own.change))
    shares: Floats = np.sum([own for own, _ in found], axis=0)
    change: Floats = np.sum([own for _, own in found], axis=0)
    error = float(np.abs(shares.sum(axis=-1) - change).max(initial=0.0))
    return Shares(shares, change, error)


def _integrated(path: Path, component: _Component, width: float, tol: float) -> Floats:
    """Integral of the rates over the path, with an error of at most `tol` if it can be."""
    if not path.z.any():  # all documents are tied all along
        return np.zeros((*component.change.shape, path.rates.shape[1]))
    nodes, reach = LEAST, width / float(path.z.std())
    shares = np.zeros((*component.change.shape, path.rates.shape[1]))
    for rates in component.ways:
        before = np.inf
        while True:
            shares = np.zeros_like(shares)
            for t, weight in zip(*_nodes(nodes, reach), strict=True):
                shares += weight * rates(t)
            error = np.abs(shares.sum(axis=-1) - component.change).max(initial=0.0)
            if error <= tol:
                return shares
            if nodes >= MOST or (rates is not component.ways[-1] and error > before / 2):
                break
            nodes, before = nodes + nodes // 2, error
    return shares


def _nodes(n: int, reach: float) -> tuple[list[float], list[float]]:
    """Nodes and weights on [0, 1]: those of Gauss and Legendre in u, where t = c sinh(u arsinh(1 / c)).

    At t = c, `reach`, documents a typical distance apart are one width apart. Before, ranks change evenly
    with t; after, with its logarithm.
    """
    u, w = _legendre(n)
    c = min(max(reach, 1e-12), 1e6)
    a = math.asinh(1 / c)
    return (c * np.sinh(a * u)).tolist(), (w * c * a * np.cosh(a * u)).tolist()


@cache
def _legendre(n: int) -> tuple[Floats, Floats]:
    u, w = np.polynomial.legendre.leggauss(n)
    return (u + 1) / 2, w / 2


def _turned(path: Path) -> Integers:
    """Documents (n,) at each place if each moves one place up among those it is tied with, in a circle."""
    turned = np.arange(1, len(path.z) + 1)
    turned[np.append(path.starts[1:], len(path.z)) - 1] = path.starts
    return turned


def _rows_of(gains: NativeGains | NativeTerms, rows: Integers) -> NativeGains | NativeTerms:
    """Return the gains of the documents `rows`."""
    if isinstance(gains, NativeTerms):
        attributes = np.ascontiguousarray(gains.attributes[:, rows])
        return NativeTerms(attributes, gains.table, gains.discounts, gains.functions)
    classes = None if gains.classes is None else gains.classes[rows]
    return NativeGains(gains.gains[rows], gains.exponential, classes, gains.discounts, gains.normalize)


def _without_order(path: Path, gradient: Floats, turned: Floats) -> Floats:
    """Mean of the gradient over all orders of the tied documents.

    Of the gradient of document j at place k, one summand depends on j and one on k. From `turned`, the
    gradient with each tied document at the place before, we get the differences of the second between places,
    and replace it by its mean.
    """
    steps = np.zeros_like(gradient)
    steps[1:] = gradient[1:] - turned[:-1]
    steps[path.starts] = 0
    of_place = np.cumsum(steps)
    first: Floats = np.repeat(of_place[path.starts], path.sizes)
    of_place -= first  # within each set of tied documents
    return gradient - of_place + path.group_means(of_place)
