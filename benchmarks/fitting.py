"""The cost of an evaluation within a fit, and of its parts.

    python benchmarks/fitting.py [--queries 10000] [--documents 120] [--features 136] [--threads N]

An L-BFGS evaluation needs two products with the features, X w and X' g, and the expected gain with its
gradient. The output has the seconds of each of the three alone, and the seconds per evaluation of a whole
`fit`, including the optimizer and the checks.
"""

import argparse
import time

import numpy as np

from sinkprop import Annealing, SinkPropRanker, SmoothedIndicator, expected_gain


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=10_000, help="number of queries  [default: 10000]")
    parser.add_argument("--documents", type=int, default=120, help="documents per query  [default: 120]")
    parser.add_argument("--features", type=int, default=136, help="number of features  [default: 136]")
    parser.add_argument(
        "--threads", type=int, default=None, help="number of threads  [default: all processors]"
    )
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    n = options.queries * options.documents
    X = rng.random((n, options.features))
    qid = np.repeat(np.arange(options.queries), options.documents)
    w = rng.normal(size=options.features)
    scores = X @ w
    y = np.digitize(scores / scores.std() + rng.normal(size=n), [0.8, 1.6, 2.4]).astype(float)
    g = rng.normal(size=n)

    relaxation = SmoothedIndicator(scores.std())
    parts = {
        "X w": lambda: X @ w,
        "X' g": lambda: X.T @ g,
        "expected gain": lambda: expected_gain(
            scores, y, qid, relaxation=relaxation, n_threads=options.threads
        ),
    }
    seconds = {name: best(part) for name, part in parts.items()}
    ranker = SinkPropRanker(penalty=1e-4, annealing=Annealing(4, 1), max_iter=10, n_threads=options.threads)
    began = time.perf_counter()
    result = ranker.fit(X, y, qid=qid, eval_set=[(X[:1200], y[:1200])], eval_qid=[qid[:1200]]).fit_result_
    whole = time.perf_counter() - began
    stages = [stage for stage in result.stages if stage.penalty < np.inf]
    each = sum(s.seconds for s in stages) / sum(s.evaluations for s in stages)

    print(f"{options.queries} queries of {options.documents} documents, {options.features} features")
    for name, value in seconds.items():
        print(f"{name:32s} {value:8.4f} s")
    print(f"{'together':32s} {sum(seconds.values()):8.4f} s")
    print(f"{'an evaluation in fit':32s} {each:8.4f} s   {each / sum(seconds.values()):.2f} times that")
    print(f"{'the whole fit':32s} {whole:8.1f} s   {result.evaluations} evaluations")


def best(work, times=5):
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


if __name__ == "__main__":
    main()
