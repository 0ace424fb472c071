"""A multilayer perceptron that scores each row by itself, the default network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import final

import numpy as np
import torch
from torch import nn

from sinkprop.common.arguments import number, one_of, true_or_false, whole
from sinkprop.torch.networks.layers import ACTIVATIONS, NORMALIZATIONS, Dropout

__all__ = ["MLP", "Perceptron"]


class Perceptron(nn.Module):  # type: ignore[misc]
    """Module that `MLP` creates: the layers of a perceptron plus a linear function of the features."""

    def __init__(self, settings: MLP, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self._n_outputs = n_outputs
        widths, layers = settings.hidden, []
        for before, after in zip((n_features, *widths), widths, strict=False):
            layers.append(nn.Linear(before, after))
            if settings.layer_normalization is not None:
                layers.append(NORMALIZATIONS[settings.layer_normalization](after))
            layers.append(ACTIVATIONS[settings.activation]())
            if settings.dropout > 0:
                layers.append(Dropout(settings.dropout))
        if widths:
            layers.append(nn.Linear(widths[-1], n_outputs))
        self.layers = nn.Sequential(*layers) if widths else None
        self.linear = nn.Linear(n_features, n_outputs) if settings.linear or not widths else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        parts = [part(rows) for part in (self.layers, self.linear) if part is not None]
        out = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return out.squeeze(1) if self._n_outputs == 1 else out


@final
@dataclass(frozen=True)
class MLP:
    """Settings of the default network of `NeuralRanker`: a multilayer perceptron plus a linear function.

    Calling it, ``MLP(...)(n_features, n_outputs=1)``, creates the module with new random weights.

    Parameters
    ----------
    hidden : sequence of int, default (64, 32)
        Widths of the hidden layers. With (), the network is only the linear function.
    activation : {"relu", "gelu", "silu", "elu", "tanh"}, default "relu"
        Activation function of the hidden layers.
    dropout : float, default 0.5
        Probability with which an output of a hidden layer is set to 0 in training, below 1.
    layer_normalization : {"batch", "layer"}, optional
        Batch or layer normalization of each hidden layer before its activation. By default none.
    linear : bool, default True
        Whether a linear function of the features is added to the perceptron's output.

    Examples
    --------
    >>> MLP((8, 4))
    MLP(hidden=(8, 4), activation='relu', dropout=0.5, layer_normalization=None, linear=True)
    >>> module = MLP((8, 4))(n_features=3)
    >>> module(torch.zeros(5, 3)).shape
    torch.Size([5])
    """

    hidden: Sequence[int] = (64, 32)
    _: KW_ONLY
    activation: str = "relu"
    dropout: float = 0.5
    layer_normalization: str | None = None
    linear: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
            raise ValueError(
                f"MLP: hidden must be a sequence of widths, such as (64, 32); got {self.hidden!r}."
            )
        object.__setattr__(self, "hidden", tuple(whole("MLP: hidden", width, 1) for width in self.hidden))
        one_of("MLP: activation", self.activation, tuple(ACTIVATIONS))
        if self.layer_normalization is not None and self.layer_normalization not in tuple(NORMALIZATIONS):
            raise ValueError(
                "MLP: layer_normalization must be 'batch' or 'layer' or None; got "
                f"{self.layer_normalization!r}."
            )
        object.__setattr__(self, "dropout", number("MLP: dropout", self.dropout, below=1))
        true_or_false("MLP: linear", self.linear)

    def __call__(self, n_features: int, n_outputs: int = 1) -> Perceptron:
        """Create the module for a number of features.

        Parameters
        ----------
        n_features : int
            Number of columns of the rows (N, n_features) that the module takes.
        n_outputs : int, default 1
            1 for one score per row, (N,), or 2 for the two parameters per row of a `PartitionedMeasure`,
            (N, 2).

        Returns
        -------
        torch.nn.Module
            Module with random weights, drawn from torch's global generator.
        """
        return Perceptron(self, whole("n_features", n_features, 1), whole("n_outputs", n_outputs, 1))
