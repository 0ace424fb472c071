"""Scaling of a matrix with slack: sums of rows and columns are 1 with a slack entry that is not normalized.

Each row has a slack entry and each column has one. The result is ``diag(u) A diag(v)`` with slack entries
``u * absent`` and ``v * vacant``, such that every row with its slack entry sums to 1 and every column with
its slack entry. The slack entries themselves form a row and a column without any prescribed sum. This is
the minimum of the convex function sum(u A v) + u absent + v vacant - sum(log u) - sum(log v) of log u and
log v. Without slack entries it is Sinkhorn's limit.
"""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats, Mask
from sinkprop.objective.sinkhorn_limit import SinkhornStatus, sinkhorn_limit

__all__ = ["scaled_with_slack"]

_TOL = 1e-12
_SWEEPS = 500  # before Newton steps
_NEWTON = 200


def scaled_with_slack(A: Floats, absent: Floats, vacant: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return the scaled matrix and its slack entries; None if zeros make these sums impossible.

    A       (n, m) finite and nonnegative.
    absent  (n,) slack entry of each row.
    vacant  (m,) slack entry of each column.
    """
    if not (absent.any() or vacant.any()):
        if A.shape[0] != A.shape[1]:
            return None
        limit = sinkhorn_limit(A, tol=_TOL)
        if limit.status is SinkhornStatus.NO_SUPPORT:
            return None
        return limit.matrix, absent.copy(), vacant.copy()
    possible = _possible(A > 0, absent > 0, vacant > 0)
    if possible is None:
        return None
    return _scaled(*(np.where(kept, x, 0.0) for kept, x in zip(possible, (A, absent, vacant), strict=True)))


def _possible(edges: Mask, absent: Mask, vacant: Mask) -> tuple[Mask, Mask, Mask] | None:
    """Nonzero entries that some partial assignment has; None if there is none.

    A partial assignment gives each row a column of its own or its slack entry, and leaves columns only to
    their slack entries. The perfect assignments of [[A, diag(absent)], [diag(vacant), A']] contain exactly
    the entries that partial assignments have.
    """
    n, m = edges.shape
    both = np.block([[edges, np.diag(absent)], [np.diag(vacant), edges.T]]).astype(np.float64)
    limit = sinkhorn_limit(both, tol=0.5, max_iter=1)
    if limit.status is SinkhornStatus.NO_SUPPORT:
        return None
    kept = limit.matrix > 0
    return kept[:n, :m], np.diag(kept[:n, m:]), np.diag(kept[n:, :m])


def _scaled(A: Floats, absent: Floats, vacant: Floats) -> tuple[Floats, Floats, Floats]:
    u, v = np.ones(len(absent)), np.ones(len(vacant))
    for _ in range(_SWEEPS):
        rows = A @ v + absent
        if np.abs(u * rows - 1).max(initial=0) <= _TOL:
            break
        u = 1 / rows
        v = 1 / (u @ A + vacant)
    a, b = np.log(u), np.log(v)
    for _ in range(_NEWTON):
        P, r, c = _entries(A, absent, vacant, a, b)
        gradient = np.concatenate([P.sum(axis=1) + r, P.sum(axis=0) + c]) - 1
        if np.abs(gradient).max() <= _TOL:
            break
        hessian = np.block([[np.diag(P.sum(axis=1) + r), P], [P.T, np.diag(P.sum(axis=0) + c)]])
        hessian += 1e-14 * np.eye(len(hessian))
        step = -np.linalg.solve(hessian, gradient)
        step *= min(1.0, 5.0 / float(np.abs(step).max()))
        start, slope, size = _objective(A, absent, vacant, a, b), float(gradient @ step), 1.0
        while size > 1e-8 and (
            _objective(A, absent, vacant, a + size * step[: len(a)], b + size * step[len(a) :])
            > start + 1e-4 * size * slope + 1e-14 * abs(start)
        ):
            size /= 2
        a, b = a + size * step[: len(a)], b + size * step[len(a) :]
    return _entries(A, absent, vacant, a, b)


def _entries(
    A: Floats, absent: Floats, vacant: Floats, a: Floats, b: Floats
) -> tuple[Floats, Floats, Floats]:
    return A * np.exp(a[:, None] + b), absent * np.exp(a), vacant * np.exp(b)


def _objective(A: Floats, absent: Floats, vacant: Floats, a: Floats, b: Floats) -> float:
    P, r, c = _entries(A, absent, vacant, a, b)
    return float(P.sum() + r.sum() + c.sum() - a.sum() - b.sum())
