"""Selection of a model among candidates: the validation queries, the criterion, and the rule."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from sinkprop.common.types import Floats, Integers

__all__ = [
    "Choice",
    "Selection",
    "as_selection",
    "average",
    "choose",
    "mean_over_queries",
    "selection_from",
    "selection_record",
]


FEW_QUERIES = 500  # largest number of queries that "auto" cross-validates
# With the rule "average", "auto" validates on fold after fold until this many queries have validated.
_ENOUGH_QUERIES = 1000
# The rule "smoothest" accepts a candidate that is at most this many standard errors worse than the best one.
_TOLERANCE = 0.5
_LEAST_SHARE = 1e-3  # candidates with a smaller share are left out of the average


@dataclass(frozen=True)
class Selection:
    """Settings for choosing one of the candidates that a fit trains.

    A candidate is a model trained with one setting of the hyperparameters, such as a penalty and a stage of
    the annealing, or a number of trees.

    Parameters
    ----------
    method : {"auto", "cross-validation", "validation"}, default "auto"
        Queries that validate the candidates. "cross-validation" divides the queries, including those of a
        validation set, into `n_splits` folds, and each fold validates the models trained on the other folds.
        "validation" uses the validation set; if none is given, it holds out `fraction` of the queries. "auto"
        cross-validates up to 500 queries, because a validation set taken from so few is too small to tell a
        good candidate from a lucky one, and uses "validation" for more. With the rule "average", it validates
        on one fold after another until 1,000 queries have validated: on all folds up to 1,000 queries, on
        fewer and fewer above, and from 10,000 queries on a validation set only.
    rule : {"average", "smoothest", "best"}, optional
        Model to take. "average", for linear rankers only, takes the mean of all candidates' weights. A
        candidate's share in it is exp(-z^2), divided by the sum over the candidates, where z is the number of
        standard errors by which its criterion is below the best. With cross-validation, the weights of a
        candidate are the mean over the folds' models, so every query trains. "best" takes the candidate with
        the best mean criterion, as in the paper. "smoothest"
        first averages each candidate's criterion with those of its neighbors in penalty and sigma, which
        reduces the effect of chance. Among the candidates that are at most half a standard error worse than
        the best one, it then takes the smoothest. The least-squares regression is the smoothest candidate. Of
        the others, the one with the larger sigma is smoother or, if their sigmas are equal, the one with the
        larger penalty. The standard error is that of the mean difference, over the validation queries,
        between a candidate and the best one. None means "average" for `SinkPropRanker`. For other rankers it
        means "smoothest" with cross-validation and "best" with a validation set.
    criterion : str or tuple of str, optional
        Names of the metrics whose mean is the criterion, such as "ndcg@10". None means NDCG@1 to NDCG@10 if
        the training gain is NDCG, since their mean is less noisy than any one of them. For other gains, and
        if rows have weights, None means the training gain itself.
    n_splits : int, optional
        Number of folds of cross-validation. None means 10 with the rule "average", and 5 with the others.
    fraction : float, default 0.2
        Fraction of the queries to hold out with "validation" if there is no validation set.
    patience : int, default 3
        Number of stages (values of sigma) without improvement of the criterion after which the annealing of a
        penalty stops early. Rankers without annealing do not use it.

    Notes
    -----
    `docs/selection.md` has the experiments behind the defaults.

    Examples
    --------
    >>> Selection(method="cross-validation").folds(average=False)
    5
    """

    method: Literal["auto", "cross-validation", "validation"] = "auto"
    rule: Literal["average", "smoothest", "best"] | None = None
    criterion: str | tuple[str, ...] | None = None
    n_splits: int | None = None
    fraction: float = 0.2
    patience: int = 3

    def __post_init__(self) -> None:
        if self.method not in ("auto", "cross-validation", "validation"):
            raise ValueError(
                f"Selection: method must be 'auto', 'cross-validation' or 'validation'; got {self.method!r}."
            )
        if self.rule not in (None, "average", "smoothest", "best"):
            raise ValueError(
                f"Selection: rule must be 'average', 'smoothest', 'best' or None; got {self.rule!r}."
            )
        for name, least in (("n_splits", 2), ("patience", 1)):
            value = getattr(self, name)
            if name == "n_splits" and value is None:
                continue
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"Selection: {name} must be a whole number, at least {least}; got {value!r}."
                )
        if not isinstance(self.fraction, Real) or not 0 < self.fraction < 1:
            raise ValueError(f"Selection: fraction must be between 0 and 1; got {self.fraction!r}.")

    def cross_validates(self, n_queries: int) -> bool:
        """Whether this many queries are cross-validated.

        Parameters
        ----------
        n_queries : int
            Number of queries, including those of a validation set.

        Returns
        -------
        bool
            True for cross-validation, False for a validation set or held-out queries.
        """
        return self.method == "cross-validation" or (self.method == "auto" and n_queries <= FEW_QUERIES)

    def folds(self, *, average: bool) -> int:
        """Number of folds into which cross-validation divides the queries.

        Parameters
        ----------
        average : bool
            Whether the rule is "average".

        Returns
        -------
        int
            `n_splits`, or its default.
        """
        if self.n_splits is not None:
            return self.n_splits
        return 10 if average else 5

    def validating_folds(self, n_queries: int) -> int:
        """Number of folds that validate under the rule "average".

        Parameters
        ----------
        n_queries : int
            Number of queries, including those of a validation set.

        Returns
        -------
        int
            From 1, for a validation set or held-out queries only, to all folds.
        """
        folds = min(self.folds(average=True), n_queries)
        if self.method == "auto":
            folds = min(folds, math.ceil(folds * _ENOUGH_QUERIES / n_queries))
        return 1 if self.method == "validation" else folds

    def takes_smoothest(self, n_queries: int) -> bool:
        """Whether the rule is "smoothest" for this many queries.

        Parameters
        ----------
        n_queries : int
            Number of queries, including those of a validation set.

        Returns
        -------
        bool
            True for the rule "smoothest", False for "best".
        """
        return self.rule == "smoothest" or (self.rule is None and self.cross_validates(n_queries))


def as_selection(selection: str | Selection) -> Selection:
    """Return a `Selection`; the name of a method becomes a `Selection` with that method."""
    if isinstance(selection, str):
        return Selection(selection)  # type: ignore[arg-type]
    if not isinstance(selection, Selection):
        raise ValueError(f"selection must be the name of a method or a Selection; got {selection!r}.")
    return selection


def selection_record(selection: str | Selection) -> str | dict[str, Any]:
    """Return the selection as a model file can hold it: the name of a method, or a dict of all settings."""
    return asdict(selection) if isinstance(selection, Selection) else selection


def selection_from(record: str | dict[str, Any]) -> str | Selection:
    """Return the selection from its record, which `selection_record` made."""
    if isinstance(record, str):
        return record
    criterion = record["criterion"]
    return Selection(
        **{**record, "criterion": tuple(criterion) if isinstance(criterion, list) else criterion}
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """Result of a choice among C candidates.

    taken   Index of the chosen candidate; under the rule "average", of the one with the largest share.
    means   (C,) mean criterion of each candidate, averaged with its neighbors under the rule "smoothest".
    errors  (C,) standard error of the difference between the candidate's mean and the best candidate's mean;
            0 for the best candidate.
    shares  (C,) share of each candidate in the model; they sum to 1.
    """

    taken: int
    means: Floats
    errors: Floats
    shares: Floats


def choose(values: Floats, positions: Integers, weight: Floats | None = None, *, smoothest: bool) -> Choice:
    """Choose one of C candidates by their criterion on the validation queries.

    values     (C, Q) criterion of each candidate on each query. Smoother candidates come first.
    positions  (C, 2) position of each candidate on the grid of penalties and sigmas.
    weight     (Q,) query weights.
    smoothest  True for the rule "smoothest", False for the rule "best".

    The rule "best" takes the candidate with the best mean, or the first one of several that are equally good.
    The rule "smoothest" first replaces the criterion of each candidate by a weighted average of the candidate
    (weight 4), its direct neighbors on the grid (weight 2 each) and its diagonal neighbors (weight 1 each).
    Then it takes the first candidate whose mean is at most half a standard error below the best mean. This is
    the standard error, over the queries, of the mean difference between the two candidates. Differences are
    used because the criterion varies far more between queries than between candidates.

    >>> values = np.array([[0.2, 0.8, 0.5], [0.4, 0.6, 0.6], [0.0, 0.1, 0.1]])
    >>> apart = np.array([[0, 0], [0, 5], [5, 0]])
    >>> choose(values, apart, smoothest=True).taken, choose(values, apart, smoothest=False).taken
    (0, 1)
    """
    shares = _shares(values, weight)
    values, shares = values[:, shares > 0], shares[shares > 0]
    if smoothest:
        apart = np.abs(positions[:, None] - positions[None])
        closeness = np.prod((2 - apart).clip(0), axis=2).astype(np.float64)
        values = closeness @ values / closeness.sum(axis=1, keepdims=True)
    means, errors, best = _compared(values, shares)
    taken = int(np.argmax(means >= means[best] - _TOLERANCE * errors)) if smoothest else best
    return Choice(taken, means, errors, np.eye(len(means))[taken])


def average(values: Floats, weight: Floats | None = None) -> Choice:
    """Return the shares of C candidates in an average of their weights.

    A candidate whose mean is z standard errors below the best has a share proportional to exp(-z^2). This
    is the standard error, over the queries, of the mean difference between the two candidates.

    values  (C, Q) criterion of each candidate on each validation query.
    weight  (Q,) query weights.

    >>> average(np.array([[0.5, 0.7, 0.6], [0.5, 0.6, 0.6], [0.1, 0.2, 0.1]])).shares.round(3)
    array([0.731, 0.269, 0.   ])
    """
    shares = _shares(values, weight)
    means, errors, best = _compared(values[:, shares > 0], shares[shares > 0])
    below = means[best] - means
    # a candidate that differs from the best on no query is as good; on one query alone, nothing is known
    z = np.divide(below, errors, out=np.where(below > 0, math.inf, 0.0), where=errors > 0)
    densities = np.exp(-np.square(z))
    densities[densities < _LEAST_SHARE * densities.sum()] = 0
    return Choice(best, means, errors, densities / densities.sum())


def _compared(values: Floats, shares: Floats) -> tuple[Floats, Floats, int]:
    """Mean criterion of each candidate, standard error of its difference from the best, and the best's index.

    values  (C, Q) criterion of each candidate on each query.
    shares  (Q,) factor of each query in a mean over queries.
    """
    n = len(shares)
    means: Floats = (values * shares).sum(axis=1)
    best = int(np.argmax(means))
    away = values - values[best] - (means - means[best])[:, None]
    return means, np.sqrt(np.square(away * shares).sum(axis=1) * n / max(n - 1, 1)), best


def mean_over_queries(values: Floats, weight: Floats | None = None) -> Floats:
    """Means (...) of values (..., Q) over the queries, weighted by `weight` (Q,).

    Queries with a NaN value are left out. A metric is NaN for a query without a relevant document if its
    convention leaves out such queries.
    """
    shares = _shares(values, weight)
    mean: Floats = (values[..., shares > 0] * shares[shares > 0]).sum(axis=-1)
    return mean


def _shares(values: Floats, weight: Floats | None) -> Floats:
    """(Q,) factor of each query in a mean over queries: its weight divided by the sum of the weights.

    Only queries that count are in this sum; the factor of every other query is 0. A query counts if its
    weight is above 0 and none of its values is NaN.
    """
    counted = ~np.isnan(values).reshape(-1, values.shape[-1]).any(axis=0)
    shares = counted * (np.ones(values.shape[-1]) if weight is None else weight)
    total = shares.sum()
    return shares / total if total > 0 else np.zeros(len(shares))
