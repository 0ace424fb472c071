"""The effect of gain, kernel, iterations and epsilon, one at a time, and three kinds of rankers on one task.

    python benchmarks/choosing.py settings         SinkPropRanker on pydocs, five folds, one change per row
    python benchmarks/choosing.py front-ends       linear, network and trees on pydocs and simulated queries

Every fit chooses its penalty, sigma, epoch or number of trees on the validation queries. Nothing is chosen on
the test queries. "±" is the standard error, over queries, of the difference of NDCG@10 from the first row.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import Annealing, Fold, SinkPropRanker, evaluate
from sinkprop.datasets import load_pydocs, make_ranking

METRICS = ("ndcg@1", "ndcg@5", "ndcg@10", "p@5", "map")
SETTINGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "gain ndcg@10": {"gain": "ndcg@10"},
    "gain ndcg@5": {"gain": "ndcg@5"},
    "gain ndcg(discount=letor)": {"gain": "ndcg(discount=letor)"},
    "gain ndcg(gain=linear)": {"gain": "ndcg(gain=linear)"},
    "gain p@5": {"gain": "p@5"},
    "gain rbp@0.8": {"gain": "rbp@0.8"},
    "kernel laplace": {"relaxation": "laplace"},
    "half an iteration": {"n_iter": 0.5, "epsilon": 0.0},
    "1 iteration": {"n_iter": 1},
    "2 iterations": {"n_iter": 2},
    "20 iterations": {"n_iter": 20},
    "epsilon 0": {"epsilon": 0.0},
    "epsilon 1e-3": {"epsilon": 1e-3},
    "annealing as SmoothRank": {"annealing": Annealing.smoothrank()},
    "features normalized by query": {"normalization": "query"},
}


def settings() -> None:
    folds = [load_pydocs(fold=i) for i in range(1, 6)]
    print(_head())
    first: np.ndarray | None = None
    for name, changed in SETTINGS.items():
        values, seconds = _tested(folds, lambda changed=changed: _linear(**changed))
        first = values["ndcg@10"] if first is None else first
        print(_row(name, values, values["ndcg@10"] - first, seconds / len(folds)), flush=True)


def front_ends() -> None:
    from sinkprop.gbdt import BoostedRanker
    from sinkprop.torch import NeuralRanker

    makers: dict[str, Callable[[], Any]] = {
        "linear: `SinkPropRanker`": _linear,
        "network: `NeuralRanker`": lambda: NeuralRanker(n_threads=1, verbose=False),
        "trees: `BoostedRanker`": lambda: BoostedRanker(n_threads=1, verbose=False),
    }
    tasks: dict[str, Sequence[Fold]] = {"pydocs": [load_pydocs(fold=i) for i in range(1, 6)]}
    for bend in (0.0, 1.0):
        for n in (100, 1000, 4000):
            tasks[f"simulated, {n} queries, nonlinearity {bend:g}"] = [_simulated(n, bend)]
    for task, folds in tasks.items():
        print(f"\n{task}\n\n{_head()}")
        first: np.ndarray | None = None
        for name, make in makers.items():
            values, seconds = _tested(folds, make)
            first = values["ndcg@10"] if first is None else first
            print(_row(name, values, values["ndcg@10"] - first, seconds / len(folds)), flush=True)


def _linear(**changed: Any) -> SinkPropRanker:
    return SinkPropRanker(**({"selection": "validation", "n_threads": 1, "verbose": False} | changed))


def _simulated(n_train: int, nonlinearity: float) -> Fold:
    """`n_train` training queries, a third as many validation queries, and 500 test queries."""
    n_vali = n_train // 3
    queries = make_ranking(n_train + n_vali + 500, nonlinearity=nonlinearity, random_state=11)
    ids = queries.groups.queries
    parts = np.split(ids, [n_train, n_train + n_vali])
    train, vali, test = (queries.take(np.flatnonzero(np.isin(queries.qid, part))) for part in parts)
    return Fold("simulated", train, vali, test)


def _tested(folds: Sequence[Fold], make: Callable[[], Any]) -> tuple[dict[str, np.ndarray], float]:
    """The metric of every test query, and the seconds of the fits."""
    found: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
    seconds = 0.0
    for fold in folds:
        ranker, began = make(), time.perf_counter()
        ranker.fit(
            fold.train.X,
            fold.train.y,
            qid=fold.train.qid,
            eval_set=[(fold.vali.X, fold.vali.y)],
            eval_qid=[fold.vali.qid],
        )
        seconds += time.perf_counter() - began
        scores = ranker.predict(fold.test.X, **_queries(ranker, fold))
        result = evaluate(fold.test.y, scores, fold.test.qid, METRICS)
        for metric in METRICS:
            found[metric].append(result.per_query[metric])
    return {metric: np.concatenate(values) for metric, values in found.items()}, seconds


def _queries(ranker: Any, fold: Fold) -> dict[str, Any]:
    return {"qid": fold.test.qid} if getattr(ranker, "normalization", None) == "query" else {}


def _head() -> str:
    return f"| | {' | '.join(METRICS)} | ± | seconds a fit |\n|---|{'---|' * (len(METRICS) + 2)}"


def _row(name: str, values: dict[str, np.ndarray], difference: np.ndarray, seconds: float) -> str:
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    cells = [f"{values[metric].mean():.4f}".lstrip("0") for metric in METRICS]
    return f"| {name} | {' | '.join(cells)} | {f'{error:.4f}'.lstrip('0')} | {seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("settings", "front-ends"), help="experiment to run")
    {"settings": settings, "front-ends": front_ends}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
