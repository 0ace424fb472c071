"""The terms of a gain for lists of documents: by NumPy if the labels are known, else in JAX's operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sinkprop.common.types import Floats, Mask
from sinkprop.data.checks import as_sample_weight
from sinkprop.jax.lists import Lists, are_concrete, as_array, as_documents, place_name
from sinkprop.jax.plans import Normalization, Plan, gain_plan
from sinkprop.objective.gains import Gain, RankLinearGain, bound
from sinkprop.objective.native_terms import NativeTerms
from sinkprop.objective.traced_terms import traced_terms

__all__ = ["GainTerms", "gain_terms"]

Array = Any


class GainTerms(NamedTuple):
    """A gain for given documents.

    plan        The plan of the gain.
    attributes  (..., A, n) attributes of the documents; 0 at padding.
    functions   The terms for NumPy, if one of them is a Python function; None if not.
    """

    plan: Plan
    attributes: Array
    functions: NativeTerms | None = None


def gain_terms(
    gain: Gain,
    labels: Any,
    weights: Any,
    lists: Lists,
    normalization: Normalization,
    shape: tuple[int, ...],
    dtype: Any,
) -> GainTerms:
    """Return the terms of a gain for labels (..., n) or (..., n, L) of documents of a shape (..., n)."""
    _check_unbound(gain)
    y = _as_labels(labels, shape)
    w = None if weights is None else as_documents("weights", weights, shape, _per_list(weights, shape))
    if are_concrete(y, lists.first, *([] if w is None else [w])):
        return _by_numpy(gain, y, w, lists, normalization, shape, dtype)
    y, mask = y.astype(dtype), (lists.first >= 0)[..., None]
    y = jnp.where(mask, y, 0)
    w = None if w is None else jnp.where(mask[..., 0], w.astype(dtype), 0)
    terms = traced_terms(jnp, gain, y, w, "jax.jit and jax.vmap")
    a = jnp.concatenate([term.attributes for term in terms], -1)
    # What would be an error about values is NaN in a compiled program.
    fine = ((y >= 0) & jnp.isfinite(y)).all(-1, keepdims=True)
    fine = fine if w is None else fine & (w >= 0)[..., None]
    for term in terms:
        if term.form == "cascade":  # its attributes are probabilities
            fine = fine & (term.attributes <= 1).all(-1, keepdims=True)
    a = jnp.where(mask, jnp.where(fine, a, jnp.nan), 0)
    plan = gain_plan(
        normalization, terms, [term.attributes.shape[-1] for term in terms], segmented=lists.segmented
    )
    return GainTerms(plan, jax.lax.stop_gradient(jnp.swapaxes(a, -1, -2)))


def _by_numpy(
    gain: Gain,
    labels: Array,
    weights: Array | None,
    lists: Lists,
    normalization: Normalization,
    shape: tuple[int, ...],
    dtype: Any,
) -> GainTerms:
    documents = np.asarray(lists.first) >= 0
    y: Floats = np.asarray(labels, dtype=np.float64)
    if y.ndim == len(shape):
        y = y[..., None]
    _check_labels(y, documents)
    y = np.where(documents[..., None], y, 0.0).reshape(-1, y.shape[-1])
    w: Floats | None = None
    if weights is not None:
        w = np.where(documents, np.asarray(weights, np.float64), 0.0).reshape(-1)
        try:
            as_sample_weight(w, len(w))
        except ValueError as error:
            raise ValueError(str(error).replace("sample_weight", "weights").replace("row", "place")) from None
    y = y[:, 0] if y.shape[1] == 1 else y
    try:
        terms = gain.terms(y, lists.groups(), w)
    except ValueError as error:
        raise ValueError(str(error).replace("sample_weight", "weights")) from None
    plan = gain_plan(
        normalization, terms, [len(term.attributes) for term in terms], segmented=lists.segmented
    )
    a = np.concatenate([term.attributes for term in terms])
    with np.errstate(over="ignore"):
        attributes = np.moveaxis(a.reshape(-1, *shape), 0, -2).astype(dtype)
    if not np.isfinite(attributes).all():
        raise ValueError(
            f"labels are too large for {gain} in {np.dtype(dtype)}: the largest is {y.max():g}. "
            'Give float64 scores, or gain="ndcg(gain=linear)".'
        )
    functions = None
    if any(term.function is not None for term in terms):
        D = np.concatenate([term.discounts for term in terms])
        functions = NativeTerms(a, np.array(plan.table), D, [term.function for term in terms])
    return GainTerms(plan, jnp.asarray(attributes), functions)


def _as_labels(labels: Any, shape: tuple[int, ...]) -> Array:
    y = as_array("labels", labels)
    columns = y.ndim == len(shape) + 1
    y = as_documents("labels", y, (*shape, y.shape[-1]) if columns else shape)
    if not (jnp.issubdtype(y.dtype, jnp.floating) or jnp.issubdtype(y.dtype, jnp.integer) or y.dtype == bool):
        raise ValueError(f"labels must be real numbers; got {y.dtype}.")
    if columns and y.shape[-1] == 0:
        raise ValueError(f"labels must have at least one column per document; got the shape {y.shape}.")
    return y if columns else y[..., None]


def _per_list(weights: Any, shape: tuple[int, ...]) -> str:
    if np.shape(weights) != shape[:-1]:
        return ""
    return " These look like weights of lists: take one value per list with reduce_fn=None, and weight those."


def _check_labels(y: Floats, documents: Mask) -> None:
    """Raise a ValueError if the label of a document is invalid, or if the mask looks inverted."""
    fine: Mask = np.all(np.isfinite(y) & (y >= 0), axis=-1)
    bad = np.argwhere(documents & ~fine)
    others = ~documents
    if len(bad):
        place = tuple(bad[0].tolist())
        found = y[place].tolist() if y.shape[-1] > 1 else y[(*place, 0)].item()
        inverted = others.any() and not fine[documents].any() and fine[others].all()
        hint = (
            " where= looks inverted: it is True where the labels mark padding. It must be True for a "
            "document; pass ~where."
            if inverted
            else " If it marks padding, pass where=, which is True for a document and False for padding."
        )
        raise ValueError(f"labels must be finite and not below 0; {place_name(place)} has {found}.{hint}")
    # padding is at the end of a list, so that an inverted mask is False first, and then True
    rises = (~documents[..., :-1] | documents[..., 1:]).all()
    relevant: Mask = np.any(y > 0, axis=-1)
    if others.any() and rises and not relevant[documents].any() and relevant[others].any():
        raise ValueError(
            "where= looks inverted: no place where it is True has a label above 0, and places where it is "
            "False have. It must be True for a document and False for padding; pass ~where."
        )


def _check_unbound(gain: Gain) -> None:
    arrays = [] if isinstance(gain, RankLinearGain) else bound(gain)[1]
    if arrays:
        raise ValueError(
            f"gain: a loss cannot match an array to the documents of a batch; {gain} holds one "
            f"({arrays[0].name}). Pass the array as further columns of the labels, (..., n, L), and the "
            "number of the column, from 0, to the gain."
        )
