"""Conversion of values to plain data that model files and JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain_data", "plain_parameter"]


def plain_data(value: Any, *kept: type, finite: bool = False) -> Any:
    """Convert a value to None, booleans, numbers and text, and lists and dictionaries of them.

    Values of the types in `kept` are left unchanged, and any other object becomes its text. With `finite`,
    which JSON needs, an infinite number or NaN becomes None.

    >>> plain_data({"rates": np.array([0.5, 1.0]), "levels": (np.int64(3), None)})
    {'rates': [0.5, 1.0], 'levels': [3, None]}
    >>> plain_data([1.0, float("nan")], finite=True)
    [1.0, None]
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [plain_data(item, *kept, finite=finite) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain_data(item, *kept, finite=finite) for name, item in value.items()}
    if finite and isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str, *kept)) else str(value)


def plain_parameter(value: Any, *kept: type) -> Any:
    """Convert a parameter to plain data as `plain_data` does, except that a tuple stays a tuple.

    >>> plain_parameter((np.float64(0.5), 1))
    (0.5, 1)
    """
    plain = plain_data(value, *kept)
    return tuple(plain) if isinstance(value, tuple) else plain
