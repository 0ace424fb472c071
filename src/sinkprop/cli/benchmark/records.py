"""Records of a benchmark: budget, queries, methods, timings, figures and the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from sinkprop.common.types import Floats
from sinkprop.objective.gains import NDCG

SIGMA, N_ITER, EPSILON = 0.3, 5, 1e-6


GAIN = NDCG(discount="letor")


OURS = "sinkprop Gaussian"


EXACT = "sinkprop Gaussian exact"


LAPLACE = "sinkprop Laplace"


ARGSORT = "numpy.argsort"


AUTOGRAD = "torch autograd, dense"


NEURAL = "allRank NeuralNDCG"


APPROX = "allRank ApproxNDCG"


LAMBDA = "allRank lambdaLoss"


SOFT_RANK = "torchsort soft_rank"


Evaluation = Callable[[], object]


@dataclass(frozen=True)
class Budget:
    """Limits of one measurement.

    seconds   Time to spend on repeating an evaluation. The shortest time counts.
    most      Maximum number of repetitions.
    patience  Maximum seconds of a single evaluation. Methods that would take longer are skipped.
    """

    seconds: float
    most: int
    patience: float


FULL = Budget(seconds=0.3, most=2000, patience=3.0)


QUICK = Budget(seconds=0.06, most=400, patience=1.0)


ONCE = Budget(seconds=0.0, most=1, patience=math.inf)


@dataclass(frozen=True)
class Query:
    """One query of n documents.

    scores  (n,) scores, or (n, 2) for a `PartitionedMeasure`, which needs two parameters per document.
    labels  (n,) labels from 0 to 4.
    """

    scores: Floats
    labels: Floats

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class Method:
    """A method that computes a value and its gradient for one query.

    name        Name in tables.
    start       Function that prepares the arrays of a query and returns the evaluation to be timed.
    order       The time for n documents grows at most like n^order.
    pair_bytes  Peak memory in bytes divided by n^2, the number of pairs of documents.
    """

    name: str
    start: Callable[[Query], Evaluation]
    order: int = 1
    pair_bytes: float = 0.0


@dataclass(frozen=True)
class Absence:
    """A method that was not measured, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Timing:
    """Time of one evaluation of n documents by a method; if `seconds` is None, `reason` says why."""

    method: str
    n: int
    seconds: float | None
    reason: str = ""


@dataclass(frozen=True)
class Accuracy:
    """Relative differences between gradients of the same query, computed in three ways.

    The three ways are accuracy="fast", accuracy="exact", and the dense reference implementation. The relative
    difference of a to b is the largest absolute entry of a - b, divided by the largest absolute entry of b.

    n               Number of documents of the query.
    fast_to_exact   Difference of "fast" to "exact".
    fast_to_dense   Difference of "fast" to the dense reference; None if that would take too long.
    exact_to_dense  Difference of "exact" to the dense reference; None if that would take too long.
    """

    n: int
    fast_to_exact: float
    fast_to_dense: float | None
    exact_to_dense: float | None


@dataclass(frozen=True)
class Figure:
    """A performance target and its measured value.

    name       Name in tables.
    measured   Measured value; None if it could not be measured (see `note`).
    asked      Required value.
    direction  "at least" or "at most": whether `asked` is a lower or an upper limit.
    unit       Unit of `measured` and `asked`.
    note       Explanation, or the reason why the target was not measured.
    busy       Number of processors that other processes used during the measurement; None if unknown.
    """

    name: str
    measured: float | None
    asked: float
    direction: Literal["at least", "at most"]
    unit: str
    note: str = ""
    busy: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None if it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.asked if self.direction == "at least" else self.measured <= self.asked


@dataclass(frozen=True)
class Machine:
    """The machine on which the times were measured, and the versions of packages."""

    cpu: str
    processors: int
    instruction_set: str
    system: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """Results of one run. `busy` is the number of processors that other processes used during the run."""

    machine: Machine
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    timings: tuple[Timing, ...]
    accuracy: tuple[Accuracy, ...]
    figures: tuple[Figure, ...]
    absent: tuple[Absence, ...]
    failed: tuple[Absence, ...]
    busy: float | None

    def seconds(self, method: str, n: int) -> float | None:
        """The time of a method for n documents; None if it was not measured."""
        return next((t.seconds for t in self.timings if (t.method, t.n) == (method, n)), None)

    def slowdown(self, method: str, n: int) -> float | None:
        """The time of a method for n documents, divided by the time of sinkprop with the Gaussian kernel.

        None if one of the two times was not measured.
        """
        theirs, ours = self.seconds(method, n), self.seconds(OURS, n)
        return None if theirs is None or ours is None else theirs / ours


def as_record(report: Report) -> dict[str, Any]:
    """The report as plain data for JSON, with `reached` for each target and `slowdown` for each time."""
    record = asdict(report)
    record["figures"] = [asdict(f) | {"reached": f.reached} for f in report.figures]
    record["timings"] = [asdict(t) | {"slowdown": report.slowdown(t.method, t.n)} for t in report.timings]
    return record


def random_query(n: int, seed: int = 0) -> Query:
    """Return a random query: n normally distributed scores, and n integer labels from 0 to 4."""
    rng = np.random.default_rng(seed)
    return Query(rng.normal(size=n), rng.integers(0, 5, n).astype(np.float64))


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
