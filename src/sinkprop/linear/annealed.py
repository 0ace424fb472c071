"""The base class of SinkProp and SmoothRank: linear rankers fitted at decreasing smoothing."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import numbers, one_of, whole
from sinkprop.common.plain_data import plain_parameter
from sinkprop.common.progress import progress_line
from sinkprop.common.types import Floats, Integers
from sinkprop.data.blocks import Source
from sinkprop.data.feature_scaling import check_kind
from sinkprop.data.kinds import is_stored_set
from sinkprop.data.missing import DEFAULT
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet, joined, with_dtype
from sinkprop.estimator.base import OF_THE_RUN, BaseRanker, seed_of
from sinkprop.estimator.calibrated import take_held_out
from sinkprop.estimator.criteria import gain_criterion, gain_under
from sinkprop.estimator.external_queries import no_arrays
from sinkprop.estimator.fit_record import timeless
from sinkprop.estimator.selection import as_selection, selection_from, selection_record
from sinkprop.linear.inputs import Sources
from sinkprop.linear.recipe import Finished, Recipe, ResumeError, train
from sinkprop.linear.records import Annealing, FitResult, Stage
from sinkprop.linear.tasks import LargestLabels
from sinkprop.model_files import ModelFileError, read_model, saved_floats, write_model
from sinkprop.objective.gains import as_gain
from sinkprop.objective.normalization import Converged, as_iterations
from sinkprop.objective.rank_distribution import partitioned_ranks
from sinkprop.objective.relaxations import (
    SHARED_SCALE,
    PartitionedMeasure,
    Relaxation,
    SmoothedIndicator,
    as_relaxation,
    relaxation_from,
    relaxation_record,
    score_weights,
)
from sinkprop.serving.linear_scores import linear_scores

__all__ = ["PATH", "PENALTIES", "AnnealedRanker", "least_squares_of"]


PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # those of a fit with annealing
# Without annealing, the penalty decreases from stage to stage, at one sigma.
PATH, _SIGMA = tuple(10.0 ** (i / 2) for i in range(1, -8, -1)), 1.0


class AnnealedRanker(BaseRanker):
    """Base class of the linear rankers that are trained by `recipe.train`.

    A subclass has the attributes gain, relaxation, penalty, annealing, start, selection, normalization,
    missing, resample, n_iter, epsilon, max_iter, tol, top, metric, convention, checkpoint, on_stage,
    n_threads, random_state and verbose, either as constructor parameters or as class constants.
    """

    # Annealing if the parameter `annealing` is None; with None, the penalty decreases instead.
    default_annealing: Annealing | None = None
    _takes_label_columns = True
    averages = True  # whether the model is an average of stages if `selection` names no rule

    def _fit_elsewhere(
        self, X: Any, y: Any, qid: Any, group: Any, evaluation: tuple[Any, Any, Any], weights: tuple[Any, Any]
    ) -> bool:
        eval_set, eval_qid, eval_group = evaluation
        sample_weight, query_weight = weights
        given = [eval_set] if is_stored_set(eval_set) else eval_set
        eval_sets = list(given) if isinstance(given, list | tuple) else []
        cluster = getattr(self, "cluster", None)
        if cluster is None and not is_stored_set(X) and not any(map(is_stored_set, eval_sets)):
            return False
        check_kind(self.normalization)
        self._recipe(weighted=sample_weight is not None)
        with ExitStack() as stack:
            sources = Sources(
                stack,
                cluster,
                by_query=self.normalization == "query",
                allow_nan=self.missing != "error",
                n_threads=self.n_threads,
            )
            dtype = None  # dtype of training rows in memory, to which validation rows are converted
            if sources.takes(X):
                no_arrays(
                    X, y=y, qid=qid, group=group, sample_weight=sample_weight, cluster=cluster is not None
                )
                data, names = sources.elsewhere(X, y, qid, query_weight=query_weight)
                self._know_features(data.n_features, names)
            else:
                rows = self._training_set(
                    X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
                )
                data, dtype = sources.of_rows(rows), rows.X.dtype
            validation: Source | None
            if any(map(is_stored_set, eval_sets)):
                validation = self._stored_validation(sources, eval_sets, eval_qid, eval_group)
            else:
                validation = self._validation(sources, self._evaluation_sets(*evaluation), dtype)
            self._fit_source(data, validation)
            self.n_rows_, self.n_queries_ = data.n_rows, data.n_queries
        return True

    def _stored_validation(self, sources: Sources, sets: list[Any], eval_qid: Any, eval_group: Any) -> Source:
        if len(sets) > 1:
            raise ValueError(
                f"eval_set: {len(sets)} sets were given, and one of them is stored; give that one alone, "
                "or convert all their files into one."
            )
        if eval_qid is not None or eval_group is not None:
            raise ValueError("eval_qid and eval_group are for arrays: a stored eval_set has its own ids.")
        source, names = sources.elsewhere(sets[0], name="eval_set ")
        own = getattr(self, "feature_names_in_", None)
        if source.n_features != self.n_features_in_:
            raise ValueError(
                f"eval_set has {source.n_features} features, but {type(self).__name__} is fitted to "
                f"{self.n_features_in_}."
            )
        if own is not None and names is not None and tuple(own) != tuple(names):
            at = next(i for i, (a, b) in enumerate(zip(own, names, strict=True)) if a != b)
            raise ValueError(
                f"eval_set has other features than the training set: its column {at} is {names[at]!r}, not "
                f"{own[at]!r}."
            )
        return source

    def _validation(self, sources: Sources, sets: list[TrainingSet], dtype: Any) -> Source | None:
        if not sets:
            return None
        rows = reduce(joined, sets)
        return sources.of_rows(rows if dtype is None else with_dtype(rows, dtype))

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        with ExitStack() as stack:
            sources = Sources(stack, None, by_query=False, allow_nan=True, n_threads=self.n_threads)
            own = None if validation is None else sources.of_rows(validation)
            self._fit_source(sources.of_rows(data), own)

    def _fit_source(self, data: Source, validation: Source | None) -> None:
        recipe = self._recipe(weighted=data.weighted_rows, data=data)
        resumed, write = self._checkpointing(data, validation, recipe)
        try:
            with progress_line(bool(self.verbose)) as notify:
                trained = train(
                    data,
                    validation,
                    recipe,
                    resumed=resumed,
                    checkpoint=write,
                    on_stage=self.on_stage,
                    notify=notify,
                )
        except ResumeError as error:
            raise self._not_resumable(error) from None
        result = trained.result
        if result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {result.message}", RuntimeWarning, stacklevel=5)
        elif self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        self.scaling_, self.missing_ = trained.scaling, trained.missing
        self.relaxation_ = recipe.at(result.sigma)
        self._keep_held_out(trained.held_out)
        self._set_result(result)

    def _theta(self, X: NDArray[Any], groups: Groups | None = None) -> Floats:
        return linear_scores(X, self._weights, self.scaling_)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        theta = self._theta(X)
        return theta if theta.ndim == 1 else theta @ np.array(score_weights(self.relaxation_))

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        # With one score per document, the most likely ranking is the order of the scores.
        if self.relaxation_.width == 1:
            return super()._ranks(X, groups)
        return partitioned_ranks(
            self._theta(X),
            groups,
            self.relaxation_,
            n_iter=self.n_iter,
            epsilon=self.epsilon,
            top=self.top,
        )

    def _recipe(self, *, weighted: bool, data: Source | None = None) -> Recipe:
        """Check the parameters of the ranker and return them as a `Recipe`.

        weighted  Whether rows have weights.
        data      Training queries, from which the gain may take parameters.
        """
        gain = gain_under(self.gain, self.convention)
        if data is not None and gain.unfitted:
            gain = gain.fitted(data.run(LargestLabels())[None])
        relaxation = as_relaxation(self.relaxation, SHARED_SCALE)
        selection = as_selection(self.selection)
        annealing = self.default_annealing if self.annealing is None else self.annealing
        if not isinstance(annealing, Annealing | None):
            raise ValueError(f"annealing must be an Annealing or None; got {annealing!r}.")
        one_of("start", self.start, ("ridge", "least-squares"))
        criterion_of, criterion = gain_criterion(gain, selection, self.convention, weighted=weighted)
        if not isinstance(self.tol, int | float) or not 0 <= self.tol < math.inf:
            raise ValueError(f"tol must be a number, not below 0; got {self.tol!r}.")
        return Recipe(
            gain=gain,
            relaxation=relaxation,
            tracks=_tracks(self.penalty, annealing, relaxation),
            start=self.start,
            selection=selection,
            averaged=selection.rule == "average" or (selection.rule is None and self.averages),
            criterion_of=criterion_of,
            criterion=criterion,
            n_iter=as_iterations(self.n_iter),
            epsilon=self.epsilon,
            max_iter=whole("max_iter", self.max_iter, 1),
            tol=float(self.tol),
            resample=whole("resample", self.resample, 0),
            top=whole("top", self.top, 1),
            seed=seed_of(self.random_state),
            normalization=self.normalization,
            missing=self.missing,
        )

    def _checkpointing(
        self, data: Source, validation: Source | None, recipe: Recipe
    ) -> tuple[list[Finished], Callable[[Sequence[Finished]], None] | None]:
        """Return the finished stages in the checkpoint file, and a function that writes stages to this file.

        A stage is the optimization for one penalty and one sigma. The file has stages if an earlier fit was
        not completed. If the parameter `checkpoint` is None, there are no stages, and the function is None.
        Raises a ModelFileError if the checkpoint belongs to a fit with other data or parameters.
        """
        if self.checkpoint is None:
            return [], None
        path, kind = self.checkpoint, f"{type(self).__name__}Checkpoint"
        digest = _fingerprint(data, validation, recipe, self.convention)

        def write(finished: Sequence[Finished]) -> None:
            stages = [dataclasses.asdict(record) for record in finished]
            for stage in stages:
                stage["weights"] = np.stack(stage["weights"])
            write_model(path, kind, {"fingerprint": digest, "stages": stages})

        if not os.path.exists(path):
            return [], write
        state = read_model(path, kind=kind).state
        if state.get("fingerprint") != digest:
            raise ModelFileError(
                f"{os.fspath(path)}: this checkpoint belongs to a fit with other data or parameters, and was "
                "not changed. Give another file, or remove this one."
            )
        try:
            return [Finished.from_record(stage) for stage in state["stages"]], write
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise self._not_resumable(error) from None

    def _not_resumable(self, error: Exception) -> ModelFileError:
        return ModelFileError(
            f"{os.fspath(self.checkpoint or '')}: the file is complete, but it is not a checkpoint of this "
            f"fit ({type(error).__name__}: {' '.join(str(error).split())}). Remove it to fit from the start."
        )

    def _set_result(self, result: FitResult) -> None:
        self.fit_result_, self._weights, self.sigma_ = result, result.weights, result.sigma
        self.coef_ = result.weights if result.weights.ndim == 1 else result.weights[:-1].T
        self.intercept_ = 0.0 if result.weights.ndim == 1 else result.weights[-1]

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = {k: v for k, v in self.get_params(deep=False).items() if k not in OF_THE_RUN}
        saved["gain"] = as_gain(self.gain).text
        if "relaxation" in saved:
            given = saved["relaxation"]
            saved["relaxation"] = given if isinstance(given, str) else relaxation_record(given)
        if self.penalty is not None:
            numbers("penalty", self.penalty)
            saved["penalty"] = plain_parameter(self.penalty)
        if isinstance(self.n_iter, Converged):
            saved["n_iter"] = str(self.n_iter)
        saved["selection"] = selection_record(self.selection)
        if self.annealing is not None:
            saved["annealing"] = dataclasses.asdict(self.annealing)
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = dict(saved)
        if "relaxation" in given:
            if isinstance(given["relaxation"], dict):
                given["relaxation"] = relaxation_from(given["relaxation"])
            as_relaxation(given["relaxation"])
        if given["penalty"] is not None:
            numbers("penalty", given["penalty"])
        if given["annealing"] is not None:
            given["annealing"] = Annealing(**given["annealing"])
        given["selection"] = selection_from(given["selection"])
        if given["gain"] is None:  # a user-defined gain cannot be saved; predictions do not need it
            given["gain"] = "ndcg"
        return given

    def _fitted_state(self) -> dict[str, Any]:
        r = self.fit_result_
        return {
            "weights": r.weights,
            "sigma": r.sigma,
            "relaxation": relaxation_record(self.relaxation_),
            "status": r.status,
            "criterion": r.criterion,
            "validated_on": r.validated_on,
            "stages": [timeless(stage) for stage in r.stages],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.relaxation_ = relaxation_from(state["relaxation"])
        partitioned = self.relaxation_.width == 2
        shape = (self._n_columns + 1, 2) if partitioned else (self._n_columns,)
        result = FitResult(
            state["status"],
            state["criterion"],
            state["validated_on"],
            saved_floats("weights", state["weights"], shape),
            state["sigma"],
            tuple(Stage(**stage) for stage in state["stages"]),
        )
        self._set_result(result)


def _tracks(
    penalty: Any, annealing: Annealing | None, relaxation: Relaxation
) -> tuple[tuple[tuple[float, float | None], ...], ...]:
    """Return the sequences of stages (penalty, sigma) of a fit; each continues from the stage before.

    With annealing there is one sequence per penalty, with decreasing sigmas. Without, there is one sequence,
    with decreasing penalties.

    penalty     Parameter `penalty` of the ranker.
    relaxation  The relaxation. A partitioned measure keeps its scale if there is no annealing.
    """
    if annealing is None:
        given = PATH if penalty is None else numbers("penalty", penalty)
        sigma = relaxation.sigma if isinstance(relaxation, PartitionedMeasure) else _SIGMA
        return (tuple((each, sigma) for each in sorted(given, reverse=True)),)
    given = PENALTIES if penalty is None else numbers("penalty", penalty)
    sigmas = annealing.sigmas if relaxation.width == 1 else (None,) * len(annealing.sigmas)
    return tuple(tuple((each, sigma) for sigma in sigmas) for each in given)


def least_squares_of(ranker: AnnealedRanker) -> AnnealedRanker:
    """Return a copy of `ranker` with the least-squares weights on its training queries.

    The copy ranks by score, and is not calibrated. Raises a ValueError if `ranker` was loaded from a file,
    which does not hold these weights.
    """
    weights = ranker.fit_result_.start
    if weights is None:
        raise ValueError("a model loaded from a file does not have the least-squares weights of its fit.")
    start = copy.copy(ranker)
    take_held_out(start)  # they were scored with the other weights
    start.relaxation_ = SmoothedIndicator()
    start._set_result(dataclasses.replace(ranker.fit_result_, weights=weights, sigma=None))
    return start


def _fingerprint(data: Source, validation: Source | None, recipe: Recipe, convention: str) -> str:
    """Hash of the data and the settings of a fit, to check that a checkpoint file belongs to this fit."""
    # `criterion_of` is left out: the criterion and the convention determine it, and the repr of a function
    # holds its address, which differs between processes. The default of `missing` is left out so that earlier
    # checkpoints can be resumed.
    settings = [
        (field.name, getattr(recipe, field.name))
        for field in dataclasses.fields(recipe)
        if field.name != "criterion_of" and (field.name, getattr(recipe, field.name)) != ("missing", DEFAULT)
    ]
    digest = hashlib.sha256(repr((settings, convention)).encode())
    for source in (data, validation):
        digest.update(b"" if source is None else source.digest.encode())
        if source is not None and source.query_weight is not None:
            digest.update(np.ascontiguousarray(source.query_weight).data)
    return digest.hexdigest()
