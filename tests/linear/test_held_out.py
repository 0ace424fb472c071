"""Scores of held-out queries, to which the calibration of linear rankers and tuned baselines is fitted."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import Annealing, PartitionedMeasure, Selection, SinkPropRanker, load_model
from sinkprop.baselines import FeatureRanker, ListNetRanker, RegressionRanker, SmoothRankRanker
from sinkprop.datasets import make_ranking
from sinkprop.estimator import held_out
from sinkprop.estimator.calibrated import take_held_out
from sinkprop.estimator.splits import split_queries
from sinkprop.linear.annealed import least_squares_of

FOLDS = Selection("cross-validation", rule="best", n_splits=4)


@pytest.fixture(scope="module")
def parts():
    queries = make_ranking(90, sizes=(3, 20), random_state=3)
    ids = queries.groups.queries
    return queries.select(ids[:50]), queries.select(ids[50:70]), queries.select(ids[70:])


def quick(**options):
    return SinkPropRanker(**{"penalty": 1e-2, "annealing": Annealing(2, 1), "verbose": False, **options})


def rankers():
    few = {"selection": "validation", "verbose": False}
    yield quick(selection="validation")
    yield quick(selection="validation", relaxation=PartitionedMeasure("probit"))
    yield quick(selection="validation", normalization="query")
    yield SmoothRankRanker(penalty=1e-2, annealing=Annealing(2, 1), **few)
    yield RegressionRanker(penalty=[1, 10], **few)
    yield RegressionRanker(verbose=False)  # one candidate
    yield ListNetRanker(**few, max_iter=5)
    yield FeatureRanker()
    yield FeatureRanker(3)


@pytest.mark.parametrize("ranker", list(rankers()), ids=lambda ranker: str(ranker).split("\n")[0][:60])
def test_a_validation_set_is_scored_by_the_model(ranker, parts):
    train, vali, _ = parts
    ranker.fit(train, eval_set=vali)
    held = take_held_out(ranker)
    assert_allclose(held.scores, ranker.predict(vali, qid=None), rtol=1e-9, atol=1e-12)
    assert_array_equal(held.labels, vali.y)
    assert_array_equal(held.sizes, vali.groups.sizes)


def folds_of(n_queries, *, averaged):
    rng = np.random.default_rng([0, 0])
    return split_queries(n_queries, 0, FOLDS, rng, averaged=averaged).codes


@pytest.mark.parametrize(
    "make",
    [
        lambda: quick(penalty=[1e-2], selection=FOLDS, start="least-squares"),
        lambda: RegressionRanker(penalty=[1.0, 1.001], selection=FOLDS, verbose=False),
    ],
    ids=["linear", "tuned"],
)
def test_no_query_is_scored_by_a_model_that_was_trained_on_it(make, parts):
    """Other labels in one fold change the scores of all folds but that one."""
    train, _, _ = parts
    codes = folds_of(train.n_queries, averaged=False)
    first = make().fit(train)
    inside = (codes == 2)[train.groups.codes]
    rng = np.random.default_rng(0)
    y = np.where(inside, rng.permutation(train.y), train.y)
    second = make().fit(dataclasses.replace(train, y=y))
    a, b = take_held_out(first), take_held_out(second)
    if isinstance(first, SinkPropRanker):  # in the order of the queries
        assert_array_equal(a.labels, train.y)
        assert_array_equal(b.labels, y)
        own = inside
    else:  # fold by fold
        own = np.repeat(np.sort(codes) == 2, a.sizes)
        assert_array_equal(a.labels[own], train.y[inside])
    assert_allclose(a.scores[own], b.scores[own], rtol=1e-9)
    assert (np.abs(a.scores - b.scores)[~own] > 1e-6).mean() > 0.9


def test_the_mean_of_folds_keeps_the_scores_of_each_fold(parts):
    train, vali, test = parts
    ranker = quick(selection=Selection("cross-validation", n_splits=4)).fit(train, eval_set=vali)
    held = take_held_out(ranker)
    assert len(held.sizes) == train.n_queries + vali.n_queries
    assert_array_equal(held.labels, np.concatenate([train.y, vali.y]))
    scores = np.concatenate([ranker.predict(train), ranker.predict(vali)])
    # models of three quarters of the queries: on the scale of their mean, but not the same
    assert 0.9 < np.corrcoef(scores, held.scores)[0, 1] < 1 - 1e-6
    assert_allclose(held.scores.std(), scores.std(), rtol=0.1)
    assert ranker.predict(test).shape == (len(test),)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_blocks_and_threads_do_not_matter(parts, n_threads, monkeypatch):
    from sinkprop.data import blocks

    train = parts[0]
    expected = take_held_out(quick(n_threads=1).fit(train))
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 1 << 12)
    held = take_held_out(quick(n_threads=n_threads).fit(train))
    assert_array_equal(held.scores, expected.scores)
    assert_array_equal(held.labels, expected.labels)
    assert_array_equal(held.sizes, expected.sizes)


def test_of_many_documents_some_queries_are_kept(parts, monkeypatch):
    train = parts[0]
    every = take_held_out(quick().fit(train))
    monkeypatch.setattr("sinkprop.linear.recipe.MOST_ROWS", len(train) // 3)
    some = take_held_out(quick().fit(train))
    kept = np.arange(train.n_queries) % 4 == 0
    rows = np.repeat(kept, every.sizes)
    assert_array_equal(some.sizes, every.sizes[kept])
    assert_array_equal(some.scores, every.scores[rows])
    assert held_out.taken_queries(np.array([5, 5, 5, 5]), 10).tolist() == [True, False, True, False]


def test_one_query_is_not_held_out(parts):
    one = parts[0].select(parts[0].groups.queries[:1])
    for ranker in (quick(), RegressionRanker(penalty=[1, 10], verbose=False)):
        assert take_held_out(ranker.fit(one)) is None
        assert ranker.calibration_ is None


def test_a_fit_forgets_the_calibration_of_the_fit_before(parts):
    train, vali, _ = parts
    ranker = quick(selection="validation").fit(train, eval_set=vali)
    assert ranker.calibration_.n_queries == vali.n_queries
    one = train.select(train.groups.queries[:1])
    assert ranker.fit(one).calibration_ is None


def test_the_calibration_is_part_of_the_model_file(parts, tmp_path):
    train, vali, test = parts
    ranker = quick().fit(train, eval_set=vali)
    scores = ranker.predict(test)
    ranker.save(tmp_path / "linear.model")
    loaded = load_model(tmp_path / "linear.model")
    assert_array_equal(loaded.predict_proba(test), ranker.predict_proba(test))
    assert_array_equal(loaded.best_set(test), ranker.best_set(test))
    assert_array_equal(ranker.predict(test), scores)
    loaded.save(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "linear.model").read_bytes()


def test_the_regression_of_a_fit_does_not_take_over_its_calibration(parts):
    ranker = quick().fit(parts[0], eval_set=parts[1])
    assert least_squares_of(ranker).calibration_ is None
    assert ranker.calibration_.n_queries == parts[0].n_queries + parts[1].n_queries
