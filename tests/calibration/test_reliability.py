"""Reliability: bins, intervals and reports against loops over forecasts, SciPy and arithmetic."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binomtest

from sinkprop import SmoothedIndicator, doubly_stochastic
from sinkprop.calibration import RankCalibration, calibration_report, reliability

PROBABILITIES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def expected_bins(forecasts, outcomes, n_bins):
    """Forecasts and outcomes of each bin, sorted by a loop."""
    bins = [([], []) for _ in range(n_bins)]
    for p, t in zip(forecasts, outcomes, strict=True):
        place = next(b for b in range(n_bins) if p * n_bins < b + 1 or b == n_bins - 1)
        bins[place][0].append(p)
        bins[place][1].append(t)
    return bins


class TestReliability:
    @given(PROBABILITIES, st.integers(1, 12))
    def test_bins_are_those_of_a_loop_and_intervals_scipys(self, pairs, n_bins):
        forecasts, outcomes = zip(*pairs, strict=True)
        found, error = reliability(forecasts, outcomes, n_bins=n_bins), 0.0
        for b, (p, t) in enumerate(expected_bins(forecasts, outcomes, n_bins)):
            assert found.counts[b] == len(p)
            if not p:
                assert np.isnan([found.forecast[b], found.observed[b], found.low[b], found.high[b]]).all()
                continue
            assert_allclose([found.forecast[b], found.observed[b]], [np.mean(p), np.mean(t)], atol=1e-12)
            interval = binomtest(sum(t), len(t)).proportion_ci(method="wilson")
            assert_allclose([found.low[b], found.high[b]], interval, atol=1e-6)
            assert 0 <= found.low[b] <= found.observed[b] <= found.high[b] <= 1
            error += len(p) / len(forecasts) * abs(np.mean(p) - np.mean(t))
        assert found.error == pytest.approx(error, abs=1e-12)

    def test_outcomes_may_be_shares(self):
        found = reliability([0.5, 0.5, 1.0], [0.5, 0.25, 0.75], n_bins=2)
        assert found.counts.tolist() == [0, 3]
        assert found.observed[1] == pytest.approx(0.5)
        assert found.error == pytest.approx(2 / 3 - 0.5)

    def test_a_million_forecasts_at_their_frequencies(self):
        rng = np.random.default_rng(0)
        p = rng.random(1_000_000)
        found = reliability(p, rng.random(len(p)) < p)
        assert found.error < 0.003
        assert (np.diff(found.observed) > 0.08).all()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([0.5], [1, 0]), "forecasts and outcomes must have the same shape (N,), with N > 0;"),
            (([], []), "forecasts and outcomes must have the same shape (N,), with N > 0;"),
            (([[0.5]], [[1]]), "forecasts and outcomes must have the same shape (N,), with N > 0;"),
            (([0.5, 1.5], [1, 0]), "forecasts must be from 0 to 1; row 1 is 1.5."),
            (([0.5, np.nan], [1, 0]), "forecasts must be from 0 to 1; row 1 is nan."),
            (([0.5, 0.5], [-1, 0]), "outcomes must be from 0 to 1; row 0 is -1.0."),
        ],
    )
    def test_what_is_no_forecast_is_refused(self, arguments, message):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            reliability(*arguments)

    def test_a_bin_is_needed(self):
        with pytest.raises(ValueError, match="n_bins"):
            reliability([0.5], [1], n_bins=0)

    def test_the_record_is_json_with_null_for_an_empty_bin(self):
        found = reliability([0.1, 0.2], [0, 1], n_bins=2)
        record = json.loads(json.dumps(found.record(), allow_nan=False))
        assert record["counts"] == [2, 0]
        assert record["forecast"] == [pytest.approx(0.15), None]
        assert record["low"][1] is record["high"][1] is record["observed"][1] is None
        assert record["error"] == found.error


def simulated(n_queries, seed=0):
    """Queries of 1 to 14 documents with rounded scores, of which some are tied, and labels 0 to 2."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), 1 + np.arange(n_queries) % 14)
    scores = rng.normal(size=len(qid)).round(1)
    return scores, np.digitize(scores + rng.normal(size=len(qid)), [0.5, 1.5]).astype(float), qid


@pytest.fixture(scope="module")
def calibration():
    return RankCalibration.fit(*simulated(120, seed=1))


def shares(labels):
    """The ideal matrix of a query by its definition: tied documents share their ranks."""
    T = np.zeros((len(labels), len(labels)))
    for j, label in enumerate(labels):
        first, tied = sum(labels > label), sum(labels == label)
        T[j, first : first + tied] = 1 / tied
    return T


def forecasts_by_query(scores, y, qid, distribution):
    """For each k, forecasts and outcomes of "top k", and those of "first is best"; and the log scores."""
    tops, firsts, logs = {k: ([], []) for k in (1, 3, 5, 10)}, ([], []), []
    for q in np.unique(qid):
        own, labels = scores[qid == q], y[qid == q]
        Pi, T = distribution(own), shares(labels)
        for k, (p, t) in tops.items():
            p.extend(Pi[:, :k].sum(axis=1).clip(0, 1))
            t.extend(T[:, :k].sum(axis=1).clip(0, 1))
        firsts[0].append(Pi[own.argmax(), 0])
        firsts[1].append(labels[own.argmax()] == labels.max())
        n = min(10, len(own))
        logs.append(-(T * np.log(np.maximum(Pi, 1e-12)))[:, :n].sum() / n)
    return tops, firsts, np.mean(logs)


def assert_same(found, pair):
    expected = reliability(np.clip(pair[0], 0, 1), pair[1])
    # a forecast on the border of two bins may be in the other one by a rounding error
    assert found.error == pytest.approx(expected.error, abs=2e-3)
    assert np.abs(found.counts - expected.counts).sum() <= 4
    assert found.counts.sum() == len(pair[0])


class TestReport:
    @pytest.mark.parametrize("sigma", [None, 0.4])
    def test_it_is_that_of_each_query_by_itself(self, calibration, sigma):
        scores, y, qid = simulated(60)
        report = calibration_report(calibration, scores, y, qid, sigma=sigma)
        width = SmoothedIndicator(calibration.mixture.scale if sigma is None else sigma)
        plain = forecasts_by_query(scores, y, qid, lambda own: doubly_stochastic(own, relaxation=width))
        fitted = forecasts_by_query(scores, y, qid, calibration.rank_distribution)
        for side, (tops, _, log) in ((report.before, plain), (report.after, fitted)):
            for k, pair in tops.items():
                assert_same(side[f"top {k}"], pair)
            assert getattr(report.log_scores, "before" if side is report.before else "after") == (
                pytest.approx(log, abs=1e-4)
            )
        assert_same(report.before["first is best"], plain[1])
        assert_same(report.after["first is best"], (calibration.confidence(scores, qid), plain[1][1]))
        assert report.log_scores.uniform == pytest.approx(np.log(np.bincount(qid)).mean())
        assert (report.n_queries, report.n_calibrating) == (60, 120)

    def test_labels_are_compared_with_the_probability_of_each_grade(self, calibration):
        scores, y, qid = simulated(60)
        report = calibration_report(calibration, scores, y, qid)
        for grade in (1, 2):
            p = calibration.relevance_probability(scores, qid, threshold=grade)
            assert_same(report.after[f"label >= {grade}"], (p, y >= grade))
            assert f"label >= {grade}" not in report.before

    def test_rows_may_be_in_any_order(self, calibration):
        scores, y, qid = simulated(40)
        scores = scores + np.linspace(0, 0.01, len(scores))  # without ties, whose order is that of the rows
        order = np.random.default_rng(3).permutation(len(qid))
        names = np.array([f"q{q}" for q in qid])
        first = calibration_report(calibration, scores, y, qid)
        second = calibration_report(calibration, scores[order], y[order], names[order])
        assert second.log_scores.after == pytest.approx(first.log_scores.after)
        assert second.log_scores.before == pytest.approx(first.log_scores.before)
        for (event, *own), (other, *others) in zip(first.events(), second.events(), strict=True):
            assert event == other
            for a, b in zip(own, others, strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    assert np.abs(a.counts - b.counts).sum() <= 4
                    assert a.error == pytest.approx(b.error, abs=2e-3)

    def test_calibration_mends_what_was_too_sure(self):
        scores, y, qid = simulated(400, seed=2)
        half = qid < 200
        own = RankCalibration.fit(10 * scores[half], y[half], qid[half])
        found = calibration_report(own, 10 * scores[~half], y[~half], qid[~half], sigma=0.5)
        assert found.log_scores.after < found.log_scores.uniform < found.log_scores.before
        for event in ("top 1", "top 3", "first is best"):
            assert found.after[event].error < found.before[event].error / 2

    def test_one_query_of_one_document(self, calibration):
        report = calibration_report(calibration, [0.3], [1], ["q"])
        assert report.after["top 1"].observed[-1] == 1
        assert report.after["top 10"].error == pytest.approx(0, abs=1e-6)
        assert report.log_scores.uniform == 0
        assert report.log_scores.after == pytest.approx(0, abs=1e-6)

    def test_without_models_of_labels_only_ranks_are_compared(self, calibration):
        ranks_only = replace(calibration, best=None, relevance=())
        report = calibration_report(ranks_only, *simulated(20))
        assert list(report.after) == ["top 1", "top 3", "top 5", "top 10"]
        assert [event for event, _, after in report.events() if after is None] == ["first is best"]

    def test_the_record_is_json(self, calibration):
        report = calibration_report(calibration, *simulated(20))
        record = json.loads(json.dumps(report.record(), allow_nan=False))
        assert record["n_calibrating"] == 120
        assert record["log_scores"]["after"] == report.log_scores.after
        events = {own["event"]: own for own in record["events"]}
        assert list(events) == [*report.before, "label >= 1", "label >= 2"]
        assert events["label >= 2"]["before"] is None
        assert events["top 5"]["after"]["error"] == report.after["top 5"].error

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"scores": [0.1, np.nan]}, "scores"),
            ({"y": [1]}, "labels must have one value per row"),
            ({"y": [1, -1]}, "labels must be finite and not below 0"),
            ({"qid": [1]}, "qid"),
            ({"sigma": 0}, "sigma"),
        ],
    )
    def test_bad_arguments(self, calibration, change, message):
        given_ = {"scores": [0.1, 0.2], "y": [1, 0], "qid": [1, 1], **change}
        with pytest.raises(ValueError, match=message):
            calibration_report(calibration, **given_)
