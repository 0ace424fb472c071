"""Soft ranks by sweeps: against sums over all pairs of documents."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.serving.soft_ranks import SoftRanks

SIZES = {
    "one document": [1],
    "two": [2],
    "one query": [40],
    "many": [3, 1, 7, 2, 7, 5, 1, 30],
    "rising": [1, 2, 3, 4, 5],
    "falling": [5, 4, 3, 2, 1],
}


def offsets_of(sizes):
    return np.concatenate([[0], np.cumsum(sizes)])


def by_pairs(a, offsets):
    """mean_k phi(a_j - a_k) and the kernel exp(-|a_j - a_k|) between all documents of a query."""
    out = np.zeros_like(a)
    for first, end in pairwise(offsets):
        t = a[first:end, None] - a[None, first:end]
        out[first:end] = (np.sign(t) * -np.expm1(-np.abs(t))).sum(axis=1) / max(1, end - first - 1)
    return out


def reverse_by_pairs(a, offsets, F_bar):
    out = np.zeros_like(a)
    for first, end in pairwise(offsets):
        rows = slice(first, end)
        kernel = np.exp(-np.abs(a[rows, None] - a[None, rows])) / max(1, end - first - 1)
        out[rows] = (kernel * (F_bar[rows, None] - F_bar[None, rows])).sum(axis=1)
    return out


@pytest.mark.parametrize("width", [0.0, 1e-9, 0.1, 1.0, 30.0, 1e4, 1e300])
@pytest.mark.parametrize("sizes", SIZES)
def test_sweeps_equal_sums_over_pairs(sizes, width):
    rng = np.random.default_rng(0)
    offsets = offsets_of(SIZES[sizes])
    a = width * rng.normal(size=(offsets[-1], 3))
    a[:, 1] = np.round(a[:, 1])  # ties
    F_bar = rng.normal(size=a.shape)
    soft = SoftRanks(offsets)
    F, state = soft.forward(a)
    assert_allclose(F, by_pairs(a, offsets), rtol=0, atol=1e-13)
    assert_allclose(soft.reverse(state, F_bar), reverse_by_pairs(a, offsets, F_bar), rtol=0, atol=1e-13)


def test_the_reverse_pass_is_the_derivative():
    rng = np.random.default_rng(1)
    offsets = offsets_of(SIZES["many"])
    a, F_bar = rng.normal(size=(offsets[-1], 2)), rng.normal(size=(offsets[-1], 2))
    soft, step = SoftRanks(offsets), 1e-5
    _, state = soft.forward(a)
    slopes = np.empty_like(a)
    for at in np.ndindex(*a.shape):
        e = np.zeros_like(a)
        e[at] = step
        slopes[at] = np.sum(F_bar * (soft.forward(a + e)[0] - soft.forward(a - e)[0])) / (2 * step)
    # phi'' jumps at ties, of which there are none
    assert_allclose(soft.reverse(state, F_bar), slopes, rtol=0, atol=1e-8)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 99))
def test_laws(sizes, seed):
    rng = np.random.default_rng(seed)
    offsets = offsets_of(sizes)
    a = rng.normal(size=(offsets[-1], 2))
    soft = SoftRanks(offsets)
    F, _ = soft.forward(a)
    assert_allclose(np.add.reduceat(F, offsets[:-1]), 0, atol=1e-13)  # what one gains, another loses
    assert (np.abs(F) <= 1 + 1e-14).all()
    assert_allclose(soft.forward(-a)[0], -F, rtol=0, atol=1e-14)
    shift = np.repeat(rng.normal(size=(len(sizes), 2)), sizes, axis=0)
    assert_allclose(soft.forward(a + shift)[0], F, rtol=0, atol=1e-13)
    order = np.concatenate([rng.permutation(np.arange(*ends)) for ends in pairwise(offsets)])
    assert_allclose(soft.forward(a[order])[0], F[order], rtol=0, atol=1e-14)


def test_the_ends_of_the_softness():
    a = np.random.default_rng(2).permutation(np.arange(9.0))[:, None]
    soft = SoftRanks(np.array([0, 9]))
    assert_allclose(soft.forward(1e3 * a)[0], (a - 4) / 4, atol=1e-15)  # ranks
    assert_allclose(soft.forward(1e-6 * a)[0], 1e-6 * 9 / 8 * (a - 4), rtol=2e-5)  # differences to the mean
    assert_array_equal(soft.forward(0 * a)[0], 0)


def test_a_long_query():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(20_000, 1))
    F, _ = SoftRanks(np.array([0, len(a)])).forward(a)
    some = rng.integers(len(a), size=20)
    t = a[some] - a.T
    assert_allclose(F[some, 0], (np.sign(t) * -np.expm1(-np.abs(t))).sum(axis=1) / (len(a) - 1), atol=1e-12)
