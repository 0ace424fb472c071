"""Metrics: NDCG, precision, MAP and the others, and the parser of their names, such as "ndcg@10".

A metric gives one value per query; a `Convention` settles the choices that its definition leaves open.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, cast, final

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.arguments import one_of
from sinkprop.common.text_forms import (
    FORM,
    as_cutoff,
    as_number,
    digits,
    only,
    options_of,
    read_number,
    text_form,
    unknown_form,
)
from sinkprop.common.types import Floats, Mask
from sinkprop.metrics.conventions import CHOICES, Convention, Discount, LabelGain
from sinkprop.metrics.ranked_labels import Cutoffs, Ranked
from sinkprop.objective.gains import NDCG, RBP

__all__ = ["FORMS", "Metric", "parse_metric", "parse_metrics"]


FORMS = (
    "ndcg, ndcg@10, dcg@10, meanndcg, p@5, recall@10, f@10, hit@10, map, map@10, mrr, mrr@10, err, err@10, "
    "rbp@0.8, alphandcg, alphandcg@10, erria, erria@10, with options such as "
    "ndcg(discount=log2,gain=linear)@10, p(threshold=2)@5, err(max_grade=4)@10, alphandcg(alpha=0.4)@10"
)


class Metric(ABC):
    """A metric of rankings; larger is better.

    `parse_metric` makes a metric from its name, and `str` gives the name, without the options that have their
    default values. An option that is None takes the value of the convention.

    Examples
    --------
    >>> str(parse_metric("precision@5"))
    'p@5'
    """

    kind: ClassVar[str]
    # whether a query without a relevant document gets 1 under a convention with `empty=1`; if not, it gets 0
    full_marks: ClassVar[bool]
    k: int | None

    def __str__(self) -> str:
        options = [f for f in fields(self) if f.kw_only]  # type: ignore[arg-type]
        given = {f.name: getattr(self, f.name) for f in options if getattr(self, f.name) != f.default}
        texts = [f"{name}={x if isinstance(x, str) else digits(x)}" for name, x in given.items()]
        return text_form(self.kind, texts, self._after_at())

    def _after_at(self) -> object:
        return self.k

    @classmethod
    def _options(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.kw_only]  # type: ignore[arg-type]

    def family(self) -> tuple[object, ...]:
        """Key that is equal for metrics that differ only in the cutoff.

        Returns
        -------
        tuple
            The type of the metric and all its options except the cutoff.
        """
        return type(self), *(getattr(self, f.name) for f in fields(self) if f.name != "k")  # type: ignore[arg-type]

    def check_convention(self, convention: Convention) -> None:  # noqa: B027
        """Raise a ValueError if the metric cannot be computed under the convention.

        Parameters
        ----------
        convention : Convention
            Choices that the metric leaves open.
        """

    def empty(self, ranked: Ranked, convention: Convention) -> Mask:
        """Mask of the queries without a relevant document.

        Parameters
        ----------
        ranked : Ranked
            Labels in rank order.
        convention : Convention
            Choices that the metric leaves open.

        Returns
        -------
        array of bool of shape (Q,)
            Whether each query has no relevant document.
        """
        empty: Mask = ranked.count(self.positive(ranked, convention)) == 0
        return empty

    @abstractmethod
    def positive(self, ranked: Ranked, convention: Convention) -> Mask:
        """Mask of the labels that count as relevant.

        Parameters
        ----------
        ranked : Ranked
            Labels in rank order; `ranked.values` are the V distinct labels.
        convention : Convention
            Choices that the metric leaves open.

        Returns
        -------
        array of bool of shape (V,)
            Whether each of `ranked.values` is relevant.
        """

    @abstractmethod
    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        """Values of the metric per query, at several cutoffs.

        Parameters
        ----------
        ranked : Ranked
            Labels in rank order.
        convention : Convention
            Choices that the metric leaves open.
        cutoffs : sequence of int or None
            Cutoffs; None is the whole ranking.

        Returns
        -------
        list of arrays of shape (Q,)
            For each cutoff, one value per query; 0 for a query without a relevant document.
        """


class _Discounted(Metric):
    """Base of the metrics that use DCG, sum_k G(r_k) D(k).

    r_k is the label at rank k, G the gain of a label, and D the discount of a rank.
    """

    discount: Discount | None
    gain: LabelGain | None

    def __post_init__(self) -> None:
        _check_cutoff(self)
        for name in ("discount", "gain"):
            if getattr(self, name) is not None:
                one_of(f"{self.kind}: {name}", getattr(self, name), CHOICES[name])

    def _tables(self, ranked: Ranked, convention: Convention) -> tuple[Floats, Floats]:
        """Gain G of each distinct label, and discount D of each rank of the longest query."""
        form = NDCG(discount=self.discount or convention.discount, gain=self.gain or convention.gain)
        if ranked.values[-1] > _SURE_LABEL:
            form.gains(ranked.labels)  # raises an error that names the row of a label that is too large
        return form.gains(ranked.values), form.discounts(ranked.longest)

    def positive(self, ranked: Ranked, convention: Convention) -> Mask:
        return self._tables(ranked, convention)[0] > 0

    def _dcg(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        G, D = self._tables(ranked, convention)
        sums = ranked.sums(ranked.by_rank(G), D, cutoffs)
        if convention.short_ndcg == "present":
            return sums
        return [ranked.without_short(dcg, k) for dcg, k in zip(sums, cutoffs, strict=True)]


_SURE_LABEL = 900.0  # 2^r may overflow for a larger label r


@final
@dataclass(frozen=True)
class NormalizedDCG(_Discounted):
    """DCG of the first k ranks divided by that of the best ranking (Jarvelin and Kekalainen 2002)."""

    kind = "ndcg"
    full_marks = True
    k: int | None = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: LabelGain | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        G, D = self._tables(ranked, convention)
        ideals = ranked.sums(G[ranked.ideal], D, cutoffs)
        return [_ratio(*pair) for pair in zip(self._dcg(ranked, convention, cutoffs), ideals, strict=True)]


@final
@dataclass(frozen=True)
class DCG(_Discounted):
    """Discounted cumulative gain of the first k ranks."""

    kind = "dcg"
    full_marks = False
    k: int | None = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: LabelGain | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        return self._dcg(ranked, convention, cutoffs)


@final
@dataclass(frozen=True)
class MeanNDCG(_Discounted):
    """Mean of NDCG@1, ..., NDCG@n for a query of n documents: LETOR 4.0's MeanNDCG."""

    kind = "meanndcg"
    full_marks = True
    k = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: LabelGain | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        G, D = self._tables(ranked, convention)
        weights = D[ranked.ranks - 1]
        dcg = ranked.running(np.add, ranked.by_rank(G) * weights)
        ideal = ranked.running(np.add, G[ranked.ideal] * weights)
        return [total / ranked.sizes for total in ranked.sums(_ratio(dcg, ideal), None, cutoffs)]


class _Binary(Metric):
    """Base of the metrics that only distinguish relevant and irrelevant documents."""

    threshold: float | None

    def __post_init__(self) -> None:
        _check_cutoff(self)
        _as_number(self, "threshold")

    def positive(self, ranked: Ranked, convention: Convention) -> Mask:
        relevant: Mask = ranked.values >= (convention.threshold if self.threshold is None else self.threshold)
        return relevant

    def _hits(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        """Number of relevant documents among the first k ranks, (Q,) for each cutoff k.

        If ties are averaged, this is the expected number.
        """
        relevance = self.positive(ranked, convention).astype(np.float64)
        return ranked.sums(ranked.by_rank(relevance), None, cutoffs)


@final
@dataclass(frozen=True)
class PrecisionAt(_Binary):
    """Fraction of the first k ranks that hold relevant documents."""

    kind = "p"
    full_marks = False
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        values = []
        for hits, k in zip(self._hits(ranked, convention, cutoffs), cast("list[int]", cutoffs), strict=True):
            if convention.short_p == "documents":
                values.append(hits / ranked.first(k))
            else:
                values.append(
                    (hits if convention.short_p == "k" else ranked.without_short(hits, k)) / float(k)
                )
        return values


@final
@dataclass(frozen=True)
class RecallAt(_Binary):
    """Fraction of a query's relevant documents that are among the first k."""

    kind = "recall"
    full_marks = True
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        relevant = ranked.count(self.positive(ranked, convention))
        return [_ratio(hits, relevant) for hits in self._hits(ranked, convention, cutoffs)]


@final
@dataclass(frozen=True)
class FMeasureAt(_Binary):
    """F-measure of the first k ranks, the weighted harmonic mean of precision at k and recall at k.

    With h relevant documents among the first k and m in all, it is (1 + beta^2) h / (k + beta^2 m), for short
    queries too.
    """

    kind = "f"
    full_marks = True
    k: int
    beta: float = field(default=1.0, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _as_number(self, "beta")
        if self.beta < 0:
            raise ValueError(f"{self.kind}: beta must be at least 0; got {digits(self.beta)}.")

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        relevant, b = ranked.count(self.positive(ranked, convention)), self.beta**2
        hits = self._hits(ranked, convention, cutoffs)
        return [
            (1 + b) * h / (k + b * relevant) for h, k in zip(hits, cast("list[int]", cutoffs), strict=True)
        ]


@final
@dataclass(frozen=True)
class HitAt(_Binary):
    """1 if a relevant document is among the first k, else 0; if ties are averaged, the probability of 1."""

    kind = "hit"
    full_marks = True
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        first = ranked.first_relevant(self.positive(ranked, convention), cutoffs)
        return [np.minimum(hit, 1.0) for hit in ranked.sums(first, None, cutoffs)]


@final
@dataclass(frozen=True)
class AveragePrecision(_Binary):
    """Mean over the relevant documents of the precision at their ranks; its mean over the queries is MAP.

    The precision at a rank is the share of relevant ones among the documents up to it. A relevant document
    that is not among the first k counts 0. If the convention has `map_at="reachable"`, the sum of the
    precisions is divided by k if there are more than k relevant documents.

    If ties are averaged (McSherry and Najork 2008), consider n documents with equal scores, r of them
    relevant, that follow c relevant documents. The i-th of the n is relevant with probability r/n. If it is,
    the expected number of relevant documents up to and including it is c + 1 + (i - 1)(r - 1)/(n - 1).
    """

    kind = "map"
    full_marks = True
    k: int | None = None
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        positive = self.positive(ranked, convention)
        relevant = ranked.count(positive)
        found = positive[ranked.codes].astype(np.int64)
        above = np.cumsum(found)
        above -= np.repeat(above[ranked.starts] - found[ranked.starts], ranked.sizes)
        b = ranked.blocks
        if b is None:
            terms = found * above / ranked.ranks
        else:
            r, before = np.add.reduceat(found, b.starts), above[b.starts] - found[b.starts]
            among = b.places * b.spread((r - 1) / np.maximum(b.sizes - 1, 1))
            terms = b.spread(r / b.sizes) * (b.spread(before) + 1 + among) / ranked.ranks
        values = []
        for total, k in zip(ranked.sums(terms, None, cutoffs), cutoffs, strict=True):
            reachable = convention.map_at == "reachable"
            values.append(_ratio(total, np.minimum(relevant, ranked.first(k)) if reachable else relevant))
        return values


@final
@dataclass(frozen=True)
class ReciprocalRank(_Binary):
    """1 / rank of the first relevant document, 0 if it is not among the first k; its mean is MRR."""

    kind = "mrr"
    full_marks = True
    k: int | None = None
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        first = ranked.first_relevant(self.positive(ranked, convention), cutoffs)
        return ranked.sums(first / ranked.ranks, None, cutoffs)


@final
@dataclass(frozen=True)
class ExpectedReciprocalRank(Metric):
    """Expected value of 1 / rank for the rank at which a reader stops (Chapelle et al. 2009).

    The reader goes down the list and stops at a document of label r with probability
    (2^r - 1) / 2^max_grade. A reader who does not stop within the first k ranks counts 0.
    """

    kind = "err"
    full_marks = False
    k: int | None = None
    max_grade: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_cutoff(self)
        _as_number(self, "max_grade")

    def positive(self, ranked: Ranked, convention: Convention) -> Mask:
        positive: Mask = ranked.values > 0
        return positive

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        highest = self.highest(ranked.labels, convention)
        # (2^r - 1) / 2^highest as a difference of two powers, so that a grade near 1000 does not overflow
        stops = ranked.average_cascade(np.exp2(ranked.values - highest) - np.exp2(-highest), cutoffs)
        return ranked.sums(stops / ranked.ranks, None, cutoffs)

    def highest(self, labels: Floats, convention: Convention) -> float:
        """Return max_grade of the metric if set, else that of the convention if set, else the largest label.

        Raises a ValueError if a label is above a max_grade that is set.
        """
        highest = convention.max_grade if self.max_grade is None else self.max_grade
        largest = float(labels.max())
        if highest is not None and largest > highest:
            row = int(np.argmax(labels > highest))
            raise ValueError(
                f"max_grade must be the highest grade there is; got {digits(highest)}, but "
                f"labels[{row}] = {float(labels[row])!r}."
            )
        return largest if highest is None else highest


@final
@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """Rank-biased precision, (1 - p) sum_k r_k p^(k-1) over all ranks k (Moffat and Zobel 2008).

    r_k is the label at rank k, and p is the probability that a reader continues from one document to the
    next. The labels themselves are summed, as in the gain `RBP`, so that graded labels can give more than 1.
    With a threshold, each label that reaches it counts 1, and any other 0.
    """

    kind = "rbp"
    full_marks = False
    k = None
    p: float = 0.8
    threshold: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", RBP(self.p).p)
        _as_number(self, "threshold")

    def _after_at(self) -> object:
        return digits(self.p)

    def _utilities(self, ranked: Ranked) -> Floats:
        if self.threshold is None:
            if ranked.values[-1] > _SURE_LABEL:
                RBP().gains(ranked.labels)
            return ranked.values
        return (ranked.values >= self.threshold).astype(np.float64)

    def positive(self, ranked: Ranked, convention: Convention) -> Mask:
        return self._utilities(ranked) > 0

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        D = RBP(self.p).discounts(ranked.longest)
        return ranked.sums(ranked.by_rank(self._utilities(ranked)), D, cutoffs)


class IntentAware(_Binary):
    """Base of the metrics of diversity, for labels (N, I) of documents and intents.

    A document is relevant to an intent if its label for it is at least the threshold. At rank k, it adds
    (1 - alpha)^c for each intent to which it is relevant, where c is the number of documents above rank k
    that are relevant to the intent too. Labels of shape (N,) are those of a single intent.
    """

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _as_number(self, "alpha")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"{self.kind}: alpha must be from 0 to 1; got {digits(self.alpha)}.")

    def check_convention(self, convention: Convention) -> None:
        if convention.ties != "file":
            raise ValueError(
                f"{self.kind}: ties must be 'file', the order of the rows, for the metrics of diversity; got "
                f"{convention.ties!r}. Pass ties='file', or use another metric."
            )

    def empty(self, ranked: Ranked, convention: Convention) -> Mask:
        from sinkprop.metrics.diversity import intents_present

        relevant = self._relevant(ranked, convention)[ranked.rows]
        empty: Mask = intents_present(relevant, ranked.sizes) == 0
        return empty

    def _relevant(self, ranked: Ranked, convention: Convention) -> Mask:
        """Whether each document is relevant to each intent, (N, I), in input order."""
        threshold = convention.threshold if self.threshold is None else self.threshold
        relevant: Mask = ranked.intents >= threshold
        return relevant

    def _gains(self, ranked: Ranked, relevant: Mask, cutoffs: Cutoffs) -> Floats:
        """Gain of each document, (N,), in rank order; 0 after the largest cutoff."""
        from sinkprop.metrics.diversity import novelty_gains

        counted = ranked.ranks <= ranked.depth(cutoffs)
        sizes = ranked.first(ranked.depth(cutoffs))
        gains = np.zeros(len(counted))
        gains[counted] = novelty_gains(relevant[ranked.rows[counted]], sizes, self.alpha)
        return gains


@final
@dataclass(frozen=True)
class AlphaNDCG(IntentAware):
    """Discounted gain of documents and intents, divided by that of the greedy ideal (Clarke et al. 2008).

    The gain of a document is the sum over its intents, each of which counts less with every document above
    that is relevant to it too. It is divided by log2(rank + 1) under every convention. The ideal ranking has
    at each rank the document with the largest gain, given those above; among equal ones, the document that
    comes first in the input. It consists of the documents of the query that are given: relevant documents
    that are not among them do not count, while TREC's program ndeval counts them. The greedy ranking is not
    always the best one, so the value can be a little above 1.
    """

    kind = "alphandcg"
    full_marks = True
    k: int | None = None
    alpha: float = field(default=0.5, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        from sinkprop.metrics.diversity import greedy_gains

        relevant = self._relevant(ranked, convention)
        in_input_order = relevant[ranked.rows_by_query]
        best = greedy_gains(in_input_order, ranked.sizes, self.alpha, ranked.depth(cutoffs))
        D = 1 / np.log2(np.arange(2, ranked.longest + 2))
        found = ranked.sums(self._gains(ranked, relevant, cutoffs), D, cutoffs)
        return [_ratio(*pair) for pair in zip(found, ranked.sums(best, D, cutoffs), strict=True)]


@final
@dataclass(frozen=True)
class IntentAwareERR(IntentAware):
    """Expected reciprocal rank of intents: "ERR-IA@k" of TREC's program ndeval (Chapelle et al. 2011).

    The gain of a document, the same as for `AlphaNDCG`, is divided by its rank. The sum is divided by that of
    a ranking whose documents are all relevant to all intents, I sum_(j<=k) (1 - alpha)^(j-1) / j, where I is
    the number of intents that have a relevant document among those of the query that are given. The divisor
    has k terms also for a query with fewer than k documents; without a cutoff, it has one term per document
    of the query. The program ndeval, unlike this class, does not divide at the cutoff 1.
    """

    kind = "erria"
    full_marks = False
    k: int | None = None
    alpha: float = field(default=0.5, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k > _MOST_TERMS:
            raise ValueError(
                f"{self.kind}: k must be at most {_MOST_TERMS}, because the divisor has k terms for short "
                f"queries too; got {self.k}. For the whole ranking, leave out the cutoff."
            )

    def values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        from sinkprop.metrics.diversity import intents_present

        relevant = self._relevant(ranked, convention)
        n_intents = intents_present(relevant[ranked.rows], ranked.sizes)
        ranks = np.arange(1, max(ranked.longest, *(k or 1 for k in cutoffs)) + 1)
        most = np.cumsum(np.power(1 - self.alpha, ranks - 1) / ranks)
        found = ranked.sums(self._gains(ranked, relevant, cutoffs), 1 / ranks, cutoffs)
        return [
            _ratio(total, n_intents * (most[ranked.sizes - 1] if k is None else most[k - 1]))
            for total, k in zip(found, cutoffs, strict=True)
        ]


_MOST_TERMS = 1_000_000  # largest cutoff of ERR-IA

_METRICS: dict[str, type[Metric]] = {
    "ndcg": NormalizedDCG,
    "dcg": DCG,
    "meanndcg": MeanNDCG,
    "p": PrecisionAt,
    "precision": PrecisionAt,
    "recall": RecallAt,
    "f": FMeasureAt,
    "hit": HitAt,
    "map": AveragePrecision,
    "ap": AveragePrecision,
    "mrr": ReciprocalRank,
    "rr": ReciprocalRank,
    "err": ExpectedReciprocalRank,
    "rbp": RankBiasedPrecision,
    "alphandcg": AlphaNDCG,
    "alpha-ndcg": AlphaNDCG,
    "alpha_ndcg": AlphaNDCG,
    "erria": IntentAwareERR,
    "err-ia": IntentAwareERR,
    "err_ia": IntentAwareERR,
}


def _check_cutoff(metric: Metric) -> None:
    if any(f.name == "k" for f in fields(metric)) and metric.k is not None:  # type: ignore[arg-type]
        object.__setattr__(metric, "k", as_cutoff(metric.kind, metric.k))


def _as_number(metric: Metric, name: str) -> None:
    if getattr(metric, name) is not None:
        object.__setattr__(metric, name, as_number(f"{metric.kind}: {name}", getattr(metric, name)))


@lru_cache(maxsize=1024)
def parse_metric(text: str) -> Metric:
    """Parse the name of a metric: the inverse of `str`.

    Every text form of a gain is also the name of a metric.

    Parameters
    ----------
    text : str
        Name such as "ndcg@10"; case does not matter. Options in parentheses before the cutoff take precedence
        over the convention.

    Returns
    -------
    Metric
        The metric.

    Raises
    ------
    ValueError
        If there is no such metric, or an option is invalid.

    Examples
    --------
    >>> parse_metric("NDCG(discount=log2)@10")
    NormalizedDCG(k=10, discount='log2', gain=None)
    >>> str(parse_metric("map")), str(parse_metric("RBP @ .90"))
    ('map', 'rbp@0.9')
    """
    match = FORM.fullmatch(text.lower())
    if match is None or match["name"] not in _METRICS:
        unknown_form("metric", text, _METRICS, FORMS)
    try:
        return _read(_METRICS[match["name"]], match["options"], match["cutoff"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {text!r}: {error} The forms are {FORMS}.") from None


def _read(metric: type[Metric], options_text: str | None, at: str | None) -> Metric:
    options: dict[str, Any] = options_of(options_text)
    only(options, tuple(metric._options()))
    for name in ("threshold", "max_grade", "alpha", "beta"):
        if name in options:
            options[name] = read_number(float, name, options[name])
    positional = {f.name for f in fields(metric) if not f.kw_only}  # type: ignore[arg-type]
    if at is None:
        if metric in (PrecisionAt, RecallAt, FMeasureAt, HitAt):
            raise ValueError(f"{metric.kind} needs a cutoff, such as {metric.kind}@5.")
    elif "p" in positional:
        options["p"] = read_number(float, "the persistence after @", at)
    elif "k" in positional:
        if _RANGE.fullmatch(at):
            raise ValueError("a range of cutoffs is several metrics, for parse_metrics.")
        options["k"] = read_number(int, "the cutoff after @", at)
    else:
        raise ValueError(f"{metric.kind} takes no cutoff.")
    return metric(**options)


_RANGE = re.compile(r"(\d+)-(\d+)")
_LONGEST_RANGE = 10_000


def parse_metrics(metrics: str | Metric | Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Parse one or several metrics.

    Parameters
    ----------
    metrics : str, Metric or iterable of these
        Metrics or their names. A text may hold several names, separated by commas, and ranges of cutoffs such
        as "ndcg@1-10".

    Returns
    -------
    tuple of Metric
        The metrics, without repetitions.

    Examples
    --------
    >>> [str(metric) for metric in parse_metrics("ndcg@1-3,map,p@5")]
    ['ndcg@1', 'ndcg@2', 'ndcg@3', 'map', 'p@5']
    """
    found: dict[Metric, None] = {}
    for item in [metrics] if isinstance(metrics, str | Metric) else metrics:
        if isinstance(item, Metric):
            found[item] = None
        elif isinstance(item, str):
            for text in re.split(r",(?![^(]*\))", item):
                found.update(dict.fromkeys(_parse_range(text)))
        else:
            raise TypeError(f"metrics must be names such as 'ndcg@10', or Metric values; got {item!r}.")
    if not found:
        raise ValueError(f"metrics must name at least one metric; got none. The forms are {FORMS}.")
    return tuple(found)


def _parse_range(text: str) -> list[Metric]:
    name, _, at = text.rpartition("@")
    match = _RANGE.fullmatch("".join(at.split()))
    if match is None:
        return [parse_metric(text)]
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last < first + _LONGEST_RANGE:
        raise ValueError(
            f"metric {text!r}: a range of cutoffs rises from 1 or more, by less than {_LONGEST_RANGE}, such "
            f"as ndcg@1-10; got {first} to {last}."
        )
    return [parse_metric(f"{name}@{k}") for k in range(first, last + 1)]


def _ratio(values: Floats, whole: NDArray[Any]) -> Floats:
    """Return values / whole, or 0 where `whole`, the upper limit of the value, is 0."""
    ratio: Floats = values / (whole + (whole == 0))
    return ratio
