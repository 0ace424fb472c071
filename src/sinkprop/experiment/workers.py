"""Worker processes of a comparison, which end when the comparison ends, is interrupted, terminated or killed.

Ctrl-C and SIGTERM reach the first process, which ends the workers. If the first process is killed, it cannot
do so: then each worker notices that it has another parent, and ends itself. Windows gives a process no new
parent, so there a worker finishes its fit first.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, TypeVar

from sinkprop.common.interrupts import interrupts_held

__all__ = ["outcomes"]

_POLL = 0.5  # seconds between two looks at the parent

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def outcomes(
    function: Callable[[Job], Outcome], jobs: Sequence[Job], workers: int
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield the index and the outcome function(job) of each job, in the order in which jobs finish.

    Close the iterator if it is not used up: this ends the workers.
    """
    if workers == 1:
        yield from ((number, function(job)) for number, job in enumerate(jobs))
        return
    from joblib import Parallel, delayed

    options: dict[str, Any] = {"n_jobs": workers, "backend": "loky", "batch_size": 1}
    watch = {"initializer": _watch, "initargs": (os.getpid(),)}
    try:
        Parallel(**options, **watch)
        options |= watch
    except TypeError:  # joblib before 1.5 passes nothing to new workers, so they watch from their first call
        pass
    _start(options, workers)
    options["pre_dispatch"] = "all"
    try:
        parallel = Parallel(**options, return_as="generator_unordered")
    except (TypeError, ValueError):  # joblib before 1.4 can only return all results at the end
        parallel = Parallel(**options)
    calls = (delayed(_numbered)(number, function, job) for number, job in enumerate(jobs))
    found: Any = ()
    try:
        found = parallel(calls)
        for outcome in found:  # noqa: UP028 - `yield from` would close `found` with its warnings
            yield outcome
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process ended before its fit was done, perhaps for lack of memory; use fewer processes "
            f"(--jobs 1, n_jobs=1). {' '.join(str(error).split())}"
        ) from None
    finally:
        if hasattr(found, "close"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib's, that results were not used
                found.close()


def _start(options: dict[str, Any], workers: int) -> None:
    """Start the workers of `joblib.Parallel(**options)`, so that Ctrl-C reaches only this process.

    Processes that are started while interrupts are blocked keep them blocked. Otherwise each worker would
    print a traceback, and interrupted rankers would end their fits early.
    """
    from joblib import Parallel, delayed

    if hasattr(signal, "pthread_sigmask"):
        # starting this process of joblib's would unblock interrupts again, so it is started first
        from joblib.externals.loky.backend import resource_tracker

        resource_tracker.ensure_running()
    with interrupts_held():
        Parallel(**options)(delayed(_watch)(os.getpid()) for _ in range(2 * workers))


def _numbered(number: int, function: Callable[[Job], Outcome], job: Job) -> tuple[int, Outcome]:
    return number, function(job)


@cache
def _watch(parent: int) -> None:
    """Start a thread, once, that ends this process when its parent, which has this number, has ended.

    Does nothing in the parent itself, whose threads joblib uses if it is a worker of another pool.
    """
    if os.name == "nt" or os.getpid() == parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="sinkprop-parent", daemon=True).start()
