"""Networks and losses of `NeuralRanker` on several sets: paired differences over test queries.

    python benchmarks/networks.py pydocs simulated interactions        sets that come with the package
    python benchmarks/networks.py DATA/OHSUMED DATA/lightgbm-example   Fold1 to Fold5, or rank.train
    python benchmarks/networks.py DATA/MQ2007-agg --queries 300        at most 300 training queries
    python benchmarks/networks.py pydocs --methods mlp-sinkprop mlp-lambdarank --cache FILE

Every method has the defaults of `NeuralRanker`, except for its network and loss, and for a gain with the
discount log2. Seed s is fitted on fold s, the validation queries select the epoch, and the test queries are
ranked once, so that five seeds rank every test query of five folds. A simulated set is drawn anew for each
seed. LightGBM's example has one test set, whose values are averaged over the seeds. A row has the mean over
queries of NDCG@1, 3, 5 and 10 and of their mean, and the difference of that mean to the first method, with
its standard error over the queries. With --cache, each fit is appended to a file, and a second run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")
COMMON: dict[str, Any] = {"gain": "ndcg(discount=log2)", "criterion": "ndcg@1-10", "verbose": False}
METHODS: dict[str, dict[str, Any]] = {
    "mlp-sinkprop": {},
    "mlp-sinkprop-no-start": {"start_epochs": 0},
    "mlp-lambdarank": {"loss": "lambdarank"},
    "mlp-approxndcg": {"loss": "approxndcg"},
    "mlp-listnet": {"loss": "listnet"},
    "mlp-sinkprop-x3": {"n_networks": 3},
    "mlp-sinkprop-noise": {"input_noise": 0.5},
    "attention-sinkprop": {"attention": True},
    "attention-lambdarank": {"attention": True, "loss": "lambdarank"},
    "attention-approxndcg": {"attention": True, "loss": "approxndcg"},
    "attention-sinkprop-x3": {"attention": True, "n_networks": 3},
}


@lru_cache(maxsize=1)
def parts(name: str, seed: int, most: int) -> tuple[Any, Any, Any]:
    """Training, validation and test queries of a set for a seed from 0."""
    from sinkprop import load_letor, load_query_sizes
    from sinkprop.datasets import load_pydocs, make_ranking

    rng = np.random.default_rng(seed)
    folder = Path(name)
    if name == "pydocs":
        fold = load_pydocs(seed % 5 + 1)
        return fold.train, fold.vali, fold.test
    if name in ("simulated", "binary", "interactions"):
        kinds: dict[str, dict[str, Any]] = {
            "simulated": {},
            "binary": {"labels": "binary"},
            "interactions": {"interactions": 0.8, "noise": 0.5},
        }
        n = min(1200 if name == "interactions" else 500, most)
        queries = make_ranking(n + 500, random_state=200 + seed, sizes=(5, 40), **kinds[name])
        cuts = ((1, n + 1), (n + 1, n + 201), (n + 201, n + 501))
        return tuple(taken(queries, range(*ends)) for ends in cuts)
    if (folder / "rank.train").exists():
        train, test = (
            load_letor(folder / part, group=load_query_sizes(folder / f"{part}.query"))
            for part in ("rank.train", "rank.test")
        )
        ids = rng.permutation(np.unique(train.qid))
        return taken(train, ids[50:]), taken(train, ids[:50]), test
    where = folder / f"Fold{seed % 5 + 1}"
    train, vali, test = (
        load_letor(where / f"{part}.txt", allow_nan=True) for part in ("train", "vali", "test")
    )
    ids = rng.permutation(np.unique(train.qid))[:most]
    return taken(train, ids), vali, test


def taken(queries: Any, ids: Any) -> Any:
    return queries.take(np.flatnonzero(np.isin(queries.qid, np.asarray(ids))))


def one_fit(name: str, method: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Settings, time, and the metrics of each test query."""
    from sinkprop import evaluate
    from sinkprop.torch import ListTransformer, NeuralRanker

    train, vali, test = parts(name, seed, options.queries)
    settings = dict(METHODS[method])
    if settings.pop("attention", False):
        settings["network"] = ListTransformer()
    limits = {"max_epochs": options.epochs, "patience": options.patience}
    ranker = NeuralRanker(**COMMON, **limits, **settings, random_state=seed, n_threads=1)
    before = time.process_time()
    ranker.fit(train, eval_set=vali)
    seconds = time.process_time() - before
    found = evaluate(test, ranker.predict(test), metrics=METRICS).per_query
    values = [np.asarray(found[metric], dtype=float).round(6).tolist() for metric in METRICS]
    fit = ranker.fit_result_
    return {
        "set": Path(name).name,
        "method": method,
        "seed": seed,
        "seconds": round(seconds, 2),
        "validation": fit.chosen.criterion if fit.value is None else fit.value,
        "curve": [round(epoch.criterion, 4) for epoch in fit.epochs[:10]],
        "values": values,
    }


def rows_of(fits: list[dict[str, Any]], methods: list[str]) -> list[str]:
    """The table of one set; seeds that the first method has not been fitted with do not count."""

    def values(method: str) -> dict[int, Any]:
        return {f["seed"]: np.array(f["values"]) for f in fits if f["method"] == method}

    first, lines = values(methods[0]), []
    for method in methods:
        own = values(method)
        seeds = sorted(own.keys() & first.keys())
        if not seeds:
            continue
        once = fits[0]["set"] == "lightgbm-example"  # the same test queries for every seed
        mine, base = (
            np.mean([of[s] for s in seeds], axis=0)
            if once
            else np.concatenate([of[s] for s in seeds], axis=1)
            for of in (own, first)
        )
        apart = (mine - base).mean(axis=0)
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        cells = [f"{x:.4f}" for x in (*mine.mean(axis=1), mine.mean())]
        seconds = np.mean([f["seconds"] for f in fits if f["method"] == method])
        difference = "" if method == methods[0] else f"{100 * apart.mean():+.2f} ({100 * error:.2f})"
        lines.append(f"| {' | '.join([method, *cells, difference, str(len(seeds)), f'{seconds:.1f}'])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", help="pydocs, simulated, binary, interactions, or folders")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds  [default: 5]")
    parser.add_argument("--queries", type=int, default=10**9, help="largest number of training queries")
    parser.add_argument("--epochs", type=int, default=100, help="largest number of epochs  [default: 100]")
    parser.add_argument("--patience", type=int, default=20, help="epochs without improvement  [default: 20]")
    parser.add_argument("--cache", type=Path, help="file to which each fit is appended")
    options = parser.parse_args()
    fits = []
    if options.cache is not None and options.cache.exists():
        fits = [json.loads(line) for line in options.cache.read_text(encoding="utf-8").splitlines()]
    known = {(fit["set"], fit["method"], fit["seed"]) for fit in fits}
    for name in options.sets:
        for seed in range(options.seeds):
            for method in options.methods:
                if (Path(name).name, method, seed) in known:
                    continue
                fits.append(one_fit(name, method, seed, options))
                if options.cache is not None:
                    with options.cache.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(fits[-1]) + "\n")
                print(f"{name} {method} {seed}: {fits[-1]['seconds']} s", file=sys.stderr)
        print(f"\n{Path(name).name}\n")
        print("| method | NDCG@1 | 3 | 5 | 10 | mean | difference (error), times 100 | seeds | seconds |")
        print(f"|{'---|' * 9}")
        print("\n".join(rows_of([f for f in fits if f["set"] == Path(name).name], options.methods)))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
