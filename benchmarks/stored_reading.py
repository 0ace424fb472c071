"""Time of a pass over a stored set, compared with an array in memory and with reading its files.

    python benchmarks/stored_reading.py [--gigabytes 1.5] [--folder DIR]

Creates a set with 136 features and 120 documents per query. Sums the features of an array in memory, block by
block, and those of the blocks from `StoredQueries.blocks()`, and reads the files into one buffer without
using them. The rounds alternate, and the best of each counts. "warm" has the files in the system's file
cache, "cold" has removed them from it. "resident" is the peak memory of the process during a pass over the
blocks minus that before it, including mapped pages.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from sinkprop import Queries
from sinkprop.store import StoredQueries, save_queries

N_FEATURES, DOCUMENTS, AT_ONCE = 136, 120, 100


def made(n_queries: int) -> Iterator[Queries]:
    rng = np.random.default_rng(0)
    X = rng.random((AT_ONCE * DOCUMENTS, N_FEATURES), dtype=np.float32)
    for first in range(0, n_queries, AT_ONCE):
        yield Queries(X, np.floor(5.0 * X[:, 0]), np.repeat(np.arange(first, first + AT_ONCE), DOCUMENTS))


def resident() -> int:
    """Resident memory of this process in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10


def forget(stored: StoredQueries) -> None:
    for part in stored.manifest.parts:
        descriptor = os.open(stored.path / part.file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_files(stored: StoredQueries) -> None:
    buffer = bytearray(8 << 20)
    for part in stored.manifest.parts:
        with open(stored.path / part.file, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def pass_over_blocks(stored: StoredQueries) -> None:
    for block in stored.blocks():
        block.X.sum()


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.5, help="size of the features  [default: 1.5]")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds  [default: 7]")
    parser.add_argument(
        "--folder", type=Path, help="working folder  [default: the system's temporary folder]"
    )
    given = parser.parse_args()
    n_queries = int(given.gigabytes * 1e9 / (4 * N_FEATURES * DOCUMENTS)) // AT_ONCE * AT_ONCE
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        stored = save_queries(Path(folder, "set.queries"), made(n_queries))
        size = 4 * stored.n_rows * N_FEATURES / 1e9
        next(stored.blocks()).X.sum()
        before, most = resident(), 0
        for block in stored.blocks():
            block.X.sum()
            most = max(most, resident())
        X, rows = stored.load().X, stored.block_rows

        def in_memory() -> None:
            for first, last in pairwise(rows.tolist()):
                X[first:last].sum()

        ways: dict[str, Callable[[], object]] = {
            "array in memory": in_memory,
            "blocks(), warm": lambda: pass_over_blocks(stored),
            "files read, warm": lambda: read_files(stored),
            "blocks(), cold": lambda: pass_over_blocks(stored),
            "files read, cold": lambda: read_files(stored),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(given.rounds):
            for name, work in ways.items():
                if name.endswith("cold"):
                    forget(stored)
                best[name] = min(best[name], seconds(work))
    print(f"{size:.2f} GB of features in {stored.n_blocks} blocks; resident: {most - before} MB more")
    for name, time_taken in best.items():
        print(f"{name:17} {time_taken:6.3f} s  {size / time_taken:6.2f} GB/s")


if __name__ == "__main__":
    main()
