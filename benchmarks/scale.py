"""The cost of one evaluation of a linear fit, measured on one and two worker processes, and carried further.

    python benchmarks/scale.py --folder DIR

An evaluation is one value and gradient of the expected gain: the weights go to every worker, each reads its
rows, and the sums come back. Its time on P workers of one thread each with N documents is fitted by

    T = documents * N / P  +  round  +  worker * P

with the seconds that a document takes where it is, those of a round trip however small, and those that each
further worker adds at the scheduler, which speaks with one after the other. The first comes from sets of
several sizes on one and two workers; the others from a set so small that nothing is computed, on 1 to 16
workers, which is allowed here because they only wait. Then the fit is carried to 10^9 documents. What crosses
the network is the pickled task and the pickled answer, counted in bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from larger_than_memory import DOCUMENTS, N_FEATURES, make

SIZES = (0.1, 0.4, 1.0)  # gigabytes of features
MANY = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the sets are made, or are")
    parser.add_argument("--repeats", type=int, default=5, help="evaluations of each kind  [default: 5]")
    options = parser.parse_args()
    for size in (*SIZES, 0.0005):
        make(options.folder / f"simulated-{size:g}.queries", size)
    rows = [
        (workers, *measured(options.folder, size, workers, options.repeats))
        for size in SIZES
        for workers in (1, 2)
    ]
    print(f"{'workers':>8}{'documents':>12}{'seconds':>9}{'us/document':>13}")
    for workers, n, seconds in rows:
        print(f"{workers:8d}{n:12,d}{seconds:9.3f}{1e6 * seconds * workers / n:13.3f}")
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
    forecast(per_document, at_once, per_worker)


@contextmanager
def workers_of(count: int):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def objective(folder: Path, size: float, client):
    """The expected gain of the set's queries on the cluster, and a set of weights."""
    from sinkprop import NDCG, Selection, SmoothedIndicator
    from sinkprop.arrangement import arrange
    from sinkprop.ascent import Objective, Start, moments_of
    from sinkprop.cluster import cluster_source
    from sinkprop.scaling import scaling_of

    relaxation = SmoothedIndicator(1.0)
    with cluster_source(client, folder / f"simulated-{size:g}.queries") as source:
        (path,) = arrange(source, source, Selection("validation"), np.random.default_rng(0)).paths
        moments = moments_of(source)
        scaling = scaling_of("standard", moments.mean, moments.deviation)
        w = np.random.default_rng(1).normal(size=N_FEATURES)
        start = Start(w, np.zeros(N_FEATURES))
        settings = {"gain": NDCG(), "n_iter": 5, "epsilon": 1e-6, "resample": 0, "seed": 0}
        yield Objective(path, moments, scaling, relaxation, start, **settings), relaxation, source


def measured(folder: Path, size: float, count: int, repeats: int) -> tuple[int, float]:
    """Documents, and the median seconds of an evaluation."""
    with workers_of(count) as client, objective(folder, size, client) as (f, relaxation, source):
        times = []
        for i in range(repeats + 1):  # the first opens the files
            began = time.perf_counter()
            f.value(f.start * (1 + 0.01 * i), relaxation)
            times.append(time.perf_counter() - began)
        return source.n_rows, statistics.median(times[1:])


def sizes(folder: Path) -> None:
    """Bytes that cross the network for one worker in one evaluation, and those that it reads."""
    from distributed.protocol.pickle import dumps

    from sinkprop import NDCG, SmoothedIndicator, open_queries
    from sinkprop.passes import Evaluate, Linear
    from sinkprop.sources import StoredSource

    stored = open_queries(folder / "simulated-0.0005.queries")
    scorer = Linear(np.ones((1, N_FEATURES)), np.zeros(1))
    at = np.full(N_FEATURES, 12)
    task = Evaluate(0, scorer, SmoothedIndicator(1.0), NDCG(), 5, 1e-6, 9, None, at, 10, 12)
    answer = StoredSource(stored, 1).run(task)
    print(f"\nto a worker {len(dumps(task)):,} bytes, back {len(dumps(answer)):,} bytes")
    print(
        f"read by it {4 * N_FEATURES + 8} bytes a document; {4 * N_FEATURES} flops in products with features"
    )


def forecast(per_document: float, at_once: float, per_worker: float) -> None:
    print(
        f"\nT = {1e6 * per_document:.3f} us * documents / workers + {1e3 * at_once:.2f} ms + "
        f"{1e3 * per_worker:.3f} ms * workers"
    )
    print(f"{'workers':>8}{'seconds an evaluation':>24}{'of which computing':>20}")
    for workers in (1, 10, 100, 1000, 10_000):
        compute = per_document * MANY / workers
        total = compute + at_once + per_worker * workers
        print(f"{workers:8,d}{total:24.3f}{100 * compute / total:19.0f}%")
    fastest = (per_document * MANY / per_worker) ** 0.5
    print(f"10^9 documents ({MANY / DOCUMENTS:,.0f} queries): fastest at {fastest:,.0f} workers")


if __name__ == "__main__":
    main()
