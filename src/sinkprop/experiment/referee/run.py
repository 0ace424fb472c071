"""The run of a referee: every method on every fold of every set, in parallel, without those already kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sinkprop.common.arguments import number
from sinkprop.common.progress import Notify, silent
from sinkprop.data.queries import Fold
from sinkprop.experiment.folds.files import FoldFiles
from sinkprop.experiment.methods import parse_methods
from sinkprop.experiment.referee.fits import FitJob, KeptFits, key_of, run_fit, takes_budget
from sinkprop.experiment.referee.standings import Standings
from sinkprop.experiment.workers import outcomes
from sinkprop.metrics.conventions import as_convention
from sinkprop.metrics.measures import parse_metrics

__all__ = ["METRICS", "referee"]

METRICS = "ndcg@1,ndcg@3,ndcg@5,ndcg@10"


def referee(
    sets: Mapping[str, Sequence[Fold | FoldFiles]],
    methods: str | Iterable[str] = "everything",
    *,
    metrics: str | Iterable[str] = METRICS,
    convention: str = "standard",
    selection: str | None = None,
    budget: float | None = None,
    keep: str | os.PathLike[str] | None = None,
    n_jobs: int = 1,
    notify: Notify = silent,
) -> Standings:
    """Run methods on data sets under one convention, and return their standings.

    Every fit has one thread. A method that fails does not end the run; the standings have the reason.

    Parameters
    ----------
    sets : mapping
        {name of a data set: its folds}; see `named_sets`.
    methods : str or iterable of str, default "everything"
        Names of methods in `METHODS` or of groups of methods. "everything" means all methods whose
        package is installed.
    metrics : str or iterable of str, default "ndcg@1,ndcg@3,ndcg@5,ndcg@10"
        Metrics; the standings are by their mean.
    convention : str, default "standard"
        Convention of the metrics, by which the methods also select their models.
    selection : str, optional
        How methods that train several candidates select one; None keeps each method's own selection.
    budget : float, optional
        Seconds that a fit may take, for rankers with the parameter `time_budget`. The others run as long as
        they need; the standings have the processor time of all.
    keep : path, optional
        File that keeps each fit. A later run with this file makes only the fits that it does not hold. A
        fit is made again if its data, its settings or the source code of sinkprop changed.
    n_jobs : int, default 1
        Number of processes. Does not change the results.
    notify : callable, optional
        Function notify(done, total, what) that is called to report progress.

    Returns
    -------
    Standings
        The results.

    Raises
    ------
    ValueError
        If a name, a metric or the file of kept fits is invalid.
    ImportError
        If a method is named whose package is not installed.

    Examples
    --------
    >>> from sinkprop.datasets import make_ranking
    >>> from sinkprop.experiment.referee import five_folds
    >>> sets = {"small": five_folds(make_ranking(60))}
    >>> found = referee(sets, "regression,best-feature", metrics="ndcg@5")
    >>> found.best("small"), found.rank("small", "best-feature")
    ('regression', 2.0)
    """
    chosen = parse_methods(methods)
    names = tuple(str(metric) for metric in parse_metrics(metrics))
    as_convention(convention)
    if budget is not None:
        number("budget", budget, above=True)
    if not sets:
        raise ValueError("sets must hold at least one data set; got none.")
    kept = KeptFits(None if keep is None else Path(keep))
    jobs = [
        FitJob(name, fold, method, names, convention, selection, budget)
        for name, folds in sets.items()
        for method in chosen
        for fold in folds
    ]
    keys = [key_of(job) for job in jobs]
    todo = sorted(
        (job for job, key in zip(jobs, keys, strict=True) if key not in kept.found),
        key=lambda job: -chosen[job.method].cost,
    )
    total, done = len(jobs), len(jobs) - len(todo)
    notify(done, total, f"{done} of {total} fits")
    with closing(outcomes(run_fit, todo, min(n_jobs, max(1, len(todo))))) as found:
        for index, fit in found:
            kept.put(fit)
            done += 1
            notify(done, total, f"{done} of {total} fits; {todo[index]}")
    return Standings(
        tuple(sets),
        tuple(chosen),
        names,
        convention,
        tuple(kept.found[key] for key in keys),
        budget,
        () if budget is None else tuple(method for method in chosen if takes_budget(method)),
    )
