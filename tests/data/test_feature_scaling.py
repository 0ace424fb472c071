"""Feature normalization, against scikit-learn's scalers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler, minmax_scale

import sinkprop.data.feature_scaling
from sinkprop.data import group_rows
from sinkprop.data.feature_scaling import fit_scaling, scale_by_query


@pytest.mark.parametrize("chunk", [3, 1 << 15])
def test_standard_scaling_is_scikit_learns(monkeypatch, chunk):
    monkeypatch.setattr(sinkprop.data.feature_scaling, "_CHUNK", chunk)
    X = np.random.default_rng(0).normal(5, 3, size=(50, 4)).astype(np.float32)
    X[:, 2] = 1e6 / 3
    scaling = fit_scaling("standard", X)
    expected = StandardScaler().fit(X.astype(float))
    assert_allclose((X - scaling.shift) * scaling.factor, expected.transform(X.astype(float)), atol=1e-6)
    assert scaling.factor[2] == 0


def test_scaling_by_query_is_min_max_within_each_query():
    rng = np.random.default_rng(1)
    qid = rng.integers(0, 6, 40)
    X = rng.normal(size=(40, 3))
    X[:, 1] = qid
    scaled = scale_by_query(X, group_rows(qid, 40))
    for q in set(qid.tolist()):
        expected = minmax_scale(X[qid == q])
        expected[:, 1] = 0
        assert_allclose(scaled[qid == q], expected if (qid == q).sum() > 1 else 0, atol=1e-12)


def test_a_single_document_scales_to_zero():
    assert_array_equal(scale_by_query(np.array([[3.0, -1.0]]), group_rows([1], 1)), [[0, 0]])


def test_no_scaling_and_a_wrong_name():
    scaling = fit_scaling("none", np.ones((2, 2)))
    assert_array_equal(scaling.shift, 0)
    assert_array_equal(scaling.factor, 1)
    with pytest.raises(
        ValueError, match="normalization must be 'none' or 'query' or 'standard'; got 'minmax'"
    ):
        fit_scaling("minmax", np.ones((2, 2)))
