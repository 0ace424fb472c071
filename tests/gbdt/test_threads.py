"""Threads of the tree libraries on a busy machine."""

import ctypes

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tree_problems import ranking_data

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

from sinkprop.gbdt import BoostedRanker, threads  # noqa: E402


def limit():
    found = ctypes.c_int()
    lightgbm.basic._LIB.LGBM_GetMaxThreads(ctypes.byref(found))
    return found.value


@pytest.fixture
def machine(monkeypatch):
    """A machine with four processors, of which some are free: those that the test sets."""
    free = [4]
    monkeypatch.setattr(threads, "free_processors", lambda: free[0])
    monkeypatch.setattr(threads, "threads", lambda given, n: given or (4 if n >= 4000 else 1))
    monkeypatch.delenv("SINKPROP_NUM_THREADS", raising=False)
    return free


def test_no_more_threads_than_free_processors(machine, monkeypatch):
    for n_free in (4, 3, 1):
        machine[0] = n_free
        assert threads.openmp_threads(None, 10_000) == n_free
        assert threads.openmp_threads(None, 100) == 1
        assert threads.openmp_threads(2, 10_000) == 2  # what the caller sets stays
    monkeypatch.setenv("SINKPROP_NUM_THREADS", "4")
    assert threads.openmp_threads(None, 10_000) == 4


def test_the_limit_follows_the_machine_and_ends_with_the_fit(machine):
    before = limit()
    with threads.adapting_threads(None, 4) as adapt:
        assert limit() == 4
        machine[0] = 1
        adapt()
        assert limit() == 1
        with threads.adapting_threads(None, 4):  # another fit, in another thread
            assert limit() == 1
        machine[0] = 3
        adapt()
        assert limit() == 3
    assert limit() == before
    with pytest.raises(KeyError), threads.adapting_threads(None, 4):
        raise KeyError
    assert limit() == before
    with threads.adapting_threads(2, 2) as adapt:  # the caller's number
        adapt()
        assert limit() == before


def test_a_fit_asks_before_every_tree_and_the_trees_stay_the_same(machine, monkeypatch):
    X, y, qid = ranking_data(250)
    assert len(X) >= 4000
    asked = []

    def free():
        asked.append(limit())
        return 1 + len(asked) % 2

    monkeypatch.setattr(threads, "free_processors", free)
    ranker = BoostedRanker(n_estimators=8, num_leaves=4).fit(X, y, qid=qid)
    assert len(asked) == 9
    assert set(asked[1:]) == {1, 2}
    alone = BoostedRanker(n_estimators=8, num_leaves=4, n_threads=1).fit(X, y, qid=qid)
    assert_array_equal(ranker.predict(X), alone.predict(X))


@pytest.mark.parametrize(
    ("seconds", "used", "warned"), [(126.0, 14.0, True), (126.0, 120.0, False), (9.0, 1.0, False)]
)
def test_a_fit_that_waited_for_processors_says_so(monkeypatch, recwarn, seconds, used, warned):
    monkeypatch.setattr(threads.time, "monotonic", iter([0.0, seconds]).__next__)
    monkeypatch.setattr(threads.time, "process_time", iter([0.0, used]).__next__)
    with threads.watching_time("BoostedRanker"):
        pass
    said = [str(warning.message) for warning in recwarn]
    assert len(said) == warned
    if warned:
        assert "took 126 s but had a processor for only 14 s" in said[0]


@pytest.fixture(scope="module")
def fitted():
    X, y, qid = ranking_data(40)
    X[::7, 0] = np.nan
    return BoostedRanker(n_estimators=12, num_leaves=4).fit(X, y, qid=qid), X, qid


class TestPredict:
    def test_of_some_trees(self, fitted):
        ranker, X, qid = fitted
        expected = ranker.booster_.predict(X, num_iteration=5, raw_score=True)
        assert_array_equal(ranker.predict(X, num_iteration=5), expected)
        assert (expected != ranker.predict(X)).any()
        assert_array_equal(ranker.predict(X, num_iteration=999, qid=qid), ranker.predict(X))
        for wrong in (0, -1, 2.5, "all"):
            with pytest.raises(ValueError, match="num_iteration must be"):
                ranker.predict(X, num_iteration=wrong)

    def test_of_contributions(self, fitted, tmp_path):
        from sinkprop import Queries
        from sinkprop.store import save_queries

        ranker, X, qid = fitted
        parts = ranker.predict(X, pred_contrib=True)
        assert parts.shape == (len(X), X.shape[1] + 1)
        np.testing.assert_allclose(parts.sum(axis=1), ranker.predict(X), rtol=1e-9, atol=1e-12)
        stored = save_queries(
            tmp_path / "a.queries",
            Queries(np.nan_to_num(X), np.zeros(len(X)), qid),
        )
        assert_array_equal(
            ranker.predict(stored, pred_contrib=True, num_iteration=3),
            ranker.predict(stored.load(), pred_contrib=True, num_iteration=3),
        )


def test_trees_that_ran_out_say_so():
    X, y, qid = ranking_data(30)
    train, vali = qid < 20, qid >= 20
    split = {"eval_set": [(X[vali], y[vali])], "eval_qid": [qid[vali]]}
    ranker = BoostedRanker(n_estimators=100, learning_rate=1e-4, noise=0.0)
    with pytest.warns(
        UserWarning, match="still rose when the 100 trees were grown. Set a larger n_estimators"
    ):
        ranker.fit(X[train], y[train], qid=qid[train], **split)
    assert ranker.fit_result_.still_rising
    assert "still rose" in ranker.fit_result_.message
    stopped = BoostedRanker(n_estimators=200, learning_rate=0.3, early_stopping_rounds=5)
    stopped.fit(X[train], y[train], qid=qid[train], **split)
    assert not stopped.fit_result_.still_rising
    assert "stopped rising" in stopped.fit_result_.message
