"""Scores of rows by a network, computed on several threads, and the ranks that follow from them."""

from __future__ import annotations

import copy
import inspect
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sinkprop.common.arguments import threads
from sinkprop.common.forks import guard_forked_process
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Groups
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.rank_distribution import partitioned_ranks
from sinkprop.objective.relaxations import Relaxation, score_weights
from sinkprop.torch.neural.preparation import Preparation

__all__ = [
    "NetworkOverflowError",
    "Scoring",
    "checked_scores",
    "cut",
    "network_scores",
    "one_torch_thread",
    "takes_offsets",
    "thread_pool",
]


_CHUNK = 1 << 13  # rows per call of the network
# For a partitioned measure, documents are sorted by expected rank. Then the Hungarian algorithm reorders this
# many documents at the top of each query.
_TOP = 200


class NetworkOverflowError(ArithmeticError):
    """Error for scores or gradients of a network that are NaN or infinite.

    Its attribute `result` is the `NetworkFit` of the epochs before the overflow, or None if there are none.
    """

    result: Any = None


@dataclass(frozen=True, eq=False)
class Scoring:
    """Rules by which the outputs of a network become scores and ranks.

    relaxation       Relaxation of the loss; with None, the network has one output per document.
    n_iter, epsilon  Parameters of the loss's Sinkhorn normalization.
    exact            Whether to run the network in double precision, see `network_scores`.
    n_threads        Number of threads; None for the default of `expected_gain`.
    """

    preparation: Preparation
    relaxation: Relaxation | None
    n_iter: Iterations
    epsilon: float
    exact: bool
    n_threads: int | None

    @property
    def n_outputs(self) -> int:
        return 1 if self.relaxation is None else self.relaxation.width

    def outputs(self, module: nn.Module, X: Any, groups: Groups | None) -> Floats:
        """Return the outputs (N,) or (N, 2) of the network for X.

        X is a tensor of rows that are prepared for the network, or an array of rows that are not.
        """
        rows = None if groups is None else groups.rows
        theta = network_scores(
            module,
            X if rows is None else X[rows],
            None if groups is None else groups.offsets,
            self.preparation,
            n_outputs=self.n_outputs,
            exact=self.exact,
            n_threads=threads(self.n_threads, len(X)),
        )
        if rows is None:
            return theta
        unsorted = np.empty_like(theta)
        unsorted[rows] = theta
        return unsorted

    def scores(self, module: nn.Module, X: Any, groups: Groups | None) -> Floats:
        """Return one score per row, (N,)."""
        theta = self.outputs(module, X, groups)
        if theta.ndim == 1 or self.relaxation is None:
            return theta
        scores: Floats = theta @ np.array(score_weights(self.relaxation))
        return scores

    def ranks(self, module: nn.Module, X: Any, groups: Groups) -> Integers:
        """Return the ranks (N,) of the rows in their queries, for a partitioned measure.

        The network's outputs give the probability of each rank for each document. `choose_permutation`
        chooses one ranking from these probabilities.
        """
        assert self.relaxation is not None
        theta = self.outputs(module, X, groups)
        settings: dict[str, Any] = {"n_iter": self.n_iter, "epsilon": self.epsilon, "top": _TOP}
        return partitioned_ranks(theta, groups, self.relaxation, **settings)

    def validation_scores(self, module: nn.Module, rows: Any, offsets: Integers) -> Floats:
        """Return scores (N,) that rank the rows of validation queries; the rows must be sorted by query.

        For a partitioned measure, these are the negative ranks.
        """
        groups = Groups.of_sizes(np.diff(offsets))
        if self.n_outputs == 1:
            return self.outputs(module, rows, groups)
        return -self.ranks(module, rows, groups).astype(np.float64)


def network_scores(
    module: nn.Module,
    rows: Tensor | NDArray[Any],
    offsets: Integers | None,
    preparation: Preparation,
    *,
    n_outputs: int,
    exact: bool,
    n_threads: int = 1,
) -> Floats:
    """Compute the scores of the rows, (N,), or (N, 2) if `n_outputs` is 2.

    Raises a NetworkOverflowError if a score is NaN or infinite.

    offsets  Offsets of the queries, by which the rows must be sorted; None if the queries are not known.
    exact    Whether to run the module in double precision and round the scores to single precision. Then
             documents with the same features have the same score, independent of the other rows. In single
             precision the last bits of a score depend on the position of its row in the matrix.
    """
    listwise = takes_offsets(module)
    n = len(rows)
    if offsets is None:
        if listwise:
            raise ValueError("predict needs qid=: the network looks at the documents of a query together.")
        offsets = np.array([0, n])
    if listwise:
        sizes = np.diff(offsets)
        parts = cut(np.arange(len(sizes)), sizes, _CHUNK)
        bounds = [(int(p[0]), int(p[-1]) + 1) for p in parts]
    else:
        bounds = [(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]
    out = np.empty((n, n_outputs) if n_outputs > 1 else n)
    if exact:
        module = copy.deepcopy(module).double()

    def run(bound: tuple[int, int]) -> None:
        first, last = bound
        more: dict[str, Any] = {}
        if listwise:
            ends = offsets[first : last + 1]
            more["offsets"] = torch.from_numpy(ends - ends[0])
            first, last = int(ends[0]), int(ends[-1])
        part = rows[first:last]
        features = part if isinstance(part, Tensor) else preparation(part)
        with torch.inference_mode():
            scores = module(features.double() if exact else features, **more)
            scores = checked_scores(scores, last - first, n_outputs)
            out[first:last] = (scores.float() if exact else scores).numpy()

    with one_torch_thread(), thread_pool(min(n_threads, len(bounds))) as pool:
        if pool is None:
            for bound in bounds:
                run(bound)
        else:
            list(pool.map(run, bounds))
    if not np.isfinite(out).all():
        row = int(np.argmin(np.isfinite(out if out.ndim == 1 else out.sum(axis=1))))
        raise NetworkOverflowError(
            f"the score of row {row} is {out[row]}: the network or its features have overflowed."
        )
    return out


def checked_scores(scores: Any, n: int, n_outputs: int) -> Tensor:
    """Check the scores that a network returned, and drop the last axis of (N, 1).

    Raises a ValueError unless they are floating-point numbers of the right shape: (N,) or (N, 1) if
    `n_outputs` is 1, and (N, 2) if it is 2.
    """
    if isinstance(scores, Tensor) and scores.is_floating_point():
        if n_outputs == 1 and scores.shape == (n, 1):
            return scores.squeeze(1)
        if scores.shape == ((n,) if n_outputs == 1 else (n, n_outputs)):
            return scores
    expected = f"({n},) or ({n}, 1)" if n_outputs == 1 else f"({n}, {n_outputs})"
    kind = (
        f"a tensor of {scores.dtype}, {tuple(scores.shape)}" if isinstance(scores, Tensor) else repr(scores)
    )
    raise ValueError(
        f"network must return floating-point scores of shape {expected} for {n} rows; it returned {kind}."
    )


def takes_offsets(module: nn.Module) -> bool:
    """Whether the module's forward has an argument `offsets`, by which it receives the queries."""
    return "offsets" in inspect.signature(module.forward).parameters


_lock = threading.Lock()
_users, _before = 0, 1


def _after_fork() -> None:
    """Forget the contexts of the parent process, whose threads do not exist in this one."""
    global _lock, _users
    _lock, _users = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Context manager in which each torch operation uses one thread.

    If such contexts overlap, the last one to exit restores the previous number of threads.
    """
    global _users, _before  # noqa: PLW0603
    guard_forked_process()
    with _lock:
        if not _users:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                torch.set_num_threads(_before)


@contextmanager
def thread_pool(count: int) -> Iterator[ThreadPoolExecutor | None]:
    """Context manager that yields a pool of `count` threads, or None if `count` is at most 1."""
    if count <= 1:
        yield None
        return
    with ThreadPoolExecutor(count, thread_name_prefix="sinkprop") as pool:
        yield pool


def cut(order: Integers, sizes: Integers, budget: int) -> list[Integers]:
    """Cut the queries into parts of at most `budget` documents; return the query indices of each part.

    A query with more documents than that is a part by itself.

    order  Indices of the queries, in the order in which they are put into parts.
    sizes  Number of documents of each query.

    >>> [part.tolist() for part in cut(np.array([2, 0, 1, 3]), np.array([3, 4, 2, 9]), 6)]
    [[2, 0], [1], [3]]
    """
    parts, begin, documents = [], 0, 0
    for i, size in enumerate(sizes[order].tolist()):
        if i > begin and documents + size > budget:
            parts.append(order[begin:i])
            begin, documents = i, 0
        documents += size
    parts.append(order[begin:])
    return parts
