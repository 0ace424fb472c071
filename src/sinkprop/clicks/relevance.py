"""Ridge regressions of the relevance on features: predictions for other queries, and the choice of a clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries

__all__ = ["ClipChoice", "choose_clip", "predicted_relevance", "standardized"]

_FOLDS = 5
_PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # per unit of weight, for features of variance 1


@dataclass(frozen=True, eq=False)
class ClipChoice:
    """The errors by which a clip was chosen.

    Attributes
    ----------
    clips : array of shape (T,)
        Clips that were tried, in increasing order.
    errors : array of shape (T,)
        For each clip, the squared error of a linear model trained on the labels of other queries, against
        unclipped labels, up to a constant. It counts the bias of a clip as well as the variance.
    standard_errors : array of shape (T,)
        Standard error of the difference to the least error.
    clip : float
        The smallest clip whose error is within one standard error of the least.
    """

    clips: Floats
    errors: Floats
    standard_errors: Floats
    clip: float


def standardized(X: NDArray[np.floating]) -> Floats:
    """Features with mean 0 and variance 1, (N, D); 0 for missing values and constant features."""
    known = np.isfinite(X)
    count = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, X, 0.0).astype(np.float64)
    mean = filled.sum(axis=0) / count
    Z: Floats = np.where(known, filled - mean, 0.0)
    spread = np.sqrt((Z * Z).sum(axis=0) / count)
    return Z / np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, np.inf)


def predicted_relevance(documents: Queries, clicks: Floats, examinations: Floats) -> Floats:
    """Relevance of each document, (N,), from 0 to 1, predicted from its features.

    No query's prediction is made from its own clicks; see `_Ridge`. With a single query, it is the mean of
    clicks per examination.

    clicks        (N,) clicks of each document, less those expected without relevance.
    examinations  (N,) expected examinations of each document: the weights of the regression.
    """
    mean = min(max(float(clicks.sum() / examinations.sum()), 0.0), 1.0)
    if documents.n_queries < 2:
        return np.full(len(documents), mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(examinations > 0, clicks / examinations, 0.0)
    ridge = _Ridge(documents, examinations)
    predictions = [np.clip(ridge.predictions(rates, penalty), 0.0, 1.0) for penalty in _PENALTIES]
    errors = [float(examinations @ (p - rates) ** 2) for p in predictions]
    return predictions[int(np.argmin(errors))]


def choose_clip(
    documents: Queries, clips: Floats, labels: Floats, unclipped: Floats, sessions: Floats
) -> ClipChoice:
    """Choose the clip whose labels train the best linear model, by the unclipped labels of other queries.

    clips      (T,) clips in increasing order.
    labels     (T, N) labels with each clip; NaN where nothing is known.
    unclipped  (N,) unbiased labels; NaN where nothing is known.
    sessions   (Q,) sessions of each query.
    """
    if documents.n_queries < 2 or len(clips) == 1:
        return ClipChoice(clips, np.zeros(len(clips)), np.zeros(len(clips)), float(clips[0]))
    codes, known = documents.groups.codes, ~np.isnan(unclipped)
    weight = np.where(known, sessions[codes], 0.0)
    b = np.where(known, unclipped, 0.0)
    totals = np.maximum(np.bincount(codes, weight), 1e-300)
    ridge = _Ridge(documents, weight)
    of_queries = np.empty((len(clips), len(_PENALTIES), documents.n_queries))
    for t, label in enumerate(np.where(known, labels, 0.0)):
        for i, penalty in enumerate(_PENALTIES):
            f = ridge.predictions(label, penalty)
            # only differences within queries rank documents
            f = f - (np.bincount(codes, weight * f) / totals)[codes]
            of_queries[t, i] = np.bincount(codes, weight * (f * f - 2 * f * b))
    sums = of_queries.sum(axis=2)
    best_of = of_queries[np.arange(len(clips)), sums.argmin(axis=1)]
    best = int(sums.min(axis=1).argmin())
    errors = best_of.sum(axis=1) / totals.sum()
    spread = (best_of - best_of[best]).std(axis=1, ddof=1) * np.sqrt(documents.n_queries) / totals.sum()
    within = errors <= errors[best] + spread
    return ClipChoice(clips, errors, spread, float(clips[int(np.argmax(within))]))


class _Ridge:
    """Ridge regressions on standardized features, each of which predicts the documents of queries left out.

    The queries are divided into five folds, and the documents of a fold are predicted by a regression on the
    other folds.
    """

    def __init__(self, documents: Queries, weight: Floats) -> None:
        n = len(documents)
        self._Z = np.column_stack([standardized(documents.X), np.ones(n)])
        self._weight = weight
        n_folds = min(_FOLDS, documents.n_queries)
        of_queries = np.random.default_rng(0).permutation(documents.n_queries) % n_folds
        fold: Integers = of_queries[documents.groups.codes]
        self._folds = [np.flatnonzero(fold == i) for i in range(n_folds)]
        self._grams = [self._Z[rows].T @ (self._Z[rows] * weight[rows, None]) for rows in self._folds]

    def predictions(self, target: Floats, penalty: float) -> Floats:
        """Predictions (N,) of `target` (N,), given the penalty per unit of weight."""
        weighted = self._weight * target
        moments = [self._Z[rows].T @ weighted[rows] for rows in self._folds]
        gram, moment = np.sum(self._grams, axis=0), np.sum(moments, axis=0)
        free = np.r_[np.full(len(moment) - 1, penalty), 1e-9]  # next to no penalty on the constant
        predicted = np.empty(len(target))
        for rows, of_gram, of_moment in zip(self._folds, self._grams, moments, strict=True):
            H = gram - of_gram
            H = H + np.diag(free * max(float(H[-1, -1]), 1e-300))
            predicted[rows] = self._Z[rows] @ np.linalg.solve(H, moment - of_moment)
        return predicted
