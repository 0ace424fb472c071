"""Settings and records of a linear fit: annealing, stages, and the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from sinkprop.common.types import Floats
from sinkprop.estimator.fit_record import FitRecord, chosen_of, settings_text

__all__ = ["Annealing", "FitResult", "Stage"]


@dataclass(frozen=True)
class Annealing:
    """Values of sigma from `start` down to `stop`, each `factor` times the one before.

    Sigma is in units of the spread of the scores of the regression from which the fit starts, which is their
    standard deviation within queries. The default starts so smooth that the expected gain is nearly a
    quadratic function, and ends near the metric itself.

    Parameters
    ----------
    start : float, default 16.0
        First and largest sigma.
    stop : float, default 0.125
        Lower limit of sigma, at most `start`.
    factor : float, default 0.5
        Ratio of each sigma to the one before, below 1.

    Examples
    --------
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
        """Values of sigma that SmoothRank uses (Chapelle and Wu 2010).

        The parameter that their paper calls sigma is 2 sigma^2 here. It starts at 2^6 and is halved in every
        stage, down to 2^-6.

        Returns
        -------
        Annealing
            The values of sigma, from 2^2.5 down to 2^-3.5 by factors of 2^-0.5.
        """
        return cls(2**2.5, 2**-3.5, 2**-0.5)

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Values of sigma, in decreasing order."""
        steps = math.floor(math.log(self.stop / self.start) / math.log(self.factor) + 1e-9)
        return tuple(self.start * self.factor**i for i in range(steps + 1))


@dataclass(frozen=True)
class Stage:
    """Record of one stage of a fit: the optimization for one penalty and one sigma.

    Parameters
    ----------
    penalty : float
        Regularization strength; inf for the regression from which the fit starts.
    sigma : float or None
        Smoothing, in units of the standard deviation, within queries, of the scores of that regression; None
        for a partitioned measure.
    expected_gain : float
        Expected gain of the training queries, at this sigma.
    criterion : float
        Mean criterion over the validation queries: those of all folds, or of the validation set. In
        `FitResult.stages` it is averaged with the neighboring stages if the rule is "smoothest".
    standard_error : float, default nan
        Standard error of the difference between this criterion and the best stage's, over these queries.
    evaluations : int, default 0
        Number of evaluations of the expected gain and its gradient, including those for the folds of
        cross-validation. Where a stage starts, they may be known from the stage before, and count as well.
    seconds : float, default nan
        Wall-clock time of the stage; NaN in a model that was loaded from a file, which holds no times.
    chosen : bool, default False
        Whether the stage is the model or, if the model is an average of stages, has the largest share in it.
    training : float, optional
        Mean criterion of the training queries, to which the stage was fitted. It is not averaged with
        neighbors. None for a partitioned measure, since ranking the training queries by the Hungarian
        algorithm would take as long as the stage.
    share : float, default 0.0
        Share of the stage in the model; 1 if the stage alone is the model.
    """

    penalty: float
    sigma: float | None
    expected_gain: float
    criterion: float
    standard_error: float = math.nan
    evaluations: int = 0
    seconds: float = math.nan
    chosen: bool = False
    training: float | None = None
    share: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class FitResult(FitRecord):
    """Outcome of a linear fit.

    Parameters
    ----------
    status : {"finished", "interrupted"}
        How the fit ended; `message` says it in a sentence.
    criterion : str
        Name of the criterion that selected the model.
    validated_on : str
        Queries that selected the model, such as "5-fold cross-validation over 84 queries".
    weights : array of shape (D,) or (D + 1, 2)
        Weights of normalized features, of shape (D,). With a `PartitionedMeasure`, which has two outputs per
        document, one column per output and a last row of intercepts.
    sigma : float or None
        Smoothing width of the model, in units of its scores; None with a `PartitionedMeasure`.
    stages : tuple of Stage
        Every stage, in the order in which they were run.
    start : array of shape (D,), optional
        Least-squares weights of normalized features on the training queries; None in a model that was loaded
        from a file.
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
        """Number of evaluations of the expected gain and its gradient, over all stages."""
        return sum(stage.evaluations for stage in self.stages)

    @property
    def choice(self) -> str:
        stage = chosen_of(self.stages)
        settings = {"penalty": stage.penalty} | ({} if stage.sigma is None else {"sigma": stage.sigma})
        told = settings_text(settings) if math.isfinite(stage.penalty) else "the regression"
        if (count := sum(each.share > 0 for each in self.stages)) > 1:
            return f"average of {count} stages; the largest share, {stage.share:.0%}, has {told}"
        if not math.isfinite(stage.penalty):
            told += ", because no later stage was better"
        return f"{told}; one of {len(self.stages)} stages"

    def _value(self) -> float:
        return chosen_of(self.stages).criterion

    def _seconds(self) -> float:
        return math.fsum(stage.seconds for stage in self.stages)
