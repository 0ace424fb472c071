"""The expected gain of linear scorers, against differences, NumPy's products and the start's definition."""

import numpy as np
import pytest
from linear_problems import training_set
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop.linear.products
from sinkprop import NDCG, PartitionedMeasure, Selection, SmoothedIndicator, expected_gain
from sinkprop.data import group_rows
from sinkprop.data.blocks import ArraySource
from sinkprop.data.feature_scaling import fit_scaling, scaling_of
from sinkprop.data.training_set import TrainingSet
from sinkprop.linear.ascent import Evaluation, Objective, moments_of, regressions, spreads
from sinkprop.linear.paths import arrange
from sinkprop.linear.problem import spread
from sinkprop.linear.products import products
from sinkprop.linear.resampling import resampled
from sinkprop.serving.linear_scores import linear_scores

RELAXATIONS = [
    SmoothedIndicator(0.7, accuracy="exact"),
    SmoothedIndicator(0.7, "laplace"),
    PartitionedMeasure("logit-logistic"),
    PartitionedMeasure("probit"),
    PartitionedMeasure("beta"),
]


class Problem:
    """The objective of one path on all queries, with what evaluates it."""

    def __init__(self, data, relaxation, normalization="standard", resample=0):
        source = ArraySource(data, 1)
        selection = Selection("validation")
        (path,) = arrange(source, source, selection, np.random.default_rng(0), averaged=False).paths
        moments = moments_of(source)
        self.scaling = scaling_of(normalization, moments.mean, moments.deviation)
        (found,) = regressions([path], moments, self.scaling, [0.0])
        (width,) = spreads([(path, found.weights[0])], self.scaling)
        own = Objective(path, moments, self.scaling, relaxation, found.weights[0], found.mean, width)
        self.paths, self.start = [own], own.start
        self.of = Evaluation(NDCG(), 5, 1e-6, resample, 3)

    def value(self, W, relaxation):
        return self.of.values(self.paths, {0: W}, relaxation)[0]

    def maximize(self, W, relaxation, penalty, **options):
        (found,), _ = self.of.maximize(self.paths, [W], relaxation, penalty, **options)
        return found


def scores_of(f, data):
    return linear_scores(data.X, f.start, f.scaling)


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("resample", [0, 3])
@pytest.mark.parametrize("normalization", ["none", "standard"])
def test_the_gradient_in_the_weights_is_that_of_differences(relaxation, weights, resample, normalization):
    f = Problem(training_set(weights=weights), relaxation, normalization, resample)
    W = f.start + 0.1 * np.random.default_rng(1).normal(size=f.start.shape)
    _, gradient = f.value(W, relaxation)
    h = 1e-5
    for i in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[i] = h
        slope = (f.value(W + step, relaxation)[0] - f.value(W - step, relaxation)[0]) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=2e-5, abs=2e-8)


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=str)
def test_maximizing_raises_the_penalized_gain(relaxation):
    f = Problem(training_set(20), relaxation)
    before, _ = f.value(f.start, relaxation)
    W = f.maximize(f.start, relaxation, 1e-4, max_iter=20, tol=1e-9)
    away = (W - f.start)[:4]
    after, _ = f.value(W, relaxation)
    assert after - 1e-4 / 2 * np.sum(away**2) > before


def test_a_large_penalty_holds_the_start():
    f = Problem(training_set(20), SmoothedIndicator(1.0))
    W = f.maximize(f.start, SmoothedIndicator(1.0), 1e9, max_iter=20, tol=1e-9)
    assert_allclose(W, f.start, atol=1e-8)


def test_the_start_is_the_regression_in_units_of_its_spread():
    data = training_set(20)
    f = Problem(data, SmoothedIndicator(1.0))
    design = np.column_stack([data.X, np.ones(len(data.y))])
    regression = design @ np.linalg.lstsq(design, data.y, rcond=None)[0]
    scores = scores_of(f, data)
    assert_allclose(np.corrcoef(scores, regression)[0, 1], 1, rtol=1e-12)
    within = scores - np.array([scores[data.codes == q].mean() for q in data.codes])
    assert_allclose(within.std(), 1, rtol=1e-12)


@pytest.mark.parametrize("family", ["logit-logistic", "probit", "beta"])
def test_the_start_of_a_partitioned_measure_ranks_as_the_regression(family):
    data = training_set(20)
    relaxation = PartitionedMeasure(family)
    theta = scores_of(Problem(data, relaxation), data)
    score = theta[:, 1] - theta[:, 0] if family == "beta" else -theta[:, 0]
    regression = scores_of(Problem(data, SmoothedIndicator(1.0)), data)
    assert_allclose(np.corrcoef(score, regression)[0, 1], 1, rtol=1e-12)


def test_equal_labels_or_features_start_at_zero():
    data = training_set(3)
    flat = TrainingSet(data.X, np.ones(len(data.y)), data.groups)
    assert_array_equal(Problem(flat, SmoothedIndicator(1.0)).start, 0)
    same = TrainingSet(np.full_like(data.X, 1 / 3), data.y, data.groups)
    f = Problem(same, SmoothedIndicator(1.0))
    assert_array_equal(f.start, 0)
    assert np.isfinite(f.value(f.start, SmoothedIndicator(1.0))[1]).all()


def test_resampling_draws_documents_of_their_own_query():
    data = training_set(6)
    rows, groups = resampled(data.groups, np.arange(6), 20, (3, 0))
    sizes = np.diff(groups.offsets)
    assert len(sizes) == 6 * 20
    assert_array_equal(data.codes[rows], np.repeat(np.tile(np.arange(6), 20), sizes))
    sizes = sizes.reshape(20, 6)
    assert sizes.min() >= 1
    # Poisson: the mean of twenty is within four standard errors of the original's size
    original = np.diff(data.groups.offsets)
    assert (np.abs(sizes.mean(axis=0) - original) <= 4 * np.sqrt(original / 20) + 0.5).all()
    assert len(set(rows.tolist())) == len(data.y)  # twenty draws leave nobody out, as a rule


def test_what_is_drawn_for_a_query_depends_on_its_number_and_the_seed_alone():
    data = training_set(6)
    rows, groups = resampled(data.groups, np.arange(6), 1, (3, 0))
    last = data.select(np.array([4, 5]))
    begin = data.groups.offsets[4]
    alone, of_last = resampled(last.groups, np.array([4, 5]), 1, (3, 0))
    assert_array_equal(alone + begin, rows[groups.offsets[4] :])
    assert_array_equal(of_last.offsets, groups.offsets[4:] - groups.offsets[4])
    for seed in ((4, 0), (3, 1)):
        assert not np.array_equal(resampled(data.groups, np.arange(6), 1, seed)[0], rows)


def test_long_queries_are_resampled_to_at_most_200_documents():
    rows, groups = resampled(group_rows(None, 1000), np.arange(1), 3, (0, 0))
    assert_array_equal(np.diff(groups.offsets), [200, 200, 200])
    assert rows.max() < 1000


def test_spread_is_that_within_queries():
    data = TrainingSet(np.ones((4, 1)), np.ones(4), group_rows([0, 0, 1, 1], 4))
    assert spread(np.array([1.0, 3.0, 100.0, 102.0]), data) == 1
    assert spread(np.full(4, 0.1), data) == 0
    weighted = TrainingSet(data.X, data.y, data.groups, query_weight=np.array([1.0, 0.0]))
    assert spread(np.array([1.0, 3.0, 100.0, 200.0]), weighted) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_have_the_same_bits_for_any_number_of_threads(monkeypatch, dtype):
    monkeypatch.setattr(sinkprop.linear.products, "_CHUNK_BYTES", 1000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 7)).astype(dtype)
    V, g = rng.normal(size=(7, 2)), rng.normal(size=(5000, 2))
    results = []
    for threads in (1, 2, 5):
        with products(threads, len(X)) as multiply:
            results.append((multiply.forward(X, V), multiply.backward(X, g), multiply.backward(X, g[:, 0])))
    tol = {"rtol": 1e-12} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
    assert_allclose(results[0][0], X @ V, **tol)
    assert_allclose(results[0][1], X.T @ g, **tol)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert_array_equal(a, b)


def test_threads_end_with_the_block():
    import threading

    before = threading.active_count()
    with products(4, 10**6) as multiply:
        multiply.forward(np.ones((10**6, 4)), np.ones(4))
    assert threading.active_count() == before


def test_scores_of_scaled_features_and_intercepts():
    data = training_set(4)
    scaling = fit_scaling("standard", data.X)
    Z = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    w = np.array([1.0, -2.0, 0.5, 0.0])
    assert_allclose(linear_scores(data.X, w, scaling), Z @ w, atol=1e-12)
    W = np.column_stack([[1.0, -2.0, 0.5, 0.0, 3.0], [0.0, 1.0, 0.0, 0.0, -1.0]])
    assert_allclose(linear_scores(data.X, W, scaling), Z @ W[:4] + W[4], atol=1e-12)


def test_the_value_is_that_of_expected_gain():
    data = training_set(5, weights=True)
    f = Problem(data, SmoothedIndicator(0.5), "none")
    w = np.array([1.0, 0.1, 3.0, 0.2])
    expected = expected_gain(
        data.X @ w,
        data.y,
        data.codes,
        relaxation=SmoothedIndicator(0.5),
        sample_weight=data.sample_weight,
        query_weight=data.query_weight,
    )
    assert_allclose(f.value(w, SmoothedIndicator(0.5))[0], expected.value, rtol=1e-9)


@pytest.mark.parametrize("relaxation", [SmoothedIndicator(0.7), PartitionedMeasure("probit")], ids=str)
@pytest.mark.parametrize("resample", [0, 2])
def test_paths_evaluated_together_are_those_evaluated_alone(relaxation, resample):
    data = training_set(17, weights=True)
    source = ArraySource(data, 1)
    selection = Selection("cross-validation", n_splits=4)
    found = arrange(source, None, selection, np.random.default_rng(0), averaged=True)
    moments = moments_of(source)
    scaling = scaling_of("standard", moments.mean, moments.deviation)
    regression = regressions(found.paths, moments, scaling, [0.0, 0.1])
    paths = [
        Objective(path, moments, scaling, relaxation, own.weights[1], own.mean, 1.0)
        for path, own in zip(found.paths, regression, strict=True)
    ]
    of = Evaluation(NDCG(), 5, 1e-6, resample, 3)
    together = of.values(paths, {i: path.start for i, path in enumerate(paths)}, relaxation)
    for i, path in enumerate(paths):
        value, gradient = of.values(paths, {i: path.start}, relaxation)[i]
        assert together[i][0] == value
        assert_array_equal(together[i][1], gradient)
    at_once, _ = of.maximize(paths, [p.start for p in paths], relaxation, 0.1, max_iter=5, tol=1e-9)
    for path, W in zip(paths, at_once, strict=True):
        (alone,), _ = of.maximize([path], [path.start], relaxation, 0.1, max_iter=5, tol=1e-9)
        assert_array_equal(W, alone)


def test_ridge_regressions_are_those_of_scikit_learn():
    from sklearn.linear_model import Ridge

    data = training_set(30)
    source = ArraySource(data, 1)
    (path,) = arrange(source, source, Selection("validation"), np.random.default_rng(0), averaged=True).paths
    moments = moments_of(source)
    scaling = scaling_of("standard", moments.mean, moments.deviation)
    (found,) = regressions([path], moments, scaling, [0.0, 0.01, 1.0, 100.0])
    Z = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    for penalty, w in zip([1e-12, 0.01, 1.0, 100.0], found.weights, strict=True):
        assert_allclose(w, Ridge(alpha=penalty * len(Z)).fit(Z, data.y).coef_, rtol=1e-7, atol=1e-12)


def test_fold_models_train_on_every_query_of_the_pool_but_their_own():
    data, other = training_set(12), training_set(8, seed=1)
    found = arrange(
        ArraySource(data, 1),
        ArraySource(other, 1),
        Selection("cross-validation", n_splits=5),
        np.random.default_rng(0),
        averaged=True,
    )
    assert [path.number for path in found.paths] == [1, 2, 3, 4, 5]
    assert [path.n_queries for path in found.paths] == [16] * 5
    assert found.every.n_queries == 20
    assert found.every.n_rows == len(data.y) + len(other.y)
