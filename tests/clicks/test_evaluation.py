"""Counterfactual evaluation against enumeration of all logs, arithmetic, and numerical derivatives."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from sinkprop import Queries
from sinkprop.clicks import (
    ClickLog,
    ClickModel,
    PositionBasedModel,
    Propensities,
    debias,
    simulate_clicks,
)
from sinkprop.clicks.evaluation import compare_rankers, counterfactual_value
from sinkprop.clicks.models.cascade import CascadeModel

DISCOUNT = 1 / np.log2(np.arange(2, 6))
CURVE = np.array([1.0, 0.6, 0.3])
METHODS = ["doubly robust", "ips", "snips"]


class Trusting(ClickModel):
    """Clicks without relevance, to test models with an intercept."""

    relevance = None

    def examination_curve(self):
        return CURVE

    def propensities(self, log):
        at = log.positions - 1
        return Propensities(0.8 * CURVE[at], 0.1 * CURVE[at])

    def draw(self, relevance, offsets, rng):
        raise NotImplementedError


MODELS = {"position-based": PositionBasedModel(CURVE), "trusting": Trusting()}


def queries_of(sizes):
    n = sum(sizes)
    return Queries(np.eye(n), np.zeros(n), qid=np.repeat(np.arange(len(sizes)), sizes))


def log_of(documents, lists, clicks=None, **more):
    """A log of sessions, each a list of rows; `clicks` are those of all impressions in turn."""
    rows = np.concatenate(lists)
    clicks = np.zeros(len(rows), dtype=bool) if clicks is None else clicks
    return ClickLog(documents, rows, clicks, np.cumsum([0, *map(len, lists)]), **more)


def click_probabilities(model, log, relevance):
    p = model.propensities(log)
    return p.slope * relevance[log.rows] + p.intercept


def outcomes(probabilities):
    """Every pattern of clicks with its probability."""
    for clicks in itertools.product([False, True], repeat=len(probabilities)):
        chance = np.where(clicks, probabilities, 1 - probabilities).prod()
        if chance > 0:
            yield chance, np.array(clicks)


def value_by_definition(metric, ranks, relevance, slope, intercept):
    """The value of one query: a sum over ranks, for MRR over the patterns of clicks."""
    at = np.argsort(ranks)
    if metric == "dcg":
        return float(relevance[at] @ DISCOUNT[: len(at)])
    p = slope[: len(at)] * relevance[at] + intercept[: len(at)]
    if metric == "ctr":
        return float(p.sum())
    return sum(chance / (1 + int(np.argmax(c))) for chance, c in outcomes(p) if c.any())


def exactly(message):
    return f"^{re.escape(message)}"


# Query 0 has the three documents that matter, query 1 one document that is always clicked. So every log has a
# click, and the value of query 1 is 1 for each metric.
DOCUMENTS = queries_of([3, 1])
RELEVANCE = np.array([0.9, 0.2, 0.5, 1.0])
SCORES = np.array([1.0, 0.0, 2.0, 0.0])
SURE = PositionBasedModel(CURVE)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("metric", ["dcg", "ctr", "mrr"])
@pytest.mark.parametrize("name", MODELS)
def test_expectation_over_all_clicks_is_the_value(metric, method, name):
    if (metric, method) == ("mrr", "snips"):
        return
    model = MODELS[name]
    lists = [np.array([0, 1, 2]), np.array([1, 2, 0]), np.array([3])]
    blank = log_of(DOCUMENTS, lists)
    relevance = RELEVANCE if name == "position-based" else np.array([0.9, 0.2, 0.5, 0.9 / 0.8])
    p = click_probabilities(model, blank, relevance)
    at = model.propensities(log_of(DOCUMENTS, [np.arange(3)]))
    truth = value_by_definition(metric, [2, 3, 1], relevance[:3], at.slope, at.intercept)
    sure = value_by_definition(metric, [1], relevance[3:], at.slope, at.intercept)
    m = np.array([0.3, 0.4, 0.1, 0.7])
    found = sum(
        chance
        * counterfactual_value(
            replace(blank, clicked=clicks), SCORES, model, metric=metric, method=method, relevance=m
        ).value
        for chance, clicks in outcomes(p)
    )
    assert found == pytest.approx((2 * truth + sure) / 3, abs=1e-12)


POLICY = {(0, 1): 0.5, (1, 0): 0.2, (2, 1): 0.2, (0, 2): 0.1}  # the first two of three documents


def all_logs(with_propensity):
    """Every log of two sessions of POLICY and one of query 1, with its probability."""
    at = np.zeros((3, 2))
    for shown, chance in POLICY.items():
        at[shown, [0, 1]] += chance
    for (one, a), (two, b) in itertools.product(POLICY.items(), repeat=2):
        lists = [np.array(one), np.array(two), np.array([3])]
        blank = log_of(DOCUMENTS, lists)
        if with_propensity:
            chances = [at[one, [0, 1]], at[two, [0, 1]], [1.0]]
            blank = replace(blank, propensity=np.concatenate(chances))
        for chance, clicks in outcomes(click_probabilities(SURE, blank, RELEVANCE)):
            yield a * b * chance, replace(blank, clicked=clicks)


def mean_value(logs, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return sum(chance * counterfactual_value(log, *args, **options).value for chance, log in logs)


# Expected examination: document 0 is first with .6 and second with .2, document 1 is first with .2, ...
EXPOSURE = np.array([0.6 + 0.2 * 0.6, 0.2 + 0.7 * 0.6, 0.2 + 0.1 * 0.6, 1.0])


@pytest.mark.parametrize("relevance", [None, np.array([0.3, 0.4, 0.1, 0.7]), "clicks"])
@pytest.mark.parametrize("method", ["doubly robust", "ips"])
def test_expectation_over_rankings_and_clicks_with_known_exposure(method, relevance):
    def clicked_share(log):
        return np.bincount(log.rows, log.clicked, 4) / np.maximum(np.bincount(log.rows, minlength=4), 1)

    truth = (2 * value_by_definition("dcg", [2, 3, 1], RELEVANCE[:3], CURVE, 0 * CURVE) + 1) / 3
    given = clicked_share if isinstance(relevance, str) else relevance
    found = mean_value(
        all_logs(False), SCORES, SURE, metric="dcg", method=method, relevance=given, exposure=EXPOSURE
    )
    assert found == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("method", ["doubly robust", "ips"])
def test_expectation_over_rankings_and_clicks_without_a_model(method):
    scores = np.array([2.0, 1.0, 0.0, 0.0])  # document 0 first, document 1 second: both occur in POLICY
    truth = (2 * (RELEVANCE[0] + 0.6 * RELEVANCE[1]) + 1) / 3
    found = mean_value(all_logs(True), scores, metric="ctr@2", method=method)
    assert found == pytest.approx(truth, abs=1e-12)


def weighted_value(log, weight, scores, method, metric, m, curve):
    """The estimate from sessions with weights, with exposure estimated, in plain loops."""
    n, ranks = len(log.documents), np.empty(len(log.documents), int)
    codes, sessions = log.documents.groups.codes, log.sessions
    for q in range(codes.max() + 1):
        rows = np.flatnonzero(codes == q)
        ranks[rows[np.argsort(-scores[rows], kind="stable")]] = np.arange(1, len(rows) + 1)
    clicks, examined = np.zeros(n), np.zeros(n)
    for i, row in enumerate(log.rows):
        clicks[row] += weight[sessions[i]] * log.clicked[i]
        examined[row] += weight[sessions[i]] * curve[log.positions[i] - 1]
    r = np.where(examined > 0, clicks / np.where(examined > 0, examined, 1), m)
    traffic = np.array([weight[log.queries == q].sum() for q in range(codes.max() + 1)]) / weight.sum()
    if metric == "mrr":
        total = 0.0
        for q, share in enumerate(traffic):
            of_query = sorted((ranks[j], curve[ranks[j] - 1] * r[j]) for j in np.flatnonzero(codes == q))
            none = 1.0
            for rank, p in of_query:
                total += share * none * p / rank
                none *= 1 - p
        return total
    lam = 1 / np.log2(ranks + 1) if metric == "dcg" else curve[ranks - 1]
    if method == "snips":
        seen = traffic[codes] * lam * (examined > 0)
        return (traffic[codes] * lam).sum() * (seen @ r) / seen.sum()
    return float((traffic[codes] * lam) @ r)


@pytest.mark.parametrize("metric", ["dcg", "ctr", "mrr"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [2, 4])
def test_value_and_error_by_numerical_derivatives(method, metric, k):
    if (metric, method) == ("mrr", "snips"):
        return
    rng = np.random.default_rng(4)
    documents = queries_of([3, 4, 2])
    curve = np.array([1.0, 0.7, 0.5, 0.2])
    users = PositionBasedModel(curve)
    relevance = rng.uniform(0.2, 0.9, 9)
    policies = np.tile(rng.normal(size=9), (3, 1)) + rng.normal(size=(3, 9)) * [[0.0], [0.4], [0.4]]
    log = simulate_clicks(documents, policies, 60, users, relevance=relevance, k=k, seed=1)
    scores, m = rng.normal(size=9), rng.uniform(size=9)
    filled = m if method == "doubly robust" else np.zeros(9)

    def value(weight):
        return weighted_value(log, weight, scores, method, metric, filled, curve)

    ones, h = np.ones(60), 1e-4
    slopes = [(value(ones + h * e) - value(ones - h * e)) / (2 * h) for e in np.eye(60)]
    error = math.sqrt(60 / 59 * np.square(slopes).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = counterfactual_value(log, scores, users, metric=metric, method=method, relevance=m)
        by_query = counterfactual_value(
            log, scores, users, metric=metric, method=method, relevance=m, per="query"
        )
    assert found.value == pytest.approx(value(ones), abs=1e-12)
    assert found.standard_error == pytest.approx(error, rel=1e-6)
    half = student.ppf(0.975, 59) * error
    assert found.interval == pytest.approx((found.value - half, found.value + half), rel=1e-6)
    of_queries = np.bincount(log.queries, slopes)
    assert by_query.standard_error == pytest.approx(math.sqrt(3 / 2 * (of_queries**2).sum()), rel=1e-6)


class TestByHand:
    documents = queries_of([2])
    log = log_of(documents, [np.array([0, 1])] * 4, np.array([1, 0, 1, 1, 0, 0, 1, 0], dtype=bool))
    users = PositionBasedModel(np.array([1.0, 0.5]))

    def test_value(self):
        # Document 0 has 3 clicks in 4 examinations, document 1 has 1 click in 2.
        found = counterfactual_value(self.log, [0, 1], self.users, metric="dcg@2", method="ips")
        assert found.value == pytest.approx(0.5 + 0.75 / math.log2(3))
        assert counterfactual_value(self.log, [0, 1], self.users, metric="dcg@1").value == 0.5

    def test_clip(self):
        # The examination .5 of document 1 is clipped at .8: "ips" has 1 click in 4 * .8, "doubly robust"
        # adds .6 - .6 * .5 / .8 of the relevance .6, and "snips" divides 1 / 3.2 by .5 / .8.
        found = {
            method: counterfactual_value(
                self.log, [0, 1], self.users, metric="dcg@1", method=method, relevance=[0.6, 0.6], clip=0.8
            ).value
            for method in METHODS
        }
        assert found["ips"] == pytest.approx(1 / 3.2)
        assert found["snips"] == pytest.approx(0.5)
        assert found["doubly robust"] == pytest.approx(1 / 3.2 + 0.6 * (1 - 0.5 / 0.8))

    def test_effective_sample_size(self):
        # Examination 1 / 2 at a single rank makes 4 sessions worth 2; at ranks 1 and 2 with weights 1, D:
        # 4 (1 + D^2) / (1 / .5 + D^2).
        one = counterfactual_value(self.log, [0, 1], self.users, metric="dcg@1")
        two = counterfactual_value(self.log, [0, 1], self.users, metric="dcg@2")
        assert one.effective_sample_size == pytest.approx(2)
        D2 = 1 / math.log2(3) ** 2
        assert two.effective_sample_size == pytest.approx(4 * (1 + D2) / (2 + D2))

    def test_without_a_model(self):
        # Document 1 is first in 2 of 4 sessions, at the propensity .4, with 1 click; the weights sum to 5.
        lists = [np.array(x) for x in ([0, 1], [1, 0], [0, 1], [1, 0])]
        propensity = np.array([0.6, 0.6, 0.4, 0.4] * 2)
        log = log_of(self.documents, lists, np.array([1, 1, 1, 0, 0, 0, 0, 0], bool), propensity=propensity)
        ips = counterfactual_value(log, [0, 1], metric="ctr@1", method="ips")
        snips = counterfactual_value(log, [0, 1], metric="ctr@1", method="snips")
        assert ips.value == pytest.approx(1 / 0.4 / 4)
        assert snips.value == pytest.approx(0.5)
        x, z = np.array([0, 2.5, 0, 0]), np.array([0, 2.5, 0, 2.5])
        assert ips.standard_error == pytest.approx(x.std(ddof=1) / 2)
        assert snips.standard_error == pytest.approx((x - 0.5 * z).std(ddof=1) / 1.25 / 2)
        assert (ips.overlap, ips.uncovered.tolist()) == (1.0, [])

    def test_shown_as_text(self):
        found = counterfactual_value(self.log, [0, 1], self.users, metric="DCG@1", method="ips", clip=0.1)
        low, high = found.interval
        assert str(found) == (
            f"dcg@1 0.5000, 95 % interval {low:.4f} to {high:.4f} (ips, examination clipped at 0.1; 4 "
            "sessions, effectively 2; the log covers 100.0 % of the ranking)"
        )


class TestComparison:
    rng = np.random.default_rng(8)
    documents = queries_of([4] * 6)
    users = PositionBasedModel(1 / np.arange(1.0, 5))
    log = simulate_clicks(
        documents, rng.normal(size=(3, 24)), 500, users, relevance=rng.uniform(size=24), seed=2
    )
    a, b = rng.normal(size=(2, 24))

    @pytest.mark.parametrize("metric", ["dcg@3", "ctr@2", "mrr@4"])
    def test_antisymmetric_and_zero_with_itself(self, metric):
        one = compare_rankers(self.log, self.a, self.b, self.users, metric=metric)
        two = compare_rankers(self.log, self.b, self.a, self.users, metric=metric)
        assert one.difference == pytest.approx(one.first.value - one.second.value, abs=1e-12)
        assert one.difference == pytest.approx(-two.difference, abs=1e-12)
        assert one.interval == pytest.approx(tuple(-x for x in two.interval[::-1]), abs=1e-12)
        same = compare_rankers(self.log, self.a, self.a, self.users, metric=metric)
        assert (same.difference, same.interval, same.p_value) == (0, (0, 0), 1)

    def test_error_is_that_of_the_difference_of_weights(self):
        # DCG is linear, so that the difference is one estimate with the differences of discounts as weights.
        # Here only one document of each query counts, so its slope by a session's weight is known.
        found = compare_rankers(self.log, self.a, self.b, self.users, metric="dcg@1", method="ips")

        def value(weight, scores):
            total = 0.0
            for q in range(6):
                j = 4 * q + int(np.argmax(scores[4 * q : 4 * q + 4]))
                mine = self.log.rows == j
                w = weight[self.log.sessions[mine]]
                r = (w * self.log.clicked[mine]).sum() / (w / self.log.positions[mine]).sum()
                total += weight[self.log.queries == q].sum() / weight.sum() * r
            return total

        ones, h = np.ones(500), 1e-4
        slopes = [
            sum(
                sign * (value(ones + h * e, x) - value(ones - h * e, x)) / (2 * h)
                for sign, x in ((1, self.a), (-1, self.b))
            )
            for e in np.eye(500)
        ]
        error = math.sqrt(500 / 499 * np.square(slopes).sum())
        assert found.standard_error == pytest.approx(error, rel=1e-6)
        assert found.p_value == pytest.approx(2 * student.sf(abs(found.difference) / error, 499), rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(METHODS), st.sampled_from(["dcg@2", "ctr@2"]))
def test_order_of_sessions_and_level_of_scores_do_not_matter(seed, method, metric):
    rng = np.random.default_rng(seed)
    documents = queries_of([3, 4])
    users = PositionBasedModel(np.array([1, 0.5, 0.4, 0.2]))
    log = simulate_clicks(
        documents, rng.normal(size=(4, 7)), 40, users, relevance=rng.uniform(0.3, 1, 7), k=3, seed=rng
    )
    scores, m = rng.normal(size=7), rng.uniform(size=7)
    options = {"metric": metric, "method": method, "relevance": m}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        one = counterfactual_value(log, scores, users, **options)
        two = counterfactual_value(log.select(rng.permutation(40)), scores + 7, users, **options)
    assert one.value == pytest.approx(two.value, abs=1e-10)
    assert one.standard_error == pytest.approx(two.standard_error, abs=1e-10)


def test_intervals_cover_the_value():
    rng = np.random.default_rng(3)
    documents, relevance = queries_of([6] * 10), rng.uniform(size=60)
    users = PositionBasedModel(1 / np.arange(1.0, 7))
    policies, scores = rng.normal(size=(4, 60)), rng.normal(size=60)
    at = np.argsort(-scores.reshape(10, 6))[:, :3] + 6 * np.arange(10)[:, None]
    truth = (relevance[at] @ (1 / np.log2([2, 3, 4]))).mean()
    values, inside = [], 0
    for seed in range(100):
        log = simulate_clicks(documents, policies, 400, users, relevance=relevance, seed=seed)
        found = counterfactual_value(log, scores, users, metric="dcg@3")
        values.append(found.value)
        inside += found.interval[0] <= truth <= found.interval[1]
    assert abs(np.mean(values) - truth) < 3 * np.std(values) / 10
    assert 89 <= inside <= 99


class TestUncovered:
    documents = queries_of([3])
    lists = (np.array([0, 1]),) * 20
    log = log_of(documents, lists, np.arange(40) % 4 < 2)
    users = PositionBasedModel(np.array([1.0, 0.5, 0.4]))

    @pytest.mark.parametrize(
        ("method", "end"),
        [
            ("ips", "They count as 0."),
            ("snips", "The mean value of the other documents was taken for them."),
            ("doubly robust", "Their value is taken from `relevance`, and is 44 % of the estimate."),
        ],
    )
    def test_warning(self, method, end):
        # Document 2 is never shown. It is first, with the weight 1 of 1 + D; document 0 is second.
        D = 1 / math.log2(3)
        message = exactly(
            "ranker: the log never shows 1 of the 2 documents that count for dcg@2 where they would have "
            f"been examined (rows 2). They have 61 % of the weight of the ranking. {end} Log rankings that "
        )
        with pytest.warns(UserWarning, match=message):
            found = counterfactual_value(
                self.log, [1, 0, 2], self.users, metric="dcg@2", method=method, relevance=[0, 0, 0.25]
            )
        assert found.overlap == pytest.approx(D / (1 + D))
        assert found.uncovered.tolist() == [2]
        # Document 0 is clicked in half of the sessions.
        expected = {"ips": 0.5 * D, "snips": 0.5 * (1 + D), "doubly robust": 0.25 + 0.5 * D}[method]
        assert found.value == pytest.approx(expected)

    @pytest.mark.parametrize("method", ["ips", "snips"])
    def test_nothing_covered(self, method):
        message = exactly(
            "ranker: the log shows none of the documents that count for dcg@1 where they would have been "
            f"examined, so {method!r} cannot estimate its value. Log rankings that explore"
        )
        with pytest.raises(ValueError, match=message):
            counterfactual_value(self.log, [1, 0, 2], self.users, metric="dcg@1", method=method)

    def test_nothing_covered_leaves_the_relevance(self):
        message = (
            "and is 100 % of the estimate. The interval is NaN, because no clicks say how wrong that is."
        )
        with pytest.warns(UserWarning, match=message):
            found = counterfactual_value(
                self.log, [1, 0, 2], self.users, metric="dcg@1", relevance=[0, 0, 0.25]
            )
        assert (found.value, found.overlap, found.effective_sample_size) == (0.25, 0, 0)
        assert math.isnan(found.standard_error)
        assert np.isnan(found.interval).all()

    def test_nothing_covered_and_no_relevance(self):
        # The log shows each query's best document by the old scores; the first ranker has it last.
        old = np.array([2.0, 1.0, 0.0])
        log = log_of(self.documents, [np.array([0])] * 20, np.arange(20) % 2 == 0)
        message = exactly("first: the log shows none of the documents that count for dcg@1 where they would")
        with pytest.raises(ValueError, match=message):
            compare_rankers(log, -old, old, PositionBasedModel([1.0]), metric="dcg@1")
        partly = PositionBasedModel([1.0], np.array([0.5, 0.5, np.nan]))
        with pytest.raises(ValueError, match=message):
            compare_rankers(log, -old, old, partly, metric="dcg@1")

    def test_difference_to_a_value_without_clicks(self):
        with pytest.warns(UserWarning, match="first: the log never shows .* The interval is NaN"):
            found = compare_rankers(
                self.log, [1, 0, 2], [2, 1, 0], self.users, metric="dcg@1", relevance=[0, 0, 0.25]
            )
        assert found.difference == pytest.approx(0.25 - 0.5)
        assert np.isnan([found.standard_error, found.p_value, *found.interval]).all()
        assert found.second.standard_error > 0

    def test_relevance_of_the_model_for_what_was_never_examined(self):
        users = PositionBasedModel(self.users.examination, np.array([0.0, 0.0, 0.3]))
        with pytest.warns(UserWarning, match="never shows"):
            found = counterfactual_value(self.log, [1, 0, 2], users, metric="dcg@1")
        assert found.value == pytest.approx(0.3)
        unknown = PositionBasedModel(self.users.examination, np.array([0.0, 0.0, np.nan]))
        # Only documents 0 and 1 were shown: 20 clicks in 20 + 10 examinations. Of these, 10 and 20 are of 0.
        with pytest.warns(UserWarning, match="never shows"):
            found = counterfactual_value(self.log, [1, 0, 2], unknown, metric="dcg@2")
        assert found.value == pytest.approx(2 / 3 + 0.5 / math.log2(3))

    def test_shown_but_not_examined(self):
        # Users stop at a click, so that document 1 at position 2 is not examined.
        log = log_of(self.documents, [np.array([0, 1, 2])] * 2, np.array([1, 0, 0, 1, 0, 0], bool))
        users = CascadeModel(np.full(3, 0.5))
        with pytest.warns(UserWarning, match=r"examined \(rows 1\)"):
            assert counterfactual_value(log, [1, 2, 0], users, metric="dcg@2").uncovered.tolist() == [1]

    def test_queries_without_sessions_do_not_count(self):
        documents = queries_of([2, 2])
        log = log_of(documents, [np.array([0, 1])] * 8, np.arange(16) % 3 == 0)
        found = counterfactual_value(log, [1, 0, 1, 0], self.users, metric="dcg@1")
        assert (found.overlap, found.uncovered.size) == (1, 0)


class TestAwkward:
    documents = queries_of([3, 1])
    users = PositionBasedModel(np.array([1.0, 0.5, 0.25]))
    clicks = np.array([1, 0, 1, 0, 0, 1, 1, 0, 0, 1], dtype=bool)
    lists = (np.array([0, 1, 2]), np.array([1, 0, 2]), np.array([2, 1, 0]), np.array([3]))
    log = log_of(documents, lists, clicks)

    def test_one_session(self):
        log = self.log.select([0])
        with pytest.warns(UserWarning, match=exactly("the log has one session")):
            found = counterfactual_value(log, [1, 2, 3, 0], self.users)
        assert found.value == pytest.approx(1 / 0.25 + 1 / 2)  # rank 1: document 2, rank 3: document 0
        assert math.isnan(found.standard_error)
        assert all(math.isnan(x) for x in found.interval)

    def test_one_session_with_known_exposure_does_not_learn_from_itself(self):
        with pytest.warns(UserWarning, match="one session"):
            found = counterfactual_value(
                self.log.select([0]), [1, 2, 3, 0], self.users, metric="dcg@1", exposure=[1, 0.5, 0.5, 1]
            )
        assert found.value == pytest.approx(1 / 0.5)

    def test_sessions_of_one_query_per_query(self):
        log = self.log.select([0, 1, 2])
        found = counterfactual_value(log, [1, 2, 3, 0], self.users, per="query")
        assert math.isnan(found.standard_error)

    def test_no_clicks(self):
        log = replace(self.log, clicked=np.zeros(10, dtype=bool))
        with pytest.raises(ValueError, match=exactly("the log has no clicks, so nothing can be estimated.")):
            counterfactual_value(log, np.arange(4.0), self.users)

    def test_a_tiny_propensity_dominates(self):
        # 30 sessions show document 0, one shows document 1, and its click counts 10^6 times.
        documents = queries_of([2])
        lists = [np.array([0])] * 30 + [np.array([1])]
        log = log_of(
            documents, lists, np.arange(31) % 2 == 0, propensity=np.append(np.full(30, 1 - 1e-6), 1e-6)
        )
        with pytest.warns(UserWarning, match=exactly("ranker: session 30 alone makes 97 % of the variance")):
            found = counterfactual_value(log, [0, 1], metric="ctr@1", method="ips")
        assert found.value == pytest.approx(1e6 / 31)
        with pytest.warns(UserWarning, match="session 30 alone"):
            clipped = counterfactual_value(log, [0, 1], metric="ctr@1", method="ips", clip=0.1)
        assert clipped.value == pytest.approx(10 / 31)

    def test_neither_model_nor_propensity(self):
        with pytest.raises(ValueError, match=exactly("without a click model, the log needs `propensity`")):
            counterfactual_value(self.log, np.arange(4.0), metric="ctr@2")

    @pytest.mark.parametrize("metric", ["dcg@2", "mrr"])
    def test_relevance_needs_a_model(self, metric):
        log = replace(self.log, propensity=np.full(10, 0.5))
        with pytest.raises(ValueError, match=exactly(f"metric {metric!r} is about relevance")):
            counterfactual_value(log, np.arange(4.0), metric=metric)

    @pytest.mark.parametrize("metric", ["ndcg@10", "dcg@0", "dcg@", "", 10, None])
    def test_unknown_metric(self, metric):
        with pytest.raises(ValueError, match=exactly("metric must be 'dcg@k', 'ctr@k' or 'mrr@k'")):
            counterfactual_value(self.log, np.arange(4.0), self.users, metric=metric)

    @pytest.mark.parametrize(
        ("scores", "message"),
        [
            (np.arange(3.0), "ranker must give one score per document of the log, (4,); got (3,)."),
            ([1, np.nan, 0, 0], "ranker: scores must be finite; row 1 holds nan."),
            (np.zeros((4, 1)), "ranker: scores must be one number per document, of shape (N,); got (4, 1)."),
        ],
    )
    def test_scores(self, scores, message):
        with pytest.raises(ValueError, match=exactly(message)):
            counterfactual_value(self.log, scores, self.users)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"method": "direct"}, "method must be 'doubly robust' or 'ips' or 'snips'; got 'direct'."),
            ({"per": "user"}, "per must be 'session' or 'query'; got 'user'."),
            ({"level": 95}, "level must be below 1; got 95."),
            ({"clip": 0}, "clip must be a finite number, above 0; got 0."),
            (
                {"clip": 1e9},
                "clip must be at most 1, as it limits probabilities from below; got 1000000000.0.",
            ),
            ({"relevance": [0.5]}, "relevance must have one number per document of the log, (4,); got (1,)."),
            ({"relevance": [0, 0, 2, 0]}, "relevance must be from 0 to 1"),
            ({"relevance": [0, 0, np.nan, 0]}, "relevance must be from 0 to 1"),
            ({"exposure": [1, 1]}, "exposure must have one finite number of at least 0 per document"),
            ({"exposure": [1, 0, 1, 1]}, "exposure[1] is 0, but the log shows this document"),
            ({"metric": "mrr", "method": "snips"}, "metric 'mrr' takes method 'doubly robust' or 'ips'"),
            ({"metric": "mrr", "exposure": [1, 1, 1, 1]}, "metric 'mrr' takes method"),
        ],
    )
    def test_options(self, options, message):
        with pytest.raises(ValueError, match=exactly(message)):
            counterfactual_value(self.log, np.arange(4.0), self.users, **options)

    def test_log_is_not_a_log(self):
        labels = debias(self.log, self.users, clip=0)
        message = exactly("log must be a ClickLog; got DebiasedClicks. Pass its attribute `log`.")
        with pytest.raises(ValueError, match=message):
            counterfactual_value(labels, np.arange(4.0), self.users)
        with pytest.raises(ValueError, match=exactly("log must be a ClickLog; got Queries.") + "$"):
            compare_rankers(self.documents, np.arange(4.0), np.arange(4.0), self.users)

    @pytest.mark.parametrize(
        ("metric", "message"),
        [
            (
                "ctr@3",
                "metric 'ctr@3' needs the examination of 3 positions, and the model has 2. Use 'ctr@2' or",
            ),
            ("mrr", "metric 'mrr' needs the examination of 3 positions, and the model has 2. Use 'mrr@2' or"),
        ],
    )
    def test_metric_of_more_positions_than_the_model(self, metric, message):
        users = PositionBasedModel(np.array([1.0, 0.5]))
        with pytest.raises(ValueError, match=exactly(message)):
            counterfactual_value(self.log.first(2), np.arange(4.0), users, metric=metric)
        assert counterfactual_value(self.log.first(2), np.arange(4.0), users, metric="dcg@3").value > 0

    def test_model_is_not_a_model(self):
        with pytest.raises(ValueError, match=exactly("model must be a ClickModel")):
            counterfactual_value(self.log, np.arange(4.0), [1, 0.5, 0.25])

    def test_arguments_of_a_model_without_one(self):
        log = replace(self.log, propensity=np.full(10, 0.5))
        for name in ("relevance", "exposure"):
            with pytest.raises(ValueError, match=exactly(f"{name} must be None without a click model")):
                counterfactual_value(log, np.arange(4.0), metric="ctr@2", **{name: np.ones(4)})

    @pytest.mark.parametrize("metric", ["ctr@3", "mrr@3"])
    def test_examination_that_depends_on_clicks(self, metric):
        log = log_of(self.documents, self.lists[:1], np.array([0, 1, 0], bool))
        with pytest.raises(ValueError, match=exactly(f"metric {metric!r} needs a model in which")):
            counterfactual_value(log, np.arange(4.0), CascadeModel(np.full(4, 0.5)), metric=metric)

    def test_rankers_with_and_without_qid(self):
        class WithQid:
            def predict(self, X, *, qid):
                return X[:, 1] + (qid == 0) * X[:, 2]

        class Plain:
            def predict(self, X):
                return X[:, 1] + X[:, 2]

        values = [
            counterfactual_value(self.log, x, self.users).value for x in (WithQid(), Plain(), [0, 1, 1, 0])
        ]
        assert values[0] == values[1] == values[2]

    def test_documents_in_any_order(self):
        order = np.array([3, 1, 0, 2])
        documents = Queries(np.eye(4), np.zeros(4), qid=np.array([0, 0, 0, 1])[order])
        lists = [np.argsort(order)[rows] for rows in self.lists]
        log = log_of(documents, lists, self.clicks)
        scores = np.array([0.3, 0.1, 0.4, 0.0])
        for metric in ("dcg@2", "ctr@2", "mrr@2"):
            one = counterfactual_value(self.log, scores, self.users, metric=metric)
            two = counterfactual_value(log, scores[order], self.users, metric=metric)
            assert one.value == pytest.approx(two.value, abs=1e-12)
            assert one.standard_error == pytest.approx(two.standard_error, abs=1e-12)

    def test_a_million_impressions(self):
        documents = queries_of([20] * 50)
        users = PositionBasedModel(1 / np.arange(1.0, 11))
        relevance = np.random.default_rng(0).uniform(size=1000)
        policies = np.random.default_rng(1).normal(size=(10, 1000))
        log = simulate_clicks(documents, policies, 100_000, users, relevance=relevance, k=10, seed=2)
        scores = policies[3]
        found = counterfactual_value(log, scores, users, metric="dcg@10")
        at = np.argsort(-scores.reshape(50, 20))[:, :10] + 20 * np.arange(50)[:, None]
        truth = (relevance[at] @ (1 / np.log2(np.arange(2, 12)))).mean()
        assert len(log) == 10**6
        assert abs(found.value - truth) < 4 * found.standard_error < 0.1
