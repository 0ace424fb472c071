"""Drawing rankings: time, and frequencies of 100,000 rankings against the probabilities.

    python benchmarks/sampling.py        twenty seconds

Scores are standard normal and the relaxation is a Gaussian smoothed indicator with sigma = 0.3. Times are of
one thread and in seconds of processor time, from the scores or the matrix to the result.

"deviation" is the difference between the number of rankings with a document at a rank and its expectation
N p, in standard errors of independent rankings, sqrt(N p (1 - p)). Numbers of rankings are whole, so a cell
counts only if N p and N (1 - p) are at least 1; of the other cells, the largest difference is printed in
rankings. The last line of that table is for as many independent draws, one multinomial draw per rank.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from sinkprop import SmoothedIndicator, doubly_stochastic
from sinkprop.policies.decomposition import birkhoff
from sinkprop.policies.sampling import sample_rankings

KERNEL = SmoothedIndicator(0.3)
N = 100_000


def timed(function, *arguments, **options):
    start = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - start


def scores_of(n):
    return np.random.default_rng(n).normal(size=n)


def deviations(counts, Pi):
    expected = N * Pi
    common = (expected >= 1) & (N - expected >= 1)
    error = np.abs(counts - expected)
    standard = np.sqrt(expected * (1 - Pi).clip(0))
    return (error[common] / standard[common]).max(), error[~common].max(initial=0)


def frequencies():
    print(f"{N} rankings of 200 documents, deviations (rare cells)")
    for seed in range(3):
        drawn, seconds = timed(sample_rankings, scores_of(200), N, seed=seed, relaxation=KERNEL)
        cells = (drawn.rankings * 200 + np.arange(200)).ravel()
        counts = np.bincount(cells, minlength=200 * 200).reshape(200, 200)
        most, rare = deviations(counts, drawn.matrix)
        print(f"  seed {seed}: {most:.2f} ({rare:.2f}), {1e6 * seconds / N:.0f} microseconds per ranking")
    columns = (drawn.matrix / drawn.matrix.sum(axis=0)).T
    independent = np.random.default_rng(0).multinomial(N, columns).T
    most, rare = deviations(independent, drawn.matrix)
    print(f"  independent draws: {most:.2f} ({rare:.2f})")


def single(sizes):
    print("one ranking: seconds from scores, and from the matrix of probabilities")
    for n, k in sizes:
        drawn, from_scores = timed(sample_rankings, scores_of(n), k=k, seed=0, relaxation=KERNEL)
        _, from_matrix = timed(sample_rankings, drawn.matrix, seed=0)
        print(f"  {n:8d} documents, {k or n:3d} ranks: {from_scores:8.4f} {from_matrix:8.4f}")


def decompositions(sizes):
    print("birkhoff: rankings until all but .1, .01, .001 and 1e-9 of the weight is distributed, seconds")
    for n in sizes:
        Pi = doubly_stochastic(scores_of(n), relaxation=KERNEL)
        mixture, seconds = timed(birkhoff, Pi)
        total = np.cumsum(mixture.weights)
        terms = [int(np.searchsorted(total, 1 - rest)) + 1 for rest in (0.1, 0.01, 0.001)]
        print(f"  n = {n:3d}: {terms} {len(total)}, {seconds:.2f}; remainder {mixture.remainder:.1e}")


def main():
    sample_rankings(scores_of(5), seed=0)  # imports
    birkhoff(np.eye(2))
    single([(200, None), (10_000, 10), (1_000_000, 10)])
    frequencies()
    decompositions([50, 100, 200])


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
