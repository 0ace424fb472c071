"""Row gains: penalties on the exposure of documents, for fairness between groups and closeness to a target.

A row gain is a function H of the exposures E[j] = sum_k Pi[j, k] e(k): how much attention document j gets in
expectation, if rank k gets the attention e(k). These gains are distances, 0 for the best exposure: subtract
them from another gain. docs/beyond-rank-linear.md derives their gradient.

>>> from sinkprop import NDCG
>>> str(0.8 * NDCG(10) - 0.2 * ExposureGap(groups=1))  # the groups are the second column of the labels
'0.8*ndcg@10 - 0.2*exposuregap(groups=1)'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.arguments import one_of
from sinkprop.common.text_forms import as_cutoff, text_form
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.objective.gains.base import Bound, Gain, Term, column_of, label_column, not_bound

__all__ = ["ExpectedExposure", "Exposure", "ExposureGap", "exposure_weights"]

Exposure = Literal["log2", "reciprocal"] | Callable[[Floats], ArrayLike]


class _OfExposure(Gain):
    """Base of the built-in functions of exposures."""

    exposure: Exposure
    k: int | None

    def _columns(self) -> dict[str, Any]:
        """Label columns that the gain reads, or arrays, by parameter name."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "k", checked_exposure(name, self.exposure, self.k))
        for option, value in self._columns().items():
            if value is not None:
                found = column_of(f"{name}: {option}", value, ids=option == "groups")
                object.__setattr__(self, option, found)

    def _text(self, name: str) -> str:
        given = {option: x for option, x in self._columns().items() if x is not None}
        options = [f"{option}={'array' if isinstance(x, Bound) else x}" for option, x in given.items()]
        if self.exposure != "log2":
            shown = self.exposure if isinstance(self.exposure, str) else "function"
            options.append(f"exposure={shown}")
        return text_form(name, options, self.k)

    @property
    def text(self) -> str | None:
        custom = not isinstance(self.exposure, str)
        return None if custom or any(isinstance(x, Bound) for x in self._columns().values()) else str(self)

    def with_columns(self, column: Callable[[Bound], tuple[int, ...]]) -> Gain:
        found = {option: column(x)[0] for option, x in self._columns().items() if isinstance(x, Bound)}
        return replace(self, **found) if found else self  # type: ignore[type-var]

    def _read(self, labels: Floats, option: str) -> Floats:
        column = self._columns()[option]
        return not_bound(self) if isinstance(column, Bound) else label_column(self, labels, column)


@final
@dataclass(frozen=True)
class ExposureGap(_OfExposure):
    """Difference in exposure between groups of documents (Singh and Joachims 2018), as a penalty.

    X_g is the mean exposure of the documents of group g in a query or, with `merit`, the sum of their
    exposures divided by the sum of their merits. The value is the mean of (X_g - X_h)^2 over all pairs of
    groups, so it is the square of the gap if there are two. A query with one group has the value 0. Subtract
    it from another gain.

    Parameters
    ----------
    groups : int or array of shape (N,)
        Group of each document: the number of a label column, from 0, or the groups themselves, numbers or
        text, one per document. An array only fits the documents of one call, or of a fit without `eval_set`.
    merit : int or array of shape (N,), optional
        Merit of each document, at least 0: a label column (0 is the relevance itself) or an array. A group
        whose merits are all 0 is left out. By default all documents deserve the same exposure.
    exposure : {"log2", "reciprocal"} or callable, default "log2"
        Attention e(k) that rank k gets: 1/log2(k + 1), 1/k, or a function of the ranks 1.0, ..., n.
    k : int, optional
        Number of ranks that get attention. By default all ranks do.

    Examples
    --------
    >>> from sinkprop import NDCG, expected_gain
    >>> gain = 0.8 * NDCG(10) - 0.2 * ExposureGap(groups=["a", "b", "b", "a"])
    >>> round(expected_gain([3, 2, 1, 0], [2, 0, 1, 0], gain=gain).value, 4)
    0.7236
    """

    groups: Any
    merit: Any = None
    exposure: Exposure = field(default="log2", kw_only=True)
    k: int | None = field(default=None, kw_only=True)

    def _columns(self) -> dict[str, Any]:
        return {"groups": self.groups, "merit": self.merit}

    def __str__(self) -> str:
        return self._text("exposuregap")

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        rows, codes = _rows_in_order(groups)
        own = np.ones(len(rows)) if weights is None else weights[rows]
        merit = own if self.merit is None else own * self._read(labels, "merit")[rows]
        _, ids = np.unique(self._read(labels, "groups")[rows], return_inverse=True)
        # pairs of a query and a group, in order of the queries; the groups of a query are numbered from 0
        pairs, at = np.unique(codes * (int(ids.max(initial=0)) + 1) + ids, return_inverse=True)
        of_pair = pairs // (int(ids.max(initial=0)) + 1)
        first = np.searchsorted(of_pair, np.arange(len(groups.sizes)))
        totals = np.bincount(at, merit, minlength=len(pairs))[at]
        attributes = np.full((2, len(labels)), -1.0)
        attributes[0, rows] = np.where(totals > 0, at - first[codes], -1.0)
        attributes[1, rows] = own / np.where(totals > 0, totals, 1)
        return [Term("gap", attributes, exposure_weights(self.exposure, self.k, groups.longest))]


@final
@dataclass(frozen=True)
class ExpectedExposure(_OfExposure):
    """Squared distance between the exposures of documents and a target (Diaz et al. 2020), as a penalty.

    The value is sum_j (E[j] - t[j])^2. Subtract it from another gain, or minimize it alone with
    ``-ExpectedExposure()``.

    Parameters
    ----------
    target : int or array of shape (N,), optional
        Target exposure t of each document: the number of a label column, or an array. By default documents
        with equal labels share the exposure of the ranks that they have in a ranking by decreasing label.
    exposure : {"log2", "reciprocal"} or callable, default "log2"
        Attention e(k) that rank k gets: 1/log2(k + 1), 1/k, or a function of the ranks 1.0, ..., n.
    k : int, optional
        Number of ranks that get attention. By default all ranks do.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([100, 200], [1, 1], gain=ExpectedExposure(exposure="reciprocal")).value, 6)
    0.125
    >>> round(expected_gain([1, 1], [1, 1], gain=ExpectedExposure(exposure="reciprocal")).value, 6)
    0.0
    """

    target: Any = None
    exposure: Exposure = field(default="log2", kw_only=True)
    k: int | None = field(default=None, kw_only=True)

    def _columns(self) -> dict[str, Any]:
        return {"target": self.target}

    def __str__(self) -> str:
        return self._text("expectedexposure")

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        if weights is not None:
            raise ValueError(
                f"sample_weight: {self} has no row weights, because the target is for every document. Leave "
                "them out, or give a target= that accounts for them."
            )
        e = exposure_weights(self.exposure, self.k, groups.longest)
        target = (
            _ideal_exposure(self, labels, groups, e[0])
            if self.target is None
            else self._read(labels, "target")
        )
        return [Term("target", target[None], e)]


def _ideal_exposure(gain: Gain, labels: Floats, groups: Groups, e: Floats) -> Floats:
    """(N,) mean exposure of the ranks that documents of a label share, in a ranking by decreasing label."""
    rows, codes = _rows_in_order(groups)
    r, sizes = label_column(gain, labels)[rows], groups.sizes
    order = np.lexsort((-r, codes))
    ranks = np.arange(len(r)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    starts = np.flatnonzero(np.append(True, (np.diff(codes) != 0) | (np.diff(r[order]) != 0)))
    counts = np.diff(np.append(starts, len(r)))
    target = np.zeros(len(labels))
    target[rows[order]] = np.repeat(np.add.reduceat(e[ranks], starts) / counts, counts)
    return target


def _rows_in_order(groups: Groups) -> tuple[Integers, Integers]:
    """Rows of the documents, query by query, and the number of the query of each."""
    codes = np.repeat(np.arange(len(groups.sizes)), groups.sizes)
    first = int(groups.offsets[0])
    return np.arange(first, first + len(codes)) if groups.rows is None else groups.rows, codes


def checked_exposure(name: str, exposure: Exposure, k: int | None) -> int | None:
    """Return k; raise an error that begins with the name of the gain if `exposure` or `k` is invalid."""
    if not callable(exposure):
        one_of(f"{name}: exposure", exposure, ("log2", "reciprocal"))
    return None if k is None else as_cutoff(name, k, ", or None for every rank")


def exposure_weights(exposure: Exposure, k: int | None, n: int) -> Floats:
    """(1, n) attention of each rank."""
    if isinstance(exposure, str):
        return _named_weights(exposure, k, n)
    ranks = np.arange(1, n + 1, dtype=np.float64)
    e = np.array(exposure(ranks), dtype=np.float64)
    if e.shape != ranks.shape or not np.isfinite(e).all():
        raise ValueError(
            f"exposure(ranks) must return one finite number per rank, shape {ranks.shape}; got "
            f"{e.tolist() if e.shape == ranks.shape else f'shape {e.shape}'}."
        )
    if k is not None:
        e[k:] = 0
    return e[None]


@lru_cache(maxsize=32)
def _named_weights(exposure: str, k: int | None, n: int) -> Floats:
    ranks = np.arange(1, n + 1, dtype=np.float64)
    e = 1 / (np.log2(ranks + 1) if exposure == "log2" else ranks)
    if k is not None:
        e[k:] = 0
    e.flags.writeable = False
    return e[None]
