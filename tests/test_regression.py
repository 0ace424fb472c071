"""Least squares by chunks, against NumPy's and scikit-learn's of the whole."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression, Ridge

import sinkprop.regression
from sinkprop.regression import least_squares


@pytest.fixture(params=[7, 64, 1 << 14])
def chunk(request, monkeypatch):
    monkeypatch.setattr(sinkprop.regression, "_CHUNK", request.param)


def problem(n=200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, d) + rng.normal(size=d)
    return X, rng.integers(0, 3, n).astype(float), rng.uniform(0, 2, n)


@pytest.mark.parametrize("n", [1, 3, 7, 8, 200])
def test_least_squares_equals_scikit_learn(chunk, n):
    X, y, _ = problem(n)
    w, c = least_squares(X, y)
    fitted = X @ w + c
    assert_allclose(fitted, LinearRegression().fit(X, y).predict(X), rtol=1e-9, atol=1e-9)


def test_weights_count_as_repetitions(chunk):
    X, y, _ = problem()
    times = np.random.default_rng(1).integers(0, 4, len(y))
    w, c = least_squares(X, y, sample_weight=times.astype(float))
    w2, c2 = least_squares(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(w, w2, rtol=1e-9)
    assert_allclose(c, c2, rtol=1e-9)


def test_a_penalty_is_ridge(chunk):
    X, y, weight = problem()
    X = X / X.std(axis=0)
    w, c = least_squares(X, y, penalty=0.3, sample_weight=weight)
    ridge = Ridge(alpha=0.3 * weight.sum(), solver="cholesky").fit(X, y, sample_weight=weight)
    assert_allclose(w, ridge.coef_, rtol=1e-9)
    assert_allclose(c, ridge.intercept_, rtol=1e-9)


def test_constant_and_repeated_columns_get_a_solution_of_the_same_fit(chunk):
    X, y, _ = problem()
    singular = np.column_stack([X, np.full(len(y), 3.0), X[:, 0], np.zeros(len(y))])
    w, c = least_squares(singular, y)
    w0, c0 = least_squares(X, y)
    assert np.isfinite(w).all()
    assert_allclose(singular @ w + c, X @ w0 + c0, rtol=1e-8, atol=1e-10)


def test_all_weights_zero_is_an_error():
    X, y, _ = problem()
    with pytest.raises(ValueError, match="every weight is zero"):
        least_squares(X, y, sample_weight=np.zeros(len(y)))
