"""Time of a fit of boosted trees on a busy machine: on one thread, on all processors, and by default.

    python benchmarks/busy_threads.py --busy 6

Starts processes that keep the processors busy, and fits the same trees in turn with each number of threads.
The default is the number of processors that are free, before each tree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time

from sinkprop.common.processors import usable_processors
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker


def _spin() -> None:
    while True:
        pass


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--busy", type=int, default=3 * usable_processors(), help="number of busy processes")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    queries = make_ranking(given.queries, labels="graded")
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(given.busy)]
    for process in others:
        process.start()
    settings = {"one thread": 1, "all processors": max(2, usable_processors()), "default": None}
    seconds: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(given.repeats):
        for name, n_threads in settings.items():
            start = time.perf_counter()
            BoostedRanker(n_estimators=given.trees, n_threads=n_threads, verbose=False).fit(queries)
            seconds[name].append(time.perf_counter() - start)
    for process in others:
        process.kill()
    print(f"{len(queries)} documents, {given.trees} trees, {given.busy} busy processes")
    for name, found in seconds.items():
        print(f"{name:15s} {statistics.median(found):7.2f} s (median of {given.repeats})")


if __name__ == "__main__":
    main()
