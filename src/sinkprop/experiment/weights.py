"""The weight of each feature in a fitted ranker of any kind, as plain data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.experiment.folds.files import AnyQueries
from sinkprop.experiment.rounding import significant
from sinkprop.experiment.scoring import predicted, spread, taken_queries
from sinkprop.metrics.evaluation import evaluate
from sinkprop.objective.relaxations import PartitionedMeasure, score_weights

__all__ = ["weights_of"]


# Approximate maximum number of rows that a network scores to compute permutation importances, about a second
# of work. A row counts each time it is scored, which is once per feature and permutation. If queries are very
# long, the number may be up to ten times as large.
_PERMUTED = 400_000
_TIMES = 5  # maximum number of permutations per feature


def weights_of(
    ranker: Any, *, rows: AnyQueries, measured_on: AnyQueries, held_out: bool = True
) -> dict[str, Any] | None:
    """Weight or importance of each feature, scaled so that the absolute values sum to 1.

    None if the ranker is of a kind that has neither. The keys of the result are kind ("weight" or
    "importance"), explanation (a text for the report) and values (one number per feature). If a linear ranker
    has indicators of missing values, there is also missing: {index of the feature, as text: weight of its
    indicator}.

    rows         Queries that give the standard deviation of each feature. Weights of features that were not
                 scaled are multiplied by it, which makes them comparable.
    measured_on  Queries on which the permutation importances of a network are measured.
    held_out     Whether `measured_on` are validation queries rather than test queries.
    """
    from sinkprop.baselines import FeatureRanker

    n_features = rows.n_features
    booster = getattr(ranker, "booster_", None)
    if booster is not None and (gains := _tree_gains(booster, n_features)) is not None:
        return _shares("importance", gains, "Share of the total gain that comes from splits on this feature.")
    if isinstance(ranker, FeatureRanker):
        weights = np.zeros(n_features)
        weights[abs(ranker.feature_) - 1] = np.sign(ranker.feature_)
        return _shares(
            "weight", weights, "The feature that ranks; negative if its smallest value ranks first."
        )
    if hasattr(ranker, "module_"):
        return _permuted(ranker, measured_on, held_out=held_out)
    coefficients: Any = getattr(ranker, "coef_", None)
    missing = getattr(ranker, "missing_", None)
    n_columns = n_features if missing is None else missing.n_columns
    relaxation = getattr(ranker, "relaxation_", None)
    if isinstance(relaxation, PartitionedMeasure) and np.shape(coefficients) == (2, n_columns):
        # Each feature has two weights, one for each parameter of a document. The score of `predict` is a
        # weighted sum of the two parameters, so the same sum of the two weights is the weight in the score.
        coefficients = np.array(score_weights(relaxation)) @ coefficients
    if isinstance(coefficients, np.ndarray) and coefficients.shape == (n_columns,):
        kind = getattr(getattr(ranker, "scaling_", None), "kind", "none")
        if kind == "none":
            coefficients = coefficients * spread(rows, missing)
        pairs = " Pair potentials are not included." if len(getattr(ranker, "strengths_", ())) else ""
        found = _shares(
            "weight",
            coefficients,
            f"Weight of {_SCALED[kind]}, as a share of the sum of all absolute weights. With a positive "
            f"weight, larger values rank higher.{pairs}",
        )
        if missing is not None and len(missing.indicators):
            found["explanation"] += " missing(x) is 1 where the feature x is missing, and 0 elsewhere."
            indicators = found["values"][n_features:]
            found["missing"] = dict(zip(map(str, missing.indicators.tolist()), indicators, strict=True))
            found["values"] = found["values"][:n_features]
        return found
    importances = getattr(ranker, "feature_importances_", None)
    if isinstance(importances, np.ndarray) and importances.shape == (n_features,):
        return _shares(
            "importance", importances, "Feature importance computed by the estimator itself, as a share."
        )
    return None


_SCALED = {
    "standard": "the standardized feature",
    "query": "the feature, scaled to [0, 1] within its query",
    "none": "the feature times its standard deviation, as if it were standardized",
}


def _shares(kind: str, values: NDArray[Any], explanation: str) -> dict[str, Any]:
    total = float(np.abs(values).sum())
    shares = values / total if 0 < total < math.inf else np.zeros(len(values))
    return {"kind": kind, "explanation": explanation, "values": [significant(x) for x in shares]}


def _tree_gains(booster: Any, n_features: int) -> Floats | None:
    if hasattr(booster, "feature_importance"):  # LightGBM
        return np.asarray(booster.feature_importance(importance_type="gain"), dtype=np.float64)
    if hasattr(booster, "get_score"):  # XGBoost, which names unnamed columns f0, f1, ...
        gains = np.zeros(n_features)
        names = booster.feature_names or [f"f{i}" for i in range(n_features)]
        for name, gain in booster.get_score(importance_type="total_gain").items():
            gains[names.index(name)] = gain
        return gains
    return None


def _permuted(ranker: Any, measured_on: AnyQueries, *, held_out: bool) -> dict[str, Any] | None:
    """Permutation importances: the decrease of NDCG@10 if a feature's values are shuffled within each query.

    None if even a single query has too many documents to score them repeatedly.
    """
    rng = np.random.default_rng(0)
    cells = len(measured_on) * measured_on.n_features
    n_queries = max(1, min(measured_on.n_queries, _PERMUTED * measured_on.n_queries // cells))
    numbers = np.sort(rng.permutation(measured_on.n_queries)[:n_queries])
    taken = taken_queries(measured_on, numbers)
    X, y = taken.X, taken.y
    if X.size > 10 * _PERMUTED:  # too many rows, even in a sample of as little as one query
        return None
    codes = taken.groups.codes

    def ndcg(X: NDArray[Any]) -> float:
        queries = replace(taken, X=X)
        return evaluate(queries, predicted(ranker, queries), metrics="ndcg@10")["ndcg@10"]

    whole, losses = ndcg(X), np.zeros(measured_on.n_features)
    for _ in range(max(1, min(_TIMES, _PERMUTED // X.size))):
        order = np.lexsort((rng.random(len(y)), codes))  # shuffles the documents within each query
        for feature in range(measured_on.n_features):
            other = X.copy()
            other[:, feature] = X[order, feature]
            losses[feature] += whole - ndcg(other)
    losses = losses.clip(0)
    which = "validation" if held_out else "test"
    return _shares(
        "importance",
        losses,
        f"Decrease of NDCG@10 on {n_queries} {which} queries if the feature's values are shuffled among the "
        "documents of each query, as a share of all decreases. Redundant features share their importance.",
    )
