"""Tasks of a linear fit: computations on a block of queries, and the combination of their results.

A task is sent to the thread or machine that holds the blocks. Sums over queries are exact (`exact_sums.py`),
so no result depends on how the queries are divided into blocks or distributed over threads and machines.

A path is the training of all candidates on one set of training queries, and the code of a query is the index
of the path that uses it for validation and does not train on it; see `estimator.splits.Split`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import Block
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import Criterion
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.splits import NO_PATH
from sinkprop.linear.exact_sums import ExactSum, add_products, add_rows
from sinkprop.linear.resampling import gathered, resampled
from sinkprop.objective.expected_gain import prepared_gain, scale_queries
from sinkprop.objective.gains import Gain
from sinkprop.objective.native_terms import NativeGains, NativeSettings, NativeTerms, native_gains
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.rank_distribution import partitioned_ranks
from sinkprop.objective.relaxations import Relaxation
from sinkprop.serving.linear_scores import row_scores

__all__ = [
    "Assess",
    "Evaluate",
    "Evaluated",
    "Extent",
    "Gram",
    "Linear",
    "Point",
    "Score",
    "Spread",
    "Squares",
    "Sums",
]


@dataclass(frozen=True, eq=False)
class Linear:
    """Linear scorer of raw features: V (k, D) times a row, minus `shift` (k,), with k = 1 or 2 outputs."""

    V: Floats
    shift: Floats

    def __call__(self, X: NDArray[Any]) -> Floats:
        """Scores of rows X (N, D): shape (N,), or (N, 2) for two outputs."""
        return row_scores(X, self.V, self.shift)


@dataclass(frozen=True)
class Extent:
    """Task that finds the largest absolute value of each feature and, as last entry, the largest label.

    The value of a feature with missing values is NaN.
    """

    def __call__(self, block: Block) -> Floats:
        X = block.data.X
        largest = np.maximum(X.max(axis=0), -X.min(axis=0)).astype(np.float64)
        return np.append(largest, block.data.y.max())

    def combine(self, parts: Sequence[Floats]) -> Floats:
        return np.asarray(np.max(parts, axis=0))


@dataclass(frozen=True)
class LargestLabels:
    """Task that finds the largest label of each label column, (L,)."""

    def __call__(self, block: Block) -> Floats:
        return np.atleast_1d(block.data.labels.max(axis=0))

    def combine(self, parts: Sequence[Floats]) -> Floats:
        return np.asarray(np.max(parts, axis=0))


@dataclass(frozen=True, eq=False)
class Sums:
    """Task that sums the features and the labels over all rows; two results, (D,) and (1,).

    exponent  (D + 1,) exponents of bounds on the sum over one query, for each feature and, last, for the
              labels: |sum| < 2^exponent. The exact sums (`ExactSum`) need these bounds.
    """

    exponent: Integers

    def __call__(self, block: Block) -> tuple[ExactSum, ExactSum]:
        data = block.data
        ones = np.ones(len(data.y))
        return (
            add_products(data.X, ones, data.groups.offsets, self.exponent[:-1]),
            add_products(data.y[:, None], ones, data.groups.offsets, self.exponent[-1:]),
        )

    def combine(self, parts: Sequence[tuple[ExactSum, ExactSum]]) -> tuple[ExactSum, ExactSum]:
        return reduce(add, (part[0] for part in parts)), reduce(add, (part[1] for part in parts))


@dataclass(frozen=True, eq=False)
class Squares:
    """Task that sums (feature - mean)^2 over all rows, (D,).

    mean      (D,) means of the features.
    exponent  (D,) exponents of bounds on the sum over one query: sum < 2^exponent. The exact sums
              (`ExactSum`) need these bounds.
    """

    mean: Floats
    exponent: Integers

    def __call__(self, block: Block) -> ExactSum:
        data = block.data
        away = np.square(data.X - self.mean)
        return add_products(away, np.ones(len(data.y)), data.groups.offsets, self.exponent)

    def combine(self, parts: Sequence[ExactSum]) -> ExactSum:
        return reduce(add, parts)


@dataclass(frozen=True, eq=False)
class Gram:
    """Task that computes Gram matrices (D + 2, D + 2) of the columns [1, z, y - label].

    Entry (i, j) of a Gram matrix is the sum, over rows, of column i times column j. For a row with features x
    and label y, z = (x - mean) * factor. Each row counts with its own weight times the weight of its query.
    Every query has a code: the index of the path (training on one set of queries) that it validates, or -1.
    The result is {code: Gram matrix of the rows of the queries with this code}.

    mean      (D,) means of the features.
    factor    (D,) 1 / standard deviation of the features.
    label     Mean label.
    exponent  (D + 2, D + 2) exponents of bounds on the sum over one query: |sum| < 2^exponent. The exact
              sums (`ExactSum`) need these bounds.
    """

    mean: Floats
    factor: Floats
    label: float
    exponent: Integers

    def __call__(self, block: Block) -> dict[int, ExactSum]:
        data = block.data
        columns = np.empty((len(data.y), data.X.shape[1] + 2))
        columns[:, 0] = 1
        np.subtract(data.X, self.mean, out=columns[:, 1:-1])
        columns[:, 1:-1] *= self.factor
        columns[:, -1] = data.y - self.label
        weight = data.row_weight
        if weight is not None:
            columns *= np.sqrt(weight)[:, None]
        codes = [int(NO_PATH)] * data.n_queries if block.codes is None else block.codes.tolist()
        size = columns.shape[1]
        scale = np.ldexp(1.0, -self.exponent).ravel()
        words = {code: np.zeros((3, size * size), dtype=np.int64) for code in set(codes)}
        fits = True
        bounds = data.groups.offsets.tolist()
        for code, first, last in zip(codes, bounds[:-1], bounds[1:], strict=True):
            rows = columns[first:last]
            fits &= _native.add_words((rows.T @ rows).reshape(1, -1), scale, words[code])
        return {
            code: ExactSum(sums.reshape(3, size, size), self.exponent, fits) for code, sums in words.items()
        }

    def combine(self, parts: Sequence[dict[int, ExactSum]]) -> dict[int, ExactSum]:
        total: dict[int, ExactSum] = {}
        for part in parts:
            for code, sums in part.items():
                total[code] = total[code] + sums if code in total else sums
        return total


@dataclass(frozen=True, eq=False)
class Spread:
    """Task that sums query weight * (score - mean score of the query)^2 over the training rows of paths.

    It also finds the largest absolute score. A path is the training on one set of queries; see `Split`. There
    is one result per scorer.

    scorers   Pairs of the index of a path and a scorer.
    exponent  Exponent of a bound on the sum over one query; see `ExactSum`.
    """

    scorers: tuple[tuple[int, Linear], ...]
    exponent: Integers

    def __call__(self, block: Block) -> list[tuple[ExactSum, float]]:
        return [self._of(block, path, scorer) for path, scorer in self.scorers]

    def _of(self, block: Block, path: int, scorer: Linear) -> tuple[ExactSum, float]:
        groups = block.trained(path)
        if groups is None:
            return add_rows(np.zeros(1), self.exponent), 0.0
        scores = scorer(block.data.X)
        if groups.rows is not None:
            scores = scores[groups.rows]
        sizes = groups.sizes
        means = np.add.reduceat(scores, groups.offsets[:-1]) / sizes
        squares = np.add.reduceat(np.square(scores - np.repeat(means, sizes)), groups.offsets[:-1])
        if block.data.query_weight is not None:
            squares *= _of_queries(block, path)
        return add_rows(squares, self.exponent), float(np.abs(scores).max())

    def combine(self, parts: Sequence[list[tuple[ExactSum, float]]]) -> list[tuple[ExactSum, float]]:
        return [
            (reduce(add, (sums for sums, _ in each)), max(largest for _, largest in each))
            for each in zip(*parts, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Result of the task `Evaluate`: sums over the training queries of a path.

    X (N, D) are the features of the rows, and g is the gradient, with respect to the rows' scores, of the
    mean expected gain of the training queries.

    value     () sum of the queries' expected gains times their shares in the mean.
    products  X' g: (D,) with one score per document, (2, D) with two.
    totals    (2,) sum of g over the rows if documents have two scores; None if they have one.
    """

    value: ExactSum
    products: ExactSum
    totals: ExactSum | None

    def __add__(self, other: Evaluated) -> Evaluated:
        totals = None
        if self.totals is not None and other.totals is not None:
            totals = self.totals + other.totals
        return Evaluated(self.value + other.value, self.products + other.products, totals)

    @property
    def fits(self) -> bool:
        return self.value.fits and self.products.fits and (self.totals is None or self.totals.fits)


@dataclass(frozen=True, eq=False)
class Point:
    """Weights of one path at which the task `Evaluate` computes the expected gain and its gradient.

    A path is the training on one set of queries; see `Split`. Sums are exact (`ExactSum`), which needs bounds
    on the contribution of one query: |contribution| < 2^exponent. X are the features, and g is the gradient
    with respect to the scores.

    path          Index of the path.
    scorer        Scorer with these weights.
    n_queries     Number of training queries of the path, over all blocks.
    total_weight  Sum of the weights of these queries; None if all count the same.
    exponent      (D,) exponents of the bounds for the products X' g.
    of_values     Exponent of the bound for the expected gain.
    of_totals     Exponent of the bound for the sum of g over the rows.
    """

    path: int
    scorer: Linear
    n_queries: int
    total_weight: float | None
    exponent: Integers
    of_values: int
    of_totals: int


@dataclass(frozen=True, eq=False)
class Evaluate:
    """Task that computes the expected gain of the training queries of paths, and sums for its gradient.

    A path is the training on one set of queries; see `Split`. Scores, gains and products of all paths are
    computed together: the rows are read once. The result has one `Evaluated` per point.

    points    Weights of each path, with bounds.
    gain      Gain whose expectation is computed.
    settings  Settings of the relaxation, for the native layer.
    resample  Number of copies of each query with documents drawn at random; 0 uses the original queries.
    seed      Seed of the resampling.
    """

    points: tuple[Point, ...]
    gain: Gain
    settings: NativeSettings
    resample: int = 0
    seed: int = 0

    def __call__(self, block: Block) -> list[Evaluated]:
        data, count = block.data, len(self.points)
        every = Linear(
            np.concatenate([point.scorer.V for point in self.points]),
            np.concatenate([point.scorer.shift for point in self.points]),
        )
        theta = every(data.X).reshape(len(data.X), count, -1)
        if not np.isfinite(theta).all():
            raise ValueError(
                "the scores of the training documents overflow: features are too large. Scale them, or "
                "use normalization='standard'."
            )
        width = theta.shape[2]
        values, g = self._of_scores(block, theta.transpose(1, 0, 2).reshape(-1, width))
        g = g.reshape(count, -1, width)
        scales = np.stack([point.exponent for point in self.points for _ in range(width)])
        products = add_products(
            data.X, g.transpose(1, 0, 2).reshape(len(data.X), -1), data.groups.offsets, scales
        )
        words = products.words.reshape(3, count, width, -1)
        found = []
        for i, point in enumerate(self.points):
            own, totals = words[:, i, 0], None
            if width > 1:
                own = words[:, i]
                sums = np.add.reduceat(g[i], data.groups.offsets[:-1], axis=0)
                totals = add_rows(sums, np.asarray(point.of_totals))
            found.append(
                Evaluated(
                    add_rows(values[i], np.asarray(point.of_values)),
                    ExactSum(own, point.exponent, products.fits),
                    totals,
                )
            )
        return found

    def _of_scores(self, block: Block, theta: Floats) -> tuple[list[Floats], Floats]:
        """Contribution of each training query to the mean of each point, and the gradient of the means.

        theta  (P N, k) scores: P is the number of points, N the number of rows, and k the number of scores
               per document. The gradient has shape (P, N k).
        """
        paths = tuple(point.path for point in self.points)
        stack = block.keep(("stack", paths, self.resample, self.seed), lambda: self._stacked(block))
        if stack.groups is None or stack.gains is None:
            return [np.zeros(0) for _ in paths], np.zeros((len(paths), theta.size // len(paths)))
        x = theta if stack.drawn is None else theta[stack.drawn]
        x = x[:, 0] if x.shape[1] == 1 else x
        values, g = prepared_gain(x, stack.groups, stack.gains, self.settings, 1, factor=1.0)
        copies = max(1, self.resample)
        by_point = np.array([1 / (copies * (point.total_weight or point.n_queries)) for point in self.points])
        values *= np.repeat(by_point, stack.counts)
        if stack.weight is not None:
            scale_queries(g, stack.weight, stack.groups)
            values *= stack.weight
        if stack.drawn is not None:
            g = gathered(g, stack.drawn, len(theta))
        g = g.reshape(len(by_point), -1) * by_point[:, None]
        return np.split(values, np.cumsum(stack.counts)[:-1]), g

    def _stacked(self, block: Block) -> _Stack:
        data, n = block.data, len(block.data.y)
        rows, sizes, counts, weights = [], [], [], []
        for number, point in enumerate(self.points):
            groups = block.trained(point.path)
            if groups is None:
                counts.append(0)
                continue
            own = np.arange(n) if groups.rows is None else groups.rows
            if self.resample:
                numbers = block.first + _numbers(block, point.path)
                own, groups = resampled(groups, numbers, self.resample, (self.seed, point.path))
            rows.append(own + number * n)
            sizes.append(groups.sizes)
            counts.append(len(groups.sizes))
            if data.query_weight is not None:
                weights.append(np.tile(_of_queries(block, point.path), max(1, self.resample)))
        if not rows:
            return _Stack(None, None, None, tuple(counts), None)
        taken, together = np.concatenate(rows), np.concatenate(sizes)
        every = len(taken) == n * len(self.points)  # in order then, since the rows of a block are sorted
        of = taken % n if self.resample else np.tile(np.arange(n), len(self.points))
        stacked = Groups.of_sizes(together, rows=None if self.resample or every else taken)
        weight = None if data.sample_weight is None else data.sample_weight[of]
        prepared = native_gains(self.gain, data.labels[of], stacked, weight)
        drawn = taken if self.resample else None
        of_queries = np.concatenate(weights) if weights else None
        return _Stack(stacked, drawn, prepared, tuple(counts), of_queries)

    def combine(self, parts: Sequence[list[Evaluated]]) -> list[Evaluated]:
        return [reduce(add, each) for each in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class _Stack:
    """Training queries of several paths in a block, one path after another, for one call of the native layer.

    Row i of path number p has the index p N + i in the stack, where N is the number of rows of the block.

    groups  Queries of all paths; None if there are none.
    drawn   Rows of documents drawn at random; None if the queries are the original ones.
    gains   Gain of the rows of the stack, or of the drawn documents; None if there are no queries.
    counts  Number of queries of each path.
    weight  Weight of each query; None if there are no weights.
    """

    groups: Groups | None
    drawn: Integers | None
    gains: NativeGains | NativeTerms | None
    counts: tuple[int, ...]
    weight: Floats | None


@dataclass(frozen=True, eq=False)
class Assessed:
    """Result of the task `Assess`: the criterion of the models of one stage.

    A stage trains one model per path, and a path is the training on one set of queries.

    validation  {index of a path: (q,) criterion of each validation query of this path}.
    training    (2,) two sums over the training queries of a path: of weight times criterion, and of weight.
                None if the training queries were skipped.
    """

    validation: dict[int, Floats]
    training: ExactSum | None


@dataclass(frozen=True, eq=False)
class Assess:
    """Task that computes the criterion of the models of one stage on validation and training queries.

    A stage is the optimization for one penalty and one sigma. It trains one model per path, and a path is
    the training on one set of queries. The result is an `Assessed`.

    criterion_of  Function that computes the criterion of each query.
    scorers       {index of a path: its scorer}, for the paths whose validation queries are evaluated.
    training      Index and scorer of a path, to compute the criterion of its training queries; None to skip
                  them.
    relaxation, n_iter, epsilon, top
                  Settings for ranking with a partitioned measure.
    exponent      Exponent of a bound on a training query's weight and on its weight times criterion:
                  both < 2^exponent. The exact sums over training queries (`ExactSum`) need this bound.
    """

    criterion_of: Criterion
    scorers: Mapping[int, Linear]
    training: tuple[int, Linear] | None
    relaxation: Relaxation
    n_iter: Iterations
    epsilon: float
    top: int
    exponent: int

    def __call__(self, block: Block) -> Assessed:
        validation = {}
        for path, scorer in self.scorers.items():
            groups = block.validation(path)
            validation[path] = np.zeros(0) if groups is None else self._criterion(block, groups, scorer)
        training = None
        if self.training is not None:
            path, scorer = self.training
            sums = np.zeros((0, 2))
            groups = block.trained(path)
            if groups is not None:
                values = self._criterion(block, groups, scorer)
                counted = ~np.isnan(values)
                shares = counted.astype(np.float64)
                if block.data.query_weight is not None:
                    shares *= _of_queries(block, path)
                sums = np.stack([np.where(counted, values, 0.0) * shares, shares], axis=1)
            training = add_rows(sums, np.asarray(self.exponent))
        return Assessed(validation, training)

    def _criterion(self, block: Block, groups: Groups, scorer: Linear) -> Floats:
        """Criterion (q,) of the queries `groups` of the block, with the scores of `scorer`."""
        data = block.data
        X, y, weight, columns = data.X, data.y, data.sample_weight, data.columns
        if groups.rows is not None:
            X, y = X[groups.rows], y[groups.rows]
            weight = None if weight is None else weight[groups.rows]
            columns = None if columns is None else columns[groups.rows]
            groups = groups.sorted
        scores = scorer(X)
        if scores.ndim == 2:
            ranks = partitioned_ranks(
                scores, groups, self.relaxation, n_iter=self.n_iter, epsilon=self.epsilon, top=self.top
            )
            scores = -ranks.astype(np.float64)
        part = TrainingSet(np.empty((len(y), 0)), y, groups, weight, columns=columns)
        return self.criterion_of(part, scores)

    def combine(self, parts: Sequence[Assessed]) -> Assessed:
        validation = {
            path: np.concatenate([part.validation[path] for part in parts]) for path in self.scorers
        }
        training = [part.training for part in parts if part.training is not None]
        return Assessed(validation, reduce(add, training) if training else None)


@dataclass(frozen=True, eq=False)
class Score:
    """Task that scores validation queries, each by the model of the path that it validates.

    A path is the training on one set of queries; see `Split`. The result is None for a block without
    validation queries.

    scorers  {index of a path: its scorer}.
    weights  Weights with which the outputs of a scorer are summed to a single score.
    step     Only every step-th query of the whole set is scored.
    """

    scorers: Mapping[int, Linear]
    weights: tuple[float, ...]
    step: int

    def __call__(self, block: Block) -> HeldOut | None:
        data = block.data
        sizes, scores = data.groups.sizes, np.full(len(data.y), np.nan)
        counted = (block.first + np.arange(len(sizes))) % self.step == 0
        validated = np.zeros(len(sizes), dtype=bool)
        for path, scorer in self.scorers.items():
            own = counted if block.codes is None else counted & (block.codes == path)
            rows = np.repeat(own, sizes)
            if own.any():
                theta = scorer(data.X[rows])
                scores[rows] = theta if theta.ndim == 1 else theta @ np.array(self.weights)
            validated |= own
        if not validated.any():
            return None
        rows = np.repeat(validated, sizes)
        return HeldOut(scores[rows], data.y[rows], sizes[validated])

    def combine(self, parts: Sequence[HeldOut | None]) -> HeldOut | None:
        return HeldOut.joined(part for part in parts if part is not None)


def _numbers(block: Block, path: int) -> Integers:
    """(q,) positions, within the block, of the training queries of path number `path`; see `Split`."""
    if block.codes is None:
        return np.arange(block.data.n_queries)
    return np.flatnonzero(block.codes != path)


def _of_queries(block: Block, path: int) -> Floats:
    """(q,) weights of those queries of the block that are training queries of path number `path`."""
    numbers, weight = _numbers(block, path), block.data.query_weight
    return np.ones(len(numbers)) if weight is None else weight[numbers]
