"""Scores of the held-out queries, to which the calibration of an AutoRanker is fitted.

The score F of the model is a mean over the rankers of K folds, but the held-out score H of a query comes from
one fold, whose rankers were not trained on it. Two things differ. The level of H, its mean over documents, is
that of its fold. And a mean varies less within queries than its terms: if v is the variance of the scores of
one fold and c the covariance of the scores of two folds on new queries, the variance of F is
v / K + (1 - 1 / K) c. On the held-out queries this is the covariance of H and F, because what the other folds
have learned from a query's labels does not covary with H. So in each fold H is moved to the mean of F, and
its deviations are multiplied by sqrt(cov(H, F) / var(H)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sinkprop.calibration.widths import query_means
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.held_out import HeldOut, taken_queries

__all__ = ["held_out_scores"]

_ROWS = 10_000  # documents that the model scores, at most


def held_out_scores(
    folds: Sequence[TrainingSet], scores: Sequence[Floats], model: Callable[[TrainingSet], Floats]
) -> HeldOut:
    """Return the held-out scores of all folds, with the level and the spread of the model's.

    folds   Held-out queries of each fold.
    scores  Weighted sum of the members' scores of these queries, by rankers that were not trained on them.
    model   Function that returns the model's scores of queries.
    """
    levels, product, square = [], 0.0, 0.0
    for part, own in zip(folds, scores, strict=True):
        taken = taken_queries(part.groups.sizes, most=max(1, _ROWS // len(folds)))
        some = part.select(np.flatnonzero(taken))
        H, F = own[np.repeat(taken, part.groups.sizes)], model(some)
        levels.append((H.mean(), F.mean()))
        away = _within(H, some.groups)
        product += float(away @ _within(F, some.groups))
        square += float(away @ away)
    # the rankers of two folds agree at best fully, and at worst not at all
    slope = min(max(product / square, 1 / len(folds)), 1.0) if square > 0 else 1.0
    matched = [F + np.sqrt(slope) * (own - H) for own, (H, F) in zip(scores, levels, strict=True)]
    return HeldOut(
        np.concatenate(matched),
        np.concatenate([part.y for part in folds]),
        np.concatenate([part.groups.sizes for part in folds]),
    )


def _within(scores: Floats, groups: Groups) -> Floats:
    """Scores less the mean of their query."""
    away: Floats = scores - query_means(scores, groups)[groups.codes]
    return away
