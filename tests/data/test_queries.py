"""Rows grouped by query: ids of every kind, in any order."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections import namedtuple
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import _native
from sinkprop.data import Groups, group_rows
from sinkprop.data.checks import as_label_columns, as_labels, as_scores

Key = namedtuple("Key", ["user", "day"])
Color = enum.Enum("Color", ["RED", "GREEN", "BLUE"])


def plain(qid: list) -> dict:
    """The definition: the rows of each id, ids by first appearance, rows in order."""
    rows: dict = {}
    for row, q in enumerate(qid):
        rows.setdefault(q, []).append(row)
    return rows


def rows_of(groups: Groups, n: int) -> list[list[int]]:
    rows = np.arange(n) if groups.rows is None else groups.rows
    return [rows[a:b].tolist() for a, b in zip(groups.offsets[:-1], groups.offsets[1:], strict=True)]


def check(groups: Groups, qid: list) -> None:
    expected = plain(qid)
    assert rows_of(groups, len(qid)) == list(expected.values())
    assert groups.queries.tolist() == list(expected)
    assert groups.longest == max(map(len, expected.values()))
    assert groups.offsets.dtype == np.int64
    assert groups.rows is None or groups.rows.dtype == np.int64


# three ids of each kind
IDS = {
    "ints": (3, 1, 2),
    "negative ints": (-1, -(2**63), 0),
    "large ints": (2**63 - 1, 2**63 - 2, 0),
    "ints beyond 64 bits": (2**64 + 1, 2**64, 5),
    "bools and ints": (True, 0, 2),
    "floats": (0.5, -1e300, float("inf")),
    "ints and floats": (1, 0.5, 2),
    "strings": ("b", "a", "query 3"),
    "strings that look like numbers": ("1", "01", "1.0"),
    "an empty string": ("", " ", "0"),
    "bytes": (b"b", b"a", b""),
    "strings and ints": ("1", 1, "a"),
    "strings and bytes": ("a", b"a", "b"),
    "mixed": (("x",), "a", 1),
    "tuples": ((1, 2), (1, 3), (0, 2)),
    "tuples of one": ((1,), (2,), (3,)),
    "tuples of unequal length": ((1, 2), (1,), ()),
    "nested tuples": (((1, 2), "a"), ((1, 2), "b"), ((1,), "a")),
    "tuples and ints": ((1, 2), 1, 2),
    "named tuples": (Key(1, "mon"), Key(1, "tue"), Key(2, "mon")),
    "frozen sets": (frozenset([1]), frozenset([1, 2]), frozenset()),
    "fractions": (Fraction(1, 3), Fraction(2, 3), Fraction(1, 2)),
    "enumerations": (Color.RED, Color.GREEN, Color.BLUE),
    "uuids": tuple(uuid.UUID(int=i) for i in (3, 1, 2)),
    "dates": (datetime.date(2024, 1, 2), datetime.date(2024, 1, 1), datetime.date(2023, 5, 5)),
    "complex": (1j, 1 + 1j, 2.0 + 0j),
    "numpy scalars": (np.int64(3), np.float32(0.5), np.str_("a")),
    "types": (int, str, float),
}
PATTERNS = [[0], [0, 0, 0], [0, 0, 1, 2, 2], [2, 2, 0, 1, 1], [0, 1, 0, 2, 1, 0], [2, 1, 0, 2, 1, 0, 0]]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("kind", IDS)
def test_a_list_of_ids(kind: str, pattern: list[int]) -> None:
    qid = [IDS[kind][i] for i in pattern]
    check(group_rows(qid, len(qid)), qid)
    check(group_rows(tuple(qid), len(qid)), qid)
    as_objects = np.empty(len(qid), dtype=object)
    as_objects[:] = qid
    check(group_rows(as_objects, len(qid)), qid)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 1, 2], np.int8),
        np.array([3, 1, 2], np.uint64) + np.uint64(2**63 - 2),
        np.array([-(2**63), 2**63 - 1, 0]),
        np.array([0.5, -0.5, np.inf], np.float32),
        np.array([1e300, -1e300, 0]),
        np.array(["b", "a", "query 3"]),
        np.array([b"b", b"a", b"query 3"]),
        np.array(["2024-01-02", "2024-01-01", "2023-05-05"], dtype="M8[D]"),
        np.array([3, 1, 2], "m8[s]"),
        np.array([1j, 1, 2]),
        np.array([3, 1, 2], ">i4"),
    ],
    ids=lambda ids: ids.dtype.str,
)
def test_an_array_of_ids(ids: np.ndarray, pattern: list[int]) -> None:
    qid = ids[pattern]
    check(group_rows(qid, len(qid)), qid.tolist())
    check(group_rows(np.repeat(qid, 3)[::3], len(qid)), qid.tolist())


def test_booleans() -> None:
    qid = np.array([True, False, True, True])
    check(group_rows(qid, 4), [True, False, True, True])


@pytest.mark.parametrize(
    "qid",
    [
        [2**63, 2**63 + 1, 1, 2**63],
        [2**63, -1, 2**63 + 1],
        [2**53, 2**53 + 1, 0.5],
    ],
    ids=["past the signed integers", "of both signs", "beside a float"],
)
def test_large_ints_keep_their_last_digit(qid: list) -> None:
    # NumPy makes floats of each of these lists.
    check(group_rows(qid, len(qid)), qid)


def test_equal_ids_of_different_types_are_one_query() -> None:
    check(group_rows([1, "a", 1.0, True], 4), [1, "a", 1, 1])
    check(group_rows([0.0, -0.0, 1.0], 3), [0.0, 0.0, 1.0])


def test_no_ids_make_one_query() -> None:
    groups = group_rows(None, 5)
    assert (groups.offsets.tolist(), groups.rows, len(groups.queries), groups.longest) == ([0, 5], None, 1, 5)


@pytest.mark.parametrize("qid", [[5, 5, 9, 9, 9], [9, 9, 5], ["b", "b", "a"], [(2,), (1,), (1,)]], ids=str)
def test_rows_that_stand_together_are_not_copied(qid: list) -> None:
    assert group_rows(qid, len(qid)).rows is None


def test_rows_that_return_are() -> None:
    assert group_rows([5, 9, 5], 3).rows.tolist() == [0, 2, 1]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60))
def test_any_order_of_ints(qid: list[int]) -> None:
    check(group_rows(qid, len(qid)), qid)
    check(group_rows(np.array(qid), len(qid)), qid)


@given(
    st.lists(st.one_of(st.integers(), st.text(max_size=2), st.tuples(st.booleans())), min_size=1, max_size=30)
)
def test_any_order_of_anything(qid: list) -> None:
    check(group_rows(qid, len(qid)), qid)


def test_many_queries() -> None:
    qid = np.random.default_rng(0).integers(0, 3000, size=20_000)
    check(group_rows(qid, len(qid)), qid.tolist())


def test_ids_are_left_alone() -> None:
    qid = np.array([3, 1, 3, 2])
    group_rows(qid, 4)
    np.testing.assert_array_equal(qid, [3, 1, 3, 2])


@pytest.mark.parametrize(
    ("qid", "message"),
    [
        ([1, 2], r"^qid must have one id per row: 3 rows, but 2 ids"),
        ([], r"^qid must have one id per row: 3 rows, but 0 ids"),
        ([(1, 2), (1, 2)], r"^qid must have one id per row: 3 rows, but 2 ids"),
        (
            np.zeros((3, 1), int),
            r"^qid must be one id per row, of shape \(3,\); got an array of shape \(3, 1\)",
        ),
        (
            np.zeros((3, 2), int),
            r"^qid must be one id per row, of shape \(3,\); got an array of shape \(3, 2\)",
        ),
        (np.array([1.0, np.nan, np.nan]), r"^qid must not hold NaN; row 1"),
        ([np.nan, 1.0, 2.0], r"^qid must not hold NaN; row 0"),
        (["a", "b", float("nan")], r"^qid must not hold NaN; row 2"),
        (np.array(["a", np.nan, "b"], dtype=object), r"^qid must not hold NaN; row 1"),
        ([1, {}, {}], r"^qid must hold hashable ids.*'dict'"),
        ([[1], [2], [3]], r"^qid must hold hashable ids.*'list'"),
        ([1, [2], 3], r"^qid must hold hashable ids.*row 1"),
    ],
)
def test_bad_ids_are_explained(qid, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_rows(qid, 3)


def test_scores_and_labels_become_contiguous_doubles() -> None:
    for values in (
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], np.int8),
        np.arange(1, 7, dtype="f4")[::2],
    ):
        array = as_labels(values, 3)
        assert (array.dtype, array.shape) == (np.float64, (3,))
        assert array.flags.c_contiguous
    np.testing.assert_array_equal(as_labels([True, False], 2), [1, 0])
    theta = as_scores(np.asfortranarray([[1, 2], [3, 4]]), 2)
    assert theta.flags.c_contiguous
    np.testing.assert_array_equal(theta, [[1, 2], [3, 4]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"^scores must be finite; row 2 holds {bad}"):
        as_scores([0.0, 1.0, bad, bad], 1)
    with pytest.raises(ValueError, match=rf"^scores must be finite; row 1 holds {bad}"):
        as_scores([[0.0, 1.0], [0.0, bad], [bad, 0.0]], 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, -5e-324])
def test_labels_must_be_finite_and_not_below_zero(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"^labels must be finite and not below 0; row 2 holds {bad}"):
        as_labels([0.0, 1.0, bad, bad], 4)


def test_the_largest_numbers_are_finite() -> None:
    largest = np.finfo(np.float64).max
    np.testing.assert_array_equal(as_scores([largest, -largest, -0.0], 1), [largest, -largest, 0])


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("bad", [np.nan, -np.inf, 2.5])
def test_the_first_invalid_value_is_found_at_any_place(n: int, bad: float) -> None:
    for row in range(n):
        values = np.zeros(n)
        values[row:] = bad
        assert _native.first_invalid(values, -2.0, 2.0) == row
    assert _native.first_invalid(np.full(n, 2.0), -2.0, 2.0) == -1


@given(
    st.lists(st.floats() | st.sampled_from([0.0, 2.0, np.nextafter(2, 3)]), max_size=40),
    st.sampled_from([(0.0, 2.0), (-2.0, 0.0), (-np.inf, np.inf), (-1.7976931348623157e308, 1e308)]),
)
def test_values_in_range_make_a_valid_vector(values: list[float], limits: tuple[float, float]) -> None:
    inside = [limits[0] <= value <= limits[1] for value in values]
    array = np.array(values, np.float64)
    assert _native.is_valid_vector(array, *limits) == (len(values) > 0 and all(inside))
    assert _native.first_invalid(array, *limits) == ([*inside, False].index(False) if not all(inside) else -1)
    array.flags.writeable = False
    assert _native.is_valid_vector(array, *limits) == (len(values) > 0 and all(inside))


@pytest.mark.parametrize(
    "other",
    [
        np.zeros(4, np.float32),
        np.zeros(4, np.int64),
        np.zeros(4, ">f8"),
        np.zeros(8)[::2],
        np.zeros((2, 2)),
        np.zeros((4, 1)),
        np.array(0.0),
        np.array(["0"]),
        np.array([0.0], object),
        [0.0],
    ],
    ids=repr,
)
def test_other_arrays_are_no_valid_vector(other: object) -> None:
    assert not _native.is_valid_vector(other, -1.0, 1.0)


@pytest.mark.parametrize("check", [lambda a: as_scores(a, 1), lambda a: as_label_columns(a, 4)])
def test_a_plain_vector_is_kept_and_any_other_array_becomes_one(check: Callable[[Any], np.ndarray]) -> None:
    vector = np.array([0.0, 1.0, 2.0, 3.0])
    frozen = vector.copy()
    frozen.flags.writeable = False
    assert check(vector) is vector
    assert check(frozen) is frozen
    for other in (
        vector.astype(">f8"),
        vector.astype("f4"),
        np.repeat(vector, 2)[::2],
        np.ma.array(vector),
        [*vector],
    ):
        found = check(other)
        assert type(found) is np.ndarray
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, vector)
    with pytest.raises(ValueError, match="masked"):
        check(np.ma.array(vector, mask=[False, True, False, False]))


def test_ids_of_one_query_do_not_keep_the_array_of_the_caller() -> None:
    ids = np.full(5, 7)
    groups = group_rows(ids, 5)
    assert not np.shares_memory(groups.queries, ids)
    assert (groups.offsets.tolist(), groups.queries.tolist(), groups.longest) == ([0, 5], [7], 5)
