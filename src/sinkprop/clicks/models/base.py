"""The base class of click models: how probable a click is, given the relevance and what happened above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickLog
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["ClickModel", "Propensities"]


@dataclass(frozen=True, eq=False)
class Propensities:
    """Probability of a click on each impression, as a function of the document's relevance.

    An impression of a document of relevance r is clicked with the probability slope r + intercept, given the
    clicks above it.

    Attributes
    ----------
    slope : array of shape (M,)
        For models without trust bias, the probability that the document was examined.
    intercept : array of shape (M,)
        Probability of a click on a document of relevance 0.
    """

    slope: Floats
    intercept: Floats


class ClickModel(ABC):
    """A model of clicks on a ranking.

    The relevance of a document is the probability, from 0 to 1, that a user who examines it clicks it. Models
    differ in how probable it is that a position is examined, and in what else causes clicks.
    """

    relevance: Floats | None
    interval: Floats | None = None  # bounds (2, K) of the examination curve, if the fit gives them

    @abstractmethod
    def examination_curve(self) -> Floats:
        """Probability that a user examines each position, relative to the first, (K,).

        For models in which this depends on the clicks above, an average.
        """

    @abstractmethod
    def propensities(self, log: ClickLog) -> Propensities:
        """Probability of a click on each impression of a log as a function of the document's relevance.

        Raises a ValueError if the log has more positions than the model.
        """

    @abstractmethod
    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        """Draw clicks on sessions.

        relevance  (M,) relevance of the documents shown, session after session, from the top down.
        offsets    (S + 1,) offsets of the sessions.
        """

    def probabilities(self, log: ClickLog, relevance: Floats | None = None) -> Floats:
        """Probability of a click on each impression, given the clicks above it, (M,).

        relevance  (N,) relevance of each document; by default, that of the model.
        """
        given = self.relevance if relevance is None else relevance
        if given is None:
            raise ValueError("relevance: this model does not hold the relevance of documents; give it.")
        of_documents = np.asarray(given, dtype=np.float64)
        if of_documents.shape != (len(log.documents),):
            raise ValueError(
                f"relevance must have one number per document of the log, ({len(log.documents)},); got "
                f"{of_documents.shape}."
            )
        of_impressions = of_documents[log.rows]
        wrong = ~np.isfinite(of_impressions)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                "relevance must be finite for all documents that the log shows; that of row "
                f"{log.rows[i]} is {of_impressions[i]}."
            )
        p = self.propensities(log)
        return np.clip(p.slope * of_impressions + p.intercept, 0.0, 1.0)

    def log_likelihood(self, log: ClickLog, relevance: ArrayLike | None = None) -> float:
        """Mean over the impressions of the logarithm of the probability of what was observed."""
        p = np.clip(self.probabilities(log, _array(relevance)), _LEAST, 1 - _LEAST)
        return float(np.where(log.clicked, np.log(p), np.log1p(-p)).mean())

    def perplexity(self, log: ClickLog, relevance: ArrayLike | None = None) -> Floats:
        """Perplexity 2^-(mean log2 probability of what was observed) at each position, (K,).

        1 is perfect, and 2 is a fair coin.
        """
        p = np.clip(self.probabilities(log, _array(relevance)), _LEAST, 1 - _LEAST)
        bits = -np.where(log.clicked, np.log2(p), np.log2(1 - p))
        at = log.positions - 1
        perplexity: Floats = 2 ** (np.bincount(at, bits) / np.bincount(at))
        return perplexity


def _array(relevance: ArrayLike | None) -> Floats | None:
    return None if relevance is None else np.asarray(relevance, dtype=np.float64)


_LEAST = 1e-10  # probability below which an outcome is not counted as less probable
