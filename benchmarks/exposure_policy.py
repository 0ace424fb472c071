"""Policies under exposure constraints: their value, their time, and DELTR's rankings of experts.

    python benchmarks/exposure_policy.py                   against the linear program, and times
    python benchmarks/exposure_policy.py TREC-EXPERTS      the folder of the experiment with experts, too

The linear program over all doubly-stochastic matrices of 100 documents is solved by HiGHS; "shortfall" is the
largest difference of the expected NDCG over three random problems. Times are processor seconds.

TREC W3C experts: 60 queries with 200 candidates each, six folds, protected group: women (Zehlike and Castillo
2020). The folder has foldN-train.csv, foldN-test.csv (query, protected, five features, label) and DELTR's
published predictions foldN-gamma-small.pred and foldN-gamma-large.pred, plain or compressed by xz. The gap of
a query is the absolute difference of the mean exposures of the two groups over all ranks; rank k has the
exposure 1/log2(k + 1). `SinkPropRanker` is trained on each fold's training queries, with all features and
the protected column, as DELTR is. Isotonic regression of 2^label - 1 on its held-out scores of training
queries gives the relevance. Each test query is served by `exposure_policy` with the gap of DELTR's ranking of
this query as its limit. NDCG@10 is that of the standard convention; that of a policy is its expectation.
The test files are in the order of the labels, and many experts have equal scores, which all methods rank in
file order ("file order") or in the same random order ("random").
"""

import argparse
import lzma
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, kron
from sklearn.isotonic import IsotonicRegression

from sinkprop import SinkPropRanker, evaluate, exposure_policy
from sinkprop.estimator.calibrated import take_held_out
from sinkprop.policies import ExposureGapAtMost, MaxExposure, MinExposure, ProportionalExposure


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="TREC-EXPERTS", nargs="?", type=Path, help="folder of the experts")
    options = parser.parse_args()
    print(f"{'100 documents':32s}{'shortfall':>12s}{'policy':>10s}{'HiGHS':>10s}")
    for name, (n_groups, constraint) in KINDS.items():
        found = [compared(*problem(100, n_groups, seed), constraint) for seed in range(3)]
        print(f"{name:32s}{max(each[0] for each in found):12.1e}", end="")
        print(f"{np.mean([each[1] for each in found]):8.3f} s{np.mean([each[2] for each in found]):8.2f} s")
    print(f"\n{'documents':>10s}{'groups':>8s}{'constraint':>28s}{'time':>10s}{'bound - value':>16s}")
    for n, n_groups, constraint in TIMED:
        times, gaps = [], []
        for seed in range(3):
            r, groups = problem(n, n_groups, seed)
            policy, seconds = timed(lambda r=r, groups=groups, c=constraint: exposure_policy(r, groups, c))
            times.append(seconds)
            gaps.append(policy.bound - policy.value)
        print(f"{n:10,d}{n_groups:8d}{constraint!s:>28s}{np.mean(times):8.3f} s{max(gaps):16.1e}")
    if options.data is not None:
        experts(options.data)


KINDS = {
    "gap at most .02, 2 groups": (2, ExposureGapAtMost(0.02)),
    "proportional to relevance": (2, ProportionalExposure(0.05)),
    "minimum of .45 per group": (2, MinExposure(0.45)),
    "at most .12 per group, 10 groups": (10, MaxExposure(0.12)),
}
TIMED = (
    (1000, 2, ExposureGapAtMost(0)),
    (1000, 100, MaxExposure(0.0105)),
    (100_000, 2, ExposureGapAtMost(0)),
)


def problem(n, n_groups, seed):
    """Relevance of documents, and their groups, some of which are less relevant."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.arange(n) % n_groups)
    return rng.beta(1, 3, size=n) * (0.7 + 0.3 * rng.random(n_groups))[groups], groups


def timed(function):
    began = time.process_time()
    found = function()
    return found, time.process_time() - began


def compared(r, groups, constraint):
    policy, ours = timed(lambda: exposure_policy(r, groups, constraint))
    n, e = len(r), 1 / np.log2(np.arange(len(r)) + 2.0)
    names, sizes = np.unique(groups, return_counts=True)
    member = (groups == names[:, None]).astype(float)
    each = np.eye(len(names))
    if isinstance(constraint, ExposureGapAtMost):
        A = np.array([each[i] / sizes[i] - each[j] / sizes[j] for i in names for j in names if i != j])
        b = np.full(len(A), constraint.gap)
    elif isinstance(constraint, ProportionalExposure):
        merits, factor = member @ r, 1 + constraint.tolerance
        A = np.array(
            [each[i] / merits[i] - factor * each[j] / merits[j] for i in names for j in names if i != j]
        )
        b = np.zeros(len(A))
    else:
        sign = -1 if isinstance(constraint, MinExposure) else 1
        A, b = sign * each, np.full(len(names), sign * constraint.shares * e.sum())
    sums = [kron(eye(n), np.ones(n)), kron(np.ones(n), eye(n))]
    A_eq = csr_matrix(np.concatenate([part.toarray() for part in sums]))
    rows = csr_matrix(np.kron(A @ member, e))
    found, seconds = timed(
        lambda: linprog(-np.kron(r, e), A_ub=rows, b_ub=b, A_eq=A_eq, b_eq=np.ones(2 * n), method="highs")
    )
    best = -found.fun / (np.sort(r)[::-1] @ e)
    return abs(best - policy.value), ours, seconds


def table(folder, name):
    path = folder / name
    text = path.read_bytes() if path.exists() else lzma.decompress(Path(f"{path}.xz").read_bytes())
    return np.array([[float(value) for value in line.split(",")] for line in text.decode().splitlines()])


def experts(folder):
    print(f"\n{'':26s}{'NDCG@10':>20s}{'mean gap':>34s}")
    print(f"{'equal scores':12s}{'gamma':8s}{'fold':>6s}{'DELTR':>12s}{'policy':>10s}{'sorted':>10s}", end="")
    print(f"{'DELTR':>14s}{'policy':>10s}")
    means = {}
    for fold in range(1, 7):
        train, test = table(folder, f"fold{fold}-train.csv"), table(folder, f"fold{fold}-test.csv")
        ranker = SinkPropRanker(verbose=False).fit(train[:, 1:-1], train[:, -1], qid=train[:, 0])
        held = take_held_out(ranker)
        gains = IsotonicRegression(out_of_bounds="clip").fit(held.scores, np.exp2(held.labels) - 1)
        scores = ranker.predict(test[:, 1:-1])
        # isotonic regression is flat in places, where the scores decide
        relevance = gains.predict(scores) + 1e-3 * (scores - scores.min()) / np.ptp(scores)
        for gamma in ("small", "large"):
            predictions = table(folder, f"fold{fold}-gamma-{gamma}.pred")
            for ties in ("file order", "random"):
                rows = [
                    served(test, predictions, scores, relevance, q, ties == "random")
                    for q in np.unique(test[:, 0])
                ]
                means.setdefault((gamma, ties), []).append(np.mean(rows, axis=0))
    for (gamma, ties), each in means.items():
        for fold, (deltr, policy, plain, limit, reached) in enumerate([*each, np.mean(each, axis=0)], 1):
            print(f"{ties:12s}{gamma:8s}{fold if fold <= len(each) else 'mean':>6}", end="")
            print(f"{deltr:12.4f}{policy:10.4f}{plain:10.4f}{limit:14.4f}{reached:10.4f}")


def served(test, predictions, scores, relevance, q, random):
    """NDCG@10 of DELTR, the policy and the sorted ranking for one query, and the gaps of the first two."""
    own = np.flatnonzero(test[:, 0] == q)
    if random:
        own = np.random.default_rng(int(q)).permutation(own)
    labels, protected = test[own, -1], test[own, 1] > 0
    deltr = np.empty(len(test))
    mine = predictions[predictions[:, 0] == q]
    deltr[mine[:, 1].astype(int) - 1] = mine[:, 2]  # the numbers of documents count the rows of the file
    theirs = np.argsort(-deltr[own], kind="stable")
    limit = gap(theirs, protected)
    policy = exposure_policy(relevance[own], protected, ExposureGapAtMost(limit))
    mixture = policy.mixture
    expected = mixture.weights @ [ndcg(labels, ranking) for ranking in mixture.rankings]
    reached = abs(policy.exposure[protected].mean() - policy.exposure[~protected].mean())
    return (
        ndcg(labels, theirs),
        expected,
        ndcg(labels, np.argsort(-scores[own], kind="stable")),
        limit,
        reached,
    )


def gap(ranking, protected):
    exposure = np.empty(len(ranking))
    exposure[ranking] = 1 / np.log2(np.arange(len(ranking)) + 2.0)
    return abs(exposure[protected].mean() - exposure[~protected].mean())


def ndcg(labels, ranking):
    scores = np.empty(len(ranking))
    scores[ranking] = -np.arange(len(ranking))
    return evaluate(labels, scores, np.zeros(len(labels)), metrics=["ndcg@10"])["ndcg@10"]


if __name__ == "__main__":
    main()
