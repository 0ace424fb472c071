"""Layers that the networks share: dropout with its own random numbers, normalizations, activations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["ACTIVATIONS", "NORMALIZATIONS", "Dropout", "drawing_from"]

ACTIVATIONS: dict[str, Any] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}

_drawing = threading.local()


@contextmanager
def drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """Within a `with` block, make `Dropout` draw its random numbers from `rng` on the current thread.

    PyTorch's own dropout draws from one generator for all threads, in an order that varies between runs.
    """
    before = getattr(_drawing, "rng", None)
    _drawing.rng = rng
    try:
        yield
    finally:
        _drawing.rng = before


class Dropout(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Dropout that draws from the generator set by `drawing_from`.

    In training, it sets each entry to 0 with probability p and divides the others by 1 - p.
    """

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
    """Batch normalization that also accepts a single row, for which it uses the running statistics."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) < 2:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(x)


NORMALIZATIONS: dict[str, Any] = {"batch": BatchNorm, "layer": nn.LayerNorm}
