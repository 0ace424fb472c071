"""The tail of the binomial distribution, as in exact binomial tests."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

__all__ = ["binomial_tail"]

_TINY = 1e-300


def binomial_tail(k: float, n: float, p: float) -> float:
    """Probability of at least k successes in n independent trials, each of which succeeds with probability p.

    For 0 < k <= n and 0 < p < 1 it is the regularized incomplete beta function I_p(k, n - k + 1).

    >>> round(binomial_tail(2, 2, 0.5), 12), binomial_tail(0, 2, 0.5)
    (0.25, 1.0)
    """
    if k <= 0:
        return 1.0
    a, b = k, n - k + 1
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(p) + b * log1p(-p))
    # the fraction converges quickly on this side of the mean, and the other side is 1 minus the opposite tail
    if p < (a + 1) / (a + b + 2):
        return min(front * _fraction(a, b, p) / a, 1.0)
    return max(1.0 - front * _fraction(b, a, 1 - p) / b, 0.0)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's algorithm."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    value, m = d, 0
    while True:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            change = c * d
            value *= change
        if abs(change - 1) < 1e-15 or m > 100_000:
            return value
