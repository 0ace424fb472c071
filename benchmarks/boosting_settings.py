"""The effect of each setting of BoostedRanker: one change from the defaults at a time.

    python benchmarks/boosting_settings.py DATA                      the data sets of benchmarks/boosting.py
    python benchmarks/boosting_settings.py --sets simulated,pydocs   data that needs no files
    python benchmarks/boosting_settings.py DATA --only noise,width   the rows whose names contain one of these

Test queries are not used: the training and validation queries of each fold are split again at random, with
three fifths for training, one fifth for early stopping and one fifth for measuring. In LETOR's rotation, the
validation queries of a fold are the test queries of another fold, which benchmarks/boosting.py reports on. A
cell is the mean of NDCG@1, 3, 5 and 10 over the measured queries of all folds, times 100. "mean" is the mean
over data sets, and "±" is the standard error, over queries, of its difference from the first row.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from boosting import EMPTY, METRICS, SETS, Source, by_query, folds_of, renumbered, sizes, sources

from sinkprop import Queries
from sinkprop.metrics import evaluate

LOG2 = "ndcg(discount=log2)"
VARIANTS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "width 0.1": {"widths": 0.1},
    "width 0.3": {"widths": 0.3},
    "width 1": {"widths": 1.0},
    "width 3": {"widths": 3.0},
    "widths 0.1, 0.3, 1": {"widths": (0.1, 0.3, 1.0)},
    "widths 0.03, 0.3, 3": {"widths": (0.03, 0.3, 3.0)},
    "no noise": {"noise": 0.0},
    "no noise, width 0.1": {"noise": 0.0, "widths": 0.1},
    "no noise, width 1": {"noise": 0.0, "widths": 1.0},
    "noise 0.2": {"noise": 0.2},
    "noise 0.8": {"noise": 0.8},
    "own curvature only": {"blend": 0.0},
    "query's curvature only": {"blend": 1.0},
    "1 iteration": {"n_iter": 1},
    "5 iterations": {"n_iter": 5},
    "20 iterations": {"n_iter": 20},
    "LETOR's discount": {"gain": "ndcg(discount=letor)"},
    "NDCG@10": {"gain": LOG2 + "@10"},
    "stop by NDCG@1-10": {"criterion": "ndcg@1-10", "convention": "standard"},
    "4 leaves": {"num_leaves": 4},
    "15 leaves": {"num_leaves": 15},
    "31 leaves": {"num_leaves": 31},
    "rate 0.1": {"learning_rate": 0.1},
    "rate 0.03": {"learning_rate": 0.03},
    "half the features a split": {"feature_fraction_bynode": 0.5},
    "half the queries a tree": {"subsample": 0.5},
    "after 20 trees of lambdarank": {"warm": 20},
    # the same trees, learning rate and early stopping with another gradient
    "lambdarank's gradient": {"objective": "lambdarank"},
    "rank_xendcg's gradient": {"objective": "rank_xendcg"},
}


def measured(task: tuple[Source, int, str, int]) -> Any:
    """The mean of the four metrics for each measured query of a variant, (queries,)."""
    import lightgbm

    from sinkprop.gbdt import BoostedRanker

    source, number, name, repeat = task
    fold = folds_of(source)[number]
    pool = renumbered([fold.train, fold.vali])
    ids = np.random.default_rng([number, repeat]).permutation(pool.groups.queries)
    a, b = int(0.6 * len(ids)), int(0.8 * len(ids))
    train, vali, test = (by_query(pool.select(np.sort(own))) for own in (ids[:a], ids[a:b], ids[b:]))
    given = dict(VARIANTS[name])
    if objective := given.pop("objective", None):
        return values_of(test, baseline(objective, train, vali).predict(test.X))
    first = None
    if trees := given.pop("warm", 0):
        own = {"objective": "lambdarank", "num_leaves": 8, "learning_rate": 0.05, "num_threads": 1}
        rows = lightgbm.Dataset(train.X, train.y, group=sizes(train))
        first = lightgbm.train({**own, "verbosity": -1, "deterministic": True}, rows, num_boost_round=trees)
    ranker = BoostedRanker(effort="fast", **given, n_threads=1, verbose=False, random_state=repeat)
    ranker.fit(
        train.X,
        train.y,
        qid=train.qid,
        eval_set=[(vali.X, vali.y)],
        eval_qid=[vali.qid],
        init_model=first,
    )
    return values_of(test, ranker.predict(test.X))


def baseline(objective: str, train: Queries, vali: Queries) -> Any:
    """Fit LightGBM's objective with everything else, including the criterion, as in BoostedRanker."""
    import lightgbm

    from sinkprop.gbdt import Derivatives, TreeLoss
    from sinkprop.gbdt.parameters import DEFAULTS, EFFORTS

    validation = Derivatives(TreeLoss(), vali.y, vali.groups, n_threads=1)
    given = {
        "objective": objective,
        "metric": "none",
        "learning_rate": DEFAULTS.learning_rate,
        "num_leaves": DEFAULTS.num_leaves,
        "min_child_samples": DEFAULTS.min_child_samples,
        "num_threads": 1,
        "seed": 0,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(train.X, train.y, group=sizes(train))
    return lightgbm.train(
        given,
        rows,
        num_boost_round=DEFAULTS.n_estimators,
        valid_sets=[lightgbm.Dataset(vali.X, vali.y, group=sizes(vali), reference=rows)],
        feval=lambda scores, _: ("expected", validation.value(scores), True),
        callbacks=[lightgbm.early_stopping(EFFORTS["fast"].early_stopping_rounds, verbose=False)],
    )


def values_of(test: Queries, scores: Any) -> Any:
    found = evaluate(test.y, scores, test.qid, metrics=METRICS, convention="standard", empty=EMPTY)
    values = np.mean(list(found.per_query.values()), axis=0)
    return values[~np.isnan(values)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data",
        nargs="?",
        default=os.environ.get("SINKPROP_DATA"),
        help="folder with the data sets  [default: SINKPROP_DATA]",
    )
    parser.add_argument(
        "--sets", default=",".join(SETS), help="comma-separated data sets  [default: %(default)s]"
    )
    parser.add_argument("--queries", type=int, default=600, help="queries per simulated set")
    parser.add_argument(
        "--repeats", type=int, default=2, help="random splits of each fold's queries, with their seeds"
    )
    parser.add_argument("--only", help="comma-separated parts of the names of variants")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes  [default: 2]")
    options = parser.parse_args()
    options.letor, options.splits = [], 1
    found = list(sources(options))
    parts = options.only.split(",") if options.only else [""]
    names = [n for i, n in enumerate(VARIANTS) if i == 0 or any(part in n for part in parts)]
    print("| | " + " | ".join(source.name for source in found) + " | ± | mean | s |")
    print("|---|" + "---|" * (len(found) + 3))
    first: list[Any] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in names:
            began = time.perf_counter()
            rows = []
            for source in found:
                folds = range(len(folds_of(source)))
                tasks = [(source, i, name, r) for r in range(options.repeats) for i in folds]
                rows.append(np.concatenate(list(pool.map(measured, tasks))))
            first = first or rows
            errors = [
                np.std(a - b, ddof=1) / np.sqrt(len(a) / options.repeats)
                for a, b in zip(rows, first, strict=True)
            ]
            error = 100 * np.sqrt(np.sum(np.square(errors))) / len(rows)
            cells = [f"{100 * row.mean():.2f}" for row in rows]
            mean = 100 * np.mean([row.mean() for row in rows])
            seconds = time.perf_counter() - began
            print(f"| {name} | {' | '.join(cells)} | {error:.2f} | {mean:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
