"""Gains with Python functions, which native code calls: outside of compiled programs only."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkprop.jax.lists import Lists, are_concrete
from sinkprop.jax.plans import Plan
from sinkprop.objective.expected_gain import prepared_gain
from sinkprop.objective.native_terms import NativeTerms

__all__ = ["function_values"]

Array = Any


def function_values(plan: Plan, terms: NativeTerms, lists: Lists, x: Array) -> Array:
    """Return the expected gain of each list, at the place of its first document, for known scores x."""
    groups, shape = lists.groups(), lists.first.shape
    places = groups.rows[groups.offsets[:-1]]

    def evaluate(x: Array) -> tuple[Array, Array]:
        if plan.normalization.backend == "jax" or not are_concrete(x):
            raise NotImplementedError(
                "gain: a ColumnGain or RowGain is a NumPy function, which jax.jit, jax.vmap, second derivatives and "
                "backend='jax' cannot run; call the loss outside of them."
            )
        scores = np.asarray(x, np.float64).reshape(-1, *x.shape[len(shape) :])
        per_query, gradient = prepared_gain(scores, groups, terms, plan.settings, None, factor=1.0)
        by_place = np.zeros(len(scores))
        by_place[places] = per_query
        return (
            jnp.asarray(by_place.reshape(shape), x.dtype),
            jnp.asarray(gradient.reshape(x.shape), x.dtype),
        )

    @jax.custom_jvp
    def values(x: Array) -> Array:
        return evaluate(x)[0]

    @values.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        by_place, gradient = evaluate(*primals)
        changes = gradient * tangents[0]
        changes = changes.sum(-1) if changes.ndim > len(shape) else changes
        first = jnp.where(lists.first < 0, 0, lists.first)  # the gradient is 0 at padding
        rows = jnp.arange(changes.size // shape[-1])[:, None]
        flat = changes.reshape(-1, shape[-1])
        totals = jnp.zeros_like(flat).at[rows, first.reshape(-1, shape[-1])].add(flat)
        return by_place, totals.reshape(shape)

    return values(x)
