"""Permanents: times beside other packages, accuracy, bounds against exact values, coverage of intervals.

    python benchmarks/permanents.py              three minutes
    python benchmarks/permanents.py exact        one of: exact, threads, accuracy, bounds, large, coverage

Other packages are used if they are installed: `pip install thewalrus qc-permanent`. Each time is the shortest
of several, taken in turn. thewalrus runs on NUMBA_NUM_THREADS threads, qc-permanent on one. The ratio of one
thread to two is meaningful only if two processors are free (on Linux, `chrt -f 10 python ...` sees to that).
"""

import argparse
import importlib
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import _native
from sinkprop.permutations import matching_marginals, permanent


def peers():
    """The functions of other packages that are installed, by name."""
    found = {}
    try:
        walrus = importlib.import_module("thewalrus")
        found["thewalrus, Glynn"] = lambda A: walrus.perm(A, method="bbfg")
        found["thewalrus, Ryser"] = lambda A: walrus.perm(A, method="ryser")
    except ImportError:
        print("thewalrus is not installed")
    try:
        qc = importlib.import_module("permanent")
        found["qc-permanent, Glynn"] = qc.glynn
        found["qc-permanent, Ryser"] = qc.ryser
    except ImportError:
        print("qc-permanent is not installed")
    return found


def shortest(functions, rounds):
    """The shortest time of each function, all called in turn."""
    times = dict.fromkeys(functions, math.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def exact():
    others = peers()
    print("milliseconds for a uniform random matrix, and the ratio to sinkprop on one thread")
    for n in (12, 16, 20, 22, 24):
        A = np.random.default_rng(n).random((n, n))
        value = permanent(A, "exact").value
        for name, function in others.items():
            function(A[:8, :8].copy())  # compilation
            if abs(function(A) / value - 1) > 1e-8:
                print(f"  n = {n}: {name} has a relative error of {abs(function(A) / value - 1):.0e}")
        functions = {
            "sinkprop, 1 thread": lambda A=A: permanent(A, "exact", n_threads=1),
            "sinkprop, 2 threads": lambda A=A: permanent(A, "exact", n_threads=2),
        } | {name: lambda A=A, f=f: f(A) for name, f in others.items()}
        times = shortest(functions, 3 if n > 22 else 7)
        one = times["sinkprop, 1 thread"]
        words = [f"{name} {1e3 * t:.3g} ({t / one:.2g})" for name, t in times.items()]
        print(f"  n = {n}: " + "; ".join(words))
    A = np.random.default_rng(0).random((24, 24))
    before = _native.instruction_set()
    for name in _native.instruction_sets():
        _native.use_instruction_set(name)
        seconds = shortest({"": lambda: permanent(A, "exact", n_threads=1)}, 7)[""]
        print(f"  n = 24, instruction set {name}: {1e3 * seconds:.1f} ms")
    _native.use_instruction_set(before)


def threads():
    print("one thread over two threads, and the seconds of one")
    for n in (24, 26, 28):
        A = np.random.default_rng(n).random((n, n))
        functions = {k: lambda A=A, k=k: permanent(A, "exact", n_threads=k) for k in (1, 2)}
        times = shortest(functions, 15 if n < 28 else 7)
        print(f"  n = {n}: {times[1] / times[2]:.2f}, {times[1]:.3f}; load {os.getloadavg()[0]:.1f}")


def accuracy():
    print("relative errors where the permanent is known: all ones (n!), no diagonal (derangements)")
    for n in (16, 20, 24, 28, 30, 32):
        derangements = sum((-1) ** k * math.factorial(n) // math.factorial(k) for k in range(n + 1))
        ones = permanent(np.ones((n, n)), "exact").value / math.factorial(n) - 1
        rest = permanent(np.ones((n, n)) - np.eye(n), "exact").value / derangements - 1
        print(f"  n = {n}: {abs(ones):.1e} {abs(rest):.1e}")
    print("differences between Glynn's formula and the sum over subsets, random matrices, n = 13 to 20")
    rng, worst = np.random.default_rng(0), 0.0
    for n in range(13, 21):
        for spread in (0.3, 1, 3):
            A = np.exp(spread * rng.normal(size=(n, n)))
            row = A[0] * np.array([permanent(np.delete(A[1:], j, axis=1)).value for j in range(n)])
            worst = max(worst, np.abs(row / permanent(A).value - matching_marginals(A).matrix[0]).max())
    print(f"  largest: {worst:.1e}")


def kinds(rng, n):
    x = np.sort(rng.normal(size=n))
    return {
        "uniform": lambda: rng.random((n, n)),
        "lognormal, s = 1": lambda: np.exp(rng.normal(size=(n, n))),
        "lognormal, s = 3": lambda: np.exp(3 * rng.normal(size=(n, n))),
        "zeros and ones, half": lambda: (rng.random((n, n)) < 0.5) + np.eye(n),
        "zeros and ones, .2": lambda: (rng.random((n, n)) < 0.2) + np.eye(n),
        "kernel, width .1": lambda: np.exp(-((x[:, None] - x) ** 2) / (2 * 0.1**2)),
        "kernel, width .5": lambda: np.exp(-((x[:, None] - x) ** 2) / (2 * 0.5**2)),
        "nearly a permutation": lambda: np.eye(n) + 10.0 ** -rng.integers(1, 15) * rng.random((n, n)),
    }


def bounds(count=10_000):
    rng = np.random.default_rng(0)
    violations, gaps, winners = 0, {}, {}
    start = time.perf_counter()
    for i in range(count):
        n = 1 + i % 20
        name = list(kinds(rng, 1))[i // 20 % 8]
        A = kinds(rng, n)[name]()
        value = permanent(A, "exact", n_threads=1).log_value
        found = permanent(A, "bounds")
        slack = 1e-11 * (1 + abs(value))  # of the exact value
        every = [b <= value + slack for b in (found.log_lower, *found.lower_bounds.values())]
        every += [b >= value - slack for b in (found.log_upper, *found.upper_bounds.values())]
        violations += not all(every)
        if n == 20:
            gaps.setdefault(name, []).append((value - found.log_lower, found.log_upper - value))
            for side, named, best in (("lower", found.lower_bounds, max), ("upper", found.upper_bounds, min)):
                key = side, best(named, key=named.get)
                winners[key] = winners.get(key, 0) + 1
    seconds = time.perf_counter() - start
    print(
        f"{count} random matrices, n = 1 to 20: {violations} with a bound that does not hold, {seconds:.0f} s"
    )
    print("n = 20, median distance of the logarithms: lower bound, upper bound")
    for name, distances in gaps.items():
        below, above = np.median(distances, axis=0)
        print(f"  {name}: {below:.2f} {above:.2f}")
    print("n = 20, times that a bound is the tightest:", dict(sorted(winners.items())))


def large():
    print("n = 1000: seconds, logarithms of the bounds and their difference, the tightest ones")
    rng = np.random.default_rng(0)
    for name, make in kinds(rng, 1000).items():
        A = make()
        start = time.perf_counter()
        found = permanent(A, "bounds")
        seconds = time.perf_counter() - start
        names = (
            max(found.lower_bounds, key=found.lower_bounds.get),
            min(found.upper_bounds, key=found.upper_bounds.get),
        )
        print(
            f"  {name}: {seconds:.1f} s, {found.log_lower:.1f} to {found.log_upper:.1f}, "
            f"{found.log_upper - found.log_lower:.2f}; {names[0]}, {names[1]}"
        )


def coverage(runs=10_000):
    print(f"coverage of nominal .95 intervals in {runs} runs each, mean estimate over the exact value")
    rng = np.random.default_rng(0)
    for name, n, accepted in (("uniform", 8, 20), ("uniform", 16, 100), ("lognormal, s = 1", 8, 100)):
        A = kinds(rng, n)[name]()
        value = permanent(A).value
        found = [
            permanent(A, "accept-reject", n_accepted=accepted, seed=rng, n_threads=1) for _ in range(runs)
        ]
        covered = np.mean([p.lower <= value <= p.upper for p in found])
        mean = np.mean([p.value for p in found]) / value
        print(f"  {name}, n = {n}, {accepted} accepted: {covered:.4f}, {mean:.4f}")
    print("acceptance rate, and seconds for 1000 accepted")
    for n in (20, 50, 100):
        for name in ("uniform", "lognormal, s = 1", "zeros and ones, half", "kernel, width .5"):
            A = kinds(rng, n)[name]()
            start = time.perf_counter()
            try:
                found = permanent(A, "accept-reject", seed=0, max_draws=1_000_000)
            except RuntimeError:
                print(f"  {name}, n = {n}: none of a million")
                continue
            seconds = (time.perf_counter() - start) * 1000 / found.n_accepted
            print(f"  {name}, n = {n}: {found.n_accepted / found.n_draws:.1e}, {seconds:.2f}")


PARTS = {f.__name__: f for f in (exact, threads, accuracy, bounds, large, coverage)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS)
    chosen = parser.parse_args().part
    for name, part in PARTS.items():
        if chosen in (None, name):
            part()
