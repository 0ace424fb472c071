"""The performance targets of `sinkprop bench`, such as ratios of times, and their measurement."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

import sinkprop
from sinkprop.cli.benchmark.machine import busy_elsewhere, processor_count
from sinkprop.cli.benchmark.methods import our_evaluation, torch_sinkprop
from sinkprop.cli.benchmark.records import (
    APPROX,
    ARGSORT,
    AUTOGRAD,
    GAIN,
    LAPLACE,
    NEURAL,
    OURS,
    SIGMA,
    Budget,
    Evaluation,
    Figure,
    Method,
    Query,
    one_line,
    random_query,
)
from sinkprop.cli.benchmark.timing import time_ratio
from sinkprop.objective.relaxations import PartitionedMeasure, SmoothedIndicator


class NotMeasuredError(Exception):
    """Raised if a performance target cannot be measured on this machine; the message gives the reason."""


@dataclass(frozen=True)
class Bench:
    """Methods and limits with which the performance targets are measured.

    methods  {name: method}.
    missing  {name of a method that is not installed or failed: reason}.
    budget   Limits of each measurement.
    """

    methods: Mapping[str, Method]
    missing: Mapping[str, str]
    budget: Budget

    def ratio(self, above: str, below: str, n: int, *, n_below: int | None = None) -> float:
        """Divide the time of the method `above` by that of the method `below`.

        `above` is timed on a query of n documents, and `below` on one of `n_below` documents (default n).
        Raises NotMeasuredError if one of the methods is not available.
        """
        for name in (above, below):
            if name not in self.methods or name in self.missing:
                raise NotMeasuredError(self.missing.get(name, _WITHOUT_PEERS))
        first, second = random_query(n), random_query(n if n_below is None else n_below)
        return time_ratio(self.methods[above].start(first), self.methods[below].start(second), self.budget)


@dataclass(frozen=True)
class _Goal:
    """A performance target and the function that measures it."""

    name: str
    asked: float
    direction: Literal["at least", "at most"]
    unit: str
    measure: Callable[[Bench], float]
    note: str = ""


_MEMORY_NOTE = "growth of a new process, including the query's data"


_WITHOUT_PEERS = "skipped by --no-peers"


_SHORT_SAMPLE = 300


_ROUNDS_OF_IMPORT = 5


def all_goals(million: bool) -> tuple[_Goal, ...]:
    """Return the performance targets. Those for queries of 10^6 documents are included only if `million`."""
    n = 1000
    goals = [
        _Goal(
            "Gaussian vs torch autograd, n = 1000",
            500,
            "at least",
            "x",
            lambda b: b.ratio(AUTOGRAD, OURS, n),
        ),
        _Goal(
            "Gaussian vs allRank NeuralNDCG, n = 1000",
            2000,
            "at least",
            "x",
            lambda b: b.ratio(NEURAL, OURS, n),
        ),
        _Goal(
            "Gaussian vs allRank ApproxNDCG, n = 1000",
            50,
            "at least",
            "x",
            lambda b: b.ratio(APPROX, OURS, n),
        ),
        _Goal(
            "Gaussian / numpy.argsort, n = 1000",
            10,
            "at most",
            "x",
            lambda b: b.ratio(OURS, ARGSORT, n),
        ),
        _Goal(
            "Laplace / numpy.argsort, n = 1000",
            4,
            "at most",
            "x",
            lambda b: b.ratio(LAPLACE, ARGSORT, n),
        ),
    ]
    if million:
        goals += [
            _Goal(
                "Gaussian, n = 10^6 / n = 10^4",
                130,
                "at most",
                "x",
                lambda b: b.ratio(OURS, OURS, 10**6, n_below=10**4),
            ),
            _Goal("Peak memory, n = 10^6", 1, "at most", "GB", _memory, _MEMORY_NOTE),
        ]
    return (
        *goals,
        _Goal("10,000 queries of 120, 2 threads vs 1", 1.7, "at least", "x", _two_threads),
        *(
            _Goal(
                f"{family} vs torch autograd, n = 500",
                8,
                "at least",
                "x",
                _partitioned(PartitionedMeasure(family)),
            )
            for family in ("logit-logistic", "probit")
        ),
        _Goal("SmoothRank vs torch autograd, n = 1000", 100, "at least", "x", _smoothrank),
        _Goal(
            "10,000 queries of 10 vs a torch loop",
            300,
            "at least",
            "x",
            _short_queries,
            f"the loop is timed on {_SHORT_SAMPLE} queries and its time scaled up",
        ),
        _Goal("Packages imported beyond NumPy", 0, "at most", "", _foreign_packages),
        _Goal("import sinkprop, beyond NumPy's time", 0.15, "at most", "s", _import_seconds),
    )


def take_figure(goal: _Goal, bench: Bench) -> Figure:
    """Measure a performance target. If that fails, the note of the returned figure gives the reason."""
    busy = busy_elsewhere()
    try:
        measured, note = goal.measure(bench), goal.note
    except NotMeasuredError as reason:
        measured, note = None, f"not measured; {reason}"
    except Exception as error:  # another package may raise any error; the note reports it
        measured, note = None, f"failed: {one_line(error)}"
    return Figure(goal.name, measured, goal.asked, goal.direction, goal.unit, note, busy())


def _batch(n_queries: int, n: int, n_threads: int) -> Evaluation:
    rows, qid = random_query(n_queries * n), np.repeat(np.arange(n_queries), n)
    relaxation = SmoothedIndicator(SIGMA)
    return lambda: sinkprop.expected_gain(
        rows.scores, rows.labels, qid, gain=GAIN, relaxation=relaxation, n_threads=n_threads
    )


def _two_threads(bench: Bench) -> float:
    if processor_count() < 2:
        raise NotMeasuredError("two processors are needed")
    # This target is measured in more rounds than others, since another process is likely to occupy the second
    # processor for some of the time.
    return time_ratio(_batch(10_000, 120, 1), _batch(10_000, 120, 2), bench.budget, rounds=4)


def _partitioned(relaxation: PartitionedMeasure) -> Callable[[Bench], float]:
    def ratio(bench: Bench) -> float:
        _require_torch(bench)
        query = random_query(500)
        theta = np.column_stack([query.scores, 0.3 * random_query(500, seed=1).scores])
        ours = our_evaluation(relaxation)(Query(theta, query.labels))
        return time_ratio(torch_sinkprop(relaxation, theta, query.labels), ours, bench.budget)

    return ratio


def _smoothrank(bench: Bench) -> float:
    _require_torch(bench)
    query, relaxation, half = random_query(1000), SmoothedIndicator(SIGMA), {"n_iter": 0.5, "epsilon": 0.0}
    dense = torch_sinkprop(relaxation, query.scores, query.labels, **half)
    return time_ratio(dense, our_evaluation(relaxation, **half)(query), bench.budget)


def _short_queries(bench: Bench) -> float:
    _require_torch(bench)
    relaxation = SmoothedIndicator(SIGMA)
    sample = [random_query(10, seed) for seed in range(_SHORT_SAMPLE)]
    losses = [torch_sinkprop(relaxation, q.scores, q.labels) for q in sample]

    def loop() -> None:
        for loss in losses:
            loss()

    return time_ratio(loop, _batch(10_000, 10, 1), bench.budget) * 10_000 / _SHORT_SAMPLE


def _require_torch(bench: Bench) -> None:
    if AUTOGRAD not in bench.methods or AUTOGRAD in bench.missing:
        raise NotMeasuredError(bench.missing.get(AUTOGRAD, _WITHOUT_PEERS))


def _memory(bench: Bench) -> float:
    code = "from sinkprop.cli.benchmark.figures import peak_growth; print(peak_growth(10**6))"
    return float(_in_fresh_python(code)) / 1e9


def peak_growth(n: int) -> int:
    """Create and evaluate a query of n documents; return by how many bytes this raises the peak memory."""
    before = peak_memory()
    our_evaluation(SmoothedIndicator(SIGMA))(random_query(n))()
    return peak_memory() - before


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes.

    It is read from /proc if that exists, since the peak of getrusage may be the parent process's on Linux.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(x.split()[1]) * 1024 for x in status.read_text().splitlines() if "VmHWM" in x)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


_IMPORT = """
import sys, time, numpy
before, start = set(sys.modules), time.perf_counter()
import sinkprop
seconds = time.perf_counter() - start
new = {m.partition(".")[0] for m in set(sys.modules) - before if getattr(sys.modules[m], "__spec__", None)}
print(seconds, *sorted(new - {"numpy", "sinkprop"} - set(sys.stdlib_module_names)))
"""


def _import_seconds(bench: Bench) -> float:
    return statistics.median(float(_in_fresh_python(_IMPORT).split()[0]) for _ in range(_ROUNDS_OF_IMPORT))


def _foreign_packages(bench: Bench) -> float:
    return len(_in_fresh_python(_IMPORT).split()[1:])


def _in_fresh_python(code: str) -> str:
    """Run code in a new Python interpreter and return what it prints to stdout.

    The interpreter does not import modules from the working directory. Raises NotMeasuredError if it fails.
    """
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise NotMeasuredError((run.stderr.strip().splitlines() or ["the process ended early"])[-1])
    return run.stdout
