"""Permanents against integer arithmetic, known sequences and the definition."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkprop import _native, sinkhorn_limit
from sinkprop.permutations import permanent
from sinkprop.permutations.exact import LARGEST, time_of_glynn


def exact(A):
    """The permanent in whole numbers or fractions: the sum over subsets of columns."""
    n = len(A)
    sums = [0] * 2**n
    sums[0] = 1
    for S in range(1, 2**n):
        row = A[S.bit_count() - 1]
        sums[S] = sum(row[j] * sums[S ^ 1 << j] for j in range(n) if S >> j & 1)
    return sums[-1]


def by_definition(A):
    n = len(A)
    return sum(math.prod(A[i][s[i]] for i in range(n)) for s in itertools.permutations(range(n)))


def glynn(A, n_threads=1):
    """The permanent by the native Glynn formula alone."""
    groups = _native.glynn_groups(len(A))
    sums = np.empty((groups, 2))
    _native.glynn_sums(np.ascontiguousarray(A, dtype=np.float64), 0, n_threads, sums)
    return math.fsum(sums.ravel()) / 2 ** (len(A) - 1)


def accuracy(n):
    """Rounding errors of n factors, relative to the sum in Glynn's formula for equal entries."""
    return n * 2.0**-53 * max(1, n**n / math.factorial(n) / 2 ** (n - 1))


def relative_error(found, expected):
    return abs(float(Fraction(found) / Fraction(expected) - 1))


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_definition(n, seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(0, 4, (n, n))
    assert exact(A.tolist()) == by_definition(A.tolist())
    assert permanent(A).value == by_definition(A.tolist())


@pytest.mark.parametrize("n", [8, 9, 11, 13, 14, 15, 16])
@pytest.mark.parametrize("kind", ["zeros and ones", "integers", "uneven"])
def test_glynn_against_integers(n, kind):
    rng = np.random.default_rng([n, len(kind)])
    A = rng.integers(0, 2, (n, n)) if kind == "zeros and ones" else rng.integers(0, 2**20, (n, n))
    if kind == "uneven":
        A = A >> rng.integers(0, 20, (n, n))
    A += np.eye(n, dtype=A.dtype)
    expected = exact(A.tolist())
    result = permanent(A, "exact")
    assert relative_error(result.value, expected) < 2 * accuracy(n)
    assert result.log_value == pytest.approx(math.log(expected), rel=1e-14)
    assert result.lower == result.value == result.upper
    if kind != "uneven":
        assert relative_error(glynn(A), expected) < 2 * accuracy(n)


def derangements(n):
    return n * derangements(n - 1) + (-1) ** n if n else 1


def menage(n):
    """Touchard's number of permutations with s(i) neither i nor i + 1 modulo n."""
    return sum(
        (-1) ** k * 2 * n * math.comb(2 * n - k, k) * math.factorial(n - k) // (2 * n - k)
        for k in range(n + 1)
    )


@pytest.mark.parametrize("n", [3, 12, 13, 20, 24])
def test_known_sequences(n):
    ones, eye = np.ones((n, n)), np.eye(n)
    cycle = np.roll(eye, 1, axis=1)
    assert relative_error(permanent(ones).value, math.factorial(n)) < accuracy(n)
    assert relative_error(permanent(ones - eye).value, derangements(n)) < accuracy(n)
    assert relative_error(permanent(ones - eye - cycle).value, menage(n)) < accuracy(n)
    assert permanent(eye + cycle).value == 2


def test_thirty_rows():
    A = np.ones((30, 30)) - np.eye(30)
    assert relative_error(permanent(A, "exact").value, derangements(30)) < accuracy(30)


def test_every_instruction_set_agrees():
    before = _native.instruction_set()
    A = np.random.default_rng(0).integers(0, 100, (14, 14))
    expected = exact(A.tolist())
    try:
        for name in _native.instruction_sets():
            _native.use_instruction_set(name)
            assert relative_error(glynn(A), expected) < 1e-13
    finally:
        _native.use_instruction_set(before)


def test_threads_do_not_change_the_result():
    A = np.random.default_rng(0).random((21, 21))
    assert permanent(A, n_threads=1).value == permanent(A, n_threads=3).value
    first = permanent(A, "accept-reject", seed=5, n_threads=1)
    second = permanent(A, "accept-reject", seed=5, n_threads=3)
    assert (first.value, first.n_draws) == (second.value, second.n_draws)


@settings(deadline=None)
@given(st.integers(1, 16), st.integers(0, 10**6), st.integers(-900, 900))
def test_scaling_by_powers_of_two_is_exact(n, seed, power):
    rng = np.random.default_rng(seed)
    A = rng.random((n, n)) * (rng.random((n, n)) < 0.7) + np.diag(rng.random(n))
    plain = permanent(A, "exact")
    shifted = permanent(np.ldexp(A, power), "exact")
    assert shifted.log_value == pytest.approx(plain.log_value + n * power * math.log(2), rel=1e-13, abs=1e-13)
    assert shifted.value in (0, math.inf) or shifted.value == pytest.approx(
        math.ldexp(plain.value, n * power), rel=1e-13
    )


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6))
def test_permuting_and_transposing_change_nothing(n, seed):
    rng = np.random.default_rng(seed)
    A = np.exp(3 * rng.normal(size=(n, n))) * (rng.random((n, n)) < 0.6) + np.eye(n)
    value = permanent(A).value
    assert permanent(A.T).value == pytest.approx(value, rel=1e-13)
    assert permanent(A[rng.permutation(n)][:, rng.permutation(n)]).value == pytest.approx(value, rel=1e-13)


def test_blocks_are_multiplied():
    rng = np.random.default_rng(0)
    A = np.triu(rng.random((400, 400)), 20) * 7  # entries on no positive diagonal
    expected = 0.0
    for start in range(0, 400, 20):
        block = rng.random((20, 20))
        A[start : start + 20, start : start + 20] = block
        expected += permanent(block).log_value
    order = rng.permutation(400)
    result = permanent(A[order])
    assert result.method == "exact"
    assert result.log_value == pytest.approx(expected, rel=1e-13)


def test_values_beyond_float64():
    large = permanent(np.full((2, 2), 1e300))
    assert large.value == large.upper == math.inf
    assert large.log_value == pytest.approx(math.log(2) + 600 * math.log(10))
    small = permanent(np.full((2, 2), 1e-300))
    assert small.value == small.lower == 0
    assert small.log_value == pytest.approx(math.log(2) - 600 * math.log(10))
    assert "exp(" in large.message


@pytest.mark.parametrize("method", ["auto", "exact", "bounds", "accept-reject"])
def test_permanent_zero(method):
    A = np.ones((4, 4))
    A[1:3, :3] = 0
    result = permanent(A, method)
    assert (result.value, result.log_value, result.lower, result.upper) == (0, -math.inf, 0, 0)
    assert result.message == "The permanent is 0: rows 1, 2 have all their nonzero entries in column 3."
    A[2] = 0
    assert permanent(A, method).message == "The permanent is 0: row 2 is all zeros."


def test_many_deficient_rows_are_counted():
    A = np.zeros((20, 20))
    A[:, :9] = 1
    assert permanent(A).message == (
        "The permanent is 0: rows 0, 1, 2, 3, 4, 5, 6, 7, ... (10 in all) have all their nonzero entries in "
        "columns 0, 1, 2, 3, 4, 5, 6, 7, ... (9 in all)."
    )


def test_results_can_be_pickled():
    A = np.random.default_rng(0).random((5, 5))
    for method in ("exact", "bounds", "accept-reject"):
        result = permanent(A, method, seed=0)
        copy = pickle.loads(pickle.dumps(result))
        assert repr(copy) == repr(result)


def test_one_row():
    for method in ("auto", "exact", "bounds"):
        assert permanent([[3]], method).value == pytest.approx(3)
    assert permanent([[3]], "accept-reject", n_accepted=10, seed=0).value == pytest.approx(3)


def test_unusual_arrays():
    A = np.arange(1.0, 17).reshape(4, 4)
    frozen = A.copy()
    frozen.flags.writeable = False
    expected = by_definition(A.tolist())
    for given_ in (A.astype(int), A.astype(np.float32), np.asfortranarray(A), frozen, A.tolist()):
        assert permanent(given_).value == expected
    assert permanent(np.repeat(A, 2, axis=1)[:, ::2]).value == expected


def test_auto_takes_bounds_for_large_matrices():
    assert permanent(np.ones((24, 24))).method == "exact"
    assert permanent(np.ones((25, 25))).method == "bounds"


@pytest.mark.parametrize(
    ("A", "words"),
    [
        ([[1, -1], [1, 1]], "A must have finite, nonnegative entries, got A[0, 1] = -1.0"),
        ([[1, math.nan], [1, 1]], "A must have finite, nonnegative entries, got A[0, 1] = nan"),
        ([[1, math.inf], [1, 1]], "A must have finite, nonnegative entries, got A[0, 1] = inf"),
        ([[1, 2, 3], [1, 1, 1]], "A must be a square matrix with at least one row, got shape (2, 3)"),
        (np.ones((0, 0)), "A must be a square matrix with at least one row, got shape (0, 0)"),
        ([[1j]], "A must be a dense array of real numbers"),
    ],
)
def test_bad_matrices(A, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        permanent(A)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"method": "ryser"},
            "method must be 'auto' or 'exact' or 'bounds' or 'accept-reject'; got 'ryser'.",
        ),
        ({"seed": -1}, "seed must be a whole number that is not below 0"),
        ({"seed": "one"}, "got 'one'."),
        ({"n_accepted": 1}, "n_accepted must be at least 2; got 1."),
        ({"max_draws": 0}, "max_draws must be at least 1; got 0."),
        ({"confidence": 1.0}, "confidence must be a number above 0 and below 1; got 1.0."),
        ({"confidence": "high"}, "confidence must be a number above 0 and below 1; got 'high'."),
        ({"n_threads": 0}, "n_threads must be at least 1; got 0."),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        permanent([[1, 2], [3, 4]], **options)
    assert words in str(error.value)


def test_too_large_for_the_exact_method():
    words = r"method='exact' is for at most 34 rows; A has 60 rows, which would take about .* years. Use"
    with pytest.raises(ValueError, match=words):
        permanent(np.ones((60, 60)), "exact")
    A = np.eye(100)
    A[:50, :50] = 1
    with pytest.raises(ValueError, match="A has a block of 50 rows, which would take about"):
        permanent(A, "exact")
    assert LARGEST == 34


def test_times_are_in_readable_units():
    times = [time_of_glynn(n, 1) for n in (30, 36, 42, 48, 56, 200)]
    assert times[0].endswith("seconds")
    assert times[-1].startswith("1e4")
    assert times[-1].endswith("years")
    assert len({words.split()[1] for words in times}) >= 4


def test_scaling_finds_what_a_permanent_of_a_scaled_matrix_is():
    A = np.random.default_rng(1).random((10, 10))
    limit = sinkhorn_limit(A, tol=1e-13)
    shift = limit.log_u.sum() + limit.log_v.sum()
    assert permanent(limit.matrix).log_value == pytest.approx(permanent(A).log_value + shift, abs=1e-11)
