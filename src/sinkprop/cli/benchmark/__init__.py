"""The measurements of `sinkprop bench`: times of the objective and its gradient, in several packages.

Every time is the shortest of several repetitions. It is measured on one thread, except for the performance
target that compares two threads with one. Both times of a ratio are measured in the same run, because
absolute times mean little on a shared machine. This package prints nothing, and imports other packages only
to measure them. If a method is not installed, fails, or would take too long, the report gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import sinkprop
from sinkprop import reference
from sinkprop.cli.benchmark.figures import Bench, all_goals, take_figure
from sinkprop.cli.benchmark.machine import busy_elsewhere, this_machine
from sinkprop.cli.benchmark.methods import available_methods, one_thread
from sinkprop.cli.benchmark.records import (
    EPSILON,
    FULL,
    GAIN,
    N_ITER,
    OURS,
    QUICK,
    SIGMA,
    Absence,
    Accuracy,
    Budget,
    Figure,
    Machine,
    Method,
    Query,
    Report,
    Timing,
    as_record,
    random_query,
)
from sinkprop.cli.benchmark.timing import best_time, second_look, time_method
from sinkprop.common.types import Floats
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = [
    "FULL",
    "OURS",
    "QUICK",
    "Absence",
    "Accuracy",
    "Budget",
    "Figure",
    "Machine",
    "Method",
    "Query",
    "Report",
    "Timing",
    "as_record",
    "available_methods",
    "best_time",
    "measure",
    "random_query",
]


DENSE_UP_TO = 2000  # largest query, in documents, whose gradient is compared with the dense reference


Notify = Callable[[int, int, str], None]  # arguments: steps done, total steps, name of the next step


def measure(
    sizes: tuple[int, ...],
    *,
    budget: Budget = FULL,
    peers: bool = True,
    figures: bool = True,
    million: bool = True,
    notify: Notify = lambda done, total, what: None,
) -> Report:
    """Measure times and accuracy for queries of the given sizes, and return the report.

    sizes    Numbers of documents per query.
    budget   Limits of each measurement.
    peers    Whether to measure other packages too. NumPy is always measured.
    figures  Whether to measure the performance targets, such as the speed relative to torch.
    million  Whether to include the performance targets for queries of 10^6 documents.
    notify   Function notify(done, total, what) that is called before each step, with the number of steps
             done, the total number of steps and the name of the next step.
    """
    sizes = tuple(sorted(set(sizes)))
    goals = all_goals(million) if figures else ()
    notify(0, 1, "loading packages" if peers else "starting")
    machine = this_machine(peers)
    methods, absent, failed = available_methods(peers)
    busy = busy_elsewhere()
    total = len(sizes) * (len(methods) + 1) + len(goals)
    done = 0

    def step(what: str) -> None:
        nonlocal done
        notify(done, total, what)
        done += 1

    timings: list[Timing] = []
    accuracy, taken = [], []
    with one_thread():
        for n in sizes:
            here = []
            for method in methods:
                step(f"{method.name}, n = {n:,}")
                here.append(time_method(method, n, [t for t in timings if t.method == method.name], budget))
            timings += [second_look(m, t, budget) for m, t in zip(methods, here, strict=True)]
        wrong = {t.method: t.reason for t in reversed(timings) if t.reason.startswith("failed")}
        failed += tuple(Absence(name, reason) for name, reason in wrong.items())
        for n in sizes:
            step(f"accuracy, n = {n:,}")
            accuracy.append(_accuracy(n, budget))
        bench = Bench({m.name: m for m in methods}, {a.name: a.reason for a in absent + failed}, budget)
        for goal in goals:
            step(goal.name)
            taken.append(take_figure(goal, bench))
    notify(total, total, "done")
    return Report(
        machine,
        tuple(m.name for m in methods),
        sizes,
        tuple(timings),
        tuple(accuracy),
        tuple(taken),
        absent,
        failed,
        busy(),
    )


def _accuracy(n: int, budget: Budget) -> Accuracy:
    query = random_query(n)
    fast, exact = SmoothedIndicator(SIGMA), SmoothedIndicator(SIGMA, accuracy="exact")
    g_fast, g_exact = (
        sinkprop.expected_gain(
            query.scores, query.labels, gain=GAIN, relaxation=r, n_iter=N_ITER, epsilon=EPSILON
        ).gradient
        for r in (fast, exact)
    )
    dense_seconds = 4e-7 * n * n  # rough estimate of the time of the dense reference
    if n > DENSE_UP_TO or dense_seconds > budget.patience:
        return Accuracy(n, _difference(g_fast, g_exact), None, None)
    _, dense = reference.expected_gain(
        query.scores, query.labels, GAIN, exact, n_iter=N_ITER, epsilon=EPSILON
    )
    return Accuracy(n, _difference(g_fast, g_exact), _difference(g_fast, dense), _difference(g_exact, dense))


def _difference(a: Floats, b: Floats) -> float:
    scale = float(np.abs(b).max())
    return float(np.abs(a - b).max()) / scale if scale > 0 else 0.0
