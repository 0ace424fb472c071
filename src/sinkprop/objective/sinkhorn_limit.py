"""The limit of Sinkhorn normalization: a doubly-stochastic matrix, if the pattern of zeros admits one."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Mask, Positions
from sinkprop.objective.assignment import largest_assignment
from sinkprop.objective.sinkhorn import (
    LARGE,
    log_entries,
    logsumexp,
    nonnegative_square,
    softmax,
)

__all__ = ["SinkhornLimit", "SinkhornStatus", "sinkhorn_limit"]


_PROBE = 20  # sweeps between two checks of the speed of convergence
_SETTLE = 1000  # largest number of sweeps for a matrix without a limit
_NAMED = 8  # largest number of rows or columns that a message lists


class SinkhornStatus(enum.Enum):
    """Outcome of `sinkhorn_limit`.

    Attributes
    ----------
    CONVERGED
        The matrix is doubly stochastic to within the tolerance.
    PARTIAL_SUPPORT
        The same, but some nonzero entries of A are 0 in the limit.
    MAX_ITER
        Not converged within the given number of iterations.
    NO_SUPPORT
        No doubly-stochastic limit exists.
    """

    CONVERGED = "converged"
    PARTIAL_SUPPORT = "partial support"
    MAX_ITER = "max_iter"
    NO_SUPPORT = "no support"


@dataclass(frozen=True, eq=False)
class SinkhornLimit:
    """Result of `sinkhorn_limit`: the limit of Sinkhorn normalization and its diagnostics.

    Attributes
    ----------
    matrix : array of shape (n, n)
        The row-normalized matrix, doubly stochastic to within `tol` if `converged`. With status
        ``NO_SUPPORT``, where no doubly-stochastic limit exists, the iterate at which the column sums stopped
        changing; zero rows of A stay zero.
    log_u : array of shape (n,)
        Finite log scalings of the rows: ``matrix = exp(log_u[:, None] + log(A) + log_v)`` for each entry of A
        that does not vanish in `matrix`.
    log_v : array of shape (n,)
        Finite log scalings of the columns.
    n_iter : int
        Number of iterations: Sinkhorn sweeps, and Newton steps where sweeps converge slowly.
    row_error : float
        Largest absolute deviation of a row sum from 1.
    column_error : float
        Largest absolute deviation of a column sum from 1.
    status : SinkhornStatus
        Outcome: ``CONVERGED``, ``PARTIAL_SUPPORT`` (converged, with entries that vanish), ``MAX_ITER`` or
        ``NO_SUPPORT``.
    tol : float
        The requested tolerance.
    n_vanished : int
        Number of nonzero entries of A that are 0 in the limit because they lie on no positive diagonal. A
        positive diagonal is n nonzero entries, one in each row and each column.
    deficient_rows : tuple of int
        With ``NO_SUPPORT``, the rows of a Hall violator: all their nonzero entries lie in
        `deficient_columns`.
    deficient_columns : tuple of int
        With ``NO_SUPPORT``, the columns of the Hall violator, one fewer than its rows.
    """

    matrix: Floats
    log_u: Floats
    log_v: Floats
    n_iter: int
    row_error: float
    column_error: float
    status: SinkhornStatus
    tol: float
    n_vanished: int = 0
    deficient_rows: tuple[int, ...] = ()
    deficient_columns: tuple[int, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether `matrix` is doubly stochastic to within `tol`."""
        return self.status in (SinkhornStatus.CONVERGED, SinkhornStatus.PARTIAL_SUPPORT)

    @property
    def message(self) -> str:
        """The status in one sentence."""
        error = max(self.row_error, self.column_error)
        count = _counted(self.n_iter, "iteration", "iterations")
        vanished = (
            f", with {_counted(self.n_vanished, 'nonzero entry', 'nonzero entries')} of A on no positive "
            "diagonal set to 0 as in the limit"
        )
        if self.status is SinkhornStatus.CONVERGED:
            return f"Converged in {count}: every row and column sum is within {error:.1e} of 1."
        if self.status is SinkhornStatus.PARTIAL_SUPPORT:
            return f"Converged in {count}{vanished}: every row and column sum is within {error:.1e} of 1."
        if self.status is SinkhornStatus.MAX_ITER:
            return (
                f"Not converged in {count}{vanished if self.n_vanished else ''}: a row or column sum is "
                f"{error:.1e} from 1, more than tol={self.tol:g}; raise max_iter or tol."
            )
        return (
            f"No doubly-stochastic limit exists: {_violation(self.deficient_rows, self.deficient_columns)}, "
            "so A has no positive diagonal; add a small constant to A."
        )


def sinkhorn_limit(A: npt.ArrayLike, *, tol: float = 1e-9, max_iter: int = 10_000) -> SinkhornLimit:
    """Limit of Sinkhorn normalization: the doubly-stochastic ``diag(u) A diag(v)``, if there is one.

    The zero pattern of A decides which entries stay nonzero. Sinkhorn sweeps converge linearly, but
    arbitrarily slowly if positive entries nearly vanish. Then Newton steps take over. They solve the convex
    problem whose solution is the limit. They start from the scalings of the sweeps or from scalings that
    favor the assignment (one entry per row and column) with the largest product, whichever is better.

    Parameters
    ----------
    A : array of shape (n, n)
        Finite and nonnegative, with zeros in any pattern.
    tol : float, default 1e-9
        Largest deviation of a row or column sum from 1 that counts as converged.
    max_iter : int, default 10_000
        Largest number of iterations.

    Returns
    -------
    SinkhornLimit
        The result, for every zero pattern; `status` and `message` tell the outcome.

    Examples
    --------
    >>> limit = sinkhorn_limit([[1, 4], [1, 1]])
    >>> limit.matrix.round(9)
    array([[0.33333333, 0.66666667],
           [0.66666667, 0.33333333]])
    >>> sinkhorn_limit([[1, 1, 1], [0, 0, 1], [0, 0, 2]]).message  # doctest: +NORMALIZE_WHITESPACE
    'No doubly-stochastic limit exists: rows 1, 2 have all their nonzero entries in column 2, so A has no
    positive diagonal; add a small constant to A.'
    """
    B = nonnegative_square(A, "A")
    max_iter = whole("max_iter", max_iter, 1)
    tol = number("tol", tol, above=True)

    pattern = B > 0
    match = _matching(pattern)
    if np.any(match < 0):
        rows, columns = _hall_violator(pattern, match)
        matrix, log_u, log_v, n_iter = _settled(B, tol, min(max_iter, _SETTLE))
        return SinkhornLimit(
            matrix,
            log_u,
            log_v,
            n_iter,
            *_errors(matrix),
            status=SinkhornStatus.NO_SUPPORT,
            tol=tol,
            deficient_rows=tuple(rows.tolist()),
            deficient_columns=tuple(columns.tolist()),
        )

    vanishing = pattern & ~_total_support(pattern, match)
    n_vanished = int(vanishing.sum())
    B[vanishing] = 0.0
    matrix, log_u, log_v, n_iter = _balanced(log_entries(B), tol, max_iter)
    row_error, column_error = _errors(matrix)
    if max(row_error, column_error) > tol:
        status = SinkhornStatus.MAX_ITER
    elif n_vanished:
        status = SinkhornStatus.PARTIAL_SUPPORT
    else:
        status = SinkhornStatus.CONVERGED
    return SinkhornLimit(
        matrix, log_u, log_v, n_iter, row_error, column_error, status, tol=tol, n_vanished=n_vanished
    )


def _balanced(log_A: Floats, tol: float, max_iter: int) -> tuple[Floats, Floats, Floats, int]:
    """Scale a matrix with total support to be doubly stochastic.

    Total support means that every nonzero entry lies on a positive diagonal: n nonzero entries, one in each
    row and each column. Returns (matrix, log_u, log_v, number of iterations), where log_u and log_v are the
    logarithms of the factors of the rows and of the columns.
    """
    log_v = -logsumexp(log_A, axis=0)
    matrix, log_u = _rescaled(log_A, log_v)
    error = max(_errors(matrix))
    n_iter, newton, newton_failed = 1, False, False
    while error > tol and n_iter < max_iter:
        if newton:
            step, count = _newton_step(matrix), 1
            if step is None:
                newton, newton_failed = False, True
                continue
        else:
            step, count = _sweeps(matrix, tol, min(_PROBE, max_iter - n_iter))
        log_v = log_v + step
        n_iter += count
        matrix, log_u = _rescaled(log_A, log_v)
        previous, error = error, max(_errors(matrix))
        # Newton steps take over if more sweeps than this are still needed. One step costs about as much as
        # n / 10 sweeps, and few steps are needed.
        patience = _PROBE + len(log_v) / 10
        if not (newton or newton_failed) and _sweeps_left(error / previous, count, error, tol) > patience:
            newton = True
            start = _assignment_log_v(log_A)
            if _dual(log_A, start) < _dual(log_A, log_v):
                log_v = start
                matrix, log_u = _rescaled(log_A, log_v)
                error = max(_errors(matrix))
    return matrix, log_u, log_v, n_iter


def _settled(A: Floats, tol: float, max_iter: int) -> tuple[Floats, Floats, Floats, int]:
    """Normalize columns and rows in turn, for a matrix without support, until column sums stop changing.

    Without support means that there are no n nonzero entries with one in each row and each column. Returns
    (matrix, log_u, log_v, number of iterations), where log_u and log_v are the logarithms of the factors of
    the rows and of the columns. They are 0 for zero rows and columns, which cannot be normalized.
    """
    rows, columns = np.flatnonzero(A.any(axis=1)), np.flatnonzero(A.any(axis=0))
    result, log_u, log_v = np.zeros_like(A), np.zeros(len(A)), np.zeros(len(A))
    if rows.size == 0:
        return result, log_u, log_v, 0
    kept = np.ix_(rows, columns)
    log_K = log_entries(A[kept])
    log_b = -logsumexp(log_K, axis=0)
    matrix, log_a = _rescaled(log_K, log_b)
    n_iter, change = 1, math.inf
    while change > tol and n_iter < max_iter:
        sums = matrix.sum(axis=0)
        step, count = _sweeps(matrix, 0.0, min(_PROBE, max_iter - n_iter))
        log_b = log_b + step
        n_iter += count
        matrix, log_a = _rescaled(log_K, log_b)
        change = float(np.abs(matrix.sum(axis=0) - sums).max())
    result[kept], log_u[rows], log_v[columns] = matrix, log_a, log_b
    return result, log_u, log_v, n_iter


def _sweeps(P: Floats, tol: float, n_iter: int) -> tuple[Floats, int]:
    """Run at most ``n_iter`` sweeps; return the change of log_v and the number of sweeps.

    A sweep normalizes the columns, then the rows. log_v is the logarithms of the factors of the columns.

    P is the row-normalized matrix at the start. The sweeps end early if all column sums are within
    ``tol`` of 1, or if a factor leaves the range [1e-100, 1e100]. Products do not overflow before that: the
    rows of P sum to 1 and its columns to at least 1/n^2, so one sweep changes no factor by more than n^2.
    """
    with np.errstate(under="ignore"):
        w = P.sum(axis=0)
        count, moving = 0, True
        while moving and count < n_iter:
            b = 1.0 / w
            a = 1.0 / (P @ b)
            w = a @ P
            count += 1
            in_range = max(a.max(), b.max()) < LARGE and min(a.min(), b.min()) > 1 / LARGE
            moving = in_range and np.abs(b * w - 1.0).max() > tol
        return np.log(b), count


def _sweeps_left(ratio: float, count: int, error: float, tol: float) -> float:
    """Number of sweeps until the error is ``tol``, if every ``count`` sweeps multiply it by ``ratio``."""
    if error <= tol:
        return 0.0
    return count * math.log(error / tol) / -math.log(ratio) if ratio < 1.0 else math.inf


def _newton_step(P: Floats) -> Floats | None:
    """Return a damped Newton step for log_v, or None if rounding errors leave no step that helps.

    log_v is the logarithms of the factors of the columns. In the limit, y = log_v minimizes the convex
    function f(y) = sum_i LSE_j(log A_ij + y_j) - sum_j y_j, where LSE is log-sum-exp. Let P
    be the row-normalized matrix at y. The gradient of f consists of the column sums of P minus 1. The Hessian
    diag(P' 1) - P' P is the Laplacian of the graph with edge weights P' P.
    """
    with np.errstate(under="ignore"):
        hessian = -(P.T @ P)
        np.fill_diagonal(hessian, 0.0)
        # Each diagonal entry is minus the sum of the other entries of its row. Computed as a column sum of P
        # minus an entry of P' P, it would lose entries that are tiny compared with 1 to rounding. The ridge
        # 1e-14 makes the Hessian invertible, which is singular otherwise: f does not change if the same
        # constant is added to every y_j.
        np.fill_diagonal(hessian, 1e-14 - hessian.sum(axis=1))
        gradient = P.sum(axis=0) - 1.0
        gradient -= gradient.mean()
        step = -np.linalg.solve(hessian, gradient)
        step -= step.mean()
        step *= min(1.0, 20.0 / max(float(np.abs(step).max()), 1e-300))
        slope = float(gradient @ step)
        error = float(np.abs(gradient).max())
        for _ in range(40):
            # Compute the decrease of f by expm1 and log1p, because it is far smaller than the values of f.
            growth = P @ np.expm1(step)
            decrease = float(step.sum() - np.log1p(growth).sum())
            new_error = np.abs(np.exp(step) * ((1.0 / (1.0 + growth)) @ P) - 1.0).max()
            if decrease >= 1e-4 * -slope or new_error <= 0.5 * error:
                return step
            step, slope = 0.5 * step, 0.5 * slope
    return None


def _dual(log_A: Floats, log_v: Floats) -> float:
    """Return sum_i LSE_j(log A_ij + y_j) - sum_j y_j, the value that the Newton steps minimize.

    y is `log_v`, the logarithms of the factors of the columns, and LSE is log-sum-exp. At the minimum, the
    scaled matrix is the limit.
    """
    return float(logsumexp(log_A + log_v, axis=1).sum() - log_v.sum())


def _assignment_log_v(log_A: Floats) -> Floats:
    """Return log scalings of the columns that favor the assignment with the largest product of entries.

    An assignment has one entry per row i, in column match[i], and one per column. After the scaling, the
    assigned entry is the largest of its row: log_v[j] <= log_v[match[i]] + log A[i, match[i]] - log A[i, j].
    The Bellman-Ford algorithm finds such a log_v. With it, the function that the Newton steps
    minimize (`_dual`) is within n log n of its minimum, for any magnitudes of the entries of A.
    """
    match = largest_assignment(log_A)
    length = log_A[np.arange(len(log_A)), match][:, None] - log_A
    log_v = np.zeros(len(log_A))
    for _ in range(len(log_A)):
        shorter = np.minimum(log_v, (log_v[match][:, None] + length).min(axis=0))
        if np.abs(shorter - log_v).max() <= 1e-9:
            break
        log_v = shorter
    return log_v


def _matching(pattern: Mask) -> Positions:
    """Match as many rows as possible to columns: each to one of its nonzero entries, no column twice.

    `pattern` is the mask of the nonzero entries. Returns the column of each row, or -1 for a row without a
    match.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    match: Positions = maximum_bipartite_matching(csr_matrix(pattern), perm_type="column").astype(np.intp)
    return match


def _hall_violator(pattern: Mask, match: Positions) -> tuple[Positions, Positions]:
    """Return m rows, and fewer than m columns in which all nonzero entries of these rows lie.

    The search follows alternating paths from a row that has no match. `match` comes from `_matching`.
    """
    unmatched = np.flatnonzero(match < 0)
    start = unmatched[np.argmin(pattern[unmatched].sum(axis=1))]
    rows = np.zeros(len(pattern), dtype=np.bool_)
    rows[start] = True
    while True:
        columns: Mask = np.logical_or.reduce(pattern[rows], axis=0)
        reached = rows.copy()
        reached[match >= 0] |= columns[match[match >= 0]]
        if reached.sum() == rows.sum():
            return np.flatnonzero(rows), np.flatnonzero(columns)
        rows = reached


def _total_support(pattern: Mask, match: Positions) -> Mask:
    """Return the mask of the nonzero entries that lie on some positive diagonal.

    Permute the columns so that the matched entries form the main diagonal, and take the result as the
    adjacency matrix of a graph. The wanted entries are the edges within its strongly connected components.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(csr_matrix(pattern[:, match]), directed=True, connection="strong")
    component_of_column = np.empty_like(component)
    component_of_column[match] = component
    kept: Mask = pattern & (component[:, None] == component_of_column)
    return kept


def _violation(rows: tuple[int, ...], columns: tuple[int, ...]) -> str:
    if not columns:
        return f"row {rows[0]} is all zeros"
    return f"{_named('row', rows)} have all their nonzero entries in {_named('column', columns)}"


def _counted(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


def _named(noun: str, indices: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, indices[:_NAMED]))
    if len(indices) > _NAMED:
        return f"{noun}s {listed}, ... ({len(indices)} in all)"
    return f"{noun}{'s' if len(indices) > 1 else ''} {listed}"


def _errors(P: Floats) -> tuple[float, float]:
    """Return two numbers: the largest deviation of a row sum from 1, and that of a column sum."""
    return float(np.abs(P.sum(axis=1) - 1.0).max()), float(np.abs(P.sum(axis=0) - 1.0).max())


def _rescaled(log_A: Floats, log_v: Floats) -> tuple[Floats, Floats]:
    """Return the matrix diag(u) A diag(v) and the vector log u.

    The row factors u are chosen such that all rows of the matrix sum to 1.
    """
    scaled = log_A + log_v
    return softmax(scaled), -logsumexp(scaled, axis=1)
