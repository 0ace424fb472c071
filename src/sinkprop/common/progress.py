"""A progress bar on a terminal, for work that takes longer than a second."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Notify", "progress_line", "silent"]

Notify = Callable[[int, int, str], None]

_PATIENCE, _INTERVAL, _BAR = 1.0, 0.1, 20


def silent(done: int, total: int, what: str) -> None:
    """Report nothing."""


@contextmanager
def progress_line(enabled: bool = True) -> Iterator[Notify]:
    """Context manager: give a function notify(done, total, what) that draws a progress bar on stderr.

    The function draws nothing unless stderr is a terminal, and nothing during the first second. The bar is
    erased at the end of the `with` block.
    """
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield silent
        return
    stream, began = sys.stderr, time.monotonic()
    last, drawn = began + _PATIENCE - _INTERVAL, False

    def notify(done: int, total: int, what: str) -> None:
        nonlocal last, drawn
        now = time.monotonic()
        if now - last < _INTERVAL:
            return
        last, drawn = now, True
        share = min(1.0, done / total) if total else 0.0
        full = int(share * _BAR)
        text = f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%} {what}"
        stream.write("\r" + text[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
        stream.flush()

    try:
        yield notify
    finally:
        if drawn:
            stream.write("\r\x1b[K")
            stream.flush()
