"""Checked arguments of the losses: scores, labels and weights, and the lists that their documents form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups

__all__ = [
    "Lists",
    "are_concrete",
    "as_array",
    "as_documents",
    "as_scores",
    "check_finite",
    "document_lists",
    "place_name",
]

Array = Any


@partial(jax.tree_util.register_dataclass, data_fields=["first"], meta_fields=["segmented"])
@dataclass(frozen=True)
class Lists:
    """Lists of documents along the last axis of an array of the shape (..., n).

    first      (..., n) place of the first document of each document's list; -1 at padding.
    segmented  Whether a row may hold several lists.
    """

    first: Array
    segmented: bool

    def values(self, by_place: Array) -> Array:
        """Return one value per list from values at the places of first documents.

        They have the shape (...), or (..., n) if a row may hold several lists: then the value of a list is at
        the place of its first document, as in Rax.
        """
        return by_place if self.segmented else by_place[..., 0]

    def documents_only(self, x: Array) -> Array:
        """Return scores (..., n) or (..., n, 2) with 0 at padding, where they may be anything."""
        mask = self.first >= 0
        if are_concrete(mask) and mask.all():
            return x
        return jnp.where(mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)), x, 0)

    def totals(self, changes: Array) -> Array:
        """Return the sum over each list of (..., n) or (..., n, 2), in the shape of `values`."""
        if changes.ndim > self.first.ndim:
            changes = changes.sum(-1)
        if not self.segmented:
            return changes.sum(-1)
        n = self.first.shape[-1]
        to, flat = jnp.maximum(self.first, 0).reshape(-1, n), changes.reshape(-1, n)
        rows = jnp.arange(to.shape[0])[:, None]
        return jnp.zeros_like(flat).at[rows, to].add(flat).reshape(changes.shape)

    @property
    def present(self) -> Array:
        """Whether there is a list, in the shape of `values`."""
        if self.segmented:
            return self.first == np.arange(self.first.shape[-1])
        return (self.first >= 0).any(-1)

    def groups(self) -> Groups:
        """Lists of documents whose places are known, with the places among all of them as rows."""
        first = np.asarray(self.first)
        n = first.shape[-1]
        rows: Integers = np.flatnonzero(first.reshape(-1) >= 0)
        ids = first.reshape(-1)[rows] + rows // n * n
        order = np.argsort(ids, kind="stable")
        _, sizes = np.unique(ids, return_counts=True)
        return Groups.of_sizes(sizes, rows=rows[order])


def are_concrete(*arrays: Array) -> bool:
    """Whether the values of all arrays are known, as they are not while JAX traces a function."""
    return not any(isinstance(x, jax.core.Tracer) for x in arrays)


def as_scores(scores: Any, width: int) -> tuple[Array, tuple[int, ...]]:
    """Return scores in float32 or float64, and the shape (..., n) of the documents."""
    x = jnp.asarray(as_array("scores", scores))
    if jnp.issubdtype(x.dtype, jnp.complexfloating) or x.dtype == bool:
        raise ValueError(f"scores must be real numbers; got {x.dtype}.")
    if x.dtype not in (jnp.float32, jnp.float64):
        x = x.astype(jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float))
    if width == 2 and (x.ndim < 2 or x.shape[-1] != 2):
        raise ValueError(
            "scores must have the shape (..., n, 2) for a partitioned measure without a shared scale: two "
            f"parameters per document; got {x.shape}. Set sigma= for one score per document."
        )
    if x.ndim < width:
        raise ValueError(
            f"scores must have the documents of a list on the last axis, (..., n); got the shape {x.shape}."
        )
    return x, x.shape[:-1] if width == 2 else x.shape


def as_documents(name: str, values: Any, shape: tuple[int, ...], hint: str = "") -> Array:
    """Return an array with one value per document; raise a ValueError that names it if it is none."""
    x = as_array(name, values)
    if x.shape != shape:
        raise ValueError(
            f"{name} must have one value per document, the shape {shape} of the scores; got {x.shape}.{hint}"
        )
    return x


def document_lists(shape: tuple[int, ...], where: Any, segments: Any) -> Lists:
    """Return the lists that a mask and segment ids define for documents of the shape (..., n)."""
    if where is not None:
        where = as_documents("where", where, shape, " Pass True for a document and False for padding.")
        if where.dtype != bool:
            raise ValueError(
                f"where must be boolean, True for a document and False for padding; got {where.dtype}. "
                "If it holds 0 and 1, pass where.astype(bool)."
            )
    if segments is None:
        if where is None:
            return Lists(np.zeros(shape, np.int32), False)
        return Lists(_library(where).where(where, 0, -1).astype(np.int32), False)
    segments = as_documents("segments", segments, shape, " Pass the id of each document's list.")
    if not jnp.issubdtype(segments.dtype, jnp.integer):
        raise ValueError(f"segments must be integers, the ids of the lists; got {segments.dtype}.")
    return Lists(_first_places(segments, where), True)


def _first_places(segments: Array, where: Array | None) -> Array:
    """Return the place (..., n) of the first document with the same segment id; -1 at padding."""
    xp = _library(segments, *([] if where is None else [where]))
    padding = xp.zeros(segments.shape, bool) if where is None else ~where
    order = xp.lexsort((segments, padding), axis=-1)
    in_order, place = xp.take_along_axis(segments, order, -1), xp.arange(segments.shape[-1])
    same = xp.concatenate([xp.zeros_like(padding[..., :1]), in_order[..., 1:] == in_order[..., :-1]], -1)
    start = xp.where(same, 0, place)
    last = segments.ndim - 1
    start = np.maximum.accumulate(start, last) if xp is np else jax.lax.cummax(start, axis=last)
    first = xp.take_along_axis(order, start, -1)  # of a stable sort, so that it is the first in the row
    first = xp.take_along_axis(first, xp.argsort(order, -1), -1)
    return xp.where(padding, -1, first).astype(np.int32)


def _library(*arrays: Array) -> Any:
    """NumPy for known values, even while JAX traces a function, in which its operations hide them."""
    return np if are_concrete(*arrays) else jnp


def place_name(index: tuple[int, ...]) -> str:
    """Return a place in a message: "document 2", or "document 2 of list 0"."""
    if len(index) == 1:
        return f"document {index[0]}"
    of = index[0] if len(index) == 2 else index[:-1]
    return f"document {index[-1]} of list {of}"


def check_finite(scores: Array, lists: Lists) -> None:
    """Raise a ValueError that names the first document whose score is not finite, if the scores are known."""
    if not are_concrete(scores, lists.first):
        return
    x: Floats = np.asarray(scores)
    fine = np.isfinite(x) if x.ndim == lists.first.ndim else np.isfinite(x).all(-1)
    if fine.all():
        return
    bad = np.argwhere(~fine & (np.asarray(lists.first) >= 0))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(
            f"scores must be finite; {place_name(place)} has {x[place].tolist()}. If a network gave it, its "
            "parameters or features have overflowed: lower the learning rate, or clip the gradient."
        )


def as_array(name: str, values: Any) -> Array:
    """Return an array of JAX if the values are traced, else an array of NumPy."""
    if isinstance(values, jax.core.Tracer):
        return values
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.asarray(None)
    if array.dtype != object:
        return array
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} must be an array of numbers; got {type(values).__name__}.")
    raise ValueError(
        f"{name} must be a rectangular array of numbers. Pad lists of different lengths to the longest, and "
        "pass where=, which is True for a document and False for padding."
    )
