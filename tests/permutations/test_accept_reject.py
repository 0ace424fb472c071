"""Draws of matchings: their frequencies, the estimate of the permanent, and the coverage of its interval."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, chi2

from sinkprop.permutations import permanent, sample_matchings
from sinkprop.permutations.accept_reject import Accepted

SURPRISE = 1e-7  # probability that a statistical test would fail with another seed


def weights(A):
    """The weight of each matching."""
    n = len(A)
    return {s: math.prod(A[i][s[i]] for i in range(n)) for s in itertools.permutations(range(n))}


@pytest.mark.parametrize(
    "A",
    [
        np.ones((4, 4)),
        np.random.default_rng(0).random((5, 5)),
        np.exp(np.random.default_rng(1).normal(size=(4, 4))),
        np.random.default_rng(2).random((5, 5)) * (np.random.default_rng(3).random((5, 5)) < 0.6) + np.eye(5),
        np.exp(np.arange(4) * 20)[:, None] * np.random.default_rng(4).random((4, 4)),
        np.random.default_rng(5).random((4, 4)) ** [[9], [1], [1], [1]],  # the transpose has a lower bound
    ],
)
def test_frequencies_of_matchings(A):
    size = 40_000
    drawn = sample_matchings(A, size, seed=0)
    assert drawn.shape == (size, len(A))
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    observed = dict(zip(map(tuple, found.tolist()), counts.tolist(), strict=True))
    weight = weights(A)
    total = sum(weight.values())
    assert all(weight[s] > 0 for s in observed)
    common = [s for s in weight if size * weight[s] / total > 5]
    expected = np.array([size * weight[s] / total for s in common])
    statistic = ((np.array([observed.get(s, 0) for s in common]) - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(SURPRISE, len(common))


def test_draws_are_independent():
    drawn = sample_matchings(np.ones((2, 2)), 10_000, seed=3)[:, 0]
    repeats = int((drawn[1:] == drawn[:-1]).sum())
    assert binomtest(repeats, 9999, 0.5).pvalue > SURPRISE


def test_seeds():
    A = np.random.default_rng(0).random((6, 6))
    first = sample_matchings(A, 50, seed=1)
    assert np.array_equal(first, sample_matchings(A, 50, seed=1))
    assert np.array_equal(first[:20], sample_matchings(A, 20, seed=1))
    assert not np.array_equal(first, sample_matchings(A, 50, seed=2))
    assert not np.array_equal(sample_matchings(A, 50), sample_matchings(A, 50))
    rng = np.random.default_rng(1)
    assert not np.array_equal(sample_matchings(A, 50, seed=rng), sample_matchings(A, 50, seed=rng))


def test_structure_without_a_choice():
    order = np.random.default_rng(0).permutation(50)
    drawn = sample_matchings(np.eye(50)[order], 3, seed=0)
    assert np.array_equal(drawn, np.tile(order, (3, 1)))


@pytest.mark.parametrize(("n_accepted", "max_draws"), [(30, 10**6), (200, 300), (40, 250)])
def test_the_interval_covers_and_the_estimate_is_unbiased(n_accepted, max_draws):
    A = np.random.default_rng(7).random((6, 6))
    exact = permanent(A).value
    rng = np.random.default_rng(n_accepted)
    runs = [
        permanent(
            A,
            "accept-reject",
            n_accepted=n_accepted,
            max_draws=max_draws,
            confidence=0.9,
            seed=rng,
            n_threads=1,
        )
        for _ in range(1000)
    ]
    covered = sum(run.lower <= exact <= run.upper for run in runs)
    missed_below = sum(exact < run.lower for run in runs)
    # exact intervals cover with at least their confidence, and not with much more
    assert binom.cdf(covered, 1000, 0.9) > 1e-4
    assert covered < 960
    assert binom.sf(missed_below, 1000, 0.05) > 1e-4
    estimates = np.array([run.value for run in runs])
    error = estimates.mean() - exact
    assert abs(error) < 5 * estimates.std() / math.sqrt(1000)
    assert all(run.lower < run.value < run.upper and run.confidence == 0.9 for run in runs)


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize(("accepted", "most"), [(3, 10**9), (5, 40), (50, 40)])
def test_coverage_by_summation(rate, accepted, most):
    """Coverage and mean for a known acceptance rate, summed over all outcomes of the stopping rule."""
    outcomes = [(n, accepted, True) for n in range(accepted, min(most, 3000) + 1)]
    probability = [rate * binom.pmf(accepted - 1, n - 1, rate) for n, _, _ in outcomes]
    for k in range(1, accepted if most < 3000 else 1):
        outcomes.append((most, k, False))
        probability.append(binom.pmf(k, most, rate))
    covered = mean = 0.0
    for (n, k, complete), p in zip(outcomes, probability, strict=True):
        if p < 1e-13:
            continue
        value, lower, upper = map(math.exp, Accepted(n, k, 0.0, complete).log_permanent(0.9))
        covered += p * (lower <= rate <= upper)
        mean += p * value
    nothing = binom.pmf(0, most, rate) if most < 3000 else 0.0
    assert sum(probability) + nothing == pytest.approx(1, abs=1e-6)
    assert covered + nothing >= 0.9 - 1e-6
    assert mean == pytest.approx(rate, rel=1e-6)


def test_large_dense_matrices():
    result = permanent(np.ones((300, 300)), "accept-reject", n_accepted=2000, seed=0)
    assert result.log_lower < math.lgamma(301) < result.log_upper
    assert result.log_upper - result.log_lower < 0.2
    assert result.n_accepted == 2000
    assert 0.3 < result.n_accepted / result.n_draws < 0.6
    assert "contains it with probability 0.95." in result.message


def test_messages():
    A = np.exp(3 * np.random.default_rng(0).normal(size=(60, 60)))
    words = "None of 500 draws was accepted, so the permanent is below exp"
    with pytest.raises(RuntimeError, match=words):
        permanent(A, "accept-reject", max_draws=500, seed=0)
    with pytest.raises(RuntimeError, match=words):
        sample_matchings(A, max_draws=500, seed=0)
    with pytest.raises(RuntimeError, match=r"\d+ of 100 draws were accepted, fewer than size=90: raise"):
        sample_matchings(np.ones((9, 9)), 90, max_draws=100, seed=0)
    with pytest.raises(
        ValueError, match=r"A must have a perfect matching.*; rows 0, 1 have all their nonzero"
    ):
        sample_matchings([[1, 0, 0], [1, 0, 0], [1, 1, 1]])
    with pytest.raises(ValueError, match="size must be at least 1; got 0"):
        sample_matchings(np.ones((2, 2)), 0)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        sample_matchings(np.ones((2, 2)), seed=1.5)
