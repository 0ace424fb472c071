"""The fastest native method at each size, and whether the native layer picks it.

    python benchmarks/crossover.py                          everything, about two minutes
    python benchmarks/crossover.py --kinds fast --sizes 16,32,48 --sigmas 0.1,1
    python benchmarks/crossover.py --kinds laplace

The kinds are the two accuracies of the Gaussian kernel, and the Laplace kernel.

Each line is for one number of documents n and one width sigma, in standard deviations of the scores. It shows
microseconds per query for every method, the fastest method, and the time of the native layer's own choice
("auto") divided by the fastest time. Queries are measured in batches, so that the cost of a Python call does
not hide the differences. "alone" is the native layer's choice if short queries are not processed together as
lists; all methods named before it take one query at a time, too. The constants of the choice are in
native/kernels/lists.cpp, `Limits` in native/kernels/kernels.cpp and `most_cells` in
native/kernels/cell_sums.hpp. The fastest method may not be accurate enough: the native
layer's choice takes accuracy into account, this table does not.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

import sinkprop
from sinkprop import _native

Kind = Literal["fast", "exact", "laplace"]

GAUSSIAN = ("direct", "banded", "cells", "fine cells", "sums", "alone")
METHODS: dict[Kind, tuple[str, ...]] = {
    "fast": GAUSSIAN,
    "exact": GAUSSIAN,
    "laplace": ("direct", "sums", "alone"),
}
SIZES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1000, 2000, 4000)
SIGMAS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ROWS = 4000  # documents per batch
TOLERANCE = 1.1


@dataclass(frozen=True)
class Cell:
    """Microseconds per query of each method, infinite if not applicable, and of the native layer's choice."""

    n: int
    sigma: float
    times: dict[str, float]
    auto: float

    @property
    def best(self) -> str:
        return min(self.times, key=self.times.__getitem__)

    @property
    def excess(self) -> float:
        """Time of the native layer's choice divided by that of the fastest method."""
        return self.auto / self.times[self.best]


def measure(n: int, sigma: float, kind: Kind, seconds: float, use: Callable[[str], None]) -> Cell:
    rng = np.random.default_rng(n)
    n_queries = max(1, ROWS // n)
    scores, qid = rng.normal(size=n * n_queries), np.repeat(np.arange(n_queries), n)
    labels = rng.integers(0, 5, n * n_queries).astype(np.float64)
    if kind == "laplace":
        relaxation = sinkprop.SmoothedIndicator(sigma, "laplace")
    else:
        relaxation = sinkprop.SmoothedIndicator(sigma, accuracy=kind)
    best = dict.fromkeys((*METHODS[kind], "auto"), math.inf)
    dropped: set[str] = set()
    # Rounds alternate, so that a slower machine affects all methods.
    for _ in range(3):
        for method in [m for m in best if m not in dropped]:
            use(method)
            until = time.perf_counter() + seconds / 3
            try:
                while True:
                    before = time.perf_counter()
                    sinkprop.expected_gain(scores, labels, qid, relaxation=relaxation, n_threads=1)
                    after = time.perf_counter()
                    best[method] = min(best[method], (after - before) * 1e6 / n_queries)
                    if after > until:
                        break
            except (ValueError, RuntimeError):
                dropped.add(method)
        # One round is enough for a method that is far from the fastest.
        dropped |= {m for m, t in best.items() if t > 5 * min(best.values())}
    auto = best.pop("auto")
    return Cell(n, sigma, best, auto)


def print_table(kind: Kind, sizes: list[int], sigmas: list[float], seconds: float) -> list[Cell]:
    use = native_switch()
    name = "Laplace" if kind == "laplace" else f"Gaussian, {kind}"
    print(f"{name}: microseconds per query, one thread, {_native.instruction_set()} kernels")
    heads = "".join(f"{name:>12}" for name in (*METHODS[kind], "auto"))
    print(f"{'n':>6}{'sigma/std':>11}{heads}  {'fastest':<11}{'auto/fastest':>13}")
    cells = []
    try:
        for n in sizes:
            for sigma in sigmas:
                cell = measure(n, sigma, kind, seconds, use)
                cells.append(cell)
                times = "".join(f"{text(t):>12}" for t in (*cell.times.values(), cell.auto))
                mark = "" if cell.excess <= TOLERANCE else "  slower"
                print(f"{n:>6}{sigma:>11g}{times}  {cell.best:<11}{cell.excess:>13.2f}{mark}", flush=True)
    finally:
        use("auto")
    good, worst = sum(c.excess <= TOLERANCE for c in cells), max(cells, key=lambda c: c.excess)
    print(
        f"auto is within 10 % of the fastest in {good} of {len(cells)}; at worst {worst.excess:.2f} times, "
        f"n = {worst.n}, sigma = {worst.sigma:g} (fastest: {worst.best})\n"
    )
    return cells


def text(microseconds: float) -> str:
    if math.isinf(microseconds):
        return "-"
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def native_switch() -> Callable[[str], None]:
    """The native layer's function `use_method`, which forces a method, or returns to "auto"."""
    use: Callable[[str], None] | None = getattr(_native, "use_method", None)
    if use is None:
        sys.exit(
            "crossover.py: this build of sinkprop has no _native.use_method; rebuild it from this source."
        )
    return use


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--kinds",
        choices=list(METHODS),
        nargs="+",
        default=list(METHODS),
        help="kinds to measure  [default: all]",
    )
    parser.add_argument(
        "--sizes",
        type=numbers(int),
        default=list(SIZES),
        metavar="N,N,...",
        help="numbers of documents per query",
    )
    parser.add_argument(
        "--sigmas",
        type=numbers(float),
        default=list(SIGMAS),
        metavar="S,S,...",
        help="widths, in standard deviations of the scores",
    )
    parser.add_argument("--seconds", type=float, default=0.03, help="time for each method of each line")
    options = parser.parse_args()
    native_switch()
    for kind in options.kinds:
        print_table(kind, options.sizes, options.sigmas, options.seconds)


def numbers(kind: Callable[[str], float]) -> Callable[[str], list[float]]:
    def parse(value: str) -> list[float]:
        parsed = [kind(part) for part in value.split(",")]
        if min(parsed) <= 0:
            raise argparse.ArgumentTypeError(f"{value!r} must hold numbers above 0")
        return parsed

    parse.__name__ = "list"
    return parse


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
