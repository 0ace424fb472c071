"""Position bias on the command line: its estimate from a log, its description, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sinkprop.cli.clicks.logs import reworded
from sinkprop.cli.output import working
from sinkprop.cli.reading import read_bytes

if TYPE_CHECKING:
    from sinkprop.clicks import ClickLog, ClickModel
    from sinkprop.common.types import Floats

__all__ = [
    "FEATURES",
    "KINDS",
    "METHODS",
    "OF_THE_LOG",
    "Fit",
    "bias_of",
    "bias_record",
    "described",
    "estimated_by",
    "fit_of",
    "kind_of",
]

_FORMAT, _VERSION = "sinkprop-position-bias", 1

KINDS = {
    "position": "position-based model",
    "trust": "trust-bias model",
    "cascade": "cascade model",
    "dependent": "dependent click model",
}
_CLASSES = {
    "PositionBasedModel": "position",
    "TrustBiasModel": "trust",
    "CascadeModel": "cascade",
    "DependentClickModel": "dependent",
}
FEATURES = ("linear", "trees")  # methods that use features
METHODS = ("harvest", "swaps", "documents", *FEATURES)  # of the position-based model; others have no choice
_BY = {
    "harvest": "estimated from documents that several rankers show at different positions",
    "swaps": "estimated from documents that exchanged places with the one at position 1",
    "documents": "estimated from documents shown at several positions",
    "linear": "with relevance predicted from features by a linear model",
    "trees": "with relevance predicted from features by boosted trees",
}
OF_THE_LOG = ("cascade", "dependent")  # kinds in which examination depends on the clicks of a session


Fit: TypeAlias = "Callable[..., ClickModel]"


def kind_of(model: ClickModel) -> str:
    """The name of a model's class on the command line, such as "position"."""
    return _CLASSES[type(model).__name__]


def estimated_by(model: ClickModel) -> str | None:
    """The method by which a model was estimated, such as "harvest"; None if it has no choice of methods."""
    fitted = getattr(model, "fitted", None)
    return None if fitted is None else str(fitted.method)


def described(model: ClickModel) -> str:
    """The kind of a model and its method of estimation, in words."""
    method = estimated_by(model)
    return KINDS[kind_of(model)] + (f", {_BY.get(method, method)}" if method else "")


def fit_of(kind: str, method: str) -> Fit:
    """Function fit(log, weight=...) that estimates a kind of model by a method; the method may be auto."""
    from functools import partial

    from sinkprop import clicks

    if kind == "cascade":
        return clicks.CascadeModel.fit
    if kind == "dependent":
        return clicks.DependentClickModel.fit
    if kind == "trust":
        return clicks.TrustBiasModel.fit
    if method == "auto":
        return clicks.estimate_position_bias
    special = {"harvest": clicks.harvest_bias, "swaps": clicks.swap_bias}
    return special.get(method) or partial(clicks.PositionBasedModel.fit, relevance=method)


def bias_of(log: ClickLog, path: Path | None) -> tuple[ClickModel, str]:
    """Position bias and its description: from a file of `sinkprop clicks bias`, or estimated from the log."""
    if path is not None:
        return _read(path, log)
    with working("estimating position bias"), reworded():
        model = fit_of("auto", "auto")(log)
    return model, described(model)


def bias_record(model: ClickModel, log: ClickLog, interval: Floats | None) -> dict[str, Any]:
    """Position bias as plain data, from which `bias_of` makes the model again."""
    at = log.positions - 1
    impressions = np.bincount(at)
    parameters = {
        name: getattr(model, name) for name in ("slope", "intercept", "continuation") if hasattr(model, name)
    }
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "model": kind_of(model),
        "method": estimated_by(model),
        "description": described(model),
        "shown": impressions,
        "click_rate": np.bincount(at, log.clicked) / impressions,
        "examination": model.examination_curve(),
        "interval": interval,
        **parameters,
    }


def _read(path: Path, log: ClickLog) -> tuple[ClickModel, str]:
    from sinkprop import clicks

    wrong = f"{path}: expected position bias as written by `sinkprop clicks bias -o`"
    try:
        record: Any = json.loads(read_bytes(path))
    except ValueError:
        raise ValueError(f"{wrong}; it is not JSON.") from None
    if not isinstance(record, Mapping) or record.get("format") != _FORMAT:
        raise ValueError(f"{wrong}; got JSON of another kind.")
    if record.get("version") != _VERSION or record.get("model") not in KINDS:
        raise ValueError(f"{path}: written by a newer version of sinkprop, which this one cannot read.")
    kind = record["model"]
    if kind in OF_THE_LOG:
        with working("estimating position bias"), reworded():
            return fit_of(kind, "auto")(log), f"{KINDS[kind]}, fitted to this log"
    try:
        interval = None if record.get("interval") is None else _numbers(record["interval"])
        if kind == "trust":
            model: ClickModel = clicks.TrustBiasModel(
                _numbers(record["slope"]), _numbers(record["intercept"]), interval=interval
            )
        else:
            model = clicks.PositionBasedModel(_numbers(record["examination"]), interval=interval)
        n = len(model.examination_curve())
    except KeyError as error:
        raise ValueError(f"{wrong}; it has no {error}.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{wrong}; {str(error).partition('; got ')[0]}.") from None
    if n < log.longest:
        raise ValueError(
            f"{path} has the position bias of {n} positions, but the log has {log.longest}. Give --top {n}, "
            "or estimate position bias from a log with as many positions."
        )
    return model, str(record.get("description", KINDS[kind]))


def _numbers(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)
