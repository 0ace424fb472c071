"""Settings and records of a linear fit: annealing, stages, and the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from sinkprop.common.types import Floats
from sinkprop.estimator.fit_record import FitRecord

__all__ = ["Annealing", "FitResult", "Stage"]


@dataclass(frozen=True)
class Annealing:
    """The values of sigma from `start` down to `stop`, each `factor` times the one before.

    They are in units of the spread of the regression's scores: their standard deviation within queries. The
    default starts so smooth that the expected gain is nearly a quadratic function, and ends near the
    metric itself.

    >>> Annealing(4, 0.5).sigmas
    (4.0, 2.0, 1.0, 0.5)
    >>> [round(s, 3) for s in Annealing.smoothrank().sigmas[:3]]
    [5.657, 4.0, 2.828]
    """

    start: float = 16.0
    stop: float = 0.125
    factor: float = 0.5

    def __post_init__(self) -> None:
        for name in ("start", "stop", "factor"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
                raise ValueError(f"Annealing: {name} must be a finite number above 0; got {value!r}.")
        if self.stop > self.start:
            raise ValueError(f"Annealing: stop must be at most start, {self.start!r}; got {self.stop!r}.")
        if self.factor >= 1:
            raise ValueError(f"Annealing: factor must be below 1; got {self.factor!r}.")

    @classmethod
    def smoothrank(cls) -> Annealing:
        """Chapelle and Wu's: their sigma, which stands where 2 sigma^2 does here, halved from 2^6 to 2^-6."""
        return cls(2**2.5, 2**-3.5, 2**-0.5)

    @property
    def sigmas(self) -> tuple[float, ...]:
        steps = math.floor(math.log(self.stop / self.start) / math.log(self.factor) + 1e-9)
        return tuple(self.start * self.factor**i for i in range(steps + 1))


@dataclass(frozen=True)
class Stage:
    """One stage of the optimization: a penalty, a sigma, and what came of it.

    penalty         inf for the regression itself
    sigma           in units of the spread of the regression's scores; None for a partitioned measure
    expected_gain   of the training queries, at this sigma
    criterion       mean over the queries that judge: those held out in turn, or the validation set's;
                    averaged with the neighboring stages' where the smoothest is taken
    standard_error  of the criterion's difference to the best stage's, over these queries
    evaluations     of the expected gain and its gradient, over all the fits of the stage
    seconds         they took
    chosen          whether the stage is the model
    training        the criterion of the training queries, which the stage was fitted to, alone; None for a
                    partitioned measure, whose assignments would take as long as the stage
    """

    penalty: float
    sigma: float | None
    expected_gain: float
    criterion: float
    standard_error: float = math.nan
    evaluations: int = 0
    seconds: float = 0.0
    chosen: bool = False
    training: float | None = None


@dataclass(frozen=True, eq=False)
class FitResult(FitRecord):
    """Outcome of a linear fit.

    status     "finished" or "interrupted"; `message` says it in a sentence
    criterion  name of the criterion
    validated_on  how: "cross-validation over 84 queries in 5 parts", ...
    weights    (D,), or (D + 1, 2) with an intercept row for a partitioned measure, of normalized features
    sigma      of the model, in the units of its scores; None for a partitioned measure
    stages     every stage, in the order of their running
    start      (D,) least-squares weights of normalized features, where the fit started; None if loaded
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every stage was run or stopped early by its criterion.",
        "interrupted": "The fit was interrupted; the model is the best of the stages that were finished.",
    }

    weights: Floats
    sigma: float | None
    stages: tuple[Stage, ...]
    start: Floats | None = None

    @property
    def evaluations(self) -> int:
        return sum(stage.evaluations for stage in self.stages)
