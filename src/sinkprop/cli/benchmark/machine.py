"""The description of the machine that the times were measured on."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sinkprop
from sinkprop import _native
from sinkprop.cli.benchmark.records import Machine


def this_machine(peers: bool) -> Machine:
    """Describe this machine: processor, system, instruction set of the native code, versions of packages."""
    packages = ("numpy", *(("torch", "allRank", "torchsort") if peers else ()))
    versions = {"sinkprop": sinkprop.__version__, "python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    system = f"{platform.system()} {platform.machine()}"
    return Machine(_cpu(), processor_count(), _native.instruction_set(), system, versions)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    if sys.platform == "darwin":
        ask = ["sysctl", "-n", "machdep.cpu.brand_string"]
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def processor_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_elsewhere() -> Callable[[], float | None]:
    """Return a function that returns how many processors other processes use, or None if that is unknown.

    The number is an average from the call of `busy_elsewhere` to the call of the returned function.
    """

    def others() -> float:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
        ticks = user + nice + system + irq + softirq + steal
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])

    stat = Path("/proc/stat")
    if not stat.exists():
        return lambda: None
    start, used = time.perf_counter(), others()
    return lambda: max(0.0, (others() - used) / max(time.perf_counter() - start, 0.05))
