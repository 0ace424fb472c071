"""Differentiable ranks and top-k of lists of documents."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats
from sinkprop.jax.core import projection
from sinkprop.jax.lists import as_scores, check_finite, document_lists
from sinkprop.jax.plans import Backend, Normalization, gain_plan, normalization
from sinkprop.objective.gains import Term
from sinkprop.objective.normalization import Iterations, rows_sum_to_one
from sinkprop.objective.relaxations import Relaxation

__all__ = ["expected_ranks", "top_k"]

Array = Any


def expected_ranks(
    scores: Array,
    *,
    where: Array | None = None,
    segments: Array | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    backend: Backend = "auto",
) -> Array:
    """Expected rank of each document in its list, sum_k k Pi[j, k], where rank 1 is the top.

    Pi[j, k] is the probability that document j has rank k. With a small width, these are the ranks.

    Parameters
    ----------
    scores : array of shape (..., n)
        Scores; larger is better. The last axis has the documents of a list; see `expected_gain`.
    where : array of bool of shape (..., n), optional
        True for a document, False for padding.
    segments : array of int of shape (..., n), optional
        Id of each document's list, if a row holds several lists.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize, or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    backend : {"auto", "native", "jax"}, default "auto"
        See `expected_gain`.

    Returns
    -------
    array of shape (..., n)
        Expected ranks; 0 at padding.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from sinkprop import SmoothedIndicator
    >>> print(expected_ranks(jnp.array([0.2, 1.5, 0.3]), relaxation=SmoothedIndicator(0.5)).round(4))
    [2.4681 1.0741 2.4337]
    """
    found = normalization(relaxation, n_iter, epsilon, backend)
    x, shape = as_scores(scores, found.relaxation.width)
    return _projected(found, x, shape, where, segments, np.arange(1.0, shape[-1] + 1))


def top_k(
    scores: Array,
    k: int,
    *,
    where: Array | None = None,
    segments: Array | None = None,
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    backend: Backend = "auto",
) -> Array:
    """Probability that each document is among the first k of its list, sum_(k' <= k) Pi[j, k'].

    Parameters
    ----------
    scores : array of shape (..., n)
        Scores; larger is better. The last axis has the documents of a list; see `expected_gain`.
    k : int
        Number of top ranks, at least 1.
    where : array of bool of shape (..., n), optional
        True for a document, False for padding.
    segments : array of int of shape (..., n), optional
        Id of each document's list, if a row holds several lists.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize, or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    backend : {"auto", "native", "jax"}, default "auto"
        See `expected_gain`.

    Returns
    -------
    array of shape (..., n)
        Probabilities; 0 at padding.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from sinkprop import SmoothedIndicator
    >>> print(top_k(jnp.array([0.2, 1.5, 0.3]), 1, relaxation=SmoothedIndicator(0.5)).round(4))
    [0.0266 0.9463 0.043 ]
    """
    k = whole("k", k, 1)
    found = normalization(relaxation, n_iter, epsilon, backend)
    x, shape = as_scores(scores, found.relaxation.width)
    E = _projected(found, x, shape, where, segments, np.ones(min(k, max(shape[-1], 1))))
    # Rounding errors can make a probability negative or larger than 1, and a cross-entropy would fail on it.
    # The clip changes the value but not the gradient.
    clipped = jnp.clip(E, 0, 1 if rows_sum_to_one(n_iter) else None)
    return E + jax.lax.stop_gradient(clipped - E)


def _projected(
    found: Normalization, x: Array, shape: tuple[int, ...], where: Any, segments: Any, weights: Floats
) -> Array:
    """Return sum_k Pi[j, k] d_k for each document j, for weights d of the first ranks."""
    lists = document_lists(shape, where, segments)
    if 0 in shape:
        return jnp.zeros(shape, x.dtype)
    check_finite(x, lists)
    x = lists.documents_only(x)
    term = Term("linear", weights[None], weights[None])
    plan = gain_plan(found, [term], [1], segmented=lists.segmented)
    return projection(plan, x, lists.first)
