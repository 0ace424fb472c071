"""Sinkhorn normalization against arithmetic, dense loops, complex steps, torch, POT, mpmath, brute force."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sinkprop import SinkhornStatus, sinkhorn, sinkhorn_limit, sinkhorn_vjp
from sinkprop.objective import sinkhorn as normalization
from sinkprop.objective import sinkhorn_limit as balance

CONVERGED, PARTIAL, MAX_ITER, NO_SUPPORT = (
    SinkhornStatus.CONVERGED,
    SinkhornStatus.PARTIAL_SUPPORT,
    SinkhornStatus.MAX_ITER,
    SinkhornStatus.NO_SUPPORT,
)


def exactly(message):
    return f"^{re.escape(message)}$"


def dense(A, n_iter):
    """The definition: n_iter times, columns then rows; a half more: columns. Complex and Fraction too."""
    Z = np.array(A)
    for _ in range(int(n_iter)):
        Z = Z / Z.sum(axis=0)
        Z = Z / Z.sum(axis=1)[:, None]
    return Z if n_iter == int(n_iter) else Z / Z.sum(axis=0)


def multiprecision(A, n_iter):
    with mpmath.workdps(60):
        Z = np.array([[mpmath.mpf(float(x)) for x in row] for row in A], dtype=object)
        return dense(Z, n_iter)


def complex_step(A, C, n_iter):
    A = np.asarray(A, dtype=float)
    gradient = np.empty_like(A)
    for i, j in np.ndindex(A.shape):
        Z = A.astype(complex)
        Z[i, j] += 1e-200j
        gradient[i, j] = (C * dense(Z, n_iter)).sum().imag / 1e-200
    return gradient


def problem(n, *, seed=0, zeros=0.0):
    """A nonnegative matrix with a positive diagonal, and a cotangent."""
    rng = np.random.default_rng([n, seed])
    A = rng.exponential(size=(n, n)) * (rng.random((n, n)) >= zeros) + 0.1 * np.eye(n)
    return A, rng.normal(size=(n, n))


def extremes():
    """Matrices whose plain iterates overflow or underflow."""
    rng = np.random.default_rng(5)
    return {
        "rows apart": np.array([[1e300, 1e300], [1e-300, 1e-300]]),
        "columns apart": np.array([[1e300, 1e-300], [1e300, 1e-300]]),
        "corner": np.array([[1.0, 1.0], [1e-300, 1.0]]),
        "all tiny": np.full((3, 3), 1e-300) * np.array([1.0, 2.0, 3.0]),
        "all huge": np.full((3, 3), 1e300) * np.array([[1.0], [2.0], [7.0]]),
        "subnormal": np.array([[5e-324, 1e-310], [1.0, 2e-320]]),
        "uniform exponents 3": 10.0 ** rng.uniform(-300, 300, (3, 3)),
        "uniform exponents 6": 10.0 ** rng.uniform(-300, 300, (6, 6)),
        "zeros too": np.array([[1e300, 0.0, 1e-300], [0.0, 1e-200, 1.0], [1e-300, 1e250, 0.0]]),
    }


positive_matrices = st.integers(1, 6).flatmap(
    lambda n: arrays(float, (n, n), elements=st.floats(1e-3, 1e3, allow_subnormal=False))
)
wild_matrices = st.integers(1, 5).flatmap(
    lambda n: arrays(float, (n, n), elements=st.floats(-300.0, 300.0).map(lambda e: 10.0**e))
)


class TestSinkhorn:
    def test_one_iteration_by_hand(self):
        # Columns sum to 2 and 4: [[1/2, 3/4], [1/2, 1/4]]. Rows then sum to 5/4 and 3/4.
        expected = [[(1 / 2) / (5 / 4), (3 / 4) / (5 / 4)], [(1 / 2) / (3 / 4), (1 / 4) / (3 / 4)]]
        np.testing.assert_allclose(sinkhorn([[1, 3], [1, 1]], n_iter=1), expected, rtol=1e-15)

    def test_epsilon_by_hand(self):
        # [[0, 2], [0, 0]] + 1 = [[1, 3], [1, 1]], as above.
        result = sinkhorn([[0, 2], [0, 0]], n_iter=1, epsilon=1)
        np.testing.assert_allclose(result, [[2 / 5, 3 / 5], [2 / 3, 1 / 3]], rtol=1e-15)

    @pytest.mark.parametrize("n_iter", [0.5, 1, 1.5, 2, 3, 4])
    def test_exact_rational_arithmetic(self, n_iter):
        A = [[1, 2, 0], [3, 5, 7], [0, 1, 4]]
        exact = dense(np.array([[Fraction(x) for x in row] for row in A], dtype=object), n_iter)
        np.testing.assert_allclose(sinkhorn(A, n_iter), exact.astype(float), rtol=1e-14)

    def test_five_iterations_by_default(self):
        A, _ = problem(4)
        np.testing.assert_array_equal(sinkhorn(A), sinkhorn(A, 5))
        assert np.abs(sinkhorn(A) - sinkhorn(A, 4)).max() > 1e-9

    @pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
    @pytest.mark.parametrize("n_iter", [0.5, 1, 2, 2.5, 5, 30])
    @pytest.mark.parametrize("zeros", [0.0, 0.6])
    def test_dense_loop(self, n, n_iter, zeros):
        A, _ = problem(n, zeros=zeros)
        np.testing.assert_allclose(sinkhorn(A, n_iter), dense(A, n_iter), rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(
            sinkhorn(A, n_iter, epsilon=1e-3), dense(A + 1e-3, n_iter), rtol=1e-12, atol=0
        )

    @pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, bool])
    def test_any_real_dtype_gives_float64(self, dtype):
        A = np.array([[1, 1], [1, 0]], dtype=dtype)
        result = sinkhorn(A, 1)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, [[1 / 3, 2 / 3], [1, 0]], rtol=1e-15)

    @pytest.mark.parametrize("n_iter", [0, 1, 5])
    def test_input_is_left_alone(self, n_iter):
        A, C = problem(3)
        before = A.copy(), C.copy()
        results = [sinkhorn(A, n_iter, epsilon=0.5), sinkhorn_vjp(A, C, n_iter, epsilon=0.5)]
        results.append(sinkhorn_limit(A * [[1.0, 1.0, 1.0], [0, 1, 1], [0, 0, 1]]).matrix)
        np.testing.assert_array_equal(A, before[0])
        np.testing.assert_array_equal(C, before[1])
        assert not any(np.shares_memory(result, x) for result in results for x in (A, C))

    def test_no_iterations_gives_a_plus_epsilon(self):
        np.testing.assert_array_equal(sinkhorn([[0, 2], [0, 3]], 0, epsilon=0.5), [[0.5, 2.5], [0.5, 3.5]])

    @pytest.mark.parametrize("layout", ["F", "transposed", "strided"])
    def test_memory_layouts(self, layout):
        A, C = problem(4)
        view = {
            "F": np.asfortranarray,
            "transposed": lambda X: X.T.copy().T,
            "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
        }[layout]
        np.testing.assert_allclose(sinkhorn(view(A)), sinkhorn(A), rtol=1e-15)
        np.testing.assert_allclose(sinkhorn_vjp(view(A), view(C)), sinkhorn_vjp(A, C), rtol=1e-12, atol=1e-15)

    @given(positive_matrices, st.integers(1, 8))
    def test_rows_sum_to_one_after_every_iteration(self, A, n_iter):
        np.testing.assert_allclose(sinkhorn(A, n_iter).sum(axis=1), 1.0, rtol=1e-13)

    @given(wild_matrices, st.integers(1, 4))
    def test_rows_sum_to_one_whatever_the_magnitudes(self, A, n_iter):
        np.testing.assert_allclose(sinkhorn(A, n_iter).sum(axis=1), 1.0, rtol=1e-13)

    @given(positive_matrices, st.randoms(use_true_random=False))
    def test_permuting_rows_and_columns_permutes_the_result(self, A, random):
        rows, columns = (random.sample(range(len(A)), len(A)) for _ in range(2))
        expected = sinkhorn(A)[np.ix_(rows, columns)]
        np.testing.assert_allclose(sinkhorn(A[np.ix_(rows, columns)]), expected, rtol=1e-12)

    @given(positive_matrices, st.integers(-40, 40), st.integers(1, 5))
    def test_scaling_columns_changes_nothing(self, A, exponent, n_iter):
        scale = 10.0 ** (exponent * np.linspace(-1, 1, len(A)))
        np.testing.assert_allclose(sinkhorn(A * scale, n_iter), sinkhorn(A, n_iter), rtol=1e-11)

    def test_scaling_a_row_changes_an_incomplete_normalization_but_not_the_limit(self):
        A = np.array([[1.0, 3.0], [1.0, 1.0]])
        scaled = A * [[10.0], [1.0]]
        # Columns sum to 11 and 31; row 0 is then (10/11, 30/31).
        first = np.array([10 / 11, 30 / 31])
        np.testing.assert_allclose(sinkhorn(scaled, 1)[0], first / first.sum(), rtol=1e-15)
        assert abs(sinkhorn(scaled, 1)[0, 0] - sinkhorn(A, 1)[0, 0]) > 0.05
        np.testing.assert_allclose(sinkhorn_limit(scaled).matrix, sinkhorn_limit(A).matrix, atol=1e-9)

    @given(positive_matrices, st.integers(0, 3), st.integers(0, 3))
    def test_iterations_compose(self, A, first, second):
        np.testing.assert_allclose(
            sinkhorn(sinkhorn(A, first), second), sinkhorn(A, first + second), rtol=1e-12
        )

    @pytest.mark.parametrize("zeros", [0.0, 0.5])
    @pytest.mark.parametrize("n_iter", [0.5, 1, 2, 4.5, 7])
    def test_log_domain_agrees_with_plain_products(self, monkeypatch, zeros, n_iter):
        A, C = problem(9, zeros=zeros)
        plain = sinkhorn(A, n_iter), sinkhorn_vjp(A, C, n_iter)
        monkeypatch.setattr(normalization, "LARGE", 0.0)
        np.testing.assert_allclose(sinkhorn(A, n_iter), plain[0], rtol=1e-12)
        np.testing.assert_allclose(sinkhorn_vjp(A, C, n_iter), plain[1], rtol=1e-10, atol=1e-12)

    def test_extremes_by_hand(self):
        result = sinkhorn([[1e300, 1e300], [1e-300, 1e-300]])
        np.testing.assert_allclose(result, np.full((2, 2), 0.5), rtol=1e-15)

    @pytest.mark.parametrize("name", extremes())
    @pytest.mark.parametrize("n_iter", [0.5, 1, 1.5, 2, 5])
    def test_extremes_against_multiprecision(self, name, n_iter):
        A = extremes()[name]
        with np.errstate(all="raise"):
            result = sinkhorn(A, n_iter)
        expected = multiprecision(A, n_iter).astype(float)
        np.testing.assert_allclose(result, expected, rtol=2e-12, atol=1e-300)

    def test_diverging_scalings(self):
        # No positive diagonal: rows 1 and 2 share column 0. The scalings grow like 2^n_iter, past any float.
        result = sinkhorn([[1, 1, 1], [1, 0, 0], [1, 0, 0]], 5000)
        np.testing.assert_allclose(result, [[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]], atol=1e-15)


class TestSinkhornVjp:
    def test_one_iteration_by_hand(self):
        # One document: Z = 1 whatever A is. Two documents on the antidiagonal only: the same.
        np.testing.assert_array_equal(sinkhorn_vjp([[3.0]], [[2.0]]), [[0.0]])
        # A = [[1, a], [0, 1]]: columns give a/(1+a) and 1/(1+a), row 0 then (1, a/(1+a)) / (1 + a/(1+a)), so
        # Z_01 = a/(1+2a), and d Z_01 / da = 1/(1+2a)^2 = 1/9 at a = 1.
        gradient = sinkhorn_vjp([[1, 1], [0, 1]], [[0, 1], [0, 0]], 1)
        assert gradient[0, 1] == pytest.approx(1 / 9, rel=1e-15)

    @pytest.mark.parametrize("n", [1, 2, 3, 6])
    @pytest.mark.parametrize("n_iter", [0, 0.5, 1, 2, 2.5, 5, 9])
    @pytest.mark.parametrize("zeros", [0.0, 0.6])
    def test_complex_step(self, n, n_iter, zeros):
        A, C = problem(n, zeros=zeros)
        np.testing.assert_allclose(
            sinkhorn_vjp(A, C, n_iter), complex_step(A, C, n_iter), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(
            sinkhorn_vjp(A, C, n_iter, epsilon=0.01),
            complex_step(A + 0.01, C, n_iter),
            rtol=1e-12,
            atol=1e-12,
        )

    @pytest.mark.parametrize("n_iter", [1, 5])
    def test_torch_autograd(self, n_iter):
        import torch

        A, C = problem(25, zeros=0.3)
        leaf = torch.tensor(A, requires_grad=True)
        Z = leaf + 1e-6
        for _ in range(n_iter):
            Z = Z / Z.sum(0, keepdim=True)
            Z = Z / Z.sum(1, keepdim=True)
        (torch.tensor(C) * Z).sum().backward()
        result = sinkhorn_vjp(A, C, n_iter, epsilon=1e-6)
        np.testing.assert_allclose(result, leaf.grad.numpy(), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("name", [name for name in extremes() if name != "subnormal"])
    @pytest.mark.parametrize("n_iter", [0.5, 1, 2.5, 3])
    def test_extremes_against_multiprecision(self, name, n_iter):
        A = extremes()[name]
        C = np.random.default_rng(2).normal(size=A.shape)
        with np.errstate(all="raise"):
            result = sinkhorn_vjp(A, C, n_iter)
        with mpmath.workdps(1500):
            Z = np.array([[mpmath.mpf(float(x)) for x in row] for row in A], dtype=object)
            base = (C * dense(Z, n_iter)).sum()
            for i, j in np.ndindex(A.shape):
                moved = Z.copy()
                # Far below every entry: the difference quotient is the derivative to hundreds of digits.
                h = mpmath.mpf(10) ** -700
                moved[i, j] += h
                exact = ((C * dense(moved, n_iter)).sum() - base) / h
                # 1 / A bounds the terms that cancel in the derivative with respect to a positive entry.
                scale = 1e-11 * abs(exact) + (1e-12 / Z[i, j] if Z[i, j] else 0)
                if abs(exact) < sys.float_info.max:
                    assert abs(mpmath.mpf(float(result[i, j])) - exact) <= scale, (i, j)
                else:
                    assert result[i, j] == math.copysign(math.inf, exact)

    def test_derivative_beyond_float64_is_a_signed_infinity(self):
        # With x = A_00 / (A_00 + A_10) and y = A_01 / (A_01 + A_11), Z_00 = x / (x + y), so at four equal
        # entries a its derivatives are 1 / (8 a) on the diagonal, and the opposite off it: 1.25e309 here.
        with np.errstate(all="raise"):
            gradient = sinkhorn_vjp(np.full((2, 2), 1e-310), [[1, 0], [0, 0]], 1)
        np.testing.assert_array_equal(gradient, [[math.inf, -math.inf], [-math.inf, math.inf]])

    def test_huge_and_tiny_cotangents(self):
        A, C = problem(4)
        reference = sinkhorn_vjp(A, C)
        for power in (-900, 900):
            scale = 2.0**power
            np.testing.assert_allclose(sinkhorn_vjp(A, C * scale), reference * scale, rtol=1e-13)
        np.testing.assert_array_equal(sinkhorn_vjp(A, np.zeros((4, 4))), np.zeros((4, 4)))

    def test_no_iterations_give_the_cotangent(self):
        A, C = problem(3)
        np.testing.assert_array_equal(sinkhorn_vjp(A, C, 0), C)

    @given(positive_matrices, st.integers(1, 5), st.integers(0, 2**32 - 1))
    def test_scaling_a_column_has_no_first_order_effect(self, A, n_iter, seed):
        C = np.random.default_rng(seed).normal(size=A.shape)
        terms = A * sinkhorn_vjp(A, C, n_iter)
        np.testing.assert_allclose(terms.sum(axis=0), 0.0, atol=1e-12 * len(A) * np.abs(C).max())

    @given(positive_matrices, st.integers(1, 5))
    def test_weights_constant_along_rows_have_no_gradient(self, A, n_iter):
        C = np.tile(np.arange(1.0, len(A) + 1)[:, None], len(A))
        np.testing.assert_allclose(A * sinkhorn_vjp(A, C, n_iter), 0.0, atol=1e-12 * len(A) ** 2)

    def test_memory_does_not_grow_with_iterations(self):
        A, C = problem(200)
        sinkhorn_vjp(A, C, 1)
        tracemalloc.start()
        sinkhorn_vjp(A, C, 60)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Sixty stored matrices would take 60 A.nbytes; 120 stored vectors, twice, take 1.2.
        assert peak < 12 * A.nbytes


class TestSinkhornLimit:
    def test_two_by_two_by_hand(self):
        # [[a, 1 - a], [1 - a, a]] with (a / (1 - a))^2 = (1 * 1) / (4 * 1), so a = 1/3.
        limit = sinkhorn_limit([[1, 4], [1, 1]])
        assert limit.status is CONVERGED
        assert limit.converged
        np.testing.assert_allclose(limit.matrix, [[1 / 3, 2 / 3], [2 / 3, 1 / 3]], atol=1e-9)

    @pytest.mark.parametrize(("n", "spread"), [(2, 1.0), (5, 3.0), (30, 1.0), (30, 5.0)])
    def test_optimal_transport(self, n, spread):
        import ot

        log_A = spread * np.random.default_rng(n).normal(size=(n, n))
        weights = np.full(n, 1 / n)
        plan = ot.bregman.sinkhorn_log(weights, weights, -log_A, reg=1.0, numItermax=100_000, stopThr=1e-14)
        limit = sinkhorn_limit(np.exp(log_A), tol=1e-12)
        assert limit.status is CONVERGED
        np.testing.assert_allclose(limit.matrix, n * plan, atol=1e-10)

    def test_incomplete_iterations_approach_it(self):
        A, _ = problem(6)
        np.testing.assert_allclose(sinkhorn(A, 500), sinkhorn_limit(A).matrix, atol=1e-8)

    @given(wild_matrices)
    def test_positive_matrices_of_any_magnitude_converge(self, A):
        with np.errstate(all="raise"):
            limit = sinkhorn_limit(A)
        assert limit.status is CONVERGED
        np.testing.assert_allclose(limit.matrix.sum(axis=0), 1.0, atol=1e-9)
        np.testing.assert_allclose(limit.matrix.sum(axis=1), 1.0, atol=1e-9)
        # Being a scaling of A and doubly stochastic determines the limit.
        scaled = np.exp(limit.log_u[:, None] + np.log(A) + limit.log_v)
        np.testing.assert_allclose(limit.matrix, scaled, rtol=1e-11, atol=1e-300)

    @given(wild_matrices, st.randoms(use_true_random=False))
    def test_permuting_rows_and_columns_permutes_the_limit(self, A, random):
        rows, columns = (random.sample(range(len(A)), len(A)) for _ in range(2))
        kept = np.ix_(rows, columns)
        np.testing.assert_allclose(sinkhorn_limit(A[kept]).matrix, sinkhorn_limit(A).matrix[kept], atol=1e-7)

    @given(positive_matrices, st.integers(-50, 50), st.integers(-50, 50))
    def test_scaling_rows_and_columns_changes_nothing(self, A, a, b):
        ramp = np.linspace(-1, 1, len(A))
        scaled = 10.0 ** (a * ramp)[:, None] * A * 10.0 ** (b * ramp)
        np.testing.assert_allclose(sinkhorn_limit(scaled).matrix, sinkhorn_limit(A).matrix, atol=1e-7)

    def test_nearly_vanishing_entries_converge_quickly(self):
        # Sinkhorn sweeps alone halve the error with every doubling of their number here.
        limit = sinkhorn_limit([[1.0, 1.0], [1e-300, 1.0]])
        assert limit.status is CONVERGED
        assert limit.n_iter < 100
        np.testing.assert_allclose(limit.matrix, np.eye(2), atol=2e-9)

    def test_best_assignment_is_where_newton_starts(self):
        # Nine of ten rows crowd into five columns, and must be driven out by factors near 1e300: twenty
        # sweeps show that this is slow, and from the best assignment's scalings a few steps suffice.
        A = np.full((10, 10), 1e-300)
        A[:, :5] = A[0] = 1.0
        limit = sinkhorn_limit(A)
        assert limit.status is CONVERGED
        assert limit.n_iter <= 30

    def test_moderate_coupling_by_hand(self):
        # (a / (1 - a))^2 = 1 / 1e-12, so 1 - a = 1 / (1 + 1e6).
        limit = sinkhorn_limit([[1.0, 1.0], [1e-12, 1.0]], tol=1e-13)
        assert limit.status is CONVERGED
        assert limit.matrix[0, 1] == pytest.approx(1 / (1 + 1e6), rel=1e-6)

    def test_newton_failing_leaves_the_sweeps(self, monkeypatch):
        monkeypatch.setattr(balance, "_newton_step", lambda P: None)
        limit = sinkhorn_limit([[1.0, 1.0], [1e-4, 1.0]])
        assert limit.status is CONVERGED
        assert limit.matrix[0, 1] == pytest.approx(1 / 101, abs=1e-8)

    @pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-12])
    def test_tolerance_is_kept(self, tol):
        A, _ = problem(12)
        limit = sinkhorn_limit(A, tol=tol)
        errors = [np.abs(limit.matrix.sum(axis=axis) - 1).max() for axis in (1, 0)]
        assert limit.tol == tol
        assert max(errors) <= tol
        assert (limit.row_error, limit.column_error) == tuple(errors)

    def test_iterations_run_out(self):
        A, _ = problem(12)
        limit = sinkhorn_limit(A, tol=1e-12, max_iter=3)
        assert limit.status is MAX_ITER
        assert not limit.converged
        assert limit.n_iter == 3
        np.testing.assert_allclose(limit.matrix, sinkhorn(A, 3), rtol=1e-12)
        assert limit.message == (
            f"Not converged in 3 iterations: a row or column sum is {limit.column_error:.1e} from 1, "
            "more than tol=1e-12; raise max_iter or tol."
        )

    def test_sweeps_count_as_iterations(self):
        A, _ = problem(12)
        limit = sinkhorn_limit(A, tol=1e-6)
        np.testing.assert_allclose(limit.matrix, sinkhorn(A, limit.n_iter), rtol=1e-12)
        assert np.abs(sinkhorn(A, limit.n_iter - 1).sum(axis=0) - 1).max() > 1e-6


def brute_force_support(pattern):
    """Whether a positive diagonal exists, and which entries lie on one, over all permutations."""
    n = len(pattern)
    covered = np.zeros_like(pattern)
    for permutation in itertools.permutations(range(n)):
        if all(pattern[i, permutation[i]] for i in range(n)):
            covered[range(n), permutation] = True
    return covered.any(), covered


def all_patterns():
    for n in (1, 2, 3):
        for bits in itertools.product([False, True], repeat=n * n):
            yield np.array(bits).reshape(n, n)
    rng = np.random.default_rng(11)
    for density in (0.3, 0.5, 0.7):
        for _ in range(60):
            yield rng.random((4, 4)) < density


class TestZeroPatterns:
    def test_every_pattern_has_the_right_status(self):
        seen = set()
        rng = np.random.default_rng(0)
        for pattern in all_patterns():
            A = pattern * rng.exponential(size=pattern.shape)
            has_support, covered = brute_force_support(pattern)
            with np.errstate(all="raise"):
                limit = sinkhorn_limit(A)
            seen.add(limit.status)
            for array in (limit.matrix, limit.log_u, limit.log_v):
                assert np.isfinite(array).all()
            assert limit.converged == has_support
            if not has_support:
                assert limit.status is NO_SUPPORT
                rows, columns = list(limit.deficient_rows), list(limit.deficient_columns)
                assert len(columns) == len(rows) - 1
                assert np.flatnonzero(pattern[rows].any(axis=0)).tolist() == columns
                sums = limit.matrix.sum(axis=1)
                np.testing.assert_allclose(sums, pattern.any(axis=1), atol=1e-12)
                assert limit.column_error > 1e-3
                continue
            n_vanished = int((pattern & ~covered).sum())
            assert limit.n_vanished == n_vanished
            assert limit.status is (PARTIAL if n_vanished else CONVERGED)
            np.testing.assert_array_equal(limit.matrix > 0, covered)
            with np.errstate(divide="ignore"):
                scaled = np.exp(limit.log_u[:, None] + np.log(A) + limit.log_v)
            np.testing.assert_allclose(limit.matrix[covered], scaled[covered], rtol=1e-12)
            assert max(limit.row_error, limit.column_error) <= 1e-9
        assert seen == {CONVERGED, PARTIAL, NO_SUPPORT}

    def test_partial_support_is_the_limit_of_the_iterations(self):
        # The entry below the diagonal blocks lies on no positive diagonal and decays like 1 / n_iter.
        A = [[1.0, 4.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
        limit = sinkhorn_limit(A)
        assert limit.status is PARTIAL
        np.testing.assert_allclose(limit.matrix, [[1 / 3, 2 / 3, 0], [2 / 3, 1 / 3, 0], [0, 0, 1]], atol=1e-9)
        np.testing.assert_allclose(sinkhorn(A, 3000), limit.matrix, atol=2e-3)

    def test_no_support_gives_the_limit_of_the_row_normalized_iterates(self):
        A = [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
        limit = sinkhorn_limit(A)
        np.testing.assert_allclose(limit.matrix, [[0, 0.5, 0.5], [1, 0, 0], [1, 0, 0]], atol=1e-9)
        np.testing.assert_allclose(limit.matrix, sinkhorn(A, limit.n_iter), atol=1e-12)
        assert limit.column_error == pytest.approx(1.0)

    def test_no_support_with_slow_iterates_stops(self):
        # Rows 0 and 1 share column 0; the entries of row 2 outside column 1 fade slowly.
        limit = sinkhorn_limit([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 0, 0]])
        assert limit.status is NO_SUPPORT
        assert limit.n_iter <= 1000

    @pytest.mark.parametrize(
        ("A", "message"),
        [
            ([[2.0]], "Converged in 1 iteration: every row and column sum is within 0.0e+00 of 1."),
            (
                [[1, 1], [0, 1]],
                "Converged in 1 iteration, with 1 nonzero entry of A on no positive diagonal set to 0 as "
                "in the limit: every row and column sum is within 0.0e+00 of 1.",
            ),
            (
                [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
                "Converged in 1 iteration, with 3 nonzero entries of A on no positive diagonal set to 0 as "
                "in the limit: every row and column sum is within 0.0e+00 of 1.",
            ),
            (
                [[1, 1], [0, 0]],
                "No doubly-stochastic limit exists: row 1 is all zeros, so A has no positive diagonal; "
                "add a small constant to A.",
            ),
            (
                [[1, 1, 0], [1, 1, 0], [1, 1, 0]],
                "No doubly-stochastic limit exists: rows 0, 1, 2 have all their nonzero entries in columns "
                "0, 1, so A has no positive diagonal; add a small constant to A.",
            ),
            (
                np.eye(12, k=0)[:, [0] * 12].T,
                "No doubly-stochastic limit exists: rows 0, 1 have all their nonzero entries in column 0, "
                "so A has no positive diagonal; add a small constant to A.",
            ),
        ],
    )
    def test_messages(self, A, message):
        assert sinkhorn_limit(A).message == message

    def test_long_lists_are_counted(self):
        A = np.ones((12, 12))
        A[:, 11] = 0
        assert "rows 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all) have" in sinkhorn_limit(A).message
        assert "in columns 0, 1, 2, 3, 4, 5, 6, 7, ... (11 in all), so" in sinkhorn_limit(A).message

    def test_unfinished_partial_support_says_both(self):
        A = np.zeros((4, 4))
        A[:3, :3] = [[1, 9, 2], [3, 1, 8], [5, 5, 1]]
        A[3] = 1
        limit = sinkhorn_limit(A, tol=1e-12, max_iter=2)
        assert limit.status is MAX_ITER
        assert limit.message.startswith(
            "Not converged in 2 iterations, with 3 nonzero entries of A on no positive diagonal set to 0 as "
            "in the limit: a row or column sum is"
        )


BAD_MATRICES = [
    (np.ones(3), "A must be a square matrix with at least one row, got shape (3,)"),
    (np.ones((2, 3)), "A must be a square matrix with at least one row, got shape (2, 3)"),
    (np.ones((0, 0)), "A must be a square matrix with at least one row, got shape (0, 0)"),
    (1.0, "A must be a square matrix with at least one row, got shape ()"),
    ([[1, 2], [3]], "A must be a matrix, got rows of different lengths or kinds"),
    (
        [[1, 1j], [1, 1]],
        "A must be a dense array of real numbers, got dtype complex128; convert it to float first "
        "(a sparse matrix with .toarray())",
    ),
    (
        [[1, 1], [np.nan, -1]],
        "A must have finite, nonnegative entries, got A[1, 0] = nan; remove or replace such entries first",
    ),
    (
        [[1, np.inf], [-1, 1]],
        "A must have finite, nonnegative entries, got A[0, 1] = inf; remove or replace such entries first",
    ),
    (
        [[1, 1], [1, -0.5]],
        "A must have finite, nonnegative entries, got A[1, 1] = -0.5; remove or replace such entries first",
    ),
]


class TestErrors:
    @pytest.mark.parametrize(("A", "message"), BAD_MATRICES)
    @pytest.mark.parametrize(
        "function", [sinkhorn, sinkhorn_limit, lambda A: sinkhorn_vjp(A, np.ones((2, 2)))]
    )
    def test_bad_matrix(self, function, A, message):
        with pytest.raises(ValueError, match=exactly(message)):
            function(A)

    @pytest.mark.parametrize(
        ("A", "where"),
        [
            ([[1, 1, 1], [0, 0, 0], [0, 0, 0]], "row 1"),
            ([[1, 0, 0], [1, 0, 0], [1, 0, 0]], "column 1"),
            ([[0, 0], [0, 0]], "row 0"),
        ],
    )
    def test_zero_row_or_column(self, A, where):
        message = (
            f"A must have a positive entry in every row and column, got {where} all zeros, which cannot be "
            "normalized; remove it, or pass epsilon > 0"
        )
        for call in (lambda: sinkhorn(A), lambda: sinkhorn_vjp(A, np.ones(np.shape(A)))):
            with pytest.raises(ValueError, match=exactly(message)):
                call()
        np.testing.assert_allclose(sinkhorn(A, epsilon=1e-3).sum(axis=1), 1.0)

    @pytest.mark.parametrize("n_iter", [-1, -0.5, 0.25, 2.1, True, None, "5", np.nan, np.inf, 2**30])
    def test_bad_n_iter(self, n_iter):
        with pytest.raises(ValueError, match=f"n_iter must be a number of iterations.*got {n_iter!r}"):
            sinkhorn(np.ones((2, 2)), n_iter)

    @pytest.mark.parametrize("epsilon", [-1e-6, np.nan, np.inf, None, "small", True])
    def test_bad_epsilon(self, epsilon):
        with pytest.raises(
            ValueError, match=exactly(f"epsilon must be a finite number, not below 0; got {epsilon!r}.")
        ):
            sinkhorn_vjp(np.ones((2, 2)), np.ones((2, 2)), epsilon=epsilon)

    def test_overflowing_epsilon(self):
        with pytest.raises(ValueError, match=r"^epsilon must leave A \+ epsilon finite, got 1e\+308; "):
            sinkhorn([[1e308]], epsilon=1e308)

    @pytest.mark.parametrize("tol", [0, -1e-9, np.nan, np.inf, None])
    def test_bad_tol(self, tol):
        with pytest.raises(ValueError, match=exactly(f"tol must be a finite number, above 0; got {tol!r}.")):
            sinkhorn_limit(np.ones((2, 2)), tol=tol)

    @pytest.mark.parametrize("max_iter", [0, 1.5])
    def test_bad_max_iter(self, max_iter):
        with pytest.raises(
            ValueError, match=rf"^max_iter must be (a whole number, )?at least 1; got {max_iter!r}\.$"
        ):
            sinkhorn_limit(np.ones((2, 2)), max_iter=max_iter)

    @pytest.mark.parametrize(
        ("cotangent", "message"),
        [
            (np.ones(2), "cotangent must have the shape of A, (2, 2), got shape (2,)"),
            (
                [[1, 1], [1, np.inf]],
                "cotangent must have finite entries, got cotangent[1, 1] = inf; "
                "remove or replace such entries first",
            ),
        ],
    )
    def test_bad_cotangent(self, cotangent, message):
        with pytest.raises(ValueError, match=exactly(message)):
            sinkhorn_vjp(np.ones((2, 2)), cotangent)


def test_import_loads_numpy_only():
    modules = "sinkprop.objective.sinkhorn_limit, sinkprop.objective.permutation"
    code = f"import sys, {modules}; print('scipy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
