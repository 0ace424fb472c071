"""Certified bounds on the permanent of a block, from scalings that need not be exact.

For any vectors u and v, per(A) = per(B) exp(-sum(u) - sum(v)) with B[i, j] = A[i, j] exp(u[i] + v[j]). Upper
bounds are functions of B that hold for every nonnegative matrix. Lower bounds are functions of a doubly
stochastic matrix P that is 0 where A is 0. The P at hand has sums that are only nearly 1, so the functions'
largest possible change on the way to a matrix with sums of exactly 1 is subtracted (`_Certified`). Rounding
errors are bounded and subtracted or added, too.

Lower bounds, where cap = sum P log(B / P) and H = sum (1 - P) log(1 - P):

- assignment: the largest product of entries, one in each row and column;
- van der Waerden (Egorychev 1981, Falikman 1981): cap + log(n! / n^n);
- Gurvits (2008): cap + sum_j log g(min(j, d_j)), g(k) = ((k - 1) / k)^(k - 1), where d_j is the number of
  nonzero entries of column j, or of row j;
- Bethe (Gurvits 2011): cap + H, for the matrix P at which this is largest.

Upper bounds:

- row sums: the product of the row sums of B, or of its column sums;
- Soules (2003): prod_i sum_k (k!^(1/k) - (k-1)!^(1/(k-1))) b_i(k), where b_i(1) >= b_i(2) >= ... are the
  entries of row i of B. For entries 0 and 1 it is Bregman's bound;
- Carlen, Lieb and Loss (2006): n! / n^(n/2) times the product of the Euclidean norms of the columns of B;
- Bethe (Anari and Rezaei 2019): 2^(n/2) times the largest exp(cap + H), which is bounded by duality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.objective.sinkhorn import log_entries
from sinkprop.objective.sinkhorn_limit import sinkhorn_limit
from sinkprop.permutations.blocks import Violator, blocks_of, submatrix

__all__ = ["block_bounds"]

_TOL = 1e-12  # of the sums of P
_SMALL = 1e-7  # entries of P that are dropped if P is too close to a matrix of several blocks
_ROUNDING = 2.0**-46  # bound on the relative rounding error of sums and functions here, per magnitude
_MESSAGES = 200  # largest number of rounds of belief propagation

Named = dict[str, float]


def block_bounds(A: Floats) -> tuple[Named, Named]:
    """Return lower and upper bounds on the logarithm of the permanent of a block, by name."""
    n = len(A)
    log_A = log_entries(A)
    if n == 1:
        exact = float(log_A[0, 0])
        return dict.fromkeys(_LOWER, exact), dict.fromkeys(_UPPER, exact)
    limit = sinkhorn_limit(A, tol=_TOL)
    sinkhorn = _Scaling(log_A, limit.log_u, limit.log_v)
    lower = dict.fromkeys(_LOWER, -math.inf) | {"assignment": _assignment(log_A)}
    upper = dict.fromkeys(_UPPER, math.inf)
    candidates = [limit.matrix]
    bethe = _bethe_marginals(limit.matrix)
    if bethe is not None:
        candidates.append(bethe)
    for P in candidates:
        _raise(lower, _lower_bounds(P, sinkhorn))
        _lower(upper, {"bethe": _bethe_upper(P, sinkhorn)})
    if lower["van der Waerden"] == -math.inf:
        _raise(lower, _without_small(A, limit.matrix))
    plain = _Scaling(log_A, np.zeros(n), np.zeros(n))
    for scaling in (sinkhorn, sinkhorn.transposed(), plain, plain.transposed()):
        _lower(upper, _upper_bounds(scaling))
    return lower, upper


_LOWER = ("assignment", "van der Waerden", "Gurvits", "bethe")
_UPPER = ("row sums", "Soules", "Carlen-Lieb-Loss", "bethe")


@dataclass(frozen=True, eq=False)
class _Scaling:
    """The logarithms of the entries of A and of B, with the vectors u and v."""

    entries: Floats
    u: Floats
    v: Floats

    @property
    def scaled(self) -> Floats:
        """The logarithms of B."""
        logs: Floats = self.u[:, None] + self.entries + self.v
        return logs

    @property
    def log_factor(self) -> float:
        """The logarithm of per(A) / per(B)."""
        return -float(self.u.sum() + self.v.sum())

    @property
    def rounding(self) -> float:
        """Bound on the effect of rounding errors of `log_factor` and of the entries of B."""
        n = len(self.u)
        u, v = np.abs(self.u), np.abs(self.v)
        largest = float(np.abs(self.entries[self.entries > -np.inf]).max() + u.max() + v.max())
        return _ROUNDING * (n * largest + float(u.sum() + v.sum()) + n)

    def transposed(self) -> _Scaling:
        return _Scaling(self.entries.T, self.v, self.u)


def _raise(bounds: Named, others: Named) -> None:
    for name, bound in others.items():
        bounds[name] = max(bounds[name], bound)


def _lower(bounds: Named, others: Named) -> None:
    for name, bound in others.items():
        bounds[name] = min(bounds[name], bound)


def _assignment(log_A: Floats) -> float:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(log_A, maximize=True)
    chosen = log_A[rows, columns]
    return float(chosen.sum() - _ROUNDING * np.abs(chosen).sum())


def _lower_bounds(P: Floats, scaling: _Scaling) -> Named:
    margin = _margin(P, scaling.scaled)
    if margin == math.inf:
        return {}
    support = P > 0
    p = P[support]
    ratios = p * (scaling.scaled[support] - np.log(p))
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(p < 1, (1 - p) * np.log1p(-p), 0.0)
    margin += scaling.rounding + _ROUNDING * float(np.abs(ratios).sum() + np.abs(rest).sum())
    capacity = float(ratios.sum()) + scaling.log_factor - margin
    n = len(P)
    sparse = max(_gurvits((scaling.entries > -np.inf).sum(axis=axis)) for axis in (0, 1))
    return {
        "van der Waerden": capacity + math.lgamma(n + 1) - n * math.log(n) - _ROUNDING * n * math.log(n),
        "Gurvits": capacity + sparse,
        "bethe": capacity + float(rest.sum()),
    }


def _without_small(A: Floats, P: Floats) -> Named:
    """Lower bounds of A without entries that are nearly 0 in P; its permanent is at most that of A."""
    B = np.where(P >= _SMALL, A, 0.0)
    blocks = blocks_of(B)
    if isinstance(blocks, Violator) or np.array_equal(B, A):
        return {}
    bounds = [block_bounds(submatrix(B, block))[0] for block in blocks]
    slack = _ROUNDING * sum(abs(bound) for part in bounds for bound in part.values() if bound > -math.inf)
    return {name: sum(part[name] for part in bounds) - slack for name in _LOWER}


def _gurvits(counts: Integers) -> float:
    """Sum of log g(min(j, d_j)), in the order of the columns in which it is largest."""
    k = np.minimum(np.arange(1, len(counts) + 1), np.sort(counts)[::-1]).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(k > 1, (k - 1) * np.log1p(-1 / np.maximum(k, 2)), 0.0)
    return float(logs.sum()) - _ROUNDING * len(k)


def _margin(P: Floats, log_B: Floats) -> float:
    """Bound on the change of a lower bound if P is changed to have sums of exactly 1.

    Such a change need only concern the edges of a spanning tree of the bipartite graph of rows and columns,
    and none by more than half the sum of all the sums' deviations. The tree here has the largest entries. If
    one of these is not well above the deviations, there is no such change, and the result is infinite.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = len(P)
    deviation = float(np.abs(P.sum(axis=1) - 1).sum() + np.abs(P.sum(axis=0) - 1).sum()) / 2
    deviation += _ROUNDING * n
    rows, columns = np.nonzero(P)
    graph = coo_matrix((1 - np.log(P[rows, columns]), (rows, n + columns)), shape=(2 * n, 2 * n))
    tree = minimum_spanning_tree(graph.tocsr()).tocoo()
    p = P[tree.row, tree.col - n]
    if len(p) < 2 * n - 1 or p.min() < 4 * deviation or deviation > 1e-3:
        return math.inf
    slopes = np.abs(log_B[tree.row, tree.col - n]) + np.abs(np.log(p / 2)) + 2 - math.log(deviation)
    return float(deviation * slopes.sum())


def _upper_bounds(scaling: _Scaling) -> Named:
    log_B = scaling.scaled
    n = len(log_B)
    # Rows are divided by their largest entries, so that nothing overflows or all of a row underflows.
    largest = log_B.max(axis=1)
    with np.errstate(under="ignore"):
        B = np.exp(log_B - largest[:, None])
    k = np.arange(1.0, n + 1)
    gamma = np.exp(_log_factorials(k) / k)
    # The entries are in decreasing order, so an error of gamma changes a row's sum by at most that error.
    delta = np.diff(gamma * (1 + _ROUNDING), prepend=0.0)
    ordered = -np.sort(-B, axis=1)
    factor = scaling.log_factor + float(largest.sum())
    margin = scaling.rounding + _ROUNDING * (n * math.log(n) + float(np.abs(largest).sum()) + n)
    factorial = math.lgamma(n + 1) - n / 2 * math.log(n)
    return {
        "row sums": float(np.log(B.sum(axis=1)).sum()) + factor + margin,
        "Soules": float(np.log(ordered @ delta).sum()) + factor + margin,
        "Carlen-Lieb-Loss": factorial + 0.5 * float(np.log((B**2).sum(axis=1)).sum()) + factor + margin,
    }


def _log_factorials(k: Floats) -> Floats:
    from scipy.special import gammaln

    logs: Floats = gammaln(k + 1)
    return logs


def _bethe_marginals(B: Floats) -> Floats | None:
    """Return a doubly stochastic matrix near the one that maximizes cap + H, by belief propagation.

    The message of an entry is sqrt(B) divided by the sum over the other entries of its row (or column) of
    sqrt(B) times the messages from the other side.
    """
    root = np.sqrt(B)
    from_columns = np.ones_like(B)
    P = B
    with np.errstate(all="ignore"):
        for _ in range(_MESSAGES):
            terms = root * from_columns
            from_rows = root / _others(terms, 1)
            terms = root * from_rows
            from_columns = root / _others(terms, 0)
            odds = from_rows * from_columns
            before, P = P, odds / (1 + odds)
            if not np.isfinite(P).all():
                return None
            if np.abs(P - before).max() < 1e-9:
                break
        P[(P <= 0) & (B > 0)] = np.finfo(float).tiny
    limit = sinkhorn_limit(P, tol=_TOL, max_iter=1000)
    return limit.matrix if limit.converged else None


def _others(terms: Floats, axis: int) -> Floats:
    """Sum of the other terms of the row or column of each entry."""
    total = terms.sum(axis=axis, keepdims=True)
    rest: Floats = np.maximum(total - terms, total * 1e-15)
    return rest


def _bethe_upper(P: Floats, scaling: _Scaling) -> float:
    """Upper bound on n / 2 log 2 plus the largest cap + H.

    For any column potentials b and any rows p in the simplex, the largest cap + H is at most
    sum(b) + sum_i [max_j (log(B / (p (1 - p))) - b_j) + sum_j log(1 - p_j)]: the Lagrangian of the
    conditions on the columns, whose terms are concave functions of the rows (Vontobel 2013), each bounded by
    its tangent at p.
    """
    log_B = scaling.scaled
    support = log_B > -np.inf
    n = len(P)
    P = np.where(support, np.clip(P, 1e-300, 1 - 2.0**-53), 0.0)
    log_rest = np.log1p(-P)
    slopes = np.where(support, log_B, 0.0) - np.log(np.where(support, P, 1.0)) - log_rest
    b = np.zeros(n)
    for _ in range(20):
        rows = (P * (slopes - b)).sum(axis=1)
        b = (P * (slopes - rows[:, None])).sum(axis=0)
    tangents = np.where(support, slopes - b, -np.inf).max(axis=1)
    rest = log_rest.sum(axis=1)
    value = float(b.sum() + tangents.sum() + rest.sum()) + scaling.log_factor + n / 2 * math.log(2)
    magnitude = float(np.abs(b).sum() + np.abs(tangents).sum() + np.abs(rest).sum()) + n
    return value + scaling.rounding + _ROUNDING * magnitude
