"""Predictions of the relevance of documents from features, by models that saw other queries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.clicks.models.hierarchical import fit_coefficients
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries

__all__ = ["columns", "predictions", "standardized", "tell_apart"]

_FOLDS = 5
_BINS = 64
_FARTHEST = 5.0  # standard deviations at which standardized features are cut off


def standardized(X: NDArray[np.floating]) -> Floats:
    """Features with mean 0 and variance 1, (N, D); 0 for missing values and constant features."""
    known = np.isfinite(X)
    count = np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, X, 0.0).astype(np.float64)
    mean = filled.sum(axis=0) / count
    Z: Floats = np.where(known, filled - mean, 0.0)
    spread = np.sqrt((Z * Z).sum(axis=0) / count)
    return Z / np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, np.inf)


def columns(documents: Queries) -> Floats:
    """Standardized features, their logarithms, and their differences from the mean of the query, (N, P).

    The relevance of a document depends on how its features compare with those of the other documents of the
    query as well as on their values. Columns that are the same for all documents are left out, and the last
    one is 1.
    """
    X = np.asarray(documents.X, dtype=np.float64)
    logs = np.sign(X) * np.log1p(np.abs(X))
    tables = [standardized(X), standardized(logs), _within(documents, X)]
    Z = np.clip(np.column_stack(tables), -_FARTHEST, _FARTHEST)
    return np.column_stack([Z[:, Z.any(axis=0)], np.ones(len(X))])


def tell_apart(documents: Queries) -> bool:
    """Whether a feature differs between documents."""
    return bool((np.fmax.reduce(documents.X, axis=0) > np.fmin.reduce(documents.X, axis=0)).any())


def _within(documents: Queries, X: Floats) -> Floats:
    """Features with mean 0 and variance 1 within each query; 0 where they are missing or constant."""
    codes, n = documents.groups.codes, documents.n_queries
    Z = np.empty_like(X)
    for j in range(X.shape[1]):
        known = np.isfinite(X[:, j])
        filled = np.where(known, X[:, j], 0.0)
        count = np.maximum(np.bincount(codes, known, n), 1)
        mean = np.bincount(codes, filled, n) / count
        centered = np.where(known, filled - mean[codes], 0.0)
        spread = np.sqrt(np.bincount(codes, centered**2, n) / count)
        Z[:, j] = centered / np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, np.inf)[codes]
    return Z


def predictions(relevance: Any, documents: Queries, shown: Integers, y: Floats, weight: Floats) -> Floats:
    """Prediction for each document, (N,), larger for the more relevant, by a model fitted on other queries.

    relevance  "linear" for a logistic regression on `columns`, "trees" for boosted regression trees, of whose
               predictions these are the logits, or a ranker.
    shown      (D,) rows of the documents with estimates.
    y          (D,) estimated relevance.
    weight     (D,) weight of the estimates, their numbers of examinations; rankers do not use them.
    """
    folds = _folds(documents)
    X = documents.X
    if relevance == "linear":
        X = columns(documents)
    elif isinstance(relevance, str):
        X = _binned(np.column_stack([X, _within(documents, np.asarray(X, np.float64))]))
    found = np.empty(len(documents))
    for fold in np.unique(folds):
        train, test = folds[shown] != fold, np.flatnonzero(folds == fold)
        rows = shown[train]
        if not len(rows):
            found[test] = 0.0
        elif relevance == "linear":
            b, _ = fit_coefficients(y[train] * weight[train], weight[train], X[rows])
            found[test] = X[test] @ b
        elif isinstance(relevance, str):
            found[test] = _trees(X[rows], y[train], weight[train], X[test])
        else:
            found[test] = _ranked(
                relevance, X[rows], y[train], documents.qid[rows], X[test], documents.qid[test]
            )
    return found


def _folds(documents: Queries) -> Integers:
    """Fold of each document: whole queries, or single documents if there are fewer queries than folds."""
    rng = np.random.default_rng(0)
    if documents.n_queries < _FOLDS:
        return rng.permutation(len(documents)) % min(_FOLDS, len(documents))
    folds: Integers = (rng.permutation(documents.n_queries) % _FOLDS)[documents.groups.codes]
    return folds


def _binned(X: Floats) -> Floats:
    """Index of the quantile of each entry in its column; scikit-learn finds bins of weighted rows slowly."""
    shares = np.linspace(0, 1, _BINS + 1)[1:-1]
    binned = np.full(X.shape, np.nan)
    for j in range(X.shape[1]):
        known = np.isfinite(X[:, j])
        if known.any():
            thresholds = np.unique(np.quantile(X[known, j], shares))
            binned[known, j] = np.searchsorted(thresholds, X[known, j])
    return binned


def _trees(X: Any, y: Floats, weight: Floats, new: Any) -> Floats:
    from sklearn.ensemble import HistGradientBoostingRegressor

    known = np.isfinite(X).any(axis=0)  # scikit-learn has no bins for a column of missing values
    if not y.any() or not known.any():
        return np.zeros(len(new))
    # With Poisson loss and the weights E_d, the loss of y = X_d / E_d is the likelihood of the clicks X_d.
    model = HistGradientBoostingRegressor(
        loss="poisson", max_leaf_nodes=15, min_samples_leaf=40, early_stopping=False
    )
    p = np.clip(model.fit(X[:, known], y, weight).predict(new[:, known]), 1e-6, 1 - 1e-6)
    logits: Floats = np.log(p / (1 - p))
    return logits


def _ranked(ranker: Any, X: Any, y: Floats, qid: Any, new: Any, new_qid: Any) -> Floats:
    from sklearn.base import clone

    scores = np.asarray(
        clone(ranker, safe=False).fit(X, y, qid=qid).predict(new, qid=new_qid), dtype=np.float64
    )
    if scores.shape != (len(new),) or not np.isfinite(scores).all():
        raise ValueError(
            f"relevance: predict of {type(ranker).__name__} must return one finite score per document, "
            f"({len(new)},); got an array of shape {scores.shape}."
        )
    # The scores of rankers fitted on different folds have different scales.
    spread = float(scores.std())
    standard: Floats = (scores - scores.mean()) / (spread if spread > 0 else 1.0)
    return np.clip(standard, -_FARTHEST, _FARTHEST)
