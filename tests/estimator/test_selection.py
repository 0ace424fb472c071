"""The choice among candidates, against sums written out and simulated criteria."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ttest_rel

from sinkprop import Annealing, Selection
from sinkprop.estimator.selection import choose, mean_over_queries

APART = np.array([[0, 0], [9, 9], [20, 20]])


def test_the_error_is_that_of_a_paired_test():
    values = np.random.default_rng(0).uniform(size=(3, 12))
    choice = choose(values, APART, smoothest=True)
    best = int(np.argmax(choice.means))
    for i in set(range(3)) - {best}:
        t = (choice.means[i] - choice.means[best]) / choice.errors[i]
        assert_allclose(t, ttest_rel(values[i], values[best]).statistic, rtol=1e-12)


def test_the_first_within_half_an_error_of_the_best_is_taken():
    base = np.array([0.1, 0.5, 0.4, 0.8])
    wobble = np.array([1.0, -1.0, 1.0, -1.0]) / 10
    error = np.std(wobble, ddof=1) / 2
    for shift, taken in ((0.49, 0), (0.51, 1)):
        choice = choose(np.stack([base + wobble - shift * error, base]), APART[:2], smoothest=True)
        assert choice.taken == taken


def test_neighbors_are_averaged_and_distant_candidates_are_not():
    values = np.array([[0.0], [0.6], [0.3], [0.9]])
    positions = np.array([[0, 0], [0, 1], [1, 1], [5, 5]])
    means = choose(values, positions, smoothest=True).means
    by_hand = [
        (4 * 0.0 + 2 * 0.6 + 1 * 0.3) / 7,
        (4 * 0.6 + 2 * 0.0 + 2 * 0.3) / 8,
        (4 * 0.3 + 2 * 0.6 + 1 * 0.0) / 7,
        0.9,
    ]
    assert_allclose(means, by_hand, rtol=1e-14)
    assert_array_equal(choose(values, positions, smoothest=False).means, values[:, 0])


def test_the_best_is_the_first_of_equals():
    values = np.array([[0.5, 0.5], [0.4, 0.7], [0.4, 0.7]])
    assert choose(values, APART, smoothest=False).taken == 1


def test_weights_are_those_of_repeated_queries_in_the_mean():
    values = np.random.default_rng(1).uniform(size=(3, 4))
    times = np.array([1, 3, 0, 2])
    choice = choose(values, APART, times.astype(float), smoothest=True)
    assert_allclose(choice.means, np.repeat(values, times, axis=1).mean(axis=1), rtol=1e-12)


def test_one_query_takes_the_first_of_its_best():
    assert choose(np.array([[0.1], [0.2], [0.2]]), APART, smoothest=True).taken == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "loo"}, "method must be"),
        ({"rule": "mean"}, "rule must be 'average', 'smoothest', 'best' or None"),
        ({"n_splits": 1}, "n_splits must be a whole number, at least 2"),
        ({"patience": 0}, "patience"),
        ({"fraction": 1.0}, "fraction must be between 0 and 1"),
    ],
)
def test_wrong_selections_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Selection(**options)


def test_auto_cross_validates_few_queries():
    assert Selection().cross_validates(500)
    assert not Selection().cross_validates(501)
    assert Selection("cross-validation").cross_validates(10**6)
    assert not Selection("validation").cross_validates(2)


def test_the_rule_follows_the_method_unless_it_is_given():
    assert Selection().takes_smoothest(500)
    assert not Selection().takes_smoothest(501)
    assert not Selection("validation").takes_smoothest(2)
    assert Selection("validation", rule="smoothest").takes_smoothest(2)
    assert not Selection("cross-validation", rule="best").takes_smoothest(2)


def test_annealing_schedules():
    assert Annealing().sigmas == (16, 8, 4, 2, 1, 0.5, 0.25, 0.125)
    assert Annealing(3, 3).sigmas == (3,)
    smoothrank = np.array(Annealing.smoothrank().sigmas)
    assert_allclose(2 * smoothrank**2, 2.0 ** np.arange(6, -7, -1), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": 0}, "start must be"),
        ({"stop": np.nan}, "stop must be"),
        ({"start": 1, "stop": 2}, "stop must be at most start"),
        ({"factor": 1.0}, "factor must be below 1"),
        ({"factor": True}, "factor must be"),
    ],
)
def test_wrong_annealings_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Annealing(**options)


def test_queries_that_a_metric_leaves_out_do_not_count():
    values = np.array([[0.2, np.nan, 0.4], [0.6, np.nan, 0.1], [0.1, np.nan, 0.1]])
    apart = np.array([[0, 0], [0, 5], [5, 0]])
    for weight in (None, np.array([1.0, 7.0, 1.0])):
        choice = choose(values, apart, weight, smoothest=False)
        assert choice.taken == 1
        np.testing.assert_allclose(choice.means, [0.3, 0.35, 0.1])
        kept = choose(values[:, [0, 2]], apart, smoothest=False)
        np.testing.assert_array_equal(choice.errors, kept.errors)
    np.testing.assert_allclose(mean_over_queries(values[0]), 0.3)
    none = choose(np.full((2, 2), np.nan), apart[:2], smoothest=True)
    assert (none.taken, none.means.tolist()) == (0, [0, 0])
