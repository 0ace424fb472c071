"""Counterfactual evaluation with the propensities of several rankers: enumeration, arithmetic, simulation."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from sinkprop import Queries
from sinkprop.clicks import ClickLog, PositionBasedModel, explore
from sinkprop.clicks.evaluation import counterfactual_value

N_LOGS = 120
METHODS = ["doubly robust", "ips", "snips"]


def queries_of(sizes):
    n = sum(sizes)
    return Queries(np.eye(n), np.zeros(n), qid=np.repeat(np.arange(len(sizes)), sizes))


def log_of(documents, lists, clicks, propensity, policy=None):
    """A log of sessions, each a list of rows with a list of propensities."""
    names = {} if policy is None else {"policy": np.array(policy), "policies": tuple(range(max(policy) + 1))}
    offsets = np.cumsum([0, *map(len, lists)])
    return ClickLog(
        documents,
        np.concatenate(lists).astype(int),
        np.asarray(clicks, bool),
        offsets,
        np.concatenate(propensity).astype(float),
        **names,
    )


class TestByHand:
    documents = queries_of([4])
    production = ([0, 1], [1, 1])

    def values(self, log, scores, **options):
        return [counterfactual_value(log, scores, metric="ctr@2", method=m, **options).value for m in METHODS]

    def test_production_and_drawn_rankings(self):
        # The new ranking is 0, 2. Three sessions of production show 0 at rank 1, with certainty. Of the two
        # drawn ones, the first shows 0 at rank 1 with propensity .4, the second 2 at rank 2 with .2. With 4
        # documents, g = 1 / 4. Document 0: c = 3, u = 2, so rho = 3.5 / 5 for production, and for the drawn
        # one 3.5 * 4 * .4 / 5. Document 2 at rank 2: c = 0, u = 2, and rho = .2 * 2 / 5.
        lists = [[0, 1], [0, 1], [0, 1], [0, 3], [1, 2]]
        clicks = [1, 0, 0, 0, 0, 1, 1, 0, 0, 1]
        propensity = [[1, 1]] * 3 + [[0.4, 0.3], [0.3, 0.2]]
        expected = (1 / 0.7 + 1 / (14 * 0.4 / 5) + 1 / 0.08) / 5
        for policy in (None, [0, 0, 0, 1, 1]):
            log = log_of(self.documents, lists, clicks, propensity, policy)
            assert self.values(log, [3, 0, 2, 1])[1] == pytest.approx(expected)

    def test_balance_heuristic(self):
        # If the drawn rankings are uniform, g is the propensity: rho is that of the mixture, (3 + 2 / 4) / 5.
        lists = [[0, 1], [0, 1], [0, 1], [0, 3], [1, 2]]
        log = log_of(self.documents, lists, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0], [[1, 1]] * 3 + [[0.25, 0.25]] * 2)
        found = counterfactual_value(log, [3, 0, 2, 1], metric="ctr@1", method="ips")
        assert found.value == pytest.approx(2 / 0.7 / 5)

    def test_deterministic_rankers_only(self):
        # Document 0 is at rank 1 in 4 of 6 sessions, with 3 clicks, and 3 at rank 2 in 2, with 1 click.
        lists = [[0, 1]] * 4 + [[1, 3]] * 2
        clicks = [1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0]
        log = log_of(self.documents, lists, clicks, [[1, 1]] * 6)
        assert self.values(log, [3, 0, 1, 2]) == pytest.approx([3 / 4 + 1 / 2] * 3)

    def test_effective_sample_size_is_at_most_the_number_of_sessions(self):
        # Document 0 is shown in 2 of 10 sessions and should be in 5: 10 * 10 / (2 / .25) = 12.5.
        lists = [[0]] * 2 + [[1]] * 8
        log = log_of(self.documents, lists, [1] * 10, [[0.5]] * 10)
        found = counterfactual_value(log, [3, 2, 1, 0], metric="ctr@1", method="ips")
        assert found.effective_sample_size == 10
        assert found.value == pytest.approx(2 / 0.5 / 10)


POLICY = {(0, 1): 0.5, (1, 0): 0.2, (2, 1): 0.2, (0, 2): 0.1}  # the first two of three documents
RELEVANCE = np.array([0.9, 0.2, 0.5, 1.0])  # of the fourth document too, the only one of query 1
CURVE = np.array([1.0, 0.6])


def all_mixed_logs(production, named):
    """Every log of a session of production, two of POLICY and one of query 1, with its probability."""
    documents = queries_of([3, 1])
    at = np.zeros((3, 2))
    for shown, chance in POLICY.items():
        at[shown, [0, 1]] += chance
    for (one, a), (two, b) in itertools.product(POLICY.items(), repeat=2):
        lists = [np.array(x) for x in (production, one, two, [3])]
        propensity = [[1.0, 1.0], at[one, [0, 1]], at[two, [0, 1]], [1.0]]
        blank = log_of(documents, lists, np.zeros(7), propensity, [0, 1, 1, 0] if named else None)
        p = RELEVANCE[blank.rows] * CURVE[blank.positions - 1]
        for clicks in itertools.product([False, True], repeat=6):
            chance = a * b * np.where(clicks, p[:6], 1 - p[:6]).prod()
            yield chance, replace(blank, clicked=np.array([*clicks, True]))


@pytest.mark.parametrize("production", [(0, 2), (2, 0), (0, 1)])
@pytest.mark.parametrize("method", ["doubly robust", "ips"])
def test_expectation_over_logs_of_two_rankers(method, production):
    # The new ranking is 0, 1, and production has 0 there or not. The session of query 1 has a click.
    scores = np.array([2.0, 1.0, 0.0, 0.0])
    truth = (3 * (RELEVANCE[0] + 0.6 * RELEVANCE[1]) + 1) / 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = sum(
            chance * counterfactual_value(log, scores, metric="ctr@2", method=method).value
            for chance, log in all_mixed_logs(production, named=method == "ips")
        )
    assert found == pytest.approx(truth, abs=1e-12)


class Mixed:
    """Sessions of several rankers on Q queries of four documents, and the value of a new ranker."""

    def __init__(self, n_queries, new="reversed"):
        n = 4 * n_queries
        rng = np.random.default_rng(0)
        self.documents = queries_of([4] * n_queries)
        self.relevance = rng.uniform(0.2, 0.8, n)
        self.users = PositionBasedModel([1, 0.6, 0.3, 0.2])
        self.old = np.tile([4.0, 3, 2, 1], n_queries)
        self.new = -self.old if new == "reversed" else self.old + rng.normal(size=n)
        best = np.argsort(-self.new.reshape(-1, 4))[:, :2] + 4 * np.arange(n_queries)[:, None]
        self.truth = float((self.relevance[best] @ self.users.examination[:2]).mean())

    def policy(self, sigma):
        return explore(self.documents, self.old, sigma=sigma, k=4, n_rankings=240, seed=0)

    def log(self, parts, seed, named):
        """A log of parts, each (policy, number of sessions); None is the deterministic old ranker."""
        rng = np.random.default_rng([seed, 5])
        rows, propensity, policy = [], [], []
        for i, (drawing, count) in enumerate(parts):
            if drawing is None:
                query = rng.integers(self.documents.n_queries, size=count)
                rows.append((4 * query[:, None] + np.arange(4)).ravel())
                propensity.append(np.ones(4 * count))
            else:
                shown = drawing.draw(count, seed=rng)
                rows.append(shown.rows)
                propensity.append(shown.propensity)
            policy.append(np.full(count, i))
        r, offsets = np.concatenate(rows), np.arange(0, 4 * len(np.concatenate(policy)) + 1, 4)
        clicked = self.users.draw(self.relevance[r], offsets, rng)
        names = {"policy": np.concatenate(policy), "policies": tuple(range(len(parts)))} if named else {}
        return ClickLog(self.documents, r, clicked, offsets, np.concatenate(propensity), **names)

    def measured(self, parts, method, named, n_logs):
        """Estimates, errors, and whether the intervals contain the truth, (n_logs, 3); and the warnings."""
        found, said = [], []
        for seed in range(n_logs):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                x = counterfactual_value(
                    self.log(parts, seed, named), self.new, metric="ctr@2", method=method
                )
            found.append((x.value, x.standard_error, x.interval[0] <= self.truth <= x.interval[1]))
            said.append([str(one.message) for one in caught])
            assert x.effective_sample_size <= x.n_sessions
        return np.array(found), said


def check(table, truth):
    """The bias is below 3 of its errors, the stated error right within a fifth, the coverage near 95 %."""
    value, error, inside = table.T
    spread = value.std(ddof=1)
    assert abs(value.mean() - truth) < 3 * spread / math.sqrt(len(value))
    assert error.mean() / spread == pytest.approx(1, abs=0.2)
    assert inside.mean() > 0.95 - 4 * math.sqrt(0.95 * 0.05 / len(value))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("new", ["reversed", "other"])
def test_nine_tenths_of_the_sessions_by_a_deterministic_ranker(method, named, new):
    mixed = Mixed(3, new)
    table, said = mixed.measured([(None, 2700), (mixed.policy(1.5), 300)], method, named, N_LOGS)
    check(table, mixed.truth)
    assert not any("does not fit" in text for texts in said for text in texts)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_nine_tenths_of_the_sessions_by_a_ranker_that_explores_little(method, named):
    # Without names, it is noticed that most sessions cannot show the new ranking.
    mixed = Mixed(3)
    table, said = mixed.measured([(mixed.policy(0.6), 2700), (mixed.policy(2.0), 300)], method, named, N_LOGS)
    check(table, mixed.truth)
    start = (
        "ranker: `propensity` does not fit the log. The mean over sessions of 1 / propensity, summed over "
    )
    assert [any(text.startswith(start) for text in texts) for texts in said] == [not named] * N_LOGS


@pytest.mark.parametrize("method", METHODS)
def test_many_rankers_with_few_sessions_per_query(method):
    # Ten rankers, 1.5 sessions of each per query. No one of them shows all documents at all ranks in the log.
    mixed = Mixed(40, "other")
    table, _ = mixed.measured([(mixed.policy(1.5), 60)] * 10, method, True, N_LOGS)
    check(table, mixed.truth)


def test_few_sessions_per_query_without_names():
    # Most documents have one or two sessions at their new ranks, whose spread about their own mean is small.
    mixed = Mixed(40)
    parts = [(mixed.policy(0.6), 3600), (mixed.policy(2.0), 400)]
    table, said = mixed.measured(parts, "doubly robust", False, N_LOGS)
    check(table, mixed.truth)
    assert all(any("does not fit" in text for text in texts) for texts in said)


@pytest.mark.parametrize("method", METHODS)
def test_propensities_of_the_mixture_do_not_need_names(method):
    mixed = Mixed(3)
    policy = mixed.policy(1.5)
    chances = 0.1 * policy.probabilities
    chances[np.arange(12), np.tile(np.arange(4), 3)] += 0.9
    log = mixed.log([(None, 9000), (policy, 1000)], 0, True)
    log = replace(log, propensity=chances[log.rows, log.positions - 1])
    unnamed = counterfactual_value(
        replace(log, policy=None, policies=()), mixed.new, metric="ctr@2", method=method
    )
    with pytest.warns(UserWarning, match=r"ranker: `propensity` does not fit .* \d{3,} % of its expectation"):
        named = counterfactual_value(log, mixed.new, metric="ctr@2", method=method)
    for found in (unnamed, named):
        assert abs(found.value - mixed.truth) < 3 * found.standard_error < 0.3


def test_documents_that_no_ranker_can_show():
    # Document 3 is never at rank 1, where the new ranking has it in half of the queries' sessions.
    documents = queries_of([4, 4])
    rng = np.random.default_rng(2)
    lists = [4 * q + rng.permutation(3)[:1] for q in np.arange(400) % 2]
    log = log_of(documents, lists, rng.random(400) < 0.5, [[1 / 3]] * 400)
    scores = [0, 0, 0, 1, 1, 0, 0, 0]
    message = re.escape("1 of the 2 documents that count for ctr@1 at that rank (rows 3). According to the ")
    with pytest.warns(UserWarning, match=rf"{message}propensities, documents with \d\d % of the weight"):
        found = counterfactual_value(log, scores, metric="ctr@1")
    assert found.overlap == pytest.approx(0.5, abs=0.06)
    assert found.uncovered.tolist() == [3]
    with pytest.warns(UserWarning, match="They count as 0"):
        ips = counterfactual_value(log, scores, metric="ctr@1", method="ips")
    assert ips.value == pytest.approx(0.25, abs=4 * ips.standard_error)


def test_too_few_sessions_to_refute_the_propensities():
    # Ten of 100 sessions explore, and five of them show a document at its new rank, with the weight 2. The
    # sum of weights, 10, is below 100 by more than 2 errors, 2 sqrt(2 * 100). It is not below 25, the number
    # of sessions of the queries of these documents, by more than 4 errors, 4 sqrt(2 * 25).
    documents = queries_of([2] * 20)
    queries = np.arange(100) % 20
    explores, first = np.arange(100) >= 90, np.arange(100) % 2
    rows = 2 * queries + np.where(explores, first, 1)
    log = log_of(documents, rows[:, None], np.ones(100), np.where(explores, 0.5, 1 - 1e-6)[:, None])
    with pytest.warns(UserWarning, match="documents with 90 % of the weight of the ranking cannot be there"):
        found = counterfactual_value(log, np.tile([1, 0], 20), metric="ctr@1", method="ips")
    assert found.overlap == pytest.approx(found.value) == pytest.approx(0.1)


def test_documents_that_are_missing_by_chance_are_covered():
    # The first rank shows each of ten documents with the same probability. 20 sessions leave some out.
    documents = queries_of([10] * 40)
    rng = np.random.default_rng(1)
    lists = (10 * (np.arange(800) % 40) + rng.integers(10, size=800))[:, None]
    log = log_of(documents, lists, rng.random(800) < 0.5, np.full((800, 1), 0.1))
    scores = np.tile(np.arange(10.0), 40)
    found = counterfactual_value(log, scores, metric="ctr@1")
    assert found.overlap == 1
    assert 1 < found.uncovered.size < 10
    assert abs(found.value - 0.5) < 3 * found.standard_error


def test_every_tenth_session_explores():
    # Folds of the sessions are regular as well, and those of the other nine have no click of a document at
    # its new rank.
    mixed = Mixed(3)
    log = mixed.log([(None, 9000), (mixed.policy(1.5), 1000)], 0, True)
    order = np.argsort(np.r_[np.arange(9000) + np.arange(9000) // 9, 10 * np.arange(1000) + 9])
    values = [counterfactual_value(x, mixed.new, metric="ctr@2") for x in (log, log.select(order))]
    assert abs(values[0].value - values[1].value) < 0.2 * values[0].standard_error
    assert values[0].standard_error == pytest.approx(values[1].standard_error, rel=0.1)
