"""The message for exposure constraints that no policy satisfies: constraints that contradict each other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from sinkprop.common.types import Integers
from sinkprop.policies.exposure_constraints import (
    Constraint,
    ExposureGapAtMost,
    Inequalities,
    ProportionalExposure,
)
from sinkprop.policies.exposure_search import Problem, violated

__all__ = ["conflict"]

_NAMED = 6  # largest number of inequalities that a message lists
_TRIED = 30  # largest number of inequalities of which a smaller contradiction is sought


def conflict(problem: Problem, constraints: Sequence[Constraint], names: Sequence[Hashable]) -> str:
    """A message that names constraints of an infeasible problem that contradict each other."""
    kept = _contradiction(problem)
    rows = problem.rows.subset(kept)
    listed = _listed(rows, constraints, names)
    more = f", ... ({len(listed)} in all)" if len(listed) > _NAMED else ""
    wanted = " and ".join(listed[:_NAMED])
    return f"constraint: no policy has {wanted}{more}{_arithmetic(problem, rows)}. Relax one of them."


def _contradiction(problem: Problem) -> Integers:
    """Numbers of inequalities that cannot hold together; if they are few, none of them can be left out."""
    prices = violated(problem)
    assert prices is not None
    kept = np.flatnonzero(prices > 1e-7 * prices.max())
    if violated(problem.only(kept)) is None:  # the small prices were needed, after all
        kept = np.arange(len(prices))
    for row in kept if len(kept) <= _TRIED else ():
        fewer = kept[kept != row]
        if len(fewer) and violated(problem.only(fewer)) is not None:
            kept = fewer
    return kept


def _listed(rows: Inequalities, constraints: Sequence[Constraint], names: Sequence[Hashable]) -> list[str]:
    """The inequalities in words; those of a constraint on all groups make one entry."""
    words: dict[str, None] = {}
    for owner, group, sign, bound in zip(rows.owner, rows.group, rows.sign, rows.bound, strict=True):
        constraint, name = constraints[owner], names[group]
        if isinstance(constraint, ExposureGapAtMost):
            text = f"mean exposures of the groups that differ by at most {constraint.gap:g}"
        elif isinstance(constraint, ProportionalExposure):
            text = f"exposures proportional to relevance within {constraint.tolerance:g}"
        else:
            text = f"at {'most' if sign > 0 else 'least'} {abs(bound):g} of the exposure for group {name!r}"
        words[text] = None
    return list(words)


def _arithmetic(problem: Problem, rows: Inequalities) -> str:
    """Sentence with the sum of minima alone, or maxima alone, and with what their groups can have."""
    shared = np.asarray(problem.members[rows.group].sum(axis=0))
    if rows.level.any() or len(set(rows.sign)) > 1 or shared.max() > 1:
        return ""
    n, total = int(shared.sum()), abs(rows.bound.sum())
    if rows.sign[0] > 0:
        least = problem.weights[len(problem.weights) - n :].sum()
        return f". Their documents have at least {least:.4g} of the exposure in any ranking, not {total:.4g}"
    most = problem.weights[:n].sum()
    return f". Their documents can have at most {most:.4g} of the exposure, not {total:.4g}"
