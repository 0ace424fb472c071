"""L-BFGS against SciPy's, on quadratics and on functions whose minimum is known."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize, rosen, rosen_der

from sinkprop.common.lbfgs import descend, descend_together


def quadratic(seed, n=12):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A = A @ A.T + 0.1 * np.eye(n)
    b = rng.normal(size=n)
    return (lambda x: (0.5 * x @ A @ x - b @ x, A @ x - b)), np.linalg.solve(A, b)


@pytest.mark.parametrize("seed", range(5))
def test_the_minimum_of_a_quadratic_is_found(seed):
    loss, x = quadratic(seed)
    assert_allclose(descend(loss, np.zeros(12), max_iter=200, tol=0), x, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_curved_valley_takes_about_as_many_evaluations_as_with_scipy(scale):
    calls = 0

    def loss(x):
        nonlocal calls
        calls += 1
        return scale * rosen(x), scale * rosen_der(x)

    start = np.array([-1.2, 1.0, -0.5, 2.0])
    x = descend(loss, start, max_iter=500, tol=0)
    theirs = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", options={"maxcor": 20, "ftol": 0})
    if scale < 1:  # the gradient is flat before the minimum
        assert np.abs(scale * rosen_der(x)).max() <= 1e-8
    else:
        assert rosen(x) < 1e-8
    assert calls < 2 * theirs.nfev + 20


def test_searches_side_by_side_are_those_one_after_another():
    problems = [quadratic(seed)[0] for seed in range(4)]
    asked = []

    def losses(points):
        asked.append(set(points))
        return {i: problems[i](x.ravel()) for i, x in points.items()}

    starts = [np.full((3, 4), float(i)) for i in range(4)]
    found = descend_together(losses, starts, max_iter=30, tol=1e-6)
    for i, start in enumerate(starts):
        alone = descend(lambda x, i=i: problems[i](x.ravel()), start, max_iter=30, tol=1e-6)
        assert_array_equal(found[i], alone)
        assert found[i].shape == (3, 4)
    assert asked[0] == {0, 1, 2, 3}
    assert len(asked[-1]) < 4  # those that have ended are not asked again


@pytest.mark.parametrize("max_iter", [1, 3])
def test_the_number_of_iterations_is_limited_and_the_loss_falls(max_iter):
    loss, _ = quadratic(0)
    values = []

    def counted(x):
        values.append(loss(x)[0])
        return loss(x)

    x = descend(counted, np.ones(12), max_iter=max_iter, tol=0)
    assert loss(x)[0] == min(values) < values[0]
    assert len(values) <= 1 + 20 * max_iter


def test_a_search_ends_at_once_where_the_gradient_is_zero():
    calls = []

    def flat(x):
        calls.append(x)
        return 1.0, np.zeros(3)

    assert_array_equal(descend(flat, np.ones(3), max_iter=10, tol=0), np.ones(3))
    assert len(calls) == 1


def test_points_where_the_loss_is_infinite_are_stepped_back_from():
    def loss(x):
        if x[0] <= 0:
            return np.inf, np.full(1, np.nan)
        return float(x[0] - np.log(x[0])), 1 - 1 / x

    assert_allclose(descend(loss, np.array([30.0]), max_iter=50, tol=0), [1.0], atol=1e-6)
