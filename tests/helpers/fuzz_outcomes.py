"""Uses of a file that go wrong, to test that fuzz/mutate.py sees it.

The first file that a child gets is the valid one, whose name ends in ".copy".
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def crash(name: str, path: Path) -> tuple[str, str]:
    if path.suffix != ".copy":
        os.kill(os.getpid(), signal.SIGSEGV)
    return "read", "scores"


def hang(name: str, path: Path) -> tuple[str, str]:
    if path.suffix != ".copy":
        time.sleep(60)
    return "read", "scores"


def others(name: str, path: Path) -> tuple[str, str]:
    return "read", "scores" if path.suffix == ".copy" else "other scores"
