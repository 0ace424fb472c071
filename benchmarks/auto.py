"""AutoRanker beside each of its members, all fitted to the same training and validation queries.

    python benchmarks/auto.py --pydocs 1,2                    folds of the bundled data set
    python benchmarks/auto.py OHSUMED --folds 1,2             folds of a LETOR data set
    python benchmarks/auto.py MQ2007-agg --folds 1 --queries 80 --samples 3
                                                             small samples of a fold's training queries

Every ranker has its defaults and `fit(train, eval_set=vali)`; a sample takes a quarter of its queries for
validation. The numbers are test means of NDCG@1, 3, 5 and 10, and the standard error, over queries, of the
difference to AutoRanker.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import AutoRanker, Fold, Queries, SinkPropRanker, evaluate, load_letor
from sinkprop.baselines import RegressionRanker
from sinkprop.datasets import load_pydocs
from sinkprop.gbdt import BoostedRanker
from sinkprop.torch import NeuralRanker

METRICS = "ndcg@1,ndcg@3,ndcg@5,ndcg@10"


def singles() -> dict[str, Any]:
    return {
        "ridge": RegressionRanker(penalty="auto", normalization="standard", verbose=False),
        "linear": SinkPropRanker(verbose=False),
        "trees": BoostedRanker(verbose=False),
        "networks": NeuralRanker(verbose=False),
    }


def folds_of(options: argparse.Namespace) -> Iterator[Fold]:
    for number in options.pydocs:
        fold = load_pydocs(number)
        yield Fold(f"pydocs {number}", fold.train, fold.vali, fold.test)
    for number in options.folds if options.folder else ():
        folder = options.folder / f"Fold{number}"
        train, vali, test = (
            load_letor(folder / f"{part}.txt", allow_nan=True) for part in ("train", "vali", "test")
        )
        name = f"{options.folder.name} {number}"
        if not options.queries:
            yield Fold(name, train, vali, test)
            continue
        ids = np.unique(train.qid)
        for sample in range(options.samples):
            drawn = np.random.default_rng([number, sample]).permutation(ids)[: options.queries]
            n = options.queries * 3 // 4
            yield Fold(f"{name}, sample {sample}", train.select(drawn[:n]), train.select(drawn[n:]), test)


def values_of(ranker: Any, test: Queries) -> np.ndarray:
    found = evaluate(test, ranker.predict(test), metrics=METRICS)
    return np.mean(list(found.per_query.values()), axis=0)


def run(fold: Fold, budget: float) -> dict[str, np.ndarray]:
    values, n = {}, fold.train.n_queries + fold.vali.n_queries
    print(f"{fold.name}: {n} queries to learn from, {fold.test.n_queries} to test", flush=True)
    auto = AutoRanker(time_budget=budget, verbose=False)
    for name, ranker in {"auto": auto, **singles()}.items():
        began, processor = time.perf_counter(), time.process_time()
        ranker.fit(fold.train, eval_set=fold.vali)
        seconds = time.perf_counter() - began, time.process_time() - processor
        values[name] = values_of(ranker, fold.test)
        apart = values[name] - values["auto"]
        error = np.nanstd(apart, ddof=1) / np.sqrt(np.isfinite(apart).sum())
        print(
            f"  {name:10s} {np.nanmean(values[name]):.4f}  {np.nanmean(apart):+.4f} ± {error:.4f}  "
            f"{seconds[0]:6.1f} s, {seconds[1]:6.1f} s of processor",
            flush=True,
        )
    print("  " + str(auto.fit_result_).replace("\n", "\n  "), flush=True)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)

    def numbers(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--folds", type=numbers, default=[1])
    parser.add_argument("--pydocs", type=numbers, default=[])
    parser.add_argument("--queries", type=int, default=0)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = [run(fold, options.budget) for fold in folds_of(options)]
    print("means over all sets")
    for name in found[0]:
        means = np.array([np.nanmean(values[name]) for values in found])
        behind = means - [np.nanmean(values["auto"]) for values in found]
        print(f"  {name:10s} {means.mean():.4f}  {behind.mean():+.4f}, largest {behind.max():+.4f}")


if __name__ == "__main__":
    main()
