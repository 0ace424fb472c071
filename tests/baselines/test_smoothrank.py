"""SmoothRank: its objective against automatic differentiation through the matrix, and the estimator."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sinkprop import NDCG, SmoothedIndicator, expected_gain
from sinkprop.baselines import SmoothRankRanker

SHARP = {"n_iter": 0.5, "epsilon": 0.0}


def by_autograd(scores, labels, sigma, k):
    """Chapelle and Wu's A(w, sigma) in their own terms, through the dense matrix, by torch."""
    torch = pytest.importorskip("torch")
    f = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    order = torch.argsort(-f.detach(), stable=True)
    # h_ij: that document i is at rank j; their sigma is 2 sigma^2 here
    h = torch.exp(-((f[:, None] - f[order][None, :]) ** 2) / (2 * sigma**2))
    h = h / h.sum(dim=0)
    ranks = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    discounts = torch.where(ranks <= 2, 1.0, 1 / torch.log2(ranks.clamp(min=2)))
    discounts[k:] = 0
    gains = 2 ** torch.tensor(labels, dtype=torch.float64) - 1
    ideal = (torch.sort(gains, descending=True).values * discounts).sum()
    value = (gains @ h @ discounts) / ideal
    value.backward()
    return value.item(), f.grad.numpy()


@pytest.mark.parametrize("n", [2, 3, 17, 60, 300])
@pytest.mark.parametrize("sigma", [0.02, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("k", [5, 1000])
def test_value_and_gradient_equal_automatic_differentiation(n, sigma, k):
    rng = np.random.default_rng(n)
    scores, labels = rng.normal(size=n), rng.integers(0, 3, n).astype(float)
    labels[0] = 2
    value, gradient = by_autograd(scores, labels, sigma, k)
    gain = NDCG(min(k, n), discount="letor")
    found = expected_gain(
        scores, labels, gain=gain, relaxation=SmoothedIndicator(sigma, accuracy="exact"), **SHARP
    )
    assert found.value == pytest.approx(value, rel=1e-10)
    assert_allclose(found.gradient, gradient, rtol=0, atol=1e-9 * max(np.abs(gradient).max(), 0.01 / sigma))
    fast = expected_gain(scores, labels, gain=gain, relaxation=SmoothedIndicator(sigma), **SHARP)
    assert_allclose(fast.gradient, gradient, rtol=0, atol=1e-5 * max(np.abs(gradient).max(), 0.1 / sigma))


def test_the_ends_of_the_smoothing():
    rng = np.random.default_rng(0)
    scores, labels = rng.permutation(30.0 * np.arange(8)), rng.integers(0, 3, 8).astype(float)
    gain = NDCG(discount="letor")
    sharp = expected_gain(scores, labels, gain=gain, relaxation=SmoothedIndicator(0.1), **SHARP)
    order = np.argsort(-scores)
    discounts = gain.discounts(8)
    ideal = np.sort(2**labels - 1)[::-1] @ discounts
    assert sharp.value == pytest.approx((2 ** labels[order] - 1) @ discounts / ideal, rel=1e-12)
    flat = expected_gain(scores, labels, gain=gain, relaxation=SmoothedIndicator(1e6), **SHARP)
    assert flat.value == pytest.approx((2**labels - 1).mean() * discounts.sum() / ideal, rel=1e-6)


def test_a_million_documents():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=10**6)
    found = expected_gain(scores, rng.integers(0, 3, 10**6), relaxation=SmoothedIndicator(0.1), **SHARP)
    assert 0 < found.value < 1
    # a shift of all scores changes nothing
    assert abs(found.gradient.sum()) < 1e-9 * np.abs(found.gradient).sum()


def data(seed, n_queries=25):
    rng = np.random.default_rng(seed)
    X, qid = rng.normal(size=(12 * n_queries, 4)), np.repeat(np.arange(n_queries), 12)
    scores = X @ [1, 0.5, 0, 0] + rng.normal(size=len(X)) * (1 + 2 * (qid % 3))
    return X, np.digitize(scores, [0.5, 2]), qid


def test_the_stages_are_the_papers():
    X, y, qid = data(0)
    seen = []
    ranker = SmoothRankRanker(penalty=[1e-3], on_stage=seen.append, max_iter=3).fit(X, y, qid=qid)
    stages = ranker.fit_result_.stages
    assert len(seen) == len(stages)
    # 2 sigma^2 halves from 2^6, and the criterion may stop it early
    assert_allclose([2 * s.sigma**2 for s in stages[1:4]], [64, 32, 16])
    assert ranker.fit_result_.validated_on == "5 queries held out"
    assert ranker.n_iter == 0.5
    assert "n_iter" not in ranker.get_params()


def test_it_climbs_its_own_objective():
    X, y, qid = data(1)
    ranker = SmoothRankRanker(penalty=0.0, selection="validation", max_iter=50)
    ranker.fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid])
    by_sigma = {}
    for stage in ranker.fit_result_.stages:
        by_sigma.setdefault(stage.sigma, []).append(stage.expected_gain)
    first = ranker.fit_result_.stages[0]
    start, climbed = first.expected_gain, by_sigma[first.sigma][-1]
    assert climbed > start
