"""Boosters grown in step, each without some of the queries, and their mean as one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.estimator.held_out import HeldOut
from sinkprop.gbdt.boosters import booster_text, lightgbm_module
from sinkprop.gbdt.growing.bins import dataset
from sinkprop.gbdt.growing.loop import EVERY, Boosting, BoostingFit, Function, GrownModel, Value
from sinkprop.gbdt.growing.validation import Validation
from sinkprop.serving.tree_files.lightgbm_text import mean_of_models

__all__ = ["grow_together", "queries_left_out", "query_parts"]

# Share of the queries that a booster does not train on if there is a validation set. Boosters that train on
# all queries and differ only by their noise are too similar: their mean is no better than one of them.
_LEFT_OUT = 0.3


def query_parts(n_queries: int, n_parts: int, seed: int) -> Integers:
    """Part (Q,) of each query, from 0: a random division into parts of almost equal size."""
    parts = np.empty(n_queries, dtype=np.int64)
    order = np.random.default_rng([seed, 2]).permutation(n_queries)
    parts[order] = np.arange(n_queries) % n_parts
    return parts


def queries_left_out(n_queries: int, n_boosters: int, seed: int) -> Mask:
    """Queries that each booster does not train on if there is a validation set, (n_boosters, n_queries)."""
    out = np.zeros((n_boosters, n_queries), dtype=bool)
    for number, row in enumerate(out):
        order = np.random.default_rng([seed, 3, number]).permutation(n_queries)
        row[order[: min(round(_LEFT_OUT * n_queries), n_queries - 1)]] = True
    return out


def grow_together(
    X: Any,
    derivatives: Sequence[Function],
    plan: Boosting,
    validation: Validation,
    *,
    parts: Integers | None,
    value: Value,
    notify: Notify = silent,
    adapt: Callable[[], None] = lambda: None,
) -> GrownModel:
    """Grow boosters for the rows X, one tree of each per round.

    The mean of the boosters is one model, see `mean_of_models`. One round is the best for all of them, by the
    criterion of the mean.

    derivatives  Derivatives for each booster, which differ by noise and by the queries that count.
    parts        (N,) number of the booster that does not train on each row, whose scores give the criterion
                 under cross-validation. None if there is a validation set.
    value        Function from the scores of the training rows to their expected gain, for the record.

    An interrupt from the keyboard ends the fit with the best trees so far.
    """
    growth = _Together(X, derivatives, plan, validation, parts, value)
    try:
        status = growth.run(notify, adapt)
    except KeyboardInterrupt:
        if growth.best < 0:
            raise
        status = "interrupted"
    return GrownModel(growth.text(), growth.record(status), growth.held_out(), len(derivatives))


class _Together:
    """Boosters during their growth, with the criterion of their mean after each finished round."""

    def __init__(
        self,
        X: Any,
        derivatives: Sequence[Function],
        plan: Boosting,
        validation: Validation,
        parts: Integers | None,
        value: Value,
    ) -> None:
        self._derivatives, self._plan, self._validation = derivatives, plan, validation
        self._parts, self._value = parts, value
        self._rows = dataset(X, parameters=plan.parameters, names=plan.names, categorical=plan.categorical)
        validation_rows = None
        if parts is None:
            validation_rows = dataset(validation.X, parameters=plan.parameters, reference=self._rows)
        seed, self._boosters = plan.parameters["seed"], []
        for number in range(len(derivatives)):
            seeds = dict.fromkeys(("seed", "drop_seed"), (seed + number) % 2**31)
            booster = lightgbm_module().Booster({**plan.parameters, **seeds}, self._rows)
            if validation_rows is not None:
                booster.add_valid(validation_rows, "validation")
            self._boosters.append(booster)
        self.values: list[float] = []
        self._trees: list[list[int]] = []
        self._training: list[tuple[int, float]] = []
        # index of the best round, from 0, and the scores that gave its criterion; one assignment sets both,
        # so that an interrupt cannot come between them
        self._best = -1, np.empty(0)

    @property
    def best(self) -> int:
        """Index of the best round, from 0; -1 before the first round is finished."""
        return self._best[0]

    def run(self, notify: Notify, adapt: Callable[[], None]) -> str:
        """Grow the trees; returns the status, "finished" or "stopped early"."""
        plan, validation = self._plan, self._validation
        # if LightGBM treats all features as constant, none of them has bins, and LightGBM cannot grow a tree
        splittable = any(map(self._rows.feature_num_bin, range(self._rows.num_feature())))
        n_rounds = plan.n_rounds if splittable else 1
        for number in range(n_rounds):
            adapt()
            if splittable:
                self._update(number)
            scores = self._scores_to_validate()
            value = validation.mean(scores)
            self._trees.append([booster.num_trees() for booster in self._boosters])
            self.values.append(value)
            if number == 0 or plan.patience is None or value > self.values[self.best] + plan.min_delta:
                self._best = number, scores
            plan.report(number, value)
            at = f"{validation.criterion} {self.values[self.best]:.4f}"
            notify(number + 1, n_rounds, f"round {number + 1} of {len(self._boosters)} boosters, {at}")
            if plan.patience is not None and number - self.best >= plan.patience:
                return "stopped early"
        return "finished"

    def _update(self, number: int) -> None:
        """Grow one tree of each booster."""
        total: Any = 0.0
        for booster, derivatives in zip(self._boosters, self._derivatives, strict=True):
            given: list[Floats] = []

            def objective(
                scores: Floats, _: object, function: Function = derivatives, seen: list[Floats] = given
            ) -> tuple[Any, Any]:
                if not np.isfinite(scores).all():
                    raise ValueError(
                        f"the scores of {number} trees overflowed. Lower learning_rate, or raise reg_lambda."
                    )
                seen.append(scores)
                return function(scores)

            booster.update(fobj=objective)
            total = total + given[0]
        if number and number % EVERY == 0:
            self._training.append((number, self._value(total / len(self._boosters))))

    def _scores_to_validate(self) -> Floats:
        """Mean scores of the validation rows; under cross-validation, scores of rows not trained on."""
        found: list[Floats] = []

        def keep(scores: Floats, _: object) -> tuple[str, float, bool]:
            found.append(scores)
            return "scores", 0.0, True

        for booster in self._boosters:
            if self._parts is None:
                booster.eval_valid(keep)
            else:
                booster.eval_train(keep)
        if self._parts is None:
            mean: Floats = np.mean(found, axis=0)
            return mean
        scores: Floats = np.stack(found)[self._parts, np.arange(len(self._parts))]
        return scores

    def text(self) -> str:
        """The mean of the boosters, with the trees up to the best round, in LightGBM's format."""
        counts = self._trees[self.best]
        return mean_of_models(
            [booster_text(booster, n) for booster, n in zip(self._boosters, counts, strict=True)]
        )

    def held_out(self) -> HeldOut:
        """Validation queries with their scores at the best round."""
        return self._validation.held_out(self._best[1])

    def record(self, status: str) -> BoostingFit:
        validation, n_rounds = self._validation, len(self.values)
        return BoostingFit(
            status,
            validation.criterion,
            validation.validated_on,
            tuple(map(float, self.values)),
            n_rounds,
            self.best + 1,
            tuple(self._training),
        )
