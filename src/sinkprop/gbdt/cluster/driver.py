"""The client's part in trees grown on a Dask cluster, where each worker holds whole queries.

All workers run the boosting loop at the same time: `sinkprop.gbdt.growing.loop`, as in a fit without a
cluster. LightGBM sums the histograms of all workers through `gbdt/cluster/mesh.py`. All other decisions of a
round are computed from numbers that all workers have, so that all workers decide the same.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.cluster.connecting import ask, ask_each, workers_of
from sinkprop.cluster.errors import ClusterLost
from sinkprop.cluster.partitions import FitPartition
from sinkprop.cluster.placement import Placement
from sinkprop.cluster.plan import Plan, plan_of
from sinkprop.cluster.presence import patience, results, setting
from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats
from sinkprop.data.blocks import cut
from sinkprop.data.queries import offsets_of
from sinkprop.estimator.selection import Selection
from sinkprop.estimator.splits import split_queries
from sinkprop.gbdt.boosters import lightgbm_module
from sinkprop.gbdt.cluster.mesh import PeerLost
from sinkprop.gbdt.cluster.messages import (
    TRAINING,
    VALIDATION,
    ClusterRecord,
    Fit,
    Rank,
    Settings,
    TreePartition,
    joined_parts,
)
from sinkprop.gbdt.cluster.worker import forget, listen, progress_of, stop_fit, train
from sinkprop.gbdt.derivatives import whole_of
from sinkprop.gbdt.growing.loop import Grown, GrownModel

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
    "ClusterQueries",
    "ClusterRecord",
    "Settings",
    "check_lightgbm",
    "divided_codes",
    "grow_on_cluster",
    "queries_on",
]


_POLL = 0.1  # seconds between checks of the workers
_LOOK = 0.5  # seconds between requests for the progress of the fit
_KEEP = "2s"  # time between two copies of the trees, from which the fit resumes if a worker is lost
_RETURN = 15.0  # seconds that a lost worker has to come back
_LOSSES = 30  # maximum number of attempts to run the fit; an attempt ends if a worker is lost

logger = logging.getLogger("sinkprop.cluster")


@dataclass(frozen=True, eq=False)
class ClusterQueries:
    """Queries for a fit on a cluster.

    plan          Division of the queries into partitions, which the workers load.
    query_weight  Weights (Q,) of the queries, or None.
    """

    plan: Plan
    query_weight: Floats | None = None

    @property
    def n_queries(self) -> int:
        return self.plan.n_queries


def divided_codes(
    data: ClusterQueries, eval_sets: Sequence[ClusterQueries], *, fraction: float | None, seed: int
) -> tuple[NDArray[np.int16], str]:
    """Divide the queries into training and validation queries, in the same way as a fit in one process.

    Returns two values. The first is an array (Q,) with the use of each query of `data`, see the argument
    `codes` of `grow_on_cluster`. The second is a text that describes the validation queries, such as "21
    validation queries"; it is empty if there are none.
    """
    weight = data.query_weight
    counted = np.arange(data.n_queries) if weight is None else np.flatnonzero(weight)
    codes = np.zeros(data.n_queries, dtype=np.int16)
    codes[counted] = TRAINING
    if eval_sets:
        return codes, f"{sum(part.n_queries for part in eval_sets)} validation queries"
    if not fraction:
        return codes, ""
    selection = Selection("validation", fraction=fraction)
    split = split_queries(len(counted), 0, selection, np.random.default_rng([seed, 0]))
    if split.codes is None:
        codes[counted] = TRAINING + VALIDATION
    else:
        codes[counted[split.codes == 0]] = VALIDATION
    return codes, split.in_words


def check_lightgbm(client: Client) -> None:
    """Raise a ValueError that names the first worker without this process's version of LightGBM."""
    own = lightgbm_module().__version__
    answers = ask(client, _lightgbm_version)
    for address in sorted(answers):
        if answers[address] != own:
            found = answers[address]
            what = f"has LightGBM {found}"
            if isinstance(found, BaseException):
                what = "lacks LightGBM" if isinstance(found, ImportError) else "does not answer"
            raise ValueError(
                f"the worker {address} {what}; this process has {own}. Install the same on every worker."
            )


def _lightgbm_version() -> str:
    version: str = lightgbm_module().__version__
    return version


@contextmanager
def queries_on(
    client: Client,
    X: Any,
    y: Any = None,
    qid: Any = None,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    name: str = "",
) -> Iterator[ClusterQueries]:
    """Context that checks a user's data and yields its queries, divided into partitions.

    At the end of the context, the workers free the partitions that they loaded for the checks. The arguments
    have the same meaning as in `cluster_source`.
    """
    plan = plan_of(client, X, y, qid, by_query=False, n_features=None, name=name)
    try:
        yield ClusterQueries(plan, plan.weights_of_queries(query_weight))
    finally:
        plan.release()


def grow_on_cluster(
    client: Client,
    data: ClusterQueries,
    eval_sets: Sequence[ClusterQueries],
    codes: NDArray[np.int16],
    settings: Settings,
    *,
    notify: Notify = silent,
) -> tuple[GrownModel, ClusterRecord]:
    """Grow trees for queries on a cluster.

    Returns the model, like `grow`, and the `ClusterRecord`.

    eval_sets  Evaluation sets, whose queries are all used for validation.
    codes      Use of each query (Q,): `TRAINING`, `VALIDATION`, their sum for both uses, or 0 for neither.

    If a worker is lost, other workers load its queries, and the fit resumes from the last copy of the trees
    that the client has stored. The trees are the same for any number of workers from two on, and for any
    number of losses.
    """
    driver = _Driver(client, data, eval_sets, codes, settings)
    try:
        return driver.run(notify)
    finally:
        driver.close()


class _Lost(Exception):  # noqa: N818
    """A worker was lost during an attempt to run the fit."""


class _Driver:
    """The client's side of a fit. If workers are lost, it resumes from a copy of the trees grown so far."""

    def __init__(
        self,
        client: Client,
        data: ClusterQueries,
        eval_sets: Sequence[ClusterQueries],
        codes: NDArray[np.int16],
        settings: Settings,
    ) -> None:
        self._client, self._data, self._eval_sets, self._codes = client, data, eval_sets, codes
        plan = data.plan
        self._placement = plan.placement or Placement(client, plan.recipes, plan.rows)
        self._kept: Grown | None = None
        used, held = (codes & TRAINING) > 0, (codes & VALIDATION) > 0
        weight = data.query_weight
        validation_weight = None
        if weight is not None and held.any() and not eval_sets:
            validation_weight = weight[held] if weight[held].sum() > 0 else None
        self._fit = Fit(
            name="",
            settings=settings,
            resumed=None,
            n_queries=int(used.sum()),
            n_rows=int(plan.sizes[used].sum()),
            n_features=plan.n_features,
            whole=whole_of(plan.sizes[used], None if weight is None else weight[used]),
            validation_weight=validation_weight,
            n_validation=int(held.sum()) + sum(part.n_queries for part in eval_sets),
            several=False,
            weighted=weight is not None,
            keep=setting("sinkprop.keep-trees", _KEEP),
            secret=secrets.token_bytes(32),
        )
        self._first_query = offsets_of(used)
        self._first_row = offsets_of(np.where(used, plan.sizes, 0))
        self._first_validation = offsets_of(held)
        self._interrupted = False

    def close(self) -> None:
        self._placement.release()

    def run(self, notify: Notify) -> tuple[GrownModel, ClusterRecord]:
        """Start the fit, and start it again after each loss of a worker, until it finishes.

        Returns the model and the record of the cluster. Raises `ClusterLost` after `_LOSSES` losses.
        """
        n_workers = len(workers_of(self._client))
        # whether the fit starts with several workers; this decides how derivatives are rounded, so it is not
        # updated when workers are lost: the trees must not change
        self._fit = replace(self._fit, several=n_workers > 1)
        for losses in range(_LOSSES):
            self._await(n_workers)
            try:
                self._placement.refresh(at_once=True)
                n_workers = len(self._placement.workers)
                model, record = self._attempt(notify)
                return model, replace(record, losses=losses)
            except (_Lost, KeyError) as lost:
                # Dask raises a KeyError with the address of a worker that is lost before Dask can use it
                if isinstance(lost, KeyError) and not str(lost.args[0]).partition("://")[2]:
                    raise
                kept = 0 if self._kept is None else len(self._kept.trees)
                logger.warning("a worker was lost (%s); the fit resumes from tree %d", lost, kept)
        raise ClusterLost(f"workers were lost {_LOSSES} times. If they run out of memory, use more workers.")

    def _await(self, n_workers: int) -> None:
        """Wait until `n_workers` workers are connected, but at most `_RETURN` seconds."""
        deadline = time.monotonic() + min(_RETURN, patience())
        while len(workers_of(self._client)) < n_workers and time.monotonic() < deadline:
            time.sleep(_POLL)

    def _attempt(self, notify: Notify) -> tuple[GrownModel, ClusterRecord]:
        """Run the fit once on the connected workers, starting from the last copy of the trees, if any.

        Raises `_Lost` if a worker is lost.
        """
        name = uuid4().hex
        assigned = self._assigned()
        # The fit started with several workers, but only one takes part now. It does the work of two, in two
        # threads, so that derivatives are still rounded as with several workers and the trees do not change.
        if len(assigned) == 1 and self._fit.several:
            ((worker, own),) = assigned
            halves = _halves(own)
            assigned = [(worker, half) for half in halves]
        several = len(assigned) > 1
        fit = replace(self._fit, name=name, resumed=self._kept, several=several)
        where = [worker for worker, _ in assigned]
        futures: dict[str, Future[Any]] = {}
        try:
            tasks = _tasks(assigned, self._addresses(name, where))
            for i, (worker, (own_ranks, own_parts)) in enumerate(tasks.items()):
                key = f"sinkprop-trees-{name}-{i}"
                futures[worker] = self._client.submit(
                    train, fit, own_ranks, *own_parts, workers=[worker], key=key, pure=False
                )
            return self._result(fit, where[0], futures, notify)
        finally:
            self._end(name, futures, set(where))

    def _addresses(self, name: str, where: Sequence[str]) -> tuple[tuple[str, int], ...]:
        """Open a port for each process of the fit, and return their hosts and ports.

        where  Address of the worker of each process.
        """
        ports = self._ask(listen, name, {worker: where.count(worker) for worker in where})
        for worker in where:
            if ports[worker] is None:
                raise _Lost(f"the worker {worker} is gone")
            if isinstance(ports[worker], Exception):
                raise ClusterLost(f"the worker {worker} cannot listen at its own address {ports[worker]}.")
        return tuple(ports[worker].pop(0) for worker in where)

    def _assigned(self) -> list[tuple[str, list[tuple[TreePartition, Any]]]]:
        """Return a list of pairs: the address of a worker, and the list of its partitions.

        Each partition is a pair: its `TreePartition`, and its data, loaded on the worker.

        A worker without training documents is left out, and the first worker takes over its partitions.
        Partitions of the evaluation sets are spread over the workers.
        """
        weight, plan = self._data.query_weight, self._data.plan
        found: dict[str, list[tuple[TreePartition, Any]]] = {}
        idle: list[tuple[TreePartition, Any]] = []
        rows: dict[str, int] = {}
        for number, worker in enumerate(self._placement.where):
            first, stop = plan.first[number], plan.first[number + 1]
            entry = FitPartition(
                number, first, None if weight is None else weight[first:stop], self._codes[first:stop]
            )
            part = TreePartition(
                entry,
                int(self._first_query[first]),
                int(self._first_row[first]),
                int(self._first_validation[first]),
            )
            found.setdefault(worker, []).append((part, self._placement.loaded[number]))
            rows[worker] = rows.get(worker, 0) + int(self._first_row[stop] - self._first_row[first])
        for worker in [worker for worker, n in rows.items() if n == 0]:
            idle += found.pop(worker)
        ordered = sorted(found.items(), key=lambda item: item[1][0][0].entry.number)
        # these partitions have no training queries, but they may have validation queries
        ordered[0][1].extend(idle)
        at = int(self._first_validation[-1])
        for eval_set in self._eval_sets:
            for number, recipe in enumerate(eval_set.plan.recipes):
                first, stop = eval_set.plan.first[number], eval_set.plan.first[number + 1]
                codes = np.full(stop - first, VALIDATION, dtype=np.int16)
                part = TreePartition(FitPartition(number, first, None, codes), 0, 0, at)
                worker, own = ordered[at * len(ordered) // max(1, self._fit.n_validation)]
                own.append((part, recipe.load(self._client, worker)))
                at += stop - first
        if any(partition is None for _, own in ordered for _, partition in own):
            raise _Lost("a worker was lost before it had its queries")
        return ordered

    def _result(
        self, fit: Fit, first: str, futures: dict[str, Future[Any]], notify: Notify
    ) -> tuple[GrownModel, ClusterRecord]:
        """Wait until all workers finish, and return the result of worker `first`.

        Raises `_Lost` if a worker is lost.
        """
        looked = time.monotonic()
        while True:
            try:
                status = {worker: future.status for worker, future in futures.items()}
                if "pending" not in status.values() or set(status.values()) - {"pending", "finished"}:
                    break
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    self._look(fit.name, first, notify)
                    gone = set(futures) - set(workers_of(self._client))
                    if gone:
                        raise _Lost(f"the worker {min(gone)} is gone")
                time.sleep(_POLL)
            except KeyboardInterrupt:
                if self._interrupted:
                    raise
                self._interrupted = True
                self._ask(stop_fit, fit.name, dict.fromkeys(futures))
        self._raise(futures)
        returned = self._client.sync(_returned, self._client, futures)
        for error in returned.values():
            if isinstance(error, CancelledError | OSError):
                raise _Lost(f"a worker is gone ({type(error).__name__})")
            if isinstance(error, BaseException):
                raise error
        found = [returned[worker] for worker in (first, *set(futures) - {first})]
        model, record, _ = found[0]
        if model is None:
            raise KeyboardInterrupt
        held_out = joined_parts([part for _, _, parts in found for part in parts])
        sent = max(record.sent for _, record, _ in found)
        return replace(model, held_out=held_out), replace(record, sent=sent)

    def _raise(self, futures: dict[str, Future[Any]]) -> None:
        """Raise the error of a worker, if any; raises `_Lost` if all errors follow from a lost worker."""
        from distributed import KilledWorker

        lost = ""
        for worker, future in futures.items():
            if future.status in ("cancelled", "lost"):
                lost = f"the worker {worker} is gone"
            elif future.status == "error":
                error = future.exception()
                if isinstance(error, PeerLost | KilledWorker | CancelledError):
                    lost = lost or f"a worker is gone ({error})"
                else:
                    raise error.with_traceback(None)
        if lost:
            raise _Lost(lost)

    def _look(self, name: str, worker: str, notify: Notify) -> None:
        """Ask a worker for the progress of the fit, and pass the progress on to `notify`.

        Also stores the worker's copy of the trees, if it has more rounds than the copy stored before.
        """
        have = 0 if self._kept is None else len(self._kept.trees)
        seen = self._ask(progress_of, name, {worker: have})[worker]
        if isinstance(seen, tuple):
            number, total, text, kept = seen
            if number:
                notify(number, total, text)
            if kept is not None:
                self._kept = kept

    def _ask(self, function: Callable[..., Any], name: str, workers: Mapping[str, Any]) -> dict[str, Any]:
        """Call function(name, argument) on each worker.

        Returns the results or errors by address; the result of a lost worker is None.

        name     Identifier of the attempt to run the fit.
        workers  Argument for each worker, by address.
        """
        found = ask_each(self._client, function, {worker: (name, given) for worker, given in workers.items()})
        return {worker: _unless_lost(answer) for worker, answer in found.items()}

    def _end(self, name: str, futures: dict[str, Future[Any]], workers: set[str]) -> None:
        """End an attempt to run the fit, and wait until its tasks have ended on all connected workers."""
        unfinished = [future for future in futures.values() if future.status == "pending"]
        self._client.cancel(unfinished)
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            here = dict.fromkeys(workers & set(workers_of(self._client)))
            if not any(self._ask(forget, name, here).values()):
                return
            time.sleep(_POLL)


def _tasks(
    assigned: Sequence[tuple[str, list[tuple[TreePartition, Any]]]], addresses: tuple[tuple[str, int], ...]
) -> dict[str, tuple[list[Rank], list[Any]]]:
    """Return the processes of the fit that each worker runs, and the data of their partitions."""
    tasks: dict[str, tuple[list[Rank], list[Any]]] = {}
    for rank, (worker, own) in enumerate(assigned):
        ranks, parts = tasks.setdefault(worker, ([], []))
        numbers = tuple(range(len(parts), len(parts) + len(own)))
        ranks.append(Rank(rank, addresses, tuple(part for part, _ in own), numbers))
        parts.extend(partition for _, partition in own)
    return tasks


def _unless_lost(answer: Any) -> Any:
    """Return the answer of a worker, or None if the worker was lost."""
    return None if isinstance(answer, OSError | KeyError) else answer


async def _returned(client: Client, futures: Mapping[str, Future[Any]]) -> dict[str, Any]:
    """Return the result or the error of each worker's task, by the worker's address."""
    return await results(client, {worker: future.result() for worker, future in futures.items()})


def _halves(own: list[tuple[TreePartition, Any]]) -> list[list[tuple[TreePartition, Any]]]:
    """Divide the partitions of the only remaining worker into two lists, one per participant of the fit.

    The worker runs the two participants as threads, so that derivatives are rounded as with several workers.
    Returns a single list if fewer than two partitions have training queries.
    """
    rows = [int(np.count_nonzero(np.asarray(part.entry.codes) & TRAINING)) for part, _ in own]
    if sum(n > 0 for n in rows) < 2:
        return [own]
    offsets = offsets_of(rows)
    (_, at), *_ = cut(offsets, 2)
    return [own[:at], own[at:]]
