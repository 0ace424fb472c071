"""Rankings under exposure constraints: the stochastic ranking policy with the largest expected NDCG.

>>> policy = exposure_policy([0.9, 0.1, 0.7], ["a", "a", "b"], ExposureGapAtMost(0))
>>> policy.exposure.round(3)
array([0.921, 0.5  , 0.71 ])
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import one_of, whole
from sinkprop.common.types import Floats
from sinkprop.objective.gains.rows import exposure_weights
from sinkprop.policies.exposure_conflicts import conflict
from sinkprop.policies.exposure_constraints import (
    Constraint,
    ExposureGapAtMost,
    Inequalities,
    MaxExposure,
    MinExposure,
    ProportionalExposure,
    QueryGroups,
    inequalities,
)
from sinkprop.policies.exposure_search import Problem, optimum
from sinkprop.policies.mixture import RankingMixture

__all__ = [
    "ExposureGapAtMost",
    "ExposurePolicy",
    "MaxExposure",
    "MinExposure",
    "ProportionalExposure",
    "exposure_policy",
]

Discount = Literal["log2", "reciprocal"]


@dataclass(frozen=True, eq=False)
class ExposurePolicy:
    """Result of `exposure_policy`: a stochastic ranking policy, and the proof that there is no better one.

    Attributes
    ----------
    mixture : RankingMixture
        Rankings and their probabilities: at most one ranking more than there are inequalities.
    exposure : array of shape (N,)
        Expected exposure of each document.
    value : float
        Expected NDCG with respect to the given relevance: expected DCG divided by that of a ranking by
        decreasing relevance; 1 if all relevance is 0.
    bound : float
        Upper bound of the value of every policy that satisfies the constraints, from the duals.
        ``bound - value`` is 0 up to rounding.
    duals : tuple of dict
        One dictionary per constraint, with the bonus of each group: what the constraint adds to the relevance
        of the documents of the group, positive for a group that is raised and negative for one that is held
        down. Every ranking of the mixture sorts the documents by relevance plus bonuses.
    """

    mixture: RankingMixture
    exposure: Floats
    value: float
    bound: float
    duals: tuple[dict[Hashable, float], ...]

    def matrix(self) -> Floats:
        """Probability of each document at each rank.

        Returns
        -------
        array of shape (N, K)
            Doubly stochastic if K, the number of ranks that are shown, is N.
        """
        return self.mixture.matrix()


def exposure_policy(
    relevance: ArrayLike,
    groups: Sequence[Hashable] | ArrayLike,
    constraint: Constraint | Sequence[Constraint],
    *,
    discount: Discount | ArrayLike = "log2",
    k: int | None = None,
) -> ExposurePolicy:
    """Stochastic ranking policy with the largest expected DCG under constraints on the exposure of groups.

    A policy is a distribution over the rankings of one query. The exposure of a document is the expected
    weight of its position. The result is exact: the optimum over all doubly-stochastic matrices of rank
    probabilities, in time N log N and memory linear in N per step.

    Parameters
    ----------
    relevance : array of shape (N,)
        Relevance of each document of the query: predicted gains or probabilities of relevance, at least 0.
    groups : sequence of hashable of length N, or array of bool of shape (N, G)
        Group of each document, such as a supplier. An array of bool says which documents belong to which
        group, so that groups can overlap; the groups are then named 0, ..., G - 1.
    constraint : MinExposure, MaxExposure, ExposureGapAtMost or ProportionalExposure, or a sequence of them
        Constraints on the exposure of the groups. All of them hold.
    discount : {"log2", "reciprocal"} or array of shape (K,), default "log2"
        Weight of each position, in the DCG and in exposures: 1/log2(rank + 1), 1/rank, or numbers of your
        own, at least 0, in any order. Positions after the last number are not shown.
    k : int, optional
        Number of positions that are shown. By default all are.

    Returns
    -------
    ExposurePolicy
        The policy, its exposures and its value.

    Raises
    ------
    ValueError
        If no policy satisfies the constraints. The message names constraints that contradict each other.

    Examples
    --------
    >>> policy = exposure_policy([0.9, 0.8, 0.7, 0.3], ["a", "a", "b", "b"], MinExposure({"b": 0.4}))
    >>> policy.mixture.rankings
    array([[0, 1, 2, 3],
           [0, 2, 1, 3]])
    >>> policy.mixture.weights.round(3)
    array([0.282, 0.718])
    >>> round(policy.value, 4)
    0.995
    """
    r = _relevance(relevance)
    members, names = _members(groups, len(r))
    constraints = _constraints(constraint)
    weights = _position_weights(discount, k, len(r))
    positions = np.argsort(-weights, kind="stable")  # from the one with the largest weight
    e = np.zeros(len(r))
    e[: len(weights)] = weights[positions]
    ideal = float(np.sort(r)[::-1] @ e)
    unit = ideal / e.sum()  # relevance in this unit makes the largest value 1
    facts = QueryGroups(names, members @ np.ones(len(r)), members @ r, float(e.sum()), len(r))
    scaled = r / unit if unit > 0 else r
    problem = Problem(scaled, e / e.sum(), len(weights), members, inequalities(constraints, facts))
    found = optimum(problem)
    if found is None:
        raise ValueError(conflict(problem, constraints, names))

    rankings = np.empty_like(found.orders)
    rankings[:, positions] = found.orders
    mixture = RankingMixture(found.shares, rankings, len(r))
    exposure = _exposure(mixture, weights)
    duals = _duals(problem.rows, found.prices * unit, constraints, names)
    if ideal == 0:
        return ExposurePolicy(mixture, exposure, 1.0, 1.0, duals)
    return ExposurePolicy(mixture, exposure, float(r @ exposure) / ideal, found.bound, duals)


def _relevance(relevance: ArrayLike) -> Floats:
    r = np.asarray(relevance, dtype=np.float64)
    if r.ndim != 1 or not len(r):
        raise ValueError(
            f"relevance must have one number per document of one query, shape (N,); got shape {r.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(r) & (r >= 0)))
    if len(bad):
        raise ValueError(
            f"relevance must be finite and at least 0; got relevance[{bad[0]}] = {r[bad[0]]}. Pass predicted "
            "gains or probabilities of relevance: scores of a ranker need such a transformation first."
        )
    return r


def _members(groups: Sequence[Hashable] | ArrayLike, n: int) -> tuple[Any, tuple[Hashable, ...]]:
    """The groups as a sparse matrix (G, N), and their names."""
    from scipy import sparse

    if isinstance(groups, np.ndarray) and groups.ndim == 2 and groups.dtype == np.bool_:
        _one_per_document(len(groups), n)
        return sparse.csr_array(groups.T, dtype=np.float64), tuple(range(groups.shape[1]))
    if isinstance(groups, np.ndarray) and groups.ndim != 1:
        raise ValueError(
            "groups must be a sequence with the group of each document, or an array of bool of shape (N, G); "
            f"got an array of {groups.dtype} of shape {groups.shape}."
        )
    given: list[Any] = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)  # type: ignore[arg-type]
    _one_per_document(len(given), n)
    codes: dict[Hashable, int] = {}
    try:
        of_document = [codes.setdefault(group, len(codes)) for group in given]
    except TypeError:
        raise ValueError(
            "groups must be hashable, such as numbers or text; got a list or the like."
        ) from None
    missing = next(
        (j for j, group in enumerate(given) if isinstance(group, float) and math.isnan(group)), None
    )
    if missing is not None:
        raise ValueError(f"groups[{missing}] is {given[missing]!r}, not a group; give missing ones a name.")
    members = sparse.csr_array((np.ones(n), (of_document, np.arange(n))), shape=(len(codes), n))
    return members, tuple(codes)


def _one_per_document(length: int, n: int) -> None:
    if length != n:
        raise ValueError(f"groups must have one entry per document, {n} as relevance has; got {length}.")


def _constraints(constraint: Constraint | Sequence[Constraint]) -> tuple[Constraint, ...]:
    given = (constraint,) if isinstance(constraint, get_args(Constraint)) else constraint
    kinds = ", ".join(kind.__name__ for kind in get_args(Constraint))
    if not isinstance(given, (list, tuple)) or not given:
        raise ValueError(f"constraint must be one of {kinds}, or a list of them; got {constraint!r}.")
    for one in given:
        if not isinstance(one, get_args(Constraint)):
            raise ValueError(f"constraint: a list must have {kinds} only; got {one!r}.")
    return tuple(given)


def _position_weights(discount: Discount | ArrayLike, k: int | None, n: int) -> Floats:
    """Weights (K,) of the positions that are shown."""
    shown = n if k is None else min(whole("k", k, 1), n)
    if isinstance(discount, str):
        one_of("discount", discount, get_args(Discount))
        return exposure_weights(discount, None, n)[0, :shown]  # type: ignore[arg-type]
    weights = np.asarray(discount, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            "discount must be 'log2', 'reciprocal' or finite numbers not below 0, one per position; "
            f"got {discount!r}."
        )
    if not weights[:shown].sum() > 0:
        raise ValueError("discount must have a weight above 0 among the positions that are shown.")
    return weights[:shown]


def _exposure(mixture: RankingMixture, weights: Floats) -> Floats:
    """Expected weights (N,) of the positions of the documents."""
    given = mixture.weights[:, None] * weights
    cells = mixture.rankings.ravel()
    return np.bincount(cells, given.ravel(), mixture.n_documents).astype(np.float64)


def _duals(
    rows: Inequalities, prices: Floats, constraints: tuple[Constraint, ...], names: tuple[Hashable, ...]
) -> tuple[dict[Hashable, float], ...]:
    """The bonus of each group that a constraint limits."""
    found: tuple[dict[Hashable, float], ...] = tuple({} for _ in constraints)
    for owner, group, bonus in zip(rows.owner, rows.group, -rows.sign * prices, strict=True):
        name = names[group]
        found[owner][name] = found[owner].get(name, 0.0) + float(bonus)
    return found
