"""Hostile arrays for the native functions: offsets, rows and other positions that do not fit are an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sinkprop import _native
from sinkprop.objective.native_terms import NativeGains, NativeSettings, NativeTerms

N, Q, D = 6, 2, 3
Arguments = dict[str, Any]


def numbers(*values: int, dtype: str = "i8") -> np.ndarray:
    return np.array(values, dtype)


RECORDS = {"settings": NativeSettings, "gains": NativeGains, "terms": NativeTerms}


def call(name: str, arguments: Arguments) -> object:
    """Call the native function with records in the place of the arguments that are their fields."""
    left = dict(arguments)
    for parameter, record in RECORDS.items():
        if set(record._fields) <= left.keys():
            left[parameter] = record(*[left.pop(field) for field in record._fields])
    return getattr(_native, name)(**left)


def settings() -> Arguments:
    return {
        "relaxation": 0,
        "sigma": 1.0,
        "exact": True,
        "half_steps": 2,
        "epsilon": 0.0,
        "tol": 0.0,
        "n_threads": 1,
    }


def queries() -> Arguments:
    return {"scores": np.linspace(0, 1, N), "offsets": numbers(0, 2, N), "rows": numbers(0, 1, 2, 3, 4, 5)}


def gains() -> Arguments:
    classes = np.zeros(N, np.int32)
    return {
        "gains": np.ones(N),
        "exponential": False,
        "classes": classes,
        "discounts": np.ones((1, 4)),
        "normalize": True,
    }


def expected_gain() -> Arguments:
    return {**queries(), **gains(), **settings(), "per_query": np.empty(Q), "gradient": np.empty(N)}


def project() -> Arguments:
    return {**queries(), **settings(), "columns": np.ones((2, 4)), "out": np.empty((N, 2))}


def tree_derivatives() -> Arguments:
    own = {
        "widths": np.ones(1),
        "blend": 0.5,
        "noise": 0.0,
        "seed": 0,
        "half_steps": 2,
        "epsilon": 0.0,
        "tol": 0.0,
    }
    out = {"per_query": np.empty(Q), "gradient": np.empty(N, "f4"), "hessian": np.empty(N, "f4")}
    return {**queries(), **gains(), **own, "query_weight": np.ones(Q), "least": 1e-9, "n_threads": 1, **out}


def listnet() -> Arguments:
    out = {"per_query": np.empty(Q), "gradient": np.empty(N)}
    return {**queries(), "target": np.zeros(N), "k": 3, "n_threads": 1, **out}


def pairwise_loss() -> Arguments:
    lower, weight = numbers(1, 2, 1, 2, 3, 4), {"sample_weight": np.ones(N), "query_weight": np.ones(Q)}
    return {**queries(), "lower": lower, **weight, "n_threads": 1, "per_query": np.empty(Q)}


def pairwise_derivatives() -> Arguments:
    found = {**pairwise_loss(), "gradient": np.empty(N), "hessian": np.empty(N)}
    del found["per_query"]
    return found


def add_products() -> Arguments:
    words = np.zeros((3, 1, D), np.int64)
    return {
        "X": np.ones((N, D)),
        "g": np.ones((N, 1)),
        "offsets": numbers(0, 2, N),
        "scale": np.ones((1, D)) / 64,
        "words": words,
    }


def letor_words() -> Arguments:
    words = numbers(0, 2, 2, 5).reshape(2, 2)
    return {
        "data": np.frombuffer(b"abcde", np.uint8),
        "words": words,
        "out": np.empty((2, 3), np.uint32),
        "n_threads": 1,
    }


def letor_write() -> Arguments:
    ends = {"qid": b"1234", "qid_end": numbers(2, 4), "docid": b"ab", "docid_end": numbers(1, 2)}
    return {
        "X": np.ones((2, D)),
        "y": np.ones(2),
        **ends,
        "first": 0,
        "last": 2,
        "sparse": False,
        "n_threads": 1,
    }


def glynn_sums() -> Arguments:
    return {"A": np.ones((17, 17)), "first": 0, "n_threads": 1, "sums": np.empty((1, 2))}


def matching_marginals() -> Arguments:
    return {"A": np.ones((3, 3)), "marginals": np.empty((3, 3))}


def draw_matchings() -> Arguments:
    tables = {"weights": np.ones((3, 3)), "shrink": np.ones((3, 3))}
    return {**tables, "seed": 0, "first": 0, "n_threads": 1, "matchings": np.empty((5, 3), np.int32)}


OFFSETS = {
    "offsets that decrease": {"offsets": numbers(0, 4, 2)},
    "an empty query": {"offsets": numbers(0, 0, N)},  # only tree_derivatives takes one
    "a negative offset": {"offsets": numbers(-2, 2, N)},
    "an offset past the end": {"offsets": numbers(0, 2, N + 1)},
    "an offset far past the end": {"offsets": numbers(0, 2, 2**63 - 1)},
    "offsets whose difference overflows": {"offsets": numbers(2**62, -(2**62), N)},
    "the least offset": {"offsets": numbers(-(2**63), 2, N)},
    "no offsets": {"offsets": numbers()},
}
ROWS = {
    "a negative row": {"rows": numbers(0, 1, -1, 3, 4, 5)},
    "a row past the end": {"rows": numbers(0, 1, 2, 3, 4, N)},
    "the largest row": {"rows": numbers(0, 1, 2, 3, 4, 2**63 - 1)},
    "too few rows": {"rows": numbers(0, 1, 2)},
    "no rows": {"rows": numbers()},
}
GAINS = {
    "a negative class": {"classes": numbers(0, 0, 0, 0, 0, -1, dtype="i4")},
    "a class past the end": {"classes": numbers(0, 0, 0, 0, 0, 1, dtype="i4")},
    "too few classes": {"classes": numbers(0, dtype="i4")},
    "no classes for several rows of discounts": {"classes": None, "discounts": np.ones((2, 4))},
    "too few discounts": {"discounts": np.ones((1, 3))},
    "no discounts": {"discounts": np.ones((0, 4))},
    "half a step less than none": {"half_steps": -1},
    "too few gains": {"gains": np.ones(N - 1)},
}
PAIRS = {
    "a negative position": {"lower": numbers(1, 2, 1, 2, 3, -1)},
    "a position past the query": {"lower": numbers(1, 3, 1, 2, 3, 4)},
    "too few positions": {"lower": numbers(1, 2)},
    "too few sample weights": {"sample_weight": np.ones(N - 1)},
    "too few query weights": {"query_weight": np.ones(1)},
}
WORDS = {
    "a word of negative length": {"words": numbers(0, 2, 5, 2).reshape(2, 2)},
    "a word before the text": {"words": numbers(-1, 1, 2, 5).reshape(2, 2)},
    "a word past the text": {"words": numbers(0, 2, 4, 6).reshape(2, 2)},
    "a word whose length overflows": {"words": numbers(-(2**63), 2**63 - 1, 2, 5).reshape(2, 2)},
    "a word wider than out": {"words": numbers(0, 2, 0, 5).reshape(2, 2)},
    "words of three numbers": {"words": numbers(0, 1, 2, 3, 4, 5).reshape(2, 3)},
}
ENDS = {
    "ends that decrease": {"qid_end": numbers(4, 2)},
    "a negative end": {"qid_end": numbers(-1, 4)},
    "an end past the text": {"qid_end": numbers(2, 5)},
    "too few ends": {"qid_end": numbers(4)},
    "ends of docids that decrease": {"docid_end": numbers(2, 1)},
    "an end of docids past the text": {"docid_end": numbers(1, 3)},
    "rows past the end": {"last": 3},
    "rows that decrease": {"first": 2, "last": 1},
    "a negative row": {"first": -1},
}
GROUPS = {
    "a group past the end": {"first": 1},
    "the largest group": {"first": 2**64 - 1},
    "a negative group": {"first": -1},
    "too many sums": {"sums": np.empty((2, 2))},
    "sums of three numbers": {"sums": np.empty((1, 3))},
    "a small matrix": {"A": np.ones((7, 7))},
    "a large matrix": {"A": np.ones((41, 41))},
    "a matrix that is not square": {"A": np.ones((17, 16))},
}
SQUARE = {
    "no rows": {"A": np.ones((0, 0))},
    "a matrix that is not square": {"A": np.ones((3, 2))},
    "too many rows": {"A": np.ones((25, 25)), "marginals": np.empty((25, 25))},
    "too few marginals": {"marginals": np.empty((3, 2))},
}
TABLES = {
    "no rows": {"weights": np.ones((0, 0))},
    "weights that are not square": {"weights": np.ones((3, 4))},
    "too few factors": {"shrink": np.ones((2, 3))},
    "matchings of two rows": {"matchings": np.empty((5, 2), np.int32)},
    "matchings of another type": {"matchings": np.empty((5, 3), np.int64)},
}
RELAXATIONS = {"no such relaxation": {"relaxation": 6}, "a negative relaxation": {"relaxation": -1}}

HOSTILE: dict[Callable[[], Arguments], dict[str, Arguments]] = {
    expected_gain: {**OFFSETS, **ROWS, **GAINS, **RELAXATIONS},
    project: {**OFFSETS, **ROWS, **RELAXATIONS, "too few columns": {"columns": np.ones((2, 3))}},
    tree_derivatives: {
        **{name: case for name, case in OFFSETS.items() if name != "an empty query"},
        **ROWS,
        **GAINS,
    },
    listnet: {**OFFSETS, **ROWS, "no ranks": {"k": 0}, "too few targets": {"target": np.zeros(2)}},
    pairwise_loss: {**OFFSETS, **ROWS, **PAIRS},
    pairwise_derivatives: {**OFFSETS, **ROWS, **PAIRS},
    add_products: OFFSETS,
    letor_words: WORDS,
    letor_write: ENDS,
    glynn_sums: GROUPS,
    matching_marginals: SQUARE,
    draw_matchings: TABLES,
}
CASES = [
    pytest.param(valid, change, id=f"{valid.__name__}, {fault}")
    for valid, faults in HOSTILE.items()
    for fault, change in faults.items()
]


@pytest.mark.parametrize("valid", HOSTILE, ids=lambda valid: valid.__name__)
def test_the_arguments_that_are_made_hostile_are_valid(valid: Callable[[], Arguments]) -> None:
    call(valid.__name__, valid())


@pytest.mark.parametrize(("valid", "change"), CASES)
def test_positions_that_do_not_fit_are_an_error(valid: Callable[[], Arguments], change: Arguments) -> None:
    with pytest.raises((ValueError, TypeError)):
        call(valid.__name__, {**valid(), **change})


@pytest.mark.parametrize("valid", [v for v in HOSTILE if "offsets" in v()], ids=lambda valid: valid.__name__)
@pytest.mark.parametrize(
    "offsets",
    [
        np.array([0.0, 2.0, np.inf]),
        np.array([[0, 2, N]]),
        np.array(["0", "2", "6"]),
        np.array([N, 9, 2, 9, 0, 9])[::-2],  # as a copy: 9, 9, 9
        [0, 2, N],
        None,
    ],
    ids=["infinite", "two axes", "text", "not contiguous", "list", "None"],
)
def test_arrays_of_another_kind_are_an_error(valid: Callable[[], Arguments], offsets: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        call(valid.__name__, {**valid(), "offsets": offsets})


def terms_gain() -> Arguments:
    own = {"attributes": np.ones((1, N)), "table": np.zeros((1, 10)), "functions": [None]}
    own["table"][0, [3, 6]] = 1  # one attribute, of weight 1
    out = {"per_query": np.empty(Q), "gradient": np.empty(N)}
    return {**queries(), **own, "discounts": np.ones((1, 4)), **settings(), **out}


@pytest.mark.parametrize("valid", [expected_gain, terms_gain, project], ids=lambda valid: valid.__name__)
def test_results_have_the_type_of_the_scores(valid: Callable[[], Arguments]) -> None:
    """Or float64, to which scores in float32 can be converted; an array of another type is not filled."""
    function, name = valid.__name__, "out" if valid is project else "gradient"
    arguments = valid()
    scores, out = arguments["scores"].astype("f4"), arguments[name]
    call(function, {**arguments, "scores": scores})
    call(function, {**arguments, "scores": scores, name: out.astype("f4")})
    for x, wrong in [
        (arguments["scores"], "f4"),
        (arguments["scores"], "f2"),
        (scores, "f2"),
        (scores[::-1], "f4"),
        (scores, "i4"),
        (np.arange(N), "f4"),
    ]:
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call(function, {**arguments, "scores": x, name: np.zeros(out.shape, wrong)})


@pytest.mark.parametrize(
    ("valid", "name"),
    [
        (expected_gain, "settings"),
        (expected_gain, "gains"),
        (terms_gain, "settings"),
        (terms_gain, "terms"),
        (project, "settings"),
        (tree_derivatives, "gains"),
    ],
    ids=lambda of: of if isinstance(of, str) else of.__name__,
)
def test_a_record_that_does_not_fit_is_an_error(valid: Callable[[], Arguments], name: str) -> None:
    arguments = valid()
    fields = tuple(arguments.pop(field) for field in RECORDS[name]._fields)
    call(valid.__name__, {**arguments, name: fields})
    of_another_type = [(*fields[:i], "text", *fields[i + 1 :]) for i in range(len(fields))]
    of_another_type += [
        (*fields[:i], None, *fields[i + 1 :]) for i in range(len(fields)) if (name, i) != ("gains", 2)
    ]
    for wrong in (fields[:-1], (*fields, 1), (), list(fields), None, fields[0], *of_another_type):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call(valid.__name__, {**arguments, name: wrong})


@pytest.mark.parametrize("name", ["gradient", "hessian"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_derivatives_of_trees_are_float32_for_scores_of_either_type(name: str, dtype: str) -> None:
    arguments = tree_derivatives()
    arguments["scores"] = arguments["scores"].astype(dtype)
    call("tree_derivatives", arguments)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        call("tree_derivatives", {**arguments, name: np.empty(N)})


def test_a_score_that_is_no_number_cannot_be_sorted() -> None:
    scores = np.linspace(0, 1, 100)
    scores[50] = np.nan
    with pytest.raises(ValueError, match="scores must not be NaN"):
        _native.sort_descending(scores, np.empty(100, np.int64), np.empty(100))
    with pytest.raises(ValueError, match="scores must not be NaN"):
        call("expected_gain", {**expected_gain(), "scores": np.array([0, 1, np.nan, 2, 3, 4])})
    for value in (np.nan, np.inf, -np.inf):
        values = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, value], np.float32)
        assert _native.first_invalid(values, -1e308, 1e308) == 9
        assert _native.first_invalid(values[:9], -1e308, 1e308) == -1


def test_a_layout_of_another_text_is_an_error() -> None:
    """Two texts of equal size, one of which has more documents than the arrays have rows."""
    one = np.frombuffer(b"1 qid:1 1:1 #######\n", np.uint8)
    two = np.frombuffer(b"1 qid:1\n1 qid:1\n#..\n", np.uint8)
    assert len(one) == len(two)
    layout = _native.letor_scan(one, len(one), 1)
    arrays = {
        "X": None,
        "columns": 1,
        "y": np.empty(1),
        "qid": np.empty(1, np.int64),
        "names": None,
        "docids": None,
    }
    options = {"zero_based": False, "limited": False, "null": None, "largest": 1e300, "n_threads": 1}
    _native.letor_read(one, layout, **arrays, **options)
    with pytest.raises(ValueError, match="the layout is not that of the text"):
        _native.letor_read(two, layout, **arrays, **options)
    with pytest.raises(TypeError, match="data has the wrong size"):
        _native.letor_read(two[:-1], layout, **arrays, **options)
