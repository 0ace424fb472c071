"""The size of a wheel, how long pip and the demo take, and its speed beside that of the installed package.

    python benchmarks/wheels.py dist/sinkprop-0.1.0-cp311-*_x86_64.whl

The wheel is installed in a new environment with nothing else on the path. Seconds are those of the clock and
of the processor; where other programs run, the second number is the one to go by. The last table has the
microseconds of the value and gradient of one query, the shortest of many, in turns: of the wheel, which zig
compiled, and of the installed package, which the compiler of this machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SIZES = (10, 100, 1000, 10_000)
KINDS = ("gaussian", "laplace")
ROUNDS = 5
TIMES = f"""
import json, time
import numpy as np
import sinkprop
random = np.random.default_rng(1)
found = {{}}
for n in {SIZES}:
    scores, labels, qid = random.normal(size=n), random.integers(0, 5, n), np.zeros(n)
    for kind in {KINDS}:
        seconds = []
        for _ in range(20_000 // n + 20):
            start = time.perf_counter()
            sinkprop.expected_gain(scores, labels, qid, relaxation=kind)
            seconds.append(time.perf_counter() - start)
        found[f"{{n}} {{kind}}"] = min(seconds)
print(json.dumps(found))
"""


def seconds_of(command: Sequence[str | Path], variables: dict[str, str], folder: Path) -> tuple[float, float]:
    """Seconds that a command takes, of the clock and of processors."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=variables, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def kernel_times(python: str | Path, folder: Path) -> dict[str, float]:
    """Seconds by size and relaxation."""
    done = subprocess.run(
        [python, "-I", "-c", TIMES],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = folder / "venv" / "bin" / "python"
        bare = {"PATH": str(python.parent), "HOME": name}
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install = [*pip, "--only-binary", ":all:", f"{wheel}[cli,plot]"]
        for label, command in (
            ("pip install", install),
            ("sinkprop demo", [python.parent / "sinkprop", "demo"]),
        ):
            clock, processor = seconds_of(command, bare, folder)
            print(f"{label}: {clock:.1f} s, {processor:.1f} s of processors")
        runs = [[kernel_times(which, folder) for which in (python, sys.executable)] for _ in range(ROUNDS)]
        print(f"{'documents':>18} {'wheel':>9} {'installed':>9} {'ratio':>6}")
        for key in runs[0][0]:
            ours, theirs = (min(run[i][key] for run in runs) for i in (0, 1))
            print(f"{key:>18} {ours * 1e6:9.1f} {theirs * 1e6:9.1f} {ours / theirs:6.2f}")


if __name__ == "__main__":
    main()
