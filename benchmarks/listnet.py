"""ListNet on a LETOR data set, trained as in its paper and as by `ListNetRanker`: why results differ.

    python benchmarks/listnet.py DIR     DIR has Fold1 to Fold5; half a minute on OHSUMED
    python benchmarks/listnet.py         time of the loss of 10^6 documents, compared with NumPy

The paper uses gradient descent, one query at a time, starts at w = 0, and stops on validation queries.
LETOR's own runs select by validation MAP. Here this descent makes 1024 passes over the training queries at
each of several learning rates, and is evaluated on the validation queries after 1, 2, 4, ... passes. It is
compared with the minima of the penalized loss, and with the minimum without a penalty, to which the descent
would converge. The output has the test metrics, averaged over folds, and the choice in each fold.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from sinkprop import evaluate, load_letor
from sinkprop.baselines import ListNetRanker
from sinkprop.baselines.listnet_loss import evaluate_listnet
from sinkprop.data import group_rows
from sinkprop.estimator.selection import Selection

METRICS = ("ndcg@3", "ndcg@5", "ndcg@10", "map")
RATES = (0.001, 0.01, 0.1, 1.0)
LOOKS = tuple(2**i for i in range(11))
CRITERIA = ("map", "ndcg@1-10")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", metavar="DIR", help="folder with Fold1 to Fold5")
    folder = parser.parse_args().data
    if folder is None:
        times()
    else:
        compare(folder)


def times(n=1_000_000):
    """Print times on one thread, the best of seven alternating rounds, as multiples of that of numpy.exp."""
    rng = np.random.default_rng(0)
    z, y, out = rng.normal(size=n), rng.integers(0, 3, n).astype(float), np.empty(n)
    print(f"{'documents a query':20s}{'numpy.exp':>12s}{'k = 1':>8s}{'k = 2':>8s}{'NumPy, k = 1':>14s}")
    for size in (10, 100, 1000, n):
        groups = group_rows(np.arange(n) // size, n)
        tasks = {
            "exp": lambda: np.exp(z, out=out),
            "one": lambda groups=groups: evaluate_listnet(z, y, groups, 1, 1),
            "two": lambda groups=groups: evaluate_listnet(z, y, groups, 2, 1),
            "numpy": lambda groups=groups: by_reduceat(z, y, groups.offsets),
        }
        best = dict.fromkeys(tasks, np.inf)
        for _ in range(7):
            for name, task in tasks.items():
                began = time.perf_counter()
                task()
                best[name] = min(best[name], time.perf_counter() - began)
        one, two, plain = (best[name] / best["exp"] for name in ("one", "two", "numpy"))
        print(f"{size:<20d}{best['exp'] * 1e3:9.2f} ms{one:8.2f}{two:8.2f}{plain:14.2f}")


def by_reduceat(z, y, offsets):
    sizes, models = np.diff(offsets), []
    for x in (z, y):
        e = np.exp(x - np.repeat(np.maximum.reduceat(x, offsets[:-1]), sizes))
        models.append(e / np.repeat(np.add.reduceat(e, offsets[:-1]), sizes))
    Q, P = models
    return -np.add.reduceat(P * np.log(Q), offsets[:-1]), (Q - P) / len(sizes)


def compare(folder):
    rows = {}
    for i in range(1, 6):
        train, vali, test = (
            load_letor(folder / f"Fold{i}" / f"{part}.txt") for part in ("train", "vali", "test")
        )
        for name, (chosen, w) in models(train, vali).items():
            found = evaluate(test.y, test.X @ w, test.qid, METRICS, "letor")
            rows.setdefault(name, []).append((chosen, [found[metric] for metric in METRICS]))
    print(f"{'':44s}" + "".join(f"{metric:>9s}" for metric in METRICS) + "   chosen in each fold")
    for name, folds in rows.items():
        means = np.mean([values for _, values in folds], axis=0)
        print(f"{name:44s}" + "".join(f"{m:9.4f}" for m in means) + f"   {', '.join(c for c, _ in folds)}")


def models(train, vali):
    """{name: (description of the choice, weights)}"""
    found = {}
    steps = {(rate, look): w for rate in RATES for look, w in descent(train, rate)}
    for criterion in CRITERIA:
        values = {key: criterion_of(vali, w, criterion) for key, w in steps.items()}
        for rate in RATES:
            key = max((key for key in steps if key[0] == rate), key=values.get)
            found[f"descent at rate {rate:g}, by {criterion}"] = (str(key[1]), steps[key])
        key = max(steps, key=values.get)
        found[f"descent at any rate, by {criterion}"] = (f"{key[1]} at {key[0]:g}", steps[key])
    for look in (64, 1024):
        found[f"descent at rate 0.1, {look} times"] = ("", steps[0.1, look])
    for criterion in CRITERIA:
        selection = Selection("validation", criterion=criterion)
        ranker = ListNetRanker(selection=selection, normalization="none", convention="letor")
        ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])
        chosen = ranker.fit_result_.chosen.setting["penalty"]
        found[f"penalized, by {criterion}"] = (f"{chosen:g}", ranker.coef_)
    ranker = ListNetRanker(penalty=0, max_iter=5000, tol=1e-12, normalization="none")
    found["no penalty"] = ("", ranker.fit(train.X, train.y, qid=train.qid).coef_)
    return found


def descent(train, rate):
    """The weights after 1, 2, 4, ... passes of gradient descent, one query at a time."""
    starts, ends = train.groups.offsets[:-1], train.groups.offsets[1:]
    queries = [(train.X[a:b], softmax(train.y[a:b])) for a, b in zip(starts, ends, strict=True)]
    w = np.zeros(train.X.shape[1])
    for passes in range(1, LOOKS[-1] + 1):
        for X, target in queries:
            w -= rate * ((softmax(X @ w) - target) @ X)
        if passes in LOOKS:
            yield passes, w.copy()


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def criterion_of(queries, w, criterion):
    found = evaluate(queries.y, queries.X @ w, queries.qid, criterion, "letor")
    return np.mean(list(found.values()))


if __name__ == "__main__":
    main()
