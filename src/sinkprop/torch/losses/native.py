"""The native CPU kernels, wrapped in a torch autograd function."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.types import Floats, Reals
from sinkprop.torch.losses.batches import Layout
from sinkprop.torch.losses.modes import forward_mode, tracing

__all__ = [
    "Backend",
    "as_array",
    "as_real_array",
    "check_backend",
    "native_threads",
    "native_values",
    "takes_native",
]

Backend = Literal["auto", "native", "torch"]

_BACKENDS = get_args(Backend)


def takes_native(scores: Tensor, backend: Backend) -> bool:
    """Whether to run the native kernels: if they can run and `backend` is not "torch".

    They can run on CPU tensors outside of torch.compile, torch.func and forward-mode differentiation. Raises
    a ValueError if `backend` is "native" and they cannot run.
    """
    possible = scores.device.type == "cpu" and not (tracing() or forward_mode())
    if backend == "native" and not possible:
        raise ValueError(
            "backend='native' needs scores on the CPU, outside of torch.compile, torch.func and "
            f"forward-mode derivatives; got scores on {str(scores.device)!r}. Use backend='auto'."
        )
    return possible and backend != "torch"


def check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be 'auto', 'native' or 'torch'; got {backend!r}.")


def as_array(x: Tensor) -> Floats:
    """Return the values of a tensor as a float64 array; no copy if it is contiguous float64 on the CPU."""
    if x.dtype is torch.bfloat16:  # NumPy has no bfloat16
        x = x.float()
    return np.asarray(x.numpy(force=True), dtype=np.float64, order="C")


def as_real_array(x: Tensor) -> Reals:
    """Return the values of a tensor as `as_array` does, except that float32 stays float32."""
    return np.asarray(x.numpy(force=True), order="C") if x.dtype is torch.float32 else as_array(x)


def native_threads(n_threads: int | None) -> int | None:
    """Return `n_threads`, or 1 if it is None and torch uses only one thread."""
    return 1 if n_threads is None and torch.get_num_threads() == 1 else n_threads


class Values(Protocol):
    """Function from a batch of scores to one value per query, implemented by the kernels and by torch."""

    @property
    def layout(self) -> Layout: ...

    def by_kernels(self, scores: Tensor) -> tuple[Floats, Reals]:
        """Return the values (Q,), and the gradient of their sum with respect to the scores.

        The gradient has one row per document, and the dtype of the scores.
        """

    def by_torch(self, scores: Tensor) -> Tensor:
        """Return the values (Q,), computed by torch's operations, which also have second derivatives."""


def native_values(scores: Tensor, function: Values) -> Tensor:
    """Return the function's values (Q,), computed by the native kernels and differentiable in the scores."""
    values: Tensor = _Native.apply(scores, function)
    return values


class _Native(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, scores: Tensor, function: Values) -> Tensor:
        values, gradient = function.by_kernels(scores)
        ctx.function = function
        ctx.save_for_backward(scores, torch.from_numpy(gradient.reshape(scores.shape)))
        # NumPy converts small arrays in a third of the time that torch takes
        return torch.from_numpy(values.astype(gradient.dtype, copy=False))

    @staticmethod
    def backward(ctx: Any, values_bar: Tensor) -> tuple[Tensor, None]:
        scores, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself must be differentiable
            values = ctx.function.by_torch(scores)
            (scores_bar,) = torch.autograd.grad(values, scores, values_bar, create_graph=True)
            return scores_bar, None
        layout = ctx.function.layout
        factor = layout.spread(values_bar)
        return gradient * (factor if gradient.ndim == len(layout.shape) else factor[..., None]), None
