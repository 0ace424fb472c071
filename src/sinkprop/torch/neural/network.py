"""The default network of `NeuralRanker`: a multilayer perceptron beside a linear model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from sinkprop.common.arguments import whole

__all__ = ["ACTIVATIONS", "MLP", "NORMALIZATIONS", "drawing_from"]

ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}
NORMALIZATIONS = ("batch", "layer")

_drawing = threading.local()


@contextmanager
def drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """The generator from which `Dropout` draws on this thread, for the length of a block.

    PyTorch's own dropout draws from one generator for all threads, in an order that is up to chance.
    """
    before = getattr(_drawing, "rng", None)
    _drawing.rng = rng
    try:
        yield
    finally:
        _drawing.rng = before


class Dropout(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Entries set to 0 with probability p in training, the others divided by 1 - p; see `drawing_from`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rng = getattr(_drawing, "rng", None)
        if not self.training or rng is None:
            return nn.functional.dropout(x, self.p, self.training)
        kept = torch.from_numpy(rng.random(x.shape, dtype=np.float32) >= self.p)
        return x * (kept.to(x.dtype) / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class BatchNorm(nn.BatchNorm1d):  # type: ignore[misc]
    """Batch normalization that takes a single row too, which has no spread: it uses the running figures."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) < 2:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(x)


class MLP(nn.Module):  # type: ignore[misc]
    """Scores of rows: layers of a perceptron, plus a linear function of the features.

    n_features           columns of the rows
    hidden               widths of the hidden layers; none leaves the linear function alone
    n_outputs            1 for scores (N,), 2 for those of a partitioned measure, (N, 2)
    activation           "relu", "gelu", "silu", "elu" or "tanh"
    dropout              the share of a hidden layer's outputs that is set to 0 in training
    layer_normalization  of a hidden layer's sums: "batch", "layer" or None
    linear               whether there is the linear function

    >>> import torch
    >>> MLP(3, (8, 4))(torch.zeros(5, 3)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int] = (64, 32),
        *,
        n_outputs: int = 1,
        activation: str = "relu",
        dropout: float = 0.0,
        layer_normalization: str | None = None,
        linear: bool = True,
    ) -> None:
        super().__init__()
        widths = [whole("hidden", width, 1) for width in hidden]
        layers: list[Any] = []
        for before, after in zip([n_features, *widths], widths, strict=False):
            layers.append(nn.Linear(before, after))
            if layer_normalization is not None:
                layers.append({"batch": BatchNorm, "layer": nn.LayerNorm}[layer_normalization](after))
            layers.append(ACTIVATIONS[activation]())
            if dropout > 0:
                layers.append(Dropout(dropout))
        if widths:
            layers.append(nn.Linear(widths[-1], n_outputs))
        self.layers = nn.Sequential(*layers) if widths else None
        self.linear = nn.Linear(n_features, n_outputs) if linear or not widths else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        parts = [part(rows) for part in (self.layers, self.linear) if part is not None]
        out = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return out.squeeze(1) if out.shape[1] == 1 else out
