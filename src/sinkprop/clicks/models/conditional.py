"""Examination from documents that were shown at several positions, for any relevance.

Let document d have n_dk impressions and x_dk clicks at position k, each click with probability theta_k r_d.
If clicks are rare, then given the number X_d of its clicks, their positions are multinomial with the shares

    q_dk = n_dk theta_k / sum_j n_dj theta_j,

in which r_d cancels. The theta that maximizes this likelihood solves sum_d (x_dk - q_dk X_d) = 0 for each k,
whose terms have mean 0 also if clicks are not rare. So the estimate has no bias from the many r_d that are
unknown, unlike the maximum of the likelihood over theta and r together, which is biased for documents with
few impressions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sinkprop.clicks.models.cells import Cells
from sinkprop.common.types import Floats

__all__ = ["all_pairs", "pairs_with_first", "unbounded", "unconnected"]

_STEPS, _TOLERANCE, _LARGEST = 60, 1e-9, 2.0
_LEAST = 1e-12

Derivatives = Callable[[Floats], tuple[float, Floats, Floats]]  # value, gradient, minus second derivatives


def all_pairs(cells: Cells) -> tuple[Floats, Floats]:
    """Log examination (K - 1,) at the positions from 2, and its covariance."""
    X = cells.clicks
    cells = cells.keep((X > 0) & (np.diff(cells.starts) > 1))
    X, x = cells.clicks, cells.by_position(cells.x)[1:]
    u = _start(cells)

    def derivatives(u: Floats) -> tuple[float, Floats, Floats]:
        _, E, q = _shares(cells, u)
        expected = cells.to_cells(X) * q
        value = float(x @ u - X @ np.log(E))
        H = np.diag(cells.by_position(expected)) - (cells.matrix(expected).T @ cells.matrix(q)).toarray()
        return value, x - cells.by_position(expected)[1:], H[1:, 1:]

    u, H = _newton(derivatives, u)
    mass, E, q = _shares(cells, u)
    v = _variances(cells, mass, E)
    Q, V = cells.matrix(q), cells.matrix(v)
    QV = (Q.T @ V).toarray()
    total = cells.matrix(q * cells.to_cells(cells.by_document(v)))
    J = np.diag(cells.by_position(v)) - QV - QV.T + (Q.T @ total).toarray()
    return u, _sandwich(H, J[1:, 1:])


def pairs_with_first(cells: Cells) -> tuple[Floats, Floats]:
    """The same, where each position is compared with position 1 only, on the documents shown at both."""
    cells = cells.keep((cells.positions[cells.starts[:-1]] == 0) & (np.diff(cells.starts) > 1))
    top = np.zeros(len(cells.x), dtype=bool)
    top[cells.starts[:-1]] = True
    k = cells.positions[~top] - 1
    n, x = cells.n[~top], cells.x[~top]
    n1, x1 = (cells.to_cells(values[top])[~top] for values in (cells.n, cells.x))
    K = cells.K - 1

    def derivatives(u: Floats) -> tuple[float, Floats, Floats]:
        mass = n * np.exp(u[k])
        q = mass / (mass + n1)
        value = float((x * u[k] - (x + x1) * np.log(mass + n1)).sum())
        H = np.diag(np.bincount(k, q * (1 - q) * (x + x1), K).astype(np.float64))
        return value, np.bincount(k, x - q * (x + x1), K).astype(np.float64), H

    u, H = _newton(derivatives, _start(cells))
    mass, E, _ = _shares(cells, u)
    v = _variances(cells, mass, E)
    e = n * np.exp(u[k])
    q = np.zeros(len(v))
    q[~top] = e / (e + n1)
    first = cells.to_cells(v[top])
    J = (cells.matrix(q * first).T @ cells.matrix(q)).toarray() + np.diag(cells.by_position((1 - q) ** 2 * v))
    return u, _sandwich(H, J[1:, 1:])


def unconnected(cells: Cells, *, with_first: bool = False) -> list[int]:
    """Positions, from 1, that no chain of clicked documents shown at several positions connects with 1."""
    from scipy.sparse import bmat
    from scipy.sparse.csgraph import connected_components

    shown = cells.matrix((cells.n > 0).astype(np.float64))
    shown = shown[cells.clicks > 0]
    if with_first:
        shown = shown[shown[:, [0]].toarray().ravel() > 0]
        return (np.flatnonzero(shown.sum(axis=0) == 0) + 1).tolist()
    _, labels = connected_components(bmat([[None, shown], [shown.T, None]]), directed=False)
    of_positions = labels[-cells.K :]
    return (np.flatnonzero(of_positions != of_positions[0]) + 1).tolist()


def unbounded(cells: Cells, *, with_first: bool = False) -> list[int]:
    """Positions, from 1, for which the likelihood is largest at an examination of 0 or infinity.

    The maximum is finite if and only if clicks lead from every position to every other one, where a click at
    k on a document that was also shown at j leads from j to k (Ford, 1957).
    """
    from scipy.sparse.csgraph import connected_components

    shown = cells.matrix(np.ones(len(cells.n)))
    leads = (shown.T @ cells.matrix(cells.x)).toarray() > 0
    if with_first:
        return (np.flatnonzero(~(leads[0] & leads[:, 0])[1:]) + 2).tolist()
    _, labels = connected_components(leads, connection="strong")
    return (np.flatnonzero(labels != labels[0]) + 1).tolist()


def _start(cells: Cells) -> Floats:
    """Logarithm of the click rate of each position from 2, relative to that of position 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = cells.by_position(cells.x) / cells.by_position(cells.n)
    rates = np.maximum(np.nan_to_num(rates), _LEAST ** (1 / 3))
    u: Floats = np.log(rates[1:] / rates[0])
    return u


def _shares(cells: Cells, u: Floats) -> tuple[Floats, Floats, Floats]:
    """Mass n theta of each cell (C,), its sum over each document (D,), and its share of this sum (C,)."""
    mass = cells.n * np.exp(np.r_[0.0, u])[cells.positions]
    E = cells.by_document(mass)
    return mass, E, mass / cells.to_cells(E)


def _variances(cells: Cells, mass: Floats, E: Floats) -> Floats:
    """Estimated variance n theta r (1 - theta r) of the clicks of each cell, (C,).

    For the relevance r and its square, unbiased estimates are taken, X / E and X (X - 1) / (E^2 - sum_k n_k
    theta_k^2). The square of X / E is too large by its variance, so that intervals would be too narrow where
    documents have few impressions.
    """
    X = cells.clicks
    r, own = X / E, mass**2 / cells.n
    pairs = E**2 - cells.by_document(own)  # above 0 unless weights are fractions
    square = np.where(pairs > 0, np.maximum(X * (X - 1), 0.0) / np.where(pairs > 0, pairs, 1.0), r**2)
    v: Floats = np.maximum(mass * cells.to_cells(r) - own * cells.to_cells(square), 0.0)
    return v


def _newton(derivatives: Derivatives, u: Floats) -> tuple[Floats, Floats]:
    """Maximum of a concave function, and minus its second derivatives there."""
    value, gradient, H = derivatives(u)
    for _ in range(_STEPS):
        direction = np.linalg.solve(H + _LEAST * (1 + np.trace(H)) * np.eye(len(u)), gradient)
        if not np.abs(direction).max() > _TOLERANCE:
            break
        direction *= min(1.0, _LARGEST / np.abs(direction).max())
        new, size = derivatives(u + direction), 1.0
        while not new[0] >= value - 1e-10 * abs(value) and size > 1e-6:
            size /= 2
            new = derivatives(u + size * direction)
        u = u + size * direction
        value, gradient, H = new
    return u, H


def _sandwich(H: Floats, J: Floats) -> Floats:
    """Covariance of the solution of equations with the derivative H and the variance J."""
    # A position that lost its clicks in a resampled log has no information: a large variance, not infinite.
    inverse = np.linalg.inv(H + 1e-6 * np.eye(len(H)))
    return inverse @ (J + 1e-6 * np.eye(len(J))) @ inverse
