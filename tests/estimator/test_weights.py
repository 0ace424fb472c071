"""Row and query weights of the expected gain, against the same gain of other labels and sums written out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop
from sinkprop import NDCG, PartitionedMeasure, RankLinear, SmoothedIndicator, doubly_stochastic, expected_gain


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    qid = np.repeat([3, 1, 2, 9], [4, 1, 7, 30])[rng.permutation(42)]
    return rng.normal(size=42), rng.integers(0, 4, 42).astype(float), qid


def test_row_weights_are_the_gain_of_scaled_labels_where_the_gain_is_linear(data):
    scores, labels, qid = data
    weight = np.random.default_rng(6).uniform(0, 3, len(scores))
    weighted = expected_gain(scores, labels, qid, gain=NDCG(gain="linear"), sample_weight=weight)
    scaled = expected_gain(scores, labels * weight, qid, gain=NDCG(gain="linear"))
    assert weighted.value == scaled.value
    assert_array_equal(weighted.gradient, scaled.gradient)


def test_row_weights_multiply_what_each_document_adds(data):
    scores, labels, _ = data
    weight = np.random.default_rng(6).uniform(0, 3, len(scores))
    table = RankLinear(table=lambda r, k: r / (k + r))
    relaxation = SmoothedIndicator(0.4, accuracy="exact")
    Pi = doubly_stochastic(scores, relaxation=relaxation)
    k = np.arange(1, len(scores) + 1)
    by_hand = np.sum(weight[:, None] * labels[:, None] / (k + labels[:, None]) * Pi)
    assert_allclose(
        expected_gain(scores, labels, gain=table, relaxation=relaxation, sample_weight=weight).value,
        by_hand,
        rtol=1e-9,
    )


def test_equal_row_weights_change_nothing_of_a_normalized_gain(data):
    scores, labels, qid = data
    plain = expected_gain(scores, labels, qid)
    weighted = expected_gain(scores, labels, qid, sample_weight=np.full(len(scores), 2.5))
    assert_allclose(weighted.per_query, plain.per_query, rtol=1e-13)
    assert_allclose(weighted.gradient, plain.gradient, rtol=1e-11, atol=1e-16)


def test_a_document_of_weight_zero_is_worth_nothing_but_takes_a_rank():
    value = expected_gain(
        [2.0, 1.0], [1, 1], gain="p@1", relaxation=SmoothedIndicator(1e-3), sample_weight=[0, 1]
    ).value
    assert value == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("relaxation", [SmoothedIndicator(0.5), PartitionedMeasure("probit")])
def test_query_weights_make_a_weighted_mean_and_its_gradient(data, relaxation):
    scores, labels, qid = data
    if relaxation.width == 2:
        scores = np.stack([scores, scores[::-1] / 2], axis=1)
    weights = {1: 0.0, 2: 5.0, 3: 0.25, 9: 1.0}
    r = expected_gain(scores, labels, qid, relaxation=relaxation, query_weight=weights)
    alone = {q: expected_gain(scores[qid == q], labels[qid == q], relaxation=relaxation) for q in weights}
    assert_allclose(r.value, sum(weights[q] * alone[q].value for q in weights) / 6.25, rtol=1e-14)
    for q, weight in weights.items():
        assert_allclose(r.gradient[qid == q], weight / 6.25 * alone[q].gradient, rtol=1e-12, atol=0)
    by_appearance = expected_gain(
        scores, labels, qid, relaxation=relaxation, query_weight=[weights[q] for q in r.queries.tolist()]
    )
    by_row = expected_gain(
        scores, labels, qid, relaxation=relaxation, query_weight=[weights[q] for q in qid.tolist()]
    )
    for other in (by_appearance, by_row):
        assert other.value == r.value
        assert_array_equal(other.gradient, r.gradient)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"sample_weight": [1, 1]}, r"sample_weight must have one weight per row, \(3,\); got \(2,\)"),
        ({"sample_weight": [1, -1, 1]}, "sample_weight must be finite and not below 0; row 1 holds -1"),
        ({"sample_weight": [1, 1, np.nan]}, "row 2 holds nan"),
        ({"sample_weight": ["a", "b", "c"]}, "sample_weight must be an array of real numbers"),
        ({"query_weight": [1]}, r"one weight per query, \(2,\), or one per row, \(3,\); got \(1,\)"),
        ({"query_weight": [1, -2]}, "query_weight must be finite and not below 0; query 'b' has -2"),
        ({"query_weight": [1, np.inf]}, "query 'b' has inf"),
        ({"query_weight": [0, 0]}, "sum above 0"),
        ({"query_weight": {"a": 1}}, "there is none for 'b'"),
        ({"query_weight": [1, 2, 3]}, "equal, finite values within each query; it does not in query 'a'"),
        ({"query_weight": [1, np.nan, 3]}, "it does not in query 'a'"),
    ],
)
def test_bad_weights_are_errors_that_name_the_place(weights, message):
    with pytest.raises(ValueError, match=message):
        sinkprop.expected_gain([1.0, 2.0, 3.0], [1, 0, 2], ["a", "a", "b"], **weights)
