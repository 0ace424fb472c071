"""RankCalibration: laws of its probabilities and statements, records, and errors."""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop.calibration import RankCalibration
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.widths import log_score
from sinkprop.data.queries import group_rows
from sinkprop.metrics.ranking import ranks_of


def simulated(n_queries=120, size=10, seed=0, noise=1.0):
    """Scores, labels 0, 1 and 2, and query ids of queries of several sizes, in random order of rows."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(max(1, size // 2), size + size // 2, n_queries)
    qid = rng.permutation(np.repeat(np.arange(n_queries), sizes))
    scores = rng.normal(size=len(qid))
    return scores, np.digitize(scores + noise * rng.normal(size=len(qid)), [0.7, 2]).astype(float), qid


@pytest.fixture(scope="module")
def fitted():
    return RankCalibration.fit(*simulated())


def everything(calibration, scores, qid):
    """All probabilities and statements, by name."""
    found = {
        "expected": calibration.expected_rank(scores, qid),
        "top 3": calibration.top_k_probability(scores, 3, qid),
        "relevant": calibration.relevance_probability(scores, qid),
        "very relevant": calibration.relevance_probability(scores, qid, threshold=2),
        "best": calibration.best_probability(scores, qid),
        "confidence": calibration.confidence(scores, qid),
        "best set": calibration.best_set(scores, qid),
        "list": calibration.shortest_list(scores, qid),
        "interval": calibration.rank_interval(scores, qid),
        "answers": calibration.answers(scores, qid, precision=0.5),
    }
    return {name: np.asarray(value) for name, value in found.items()}


class TestProbabilities:
    def test_rank_distribution_is_the_matrix_of_the_other_methods(self, fitted):
        scores = np.random.default_rng(0).normal(size=14)
        Pi = fitted.rank_distribution(scores)
        assert Pi.shape == (14, 14)
        assert_allclose(Pi.sum(axis=1), 1, atol=1e-6)
        assert_allclose(fitted.expected_rank(scores), Pi @ np.arange(1, 15), atol=1e-5)
        for k in (1, 5, 14, 99):
            assert_allclose(fitted.top_k_probability(scores, k), Pi[:, :k].sum(axis=1), atol=1e-6)
        assert_allclose(fitted.rank_distribution(scores, ranks=[3, 1]), Pi[:, [2, 0]], atol=1e-7)

    def test_top_k_sums_to_k_in_each_query(self, fitted):
        scores, _, qid = simulated(seed=1)
        sizes = np.bincount(qid)
        for k in (1, 3, 10):
            totals = np.bincount(qid, fitted.top_k_probability(scores, k, qid))
            assert_allclose(totals, np.minimum(sizes, k), atol=1e-2)
        assert_allclose(
            np.bincount(qid, fitted.expected_rank(scores, qid)), sizes * (sizes + 1) / 2, rtol=1e-3
        )

    @given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=25))
    def test_any_scores_have_probabilities_that_do_not_increase_down_the_ranking(self, fitted, scores):
        x, n = np.array(scores), len(scores)
        order = np.argsort(ranks_of(x, group_rows(None, n)))
        for threshold in (1, 2):
            p = fitted.relevance_probability(x, threshold=threshold)[order]
            assert ((p >= 0) & (p <= 1)).all()
            assert (np.diff(p) <= 0).all()
        assert (np.diff(fitted.top_k_probability(x, 3)[order]) <= 1e-6).all()
        assert (np.diff(fitted.expected_rank(x)[order]) >= -1e-5).all()
        best = fitted.best_probability(x)
        assert ((best >= 0) & (best <= 1)).all()

    def test_a_higher_threshold_is_never_more_likely(self, fitted):
        scores, _, qid = simulated(seed=2)
        once = fitted.relevance_probability(scores, qid, threshold=1)
        assert (fitted.relevance_probability(scores, qid, threshold=2) <= once).all()
        assert_array_equal(fitted.relevance_probability(scores, qid, threshold=0.3), once)

    def test_confidence_is_the_best_probability_of_first_documents(self, fitted):
        scores, qid = np.array([0.1, 2.0, 1.0, -1.0]), ["b", "a", "b", "c"]
        best = fitted.best_probability(scores, qid)
        assert_array_equal(fitted.confidence(scores, qid), best[[2, 1, 3]])

    def test_frequencies_on_other_queries(self):
        calibration = RankCalibration.fit(*simulated(400))
        scores, labels, qid = simulated(400, seed=9)
        groups = group_rows(qid, len(qid))
        ideal, largest = ideal_ranks(labels, groups), np.zeros(400)
        np.maximum.at(largest, qid, labels)
        forecasts = {
            "first": (calibration.top_k_probability(scores, 1, qid), ideal.within(1, 1)),
            "top 5": (calibration.top_k_probability(scores, 5, qid), ideal.within(1, 5)),
            "relevant": (calibration.relevance_probability(scores, qid), labels >= 1),
            "best": (calibration.best_probability(scores, qid), labels == largest[qid]),
        }
        for name, (p, happened) in forecasts.items():
            for low, high in ((0, 0.2), (0.2, 0.4), (0.4, 1.01)):
                some = (p >= low) & (p < high)
                assert some.sum() > 100
                assert p[some].mean() == pytest.approx(happened[some].mean(), abs=0.07), (name, low)

    def test_log_scores_of_the_fit(self, fitted):
        scores, labels, qid = simulated()
        groups = group_rows(qid, len(qid))
        Pi = fitted.mixture.project(scores, groups, np.eye(10, groups.longest))
        assert fitted.log_score == pytest.approx(log_score(Pi, labels, groups).mean(), abs=1e-9)
        assert fitted.uniform_log_score == pytest.approx(np.log(groups.sizes).mean())
        assert fitted.log_score < fitted.uniform_log_score
        assert fitted.n_queries == 120
        assert repr(fitted) == (
            f"RankCalibration(120 queries, log score {fitted.log_score:.3f}, "
            f"uniform {fitted.uniform_log_score:.3f} nats per rank)"
        )


class TestStatements:
    def test_coverage_on_other_queries(self):
        calibration = RankCalibration.fit(*simulated(400))
        scores, labels, qid = simulated(600, seed=5)
        largest, relevant = np.zeros(600), np.zeros(600, dtype=bool)
        np.maximum.at(largest, qid, labels)
        np.logical_or.at(relevant, qid, labels >= 1)
        ideal = ideal_ranks(labels, group_rows(qid, len(qid)))
        for coverage in (0.7, 0.9):
            # five standard errors of both sets of queries
            error = 5 * math.sqrt(coverage * (1 - coverage) * (1 / 400 + 1 / 300))
            held = (
                np.bincount(
                    qid, calibration.best_set(scores, qid, coverage=coverage) & (labels == largest[qid])
                )
                > 0
            )
            assert held.mean() >= coverage - error
            chosen = calibration.shortest_list(scores, qid, coverage=coverage)
            found = np.bincount(qid, chosen & (labels >= 1)) > 0
            assert found[relevant].mean() >= coverage - error
            assert chosen.mean() < 1
            low, high = calibration.rank_interval(scores, qid, coverage=coverage).T
            share = np.bincount(qid, ideal.within(low, high)) / np.bincount(qid)
            assert share.mean() >= coverage - error

    def test_sets_are_prefixes_that_grow_with_the_coverage(self, fitted):
        scores, _, qid = simulated(seed=3)
        ranks = ranks_of(scores, group_rows(qid, len(qid)))
        for method in (fitted.best_set, fitted.shortest_list):
            before = np.zeros(len(qid), dtype=bool)
            for coverage in (0.3, 0.6, 0.9):
                chosen = method(scores, qid, coverage=coverage)
                assert (chosen >= before).all()
                for q in np.unique(qid):
                    own = chosen[qid == q][np.argsort(ranks[qid == q])]
                    assert own[0]
                    assert (np.diff(own.astype(int)) <= 0).all()
                before = chosen

    def test_answers_are_first_documents(self, fitted):
        scores, _, qid = simulated(seed=3)
        ranks = ranks_of(scores, group_rows(qid, len(qid)))
        few = fitted.answers(scores, qid, precision=0.65)
        many = fitted.answers(scores, qid, precision=0.3)
        assert 0 < few.sum() < many.sum()
        assert (ranks[many] == 1).all()
        assert (few <= many).all()
        p = fitted.relevance_probability(scores, qid)
        assert p[few].min() > p[(ranks == 1) & ~few].max()

    def test_no_answers_if_no_threshold_has_the_precision(self):
        scores, labels, qid = simulated(noise=8.0)
        assert (
            not RankCalibration.fit(scores, labels, qid)
            .answers(scores, qid, precision=0.95, confidence=0.5)
            .any()
        )


class TestInvariance:
    def test_order_of_rows_and_names_of_queries(self):
        scores, labels, qid = simulated()
        order = np.random.default_rng(1).permutation(len(qid))
        names = np.array([f"query {i}" for i in np.random.default_rng(2).permutation(120)])
        # queries keep the order in which they first appear, which decides their folds
        first = np.unique(qid, return_index=True)[1]
        order = np.concatenate([np.sort(first), order[~np.isin(order, first)]])
        one = everything(RankCalibration.fit(scores, labels, qid), scores, qid)
        other = everything(
            RankCalibration.fit(scores[order], labels[order], names[qid][order]),
            scores[order],
            names[qid][order],
        )
        for name, value in one.items():
            moved = value if name == "confidence" else value[order]
            assert_allclose(other[name], moved, atol=2e-3, err_msg=name)

    def test_powers_of_two_change_no_bit(self):
        scores, labels, qid = simulated()
        one = everything(RankCalibration.fit(scores, labels, qid), scores, qid)
        for power in (-40, 3, 500):
            x = np.ldexp(scores, power)
            other = everything(RankCalibration.fit(x, labels, qid), x, qid)
            for name, value in one.items():
                assert_array_equal(other[name], value, err_msg=name)

    def test_level_of_all_scores(self, fitted):
        scores, labels, qid = simulated()
        one, shifted = everything(fitted, scores, qid), scores + 64
        refitted = everything(RankCalibration.fit(shifted, labels, qid), shifted, qid)
        for name in ("expected", "top 3", "relevant", "very relevant", "best", "confidence"):
            assert_allclose(refitted[name], one[name], atol=2e-3, err_msg=name)
        # ranks depend on differences only; relevance depends on the level of the scores too
        assert_allclose(fitted.top_k_probability(scores + 1, 3, qid), one["top 3"], atol=1e-5)
        assert (fitted.relevance_probability(scores + 1, qid) > one["relevant"] + 1e-3).any()

    def test_other_queries_in_the_call(self, fitted):
        scores, _, qid = simulated(seed=4)
        together = everything(fitted, scores, qid)
        names = list(dict.fromkeys(qid.tolist()))
        for q in range(20):
            own = qid == q
            for name, value in everything(fitted, scores[own], None).items():
                expected = together[name][names.index(q)] if name == "confidence" else together[name][own]
                assert_array_equal(
                    np.squeeze(value) if name == "confidence" else value, expected, err_msg=name
                )

    def test_input_is_left_alone(self):
        scores, labels, qid = simulated(30)
        copies = scores.copy(), labels.copy(), qid.copy()
        everything(RankCalibration.fit(scores, labels, qid), scores, qid)
        for now, before in zip((scores, labels, qid), copies, strict=True):
            assert_array_equal(now, before)

    def test_number_of_threads_changes_no_bit(self):
        program = (
            "import hashlib, pickle\n"
            "import numpy as np\n"
            "from sinkprop.calibration import RankCalibration\n"
            "rng = np.random.default_rng(0)\n"
            "qid, x = np.repeat(np.arange(300), 20), rng.normal(size=6000)\n"
            "y = np.digitize(x + rng.normal(size=6000), [0.5, 2])\n"
            "c = RankCalibration.fit(x, y, qid)\n"
            "found = c.expected_rank(x, qid), c.confidence(x, qid), c.rank_interval(x, qid), c.record()\n"
            "print(hashlib.sha256(pickle.dumps(found)).hexdigest())\n"
        )
        digests = set()
        for n in ("1", "2", "3"):
            threads = {f"{name}_NUM_THREADS": n for name in ("SINKPROP", "OMP", "OPENBLAS", "MKL")}
            result = subprocess.run(
                [sys.executable, "-c", program],
                env=os.environ | threads,
                capture_output=True,
                text=True,
                check=True,
            )
            digests.add(result.stdout)
        assert len(digests) == 1


class TestUnusualData:
    @pytest.mark.parametrize(
        "scores_of",
        [
            np.zeros_like,
            lambda x: np.full_like(x, 1e17),
            lambda x: -x,
            lambda x: (x > 0).astype(float),
            lambda x: 1e200 * x,
            lambda x: 1e-300 * x,
            lambda x: np.where(x > 0, 1.7e308, -1.7e308),
            lambda x: np.where(np.arange(len(x)) == 5, 1e12, x),
        ],
        ids=["equal", "equal and large", "reversed", "two values", "huge", "tiny", "largest", "an outlier"],
    )
    def test_scores(self, scores_of):
        x, labels, qid = simulated(60)
        scores = scores_of(x)
        found = everything(RankCalibration.fit(scores, labels, qid), scores, qid)
        for name, value in found.items():
            assert np.isfinite(value).all(), name
            if name not in ("expected", "interval"):
                assert ((value >= 0) & (value <= 1)).all(), name

    def test_equal_scores_have_equal_chances(self):
        _, labels, qid = simulated(60)
        calibration = RankCalibration.fit(np.zeros(len(qid)), labels, qid)
        assert_allclose(calibration.rank_distribution(np.zeros(5)), 0.2, atol=1e-9)
        assert calibration.rank_interval(np.zeros(5), coverage=0.9)[:, 0].max() == 1

    def test_scores_that_are_the_labels(self):
        _, labels, qid = simulated(60)
        calibration = RankCalibration.fit(labels, labels, qid)
        assert_allclose(calibration.relevance_probability(labels, qid), labels >= 1, atol=0.02)
        assert calibration.confidence([2.0, 1.0, 0.0])[0] > 0.95

    def test_labels_without_zero(self):
        scores, labels, qid = simulated(60)
        calibration = RankCalibration.fit(scores, labels + 1, qid)
        assert calibration.grades.tolist() == [1, 2, 3]
        assert (calibration.relevance_probability(scores, qid) > 0.99).all()
        ranks = ranks_of(scores, group_rows(qid, len(qid)))
        assert_array_equal(calibration.shortest_list(scores, qid), ranks == 1)

    def test_many_different_labels(self):
        scores, _, qid = simulated(60)
        labels = np.random.default_rng(0).random(len(qid))
        calibration = RankCalibration.fit(scores, labels, qid)
        assert len(calibration.grades) == 8
        assert calibration.grades[[0, -1]].tolist() == [labels.min(), labels.max()]
        between = calibration.grades[3:5].mean()
        assert_array_equal(
            calibration.relevance_probability(scores, qid, threshold=between),
            calibration.relevance_probability(scores, qid, threshold=calibration.grades[4]),
        )

    def test_queries_of_one_document(self):
        scores, labels, qid = simulated(40)
        alone = np.where(np.arange(len(qid)) % 3 == 0, 1000 + np.arange(len(qid)), qid)
        calibration = RankCalibration.fit(scores, labels, alone)
        found = everything(calibration, np.array([0.3]), None)
        assert found["expected"].tolist() == pytest.approx([1])
        assert found["top 3"].tolist() == pytest.approx([1])
        assert found["best set"].tolist() == [True]
        assert found["interval"].tolist() == [[1, 1]]

    def test_a_query_of_a_million_documents(self, fitted):
        n = 1_000_000
        scores = np.random.default_rng(0).normal(size=n)
        top = fitted.top_k_probability(scores, 10)
        assert top.sum() == pytest.approx(10, abs=0.05)
        p = fitted.relevance_probability(scores)
        assert (np.diff(p[np.argsort(-scores)]) <= 0).all()
        assert fitted.confidence(scores).shape == (1,)
        assert fitted.shortest_list(scores)[scores.argmax()]

    def test_long_queries_all_count(self):
        rng = np.random.default_rng(0)
        qid, scores = np.repeat(np.arange(12), 4000), rng.normal(size=48_000)
        calibration = RankCalibration.fit(scores, (scores + rng.normal(size=48_000) > 1) * 1.0, qid)
        assert calibration.best.sets.n_queries == 12
        assert calibration.intervals.n_queries == 12
        assert calibration.relevance[0].answers.answered[-1] == 12

    @pytest.mark.slow
    def test_five_thousand_queries(self):
        scores, labels, qid = simulated(5000, 20)
        calibration = RankCalibration.fit(scores, labels, qid)
        p = calibration.relevance_probability(scores, qid)
        assert p.mean() == pytest.approx((labels >= 1).mean(), abs=0.01)
        assert len(calibration.best.sets.scores) == 2001
        assert calibration.best.sets.n_queries == 5000


class TestRecord:
    def test_round_trip_is_exact(self, fitted):
        read = RankCalibration.from_record(fitted.record())
        scores, _, qid = simulated(seed=6)
        for name, value in everything(read, scores, qid).items():
            assert_array_equal(value, everything(fitted, scores, qid)[name], err_msg=name)
        assert repr(read) == repr(fitted)
        assert str(read.record()) == str(fitted.record())

    def test_parts_that_are_missing(self, fitted):
        read = RankCalibration.from_record(
            fitted.record() | {"relevance": [], "best": None, "intervals": None}
        )
        assert read.grades.tolist() == []
        for method in (
            "relevance_probability",
            "best_probability",
            "confidence",
            "best_set",
            "rank_interval",
        ):
            with pytest.raises(
                ValueError, match=rf"^{method}: this calibration has no model of labels; fit it to "
            ):
                getattr(read, method)([1.0, 2.0])

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *itertools.product(["mixture", "best", "intervals"], ["x", 3, [None], {}, -1.5]),
            *itertools.product(["relevance", "n_queries", "log_score"], ["x", [None], None]),
            ("relevance", 3), ("n_queries", -1), ("n_queries", 2.0), ("n_queries", True), ("log_score", 1),
            ("uniform_log_score", 10**400),
        ],
    )  # fmt: skip
    def test_what_is_not_valid(self, fitted, key, value):
        with pytest.raises((LookupError, TypeError, ValueError)):
            RankCalibration.from_record(fitted.record() | {key: value})

    def test_grades_must_increase(self, fitted):
        state = fitted.record()
        with pytest.raises(ValueError, match="grades must be increasing"):
            RankCalibration.from_record(state | {"relevance": state["relevance"][::-1]})

    @given(st.data())
    def test_mutations_raise_nothing_else(self, fitted, data):
        state = copy.deepcopy(fitted.record())
        for _ in range(data.draw(st.integers(1, 3))):
            mutate(state, data.draw)
        try:
            read = RankCalibration.from_record(state)
        except (LookupError, TypeError, ValueError):
            return
        assert isinstance(repr(read), str)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**400), 10**400), st.floats(), st.text(max_size=3),
    st.lists(st.none(), max_size=3), st.just({}), st.just({"grade": 1.0}),
    st.sampled_from([np.zeros(0), np.zeros((2, 2)), np.array([1e308, -1e308]), np.array(["a"])]),
)  # fmt: skip


def mutate(state, draw):
    """Replace, remove or damage a value somewhere in plain data."""
    value, parent, key = state, None, None
    while isinstance(value, dict | list) and value and (parent is None or draw(st.integers(0, 5))):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        parent, key = value, draw(st.sampled_from(keys))
        value = parent[key]
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 0
    if floats and draw(st.booleans()):
        value.reshape(-1)[draw(st.integers(0, value.size - 1))] = draw(st.floats())
    elif floats and draw(st.booleans()):
        changed = [value[1:], value[::-1], -value, np.full_like(value, 1e308), value[:, None]]
        parent[key] = draw(st.sampled_from(changed))
    elif draw(st.integers(0, 4)) == 0:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(draw(VALUES))  # a later mutation may change it in place


class TestErrors:
    good = simulated(30)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"qid": None}, "RankCalibration.fit needs qid, the query of each row."),
            ({"scores": [1.0, 2.0]}, "qid must have one id per row"),
            ({"y": [0.0, 1.0]}, "labels must have one value per row of scores"),
            ({"qid": [1, 2]}, "qid must have one id per row"),
            ({"scores": np.full(len(good[0]), np.nan)}, "scores must be finite; row 0 holds nan."),
            ({"scores": good[0][:, None]}, "scores must be one number per document, of shape (N,)"),
            ({"scores": [], "y": [], "qid": []}, "scores must hold at least one document; got none."),
            ({"y": -good[1] - 1}, "labels must be finite"),
            (
                {"y": np.ones(len(good[0]))},
                "calibration needs at least 10 held-out queries with documents of different labels; 0 of 30 "
                "have them. Give more held-out queries.",
            ),
            (
                {"qid": good[2] // 4},
                "calibration needs at least 10 held-out queries with documents of different labels; 8 of 8 ",
            ),
        ],
    )
    def test_fit(self, change, message):
        arguments = dict(zip(("scores", "y", "qid"), self.good, strict=True)) | change
        with pytest.raises(ValueError, match=f"^{re.escape(message)}") as error:
            RankCalibration.fit(**arguments)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("method", ["best_set", "shortest_list", "rank_interval"])
    @pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, math.nan, "0.9", None, True])
    def test_coverage_out_of_range(self, fitted, method, coverage):
        with pytest.raises(ValueError, match=r"^coverage must be "):
            getattr(fitted, method)([1.0, 2.0], coverage=coverage)

    @pytest.mark.parametrize("method", ["best_set", "shortest_list", "rank_interval"])
    def test_coverage_that_needs_more_queries(self, fitted, method):
        with pytest.raises(
            ValueError,
            match=rf"^{method}: coverage 0\.995 needs at least 199 held-out queries.*; there are 1\d\d\. "
            r"Calibrate with more queries, or lower the coverage\.$",
        ):
            getattr(fitted, method)([1.0, 2.0], coverage=0.995)

    @pytest.mark.parametrize("name", ["precision", "confidence"])
    @pytest.mark.parametrize("value", [0, 1, -1, math.inf, None])
    def test_precision_and_confidence_out_of_range(self, fitted, name, value):
        with pytest.raises(ValueError, match=f"^{name} must be "):
            fitted.answers([1.0, 2.0], **{name: value})

    def test_precision_that_needs_more_queries(self, fitted):
        with pytest.raises(
            ValueError,
            match=r"^answers: precision 0\.99 with confidence 0\.9 needs at least 459 held-out queries; "
            r"there are 120\. Calibrate with more queries, or lower the precision\.$",
        ):
            fitted.answers([1.0, 2.0], precision=0.99)

    @pytest.mark.parametrize("method", ["relevance_probability", "shortest_list", "answers"])
    def test_threshold(self, fitted, method):
        with pytest.raises(
            ValueError,
            match=rf"^{method}: threshold must be at most 2, the largest label of the held-out "
            r"queries; got 3\.$",
        ):
            getattr(fitted, method)([1.0, 2.0], threshold=3)
        with pytest.raises(ValueError, match=r"^threshold must be a finite number, above 0"):
            getattr(fitted, method)([1.0, 2.0], threshold=0)

    @pytest.mark.parametrize("k", [0, -1, 1.5, None])
    def test_k(self, fitted, k):
        with pytest.raises(ValueError, match=r"^k must be "):
            fitted.top_k_probability([1.0, 2.0], k)

    @pytest.mark.parametrize("ranks", [[0], [3], [1.5], []])
    def test_ranks(self, fitted, ranks):
        with pytest.raises(ValueError, match=r"^ranks must be "):
            fitted.rank_distribution([1.0, 2.0], ranks=ranks)
