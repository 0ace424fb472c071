"""BoostedRanker's efforts against the defaults of LightGBM, XGBoost and CatBoost: NDCG and processor time.

    python benchmarks/boosting_effort.py DATA --cache fits.jsonl   all problems; a second run resumes
    python benchmarks/boosting_effort.py --only simulated,pydocs   problems that need no files
    python benchmarks/boosting_effort.py DATA --methods default,catboost --modes all

DATA is a folder that contains OHSUMED/Fold1 and Fold3, MQ2007-agg/Fold1, and lightgbm-example/rank.train and
rank.test with their .query files. The default is the environment variable SINKPROP_DATA.

Two modes: in "validation", all methods get the same validation queries to select their number of trees; in
"all", the training and validation queries are one training set. The methods:

    fast, default, best       BoostedRanker with this effort
    lambdarank                LightGBM's defaults; at most 500 trees with validation queries, else 100
    xgboost                   XGBoost's defaults with rank:ndcg, likewise
    catboost                  CatBoost's defaults with YetiRank: 1,000 trees, use_best_model with validation
    catboost-ndcg             the same with YetiRank:mode=NDCG
    catboost-rmse             the same with QueryRMSE

LightGBM and XGBoost stop after 50 trees that are not better, by the mean of NDCG@1, 3, 5 and 10; CatBoost
after 100, by its NDCG@10. Each fit has one thread. The table has the mean of NDCG@1, 3, 5 and 10 over the
test queries ("standard" convention, without queries that have no relevant document). In parentheses are the
lead of the first method and its standard error over queries, times 100. z is the sum of lead / error over
data sets, divided by the square root of their number. The time is the median over the problems of the
method's processor time divided by that of the first method.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from boosting import EMPTY, METRICS, Source, by_query, criterion, folds_of, sizes

from sinkprop import Queries, load_letor
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.metrics import evaluate

Parts = tuple[Queries, Queries, Queries]
EFFORTS = ("default", "fast", "best")
METHODS = ("default", "fast", "lambdarank", "xgboost", "catboost", "catboost-ndcg", "catboost-rmse")
LOSSES = {"catboost": "YetiRank", "catboost-ndcg": "YetiRank:mode=NDCG", "catboost-rmse": "QueryRMSE"}
SIMULATED: dict[str, dict[str, Any]] = {
    "simulated-linear": {"nonlinearity": 0.0},
    "simulated-nonlinear": {"nonlinearity": 1.0},
    "simulated-noisy": {"noise": 2.5},
    "simulated-few": {},  # 60 training queries
    "simulated-irrelevant": {"n_noise_features": 100},
}


def letor(folder: Path) -> Parts:
    train, vali, test = (
        load_letor(folder / f"{part}.txt", allow_nan=True) for part in ("train", "vali", "test")
    )
    return by_query(train), by_query(vali), by_query(test)


def mq2007(folder: Path) -> Parts:
    """400 of the training queries and 130 of the validation queries; all test queries."""
    train, vali, test = letor(folder)
    rng = np.random.default_rng(1)

    def some(queries: Queries, n: int) -> Queries:
        return by_query(queries.select(np.sort(rng.permutation(queries.groups.queries)[:n])))

    return some(train, 400), some(vali, 130), test


def simulated(kind: str) -> Parts:
    counts = (60, 20, 250) if kind == "simulated-few" else (240, 80, 250)
    queries = make_ranking(sum(counts), random_state=0, **SIMULATED[kind])
    ids = np.split(np.random.default_rng(0).permutation(queries.groups.queries), np.cumsum(counts)[:2])
    train, vali, test = (by_query(queries.select(np.sort(own))) for own in ids)
    return train, vali, test


def of_fold(fold: Any) -> Parts:
    return by_query(fold.train), by_query(fold.vali), by_query(fold.test)


def problems(data: str | None) -> dict[str, Callable[[], Parts]]:
    """Problems by name, "data set/number"."""
    found: dict[str, Callable[[], Parts]] = {}
    if data:
        example = Source("lightgbm", "lightgbm", str(Path(data) / "lightgbm-example"))
        for i in (1, 3):
            found[f"ohsumed/{i}"] = lambda i=i: letor(Path(data) / "OHSUMED" / f"Fold{i}")
        found["mq2007/1"] = lambda: mq2007(Path(data) / "MQ2007-agg" / "Fold1")
        for i in (1, 2, 3):
            found[f"lightgbm/{i}"] = lambda i=i: of_fold(folds_of(example)[i - 1])
    for i in (1, 3):
        found[f"pydocs/{i}"] = lambda i=i: of_fold(pydocs_folds()[i - 1])
    for kind in SIMULATED:
        found[f"{kind}/0"] = lambda kind=kind: simulated(kind)
    return found


def pooled(train: Queries, vali: Queries) -> Queries:
    """Training and validation queries together, renumbered."""
    X, y = np.concatenate([train.X, vali.X]), np.concatenate([train.y, vali.y])
    counts = np.concatenate([sizes(train), sizes(vali)])
    return Queries(X, y, np.repeat(np.arange(len(counts)), counts), allow_nan=True)


def fit(method: str, train: Queries, vali: Queries | None) -> Callable[[Any], Any]:
    """A function from features to scores."""
    if method in EFFORTS:
        return fit_ours(method, train, vali)
    if method in LOSSES:
        return fit_catboost(LOSSES[method], train, vali)
    return fit_xgboost(train, vali) if method == "xgboost" else fit_lightgbm(train, vali)


def fit_ours(effort: str, train: Queries, vali: Queries | None) -> Callable[[Any], Any]:
    from sinkprop.gbdt import BoostedRanker

    ranker = BoostedRanker(effort=effort, n_threads=1, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of trees that ran out, and of a busy machine
        ranker.fit(train, eval_set=vali)
    return ranker.predict


def fit_lightgbm(train: Queries, vali: Queries | None) -> Callable[[Any], Any]:
    import lightgbm

    given = {
        "objective": "lambdarank", "metric": "none", "num_threads": 1, "seed": 0, "deterministic": True,
        "force_col_wise": True, "verbosity": -1,
    }  # fmt: skip
    rows = lightgbm.Dataset(train.X, train.y, group=sizes(train))
    if vali is None:
        return lightgbm.train(given, rows, num_boost_round=100).predict
    booster = lightgbm.train(
        given,
        rows,
        num_boost_round=500,
        valid_sets=[lightgbm.Dataset(vali.X, vali.y, group=sizes(vali), reference=rows)],
        feval=lambda scores, _: ("criterion", criterion(vali.y, scores, vali.qid), True),
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    return lambda X: booster.predict(X, num_iteration=booster.best_iteration)


def fit_xgboost(train: Queries, vali: Queries | None) -> Callable[[Any], Any]:
    import xgboost

    def rows(queries: Queries) -> Any:
        return xgboost.DMatrix(queries.X, queries.y, group=sizes(queries), nthread=1)

    given = {
        "objective": "rank:ndcg", "tree_method": "hist", "disable_default_eval_metric": True, "nthread": 1,
        "seed": 0, "verbosity": 0,
    }  # fmt: skip
    if vali is None:
        booster, best = xgboost.train(given, rows(train), num_boost_round=100), 100
    else:
        booster = xgboost.train(
            given,
            rows(train),
            num_boost_round=500,
            evals=[(rows(vali), "vali")],
            custom_metric=lambda scores, _: ("criterion", criterion(vali.y, scores, vali.qid)),
            maximize=True,
            early_stopping_rounds=50,
            verbose_eval=False,
        )
        best = int(booster.best_iteration) + 1
    return lambda X: booster.predict(xgboost.DMatrix(X, nthread=1), iteration_range=(0, best))


def fit_catboost(loss: str, train: Queries, vali: Queries | None) -> Callable[[Any], Any]:
    import catboost

    def rows(queries: Queries) -> Any:
        counts = sizes(queries)
        return catboost.Pool(queries.X, queries.y, group_id=np.repeat(np.arange(len(counts)), counts))

    given = {"loss_function": loss, "thread_count": 1, "random_seed": 0, "allow_writing_files": False}
    if vali is None:
        return catboost.CatBoost({**given, "verbose": False}).fit(rows(train)).predict
    model = catboost.CatBoost({**given, "eval_metric": "NDCG:top=10;type=Exp", "verbose": False})
    model.fit(rows(train), eval_set=rows(vali), use_best_model=True, early_stopping_rounds=100)
    return model.predict


def measured(parts: Parts, method: str, mode: str) -> tuple[list[float], float]:
    """The mean of the four metrics for each test query, and the processor time of the fit in seconds."""
    train, vali, test = parts
    began = time.process_time()
    predict = fit(method, pooled(train, vali), None) if mode == "all" else fit(method, train, vali)
    seconds = time.process_time() - began
    found = evaluate(test.y, predict(test.X), test.qid, metrics=METRICS, convention="standard", empty=EMPTY)
    values = np.mean(list(found.per_query.values()), axis=0)
    return [round(float(x), 6) for x in values[~np.isnan(values)]], round(seconds, 2)


def table(fits: dict[tuple[str, str, str], Any], mode: str, methods: list[str]) -> str:
    """Table of one mode, over the problems that all its methods were fitted to."""
    names = {m: {p for (p, o, n) in fits if (o, n) == (mode, m)} for m in methods}
    names = {m: found for m, found in names.items() if found}
    common = sorted(set.intersection(*names.values())) if names else []
    sets = list(dict.fromkeys(name.split("/")[0] for name in common))
    lines = ["| | " + " | ".join(sets) + " | z | time |", "|---|" + "---|" * (len(sets) + 2)]
    first = next(iter(names), "")
    for method in names:
        cells, ratios = [], []
        for name in sets:
            own = [p for p in common if p.split("/")[0] == name]
            values, best = (np.concatenate([fits[p, mode, m]["v"] for p in own]) for m in (method, first))
            lead, error = (best - values).mean(), np.std(best - values, ddof=1) / np.sqrt(len(values))
            ratios.append(lead / error if error > 0 else 0.0)
            told = "" if method == first else f" ({100 * lead:+.2f}, {100 * error:.2f})"
            cells.append(f"{values.mean():.4f}{told}".removeprefix("0"))
        z = "" if method == first else f"{np.sum(ratios) / np.sqrt(len(ratios)):+.1f}"
        seconds = [[fits[p, mode, m]["seconds"] for p in common] for m in (method, first)]
        taken = np.median(np.divide(*seconds))
        lines.append(f"| `{method}` | {' | '.join(cells)} | {z} | {taken:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default=os.environ.get("SINKPROP_DATA"))
    parser.add_argument("--only", default="", help="comma-separated parts of the names of problems")
    parser.add_argument("--methods", default=",".join(METHODS), help="[default: %(default)s]")
    parser.add_argument("--modes", default="validation,all", help="[default: %(default)s]")
    parser.add_argument("--cache", type=Path, help="file that keeps each fit, one per line")
    options = parser.parse_args()
    fits: dict[tuple[str, str, str], Any] = {}
    if options.cache and options.cache.exists():
        for record in map(json.loads, options.cache.read_text(encoding="utf-8").splitlines()):
            fits[record["problem"], record["mode"], record["method"]] = record
    methods, chosen = options.methods.split(","), options.only.split(",")
    for mode in options.modes.split(","):
        for name, parts in problems(options.data).items():
            if not any(part in name for part in chosen):
                continue
            for method in methods:
                if (name, mode, method) in fits:
                    continue
                values, seconds = measured(parts(), method, mode)
                record = {"problem": name, "mode": mode, "method": method, "seconds": seconds, "v": values}
                fits[name, mode, method] = record
                if options.cache:
                    with options.cache.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(record) + "\n")
        print(f"{mode}:\n\n{table(fits, mode, methods)}\n", flush=True)


if __name__ == "__main__":
    main()
