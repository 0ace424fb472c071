"""Rankings from a doubly-stochastic matrix against brute force over all permutations."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sinkprop.objective.permutation import choose_permutation
from sinkprop.objective.sinkhorn import sinkhorn

METHODS = ["shortcut", "hungarian", "sort"]


def exactly(message):
    return f"^{re.escape(message)}$"


def merit(Pi, order):
    """The criterion of an order: first few zero entries, then a large sum of the logs of the others."""
    entries = [Pi[j, k] for k, j in enumerate(order)]
    return -sum(x == 0 for x in entries), math.fsum(math.log(x) for x in entries if x > 0)


def best_merit(Pi):
    return max(merit(Pi, order) for order in itertools.permutations(range(len(Pi))))


def assert_best(Pi, order):
    zeros, log_likelihood = best_merit(Pi)
    assert sorted(order) == list(range(len(Pi)))
    assert merit(Pi, order)[0] == zeros
    assert merit(Pi, order)[1] == pytest.approx(log_likelihood, abs=1e-9)


def doubly_stochastic(n, *, seed=0, spread=2.0):
    rng = np.random.default_rng([n, seed])
    return sinkhorn(np.exp(spread * rng.normal(size=(n, n))), 50)


class TestHungarian:
    def test_by_hand(self):
        # 0.5 * 0.5 * 0.4 = 0.1; the only other order without the zero, (0, 2, 1), gives 0.5 * 0.5 * 0.1.
        Pi = np.array([[0.5, 0.0, 0.5], [0.4, 0.5, 0.1], [0.1, 0.5, 0.4]])
        assert choose_permutation(Pi, "hungarian").tolist() == [0, 1, 2]

    def test_result_is_documents_by_rank_not_ranks_by_document(self):
        # Document 2 is at rank 0, document 0 at rank 1, document 1 at rank 2.
        Pi = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
        for method in METHODS:
            assert choose_permutation(Pi, method).tolist() == [2, 0, 1]

    @pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
    @pytest.mark.parametrize("seed", range(4))
    def test_brute_force(self, n, seed):
        Pi = doubly_stochastic(n, seed=seed)
        assert_best(Pi, choose_permutation(Pi, "hungarian"))

    @pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
    @pytest.mark.parametrize("density", [0.2, 0.5, 0.8])
    def test_brute_force_with_zeros(self, n, density):
        rng = np.random.default_rng([n, int(10 * density)])
        for _ in range(6):
            Pi = rng.random((n, n)) * (rng.random((n, n)) < density)
            assert_best(Pi, choose_permutation(Pi, "hungarian"))

    @given(
        st.integers(1, 4).flatmap(
            lambda n: arrays(
                float,
                (n, n),
                elements=st.sampled_from([0.0, 5e-324, 1e-300, 1e-30, 0.1, 0.5, 1.0, 1e300]),
            )
        )
    )
    def test_zeros_beside_tiny_and_huge_entries(self, Pi):
        with np.errstate(all="raise"):
            order = choose_permutation(Pi, "hungarian")
        assert_best(Pi, order)

    def test_one_zero_is_worse_than_any_number_of_tiny_entries(self):
        # The diagonal is 1 but for one zero; the only order without a zero is the cycle, four times 1e-300.
        Pi = np.diag([1.0, 1.0, 1.0, 0.0]) + 1e-300 * np.roll(np.eye(4), 1, axis=0)
        assert choose_permutation(Pi, "hungarian").tolist() == [1, 2, 3, 0]

    def test_all_zeros_keep_input_order(self):
        assert choose_permutation(np.zeros((4, 4)), "hungarian").tolist() == [0, 1, 2, 3]


class TestSort:
    def test_by_hand(self):
        # Expected ranks 1 * 0.5 + 3 * 0.5 = 2.0, 0.4 + 1.0 + 0.3 = 1.7, 0.1 + 1.0 + 1.2 = 2.3.
        Pi = [[0.5, 0.0, 0.5], [0.4, 0.5, 0.1], [0.1, 0.5, 0.4]]
        assert choose_permutation(Pi, "sort").tolist() == [1, 0, 2]

    @pytest.mark.parametrize("n", [1, 7, 33, 250])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_equal_rows_keep_input_order(self, n, order):
        row = np.random.default_rng(n).dirichlet(np.ones(n))
        Pi = np.array(np.tile(row, (n, 1)), order=order)
        assert choose_permutation(Pi, "sort").tolist() == list(range(n))

    def test_huge_entries_do_not_overflow(self):
        with np.errstate(all="raise"):
            order = choose_permutation([[0, 1e308, 1e308], [1e308, 1e308, 0], [1e308, 0, 1e308]], "sort")
        assert order.tolist() == [1, 2, 0]


class TestShortcut:
    def test_default_method_and_top(self):
        Pi = doubly_stochastic(230)
        np.testing.assert_array_equal(choose_permutation(Pi), choose_permutation(Pi, "shortcut", top=200))
        assert choose_permutation(Pi).tolist() != choose_permutation(Pi, top=199).tolist()

    @pytest.mark.parametrize("top", [5, 6, 200])
    def test_all_documents_make_it_the_hungarian(self, top):
        for seed in range(5):
            Pi = doubly_stochastic(5, seed=seed)
            np.testing.assert_array_equal(
                choose_permutation(Pi, "shortcut", top=top), choose_permutation(Pi, "hungarian")
            )

    def test_one_document_makes_it_the_sort(self):
        for seed in range(5):
            Pi = doubly_stochastic(6, seed=seed)
            np.testing.assert_array_equal(
                choose_permutation(Pi, "shortcut", top=1), choose_permutation(Pi, "sort")
            )

    @pytest.mark.parametrize("top", [2, 3, 4])
    def test_only_the_first_documents_are_reordered(self, top):
        reordered = 0
        for seed in range(20):
            Pi = doubly_stochastic(6, seed=seed)
            by_rank = choose_permutation(Pi, "sort")
            order = choose_permutation(Pi, "shortcut", top=top)
            np.testing.assert_array_equal(order[top:], by_rank[top:])
            head = Pi[by_rank[:top], :top]
            position = [by_rank.tolist().index(j) for j in order[:top]]
            assert_best(head, position)
            reordered += position != list(range(top))
        assert reordered > 0

    def test_zeros_in_the_corner(self):
        # By expected rank 0, 1, 2; the corner of documents 0 and 1 at ranks 0 and 1 is [[0, 1], [0.5, 0]].
        Pi = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.4, 0.0, 0.6]])
        assert choose_permutation(Pi, "sort").tolist() == [0, 1, 2]
        assert choose_permutation(Pi, "shortcut", top=2).tolist() == [1, 0, 2]


class TestEveryMethod:
    @pytest.mark.parametrize("method", METHODS)
    def test_permutation_matrix_is_read_back(self, method):
        order = np.random.default_rng(0).permutation(40)
        Pi = np.zeros((40, 40))
        Pi[order, np.arange(40)] = 1
        result = choose_permutation(Pi, method, top=10)
        np.testing.assert_array_equal(result, order)
        assert result.dtype == np.intp

    @pytest.mark.parametrize("method", METHODS)
    def test_uniform_matrix_keeps_input_order(self, method):
        assert choose_permutation(np.full((9, 9), 1 / 9), method).tolist() == list(range(9))

    @pytest.mark.parametrize("method", METHODS)
    @given(st.integers(2, 7), st.integers(0, 2**32 - 1))
    def test_permuting_documents_permutes_the_answer(self, method, n, seed):
        Pi = doubly_stochastic(n, seed=seed)
        shuffle = np.random.default_rng(seed).permutation(n)
        result = choose_permutation(Pi[shuffle], method, top=3)
        np.testing.assert_array_equal(shuffle[result], choose_permutation(Pi, method, top=3))

    @pytest.mark.parametrize("method", METHODS)
    def test_input_is_left_alone(self, method):
        Pi = np.array([[0.0, 1.0], [1.0, 0.0]])
        choose_permutation(Pi, method)
        np.testing.assert_array_equal(Pi, [[0.0, 1.0], [1.0, 0.0]])


class TestErrors:
    @pytest.mark.parametrize(
        ("Pi", "message"),
        [
            (np.ones((2, 3)), "Pi must be a square matrix with at least one row, got shape (2, 3)"),
            (np.ones(4), "Pi must be a square matrix with at least one row, got shape (4,)"),
            (np.ones((0, 0)), "Pi must be a square matrix with at least one row, got shape (0, 0)"),
            (
                [[0.5, 0.5], [np.nan, 0.5]],
                "Pi must have finite, nonnegative entries, got Pi[1, 0] = nan; "
                "remove or replace such entries first",
            ),
            (
                [[0.5, -0.25], [0.5, np.inf]],
                "Pi must have finite, nonnegative entries, got Pi[0, 1] = -0.25; "
                "remove or replace such entries first",
            ),
        ],
    )
    @pytest.mark.parametrize("method", METHODS)
    def test_bad_matrix(self, Pi, message, method):
        with pytest.raises(ValueError, match=exactly(message)):
            choose_permutation(Pi, method)

    @pytest.mark.parametrize("method", ["greedy", "Hungarian", None])
    def test_unknown_method(self, method):
        with pytest.raises(
            ValueError,
            match=exactly(f"method must be 'shortcut' or 'hungarian' or 'sort'; got {method!r}."),
        ):
            choose_permutation(np.eye(2), method)

    @pytest.mark.parametrize("top", [0, -3, 2.5, None, True])
    @pytest.mark.parametrize("method", METHODS)
    def test_bad_top(self, top, method):
        with pytest.raises(ValueError, match=rf"^top must be (a whole number, )?at least 1; got {top!r}\.$"):
            choose_permutation(np.eye(2), method, top=top)
