"""Parts of a model file that rankers of every kind have: features, missing values and scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinkprop.data.feature_scaling import Scaling, check_kind
from sinkprop.data.missing import MissingValues
from sinkprop.model_files import saved_floats, saved_names

__all__ = ["INVALID", "SavedInputs", "unreadable"]

# Errors that an invalid state raises while it is read.
INVALID = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class SavedInputs:
    """Inputs of a saved model.

    n_features     Number of features, D.
    feature_names  Their names, or None.
    missing        Treatment of missing values; None if the training data had none.
    scaling        Scaling of the features and of the I indicators of missing values.
    """

    n_features: int
    feature_names: list[str] | None
    missing: MissingValues | None
    scaling: Scaling

    @classmethod
    def of(cls, state: dict[str, Any]) -> SavedInputs:
        """Read the inputs from the state of a model. Raises one of `INVALID` if the state is not valid."""
        if not all(
            type(state[name]) is int and state[name] > 0 for name in ("n_features", "n_rows", "n_queries")
        ):
            raise ValueError("n_features, n_rows and n_queries must be whole numbers above 0")
        n, names = state["n_features"], state["feature_names"]
        if names is not None:
            names = saved_names("feature_names", names, n)
        missing = MissingValues.from_record(state["missing"], n) if "missing" in state else None
        scaling, shape = state["normalization"], (n if missing is None else missing.n_columns,)
        check_kind(scaling["kind"])
        shift, factor = (saved_floats(name, scaling[name], shape) for name in ("shift", "factor"))
        return cls(n, names, missing, Scaling(scaling["kind"], shift, factor))

    @property
    def n_columns(self) -> int:
        """Number of columns that the model scores: the features, and the indicators of missing values."""
        return len(self.scaling.shift)


def unreadable(what: str, kind: str, error: Exception) -> str:
    """Message for a file that is complete but whose state is invalid; `what` is the file or a part of it."""
    from sinkprop import __version__

    return (
        f"{what}: the file is complete, but it is not a {kind} that sinkprop {__version__} can read "
        f"({type(error).__name__}: {' '.join(str(error).split())})."
    )
