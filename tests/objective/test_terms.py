"""Gains that are not rank-linear: against the reference, as metrics at rankings, sums, and every error."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from problems import PROBLEMS
from scipy import sparse

from sinkprop import (
    ERR,
    ERRIA,
    NDCG,
    AlphaNDCG,
    AveragePrecision,
    ColumnGain,
    ExpectedExposure,
    ExposureGap,
    FMeasure,
    PartitionedMeasure,
    Precision,
    RankLinear,
    Recall,
    ReciprocalRank,
    RowGain,
    SmoothedIndicator,
    _native,
    evaluate,
    expected_gain,
    parse_gain,
    reference,
)
from sinkprop.objective.gains import GainSum, OnLabels


def squares(R):
    return (R**2 / np.arange(1, len(R) + 1)).sum()


def pairs(R):
    return (R[:, 0] * np.cumsum(R[:, 1]) / np.arange(1, len(R) + 1)).sum()


def pairs_slope(R):
    k = np.arange(1, len(R) + 1)
    return np.stack([np.cumsum(R[:, 1]) / k, np.cumsum((R[:, 0] / k)[::-1])[::-1]], axis=1)


SQUARES = ColumnGain(attributes=lambda y: y / 4, function=squares)
PAIRS = ColumnGain(attributes=lambda y: np.stack([y > 0, y / 4], 1), function=pairs, gradient=pairs_slope)
ROWS = RowGain(function=lambda E, y: -((E - y / 4) ** 4).sum())

ONE_LABEL = [
    AveragePrecision(),
    AveragePrecision(2, threshold=2),
    ReciprocalRank(),
    ReciprocalRank(3),
    ERR(),
    ERR(2, max_label=6),
    Recall(2),
    FMeasure(3, beta=2),
    ExpectedExposure(),
    ExpectedExposure(exposure="reciprocal", k=2),
    0.5 * NDCG(5) + 2 * AveragePrecision() - 0.3 * Precision(2),
    ReciprocalRank() - 0.5 * RankLinear(table=lambda r, k: np.cos(r * k) / k),
    SQUARES,
    PAIRS,
    ROWS,
    NDCG(discount="log2") + 0.3 * PAIRS - 0.1 * ROWS,
]
SEVERAL_LABELS = [
    AlphaNDCG(),
    AlphaNDCG(3, 0.3),
    AlphaNDCG(2, 1.0),
    ERRIA(4),
    ERRIA(2, alpha=0.0),
    NDCG(3).on(1) - 0.5 * ExposureGap(groups=2),
    ExposureGap(1, 0, exposure="reciprocal", k=3),
    ExpectedExposure(2),
    ERR().on(1) + AlphaNDCG(5).on((0, 2)),
]
RELAXATIONS = {
    "gaussian": SmoothedIndicator(0.7, accuracy="exact"),
    "fast": SmoothedIndicator(0.7),
    "laplace": SmoothedIndicator(0.7, kernel="laplace"),
    "probit": PartitionedMeasure("probit"),
    "logit-logistic": PartitionedMeasure("logit-logistic"),
    "beta": PartitionedMeasure("beta"),
}
# The fast Gaussian has kernel errors of 3e-8; the beta family is limited by the quadrature of the reference.
TOLERANCE = {"fast": 4e-6, "beta": 1e-8}


@pytest.fixture(autouse=True)
def quadrature_once(monkeypatch):
    """The reference's slow quadrature of the beta family, once per test instead of once per gain."""
    compute, known = reference._beta_derivatives, {}

    def remembered(theta):
        key = theta.tobytes()
        if key not in known:
            known[key] = compute(theta)
        return known[key]

    monkeypatch.setattr(reference, "_beta_derivatives", remembered)


def name_of(gain):
    return gain.text or type(gain).__name__


def several(n, rng):
    return rng.integers(0, 3, (n, 3)).astype(float)


def scores_of(problem, kind):
    if kind == "beta":
        return problem.beta_theta
    return problem.scores if kind in ("gaussian", "fast", "laplace") else problem.theta


@pytest.mark.parametrize("n_iter", [0, 1.5, 5])
@pytest.mark.parametrize("kind", RELAXATIONS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_native_code_agrees_with_the_reference_on_named_problems(problem, kind, n_iter):
    rng = np.random.default_rng(len(problem.scores))
    x, relaxation = scores_of(problem, kind), RELAXATIONS[kind]
    if relaxation.width == 1:
        relaxation = SmoothedIndicator(problem.sigma, kernel=relaxation.kernel, accuracy=relaxation.accuracy)
    for gain in [*ONE_LABEL, *SEVERAL_LABELS]:
        labels = problem.labels if gain in ONE_LABEL else several(len(x), rng)
        value, gradient = reference.expected_gain(x, labels, gain, relaxation, n_iter=n_iter)
        found = expected_gain(x, labels, gain=gain, relaxation=relaxation, n_iter=n_iter)
        tolerance = TOLERANCE.get(kind, 1e-9)
        unit = problem.sigma if relaxation.width == 1 else 1.0
        size = max(1, abs(value), np.abs(gradient).max() * unit)
        assert_allclose(found.value, value, rtol=0, atol=tolerance * size, err_msg=name_of(gain))
        assert_allclose(found.gradient, gradient, rtol=0, atol=tolerance * size / unit, err_msg=name_of(gain))


@pytest.mark.parametrize("method", ["direct", "banded", "cells", "sums"])
def test_every_method_of_products_agrees_with_the_reference(method):
    rng = np.random.default_rng(5)
    x, relaxation = np.sort(rng.normal(size=90))[::-1] * 30, RELAXATIONS["gaussian"]
    labels, intents = rng.integers(0, 4, 90), several(90, rng)
    _native.use_method(method)
    try:
        for gain, y in (
            (AveragePrecision(), labels),
            (ERR(10), labels),
            (AlphaNDCG(20), intents),
            (PAIRS, labels),
        ):
            value, gradient = reference.expected_gain(x, y, gain, relaxation)
            found = expected_gain(x, y, gain=gain, relaxation=relaxation)
            assert found.value == pytest.approx(value, abs=1e-10)
            assert_allclose(found.gradient, gradient, rtol=0, atol=1e-9)
    finally:
        _native.use_method("auto")


@pytest.mark.parametrize("gain", [*ONE_LABEL, *SEVERAL_LABELS], ids=name_of)
@pytest.mark.parametrize("n_iter", [1.5, 2])
def test_gradients_of_the_reference_are_those_of_a_complex_step(gain, n_iter):
    rng = np.random.default_rng(1)
    x, relaxation = rng.normal(size=6), SmoothedIndicator(0.7)
    y = rng.integers(0, 4, 6) if gain in ONE_LABEL else several(6, rng)
    _, gradient = reference.expected_gain(x, y, gain, relaxation, n_iter=n_iter)
    for j in range(6):
        z = x.astype(complex)
        z[j] += 1e-30j
        slope = reference.expected_value(z, y, gain, relaxation, n_iter=n_iter).imag / 1e-30
        assert slope == pytest.approx(gradient[j], abs=1e-12)


METRICS = ["map", "map@3", "mrr", "mrr@2", "err(max_grade=4)", "err(max_grade=4)@3", "recall@3", "f@2"]
METRICS += ["f(beta=2,threshold=2)@4", "map(threshold=2)", "mrr(threshold=3)@5"]


@pytest.mark.parametrize("name", METRICS)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12))
def test_at_a_ranking_a_gain_is_the_metric_of_its_name(name, seed, n):
    rng = np.random.default_rng(seed)
    scores, labels = rng.permutation(n) * 100.0, rng.integers(0, 5, n)
    metric = evaluate(labels, scores, np.zeros(n), name)
    assert str(parse_gain(name)) in metric
    found = expected_gain(scores, labels, gain=name, epsilon=0).value
    assert found == pytest.approx(metric[name], abs=1e-14)
    assert reference.hard_gain(np.argsort(-scores), labels, name) == pytest.approx(metric[name], abs=1e-14)


@pytest.mark.parametrize(
    "name", ["alphandcg", "alphandcg@3", "alphandcg(alpha=0.25)@5", "erria@3", "erria@10"]
)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), intents=st.integers(1, 5))
def test_at_a_ranking_a_gain_of_diversity_is_the_metric(name, seed, n, intents):
    rng = np.random.default_rng(seed)
    scores, labels = rng.permutation(n) * 100.0, rng.integers(0, 2, (n, intents)) * 1.0
    metric = evaluate(labels, scores, np.zeros(n), name)[name]
    assert expected_gain(scores, labels, gain=name, epsilon=0).value == pytest.approx(metric, abs=1e-14)
    thin = sparse.csr_matrix(labels)
    assert expected_gain(scores, thin, gain=name, epsilon=0).value == pytest.approx(metric, abs=1e-14)


def test_recall_and_f_measure_are_exact_expectations():
    """Their value is the mean over the rankings that have these probabilities, here all orders of three."""
    orders = list(itertools.permutations(range(3)))
    weights = np.array([0.3, 0.05, 0.2, 0.15, 0.1, 0.2])
    Pi = np.zeros((3, 3))
    for weight, order in zip(weights, orders, strict=True):
        Pi[list(order), range(3)] += weight
    for gain in ("recall@2", "f@1", "f(beta=0.5)@2", "ndcg", "p@2"):
        mean = sum(w * reference.hard_gain(o, [1, 0, 2], gain) for w, o in zip(weights, orders, strict=True))
        assert reference.gain_of_matrix(Pi, [1, 0, 2], gain) == pytest.approx(mean, abs=1e-15)


def test_values_by_arithmetic():
    R = np.array([0.5, 0.25, 0.25])  # one relevant document that is at ranks 1, 2, 3 with these probabilities
    Pi = np.array([R, [0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    of = lambda gain, labels=(1, 0, 0): reference.gain_of_matrix(Pi, labels, gain)  # noqa: E731
    assert of("map") == pytest.approx(0.5 + 0.25 / 2 + 0.25 / 3)  # one document: exact
    assert of("map", (1, 0, 1)) == pytest.approx((0.5 + 0.75 / 2 * 1.5 + 0.75 / 3 * 2.25) / 2)
    assert of("mrr") == pytest.approx(0.5 + 0.25 / 2 + 0.25 / 3)  # one document: exact
    R = [0.5 + 0.5, 0.25 + 0.25, 0.25 + 0.25]  # two relevant documents
    assert of("mrr", (1, 1, 0)) == pytest.approx(R[0] + R[1] / 2 * 0 + R[2] / 3 * 0)
    R = [0.5, 0.75, 0.75]
    assert of("mrr", (1, 0, 1)) == pytest.approx(0.5 + 0.75 / 2 * 0.5 + 0.75 / 3 * 0.5 * 0.25)
    assert of("mrr@2", (1, 0, 1)) == pytest.approx(0.5 + 0.75 / 2 * 0.5)
    assert of("err(max_grade=1)", (1, 0, 1)) == pytest.approx(
        0.25 + 0.375 / 2 * 0.75 + 0.375 / 3 * 0.75 * 0.625
    )
    E = 0.5 + 0.25 / 2 + 0.25 / 3  # of the first two documents; the third has 0.25 + 0.5 / 3
    gap = ExposureGap(1, exposure="reciprocal")
    assert of(gap, [[0, 0], [0, 1], [0, 1]]) == pytest.approx((E - (E + 0.25 + 0.5 / 3) / 2) ** 2)
    ratio = ExposureGap(1, 0, exposure="reciprocal")
    assert of(ratio, [[3, 0], [1, 1], [1, 1]]) == pytest.approx((E / 3 - (E + 0.25 + 0.5 / 3) / 2) ** 2)
    assert of(ratio, [[0, 0], [1, 1], [1, 1]]) == 0  # a group without merit is left out


def test_queries_are_independent_and_rows_may_be_in_any_order():
    rng = np.random.default_rng(2)
    qid = rng.integers(0, 40, 1500)
    x, labels, intents = rng.normal(size=1500), rng.integers(0, 4, 1500) * 1.0, several(1500, rng)
    weights = rng.uniform(0, 1, 1500)
    for gain in (*ONE_LABEL, *SEVERAL_LABELS):
        y = labels if gain in ONE_LABEL else intents
        given_weights = None if _without_weights(gain) else weights
        found = expected_gain(x, y, qid, gain=gain, sample_weight=given_weights, n_threads=2)
        again = expected_gain(x, y, qid, gain=gain, sample_weight=given_weights, n_threads=1)
        assert_array_equal(found.gradient, again.gradient)
        for q in found.queries[:5]:
            rows = qid == q
            own = None if given_weights is None else weights[rows]
            # the grades of ERR inside of sums are those of all documents
            alone = expected_gain(x[rows], y[rows], gain=gain.fitted(y), sample_weight=own)
            at = int(np.flatnonzero(found.queries == q)[0])
            assert found.per_query[at] == pytest.approx(alone.value, abs=1e-13)
            assert_allclose(found.gradient[rows] * len(found.queries), alone.gradient, rtol=0, atol=1e-12)


def _without_weights(gain):
    parts = [part for _, part in gain.parts] if isinstance(gain, GainSum) else [gain]
    return any(isinstance(part, ExpectedExposure | RowGain) for part in parts)


@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(range(len(ONE_LABEL + SEVERAL_LABELS))))
def test_laws(seed, n, number):
    gain = (ONE_LABEL + SEVERAL_LABELS)[number]
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = rng.integers(0, 4, n) * 1.0 if number < len(ONE_LABEL) else several(n, rng)
    found = expected_gain(x, y, gain=gain, relaxation=SmoothedIndicator(0.5))
    # a shift of all scores and the order of the documents do not matter
    assert abs(found.gradient.sum()) < 1e-6 * (1 + np.abs(found.gradient).max())
    order = rng.permutation(n)
    moved = expected_gain(x[order] + 3, y[order], gain=gain, relaxation=SmoothedIndicator(0.5))
    assert moved.value == pytest.approx(found.value, abs=1e-7)
    assert_allclose(moved.gradient, found.gradient[order], rtol=0, atol=1e-6)


def test_a_sum_is_the_sum_of_its_parts():
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=60), several(60, rng)
    exact = SmoothedIndicator(accuracy="exact")  # a sum may take another method than its parts
    parts = [(0.8, NDCG(10)), (-0.2, ExposureGap(2)), (1.5, AveragePrecision().on(1)), (2.0, AlphaNDCG(5))]
    total = expected_gain(x, y, gain=GainSum(tuple(parts)), relaxation=exact)
    each = [(w, expected_gain(x, y, gain=gain, relaxation=exact)) for w, gain in parts]
    assert total.value == pytest.approx(sum(w * r.value for w, r in each))
    assert_allclose(total.gradient, sum(w * r.gradient for w, r in each), atol=1e-14)
    assert str(sum([NDCG(), AveragePrecision()])) == "ndcg + map"
    assert str(-NDCG() * 2 + (NDCG(5) - AveragePrecision()) / 4) == "-2*ndcg + 0.25*ndcg@5 - 0.25*map"
    with pytest.raises(TypeError):
        NDCG() * NDCG()
    with pytest.raises(TypeError):
        NDCG() + 1


@pytest.mark.parametrize(
    "gain", ["map", "mrr@10", "err", "alphandcg@20", "0.5*ndcg@10 - 0.1*expectedexposure"]
)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_a_million_documents(gain, kernel):
    rng = np.random.default_rng(0)
    n = 10**6
    x, y = rng.normal(size=n), rng.integers(0, 3, n) * 1.0
    found = expected_gain(x, y, gain=gain, relaxation=SmoothedIndicator(0.1, kernel=kernel))
    assert np.isfinite(found.gradient).all()
    assert abs(found.gradient.sum()) <= 1e-7 * np.abs(found.gradient).sum() + 1e-12
    step = 1e-3 * np.sign(found.gradient)
    assert (
        expected_gain(x + step, y, gain=gain, relaxation=SmoothedIndicator(0.1, kernel=kernel)).value
        > found.value
    )


def test_ways_of_differentiation_agree():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=15), rng.integers(0, 4, 15)

    def by_numpy(R):
        return np.sum(np.exp(-np.cumsum(R)) * R)

    def by_torch(R):
        return (torch.exp(-torch.cumsum(R, 0)) * R).sum()

    def slope(R):
        weights = np.exp(-np.cumsum(R))
        return weights - np.cumsum((weights * R)[::-1])[::-1]

    own = ColumnGain(attributes=lambda y: y / 4, function=by_numpy, gradient=slope)
    expected = expected_gain(x, y, gain=own).gradient
    for function, way in (
        (by_numpy, "complex-step"),
        (by_numpy, "auto"),
        (by_torch, "torch"),
        (by_torch, "auto"),
    ):
        gain = ColumnGain(attributes=lambda y: y / 4, function=function, differentiate=way)
        assert_allclose(expected_gain(x, y, gain=gain).gradient, expected, rtol=0, atol=1e-14)


def test_jax_differentiates_in_double_precision():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed")
    x, y = np.random.default_rng(3).normal(size=15), np.arange(15) % 4
    by_jax = ColumnGain(attributes=lambda y: y / 4, function=lambda R: jnp.sum(jnp.exp(-jnp.cumsum(R)) * R))
    by_steps = ColumnGain(attributes=lambda y: y / 4, function=lambda R: np.sum(np.exp(-np.cumsum(R)) * R))
    found = expected_gain(x, y, gain=by_jax).gradient
    assert_allclose(found, expected_gain(x, y, gain=by_steps).gradient, rtol=0, atol=1e-14)


def test_arrays_in_a_gain_are_those_of_the_documents():
    rng = np.random.default_rng(4)
    x, y, qid = rng.normal(size=50), rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    groups = np.array(["left", "right", "middle"])[rng.integers(0, 3, 50)]
    merit = rng.uniform(size=50)
    codes = np.unique(groups, return_inverse=True)[1]
    by_array = NDCG(5) - 0.5 * ExposureGap(groups, merit) + AveragePrecision().on(merit * 3)
    by_column = NDCG(5) - 0.5 * ExposureGap(1, 2) + AveragePrecision().on(3)
    expected = expected_gain(x, np.stack([y, codes, merit, 3 * merit], axis=1), qid, gain=by_column)
    found = expected_gain(x, y, qid, gain=by_array)
    assert_allclose(found.gradient, expected.gradient, rtol=0, atol=1e-15)
    assert found.value == pytest.approx(expected.value, abs=1e-15)
    assert by_array.text is None
    assert by_column.text == "ndcg@5 - 0.5*exposuregap(groups=1,merit=2) + map[3]"
    intents = rng.integers(0, 2, (50, 3))
    assert_allclose(
        expected_gain(x, y, qid, gain=AlphaNDCG(5).on(sparse.csr_array(intents))).gradient,
        expected_gain(x, intents, qid, gain=AlphaNDCG(5)).gradient,
    )


TEXTS = [
    "map@10",
    "mrr(threshold=2)@3",
    "err(max_grade=4)@20",
    "recall@5",
    "f(beta=2)@10",
    "alphandcg(alpha=0.3)@10",
    "erria@5",
    "exposuregap(groups=1)",
    "exposuregap(groups=2,merit=0,exposure=reciprocal)@10",
    "expectedexposure(target=3)",
    "0.8*ndcg@10 - 0.2*exposuregap(groups=1)",
    "-0.5*map + 1e-05*rbp@1e-05",
    "ndcg@10[2] + alphandcg@5[0,1,3]",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_forms(text):
    gain = parse_gain(text)
    assert str(gain) == gain.text == text
    assert parse_gain(text.upper().replace("*", " * ").replace("@", " @ ")) == gain
    assert hash(gain) == hash(parse_gain(str(gain)))
    assert pickle.loads(pickle.dumps(gain)) == gain


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AveragePrecision(0), "AveragePrecision: k must be at least 1"),
        (lambda: Recall(None), "Recall: k must be an integer"),
        (lambda: FMeasure(3, beta=-1), "FMeasure: beta must be from 0 to 1e100; got -1.0"),
        (lambda: AlphaNDCG(3, 1.5), "AlphaNDCG: alpha must be from 0 to 1; got 1.5"),
        (lambda: ERR(max_label="x"), "ERR: max_label must be a number"),
        (lambda: ExposureGap(-1), "ExposureGap: groups must be the number of a label column"),
        (
            lambda: ExposureGap(1, [1.0, -2.0]),
            "ExposureGap: merit must be finite and not below 0; row 1 holds -2",
        ),
        (lambda: ExposureGap([[1, 2]]), "ExposureGap: groups must have one value per document"),
        (lambda: ExposureGap(["a", None]), "ExposureGap: groups must not be missing; row 1 holds None"),
        (
            lambda: ExpectedExposure(["1", "2"]),
            "ExpectedExposure: target must be a label column or an array of",
        ),
        (lambda: NDCG().on(["a", "b"]), "on: labels must be a label column or an array of numbers"),
        (lambda: ExposureGap([1, 2]).on(0), "takes a gain that does not hold an array"),
        (
            lambda: ColumnGain(attributes=[[1, np.nan]], function=squares),
            "attributes must be finite; row 0 is",
        ),
        (lambda: ERRIA(10**7), "ERRIA: k must be at most 1000000"),
        (lambda: ExposureGap(1, exposure="cubic"), "ExposureGap: exposure must be 'log2' or 'reciprocal'"),
        (lambda: ColumnGain(attributes=np.abs, function=3), "ColumnGain: function must be a function"),
        (
            lambda: ColumnGain(attributes=3, function=squares),
            "ColumnGain: attributes must be a function or an",
        ),
        (lambda: RowGain(function=np.sum, differentiate="by hand"), "RowGain: differentiate must be"),
        (lambda: (NDCG() + NDCG()).on(1), "on.labels. takes a single gain"),
        (lambda: OnLabels(NDCG(), (-1,)), "label columns must be numbers from 0"),
        (lambda: GainSum(()), "at least one part"),
        (lambda: np.inf * NDCG(), "the weight of a gain must be a finite number; got inf"),
        (lambda: parse_gain("ndcg[x]"), "is not known"),
        (lambda: parse_gain("exposuregap"), "groups= is missing"),
        (lambda: parse_gain("recall"), "recall needs a cutoff, such as recall@10"),
        (lambda: parse_gain("map +"), "gain 'map .' is not known"),
    ],
)
def test_a_gain_that_cannot_be_is_explained(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("gain", "labels", "options", "message"),
    [
        ("ndcg@5[1]", [1, 0, 2], {}, r"ndcg@5\[1\] reads label column 1, but there is one column"),
        ("exposuregap(groups=3)", np.ones((3, 2)), {}, r"reads label column 3, but there are 2 columns"),
        (AlphaNDCG(3), np.ones((2, 2)), {}, "labels must have one row per row of scores: 3 rows, but 2"),
        (AlphaNDCG(3), [[1, 0], [0, -1], [0, 0]], {}, "row 1, column 1 holds -1"),
        (ExposureGap([1, 2]), [1, 0, 2], {}, "ExposureGap: groups must have one row per document: 3.*2 rows"),
        (ExposureGap([1, 2, 3]), np.ones((3, 2)), {}, "holds an array, and the labels have 2 columns"),
        (ERR(max_label=1), [1, 0, 2], {}, r"labels\[2\] = 2.0: err\(max_grade=1\) cannot take it"),
        ("mrr", [1, 0, 2], {"sample_weight": [2, 1, 1]}, "sample_weight: mrr takes weights that leave"),
        ("expectedexposure", [1, 0, 2], {"sample_weight": [2, 1, 1]}, "has no row weights"),
        (
            ColumnGain(attributes=lambda y: y[:2], function=squares),
            [1, 0, 2],
            {},
            r"attributes\(labels\) must return an array of shape \(3,\) or \(3, C\); got shape \(2,\)",
        ),
        (
            ColumnGain(attributes=lambda y: y / 0.0, function=squares),
            [1, 0, 2],
            {},
            "must be finite; row 0 is",
        ),
        (
            ColumnGain(attributes=np.abs, function=lambda R: R),
            [1, 0, 2],
            {},
            r"one number per query; got shape \(3,\)",
        ),
        (ColumnGain(attributes=np.abs, function=lambda R: np.nan), [1, 0, 2], {}, "finite number; got nan"),
        (
            ColumnGain(attributes=np.abs, function=squares, gradient=lambda R: R[:1]),
            [1, 0, 2],
            {},
            r"gradient must return an array of shape \(3,\); got shape \(1,\)",
        ),
        (
            ColumnGain(attributes=np.abs, function=squares, gradient=lambda R: R * np.inf),
            [1, 0, 2],
            {},
            "gradient must be finite; entry 0",
        ),
        (
            ColumnGain(attributes=np.abs, function=squares, gradient=lambda R: 2 * R / [1, 2, 2]),
            [1, 0, 2],
            {},
            "gradient differs from the derivative of function at entry 2: it is .* gives",
        ),
        (
            ColumnGain(attributes=np.abs, function=lambda R: np.abs(R.real).sum()),
            [1, 0, 2],
            {},
            "the derivative by complex-step differs from the derivative of function at entry 0",
        ),
        (RowGain(function=lambda E, y: E.sum() / 0), [1, 0, 2], {}, "finite number"),
        (
            RowGain(function=np.sum, exposure=lambda k: k[:1]),
            [1, 0, 2],
            {},
            r"exposure\(ranks\) must return one",
        ),
    ],
    ids=range(19),
)
def test_what_a_gain_cannot_take_is_explained(gain, labels, options, message):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        expected_gain([3.0, 2.0, 1.0], labels, gain=gain, **options)


def test_an_error_of_the_users_function_arrives_from_every_thread():
    def fails(R):
        raise KeyError("not here")

    x, qid = np.random.default_rng(0).normal(size=20_000), np.repeat(np.arange(2000), 10)
    with pytest.raises(KeyError, match="not here"):
        expected_gain(x, qid % 3, qid, gain=ColumnGain(attributes=np.abs, function=fails), n_threads=2)


def test_a_function_may_call_the_library():
    x, y = np.random.default_rng(0).normal(size=30), np.arange(30) % 3

    def calls(R):
        expected_gain(np.arange(200.0), np.arange(200) % 3, gain="map", n_threads=1)
        return (R**2).sum()

    gains = [
        ColumnGain(attributes=np.abs, function=f, gradient=lambda R: 2 * R)
        for f in (calls, lambda R: (R**2).sum())
    ]
    found, expected = (expected_gain(x, y, gain=gain, n_threads=1) for gain in gains)
    assert found.value == expected.value
    assert_array_equal(found.gradient, expected.gradient)


def gain_of(function):
    return ColumnGain(attributes=np.abs, function=function, gradient=lambda R: 2 * R)


def test_a_function_may_call_the_library_on_threads():
    x, qid = np.random.default_rng(0).normal(size=6000), np.repeat(np.arange(60), 100)
    alone = expected_gain(x, qid % 4, qid, n_threads=1)

    def calls(R):
        inner = expected_gain(x, qid % 4, qid, n_threads=3)
        assert inner.value == alone.value
        assert_array_equal(inner.gradient, alone.gradient)
        return (R**2).sum()

    one = expected_gain(x, qid % 3, qid, gain=gain_of(lambda R: (R**2).sum()), n_threads=1)
    for n_threads in (1, 2, 4):
        found = expected_gain(x, qid % 3, qid, gain=gain_of(calls), n_threads=n_threads)
        assert_array_equal(found.per_query, one.per_query)
        assert_array_equal(found.gradient, one.gradient)


def test_an_error_of_a_function_arrives_through_a_function_that_calls_the_library():
    x, qid = np.random.default_rng(0).normal(size=6000), np.repeat(np.arange(60), 100)

    def fails(R):
        raise KeyError("not here")

    def calls(R):
        return expected_gain(x, qid % 3, qid, gain=gain_of(fails), n_threads=2).value

    for _ in range(10):
        with pytest.raises(KeyError, match="not here"):
            expected_gain(x, qid % 3, qid, gain=gain_of(calls), n_threads=2)
    found, expected = (expected_gain(x, qid % 3, qid, n_threads=n_threads) for n_threads in (2, 1))
    assert_array_equal(found.gradient, expected.gradient)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_function_that_forks_ends_the_call_of_the_forked_process():
    # The other thread, and the pieces of the work that it had taken, are lost there.
    program = """
import os, sys, threading, warnings
import numpy as np
from sinkprop import ColumnGain, expected_gain

warnings.simplefilter("ignore")  # Python's, of a fork of a process with threads
x, qid = np.random.default_rng(0).normal(size=20_000), np.repeat(np.arange(2000), 10)
child, forked, inside = [], threading.Event(), threading.Event()

def forks(R):
    if threading.current_thread() is not threading.main_thread():
        inside.set()
        forked.wait()
    elif not child and inside.wait():
        child.append(os.fork())
        forked.set()
    return (R**2).sum()

gain = ColumnGain(attributes=np.abs, function=forks, gradient=lambda R: 2 * R)
try:
    expected_gain(x, qid % 3, qid, gain=gain, n_threads=2)
    said = "whole"
except RuntimeError as error:
    said = str(error)
if child[0]:
    os.waitpid(child[0], 0)
else:
    inside.set()
    again = [expected_gain(x, qid % 3, qid, n_threads=n).gradient for n in (1, 2)]
    print((again[0] == again[1]).all(), flush=True)
print(said, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = "only the parent process can complete a call during which a function forks"
    assert done.stdout.splitlines() == ["True", said, "whole"]


def test_a_gradient_is_checked_once():
    calls = []

    def counted(R):
        calls.append(len(R))
        return squares(R)

    gain = ColumnGain(
        attributes=np.abs, function=counted, gradient=lambda R: 2 * R / np.arange(1, len(R) + 1)
    )
    x, qid = np.random.default_rng(0).normal(size=40), np.repeat(np.arange(4), 10)
    expected_gain(x, qid % 2, qid, gain=gain)
    assert len(calls) == 4 + 2 * 10
    expected_gain(x, qid % 2, qid, gain=gain)
    assert len(calls) == 2 * 4 + 2 * 10
