"""The demonstration: BM25, least squares and SinkProp on search over Python's own documentation.

The data set ships with sinkprop and is divided into five folds as LETOR's are: three parts to train on, one
to choose by, one to test on. Each fold's models are tested on queries that took no part in making them.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.baselines import FeatureRanker, RegressionRanker
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Fold, Queries
from sinkprop.experiment.details import Budget, details_of, fold_data
from sinkprop.experiment.results import Comparison, Result
from sinkprop.experiment.significance import bootstrap_intervals, t_test
from sinkprop.linear.ranker import SinkPropRanker
from sinkprop.linear.records import Stage
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.ranking import ranking

__all__ = [
    "BEFORE",
    "METHODS",
    "METRICS",
    "Difference",
    "Example",
    "Results",
    "Trained",
    "compare",
    "comparison",
    "report",
    "run_fold",
    "untrained",
]


BM25, LEAST_SQUARES, SINKPROP = METHODS = ("BM25", "least squares", "SinkProp")
BEFORE = BM25  # what the examples show the change from
METRICS = "ndcg@1-10,map"
MAIN = "ndcg@10"
_BM25_FEATURE = "whole_bm25"


@dataclass(frozen=True, eq=False)
class Trained:
    """A fold with its model, and the scores (N,) of its test documents by each method.

    rankers     what ranks by each method; `ranker` is SinkProp's
    seconds     of all that was done
    fit_seconds, predict_seconds
                by method
    """

    fold: Fold
    rankers: Mapping[str, Any]
    scores: Mapping[str, Floats]
    seconds: float
    fit_seconds: Mapping[str, float]
    predict_seconds: Mapping[str, float]

    @property
    def ranker(self) -> SinkPropRanker:
        ranker: SinkPropRanker = self.rankers[SINKPROP]
        return ranker

    @property
    def stages(self) -> Sequence[Stage]:
        stages: Sequence[Stage] = self.ranker.fit_result_.stages
        return stages

    @property
    def penalties(self) -> list[float]:
        return sorted({stage.penalty for stage in self.stages if math.isfinite(stage.penalty)})

    @property
    def sigmas(self) -> list[float]:
        """From smooth to sharp."""
        return sorted({stage.sigma for stage in self.stages if stage.sigma is not None}, reverse=True)


@dataclass(frozen=True)
class Difference:
    """The mean difference of a metric between two methods over queries.

    low, high  between which it is, with 95 % of the means of queries drawn anew
    p          of the paired t-test, two-sided
    """

    above: str
    below: str
    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Example:
    """A test query with the first documents before and after, (docid, label) each, and the metric of both."""

    why: str
    query: Hashable
    before: tuple[tuple[str, float], ...]
    after: tuple[tuple[str, float], ...]
    value_before: float
    value_after: float


@dataclass(frozen=True, eq=False)
class Results:
    """Means over all test queries, their convention, differences, and examples."""

    n_queries: int
    means: Mapping[str, Mapping[str, float]]  # method, metric
    convention: str
    differences: tuple[Difference, ...]
    examples: tuple[Example, ...]


def untrained(on_stage: Callable[[Stage], None] | None = None) -> SinkPropRanker:
    # The paper's protocol, and a sixth of the time that the default's cross-validation takes.
    return SinkPropRanker(selection="validation", on_stage=on_stage, verbose=False)


def run_fold(fold: Fold, watch: Callable[[Stage], None] | None = None) -> Trained:
    """Models of a fold's training and validation queries, with their scores of its test queries.

    `watch` is called after each stage of the fit. An interrupt from the keyboard ends it.
    """
    began = time.perf_counter()
    data, vali = fold.train, fold.vali
    ranker = untrained(watch)
    rankers = {
        BM25: FeatureRanker(bm25_column(fold.test) + 1),
        LEAST_SQUARES: RegressionRanker(),
        SINKPROP: ranker,
    }
    scores, fit_seconds, predict_seconds = {}, {}, {}
    for method, own in rankers.items():
        before = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*The fit was interrupted")
            own.fit(data, eval_set=vali)
        fitted = time.perf_counter()
        scores[method] = own.predict(fold.test)
        fit_seconds[method], predict_seconds[method] = fitted - before, time.perf_counter() - fitted
    if ranker.fit_result_.status == "interrupted":
        raise KeyboardInterrupt
    return Trained(fold, rankers, scores, time.perf_counter() - began, fit_seconds, predict_seconds)


def bm25_column(queries: Queries) -> int:
    """The feature that is BM25 of the whole document."""
    names = queries.feature_names or ()
    if _BM25_FEATURE not in names:
        raise ValueError(f"the data must have a feature {_BM25_FEATURE!r}; it has {', '.join(names)}.")
    return names.index(_BM25_FEATURE)


def compare(tested: Sequence[Trained], *, top: int = 5) -> Results:
    """All test queries of the folds together: means, differences of NDCG@10, and three examples."""
    per_query: dict[str, dict[str, list[Floats]]] = {method: {} for method in METHODS}
    for one in tested:
        for method in METHODS:
            result = evaluate(one.fold.test, one.scores[method], metrics=METRICS)
            for name, part in result.per_query.items():
                per_query[method].setdefault(name, []).append(part)
    values = {
        method: {name: np.concatenate(parts) for name, parts in found.items()}
        for method, found in per_query.items()
    }
    folds = np.repeat(np.arange(len(tested)), [one.fold.test.n_queries for one in tested])
    return Results(
        n_queries=len(values[SINKPROP][MAIN]),
        means={
            method: {name: float(x.mean()) for name, x in found.items()} for method, found in values.items()
        },
        convention=result.convention.describe(),
        differences=tuple(
            _difference(SINKPROP, below, values[SINKPROP][MAIN], values[below][MAIN], folds)
            for below in (BM25, LEAST_SQUARES)
        ),
        examples=_examples(tested, values[BEFORE][MAIN], values[SINKPROP][MAIN], top),
    )


TITLE = "Search over Python's documentation"
NAME = "pydocs"
DESCRIPTIONS = {
    BM25: "the classic formula for how well words match; it learns nothing",
    LEAST_SQUARES: "a weighted sum of the features that learned to predict each entry's grade by itself",
    SINKPROP: "the same kind of weighted sum, but taught to put good entries at the top of the list",
}
ABOUT = (
    'People ask things such as "delete a directory tree", and some hundred entries of the documentation '
    "of Python's standard library might answer. Each entry was graded: 2 answers the question, 1 helps, 0 "
    "does neither.\n\nAll that a method knows of an entry are 50 numbers, its features: how often the "
    "question's words occur in its name, how rare these words are, how long the text is. BM25 is one of "
    "them, a formula that search engines have long used. Least squares and SinkProp learned from graded "
    "questions how much each feature should count: least squares so as to guess each grade, SinkProp so "
    "as to have the good entries at the top.\n\nHow sure is it? The intervals say how much a mean owes to "
    "the choice of questions, and the ranking explorer shows, question by question, which entries "
    "SinkProp is sure of and which might as well change places."
)


def comparison(tested: Sequence[Trained]) -> Comparison:
    """The same test as a `Comparison`, for the report."""
    results, data = [], {}
    budget = Budget.of(n_methods=len(METHODS), n_folds=len(tested), n_datasets=1)
    for one in tested:
        fold = one.fold
        parts = {"train": fold.train, "vali": fold.vali, "test": fold.test}
        data[fold.name] = fold_data(parts, budget=budget)
        for method in METHODS:
            found = evaluate(fold.test, one.scores[method], metrics=METRICS)
            results.append(
                Result(
                    NAME,
                    fold.name,
                    method,
                    tuple(found.queries.tolist()),
                    found.per_query,
                    dict(found),
                    one.fit_seconds[method],
                    one.predict_seconds[method],
                    details=details_of(
                        one.rankers[method], fold.test, data[fold.name], train=fold.train, vali=fold.vali
                    ),
                )
            )
    n_queries = sum(one.fold.test.n_queries for one in tested)
    rules = found.describe().rpartition("; mean over ")[0]
    over = f"{n_queries} queries" + (f" of {len(tested)} folds" if len(tested) > 1 else "")
    return Comparison(
        (NAME,),
        METHODS,
        tuple(results[0].means),
        LEAST_SQUARES,
        found.convention.name,
        tuple(results),
        {NAME: f"{rules}; mean over {over}."},
        DESCRIPTIONS,
        (SINKPROP,),
        {NAME: data},
    )


def report(tested: Sequence[Trained], texts: Mapping[Any, str]) -> dict[str, Any]:
    """The data of the demonstration's report; `texts` has the words of each query."""
    from sinkprop.report.record import comparison_report

    data = comparison_report(
        comparison(tested),
        title=TITLE,
        command="sinkprop demo" + ("" if len(tested) > 1 else f" --fold {tested[0].fold.name[4:]}"),
        about={NAME: ABOUT},
        query_names=texts,
    )
    for weights in data["datasets"][0]["weights"].values():
        weights["features"] = [feature_in_words(name) for name in weights["features"]]
    return data


_OF_FIELDS = {
    "tf": "word count, {}",
    "idf": "rare words, {}",
    "tfidf": "rare words and count, {}",
    "bm25": "BM25, {}",
    "lm_jm": "likelihood, {} (Jelinek-Mercer)",
    "lm_dir": "likelihood, {} (Dirichlet)",
    "lm_abs": "likelihood, {} (discounting)",
    "length": "length, {}",
    "coverage": "share of words, {}",
}
_OF_DOCUMENTS = {
    "parent_bm25": "BM25, class or module",
    "depth": "parts of the name",
    "kind": "kind (method to module)",
    "parameters": "number of parameters",
    "siblings": "number of siblings",
}


def feature_in_words(name: str) -> str:
    """A feature of the data set as someone who has not read its data card would call it.

    >>> feature_in_words("summary_idf"), feature_in_words("whole_bm25"), feature_in_words("siblings")
    ('rare words, summary', 'BM25, all text', 'number of siblings')
    """
    field, _, what = name.partition("_")
    if name in _OF_DOCUMENTS or what not in _OF_FIELDS:
        return _OF_DOCUMENTS.get(name, name)
    return _OF_FIELDS[what].format("all text" if field == "whole" else field)


def _difference(above: str, below: str, x: Floats, z: Floats, folds: Integers) -> Difference:
    low, high = bootstrap_intervals((x - z)[:, None], folds)[0].tolist()
    return Difference(above, below, float((x - z).mean()), low, high, t_test(x - z))


def _examples(tested: Sequence[Trained], before: Floats, after: Floats, top: int) -> tuple[Example, ...]:
    """The query that gained most, one that gained as the mean does, and the one that lost most."""
    places = [(one, q) for one in tested for q in range(one.fold.test.n_queries)]
    gain = after - before
    least = int(np.argmin(gain))
    chosen = {
        int(np.argmax(gain)): "The query that gained most",
        int(np.argmin(np.abs(gain - gain.mean()))): "The query whose change is nearest to the mean change",
        least: "The query that lost most" if gain[least] < 0 else "The query that gained least",
    }
    found = []
    for i, why in chosen.items():
        one, q = places[i]
        query = one.fold.test.groups.queries[q]
        found.append(
            Example(
                why,
                query.item() if hasattr(query, "item") else query,
                _top(one.fold.test, one.scores[BEFORE], q, top),
                _top(one.fold.test, one.scores[SINKPROP], q, top),
                float(before[i]),
                float(after[i]),
            )
        )
    return tuple(found)


def _top(queries: Queries, scores: Floats, q: int, top: int) -> tuple[tuple[str, float], ...]:
    rows = ranking(scores, queries.qid)[q][:top].tolist()
    names = [str(row) for row in rows] if queries.docid is None else [str(queries.docid[row]) for row in rows]
    return tuple((name, float(queries.y[row])) for name, row in zip(names, rows, strict=True))
