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
from sinkprop.objective.expected_gain import grouped_gain
from sinkprop.objective.gains import NDCG, Gain, RankLinear, as_gain
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.relaxations import SmoothedIndicator

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
        values = list(values_by_query(part.y, scores, part.groups, metrics, stated).values())
        # The metrics are added one after another, because np.mean would add the values of a single query in a
        # different order than those of many queries.
        return reduce(np.add, values) / len(values)

    return criterion_of, names if isinstance(names, str) else ",".join(map(str, names))


def gain_under(gain: str | Gain, convention: str | Convention) -> Gain:
    """Return the gain that a ranker trains with; a discount that the gain leaves open is the convention's.

    >>> str(gain_under("ndcg@5", "standard")), str(gain_under("ndcg@5", "letor"))
    ('ndcg(discount=log2)@5', 'ndcg(discount=letor)@5')
    """
    return as_gain(gain, as_convention(convention).discount)


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
        settings = native_settings(SmoothedIndicator(0.05), 1, 0)

        def gain_itself(part: TrainingSet, scores: Floats) -> Floats:
            # The scores are the negative ranks, which are at least 1 apart, and sigma is 0.05. With such a
            # small sigma, the matrix of rank probabilities is exactly the permutation matrix of the ranking,
            # and the expected gain is the gain of the ranking.
            apart = -ranks_of(one_score_per_row(scores), part.groups).astype(np.float64)
            return grouped_gain(apart, part.y, part.groups, gain, settings, part.sample_weight, None)[0]

        return gain_itself, "gain" if isinstance(gain, RankLinear) else str(gain)
    return metric_criterion("ndcg@1-10" if selection.criterion is None else selection.criterion, convention)
