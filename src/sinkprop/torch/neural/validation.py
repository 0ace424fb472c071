"""The mean criterion of a network over queries, which are scored and evaluated span by span.

A span is a run of consecutive queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import offsets_of
from sinkprop.estimator.criteria import Criterion
from sinkprop.estimator.selection import mean_over_queries
from sinkprop.metrics.conventions import Convention, as_convention
from sinkprop.metrics.measures import ExpectedReciprocalRank, parse_metrics
from sinkprop.torch.neural.feeds import Held, Streamed, spans_of
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.scoring import Scoring
from sinkprop.torch.neural.stored import Data, largest_label

__all__ = ["MeanCriterion", "graded", "spread_within_queries"]


_SPREAD_SPANS = 8  # largest number of spans, of 65,536 rows each, from which a spread is computed


def graded(
    criterion: Any, convention: str | Convention, sets: Sequence[Data], processes: OneProcess
) -> Convention:
    """Return the convention of the metrics, with `max_grade` set if the criterion includes the metric ERR.

    ERR needs the largest possible label, `max_grade`. If the convention has none, it is set to the largest
    label of all queries in `sets`, in all processes. It cannot be set during the evaluation, which sees only
    some consecutive queries at a time.
    """
    found = as_convention(convention)
    metrics = () if criterion is None else parse_metrics(criterion)
    if found.max_grade is not None or not any(isinstance(m, ExpectedReciprocalRank) for m in metrics):
        return found
    with processes.together():
        largest = max(map(largest_label, sets), default=0.0)
    return replace(found, max_grade=float(processes.gather(np.array([largest])).max()))


class MeanCriterion:
    """Function that takes a network and returns its mean criterion over the queries of `feeds`.

    feeds         Objects from which the rows, labels and weights of the queries are read.
    scores        Function scores(network, rows, offsets of the queries) that returns the scores of the rows.
    criterion_of  Function criterion_of(queries, scores) that returns the criterion of each query.

    Processes with the same queries share the work, and the mean is the same to the last bit as with one
    process. If every process has its own queries, the mean is over the queries of all processes.
    """

    def __init__(
        self,
        feeds: Sequence[Held | Streamed],
        scores: Callable[[nn.Module, Any, Integers], Floats],
        criterion_of: Criterion,
        processes: OneProcess,
    ) -> None:
        self._feeds, self._scores, self._criterion_of, self._processes = (
            feeds,
            scores,
            criterion_of,
            processes,
        )
        counts = [len(feed.sizes) for feed in feeds]
        self._starts = offsets_of(counts)
        self._weight = np.concatenate(
            [
                np.ones(n) if feed.weight is None else feed.weight
                for n, feed in zip(counts, feeds, strict=True)
            ]
            or [np.empty(0)]
        )
        plain = all(feed.weight is None for feed in feeds)
        total = float(self._weight.sum())
        if processes.own:
            total = float(processes.total(np.array([total]))[0])
        if not total > 0:  # if every weight is 0, all queries count equally
            self._weight = np.ones_like(self._weight)
        self._plain = plain or not total > 0

    def __call__(self, network: nn.Module) -> float:
        values = np.zeros(int(self._starts[-1]))
        work = [(i, span) for i, feed in enumerate(self._feeds) for span in spans_of(feed)]
        with self._processes.together():
            mine = range(len(work)) if self._processes.own else self._processes.share(len(work))
            for i, feed in enumerate(self._feeds):
                spans = [work[k][1] for k in mine if work[k][0] == i]
                for span, (rows, part) in zip(spans, feed.spans(spans), strict=True):
                    scores = self._scores(network, rows, part.groups.offsets)
                    values[self._starts[i] + span] = self._criterion_of(part, scores)
        if self._processes.own:
            counted = ~np.isnan(values)
            sums = np.array([(values * self._weight)[counted].sum(), self._weight[counted].sum()])
            value, weight = self._processes.total(sums).tolist()
            return value / weight if weight > 0 else 0.0
        return float(mean_over_queries(self._processes.total(values), None if self._plain else self._weight))


def spread_within_queries(
    network: nn.Module, feed: Held | Streamed | None, scoring: Scoring, processes: OneProcess
) -> float:
    """Return the standard deviation of a network's scores from their query's mean, over the training rows.

    It is 1 for a partitioned measure, whose outputs are not scores. Only a part of a large set is scored.

    feed  Training queries of this process; None if it has none.
    """
    if scoring.n_outputs > 1:
        return 1.0
    sums = np.zeros(2)
    with processes.together():
        if feed is not None:
            spans = spans_of(feed)[:_SPREAD_SPANS]
            for rows, part in feed.spans(spans):
                scores = scoring.validation_scores(network, rows, part.groups.offsets)
                starts, sizes = part.groups.offsets[:-1], np.diff(part.groups.offsets)
                means = np.add.reduceat(scores, starts) / sizes
                sums += [float(np.square(scores - np.repeat(means, sizes)).sum()), len(scores)]
    square, n = (processes.total(sums) if processes.own else sums).tolist()
    return float(np.sqrt(square / max(n, 1)))
