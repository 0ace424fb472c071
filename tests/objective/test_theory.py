"""What docs/linear-time.md proves, and what it says does not hold, by numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT

from sinkprop import (
    PartitionedMeasure,
    SmoothedIndicator,
    choose_permutation,
    doubly_stochastic,
    expected_ranks,
    sinkhorn,
)
from sinkprop.reference import partitioned_measure, pre_sinkhorn

KERNELS = ["gaussian", "laplace"]

# of scores and sigma together what counts is scores / sigma: from far below a width to many of them
scores = st.lists(st.integers(-400, 400).map(lambda x: x / 20), min_size=1, max_size=8, unique=True)


def minors(M):
    """M[i, k] M[i', k'] - M[i, k'] M[i', k] over i < i', k < k', relative to the first product."""
    n = len(M)
    i, j = np.triu_indices(n, 1)
    a, b = M[i][:, i], M[j][:, j]
    return (a * b - M[i][:, j] * M[j][:, i]) / (a * b)


@given(
    scores,
    st.sampled_from(KERNELS),
    st.sampled_from([0.5, 1, 2, 5, 30]),
    st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0]),
)
def test_the_best_assignment_is_the_sorted_order_whatever_epsilon(y, kernel, n_iter, epsilon):
    y = np.array(y)
    Pi = doubly_stochastic(y, relaxation=SmoothedIndicator(1.0, kernel), n_iter=n_iter, epsilon=epsilon)
    assert choose_permutation(Pi, "hungarian").tolist() == np.argsort(-y).tolist()


@given(st.lists(st.integers(-40, 40).map(lambda x: x / 10), min_size=2, max_size=8), st.sampled_from(KERNELS))
def test_without_epsilon_the_matrix_is_totally_positive_and_ranks_are_ordered(y, kernel):
    y = np.sort(np.array(y))[::-1]
    Pi = doubly_stochastic(y, relaxation=SmoothedIndicator(1.0, kernel), epsilon=0)
    assert minors(Pi).min() > -1e-12
    at_most = Pi.cumsum(axis=1)  # P(rank <= m)
    assert np.diff(at_most, axis=0).max() < 1e-12
    assert np.diff(Pi @ np.arange(1, len(y) + 1)).min() > -1e-12


def test_the_ratio_of_a_gaussian_minor_is_in_closed_form():
    y = np.array([1.3, 0.4, 0.1, -0.7])
    A = pre_sinkhorn(y, SmoothedIndicator(0.8))
    for k in (1, 2):
        ratio = A[0, k] * A[1, k + 1] / (A[0, k + 1] * A[1, k])
        assert ratio == pytest.approx(np.exp((y[0] - y[1]) * (y[k] - y[k + 1]) / 0.8**2), rel=1e-12)


@pytest.mark.parametrize(
    ("kernel", "y", "holds", "fails"),
    [
        ("laplace", [3, 2, 1, 0], 0.0, 1e-9),
        ("gaussian", [3, 2, 1, 0], 0.033, 0.034),
        ("gaussian", [7, 6, 1, 0], 0.0, 1e-6),
    ],
)
def test_epsilon_breaks_total_positivity(kernel, y, holds, fails):
    A = pre_sinkhorn(np.array(y, float), SmoothedIndicator(1.0, kernel))
    assert minors(A + holds).min() > -1e-15
    assert minors(A + fails).min() < 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_epsilon_puts_expected_ranks_of_long_lists_out_of_order(kernel):
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random(10_000) < 0.5, rng.random(10_000), 5 * rng.exponential(size=10_000))
    y, smoothed = -np.cumsum(gaps), SmoothedIndicator(1.0, kernel, accuracy="exact")
    assert np.diff(expected_ranks(y, relaxation=smoothed, epsilon=0)).min() > 0
    assert np.diff(expected_ranks(y, relaxation=smoothed, epsilon=1e-6)).min() < -1
    assert np.diff(expected_ranks(y[:1000], relaxation=smoothed, epsilon=1e-6)).min() > 0


@given(
    st.lists(st.integers(-30, 30).map(lambda x: x / 10), min_size=2, max_size=6, unique=True),
    st.sampled_from(["logit-logistic", "probit"]),
    st.floats(-1, 1),
)
def test_partitioned_measures_of_one_scale_are_totally_positive(mu, family, log_s):
    theta = np.stack([np.sort(mu), np.full(len(mu), log_s)], axis=1)
    A = partitioned_measure(theta, family)
    assert minors(A).min() > -1e-9  # relative to entries that are differences of distribution functions
    logs = np.log(sinkhorn(A, 5))
    best = choose_permutation(np.exp(logs), "hungarian")
    assert logs[best, np.arange(len(mu))].sum() == pytest.approx(np.trace(logs), abs=1e-8)


@pytest.mark.parametrize(
    ("theta", "epsilon", "best"),
    [
        ([[8, -0.7], [9, -0.7], [10, -0.7]], 0.0, [0, 1, 2]),
        ([[8, -0.7], [9, -0.7], [10, -0.7]], 1e-6, [1, 0, 2]),
        ([[0, -2], [0.5, 1], [1, 1]], 0.0, [1, 0, 2]),
    ],
)
def test_where_partitioned_measures_are_not_sorted(theta, epsilon, best):
    Pi = doubly_stochastic(theta, relaxation=PartitionedMeasure("logit-logistic"), epsilon=epsilon)
    assert choose_permutation(Pi, "hungarian").tolist() == best


def test_the_coefficients_on_the_page_are_those_of_the_native_code():
    page = (ROOT / "docs" / "linear-time.md").read_text(encoding="utf-8")
    header = (ROOT / "native" / "kernels" / "gauss_coefficients.hpp").read_text(encoding="utf-8")
    four = header[header.index("GaussCoefficients<4>") : header.index("GaussCoefficients<8>")]
    written = {float(x.replace(" ", "")) for x in re.findall(r"(?:- ?)?\d\.\d{12,}", page)}
    assert written == {float(x) for x in re.findall(r"-?\d\.\d{12,}e[+-]\d+", four)}
