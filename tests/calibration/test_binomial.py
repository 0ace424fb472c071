"""The tail of the binomial distribution, against sums of its terms and SciPy's incomplete beta function."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from scipy.special import betainc

from sinkprop.calibration.binomial import binomial_tail


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("p", [0.001, 0.25, 0.5, 0.9, 0.999])
def test_the_tail_is_the_sum_of_its_terms(n, p):
    exact = Fraction(p)
    for k in range(n + 1):
        terms = (comb(n, m) * exact**m * (1 - exact) ** (n - m) for m in range(k, n + 1))
        assert binomial_tail(k, n, p) == pytest.approx(float(sum(terms)), rel=1e-12)


@pytest.mark.parametrize("n", [1_000, 100_000, 10_000_000])
def test_many_trials_agree_with_scipy(n):
    for share in (0.1, 0.5, 0.899, 0.9, 0.901, 1.0):
        k = int(share * n)
        assert binomial_tail(k, n, 0.9) == pytest.approx(betainc(k, n - k + 1, 0.9), rel=1e-6, abs=1e-290)


def test_no_success_is_asked_for():
    assert binomial_tail(0, 0, 0.5) == 1.0
