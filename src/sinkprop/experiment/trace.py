"""Record of how a fitted ranker was trained, step by step, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sinkprop.experiment.rounding import significant

__all__ = ["training_of"]

_MAX_STEPS = 1_000  # maximum number of steps to keep per fit


def training_of(ranker: Any) -> dict[str, Any] | None:
    """Record of a ranker's training as plain data.

    None if the ranker keeps no history of its training, or if it trained a single candidate model.

    criterion     Name of the metric that selected the model.
    validated_on  Queries that selected the model, in words.
    status        How the fit ended, such as "finished".
    message       The status as a sentence.
    unit          Kind of step: "stage" (one setting of the hyperparameters), "round" (of boosting), "epoch".
    steps         One mapping per step, with its number, its label in words, its sigma, and its expected gain,
                  training metric and validation metric; None for values that are not known. Steps with the
                  same hyperparameters form a curve of the report. The key "path" names these
                  hyperparameters. It is None for a step that all curves share, such as least squares, and
                  if there is only one curve.
    chosen        Index of the step whose model was selected or, if the model is an average of steps, that
                  has the largest share in it.
    selected      Description of the model if it is an average of steps; otherwise there is no such key.
    stopped       Indices of the steps after which training stopped early.
    """
    result: Any = getattr(ranker, "fit_result_", None)
    if hasattr(result, "stages"):
        return _of_stages(ranker, result)
    if hasattr(result, "trials"):
        return _of_trials(ranker, result) if len(result.trials) > 1 else None
    if hasattr(result, "n_rounds"):
        return _of_rounds(ranker, result)
    if hasattr(result, "epochs"):
        return _of_epochs(ranker, result)
    return None


def _record(result: Any, unit: str, steps: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "criterion": result.criterion,
        "validated_on": result.validated_on,
        "status": result.status,
        "message": result.message,
        "unit": unit,
        "steps": list(steps),
        **more,
    }


def _step(number: int, label: str | None, path: str | None, **values: float | None) -> dict[str, Any]:
    found = {name: values.get(name) for name in ("sigma", "expected_gain", "training", "validation")}
    return {"path": path, "number": number, "label": label} | {
        name: None if value is None or not math.isfinite(value) else significant(value)
        for name, value in found.items()
    }


def _of_stages(ranker: Any, result: Any) -> dict[str, Any]:
    steps, paths = [], []
    annealing = ranker.annealing or ranker.default_annealing
    for stage in result.stages:
        trained = math.isfinite(stage.penalty)
        path = f"penalty {stage.penalty:g}" if trained and annealing else None
        paths.append(path)
        sigma = "" if stage.sigma is None else f", sigma {stage.sigma:g}"
        steps.append(
            _step(
                paths.count(path),
                f"penalty {stage.penalty:g}{sigma}" if trained else "the regression, where the fit starts",
                path,
                sigma=stage.sigma if trained and annealing else None,
                expected_gain=stage.expected_gain,
                training=stage.training,
                validation=stage.criterion,
            )
        )
    stopped = []
    if annealing:
        last = {path: i for i, path in enumerate(paths) if path is not None}
        stopped = [i for path, i in last.items() if paths.count(path) < len(annealing.sigmas)]
    if result.status == "interrupted":
        stopped = [i for i in stopped if i != len(steps) - 1]
    chosen = next(i for i, stage in enumerate(result.stages) if stage.chosen)
    averaged = {"selected": result.choice} if sum(stage.share > 0 for stage in result.stages) > 1 else {}
    return _record(result, "stage", steps, chosen=chosen, stopped=stopped, **averaged)


def _of_trials(ranker: Any, result: Any) -> dict[str, Any]:
    """Record of a ranker that trained several candidate models, with one step per candidate.

    Candidates differ in the number of boosting rounds or trees, or in hyperparameters such as the penalty.
    """
    settings = [dict(trial.setting) for trial in result.trials]
    counts = next((name for name in ("round", "trees") if name in settings[0]), None)
    expected = hasattr(ranker, "balance") or getattr(ranker, "objective", "") == "sinkprop"
    steps, paths = [], []
    for trial, setting in zip(result.trials, settings, strict=True):
        sigma = cast("float | None", setting.get("sigma"))
        start = setting.get("penalty") == math.inf
        told = {name: value for name, value in setting.items() if name not in (counts, "sigma")}
        path = _in_words(told) or None if counts or sigma is not None else None
        paths.append(path)
        label = None if counts else "least squares" if start else _in_words(setting)
        steps.append(
            _step(
                int(setting[counts]) if counts else paths.count(path),
                label,
                None if start else path,
                sigma=None if start else sigma,
                expected_gain=trial.value if expected else None,
                training=trial.training,
                validation=trial.criterion,
            )
        )
    chosen = next(i for i, trial in enumerate(result.trials) if trial.chosen)
    return _record(result, "round" if counts else "stage", steps, chosen=chosen, stopped=[])


def _of_rounds(ranker: Any, result: Any) -> dict[str, Any]:
    """Record of a boosted ranker, with one step per round.

    If there are more than 100 rounds, only the first, the best and the last round are kept, and those after
    which the training queries were evaluated.
    """
    known = dict(result.training)
    by_round = {number: value for number, value in enumerate(result.values, 1) if math.isfinite(value)}
    numbers: list[int] = list(range(1, result.n_rounds + 1))
    if len(numbers) > 100:
        numbers = sorted({1, *known, result.best, result.n_rounds} & set(numbers))
    numbers = _thinned(numbers, {1, result.best, result.n_rounds})
    # A ranker without a criterion is validated by the expected gain, which the fit also records on the
    # training queries. Only then can the report compare the curves of training and validation.
    alike = getattr(ranker, "criterion", None) is None
    steps = [
        _step(
            number,
            None,
            None,
            expected_gain=known.get(number),
            training=known.get(number) if alike else None,
            validation=by_round.get(number),
        )
        for number in numbers
    ]
    stopped = [len(steps) - 1] if result.status == "stopped early" else []
    return _record(result, "round", steps, chosen=numbers.index(result.best), stopped=stopped)


def _of_epochs(ranker: Any, result: Any) -> dict[str, Any]:
    ours = getattr(ranker, "loss", None) == "sinkprop"
    best = next(i for i, epoch in enumerate(result.epochs) if epoch.chosen)
    places = _thinned(list(range(len(result.epochs))), {0, best, len(result.epochs) - 1})
    steps = [
        _step(
            i + 1,
            None,
            None,
            sigma=epoch.sigma,
            expected_gain=-epoch.loss if ours else None,
            training=epoch.training,
            validation=epoch.criterion,
        )
        for i, epoch in ((i, result.epochs[i]) for i in places)
    ]
    stopped = [len(steps) - 1] if result.status == "stopped early" else []
    return _record(result, "epoch", steps, chosen=places.index(best), stopped=stopped)


def _thinned(numbers: list[int], kept: set[int]) -> list[int]:
    every = -(-len(numbers) // _MAX_STEPS)
    return sorted({*numbers[::every], *(kept & set(numbers))})


def _in_words(setting: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} " + (f"{value:g}" if isinstance(value, int | float) else str(value))
        for name, value in setting.items()
    )
