"""Explanations of rankings: time, and the error of the sum of the contributions.

    python benchmarks/explain.py        half a minute

200 queries of 100 documents with 46 features, as in LETOR's MQ2007. Contributions are normal, labels are
noisy scores, and the calibration is fitted to other queries. Times are seconds of one thread's processor time
per query, the median over the queries. "error" is the largest error of a sum, in ranks, or of the metric.
"""

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import explain_ranking
from sinkprop.calibration import RankCalibration

QUERIES, DOCUMENTS, FEATURES = 200, 100, 46


def made(seed, n_queries=QUERIES, n=DOCUMENTS):
    rng = np.random.default_rng(seed)
    contributions = rng.normal(size=(n_queries * n, FEATURES)) * np.linspace(0.3, 2, FEATURES)
    contributions /= contributions.sum(axis=1).std()
    scores = contributions.sum(axis=1)
    labels = np.digitize(scores + rng.normal(size=len(scores)), [0.5, 2])
    return contributions, labels, np.repeat(np.arange(n_queries), n)


def measured(name, contributions, labels, qid, **options):
    seconds, ranks, metric = [], 0.0, 0.0
    for q in np.unique(qid):
        rows = qid == q
        start = time.process_time()
        found = explain_ranking(contributions[rows], None, labels[rows], base=False, **options)
        seconds.append(time.process_time() - start)
        ranks, metric = max(ranks, found.rank_error[0]), max(metric, found.metric_error[0])
    total = sum(seconds)
    print(f"{name:<42} {np.median(seconds):>10.4f} {total:>8.1f} {ranks:>10.1e} {metric:>10.1e}", flush=True)


def main():
    contributions, labels, qid = made(0)
    held_out, held_labels, held_qid = made(1)
    calibration = RankCalibration.fit(held_out.sum(axis=1), held_labels, held_qid)
    print(f"{'':<42} {'per query':>10} {'all':>8} {'rank error':>10} {'metric err':>10}")
    given = contributions, labels, qid
    measured("ranks and NDCG@10, calibrated", *given, calibration=calibration)
    measured("ranks and NDCG@10, Gaussian", *given)
    measured("NDCG@10 only, calibrated", *given, calibration=calibration, top=0)
    long = made(2, 1, 100_000)
    measured("NDCG@10, 100,000 documents, calibrated", *long, calibration=calibration, top=0)


if __name__ == "__main__":
    main()
