"""Time to read LETOR text, beside scikit-learn's `load_svmlight_file`, and what both make of it.

    python benchmarks/reading.py                    three files made for it, about a minute
    python benchmarks/reading.py --megabytes 20     smaller ones
    python benchmarks/reading.py FILE ...           files of your own, with a qid on every line

The files: like LETOR 3.0 (45 features from 0 to 1 in six digits, docids), like MSLR (136 features, counts and
scores of many sizes) and like Yahoo's (sparse, 700 features of which a third are there). Best of several
reads in alternating rounds, from the cache of the file system. scikit-learn makes a sparse matrix and drops
the docids; sinkprop makes the dense matrix that trainers take, and keeps them. The two results are compared,
value for value.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

import sinkprop


def letor_lines(rng: np.random.Generator, n: int) -> list[str]:
    """Normalized features, a fifth of them 0, most in six digits: OHSUMED's look."""
    X = np.where(rng.random((n, 45)) < 0.2, 0, rng.random((n, 45)))
    return [
        f"{rng.integers(0, 3)} qid:{i // 150 + 1} "
        + " ".join(f"{j}:{v:.6f}" if v else f"{j}:0" for j, v in enumerate(row, 1))
        + f" #docid = {rng.integers(10**5, 10**6)}"
        for i, row in enumerate(X.tolist())
    ]


def mslr_lines(rng: np.random.Generator, n: int) -> list[str]:
    """Columns of counts, of ratios and of scores."""
    columns = []
    for j in range(136):
        if j % 3 == 0:
            values = rng.poisson(10.0 ** (j % 5), n).astype(np.float64)
        elif j % 3 == 1:
            values = rng.random(n).round(6)
        else:
            values = rng.gamma(1, 20, n).round(6) - 50 * (j % 2)
        columns.append(np.where(rng.random(n) < 0.2, 0, values))
    return [
        f"{rng.integers(0, 5)} qid:{i // 120 + 1} "
        + " ".join(f"{j}:{v:.10g}" for j, v in enumerate(row, 1))
        + " "
        for i, row in enumerate(np.column_stack(columns).tolist())
    ]


def yahoo_lines(rng: np.random.Generator, n: int) -> list[str]:
    lines = []
    for i in range(n):
        ids = np.flatnonzero(rng.random(700) < 1 / 3) + 1
        values = rng.random(len(ids)).round(5).tolist()
        features = " ".join(f"{j}:{v:g}" for j, v in zip(ids.tolist(), values, strict=True))
        lines.append(f"{rng.integers(0, 5)} qid:{i // 24 + 1} {features}")
    return lines


KINDS = {"LETOR 3.0": letor_lines, "MSLR": mslr_lines, "Yahoo": yahoo_lines}


def write(path: Path, make: Callable[[np.random.Generator, int], list[str]], megabytes: float) -> None:
    rng, size = np.random.default_rng(0), 0
    with open(path, "w", encoding="ascii", newline="\n") as file:
        while size < megabytes * 1e6:
            text = "\n".join(make(rng, 1500)) + "\n"
            file.write(text)
            size += len(text)


def best_times(reads: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Best time of each, in alternating rounds, so that a drift of the machine meets all alike."""
    best = dict.fromkeys(reads, float("inf"))
    until = time.perf_counter() + seconds
    rounds = 0
    while rounds < 2 or time.perf_counter() < until:
        for name, call in reads.items():
            for _ in range(1 if name == "scikit-learn" else 3):
                before = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - before)
        rounds += 1
    return best


def report(name: str, path: Path, threads: int, seconds: float) -> None:
    ours, theirs = sinkprop.load_letor(path), load_svmlight_file(str(path), query_id=True)
    X = theirs[0].toarray()
    same = (
        np.array_equal(ours.X, X)
        and np.array_equal(ours.y, theirs[1])
        and np.array_equal(ours.qid, theirs[2])
    )
    del X, theirs
    reads: dict[str, Callable[[], object]] = {
        "scikit-learn": lambda: load_svmlight_file(str(path), query_id=True)
    }
    for n in sorted({1, threads}):
        reads[f"sinkprop, {n} thread{'s' * (n > 1)}"] = lambda n=n: sinkprop.load_letor(path, n_threads=n)
    best = best_times(reads, seconds)
    size = os.path.getsize(path) / 1e6
    kept = "no docids" if ours.docid is None else "docids kept"
    equal = "equal" if same else "DIFFERENT"
    print(f"{name}: {size:.1f} MB, {len(ours)} x {ours.n_features}, {kept}, values {equal}")
    for reader, t in best.items():
        print(
            f"  {reader:<22}{t * 1e3:>9.1f} ms{size / t:>8.0f} MB/s{best['scikit-learn'] / t:>8.1f}x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--megabytes", type=float, default=100.0, help="of each file made (default: 100)")
    parser.add_argument("--threads", type=int, default=2, help="beside one (default: 2)")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="spent on each file, at least (default: 5)"
    )
    options = parser.parse_args()
    for path in options.files:
        report(str(path), path, options.threads, options.seconds)
    if options.files:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, make in KINDS.items():
            path = Path(folder, "train.txt")
            write(path, make, options.megabytes)
            report(f"like {name}", path, options.threads, options.seconds)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
