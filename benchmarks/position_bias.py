"""Position bias estimated from simulated logs, next to the bias that the simulated users have.

    python benchmarks/position_bias.py                  the data set of the package, and simulated queries
    python benchmarks/position_bias.py DIR DIR ...      LETOR data sets with folds, too
    python benchmarks/position_bias.py --large FILE     10 million impressions, written to a Parquet file

Users look at position i of the first 10 with the probability i^-eta, and click a document that they look at
with the probability .1 + .9 (2^label - 1) / (2^max - 1). Production rankers are ridge regressions on a
hundredth of the labeled documents. Each log has 100,000 sessions of the training queries of a fold:

    swaps       one production ranker; each session exchanges the documents of position 1 and of a random one
    harvest     two production rankers, each for half of the sessions
    linear      one production ranker, whose ranking never changes; the relevance is predicted from features
    trees       the same with boosted trees
    trust       three production rankers, and users who trust the top: they click an examined document of
                relevance r with the probability plus r + minus (1 - r), where plus = 1 - (i + 1) / 100 and
                minus = .65 / i, as in Vardasbi et al. (2020). The errors are those of plus and minus times
                the examination, relative to the largest value for the intercepts.

"mean" and "largest" are over positions 1 to 10 and then averaged over the logs; "95 %" is the share of the
intervals at positions 2 to 10 that contain the examination.
"""

import argparse
import os
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.linear_model import Ridge

from sinkprop.clicks import (
    PositionBasedModel,
    TrustBiasModel,
    click_relevance,
    estimate_position_bias,
    harvest_bias,
    read_clicks,
    simulate_clicks,
    swap_bias,
)
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.experiment.folds.layout import find_data_sets

SHOWN, SESSIONS = 10, 100_000
ETAS = (0.5, 1.0, 1.5)
POSITIONS = np.arange(1.0, SHOWN + 1)
METHODS = {
    "swaps": swap_bias,
    "harvest": harvest_bias,
    "linear": lambda log: PositionBasedModel.fit(log, relevance="linear"),
    "trees": lambda log: PositionBasedModel.fit(log, relevance="trees"),
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DIR", nargs="*", help="folder of a LETOR data set with folds")
    parser.add_argument("--seeds", type=int, default=4, help="logs per fold  [default: 4]")
    parser.add_argument("--jobs", type=int, default=2, help="processes  [default: 2]")
    parser.add_argument("--large", metavar="FILE", help="measure time and memory of a log in this file")
    options = parser.parse_args()
    if options.large:
        large(options.large)
        return
    print("| queries | eta | method | mean error | largest | 95 % |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, folds in training_queries(options.data).items():
            tasks = [(q, 100 * i + seed) for i, q in enumerate(folds) for seed in range(options.seeds)]
            for eta in ETAS:
                found = list(pool.map(position_errors, tasks, [eta] * len(tasks)))
                for method in METHODS:
                    line(name, eta, method, *np.mean([logs[method] for logs in found], axis=0))
            found = np.mean(list(pool.map(trust_errors, tasks)), axis=0)
            for what, errors in zip(("slopes", "intercepts"), found, strict=True):
                line(name, 1.0, f"trust, {what}", *errors)


def line(name, eta, method, mean, largest, inside=None):
    covered = "" if inside is None else f"{inside:.0%}"
    print(f"| {name} | {eta} | {method} | {mean:.1%} | {largest:.1%} | {covered} |", flush=True)


def training_queries(directories):
    """{name of a set: training queries of each fold}."""
    known = {
        "pydocs": [fold.train for fold in pydocs_folds()],
        "simulated": [make_ranking(400, random_state=i) for i in range(3)],
    }
    for found in find_data_sets(*directories) if directories else ():
        known[found.name] = [fold.read().train for fold in found.folds]
    return known


def production_scores(train, seed):
    """Scores (N,) of a ridge regression on a hundredth of the documents, some of which are relevant."""
    rng = np.random.default_rng(seed)
    X = np.nan_to_num(train.X / (np.nanstd(train.X, axis=0) + 1e-9))
    while True:
        some = rng.choice(len(train), max(len(train) // 100, 20), replace=False)
        if len(set(train.y[some])) > 1:
            return Ridge(1.0).fit(X[some], train.y[some]).predict(X)


def position_errors(task, eta):
    """{method: (mean error, largest error, share of intervals that contain the examination)}."""
    warnings.simplefilter("ignore")
    train, seed = task
    users = PositionBasedModel(POSITIONS**-eta)
    one, two = production_scores(train, seed), production_scores(train, seed + 50)
    given = {"relevance": click_relevance(train.y), "k": SHOWN, "seed": seed}
    logs = {
        "swaps": simulate_clicks(train, one, SESSIONS, users, swaps="pairs", **given),
        "harvest": simulate_clicks(train, [one, two], SESSIONS, users, **given),
        "linear": simulate_clicks(train, one, SESSIONS, users, **given),
    }
    logs["trees"] = logs["linear"]
    found = {}
    for method, fit in METHODS.items():
        model = fit(logs[method])
        errors = np.abs(model.examination / users.examination - 1)
        low, high = model.interval[:, 1:]
        inside = (low <= users.examination[1:]) & (users.examination[1:] <= high)
        found[method] = errors.mean(), errors.max(), inside.mean()
    return found


def trust_errors(task):
    """(mean and largest error of the slopes, mean and largest error of the intercepts)."""
    warnings.simplefilter("ignore")
    train, seed = task
    users = TrustBiasModel.of_examination(1 / POSITIONS, 1 - (POSITIONS + 1) / 100, 0.65 / POSITIONS)
    rankers = [production_scores(train, seed + 50 * i) for i in range(3)]
    log = simulate_clicks(
        train, rankers, SESSIONS, users, relevance=click_relevance(train.y, 0.0), k=SHOWN, seed=seed
    )
    first = users.intercept[0], users.slope[0] + users.intercept[0]
    model = TrustBiasModel.fit(log, first=first)
    slope = np.abs(model.slope / users.slope - 1)
    intercept = np.abs(model.intercept - users.intercept) / users.intercept.max()
    return (slope.mean(), slope.max()), (intercept.mean(), intercept.max())


def large(path):
    """Write a log of 10 million impressions, and print the time and memory of its use in a new process."""
    queries = make_ranking(5000, random_state=11)
    rng = np.random.default_rng(0)
    users = PositionBasedModel(1 / POSITIONS)
    with ProcessPoolExecutor(1) as pool:  # whose memory is not counted
        pool.submit(write_log, path, queries, rng.normal(size=(3, len(queries))), users).result()
    for step, seconds, memory in ProcessPoolExecutor(1).submit(timed, path).result():
        print(f"{step:40} {seconds:6.1f} s {memory:6.2f} GB")


def write_log(path, queries, rankers, users):
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = simulate_clicks(queries, rankers, 1_110_000, users, k=SHOWN, seed=1)
    ids = np.char.add("doc-", np.arange(len(queries)).astype(str))
    columns = {
        "session": log.sessions,
        "query": pa.array([f"query-{q}" for q in queries.qid]).take(pa.array(log.rows)),
        "doc": pa.array(ids).take(pa.array(log.rows)),
        "position": log.positions,
        "clicked": log.clicked,
        "policy": np.repeat(log.policy, log.sizes),
    }
    pq.write_table(pa.table(columns), path)


def timed(path):
    """[(step, seconds, peak memory in GB)]."""
    steps = []

    def step(name, function):
        began = time.perf_counter()
        value = function()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        steps.append((name, time.perf_counter() - began, peak))
        return value

    log = step("read Parquet, ids are text", lambda: read_clicks(path))
    step(f"aggregate {len(log):,} impressions", lambda: log.counts)
    step("estimate the position bias: harvest", lambda: estimate_position_bias(log))
    step("estimate it from documents", lambda: estimate_position_bias(log, "documents"))
    step("estimate it with trust bias", lambda: TrustBiasModel.fit(log))
    return steps


if __name__ == "__main__":
    main()
