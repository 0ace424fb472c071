"""Partitioned measures with a scale that all documents share: one score per document."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, logit, ndtr, ndtri

from sinkprop import (
    PartitionedMeasure,
    SinkPropRanker,
    choose_permutation,
    doubly_stochastic,
    evaluate,
    expected_gain,
    expected_ranks,
    reference,
)
from sinkprop.datasets import make_ranking
from sinkprop.registry import load_model

FAMILIES = ("logit-logistic", "probit", "beta")


def problem(n, seed=0):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=n) + 5, rng.integers(0, 4, n)


def parameters(x, relaxation):
    """The two parameters of each document, by the definition."""
    above, sigma = x - x.mean(), relaxation.sigma
    if relaxation.family == "beta":
        return np.log(4 * expit(np.column_stack([-above, above])) / sigma**2)
    return np.column_stack([-above, np.full(len(x), np.log(sigma))])


@pytest.mark.parametrize("n_iter", [0.5, 5, 5.5, "converged"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_measure_with_these_parameters(family, n_iter):
    x, y = problem(20)
    shared, own = PartitionedMeasure(family, sigma=0.6), PartitionedMeasure(family)
    for gain in ("ndcg@10", "map"):
        one = expected_gain(x, y, gain=gain, relaxation=shared, n_iter=n_iter)
        two = expected_gain(parameters(x, shared), y, gain=gain, relaxation=own, n_iter=n_iter)
        assert one.value == pytest.approx(two.value, rel=1e-12)
    Pi = doubly_stochastic(x, relaxation=shared, n_iter=n_iter)
    expected = doubly_stochastic(parameters(x, shared), relaxation=own, n_iter=n_iter)
    np.testing.assert_allclose(Pi, expected, atol=1e-12)


@pytest.mark.parametrize("family", ["logit-logistic", "probit"])
def test_the_matrix_has_the_masses_of_the_bins(family):
    x, _ = problem(7)
    F, inverse = (ndtr, ndtri) if family == "probit" else (expit, logit)
    edges = inverse(np.arange(8) / 7)
    z = (edges + (x - x.mean())[:, None]) / 0.4
    expected = np.diff(F(z), axis=1)
    np.testing.assert_allclose(
        reference.pre_sinkhorn(x, PartitionedMeasure(family, sigma=0.4)), expected, atol=1e-14
    )


@pytest.mark.parametrize("gain", ["ndcg@10", "p@3", "err", "map"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_finite_differences(family, gain):
    x, y = problem(12, seed=1)
    relaxation = PartitionedMeasure(family, sigma=0.5)
    found = expected_gain(x, y, gain=gain, relaxation=relaxation).gradient
    step = 1e-5 * np.eye(12)
    values = [
        [expected_gain(x + sign * d, y, gain=gain, relaxation=relaxation).value for sign in (1, -1)]
        for d in step
    ]
    expected = -np.diff(values, axis=1)[:, 0] / 2e-5
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max() + 1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_has_the_same_value_and_gradient(family):
    x, y = problem(15, seed=2)
    relaxation = PartitionedMeasure(family, sigma=1.3)
    value, gradient = reference.expected_gain(x, y, "ndcg", relaxation)
    found = expected_gain(x, y, gain="ndcg", relaxation=relaxation)
    assert found.value == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-9 * np.abs(gradient).max())


@given(
    x=st.lists(st.floats(-30, 30), min_size=1, max_size=9),
    shift=st.floats(-1e3, 1e3),
    family=st.sampled_from(FAMILIES),
)
def test_a_shift_of_all_scores_changes_nothing(x, shift, family):
    x, y = np.array(x), np.arange(len(x)) % 3
    relaxation = PartitionedMeasure(family, sigma=0.7)
    one, two = (expected_gain(s, y, gain="ndcg", relaxation=relaxation) for s in (x, x + shift))
    assert one.value == pytest.approx(two.value, abs=1e-9)
    assert abs(one.gradient.sum()) <= 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_assignment_is_the_order_of_the_scores(family):
    for seed in range(20):
        x, _ = problem(9, seed)
        Pi = doubly_stochastic(x, relaxation=PartitionedMeasure(family, sigma=0.8), n_iter="converged")
        documents, ranks = linear_sum_assignment(-np.log(Pi))
        assert documents[np.argsort(ranks)].tolist() == np.argsort(-x).tolist()
        assert choose_permutation(Pi, "hungarian").tolist() == np.argsort(-x).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_scale_gives_the_metric_and_a_large_one_any_order(family):
    place = ndtri if family == "probit" else logit
    places = -place((np.arange(8) + 0.5) / 8)  # one in each bin
    x, y = np.random.default_rng(3).permutation(places), np.arange(8) % 4
    metric = evaluate(y, x, np.zeros(8), "ndcg", "letor")["ndcg"]
    sharp = expected_gain(x, y, gain="ndcg", relaxation=PartitionedMeasure(family, sigma=0.02))
    assert sharp.value == pytest.approx(metric, abs=1e-4)
    Pi = doubly_stochastic(x, relaxation=PartitionedMeasure("probit", sigma=1e4), n_iter="converged")
    np.testing.assert_allclose(Pi, 1 / 8, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_scores_and_one_document(family):
    relaxation = PartitionedMeasure(family, sigma=0.5)
    Pi = doubly_stochastic(np.full(4, 7.0), relaxation=relaxation, n_iter="converged")
    np.testing.assert_allclose(Pi, 0.25, atol=1e-8)
    assert doubly_stochastic([3.0], relaxation=relaxation).tolist() == [[1.0]]
    one = expected_gain([3.0], [1], gain="ndcg", relaxation=relaxation)
    assert (one.value, one.gradient.tolist()) == (pytest.approx(1.0), [0.0])


@pytest.mark.parametrize("family", FAMILIES)
def test_unsorted_queries(family):
    x, y = problem(30, seed=4)
    qid = np.random.default_rng(0).integers(0, 4, 30)
    relaxation = PartitionedMeasure(family, sigma=0.5)
    found = expected_gain(x, y, qid, gain="ndcg", relaxation=relaxation)
    for q in range(4):
        mine = qid == q
        own = expected_gain(x[mine], y[mine], gain="ndcg", relaxation=relaxation)
        np.testing.assert_allclose(found.gradient[mine] * 4, own.gradient, atol=1e-14)


def test_columns_of_the_distribution_of_several_queries():
    x, _ = problem(10, seed=5)
    relaxation = PartitionedMeasure("probit", sigma=0.5)
    Pi = doubly_stochastic(x, relaxation=relaxation)
    found = expected_ranks(x, np.zeros(10), relaxation=relaxation)
    np.testing.assert_allclose(found, Pi @ np.arange(1, 11), atol=1e-10)


@pytest.mark.parametrize("sigma", [0, -1.0, np.nan, np.inf, True, "1"])
def test_a_wrong_scale_is_refused(sigma):
    with pytest.raises(ValueError, match="PartitionedMeasure: sigma must be a finite number, above 0"):
        PartitionedMeasure("probit", sigma=sigma)


def test_scores_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="scores"):
        expected_gain(
            np.zeros((3, 2)), [0, 1, 2], gain="ndcg", relaxation=PartitionedMeasure("beta", sigma=1.0)
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_ranker_given_the_name_shares_the_scale_and_ranks_by_score(family, tmp_path):
    queries = make_ranking(40, sizes=(5, 12), random_state=0)
    ranker = SinkPropRanker(relaxation=family, verbose=False).fit(queries)
    assert ranker.relaxation_ == PartitionedMeasure(family, sigma=0.5)  # which SHARED_SCALE is
    assert ranker.coef_.shape == (queries.X.shape[1],)
    scores = ranker.predict(queries)
    assert ranker.rank(queries).tolist() == reference_ranks(scores, queries.qid).tolist()
    ranker.save(tmp_path / "m.model")
    loaded = load_model(tmp_path / "m.model")
    assert loaded.relaxation_ == ranker.relaxation_
    np.testing.assert_array_equal(loaded.predict(queries), scores)


def reference_ranks(scores, qid):
    ranks = np.empty(len(scores), dtype=int)
    for q in np.unique(qid):
        mine = np.flatnonzero(qid == q)
        ranks[mine[np.argsort(-scores[mine], kind="stable")]] = np.arange(1, len(mine) + 1)
    return ranks


@pytest.mark.parametrize("family", FAMILIES)
def test_training_improves_on_its_start(family):
    queries = make_ranking(60, sizes=(5, 12), random_state=1)
    ranker = SinkPropRanker("ndcg@5", family, penalty=1e-3, max_iter=30, verbose=False).fit(queries)
    values = [stage.expected_gain for stage in ranker.fit_result_.stages]
    start = expected_gain(
        spread_of(queries, ranker.fit_result_.start, ranker), queries.y, queries.qid,
        gain="ndcg(discount=log2)@5", relaxation=ranker.relaxation_,
    ).value  # fmt: skip
    assert values[-1] > start + 0.005


def spread_of(queries, weights, ranker):
    return (queries.X - ranker.scaling_.shift) * ranker.scaling_.factor @ weights
