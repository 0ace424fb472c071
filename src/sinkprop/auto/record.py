"""Record of the fit of an AutoRanker: the members, their held-out criterion and their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sinkprop.estimator.fit_record import FitRecord

__all__ = ["AutoFit", "MemberRecord"]


@dataclass(frozen=True)
class MemberRecord:
    """Record of one member of an AutoRanker.

    Parameters
    ----------
    name : str
        Name of the member: "ridge", "linear", "trees" or "networks".
    n_fits : int
        Number of rankers that were fitted, each to other training queries; 0 if the member was left out.
    weight : float
        Weight of the member in the score of the model; 0 if it is not part of the model.
    criterion : float, default nan
        Mean criterion over the held-out queries; NaN if there are none.
    difference : float, default nan
        Mean difference in the criterion to the best member, over the same queries; 0 for the best member.
    standard_error : float, default nan
        Standard error of this difference, paired by query.
    seconds : float, default nan
        Time of the member's fits; NaN in a loaded model.
    note : str, default ""
        Reason why the member was left out or has fewer fits than others; empty if there is none.
    """

    name: str
    n_fits: int
    weight: float
    criterion: float = math.nan
    difference: float = math.nan
    standard_error: float = math.nan
    seconds: float = math.nan
    note: str = ""

    def __post_init__(self) -> None:
        # a record may come from a model file that someone changed
        numbers = (self.weight, self.criterion, self.difference, self.standard_error, self.seconds)
        if not isinstance(self.name, str) or not isinstance(self.note, str):
            raise ValueError("the name and the note of a member must be text")
        if type(self.n_fits) is not int or not all(isinstance(value, int | float) for value in numbers):
            raise ValueError(f"the record of the member {self.name!r} must hold numbers")


@dataclass(frozen=True, eq=False, repr=False)
class AutoFit(FitRecord):
    """Outcome of the fit of an AutoRanker. Printed, it is a table of the members.

    Parameters
    ----------
    status : {"finished", "out of time", "floor", "interrupted"}
        How the fit ended; `message` says it in a sentence.
    criterion : str
        Name of the criterion; empty if there was nothing to choose.
    validated_on : str
        Held-out queries, such as "5-fold cross-validation over 84 queries"; empty if there were none.
    members : tuple of MemberRecord
        Every member: those in the model, those that got no weight, and those that were left out.
    gain : float
        Cross-validated difference in the criterion between the combination and the best member.
    standard_error : float
        Standard error of this difference, paired by query.
    time_budget : float
        Time budget in seconds.
    seconds : float, default nan
        Time of the whole fit; NaN in a loaded model.
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every member was fitted.",
        "out of time": "The time budget ended before every fit was done; the model uses the finished ones.",
        "floor": "No member could be compared on held-out queries; the model is the simplest one.",
        "interrupted": "The fit was interrupted; the model uses the fits that were finished.",
    }

    members: tuple[MemberRecord, ...]
    gain: float
    standard_error: float
    time_budget: float
    seconds: float = math.nan

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the members that are part of the model, by name."""
        return {member.name: member.weight for member in self.members if member.weight > 0}

    @property
    def best(self) -> MemberRecord:
        """The member with the best criterion on the held-out queries."""
        used = [member for member in self.members if member.n_fits and not math.isnan(member.criterion)]
        return max(used or self.members, key=lambda member: (member.criterion, member.weight))

    def __repr__(self) -> str:
        return "\n".join([super().__repr__(), *(f"  {line}" for line in self._table())])

    @property
    def choice(self) -> str:
        if not self.weights:
            raise ValueError("no member has a weight above 0")
        if len(self.weights) == 1:
            return next(iter(self.weights))
        return " + ".join(f"{weight:.2f} {name}" for name, weight in self.weights.items())

    def _value(self) -> float:
        return self.best.criterion

    def _seconds(self) -> float:
        return self.seconds

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the printed table, one per member: texts by column."""
        found = []
        for member in self.members:
            versus = "best" if member.difference == 0 else ""
            if member.difference != 0 and not math.isnan(member.difference):
                versus = f"{member.difference:+.4f} +- {member.standard_error:.4f}"
            found.append(
                {
                    "member": member.name,
                    "weight": f"{member.weight:.2f}" if member.weight > 0 else "-",
                    "held out": "-" if math.isnan(member.criterion) else f"{member.criterion:.4f}",
                    "to the best": versus or "-",
                    "fits": str(member.n_fits),
                    "seconds": f"{member.seconds:.1f}" if member.seconds > 0 else "-",
                    "note": member.note,
                }
            )
        return found

    def _table(self) -> list[str]:
        rows = self.rows()
        names = list(rows[0])
        lines = [names, *([row[name] for name in names] for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
        return [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
