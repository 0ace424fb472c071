"""Scores of the queries that chose the model, by models that were not trained on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["MOST_ROWS", "HeldOut", "taken_queries"]

MOST_ROWS = 100_000  # documents that are kept, unless one query has more


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores and labels of held-out queries, whose documents are consecutive rows.

    The scores have the scale of the fitted model's. With cross-validation they come from the models of the
    folds, so that no query is scored by a model that was trained on it.

    scores  (N,) scores.
    labels  (N,) labels.
    sizes   (Q,) number of documents of each query.
    """

    scores: Floats
    labels: Floats
    sizes: Integers

    def limited(self) -> HeldOut:
        """The same queries or, if they have more than `MOST_ROWS` documents, some of them."""
        taken = taken_queries(self.sizes)
        if taken.all():
            return self
        rows = np.repeat(taken, self.sizes)
        return HeldOut(self.scores[rows], self.labels[rows], self.sizes[taken])

    @classmethod
    def joined(cls, parts: Iterable[HeldOut]) -> HeldOut | None:
        """The queries of all parts together; None if there are none."""
        some = [part for part in parts if len(part.sizes)]
        if not some:
            return None
        return cls(
            np.concatenate([part.scores for part in some]),
            np.concatenate([part.labels for part in some]),
            np.concatenate([part.sizes for part in some]),
        )


def taken_queries(sizes: Integers, most: int = MOST_ROWS) -> Mask:
    """Mask (Q,) of queries, evenly spread over all, with about `most` documents at most."""
    step = max(1, -(-int(sizes.sum()) // most))
    taken: Mask = np.arange(len(sizes)) % step == 0
    return taken
