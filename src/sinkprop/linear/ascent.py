"""The objective of a linear fit and its maximization: moments, least-squares start, L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np

from sinkprop.common.lbfgs import descend
from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source, Task
from sinkprop.data.feature_scaling import Scaling, scaling_of
from sinkprop.linear.exact_sums import ExactSum, exponent, exponents, until_it_fits, within
from sinkprop.linear.problem import unscaled
from sinkprop.linear.tasks import Evaluate, Evaluated, Extent, Gram, Linear, Spread, Squares, Sums
from sinkprop.objective.gains import Gain
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator

__all__ = ["Moments", "Objective", "Path", "moments_of", "over", "scorer", "starts"]

P = TypeVar("P")

# A partitioned measure places each document in (0, 1). At the start of a fit, one standard deviation of the
# least-squares scores changes the logit of this place by `_LOCATION`, so that documents spread over the whole
# interval.
_LOCATION = 1.5
# Eigenvalues of a correlation matrix below this multiple of the largest are rounding errors.
_SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the training features and labels.

    largest        (D,) largest absolute value of each feature.
    mean           (D,) mean of each feature.
    deviation      (D,) standard deviation of each feature.
    label          Mean of the labels.
    largest_label  Largest label.
    """

    largest: Floats
    mean: Floats
    deviation: Floats
    label: float
    largest_label: float

    @property
    def factor(self) -> Floats:
        """(D,) 1 / deviation, and 0 for a feature that is constant except for rounding."""
        return scaling_of("standard", self.mean, self.deviation).factor


def moments_of(source: Source) -> Moments:
    """Return the `Moments` (means, deviations and largest values) of the rows of a source.

    A source gives access to queries in memory, on disk or on a cluster. It is read three times.
    """
    largest = source.run(Extent())
    n, longest = source.n_rows, source.longest
    # + 1: a sum over one query must stay below 2^exponent, even if rounding makes it slightly larger
    sums, labels = source.run(Sums(exponents(largest * longest) + 1))
    mean, label = sums.value() / n, float(labels.value()[0]) / n
    reach = largest[:-1] + np.abs(mean)
    with np.errstate(over="ignore"):
        squares = source.run(Squares(mean, exponents(np.square(reach) * longest) + 1))
    if not squares.fits:
        raise FloatingPointError("the squares of the features overflow. Scale the features before training.")
    return Moments(largest[:-1], mean, np.sqrt(squares.value() / n), label, float(largest[-1]))


@dataclass(frozen=True, eq=False)
class Path:
    """Training queries of one path of a fit.

    A path is the training of all candidates on one set of queries. Every query has a code: the index of the
    path that uses it for validation, or -1. A path trains on all queries of its sources except those whose
    code is the index of the path; see `estimator.splits.Split`. The numbers below count training queries and
    their rows only.

    number          Index of the path; path 0 trains the final model.
    sources         Objects that give access to the queries, in memory, on disk or on a cluster.
    n_rows          Number of rows.
    n_queries       Number of queries.
    total_weight    Sum of the query weights; None if all count the same.
    largest_weight  Largest query weight.
    weighted_rows   Number of rows, each counted by the weight of its query.
    """

    number: int
    sources: tuple[Source, ...]
    n_rows: int
    n_queries: int
    total_weight: float | None
    largest_weight: float
    weighted_rows: float


def over(sources: Sequence[Source], task: Task[P]) -> P:
    """Run a task on each of the sources, one after another, and return the combination of the results.

    A source gives access to queries, and a task is a computation on them (`tasks.py`).
    """
    return task.combine([source.run(task) for source in sources])


def scorer(W: Floats, scaling: Scaling) -> Linear:
    """Return the scorer of raw features that corresponds to weights W of normalized features."""
    return Linear(*unscaled(W, scaling))


@dataclass(frozen=True, eq=False)
class Start:
    """Least-squares weights (D,) of normalized features, and the means (D,) of the normalized features."""

    weights: Floats
    mean: Floats


def starts(paths: Sequence[Path], moments: Moments, scaling: Scaling) -> list[Start]:
    """Return the `Start`, which holds the least-squares weights, of each path.

    A path is the training of all candidates on one set of queries. All weights are computed in one pass over
    the queries. The Gram matrices of features and labels are exact sums over queries, so the weights do not
    depend on how the queries are distributed over blocks and machines.
    """
    every: list[Source] = []
    for path in paths:
        every += [source for source in path.sources if source not in every]
    heaviest = max(path.largest_weight for path in paths)
    longest = max(source.longest for source in every)
    reach = np.concatenate(
        [
            [1.0],
            (moments.largest + np.abs(moments.mean)) * moments.factor,
            [moments.largest_label + abs(moments.label)],
        ]
    )
    bound = exponents(reach)

    def products(extra: int) -> list[dict[int, ExactSum]]:
        of_pairs = bound[:, None] + bound[None] + exponent(longest * heaviest) + extra
        task = Gram(moments.mean, moments.factor, moments.label, within(of_pairs))
        return [source.run(task) for source in every]

    by_source = until_it_fits(products, lambda found: all(s.fits for each in found for s in each.values()))
    results = []
    for path in paths:
        parts = [
            sums
            for source, found in zip(every, by_source, strict=True)
            if source in path.sources
            for code, sums in sorted(found.items())
            if code != path.number
        ]
        results.append(_regression(reduce(add, parts).value(), moments, scaling))
    return results


def _regression(G: Floats, moments: Moments, scaling: Scaling) -> Start:
    """Return the `Start`, which holds the least-squares weights, for training rows with Gram matrix G.

    If several weight vectors are optimal, the one with the smallest norm is taken. The norm is that of the
    weights for features scaled to equal spread. Raises a ValueError if all row weights are 0.

    G  (D + 2, D + 2) Gram matrix of the columns [1, features, label]: entry (i, j) is the sum, over the rows,
       of column i times column j. Features and label are centered, and features are scaled; see `tasks.Gram`.
    """
    total = G[0, 0]
    if not total > 0:
        raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
    center = G[0] / total
    rest = G - np.outer(center, G[0])
    A, b = rest[1:-1, 1:-1], rest[1:-1, -1]
    norms = np.sqrt(A.diagonal().clip(0))
    # these features are constant in the queries of the path, except for rounding
    norms[norms <= 1e-6 * np.sqrt(G.diagonal()[1:-1])] = 0
    deviation = math.sqrt(max(0.0, rest[-1, -1]) / total)
    mean = moments.mean + moments.deviation * center[1:-1]
    mean = (mean - scaling.shift) * scaling.factor
    if deviation <= 1e-13 * abs(moments.label) or not norms.any():  # labels or features are constant
        return Start(np.zeros(len(norms)), mean)
    used = norms > 0
    units = np.where(used, norms, 1.0)
    values, vectors = np.linalg.eigh(np.where(np.outer(used, used), A / np.outer(units, units), 0.0))
    kept = values > _SMALLEST * values[-1]
    basis = vectors[:, kept]
    w = basis @ (basis.T @ np.where(used, b / units, 0.0) / values[kept]) / units * moments.factor
    scaled = scaling.factor > 0
    return Start(np.where(scaled, w / np.where(scaled, scaling.factor, 1.0), 0.0), mean)


class Objective:
    """The function of the weights W that a fit maximizes: expected gain - penalty / 2 |W - W_0|^2.

    The expected gain is the mean over the training queries of one path. A path is the training of all
    candidates on one set of queries. W_0 (attribute `start`) are the least-squares weights, scaled so that
    their scores have a standard deviation of 1 within queries.

    A partitioned measure is a relaxation with two outputs per document. Its W and W_0 have shape (D + 1, 2):
    one column per output, and a last row of intercepts. W_0 is then derived from the least-squares weights,
    and the intercepts are not penalized.
    """

    def __init__(
        self,
        path: Path,
        moments: Moments,
        scaling: Scaling,
        relaxation: Relaxation,
        start: Start,
        *,
        gain: Gain,
        n_iter: float,
        epsilon: float,
        resample: int,
        seed: int,
    ) -> None:
        self.path, self.scaling, self.regression = path, scaling, start.weights
        self._gain, self._n_iter, self._epsilon = gain, n_iter, epsilon
        self._relaxation, self._settings = relaxation, native_settings(relaxation, n_iter, epsilon)
        self._resample, self._seed = resample, seed
        self._longest = max(source.longest for source in path.sources)
        self._reach = exponents(moments.largest * self._longest)
        self.evaluations = 0
        width = self.spread(start.weights)
        w = start.weights / width if width > 0 else np.zeros_like(start.weights)
        self.start = w if relaxation.width == 1 else _partitioned_start(w, start.mean, relaxation)

    def spread(self, W: Floats) -> float:
        """Standard deviation, within queries, of the scores that weights W (D,) give.

        In the mean of the squared deviations, each row counts with the weight of its query.
        """
        own = scorer(W, self.scaling)

        def run(extra: int) -> tuple[ExactSum, float]:
            return over(self.path.sources, Spread(self.path.number, own, np.asarray(20 + extra)))

        squares, largest = until_it_fits(run, lambda found: found[0].fits)
        width = math.sqrt(float(squares.value()) / self.path.weighted_rows)
        # scores that are equal except for rounding have a spread this small
        return width if width > 1e-12 * largest else 0.0

    def value(self, W: Floats, relaxation: Relaxation) -> tuple[float, Floats]:
        """Expected gain at weights W, and its gradient with respect to W."""
        if relaxation is not self._relaxation:  # at the beginning of a stage
            self._settings = native_settings(relaxation, self._n_iter, self._epsilon)
            self._relaxation = relaxation
        self.evaluations += 1
        path, own = self.path, scorer(W, self.scaling)
        sigma = relaxation.sigma if isinstance(relaxation, SmoothedIndicator) else 1.0
        share = path.largest_weight / (path.total_weight or path.n_queries)
        # Derivatives with respect to one score are usually below 2^steep. If one of them is larger,
        # `until_it_fits` repeats the sum with a larger bound.
        steep = exponent(share / min(1.0, sigma)) + 8

        def run(extra: int) -> Evaluated:
            task = Evaluate(
                path=path.number,
                scorer=own,
                gain=self._gain,
                settings=self._settings,
                n_queries=path.n_queries,
                total_weight=path.total_weight,
                exponent=self._reach + (steep + extra),
                of_values=10 + exponent(path.largest_weight) + extra,
                of_totals=steep + exponent(self._longest) + extra,
                resample=self._resample,
                seed=(self._seed, path.number),
            )
            return over(path.sources, task)

        found = until_it_fits(run, lambda result: result.fits)
        value = float(found.value.value()) / (path.n_queries * max(1, self._resample))
        by_feature, factor = found.products.value(), self.scaling.factor
        if found.totals is None:
            # The shifts of the features drop out: the derivatives with respect to the scores sum to 0 over
            # each query, since adding a constant to all scores of a query changes nothing.
            return value, by_feature * factor
        total = found.totals.value()
        offset = np.outer(self.scaling.shift * factor, total)
        return value, np.concatenate([by_feature.T * factor[:, None] - offset, total[None]])

    def maximize(
        self, W: Floats, relaxation: Relaxation, penalty: float, *, max_iter: int, tol: float
    ) -> Floats:
        """Maximize the penalized expected gain by L-BFGS, starting from W; return the final weights."""

        def loss(V: Floats) -> tuple[float, Floats]:
            value, gradient = self.value(V, relaxation)
            away = V - self.start
            if V.ndim == 2:
                away[-1] = 0  # intercepts are not penalized
            return -value + penalty / 2 * float(np.sum(away * away)), penalty * away - gradient

        return descend(loss, W, max_iter=max_iter, tol=tol)


def _partitioned_start(w: Floats, mean: Floats, relaxation: Relaxation) -> Floats:
    """Starting weights of a partitioned measure, a relaxation with two outputs per document: (D + 1, 2).

    The last row holds the intercepts.

    w     (D,) least-squares weights, from which the weights of both outputs are derived.
    mean  (D,) means of the normalized features.
    """
    W = np.zeros((len(w) + 1, 2))
    W[:-1, 0] = -_LOCATION * w  # documents at the top are placed near 0
    if isinstance(relaxation, PartitionedMeasure) and relaxation.family == "beta":
        W[:-1] = np.stack([-_LOCATION / 2 * w, _LOCATION / 2 * w], axis=1)
    W[-1] -= mean @ W[:-1]
    if isinstance(relaxation, PartitionedMeasure) and relaxation.family == "beta":
        W[-1] += math.log(2)
    return W
