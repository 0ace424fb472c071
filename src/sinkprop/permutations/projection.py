"""The doubly-stochastic matrix closest to exp(log_K) in relative entropy: Sinkhorn's limit, in logarithms."""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats
from sinkprop.objective.sinkhorn import logsumexp
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit
from sinkprop.permutations.assignment import assigned_potentials

__all__ = ["projected"]

_TOL = 5e-13  # distance of a sum from 1; rankings are drawn without repair from sums within 1e-12 of 1
_SWEEPS = 100  # before Newton steps take over


def projected(log_K: Floats, log_v: Floats) -> tuple[Floats, Floats]:
    """Return the doubly-stochastic diag(u) exp(log_K) diag(v), and log v.

    log_K  (n, n) finite, of any magnitude.
    log_v  (n,) where to start: the result for a similar matrix, or zeros.
    """
    P, moved = _swept(_rows_scaled(log_K, log_v))
    if P is None or _error(P) > _TOL:
        limit = None if P is None else sinkhorn_limit(P, tol=_TOL)
        if limit is None or not limit.converged:
            # entries that underflowed can have left a matrix without support; these potentials keep it
            log_v = assigned_potentials(log_K)
            moved, limit = np.zeros(len(log_v)), sinkhorn_limit(_rows_scaled(log_K, log_v), tol=_TOL)
        P, moved = limit.matrix, moved + limit.log_v
    log_v = log_v + moved
    return P, log_v - log_v.mean()


def _rows_scaled(log_K: Floats, log_v: Floats) -> Floats:
    X = log_K + log_v
    with np.errstate(under="ignore"):
        P: Floats = np.exp(X - logsumexp(X, axis=1)[:, None])
    return P


def _swept(P: Floats) -> tuple[Floats | None, Floats]:
    """Sinkhorn sweeps; None instead of a matrix if a factor leaves the range of ordinary numbers."""
    b, sums = np.ones(len(P)), P.sum(axis=0)
    with np.errstate(under="ignore", divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(_SWEEPS):
            b = 1 / sums
            a = 1 / (P @ b)
            sums = a @ P
            if not 1e-100 < b.min() <= b.max() < 1e100:
                return None, b
            if np.abs(b * sums - 1).max() <= _TOL / 4:
                break
        scaled: Floats = a[:, None] * P * b
    return scaled, np.log(b)


def _error(P: Floats) -> float:
    return float(max(np.abs(P.sum(axis=0) - 1).max(), np.abs(P.sum(axis=1) - 1).max()))
