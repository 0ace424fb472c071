"""Probability that a document is relevant: a logistic model of its score, its rank and its query's scores.

The logit is a sum of increasing functions of the document's score (linear and piecewise linear) and of its
place in its query (standardized score, logarithm of the rank, whether it is among the first 1, 3 or 10), and
of a linear function of its query (length, spread, level and lead of the scores). The coefficients of the
increasing functions are not below 0, so that probabilities decrease down the ranking. Ridge penalties of
several sizes are cross-validated over queries, and the model is the mean of their coefficients, in which a
penalty counts the more, the better its log score is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sinkprop.calibration.ridge import curvature, log_losses, ridge_logistic, sigmoid
from sinkprop.calibration.widths import query_means, scaled
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Groups
from sinkprop.metrics.ranking import ranks_of
from sinkprop.model_files import saved_floats

__all__ = ["DocumentModel", "Places", "fit_document_model", "places"]

_QUANTILES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 0.998)  # of the scores: the knots
_PENALTIES = (3.0, 100.0, 3000.0, 100000.0)
_N_PLACE, _N_QUERY = 5, 4
_FOLDS = 5
_FIT_ROWS, _CV_ROWS = 30_000, 10_000  # documents of a fit: if there are more, some of them at random


@dataclass(frozen=True, eq=False)
class Places:
    """Inputs of the model: scores (N,) of documents, columns (N, 9) of their places, and their queries."""

    scores: Floats
    columns: Floats
    groups: Groups
    ranks: Integers


def places(scores: Floats, groups: Groups, scale: float) -> Places:
    """Scores in units of `scale`, and the places of the documents in their queries."""
    s, codes = scaled(scores, scale), groups.codes
    means = query_means(s, groups)
    away = s - means[codes]
    spreads = np.sqrt(query_means(away * away, groups))
    ranks = ranks_of(scores, groups)
    top = np.where(ranks <= 10, s, 0.0)
    level = np.bincount(codes, top, len(groups.queries)) / np.minimum(groups.sizes, 10)
    lead = np.bincount(codes, np.where(ranks == 1, s, 0.0), len(groups.queries)) - level
    of_queries = np.stack([np.log(groups.sizes), spreads, level, lead], axis=1)
    columns = np.column_stack(
        [away / (spreads[codes] + 0.25), -np.log(ranks), ranks <= 1, ranks <= 3, ranks <= 10]
    )
    return Places(s, np.concatenate([columns, of_queries[codes]], axis=1), groups, ranks)


@dataclass(frozen=True, eq=False)
class DocumentModel:
    """A fitted model of one property of documents, such as label >= 1.

    knots         (K,) knots of the piecewise linear function of the score.
    coefficients  (1 + (K - 1) + 9 + 1,) of the score, its pieces, the places and queries, and 1.
    """

    knots: Floats
    coefficients: Floats

    def logits(self, documents: Places) -> Floats:
        """Logit of the probability for each document."""
        # One rounded sum after the other, so that no document's sum depends on other documents, and that the
        # sums of increasing functions increase.
        columns = _columns(documents.scores, documents.columns, self.knots)
        total = np.full(len(documents.scores), self.coefficients[-1])
        for coefficient, column in zip(self.coefficients, columns, strict=False):
            total += coefficient * column
        return total

    def __call__(self, documents: Places) -> Floats:
        """Probability for each document."""
        return sigmoid(self.logits(documents))

    def record(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {"knots": self.knots, "coefficients": self.coefficients}

    @classmethod
    def from_record(cls, state: dict[str, Any]) -> DocumentModel:
        """Read what `record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
        n = len(state["knots"])
        knots = saved_floats("knots", state["knots"], (n,))
        if n < 1 or (knots[1:] <= knots[:-1]).any():
            raise ValueError("calibration: knots must be increasing")
        size = 1 + (n - 1) + _N_PLACE + _N_QUERY + 1
        return cls(knots, saved_floats("coefficients", state["coefficients"], (size,)))


def fit_document_model(documents: Places, outcome: Mask) -> tuple[DocumentModel, Floats]:
    """Fit the model to documents whose outcome, such as label >= 1, is known.

    Returns the model and logits (N,) of models that were fitted to other queries; NaN if none of these has a
    document with the outcome.
    """
    rng = np.random.default_rng(7)
    folds = (rng.permutation(len(documents.groups.queries)) % _FOLDS)[documents.groups.codes]
    rows = rng.permutation(len(outcome))[:_FIT_ROWS]
    knots, t = np.unique(np.quantile(documents.scores, _QUANTILES)), outcome.astype(np.float64)
    Z = _basis(documents, knots, rows)
    center, spread = Z[:, :-1].mean(axis=0), Z[:, :-1].std(axis=0)
    spread[spread <= 1e-12 * (1 + np.abs(center))] = np.inf  # no coefficient for a column of equal values
    Z[:, :-1] = (Z[:, :-1] - center) / spread
    penalties = np.outer(_PENALTIES, _penalty_shape(len(knots)))
    bounded = np.arange(Z.shape[1]) < Z.shape[1] - _N_QUERY - 1
    paths = _ridge_path(Z, t[rows], penalties, bounded)

    some = rows[:_CV_ROWS]
    logits = np.full((len(penalties), len(t)), np.nan)
    for k, models in enumerate(_fold_models(Z[: len(some)], t[some], folds[some], paths, penalties, bounded)):
        own = np.flatnonzero(folds == k)
        logits[:, own] = _raw(models, center, spread) @ _basis(documents, knots, own).T
    shares = _shares(logits, t, documents.groups)
    return DocumentModel(knots, _raw(shares @ paths, center, spread)), shares @ logits


def _columns(s: Floats, columns: Floats, knots: Floats) -> Iterator[Floats]:
    """Columns of the model, without that of ones, of documents with the scores s."""
    yield s
    for a, b in pairwise(knots):
        yield np.clip((s - a) / (b - a), 0, 1)
    yield from columns.T


def _basis(documents: Places, knots: Floats, rows: Integers) -> Floats:
    """Columns of the model for some documents, with a last column of ones."""
    s = documents.scores[rows]
    basis: Floats = np.column_stack([*_columns(s, documents.columns[rows], knots), np.ones(len(s))])
    return basis


def _penalty_shape(n_knots: int) -> Floats:
    """Relative strength of the penalty on each coefficient."""
    shape = np.ones(n_knots + _N_PLACE + _N_QUERY + 1)
    shape[0], shape[1:n_knots], shape[-1] = 0.0, 0.3, 0.0
    shape[n_knots + 2] = 0.03  # first rank: its mean probability is to be right
    return shape


def _raw(b: Floats, center: Floats, spread: Floats) -> Floats:
    """Coefficients (..., D) of columns, from those of standardized columns."""
    raw = b.copy()
    raw[..., :-1] /= spread
    raw[..., -1] -= raw[..., :-1] @ center
    return raw


def _ridge_path(Z: Floats, t: Floats, penalties: Floats, bounded: Mask) -> Floats:
    """Coefficients (P, D) for each penalty, each found from those of the larger penalty before."""
    mean = t.mean().clip(1e-6, 1 - 1e-6)
    b = np.zeros(Z.shape[1])
    b[-1] = np.log(mean / (1 - mean))
    paths = np.empty_like(penalties)
    for i in reversed(range(len(penalties))):
        paths[i] = b = ridge_logistic(Z, t, penalties[i], bounded, b)
    return paths


def _fold_models(
    Z: Floats, t: Floats, folds: Integers, paths: Floats, penalties: Floats, bounded: Mask
) -> Floats:
    """Coefficients (F, P, D) of models that were fitted without the documents of each fold.

    They are close to those of all documents, `paths`, and are found from there with few passes over the data:
    the second derivatives at `paths` are sums over folds. NaN if the other folds have no outcome of 1.
    """
    models = np.full((_FOLDS, *paths.shape), np.nan)
    others = [folds != k for k in range(_FOLDS)]
    Zs, ts = [Z[rows] for rows in others], [t[rows] for rows in others]
    for i, b in enumerate(paths):
        parts = np.stack([curvature(Z[folds == k], b) for k in range(_FOLDS)])
        for k in range(_FOLDS):
            if ts[k].any():
                H = np.delete(parts, k, axis=0).sum(axis=0)
                models[k, i] = ridge_logistic(Zs[k], ts[k], penalties[i], bounded, b, H)
    return models


def _shares(logits: Floats, t: Floats, groups: Groups) -> Floats:
    """Share (P,) of each penalty in the model, by the log losses of held-out queries."""
    known = ~np.isnan(logits[0])
    shares = np.zeros(len(logits))
    if not known.any():
        shares[-1] = 1
        return shares
    codes = groups.codes[known]
    losses = np.stack([np.bincount(codes, log_losses(x[known], t[known])) for x in logits])
    losses = losses[:, np.unique(codes)]
    away = losses - losses[losses.sum(axis=1).argmin()]
    errors = away.std(axis=1) * np.sqrt(away.shape[1])
    z = np.divide(away.sum(axis=1), errors, out=np.zeros(len(away)), where=errors > 0)
    shares[:] = np.exp(-z * z)
    shares /= shares.sum()
    return shares
