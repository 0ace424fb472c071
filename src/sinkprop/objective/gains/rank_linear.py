"""Rank-linear gains: NDCG, precision, rank-biased precision, and custom gains.

A gain is *rank-linear* when the value of a ranking is sum_k l(r_s[k], k), where r_s[k] is the label of the
document s[k] at rank k: each document adds an amount l that depends only on its label and its rank. The
expectation then depends on the distribution over rankings only through Pi[j, k], the probability that
document j is at rank k. Most commonly used gains are also *separable*, l(r, k) = G(r) D(k), with a gain G of
the label and a discount D of the rank.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import _native
from sinkprop.common.arguments import one_of
from sinkprop.common.text_forms import as_cutoff, as_number, digits, text_form
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.objective.gains.base import Discount, Gain, Norm, Term, label_column

__all__ = ["NDCG", "NDCG_DEFAULTS", "RBP", "Precision", "RankLinear", "RankLinearGain", "cached_discounts"]


class RankLinearGain(Gain):
    """A rank-linear gain, sum_jk S[j, k] l(r_j, k) for the permutation matrix S of a ranking.

    l(r_j, k) is the amount that document j, with label r_j, adds at rank k. S[j, k] is 1 if document j is at
    rank k, and 0 if not.

    Base class of `NDCG`, `Precision`, `RBP` and `RankLinear`.
    """

    @property
    def separable(self) -> bool:
        """Whether the gain l(r, k) of a label r at a rank k is a product G(r) D(k).

        `gains` computes G, and `discounts` computes D.
        """
        return True

    @property
    @abstractmethod
    def normalized(self) -> bool:
        """Whether a query's value is divided by the value of its best ranking.

        Only a separable gain, with the gain G(r) of a label r and the discount D(k) of a rank k, can be
        normalized. The best ranking has the labels r_(1), r_(2), ... in decreasing order of G, and its value
        is sum_k D(k) G(r_(k)). A query whose best ranking has the value 0 has the value 0.
        """

    @abstractmethod
    def gains(self, labels: ArrayLike) -> Floats:
        """Gain G of each label.

        Parameters
        ----------
        labels : array of shape (N,)
            Labels of documents.

        Returns
        -------
        array of shape (N,)
            New array with G of each label.

        Raises
        ------
        ValueError
            If the gain is not defined for a label.
        """

    def native_gains(self, labels: Floats) -> tuple[Floats, bool]:
        """Gains in the form that the native layer takes.

        Parameters
        ----------
        labels : array of shape (N,)
            Labels of documents.

        Returns
        -------
        values : array of shape (N,)
            The gains, or the labels, from which native code computes 2^r - 1.
        exponential : bool
            Whether `values` are labels.
        """
        return self.gains(labels), False

    def discounts(self, n: int) -> Floats:
        """Discounts of the ranks 1 to n.

        Parameters
        ----------
        n : int
            Number of ranks.

        Returns
        -------
        array of shape (n,)
            D(1), ..., D(n). The array is read-only and cached.

        Examples
        --------
        >>> NDCG(3).discounts(4).round(4)
        array([1.    , 1.    , 0.6309, 0.    ])
        """
        return cached_discounts(self, n)[0]

    def class_discounts(self, labels: ArrayLike, n: int) -> tuple[NDArray[np.int32], Floats]:
        """Table of the gains l(r, k) of labels r at ranks k, not normalized, with one row per distinct label.

        Parameters
        ----------
        labels : array of shape (N,)
            Labels of documents.
        n : int
            Number of ranks.

        Returns
        -------
        classes : array of shape (N,)
            For each document, the index of its row in `D`.
        D : array of shape (U, n)
            One row per distinct label: row j of the matrix l(r_j, k) is `D[classes[j]]`.

        Examples
        --------
        >>> classes, D = Precision(2).class_discounts([1, 0, 1], n=3)
        >>> D[classes]
        array([[0.5, 0.5, 0. ],
               [0. , 0. , 0. ],
               [0.5, 0.5, 0. ]])
        """
        r = _label_array(labels)
        _, first, classes = np.unique(r, return_index=True, return_inverse=True)
        return classes.astype(np.int32), np.outer(self.gains(r)[first], self.discounts(n))

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        r, n = label_column(self, labels), groups.longest
        if self.separable:
            a = self.gains(r) if weights is None else self.gains(r) * weights
            norm: Norm = "ideal" if self.normalized else "none"
            return [Term("linear", a[None], self.discounts(n)[None], norm=norm)]
        classes, D = self.class_discounts(r, n)
        a = (classes == np.arange(len(D))[:, None]).astype(np.float64)
        return [Term("linear", a if weights is None else a * weights, D)]

    @abstractmethod
    def _discount(self, ranks: Floats) -> Floats:
        """Return the discount D of each of `ranks`, which are 1, ..., n."""


# The cache is small: few different n are used at a time, and an entry takes memory for n numbers, where n is
# the number of documents of the longest query.
@lru_cache(maxsize=32)
def cached_discounts(gain: RankLinearGain, n: int) -> tuple[Floats, Floats]:
    """Return the discounts (n,) of the ranks 1 to n, and the same numbers as the row (1, n) for native code.

    Only the first array is read-only: a read-only array takes a native function 0.1 us longer to accept.
    """
    D = gain._discount(np.arange(1, n + 1, dtype=np.float64))
    row = D[None]
    D.flags.writeable = False
    return D, row


@final
@dataclass(frozen=True)
class NDCG(RankLinearGain):
    """Normalized discounted cumulative gain (Jarvelin and Kekalainen 2002).

    A query without a relevant document has the value 0.

    Parameters
    ----------
    k : int, optional
        Number of ranks that count. By default all ranks count.
    discount : {"letor", "log2"}, optional
        Discount of a rank. "letor", used by the paper and by LETOR's evaluation script, is 1 at ranks 1 and 2
        and 1/log2(rank) after. "log2", used by most other tools, is 1/log2(rank + 1). If None, the user of
        the gain decides: a ranker takes the discount of its `convention`, losses and tree objectives, which
        have no convention, take "log2", and `expected_gain` takes "letor", as in the paper.
    gain : {"exponential", "linear"}, default "exponential"
        Gain of a label r: 2^r - 1 or r.

    Examples
    --------
    >>> NDCG().gains([0, 1, 2, 3])
    array([0., 1., 3., 7.])
    >>> NDCG(discount="log2").discounts(3).round(4)
    array([1.    , 0.6309, 0.5   ])
    """

    k: int | None = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: Literal["exponential", "linear"] = field(default="exponential", kw_only=True)

    def __post_init__(self) -> None:
        if self.k is not None:
            object.__setattr__(self, "k", as_cutoff("NDCG", self.k, ", or None for every rank"))
        if self.discount is not None:
            one_of("NDCG: discount", self.discount, ("letor", "log2"))
        one_of("NDCG: gain", self.gain, ("exponential", "linear"))

    def __str__(self) -> str:
        chosen = {"discount": self.discount, "gain": self.gain}
        return text_form(
            "ndcg", [f"{name}={x}" for name, x in chosen.items() if x != NDCG_DEFAULTS[name]], self.k
        )

    def stated(self, discount: Discount) -> NDCG:
        return self if self.discount is not None else replace(self, discount=discount)

    @property
    def normalized(self) -> bool:
        return True

    def gains(self, labels: ArrayLike) -> Floats:
        r = _label_array(labels)
        if self.gain == "linear":
            return _checked(self, r, r.copy(), 0.0, "Labels must be finite and at least 0.")
        G = np.empty_like(r)
        _native.exponential_gains(self.native_gains(r)[0], G)
        return G

    def native_gains(self, labels: Floats) -> tuple[Floats, bool]:
        if self.gain == "linear":
            return super().native_gains(labels)
        row = _native.first_invalid(labels, 0.0, _EXPONENT_LIMIT)
        if row >= 0:
            advice = "Labels must be at least 0, and below 960 for 2**label; gain='linear' takes larger ones."
            _reject(self, labels, row, advice)
        return labels, True

    def _discount(self, ranks: Floats) -> Floats:
        D: Floats = 1 / np.log2(ranks + 1 if self.discount == "log2" else np.maximum(ranks, 2))
        if self.k is not None:
            D[self.k :] = 0
        return D


_EXPONENT_LIMIT = float(np.nextafter(960.0, 0.0))  # gains 2^r - 1 of labels r up to this have finite sums
NDCG_DEFAULTS = {"discount": None, "gain": "exponential"}


@final
@dataclass(frozen=True)
class Precision(RankLinearGain):
    """Precision at k: the fraction of the first k ranks whose labels reach the threshold.

    The count is divided by k even if a query has fewer than k documents.

    Parameters
    ----------
    k : int
        Number of ranks that count.
    threshold : float, default 1.0
        Least label of a relevant document.

    Examples
    --------
    >>> Precision(5, threshold=2).gains([0, 1, 2, 3])
    array([0., 0., 1., 1.])
    """

    k: int
    threshold: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", as_cutoff("Precision", self.k))
        object.__setattr__(self, "threshold", as_number("Precision: threshold", self.threshold))

    def __str__(self) -> str:
        return text_form("p", [] if self.threshold == 1 else [f"threshold={digits(self.threshold)}"], self.k)

    @property
    def normalized(self) -> bool:
        return False

    def gains(self, labels: ArrayLike) -> Floats:
        r = _label_array(labels)
        if not np.isfinite(r).all():
            _reject(self, r, int(np.argmin(np.isfinite(r))), "Labels must be finite.")
        return (r >= self.threshold).astype(np.float64)

    def _discount(self, ranks: Floats) -> Floats:
        D = np.zeros_like(ranks)
        D[: self.k] = 1 / self.k
        return D


@final
@dataclass(frozen=True)
class RBP(RankLinearGain):
    """Rank-biased precision, (1 - p) sum_k r_s[k] p^(k-1) (Moffat and Zobel 2008).

    r_s[k] is the label of the document at rank k.

    Parameters
    ----------
    p : float, default 0.8
        Persistence, 0 <= p < 1: the probability that a reader continues from one document to the next. With
        p = 0 only the first rank counts. With p = 1 every ranking would have the value 0, so 1 is an error.

    Examples
    --------
    >>> RBP(0.5).discounts(4)
    array([0.5   , 0.25  , 0.125 , 0.0625])
    """

    p: float = 0.8

    def __post_init__(self) -> None:
        p = as_number("RBP: p", self.p)
        if not 0 <= p < 1:
            raise ValueError(
                f"RBP: p must be at least 0 and below 1; got {p!r}. The usual choices are 0.5 to 0.95."
            )
        object.__setattr__(self, "p", p + 0.0)  # turns -0.0, which would print differently, into 0.0

    def __str__(self) -> str:
        return text_form("rbp", [], digits(self.p))

    @property
    def normalized(self) -> bool:
        return False

    def gains(self, labels: ArrayLike) -> Floats:
        r = _label_array(labels)
        return _checked(self, r, r.copy(), -_LARGEST, "Labels must be finite.")

    def _discount(self, ranks: Floats) -> Floats:
        D: Floats = (1 - self.p) * self.p ** (ranks - 1)
        return D


@final
@dataclass(frozen=True, kw_only=True)
class RankLinear(RankLinearGain):
    """A custom rank-linear gain l(r, k) of the label r and the rank k.

    Pass `gain` and `discount` together for a separable gain l(r, k) = G(r) D(k), or `table` alone for a
    general one.

    Parameters
    ----------
    gain : callable, optional
        Function from an array of labels to an array of their gains G, of the same shape.
    discount : callable, optional
        Function from an array of the ranks 1.0, ..., n to an array of their discounts D, of the same shape.
        D(k) may depend only on k.
    table : callable, optional
        Function `table(labels, ranks)` that returns l(r, k). It is called with U labels of shape
        (U, 1) and n ranks of shape (1, n), and must return an array of shape (U, n).
    normalize : bool, default False
        Whether to divide the value of each query by the value of its best ranking. G must then be
        nonnegative, and D nonnegative and nonincreasing. Not available with `table`.

    Notes
    -----
    With `table`, each distinct label in a query costs one more product of a vector with the matrix A that the
    relaxation makes from the scores. The time is still linear in the number of documents if the labels are a
    few grades, and quadratic if every document has a different label.

    Examples
    --------
    >>> import numpy as np
    >>> dcg = RankLinear(gain=np.square, discount=lambda ranks: 1 / ranks)
    >>> dcg.gains([0, 1, 2]), dcg.discounts(2)
    (array([0., 1., 4.]), array([1. , 0.5]))
    >>> relevant_at_odd_ranks = RankLinear(table=lambda labels, ranks: (labels > 0) * (ranks % 2))
    >>> relevant_at_odd_ranks.class_discounts([3, 0], n=3)[1]
    array([[0., 0., 0.],
           [1., 0., 1.]])
    """

    gain: Callable[[Floats], ArrayLike] | None = None
    discount: Callable[[Floats], ArrayLike] | None = None
    table: Callable[[Floats, Floats], ArrayLike] | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        functions = {"gain": self.gain, "discount": self.discount, "table": self.table}
        given = [name for name, function in functions.items() if function is not None]
        if given not in (["gain", "discount"], ["table"]):
            raise ValueError(
                "RankLinear: expected gain= and discount= together, or table= alone; "
                f"got {' and '.join(given) or 'none of them'}."
            )
        for name in given:
            if not callable(functions[name]):
                raise TypeError(f"RankLinear: {name} must be a function of arrays; got {functions[name]!r}.")
        if self.normalize and self.table is not None:
            raise ValueError(
                "RankLinear: normalize=True needs gain= and discount=: the best ranking under a table "
                "is not a sort. Divide by your own constant inside the table, or leave normalize=False."
            )

    def __hash__(self) -> int:
        # The functions are left out, because a function need not be hashable (numpy.poly1d is not). Gains
        # with different functions may have equal hashes, but they do not compare equal.
        return hash((RankLinear, self.separable, self.normalize))

    @property
    def text(self) -> str | None:
        return None

    @property
    def separable(self) -> bool:
        return self.table is None

    @property
    def normalized(self) -> bool:
        return self.normalize

    def gains(self, labels: ArrayLike) -> Floats:
        r = _label_array(labels)
        if self.gain is None:
            self._not_separable("gains")
        G = _values("gain(labels)", self.gain, r)
        _same_shape("gain(labels)", G, r.shape)
        if self.normalize:
            return _checked(
                self, r, G, 0.0, "normalize=True needs a gain= that returns finite values of at least 0."
            )
        return _checked(self, r, G, -_LARGEST, "Make gain= return finite values.")

    def class_discounts(self, labels: ArrayLike, n: int) -> tuple[NDArray[np.int32], Floats]:
        if self.table is None:
            return super().class_discounts(labels, n)
        r = _label_array(labels)
        values, classes = np.unique(r, return_inverse=True)
        ranks = np.arange(1, n + 1, dtype=np.float64)
        D = _values("table(labels, ranks)", self.table, values[:, None], ranks[None, :])
        _same_shape("table(labels, ranks)", D, (len(values), n))
        bad = ~np.isfinite(D)
        if bad.any():
            row = int(np.argmax(np.logical_or.reduce(bad, axis=1)[classes]))
            rank = int(np.argmax(bad[classes[row]])) + 1
            raise ValueError(
                f"labels[{row}] = {float(r[row])!r}: the table of RankLinear gives "
                f"{float(D[classes[row], rank - 1])!r} at rank {rank}. Make table= return finite values."
            )
        return classes.astype(np.int32), D

    def _discount(self, ranks: Floats) -> Floats:
        if self.discount is None:
            self._not_separable("discounts")
        D = _values("discount(ranks)", self.discount, ranks)
        _same_shape("discount(ranks)", D, ranks.shape)
        if not np.isfinite(D).all():
            rank = int(np.argmin(np.isfinite(D))) + 1
            raise ValueError(
                f"RankLinear: discount must return finite values; got {float(D[rank - 1])!r} for rank "
                f"{rank}. Ranks start at 1."
            )
        if self.normalize:
            falls = np.append(D[:-1] >= D[1:], D[-1:] >= 0)
            if not falls.all():
                rank = int(np.argmin(falls)) + 1
                after = f"{float(D[rank])!r} for rank {rank + 1}" if rank < len(D) else "the last one below 0"
                raise ValueError(
                    "RankLinear: normalize=True needs a nonnegative, nonincreasing discount, so that the "
                    f"best ranking is a sort; got {float(D[rank - 1])!r} for rank {rank} and {after}. Use "
                    "normalize=False, or another discount."
                )
        return D

    def _not_separable(self, asked: str) -> NoReturn:
        raise TypeError(
            f"RankLinear(table=...) has no {asked}(): a general table is not a product of a gain and a "
            "discount. Use class_discounts(labels, n), or build it from gain= and discount=."
        )


def _label_array(labels: ArrayLike) -> Floats:
    r: Floats = np.ascontiguousarray(labels, dtype=np.float64)
    if r.ndim != 1:
        raise ValueError(f"labels: expected one value per document, shape (N,); got shape {r.shape}.")
    return r


def _values(call: str, function: Callable[..., ArrayLike], *arguments: Floats) -> Floats:
    """Call a user's function with whole arrays, and return its result as a float64 array.

    `call` is the text by which error messages refer to the call, such as "gain(labels)".
    """
    try:
        with np.errstate(all="ignore"):  # no warnings: the result of the user's function is checked instead
            return np.array(function(*arguments), dtype=np.float64)
    except ValueError as error:
        if "truth value of an array" not in str(error):
            raise
        raise ValueError(
            f"RankLinear: {call} is called with whole arrays, which `if`, `and` and `max` cannot take. Write "
            "it with NumPy operations, such as np.where."
        ) from error


def _same_shape(call: str, result: Floats, shape: tuple[int, ...]) -> None:
    if result.shape != shape:
        raise ValueError(
            f"RankLinear: {call} must return an array of shape {shape}; got shape {result.shape}. Write it "
            "with NumPy operations that act on whole arrays."
        )


def _checked(gain: Gain, r: Floats, G: Floats, low: float, advice: str) -> Floats:
    # A NaN fails both comparisons, so it is rejected, too.
    if G.size and not (G.min() >= low and G.max() <= _LARGEST):
        _reject(gain, r, int(np.argmin((low <= G) & (G <= _LARGEST))), advice, G)
    return G


_LARGEST = 2.0**960  # sums of gains up to this size do not overflow


def _reject(gain: Gain, r: Floats, row: int, advice: str, G: Floats | None = None) -> NoReturn:
    found = "" if G is None else f" (its gain would be {float(G[row])!r})"
    raise ValueError(f"labels[{row}] = {float(r[row])!r}: {gain} cannot take it{found}. {advice}")
