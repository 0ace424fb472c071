"""Calls of a function on chosen workers, with the results of all workers that are not lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sinkprop.cluster.presence import present, retrieve_error

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["call"]

_POLL = 0.5  # seconds between checks for lost workers while calls are running


def call(
    client: Client, function: Callable[..., Any], places: Sequence[str], *arguments: Sequence[Any], name: str
) -> dict[int, Any]:
    """Call `function(a, b, ...)` on each worker in `places`, and return {i: result on worker places[i]}.

    places     Addresses of the workers.
    arguments  One sequence per argument a, b, ... of the function, with one item per worker. If an item is a
               Dask future, its data must already be on that worker, so that no data moves.
    name       Name of the tasks on Dask's dashboard.

    There is no result for a worker that is lost. An error in the function is raised here.
    """
    import dask

    keys = [f"{name}-{uuid4().hex}-{i}" for i in range(len(places))]
    # all calls go to the scheduler in one message; each call may run only on its own worker
    with dask.annotate(workers=dict(zip(keys, places, strict=True)).get):
        futures = client.map(function, *map(list, arguments), key=keys, pure=False)
    try:
        answers: dict[int, Any] = client.sync(_answers, client, dict(enumerate(futures)), places)
        return answers
    finally:  # release the futures now: the traceback of an error would keep them alive
        for future in futures:
            future.release()


async def _answers(client: Client, futures: dict[int, Future], places: Sequence[str]) -> dict[int, Any]:
    """Results of the futures, without those whose workers were lost."""
    from distributed import KilledWorker

    waiting = dict(futures)
    while waiting:
        gathered = asyncio.ensure_future(client.gather(list(waiting.values())))
        gathered.add_done_callback(retrieve_error)
        gone: set[int] = set()
        while not gathered.done() and not gone:
            await asyncio.wait({gathered}, timeout=_POLL)
            if not gathered.done():
                there = await present(client)
                gone = {i for i in waiting if places[i] not in there}
        # if a worker is gone, do not wait for `gathered`: the lost worker's task would never finish
        if not gone:
            try:
                return dict(zip(waiting, gathered.result(), strict=True))
            except (KilledWorker, CancelledError, asyncio.CancelledError):
                ended = {
                    i for i, future in waiting.items() if future.status in ("error", "cancelled", "lost")
                }
                gone = ended or set(waiting)
        lost = [waiting.pop(i) for i in gone]
        # without a connection, calls cannot be canceled; the next request to the scheduler reports the error
        if client.status == "running":
            with suppress(OSError):
                await client.cancel(lost)
    return {}
