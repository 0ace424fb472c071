"""Tasks for a cluster's workers, which import this module, and data to run them on."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.data import Queries
from sinkprop.data.blocks import Block


def queries(seed: int = 0, n: int = 90, *, n_features: int = 4, first: int = 0) -> Queries:
    """Queries of 1 to 14 documents, their rows in order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n)
    X = rng.normal(size=(sizes.sum(), n_features)).astype(np.float32)
    y = np.digitize(X[:, 0] + rng.normal(size=len(X)), [0.5, 1.5]).astype(float)
    return Queries(X, y, np.repeat(first + 3 * np.arange(n), sizes))


def both_there(client: Any) -> Any:
    """A client of two workers, once both are there: the test before may have killed one."""
    from sinkprop.cluster.connecting import workers_of

    while len(workers_of(client)) < 2:
        time.sleep(0.05)
    return client


@dataclass(frozen=True)
class Seen:
    """All that blocks hold, in their order."""

    def __call__(self, block: Block) -> dict[str, NDArray[Any]]:
        data = block.data
        q = data.n_queries
        assert data.groups.rows is None
        assert data.groups.longest == np.diff(data.groups.offsets).max()
        return {
            "X": np.array(data.X),
            "y": data.y,
            "sizes": np.diff(data.groups.offsets),
            "ids": data.groups.queries,
            "numbers": block.first + np.arange(q),
            "weight": np.full(q, -1.0) if data.query_weight is None else data.query_weight,
            "codes": np.full(q, -1) if block.codes is None else block.codes,
        }

    def combine(self, parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


@dataclass(frozen=True)
class Order:
    """How partitions were combined, as text; a block is nothing."""

    def __call__(self, block: Block) -> str:
        return str(block.first)

    def combine(self, parts: Sequence[str]) -> str:
        return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


class Part:
    """A text, of which those that are alive are counted."""

    def __init__(self, text: str) -> None:
        self.text = text
        Parts.alive += 1
        Parts.most = max(Parts.most, Parts.alive)

    def __del__(self) -> None:
        Parts.alive -= 1


class Parts:
    """`Order`, whose results are counted."""

    alive = most = 0

    def __call__(self, block: Block) -> Part:
        return Part(Order()(block))

    def combine(self, parts: Sequence[Part]) -> Part:
        return Part(Order().combine([part.text for part in parts]))


@dataclass(frozen=True)
class Total:
    """The sum of w'X in floating point, whose bits depend on the order."""

    w: NDArray[np.float64]
    seconds: float = 0.0

    def __call__(self, block: Block) -> float:
        time.sleep(self.seconds)
        return float((block.data.X @ self.w).sum())

    def combine(self, parts: Sequence[float]) -> float:
        return float(np.sum(parts))


@dataclass(frozen=True)
class Dying:
    """A task that ends the process it runs in, as often as there are files to remove in a folder."""

    folder: str

    def __call__(self, block: Block) -> int:
        for name in os.listdir(self.folder):
            try:
                os.remove(os.path.join(self.folder, name))
            except FileNotFoundError:  # another worker was faster
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return len(block.data.y)

    def combine(self, parts: Sequence[int]) -> int:
        return sum(parts)


@dataclass(frozen=True)
class Wrong:
    def __call__(self, block: Block) -> int:
        raise ValueError(f"no good: {block.first >= 0}")

    def combine(self, parts: Sequence[int]) -> int:
        return sum(parts)


def pretend(version: str | None) -> None:
    """Another version of sinkprop in this process, or none; "" for what there really is."""
    sys.modules["sinkprop"] = sinkprop if version is not None else None  # type: ignore[assignment]
    sinkprop.__version__ = version or _VERSION


def compute_with(name: str) -> bool:
    """Other instructions for the native code of a process."""
    return sinkprop._native.use_instruction_set(name)


def blind(path: str | None) -> None:
    """A process that sees nothing at a path any more; None ends that."""

    def stat(at: Any, *more: Any, **options: Any) -> os.stat_result:
        if str(at).startswith(str(path)):
            raise FileNotFoundError(2, "No such file or directory", str(at))
        return _STAT(at, *more, **options)

    os.stat = _STAT if path is None else stat  # type: ignore[assignment]


_VERSION, _STAT = sinkprop.__version__, os.stat
