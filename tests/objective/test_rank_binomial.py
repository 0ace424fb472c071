"""SoftRank's rank distribution and the gain expected under it: enumeration, sampling, torch, and laws."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from problems import GAINS, PROBLEMS, Problem
from scipy.special import ndtr

from sinkprop import reference
from sinkprop.objective.gains import NDCG, RBP, Gain, Precision, RankLinear
from sinkprop.objective.rank_binomial import soft_gain, soft_rank_distribution

# Relative to the largest entry; "rounding" to the terms that a gradient sums, which are near 1 / sigma.
TOLERANCE = {"value": 1e-13, "gradient": 1e-11, "probability": 1e-12, "rounding": 1e-15, "difference": 1e-8}


def beats(scores: np.ndarray, sigma: float) -> np.ndarray:
    """pi[i, j], the probability that document i beats document j."""
    halves = np.asarray(scores) / 2
    return ndtr((halves[:, None] - halves[None, :]) / (sigma / math.sqrt(2)))


def enumerated(scores: np.ndarray, sigma: float) -> np.ndarray:
    """The law that the recursion claims, by all the 2^(n-1) outcomes of independent events."""
    n = len(scores)
    pi, P = beats(scores, sigma), np.zeros((n, n))
    for j in range(n):
        others = [i for i in range(n) if i != j]
        win, lose = pi[others, j], pi[j, others]
        for outcome in product([0, 1], repeat=n - 1):
            P[j, sum(outcome)] += np.prod(np.where(outcome, win, lose))
    return P


def by_autograd(
    scores: np.ndarray, labels: np.ndarray, gain: str | Gain, sigma: float
) -> tuple[float, np.ndarray]:
    """The recursion on whole matrices, all documents at once, through torch's automatic differentiation."""
    torch = pytest.importorskip("torch", reason="the oracle of gradients is torch")
    n = len(scores)
    f = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    z = (f[:, None] / 2 - f[None, :] / 2) / (sigma / math.sqrt(2))
    win, lose = torch.special.ndtr(z), torch.special.ndtr(-z)
    P = torch.zeros((n, n), dtype=torch.float64)
    P[:, 0] = 1
    apart = ~torch.eye(n, dtype=torch.bool)
    for i in range(n):
        up = torch.cat([torch.zeros((n, 1), dtype=torch.float64), P[:, :-1]], dim=1)
        P = torch.where(apart[i][:, None], lose[i][:, None] * P + win[i][:, None] * up, P)
    value = (torch.tensor(reference.gain_matrix(labels, gain)) * P).sum()
    value.backward()
    return value.item(), f.grad.numpy()


def terms_of(labels: np.ndarray, gain: str | Gain) -> float:
    """The size of what a value sums, at least 1."""
    return max(1.0, float(np.abs(reference.gain_matrix(labels, gain)).sum()))


def assert_same(
    found, expected: tuple[float, np.ndarray], sigma: float, terms: float, where: str = ""
) -> None:
    value, gradient = expected
    rounding = TOLERANCE["rounding"] * terms
    assert found.value == pytest.approx(value, rel=TOLERANCE["value"], abs=10 * rounding), where
    atol = TOLERANCE["gradient"] * np.abs(gradient).max() + rounding / sigma
    assert_allclose(found.gradient, gradient, rtol=0, atol=atol, err_msg=where)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem_and_gain_equals_automatic_differentiation(
    problem: Problem, instruction_set: str
) -> None:
    for gain in GAINS:
        found = soft_gain(problem.scores, problem.labels, gain=gain, sigma=problem.sigma)
        expected = by_autograd(problem.scores, problem.labels, gain, problem.sigma)
        assert_same(found, expected, problem.sigma, terms_of(problem.labels, gain), str(gain))


@pytest.mark.parametrize("sigma", [1e-3, 0.03, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("gain", ["ndcg", "ndcg@10", "p@3", "rbp@0.9"])
def test_longer_queries_equal_automatic_differentiation(
    gain: str, sigma: float, instruction_set: str
) -> None:
    rng = np.random.default_rng(8)
    for n in (17, 64, 130):
        scores, labels = rng.normal(size=n), rng.integers(0, 3, n).astype(float)
        found = soft_gain(scores, labels, gain=gain, sigma=sigma)
        assert_same(found, by_autograd(scores, labels, gain, sigma), sigma, terms_of(labels, gain), f"{n}")


def by_leaving_out(
    scores: np.ndarray, labels: np.ndarray, gain: str | Gain, sigma: float
) -> tuple[float, np.ndarray]:
    """The derivative in pi_ij as what a win of i costs j, under the distribution of the others' wins."""
    n = len(scores)
    L, pi = reference.gain_matrix(labels, gain), beats(scores, sigma)
    z = (scores[:, None] - scores[None, :]) / (math.sqrt(2) * sigma)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) / (math.sqrt(2) * sigma)
    value, gradient = 0.0, np.zeros(n)
    for j in np.flatnonzero(L.any(axis=1)):
        without = np.zeros((n, n))  # row i: the number of wins among all but i and j
        without[:, 0] = 1
        for k in np.delete(np.arange(n), j):
            kept = without[k].copy()
            up = np.concatenate([np.zeros((n, 1)), without[:, :-1]], axis=1)
            without = pi[j, k] * without + pi[k, j] * up
            without[k] = kept
        value += L[j] @ without[j]
        terms = (without[:, :-1] @ np.diff(L[j])) * density[:, j]
        terms[j] = 0
        gradient += terms
        gradient[j] -= terms.sum()
    return value, gradient


def test_two_ways_to_the_gradient_agree() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=12), rng.integers(0, 3, 12)
    one, other = (way(scores, labels, "ndcg", 0.7) for way in (by_autograd, by_leaving_out))
    assert one[0] == pytest.approx(other[0], rel=1e-14)
    assert_allclose(one[1], other[1], atol=1e-15)


WAVES = RankLinear(gain=lambda r: r, discount=np.cos)


@cache
def long_query(gain: str | Gain) -> tuple[np.ndarray, np.ndarray, tuple[float, np.ndarray]]:
    """A query whose states are more than the native layer keeps, and what to expect of it at sigma = 0.4."""
    scores, labels = np.random.default_rng(9).normal(size=400), np.zeros(400)
    labels[np.argsort(scores)[[3, 201, 390]]] = [1, 2, 1]
    return scores, labels, by_leaving_out(scores, labels, gain, 0.4)


@pytest.mark.parametrize("gain", ["ndcg", WAVES], ids=["ndcg", "waves"])
def test_a_query_that_is_stepped_through_in_segments(gain: str | Gain, instruction_set: str) -> None:
    scores, labels, expected = long_query(gain)
    found = soft_gain(scores, labels, gain=gain, sigma=0.4)
    assert_same(found, expected, 0.4, terms_of(labels, gain))


@pytest.mark.parametrize("n", [1, 2, 3, 6, 10])
@pytest.mark.parametrize("sigma", [0.02, 0.2, 1.0, 30.0])
def test_the_distribution_is_the_law_of_independent_events(
    n: int, sigma: float, instruction_set: str
) -> None:
    scores = np.random.default_rng(n).normal(size=n)
    P, expected = soft_rank_distribution(scores, sigma), enumerated(scores, sigma)
    # relative: the smallest probabilities have their digits, too
    assert_allclose(P, expected, rtol=TOLERANCE["probability"], atol=1e-290)


def test_the_distribution_of_two_documents() -> None:
    P = soft_rank_distribution([0.7, 0.2], sigma=0.5)
    above = ndtr(0.5 / (math.sqrt(2) * 0.5))
    assert_allclose(P, [[above, 1 - above], [1 - above, above]], rtol=1e-14)
    # with the noise itself, which the independence of a single event cannot change
    draws = np.random.default_rng(0).normal([0.7, 0.2], 0.5, size=(40_000, 2))
    share = (draws[:, 0] > draws[:, 1]).mean()
    assert abs(share - above) < 5 * math.sqrt(above * (1 - above) / 40_000)


def test_the_distribution_against_samples() -> None:
    rng = np.random.default_rng(4)
    scores, draws = rng.normal(size=6), 40_000
    P, pi = soft_rank_distribution(scores, 0.6), beats(scores, 0.6)
    np.fill_diagonal(pi, 0)
    for j in range(6):
        ranks = (rng.random((draws, 6)) < pi[:, j]).sum(axis=1)
        shares = np.bincount(ranks, minlength=6) / draws
        assert np.all(np.abs(shares - P[j]) <= 5 * np.sqrt(P[j] * (1 - P[j]) / draws) + 1e-12)
    # Under the noise itself the events depend on one another; the mean rank is the same.
    noisy = rng.normal(scores, 0.6, size=(draws, 6))
    ranks = 1 + (noisy[:, None, :] > noisy[:, :, None]).sum(axis=2)
    error = ranks.std(axis=0) / math.sqrt(draws)
    assert np.all(np.abs(ranks.mean(axis=0) - P @ np.arange(1, 7)) < 5 * error)


def test_the_mean_rank_is_one_plus_the_expected_number_of_better_ones() -> None:
    scores = np.random.default_rng(5).normal(size=300)
    P, pi = soft_rank_distribution(scores, 0.2), beats(scores, 0.2)
    assert_allclose(P @ np.arange(1, 301), 0.5 + pi.sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("gain", ["ndcg", "ndcg@10", "p@5", "rbp@0.8"])
def test_gradients_are_finite_differences(gain: str) -> None:
    rng = np.random.default_rng(6)
    n = 50
    scores, labels, way = rng.normal(size=n), rng.integers(0, 5, n), rng.normal(size=n)

    def slope(h: float) -> float:
        ahead, behind = (soft_gain(scores + s * way, labels, gain=gain, sigma=0.5).value for s in (h, -h))
        return (ahead - behind) / (2 * h)

    found = soft_gain(scores, labels, gain=gain, sigma=0.5).gradient @ way
    assert found == pytest.approx((4 * slope(5e-4) - slope(1e-3)) / 3, rel=TOLERANCE["difference"])


lists = st.lists(st.floats(-5, 5), min_size=1, max_size=30)
sigmas = st.floats(-2, 2).map(lambda x: 10.0**x)


@given(lists, sigmas)
def test_rows_are_distributions_in_the_order_of_likelihood_ratios(scores: list[float], sigma: float) -> None:
    P = soft_rank_distribution(scores, sigma)
    assert P.min() >= 0
    assert_allclose(P.sum(axis=1), 1, rtol=1e-13)
    mean = P @ np.arange(1, len(scores) + 1)
    order = np.argsort(-np.asarray(scores), kind="stable")
    assert np.all(np.diff(mean[order]) >= -1e-12 * len(scores))


@given(lists, sigmas, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_a_shift_change_nothing(scores: list[float], sigma: float, random) -> None:
    x = np.round(scores, 6)  # so that a shift by 8 is exact to rounding
    labels = np.array([random.randint(0, 3) for _ in scores])
    plain = soft_gain(x, labels, sigma=sigma)
    rows = np.array(random.sample(range(len(x)), len(x)))
    moved = soft_gain(x[rows] + 8, labels[rows], sigma=sigma)
    # the shift rounds scores by 1e-15, which a small sigma magnifies
    tolerance = 1e-12 * max(1, 1 / sigma**2)
    assert moved.value == pytest.approx(plain.value, abs=tolerance)
    assert_allclose(moved.gradient, plain.gradient[rows], atol=tolerance / sigma)
    assert abs(plain.gradient.sum()) <= 1e-13 / sigma


@given(lists, sigmas, st.floats(0.01, 100))
def test_scores_and_sigma_have_one_unit(scores: list[float], sigma: float, unit: float) -> None:
    found = soft_rank_distribution(np.array(scores) * unit, sigma * unit)
    assert_allclose(found, soft_rank_distribution(scores, sigma), atol=1e-11)


def test_ties_share_their_ranks() -> None:
    P = soft_rank_distribution([1.0] * 5, sigma=0.1)
    assert_allclose(P, np.tile([1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16], (5, 1)), rtol=1e-15)
    r = soft_gain([1.0] * 5, [0, 2, 1, 0, 1], sigma=0.1)
    # a tie gets a gradient, up or down by what the document is worth beside the others
    worth = np.array([0, 3, 1, 0, 1]) - 1.0
    assert_allclose(r.gradient / r.gradient[1], worth / worth[1], atol=1e-14)
    assert r.gradient[1] > 0


def test_small_sigma_is_the_metric_and_large_sigma_the_binomial() -> None:
    rng = np.random.default_rng(7)
    scores, labels = rng.permutation(np.arange(12.0)), rng.integers(0, 4, 12)
    for gain in (NDCG(), NDCG(5), Precision(3), RBP(0.7)):
        L = reference.gain_matrix(labels, gain)
        sharp = soft_gain(scores, labels, gain=gain, sigma=0.01)
        ranks = np.argsort(np.argsort(-scores))
        assert sharp.value == pytest.approx(L[np.arange(12), ranks].sum(), rel=1e-14)
        assert_array_equal(sharp.gradient, 0)
        flat = soft_gain(scores, labels, gain=gain, sigma=1e9)
        binomial = np.array([math.comb(11, r) for r in range(12)]) / 2**11
        assert flat.value == pytest.approx((L @ binomial).sum(), rel=1e-7)


@pytest.mark.parametrize("sigma", [1e-300, 1e-200, 1e-30, 1.0, 1e30, 1e300])
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-300, 1.0, 1e100, 1.7e308])
def test_no_magnitude_of_scores_and_sigma_makes_nan(size: float, sigma: float, instruction_set: str) -> None:
    scores = size * np.array([1.0, -1.0, 0.5, 0.5, 0.0, -0.25, 1.0, 0.3, 0.1])
    P = soft_rank_distribution(scores, sigma)
    assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
    for gain in ("ndcg", "ndcg@3"):
        r = soft_gain(scores, np.arange(9) % 3, gain=gain, sigma=sigma)
        assert 0 < r.value < 1
        assert np.isfinite(r.gradient).all()


def test_documents_far_below_the_ranks_that_count() -> None:
    scores = np.concatenate([np.linspace(10, 0, 200), [-100.0]])
    labels = np.zeros(201)
    labels[-1] = 1
    r = soft_gain(scores, labels, gain="ndcg@10", sigma=0.5)
    assert r.value == 0
    assert_array_equal(r.gradient, 0)


def test_a_thousand_ties_keep_the_last_digits() -> None:
    P = soft_rank_distribution(np.zeros(1000))
    assert P[0, 0] == pytest.approx(0.5**999, rel=1e-10)
    assert_allclose(P.sum(axis=1), 1, rtol=1e-12)


def test_one_document_and_no_relevant_document() -> None:
    assert_array_equal(soft_rank_distribution([3.0]), [[1.0]])
    one = soft_gain([3.0], [2])
    assert (one.value, one.gradient.tolist()) == (1.0, [0.0])
    none = soft_gain([3.0, 1.0, 2.0], [0, 0, 0])
    assert (none.value, none.gradient.tolist()) == (0.0, [0.0, 0.0, 0.0])
    worthless = soft_gain([3.0, 1.0], [1, 1], gain=RankLinear(gain=np.sign, discount=np.zeros_like))
    assert (worthless.value, worthless.gradient.tolist()) == (0.0, [0.0, 0.0])


def several(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    qid = rng.integers(0, 40, 1500)  # in no order
    return rng.normal(size=1500), rng.integers(0, 4, 1500), qid


def test_queries_in_any_order_are_each_by_itself() -> None:
    scores, labels, qid = several()
    r = soft_gain(scores, labels, qid, gain="ndcg@5", sigma=0.4)
    assert len(r.per_query) == len(r.queries) == 40
    for q, value in zip(r.queries, r.per_query, strict=True):
        rows = qid == q
        alone = soft_gain(scores[rows], labels[rows], gain="ndcg@5", sigma=0.4)
        assert value == alone.value
        assert_allclose(r.gradient[rows], alone.gradient / 40, rtol=1e-12)
    assert r.value == pytest.approx(r.per_query.mean())


def test_weights_of_rows_and_queries() -> None:
    scores, labels, qid = several(1)
    rng = np.random.default_rng(2)
    rows, queries = rng.uniform(0, 2, 1500), rng.uniform(0, 2, 40)
    linear = RankLinear(gain=lambda r: r, discount=lambda k: 1 / k)
    r = soft_gain(scores, labels, qid, gain=linear, sample_weight=rows)
    by_label = soft_gain(scores, labels * rows, qid, gain=linear)
    assert_allclose(r.per_query, by_label.per_query, rtol=1e-13)
    assert_allclose(r.gradient, by_label.gradient, atol=1e-16)
    weighted = soft_gain(scores, labels, qid, query_weight=queries)
    plain = soft_gain(scores, labels, qid)
    assert_array_equal(weighted.per_query, plain.per_query)
    assert weighted.value == pytest.approx(np.average(plain.per_query, weights=queries))
    by_id = dict(zip(plain.queries.tolist(), queries * 40 / queries.sum(), strict=True))
    factors = np.array([by_id[q] for q in qid.tolist()])
    assert_allclose(weighted.gradient, plain.gradient * factors, atol=1e-16)


def test_the_bits_are_the_same_for_any_number_of_threads() -> None:
    scores, labels, qid = several(3)
    for gain in ("ndcg", "ndcg@3"):
        one, *others = (soft_gain(scores, labels, qid, gain=gain, n_threads=k) for k in (1, 2, 5, None))
        for other in others:
            assert_array_equal(other.gradient, one.gradient)
            assert_array_equal(other.per_query, one.per_query)


def test_float32_scores_are_taken_for_what_they_are() -> None:
    scores, labels, qid = several(4)
    small = scores.astype(np.float32)
    r = soft_gain(small, labels, qid)
    assert r.gradient.dtype == np.float64
    assert_array_equal(r.gradient, soft_gain(small.astype(np.float64), labels, qid).gradient)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([1.0, 2.0], [1, 0]), {"sigma": 0.0}, ValueError, "sigma must be finite and above 0; got 0.0"),
        (([1.0, 2.0], [1, 0]), {"sigma": -1}, ValueError, "sigma must be finite and above 0; got -1.0"),
        (([1.0, 2.0], [1, 0]), {"sigma": math.nan}, ValueError, "sigma must be finite"),
        (([1.0, 2.0], [1, 0]), {"sigma": 1e-301}, ValueError, "from 1e-300 to 1e300"),
        (([1.0, 2.0], [1, 0]), {"sigma": "wide"}, TypeError, "sigma must be a number above 0; got 'wide'"),
        (([1.0, 2.0], [1, 0]), {"sigma": True}, TypeError, "sigma must be a number"),
        (([[1.0], [2.0]], [1, 0]), {}, ValueError, r"scores must have the shape \(N,\)"),
        (([1.0, 2.0], [1]), {}, ValueError, "labels must have one value per row"),
        (([1.0, math.nan], [1, 0]), {}, ValueError, "scores must be finite; row 1"),
        (([1.0, 2.0], [1, -1]), {}, ValueError, "labels must be finite and not below 0; row 1"),
        (([1.0, 2.0], [1, 0], [1]), {}, ValueError, "qid must have one id per row"),
        (([], []), {}, ValueError, "at least one document"),
        (([1.0, 2.0], [1, 0]), {"gain": "ndgc"}, ValueError, "ndgc"),
    ],
)
def test_what_is_wrong_is_said(arguments, options, error, words) -> None:
    with pytest.raises(error, match=words):
        soft_gain(*arguments, **options)


@pytest.mark.parametrize(("scores", "sigma", "error"), [([1.0], 0, ValueError), ([[1.0]], 1, ValueError)])
def test_what_is_wrong_with_a_distribution_is_said(scores, sigma, error) -> None:
    with pytest.raises(error, match=r"scores must|sigma must"):
        soft_rank_distribution(scores, sigma)
