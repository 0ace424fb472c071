"""The boosting loop, round by round: derivatives, validation, early stopping, and the record of the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats
from sinkprop.estimator.fit_record import FitRecord
from sinkprop.estimator.held_out import HeldOut
from sinkprop.gbdt.boosters import booster_of, booster_text, lightgbm_module
from sinkprop.gbdt.growing.bins import dataset, predicted
from sinkprop.gbdt.growing.validation import Validation

__all__ = ["Boosting", "BoostingFit", "Grown", "GrownModel", "Growth", "Round", "grow"]

Function = Callable[[Floats], tuple[Any, Any]]
Value = Callable[[Floats], float]

# Number of rounds after which the training queries' expected gain is computed again. The computation takes a
# third of a round's time.
EVERY = 10


@dataclass(frozen=True)
class Round:
    """Record of one round of boosting, in which every booster grows a tree.

    Parameters
    ----------
    number : int
        Number of the round, from 1.
    criterion : float
        Mean criterion over the validation queries after the round; NaN without validation queries.
    """

    number: int
    criterion: float


@dataclass(frozen=True, repr=False)
class BoostingFit(FitRecord):
    """Record of a fit of boosted trees.

    Parameters
    ----------
    status : {"finished", "stopped early", "interrupted"}
        How the fit ended; `message` says it in a sentence.
    criterion : str
        Name of the criterion that selected the best round; empty without validation queries.
    validated_on : str
        Validation queries in words, such as "21 validation queries" or "17 queries held out"; empty without
        validation queries.
    values : tuple of float
        Criterion after each round; empty without validation queries.
    n_rounds : int
        Number of rounds that were run.
    best : int
        Number of the best round, from 1. The model has the trees up to this round.
    training : tuple of (int, float)
        Number of a round and the expected gain of the training queries after it, for every tenth round.
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every tree was grown.",
        "stopped early": "The criterion had stopped rising; the trees are those up to its best round.",
        "interrupted": "The fit was interrupted; the trees are the best of those that were grown.",
    }

    values: tuple[float, ...]
    n_rounds: int
    best: int
    training: tuple[tuple[int, float], ...] = ()

    @property
    def still_rising(self) -> bool:
        """Whether the trees ran out while the criterion rose: its best round is among the last tenth."""
        return self.status == "finished" and bool(self.values) and self.best > 0.9 * self.n_rounds

    @property
    def message(self) -> str:
        """The status as a sentence."""
        if self.still_rising:
            return "Every tree was grown, and the criterion still rose: more trees may rank better."
        return super().message

    @property
    def choice(self) -> str:
        if not 1 <= self.best <= self.n_rounds:
            raise ValueError(f"best must be a round from 1 to {self.n_rounds}")
        return f"the trees up to round {self.best} of {self.n_rounds}"

    def _value(self) -> float:
        return self.values[self.best - 1]


@dataclass(frozen=True, eq=False)
class Boosting:
    """Checked settings of the boosting loop.

    parameters   Parameters of LightGBM, by their main names.
    n_rounds     Maximum number of rounds, each of which grows one tree.
    patience     Number of rounds without improvement after which growth stops; the model then has the trees
                 up to the best round. None grows and keeps all trees.
    min_delta    A round becomes the best if its criterion is larger than that of the best round so far plus
                 min_delta.
    names        Names of the features, or "auto".
    categorical  Column numbers of the categorical features.
    init_model   Booster whose trees come first, or None.
    callbacks    LightGBM's callbacks, called in the same way as by `lightgbm.train`.
    on_round     Called with the `Round` after each round, or None.
    """

    parameters: dict[str, Any]
    n_rounds: int
    patience: int | None
    min_delta: float = 0.0
    names: Sequence[str] | str = "auto"
    categorical: Sequence[int] = ()
    init_model: Any = None
    callbacks: Sequence[Callable[[Any], Any]] = ()
    on_round: Callable[[Round], None] | None = None

    @property
    def dart(self) -> bool:
        return str(self.parameters.get("boosting", "")).lower() == "dart"

    def report(self, number: int, value: float) -> None:
        """Tell the user about a finished round: its number, from 0, and its criterion."""
        if self.on_round is not None:
            self.on_round(Round(number + 1, float(value)))


@dataclass(frozen=True)
class Grown:
    """State of an unfinished fit, from which another process can resume it.

    text      Text of the trees, as LightGBM writes it.
    trees     Number of trees after each round.
    values    Criterion after each round; NaN without validation queries.
    best      Index of the best round, from 0.
    training  Expected gains of the training queries, as in `BoostingFit`.
    """

    text: str
    trees: tuple[int, ...]
    values: tuple[float, ...]
    best: int
    training: tuple[tuple[int, float], ...]


@dataclass(frozen=True, eq=False)
class GrownModel:
    """Result of a fit.

    text        The trees, in LightGBM's format.
    result      Record of the fit.
    held_out    Validation queries with their scores at the best round; None without validation queries.
    n_boosters  Number of boosters whose mean is the model.
    """

    text: str
    result: BoostingFit
    held_out: HeldOut | None
    n_boosters: int = 1


def grow(
    X: Any,
    derivatives: Function,
    plan: Boosting,
    validation: Validation | None = None,
    *,
    value: Value | None = None,
    notify: Notify = silent,
    adapt: Callable[[], None] = lambda: None,
    make: Callable[..., Any] = dataset,
    network: AbstractContextManager[Any] | None = None,
    resumed: Grown | None = None,
    watch: Callable[[Growth], None] | None = None,
) -> GrownModel:
    """Grow trees for the rows X.

    value    Function from the scores of the training rows to their expected gain, for the record.
    adapt    Function that is called before each round, see `adapting_threads`.
    make     Function that puts rows into bins, see `dataset`.
    network  Context in which the rounds run if other processes hold some of the training rows. It is entered
             after the rows of this process are in bins.
    resumed  State of an earlier fit to continue from; it includes the trees of plan.init_model.
    watch    Function that is called with the `Growth` after each round.

    An interrupt from the keyboard ends the fit with the best trees so far.
    """
    growth = Growth(X, derivatives, plan, validation, value, make=make, resumed=resumed)
    try:
        with network or nullcontext():
            status = growth.run(notify, watch, adapt)
    except KeyboardInterrupt:
        # dart removes earlier trees while it grows a new one: an interrupted round leaves no usable model
        if not growth.trees or plan.dart:
            raise
        status = "interrupted"
    text = booster_text(growth.booster, growth.trees[growth.best])
    return GrownModel(text, growth.record(status), growth.held_out())


class Growth:
    """A booster during its growth, with the number of trees and the criterion after each finished round."""

    def __init__(
        self,
        X: Any,
        derivatives: Function,
        plan: Boosting,
        validation: Validation | None,
        value: Value | None,
        *,
        make: Callable[..., Any] = dataset,
        resumed: Grown | None = None,
    ) -> None:
        self._lightgbm = lightgbm_module()
        self._make = make
        self._first = plan.init_model if resumed is None else booster_of(resumed.text)
        self._derivatives, self._plan, self._validation = derivatives, plan, validation
        self._parameters = dict(plan.parameters)  # a copy, because a callback may change it
        self._rows = self._dataset(X, names=plan.names, categorical=plan.categorical)
        self._validation_rows = None
        # this process has no validation rows if other processes hold all of them
        if validation is not None and len(validation.X):
            self._validation_rows = self._dataset(validation.X, reference=self._rows)
        self.booster: Any = None
        self.trees: list[int] = list(resumed.trees) if resumed else []
        self._values: list[float] = list(resumed.values) if resumed else []
        # Dart removes some trees before it asks for derivatives, so the scores that it passes lack these
        # trees. The expected gain at such scores is not that of the model, so it is not recorded.
        self._value = None if plan.dart else value
        self._training: list[tuple[int, float]] = list(resumed.training) if resumed else []
        self.best = resumed.best if resumed else 0
        self._seen = np.empty(0)  # scores of the validation rows: LightGBM's buffer, which it writes anew
        self._kept = (-1, self._seen)  # index of a round, and the scores of the validation rows after it

    def _dataset(self, X: Any, **options: Any) -> Any:
        """Make a LightGBM Dataset of the rows X.

        If the fit continues from earlier trees, the scores of these trees are the initial scores.
        """
        scores = None if self._first is None else self._scores(self._first, X)
        return self._make(X, parameters=self._plan.parameters, init_score=scores, **options)

    def _scores(self, booster: Any, X: Any, **options: Any) -> Floats:
        return predicted(booster, X, num_threads=self._parameters["num_threads"], **options)

    def run(
        self,
        notify: Notify,
        watch: Callable[[Growth], None] | None = None,
        adapt: Callable[[], None] = lambda: None,
    ) -> str:
        """Grow the trees; returns the status, "finished" or "stopped early"."""
        plan, validation = self._plan, self._validation
        # if LightGBM treats all features as constant, none of them has bins, and LightGBM cannot grow a tree
        splittable = any(map(self._rows.feature_num_bin, range(self._rows.num_feature())))
        if not splittable and self._first is not None:
            return self._keep(self._first)
        n_rounds = plan.n_rounds if splittable else 1
        patience = None if validation is None or plan.dart else plan.patience
        try:
            for number in range(len(self.trees), n_rounds):
                # this is true only if the fit was resumed from a state in which it had already stopped early
                if patience is not None and number - 1 - self.best >= patience:
                    break
                if self.booster is None:
                    self._begin()
                adapt()
                if splittable:
                    self._call(number, before=True)
                    self.booster.update(fobj=self._objective)
                results: list[Any] = []
                value = np.nan
                if self._validation_rows is not None:
                    results = self.booster.eval_valid(self._criterion)
                    value = results[-1][2]
                elif validation is not None:
                    value = validation.mean(np.empty(0))
                self._values.append(value)
                self.trees.append(self.booster.num_trees())
                if number == 0 or patience is None or value > self._values[self.best] + plan.min_delta:
                    self.best = number
                    self._kept = number, self._seen.copy()
                plan.report(number, value)
                self._call(number, before=False, results=results)
                at = f", {validation.criterion} {self._values[self.best]:.4f}" if validation else ""
                notify(number + 1, n_rounds, f"tree {number + 1}{at}")
                if watch is not None:
                    watch(self)
                if patience is not None and number - self.best >= patience:
                    return "stopped early"
            # no round was run, because the fit was resumed from a state that had all its rounds
            if self.booster is None:
                self.booster = self._first
        except self._lightgbm.callback.EarlyStopException as stop:
            self.best = min(int(stop.best_iteration), len(self.trees) - 1)
        # LightGBM's early stopping callback raises `EarlyStopException` also after the last round
        return "finished" if len(self.trees) == n_rounds else "stopped early"

    def _keep(self, booster: Any) -> str:
        """Take `booster` as the result of the fit, without growing trees; returns the status "finished"."""
        self.booster, self.trees = booster, [booster.num_trees()]
        if self._validation is not None:
            self._kept = 0, self._scores(booster, self._validation.X)
            self._values = [self._validation.mean(self._kept[1])]
        return "finished"

    def _begin(self) -> None:
        """Make the LightGBM booster; called before the first round."""
        first, validation = self._first, self._validation_rows
        if first is not None:
            # `_predictor` tells LightGBM which model produced the initial scores; training continues from it
            trees = self._lightgbm.basic._InnerPredictor.from_booster(first, {})
            for rows in (self._rows, validation):
                if rows is not None:
                    rows._predictor = trees
        self.booster = self._lightgbm.Booster(dict(self._parameters), self._rows)
        if validation is not None:
            self.booster.add_valid(validation, "validation")

    def _objective(self, scores: Floats, _: object) -> tuple[Any, Any]:
        if not np.isfinite(scores).all():
            raise ValueError(
                f"the scores of {len(self.trees)} trees overflowed. Lower learning_rate, or raise reg_lambda."
            )
        if self._plan.dart and not self.trees and self.booster is not None:
            # In the first round, which has no tree to drop, LightGBM decides by an uninitialized flag whether
            # to draw random numbers. The seed is set again here, after that decision, so that the random
            # numbers of all later rounds are reproducible.
            self.booster.reset_parameter({"drop_seed": self._parameters["drop_seed"]})
        grown = len(self.trees)
        if self._value is not None and grown and grown % EVERY == 0:  # `scores` include all grown trees
            self._training.append((grown, self._value(scores)))
        return self._derivatives(scores)

    def _criterion(self, scores: Floats, _: object) -> tuple[str, float, bool]:
        self._seen, validation = scores, self._validation
        return (validation.criterion, validation.mean(scores), True) if validation else ("", np.nan, True)

    def _callbacks(self, *, before: bool) -> list[Callable[[Any], Any]]:
        chosen = [each for each in self._plan.callbacks if getattr(each, "before_iteration", False) == before]
        return sorted(chosen, key=lambda each: getattr(each, "order", -1))

    def _call(self, number: int, *, before: bool, results: Sequence[Any] | None = None) -> None:
        """Call the user's LightGBM callbacks: those to run before a round, or those to run after it.

        number   Number of the round, from 0.
        before   Whether to call the callbacks to run before the round.
        results  Values of the criterion after the round, as LightGBM returns them.
        """
        for callback in self._callbacks(before=before):
            callback(
                self._lightgbm.callback.CallbackEnv(
                    model=self.booster,
                    params=self._parameters,
                    iteration=number,
                    begin_iteration=0,
                    end_iteration=self._plan.n_rounds,
                    evaluation_result_list=results,
                )
            )

    def held_out(self) -> HeldOut | None:
        """Validation queries with their scores by the trees up to the best round."""
        validation, (number, scores) = self._validation, self._kept
        if validation is None:
            return None
        # a callback may have chosen an earlier round, or the best one was run before the fit was resumed
        if number != self.best and len(validation.X):
            scores = self._scores(self.booster, validation.X, num_iteration=self.trees[self.best])
        return validation.held_out(scores)

    def grown(self) -> Grown:
        """State of the fit, from which another process can resume it."""
        return Grown(
            booster_text(self.booster),
            tuple(self.trees),
            tuple(map(float, self._values)),
            self.best,
            tuple(self._training),
        )

    def record(self, status: str) -> BoostingFit:
        validation, n_rounds = self._validation, len(self.trees)
        return BoostingFit(
            status,
            "" if validation is None else validation.criterion,
            "" if validation is None else validation.validated_on,
            () if validation is None else tuple(float(value) for value in self._values[:n_rounds]),
            n_rounds,
            self.best + 1,
            tuple(self._training),
        )
