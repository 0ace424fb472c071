"""Logistic regression with ridge penalties, in which chosen coefficients are not below 0."""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats, Mask

__all__ = ["curvature", "log_losses", "ridge_logistic", "sigmoid"]

_MOST_STEPS, _TOLERANCE = 30, 1e-6
_LEAST_CURVATURE = 1e-6  # added to the diagonal, so that it is above 0 for columns of zeros


def sigmoid(x: Floats) -> Floats:
    """Probability with the logit x."""
    p: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return p


def log_losses(x: Floats, t: Floats) -> Floats:
    """-ln of the probability that the logits x give to the outcomes t, 0 or 1; finite for all finite x."""
    losses: Floats = np.maximum(x, 0) - t * x + np.log1p(np.exp(-np.abs(x)))
    return losses


def curvature(Z: Floats, b: Floats) -> Floats:
    """Second derivatives (D, D) of the log loss of the logits Z b."""
    p = sigmoid(Z @ b)
    scaled = Z * np.sqrt(p * (1 - p))[:, None]
    H: Floats = scaled.T @ scaled
    return H


def ridge_logistic(
    Z: Floats,
    t: Floats,
    penalty: Floats,
    bounded: Mask,
    start: Floats,
    H: Floats | None = None,
    *,
    center: Floats | float = 0.0,
) -> Floats:
    """Coefficients b that minimize the log loss of the logits Z b plus sum(penalty (b - center)^2) / 2.

    Newton steps, with second derivatives that are computed anew only if the step before gained little.

    Z        (N, D) columns.
    t        (N,) outcomes, 0 or 1.
    penalty  (D,) penalties.
    bounded  (D,) coefficients that must not be below 0.
    start    (D,) coefficients to start from.
    H        (D, D) approximate `curvature` at the start.
    center   (D,) coefficients without a penalty.
    """
    b, gained = start, np.inf
    loss, x = _penalized(Z, t, penalty, b, center)
    for _ in range(_MOST_STEPS):
        if H is None:
            H = curvature(Z, b)
        gradient = Z.T @ (sigmoid(x) - t) + penalty * (b - center)
        step = _bounded_step(H + np.diag(penalty + _LEAST_CURVATURE), gradient, b, bounded)
        size = 1.0
        new_loss, new_x = _penalized(Z, t, penalty, b + step, center)
        while new_loss > loss and size > 1e-4:
            size /= 2
            new_loss, new_x = _penalized(Z, t, penalty, b + size * step, center)
        if new_loss > loss:
            break
        before, gained = gained, loss - new_loss
        b, loss, x = b + size * step, new_loss, new_x
        if gained < _TOLERANCE * (1 + abs(loss)):
            break
        if gained > 0.1 * before:
            H = None
    return b


def _penalized(
    Z: Floats, t: Floats, penalty: Floats, b: Floats, center: Floats | float
) -> tuple[float, Floats]:
    """The penalized loss, and the logits."""
    x = Z @ b
    return float(log_losses(x, t).sum() + 0.5 * (penalty * (b - center) ** 2).sum()), x


def _bounded_step(H: Floats, gradient: Floats, b: Floats, bounded: Mask) -> Floats:
    """Step d that minimizes gradient . d + d' H d / 2 with b + d not below 0 where bounded.

    An active-set method: coefficients that would become negative are held at 0, and those whose slope at 0
    is negative are released again.
    """
    step = np.zeros(len(b))
    held = bounded & (b == 0) & (gradient > 0)
    for _ in range(4 * len(b)):
        equations, right = H.copy(), -gradient
        equations[held] = 0
        equations[held, held] = 1
        right[held] = -b[held]
        step[:] = np.linalg.solve(equations, right)
        below = ~held & bounded & (b + step < 0)
        if below.any():
            held |= below
            continue
        slopes = np.where(held, gradient + H @ step, 0.0)
        if slopes.min() >= -1e-9:
            break
        held[slopes.argmin()] = False
    return np.where(bounded, np.maximum(step, -b), step)
