"""Gains and relaxations as arguments of the native functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import half_steps
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.objective.gains import Gain, RankLinearGain, Term
from sinkprop.objective.gains.base import label_column
from sinkprop.objective.gains.rank_linear import cached_discounts
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator, as_relaxation

if TYPE_CHECKING:
    from sinkprop.objective.normalization import Iterations

__all__ = [
    "NativeGains",
    "NativeSettings",
    "NativeTerms",
    "TermRow",
    "known_settings",
    "native_gains",
    "native_settings",
    "term_rows",
    "term_table",
]

_CODES = {"gaussian": 0, "laplace": 1, "logit-logistic": 2, "probit": 3, "beta": 4}
# Numbers of the forms and norms of terms in native/kernels/kernels.hpp
_FORMS = ("linear", "precisions", "cascade", "target", "gap", "column", "row")
_NORMS = ("none", "ideal", "count", "greedy", "intents")


class NativeSettings(NamedTuple):
    """Settings of a relaxation and its normalization, in the order in which native functions take them.

    relaxation  Number of the relaxation in native/kernels/kernels.hpp.
    sigma       Smoothing width; the scale of a partitioned measure, or 0 if every document has its own.
    exact       Whether sums over the Gaussian kernel are computed with the accuracy "exact", not "fast".
    half_steps  Number of normalizations, alternately of columns and rows; if `tol` is above 0, the largest
                number of products or iterations.
    epsilon     Constant added to every entry of A, the matrix that the relaxation makes from the scores.
    tol         Largest deviation of a row or column sum from 1 in the limit of the normalizations; 0 for the
                given number of normalizations.
    """

    relaxation: int
    sigma: float
    exact: bool
    half_steps: int
    epsilon: float
    tol: float = 0.0

    @property
    def width(self) -> int:
        """Number of scores per document."""
        return 1 if self.sigma else 2


class NativeGains(NamedTuple):
    """The gain of given documents as arguments of native functions, in the order of their parameters.

    gains        (N,) gains; if `exponential` is set, labels r, from which native code computes 2^r - 1.
    exponential  Whether `gains` holds labels.
    classes      (N,) index of each document's row in `discounts`; None if there is only one row.
    discounts    (U, n) discounts of the ranks 1, ..., n, where n is the size of the largest query. There
                 is one row if the gain is separable, and one per distinct label if not.
    normalize    Whether values are divided by the value of the best ranking.
    """

    gains: Floats
    exponential: bool
    classes: NDArray[np.int32] | None
    discounts: Floats
    normalize: bool


class NativeTerms(NamedTuple):
    """A gain that is a sum of terms, for given documents, as arguments of native functions.

    attributes  (A, N) attributes of the documents, for all terms.
    table       (n_terms, 10) one row per term; native/bindings/arguments.hpp describes its columns.
    discounts   (U, n) discounts of the ranks 1, ..., n, where n is the size of the largest query.
    functions   Function of each term, or None.
    """

    attributes: Floats
    table: Floats
    discounts: Floats
    functions: list[Any]


class TermRow(NamedTuple):
    """A row of the table of terms, see `NativeTerms`, with names in the place of numbers.

    first, width  First attribute of the term, and number of its attributes.
    row, step     First row of its discounts, and distance of the rows of two attributes.
    """

    form: str
    norm: str
    first: int
    width: int
    row: int
    step: int
    weight: float
    alpha: float
    c0: float
    c1: float

    @property
    def of_rows(self) -> bool:
        """Whether the statistics are exposures of documents."""
        return self.form in ("target", "gap", "row")


def term_rows(table: Iterable[Sequence[float]]) -> list[TermRow]:
    """Read the rows of a table of terms."""
    return [TermRow(_FORMS[int(row[0])], _NORMS[int(row[1])], *map(int, row[2:6]), *row[6:]) for row in table]


def native_settings(relaxation: Relaxation, n_iter: Iterations, epsilon: float) -> NativeSettings:
    """Convert a relaxation and the settings of the Sinkhorn iterations to native arguments.

    `n_iter` is the number of iterations, or their limit, and `epsilon` is added to every entry of the matrix
    before them.
    Raises a TypeError or ValueError if an argument is invalid.
    """
    if isinstance(relaxation, SmoothedIndicator):
        code, sigma, exact = _CODES[relaxation.kernel], relaxation.sigma, relaxation.accuracy == "exact"
    elif isinstance(relaxation, PartitionedMeasure):
        code, sigma, exact = _CODES[relaxation.family], relaxation.sigma or 0.0, True
    else:
        raise TypeError(
            f"relaxation must be a SmoothedIndicator or a PartitionedMeasure; got {relaxation!r}."
        )
    if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be a finite number, not below 0; got {epsilon!r}.")
    # With a larger epsilon, sums could overflow. Such an epsilon has no use: the entries of A, to which it is
    # added, are at most 1.
    if epsilon > 1e100:
        raise ValueError(f"epsilon must be at most 1e100; got {epsilon!r}.")
    if isinstance(n_iter, Real):
        return NativeSettings(code, sigma, exact, half_steps(n_iter), float(epsilon))
    from sinkprop.objective.normalization import Converged, as_iterations

    limit = as_iterations(n_iter)
    assert isinstance(limit, Converged)
    return NativeSettings(code, sigma, exact, limit.max_iter, float(epsilon), limit.tol)


def known_settings(relaxation: str | Relaxation, n_iter: Iterations, epsilon: float) -> NativeSettings:
    """Return `native_settings`, from a cache: its checks take longer than finding the settings again."""
    try:
        return _known_settings(relaxation, n_iter, epsilon)
    except TypeError:  # an argument that cannot be hashed, or an error that is raised again
        pass
    return native_settings(as_relaxation(relaxation), n_iter, epsilon)


@lru_cache(maxsize=64, typed=True)  # `typed` keeps True apart from 1, which is valid
def _known_settings(relaxation: str | Relaxation, n_iter: Iterations, epsilon: float) -> NativeSettings:
    return native_settings(as_relaxation(relaxation), n_iter, epsilon)


def native_gains(
    gain: Gain, y: Floats, groups: Groups, row_weights: Floats | None
) -> NativeGains | NativeTerms:
    """Convert a gain to native arguments, for documents with labels y in the queries `groups`.

    y has the shape (N,) or (N, L). The weight of a row in `row_weights` (N,), if given, multiplies the gain,
    or the attributes, of its document.
    """
    if not isinstance(gain, RankLinearGain):
        return _native_terms(gain.terms(y, groups, row_weights))
    y, longest = y if y.ndim == 1 else label_column(gain, y), groups.longest
    if gain.separable:
        weights, exponential = gain.native_gains(y)
        if row_weights is not None:
            weights, exponential = gain.gains(y) * row_weights, False
        discounts = cached_discounts(gain, longest)[1]
        # in half the time of NativeGains(...)
        return tuple.__new__(NativeGains, (weights, exponential, None, discounts, gain.normalized))
    classes, discounts = gain.class_discounts(y, longest)
    weights = np.ones(len(y)) if row_weights is None else row_weights.copy()
    return NativeGains(weights, False, classes, discounts, gain.normalized)


def term_table(terms: Sequence[Term], counts: Sequence[int]) -> Floats:
    """Return one row of 10 numbers per term, as native/bindings/arguments.hpp describes it.

    `counts` has the number of attributes of each term.
    """
    first = row = 0
    table = []
    for term, count in zip(terms, counts, strict=True):
        rows = len(term.discounts)
        numbers = (_FORMS.index(term.form), _NORMS.index(term.norm), first, count, row, int(rows > 1))
        table.append((*numbers, term.weight, term.alpha, *term.constants))
        first, row = first + count, row + rows
    return np.array(table)


def _native_terms(terms: list[Term]) -> NativeTerms:
    table = term_table(terms, [len(term.attributes) for term in terms])
    (one, *more) = terms
    if not more:
        return NativeTerms(one.attributes, table, one.discounts, [one.function])
    return NativeTerms(
        np.concatenate([term.attributes for term in terms]),
        table,
        np.concatenate([term.discounts for term in terms]),
        [term.function for term in terms],
    )
