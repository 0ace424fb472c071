"""The Boltzmann distribution over rankings: against sums over all pairs and all rankings."""

from itertools import pairwise, permutations
from math import factorial, log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import NDCG, RBP, Precision, RankLinear
from sinkprop.baselines.boltzmann import (
    BoltzmannObjective,
    draw_rankings,
    rank_coefficients,
    unit_coefficients,
)

SHAPES = {
    "x": lambda x: x,
    "x^2": np.square,
    "sign": np.ones_like,
    "log": np.log1p,
}
scores_of_a_query = st.lists(st.floats(-5, 5), min_size=1, max_size=6).map(np.array)


def every_ranking(m):
    """Ranks from 0, (m!, m)."""
    return np.array(list(permutations(range(m))))


def energy(ranks, scores, g):
    """E(R | S), pair by pair."""
    m = len(scores)
    total = 0.0
    for j in range(m):
        for k in range(m):
            if ranks[j] < ranks[k]:
                total += g(float(ranks[k] - ranks[j])) * (scores[k] - scores[j])
    return 2 / (m * (m - 1)) * total if m > 1 else 0.0


def of_all(y, offsets=None, **options):
    """The objective with every ranking of every query."""
    y = np.asarray(y, dtype=np.float64)
    offsets = np.array([0, len(y)]) if offsets is None else np.asarray(offsets)
    sizes = np.diff(offsets)
    settings = {"gain": NDCG(discount="letor"), "sharpness": 0.7, **options}
    return BoltzmannObjective(y, offsets, lambda q: every_ranking(sizes[q]), **settings)


@pytest.mark.parametrize("shape", SHAPES)
@given(scores=scores_of_a_query, seed=st.integers(0, 99))
def test_the_energy_is_linear_in_the_scores(shape, scores, seed):
    ranks = np.random.default_rng(seed).permutation(len(scores))
    g = SHAPES[shape]
    found = rank_coefficients(len(scores), g)[ranks] @ scores
    assert found == pytest.approx(energy(ranks, scores, g), abs=1e-10)
    if shape == "x":
        assert_array_equal(rank_coefficients(len(scores)), rank_coefficients(len(scores), g))


@pytest.mark.parametrize("shape", SHAPES)
@given(scores=scores_of_a_query)
def test_the_most_probable_ranking_is_the_sort_by_scores(shape, scores):
    ranks = every_ranking(len(scores))
    energies = rank_coefficients(len(scores), SHAPES[shape])[ranks] @ scores
    by_score = np.empty(len(scores), int)
    by_score[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    (place,) = np.flatnonzero((ranks == by_score).all(axis=1))
    assert energies[place] <= energies.min() + 1e-12


@pytest.mark.parametrize("m", [2, 3, 6])
def test_unit_coefficients_make_energies_of_variance_one(m):
    scores = np.random.default_rng(m).normal(size=m)
    scores = (scores - scores.mean()) / scores.std()
    energies = unit_coefficients(m)[every_ranking(m)] @ scores
    assert energies.mean() == pytest.approx(0, abs=1e-12)
    assert energies.var() == pytest.approx(1)
    # of the same shape
    assert_allclose(unit_coefficients(m) / unit_coefficients(m)[-1], rank_coefficients(m))


def by_enumeration(scores, labels, mixing, sharpness, gain_of):
    """Value, expected gain, divergence and gradient by torch, ranking by ranking and pair by pair."""
    torch = pytest.importorskip("torch")
    m = len(scores)
    s = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    y = np.asarray(labels, dtype=np.float64)
    t = (y - y.mean()) / y.std() if y.std() > 0 else 0 * y
    rankings = list(permutations(range(m)))
    z = np.arange(m) - (m - 1) / 2  # any scores of variance 1 give the unit of energy
    z /= z.std() or 1
    unit = np.std([energy(R, z, float) for R in rankings]) or 1.0
    log_p = torch.log_softmax(torch.stack([-energy(R, s, float) / unit + 0 * s.sum() for R in rankings]), 0)
    log_t = torch.log_softmax(torch.tensor([-sharpness * energy(R, t, float) / unit for R in rankings]), 0)
    gains = torch.tensor([gain_of(R, labels) for R in rankings], dtype=torch.float64)
    expected = (log_p.exp() * gains).sum()
    divergence = (log_t.exp() * (log_t - log_p)).sum()
    value = mixing * expected - (1 - mixing) * divergence
    value.backward()
    return value.item(), expected.item(), divergence.item(), s.grad.numpy()


def ndcg(k):
    def value(ranks, labels):
        def dcg(places):
            return sum(
                (2.0**label - 1) / (1 if place < 2 else log2(place + 1))
                for place, label in zip(places, labels, strict=True)
                if place < k
            )

        best = np.empty(len(labels), int)
        best[np.argsort(-np.asarray(labels), kind="stable")] = np.arange(len(labels))
        return dcg(ranks) / dcg(best) if dcg(best) > 0 else 0.0

    return value


def table(ranks, labels):
    return sum(np.cos(label * (place + 1)) for place, label in zip(ranks, labels, strict=True))


GAINS = {
    "ndcg": (NDCG(discount="letor"), ndcg(99)),
    "ndcg@2": (NDCG(2, discount="letor"), ndcg(2)),
    "p@2": (Precision(2), lambda R, y: sum(label >= 1 for r, label in zip(R, y, strict=True) if r < 2) / 2),
    "rbp": (RBP(0.5), lambda R, y: sum(0.5 * label * 0.5**r for r, label in zip(R, y, strict=True))),
    "table": (RankLinear(table=lambda r, k: np.cos(r * k)), table),
}
LABELS = {
    "one document": [2],
    "one irrelevant document": [0],
    "two": [0, 1],
    "ties": [0, 2, 1, 0, 1],
    "all equal": [1, 1, 1, 1],
    "none relevant": [0, 0, 0],
    "fractions": [0.5, 2.25, 0, 1],
    "large": [900, 0, 3, 899],
}


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gain", GAINS)
def test_value_and_gradient_equal_enumeration(gain, labels, mixing):
    y = LABELS[labels]
    size = max(1, *y) if gain == "rbp" else 1  # of the gain: what rounding is relative to
    scores = np.random.default_rng(len(y)).normal(size=len(y))
    value, expected, divergence, gradient = by_enumeration(scores, y, mixing, 0.7, GAINS[gain][1])
    found = of_all(y, gain=GAINS[gain][0])(scores, mixing)
    assert found.value == pytest.approx(value, rel=1e-12, abs=1e-13 * size)
    assert found.expected_gain == pytest.approx(expected, rel=1e-12, abs=1e-13)
    assert found.divergence == pytest.approx(divergence, rel=1e-11, abs=1e-13)
    assert_allclose(found.gradient, gradient, rtol=1e-10, atol=1e-13 * size)


def test_the_gradient_equals_differences_on_drawn_sets():
    rng = np.random.default_rng(0)
    offsets = np.array([0, 9, 10, 25, 34, 36])
    y, s = rng.integers(0, 3, 36).astype(float), rng.normal(size=36)
    sets = [draw_rankings(y[a:b], 40, rng) for a, b in pairwise(offsets)]
    weight = np.array([1.0, 2.0, 0.5, 0.0, 3.0])
    objective = BoltzmannObjective(
        y, offsets, sets.__getitem__, gain=NDCG(), sharpness=1.0, query_weight=weight
    )
    step = 1e-5
    slopes = [
        (objective(s + step * e, 0.4).value - objective(s - step * e, 0.4).value) / (2 * step)
        for e in np.eye(36)
    ]
    assert_allclose(objective(s, 0.4).gradient, slopes, rtol=0, atol=1e-9)
    assert_array_equal(objective(s, 0.4).gradient[25:34], 0)  # of weight 0


def test_the_mean_over_queries_is_weighted():
    y, s = np.array([1.0, 0, 2, 0, 1, 1, 0, 2]), np.array([0.3, 0.1, -1, 0.5, 2, 0.4, -0.2, 0])
    parts = [of_all(y[a:b])(s[a:b], 0.5) for a, b in ((0, 3), (3, 5), (5, 8))]
    weight = np.array([1.0, 3.0, 0.5])
    together = of_all(y, [0, 3, 5, 8], query_weight=weight)(s, 0.5)
    for name in ("value", "expected_gain", "divergence"):
        expected = sum(w * getattr(part, name) for w, part in zip(weight, parts, strict=True)) / weight.sum()
        assert getattr(together, name) == pytest.approx(expected, rel=1e-13)
    gradients = [w * part.gradient / weight.sum() for w, part in zip(weight, parts, strict=True)]
    assert_allclose(together.gradient, np.concatenate(gradients), rtol=1e-12, atol=1e-16)
    nothing = of_all(y, [0, 3, 5, 8], query_weight=np.zeros(3))(s, 0.5)
    assert nothing.value == 0
    assert_array_equal(nothing.gradient, 0)


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_laws_of_the_set_of_all_rankings(labels, seed):
    rng = np.random.default_rng(seed)
    y, s = np.array(labels, dtype=np.float64), rng.normal(size=len(labels))
    found = of_all(y)(s, 0.6)
    # rows in another order
    order = rng.permutation(len(y))
    again = of_all(y[order])(s[order], 0.6)
    assert again.value == pytest.approx(found.value, rel=1e-12, abs=1e-14)
    assert_allclose(again.gradient, found.gradient[order], rtol=1e-10, atol=1e-14)
    # scores shifted; labels shifted or in another unit, for the target
    assert of_all(y)(s + 7, 0.6).value == pytest.approx(found.value, rel=1e-9, abs=1e-12)
    for other in (y + 2, 10 * y):
        assert of_all(other)(s, 0.6).divergence == pytest.approx(found.divergence, rel=1e-9, abs=1e-12)
    assert found.gradient.sum() == pytest.approx(0, abs=1e-14)
    # the labels themselves are the scores of the target
    t = (y - y.mean()) / (y.std() or 1)
    target = of_all(y)(0.7 * t, 0.0)
    assert target.divergence == pytest.approx(0, abs=1e-12)
    assert_allclose(target.gradient, 0, atol=1e-12)
    assert found.divergence >= -1e-13


def test_expected_gain_between_chance_and_the_metric():
    y, s = np.array([0.0, 2, 1, 0, 1]), np.array([0.1, 0.4, 0.3, 0.2, 0.0])
    value = ndcg(99)
    chance = np.mean([value(R, y) for R in every_ranking(5)])
    assert of_all(y)(0 * s, 1.0).value == pytest.approx(chance, rel=1e-13)
    by_score = np.array([3, 0, 1, 2, 4])
    assert of_all(y)(1e4 * s, 1.0).value == pytest.approx(value(by_score, y), rel=1e-13)


def test_no_relevant_document_leaves_the_divergence_from_equal_scores():
    found = of_all([0, 0, 0, 0])(np.zeros(4), 0.5)
    assert found.value == found.expected_gain == 0
    assert found.divergence == pytest.approx(0, abs=1e-14)
    apart = of_all([0, 0, 0, 0])(np.array([1e3, 0, -1e3, 500]), 0.5)
    assert apart.expected_gain == 0
    assert apart.divergence > log(factorial(4))


@pytest.mark.parametrize("size", [1e5, 1e150, 1e300])
@pytest.mark.parametrize("mixing", [0.0, 0.5, 1.0])
def test_scores_of_any_size(size, mixing):
    y = np.array([0.0, 2, 1, 0, 1])
    found = of_all(y)(size * np.array([1.0, -0.5, 0.3, 0.3, -1]), mixing)
    assert np.isfinite([found.value, found.expected_gain, found.divergence]).all()
    assert np.isfinite(found.gradient).all()


def test_labels_of_any_size():
    s = np.array([0.3, -0.2, 1.0])
    for y in ([0, 1, 2], [0, 1e-300, 2e-300], [0, 1e300, 2e300]):
        found = of_all(y, gain=Precision(1))(s, 0.0)
        assert found.divergence == pytest.approx(of_all([0, 1, 2])(s, 0.0).divergence, rel=1e-9)


class TestDrawnRankings:
    def test_all_of_them_where_they_are_few(self):
        y = np.array([0.0, 1, 1, 2])
        found = draw_rankings(y, 24, np.random.default_rng(0))
        assert len({tuple(R) for R in found.tolist()}) == len(found) == 24
        assert len(draw_rankings(y, 23, np.random.default_rng(0))) == 23

    def test_one_of_the_best_and_uniform_ones(self):
        y = np.array([0.0, 2, 1, 0, 2, 1, 0])
        firsts, places = [], np.zeros((7, 7))
        for seed in range(200):
            found = draw_rankings(y, 51, np.random.default_rng(seed))
            assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(7), (51, 1)))
            firsts.append(found[0])
            for j in range(7):
                places[j] += np.bincount(found[1:, j], minlength=7)
        for first in firsts:
            assert_array_equal(y[np.argsort(first)], np.sort(y)[::-1])
        assert len({tuple(first) for first in firsts}) == 2 * 2 * 6  # ties in every order
        assert_allclose(places / 10_000, 1 / 7, atol=0.02)  # five standard errors

    def test_one_document(self):
        assert_array_equal(draw_rankings(np.array([1.0]), 100, np.random.default_rng(0)), [[0]])
