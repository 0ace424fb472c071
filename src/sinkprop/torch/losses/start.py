"""The default smoothing: a width relative to the spread of the scores, and a cross entropy that fades.

Let d be the standard deviation of the scores of a query. The scores are divided by min(d, 4) and smoothed by
a Gaussian kernel of width 1/4, so in the units of the scores the width is min(d/4, 1). A fixed width of 1
would leave almost no gradient while the scores of a query are nearly equal, as they are at the start.

The expected gain has a small gradient for documents far below the ranks that count, and it lets the scores
grow until its gradient vanishes. If the gain is a metric of relevance, the gradient of a cross entropy is
therefore added to that of the loss, with the weight 1 / (1 + (d/3)^2), which fades as the scores spread. d is
not differentiated.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sinkprop.objective.gains import (
    ERR,
    NDCG,
    RBP,
    AveragePrecision,
    FMeasure,
    Gain,
    Precision,
    Recall,
    ReciprocalRank,
)
from sinkprop.objective.relaxations import SmoothedIndicator
from sinkprop.torch.losses.batches import Layout
from sinkprop.torch.losses.cross_entropy import cross_entropies
from sinkprop.torch.losses.terms import label_gains

__all__ = ["SMOOTHING", "relative_scores", "start_gradient"]

# Kernel that is applied to the scores divided by their spread, or by WIDEST if their spread is larger
SMOOTHING = SmoothedIndicator(0.25)
WIDEST = 4.0
# Spread at which the cross entropy has half its weight
FADING = 3.0


def relative_scores(scores: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the scores divided by min(d, 4), and d, (Q,), the standard deviation of each query's scores.

    d is not differentiated. It is 1 for tied scores, which differ only by rounding errors, and for scores
    that are not finite.
    """
    s = scores.detach()
    if layout.mask is not None:  # padding may hold NaN
        s = torch.where(layout.mask, s, 0)
    n = layout.counts(s)
    x = s - layout.spread(layout.total(s) / n)
    top = layout.largest(x.abs())
    unit = torch.where(top > 0, top, 1)  # divided by it, no square overflows
    d = unit * (layout.total((x / layout.spread(unit)).square()) / n).sqrt()
    rounding = 8 * torch.finfo(s.dtype).eps * layout.largest(s.abs())
    d = torch.where(d > rounding, d, 1)
    return scores / layout.spread(d.clamp(max=WIDEST)), d


def start_gradient(
    scores: Tensor, labels: Tensor, d: Tensor, layout: Layout, gain: Gain, sample_weight: Tensor | None
) -> Tensor | None:
    """Return the weighted cross entropy of each query, (Q,), less its own value: 0 with a gradient.

    The target distribution of the cross entropy is proportional to the gains of the documents. The result is
    None if the gain is not a metric of relevance: it may have other goals than relevant documents at the top.

    labels  One label per document, or L label columns, of which the first counts.
    d       (Q,) spread of the scores, see `relative_scores`
    """
    y = labels if labels.ndim == len(layout.shape) else labels[..., 0]
    gains = _document_gains(gain, y.to(torch.float64 if y.device.type == "cpu" else scores.dtype))
    if gains is None:
        return None
    if sample_weight is not None:
        gains = gains * sample_weight
    values = cross_entropies(scores, gains, layout) / (1 + (d / FADING).square())
    return values - values.detach()


def _document_gains(gain: Gain, labels: Tensor) -> Tensor | None:
    """Return the gain of each document, or None if the gain is not a metric of relevance."""
    if isinstance(gain, NDCG | Precision | RBP):
        return label_gains(gain, labels)
    if isinstance(gain, AveragePrecision | ReciprocalRank | Recall | FMeasure):
        return (labels >= gain.threshold).to(labels.dtype)
    return labels.exp2() - 1 if isinstance(gain, ERR) else None
