"""The methods of rankers that need a calibration, with a ranker whose scores are its first feature."""

from __future__ import annotations

import pickle
import re
import threading
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sinkprop
from sinkprop import Queries, SmoothedIndicator
from sinkprop.baselines import FeatureRanker
from sinkprop.calibration import RankCalibration
from sinkprop.estimator import calibrated as module
from sinkprop.estimator.held_out import HeldOut, taken_queries
from sinkprop.objective.rank_distribution import doubly_stochastic, expected_ranks, top_k_probability

METHODS = {
    "expected_rank": ("expected_rank", {}),
    "top_k_probability": ("top_k_probability", {"k": 3}),
    "predict_proba": ("relevance_probability", {"threshold": 2}),
    "confidence": ("confidence", {}),
    "best_set": ("best_set", {"coverage": 0.8}),
    "shortest_list": ("shortest_list", {"coverage": 0.7, "threshold": 1}),
    "rank_interval": ("rank_interval", {"coverage": 0.8}),
    "answers": ("answers", {"precision": 0.3, "confidence": 0.6, "threshold": 1}),
}
UNCALIBRATED = ("expected_rank", "top_k_probability")


def rows(n_queries=40, size=8, seed=0):
    """Features, labels and query ids in random order of rows; the first feature is a good score."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(n_queries), size))
    X = rng.normal(size=(len(qid), 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=len(qid)), [0.5, 1.5]).astype(float), qid


@pytest.fixture
def ranker():
    """A ranker without calibration."""
    X, y, qid = rows(5)
    return FeatureRanker(1).fit(X, y, qid=qid)


@pytest.fixture(scope="module")
def calibrated():
    X, y, qid = rows(5)
    ranker = FeatureRanker(1).fit(X, y, qid=qid)
    X, y, qid = rows()
    return ranker.calibrate(X, y, qid=qid)


class TestMethods:
    @pytest.mark.parametrize("method", METHODS)
    def test_results_are_those_of_the_calibration(self, calibrated, method):
        X, _, qid = rows(seed=1)
        name, options = METHODS[method]
        found = getattr(calibrated, method)(X, qid=qid, **options)
        assert_array_equal(found, getattr(calibrated.calibration_, name)(X[:, 0], qid=qid, **options))

    @pytest.mark.parametrize("method", METHODS)
    def test_forms_of_the_queries(self, calibrated, method):
        X, y, qid = rows(seed=1)
        order = np.argsort(qid, kind="stable")
        X, y, qid = X[order], y[order], qid[order]
        call, options = getattr(calibrated, method), METHODS[method][1]
        expected = call(X, qid=qid, **options)
        assert_array_equal(call(X, group=np.bincount(qid), **options), expected)
        assert_array_equal(call(Queries(X, y, qid), **options), expected)
        assert_array_equal(call(X, qid=[f"q{q}" for q in qid], **options), expected)

    @pytest.mark.parametrize("method", METHODS)
    def test_queries_are_needed(self, calibrated, method):
        with pytest.raises(ValueError, match=rf"^{method} needs qid=, one query id per row \(4 rows\)"):
            getattr(calibrated, method)(np.zeros((4, 3)), **METHODS[method][1])

    @pytest.mark.parametrize("method", [name for name in METHODS if name != "predict_proba"])
    def test_ranker_that_is_not_fitted(self, method):
        with pytest.raises(NotFittedError):
            getattr(FeatureRanker(1), method)(np.zeros((4, 3)), qid=[0, 0, 1, 1], **METHODS[method][1])

    def test_rank_distribution(self, calibrated):
        X = rows(seed=1)[0][:9]
        Pi = calibrated.rank_distribution(X)
        assert_array_equal(Pi, calibrated.calibration_.rank_distribution(X[:, 0]))
        assert_allclose(calibrated.rank_distribution(X, ranks=[2, 9]), Pi[:, [1, 8]], atol=1e-7)
        with pytest.raises(ValueError, match=r"^rank_distribution takes one query, but qid has 2"):
            calibrated.rank_distribution(X, qid=[0] * 4 + [1] * 5)

    def test_sigma_and_calibrated_false_are_those_of_the_relaxation(self, calibrated):
        X, _, qid = rows(seed=1)
        scores, one = X[:, 0], X[:9]
        relaxation = SmoothedIndicator(0.3)
        assert_array_equal(
            calibrated.rank_distribution(one, sigma=0.3), doubly_stochastic(scores[:9], relaxation=relaxation)
        )
        assert_array_equal(
            calibrated.expected_rank(X, qid=qid, sigma=0.3),
            expected_ranks(scores, qid, relaxation=relaxation),
        )
        assert_array_equal(
            calibrated.top_k_probability(X, 2, qid=qid, sigma=0.3),
            top_k_probability(scores, 2, qid, relaxation=relaxation),
        )
        spread = np.mean([scores[qid == q].std() for q in range(40)])
        assert_allclose(
            calibrated.expected_rank(X, qid=qid, calibrated=False),
            expected_ranks(scores, qid, relaxation=SmoothedIndicator(spread)),
        )

    def test_scores_and_rankings_stay_the_same(self, ranker):
        X, y, qid = rows()
        before = ranker.predict(X)
        ranker.calibrate(X, y, qid=qid)
        assert_array_equal(ranker.predict(X), before)


class TestWithoutCalibration:
    @pytest.mark.parametrize(
        "method", [name for name in METHODS if name not in (*UNCALIBRATED, "predict_proba")]
    )
    def test_methods_say_why(self, ranker, method):
        X, _, qid = rows(seed=1)
        with pytest.raises(
            ValueError,
            match=rf"^{method}: FeatureRanker is not calibrated: calibration needs at least 10 held-out "
            r"queries with documents of different labels; \d of 5 have them\. Call calibrate\(\) with "
            r"held-out queries\.$",
        ):
            getattr(ranker, method)(X, qid=qid, **METHODS[method][1])

    def test_predict_proba_is_missing(self, ranker):
        assert not hasattr(ranker, "predict_proba")
        assert not hasattr(FeatureRanker(1), "predict_proba")
        X, y, qid = rows()
        assert hasattr(ranker.calibrate(X, y, qid=qid), "predict_proba")

    @pytest.mark.parametrize("method", ["rank_distribution", *UNCALIBRATED])
    def test_rank_probabilities_of_the_relaxation_warn(self, ranker, method):
        X = rows(seed=1)[0][:6]
        options = {} if method == "rank_distribution" else {"qid": np.zeros(6)}
        options |= {"k": 2} if method == "top_k_probability" else {}
        with pytest.warns(UserWarning, match=f"^{method}: FeatureRanker is not calibrated: ") as warned:
            found = getattr(ranker, method)(X, **options)
        assert warned[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet = getattr(ranker, method)(X, calibrated=False, **options)
        assert_array_equal(found, quiet)


class TestHeldOutQueries:
    def test_calibration_is_that_of_the_queries_that_chose_the_model(self):
        X, y, qid = rows()
        found = FeatureRanker(1).fit(X, y, qid=qid).calibration_
        order = np.argsort(np.unique(qid, return_index=True)[1][qid], kind="stable")
        expected = RankCalibration.fit(X[order, 0], y[order], qid[order])
        assert str(found.record()) == str(expected.record())

    def test_nothing_is_fitted_before_it_is_used(self, monkeypatch):
        calls = []
        monkeypatch.setattr(module, "calibration_of", lambda *arrays: calls.append(arrays) or "fitted")
        X, y, qid = rows()
        ranker = FeatureRanker(1).fit(X, y, qid=qid)
        ranker.predict(X)
        assert not calls
        assert ranker.calibration_ == ranker.calibration_ == "fitted"
        assert len(calls) == 1

    def test_an_interrupt_leaves_the_queries(self, monkeypatch):
        X, y, qid = rows()
        ranker = FeatureRanker(1).fit(X, y, qid=qid)

        def interrupted(*arrays):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(module, "calibration_of", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ranker.confidence(X, qid=qid)
        assert isinstance(ranker.calibration_, RankCalibration)

    def test_threads_that_ask_at_once_get_the_calibration(self, monkeypatch):
        X, y, qid = rows()
        ranker = FeatureRanker(1).fit(X, y, qid=qid)
        begun, found = threading.Event(), []
        fit = module.calibration_of

        def slow(*arrays):
            begun.set()
            return fit(*arrays)

        monkeypatch.setattr(module, "calibration_of", slow)
        first = threading.Thread(target=lambda: found.append(ranker.calibration_))
        first.start()
        begun.wait()
        found.append(ranker.calibration_)
        first.join()
        assert all(isinstance(one, RankCalibration) for one in found)
        assert len(found) == 2

    def test_a_new_fit_forgets_the_calibration(self, calibrated):
        X, y, qid = rows(5)
        ranker = pickle.loads(pickle.dumps(calibrated))
        assert ranker.calibration_ is not None
        assert ranker.fit(X, y, qid=qid).calibration_ is None
        assert clone(calibrated).calibration_ is None

    def test_too_many_documents(self):
        assert taken_queries(np.full(30_000, 10)).sum() == 10_000
        assert taken_queries(np.array([10**6])).tolist() == [True]
        sizes = np.full(12_000, 10)
        held = HeldOut(np.arange(120_000.0), np.arange(120_000.0), sizes).limited()
        assert held.sizes.sum() == len(held.scores) == 60_000
        assert_array_equal(held.scores[:20], [*range(10), *range(20, 30)])


class TestCalibrate:
    def test_forms_of_the_queries(self, ranker):
        X, y, qid = rows()
        order = np.argsort(qid, kind="stable")
        X, y, qid = X[order], y[order], qid[order]
        expected = str(ranker.calibrate(X, y, qid=qid).calibration_.record())
        assert str(ranker.calibrate(X, y, group=np.bincount(qid)).calibration_.record()) == expected
        assert str(ranker.calibrate(Queries(X, y, qid)).calibration_.record()) == expected

    def test_stored_queries(self, ranker, tmp_path):
        pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
        from sinkprop.store import open_queries, save_queries

        X, y, qid = rows()
        queries = Queries(X.astype(np.float32), y, qid)
        save_queries(tmp_path / "set", queries)
        stored = open_queries(tmp_path / "set")
        ranker.calibrate(stored)
        codes = stored.groups.codes
        scores = ranker.predict(stored)
        expected = RankCalibration.fit(scores, stored.labels(), codes)
        assert str(ranker.calibration_.record()) == str(expected.record())
        assert str(ranker.calibrate(tmp_path / "set").calibration_.record()) == str(expected.record())
        assert_array_equal(ranker.predict_proba(stored), expected.relevance_probability(scores, codes))
        assert_array_equal(ranker.best_set(tmp_path / "set"), expected.best_set(scores, codes))

    def test_too_few_queries(self, ranker):
        X, y, qid = rows()
        few = qid < 9
        message = (
            "calibrate: calibration needs at least 10 held-out queries with documents of different labels; "
        )
        with pytest.raises(
            ValueError, match=f"^{re.escape(message)}9 of 9 have them. The ranker stays uncalibrated.$"
        ):
            ranker.calibrate(X[few], y[few], qid=qid[few])
        before = ranker.calibrate(X, y, qid=qid).calibration_
        with pytest.raises(ValueError, match=r"0 of 40 have them\. The ranker keeps its calibration\.$"):
            ranker.calibrate(X, np.ones_like(y), qid=qid)
        assert ranker.calibration_ is before

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"y": None}, r"^calibrate needs y, one label per row\.$"),
            ({"qid": None}, "^calibrate needs qid=, one query id per row"),
            ({"y": [1.0]}, "^labels must have one value per row of X: 320 rows, but 1 labels"),
            ({"qid": [1]}, "^qid must have one id per row: 320 rows, but 1 ids"),
            ({"X": np.zeros((320, 2))}, "2 features"),
        ],
    )
    def test_what_is_not_valid(self, ranker, change, message):
        arguments = dict(zip(("X", "y", "qid"), rows(), strict=True)) | change
        with pytest.raises(ValueError, match=message):
            ranker.calibrate(**arguments)
        assert ranker.calibration_ is None

    def test_labels_beside_queries(self, ranker):
        X, y, qid = rows()
        with pytest.raises(ValueError, match="y"):
            ranker.calibrate(Queries(X, y, qid), y)

    def test_ranker_that_is_not_fitted(self):
        X, y, qid = rows()
        with pytest.raises(NotFittedError):
            FeatureRanker(1).calibrate(X, y, qid=qid)


class TestFiles:
    def test_models_keep_the_calibration(self, calibrated, tmp_path):
        calibrated.save(tmp_path / "model.json")
        read = sinkprop.load_model(tmp_path / "model.json")
        X, _, qid = rows(seed=1)
        for method, (_, options) in METHODS.items():
            expected = getattr(calibrated, method)(X, qid=qid, **options)
            assert_array_equal(getattr(read, method)(X, qid=qid, **options), expected, err_msg=method)

    def test_models_without_calibration(self, ranker, tmp_path):
        ranker.save(tmp_path / "model.json")
        read = sinkprop.load_model(tmp_path / "model.json")
        assert read.calibration_ is None
        with pytest.raises(
            ValueError, match=r"^confidence: FeatureRanker is not calibrated: .*Call calibrate\(\)"
        ):
            read.confidence(np.zeros((2, 3)), qid=[0, 0])

    def test_copies_keep_the_calibration(self, calibrated):
        X, _, qid = rows(seed=1)
        copied = pickle.loads(pickle.dumps(calibrated))
        assert_array_equal(copied.confidence(X, qid=qid), calibrated.confidence(X, qid=qid))
