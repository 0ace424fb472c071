"""The clock of a time budget, which also stops a fit that takes longer than it was expected to."""

from __future__ import annotations

import math
import time
from typing import Any

__all__ = ["Clock", "OutOfTimeError"]


class OutOfTimeError(RuntimeError):
    """The time budget ended during the fit of a member."""


class Clock:
    """A time budget in seconds of wall time, which runs from the moment the clock is made.

    budget   Seconds.
    reserve  Seconds at the end of the budget that no fit may use; they are for the choice of the model.
    n_cut    Number of fits that were cut short, with a model from the part that was done.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.reserve = 0.0
        self.n_cut = 0
        self._began = time.monotonic()
        self._share = math.inf

    @property
    def seconds(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left for fits; below 0 if the budget has ended."""
        return self.budget - self.reserve - self.seconds

    def share(self, seconds: float) -> None:
        """Let the fit that begins now take this many seconds at most."""
        self._share = self.seconds + seconds

    def check(self, *_: Any) -> None:
        """Raise an `OutOfTimeError` if no time is left. Rankers call this after each stage, tree or epoch."""
        if self.left < 0:
            raise OutOfTimeError(f"the time budget of {self.budget:g} seconds had ended")
        if self.seconds > self._share:
            raise OutOfTimeError("it had used its share of the time budget")
