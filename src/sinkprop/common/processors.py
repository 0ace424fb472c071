"""The number of processors that this process may use, and how many of them are free."""

from __future__ import annotations

import math
import os
import threading
import time
from functools import lru_cache
from pathlib import Path

__all__ = ["FreeProcessors", "free_processors", "usable_processors"]


@lru_cache(maxsize=1)
def usable_processors() -> int:
    """Return the number of processors that this process may use, at least 1.

    A limit on the processor time of a container (a quota of its control group, on Linux) counts, too.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return count if quota >= count else max(1, math.ceil(quota))


def _quota(mount: Path, membership: Path) -> float:
    """Return the processor time per time that the process's control group may use; infinity if unlimited."""
    return min((_quota_at(path, name) for path, name in _groups(mount, membership)), default=math.inf)


def _quota_at(path: Path, name: str) -> float:
    try:
        if name == "cpu.max":
            quota, period = (path / name).read_text().split()
        else:
            quota, period = (path / name).read_text(), (path / "cpu.cfs_period_us").read_text()
        return math.inf if quota == "max" or int(quota) <= 0 else int(quota) / int(period)
    except (OSError, ValueError):  # there is no such limit at this level
        return math.inf


def _groups(mount: Path, membership: Path) -> list[tuple[Path, str]]:
    """Folders of the process's control group and of those above it, with the name of the quota's file."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, inside = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "cpu", "cpu,cpuacct"):
            continue
        root, name = (mount / controllers, "cpu.cfs_quota_us") if controllers else (mount, "cpu.max")
        here = root / inside.lstrip("/")
        found += [(folder, name) for folder in (here, *here.parents) if folder.is_relative_to(root)]
    return found


class FreeProcessors:
    """The number of processors that are free for this process: idle, or used by the process itself.

    Calling it returns the number since the call before, at least 1 and at most `usable_processors`. It costs
    some microseconds; only the first call waits for a moment. Within a second, the same number is returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count, self._before = 0, (-math.inf, 0.0, 0.0)

    def __call__(self) -> int:
        with self._lock:
            if time.monotonic() - self._before[0] > 60:  # so long ago that it says nothing of now
                self._before = _moment()
                time.sleep(0.05)
            if not self._count or time.monotonic() - self._before[0] > 1:
                now = _moment()
                elapsed, idle, own = (b - a for a, b in zip(self._before, now, strict=True))
                self._before = now
                # the system counts in hundredths of a second: round up if nearly one more is free
                self._count = max(1, min(usable_processors(), int((idle + own) / elapsed + 0.35)))
            return self._count


free_processors = FreeProcessors()


def _moment() -> tuple[float, float, float]:
    """The time, and until then: idle time of the usable processors, and processor time of this process."""
    return time.monotonic(), _idle_time(), time.process_time()


def _idle_time() -> float:
    """Return the idle seconds of all usable processors together; all seconds if the system cannot tell."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        allowed = {f"cpu{i}" for i in os.sched_getaffinity(0)}
        fields = [line.split() for line in lines if line.split(" ", 1)[0] in allowed]
        ticks = sum(int(idle) + int(waiting) for _, _, _, _, idle, waiting, *_ in fields)
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError, IndexError):
        return time.monotonic() * usable_processors()
