"""Warnings about data that are probably not as meant: columns that are no features, and equal labels."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats

__all__ = ["doubtful_names", "warn_of_column_names", "warn_of_column_values", "warn_of_equal_labels"]

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_FIRST = {"is", "was", "has", "n", "num"}  # words before a name that do not change what it means
_POSITIONS = {"position", "pos", "rank", "slot", "shown position", "result position"}
_OUTCOMES = {
    "click", "clicks", "clicked", "purchase", "purchases", "purchased", "bought", "ordered",
    "conversion", "conversions", "converted", "booked", "added to cart", "add to cart", "dwell time", "label",
    "labels", "relevance", "relevant", "grade", "target", "y",
}  # fmt: skip
_IDS = {"index", "row", "unnamed 0", "session", "query", "doc", "document"}
_LAST_OF_IDS = {"id", "uuid", "guid", "qid", "docid"}
_DATES = {"time", "day", "created at", "updated at"}
_LAST_OF_DATES = {"date", "datetime", "timestamp"}


def doubtful_names(names: Iterable[Any]) -> dict[str, str]:
    """Return the names that are probably not those of features, each with what its column seems to hold.

    >>> doubtful_names(["bm25", "position", "wasClicked", "click_rate", "doc_id", "crawl_date"])
    {'position': 'a position', 'wasClicked': 'an outcome', 'doc_id': 'an id', 'crawl_date': 'a date'}
    """
    found = {}
    for name in map(str, names):
        words = [word.lower() for word in _WORD.findall(name)]
        while len(words) > 1 and words[0] in _FIRST:
            del words[0]
        text = " ".join(words)
        if text in _POSITIONS:
            found[name] = "a position"
        elif text in _OUTCOMES:
            found[name] = "an outcome"
        elif text in _IDS or (words and words[-1] in _LAST_OF_IDS):
            found[name] = "an id"
        elif text in _DATES or (words and words[-1] in _LAST_OF_DATES):
            found[name] = "a date"
    return found


def warn_of_column_names(names: Iterable[Any]) -> None:
    """Warn if columns that became features, because the caller named none, have names of other things."""
    found = doubtful_names(names)
    if found:
        some = list(found.items())[:5]
        listed = ", ".join(f"{name!r} ({what})" for name, what in some)
        more = f" and {len(found) - len(some)} more" if len(found) > len(some) else ""
        _warn(
            f"columns became features although their names are those of other things: {listed}{more}. To "
            "leave them out, or to keep them without this warning, name the features with features=[...]."
        )


def warn_of_column_values(X: NDArray[Any], names: Sequence[Any] | None, labels: Floats, qid: Any) -> None:
    """Warn if a column of a frame holds the labels or the query ids, which are not meant as features."""
    if names is None:
        return
    ids = None if qid is None else np.asarray(qid)
    for what, given in (("the labels", labels), ("the query ids", ids)):
        if given is None or given.dtype.kind not in "iuf" or given.shape != (len(X),):
            continue
        values = given.astype(X.dtype)
        if values.min() == values.max():  # any constant column could equal constant labels by chance
            continue
        for column in np.flatnonzero(X[0] == values[0]).tolist():
            if np.array_equal(X[:, column], values):
                _warn(
                    f"fit: the column {str(names[column])!r} of X holds {what}, but is used as a feature. "
                    f"Leave it out, for example with X.drop(columns=[{str(names[column])!r}])."
                )


def warn_of_equal_labels(labels: Iterable[Floats], *, name: str = "") -> None:
    """Warn if all labels are equal, because nothing can be learned from them.

    labels  The labels of the documents, in one or several arrays. Arrays after the first two different labels
            are not read.
    name    Prefix of argument names: "eval_set " for an evaluation set, empty for training data.
    """
    first = None
    for part in labels:
        if len(part):
            first = part[0] if first is None else first
            if not (part == first).all():
                return
    if first is not None:
        effect = "no model is better than another on them" if name else "nothing can be learned from them"
        _warn(
            f"fit: all labels of {name + 'X' if name else 'X'} are {first:g}, so {effect}. Check the labels: "
            "larger ones are for more relevant documents."
        )


def _warn(message: str) -> None:
    """Issue a UserWarning that shows the line outside this library that called it."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("sinkprop."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
