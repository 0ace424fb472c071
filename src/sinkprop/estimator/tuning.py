"""Loop over candidates that trains each one, evaluates it on validation queries, and chooses one."""

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
from sinkprop.estimator.fit_record import FitRecord, chosen_of, settings_text
from sinkprop.estimator.held_out import MOST_ROWS, HeldOut, taken_queries
from sinkprop.estimator.selection import Selection, choose, mean_over_queries
from sinkprop.estimator.splits import divide

__all__ = ["Candidate", "Trial", "TuningResult", "tune"]

_LEAST_ROWS = 20_000  # documents whose scores are kept for the calibration, at least
Setting = Mapping[str, float | int | str]


@dataclass(frozen=True, eq=False)
class Candidate:
    """One of the models among which a fit chooses.

    Parameters
    ----------
    setting : mapping
        Hyperparameters that distinguish it from the other candidates, such as {"penalty": 0.1, "round": 20}.
    model : object
        Model from which the ranker computes scores. For a linear ranker, the weights (D,) of normalized
        features.
    value : float, default nan
        Value of the training objective.
    position : tuple of two int, default (0, 0)
        Position on a grid of two axes, such as (index of the penalty, index of the round). If
        `Selection.rule` is "smoothest", neighbors on this grid are averaged.
    scores : array of shape (N,), optional
        Scores of the training rows, if the training computed them anyway.
    training : float, optional
        Mean criterion of the training queries, if the training computed it anyway.
    """

    setting: Setting
    model: Any
    value: float = math.nan
    position: tuple[int, int] = (0, 0)
    scores: Floats | None = None
    training: float | None = None


@dataclass(frozen=True)
class Trial:
    """Record of a candidate.

    Parameters
    ----------
    setting : mapping
        Hyperparameters that distinguish it from the other candidates.
    value : float
        Value of the training objective.
    criterion : float, default nan
        Mean criterion over the validation queries. Under the rule "smoothest", it is averaged with that of
        neighboring candidates.
    standard_error : float, default nan
        Standard error of the difference between its criterion and the best candidate's, over these queries.
    chosen : bool, default False
        Whether the candidate was chosen as the model of the ranker.
    training : float, optional
        Mean criterion of the training queries, to which the candidate was fitted; None if not known.
    """

    setting: Setting
    value: float
    criterion: float = math.nan
    standard_error: float = math.nan
    chosen: bool = False
    training: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class TuningResult(FitRecord):
    """Outcome of a fit that chose among candidates.

    Parameters
    ----------
    status : {"finished", "interrupted"}
        How the fit ended; `message` says it in a sentence.
    criterion : str
        Name of the criterion.
    validated_on : str
        Queries that selected the model, such as "21 validation queries" or "5-fold cross-validation over 84
        queries"; empty if there was only one candidate.
    trials : tuple of Trial
        Every candidate, in the order of training.
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every candidate was trained.",
        "interrupted": "The fit was interrupted; the model is the best of the candidates that were finished.",
    }

    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> Trial:
        """The candidate that became the model."""
        return chosen_of(self.trials)

    @property
    def choice(self) -> str:
        if len(self.trials) == 1:
            return settings_text(self.chosen.setting) or "the only candidate"
        return f"{settings_text(self.chosen.setting)}; one of {len(self.trials)} candidates"

    def _value(self) -> float:
        return self.chosen.criterion


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
) -> tuple[Any, TuningResult, HeldOut | None]:
    """Train the candidates and choose one of them by its criterion on validation queries.

    Returns the model of the chosen candidate, a `TuningResult` with the records of all candidates, and the
    scores of the validation queries. There are none if one query serves for training and validation.

    candidates    Function that trains on queries and yields the candidates, the most regularized first. It
                  yields the same `n_candidates` settings for any queries.
    scores        Function that scores queries with a candidate's model.
    criterion_of  Function of queries and scores that returns the criterion of each query.
    criterion     Name of the criterion.

    If there is only one candidate, no queries are held out, and the scores are those of the validation set.
    A keyboard interrupt ends the fit with the best of the candidates finished so far.
    """
    if n_candidates == 1:
        (only,) = candidates(data)
        held = None
        if validation is not None:
            held = HeldOut(scores(only.model, validation), validation.y, validation.groups.sizes)
        return only.model, TuningResult("finished", criterion, "", (_trial(only, chosen=True),)), held
    division = divide(data, validation, selection, np.random.default_rng([seed, 0]))
    weight = division.weight
    sizes = np.concatenate([part.groups.sizes for _, part in division.validation])
    # the scores of all candidates are kept until one of them is chosen
    taken = taken_queries(sizes, min(MOST_ROWS, max(_LEAST_ROWS, 4_000_000 // n_candidates)))
    rows = np.repeat(taken, sizes)
    found: list[Candidate] = []
    values_found: list[Floats] = []
    scores_found: list[Floats] = []
    trained: list[float | None] = []
    status, best = "finished", 0.0
    try:
        for of_parts in zip(*(candidates(part) for part in division.parts), strict=True):
            scored = [(scores(of_parts[number].model, part), part) for number, part in division.validation]
            values = [criterion_of(part, own) for own, part in scored]
            trained.append(_on_training(of_parts[0], division.parts[0], scores, criterion_of))
            found.append(replace(of_parts[0], scores=None))
            scores_found.append(np.concatenate([own for own, _ in scored])[rows])
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
    result = TuningResult(status, criterion, division.validated_on, trials)
    held = None
    if not division.resubstituted:
        labels = np.concatenate([part.y for _, part in division.validation])[rows]
        held = HeldOut(scores_found[choice.taken], labels, sizes[taken])
    return found[choice.taken].model, result, held


def _on_training(
    candidate: Candidate,
    part: TrainingSet,
    scores: Callable[[Any, TrainingSet], Floats],
    criterion_of: Criterion,
) -> float | None:
    """Mean criterion of a candidate on `part`, the queries that it was trained on.

    None if there are not scores for all rows of these queries.
    """
    if candidate.training is not None:
        return candidate.training
    own = scores(candidate.model, part) if candidate.scores is None else candidate.scores
    # Trees are grown without queries of weight 0, so there may be fewer scores than rows.
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
