"""The derivatives that trees are grown on: gradient and curvature of the expected gain, by native code."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop import _native
from sinkprop.common.arguments import number, numbers, threads
from sinkprop.common.types import Floats, Integers, Singles
from sinkprop.data.checks import as_label_columns, as_query_weight, as_real_scores, as_sample_weight
from sinkprop.data.queries import Groups
from sinkprop.objective.exact_sum import exact_sum
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.gains.base import with_bound_arrays
from sinkprop.objective.native_terms import NativeGains, native_gains, native_settings
from sinkprop.objective.normalization import Iterations, warn_unconverged
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["Derivatives", "TreeLoss", "whole_of"]


GAIN = "ndcg"  # default gain
# Smallest curvature of a document; smaller ones are replaced by it. Boosters divide by the sum of the
# curvatures in a leaf, which would be 0 if all documents of the leaf had derivative 0.
_LEAST = 1e-16
# Range of the widths. At a tie, a derivative is about 1 / width, and boosters take it as a 32-bit number.
_WIDTHS = (1e-30, 1e30)


@dataclass(frozen=True)
class TreeLoss:
    """Settings of the loss that boosted trees minimize, and of the derivatives of this loss.

    The loss is the negative of the expected gain.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain to maximize, see `expected_gain`. If it does not state the discount of NDCG, the discount is
        1 / log2(k + 1), which distinguishes rank 1 from rank 2; LETOR's discount does not.
    widths : float or sequence of float, default (0.1, 1.0)
        Widths of the Laplace kernel, each from 1e-30 to 1e30. The expected gain is the mean over the widths.
        A small width resolves the current order of the documents; a large one lets documents that are far
        apart affect each other. Widths are in units of the scores, which a tree changes by about the learning
        rate.
    blend : float, default 0.5
        Share of the query's mean in a document's curvature, from 0 to 1. A document's own curvature is the
        absolute value of its derivative. With 0 every document keeps its own; with 1 all documents of a query
        have the mean.
    noise : float, default 0.4
        Standard deviation of the noise that is added to every score before the derivatives are computed. It
        is drawn anew in each round, so that trees see different orders of documents with similar scores and
        make less similar errors.
    seed : int, default 0
        Seed of the noise. The noise is a function of the seed, the scores and the order of the rows; no state
        is kept between rounds.
    n_iter : float, "converged" or Converged, default 2
        Number of Sinkhorn iterations, whole or with a half, such as 2.5, or their limit; see `expected_gain`.
    epsilon : float, default 1e-6
        Number added to every entry of the matrix A, see `expected_gain`, before the Sinkhorn iterations.

    Examples
    --------
    >>> from sinkprop.gbdt import TreeLoss
    >>> TreeLoss("ndcg@10", widths=0.5).widths
    (0.5,)
    """

    gain: str | Gain = GAIN
    widths: float | Sequence[float] = (0.1, 1.0)
    blend: float = 0.5
    noise: float = 0.4
    seed: int = 0
    n_iter: Iterations = 2
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "gain", as_gain(self.gain, "log2"))
        put(self, "widths", numbers("widths", self.widths, least=_WIDTHS[0], most=_WIDTHS[1]))
        put(self, "blend", number("blend", self.blend))
        if self.blend > 1:
            raise ValueError(f"blend must be from 0 to 1; got {self.blend!r}.")
        put(self, "noise", number("noise", self.noise))
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(f"seed must be a whole number, not below 0; got {self.seed!r}.")
        native_settings(SmoothedIndicator(kernel="laplace"), self.n_iter, self.epsilon)

    def fitted(self, labels: Floats) -> TreeLoss:
        """Return the loss with the parameters of its gain that depend on the training labels.

        Parameters
        ----------
        labels : array of shape (N,) or (N, L)
            Labels of all training documents.

        Returns
        -------
        TreeLoss
            The loss.
        """
        return replace(self, gain=as_gain(self.gain).fitted(labels))


def whole_of(sizes: Integers, weights: Floats | None = None) -> tuple[float, float]:
    """Sum of the query weights, and the weighted mean number of documents per query."""
    if weights is None:
        weights = np.ones(len(sizes))
    total = exact_sum(weights)
    return total, exact_sum(weights / total * sizes)


class Derivatives:
    """Gradient and curvature of the loss that boosted trees minimize.

    The loss is the negative of the mean expected gain, multiplied by the number of documents. This factor
    makes the derivative of a document about 1 in size, as boosters expect. Query weights also count when the
    number of documents is computed: a query of weight 2 counts like two copies of it.

    Parameters
    ----------
    loss : TreeLoss
        Settings of the loss.
    labels : array of shape (N,) or (N, L)
        Relevance of each document, not below 0; several columns for a gain that reads several labels.
    groups : Groups
        Queries of the rows.
    sample_weight : array of shape (N,), optional
        Row weights, see `expected_gain`.
    query_weight : array of shape (Q,) or (N,), or mapping from query id to float, optional
        Query weights, see `expected_gain`.
    n_threads : int, optional
        Number of threads, see `expected_gain`. Does not change the derivatives.
    whole : tuple of (float, float), optional
        Sum of the weights of all queries, and their weighted mean number of documents. By default both are
        computed from the other arguments. Pass them if this process holds only some of the documents;
        queries whose documents are in other processes are empty in `groups`.

    Notes
    -----
    Derivatives of tied documents are the mean over all orders of these documents, so trees can start with all
    scores tied. Without noise, the order of the rows does not matter.

    Examples
    --------
    >>> from sinkprop.data.queries import group_rows
    >>> from sinkprop.gbdt import Derivatives, TreeLoss
    >>> derivatives = Derivatives(TreeLoss("ndcg@10", noise=0), [0, 2, 1, 0], group_rows([7, 7, 7, 7], 4))
    >>> gradient, curvature = derivatives([0.0, 0.0, 0.0, 0.0])
    >>> print(gradient.round(3), curvature.round(3))
    [ 0.928 -1.857 -0.     0.928] [0.928 1.393 0.464 0.928]
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
        gain, self.labels = with_bound_arrays(as_gain(loss.gain), as_label_columns(labels, n))
        self.sample_weight = None if sample_weight is None else as_sample_weight(sample_weight, n)
        self.query_weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        gains = native_gains(gain, self.labels, groups, self.sample_weight)
        settings = native_settings(SmoothedIndicator(kernel="laplace"), loss.n_iter, loss.epsilon)
        sizes = groups.sizes
        weights = np.ones(len(sizes)) if self.query_weight is None else self.query_weight
        total, mean_size = whole or whole_of(sizes, weights)
        self._shares, factors = weights / total, weights * mean_size
        self._plain, self._tol = isinstance(gains, NativeGains), settings.tol
        # arguments of the native function, in the order of its parameters: those between scores and noise,
        # and those between noise and n_threads
        self._queries = (groups.offsets, groups.rows, gains, np.array(loss.widths), loss.blend)
        self._others = (
            int(loss.seed) % 2**64,
            settings.half_steps,
            settings.epsilon,
            settings.tol,
            factors,
            _LEAST,
        )

    def __call__(self, scores: ArrayLike) -> tuple[Singles, Singles]:
        """Gradient and curvature for a booster.

        Parameters
        ----------
        scores : array of shape (N,)
            Current scores of the documents. An array of float32 is read as it is, without a copy in float64,
            and gives the same bits as that copy.

        Returns
        -------
        gradient, curvature : float32 array of shape (N,)
            First derivatives of the loss, and the curvatures, which are above 0.
        """
        return self._evaluate(scores, self.loss.noise)[1:]

    def value(self, scores: ArrayLike) -> float:
        """Mean expected gain over the queries, weighted by the query weights; no noise is added.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores of the documents.

        Returns
        -------
        float
            Mean expected gain.
        """
        return exact_sum(self.values(scores))

    def values(self, scores: ArrayLike) -> Floats:
        """Contribution of each query to `value`.

        Parameters
        ----------
        scores : array of shape (N,)
            Scores of the documents.

        Returns
        -------
        array of shape (Q,)
            Expected gain of each query times its weight, divided by the sum of all query weights.
        """
        return self._evaluate(scores, 0.0)[0] * self._shares

    def _evaluate(self, scores: ArrayLike, noise: float) -> tuple[Floats, Singles, Singles]:
        x, n = as_real_scores(scores, 1), len(self.labels)
        if len(x) != n:
            raise ValueError(f"scores must have one value per row: {n} rows, but {len(x)} scores.")
        n_threads = threads(self.n_threads, n)
        per_query, gradient, hessian = np.empty(len(self._shares)), np.empty(n, "f4"), np.empty(n, "f4")
        residual = np.empty(len(per_query)) if self._tol else None
        evaluate: Any = _native.tree_derivatives if self._plain else _native.tree_terms
        evaluate(x, *self._queries, noise, *self._others, n_threads, per_query, gradient, hessian, residual)
        if residual is not None:
            warn_unconverged(residual, self._tol, stacklevel=3)
        if not (hessian.max() < math.inf and np.isfinite(gradient).all()):
            raise ValueError(
                "the gain's derivatives are too large for the 32-bit numbers that boosters take; give a "
                "gain, or weights, of smaller values."
            )
        return per_query, gradient, hessian
