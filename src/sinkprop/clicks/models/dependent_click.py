"""The dependent click model: after a click, users go on with a probability that depends on the position."""

from __future__ import annotations

from dataclasses import dataclass, replace
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

__all__ = ["DependentClickModel"]

_ITERATIONS, _CHANGE = 1000, 1e-6  # of EM at most, and of a continuation in the last one
_CERTAIN = 1 - 1e-12  # largest relevance of a document that was examined and not clicked


@final
@dataclass(frozen=True, eq=False)
class DependentClickModel(ClickModel):
    """The dependent click model: after a click, users go on with a probability that depends on the position.

    Users read from the top down (Guo, Liu and Wang 2009). An examined document is clicked with the
    probability that is its relevance. After a click at position k, a user reads on with the probability
    continuation[k - 1]; without a click, always. If all continuations are 0, this is `CascadeModel`.

    Whether a user left after the last click, or read on and found nothing, is not observed. The probability
    that an impression was examined therefore depends on the relevance of the documents between it and the
    click above, and `propensities` needs the relevance of the documents of the log.

    Parameters
    ----------
    continuation : array of shape (K - 1,)
        Probability of reading on after a click at each position but the last. More entries are allowed.
    relevance : array of shape (N,), optional
        Relevance of each document.
    examination : array of shape (K,), optional
        Average probability that a user examines each position; `fit` computes it.

    Examples
    --------
    >>> from sinkprop import Queries
    >>> from sinkprop.clicks import simulate_clicks
    >>> queries = Queries(np.eye(4), [0, 2, 0, 1], qid=["a"] * 4)
    >>> truth = DependentClickModel([0.8, 0.5, 0.3])
    >>> scores = np.random.default_rng(0).normal(size=(10, 4))  # of ten production rankers
    >>> log = simulate_clicks(queries, scores, 20_000, truth, relevance=[0.1, 0.7, 0.3, 0.5], seed=0)
    >>> users = DependentClickModel.fit(log)
    >>> users.continuation.round(1), users.relevance.round(1)
    (array([0.8, 0.5, 0.3]), array([0.1, 0.7, 0.3, 0.5]))
    """

    continuation: Floats
    relevance: Floats | None = None
    examination: Floats | None = None

    def __post_init__(self) -> None:
        array = np.asarray(self.continuation, dtype=np.float64)
        if array.ndim != 1 or not ((array >= 0) & (array <= 1)).all():
            raise ValueError(
                "continuation must have one probability from 0 to 1 per position, (K - 1,) or longer; got "
                f"{self.continuation!r}."
            )
        object.__setattr__(self, "continuation", array)
        if self.relevance is not None:
            object.__setattr__(self, "relevance", checked_relevance(self.relevance))

    @classmethod
    def fit(cls, log: ClickLog, *, weight: ArrayLike | None = None) -> DependentClickModel:
        """Estimate relevance and continuation by maximum likelihood.

        The EM algorithm averages over whether a user left after the last click. One observation is added per
        parameter: for each document an impression with the average relevance of the impressions down to the
        last click, and for each position a click after which half of the users read on. So documents that
        were never shown get the average relevance, and positions without clicks the continuation 1/2.

        Parameters
        ----------
        log : ClickLog
            Sessions with two positions or more.
        weight : array of shape (S,), optional
            Weight of each session. By default 1.

        Returns
        -------
        DependentClickModel
            The model, with the relevance of the documents of the log.
        """
        weights = checked_weights(log, weight)
        require_clicks(log, weights)
        known = _Known.of(log, weights)
        continuation, relevance = known.start()
        for _ in range(_ITERATIONS):
            before = continuation
            continuation, relevance = known.step(continuation, relevance)
            if np.abs(continuation - before).max() <= _CHANGE:
                break
        fitted = cls(continuation, relevance)
        examined = fitted.propensities(log).slope
        return replace(fitted, examination=average_examination(log, examined, weights))

    def examination_curve(self) -> Floats:
        if self.examination is None:
            raise ValueError(
                "examination: in the dependent click model it depends on the clicks above, and its average "
                "is known for a log only; call DependentClickModel.fit(log)."
            )
        return self.examination

    def propensities(self, log: ClickLog) -> Propensities:
        self._check_length(log.longest)
        relevance = np.minimum(self._of_documents(log), _CERTAIN)
        slope = np.empty(len(log))
        at = log.offsets[:-1]  # the impressions at one position of all sessions that have it
        left = log.sizes
        examined = np.ones(len(at))
        for k in range(log.longest):
            slope[at] = examined
            kept = left > k + 1
            at, left, examined = at[kept], left[kept], examined[kept]
            if not len(at):
                break
            skipped = examined * (1 - relevance[log.rows[at]])
            still = skipped / (skipped + (1 - examined))  # Bayes: examined and not clicked, or not examined
            examined = np.where(log.clicked[at], self.continuation[k], still)
            at = at + 1
        return Propensities(slope, np.zeros_like(slope))

    def probabilities(self, log: ClickLog, relevance: Floats | None = None) -> Floats:
        model = self if relevance is None else replace(self, relevance=relevance)
        return ClickModel.probabilities(model, log)

    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        sizes = np.diff(offsets)
        self._check_length(int(sizes.max()))
        padded = np.append(self.continuation, 0.0)  # at the last position there is nothing to continue to
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        attracted = rng.random(len(relevance)) < relevance
        leaves = attracted & (rng.random(len(relevance)) >= padded[np.minimum(at, len(padded) - 1)])
        clicked: Mask = attracted & (clicks_above(leaves, offsets) == 0)
        return clicked

    def _check_length(self, longest: int) -> None:
        have = len(self.continuation)
        if have < longest - 1:
            raise ValueError(
                f"continuation has {have} positions, but sessions of {longest} positions need {longest - 1}; "
                f"use log.first({have + 1}), or fit the model to a log with as many positions."
            )

    def _of_documents(self, log: ClickLog) -> Floats:
        if self.relevance is None or len(self.relevance) != len(log.documents):
            got = "none" if self.relevance is None else f"({len(self.relevance)},)"
            raise ValueError(
                f"relevance must have one number per document of the log, ({len(log.documents)},), because "
                "examination depends on the relevance of the documents above; got "
                f"{got}. Fit the model, or give it with dataclasses.replace(model, relevance=...)."
            )
        return self.relevance


@dataclass(frozen=True, eq=False)
class _Known:
    """Sums over the sessions that do not depend on whether users left, so that no iteration changes them.

    A tail is the impressions below the last click of a session that has them.

    clicks      (N,) clicks on each document.
    examined    (N,) impressions that were certainly examined: all that do not belong to a tail.
    continued   (K - 1,) clicks at each position that have another click below.
    could       (K - 1,) clicks at each position that have an impression below.
    rows        (T,) documents of the tails, one tail after the other.
    sizes       (L,) number of impressions of each tail.
    position    (L,) position of the click above each tail, from 0.
    weight      (L,) weight of its session.
    """

    clicks: Floats
    examined: Floats
    continued: Floats
    could: Floats
    rows: Integers
    sizes: Integers
    position: Integers
    weight: Floats

    @classmethod
    def of(cls, log: ClickLog, weights: Floats) -> _Known:
        if log.longest < 2:
            raise ValueError(
                "log: every session shows one position only, so nothing tells whether users read on after a "
                "click; log all positions that were shown."
            )
        n, K = len(log.documents), log.longest - 1
        at = log.positions - 1
        above = clicks_above(log.clicked, log.offsets)
        total = np.repeat(np.add.reduceat(log.clicked, log.offsets[:-1], dtype=np.int32), log.sizes)
        tail = (above == total) & (total > 0) & ~log.clicked
        below = np.repeat(log.sizes.astype(np.int32), log.sizes) - log.positions  # impressions below each
        could = log.clicked & (below > 0)
        last = np.flatnonzero(could & (above + 1 == total))
        return cls(
            clicks=sums(log.clicked * weights, log.rows, n),
            examined=sums(~tail * weights, log.rows, n),
            continued=sums((could & (above + 1 < total)) * weights, at, K)[:K],
            could=sums(could * weights, at, K)[:K],
            rows=log.rows[tail],
            sizes=below[last],
            position=at[last],
            weight=weights[last],
        )

    def start(self) -> tuple[Floats, Floats]:
        """(continuation, relevance) to begin with: a half, and as if users with a last click had left."""
        return np.full(len(self.could), 0.5), smoothed(self.clicks, self.examined, self._average)

    def step(self, continuation: Floats, relevance: Floats) -> tuple[Floats, Floats]:
        """(continuation, relevance) after one iteration of EM."""
        stayed = self.weight * self._stayed(continuation, relevance)
        K = len(continuation)
        continued = self.continued + sums(stayed, self.position, K)
        examined = sums(np.repeat(stayed, self.sizes), self.rows, len(relevance))
        relevance = smoothed(self.clicks, self.examined + examined, self._average)
        return (continued + 0.5) / (self.could + 1), relevance

    def _stayed(self, continuation: Floats, relevance: Floats) -> Floats:
        """Probability that the user above each tail read it, given that nothing in it was clicked, (L,)."""
        if not len(self.sizes):
            return np.empty(0)
        skipped = np.log1p(-np.minimum(relevance, _CERTAIN))[self.rows]
        starts = np.cumsum(self.sizes) - self.sizes
        read = continuation[self.position] * np.exp(np.add.reduceat(skipped, starts))
        stayed: Floats = read / (read + (1 - continuation[self.position]))
        return stayed

    @property
    def _average(self) -> float:
        """Average relevance of the impressions that were certainly examined."""
        return float(self.clicks.sum() / self.examined.sum())
