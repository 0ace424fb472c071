"""Times of `sinkprop.jax`: value and gradient in a compiled program, next to the call of NumPy.

    python benchmarks/jax_ffi.py                  both kernels, up to 100,000 documents; about two minutes
    python benchmarks/jax_ffi.py --json FILE      also write everything as JSON

One thread, float64, labels from 0 to 4, NDCG@10. Scores and labels are arguments of the compiled program. A
time of a round is the shortest of several calls, each with its wait for the result; the methods take turns,
round by round. A time of the table is the median over the rounds, a ratio the median of the rounds' ratios to
NumPy's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SINKPROP_NUM_THREADS", "1")

import jax
import numpy as np

import sinkprop
from sinkprop import SmoothedIndicator
from sinkprop.cli.benchmark.machine import this_machine
from sinkprop.jax import expected_gain

ASKED_AT, ASKED = 1000, 1.3  # documents, and the largest ratio to NumPy's time
GAIN = "ndcg@10"


def shortest(call: Callable[[], Any], seconds: float) -> float:
    """Return the shortest time of calls for at least `seconds` seconds, in microseconds."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e6 * min(times)


def methods(n: int, relaxation: SmoothedIndicator) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=n), rng.integers(0, 5, size=n).astype(float)
    on_device = jax.device_put((x, y))

    def compiled(backend: str) -> Callable[[], Any]:
        def value(x: Any, y: Any) -> Any:
            return expected_gain(x, y, gain=GAIN, relaxation=relaxation, backend=backend)

        program = jax.jit(jax.value_and_grad(value))
        return lambda: jax.block_until_ready(program(*on_device))

    def by_numpy() -> Any:
        return sinkprop.expected_gain(x, y, gain=GAIN, relaxation=relaxation, n_threads=1)

    found = {"NumPy": by_numpy, "native": compiled("native"), "jax": compiled("jax")}
    want = by_numpy()
    for name, call in list(found.items())[1:]:  # also compiles
        value, gradient = call()
        tolerance = 1e-12 if name == "native" else 1e-6
        assert abs(value - want.value) < tolerance
        assert np.abs(gradient - want.gradient).max() < tolerance
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="10,100,1000,10000,100000", help="numbers of documents")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    print(f"JAX {jax.__version__}, sinkprop {sinkprop.__version__}; microseconds")
    print(f"{'kernel':10}{'documents':>10}{'NumPy':>10}{'native':>10}{'ratio':>7}{'jax':>12}{'ratio':>8}")
    for kernel in ("gaussian", "laplace"):
        for n in map(int, options.sizes.split(",")):
            calls = methods(n, SmoothedIndicator(kernel=kernel))
            rounds = [
                {name: shortest(call, 0.02) for name, call in calls.items()} for _ in range(options.rounds)
            ]
            times = {name: statistics.median(r[name] for r in rounds) for name in calls}
            ratios = {name: statistics.median(r[name] / r["NumPy"] for r in rounds) for name in calls}
            rows.append({"kernel": kernel, "documents": n, "times": times, "ratios": ratios})
            print(
                f"{kernel:10}{n:10,}{times['NumPy']:10.1f}{times['native']:10.1f}{ratios['native']:7.2f}"
                f"{times['jax']:12.1f}{ratios['jax']:8.1f}",
                flush=True,
            )
            if n == ASKED_AT:
                reached = "reached" if ratios["native"] <= ASKED else "missed"
                print(f"  asked at {n:,}: at most {ASKED}; {reached}")
    if options.json:
        machine = asdict(this_machine(peers=False))
        record = {"machine": machine, "jax": jax.__version__, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
