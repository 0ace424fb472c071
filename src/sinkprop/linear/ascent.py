"""The objective of a linear fit and its maximization: moments, ridge-regression start, L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from sinkprop.common.lbfgs import descend_together
from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source
from sinkprop.data.feature_scaling import Scaling, scaling_of
from sinkprop.linear.exact_sums import ExactSum, exponent, exponents, until_it_fits, within
from sinkprop.linear.tasks import Evaluate, Evaluated, Extent, Gram, Linear, Point, Spread, Squares, Sums
from sinkprop.objective.gains import Gain
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import SHARED_SCALE, PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.serving.linear_scores import unscaled

__all__ = ["Evaluation", "Moments", "Objective", "Path", "moments_of", "regressions", "scorer", "spreads"]

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


def moments_of(source: Source, largest: Floats | None = None) -> Moments:
    """Return the `Moments` (means, deviations and largest values) of the rows of a source.

    A source gives access to queries in memory, on disk or on a cluster. It is read three times, or twice if
    the result of the task `Extent` on it is given as `largest`.
    """
    if largest is None:
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

    number          Index of the path.
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


def scorer(W: Floats, scaling: Scaling) -> Linear:
    """Return the scorer of raw features that corresponds to weights W of normalized features."""
    return Linear(*unscaled(W, scaling))


def spreads(models: Sequence[tuple[Path, Floats]], scaling: Scaling) -> list[float]:
    """Standard deviation, within queries, of the scores of the training rows of paths.

    In the mean of the squared deviations, each row counts with the weight of its query. All are computed in
    one pass over the queries.

    models  Pairs of a path, which is the training on one set of queries, and the weights (D,) of its scores.
    """
    sources = _sources([path for path, _ in models])

    def run(extra: int) -> list[tuple[ExactSum, float]]:
        found: dict[int, tuple[ExactSum, float]] = {}
        for source in sources:
            own = [i for i, (path, _) in enumerate(models) if source in path.sources]
            scorers = tuple((models[i][0].number, scorer(models[i][1], scaling)) for i in own)
            parts: list[tuple[ExactSum, float]] = source.run(Spread(scorers, np.asarray(20 + extra)))
            for i, (sums, largest) in zip(own, parts, strict=True):
                before = found.get(i)
                found[i] = (sums, largest) if before is None else (before[0] + sums, max(before[1], largest))
        return [found[i] for i in range(len(models))]

    results = []
    for (path, _), (squares, largest) in zip(
        models, until_it_fits(run, lambda found: all(sums.fits for sums, _ in found)), strict=True
    ):
        width = math.sqrt(float(squares.value()) / path.weighted_rows)
        # scores that are equal except for rounding have a spread this small
        results.append(width if width > 1e-12 * largest else 0.0)
    return results


def _sources(paths: Sequence[Path]) -> list[Source]:
    """Sources of all paths, each once."""
    every: list[Source] = []
    for path in paths:
        every += [source for source in path.sources if source not in every]
    return every


@dataclass(frozen=True, eq=False)
class Regression:
    """Ridge regressions on the labels, of normalized features.

    weights  (L, D) weights for each of L ridge penalties.
    mean     (D,) means of the normalized features.
    """

    weights: Floats
    mean: Floats


def regressions(
    paths: Sequence[Path], moments: Moments, scaling: Scaling, penalties: Sequence[float]
) -> list[Regression]:
    """Return the ridge regressions of each path, for several penalties; a penalty of 0 is least squares.

    A path is the training of all candidates on one set of queries. All weights are computed in one pass over
    the queries. The Gram matrices of features and labels are exact sums over queries, so the weights do not
    depend on how the queries are distributed over blocks and machines. A penalty is a multiple of the number
    of rows, for features scaled to equal spread.
    """
    every = _sources(paths)
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
        results.append(_regression(reduce(add, parts).value(), moments, scaling, penalties))
    return results


def _regression(G: Floats, moments: Moments, scaling: Scaling, penalties: Sequence[float]) -> Regression:
    """Return the ridge regressions for training rows with Gram matrix G.

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
        return Regression(np.zeros((len(penalties), len(norms))), mean)
    used = norms > 0
    units = np.where(used, norms, 1.0)
    values, vectors = np.linalg.eigh(np.where(np.outer(used, used), A / np.outer(units, units), 0.0))
    kept = values > _SMALLEST * values[-1]
    basis = vectors[:, kept]
    along = basis.T @ np.where(used, b / units, 0.0)
    shrunk = np.stack([along / (values[kept] + penalty) for penalty in penalties])
    w = shrunk @ basis.T / units * moments.factor
    scaled = scaling.factor > 0
    return Regression(np.where(scaled, w / np.where(scaled, scaling.factor, 1.0), 0.0), mean)


class Objective:
    """The function of the weights W that a path maximizes: expected gain - penalty / 2 |W - W_0|^2.

    The expected gain is the mean over the training queries of the path. A path is the training of all
    candidates on one set of queries. W_0 (attribute `start`) are the weights of a regression on the labels,
    scaled so that their scores have a standard deviation of 1 within queries.

    A partitioned measure is a relaxation with two outputs per document. Its W and W_0 have shape (D + 1, 2):
    one column per output, and a last row of intercepts. W_0 is then derived from the weights of the
    regression, and the intercepts are not penalized.
    """

    def __init__(
        self,
        path: Path,
        moments: Moments,
        scaling: Scaling,
        relaxation: Relaxation,
        weights: Floats,
        mean: Floats,
        width: float,
    ) -> None:
        """Make the objective of a path.

        weights  (D,) weights of the regression.
        mean     (D,) means of the normalized features.
        width    Standard deviation, within queries, of the scores of the regression.
        """
        self.path, self.scaling = path, scaling
        self._longest = max(source.longest for source in path.sources)
        self._reach = exponents(moments.largest * self._longest)
        w = weights / width if width > 0 else np.zeros_like(weights)
        self.start = w if relaxation.width == 1 else _partitioned_start(w, mean, relaxation)
        self._last: tuple[Relaxation, Floats, tuple[float, Floats]] | None = None

    def known(self, W: Floats, relaxation: Relaxation) -> tuple[float, Floats] | None:
        """Expected gain and gradient at weights W if they were evaluated last, or None.

        A stage starts where the stage before it ended.
        """
        if self._last is None or self._last[0] != relaxation or not np.array_equal(self._last[1], W):
            return None
        return self._last[2]

    def keep(self, W: Floats, relaxation: Relaxation, found: tuple[float, Floats]) -> None:
        """Keep the expected gain and gradient at weights W, which were evaluated last."""
        self._last = relaxation, W.copy(), found

    def point(self, W: Floats, relaxation: Relaxation, extra: int) -> Point:
        """Return weights W as a point of the task `Evaluate`, with bounds for its sums.

        A sum that did not fit is repeated with a larger `extra`.
        """
        path = self.path
        sigma = relaxation.sigma if isinstance(relaxation, SmoothedIndicator) else 1.0
        share = path.largest_weight / (path.total_weight or path.n_queries)
        # Derivatives with respect to one score are usually below 2^steep. If one of them is larger,
        # `until_it_fits` repeats the sum with a larger bound.
        steep = exponent(share / min(1.0, sigma)) + 8 + extra
        return Point(
            path=path.number,
            scorer=scorer(W, self.scaling),
            n_queries=path.n_queries,
            total_weight=path.total_weight,
            exponent=self._reach + steep,
            of_values=10 + exponent(share) + extra,
            of_totals=steep + exponent(self._longest),
        )

    def value(self, found: Evaluated) -> tuple[float, Floats]:
        """Expected gain, and its gradient with respect to the weights, from the sums over the queries."""
        value, by_feature, factor = float(found.value.value()), found.products.value(), self.scaling.factor
        if found.totals is None:
            # The shifts of the features drop out: the derivatives with respect to the scores sum to 0 over
            # each query, since adding a constant to all scores of a query changes nothing.
            return value, by_feature * factor
        total = found.totals.value()
        offset = np.outer(self.scaling.shift * factor, total)
        return value, np.concatenate([by_feature.T * factor[:, None] - offset, total[None]])


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Settings with which the expected gain of several paths is computed; see `expected_gain`.

    A path is the training of all candidates on one set of queries.
    """

    gain: Gain
    n_iter: Iterations
    epsilon: float
    resample: int
    seed: int

    def values(
        self, paths: Sequence[Objective], points: Mapping[int, Floats], relaxation: Relaxation
    ) -> dict[int, tuple[float, Floats]]:
        """Expected gain and gradient of paths at weights {index of the path in `paths`: W}.

        All paths are evaluated in one pass over the queries of each source. A path at the weights where it
        was evaluated last is left out of the pass.
        """
        known = {i: paths[i].known(W, relaxation) for i, W in points.items()}
        results = {i: found for i, found in known.items() if found is not None}
        points = {i: W for i, W in points.items() if i not in results}
        if not points:
            return results
        settings = native_settings(relaxation, self.n_iter, self.epsilon)
        sources = _sources([paths[i].path for i in points])

        def run(extra: int) -> dict[int, Evaluated]:
            found: dict[int, Evaluated] = {}
            for source in sources:
                own = [i for i in points if source in paths[i].path.sources]
                task = Evaluate(
                    tuple(paths[i].point(points[i], relaxation, extra) for i in own),
                    self.gain,
                    settings,
                    self.resample,
                    self.seed,
                )
                parts: list[Evaluated] = source.run(task)
                for i, part in zip(own, parts, strict=True):
                    found[i] = found[i] + part if i in found else part
            return found

        sums = until_it_fits(run, lambda found: all(part.fits for part in found.values()))
        for i, part in sums.items():
            results[i] = paths[i].value(part)
            paths[i].keep(points[i], relaxation, results[i])
        return results

    def maximize(
        self,
        paths: Sequence[Objective],
        starts: Sequence[Floats],
        relaxation: Relaxation,
        penalty: float,
        *,
        max_iter: int,
        tol: float,
    ) -> tuple[list[Floats], int]:
        """Maximize the penalized expected gain of every path by L-BFGS.

        Returns the final weights of each path, and the number of evaluations of the gain of a path.

        starts  Weights from which each path starts.
        """
        evaluations = 0

        def losses(points: Mapping[int, Floats]) -> dict[int, tuple[float, Floats]]:
            nonlocal evaluations
            evaluations += len(points)
            found = {}
            for i, (value, gradient) in self.values(paths, points, relaxation).items():
                away = points[i] - paths[i].start
                if away.ndim == 2:
                    away[-1] = 0  # intercepts are not penalized
                loss = -value + penalty / 2 * float(np.sum(away * away))
                found[i] = loss, penalty * away - gradient
            return found

        return descend_together(losses, starts, max_iter=max_iter, tol=tol), evaluations


def _partitioned_start(w: Floats, mean: Floats, relaxation: Relaxation) -> Floats:
    """Starting weights of a partitioned measure, a relaxation with two outputs per document: (D + 1, 2).

    The last row holds the intercepts.

    w     (D,) weights of a regression, from which the weights of both outputs are derived.
    mean  (D,) means of the normalized features.
    """
    beta = isinstance(relaxation, PartitionedMeasure) and relaxation.family == "beta"
    # The weights of a shared scale, of which those for beta are an approximation near the middle of (0, 1)
    W = np.stack([-w / 2, w / 2] if beta else [-w, np.zeros_like(w)], axis=1)
    scale = math.log(SHARED_SCALE)
    intercepts = np.full(2, math.log(2) - 2 * scale) if beta else np.array([0.0, scale])
    return np.vstack([W, intercepts - mean @ W])
