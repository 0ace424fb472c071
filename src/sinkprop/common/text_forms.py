"""Text forms of metrics and gains, such as "ndcg(discount=log2)@10": reading, writing and checking them."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from math import isfinite
from numbers import Real
from typing import Any, NoReturn

import numpy as np

__all__ = [
    "FORM",
    "as_cutoff",
    "as_number",
    "digits",
    "only",
    "options_of",
    "read_number",
    "text_form",
    "unknown_form",
]

FORM = re.compile(
    r"\s*(?P<name>[a-z]+(?:[-_][a-z]+)*)\s*(?:\((?P<options>[^()]*)\))?\s*(?:@\s*(?P<cutoff>[^@\s]+))?\s*"
)


def options_of(text: str | None) -> dict[str, str]:
    """Parse a text such as "discount=log2,gain=linear" to a dictionary; raise a ValueError if malformed."""
    options: dict[str, str] = {}
    for item in (text or "").split(",") if (text or "").strip() else []:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            raise ValueError(f"an option must have the form name=value; got {item.strip()!r}.")
        if name in options:
            raise ValueError(f"the option {name!r} is given twice.")
        options[name] = value
    return options


def read_number(kind: type[Any], what: str, text: str) -> Any:
    """Convert a text to a number of the type `kind` (int or float), or raise a ValueError.

    The error message calls the number `what`.
    """
    try:
        return kind(text)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        raise ValueError(f"{what} must be {wanted}; got {text!r}.") from None


def only(options: dict[str, str], known: tuple[str, ...]) -> None:
    """Raise a ValueError if `options` has a name that is not in `known`."""
    for name in options:
        if name not in known:
            raise ValueError(f"{name!r} is not an option; it takes {' and '.join(known) or 'none'}.")


def unknown_form(what: str, text: str, known: Iterable[str], forms: str) -> NoReturn:
    """Raise a ValueError for an unknown text form; the message suggests the most similar `known` name.

    The message calls the text `what`, such as "gain", and lists the valid `forms`.
    """
    from difflib import get_close_matches

    name = re.split(r"[@(\d]", text.lower())[0].strip()
    number = re.search(r"\d+(\.\d+)?\s*$", text)
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f" Did you mean {close[0] + ('@' + number[0].strip() if number else '')!r}?" if close else ""
    raise ValueError(f"{what} {text!r} is not known.{hint} The forms are {forms}.")


def text_form(name: str, options: list[str], cutoff: object) -> str:
    """Text form name(options)@cutoff, without the parts that are empty."""
    return name + (f"({','.join(options)})" if options else "") + ("" if cutoff is None else f"@{cutoff}")


def digits(x: float) -> str:
    """Shortest text of a number, without a trailing ".0"."""
    return repr(x).removesuffix(".0")


def as_cutoff(owner: str, k: object, alternative: str = "") -> int:
    """Return the cutoff k, the number of ranks that count, as int.

    Raises a TypeError if k is not an integer and a ValueError if it is below 1. Either message begins with
    `owner`, the name of the gain or metric that has the cutoff, such as "NDCG". It includes the text
    `alternative`, which says what other values are valid.
    """
    try:
        if isinstance(k, (bool, np.bool_)):
            raise TypeError
        rank = operator.index(k)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{owner}: k must be an integer, the number of ranks counted{alternative}; got {k!r}."
        ) from None
    if rank < 1:
        raise ValueError(
            f"{owner}: k must be at least 1, the number of ranks counted{alternative}; got {rank}."
        )
    return rank


def as_number(what: str, value: object) -> float:
    """Return a finite number as float.

    Raises a TypeError if the value is not a number, and a ValueError if it is not finite. The error message
    calls the value `what`.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{what} must be a number; got {value!r}.")
    if not isfinite(value):
        raise ValueError(f"{what} must be a finite number; got {float(value)!r}.")
    return float(value)
