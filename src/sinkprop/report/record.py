"""The data of a report: everything that its page shows, as plain JSON.

`comparison_report` makes the data from a comparison, in memory or read from `sinkprop compare --json`, and
`models_report` from saved models and a file of queries. Missing numbers are None. Details that a page of a
few megabytes cannot hold are left out, with a note in the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import sinkprop
from sinkprop.common.plain_data import plain_data
from sinkprop.data.frames import load_frame
from sinkprop.data.queries import Queries
from sinkprop.experiment.details import Budget, Details, FoldData, details_of, fold_data, shown_scores
from sinkprop.experiment.methods import METHODS, is_ours
from sinkprop.experiment.published import published_rows
from sinkprop.experiment.results import Comparison, Result, plain_id
from sinkprop.experiment.rounding import whole_number
from sinkprop.experiment.run import DEFAULT_METRICS
from sinkprop.experiment.scoring import loaded, ranking_scores
from sinkprop.experiment.systems.scores import scores_of_rows
from sinkprop.experiment.tables import main_metric
from sinkprop.metrics.conventions import Convention, as_convention, listed
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.measures import Metric, parse_metrics
from sinkprop.report.explanations import explanations
from sinkprop.report.explorer import MatrixRoom, explorer

__all__ = ["comparison_report", "models_report"]

# Limits that keep a report at about five megabytes
MAX_QUERIES = 5_000  # maximum number of queries that are listed with their metrics
MAX_VALUES = 100_000  # maximum number of metric values that a report lists, over all queries and methods
MAX_STEPS = 12_000  # maximum number of training steps that a report shows, over all methods and folds
# metrics of each query that are listed if there is no room for all metrics
_FEW = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map")


def comparison_report(
    comparison: Comparison,
    *,
    title: str | None = None,
    command: str | None = None,
    about: Mapping[str, str] | None = None,
    query_names: Mapping[Any, str] | None = None,
) -> dict[str, Any]:
    """Make the data of a report on a comparison.

    Parameters
    ----------
    comparison : Comparison
        The comparison. If it was saved without details, the report has no training curves, no feature weights
        and no documents.
    title : str, optional
        Title of the page. By default made from the names of the data sets.
    command : str, optional
        Command that made the report, shown at the end of the page.
    about : mapping, optional
        Description of each data set for readers who do not know it, {data set: text}.
    query_names : mapping, optional
        Text of each query, {query id: text}.

    Returns
    -------
    dict
        The data, for `report_html` and `write_report`.
    """
    room = _Room(comparison)
    count = len(comparison.methods)
    return {
        "format": "sinkprop-report",
        "version": 1,
        "library": sinkprop.__version__,
        "title": f"Comparison on {listed(comparison.datasets)}" if title is None else title,
        "subtitle": _subtitle(comparison, count),
        "command": command,
        "methods": [
            {
                "name": name,
                "description": _description(comparison, name),
                "ours": name in comparison.ours if comparison.descriptions else is_ours(name),
            }
            for name in comparison.methods
        ],
        "metrics": list(comparison.metrics),
        "main": main_metric(comparison.metrics),
        "against": comparison.against,
        "convention": comparison.convention,
        "datasets": [
            _data_set(comparison, name, (about or {}).get(name), query_names or {}, room)
            for name in comparison.datasets
        ],
    }


def models_report(
    models: Mapping[str, Any],
    test: Any,
    *,
    qid: str = "qid",
    label: str = "label",
    docid: str | None = None,
    metrics: str | Metric | Iterable[str | Metric] = DEFAULT_METRICS,
    convention: str | Convention = "standard",
    title: str | None = None,
    name: str = "data",
    command: str | None = None,
    about: str | None = None,
    query_names: Mapping[Any, str] | None = None,
) -> dict[str, Any]:
    """Make the data of a report on fitted rankers, evaluated on test queries.

    Parameters
    ----------
    models : mapping
        Fitted rankers, {name: ranker}. In place of a ranker, an array of shape (N,) has the scores of a
        system of which nothing else is known, such as the ranking in production. The first is the reference
        of the significance tests.
    test : Queries, StoredQueries or data frame
        Queries to evaluate on. A pandas or polars DataFrame or a pyarrow Table has the columns `qid` and
        `label`, and the features of the models. It may have missing values and categories if the models
        accept them.
    qid : str, default "qid"
        Data frame: column of the query ids.
    label : str, default "label"
        Data frame: column of the labels.
    docid : str, optional
        Data frame: column of the document names.
    metrics : str, Metric or iterable of these, optional
        Metrics to compute. By default those of `sinkprop compare`.
    convention : str or Convention, default "standard"
        Convention of the metrics.
    title : str, optional
        Title of the page. By default made from the number of models and `name`.
    name : str, default "data"
        Name of the data.
    command : str, optional
        Command that made the report, shown at the end of the page.
    about : str, optional
        Description of the data for readers who do not know it.
    query_names : mapping, optional
        Text of each query, {query id: text}.

    Returns
    -------
    dict
        The data, for `report_html` and `write_report`.
    """
    if not models:
        raise ValueError("models must have at least one fitted ranker, or the scores of one; got none.")
    given, models = models, {name: one for name, one in models.items() if _is_ranker(one)}
    test = _as_queries(test, models, qid=qid, label=label, docid=docid)
    wanted, rules = parse_metrics(metrics), as_convention(convention)
    arrays = {
        name: scores_of_rows(f"models[{name!r}]", x, len(test))
        for name, x in given.items()
        if name not in models
    }
    budget = Budget.of(n_methods=len(given), n_folds=1, n_datasets=1)
    data = fold_data({"test": test}, threshold=rules.threshold, budget=budget)
    results, statement = [], ""
    for method, ranker in given.items():
        began = time.perf_counter()
        scores = arrays[method] if method in arrays else ranking_scores(ranker, test)
        seconds = math.nan if method in arrays else time.perf_counter() - began
        found = evaluate(test, scores, metrics=wanted, convention=rules)
        statement = found.definition()
        if method in arrays:
            details = Details(shown_scores(scores, test, data))
        else:
            details = details_of(ranker, test, data, calibration=True)
        queries = tuple(found.queries.tolist())
        measured = (found.per_query, dict(found), math.nan, seconds)
        results.append(Result(name, _FOLD, str(method), queries, *measured, details=details))
    comparison = Comparison(
        (name,),
        tuple(map(str, given)),
        tuple(map(str, wanted)),
        str(next(iter(given))),
        rules.name,
        tuple(results),
        {name: statement},
        {str(method): _kind(models.get(method)) for method in given},
        tuple(str(method) for method, ranker in models.items() if is_ours("", ranker)),
        {name: {_FOLD: data}},
    )
    report = comparison_report(
        comparison,
        title=f"{_systems(len(models), len(arrays))} on {name}" if title is None else title,
        command=command,
        about={name: _about_systems(len(models), len(arrays)) if about is None else about},
        query_names=query_names,
    )
    explored = report["datasets"][0]["explorer"]
    for method in arrays if explored else ():
        explored["distributions"].pop(str(method))  # scores alone have no probabilities
    shown = (report["datasets"][0]["explorer"] or {}).get("distributions", {})
    explained = explanations(
        {str(method): ranker for method, ranker in models.items()},
        test,
        data,
        {method: by_fold[_FOLD] for method, by_fold in shown.items()},
        rules,
    )
    if explained:
        report["datasets"][0]["explanations"] = explained
    clicks = _clicks(models)
    if clicks:
        report["datasets"][0]["clicks"] = clicks
    return report


def _is_ranker(one: Any) -> bool:
    return callable(getattr(one, "predict", None)) or callable(getattr(one, "rank", None))


def _clicks(models: Mapping[str, Any]) -> dict[str, Any]:
    """Clicks that models were trained on, as {method: {fold: record}}, for models that were."""
    found = {str(method): getattr(ranker, "clicks_", None) for method, ranker in models.items()}
    return {
        method: {_FOLD: plain_data(own, finite=True)}
        for method, own in found.items()
        if isinstance(own, Mapping)  # other libraries' estimators may have an attribute of this name
    }


def _as_queries(test: Any, models: Mapping[str, Any], **columns: Any) -> Queries:
    """Return the test queries in memory. `columns` has the names of the columns of a data frame."""
    if isinstance(test, Queries):
        return test
    if hasattr(test, "block_queries"):  # a stored set
        return loaded(test)
    names = next((m.feature_names_in_ for m in models.values() if hasattr(m, "feature_names_in_")), None)
    categories = {name: None for m in models.values() for name in getattr(m, "categories_", ())}
    return load_frame(
        test,
        **columns,
        features=None if names is None else list(names),
        allow_nan=True,
        categorical=list(categories),
    )


_FOLD = "test"
_ABOUT_MODELS = (
    "Saved models, each applied to all queries of one file. If some of these queries were used in training, "
    "the results are too optimistic."
)


_ABOUT_SCORES = "Given scores of the documents, such as those of another program, are compared as they are."


def _systems(n_models: int, n_scores: int) -> str:
    models = ["A saved model" if n_models == 1 else f"{n_models} saved models"] * bool(n_models)
    scores = ["given scores" if n_models else "Given scores"] * bool(n_scores)
    return " and ".join(models + scores)


def _about_systems(n_models: int, n_scores: int) -> str:
    return " ".join([_ABOUT_MODELS] * bool(n_models) + [_ABOUT_SCORES] * bool(n_scores))


def _kind(ranker: Any) -> str:
    """Description of a ranker in words; of None, which stands for given scores."""
    if ranker is None:
        return "given scores"
    kind = type(ranker).__name__
    known = {
        "SinkPropRanker": "a linear model trained on the expected metric by Sinkhorn propagation",
        "BoostedRanker": "boosted trees trained on the expected metric",
        "NeuralRanker": "a neural network",
        "RegressionRanker": "least squares on the labels",
        "SmoothRankRanker": "SmoothRank: half an iteration of sinkprop",
        "ListNetRanker": "ListNet",
        "AdaRankRanker": "AdaRank",
        "SoftRankRanker": "SoftRank",
        "BoltzRankRanker": "BoltzRank",
        "FeatureRanker": "one feature as the score",
        "LightGBMRanker": "boosted trees, by LightGBM",
        "XGBoostRanker": "boosted trees, by XGBoost",
        "CatBoostRanker": "boosted trees, by CatBoost",
    }
    return known.get(kind, kind)


def _description(comparison: Comparison, name: str) -> str:
    if name in comparison.descriptions:
        return comparison.descriptions[name]
    return METHODS[name].description if name in METHODS else ""


def _subtitle(comparison: Comparison, n_methods: int) -> str:
    folds = sum(len(comparison.folds(name)) for name in comparison.datasets)
    queries = sum(comparison.n_queries(name) for name in comparison.datasets)
    parts = [
        _counted(n_methods, "method"),
        *([_counted(len(comparison.datasets), "data set")] if len(comparison.datasets) > 1 else []),
        *([_counted(folds, "fold")] if folds > len(comparison.datasets) else []),
        f"{_counted(queries, 'test query', 'test queries')}",
    ]
    return ", ".join(parts)


def _counted(n: int, one: str, several: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def _data_set(
    comparison: Comparison,
    dataset: str,
    about: str | None,
    names: Mapping[Any, str],
    room: _Room,
) -> dict[str, Any]:
    means, intervals = comparison.means(dataset), comparison.intervals(dataset)
    methods, metrics, folds = comparison.methods, comparison.metrics, comparison.folds(dataset)
    data = comparison.data.get(dataset) or None
    listing = _Listing(comparison, dataset, names, room)
    results = {m: {fold: comparison.result(dataset, m, fold) for fold in folds} for m in methods}
    return {
        "name": dataset,
        "statement": comparison.describe(dataset),
        "about": _about(comparison, dataset) if about is None else about,
        "glance": None if data is None else _glance(comparison, dataset, data),
        "means": {m: {k: _number(x) for k, x in means[m].items()} for m in methods},
        "intervals": {m: {k: [_number(x) for x in intervals[m][k]] for k in metrics} for m in methods},
        "folds": {
            m: {f: {k: _number(r.means[k]) for k in metrics} for f, r in results[m].items()} for m in methods
        },
        "seconds": {m: _seconds(list(results[m].values())) for m in methods},
        "tests": comparison.test_records(dataset),
        "published": _published(comparison, dataset),
        "queries": listing.queries,
        "per_query": listing.values,
        "per_query_note": listing.note,
        "training": _training(results, room.steps),
        "weights": _weights(results, data),
        "calibration": _calibration(results),
        "explorer": explorer(results, data, listing.index, room.matrices),
    }


def _number(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else float(x)


def _about(comparison: Comparison, dataset: str) -> str:
    folds = comparison.folds(dataset)
    once = "The data have one split" if len(folds) == 1 else f"The data have {len(folds)} folds"
    return (
        f"{once}: each method is trained on the training queries, selects its hyperparameters on validation "
        "queries or held-out training queries, and is evaluated on test queries, which it has not seen."
    )


def _published(comparison: Comparison, dataset: str) -> list[dict[str, Any]]:
    """Published means of other methods.

    Empty unless the comparison uses the convention letor, as the published means do.
    """
    if comparison.convention != "letor":
        return []
    return [{"method": row.method, "means": dict(row.means)} for row in published_rows(dataset)]


def _seconds(results: Sequence[Result]) -> dict[str, float | None]:
    def mean(values: list[float]) -> float | None:
        return _number(math.fsum(values) / len(values))

    return {
        "fit": mean([r.fit_seconds for r in results]),
        "predict": mean([r.predict_seconds for r in results]),
    }


def _glance(comparison: Comparison, dataset: str, data: Mapping[str, FoldData]) -> dict[str, Any]:
    """Numbers of test queries, of their documents, and of documents with each label.

    A query that is tested in several folds counts once.
    """
    seen: dict[Hashable, tuple[int, int]] = {}
    counts: dict[float, int] = {}
    for fold, own in data.items():
        queries = comparison.result(dataset, comparison.methods[0], fold).queries
        new = [q not in seen for q in queries]
        for q, length, relevant in zip(queries, own.lengths, own.relevant, strict=True):
            seen.setdefault(q, (length, relevant))
        for label, by_query in own.labels.items():
            added = sum(n for n, is_new in zip(by_query, new, strict=True) if is_new)
            counts[label] = counts.get(label, 0) + added
    labels = sorted(counts)
    return {
        "queries": len(seen),
        "documents": sum(length for length, _ in seen.values()),
        "features": next(iter(data.values())).n_features,
        "parts": [
            {"fold": fold, "part": part, "queries": queries, "documents": documents}
            for fold, own in data.items()
            for part, (queries, documents) in own.parts.items()
        ],
        "lengths": {"values": [length for length, _ in seen.values()]},
        "labels": {"values": [whole_number(x) for x in labels], "counts": [counts[x] for x in labels]},
        "without_relevant": sum(relevant == 0 for _, relevant in seen.values()),
    }


class _Listing:
    """The report's list of test queries with their metrics, fold by fold.

    If there are too many queries, the list has an evenly spaced sample of them. If there are too many values,
    only some of the metrics are listed.

    index    {(fold, index of a test query in its fold): index of the query in the list}.
    queries  Id, name, fold, number of documents and number of relevant documents of each query.
    values   {method: {metric: values of the queries}}.
    note     Sentence about the sample; None if all queries are listed.
    """

    def __init__(self, comparison: Comparison, dataset: str, names: Mapping[Any, str], room: _Room) -> None:
        folds, methods = comparison.folds(dataset), comparison.methods
        data = comparison.data.get(dataset, {})
        all_places = [
            (fold, i)
            for fold in folds
            for i in range(len(comparison.result(dataset, methods[0], fold).queries))
        ]
        total = len(all_places)
        count = min(total, room.queries)
        # the list must contain the queries of the ranking explorer, which stores their indices in the list
        shown = {(fold, q) for fold in folds if fold in data for q in data[fold].shown}
        evenly = {all_places[i] for i in np.round(np.linspace(0, total - 1, count)).astype(int).tolist()}
        places = all_places if count == total else [p for p in all_places if p in shown or p in evenly]
        metrics = list(comparison.metrics)
        if len(places) * len(methods) * len(metrics) > room.values:
            main = main_metric(comparison.metrics)
            metrics = [k for k in metrics if k in (*_FEW, main)]
            if len(places) * len(methods) * len(metrics) > room.values:
                metrics = [main]
        self.index = {place: i for i, place in enumerate(places)}
        self.queries = []
        for fold, i in places:
            query, own = comparison.result(dataset, methods[0], fold).queries[i], data.get(fold)
            self.queries.append(
                {
                    "id": plain_id(query),
                    "name": names.get(query),
                    "fold": fold,
                    "documents": None if own is None else own.lengths[i],
                    "relevant": None if own is None else own.relevant[i],
                }
            )
        self.values = {}
        for method in methods:
            own_values = {fold: comparison.result(dataset, method, fold).per_query for fold in folds}
            # rounded, so that values that differ only by rounding errors are equal
            self.values[method] = {
                k: [_rounded(own_values[fold][k][i]) for fold, i in places] for k in metrics
            }
        self.note = None
        if len(places) < total:
            self.note = (
                f"An even sample of {len(places):,} of {total:,} queries; the means are over all queries."
            )


def _rounded(x: float) -> float | None:
    return round(float(x), 7) if math.isfinite(x) else None


def _by_method(results: Mapping[str, Mapping[str, Result]], name: str) -> dict[str, Any]:
    """Return the field `name` of the results' details as {method: {fold: value}}.

    Results without details, or whose field is None, are left out.
    """
    found: dict[str, Any] = {}
    for method, by_fold in results.items():
        for fold, r in by_fold.items():
            value = None if r.details is None else getattr(r.details, name)
            if value is not None:
                found.setdefault(method, {})[fold] = value
    return found


def _training(results: Mapping[str, Mapping[str, Result]], limit: int) -> dict[str, Any]:
    """Training records as {method: {fold: record}}.

    If the records together have more than `limit` steps, each record is shortened in two ways. First, steps
    with other hyperparameters than the selected step are dropped (those with another "path", see
    `training_of`); steps whose "path" is None stay. Then an evenly spaced sample of the remaining steps is
    kept, which includes the selected step and the last.
    """
    found = _by_method(results, "training")
    records = [record for own in found.values() for record in own.values()]
    if sum(len(record["steps"]) for record in records) <= limit:
        return found
    share = max(2, limit // len(records))
    return {m: {fold: _shortened(record, share) for fold, record in own.items()} for m, own in found.items()}


def _shortened(record: Mapping[str, Any], most: int) -> dict[str, Any]:
    steps, chosen = record["steps"], record["chosen"]
    kept = [i for i, step in enumerate(steps) if step["path"] in (None, steps[chosen]["path"])]
    every = -(-len(kept) // most)
    kept = sorted({*kept[::every], kept[-1], chosen})
    if len(kept) == len(steps):
        return dict(record)
    return {
        **record,
        "steps": [steps[i] for i in kept],
        "chosen": kept.index(chosen),
        "stopped": [kept.index(i) for i in record["stopped"] if i in kept],
        "message": f"{record['message']} Shown are {len(kept)} of {len(steps)} steps, of the chosen setting.",
    }


def _weights(
    results: Mapping[str, Mapping[str, Result]], data: Mapping[str, FoldData] | None
) -> dict[str, Any]:
    found = {}
    for method, by_fold in _by_method(results, "weights").items():
        first = next(iter(by_fold.values()))
        known = None if data is None else next(iter(data.values())).feature_names
        names = [f"feature {i}" for i in range(1, len(first["values"]) + 1)] if known is None else list(known)
        # a feature has an indicator in the folds whose training queries lack some of its values
        missing = sorted({int(i) for own in by_fold.values() for i in own.get("missing", ())})
        found[method] = {
            "kind": first["kind"],
            "explanation": max((own["explanation"] for own in by_fold.values()), key=len),
            "features": names + [f"missing({names[i]})" for i in missing],
            "folds": {
                fold: [*own["values"], *(own.get("missing", {}).get(str(i), 0.0) for i in missing)]
                for fold, own in by_fold.items()
            },
        }
    return found


def _calibration(results: Mapping[str, Mapping[str, Result]]) -> dict[str, Any]:
    """Checks of calibrations as {method: {fold: record}}, for methods that have a calibration."""
    return {
        method: {fold: own["report"] for fold, own in by_fold.items()}
        for method, by_fold in _by_method(results, "calibration").items()
    }


class _Room:
    """Limits on the size of a report.

    values    Maximum number of metric values that are listed per data set.
    queries   Maximum number of queries that are listed per data set.
    steps     Maximum number of training steps that are shown per data set, over all methods and folds.
    matrices  Room for the stored rank distributions of all data sets together.
    """

    def __init__(self, comparison: Comparison) -> None:
        n_datasets, n_methods = len(comparison.datasets), len(comparison.methods)
        self.values = MAX_VALUES // n_datasets
        self.queries = max(1, min(MAX_QUERIES // n_datasets, self.values // n_methods))
        self.steps = MAX_STEPS // n_datasets
        self.matrices = MatrixRoom(comparison)
