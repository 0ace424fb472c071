"""Boosted trees on a Dask cluster: one worker against two, and sinkprop against LightGBM's Dask ranker.

    python benchmarks/boosted_cluster.py                  2,000 queries of 120 documents, 136 features
    python benchmarks/boosted_cluster.py --queries 500 --rounds 10 --leaves 15

sinkprop's ranker is `BoostedRanker(cluster=client)`, LightGBM's is `DaskLGBMRanker` with lambdarank. Both get
the same documents, the same tree parameters and one thread per worker. The time of a round is the mean over
all rounds but the first, measured on a worker: reading, sending and binning the data do not count. The CPU
time of the worker is printed beside it; it is more reliable on a busy machine. NDCG@10 is computed on queries
that neither was trained on, with the same number of rounds and without early stopping.

Bytes are those that one worker sends per round. They are measured for sinkprop, which sends LightGBM's
histograms itself. In LightGBM's algorithm, a worker sends each histogram except its own share, for the root
and for the smaller leaf of every split but the last: 16 bytes x bins x features x (leaves - 1) x (workers -
1) / workers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from sinkprop import evaluate
from sinkprop.gbdt import BoostedRanker


def problem(n_queries: int, size: int, n_features: int, seed: int) -> tuple[Any, Any, Any]:
    """Random features, labels 0 to 4, most of them 0, and query ids."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * size, n_features)).astype(np.float32)
    relevance = X[:, 0] * (X[:, 1] > 0) + 0.5 * X[:, 2] + rng.normal(size=len(X))
    y = np.digitize(relevance, [0.4, 1.2, 2.0, 2.8]).astype(float)
    return X, y, np.repeat(np.arange(n_queries), size)


class Clock:
    """A LightGBM callback that stores the times of all rounds in the booster."""

    order = 0

    def __call__(self, env: Any) -> None:
        if not hasattr(env.model, "ends"):
            env.model.ends = []
        env.model.ends.append((time.perf_counter(), time.process_time()))


def ours(client: Any, data: Any, settings: dict[str, Any]) -> tuple[Any, float, Any, float]:
    """Wall-clock and CPU seconds per round, bytes sent per round, the ranker, and seconds of the fit."""
    began = time.perf_counter()
    X, y, qid = data
    ranker = BoostedRanker(**settings, n_threads=1, verbose=False, cluster=client).fit(X, y, qid=qid)
    record = ranker.cluster_record_
    each = np.array([record.seconds, record.cpu]) / record.rounds
    return each, record.sent / record.rounds, ranker, time.perf_counter() - began


def lightgbm(client: Any, data: Any, settings: dict[str, Any], n_workers: int) -> tuple[Any, Any, float]:
    """Seconds per round of LightGBM's Dask ranker, the booster, and seconds of the fit."""
    import dask.array
    from lightgbm import DaskLGBMRanker

    began = time.perf_counter()
    X, y, qid = data
    n_queries = qid[-1] + 1
    size = len(y) // n_queries
    queries = [len(part) for part in np.array_split(np.arange(n_queries), n_workers)]
    rows = tuple(n * size for n in queries)
    arrays = (
        dask.array.from_array(X, chunks=(rows, X.shape[1])),
        dask.array.from_array(y.astype(np.int32), chunks=(rows,)),
        dask.array.from_array(np.full(n_queries, size), chunks=(tuple(queries),)),
    )
    ranker = DaskLGBMRanker(client=client, force_col_wise=True, verbose=-1, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM warns about parameters that it sets itself
        ranker.fit(arrays[0], arrays[1], group=arrays[2], callbacks=[Clock()])
    ends = np.array(ranker.booster_.ends)
    return (ends[-1] - ends[0]) / (len(ends) - 1), ranker.booster_, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=2000, help="number of queries  [default: 2000]")
    parser.add_argument("--size", type=int, default=120, help="documents per query  [default: 120]")
    parser.add_argument("--features", type=int, default=136, help="number of features  [default: 136]")
    parser.add_argument("--rounds", type=int, default=20, help="number of boosting rounds  [default: 20]")
    parser.add_argument("--leaves", type=int, default=31, help="maximum leaves per tree  [default: 31]")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers to compare  [default: 1 2]"
    )
    options = parser.parse_args()
    from sinkprop.cluster import connected

    data = problem(options.queries, options.size, options.features, 0)
    X, y, qid = problem(max(200, options.queries // 4), options.size, options.features, 1)
    settings = {"n_estimators": options.rounds, "num_leaves": options.leaves, "learning_rate": 0.1}
    print(
        f"{options.queries:,} queries of {options.size} documents, {options.features} features; "
        f"{options.rounds} trees of {options.leaves} leaves; one thread a worker"
    )
    print(f"{'':24}{'s a round':>12}{'of a processor':>16}{'s in all':>10}{'NDCG@10':>10}", end="")
    print(f"{'MB sent a round':>18}{'by formula':>12}")

    def line(name: str, each: Any, total: float, scores: Any, sent: str, formula: str) -> None:
        ndcg = evaluate(y, scores, qid, metrics=["ndcg@10"], convention="standard")["ndcg@10"]
        print(
            f"{name:24}{each[0]:12.4f}{each[1]:16.4f}{total:10.1f}{ndcg:10.4f}{sent:>18}{formula:>12}",
            flush=True,
        )

    for n in options.workers:
        with connected(n) as client, client.as_current():  # LightGBM looks for the current client
            client.run(_warm)
            each, sent, ranker, total = ours(client, data, settings)
            formula = 16 * 255 * options.features * (options.leaves - 1) * (n - 1) / n
            noun = "worker" if n == 1 else "workers"
            line(
                f"ours, {n} {noun}",
                each,
                total,
                ranker.predict(X),
                f"{sent / 1e6:.2f}",
                f"{formula / 1e6:.2f}",
            )
            each, booster, total = lightgbm(client, data, settings, n)
            line(f"lambdarank, {n} {noun}", each, total, booster.predict(X), "", f"{formula / 1e6:.2f}")


def _warm() -> None:
    import lightgbm

    import sinkprop.gbdt.ranker

    assert lightgbm
    assert sinkprop.gbdt.ranker


if __name__ == "__main__":
    main()
