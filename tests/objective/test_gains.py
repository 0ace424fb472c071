"""Gains: their definitions as arithmetic, their text forms, and every error."""

import copy
import pickle
import re
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sinkprop
from sinkprop.objective.gains import FORMS, NDCG, RBP, Gain, Precision, RankLinear, as_gain, parse_gain

one_over_rank = RankLinear(gain=np.square, discount=np.reciprocal)

named_gains = st.one_of(
    st.builds(
        NDCG,
        st.none() | st.integers(1, 10**30),
        discount=st.sampled_from([None, "letor", "log2"]),
        gain=st.sampled_from(["exponential", "linear"]),
    ),
    st.builds(Precision, st.integers(1, 10**30), threshold=st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(RBP, st.floats(0, 1, exclude_max=True)),
)


@pytest.mark.parametrize(
    ("gain", "labels", "expected"),
    [
        (NDCG(), [0, 1, 2, 3, 0.5], [0, 2 - 1, 4 - 1, 8 - 1, 2**0.5 - 1]),
        (NDCG(gain="linear"), [0, 1, 2.5], [0, 1, 2.5]),
        (Precision(3), [0, 0.5, 1, 2], [0, 0, 1, 1]),
        (Precision(3, threshold=2), [0, 1, 2, 3], [0, 0, 1, 1]),
        (RBP(), [0, 1, 2], [0, 1, 2]),
        (one_over_rank, [0, 1, 3], [0, 1, 9]),
    ],
    ids=str,
)
def test_gain_of_each_label(gain: Gain, labels: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(gain.gains(labels), expected, rtol=1e-15)
    assert gain.gains(np.array(labels)).dtype == np.float64
    assert gain.gains([]).shape == (0,)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (NDCG(), [1, 1, 1 / log2(3), 1 / 2, 1 / log2(5)]),
        (NDCG(3), [1, 1, 1 / log2(3), 0, 0]),
        (NDCG(10**30), [1, 1, 1 / log2(3), 1 / 2, 1 / log2(5)]),
        (NDCG(3, discount="letor"), [1, 1, 1 / log2(3), 0, 0]),
        (NDCG(4, discount="log2"), [1, 1 / log2(3), 1 / 2, 1 / log2(5), 0]),
        (Precision(2), [1 / 2, 1 / 2, 0, 0, 0]),
        (Precision(10), [1 / 10] * 5),
        (RBP(0.8), [0.2, 0.2 * 0.8, 0.2 * 0.8**2, 0.2 * 0.8**3, 0.2 * 0.8**4]),
        (RBP(0), [1, 0, 0, 0, 0]),
        (one_over_rank, [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    ],
    ids=str,
)
def test_discount_of_each_rank(gain: Gain, expected: list[float]) -> None:
    np.testing.assert_allclose(gain.discounts(5), expected, rtol=1e-14)
    np.testing.assert_array_equal(gain.discounts(3), gain.discounts(5)[:3])
    assert gain.discounts(0).shape == (0,)


def test_only_ndcg_and_normalize_divide_by_the_ideal() -> None:
    assert NDCG().normalized
    assert RankLinear(gain=np.abs, discount=np.reciprocal, normalize=True).normalized
    assert not any(gain.normalized for gain in (Precision(1), RBP(), one_over_rank))


def test_discounts_are_computed_once_and_read_only() -> None:
    D = NDCG(7).discounts(11)
    assert NDCG(7).discounts(11) is D
    with pytest.raises(ValueError, match="read-only"):
        D[0] = 2


def test_gains_are_a_new_array() -> None:
    labels = np.array([1.0, 2.0])
    for gain in (NDCG(gain="linear"), RBP(), RankLinear(gain=lambda r: r, discount=np.reciprocal)):
        gain.gains(labels)[0] = 5
    np.testing.assert_array_equal(labels, [1, 2])


def test_a_table_has_one_row_for_each_distinct_label() -> None:
    gain = RankLinear(table=lambda r, k: r - k)
    classes, D = gain.class_discounts([2, 0, 2, 5], n=3)
    np.testing.assert_array_equal(classes, [1, 0, 1, 2])
    np.testing.assert_array_equal(D, [[0 - 1, 0 - 2, 0 - 3], [2 - 1, 2 - 2, 2 - 3], [5 - 1, 5 - 2, 5 - 3]])
    assert classes.dtype == np.int32
    assert not gain.separable


@given(named_gains, st.lists(st.integers(0, 4), min_size=1), st.integers(1, 9))
def test_a_separable_gain_is_also_a_table(gain: Gain, labels: list[float], n: int) -> None:
    classes, D = gain.class_discounts(labels, n)
    np.testing.assert_array_equal(D[classes], np.outer(gain.gains(labels), gain.discounts(n)))


@given(named_gains)
def test_text_round_trip(gain: Gain) -> None:
    assert parse_gain(str(gain)) == gain
    assert parse_gain(str(gain).upper()) == gain
    assert as_gain(str(gain)) == as_gain(gain)
    assert hash(parse_gain(str(gain))) == hash(gain)


@given(named_gains)
def test_repr_pickle_and_copy_round_trip(gain: Gain) -> None:
    assert eval(repr(gain)) == gain
    assert pickle.loads(pickle.dumps(gain)) == gain
    assert copy.deepcopy(gain) == gain


@pytest.mark.parametrize(
    ("text", "gain"),
    [
        ("ndcg", NDCG()),
        ("ndcg@10", NDCG(10)),
        ("ndcg(discount=log2,gain=linear)@10", NDCG(10, discount="log2", gain="linear")),
        ("ndcg(discount=log2)@10", NDCG(10, discount="log2")),
        ("ndcg(discount=letor)@10", NDCG(10, discount="letor")),
        ("ndcg(gain=linear)", NDCG(gain="linear")),
        ("p@5", Precision(5)),
        ("p(threshold=2)@5", Precision(5, threshold=2)),
        ("rbp@0.8", RBP(0.8)),
        ("rbp@0", RBP(0)),
    ],
)
def test_text_form(text: str, gain: Gain) -> None:
    assert str(gain) == text
    assert parse_gain(text) == gain


@pytest.mark.parametrize("given", ["ndcg(gain=linear)@3", NDCG(3, gain="linear")], ids=["text", "object"])
def test_a_discount_that_is_left_open_is_filled_in(given) -> None:
    open_ended = NDCG(3, gain="linear")
    assert as_gain(given) == as_gain(given, None) == open_ended
    for discount in ("letor", "log2"):
        stated = as_gain(given, discount)
        assert stated == NDCG(3, discount=discount, gain="linear")
        assert as_gain(stated, "letor") is as_gain(stated, "log2") is stated
    assert open_ended.discount is None


@pytest.mark.parametrize("gain", [Precision(5), RBP(), one_over_rank])
def test_a_gain_without_a_discount_to_choose_stays(gain) -> None:
    assert as_gain(gain, "log2") is gain


@pytest.mark.parametrize(
    ("text", "gain"),
    [
        ("precision@5", Precision(5)),
        ("P@5", Precision(5)),
        (" NDCG ( Discount = Log2 ) @ 10 ", NDCG(10, discount="log2")),
        ("ndcg()", NDCG()),
        ("rbp", RBP(0.8)),
        ("p(threshold=1.0)@5", Precision(5)),
    ],
)
def test_text_is_read_with_either_case_and_spaces(text: str, gain: Gain) -> None:
    assert parse_gain(text) == gain


def test_a_gain_of_functions_is_a_value_too() -> None:
    poly = np.poly1d([1, 0])  # equal to others, but not hashable
    assert RankLinear(gain=poly, discount=np.reciprocal) == RankLinear(
        gain=np.poly1d([1, 0]), discount=np.reciprocal
    )
    assert RankLinear(gain=poly, discount=np.reciprocal) != RankLinear(gain=poly, discount=np.sqrt)
    np.testing.assert_array_equal(RankLinear(gain=poly, discount=np.reciprocal).discounts(2), [1, 1 / 2])
    np.testing.assert_array_equal(RankLinear(gain=poly, discount=np.sqrt).discounts(2), [1, 2**0.5])
    assert str(one_over_rank) == repr(one_over_rank)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndgc@10", "gain 'ndgc@10' is not known. Did you mean 'ndcg@10'?"),
        ("ndcg10", "gain 'ndcg10' is not known. Did you mean 'ndcg@10'?"),
        ("ndcg@", "gain 'ndcg@' is not known. Did you mean 'ndcg'?"),
        ("presision@3", "Did you mean 'precision@3'?"),
        ("maps", "gain 'maps' is not known. Did you mean 'map'? The forms are"),
        ("", "gain '' is not known. The forms are"),
        ("p", "gain 'p': precision needs a cutoff, such as p@5."),
        ("ndcg@ten", "gain 'ndcg@ten': the cutoff after @ must be an integer; got 'ten'."),
        ("p@2.5", "the cutoff after @ must be an integer; got '2.5'."),
        ("rbp@x", "the persistence after @ must be a number; got 'x'."),
        ("rbp@1", "p must be at least 0 and below 1; got 1.0."),
        ("ndcg@0", "k must be at least 1, the number of ranks counted, or None for every rank; got 0."),
        ("ndcg(discount=log)", "discount must be 'letor' or 'log2'; got 'log'."),
        ("ndcg(threshold=1)", "'threshold' is not an option; it takes discount and gain."),
        ("rbp(p=1)", "'p' is not an option; it takes none."),
        ("ndcg(linear)", "an option must have the form name=value; got 'linear'."),
        ("ndcg(gain=linear,gain=linear)", "the option 'gain' is given twice."),
        ("p(threshold=two)@1", "threshold must be a number; got 'two'."),
        ("p(threshold=nan)@1", "threshold must be a finite number; got nan."),
    ],
)
def test_a_bad_text_is_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        parse_gain(text)
    assert str(error.value).endswith(f"The forms are {FORMS}.")


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (
            lambda: NDCG(0),
            ValueError,
            "NDCG: k must be at least 1, the number of ranks counted, or None for every rank; got 0.",
        ),
        (lambda: NDCG(True), TypeError, "NDCG: k must be an integer"),
        (lambda: NDCG(np.True_), TypeError, "NDCG: k must be an integer"),
        (lambda: NDCG(10.0), TypeError, "NDCG: k must be an integer"),
        (lambda: NDCG(discount="log"), ValueError, "NDCG: discount must be 'letor' or 'log2'; got 'log'."),
        (lambda: NDCG(gain="exp"), ValueError, "NDCG: gain must be 'exponential' or 'linear'; got 'exp'."),
        (
            lambda: Precision(-1),
            ValueError,
            "Precision: k must be at least 1, the number of ranks counted; got -1.",
        ),
        (
            lambda: Precision(None),
            TypeError,
            "Precision: k must be an integer, the number of ranks counted; got None.",
        ),
        (lambda: Precision(1, threshold="1"), TypeError, "Precision: threshold must be a number; got '1'."),
        (
            lambda: Precision(1, threshold=np.inf),
            ValueError,
            "Precision: threshold must be a finite number; got inf.",
        ),
        (lambda: RBP(1), ValueError, "RBP: p must be at least 0 and below 1; got 1.0."),
        (lambda: RBP(-0.1), ValueError, "RBP: p must be at least 0 and below 1; got -0.1."),
        (lambda: RBP(np.nan), ValueError, "RBP: p must be a finite number; got nan."),
        (lambda: RBP(True), TypeError, "RBP: p must be a number; got True."),
        (
            RankLinear,
            ValueError,
            "RankLinear: expected gain= and discount= together, or table= alone; got none of them.",
        ),
        (lambda: RankLinear(gain=np.abs), ValueError, "or table= alone; got gain."),
        (lambda: RankLinear(gain=np.abs, table=np.add), ValueError, "or table= alone; got gain and table."),
        (
            lambda: RankLinear(gain=np.abs, discount=2),
            TypeError,
            "RankLinear: discount must be a function of arrays; got 2.",
        ),
        (
            lambda: RankLinear(table=np.add, normalize=True),
            ValueError,
            "RankLinear: normalize=True needs gain= and discount=",
        ),
        (lambda: RankLinear(table=np.add).gains([1]), TypeError, "RankLinear(table=...) has no gains()"),
        (
            lambda: RankLinear(table=np.add).discounts(1),
            TypeError,
            "RankLinear(table=...) has no discounts()",
        ),
        (
            lambda: as_gain(10),
            TypeError,
            "gain must be a Gain such as NDCG(10), or a text such as 'ndcg@10'; got 10.",
        ),
        (lambda: as_gain(NDCG), TypeError, "Did you mean NDCG(...), an instance?"),
    ],
)
def test_a_bad_gain_is_explained(build, kind, message) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        build()


@pytest.mark.parametrize(
    ("gain", "labels", "message"),
    [
        (
            NDCG(),
            [0, 2000],
            "labels[1] = 2000.0: ndcg cannot take it. Labels must be at least 0, and below 960",
        ),
        (NDCG(), [0, 1, -1], "labels[2] = -1.0: ndcg cannot take it."),
        (NDCG(5), [np.nan, -1], "labels[0] = nan: ndcg@5 cannot take it."),
        (
            NDCG(gain="linear"),
            [np.inf],
            "labels[0] = inf: ndcg(gain=linear) cannot take it (its gain would be inf).",
        ),
        (NDCG(gain="linear"), [1, -2], "labels[1] = -2.0: ndcg(gain=linear) cannot take it"),
        (Precision(3), [0, np.nan], "labels[1] = nan: p@3 cannot take it. Labels must be finite."),
        (
            RBP(),
            [0, np.nan],
            "labels[1] = nan: rbp@0.8 cannot take it",
        ),
        (
            RankLinear(gain=np.log, discount=np.sqrt),
            [1, 0],
            "(its gain would be -inf). Make gain= return finite values.",
        ),
        (
            RankLinear(gain=np.negative, discount=np.reciprocal, normalize=True),
            [0, 3],
            "(its gain would be -3.0). normalize=True needs a gain= that returns finite values of at",
        ),
        (
            RankLinear(gain=np.sum, discount=np.sqrt),
            [1, 0],
            "gain(labels) must return an array of shape (2,); got shape ().",
        ),
        (NDCG(), [[1]], "labels: expected one value per document, shape (N,); got shape (1, 1)."),
    ],
)
def test_a_label_that_a_gain_cannot_take_is_named(gain: Gain, labels: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        gain.gains(labels)


@pytest.mark.parametrize(
    ("discount", "message"),
    [
        (lambda k: 1 / (k - 2), "discount must return finite values; got inf for rank 2. Ranks start at 1."),
        (lambda k: 1.0, "discount(ranks) must return an array of shape (3,); got shape ()."),
        (np.sqrt, "got 1.0 for rank 1 and 1.4142135623730951 for rank 2. Use normalize=False"),
        (lambda k: 2 - k, "got -1.0 for rank 3 and the last one below 0."),
    ],
)
def test_a_bad_discount_is_explained(discount, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RankLinear(gain=np.square, discount=discount, normalize=True).discounts(3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (lambda r, k: r / (k - 3), "labels[0] = 5.0: the table of RankLinear gives inf at rank 3."),
        (lambda r, k: r, "table(labels, ranks) must return an array of shape (2, 3); got shape (2, 1)."),
    ],
)
def test_a_bad_table_is_explained(table, message) -> None:
    # The row is that of the caller's labels, not of the distinct ones.
    with pytest.raises(ValueError, match=re.escape(message)):
        RankLinear(table=table).class_discounts([5, 4, 4], 3)


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"gain": lambda r: 1.0 if r > 1 else 0.0, "discount": np.reciprocal}, r"gain\(labels\)"),
        ({"gain": np.exp2, "discount": lambda k: 1.0 if k < 3 else 0.0}, r"discount\(ranks\)"),
        ({"table": max}, r"table\(labels, ranks\)"),
    ],
)
def test_functions_of_single_numbers_are_told_of_arrays(options, call):
    with pytest.raises(ValueError, match=rf"^RankLinear: {call} is called with whole arrays.*np\.where"):
        sinkprop.expected_gain([0.5, 0.1, 0.9], [0, 1, 2], gain=RankLinear(**options))
