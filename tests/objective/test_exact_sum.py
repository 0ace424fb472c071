"""The exact sum equals `math.fsum`, whose definition is that it is rounded once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop.objective.exact_sum import exact_sum


@given(st.lists(st.floats(-1e300, 1e300), max_size=40))
def test_it_is_the_sum_rounded_once(values: list[float]) -> None:
    assert exact_sum(np.array(values)) == math.fsum(values)


def test_small_numbers_count_after_large_ones_cancel() -> None:
    tiny = [2.0**-k for k in range(0, 1000, 60)]
    values = np.array([1e300, *tiny, -1e300, 3e-320])
    assert exact_sum(values) == math.fsum(values) == math.fsum([*tiny, 3e-320])


@pytest.mark.parametrize(
    "values", [[np.inf, 1.0], [-np.inf], [np.nan, 1.0], [1e308, 1e308, -1e308], [np.inf, -np.inf]], ids=str
)
def test_what_is_not_finite_is_as_in_fsum(values: list[float]) -> None:
    def result(total: object) -> object:
        try:
            return total(values if total is math.fsum else np.array(values))  # type: ignore[operator]
        except (ValueError, OverflowError) as error:
            return str(error)

    np.testing.assert_equal(result(exact_sum), result(math.fsum))
