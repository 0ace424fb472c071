"""Derivatives for trees, against the expected gain's own gradient and its mean over all orders of ties."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import NDCG, RankLinear, SmoothedIndicator, _native, expected_gain
from sinkprop.data import group_rows
from sinkprop.gbdt import Derivatives, TreeLoss

TABLE = RankLinear(table=lambda r, k: np.sqrt(r) / (k + r))
GAINS = ["ndcg", "ndcg@3", NDCG(discount="log2"), "p@2", "rbp@0.7", TABLE]
NAMES = ["ndcg", "ndcg@3", "log2", "p@2", "rbp", "table"]


def derivatives(y, qid=None, gain="ndcg", *, sample_weight=None, query_weight=None, n_threads=1, **loss):
    return Derivatives(
        TreeLoss(gain, **loss),
        y,
        group_rows(qid, len(y)),
        sample_weight=sample_weight,
        query_weight=query_weight,
        n_threads=n_threads,
    )


def by_widths(scores, y, qid=None, gain="ndcg", *, widths=(0.1, 0.3, 1.0), **given):
    """The mean over widths of the expected gain and of its gradient, from the library's one call."""
    found = [
        expected_gain(
            scores, y, qid, gain=gain, relaxation=SmoothedIndicator(width, kernel="laplace"), **given
        )
        for width in widths
    ]
    return np.mean([r.value for r in found]), np.mean([r.gradient for r in found], axis=0)


def over_orders(scores, y, gain, weights=None, **given):
    """That gradient as a mean over every order of the rows: ties are broken by it."""
    total, orders = np.zeros(len(y)), list(itertools.permutations(range(len(y))))
    for order in map(list, orders):
        row_weights = None if weights is None else weights[order]
        total[order] += by_widths(scores[order], y[order], gain=gain, sample_weight=row_weights, **given)[1]
    return total / len(orders)


@pytest.mark.parametrize("gain", GAINS, ids=NAMES)
@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 1.5, 2.5, 5])
def test_without_ties_they_are_the_expected_gains(gain, n_iter):
    rng = np.random.default_rng(0)
    qid = rng.integers(0, 7, 90)
    scores, y = rng.normal(size=90), rng.integers(0, 4, 90)
    found = derivatives(y, qid, gain, n_iter=n_iter)
    value, slope = by_widths(scores, y, qid, gain, n_iter=n_iter)
    assert found.value(scores) == pytest.approx(value, rel=1e-13)
    assert_allclose(found(scores)[0], -90 * slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 1.5, 5])
@pytest.mark.parametrize("gain", GAINS, ids=NAMES)
def test_ties_are_a_mean_over_their_orders(gain, n_iter, weighted):
    rng = np.random.default_rng(3)
    for tied in (
        [0.0] * 5,
        [0.4, 0.0, 0.4, 0.4, 0.0],
        [0.2, 0.1, 0.2, -1.0, 0.1],
        [1.0, 0.0, 0.0, 0.0, -0.3],
    ):
        scores, y = np.array(tied), rng.integers(0, 4, 5)
        weights = rng.uniform(0.5, 2, 5) if weighted else None
        if not (y >= 1).any():
            y[0] = 2
        found = derivatives(y, None, gain, n_iter=n_iter, sample_weight=weights)
        expected = over_orders(scores, y, gain, weights, n_iter=n_iter)
        assert_allclose(found(scores)[0], -5 * expected, rtol=1e-6, atol=1e-7)
        assert found.value(scores) == pytest.approx(
            by_widths(scores, y, gain=gain, n_iter=n_iter, sample_weight=weights)[0], rel=1e-12
        )


@pytest.mark.parametrize("n", [2, 7, 40, 300])
def test_where_all_are_tied_the_gradient_is_a_regression_on_the_gains(n):
    y = np.random.default_rng(n).integers(0, 3, n)
    y[:2] = 0, 2
    g = 2.0**y - 1
    found = -derivatives(y, epsilon=0)(np.full(n, 0.7))[0]
    D = NDCG().discounts(n)
    ideal = np.sort(g)[::-1] @ D
    i, k = np.triu_indices(n, 1)
    # each of n documents is at each rank with 1 / n, and moves against the others by half the mean difference
    slope = n * np.mean(1 / np.array([0.1, 0.3, 1.0])) * np.mean(D[i] - D[k]) / (2 * ideal)
    assert_allclose(found, slope * (g - g.mean()), rtol=2e-6)


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([0.0, 0.5, 1.0]))
def test_laws(seed, n, blend):
    rng = np.random.default_rng(seed)
    y, qid = rng.integers(0, 5, n), rng.integers(0, 4, n)
    scores = np.round(rng.normal(size=n), rng.integers(0, 3))
    found = derivatives(y, qid, blend=blend)
    gradient, curvature = found(scores)
    # no order of the rows, no shift of the scores, and no sum over a query matters
    order = rng.permutation(n)
    again = derivatives(y[order], qid[order], blend=blend)(scores[order])
    assert_allclose(again[0], gradient[order], rtol=1e-5, atol=1e-6)
    assert_allclose(again[1], curvature[order], rtol=1e-5, atol=1e-6)
    assert_allclose(found(scores + 1024)[0], gradient, rtol=1e-5, atol=1e-5)
    assert_allclose(np.bincount(qid, gradient), 0, atol=1e-4)
    own = np.abs(gradient)
    mean = (np.bincount(qid, own, 4) / np.maximum(np.bincount(qid, minlength=4), 1))[qid]
    assert_allclose(curvature, np.maximum(blend * mean + (1 - blend) * own, 1e-16), rtol=1e-5, atol=1e-7)
    # equal documents are treated alike
    for j in range(1, n):
        if (y[0], qid[0], scores[0]) == (y[j], qid[j], scores[j]):
            assert gradient[0] == gradient[j]


def test_a_small_step_against_the_gradient_gains():
    rng = np.random.default_rng(1)
    y, qid = rng.integers(0, 3, 400), np.repeat(np.arange(20), 20)
    found = derivatives(y, qid)
    scores = rng.normal(size=400)
    for _ in range(5):
        step = -1e-3 * found(scores)[0]
        assert found.value(scores + step) > found.value(scores)
        scores = scores + step


def test_query_weights_count_queries():
    rng = np.random.default_rng(2)
    y, qid, scores = rng.integers(0, 3, 60), np.repeat([0, 1, 2], [10, 20, 30]), rng.normal(size=60)
    weights = np.array([2.0, 0.0, 1.0])
    found = derivatives(y, qid, query_weight=weights)
    rows = np.concatenate([np.arange(10), np.arange(10), np.arange(30, 60)])
    copies = derivatives(y[rows], np.repeat([0, 1, 2], [10, 10, 30]))
    assert found.value(scores) == pytest.approx(copies.value(scores[rows]), rel=1e-14)
    gradient, _ = found(scores)
    copied, _ = copies(scores[rows])
    assert_allclose(gradient[:10], 2 * copied[:10], rtol=1e-6)
    assert_array_equal(gradient[10:30], 0)
    assert_allclose(gradient[30:], copied[20:], rtol=1e-6)


def test_every_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(4)
    y, qid = rng.integers(0, 4, 30_000), rng.integers(0, 500, 30_000)
    scores = np.round(rng.normal(size=30_000), 2)
    first = derivatives(y, qid, n_threads=1)(scores)
    for n in (2, 5):
        for a, b in zip(first, derivatives(y, qid, n_threads=n)(scores), strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("name", _native.instruction_sets())
@pytest.mark.parametrize("method", ["direct", "sums"])
def test_every_kernel_agrees(name, method):
    rng = np.random.default_rng(6)
    before = _native.instruction_set()
    try:
        _native.use_instruction_set(name)
        for n in (1, 2, 9, 10, 33, 120):
            y, scores = rng.integers(0, 4, n), np.round(rng.normal(size=n), 1)
            _native.use_method("auto")
            _native.use_instruction_set("baseline")
            expected = derivatives(y)(scores)
            _native.use_instruction_set(name)
            _native.use_method(method)
            for a, b in zip(expected, derivatives(y)(scores), strict=True):
                assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    finally:
        _native.use_method("auto")
        _native.use_instruction_set(before)


def test_awkward_queries():
    # one document; none relevant; all equally relevant, which rows and columns that both sum to 1 do not mind
    for y in ([3], [0, 0, 0], [2, 2, 2]):
        gradient, curvature = derivatives(y, n_iter=300)(np.arange(len(y), dtype=float))
        assert_allclose(gradient, 0, atol=1e-6)
        assert (curvature > 0).all()
        assert np.isfinite(curvature).all()
    # scores so far apart that no kernel reaches, and so close that all are nearly tied
    for scale in (1e-300, 1e-12, 1e12, 1e200):
        gradient, curvature = derivatives([0, 1, 2, 0])(np.array([3.0, 1.0, 2.0, 0.0]) * scale)
        assert np.isfinite(gradient).all()
        assert (curvature > 0).all()


def test_a_million_documents():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 5, 1_000_000), np.round(rng.normal(size=1_000_000), 3)
    gradient, curvature = derivatives(y, gain="ndcg@10")(scores)
    assert np.isfinite(gradient).all()
    assert (curvature > 0).all()
    assert gradient[(y == 4) & (scores > 4)].mean() < 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"widths": 0}, "widths must be a finite number, above 0, or several; got 0"),
        ({"widths": []}, "widths must be"),
        ({"widths": [0.1, -1]}, "widths must be"),
        ({"widths": "wide"}, "widths must be"),
        ({"blend": 1.5}, "blend must be from 0 to 1; got 1.5"),
        ({"blend": -0.1}, "blend must be a finite number, not below 0"),
        ({"n_iter": 0.3}, "n_iter must be"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"gain": "nope"}, "gain"),
    ],
)
def test_settings_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        TreeLoss(**given)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.0, np.nan, 1.0], "scores must be finite; row 1 holds nan"),
        ([0.0, np.inf, 1.0], "row 1"),
        ([0.0, 1.0], "scores must have one value a row: 3 rows, but 2 scores."),
        ([[0.0], [1.0], [2.0]], "scores must have the shape (N,)"),
    ],
)
def test_scores_are_checked(scores, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        derivatives([0, 1, 2])(scores)


def test_labels_and_weights_are_checked():
    with pytest.raises(ValueError, match="labels must be finite and not below 0; row 1"):
        derivatives([0, np.nan])
    with pytest.raises(ValueError, match="sample_weight"):
        derivatives([0, 1], sample_weight=[1, -1])
    with pytest.raises(ValueError, match="query_weight"):
        derivatives([0, 1], query_weight=[0])


def test_what_does_not_fit_32_bits_is_said():
    steep = RankLinear(gain=lambda r: 1e60 * r, discount=lambda k: 1 / k)
    with pytest.raises(ValueError, match="too large for the 32-bit numbers"):
        derivatives([0, 1, 2], gain=steep)([0.0, 0.0, 0.0])


def test_labels_have_no_limit():
    found = derivatives([0, 40, 500, 3.5])([0.1, 0.2, 0.3, 0.4])
    assert all(np.isfinite(a).all() for a in found)
