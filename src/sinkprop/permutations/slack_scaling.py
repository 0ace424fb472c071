"""Scaling of a matrix with slack: sums of rows and columns with a slack entry that is not normalized.

Each row has a slack entry and each column has one. The result is ``diag(u) A diag(v)`` with slack entries
``u * absent`` and ``v * vacant``, such that the rows and the columns have given sums, slack included. The
slack entries themselves form a row and a column without any prescribed sum. This is the minimum of the convex
function sum(u A v) + u absent + v vacant - rows log(u) - columns log(v) of log u and log v, and the closest
matrix with these sums in relative entropy. Without slack entries and with sums of 1 it is Sinkhorn's limit.
"""

from __future__ import annotations

import numpy as np

from sinkprop.common.types import Floats, Mask
from sinkprop.objective.sinkhorn_limit import SinkhornStatus, sinkhorn_limit

__all__ = ["scaled_to_sums", "scaled_with_slack", "with_row"]

_TOL = 1e-12
_ACCEPTED = 1e-8  # largest distance of a sum from its target
_LEAST = 1e-14  # sums below this are 0
_SWEEPS = 500  # before Newton steps
_NEWTON = 200


def scaled_with_slack(A: Floats, absent: Floats, vacant: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return the matrix scaled to sums of 1 and its slack entries; None if zeros make them impossible.

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
    A, absent, vacant = (
        np.where(kept, x, 0.0) for kept, x in zip(possible, (A, absent, vacant), strict=True)
    )
    return scaled_to_sums(A, absent, vacant, np.ones(len(absent)), np.ones(len(vacant)))


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


def scaled_to_sums(
    A: Floats, absent: Floats, vacant: Floats, rows: Floats, columns: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Return the matrix scaled to these sums and its slack entries; None if it does not converge.

    rows     (n,) sum of each row of the result with its slack entry, not negative.
    columns  (m,) sum of each column with its slack entry.
    """
    some, other = rows > _LEAST, columns > _LEAST
    matrix, r, c = np.zeros_like(A), np.zeros_like(absent), np.zeros_like(vacant)
    kept = np.ix_(some, other)
    with np.errstate(all="ignore"):
        scaled = _scaled(A[kept], absent[some], vacant[other], rows[some], columns[other])
    matrix[kept], r[some], c[other] = scaled
    error = np.concatenate([matrix.sum(axis=1) + r - rows, matrix.sum(axis=0) + c - columns])
    return (matrix, r, c) if np.all(np.abs(error) <= _ACCEPTED) else None


def with_row(
    matrix: Floats, absent: Floats, vacant: Floats, j: int, row: Floats, slack: float
) -> tuple[Floats, Floats, Floats] | None:
    """Return a matrix with another row j, divided by its sum, and the other rows scaled; None if impossible.

    matrix  (n, m) with sums of 1 together with its slack entries `absent` and `vacant`.
    row     (m,) new row, with its slack entry `slack`.
    """
    total = float(row.sum()) + slack
    if not 0 < total < np.inf:
        return None
    row, slack = row / total, slack / total
    others = np.arange(len(matrix)) != j
    sums = np.ones(len(matrix) - 1), np.maximum(1 - row, 0)
    scaled = scaled_to_sums(matrix[others], absent[others], vacant, *sums)
    if scaled is None:
        return None
    new, slacks = np.empty(matrix.shape), np.empty(len(absent))
    new[others], new[j], slacks[others], slacks[j] = scaled[0], row, scaled[1], slack
    return new, slacks, scaled[2]


def _scaled(
    A: Floats, absent: Floats, vacant: Floats, rows: Floats, columns: Floats
) -> tuple[Floats, Floats, Floats]:
    u, v = np.ones(len(absent)), np.ones(len(vacant))
    for _ in range(_SWEEPS):
        sums = A @ v + absent
        if np.abs(u * sums - rows).max(initial=0) <= _TOL:
            break
        u = rows / sums
        v = columns / (u @ A + vacant)
    x, n, targets = np.log(np.concatenate([u, v])), len(u), np.concatenate([rows, columns])

    def entries(x: Floats) -> tuple[Floats, Floats, Floats]:
        return A * np.exp(x[:n, None] + x[n:]), absent * np.exp(x[:n]), vacant * np.exp(x[n:])

    def objective(x: Floats) -> float:
        return float(sum(part.sum() for part in entries(x)) - targets @ x)

    for _ in range(_NEWTON):
        P, r, c = entries(x)
        sums = np.concatenate([P.sum(axis=1) + r, P.sum(axis=0) + c])
        gradient = sums - targets
        if not np.abs(gradient).max(initial=0) > _TOL:  # also if it is not finite
            break
        hessian = np.diag(sums + 1e-14)
        hessian[:n, n:], hessian[n:, :n] = P, P.T
        step = -np.linalg.solve(hessian, gradient)
        step *= min(1.0, 5.0 / float(np.abs(step).max()))
        start, slope, size = objective(x), float(gradient @ step), 1.0
        while size > 1e-8 and objective(x + size * step) > start + 1e-4 * size * slope + 1e-14 * abs(start):
            size /= 2
        x = x + size * step
    return entries(x)
