"""The cascade model: users read from the top down, and leave with their first click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.clicks.models.sequences import (
    average_examination,
    checked_relevance,
    checked_weights,
    clicks_above,
    require_clicks,
    smoothed,
    sums,
)
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["CascadeModel"]


@final
@dataclass(frozen=True, eq=False)
class CascadeModel(ClickModel):
    """The cascade model: users read from the top down, and leave with their first click.

    A document is examined if nothing above it is clicked, and examined documents are clicked with the
    probability that is their relevance (Craswell et al. 2008). So the examination of every impression is
    known, and a log with several clicks in one session is impossible: use `DependentClickModel` for it.

    Parameters
    ----------
    relevance : array of shape (N,), optional
        Relevance of each document.
    examination : array of shape (K,), optional
        Average probability that a user examines each position; `fit` computes it.

    Examples
    --------
    >>> from sinkprop import Queries
    >>> documents = Queries(np.eye(3), [0, 0, 0], qid=["a", "a", "a"])
    >>> log = ClickLog(documents, [0, 1, 2, 0, 1, 2], [0, 1, 0, 0, 0, 1], [0, 3, 6])
    >>> CascadeModel().propensities(log).slope
    array([1., 1., 0., 1., 1., 1.])
    >>> users = CascadeModel.fit(log)
    >>> users.relevance.round(2), users.examination_curve()
    (array([0.13, 0.47, 0.7 ]), array([1. , 1. , 0.5]))
    """

    relevance: Floats | None = None
    examination: Floats | None = None

    def __post_init__(self) -> None:
        if self.relevance is not None:
            object.__setattr__(self, "relevance", checked_relevance(self.relevance))

    @classmethod
    def fit(cls, log: ClickLog, *, weight: ArrayLike | None = None) -> CascadeModel:
        """Estimate the relevance of each document: its clicks, divided by how often it was examined.

        To both counts, one impression with the average relevance of the log is added. So documents that
        nobody examined have the average, and no relevance is 0, nor 1 unless all are.

        Parameters
        ----------
        log : ClickLog
            Sessions with at most one click each, and a click in at least one of them.
        weight : array of shape (S,), optional
            Weight of each session. By default 1.

        Returns
        -------
        CascadeModel
            The model, with the relevance of the documents of the log.
        """
        weights = checked_weights(log, weight)
        require_clicks(log, weights)
        examined = cls().propensities(log).slope
        n = len(log.documents)
        clicks = sums(log.clicked * weights, log.rows, n)
        read = sums(examined * weights, log.rows, n)
        relevance = smoothed(clicks, read, float(clicks.sum() / read.sum()))
        return cls(relevance, average_examination(log, examined, weights))

    def examination_curve(self) -> Floats:
        if self.examination is None:
            raise ValueError(
                "examination: in the cascade model it depends on the clicks above, and its average is known "
                "for a log only; call CascadeModel.fit(log)."
            )
        return self.examination

    def propensities(self, log: ClickLog) -> Propensities:
        above = clicks_above(log.clicked, log.offsets)
        second = log.clicked & (above > 0)
        if second.any():
            s = int(np.searchsorted(log.offsets, np.argmax(second), side="right")) - 1
            raise ValueError(
                f"log: session {s} has several clicks, and {np.count_nonzero(second):,} clicks are below "
                "another; in the cascade model users leave with their first click. Use DependentClickModel."
            )
        slope = (above == 0).astype(np.float64)
        return Propensities(slope, np.zeros_like(slope))

    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        attracted: Mask = rng.random(len(relevance)) < relevance
        clicked: Mask = attracted & (clicks_above(attracted, offsets) == 0)
        return clicked
