"""One network trained with SinkProp and with other losses: five folds, five seeds, equal budgets.

    python benchmarks/neural.py OHSUMED                    the table, default network; about 15 minutes
    python benchmarks/neural.py OHSUMED --cache FOLDER     the same, keeping each fit: a second run resumes
    python benchmarks/neural.py OHSUMED --json FILE        everything as JSON too
    python benchmarks/neural.py OHSUMED --seeds 1          a first look
    python benchmarks/neural.py OHSUMED --network small    one hidden layer of 32 units, no dropout
    python benchmarks/neural.py OHSUMED --within           a second look, without a fold's test queries

OHSUMED is a folder with Fold1 to Fold5, each with train.txt, vali.txt and test.txt. Every loss gets the same
network, optimizer and number of epochs, and four settings: two learning rates, each with two settings of the
loss itself. In every fold and for every seed, the epoch and the setting are chosen on the validation queries,
before the test queries are ranked. A row is the mean over five folds and five seeds, with the standard
deviation of the five-fold means over seeds. The linear models have no seed.

`--within` trains on two thirds of a fold's training queries, selects on the remaining third, and reports on
the validation queries; each third is left out once. The validation queries of a fold are the test queries of
another fold, so over five folds these are the same queries, ranked by other networks.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

METRICS = ("ndcg@3", "ndcg@5", "ndcg@10", "map")
CRITERION = "ndcg@1-10"
FOLDS = range(1, 6)
# the same for all losses, chosen on the validation queries alone
COMMON: dict[str, Any] = {"input_transform": "log1p", "normalization": "standard", "patience": 20}
NETWORKS: dict[str, dict[str, Any]] = {
    "default": COMMON | {"network": {"hidden": (64, 32), "dropout": 0.5}, "max_epochs": 100},
    "small": COMMON | {"network": {"hidden": (32,), "dropout": 0.0}, "max_epochs": 60},
}
LEARNING_RATES = (3e-3, 1e-2)
# two settings per loss: its sharpness, if it has one
LOSSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sinkprop": ({"sigma": (1.0, 0.25)}, {"sigma": (0.5, 0.125)}),
    "sinkprop-laplace": (
        {"relaxation": "laplace", "sigma": (1.0, 0.25)},
        {"relaxation": "laplace", "sigma": (0.5, 0.125)},
    ),
    "listnet": ({"loss": "listnet"}, {"loss": "listnet", "weight_decay": 1.0}),
    "approxndcg": ({"loss": "approxndcg", "alpha": 1.0}, {"loss": "approxndcg", "alpha": 10.0}),
    "lambda": (
        {"loss": "lambdarank", "scheme": "lambdarank"},
        {"loss": "lambdarank", "scheme": "ndcg-loss2++"},
    ),
}
LINEAR = ("sinkprop", "sinkprop-best", "ridge")


def jobs(network: dict[str, Any], seeds: int, within: bool) -> Iterator[dict[str, Any]]:
    """Every fit. `fold` is a number or, with a third held out, fold and third, such as "1.2"."""
    folds = [f"{fold}.{third}" for fold in FOLDS for third in range(3)] if within else list(FOLDS)
    for name, fold in itertools.product(LINEAR, folds):
        yield {"method": f"linear {name}", "fold": fold}
    for seed, fold in itertools.product(range(seeds), folds):
        for name, rate in itertools.product(LOSSES, LEARNING_RATES):
            for own in LOSSES[name]:
                settings = network | own | {"learning_rate": rate}
                yield {"method": name, "fold": fold, "settings": settings, "seed": seed}


@lru_cache(maxsize=1)
def data(folder: str, fold: int | str) -> Any:
    """Queries for training, for validation and for the reported results."""
    from sinkprop import load_letor

    number, _, third = str(fold).partition(".")
    train, vali, test = (
        load_letor(f"{folder}/Fold{number}/{part}.txt") for part in ("train", "vali", "test")
    )
    if not third:
        return train, vali, test
    queries = np.unique(train.qid, return_inverse=True)[1]
    last = queries % 3 == int(third)
    return train.take(np.flatnonzero(~last)), train.take(np.flatnonzero(last)), vali


def one_fit(folder: str, cache: str, job: dict[str, Any]) -> dict[str, Any]:
    """The job with its criterion on the validation queries and its test means, from the cache if present."""
    name = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:24]
    kept = Path(cache, f"{name}.json")
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    import torch

    from sinkprop import evaluate

    torch.set_num_threads(1)
    train, vali, test = data(folder, job["fold"])
    ranker = a_ranker(job)
    before = time.process_time()
    ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
    seconds = time.process_time() - before
    result: dict[str, Any] = {"seconds": seconds}
    if "seed" in job:
        epochs = ranker.fit_result_.epochs
        chosen = next(i for i, epoch in enumerate(epochs) if epoch.chosen)
        result |= {"criterion": epochs[chosen].criterion, "epoch": chosen + 1, "epochs": len(epochs)}
    means = evaluate(test.y, ranker.predict(test.X), test.qid, metrics=METRICS, convention="letor")
    result["test"] = {metric: float(means[metric]) for metric in METRICS}
    found = {**job, **result}
    with tempfile.NamedTemporaryFile("w", dir=cache, delete=False, encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(file.name, kept)
    return found


def a_ranker(job: dict[str, Any]) -> Any:
    if "seed" not in job:
        from sinkprop.experiment.methods import METHODS

        ranker = METHODS[job["method"].removeprefix("linear ")].make()
        given = {"n_threads": 1, "verbose": False, "convention": "letor"}
        return ranker.set_params(**{k: v for k, v in given.items() if k in ranker.get_params()})
    from sinkprop.torch import MLP, Adam, NeuralRanker
    from sinkprop.torch.losses.baselines import LOSSES as BASELINES

    settings = dict(job["settings"])
    settings["network"] = MLP(**settings["network"])
    of_adam = ("learning_rate", "weight_decay")
    settings["optimizer"] = Adam(**{name: settings.pop(name) for name in of_adam if name in settings})
    of_the_loss = {name: settings.pop(name) for name in ("alpha", "scheme") if name in settings}
    if of_the_loss:
        settings["loss"] = partial(BASELINES[settings["loss"]], **of_the_loss)
    shared = {"criterion": CRITERION, "convention": "letor", "n_threads": 1, "verbose": False}
    return NeuralRanker(random_state=job["seed"], **shared, **settings)


def summary(found: list[dict[str, Any]], seeds: int) -> list[dict[str, Any]]:
    """One row per method: means over folds and seeds, and the standard deviation of the means over seeds."""
    rows = []
    for method in (*LOSSES, *(f"linear {name}" for name in LINEAR)):
        fits = [fit for fit in found if fit["method"] == method]
        linear = "seed" not in fits[0]
        by_seed = []
        chosen = []
        for seed in (None,) if linear else range(seeds):
            of_seed = [fit for fit in fits if fit.get("seed") == seed]
            best = [
                max((f for f in of_seed if f["fold"] == fold), key=lambda f: f.get("criterion", 0.0))
                for fold in dict.fromkeys(f["fold"] for f in of_seed)
            ]
            chosen += best
            by_seed.append([np.mean([fit["test"][metric] for fit in best]) for metric in METRICS])
        spread = None
        if len(by_seed) > 1:
            spread = dict(zip(METRICS, np.std(by_seed, axis=0, ddof=1).tolist(), strict=True))
        rows.append(
            {
                "method": method,
                "test": dict(zip(METRICS, np.mean(by_seed, axis=0).tolist(), strict=True)),
                "spread": spread,
                "by_seed": [list(map(float, row)) for row in by_seed],
                "criterion": None if linear else float(np.mean([fit["criterion"] for fit in chosen])),
                "seconds": float(np.mean([fit["seconds"] for fit in fits])),
                "chosen": [
                    {"seed": f.get("seed"), "fold": f["fold"], "epoch": f.get("epoch")}
                    | {k: v for k, v in f.get("settings", {}).items() if k not in NETWORKS["small"]}
                    for f in chosen
                ],
            }
        )
    return rows


def as_text(rows: list[dict[str, Any]]) -> str:
    heads = ("", "NDCG@3", "NDCG@5", "NDCG@10", "MAP", "validation", "seconds a fit")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        cells = [f"`{row['method']}`"]
        for metric in METRICS:
            spread = "" if row["spread"] is None else f" ± {row['spread'][metric]:.4f}".replace("0.", ".")
            cells.append(f"{row['test'][metric]:.4f}".replace("0.", ".", 1) + spread)
        value = row["criterion"]
        cells += ["" if value is None else f"{value:.4f}".replace("0.", ".", 1), f"{row['seconds']:.2g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder with Fold1 to Fold5")
    parser.add_argument(
        "--network", choices=list(NETWORKS), default="default", help="network to train  [default: default]"
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds  [default: 5]")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes, of one thread each")
    parser.add_argument("--within", action="store_true", help="do not use the test queries of each fold")
    parser.add_argument("--cache", type=Path, help="folder that keeps every fit")
    parser.add_argument("--json", type=Path, help="file for the results as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as nowhere:
        cache = Path(nowhere) if options.cache is None else options.cache
        cache.mkdir(parents=True, exist_ok=True)
        todo = list(jobs(NETWORKS[options.network], options.seeds, options.within))
        found: list[dict[str, Any] | None] = [None] * len(todo)
        began = time.perf_counter()
        with ProcessPoolExecutor(options.jobs) as pool:
            run = partial(one_fit, os.path.abspath(options.folder), str(cache))
            futures = {pool.submit(run, job): i for i, job in enumerate(todo)}
            for done, future in enumerate(as_completed(futures), start=1):
                found[futures[future]] = future.result()
                if done % 50 == 0 or done == len(todo):
                    print(f"{done} of {len(todo)} fits, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    rows = summary([fit for fit in found if fit is not None], options.seeds)
    print(as_text(rows))
    if options.json:
        record = {
            "network": NETWORKS[options.network],
            "learning_rates": LEARNING_RATES,
            "losses": LOSSES,
            "criterion": CRITERION,
            "seeds": options.seeds,
            "within": options.within,
            "rows": rows,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
