"""Base class of gains, their sums and multiples, their label columns, and the terms that kernels evaluate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, NoReturn, final

import numpy as np

from sinkprop.common.text_forms import as_number, digits
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups

__all__ = [
    "Bound",
    "Discount",
    "Gain",
    "GainSum",
    "OnLabels",
    "Term",
    "bound",
    "column_of",
    "label_column",
    "not_bound",
    "with_bound_arrays",
]

Discount = Literal["letor", "log2"]

Form = Literal["linear", "precisions", "cascade", "target", "gap", "column", "row"]
Norm = Literal["none", "ideal", "count", "greedy", "intents"]


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A part of a gain for given documents: a function of statistics that are linear in Pi.

    Pi[j, k] is the probability that document j is at rank k.

    The statistics are R_c[k] = sum_j Pi[j, k] a_c[j], what is expected at rank k of the attribute c, or the
    exposures E[j] = sum_k Pi[j, k] e[k]. docs/beyond-rank-linear.md has the functions; `sinkprop.reference`
    computes them in plain NumPy, and native/kernels/terms.hpp in linear time.

    form        Function: "linear", "precisions" and "cascade" of R, "target" and "gap" of E; "column" and
                "row" are a user's functions of R and of E.
    attributes  (C, N) attributes of the documents. For "target", the target; for "gap", the number of the
                document's group within its query, negative for none, and the weight of the document.
    discounts   (1, n) or (C, n) discounts of the ranks, where n is the size of the largest query; for
                functions of E, the weights e of the ranks.
    weight      Factor of the value.
    norm        What the value is divided by: "ideal", the value of the best ranking; "count", an affine
                function c0 + c1 m of the sum m of the attribute; "greedy", the value of the ranking that is
                built greedily; "intents", c0 times the number of attributes that are not 0 for all documents.
                A query whose norm is 0 has the value 0.
    alpha       Factor of R in "cascade".
    constants   c0 and c1.
    function    The user's function, as native code calls it.
    """

    form: Form
    attributes: Floats
    discounts: Floats
    weight: float = 1.0
    norm: Norm = "none"
    alpha: float = 1.0
    constants: tuple[float, float] = (0.0, 1.0)
    function: Callable[[Floats, Floats, Floats], float] | None = None

    @property
    def of_rows(self) -> bool:
        """Whether the statistics are exposures of documents."""
        return self.form in ("target", "gap", "row")


class Gain(ABC):
    """A gain of rankings; larger is better.

    Base class of all gains. Gains are values: they can be added, subtracted and multiplied by numbers, and
    most have a text form, which `str` gives and `parse_gain` reads.

    Examples
    --------
    >>> from sinkprop import NDCG, Precision, ReciprocalRank
    >>> str(0.8 * NDCG(10) + 0.2 * ReciprocalRank())
    '0.8*ndcg@10 + 0.2*mrr'
    >>> str(NDCG(10) - Precision(5).on(1) / 2)  # precision of the second label column
    'ndcg@10 - 0.5*p@5[1]'
    """

    @abstractmethod
    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        """Terms of the gain for given documents.

        Parameters
        ----------
        labels : array of shape (N,) or (N, L)
            Labels of the documents: one, or several columns.
        groups : Groups
            The rows of each query.
        weights : array of shape (N,), optional
            Row weights, which multiply the attributes of the documents.

        Returns
        -------
        list of Term
            The terms, whose sum is the gain.
        """

    @property
    def text(self) -> str | None:
        """Text form of the gain; None if it has none, because it contains a function or an array."""
        return str(self)

    def on(self, labels: Any) -> Gain:
        """Return the same gain of other labels than the first column.

        Parameters
        ----------
        labels : int, tuple of int, or array of shape (N,) or (N, L)
            Number of the label column, from 0, or several of them for a gain that reads several; or the
            labels themselves, an array or a list with one row per document.

        Returns
        -------
        Gain
            The gain that reads these labels.
        """
        return OnLabels(self, labels)

    def relevance(self, labels: Floats) -> Floats:
        """One label per document, for what needs a single one, such as a least-squares start.

        Parameters
        ----------
        labels : array of shape (N,) or (N, L)
            Labels of the documents.

        Returns
        -------
        array of shape (N,)
            By default the labels, or their first column.
        """
        return label_column(self, labels)

    def fitted(self, labels: Floats) -> Gain:
        """Return the gain with all parameters that it takes from the data, such as the largest label of ERR.

        Parameters
        ----------
        labels : array of shape (N,) or (N, L)
            Labels of all training documents.

        Returns
        -------
        Gain
            The gain, whose values no longer depend on which documents are evaluated together.
        """
        return self

    @property
    def unfitted(self) -> bool:
        """Whether the gain has parameters that it takes from the data; see `fitted`."""
        return False

    def stated(self, discount: Discount) -> Gain:
        """Return the gain with `discount` as the discount of NDCG, unless it has one; see `as_gain`.

        Parameters
        ----------
        discount : {"letor", "log2"}
            Discount of a rank.

        Returns
        -------
        Gain
            The gain.
        """
        return self

    def with_columns(self, column: Callable[[Bound], tuple[int, ...]]) -> Gain:
        """Return the gain with label columns in place of the arrays that it holds.

        Parameters
        ----------
        column : callable
            Function from an array to the numbers of its columns.

        Returns
        -------
        Gain
            The gain.
        """
        return self

    def __add__(self, other: Any) -> Gain:
        return GainSum.of([(1.0, self), (1.0, other)]) if isinstance(other, Gain) else NotImplemented

    def __radd__(self, other: Any) -> Gain:  # for the built-in function sum, which starts with 0
        return self if isinstance(other, Real) and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> Gain:
        return GainSum.of([(1.0, self), (-1.0, other)]) if isinstance(other, Gain) else NotImplemented

    def __mul__(self, factor: Any) -> Gain:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        return GainSum.of([(as_number("the weight of a gain", factor), self)])

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Gain:
        return self * (1 / divisor) if isinstance(divisor, Real) and divisor != 0 else NotImplemented

    def __neg__(self) -> Gain:
        return self * -1.0


@final
@dataclass(frozen=True)
class GainSum(Gain):
    """A weighted sum of gains, as ``0.8 * NDCG(10) - 0.2 * ExposureGap(1)`` makes it.

    Parameters
    ----------
    parts : tuple of (float, Gain)
        Weight of each gain, and the gain.

    Examples
    --------
    >>> from sinkprop import NDCG, RBP
    >>> (NDCG(5) + RBP(0.5) * 2).parts
    ((1.0, NDCG(k=5, discount=None, gain='exponential')), (2.0, RBP(p=0.5)))
    """

    parts: tuple[tuple[float, Gain], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a sum of gains must have at least one part; got none.")
        object.__setattr__(self, "parts", tuple(self.parts))
        for weight, _ in self.parts:
            as_number("the weight of a gain", weight)

    @classmethod
    def of(cls, parts: Iterable[tuple[float, Gain]]) -> GainSum:
        """Return the sum of weighted gains, in which sums are replaced by their parts."""
        flat: list[tuple[float, Gain]] = []
        for weight, gain in parts:
            if isinstance(gain, GainSum):
                flat += [(weight * inner, part) for inner, part in gain.parts]
            else:
                flat.append((weight, gain))
        return cls(tuple(flat))

    def __str__(self) -> str:
        text = ""
        for weight, gain in self.parts:
            sign = ("-" if weight < 0 else "") if not text else (" - " if weight < 0 else " + ")
            text += sign + ("" if abs(weight) == 1 else f"{digits(abs(weight))}*") + str(gain)
        return text

    @property
    def text(self) -> str | None:
        return str(self) if all(gain.text is not None for _, gain in self.parts) else None

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        return [
            replace(term, weight=weight * term.weight)
            for weight, gain in self.parts
            for term in gain.terms(labels, groups, weights)
        ]

    def relevance(self, labels: Floats) -> Floats:
        return next((gain for weight, gain in self.parts if weight > 0), self.parts[0][1]).relevance(labels)

    def fitted(self, labels: Floats) -> Gain:
        return self._each(lambda gain: gain.fitted(labels)) if self.unfitted else self

    @property
    def unfitted(self) -> bool:
        return any(gain.unfitted for _, gain in self.parts)

    def stated(self, discount: Discount) -> Gain:
        return self._each(lambda gain: gain.stated(discount))

    def with_columns(self, column: Callable[[Bound], tuple[int, ...]]) -> Gain:
        return self._each(lambda gain: gain.with_columns(column))

    def _each(self, change: Callable[[Gain], Gain]) -> GainSum:
        return GainSum(tuple((weight, change(gain)) for weight, gain in self.parts))


@final
@dataclass(frozen=True, eq=False)
class Bound:
    """An array that a gain holds, one row per document. Two are equal only if they are the same object."""

    name: str
    values: Floats = field(repr=False)


@final
@dataclass(frozen=True)
class OnLabels(Gain):
    """A gain that reads other label columns than the first, as `Gain.on` makes it.

    Parameters
    ----------
    gain : Gain
        The gain.
    labels : int, tuple of int, or array of shape (N,) or (N, L)
        Label columns, or the labels themselves.

    Examples
    --------
    >>> from sinkprop import NDCG
    >>> str(OnLabels(NDCG(5), 2))
    'ndcg@5[2]'
    """

    gain: Gain
    labels: Any

    def __post_init__(self) -> None:
        if isinstance(self.gain, OnLabels | GainSum):
            raise TypeError(f"on(labels) takes a single gain without label columns; got {self.gain}.")
        if bound(self.gain)[1]:
            raise TypeError(f"on(labels) takes a gain that does not hold an array itself; got {self.gain}.")
        object.__setattr__(self, "labels", _as_columns(self.labels))

    def __str__(self) -> str:
        columns = self.labels.name if isinstance(self.labels, Bound) else ",".join(map(str, self.labels))
        return f"{self.gain}[{columns}]"

    @property
    def text(self) -> str | None:
        return None if isinstance(self.labels, Bound) or self.gain.text is None else str(self)

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        return self.gain.terms(self._read(labels), groups, weights)

    def relevance(self, labels: Floats) -> Floats:
        return self.gain.relevance(self._read(labels))

    def fitted(self, labels: Floats) -> Gain:
        return replace(self, gain=self.gain.fitted(self._read(labels))) if self.unfitted else self

    @property
    def unfitted(self) -> bool:
        return self.gain.unfitted

    def stated(self, discount: Discount) -> Gain:
        return replace(self, gain=self.gain.stated(discount))

    def with_columns(self, column: Callable[[Bound], tuple[int, ...]]) -> Gain:
        return replace(self, labels=column(self.labels)) if isinstance(self.labels, Bound) else self

    def _read(self, labels: Floats) -> Floats:
        if isinstance(self.labels, Bound):
            not_bound(self)
        if len(self.labels) == 1:
            return label_column(self, labels, self.labels[0])
        return np.stack([label_column(self, labels, c) for c in self.labels], axis=1)


def bound(gain: Gain) -> tuple[Gain, list[Bound]]:
    """Return a gain with label columns in place of the arrays that it holds, and these arrays.

    The columns are numbered from 1 on, in the order of the arrays: they are meant to follow a single column
    of labels.
    """
    arrays: list[Bound] = []
    n_columns = 1

    def column(array: Bound) -> tuple[int, ...]:
        nonlocal n_columns
        first, width = n_columns, 1 if array.values.ndim == 1 else array.values.shape[1]
        arrays.append(array)
        n_columns += width
        return tuple(range(first, n_columns))

    return gain.with_columns(column), arrays


def with_bound_arrays(gain: Gain, labels: Floats) -> tuple[Gain, Floats]:
    """Return the gain with label columns in place of its arrays, and the labels with these columns.

    Labels are sorted and split with the documents. Raises a ValueError if an array does not have one row per
    document, or if there are several columns of labels already.

    >>> from sinkprop import ExposureGap
    >>> gain, labels = with_bound_arrays(ExposureGap(["a", "b"]), np.array([2.0, 1.0]))
    >>> str(gain), labels.tolist()
    ('exposuregap(groups=1)', [[2.0, 0.0], [1.0, 1.0]])
    """
    if type(gain).with_columns is Gain.with_columns:  # a gain of a kind that holds no array
        return gain, labels
    changed, arrays = bound(gain)
    if not arrays:
        return gain, labels
    if labels.ndim > 1:
        raise ValueError(
            f"gain: {gain} holds an array, and the labels have {labels.shape[1]} columns. Pass the array as "
            "one more column, and its number to the gain."
        )
    for array in arrays:
        if len(array.values) != len(labels):
            hint = (
                " Label columns are given as a tuple, such as on((1, 2))." if array.name == "labels" else ""
            )
            raise ValueError(
                f"{array.name} must have one row per document: {len(labels)} documents, but "
                f"{len(array.values)} rows.{hint}"
            )
    return changed, np.column_stack([labels, *(array.values for array in arrays)])


def label_column(gain: Gain, labels: Floats, column: int = 0) -> Floats:
    """Return one column of labels (N,) or (N, L); raise a ValueError that names the gain if there is none."""
    n_columns = 1 if labels.ndim == 1 else labels.shape[1]
    if column >= n_columns:
        raise ValueError(
            f"labels: {gain} reads label column {column}, but there "
            f"{'is one column' if n_columns == 1 else f'are {n_columns} columns'}, numbered from 0. Pass "
            "labels of shape (N, L), one column per kind of label."
        )
    return labels if labels.ndim == 1 else np.ascontiguousarray(labels[:, column])


def column_of(owner: str, value: Any, *, ids: bool = False) -> int | Bound:
    """Return a label column, or an array of one value per document as a `Bound` array.

    With `ids`, the values of an array are ids of any hashable kind, which are numbered. Messages of errors
    call the value `owner`.
    """
    if isinstance(value, Bound):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{owner} must be the number of a label column, from 0; got {value}.")
        return int(value)
    array = _numbered(owner, value) if ids else _array(owner, value)
    if array.ndim != 1:
        raise ValueError(f"{owner} must have one value per document, shape (N,); got shape {array.shape}.")
    return Bound(owner, array)


def _as_columns(labels: Any) -> tuple[int, ...] | Bound:
    if isinstance(labels, Bound):
        return labels
    if isinstance(labels, int | np.integer) and not isinstance(labels, bool):
        labels = (labels,)
    columns = isinstance(labels, tuple | range)
    if columns and all(isinstance(c, int | np.integer) and not isinstance(c, bool) for c in labels):
        if not labels or min(labels) < 0:
            raise ValueError(f"on: label columns must be numbers from 0; got {labels!r}.")
        return tuple(int(c) for c in labels)
    if not isinstance(labels, np.ndarray) and hasattr(labels, "toarray"):
        labels = labels.toarray()
    array = _array("on: labels", labels)
    if array.ndim not in (1, 2):
        raise ValueError(f"on: labels must have the shape (N,) or (N, L); got {array.shape}.")
    return Bound("labels", array)


def _numbered(owner: str, value: Any) -> Floats:
    """Return a number for each of the ids in a sequence; equal ids have equal numbers."""
    ids = np.asarray(value, dtype=object)
    if ids.ndim != 1:
        raise ValueError(f"{owner} must have one value per document, shape (N,); got shape {ids.shape}.")
    codes: dict[Hashable, int] = {}
    for row, item in enumerate(ids):
        if item is None or (isinstance(item, Real) and np.isnan(float(item))):
            raise ValueError(f"{owner} must not be missing; row {row} holds {item!r}.")
        codes.setdefault(item, len(codes))
    return np.array([codes[item] for item in ids], dtype=np.float64)


def _array(owner: str, value: Any) -> Floats:
    array = np.asarray(value)
    try:
        if array.dtype.kind not in "fiubO":
            raise TypeError(f"an array of {array.dtype}")
        array = np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner} must be a label column or an array of numbers; got {error}.") from None
    bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(
            f"{owner} must be finite and not below 0; row {place[0]} holds {float(array[place])!r}."
        )
    return array


def not_bound(gain: Gain) -> NoReturn:
    raise ValueError(
        f"gain: {gain} holds an array with one row per document, which cannot be matched to these documents. "
        "Pass the array as further columns of the labels, and the number of the column to the gain."
    )
