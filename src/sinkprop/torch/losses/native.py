"""The native CPU kernels, wrapped in a torch autograd function."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.types import Floats
from sinkprop.torch.losses.batches import Layout
from sinkprop.torch.losses.modes import forward_mode, tracing

__all__ = ["Backend", "as_array", "check_backend", "native_threads", "native_values", "takes_native"]

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


def native_threads(n_threads: int | None) -> int | None:
    """Return `n_threads`, or 1 if it is None and torch uses only one thread."""
    return 1 if n_threads is None and torch.get_num_threads() == 1 else n_threads


class Values(Protocol):
    """Function from a batch of scores to one value per query, implemented by the kernels and by torch."""

    @property
    def layout(self) -> Layout: ...

    def by_kernels(self, scores: Tensor) -> tuple[Floats, Floats]:
        """Return the values (Q,), and the gradient of their sum with respect to the scores.

        The gradient has one row per document.
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
        dtype = np.float32 if scores.dtype is torch.float32 else np.float64
        gradient = gradient.reshape(scores.shape).astype(dtype, copy=False)
        # NumPy converts small arrays in a third of the time that torch takes
        ctx.save_for_backward(scores, torch.from_numpy(gradient))
        return torch.from_numpy(values.astype(dtype, copy=False))

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
