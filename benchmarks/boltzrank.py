"""BoltzRank: its cost, and the effect of its settings and random draws on its results.

    python benchmarks/boltzrank.py cost              times of the objective, and of pair potentials two ways
    python benchmarks/boltzrank.py within OHSUMED    effect of selection and seeds, no test queries; minutes
    python benchmarks/boltzrank.py settings OHSUMED  five-fold test means with other settings; minutes

`within` trains on two thirds of a fold's training queries, selects on the remaining third, and reports on the
validation queries; each third is left out once. `settings` reports test results for every setting. Use them
to explain a difference, not to choose a setting.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

METRICS = ("ndcg@3", "ndcg@5", "ndcg@10", "map")
CHOSEN_BY = "criterion"
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"single, random_state {seed}": {"random_state": seed} for seed in range(8)},
    "single, chosen by ndcg@3": {CHOSEN_BY: "ndcg@3"},
    "single, chosen by ndcg@5": {CHOSEN_BY: "ndcg@5"},
    "single, chosen by cross-validation": {"selection": "cross-validation"},
    **{f"single, mixing {mixing}": {"mixing": mixing, "penalty": p} for mixing, p in (
        (0.0, (3.0, 1.0, 0.3, 0.1)), (0.9, (0.3, 0.1, 0.03, 0.01)), (1.0, (0.3, 0.1, 0.03, 0.01, 0.003))
    )},
    **{f"single, {n} rankings": {"n_rankings": n} for n in (30, 100, 1000)},
    **{f"single, sharpness {sharpness}": {"sharpness": sharpness} for sharpness in (0.1, 0.2, 0.8, 3.0)},
    "single, ndcg@5": {"gain": "ndcg@5"},
    **{f"pair, random_state {seed}": {"potential": "pair", "random_state": seed} for seed in range(4)},
    "pair, 30 hidden units": {"potential": "pair", "n_hidden": 30},
}  # fmt: skip


def settings(options: argparse.Namespace) -> None:
    """Print five-fold test means."""
    jobs = [(options.folder, fold, name) for name in SETTINGS for fold in range(1, 6)]
    print(f"{'setting':<40}" + "".join(f"{name:>10}" for name in METRICS))
    with ProcessPoolExecutor(options.processes) as pool:
        found = pool.map(one_fold, jobs)
        for name in SETTINGS:
            means = np.mean([next(found) for _ in range(5)], axis=0)
            print(f"{name:<40}" + "".join(f"{mean:>10.4f}" for mean in means), flush=True)


def one_fold(job: tuple[str, int, str]) -> list[float]:
    from sinkprop import Selection, evaluate, load_letor
    from sinkprop.baselines import BoltzRankRanker

    folder, fold, name = job
    train, vali, test = (load_letor(f"{folder}/Fold{fold}/{part}.txt") for part in ("train", "vali", "test"))
    given = dict(SETTINGS[name])
    if CHOSEN_BY in given:
        given["selection"] = Selection("validation", criterion=given.pop(CHOSEN_BY))
    ranker = BoltzRankRanker(n_threads=1, verbose=False, convention="letor", **given)
    ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
    scores = ranker.predict(test.X, qid=test.qid)
    return list(evaluate(test.y, scores, test.qid, metrics=METRICS, convention="letor").values())


WITHIN: dict[str, tuple[str, dict[str, Any]]] = {
    "regression": ("RegressionRanker", {}),
    "ListNet": ("ListNetRanker", {}),
    "SmoothRank": ("SmoothRankRanker", {}),
    "single": ("BoltzRankRanker", {}),
    **{f"single, penalty {p:g}": ("BoltzRankRanker", {"penalty": p}) for p in (3, 1, 0.3, 0.1, 0.03)},
    "single, chosen by cross-validation": ("BoltzRankRanker", {"selection": "cross-validation"}),
    "single, mixing 0.9, penalty 0.03": ("BoltzRankRanker", {"mixing": 0.9, "penalty": 0.03}),
    "single, 1000 rankings": ("BoltzRankRanker", {"n_rankings": 1000}),
    "pair": ("BoltzRankRanker", {"potential": "pair"}),
}


def within(options: argparse.Namespace) -> None:
    """Print means over the validation queries of five folds, three splits of each fold, and four seeds."""
    seeds = {name: range(4 if kind == "BoltzRankRanker" else 1) for name, (kind, _) in WITHIN.items()}
    jobs = [
        (options.folder, fold, name, seed, third)
        for name in WITHIN for seed in seeds[name] for fold in range(1, 6) for third in range(3)
    ]  # fmt: skip
    print(f"{'':<40}" + "".join(f"{name:>10}" for name in METRICS) + "   standard deviation over seeds")
    with ProcessPoolExecutor(options.processes) as pool:
        found = pool.map(one_division, jobs)
        for name in WITHIN:
            means = [np.mean([next(found) for _ in range(15)], axis=0) for _ in seeds[name]]
            cells = "".join(f"{mean:>10.4f}" for mean in np.mean(means, axis=0))
            if len(means) > 1:
                cells += "   " + "".join(f"{x:>8.4f}" for x in np.std(means, axis=0, ddof=1))
            print(f"{name:<40}{cells}", flush=True)


def one_division(job: tuple[str, int, str, int, int]) -> list[float]:
    from sinkprop import baselines, evaluate, load_letor

    folder, fold, name, seed, third = job
    train, vali = (load_letor(f"{folder}/Fold{fold}/{part}.txt") for part in ("train", "vali"))
    thirds = np.array_split(train.groups.queries, 3)
    validation = train.select(thirds.pop(third))
    rest = train.select(np.concatenate(thirds))
    kind, given = WITHIN[name]
    ranker = getattr(baselines, kind)(**given)
    known = ranker.get_params()
    ranker.set_params(**{k: v for k, v in {"random_state": seed, "n_threads": 1}.items() if k in known})
    ranker.fit(
        rest.X, rest.y, qid=rest.qid, eval_set=[(validation.X, validation.y)], eval_qid=[validation.qid]
    )
    scores = ranker.predict(vali.X, qid=vali.qid)
    return list(evaluate(vali.y, scores, vali.qid, metrics=METRICS, convention="letor").values())


def cost(options: argparse.Namespace) -> None:
    """Print milliseconds for value and gradient of 100 queries on one thread, the best of several runs."""
    from threadpoolctl import threadpool_limits

    from sinkprop import NDCG
    from sinkprop.baselines.boltzmann import BoltzmannObjective, draw_rankings
    from sinkprop.serving.soft_ranks import SoftRanks

    heads = ("objective", "soft ranks", "by pairs", "ratio")
    print("300 rankings a query; 10 hidden units")
    print(f"{'documents a query':<20}" + "".join(f"{head:>12}" for head in heads))
    for m in options.sizes:
        rng = np.random.default_rng(m)
        offsets = np.arange(0, 100 * m + 1, m)
        y, s = rng.integers(0, 3, 100 * m).astype(np.float64), rng.normal(size=100 * m)
        sets = [draw_rankings(y[a : a + m], 300, rng) for a in offsets[:-1]]
        objective = BoltzmannObjective(y, offsets, sets.__getitem__, gain=NDCG(), sharpness=0.4)
        a, F_bar = rng.normal(size=(100 * m, 10)), rng.normal(size=(100 * m, 10))
        soft = SoftRanks(offsets)
        with threadpool_limits(1):
            times = [
                best_time(lambda objective=objective, s=s: objective(s, 0.5)),
                best_time(lambda soft=soft, a=a, g=F_bar: soft.reverse(soft.forward(a)[1], g)),
                best_time(lambda a=a, g=F_bar, m=m: by_pairs(a, g, m)),
            ]
        cells = "".join(f"{1e3 * t:>12.1f}" for t in times)
        print(f"{m:<20}{cells}{times[2] / times[1]:>12.1f}", flush=True)


def by_pairs(a: Floats, F_bar: Floats, m: int) -> tuple[Floats, Floats]:
    """Soft ranks and their reverse pass as sums over all pairs, query by query."""
    F, a_bar = np.empty_like(a), np.empty_like(a)
    for first in range(0, len(a), m):
        rows = slice(first, first + m)
        t = a[rows, None] - a[None, rows]
        kernel = np.exp(-np.abs(t))
        F[rows] = (np.sign(t) * (1 - kernel)).sum(axis=1) / (m - 1)
        g = F_bar[rows]
        a_bar[rows] = (g * kernel.sum(axis=1) - np.einsum("jkh,kh->jh", kernel, g)) / (m - 1)
    return F, a_bar


def best_time(call: Callable[[], Any], seconds: float = 1.0, most: int = 100) -> float:
    """CPU seconds of the fastest of several calls, after one that does not count."""
    call()
    times, until = [], time.perf_counter() + seconds
    while len(times) < 3 or (len(times) < most and time.perf_counter() < until):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = parser.add_subparsers(required=True)
    costs = sections.add_parser("cost")
    costs.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[10, 100, 300],
        help="documents per query  [default: 10 100 300]",
    )
    costs.set_defaults(section=cost)
    for section in (within, settings):
        means = sections.add_parser(section.__name__)
        means.add_argument("folder", help="folder with Fold1 to Fold5")
        means.add_argument("--processes", type=int, default=2, help="number of processes  [default: 2]")
        means.set_defaults(section=section)
    options = parser.parse_args()
    options.section(options)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
