"""The process in which a command runs: standard streams that were closed, and signals that end it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

__all__ = ["Terminated", "abandon_stdout", "closed_streams_opened", "orderly_end"]

# Signals that ask a process to end, and the words for them. Windows has no SIGHUP.
_SIGNALS = {"SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}


class Terminated(SystemExit):
    """A signal asked the program to end. `status` is the exit code for shells: 128 plus its number."""

    def __init__(self, name: str, number: int) -> None:
        self.status = 128 + number
        super().__init__(self.status)
        self.reason = f"{_SIGNALS[name]} ({name})."


@contextmanager
def orderly_end() -> Iterator[None]:
    """Context manager: SIGTERM and SIGHUP raise `Terminated`, so that the program cleans up before it ends.

    Temporary files are removed and worker processes are ended, as after Ctrl-C. A second signal ends the
    process at once. A signal that the caller ignores or handles is left alone.
    """
    changed: list[int] = []

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for other in changed:
            signal.signal(other, signal.SIG_DFL)
        raise Terminated(signal.Signals(number).name, number)

    if threading.current_thread() is threading.main_thread():
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, end)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def closed_streams_opened() -> None:
    """Open the standard streams that the caller has closed, which Python sets to None.

    Otherwise a file that is opened later could get the number of a standard stream, and text that a library
    prints would end up in this file. Reading a closed stdin and writing to a closed stdout fail with EBADF.
    Text for a closed stderr is lost.
    """
    opened: dict[str, tuple[int, str, dict[str, Any]]] = {
        "stdin": (os.O_WRONLY, "r", {}),
        "stdout": (os.O_RDONLY, "w", {}),
        "stderr": (os.O_WRONLY, "w", {"errors": "backslashreplace"}),
    }
    for number, (name, (flags, mode, more)) in enumerate(opened.items()):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, flags)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False, **more))  # noqa: SIM115


def abandon_stdout() -> bool:
    """Redirect stdout to the null device if writing to it fails, so that the flush at exit does not fail.

    Returns whether writing failed.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return True
    return False
