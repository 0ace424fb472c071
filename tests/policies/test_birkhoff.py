"""Mixtures of rankings from doubly-stochastic matrices, against brute force over all rankings."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import SmoothedIndicator, doubly_stochastic, sinkhorn_limit
from sinkprop.policies.decomposition import birkhoff
from sinkprop.policies.mixture import RankingMixture


def limit(n, seed=0, spread=1.0):
    A = np.exp(spread * np.random.default_rng([n, seed]).normal(size=(n, n)))
    return sinkhorn_limit(A, tol=1e-13).matrix


def assert_rankings(mixture, n):
    assert np.array_equal(np.sort(mixture.rankings), np.tile(np.arange(n), (len(mixture.rankings), 1)))
    assert mixture.weights.min() > 0
    assert mixture.weights.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20, 40])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_the_mixture_has_the_probabilities(n, spread):
    Pi = limit(n, spread=spread)
    mixture = birkhoff(Pi)
    assert_rankings(mixture, n)
    assert mixture.matrix() == pytest.approx(Pi, abs=1e-9)
    assert 0 <= mixture.remainder <= 1e-9
    assert len(mixture.weights) <= (n - 1) ** 2 + 1  # every step but the last leaves one more zero


def test_a_permutation_matrix_is_one_ranking():
    order = np.random.default_rng(0).permutation(30)
    mixture = birkhoff(np.eye(30)[:, order])
    assert mixture.weights.tolist() == [1.0]
    assert mixture.rankings.tolist() == [np.argsort(np.argsort(order)).tolist()]
    assert (mixture.remainder, mixture.largest_change) == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(10))
def test_each_step_takes_the_best_of_all_rankings(seed):
    Pi = limit(3 + seed % 2, seed)
    n, rest = len(Pi), Pi.copy()
    mixture = birkhoff(Pi)
    for weight, ranking in zip(mixture.weights * (1 - mixture.remainder), mixture.rankings, strict=True):
        entries = [min(rest[order, np.arange(n)]) for order in itertools.permutations(range(n))]
        assert weight == pytest.approx(max(entries), abs=1e-12)
        assert min(rest[ranking, np.arange(n)]) == pytest.approx(max(entries), abs=1e-12)
        rest[ranking, np.arange(n)] -= weight
    assert rest == pytest.approx(np.zeros((n, n)), abs=1e-9)


def test_ties():
    mixture = birkhoff(np.full((6, 6), 1 / 6))  # a Latin square: six rankings that share no entry
    assert mixture.weights == pytest.approx(np.full(6, 1 / 6))
    assert mixture.matrix() == pytest.approx(np.full((6, 6), 1 / 6), abs=1e-12)


def test_truncation_states_the_remainder():
    Pi = limit(12)
    whole, part = birkhoff(Pi), birkhoff(Pi, max_terms=5)
    assert np.array_equal(part.rankings, whole.rankings[:5])
    assert part.remainder == pytest.approx(1 - whole.weights[:5].sum(), abs=1e-8)
    assert part.weights.sum() == pytest.approx(1)
    # what was taken is nowhere more than Pi
    assert (Pi - (1 - part.remainder) * part.matrix()).min() > -1e-12
    loose = birkhoff(Pi, tol=0.2)
    assert loose.remainder <= 0.2 < loose.remainder + loose.weights[-1] * (1 - loose.remainder)


def test_a_few_sinkhorn_iterations_are_continued():
    Pi = doubly_stochastic(np.random.default_rng(0).normal(size=15), relaxation=SmoothedIndicator(0.3))
    mixture = birkhoff(Pi)
    assert mixture.largest_change > 1e-4
    assert np.abs(mixture.matrix() - Pi).max() == pytest.approx(mixture.largest_change, abs=2e-9)


@given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 10**6))
def test_mixtures_with_zeros_are_reproduced(n, terms, seed):
    rng = np.random.default_rng(seed)
    given_mixture = RankingMixture(
        rng.dirichlet(np.ones(terms)), np.array([rng.permutation(n) for _ in range(terms)]), n
    )
    Pi = given_mixture.matrix()
    mixture = birkhoff(Pi)
    assert_rankings(mixture, n)
    assert mixture.matrix() == pytest.approx(Pi, abs=2e-9)
    assert not mixture.matrix()[Pi == 0].any()


def test_a_matrix_by_hand():
    # rows are documents: weight 0.75 for the ranking 1, 0 and 0.25 for 0, 1
    mixture = RankingMixture(np.array([0.75, 0.25]), np.array([[1, 0], [0, 1]]), 2)
    assert mixture.matrix().tolist() == [[0.25, 0.75], [0.75, 0.25]]
    top = RankingMixture(np.array([0.75, 0.25]), np.array([[2], [0]]), 3)
    assert top.matrix().tolist() == [[0.25], [0.0], [0.75]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"Pi": np.ones((3, 2)) / 2.5}, "Pi must be a square matrix; got shape (3, 2)."),
        ({"Pi": np.ones((2, 2))}, "Pi must have column sums of about 1; column 0 sums to 2, 1 from 1."),
        ({"tol": 0}, "tol must be a finite number, above 0; got 0."),
        ({"tol": 1.0}, "tol must be below 1; got 1.0."),
        ({"max_terms": 0}, "max_terms must be at least 1; got 0."),
        ({"max_terms": 2.5}, "max_terms must be a whole number, at least 1; got 2.5."),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        birkhoff(**{"Pi": np.eye(2), **arguments})
