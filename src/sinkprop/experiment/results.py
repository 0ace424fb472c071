"""Results of a comparison by data set, method and fold: means, intervals, paired tests, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

import sinkprop
from sinkprop.common.types import Floats
from sinkprop.experiment.details import Details, FoldData
from sinkprop.experiment.published import published_rows
from sinkprop.experiment.record_checks import check_record, finite_number
from sinkprop.experiment.significance import bootstrap_intervals, paired_p_values
from sinkprop.metrics.conventions import listed

__all__ = ["Comparison", "PairedTest", "Result"]

VERSION = 2  # version of the JSON format; files of version 1 have no details
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Result:
    """Result of one method on one fold.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    fold : str
        Name of the fold.
    method : str
        Name of the method.
    queries : tuple
        Ids of the test queries.
    per_query : mapping
        {metric: values of the queries, of shape (Q,)}; NaN if the convention leaves a query out of the mean.
    means : mapping
        {metric: mean over the queries}.
    fit_seconds : float
        Wall-clock time of the fit.
    predict_seconds : float
        Wall-clock time to rank the test queries.
    summary : mapping, default {}
        Summary of the fitted estimator, such as its status and the chosen setting, as plain data.
    warnings : tuple of str, default ()
        Warnings that the method issued.
    details : Details, optional
        Training, feature weights, and scores of some test queries, for the report; None in results that do
        not hold them.
    processor_seconds : float, default nan
        Processor time of the fit, of this process and of the processes that it started. Not kept in files.
    """

    dataset: str
    fold: str
    method: str
    queries: tuple[Hashable, ...] = field(repr=False)
    per_query: Mapping[str, Floats] = field(repr=False)
    means: Mapping[str, float]
    fit_seconds: float
    predict_seconds: float
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    details: Details | None = field(default=None, repr=False)
    processor_seconds: float = math.nan


@dataclass(frozen=True)
class PairedTest:
    """Paired tests of a method against the reference method, on one metric of one data set.

    The tests are over queries. A query that was tested in several folds counts once, with its mean value.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    metric : str
        Name of the metric.
    method : str
        Name of the method.
    against : str
        Name of the reference method.
    n_queries : int
        Number of queries.
    difference : float
        Mean of the method minus mean of the reference.
    interval : tuple of two float
        95 % confidence interval of the difference, by the bootstrap over queries.
    t_test : float
        Two-sided p-value of the paired t-test; NaN if the test cannot be made.
    wilcoxon : float
        Two-sided p-value of Wilcoxon's signed-rank test.
    randomization : float
        Two-sided p-value of the randomization test.
    t_test_holm : float
        The p-value of the t-test, corrected by Holm's method for the number of methods compared with the
        reference.
    wilcoxon_holm : float
        The p-value of Wilcoxon's test, corrected in the same way.
    randomization_holm : float
        The p-value of the randomization test, corrected in the same way.
    """

    dataset: str
    metric: str
    method: str
    against: str
    n_queries: int
    difference: float
    interval: Interval
    t_test: float
    wilcoxon: float
    randomization: float
    t_test_holm: float
    wilcoxon_holm: float
    randomization_holm: float

    LEVEL: ClassVar[float] = 0.05

    @property
    def verdict(self) -> int:
        """Sign of a statistically significant difference: 1 if the method is better, -1 if it is worse.

        0 if the difference is not significant, that is, if `randomization_holm` is not below .05.
        """
        if not self.randomization_holm < self.LEVEL:
            return 0
        return 1 if self.difference > 0 else -1


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of methods on the folds of data sets.

    Means are over the queries of each fold, then over the folds, as in LETOR.

    Parameters
    ----------
    datasets : tuple of str
        Names of the data sets, in the order given.
    methods : tuple of str
        Names of the methods, in the order given.
    metrics : tuple of str
        Names of the metrics, in the order given.
    against : str
        Reference method of the tests.
    convention : str
        Name of the metrics' convention; `describe` states it in words.
    results : tuple of Result
        One result per data set, method and fold.
    statements : mapping
        {data set: sentence on how its means are computed, as `describe` returns it}.
    descriptions : mapping, default {}
        {method: one-line description}.
    ours : tuple of str, default ()
        Names of the methods that are sinkprop's own; the others are baselines.
    data : mapping, default {}
        {data set: {fold: summary of the fold's queries, with the documents of some test queries}}.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    against: str
    convention: str
    results: tuple[Result, ...] = field(repr=False)
    statements: Mapping[str, str] = field(repr=False)
    descriptions: Mapping[str, str] = field(default_factory=dict, repr=False)
    ours: tuple[str, ...] = ()
    data: Mapping[str, Mapping[str, FoldData]] = field(default_factory=dict, repr=False)

    def folds(self, dataset: str) -> tuple[str, ...]:
        """Names of a data set's folds.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        tuple of str
            The names.
        """
        self._check("dataset", dataset, self.datasets)
        return tuple(dict.fromkeys(r.fold for r in self.results if r.dataset == dataset))

    def result(self, dataset: str, method: str, fold: str) -> Result:
        """Result of a method on a fold.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.
        fold : str
            Name of the fold.

        Returns
        -------
        Result
            The result.
        """
        self._check("dataset", dataset, self.datasets)
        self._check("method", method, self.methods)
        self._check("fold", fold, self.folds(dataset))
        return self._index[dataset, method, fold]

    def n_queries(self, dataset: str) -> int:
        """Number of test queries of a data set, summed over its folds.

        A query that is tested in several folds counts once per fold.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        int
            The number.
        """
        return sum(len(r.queries) for r in self._of(dataset, self.methods[0]))

    def fold_means(self, dataset: str, method: str, metric: str) -> dict[str, float]:
        """Mean of a metric over the queries of each fold.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.
        metric : str
            Name of the metric.

        Returns
        -------
        dict of str to float
            {fold: mean}.
        """
        self._check("metric", metric, self.metrics)
        return {r.fold: r.means[metric] for r in self._of(dataset, method)}

    def mean(self, dataset: str, method: str, metric: str) -> float:
        """Mean of a metric over queries, then over folds.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.
        metric : str
            Name of the metric.

        Returns
        -------
        float
            The mean.
        """
        means = self.fold_means(dataset, method, metric)
        return math.fsum(means.values()) / len(means)

    def means(self, dataset: str) -> dict[str, dict[str, float]]:
        """Means of all methods and metrics over queries, then over folds.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        dict
            {method: {metric: mean}}.
        """
        return {m: {k: self.mean(dataset, m, k) for k in self.metrics} for m in self.methods}

    def fit_seconds(self, dataset: str, method: str) -> float:
        """Mean wall-clock time of a fit, over the folds.

        Parameters
        ----------
        dataset : str
            Name of the data set.
        method : str
            Name of the method.

        Returns
        -------
        float
            Seconds.
        """
        results = self._of(dataset, method)
        return math.fsum(r.fit_seconds for r in results) / len(results)

    def intervals(self, dataset: str) -> dict[str, dict[str, Interval]]:
        """95 % confidence intervals of the means, by the bootstrap over queries.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        dict
            {method: {metric: (low, high)}}.
        """
        self._check("dataset", dataset, self.datasets)
        return self._intervals[dataset][0]

    def tests(self, dataset: str) -> tuple[PairedTest, ...]:
        """Paired tests of every other method against the reference, on every metric.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        tuple of PairedTest
            The tests; empty if there is only one method.
        """
        self._check("dataset", dataset, self.datasets)
        return self._tests[dataset]

    def describe(self, dataset: str) -> str:
        """Describe how the means of a data set are computed: the metrics' convention, the number of queries.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        str
            The sentence.
        """
        self._check("dataset", dataset, self.datasets)
        return self.statements[dataset]

    @cached_property
    def _index(self) -> dict[tuple[str, str, str], Result]:
        return {(r.dataset, r.method, r.fold): r for r in self.results}

    def _of(self, dataset: str, method: str) -> list[Result]:
        self._check("method", method, self.methods)
        return [self._index[dataset, method, fold] for fold in self.folds(dataset)]

    def _check(self, what: str, name: str, names: tuple[str, ...]) -> None:
        if name not in names:
            raise KeyError(f"{what} {name!r} was not compared; there is {listed(names)}")

    def _values(self, dataset: str, method: str) -> Floats:
        """Values of all metrics, of shape (test queries, metrics), with the folds one after another."""
        folds = [np.stack([r.per_query[k] for k in self.metrics], axis=1) for r in self._of(dataset, method)]
        return np.concatenate(folds)

    @cached_property
    def _intervals(self) -> dict[str, tuple[dict[str, dict[str, Interval]], dict[str, dict[str, Interval]]]]:
        """Confidence intervals as {data set: (means, differences)}.

        `means` has the intervals of the means, and `differences` those of the differences from the reference
        method. Each of the two is {method: {metric: (low, high)}}.
        """
        found = {}
        for dataset in self.datasets:
            sizes = [len(r.queries) for r in self._of(dataset, self.methods[0])]
            values = {method: self._values(dataset, method) for method in self.methods}
            columns = [*values.values(), *(V - values[self.against] for V in values.values())]
            folds = np.repeat(np.arange(len(sizes)), sizes)
            bounds = bootstrap_intervals(np.concatenate(columns, axis=1), folds)
            pairs: Iterator[Interval] = ((float(low), float(high)) for low, high in bounds)
            both = [{m: {k: next(pairs) for k in self.metrics} for m in self.methods} for _ in range(2)]
            found[dataset] = both[0], both[1]
        return found

    @cached_property
    def _tests(self) -> dict[str, tuple[PairedTest, ...]]:
        return {dataset: tuple(self._tests_of(dataset)) for dataset in self.datasets}

    def _tests_of(self, dataset: str) -> Iterator[PairedTest]:
        others = [method for method in self.methods if method != self.against]
        if not others:
            return
        reference = self._values(dataset, self.against)
        queries = [q for r in self._of(dataset, self.against) for q in r.queries]
        D = np.stack(
            [_once_a_query(self._values(dataset, m) - reference, queries) for m in others], axis=1
        )  # shape (queries, methods other than the reference, metrics)
        p, corrected = paired_p_values(D)
        means = self.means(dataset)
        for i, method in enumerate(others):
            for j, metric in enumerate(self.metrics):
                yield PairedTest(
                    dataset,
                    metric,
                    method,
                    self.against,
                    int(np.count_nonzero(~np.isnan(D[:, i, j]))),
                    means[method][metric] - means[self.against][metric],
                    self._intervals[dataset][1][method][metric],
                    *(float(x) for x in p[:, i, j]),
                    *(float(x) for x in corrected[:, i, j]),
                )

    def as_record(self) -> dict[str, Any]:
        """The whole comparison as plain data for JSON.

        NaN becomes None, and query ids become whole numbers or text.

        Returns
        -------
        dict
            The data.
        """
        return {
            "format": "sinkprop-comparison",
            "version": VERSION,
            "library": sinkprop.__version__,
            "methods": list(self.methods),
            "descriptions": dict(self.descriptions),
            "ours": list(self.ours),
            "metrics": list(self.metrics),
            "against": self.against,
            "convention": self.convention,
            "datasets": [self._data_set_record(dataset) for dataset in self.datasets],
        }

    def _data_set_record(self, dataset: str) -> dict[str, Any]:
        means, intervals = self.means(dataset), self.intervals(dataset)
        methods = []
        for method in self.methods:
            folds = [
                {
                    "fold": r.fold,
                    "means": dict(r.means),
                    "fit_seconds": _number(r.fit_seconds),
                    "predict_seconds": r.predict_seconds,
                    "summary": _finite(r.summary),
                    "warnings": list(r.warnings),
                    "queries": [plain_id(q) for q in r.queries],
                    "per_query": {k: [_number(x) for x in v.tolist()] for k, v in r.per_query.items()},
                    "details": None if r.details is None else r.details.as_record(),
                }
                for r in self._of(dataset, method)
            ]
            methods.append(
                {
                    "method": method,
                    "means": means[method],
                    "intervals": {k: list(map(_number, pair)) for k, pair in intervals[method].items()},
                    "fit_seconds": _number(self.fit_seconds(dataset, method)),
                    "folds": folds,
                }
            )
        return {
            "dataset": dataset,
            "n_queries": self.n_queries(dataset),
            "statement": self.statements[dataset],
            "methods": methods,
            "tests": self.test_records(dataset),
            "published": [vars(row) | {"means": dict(row.means)} for row in published_rows(dataset)],
            "data": {fold: data.as_record() for fold, data in self.data.get(dataset, {}).items()},
        }

    def test_records(self, dataset: str) -> list[dict[str, Any]]:
        """Paired tests of a data set as plain data.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        list of dict
            One record per test.
        """
        tests = []
        for t in self.tests(dataset):
            record = {name: _number(value) for name, value in vars(t).items() if name != "dataset"}
            tests.append({**record, "interval": list(map(_number, t.interval)), "verdict": t.verdict})
        return tests

    def to_json(self) -> str:
        """The whole comparison as JSON text, with each list of numbers on one line.

        Returns
        -------
        str
            The text.
        """
        return "".join(_lines(self.as_record(), "\n")) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Read a comparison that `to_json` wrote.

        Means, intervals and tests are computed again from the results.

        Parameters
        ----------
        text : str
            JSON text.

        Returns
        -------
        Comparison
            The comparison.
        """
        try:
            record = json.loads(text, parse_float=finite_number, parse_constant=finite_number)
            if record["format"] != "sinkprop-comparison" or record["version"] not in range(1, VERSION + 1):
                raise ValueError(f"format {record['format']!r}, version {record['version']!r}")
            check_record(record)
            results = tuple(
                Result(
                    data["dataset"],
                    fold["fold"],
                    method["method"],
                    tuple(fold["queries"]),
                    {k: np.array(v, dtype=np.float64) for k, v in fold["per_query"].items()},
                    fold["means"],
                    math.nan if fold["fit_seconds"] is None else fold["fit_seconds"],
                    fold["predict_seconds"],
                    fold["summary"],
                    tuple(fold["warnings"]),
                    Details.from_record(fold["details"]) if fold.get("details") else None,
                )
                for data in record["datasets"]
                for method in data["methods"]
                for fold in method["folds"]
            )
            return cls(
                tuple(data["dataset"] for data in record["datasets"]),
                tuple(record["methods"]),
                tuple(record["metrics"]),
                record["against"],
                record["convention"],
                results,
                {data["dataset"]: data["statement"] for data in record["datasets"]},
                record.get("descriptions", {}),
                tuple(record.get("ours", ())),
                {
                    data["dataset"]: {
                        fold: FoldData.from_record(own) for fold, own in data.get("data", {}).items()
                    }
                    for data in record["datasets"]
                },
            )
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())
            raise ValueError(f"not a comparison that sinkprop wrote as JSON: {message}.") from None

    def to_csv(self) -> str:
        """Means as CSV text with the columns dataset, fold, method, metric, value.

        Rows whose fold is "mean" have the mean over the folds. The times of fitting and ranking appear as two
        more metrics, fit_seconds and predict_seconds.

        Returns
        -------
        str
            The text.
        """
        rows: list[tuple[object, ...]] = []
        for dataset in self.datasets:
            for method in self.methods:
                results = self._of(dataset, method)
                for r in results:
                    seconds = {"fit_seconds": r.fit_seconds, "predict_seconds": r.predict_seconds}
                    rows += [(dataset, r.fold, method, k, x) for k, x in {**r.means, **seconds}.items()]
                means = {k: self.mean(dataset, method, k) for k in self.metrics}
                means["fit_seconds"] = self.fit_seconds(dataset, method)
                means["predict_seconds"] = math.fsum(r.predict_seconds for r in results) / len(results)
                rows += [(dataset, "mean", method, k, x) for k, x in means.items()]
        return _csv(("dataset", "fold", "method", "metric", "value"), rows)

    def per_query_csv(self) -> str:
        """Metrics of every query as CSV text with the columns dataset, fold, method, query, metric, value.

        The value is empty if the convention leaves the query out of the mean.

        Returns
        -------
        str
            The text.
        """
        rows = [
            (r.dataset, r.fold, r.method, plain_id(query), metric, "" if math.isnan(value) else value)
            for dataset in self.datasets
            for method in self.methods
            for r in self._of(dataset, method)
            for metric in self.metrics
            for query, value in zip(r.queries, r.per_query[metric].tolist(), strict=True)
        ]
        return _csv(("dataset", "fold", "method", "query", "metric", "value"), rows)


def _once_a_query(D: Floats, queries: list[Hashable]) -> Floats:
    """Return one row per query: the mean of the rows of D that belong to the query.

    A query has several rows if several folds test it. D has shape (rows, metrics), and `queries` has the
    query id of each row.
    """
    places: dict[Hashable, int] = {}
    codes = np.array([places.setdefault(q, len(places)) for q in queries])
    if len(places) == len(queries):
        return D
    totals = np.zeros((len(places), D.shape[1]))
    np.add.at(totals, codes, D)
    return totals / np.bincount(codes)[:, None]


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(value: Any) -> Any:
    """Replace numbers that are infinite or NaN by None in plain data.

    An example of such a number is the penalty of least squares, which is infinite.
    """
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else _number(value)


def _lines(value: Any, line: str) -> Iterator[str]:
    """Yield pieces of JSON text with one item per line, but each list of numbers or strings on one line.

    `line` is a line break followed by the indentation of `value`.
    """
    if isinstance(value, dict) and value:
        opening = "{"
        for key, item in value.items():
            yield f"{opening}{line}  {json.dumps(key, ensure_ascii=False)}: "
            yield from _lines(item, f"{line}  ")
            opening = ","
        yield line + "}"
    elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        opening = "["
        for item in value:
            yield f"{opening}{line}  "
            yield from _lines(item, f"{line}  ")
            opening = ","
        yield line + "]"
    else:
        yield json.dumps(value, allow_nan=False, ensure_ascii=False)


def plain_id(query: Hashable) -> int | str:
    """Return a query id unchanged if it is an integer or text, and otherwise as text."""
    return query if isinstance(query, int | str) and not isinstance(query, bool) else str(query)


def _csv(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
