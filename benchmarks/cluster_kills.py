"""Fits on a Dask cluster whose worker is killed at a random moment: does each finish with the same model?

    python benchmarks/cluster_kills.py --folder DIR [--fits 20] [--data stored|arrays|files|frame]

A first fit without a kill gives the expected time and the expected model. During each further fit, a random
worker process is killed (SIGKILL) at a random moment between its start and its expected end, and Dask starts
a new one. A fit that finishes before the kill does not count and is repeated. The output has the moment of
the kill, the seconds of the fit, and whether the weights, the feature scaling and the record of the stages
are the same to the last bit.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from larger_than_memory import DOCUMENTS, N_FEATURES, make


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the data, which are created if missing"
    )
    parser.add_argument("--queries", type=int, default=2_000, help="number of queries  [default: 2000]")
    parser.add_argument("--fits", type=int, default=20, help="number of fits with a kill  [default: 20]")
    parser.add_argument("--workers", type=int, default=2, help="number of workers  [default: 2]")
    parser.add_argument(
        "--data",
        choices=["stored", "arrays", "files", "frame"],
        default="stored",
        help="form of the data  [default: stored]",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="random seed of workers and moments  [default: 0]"
    )
    options = parser.parse_args()
    path = options.folder / f"simulated-{options.queries}-queries.queries"
    make(path, (options.queries - 0.5) * 4 * N_FEATURES * DOCUMENTS / 1e9)
    logging.getLogger("sinkprop.cluster").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        run(data_of(options.data, path, Path(folder)), options)


def data_of(kind: str, path: Path, folder: Path) -> dict:
    """The arguments of `fit`."""
    from sinkprop import open_queries, save_letor

    stored = open_queries(path)
    if kind == "stored":
        return {"X": stored}
    q = stored.load()
    if kind == "arrays":
        return {"X": q.X, "y": q.y, "qid": q.qid}
    eighths = np.array_split(q.groups.queries, 8)
    if kind == "files":
        files = [folder / f"{i}.txt" for i in range(8)]
        for file, ids in zip(files, eighths, strict=True):
            save_letor(file, q.select(ids))
        return {"X": files}
    import pandas as pd
    from dask import dataframe as dd

    for i, ids in enumerate(eighths):
        part = q.select(ids)
        frame = pd.DataFrame(part.X, columns=[f"f{j}" for j in range(part.n_features)])
        frame.assign(label=part.y, qid=part.qid).to_parquet(folder / f"{i}.parquet")
    return {"X": dd.read_parquet([folder / f"{i}.parquet" for i in range(8)]), "y": "label", "qid": "qid"}


def run(data: dict, options: argparse.Namespace) -> None:
    from sinkprop.cluster import connected

    rng = np.random.default_rng(options.seed)
    same = 0
    with connected(options.workers) as client:
        fitted(data, client)  # imports, file caches
        began = time.perf_counter()
        model = fitted(data, client)
        expected = time.perf_counter() - began
        print(f"without a kill: {expected:.2f} s\n{'fit':>4}{'killed at':>12}{'fit':>10}  model", flush=True)
        done = 0
        while done < options.fits:
            moment = rng.uniform(0, expected)
            pids = processes(client, options.workers)
            killed: list[int] = []
            timer = threading.Timer(moment, kill, (pids[rng.integers(len(pids))], killed))
            began = time.perf_counter()
            timer.start()
            found = fitted(data, client)
            seconds = time.perf_counter() - began
            timer.join()
            if moment > seconds or not killed:
                continue
            done += 1
            equal = repr(found) == repr(model)
            same += equal
            what = "the same to the last bit" if equal else "ANOTHER"
            print(f"{done:4d}{moment:10.2f} s{seconds:8.2f} s  {what}", flush=True)
    print(f"\n{same} of {options.fits} fits ended with the same model")


def kill(pid: int, killed: list[int]) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # Dask has already ended it
        return
    killed.append(pid)


def processes(client, count: int) -> list[int]:
    """The process ids of all workers, after waiting for them to start."""
    from sinkprop.cluster.connecting import ask

    while True:
        pids = sorted(ask(client, os.getpid).values())
        if len(pids) == count:
            return pids
        time.sleep(0.05)


def fitted(data: dict, client) -> tuple:
    """Every number of a model, for comparison."""
    from sinkprop import Annealing, SinkPropRanker

    ranker = SinkPropRanker(
        penalty=1e-3, annealing=Annealing(4, 1), max_iter=6, cluster=client, verbose=False
    ).fit(data["X"], data.get("y"), qid=data.get("qid"))
    stages = [
        (stage.expected_gain, stage.criterion, stage.evaluations, stage.training)
        for stage in ranker.fit_result_.stages
    ]
    scaling = ranker.scaling_
    return ranker.coef_.tolist(), scaling.shift.tolist(), scaling.factor.tolist(), ranker.sigma_, stages


if __name__ == "__main__":
    main()
