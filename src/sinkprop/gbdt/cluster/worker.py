"""A worker's part in trees grown on a Dask cluster, with reports of its progress."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlparse

import numpy as np

from sinkprop.common.types import Floats
from sinkprop.estimator.held_out import taken_queries
from sinkprop.gbdt.boosters import booster_of, lightgbm_module
from sinkprop.gbdt.cluster.greeting import listening_socket
from sinkprop.gbdt.cluster.mesh import Mesh, PeerLost, rounded
from sinkprop.gbdt.cluster.messages import TRAINING, ClusterRecord, Fit, HeldOutPart, Rank
from sinkprop.gbdt.cluster.rows import OwnQueries, shared_bins, validation_of
from sinkprop.gbdt.derivatives import Derivatives
from sinkprop.gbdt.growing.bagging import QueryBagging
from sinkprop.gbdt.growing.bins import dataset
from sinkprop.gbdt.growing.loop import Boosting, Grown, GrownModel, Growth, grow

__all__ = ["forget", "listen", "progress_of", "stop_fit", "train"]


@dataclass(eq=False)
class _Control:
    """State of a fit in a worker process, shared between its threads.

    listeners  Sockets to which the other processes of the fit connect.
    meshes     Connections of each process of the fit that runs in this worker.
    running    Number of tasks of the fit that run in this worker.
    ended      Whether `forget` has ended the fit.
    stop       Whether to end the fit after the current round, because the user has interrupted it.
    abandoned  Function that returns whether the client has given up the task.
    progress   Number of the last round, maximum number of rounds, and text of the progress line.
    kept       Last copy of the trees, from which the fit can resume, or None.
    timer      Timer that ends the fit here if its task never starts, as when this worker was cut off.
    """

    listeners: list[socket.socket] = field(default_factory=list)
    meshes: list[Mesh] = field(default_factory=list)
    running: int = 0
    ended: bool = False
    stop: bool = False
    abandoned: Callable[[], bool] = lambda: False
    progress: tuple[int, int, str] = (0, 0, "")
    kept: Grown | None = None
    timer: threading.Timer | None = None


_UNUSED = 600.0  # seconds after which a fit is forgotten whose task has not started

_FITS: dict[str, _Control] = {}
_LOCK = threading.Lock()


def listen(name: str, n: int, dask_worker: Any = None) -> list[tuple[str, int]]:
    """Open a port for each of n processes of the fit in this worker; returns their hosts and ports.

    The ports are open at the address by which Dask reaches this worker, and at no other address of the
    machine.

    dask_worker  This worker, which Dask passes by this name.
    """
    protocol, _, _ = dask_worker.address.partition("://")
    # a worker that runs in the client's process is reached without a network
    host = "127.0.0.1" if protocol == "inproc" else urlparse(dask_worker.address).hostname
    with _LOCK:
        control = _FITS.setdefault(name, _Control())
        try:
            for _ in range(n):
                control.listeners.append(listening_socket(host))
        except OSError as error:  # an OSError would mean to the client that this worker is lost
            raise ValueError(f"{host}: {error.strerror or error}") from None
        control.timer = threading.Timer(_UNUSED, forget, (name,))
        control.timer.daemon = True
        control.timer.start()
    return [listener.getsockname()[:2] for listener in control.listeners]


def stop_fit(name: str, _: None = None) -> None:
    """Make the fit end after the current round."""
    if name in _FITS:
        _FITS[name].stop = True


def progress_of(name: str, have: int) -> tuple[int, int, str, Grown | None] | None:
    """Return the progress of the fit; None if this worker does not run the fit.

    The result is (number of the last round, maximum number of rounds, text of the progress line, copy of the
    trees). The copy is None if it has only `have` rounds or fewer.
    """
    control = _FITS.get(name)
    if control is None:
        return None
    kept = control.kept
    return (*control.progress, kept if kept is not None and len(kept.trees) > have else None)


def forget(name: str, _: None = None) -> bool:
    """End the fit in this worker; returns whether a task of the fit is still running."""
    control = _FITS.get(name)
    if control is None:
        return False
    control.ended = True
    if control.timer is not None:
        control.timer.cancel()
    for mesh in list(control.meshes):
        mesh.end()
    if control.running:
        return True
    for listener in control.listeners:
        listener.close()
    _FITS.pop(name, None)
    return False


def train(
    fit: Fit, ranks: Sequence[Rank], *partitions: Any
) -> tuple[GrownModel | None, ClusterRecord, list[HeldOutPart]]:
    """Grow the trees together with the other workers.

    Returns the model, the record of the cluster and the validation queries of this worker. The model is None
    if the fit was interrupted before it had one.

    ranks       Processes of the fit that this worker runs, each in a thread: one, or two if it is the only
                worker left.
    partitions  Data of the partitions of these processes.
    """
    from distributed import get_worker

    control = _FITS.get(fit.name)
    if control is None or control.ended:
        raise PeerLost("the fit has ended")
    worker = get_worker()
    key = worker.get_current_task()
    n_threads = fit.settings.n_threads or max(1, worker.state.nthreads // len(ranks))

    def abandoned() -> bool:
        """Whether the client has given up the fit, for example because its process has ended."""
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    control.abandoned = abandoned
    found: dict[int, Any] = {}

    def run(rank: Rank) -> None:
        try:
            found[rank.rank] = _grow(fit, rank, [partitions[i] for i in rank.partitions], control, n_threads)
        except BaseException as error:
            found[rank.rank] = error

    with _LOCK:
        control.running += 1
    if control.timer is not None:
        control.timer.cancel()
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
        forget(fit.name)  # here, because the client may be unable to reach this worker at the end of the fit
    errors = [result for result in found.values() if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, PeerLost)):
        if isinstance(error, KeyboardInterrupt):  # interrupted, and there is no model to keep
            return None, ClusterRecord(0, 0, 0, 0.0, 0.0, 0), []
        raise error
    model, record, _ = found[ranks[0].rank]
    return model, record, [part for _, _, part in found.values() if part is not None]


def _grow(
    fit: Fit, rank: Rank, partitions: Sequence[Any], control: _Control, n_threads: int
) -> tuple[GrownModel, ClusterRecord, HeldOutPart | None]:
    """Connect one process of the fit to the others, and grow the trees.

    Returns the model, the record of the cluster and the validation queries of this process.
    """
    mesh = None
    if fit.several:
        with _LOCK:
            port = rank.addresses[rank.rank][1]
            listener = next(each for each in control.listeners if each.getsockname()[1] == port)
            control.listeners.remove(listener)
        with listener:  # nobody can connect any more once all processes of the fit are connected
            mesh = Mesh.connect(
                rank.rank,
                rank.addresses,
                listener,
                fit.secret,
                given_up=lambda: control.ended or control.abandoned(),
            )
        control.meshes.append(mesh)
    try:
        return _grow_in(fit, OwnQueries(fit, rank, partitions), mesh, control, rank.rank, n_threads)
    except lightgbm_module().basic.LightGBMError as error:
        if mesh is not None:
            mesh.check()  # if a process was lost, LightGBM got meaningless sums: raise `PeerLost` instead
        raise ValueError(f"LightGBM refuses this: {' '.join(str(error).split())}") from None
    finally:
        if mesh is not None:
            mesh.close()


def _grow_in(
    fit: Fit, own: OwnQueries, mesh: Mesh | None, control: _Control, rank: int, n_threads: int
) -> tuple[GrownModel, ClusterRecord, HeldOutPart | None]:
    """Grow the trees in one process; `mesh` is None if it is the only process of the fit.

    Returns the model, the record of the cluster and the validation queries of this process.
    """
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
    validation = validation_of(fit, own, mesh, n_threads)
    plan = replace(
        settings.plan,
        parameters=parameters,
        init_model=None if settings.first is None else booster_of(settings.first),
    )
    value: Callable[[Floats], float] = derivatives.value
    make: Callable[..., Any] = dataset
    if mesh is not None:
        drawn = rounded(drawn, mesh, fit.n_rows)
        value = _summed(derivatives, mesh, fit.n_queries)
        make = shared_bins(fit, own, mesh)
        plan = replace(plan, parameters={**parameters, "tree_learner": "data", "num_machines": mesh.size})

    keep = _Keeping(control, mesh, rank, settings.plan, fit.keep)
    model = grow(
        own.rows(TRAINING),
        drawn,
        plan,
        validation,
        value=value,
        notify=keep.notify,
        make=make,
        network=None if mesh is None else mesh.lightgbm(),
        resumed=fit.resumed,
        watch=keep,
    )
    part = None
    if (held := model.held_out) is not None:
        part = HeldOutPart(own.numbers[taken_queries(held.sizes)], held.limited())
    return replace(model, held_out=None), keep.record(), part


class _Keeping:
    """Function that is called after each round.

    It ends the fit if the user or the client has asked for it. In process 0 it also copies the trees from
    time to time, so that the fit can resume after the loss of a worker.
    """

    def __init__(self, control: _Control, mesh: Mesh | None, rank: int, plan: Boosting, every: float) -> None:
        self._control, self._mesh, self._rank, self._plan = control, mesh, rank, plan
        self._every, self._next = every, time.monotonic() + every
        self._rounds, self._sent = 0, 0
        self._began = self._last = (0.0, 0.0)

    def record(self) -> ClusterRecord:
        """Return time and traffic of the rounds after the first one."""
        mesh = self._mesh
        sent = 0 if mesh is None else mesh.sent - self._sent
        seconds, cpu = (last - began for last, began in zip(self._last, self._began, strict=True))
        rounds = max(0, self._rounds - 1)  # without the first round, which includes preparations
        return ClusterRecord(1 if mesh is None else mesh.size, 0, rounds, seconds, cpu, sent)

    def notify(self, number: int, total: int, text: str) -> None:
        """Store the progress for the client, which asks only the worker of process 0."""
        if self._rank == 0:
            self._control.progress = (number, total, text)

    def __call__(self, growth: Growth) -> None:
        self._rounds, self._last = self._rounds + 1, (time.monotonic(), time.process_time())
        if self._rounds == 1:
            self._began, self._sent = self._last, 0 if self._mesh is None else self._mesh.sent
        control = self._control
        own = np.array([control.stop, control.ended or control.abandoned()], dtype=np.float64)
        stop, end = np.max([own] if self._mesh is None else self._mesh.gather_arrays(own, 2), axis=0)
        if end:
            raise PeerLost("the fit has ended")
        if stop:
            raise KeyboardInterrupt
        # dart changes earlier trees, so a fit cannot resume from a copy of them
        if self._rank == 0 and time.monotonic() > self._next and not self._plan.dart:
            began = time.monotonic()
            self._control.kept = growth.grown()
            now = time.monotonic()
            self._next = now + max(self._every, 20 * (now - began))


def _summed(derivatives: Derivatives, mesh: Mesh, n_queries: int) -> Callable[[Floats], float]:
    """Make a function that returns the mean expected gain over the training queries of all processes.

    Its argument is the scores of this process's training documents. All processes must call the function at
    the same time.

    n_queries  Number of training queries of the fit.
    """

    def value(scores: Floats) -> float:
        return math.fsum(np.concatenate(mesh.gather_arrays(derivatives.values(scores), n_queries)))

    return value
