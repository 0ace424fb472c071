"""Parameters of a ranker in the form in which they were given, as plain data for a model file.

A model file states what each parameter means: the text "gaussian" becomes the settings of the relaxation, and
one penalty a list. It also keeps the form in which a parameter was given, if that reads back as another
value. So the parameters of a loaded ranker equal those of the saved one, with the same types. A NumPy number
becomes Python's, and a parameter that no file can hold, such as a function, is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.measures import Metric, parse_metric
from sinkprop.model_files import model_bytes
from sinkprop.objective.gains import Gain, parse_gain
from sinkprop.objective.normalization import Converged
from sinkprop.objective.relaxations import PartitionedMeasure, SmoothedIndicator

__all__ = ["SETTINGS", "given_from", "given_record"]

SETTINGS: tuple[type, ...] = (Converged, Convention, PartitionedMeasure, SmoothedIndicator)
_ARRAYS = "biufU"  # kinds of arrays that a model file holds


class _NotPlainError(Exception):
    """The value cannot be written to a file."""


def given_record(
    given: Mapping[str, Any], restored: Mapping[str, Any], settings: Sequence[type]
) -> dict[str, Any]:
    """Return, as plain data, the parameters that a loaded ranker would not have as they were given.

    given     Parameters of the ranker.
    restored  Parameters as they are read from the file without this record; others are not in the file.
    settings  Dataclasses that parameters of the ranker may hold.

    >>> given_record({"penalty": 0.5, "top": 3}, {"penalty": (0.5,), "top": 3}, SETTINGS)
    {'penalty': 0.5}
    """
    found = {}
    for name, value in given.items():
        if name not in restored:
            continue
        try:
            record = _record(value, settings)
        except _NotPlainError:
            continue
        if _bytes(record) != _bytes(_record(restored[name], settings)):
            found[name] = record
    return found


def given_from(record: Mapping[str, Any], settings: Sequence[type]) -> dict[str, Any]:
    """Return the parameters that `given_record` described.

    Raises a KeyError, TypeError or ValueError if the data are not valid.
    """
    kinds = {kind.__name__: kind for kind in settings}
    return {name: _value(value, kinds) for name, value in record.items()}


def _bytes(record: Any) -> bytes:
    return model_bytes("Parameter", {"value": record}, {})


def _record(value: Any, settings: Sequence[type]) -> Any:
    """Return a value as plain data, in which every dict has the keys "type" and "settings"."""
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is np.ndarray and value.dtype.kind in _ARRAYS:
        return value
    if kind in (list, tuple):
        return kind(_record(item, settings) for item in value)
    if kind is dict and all(type(name) is str for name in value):
        return _typed("dict", {name: _record(item, settings) for name, item in value.items()})
    if isinstance(value, Gain):
        return _gain_record(value)
    if isinstance(value, Metric):
        return _typed("Metric", str(value))
    if kind in settings:
        own = {field.name: getattr(value, field.name) for field in fields(kind) if field.init}
        return _typed(kind.__name__, {name: _record(item, settings) for name, item in own.items()})
    raise _NotPlainError


def _gain_record(gain: Gain) -> dict[str, Any]:
    from sinkprop.objective.gains.custom import UnsavedGain

    if gain.text is not None:
        return _typed("Gain", gain.text)
    return _typed("UnsavedGain", gain.name if isinstance(gain, UnsavedGain) else type(gain).__name__)


def _typed(name: str, settings: Any) -> dict[str, Any]:
    return {"type": name, "settings": settings}


def _value(record: Any, kinds: Mapping[str, Any]) -> Any:
    if isinstance(record, list | tuple):
        return type(record)(_value(item, kinds) for item in record)
    if not isinstance(record, dict):
        return record
    name, settings = record["type"], record["settings"]
    if name == "Gain":
        return parse_gain(settings)
    if name == "UnsavedGain":
        from sinkprop.objective.gains.custom import UnsavedGain

        return UnsavedGain(settings)
    if name == "Metric":
        return parse_metric(settings)
    own = {key: _value(item, kinds) for key, item in settings.items()}
    return own if name == "dict" else kinds[name](**own)
