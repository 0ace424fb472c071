"""The growing of trees, round by round: derivatives, judgment, early stopping, the record of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.gbdt.boosters import booster_text, lightgbm_module
from sinkprop.progress import Notify, silent

__all__ = ["BoostingFit", "grow"]

Floats = NDArray[np.float64]
Function = Callable[[Floats], tuple[Any, Any]]

_SENTENCES = {
    "finished": "Every tree was grown.",
    "stopped early": "The criterion had stopped rising; the trees are those up to its best round.",
    "interrupted": "The fit was interrupted; the trees are the best of those that were grown.",
}


@dataclass(frozen=True)
class BoostingFit:
    """What a fit came to.

    status     "finished", "stopped early" or "interrupted"; `message` says it in a sentence
    criterion  name of what judged; empty where nothing did
    judged_by  how: "21 validation queries", "17 queries held out"; empty where nothing did
    values     of the criterion after each round
    n_rounds   that were grown
    best       the number of the round that is the model, from 1
    """

    status: str
    criterion: str
    judged_by: str
    values: tuple[float, ...]
    n_rounds: int
    best: int

    @property
    def message(self) -> str:
        return _SENTENCES[self.status]


def grow(
    parameters: Mapping[str, Any],
    rows: Any,
    validation: Any,
    derivatives: Function,
    *,
    judge: Callable[[Floats], float] | None,
    n_rounds: int,
    patience: int | None,
    min_delta: float = 0.0,
    init_model: Any = None,
    notify: Notify = silent,
    criterion: str = "",
    judged_by: str = "",
) -> tuple[str, BoostingFit]:
    """The trees as LightGBM writes them, and the record of how they were grown.

    rows, validation  `lightgbm.Dataset`s; without `validation` nothing judges
    judge             the criterion of scores of the validation rows
    patience          rounds without improvement after which the fit stops, and the trees are those of the
                      best; None grows and keeps all
    init_model        a booster whose trees come first

    An interrupt from the keyboard ends the fit with the best so far.
    """
    lightgbm = lightgbm_module()
    dart = str(parameters.get("boosting", "")).lower() == "dart"
    stops = judge is not None and patience is not None and not dart

    def fobj(scores: Floats, _: object) -> tuple[Any, Any]:
        return derivatives(scores)

    judged = np.nan

    def feval(scores: Floats, _: object) -> tuple[str, float, bool]:
        nonlocal judged
        judged = np.nan if judge is None else judge(scores)
        return "criterion", judged, True

    # none where all features are constant to LightGBM, which fails to grow a tree then
    splittable = any(map(rows.construct().feature_num_bin, range(rows.num_feature())))
    values: list[float] = []
    trees: list[int] = []
    best, status = 0, "finished"
    booster: Any = None
    try:
        for number in range(n_rounds if splittable else 1):
            if number:
                booster.update(fobj=fobj)
            elif init_model is not None:
                booster = _continued(lightgbm, parameters, rows, validation, fobj, init_model, splittable)
            else:
                booster = lightgbm.Booster(dict(parameters), rows)
                if validation is not None:
                    booster.add_valid(validation, "validation")
                if splittable:
                    booster.update(fobj=fobj)
            if judge is not None:
                booster.eval_valid(feval)
                values.append(judged)
            trees.append(booster.num_trees())
            if not stops or number == 0 or values[number] > values[best] + min_delta:
                best = number
            at = f", {criterion} {values[best]:.4f}" if stops else ""
            notify(number + 1, n_rounds, f"tree {number + 1}{at}")
            if stops and number - best >= (patience or 0):
                status = "stopped early"
                break
    except KeyboardInterrupt:
        # dart takes trees back while it grows one, so what it left unfinished is no model
        if not trees or dart:
            raise
        status = "interrupted"
    record = BoostingFit(
        status, criterion, judged_by, tuple(values[: len(trees)]), n_rounds=len(trees), best=best + 1
    )
    return booster_text(booster, trees[best]), record


def _continued(
    lightgbm: Any,
    parameters: Mapping[str, Any],
    rows: Any,
    validation: Any,
    fobj: Any,
    init_model: Any,
    splittable: bool,
) -> Any:
    """A booster that goes on from another, after its first round."""
    objective: dict[str, Any] = {"objective": fobj} if splittable else {}
    return lightgbm.train(
        {**parameters, **objective},
        rows,
        num_boost_round=1,
        init_model=init_model,
        keep_training_booster=True,
        valid_sets=None if validation is None else [validation],
        valid_names=None if validation is None else ["validation"],
    )
