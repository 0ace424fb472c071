"""Ctrl-C put off while a step runs that must not end halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupts_held"]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Context in which Ctrl-C is put off until the end of the block.

    A terminal sends Ctrl-C to all processes that it runs. Threads that are started in the block, and the
    processes that these threads start at any time, never receive it.
    """
    held = False

    def note(number: int, frame: Any) -> None:
        nonlocal held
        held = True

    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, note) if main else None
    mask = _blocked()
    try:
        yield
    except KeyboardInterrupt:
        held = False  # one interrupt is enough
        raise
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # calls `note` if there was an interrupt
        if main:
            signal.signal(signal.SIGINT, handler)
    if held:
        signal.raise_signal(signal.SIGINT)


def _blocked() -> Any:
    """Block Ctrl-C in this thread; returns its signal mask before, or None on systems without such masks."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    # starting this process of Python's would unblock Ctrl-C again, so it is started first
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
