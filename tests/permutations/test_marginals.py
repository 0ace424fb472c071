"""Marginals of matchings against the definition, and their relation to Sinkhorn's limit."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkprop import sinkhorn_limit
from sinkprop.permutations import matching_marginals, permanent


def by_definition(A):
    n = len(A)
    marginals = np.zeros((n, n))
    for s in itertools.permutations(range(n)):
        marginals[range(n), s] += math.prod(A[i][s[i]] for i in range(n))
    return marginals / marginals[0].sum()


@settings(deadline=None)
@given(st.integers(1, 6), st.floats(0, 5), st.floats(0, 0.7), st.integers(0, 10**6))
def test_definition(n, spread, zeros, seed):
    rng = np.random.default_rng(seed)
    A = np.exp(spread * rng.normal(size=(n, n))) * (rng.random((n, n)) >= zeros) + np.eye(n)
    result = matching_marginals(A)
    assert result.method == "exact"
    np.testing.assert_allclose(result.matrix, by_definition(A), rtol=1e-12)
    assert result.lower is result.matrix is result.upper
    assert result.confidence == 1


@pytest.mark.parametrize("n", [7, 12, 20])
def test_ratios_of_permanents(n):
    A = np.random.default_rng(n).random((n, n))
    marginals = matching_marginals(A).matrix
    np.testing.assert_allclose(marginals.sum(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(marginals.sum(axis=1), 1, rtol=1e-12)
    for i, j in [(0, 0), (n - 1, 2), (3, n - 1)]:
        minor = np.delete(np.delete(A, i, axis=0), j, axis=1)
        ratio = A[i, j] * permanent(minor).value / permanent(A).value
        assert marginals[i, j] == pytest.approx(ratio, rel=1e-11)


@given(st.integers(1, 7), st.integers(0, 10**6))
def test_scaling_changes_nothing(n, seed):
    rng = np.random.default_rng(seed)
    A = rng.random((n, n)) + 0.01
    u, v = np.exp(rng.normal(size=(2, n)) * 40)
    expected = matching_marginals(A).matrix
    np.testing.assert_allclose(matching_marginals(u[:, None] * A * v).matrix, expected, rtol=1e-10)


def test_where_the_limit_is_exact_and_where_not():
    ones = matching_marginals(np.ones((6, 6))).matrix
    np.testing.assert_allclose(ones, sinkhorn_limit(np.ones((6, 6))).matrix)
    # two rows: the limit solves p^2 : (1 - p)^2 = ad : bc, the marginals p : (1 - p) = ad : bc
    A = np.array([[4.0, 1], [1, 1]])
    assert matching_marginals(A).matrix[0, 0] == pytest.approx(4 / 5)
    assert sinkhorn_limit(A).matrix[0, 0] == pytest.approx(2 / 3)


def test_blocks():
    rng = np.random.default_rng(0)
    A = np.kron(np.eye(5), np.ones((12, 12))) * rng.random((60, 60)) + np.triu(np.ones((60, 60)), 12)
    order = rng.permutation(60)
    matrix = matching_marginals(A[:, order]).matrix
    for start in range(0, 60, 12):
        block = slice(start, start + 12)
        columns = np.argsort(order)[block]
        np.testing.assert_allclose(matrix[block][:, columns], matching_marginals(A[block, block]).matrix)
    assert np.count_nonzero(matrix) == 5 * 144


def test_counts_of_draws():
    A = np.random.default_rng(1).random((15, 15))
    exact = matching_marginals(A).matrix
    misses = 0
    for seed in range(20):
        result = matching_marginals(A, "accept-reject", seed=seed, n_accepted=2000)
        misses += not np.all((result.lower <= exact) & (exact <= result.upper))
        assert result.n_accepted == 2000 < result.n_draws
        np.testing.assert_allclose(result.matrix.sum(axis=0), 1)
        assert np.all((result.lower <= result.matrix) & (result.matrix <= result.upper))
    assert misses <= 5  # 1 expected; more have a probability of 3e-4
    assert np.abs(result.matrix - exact).max() < 0.05


def test_forced_and_impossible_entries_are_certain():
    A = np.kron(np.eye(2), np.ones((30, 30)))
    A = np.block([[A, np.zeros((60, 1))], [np.ones((1, 60)), np.ones((1, 1))]])
    result = matching_marginals(A, seed=0, n_accepted=500)
    assert result.method == "accept-reject"
    assert result.lower[60, 60] == result.upper[60, 60] == 1
    assert result.upper[60, :60].max() == 0
    assert result.upper[:30, 30:60].max() == 0
    assert np.all(result.lower[:30, :30] <= 1 / 30)
    assert np.all(result.upper[:30, :30] >= 1 / 30)


def test_errors():
    with pytest.raises(
        ValueError, match=r"method='exact' is for at most 20 rows; A has 21 rows, which would"
    ):
        matching_marginals(np.ones((21, 21)), "exact")
    with pytest.raises(
        ValueError, match=r"perfect matching.*; rows 0, 1 have all their nonzero entries in column 0"
    ):
        matching_marginals([[1, 0, 0], [1, 0, 0], [1, 1, 1]])
    with pytest.raises(ValueError, match="method must be 'auto' or 'exact' or 'accept-reject'; got 'bounds'"):
        matching_marginals([[1]], "bounds")
    with pytest.raises(ValueError, match="got A\\[0, 0\\] = -1"):
        matching_marginals([[-1]])
