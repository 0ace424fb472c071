"""Criteria by which a fit chooses among its candidates, computed on validation queries.

A candidate is one of the models that a fit trains (`tuning.py`). A `Criterion` is a function from queries and
the scores of their documents to one value per query; larger is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from sinkprop.common.types import Floats
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.selection import Selection, mean_over_queries
from sinkprop.metrics.conventions import Convention, as_convention
from sinkprop.metrics.evaluation import values_by_query
from sinkprop.metrics.measures import parse_metrics
from sinkprop.metrics.ranking import one_score_per_row, ranks_of
from sinkprop.objective.expected_gain import ranking_gain
from sinkprop.objective.gains import NDCG, Gain, as_gain, bound

__all__ = ["Criterion", "gain_criterion", "gain_under", "mean_criterion", "metric_criterion"]

Criterion = Callable[[TrainingSet, Floats], Floats]


def mean_criterion(criterion_of: Criterion, part: TrainingSet, scores: Floats) -> float:
    """Mean of the criterion over the queries `part`, whose documents have the given scores.

    The mean is weighted by the query weights. If all weights are 0, every query counts the same.
    """
    weight = part.query_weight
    return float(
        mean_over_queries(criterion_of(part, scores), None if weight is None or not weight.any() else weight)
    )


def metric_criterion(names: str | Sequence[str], convention: str | Convention) -> tuple[Criterion, str]:
    """Return a criterion and the name of this criterion.

    The criterion of a query is the mean of the metrics `names` on this query.
    """
    metrics, stated = parse_metrics(names), as_convention(convention)

    def criterion_of(part: TrainingSet, scores: Floats) -> Floats:
        values = list(values_by_query(part.labels, scores, part.groups, metrics, stated).values())
        # The metrics are added one after another, because np.mean would add the values of a single query in a
        # different order than those of many queries.
        return reduce(np.add, values) / len(values)

    return criterion_of, names if isinstance(names, str) else ",".join(map(str, names))


def gain_under(gain: str | Gain, convention: str | Convention) -> Gain:
    """Return the gain that a ranker trains with; a discount that the gain leaves open is the convention's.

    Arrays that the gain holds are replaced by label columns; the ranker's training set has them.

    >>> str(gain_under("ndcg@5", "standard")), str(gain_under("ndcg@5", "letor"))
    ('ndcg(discount=log2)@5', 'ndcg(discount=letor)@5')
    """
    return bound(as_gain(gain, as_convention(convention).discount))[0]


def gain_criterion(
    gain: Gain, selection: Selection, convention: str | Convention, *, weighted: bool
) -> tuple[Criterion, str]:
    """Return the criterion of a ranker that maximizes an expected gain, and the criterion's name.

    If the selection does not name a criterion, the gain determines it: the criterion is the mean of NDCG@1 to
    NDCG@10 if the gain is NDCG and rows have no weights, and otherwise the gain itself.

    convention  Convention of the metrics.
    weighted    Whether rows have weights.
    """
    if selection.criterion is None and (weighted or not isinstance(gain, NDCG)):

        def gain_itself(part: TrainingSet, scores: Floats) -> Floats:
            ranks = ranks_of(one_score_per_row(scores), part.groups)
            return ranking_gain(gain, part.labels, ranks, part.groups, part.sample_weight)

        return gain_itself, gain.text or "gain"
    return metric_criterion("ndcg@1-10" if selection.criterion is None else selection.criterion, convention)
