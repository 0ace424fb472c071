"""The results of counterfactual evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from sinkprop.common.types import Integers

__all__ = ["CounterfactualValue", "RankerComparison"]


@dataclass(frozen=True, eq=False)
class CounterfactualValue:
    """An estimate of the value of a ranker per session, from the log of another.

    Attributes
    ----------
    metric : str
        The metric, such as "dcg@10".
    method : str
        "doubly robust", "ips" or "snips".
    value : float
        The estimate.
    interval : tuple of float
        Confidence interval of the value. Errors of the estimated position bias are not in it. NaN if the
        log covers nothing of the ranking, or has one session.
    standard_error : float
        Standard error of the estimate.
    level : float
        Confidence level of the interval.
    effective_sample_size : float
        Number of sessions that would be as informative if every user examined every document that counts,
        at most `n_sessions`.
    overlap : float
        Share, from 0 to 1, of the weight of the ranker's documents that have been examined in the log; with
        propensities, that could have been shown at their new ranks.
    uncovered : array of int
        Rows of the documents that count, but were never shown where they would have been examined.
    clip : float or None
        Lower limit of the expected examination by which clicks are divided.
    n_sessions : int
        Number of sessions.
    per : str
        Whether errors are between sessions or between queries.
    """

    metric: str
    method: str
    value: float
    interval: tuple[float, float]
    standard_error: float
    level: float
    effective_sample_size: float
    overlap: float
    uncovered: Integers
    clip: float | None
    n_sessions: int
    per: str

    def __str__(self) -> str:
        low, high = self.interval
        clipped = "" if self.clip is None else f", examination clipped at {self.clip:g}"
        return (
            f"{self.metric} {self.value:.4f}, {100 * self.level:g} % interval {low:.4f} to {high:.4f} "
            f"({self.method}{clipped}; {self.n_sessions:,} sessions, effectively "
            f"{self.effective_sample_size:,.0f}; the log covers {100 * self.overlap:.1f} % of the ranking)"
        )


@dataclass(frozen=True, eq=False)
class RankerComparison:
    """The difference between two rankers, per session, estimated from the log of another.

    Attributes
    ----------
    first : CounterfactualValue
        Value of the first ranker.
    second : CounterfactualValue
        Value of the second ranker.
    difference : float
        Value of the first less that of the second.
    interval : tuple of float
        Confidence interval of the difference.
    standard_error : float
        Standard error of the difference.
    p_value : float
        Two-sided p-value of the hypothesis that the rankers have the same value.
    """

    first: CounterfactualValue
    second: CounterfactualValue
    difference: float
    interval: tuple[float, float]
    standard_error: float
    p_value: float

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.first.metric} {self.first.value:.4f} and {self.second.value:.4f}, difference "
            f"{self.difference:+.4f}, {100 * self.first.level:g} % interval {low:+.4f} to {high:+.4f}, "
            f"p = {self.p_value:.2g} ({self.first.method}; {self.first.n_sessions:,} sessions)"
        )
