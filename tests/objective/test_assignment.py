"""The assignment with the largest sum, against SciPy's and against all permutations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.optimize import linear_sum_assignment

from sinkprop import _native
from sinkprop.objective.assignment import largest_assignment


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_no_permutation_has_a_larger_sum(n, levels):
    rng = np.random.default_rng(n * levels)
    for _ in range(10):
        values = rng.integers(-levels, levels, (n, n)).astype(float)
        columns = largest_assignment(values)
        assert_array_equal(np.sort(columns), np.arange(n))
        best = max(values[np.arange(n), list(order)].sum() for order in permutations(range(n)))
        assert values[np.arange(n), columns].sum() == best


@pytest.mark.parametrize("n", [1, 2, 30, 200])
@pytest.mark.parametrize("ties", [False, True])
def test_the_assignment_is_that_of_scipy_also_with_ties(n, ties):
    values = np.random.default_rng(n).normal(size=(n, n)) * 5
    values = np.round(values) if ties else values
    assert_array_equal(largest_assignment(values), linear_sum_assignment(values, maximize=True)[1])
    assert_array_equal(largest_assignment(values.T), linear_sum_assignment(values.T, maximize=True)[1])


def test_no_rows():
    assert len(largest_assignment(np.zeros((0, 0)))) == 0


def test_the_largest_and_smallest_numbers():
    values = np.array([[1e300, -1e300], [1e300, 1e-300]])
    assert_array_equal(largest_assignment(values), [0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_values_of_minus_infinity_are_avoided(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(7, 7))
    values[rng.random((7, 7)) < 0.4] = -np.inf
    values[np.arange(7), rng.permutation(7)] = rng.normal(size=7)
    assert_array_equal(largest_assignment(values), linear_sum_assignment(values, maximize=True)[1])


def test_an_assignment_that_does_not_exist():
    values = np.array([[1.0, -np.inf, -np.inf], [2.0, -np.inf, -np.inf], [1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="every assignment of rows to columns has a value of minus infinity"):
        largest_assignment(values)


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_the_native_code_refuses_costs_below_all_numbers(wrong):
    columns = np.full(2, 7)
    with pytest.raises(ValueError, match="costs must be numbers above minus infinity"):
        _native.assign(np.array([[0.0, wrong], [1.0, 2.0]]), columns)
    assert_array_equal(columns, [7, 7])


def test_the_native_code_refuses_arrays_that_do_not_fit():
    for cost, columns in ((np.zeros((2, 3)), np.zeros(2, int)), (np.zeros((2, 2)), np.zeros(3, int))):
        with pytest.raises(TypeError):
            _native.assign(cost, columns)
