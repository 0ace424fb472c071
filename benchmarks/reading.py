"""Time to read LETOR text, compared with scikit-learn's `load_svmlight_file`.

    python benchmarks/reading.py                    three generated files, several minutes
    python benchmarks/reading.py --megabytes 20     smaller files
    python benchmarks/reading.py FILE ...           your own files, with a qid on every line

The generated files resemble LETOR 3.0 (45 features from 0 to 1 in six digits, docids), MSLR (136 features,
counts and scores of many magnitudes) and Yahoo's data (sparse, 700 features of which a third are present).
There are two times per file. "first" is the median of single reads, each in a new process, as in a program
that reads its data once. "again" is the median of repeated reads in one process, whose memory is already
allocated. Reads alternate, the file is in the file cache, and imports do not count. scikit-learn makes a
sparse matrix and drops the docids; sinkprop keeps them and makes the dense matrix that rankers need. The two
results are compared value by value.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

import sinkprop


def letor_lines(rng: np.random.Generator, n: int) -> list[str]:
    """Normalized features, a fifth of them 0, most in six digits, as in OHSUMED."""
    X = np.where(rng.random((n, 45)) < 0.2, 0, rng.random((n, 45)))
    return [
        f"{rng.integers(0, 3)} qid:{i // 150 + 1} "
        + " ".join(f"{j}:{v:.6f}" if v else f"{j}:0" for j, v in enumerate(row, 1))
        + f" #docid = {rng.integers(10**5, 10**6)}"
        for i, row in enumerate(X.tolist())
    ]


def mslr_lines(rng: np.random.Generator, n: int) -> list[str]:
    """Features that are counts, ratios and scores."""
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


READ = {
    "scikit-learn": "load_svmlight_file(path, query_id=True)",
    "sinkprop, 1 thread": "load_letor(path, n_threads=1)",
    "sinkprop, {} threads": "load_letor(path, n_threads={})",
}
PROGRAM = """
import sys, time
import numpy, scipy.sparse
from sklearn.datasets import load_svmlight_file
from sinkprop import load_letor
path = sys.argv[1]
for _ in range({times}):
    before = time.perf_counter()
    result = {read}
    print(time.perf_counter() - before)
    del result
"""


def times(read: str, path: Path, count: int) -> list[float]:
    """Seconds of each of `count` consecutive reads in a new process."""
    program = PROGRAM.format(times=count, read=read)
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    return [float(line) for line in run.stdout.split()]


def report(name: str, path: Path, threads: int, rounds: int) -> None:
    ours, theirs = sinkprop.load_letor(path), load_svmlight_file(str(path), query_id=True)
    same = (
        np.array_equal(ours.X, theirs[0].toarray())
        and np.array_equal(ours.y, theirs[1])
        and np.array_equal(ours.qid, theirs[2])
    )
    kept = "no docids" if ours.docid is None else "docids kept"
    size, equal = os.path.getsize(path) / 1e6, "equal" if same else "DIFFERENT"
    print(f"{name}: {size:.1f} MB, {len(ours)} x {ours.n_features}, {kept}, values {equal}")
    del ours, theirs
    reads = {reader.format(threads): read.format(threads) for reader, read in READ.items()}
    first: dict[str, list[float]] = {reader: [] for reader in reads}
    again: dict[str, list[float]] = {reader: [] for reader in reads}
    for _ in range(rounds):  # readers alternate, so that a slower machine affects all
        for reader, read in reads.items():
            once, *more = times(read, path, 3)
            first[reader].append(once)
            again[reader] += more
    print(f"  {'':<22}{'first':>12}{'':>19}{'again':>12}")
    for reader in reads:
        cells = ""
        for seconds in (first, again):
            t = statistics.median(seconds[reader])
            ratio = statistics.median(seconds["scikit-learn"]) / t
            cells += f"{t * 1e3:>9.1f} ms{size / t:>6.0f} MB/s{ratio:>7.1f}x"
        print(f"  {reader:<22}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="your own files instead of generated ones"
    )
    parser.add_argument(
        "--megabytes", type=float, default=100.0, help="size of each generated file (default: 100)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="number of threads to compare with one (default: 2)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="new processes per reader (default: 5)")
    options = parser.parse_args()
    for path in options.files:
        report(str(path), path, options.threads, options.rounds)
    if options.files:
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, make in KINDS.items():
            path = Path(folder, "train.txt")
            write(path, make, options.megabytes)
            report(f"like {name}", path, options.threads, options.rounds)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
