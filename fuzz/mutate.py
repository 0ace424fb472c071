"""Mutated files of every format that sinkprop reads: is each refused in one line, or read as it is?

    python fuzz/mutate.py                                       10,000 files of all formats
    python fuzz/mutate.py --count 500 --formats SinkPropRanker comparison
    python fuzz/mutate.py --formats stored --only 17            the 17th file alone, with its traceback

A valid file of each format is mutated: bits, bytes, digits and numbers change, bytes are inserted, removed
and repeated, the file is cut off, JSON values become others. In half of the cases the checksum is redone, as
a stranger would. A child process with bounded memory reads the file and uses what it read. The outcome is
one of

    refused          an error of the documented class, in one line
    same             the same results as those of the valid file
    different        other results: the checksum was redone, or there is none

or a violation, for which the exit status is 1 and the file is kept:

    crash            the process died
    hang             the process did not answer in time
    wrong            other results although the checksum was not redone
    undocumented     an error of another class, or of several lines
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from formats import FORMATS, Content, read_content, write_content
from mutations import mutated

VIOLATIONS = ("crash", "hang", "wrong", "undocumented")
_MEMORY = 2 << 30  # bytes that a child may use in addition to what it has after its first file
# The class of an error that means that the file was refused in use, after it was read
_IN_USE = "ValueError"


@dataclass(frozen=True)
class Case:
    """One mutated file: the index of its random numbers, its path, and whether its checksums were redone."""

    format: str
    index: int
    path: Path
    redone: bool
    what: str

    def __str__(self) -> str:
        return f"{self.format} {self.index} ({self.what}{', checksum redone' if self.redone else ''})"


def digest_of(result: Any) -> str:
    """Hash of the results of a file's use."""
    return hashlib.sha256(pickle.dumps(result, protocol=4)).hexdigest()


def outcome(name: str, path: Path) -> tuple[str, str]:
    """Use a file; return ("read", digest of the results) or ("refused" or "undocumented", the error)."""
    format = FORMATS[name]
    try:
        return "read", digest_of(format.use(path))
    except BaseException as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        line = f"{type(error).__name__}: {error}"
        fine = names & {*format.refusal, _IN_USE} and "\n" not in str(error)
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (
            ("refused", line)
            if fine
            else ("undocumented", f"{line} [{Path(where.filename).name}:{where.lineno}]")
        )


def _child(connection: Connection, use: Callable[[str, Path], tuple[str, str]]) -> None:
    warnings.simplefilter("ignore")
    os.environ.update(OMP_NUM_THREADS="1", SINKPROP_NUM_THREADS="1")
    limited = False
    while (task := connection.recv()) is not None:
        connection.send(use(*task))
        if not limited:  # the first file is a valid one
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            limited = True


class Child:
    """A process that uses one file after the other."""

    def __init__(self, name: str, valid: Path, use: Callable[[str, Path], tuple[str, str]]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_child, args=(other, use), daemon=True)
        self.process.start()
        other.close()
        self.case: Case | None = None
        self.since = monotonic()
        self.connection.send((name, valid))
        self.valid = self.connection.recv()

    def start(self, case: Case) -> None:
        self.case, self.since = case, monotonic()
        self.connection.send((case.format, case.path))

    def result(self) -> tuple[str, str]:
        try:
            found: tuple[str, str] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            return "crash", signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Run:
    """Mutated files of one format, used by several children at a time.

    use  Function use(name, path) that uses a file and returns what `outcome` returns.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        seed: int,
        seconds: float,
        jobs: int,
        use: Callable[[str, Path], tuple[str, str]] = outcome,
    ) -> None:
        self.name, self.folder, self.seed, self.seconds, self.jobs = name, folder, seed, seconds, jobs
        self.use = use
        self.valid = folder / f"{name}.valid"
        FORMATS[name].make(self.valid)
        self.content = read_content(self.valid)
        self.children: list[Child] = []

    def _new_child(self) -> Child:
        # a copy, because a fit that resumes removes its checkpoint
        copy = self.folder / f"{self.name}.copy"
        write_content(copy, self.content)
        child = Child(self.name, copy, self.use)
        self._remove(copy)
        if child.valid[0] != "read":
            raise RuntimeError(f"the valid file of {self.name} cannot be used: {child.valid[1]}")
        return child

    def case(self, index: int) -> Case:
        """Write the mutated file of an index, which depends on the seed and the index alone."""
        rng = random.Random(f"{self.seed} {self.name} {index}")
        content, what = mutated(self.content, rng)
        redo = FORMATS[self.name].redo
        redone = redo is not None and index % 2 == 1
        if redone and redo is not None:
            content = redo(content)
        path = self.folder / f"{self.name}-{index}"
        write_content(path, content)
        return Case(self.name, index, path, redone, what)

    def classified(self, case: Case, kind: str, text: str, valid: str) -> tuple[str, str]:
        if kind != "read":
            return kind, text
        if text == valid:
            return "same", ""
        covered = FORMATS[self.name].redo is not None
        return (
            ("wrong", "other results under an intact checksum")
            if covered and not case.redone
            else ("different", "")
        )

    def outcomes(self, indices: range) -> Any:
        """Yield (case, kind, text) for each index."""
        waiting = iter(indices)
        self.children = [self._new_child() for _ in range(min(self.jobs, len(indices)))]
        idle = list(self.children)
        more = True
        while more or len(idle) < len(self.children):
            while idle and more:
                index = next(waiting, None)
                more = index is not None
                if index is not None:
                    idle.pop().start(self.case(index))
            busy = [child for child in self.children if child not in idle]
            ready = wait([child.connection for child in busy], timeout=1)
            for child in busy:
                if child.connection in ready:
                    kind, text = child.result()
                elif monotonic() - child.since > self.seconds:
                    kind, text = "hang", f"no answer in {self.seconds:g} s"
                else:
                    continue
                case = child.case
                if case is None:
                    raise AssertionError("a busy child has a case")
                yield (case, *self.classified(case, kind, text, child.valid[1]))
                self._remove(case.path)
                self._remove(case.path.with_suffix(".again"))
                if kind in ("crash", "hang"):
                    child.end()
                    self.children.remove(child)
                    self.children.append(self._new_child())
                    idle.append(self.children[-1])
                else:
                    idle.append(child)
        for child in self.children:
            child.end()

    @staticmethod
    def _remove(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def run(
    names: list[str], count: int, seed: int, seconds: float, jobs: int, keep: Path | None
) -> Counter[tuple[str, str]]:
    """Use `count` mutated files, divided among the formats; print each violation and a table."""
    counts: Counter[tuple[str, str]] = Counter()
    print(f"{'format':22}" + "".join(f"{kind:>13}" for kind in ("refused", "same", "different", *VIOLATIONS)))
    for place, name in enumerate(names):
        share = range(count * place // len(names), count * (place + 1) // len(names))
        with tempfile.TemporaryDirectory() as folder:
            for case, kind, text in Run(name, Path(folder), seed, seconds, jobs).outcomes(range(len(share))):
                counts[name, kind] += 1
                if kind in VIOLATIONS:
                    print(f"{kind}: {case}: {text}", flush=True)
                    if keep is not None:
                        write_content(keep / case.path.name, _content_of(case))
        row = [counts[name, kind] for kind in ("refused", "same", "different", *VIOLATIONS)]
        print(f"{name:22}" + "".join(f"{n:>13,}" for n in row), flush=True)
    return counts


def _content_of(case: Case) -> Content:
    return read_content(case.path) if case.path.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="files in all (default 10,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--formats", nargs="+", choices=sorted(FORMATS), default=list(FORMATS), metavar="NAME"
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="time after which a file hangs (default 60)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="child processes")
    parser.add_argument("--keep", type=Path, help="folder for the files that were violations")
    parser.add_argument("--only", type=int, help="use this file of one format in this process")
    arguments = parser.parse_args()
    if arguments.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            one = Run(arguments.formats[0], Path(folder), arguments.seed, arguments.seconds, 1)
            print(case := one.case(arguments.only))
            print(FORMATS[one.name].use(case.path))
        return 0
    counts = run(
        arguments.formats, arguments.count, arguments.seed, arguments.seconds, arguments.jobs, arguments.keep
    )
    bad = sum(n for (_, kind), n in counts.items() if kind in VIOLATIONS)
    print(f"{sum(counts.values()):,} mutated files, {bad:,} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
