"""The position-based model: a user examines a position, and clicks the document there if it is relevant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["PositionBasedModel"]


@final
@dataclass(frozen=True, eq=False)
class PositionBasedModel(ClickModel):
    """The position-based model: P(click) = examination[position] * relevance[document].

    Parameters
    ----------
    examination : array of shape (K,)
        Probability that a user examines each position, relative to the first.
    relevance : array of shape (N,), optional
        Relevance of each document.
    """

    examination: Floats
    relevance: Floats | None = None

    def examination_curve(self) -> Floats:
        return self.examination

    def propensities(self, log: ClickLog) -> Propensities:
        slope = self.examination[log.positions - 1]
        return Propensities(slope, np.zeros_like(slope))

    def draw(self, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
        sizes = np.diff(offsets)
        at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        clicked: Mask = rng.random(len(relevance)) < self.examination[at] * relevance
        return clicked
