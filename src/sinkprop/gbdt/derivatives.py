"""The derivatives that trees are grown on: gradient and curvature of the expected gain, by native code."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sinkprop import _native
from sinkprop.common.arguments import number, numbers, threads
from sinkprop.common.types import Floats, Integers, Singles
from sinkprop.data.checks import as_labels, as_query_weight, as_sample_weight, as_scores
from sinkprop.data.queries import Groups
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.native_terms import native_gains, native_settings
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["Derivatives", "TreeLoss", "whole_of"]


# LETOR's discount is the same for the first two ranks: nothing would tell the second document from the first.
GAIN = "ndcg(discount=log2)"
# Boosters divide by a sum of curvatures, which must not be 0 in a leaf of documents without a derivative.
_LEAST = 1e-16


@dataclass(frozen=True)
class TreeLoss:
    """How the scores of a query become derivatives.

    gain       what is to be large: see `expected_gain`. The default has the discount 1 / log2(k + 1), which
               tells the first rank from the second, as LETOR's does not
    widths     of the Laplace kernel, one or several: the expected gain is the mean over them. Small ones see
               who stands before whom, large ones who might; a tree moves scores by the learning rate or less
    blend      a document's curvature is the absolute value of its derivative: this part of it is taken as the
               mean over its query. 0 leaves every document its own; with 1 it is the same for all of a query
    noise      standard deviation of what is added to every score before its derivatives are taken, anew in
               each round: trees that see other orders of near documents agree less on their mistakes
    seed       of the noise, which depends besides on the scores and the order of the rows: there is no state
    n_iter     Sinkhorn iterations
    epsilon    added to every entry of the matrix before them

    >>> TreeLoss("ndcg@10", widths=0.5).widths
    (0.5,)
    """

    gain: str | Gain = GAIN
    widths: float | Sequence[float] = (0.1, 1.0)
    blend: float = 0.5
    noise: float = 0.4
    seed: int = 0
    n_iter: float = 2
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "gain", as_gain(self.gain))
        put(self, "widths", numbers("widths", self.widths, least=math.ulp(0.0)))
        put(self, "blend", number("blend", self.blend))
        if self.blend > 1:
            raise ValueError(f"blend must be from 0 to 1; got {self.blend!r}.")
        put(self, "noise", number("noise", self.noise))
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(f"seed must be a whole number, not below 0; got {self.seed!r}.")
        native_settings(SmoothedIndicator(kernel="laplace"), self.n_iter, self.epsilon)


def whole_of(sizes: Integers, weights: Floats | None = None) -> tuple[float, float]:
    """The sum of the weights of queries, and the mean number of their documents."""
    if weights is None:
        weights = np.ones(len(sizes))
    total = math.fsum(weights)
    return total, math.fsum(weights / total * sizes)


class Derivatives:
    """The derivatives of minus the mean expected gain times the number of documents.

    So a document's is of the order of 1, as boosters expect. Where queries have weights, they count their
    documents too: a query of weight 2 is as two of it.

    groups         the queries of the rows
    sample_weight  (N,) row weights and
    query_weight   query weights: see `expected_gain`
    whole          `whole_of` all queries, where only some of the documents are here: queries whose documents
                   are elsewhere have none in `groups`, and are there to be counted

    Documents with the same score count as a mean over the orders in which they might stand, so that trees may
    start with every score tied. Without noise, no order of the rows matters.

    >>> from sinkprop.data.queries import group_rows
    >>> derivatives = Derivatives(TreeLoss("ndcg@10", noise=0), [0, 2, 1, 0], group_rows([7, 7, 7, 7], 4))
    >>> gradient, curvature = derivatives([0.0, 0.0, 0.0, 0.0])
    >>> print(gradient.round(3), curvature.round(3))
    [ 0.857 -1.713 -0.     0.857] [0.857 1.285 0.428 0.857]
    """

    def __init__(
        self,
        loss: TreeLoss,
        labels: ArrayLike,
        groups: Groups,
        *,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        n_threads: int | None = None,
        whole: tuple[float, float] | None = None,
    ) -> None:
        n = int(groups.offsets[-1])
        self.loss, self.groups, self.n_threads = loss, groups, n_threads
        self.labels = as_labels(labels, n)
        self.sample_weight = None if sample_weight is None else as_sample_weight(sample_weight, n)
        self.query_weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        gain = as_gain(loss.gain)
        self._gains = native_gains(gain, self.labels, groups, self.sample_weight)
        self._widths = np.array(loss.widths)
        self._settings = native_settings(SmoothedIndicator(kernel="laplace"), loss.n_iter, loss.epsilon)
        sizes = groups.sizes
        weights = np.ones(len(sizes)) if self.query_weight is None else self.query_weight
        total, mean_size = whole or whole_of(sizes, weights)
        self._shares, self._factors = weights / total, weights * mean_size

    def __call__(self, scores: ArrayLike) -> tuple[Singles, Singles]:
        """Gradient and curvature (N,), as boosters take them."""
        return self._evaluate(scores, self.loss.noise)[1:]

    def value(self, scores: ArrayLike) -> float:
        """The mean of the expected gains, weighted where queries are; without noise."""
        return math.fsum(self.values(scores))

    def values(self, scores: ArrayLike) -> Floats:
        """(Q,) what each query adds to the value."""
        return self._evaluate(scores, 0.0)[0] * self._shares

    def _evaluate(self, scores: ArrayLike, noise: float) -> tuple[Floats, Singles, Singles]:
        x, n = as_scores(scores, 1), len(self.labels)
        if len(x) != n:
            raise ValueError(f"scores must have one value a row: {n} rows, but {len(x)} scores.")
        per_query, gradient, hessian = np.empty(len(self._factors)), np.empty(n, "f4"), np.empty(n, "f4")
        _native.tree_derivatives(
            x,
            offsets=self.groups.offsets,
            rows=self.groups.rows,
            **self._gains._asdict(),
            widths=self._widths,
            blend=self.loss.blend,
            noise=noise,
            seed=int(self.loss.seed) % 2**64,
            half_steps=self._settings.half_steps,
            epsilon=self._settings.epsilon,
            query_weight=self._factors,
            least=_LEAST,
            n_threads=threads(self.n_threads, n),
            per_query=per_query,
            gradient=gradient,
            hessian=hessian,
        )
        if not hessian.max() < math.inf:
            raise ValueError(
                "the gain's derivatives are too large for the 32-bit numbers that boosters take; give a "
                "gain, or weights, of smaller values."
            )
        return per_query, gradient, hessian
