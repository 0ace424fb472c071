"""The limit of the Sinkhorn normalization against a number of iterations: time, values, gradients, models.

    python benchmarks/converged.py DATA              everything, about ten minutes
    python benchmarks/converged.py --only time       one part: time, products, accuracy or models

DATA is a folder with OHSUMED; the default is the environment variable SINKPROP_DATA. Without it, models are
trained on pydocs only. Scores of the first three parts are standard normal, labels are 0, 1 or 2 at random,
the gain is NDCG with LETOR's discount, and epsilon is 1e-6.

"time": processor time of value and gradient in one thread, as a multiple of the same with five iterations;
the smallest of many runs, which alternate. Lists of 10 come in batches of 1,000.

"products": products of A with a vector that the scaling takes to bring all row and column sums within 1e-9
or 1e-12 of 1, and the iterations (of two products) that the ordinary normalization takes to 1e-9.

"accuracy": how far a number of iterations is from the limit: the largest deviation of a column sum from 1,
the difference of the values, and the length of the difference of the gradients over that of the limit's.

"models": SinkPropRanker with one sigma, in units of the spread of the scores of the regression, from which
the fit starts; the penalty is chosen among three on the validation queries. Mean test NDCG@10 over all
folds (pydocs 5, OHSUMED 3), with the difference from five iterations and its 95 % interval from the paired
differences over queries (times 100), and the processor time of the fits over that with five iterations.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import (
    Annealing,
    Converged,
    PartitionedMeasure,
    Queries,
    SinkPropRanker,
    SmoothedIndicator,
    doubly_stochastic,
    evaluate,
    expected_gain,
    expected_ranks,
    load_letor,
)
from sinkprop.datasets import pydocs_folds

PARTS = ("time", "products", "accuracy", "models")
SIGMAS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)


def scores_and_labels(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.integers(0, 3, n)


def ratio(n, relaxation):
    """Processor time with the limit over that with five iterations."""
    queries = 1000 if n == 10 else 1
    y, labels = scores_and_labels(n * queries)
    if relaxation.width == 2:
        y = np.column_stack([y, np.full(len(y), -1.0)])
    qid = np.repeat(np.arange(queries), n)
    best = {5: np.inf, "converged": np.inf}
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < 2 or rounds < 6:
        rounds += 1
        for n_iter, least in best.items():
            start = time.process_time()
            expected_gain(y, labels, qid, relaxation=relaxation, n_iter=n_iter, n_threads=1)
            best[n_iter] = min(least, time.process_time() - start)
    return best["converged"] / best[5]


def times():
    print("time of value and gradient, over that with five iterations")
    print(
        f"  {'documents':>10}"
        + "".join(f"  {k} {s:g}" for k in ("gaussian", "laplace") for s in (1, 0.1, 0.01))
    )
    for n in (10, 100, 1000, 10**5, 10**6):
        row = [
            ratio(n, SmoothedIndicator(sigma, kernel=kernel))
            for kernel in ("gaussian", "laplace")
            for sigma in (1, 0.1, 0.01)
        ]
        print(f"  {n:10d}" + "".join(f"{r:12.2f}" for r in row), flush=True)
    for family in ("logit-logistic", "probit", "beta"):
        print(f"  {family}, 10, 100 and 500 documents:", end="")
        print("".join(f"{ratio(n, PartitionedMeasure(family)):8.2f}" for n in (10, 100, 500)), flush=True)


def products_needed(y, relaxation, tol):
    """Smallest number of products that brings every sum within `tol` of 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for most in range(1, 100):
            try:
                expected_ranks(y, relaxation=relaxation, n_iter=Converged(tol, most))
            except RuntimeWarning:
                continue
            return most
    raise AssertionError


def iterations_needed(y, relaxation, tol):
    """Smallest power of 2 of ordinary iterations after which every column sums to 1 up to `tol`, as text."""
    for power in range(17):
        Pi = doubly_stochastic(y, relaxation=relaxation, n_iter=2**power)
        if abs(Pi.sum(axis=0) - 1).max() <= tol:
            return f"at most {2**power}"
    return "more than 65536"


def products():
    print(
        "products until all sums are within 1e-9 and 1e-12 of 1; iterations of the ordinary normalization "
        "to 1e-9"
    )
    for kernel in ("gaussian", "laplace"):
        for sigma in SIGMAS:
            smoothed = SmoothedIndicator(sigma, kernel=kernel, accuracy="exact")
            y = scores_and_labels(100)[0]
            long = scores_and_labels(100_000)[0]
            found = [products_needed(y, smoothed, tol) for tol in (1e-9, 1e-12)]
            found += [products_needed(long, smoothed, 1e-9), iterations_needed(y, smoothed, 1e-9)]
            print(
                f"  {kernel:8} {sigma:5g}: n = 100: {found[0]:3d} {found[1]:3d}, n = 100,000: {found[2]:3d}; "
                f"ordinary, n = 100: {found[3]}",
                flush=True,
            )


def accuracy():
    print("distance from the limit, n = 100: column sums, value, gradient")
    for kernel in ("gaussian", "laplace"):
        for sigma in SIGMAS:
            smoothed = SmoothedIndicator(sigma, kernel=kernel, accuracy="exact")
            y, labels = scores_and_labels(100)
            limit = expected_gain(y, labels, relaxation=smoothed, n_iter=Converged(1e-13))
            cells = []
            for n_iter in (1, 5, 20):
                Pi = doubly_stochastic(y, relaxation=smoothed, n_iter=n_iter)
                r = expected_gain(y, labels, relaxation=smoothed, n_iter=n_iter)
                away = np.linalg.norm(r.gradient - limit.gradient) / np.linalg.norm(limit.gradient)
                column = abs(Pi.sum(axis=0) - 1).max()
                cells.append(f"{column:8.1e} {abs(r.value - limit.value):8.1e} {away:8.1e}")
            print(f"  {kernel:8} {sigma:5g}:  " + "  |  ".join(cells))


def folds_of(name: str, folder: Path | None) -> Iterator[tuple[Queries, Queries, Queries]]:
    if name == "pydocs":
        for fold in pydocs_folds():
            yield fold.train, fold.vali, fold.test
    elif folder is not None:
        for number in (1, 2, 3):
            files = [folder / name / f"Fold{number}" / f"{part}.txt" for part in ("train", "vali", "test")]
            yield tuple(load_letor(file) for file in files)


def models(folder):
    print("models: test NDCG@10, difference from five iterations (times 100), time of the fits")
    settings = (1, 5, 20, "converged")
    for name in ("pydocs", "OHSUMED"):
        folds = list(folds_of(name, folder))
        if not folds:
            continue
        for sigma in (2.0, 0.5, 0.125, 0.03):
            found, seconds = {}, dict.fromkeys(settings, 0.0)
            for n_iter in settings:
                values = []
                for train, vali, test in folds:
                    ranker = SinkPropRanker(
                        "ndcg@10",
                        penalty=(0.1, 0.01, 0.001),
                        annealing=Annealing(sigma, sigma),
                        selection="validation",
                        n_iter=n_iter,
                        max_iter=30,
                        n_threads=1,
                        verbose=False,
                    )
                    start = time.process_time()
                    ranker.fit(
                        train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid]
                    )
                    seconds[n_iter] += time.process_time() - start
                    result = evaluate(test.y, ranker.predict(test.X), test.qid, metrics=("ndcg@10",))
                    values.append(result.per_query["ndcg@10"])
                found[n_iter] = np.concatenate(values)
            cells = []
            for n_iter in settings:
                difference = 100 * (found[n_iter] - found[5])
                spread = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
                change = "" if n_iter == 5 else f" {difference.mean():+.2f} +- {spread:.2f}"
                cells.append(
                    f"{n_iter}: {found[n_iter].mean():.4f}{change}, {seconds[n_iter] / seconds[5]:.2f}"
                )
            print(f"  {name} sigma {sigma:g}: " + "; ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=os.environ.get("SINKPROP_DATA"))
    parser.add_argument("--only", choices=PARTS)
    given = parser.parse_args()
    parts = {"time": times, "products": products, "accuracy": accuracy, "models": lambda: models(given.data)}
    for name in PARTS:
        if given.only in (None, name):
            parts[name]()


if __name__ == "__main__":
    main()
