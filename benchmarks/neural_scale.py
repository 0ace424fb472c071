"""Time of an epoch of NeuralRanker from a stored set and from memory, on one process and on two.

    python benchmarks/neural_scale.py                 20,000 queries of 120 documents, 136 features: 1.3 GB
    python benchmarks/neural_scale.py --queries 6000 --folder DIR

Every fit runs in a new process, or in one per rank. The table shows the seconds of the faster of its second
and third epochs, including validation on 200 queries; the CPU seconds of rank 0, which depend little on other
work on the machine; and the peak memory of rank 0 above that before loading data. "memory" loads the set,
"stored" streams it. Ranks share the set, and a minibatch of 16,384 documents is divided among them. The file
is in the system's file cache if it fits. Needs one idle processor per rank, and one more for reading ahead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from sinkprop import Queries
from sinkprop.store import open_queries, save_queries

SIZE, FEATURES, VALIDATION, BATCH = 120, 136, 200, 16_384


def simulated(n_queries: int, seed: int) -> Iterator[Queries]:
    """Generate queries, 500 at a time, with labels 0 to 2 from the first four features and noise."""
    rng = np.random.default_rng(seed)
    for first in range(0, n_queries, 500):
        n = min(500, n_queries - first)
        X = rng.normal(size=(n * SIZE, FEATURES)).astype(np.float32)
        y = np.digitize(X[:, :4].sum(axis=1) + 2 * rng.normal(size=len(X)), [2, 4])
        yield Queries(X, y, np.repeat(np.arange(first, first + n), SIZE))


def most_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def fit(folder: Path, how: str, hidden: tuple[int, ...], threads: int) -> dict[str, float]:
    """Fit in this process; the measurements of its fastest epoch after the first."""
    from sinkprop.torch import MLP, Adam, NeuralRanker

    clocks: list[tuple[float, float]] = []
    ranker = NeuralRanker(
        network=MLP(hidden),
        optimizer=Adam(batch_documents=BATCH),
        max_epochs=3,
        on_epoch=lambda epoch: clocks.append((epoch.seconds, time.process_time())),
        n_threads=threads,
        distributed="shared" if "RANK" in os.environ else None,
        verbose=False,
    )
    vali = folder / "vali.queries"
    before = most_memory()
    if how == "memory":
        data, vali_queries = open_queries(folder / "train.queries").load(), open_queries(vali).load()
        ranker.fit(
            data.X,
            data.y,
            qid=data.qid,
            eval_set=[(vali_queries.X, vali_queries.y)],
            eval_qid=[vali_queries.qid],
        )
    else:
        ranker.fit(folder / "train.queries", eval_set=[vali])
    # The first epoch is left out: it also computes the criterion on the training queries.
    used = [after[1] - before[1] for before, after in pairwise(clocks)]
    return {
        "seconds": min((seconds for seconds, _ in clocks[1:]), default=0.0),
        "processor": min(used, default=0.0),
        "megabytes": most_memory() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=20_000, help="number of queries  [default: 20000]")
    parser.add_argument("--hidden", default="64,32", help="widths of the hidden layers  [default: 64,32]")
    parser.add_argument("--threads", type=int, default=1, help="threads per rank")
    parser.add_argument("--folder", type=Path, help="folder in which the set is created and kept")
    parser.add_argument("--fit", choices=["memory", "stored"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        hidden = tuple(int(width) for width in given.hidden.split(","))
        found = fit(given.folder, given.fit, hidden, given.threads)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name, n, seed in (("train", given.queries, 0), ("vali", VALIDATION, 1)):
            if not (folder / f"{name}.queries").exists():
                save_queries(folder / f"{name}.queries", simulated(n, seed))
        report(folder, given)


def report(folder: Path, given: argparse.Namespace) -> None:
    n = open_queries(folder / "train.queries").n_queries
    print(f"{n:,} queries of {SIZE} documents, {n * SIZE * FEATURES * 4 / 1e9:.2f} GB; hidden {given.hidden}")
    print(f"{'from':8} {'ranks':>5} {'an epoch':>10} {'queries/s':>10} {'processor':>10} {'memory':>10}")
    for how, ranks in (("memory", 1), ("stored", 1), ("memory", 2), ("stored", 2)):
        program = [sys.executable, __file__]
        if ranks > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            program = [sys.executable, *launcher, __file__]
        options = ["--fit", how, "--folder", str(folder), "--hidden", given.hidden]
        done = subprocess.run(
            [*program, *options, "--threads", str(given.threads)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        found = json.loads(done.stdout.splitlines()[-1])
        seconds, used, memory = found["seconds"], found["processor"], found["megabytes"]
        print(
            f"{how:8} {ranks:5} {seconds:8.2f} s {n / seconds:10,.0f} {used:8.2f} s {memory:7,.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
