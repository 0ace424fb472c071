"""Rankers trained on MAP or MRR and evaluated by it, against the same trained on NDCG, and tree libraries.

    python benchmarks/trained_on_metric.py DATA             all sets, among them simulated known items
    python benchmarks/trained_on_metric.py --only pydocs    data that need no files: pydocs, known-item

DATA is a folder with OHSUMED (five folds; labels of at least 1 are relevant) and NP2004-part (30 queries with
one relevant document each, divided into five folds here). The default is the environment variable
SINKPROP_DATA. In "known-item", each of 2,000 training and 5,000 test queries has 200 documents, of which one
is relevant: the best of a noisy sum of two features. A third feature, "match", marks only the item in three
of eight queries, and half of the other documents in the rest, so that a linear ranker has to weigh being
first in some queries against ranks further down in others. Two training samples.

Every ranker gets the training and the validation queries as one set, and chooses its hyperparameters by
itself: linear models by cross-validation (SinkPropRanker), trees by the mean of boosters that validate each
other (BoostedRanker, effort "default"). XGBoost ("rank:map", for binary labels) and LightGBM ("lambdarank")
stop early on the validation queries, by the metric. The table has the mean over all test queries, the
difference from the same kind of ranker trained on NDCG and its 95 % interval, from the paired differences
over queries (times 100).
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from sinkprop import Queries, SinkPropRanker, evaluate, load_letor
from sinkprop.datasets import pydocs_folds
from sinkprop.gbdt import BoostedRanker, lightgbm_metric, xgboost_metric

Parts = tuple[Queries, Queries, Queries]
METRICS = {"map": "map", "mrr": "mrr@10"}
SETS = ("OHSUMED", "NP2004-part", "pydocs", "known-item")


def known_item(n_queries: int, seed: int, *, share: float = 0.375, n: int = 200) -> Queries:
    """Queries with one relevant document; `share` of them are named by the feature "match"."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries, n, 4))
    rows = np.arange(n_queries)
    item = (0.8 * X[:, :, 0] + 0.6 * X[:, :, 1] + rng.normal(size=(n_queries, n))).argmax(axis=1)
    named = rng.random(n_queries) < share
    X[:, :, 3] = (rng.random((n_queries, n)) < 0.5) & ~named[:, None]
    X[rows, item, 3] = named
    y = np.zeros((n_queries, n))
    y[rows, item] = 1
    return Queries(X.reshape(-1, 4), y.reshape(-1), np.repeat(rows, n))


def joined(*parts: Queries) -> Queries:
    ids = [np.char.add(f"{i}-", part.qid.astype(str)) for i, part in enumerate(parts)]
    return Queries(
        np.concatenate([part.X for part in parts]), np.concatenate([p.y for p in parts]), np.concatenate(ids)
    )


def binary(queries: Queries) -> Queries:
    return Queries(queries.X, (queries.y >= 1) * 1.0, queries.qid)


def splits(queries: Queries, n: int = 5) -> Iterator[Parts]:
    """Divide queries into n folds: one for tests, one for validation, and the others for training."""
    ids = np.random.default_rng(0).permutation(queries.groups.queries)
    folds = np.array_split(ids, n)
    for i in range(n):
        rest = np.concatenate([folds[j] for j in range(n) if j not in (i, (i + 1) % n)])
        yield queries.select(rest), queries.select(folds[(i + 1) % n]), queries.select(folds[i])


def folds_of(name: str, folder: Path) -> list[Parts]:
    if name == "OHSUMED":
        parts = ("train", "vali", "test")
        return [
            tuple(binary(load_letor(folder / name / f"Fold{i}" / f"{p}.txt")) for p in parts)  # type: ignore[misc]
            for i in range(1, 6)
        ]
    if name == "NP2004-part":
        files = sorted((folder / name / "Fold1").glob("*.txt"))
        return list(splits(joined(*map(load_letor, files))))
    if name == "pydocs":
        return [(binary(f.train), binary(f.vali), binary(f.test)) for f in pydocs_folds()]
    test = known_item(5000, 999)
    return [(known_item(1500, seed), known_item(500, seed + 100), test) for seed in (0, 1)]


def linear(gain: str) -> Callable[[Queries, Queries, str], Any]:
    return lambda train, vali, _: SinkPropRanker(gain=gain).fit(joined(train, vali)).predict


def trees(gain: str) -> Callable[[Queries, Queries, str], Any]:
    return lambda train, vali, _: BoostedRanker(gain=gain, random_state=0).fit(joined(train, vali)).predict


def lambdarank(train: Queries, vali: Queries, metric: str) -> Any:
    import lightgbm

    train, vali = (Queries(part.X[rows], part.y[rows], part.qid[rows]) for part, rows in _sorted(train, vali))
    data = lightgbm.Dataset(train.X, train.y, group=train.groups.sizes)
    held = lightgbm.Dataset(vali.X, vali.y, group=vali.groups.sizes, reference=data)
    parameters = {"objective": "lambdarank", "verbose": -1, "num_threads": 1, "metric": "none"}
    stop = lightgbm.early_stopping(50, verbose=False)
    own = lightgbm_metric(metric)
    booster = lightgbm.train(parameters, data, 500, valid_sets=[held], feval=own, callbacks=[stop])
    return booster.predict


def xgboost_map(train: Queries, vali: Queries, metric: str) -> Any:
    import xgboost

    train, vali = (Queries(part.X[rows], part.y[rows], part.qid[rows]) for part, rows in _sorted(train, vali))
    data, held = (xgboost.DMatrix(part.X, part.y) for part in (train, vali))
    data.set_group(train.groups.sizes)
    held.set_group(vali.groups.sizes)
    booster = xgboost.train(
        {"objective": "rank:map", "nthread": 1, "disable_default_eval_metric": 1},
        data,
        500,
        evals=[(held, "vali")],
        custom_metric=xgboost_metric(metric),
        maximize=True,
        early_stopping_rounds=50,
        verbose_eval=False,
    )
    best = (0, booster.best_iteration + 1)
    return lambda test: booster.predict(xgboost.DMatrix(test), iteration_range=best)


def _sorted(*parts: Queries) -> list[tuple[Queries, NDArray[Any]]]:
    return [(part, np.argsort(part.groups.codes, kind="stable")) for part in parts]


METHODS: dict[str, Callable[[Queries, Queries, str], Any]] = {
    "linear, ndcg": linear("ndcg"),
    "linear, map": linear("map"),
    "linear, mrr": linear("mrr"),
    "trees, ndcg": trees("ndcg"),
    "trees, map": trees("map"),
    "trees, mrr": trees("mrr"),
    "XGBoost rank:map": xgboost_map,
    "LightGBM lambdarank": lambdarank,
}


def fitted(method: str, parts: Parts) -> dict[str, NDArray[Any]]:
    """Metrics of each test query, by name; queries without a relevant document are left out.

    Only the tree libraries, which stop early by the metric, are fitted once per metric.
    """
    train, vali, test = parts
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for metric in METRICS.values():
            if not found or method in ("XGBoost rank:map", "LightGBM lambdarank"):
                scores = METHODS[method](train, vali, metric)(test.X)
            values = evaluate(test, scores, metrics=metric, empty="skip").per_query[metric]
            found[metric] = values[~np.isnan(values)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="?", default=os.environ.get("SINKPROP_DATA", "."), help="folder of data"
    )
    parser.add_argument("--only", default=",".join(SETS), help="names of sets, separated by commas")
    parser.add_argument("--methods", default=";".join(METHODS), help="names of methods, separated by ;")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes  [default: 2]")
    options = parser.parse_args()
    methods = options.methods.split(";")
    for name in options.only.split(","):
        folds = folds_of(name, Path(options.data))
        found = Parallel(options.jobs)(delayed(fitted)(m, parts) for m in methods for parts in folds)
        for objective, metric in METRICS.items():
            values = {
                method: np.concatenate(
                    [each[metric] for each in found[i * len(folds) : (i + 1) * len(folds)]]
                )
                for i, method in enumerate(methods)
            }
            print(f"\n{name}, {metric}, {len(values[methods[0]])} test queries")
            for method in methods:
                base = "trees, ndcg" if not method.startswith("linear") else "linear, ndcg"
                d = 100 * (values[method] - values.get(base, values[methods[0]]))
                error = 1.96 * d.std(ddof=1) / np.sqrt(len(d))
                lead = (
                    ""
                    if method == base
                    else f"{d.mean():+8.2f}  ({d.mean() - error:+.2f} to {d.mean() + error:+.2f})"
                )
                own = " *" if method.endswith(objective) else ""
                print(f"  {method:22s}{values[method].mean():8.4f}{lead}{own}", flush=True)


if __name__ == "__main__":
    main()
