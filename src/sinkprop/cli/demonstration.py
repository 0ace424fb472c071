"""The demonstration: BM25, least squares and SinkProp on search over Python's own documentation.

The data set ships with sinkprop and has five folds like LETOR's data sets: three fifths of the queries are
for training, one fifth for validation and one fifth for testing.
"""

from __future__ import annotations

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
]


BM25, LEAST_SQUARES, SINKPROP = METHODS = ("BM25", "least squares", "SinkProp")
BEFORE = BM25  # the method whose ranking is shown as "before" in the examples
METRICS = "ndcg@1-10,map"
MAIN = "ndcg@10"
_BM25_FEATURE = "whole_bm25"


@dataclass(frozen=True, eq=False)
class Trained:
    """A fold with its trained models and their results. The keys of mappings are names of methods.

    fold             Training, validation and test queries.
    rankers          Fitted ranker of each method. The property `ranker` is the one of SinkProp.
    scores           Scores (N,) of the test documents by each method.
    seconds          Time of all fits and predictions of this fold.
    fit_seconds      Time of each method's fit.
    predict_seconds  Time of each method to score the test documents.
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


@dataclass(frozen=True)
class Difference:
    """The difference between two methods in a metric, paired over queries.

    above, below  Names of the methods; positive differences favor `above`.
    mean          Mean difference.
    low, high     95 % confidence interval of the mean, by bootstrap over queries.
    p             p-value of the two-sided paired t-test.
    """

    above: str
    below: str
    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Example:
    """A test query, ranked by BM25 (the constant `BEFORE`) and by SinkProp.

    why            Reason why this query is shown.
    query          Query id.
    before, after  Top documents of the ranking by BM25 and by SinkProp, respectively. Each document is a
                   tuple (docid, label).
    value_before, value_after
                   NDCG@10 of the ranking by BM25 and by SinkProp, respectively.
    """

    why: str
    query: Hashable
    before: tuple[tuple[str, float], ...]
    after: tuple[tuple[str, float], ...]
    value_before: float
    value_after: float


@dataclass(frozen=True, eq=False)
class Results:
    """Results of the demonstration on the test queries of all folds.

    n_queries    Number of test queries.
    means        {method: {metric: mean over the test queries}}.
    convention   Description of the definitions of the metrics.
    differences  Differences of SinkProp from each other method in NDCG@10.
    examples     Up to three example queries.
    """

    n_queries: int
    means: Mapping[str, Mapping[str, float]]
    convention: str
    differences: tuple[Difference, ...]
    examples: tuple[Example, ...]


def run_fold(fold: Fold, watch: Callable[[Stage], None] | None = None) -> Trained:
    """Train the models of a fold, score its test queries, and return the models with the scores.

    SinkProp's fit consists of stages, each of which trains with one penalty. `watch` is called with each
    stage when it is finished. Raises KeyboardInterrupt if SinkProp's fit is interrupted.
    """
    began = time.perf_counter()
    data, vali = fold.train, fold.vali
    ranker = SinkPropRanker(on_stage=watch, verbose=False)
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
    """Return the index of the feature that is BM25 of the whole document."""
    names = queries.feature_names or ()
    if _BM25_FEATURE not in names:
        raise ValueError(f"the data must have a feature {_BM25_FEATURE!r}; it has {', '.join(names)}.")
    return names.index(_BM25_FEATURE)


def compare(tested: Sequence[Trained], *, top: int = 5) -> Results:
    """Evaluate the methods on the test queries of all folds, and return the results and comparisons.

    `top` is the number of documents per ranking in the examples.
    """
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
    BM25: "classic formula for how well the words match; it is not trained",
    LEAST_SQUARES: "weighted sum of the features, trained to predict the label of each entry by itself",
    SINKPROP: "weighted sum of the features, trained to put relevant entries at the top of the list",
}
ABOUT = (
    'Each query, such as "delete a directory tree", comes with about a hundred entries of the documentation '
    "of Python's standard library that might answer it. Each entry has a label: 2 if it answers the query, 1 "
    "if it helps, 0 if it does neither.\n\nA method knows an entry by 50 numbers, its features, such as how "
    "often the query's words occur in its name, how rare these words are, and how long the text is. BM25, a "
    "formula that search engines have long used, is one of the features. Least squares and SinkProp learn a "
    "weight for each feature from labeled queries. Least squares is trained to predict each label; SinkProp "
    "is trained to put the relevant entries at the top.\n\nThe confidence intervals show how much a mean "
    "depends on the choice of queries. For each query, the ranking explorer shows the model's rank "
    "probabilities: which entries have a clear place in the ranking, and which could change places."
)


def comparison(tested: Sequence[Trained]) -> Comparison:
    """The results on the test queries as a `Comparison`, for the report."""
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
                        one.rankers[method],
                        fold.test,
                        data[fold.name],
                        train=fold.train,
                        vali=fold.vali,
                        calibration=method == SINKPROP,
                    ),
                )
            )
    n_queries = sum(one.fold.test.n_queries for one in tested)
    over = f"{n_queries} queries" + (f" of {len(tested)} folds" if len(tested) > 1 else "")
    return Comparison(
        (NAME,),
        METHODS,
        tuple(results[0].means),
        LEAST_SQUARES,
        found.convention.name,
        tuple(results),
        {NAME: f"{found.rules()}; mean over {over}."},
        DESCRIPTIONS,
        (SINKPROP,),
        {NAME: data},
    )


def report(tested: Sequence[Trained], texts: Mapping[Any, str]) -> dict[str, Any]:
    """The data of the demonstration's report; `texts` maps query ids to the text of the queries."""
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
    """A readable name for a feature of the data set.

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
    """Return up to three example queries, chosen by the change of NDCG@10 from `before` to `after`.

    They are the query that gained most, the query whose change is closest to the mean change, and the query
    that lost most. A query that fits two of these descriptions is returned once.

    before  (Q,) NDCG@10 of each test query, ranked by BM25 (the constant `BEFORE`).
    after   (Q,) NDCG@10 of each test query, ranked by SinkProp.
    top     Number of documents per ranking.
    """
    places = [(one, q) for one in tested for q in range(one.fold.test.n_queries)]
    gain = after - before
    least = int(np.argmin(gain))
    chosen = {
        int(np.argmax(gain)): "The query that gained most",
        int(np.argmin(np.abs(gain - gain.mean()))): "The query whose change is closest to the mean change",
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
