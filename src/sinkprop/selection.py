"""The choice among candidates: which queries judge them, by what, and what is made of the judgment."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Choice", "Selection", "choose"]

Floats = NDArray[np.float64]

FEW_QUERIES = 500  # up to here "auto" cross-validates


@dataclass(frozen=True)
class Selection:
    """How a trainer chooses the penalty and the stage at which to stop.

    method    "cross-validation": the queries, those of a validation set among them, are cut into `n_splits`
              parts, and each part judges fits on the others. "validation": a validation set judges fits on
              the training queries; where none is given, `fraction` of the queries are held out for it.
              "auto": cross-validation of up to 500 queries, where a validation set would be too small to tell
              good from lucky, and validation of more.
    average   True: the values of a stage are first averaged with those of its neighbors in penalty and sigma,
              so that luck does not win, and the model is the mean of all candidates within half a standard
              error of the best: the error of their difference over the judging queries. False: the best
              alone, as in the paper.
    criterion names of metrics whose mean judges, as "ndcg@10"; None takes NDCG@1 to NDCG@10 where the
              training gain is NDCG, which is less noisy than any one of them, and else, or where rows have
              weights, the training gain itself
    patience  stages without improvement after which a penalty's annealing stops early

    `docs/selection.md` has the experiments behind the defaults.
    """

    method: Literal["auto", "cross-validation", "validation"] = "auto"
    average: bool = True
    criterion: str | tuple[str, ...] | None = None
    n_splits: int = 5
    fraction: float = 0.2
    patience: int = 3

    def __post_init__(self) -> None:
        if self.method not in ("auto", "cross-validation", "validation"):
            raise ValueError(
                f"Selection: method must be 'auto', 'cross-validation' or 'validation'; got {self.method!r}."
            )
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


@dataclass(frozen=True, eq=False)
class Choice:
    """A judgment of C candidates: the best one's index, and the mean, error and choice of each.

    `errors` are those of the difference to the best, so 0 for the best itself.
    """

    best: int
    means: Floats
    errors: Floats
    chosen: NDArray[np.bool_]


def choose(
    judged: Floats, positions: NDArray[np.int64], weight: Floats | None = None, *, average: bool
) -> Choice:
    """The best of the candidates whose values (C, Q) on the judging queries are given, and those like it.

    positions  (C, 2) where each candidate stands on the grid of penalties and sigmas
    weight     (Q,) weights of the queries
    average    whether neighbors on the grid are averaged, 4 : 2 : 1 for the candidate, those beside it and
               those at its corners, and whether all those are chosen whose mean is within half a standard
               error of the best one's. The error is that of the mean of their difference, query by query,
               since queries differ far more than candidates do.

    The first of equals is the best, so candidates come in the order of preference.

    >>> judged = np.array([[0.2, 0.8], [0.3, 0.8], [0.0, 0.1]])
    >>> choose(judged, np.array([[0, 0], [0, 5], [5, 0]]), average=True).chosen
    array([False,  True, False])
    """
    n = judged.shape[1]
    shares = np.full(n, 1 / n) if weight is None else weight / weight.sum()
    if average:
        apart = np.abs(positions[:, None] - positions[None])
        closeness = np.prod((2 - apart).clip(0), axis=2).astype(np.float64)
        judged = closeness @ judged / closeness.sum(axis=1, keepdims=True)
    means = judged @ shares
    best = int(np.argmax(means))
    away = judged - judged[best] - (means - means[best])[:, None]
    errors = np.sqrt(np.square(away * shares).sum(axis=1) * n / max(n - 1, 1))
    chosen = means >= means[best] - errors / 2 if average else np.arange(len(judged)) == best
    return Choice(best, means, errors, chosen)
