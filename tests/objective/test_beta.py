"""The native beta distribution, its masses and their derivatives, against multiprecision."""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest

from sinkprop import _native
from sinkprop.objective.expected_gain import expected_gain
from sinkprop.objective.gains import RankLinear
from sinkprop.objective.relaxations import PartitionedMeasure

# absolute: masses are at most 1, their derivatives in log a and log b at most about sqrt(a + b)
TOLERANCE = {"mass": 1e-12, "derivative": 1e-10}

# l(r, k) = 1 where k = r: with neither iterations nor epsilon a document of label k is worth A[j, k].
PICK = RankLinear(table=lambda r, k: (r == k).astype(float))


def picked(theta: np.ndarray, labels: np.ndarray, qid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and gradient of each query, (Q,) and (N, 2), of the queries themselves and not of their mean."""
    result = expected_gain(
        theta, labels, qid, gain=PICK, relaxation=PartitionedMeasure("beta"), n_iter=0, epsilon=0
    )
    return result.per_query, result.gradient * len(result.per_query)


@cache
def multiprecision(log_a: float, log_b: float, n: int, k: int) -> tuple[float, float, float]:
    """A = I_(k/n)(a, b) - I_((k-1)/n)(a, b), dA/dlog a and dA/dlog b."""
    with mpmath.workdps(50):
        edges = mpmath.mpf(k - 1) / n, mpmath.mpf(k) / n
        step = mpmath.mpf(10) ** -15  # leaves 20 digits of a central difference

        def mass(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
            return mpmath.betainc(mpmath.exp(x), mpmath.exp(y), *edges, regularized=True)

        x, y = mpmath.mpf(log_a), mpmath.mpf(log_b)
        d_a = (mass(x + step, y) - mass(x - step, y)) / (2 * step)
        d_b = (mass(x, y + step) - mass(x, y - step)) / (2 * step)
        return float(mass(x, y)), float(d_a), float(d_b)


EDGES = [0.05, 0.4, 1.0, 6.0, 60.0, 500.0]
CORNERS = [(a, b) for a in EDGES for b in EDGES]
RANDOM = [tuple(p) for p in np.exp(np.random.default_rng(0).uniform(np.log(0.05), np.log(500), size=(30, 2)))]


def ranks_to_check(a: float, b: float, n: int) -> list[int]:
    """The ends, the mean and about one deviation to its sides, where the derivatives are largest."""
    mean = a / (a + b)
    deviation = (mean * (1 - mean) / (a + b + 1)) ** 0.5
    places = [mean - deviation, mean, mean + deviation]
    return sorted({1, n, *(min(max(int(np.ceil(u * n)), 1), n) for u in places)})


@pytest.mark.parametrize("instruction_set", _native.instruction_sets())
@pytest.mark.parametrize("n", [2, 7, 100])
@pytest.mark.parametrize("pairs", [CORNERS, RANDOM], ids=["corners", "random"])
def test_against_multiprecision(pairs: list, n: int, instruction_set: str) -> None:
    # A query for each cell: the document in question among others, whose parameters set the quadrature
    # nodes as its own do.
    cells = [(a, b, k) for a, b in pairs for k in ranks_to_check(a, b, n)]
    rng = np.random.default_rng(n)
    theta = np.log(np.array(pairs)[rng.integers(0, len(pairs), size=(len(cells), n))])
    labels, row = np.zeros((len(cells), n)), rng.integers(0, n, size=len(cells))
    for q, (a, b, k) in enumerate(cells):
        theta[q, row[q]] = np.log([a, b])
        labels[q, row[q]] = k
    default = _native.instruction_set()
    assert _native.use_instruction_set(instruction_set)
    try:
        values, gradient = picked(theta.reshape(-1, 2), labels.ravel(), np.repeat(np.arange(len(cells)), n))
    finally:
        assert _native.use_instruction_set(default)
    gradient = gradient.reshape(len(cells), n, 2)
    expected = np.array(
        [multiprecision(*theta[q, row[q]].tolist(), n, k) for q, (_, _, k) in enumerate(cells)]
    )
    at = np.arange(len(cells)), row
    np.testing.assert_allclose(values, expected[:, 0], rtol=0, atol=TOLERANCE["mass"])
    np.testing.assert_allclose(gradient[at], expected[:, 1:], rtol=0, atol=TOLERANCE["derivative"])
    # The other documents have no part in the value.
    gradient[at] = 0
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("n", [2, 7, 100])
def test_masses_sum_to_one_and_derivatives_to_zero(n: int) -> None:
    for a, b in CORNERS + RANDOM:
        theta = np.tile(np.log([a, b]), (n, 1))
        # document j is worth A[j, j + 1], and all documents are alike
        values, gradient = picked(theta, np.arange(1.0, n + 1), np.zeros(n, int))
        assert values[0] == pytest.approx(1, abs=TOLERANCE["mass"])
        np.testing.assert_allclose(gradient.sum(axis=0), 0, atol=TOLERANCE["derivative"])


def test_closed_forms() -> None:
    # I_u(a, 1) = u^a and I_u(1, b) = 1 - (1 - u)^b, with the derivatives u^a ln u and -(1 - u)^b ln(1 - u).
    n, u = 50, np.arange(51) / 50
    ln_u = np.log(np.maximum(u, 1e-300))
    for a in (0.05, 0.7, 3.0, 200.0):
        mass, slope = np.diff(u**a), np.diff(a * u**a * ln_u)
        for theta, order in ((np.log([a, 1.0]), slice(None)), (np.log([1.0, a]), slice(None, None, -1))):
            cells = np.tile(theta, (n, 1))
            values, gradient = picked(
                np.tile(cells, (n, 1)),
                np.eye(n).ravel() * np.tile(np.arange(1.0, n + 1), n),
                np.repeat(np.arange(n), n),
            )
            own = gradient.reshape(n, n, 2)[np.arange(n), np.arange(n)]
            np.testing.assert_allclose(values, mass[order], rtol=0, atol=TOLERANCE["mass"])
            parameter = 0 if order == slice(None) else 1
            np.testing.assert_allclose(own[:, parameter], slope[order], rtol=0, atol=TOLERANCE["derivative"])


@pytest.mark.parametrize("n", [2, 7, 100])
def test_exchanging_a_and_b_reverses_the_ranks(n: int) -> None:
    pairs = np.log(np.array(CORNERS + RANDOM))
    for k in {1, 2, n}:
        theta = np.repeat(pairs, n, axis=0)
        qid = np.repeat(np.arange(len(pairs)), n)
        labels, mirrored = np.zeros(len(theta)), np.zeros(len(theta))
        labels[::n], mirrored[::n] = k, n + 1 - k
        values, gradient = picked(theta, labels, qid)
        other_values, other_gradient = picked(theta[:, ::-1], mirrored, qid)
        np.testing.assert_allclose(values, other_values, rtol=0, atol=TOLERANCE["mass"])
        np.testing.assert_allclose(gradient, other_gradient[:, ::-1], rtol=0, atol=TOLERANCE["derivative"])
