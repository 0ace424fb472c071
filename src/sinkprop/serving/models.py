"""Saved models as functions from features to scores and ranks, computed by NumPy and native code alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.feature_scaling import scale_by_query
from sinkprop.data.missing import DEFAULT, filled
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import one_score_per_row, ranks_of
from sinkprop.model_files import saved_floats
from sinkprop.serving.linear_scores import row_scores, unscaled
from sinkprop.serving.records import SavedInputs

__all__ = [
    "LINEAR",
    "SMOOTHRANK",
    "TREES",
    "FeatureModel",
    "LinearModel",
    "PairModel",
    "SavedModel",
    "SoftRankModel",
    "TreesModel",
    "Workings",
    "linear_model",
]

LINEAR = (
    "SinkPropRanker",
    "SmoothRankRanker",
    "AdaRankRanker",
    "ListNetRanker",
    "RegressionRanker",
    "SoftRankRanker",
    "BoltzRankRanker",
)
# Sinkhorn normalization in SmoothRank's distribution over ranks: its columns sum to 1.
SMOOTHRANK = {"n_iter": 0.5, "epsilon": 0.0}
TREES = ("BoostedRanker", "LightGBMRanker", "XGBoostRanker", "CatBoostRanker")


@dataclass(frozen=True, eq=False)
class Workings:
    """Rules by which the outputs of a model become a score, a ranking and uncalibrated rank probabilities.

    relaxation  Relaxation of the fit; None if it had none.
    settings    Settings "n_iter" and "epsilon" of its Sinkhorn normalization.
    combine     (2,) weights of two outputs in the score; None if there is one output.
    top         Number of documents that the assignment reorders; see `choose_permutation`.
    """

    relaxation: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    combine: Floats | None = None
    top: int = 200

    @classmethod
    def of(cls, relaxation: dict[str, Any] | None, parameters: dict[str, Any]) -> Workings:
        """Read the workings from the saved relaxation and parameters of a ranker."""
        if relaxation is None:
            return cls()
        from sinkprop.objective.relaxations import relaxation_from, score_weights

        found = relaxation_from(relaxation)
        combine = np.array(score_weights(found)) if found.width == 2 else None
        settings = {name: parameters[name] for name in ("n_iter", "epsilon")}
        return cls(found, settings, combine, parameters.get("top", 200))

    @property
    def n_outputs(self) -> int:
        return 1 if self.combine is None else 2

    def ranks(self, theta: Floats, groups: Groups) -> Integers:
        """Ranks (N,) of documents from the two outputs of a partitioned measure."""
        from sinkprop.objective.rank_distribution import partitioned_ranks

        return partitioned_ranks(theta, groups, self.relaxation, **self.settings, top=self.top)


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedModel:
    """A model that scores checked features; the base class of the kinds.

    inputs     Features of the model, treatment of their missing values, and their scaling.
    takes_nan  Whether features may be missing.
    fills      Whether missing values are replaced before the model scores the rows; trees score NaN itself.
    """

    inputs: SavedInputs
    takes_nan: bool = False
    fills: bool = False
    workings: Workings = field(default_factory=Workings)

    def prepared(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        """Rows X as the model scores them: features scaled within queries, missing values treated."""
        if self.inputs.scaling.kind == "query":
            assert groups is not None
            X = scale_by_query(X, groups)
        return filled(X, self.inputs.missing, self.inputs.scaling) if self.fills else X

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Outputs (N,) or (N, 2) of the model for prepared rows."""
        raise NotImplementedError

    def scores(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of prepared rows."""
        theta, combine = self.outputs(X, groups), self.workings.combine
        return theta if combine is None else theta @ combine

    def ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        """Ranks (N,) of prepared rows in their queries, 1 for the top."""
        if self.workings.combine is not None:
            return self.workings.ranks(self.outputs(X, groups), groups)
        return ranks_of(one_score_per_row(self.scores(X, groups)), groups)

    def plain_distribution(self, scores: Floats, sigma: float | None) -> Floats | None:
        """Rank probabilities of one query without calibration, for kinds that have their own; or None."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearModel(SavedModel):
    """One or two linear functions V x - shift of the features x.

    V          (k, D) weights of features that have not been scaled.
    shift      (k,) numbers that are subtracted.
    intercept  Number that is added to the score; None adds nothing.
    """

    V: Floats
    shift: Floats
    intercept: float | None = None

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        found = row_scores(X, self.V, self.shift)
        return found if self.intercept is None else found + self.intercept


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftRankModel(LinearModel):
    """A linear model whose ranking is the likeliest assignment under a balanced rank distribution.

    sigma    Standard deviation of the noise of a score.
    balance  See `balanced_distribution`.
    """

    sigma: float
    balance: bool | int

    def ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        if self.balance is False:
            return super().ranks(X, groups)
        from sinkprop.objective.rank_binomial import balanced_ranks

        return balanced_ranks(self.scores(X, groups), groups, self.sigma, self.balance, top=self.workings.top)

    def plain_distribution(self, scores: Floats, sigma: float | None) -> Floats:
        from sinkprop.objective.rank_binomial import balanced_distribution, checked_sigma

        width = self.sigma if sigma is None else checked_sigma(sigma)
        return balanced_distribution(scores, width, self.balance)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairModel(LinearModel):
    """A linear model that also compares each document with the others of its query, by H hidden units.

    directions  (H, D) weights of the features in each hidden unit.
    offsets     (H,) numbers that are subtracted.
    strengths   (H,) weights of the hidden units in the score.
    """

    directions: Floats
    offsets: Floats
    strengths: Floats

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        from sinkprop.serving.soft_ranks import pair_scores

        assert groups is not None
        a = row_scores(X, self.directions, self.offsets)
        return pair_scores(super().outputs(X, groups), a, self.strengths, groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureModel(SavedModel):
    """The feature with this number from 1, or minus this feature if the number is negative."""

    feature: int

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        column: Floats = X[:, abs(self.feature) - 1].astype(np.float64)
        return column if self.feature > 0 else -column


@dataclass(frozen=True, eq=False, kw_only=True)
class TreesModel(SavedModel):
    """Boosted trees; `tree_scores` is a function from rows (N, D) to their scores (N,)."""

    tree_scores: Callable[[NDArray[Any]], Floats]

    def outputs(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self.tree_scores(X)


def linear_model(kind: str, state: dict[str, Any]) -> LinearModel:
    """Return the linear model of a kind in `LINEAR` from its state; raises an error if it is not valid."""
    inputs, parameters, fitted = SavedInputs.of(state), state["parameters"], state["fitted"]
    common = {
        "inputs": inputs, "fills": True, "takes_nan": parameters.get("missing", DEFAULT) != "error"
    }  # fmt: skip
    n = inputs.n_columns
    if kind in ("SinkPropRanker", "SmoothRankRanker"):
        own = parameters if kind == "SinkPropRanker" else SMOOTHRANK
        workings = Workings.of(fitted["relaxation"], own)
        W = saved_floats("weights", fitted["weights"], (n,) if workings.n_outputs == 1 else (n + 1, 2))
        V, shift = unscaled(W, inputs.scaling)
        return LinearModel(**common, workings=workings, V=V, shift=shift)
    model = fitted["model"]
    if kind == "RegressionRanker":
        V, shift = unscaled(saved_floats("weights", model["coef"], (n,)), inputs.scaling)
        return LinearModel(**common, V=V, shift=shift, intercept=float(model["intercept"]))
    if kind == "SoftRankRanker":
        from sinkprop.objective.rank_binomial import checked_sigma

        V, shift = unscaled(saved_floats("weights", model["weights"], (n,)), inputs.scaling)
        return SoftRankModel(
            **common,
            workings=Workings(top=parameters["top"]),
            V=V,
            shift=shift,
            sigma=checked_sigma(model["sigma"]),
            balance=parameters["balance"],
        )
    if kind == "BoltzRankRanker":
        H = len(model["strengths"])
        shapes = {"weights": (n,), "directions": (n, H), "strengths": (H,)}
        found = {name: saved_floats(name, model[name], shape) for name, shape in shapes.items()}
        V, shift = unscaled(found["weights"], inputs.scaling)
        if not H:
            return LinearModel(**common, V=V, shift=shift)
        directions, offsets = unscaled(
            np.concatenate([found["directions"], np.zeros((1, H))]), inputs.scaling
        )
        return PairModel(
            **common,
            V=V,
            shift=shift,
            directions=directions,
            offsets=offsets,
            strengths=found["strengths"],
        )
    V, shift = unscaled(saved_floats("weights", model, (n,)), inputs.scaling)
    return LinearModel(**common, V=V, shift=shift)
