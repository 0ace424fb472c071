"""The discount that rankers are trained with: LETOR's, which is the same for ranks 1 and 2, against log2's.

    python benchmarks/discount.py pydocs
    python benchmarks/discount.py DATA/OHSUMED --folds 1,2
    python benchmarks/discount.py DATA/MQ2007-agg --folds 1 --queries 300
    python benchmarks/discount.py pydocs --methods network --seeds 3

`SinkPropRanker`, `BoostedRanker` and `NeuralRanker` with their defaults are trained on the expected NDCG with
either discount; the validation queries are theirs to select a model with. Both are tested by NDCG in the
convention "standard", whose discount is log2's. "difference" is log2 less LETOR's in the mean of the four
metrics, times 100, with its standard error over the test queries of all folds and seeds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import Fold, Queries, SinkPropRanker, evaluate
from sinkprop.datasets import load_pydocs
from sinkprop.experiment import find_data_sets

METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")
DISCOUNTS = ("letor", "log2")


def trees(**parameters: Any) -> Any:
    from sinkprop.gbdt import BoostedRanker

    return BoostedRanker(**parameters)


def network(**parameters: Any) -> Any:
    from sinkprop.torch import NeuralRanker

    return NeuralRanker(**parameters)


RANKERS: dict[str, Callable[..., Any]] = {"linear": SinkPropRanker, "trees": trees, "network": network}


def tested(make: Callable[..., Any], fold: Fold, discount: str, seed: int) -> np.ndarray:
    """Values (4, Q) of the metrics of the test queries after training with a discount."""
    ranker = make(gain=f"ndcg(discount={discount})", random_state=seed, n_threads=1, verbose=False)
    ranker.fit(fold.train, eval_set=[fold.vali])
    result = evaluate(fold.test, ranker.predict(fold.test), metrics=METRICS, convention="standard")
    return np.array([result.per_query[metric] for metric in METRICS])


def folds_of(data: str, numbers: list[int], n_queries: int | None) -> list[Fold]:
    """Folds of pydocs or of a folder, with at most `n_queries` training queries, drawn at random."""
    if data == "pydocs":
        folds = [load_pydocs(fold=number) for number in numbers]
    else:
        (found,) = find_data_sets(data, folds=numbers)
        parts = [(files.name, files.read()) for files in found.folds]
        folds = [Fold(name, part.train, part.vali, part.test) for name, part in parts]
    return folds if n_queries is None else [_smaller(fold, n_queries) for fold in folds]


def _smaller(fold: Fold, n_queries: int) -> Fold:
    def drawn(queries: Queries, n: int) -> Queries:
        ids = np.random.default_rng(1).permutation(queries.groups.queries)[:n]
        return queries.take(np.flatnonzero(np.isin(queries.qid, ids)))

    return Fold(fold.name, drawn(fold.train, n_queries), drawn(fold.vali, n_queries // 3), fold.test)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help='"pydocs", or the folder of a data set')
    parser.add_argument("--folds", default="1,2,3,4,5", help="numbers of the folds")
    parser.add_argument("--queries", type=int, help="number of training queries; a third as many validate")
    parser.add_argument("--methods", default=",".join(RANKERS), help="any of linear, trees, network")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of each fit")
    given = parser.parse_args()
    folds = folds_of(given.data, [int(number) for number in given.folds.split(",")], given.queries)
    name = given.data if given.data == "pydocs" else Path(given.data).name
    print(f"| {name} | discount | {' | '.join(METRICS)} | difference | seconds a fit |")
    print(f"|---|---|{'---|' * (len(METRICS) + 2)}", flush=True)
    for method in given.methods.split(","):
        values, seconds = {}, {}
        for discount in DISCOUNTS:
            began = time.process_time()
            runs = [
                np.concatenate([tested(RANKERS[method], fold, discount, seed) for fold in folds], axis=1)
                for seed in range(given.seeds)
            ]
            values[discount] = np.mean(runs, axis=0)
            seconds[discount] = (time.process_time() - began) / len(folds) / given.seeds
        apart = (values["log2"] - values["letor"]).mean(axis=0)
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        for discount in DISCOUNTS:
            cells = [f"{value:.4f}".lstrip("0") for value in values[discount].mean(axis=1)]
            shown = f"{100 * apart.mean():+.2f} ({100 * error:.2f})" if discount == "log2" else ""
            row = [method, discount, *cells, shown, f"{seconds[discount]:.1f}"]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
