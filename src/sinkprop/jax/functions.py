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
    """Return the expected gain of each list, in the shape of `Lists.values`, for known scores x."""
    groups, first = lists.groups(), np.asarray(lists.first).reshape(-1)
    assert groups.rows is not None
    documents = groups.rows[groups.offsets[:-1]]  # one per list
    n = lists.first.shape[-1]
    places = documents // n * n + first[documents]

    def evaluate(x: Array) -> tuple[Array, Array]:
        if plan.normalization.backend == "jax" or not are_concrete(x):
            raise NotImplementedError(
                "gain: a ColumnGain or RowGain is a NumPy function, which jax.jit, jax.vmap, second "
                "derivatives and backend='jax' cannot run; call the loss outside of them."
            )
        scores = np.asarray(x, np.float64).reshape(-1, *x.shape[lists.first.ndim :])
        per_query, gradient = prepared_gain(scores, groups, terms, plan.settings, None, factor=1.0)
        by_place = np.zeros(len(scores))
        by_place[places] = per_query
        values = lists.values(jnp.asarray(by_place.reshape(lists.first.shape), x.dtype))
        return values, jnp.asarray(gradient.reshape(x.shape), x.dtype)

    @jax.custom_jvp  # type: ignore[untyped-decorator]  # jax has no types here
    def values(x: Array) -> Array:
        return evaluate(x)[0]

    @values.defjvp  # type: ignore[untyped-decorator]
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        found, gradient = evaluate(*primals)
        return found, lists.totals(gradient * tangents[0])

    found: Array = values(x)
    return found
