"""Workers that are there and answer, and requests that end if a worker is lost while they wait.

A worker that is stopped, or cut off from the network, stays connected for minutes as far as Dask knows. Each
worker sends the scheduler a sign of life about once per second. Here a worker counts as lost if the scheduler
has had none for some time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sinkprop.cluster.errors import ClusterLost

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "WorkerLost",
    "address_of",
    "in_a_line",
    "patience",
    "present",
    "results",
    "retrieve_error",
    "scheduler_gone",
    "setting",
    "silence",
]

_PATIENCE, _SILENCE = "60s", "30s"
_POLL = 0.5  # seconds between checks for lost workers while requests are waiting
_ADDRESSES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # address of each client's scheduler


class WorkerLost(OSError):  # noqa: N818  # not named "Error": the worker may have been lost to anything
    """A worker was lost while a request to it was waiting."""


@dataclass(eq=False)
class _Signs:
    """Signs of life of the workers of a client.

    last    Time of each worker's last sign, by the scheduler's clock, and when it was first seen here.
    looked  Time of the last request to the scheduler for the signs.
    silent  Addresses of the workers that gave none for too long.
    """

    last: dict[str, tuple[float, float]] = field(default_factory=dict)
    looked: float = float("-inf")
    silent: set[str] = field(default_factory=set)


_SIGNS: WeakKeyDictionary[Any, _Signs] = WeakKeyDictionary()


def patience() -> float:
    """Seconds to wait for a worker while the cluster has none, from Dask's setting `sinkprop.patience`."""
    return setting("sinkprop.patience", _PATIENCE)


def silence() -> float:
    """Seconds without a sign of life after which a worker is lost, from Dask's setting `sinkprop.silence`."""
    return setting("sinkprop.silence", _SILENCE)


def setting(name: str, default: str) -> float:
    """Return a Dask setting that is a length of time, such as "2s", as a number of seconds."""
    import dask
    from dask.utils import parse_timedelta

    return float(parse_timedelta(dask.config.get(name, default)))


def address_of(client: Client) -> str:
    """Address of a client's scheduler, also after the client was closed."""
    if client.scheduler is not None:  # a closed client has no scheduler
        _ADDRESSES[client] = client.scheduler.address
    return _ADDRESSES.get(client, "an unknown address")


def in_a_line(error: BaseException) -> str:
    """Return the type and the text of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def scheduler_gone(client: Client, error: BaseException) -> ClusterLost:
    """Return the error that says which scheduler is gone, and why."""
    return ClusterLost(f"the scheduler at {address_of(client)} is gone ({in_a_line(error)}).")


async def present(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker that is connected and not silent, by address.

    Raises `ClusterLost` if the scheduler does not answer.
    """
    try:
        found: dict[str, int] = dict(await asyncio.wait_for(client.nthreads(), patience()))
        silent = await asyncio.wait_for(_silent(client), patience())
    # the connection was closed, the request timed out, or the client is closed
    except (OSError, RuntimeError, ValueError, AttributeError, asyncio.TimeoutError) as error:
        raise scheduler_gone(client, error) from None
    return {address: n for address, n in found.items() if address not in silent}


async def _silent(client: Client) -> set[str]:
    """Return the addresses of the workers without a sign of life for `silence` seconds."""
    signs = _SIGNS.setdefault(client, _Signs())
    limit = silence()
    if time.monotonic() - signs.looked > limit / 10:
        # a change is what counts, not the time itself: the scheduler's clock may differ from this one
        workers = (await client.scheduler.identity())["workers"]
        now = time.monotonic()
        before = signs.last
        signs.last = {
            address: before[address]
            if address in before and before[address][0] == worker["last_seen"]
            else (worker["last_seen"], now)
            for address, worker in workers.items()
        }
        signs.looked = now
        signs.silent = {address for address, (_, since) in signs.last.items() if now - since > limit}
    return signs.silent


async def results(client: Client, requests: Mapping[str, Awaitable[Any]]) -> dict[str, Any]:
    """Wait for requests to workers, and return the result or the error of each, by the worker's address.

    The error is `WorkerLost` if the worker was lost meanwhile.
    """
    running = {address: asyncio.ensure_future(request) for address, request in requests.items()}
    found: dict[str, Any] = {}
    try:
        while running:
            await asyncio.wait(running.values(), timeout=_POLL)
            ended = {address for address, request in running.items() if request.done()}
            there = await present(client) if len(ended) < len(running) else {}
            for address, request in list(running.items()):
                if address in ended:
                    found[address] = _outcome(request)
                elif address not in there:
                    found[address] = WorkerLost(f"the worker {address} is gone")
                    request.add_done_callback(retrieve_error)
                    request.cancel()
                else:
                    continue
                del running[address]
    finally:
        for request in running.values():
            request.add_done_callback(retrieve_error)
            request.cancel()
    return found


def _outcome(request: asyncio.Future[Any]) -> Any:
    if request.cancelled():
        return WorkerLost("the request was canceled")
    return request.exception() or request.result()


def retrieve_error(request: asyncio.Future[Any]) -> None:
    """Read the exception of a finished request, so that asyncio does not log it as never retrieved."""
    if not request.cancelled():
        request.exception()
