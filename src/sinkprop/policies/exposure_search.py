"""The best mixture of rankings under linear inequalities on the exposure of groups, by column generation.

The expected exposures E of a doubly-stochastic matrix are a mixture of permutations of the position weights
e, and value and inequalities depend on the matrix through E only. With prices y >= 0 of the inequalities, a
best ranking sorts the documents by relevance plus the bonus of their groups, so the Lagrangian bound

    max_E (r + bonus(y)) . E + y . bound >= max_E {r . E : the inequalities hold}

costs a sort. A linear program over the rankings found so far (the master) gives the mixture and the next
prices; the ranking of these prices is added to it. Value and bound meet after finitely many steps.

Two devices keep the number of steps small. The prices stay within a box around the best ones so far, which
grows as long as the optimum is on its border. And if there are many inequalities, an optimum E is first
approximated by the proximal point method and written as a mixture of rankings, with which the program starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sinkprop.common.types import Floats, Positions
from sinkprop.policies.exposure_constraints import Inequalities

__all__ = ["Optimum", "Problem", "optimum", "violated"]

_TOL = 1e-8  # of value and bound, and of the inequalities
_TIGHT = 1e-12  # of sums of shares
_FEW = 10  # inequalities up to which column generation is fast by itself
_PENALTIES = (0.1, 0.05, *8 * (0.03,))  # of the proximal steps, in units of the largest relevance
_CLOSE = 1e-8  # gap and violation at which the proximal steps end
_NEAR = 1e-5  # gap below which rankings with swapped neighbors help to close it
_ENTRIES = 2**20  # of the rankings that the proximal solution may be decomposed into
_WIDTHS = (0.01, 0.1, 1.0, 10.0)  # of the box of prices, in units of the largest relevance
_WIDEST = 1e4  # for inequalities that are known to be feasible
_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, eq=False)
class Problem:
    """Maximize relevance . E for exposures E that are a mixture of permutations of `weights`.

    relevance   (N,) in units that make the largest value 1, or all 0
    weights     (N,) position weights in decreasing order, with sum 1; those after the first K are 0
    n_ranks     K, the number of documents that a ranking lists
    members     (G, N) sparse matrix of the groups: 1 for their documents
    rows        inequalities for the shares x = members @ E
    """

    relevance: Floats
    weights: Floats
    n_ranks: int
    members: Any
    rows: Inequalities

    def bonus(self, prices: Floats) -> Floats:
        """(N,) what the prices add to the relevance of each document."""
        rows = self.rows
        of_group = np.bincount(rows.group, rows.sign * prices, minlength=self.members.shape[0])
        added: Floats = -(self.members.T @ of_group)
        return added

    def slopes(self, prices: Floats) -> Floats:
        """(C,) derivative of the Lagrangian with respect to each t."""
        total = np.bincount(self.rows.owner, self.rows.level * prices, len(self.rows.most))
        return -total.astype(np.float64)

    def bound(self, prices: Floats, adjusted: Floats | None = None) -> float:
        """Lagrangian bound, from the relevance plus bonus in decreasing order."""
        if adjusted is None:
            adjusted = np.sort(self.relevance + self.bonus(prices))[::-1]
        of_levels = np.maximum(self.slopes(prices), 0) @ self.rows.most
        return float(adjusted @ self.weights + prices @ self.rows.bound + of_levels)

    def used(self, exposures: Floats) -> Floats:
        """(R,) left sides of the inequalities without the variables t."""
        used: Floats = self.rows.sign * (self.members @ exposures)[self.rows.group]
        return used

    def exposures(self, order: Positions) -> Floats:
        """(N,) exposure of each document in one ranking."""
        found = np.zeros(len(self.weights))
        found[order] = self.weights[: self.n_ranks]
        return found

    def only(self, kept: Any) -> Problem:
        """The problem with some of the inequalities."""
        return replace(self, rows=self.rows.subset(kept))


@dataclass(frozen=True, eq=False)
class Optimum:
    """A mixture of rankings (M, K), the prices (R,) of the inequalities, and a bound of all values."""

    shares: Floats
    orders: Positions
    prices: Floats
    bound: float


def optimum(problem: Problem) -> Optimum | None:
    """The best mixture, or None if no mixture satisfies the inequalities."""
    search = _Search(problem)
    found = search.master(search.prices, search.prices + search.unit)
    if found.slack > _TOL:
        found = search.stabilized()
    if found.slack > _TOL:  # either no mixture is feasible, or prices are higher
        feasible = _phase_one(problem)
        if feasible.bound < -_TOL:
            return None
        search.extend(feasible.orders)
        found = search.within(_WIDEST * search.unit)
    kept = np.flatnonzero(found.shares > _TIGHT)
    shares = found.shares[kept] / found.shares[kept].sum()
    return Optimum(shares, np.stack([search.orders[m] for m in kept]), search.prices, search.bound)


def violated(problem: Problem) -> Floats | None:
    """Prices (R,) that prove that no mixture satisfies the inequalities, or None.

    Their Lagrangian bound is below 0 for a relevance of 0: the inequalities, weighted by the prices and
    added, demand what no mixture has.
    """
    search = _phase_one(problem)
    return search.prices if search.bound < -_TOL else None


def _phase_one(problem: Problem) -> _Search:
    """The search for a mixture with the smallest sum of violations, up to a proof that it is above 0."""
    search = _Search(replace(problem, relevance=np.zeros_like(problem.relevance)), highest=1.0)
    search.stabilized()
    return search


@dataclass(frozen=True, eq=False)
class _Master:
    """Optimum of the linear program over some rankings; `slack` sums the forces of the box on the prices."""

    value: float
    shares: Floats
    prices: Floats
    slack: float


class _Search:
    """Rankings found so far, and the prices with the lowest bound.

    Prices above `highest` are not tried: violations of the inequalities cost that much, instead of being
    forbidden.
    """

    def __init__(self, problem: Problem, highest: float = np.inf) -> None:
        self.problem, self.highest = problem, highest
        self.unit = max(1.0, float(problem.relevance.max()))
        self.orders: list[Positions] = []
        self.values: list[float] = []
        self.used: list[Floats] = []
        self.prices = np.zeros(len(problem.rows.bound))
        self.bound = np.inf
        self.price(self.prices)

    @property
    def infeasible(self) -> bool:
        """Whether the bound proves that an inequality is violated, in a search that counts violations."""
        return np.isfinite(self.highest) and self.bound < -_TOL

    def extend(self, orders: Iterable[Positions]) -> None:
        """Add rankings."""
        for order in orders:
            exposures = self.problem.exposures(order[: self.problem.n_ranks])
            self.orders.append(order[: self.problem.n_ranks].copy())
            self.values.append(float(self.problem.relevance @ exposures))
            self.used.append(self.problem.used(exposures))

    def price(self, prices: Floats) -> float:
        """Add a best ranking for these prices, and return their Lagrangian bound."""
        problem = self.problem
        adjusted = problem.relevance + problem.bonus(prices)
        order = np.argsort(-adjusted, kind="stable")
        self.extend([order])
        bound = problem.bound(prices, adjusted[order])
        if bound < self.bound:
            self.bound, self.prices = bound, prices
        return bound

    def stabilized(self) -> _Master:
        """Optimize in boxes of growing width; if there are many inequalities, from the proximal solution."""
        if len(self.prices) > _FEW:
            self._start()
        for width in _WIDTHS:
            found = self.within(width * self.unit)
            if found.slack <= _TOL or self.infeasible:
                break
        return found

    def _start(self) -> None:
        """Add the prices of the proximal solution, and rankings of which it is a mixture."""
        prices, exposures = _proximal(self.problem, min(self.highest, 10 * self.unit), self.unit)
        self.price(prices)
        most = max(3 * len(prices) + 20, _ENTRIES // self.problem.n_ranks)
        self.extend(_decomposed(exposures, self.problem.weights, most))

    def within(self, width: float) -> _Master:
        """Optimize in a box of this half-width around the best prices, which moves with them."""
        while True:
            center = self.prices
            found = self.master(np.maximum(center - width, 0), np.minimum(center + width, self.highest))
            gap = self.price(found.prices) - found.value
            if gap <= _TOL * self.unit or self.infeasible or self._repeated():
                return found
            if len(center) > _FEW and gap <= _NEAR * self.unit:
                self.extend(self._swapped(self.orders[int(np.argmax(found.shares))]))

    def _swapped(self, order: Positions) -> list[Positions]:
        """A ranking with two neighbors of different groups swapped, for the pairs closest to a tie."""
        problem = self.problem
        adjusted = (problem.relevance + problem.bonus(self.prices))[order]
        key = problem.members.T @ np.random.default_rng(0).random(problem.members.shape[0])
        differ = np.flatnonzero(np.diff(key[order]))
        closest = np.argsort(np.abs(np.diff(adjusted))[differ], kind="stable")[: 2 * len(self.prices)]
        found = []
        for first in differ[closest]:
            swapped = order.copy()
            swapped[[first, first + 1]] = order[[first + 1, first]]
            found.append(swapped)
        return found

    def _repeated(self) -> bool:
        """Whether the last ranking was there before, as far as the inequalities can tell."""
        earlier = np.abs(np.array(self.used[:-1]) - self.used[-1]).max(axis=1, initial=0)
        return bool(
            (np.maximum(earlier, np.abs(np.array(self.values[:-1]) - self.values[-1])) < _TIGHT).any()
        )

    def master(self, low: Floats, high: Floats) -> _Master:
        """Find prices y between `low` and `high` with the lowest bound, if there were no other rankings.

        The program has the prices y, a bound c of the Lagrangian of the rankings, and bounds z of the slopes:

            min c + y . bound + z . most  with  c + y . used >= value of each ranking, z >= slopes(y), z >= 0.

        The dual variables of the rankings are the shares of a mixture, which satisfies the inequalities if
        the box leaves the prices free.
        """
        from scipy.optimize import linprog

        rows, n_orders = self.problem.rows, len(self.orders)
        n_levels, n_rows = len(rows.most), len(rows.bound)
        slopes = np.zeros((n_levels, n_rows))
        slopes[rows.owner, np.arange(n_rows)] = -rows.level
        of_orders = np.hstack([-np.ones((n_orders, 1)), np.zeros((n_orders, n_levels)), -np.array(self.used)])
        of_levels = np.hstack([np.zeros((n_levels, 1)), -np.eye(n_levels), slopes])
        free = np.array([[-np.inf, np.inf], *[[0, np.inf]] * n_levels])
        costs = np.concatenate([[1.0], rows.most, rows.bound])
        program = {
            "A_ub": np.vstack([of_orders, of_levels]),
            "b_ub": np.concatenate([-np.array(self.values), np.zeros(n_levels)]),
            "bounds": np.vstack([free, np.stack([low, high], axis=1)]),
            "method": "highs-ds",
        }
        solved = linprog(costs, **program, options={"presolve": False, **_HIGHS})  # takes half the time
        if solved.status != 0:
            solved = linprog(costs, **program, options=_HIGHS)
        prices = np.clip(solved.x[1 + n_levels :], low, high)
        held = (
            np.where(low > 0, solved.lower.marginals[1 + n_levels :], 0)
            - solved.upper.marginals[1 + n_levels :]
        )
        shares = np.maximum(-solved.ineqlin.marginals[:n_orders], 0)
        return _Master(float(solved.fun), shares, prices, float(held.sum()))


def _proximal(problem: Problem, highest: float, unit: float) -> tuple[Floats, Floats]:
    """Prices and exposures close to the optimum, by the proximal point method.

    Each step maximizes the value less a multiple of the squared distance of E and t to those of the step
    before. The dual of this problem is smooth, and L-BFGS minimizes it over the prices.
    """
    from scipy.optimize import minimize

    rows, e = problem.rows, problem.weights
    prices, E, t = np.zeros(len(rows.bound)), np.zeros(len(e)), np.minimum(rows.most, 1.0)
    for number, penalty in enumerate(_PENALTIES):
        options = {"maxiter": 300, "maxcor": 5, "ftol": 1e-15, "gtol": max(1e-4 * 0.1**number, 1e-9)}
        step = _Step(problem, E, t, penalty * unit / e[0], penalty * unit)
        limits = [(0, highest)] * len(prices)
        prices = minimize(step, prices, jac=True, method="L-BFGS-B", bounds=limits, options=options).x
        E, t = step.optimum(prices)
        violation = problem.used(E) + rows.level * t[rows.owner] - rows.bound
        gap = problem.bound(prices) - problem.relevance @ E
        if max(gap / unit, violation.max()) <= _CLOSE:
            break
    return prices, E


@dataclass(frozen=True, eq=False)
class _Step:
    """The dual of one proximal step from exposures E and levels t: value and gradient for given prices."""

    problem: Problem
    E: Floats
    t: Floats
    of_exposures: float
    of_levels: float

    def optimum(self, prices: Floats) -> tuple[Floats, Floats]:
        """E and t that maximize the Lagrangian less the penalties."""
        problem = self.problem
        z = self.E + (problem.relevance + problem.bonus(prices)) / self.of_exposures
        t = np.clip(self.t + problem.slopes(prices) / self.of_levels, 0, problem.rows.most)
        return _projection(z, problem.weights), t

    def __call__(self, prices: Floats) -> tuple[float, Floats]:
        problem, rows = self.problem, self.problem.rows
        E, t = self.optimum(prices)
        gradient = rows.bound - problem.used(E) - rows.level * t[rows.owner]
        distances = self.of_exposures * np.sum((E - self.E) ** 2) + self.of_levels * np.sum((t - self.t) ** 2)
        return float(problem.relevance @ E + prices @ gradient - distances / 2), gradient


def _projection(z: Floats, weights: Floats) -> Floats:
    """The point nearest to z among the mixtures of permutations of the weights (Blondel et al. 2020)."""
    from sklearn import config_context
    from sklearn.isotonic import isotonic_regression

    order = np.argsort(-z, kind="stable")
    nearest = np.empty_like(z)
    with config_context(assume_finite=True, skip_parameter_validation=True):  # checks take longer than sums
        nearest[order] = z[order] - isotonic_regression(z[order] - weights, increasing=False)
    return nearest


def _decomposed(exposures: Floats, weights: Floats, most: int) -> list[Positions]:
    """At most `most` rankings; if these are enough, the exposures are a mixture of them.

    Documents are in order of exposure. A prefix is tight if its exposures have the sum of its weights; tight
    prefixes divide the documents into blocks. One step takes away as much as possible of the ranking with
    every block reversed. What remains keeps its order, and one more prefix is tight.
    """
    by_exposure = np.argsort(-exposures, kind="stable")
    rest, sums = exposures[by_exposure], np.cumsum(weights)
    places, orders = np.arange(len(weights)), []
    while True:
        spare = sums - np.cumsum(rest)
        tight = spare <= _TIGHT
        tight[-1] = True
        last = np.flatnonzero(tight)
        first = np.append(0, last[:-1] + 1)
        reverse = np.repeat(first + last, last - first + 1) - places
        orders.append(by_exposure[reverse])
        change = np.cumsum(rest - weights[reverse])
        open_ends = np.flatnonzero(~tight & (change > _TIGHT))
        if not len(open_ends) or len(orders) == most:
            return orders
        step = (spare[open_ends] / change[open_ends]).min()
        rest = rest + step * (rest - weights[reverse])
