"""Settings of a fit: the ranker's checked parameters, and its loss in the form that the trainer calls."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sinkprop.common.arguments import number, one_of, whole
from sinkprop.common.plain_data import without_addresses
from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import SCALINGS
from sinkprop.objective.gains import Gain, RankLinearGain
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator, as_relaxation
from sinkprop.torch.losses.baselines import LOSSES
from sinkprop.torch.losses.cross_entropy import gain_cross_entropy
from sinkprop.torch.losses.sinkprop import LossSettings, SinkPropLoss, batch_loss
from sinkprop.torch.neural.network import as_network
from sinkprop.torch.neural.optimizers import Adam, as_optimizer
from sinkprop.torch.neural.preparation import TRANSFORMS
from sinkprop.torch.neural.records import Plan

if TYPE_CHECKING:
    from sinkprop.torch.ranker import NeuralRanker

__all__ = ["DTYPES", "make_plan", "name_of"]


_LEAST_START = 1e-3  # below this weight, the cross entropy of the start is left out

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def make_plan(
    ranker: NeuralRanker,
    n_rows: int,
    row_weight: Floats | None,
    gain: Gain,
    *,
    seed: int,
    n_threads: int,
    n_labels: int = 1,
) -> tuple[Relaxation | None, Plan]:
    """Check the ranker's parameters; return the relaxation (or None) and the plan of a fit to n_rows rows.

    Raises a ValueError if a parameter is invalid, or if the loss does not support the row weights.

    row_weight  (N,) row weights, or None
    gain        Gain of the loss "sinkprop".
    n_labels    Number of label columns.
    """
    relaxation, loss = _loss(ranker, row_weight)
    n_epochs = whole("max_epochs", ranker.max_epochs, 1)
    start_epochs = number("start_epochs", ranker.start_epochs)
    whole("n_networks", ranker.n_networks, 1)
    sigmas: tuple[float | None, ...] = (None,) * n_epochs
    if isinstance(relaxation, SmoothedIndicator):
        sigmas = _geometric(ranker.sigma, n_epochs)
        if isinstance(ranker.loss, SinkPropLoss):
            sigmas = (relaxation.sigma,) * n_epochs
    one_of("dtype", ranker.dtype, tuple(DTYPES))
    one_of("input_transform", ranker.input_transform, TRANSFORMS)
    one_of("normalization", ranker.normalization, SCALINGS)
    as_network(ranker.network)
    optimizer = as_optimizer(ranker.optimizer)
    if isinstance(ranker.loss, SinkPropLoss) and relaxation is None and not isinstance(optimizer, Adam):
        raise ValueError(
            "loss: a SinkPropLoss without a relaxation has a gradient that is not that of its value, which "
            f"L-BFGS needs; got {ranker.loss}. Give SinkPropLoss(relaxation='gaussian'), or use Adam."
        )
    if loss is None:
        assert relaxation is not None
        # L-BFGS needs a loss that is the same in all iterations and agrees with its gradient.
        starts = start_epochs if isinstance(optimizer, Adam) and relaxation.width == 1 else 0.0
        loss = _sinkprop(ranker, gain, relaxation, sigmas, starts, n_labels)
    return relaxation, Plan(
        loss=loss,
        sigmas=sigmas,
        optimizer=optimizer,
        batch_documents=optimizer.documents_per_batch(n_rows),
        patience=whole("patience", ranker.patience, 1),
        seed=seed,
        n_threads=n_threads,
        n_outputs=1 if relaxation is None else relaxation.width,
        input_noise=number("input_noise", ranker.input_noise),
    )


def _loss(
    ranker: NeuralRanker, row_weight: Floats | None
) -> tuple[Relaxation | None, Callable[..., Tensor] | None]:
    """Return the relaxation, or None if the loss has none, and the loss in the form that `Plan` describes.

    For the loss "sinkprop", which depends on the other settings, the second value is None.
    """
    given = ranker.loss
    if isinstance(given, str) and given == "sinkprop":
        return as_relaxation(ranker.relaxation), None
    if isinstance(given, str):
        if given not in LOSSES:
            raise ValueError(
                f"loss must be 'sinkprop', {' or '.join(map(repr, LOSSES))}, or a function "
                f"loss(scores, labels, offsets=, query_weight=); got {given!r}."
            )
        given = LOSSES[given]
    elif not callable(given):
        raise ValueError(f"loss must be a name or a function; got {given!r}.")
    name, with_rows = name_of(given), False
    if row_weight is not None and not 0 < row_weight.min() == row_weight.max():
        with_rows = "sample_weight" in inspect.signature(getattr(given, "forward", given)).parameters
        if not with_rows:
            raise ValueError(
                f"the loss {name} does not take sample_weight, so all row weights must be equal; use "
                "query_weight, or loss='sinkprop'."
            )

    def own(
        scores: Tensor,
        labels: Tensor,
        epoch: int,
        *,
        offsets: Tensor,
        sample_weight: Tensor | None,
        query_weight: Tensor | None,
    ) -> Tensor:
        more = {"sample_weight": sample_weight} if with_rows else {}
        value = given(scores, labels, offsets=offsets, query_weight=query_weight, **more)
        if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
            what = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"the loss {name} must return one number that depends on the scores, a mean over the "
                f"queries; it returned {what}."
            )
        return value

    return (given.relaxation if isinstance(given, SinkPropLoss) else None), own


def _sinkprop(
    ranker: NeuralRanker,
    gain: Gain,
    relaxation: Relaxation,
    sigmas: Sequence[float | None],
    start_epochs: float,
    n_labels: int,
) -> Callable[..., Tensor]:
    """Return the loss "sinkprop" in the form that `Plan` describes.

    Its value is minus the expected gain. To its gradient is added that of the cross entropy of the gains,
    with the weight exp(-epoch / start_epochs).
    """
    settings = LossSettings(gain, relaxation, ranker.n_iter, ranker.epsilon, n_threads=1)

    @cache  # stores the settings of each sigma, so that they are checked once
    def sharpened(sigma: float | None) -> LossSettings:
        if sigma is None or not isinstance(relaxation, SmoothedIndicator):
            return settings
        return dataclasses.replace(settings, relaxation=dataclasses.replace(relaxation, sigma=sigma))

    def sinkprop(
        scores: Tensor,
        labels: Tensor,
        epoch: int,
        *,
        offsets: Tensor,
        sample_weight: Tensor | None = None,
        query_weight: Tensor | None = None,
    ) -> Tensor:
        more = {"sample_weight": sample_weight, "query_weight": query_weight}
        value = batch_loss(sharpened(sigmas[epoch]), scores, labels, offsets=offsets, **more)
        weight = math.exp(-epoch / start_epochs) if start_epochs else 0.0
        if weight < _LEAST_START:
            return value
        start = gain_cross_entropy(scores, _targets(gain, labels, sample_weight), offsets, query_weight)
        return value + weight * (start - start.detach())

    # Call the loss once, so that settings with which it cannot be computed raise an error before the fit.
    scores = torch.zeros((1, 2) if relaxation.width == 2 else 1)
    labels = torch.ones(1) if n_labels == 1 else torch.ones(1, n_labels)
    sinkprop(scores, labels, 0, offsets=torch.tensor([0, 1]))
    return sinkprop


def _targets(gain: Gain, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
    """Gains (N,) that the cross entropy takes for its distribution; labels if the gain has none per label."""
    relevance = gain.relevance(labels.numpy())
    if isinstance(gain, RankLinearGain) and gain.separable:
        relevance = gain.gains(relevance)
    gains = torch.from_numpy(relevance)
    return (gains if sample_weight is None else gains * sample_weight).clamp(min=0)


def _geometric(sigma: Any, n_epochs: int) -> tuple[float, ...]:
    """Return the width sigma of each epoch: constant, or a geometric progression between two given widths."""
    ends = [sigma, sigma] if isinstance(sigma, Real) else sigma
    if (
        not isinstance(ends, Sequence | np.ndarray)
        or len(ends) != 2
        or not all(isinstance(s, Real) and not isinstance(s, bool) and 0 < float(s) < math.inf for s in ends)
    ):
        raise ValueError(
            "sigma must be a finite number above 0, or two such numbers, for the first and the last epoch; "
            f"got {sigma!r}."
        )
    first, last = (float(s) for s in ends)
    return tuple(first * (last / first) ** (i / max(n_epochs - 1, 1)) for i in range(n_epochs))


def name_of(function: Any) -> str:
    """Return the name of a function or of an object's class.

    For a `partial` it includes the arguments, and for an `nn.Module` it is the repr.
    """
    if isinstance(function, str):
        return function
    if isinstance(function, partial):
        given = f"{function.args}{sorted(function.keywords.items())}"
        return name_of(function.func) + without_addresses(given)
    if isinstance(function, nn.Module):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
