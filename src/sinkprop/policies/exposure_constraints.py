"""Constraints on the exposure of groups, and the linear inequalities that they stand for.

x_g is the share of group g in the exposure of all ranks. Every inequality has the form

    sign * x_g + level * t <= bound,

where t is a variable of the constraint: the mean exposure that all its groups have at least, as a multiple of
the mean exposure of all documents, or the exposure per merit that they have at least.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, final

import numpy as np

from sinkprop.common.arguments import number
from sinkprop.common.types import Floats, Integers, Mask

__all__ = [
    "Constraint",
    "ExposureGapAtMost",
    "Inequalities",
    "MaxExposure",
    "MinExposure",
    "ProportionalExposure",
    "QueryGroups",
    "inequalities",
]

_COLUMNS = ("group", "sign", "level", "bound", "owner")
_NAMED = 5  # largest number of groups that a message lists


@dataclass(frozen=True, eq=False)
class QueryGroups:
    """The groups of a query.

    names    the G groups
    sizes    (G,) number of documents
    merits   (G,) sum of the relevance of the documents
    total    exposure of all ranks
    n        number of documents
    """

    names: tuple[Hashable, ...]
    sizes: Floats
    merits: Floats
    total: float
    n: int

    @cached_property
    def codes(self) -> dict[Hashable, int]:
        return {name: code for code, name in enumerate(self.names)}


@dataclass(frozen=True, eq=False)
class Inequalities:
    """R inequalities sign * x[group] + level * t[owner] <= bound.

    owner    (R,) number of the constraint that each belongs to
    most     (C,) an upper bound of the variable t of each constraint
    """

    group: Integers
    sign: Floats
    level: Floats
    bound: Floats
    owner: Integers
    most: Floats

    def subset(self, kept: Mask | Integers) -> Inequalities:
        columns = {name: getattr(self, name)[kept] for name in _COLUMNS}
        return replace(self, **columns)


@dataclass(frozen=True)
class _Limits:
    """Base of the limits on the share of each group."""

    shares: float | Mapping[Hashable, float]

    def __post_init__(self) -> None:
        given = self.shares if isinstance(self.shares, Mapping) else {None: self.shares}
        checked = {group: self._share(group, share) for group, share in given.items()}
        object.__setattr__(self, "shares", checked if isinstance(self.shares, Mapping) else checked[None])

    def _share(self, group: Hashable, share: float) -> float:
        owner = type(self).__name__
        what = f"{owner}: the share" + ("" if group is None else f" of group {group!r}")
        if number(what, share) > 1:
            raise ValueError(f"{what} must be at most 1, which is all of the exposure; got {share!r}.")
        return float(share)

    def _by_code(self, groups: QueryGroups) -> tuple[Integers, Floats]:
        """Return the numbers of the groups with a limit, and the limits."""
        if not isinstance(self.shares, Mapping):
            return np.arange(len(groups.names)), np.full(len(groups.names), self.shares)
        unknown = [name for name in self.shares if name not in groups.codes]
        if unknown:
            raise ValueError(
                f"constraint: {type(self).__name__} names {_named(unknown)}, but groups has "
                f"{_named(groups.names)}. Leave groups without documents out."
            )
        codes = np.array([groups.codes[name] for name in self.shares], dtype=np.int64)
        return codes, np.array(list(self.shares.values()), dtype=np.float64)


@final
@dataclass(frozen=True)
class MinExposure(_Limits):
    """A minimum share of the exposure for groups.

    Parameters
    ----------
    shares : mapping of group to float, or float
        Smallest share of the exposure of all ranks that the documents of a group have together, from 0 to 1.
        A number is the minimum of every group.

    Examples
    --------
    >>> MinExposure({"local": 0.3})
    MinExposure(shares={'local': 0.3})
    """

    def _rows(self, groups: QueryGroups) -> tuple[Inequalities, float]:
        codes, shares = self._by_code(groups)
        return _rows(codes, -1.0, 0.0, -shares), 0.0


@final
@dataclass(frozen=True)
class MaxExposure(_Limits):
    """A maximum share of the exposure for groups, such as suppliers.

    Parameters
    ----------
    shares : mapping of group to float, or float
        Largest share of the exposure of all ranks that the documents of a group have together, from 0 to 1.
        A number is the maximum of every group.

    Examples
    --------
    >>> MaxExposure(0.2)
    MaxExposure(shares=0.2)
    """

    def _rows(self, groups: QueryGroups) -> tuple[Inequalities, float]:
        codes, shares = self._by_code(groups)
        return _rows(codes, 1.0, 0.0, shares), 0.0


@final
@dataclass(frozen=True)
class ExposureGapAtMost:
    """A largest difference between the mean exposures of any two groups.

    Parameters
    ----------
    gap : float, default 0
        Largest difference. The mean exposure of a group is the sum of the exposures of its documents divided
        by their number; rank 1 has the exposure 1 by default.

    Examples
    --------
    >>> ExposureGapAtMost(0.05)
    ExposureGapAtMost(gap=0.05)
    """

    gap: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", number("ExposureGapAtMost: gap", self.gap))

    def _rows(self, groups: QueryGroups) -> tuple[Inequalities, float]:
        parts, every = groups.sizes / groups.n, np.arange(len(groups.names))
        least = _rows(every, -1.0, parts, 0.0)
        most = _rows(every, 1.0, -parts, self.gap * groups.sizes / groups.total)
        return _joined([least, most]), _highest(parts)


@final
@dataclass(frozen=True)
class ProportionalExposure:
    """Mean exposures in proportion to the mean relevance of the groups (Singh and Joachims 2018).

    The exposure of a group per relevance, which is the sum of the exposures of its documents divided by the
    sum of their relevance, is at most 1 + tolerance times that of any other group. A group without relevance
    is left out.

    Parameters
    ----------
    tolerance : float, default 0
        Largest relative difference.

    Examples
    --------
    >>> ProportionalExposure(tolerance=0.1)
    ProportionalExposure(tolerance=0.1)
    """

    tolerance: float = 0.0

    def __post_init__(self) -> None:
        tolerance = number("ProportionalExposure: tolerance", self.tolerance)
        object.__setattr__(self, "tolerance", tolerance)

    def _rows(self, groups: QueryGroups) -> tuple[Inequalities, float]:
        with_merit = np.flatnonzero(groups.merits > 0)
        merits = groups.merits[with_merit]
        parts = merits / max(merits.sum(), np.finfo(float).tiny)
        least = _rows(with_merit, -1.0, parts, 0.0)
        most = _rows(with_merit, 1.0, -(1 + self.tolerance) * parts, 0.0)
        return _joined([least, most]), _highest(parts)


Constraint: TypeAlias = MinExposure | MaxExposure | ExposureGapAtMost | ProportionalExposure


def inequalities(constraints: Sequence[Constraint], groups: QueryGroups) -> Inequalities:
    """The inequalities of all constraints, in their order."""
    found = [constraint._rows(groups) for constraint in constraints]
    owner = np.repeat(np.arange(len(found)), [len(rows.group) for rows, _ in found])
    joined = _joined([rows for rows, _ in found])
    most = np.array([most for _, most in found])
    return Inequalities(joined.group, joined.sign, joined.level, joined.bound, owner, most)


def _named(names: Sequence[Hashable]) -> str:
    """The first of these groups in words."""
    listed = ", ".join(map(repr, names[:_NAMED]))
    more = f", ... ({len(names)} in all)" if len(names) > _NAMED else ""
    return f"group{'s' if len(names) > 1 else ''} {listed}{more}"


def _highest(parts: Floats) -> float:
    """Return a bound of the largest t with t * parts[g] <= x[g] for all groups: no share is above 1."""
    largest = float(parts.max(initial=0.0))
    return 1 / largest if largest > 0 else 0.0


def _rows(group: Integers, sign: float, level: Floats | float, bound: Floats | float) -> Inequalities:
    def column(x: Floats | float) -> Floats:
        return np.broadcast_to(np.asarray(x, dtype=np.float64), group.shape)

    owner = np.zeros(len(group), dtype=np.int64)
    return Inequalities(group, column(sign), column(level), column(bound), owner, np.zeros(1))


def _joined(parts: Sequence[Inequalities]) -> Inequalities:
    columns = {name: np.concatenate([getattr(x, name) for x in parts]) for name in _COLUMNS}
    return Inequalities(**columns, most=np.zeros(1))
