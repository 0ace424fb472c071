"""The fields that the records of all fits share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["FitRecord"]


@dataclass(frozen=True, eq=False)
class FitRecord:
    """Outcome of a fit.

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

    @property
    def message(self) -> str:
        """The status as a sentence."""
        return self.messages[self.status]
