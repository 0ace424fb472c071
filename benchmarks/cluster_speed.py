"""One Dask worker process against two, with one thread each: time of an evaluation and of a short fit.

    python benchmarks/cluster_speed.py --folder DIR [--queries 20000]

Creates a stored set in the folder, with 120 documents per query and 136 features, or uses an existing one.
Both clusters run all the time and take turns, so that other work on the machine affects both. The fits must
have the same weights as a fit in this process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from larger_than_memory import DOCUMENTS, N_FEATURES, make

ASKED, CLOSE = 1.7, 1e-8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the stored set, which is created if missing"
    )
    parser.add_argument("--queries", type=int, default=20_000, help="number of queries  [default: 20000]")
    parser.add_argument("--repeats", type=int, default=9, help="evaluations on each cluster  [default: 9]")
    parser.add_argument("--fits", type=int, default=3, help="fits on each cluster  [default: 3]")
    options = parser.parse_args()
    gigabytes = (options.queries - 0.5) * 4 * N_FEATURES * DOCUMENTS / 1e9
    path = options.folder / f"simulated-{options.queries}-queries.queries"
    make(path, gigabytes)
    compare(path, options.repeats, options.fits)


def compare(path: Path, repeats: int, n_fits: int) -> None:
    from sinkprop import open_queries
    from sinkprop.cluster import connected

    stored = open_queries(path)
    print(f"{stored.n_queries:,} queries, {len(stored):,} documents, {stored.n_features} features")
    with ExitStack() as stack:
        clients = {count: stack.enter_context(connected(count)) for count in (1, 2)}
        seconds = evaluations(stack, clients, stored, repeats)
        alone, alone_seconds = fitted(stored, None)
        fits: dict[int, list[float]] = {count: [] for count in clients}
        away = dict.fromkeys(clients, 0.0)
        for _ in range(n_fits):
            for count, client in clients.items():
                weights, fit_seconds = fitted(stored, client)
                fits[count].append(fit_seconds)
                away[count] = max(away[count], float(np.abs(weights - alone).max()))
    print(f"\n{'workers':>8}{'evaluation':>12}{'fit':>10}{'weights differ by':>20}")
    print(f"{'none':>8}{'':12}{alone_seconds:8.2f} s")
    taken = {count: statistics.median(times) for count, times in fits.items()}
    for count in clients:
        print(f"{count:8d}{seconds[count]:10.3f} s{taken[count]:8.2f} s{away[count]:20.1e}")
    ratio, of_fits = seconds[1] / seconds[2], taken[1] / taken[2]
    print(f"\ntwo workers against one: evaluation {ratio:.2f} times, fit {of_fits:.2f} times as fast")
    print(f"asked: {ASKED}; weights within {CLOSE:g}")


def evaluations(stack: ExitStack, clients: dict, stored, repeats: int) -> dict[int, float]:
    """Median seconds of an evaluation on each cluster; the clusters take turns."""
    climbs = {count: stack.enter_context(objective(client, stored)) for count, client in clients.items()}
    times: dict[int, list[float]] = {count: [] for count in clients}
    for i in range(repeats + 1):  # the first opens the files
        for count, (f, relaxation, _) in climbs.items():
            began = time.perf_counter()
            evaluate(f, f.start * (1 + 0.01 * i), relaxation)
            times[count].append(time.perf_counter() - began)
    return {count: statistics.median(all_times[1:]) for count, all_times in times.items()}


@contextmanager
def objective(client, stored):
    """The expected gain of the queries on a cluster, its relaxation, and the source of the queries."""
    from sinkprop import Selection, SmoothedIndicator
    from sinkprop.cluster import cluster_source
    from sinkprop.data.feature_scaling import scaling_of
    from sinkprop.linear.ascent import Objective, moments_of
    from sinkprop.linear.paths import arrange

    relaxation = SmoothedIndicator(1.0)
    with cluster_source(client, stored) as source:
        rng = np.random.default_rng(0)
        (path,) = arrange(source, source, Selection("validation"), rng, averaged=False).paths
        moments = moments_of(source)
        scaling = scaling_of("standard", moments.mean, moments.deviation)
        start = np.random.default_rng(1).normal(size=source.n_features)
        mean = np.zeros(source.n_features)
        yield Objective(path, moments, scaling, relaxation, start, mean, 1.0), relaxation, source


def evaluate(f, W, relaxation):
    """The expected gain at weights W, and its gradient."""
    from sinkprop import NDCG
    from sinkprop.linear.ascent import Evaluation

    return Evaluation(NDCG(), 5, 1e-6, 0, 0).values([f], {0: W}, relaxation)[0]


def fitted(stored, client) -> tuple[np.ndarray, float]:
    """The weights and the seconds of a short fit, in this process on one thread or on a cluster."""
    from sinkprop import Annealing, SinkPropRanker

    ranker = SinkPropRanker(
        penalty=1e-3, annealing=Annealing(4, 1), max_iter=4, n_threads=1, cluster=client, verbose=False
    )
    began = time.perf_counter()
    ranker.fit(stored)
    return ranker.coef_, time.perf_counter() - began


if __name__ == "__main__":
    main()
