"""Partitioned measures with a shared scale in linear time, beside the dense matrix."""

import time
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.special import logit, ndtri

from sinkprop import PartitionedMeasure, RankLinear, _native, expected_gain, expected_ranks, top_k_probability

FAMILIES = ("logit-logistic", "probit")
GAINS = ("ndcg", "p@3", "rbp@0.8", RankLinear(table=lambda r, k: np.sqrt(r) / (k + r)))


@contextmanager
def method(name):
    """Products by "sums", in linear time, or "direct", with the matrix."""
    _native.use_method(name)
    try:
        yield
    finally:
        _native.use_method("auto")


def problem(n, seed=0, spread=1.0):
    rng = np.random.default_rng([n, seed])
    return spread * rng.normal(size=n) + 3, rng.integers(0, 4, n)


def both(scores, labels, **arguments):
    found = []
    for name in ("sums", "direct"):
        with method(name):
            found.append(expected_gain(scores, labels, **arguments))
    return found


def assert_equal(one, two, accuracy=1e-9):
    np.testing.assert_allclose(one.per_query, two.per_query, rtol=accuracy, atol=accuracy)
    largest = np.abs(two.gradient).max()
    np.testing.assert_allclose(one.gradient, two.gradient, rtol=0, atol=accuracy * largest + 1e-13)


@pytest.mark.parametrize("n_iter", [0, 0.5, 1, 5, 5.5])
@pytest.mark.parametrize("sigma", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_gain_of_the_matrix(family, sigma, n_iter):
    for n in (2, 3, 17, 300):
        scores, labels = problem(n)
        relaxation = PartitionedMeasure(family, sigma=sigma)
        one, two = both(scores, labels, gain="ndcg@10", relaxation=relaxation, n_iter=n_iter)
        assert_equal(one, two)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "gain",
    ["ndcg", "p@3", "rbp@0.8", RankLinear(table=lambda r, k: np.sqrt(r) / (k + r))],
    ids=["a", "b", "c", "d"],
)
def test_gains_and_classes(family, gain):
    scores, labels = problem(120, seed=1)
    qid = np.random.default_rng(0).integers(0, 3, 120)
    one, two = both(scores, labels, qid=qid, gain=gain, relaxation=PartitionedMeasure(family, sigma=0.5))
    assert_equal(one, two)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.5])
@pytest.mark.parametrize("family", FAMILIES)
def test_epsilon(family, epsilon):
    scores, labels = problem(200, seed=2)
    relaxation = PartitionedMeasure(family, sigma=0.7)
    one, two = both(scores, labels, gain="ndcg", relaxation=relaxation, epsilon=epsilon)
    assert_equal(one, two, 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_ties_and_scores_far_out(family):
    labels = np.arange(60) % 3
    relaxation = PartitionedMeasure(family, sigma=0.5)
    for scores in (
        np.zeros(60),
        np.arange(60) // 7.0,
        np.r_[1e9, np.zeros(58), -1e9],
        np.linspace(-100, 100, 60),
    ):
        one, two = both(scores, labels, gain="ndcg", relaxation=relaxation)
        assert_equal(one, two, 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_the_matrix(family):
    scores, _ = problem(150, seed=3)
    qid = np.random.default_rng(1).integers(0, 2, 150)
    relaxation = PartitionedMeasure(family, sigma=0.4)
    found = {}
    for name in ("sums", "direct"):
        with method(name):
            ranks = expected_ranks(scores, qid, relaxation=relaxation)
            found[name] = ranks, top_k_probability(scores, 5, qid, relaxation=relaxation)
    np.testing.assert_allclose(found["sums"][0], found["direct"][0], atol=1e-8)
    np.testing.assert_allclose(found["sums"][1], found["direct"][1], atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_long_lists_use_the_sums_and_agree_with_the_matrix(family):
    scores, labels = problem(2500, seed=4)
    relaxation = PartitionedMeasure(family, sigma=0.5)
    automatic = expected_gain(scores, labels, gain="ndcg@10", relaxation=relaxation)
    one, two = both(scores, labels, gain="ndcg@10", relaxation=relaxation)
    np.testing.assert_array_equal(automatic.gradient, one.gradient)
    assert (one.gradient != two.gradient).any()
    assert_equal(one, two, 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_million_documents(family):
    n = 1_000_000  # whose matrix would take eight terabytes
    inverse = ndtri if family == "probit" else logit
    places = -inverse((np.arange(n) + 0.5) / n)  # the order of the rows is that of the ranks
    labels = np.zeros(n)
    labels[:10] = 1
    relaxation = PartitionedMeasure(family, sigma=0.05)
    found = expected_gain(places, labels, gain="ndcg@10", relaxation=relaxation, n_iter=1)
    assert np.isfinite(found.gradient).all()
    assert abs(found.gradient.sum()) < 1e-9 * np.abs(found.gradient).sum()
    ranks = expected_ranks(places, relaxation=relaxation, n_iter=2)
    assert np.corrcoef(ranks, np.arange(n))[0, 1] > 0.999
    np.testing.assert_allclose(top_k_probability(places, n, relaxation=relaxation, n_iter=1), 1, atol=1e-6)


def test_the_time_is_linear():
    relaxation, seconds = PartitionedMeasure("probit", sigma=0.5), []
    for n in (20_000, 160_000):
        scores, labels = problem(n)
        began = time.process_time()
        expected_gain(scores, labels, gain="ndcg", relaxation=relaxation, n_threads=1)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 30 * seconds[0]  # 8 times the documents; 64 times the entries of the matrix
