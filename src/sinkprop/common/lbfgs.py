"""Minimization of a function with its gradient by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sinkprop.common.types import Floats

__all__ = ["descend"]


def descend(
    loss: Callable[[Floats], tuple[float, Floats]], W: Floats, *, max_iter: int, tol: float
) -> Floats:
    """Minimize a loss by L-BFGS, starting from the weights W, and return the final weights.

    `loss` returns the value and the gradient. The search stops after `max_iter` iterations, or when the
    relative improvement falls below `tol`.
    """
    from scipy.optimize import minimize

    def flat(x: Floats) -> tuple[float, Floats]:
        value, gradient = loss(x.reshape(W.shape))
        return value, gradient.ravel()

    options = {"maxiter": max_iter, "maxcor": 20, "ftol": tol, "gtol": 1e-8}
    result = minimize(flat, W.ravel(), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(result.x, dtype=np.float64).reshape(W.shape)
