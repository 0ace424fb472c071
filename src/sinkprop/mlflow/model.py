"""MLflow's generic kind of model, "python_function", around a ranker's model file: nothing is pickled."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import sinkprop
from sinkprop.common.types import Floats
from sinkprop.estimator.base import BaseRanker
from sinkprop.registry import load_model

__all__ = ["log_model"]

QID = "qid"
# Extras that the rankers of a package need; the first that matches counts.
_EXTRAS = {
    "sinkprop.gbdt": "lightgbm",
    "sinkprop.torch": "torch",
    "sinkprop.baselines.trees": "lightgbm",
    "sinkprop.baselines.xgboost_trees": "xgboost",
    "sinkprop.baselines.catboost": "catboost",
    "sinkprop.auto": "lightgbm,torch",
}


def log_model(ranker: BaseRanker, file: Path) -> Any:
    """Log the saved ranker `file` as a model of the active run, and return MLflow's `ModelInfo`."""
    with warnings.catch_warnings():
        # an example would be rows of the user's data; MLflow's import warns of its own types
        warnings.filterwarnings("ignore", message=".*([Ii]nput example|Any type hint)")
        import mlflow.pyfunc

        return mlflow.pyfunc.log_model(
            name="model",
            loader_module=__name__,
            data_path=str(file),
            signature=_signature(ranker),
            pip_requirements=[_requirement(ranker)],
        )


def _signature(ranker: BaseRanker) -> Any:
    """Columns of the input, in the order of the features; None if the features have no names.

    Their type is open, because MLflow refuses whole numbers for a column of floats.
    """
    names = getattr(ranker, "feature_names_in_", None)
    if names is None:
        return None
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    columns = [ColSpec(AnyType(), str(name)) for name in names]
    if QID not in names:
        columns.append(ColSpec(AnyType(), QID, required=False))
    return ModelSignature(Schema(columns), Schema([TensorSpec(np.dtype(np.float64), (-1,))]))


def _requirement(ranker: BaseRanker) -> str:
    """The requirement of pip that a model of this class has, such as "sinkprop[lightgbm]==0.1.0"."""
    module = type(ranker).__module__
    extra = next((extra for package, extra in _EXTRAS.items() if module.startswith(package)), "")
    return f"sinkprop{f'[{extra}]' if extra else ''}=={sinkprop.__version__}"


def _load_pyfunc(path: str) -> _Scorer:
    """Load the model; MLflow calls this with the path of the model file."""
    return _Scorer(load_model(path))


class _Scorer:
    """The interface that MLflow expects of a model: `predict`, and `get_raw_model`, the ranker."""

    def __init__(self, ranker: BaseRanker) -> None:
        self._ranker = ranker

    def get_raw_model(self) -> BaseRanker:
        return self._ranker

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> Floats:
        """Scores (N,) of rows; a column "qid" that is no feature is the query of each row."""
        names = getattr(self._ranker, "feature_names_in_", ())
        qid = None
        if QID in getattr(rows, "columns", ()) and QID not in names:
            qid, rows = rows[QID].to_numpy(), rows.drop(columns=QID)
        # MLflow converts the columns of categories to text
        found = [name for name in getattr(self._ranker, "categories_", ()) if name in rows]
        if found:
            rows = rows.astype(dict.fromkeys(found, "category"))
        return self._ranker.predict(rows, qid=qid)
