"""Expected gains and projections with their derivatives, by native code on the CPU or by JAX's operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.backend import backends

from sinkprop.jax import swept
from sinkprop.jax.lists import Lists
from sinkprop.jax.native import native_gain, native_projection
from sinkprop.jax.plans import Plan

__all__ = ["gain_values", "projection"]

Array = Any


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def gain_values(plan: Plan, x: Array, lists: Lists, a: Array) -> Array:
    """Return the expected gain of each list, in the shape of `Lists.values`.

    x  (..., n) or (..., n, 2) scores
    a  (..., A, n) attributes of the documents, with respect to which there are no derivatives
    """
    return lists.values(_value_and_gradient(plan, x, lists.first, a)[0])


@gain_values.defjvp  # type: ignore[untyped-decorator]  # jax has no types here
def _gain_values_jvp(plan: Plan, primals: Any, tangents: Any) -> tuple[Array, Array]:
    x, lists, a = primals
    values, gradient = _value_and_gradient(plan, x, lists.first, a)
    return lists.values(values), lists.totals(gradient * tangents[0])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value_and_gradient(plan: Plan, x: Array, first: Array, a: Array) -> tuple[Array, Array]:
    """Return `gain_values`, and the gradient of their sum with respect to x."""
    values, gradient = _evaluated(plan, x, first, a)
    return values, gradient


@_value_and_gradient.defjvp  # type: ignore[untyped-decorator]
def _second_derivatives(plan: Plan, primals: Any, tangents: Any) -> Any:
    x, first, a = primals
    found = _value_and_gradient(plan, x, first, a)
    swept.check(plan, "Second derivatives")
    by_sweeps = jax.jvp(lambda x, a: swept.gain(plan, x, first, a), (x, a), (tangents[0], tangents[2]))
    return found, by_sweeps[1]


@partial(jax.jit, static_argnums=0)
def _evaluated(plan: Plan, x: Array, first: Array, a: Array) -> tuple[Array, Array]:
    found: tuple[Array, Array] = _on_platform(plan, native_gain, swept.gain, x, first, a)
    return found


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def projection(plan: Plan, x: Array, first: Array) -> Array:
    """Return E_j = sum_k Pi[j, k] d_k for each document j (..., n); 0 at padding.

    The plan is that of the rank-linear gain with the single row d of discounts.
    """
    return _projected(plan, x, first)


def _projection_fwd(plan: Plan, x: Array, first: Array) -> tuple[Array, tuple[Array, Array]]:
    return projection(plan, x, first), (x, first)


def _projection_bwd(plan: Plan, saved: tuple[Array, Array], E_bar: Array) -> tuple[Array, None]:
    # sum_j E_bar_j E_j is the expected gain of documents with the gains E_bar_j
    x, first = saved
    a = jnp.where(first >= 0, E_bar, 0)[..., None, :]
    return _value_and_gradient(plan, x, first, a)[1], None


projection.defvjp(_projection_fwd, _projection_bwd)


@partial(jax.jit, static_argnums=0)
def _projected(plan: Plan, x: Array, first: Array) -> Array:
    return _on_platform(plan, native_projection, swept.projection, x, first)


def _on_platform(plan: Plan, native: Callable[..., Any], sweeps: Callable[..., Any], *arrays: Array) -> Any:
    """Call the function of the plan's backend; for "auto", that of the platform that the program runs on."""
    backend = plan.normalization.backend
    if backend == "native" or (backend == "auto" and list(backends()) == ["cpu"]):
        return native(plan, *arrays)
    if backend == "jax":
        swept.check(plan, "backend='jax'")
        return sweeps(plan, *arrays)
    if swept.supported(plan):
        return jax.lax.platform_dependent(*arrays, cpu=partial(native, plan), default=partial(sweeps, plan))
    if jax.default_backend() != "cpu":
        swept.check(plan, f"The platform {jax.default_backend()!r}")
    return native(plan, *arrays)
