"""A pseudo-terminal in which the program runs, and the screen that a terminal emulator draws from it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass

from warm import PROGRAM


@dataclass(frozen=True)
class Shown:
    """Exit status of a command, the lines on the screen at its end, and the bytes that the terminal got."""

    status: int
    lines: list[str]
    data: bytes


def shown(warm, *arguments, columns=80, rows=400, cwd=None):
    """Run the program with stdin, stdout and stderr on one terminal of this size."""
    import fcntl
    import pty
    import struct
    import termios

    import pyte

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    blocks = []

    def read():
        with suppress(OSError):  # Linux ends a pseudo-terminal with an error
            while block := os.read(leader, 65536):
                blocks.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        environment = {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
        done = warm.run(PROGRAM, *arguments, streams=os.ttyname(follower), env=environment, cwd=cwd)
    finally:
        os.close(follower)
        reader.join(timeout=60)
        os.close(leader)
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(b"".join(blocks))
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return Shown(done.returncode, lines, b"".join(blocks))
