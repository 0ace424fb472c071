"""Derivatives that are prepared once per data set of a tree library, and reused in every round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.data.queries import Groups
from sinkprop.gbdt.derivatives import TreeLoss
from sinkprop.objective.gains import Gain

__all__ = ["Layouts", "consecutive", "kept", "present", "settings_text", "tree_loss"]

Arrays = tuple[NDArray[Any] | None, ...]
Prepared = TypeVar("Prepared")


def tree_loss(function: str, gain: str | Gain, settings: dict[str, Any]) -> TreeLoss:
    """Make the loss with these settings; an unknown setting raises a TypeError that names `function`."""
    names = [field.name for field in fields(TreeLoss) if field.name != "gain"]
    for name in settings:
        if name not in names:
            raise TypeError(
                f"{function}() has no argument {name!r}. The settings of the loss are {', '.join(names)}."
            )
    return TreeLoss(gain=gain, **settings)


def settings_text(loss: TreeLoss) -> str:
    """Text for a repr: the gain, and all other settings of the loss that differ from their defaults."""
    plain = TreeLoss(loss.gain)
    changed = {f.name: getattr(loss, f.name) for f in fields(loss)}
    kept = [f"{name}={x!r}" for name, x in changed.items() if name != "gain" and x != getattr(plain, name)]
    text = repr(loss.gain) if type(loss.gain).__str__ is object.__str__ else repr(str(loss.gain))
    return ", ".join([text, *kept])


def consecutive(sizes: NDArray[Any], n: int, *, owner: str) -> Groups:
    """Divide n rows into consecutive queries with these sizes.

    Empty queries are left out; `queries` of the result holds the positions of the others in `sizes`.
    `owner` names the data set in error messages. Raises a ValueError if the sizes do not sum to n.
    """
    counts = np.asarray(sizes)
    if counts.ndim != 1 or counts.dtype.kind not in "iu":
        raise ValueError(
            f"group must hold the number of documents of each query, whole numbers (Q,); {owner} has an "
            f"array of {counts.dtype} {counts.shape}."
        )
    counts = counts.astype(np.int64)
    if len(counts) and counts.min() < 0:
        place = int(np.argmax(counts < 0))
        raise ValueError(f"group must hold sizes, not below 0; {owner} has {counts[place]} at {place}.")
    if counts.sum() != n:
        raise ValueError(
            f"group must hold the sizes of the queries, with the number of rows as their sum: {owner} has "
            f"{n} rows, but sizes that sum to {counts.sum()}."
        )
    places = np.flatnonzero(counts)
    return Groups.of_sizes(counts[places], places)


def kept(weights: ArrayLike) -> NDArray[Any]:
    """Return a read-only copy of weights, which must not change: prepared derivatives depend on them."""
    array = np.array(weights)
    array.flags.writeable = False
    return array


def present(query_weight: NDArray[Any], groups: Groups, n_sizes: int) -> NDArray[Any]:
    """Select the weights of the queries that have documents.

    query_weight  One weight per query, including queries without documents. If the number of weights is not
                  n_sizes, they are returned unchanged.
    groups        Queries that have documents.
    n_sizes       Number of queries, including those without documents.
    """
    return np.asarray(query_weight[groups.queries] if query_weight.shape == (n_sizes,) else query_weight)


@dataclass(frozen=True, eq=False)
class _Layout(Generic[Prepared]):
    """An object prepared for a data set, and copies of the arrays from which it was prepared."""

    arrays: Arrays
    prepared: Prepared

    def fits(self, arrays: Arrays) -> bool:
        """Whether `arrays` have the same values as the arrays from which the object was prepared."""
        return all(
            (a is b) if a is None or b is None else np.array_equal(a, b)
            for a, b in zip(self.arrays, arrays, strict=True)
        )


class Layouts(Generic[Prepared]):
    """Cache of objects prepared for data sets, one per data set, valid while its arrays keep their values.

    Every call compares the arrays, in a thousandth of the time of a preparation, so a label that is changed
    in place is noticed. If the data set is unknown (None), only the last prepared object is kept. Copies and
    unpickled caches start empty.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, _Layout[Prepared]] = WeakKeyDictionary()
        self._last: _Layout[Prepared] | None = None

    def get(self, owner: Any, arrays: Arrays, prepare: Callable[[], Prepared]) -> Prepared:
        """Object prepared for the data set `owner`; calls `prepare` if its arrays are new or have changed."""
        layout = self._last if owner is None else self._known.get(owner)
        if layout is None or not layout.fits(arrays):
            copies = tuple(None if array is None else np.array(array) for array in arrays)
            layout = _Layout(copies, prepare())
            if owner is None:
                self._last = layout
            else:
                self._known[owner] = layout
        return layout.prepared

    def __reduce__(self) -> tuple[type[Layouts[Prepared]], tuple[()]]:
        return Layouts, ()
