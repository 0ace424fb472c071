"""The estimand: the value of a new ranking as a function of the relevance of its documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.metrics.ranking import one_score_per_row, ranks_of

__all__ = ["Target", "reciprocal_ranks", "scores_of", "target_of"]

_FORM = re.compile(r"(dcg|ctr|mrr)(?:@([1-9]\d{0,8}))?")


@dataclass(frozen=True, eq=False)
class Target:
    """A metric of a new ranking; for all but MRR, sum_j (base_j + weights_j r_j) with r_j the relevance.

    kind     "dcg", "ctr" or "mrr".
    ranks    (N,) rank of each document in its query in the new ranking.
    counted  (N,) whether the document is among the first k.
    weights  (N,) weight of the relevance; for MRR, that of the rank times the probability of examination.
    base     (N,) probability of a click without relevance. 0 for DCG.
    slope    (N,) probability of examination at the new rank. Only for MRR and CTR with a model.
    """

    kind: str
    ranks: Integers
    counted: Mask
    weights: Floats
    base: Floats
    slope: Floats


def target_of(log: ClickLog, scores: Floats, model: ClickModel | None, metric: str) -> Target:
    """Return what a metric such as "dcg@10" is, for the ranking by these scores."""
    found = _FORM.fullmatch(metric.lower()) if isinstance(metric, str) else None
    if found is None:
        raise ValueError(
            f"metric must be 'dcg@k', 'ctr@k' or 'mrr@k', with a cutoff k such as 10, or without; got "
            f"{metric!r}. Metrics that are divided by their best value, such as NDCG, cannot be estimated "
            "from clicks."
        )
    kind = found[1]
    if model is None and kind != "ctr":
        raise ValueError(
            f"metric {metric!r} is about relevance, which clicks show only through a click model. Pass "
            "model=, or estimate clicks, 'ctr@10'."
        )
    groups = log.documents.groups
    ranks = ranks_of(scores, groups)
    k = min(int(found[2] or groups.longest), groups.longest)
    counted = ranks <= k
    at = np.minimum(ranks, k) - 1
    slope, intercept = np.ones(k), np.zeros(k)
    if model is not None and kind != "dcg":
        slope, intercept = _by_position(log, model, k, metric)
    of_rank = {
        "dcg": 1 / np.log2(np.arange(2.0, k + 2)),
        "ctr": slope,
        "mrr": slope / np.arange(1.0, k + 1),
    }[kind]
    return Target(kind, ranks, counted, of_rank[at] * counted, intercept[at] * counted, slope[at] * counted)


def _by_position(log: ClickLog, model: ClickModel, k: int, metric: str) -> tuple[Floats, Floats]:
    """Slope and intercept (k,) at each position; a ValueError if they depend on the clicks above."""
    groups = log.documents.groups
    known = min(k, _n_positions(model, k))
    start = int(groups.offsets[np.argmax(groups.sizes)])
    rows = np.arange(start, start + known) if groups.rows is None else groups.rows[start : start + known]
    without, after = (
        model.propensities(ClickLog(log.documents, rows, np.arange(known) < clicks, np.array([0, known])))
        for clicks in (0, 1)
    )
    if not (np.allclose(without.slope, after.slope) and np.allclose(without.intercept, after.intercept)):
        raise ValueError(
            f"metric {metric!r} needs a model in which examination depends only on the position; in "
            f"{type(model).__name__}, it depends on the clicks above. Use 'dcg@10', or a PositionBasedModel."
        )
    if known < k:
        raise ValueError(
            f"metric {metric!r} needs the examination of {k} positions, and the model has {known}. Use "
            f"'{metric[:3]}@{known}' or 'dcg@{k}', or a model of {k} positions."
        )
    return without.slope, without.intercept


def _n_positions(model: ClickModel, most: int) -> int:
    """Number of positions of a model; `most` if its curve is known for a log only."""
    try:
        return len(model.examination_curve())
    except ValueError:
        return most


def reciprocal_ranks(clicks: Floats) -> tuple[Floats, Floats]:
    """Expected 1 / rank of the first click, (Q,), and its derivatives by the click probabilities, (Q, K).

    clicks  (Q, K) probability of a click at each rank, independent of the other ranks.

    With p_k = clicks[:, k], the value from rank k on is F_k = p_k / k + (1 - p_k) F_(k+1), and the derivative
    by p_k is (1 / k - F_(k+1)) times the probability that no click is above.
    """
    n_ranks = clicks.shape[1]
    none_above = np.cumprod(np.column_stack([np.ones(len(clicks)), 1 - clicks[:, :-1]]), axis=1)
    value, slopes = np.zeros(len(clicks)), np.empty_like(clicks)
    for rank in range(n_ranks, 0, -1):
        p = clicks[:, rank - 1]
        slopes[:, rank - 1] = 1 / rank - value
        value = p / rank + (1 - p) * value
    return value, slopes * none_above


def scores_of(log: ClickLog, ranker: Any, name: str) -> Floats:
    """Return the scores (N,) of the log's documents, given as an array or by a ranker."""
    scores = _predicted(ranker, log) if hasattr(ranker, "predict") else ranker
    try:
        found = one_score_per_row(scores)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(found) != len(log.documents):
        raise ValueError(
            f"{name} must give one score per document of the log, ({len(log.documents)},); got "
            f"({len(found)},). Score the rows of log.documents."
        )
    return found


def _predicted(ranker: Any, log: ClickLog) -> Any:
    import inspect

    documents = log.documents
    if hasattr(ranker, "clicks_"):  # a ranker of this library takes the queries, and matches features by name
        return ranker.predict(documents)
    if "qid" in inspect.signature(ranker.predict).parameters:
        return ranker.predict(documents.X, qid=documents.qid)
    return ranker.predict(documents.X)
