"""Time of a pass over a stored set, compared with an array in memory and with reading its files.

    python benchmarks/stored_reading.py [--gigabytes 1.5] [--folder DIR]

Creates a set with 136 features and 120 documents per query. Sums the features of an array in memory, block by
block, and those of the blocks from `StoredQueries.blocks()`, and reads the files into one buffer without
using them. The rounds alternate, and the best of each counts. "warm" has the files in the system's file
cache, "cold" has removed them from it. "resident" is the peak memory of the process during a pass over the
blocks minus that before it, including mapped pages.

    python benchmarks/stored_reading.py --validation [--gigabytes 1]

Measures instead what it costs to validate a set: the time to open it and pass over it once, as it is and with
all checks of its blocks left out, in alternating rounds. The passes sum the features, predict and score with
a linear model, compute the gradient of the expected NDCG, and load the set. A ratio is that of the best
times; CPU seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np

from sinkprop import Queries, expected_gain
from sinkprop.baselines import RegressionRanker
from sinkprop.store import StoredQueries, open_queries, save_queries
from sinkprop.store.mapped import MappedPart

N_FEATURES, DOCUMENTS, AT_ONCE = 136, 120, 100
CACHES, WAYS = ("warm", "cold"), ("checked", "unchecked")


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


def gradient_pass(stored: StoredQueries) -> None:
    """Pass over the blocks as a linear fit does: scores, expected NDCG, and its gradient in the weights."""
    weights = np.linspace(-1, 1, stored.n_features, dtype=np.float32)
    for block in stored.blocks():
        found = expected_gain(block.X @ weights, block.y, block.qid)
        found.gradient.astype(np.float32) @ block.X


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def unchecked() -> Iterator[None]:
    """Leave out all checks of blocks."""
    names = ("_batch", "_check_tail", "_check_sums", "_check_content", "is_checked")
    own = {name: getattr(MappedPart, name) for name in names}
    for name in names[1:]:
        setattr(MappedPart, name, lambda *_, **__: True)
    MappedPart._batch = lambda self, local: self._reader.get_batch(local)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(MappedPart, name, method)


def validation(stored: StoredQueries, rounds: int) -> None:
    block = stored.block(0)
    ranker = RegressionRanker().fit(block.X, block.y, qid=block.qid)
    passes: dict[str, Callable[[StoredQueries], object]] = {
        "open only": lambda opened: opened,
        "sum": pass_over_blocks,
        "predict": ranker.predict,
        "score": ranker.score,
        "gradient": gradient_pass,
        "load": StoredQueries.load,
    }
    best = {(name, cache, way): (float("inf"),) * 2 for name in passes for cache in CACHES for way in WAYS}
    for _ in range(rounds):
        for (name, cache, way), least in best.items():
            if cache == "cold":
                forget(stored)
            with nullcontext() if way == "checked" else unchecked():
                cpu = time.process_time()
                wall = seconds(lambda name=name: passes[name](open_queries(stored.path)))
                found = wall, time.process_time() - cpu
            best[name, cache, way] = tuple(map(min, least, found))
    print("pass       cache  checked  unchecked  ratio   CPU: checked  unchecked")
    for name in passes:
        for cache in CACHES:
            (a, cpu_a), (b, cpu_b) = (best[name, cache, way] for way in WAYS)
            print(
                f"{name:10} {cache}   {a:6.3f} s   {b:6.3f} s  {a / b:5.3f}   {cpu_a:10.3f} s   {cpu_b:.3f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.5, help="size of the features  [default: 1.5]")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds  [default: 7]")
    parser.add_argument("--validation", action="store_true", help="measure the cost of validation")
    parser.add_argument(
        "--folder", type=Path, help="working folder  [default: the system's temporary folder]"
    )
    given = parser.parse_args()
    n_queries = int(given.gigabytes * 1e9 / (4 * N_FEATURES * DOCUMENTS)) // AT_ONCE * AT_ONCE
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        stored = save_queries(Path(folder, "set.queries"), made(n_queries))
        size = 4 * stored.n_rows * N_FEATURES / 1e9
        if given.validation:
            print(f"{size:.2f} GB of features in {stored.n_blocks} blocks, best of {given.rounds} rounds")
            validation(stored, given.rounds)
            return
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
