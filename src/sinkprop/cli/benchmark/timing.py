"""Timing: the best of several runs, and ratios of times measured together."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from sinkprop.cli.benchmark.records import ONCE, Budget, Evaluation, Method, Timing, one_line, random_query

MEMORY = 2e9  # methods that need more bytes than this are not measured


def best_time(evaluate: Evaluation, budget: Budget) -> float:
    """Repeat an evaluation and return the shortest time in seconds.

    There are at most `budget.most` repetitions. After the first and the second one, the function stops if
    more than one second has passed in all. After each later one, it stops if more than `budget.seconds` have
    passed in all.
    """
    best, start = math.inf, time.perf_counter()
    for done in range(1, budget.most + 1):
        before = time.perf_counter()
        evaluate()
        after = time.perf_counter()
        best = min(best, after - before)
        if after - start > (budget.seconds if done >= 3 else 1.0):
            break
    return best


def time_ratio(above: Evaluation, below: Evaluation, budget: Budget, rounds: int = 3) -> float:
    """Return the shortest time of `above`, divided by the shortest time of `below`.

    The two evaluations are timed in turn, `rounds` times, so that other load on the machine affects both.
    """
    above()  # not timed: first evaluations are slow (caches, memory pages, lazy imports)
    below()
    times = [(best_time(above, budget), best_time(below, budget)) for _ in range(rounds)]
    return min(t for t, _ in times) / min(t for _, t in times)


def time_method(method: Method, n: int, before: list[Timing], budget: Budget) -> Timing:
    """Time a method on n documents, unless it would need too much memory or time.

    The time that it would need is estimated from `before`, its timings for smaller queries. If the method is
    not timed, the `reason` of the returned record says why.
    """
    if method.pair_bytes * n * n > MEMORY:
        return Timing(method.name, n, None, f"over {MEMORY / 1e9:.0f} GB of memory")
    known = [(t.n, t.seconds) for t in before if t.seconds is not None]
    if before and not known:
        return Timing(method.name, n, None, "not tried")
    try:
        if not _within(method, n, known, budget.patience):
            return Timing(method.name, n, None, f"over {budget.patience:g} s")
        return Timing(method.name, n, _time_at(method, n, budget))
    except Exception as error:  # another package may raise any error; it is reported
        return Timing(method.name, n, None, f"failed at n = {n}: {one_line(error)}")


def second_look(method: Method, timing: Timing, budget: Budget) -> Timing:
    """Time a method again and keep the shorter time, since another process may have slowed the first run.

    A method is not timed again if it has no time, or if its time is above 0.2 seconds and above
    `budget.seconds`.
    """
    if timing.seconds is None or timing.seconds > max(budget.seconds, 0.2):
        return timing
    return replace(timing, seconds=min(timing.seconds, _time_at(method, timing.n, budget)))


def _within(method: Method, n: int, known: list[tuple[int, float]], patience: float) -> bool:
    """Whether evaluating n documents takes at most `patience` seconds, estimated from smaller queries.

    `known` lists (number of documents, seconds) of smaller queries; the last one gives the first estimate.
    The evaluation of a small query is mostly overhead, so this estimate may be too high. While it exceeds
    `patience`, a larger query, of at most n/2 documents, is timed for a better estimate. The result is False
    if no larger query is left, or if the larger query is itself estimated to exceed `patience`.
    """
    m, seconds = known[-1] if known else (50, 0.0)
    if not known and n > m and method.order > 1:
        seconds = _time_at(method, m, ONCE)
    while m < n and seconds * (n / m) ** method.order > patience:
        m, last = min(4 * m, n // 2), m
        if m <= last or seconds * (m / last) ** method.order > patience:
            return False
        seconds = _time_at(method, m, ONCE)
    return True


def _time_at(method: Method, n: int, budget: Budget) -> float:
    evaluate = method.start(random_query(n))
    evaluate()  # not timed: the first evaluation is slow
    return best_time(evaluate, budget)
