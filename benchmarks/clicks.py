"""Rankers trained on simulated clicks, next to LightGBM's and XGBoost's corrections of position bias.

    python benchmarks/clicks.py                      the data set of the package, and simulated queries
    python benchmarks/clicks.py DIR DIR ...          LETOR data sets with folds, too
    python benchmarks/clicks.py --sessions 1e4 1e6 --jobs 2

A production ranker, ridge regression on a hundredth of the labeled documents, ranks the training queries.
Users look at position i of the first 20, or of as many as --shown says, with the probability 1 / i, and click
a document that they look at with the probability .1 + .9 (2^label - 1) / (2^4 - 1), or 2^2 - 1 for labels up
to 2. From these clicks:

    naive       the ranker, fitted to click rates
    debiased    the ranker, fitted to the log: `ranker.fit(log)`, which estimates the position bias, too
    lightgbm    lambdarank with `position=`
    xgboost     rank:ndcg with `lambdarank_unbiased=True`

"labels" is the ranker fitted to the true labels, and "seen" to those of the documents that users were shown.
Linear is SinkPropRanker, trees are BoostedRanker, both with
their defaults. LightGBM and XGBoost get single sessions, at most 50,000 that have clicks, and the number of
their trees is chosen by the true labels of the validation queries, which no other method sees.

NDCG@10 is that of the true labels of the test queries, over folds and production rankers. "closed" is the
share of the difference between naive and labels that the debiased ranker closes. Differences are those of the
debiased ranker, followed by their standard error over the test queries.
"""

import argparse
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightgbm
import numpy as np
import xgboost
from sklearn.linear_model import Ridge

from sinkprop import SinkPropRanker, evaluate
from sinkprop.clicks import PositionBasedModel, click_relevance, debias, simulate_clicks
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.experiment.folds.layout import find_data_sets
from sinkprop.gbdt import BoostedRanker

RANKERS = {"linear": SinkPropRanker, "trees": BoostedRanker}
ROUNDS, PATIENCE, MOST_SESSIONS = 200, 20, 50_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DIR", nargs="*", help="folder of a LETOR data set with folds")
    parser.add_argument("--sets", metavar="NAME", nargs="+", help="only the data sets of these names")
    parser.add_argument("--sessions", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--seeds", type=int, default=2, help="production rankers per fold  [default: 2]")
    parser.add_argument("--shown", type=int, default=20, help="positions that are shown  [default: 20]")
    parser.add_argument("--jobs", type=int, default=2, help="processes  [default: 2]")
    options = parser.parse_args()
    sessions = [int(n) for n in options.sessions]
    sets = {
        name: folds
        for name, folds in sets_of(options.data).items()
        if options.sets is None or name in options.sets
    }
    tasks = [
        (name, number, seed, sessions, options.shown)
        for name, folds in sets.items()
        for number in range(folds)
        for seed in range(options.seeds)
    ]
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(results, tasks, [options.data] * len(tasks)))
    for name in sets:
        of_set = [(number, r) for (n, number, *_), r in zip(tasks, found, strict=True) if n == name]
        report(name, of_set, sessions)
    print(f"\n{time.perf_counter() - began:.0f} s")


def sets_of(directories):
    """{name of a set: number of its folds}."""
    known = {"pydocs": len(pydocs_folds()), "simulated": 3}
    for found in find_data_sets(*directories) if directories else ():
        known[found.name] = len(found.folds)
    return known


def parts_of(name, number, directories):
    """Training, validation and test queries of a fold."""
    if name == "pydocs":
        fold = pydocs_folds()[number]
    elif name == "simulated":
        queries = make_ranking(1500, random_state=number)
        ids = queries.groups.queries
        return [queries.select(ids[a:b]) for a, b in ((0, 400), (400, 500), (500, 1500))]
    else:
        sets = {found.name: found for found in find_data_sets(*directories)}
        fold = sets[name].folds[number].read()
    return fold.train, fold.vali, fold.test


def results(task, directories):
    """{(kind, method, sessions): NDCG@10 of each test query} for one fold and production ranker."""
    warnings.simplefilter("ignore")
    name, number, seed, sessions, most = task
    users = PositionBasedModel(1 / np.arange(1.0, most + 1))
    train, vali, test = parts_of(name, number, directories)
    rng = np.random.default_rng((number, seed))
    some = rng.permutation(len(train))[: max(len(train) // 100, 10)]
    spread = train.X.std(axis=0) + 1e-9
    production = Ridge(10.0).fit(train.X[some] / spread, 2.0 ** train.y[some])
    relevance = click_relevance(train.y)
    found = {("production", "", 0): ndcg(test, production.predict(test.X / spread))}
    for kind, ranker in RANKERS.items():
        found[kind, "labels", 0] = ndcg(test, ranker().fit(train).predict(test))
    for n in sessions:
        scores = production.predict(train.X / spread)
        log = simulate_clicks(train, scores, n, users, relevance=relevance, k=most, seed=1000 * seed + number)
        labels = {"naive": debias(log, method="none"), "debiased": debias(log)}
        seen = train.take(np.unique(log.rows))
        for kind, ranker in RANKERS.items():
            found[kind, "seen", n] = ndcg(test, ranker().fit(seen).predict(test))
            for method, clicks in labels.items():
                found[kind, method, n] = ndcg(test, ranker().fit(clicks).predict(test))
        peers = single_sessions(log)
        found["peers", "lightgbm", n] = ndcg(test, lightgbm_scores(*peers, vali, test))
        found["peers", "xgboost", n] = ndcg(test, xgboost_scores(*peers, vali, test))
    means = {" ".join(map(str, key)): round(float(values.mean()), 4) for key, values in found.items()}
    print(name, number, seed, means, file=sys.stderr, flush=True)
    return found


def ndcg(queries, scores):
    result = evaluate(queries.y, scores, queries.qid, "ndcg@10", "standard")
    return result.per_query["ndcg@10"]


def single_sessions(log):
    """Rows, clicks, positions (from 0) and sizes of at most 50,000 sessions with clicks."""
    with_clicks = np.flatnonzero(np.logical_or.reduceat(log.clicked, log.offsets[:-1]))
    part = log.select(with_clicks[:MOST_SESSIONS])
    X = log.documents.X.astype(np.float32)[part.rows]
    return X, part.clicked.astype(int), part.positions - 1, part.sizes


def lightgbm_scores(X, y, positions, sizes, vali, test):
    data = lightgbm.Dataset(X, y, group=sizes, position=positions, free_raw_data=False)
    other = lightgbm.Dataset(vali.X, vali.y.astype(int), group=vali.groups.sizes, reference=data)
    parameters = {
        "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "num_threads": 1, "verbosity": -1
    }  # fmt: skip
    stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    booster = lightgbm.train(parameters, data, ROUNDS, valid_sets=[other], callbacks=[stopping])
    return booster.predict(test.X, num_iteration=booster.best_iteration)


def xgboost_scores(X, y, positions, sizes, vali, test):
    # XGBoost takes the order of the rows of a query as that in which they were shown.
    data = xgboost.DMatrix(X, y)
    data.set_group(sizes)
    other = xgboost.DMatrix(vali.X, vali.y)
    other.set_group(vali.groups.sizes)
    parameters = {
        "objective": "rank:ndcg", "lambdarank_unbiased": True, "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": int(sizes.max()), "eval_metric": "ndcg@10", "nthread": 1,
    }  # fmt: skip
    booster = xgboost.train(
        parameters, data, ROUNDS, [(other, "vali")], early_stopping_rounds=PATIENCE, verbose_eval=False
    )
    return booster.predict(xgboost.DMatrix(test.X), iteration_range=(0, booster.best_iteration + 1))


def report(name, found, sessions):
    """Print the figures of one data set."""

    def of(*key):
        """NDCG of each test query, the mean over production rankers."""
        folds = {number: [r[key] for n, r in found if n == number] for number, _ in found}
        return np.concatenate([np.mean(values, axis=0) for values in folds.values()])

    print(f"\n{name}: {len(of('production', '', 0))} test queries")
    print(f"production ranker {of('production', '', 0).mean():.4f}\n")
    header = "labels", "seen", "naive", "debiased", "lightgbm", "xgboost", "closed"
    print(f"{'':8}{'sessions':>10}" + "".join(f"{x:>12}" for x in header))
    for kind in RANKERS:
        for n in sessions:
            labels, naive = of(kind, "labels", 0), of(kind, "naive", n)
            ours = of(kind, "debiased", n)
            peers = [of("peers", peer, n) for peer in ("lightgbm", "xgboost")]
            values = [labels, of(kind, "seen", n), naive, ours, *peers]
            closed = (ours - naive).mean() / (labels - naive).mean()
            print(f"{kind:8}{n:>10,}" + "".join(f"{v.mean():>12.4f}" for v in values) + f"{closed:>12.0%}")
            for what, other in zip(("naive", "lightgbm", "xgboost"), (naive, *peers), strict=True):
                d = ours - other
                error = d.std(ddof=1) / np.sqrt(len(d))
                print(f"{'':18}ahead of {what:9} by {d.mean():+.4f} ({error:.4f})")


if __name__ == "__main__":
    main()
