"""The protocol of a comparison: on each fold, fit, select on validation queries, rank the test queries.

The fits run in parallel processes, the longest first. Each process reads the fold that it works on, so no
large data are sent between processes. BLAS uses one thread in each process, so the results are the
same for any number of processes.
"""

from __future__ import annotations

import copy
import inspect
import math
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.data.queries import Fold, Queries
from sinkprop.estimator.selection import Selection, as_selection
from sinkprop.experiment.details import Budget, FoldData, details_of, fold_data
from sinkprop.experiment.folds.files import AnyQueries, FoldFiles, Parts
from sinkprop.experiment.methods import Method, is_ours, parse_methods
from sinkprop.experiment.published import published_rows
from sinkprop.experiment.results import Comparison, Result
from sinkprop.experiment.scoring import evaluated, largest_label, loaded, ranking_scores
from sinkprop.experiment.workers import outcomes
from sinkprop.metrics.conventions import Convention, as_convention, listed
from sinkprop.metrics.evaluation import short_queries
from sinkprop.metrics.measures import Metric, parse_metrics

__all__ = ["DEFAULT_METHODS", "DEFAULT_METRICS", "MethodError", "compare"]

DEFAULT_METHODS = "regression,sinkprop"
DEFAULT_METRICS = "ndcg@1-10,p@1,p@3,p@5,p@10,map"
_REFERENCE = "regression"
# Methods with a lower `cost` do not get their own job: it would read the fold again, which takes longer than
# the fit.
_NEXT_TO_NOTHING = 10.0

AnyFold = Fold | FoldFiles
Folds = Sequence[AnyFold]


class MethodError(ValueError):
    """A method failed on a fold; the message names the method and the fold."""


@dataclass(frozen=True, eq=False)
class _Job:
    """A unit of work for one process: methods to run on one fold, one after another."""

    dataset: str
    fold: AnyFold
    methods: tuple[tuple[str, Any], ...]
    metrics: tuple[Metric, ...]
    convention: Convention
    n_threads: int
    cost: float
    budget: Budget

    def __str__(self) -> str:
        return f"{self.dataset} {self.fold.name}, {listed(name for name, _ in self.methods)}"


@dataclass(frozen=True, eq=False)
class _Done:
    """Outcome of a job.

    results    One result per method.
    statement  Convention of the metrics, in words.
    data       Summary of the fold's queries.
    """

    results: tuple[Result, ...]
    statement: str
    data: FoldData


def compare(
    folds: Folds | Mapping[str, Folds],
    methods: str | Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    metrics: str | Metric | Iterable[str | Metric] = DEFAULT_METRICS,
    convention: str | Convention | None = None,
    against: str | None = None,
    selection: str | Selection | None = None,
    n_jobs: int | None = None,
    notify: Notify = silent,
) -> Comparison:
    """Compare methods on the folds of one or several data sets, by metrics of their test queries.

    Parameters
    ----------
    folds : sequence of Fold or FoldFiles, or mapping
        Folds of one data set, or {name: folds} for several. `FoldFiles` are read when they are needed.
        Methods that can stream read a stored set block by block; the others load it.
    methods : str, iterable of str or mapping, default "regression,sinkprop"
        Names of methods in `METHODS`, or {name: estimator} for your own. An estimator is fitted with qid,
        eval_set and eval_qid, or with group, as far as its `fit` accepts them. It ranks by its method `rank`,
        or else by `predict`.
    metrics : str, Metric or iterable of these, default "ndcg@1-10,p@1,p@3,p@5,p@10,map"
        Metrics, such as "ndcg@1-10,map".
    convention : str or Convention, optional
        Convention of the metrics; see `evaluate`. None means "letor" if all data sets have published results
        (see `published_rows`), which use that convention, and otherwise "standard". Methods that are given by
        name also select their models by it; your own estimators keep theirs.
    against : str, optional
        Reference method, with which statistical tests compare the other methods. None means "regression" if
        it is one of the methods, and otherwise the first method.
    selection : str or Selection, optional
        How methods that train several candidate models select one of them; see `Selection`. None keeps each
        method's own selection.
    n_jobs : int, optional
        Number of CPU cores to use; None uses all. Does not change the results.
    notify : callable, optional
        Function notify(done, total, what) that is called to report progress, such as finished fits: `done`
        of `total` units of work are done, and `what` describes the work in words.

    Returns
    -------
    Comparison
        The results.

    Raises
    ------
    MethodError
        If a method fails.
    ValueError
        If a file is invalid; the message names it.

    Examples
    --------
    >>> import numpy as np, sinkprop
    >>> rng = np.random.default_rng(0)
    >>> def queries(first, last):
    ...     X, qid = rng.normal(size=(10 * (last - first), 2)), np.repeat(np.arange(first, last), 10)
    ...     return sinkprop.Queries(X, np.digitize(X[:, 0] + rng.normal(size=len(X)), [0, 1]), qid)
    >>> fold = sinkprop.Fold("Fold1", queries(0, 20), queries(20, 25), queries(25, 30))
    >>> found = compare([fold], "regression,feature:2", metrics="ndcg@5,map", n_jobs=1)
    >>> {method: round(means["ndcg@5"], 3) for method, means in found.means("data").items()}
    {'regression': 0.844, 'feature:2': 0.482}
    """
    data_sets = _data_sets(folds)
    chosen = parse_methods(methods)
    names = parse_metrics(metrics)
    convention = _usual_convention(data_sets) if convention is None else convention
    rules = as_convention(convention)
    if against is None:
        against = _REFERENCE if _REFERENCE in chosen else next(iter(chosen))
    elif against not in chosen:
        raise ValueError(f"against must be one of the methods compared, {listed(chosen)}; got {against!r}.")
    processors = _processors(n_jobs)
    _verify(data_sets, notify)
    selection = None if selection is None else as_selection(selection)
    given = methods if isinstance(methods, Mapping) else {}
    own = {str(name) for name, method in given.items() if not isinstance(method, str)}
    estimators = {
        name: _with_settings(
            method.make(), selection=selection, convention=None if name in own else convention
        )
        for name, method in chosen.items()
    }
    jobs = _plan(data_sets, chosen, estimators, names, rules, processors)
    total = sum(len(job.methods) for job in jobs)
    done: dict[int, _Done] = {}
    finished = 0
    notify(0, total, f"{total} fits")
    with closing(outcomes(_run, jobs, min(processors, len(jobs)))) as found:
        for number, outcome in found:
            done[number] = outcome
            finished += len(outcome.results)
            notify(finished, total, f"{finished} of {total} fits; {jobs[number]}")
    by_key = {(r.dataset, r.method, r.fold): r for outcome in done.values() for r in outcome.results}
    results = [by_key[name, m, fold.name] for name, f in data_sets.items() for m in chosen for fold in f]
    comparison = Comparison(
        tuple(data_sets),
        tuple(chosen),
        tuple(map(str, names)),
        against,
        rules.name,
        tuple(results),
        {name: _statement(name, data_sets[name], jobs, done) for name in data_sets},
        {name: method.description for name, method in chosen.items()},
        tuple(name for name, method in chosen.items() if is_ours(name, estimators[name])),
        {name: _data(name, data_sets[name], jobs, done) for name in data_sets},
    )
    notify(total, total, "testing the differences")
    for name in data_sets:
        comparison.tests(name)
    return comparison


def _data_sets(folds: Folds | Mapping[str, Folds]) -> dict[str, tuple[AnyFold, ...]]:
    given = folds if isinstance(folds, Mapping) else {"data": folds}
    sets = {str(name): tuple(own) for name, own in given.items()}
    if not sets:
        raise ValueError("folds must hold at least one data set; got none.")
    for name, own in sets.items():
        if not own:
            raise ValueError(f"folds: the data set {name!r} has no fold; expected at least one.")
        for fold in own:
            if not isinstance(fold, Fold | FoldFiles):
                kind = type(fold).__name__
                raise TypeError(f"folds must hold Fold or FoldFiles; got {kind!r} in {name!r}.")
        names = [fold.name for fold in own]
        if len(set(names)) < len(names):
            raise ValueError(f"folds of {name!r} must have different names; got {listed(names)}.")
    return sets


def _usual_convention(data_sets: Iterable[str]) -> str:
    """Convention of the published results if all data sets have some, else "standard"."""
    return "letor" if all(published_rows(name) for name in data_sets) else "standard"


def _verify(data_sets: Mapping[str, tuple[AnyFold, ...]], notify: Notify) -> None:
    """Verify all stored sets, so that a damaged one raises a StoreError before the first fit."""
    from sinkprop.store import StoredQueries, open_queries

    found: dict[str, StoredQueries] = {}
    for fold in (fold for own in data_sets.values() for fold in own):
        if isinstance(fold, FoldFiles):
            found |= {str(path): open_queries(path) for path in fold.stored}
        else:
            parts = (fold.train, fold.vali, fold.test)
            found |= {str(part.path): part for part in parts if isinstance(part, StoredQueries)}
    for stored in found.values():
        stored.verify(progress=notify)


def _processors(n_jobs: int | None) -> int:
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None or n_jobs == -1:  # -1 means all CPU cores, as in scikit-learn
        return there
    if not isinstance(n_jobs, int | np.integer) or isinstance(n_jobs, bool) or n_jobs < 1:
        raise ValueError(f"n_jobs must be a whole number, at least 1, or None for all; got {n_jobs!r}.")
    return int(n_jobs)


def _plan(
    data_sets: Mapping[str, tuple[AnyFold, ...]],
    methods: Mapping[str, Method],
    estimators: Mapping[str, Any],
    metrics: tuple[Metric, ...],
    convention: Convention,
    processors: int,
) -> list[_Job]:
    """Divide the fits into jobs, and sort these by their cost, the most expensive first.

    A method that takes almost no time does not get its own job, but shares one with a slower method.
    """
    long = [name for name, method in methods.items() if method.cost >= _NEXT_TO_NOTHING]
    short = [name for name in methods if name not in long]
    bundles = [[name] for name in long] or [[]]
    bundles[0] = short + bundles[0]
    count = len(bundles) * sum(map(len, data_sets.values()))
    threads = max(1, processors // count)
    sizes = {"n_methods": len(methods), "n_datasets": len(data_sets)}
    jobs = [
        _Job(
            dataset,
            fold,
            tuple((name, estimators[name]) for name in bundle),
            metrics,
            convention,
            threads,
            _size(fold) * sum(methods[name].cost for name in bundle),
            Budget.of(n_folds=len(folds), **sizes),
        )
        for dataset, folds in data_sets.items()
        for fold in folds
        for bundle in bundles
    ]
    return sorted(jobs, key=lambda job: -job.cost)


def _with_settings(estimator: Any, **settings: Any) -> Any:
    """Return a copy of the estimator with these parameters, except those that it does not have or are None.

    Returns the estimator itself if no parameter remains.
    """
    known: dict[str, Any] = getattr(estimator, "get_params", dict)()
    changes = {name: value for name, value in settings.items() if value is not None and name in known}
    if not changes:
        return estimator
    from sklearn.base import clone

    return clone(estimator).set_params(**changes)


def _size(fold: AnyFold) -> float:
    """Approximate size of a fold's LETOR text in bytes, to estimate which folds take longest."""
    if isinstance(fold, Fold):
        return float(sum(10 * len(part) * part.n_features for part in (fold.train, fold.vali, fold.test)))
    packing = 1.0 if fold.train.suffix == ".txt" else 2.5 if fold.stored else 5.0
    files = (file for path in fold.paths for file in (path.iterdir() if path.is_dir() else [path]))
    return packing * sum(file.stat().st_size for file in files)


def _run(job: _Job) -> _Done:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        fold = job.fold
        parts: Fold | Parts = fold if isinstance(fold, Fold) else fold.read(n_threads=job.n_threads)
        named = {"train": parts.train, "vali": parts.vali, "test": parts.test}
        data = fold_data(named, threshold=job.convention.threshold, budget=job.budget)
        outcomes = [_fit_and_test(job, name, estimator, parts, data) for name, estimator in job.methods]
    return _Done(tuple(result for result, _ in outcomes), outcomes[0][1], data)


def _fit_and_test(
    job: _Job, name: str, estimator: Any, parts: Fold | Parts, data: FoldData
) -> tuple[Result, str]:
    where = f"{name} failed on {job.dataset}, {job.fold.name}"
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ranker = _prepared(estimator, parts, job.n_threads)
            return _measured(job, name, ranker, parts, data, caught)
    except MemoryError as error:
        raise MemoryError(f"{where}: out of memory. {' '.join(str(error).split())}".rstrip()) from None
    except Exception as error:
        raise MethodError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _measured(
    job: _Job,
    name: str,
    ranker: Any,
    parts: Fold | Parts,
    data: FoldData,
    caught: Sequence[warnings.WarningMessage],
) -> tuple[Result, str]:
    began, used = time.perf_counter(), _processor_time()
    _fit(ranker, parts)
    fitted, used = time.perf_counter(), _processor_time() - used
    fit_result = getattr(ranker, "fit_result_", None)
    if getattr(fit_result, "status", "") == "interrupted":
        raise KeyboardInterrupt  # an interrupted ranker keeps its best model, but the comparison must end
    test = parts.test
    scores = ranking_scores(ranker, test)
    seconds = time.perf_counter() - fitted
    grade = _highest_grade(job.convention, parts)
    result = evaluated(test, scores, job.metrics, job.convention, grade)
    messages = dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `details_of` predicts again, which would repeat the warnings
        details = details_of(ranker, test, data, train=parts.train, vali=parts.vali)
    return (
        Result(
            job.dataset,
            job.fold.name,
            name,
            tuple(result.queries.tolist()),
            result.per_query,
            dict(result),
            fitted - began,
            seconds,
            _summary(ranker),
            tuple(messages),
            details,
            used,
        ),
        result.rules(),
    )


def _processor_time() -> float:
    """Processor time so far in seconds, of this process and of processes that it started and that ended."""
    here = os.times()
    return time.process_time() + here.children_user + here.children_system


def _highest_grade(convention: Convention, parts: Fold | Parts) -> float:
    """Highest possible label, which the metric ERR needs.

    This is the convention's `max_grade`, or else the largest label of the whole fold, not only of its test
    queries.
    """
    if convention.max_grade is not None:
        return convention.max_grade
    return max(largest_label(part) for part in (parts.train, parts.vali, parts.test) if part is not None)


def _prepared(estimator: Any, parts: Fold | Parts, n_threads: int) -> Any:
    """Return an unfitted copy of the estimator that prints no progress and uses `n_threads` threads.

    If the estimator has a parameter `feature_names` that is None, the copy gets the names of the fold's
    features.
    """
    if not hasattr(estimator, "get_params"):
        return copy.deepcopy(estimator)
    from sklearn.base import clone

    ranker = clone(estimator)
    given = ranker.get_params(deep=False)
    changes: dict[str, Any] = {}
    if "n_threads" in given:
        changes["n_threads"] = n_threads
    if "n_jobs" in given and given["n_jobs"] is None:
        changes["n_jobs"] = n_threads
    if given.get("verbose") is True:
        changes["verbose"] = False
    if "feature_names" in given and given["feature_names"] is None:
        changes["feature_names"] = parts.train.feature_names
    return ranker.set_params(**changes)


def _fit(ranker: Any, parts: Fold | Parts) -> None:
    """Fit an estimator, passing qid or group and the validation queries if its `fit` accepts them."""
    from sinkprop.estimator.base import BaseRanker

    if isinstance(ranker, BaseRanker):
        # sinkprop's rankers also accept stored sets, which they read block by block or load
        ranker.fit(parts.train, eval_set=parts.vali)
        return
    taken = inspect.signature(ranker.fit).parameters
    train, vali = _by_query(parts.train), None if parts.vali is None else _by_query(parts.vali)
    given: dict[str, Any] = {}
    if "qid" in taken:
        given["qid"] = train.qid
    elif "group" in taken:
        given["group"] = train.groups.sizes
    if vali is not None and "eval_set" in taken:
        given["eval_set"] = [(vali.X, vali.y)]
        if "eval_qid" in taken and "qid" in given:
            given["eval_qid"] = [vali.qid]
        elif "eval_group" in taken:
            given["eval_group"] = [vali.groups.sizes]
    ranker.fit(train.X, train.y, **given)


def _by_query(given: AnyQueries) -> Queries:
    """Queries in memory with the rows of each query next to each other, as some estimators require."""
    queries = loaded(given)
    return queries if queries.groups.rows is None else queries.take(queries.groups.rows)


def _summary(ranker: Any) -> dict[str, Any]:
    """Summary of a fitted ranker as plain data: how the fit ended, what it tried and what it chose.

    It includes the status, the chosen setting and the number of trees, as far as the ranker has them.
    """
    found: dict[str, Any] = {}
    fit_result = getattr(ranker, "fit_result_", None)
    for name in ("status", "criterion", "validated_on", "evaluations", "sigma"):
        value = getattr(fit_result, name, None)
        if isinstance(value, str | int | float) and (isinstance(value, str) or math.isfinite(value)):
            found[name] = value
    stages = getattr(fit_result, "stages", None)
    if stages is not None:
        found["stages"], found["chosen"] = len(stages), sum(bool(stage.chosen) for stage in stages)
    trials = getattr(fit_result, "trials", None)
    if trials is not None:
        found["candidates"] = len(trials)
        found["setting"] = next(dict(trial.setting) for trial in trials if trial.chosen)
        tried: dict[str, dict[Any, None]] = {}
        for trial in trials:
            for name, value in trial.setting.items():
                tried.setdefault(name, {})[value] = None
        found["tried"] = {name: list(values) for name, values in tried.items()}
    n_trees = getattr(ranker, "n_trees_", None)
    if n_trees is not None:
        found["trees"] = int(cast("int", n_trees))
    feature = getattr(ranker, "feature_", None)
    if feature is not None:
        found["feature"] = int(cast("int", feature))
    return found


def _data(
    dataset: str, folds: Sequence[AnyFold], jobs: Sequence[_Job], done: Mapping[int, _Done]
) -> dict[str, FoldData]:
    """Summaries of a data set's folds, {name of a fold: summary}, in the order of the folds."""
    found = {jobs[i].fold.name: d.data for i, d in done.items() if jobs[i].dataset == dataset}
    return {fold.name: found[fold.name] for fold in folds}


def _statement(
    dataset: str, folds: Sequence[AnyFold], jobs: Sequence[_Job], done: Mapping[int, _Done]
) -> str:
    """Sentence that says how the means of a data set are computed.

    It states the convention, in the words of `Evaluation.rules`, over how many queries and folds the means
    are, and how many queries count 0 because they have fewer than k documents.
    """
    number = next(i for i, job in enumerate(jobs) if job.dataset == dataset and job.fold is folds[0])
    sizes = [n for own in _data(dataset, folds, jobs, done).values() for n in own.lengths]
    queries = len(sizes)
    short = short_queries(jobs[number].metrics, sizes, jobs[number].convention)
    over = "over 1 query" if queries == 1 else f"over {queries} queries"
    if len(folds) > 1:
        over = f"over the queries of each fold, {queries} in all, then over the {len(folds)} folds"
    return f"{done[number].statement}; mean {over}." + (f" {short}" if short else "")
