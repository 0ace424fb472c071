"""Checks of numbers and words that callers pass, with the same error messages everywhere."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from numbers import Real

import numpy as np

from sinkprop.common.processors import usable_processors

__all__ = ["half_steps", "number", "numbers", "one_of", "threads", "true_or_false", "whole"]


def whole(name: str, value: int, least: int) -> int:
    """Return the value if it is a whole number from `least` to below 2**30; raise a ValueError if not."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {number}.")
    if number >= 2**30:
        raise ValueError(f"{name} must be below 2**30; got {number}.")
    return number


def one_of(what: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless the value is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{what} must be {' or '.join(map(repr, choices))}; got {value!r}.")


def true_or_false(name: str, value: object) -> None:
    """Raise a ValueError unless the value is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; got {value!r}.")


def half_steps(n_iter: float) -> int:
    """Return 2 * n_iter, the number of normalizations: one iteration normalizes columns, then rows.

    Raises a ValueError unless this is a whole number that is not below 0.

    >>> half_steps(5), half_steps(0.5)
    (10, 1)
    """
    number = isinstance(n_iter, Real) and not isinstance(n_iter, bool)
    if not number or not 0 <= n_iter < 2**30 or 2 * n_iter != int(2 * n_iter):
        raise ValueError(
            "n_iter must be a number of iterations, at least 0: a whole number, or a whole number plus 0.5 "
            f"to end with columns; got {n_iter!r}."
        )
    return int(2 * n_iter)


def number(name: str, value: float, *, above: bool = False, below: float = math.inf) -> float:
    """Return the value as float; raise a ValueError unless it is finite, at least 0 and below `below`.

    With `above`, it must be greater than 0. The error message calls it `name`.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0 <= value < math.inf or (above and value == 0):
        raise ValueError(
            f"{name} must be a finite number, {'above' if above else 'not below'} 0; got {value!r}."
        )
    if value >= below:
        raise ValueError(f"{name} must be below {below:g}; got {value!r}.")
    return float(value)


def numbers(
    name: str, given: float | Sequence[float], *, least: float = 0.0, most: float = math.inf
) -> tuple[float, ...]:
    """Return the distinct numbers of an argument, sorted.

    The argument is one number or a sequence of numbers. Raises a ValueError unless every number is finite and
    lies between `least` and `most`. The error message calls the argument `name`.
    """
    try:
        values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty(0)
    inside = (values >= least) & (values <= most) & (values < math.inf)
    if values.ndim != 1 or not values.size or not inside.all():
        above = "above 0" if 0 < least <= math.ulp(0.0) else f"not below {least:g}"
        kind = f"a finite number, {above}" if most == math.inf else f"a number from {least:g} to {most:g}"
        raise ValueError(f"{name} must be {kind}, or several; got {given!r}.")
    return tuple(np.unique(values).tolist())


def threads(n_threads: int | None, n: int) -> int:
    """Return the number of threads to use for n documents.

    It is the first of these that applies: `n_threads`, if given; 1, for fewer than 4,000 documents; the value
    of the environment variable SINKPROP_NUM_THREADS, if set; the number of processors the process may use.
    """
    if n_threads is not None:
        return whole("n_threads", n_threads, 1)
    # One thread is fastest for so little work. The environment variable SINKPROP_NUM_THREADS is not read
    # then: reading it takes longer than more threads could save.
    if n < 4000:
        return 1
    wish = os.environ.get("SINKPROP_NUM_THREADS")
    if wish:
        return whole("SINKPROP_NUM_THREADS", int(wish) if wish.isdecimal() else wish, 1)  # type: ignore[arg-type]
    return usable_processors()
