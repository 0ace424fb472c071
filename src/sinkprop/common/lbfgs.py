"""Minimization of functions with their gradients by L-BFGS, one alone or several side by side."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np

from sinkprop.common.types import Floats

__all__ = ["descend", "descend_together"]

_MEMORY = 20  # number of earlier steps from which the curvature is estimated
_FLAT = 1e-8  # a search ends where no entry of the gradient is larger
# A step must decrease the loss by this share of what the slope at its beginning promises (Armijo), and leave
# at most this share of the slope (Wolfe).
_DECREASE, _SLOPE = 1e-4, 0.9
_TRIALS = 20  # number of points that one line search may try

Search = Generator[Floats, tuple[float, Floats], Floats]


def descend(
    loss: Callable[[Floats], tuple[float, Floats]], W: Floats, *, max_iter: int, tol: float
) -> Floats:
    """Minimize a loss by L-BFGS, starting from the weights W, and return the final weights.

    `loss` returns the value and the gradient. The search stops after `max_iter` iterations, or when the
    relative improvement falls below `tol`.
    """

    def losses(points: Mapping[int, Floats]) -> dict[int, tuple[float, Floats]]:
        return {0: loss(points[0])}

    return descend_together(losses, [W], max_iter=max_iter, tol=tol)[0]


def descend_together(
    losses: Callable[[Mapping[int, Floats]], Mapping[int, tuple[float, Floats]]],
    starts: Sequence[Floats],
    *,
    max_iter: int,
    tol: float,
) -> list[Floats]:
    """Minimize several losses by L-BFGS, and evaluate all of them in one call at a time.

    Each search takes its own steps: the result is the same as that of one search after another.

    losses    Function of {index of a search: weights} that returns {index: (value, gradient)}. It is called
              with the searches that have not ended.
    starts    Weights from which each search starts.
    max_iter  Maximum number of iterations of a search.
    tol       Relative improvement below which a search ends.
    """
    searches = [_search(W.ravel(), max_iter, tol) for W in starts]
    at = {i: next(search) for i, search in enumerate(searches)}
    final: dict[int, Floats] = {}
    while at:
        found = losses({i: x.reshape(starts[i].shape) for i, x in at.items()})
        for i in list(at):
            value, gradient = found[i]
            try:
                at[i] = searches[i].send((value, gradient.ravel()))
            except StopIteration as end:
                final[i] = end.value
                del at[i]
    return [final[i].reshape(W.shape) for i, W in enumerate(starts)]


def _search(x: Floats, max_iter: int, tol: float) -> Search:
    """Yield points, take the value and the gradient at each, and return the point where the search ends."""
    f, g = yield x
    steps: deque[tuple[Floats, Floats, float]] = deque(maxlen=_MEMORY)
    for _ in range(max_iter):
        if not np.abs(g).max(initial=0.0) > _FLAT:
            break
        d = -_curved(g, steps)
        slope = float(g @ d)
        if not slope < 0:  # rounding spoiled the curvature
            steps.clear()
            d, slope = -g, -float(g @ g)
        t = 1.0 if steps else min(1.0, 1 / math.sqrt(-slope))
        below, above = (0.0, f, slope), math.inf
        for _ in range(_TRIALS):
            point = x + t * d
            value, gradient = yield point
            along = float(gradient @ d)
            if not value <= f + _DECREASE * t * slope:
                above = t
                t = _between(below, t, value)
            elif along < _SLOPE * slope:
                below = (t, value, along)
                # where the slope would be 0 if it went on changing evenly
                reach = slope / (slope - along) if along > slope else 10.0
                t = t * min(max(reach, 2.0), 10.0) if above == math.inf else (t + above) / 2
            else:
                break
        else:
            break
        s, y = point - x, gradient - g
        curvature = float(s @ y)
        if curvature > 0:
            steps.append((s, y, curvature))
        gained = (f - value) / max(abs(f), abs(value), 1.0)
        x, f, g = point, value, gradient
        if gained <= tol:
            break
    return x


def _curved(g: Floats, steps: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Product of the estimated inverse Hessian and the gradient g: the two loops of L-BFGS.

    steps  Earlier steps: the difference s of the weights, the difference y of the gradients, and s'y.
    """
    q = g.copy()
    shares = []
    for s, y, curvature in reversed(steps):
        shares.append(float(s @ q) / curvature)
        q -= shares[-1] * y
    if steps:
        _, y, curvature = steps[-1]
        q *= curvature / float(y @ y)
    for (s, y, curvature), share in zip(steps, reversed(shares), strict=True):
        q += (share - float(y @ q) / curvature) * s
    return q


def _between(below: tuple[float, float, float], t: float, value: float) -> float:
    """Place of the minimum of a parabola between two points of a line search.

    It is kept away from both points by a tenth of their distance.

    below  Position of the nearer point, the loss and its slope there.
    t      Position of the farther point, where the loss is `value`.
    """
    start, loss, slope = below
    width = t - start
    rise = value - loss - slope * width
    share = -slope * width / (2 * rise) if math.isfinite(rise) and rise > 0 else 0.5
    return start + width * min(max(share, 0.1), 0.9)
