"""The likelihood of where documents are clicked: its maximum, its covariance, and when it has a maximum."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.stats import multinomial

from sinkprop import Queries
from sinkprop.clicks import ClickLog
from sinkprop.clicks.models.cells import Cells, cells_of
from sinkprop.clicks.models.conditional import all_pairs, pairs_with_first, unbounded, unconnected

THETA = np.array([1.0, 0.6, 0.45, 0.2])


def cells_from(n, x):
    """Cells of tables of impressions and clicks, (D, K)."""
    n, x = np.asarray(n, dtype=float), np.asarray(x, dtype=float)
    shown = (n > 0).any(axis=1)
    n, x = n[shown], x[shown]
    starts = np.r_[0, np.cumsum((n > 0).sum(axis=1))]
    return Cells(np.flatnonzero(shown), starts, np.nonzero(n)[1], n[n > 0], x[n > 0], n.shape[1])


def tables(seed, D=30, size=60, low=0.05, high=0.9):
    """Impressions of documents at positions, some of which are 0, and clicks."""
    rng = np.random.default_rng(seed)
    n = rng.integers(0, size, (D, 4)) * (rng.random((D, 4)) < 0.7)
    return n, rng.binomial(n, rng.uniform(low, high, (D, 1)) * THETA)


def shares(n, u):
    mass = n * np.exp(np.r_[0.0, u])
    return mass / mass.sum(axis=1, keepdims=True)


def log_likelihood(u, n, x):
    """Logarithm of the probability of the positions of the clicks of each document, given their number."""
    seen = n.sum(axis=1) > 0
    return multinomial.logpmf(x[seen], x[seen].sum(axis=1), shares(n[seen], u)).sum()


def hessian(f, u, h=1e-4):
    eye = np.eye(len(u)) * h
    return np.array(
        [
            [(f(u + a + b) - f(u + a - b) - f(u - a + b) + f(u - a - b)) / (4 * h * h) for b in eye]
            for a in eye
        ]
    )


class TestMaximum:
    @pytest.mark.parametrize("seed", range(4))
    def test_is_that_of_a_general_optimizer(self, seed):
        n, x = tables(seed)
        u, _ = all_pairs(cells_from(n, x))
        best = minimize(lambda v: -log_likelihood(v, n, x), np.zeros(3), tol=1e-12)
        np.testing.assert_allclose(u, best.x, atol=2e-5)
        assert log_likelihood(u, n, x) >= -best.fun - 1e-9

    @pytest.mark.parametrize("seed", range(3))
    def test_of_pairs_with_position_1_is_one_equation_for_each_position(self, seed):
        n, x = tables(seed)
        u, _ = pairs_with_first(cells_from(n, x))
        for k in range(1, 4):
            both = (n[:, 0] > 0) & (n[:, k] > 0)
            n1, nk, x1, xk = n[both, 0], n[both, k], x[both, 0], x[both, k]

            def equation(v, n1=n1, nk=nk, x1=x1, xk=xk):
                return (xk - (x1 + xk) * nk * np.exp(v) / (n1 + nk * np.exp(v))).sum()

            assert u[k - 1] == pytest.approx(brentq(equation, -10, 10, xtol=1e-13), abs=1e-9)

    def test_is_the_ratio_of_clicks_where_each_document_is_shown_as_often_at_both_positions(self):
        n, x = [[50, 50], [20, 20], [5, 5]], [[20, 12], [9, 2], [0, 1]]
        for estimate in (all_pairs, pairs_with_first):
            u, _ = estimate(cells_from(n, x))
            assert np.exp(u) == pytest.approx([(12 + 2 + 1) / (20 + 9 + 0)], rel=1e-12)

    def test_is_the_ratio_of_click_rates_of_one_document(self):
        u, _ = all_pairs(cells_from([[50, 400, 80]], [[20, 16, 4]]))
        assert np.exp(u) == pytest.approx([(16 / 400) / (20 / 50), (4 / 80) / (20 / 50)], rel=1e-12)

    def test_is_the_truth_where_clicks_are_as_expected(self):
        n, _ = tables(0)
        relevance = np.random.default_rng(1).uniform(0.1, 1, (30, 1))
        for estimate in (all_pairs, pairs_with_first):
            u, _ = estimate(cells_from(n, n * relevance * THETA))
            np.testing.assert_allclose(np.exp(u), THETA[1:], rtol=1e-9)

    @given(st.integers(0, 10**6), st.integers(2, 6))
    def test_solves_its_equations_in_small_tables(self, seed, D):
        rng = np.random.default_rng(seed)
        n = rng.integers(0, 4, (D, 4))
        x = rng.binomial(n, 0.6)
        cells = cells_from(n, x)
        assume(n.any() and x.any() and not unbounded(cells))
        u, C = all_pairs(cells)
        seen = n.sum(axis=1) > 0
        expected = shares(n[seen], u) * x[seen].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(expected.sum(axis=0), x.sum(axis=0), atol=1e-7)
        assert (np.linalg.eigvalsh(C) > 0).all()

    def test_does_not_change_with_the_unit_of_weights_or_the_order_of_documents(self):
        n, x = tables(5)
        order = np.random.default_rng(0).permutation(len(n))
        for estimate in (all_pairs, pairs_with_first):
            u, C = estimate(cells_from(n, x))
            np.testing.assert_allclose(estimate(cells_from(3.7 * n, 3.7 * x))[0], u, atol=1e-9)
            for again, expected in zip(estimate(cells_from(n[order], x[order])), (u, C), strict=True):
                np.testing.assert_allclose(again, expected, atol=1e-9)

    def test_documents_at_one_position_or_without_clicks_say_nothing(self):
        n, x = tables(5)
        more = [[0, 90, 0, 0], [7, 0, 0, 0], [40, 40, 40, 40]]
        clicks = [[0, 50, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
        for estimate in (all_pairs, pairs_with_first):
            found = estimate(cells_from(np.r_[n, more], np.r_[x, clicks]))
            for again, expected in zip(found, estimate(cells_from(n, x)), strict=True):
                np.testing.assert_allclose(again, expected, rtol=1e-9)


class TestCovariance:
    def test_is_a_sandwich_of_numerical_derivatives_and_the_variance_of_clicks(self):
        n, x = tables(2, size=400, high=0.5)
        n, x = n[(n > 0).sum(axis=1) > 1], x[(n > 0).sum(axis=1) > 1]
        u, C = all_pairs(cells_from(n, x))
        H = -hessian(lambda v: log_likelihood(v, n, x), u)
        J, theta = np.zeros((3, 3)), np.exp(np.r_[0.0, u])
        for shown, X, q in zip(n, x.sum(axis=1), shares(n, u), strict=True):
            E = shown @ theta
            r, squared = X / E, X * (X - 1) / (E**2 - shown @ theta**2)
            of_clicks = (np.eye(4) - q[:, None])[1:]  # of the equations x_k - q_k sum(x), by x
            J += (of_clicks * (shown * theta * (r - theta * squared))) @ of_clicks.T
        np.testing.assert_allclose(C, np.linalg.inv(H) @ J @ np.linalg.inv(H), rtol=1e-4)

    @pytest.mark.parametrize("estimate", [all_pairs, pairs_with_first])
    @pytest.mark.parametrize(("n", "low", "high"), [(1, 0.02, 0.3), (1, 0.5, 0.9), (20, 0.02, 0.9)])
    def test_is_that_of_estimates_from_new_clicks(self, estimate, n, low, high):
        rng = np.random.default_rng(0)
        D, repeats, K = 2000 // n, 200, 3
        shown = np.full((D, K), n)
        relevance = rng.uniform(low, high, (D, 1))
        found = [
            estimate(cells_from(shown, rng.binomial(shown, relevance * THETA[:K]))) for _ in range(repeats)
        ]
        u = np.array([u for u, _ in found])
        errors = u - np.log(THETA[1:K])
        assert (np.abs(errors.mean(axis=0)) < 4 * errors.std(axis=0) / np.sqrt(repeats)).all()
        # the standard deviation of 200 draws has a relative error of 5 %
        claimed = np.sqrt(np.mean([np.diag(C) for _, C in found], axis=0))
        assert claimed / u.std(axis=0) == pytest.approx(np.ones(K - 1), abs=0.2)
        correlation = np.corrcoef(u.T)[0, 1]
        of_C = np.mean([C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]) for _, C in found])
        assert of_C == pytest.approx(correlation, abs=0.25)


class TestIdentification:
    def test_chains_of_documents_connect_positions(self):
        n = np.array([[5, 5, 0, 0, 0], [0, 5, 5, 0, 0], [0, 0, 0, 5, 5], [5, 0, 0, 0, 0]])
        assert unconnected(cells_from(n, n)) == [4, 5]
        assert unconnected(cells_from(n, n), with_first=True) == [3, 4, 5]
        x = n * (np.arange(4) != 1)[:, None]  # the document at 2 and 3 is not clicked
        assert unconnected(cells_from(n, x)) == [3, 4, 5]

    def test_clicks_on_both_sides_bound_the_examination(self):
        n = [[5, 5, 0], [0, 5, 5]]
        assert unbounded(cells_from(n, [[1, 1, 0], [0, 1, 1]])) == []
        assert unbounded(cells_from(n, [[1, 1, 0], [0, 0, 1]])) == [3]
        assert unbounded(cells_from(n, [[1, 0, 0], [0, 1, 1]])) == [2, 3]
        assert unbounded(cells_from(n, [[1, 1, 0], [0, 1, 1]]), with_first=True) == [3]

    @given(st.integers(0, 10**6))
    def test_bounded_means_that_no_division_of_the_positions_has_clicks_on_one_side_only(self, seed):
        rng = np.random.default_rng(seed)
        n = rng.integers(0, 2, (4, 4))
        x = n * rng.integers(0, 2, (4, 4))
        assume(n.any())

        def divided(k):
            """Whether clicks on documents shown at both sides of a division of 1 and k are on one side."""
            for inside in itertools.product([False, True], repeat=4):
                side = np.array(inside)
                if side[0] == side[k]:
                    continue
                both = n[:, side].any(axis=1) & n[:, ~side].any(axis=1)
                if not x[both][:, side].any() or not x[both][:, ~side].any():
                    return True
            return False

        assert unbounded(cells_from(n, x)) == [k + 1 for k in range(1, 4) if divided(k)]

    def test_a_position_that_lost_its_clicks_has_a_large_variance_and_does_not_change_the_others(self):
        n, x = tables(3)
        n[:, 3] = 0
        x[:, 3] = 0
        without, _ = all_pairs(cells_from(n[:, :3], x[:, :3]))
        n[:, 3] = 9
        u, C = all_pairs(cells_from(n, x))
        np.testing.assert_allclose(u[:2], without, atol=1e-6)
        assert u[2] < -20
        assert C[2, 2] > 1e4
        assert np.isfinite(C).all()


class TestCells:
    def log(self):
        documents = Queries(np.zeros((5, 1)), np.zeros(5), ["a", "a", "b", "a", "b"])
        rows, clicked = [3, 0, 2, 1, 0, 3, 0, 1], [0, 1, 1, 0, 0, 1, 1, 1]
        return ClickLog(documents, rows, clicked, [0, 2, 3, 6, 8]).first(2)

    def test_of_a_log_that_was_counted_by_hand(self):
        cells = cells_of(self.log(), weight=[1, 1, 2, 1])
        assert cells.rows.tolist() == [0, 1, 2, 3]
        assert cells.starts.tolist() == [0, 2, 4, 5, 6]
        assert cells.positions.tolist() == [0, 1, 0, 1, 0, 0]
        assert cells.n.tolist() == [1, 3, 2, 1, 1, 1]
        assert cells.x.tolist() == [1, 1, 0, 1, 1, 0]
        assert cells.documents.tolist() == [0, 0, 1, 1, 2, 3]
        assert cells.clicks.tolist() == [2, 1, 1, 0]
        assert cells.by_position(cells.n).tolist() == [5, 4]
        assert cells.to_cells(np.arange(4)).tolist() == [0, 0, 1, 1, 2, 3]
        assert cells.matrix(cells.n).toarray().tolist() == [[1, 3], [2, 1], [1, 0], [1, 0]]

    def test_of_weight_0_are_left_out(self):
        cells = cells_of(self.log(), weight=[0, 0, 0, 1])
        assert (cells.rows.tolist(), cells.positions.tolist(), cells.K) == ([0, 1], [0, 1], 2)

    def test_of_chosen_documents_or_of_enough_impressions(self):
        cells = cells_of(self.log(), weight=[1, 1, 2, 1])
        kept = cells.keep(np.array([True, False, False, True]))
        assert (kept.rows.tolist(), kept.starts.tolist()) == ([0, 3], [0, 2, 3])
        assert kept.n.tolist() == [1, 3, 1]
        several = cells.of_at_least(2)
        assert (several.rows.tolist(), several.starts.tolist()) == ([0, 1], [0, 1, 2])
        assert (several.positions.tolist(), several.n.tolist()) == ([1, 0], [3, 2])
        assert several.x.tolist() == [1, 0]
        none = cells.of_at_least(9)
        assert (len(none.rows), len(none.n), none.starts.tolist()) == (0, 0, [0])
