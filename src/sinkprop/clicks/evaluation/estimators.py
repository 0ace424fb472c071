"""The estimators: one value per session, whose mean is the estimate and whose spread is its error.

An impression i of the document j(i) has the click c_i (less the probability of a click without relevance),
the examination a_i, and the chance rho_i, the expected examination of the document in a session. With the
weights lambda_j of the new ranking, the value of session s of query q is

    sum_(j in q) lambda_j m_j + sum_(i in s) lambda_j(i) (c_i - a_i m_j(i)) / rho_i,

for "ips" with m = 0 and for "doubly robust" with an estimate m of the relevance. Its expectation is
sum_j lambda_j r_j for any m that does not depend on the clicks of the session.
"""

from __future__ import annotations

import numpy as np

from sinkprop.clicks.evaluation.folds import folds_of
from sinkprop.clicks.evaluation.signals import Signal
from sinkprop.clicks.evaluation.targets import Target, reciprocal_ranks
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["reciprocal_values", "self_normalized_values", "session_values", "standard_error"]


def session_values(
    signal: Signal, weights: Floats, seen: Floats, relevance: Floats | None, clip: float
) -> Floats:
    """Values (S,) of the sessions, centered so that their spread gives the error of their mean.

    weights    (N,) lambda.
    seen       (I,) the clicks; or the examination, to estimate the sum of lambda.
    relevance  (F, N) m for the sessions of each fold; None for 0.
    clip       lower limit of the chance.

    If the chance is estimated by the mean examination over sessions of the query, a session that examines a
    document more than the others lowers the weight of all. To first order, this subtracts
    lambda_j d_j (a - rho_j) / rho_j from the value of a session with the examination a, where d_j is
    sum_i (c_i - a_i m_j) / sum_i a_i. The mean over sessions does not change.
    """
    residual, direct = seen, np.zeros(signal.n_sessions)
    m = np.zeros(len(seen))
    if relevance is not None:
        fold = folds_of(signal.n_sessions, len(relevance))
        m = relevance[fold[signal.sessions], signal.rows]
        residual = seen - signal.examined * m
        direct = _direct(signal, weights, relevance, fold)
    factor = weights[signal.rows] / np.maximum(signal.chance, clip)
    if signal.counted.any():
        gap = signal.examined * (_rate(signal, seen) - m) * (signal.counted & _free(signal, clip))
        residual = residual - gap
        direct = direct + signal.by_query(signal.by_document(factor * gap) / np.maximum(signal.shown, 1))
    values: Floats = direct + signal.by_session(factor * residual)
    return values


def _direct(signal: Signal, weights: Floats, relevance: Floats, fold: Integers) -> Floats:
    """Sums (S,) of lambda m over the documents of the query of each session, with the m of its fold (S,).

    If the expected sum of a_i / rho_i depends on the session, so does the expectation of what is subtracted
    for m. All sessions then have the mean of m with that expectation as weight.
    """
    if len(relevance) == 1:
        return signal.by_query(weights * relevance[0])
    if signal.shares is not None:
        return signal.by_query(weights * (signal.shares * relevance).sum(axis=0))
    sums = np.stack([signal.by_query(weights * m) for m in relevance])
    return sums[fold, np.arange(signal.n_sessions)]


def _free(signal: Signal, clip: float) -> Mask:
    """Impressions (I,) of documents whose chance is not clipped in any counted impression."""
    clipped = signal.by_document(np.where(signal.counted, signal.chance < clip, 0.0)) > 0
    return ~clipped[signal.rows]


def _rate(signal: Signal, seen: Floats) -> Floats:
    """Sum of `seen` per examination, (I,), over the counted impressions of the document.

    Without a model, over the others only, with the mean of all documents as a weak prior: the spread of a few
    clicks about their own mean is too small.
    """
    total, examined = (signal.by_document(x * signal.counted)[signal.rows] for x in (seen, signal.examined))
    if not signal.drawn:
        rate: Floats = total / np.where(examined > 0, examined, 1.0)
        return rate
    mean = float(seen[signal.counted].mean())
    others: Floats = (total - seen + mean) / np.maximum(examined, 1.0)
    return others


def self_normalized_values(signal: Signal, weights: Floats, clip: float) -> Floats:
    """Centered values (S,) of the self-normalized estimate, L x / z.

    L is the mean over sessions of sum_j lambda_j, x that of the "ips" values, and z that of the same values
    with examination in place of clicks, whose expectation is L if the log covers all documents.
    """
    total = signal.by_query(weights)
    x = session_values(signal, weights, signal.clicks, None, clip)
    z = session_values(signal, weights, signal.examined, None, clip)
    ratio = x.mean() / z.mean()
    values: Floats = total * ratio + total.mean() / z.mean() * (x - ratio * z)
    return values


def reciprocal_values(signal: Signal, target: Target, relevance: Floats | None, clip: float) -> Floats:
    """Centered values (S,) of the expected 1 / rank of the first click.

    The expectation is a product of relevances of different documents, whose estimates are independent given
    the positions, so that it can be computed from estimates without bias. The error is of first order.
    """
    m = np.zeros(len(signal.codes)) if relevance is None else relevance[0]
    residual = signal.by_document(
        (signal.clicks - signal.examined * m[signal.rows]) / np.maximum(signal.chance, clip)
    )
    estimate = m + residual / np.maximum(signal.shown, 1)
    counted = np.flatnonzero(target.counted)
    cells = signal.codes[counted], target.ranks[counted] - 1
    clicks = np.zeros((signal.n_queries, int(target.ranks[counted].max())))
    clicks[cells] = (target.base + target.slope * estimate)[counted]
    value, slopes = reciprocal_ranks(clicks)
    weights = np.zeros(len(m))
    weights[counted] = slopes[cells] * target.slope[counted]
    linear = session_values(signal, weights, signal.clicks, relevance, clip)
    centered: Floats = value[signal.queries] - signal.by_query(weights * estimate) + linear
    return centered


def standard_error(values: Floats, clusters: np.ndarray | None) -> tuple[float, int]:
    """Return (standard error of the mean, degrees of freedom); NaN for a single unit.

    clusters  (S,) query of each session, if sessions of a query count as one unit; else None.
    """
    apart = values - values.mean()
    if clusters is not None:
        sizes = np.bincount(clusters)
        apart = np.bincount(clusters, apart)[sizes > 0]
    units = len(apart)
    if units < 2:
        return float("nan"), 0
    squares = float(apart @ apart) * units / (units - 1)
    return float(np.sqrt(squares)) / len(values), units - 1
