"""Matrices of rank probabilities whose sums are not exactly 1: their check, and their repair by scaling.

Five Sinkhorn iterations leave column sums that are up to about .25 from 1 for 200 documents, and up to .35
for 2000. The repair multiplies rows and columns by factors until the sums are right, so that zero entries
stay 0. For the result of Sinkhorn iterations, this gives the limit of the same iterations. If there is no
such limit, or if it is approached too slowly, the rest is added as a matrix of rank one, as Altschuler, Weed
and Rigollet (2017) do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sinkprop.common.types import Floats
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit

__all__ = ["as_numbers", "rank_probabilities", "repaired"]

_FARTHEST = 0.5  # of a sum from 1, in a matrix that is repaired
_EXACT = 1e-12  # distance from 1 at which scaling ends
_ACCEPTED = 1e-9  # distance from 1 up to which nothing is added
_SWEEPS = 1000


def as_numbers(values: npt.ArrayLike, name: str) -> Floats:
    """Return an array as float64; raise a ValueError if it does not consist of numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers; NumPy cannot convert it: {error}.") from error


def rank_probabilities(Pi: npt.ArrayLike, name: str) -> Floats:
    """Check a matrix with one row per document and one column per rank, and return it as float64.

    Raises a ValueError unless the matrix has at most as many columns as rows, its entries are finite and not
    negative, its columns sum to about 1 and its rows to about 1, or to less if there are fewer columns. The
    error message calls the matrix `name`.
    """
    P = as_numbers(Pi, name)
    if P.ndim != 2 or not 1 <= P.shape[1] <= P.shape[0]:
        raise ValueError(
            f"{name} must have one row per document and one column per rank, with at most as many ranks as "
            f"documents; got shape {P.shape}."
        )
    valid = np.isfinite(P) & (P >= 0)
    if not valid.all():
        i, j = np.argwhere(~valid)[0]
        raise ValueError(
            f"{name} must have finite entries of at least 0; got {name}[{i}, {j}] = {P[i, j]}. Replace such "
            "entries first."
        )
    _check_sums("column", P.sum(axis=0), name, exact=True)
    _check_sums("row", P.sum(axis=1), name, exact=P.shape[0] == P.shape[1])
    return P


def _check_sums(noun: str, sums: Floats, name: str, *, exact: bool) -> None:
    distance = np.abs(sums - 1) if exact else sums - 1
    worst = int(np.argmax(distance))
    if distance[worst] > _FARTHEST:
        expected, relation = ("about", "from") if exact else ("at most about", "above")
        raise ValueError(
            f"{name} must have {noun} sums of {expected} 1; {noun} {worst} sums to {sums[worst]:.4g}, "
            f"{distance[worst]:.4g} {relation} 1. Normalize it first, for example with sinkhorn_limit."
        )


def repaired(P: Floats) -> tuple[Floats, float]:
    """Scale a matrix of rank probabilities until its sums are right to 1e-9.

    Columns then sum to 1, and rows to 1, or to at most 1 if there are fewer columns than rows. Zero entries
    stay 0, unless scaling does not converge.

    Parameters
    ----------
    P : array of shape (n, k)
        Finite, nonnegative matrix with k <= n.

    Returns
    -------
    matrix : array of shape (n, k)
        The matrix with these sums, or P itself if its sums are right.
    largest_change : float
        Largest absolute change of an entry.

    Examples
    --------
    >>> matrix, largest_change = repaired(np.array([[0.9, 0.2], [0.1, 0.8]]))
    >>> matrix.round(3), round(largest_change, 3)
    (array([[0.857, 0.143],
           [0.143, 0.857]]), 0.057)
    """
    if _error(P) <= _EXACT:
        return P, 0.0
    matrix = _doubly_scaled(P) if P.shape[0] == P.shape[1] else _scaled(P)
    if _error(matrix) > _ACCEPTED:
        matrix = _filled(matrix)
    return matrix, float(np.abs(matrix - P).max())


def _error(P: Floats) -> float:
    """Largest distance of a sum from 1; row sums below 1 are right if there are fewer columns than rows."""
    rows = P.sum(axis=1) - 1
    row_error = np.abs(rows).max() if P.shape[0] == P.shape[1] else rows.max()
    return float(max(row_error, np.abs(P.sum(axis=0) - 1).max()))


def _doubly_scaled(P: Floats) -> Floats:
    return sinkhorn_limit(P, tol=_EXACT, max_iter=_SWEEPS).matrix


def _scaled(P: Floats) -> Floats:
    """Return diag(u) P diag(v), with column sums of 1 and row sums of at most 1.

    Factors of rows are 1 or less, and below 1 only for row sums of 1. So the result is the matrix with such
    sums that is closest to P in the Kullback-Leibler divergence.
    """
    u = np.ones(len(P))
    v = 1 / P.sum(axis=0)
    for _ in range(_SWEEPS):
        u = 1 / np.maximum(P @ v, 1)
        sums = u @ P
        if np.abs(sums * v - 1).max() <= _EXACT / 2:
            break
        v = 1 / sums
    scaled: Floats = u[:, None] * P * v
    return scaled


def _filled(P: Floats) -> Floats:
    """Scale too large sums down to 1, then add a matrix of rank one with the sums that are missing."""
    P = P / np.maximum(P.sum(axis=1, keepdims=True), 1)
    P /= np.maximum(P.sum(axis=0), 1)
    rows, columns = np.maximum(1 - P.sum(axis=1), 0), np.maximum(1 - P.sum(axis=0), 0)
    filled: Floats = P + np.outer(rows / rows.sum(), columns)
    return filled
