"""Derivatives of all expected ranks of a query, in the directions of its features, by forward mode.

With the n documents in the order of their scores, A[i, k] = K(phi_i - psi_k) + epsilon, where phi_i is the
score of document i, and psi_k that of the document at place k: the same numbers, but not the same rates of
change if documents are tied. Which of them is at which of their places is then arbitrary. Their places move
with their mean, as if their order were drawn at random.

The half steps q_0 = 1, q_t = 1 / (A q_(t-1)) normalize columns if t is odd, and rows if t is even, and
Pi = diag(u) A diag(v), where u and v are the last two. If they have converged, A being symmetric, both are
multiples of one vector x with x_i (A x)_i = 1, and x'_i / x_i = alpha_i is the solution of

    (I + Pi) alpha = -x (A' x).

Otherwise every half step is differentiated. A rate has one column per feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from sinkprop.common.types import Floats

__all__ = ["Smoothing", "rank_rates"]

_CONVERGED = (
    1e-7  # relative change of the factors in one iteration below which the limit's derivative is taken
)
_MOST = 1_000  # iterations for the limit, each of which halves the error


class Smoothing(NamedTuple):
    """A smoothed indicator and its normalization.

    limit  Whether the half steps are repeated until they converge, and `half_steps` does not count.
    """

    kernel: str
    width: float
    half_steps: int
    epsilon: float
    limit: bool = False


def rank_rates(x: Floats, rows: Floats, places: Floats, smoothing: Smoothing) -> Floats:
    """Rates of change (n, D) of the expected ranks.

    x       (n,) scores in decreasing order.
    rows    (n, D) rate of each document's score.
    places  (n, D) rate of the score at each place; `rows`, or its means over tied documents.
    """
    t = np.subtract.outer(x, x)
    t /= smoothing.width
    if smoothing.kernel == "gaussian":
        K = np.exp(-0.5 * t * t)
        slope = -t * K / smoothing.width
    else:
        K = np.exp(-np.abs(t))
        slope = -np.sign(t) * K / smoothing.width
    K += smoothing.epsilon
    q, converged = _factors(K, smoothing)
    if converged:
        return _limit_rates(K, slope, np.sqrt(q[-1] * q[-2]), rows, places)
    return _iterated_rates(K, slope, q, rows, places)


def _factors(A: Floats, smoothing: Smoothing) -> tuple[list[Floats], bool]:
    """The half steps q_0, q_1, ..., and whether they have converged before the last."""
    q = [np.ones(len(A))]
    if smoothing.limit:
        for _ in range(_MOST):
            q = [q[-1], np.sqrt(q[-1] / (A @ q[-1]))]
            if np.abs(q[1] - q[0]).max() <= _CONVERGED * q[1].max():
                break
        return [q[-1], q[-1]], True
    for t in range(1, smoothing.half_steps + 1):
        q.append(1 / (A @ q[-1]))
        if t > 2 and t % 2 and np.abs(q[-1] / q[-3] - 1).max() <= _CONVERGED:
            return q, True
    return q, False


def _limit_rates(A: Floats, slope: Floats, x: Floats, rows: Floats, places: Floats) -> Floats:
    n, D = places.shape
    ranks = np.arange(1.0, n + 1)
    xk = x * ranks
    Pi = A * x
    Pi *= x[:, None]
    moved = slope @ np.concatenate([x[:, None] * places, xk[:, None] * places], axis=1)
    here, there = slope @ x, slope @ xk
    rho = x[:, None] * (places * here[:, None] - moved[:, :D])
    expected = Pi @ ranks
    system = Pi.copy()
    system[np.diag_indices(n)] += 1
    alpha = cho_solve(cho_factor(system, overwrite_a=True, check_finite=False), -rho, check_finite=False)
    rates: Floats = Pi @ (ranks[:, None] * alpha)
    rates += expected[:, None] * alpha
    rates += x[:, None] * (places * there[:, None] - moved[:, D:])
    if rows is not places:
        # a document that moves away from those that it is tied with changes its own row of Pi, and, together
        # with what they do, no column sum
        rates += (rows - places) * (x * (there - expected * here))[:, None]
    return rates


def _iterated_rates(A: Floats, slope: Floats, q: list[Floats], rows: Floats, places: Floats) -> Floats:
    n, _ = places.shape
    ranks = np.arange(1.0, n + 1)
    before = rate = np.zeros_like(places)
    for t in range(1, len(q)):
        own, others = (places, rows) if t % 2 else (rows, places)
        p = q[t - 1]
        w = own * (slope @ p)[:, None] - slope @ (p[:, None] * others) + A @ rate
        before, rate = rate, -np.square(q[t])[:, None] * w
    (u, u_rate), (v, v_rate) = (q[-1], rate), (q[-2], before)
    if len(q) % 2 == 0:  # the last half step normalized columns
        (u, u_rate), (v, v_rate) = (v, v_rate), (u, u_rate)
    vk = v * ranks
    rates: Floats = rows * (slope @ vk)[:, None] - slope @ (vk[:, None] * places)
    rates += A @ (ranks[:, None] * v_rate)
    rates *= u[:, None]
    rates += u_rate * (A @ vk)[:, None]
    return rates
