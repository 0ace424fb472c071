"""Expected gains and projections of smoothed indicators in JAX's operations, in linear time on any device."""

from __future__ import annotations

from typing import Any

from sinkprop.jax.plans import Plan

__all__ = ["check", "gain", "projection", "supported"]

Array = Any

def supported(plan: Plan) -> bool:
    return False
def check(plan: Plan, who: str) -> None:
    raise NotImplementedError(who)
def gain(plan,x,first,a): raise NotImplementedError
def projection(plan,x,first): raise NotImplementedError
