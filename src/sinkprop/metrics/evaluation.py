"""Evaluation of rankings, many queries and metrics at once, under a stated convention.

Two programs that both print "NDCG@10" may print different numbers: they differ in the gain of a label, the
discount of a rank, and the treatment of short queries, queries without a relevant document and tied scores.
The name of a metric leaves these choices open, and a `Convention` makes them:

>>> labels, scores, qid = [2, 0, 1, 0, 0], [0.9, 0.5, 0.1, 0.3, 0.2], ["a", "a", "a", "b", "b"]
>>> result = evaluate(labels, scores, qid, ("ndcg@2", "map"))
>>> result
{'ndcg@2': 0.41311732856427996, 'map': 0.41666666666666663}
>>> result.per_query["ndcg@2"].round(3)
array([0.826, 0.   ])
>>> for clause in result.describe().split("; "):
...     print(clause)
ndcg@2 0.4131, map 0.4167
standard: gain 2^r - 1, discount 1/log2(rank + 1)
a query with fewer than k documents is scored on those it has, P@k divided by k
a query without a relevant document counts 0
tied scores rank in file order
labels >= 1 are relevant
mean over 2 queries (1 without a relevant document).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.common.text_forms import digits
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_label_columns, as_labels, unmasked
from sinkprop.data.queries import Groups, Queries, group_rows
from sinkprop.metrics.conventions import Convention, Empty, as_convention, listed
from sinkprop.metrics.measures import ExpectedReciprocalRank, IntentAware, Metric, parse_metric, parse_metrics
from sinkprop.metrics.ranked_labels import Ranked, Ties
from sinkprop.metrics.ranking import one_score_per_row

__all__ = ["Evaluation", "check_metric", "evaluate", "evaluate_blocks", "short_queries", "values_by_query"]


class Evaluation(dict[str, float]):
    """Result of `evaluate`: a dictionary {name: mean over the queries}, with the values per query.

    Other spellings of a metric's name, such as "NDCG@10", also find it.

    Parameters
    ----------
    means : mapping of str to float
        Mean of each metric.
    queries : array of shape (Q,)
        Query ids in order of first appearance.
    per_query : dict of str to array of shape (Q,)
        Values of each metric per query; NaN for a query that is left out of the mean.
    metrics : tuple of Metric
        The metrics, in the order requested.
    convention : Convention
        The convention, including the options of the call.
    notes : sequence of str, default ()
        Further clauses about the metrics, for `rules`.
    counts : str, default ""
        Number of queries in the means, and of queries that count 0 or are left out, for `definition`.

    Attributes
    ----------
    n_queries : int
        Number of queries Q, including those left out of the means.
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
        counts: str = "",
    ) -> None:
        super().__init__(means)
        self.queries, self.per_query, self.metrics = queries, per_query, metrics
        self.convention, self.n_queries = convention, len(queries)
        self._notes, self._counts = tuple(notes), counts

    def __missing__(self, name: str) -> float:
        try:
            other = str(parse_metric(name))
        except (AttributeError, TypeError, ValueError):
            other = ""
        if other in self:
            return self[other]
        raise KeyError(f"{name!r} was not evaluated; there is {listed(self)}")

    def describe(self) -> str:
        """Describe the result: the means, the convention and the numbers of queries behind them.

        Returns
        -------
        str
            A line with the mean of each metric, and a line with the text of `definition`.

        Examples
        --------
        >>> text = evaluate([0, 2, 1], [3, 2, 1], [1, 1, 2], "p@2", "letor").describe()
        >>> text.splitlines()[0]
        'p@2 0.2500'
        >>> text.partition("; mean over ")[2]
        '2 queries. Queries that count 0 because they have fewer than k documents: 1 of 2 for k = 2.'
        """
        means = ", ".join(f"{name} {mean:.4f}" for name, mean in self.items())
        return f"{means}\n{self.definition()}"

    def definition(self) -> str:
        """Describe how the means are computed, to print below a table that shows them.

        Returns
        -------
        str
            The text of `rules`, the number of queries, how many of them have no relevant document, and how
            many count 0 because they have fewer than k documents.
        """
        return f"{self.rules()}; {self._counts}"

    def rules(self) -> str:
        """Describe the convention and the metrics, without the numbers of queries.

        Returns
        -------
        str
            The name of the convention, and one clause per choice.
        """
        plain = dict.fromkeys(metric.kind.upper() for metric in self.metrics if not metric.full_marks)
        note = f", but 0 in {listed(plain)}" if plain and self.convention.empty == 1 else ""
        return f"{self.convention.title()}: {'; '.join([*self.convention.clauses(note), *self._notes])}"


def evaluate(
    labels: ArrayLike | Queries,
    scores: ArrayLike,
    qid: ArrayLike | Sequence[Hashable] | None = None,
    metrics: str | Metric | Iterable[str | Metric] = ("ndcg@10",),
    convention: str | Convention = "standard",
    *,
    empty: Empty | None = None,
    ties: Ties | None = None,
    threshold: float | None = None,
    max_grade: float | None = None,
    query_weight: ArrayLike | None = None,
) -> Evaluation:
    """Evaluate metrics of the rankings that scores give, per query and as means over the queries.

    Parameters
    ----------
    labels : array of shape (N,) or (N, I), sparse matrix of shape (N, I), or Queries
        Relevance of each document, at least 0; or `Queries`, which include labels and query ids. A matrix,
        dense or a sparse one of SciPy, has one column per intent, for the metrics of diversity: alphandcg and
        erria. All other metrics use its first column. With labels of shape (N,), there is one intent.
    scores : array of shape (N,)
        Finite scores; larger ranks higher.
    qid : array of shape (N,), optional
        Query id of each row: any hashable ids, in any order. Required if `labels` is an array; if there is
        only one query, give all rows the same id. Not allowed if `labels` is `Queries`.
    metrics : str, Metric or iterable of these, default ("ndcg@10",)
        Metrics or their names, such as "ndcg@10" or "ndcg@1-10,map".
    convention : str or Convention, default "standard"
        Convention, or the name of one: "letor", "letor4", "mslr", "standard", "lightgbm", "xgboost",
        "sklearn" or "trec".
    empty : {0, 1, "skip"}, optional
        Value of a query without a relevant document, instead of the convention's.
    ties : {"file", "average", "worst", "best"}, optional
        Order of documents with equal scores, instead of the convention's. The metrics of diversity take
        "file" only.
    threshold : float, optional
        Least label of a relevant document, instead of the convention's.
    max_grade : float, optional
        Highest grade of ERR, instead of the convention's.
    query_weight : array of shape (Q,), optional
        Weights of the queries in the means, at least 0, in the order in which the queries first appear.

    Returns
    -------
    Evaluation
        The dictionary {name: mean}, with the attributes `per_query` and `queries` and the method `describe`.

    Examples
    --------
    >>> labels, scores, qid = [1, 0, 2, 0], [0.3, 0.3, 0.1, 0.5], [1, 1, 1, 2]
    >>> evaluate(labels, scores, qid, "mrr,p@1", "standard", empty="skip", ties="average")
    {'mrr': 0.75, 'p@1': 0.5}
    >>> intents = [[1, 0], [1, 0], [0, 1], [0, 0]]
    >>> evaluate(intents, [0.9, 0.8, 0.7, 0.1], [1, 1, 1, 1], "erria@2")
    {'erria@2': 0.5}
    """
    chosen = parse_metrics(metrics)
    convention = _with_options(convention, empty=empty, ties=ties, threshold=threshold, max_grade=max_grade)
    x = one_score_per_row(scores)
    if isinstance(labels, Queries):
        if qid is not None:
            raise ValueError("evaluate: do not pass qid with Queries, which include the query ids.")
        y, groups = as_labels(labels.y, len(x)), labels.groups
    else:
        if qid is None:
            raise ValueError(
                "qid must hold the query of each row; got None. Metrics are means over queries: for a single "
                "query, pass equal ids, such as numpy.zeros(len(scores))."
            )
        y, groups = as_label_columns(labels, len(x)), group_rows(qid, len(x))
    weight = _query_weights(query_weight, len(groups.queries))
    per_query, n_empty = _per_query(chosen, Ranked.of(y, x, groups, convention.ties), convention)
    return _evaluation(chosen, per_query, n_empty, groups.queries, groups.sizes, convention, weight, y)


def evaluate_blocks(
    blocks: Iterable[tuple[Floats, Floats, Groups]],
    queries: NDArray[Any],
    largest_label: float,
    metrics: str | Metric | Iterable[str | Metric] = ("ndcg@10",),
    convention: str | Convention = "standard",
    *,
    query_weight: ArrayLike | None = None,
    **options: Any,
) -> Evaluation:
    """Return the same `Evaluation` as `evaluate`, from rows that arrive in blocks of whole queries.

    blocks         Labels, (n,) or (n, I), and scores (n,) of each block, and the `Groups` that assign its
                   rows to queries.
    queries        (Q,) ids of all queries, in the order in which the blocks hold them.
    largest_label  Largest label of all rows, in the first column if there are several; ERR needs it before
                   the first block.
    options        Options of `evaluate`, such as `ties`.
    """
    chosen = parse_metrics(metrics)
    convention = _with_options(convention, **options)
    weight = _query_weights(query_weight, len(queries))
    largest = np.array([largest_label])
    for metric in chosen:
        if isinstance(metric, ExpectedReciprocalRank):
            metric.highest(largest, convention)  # raises before the work starts if a label is above max_grade
    graded = convention if convention.max_grade is not None else replace(convention, max_grade=largest_label)
    found, n_empty, sizes = [], dict.fromkeys(map(str, chosen), 0), []
    for y, x, groups in blocks:
        ranked = Ranked.of(y, one_score_per_row(x), groups, graded.ties)
        values, empty = _per_query(chosen, ranked, graded)
        n_empty = {name: n + empty[name] for name, n in n_empty.items()}
        found.append(values)
        sizes.append(groups.sizes)
    per_query = {name: np.concatenate([block[name] for block in found]) for name in found[0]}
    counts = np.concatenate(sizes)
    return _evaluation(chosen, per_query, n_empty, queries, counts, convention, weight, largest)


def values_by_query(
    y: Floats, scores: Floats, groups: Groups, metrics: tuple[Metric, ...], convention: Convention
) -> dict[str, Floats]:
    """Values per query of each metric, {name: (Q,)}.

    The labels y, (N,) or (N, I), must have been checked. `groups` assigns the rows to queries.
    """
    ranked = Ranked.of(y, one_score_per_row(scores), groups, convention.ties)
    return _per_query(metrics, ranked, convention)[0]


def check_metric(metric: str | Metric, convention: str | Convention) -> None:
    """Raise a ValueError if the metric or the convention does not exist, or if they do not go together.

    Called before a long computation.
    """
    for one in parse_metrics([metric]):
        one.check_convention(as_convention(convention))


def short_queries(
    metrics: Iterable[Metric],
    sizes: Sequence[int] | Integers,
    convention: Convention,
    per_query: Mapping[str, Floats] | None = None,
) -> str:
    """Sentence that says how many queries count 0 because they have fewer than k documents.

    Empty if there are none, as under a convention that scores such a query on the documents that it has.

    sizes      (Q,) number of documents of each query.
    per_query  Values of each metric. A short query without a relevant document then counts only if its value
               is 0, and not if the option `empty` sets another value.
    """
    zero = {"ndcg": convention.short_ndcg, "dcg": convention.short_ndcg, "p": convention.short_p}
    n_documents = np.asarray(sizes)
    counts: dict[int, int] = {}
    for metric in metrics:
        if metric.k is not None and zero.get(metric.kind) == "zero":
            short = n_documents < metric.k
            if per_query is not None:
                short &= per_query[str(metric)] == 0
            counts[metric.k] = max(counts.get(metric.k, 0), int(np.count_nonzero(short)))
    spans: list[list[int]] = []  # [number of queries, first k, last k]
    for k, n in sorted(counts.items()):
        if spans and spans[-1][0] == n:
            spans[-1][2] = k
        else:
            spans.append([n, k, k])
    parts = [(n, f"for k = {a}" + (f" to {b}" if b > a else "")) for n, a, b in spans if n]
    if not parts:
        return ""
    (first, where), *others = parts
    texts = [f"{first} of {len(n_documents)} {where}", *(f"{n} {where}" for n, where in others)]
    return f"Queries that count 0 because they have fewer than k documents: {', '.join(texts)}."


def _with_options(convention: str | Convention, **options: Any) -> Convention:
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return replace(as_convention(convention), **changes)


def _evaluation(
    metrics: tuple[Metric, ...],
    per_query: dict[str, Floats],
    n_empty: Mapping[str, int],
    queries: NDArray[Any],
    sizes: Integers,
    convention: Convention,
    weight: Floats | None,
    y: Floats,
) -> Evaluation:
    """Build an `Evaluation`, with the mean of each metric over the queries.

    Of the labels y, only the largest (in the first column) and the number of columns are used: the largest is
    the highest grade of ERR if no max_grade is set. `n_empty` is the number of queries without a relevant
    document by metric, and `sizes` (Q,) the number of documents of each query.
    """
    over = ("mean over " if weight is None else "weighted mean over ") + _counted(per_query, len(queries))
    if any(n_empty.values()):
        least, most = min(n_empty.values()), max(n_empty.values())
        over += f" ({most if least == most else f'{least} to {most}'} without a relevant document)"
    short = short_queries(metrics, sizes, convention, per_query)
    return Evaluation(
        {name: _mean(name, values, weight) for name, values in per_query.items()},
        queries=queries,
        per_query=per_query,
        metrics=metrics,
        convention=convention,
        notes=_notes(metrics, y, convention),
        counts=f"{over}." + (f" {short}" if short else ""),
    )


def _per_query(
    metrics: tuple[Metric, ...], ranked: Ranked, convention: Convention
) -> tuple[dict[str, Floats], dict[str, int]]:
    """Values per query, {name: (Q,)}, and numbers of queries without a relevant document, {name: number}.

    Metrics that differ only in the cutoff are computed together.
    """
    families: dict[tuple[object, ...], list[Metric]] = {}
    for metric in metrics:
        families.setdefault(metric.family(), []).append(metric)
    found: dict[Metric, Floats] = {}
    n_empty: dict[str, int] = {}
    for family in families.values():
        one = family[0]
        one.check_convention(convention)
        empty = one.empty(ranked, convention)
        n_empty |= dict.fromkeys(map(str, family), int(np.count_nonzero(empty)))
        worth = math.nan if convention.empty == "skip" else float(convention.empty if one.full_marks else 0)
        replaced = worth != 0 and bool(empty.any())  # a query without relevant documents already has 0
        values = one.values(ranked, convention, [metric.k for metric in family])
        for metric, value in zip(family, values, strict=True):
            if replaced:
                value = np.where(empty, worth, value)  # noqa: PLW2901
            # Two metrics may share one array; copy it, so that changing one does not change the other.
            found[metric] = value.copy() if any(value is other for other in found.values()) else value
    return {str(metric): found[metric] for metric in metrics}, n_empty


def _mean(name: str, values: Floats, weight: Floats | None) -> float:
    left_out = np.isnan(values)
    if left_out.all():
        raise ValueError(
            f"{name}: no query has a relevant document, and empty='skip' leaves them all out. Check labels "
            "and threshold, or set the value of such a query: empty=0 or empty=1."
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
    # fsum is exact, so that the order of the queries does not matter, but too slow for very many queries.
    return math.fsum(values) if len(values) <= 50_000 else float(values.sum())


def _query_weights(query_weight: ArrayLike | None, n_queries: int) -> Floats | None:
    if query_weight is None:
        return None
    try:
        weight = np.asarray(unmasked("query_weight", query_weight), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"query_weight must be an array of real numbers; got {error}.") from None
    if weight.shape != (n_queries,):
        raise ValueError(
            f"query_weight must have one value per query, ({n_queries},), in the order in which the queries "
            f"first appear; got {weight.shape}."
        )
    bad = np.flatnonzero(~((weight >= 0) & np.isfinite(weight)))
    if len(bad):
        raise ValueError(f"query_weight must be finite and not below 0; query {bad[0]} has {weight[bad[0]]}.")
    largest = weight.max()
    return weight / largest if largest > 0 else weight  # without this, sums of huge weights would overflow


def _notes(metrics: tuple[Metric, ...], y: Floats, convention: Convention) -> list[str]:
    """Clauses about metrics that the convention does not describe."""
    first = y if y.ndim == 1 else y[:, 0]
    highest = [m.highest(first, convention) for m in metrics if isinstance(m, ExpectedReciprocalRank)]
    notes = []
    if highest:
        notes.append(f"the highest grade of ERR is {listed(map(digits, sorted(set(highest))))}")
    intent_aware = dict.fromkeys(m.kind.upper() for m in metrics if isinstance(m, IntentAware))
    others = dict.fromkeys(m.kind.upper() for m in metrics if not isinstance(m, IntentAware))
    if intent_aware:
        notes.append(f"{listed(intent_aware)} with the gain and discount of their definitions")
    if others and y.ndim == 2:
        notes.append(f"{listed(others)} of the first of {y.shape[1]} columns of labels")
    return notes


def _counted(per_query: dict[str, Floats], n_queries: int) -> str:
    numbers = sorted({int(np.count_nonzero(~np.isnan(values))) for values in per_query.values()})
    if numbers == [n_queries]:
        return "1 query" if n_queries == 1 else f"{n_queries} queries"
    least, most = numbers[0], numbers[-1]
    return f"{least if least == most else f'{least} to {most}'} of {n_queries} queries"
