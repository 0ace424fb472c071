"""Terms of gains for labels that NumPy cannot see, in the operations of any array library.

A compiler traces a loss with labels that have no values yet. `traced_terms` computes what depends on the
labels by the operations of the array library `xp`, numpy, torch or jax.numpy, for gains that are formulas.
The rest of a term does not depend on the labels and comes from `Gain.terms`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sinkprop.data.queries import Groups
from sinkprop.objective.gains import (
    ERR,
    ERRIA,
    NDCG,
    RBP,
    AlphaNDCG,
    AveragePrecision,
    ColumnGain,
    FMeasure,
    Gain,
    GainSum,
    OnLabels,
    Precision,
    RankLinearGain,
    Recall,
    ReciprocalRank,
    RowGain,
    Term,
)

__all__ = ["label_attributes", "traced_terms", "untraceable"]

Array = Any


def traced_terms(xp: Any, gain: Gain, labels: Array, weights: Array | None, who: str) -> list[Term]:
    """Return the terms of a gain for lists of at most n documents, with attributes (..., n, C).

    labels   (..., n, L) labels, 0 at padding
    weights  (..., n) row weights, or None
    who      the name of what cannot run NumPy functions, for the error

    Raises a NotImplementedError if the attributes of the gain are computed by NumPy functions.
    """
    if isinstance(gain, GainSum):
        return [
            replace(term, weight=weight * term.weight)
            for weight, part in gain.parts
            for term in traced_terms(xp, part, labels, weights, who)
        ]
    if isinstance(gain, OnLabels):
        if max(gain.labels) >= labels.shape[-1]:
            raise ValueError(
                f"labels: {gain} reads label column {max(gain.labels)}, numbered from 0, but the number of "
                f"label columns is {labels.shape[-1]}. Add a last axis, one column per kind of label."
            )
        return traced_terms(xp, gain.gain, labels[..., list(gain.labels)], weights, who)
    a = label_attributes(xp, gain, labels, who)
    n = int(labels.shape[-2])
    (term,) = gain.terms(np.zeros((n, int(labels.shape[-1]))), Groups.of_sizes(np.array([n])), None)
    return [replace(term, attributes=a if weights is None else a * weights[..., None])]


def label_attributes(xp: Any, gain: Gain, labels: Array, who: str) -> Array:
    """Return the attributes (..., n, C) that a gain other than a sum has for labels (..., n, L)."""
    y = labels[..., :1]
    if isinstance(gain, NDCG):
        return xp.exp2(y) - 1 if gain.gain == "exponential" else y
    if isinstance(gain, RBP):
        return y
    if isinstance(gain, ERR):
        highest = y.max() if gain.max_label is None else xp.full_like(y, gain.max_label)
        return xp.exp2(y - highest) - xp.exp2(-highest)
    if isinstance(gain, AlphaNDCG | ERRIA):
        y = labels  # every column is an intent
    if isinstance(
        gain, Precision | AveragePrecision | FMeasure | Recall | ReciprocalRank | AlphaNDCG | ERRIA
    ):
        return xp.where(y >= gain.threshold, xp.ones_like(y), xp.zeros_like(y))
    raise untraceable(gain, who)


def untraceable(gain: Gain, who: str) -> NotImplementedError:
    """Return the error that says that a gain is computed by NumPy functions, which `who` cannot run."""
    custom = isinstance(gain, RankLinearGain | ColumnGain | RowGain)
    what = "a custom gain is a NumPy function" if custom else f"{gain} is computed by NumPy functions"
    return NotImplementedError(f"gain: {what}, which {who} cannot run; call the loss outside of them.")
