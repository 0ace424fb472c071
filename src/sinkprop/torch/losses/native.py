"""The CPU path: the native kernels on the tensors' own memory, as a function that torch differentiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sinkprop.common.types import Floats
from sinkprop.torch.losses.batches import Layout
from sinkprop.torch.losses.modes import forward_mode, tracing

__all__ = ["Backend", "as_array", "check_backend", "native_threads", "native_values", "takes_native"]

Backend = Literal["auto", "native", "torch"]


def takes_native(scores: Tensor, backend: Backend) -> bool:
    """Whether the kernels run: on the CPU, unless the caller wants torch's operations or needs them."""
    check_backend(backend)
    possible = scores.device.type == "cpu" and not (tracing() or forward_mode())
    if backend == "native" and not possible:
        raise ValueError(
            "backend='native' needs scores on the CPU, outside of torch.compile, torch.func and "
            f"forward-mode derivatives; got scores on {str(scores.device)!r}. Use backend='auto'."
        )
    return possible and backend != "torch"


def check_backend(backend: str) -> None:
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be 'auto', 'native' or 'torch'; got {backend!r}.")


def as_array(x: Tensor) -> Floats:
    """The numbers of a CPU tensor as float64: its own memory where it is that already, and contiguous."""
    array: Floats = x.detach().to(torch.float64).contiguous().numpy()
    return array


def native_threads(n_threads: int | None) -> int | None:
    """Threads for the kernels: no more than torch may use, where the caller has no wish."""
    return 1 if n_threads is None and torch.get_num_threads() == 1 else n_threads


def native_values(
    scores: Tensor,
    layout: Layout,
    evaluate: Callable[[Floats], tuple[Floats, Floats]],
    again: Callable[[Tensor], Tensor],
) -> Tensor:
    """Values (Q,) of queries, differentiable in the scores.

    evaluate  values and the gradient of their sum, from scores as float64
    again     the same values by torch's own operations: for a second derivative, which the kernels lack
    """
    values: Tensor = _Native.apply(scores, layout, evaluate, again)
    return values


class _Native(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, scores: Tensor, layout: Layout, evaluate: Any, again: Any) -> Tensor:
        values, gradient = evaluate(as_array(scores))
        ctx.layout, ctx.again = layout, again
        ctx.save_for_backward(scores, torch.from_numpy(gradient).to(scores.dtype).reshape(scores.shape))
        return torch.from_numpy(values).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, values_bar: Tensor) -> tuple[Tensor, None, None, None]:
        scores, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the result is to be differentiated itself
            (scores_bar,) = torch.autograd.grad(ctx.again(scores), scores, values_bar, create_graph=True)
            return scores_bar, None, None, None
        factor = ctx.layout.spread(values_bar)
        scores_bar = gradient * (factor if gradient.ndim == len(ctx.layout.shape) else factor[..., None])
        return scores_bar, None, None, None
