"""Several processes that train one network together, by torch.distributed.

Every process runs the same program and has a number, torch.distributed's rank. Work that a process does
alone, such as reading, computing gradients or calling a user's function, is in a block
`with processes.together()`. At the end of the block the processes tell each other whether it succeeded. So an
error, an overflow or an interrupt in one process ends the fit in all of them, and none waits for a process
that has ended. Between two such blocks the processes only exchange tensors.
"""

from __future__ import annotations

import atexit
import io
import json
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sinkprop.common.types import Floats
from sinkprop.torch.neural.scoring import NetworkOverflowError

__all__ = ["OneProcess", "Processes", "RankError", "Said", "processes_of", "rank_here"]


# Largest number of lanes of a minibatch. Lanes are the parts of a minibatch that are computed in parallel,
# see `training`. If there are more processes than lanes, some processes have no work.
LANES = 16

_SAME_INTERRUPT = 5.0  # a second interrupt within this many seconds counts as the same one

_FINE, _INTERRUPTED, _OVERFLOWED, _FAILED = range(4)  # outcome of a `together` block; larger is more severe
_MODES = ("shared", "own")


class RankError(RuntimeError):
    """Error for a distributed fit that ended because another process failed or does not answer.

    If a process failed, the message gives its rank (number) and its error in one line.
    """


class Said:
    """Numbers that the processes send each other at the end of a `with processes.together()` block.

    values  Numbers that this process sends, at most LANES of them. The block sets them.
    heard   Numbers that all processes sent, one row per process.
    """

    def __init__(self) -> None:
        self.values: Sequence[float] = ()
        self.heard: Floats = np.empty((1, 0))


class OneProcess:
    """A process that trains alone, with the interface of `Processes`."""

    rank, size, own = 0, 1, False

    @contextmanager
    def together(self) -> Iterator[Said]:
        """Context manager for a block that each process runs by itself.

        The block gets a `Said` object and can store numbers in its `values`. At the end of the block, the
        processes send each other these numbers and their errors. An error in one process is raised in all
        of them.
        """
        said = Said()
        yield said
        said.heard = np.array([said.values])

    def share(self, n: int) -> range:
        """Divide n tasks, numbered from 0, among the processes; return the numbers of this process's tasks.

        Use it only if all processes have the same queries.
        """
        return range(n)

    def gradient(self, parts: Sequence[Tensor], n: int, like: Tensor) -> Tensor:
        """Return the sum of the parts of a gradient that all processes have computed.

        If all processes have the same queries, the parts are added in a fixed order.

        parts  Terms that this process has computed, each of the shape of `like`.
        n      Number of terms in all processes. Ignored if every process has its own queries.
        """
        if not len(parts):
            return torch.zeros_like(like)
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def gather(self, vector: Floats) -> Floats:
        """Return the vectors of all processes, which must have the same length n, as (processes, n)."""
        return vector[None]

    def total(self, vector: Floats) -> Floats:
        """Return the sum of the vectors of all processes."""
        return vector

    def first(self, vector: Floats) -> Floats:
        """Return, in every process, the vector that process 0 passed to this method."""
        return vector

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the tensors of every process with those of process 0."""

    def average(self, tensors: Mapping[str, Tensor], weight: float) -> None:
        """Overwrite each tensor with its weighted mean over the processes, or its maximum if it has integers.

        weight  Weight of this process. If all weights are 0, the tensors are unchanged.
        """

    def same(self, facts: Mapping[str, Any]) -> None:
        """Raise a ValueError in all processes if a value in `facts`, {name: value}, differs between them.

        The message contains the name and two of the values.
        """

    def state(self, tensors: dict[str, Tensor] | None, record: Any) -> tuple[dict[str, Tensor], Any] | None:
        """Return, in every process, the tensors and the record that process 0 passed to this method.

        Returns None if process 0 passed None as tensors.
        """
        return None if tensors is None else (tensors, record)

    def texts(self, text: str) -> list[str]:
        """Return, in every process, a list of the texts that each process passed to this method.

        The list is in the order of the numbers of the processes.
        """
        return [text]


class Processes(OneProcess):
    """The processes of torch.distributed's default group.

    own  Whether every process has its own queries. Otherwise all have the same queries and share the work.
    """

    def __init__(self, own: bool) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.own = own
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = _device()
        self._interrupted = False

    @contextmanager
    def deferring_interrupts(self) -> Iterator[None]:
        """Context manager in which Ctrl-C takes effect only at the end of the current `together` block.

        torchrun forwards the interrupt to processes that have received it from the terminal already, so a
        second interrupt within a few seconds counts as the same one. A later interrupt takes effect
        immediately, since the block may have hung.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        last = -math.inf

        def note(number: int, frame: Any) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < _SAME_INTERRUPT:
                return
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted, last = True, now

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def together(self) -> Iterator[Said]:
        said, error = Said(), None
        try:
            yield said
        except BaseException as raised:
            if getattr(raised, "known_to_all", False):
                raise
            error = raised
        if error is None and self._interrupted:
            self._interrupted, error = False, KeyboardInterrupt()
        vector = np.zeros(1 + LANES)
        vector[0] = _code(error)
        if error is None:
            vector[1 : 1 + len(said.values)] = said.values
        heard = self.gather(vector)
        if heard[:, 0].any():
            raise self._failure(heard[:, 0], error) from None
        said.heard = heard[:, 1:]

    def _failure(self, codes: Floats, error: BaseException | None) -> BaseException:
        """Return the error to raise in this process after a failure in any process.

        It is this process's own error if none is more severe. Otherwise it is a new error with the message of
        the most severe one.

        codes  Severity of each process's error: `_FINE`, `_INTERRUPTED`, `_OVERFLOWED` or `_FAILED`.
        error  Error of this process, or None.
        """
        lines = self.texts("" if error is None else _line(error))
        gravest = int(codes.max())
        if _code(error) != gravest or error is None:
            rank = int(np.argmax(codes))
            kinds = {_INTERRUPTED: KeyboardInterrupt, _OVERFLOWED: NetworkOverflowError}
            kind = kinds.get(gravest, RankError)
            line = lines[rank] if kind is RankError else lines[rank].partition(": ")[2]
            error = kind(f"rank {rank} of {self.size}: {line}")
        error.known_to_all = True  # type: ignore[attr-defined]
        return error

    def share(self, n: int, rank: int | None = None) -> range:
        rank = self.rank if rank is None else rank
        return range(rank * n // self.size, (rank + 1) * n // self.size)

    def gradient(self, parts: Sequence[Tensor], n: int, like: Tensor) -> Tensor:
        if self.own:
            return self._sum(super().gradient(parts, len(parts), like))
        mine = torch.zeros((-(-n // self.size), *like.shape), dtype=like.dtype)
        for i, part in enumerate(parts):
            mine[i] = part
        found = self._gather(mine)
        in_order = [found[rank, i] for rank in range(self.size) for i in range(len(self.share(n, rank)))]
        return super().gradient(in_order, n, like)

    def gather(self, vector: Floats) -> Floats:
        found: Floats = self._gather(torch.from_numpy(np.ascontiguousarray(vector))).numpy()
        return found

    def total(self, vector: Floats) -> Floats:
        found: Floats = self._sum(torch.from_numpy(np.array(vector))).numpy()
        return found

    def first(self, vector: Floats) -> Floats:
        found: Floats = self._broadcast(torch.from_numpy(np.array(vector, dtype=np.float64))).numpy()
        return found

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for tensor in tensors.values():
                tensor.copy_(self._broadcast(tensor.detach().clone()))

    def average(self, tensors: Mapping[str, Tensor], weight: float) -> None:
        weights = self.gather(np.array([weight]))[:, 0]
        if not weights.any():
            return
        shares = weights / weights.sum()
        with torch.no_grad():
            for tensor in tensors.values():
                found = self._gather(tensor.detach().clone())
                if tensor.is_floating_point():
                    tensor.copy_(sum(share * x for share, x in zip(shares.tolist(), found, strict=True)))
                else:
                    tensor.copy_(found.amax(dim=0))

    def same(self, facts: Mapping[str, Any]) -> None:
        found = [json.loads(text) for text in self.texts(json.dumps({k: str(v) for k, v in facts.items()}))]
        for name, value in found[0].items():
            for rank, other in enumerate(found):
                if other.get(name) != value:
                    raise ValueError(
                        f"all ranks must have the same {name}, but rank 0 has {_short(value)} and rank "
                        f"{rank} has {_short(other.get(name))}."
                    )

    def state(self, tensors: dict[str, Tensor] | None, record: Any) -> tuple[dict[str, Tensor], Any] | None:
        packed = b""
        if self.rank == 0 and tensors is not None:
            buffer = io.BytesIO()
            torch.save({"tensors": tensors, "record": json.dumps(record)}, buffer)
            packed = buffer.getvalue()
        n = int(self.first(np.array([len(packed)]))[0])
        if not n:
            return None
        data = torch.zeros(n, dtype=torch.uint8)
        if self.rank == 0:
            data.copy_(torch.frombuffer(bytearray(packed), dtype=torch.uint8))
        content = torch.load(io.BytesIO(self._broadcast(data).numpy().tobytes()), weights_only=True)
        return content["tensors"], json.loads(content["record"])

    def texts(self, text: str) -> list[str]:
        mine = text.encode()
        lengths = self.gather(np.array([float(len(mine))]))[:, 0].astype(int)
        if not lengths.max():
            return [""] * self.size
        room = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        if mine:
            room[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        found = self._gather(room).numpy()
        return [found[r, :n].tobytes().decode() for r, n in enumerate(lengths)]

    def _gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, stacked along a new first axis, on the CPU."""
        sent = tensor.to(self._device)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self._call(self._dist.all_gather, found, sent)
        return torch.stack(found).cpu()

    def _sum(self, tensor: Tensor) -> Tensor:
        sent = tensor.to(self._device)
        self._call(self._dist.all_reduce, sent)
        return sent.cpu()

    def _broadcast(self, tensor: Tensor) -> Tensor:
        sent = tensor.to(self._device)
        self._call(self._dist.broadcast, sent, 0)
        return sent.cpu()

    def _call(self, collective: Any, *arguments: Any) -> None:
        try:
            collective(*arguments)
        except RuntimeError as error:
            gone = RankError(
                f"rank {self.rank} of {self.size}: another rank has ended, or does not answer "
                f"({_first_line(error)}). With checkpoint= the same fit, started again, resumes."
            )
            gone.known_to_all = True  # type: ignore[attr-defined]  # the others cannot be told
            raise gone from error


@contextmanager
def processes_of(distributed: str | None) -> Iterator[OneProcess]:
    """Context manager that yields the processes that train together.

    Starts torch.distributed if torchrun has started this process and torch.distributed is not running yet.
    Raises a ValueError if `distributed` is invalid or there is no group of processes.
    """
    if distributed is None:
        yield OneProcess()
        return
    if distributed not in _MODES:
        raise ValueError(
            "distributed must be None, 'shared' (every rank has the same queries) or 'own' (every rank has "
            f"its own queries); got {distributed!r}."
        )
    import torch.distributed as dist

    if not dist.is_available():
        raise ValueError(
            f"distributed={distributed!r} needs a PyTorch with torch.distributed; this one is without it."
        )
    if not dist.is_initialized():
        if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
            raise ValueError(
                f"distributed={distributed!r} needs several processes: start the program by torchrun, or "
                "call torch.distributed.init_process_group before fit."
            )
        dist.init_process_group("gloo")  # gloo is the backend for CPU tensors, and training runs on the CPU
        atexit.register(_end)
    processes = Processes(distributed == "own")
    with processes.deferring_interrupts(), processes.together():
        yield processes


def rank_here() -> int:
    """Return the rank of this process; 0 if torch.distributed is not running."""
    import torch.distributed as dist

    return int(dist.get_rank()) if dist.is_available() and dist.is_initialized() else 0


def _end() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _device() -> torch.device:
    """Return the device of the tensors that the processes exchange.

    It is the CPU if the backend of torch.distributed supports it, otherwise the current CUDA device.
    """
    import torch.distributed as dist

    config = str(dist.get_backend_config())  # such as "cpu:gloo,cuda:nccl"
    if "cpu:" in config:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def _code(error: BaseException | None) -> int:
    if error is None:
        return _FINE
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    return _OVERFLOWED if isinstance(error, NetworkOverflowError) else _FAILED


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _short(text: Any) -> str:
    text = str(text)
    return text if len(text) <= 80 else f"{text[:60]}..."
