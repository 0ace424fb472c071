"""Batches of short lists on one thread: the value and gradient next to `numpy.argsort` of the same rows.

    python benchmarks/short_lists.py               about half a minute
    python benchmarks/short_lists.py --sizes 5,10

Each batch has 200,000 documents in lists of one size, with labels from 0 to 4 and sigma = 0.3. The table has
nanoseconds per document, the least of several repetitions that alternate, and the ratio to argsort.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import sinkprop
from sinkprop import _native

DOCUMENTS = 200_000
KERNELS = ("laplace", "gaussian")


def methods(n: int) -> dict[str, Callable[[], object]]:
    """Functions to time, on lists of n documents."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(DOCUMENTS // n, n))
    labels = rng.integers(0, 5, rows.size).astype(np.float64)
    qid = np.repeat(np.arange(len(rows)), n)

    def gain(kernel: str) -> Callable[[], object]:
        relaxation = sinkprop.SmoothedIndicator(0.3, kernel=kernel)
        return lambda: sinkprop.expected_gain(rows.ravel(), labels, qid, relaxation=relaxation, n_threads=1)

    return {"argsort": lambda: np.argsort(rows, axis=1), **{kernel: gain(kernel) for kernel in KERNELS}}


def measure(n: int, repeats: int) -> dict[str, float]:
    """Nanoseconds per document of each method."""
    best: dict[str, float] = {}
    timed = methods(n)
    for _ in range(repeats):
        for name, call in timed.items():
            before = time.perf_counter()
            call()
            best[name] = min(best.get(name, np.inf), time.perf_counter() - before)
    return {name: seconds * 1e9 / (DOCUMENTS // n * n) for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sizes", default="5,10,20,30,60,120", help="documents per list")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(f"{_native.instruction_set()} kernels, one thread\n")
    print("| documents per list | argsort, ns per document | Laplace | ratio | Gaussian | ratio |")
    print("|--:|--:|--:|--:|--:|--:|")
    for n in map(int, given.sizes.split(",")):
        found = measure(n, given.repeats)
        cells = [f"{found[kernel]:.0f} | {found[kernel] / found['argsort']:.1f}" for kernel in KERNELS]
        print(f"| {n} | {found['argsort']:.1f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
