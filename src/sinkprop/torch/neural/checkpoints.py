"""The checkpoint file from which an unfinished fit of a network resumes."""

from __future__ import annotations

import math
import os
import time

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

    def read(self) -> State | None:
        """Read the state of an earlier, unfinished fit; return None if there is no file.

        Raises a ModelFileError if the file belongs to a fit with other data or parameters.
        """
        if not os.path.exists(self.path):
            return None
        model, tensors = read_network(self.path, kind=self._kind)
        state = model.state
        if state["fingerprint"] != self._fingerprint:
            raise ModelFileError(
                f"{os.fspath(self.path)}: is a checkpoint of a fit with other data or parameters; it was not "
                "changed. Give another file, or remove this one."
            )
        self._written = len(state["epochs"])
        return State.from_record(tensors, state)

    def __call__(self, state: State, last: bool) -> None:
        began = time.perf_counter()
        if len(state.epochs) == self._written or (began < self._next and not last):
            return
        record = {"fingerprint": self._fingerprint, **state.record()}
        write_network(self.path, self._kind, record, state.tensors)
        self._written = len(state.epochs)
        now = time.perf_counter()
        self._next = now + _TIMES * (now - began)


def shared_state(state: State | None, processes: OneProcess) -> State | None:
    """Send the state that rank 0 has read to all processes, and return it in each of them."""
    if processes.size == 1:
        return state
    found = processes.state(*(None, None) if state is None else (state.tensors, state.record()))
    return None if found is None else State.from_record(*found)
