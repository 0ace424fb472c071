"""Standings of methods over data sets: means, distances from the best, ranks and failures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats
from sinkprop.experiment.referee.fits import Fit
from sinkprop.experiment.results import Comparison, PairedTest, Result

__all__ = ["Standings"]

_MEAN = "mean"
_WORSE = "▽"


@dataclass(frozen=True, eq=False)
class Standings:
    """Results of methods on several data sets.

    The value of a query is the mean of the metrics. Means are over the queries of each fold, then over folds.

    Parameters
    ----------
    datasets : tuple of str
        Names of the data sets.
    methods : tuple of str
        Names of the methods.
    metrics : tuple of str
        Names of the metrics.
    convention : str
        Name of the convention of the metrics.
    fits : tuple of Fit
        One fit per data set, method and fold.
    budget : float, optional
        Seconds per fit for the methods that can be given a time.
    budgeted : tuple of str, default ()
        Names of these methods.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    convention: str
    fits: tuple[Fit, ...] = field(repr=False)
    budget: float | None = None
    budgeted: tuple[str, ...] = ()

    def failure(self, dataset: str, method: str) -> str | None:
        """Reason why a method failed on a data set.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.

        Returns
        -------
        str or None
            The reason on the first fold on which it failed; None if it failed on no fold.
        """
        return next(
            (f"{fit.fold}: {fit.failure}" for fit in self._of(dataset, method) if fit.failure is not None),
            None,
        )

    def mean(self, dataset: str, method: str) -> float:
        """Mean of a method on a data set.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.

        Returns
        -------
        float
            The mean; NaN if the method failed on a fold.
        """
        found = self._comparisons.get(dataset)
        return (
            math.nan if found is None or method not in found.methods else found.mean(dataset, method, _MEAN)
        )

    def best(self, dataset: str) -> str | None:
        """Name of the method with the highest mean on a data set.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        str or None
            The first of the best methods; None if all methods failed.
        """
        found = self._comparisons.get(dataset)
        return None if found is None else found.against

    def tests(self, dataset: str) -> dict[str, PairedTest]:
        """Paired tests of the methods on a data set against the best one.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        dict of str to PairedTest
            The test of each method that did not fail, except the best.
        """
        found = self._comparisons.get(dataset)
        return {} if found is None else {test.method: test for test in found.tests(dataset)}

    def rank(self, dataset: str, method: str) -> float:
        """Rank of a method on a data set, from 1 for the best.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.

        Returns
        -------
        float
            The rank. Methods with equal means share the mean of their ranks. A method that failed has the
            last rank, the number of methods.
        """
        own = self.mean(dataset, method)
        if math.isnan(own):
            return float(len(self.methods))
        others = np.array([self.mean(dataset, other) for other in self.methods])
        equal = np.isclose(others, own, rtol=0, atol=1e-12)
        return float((others[~equal] > own).sum() + (equal.sum() + 1) / 2)

    def average_rank(self, method: str) -> float:
        """Mean of the ranks of a method over the data sets.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        float
            The mean.
        """
        return float(np.mean([self.rank(dataset, method) for dataset in self.datasets]))

    def processor_seconds(self, method: str) -> float:
        """Mean processor time per fit of a method, over all its fits that did not fail.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        float
            The seconds; NaN if all fits failed.
        """
        times = [
            f.processor_seconds for f in self.fits if f.method == method and f.processor_seconds is not None
        ]
        return float(np.mean(times)) if times else math.nan

    def to_markdown(self) -> str:
        """The standings as a Markdown table, with the notes that it needs.

        Returns
        -------
        str
            The text: one row per method, by its average rank.
        """
        order = sorted(self.methods, key=self.average_rank)
        heads = ["", *self.datasets, "average rank", "processor seconds per fit"]
        lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for method in order:
            cells = [self._cell(dataset, method) for dataset in self.datasets]
            seconds = self.processor_seconds(method)
            time = "" if math.isnan(seconds) else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
            lines.append(
                f"| {' | '.join([f'`{method}`', *cells, f'{self.average_rank(method):.1f}', time])} |"
            )
        return "\n".join([*lines, "", *self._notes()]) + "\n"

    def _cell(self, dataset: str, method: str) -> str:
        mean = self.mean(dataset, method)
        if math.isnan(mean):
            return "failed"
        if method == self.best(dataset):
            return f"**{_short(mean)}**"
        test = self.tests(dataset)[method]
        low, high = (_short(x, sign=True) for x in test.interval)
        return f"{_short(mean)}{_WORSE if test.verdict < 0 else ''} ({low} to {high})"

    def _notes(self) -> list[str]:
        shown = ", ".join(name.upper() for name in self.metrics)
        what = shown if len(self.metrics) == 1 else f"Mean of {shown}"
        notes = [
            f"{what} on the test queries, by the convention {self.convention!r}. Bold is the best method of "
            "a set. Parentheses: 95 % confidence interval of the difference from it, paired by query. "
            f"{_WORSE}: significantly worse (randomization test, p < .05 after Holm's correction). A method "
            "that failed on a set has the last rank there. Every fit had one thread.",
            "",
        ]
        for dataset in self.datasets:
            fits = [fit for fit in self.fits if fit.dataset == dataset]
            folds = len(dict.fromkeys(fit.fold for fit in fits))
            queries = len({query for fit in fits for query in fit.queries})
            notes.append(
                f"- {dataset}: {_count(folds, 'fold')}, {_count(queries, 'test query', 'test queries')}"
            )
        if self.budget is not None:
            own = ", ".join(f"`{name}`" for name in self.budgeted) or "none of these methods"
            notes.append(f"- Budget: {self.budget:g} s per fit, for methods that can be given one: {own}")
        for method in self.methods:
            for dataset in self.datasets:
                reason = self.failure(dataset, method)
                if reason is not None:
                    notes.append(f"- `{method}` failed on {dataset}, {' '.join(reason.split())}")
        return notes

    def to_json(self) -> str:
        """The standings as JSON.

        Returns
        -------
        str
            The text: means, intervals of the differences from the best, ranks, times and failures.
        """
        return json.dumps(plain_data(self._record(), finite=True), indent=1, allow_nan=False) + "\n"

    def _record(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "convention": self.convention,
            "budget": self.budget,
            "methods": [
                {
                    "method": method,
                    "average_rank": self.average_rank(method),
                    "processor_seconds": self.processor_seconds(method),
                    "datasets": {dataset: self._result(dataset, method) for dataset in self.datasets},
                }
                for method in sorted(self.methods, key=self.average_rank)
            ],
        }

    def _result(self, dataset: str, method: str) -> dict[str, Any]:
        test = self.tests(dataset).get(method)
        return {
            "mean": self.mean(dataset, method),
            "rank": self.rank(dataset, method),
            "difference": None if test is None else test.difference,
            "interval": None if test is None else test.interval,
            "p": None if test is None else test.randomization_holm,
            "failure": self.failure(dataset, method),
        }

    def _of(self, dataset: str, method: str) -> list[Fit]:
        return self._index.get((dataset, method), [])

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[Fit]]:
        found: dict[tuple[str, str], list[Fit]] = {}
        for fit in self.fits:
            found.setdefault((fit.dataset, fit.method), []).append(fit)
        return found

    @cached_property
    def _comparisons(self) -> Mapping[str, Comparison]:
        """Comparison of the methods that did not fail, for each data set on which there is such a method."""
        found = {}
        for dataset in self.datasets:
            done = [m for m in self.methods if self._of(dataset, m) and self.failure(dataset, m) is None]
            results = [_result(fit) for method in done for fit in self._of(dataset, method)]
            if done:
                means = {
                    method: np.mean([r.means[_MEAN] for r in results if r.method == method])
                    for method in done
                }
                best = max(done, key=lambda method: means[method])
                found[dataset] = Comparison(
                    (dataset,), tuple(done), (_MEAN,), best, self.convention, tuple(results), {dataset: ""}
                )
        return found


def _result(fit: Fit) -> Result:
    values: Floats = np.array(list(fit.per_query.values()), dtype=np.float64)
    per_query = values.mean(axis=0)
    counted = per_query[~np.isnan(per_query)]
    mean = float(counted.mean()) if len(counted) else math.nan
    return Result(
        fit.dataset,
        fit.fold,
        fit.method,
        fit.queries,
        {_MEAN: per_query},
        {_MEAN: mean},
        math.nan if fit.seconds is None else fit.seconds,
        0.0,
    )


def _short(value: float, *, sign: bool = False) -> str:
    """A number with four decimals and without the zero before the point, as on the page of results."""
    text = f"{value:+.4f}" if sign else f"{value:.4f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _count(number: int, what: str, several: str | None = None) -> str:
    return f"{number} {what if number == 1 else several or what + 's'}"
