"""Rankings drawn at random: their frequencies against the probabilities, exactly where these are dyadic."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from sinkprop import PartitionedMeasure, SmoothedIndicator, _native, doubly_stochastic, sinkhorn_limit
from sinkprop.policies.decomposition import birkhoff
from sinkprop.policies.mixture import RankingMixture
from sinkprop.policies.sampling import sample_rankings

SURPRISE = 1e-7  # probability that a statistical test would fail with another seed


def limit(n, seed=0, spread=1.0):
    A = np.exp(spread * np.random.default_rng([n, seed]).normal(size=(n, n)))
    return sinkhorn_limit(A, tol=1e-13).matrix


def counts(rankings, n):
    """Number of rankings with each document at each rank."""
    k = rankings.shape[1]
    return np.bincount((rankings * k + np.arange(k)).ravel(), minlength=n * k).reshape(n, k)


def assert_consistent(drawn, size, n, k):
    assert drawn.rankings.shape == drawn.propensities.shape == (size, k)
    assert drawn.matrix.shape == (n, k)
    ordered = np.sort(drawn.rankings)
    assert ordered.min() >= 0
    assert ordered.max() < n
    assert np.all(np.diff(ordered) > 0), "a document is in a ranking twice"
    for s, i in itertools.product(range(min(size, 20)), range(k)):
        assert drawn.propensities[s, i] == drawn.matrix[drawn.rankings[s, i], i]
    assert drawn.propensities.min() > 0


def assert_frequencies(rankings, Pi):
    """Chi-square tests of independent rankings, one per rank."""
    n, k = Pi.shape
    for rank in range(k):
        expected = len(rankings) * Pi[:, rank]
        observed = counts(rankings, n)[:, rank]
        assert not observed[expected == 0].any()
        kept = expected > 0
        assert expected[kept].min() > 5
        statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
        assert statistic < chi2.isf(SURPRISE / k, kept.sum() - 1)


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize(
    "Pi",
    [
        limit(3),
        limit(5, spread=0.2)[:, :2],
        np.array([[0.5, 0.5, 0.0], [0.3, 0.2, 0.5], [0.2, 0.3, 0.5]]),
        np.full((4, 4), 0.25),
        (np.eye(5) + np.eye(5)[[1, 2, 3, 4, 0]] + np.eye(5)[[2, 0, 1, 4, 3]]) / 3,
    ],
)
def test_every_ranking_of_a_call_has_the_probabilities(Pi, size):
    rng = np.random.default_rng(size)
    calls = np.stack([sample_rankings(Pi, size, seed=rng).rankings for _ in range(1500)])
    for place in {0, size - 1}:
        assert_frequencies(calls[:, place], Pi)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_frequencies_of_a_power_of_two_are_within_one_of_the_expectation(n, seed):
    Pi = limit(n, seed)
    for size in (1, 8, 1024):
        drawn = sample_rankings(Pi, size, seed=seed)
        assert_consistent(drawn, size, n, n)
        assert np.abs(counts(drawn.rankings, n) - size * Pi).max() < 1 + 1e-6


@given(st.integers(1, 8), st.integers(0, 5), st.integers(0, 10**6))
def test_dyadic_probabilities_are_met_exactly(n, bits, seed):
    rng = np.random.default_rng(seed)
    size = 2**bits
    whole = counts(np.array([rng.permutation(n) for _ in range(size)]), n)  # every sum is 2^bits
    k = int(rng.integers(1, n + 1))
    drawn = sample_rankings(whole[:, :k] / size, size, seed=seed)
    assert_consistent(drawn, size, n, k)
    assert np.array_equal(counts(drawn.rankings, n), whole[:, :k])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(0, 10**6))
def test_any_shape(n, k, size, seed):
    k = min(n, k)
    drawn = sample_rankings(limit(n, seed, 3.0)[:, :k], size, seed=seed)
    assert_consistent(drawn, size, n, k)


def test_numbers_of_rankings_between_powers_of_two():
    Pi = limit(20)
    expected = 3000 * Pi
    found = counts(sample_rankings(Pi, 3000, seed=0).rankings, 20)
    # 400 frequencies, each of smaller variance than of independent rankings: six standard errors
    assert np.all(np.abs(found - expected) <= np.maximum(1, 6 * np.sqrt(expected * (1 - Pi))))


def test_rankings_of_a_call_are_closer_than_independent_ones():
    Pi = limit(10)
    found = counts(sample_rankings(Pi, 700, seed=0).rankings, 10)
    variance = 700 * Pi * (1 - Pi)
    assert ((found - 700 * Pi) ** 2 / variance).mean() < 0.5  # 1 for independent rankings


def test_inverse_propensity_estimates_are_exact_on_average():
    # With dyadic probabilities, the rankings of one call are all that is possible, in the right proportions.
    rng = np.random.default_rng(0)
    size, n, k = 64, 6, 4
    Pi = counts(np.array([rng.permutation(n) for _ in range(size)]), n)[:, :k] / size
    drawn = sample_rankings(Pi, size, seed=1)
    click = rng.random((n, k)) * (Pi > 0)  # probability of a click on a document at a rank
    target = rng.dirichlet(np.ones(n), size=k).T * (Pi > 0)  # another policy's probabilities
    weights = target[drawn.rankings, np.arange(k)] / drawn.propensities
    estimates = (weights * click[drawn.rankings, np.arange(k)]).sum(axis=1)
    assert estimates.mean() == pytest.approx((target * click).sum(), rel=1e-12)


def test_zero_entries_are_never_drawn():
    rng = np.random.default_rng(0)
    for seed in range(20):
        terms = np.array([rng.permutation(12) for _ in range(4)])
        Pi = RankingMixture(rng.dirichlet(np.ones(4)), terms, 12).matrix()
        drawn = sample_rankings(Pi, 100, seed=seed)
        assert not counts(drawn.rankings, 12)[Pi == 0].any()


class TestSources:
    def test_scores_have_the_limit_of_sinkhorn_normalization(self):
        scores = np.random.default_rng(0).normal(size=40)
        relaxation = SmoothedIndicator(0.5, "laplace")
        drawn = sample_rankings(scores, 5, seed=0, relaxation=relaxation)
        assert_consistent(drawn, 5, 40, 40)
        many = doubly_stochastic(scores, relaxation=relaxation, n_iter=5000)
        assert drawn.matrix == pytest.approx(many, abs=1e-9)
        assert drawn.largest_change == 0
        top = sample_rankings(scores, 5, k=3, seed=0, relaxation=relaxation)
        assert np.array_equal(top.matrix, drawn.matrix[:, :3])

    def test_top_of_a_long_list(self):
        scores = np.random.default_rng(0).normal(size=400)
        drawn = sample_rankings(scores, 8, k=10, seed=0)
        assert_consistent(drawn, 8, 400, 10)
        exact = sample_rankings(scores, 8, seed=0).matrix[:, :10]
        assert drawn.matrix == pytest.approx(exact, abs=1e-6)

    def test_a_hundred_thousand_documents(self):
        scores = np.random.default_rng(0).normal(size=100_000)
        relaxation = SmoothedIndicator(0.1, "laplace")
        drawn = sample_rankings(scores, 3, k=4, seed=0, relaxation=relaxation)
        assert_consistent(drawn, 3, 100_000, 4)
        assert drawn.matrix.sum(axis=0) == pytest.approx(np.ones(4), abs=1e-9)

    def test_tied_scores_are_equally_likely_everywhere(self):
        drawn = sample_rankings(np.zeros(6), 2, seed=0)
        assert drawn.matrix == pytest.approx(np.full((6, 6), 1 / 6))

    def test_a_tiny_width_gives_the_sort(self):
        scores = [0.3, 2.0, -1.0, 0.7]
        drawn = sample_rankings(scores, 50, seed=0, relaxation=SmoothedIndicator(1e-3))
        # epsilon leaves other rankings a probability of about 1e-6 per entry
        assert drawn.rankings.tolist() == [[1, 3, 0, 2]] * 50

    def test_one_document(self):
        for source in ([3.7], [[1.0]], RankingMixture(np.ones(1), np.array([[0]]), 1)):
            drawn = sample_rankings(source, 3)
            assert drawn.rankings.tolist() == [[0]] * 3
            assert drawn.propensities.tolist() == [[1.0]] * 3

    def test_one_rank(self):
        drawn = sample_rankings(limit(8), 256, k=1, seed=0)
        assert_consistent(drawn, 256, 8, 1)
        assert np.abs(counts(drawn.rankings, 8) - 256 * limit(8)[:, :1]).max() < 1 + 1e-6

    def test_a_matrix_with_inexact_sums_is_repaired(self):
        Pi = doubly_stochastic(np.random.default_rng(0).normal(size=15), relaxation=SmoothedIndicator(0.3))
        drawn = sample_rankings(Pi, 4, seed=0)
        assert drawn.matrix.sum(axis=0) == pytest.approx(np.ones(15), abs=1e-9)
        assert drawn.largest_change == np.abs(drawn.matrix - Pi).max() > 1e-4

    @pytest.mark.parametrize("k", [None, 2])
    def test_a_mixture_is_drawn_by_its_weights(self, k):
        mixture = birkhoff(limit(4))
        drawn = sample_rankings(mixture, 10_000, k=k, seed=0)
        assert_consistent(drawn, 10_000, 4, k or 4)
        assert np.array_equal(drawn.matrix, mixture.matrix()[:, :k])
        for weight, ranking in zip(mixture.weights, mixture.rankings, strict=True):
            if k is None:
                assert abs((drawn.rankings == ranking).all(axis=1).sum() - 10_000 * weight) < 1
        first = np.stack([sample_rankings(mixture, 2, seed=s).rankings[0] for s in range(3000)])
        assert_frequencies(first, mixture.matrix())


def test_seeds():
    Pi = limit(10)
    first, again, other = (sample_rankings(Pi, 4, seed=seed).rankings for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    rng = np.random.default_rng(7)
    assert np.array_equal(first, sample_rankings(Pi, 4, seed=rng).rankings)
    assert not np.array_equal(first, sample_rankings(Pi, 4, seed=rng).rankings)
    assert not np.array_equal(*(sample_rankings(Pi, 4).rankings for _ in range(2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be at least 1; got 0."),
        ({"size": 1.5}, "size must be a whole number, at least 1; got 1.5."),
        ({"k": 0}, "k must be at least 1; got 0."),
        ({"k": 4}, "k must be at most 3, the number of ranks of source; got 4."),
        ({"source": [1.0, 2.0], "k": 3}, "k must be at most 2, the number of ranks of source; got 3."),
        ({"source": []}, "scores must hold at least one document; got none."),
        ({"source": [1.0, np.nan]}, "scores must be finite; row 1 holds nan."),
        ({"source": "scores"}, "source must be an array of numbers"),
        ({"source": 3.0}, "source must have one row per document and one column per rank"),
        ({"source": np.eye(3)[:2]}, "with at most as many ranks as documents; got shape (2, 3)."),
        ({"source": [[0.9, -0.1], [0.1, 1.1]]}, "at least 0; got source[0, 1] = -0.1."),
        ({"source": np.ones((3, 3))}, "source must have column sums of about 1; column 0 sums to 3"),
        ({"relaxation": "gauss"}, "relaxation must be one of 'gaussian'"),
        (
            {"source": [1.0, 2.0], "relaxation": PartitionedMeasure()},
            "relaxation must be a SmoothedIndicator",
        ),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        sample_rankings(**{"source": np.eye(3), **arguments})


class TestNative:
    def test_columns_that_cannot_be_filled_are_drawn_again(self):
        # The only ranking without zero entries is 0, 1, and half of the mass of each column is missing.
        p = np.array([[0.5, 0.25], [0.0, 0.25]])
        for seed in range(50):
            rankings = np.full((1, 2), -1)
            _native.draw_rankings(p, seed, rankings)
            assert rankings.tolist() == [[0, 1]]

    def test_arrays_that_do_not_fit(self):
        for p, shape in (
            (np.ones((1, 2)), (1, 2)),
            (np.ones((2, 0)), (1, 0)),
            (np.eye(2), (0, 2)),
        ):
            with pytest.raises(ValueError, match="out of range"):
                _native.draw_rankings(p, 0, np.empty(shape, dtype=np.int64))
        with pytest.raises(TypeError, match="rankings must have 2 elements; it has 3"):
            _native.draw_rankings(np.eye(2), 0, np.empty((1, 3), dtype=np.int64))
        with pytest.raises(TypeError):  # a converted copy would be filled in its place
            _native.draw_rankings(np.eye(2), 0, np.empty((1, 2), dtype=np.int32))
