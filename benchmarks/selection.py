"""Linear rankers and their rules of selection on many small samples of one data set.

    python benchmarks/selection.py MQ2007-agg              20 samples of 60 to 120 queries
    python benchmarks/selection.py pydocs --samples 10     the data set of the package

Each sample has three quarters of its queries for training and one quarter for validation. All other queries
of the data set, up to 1,200, are test queries. The output has, for each ranker, the mean over the samples of
the mean of NDCG@1, 3, 5 and 10, the difference from SinkPropRanker's defaults with its standard error over
the samples, and the seconds of processor time per fit.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from sinkprop import Annealing, Queries, Selection, SinkPropRanker, evaluate, load_letor
from sinkprop.baselines import ListNetRanker, RegressionRanker, SmoothRankRanker
from sinkprop.datasets import pydocs_folds

METRICS = ["ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10"]
PAPER = {"annealing": Annealing(), "start": "least-squares", "max_iter": 20, "tol": 1e-9}
RANKERS = {
    "sinkprop, defaults": SinkPropRanker,
    "the best stage, fitted again": lambda: SinkPropRanker(selection=Selection(rule="best")),
    "average, 5 folds": lambda: SinkPropRanker(selection=Selection(n_splits=5)),
    "average, validation set": lambda: SinkPropRanker(selection="validation"),
    "average, from least squares": lambda: SinkPropRanker(start="least-squares"),
    "average, kernel of Laplace": lambda: SinkPropRanker(relaxation="laplace"),
    "paper, averaged": lambda: SinkPropRanker(**PAPER),
    "paper, smoothest": lambda: SinkPropRanker(**PAPER, selection=Selection(rule="smoothest")),
    "paper": lambda: SinkPropRanker(**PAPER, selection=Selection("validation", rule="best")),
    "ridge": lambda: RegressionRanker(penalty="auto", normalization="standard"),
    "ListNet": ListNetRanker,
    "SmoothRank": SmoothRankRanker,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DIR", help="folder of LETOR data with a Fold1, or pydocs")
    parser.add_argument("--samples", type=int, default=20, help="number of samples  [default: 20]")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the samples  [default: 0]")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes  [default: 2]")
    options = parser.parse_args()
    queries = whole(options.data)
    tasks = (delayed(compared)(queries, [options.seed, i]) for i in range(options.samples))
    found = Parallel(options.jobs)(tasks)
    first = np.array([one["sinkprop, defaults"][0] for one in found])
    print(f"{'':36s}{'NDCG':>8s}{'difference':>20s}{'seconds':>9s}")
    for name in RANKERS:
        values = np.array([one[name] for one in found])
        d = values[:, 0] - first
        error = d.std(ddof=1) / np.sqrt(len(d))
        print(
            f"{name:36s}{values[:, 0].mean():8.4f}{d.mean():+11.4f} ({error:.4f}){values[:, 1].mean():9.2f}"
        )


def whole(name):
    """All queries of a data set."""
    if name == "pydocs":
        fold = pydocs_folds()[0]
        parts = [fold.train, fold.vali, fold.test]
    else:
        parts = [
            load_letor(Path(name) / "Fold1" / f"{p}.txt", allow_nan=True) for p in ("train", "vali", "test")
        ]
    return Queries(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.qid for part in parts]),
        allow_nan=True,
    )


def compared(queries, seed):
    """{name of a ranker: (mean NDCG, seconds of processor time)} on one sample."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(60, 121))
    ids = rng.permutation(np.unique(queries.qid))
    cut = round(0.75 * size)
    train, vali, test = (queries.select(own) for own in (ids[:cut], ids[cut:size], ids[size : size + 1200]))
    found = {}
    for name, make in RANKERS.items():
        ranker = make().set_params(n_threads=1, verbose=False) if name != "ridge" else make()
        began = time.process_time()
        ranker.fit(train, eval_set=vali)
        seconds = time.process_time() - began
        found[name] = np.mean(list(evaluate(test, ranker.predict(test), metrics=METRICS).values())), seconds
    return found


if __name__ == "__main__":
    main()
