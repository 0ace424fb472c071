"""AutoRanker: one ranker that tries the others within a time budget."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sinkprop.auto.clock import Clock
from sinkprop.auto.crossfit import CrossFit, Fits, cross_fit, planned
from sinkprop.auto.held_out import held_out_scores
from sinkprop.auto.member_files import member_from, member_state
from sinkprop.auto.members import KINDS, Settings, fitted_member, named_methods
from sinkprop.auto.record import AutoFit, MemberRecord
from sinkprop.auto.stacking import Stack, paired_error, stacked
from sinkprop.common.arguments import number
from sinkprop.common.packages import installed
from sinkprop.common.progress import progress_line
from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import BaseRanker, seed_of
from sinkprop.estimator.calibrated import take_held_out
from sinkprop.estimator.categorical_inputs import CategoricalInputs
from sinkprop.estimator.criteria import Criterion, gain_criterion
from sinkprop.estimator.selection import (
    Selection,
    as_selection,
    mean_over_queries,
    selection_from,
    selection_record,
)
from sinkprop.estimator.splits import Division
from sinkprop.objective.gains import Gain, as_gain, bound

__all__ = ["AutoRanker"]

_CHOOSING = 0.03  # share of the time budget that is kept for the choice of the weights


class AutoRanker(CategoricalInputs, BaseRanker):
    """A ranker that tries linear rankers, trees and networks within a time budget, and combines the best.

    The members are ridge regression, `SinkPropRanker`, `BoostedRanker` (if LightGBM is installed) and
    `NeuralRanker` (if PyTorch is installed), each with its defaults. Every member is fitted several times and
    scores queries on which it was not trained. These queries decide the members' weights in the score of the
    model. `fit_result_` says what was tried, how long it took, and what was chosen.

    Parameters
    ----------
    time_budget : float, default 60.0
        Time for `fit`, in seconds of wall time. A fit that is not expected to end in time is not started.
    methods : str or sequence of str, optional
        Members to try: some of "ridge", "linear", "trees" and "networks". None means all that are installed.
    gain : str or Gain, optional
        Gain that the members maximize, such as "ndcg@10". None means the default of each member.
    selection : str or Selection, default "auto"
        Held-out queries and criterion. "cross-validation" divides the queries, including those of an
        eval_set, into folds; each member is fitted once without each fold, and the model is the mean of these
        fits. "validation" uses the eval_set, or else holds out a fraction of the queries; each member is
        fitted once. "auto" means cross-validation for up to 2000 queries, or up to 500 queries if there is an
        eval_set, and validation for more. The rule and the patience have no effect.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`.
    random_state : int, optional, default 0
        Seed of the folds and of the members.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    fit_result_ : AutoFit
        Record of the fit; printed, it is a table of the members.
    members_ : dict of str to tuple of rankers
        Fitted rankers of each member of the model.
    weights_ : dict of str to float
        Weight of each member of the model; their sum is 1.
    scales_ : dict of str to tuple of float
        Number by which the scores of each ranker are divided.
    categories_ : dict
        Categories of each categorical feature, {name: categories}.

    Notes
    -----
    The score of a document is a weighted mean of the rankers' scores, each divided by its standard deviation
    within held-out queries. So `predict` needs qid only if a member does.

    If the time budget is too small for any member, or there is only one query, the model is ridge regression
    on all queries, and `fit` warns. NaN is a missing value. Categorical features are accepted by trees only;
    with such features, the other members are left out. A stored set is loaded into memory.

    The same seed gives the same model if the time budget does not end the fit. If it does, the model depends
    on the speed of the machine.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> ranker = AutoRanker(methods="ridge,linear").fit(X, y, qid=qid)
    >>> ranker.rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    >>> sorted(ranker.weights_)
    ['linear', 'ridge']
    """

    def __init__(
        self,
        *,
        time_budget: float = 60.0,
        methods: str | Sequence[str] | None = None,
        gain: str | Gain | None = None,
        selection: str | Selection = "auto",
        metric: str = "ndcg@10",
        convention: str = "standard",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.time_budget = time_budget
        self.methods = methods
        self.gain = gain
        self.selection = selection
        self.metric = metric
        self.convention = convention
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.gain is not None and bound(as_gain(self.gain))[1]:
            raise ValueError(
                f"gain: AutoRanker fits its members to parts of the data, which an array in the gain "
                f"{as_gain(self.gain)} does not fit. Use SinkPropRanker, BoostedRanker or NeuralRanker."
            )
        named_methods(self.methods)
        number("time_budget", self.time_budget, above=True)

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        clock = Clock(number("time_budget", self.time_budget, above=True))
        clock.reserve = _CHOOSING * clock.budget
        selection, seed = as_selection(self.selection), seed_of(self.random_state)
        settings = Settings(
            self.gain,
            selection.criterion,
            self.metric,
            self.convention,
            self.n_threads,
            seed,
            self._categories.unordered,
        )
        names, left_out = self._to_try()
        division = planned(data, validation, selection, np.random.default_rng([seed, 0]))
        if data.n_queries + (0 if validation is None else validation.n_queries) < 2:
            reason = "there is only one query, so none can be held out to compare the members"
            self._fit_floor(data, settings, clock, reason, left_out)
            return
        with progress_line(bool(self.verbose)) as notify:
            found = cross_fit(names, division, settings, clock, notify)
        tried = {fit.name: len(fit.models) for fit in found.fits if fit.models}
        if not tried or (list(tried) == ["ridge"] and tried["ridge"] < len(division.validation)):
            notes = left_out | {fit.name: fit.ended for fit in found.fits}
            reason = f"time_budget={self.time_budget:g} seconds is too small to compare the members"
            if not any(fit.out_of_time for fit in found.fits):
                reason = "; ".join(f"{name} {note}" for name, note in notes.items() if "failed" in note)
            self._fit_floor(data, settings, clock, reason, notes)
            return
        self._combine(found, division, selection, clock, left_out)

    def _to_try(self) -> tuple[list[str], dict[str, str]]:
        """Members to try, and the reasons why others are left out."""
        names, left_out = named_methods(self.methods), {}
        for name in names:
            kind = KINDS[name]
            if kind.needs is not None and not installed(kind.needs):
                left_out[name] = f'needs {kind.needs}: pip install "sinkprop[{kind.needs}]"'
            elif self._categories.values and not kind.categories:
                left_out[name] = "does not accept categorical features"
        names = [name for name in names if name not in left_out]
        if not names:
            reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
            raise ValueError(f"AutoRanker has no member for these data: {reasons}.")
        return names, left_out

    def _fit_floor(
        self, data: TrainingSet, settings: Settings, clock: Clock, reason: str, notes: Mapping[str, str]
    ) -> None:
        """Fit the simplest member to all training queries, without a time limit, and warn."""
        name = "trees" if self._categories.values else "ridge"
        what = KINDS[name].in_words
        warnings.warn(f"AutoRanker: {reason}. The model is {what} on all queries.", UserWarning, stacklevel=5)
        endless = Clock(float("inf"))
        model = fitted_member(name, settings, data, None, endless)
        self._keep_held_out(take_held_out(model))
        self._set_members({name: (model,)}, {name: (1.0,)}, {name: 1.0})
        records = [MemberRecord(name, 1, 1.0, seconds=endless.seconds, note=reason)]
        records += [MemberRecord(other, 0, 0.0, note=note) for other, note in notes.items() if other != name]
        self.fit_result_ = AutoFit(
            "floor", "", "", tuple(records), 0.0, 0.0, float(self.time_budget), clock.seconds
        )

    def _combine(
        self,
        found: CrossFit,
        division: Division,
        selection: Selection,
        clock: Clock,
        left_out: Mapping[str, str],
    ) -> None:
        """Choose the weights of the members by their held-out scores, and set the model and its record."""
        tried = [fit for fit in found.fits if fit.models]
        common = min(len(fit.models) for fit in tried)  # all have been compared on these held-out queries
        division = dataclasses.replace(division, validation=division.validation[:common])
        gain = as_gain("ndcg" if self.gain is None else self.gain)
        gain = gain.fitted(np.array([held.y.max() for _, held in division.validation]))
        weighted = any(held.sample_weight is not None for _, held in division.validation)
        criterion_of, criterion = gain_criterion(gain, selection, self.convention, weighted=weighted)
        stack = _stack(tried, division, criterion_of, np.random.default_rng([seed_of(self.random_state), 1]))
        weights = dict(zip((fit.name for fit in tried), stack.weights.tolist(), strict=True))
        kept = [fit for fit in tried if weights[fit.name] > 0]
        self._set_members(
            {fit.name: tuple(fit.models) for fit in kept},
            {fit.name: tuple(fit.scales) for fit in kept},
            {fit.name: weights[fit.name] for fit in kept},
        )
        self._keep_held_out(
            held_out_scores(
                [held for _, held in division.validation],
                [sum(weights[fit.name] * fit.scores[k] for fit in kept) for k in range(common)],
                lambda queries: self._score_rows(queries.X, queries.groups),
            )
        )
        status = "interrupted" if found.stopped else "finished"
        if status == "finished" and any(fit.out_of_time for fit in found.fits):
            status = "out of time"
        self.fit_result_ = AutoFit(
            status,
            criterion,
            _held_out(division),
            _records(found.fits, tried, stack, division.weight, left_out),
            stack.gain,
            stack.error,
            float(self.time_budget),
            clock.seconds,
        )
        if found.stopped:
            warnings.warn(f"AutoRanker: {self.fit_result_.message}", RuntimeWarning, stacklevel=5)

    def _set_members(
        self,
        members: dict[str, tuple[BaseRanker, ...]],
        scales: dict[str, tuple[float, ...]],
        weights: dict[str, float],
    ) -> None:
        for ranker in (each for rankers in members.values() for each in rankers):
            take_held_out(ranker)  # the model is calibrated as a whole
        self.members_, self.scales_, self.weights_ = members, scales, weights
        self.scaling_ = Scaling("none", np.zeros(self.n_features_in_), np.ones(self.n_features_in_))

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        check_is_fitted(self, "members_")
        qid = None if groups is None else groups.codes
        total = np.zeros(len(X))
        for name, rankers in self.members_.items():
            for ranker, scale in zip(rankers, self.scales_[name], strict=True):
                total += (self.weights_[name] / len(rankers) / scale) * ranker.predict(X, qid=qid)
        return total

    @property
    def explainable(self) -> bool:
        """Whether `explain` works: whether it does for all members with a weight."""
        check_is_fitted(self, "members_")
        used = [ranker for name, own in self.members_.items() if self.weights_[name] for ranker in own]
        return all(ranker.explainable for ranker in used)

    def _contributions(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        check_is_fitted(self, "members_")
        qid = None if groups is None else groups.codes
        total = np.zeros((len(X), self.n_features_in_ + 1))
        for name, rankers in self.members_.items():
            for ranker, scale in zip(rankers, self.scales_[name], strict=True):
                if self.weights_[name]:
                    share = self.weights_[name] / len(rankers) / scale
                    total += share * ranker.predict(X, qid=qid, pred_contrib=True)
        return total

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = self._saved_params()
        saved["time_budget"] = float(self.time_budget)
        saved["methods"] = None if self.methods is None else named_methods(self.methods)
        saved["gain"] = None if self.gain is None else as_gain(self.gain).text
        saved["selection"] = selection_record(self.selection)
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        return {**saved, "selection": selection_from(saved["selection"])}

    def _fitted_state(self) -> dict[str, Any]:
        record = dataclasses.asdict(self.fit_result_)
        del record["seconds"]  # the same fit takes another time in each run, but must give the same file
        for member in record["members"]:
            del member["seconds"]
        record["members"] = list(record["members"])
        return {
            "record": record,
            **self._category_state(),
            "models": {
                name: {
                    "weight": self.weights_[name],
                    "scales": list(self.scales_[name]),
                    "rankers": [member_state(name, ranker) for ranker in rankers],
                }
                for name, rankers in self.members_.items()
            },
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._restore_categories(state)
        members, scales, weights = {}, {}, {}
        for name, saved in state["models"].items():
            weights[name] = float(saved["weight"])
            scales[name] = tuple(float(scale) for scale in saved["scales"])
            members[name] = tuple(member_from(name, ranker) for ranker in saved["rankers"])
            if len(members[name]) != len(scales[name]) or not members[name]:
                raise ValueError(f"the member {name} must have one scale per ranker")
            if not all(np.isfinite([weights[name], *scales[name]])) or min(weights[name], *scales[name]) <= 0:
                raise ValueError(f"the weight and the scales of {name} must be numbers above 0")
            if any(ranker.n_features_in_ != self.n_features_in_ for ranker in members[name]):
                raise ValueError(f"the member {name} must have {self.n_features_in_} features")
        if not members:
            raise ValueError("the model has no members")
        self._set_members(members, scales, weights)
        record = {**state["record"]}
        record["members"] = tuple(MemberRecord(**member) for member in record["members"])
        self.fit_result_ = AutoFit(**record)


def _stack(
    tried: Sequence[Fits], division: Division, criterion_of: Criterion, rng: np.random.Generator
) -> Stack:
    """Find the weights of the members by their scores of the held-out queries."""
    held = [part for _, part in division.validation]

    def value(weights: Floats) -> Floats:
        return np.concatenate(
            [
                criterion_of(part, sum(w * fit.scores[k] for w, fit in zip(weights, tried, strict=True)))
                for k, part in enumerate(held)
            ]
        )

    folds = np.repeat(np.arange(len(held)), [part.n_queries for part in held])
    return stacked(value, len(tried), folds, division.weight, rng)


def _records(
    fits: Sequence[Fits],
    tried: Sequence[Fits],
    stack: Stack,
    weight: Floats | None,
    left_out: Mapping[str, str],
) -> tuple[MemberRecord, ...]:
    """Records of all members, in the order of `KINDS`."""
    means = np.array([mean_over_queries(values, weight) for values in stack.values])
    best = stack.values[int(np.argmax(means))]
    found = {name: MemberRecord(name, 0, 0.0, note=note) for name, note in left_out.items()}
    for fit in fits:
        found[fit.name] = MemberRecord(fit.name, 0, 0.0, seconds=fit.lost, note=fit.ended)
    for fit, own, values, mean in zip(tried, stack.weights, stack.values, means, strict=True):
        found[fit.name] = MemberRecord(
            fit.name,
            len(fit.models),
            float(own),
            float(mean),
            float(mean - means.max()),
            paired_error(np.nan_to_num(values - best), stack.shares),
            sum(fit.seconds) + fit.lost,
            fit.ended,
        )
    return tuple(found[name] for name in KINDS if name in found)


def _held_out(division: Division) -> str:
    """Held-out queries in words; with fewer folds than planned if the time did not allow all of them."""
    common, n_folds = len(division.validation), max(len(division.parts) - 1, 1)
    if common == n_folds:
        return division.validated_on
    n = sum(part.n_queries for _, part in division.validation)
    return f"{common} of the folds of {division.validated_on} ({n} queries)"
