"""The native kernels as calls of XLA's foreign function interface, on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sinkprop import _native
from sinkprop.jax.plans import Plan

try:
    from jax import ffi
except ImportError:  # before JAX 0.5
    try:
        from jax.extend import ffi
    except ImportError:
        ffi = None

__all__ = ["native_gain", "native_projection"]

Array = Any

if not hasattr(ffi, "ffi_call"):
    raise ImportError(
        f"sinkprop.jax needs JAX 0.4.38 or later; {jax.__version__} is installed: "
        'pip install -U "jax>=0.4.38".'
    )

_HANDLERS, _VERSION = _native.xla_handlers()
for _name, _handler in _HANDLERS.items():
    ffi.register_ffi_target(_name, _handler, platform="cpu", api_version=1)


def native_gain(plan: Plan, x: Array, lists: Array, a: Array) -> tuple[Array, Array]:
    """Return the expected gain of each list, at its first document, and the gradient of their sum.

    x      (..., n) or (..., n, 2) scores
    lists  (..., n) place of the first document of each document's list; negative at padding
    a      (..., A, n) attributes of the documents
    """
    results = (jax.ShapeDtypeStruct(lists.shape, x.dtype), jax.ShapeDtypeStruct(x.shape, x.dtype))
    call = ffi.ffi_call("sinkprop_expected_gain", results, vmap_method="broadcast_all")
    values, gradient = call(
        x,
        lists,
        a,
        table=np.array(plan.table, np.float64).reshape(-1),
        discounts=np.frombuffer(plan.discounts),
        n_discounts=np.int64(plan.n_discounts),
        **_common(plan),
    )
    return values, gradient


def native_projection(plan: Plan, x: Array, lists: Array) -> Array:
    """Return sum_k Pi[j, k] d_k for each document j (..., n), for the row d of discounts of the plan."""
    result = jax.ShapeDtypeStruct(lists.shape, x.dtype)
    call = ffi.ffi_call("sinkprop_project", result, vmap_method="broadcast_all")
    return call(x, lists, column=np.frombuffer(plan.discounts), **_common(plan))


def _common(plan: Plan) -> dict[str, Any]:
    return {
        "version": np.int64(_VERSION),
        "settings": np.array(plan.settings, np.float64),
        "n_threads": np.int64(plan.n_threads),
    }
