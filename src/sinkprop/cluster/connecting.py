"""Dask clients made from a `cluster=` argument, and checks of the workers before they get any work."""

from __future__ import annotations

import logging
import multiprocessing
import platform
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sinkprop
from sinkprop.cluster.errors import ClusterLost
from sinkprop.cluster.presence import (
    WorkerLost,
    address_of,
    in_a_line,
    patience,
    present,
    results,
    scheduler_gone,
)
from sinkprop.common.arguments import whole
from sinkprop.common.interrupts import interrupts_held

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "ask",
    "ask_each",
    "check_workers",
    "connected",
    "differing",
    "while_connected",
    "workers_of",
]

logger = logging.getLogger("sinkprop.cluster")

# Ctrl-C reaches all processes of a terminal, but the workers must not end: the fit handles it in this
# process, and still needs them. Where it cannot be blocked for new processes, the workers ignore it.
_IGNORE = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
_DEAF = [] if hasattr(signal, "pthread_sigmask") else [_IGNORE]
# Dask's settings for clusters that are started here. By default Dask samples the stacks of the workers 100
# times per second and the clock of its event loops 50 times per second, which delays the computation. Only
# Dask's dashboard shows these samples, and these clusters have no dashboard.
_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"}
_OWN: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # number of workers of each cluster started here
_KINDS = (
    "cluster must be a dask.distributed.Client, a Dask cluster object, the address of a scheduler such as "
    "'tcp://host:8786', or a number of local worker processes"
)


@contextmanager
def connected(cluster: Any) -> Iterator[Client]:
    """Connect to a Dask cluster for the duration of a `with` block.

    Parameters
    ----------
    cluster : dask.distributed.Client, Dask cluster, str or int
        A client, which stays open at the end of the block; a cluster object or the address of a scheduler
        such as "tcp://host:8786", for which a client is opened and closed; or a number of local worker
        processes with one thread each, which are started here and ended with the block.

    Yields
    ------
    dask.distributed.Client
        Client of the cluster.

    Raises
    ------
    ClusterLost
        If the scheduler does not answer, the client is closed, or local workers cannot be started.
    """
    distributed = _distributed()
    if isinstance(cluster, distributed.Client):
        if cluster.asynchronous:
            raise ValueError("cluster must be a client that blocks; got one with asynchronous=True.")
        if cluster.status != "running":
            raise ClusterLost(f"the client given as cluster is {cluster.status}; open another.")
        address_of(cluster)
        yield cluster
        return
    with ExitStack() as stack:
        if isinstance(cluster, str):
            client = _client_at(cluster, distributed)
        elif hasattr(cluster, "scheduler_address") and not isinstance(cluster, type):
            client = distributed.Client(cluster, set_as_default=False)
        elif isinstance(cluster, bool) or not hasattr(cluster, "__index__"):
            raise ValueError(f"{_KINDS}; got {cluster!r}.")
        else:
            client = stack.enter_context(
                _local_client(whole("cluster, as a number of processes,", cluster, 1), distributed)
            )
            yield client
            return
        address_of(client)
        yield stack.enter_context(client)


def _distributed() -> Any:
    """Import Dask's package `distributed`, or raise an ImportError that says how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError('cluster= needs Dask: pip install "sinkprop[dask]".') from error
    return distributed


def _client_at(address: str, distributed: Any) -> Client:
    """Client of the scheduler at an address."""
    try:
        client: Client = distributed.Client(address, set_as_default=False)
        return client
    except (OSError, ValueError) as error:  # no scheduler answers, or the text is not an address
        what = str(error).split("\n", maxsplit=1)[0]
        raise ClusterLost(
            f"there is no scheduler at {address!r}: {what}. Expected an address such as 'tcp://host:8786', "
            "which `dask scheduler` prints when it starts."
        ) from None


@contextmanager
def _local_client(n: int, distributed: Any) -> Iterator[Client]:
    """Context that starts n worker processes on this machine, yields their client and ends them.

    Dask cannot be interrupted while it starts or ends processes: it would print tracebacks and leave
    processes behind. So Ctrl-C is put off meanwhile, and does not reach the workers at all.
    """
    with ExitStack() as stack:
        with interrupts_held():
            local = stack.enter_context(_held(_local_cluster(n, distributed)))
            client = stack.enter_context(_held(distributed.Client(local, set_as_default=False)))
            address_of(client)
        yield client


@contextmanager
def _held(opened: Any) -> Iterator[Any]:
    """Context that closes a client or cluster at its end, with Ctrl-C put off."""
    try:
        yield opened
    finally:
        with interrupts_held():
            opened.close()


def _local_cluster(n: int, distributed: Any) -> Any:
    """Cluster of n worker processes on this machine."""
    import dask

    process = multiprocessing.current_process()
    # `_inheriting` is true while a new worker process runs the user's script from the top
    if getattr(process, "_inheriting", False):
        raise RuntimeError(
            "cluster= was given a number of processes in a script without a guard: each process runs the "
            'script from its top. Put the code that starts the fit under `if __name__ == "__main__":`.'
        )
    try:
        with dask.config.set(_QUIET):
            local = distributed.LocalCluster(
                n_workers=n,
                threads_per_worker=1,
                processes=True,
                # no dashboard, and a free port for the HTTP server, which Dask starts anyway
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                memory_limit=0,  # no limit: the workers share this machine's memory with this process
                silence_logs=logging.CRITICAL,  # sinkprop reports lost workers itself
                preload=_DEAF,
            )
    # AssertionError: Dask's event loop did not start within ten seconds, on a machine that stalled
    except (RuntimeError, AssertionError) as error:
        raise ClusterLost(
            f"{n} local worker processes could not be started ({in_a_line(error)}). In a script, put the "
            'code that starts the fit under `if __name__ == "__main__":`.'
        ) from error
    _OWN[local] = n
    return local


@contextmanager
def while_connected(client: Client) -> Iterator[None]:
    """Context that raises `ClusterLost` in place of any error if the connection to the scheduler was lost."""
    try:
        yield
    except ClusterLost:
        raise
    except Exception:
        if client.status == "running":
            raise
        what = f"the connection to it is {client.status}"
        raise ClusterLost(f"the scheduler at {address_of(client)} is gone ({what}).") from None


def workers_of(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker, by address; silent workers are left out.

    If the cluster has no worker, waits for one. Raises `ClusterLost` if none has come after `patience`
    seconds, or if the scheduler does not answer.
    """
    give_up = time.monotonic() + patience()
    while True:
        try:
            found: dict[str, int] = client.sync(present, client)
        except ClusterLost:
            raise
        except RuntimeError as error:  # the client is closed
            raise scheduler_gone(client, error) from None
        _complete(client.cluster, len(found))
        if found:
            return found
        if time.monotonic() > give_up:
            raise ClusterLost(
                f"the scheduler at {address_of(client)} has no worker, and none came in {patience():g} s."
            )
        time.sleep(0.1)


def _complete(cluster: Any, there: int) -> None:
    """Replace the lost workers of a cluster that sinkprop started; other clusters stay as they are.

    Each worker is watched by a process of Dask, its nanny, which starts a new worker if the worker dies. The
    nanny gives up if the new worker dies while it starts. Only then does this function start a worker.

    there  Number of workers that are connected to the scheduler.
    """
    wanted = 0 if cluster is None else _OWN.get(cluster, 0)
    if there < wanted:
        cluster.scale(wanted)  # does nothing if nannies are already starting the missing workers


def check_workers(client: Client) -> dict[str, int]:
    """Check that all workers run the same versions of sinkprop and Python as this process.

    Parameters
    ----------
    client : dask.distributed.Client
        Client of the cluster.

    Returns
    -------
    dict from str to int
        Number of threads of each worker, by address.

    Raises
    ------
    ValueError
        If a worker runs other versions, lacks a package or does not answer. The message names the worker.
    ClusterLost
        If the scheduler is gone, or there is no worker.
    """
    workers = workers_of(client)
    for address, what in differing(client, workers).items():
        raise ValueError(
            f"the worker {address} {what}; this process has sinkprop {sinkprop.__version__} with Python "
            f"{_python()}. Install the same on every worker."
        )
    return workers


def differing(client: Client, workers: Collection[str]) -> dict[str, str]:
    """Return {address: reason} for the workers that cannot take part in a fit, with the reason as text."""
    answers = ask(client, _probe(), workers=workers)
    found = {}
    for address in sorted(answers):
        answer = answers[address]
        if isinstance(answer, ModuleNotFoundError):
            found[address] = f"lacks a package ({answer})"
        elif isinstance(answer, BaseException):
            found[address] = f"does not answer ({in_a_line(answer)})"
        elif answer[:2] != (sinkprop.__version__, _python()):
            found[address] = f"has sinkprop {answer[0]} with Python {answer[1]}"
    sets = {answers[address][2] for address in answers if address not in found}
    if len(sets) > 1:
        logger.warning(
            "the workers use different instruction sets (%s): the last bits of the model depend on which "
            "worker has which queries", ", ".join(sorted(sets)),
        )  # fmt: skip
    return found


def ask(
    client: Client, function: Callable[..., Any], *arguments: Any, workers: Collection[str] | None = None
) -> dict[str, Any]:
    """Call a short function on each worker, and return its result or its error, by the worker's address.

    Workers that were lost meanwhile are not in the result.
    """
    from distributed.comm import CommClosedError

    asked = set(workers_of(client) if workers is None else workers)
    answers: dict[str, Any] = {}
    while asked:
        found = ask_each(client, function, dict.fromkeys(sorted(asked), arguments))
        failed = {address for address, answer in found.items() if isinstance(answer, OSError)}
        if failed:
            time.sleep(0.2)  # time for the scheduler to notice lost workers
            there = set(workers_of(client))
            found = {address: answer for address, answer in found.items() if address in there}
        answers |= found
        asked = {address for address in found if isinstance(found[address], CommClosedError | WorkerLost)}
    return answers if answers or workers is not None else ask(client, function, *arguments)


def ask_each(
    client: Client, function: Callable[..., Any], arguments: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Call a short function on workers, and return its result or its error, by the worker's address.

    The error is an OSError if the worker was lost meanwhile.

    arguments  Arguments of the function for each worker, by address.
    """
    found: dict[str, Any] = client.sync(_answers, client, function, arguments)
    return found


async def _answers(
    client: Client, function: Callable[..., Any], arguments: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    async def one(address: str, given: Sequence[Any]) -> Any:
        answers = await client.run(function, *given, workers=[address], on_error="return")
        return answers[address]

    return await results(client, {address: one(address, given) for address, given in arguments.items()})


def _probe() -> Callable[[], tuple[str, str, str]]:
    """Make a function that returns a worker's versions of sinkprop and Python, and its instruction set."""

    # Dask sends the code of an inner function, so that a worker can call it even if it has no sinkprop; the
    # imports below then fail, and Dask returns their error.
    def probe() -> tuple[str, str, str]:
        import platform

        import sinkprop
        from sinkprop import _native

        python = ".".join(platform.python_version_tuple()[:2])
        return sinkprop.__version__, python, _native.instruction_set()

    return probe


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])
