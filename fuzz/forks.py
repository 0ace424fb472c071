"""The fork matrix: does a forked child hang in what a server does after it has forked?

    python fuzz/forks.py                                 all rankers, all pairs
    python fuzz/forks.py --rankers BoostedRanker --parent predict --child load

In a new process, a ranker is fitted, scores, is saved, loaded, or pickled; then the process forks, and the
child does one of these. Each pair of actions runs once by os.fork and once by multiprocessing's fork. A child
that does not end in time is a hang. The exit status is 1 if any child hangs, dies, or finds another result
than the parent has.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from formats import RANKERS, fitted, queries

WAYS = ("os.fork", "multiprocessing")
# So many documents that torch starts threads in a forward pass
_REPEAT = {"NeuralRanker": 1000}


def actions(name: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the actions on a ranker that was saved to the folder; each returns scores."""
    saved, pickled = folder / "saved", folder / "pickled"

    def loaded() -> Any:
        from sinkprop import load_model

        return load_model(saved)

    def unpickled() -> Any:
        return pickle.loads(pickled.read_bytes())

    def scores(ranker: Any) -> Any:
        # so many rows that LightGBM and XGBoost start threads, which a forked child does not have
        return ranker.predict(np.tile(queries().X, (1000, 1)))

    def save() -> Any:
        ranker = unpickled()
        ranker.save(folder / f"saved-{os.getpid()}")
        return scores(ranker)

    return {
        "fit": lambda: scores(fitted(name, _REPEAT.get(name, 1))),
        "predict": lambda: scores(unpickled()),
        "save": save,
        "load": lambda: scores(loaded()),
        "pickle": lambda: scores(pickle.loads(pickle.dumps(unpickled()))),
    }


ACTIONS = ("fit", "predict", "save", "load", "pickle")


def prepare(name: str, folder: Path) -> None:
    """Write a fitted ranker to the folder, as a model file and as a pickle."""
    ranker = fitted(name, _REPEAT.get(name, 1))
    ranker.save(folder / "saved")
    (folder / "pickled").write_bytes(pickle.dumps(ranker))


def _quietly(action: Callable[[], Any], expected: bytes) -> int:
    """Run an action in a forked child: 0 if the scores are as expected, 3 if not, 4 after an error."""
    try:
        return 0 if action().tobytes() == expected else 3
    except BaseException:
        traceback.print_exc()
        return 4


def in_child(action: Callable[[], Any], way: str, expected: bytes, seconds: float) -> str:
    """Fork this process and run an action in the child; return "fine" or the child's fault."""
    if way == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(
            target=lambda: os._exit(_quietly(action, expected))
        )
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            return "hang"
        return _fault(process.exitcode or 0)
    pid = os.fork()
    if pid == 0:
        os._exit(_quietly(action, expected))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return _fault(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hang"


def _fault(code: int) -> str:
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return {0: "fine", 3: "other scores", 4: "error"}.get(code, f"exit status {code}")


def row(name: str, parent: str, pairs: list[str], folder: Path, seconds: float) -> None:
    """Do an action in this process, then each pair "child way" in a forked child; print the outcomes."""
    faulthandler.enable()
    own = actions(name, folder)
    expected = own[parent]().tobytes()
    for pair in pairs:
        child, way = pair.split()
        print(f"{pair} {in_child(own[child], way, expected, seconds)}", flush=True)


def run(names: list[str], parents: list[str], children: list[str], ways: list[str], seconds: float) -> int:
    """Run all pairs, with a new process for each action of a parent; return the number of faults."""
    count = faults = 0
    pairs = [f"{child} {way}" for child in children for way in ways]
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, __file__, "--prepare", name, folder], check=True)
            for parent in parents:
                command = [sys.executable, __file__, "--row", name, parent, folder, str(seconds), *pairs]
                done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
                found = dict.fromkeys(pairs, "the parent died")
                for line in done.stdout.splitlines():
                    child, way, outcome = line.split(maxsplit=2)
                    found[f"{child} {way}"] = outcome
                for pair, outcome in found.items():
                    count += 1
                    if outcome != "fine":
                        faults += 1
                        child, way = pair.split()
                        print(f"{name}: {parent}, then {way}, then {child}: {outcome}", flush=True)
        print(f"{name}: {len(parents) * len(pairs)} pairs", flush=True)
    print(f"{count} pairs, {faults} faults")
    return faults


def main() -> int:
    warnings.simplefilter("ignore")  # a fork of a process with threads, which is what is tested
    if sys.argv[1:2] == ["--prepare"]:
        prepare(sys.argv[2], Path(sys.argv[3]))
        return 0
    if sys.argv[1:2] == ["--row"]:
        name, parent, folder, seconds, *pairs = sys.argv[2:]
        row(name, parent, pairs, Path(folder), float(seconds))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rankers", nargs="+", choices=RANKERS, default=list(RANKERS), metavar="NAME")
    parser.add_argument("--parent", nargs="+", choices=ACTIONS, default=list(ACTIONS))
    parser.add_argument("--child", nargs="+", choices=ACTIONS, default=list(ACTIONS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--seconds", type=float, default=30, help="time after which a child hangs (default 30)"
    )
    given = parser.parse_args()
    return 1 if run(given.rankers, given.parent, given.child, given.ways, given.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
