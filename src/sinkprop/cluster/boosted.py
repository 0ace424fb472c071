"""Boosted trees on a Dask cluster: each worker has whole queries, and all grow the same trees together.

The loop is that of one process, `sinkprop.gbdt.boosting`, run on every worker at once. LightGBM sums the
histograms of all workers through `sinkprop.gbdt.network`; everything else that a round decides is computed
from numbers that all workers have, so that they decide the same.
"""

from __future__ import annotations

import logging
import math
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.cluster.connecting import ask, patience, workers_of
from sinkprop.cluster.errors import ClusterLost
from sinkprop.cluster.inputs import Plan, plan_of
from sinkprop.cluster.partitions import Piece, cut, share
from sinkprop.cluster.partitions import _blocks as blocks_of
from sinkprop.cluster.placement import Placement
from sinkprop.data import Groups
from sinkprop.gbdt.bagging import QueryBagging
from sinkprop.gbdt.boosters import booster_of, lightgbm_module
from sinkprop.gbdt.boosting import Boosting, BoostingFit, Grown, Growth, grow
from sinkprop.gbdt.datasets import Bins, dataset, sample_rows
from sinkprop.gbdt.derivatives import Derivatives, TreeLoss, whole_of
from sinkprop.gbdt.judgment import Judgment, expected_name
from sinkprop.gbdt.network import Mesh, PeerLost, rounded
from sinkprop.gbdt.rows import StreamedRows
from sinkprop.judging import metric_judge
from sinkprop.linear import TrainingSet
from sinkprop.progress import Notify, silent
from sinkprop.selection import mean_over_queries
from sinkprop.sources import Block

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

Floats = NDArray[np.float64]

TRAINING, JUDGING = 1, 2  # what a query is for, the sum for both; 0 for one that does not count

_POLL = 0.1  # seconds between looks at the workers
_LOOK = 0.5  # and between questions how far they are
_KEEP = "2s"  # after which the trees are kept again, in case a worker is lost
_RETURN = 15.0  # seconds that a lost worker has to come back
_LOSSES = 30
# Bytes of bins up to which they are found for the number of all documents, as one process does: LightGBM
# draws an order of features by that number, and sets aside the place for as many.
_ALIKE = 1 << 28

logger = logging.getLogger("sinkprop.cluster")


@dataclass(frozen=True, eq=False)
class ClusterQueries:
    """Queries on a cluster: their partitions, and their weights (Q,) or None."""

    plan: Plan
    query_weight: Floats | None = None

    @property
    def n_queries(self) -> int:
        return self.plan.n_queries


def divided_codes(
    data: ClusterQueries, judges: Sequence[ClusterQueries], *, fraction: float | None, seed: int
) -> tuple[NDArray[np.int16], str]:
    """What each query is for, (Q,), and how the trees are judged, in words: as one process divides them."""
    weight = data.query_weight
    counted = np.arange(data.n_queries) if weight is None else np.flatnonzero(weight)
    codes = np.zeros(data.n_queries, dtype=np.int16)
    codes[counted] = TRAINING
    if judges:
        return codes, f"{sum(part.n_queries for part in judges)} validation queries"
    if not fraction:
        return codes, ""
    n_queries = len(counted)
    if n_queries < 2:
        codes[counted] = TRAINING + JUDGING
        return codes, "the one training query itself"
    order = np.random.default_rng([seed, 0]).permutation(n_queries)
    n = max(1, min(n_queries - 1, round(fraction * n_queries)))
    codes[counted[order[:n]]] = JUDGING
    return codes, f"{n} queries held out"


def check_lightgbm(client: Client) -> None:
    """A ValueError that names the first worker without the LightGBM of this process."""
    own = lightgbm_module().__version__
    answers = ask(client, _lightgbm_version)
    for address in sorted(answers):
        if answers[address] != own:
            found = answers[address]
            what = "lacks LightGBM" if isinstance(found, BaseException) else f"has LightGBM {found}"
            raise ValueError(
                f"the worker {address} {what}; this process has {own}. Install the same on every worker."
            )


def _lightgbm_version() -> str:
    version: str = lightgbm_module().__version__
    return version


def queries_on(
    client: Client,
    X: Any,
    y: Any = None,
    qid: Any = None,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    name: str = "",
) -> ClusterQueries:
    """The queries of what a user gives as data, checked; see `cluster_source`."""
    plan = plan_of(client, X, y, qid, by_query=False, n_features=None, name=name)
    return ClusterQueries(plan, plan.weights_of_queries(query_weight))


@dataclass(frozen=True)
class ClusterRecord:
    """What a fit on a cluster took.

    workers  processes that grew the trees in the end
    losses   of workers, after each of which the fit went on
    rounds   since the last of them, and the
    seconds  that they took, and the
    cpu      seconds of a processor that the first process used for them, and the
    sent     bytes that the process that sent most of them gave to the others
    """

    workers: int
    losses: int
    rounds: int
    seconds: float
    cpu: float
    sent: int


@dataclass(frozen=True, eq=False)
class Settings:
    """What a fit needs to know besides its queries.

    plan        as of one process, without its `init_model`
    first       the text of trees that come first, or None
    drawing     how queries are drawn: see `query_bagging`
    criterion   metrics that judge under `convention`; None for the expected gain
    judged_by   in words; empty where nothing judges
    n_threads   of each worker; None for as many as Dask has given it
    """

    loss: TreeLoss
    plan: Boosting
    first: str | None
    drawing: dict[str, Any] | None
    criterion: str | tuple[str, ...] | None
    convention: str
    judged_by: str
    n_threads: int | None


@dataclass(frozen=True, eq=False)
class _Fit:
    """What all workers are told.

    n_queries, n_rows  that are trained on
    whole              of them: see `whole_of`
    judging            weights (Q,) of the queries that judge, or None; their number
    several            whether the trees are grown by several processes
    """

    name: str
    settings: Settings
    resumed: Grown | None
    n_queries: int
    n_rows: int
    n_features: int
    whole: tuple[float, float]
    judging: Floats | None
    n_judging: int
    several: bool
    weighted: bool
    keep: float
    token: bytes


@dataclass(frozen=True, eq=False)
class _Portion:
    """A partition as part of a fit.

    query, row  numbers of its first query, and of its first document, of all that are trained on
    judge       number of its first query of all that judge
    """

    piece: Piece
    query: int
    row: int
    judge: int


@dataclass(frozen=True, eq=False)
class _Rank:
    """One of the processes that grow the trees: its number, the addresses of all, and what it is to take."""

    rank: int
    addresses: tuple[tuple[str, int], ...]
    portions: tuple[_Portion, ...]
    partitions: tuple[int, ...]  # places of theirs among what the worker is given


def grow_on_cluster(
    client: Client,
    data: ClusterQueries,
    judges: Sequence[ClusterQueries],
    codes: NDArray[np.int16],
    settings: Settings,
    *,
    notify: Notify = silent,
) -> tuple[str, BoostingFit, ClusterRecord]:
    """The trees for queries on a cluster, the record of how they were grown, as `grow`, and what it took.

    codes   (Q,) whether a query is for `TRAINING` or `JUDGING`, or their sum, or 0
    judges  further queries, all of which judge

    Where a worker goes away, its queries are loaded by others, and the fit goes on from the trees that were
    kept last. The trees are the same for any number of workers from two on, however often one was lost.
    """
    driver = _Driver(client, data, judges, codes, settings)
    try:
        return driver.run(notify)
    finally:
        driver.close()


class _Lost(Exception):  # noqa: N818
    """A worker of an attempt is gone."""


class _Driver:
    """A fit as the client sees it."""

    def __init__(
        self,
        client: Client,
        data: ClusterQueries,
        judges: Sequence[ClusterQueries],
        codes: NDArray[np.int16],
        settings: Settings,
    ) -> None:
        self._client, self._data, self._judges, self._codes = client, data, judges, codes
        plan = data.plan
        self._placement = plan.placement or Placement(client, plan.recipes, plan.rows)
        self._kept: Grown | None = None
        used, held = (codes & TRAINING) > 0, (codes & JUDGING) > 0
        weight = data.query_weight
        judging = None
        if weight is not None and held.any() and not judges:
            judging = weight[held] if weight[held].sum() > 0 else None
        self._fit = _Fit(
            name="",
            settings=settings,
            resumed=None,
            n_queries=int(used.sum()),
            n_rows=int(plan.sizes[used].sum()),
            n_features=plan.n_features,
            whole=whole_of(plan.sizes[used], None if weight is None else weight[used]),
            judging=judging,
            n_judging=int(held.sum()) + sum(part.n_queries for part in judges),
            several=False,
            weighted=weight is not None,
            keep=_seconds("sinkprop.keep-trees", _KEEP),
            token=secrets.token_bytes(16),
        )
        self._first_query = np.concatenate([[0], np.cumsum(used)])
        self._first_row = np.concatenate([[0], np.cumsum(np.where(used, plan.sizes, 0))])
        self._first_judge = np.concatenate([[0], np.cumsum(held)])
        self._interrupted = False

    def close(self) -> None:
        self._placement.release()

    def run(self, notify: Notify) -> tuple[str, BoostingFit, ClusterRecord]:
        n_workers = len(workers_of(self._client))
        # from the start, so that a worker lost before the first tree does not make other trees
        self._fit = replace(self._fit, several=n_workers > 1)
        for losses in range(_LOSSES):
            self._await(n_workers)
            try:
                self._placement.refresh(at_once=True)
                n_workers = len(self._placement.workers)
                text, result, record = self._attempt(notify)
                return text, result, replace(record, losses=losses)
            except (_Lost, KeyError) as lost:
                # by a KeyError with its address Dask tells that a worker has gone since it was named
                if isinstance(lost, KeyError) and not str(lost.args[0]).partition("://")[2]:
                    raise
                kept = 0 if self._kept is None else len(self._kept.trees)
                logger.warning("a worker was lost (%s); the fit goes on from tree %d", lost, kept)
        raise ClusterLost(
            f"workers were lost {_LOSSES} times. If the system ends them for their memory, take more of them."
        )

    def _await(self, n_workers: int) -> None:
        """Give workers that were lost a while to come back under another address."""
        deadline = time.monotonic() + min(_RETURN, patience())
        while len(workers_of(self._client)) < n_workers and time.monotonic() < deadline:
            time.sleep(_POLL)

    def _attempt(self, notify: Notify) -> tuple[str, BoostingFit, ClusterRecord]:
        name = uuid4().hex
        portions = self._portions()
        if len(portions) == 1 and self._fit.several:  # as several go on: their sums are rounded
            ((worker, own),) = portions
            halves = _halves(own)
            portions = [(worker, half) for half in halves]
        several = len(portions) > 1
        fit = replace(self._fit, name=name, resumed=self._kept, several=several)
        where = [worker for worker, _ in portions]
        ports = self._ask(_listen, name, {worker: where.count(worker) for worker in where})
        for worker in where:
            if ports[worker] is None:
                raise _Lost(f"the worker {worker} is gone")
        addresses = tuple((_host(worker), ports[worker].pop(0)) for worker in where)
        tasks: dict[str, tuple[list[_Rank], list[Any]]] = {}
        for rank, (worker, own) in enumerate(portions):
            ranks, parts = tasks.setdefault(worker, ([], []))
            ranks.append(
                _Rank(
                    rank,
                    addresses,
                    tuple(portion for portion, _ in own),
                    tuple(range(len(parts), len(parts) + len(own))),
                )
            )
            parts.extend(partition for _, partition in own)
        futures: dict[str, Future[Any]] = {}
        try:
            for i, (worker, (own_ranks, own_parts)) in enumerate(tasks.items()):
                key = f"sinkprop-trees-{name}-{i}"
                futures[worker] = self._client.submit(
                    _train, fit, own_ranks, *own_parts, workers=[worker], key=key, pure=False
                )
            return self._result(fit, where[0], futures, notify)
        finally:
            self._end(name, futures, set(where))

    def _portions(self) -> list[tuple[str, list[tuple[_Portion, Any]]]]:
        """What each worker is to take: at least one document to train on, and its share of what judges."""
        weight, plan = self._data.query_weight, self._data.plan
        found: dict[str, list[tuple[_Portion, Any]]] = {}
        idle: list[tuple[_Portion, Any]] = []
        rows: dict[str, int] = {}
        for number, worker in enumerate(self._placement.where):
            first, stop = plan.first[number], plan.first[number + 1]
            piece = Piece(
                number, first, None if weight is None else weight[first:stop], self._codes[first:stop]
            )
            portion = _Portion(
                piece,
                int(self._first_query[first]),
                int(self._first_row[first]),
                int(self._first_judge[first]),
            )
            found.setdefault(worker, []).append((portion, self._placement.loaded[number]))
            rows[worker] = rows.get(worker, 0) + int(self._first_row[stop] - self._first_row[first])
        for worker in [worker for worker, n in rows.items() if n == 0]:
            idle += found.pop(worker)
        ordered = sorted(found.items(), key=lambda item: item[1][0][0].piece.number)
        ordered[0][1].extend(idle)  # nothing in it is trained on, but something may judge
        at = int(self._first_judge[-1])
        for judges in self._judges:
            for number, recipe in enumerate(judges.plan.recipes):
                first, stop = judges.plan.first[number], judges.plan.first[number + 1]
                codes = np.full(stop - first, JUDGING, dtype=np.int16)
                portion = _Portion(Piece(number, first, None, codes), 0, 0, at)
                worker, own = ordered[at * len(ordered) // max(1, self._fit.n_judging)]
                own.append((portion, recipe.load(self._client, worker)))
                at += stop - first
        if any(partition is None for _, own in ordered for _, partition in own):
            raise _Lost("a worker was gone before it had its queries")
        return ordered

    def _result(
        self, fit: _Fit, first: str, futures: dict[str, Future[Any]], notify: Notify
    ) -> tuple[str, BoostingFit, ClusterRecord]:
        """What the first process gives, once all have ended; `_Lost` where one is gone."""
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
                self._ask(_stop, fit.name, dict.fromkeys(futures))
        self._raise(futures)
        try:
            found = [futures[worker].result() for worker in (first, *set(futures) - {first})]
        except (CancelledError, OSError) as error:
            raise _Lost(f"a worker is gone ({type(error).__name__})") from None
        text, result, record = found[0]
        if result is None:
            raise KeyboardInterrupt
        return text, result, replace(record, sent=max(record.sent for _, _, record in found))

    def _raise(self, futures: dict[str, Future[Any]]) -> None:
        """The error of a worker: its own before those that followed from it."""
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
        have = 0 if self._kept is None else len(self._kept.trees)
        seen = self._ask_one(_progress, name, worker, have)
        if seen is not None:
            number, total, text, kept = seen
            if number:
                notify(number, total, text)
            if kept is not None:
                self._kept = kept

    def _ask(self, function: Callable[..., Any], name: str, workers: Mapping[str, Any]) -> dict[str, Any]:
        """What the function says on each worker; None for one that is gone."""
        return {worker: self._ask_one(function, name, worker, given) for worker, given in workers.items()}

    def _ask_one(self, function: Callable[..., Any], name: str, worker: str, given: Any) -> Any:
        try:
            answer = self._client.run(function, name, given, workers=[worker], on_error="ignore")
        except (OSError, ValueError, KeyError, TimeoutError):
            return None  # it is gone, as will be seen
        return answer.get(worker)

    def _end(self, name: str, futures: dict[str, Future[Any]], workers: set[str]) -> None:
        """Let all processes of an attempt end, and wait for those that are there."""
        unfinished = [future for future in futures.values() if future.status == "pending"]
        self._client.cancel(unfinished)
        deadline = time.monotonic() + patience()
        while time.monotonic() < deadline:
            here = dict.fromkeys(workers & set(workers_of(self._client)))
            if not any(self._ask(_forget, name, here).values()):
                return
            time.sleep(_POLL)


def _halves(own: list[tuple[_Portion, Any]]) -> list[list[tuple[_Portion, Any]]]:
    """What one worker has, for two processes in it."""
    rows = [int(np.count_nonzero(np.asarray(portion.piece.codes) & TRAINING)) for portion, _ in own]
    if sum(n > 0 for n in rows) < 2:
        return [own]
    offsets = np.concatenate([[0], np.cumsum(rows)])
    (_, at), *_ = cut(offsets, 2)
    return [own[:at], own[at:]]


def _seconds(name: str, default: str) -> float:
    """A setting of Dask that is a time."""
    import dask
    from dask.utils import parse_timedelta

    return float(parse_timedelta(dask.config.get(name, default)))


def _host(worker: str) -> str:
    return urlparse(worker).hostname or "127.0.0.1"  # workers in this process have none


# ---- on the workers


@dataclass(eq=False)
class _Control:
    """A fit in a worker process, as other threads see it."""

    listeners: list[socket.socket] = field(default_factory=list)
    meshes: list[Mesh] = field(default_factory=list)
    running: int = 0
    ended: bool = False
    stop: bool = False
    abandoned: Callable[[], bool] = lambda: False
    progress: tuple[int, int, str] = (0, 0, "")
    kept: Grown | None = None


_FITS: dict[str, _Control] = {}
_LOCK = threading.Lock()


def _listen(name: str, n: int) -> list[int]:
    """Ports at which n processes of the fit can be reached here."""
    with _LOCK:
        control = _FITS.setdefault(name, _Control())
        made = [_server() for _ in range(n)]
        control.listeners += made
    return [listener.getsockname()[1] for listener in made]


def _server() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=128)


def _stop(name: str, _: None = None) -> None:
    """End the fit after the present round."""
    if name in _FITS:
        _FITS[name].stop = True


def _progress(name: str, have: int) -> tuple[int, int, str, Grown | None] | None:
    control = _FITS.get(name)
    if control is None:
        return None
    kept = control.kept
    return (*control.progress, kept if kept is not None and len(kept.trees) > have else None)


def _forget(name: str, _: None = None) -> bool:
    """End what is left of the fit; whether something was still running."""
    control = _FITS.get(name)
    if control is None:
        return False
    control.ended = True
    for mesh in list(control.meshes):
        mesh.end()
    if control.running:
        return True
    for listener in control.listeners:
        listener.close()
    _FITS.pop(name, None)
    return False


def _train(
    fit: _Fit, ranks: Sequence[_Rank], *partitions: Any
) -> tuple[str, BoostingFit | None, ClusterRecord]:
    """The trees, as all processes of this worker grow them with those of the others."""
    from distributed import get_worker

    control = _FITS.get(fit.name)
    if control is None or control.ended:
        raise PeerLost("the fit has ended")
    worker = get_worker()
    key = worker.get_current_task()
    n_threads = fit.settings.n_threads or max(1, worker.state.nthreads // len(ranks))

    def abandoned() -> bool:
        """Whether nobody waits for the fit any more, as where the client's process has ended."""
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    control.abandoned = abandoned
    found: dict[int, Any] = {}

    def run(rank: _Rank) -> None:
        try:
            found[rank.rank] = _grow(fit, rank, [partitions[i] for i in rank.partitions], control, n_threads)
        except BaseException as error:
            found[rank.rank] = error

    with _LOCK:
        control.running += 1
    try:
        others = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in ranks[1:]]
        for thread in others:
            thread.start()
        run(ranks[0])
        for thread in others:
            thread.join()
    finally:
        with _LOCK:
            control.running -= 1
        if abandoned():
            _forget(fit.name)
    errors = [result for result in found.values() if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerLost)):
        if isinstance(error, KeyboardInterrupt):  # by dart, which leaves no model: no error of this worker
            return "", None, ClusterRecord(0, 0, 0, 0.0, 0.0, 0)
        raise error
    text, result, record = found[ranks[0].rank]
    return text, result, record


def _grow(
    fit: _Fit, rank: _Rank, partitions: Sequence[Any], control: _Control, n_threads: int
) -> tuple[str, BoostingFit, ClusterRecord]:
    mesh = None
    if fit.several:
        with _LOCK:
            port = rank.addresses[rank.rank][1]
            listener = next(each for each in control.listeners if each.getsockname()[1] == port)
        mesh = Mesh.connect(rank.rank, rank.addresses, listener, fit.token, given_up=lambda: control.ended)
        control.meshes.append(mesh)
    try:
        return _grow_in(fit, _Own(fit, rank, partitions), mesh, control, rank.rank, n_threads)
    except lightgbm_module().basic.LightGBMError as error:
        if mesh is not None:
            mesh.check()  # what it was given after a loss makes no sense to it
        raise ValueError(f"LightGBM refuses this: {' '.join(str(error).split())}") from None
    finally:
        if mesh is not None:
            mesh.close()


def _grow_in(
    fit: _Fit, own: _Own, mesh: Mesh | None, control: _Control, rank: int, n_threads: int
) -> tuple[str, BoostingFit, ClusterRecord]:
    settings = fit.settings
    parameters = {**settings.plan.parameters, "num_threads": n_threads}
    derivatives = Derivatives(
        settings.loss,
        own.y,
        own.groups,
        sample_weight=own.sample_weight,
        query_weight=own.query_weight,
        n_threads=n_threads,
        whole=fit.whole,
    )
    drawn: Callable[[Floats], tuple[Any, Any]] = derivatives
    if settings.drawing is not None:
        drawn = QueryBagging(derivatives, own.groups, **settings.drawing)
        drawn.skip(0 if fit.resumed is None else len(fit.resumed.trees))
    judgment = _judgment(fit, own, mesh, n_threads)
    plan = replace(
        settings.plan,
        parameters=parameters,
        init_model=None if settings.first is None else booster_of(settings.first),
    )
    value: Callable[[Floats], float] = derivatives.value
    make: Callable[..., Any] = dataset
    if mesh is not None:
        drawn = rounded(drawn, mesh, fit.n_rows)
        value = _summed(derivatives, mesh)
        make = _shared_bins(fit, own, mesh)
        plan = replace(plan, parameters={**parameters, "tree_learner": "data", "num_machines": mesh.size})

    keep = _Keeping(control, mesh, rank, settings.plan, fit.keep)
    text, result = grow(
        own.rows(TRAINING),
        drawn,
        plan,
        judgment,
        value=value,
        notify=keep.notify,
        make=make,
        network=None if mesh is None else mesh.lightgbm(),
        resumed=fit.resumed,
        watch=keep,
    )
    return text, result, keep.record()


class _Keeping:
    """What is done after each round: see whether to end, tell how far it is, and keep the trees."""

    def __init__(self, control: _Control, mesh: Mesh | None, rank: int, plan: Boosting, every: float) -> None:
        self._control, self._mesh, self._rank, self._plan = control, mesh, rank, plan
        self._every, self._next = every, time.monotonic() + every
        self._rounds, self._sent = 0, 0
        self._began = self._last = (0.0, 0.0)

    def record(self) -> ClusterRecord:
        mesh = self._mesh
        sent = 0 if mesh is None else mesh.sent - self._sent
        seconds, cpu = (last - began for last, began in zip(self._last, self._began, strict=True))
        # the first round is not counted: it makes ready for all
        rounds = max(0, self._rounds - 1)
        return ClusterRecord(1 if mesh is None else mesh.size, 0, rounds, seconds, cpu, sent)

    def notify(self, number: int, total: int, text: str) -> None:
        if self._rank == 0:
            self._control.progress = (number, total, text)

    def __call__(self, growth: Growth) -> None:
        self._rounds, self._last = self._rounds + 1, (time.monotonic(), time.process_time())
        if self._rounds == 1:
            self._began, self._sent = self._last, 0 if self._mesh is None else self._mesh.sent
        control = self._control
        own = np.array([control.stop, control.ended or control.abandoned()], dtype=np.float64)
        stop, end = np.max([own] if self._mesh is None else self._mesh.gather_arrays(own), axis=0)
        if end:
            raise PeerLost("the fit has ended")
        if stop:
            raise KeyboardInterrupt
        # dart changes trees that it has grown: they are no model to go on from
        if self._rank == 0 and time.monotonic() > self._next and not self._plan.dart:
            began = time.monotonic()
            self._control.kept = growth.grown()
            now = time.monotonic()
            self._next = now + max(self._every, 20 * (now - began))


class _Own:
    """The queries of one process of a fit.

    y, groups  of the documents that are trained on; queries whose documents are elsewhere have none
    sample     (numbers, rows) by which bins are found
    """

    def __init__(self, fit: _Fit, rank: _Rank, partitions: Sequence[Any]) -> None:
        self._portions = rank.portions
        self._partitions = partitions
        self.n_features = fit.n_features
        sizes = np.zeros(fit.n_queries, dtype=np.int64)
        weights = np.ones(fit.n_queries)
        labels: list[Floats] = []
        row_weights: list[Floats | None] = []
        judging: list[TrainingSet] = []
        numbers: list[NDArray[np.int64]] = []
        wanted = sample_rows(fit.settings.plan.parameters, fit.n_rows) if fit.several else None
        places: list[NDArray[np.int64]] = []
        sampled: list[NDArray[Any]] = []
        n_rows = 0
        for portion, block in self._blocks():
            data, codes = block.data, np.asarray(block.codes)
            counts = np.diff(data.groups.offsets)
            used = (codes & TRAINING) > 0
            own = np.repeat(used, counts)
            n = int(used.sum())
            if n:
                sizes[portion.query : portion.query + n] = counts[used]
                if data.query_weight is not None:
                    weights[portion.query : portion.query + n] = data.query_weight[used]
                labels.append(data.y[own])
                row_weights.append(None if data.sample_weight is None else data.sample_weight[own])
                rows = int(own.sum())
                if wanted is not None:
                    among = slice(*np.searchsorted(wanted, [portion.row, portion.row + rows]).tolist())
                    places.append(np.arange(among.start, among.stop))
                    sampled.append(np.flatnonzero(own)[wanted[among] - portion.row])
                    sampled[-1] = data.X[sampled[-1]]
                n_rows += rows
                portion.query += n
                portion.row += rows
            held = np.flatnonzero(codes & JUDGING)
            if len(held):
                judging.append(replace(data, X=np.empty((len(data.y), 0))).select(held))
                numbers.append(portion.judge + np.arange(len(held)))
                portion.judge += len(held)
        self.y = np.concatenate(labels)
        self.shape = (n_rows, fit.n_features)
        self.groups = Groups(
            np.concatenate([[0], np.cumsum(sizes)]), None, np.arange(fit.n_queries), int(sizes.max())
        )
        self.query_weight = weights if fit.weighted else None
        weighted = [each for each in row_weights if each is not None]
        self.sample_weight = np.concatenate(weighted) if len(weighted) == len(labels) else None
        self.judging = judging
        self.numbers = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        self.sample = (np.concatenate(places), np.concatenate(sampled)) if wanted is not None else None

    def _blocks(self) -> Iterator[tuple[_Counted, Block]]:
        counted = [_Counted(portion.query, portion.row, portion.judge) for portion in self._portions]
        for at, block in self._numbered():
            yield counted[at], block

    def _numbered(self) -> Iterator[tuple[int, Block]]:
        pieces = [replace(portion.piece, number=at) for at, portion in enumerate(self._portions)]
        yield from blocks_of(share(pieces, *self._partitions))

    def rows(self, role: int) -> StreamedRows:
        """The features of the documents that are trained on, or of those that judge."""
        n = self.shape[0] if role == TRAINING else sum(len(part.y) for part in self.judging)
        return StreamedRows(lambda: self._pieces(role), (n, self.n_features))

    def _pieces(self, role: int) -> Iterator[NDArray[Any]]:
        for _, block in self._numbered():
            own = np.repeat((np.asarray(block.codes) & role) > 0, np.diff(block.data.groups.offsets))
            if own.any():
                yield block.data.X if own.all() else block.data.X[own]


@dataclass(eq=False)
class _Counted:
    """The numbers of what comes next of a partition: see `_Portion`."""

    query: int
    row: int
    judge: int


def _shared_bins(fit: _Fit, own: _Own, mesh: Mesh) -> Callable[..., Any]:
    """What makes data sets whose bins are the same everywhere: those of a sample of all documents."""

    def make(
        X: Any,
        *,
        parameters: dict[str, Any],
        names: Any = "auto",
        categorical: Sequence[int] = (),
        reference: Any = None,
        init_score: Floats | None = None,
    ) -> Any:
        if reference is not None:
            return dataset(X, parameters=parameters, reference=reference, init_score=init_score)
        found = mesh.gather(b"")  # all are there
        places, rows = own.sample or (np.empty(0, np.int64), np.empty((0, fit.n_features)))
        if mesh.rank == 0:
            numbers = sample_rows(parameters, fit.n_rows)
            sample = np.empty((fit.n_features, len(numbers)))
            sample[:, places] = rows.T
            for peer in range(1, len(found)):
                places, rows = pickle.loads(mesh.receive(peer))
                sample[:, places] = rows.T
            n = fit.n_rows if fit.n_rows * fit.n_features <= _ALIKE else 1 << 16
            bounds = Bins(parameters, categorical).find(sample, n, fit.n_rows).serialized()
            for peer in range(1, len(found)):
                mesh.send(peer, bounds)
        else:
            mesh.send(0, pickle.dumps((places, rows), protocol=5))
            bounds = bytes(mesh.receive(0))
        own.sample = None
        made = Bins(parameters, categorical).load(bounds, len(X)).dataset(X, names)
        made.set_label(np.zeros(len(X), np.float32))
        if init_score is not None:
            made.set_init_score(init_score)
        return made

    return make


def _summed(derivatives: Derivatives, mesh: Mesh) -> Callable[[Floats], float]:
    def value(scores: Floats) -> float:
        return math.fsum(np.concatenate(mesh.gather_arrays(derivatives.values(scores))))

    return value


def _judgment(fit: _Fit, own: _Own, mesh: Mesh | None, n_threads: int) -> Judgment | None:
    """The mean criterion over the queries that judge, wherever they are: the same in all processes."""
    settings = fit.settings
    if not fit.n_judging:
        return None
    part = _joined(own.judging) if own.judging else None
    gather = (lambda values: [values]) if mesh is None else mesh.gather_arrays
    order = np.concatenate(gather(own.numbers.astype(np.float64))).astype(np.int64)
    weight = fit.judging
    if settings.criterion is None:
        total = math.fsum(np.ones(fit.n_judging) if weight is None else weight)
        expected = None
        if part is not None:
            expected = Derivatives(
                settings.loss,
                part.y,
                part.groups,
                sample_weight=part.sample_weight,
                query_weight=None if weight is None else weight[own.numbers],
                n_threads=n_threads,
                whole=(total, 1.0),
            )

        def mean(scores: Floats) -> float:
            values = np.empty(0) if expected is None else expected.values(scores)
            return math.fsum(np.concatenate(gather(values)))

        return Judgment(own.rows(JUDGING), mean, expected_name(settings.loss), settings.judged_by)
    judge, name = metric_judge(settings.criterion, settings.convention)

    def mean_metric(scores: Floats) -> float:
        values = np.empty(0) if part is None else judge(part, scores)
        judged = np.empty(fit.n_judging)
        judged[order] = np.concatenate(gather(values))
        return float(mean_over_queries(judged, weight))

    return Judgment(own.rows(JUDGING), mean_metric, name, settings.judged_by)


def _joined(parts: Sequence[TrainingSet]) -> TrainingSet:
    sizes = np.concatenate([np.diff(part.groups.offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    weights = [part.sample_weight for part in parts if part.sample_weight is not None]
    y = np.concatenate([part.y for part in parts])
    return TrainingSet(
        np.empty((len(y), 0)),
        y,
        Groups(offsets, None, np.arange(len(sizes)), int(sizes.max())),
        np.concatenate(weights) if len(weights) == len(parts) else None,
    )
