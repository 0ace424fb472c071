"""The repair of rank probabilities against the definition of Sinkhorn's limit, and the checks."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from sinkprop import SmoothedIndicator, doubly_stochastic, sinkhorn
from sinkprop.policies.doubly_stochastic import rank_probabilities, repaired

PERMUTATION = np.eye(4)[[2, 0, 3, 1]]


def fails(message):
    return pytest.raises(ValueError, match=re.escape(message))


def test_two_by_two_by_hand():
    # The ratio P00 P11 / (P01 P10) = 36 is kept: x^2 / (1 - x)^2 = 36 has the solution x = 6/7.
    matrix, change = repaired(np.array([[0.9, 0.2], [0.1, 0.8]]))
    assert matrix == pytest.approx(np.array([[6, 1], [1, 6]]) / 7, abs=1e-12)
    assert change == pytest.approx(0.2 - 1 / 7, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_five_iterations_are_continued_to_their_limit(n, sigma):
    scores = np.random.default_rng(n).normal(size=n)
    relaxation = SmoothedIndicator(sigma)
    Pi = doubly_stochastic(scores, relaxation=relaxation)
    matrix, change = repaired(rank_probabilities(Pi, "Pi"))
    assert matrix.sum(axis=0) == pytest.approx(np.ones(n), abs=1e-11)
    assert matrix.sum(axis=1) == pytest.approx(np.ones(n), abs=1e-11)
    # the limit is the only matrix with these sums and with log(matrix / Pi) = row term + column term
    ratio = np.log(matrix) - np.log(Pi)
    assert ratio - ratio[:1] - ratio[:, :1] + ratio[0, 0] == pytest.approx(np.zeros((n, n)), abs=1e-7)
    assert change == np.abs(matrix - Pi).max()


def test_right_sums_are_left_alone():
    for Pi in (PERMUTATION, np.full((3, 3), 1 / 3), PERMUTATION[:, :2], np.ones((1, 1))):
        matrix, change = repaired(Pi)
        assert change == 0
        assert np.array_equal(matrix, Pi)


def random_probabilities(n, k, seed):
    """Columns that sum to 1, with zeros in a pattern that contains a permutation."""
    rng = np.random.default_rng(seed)
    A = np.eye(n)[rng.permutation(n)] + rng.random((n, n)) * (rng.random((n, n)) < 0.5)
    return sinkhorn(A, 6.5)[:, :k]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10**6))
def test_sums(n, k, seed):
    k = min(n, k)
    Pi = random_probabilities(n, k, seed)
    matrix, change = repaired(Pi)
    assert matrix.sum(axis=0) == pytest.approx(np.ones(k), abs=2e-9)
    assert matrix.sum(axis=1).max() <= 1 + 2e-9
    assert np.abs(matrix - Pi).max() == change


@given(st.integers(1, 8), st.integers(0, 10**6))
def test_zeros_stay_zeros(n, seed):
    Pi = random_probabilities(n, n, seed)
    assert not repaired(Pi)[0][Pi == 0].any()


def test_fewer_columns_give_the_closest_matrix_in_divergence():
    P = np.array([[0.95, 0.3], [0.03, 0.4], [0.02, 0.3]])
    matrix, _ = repaired(P)

    def divergence(x):
        X = x.reshape(P.shape)
        return float((X * np.log(X / P) - X + P).sum())

    constraints = (
        {"type": "eq", "fun": lambda x: x.reshape(P.shape).sum(axis=0) - 1},
        {"type": "ineq", "fun": lambda x: 1 - x.reshape(P.shape).sum(axis=1)},
    )
    bounds = [(1e-6, 1)] * P.size
    best = minimize(
        divergence, P.ravel(), method="SLSQP", bounds=bounds, constraints=constraints, options={"ftol": 1e-14}
    )
    assert best.success
    assert matrix == pytest.approx(best.x.reshape(P.shape), abs=1e-5)
    assert matrix[0].sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("Pi", "message"),
    [
        ([0.5, 0.5], "Pi must have one row per document and one column per rank"),
        (np.ones((2, 3)) / 2, "with at most as many ranks as documents; got shape (2, 3)."),
        (np.ones((0, 0)), "got shape (0, 0)."),
        ([["a", "b"]], "Pi must be an array of numbers"),
        ([[1, 0], [0]], "Pi must be an array of numbers"),
        ([[1.1, -0.1], [-0.1, 1.1]], "finite entries of at least 0; got Pi[0, 1] = -0.1."),
        ([[1.0, 0.0], [np.nan, 1.0]], "got Pi[1, 0] = nan."),
        ([[1.0, 0.0], [0.0, np.inf]], "got Pi[1, 1] = inf."),
        ([[0.5, 0.1], [0.5, 0.1]], "column sums of about 1; column 1 sums to 0.2, 0.8 from 1."),
        ([[1.0, 1.0], [0.0, 0.0]], "row sums of about 1; row 0 sums to 2, 1 from 1."),
        ([[0, 0], [1, 1.0], [0, 0]], "row sums of at most about 1; row 1 sums to 2, 1 above 1."),
    ],
)
def test_errors_say_where_and_by_how_much(Pi, message):
    with fails(message):
        rank_probabilities(Pi, "Pi")


def test_zeros_that_no_scaling_can_keep():
    # Only ranks 2 and 3 are possible for the last three documents, so another rank has to be added.
    Pi = np.array([[1.0, 0, 0.3, 1.0], [0, 0.5, 0.1, 0], [0, 0.5, 0.2, 0], [0, 0, 0.7, 0]])
    Pi[0] *= 0.6
    Pi[1:] *= 1.4
    matrix, change = repaired(Pi)
    assert matrix.sum(axis=0) == pytest.approx(np.ones(4), abs=1e-12)
    assert matrix.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-12)
    assert matrix[1:, [0, 3]].sum() >= 1 - 1e-12
    assert change == np.abs(matrix - Pi).max()


def test_fewer_columns_whose_limit_is_approached_slowly():
    # Document 2 is certain to be first, so it must lose its entry for rank 2.
    matrix, _ = repaired(np.array([[0.0, 0.16], [0.0, 0.8], [1.0, 0.04]]))
    assert matrix == pytest.approx(np.array([[0, 1 / 6], [0, 5 / 6], [1, 0]]), abs=2e-3)
    assert matrix.sum(axis=0) == pytest.approx([1, 1], abs=1e-12)


def test_entries_on_no_ranking_vanish():
    # 0.1 is in no ranking without zero entries, so no mixture of rankings contains it.
    matrix, change = repaired(np.array([[0.9, 0.1], [0.0, 1.0]]))
    assert matrix == pytest.approx(np.eye(2), abs=1e-12)
    assert change == pytest.approx(0.1)
