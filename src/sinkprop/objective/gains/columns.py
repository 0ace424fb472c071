"""Column gains: average precision, reciprocal rank, ERR, recall, F-measure, and gains of diversity.

A column gain is a function F of R_c[k] = sum_j Pi[j, k] a_c[j], what is expected at rank k of the attribute
a_c of the documents. For a permutation matrix Pi, R_c is the sequence of attributes in rank order, and F(R)
is the metric. Otherwise it is the metric of the expected sequence, which is the expected value of the metric
if F is linear, and close to it if not; docs/beyond-rank-linear.md derives and measures this.

Larger is better. The text form of a gain is that of the metric:

>>> from sinkprop import parse_gain
>>> parse_gain("map@10")
AveragePrecision(k=10, threshold=1.0)
>>> str(ERR(20, max_label=4))
'err(max_grade=4)@20'
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, final

import numpy as np

from sinkprop.common.text_forms import as_cutoff, as_number, digits, text_form
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.objective.gains.base import Gain, Term, label_column

__all__ = ["ERR", "ERRIA", "AlphaNDCG", "AveragePrecision", "FMeasure", "Recall", "ReciprocalRank"]


class _Binary(Gain):
    """Base of the gains that only distinguish relevant and irrelevant documents."""

    k: int | None
    threshold: float

    def __post_init__(self) -> None:
        _check_cutoff(self)
        object.__setattr__(self, "threshold", as_number(f"{_name(self)}: threshold", self.threshold))

    def _options(self) -> list[str]:
        return [] if self.threshold == 1 else [f"threshold={digits(self.threshold)}"]

    def _relevant(self, labels: Floats, weights: Floats | None) -> Floats:
        """(1, N) 1 for a relevant document and 0 for another, times its weight."""
        return _weighted((label_column(self, labels) >= self.threshold).astype(np.float64)[None], weights)


@final
@dataclass(frozen=True)
class AveragePrecision(_Binary):
    """Average precision; its mean over queries is MAP.

    With R[k] the expected relevance at rank k and m the number of relevant documents, it is
    (1/m) sum_k (R[k]/k) (1 + sum_(i<k) R[i]), or sum_k R[k]/k if m = 1, which is exact. A query without a
    relevant document has the value 0.

    Parameters
    ----------
    k : int, optional
        Number of ranks that count. By default all ranks count. The sum is divided by the number of all
        relevant documents, as in trec_eval, even if there are more than k.
    threshold : float, default 1.0
        Least label of a relevant document.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([3, 2, 1], [1, 0, 1], gain=AveragePrecision(), relaxation="laplace").value, 4)
    0.8746
    >>> round(expected_gain([300, 200, 100], [1, 0, 1], gain="map").value, 4)  # (1/1 + 2/3) / 2
    0.8333
    """

    k: int | None = None
    threshold: float = field(default=1.0, kw_only=True)

    def __str__(self) -> str:
        return text_form("map", self._options(), self.k)

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        d = _discounts("reciprocal", self.k, groups.longest)
        return [Term("precisions", self._relevant(labels, weights), d, norm="count")]


@final
@dataclass(frozen=True)
class ReciprocalRank(_Binary):
    """Reciprocal rank of the first relevant document; its mean over queries is MRR.

    With R[k] the expected relevance at rank k, it is sum_k (R[k]/k) prod_(i<k) (1 - R[i]). In a query with
    one relevant document it is the expected reciprocal rank itself, sum_k R[k]/k.

    Parameters
    ----------
    k : int, optional
        Number of ranks that count. By default all ranks count.
    threshold : float, default 1.0
        Least label of a relevant document.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([100, 300, 200], [0, 0, 1], gain=ReciprocalRank(10)).value, 4)
    0.5
    """

    k: int | None = None
    threshold: float = field(default=1.0, kw_only=True)

    def __str__(self) -> str:
        return text_form("mrr", self._options(), self.k)

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        a = _probabilities(self, self._relevant(labels, weights))
        return [Term("cascade", a, _discounts("reciprocal", self.k, groups.longest))]


@final
@dataclass(frozen=True)
class ERR(Gain):
    """Expected reciprocal rank of the document at which a reader stops (Chapelle et al. 2009).

    A reader goes down the list and stops at a document with label r with probability
    p = (2^r - 1) / 2^max_label. With R[k] the expected p at rank k, the gain is
    sum_k (R[k]/k) prod_(i<k) (1 - R[i]).

    Parameters
    ----------
    k : int, optional
        Number of ranks that count. By default all ranks count.
    max_label : float, optional
        Highest grade there is, called `max_grade` in the metric and in the text form. By default the largest
        label of the documents that are evaluated together; a ranker takes the largest of its training labels.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([300, 200, 100], [0, 2, 1], gain=ERR(max_label=2)).value, 4)  # 3/8 + 1/48
    0.3958
    """

    k: int | None = None
    max_label: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_cutoff(self)
        if self.max_label is not None:
            object.__setattr__(self, "max_label", as_number("ERR: max_label", self.max_label))

    def __str__(self) -> str:
        options = [] if self.max_label is None else [f"max_grade={digits(self.max_label)}"]
        return text_form("err", options, self.k)

    @property
    def unfitted(self) -> bool:
        return self.max_label is None

    def fitted(self, labels: Floats) -> Gain:
        if self.max_label is not None:
            return self
        return replace(self, max_label=float(label_column(self, labels).max()))

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        r = label_column(self, labels)
        largest = float(r.max()) if len(r) else 0.0
        highest = largest if self.max_label is None else self.max_label
        if largest > highest:
            row = int(np.argmax(r > highest))
            raise ValueError(
                f"labels[{row}] = {float(r[row])!r}: {self} cannot take it. Set max_label to the highest "
                "grade there is."
            )
        # (2^r - 1) / 2^highest as a difference of two powers, so that a grade near 1000 does not overflow
        a = _weighted((np.exp2(r - highest) - np.exp2(-highest))[None], weights)
        return [Term("cascade", _probabilities(self, a), _discounts("reciprocal", self.k, groups.longest))]


@final
@dataclass(frozen=True)
class Recall(_Binary):
    """Recall at k: the fraction of a query's relevant documents that are among the first k.

    It is rank-linear, so that its expected value is exact. A query without a relevant document has the value
    0.

    Parameters
    ----------
    k : int
        Number of ranks that count.
    threshold : float, default 1.0
        Least label of a relevant document.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([300, 200, 100], [1, 0, 1], gain=Recall(2)).value, 4)
    0.5
    """

    k: int
    threshold: float = field(default=1.0, kw_only=True)

    def __str__(self) -> str:
        return text_form("recall", self._options(), self.k)

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        d = _discounts("constant", self.k, groups.longest)
        return [Term("linear", self._relevant(labels, weights), d, norm="count")]


@final
@dataclass(frozen=True)
class FMeasure(_Binary):
    """F-measure at k, the weighted harmonic mean of precision at k and recall at k.

    With h relevant documents among the first k and m in all, it is (1 + beta^2) h / (k + beta^2 m). It is
    rank-linear, so that its expected value is exact.

    Parameters
    ----------
    k : int
        Number of ranks that count.
    beta : float, default 1.0
        Weight of recall: above 1 recall counts more, below 1 precision does.
    threshold : float, default 1.0
        Least label of a relevant document.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> round(expected_gain([300, 200, 100], [1, 0, 1], gain=FMeasure(1)).value, 4)  # 2 * 1 / (1 + 2)
    0.6667
    """

    k: int
    beta: float = field(default=1.0, kw_only=True)
    threshold: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        beta = as_number("FMeasure: beta", self.beta)
        if not 0 <= beta <= 1e100:
            raise ValueError(f"FMeasure: beta must be from 0 to 1e100; got {beta!r}.")
        object.__setattr__(self, "beta", beta)

    def __str__(self) -> str:
        beta = [] if self.beta == 1 else [f"beta={digits(self.beta)}"]
        return text_form("f", [*beta, *self._options()], self.k)

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        d, b = _discounts("constant", self.k, groups.longest), self.beta**2
        constants = (self.k / (1 + b), b / (1 + b))
        return [Term("linear", self._relevant(labels, weights), d, norm="count", constants=constants)]


class _Diversity(Gain):
    """Base of the gains of diversity: every label column is an intent."""

    k: int | None
    alpha: float
    threshold: float

    def __post_init__(self) -> None:
        _check_cutoff(self)
        for name in ("alpha", "threshold"):
            object.__setattr__(self, name, as_number(f"{_name(self)}: {name}", getattr(self, name)))
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"{_name(self)}: alpha must be from 0 to 1; got {self.alpha!r}.")

    def _text(self, name: str) -> str:
        defaults = {"alpha": 0.5, "threshold": 1.0}
        options = [f"{o}={digits(getattr(self, o))}" for o, x in defaults.items() if getattr(self, o) != x]
        return text_form(name, options, self.k)

    def relevance(self, labels: Floats) -> Floats:
        """Number of intents for which each document is relevant.

        Parameters
        ----------
        labels : array of shape (N,) or (N, I)
            Labels of the documents, one column per intent.

        Returns
        -------
        array of shape (N,)
            Number of labels that reach the threshold.
        """
        relevant = labels >= self.threshold
        counts: Floats = (relevant if relevant.ndim == 1 else relevant.sum(axis=1)).astype(np.float64)
        return counts

    def _intents(self, labels: Floats, weights: Floats | None) -> Floats:
        """(I, N) 1 for a document that is relevant for the intent and 0 for another, times its weight."""
        a = (np.atleast_2d(labels.T) >= self.threshold).astype(np.float64)
        return _probabilities(self, _weighted(a, weights))


@final
@dataclass(frozen=True)
class AlphaNDCG(_Diversity):
    """Alpha-NDCG, which rewards results for different intents of a query (Clarke et al. 2008).

    The labels have one column per intent. With R_i[k] the expected relevance at rank k for intent i, it is
    sum_k (1/log2(k + 1)) sum_i R_i[k] prod_(l<k) (1 - alpha R_i[l]), divided by the value of the ranking
    that is built greedily from the top, as the evaluation tools do.

    Parameters
    ----------
    k : int, optional
        Number of ranks that count. By default all ranks count.
    alpha : float, default 0.5
        Share of a document's gain that is lost with each document above it for the same intent, from 0 to 1.
    threshold : float, default 1.0
        Least label of a document that is relevant for an intent.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> intents = [[1, 0], [1, 0], [0, 1]]
    >>> round(expected_gain([300, 200, 100], intents, gain=AlphaNDCG(2)).value, 4)  # 1.3155 / 1.6309
    0.8066
    """

    k: int | None = None
    alpha: float = 0.5
    threshold: float = field(default=1.0, kw_only=True)

    def __str__(self) -> str:
        return self._text("alphandcg")

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        a, d = self._intents(labels, weights), _discounts("log2", self.k, groups.longest)
        return [Term("cascade", a, d, norm="greedy", alpha=self.alpha)]


@final
@dataclass(frozen=True)
class ERRIA(_Diversity):
    """Intent-aware expected reciprocal rank, ERR-IA (Chapelle et al. 2011), as ndeval computes it.

    The labels have one column per intent. With R_i[k] the expected relevance at rank k for intent i, it is
    sum_k (1/k) sum_i R_i[k] prod_(l<k) (1 - alpha R_i[l]), divided by its value if all documents were
    relevant for all intents of the query. An intent for which no document is relevant does not count.

    Parameters
    ----------
    k : int
        Number of ranks that count.
    alpha : float, default 0.5
        Probability that a reader stops at a document that is relevant for the reader's intent, from 0 to 1.
    threshold : float, default 1.0
        Least label of a document that is relevant for an intent.

    Examples
    --------
    >>> from sinkprop import expected_gain
    >>> intents = [[1, 0], [1, 0], [0, 1]]
    >>> round(expected_gain([300, 200, 100], intents, gain=ERRIA(2)).value, 4)  # (1 + 0.5 / 2) / (2 * 1.25)
    0.5
    """

    k: int
    alpha: float = 0.5
    threshold: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > _MOST_TERMS:
            raise ValueError(
                f"ERRIA: k must be at most {_MOST_TERMS}, because the divisor has k terms; got {self.k}."
            )

    def __str__(self) -> str:
        return self._text("erria")

    def terms(self, labels: Floats, groups: Groups, weights: Floats | None) -> list[Term]:
        a, d = self._intents(labels, weights), _discounts("reciprocal", self.k, groups.longest)
        ranks = np.arange(self.k)
        most = float(((1 - self.alpha) ** ranks / (ranks + 1)).sum())
        return [Term("cascade", a, d, norm="intents", alpha=self.alpha, constants=(most, 1.0))]


_MOST_TERMS = 1_000_000  # largest cutoff of ERR-IA


def _name(gain: Gain) -> str:
    return type(gain).__name__


def _check_cutoff(gain: ERR | _Binary | _Diversity) -> None:
    if gain.k is not None or isinstance(gain, Recall | FMeasure | ERRIA):
        object.__setattr__(gain, "k", as_cutoff(_name(gain), gain.k))


def _weighted(attributes: Floats, weights: Floats | None) -> Floats:
    return attributes if weights is None else attributes * weights


def _probabilities(gain: Gain, attributes: Floats) -> Floats:
    """Return the attributes; raise a ValueError if one is above 1, which only a row weight can cause."""
    if attributes.size and attributes.max() > 1:
        raise ValueError(
            f"sample_weight: {gain} takes weights that leave its probabilities at most 1; one is "
            f"{float(attributes.max()):g}. Use a gain that is linear in the labels, such as 'ndcg'."
        )
    return attributes


@lru_cache(maxsize=32)
def _discounts(kind: Literal["reciprocal", "constant", "log2"], k: int | None, n: int) -> Floats:
    """(1, n) discount of each rank: 1/rank, 1 or 1/log2(rank + 1); 0 after rank k."""
    ranks = np.arange(1, n + 1, dtype=np.float64)
    below = {"reciprocal": ranks, "constant": np.ones(n), "log2": np.log2(ranks + 1)}[kind]
    D: Floats = (1 / below)[None]
    if k is not None:
        D[:, k:] = 0
    D.flags.writeable = False
    return D
