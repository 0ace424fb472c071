"""Networks of `NeuralRanker`: the settings of the default network, its module, and the user's modules."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sinkprop.common.arguments import number, one_of, whole
from sinkprop.torch.neural.preparation import Preparation
from sinkprop.torch.neural.scoring import checked_scores, takes_offsets

__all__ = ["ACTIVATIONS", "MLP", "Network", "Perceptron", "as_network", "build_module", "drawing_from"]

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


class Perceptron(nn.Module):  # type: ignore[misc]
    """Module that `MLP` creates: the layers of a perceptron plus a linear function of the features."""

    def __init__(self, settings: MLP, n_features: int, n_outputs: int) -> None:
        super().__init__()
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
        return out.squeeze(1) if out.shape[1] == 1 else out


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
        object.__setattr__(self, "dropout", number("MLP: dropout", self.dropout))
        if self.dropout >= 1:
            raise ValueError(f"MLP: dropout must be below 1; got {self.dropout!r}.")
        if not isinstance(self.linear, bool):
            raise ValueError(f"MLP: linear must be True or False; got {self.linear!r}.")

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


Network: TypeAlias = MLP | nn.Module | Callable[[int], nn.Module]


def as_network(value: Any) -> Network:
    """Return the network for the parameter `network` of a ranker: the value itself, or `MLP()` for None.

    Raises a ValueError for any other value that is not callable.
    """
    if value is None:
        return MLP()
    # Any callable is allowed, also a module class, but not the class MLP: it takes widths, not n_features.
    if value is MLP or not callable(value):
        raise ValueError(
            "network must be MLP(...), an nn.Module, a function that makes one for a number of features, or "
            f"None for MLP(); got {value!r}."
        )
    network: Network = value
    return network


def build_module(
    network: Network, rows: NDArray[Any], preparation: Preparation, n_outputs: int, seed: int
) -> nn.Module:
    """Create the module to be trained, and test it on the rows of one query.

    If `network` is a module, it is copied. Raises a ValueError if the module cannot be trained.
    """
    n, n_features = rows.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(network, MLP):
            made: Any = network(n_features, n_outputs)
        elif isinstance(network, nn.Module):
            made = copy.deepcopy(network)
        else:
            made = network(n_features)
            if not isinstance(made, nn.Module):
                raise ValueError(f"network({n_features}) must return an nn.Module; it returned {made!r}.")
        made = made.to(preparation.dtype)
        # A first call checks the shape of the scores. It also creates the parameters of torch's lazy layers.
        more = {"offsets": torch.tensor([0, n])} if takes_offsets(made) else {}
        made.eval()
        with torch.no_grad():
            try:
                scores = made(preparation(rows), **more)
            except RuntimeError as error:
                raise ValueError(
                    f"network must take rows (N, {n_features}); {type(made).__name__} says: "
                    f"{' '.join(str(error).split())}."
                ) from error
            checked_scores(scores, n, n_outputs)
    if not any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"network must have parameters to train; {type(made).__name__} has none.")
    if any(p.device.type != "cpu" for p in made.parameters()):
        raise ValueError("network must be on the CPU, where NeuralRanker trains.")
    return made
