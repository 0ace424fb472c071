"""Base classes of the baselines: a fit trains several candidates, and validation queries select one."""

from __future__ import annotations

import dataclasses
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.plain_data import plain_parameter
from sinkprop.common.progress import progress_line
from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import fit_scaling
from sinkprop.data.missing import has_missing, learned_from_rows
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import OF_THE_RUN, BaseRanker, seed_of
from sinkprop.estimator.criteria import metric_criterion
from sinkprop.estimator.selection import Selection, as_selection, selection_from, selection_record
from sinkprop.estimator.tuning import Candidate, Trial, TuningResult, tune
from sinkprop.linear.problem import LinearProblem
from sinkprop.linear.products import products
from sinkprop.model_files import saved_floats
from sinkprop.objective.gains import Gain
from sinkprop.serving.linear_scores import linear_scores

__all__ = ["LinearBaseline", "TunedRanker"]


class TunedRanker(BaseRanker):
    """A ranker that trains several candidates, one of which validation queries select.

    A candidate is a model trained with one setting of the hyperparameters. A subclass defines how candidates
    are trained and how they score documents. In addition to its own parameters, it has these:

    selection      How the candidate is chosen: a `Selection`, or the name of its method.
    normalization  Feature scaling; see `SinkPropRanker`.
    missing        Treatment of missing values; see `SinkPropRanker`. Trees do not have this parameter.
    metric         Metric that `score` computes.
    convention     Convention of the metrics.
    n_threads      Number of threads; see `expected_gain`.
    random_state   Seed of all random draws.
    verbose        Whether to show a progress line on a terminal.
    """

    # criterion if `selection` names none: the mean of NDCG@1 to NDCG@10 is less noisy than any one of them
    criterion = "ndcg@1-10"
    no_row_weights = ""  # reason why unequal row weights are refused; empty if they are accepted

    @abstractmethod
    def _checked(self) -> int:
        """Check the subclass's parameters; return the number of candidates."""

    @abstractmethod
    def _candidates(self, problem: LinearProblem, seed: int) -> Iterator[Candidate]:
        """Train and yield the candidates, the most regularized first.

        Their number and settings must not depend on the training data.
        """

    @abstractmethod
    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of a candidate's model for rows X, to which `scaling_` has not been applied yet.

        Missing values have been treated already.

        `groups` holds the queries of the rows, in any order; None if the caller of `predict` gave none.
        """

    @abstractmethod
    def _set_model(self, model: Any) -> None:
        """Set the fitted attributes from the chosen candidate's model."""

    @abstractmethod
    def _model(self) -> Any:
        """The chosen candidate's model, from the fitted attributes."""

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        weight = data.sample_weight
        if self.no_row_weights and weight is not None and not 0 < weight.min() == weight.max():
            raise ValueError(
                f"{type(self).__name__} takes no sample_weight except equal weights: {self.no_row_weights}. "
                "Give query_weight, or leave rows out."
            )
        n_candidates = self._checked()
        selection = as_selection(self.selection)
        criterion_of, criterion = metric_criterion(selection.criterion or self._criterion(), self.convention)
        seed = seed_of(self.random_state)
        data, validation = self._treated(data, validation)
        self.scaling_ = fit_scaling(self.normalization, data.X)
        with products(self.n_threads, len(data.y)) as multiply, progress_line(bool(self.verbose)) as notify:
            model, result, held_out = tune(
                data,
                validation,
                lambda part: self._candidates(LinearProblem(part, self.scaling_, multiply), seed),
                lambda model, part: self._scores_of(model, part.X, part.groups),
                n_candidates=n_candidates,
                selection=selection,
                criterion_of=criterion_of,
                criterion=criterion,
                seed=seed,
                notify=notify,
            )
        if result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {result.message}", RuntimeWarning, stacklevel=4)
        self.fit_result_ = result
        self._keep_held_out(held_out)
        self._set_model(model)

    def _treated(
        self, data: TrainingSet, validation: TrainingSet | None
    ) -> tuple[TrainingSet, TrainingSet | None]:
        """Learn the treatment of missing values, and return the queries with their missing values treated."""
        self.missing_ = None
        some = [part for part in (data, validation) if part is not None and has_missing(part.X)]
        if not hasattr(self, "missing") or not some:
            return data, validation
        self.missing_ = learned_from_rows(self.missing, data.X)
        treated = dataclasses.replace(data, X=self.missing_(data.X))
        if validation is None:
            return treated, None
        return treated, dataclasses.replace(validation, X=self.missing_(validation.X))

    def _criterion(self) -> str:
        """Names of the metrics whose mean tells which candidate is best, if `selection` has no criterion."""
        return self.criterion

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._scores_of(self._model(), X, groups)

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = {
            name: plain_parameter(value, Selection, Gain)
            for name, value in self.get_params(deep=False).items()
            if name not in OF_THE_RUN
        }
        saved["selection"] = selection_record(self.selection)
        if isinstance(saved.get("gain"), Gain):
            saved["gain"] = saved["gain"].text
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = dict(saved)
        given["selection"] = selection_from(saved["selection"])
        if "gain" in given and given["gain"] is None:
            given["gain"] = "ndcg"  # a user-defined gain cannot be saved; predictions do not need it
        return given

    def _fitted_state(self) -> dict[str, Any]:
        r = self.fit_result_
        return {
            "model": self._model_state(),
            "status": r.status,
            "criterion": r.criterion,
            "validated_on": r.validated_on,
            "trials": [dataclasses.asdict(trial) for trial in r.trials],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        trials = tuple(Trial(**trial) for trial in state["trials"])
        self.fit_result_ = TuningResult(state["status"], state["criterion"], state["validated_on"], trials)
        self._set_model(self._model_from(state["model"]))

    def _model_state(self) -> Any:
        """The model as plain data and arrays, which can be saved to a file."""
        return self._model()

    def _model_from(self, state: Any) -> Any:
        """Return the model that `_model_state` described. Raises a ValueError if the state is not valid."""
        return state


class LinearBaseline(TunedRanker):
    """Base class of rankers whose model is one weight per normalized feature.

    Derive from it to add a linear ranker: define `_checked`, which checks the parameters and returns the
    number of candidates, and `_candidates`, which trains and yields each `Candidate`.

    Attributes
    ----------
    coef_ : array of shape (D,)
        Weights of normalized features.
    intercept_ : float
        Always 0.
    fit_result_ : TuningResult
        Record of every candidate.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.
    """

    def _scores_of(self, model: Any, X: NDArray[Any], groups: Groups | None) -> Floats:
        return linear_scores(X, model, self.scaling_)

    def _set_model(self, model: Any) -> None:
        self.coef_, self.intercept_ = np.asarray(model, dtype=np.float64), 0.0

    def _model(self) -> Any:
        return self.coef_

    def _model_from(self, state: Any) -> Any:
        return saved_floats("weights", state, (self._n_columns,))
