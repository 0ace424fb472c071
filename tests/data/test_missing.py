"""The treatment of missing values: means, indicators, and their record in model files."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues, filled, has_missing, learned_from_rows

NAN = np.nan
X = np.array([[1.0, NAN, NAN, 2.0], [3.0, 4.0, NAN, NAN], [NAN, 8.0, NAN, 6.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_and_indicators(dtype):
    missing = learned_from_rows("indicator", X.astype(dtype))
    assert_array_equal(missing.mean, [2, 6, 0, 4])
    # a feature that is missing in all rows has no indicator, which would be constant
    assert_array_equal(missing.indicators, [0, 1, 3])
    treated = missing(np.array([[NAN, 1, 5, NAN]], dtype))
    assert treated.dtype == dtype
    assert_array_equal(treated, [[2, 1, 5, 4, 1, 0, 1]])
    assert missing.names(["a", "b", "c", "d"])[4:] == ["missing(a)", "missing(b)", "missing(d)"]
    only = learned_from_rows("mean", X.astype(dtype))
    assert_array_equal(only(X.astype(dtype))[:, 0], [1, 3, 2])
    assert only.n_columns == 4


def test_a_mean_is_the_same_number_in_single_and_double_precision():
    rows = np.array([[0.1], [0.2], [NAN]])
    double, single = learned_from_rows("mean", rows), learned_from_rows("mean", rows.astype(np.float32))
    gone = np.array([[NAN]])
    assert double(gone)[0, 0] == double(gone.astype(np.float32))[0, 0]
    assert single(gone)[0, 0] == single(gone.astype(np.float32))[0, 0]
    huge = learned_from_rows("mean", np.array([[1e300], [NAN]]))
    assert_array_equal(huge(gone), [[1e300]])


def test_rows_without_any_value_are_an_error():
    with pytest.raises(ValueError, match=r"every feature is missing \(NaN\) in all 2 training rows"):
        learned_from_rows("indicator", np.full((2, 3), NAN))


def test_only_nan_is_missing():
    assert has_missing(X)
    largest = np.finfo(np.float64).max
    for finite in (np.ones((2, 2)), np.array([[largest, largest, -largest, -largest, -largest]])):
        assert not has_missing(finite)


def test_a_model_without_missing_values_knows_the_means_of_standardized_features():
    scaling = Scaling("standard", np.array([1.0, 2.0]), np.ones(2))
    rows = np.array([[NAN, 5.0], [3.0, NAN]])
    assert_array_equal(filled(rows, None, scaling), [[1, 5], [3, 2]])
    whole = np.ones((2, 2))
    assert filled(whole, None, scaling) is whole
    for kind in ("none", "query"):
        with pytest.raises(ValueError, match=rf"missing values .NaN. in column 0.*normalization='{kind}'"):
            filled(rows, None, Scaling(kind, np.zeros(2), np.ones(2)))


def test_a_record_is_read_back():
    record = learned_from_rows("indicator", X).record()
    assert_array_equal(MissingValues.from_record(record, 4)(X), learned_from_rows("indicator", X)(X))


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.zeros(3)},
        {"mean": np.array([0, 0, NAN, 0])},
        {"indicators": np.array([0, 4])},
        {"indicators": np.array([-1, 0])},
        {"indicators": np.array([1, 0])},
        {"indicators": np.array([1, 1])},
        {"indicators": np.array([0.0, 1.0])},
        {"indicators": np.array([[0, 1]])},
    ],
)
def test_a_record_that_does_not_fit_is_an_error(change):
    record = learned_from_rows("indicator", X).record()
    with pytest.raises(ValueError, match="4 features"):
        MissingValues.from_record({**record, **change}, 4)
