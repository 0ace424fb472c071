"""Evaluation of rankings, with its convention stated.

Two programs that both print "NDCG@10" may print different numbers: they differ in the gain of a label, the
discount of a rank, and in what short queries, queries without a relevant document and tied scores count. So a
metric is a value with a name, and a `Convention` says the rest:

>>> labels, scores, qid = [2, 0, 1, 0, 0], [0.9, 0.5, 0.1, 0.3, 0.2], ["a", "a", "a", "b", "b"]
>>> result = evaluate(labels, scores, qid, ("ndcg@2", "map"))
>>> result
{'ndcg@2': 0.375, 'map': 0.41666666666666663}
>>> result.per_query["ndcg@2"]
array([0.75, 0.  ])
>>> for clause in result.describe().split("; "):
...     print(clause)
letor: gain 2^r - 1, discount 1 at ranks 1 and 2 and 1/log2(rank) after
a query of fewer than k documents adds 0 to NDCG@k, DCG@k and P@k
a query without a relevant document counts 0
tied scores in file order
relevant is a label >= 1
mean over 2 queries.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop import gains
from sinkprop.conventions import (
    CHOICES,
    CONVENTIONS,
    Convention,
    Discount,
    Empty,
    LabelGain,
    as_convention,
    listed,
)
from sinkprop.data import as_labels, group_rows
from sinkprop.ranked import Cutoffs, Ranked, Ranking, Ties, as_one_score_a_row, ranking

__all__ = [
    "CONVENTIONS",
    "Convention",
    "Evaluation",
    "Metric",
    "Ranking",
    "as_convention",
    "evaluate",
    "parse_metric",
    "parse_metrics",
    "ranking",
]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FORMS = (
    "ndcg, ndcg@10, dcg@10, meanndcg, p@5, recall@10, hit@10, map, map@10, mrr, mrr@10, err, err@10, "
    "rbp@0.8, with options such as ndcg(discount=log2,gain=linear)@10, p(threshold=2)@5, err(max_grade=4)@10"
)


class Metric(ABC):
    """A metric of rankings, as a value; larger is better. `str` gives its name, `parse_metric` reads it.

    An option that is None is the convention's.

    >>> str(parse_metric("precision@5"))
    'p@5'
    """

    kind: ClassVar[str]
    full_marks: ClassVar[bool]  # whether `empty=1` gives it 1, or its own value of such a query, 0
    k: int | None

    def __str__(self) -> str:
        given = {name: getattr(self, name) for name in self._options() if getattr(self, name) is not None}
        texts = [f"{name}={x if isinstance(x, str) else gains._digits(x)}" for name, x in given.items()]
        return gains._text(self.kind, texts, self._after_at())

    def _after_at(self) -> object:
        return self.k

    @classmethod
    def _options(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.kw_only]  # type: ignore[arg-type]

    def _family(self) -> tuple[object, ...]:
        """Equal for metrics that differ in nothing but the cutoff."""
        return type(self), *(getattr(self, f.name) for f in fields(self) if f.name != "k")  # type: ignore[arg-type]

    @abstractmethod
    def _positive(self, ranked: Ranked, convention: Convention) -> Mask:
        """Which of ranked.values are labels of relevant documents."""

    @abstractmethod
    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        """The metric of each query, (Q,), at each cutoff; 0 where nothing is relevant."""


class _Discounted(Metric):
    """DCG, sum_k G(r) D(k), and what is made of it."""

    discount: Discount | None
    gain: LabelGain | None

    def __post_init__(self) -> None:
        _check_cutoff(self)
        for name in ("discount", "gain"):
            if getattr(self, name) is not None:
                gains._one_of(f"{self.kind}: {name}", getattr(self, name), CHOICES[name])

    def _tables(self, ranked: Ranked, convention: Convention) -> tuple[Floats, Floats]:
        """G of each distinct label, and D of the ranks of the longest query."""
        form = gains.NDCG(discount=self.discount or convention.discount, gain=self.gain or convention.gain)
        if ranked.values[-1] > _SURE_LABEL:  # an error then names the row, not an entry of the table
            form.gains(ranked.labels)
        return form.gains(ranked.values), form.discounts(ranked.longest)

    def _positive(self, ranked: Ranked, convention: Convention) -> Mask:
        return self._tables(ranked, convention)[0] > 0

    def _dcg(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        G, D = self._tables(ranked, convention)
        sums = ranked.sums(ranked.by_rank(G), D, cutoffs)
        if convention.short_ndcg == "present":
            return sums
        return [ranked.without_short(dcg, k) for dcg, k in zip(sums, cutoffs, strict=True)]


_SURE_LABEL = 900.0  # 2^r of larger ones may overflow


@final
@dataclass(frozen=True)
class NormalizedDCG(_Discounted):
    """DCG of the first k ranks over that of the best ranking (Jarvelin and Kekalainen 2002)."""

    kind = "ndcg"
    full_marks = True
    k: int | None = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: LabelGain | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
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

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        return self._dcg(ranked, convention, cutoffs)


@final
@dataclass(frozen=True)
class MeanNDCG(_Discounted):
    """The mean of NDCG@1, ..., NDCG@n over all n documents of a query: LETOR 4.0's MeanNDCG."""

    kind = "meanndcg"
    full_marks = True
    k = None
    discount: Discount | None = field(default=None, kw_only=True)
    gain: LabelGain | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        G, D = self._tables(ranked, convention)
        weights = D[ranked.ranks - 1]
        dcg = ranked.running(np.add, ranked.by_rank(G) * weights)
        ideal = ranked.running(np.add, G[ranked.ideal] * weights)
        return [total / ranked.sizes for total in ranked.sums(_ratio(dcg, ideal), None, cutoffs)]


class _Binary(Metric):
    """A metric that knows only relevant and irrelevant documents."""

    threshold: float | None

    def __post_init__(self) -> None:
        _check_cutoff(self)
        _as_number(self, "threshold")

    def _positive(self, ranked: Ranked, convention: Convention) -> Mask:
        relevant: Mask = ranked.values >= (convention.threshold if self.threshold is None else self.threshold)
        return relevant

    def _hits(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        """The number of relevant documents among the first k; expected, where ties are averaged."""
        relevance = self._positive(ranked, convention).astype(np.float64)
        return ranked.sums(ranked.by_rank(relevance), None, cutoffs)


@final
@dataclass(frozen=True)
class PrecisionAt(_Binary):
    """The share of the first k ranks that hold relevant documents."""

    kind = "p"
    full_marks = False
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
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
    """The share of a query's relevant documents that stand among the first k."""

    kind = "recall"
    full_marks = True
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        relevant = ranked.count(self._positive(ranked, convention))
        return [_ratio(hits, relevant) for hits in self._hits(ranked, convention, cutoffs)]


@final
@dataclass(frozen=True)
class HitAt(_Binary):
    """Whether a relevant document stands among the first k: 1 or 0; with averaged ties, how probably."""

    kind = "hit"
    full_marks = True
    k: int
    threshold: float | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        first = ranked.first_relevant(self._positive(ranked, convention), cutoffs)
        return [np.minimum(hit, 1.0) for hit in ranked.sums(first, None, cutoffs)]


@final
@dataclass(frozen=True)
class AveragePrecision(_Binary):
    """Precision at the ranks of the relevant documents among the first k, over their number; its mean is MAP.

    Averaged ties (McSherry and Najork 2008): place i of a block of n documents, r of them relevant, after c
    relevant ones, holds a relevant document with probability r/n, and then c + 1 + (i - 1)(r - 1)/(n - 1)
    stand down to it on average.
    """

    kind = "map"
    full_marks = True
    k: int | None = None
    threshold: float | None = field(default=None, kw_only=True)

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        positive = self._positive(ranked, convention)
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

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        first = ranked.first_relevant(self._positive(ranked, convention), cutoffs)
        return ranked.sums(first / ranked.ranks, None, cutoffs)


@final
@dataclass(frozen=True)
class ExpectedReciprocalRank(Metric):
    """1 / rank at which a reader stops among the first k, on average (Chapelle et al. 2009).

    The reader goes down and stops at a document of label r with probability (2^r - 1) / 2^max_grade.
    """

    kind = "err"
    full_marks = False
    k: int | None = None
    max_grade: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_cutoff(self)
        _as_number(self, "max_grade")

    def _positive(self, ranked: Ranked, convention: Convention) -> Mask:
        positive: Mask = ranked.values > 0
        return positive

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        highest = self._highest(ranked.labels, convention)
        # of powers of two, so that a grade near 1000 does not overflow
        stops = ranked.average_cascade(np.exp2(ranked.values - highest) - np.exp2(-highest), cutoffs)
        return ranked.sums(stops / ranked.ranks, None, cutoffs)

    def _highest(self, labels: Floats, convention: Convention) -> float:
        highest = convention.max_grade if self.max_grade is None else self.max_grade
        largest = float(labels.max())
        if highest is not None and largest > highest:
            row = int(np.argmax(labels > highest))
            raise ValueError(
                f"max_grade must be the highest grade there is; got {gains._digits(highest)}, but "
                f"labels[{row}] = {float(labels[row])!r}."
            )
        return largest if highest is None else highest


@final
@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """(1 - p) sum_k r p^(k-1) over the whole ranking (Moffat and Zobel 2008).

    The labels themselves are summed, as by the gain of this name, so that graded labels can give more than 1;
    with a threshold, 1 for each label that reaches it.
    """

    kind = "rbp"
    full_marks = False
    k = None
    p: float = 0.8
    threshold: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", gains.RBP(self.p).p)
        _as_number(self, "threshold")

    def _after_at(self) -> object:
        return gains._digits(self.p)

    def _utilities(self, ranked: Ranked) -> Floats:
        if self.threshold is None:
            if ranked.values[-1] > _SURE_LABEL:
                gains.RBP().gains(ranked.labels)
            return ranked.values
        return (ranked.values >= self.threshold).astype(np.float64)

    def _positive(self, ranked: Ranked, convention: Convention) -> Mask:
        return self._utilities(ranked) > 0

    def _values(self, ranked: Ranked, convention: Convention, cutoffs: Cutoffs) -> list[Floats]:
        D = gains.RBP(self.p).discounts(ranked.longest)
        return ranked.sums(ranked.by_rank(self._utilities(ranked)), D, cutoffs)


_METRICS: dict[str, type[Metric]] = {
    "ndcg": NormalizedDCG,
    "dcg": DCG,
    "meanndcg": MeanNDCG,
    "p": PrecisionAt,
    "precision": PrecisionAt,
    "recall": RecallAt,
    "hit": HitAt,
    "map": AveragePrecision,
    "ap": AveragePrecision,
    "mrr": ReciprocalRank,
    "rr": ReciprocalRank,
    "err": ExpectedReciprocalRank,
    "rbp": RankBiasedPrecision,
}


def _check_cutoff(metric: Metric) -> None:
    if any(f.name == "k" for f in fields(metric)) and metric.k is not None:  # type: ignore[arg-type]
        object.__setattr__(metric, "k", gains._cutoff(metric.kind, metric.k))


def _as_number(metric: Metric, name: str) -> None:
    if getattr(metric, name) is not None:
        object.__setattr__(metric, name, gains._number(f"{metric.kind}: {name}", getattr(metric, name)))


@lru_cache(maxsize=1024)
def parse_metric(text: str) -> Metric:
    """The metric with the given name, in either case: the inverse of `str`.

    Every text form of a gain is the name of a metric, too. Options in parentheses, before the cutoff, take
    precedence over the convention's.

    >>> parse_metric("NDCG(discount=log2)@10")
    NormalizedDCG(k=10, discount='log2', gain=None)
    >>> str(parse_metric("map")), str(parse_metric("RBP @ .90"))
    ('map', 'rbp@0.9')
    """
    match = gains._FORM.fullmatch(text.lower())
    if match is None or match["name"] not in _METRICS:
        _unknown_name(text)
    try:
        return _read(_METRICS[match["name"]], match["options"], match["cutoff"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {text!r}: {error} The forms are {FORMS}.") from None


def _read(metric: type[Metric], options_text: str | None, at: str | None) -> Metric:
    options: dict[str, Any] = gains._options(options_text)
    gains._only(options, tuple(metric._options()))
    for name in ("threshold", "max_grade"):
        if name in options:
            options[name] = gains._read_number(float, name, options[name])
    positional = {f.name for f in fields(metric) if not f.kw_only}  # type: ignore[arg-type]
    if at is None:
        if metric in (PrecisionAt, RecallAt, HitAt):
            raise ValueError(f"{metric.kind} needs a cutoff, such as {metric.kind}@5.")
    elif "p" in positional:
        options["p"] = gains._read_number(float, "the persistence after @", at)
    elif "k" in positional:
        if _RANGE.fullmatch(at):
            raise ValueError("a range of cutoffs is several metrics, for parse_metrics.")
        options["k"] = gains._read_number(int, "the cutoff after @", at)
    else:
        raise ValueError(f"{metric.kind} takes no cutoff.")
    return metric(**options)


_RANGE = re.compile(r"(\d+)-(\d+)")
_LONGEST_RANGE = 10_000


def parse_metrics(metrics: str | Metric | Iterable[str | Metric]) -> tuple[Metric, ...]:
    """Metrics from names, each once. A text may hold several, between commas, and ranges of cutoffs.

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


def _unknown_name(text: str) -> NoReturn:
    from difflib import get_close_matches

    name = re.split(r"[@(\d]", text.lower())[0].strip()
    number = re.search(r"\d+(\.\d+)?\s*$", text)
    close = get_close_matches(name, _METRICS, n=1, cutoff=0.6)
    hint = f" Did you mean {close[0] + ('@' + number[0].strip() if number else '')!r}?" if close else ""
    raise ValueError(f"metric {text!r} is not known.{hint} The forms are {FORMS}.")


class Evaluation(dict[str, float]):
    """The mean of each metric over the queries, {name: mean}: a plain mapping, with what it was made from.

    queries     (Q,) query ids, by first appearance
    per_query   {name: (Q,) values}, NaN where a query is left out of the mean
    metrics     the metrics, as they were asked for
    convention  the `Convention`, with the options of the call in it
    n_queries   Q, those left out included

    Another spelling of a name, such as "NDCG@10", finds it as well.
    """

    queries: NDArray[Any]
    per_query: dict[str, Floats]
    metrics: tuple[Metric, ...]
    convention: Convention
    n_queries: int

    def __init__(
        self,
        means: Mapping[str, float],
        *,
        queries: NDArray[Any],
        per_query: dict[str, Floats],
        metrics: tuple[Metric, ...],
        convention: Convention,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(means)
        self.queries, self.per_query, self.metrics = queries, per_query, metrics
        self.convention, self.n_queries = convention, len(queries)
        self._notes = tuple(notes)

    def __missing__(self, name: str) -> float:
        try:
            other = str(parse_metric(name))
        except (AttributeError, TypeError, ValueError):
            other = ""
        if other in self:
            return self[other]
        raise KeyError(f"{name!r} was not evaluated; there is {listed(self)}")

    def describe(self) -> str:
        """What the numbers rest on, in one sentence, to be printed with every table."""
        plain = dict.fromkeys(metric.kind.upper() for metric in self.metrics if not metric.full_marks)
        note = f", but 0 in {listed(plain)}" if plain and self.convention.empty == 1 else ""
        clauses = [*self.convention._clauses(note), *self._notes]
        return f"{self.convention._title()}: {'; '.join(clauses)}."


def evaluate(
    labels: ArrayLike,
    scores: ArrayLike,
    qid: ArrayLike | Sequence[Hashable],
    metrics: str | Metric | Iterable[str | Metric] = ("ndcg@10",),
    convention: str | Convention = "letor",
    *,
    empty: Empty | None = None,
    ties: Ties | None = None,
    threshold: float | None = None,
    max_grade: float | None = None,
    query_weight: ArrayLike | None = None,
) -> Evaluation:
    """Metrics of the ranking of each query's documents by decreasing score, and their means over the queries.

    labels        (N,) relevance, not below 0
    scores        (N,) finite; larger is better
    qid           (N,) the query of each row, any hashable ids in any order; for one query, equal ids
    metrics       names such as "ndcg@10" or "ndcg@1-10,map", or `Metric` values
    convention    a `Convention`, or the name of one: "letor", "letor4", "mslr", "standard", "lightgbm",
                  "xgboost", "sklearn", "trec"
    empty, ties, threshold, max_grade
                  in place of the convention's; `Convention` says what they mean
    query_weight  (Q,) weights in the means, not below 0, in the order in which the queries first appear

    Returns an `Evaluation`: the mapping {name: mean}, with `per_query`, `queries` and `describe()`.

    >>> labels, scores, qid = [1, 0, 2, 0], [0.3, 0.3, 0.1, 0.5], [1, 1, 1, 2]
    >>> evaluate(labels, scores, qid, "mrr,p@1", "standard", empty="skip", ties="average")
    {'mrr': 0.75, 'p@1': 0.5}
    """
    chosen = parse_metrics(metrics)
    options = {"empty": empty, "ties": ties, "threshold": threshold, "max_grade": max_grade}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    convention = replace(as_convention(convention), **changes)
    if qid is None:
        raise ValueError(
            "qid must hold the query of each row; got None. Metrics are means over queries: for a single "
            "query, pass equal ids, such as numpy.zeros(len(scores))."
        )
    x = as_one_score_a_row(scores)
    y = as_labels(labels, len(x))
    groups = group_rows(qid, len(x))
    weight = _query_weights(query_weight, len(groups.queries))
    per_query = _per_query(chosen, Ranked.of(y, x, groups, convention.ties), convention)
    return Evaluation(
        {name: _mean(name, values, weight) for name, values in per_query.items()},
        queries=groups.queries,
        per_query=per_query,
        metrics=chosen,
        convention=convention,
        notes=[
            *_grade_notes(chosen, y, convention),
            ("mean over " if weight is None else "weighted mean over ")
            + _counted(per_query, len(groups.queries)),
        ],
    )


def _per_query(metrics: tuple[Metric, ...], ranked: Ranked, convention: Convention) -> dict[str, Floats]:
    """Each metric of each query: {name: (Q,)}. Those that differ only in the cutoff are computed together."""
    families: dict[tuple[object, ...], list[Metric]] = {}
    for metric in metrics:
        families.setdefault(metric._family(), []).append(metric)
    found: dict[Metric, Floats] = {}
    for family in families.values():
        one = family[0]
        empty = ranked.count(one._positive(ranked, convention)) == 0
        worth = math.nan if convention.empty == "skip" else float(convention.empty if one.full_marks else 0)
        replaced = worth != 0 and bool(empty.any())  # where nothing is relevant, a metric is 0 of itself
        values = one._values(ranked, convention, [metric.k for metric in family])
        for metric, value in zip(family, values, strict=True):
            if replaced:
                value = np.where(empty, worth, value)  # noqa: PLW2901
            # Equal sums may be one array, and two metrics should not change together.
            found[metric] = value.copy() if any(value is other for other in found.values()) else value
    return {str(metric): found[metric] for metric in metrics}


def _mean(name: str, values: Floats, weight: Floats | None) -> float:
    left_out = np.isnan(values)
    if left_out.all():
        raise ValueError(
            f"{name}: no query has a relevant document, and empty='skip' leaves them all out. Check labels "
            "and threshold, or say what such a query counts: empty=0 or empty=1."
        )
    if left_out.any():
        values, weight = values[~left_out], None if weight is None else weight[~left_out]
    if weight is None:
        return _sum(values) / len(values)
    total = _sum(weight)
    if total == 0:
        raise ValueError(f"query_weight must be above 0 for some query that counts in {name}; all are 0.")
    return _sum(weight * values) / total


def _sum(values: Floats) -> float:
    # fsum is exact, so that the order of the queries does not matter, but slow where there are very many.
    return math.fsum(values) if len(values) <= 50_000 else float(values.sum())


def _query_weights(query_weight: ArrayLike | None, n_queries: int) -> Floats | None:
    if query_weight is None:
        return None
    try:
        weight = np.asarray(query_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"query_weight must be an array of real numbers; got {error}.") from None
    if weight.shape != (n_queries,):
        raise ValueError(
            f"query_weight must have one value a query, ({n_queries},), in the order in which the queries "
            f"first appear; got {weight.shape}."
        )
    bad = np.flatnonzero(~((weight >= 0) & np.isfinite(weight)))
    if len(bad):
        raise ValueError(f"query_weight must be finite and not below 0; query {bad[0]} has {weight[bad[0]]}.")
    largest = weight.max()
    return weight / largest if largest > 0 else weight  # sums of huge weights would overflow


def _grade_notes(metrics: tuple[Metric, ...], y: Floats, convention: Convention) -> list[str]:
    highest = [m._highest(y, convention) for m in metrics if isinstance(m, ExpectedReciprocalRank)]
    if not highest:
        return []
    return [f"the highest grade of ERR is {listed(map(gains._digits, sorted(set(highest))))}"]


def _counted(per_query: dict[str, Floats], n_queries: int) -> str:
    numbers = sorted({int(np.count_nonzero(~np.isnan(values))) for values in per_query.values()})
    if numbers == [n_queries]:
        return "1 query" if n_queries == 1 else f"{n_queries} queries"
    least, most = numbers[0], numbers[-1]
    return f"{least if least == most else f'{least} to {most}'} of {n_queries} queries"


def _ratio(values: Floats, whole: NDArray[Any]) -> Floats:
    """Values over the whole, of which they are a part: 0 where that is 0."""
    ratio: Floats = values / (whole + (whole == 0))
    return ratio
