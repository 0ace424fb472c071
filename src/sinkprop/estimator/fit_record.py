"""The fields that the records of all fits share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

__all__ = ["FitRecord", "chosen_of", "settings_text", "timeless"]

C = TypeVar("C", bound=Any)


@dataclass(frozen=True, eq=False, repr=False)
class FitRecord(ABC):
    """Outcome of a fit. Printed, it is a summary of a few lines; the attributes have the details.

    A subclass must be declared with `repr=False`, or its repr would list every field.

    Parameters
    ----------
    status : str
        How the fit ended, such as "finished" or "interrupted".
    criterion : str
        Name of the criterion that selected the model; empty if there was nothing to select.
    validated_on : str
        Queries that selected the model, such as "21 validation queries" or "5-fold cross-validation over 84
        queries"; empty if none did.
    """

    messages: ClassVar[Mapping[str, str]]  # set by each subclass: one sentence per status

    status: str
    criterion: str
    validated_on: str

    def __post_init__(self) -> None:
        # a record may come from a model file that someone changed
        texts = (self.status, self.criterion, self.validated_on)
        if not all(isinstance(text, str) for text in texts) or self.status not in self.messages:
            raise ValueError(f"status must be one of {', '.join(self.messages)}, with texts beside it")
        repr(self)  # raises an error if the record does not say which model was chosen

    @property
    def message(self) -> str:
        """The status as a sentence."""
        return self.messages[self.status]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: {self.message}", f"chosen: {self.choice}"]
        if self.validated_on:
            lines.append(f"criterion: {self.criterion} {self._value():.4f}, on {self.validated_on}")
        if self._seconds() > 0:
            lines.append(f"time: {self._seconds():.1f} seconds")
        return "\n  ".join(lines)

    @property
    @abstractmethod
    def choice(self) -> str:
        """Description of the chosen model, and of how many models it was chosen from."""

    @abstractmethod
    def _value(self) -> float:
        """Criterion of the chosen model; called only if validation queries selected it."""

    def _seconds(self) -> float:
        """Wall-clock time of the fit; 0 if the record does not hold it."""
        return 0.0


def chosen_of(steps: Sequence[C]) -> C:
    """Return the stage, epoch or candidate that was chosen. Raises a ValueError unless there is one."""
    found = [step for step in steps if step.chosen is True]
    if len(found) != 1:
        raise ValueError(f"one of {len(steps)} must be the chosen one, not {len(found)}")
    return found[0]


def settings_text(settings: Mapping[str, object]) -> str:
    """Settings as text, such as "penalty 0.001, round 20"."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in settings.items()
    )


def timeless(record: Any) -> dict[str, Any]:
    """Return a record, such as a stage, as a dict for a model file: without the time that it took.

    The same fit takes another time in each run, but it must give the same file.
    """
    return {name: value for name, value in asdict(record).items() if name != "seconds"}
