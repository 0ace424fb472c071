"""Curves over positions: smoothing by a prior whose strength is estimated, and intervals.

The logarithm u of a curve, such as examination, is a function of t = ln position with u(0) = 0. The prior
says that its slope du/dt is a random walk in t with variance tau per unit: u is a power of the position if
tau is 0, and any curve if tau is large. tau has a log-uniform prior, and results are averaged over its
posterior. With many clicks the data decide, and the smoothed curve is that of the data.
"""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats

__all__ = ["curve_interval", "smoothed"]

_TAUS = np.geomspace(1e-5, 1e2, 22)


def smoothed(u: Floats, C: Floats, blocks: int = 1) -> tuple[Floats, Floats]:
    """Posterior mean and covariance of curves, given estimates with normal errors.

    u       (blocks (K - 1),) estimates at the positions 2 to K of each curve.
    C       (blocks (K - 1), blocks (K - 1)) covariance of their errors.
    blocks  1 or 2 curves, each with a tau of its own.
    """
    K = len(u) // blocks + 1
    Q, t = _prior(K)
    T = np.kron(np.eye(blocks), t[:, None]).astype(
        np.float64
    )  # the slope at t = 0 of each curve, which has no prior
    weights, means, covariances = [], [], []
    for taus in np.stack(np.meshgrid(*[_TAUS[:: 2 * blocks - 1]] * blocks), axis=-1).reshape(-1, blocks):
        prior = np.kron(np.diag(taus), Q).astype(np.float64)
        evidence, mean, covariance = _posterior(u, C, prior, T)
        weights.append(evidence)
        means.append(mean)
        covariances.append(covariance)
    w = np.exp(np.array(weights) - max(weights))
    w /= w.sum()
    mean = w @ np.array(means)
    spread = np.array(means) - mean
    return mean, np.tensordot(w, covariances, axes=1) + (spread * w[:, None]).T @ spread


def _prior(K: int) -> tuple[Floats, Floats]:
    """Covariance (K - 1, K - 1) of the integral of a random walk in t = ln k at k = 2 to K, and t."""
    t = np.log(np.arange(2, K + 1))
    first, last = np.minimum.outer(t, t), np.maximum.outer(t, t)
    return first**2 * (3 * last - first) / 6, t


def _posterior(u: Floats, C: Floats, prior: Floats, T: Floats) -> tuple[float, Floats, Floats]:
    """Log evidence, posterior mean and covariance of T b + e with a flat prior of b and e ~ N(0, prior)."""
    L = np.linalg.cholesky(C + prior)
    y, X, P = (np.linalg.solve(L, right) for right in (u, T, prior))
    gram = X.T @ X
    b = np.linalg.solve(gram, X.T @ y)
    r = y - X @ b
    evidence = -0.5 * float(r @ r) - float(np.log(np.diag(L)).sum()) - 0.5 * float(np.linalg.slogdet(gram)[1])
    # the effect of the uncertainty of b on T b + (mean of e given u - T b)
    G = T - P.T @ X
    covariance = prior - P.T @ P + G @ np.linalg.solve(gram, G.T)
    return evidence, T @ b + P.T @ r, covariance


def curve_interval(u: Floats, C: Floats, level: float = 0.95) -> Floats:
    """Bounds (2, K) of a curve that is 1 at position 1, from its logarithm at the others and covariance."""
    from scipy.special import ndtri

    reach = float(ndtri(0.5 + level / 2)) * np.sqrt(np.diag(C))
    with np.errstate(over="ignore"):  # a position without information has no upper bound
        bounds: Floats = np.exp(np.stack([np.r_[0.0, u - reach], np.r_[0.0, u + reach]]))
    return bounds
