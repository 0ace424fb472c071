"""Held-out scores of AutoRanker, to which its calibration is fitted."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import AutoRanker, Selection, load_model
from sinkprop.auto import held_out
from sinkprop.auto.held_out import held_out_scores
from sinkprop.baselines import RegressionRanker
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.model_files import read_model

QUICK = {"n_threads": 1, "verbose": False}


def problem(n_queries=24, size=10, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * size, 3))
    y = np.digitize(X[:, 0] + np.abs(X[:, 1]) + 0.5 * rng.normal(size=len(X)), [1, 2])
    return X, y, np.repeat(np.arange(n_queries), size)


def part(labels, size):
    """Queries of `size` documents, whose one feature is the number of the row."""
    n = len(labels)
    groups = Groups.of_sizes(np.full(n // size, size))
    return TrainingSet(np.arange(n, dtype=float)[:, None], np.asarray(labels, float), groups)


def within(scores, size):
    rows = scores.reshape(-1, size)
    return (rows - rows.mean(axis=1, keepdims=True)).ravel()


def test_they_come_from_the_rankers_that_were_not_trained_on_the_queries():
    X, y, qid = problem()
    ranker = AutoRanker(methods="ridge", **QUICK).fit(X, y, qid=qid)
    order = np.random.default_rng([0, 0]).permutation(24)
    rows = [np.flatnonzero(np.isin(qid, order[k::5])) for k in range(5)]
    members = zip(ranker.members_["ridge"], ranker.scales_["ridge"], strict=True)
    own = [member.predict(X[held]) / scale for (member, scale), held in zip(members, rows, strict=True)]
    model = [ranker.predict(X[held]) for held in rows]
    away = [np.concatenate([within(part, 10) for part in parts]) for parts in (own, model)]
    slope = min((away[0] @ away[1]) / (away[0] @ away[0]), 1)  # 1 for ridge, whose fits agree
    matched = [F.mean() + np.sqrt(slope) * (H - H.mean()) for H, F in zip(own, model, strict=True)]
    held = ranker._calibrating
    assert_allclose(held.scores, np.concatenate(matched), rtol=1e-9)
    assert_array_equal(held.labels, y[np.concatenate(rows)])
    assert_array_equal(held.sizes, np.full(24, 10))


@pytest.mark.parametrize("methods", ["ridge", "ridge,networks"])
def test_with_one_split_they_are_the_scores_of_the_model(methods):
    pytest.importorskip("torch" if "networks" in methods else "numpy")
    X, y, qid = problem(30)
    train, vali = qid < 18, qid >= 18
    ranker = AutoRanker(methods=methods, selection="validation", **QUICK)
    ranker.fit(X[train], y[train], qid=qid[train], eval_set=[(X[vali], y[vali])], eval_qid=[qid[vali]])
    assert_allclose(ranker._calibrating.scores, ranker.predict(X[vali]), rtol=1e-9)
    assert_array_equal(ranker._calibrating.labels, y[vali])
    assert ranker.calibration_.n_queries == 12


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_they_have_the_spread_of_the_model_on_new_queries(noise):
    """The model's scores of queries that most of its rankers were trained on are wider, but not these."""
    rng, K, n, size = np.random.default_rng(1), 5, 40_000, 10
    shared, of_labels = rng.normal(size=(2, K, n))
    rankers = shared[:, None] + noise * rng.normal(size=(K, K, n))  # (fold, ranker, document)
    rankers += np.where(np.eye(K, dtype=bool), 0, 1)[..., None] * of_labels[:, None]  # learned by heart
    rankers += np.arange(K)[None, :, None]  # each ranker has a level of its own
    folds = [part(np.zeros(n), size) for _ in range(K)]
    models = [rankers[k].mean(axis=0) for k in range(K)]
    scored = iter(models)
    found = held_out_scores(
        folds, [rankers[k, k] for k in range(K)], lambda some: next(scored)[some.X[:, 0].astype(int)]
    )
    new = rng.normal(size=n) + noise * rng.normal(size=(K, n)).mean(axis=0)
    assert_allclose(within(found.scores, size).std(), within(new, size).std(), rtol=0.03)
    assert_allclose(found.scores.reshape(K, n).mean(axis=1), 2, atol=0.1)
    assert within(np.concatenate(models), size).std() > 1.1 * within(new, size).std()


@pytest.mark.parametrize(
    ("model", "ratio"),
    [(lambda H: -H, np.sqrt(0.5)), (lambda H: 3 * H, 1.0), (lambda H: np.zeros(len(H)), np.sqrt(0.5))],
)
def test_the_ratio_of_the_spreads_is_that_of_some_mean_of_rankers(model, ratio):
    H = np.random.default_rng(0).normal(size=40)
    found = held_out_scores([part(np.zeros(20), 5)] * 2, [H[:20], H[20:]], lambda some: model(H[:20]))
    assert_allclose(within(found.scores, 5), ratio * within(H, 5), rtol=1e-9)


def test_equal_scores_stay_equal():
    found = held_out_scores([part(np.zeros(20), 5)], [np.full(20, 3.0)], lambda some: np.full(20, 4.0))
    assert_array_equal(found.scores, np.full(20, 4.0))


def test_the_model_scores_some_of_many_queries(monkeypatch):
    monkeypatch.setattr(held_out, "_ROWS", 100)
    rng, seen = np.random.default_rng(0), []
    H = rng.normal(size=400)

    def model(some):
        seen.append(some.X[:, 0].astype(int))
        return 0.8 * H[seen[-1]] + 7

    found = held_out_scores([part(np.arange(400) % 3, 4)], [H], model)
    (rows,) = seen
    assert_array_equal(rows, [row for row in range(400) if row // 4 % 4 == 0])
    # with one fold, the ratio of the spreads is 1
    assert_allclose(found.scores, 0.8 * H[rows].mean() + 7 + H - H[rows].mean(), rtol=1e-12)
    assert_array_equal(found.labels, np.arange(400) % 3)


@pytest.mark.parametrize("methods", ["ridge,trees", "networks"])
def test_a_calibration_changes_no_score_and_is_saved_once(methods, tmp_path):
    pytest.importorskip("torch" if "networks" in methods else "lightgbm")
    X, y, qid = problem()
    ranker = AutoRanker(methods=methods, selection=Selection(n_splits=2), **QUICK).fit(X, y, qid=qid)
    scores, ranks = ranker.predict(X, qid=qid), ranker.rank(X, qid=qid)
    copy = pickle.loads(pickle.dumps(ranker))
    assert ranker.calibration_.n_queries == 24
    assert_array_equal(ranker.predict(X, qid=qid), scores)
    assert_array_equal(ranker.rank(X, qid=qid), ranks)
    assert all(each.calibration_ is None for own in ranker.members_.values() for each in own)
    ranker.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    for other in (loaded, copy):
        assert_array_equal(other.predict_proba(X, qid=qid), ranker.predict_proba(X, qid=qid))
        assert_array_equal(other.expected_rank(X, qid=qid), ranker.expected_rank(X, qid=qid))
    assert all(each.calibration_ is None for own in loaded.members_.values() for each in own)
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert "calibration" in read_model(tmp_path / "a").state


def test_a_new_fit_replaces_the_calibration():
    X, y, qid = problem()
    ranker = AutoRanker(methods="ridge", **QUICK).fit(X, y, qid=qid)
    assert ranker.calibration_.n_queries == 24
    few = qid < 6
    assert ranker.fit(X[few], y[few], qid=qid[few]).calibration_ is None
    with pytest.raises(ValueError, match=r"AutoRanker is not calibrated: .*; 6 of 6 have them"):
        ranker.confidence(X, qid=qid)


def test_without_members_to_compare_they_are_those_of_ridge():
    X, y, qid = problem()
    with pytest.warns(UserWarning, match="too small to compare the members"):
        ranker = AutoRanker(time_budget=1e-9, **QUICK).fit(X, y, qid=qid)
    alone = RegressionRanker(penalty="auto", normalization="standard", selection="cross-validation")
    alone.fit(X, y, qid=qid)
    assert alone.calibration_.n_queries == 24
    assert_array_equal(ranker.predict_proba(X, qid=qid), alone.predict_proba(X, qid=qid))
    assert ranker.members_["ridge"][0].calibration_ is None
    with pytest.warns(UserWarning, match="only one query"):
        ranker.fit(X[:10], y[:10], qid=qid[:10])
    assert ranker.calibration_ is None


def test_categorical_features():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    X, y, qid = problem()
    kinds = pd.Categorical(np.array(["a", "b", "c"])[np.digitize(X[:, 2], [-0.5, 0.5])])
    frame = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "kind": kinds})
    ranker = AutoRanker(selection="validation", methods="trees", **QUICK)
    train, vali = qid < 12, qid >= 12
    ranker.fit(
        frame[train], y[train], qid=qid[train], eval_set=[(frame[vali], y[vali])], eval_qid=[qid[vali]]
    )
    assert_allclose(ranker._calibrating.scores, ranker.predict(frame[vali]), rtol=1e-9)
