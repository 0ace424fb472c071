"""Treatments of missing values for linear and neural rankers, on MQ2007-agg.

    python benchmarks/missing.py MQ2007-agg                      SinkPropRanker; about half an hour
    python benchmarks/missing.py MQ2007-agg --ranker neural      NeuralRanker; about half an hour
    python benchmarks/missing.py MQ2007-agg --folds 1 2          the first two folds

`MQ2007-agg` is a folder with the five folds of LETOR 4.0 MQ2007-agg, in which a missing value is written
NULL. Each treatment fills the missing values before the ranker sees them. Means and indicators come from the
training queries. The validation queries select the stage or the epoch of each fit, and their NDCG@10 compares
the treatments. The test queries are printed for reference and decide nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import Queries, SinkPropRanker, evaluate, load_letor

Rows = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranker", choices=["linear", "neural"], default="linear")
    parser.add_argument("--normalization", choices=["standard", "query"], default="standard")
    parser.add_argument("--treatments", nargs="+", choices=list(TREATMENTS), default=list(TREATMENTS))
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--max-iter", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    means: dict[str, list[tuple[float, float]]] = {name: [] for name in options.treatments}
    for fold in options.folds:
        parts = [
            load_letor(options.folder / f"Fold{fold}" / f"{part}.txt", allow_nan=True)
            for part in ("train", "vali", "test")
        ]
        for name in options.treatments:
            began = time.perf_counter()
            means[name].append(measured(TREATMENTS[name], parts, options))
            vali, test = means[name][-1]
            print(
                f"fold {fold}  {name:<24} vali {vali:.4f}  test {test:.4f}"
                f"  {time.perf_counter() - began:5.0f} s",
                flush=True,
            )
    print(f"\n{'treatment':<24}{'vali NDCG@10':>14}{'test NDCG@10':>14}   means of folds {options.folds}")
    for name, found in means.items():
        vali, test = np.mean(found, axis=0)
        print(f"{name:<24}{vali:>14.4f}{test:>14.4f}")


def measured(treat: Treatment, parts: list[Queries], options: argparse.Namespace) -> tuple[float, float]:
    """NDCG@10 of the validation and the test queries, after a fit to the training queries."""
    train, vali, test = (
        replace(part, X=X, feature_names=None)
        for part, X in zip(parts, treat(parts, [part.X for part in parts]), strict=True)
    )
    ranker = new_ranker(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker.fit(train, eval_set=vali)
    found = [
        evaluate(part, ranker.predict(part), metrics="ndcg@10", convention="standard")["ndcg@10"]
        for part in (vali, test)
    ]
    return found[0], found[1]


def new_ranker(options: argparse.Namespace) -> Any:
    shared = {"n_threads": options.threads, "normalization": options.normalization, "verbose": False}
    if options.ranker == "linear":
        return SinkPropRanker(selection="validation", max_iter=options.max_iter, **shared)
    from sinkprop.torch import NeuralRanker

    return NeuralRanker(**shared)


Treatment = Callable[[list[Queries], list[Rows]], list[Rows]]


def constant(fill: Callable[[Rows], Rows]) -> Treatment:
    """Fill each feature with one value, which `fill` computes from the training rows."""

    def treat(parts: list[Queries], X: list[Rows]) -> list[Rows]:
        values = fill(X[0])
        return [np.where(np.isnan(x), values, x) for x in X]

    return treat


def by_query(fill: Callable[..., Rows], elsewhere: Callable[[Rows], Rows]) -> Treatment:
    """Fill each feature with a value of its query, or of the training rows if it has none."""

    def treat(parts: list[Queries], X: list[Rows]) -> list[Rows]:
        values, filled = elsewhere(X[0]), []
        for part, x in zip(parts, X, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy warns if a query has no value of a feature
                own = np.stack([fill(x[part.groups.codes == q], axis=0) for q in range(part.n_queries)])
            own = np.where(np.isnan(own), values, own)
            filled.append(np.where(np.isnan(x), own[part.groups.codes], x))
        return filled

    return treat


def with_indicator(treat: Treatment) -> Treatment:
    """Add a column of 0 and 1 for each feature that has missing values in the training rows."""

    def treated(parts: list[Queries], X: list[Rows]) -> list[Rows]:
        some = np.isnan(X[0]).any(axis=0)
        return [
            np.concatenate([filled, np.isnan(x[:, some]).astype(np.float64)], axis=1)
            for filled, x in zip(treat(parts, X), X, strict=True)
        ]

    return treated


def training_mean(X: Rows) -> Rows:
    return np.nanmean(X, axis=0)


TREATMENTS: dict[str, Treatment] = {
    "zero": constant(lambda X: np.zeros(X.shape[1])),
    "mean": constant(training_mean),
    "median": constant(lambda X: np.nanmedian(X, axis=0)),
    "minimum": constant(lambda X: np.nanmin(X, axis=0)),
    "maximum": constant(lambda X: np.nanmax(X, axis=0)),
    "query mean": by_query(np.nanmean, training_mean),
    "query minimum": by_query(np.nanmin, training_mean),
    "query maximum": by_query(np.nanmax, training_mean),
}
TREATMENTS |= {
    f"{name} + indicator": with_indicator(TREATMENTS[name])
    for name in ("zero", "mean", "query mean", "query maximum")
}


if __name__ == "__main__":
    main()
