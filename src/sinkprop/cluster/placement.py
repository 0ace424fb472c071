"""Placement of partitions: which worker holds which, and recovery when a worker is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from sinkprop.cluster.connecting import differing, workers_of
from sinkprop.cluster.errors import ClusterLost
from sinkprop.cluster.partitions import Held, Stored, load_letor_partition
from sinkprop.cluster.presence import results

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Arrays", "File", "Frame", "InFile", "Placement", "Recipe"]

_REFRESH = 3.0  # seconds between two requests for the list of workers
_POLL = 0.5
# With at least this many partitions per worker, each worker gets consecutive partitions: the work is then
# even enough, and a worker can combine results of consecutive partitions before it sends them to the client.
_MANY = 8

logger = logging.getLogger("sinkprop.cluster")


class Recipe(Protocol):
    """Instructions to make one partition. They are carried out again if the partition is lost."""

    @property
    def name(self) -> str:
        """Name of the partition in messages."""

    @property
    def settled(self) -> bool:
        """Whether Dask chooses the partition's worker, and makes the partition again if it is lost."""

    def load(self, client: Client, worker: str) -> Any:
        """Put the partition on a worker.

        Returns a Dask future of the partition. If the partition stays on disk, returns a description of it,
        which is sent with each task. Returns None if the worker was lost.
        """


@dataclass(frozen=True)
class InFile:
    """Consecutive queries of a stored set. Nothing is loaded: workers read them during each task."""

    partition: Stored
    name: str
    settled: bool = False

    def load(self, client: Client, worker: str) -> Stored:
        return self.partition


@dataclass(frozen=True)
class File:
    """A LETOR file, loaded by the worker."""

    path: str
    n_features: int | None
    by_query: bool
    allow_nan: bool = False
    settled: bool = False

    @property
    def name(self) -> str:
        return self.path

    def load(self, client: Client, worker: str) -> Future:
        return client.submit(
            load_letor_partition,
            self.path,
            self.n_features,
            self.by_query,
            self.allow_nan,
            workers=[worker],
            key=f"sinkprop-load-{uuid4().hex}",
            pure=False,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """Rows of arrays in this process, sent to the worker."""

    held: Held
    name: str
    settled: bool = False

    def load(self, client: Client, worker: str) -> Future | None:
        sent = client.sync(self._sent, client, worker)
        # the scheduler has lost the worker, or cannot reach it: `Placement.refresh` tries again
        if isinstance(sent, KeyError | OSError | asyncio.TimeoutError):
            return None
        if isinstance(sent, BaseException):
            raise sent
        (future,) = sent
        return future

    async def _sent(self, client: Client, worker: str) -> Any:
        sending = client.scatter([self.held], workers=[worker], hash=False, timeout=5)
        return (await results(client, {worker: sending}))[worker]


@dataclass(eq=False)
class Frame:
    """A partition of a Dask DataFrame; Dask makes it and chooses its worker."""

    future: Future
    name: str
    settled: bool = True

    def load(self, client: Client, worker: str) -> Future:
        return self.future


@dataclass(eq=False, repr=False)
class Placement:
    """Assignment of partitions to workers.

    recipes  Recipe of each partition.
    weights  Amount of work of each partition, such as its number of rows.
    workers  Number of threads of each worker, by address.
    where    Address of each partition's worker.
    loaded   Each partition, as `Recipe.load` returned it.
    version  Number that changes whenever a partition is made or moved.
    """

    client: Client
    recipes: Sequence[Recipe]
    weights: Sequence[int]
    workers: dict[str, int] = field(default_factory=dict)
    where: list[str] = field(default_factory=list)
    loaded: list[Any] = field(default_factory=list)
    version: int = 0
    _unfit: set[str] = field(default_factory=set)
    _looked: float = -_REFRESH

    def refresh(self, *, at_once: bool = False) -> None:
        """Move the partitions of lost workers to others, and give partitions to workers that have joined.

        Does nothing if less than `_REFRESH` seconds have passed since it last looked up the workers, unless
        `at_once` is True.
        """
        if not at_once and time.monotonic() - self._looked < _REFRESH:
            return
        while True:
            workers = self._fit_workers()
            if any(recipe.settled for recipe in self.recipes):
                self._follow(workers)
            elif set(workers) != set(self.workers) or not self.where or self._broken():
                self._place(workers)
            self.workers, self._looked = workers, time.monotonic()
            if None not in self.loaded:
                return
            # A worker was lost while data was being sent to it: give the scheduler time to notice this loss.
            time.sleep(0.1)

    def release(self) -> None:
        """Free all partitions on the workers."""
        made = [recipe.future for recipe in self.recipes if isinstance(recipe, Frame)]
        for partition in [*self.loaded, *made]:
            if hasattr(partition, "release"):
                partition.release()
        self.where, self.loaded, self.workers = [], [], {}
        self.version += 1

    def _fit_workers(self) -> dict[str, int]:
        """Number of threads of each worker that can take part in the fit, by address.

        A worker that has joined since the start is left out, with a warning, if it has other versions of
        sinkprop or Python than this process, lacks a package or does not answer. Raises
        `ClusterLost` if no worker can take part.
        """
        found = workers_of(self.client)
        new = set(found) - set(self.workers) - self._unfit
        if new and self.workers:
            for address, what in differing(self.client, new).items():
                logger.warning("the worker %s is not used: it %s", address, what)
                self._unfit.add(address)
        fit = {address: n for address, n in found.items() if address not in self._unfit}
        if not fit:
            raise ClusterLost(f"none of the {len(found)} workers left can take part in the fit.")
        return fit

    def _broken(self) -> bool:
        """Whether a loaded partition has been lost."""
        return any(_is_lost(partition) for partition in self.loaded)

    def _place(self, workers: dict[str, int]) -> None:
        """Assign the partitions to the workers, and load every partition that is not yet on its worker."""
        gone = {address for address in self.where if address not in workers}
        if gone:
            n = sum(address in gone for address in self.where)
            logger.warning(
                "%s gone: %d of %d partitions move to %d %s",
                _listed(gone), n, len(self.where),
                len(workers), "other" if len(workers) == 1 else "others",
            )  # fmt: skip
        # queries in a file cost nothing to move to another worker, and are fastest to read consecutively
        in_file = isinstance(self.recipes[0], InFile)
        if in_file or (not self.where and len(self.recipes) >= _MANY * len(workers)):
            where = _runs(self.weights, workers)
        else:
            where = _spread(self.weights, workers, self.where)
        before, self.version = self.loaded, self.version + 1
        self.loaded = [
            before[i]
            if before and self.where[i] == where[i] and not _is_lost(before[i])
            else recipe.load(self.client, where[i])
            for i, recipe in enumerate(self.recipes)
        ]
        self.where = where

    def _follow(self, workers: dict[str, int]) -> None:
        """Wait until Dask has made all partitions, and look up which worker holds each of them.

        Dask makes lost partitions again. Raises `ClusterLost` if it cannot.
        """
        from distributed import KilledWorker, wait

        futures: list[Any] = [recipe.load(self.client, "") for recipe in self.recipes]
        while True:
            try:
                with self.client.as_current():
                    wait(futures, timeout=_POLL)
            except TimeoutError:
                workers_of(self.client)
                continue
            failed = [future for future in futures if future.status == "error"]
            killed = [future for future in failed if isinstance(future.exception(), KilledWorker)]
            # Dask gives up if too many workers died, for any reason, while making a partition: let it retry
            if killed:
                self.client.retry(killed)
                continue
            for future in failed:
                future.result()
            lost = [i for i, future in enumerate(futures) if future.status != "finished"]
            if lost:
                raise ClusterLost(
                    f"{self.recipes[lost[0]].name} is gone from the cluster, and Dask cannot make it again: "
                    "the data it was made from was lost with a worker. Make the frame again, from files."
                )
            break
        holders = self.client.who_has(futures)
        where = [next(iter(sorted(holders[future.key])), "") for future in futures]
        if "" in where:
            self._follow(workers)  # a worker was lost between `wait` and `who_has`: start over
        elif where != self.where:
            self.loaded, self.where, self.version = futures, where, self.version + 1


def _is_lost(partition: Any) -> bool:
    return partition is None or getattr(partition, "status", "finished") in ("error", "cancelled", "lost")


def _listed(addresses: set[str]) -> str:
    one, verb = ("worker", "is") if len(addresses) == 1 else ("workers", "are")
    return f"the {one} {', '.join(sorted(addresses))} {verb}"


def _runs(weights: Sequence[int], workers: dict[str, int]) -> list[str]:
    """Return the address of a worker for each partition, so that each worker gets consecutive partitions.

    All threads get about the same work.

    weights  Amount of work of each partition.
    workers  Number of threads of each worker, by address.
    """
    order = sorted(workers)
    threads, total = sum(workers.values()), sum(weights)
    ends, sofar = [], 0
    for address in order:
        sofar += workers[address]
        ends.append(total * sofar / threads)
    where, at, done = [], 0, 0.0
    for weight in weights:
        while at < len(order) - 1 and done + weight / 2 > ends[at]:
            at += 1
        where.append(order[at])
        done += weight
    return where


def _spread(weights: Sequence[int], workers: dict[str, int], before: Sequence[str]) -> list[str]:
    """Return the address of a worker for each partition, so that all threads get about the same work.

    A partition keeps its earlier worker, given in `before`, if that worker is still connected and does not
    already have its fair share of the work. Otherwise the partition goes to the least busy worker.

    weights  Amount of work of each partition.
    workers  Number of threads of each worker, by address.
    before   Address of each partition's earlier worker; empty if the partitions have not been assigned yet.
    """
    fair = sum(weights) / sum(workers.values())
    busy = dict.fromkeys(workers, 0.0)
    where = [""] * len(weights)
    for i, address in enumerate(before):
        share = weights[i] / workers.get(address, 1)
        # a partition stays if at least half of its work is within the worker's fair share
        if address in workers and busy[address] + share / 2 <= fair:
            where[i] = address
            busy[address] += share
    for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        if not where[i]:
            where[i] = min(sorted(busy), key=lambda address: busy[address] + weights[i] / workers[address])
            busy[where[i]] += weights[i] / workers[where[i]]
    return where
