"""One feature as a ranker: the baseline that any learned ranker has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import fit_scaling
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import BaseRanker
from sinkprop.estimator.held_out import HeldOut
from sinkprop.metrics.evaluation import evaluate

__all__ = ["FeatureRanker"]


class FeatureRanker(BaseRanker):
    """A ranker that sorts documents by the value of one feature, the largest first.

    Parameters
    ----------
    feature : int or str, optional
        The feature: its number, which starts at 1 as in LETOR files, or its name. A negative number ranks the
        smallest value first. None chooses the feature and the direction that are best on the training queries
        by `metric`.
    feature_names : sequence of str, optional
        Names of the columns of X, if the feature is given by name and X is not a DataFrame.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.

    Attributes
    ----------
    feature_ : int
        Number of the feature, negative if its smallest value ranks first.
    scaling_ : Scaling
        Feature scaling of the model, which is always "none".

    Notes
    -----
    Labels are used only if `feature` is None. An eval_set is never used.

    Examples
    --------
    >>> X, y = [[3.0, 0.5], [1.0, 0.9], [2.0, 0.7]], [0, 2, 1]
    >>> FeatureRanker(2).fit(X, y, qid=[1, 1, 1]).rank(X, qid=[1, 1, 1])
    array([3, 1, 2])
    >>> FeatureRanker(metric="map").fit(X, y, qid=[1, 1, 1]).feature_
    -1
    """

    def __init__(
        self,
        feature: int | str | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        metric: str = "ndcg@10",
        convention: str = "standard",
    ) -> None:
        self.feature = feature
        self.feature_names = feature_names
        self.metric = metric
        self.convention = convention

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        self.scaling_ = fit_scaling("none", data.X)
        if self.feature is None:
            scores = {}
            for number in range(1, data.X.shape[1] + 1):
                for signed in (number, -number):
                    column = np.sign(signed) * data.X[:, number - 1].astype(np.float64)
                    result = evaluate(
                        data.y,
                        column,
                        data.codes,
                        metrics=[self.metric],
                        convention=self.convention,
                        query_weight=data.query_weight,
                    )
                    scores[signed] = next(iter(result.values()))
            # of several equally good features, max takes the first
            self.feature_ = max(scores, key=lambda signed: scores[signed])
        else:
            self.feature_ = self._number(data.X.shape[1])
        # a feature that was given, not chosen, has not been fitted to the training queries
        held = validation if self.feature is None or validation is not None else data
        self._keep_held_out(
            None if held is None else HeldOut(self._score_rows(held.X, None), held.y, held.groups.sizes)
        )

    def _number(self, n_features: int) -> int:
        feature = self.feature
        if isinstance(feature, str):
            names = getattr(self, "feature_names_in_", self.feature_names)
            if names is None:
                raise ValueError(
                    f"feature {feature!r}: the data have no feature names; give a number, 1 to {n_features}."
                )
            places = [i for i, name in enumerate(names, 1) if str(name) == feature] or [
                i for i, name in enumerate(names, 1) if str(name).lower() == feature.lower()
            ]
            if len(places) != 1:
                raise ValueError(
                    f"feature {feature!r} matches {'several' if places else 'none'} of the features, which "
                    f"are {', '.join(map(str, names))}."
                )
            return places[0]
        whole = isinstance(feature, Integral) and not isinstance(feature, bool)
        if not whole or not 1 <= abs(feature) <= n_features:  # type: ignore[arg-type]
            raise ValueError(
                f"feature must be a number from 1 to {n_features}, or from -{n_features} to -1; "
                f"got {feature!r}."
            )
        return int(feature)  # type: ignore[arg-type]

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        column: Floats = X[:, abs(self.feature_) - 1].astype(np.float64)
        return column if self.feature_ > 0 else -column

    def _linear_model(self) -> tuple[Floats, float]:
        weights = np.zeros(self.n_features_in_)
        weights[abs(self.feature_) - 1] = np.sign(self.feature_)
        return weights, 0.0

    def _parameters_to_save(self) -> dict[str, Any]:
        names = None if self.feature_names is None else [str(name) for name in self.feature_names]
        changes = {"feature_names": names, "metric": str(self.metric), "convention": str(self.convention)}
        return {**self.get_params(deep=False), **changes}

    def _fitted_state(self) -> dict[str, Any]:
        return {"feature": self.feature_}

    def _restore(self, state: dict[str, Any]) -> None:
        feature = state["feature"]
        if type(feature) is not int or not 1 <= abs(feature) <= self.n_features_in_:
            raise ValueError(f"feature {feature!r} of {self.n_features_in_} features")
        self.feature_ = feature
