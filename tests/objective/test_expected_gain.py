"""The native expected gain against the reference, torch and its laws; its threads, edges and errors."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import GAINS, PROBLEMS, Problem, gain_name

import sinkprop
from sinkprop import _native, reference
from sinkprop.objective.expected_gain import ExpectedGain, expected_gain
from sinkprop.objective.gains import NDCG, RBP, Gain, Precision, RankLinear
from sinkprop.objective.rank_distribution import doubly_stochastic
from sinkprop.objective.relaxations import RELAXATIONS, PartitionedMeasure, Relaxation, SmoothedIndicator

# Gradients and values, relative to the largest entry of what they are held to; for the Gaussian kernel what
# SmoothedIndicator states. "rounding" and "quadrature", the error of the reference's beta distribution, are
# relative to the terms that a gradient sums: they are near 1 / width, whatever their sum is.
TOLERANCE = {
    "fast": 1e-5,
    "exact": 1e-9,
    "laplace": 1e-10,
    "logit-logistic": 1e-9,
    "probit": 1e-9,
    "beta": 1e-9,
    "law": 1e-9,
    "rounding": 1e-15,
    "quadrature": 1e-11,
}

SMOOTHED = ["fast", "exact", "laplace"]
PARTITIONED = ["logit-logistic", "probit", "beta"]
KINDS = SMOOTHED + PARTITIONED
ITERATIONS = [0, 1, 5]
BY_NAME = {problem.name: problem for problem in PROBLEMS}


def relax(kind: str, sigma: float = 1.0) -> Relaxation:
    if kind in PARTITIONED:
        return PartitionedMeasure(kind)
    kernel = "laplace" if kind == "laplace" else "gaussian"
    return SmoothedIndicator(sigma, kernel, accuracy="exact" if kind == "exact" else "fast")


def posed(problem: Problem, kind: str) -> np.ndarray:
    if kind in SMOOTHED:
        return problem.scores
    return problem.beta_theta if kind == "beta" else problem.theta


def width(problem: Problem, kind: str) -> float:
    """The scale on which scores matter: a gradient is a sum of terms of about 1 / width."""
    if kind in SMOOTHED:
        return problem.sigma
    return 1.0 if kind == "beta" else float(np.exp(problem.theta[:, 1]).min())


def terms_of(labels: np.ndarray, gain: str | Gain) -> float:
    """The size of what a value sums, at least 1."""
    return max(1.0, float(np.abs(reference.gain_matrix(labels, gain)).sum()))


def assert_gradient(
    actual: np.ndarray,
    desired: np.ndarray,
    kind: str,
    width: float,
    terms: float = 1.0,
    least: float = 0.0,
    where: str = "",
) -> None:
    """Agreement relative to the largest entry of `desired`, or to `least` / width if that is more."""
    scale = max(float(np.abs(desired).max()), least / width)
    floor = TOLERANCE["quadrature" if kind == "beta" else "rounding"]
    atol = TOLERANCE[kind] * scale + floor * terms / width
    np.testing.assert_allclose(actual, desired, rtol=0, atol=atol, err_msg=where)


def assert_value(actual: float, desired: float, kind: str, terms: float = 1.0, where: str = "") -> None:
    rounding = 10 * TOLERANCE["rounding"] * terms
    assert actual == pytest.approx(desired, rel=TOLERANCE[kind], abs=rounding), where


def dense(
    scores: np.ndarray,
    labels: np.ndarray,
    gain: str | Gain,
    kind: str,
    sigma: float = 1.0,
    *,
    n_iter: int = 5,
    epsilon: float = 1e-6,
) -> tuple[float, np.ndarray]:
    """The reference's result, computed once for every accuracy and instruction set."""
    relaxation = relax("fast" if kind == "exact" else kind, sigma)
    labels = np.asarray(labels, dtype=np.float64)
    return _dense(scores.tobytes(), scores.shape, labels.tobytes(), gain, relaxation, n_iter, epsilon)


@cache
def _dense(scores: bytes, shape: tuple[int, ...], labels: bytes, gain, relaxation, n_iter, epsilon):
    x = np.frombuffer(scores).reshape(shape)
    return reference.expected_gain(x, np.frombuffer(labels), gain, relaxation, n_iter=n_iter, epsilon=epsilon)


def same_bits(a: ExpectedGain, b: ExpectedGain) -> bool:
    return (
        a.value == b.value
        and a.per_query.tobytes() == b.per_query.tobytes()
        and a.gradient.tobytes() == b.gradient.tobytes()
    )


# ---- Every named problem


def check_named(problem: Problem, kind: str, n_iter: int, epsilon: float) -> None:
    scores = posed(problem, kind)
    setting = {"n_iter": n_iter, "epsilon": epsilon}
    expected = [dense(scores, problem.labels, gain, kind, problem.sigma, **setting) for gain in GAINS]
    sizes = [terms_of(problem.labels, gain) for gain in GAINS]
    # A gradient that all but vanishes for one gain is measured by what the others have.
    typical = max(float(np.abs(g).max()) / size for (_, g), size in zip(expected, sizes, strict=True))
    for gain, size, (value, gradient) in zip(GAINS, sizes, expected, strict=True):
        result = expected_gain(
            scores, problem.labels, gain=gain, relaxation=relax(kind, problem.sigma), **setting
        )
        assert result.gradient.shape == scores.shape
        np.testing.assert_array_equal(result.per_query, [result.value])
        assert_value(result.value, value, kind, size)
        unit = width(problem, kind)
        assert_gradient(result.gradient, gradient, kind, unit, size, least=size * typical * unit)


@pytest.mark.parametrize("n_iter", ITERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_named_problems(problem: Problem, kind: str, n_iter: int, instruction_set: str) -> None:
    check_named(problem, kind, n_iter, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_named_problems_without_epsilon(problem: Problem, kind: str, instruction_set: str) -> None:
    masses = reference.pre_sinkhorn(posed(problem, kind), relax(kind, problem.sigma)).sum(axis=0)
    if masses.min() > (1e-3 if kind == "beta" else 0):
        check_named(problem, kind, 5, 0.0)
    else:
        # A rank that no document can take: the reference has no answer, the native code leaves it empty. The
        # masses of a beta distribution are known to 1e-12 of the whole, not of what such a rank has.
        relaxation = relax(kind, problem.sigma)
        result = expected_gain(posed(problem, kind), problem.labels, relaxation=relaxation, epsilon=0)
        assert np.isfinite(result.value)
        assert np.isfinite(result.gradient).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3])
def test_large_epsilon(kind: str, epsilon: float) -> None:
    check_named(BY_NAME["some tied"], kind, 5, epsilon)


@pytest.mark.parametrize("family", ["logit-logistic", "probit"])
@pytest.mark.parametrize("log_s", [5.0, 10.0, 20.0, 40.0])
def test_flat_distributions_without_epsilon(family: str, log_s: float) -> None:
    # The inner bins hold little mass, all that the inner ranks are normalized by.
    theta = np.array([[0.0, log_s], [1.0, log_s], [-1.0, log_s - 1], [0.5, log_s]])
    relaxation = PartitionedMeasure(family)
    value, gradient = reference.expected_gain(theta, [0, 1, 2, 1], "ndcg", relaxation, epsilon=0)
    result = expected_gain(theta, [0, 1, 2, 1], gain="ndcg", relaxation=relaxation, epsilon=0)
    assert_value(result.value, value, family)
    # The derivatives in mu are e^-log_s of the others, but sum terms of order 1: the adjoint of an inner
    # entry of A is as large as the entry is small. Their rounding is that of 1, in the reference too.
    for parameter in (0, 1):
        assert_gradient(result.gradient[:, parameter], gradient[:, parameter], family, 1.0)


# ---- Problems that reach every native method: the whole matrix, a band, cells, sums of exponentials

SIZES = [1, 2, 3, 5, 8, 9, 10, 15, 16, 17, 24, 32, 33, 48, 49, 64, 65, 100, 257, 1000, 2000]
RATIOS = [1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 10.0, 1e3]
FEW_RATIOS = [1e-3, 1e-2, 0.3, 1e3]  # for long queries, whose dense reference is slow


@cache
def drawn(n: int, spread: str = "normal") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, len(spread)])
    scores = {
        "normal": lambda: rng.normal(size=n),
        "even": lambda: rng.permutation(n) / n,
        "exponential": lambda: rng.exponential(size=n),
        "heavy tails": lambda: rng.standard_cauchy(size=n),
    }[spread]()
    labels = rng.integers(0, 5, size=n).astype(float)
    labels[0] = 2
    return scores, labels


def check_drawn(n: int, spread: str, kind: str, gain: str = "ndcg", least: float = 0.0) -> None:
    scores, labels = drawn(n, spread)
    for ratio in RATIOS if n < 1000 else FEW_RATIOS:
        sigma = ratio * float(np.ptp(scores) or 1)
        value, gradient = dense(scores, labels, gain, kind, sigma)
        result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, sigma))
        where = f"sigma is {ratio} times the spread"
        assert_value(result.value, value, kind, where=where)
        assert_gradient(result.gradient, gradient, kind, sigma, least=least, where=where)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", SIZES)
def test_normal_scores(n: int, kind: str, instruction_set: str) -> None:
    check_drawn(n, "normal", kind)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", [12, 17, 33, 49, 65, 138, 300])
@pytest.mark.parametrize("spread", ["even", "exponential", "heavy tails"])
def test_other_spreads(spread: str, n: int, kind: str) -> None:
    check_drawn(n, spread, kind)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("gain", ["p@3", "ndcg@5", "rbp@0.5", "ndcg(discount=log2,gain=linear)@20"])
@pytest.mark.parametrize("n", [17, 40, 49, 100, 300])
def test_truncated_gains(n: int, gain: str, kind: str, instruction_set: str) -> None:
    # Where the first ranks are settled such a gain has next to no gradient at all, far less than the terms
    # that cancel in it; it is the error of those that an accuracy bounds.
    check_drawn(n, "normal", kind, gain, least=0.01)


@pytest.mark.parametrize("kind", SMOOTHED)
def test_outliers_beside_a_dense_core(kind: str) -> None:
    # An outlier's own gradient is nearly 0: it shows what the kernel's error adds up to over the core.
    core = np.random.default_rng(0).uniform(-0.5, 0.5, size=130)
    scores = np.concatenate([core, [6.7, -9.0, -12.5, -35.0, 15.5]])
    labels = np.random.default_rng(1).integers(0, 5, size=len(scores))
    _, gradient = dense(scores, labels, "ndcg", kind)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind))
    assert_gradient(result.gradient, gradient, kind, 1.0, least=0.1 if kind == "fast" else 0.0)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("sigma", [1e-3, 0.3, 2.0, 50.0])
@pytest.mark.parametrize(("n", "distinct"), [(30, 3), (90, 2), (500, 7), (600, 11), (700, 300)])
def test_heavy_ties(n: int, distinct: int, sigma: float, kind: str, instruction_set: str) -> None:
    rng = np.random.default_rng([n, distinct])
    scores, labels = rng.integers(0, distinct, size=n).astype(float), rng.integers(0, 3, size=n)
    value, gradient = dense(scores, labels, "ndcg", kind, sigma)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind, sigma))
    assert_value(result.value, value, kind)
    # Groups far apart have no gradient but rounding, and in the fast setting the error of the kernel.
    assert_gradient(result.gradient, gradient, kind, sigma, 10.0, least=0.01 if kind == "fast" else 0.0)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("apart", [5.0, 8.7, 9.2, 10.2, 12.0, 30.0, 1e4])
def test_clusters_apart(apart: float, kind: str, instruction_set: str) -> None:
    rng = np.random.default_rng(3)
    scores = rng.permutation(
        np.concatenate([c * apart + rng.random(m) for c, m in enumerate([90, 1, 60, 40])])
    )
    labels = rng.integers(0, 5, size=len(scores))
    value, gradient = dense(scores, labels, "ndcg", kind)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind))
    assert_value(result.value, value, kind)
    assert_gradient(result.gradient, gradient, kind, 1.0)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", [6, 30, 60, 400])
@pytest.mark.parametrize("offset", [1e9, -1e9])
def test_a_huge_common_offset(offset: float, n: int, kind: str, instruction_set: str) -> None:
    scores, labels = np.random.default_rng(n).normal(size=n) + offset, drawn(n)[1]
    value, gradient = dense(scores, labels, "ndcg", kind, 0.2)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind, 0.2))
    assert_value(result.value, value, kind)
    assert_gradient(result.gradient, gradient, kind, 0.2)


def adversary(name: str, n: int) -> np.ndarray:
    """Scores that buckets of equal width cannot spread."""
    rng = np.random.default_rng(n)
    if name == "exponential spread":
        return rng.choice([-1, 1], size=n) * 10.0 ** rng.uniform(-300, 300, size=n)
    if name == "exponential spread with ties":
        return rng.choice([-1, 1], size=n) * 10.0 ** rng.integers(-300, 300, size=n)
    if name == "all equal but one":
        return np.where(np.arange(n) == n // 2, 1e300, 0.25)
    if name == "two neighbors":
        return np.where(rng.random(n) < 0.5, 1.0, np.nextafter(1, 2))
    if name == "denormals":
        return rng.integers(-50, 50, size=n) * 5e-324
    if name == "denormals and one":
        return np.append(rng.integers(-50, 50, size=n - 1) * 5e-324, 1.0)
    if name == "signed zeros":
        return rng.choice([-0.0, 0.0], size=n)
    assert name == "largest differences"
    return rng.choice([-1.7e308, 1.7e308, 0.0, 1.0], size=n)


ADVERSARIES = [
    "exponential spread",
    "exponential spread with ties",
    "all equal but one",
    "two neighbors",
    "denormals",
    "denormals and one",
    "signed zeros",
    "largest differences",
]


def spread(name: str, n: int) -> np.ndarray:
    """Scores to sort, most of them in ways that rankers produce."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    scores = {
        "normal": x,
        "uniform": rng.random(n),
        "Cauchy": x / rng.permutation(x),
        "few distinct": rng.integers(0, 9, size=n).astype(float),
        "many ties": rng.integers(0, n, size=n) / 7,
        "sorted": np.sort(x)[::-1].copy(),
        "reversed": np.sort(x),
        "one outlier": np.append(x[1:], 1e300),
        "infinities": np.where(rng.random(n) < 0.2, rng.choice([-np.inf, np.inf], size=n), x),
        "geometric": 0.5 ** (np.arange(n) % 1100),
        "far clusters": rng.choice([-1e12, 1e12], size=n) + x,
        "neighbors beside an outlier": np.append(1 + rng.integers(0, 1 << 20, size=n - 1) * 2.0**-52, -1e9),
    }
    return scores[name] if name in scores else adversary(name, n)


SPREADS = ["normal", "uniform", "Cauchy", "few distinct", "many ties", "sorted", "reversed", "one outlier"]
SPREADS += ["infinities", "geometric", "far clusters", "neighbors beside an outlier", *ADVERSARIES]


def assert_sorted(scores: np.ndarray) -> None:
    order, ordered = np.empty(len(scores), np.int64), np.empty(len(scores))
    _native.sort_descending(scores, order, ordered)
    expected = np.argsort(-scores, kind="stable")
    np.testing.assert_array_equal(order, expected)
    assert ordered.tobytes() == scores[expected].tobytes()


@pytest.mark.parametrize(
    "n", [1, 2, 3, 7, 8, 9, 16, 17, 100, 255, 257, 1000, 1024, 1025, 4097, 16_384, 16_385, 30_000]
)
@pytest.mark.parametrize("name", SPREADS)
def test_sort_is_stable_and_descending(name: str, n: int, instruction_set: str) -> None:
    assert_sorted(spread(name, n))


@pytest.mark.parametrize("name", SPREADS)
def test_sort_of_a_long_list(name: str, instruction_set: str) -> None:
    assert_sorted(spread(name, 300_000))


def test_sort_of_every_short_length(instruction_set: str) -> None:
    rng = np.random.default_rng(0)
    for n in range(1, 300):
        assert_sorted(rng.normal(size=n))
        assert_sorted(rng.integers(0, 40, size=n) * 0.1)


@pytest.mark.parametrize("name", ["denormals", "denormals and one", "geometric", "normal"])
def test_sort_without_denormals(name: str, instruction_set: str) -> None:
    """A processor may be set to take denormal numbers for zeros, which are ties then."""
    torch = pytest.importorskip("torch")
    scores = spread(name, 3000)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such setting")
    try:
        order, ordered = np.empty(3000, np.int64), np.empty(3000)
        _native.sort_descending(scores, order, ordered)
    finally:
        torch.set_flush_denormal(False)
    zeroed = np.where(np.abs(scores) < np.finfo(float).tiny, 0.0, scores)
    expected = np.argsort(-zeroed, kind="stable")
    np.testing.assert_array_equal(order, expected)
    assert ordered.tobytes() == scores[expected].tobytes()


@pytest.mark.parametrize("n", [1, 5, 16, 17, 300, 1000, 20_000])
def test_sort_refuses_nan_wherever_it_is(n: int, instruction_set: str) -> None:
    for place in {0, n // 2, n - 1}:
        scores = np.random.default_rng(n).normal(size=n)
        scores[place] = np.nan
        with pytest.raises(ValueError, match="scores must not be NaN"):
            _native.sort_descending(scores, np.empty(n, np.int64), np.empty(n))


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", [20, 40, 500])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_adversarial_scores(name: str, n: int, kind: str) -> None:
    scores, labels = adversary(name, n), drawn(n)[1]
    value, gradient = dense(scores, labels, "ndcg", kind)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind))
    assert_value(result.value, value, kind)
    # Most of these have a gradient of 0: ties, or scores too far apart to matter to each other.
    assert_gradient(result.gradient, gradient, kind, 1.0, 10.0, least=0.01 if kind == "fast" else 0.0)


@pytest.mark.parametrize("family", PARTITIONED)
@pytest.mark.parametrize("epsilon", [1e-6, 0.0])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 60])
def test_random_partitioned_measures(n: int, epsilon: float, family: str, instruction_set: str) -> None:
    rng = np.random.default_rng(n)
    theta, labels = np.stack([2 * rng.normal(size=n), rng.normal(size=n)], axis=1), drawn(n)[1]
    relaxation = PartitionedMeasure(family)
    for gain in ("ndcg", GAINS[-1]):
        value, gradient = dense(theta, labels, gain, family, epsilon=epsilon)
        result = expected_gain(theta, labels, gain=gain, relaxation=relaxation, epsilon=epsilon)
        assert_value(result.value, value, family)
        assert_gradient(result.gradient, gradient, family, float(np.exp(theta[:, 1]).min()))


@pytest.mark.parametrize("family", ["logit-logistic", "probit"])
def test_a_long_query_of_a_partitioned_measure(family: str, instruction_set: str) -> None:
    n = 500
    rng = np.random.default_rng(n)
    theta = np.stack([2 * rng.normal(size=n), rng.normal(size=n)], axis=1)
    value, gradient = dense(theta, drawn(n)[1], "ndcg", family)
    result = expected_gain(theta, drawn(n)[1], gain="ndcg", relaxation=PartitionedMeasure(family))
    assert_value(result.value, value, family)
    assert_gradient(result.gradient, gradient, family, 1.0)


@pytest.mark.parametrize("kind", ["exact", "laplace"])
@pytest.mark.parametrize("n", [8, 40, 300])
def test_a_class_of_labels_for_every_document(n: int, kind: str) -> None:
    scores = drawn(n)[0]
    labels = np.random.default_rng(n).permutation(n).astype(float)
    gain = RankLinear(table=lambda r, k: np.cos(r * k) / k)
    value, gradient = reference.expected_gain(scores, labels, gain, relax(kind, 0.3))
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, 0.3))
    assert_value(result.value, value, kind)
    assert_gradient(result.gradient, gradient, kind, 0.3, n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_iter", [0.5, 1.5, 2, 3, 4.5, 20])
def test_other_numbers_of_iterations(n_iter: int, kind: str) -> None:
    check_named(BY_NAME["some tied" if kind == "beta" else "forty documents"], kind, n_iter, 1e-6)


# ---- Long queries


@pytest.mark.parametrize("sigma", [1e-6, 1e-4, 1e-2, 0.1, 1.0, 30.0])
def test_fast_against_exact_at_a_hundred_thousand(sigma: float) -> None:
    scores, labels = drawn(100_000)
    exact = expected_gain(scores, labels, relaxation=relax("exact", sigma))
    fast = expected_gain(scores, labels, relaxation=relax("fast", sigma))
    assert_value(fast.value, exact.value, "fast")
    assert_gradient(fast.gradient, exact.gradient, "fast", sigma)


@pytest.mark.parametrize("sigma", [1e-6, 1e-5, 0.5])
def test_a_million_documents(sigma: float) -> None:
    scores, labels = drawn(1_000_000)
    results = {
        kind: expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind, sigma)) for kind in SMOOTHED
    }
    for kind, result in results.items():
        g = result.gradient
        assert 0 < result.value < 1
        assert np.isfinite(g).all()
        assert np.abs(g).max() > 0
        # Shifting every score changes nothing.
        assert abs(g.sum()) <= TOLERANCE[kind] * np.abs(g).sum()
    assert_value(results["fast"].value, results["exact"].value, "fast")
    assert_gradient(results["fast"].gradient, results["exact"].gradient, "fast", sigma)


@pytest.mark.parametrize("kind", SMOOTHED)
def test_a_million_documents_against_the_reference(kind: str) -> None:
    # A thousand clusters of a thousand, too far apart to matter to each other: without epsilon each is a
    # problem of its own, with the discount of its own ranks.
    size, clusters, chosen = 1000, 1000, (0, 437, 999)
    rng = np.random.default_rng(6)
    scores = np.repeat(1e5 * np.arange(clusters)[::-1], size) + rng.random(size * clusters)
    labels = np.zeros((clusters, size))
    labels[list(chosen)] = rng.integers(1, 5, size=(len(chosen), size))
    place = rng.permutation(len(scores))
    gain = RankLinear(gain=np.square, discount=lambda k: 1 / np.log2(k + 1))
    relaxation = relax(kind, 0.1)
    result = expected_gain(scores[place], labels.ravel()[place], gain=gain, relaxation=relaxation, epsilon=0)
    gradient = np.empty_like(scores)
    gradient[place] = result.gradient
    total = 0.0
    for cluster in chosen:
        of_cluster = slice(cluster * size, (cluster + 1) * size)
        own = RankLinear(gain=np.square, discount=lambda k, c=cluster: 1 / np.log2(k + c * size + 1))
        value, expected = reference.expected_gain(
            scores[of_cluster], labels[cluster], own, relaxation, epsilon=0
        )
        total += value
        assert_gradient(gradient[of_cluster], expected, kind, 0.1, 1e3)
        gradient[of_cluster] = 0
    assert_value(result.value, total, kind)
    np.testing.assert_array_equal(gradient, 0)


# ---- Batches


def ragged(kind: str, *, copies: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and ids of consecutive queries: `copies` of each of 8 sizes."""
    rng = np.random.default_rng(seed)
    sizes = [1, 2, 5, 9, 12, 17, 23, 40] if kind in PARTITIONED else [1, 2, 9, 16, 40, 70, 150, 800]
    sizes = rng.permutation(np.repeat(sizes, copies))
    n = int(sizes.sum())
    scores = rng.normal(size=(n, 2)) if kind in PARTITIONED else rng.normal(size=n)
    return scores, rng.integers(0, 4, size=n).astype(float), np.repeat(np.arange(len(sizes)), sizes)


BATCH_GAINS = [NDCG(), NDCG(3), Precision(2), RBP(0.8), GAINS[-1]]


@pytest.mark.parametrize("gain", BATCH_GAINS, ids=gain_name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_queries_one_by_one(kind: str, gain: Gain, instruction_set: str) -> None:
    scores, labels, qid = ragged(kind)
    relaxation = relax(kind, 0.1)
    batch = expected_gain(scores, labels, qid, gain=gain, relaxation=relaxation)
    np.testing.assert_array_equal(batch.queries, np.unique(qid))
    count = len(batch.queries)
    assert count & (count - 1) == 0  # then the mean divides without rounding
    for q in batch.queries:
        rows = qid == q
        one = expected_gain(scores[rows], labels[rows], gain=gain, relaxation=relaxation)
        assert batch.per_query[q] == one.value
        np.testing.assert_array_equal(batch.gradient[rows], one.gradient / count)
    assert batch.value == pytest.approx(batch.per_query.mean(), rel=1e-15)


def as_ids(kind: str, codes: np.ndarray) -> np.ndarray | list:
    """Ids of one kind, one for each code, unequal in the order of the codes."""
    if kind == "ints":
        return (codes * 7919) % 1009 - 500
    if kind == "a list of ints":
        return ((codes * 7919) % 1009).tolist()
    if kind == "unsigned":
        return np.uint64(2**64 - 1) - codes.astype(np.uint64)
    if kind == "strings":
        return [f"query {c % 7}/{c}" for c in codes]
    if kind == "an array of strings":
        return np.array([f"query {c % 7}/{c}" for c in codes])
    if kind == "tuples":
        return [(int(c % 3), str(c)) for c in codes]
    if kind == "floats":
        return -codes / 8 + 1
    assert kind == "objects"
    makers = [
        int,
        str,
        lambda c: (int(c),),
        lambda c: frozenset([int(c)]),
        lambda c: c / 8,
    ]
    return [makers[c % 5](c) for c in codes]


@pytest.mark.parametrize(
    "ids",
    [
        "ints",
        "a list of ints",
        "unsigned",
        "strings",
        "an array of strings",
        "tuples",
        "floats",
        "objects",
    ],
)
@pytest.mark.parametrize("kind", ["fast", "laplace", "beta"])
def test_ids_of_any_kind_in_any_order(kind: str, ids: str) -> None:
    scores, labels, codes = ragged(kind, copies=2)
    for gain in (NDCG(), GAINS[-1]):
        expected = expected_gain(scores, labels, codes, gain=gain, relaxation=relax(kind, 0.1))
        # Queries interleaved, their rows in order, and queries in the opposite order; the smoothed indicator
        # sorts, so that for it any order of the rows gives the same bits.
        interleaved = np.empty_like(codes)
        interleaved[np.argsort(np.random.default_rng(1).permutation(codes), kind="stable")] = np.arange(
            len(codes)
        )
        orders = [interleaved, np.argsort(-codes, kind="stable")]
        if kind in SMOOTHED:
            orders.append(np.random.default_rng(2).permutation(len(codes)))
        for p in orders:
            qid = as_ids(ids, codes[p])
            result = expected_gain(scores[p], labels[p], qid, gain=gain, relaxation=relax(kind, 0.1))
            seen = list(dict.fromkeys(codes[p].tolist()))
            assert result.queries.tolist() == list(dict.fromkeys(list(qid)))
            np.testing.assert_array_equal(result.per_query, expected.per_query[seen])
            np.testing.assert_array_equal(result.gradient, expected.gradient[p])
            assert result.value == pytest.approx(expected.value, rel=1e-15)


def test_ties_keep_the_order_of_the_rows() -> None:
    # Two queries of tied documents, interleaved: the Laplace kernel counts the earlier row as above.
    relaxation = SmoothedIndicator(kernel="laplace")
    labels = np.array([0.0, 1, 1, 0, 2, 2])
    result = expected_gain(np.zeros(6), labels, list("abbaab"), gain="rbp", relaxation=relaxation)
    for q in "ab":
        rows = np.flatnonzero(np.array(list("abbaab")) == q)
        _, gradient = reference.expected_gain(np.zeros(3), labels[rows], "rbp", relaxation)
        np.testing.assert_allclose(result.gradient[rows], gradient / 2, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("kind", ["exact", "laplace", "logit-logistic", "probit"])
def test_torch_autograd_on_a_ragged_batch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    scores, labels, qid = ragged(kind, copies=1)
    x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    values = []
    for q in np.unique(qid):
        rows = np.flatnonzero(qid == q)
        xq, n = x[torch.from_numpy(rows)], len(rows)
        if kind in SMOOTHED:
            t = (xq[:, None] - torch.sort(xq, descending=True).values[None, :]) / 0.5
            A = torch.exp(-t.square() / 2) if kind == "exact" else torch.exp(-t.abs())
        else:
            u = torch.arange(1, n, dtype=torch.float64) / n
            logistic = kind == "logit-logistic"
            quantile = torch.logit(u) if logistic else torch.special.ndtri(u)
            z = (quantile[None, :] - xq[:, :1]) / xq[:, 1:].exp()
            F = torch.sigmoid(z) if logistic else torch.special.ndtr(z)
            F = torch.cat([torch.zeros(n, 1, dtype=F.dtype), F, torch.ones(n, 1, dtype=F.dtype)], dim=1)
            A = torch.diff(F)
        A = A + 1e-6
        for _ in range(5):
            A = A / A.sum(dim=0, keepdim=True)
            A = A / A.sum(dim=1, keepdim=True)
        G = 2.0 ** torch.tensor(labels[rows]) - 1
        D = 1 / torch.log2(torch.arange(1, n + 1, dtype=torch.float64).clamp(min=2))
        D[10:] = 0
        ideal = (torch.sort(G, descending=True).values * D).sum()
        values.append((A * torch.outer(G, D)).sum() / ideal if ideal > 0 else 0 * xq.sum())
    mean = torch.stack(values).mean()
    mean.backward()
    result = expected_gain(scores, labels, qid, gain="ndcg@10", relaxation=relax(kind, 0.5))
    assert_value(result.value, mean.item(), kind)
    np.testing.assert_allclose(result.per_query, [v.item() for v in values], rtol=1e-10)
    assert_gradient(result.gradient, x.grad.numpy(), kind, 0.5)


def test_inputs_of_any_layout_and_dtype() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(30, 2)).astype(np.float32)
    labels = rng.integers(0, 3, size=30)
    relaxation = PartitionedMeasure()
    expected = expected_gain(theta.astype(np.float64), labels.astype(np.float64), relaxation=relaxation)
    wide = np.repeat(theta, 2, axis=0)
    wide.flags.writeable = False
    for scores in (theta, np.asfortranarray(theta), wide[::2], theta.tolist()):
        for y in (labels, labels.astype(np.uint8), labels.tolist(), np.repeat(labels, 3)[::3]):
            assert same_bits(expected_gain(scores, y, relaxation=relaxation), expected)
    whole = expected_gain(np.arange(30.0)[::-1], labels > 0)
    assert same_bits(expected_gain(range(29, -1, -1), (labels > 0).tolist()), whole)


def test_inputs_are_left_alone() -> None:
    scores, labels, qid = ragged("fast", copies=1)
    before = scores.copy(), labels.copy(), qid.copy()
    result = expected_gain(scores, labels, qid)
    for array, copy in zip((scores, labels, qid), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert not np.shares_memory(result.gradient, scores)


# ---- Threads


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_whatever_the_number_of_threads(kind: str, instruction_set: str) -> None:
    scores, labels, qid = ragged(kind, copies=8)
    p = np.random.default_rng(2).permutation(len(labels))
    for gain in (NDCG(), GAINS[-1]):
        for x, y, q in ((scores, labels, qid), (scores[p], labels[p], qid[p])):
            one = expected_gain(x, y, q, gain=gain, relaxation=relax(kind, 0.1), n_threads=1)
            for n_threads in (1, 2, 3, 8, None):
                again = expected_gain(x, y, q, gain=gain, relaxation=relax(kind, 0.1), n_threads=n_threads)
                assert same_bits(again, one)


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_on_repeated_calls(kind: str) -> None:
    # What other calls left in the buffers of the thread does not matter.
    problem = BY_NAME["forty documents"]

    def call() -> ExpectedGain:
        return expected_gain(posed(problem, kind), problem.labels, relaxation=relax(kind, 0.3))

    first = call()
    for other in KINDS:
        scores, labels, qid = ragged(other, copies=1)
        for n_iter in (0, 9):
            expected_gain(scores, labels, qid, gain=GAINS[-1], relaxation=relax(other), n_iter=n_iter)
            assert same_bits(call(), first)


def test_number_of_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels, qid = ragged("fast", copies=8)
    expected = expected_gain(scores, labels, qid, n_threads=1)
    monkeypatch.setenv("SINKPROP_NUM_THREADS", "3")
    assert same_bits(expected_gain(scores, labels, qid), expected)
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("SINKPROP_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match=r"^SINKPROP_NUM_THREADS must be"):
            expected_gain(scores, labels, qid)


def test_the_interpreter_lock_is_released() -> None:
    scores, labels = drawn(1_000_000)
    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    per_query, gradient = np.empty(1), np.empty_like(scores)
    gains, settings = (labels, False, None, np.ones((1, len(scores))), False), (0, 1e-3, True, 10, 1e-6, 0.0)
    arguments = (np.array([0, len(scores)]), None, gains, settings, 1)
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=tick)
    # From here on a thread runs only while another waits or has released the lock: never is it taken away.
    sys.setswitchinterval(1e3)
    try:
        thread.start()
        progress = 0
        for _ in range(20):  # one call is enough unless the machine is very busy
            before = ticks
            _native.expected_gain(scores, *arguments, per_query, gradient)
            progress = ticks - before
            if progress:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert progress > 0


def test_calls_from_several_threads_at_once() -> None:
    problems = [(kind, *ragged(kind, copies=4, seed=seed)) for seed in range(3) for kind in KINDS]

    def call(problem: tuple, n_threads: int) -> ExpectedGain:
        kind, scores, labels, qid = problem
        relaxation = relax(kind, 0.1)
        return expected_gain(scores, labels, qid, gain=GAINS[-1], relaxation=relaxation, n_threads=n_threads)

    alone = [call(problem, 1) for problem in problems]
    with ThreadPoolExecutor(6) as pool:
        for n_threads in (2, 3, 8):
            for a, b in zip(pool.map(call, problems, [n_threads] * len(problems)), alone, strict=True):
                assert same_bits(a, b)


def run_program(program: str) -> subprocess.CompletedProcess:
    """Run Python code after that of `call`, which calls expected_gain on 90,000 documents."""
    start = """
import os, signal, sys, threading, time
import numpy as np
from sinkprop import expected_gain
scores, qid = np.random.default_rng(0).normal(size=90_000), np.repeat(np.arange(9000), 10)
call = lambda n_threads: expected_gain(scores, qid % 4, qid, n_threads=n_threads)
"""
    return subprocess.run(
        [sys.executable, "-c", start + program], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_threads_are_used_again_and_sleep_between_calls() -> None:
    done = run_program("""
def tasks():
    return set(os.listdir("/proc/self/task"))

def status(task, name):
    with open(f"/proc/self/task/{task}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name))

# a sanitizer starts a thread of its own with the first one
thread = threading.Thread(target=call, args=(1,))
thread.start()
thread.join()
before = tasks()
for n_threads in (1, 2, 4):
    call(n_threads)
    print(len(tasks() - before))
own = tasks() - before
for i in range(100):
    call(2 + i % 3)
print(tasks() - before == own)
for _ in range(1000):  # a thread may be on its way to sleep
    if all(status(task, "State") == "S" for task in own):
        break
    time.sleep(0.01)
print({status(task, "State") for task in own})
# Ctrl-C is left to the threads of the program, which may have blocked it
print(all(int(status(task, "SigBlk"), 16) >> signal.SIGINT - 1 & 1 for task in own))
""")
    assert (done.stdout.splitlines(), done.stderr) == (["0", "1", "3", "True", "{'S'}", "True"], "")


@pytest.mark.parametrize(
    "end",
    [
        "call(4)",
        "call(4); sys.exit()",
        "threading.Thread(target=lambda: [call(4) for _ in range(20)]).start(); call(3)",
    ],
)
def test_a_process_may_end_right_after_a_call(end: str) -> None:
    done = run_program(end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the modes have other numbers"
)
def test_threads_round_as_their_caller_does() -> None:
    # XLA calls from threads that round subnormal numbers to zero; a mode of rounding is easier to set here.
    done = run_program("""
import ctypes, ctypes.util
set_rounding = ctypes.CDLL(ctypes.util.find_library("m")).fesetround
nearest, upward = 0, 0x800

def bits(rounding, n_threads):
    set_rounding(rounding)
    gradient = call(n_threads).gradient.tobytes()
    set_rounding(nearest)
    return gradient

found = [[bits(rounding, n_threads) for n_threads in (4, 1)] for rounding in (nearest, upward, nearest)]
print([one == other for one, other in found], found[0] == found[1], found[0] == found[2])
""")
    assert (done.stdout, done.stderr) == ("[True, True, True] False True\n", "")


def call_after_fork(connection: multiprocessing.connection.Connection, n_threads: int) -> None:
    scores, labels, qid = ragged("fast", copies=8)
    result = expected_gain(scores, labels, qid, n_threads=n_threads)
    connection.send((result.value, result.gradient.tobytes()))


def assert_forked_process_finds(expected: ExpectedGain, n_threads: int) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=call_after_fork, args=(sender, n_threads))
    child.start()
    sender.close()
    try:
        assert receiver.poll(60), "the child hangs, or died without an answer"
        assert receiver.recv() == (expected.value, expected.gradient.tobytes())
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()


def forks(test: Callable) -> Callable:
    """Mark a test that forks this process, which has threads."""
    needs_fork = pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork"
    )
    # Since Python 3.12, a fork of a process with threads warns. The threads of native code are what is tested
    # here, and those of other libraries do not matter.
    quiet = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    return needs_fork(quiet(test))


@forks
@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_forked_process_can_call(n_threads: int) -> None:
    scores, labels, qid = ragged("fast", copies=8)
    here = expected_gain(scores, labels, qid, n_threads=4)
    for _ in range(3):
        assert_forked_process_finds(here, n_threads)
        assert same_bits(expected_gain(scores, labels, qid, n_threads=4), here)


@forks
def test_a_process_forked_during_calls_can_call() -> None:
    scores, labels, qid = ragged("fast", copies=8)
    here, stop = expected_gain(scores, labels, qid, n_threads=4), threading.Event()

    def keep_calling() -> bool:
        same = True
        while not stop.is_set():
            same &= same_bits(expected_gain(scores, labels, qid, n_threads=3), here)
        return same

    with ThreadPoolExecutor(2) as pool:
        callers = [pool.submit(keep_calling) for _ in range(2)]
        try:
            for _ in range(10):
                assert_forked_process_finds(here, 4)
        finally:
            stop.set()
        assert all(caller.result() for caller in callers)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited by Linux's rlimit")
def test_too_little_memory_is_a_memory_error() -> None:
    program = """
import resource
import numpy as np
import sinkprop
from sinkprop import expected_gain
small = expected_gain([0.1, 0.3, 0.2], [1, 0, 2])
many, qid = np.arange(6000.0), np.repeat(np.arange(60), 100)
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for scores, qid, n_threads in (([0.1, 0.3], None, 1), (many, qid, 2), (many, None, 1)):
    for relaxation in (sinkprop.SmoothedIndicator(1e-3), sinkprop.SmoothedIndicator(1, "laplace")):
        try:
            expected_gain(scores, np.ones(len(scores)), qid, relaxation=relaxation, n_iter=10**8,
                          n_threads=n_threads)
        except MemoryError:
            print("MemoryError")
again = expected_gain([0.1, 0.3, 0.2], [1, 0, 2])
assert again.value == small.value and (again.gradient == small.gradient).all()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["MemoryError"] * 6, "")


# ---- Defined results


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", [0.0, 1e300, -1e-310])
def test_one_document(score: float, kind: str) -> None:
    scores = np.full((1, 2), score) if kind in PARTITIONED else np.array([score])
    for label, worth in ((2, 1.0), (0, 0.0)):
        result = expected_gain(scores, [label], gain="ndcg", relaxation=relax(kind))
        assert result.value == pytest.approx(worth, rel=1e-14)
        np.testing.assert_array_equal(result.gradient, np.zeros_like(scores))
    assert expected_gain(scores, [1], gain="p@4", relaxation=relax(kind)).value == pytest.approx(1 / 4)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_without_a_relevant_document_count_as_zero(kind: str) -> None:
    scores, labels, qid = ragged(kind)
    empty = qid % 2 == 1
    labels = np.where(empty, 0, labels + 1)
    for gain in ("ndcg", "ndcg@3", "p@3", "rbp"):
        result = expected_gain(scores, labels, qid, gain=gain, relaxation=relax(kind))
        np.testing.assert_array_equal(result.per_query[1::2], 0)
        assert (result.per_query[::2] > 0).all()
        np.testing.assert_array_equal(result.gradient[empty], 0)
        assert np.abs(result.gradient[~empty]).max() > 0
        assert result.value == pytest.approx(result.per_query[::2].sum() / len(result.per_query))


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", [3, 40, 300])
def test_equal_labels_leave_nothing_to_gain(n: int, kind: str) -> None:
    # Once the columns too sum to 1, every ranking is worth the same.
    scores = drawn(n)[0]
    result = expected_gain(scores, np.full(n, 2.0), gain="ndcg", relaxation=relax(kind), n_iter=500)
    assert result.value == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(result.gradient, 0, atol=1e-6)


@pytest.mark.parametrize("accuracy", ["fast", "exact"])
@pytest.mark.parametrize("score", [0.0, -3.7, 1e9, 1e-310])
@pytest.mark.parametrize("n", [2, 5, 20, 40, 60, 1000])
def test_tied_scores_have_no_gaussian_gradient(n: int, score: float, accuracy: str) -> None:
    scores, labels = np.full(n, score), drawn(n)[1]
    for sigma in (1e-300, 1e-3, 1.0, 1e300):
        for gain in (NDCG(), NDCG(3), RBP()):
            result = expected_gain(scores, labels, gain=gain, relaxation=relax(accuracy, sigma))
            # Every document is at every rank with the same probability.
            mean = reference.gain_matrix(labels, gain).sum() / n
            assert result.value == pytest.approx(mean, rel=1e-12)
            np.testing.assert_allclose(result.gradient, 0, atol=TOLERANCE["rounding"] / sigma)


@pytest.mark.parametrize("n", [2, 9, 10, 40, 300])
def test_laplace_parts_tied_documents(n: int, instruction_set: str) -> None:
    labels = np.zeros(n)
    labels[-1] = 1
    relaxation = SmoothedIndicator(2.0, "laplace")
    result = expected_gain(np.full(n, 0.7), labels, gain="rbp", relaxation=relaxation)
    _, gradient = reference.expected_gain(np.full(n, 0.7), labels, "rbp", relaxation)
    assert_gradient(result.gradient, gradient, "laplace", 2.0)
    assert result.gradient[-1] > 0 > result.gradient[0]


def test_two_tied_documents_by_hand() -> None:
    # A = [[1, q], [q, 1]] with q = exp(-d / sigma) puts the upper one first with probability 1 / (1 + q),
    # whose slope at d = 0 is 1 / (4 sigma).
    relaxation = SmoothedIndicator(0.5, "laplace")
    result = expected_gain([3.0, 3.0], [0, 1], gain="p@1", relaxation=relaxation, epsilon=0)
    assert result.value == pytest.approx(1 / 2, rel=1e-15)
    np.testing.assert_allclose(result.gradient, [-1 / 4 / 0.5, 1 / 4 / 0.5], rtol=1e-14)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("n", [2, 5, 20, 40, 200, 5000])
def test_extreme_sigma(n: int, kind: str, instruction_set: str) -> None:
    normal, labels = drawn(n)
    for sigma in (1e-300, 1e-30, 1e30, 1e300):
        for scores in (normal, np.round(normal, 1), 1e300 * normal, 1e-300 * normal):
            result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind, sigma))
            assert 0 <= result.value <= 1 + TOLERANCE[kind]
            assert np.isfinite(result.gradient).all()


@pytest.mark.parametrize("kind", SMOOTHED)
def test_huge_sigma_makes_every_ranking_equally_likely(kind: str) -> None:
    scores, labels = drawn(100)
    result = expected_gain(scores, labels, gain="ndcg", relaxation=relax(kind, 1e300))
    assert result.value == pytest.approx(reference.gain_matrix(labels, "ndcg").sum() / 100, rel=1e-12)


EXTREMES = [0.0, 30.0, -30.0, 1e3, -1e3, 1e300, -1e300]


@pytest.mark.parametrize("family", PARTITIONED)
@pytest.mark.parametrize("epsilon", [1e-6, 0.0])
@pytest.mark.parametrize("n", [2, 3, 8, 49])
def test_extreme_parameters_of_a_partitioned_measure(
    n: int, epsilon: float, family: str, instruction_set: str
) -> None:
    pairs = np.array([(x, y) for x in EXTREMES for y in EXTREMES])
    rng = np.random.default_rng(n)
    labels = drawn(n)[1]
    queries = [np.tile(pair, (n, 1)) for pair in pairs] + [rng.permutation(pairs)[:n] for _ in range(50)]
    for theta in queries:
        result = expected_gain(
            theta, labels, gain="ndcg", relaxation=PartitionedMeasure(family), epsilon=epsilon
        )
        assert np.isfinite(result.value)
        assert np.isfinite(result.gradient).all()
        if epsilon:
            assert 0 <= result.value <= 1.5  # columns need not sum to 1 yet


def test_extreme_labels() -> None:
    # The largest and the smallest that a gain takes: a query's value does not depend on the labels' scale.
    scores = np.array([0.0, 1.0, 0.5, 0.2])
    linear = NDCG(gain="linear")
    for kind in SMOOTHED:
        expected = expected_gain(scores, [1, 0, 0, 0], gain=linear, relaxation=relax(kind))
        for label in (2.0**53, 1e9, 1e-200, 1e-300, 1e-307, 1e-309, 5e-324):
            result = expected_gain(scores, [label, 0, 0, 0], gain=linear, relaxation=relax(kind))
            assert result.value == pytest.approx(expected.value, rel=1e-9), label
            np.testing.assert_allclose(result.gradient, expected.gradient, rtol=1e-9, err_msg=str(label))


# ---- Laws

# multiples of 1/8, so that shifts are exact
distinct_scores = st.lists(st.integers(-200, 200), min_size=1, max_size=70, unique=True).map(
    lambda s: np.array(s) / 8
)
score_lists = st.lists(st.integers(-60, 60), min_size=1, max_size=70).map(lambda s: np.array(s) / 8)
sigmas = st.sampled_from([0.01, 0.1, 0.5, 2.0, 20.0])
smoothed = st.sampled_from(SMOOTHED)
gains = st.sampled_from(GAINS)
seeds = st.integers(0, 99)


def labels_for(scores: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, size=len(scores)).astype(float)


@given(distinct_scores, sigmas, smoothed, gains, seeds, st.randoms())
def test_permuting_rows_permutes_the_gradient(scores, sigma, kind, gain, seed, random) -> None:
    p = random.sample(range(len(scores)), len(scores))
    labels = labels_for(scores, seed)
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, sigma))
    permuted = expected_gain(scores[p], labels[p], gain=gain, relaxation=relax(kind, sigma))
    terms = terms_of(labels, gain)
    assert_value(permuted.value, result.value, "law", terms)
    assert_gradient(permuted.gradient, result.gradient[p], "law", sigma, terms)


@given(score_lists, sigmas, smoothed, gains, seeds, st.integers(-(2**30), 2**30))
def test_shifting_all_scores_changes_nothing(scores, sigma, kind, gain, seed, shift) -> None:
    labels = labels_for(scores, seed)
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, sigma))
    shifted = expected_gain(scores + shift, labels, gain=gain, relaxation=relax(kind, sigma))
    terms = terms_of(labels, gain)
    assert_value(shifted.value, result.value, "law", terms)
    assert_gradient(shifted.gradient, result.gradient, "law", sigma, terms)
    assert (
        abs(result.gradient.sum()) <= TOLERANCE[kind] * np.abs(result.gradient).sum() + 1e-14 * terms / sigma
    )


@given(score_lists, sigmas, smoothed, gains, seeds, st.floats(1e-6, 1e6))
def test_scaling_scores_and_sigma_scales_the_gradient(scores, sigma, kind, gain, seed, factor) -> None:
    labels = labels_for(scores, seed)
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, sigma))
    scaled = expected_gain(scores * factor, labels, gain=gain, relaxation=relax(kind, sigma * factor))
    terms = terms_of(labels, gain)
    assert_value(scaled.value, result.value, "law", terms)
    assert_gradient(scaled.gradient * factor, result.gradient, "law", sigma, 10 * terms)


@given(distinct_scores, smoothed, gains, seeds)
def test_small_sigma_gives_the_hard_metric(scores, kind, gain, seed) -> None:
    # Scores are at least 1/8 apart, 40 times sigma.
    labels = labels_for(scores, seed)
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, 1 / 320), epsilon=0)
    terms = terms_of(labels, gain)
    assert result.value == pytest.approx(
        reference.hard_gain(np.argsort(-scores), labels, gain), abs=1e-14 * terms
    )
    np.testing.assert_allclose(result.gradient, 0, atol=1e-12 * terms)


@given(score_lists, sigmas, smoothed, st.sampled_from([g for g in GAINS if g.normalized]), seeds)
def test_a_normalized_value_lies_between_0_and_1(scores, sigma, kind, gain, seed) -> None:
    # Above 1 only by what the columns of Pi, incompletely normalized, sum to above 1.
    labels = labels_for(scores, seed)
    result = expected_gain(scores, labels, gain=gain, relaxation=relax(kind, sigma))
    columns = doubly_stochastic(scores, relaxation=relax(kind, sigma)).sum(axis=0)
    assert 0 <= result.value <= max(1, columns.max()) + TOLERANCE[kind]


@given(st.integers(1, 12), st.sampled_from(PARTITIONED), gains, seeds, st.randoms())
def test_permuting_rows_of_a_partitioned_measure(n, family, gain, seed, random) -> None:
    p = random.sample(range(n), n)
    rng = np.random.default_rng(seed)
    theta, labels = rng.normal(size=(n, 2)), rng.integers(0, 4, size=n).astype(float)
    result = expected_gain(theta, labels, gain=gain, relaxation=PartitionedMeasure(family))
    permuted = expected_gain(theta[p], labels[p], gain=gain, relaxation=PartitionedMeasure(family))
    terms = terms_of(labels, gain)
    assert_value(permuted.value, result.value, "law", terms)
    assert_gradient(permuted.gradient, result.gradient[p], "law", np.exp(theta[:, 1]).min(), terms)


# ---- Bad input

FOUR = {"scores": [0.1, 0.4, 0.2, 0.3], "labels": [0, 1, 2, 0]}


class Another(Relaxation):
    width = 1


@pytest.mark.parametrize("name", list(RELAXATIONS))
def test_a_relaxation_by_its_name(name: str) -> None:
    width = RELAXATIONS[name].width
    scores = np.array([[0.2, -1.0], [1.5, 0.0], [0.3, 0.5], [-0.4, 0.1]])[:, :width].squeeze()
    for function in (
        lambda relaxation: expected_gain(scores, [2, 0, 1, 0], relaxation=relaxation).gradient,
        lambda relaxation: sinkprop.expected_ranks(scores, relaxation=relaxation),
        lambda relaxation: sinkprop.top_k_probability(scores, 2, relaxation=relaxation),
        lambda relaxation: sinkprop.doubly_stochastic(scores, relaxation=relaxation),
    ):
        np.testing.assert_array_equal(function(name), function(RELAXATIONS[name]))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"scores": [0, np.nan, np.nan, 0]}, ValueError, r"^scores must be finite; row 1 holds nan"),
        ({"scores": [0, 0, 0, np.inf]}, ValueError, r"^scores must be finite; row 3 holds inf"),
        ({"scores": [-np.inf, 0, 0, 0]}, ValueError, r"^scores must be finite; row 0 holds -inf"),
        ({"scores": ["a", "b", "c", "d"]}, ValueError, r"^scores must be an array of real numbers"),
        ({"scores": [0, 1j, 0, 0]}, ValueError, r"^scores must be an array of real numbers"),
        ({"scores": None}, ValueError, r"^scores must be an array of real numbers"),
        ({"scores": [[0], [0, 1], [0], [0]]}, ValueError, r"^scores must be an array of real numbers"),
        ({"scores": [], "labels": []}, ValueError, r"^scores must hold at least one document"),
        ({"scores": np.zeros((4, 1))}, ValueError, r"^scores must have the shape \(N,\).*got \(4, 1\)"),
        ({"scores": np.zeros((4, 2))}, ValueError, r"^scores must have the shape \(N,\).*got \(4, 2\)"),
        ({"relaxation": PartitionedMeasure()}, ValueError, r"^scores must have the shape \(N, 2\).*\(4,\)"),
        (
            {"relaxation": PartitionedMeasure("beta"), "scores": np.zeros((4, 3))},
            ValueError,
            r"^scores must have the shape \(N, 2\).*got \(4, 3\)",
        ),
        (
            {"relaxation": PartitionedMeasure(), "scores": np.zeros((2, 4))},
            ValueError,
            r"^scores must have the shape \(N, 2\).*got \(2, 4\)",
        ),
        (
            {"relaxation": PartitionedMeasure(), "scores": [[0, 0], [0, 0], [0, np.nan], [0, 0]]},
            ValueError,
            r"^scores must be finite; row 2 holds nan",
        ),
        (
            {"labels": [0, np.nan, 1, 0]},
            ValueError,
            r"^labels must be finite and not below 0; row 1 holds nan",
        ),
        (
            {"labels": [0, 1, np.inf, 0]},
            ValueError,
            r"^labels must be finite and not below 0; row 2 holds inf",
        ),
        ({"labels": [0, 1, 1, -1]}, ValueError, r"^labels must be finite and not below 0; row 3 holds -1"),
        ({"labels": [0, 1, 1]}, ValueError, r"^labels must have one value per row.*4 rows, but 3 labels"),
        ({"labels": [0, 1, 1, 0, 1]}, ValueError, r"^labels must have one value per row.*4 rows, but 5"),
        ({"labels": []}, ValueError, r"^labels must have one value per row.*4 rows, but 0 labels"),
        (
            {"labels": [[0, 1, 1, 0]]},
            ValueError,
            r"^labels must have one row per row of scores: 4 rows, but 1",
        ),
        ({"labels": ["0", "1", "1", "0"]}, ValueError, r"^labels must be an array of real numbers"),
        ({"labels": [0, 2000, 1, 0]}, ValueError, r"^labels\[1\] = 2000.0: ndcg cannot take it"),
        (
            {"labels": [0, 1, 1, 0], "qid": [1, 1, 2]},
            ValueError,
            r"^qid must have one id per row: 4 rows, but 3",
        ),
        ({"qid": [[1, 1, 2, 2]]}, ValueError, r"^qid must"),
        ({"qid": np.ones((4, 1))}, ValueError, r"^qid must be one id per row, of shape \(4,\).*\(4, 1\)"),
        ({"qid": [1, 1, 2, np.nan]}, ValueError, r"^qid must not hold NaN; row 3"),
        ({"qid": np.array([1, np.nan, 1, np.nan])}, ValueError, r"^qid must not hold NaN; row 1"),
        ({"qid": ["a", "a", float("nan"), "b"]}, ValueError, r"^qid must not hold NaN; row 2"),
        ({"qid": ["a", "a", [], "b"]}, ValueError, r"^qid must hold hashable ids.*row 2"),
        ({"qid": [[1], [1], [2], [2]]}, ValueError, r"^qid must hold hashable ids.*row 0"),
        ({"qid": 7}, (TypeError, ValueError), r"^qid must"),
        ({"n_iter": -1}, ValueError, r"^n_iter must be a number of iterations, at least 0.*got -1"),
        ({"n_iter": 5.2}, ValueError, r"^n_iter must be .*a whole number plus 0\.5.*got 5.2"),
        ({"n_iter": None}, ValueError, r"^n_iter must be a number.*got None"),
        ({"n_iter": True}, ValueError, r"^n_iter must be a number.*got True"),
        ({"n_iter": [5]}, ValueError, r"^n_iter must be a number of iterations.*got \[5\]"),
        ({"epsilon": True}, ValueError, r"^epsilon must be a finite number.*got True"),
        ({"epsilon": -1e-9}, ValueError, r"^epsilon must be a finite number, not below 0; got -1e-09"),
        ({"epsilon": np.nan}, ValueError, r"^epsilon must be a finite number, not below 0; got nan"),
        ({"epsilon": np.inf}, ValueError, r"^epsilon must be a finite number, not below 0; got inf"),
        ({"epsilon": "1"}, ValueError, r"^epsilon must be a finite number.*got '1'"),
        ({"n_threads": 0}, ValueError, r"^n_threads must be at least 1; got 0"),
        ({"n_threads": -2}, ValueError, r"^n_threads must be at least 1; got -2"),
        ({"n_threads": 1.5}, ValueError, r"^n_threads must be a whole number.*got 1.5"),
        ({"gain": "ndgc@10"}, ValueError, r"^gain 'ndgc@10' is not known. Did you mean 'ndcg@10'"),
        ({"gain": "ndcg@0"}, ValueError, r"^gain 'ndcg@0': NDCG: k must be at least 1.*got 0"),
        ({"gain": "p@-3"}, ValueError, r"^gain 'p@-3': Precision: k must be at least 1.*got -3"),
        ({"gain": "rbp@1"}, ValueError, r"^gain 'rbp@1': RBP: p must be at least 0 and below 1"),
        ({"gain": 10}, TypeError, r"^gain must be a Gain such as NDCG\(10\).*got 10"),
        ({"gain": NDCG}, TypeError, r"^gain must be a Gain.*Did you mean NDCG\(...\)"),
        ({"gain": np.exp2}, TypeError, r"^gain must be a Gain.*goes into RankLinear\(gain=, discount=\)"),
        ({"relaxation": "gauss"}, ValueError, r"^relaxation must be one of 'gaussian', .*; got 'gauss'"),
        ({"relaxation": None}, ValueError, r"^relaxation must be a name or a Relaxation; got None"),
        ({"relaxation": SmoothedIndicator}, ValueError, r"^relaxation must be a name or a Relaxation"),
        ({"relaxation": Another()}, TypeError, r"^relaxation must be a SmoothedIndicator or a Part"),
    ],
)
def test_bad_input_is_explained(change: dict, kind: type[Exception], message: str) -> None:
    for equal in ({"n_iter": 1, "epsilon": 1}, {}):  # True is equal to 1, but not valid
        expected_gain(**{**FOUR, **equal})
    with pytest.raises(kind, match=message):
        expected_gain(**{**FOUR, **change})


ROWS = [0, 1, 510, 511, 512, 513, 1023, 1024, 1999]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_score_that_is_not_finite_is_named(bad: float) -> None:
    for row in ROWS:
        scores, theta = np.zeros(2000), np.zeros((2000, 2))
        scores[row] = scores[-1] = theta[row, 1] = theta[-1, 0] = bad
        with pytest.raises(ValueError, match=rf"^scores must be finite; row {row} holds {bad}"):
            expected_gain(scores, np.zeros(2000))
        with pytest.raises(ValueError, match=rf"^scores must be finite; row {row} holds {bad}"):
            expected_gain(theta, np.zeros(2000), relaxation=PartitionedMeasure())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 2000.0])
def test_the_first_bad_label_is_named(bad: float) -> None:
    for row in ROWS:
        labels = np.zeros(2000)
        labels[row] = labels[-1] = bad
        message = rf"^labels must be finite and not below 0; row {row} holds {bad}"
        if bad == 2000:
            message = rf"^labels\[{row}\] = 2000.0: ndcg cannot take it"
        with pytest.raises(ValueError, match=message):
            expected_gain(np.zeros(2000), labels)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: NDCG(0), "NDCG: k must be at least 1"),
        (lambda: Precision(-1), "Precision: k must be at least 1"),
        (lambda: SmoothedIndicator(0.0), "sigma must be finite and above 0; got 0.0"),
        (lambda: SmoothedIndicator(-1.0, "laplace"), "sigma must be finite and above 0; got -1.0"),
        (lambda: SmoothedIndicator(np.nan), "sigma must be finite and above 0; got nan"),
    ],
)
def test_a_setting_out_of_range_is_explained(build, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


def test_a_table_that_is_not_finite_names_the_row() -> None:
    gain = RankLinear(table=lambda r, k: 1 / (r - k))
    with pytest.raises(ValueError, match=r"^labels\[1\] = 1.0: the table of RankLinear gives inf at rank 1"):
        expected_gain([0.1, 0.2], [0, 1], gain=gain)


# ---- The native layer's outputs

SENTINEL = -7.25


def native_call(per_query: np.ndarray, gradient: np.ndarray, scores: np.ndarray) -> None:
    n = len(scores)
    _native.expected_gain(
        scores,
        np.array([0, n - 2, n]),
        None,
        (np.ones(n), False, None, np.ones((1, n)), False),
        (0, 1.0, True, 10, 1e-6, 0.0) if scores.ndim == 1 else (2, 0.0, True, 10, 1e-6, 0.0),
        1,
        per_query,
        gradient,
    )


def within(shape: tuple[int, ...], dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """An array of sentinels within a larger one: a write past its end does no harm and is seen."""
    memory = np.full(1000, SENTINEL, dtype)
    return memory, memory[: int(np.prod(shape))].reshape(shape)


def test_the_native_call_writes_its_outputs() -> None:
    for scores in (np.arange(6.0), np.zeros((6, 2))):
        (_, per_query), (_, gradient) = within((2,)), within(scores.shape)
        native_call(per_query, gradient, scores)
        assert not (per_query == SENTINEL).any()
        assert not (gradient == SENTINEL).any()


@pytest.mark.parametrize(
    "scores", [np.arange(6.0), np.zeros((6, 2))], ids=["one a document", "two a document"]
)
@pytest.mark.parametrize("wrong", ["per_query", "gradient"])
@pytest.mark.parametrize(
    "fault", ["float32", "int64", "strided", "one short", "another dimension", "read-only"]
)
def test_a_wrong_output_array_is_refused(fault: str, wrong: str, scores: np.ndarray) -> None:
    shape = (2,) if wrong == "per_query" else scores.shape
    memory, out = within(shape)
    if fault in ("float32", "int64"):
        memory, out = within(shape, np.dtype(fault).type)
    elif fault == "strided":
        memory, out = within((2 * shape[0], *shape[1:]))
        out = out[::2]
    elif fault == "one short":
        out = out[:-1]
    elif fault == "another dimension":
        out = out[:, 0].copy() if out.ndim == 2 else out[:, None]
        memory, out = within(out.shape)
    else:
        out.flags.writeable = False
    (_, per_query), (_, gradient) = within((2,)), within(scores.shape)
    arrays = {"per_query": per_query, "gradient": gradient, wrong: out}
    before = memory.copy()
    with pytest.raises(TypeError):
        native_call(arrays["per_query"], arrays["gradient"], scores)
    np.testing.assert_array_equal(memory, before)


def test_a_fortran_ordered_gradient_is_refused() -> None:
    gradient = np.full((6, 2), SENTINEL, order="F")
    with pytest.raises(TypeError):
        native_call(np.empty(2), gradient, np.zeros((6, 2)))
    assert (gradient == SENTINEL).all()


def test_an_unknown_instruction_set_is_refused() -> None:
    before = _native.instruction_set()
    assert not _native.use_instruction_set("sse9")
    assert _native.instruction_set() == before
    assert before in _native.instruction_sets()
