"""The error of gains that are not rank-linear: a function of expected columns against the mean over rankings.

    python benchmarks/mean_field.py              under a minute
    python benchmarks/mean_field.py --draws 100  several minutes

Pi is the limit of Sinkhorn normalization for 20 normally distributed scores and a Gaussian kernel of width
sigma. F is the gain of Pi, as `sinkprop.reference.gain_of_matrix` defines it. E is the mean of the metric
over a distribution over rankings that has the rank probabilities Pi: a Birkhoff decomposition, Pi as a
weighted sum of permutation matrices, so that the mean is exact. It subtracts the permutation whose smallest
entry is largest, until nothing is left. E' is the mean over another decomposition, by permutations that are
best for random entries: rank probabilities do not determine the mean of a metric that is not rank-linear.

2, 6 and 10 of the documents are relevant, those with the largest sum of the score and normal noise. They have
grades from 1 to 4 and are relevant for one to three of three intents. The first table has means over all
draws, which are the same for every sigma. "documents per rank" is the exponential of the mean entropy of the
columns of Pi. The second table is for queries with one relevant document, for which the gain "mrr" is
E[1/rank] = sum_k R[k]/k. "cascade" is the formula for several documents, sum_k R[k]/k prod_(i<k) (1 - R[i]).
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sinkprop import SmoothedIndicator, evaluate, reference, sinkhorn_limit

Floats = NDArray[np.float64]

N = 20
SIGMAS = (0.03, 0.1, 0.3, 1.0, 3.0)
RELEVANT = (2, 6, 10)
RANK_LINEAR = ("ndcg@10", "p@5", "recall@5")
GRADED = (*RANK_LINEAR, "map", "mrr", "err(max_grade=4)")
INTENTS = ("alphandcg@10", "erria@10")


def decomposed(Pi: Floats, rng: np.random.Generator | None = None) -> tuple[NDArray[np.int64], Floats]:
    """Rankings (M, n) and weights (M,) whose sum is Pi, by largest smallest entries or at random."""
    left, rankings, weights = Pi.copy(), [], []
    while left.sum() > 1e-9 * N:
        if rng is None:
            ranking = _bottleneck(left)
        else:
            ranking = _matching(np.where(left > 0, rng.random(left.shape), -N))
        weight = left[ranking, np.arange(N)].min()
        if weight <= 0:  # only rounding errors are left
            break
        left[ranking, np.arange(N)] -= weight
        left[left < 1e-13] = 0
        rankings.append(ranking)
        weights.append(weight)
    assert abs(1 - sum(weights)) < 1e-6
    return np.array(rankings), np.array(weights) / sum(weights)


def _matching(value: Floats) -> NDArray[np.int64]:
    """The ranking s that maximizes sum_k value[s[k], k]."""
    ranking: NDArray[np.int64] = linear_sum_assignment(value.T, maximize=True)[1]
    return ranking


def _bottleneck(left: Floats) -> NDArray[np.int64]:
    """The ranking s that maximizes min_k left[s[k], k], by bisection."""
    entries = np.unique(left[left > 0])
    low, high = 0, len(entries)
    found = _matching(np.where(left > 0, left, -N))
    while high - low > 1:  # a ranking exists at entries[low], if there is one at all
        middle = (low + high) // 2
        tried = _matching((left >= entries[middle]).astype(np.float64))
        if (left[tried, np.arange(N)] >= entries[middle]).all():
            low, found = middle, tried
        else:
            high = middle
    return found


def mean_metrics(
    rankings: NDArray[np.int64], weights: Floats, labels: Floats, metrics: tuple[str, ...]
) -> Floats:
    """Means of the metrics over weighted rankings."""
    M = len(rankings)
    found = evaluate(
        labels[rankings].reshape(M * N, *labels.shape[1:]),
        np.tile(-np.arange(N), M),
        np.repeat(np.arange(M), N),
        metrics=metrics,
        convention="standard",
    )
    return np.array([weights @ found.per_query[metric] for metric in metrics])


def gains(Pi: Floats, labels: Floats, metrics: tuple[str, ...]) -> Floats:
    """Gains of Pi that correspond to the metrics."""
    stated = {"ndcg@10": "ndcg(discount=log2)@10"}  # the convention "standard"
    return np.array([reference.gain_of_matrix(Pi, labels, stated.get(m, m)).real for m in metrics])


def draw(rng: np.random.Generator, scores: Floats, n_relevant: int) -> tuple[Floats, Floats]:
    """Grades (n,), and labels (n, 3) for three intents."""
    relevant = np.zeros(N, dtype=bool)
    relevant[np.argsort(-scores - rng.normal(size=N))[:n_relevant]] = True
    grades = np.where(relevant, rng.integers(1, 5, N), 0).astype(np.float64)
    intents = (rng.random((N, 3)) < 0.5) | np.eye(3, dtype=bool)[rng.integers(3, size=N)]
    return grades, (intents & relevant[:, None]).astype(np.float64)


def policy(scores: Floats, sigma: float) -> Floats:
    """A doubly-stochastic matrix."""
    limit = sinkhorn_limit(reference.pre_sinkhorn(scores, SmoothedIndicator(sigma)) + 1e-6, tol=1e-12)
    assert limit.converged
    return limit.matrix


def measured(sigma: float, n_draws: int, seed: int) -> tuple[Floats, Floats]:
    """F, E and E' of every metric and draw, (3, metrics, draws), and the means for one relevant document."""
    rng, random = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    found, items, spread, counts = [], [], [], []
    for n_relevant in np.repeat(RELEVANT, n_draws):
        scores = rng.normal(size=N)
        grades, intents = draw(rng, scores, n_relevant)
        Pi = policy(scores, sigma)
        ways = decomposed(Pi), decomposed(Pi, random)
        spread.append(np.exp(-(Pi * np.log(Pi)).sum() / N))
        counts.append([len(rankings) for rankings, _ in ways])
        values = [np.concatenate([gains(Pi, grades, GRADED), gains(Pi, intents, INTENTS)])]
        for way in ways:
            means = mean_metrics(*way, grades, GRADED), mean_metrics(*way, intents, INTENTS)
            values.append(np.concatenate(means))
        found.append(values)
        items.append(one_relevant(Pi, draw(rng, scores, 1)[0]))
    first, second = np.mean(counts, axis=0)
    print(f"sigma {sigma:g}: {np.mean(spread):.1f} documents per rank, {first:.0f} and {second:.0f} rankings")
    return np.array(found).transpose(1, 2, 0), np.mean(items, axis=0)


def one_relevant(Pi: Floats, labels: Floats) -> Floats:
    """E[1/rank] of the only relevant document, the gain "mrr", and the cascade formula."""
    R, d = (labels > 0) @ Pi, 1 / np.arange(1, N + 1)
    interest = np.append(1, np.cumprod(1 - R)[:-1])
    return np.array([d @ R, reference.gain_of_matrix(Pi, labels, "mrr").real, d @ (R * interest)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws", type=int, default=25, help="draws per number of relevant documents  [default: 25]"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of scores and labels  [default: 0]")
    given = parser.parse_args()
    began = time.perf_counter()
    found = {sigma: measured(sigma, given.draws, given.seed) for sigma in SIGMAS}
    print(
        "\n| gain | sigma | E | F - E | mean of abs(F - E) | mean of abs(E' - E) |\n|---|---|---|---|---|---|"
    )
    for i, metric in enumerate(GRADED + INTENTS):
        for sigma, ((F, E, other), _) in found.items():
            cells = [E[i].mean(), (F - E)[i].mean(), abs(F - E)[i].mean(), abs(other - E)[i].mean()]
            shown = [f"{cell:.4f}".replace("-0.0000", "0.0000") for cell in cells]
            print(f"| {metric} | {sigma:g} | {' | '.join(shown)} |")
    apart = max(abs(F - E)[: len(RANK_LINEAR)].max() for (F, E, _), _ in found.values())
    print(f"largest abs(F - E) of {', '.join(RANK_LINEAR)}: {apart:.1e}")
    print("\n| one relevant document: sigma | E[1/rank] | mrr | cascade | cascade - E, % |")
    print("|---|---|---|---|---|")
    means = {sigma: items for sigma, (_, items) in found.items()}
    means[np.inf] = one_relevant(np.full((N, N), 1 / N), np.eye(N)[0])
    for sigma, (exact, gain, cascade) in means.items():
        apart = 100 * (cascade / exact - 1)
        print(f"| {sigma:g} | {exact:.4f} | {gain:.4f} | {cascade:.4f} | {apart:+.1f} |")
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
