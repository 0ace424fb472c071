"""Boosted trees fitted to a stored set and to the same data in memory: resident memory and time.

    python benchmarks/boosted_memory.py --folder DIR [--gigabytes 1] [--trees 5]

Creates a stored set with that many gigabytes of float32 features in the folder (136 features, 120 documents
per query), or uses an existing one, and runs each fit in a new process. "Above" is the peak resident memory
minus that after importing the library, including mapped pages. Both fits must give the same trees.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sinkprop import Queries
from sinkprop.gbdt.boosters import booster_text
from sinkprop.gbdt.ranker import BoostedRanker
from sinkprop.store import is_stored, open_queries, save_queries

N_FEATURES, DOCUMENTS, AT_A_TIME = 136, 120, 1000


def parts(n_queries: int) -> Iterator[Queries]:
    rng = np.random.default_rng(0)
    for first in range(0, n_queries, AT_A_TIME):
        n = min(AT_A_TIME, n_queries - first)
        X = rng.standard_normal((n * DOCUMENTS, N_FEATURES), dtype=np.float32)
        y = np.digitize(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + rng.normal(size=len(X)), [0.8, 1.6, 2.4])
        yield Queries(X, y.astype(float), np.repeat(np.arange(first, first + n), DOCUMENTS))


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fit(path: Path, kind: str, trees: int) -> dict[str, object]:
    ranker = BoostedRanker(n_estimators=trees, n_threads=1, verbose=False)
    stored = open_queries(path)
    import lightgbm

    assert lightgbm
    before, began = peak(), time.perf_counter()
    if kind == "stored":
        ranker.fit(stored)
    else:
        queries = stored.load()
        ranker.fit(queries.X, queries.y, qid=queries.qid)
    digest = hashlib.sha256(booster_text(ranker.booster_).encode()).hexdigest()
    return {"above": peak() - before, "seconds": time.perf_counter() - began, "trees": digest}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the stored set, which is created if missing"
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the features  [default: 1]")
    parser.add_argument("--trees", type=int, default=5, help="number of trees  [default: 5]")
    parser.add_argument("--run", choices=["memory", "stored"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = options.folder / f"boosted-{options.gigabytes:g}.queries"
    if options.run:
        print(json.dumps(fit(path, options.run, options.trees)))
        return
    if not is_stored(path):
        save_queries(path, parts(int(options.gigabytes * 1e9 / (4 * N_FEATURES * DOCUMENTS))))
    stored = open_queries(path)
    print(
        f"{stored.n_rows:,} documents of {stored.n_queries:,} queries, {stored.n_features} features", end=""
    )
    print(f": {4e-9 * stored.n_rows * stored.n_features:.2f} GB; {options.trees} trees, one thread")
    found = {}
    for kind in ("memory", "stored"):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--run", kind],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        found[kind] = json.loads(done.stdout)
        above, seconds = found[kind]["above"] / 1e9, found[kind]["seconds"]
        print(f"{kind:10}{above:8.2f} GB above {seconds:8.1f} s", flush=True)
    if found["memory"]["trees"] != found["stored"]["trees"]:
        sys.exit("the trees differ")


if __name__ == "__main__":
    main()
