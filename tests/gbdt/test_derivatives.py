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
from sinkprop.objective.gains import as_gain

LOG = NDCG(discount="log2")
TABLE = RankLinear(table=lambda r, k: np.sqrt(r) / (k + r))
GAINS = ["ndcg", "ndcg@3", NDCG(discount="letor"), "p@2", "rbp@0.7", TABLE]
NAMES = ["ndcg", "ndcg@3", "letor", "p@2", "rbp", "table"]


def derivatives(y, qid=None, gain="ndcg", *, sample_weight=None, query_weight=None, n_threads=1, **loss):
    return Derivatives(
        TreeLoss(gain, **{"noise": 0, **loss}),
        y,
        group_rows(qid, len(y)),
        sample_weight=sample_weight,
        query_weight=query_weight,
        n_threads=n_threads,
    )


def by_widths(scores, y, qid=None, gain="ndcg", *, widths=(0.1, 1.0), n_iter=2, **given):
    """The mean over widths of the expected gain and of its gradient, from the library's one call.

    A discount that the gain leaves open is log2's, as for trees.
    """
    found = [
        expected_gain(
            scores,
            y,
            qid,
            gain=as_gain(gain, "log2"),
            relaxation=SmoothedIndicator(width, kernel="laplace"),
            n_iter=n_iter,
            **given,
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
        y[:2] = 2, 0
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
    D = LOG.discounts(n)
    ideal = np.sort(g)[::-1] @ D
    i, k = np.triu_indices(n, 1)
    # each of n documents is at each rank with 1 / n, and moves against the others by half the mean difference
    slope = n * np.mean(1 / np.array([0.1, 1.0])) * np.mean(D[i] - D[k]) / (2 * ideal)
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


def test_documents_that_are_all_alike_have_a_value_but_no_derivative():
    scores = np.array([0.3, 0.1, 0.1, -2.0])
    slopes = {}
    for n_iter in (1, 2, 300):
        found = derivatives([2, 2, 2, 2], n_iter=n_iter)
        value, slope = by_widths(scores, [2, 2, 2, 2], n_iter=n_iter)
        assert found.value(scores) == pytest.approx(value, rel=1e-14)
        assert_array_equal(found(scores)[0], 0)
        slopes[n_iter] = np.abs(slope).max()
    assert slopes[300] < 1e-4 * slopes[1], "nor has the limit"


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
    # one document; none relevant; all equally relevant, whose order does not matter
    for y in ([3], [0, 0, 0], [2, 2, 2]):
        gradient, curvature = derivatives(y)(np.arange(len(y), dtype=float))
        assert_array_equal(gradient, 0)
        assert (curvature > 0).all()
        assert np.isfinite(curvature).all()
    # scores so far apart that no kernel reaches, and so close that all are nearly tied
    for scale in (1e-300, 1e-12, 1e12, 1e200):
        gradient, curvature = derivatives([0, 1, 2, 0])(np.array([3.0, 1.0, 2.0, 0.0]) * scale)
        assert np.isfinite(gradient).all()
        assert (curvature > 0).all()


class TestNoise:
    def test_it_is_the_gradient_at_scores_nearby(self):
        rng = np.random.default_rng(0)
        n_queries, n = 400, 12
        y, qid = rng.integers(0, 3, n_queries * n), np.repeat(np.arange(n_queries), n)
        scores = np.tile(np.arange(n) * 1.0, n_queries)
        plain, noisy = derivatives(y, qid)(scores)[0], derivatives(y, qid, noise=1e-6)(scores)[0]
        assert not np.array_equal(plain, noisy)
        assert_allclose(noisy, plain, atol=1e-3)

    def test_its_moments(self):
        """The noise itself, seen through a width in which the gradient is linear in the score."""
        n = 20_000
        y, qid = np.tile([0, 1], n // 2), np.repeat(np.arange(n // 2), 2)
        scores = np.tile([0.0, 0.3], n // 2)
        slope = derivatives(y, qid, LOG, widths=1.0)
        seen = -derivatives(y, qid, LOG, widths=1.0, noise=0.02)(scores)[0][1::2]
        # gradients at scores whose difference was moved: the inverse of a smooth curve
        moves = np.linspace(-0.2, 0.2, 801)
        curve = [-slope(np.tile([0.0, 0.3 + move], n // 2))[0][1] for move in moves]
        assert (np.diff(curve) < 0).all(), "it must have an inverse"
        difference = np.interp(seen, curve[::-1], moves[::-1])
        assert abs(difference.mean()) < 4 * 0.02 * np.sqrt(2 / len(difference))
        assert difference.std() == pytest.approx(0.02 * np.sqrt(2), rel=0.03)

    def test_the_same_scores_have_the_same(self):
        rng = np.random.default_rng(1)
        y, qid = rng.integers(0, 3, 9000), rng.integers(0, 300, 9000)
        scores = rng.normal(size=9000)
        found = [derivatives(y, qid, noise=0.3, n_threads=n)(scores) for n in (1, 1, 3)]
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                assert_array_equal(a, b)
        assert derivatives(y, qid, noise=0.3).value(scores) == derivatives(y, qid).value(scores)

    def test_other_scores_and_other_seeds_have_another(self):
        y, qid = np.tile([0, 1, 2, 0], 50), np.repeat(np.arange(50), 4)
        base = derivatives(y, qid, noise=0.3)(np.zeros(200))[0]
        # another query, the same scores; another seed; another score of the same query
        assert len({tuple(part) for part in base.reshape(50, 4).tolist()}) == 50
        assert not np.isclose(base, derivatives(y, qid, noise=0.3, seed=1)(np.zeros(200))[0]).any()
        moved = derivatives(y, qid, noise=0.3)(np.where(np.arange(200) == 0, 1e-9, 0.0))[0]
        assert not np.isclose(base[:4], moved[:4]).any()
        assert_array_equal(base[4:], moved[4:])

    def test_zero_has_no_sign(self):
        y = [0, 1, 2, 0]
        found = [derivatives(y, noise=0.3)(np.zeros(4) * sign)[0] for sign in (1, -1)]
        assert_array_equal(*found)

    @pytest.mark.parametrize("given", [{"noise": -1}, {"noise": np.nan}, {"seed": -1}, {"seed": 0.5}])
    def test_it_is_checked(self, given):
        with pytest.raises((ValueError, TypeError), match=next(iter(given))):
            TreeLoss(**given)


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
        ({"widths": 0}, r"widths must be a number from 1e-30 to 1e\+30, or several; got 0"),
        ({"widths": 5e-324}, r"widths must be a number from 1e-30 to 1e\+30, or several; got 5e-324"),
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


def test_derivatives_of_ties_are_finite_at_the_least_width():
    gradient, curvature = derivatives([0, 2, 1], widths=1e-30)(np.zeros(3))
    assert np.isfinite(gradient).all()
    assert np.isfinite(curvature).all()


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.0, np.nan, 1.0], "scores must be finite; row 1 holds nan"),
        ([0.0, np.inf, 1.0], "row 1"),
        ([0.0, 1.0], "scores must have one value per row: 3 rows, but 2 scores."),
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


@pytest.mark.parametrize("gain", ["ndcg", TABLE, "map", "err"], ids=["ndcg", "table", "map", "err"])
@pytest.mark.parametrize("sizes", [[1, 2, 8, 8, 9, 30], [700, 150, 1]], ids=["lists", "long"])
def test_scores_in_float32_give_the_bits_of_float64(gain, sizes):
    """With ties, noise, rows in any order, and a query without gain."""
    rng = np.random.default_rng(3)
    n, qid = sum(sizes), rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = rng.integers(0, 5, n) * (qid > 1)
    scores = rng.normal(size=n).astype(np.float32)
    scores[::3] = scores[::3].round(1)
    for noise in (0.0, 0.4):
        d = derivatives(y, qid, gain, noise=noise)
        for single, double in zip(d(scores), d(scores.astype(np.float64)), strict=True):
            assert single.dtype == np.float32
            assert_array_equal(single, double)
        assert_array_equal(d.values(scores), d.values(scores.astype(np.float64)))
