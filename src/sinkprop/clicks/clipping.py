"""The choice of a clip: that whose estimates of the relevance have the least squared error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Integers

__all__ = ["ClipChoice", "choose_clip"]


@dataclass(frozen=True, eq=False)
class ClipChoice:
    """The errors by which a clip was chosen.

    Attributes
    ----------
    clips : array of shape (T,)
        Clips that were tried, in increasing order.
    errors : array of shape (T,)
        Estimated mean squared error of the relevance with each clip: variance and squared bias. It is not
        biased if predictions of the relevance do not depend on the clicks of the document, and can be
        negative.
    standard_errors : array of shape (T,)
        Standard error of the difference to the least error, over queries.
    clip : float
        The smallest clip whose error is within one standard error of the least.
    """

    clips: Floats
    errors: Floats
    standard_errors: Floats
    clip: float


def choose_clip(
    clips: Floats,
    variance: Floats,
    clicks: Floats,
    examinations: Floats,
    prediction: Floats,
    sessions: Floats,
    codes: Integers,
) -> ClipChoice:
    """Choose a clip by the squared error of the estimates, estimated without bias.

    An estimate m + a (y - m), where y = C / E is unbiased with variance v, has the squared error
    a^2 v + (1 - a)^2 (r - m)^2, and (y - m)^2 - v is an unbiased estimate of (r - m)^2.

    clips         (T,) clips in increasing order.
    variance      (N,) estimated variance of C.
    clicks        (N,) clicks less those expected without relevance, C.
    examinations  (N,) expected examinations E.
    prediction    (N,) predicted relevance m.
    sessions      (Q,) sessions of each query.
    codes         (N,) query of each document.
    """
    known = np.flatnonzero(examinations > 0)
    E, m, query = examinations[known], prediction[known], codes[known]
    N = sessions[query]
    y, v = clicks[known] / E, variance[known] / E**2
    a = E / np.maximum(E, clips[:, None] * N)
    of_documents = N * (a**2 * v + (1 - a) ** 2 * ((y - m) ** 2 - v))
    Q = len(sessions)
    of_queries = np.stack([np.bincount(query, errors, Q) for errors in of_documents])
    total = float(N.sum())
    errors = of_queries.sum(axis=1) / total
    best = int(errors.argmin())
    spread = (of_queries - of_queries[best]).std(axis=1) * np.sqrt(Q) / total
    within = errors <= errors[best] + spread
    return ClipChoice(clips, errors, spread, float(clips[int(np.argmax(within))]))
