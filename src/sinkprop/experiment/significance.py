"""Statistical significance of differences between methods: paired tests and confidence intervals.

Two methods rank the same queries. The tests use the difference of their values on each query. Differences
below 1e-12 are rounding errors and count as 0. All tests are two-sided. Random numbers come from a fixed
seed, so equal values give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.types import Floats, Integers

__all__ = [
    "bootstrap_intervals",
    "holm",
    "paired_p_values",
    "randomization_test",
    "t_test",
    "wilcoxon_test",
]


N_RESAMPLES = 10_000
EXACT_UP_TO = 12  # largest number n of nonzero differences for which all 2^n sign assignments are tried
_WILCOXON_EXACT_UP_TO = 50
_DECIMALS = 12
_BLOCK = 1 << 22  # maximum number of random numbers in memory


def t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Student's paired t-test of differences (n,).

    NaN differences are left out. The p-value is NaN if fewer than two differences remain.

    >>> round(t_test([0.1, 0.3, 0.2, -0.1]), 4)
    0.2394
    """
    from scipy.special import stdtr

    d = _clean(differences)
    if len(d) < 2:
        return math.nan
    mean, deviation = float(d.mean()), float(d.std(ddof=1))
    if deviation <= 10.0**-_DECIMALS * abs(mean):
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(d) - 1, -abs(mean) / deviation * math.sqrt(len(d))))


def wilcoxon_test(differences: ArrayLike) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test of differences (n,).

    Differences of 0 are left out. The p-value is exact, also with ties, for up to 50 differences. For more,
    it uses the normal approximation, corrected for ties. It is 1 if every difference is 0, and NaN if there
    are no differences.

    >>> wilcoxon_test([0.1, 0.3, 0.2, -0.1])
    0.375
    """
    from scipy.special import ndtr
    from scipy.stats import rankdata

    d = _clean(differences)
    if not len(d):
        return math.nan
    d = d[d != 0]
    n = len(d)
    if not n:
        return 1.0
    ranks = rankdata(np.abs(d))
    positive = float(ranks[d > 0].sum())
    if n <= _WILCOXON_EXACT_UP_TO:
        doubled = np.rint(2 * ranks).astype(np.int64)  # integers, since ranks of ties are multiples of 1/2
        ways = np.zeros(int(doubled.sum()) + 1)
        ways[0] = 1.0
        for rank in doubled:
            ways[rank:] += ways[:-rank].copy()
        at = round(2 * positive)
        tail = min(ways[: at + 1].sum(), ways[at:].sum())
        return float(min(1.0, 2 * tail / 2.0**n))
    _, ties = np.unique(ranks, return_counts=True)
    variance = (n * (n + 1) * (2 * n + 1) - float(np.sum(ties**3 - ties)) / 2) / 24
    return float(2 * ndtr(-abs(positive - n * (n + 1) / 4) / math.sqrt(variance)))


def randomization_test(differences: ArrayLike, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Floats:
    """Two-sided p-values of Fisher's randomization test of the columns of differences.

    The differences have shape (n, m), or (n,) for one column; the result has shape (m,) or (1,). If the
    methods do not differ, each difference could equally have the opposite sign. The p-value is the share of
    sign assignments whose mean is at least as far from 0 as the observed mean. If at most 12 differences are
    not 0, all assignments are counted. Otherwise `n_resamples` assignments are drawn at random, and the
    observed one is added to them.

    >>> randomization_test([0.1, 0.3, 0.2, -0.1])
    array([0.375])
    """
    D = _rounded(differences)
    D = np.nan_to_num(D.reshape(len(D), -1))
    n, m = D.shape
    nonzero = np.count_nonzero(D, axis=0)
    sums = np.abs(D.sum(axis=0))
    # a tolerance, since sums that should be equal may differ in the last bits
    reached = sums - 1e-9 * np.abs(D).max(axis=0, initial=0.0)
    p = np.ones(m)
    many = np.flatnonzero(nonzero > EXACT_UP_TO)
    if len(many):
        rng, count, left = np.random.default_rng(seed), np.zeros(len(many)), n_resamples
        block = max(1, _BLOCK // n)
        while left:
            rows = min(block, left)
            signs = rng.integers(0, 2, size=(rows, n), dtype=np.int8) * 2.0 - 1.0
            count += (np.abs(signs @ D[:, many]) >= reached[many]).sum(axis=0)
            left -= rows
        p[many] = (1 + count) / (1 + n_resamples)
    for column in np.flatnonzero((nonzero > 0) & (nonzero <= EXACT_UP_TO)):
        d = D[D[:, column] != 0, column]
        totals = np.zeros(1)
        for value in d:
            totals = np.concatenate([totals + value, totals - value])
        p[column] = np.mean(np.abs(totals) >= reached[column])
    return p


def paired_p_values(differences: ArrayLike) -> tuple[Floats, Floats]:
    """Two-sided p-values (3, s, m) of the differences (n, s, m) of s methods from a reference on n queries.

    There is one difference for each of m metrics. The first axis of the result has the t-test, Wilcoxon's
    test and the randomization test. Returns the p-values, and the p-values after Holm's correction for the
    s methods.
    """
    D = np.asarray(differences, dtype=np.float64)
    n, s, m = D.shape
    p = np.empty((3, s, m))
    p[2] = randomization_test(D.reshape(n, -1)).reshape(s, m)
    for i in range(s):
        for j in range(m):
            p[0, i, j], p[1, i, j] = t_test(D[:, i, j]), wilcoxon_test(D[:, i, j])
    corrected = np.empty_like(p)
    for t in range(3):
        for j in range(m):
            corrected[t, :, j] = holm(p[t, :, j])
    return p, corrected


def holm(p: ArrayLike) -> Floats:
    """Correct the p-values (m,) of m tests by Holm's method. A NaN does not count as a test and stays NaN.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.array(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    order = order[~np.isnan(values[order])]
    steps = values[order] * np.arange(len(order), 0, -1)
    values[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return values


def bootstrap_intervals(
    values: ArrayLike,
    folds: Sequence[int] | Integers,
    *,
    level: float = 0.95,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
    weight: Floats | None = None,
) -> Floats:
    """Bootstrap confidence intervals (m, 2) of the mean of each column of values (n, m).

    A mean is over the queries of each fold, then over folds. Queries are drawn with replacement within their
    folds, and the interval lies between quantiles of the resulting means. NaN values are left out. The draws
    for a column do not depend on the other columns.

    values       (n, m) values of n queries, such as m metrics or differences.
    folds        (n,) fold in which each query is tested.
    level        Confidence level.
    n_resamples  Number of bootstrap samples.
    seed         Seed of the draws.
    weight       (n,) weights above 0 of the queries in the mean of their fold; None weights them equally.

    >>> bootstrap_intervals([[0.0], [1.0], [0.5], [0.5]], [0, 0, 1, 1]).tolist()
    [[0.25, 0.75]]
    """
    V, codes = np.asarray(values, dtype=np.float64), np.asarray(folds)
    present = ~np.isnan(V)
    intervals = np.full((V.shape[1], 2), np.nan)
    tail = (1 - level) / 2
    # Columns with NaN in the same rows are resampled together. There are few such patterns, since only the
    # labels of a query decide which of its values are NaN.
    for pattern in np.unique(present, axis=1).T:
        columns = np.flatnonzero((present == pattern[:, None]).all(axis=0))
        if pattern.any():
            own = None if weight is None else weight[pattern]
            means = _resampled_means(V[np.ix_(pattern, columns)], codes[pattern], n_resamples, seed, own)
            intervals[columns] = np.quantile(means, [tail, 1 - tail], axis=0).T
    return intervals


def _resampled_means(
    V: Floats, codes: Integers, n_resamples: int, seed: int, weight: Floats | None
) -> Floats:
    """Draw bootstrap samples of the queries, and return the mean of each sample, (n_resamples, m).

    Queries are drawn with replacement within their folds. A mean is over the queries of each fold, then over
    the folds.

    V       (n, m) values of the queries.
    codes   (n,) fold of each query.
    weight  (n,) weight of each query in the mean of its fold, or None.
    """
    rng = np.random.default_rng(seed)
    means = np.zeros((n_resamples, V.shape[1]))
    names = np.unique(codes)
    for name in names:
        own, w = V[codes == name], None if weight is None else weight[codes == name]
        n = len(own)
        block = max(1, _BLOCK // n)
        for start in range(0, n_resamples, block):
            rows = min(block, n_resamples - start)
            drawn = rng.integers(0, n, size=(rows, n)) + np.arange(rows)[:, None] * n
            times = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
            if w is not None:
                times *= w
                times *= n / times.sum(axis=1, keepdims=True)
            means[start : start + rows] += times @ own / (n * len(names))
    return means


def _rounded(differences: ArrayLike) -> Floats:
    return np.asarray(np.round(np.asarray(differences, dtype=np.float64), _DECIMALS), dtype=np.float64)


def _clean(differences: ArrayLike) -> Floats:
    d = _rounded(differences)
    return d[~np.isnan(d)]
