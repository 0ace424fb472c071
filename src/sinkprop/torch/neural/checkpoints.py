"""The checkpoint file from which an unfinished fit of a network resumes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping

from torch import Tensor

from sinkprop.model_files import ModelFileError
from sinkprop.torch.neural.files import read_network, write_network
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.records import State

__all__ = ["Checkpoint", "shared_state"]

_TIMES = 20  # after writing a checkpoint, the pause before the next is this many times the writing time


class Checkpoint:
    """File with the state of a fit after an epoch.

    Calling the object with (state, last) writes the file. If `last` is False, it does so only if enough time
    has passed since the last checkpoint, so that writing takes at most about a twentieth of the fit's time.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, fingerprint: str) -> None:
        self.path, self._kind, self._fingerprint = path, kind, fingerprint
        self._written = -1
        self._next = -math.inf

    def read(self, network: Mapping[str, Tensor], moments: Tensor | None, max_epochs: int) -> State | None:
        """Read the state of an earlier, unfinished fit; return None if there is no file.

        Raises a ModelFileError if the file belongs to a fit with other data or parameters, or if its state
        does not fit the tensors of the network, Adam's moments and the number of epochs.
        """
        if not os.path.exists(self.path):
            return None
        model, tensors = read_network(self.path, kind=self._kind)
        state = model.state
        if state.get("fingerprint") != self._fingerprint:
            raise ModelFileError(
                f"{os.fspath(self.path)}: is a checkpoint of a fit with other data or parameters; it was not "
                "changed. Give another file, or remove this one."
            )
        try:
            found = State.from_record(tensors, state)
            _check(found, network, moments, max_epochs)
        except (LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"{os.fspath(self.path)}: the file is complete, but it is not a checkpoint of this fit "
                f"({type(error).__name__}: {error}). Remove it to fit from the start."
            ) from None
        self._written = len(found.epochs)
        return found

    def __call__(self, state: State, last: bool) -> None:
        began = time.perf_counter()
        if len(state.epochs) == self._written or (began < self._next and not last):
            return
        record = {"fingerprint": self._fingerprint, **state.record()}
        write_network(self.path, self._kind, record, state.tensors)
        self._written = len(state.epochs)
        now = time.perf_counter()
        self._next = now + _TIMES * (now - began)


def _check(state: State, network: Mapping[str, Tensor], moments: Tensor | None, max_epochs: int) -> None:
    """Raise an error unless a fit of this network can continue from the state."""
    expected = {f"{kind}.{name}": x for kind in ("network", "best") for name, x in network.items()}
    if moments is not None:
        expected |= {"mean": moments, "square": moments}
    for name, x in expected.items():
        found = state.tensors[name]
        if found.shape != x.shape or found.dtype != x.dtype:
            raise ValueError(f"the tensor {name} is {found.dtype} of shape {tuple(found.shape)}")
    if not 1 <= len(state.epochs) <= max_epochs:
        raise ValueError(f"{len(state.epochs)} of {max_epochs} epochs")
    for epoch in state.epochs:
        for number in (epoch.loss, epoch.criterion, epoch.seconds, epoch.sigma or 0.0, epoch.training or 0.0):
            if not isinstance(number, float | int):
                raise TypeError(f"an epoch with {number!r} for a number")
    counts = {"best": (state.best, len(state.epochs)), "steps": (state.steps, 2**53)}
    for name, (count, limit) in counts.items():
        if type(count) is not int or not 0 <= count < limit:
            raise ValueError(f"{name} is {count!r}")


def shared_state(state: State | None, processes: OneProcess) -> State | None:
    """Send the state that rank 0 has read to all processes, and return it in each of them."""
    if processes.size == 1:
        return state
    found = processes.state(*(None, None) if state is None else (state.tensors, state.record()))
    return None if found is None else State.from_record(*found)
