"""ListNet's loss against enumeration, torch, SciPy and mpmath; its threads, edges and errors."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, softmax

from sinkprop.baselines.listnet_loss import ListNetLoss, listnet_loss

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def by_tuples(scores, labels, k):
    """The loss and its gradient, by torch, from its definition: a sum over all ordered k-tuples."""
    torch = pytest.importorskip("torch", reason="the oracle of gradients")
    z = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    y = torch.tensor(labels, dtype=torch.float64)
    documents = range(len(z))
    loss = torch.zeros((), dtype=torch.float64)
    for chosen in itertools.permutations(documents, min(k, len(z))):
        log_p = log_q = 0.0
        for place, j in enumerate(chosen):
            left = [i for i in documents if i not in chosen[:place]]
            log_p = log_p + y[j] - torch.logsumexp(y[left], 0)
            log_q = log_q + z[j] - torch.logsumexp(z[left], 0)
        loss = loss - torch.exp(log_p) * log_q
    loss.backward()
    return loss.item(), z.grad.numpy()


def exactly(scores, labels, k):
    """The same in 400 digits, the gradient by what each stage draws: sum of (Q - P) over the stages."""
    n = len(scores)
    with mpmath.workdps(400):
        z, y = [mpmath.mpf(float(x)) for x in scores], [mpmath.mpf(float(x)) for x in labels]
        gradient = [mpmath.mpf(0)] * n

        def stage(left, weight, k):
            if k == 0 or len(left) < 2:
                return mpmath.mpf(0)
            top_z, top_y = max(z[i] for i in left), max(y[i] for i in left)
            u, t = ({i: mpmath.exp(x[i] - top) for i in left} for x, top in ((z, top_z), (y, top_y)))
            S, T = mpmath.fsum(u.values()), mpmath.fsum(t.values())
            loss = mpmath.mpf(0)
            for i in left:
                P = t[i] / T
                gradient[i] += weight * (u[i] / S - P)
                loss += P * (top_z - z[i] + mpmath.log(S))
                loss += P * stage([j for j in left if j != i], weight * P, k - 1)
            return loss

        value = stage(list(range(n)), mpmath.mpf(1), k)
        return float(value), np.array([float(g) for g in gradient])


def assert_equals(result: ListNetLoss, value, gradient, rtol=1e-13):
    assert result.value == pytest.approx(value, rel=rtol, abs=rtol)
    assert_allclose(result.gradient, gradient, rtol=0, atol=rtol)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("spread", [0.1, 1.0, 20.0])
def test_value_and_gradient_are_those_of_the_enumerated_loss(instruction_set, n, k, spread):
    rng = np.random.default_rng([n, k])
    scores, labels = spread * rng.normal(size=n), rng.integers(0, 4, n)
    assert_equals(listnet_loss(scores, labels, top_k=k), *by_tuples(scores, labels, k))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_all_places_are_the_cross_entropy_of_all_permutations(instruction_set, n):
    rng = np.random.default_rng(n)
    scores, labels = rng.normal(size=n), rng.integers(0, 3, n)
    expected = by_tuples(scores, labels, n)
    assert_equals(listnet_loss(scores, labels, top_k=n), *expected)
    assert_equals(listnet_loss(scores, labels, top_k=n + 3), *expected)
    assert_equals(listnet_loss(scores, labels, top_k=n - 1), *expected)  # the last place is no choice


def test_four_places(instruction_set):
    rng = np.random.default_rng(4)
    scores, labels = rng.normal(size=6), rng.integers(0, 3, 6)
    assert_equals(listnet_loss(scores, labels, top_k=4), *by_tuples(scores, labels, 4))


@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_the_first_place_is_scipys_cross_entropy(instruction_set, gain):
    rng = np.random.default_rng(1)
    sizes = [1, 7, 30, 2, 200]
    qid = np.repeat(list("abcde"), sizes)
    scores, labels = rng.normal(size=len(qid)) * 3, rng.integers(0, 5, len(qid))
    r = listnet_loss(scores, labels, qid, gain=gain)
    target = labels if gain == "linear" else 2.0**labels - 1
    losses, gradients = [], []
    for q in "abcde":
        P = softmax(target[qid == q])
        losses.append(-P @ log_softmax(scores[qid == q]))
        gradients.append((softmax(scores[qid == q]) - P) / 5)
    assert_allclose(r.per_query, losses, rtol=1e-13, atol=1e-15)
    assert r.value == pytest.approx(np.mean(losses), rel=1e-14)
    assert_allclose(r.gradient, np.concatenate(gradients), atol=1e-15)
    assert r.queries.tolist() == list("abcde")


HARD = {
    "far apart": ([5e299, 0.0, -4e299, 5.0], [0, 1, 2, 1]),
    "one far above, where it should be": ([1e300, 0.3, -0.2, 0.1], [800, 1, 0, 2]),
    "one far above in both, tied others": ([1e6, 0.0, 0.0, 0.0], [1e6, 0, 0, 1]),
    "one far above, where it should not": ([0.3, 1e5, -0.2, 0.1], [800, 1, 0, 2]),
    "target far apart": ([0.1, 0.5, -0.3, 0.2], [0, 1e4, 2e4, 3e4]),
    "a gap that exponentials survive": ([40.0, 0.0, -1.0, 0.5], [30, 1, 0, 2]),
    "far from 0": ([1e8 + 1, 1e8, 1e8 - 2, 1e8 + 0.5], [1, 0, 2, 1]),
    "all tied": ([0.7] * 5, [0, 1, 2, 1, 0]),
    "top tied": ([3.0, 3.0, 1.0, 0.0], [0, 2, 2, 1]),
    "tied far above": ([1e4, 1e4, 1.0, 0.0], [900, 900, 2, 1]),
    "no relevant document": ([0.3, -0.1, 2.0, 0.4], [0, 0, 0, 0]),
    "nearly right": ([60.0, 30.0, 0.0], [60, 30, 0]),
}


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("name", HARD)
def test_scores_of_any_size(instruction_set, name, k):
    scores, labels = HARD[name]
    assert_equals(listnet_loss(scores, labels, top_k=k), *exactly(scores, labels, k))


def test_differences_that_overflow_count_as_the_largest_that_do_not():
    for k in (1, 2, 3):
        r = listnet_loss([1.7e308, -1.7e308, 0.0, 1.0], [0, 1, 0, 1], [1, 1, 1, 2], top_k=k)
        assert np.isfinite(r.value)
        assert 1e299 < r.value < 1e301
        assert np.isfinite(r.gradient).all()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_target_of_a_query_without_relevant_documents_is_uniform(k):
    scores = np.array([0.5, -1.0, 0.25])
    assert_equals(listnet_loss(scores, [0, 0, 0], top_k=k), *by_tuples(scores, [3, 3, 3], k))
    even = listnet_loss(np.full(3, 0.5), [0, 0, 0], top_k=k)
    assert_allclose(even.value, np.log([3, 2])[: min(k, 2)].sum(), rtol=1e-15)
    assert_allclose(even.gradient, 0, atol=1e-16)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_document_has_no_loss(k):
    r = listnet_loss([3.0, 1e300, -7.0], [2, 0, 1], ["a", "b", "c"], top_k=k)
    assert_array_equal(r.per_query, 0)
    assert_array_equal(r.gradient, 0)


numbers = st.floats(-50, 50, allow_subnormal=False)


@given(st.lists(st.tuples(numbers, st.integers(0, 4)), min_size=1, max_size=12), st.integers(1, 3), numbers)
def test_laws(documents, k, shift):
    scores, labels = (np.array(x, dtype=float) for x in zip(*documents, strict=True))
    r = listnet_loss(scores, labels, top_k=k)
    # Gibbs: nothing is below the target's own entropy, where the gradient vanishes
    own = listnet_loss(labels, labels, top_k=k)
    assert r.value >= own.value - 1e-12
    assert_allclose(own.gradient, 0, atol=1e-14)
    # one score for all added changes nothing
    moved = listnet_loss(scores + shift, labels, top_k=k)
    assert_allclose(moved.value, r.value, rtol=1e-12, atol=1e-12)
    assert abs(r.gradient.sum()) < 1e-13
    # documents in another order
    order = np.argsort(np.sin(np.arange(len(scores)) * 7.0))
    permuted = listnet_loss(scores[order], labels[order], top_k=k)
    assert_allclose(permuted.value, r.value, rtol=1e-12, atol=1e-13)
    assert_allclose(permuted.gradient, r.gradient[order], atol=1e-13)


def many(n, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.integers(0, 4, n).astype(float), np.arange(n) // size


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(k):
    scores, labels, qid = many(20_000, 37)
    one, *others = (listnet_loss(scores, labels, qid, top_k=k, n_threads=t) for t in (1, 2, 5))
    for other in others:
        assert other.value == one.value
        assert other.gradient.tobytes() == one.gradient.tobytes()
        assert other.per_query.tobytes() == one.per_query.tobytes()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rows_in_any_order(k):
    scores, labels, qid = many(400, 23)
    r = listnet_loss(scores, labels, qid, top_k=k)
    order = np.random.default_rng(0).permutation(len(qid))
    mixed = listnet_loss(scores[order], labels[order], [f"q{q}" for q in qid[order]], top_k=k)
    assert_allclose(mixed.gradient, r.gradient[order], atol=1e-15)
    place = {q: i for i, q in enumerate(mixed.queries)}
    assert_allclose(mixed.per_query[[place[f"q{q}"] for q in r.queries]], r.per_query, rtol=1e-13)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_million_documents(k, size):
    scores, labels, qid = many(1_000_000, size)
    r = listnet_loss(scores, labels, qid, top_k=k)
    assert abs(r.gradient.sum()) < 1e-9
    one = qid == qid[-1]
    P, log_q = softmax(labels[one]), log_softmax(scores[one])
    first = -P @ log_q
    assert r.per_query[-1] == pytest.approx(first, rel=1e-11) if k == 1 else r.per_query[-1] > first
    if k == 2 and size == 10:
        value, gradient = by_tuples(scores[one], labels[one], 2)
        assert r.per_query[-1] == pytest.approx(value, rel=1e-12)
        assert_allclose(r.gradient[one] * len(r.queries), gradient, atol=1e-12)
    if k == 2 and size > 10:  # of so many, the second draw hardly differs from the first
        assert r.value == pytest.approx(2 * first, rel=1e-5)


def test_query_weights_make_a_weighted_mean():
    scores, labels, qid = many(60, 20)
    plain = listnet_loss(scores, labels, qid, top_k=2)
    weighted = listnet_loss(scores, labels, qid, top_k=2, query_weight={0: 1, 1: 0, 2: 3})
    assert weighted.value == pytest.approx((plain.per_query[0] + 3 * plain.per_query[2]) / 4, rel=1e-14)
    assert_array_equal(weighted.per_query, plain.per_query)
    assert_allclose(weighted.gradient, plain.gradient * np.repeat([3 / 4, 0, 9 / 4], 20), atol=1e-16)
    unsorted = np.argsort(np.arange(60) % 7, kind="stable")
    again = listnet_loss(
        scores[unsorted],
        labels[unsorted],
        qid[unsorted],
        top_k=2,
        query_weight=np.array([1.0, 0, 3])[qid[unsorted]],
    )
    assert_allclose(again.gradient, weighted.gradient[unsorted], atol=1e-16)


def test_a_k_that_would_take_too_long_is_an_error():
    scores, labels, qid = many(4000, 1000)
    with pytest.raises(ValueError, match=r"top_k = 4 .* 1000 documents.*smaller top_k"):
        listnet_loss(scores, labels, qid, top_k=4)
    few = listnet_loss(scores[:7], labels[:7], top_k=1000)  # nothing is left to draw after seven
    assert few.value == listnet_loss(scores[:7], labels[:7], top_k=7).value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [[1.0], [2.0]]}, "scores must have the shape"),
        ({"scores": [1.0, np.nan]}, "scores must be finite; row 1"),
        ({"scores": []}, "at least one document"),
        ({"labels": [1.0]}, "labels must have one value per row"),
        ({"labels": [1.0, -1.0]}, "labels must be finite and not below 0; row 1"),
        ({"qid": [1]}, "qid must have one id per row"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_k": 1.5}, "top_k must be a whole number"),
        ({"gain": "cubic"}, "gain must be 'linear' or 'exponential'"),
        ({"query_weight": [1.0, 2.0, 3.0]}, "query_weight must have one weight per query"),
        ({"n_threads": 0}, "n_threads must be at least 1"),
    ],
)
def test_errors(change, message):
    given_ = {"scores": [1.0, 2.0], "labels": [0.0, 1.0], "qid": [7, 7]} | change
    with pytest.raises(ValueError, match=message):
        listnet_loss(given_.pop("scores"), given_.pop("labels"), given_.pop("qid"), **given_)


def test_integers_and_lists_are_taken_and_kept():
    scores, labels = [3, 1, 2], (1, 0, 2)
    assert listnet_loss(scores, labels).value == listnet_loss(np.array([3.0, 1, 2]), [1.0, 0, 2]).value
    x = np.array([0.5, 0.25])
    listnet_loss(x, [1, 0], top_k=3)
    assert_array_equal(x, [0.5, 0.25])
