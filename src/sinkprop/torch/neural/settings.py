"""The settings of a fit: a ranker's parameters, checked, and its loss as the trainer calls it."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sinkprop.common.arguments import half_steps, number, whole
from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import SCALINGS
from sinkprop.objective.gains import as_gain
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator, as_relaxation
from sinkprop.torch.losses.sinkprop import SinkPropLoss, sinkprop_loss
from sinkprop.torch.neural.network import ACTIVATIONS, NORMALIZATIONS
from sinkprop.torch.neural.preparation import TRANSFORMS
from sinkprop.torch.neural.records import Plan

if TYPE_CHECKING:
    from sinkprop.torch.ranker import NeuralRanker

__all__ = ["DTYPES", "either", "make_plan", "name_of"]


DTYPES = {"float32": torch.float32, "float64": torch.float64}

_RIVALS = ("listnet", "approxndcg", "lambdarank")


def make_plan(
    ranker: NeuralRanker, n_rows: int, row_weight: Floats | None, *, seed: int, n_threads: int
) -> tuple[Relaxation | None, Plan]:
    """The ranker's parameters, checked, for a fit to so many rows.

    row_weight  (N,) those of rows, or None: some losses do not take them
    """
    relaxation, loss = _loss(ranker, row_weight)
    n_epochs = whole("max_epochs", ranker.max_epochs, 1)
    sigmas: tuple[float | None, ...] = (None,) * n_epochs
    if isinstance(relaxation, SmoothedIndicator):
        sigmas = _geometric(ranker.sigma, n_epochs)
        if isinstance(ranker.loss, SinkPropLoss):
            sigmas = (relaxation.sigma,) * n_epochs
    if ranker.dtype not in DTYPES:
        raise ValueError(f"dtype must be {either(DTYPES)}; got {ranker.dtype!r}.")
    for name, value, choices in (
        ("input_transform", ranker.input_transform, TRANSFORMS),
        ("normalization", ranker.normalization, SCALINGS),
        ("optimizer", ranker.optimizer, ("adam", "lbfgs")),
        ("schedule", ranker.schedule, ("constant", "cosine")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be {either(choices)}; got {value!r}.")
    if ranker.module is None:
        _check_mlp(ranker)
    elif not callable(ranker.module):
        raise ValueError(
            "module must be an nn.Module, a function that makes one for a number of features, or None; "
            f"got {ranker.module!r}."
        )
    clip = None if ranker.clip_norm is None else number("clip_norm", ranker.clip_norm, above=True)
    return relaxation, Plan(
        loss=loss,
        sigmas=sigmas,
        optimizer=ranker.optimizer,
        learning_rate=number("learning_rate", ranker.learning_rate, above=True),
        weight_decay=number("weight_decay", ranker.weight_decay),
        schedule=ranker.schedule,
        clip_norm=clip,
        batch_documents=_budget(ranker, n_rows),
        max_iter=whole("max_iter", ranker.max_iter, 1),
        patience=whole("patience", ranker.patience, 1),
        seed=seed,
        n_threads=n_threads,
        n_outputs=1 if relaxation is None else relaxation.width,
    )


def _budget(ranker: NeuralRanker, n: int) -> int:
    """Documents of a minibatch, where there are n in all."""
    if ranker.batch_documents is None:
        return int(np.clip(n // 8, 256, 4096))
    return whole("batch_documents", ranker.batch_documents, 1)


def _check_mlp(ranker: NeuralRanker) -> None:
    if isinstance(ranker.hidden, str) or not isinstance(ranker.hidden, Sequence | np.ndarray):
        raise ValueError(f"hidden must be a sequence of widths, as (64, 32); got {ranker.hidden!r}.")
    for width in ranker.hidden:
        whole("hidden", width, 1)
    if ranker.activation not in ACTIVATIONS:
        raise ValueError(f"activation must be {either(ACTIVATIONS)}; got {ranker.activation!r}.")
    if ranker.layer_normalization is not None and ranker.layer_normalization not in NORMALIZATIONS:
        raise ValueError(
            f"layer_normalization must be {either(NORMALIZATIONS)} or None; got "
            f"{ranker.layer_normalization!r}."
        )
    if number("dropout", ranker.dropout) >= 1:
        raise ValueError(f"dropout must be below 1; got {ranker.dropout!r}.")


def _loss(ranker: NeuralRanker, row_weight: Floats | None) -> tuple[Relaxation | None, Callable[..., Tensor]]:
    """The relaxation, where the loss has one, and the loss as a `Plan` takes it."""
    given = ranker.loss
    if isinstance(given, str) and given == "sinkprop":
        gain, relaxation, epsilon = as_gain(ranker.gain), as_relaxation(ranker.relaxation), ranker.epsilon
        n_iter = half_steps(ranker.n_iter) / 2

        def sinkprop(scores: Tensor, labels: Tensor, sigma: float | None, **more: Any) -> Tensor:
            at = relaxation
            if isinstance(at, SmoothedIndicator) and sigma is not None:
                at = dataclasses.replace(at, sigma=sigma)
            return sinkprop_loss(
                scores,
                labels,
                gain=gain,
                relaxation=at,
                n_iter=n_iter,
                epsilon=epsilon,
                n_threads=1,
                **more,
            )

        # what cannot be trained on fails here
        sinkprop(torch.zeros((1, 2) if relaxation.width == 2 else 1), torch.ones(1), None)
        return relaxation, sinkprop
    if isinstance(given, str):
        if given not in _RIVALS:
            raise ValueError(
                f"loss must be 'sinkprop', {either(_RIVALS)}, or a function "
                f"loss(scores, labels, offsets=, query_weight=); got {given!r}."
            )
        from sinkprop.torch.losses.rivals import LOSSES

        given = LOSSES[given]
        if isinstance(given, type):
            given = given()
    elif not callable(given):
        raise ValueError(f"loss must be a name or a function; got {given!r}.")
    name, with_rows = name_of(given), False
    if row_weight is not None and not 0 < row_weight.min() == row_weight.max():
        with_rows = "sample_weight" in inspect.signature(getattr(given, "forward", given)).parameters
        if not with_rows:
            raise ValueError(
                f"the loss {name} takes no sample_weight, so only equal ones can be given; use "
                "query_weight, or loss='sinkprop'."
            )

    def own(
        scores: Tensor,
        labels: Tensor,
        sigma: float | None,
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
                f"the loss {name} must give one number that depends on the scores, a mean over the "
                f"queries; it gave {what}."
            )
        return value

    return (given.relaxation if isinstance(given, SinkPropLoss) else None), own


def _geometric(sigma: Any, n_epochs: int) -> tuple[float, ...]:
    """The sigma of each epoch: one for all, or from the first to the last, each the same times the last."""
    ends = [sigma, sigma] if isinstance(sigma, Real) else sigma
    if (
        not isinstance(ends, Sequence | np.ndarray)
        or len(ends) != 2
        or not all(isinstance(s, Real) and not isinstance(s, bool) and 0 < float(s) < math.inf for s in ends)
    ):
        raise ValueError(
            "sigma must be a finite number above 0, or two: of the first and of the last epoch; got "
            f"{sigma!r}."
        )
    first, last = (float(s) for s in ends)
    return tuple(first * (last / first) ** (i / max(n_epochs - 1, 1)) for i in range(n_epochs))


def either(names: Any) -> str:
    return " or ".join(map(repr, names))


def name_of(function: Any) -> str:
    """The name of a function or of an object's class, with its settings where they can be seen."""
    if isinstance(function, str):
        return function
    if isinstance(function, partial):
        return f"{name_of(function.func)}{function.args}{sorted(function.keywords.items())}"
    if isinstance(function, nn.Module):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
