"""The loop over candidates: train each, evaluate it on validation queries, choose one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.criteria import Criterion, mean_criterion
from sinkprop.estimator.fit_record import FitRecord
from sinkprop.estimator.selection import Selection, choose, mean_over_queries
from sinkprop.estimator.splits import divide

__all__ = ["Candidate", "Trial", "TuningResult", "tune"]

Setting = Mapping[str, float | int | str]


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model on the way.

    setting   what tells it from the others: {"penalty": 0.1, "round": 20}
    model     whatever its ranker scores with: weights (D,) of normalized features for a linear one
    value     of the training objective
    position  on a grid of two axes, as (number of the penalty, number of the round); what stands beside it is
              judged together with it where `Selection.rule` is "smoothest"
    scores    of the training rows, and
    training  the criterion of the training queries, where they are at hand: then the record of the fit need
              not make them
    """

    setting: Setting
    model: Any
    value: float = math.nan
    position: tuple[int, int] = (0, 0)
    scores: Floats | None = None
    training: float | None = None


@dataclass(frozen=True)
class Trial:
    """The record of a candidate.

    setting         what tells it from the others
    value           of the training objective
    criterion       mean over the queries that judge; with its neighbors' where the smoothest is taken
    standard_error  of the criterion's difference to the best candidate's, over these queries
    chosen          whether it is the model
    training        the criterion of the training queries, which it was fitted to; None if not known
    """

    setting: Setting
    value: float
    criterion: float = math.nan
    standard_error: float = math.nan
    chosen: bool = False
    training: float | None = None


@dataclass(frozen=True, eq=False)
class TuningResult(FitRecord):
    """Outcome of a fit that is a path of candidates.

    status     "finished" or "interrupted"; `message` says it in a sentence
    criterion  name of the criterion
    validated_on  how: "21 validation queries", "cross-validation over 84 queries in 5 parts"; empty where
               there was one candidate only
    trials     every candidate, in the order of their training
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every candidate was trained.",
        "interrupted": "The fit was interrupted; the model is the best of the candidates that were finished.",
    }

    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> Trial:
        return next(trial for trial in self.trials if trial.chosen)


def tune(
    data: TrainingSet,
    validation: TrainingSet | None,
    candidates: Callable[[TrainingSet], Iterator[Candidate]],
    scores: Callable[[Any, TrainingSet], Floats],
    *,
    n_candidates: int,
    selection: Selection,
    criterion_of: Criterion,
    criterion: str,
    seed: int = 0,
    notify: Notify = silent,
) -> tuple[Any, TuningResult]:
    """The model of the candidate that the judging queries choose, and the record of all.

    candidates    those of a set of training queries, as they are trained, the most regular first: the same
                  settings, `n_candidates` in number, whatever the queries
    scores        of a candidate's model on queries

    Of a single candidate nothing is held out. An interrupt from the keyboard ends the fit with the best of
    the candidates that were finished.
    """
    if n_candidates == 1:
        (only,) = candidates(data)
        return only.model, TuningResult("finished", criterion, "", (_trial(only, chosen=True),))
    division = divide(data, validation, selection, np.random.default_rng([seed, 0]))
    weight = division.weight
    found: list[Candidate] = []
    values_found: list[Floats] = []
    trained: list[float | None] = []
    status, best = "finished", 0.0
    try:
        for of_parts in zip(*(candidates(part) for part in division.parts), strict=True):
            values = [
                criterion_of(part, scores(of_parts[number].model, part))
                for number, part in division.validation
            ]
            trained.append(_on_training(of_parts[0], division.parts[0], scores, criterion_of))
            found.append(replace(of_parts[0], scores=None))
            values_found.append(np.concatenate(values))
            best = max(best, float(mean_over_queries(values_found[-1], weight)))
            notify(len(found), n_candidates, f"{_in_words(of_parts[0].setting)}, best {criterion} {best:.4f}")
    except KeyboardInterrupt:
        if not values_found:
            raise
        status = "interrupted"
        del found[len(values_found) :]
    n_queries = data.n_queries + (0 if validation is None else validation.n_queries)
    choice = choose(
        np.stack(values_found),
        np.array([candidate.position for candidate in found]),
        weight,
        smoothest=selection.takes_smoothest(n_queries),
    )
    trials = tuple(
        _trial(
            candidate, float(choice.means[i]), float(choice.errors[i]), trained[i], chosen=i == choice.taken
        )
        for i, candidate in enumerate(found)
    )
    return found[choice.taken].model, TuningResult(status, criterion, division.validated_on, trials)


def _on_training(
    candidate: Candidate,
    part: TrainingSet,
    scores: Callable[[Any, TrainingSet], Floats],
    criterion_of: Criterion,
) -> float | None:
    """The criterion of the queries that a candidate was trained on."""
    if candidate.training is not None:
        return candidate.training
    own = scores(candidate.model, part) if candidate.scores is None else candidate.scores
    # trees do not see queries of weight 0
    return mean_criterion(criterion_of, part, own) if len(own) == len(part.y) else None


def _trial(
    candidate: Candidate,
    criterion: float = math.nan,
    error: float = math.nan,
    training: float | None = None,
    *,
    chosen: bool,
) -> Trial:
    return Trial(dict(candidate.setting), float(candidate.value), criterion, error, chosen, training)


def _in_words(setting: Setting) -> str:
    return ", ".join(f"{k} {v:g}" if isinstance(v, int | float) else f"{k} {v}" for k, v in setting.items())
