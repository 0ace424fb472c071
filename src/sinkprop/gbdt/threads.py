"""Threads of LightGBM and XGBoost: as many as processors are free, before every tree.

OpenMP's threads wait for one another many times per tree. If other programs use the processors, each wait may
last until the system runs the missing thread, and a fit on two threads can take twenty times as long as on
one. The number of threads does not change the trees.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sinkprop.common.arguments import threads
from sinkprop.common.forks import guard_forked_process, in_forked_process
from sinkprop.common.processors import free_processors
from sinkprop.gbdt.boosters import lightgbm_module

__all__ = ["adapting_threads", "most_threads", "openmp_threads", "watching_time"]

_SECONDS = 10  # shorter fits are not worth a warning


def most_threads(n_threads: int | None, n: int) -> int:
    """Return the largest number of threads for LightGBM or XGBoost to use on n documents.

    It is `n_threads`, or a number that depends on n if `n_threads` is None; see `threads`. But it is 1 in a
    forked process, see `guard_forked_process`.
    """
    guard_forked_process()
    return 1 if in_forked_process() else threads(n_threads, n)


def openmp_threads(n_threads: int | None, n: int) -> int:
    """Return the number of threads for LightGBM or XGBoost to use now on n documents.

    It is `most_threads`, but not more than the number of free processors, unless the caller or the
    environment variable SINKPROP_NUM_THREADS sets a number.
    """
    most = most_threads(n_threads, n)
    return min(most, free_processors()) if most > 1 and _may_adapt(n_threads) else most


def _may_adapt(n_threads: int | None) -> bool:
    return n_threads is None and not os.environ.get("SINKPROP_NUM_THREADS")


_lock = threading.Lock()
_users, _before = 0, -1


@contextmanager
def adapting_threads(n_threads: int | None, most: int) -> Iterator[Callable[[], None]]:
    """Context manager for a fit by LightGBM; it yields a function to call before each tree.

    The function limits LightGBM to the free processors, unless the caller set the number of threads. The
    limit holds for all boosters of the process. It ends when the last such context exits.

    most  Largest number of threads of the fit.
    """
    if most == 1 or not _may_adapt(n_threads):
        yield lambda: None
        return
    global _users, _before  # noqa: PLW0603
    library = lightgbm_module().basic._LIB
    with _lock:
        if not _users:
            found = ctypes.c_int()
            library.LGBM_GetMaxThreads(ctypes.byref(found))
            _before = found.value
        _users += 1
    try:
        library.LGBM_SetMaxThreads(min(most, free_processors()))
        yield lambda: library.LGBM_SetMaxThreads(min(most, free_processors()))
    finally:
        with _lock:
            _users -= 1
            if not _users:
                library.LGBM_SetMaxThreads(_before)


@contextmanager
def watching_time(name: str) -> Iterator[None]:
    """Context manager for a fit: warn at the end if the fit mostly waited for processors.

    name  The name of the ranker, for the warning.
    """
    start, used = time.monotonic(), time.process_time()
    yield
    seconds, used = time.monotonic() - start, time.process_time() - used
    if seconds > _SECONDS and used < seconds / 2:
        warnings.warn(
            f"{name}: the fit took {seconds:.0f} s but had a processor for only {used:.0f} s of them. It "
            "waited for other programs, or for a disk.",
            RuntimeWarning,
            stacklevel=6,
        )
