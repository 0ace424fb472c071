"""The loss and the expected gain of lists of documents, with the arguments of the losses of Rax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from sinkprop.jax.core import gain_values
from sinkprop.jax.functions import function_values
from sinkprop.jax.lists import as_scores, check_finite, document_lists
from sinkprop.jax.plans import Backend, normalization
from sinkprop.jax.terms import gain_terms
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import Relaxation

__all__ = ["expected_gain", "sinkprop_loss"]

Array = Any
ReduceFn = Callable[..., Array]


def sinkprop_loss(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    segments: Array | None = None,
    weights: Array | None = None,
    gain: str | Gain = "ndcg",
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    reduce_fn: ReduceFn | None = jnp.mean,
    backend: Backend = "auto",
) -> Array:
    """Minus the expected gain of lists of documents, differentiable in the scores.

    The arguments are those of the losses of Rax. Only the gain of NDCG differs from `expected_gain`: if it
    does not state its discount, the discount of rank k is 1 / log2(k + 1), as in Rax.

    Parameters
    ----------
    scores : array of shape (..., n)
        Scores; larger is better. The last axis has the documents of a list. If the relaxation is a
        `PartitionedMeasure` without a shared scale, a further axis of length 2 holds two parameters per
        document.
    labels : array of shape (..., n) or (..., n, L)
        Relevance, not below 0, or L label columns.
    where : array of bool of shape (..., n), optional
        True for a document, False for padding. Scores and labels at padding may be anything.
    segments : array of int of shape (..., n), optional
        Id of each document's list, if a row holds several lists; in any order.
    weights : array of shape (..., n), optional
        Weight of each document, not of each list. It multiplies the document's gain, see `expected_gain`.
    gain : str or Gain, default "ndcg"
        The metric whose expected value is maximized, or its name, such as "ndcg@10" or "map".
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize, or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    reduce_fn : callable or None, default jnp.mean
        Reduction of the values of the lists, such as jnp.mean or jnp.sum. None gives one value per list.
    backend : {"auto", "native", "jax"}, default "auto"
        See `expected_gain`.

    Returns
    -------
    array
        One number, or one value per list with ``reduce_fn=None``; see `expected_gain`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> scores, labels = jnp.array([[0.2, 1.5, 0.3]]), jnp.array([[2.0, 0.0, 1.0]])
    >>> print(f"{sinkprop_loss(scores, labels):.4f}")
    -0.7436
    >>> print(jnp.sign(jax.grad(sinkprop_loss)(scores, labels)))  # a step against it raises relevant ones
    [[-1.  1. -1.]]
    """
    found = as_gain(gain, "log2")
    return -_reduced_gain(
        found, scores, labels, where, segments, weights, relaxation, n_iter, epsilon, reduce_fn, backend
    )


def expected_gain(
    scores: Array,
    labels: Array,
    *,
    where: Array | None = None,
    segments: Array | None = None,
    weights: Array | None = None,
    gain: str | Gain = "ndcg",
    relaxation: str | Relaxation = "gaussian",
    n_iter: Iterations = 5,
    epsilon: float = 1e-6,
    reduce_fn: ReduceFn | None = jnp.mean,
    backend: Backend = "auto",
) -> Array:
    """Expected gain of lists of documents: `sinkprop.expected_gain` as a function for jit, grad and vmap.

    There are derivatives with respect to the scores, not with respect to labels and weights.

    Parameters
    ----------
    scores : array of shape (..., n)
        Scores; larger is better. The last axis has the documents of a list. If the relaxation is a
        `PartitionedMeasure` without a shared scale, a further axis of length 2 holds two parameters per
        document. The result has the dtype of the scores, float32 for half precision.
    labels : array of shape (..., n) or (..., n, L)
        Relevance, not below 0, or L label columns, for gains that read several labels per document.
    where : array of bool of shape (..., n), optional
        True for a document, False for padding. Scores and labels at padding may be anything.
    segments : array of int of shape (..., n), optional
        Id of each document's list, if a row holds several lists; in any order.
    weights : array of shape (..., n), optional
        Weight of each document, as `sample_weight` of `sinkprop.expected_gain`: it multiplies the document's
        gain, also in the best ranking. To weight lists, take one value per list with ``reduce_fn=None``.
    gain : str or Gain, default "ndcg"
        The gain, or its name. If it does not state the discount of NDCG, the discount is LETOR's, as in
        `sinkprop.expected_gain`. ERR without `max_label` takes the largest label of the call.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix, which the iterations normalize, or its name.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    reduce_fn : callable or None, default jnp.mean
        Reduction of the values of the lists, called with ``where=`` for the lists that have documents. None
        gives one value per list.
    backend : {"auto", "native", "jax"}, default "auto"
        "native" runs the native kernels, on the CPU only. "jax" uses JAX's operations on any device, in
        linear time and memory, for smoothed indicators. "auto" uses "native" on the CPU and "jax" elsewhere.

    Returns
    -------
    array
        One number. With ``reduce_fn=None``, one value per list of the shape (...); with `segments`, an array
        of the shape (..., n) with the value of each list at the place of its first document and 0 elsewhere,
        as in Rax. A row of padding has the value and the gradient 0, and the mean does not count it.

    Raises
    ------
    ValueError
        If an argument has the wrong shape, or a value that is known is invalid. In a compiled program, where
        values are not known, a list with an invalid score, label or weight has the value and the gradient
        NaN.
    NotImplementedError
        If the gain is a NumPy function of labels that are traced by jit or vmap; or if "jax" does not have
        the relaxation.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> scores, labels = jnp.array([[0.2, 1.5, 0.3], [1.0, 0.0, 9.0]]), jnp.array([[2, 0, 1], [1, 0, 0]])
    >>> where = jnp.array([[True, True, True], [True, True, False]])  # the second list has two documents
    >>> print(expected_gain(scores, labels, where=where, gain="ndcg@10", reduce_fn=None).round(4))
    [0.8249 1.    ]
    """
    found = as_gain(gain)
    return _reduced_gain(
        found, scores, labels, where, segments, weights, relaxation, n_iter, epsilon, reduce_fn, backend
    )


def _reduced_gain(
    gain: Gain,
    scores: Any,
    labels: Any,
    where: Any,
    segments: Any,
    weights: Any,
    relaxation: str | Relaxation,
    n_iter: Iterations,
    epsilon: float,
    reduce_fn: ReduceFn | None,
    backend: Backend,
) -> Array:
    found = normalization(relaxation, n_iter, epsilon, backend)
    x, shape = as_scores(scores, found.relaxation.width)
    lists = document_lists(shape, where, segments)
    if 0 in shape:
        values = lists.values(jnp.zeros(shape, x.dtype)) if shape[-1] else jnp.zeros(shape[:-1], x.dtype)
    else:
        terms = gain_terms(gain, labels, weights, lists, found, shape, x.dtype)
        check_finite(x, lists)
        x = lists.documents_only(x)
        if terms.functions is None:
            values = gain_values(terms.plan, x, lists, terms.attributes)
        else:
            values = function_values(terms.plan, terms.functions, lists, x)
    if reduce_fn is None:
        return values
    present = lists.present
    if reduce_fn is jnp.mean:  # 0 if there is no list
        return values.sum() / jnp.maximum(present.sum(), 1)
    return reduce_fn(values, where=present)
