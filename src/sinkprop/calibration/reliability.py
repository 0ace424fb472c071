"""Reliability of forecast probabilities: observed frequencies, counts and intervals, bin by bin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.rank_calibration import Ids, RankCalibration
from sinkprop.calibration.widths import RANKS, log_score
from sinkprop.common.arguments import whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_labels
from sinkprop.data.queries import group_rows
from sinkprop.metrics.ranking import one_score_per_row, ranks_of
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.rank_distribution import projected
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["CalibrationReport", "LogScores", "Reliability", "calibration_report", "reliability"]

TOPS = (1, 3, 5, 10)
_N_ITER, _EPSILON = 5, 1e-6  # of the probabilities before calibration, as in `doubly_stochastic`
_LEAST = 1e-12  # smaller probabilities count as this one in the log score before calibration
_Z = 1.959964  # standard normal quantile of 97.5 %


@dataclass(frozen=True, eq=False)
class Reliability:
    """Forecast probabilities beside observed frequencies, in bins of equal width.

    Parameters
    ----------
    forecast : array of shape (B,)
        Mean forecast of each bin; NaN for an empty bin.
    observed : array of shape (B,)
        Mean outcome of each bin: the frequency of the event.
    low, high : array of shape (B,)
        Wilson's interval of 95 % for the frequency, as if the forecasts of a bin were independent.
    counts : array of shape (B,)
        Number of forecasts in each bin.
    """

    forecast: Floats
    observed: Floats
    low: Floats
    high: Floats
    counts: Integers

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of forecast and observed, weighted by the counts."""
        some = self.counts > 0
        gaps = np.abs(self.forecast[some] - self.observed[some])
        return float(gaps @ self.counts[some] / self.counts.sum())

    @classmethod
    def _of_sums(cls, counts: Integers, forecasts: Any, outcomes: Any) -> Reliability:
        """Bins with these counts (B,), sums of forecasts (B,) and sums of outcomes (B,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            observed: Floats = outcomes / counts
            z2 = _Z * _Z
            middle = (observed + z2 / (2 * counts)) / (1 + z2 / counts)
            variance = observed * (1 - observed) / counts + z2 / (4 * counts**2)
            half = np.sqrt(z2 * variance) / (1 + z2 / counts)
            # a frequency of 0 or 1 is an end of its interval
            low, high = np.minimum(middle - half, observed), np.maximum(middle + half, observed)
            return cls(forecasts / counts, observed, np.maximum(low, 0), np.minimum(high, 1), counts)

    def record(self) -> dict[str, Any]:
        """Convert the bins to plain data.

        Returns
        -------
        dict
            The error and, for each bin, the mean forecast, the frequency, its interval and the count. None
            stands for NaN.
        """
        bins = {name: _plain(getattr(self, name)) for name in ("forecast", "observed", "low", "high")}
        return {"error": self.error, **bins, "counts": self.counts.tolist()}


def reliability(forecasts: ArrayLike, outcomes: ArrayLike, *, n_bins: int = 10) -> Reliability:
    """Compare forecast probabilities with outcomes.

    Parameters
    ----------
    forecasts : array of shape (N,)
        Probabilities, from 0 to 1.
    outcomes : array of shape (N,)
        What happened: 0 or 1, or a share between them.
    n_bins : int, default 10
        Number of bins of equal width.

    Returns
    -------
    Reliability
        Means, counts and intervals of the bins; `error` is the expected calibration error.

    Examples
    --------
    >>> found = reliability([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0], n_bins=2)
    >>> found.forecast, found.observed, found.error
    (array([0.1, 0.9]), array([0. , 0.5]), 0.25)
    """
    p, t = np.asarray(forecasts, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    n_bins = whole("n_bins", n_bins, 1)
    if p.ndim != 1 or p.shape != t.shape or not len(p):
        raise ValueError(
            f"forecasts and outcomes must have the same shape (N,), with N > 0; got {p.shape} and {t.shape}."
        )
    for name, values in (("forecasts", p), ("outcomes", t)):
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if len(wrong):
            raise ValueError(f"{name} must be from 0 to 1; row {wrong[0]} is {values[wrong[0]]}.")
    bins = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    return Reliability._of_sums(counts, np.bincount(bins, p, n_bins), np.bincount(bins, t, n_bins))


@dataclass(frozen=True)
class LogScores:
    """Mean log scores of ranks over queries, in nats per rank; smaller is better.

    Parameters
    ----------
    before : float
        That of the probabilities before calibration.
    after : float
        That of the calibrated probabilities.
    uniform : float
        That of forecasts that give every rank the same probability.
    """

    before: float
    after: float
    uniform: float


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Forecasts on labeled queries, before and after calibration.

    Parameters
    ----------
    before, after : dict
        `Reliability` of each event: "top 1", "top 3", "top 5", "top 10", "first is best" and, only in
        `after`, "label >= g" for each grade g. "top k" is that a document is among the first k by label,
        where documents with equal labels share their ranks; "first is best", that the first document of a
        ranking has the best label of its query, whose forecast before calibration is its probability of
        rank 1.
    log_scores : LogScores
        Log scores of the first ten ranks.
    n_queries : int
        Number of queries with labels.
    n_calibrating : int
        Number of queries to which the calibration was fitted.

    Examples
    --------
    >>> from sinkprop.calibration import RankCalibration
    >>> rng = np.random.default_rng(0)
    >>> qid, scores = np.repeat(np.arange(400), 15), rng.normal(size=6000)
    >>> y = np.digitize(scores + rng.normal(size=6000), [0.5, 2])
    >>> new = qid >= 200
    >>> calibration = RankCalibration.fit(scores[~new], y[~new], qid[~new])
    >>> report = calibration_report(calibration, scores[new], y[new], qid[new])
    >>> round(report.before["first is best"].error, 2), round(report.after["first is best"].error, 2)
    (0.37, 0.09)
    """

    before: dict[str, Reliability]
    after: dict[str, Reliability]
    log_scores: LogScores
    n_queries: int
    n_calibrating: int

    def events(self) -> Iterator[tuple[str, Reliability | None, Reliability | None]]:
        """Iterate over the events.

        Yields
        ------
        tuple
            Name of the event, and its `Reliability` before and after calibration; None where it has none.
        """
        for event in {**self.before, **self.after}:
            yield event, self.before.get(event), self.after.get(event)

    def record(self) -> dict[str, Any]:
        """Convert the report to plain data, which can be written as JSON.

        Returns
        -------
        dict
            Numbers of queries, log scores and, for each event, its name and what `Reliability.record` returns
            before and after calibration, or None.
        """
        return {
            "n_queries": self.n_queries,
            "n_calibrating": self.n_calibrating,
            "log_scores": vars(self.log_scores).copy(),
            "events": [
                {
                    "event": event,
                    "before": None if before is None else before.record(),
                    "after": None if after is None else after.record(),
                }
                for event, before, after in self.events()
            ],
        }


def calibration_report(
    calibration: RankCalibration,
    scores: ArrayLike,
    y: ArrayLike,
    qid: Ids | None,
    *,
    sigma: float | None = None,
) -> CalibrationReport:
    """Compare forecasts before and after calibration with the labels of queries.

    Parameters
    ----------
    calibration : RankCalibration
        The calibration, fitted to other queries.
    scores : array of shape (N,)
        Scores, of the model whose scores were calibrated.
    y : array of shape (N,)
        Labels.
    qid : array of shape (N,)
        Query id of each row.
    sigma : float, optional
        Width of the `SmoothedIndicator` that makes probabilities of the scores before calibration. By default
        the mean standard deviation of the scores of a query.

    Returns
    -------
    CalibrationReport
        Reliability of the probabilities, and log scores.

    Examples
    --------
    >>> from sinkprop.calibration import RankCalibration
    >>> rng = np.random.default_rng(0)
    >>> qid, scores = np.repeat(np.arange(400), 15), rng.normal(size=6000)
    >>> y = np.digitize(scores + rng.normal(size=6000), [0.5, 2])
    >>> new = qid >= 200
    >>> calibration = RankCalibration.fit(scores[~new], y[~new], qid[~new])
    >>> report = calibration_report(calibration, scores[new], y[new], qid[new])
    >>> found = report.log_scores
    >>> round(found.before, 2), round(found.after, 2), round(found.uniform, 2)
    (2.57, 2.54, 2.71)
    """
    x = one_score_per_row(scores)
    groups, labels = group_rows(qid, len(x)), as_labels(y, len(x))
    width = SmoothedIndicator(calibration.mixture.scale if sigma is None else sigma)
    settings = native_settings(width, _N_ITER, _EPSILON)
    n_ranks = min(RANKS, groups.longest)
    unit = np.eye(n_ranks, groups.longest)
    plain, Pi = projected(x, groups, unit, settings, None), calibration.mixture.project(x, groups, unit)
    ideal = ideal_ranks(labels, groups)
    before: dict[str, Reliability] = {}
    after: dict[str, Reliability] = {}
    for k in TOPS:
        outcome, event = ideal.within(1, k), f"top {k}"
        for found, P in ((before, plain), (after, Pi)):
            found[event] = reliability(P[:, :k].sum(axis=1).clip(0, 1), outcome)
    first = ranks_of(x, groups) == 1
    best = ideal.first[first] == 1
    before["first is best"] = reliability(plain[first, 0].clip(0, 1), best)
    if calibration.best is not None:
        after["first is best"] = reliability(calibration.best_probability(x, groups.codes)[first], best)
    for grade in calibration.grades.tolist():
        p = calibration.relevance_probability(x, groups.codes, threshold=grade)
        after[f"label >= {grade:g}"] = reliability(p, labels >= grade)
    log_scores = LogScores(
        float(log_score(np.maximum(plain, _LEAST), labels, groups).mean()),
        float(log_score(Pi, labels, groups).mean()),
        float(np.log(groups.sizes).mean()),
    )
    return CalibrationReport(before, after, log_scores, len(groups.queries), calibration.n_queries)


def _plain(values: Floats) -> list[float | None]:
    return [None if np.isnan(x) else float(x) for x in values]
