"""The fields that the records of all fits share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["FitRecord"]


@dataclass(frozen=True, eq=False)
class FitRecord:
    """Outcome of a fit.

    status     how it ended, as "finished" or "interrupted"; `message` says it in a sentence
    criterion  name of the criterion that chose the model; empty where nothing did
    validated_on  queries that chose: "21 validation queries", "cross-validation over 84 queries in 5 parts";
               empty where none did
    """

    messages: ClassVar[Mapping[str, str]]  # of a subclass: the sentence of each status

    status: str
    criterion: str
    validated_on: str

    @property
    def message(self) -> str:
        return self.messages[self.status]
