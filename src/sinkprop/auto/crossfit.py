"""Cross-fitting: every member is fitted to several sets of queries, and scores queries it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sinkprop.auto.clock import Clock, OutOfTimeError
from sinkprop.auto.members import KINDS, Settings, fitted_member
from sinkprop.common.progress import Notify
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import BaseRanker
from sinkprop.estimator.selection import FEW_QUERIES, Selection
from sinkprop.estimator.splits import Division, divide

__all__ = ["CrossFit", "Fits", "cross_fit", "planned", "spread"]

MANY_QUERIES = 2000  # above this number, the default holds out queries once instead of cross-fitting
_SLOWER = 1.2  # a fit may take this much longer than the one before it


@dataclass(eq=False)
class Fits:
    """Rankers of one member, each fitted to another set of training queries.

    name     Name of the member, see `KINDS`.
    models   Fitted rankers.
    scales   Standard deviation, within queries, of each ranker's scores of its held-out queries.
    scores   Scores of each ranker's held-out queries, divided by its scale.
    seconds  Time of each fit.
    ended    Reason why no further ranker is fitted; empty if there is none.
    lost     Time of a fit that was broken off.
    out_of_time
             Whether this reason is the time budget.
    """

    name: str
    models: list[BaseRanker] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    scores: list[Floats] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended: str = ""
    lost: float = 0.0
    out_of_time: bool = False


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Outcome of `cross_fit`.

    fits     Fits of each member, in the order of `KINDS`.
    stopped  Whether the user interrupted the fit.
    """

    fits: tuple[Fits, ...]
    stopped: bool


def planned(
    data: TrainingSet, validation: TrainingSet | None, selection: Selection, rng: np.random.Generator
) -> Division:
    """Divide the queries into those that train and those that are held out, once or several times.

    The method "auto" cross-fits over all queries, those of the validation set included, if they are few. With
    many queries it uses the validation set, or holds out queries once.
    """
    most = MANY_QUERIES if validation is None else FEW_QUERIES
    total = data.n_queries + (0 if validation is None else validation.n_queries)
    if selection.method == "auto":
        selection = replace(selection, method="cross-validation" if total <= most else "validation")
    return divide(data, validation, selection, rng)


def spread(scores: Floats, groups: Groups) -> float:
    """Standard deviation of scores within queries; 1 if all scores of each query are equal."""
    means = np.add.reduceat(scores, groups.offsets[:-1]) / groups.sizes
    found = float(np.sqrt(np.mean(np.square(scores - np.repeat(means, groups.sizes)))))
    return found if np.isfinite(found) and found > 0 else 1.0


def cross_fit(
    names: Sequence[str], division: Division, settings: Settings, clock: Clock, notify: Notify
) -> CrossFit:
    """Fit the members `names` to each part of `division`, as far as the time allows.

    All members are fitted to one part before any is fitted to the next, so that if the time runs out they
    have been compared on the same queries. Before the first fit of a member, its time is estimated from the
    size of the data; after that, from its previous fit. A fit that is not expected to end in time is not
    started. The first fit of a member may take an equal share of the time that is left, so that a slow member
    does not keep the others from being tried.
    """
    rows, features = division.parts[-1].X.shape
    fits = [Fits(name) for name in sorted(names, key=lambda name: KINDS[name].seconds(rows, features))]
    pairs = [(division.parts[k], held) for k, held in division.validation]
    shared = len(pairs) == 1  # then the held-out queries also choose the number of trees and the epoch
    total, done, stopped = len(pairs) * len(fits), 0, False
    try:
        for number, (part, held) in enumerate(pairs):
            for place, fit in enumerate(fits):
                notify(done, total, f"{fit.name}, fit {number + 1} of {len(pairs)}")
                done += 1
                if not fit.ended:
                    waiting = (
                        []
                        if number
                        else [each for each in fits[place + 1 :] if _may_start(each, part, clock)]
                    )
                    clock.share(clock.left / (1 + len(waiting)))
                    _fit_one(fit, part, held, shared, settings, clock)
    except KeyboardInterrupt:
        if not any(fit.models for fit in fits):
            raise
        stopped = True
    fits.sort(key=lambda fit: list(KINDS).index(fit.name))
    return CrossFit(tuple(fits), stopped)


def _may_start(fit: Fits, part: TrainingSet, clock: Clock) -> bool:
    """Whether a member that has not been tried is expected to need less than half of the time left."""
    return KINDS[fit.name].seconds(*part.X.shape) < 0.5 * clock.left


def _fit_one(
    fit: Fits, part: TrainingSet, held: TrainingSet, shared: bool, settings: Settings, clock: Clock
) -> None:
    """Fit one more ranker of a member, or set the reason why there will be no more."""
    expected = _SLOWER * fit.seconds[-1] if fit.seconds else KINDS[fit.name].seconds(*part.X.shape)
    if expected > clock.left:
        left = f"{max(clock.left, 0):.1f} s were left"
        fit.ended, fit.out_of_time = f"one more fit would take about {expected:.1f} s; {left}", True
        return
    began, cut = clock.seconds, clock.n_cut
    try:
        model = fitted_member(fit.name, settings, part, held if shared else None, clock)
        scores = model.predict(held.X, qid=held.codes)
    except OutOfTimeError as error:
        fit.lost, fit.out_of_time = clock.seconds - began, True
        fit.ended = f"one fit was broken off after {fit.lost:.1f} s: {error}"
        return
    except Exception as error:
        # one member that fails must not cost the user the others; the record and the warning say what it was
        fit.lost = clock.seconds - began
        fit.ended = f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
        warnings.warn(f"AutoRanker: {fit.name} {fit.ended}", RuntimeWarning, stacklevel=2)
        return
    if getattr(model.fit_result_, "status", "") == "interrupted":
        raise KeyboardInterrupt
    if clock.n_cut > cut:
        fit.out_of_time = True
        fit.ended = f"the last fit was cut short after {clock.seconds - began:.1f} s"
    scale = spread(scores, held.groups)
    fit.models.append(model)
    fit.scales.append(scale)
    fit.scores.append(scores / scale)
    fit.seconds.append(clock.seconds - began)
