"""Ridge logistic regression under bounds against SciPy's optimizer and arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from sinkprop.calibration.ridge import curvature, log_losses, ridge_logistic, sigmoid


def problem(seed, n=300, d=6):
    rng = np.random.default_rng(seed)
    Z = np.column_stack([rng.normal(size=(n, d)), np.ones(n)])
    Z[:, 1] = Z[:, 0] + 0.1 * Z[:, 1]  # nearly collinear
    wanted = Z @ rng.normal(size=d + 1)
    t = (rng.random(n) < sigmoid(wanted)).astype(float)
    penalty = np.append(rng.choice([0.0, 0.3, 3.0, 100.0], d), 0.0)
    return Z, t, penalty, np.arange(d + 1) < rng.integers(0, d + 1)


def penalized(b, Z, t, penalty):
    x = Z @ b
    loss = np.logaddexp(0, x).sum() - t @ x + 0.5 * (penalty * b * b).sum()
    return loss, Z.T @ (1 / (1 + np.exp(-x)) - t) + penalty * b


def by_scipy(Z, t, penalty, bounded):
    bounds = [(0, None) if low else (None, None) for low in bounded]
    options = {"maxiter": 5000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-9}
    found = minimize(
        penalized,
        np.zeros(Z.shape[1]),
        (Z, t, penalty),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options=options,
    )
    return found.fun


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("start_from", ["zero", "the Hessian of other rows"])
def test_least_loss_is_scipys(seed, start_from):
    Z, t, penalty, bounded = problem(seed)
    start, H = np.zeros(Z.shape[1]), None
    if start_from != "zero":
        start, H = np.full(Z.shape[1], 0.2), 1.3 * curvature(Z[:200], np.zeros(Z.shape[1]))
    b = ridge_logistic(Z, t, penalty, bounded, start, H)
    assert (b[bounded] >= 0).all()
    least = by_scipy(Z, t, penalty, bounded)
    assert penalized(b, Z, t, penalty)[0] == pytest.approx(least, abs=1e-4 * (1 + least) * 1e-1)


def test_bounds_hold_coefficients_at_exactly_zero():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 2))
    t = (rng.random(500) < sigmoid(Z @ [2.0, -2.0])).astype(float)
    b = ridge_logistic(Z, t, np.zeros(2), np.array([True, True]), np.zeros(2))
    assert b[0] > 1
    assert b[1] == 0


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_outcomes_all_alike_end_at_finite_coefficients(outcome):
    b = ridge_logistic(np.ones((50, 1)), np.full(50, outcome), np.zeros(1), np.array([False]), np.zeros(1))
    assert np.isfinite(b).all()
    assert abs(sigmoid(b)[0] - outcome) < 1e-3


def test_separable_outcomes_end_at_finite_coefficients():
    x = np.linspace(-1, 1, 40)
    Z = np.stack([x, np.ones(40)], axis=1)
    b = ridge_logistic(Z, (x > 0).astype(float), np.zeros(2), np.array([True, False]), np.zeros(2))
    assert np.isfinite(b).all()
    assert log_losses(Z @ b, (x > 0).astype(float)).sum() < 1e-2


def test_columns_of_zeros_have_no_effect():
    Z, t, penalty, bounded = problem(1)
    wide = np.column_stack([np.zeros(len(Z)), Z])
    b = ridge_logistic(wide, t, np.append(0.0, penalty), np.append(True, bounded), np.zeros(wide.shape[1]))
    assert b[0] == 0
    assert penalized(b[1:], Z, t, penalty)[0] == pytest.approx(by_scipy(Z, t, penalty, bounded), rel=1e-5)


@given(st.floats(-1e300, 1e300), st.sampled_from([0.0, 1.0]))
def test_log_losses_are_finite(x, t):
    with np.errstate(all="raise", under="ignore"):
        found = log_losses(np.array([x]), np.array([t]))[0]
    sign = x if t == 0 else -x
    expected = sign if sign > 700 else math.log1p(math.exp(sign))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_curvature_is_the_derivative_of_the_gradient():
    Z, t, penalty, _ = problem(3)
    b, h = np.linspace(-0.5, 0.5, Z.shape[1]), 1e-5
    rows = [
        (penalized(b + h * e, Z, t, 0 * penalty)[1] - penalized(b - h * e, Z, t, 0 * penalty)[1]) / (2 * h)
        for e in np.eye(len(b))
    ]
    assert_allclose(curvature(Z, b), rows, rtol=1e-6, atol=1e-6)
