"""The choice among candidates: which queries validate them, by which criterion, and which one is taken."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from sinkprop.common.types import Floats, Integers

__all__ = [
    "Choice",
    "Selection",
    "as_selection",
    "choose",
    "mean_over_queries",
    "selection_from",
    "selection_record",
]


FEW_QUERIES = 500  # up to here "auto" cross-validates
_TOLERANCE = 0.5  # standard errors


@dataclass(frozen=True)
class Selection:
    """How a trainer chooses the penalty and the stage at which to stop.

    method    "cross-validation": the queries, those of a validation set among them, are cut into `n_splits`
              parts, and each part judges fits on the others. "validation": a validation set judges fits on
              the training queries; where none is given, `fraction` of the queries are held out for it.
              "auto": cross-validation of up to 500 queries, where a validation set would be too small to tell
              good from lucky, and validation of more.
    rule      "smoothest": each stage is values together with its neighbors in penalty and sigma, so that luck
              does not win, and of all stages within half a standard error of the best (that of their
              difference, over the judging queries) the smoothest is taken: the regression itself, then the
              widest sigma, then the largest penalty. "best": the single best, as in the paper. None:
              "smoothest" where queries are cross-validated, "best" where a validation set judges.
    criterion names of metrics whose mean judges, as "ndcg@10"; None takes NDCG@1 to NDCG@10 where the
              training gain is NDCG, which is less noisy than any one of them, and else, or where rows have
              weights, the training gain itself
    patience  stages without improvement after which a penalty's annealing stops early

    `docs/selection.md` has the experiments behind the defaults.
    """

    method: Literal["auto", "cross-validation", "validation"] = "auto"
    rule: Literal["smoothest", "best"] | None = None
    criterion: str | tuple[str, ...] | None = None
    n_splits: int = 5
    fraction: float = 0.2
    patience: int = 3

    def __post_init__(self) -> None:
        if self.method not in ("auto", "cross-validation", "validation"):
            raise ValueError(
                f"Selection: method must be 'auto', 'cross-validation' or 'validation'; got {self.method!r}."
            )
        if self.rule not in (None, "smoothest", "best"):
            raise ValueError(f"Selection: rule must be 'smoothest', 'best' or None; got {self.rule!r}.")
        for name, least in (("n_splits", 2), ("patience", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"Selection: {name} must be a whole number, at least {least}; got {value!r}."
                )
        if not isinstance(self.fraction, Real) or not 0 < self.fraction < 1:
            raise ValueError(f"Selection: fraction must be between 0 and 1; got {self.fraction!r}.")

    def cross_validates(self, n_queries: int) -> bool:
        """Whether this many queries are cross-validated."""
        return self.method == "cross-validation" or (self.method == "auto" and n_queries <= FEW_QUERIES)

    def takes_smoothest(self, n_queries: int) -> bool:
        """Whether the smoothest of the good is taken, rather than the best."""
        return self.rule == "smoothest" or (self.rule is None and self.cross_validates(n_queries))


def as_selection(selection: str | Selection) -> Selection:
    """The selection, which may be given as the name of its method."""
    if isinstance(selection, str):
        return Selection(selection)  # type: ignore[arg-type]
    if not isinstance(selection, Selection):
        raise ValueError(f"selection must be the name of a method or a Selection; got {selection!r}.")
    return selection


def selection_record(selection: str | Selection) -> str | dict[str, Any]:
    """The selection as plain data."""
    return asdict(selection) if isinstance(selection, Selection) else selection


def selection_from(record: str | dict[str, Any]) -> str | Selection:
    """The selection of a record."""
    if isinstance(record, str):
        return record
    criterion = record["criterion"]
    return Selection(
        **{**record, "criterion": tuple(criterion) if isinstance(criterion, list) else criterion}
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """A judgment of C candidates: the one taken, and the mean and the error of each.

    `errors` are those of the difference to the best, so 0 for the best itself.
    """

    taken: int
    means: Floats
    errors: Floats


def choose(values: Floats, positions: Integers, weight: Floats | None = None, *, smoothest: bool) -> Choice:
    """The candidate to take of those whose values (C, Q) on the judging queries are given, smoothest first.

    positions  (C, 2) where each candidate stands on the grid of penalties and sigmas
    weight     (Q,) weights of the queries
    smoothest  whether neighbors on the grid are averaged, 4 : 2 : 1 for the candidate, those beside it and
               those at its corners, and the first candidate is taken whose mean is within half a standard
               error of the best. The error is that of the mean of their difference, query by query, since
               queries differ far more than candidates do. False: the first of the best.

    >>> values = np.array([[0.2, 0.8, 0.5], [0.4, 0.6, 0.6], [0.0, 0.1, 0.1]])
    >>> apart = np.array([[0, 0], [0, 5], [5, 0]])
    >>> choose(values, apart, smoothest=True).taken, choose(values, apart, smoothest=False).taken
    (0, 1)
    """
    shares = _shares(values, weight)
    values, shares = values[:, shares > 0], shares[shares > 0]
    n = len(shares)
    if smoothest:
        apart = np.abs(positions[:, None] - positions[None])
        closeness = np.prod((2 - apart).clip(0), axis=2).astype(np.float64)
        values = closeness @ values / closeness.sum(axis=1, keepdims=True)
    means = (values * shares).sum(axis=1)
    best = int(np.argmax(means))
    away = values - values[best] - (means - means[best])[:, None]
    errors = np.sqrt(np.square(away * shares).sum(axis=1) * n / max(n - 1, 1))
    taken = int(np.argmax(means >= means[best] - _TOLERANCE * errors)) if smoothest else best
    return Choice(taken, means, errors)


def mean_over_queries(values: Floats, weight: Floats | None = None) -> Floats:
    """Means (...) of values (..., Q) over the queries, which count by their weights (Q,).

    A query whose value is NaN, as a metric is that leaves out queries without a relevant document, counts
    nothing.
    """
    shares = _shares(values, weight)
    mean: Floats = (values[..., shares > 0] * shares[shares > 0]).sum(axis=-1)
    return mean


def _shares(values: Floats, weight: Floats | None) -> Floats:
    """(Q,) what each query counts in a mean: 1 in all, or 0 where none counts."""
    counted = ~np.isnan(values).reshape(-1, values.shape[-1]).any(axis=0)
    shares = counted * (np.ones(values.shape[-1]) if weight is None else weight)
    total = shares.sum()
    return shares / total if total > 0 else np.zeros(len(shares))
