"""Certified bounds against exact permanents, and their known special cases."""

import math

import numpy as np
import pytest

from sinkprop.permutations import permanent

ACCURACY = 1e-12  # of the logarithms of exact permanents


def random_matrix(rng, n):
    """A matrix of one of many kinds: dense, sparse, of uneven entries, nearly a permutation, a kernel."""
    kind = int(rng.integers(8))
    x = np.sort(rng.normal(size=n))
    A = [
        lambda: rng.random((n, n)),
        lambda: np.exp(rng.choice([0.5, 2.0, 6.0]) * rng.normal(size=(n, n))),
        lambda: (rng.random((n, n)) < rng.random()) * 1.0,
        lambda: (rng.random((n, n)) < rng.random()) * rng.random((n, n)),
        lambda: np.ones((n, n)) + 1e-3 * rng.random((n, n)),
        lambda: np.eye(n) + 10.0 ** -rng.integers(1, 15) * rng.random((n, n)),
        lambda: np.exp(-((x[:, None] - x) ** 2) / (2 * rng.choice([0.03, 0.1, 0.5]) ** 2)),
        lambda: np.exp(rng.normal(size=(n, 1)) * 5 + rng.normal(size=n) * 5) * rng.integers(0, 3, (n, n)),
    ][kind]()
    if not permanent(A).value:
        A = A + np.eye(n)[rng.permutation(n)]
    return A


@pytest.mark.parametrize("part", range(4))
def test_bounds_hold(part):
    rng = np.random.default_rng(part)
    for _ in range(150):
        A = random_matrix(rng, int(rng.integers(1, 13)))
        exact = permanent(A, "exact").log_value
        result = permanent(A, "bounds")
        slack = ACCURACY * (1 + abs(exact))
        assert result.log_lower <= exact + slack
        assert exact <= result.log_upper + slack
        for name, bound in result.lower_bounds.items():
            assert bound <= exact + slack, name
        for name, bound in result.upper_bounds.items():
            assert exact <= bound + slack, name
        assert max(result.lower_bounds.values()) <= result.log_lower + slack
        assert result.log_upper <= min(result.upper_bounds.values()) + slack
        assert result.log_lower <= result.log_value <= result.log_upper


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_bounds_hold_for_scalings_that_are_stopped_early(tol, monkeypatch):
    monkeypatch.setattr("sinkprop.permutations.bounds._TOL", tol)
    rng = np.random.default_rng(5)
    certified = 0
    for _ in range(100):
        A = random_matrix(rng, int(rng.integers(2, 9)))
        exact = permanent(A, "exact").log_value
        result = permanent(A, "bounds")
        slack = ACCURACY * (1 + abs(exact))
        assert max(result.lower_bounds.values()) <= exact + slack
        assert min(result.upper_bounds.values()) >= exact - slack
        certified += result.lower_bounds["van der Waerden"] > -math.inf
    assert certified > 20


def test_all_ones():
    for n in (2, 20, 300):
        result = permanent(np.ones((n, n)), "bounds")
        exact = math.lgamma(n + 1)
        for tight in ("van der Waerden", "Gurvits"):
            assert result.lower_bounds[tight] == pytest.approx(exact, abs=1e-6)
        for tight in ("Soules", "Carlen-Lieb-Loss"):
            assert result.upper_bounds[tight] == pytest.approx(exact, abs=1e-6)
        assert result.log_lower < exact < result.log_upper


def test_regular_zeros_and_ones():
    # Bregman's bound is attained by blocks of ones, Schrijver's is ((d - 1)^(d - 1) / d^(d - 2))^n
    n, d = 12, 3
    blocks = np.kron(np.eye(n // d), np.ones((d, d)))
    assert permanent(blocks, "bounds").upper == pytest.approx(math.factorial(d) ** (n // d))
    circulant = sum(np.roll(np.eye(n), s, axis=1) for s in range(d))
    lower = permanent(circulant, "bounds").lower_bounds
    entry = 1 / d
    assert lower["bethe"] == pytest.approx(
        n * math.log(d) + n * d * (1 - entry) * math.log1p(-entry), abs=1e-8
    )
    assert permanent(circulant, "bounds").upper_bounds["Soules"] == pytest.approx(n * math.log(6) / 3)


def test_the_bethe_bounds_meet_up_to_the_factor():
    # The lower bound is at most the Bethe permanent, the upper bound at least 2^(n / 2) times it.
    rng = np.random.default_rng(0)
    for n in (5, 12, 40):
        result = permanent(np.exp(2 * rng.normal(size=(n, n))), "bounds")
        difference = result.upper_bounds["bethe"] - result.lower_bounds["bethe"]
        assert n / 2 * math.log(2) - 1e-9 < difference < n / 2 * math.log(2) + 0.1


def test_scaling_of_rows_and_columns_shifts_the_bounds():
    rng = np.random.default_rng(1)
    A = rng.random((15, 15))
    u, v = rng.normal(size=(2, 15)) * 30
    plain = permanent(A, "bounds")
    scaled = permanent(np.exp(u)[:, None] * A * np.exp(v), "bounds")
    assert scaled.log_lower - u.sum() - v.sum() == pytest.approx(plain.log_lower, abs=1e-8)
    assert scaled.log_upper - u.sum() - v.sum() == pytest.approx(plain.log_upper, abs=1e-6)


def test_nearly_separate_blocks():
    # Entries of 1e-200 join two blocks: exact sums cannot be certified across them, and are not needed.
    rng = np.random.default_rng(2)
    A = np.full((16, 16), 1e-200)
    A[:8, :8], A[8:, 8:] = rng.random((2, 8, 8))
    exact = permanent(A, "exact").log_value
    result = permanent(A, "bounds")
    assert result.log_lower <= exact <= result.log_upper
    assert result.log_upper - result.log_lower < 3


def test_a_thousand_rows():
    rng = np.random.default_rng(3)
    result = permanent(rng.random((1000, 1000)), "bounds")
    # independent entries of mean 1/2: n! / 2^n in the mean, with a small relative variance
    expected = math.lgamma(1001) - 1000 * math.log(2)
    assert result.log_lower < expected + 1
    assert expected - 1 < result.log_upper
    assert result.log_upper - result.log_lower < 5
    assert result.value == math.inf
    assert "exp(" in result.message
    assert set(result.lower_bounds) == {"assignment", "van der Waerden", "Gurvits", "bethe"}
    assert set(result.upper_bounds) == {"row sums", "Soules", "Carlen-Lieb-Loss", "bethe"}
