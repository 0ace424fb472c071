"""The pairwise logistic loss, against torch, differences, and mpmath where scores are huge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.baselines.pairwise_loss import PairwiseLogistic


def problem(sizes, seed=0, levels=3, weighted=False):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = offsets[-1]
    y, scores = rng.integers(0, levels, n).astype(float), rng.normal(size=n)
    if not weighted:
        return PairwiseLogistic(y, offsets), scores
    return PairwiseLogistic(y, offsets, rng.uniform(0, 2, n), rng.uniform(0, 2, len(sizes))), scores


def pairs_of(loss):
    """(i, j, weight) of every pair, by the definition."""
    for q, (first, last) in enumerate(zip(loss.offsets[:-1], loss.offsets[1:], strict=True)):
        for i in range(first, last):
            for j in range(first, last):
                if loss.y[i] > loss.y[j]:
                    w = 1.0 if loss.sample_weight is None else loss.sample_weight[i] * loss.sample_weight[j]
                    yield q, i, j, w * (1.0 if loss.query_weight is None else loss.query_weight[q])


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("scale", [1.0, 50.0, 400.0], ids=["near", "apart", "far apart"])
def test_values_and_derivatives_are_torchs(instruction_set, weighted, scale):
    torch = pytest.importorskip("torch")
    loss, scores = problem([1, 2, 3, 7, 8, 9, 40], weighted=weighted)
    scores = scores * scale
    pairs = list(pairs_of(loss))
    q, i, j = (torch.tensor([int(pair[at]) for pair in pairs]) for at in range(3))
    weight = torch.tensor([float(pair[3]) for pair in pairs], dtype=torch.float64)

    def total(s):
        return -(weight * torch.nn.functional.logsigmoid(s[i] - s[j])).sum()

    s = torch.tensor(scores, requires_grad=True)
    (slope,) = torch.autograd.grad(total(s), s)
    curvature = torch.autograd.functional.hessian(total, s.detach()).diagonal()
    gradient, hessian = loss.derivatives(scores)
    assert_allclose(gradient, slope.numpy(), rtol=1e-12, atol=1e-13)
    assert_allclose(hessian, curvature.numpy(), rtol=1e-12, atol=1e-13)
    by_query = torch.zeros(len(loss.offsets) - 1, dtype=torch.float64)
    log_p = torch.nn.functional.logsigmoid(s.detach()[i] - s.detach()[j])
    by_query.index_add_(0, q, -weight * log_p)
    assert_allclose(loss.values(scores), by_query.numpy(), rtol=1e-13, atol=0)


def test_the_gradient_is_that_of_differences_and_the_hessian_that_of_the_gradients(instruction_set):
    loss, scores = problem([5, 11, 3], weighted=True)
    gradient, hessian = loss.derivatives(scores)
    h = 1e-5
    for at in range(len(scores)):
        step = np.zeros_like(scores)
        step[at] = h
        slope = (loss.values(scores + step).sum() - loss.values(scores - step).sum()) / (2 * h)
        assert gradient[at] == pytest.approx(slope, rel=1e-7, abs=1e-9)
        bend = (loss.derivatives(scores + step)[0] - loss.derivatives(scores - step)[0])[at] / (2 * h)
        assert hessian[at] == pytest.approx(bend, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1.0, 40.0, 299.0, 301.0, 650.0, 5000.0, 1e300])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_pair_is_right_to_rounding_at_any_distance(instruction_set, gap, sign):
    from mpmath import mp, mpf

    loss = PairwiseLogistic(np.array([1.0, 0.0]), np.array([0, 2]))
    scores = np.array([sign * gap / 2, -sign * gap / 2])
    with mp.workdps(700):
        d = mpf(scores[0]) - mpf(scores[1])
        if abs(d) > 1e5:
            p, curvature, value = (0.0, 0.0, 0.0) if d > 0 else (1.0, 0.0, float(-d))
        else:
            exact = 1 / (1 + mp.exp(d))
            p, curvature, value = float(exact), float(exact * (1 - exact)), float(mp.log(1 + mp.exp(-d)))
    gradient, hessian = loss.derivatives(scores)
    tiny = 1e-300
    assert_allclose(gradient, [-p, p], rtol=2e-13, atol=tiny)
    assert_allclose(hessian, [curvature, curvature], rtol=2e-13, atol=tiny)
    assert_allclose(loss.values(scores), [value], rtol=1e-14, atol=tiny)


@pytest.mark.parametrize(
    ("labels", "pairs"),
    [([3.0], 0), ([1.0, 1.0, 1.0], 0), ([0.0, 0.0], 0), ([0.5, 0.25, 0.25], 2), ([2.0, 1.0, 0.0], 3)],
)
def test_few_documents_and_equal_labels(instruction_set, labels, pairs):
    loss = PairwiseLogistic(np.array(labels), np.array([0, len(labels)]))
    assert loss.n_pairs == pairs
    gradient, hessian = loss.derivatives(np.zeros(len(labels)))
    assert_allclose(loss.values(np.zeros(len(labels))), [pairs * np.log(2)], rtol=1e-15)
    assert_allclose(hessian.sum(), pairs / 2)
    if not pairs:
        assert_array_equal(gradient, 0)


@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(2, 5), st.floats(-100, 100))
@settings(max_examples=60, deadline=None)
def test_laws(seed, n, levels, shift):
    loss, scores = problem([n], seed, levels, weighted=True)
    gradient, hessian = loss.derivatives(scores)
    assert gradient.sum() == pytest.approx(0, abs=1e-12 * max(1, np.abs(gradient).sum()))
    assert (hessian >= 0).all()
    moved, _ = loss.derivatives(scores + shift)
    assert_allclose(moved, gradient, rtol=1e-9, atol=1e-12)
    order = np.random.default_rng(seed).permutation(n)
    shuffled = PairwiseLogistic(loss.y[order], loss.offsets, loss.sample_weight[order], loss.query_weight)
    assert_allclose(shuffled.derivatives(scores[order])[0], gradient[order], rtol=1e-9, atol=1e-12)


def test_a_row_of_weight_two_is_two_rows():
    loss, scores = problem([6, 9])
    times = np.random.default_rng(3).integers(0, 4, len(scores))
    sizes = np.add.reduceat(times, loss.offsets[:-1])
    repeated = PairwiseLogistic(np.repeat(loss.y, times), np.concatenate([[0], np.cumsum(sizes)]))
    weighted = PairwiseLogistic(loss.y, loss.offsets, times.astype(float))
    assert_allclose(weighted.values(scores), repeated.values(np.repeat(scores, times)), rtol=1e-13)
    ends = np.cumsum(times)
    for mine, of_copies in zip(
        weighted.derivatives(scores), repeated.derivatives(np.repeat(scores, times)), strict=True
    ):
        cumulated = np.concatenate([[0], np.cumsum(of_copies)])
        assert_allclose(mine, cumulated[ends] - cumulated[ends - times], rtol=1e-10, atol=1e-12)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    loss, scores = problem(np.random.default_rng(1).integers(1, 200, 100), weighted=True)
    alone = (*loss.derivatives(scores), loss.values(scores))
    for n_threads in (2, 3, 8):
        several = (*loss.derivatives(scores, n_threads=n_threads), loss.values(scores, n_threads=n_threads))
        for a, b in zip(alone, several, strict=True):
            assert_array_equal(a, b)


def test_a_query_of_many_documents():
    loss, scores = problem([20_000], levels=2)
    gradient, hessian = loss.derivatives(scores, n_threads=2)
    top, rest = scores[loss.y == 1], scores[loss.y == 0]
    some = np.flatnonzero(loss.y == 1)[:20]
    p = 1 / (1 + np.exp(scores[some][:, None] - rest))
    assert_allclose(gradient[some], -p.sum(axis=1), rtol=1e-11)
    assert_allclose(hessian[some], (p * (1 - p)).sum(axis=1), rtol=1e-11)
    assert loss.n_pairs == len(top) * len(rest)


def test_arrays_of_the_wrong_size_are_errors():
    loss, scores = problem([3, 4])
    with pytest.raises(TypeError, match="scores must have 7 elements; it has 6"):
        loss.derivatives(scores[:6])
    with pytest.raises(TypeError, match="scores must have 7 elements; it has 8"):
        loss.values(np.zeros(8))
