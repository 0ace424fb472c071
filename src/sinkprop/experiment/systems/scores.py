"""The comparison of arrays of scores: their checks, and one evaluation per system."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.types import Floats
from sinkprop.data.queries import Queries
from sinkprop.experiment.systems.comparison import ScoreComparison
from sinkprop.metrics.conventions import Convention, Empty, listed
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.measures import Metric
from sinkprop.metrics.ranked_labels import Ties
from sinkprop.metrics.ranking import one_score_per_row

__all__ = ["compare_scores", "scores_of_rows"]


def compare_scores(
    labels: ArrayLike | Queries,
    scores: Mapping[str, ArrayLike],
    qid: ArrayLike | Sequence[Hashable] | None = None,
    metrics: str | Metric | Iterable[str | Metric] = ("ndcg@10",),
    convention: str | Convention = "standard",
    *,
    group: ArrayLike | None = None,
    baseline: str | None = None,
    query_weight: ArrayLike | None = None,
    empty: Empty | None = None,
    ties: Ties | None = None,
    threshold: float | None = None,
    max_grade: float | None = None,
) -> ScoreComparison:
    """Compare systems by the scores that each of them gives to the same documents.

    A system may be a model, or the ranking that is in production now. The comparison has the mean of each
    metric with its confidence interval and, for each system, the difference from the baseline with its
    interval, paired tests, and the number of queries that it wins and loses.

    Parameters
    ----------
    labels : array of shape (N,) or (N, I), sparse matrix of shape (N, I), or Queries
        Relevance of each document, as in `evaluate`; or `Queries`, which include labels and query ids.
    scores : mapping of str to array of shape (N,)
        Scores of the documents by each system, {name: scores}; larger ranks higher. At least two systems.
    qid : array of shape (N,), optional
        Query id of each row. `qid` or `group` is required if `labels` is an array.
    metrics : str, Metric or iterable of these, default ("ndcg@10",)
        Metrics or their names, such as "ndcg@10,map".
    convention : str or Convention, default "standard"
        Convention of the metrics, see `evaluate`.
    group : array of shape (Q,), optional
        Sizes of consecutive queries, in place of `qid`.
    baseline : str, optional
        System with which the others are compared. None takes the first.
    query_weight : array of shape (Q,), optional
        Weights of the queries in the means, in the order in which the queries first appear. The tests then
        use the difference of each query times its weight. Queries of weight 0 are left out.
    empty : {0, 1, "skip"}, optional
        Value of a query without a relevant document, instead of the convention's.
    ties : {"file", "average", "worst", "best"}, optional
        Order of documents with equal scores, instead of the convention's.
    threshold : float, optional
        Least label of a relevant document, instead of the convention's.
    max_grade : float, optional
        Highest grade of ERR, instead of the convention's.

    Returns
    -------
    ScoreComparison
        The comparison, which prints as a table.

    Raises
    ------
    ValueError
        If scores are not one finite number per row, or there are fewer than two systems.

    Examples
    --------
    >>> import numpy as np, sinkprop
    >>> rng = np.random.default_rng(0)
    >>> y, qid = rng.integers(0, 3, 600), np.repeat(np.arange(60), 10)
    >>> scores = {"production": y + rng.normal(0, 3, 600), "new": y + rng.normal(0, 2, 600)}
    >>> found = sinkprop.compare_scores(y, scores, qid, "ndcg@5")
    >>> print(found.table("ndcg@5"))
    ndcg@5         mean       95 % interval   difference        95 % interval        p   won/tied/lost
    production   0.6916    0.6431 to 0.7371
    new          0.7642+   0.7279 to 0.8000      +0.0726   +0.0132 to +0.1340   0.0246         34/1/25
    >>> found.difference("new").verdict  # 1: better, beyond chance
    1
    """
    systems = _systems(scores)
    y = labels.y if isinstance(labels, Queries) else labels
    n = y.shape[0] if hasattr(y, "shape") and y.shape else np.size(y)
    arrays = {name: scores_of_rows(f"scores[{name!r}]", values, n) for name, values in systems.items()}
    if group is not None:
        if qid is not None or isinstance(labels, Queries):
            other = "Queries, which include the query ids" if qid is None else "qid"
            raise ValueError(f"compare_scores: do not pass group with {other}.")
        from sinkprop.data.queries import ids_of_sizes

        qid = ids_of_sizes(group, n)
    options: dict[str, Any] = {
        "empty": empty,
        "ties": ties,
        "threshold": threshold,
        "max_grade": max_grade,
        "query_weight": query_weight,
    }
    wanted = metrics if isinstance(metrics, str | Metric) else tuple(metrics)
    evaluations = {
        name: evaluate(labels, x, qid, wanted, convention, **options) for name, x in arrays.items()
    }
    weight = None if query_weight is None else np.asarray(query_weight, dtype=np.float64)
    return ScoreComparison(evaluations, next(iter(systems)) if baseline is None else baseline, weight)


def _systems(scores: Any) -> dict[str, Any]:
    if not isinstance(scores, Mapping):
        raise ValueError(
            f"scores must be a mapping {{name of a system: its scores}}; got {type(scores).__name__}."
        )
    if len(scores) < 2:
        got = listed(map(repr, scores)) if scores else "none"
        raise ValueError(f"scores must have at least two systems to compare; got {got}.")
    for name in scores:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"scores: the name of a system must be text that is not empty; got {name!r}.")
    return dict(scores)


def scores_of_rows(argument: str, values: Any, n: int) -> Floats:
    """Scores (n,) of a system. Raises a ValueError that names the argument if they are anything else."""
    if isinstance(values, Mapping):
        raise ValueError(
            f"{argument} must be an array with one score per row; got a dictionary. Put its scores into the "
            "order of the rows."
        )
    try:
        x = one_score_per_row(values)
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from None
    if len(x) != n:
        raise ValueError(f"{argument} must have one score per row: {n:,} rows, but {len(x):,} scores.")
    return x
