"""Result of a comparison of systems: means, intervals, paired tests, and queries that are won and lost."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats, Integers
from sinkprop.experiment.results import plain_id
from sinkprop.experiment.significance import bootstrap_intervals, paired_p_values
from sinkprop.experiment.systems.text import as_markdown, as_text, notes, rows_of
from sinkprop.metrics.conventions import listed
from sinkprop.metrics.evaluation import Evaluation
from sinkprop.metrics.measures import parse_metric

__all__ = ["QueryDifference", "ScoreComparison", "ScoreDifference"]

Interval = tuple[float, float]
_LISTED = 5  # number of queries won and lost that a record lists
_TIE = 1e-12  # smaller differences are rounding errors, as in the tests


class QueryDifference(NamedTuple):
    """Values of a metric for one query by two systems.

    Parameters
    ----------
    query : hashable
        Query id.
    baseline : float
        Value of the baseline.
    system : float
        Value of the system.
    difference : float
        Value of the system minus value of the baseline.
    """

    query: Hashable
    baseline: float
    system: float
    difference: float


@dataclass(frozen=True)
class ScoreDifference:
    """Difference of a system from the baseline in one metric, with paired tests over the queries.

    Parameters
    ----------
    system : str
        Name of the system.
    baseline : str
        Name of the baseline.
    metric : str
        Name of the metric.
    n_queries : int
        Number of queries.
    difference : float
        Mean of the system minus mean of the baseline.
    interval : tuple of two float
        95 % confidence interval of the difference, by the bootstrap over queries.
    wins : int
        Number of queries for which the system's value is higher.
    ties : int
        Number of queries with equal values.
    losses : int
        Number of queries for which the baseline's value is higher.
    t_test : float
        Two-sided p-value of the paired t-test; NaN if the test cannot be made.
    wilcoxon : float
        Two-sided p-value of Wilcoxon's signed-rank test.
    randomization : float
        Two-sided p-value of the randomization test.
    t_test_holm : float
        The p-value of the t-test, corrected by Holm's method for the number of systems compared with the
        baseline.
    wilcoxon_holm : float
        The p-value of Wilcoxon's test, corrected in the same way.
    randomization_holm : float
        The p-value of the randomization test, corrected in the same way.
    """

    system: str
    baseline: str
    metric: str
    n_queries: int
    difference: float
    interval: Interval
    wins: int
    ties: int
    losses: int
    t_test: float
    wilcoxon: float
    randomization: float
    t_test_holm: float
    wilcoxon_holm: float
    randomization_holm: float

    LEVEL: ClassVar[float] = 0.05

    @property
    def verdict(self) -> int:
        """Sign of a statistically significant difference: 1 if the system is better, -1 if it is worse.

        0 if the difference is not significant, that is, if `randomization_holm` is not below .05.
        """
        if not self.randomization_holm < self.LEVEL:
            return 0
        return 1 if self.difference > 0 else -1


@dataclass(frozen=True, eq=False, repr=False)
class ScoreComparison:
    """Comparison of systems that scored the same documents; it prints as one table per metric.

    Made by `compare_scores`. Intervals and tests are computed when they are first used.

    Parameters
    ----------
    evaluations : mapping of str to Evaluation
        Metrics of each system, with the values of each query.
    baseline : str
        System with which the others are compared.
    query_weight : array of shape (Q,), optional
        Weights of the queries in the means.
    """

    evaluations: Mapping[str, Evaluation]
    baseline: str
    query_weight: Floats | None = field(default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "evaluations", MappingProxyType(dict(self.evaluations)))
        if self.baseline not in self.evaluations:
            raise ValueError(f"baseline must be one of {listed(self.systems)}; got {self.baseline!r}.")

    def __repr__(self) -> str:
        return as_text(self)

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in the order given."""
        return tuple(self.evaluations)

    @property
    def others(self) -> tuple[str, ...]:
        """Names of all systems except the baseline."""
        return tuple(name for name in self.evaluations if name != self.baseline)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order given."""
        return tuple(self.evaluations[self.baseline])

    @property
    def n_queries(self) -> int:
        """Number of queries, including those that are left out of the means."""
        return self.evaluations[self.baseline].n_queries

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """Means of the metrics, {system: {metric: mean}}."""
        return {name: dict(found) for name, found in self.evaluations.items()}

    @property
    def intervals(self) -> dict[str, dict[str, Interval]]:
        """95 % intervals of the means by the bootstrap over queries, {system: {metric: (low, high)}}."""
        return {name: dict(self._intervals[name, ""]) for name in self.systems}

    @property
    def per_query(self) -> dict[str, dict[str, Floats]]:
        """Values of each query, {system: {metric: (Q,)}}; NaN for a query that is left out of the mean."""
        return {name: dict(found.per_query) for name, found in self.evaluations.items()}

    @cached_property
    def differences(self) -> tuple[ScoreDifference, ...]:
        """Difference of each other system from the baseline in each metric."""
        if not self.others:
            return ()
        D = np.stack([self._values[name] - self._values[self.baseline] for name in self.others], axis=1)
        p, corrected = paired_p_values(D if self._weight is None else D * self._weight[:, None, None])
        won, lost, n = (D > _TIE).sum(axis=0), (D < -_TIE).sum(axis=0), (~np.isnan(D)).sum(axis=0)
        return tuple(
            ScoreDifference(
                name,
                self.baseline,
                metric,
                int(n[i, j]),
                self.evaluations[name][metric] - self.evaluations[self.baseline][metric],
                self._intervals[name, self.baseline][metric],
                int(won[i, j]),
                int(n[i, j] - won[i, j] - lost[i, j]),
                int(lost[i, j]),
                *(float(x) for x in p[:, i, j]),
                *(float(x) for x in corrected[:, i, j]),
            )
            for i, name in enumerate(self.others)
            for j, metric in enumerate(self.metrics)
        )

    def difference(self, system: str, metric: str | None = None) -> ScoreDifference:
        """Difference of a system from the baseline.

        Parameters
        ----------
        system : str
            Name of the system.
        metric : str, optional
            Name of the metric; None takes the first.

        Returns
        -------
        ScoreDifference
            The difference with its interval and tests.
        """
        wanted = self._checked(system), self._metric(metric)
        return next(d for d in self.differences if (d.system, d.metric) == wanted)

    def against(self, baseline: str) -> ScoreComparison:
        """The same comparison with another baseline.

        Parameters
        ----------
        baseline : str
            Name of a system.

        Returns
        -------
        ScoreComparison
            The comparison.
        """
        return replace(self, baseline=baseline)

    def largest_wins(
        self, system: str, metric: str | None = None, n: int = 10
    ) -> tuple[QueryDifference, ...]:
        """Queries that a system ranks better than the baseline, by decreasing difference.

        Parameters
        ----------
        system : str
            Name of the system.
        metric : str, optional
            Name of the metric; None takes the first.
        n : int, default 10
            Largest number of queries.

        Returns
        -------
        tuple of QueryDifference
            The queries.
        """
        return self._apart(system, metric, n, 1)

    def largest_losses(
        self, system: str, metric: str | None = None, n: int = 10
    ) -> tuple[QueryDifference, ...]:
        """Queries that a system ranks worse than the baseline, by decreasing size of the difference.

        Parameters
        ----------
        system : str
            Name of the system.
        metric : str, optional
            Name of the metric; None takes the first.
        n : int, default 10
            Largest number of queries.

        Returns
        -------
        tuple of QueryDifference
            The queries.
        """
        return self._apart(system, metric, n, -1)

    def definition(self) -> str:
        """Describe how the means are computed: the convention and the numbers of queries.

        Returns
        -------
        str
            The text, see `Evaluation.definition`.
        """
        return self.evaluations[self.baseline].definition()

    def notes(self, *, unicode: bool = False) -> tuple[str, ...]:
        """Sentences that explain the tables: the tests, the intervals, and how the means are computed.

        Parameters
        ----------
        unicode : bool, default False
            Whether the tables mark significant differences with triangles instead of + and -.

        Returns
        -------
        tuple of str
            The sentences.
        """
        return notes(self, unicode=unicode)

    def table(self, metric: str | None = None) -> str:
        """The table of one metric as text.

        Parameters
        ----------
        metric : str, optional
            Name of the metric; None takes the first.

        Returns
        -------
        str
            The lines of the table.
        """
        return as_text(self, self._metric(metric))

    def rows(self, metric: str | None = None, *, unicode: bool = False) -> list[list[str]]:
        """The table of one metric as cells: a row of headings, and one row per system.

        Parameters
        ----------
        metric : str, optional
            Name of the metric; None takes the first.
        unicode : bool, default False
            Whether to mark significant differences with triangles instead of + and -.

        Returns
        -------
        list of list of str
            The cells.
        """
        return rows_of(self, self._metric(metric), unicode=unicode)

    def to_markdown(self) -> str:
        """The tables in Markdown, with the sentences that explain them.

        Returns
        -------
        str
            The text.
        """
        return as_markdown(self)

    def record(self, *, per_query: bool = False) -> dict[str, Any]:
        """The comparison as plain data for JSON, with None for NaN.

        Parameters
        ----------
        per_query : bool, default False
            Whether to include the values of every query.

        Returns
        -------
        dict
            The data.
        """
        first = self.evaluations[self.baseline]
        found: dict[str, Any] = {
            "convention": first.convention.name,
            "description": self.definition(),
            "queries": self.n_queries,
            "baseline": self.baseline,
            "systems": [
                {"name": name, "metrics": dict(own), "intervals": self.intervals[name]}
                for name, own in self.evaluations.items()
            ],
            "differences": [
                {
                    **vars(d),
                    "verdict": d.verdict,
                    "largest_wins": _listed(self.largest_wins(d.system, d.metric, _LISTED)),
                    "largest_losses": _listed(self.largest_losses(d.system, d.metric, _LISTED)),
                }
                for d in self.differences
            ],
        }
        if per_query:
            columns = [
                (name, metric, values.tolist())
                for metric in self.metrics
                for name, own in self.evaluations.items()
                for values in [own.per_query[metric]]
            ]
            found["per_query"] = [
                {"query": plain_id(query), **{metric: {} for metric in self.metrics}}
                for query in first.queries.tolist()
            ]
            for name, metric, values in columns:
                for row, value in zip(found["per_query"], values, strict=True):
                    row[metric][name] = value
        plain: dict[str, Any] = plain_data(found, finite=True)
        return plain

    def to_json(self, *, per_query: bool = False) -> str:
        """The comparison as JSON.

        Parameters
        ----------
        per_query : bool, default False
            Whether to include the values of every query.

        Returns
        -------
        str
            The text.
        """
        return (
            json.dumps(self.record(per_query=per_query), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        )

    def _checked(self, system: str) -> str:
        if system not in self.others:
            raise KeyError(
                f"{system!r} was not compared with {self.baseline!r}; there is {listed(self.others)}"
            )
        return system

    def _metric(self, metric: str | None) -> str:
        """Name of a metric in the spelling of the results."""
        if metric is None:
            return self.metrics[0]
        if metric not in self.metrics:
            self.evaluations[self.baseline][metric]  # raises a KeyError if no spelling of it was evaluated
            return str(parse_metric(metric))
        return metric

    @cached_property
    def _weight(self) -> Floats | None:
        """Weights of the queries, (Q,), or None; those above 0 have the mean 1."""
        given = self.query_weight
        return None if given is None else given / given[given > 0].mean()

    @cached_property
    def _values(self) -> dict[str, Floats]:
        """Values of the queries, {system: (Q, metrics)}; NaN for queries that are left out."""
        found = {}
        for name, own in self.evaluations.items():
            V = np.stack([own.per_query[metric] for metric in self.metrics], axis=1)
            found[name] = V if self._weight is None else np.where(self._weight[:, None] > 0, V, np.nan)
        return found

    @cached_property
    def _intervals(self) -> dict[tuple[str, str], dict[str, Interval]]:
        """Intervals as {(system, baseline): {metric: (low, high)}}; those of means have the baseline ""."""
        columns = {(name, ""): V for name, V in self._values.items()}
        first = self._values[self.baseline]
        columns |= {(name, self.baseline): self._values[name] - first for name in self.others}
        folds = np.zeros(self.n_queries, np.int64)
        weight = None if self._weight is None else np.where(self._weight > 0, self._weight, 1.0)
        bounds = bootstrap_intervals(np.concatenate([*columns.values()], axis=1), folds, weight=weight)
        pairs = iter([(float(low), float(high)) for low, high in bounds])
        return {key: {metric: next(pairs) for metric in self.metrics} for key in columns}

    def _apart(self, system: str, metric: str | None, n: int, sign: int) -> tuple[QueryDifference, ...]:
        j = self.metrics.index(self._metric(metric))
        ours, theirs = self._values[self._checked(system)][:, j], self._values[self.baseline][:, j]
        apart = np.nan_to_num(sign * (ours - theirs))
        order: Integers = np.argsort(-apart, kind="stable")[: max(0, n)]
        queries = self.evaluations[self.baseline].queries
        return tuple(
            QueryDifference(
                queries[q : q + 1].tolist()[0],
                float(theirs[q]),
                float(ours[q]),
                float(ours[q] - theirs[q]),
            )
            for q in order.tolist()
            if apart[q] > _TIE
        )


def _listed(queries: tuple[QueryDifference, ...]) -> list[dict[str, Any]]:
    return [{**own._asdict(), "query": plain_id(own.query)} for own in queries]
