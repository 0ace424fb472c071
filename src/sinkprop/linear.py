"""Linear scorers: their expected gain and its gradient in the weights, and where the weights start."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.data import Groups
from sinkprop.objective import doubly_stochastic
from sinkprop.permutation import choose_permutation
from sinkprop.products import Products
from sinkprop.regression import least_squares
from sinkprop.relaxations import Relaxation
from sinkprop.scaling import Scaling

__all__ = [
    "LinearProblem",
    "TrainingSet",
    "descend",
    "fingerprint",
    "gathered",
    "joined",
    "linear_scores",
    "partitioned_ranks",
    "resampled",
    "row_scores",
    "spread",
    "unscaled",
]

Floats = NDArray[np.float64]

_RESAMPLED_SIZE = 200  # the paper's bound on a resampled query


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows sorted by query, checked, with their weights: what the trainer takes."""

    X: NDArray[Any]
    y: Floats
    groups: Groups
    sample_weight: Floats | None = None
    query_weight: Floats | None = None

    @property
    def n_queries(self) -> int:
        return len(self.groups.queries)

    @property
    def codes(self) -> NDArray[np.int64]:
        """(N,) the number of each row's query."""
        return np.repeat(np.arange(self.n_queries), np.diff(self.groups.offsets))

    @property
    def row_weight(self) -> Floats | None:
        """(N,) what a row counts where rows count alone: its own weight times its query's."""
        if self.query_weight is None:
            return self.sample_weight
        by_row = np.repeat(self.query_weight, np.diff(self.groups.offsets))
        return by_row if self.sample_weight is None else by_row * self.sample_weight

    def select(self, queries: NDArray[np.int64]) -> TrainingSet:
        """The queries of these numbers, in their order here."""
        chosen = np.zeros(self.n_queries, dtype=bool)
        chosen[queries] = True
        rows = np.repeat(chosen, np.diff(self.groups.offsets))
        sizes = np.diff(self.groups.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return TrainingSet(
            self.X[rows],
            self.y[rows],
            Groups(offsets, None, self.groups.queries[chosen], int(sizes.max())),
            None if self.sample_weight is None else self.sample_weight[rows],
            None if self.query_weight is None else self.query_weight[chosen],
        )


def fingerprint(settings: str, *sets: TrainingSet | None, arrays: Iterable[NDArray[Any]] = ()) -> str:
    """A digest of all that a fit depends on: its settings as text, its queries, and further arrays."""
    digest = hashlib.sha256(settings.encode())
    of_sets = [
        array
        for part in sets
        for array in (
            (None,)
            if part is None
            else (part.X, part.y, part.groups.offsets, part.sample_weight, part.query_weight)
        )
    ]
    for array in (*of_sets, *arrays):
        digest.update(repr(None if array is None else (array.shape, array.dtype)).encode())
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def joined(a: TrainingSet, b: TrainingSet) -> TrainingSet:
    """Both sets; queries of the same id in both stay apart. Missing weights are 1."""

    def together(x: Floats | None, y: Floats | None, n: int, m: int) -> Floats | None:
        if x is None and y is None:
            return None
        return np.concatenate([np.ones(n) if x is None else x, np.ones(m) if y is None else y])

    offsets = np.concatenate([a.groups.offsets, a.groups.offsets[-1] + b.groups.offsets[1:]])
    queries = np.arange(len(offsets) - 1)
    return TrainingSet(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.y, b.y]),
        Groups(offsets, None, queries, max(a.groups.longest, b.groups.longest)),
        together(a.sample_weight, b.sample_weight, len(a.y), len(b.y)),
        together(a.query_weight, b.query_weight, a.n_queries, b.n_queries),
    )


class LinearProblem:
    """Training queries as a linear scorer sees them: its scores, and the gradient in its weights."""

    def __init__(self, data: TrainingSet, scaling: Scaling, multiply: Products) -> None:
        self.data, self.scaling, self._multiply = data, scaling, multiply

    @cached_property
    def start(self) -> Floats:
        """The least-squares weights (D,), in units in which the spread of their scores in queries is 1."""
        return _start(self.data, self.scaling)

    def scores(self, W: Floats, X: NDArray[Any] | None = None) -> Floats:
        return linear_scores(self.data.X if X is None else X, W, self.scaling, self._multiply)

    def gradient(self, g: Floats) -> Floats:
        """That in the weights, (D,) or with intercepts (D + 1, 2), of what has the gradient g in the scores.

        With one score a document, g sums to 0 over each query: a shift of all its scores changes nothing.
        """
        by_feature = self._multiply.backward(self.data.X, g)
        if g.ndim == 1:
            return by_feature * self.scaling.factor
        total = g.sum(axis=0)
        offset = np.outer(self.scaling.shift * self.scaling.factor, total)
        return np.concatenate([by_feature * self.scaling.factor[:, None] - offset, total[None]])


def descend(
    loss: Callable[[Floats], tuple[float, Floats]], W: Floats, *, max_iter: int, tol: float
) -> Floats:
    """The weights to which L-BFGS descends from W on a loss that comes with its gradient.

    `tol` is the relative improvement below which it ends.
    """
    from scipy.optimize import minimize

    def flat(x: Floats) -> tuple[float, Floats]:
        value, gradient = loss(x.reshape(W.shape))
        return value, gradient.ravel()

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": tol, "gtol": 1e-8}
    result = minimize(flat, W.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x, dtype=np.float64).reshape(W.shape)


def linear_scores(X: NDArray[Any], W: Floats, scaling: Scaling, multiply: Products | None = None) -> Floats:
    """Normalized features times weights, with the intercepts in the last row where there are two outputs.

    "query" scaling is done before: here it is the identity. Without `multiply` the score of a row depends on
    no other row, to the last bit.
    """
    V, shift = unscaled(W, scaling)
    if multiply is None:
        return row_scores(X, V, shift)
    return multiply.forward(X, V[0] if W.ndim == 1 else V.T) - (shift[0] if W.ndim == 1 else shift)


def unscaled(W: Floats, scaling: Scaling) -> tuple[Floats, Floats]:
    """V (k, D) and shift (k,) such that V x - shift are the k outputs of the weights W for features x."""
    columns = W[:, None] if W.ndim == 1 else W[:-1]
    V = np.ascontiguousarray((columns * scaling.factor[:, None]).T)
    shift = (scaling.shift * scaling.factor) @ columns
    return V, shift if W.ndim == 1 else shift - W[-1]


def row_scores(X: NDArray[Any], V: Floats, shift: Floats) -> Floats:
    """X V' - shift in float64: (N,) for V (1, D), and (N, k) for V (k, D)."""
    out = np.empty((len(X), len(V)))
    _native.row_scores(X, V, out)
    out -= shift
    return out[:, 0] if len(V) == 1 else out


def partitioned_ranks(
    theta: Floats, groups: Groups, relaxation: Relaxation, *, n_iter: float, epsilon: float, top: int
) -> NDArray[np.int64]:
    """Ranks (N,) by the short-cut Hungarian algorithm on each query's Pi, as the paper ranks test queries."""
    ranks = np.empty(len(theta), dtype=np.int64)
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        Pi = doubly_stochastic(theta[rows], relaxation=relaxation, n_iter=n_iter, epsilon=epsilon)
        ranks[rows[choose_permutation(Pi, method="shortcut", top=top)]] = np.arange(1, len(rows) + 1)
    return ranks


def _start(data: TrainingSet, scaling: Scaling) -> Floats:
    raw, _ = least_squares(data.X, data.y, sample_weight=data.row_weight)
    used = scaling.factor > 0
    w = np.where(used, raw / np.where(used, scaling.factor, 1.0), 0.0)
    width = spread(linear_scores(data.X, w, scaling), data)
    return w / width if width > 0 else np.zeros_like(w)


def spread(scores: Floats, data: TrainingSet) -> float:
    """Standard deviation of the scores within queries; rows count as their queries do."""
    sizes = np.diff(data.groups.offsets)
    means = np.add.reduceat(scores, data.groups.offsets[:-1]) / sizes
    weight = None if data.query_weight is None else np.repeat(data.query_weight, sizes)
    width = math.sqrt(np.average(np.square(scores - np.repeat(means, sizes)), weights=weight))
    # what rounding leaves of equal scores is no spread
    return width if width > 1e-12 * float(np.abs(scores).max()) else 0.0


def resampled(
    groups: Groups, numbers: NDArray[np.int64], times: int, seed: Sequence[int]
) -> tuple[NDArray[np.int64], Groups]:
    """Rows of `times` copies of each query, their documents drawn with replacement, and the copies' groups.

    The sizes are Poisson with the mean of the original's, from 1 to 200. What is drawn for a query depends on
    the seed and its number alone.
    """
    from scipy.special import pdtr, pdtrik

    sizes, starts = np.tile(np.diff(groups.offsets), times), np.tile(groups.offsets[:-1], times)
    keys = np.repeat(np.arange(times, dtype=np.uint64), len(numbers))
    for part in (*(np.full(1, each) for each in seed), np.tile(numbers, times)):
        keys = _mixed(keys ^ _mixed(part.astype(np.uint64)))
    u, mean = _uniform(keys), sizes.astype(np.float64)
    drawn = np.ceil(pdtrik(u, mean))
    fewer = (drawn - 1).clip(0)
    drawn = np.where(pdtr(fewer, mean) >= u, fewer, drawn).clip(1, _RESAMPLED_SIZE).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(drawn)]).astype(np.int64)
    of = np.repeat(np.arange(len(drawn)), drawn)
    place = (np.arange(offsets[-1]) - offsets[:-1][of] + 1).astype(np.uint64)
    rows = starts[of] + np.floor(_uniform(_mixed(keys[of] + place * _GOLDEN)) * sizes[of]).astype(np.int64)
    if groups.rows is not None:
        rows = groups.rows[rows]
    return rows, Groups(offsets, None, np.arange(len(drawn)), int(drawn.max()))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's function: bits that look drawn at random from numbers that do not."""
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _uniform(bits: NDArray[np.uint64]) -> Floats:
    """Numbers within (0, 1)."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gathered(gradient: Floats, rows: NDArray[np.int64], n: int) -> Floats:
    """Sum of the gradient over the copies of each row."""
    if gradient.ndim == 1:
        return np.asarray(np.bincount(rows, weights=gradient, minlength=n), dtype=np.float64)
    return np.stack([np.bincount(rows, weights=column, minlength=n) for column in gradient.T], axis=1)
