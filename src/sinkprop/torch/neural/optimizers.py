"""Settings of the optimizers of a network, and the steps of Adam."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.arguments import number, one_of, whole

__all__ = ["LBFGS", "Adam", "AdamSteps", "Optimizer", "as_optimizer", "optimizer_from", "optimizer_record"]


@final
@dataclass(frozen=True)
class Adam:
    """Adam on minibatches of whole queries with decoupled weight decay, as an optimizer of `NeuralRanker`.

    Parameters
    ----------
    learning_rate : float, default 3e-3
        Learning rate, above 0.
    weight_decay : float, default 0.0
        Decoupled weight decay: each step multiplies weight matrices, but not biases, by
        ``1 - learning rate * weight_decay``.
    schedule : {"constant", "cosine"}, default "constant"
        Whether the learning rate stays constant or falls to 0 over the epochs as half a cosine.
    clip_norm : float, optional
        Largest norm of a gradient; larger gradients are scaled down to it. By default gradients are not
        clipped.
    batch_documents : int, optional
        Documents per minibatch. A minibatch has as many whole queries as fit, or one larger query. By default
        an eighth of the training documents, but at least 256 and at most 4096.

    Examples
    --------
    >>> Adam(0.01, schedule="cosine")  # doctest: +NORMALIZE_WHITESPACE
    Adam(learning_rate=0.01, weight_decay=0.0, schedule='cosine', clip_norm=None,
         batch_documents=None)
    """

    learning_rate: float = 3e-3
    _: KW_ONLY
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    clip_norm: float | None = None
    batch_documents: int | None = None

    def __post_init__(self) -> None:
        one_of("Adam: schedule", self.schedule, ("constant", "cosine"))
        checked: dict[str, Any] = {
            "learning_rate": number("Adam: learning_rate", self.learning_rate, above=True),
            "weight_decay": number("Adam: weight_decay", self.weight_decay),
        }
        if self.clip_norm is not None:
            checked["clip_norm"] = number("Adam: clip_norm", self.clip_norm, above=True)
        if self.batch_documents is not None:
            checked["batch_documents"] = whole("Adam: batch_documents", self.batch_documents, 1)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def advice(self) -> str:
        """Sentence for an error message that says how to avoid an overflow of the scores."""
        return f"Lower the learning_rate ({self.learning_rate:g}) of Adam, or set its clip_norm."

    def documents_per_batch(self, n: int) -> int:
        """Largest number of documents per minibatch.

        Parameters
        ----------
        n : int
            Number of training documents.

        Returns
        -------
        int
            `batch_documents`, or its default for `n` documents.
        """
        return int(np.clip(n // 8, 256, 4096)) if self.batch_documents is None else self.batch_documents

    def rate(self, time: float, n_epochs: int) -> float:
        """Learning rate at a time during the training.

        Parameters
        ----------
        time : float
            Time in epochs since the start.
        n_epochs : int
            Total number of epochs.

        Returns
        -------
        float
            Learning rate under the schedule.
        """
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (0.5 * (1 + math.cos(math.pi * time / n_epochs)))


@final
@dataclass(frozen=True)
class LBFGS:
    """L-BFGS on all queries at once, as an optimizer of `NeuralRanker` for small data and few parameters.

    Parameters
    ----------
    max_iter : int, default 20
        Iterations per epoch, at least 1.
    weight_decay : float, default 0.0
        Regularization strength: ``weight_decay / 2 |W|^2`` of the weight matrices is added to the loss.

    Examples
    --------
    >>> LBFGS(40, weight_decay=0.1)
    LBFGS(max_iter=40, weight_decay=0.1)
    """

    max_iter: int = 20
    _: KW_ONLY
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iter", whole("LBFGS: max_iter", self.max_iter, 1))
        object.__setattr__(self, "weight_decay", number("LBFGS: weight_decay", self.weight_decay))

    @property
    def advice(self) -> str:
        """Sentence for an error message that says how to avoid an overflow of the scores."""
        return f"Raise the weight_decay ({self.weight_decay:g}) of LBFGS, or use optimizer=Adam()."

    def documents_per_batch(self, n: int) -> int:
        """Number of documents per evaluation of the loss.

        Parameters
        ----------
        n : int
            Number of training documents.

        Returns
        -------
        int
            All `n` documents.
        """
        return n


Optimizer = Adam | LBFGS


def as_optimizer(value: Any) -> Optimizer:
    """Return the optimizer for the parameter `optimizer` of a ranker: the value itself, or `Adam()` for None.

    Raises a ValueError for any other value.
    """
    if value is None:
        return Adam()
    if not isinstance(value, Adam | LBFGS):
        raise ValueError(
            f"optimizer must be Adam(...) or LBFGS(...) of sinkprop.torch, or None for Adam(); got {value!r}."
        )
    return value


def optimizer_record(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's type and settings as a dictionary of plain values.

    >>> optimizer_record(LBFGS(5))
    {'type': 'LBFGS', 'max_iter': 5, 'weight_decay': 0.0}
    """
    return {"type": type(optimizer).__name__, **asdict(optimizer)}


def optimizer_from(record: dict[str, Any]) -> Optimizer:
    """Create an optimizer from the result of `optimizer_record`.

    Raises a KeyError, TypeError or ValueError for an invalid record.
    """
    settings = dict(record)
    kind: Any = {"Adam": Adam, "LBFGS": LBFGS}[settings.pop("type")]
    made: Optimizer = kind(**settings)
    return made


class AdamSteps:
    """State of Adam: the vector of all parameters, which each step updates in place, and Adam's two moments.

    The moments are running means of the gradient and of its square.

    decayed  1 for each parameter with weight decay, 0 for the others
    """

    def __init__(self, settings: Adam, parameters: Tensor, decayed: Tensor) -> None:
        self._settings, self._parameters, self._decayed = settings, parameters, decayed
        self._mean, self._square = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self.n = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        """Make one step; the gradient may be overwritten."""
        settings = self._settings
        if settings.clip_norm is not None:
            norm = float(gradient.norm())
            if norm > settings.clip_norm:
                gradient *= settings.clip_norm / norm
        self.n += 1
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        spread = (self._square / (1 - 0.999**self.n)).sqrt_().add_(1e-8)
        if settings.weight_decay:
            self._parameters.addcmul_(self._parameters, self._decayed, value=-rate * settings.weight_decay)
        self._parameters.addcdiv_(self._mean, spread, value=-rate / (1 - 0.9**self.n))

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of the current moments, by the names "mean" and "square"."""
        return {"mean": self._mean.clone(), "square": self._square.clone()}

    def resume(self, tensors: Mapping[str, Tensor], n: int) -> None:
        """Continue after step n of an earlier fit: copy its moments from `tensors`."""
        self._mean.copy_(tensors["mean"])
        self._square.copy_(tensors["square"])
        self.n = n
