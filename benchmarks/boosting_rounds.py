"""Time of a boosting round with SinkProp's derivatives and with LightGBM's lambdarank, in one run.

    python benchmarks/boosting_rounds.py                    10,000 queries of 120 documents, two threads
    python benchmarks/boosting_rounds.py --queries 1000     a first look
    python benchmarks/boosting_rounds.py --features 136 --leaves 63 --threads 1

Both use the same data, already in LightGBM's bins, and the same tree parameters. After some rounds that do
not count, the rounds of the objectives alternate, so that other work on the machine affects all of them.
Times are medians. Ratios are medians over adjacent rounds, with quartiles. A third objective is given the
derivatives that SinkProp has just computed and grows the same tree from them. SinkProp's time minus this time
is the cost of its derivatives. Lambdarank's time minus this time is about the cost of its derivatives, since
its trees differ. SinkProp's derivatives are also timed alone, with the scores of the last round.

The last lines have as many documents in lists of 20,000, which lambdarank does not support.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np

from sinkprop.data import group_rows
from sinkprop.gbdt import Derivatives, TreeLoss, lightgbm_objective

LONG = 20_000


def problem(n_queries: int, size: int, n_features: int) -> tuple[Any, Any, Any]:
    """Random features, labels 0 to 4, most of them 0, and query sizes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_queries * size, n_features)).astype(np.float32)
    relevance = X[:, 0] * (X[:, 1] > 0) + 0.5 * X[:, 2] + rng.normal(size=len(X))
    return X, np.digitize(relevance, [0.4, 1.2, 2.0, 2.8]).astype(float), np.full(n_queries, size)


def rounds(
    X: Any, y: Any, sizes: Any, objectives: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Seconds of the rounds of each objective, which is a LightGBM name or a Python function."""
    shared = {
        "num_leaves": options.leaves,
        "num_threads": options.threads,
        "learning_rate": 0.1,
        "force_col_wise": True,
        "metric": "none",
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(X, y, group=sizes, params=shared, free_raw_data=False).construct()
    updates: dict[str, Callable[[], Any]] = {}
    for name, objective in objectives.items():
        own = {"lambdarank_truncation_level": options.truncation} if objective == "lambdarank" else {}
        stated = "none" if callable(objective) else objective
        booster = lightgbm.Booster({**shared, **own, "objective": stated}, rows)
        fobj = objective if callable(objective) else None
        updates[name] = lambda booster=booster, fobj=fobj: booster.update(fobj=fobj)
    times: dict[str, list[float]] = {name: [] for name in updates}
    for number in range(options.warm + options.rounds):
        for name, update in updates.items():
            began = time.perf_counter()
            update()
            if number >= options.warm:
                times[name].append(time.perf_counter() - began)
    return {name: np.array(own) for name, own in times.items()}


class Kept:
    """An objective that keeps its last scores and derivatives."""

    def __init__(self, objective: Any) -> None:
        self.objective = objective
        self.scores: Any = None
        self.derivatives: tuple[Any, Any] = (None, None)

    def __call__(self, scores: Any, rows: Any) -> tuple[Any, Any]:
        self.scores, self.derivatives = scores, self.objective(scores, rows)
        return self.derivatives

    def given(self, scores: Any, rows: Any) -> tuple[Any, Any]:
        return self.derivatives


def alone(of: Derivatives, scores: Any, repetitions: int) -> float:
    """Median seconds to compute SinkProp's derivatives."""
    times = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        of(scores)
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=10_000, help="number of queries  [default: 10000]")
    parser.add_argument("--size", type=int, default=120, help="documents per query  [default: 120]")
    parser.add_argument("--features", type=int, default=40, help="number of features  [default: 40]")
    parser.add_argument("--leaves", type=int, default=31, help="maximum leaves per tree  [default: 31]")
    parser.add_argument("--truncation", type=int, default=30, help="truncation level of lambdarank")
    parser.add_argument("--threads", type=int, default=2, help="number of threads  [default: 2]")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds that count")
    parser.add_argument("--warm", type=int, default=3, help="number of rounds before those")
    options = parser.parse_args()

    X, y, sizes = problem(options.queries, options.size, options.features)
    print(
        f"{options.queries} queries of {options.size} documents, {options.features} features, "
        f"{options.leaves} leaves, {options.threads} threads, median of {options.rounds} rounds"
    )
    ours = Kept(lightgbm_objective(n_threads=options.threads))
    found = rounds(X, y, sizes, {"ours": ours, "tree": ours.given, "lambdarank": "lambdarank"}, options)
    groups = group_rows(np.repeat(np.arange(len(sizes)), sizes), len(y))
    of = Derivatives(TreeLoss(), y, groups, n_threads=options.threads)
    gradient = alone(of, np.array(ours.scores, dtype=np.float64), options.rounds)
    seconds = {name: float(np.median(own)) for name, own in found.items()}
    beyond = {name: float(np.median(found[name] - found["tree"])) for name in ("ours", "lambdarank")}
    print(f"{'':18}{'a round':>12}{'beyond the tree':>18}{'derivatives alone':>20}")
    print(f"{'sinkprop':18}{seconds['ours']:10.3f} s{beyond['ours']:16.3f} s{gradient:18.3f} s")
    print(f"{'lambdarank':18}{seconds['lambdarank']:10.3f} s{beyond['lambdarank']:16.3f} s")
    print(f"{'our trees alone':18}{seconds['tree']:10.3f} s")
    print(f"a round of ours takes {ratio(found['ours'], found['lambdarank'])} of lambdarank's")
    print(f"our derivatives take {gradient / seconds['ours']:.0%} of our round")

    n_long = len(y) // LONG
    if not n_long:
        return
    X, y, sizes = X[: n_long * LONG], y[: n_long * LONG], np.full(n_long, LONG)
    try:
        rounds(X, y, sizes, {"lambdarank": "lambdarank"}, options)
        refused = "takes them"
    except lightgbm.basic.LightGBMError as error:
        refused = f"refuses: {error}"
    found = rounds(X, y, sizes, {"ours": ours, "rank_xendcg": "rank_xendcg"}, options)
    print(f"{n_long} lists of {LONG} documents: lambdarank {refused}")
    print(f"a round of ours takes {ratio(found['ours'], found['rank_xendcg'])} of rank_xendcg's")


def ratio(a: Any, b: Any) -> str:
    low, middle, high = np.quantile(a / b, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
