"""Fits whose queries are cut and shared in different ways: the same bits, and the sums of NumPy."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from cluster_tasks import Part, Parts
from linear_problems import training_set
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop.data.blocks
from sinkprop import NDCG, Annealing, PartitionedMeasure, Selection, SinkPropRanker, SmoothedIndicator
from sinkprop.data import Groups
from sinkprop.data.blocks import ArraySource, Team, combined
from sinkprop.data.feature_scaling import fit_scaling, scaling_of
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.splits import divide
from sinkprop.linear.ascent import moments_of, regressions
from sinkprop.linear.least_squares import least_squares
from sinkprop.linear.paths import arrange
from sinkprop.linear.tasks import Evaluate, Linear, Point
from sinkprop.objective.native_terms import native_settings


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sinkprop.data.blocks, "_BLOCK_BYTES", 400)


def test_blocks_are_all_the_queries_once(small_blocks):
    data = training_set(30)
    source = ArraySource(data, 1)
    assert len(source.blocks) > 5
    assert_array_equal(np.concatenate([block.data.X for block in source.blocks]), data.X)
    assert_array_equal(np.concatenate([block.data.groups.queries for block in source.blocks]), np.arange(30))
    assert [block.first for block in source.blocks] == [int(b.data.groups.queries[0]) for b in source.blocks]
    assert all(np.shares_memory(block.data.X, data.X) for block in source.blocks)


@pytest.mark.parametrize(
    ("rows", "threads", "blocks"), [(2_000, 1, 1), (2_000, 3, 3), (9_000, 2, 4), (20, 4, 1)]
)
def test_threads_have_as_many_blocks_each_and_no_more_than_needed(rows, threads, blocks):
    """Around each block there is Python: with four small ones a thread, two threads took longer than one."""
    groups = Groups(np.arange(0, rows + 1, 10), None, np.arange(rows // 10), 10)
    source = ArraySource(TrainingSet(np.ones((rows, 150)), np.ones(rows), groups), threads)
    sizes = [len(block.data.y) for block in source.blocks]
    source.close()
    assert len(sizes) == blocks
    assert max(sizes) - min(sizes) <= 20


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_those_of_the_columns(small_blocks, dtype):
    data = training_set(30, dtype=dtype)
    moments = moments_of(ArraySource(data, 2))
    X = data.X.astype(np.float64)
    assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-13)
    assert_allclose(moments.deviation, X.std(axis=0), rtol=1e-13)
    assert_array_equal(moments.largest, np.abs(X).max(axis=0))
    assert moments.label == pytest.approx(data.y.mean(), rel=1e-14)


def test_sums_that_rounding_takes_to_their_bound_are_the_columns():
    """One query whose squares, or whose values, add up to a power of 2: half of them round above it."""
    for n in range(2, 120):
        query = Groups(np.array([0, n]), None, np.zeros(1), n)
        for bound in (2.0 / n, np.nextafter(2.0 / n, 0)):
            signs = np.where(np.arange(n) % 2, -1.0, 1.0)
            X = np.stack([np.full(n, bound), np.sqrt(bound) * signs], axis=1)
            moments = moments_of(ArraySource(TrainingSet(X, np.full(n, bound), query), 1))
            assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-13, atol=1e-16)
            assert_allclose(moments.deviation[1], X[:, 1].std(), rtol=1e-13)
            assert moments.label == pytest.approx(bound, rel=1e-13)


def test_features_whose_squares_overflow_are_refused():
    data = training_set(5)
    with pytest.raises(FloatingPointError, match="the squares of the features overflow"):
        moments_of(ArraySource(replace(data, X=data.X * 1e200), 1))


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("normalization", ["none", "standard"])
def test_starts_are_the_regressions_of_the_parts(small_blocks, weights, normalization):
    data, other = training_set(12, weights=weights), training_set(5, seed=1)
    selection = Selection("cross-validation", n_splits=3)
    source, second = ArraySource(data, 1), ArraySource(other, 1)
    paths = arrange(source, second, selection, np.random.default_rng(4), averaged=False).paths
    parts = divide(data, other, selection, np.random.default_rng(4)).parts
    moments = moments_of(source)
    scaling = scaling_of(normalization, moments.mean, moments.deviation)
    assert len(paths) == len(parts) == 4
    for path, part, found in zip(paths, parts, regressions(paths, moments, scaling, [0.0]), strict=True):
        raw, _ = least_squares(part.X, part.y, sample_weight=part.row_weight)
        assert_allclose(found.weights[0] * scaling.factor, raw, rtol=1e-9, atol=1e-12)
        assert (path.n_rows, path.n_queries) == (len(part.y), part.n_queries)


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("method", ["cross-validation", "validation"])
def test_the_arrangement_is_the_division(small_blocks, method, validation):
    data = training_set(13, weights=True)
    other = training_set(6, seed=1, weights=True) if validation else None
    selection = Selection(method, n_splits=4)
    division = divide(data, other, selection, np.random.default_rng(1))
    found = arrange(
        ArraySource(data, 1),
        ArraySource(other, 1) if other else None,
        selection,
        np.random.default_rng(1),
        averaged=False,
    )
    assert found.validated_on == division.validated_on
    assert_allclose(found.weight, division.weight)
    assert [path.n_queries for path in found.paths] == [part.n_queries for part in division.parts]
    for path, part in zip(found.paths, division.parts, strict=True):
        assert path.total_weight == pytest.approx(part.query_weight.sum(), rel=1e-14)
        rows = np.diff(part.groups.offsets)
        assert path.weighted_rows == pytest.approx((part.query_weight * rows).sum(), rel=1e-14)


def test_features_that_repeat_each_other_get_the_regression_of_least_norm():
    data = training_set(20)
    X = np.column_stack([data.X, 3 * data.X[:, 0] + 7, np.full(len(data.y), 2.5)])
    doubled = sinkprop.data.blocks.replace(data, X=X)
    source = ArraySource(doubled, 1)
    (path,) = arrange(source, source, Selection("validation"), np.random.default_rng(0), averaged=False).paths
    moments = moments_of(source)
    scaling = fit_scaling("standard", X)
    (found,) = regressions([path], moments, scaling, [0.0])
    (w,) = found.weights
    assert w[5] == 0
    assert w[0] == pytest.approx(w[4], rel=1e-7)
    raw, _ = least_squares(data.X, data.y)
    assert_allclose((X * (w * scaling.factor)).sum(axis=1).std(), (data.X @ raw).std(), rtol=1e-7)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"selection": Selection("validation", fraction=0.3)},
        {"relaxation": PartitionedMeasure("logit-logistic")},
        {"resample": 2},
        {"normalization": "query"},
        {"gain": "rbp@0.8"},
    ],
    ids=["cross-validation", "held-out", "partitioned", "resampled", "by-query", "rbp"],
)
def test_a_fit_has_the_same_bits_for_any_cut_and_number_of_threads(monkeypatch, parameters):
    data = training_set(24, weights=True, dtype=np.float32)
    fits = []
    short = {"penalty": 1e-3, "annealing": Annealing(2, 0.5), "max_iter": 5, "verbose": False}
    for n_threads, size in ((1, 1 << 22), (1, 300), (3, 100)):
        monkeypatch.setattr(sinkprop.data.blocks, "_BLOCK_BYTES", size)
        ranker = SinkPropRanker(n_threads=n_threads, **short, **parameters)
        ranker.fit(
            data.X,
            data.y,
            qid=data.codes,
            query_weight=data.query_weight,
            sample_weight=None if "gain" in parameters else data.sample_weight,
        )
        fits.append(ranker)
    for other in fits[1:]:
        assert_array_equal(fits[0].coef_, other.coef_)
        assert fits[0].sigma_ == other.sigma_
        for a, b in zip(fits[0].fit_result_.stages, other.fit_result_.stages, strict=True):
            assert (a.expected_gain, a.criterion, a.training) == (b.expected_gain, b.criterion, b.training)


def test_the_order_of_the_queries_leaves_the_value_and_the_gradient():
    data = training_set(40)
    order = np.random.default_rng(0).permutation(40)
    shuffled = [data.select(np.array([q])) for q in order]
    X = np.concatenate([part.X for part in shuffled])
    y = np.concatenate([part.y for part in shuffled])
    sizes = np.diff(data.groups.offsets)[order]
    groups = sinkprop.data.group_rows(np.repeat(np.arange(40), sizes), len(y))
    other = sinkprop.data.blocks.replace(data, X=X, y=y, groups=groups)
    scorer = Linear(np.array([[1.0, 0.1, 3.0, 0.2]]), np.zeros(1))
    settings = native_settings(SmoothedIndicator(0.5), 5, 1e-6)
    task = Evaluate((Point(0, scorer, 40, None, np.full(4, 12), 10, 12),), NDCG(), settings)
    task = pickle.loads(pickle.dumps(task))
    (a,), (b,) = ArraySource(data, 1).run(task), ArraySource(other, 2).run(task)
    assert a.fits
    assert_array_equal(a.products.words, b.products.words)
    assert_array_equal(a.value.words, b.value.words)


def test_an_error_in_a_block_is_the_callers(small_blocks):
    class Failing:
        def __call__(self, block):
            raise RuntimeError(f"block {block.first}")

        def combine(self, parts):
            return parts

    source = ArraySource(training_set(30), 2)
    with pytest.raises(RuntimeError, match="block 0"):
        source.run(Failing())
    source.close()


def test_a_team_takes_no_more_blocks_than_it_can_work_on():
    taken = []

    def blocks():
        for i in range(50):
            taken.append(i)
            yield i

    team = Team(3)
    results = team.results(lambda block: block, blocks())
    assert next(results) == 0
    assert len(taken) <= 3 + 2
    assert list(results) == list(range(1, 50))
    team.close()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
def test_few_of_the_parts_of_a_result_are_in_memory_at_a_time(n):
    Parts.most = 0
    whole = combined((Part(str(i)) for i in range(n)), Parts().combine)
    assert re.findall(r"\d+", whole.text) == [str(i) for i in range(n)]
    assert Parts.most <= np.log2(n) + 4
