"""Smoothing over positions against Gaussian conditioning and integration, and intervals of curves."""

import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.linalg import null_space
from scipy.stats import binom, multivariate_normal, norm

from sinkprop.clicks.models.curves import curve_interval, smoothed


def of_walks(K, steps=4000):
    """Covariance at ln 2, ..., ln K of the integral of a random walk with variance 1 per unit, by sums."""
    t = np.linspace(0, np.log(K), steps + 1)
    width, end = t[1], np.log(np.arange(2, K + 1))
    # the increment of the walk in the step from s changes the integral up to t by t - s
    effect = np.maximum(end[:, None] - (t[:-1] + width / 2), 0)
    return width * effect @ effect.T


def condition(u, C, prior, t, flat=1e5):
    """Log density of what does not depend on b in u = T b + e + error, and moments of T b + e given u.

    For the moments, b has the variance `flat`.
    """
    N = null_space(t.T)
    density = multivariate_normal.logpdf(N.T @ u, np.zeros(N.shape[1]), N.T @ (prior + C) @ N)
    P = prior + flat * t @ t.T
    gain = np.linalg.solve(P + C, P).T
    return density, gain @ u, P - gain @ P


def averaged(u, C, taus, blocks=1):
    """Moments of the curve, averaged over taus with equal prior weights, (n, blocks)."""
    K = len(u) // blocks + 1
    Q, t = of_walks(K), np.kron(np.eye(blocks), np.log(np.arange(2.0, K + 1))[:, None])
    parts = [condition(u, C, np.kron(np.diag(tau), Q), t) for tau in np.atleast_2d(taus)]
    log_w = np.array([p[0] for p in parts])
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = sum(a * p[1] for a, p in zip(w, parts, strict=True))
    second = sum(a * (p[2] + np.outer(p[1] - mean, p[1] - mean)) for a, p in zip(w, parts, strict=True))
    return mean, second


def estimates(K, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K - 1, K - 1))
    C = noise**2 * (A @ A.T / K + np.eye(K - 1))
    return -0.7 * np.log(np.arange(2, K + 1)) + rng.multivariate_normal(np.zeros(K - 1), C), C


TAUS = np.geomspace(1e-5, 1e2, 22)
CURVES = [(3, 0.1, 0.0), (8, 0.05, 0.3), (8, 0.5, 0.0)]


def check(found, expected, share):
    """Means differ by less than a share of the posterior standard deviation, and so do these."""
    (mean, covariance), (other, of_errors) = found, expected
    error = np.sqrt(np.diag(of_errors))
    assert (np.abs(mean - other) < share * error).all()
    assert (np.abs(covariance - of_errors) < share * np.outer(error, error)).all()


@pytest.mark.parametrize(("K", "noise", "drop"), CURVES)
def test_smoothed_is_the_posterior_integrated_over_tau(K, noise, drop):
    u, C = estimates(K, noise=noise)
    u[K // 2 :] -= drop
    check(smoothed(u, C), averaged(u, C, np.geomspace(1e-5, 1e2, 400)[:, None]), 0.02)


@pytest.mark.parametrize(("K", "noise", "drop"), [*CURVES, (8, 0.05, 1.0), (20, 0.05, 2.0)])
def test_smoothed_is_the_average_over_the_grid_of_tau(K, noise, drop):
    u, C = estimates(K, noise=noise)
    u[K // 2 :] -= drop
    check(smoothed(u, C), averaged(u, C, TAUS[:, None]), 1e-3)


def test_two_curves_are_smoothed_together():
    u, C = estimates(9, noise=0.2)
    u[4:] += 2
    pairs = np.array([(a, b) for a in TAUS[::3] for b in TAUS[::3]])
    check(smoothed(u, C, blocks=2), averaged(u, C, pairs, blocks=2), 1e-3)


def test_two_curves_with_independent_errors_do_not_influence_each_other():
    (u, C), (v, D) = estimates(6, 0), estimates(6, 1)
    zero = np.zeros((5, 5))
    mean, covariance = smoothed(np.r_[u, v], np.block([[C, zero], [zero, D]]), blocks=2)
    other, _ = smoothed(np.r_[u, 3 * v], np.block([[C, zero], [zero, D]]), blocks=2)
    np.testing.assert_allclose(mean[:5], other[:5], atol=1e-9)
    np.testing.assert_allclose(covariance[:5, 5:], zero, atol=1e-9)


def test_exact_estimates_are_kept():
    u, C = estimates(7)
    u[3:] -= 1.5
    mean, covariance = smoothed(u, 1e-10 * C)
    np.testing.assert_allclose(mean, u, atol=1e-6)
    np.testing.assert_allclose(covariance, 1e-10 * C, atol=1e-12)


@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_powers_of_the_position_are_kept_whatever_the_noise(noise):
    _, C = estimates(7, noise=noise)
    u = -1.3 * np.log(np.arange(2, 8))
    mean, covariance = smoothed(u, C)
    np.testing.assert_allclose(mean, u, atol=1e-8)
    assert (np.diag(covariance) <= np.diag(C) * (1 + 1e-9)).all()


def test_a_position_without_information_is_interpolated():
    u, C = estimates(8, noise=0.02)
    without = np.arange(7) != 3
    u[3], C[3], C[:, 3] = -50, 0, 0
    C[3, 3] = 1e6
    mean, covariance = smoothed(u, C)
    assert mean[3] == pytest.approx((mean[2] + mean[4]) / 2, abs=0.05)
    assert covariance[3, 3] < 0.1
    np.testing.assert_allclose(mean[without], u[without], atol=0.1)


def test_curves_of_the_prior_are_covered_and_estimated_better_than_without_smoothing():
    rng, K, repeats = np.random.default_rng(0), 10, 300
    _, C = estimates(K, noise=0.15)
    Q, t = of_walks(K), np.log(np.arange(2, K + 1))
    covered, of_mean, of_raw = np.zeros(K - 1), 0.0, 0.0
    for _ in range(repeats):
        tau = 10 ** rng.uniform(-5, 2)
        curve = rng.normal() * t + rng.multivariate_normal(np.zeros(K - 1), tau * Q)
        u = rng.multivariate_normal(curve, C)
        mean, covariance = smoothed(u, C)
        covered += np.abs(mean - curve) < norm.ppf(0.975) * np.sqrt(np.diag(covariance))
        of_mean += ((mean - curve) ** 2).sum()
        of_raw += ((u - curve) ** 2).sum()
    least, most = binom.ppf([0.001, 0.999], repeats, 0.95)
    assert least <= covered.min()
    assert covered.max() <= most
    assert of_mean < 0.8 * of_raw


def test_walks_are_those_of_a_simulation():
    """The oracle above, by drawing walks."""
    rng, t = np.random.default_rng(0), np.linspace(0, np.log(4), 301)
    walk = np.cumsum(rng.normal(size=(20_000, 301)) * np.sqrt(t[1]), axis=1)
    integral = cumulative_trapezoid(walk, t, initial=0)
    at = integral[:, np.searchsorted(t, np.log([2, 3, 4]) - 1e-9)]
    np.testing.assert_allclose(at.T @ at / 20_000, of_walks(4), rtol=0.06)


class TestInterval:
    def test_is_that_of_a_normal_logarithm(self):
        u, C = np.log([0.5, 0.2]), np.diag([0.01, 0.09])
        expected = [[1, 0.5 * np.exp(-0.1 * 1.959964), 0.2 * np.exp(-0.3 * 1.959964)]]
        expected += [[1, 0.5 * np.exp(0.1 * 1.959964), 0.2 * np.exp(0.3 * 1.959964)]]
        np.testing.assert_allclose(curve_interval(u, C), expected, rtol=1e-6)
        half = curve_interval(u, C, 0.5)
        np.testing.assert_allclose(half[1, 1], 0.5 * np.exp(0.1 * norm.ppf(0.75)))

    def test_of_a_position_without_information_is_everything(self):
        assert curve_interval(np.array([-30.0]), np.array([[1e6]])).tolist() == [[1, 0], [1, np.inf]]
