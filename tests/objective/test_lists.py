"""Short queries, which are processed together: the results of one do not depend on those beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from sinkprop import _native, reference
from sinkprop.data.queries import Groups, group_rows
from sinkprop.gbdt import Derivatives, TreeLoss
from sinkprop.objective.expected_gain import expected_gain, grouped_gain
from sinkprop.objective.gains import RankLinear, as_gain
from sinkprop.objective.native_terms import native_settings
from sinkprop.objective.relaxations import SmoothedIndicator

# sizes at which another algorithm takes over, on one instruction set or another, and some between
SIZES = [1, 2, 3, 8, 9, 10, 16, 17, 24, 25, 31, 32, 33, 50, 64, 65, 100, 128, 129, 200, 256, 257, 300]


@pytest.fixture
def alone() -> Iterator[None]:
    """Queries are processed one at a time."""
    _native.use_method("alone")
    yield
    _native.use_method("auto")


def drawn(rng: np.random.Generator, sizes: np.ndarray, spreads: tuple[float, float] = (0, 0)):
    """Scores and labels, some of them equal; the spread of each query is a power of 10 between two."""
    n = int(sizes.sum())
    scores = rng.normal(size=n) * np.repeat(10 ** rng.uniform(*spreads, size=len(sizes)), sizes)
    tied = rng.random(n) < 0.2
    scores[tied] = rng.integers(0, 2, tied.sum())
    return scores, rng.integers(0, 5, n).astype(np.float64)


def of_each(scores, labels, groups, relaxation, gain="ndcg@10", n_iter=5):
    """Value of each query, and the gradient of their sum."""
    settings = native_settings(relaxation, n_iter, 1e-6)
    return grouped_gain(scores, labels, groups, as_gain(gain), settings, None, 1, factor=1.0)


def check_each(scores, labels, sizes, relaxation, gain):
    """Compare each query of a batch with the reference."""
    values, gradient = of_each(scores, labels, Groups.of_sizes(sizes), relaxation, gain)
    end = np.cumsum(sizes)
    for q, size in enumerate(sizes):
        own = slice(end[q] - size, end[q])
        value, slopes = reference.expected_gain(scores[own], labels[own], gain, relaxation)
        assert values[q] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gradient[own], slopes, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sigma", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("accuracy", ["fast", "exact"])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_a_query_has_the_same_bits_alone_and_beside_others(kernel, accuracy, sigma, instruction_set):
    rng = np.random.default_rng(0)
    sizes = rng.permutation(np.concatenate([SIZES, rng.integers(1, 300, 30)]))
    # in one batch, scores are far apart in some queries and close together in others
    scores, labels = drawn(rng, sizes, (-2, 2))
    relaxation = SmoothedIndicator(sigma, kernel, accuracy=accuracy)
    rows = rng.permutation(len(scores))
    ids = np.repeat(np.arange(len(sizes)), sizes)[rows]
    groups = group_rows(ids, len(rows))
    values, gradient = of_each(scores[rows], labels[rows], groups, relaxation)
    for q, id_ in enumerate(groups.queries):
        own = ids == id_
        x, y = scores[rows][own], labels[rows][own]
        value, slopes = of_each(x, y, Groups.of_sizes(np.array([len(x)])), relaxation)
        assert value[0] == values[q], len(x)
        assert slopes.tobytes() == gradient[own].tobytes(), len(x)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 16, 17])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_batches_of_few_queries(kernel, count, instruction_set):
    # which fill none, some or all lanes of registers of each width, and of pairs of them
    rng = np.random.default_rng(1)
    sizes = rng.integers(20, 40, count)
    scores, labels = drawn(rng, sizes)
    relaxation = SmoothedIndicator(0.5, kernel)
    values, gradient = of_each(scores, labels, Groups.of_sizes(sizes), relaxation)
    begin = np.cumsum(sizes) - sizes
    for q in range(count):
        own = slice(begin[q], begin[q] + sizes[q])
        one, own_gradient = of_each(scores[own], labels[own], Groups.of_sizes(sizes[q : q + 1]), relaxation)
        assert one[0] == values[q]
        assert own_gradient.tobytes() == gradient[own].tobytes()
        value, slopes = reference.expected_gain(scores[own], labels[own], "ndcg@10", relaxation)
        assert values[q] == pytest.approx(value, abs=1e-6)
        np.testing.assert_allclose(gradient[own], slopes, rtol=0, atol=1e-5 * max(abs(slopes)))


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 2.5, 7])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.usefixtures("alone")
def test_together_and_alone_agree(kernel, n_iter):
    rng = np.random.default_rng(2)
    sizes = np.array([5, 12, 16, 17, 40, 90, 130, 250])
    scores, labels = drawn(rng, sizes)
    relaxation, groups = SmoothedIndicator(0.4, kernel), Groups.of_sizes(sizes)
    gain = "ndcg(discount=log2,gain=linear)"
    one_by_one = of_each(scores, labels, groups, relaxation, gain, n_iter)
    _native.use_method("auto")
    together = of_each(scores, labels, groups, relaxation, gain, n_iter)
    tolerance = 1e-11 if kernel == "laplace" else 2e-6
    np.testing.assert_allclose(together[0], one_by_one[0], rtol=tolerance)
    np.testing.assert_allclose(together[1], one_by_one[1], rtol=0, atol=tolerance * abs(one_by_one[1]).max())
    assert together[1].tobytes() != one_by_one[1].tobytes()  # they are not the same computation


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("n_iter", [0, 1, 2, 2.5])
@pytest.mark.parametrize("ties", ["none", "some", "all"])
@pytest.mark.usefixtures("alone")
def test_derivatives_of_trees_agree(ties, n_iter, noise, instruction_set):
    rng = np.random.default_rng(3)
    sizes = np.array([1, 4, 7, 8, 9, 20, 33, 64, 65, 100, 130, 256])
    scores, labels = drawn(rng, sizes)
    if ties == "none":
        scores = rng.normal(size=len(scores))
    elif ties == "all":
        scores[:] = 0.25
    loss = TreeLoss("ndcg@20", noise=noise, n_iter=n_iter, widths=(0.2, 1.0, 3.0))
    weights = rng.uniform(0.5, 2, len(sizes))
    derivatives = Derivatives(loss, labels, Groups.of_sizes(sizes), query_weight=weights)
    gradient, curvature = derivatives(scores)
    values = derivatives.values(scores)
    _native.use_method("auto")
    np.testing.assert_allclose(derivatives.values(scores), values, rtol=1e-12)
    together = derivatives(scores)
    np.testing.assert_allclose(together[0], gradient, rtol=0, atol=1e-6 * abs(gradient).max())
    np.testing.assert_allclose(together[1], curvature, rtol=0, atol=1e-6 * curvature.max())


def test_ties_of_one_query_do_not_change_another(instruction_set):
    rng = np.random.default_rng(4)
    sizes = np.full(9, 40)
    scores, labels = rng.normal(size=360), rng.integers(0, 4, 360).astype(np.float64)
    groups = Groups.of_sizes(sizes)
    derivatives = Derivatives(TreeLoss(noise=0), labels, groups)
    without = derivatives(scores)
    scores[50:60] = scores[50]
    with_ties = derivatives(scores)
    others = np.r_[0:40, 80:360]
    for a, b in zip(without, with_ties, strict=True):
        assert a[others].tobytes() == b[others].tobytes()
        assert (a[40:80] != b[40:80]).any()


def test_documents_of_a_tie_have_the_order_of_their_rows():
    # with the Laplace kernel, of two tied documents the first counts as above
    rng = np.random.default_rng(5)
    for n in (2, 3, 10, 23, 64, 130):
        scores = rng.integers(0, 3, n).astype(np.float64)
        labels = rng.integers(0, 3, n).astype(np.float64)
        labels[0] = 1
        relaxation = SmoothedIndicator(0.7, "laplace")
        found = expected_gain(scores, labels, relaxation=relaxation)
        value, gradient = reference.expected_gain(scores, labels, "ndcg", relaxation)
        assert found.value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found.gradient, gradient, rtol=0, atol=1e-12)


def test_labels_that_are_not_whole(instruction_set):
    rng = np.random.default_rng(6)
    scores, labels = rng.normal(size=120), rng.choice([0, 1, 2.5, 3, 0.25], 120)
    for gain in ("ndcg", RankLinear(gain=lambda r: 3 * r + 1, discount=lambda k: 1 / k)):
        for n in (6, 30, 120):
            relaxation = SmoothedIndicator(0.5, "laplace")
            found = expected_gain(scores[:n], labels[:n], gain=gain, relaxation=relaxation)
            value, gradient = reference.expected_gain(scores[:n], labels[:n], gain, relaxation)
            assert found.value == pytest.approx(value, rel=1e-12)
            np.testing.assert_allclose(
                found.gradient, gradient, rtol=0, atol=1e-12 * max(1, abs(gradient).max())
            )


def test_classes_of_documents_are_processed_alone_or_together():
    # one discount per label: a query whose labels are all equal has one class, others have several
    table = RankLinear(table=lambda r, k: (1 + r) / (r + k))
    rng = np.random.default_rng(7)
    sizes = np.array([12, 12, 30, 5, 12])
    scores, labels = rng.normal(size=71), rng.integers(0, 3, 71).astype(np.float64)
    labels[12:24] = 2
    labels[54:59] = 1
    relaxation = SmoothedIndicator(0.5, "laplace")
    check_each(scores, labels, sizes, relaxation, table)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_scores_that_differ_in_their_last_bits(kernel, instruction_set):
    # adjacent numbers of float64, an eighth apart
    rng = np.random.default_rng(8)
    for n in (2, 9, 10, 24, 60, 200):
        for low in (1e15, -1e15):
            scores = low + rng.integers(0, 16 * n, n) / 8
            scores[: n // 2] = low + rng.integers(0, 4, n // 2) / 8
            labels = rng.integers(0, 5, n).astype(np.float64)
            relaxation = SmoothedIndicator(0.4, kernel)
            found = expected_gain(scores, labels, relaxation=relaxation)
            value, gradient = reference.expected_gain(scores - low, labels, "ndcg", relaxation)
            assert found.value == pytest.approx(value, rel=1e-6)
            np.testing.assert_allclose(
                found.gradient, gradient, rtol=0, atol=1e-12 + 1e-5 * abs(gradient).max()
            )


def test_signs_of_zero_and_subnormal_scores(instruction_set):
    # documents with the scores 0 and -0 are tied, and have the order of their rows
    scores = np.array([0.0, -0.0, 5e-324, -0.0, 0.0, -5e-324, 1e300, -1e300, 0.0, -0.0])
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0], dtype=np.float64)
    relaxation = SmoothedIndicator(0.4, "laplace")
    found = expected_gain(scores, labels, relaxation=relaxation)
    value, gradient = reference.expected_gain(scores, labels, "ndcg", relaxation)
    assert found.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gain", ["ndcg", "ndcg(discount=log2,gain=linear)", "ndcg@30"])
def test_ideal_gains_of_few_and_of_many_labels(gain, instruction_set):
    # labels are counted or sorted: up to 5, up to 31, not whole, and all of them in one batch
    rng = np.random.default_rng(9)
    sizes = rng.integers(12, 100, 40)
    n = int(sizes.sum())
    most = np.repeat(rng.choice([0, 1, 4, 5, 6, 31], 40), sizes)
    labels = np.floor(rng.random(n) * (most + 1))
    labels[np.repeat(rng.random(40) < 0.2, sizes) & (rng.random(n) < 0.1)] = 1.5
    scores = rng.normal(size=n)
    relaxation = SmoothedIndicator(0.5, "laplace")
    check_each(scores, labels, sizes, relaxation, gain)
