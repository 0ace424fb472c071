"""Sums in words, against rational arithmetic, and their independence of order."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.linear.exact_sums import add_products, add_rows, exponent, exponents, until_it_fits

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@settings(max_examples=50, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=50), st.randoms())
def test_a_sum_is_that_of_fractions_rounded_once(values, random):
    at = exponent(max(map(abs, values)))
    step = Fraction(2) ** (at - 93)  # 93 bits below the largest are kept
    exact = sum(round(Fraction(v) / step) for v in values) * step
    total = add_rows(np.array(values), np.asarray(at)).value()
    assert float(total) == float(exact)
    assert abs(exact - sum(map(Fraction, values))) <= len(values) * step / 2
    random.shuffle(values)
    assert add_rows(np.array(values), np.asarray(at)).value() == total


def test_what_cancels_leaves_nothing():
    assert add_rows(np.array([1e18, 1.0, -1e18]), np.asarray(61)).value() == 1.0


def test_parts_add_up_and_can_be_taken_away():
    values = np.random.default_rng(0).normal(size=(40, 3))
    at = exponents(np.abs(values).max(axis=0))
    total, part = add_rows(values, at), add_rows(values[:10], at)
    assert_array_equal((part + add_rows(values[10:], at)).words, total.words)
    assert_array_equal((total - part).words, add_rows(values[10:], at).words)
    assert_allclose(total.value(), values.sum(axis=0), rtol=1e-13)


@pytest.mark.parametrize("value", [1.0, -1.0, np.inf, np.nan, 1e300])
def test_what_is_too_large_is_told(value):
    assert not add_rows(np.array([0.5, value, 0.25]), np.asarray(0)).fits
    assert add_rows(np.array([0.5, -0.999]), np.asarray(0)).fits


def test_exponents_are_raised_until_a_sum_fits():
    values = np.array([1e30, 3.0])
    found = until_it_fits(lambda extra: add_rows(values, np.asarray(1 + extra)), lambda s: s.fits)
    assert found.value() == 1e30 + 3.0
    with pytest.raises(FloatingPointError, match="overflows"):
        until_it_fits(lambda extra: add_rows(np.array([np.nan]), np.asarray(extra)), lambda s: s.fits)


def test_the_exponent_is_the_least_power_of_two_above():
    for bound in (0.75, 1.0, 3.0, 2.0**40, 1e-30):
        assert 2.0 ** exponent(bound) > bound >= 2.0 ** (exponent(bound) - 1)
        assert exponents([bound]) == exponent(bound)
    assert exponent(0.0) == exponents(0.0) == -1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("n_features", [1, 5, 8, 45])
def test_products_are_those_of_numpy(dtype, width, n_features):
    rng = np.random.default_rng(n_features)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 20))])
    X = (rng.normal(size=(offsets[-1], n_features)) * 1e3).astype(dtype)
    g = rng.normal(size=(offsets[-1], width))
    if width == 1:
        g = g[:, 0]
    g[offsets[3] : offsets[4]] = 0  # a query that has no part in it
    at = exponents(np.abs(X).max(axis=0) * 100.0)
    whole = add_products(X, g, offsets, at)
    assert whole.fits
    assert_allclose(whole.value(), g.T @ X.astype(np.float64), rtol=1e-12, atol=1e-10)
    parts = [
        add_products(
            X[offsets[a] : offsets[b]], g[offsets[a] : offsets[b]], offsets[a : b + 1] - offsets[a], at
        )
        for a, b in ((0, 1), (1, 7), (7, 20))
    ]
    assert_array_equal((parts[2] + parts[0] + parts[1]).words, whole.words)
