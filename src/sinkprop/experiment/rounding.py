"""Rounding of the numbers that a comparison keeps, without changing any order."""

from __future__ import annotations

import math

import numpy as np

from sinkprop.common.types import Floats

__all__ = ["rounded_scores", "significant", "whole_number"]


def rounded_scores(scores: Floats) -> tuple[float, ...]:
    """Scores of one query, rounded to about a millionth of their spread without creating ties.

    More digits are kept if different scores would become equal.

    >>> rounded_scores(np.array([0.123456789, 1.0, 1.0 + 1e-12]))
    (0.123456789, 1.0, 1.000000000001)
    >>> rounded_scores(np.array([1 / 3, 2 / 3]))
    (0.3333333, 0.6666667)
    """
    x = np.asarray(scores, dtype=np.float64) + 0.0  # turns -0.0 into 0.0
    different = len(np.unique(x))
    spread = float(np.std(x))
    if different > 1 and 0 < spread < math.inf:
        decimals = 6 - math.floor(math.log10(spread))
        for more in (0, 3, 6):
            if decimals + more > 300:
                break
            # rounding never swaps two numbers, but may make them equal
            shorter = tuple(round(value, decimals + more) + 0.0 for value in x.tolist())
            if len(set(shorter)) == different:
                return shorter
    return tuple(x.tolist())


def significant(x: float) -> float:
    """A number rounded to seven significant digits, more than any plot or table shows."""
    return float(f"{x:.7g}")


def whole_number(x: float) -> float | int:
    """A whole number as an int, any other number unchanged."""
    return int(x) if x == int(x) else x
