"""Weights of members from held-out queries: the grid, the errors, and data where the answer is known."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sinkprop.auto.stacking import paired_error, simplex, stacked


@pytest.mark.parametrize(("n", "steps"), [(1, 4), (2, 4), (3, 4), (4, 4), (3, 7)])
def test_the_grid_has_every_point_once(n, steps):
    every = {point for point in itertools.product(range(steps + 1), repeat=n) if sum(point) == steps}
    found = [tuple(np.rint(point * steps).astype(int).tolist()) for point in simplex(n, steps)]
    assert len(found) == len(every)
    assert set(found) == every


def test_the_paired_error_is_that_of_a_mean():
    rng = np.random.default_rng(0)
    difference = rng.normal(size=30)
    by_hand = difference.std(ddof=1) / np.sqrt(30)
    assert_allclose(paired_error(difference, np.full(30, 7.0)), by_hand)
    with_others = np.append(difference, [100.0, np.nan])  # queries that do not count
    assert_allclose(paired_error(with_others, np.append(np.ones(30), [0.0, 0.0])), by_hand)
    assert paired_error(difference, np.zeros(30)) == 0
    assert paired_error(np.array([2.0]), np.ones(1)) == 0


def linear(values):
    """Criterion of a combination that is the weighted mean of the members' criteria."""
    return lambda weights: weights @ values


def folds_of(n):
    return np.arange(n) % 5


def test_a_member_that_is_better_on_every_query_gets_all_the_weight():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.2, 0.5, 60)
    values = np.array([base, base + 0.1 + 0.01 * rng.normal(size=60), base - 0.2])
    stack = stacked(linear(values), 3, folds_of(60), None, rng)
    assert stack.weights.tolist() == [0, 1, 0]
    assert stack.gain == 0
    assert_allclose(stack.values, values)


def test_equal_members_get_equal_weights():
    values = np.tile(np.random.default_rng(0).uniform(size=40), (4, 1))
    stack = stacked(linear(values), 4, folds_of(40), None, np.random.default_rng(0))
    assert_allclose(stack.weights, 0.25)
    assert_allclose([stack.gain, stack.error], 0, atol=1e-12)


def test_a_combination_that_is_better_than_its_members_is_found_and_its_gain_is_honest():
    # the members are good at different queries, and the criterion is best where the weights are equal
    rng = np.random.default_rng(1)
    noise = 0.05 * rng.normal(size=200)

    def value(weights):
        return 0.5 + noise + 0.2 * (1 - np.square(weights - 0.5).sum() * 2)

    stack = stacked(value, 2, folds_of(200), None, rng)
    assert_allclose(stack.weights, 0.5)
    assert_allclose(stack.gain, 0.2)


def test_query_weights_decide_between_members():
    values = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    first = stacked(linear(values), 2, np.arange(4), np.array([1.0, 1.0, 1.0, 0.0]), np.random.default_rng(0))
    assert first.weights.tolist() == [1, 0]
    last = stacked(linear(values), 2, np.arange(4), np.array([0.0, 0.0, 0.0, 1.0]), np.random.default_rng(0))
    assert last.weights.tolist() == [0, 1]


def test_queries_without_a_value_do_not_count():
    values = np.array([[0.2, 0.3, np.nan, 0.4], [0.1, 0.2, np.nan, 0.3]])
    stack = stacked(linear(values), 2, np.arange(4), None, np.random.default_rng(0))
    assert stack.weights.tolist() == [1, 0]
    assert np.isfinite([stack.gain, stack.error]).all()


def test_no_query_with_a_value_gives_equal_weights():
    stack = stacked(linear(np.full((2, 3), np.nan)), 2, np.arange(3), None, np.random.default_rng(0))
    assert_allclose(stack.weights, 0.5)
    assert (stack.gain, stack.error) == (0, 0)


def test_weights_do_not_chase_chance():
    # four members that differ by chance only, on few queries
    rng = np.random.default_rng(3)
    values = rng.uniform(size=(4, 20))
    stack = stacked(linear(values), 4, folds_of(20), None, rng)
    assert stack.weights.min() > 0.05
