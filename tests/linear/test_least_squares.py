"""Least squares by chunks, against NumPy's and scikit-learn's of the whole."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, Ridge

import sinkprop.linear.least_squares
from sinkprop.data.feature_scaling import fit_scaling
from sinkprop.linear.least_squares import least_squares, ridge_path


@pytest.fixture(params=[7, 64, 1 << 14])
def chunk(request, monkeypatch):
    monkeypatch.setattr(sinkprop.linear.least_squares, "_CHUNK", request.param)


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


PENALTIES = [30.0, 1.0, 0.3, 1e-3, 1e-8, 0.0]


def augmented(Z, y, penalty, weight=None):
    """Ridge as ordinary least squares with a row for each weight, and its value, in NumPy alone."""
    n, d = Z.shape
    weight = np.ones(n) if weight is None else weight
    root = np.sqrt(weight / weight.sum())
    rows = np.column_stack([Z, np.ones(n)]) * root[:, None]
    held = np.column_stack([np.sqrt(penalty) * np.eye(d), np.zeros(d)])
    solution = np.linalg.lstsq(np.concatenate([rows, held]), np.append(y * root, np.zeros(d)), rcond=None)[0]
    w, c = solution[:-1], solution[-1]
    return w, c, weight @ np.square(y - Z @ w - c) / weight.sum() + penalty * w @ w


@pytest.mark.parametrize("normalization", ["none", "standard"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("n", [3, 7, 8, 200])
def test_the_path_is_the_solution_of_every_penalty(chunk, normalization, weighted, n):
    X, y, weight = problem(n)
    X = X if normalization == "standard" else X / X.std(axis=0)
    weight = weight if weighted else None
    scaling = fit_scaling(normalization, X)
    Z = (X - scaling.shift) * scaling.factor
    path = ridge_path(X, y, PENALTIES, scaling=scaling, sample_weight=weight)
    assert path.weights.shape == (len(PENALTIES), X.shape[1])
    for i, penalty in enumerate(PENALTIES):
        w, c, value = augmented(Z, y, penalty, weight)
        if penalty:  # without one, several weights do it where rows are few
            assert_allclose(path.weights[i], w, rtol=1e-7, atol=1e-9)
            assert_allclose(path.intercepts[i], c, rtol=1e-7, atol=1e-9)
        assert_allclose(path.values[i], value, rtol=1e-7, atol=1e-12)
        assert_allclose(Z @ path.weights[i] + path.intercepts[i], Z @ w + c, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_path_is_scikit_learns(chunk, weighted):
    X, y, weight = problem()
    weight = weight if weighted else np.ones(len(y))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    path = ridge_path(X, y, [0.5, 1e-3], scaling=fit_scaling("standard", X), sample_weight=weight)
    for i, penalty in enumerate([0.5, 1e-3]):
        ridge = Ridge(alpha=penalty * weight.sum(), solver="svd").fit(Z, y, sample_weight=weight)
        assert_allclose(path.weights[i], ridge.coef_, rtol=1e-9)
        assert_allclose(path.intercepts[i], ridge.intercept_, rtol=1e-9)


def test_a_penalty_of_zero_on_the_path_is_least_squares_to_the_last_bit(chunk):
    X, y, weight = problem()
    w, c = least_squares(X, y, sample_weight=weight)
    path = ridge_path(X, y, [1.0, 0.0], scaling=fit_scaling("none", X), sample_weight=weight)
    assert_array_equal(path.weights[1], w)
    assert path.intercepts[1] == c


def test_the_penalty_does_not_depend_on_the_number_of_rows(chunk):
    X, y, _ = problem()
    scaling = fit_scaling("standard", X)
    once = ridge_path(X, y, PENALTIES, scaling=scaling)
    thrice = ridge_path(np.tile(X, (3, 1)), np.tile(y, 3), PENALTIES, scaling=scaling)
    assert_allclose(thrice.weights, once.weights, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("normalization", ["none", "standard"])
def test_constant_and_repeated_features_are_held_alike(chunk, normalization):
    X, y, _ = problem()
    X = X / X.std(axis=0)
    singular = np.column_stack([X, np.full(len(y), 1 / 3), X[:, 0], np.zeros(len(y))])
    scaling = fit_scaling(normalization, singular)
    path = ridge_path(singular, y, PENALTIES, scaling=scaling)
    assert np.isfinite(path.weights).all()
    assert_array_equal(path.weights[:, [6, 8]], 0)
    assert_allclose(path.weights[:, 7], path.weights[:, 0], rtol=1e-6, atol=1e-10)
    Z = (singular - scaling.shift) * scaling.factor
    for i, penalty in enumerate(PENALTIES[:-1]):
        w, c, _ = augmented(Z, y, penalty)
        assert_allclose(Z @ path.weights[i] + path.intercepts[i], Z @ w + c, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("magnitude", [1e-150, 1e-20, 1e20, 1e150])
def test_features_of_any_magnitude(magnitude):
    X, y, _ = problem()
    X = X / X.std(axis=0)
    small = ridge_path(X, y, [0.1], scaling=fit_scaling("standard", X))
    scaled = ridge_path(X * magnitude, y, [0.1], scaling=fit_scaling("standard", X * magnitude))
    assert_allclose(scaled.weights, small.weights, rtol=1e-9)
    raw = ridge_path(X * magnitude, y, [0.1], scaling=fit_scaling("none", X))
    assert np.isfinite(raw.weights).all()
    if magnitude < 1:  # held down to all but nothing
        assert np.abs(X * magnitude @ raw.weights[0]).max() < 1e-15


def test_single_precision_features_are_summed_in_double():
    X, y, _ = problem()
    X = (X / X.std(axis=0)).astype(np.float32)
    path = ridge_path(X, y, PENALTIES, scaling=fit_scaling("standard", X))
    double = X.astype(np.float64)
    same = ridge_path(double, y, PENALTIES, scaling=fit_scaling("standard", double))
    assert_allclose(path.weights, same.weights, rtol=1e-6)


def test_weights_shrink_as_the_penalty_grows(chunk):
    X, y, _ = problem()
    path = ridge_path(X, y, PENALTIES, scaling=fit_scaling("standard", X))
    squares = np.square(path.weights).sum(axis=1)
    assert (np.diff(squares) > 0).all()
    errors = path.values - np.array(PENALTIES) * squares
    assert (np.diff(errors)[:-1] < 0).all()  # of 1e-8 and 0 they are the same to rounding
