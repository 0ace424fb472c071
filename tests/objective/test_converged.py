"""The limit of the Sinkhorn normalization: values, gradients and errors, against dense definitions."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop
from sinkprop import (
    Converged,
    ExpectedExposure,
    PartitionedMeasure,
    RankLinear,
    SmoothedIndicator,
    _native,
    doubly_stochastic,
    expected_gain,
    expected_ranks,
    reference,
    sinkhorn,
    sinkhorn_limit,
    sinkhorn_vjp,
    top_k_probability,
)
from sinkprop.objective.normalization import as_iterations

TIGHT = Converged(tol=1e-13)
SMOOTHED = [
    SmoothedIndicator(s, kernel=k, accuracy="exact") for k in ("gaussian", "laplace") for s in (0.05, 1)
]
PARTITIONED = [PartitionedMeasure(family) for family in ("logit-logistic", "probit", "beta")]
TABLE = RankLinear(table=lambda r, k: np.sqrt(r) / (k + r))
GAINS = ["ndcg@10", "p@3", TABLE, "map", "err", "alpha-ndcg@5", ExpectedExposure(), "0.7*ndcg + 0.3*mrr"]


def named(gain):
    """Name of a gain in test ids, which have to be the same in every process."""
    return "table" if gain is TABLE else str(gain)


EPSILONS = [0.0, 1e-6, 0.1]


def scores_of(relaxation, n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n) if relaxation.width == 1 else rng.normal(size=(n, 2))
    if isinstance(relaxation, PartitionedMeasure):
        y[:, 1] = y[:, 1] / 3 + (1 if relaxation.family == "beta" else -0.5)
    return y


def labels_of(gain, n, seed=0):
    rng = np.random.default_rng(seed)
    if gain == "alpha-ndcg@5":
        return rng.integers(0, 2, (n, 3))
    if gain in ("map", "p@3", "0.7*ndcg + 0.3*mrr"):
        return rng.integers(0, 2, n)
    return rng.integers(0, 3, n)


def close(found, expected, tolerance):
    """Whether arrays are equal up to `tolerance`, relative to the largest entry; tiny arrays absolutely."""
    assert_allclose(found, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(), 1e-4))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("gain", GAINS, ids=named)
@pytest.mark.parametrize("relaxation", [*SMOOTHED, *PARTITIONED], ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_value_and_gradient_are_those_of_the_dense_definition(relaxation, gain, n, epsilon):
    y, labels = scores_of(relaxation, n), labels_of(gain, n)
    value, gradient = reference.expected_gain(y, labels, gain, relaxation, n_iter=TIGHT, epsilon=epsilon)
    r = expected_gain(y, labels, gain=gain, relaxation=relaxation, n_iter=TIGHT, epsilon=epsilon)
    assert_allclose(r.value, value, rtol=0, atol=1e-11)
    close(r.gradient, gradient, 1e-8)
    assert r.residual.shape == (1,)
    assert r.residual[0] <= 1e-13


@pytest.mark.parametrize("gain", ["ndcg@10", TABLE, "map", ExpectedExposure()], ids=named)
@pytest.mark.parametrize("relaxation", [*SMOOTHED, *PARTITIONED[:2]], ids=str)
def test_the_reference_gradient_is_that_of_a_complex_step(relaxation, gain):
    y, labels = scores_of(relaxation, 7), labels_of(gain, 7)
    _, gradient = reference.expected_gain(y, labels, gain, relaxation, n_iter=TIGHT)
    for i in np.ndindex(y.shape):
        step = y.astype(complex)
        step[i] += 1e-30j
        slope = reference.expected_value(step, labels, gain, relaxation, n_iter=TIGHT).imag / 1e-30
        assert slope == pytest.approx(gradient[i], abs=1e-11)


@pytest.mark.parametrize("gain", ["ndcg", TABLE, "map"], ids=named)
@pytest.mark.parametrize("relaxation", [SMOOTHED[1], SMOOTHED[3], *PARTITIONED], ids=str)
def test_the_gradient_is_that_of_finite_differences_of_the_limit(relaxation, gain):
    n, h = 12, 1e-3
    y, labels = scores_of(relaxation, n, seed=3), labels_of(gain, n)
    given = {"gain": gain, "relaxation": relaxation, "n_iter": Converged(1e-14)}
    gradient = expected_gain(y, labels, gain=gain, relaxation=relaxation, n_iter="converged").gradient
    numeric = np.empty_like(y)
    # differences of 8 values, whose error is of the order h^8, so that rounding errors stay small
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1e-14 is just out of reach for some steps
        for i in np.ndindex(y.shape):
            values = []
            for k in (1, 2, 3, 4):
                ends = []
                for sign in (1, -1):
                    moved = y.copy()
                    moved[i] += sign * k * h
                    ends.append(expected_gain(moved, labels, **given).value)
                values.append(ends[0] - ends[1])
            numeric[i] = np.dot(values, [4 / 5, -1 / 5, 4 / 105, -1 / 280]) / h
    close(gradient, numeric, 1e-8)


def test_two_documents_by_hand():
    # A = [[1, a], [a, 1]], whose limit is A / (1 + a)
    y, sigma = np.array([0.3, 1.0]), 0.5
    a = np.exp(-0.5 * (0.7 / sigma) ** 2)
    r = expected_gain(y, [1, 0], gain="p@1", relaxation=SmoothedIndicator(sigma), n_iter=TIGHT, epsilon=0)
    assert r.value == pytest.approx(a / (1 + a), abs=1e-14)
    # d/da of a / (1 + a) is 1 / (1 + a)^2, and da/dy_0 = a * 0.7 / sigma^2
    slope = a * 0.7 / sigma**2 / (1 + a) ** 2
    assert_allclose(r.gradient, [slope, -slope], atol=1e-13)


def test_tied_documents_have_equal_probabilities():
    Pi = doubly_stochastic(np.zeros(6), n_iter="converged")
    assert_allclose(Pi, np.full((6, 6), 1 / 6), atol=1e-15)


@pytest.mark.parametrize("relaxation", [SMOOTHED[1], SMOOTHED[3], PARTITIONED[1]], ids=str)
def test_many_iterations_approach_the_limit(relaxation):
    y, labels = scores_of(relaxation, 25), labels_of("ndcg", 25)
    many = expected_gain(y, labels, relaxation=relaxation, n_iter=3000)
    limit = expected_gain(y, labels, relaxation=relaxation, n_iter=TIGHT)
    assert limit.value == pytest.approx(many.value, abs=1e-10)
    close(limit.gradient, many.gradient, 1e-7)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
    st.floats(-7, 7),
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from(EPSILONS),
    st.sampled_from([1.0, 1e-6, 1e200]),
)
def test_25_products_suffice_for_any_scores_and_width(y, width, kernel, epsilon, unit):
    y = np.array(y) * unit
    smoothed = SmoothedIndicator(10.0**width * unit, kernel=kernel, accuracy="exact")
    given = {"relaxation": smoothed, "n_iter": Converged(1e-11, max_iter=25), "epsilon": epsilon}
    r = expected_gain(y, np.arange(len(y)) % 3, **given)  # a warning would be an error
    assert np.isfinite(r.gradient).all()
    Pi = doubly_stochastic(y, **given)
    assert_allclose(Pi.sum(axis=0), 1, atol=1e-10)
    assert_allclose(Pi.sum(axis=1), 1, atol=1e-10)


@cache
def dense_problem(banded):
    """Scores, labels, and what the definition gives for them; its limit takes longer than all methods."""
    rng = np.random.default_rng(5)
    n = 60 if banded else 150
    y = np.arange(60) * 0.2 + rng.random(60) / 10 if banded else rng.normal(size=n)
    labels, smoothed = rng.integers(0, 3, n), SmoothedIndicator(0.1)
    ndcg = reference.expected_gain(y, labels, "ndcg", smoothed, n_iter=TIGHT)
    return y, labels, *ndcg, reference.expected_gain(y, labels > 0, "map", smoothed, n_iter=TIGHT)[0]


@pytest.mark.parametrize("accuracy", ["fast", "exact"])
@pytest.mark.parametrize("method", ["direct", "banded", "cells", "sums", "fine cells"])
def test_all_methods_agree(method, accuracy):
    y, labels, dense, gradient, average_precision = dense_problem(method == "banded")
    smoothed = SmoothedIndicator(0.1, accuracy=accuracy)
    _native.use_method(method)
    try:
        r = expected_gain(y, labels, relaxation=smoothed, n_iter=Converged(1e-12))
        terms = expected_gain(y, labels > 0, gain="map", relaxation=smoothed, n_iter="converged")
    finally:
        _native.use_method("auto")
    exact = accuracy == "exact" and method != "fine cells"
    assert r.value == pytest.approx(dense, abs=1e-10 if exact else 1e-5)
    close(r.gradient, gradient, 1e-8 if exact else 2e-5)
    assert terms.value == pytest.approx(average_precision, abs=1e-8 if exact else 1e-5)


@pytest.mark.parametrize("relaxation", [SmoothedIndicator(0.3), PARTITIONED[0]], ids=str)
@pytest.mark.parametrize("gain", ["ndcg", "map"])
def test_queries_do_not_affect_each_other_and_threads_change_no_bit(relaxation, gain):
    y, qid = scores_of(relaxation, 5000 if relaxation.width == 1 else 300), np.arange(5000) % 7
    qid, labels = qid[: len(y)], labels_of(gain, len(y))
    weights = np.random.default_rng(1).random(len(y))
    given = {"gain": gain, "relaxation": relaxation, "n_iter": "converged", "sample_weight": weights}
    one, two = (expected_gain(y, labels, qid, **given, n_threads=k) for k in (1, 2))
    assert_array_equal(one.gradient, two.gradient)
    assert_array_equal(one.residual, two.residual)
    of_3 = qid == 3
    alone = expected_gain(y[of_3], labels[of_3], **{**given, "sample_weight": weights[of_3]})
    assert alone.value == one.per_query[3]
    assert alone.residual[0] == one.residual[3]


@pytest.mark.parametrize("relaxation", PARTITIONED, ids=str)
@pytest.mark.parametrize("scale", [0.0, -3.0, -6.0, -10.0])
def test_partitioned_measures_converge_where_iterations_do_not(relaxation, scale):
    rng = np.random.default_rng(0)
    beta = relaxation.family == "beta"
    theta = rng.normal(size=(60, 2)) * [1, 0.3] + ([-scale / 2, -scale / 2] if beta else [0, scale])
    labels = rng.integers(0, 3, 60)
    value, gradient = reference.expected_gain(
        theta.clip(*relaxation.limits), labels, "ndcg", relaxation, n_iter=Converged(1e-12)
    )
    r = expected_gain(theta, labels, relaxation=relaxation, n_iter=Converged(1e-11))
    assert r.residual[0] <= 1e-11
    assert r.value == pytest.approx(value, abs=1e-8)
    close(r.gradient, gradient, 1e-4 if scale < -5 else 1e-7)


class TestResidual:
    def test_it_is_none_for_a_number_of_iterations(self):
        assert expected_gain([0.1, 0.2], [0, 1]).residual is None

    def test_it_is_0_for_a_query_without_gain(self):
        r = expected_gain([0.1, 0.2, 0.3], [0, 0, 1], [1, 1, 2], n_iter="converged")
        assert r.residual[0] == 0
        assert r.residual[1] <= 1e-9

    @pytest.mark.parametrize("relaxation", [SmoothedIndicator(0.5), PARTITIONED[0]], ids=str)
    def test_too_few_iterations_are_a_warning_that_says_what_is_left(self, relaxation):
        y, labels = scores_of(relaxation, 20), labels_of("ndcg", 20)
        few = {"relaxation": relaxation, "n_iter": Converged(max_iter=2)}
        message = r"did not converge for 1 of 1 queries: .* more than tol=1e-09"
        with pytest.warns(RuntimeWarning, match=message) as caught:
            r = expected_gain(y, labels, **few)
        assert caught[0].filename == __file__
        with pytest.warns(RuntimeWarning, match=message) as caught:
            expected_ranks(y, **few)
        assert caught[0].filename == __file__
        # the residual is that of the probabilities that were used
        assert r.residual[0] > 1e-4
        with pytest.warns(RuntimeWarning, match="did not converge"):
            Pi = doubly_stochastic(y, ranks=range(1, 21), relaxation=relaxation, n_iter=Converged(max_iter=2))
        worst = max(abs(Pi.sum(axis=0) - 1).max(), abs(Pi.sum(axis=1) - 1).max())
        assert worst == pytest.approx(r.residual[0], rel=1e-6)

    def test_a_tolerance_below_rounding_errors_ends_with_a_warning(self):
        y = np.random.default_rng(0).normal(size=200)
        with pytest.warns(RuntimeWarning, match="did not converge"):
            r = expected_gain(y, y > 0, n_iter=Converged(tol=1e-300))
        assert r.residual[0] < 1e-13

    def test_a_matrix_without_a_limit_is_a_warning(self):
        # without epsilon, both documents have all their mass in the first bin
        theta = [[-30.0, -3.0], [-30.0, -3.0]]
        with pytest.warns(RuntimeWarning, match="did not converge"):
            expected_gain(theta, [0, 1], relaxation="logit-logistic", n_iter="converged", epsilon=0)


class TestDistributions:
    @pytest.mark.parametrize("relaxation", [*SMOOTHED, *PARTITIONED], ids=str)
    def test_all_are_sums_of_the_same_matrix(self, relaxation):
        y = scores_of(relaxation, 15)
        Pi = reference.sinkhorn(reference.pre_sinkhorn(y, relaxation) + 1e-6, TIGHT)
        given = {"relaxation": relaxation, "n_iter": Converged(1e-12)}
        assert_allclose(doubly_stochastic(y, **given), Pi, atol=1e-11)
        assert_allclose(doubly_stochastic(y, ranks=[3, 1], **given), Pi[:, [2, 0]], atol=1e-11)
        assert_allclose(expected_ranks(y, **given), Pi @ np.arange(1, 16), atol=1e-9)
        assert_allclose(top_k_probability(y, 4, **given), Pi[:, :4].sum(axis=1), atol=1e-10)
        assert expected_ranks(y, **given).sum() == pytest.approx(15 * 16 / 2, abs=1e-9)


class TestSinkhorn:
    def test_it_is_the_matrix_of_sinkhorn_limit(self):
        A = np.random.default_rng(0).random((6, 6))
        assert_array_equal(sinkhorn(A, "converged"), sinkhorn_limit(A, max_iter=1000).matrix)

    def test_a_matrix_without_a_limit_is_an_error(self):
        with pytest.raises(ValueError, match="No doubly-stochastic limit exists"):
            sinkhorn([[1, 1, 1], [0, 0, 1], [0, 0, 2]], "converged")
        assert_allclose(sinkhorn([[1, 1, 1], [0, 0, 1], [0, 0, 2]], "converged", epsilon=0.1).sum(axis=0), 1)

    @pytest.mark.parametrize("spread", [1, 8])
    def test_the_gradient_is_that_of_finite_differences(self, spread):
        rng = np.random.default_rng(1)
        A, C = np.exp(spread * rng.normal(size=(5, 5))), rng.normal(size=(5, 5))
        gradient = sinkhorn_vjp(A, C, TIGHT)
        for i in np.ndindex(A.shape):
            h = 1e-5 * A[i]
            up, down = A.copy(), A.copy()
            up[i] += h
            down[i] -= h
            slope = (C * (sinkhorn(up, TIGHT) - sinkhorn(down, TIGHT))).sum() / (2 * h)
            assert slope * A[i] == pytest.approx(gradient[i] * A[i], abs=1e-7)

    def test_the_gradient_vanishes_for_multiples_of_rows_and_columns(self):
        rng = np.random.default_rng(2)
        A, C = rng.random((6, 6)), rng.normal(size=(6, 6))
        products = A * sinkhorn_vjp(A, C, TIGHT)
        assert_allclose(products.sum(axis=0), 0, atol=1e-12)
        assert_allclose(products.sum(axis=1), 0, atol=1e-12)

    def test_a_limit_in_blocks_has_a_gradient(self):
        A = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 5.0]])
        C = np.arange(9.0).reshape(3, 3)
        gradient = sinkhorn_vjp(A, C, TIGHT)
        h = 1e-6
        for i in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 2)):
            up, down = A.copy(), A.copy()
            up[i] += h
            down[i] -= h
            slope = (C * (sinkhorn(up, TIGHT) - sinkhorn(down, TIGHT))).sum() / (2 * h)
            assert slope == pytest.approx(gradient[i], abs=1e-8)


class TestSetting:
    @pytest.mark.parametrize(
        "setting", [Converged(), Converged(1e-6), Converged(1e-12, 50), Converged(max_iter=7)]
    )
    def test_the_text_form_is_read_again(self, setting):
        assert as_iterations(str(setting)) == setting

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("convergd", "'converged' or a form such as"),
            ("converged@3", "'converged' or a form such as"),
            ("converged(tol=0)", "tol must be a finite number, above 0"),
            ("converged(tol=x)", "tol must be a number; got 'x'"),
            ("converged(max_iter=1.5)", "max_iter must be an integer"),
            ("converged(steps=3)", "'steps' is not an option"),
            ("5", "'converged' or a form such as"),
            ([5], "a number of iterations, 'converged' or a Converged"),
            (-1, "n_iter must be a number of iterations"),
            (None, "n_iter must be a number of iterations"),
        ],
    )
    def test_other_values_are_an_error(self, given, message):
        with pytest.raises(ValueError, match=message):
            expected_gain([0.1], [1], n_iter=given)

    @pytest.mark.parametrize(
        "given", [{"tol": 0}, {"tol": -1.0}, {"tol": np.inf}, {"max_iter": 0}, {"max_iter": 2.5}]
    )
    def test_a_tolerance_and_a_limit_are_positive(self, given):
        with pytest.raises(ValueError, match=f"Converged: {next(iter(given))}"):
            Converged(**given)

    def test_it_is_a_value(self):
        assert Converged() == sinkprop.Converged(1e-9)
        assert len({Converged(), Converged()}) == 1
