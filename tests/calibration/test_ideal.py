"""Ideal ranks against the mean over all rankings of a query's documents by decreasing label."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.calibration.ideal import ideal_ranks, informative
from sinkprop.data.queries import Groups, group_rows

LABELS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=6)


def brute_force(labels):
    """The ideal matrix: mean of the permutation matrices of all rankings that are sorted by label."""
    n = len(labels)
    total, count = np.zeros((n, n)), 0
    for order in itertools.permutations(range(n)):
        if all(labels[i] >= labels[j] for i, j in itertools.pairwise(order)):
            total[list(order), np.arange(n)] += 1
            count += 1
    return total / count


def matrix(ideal, n):
    """The matrix of a single query from the cells above 0."""
    rows, columns, values = ideal.cells(n)
    T = np.zeros((len(ideal.first), n))
    T[rows, columns] = values
    return T


@given(LABELS)
def test_cells_are_those_of_brute_force(labels):
    found = ideal_ranks(np.array(labels), group_rows(None, len(labels)))
    assert_allclose(matrix(found, len(labels)), brute_force(labels), atol=1e-12)


@given(LABELS, st.integers(1, 8), st.integers(1, 8))
def test_share_within_an_interval_is_a_sum_of_cells(labels, first, last):
    found = ideal_ranks(np.array(labels), group_rows(None, len(labels)))
    assert_allclose(
        found.within(first, last), brute_force(labels)[:, first - 1 : last].sum(axis=1), atol=1e-12
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=12))
def test_each_query_is_on_its_own_in_any_order_of_rows(rows):
    qid, labels = np.array([q for q, _ in rows]), np.array([y for _, y in rows])
    found = ideal_ranks(labels, group_rows(qid, len(qid)))
    for q in np.unique(qid):
        own = qid == q
        alone = ideal_ranks(labels[own], group_rows(None, int(own.sum())))
        assert_array_equal(found.first[own], alone.first)
        assert_array_equal(found.last[own], alone.last)


def test_equal_labels_of_neighboring_queries_do_not_share_ranks():
    found = ideal_ranks(np.ones(3), Groups.of_sizes(np.array([1, 2])))
    assert found.first.tolist() == [1, 1, 1]
    assert found.last.tolist() == [1, 2, 2]


@pytest.mark.parametrize("n_ranks", [1, 2, 5])
def test_only_the_first_columns_and_only_ranks_of_the_query(n_ranks):
    found = ideal_ranks(np.array([0.0, 0.0, 1.0]), Groups.of_sizes(np.array([2, 1])))
    rows, columns, values = found.cells(n_ranks)
    cells = {(0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.5, (1, 1): 0.5, (2, 0): 1.0}
    expected = {cell: value for cell, value in cells.items() if cell[1] < n_ranks}
    assert (
        dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), values.tolist(), strict=True)) == expected
    )


def test_a_large_query_takes_two_numbers_per_document():
    n = 1_000_000
    labels = np.zeros(n)
    labels[:3] = 1
    found = ideal_ranks(labels, group_rows(None, n))
    assert found.first[[0, 2, 3, n - 1]].tolist() == [1, 1, 4, 4]
    assert found.last[[0, 2, 3, n - 1]].tolist() == [3, 3, n, n]
    assert found.within(1, 10)[3] == pytest.approx(7 / (n - 3))


def test_informative_queries_have_different_labels():
    labels, qid = np.array([0.0, 1.0, 1.0, 0.0, 2.0, 2.0]), ["a", "b", "a", "c", "b", "c"]
    assert informative(labels, group_rows(qid, 6)).tolist() == [True, True, True]
    assert informative(labels, group_rows([1, 2, 2, 3, 4, 4], 6)).tolist() == [False, False, False, False]
