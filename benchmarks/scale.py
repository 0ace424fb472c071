"""The cost of one evaluation of a linear fit on a cluster, measured on a few workers and extrapolated.

    python benchmarks/scale.py --folder DIR

An evaluation computes one value and gradient of the expected gain: the weights go to every worker, each
worker reads its rows, and the sums come back. Its time with N documents on P workers of T threads is fitted
by

    documents * N / (P T)  +  round  +  worker * P

where "documents" is the time per document on its worker, "round" the time of an empty round trip, and
"worker" the time that each worker adds at the scheduler, which talks to one worker after another. The first
comes from sets of several sizes on one and two workers of one thread; one worker of two threads is measured
for comparison. The others come from a set so small that there is nothing to compute, on 1 to 16 workers. More
workers than processors are acceptable here, because they only wait. The fit is then extrapolated to 10^9
documents. The network traffic is the pickled task and the pickled answer, counted in bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from cluster_speed import evaluate, objective
from larger_than_memory import DOCUMENTS, N_FEATURES, make

SIZES = (0.1, 0.4, 1.0)  # gigabytes of features
MANY = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the stored sets, which are created if missing"
    )
    parser.add_argument("--repeats", type=int, default=5, help="evaluations of each kind  [default: 5]")
    options = parser.parse_args()
    for size in (*SIZES, 0.0005):
        make(stored_set(options.folder, size), size)
    rows = [
        (workers, *measured(options.folder, size, workers, options.repeats))
        for size in SIZES
        for workers in (1, 2)
    ]
    threads = measured(options.folder, SIZES[-1], 1, options.repeats, threads=2)[1]
    print(f"{'workers':>8}{'documents':>12}{'seconds':>9}{'us/document':>13}")
    for workers, n, seconds in rows:
        print(f"{workers:8d}{n:12,d}{seconds:9.3f}{1e6 * seconds * workers / n:13.3f}")
    print(f"one worker of two threads, as many documents: {threads:.3f} s")
    waits = [
        (workers, measured(options.folder, 0.0005, workers, 4 * options.repeats)[1])
        for workers in (1, 2, 4, 8, 16)
    ]
    print("\nnothing to compute:")
    for workers, seconds in waits:
        print(f"{workers:8d} workers{1e3 * seconds:9.2f} ms")
    A = np.array([[1.0, workers] for workers, _ in waits])
    (at_once, per_worker), *_ = np.linalg.lstsq(A, np.array([s for _, s in waits]), rcond=None)
    loads = np.array([n / workers for workers, n, _ in rows])
    rest = np.array([s - at_once - per_worker * workers for workers, _, s in rows])
    per_document = float(loads @ rest / (loads @ loads))
    sizes(options.folder)
    products(options.folder)
    forecast(per_document, at_once, per_worker)


def stored_set(folder: Path, gigabytes: float) -> Path:
    return folder / f"simulated-{gigabytes:g}.queries"


@contextmanager
def workers_of(count: int, threads: int):
    from distributed import Client, LocalCluster

    from sinkprop.cluster import connected

    if threads == 1:
        with connected(count) as client:
            yield client
        return
    with (
        LocalCluster(n_workers=count, threads_per_worker=threads, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def measured(folder: Path, size: float, count: int, repeats: int, *, threads: int = 1) -> tuple[int, float]:
    """Number of documents and median seconds of an evaluation."""
    with (
        workers_of(count, threads) as client,
        objective(client, stored_set(folder, size)) as (f, relaxation, source),
    ):
        times = []
        for i in range(repeats + 1):  # the first opens the files
            began = time.perf_counter()
            evaluate(f, f.start * (1 + 0.01 * i), relaxation)
            times.append(time.perf_counter() - began)
        return source.n_rows, statistics.median(times[1:])


def sizes(folder: Path) -> None:
    """Bytes sent over the network for one worker per evaluation, and bytes that it reads."""
    from distributed.protocol.pickle import dumps

    from sinkprop import NDCG, SmoothedIndicator, open_queries
    from sinkprop.data.blocks import StoredSource
    from sinkprop.linear.tasks import Evaluate, Linear, Point
    from sinkprop.objective.native_terms import native_settings

    stored = open_queries(stored_set(folder, 0.0005))
    scorer = Linear(np.ones((1, N_FEATURES)), np.zeros(1))
    at = np.full(N_FEATURES, 12)
    settings = native_settings(SmoothedIndicator(1.0), 5, 1e-6)
    task = Evaluate((Point(0, scorer, 9, None, at, 10, 12),), NDCG(), settings)
    answer = StoredSource(stored, 1).run(task)
    print(f"\nto a worker {len(dumps(task)):,} bytes, back {len(dumps(answer)):,} bytes")
    print(
        f"read by it {4 * N_FEATURES + 8} bytes a document; {4 * N_FEATURES} flops in products with features"
    )


def products(folder: Path) -> None:
    """Print the time of the products of all columns, which a fit computes once, and of an evaluation."""
    from sinkprop.cluster import connected
    from sinkprop.linear.ascent import moments_of, regressions

    with connected(2) as client, objective(client, stored_set(folder, SIZES[-1])) as (f, relaxation, source):
        times, moments = [], moments_of(source)
        for run in (
            lambda: evaluate(f, f.start, relaxation),
            lambda: regressions([f.path], moments, f.scaling, [0.0]),
        ) * 3:
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        evaluation, pass_ = statistics.median(times[::2]), statistics.median(times[1::2])
        print(f"products of the columns: {pass_:.2f} s, as long as {pass_ / evaluation:.1f} evaluations")


def forecast(per_document: float, at_once: float, per_worker: float) -> None:
    print(
        f"\nT = {1e6 * per_document:.3f} us * documents / workers + {1e3 * at_once:.2f} ms + "
        f"{1e3 * per_worker:.3f} ms * workers"
    )
    print(f"{'cores':>8}{'threads a worker':>18}{'seconds an evaluation':>24}{'of which computing':>20}")
    for cores in (1, 10, 100, 1000, 10_000):
        for threads in (1, 16)[: 1 + (cores >= 100)]:
            compute = per_document * MANY / cores
            total = compute + at_once + per_worker * cores / threads
            print(f"{cores:8,d}{threads:18d}{total:24.3f}{100 * compute / total:19.0f}%")
    print(f"10^9 documents ({MANY / DOCUMENTS:,.0f} queries): fastest at", end=" ")
    fastest = [(per_document * MANY * threads / per_worker) ** 0.5 for threads in (1, 16)]
    print(f"{fastest[0]:,.0f} cores with a worker each, {fastest[1]:,.0f} with one for sixteen")


if __name__ == "__main__":
    main()
