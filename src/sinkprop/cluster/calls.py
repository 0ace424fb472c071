"""Calls of a function on chosen workers, with answers from those that stay to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sinkprop.cluster.connecting import address_of, patience
from sinkprop.cluster.errors import ClusterLost

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["call"]

_POLL = 0.5  # seconds between looks at who is there, while calls are out


def call(
    client: Client, function: Callable[..., Any], places: Sequence[str], *arguments: Sequence[Any], name: str
) -> dict[int, Any]:
    """What `function(a, b, ...)` gives on each of the places, by number, without those that went away.

    arguments  sequences, an item a place. What is a future must be on that worker already, so that nothing
               moves. An error of the function is raised here.
    name       of the tasks on the dashboard
    """
    import dask

    keys = [f"{name}-{uuid4().hex}-{i}" for i in range(len(places))]
    # one message to the scheduler for all; each runs at its place and nowhere else
    with dask.annotate(workers=dict(zip(keys, places, strict=True)).get):
        futures = client.map(function, *map(list, arguments), key=keys, pure=False)
    try:
        answers: dict[int, Any] = client.sync(_answers, client, dict(enumerate(futures)), places)
        return answers
    finally:  # now, and not when the traceback of an error is forgotten
        for future in futures:
            future.release()


async def _answers(client: Client, futures: dict[int, Future], places: Sequence[str]) -> dict[int, Any]:
    from distributed import KilledWorker

    waiting = dict(futures)
    while waiting:
        gathered = asyncio.ensure_future(client.gather(list(waiting.values())))
        gathered.add_done_callback(_heard)
        gone: set[int] = set()
        while not gathered.done() and not gone:
            await asyncio.wait({gathered}, timeout=_POLL)
            if not gathered.done():
                there = await _there(client)
                gone = {i for i in waiting if places[i] not in there}
        if not gone:  # for those the scheduler would wait for ever
            try:
                return dict(zip(waiting, gathered.result(), strict=True))
            except (KilledWorker, CancelledError, asyncio.CancelledError):
                ended = {
                    i for i, future in waiting.items() if future.status in ("error", "cancelled", "lost")
                }
                gone = ended or set(waiting)
        lost = [waiting.pop(i) for i in gone]
        if client.status == "running":  # else whoever asks next finds that there is no scheduler
            with suppress(OSError):
                await client.cancel(lost)
    return {}


async def _there(client: Client) -> set[str]:
    try:
        return set(await asyncio.wait_for(client.nthreads(), patience()))
    except (OSError, RuntimeError, ValueError, TimeoutError, asyncio.TimeoutError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ClusterLost(f"the scheduler at {address_of(client)} is gone ({what}).") from None


def _heard(gathered: asyncio.Future[Any]) -> None:
    """Take the error of an answer that nobody may wait for any more."""
    if not gathered.cancelled():
        gathered.exception()
