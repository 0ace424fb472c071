"""The mode torch is in: compiling or vmapping, forward-mode differentiation, autocast."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["call", "forward_mode", "full_precision", "hidden", "in_place", "tracing"]


def tracing() -> bool:
    """Whether torch.compile or torch.func hides the values of tensors from the code that runs."""
    return bool(torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def hidden(*tensors: Tensor) -> bool:
    """Whether values cannot be read: in torch.compile and torch.func, or since a tensor is a meta tensor."""
    return tracing() or any(x.is_meta for x in tensors)


def call(function: Any, *arguments: Any) -> Any:
    """Apply an autograd function that has its own reverse pass.

    During forward-mode differentiation, call the function's `forward` directly instead, so that torch
    differentiates each of its operations. The functions do not define a `jvp` rule, because torch.compile
    does not accept one, and torch.func applies it wrongly to second derivatives.
    """
    return (function.forward if forward_mode() else function.apply)(*arguments)


def forward_mode() -> bool:
    """Whether a forward-mode derivative is being taken, by torch.func.jvp or by dual numbers."""
    return bool(forward_ad._current_level >= 0)


def full_precision(x: Tensor) -> Any:
    """Return a context manager in which autocast does not reduce the precision of matrix products."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def in_place(x: Tensor, operation: str, *arguments: Any) -> Tensor:
    """Apply the named operation to x and return the result; overwrite x if no autograd graph is recorded.

    Overwriting x saves the allocation of a new matrix, which takes longer than most operations. No argument
    may have a vmap axis that x lacks.
    """
    in_place = not (torch.is_grad_enabled() or tracing())
    result: Tensor = getattr(x, operation + "_" * in_place)(*arguments)
    return result
