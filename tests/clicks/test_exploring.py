"""Rankings that explore: propensities, independence, and what can be estimated from their clicks."""

import itertools

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkprop import Queries, SmoothedIndicator, evaluate, expected_gain, sample_rankings
from sinkprop.clicks import PositionBasedModel, read_clicks
from sinkprop.clicks.exploring import exploration_width, explore


def queries_of(sizes, seed=0, docid=False):
    """Queries with ids 10, 11, ..., the rows in random order."""
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(10, 10 + len(sizes)), sizes))
    n = len(qid)
    names = np.array([f"d{i}" for i in range(n)]) if docid else None
    return Queries(rng.normal(size=(n, 1)), rng.integers(0, 3, n), qid, docid=names)


def scores_of(queries, seed=0):
    return np.random.default_rng(seed).normal(size=len(queries))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 100))
def test_tables_and_probabilities_agree(sizes, k, seed):
    queries = queries_of(sizes, seed)
    policy = explore(queries, scores_of(queries, seed), sigma=1.0, k=k, n_rankings=8, seed=seed)
    k = min(k, max(sizes))
    counts = np.zeros((len(queries), k))
    for q, i in itertools.product(range(len(sizes)), range(8)):
        ranking = policy.rankings[q, i]
        own = np.flatnonzero(queries.qid == queries.groups.queries[q])
        length = min(k, len(own))
        assert (ranking[length:] == -1).all()
        assert len(set(ranking[:length])) == length
        assert set(ranking[:length]) <= set(own)
        counts[ranking[:length], np.arange(length)] += 1
    assert np.array_equal(policy.probabilities, counts / 8)


def test_probabilities_are_those_of_the_relaxation():
    queries = queries_of([30])
    scores = scores_of(queries)
    policy = explore(queries, scores, sigma=0.4, k=5, n_rankings=1024, seed=0)
    Pi = sample_rankings(scores, k=5, relaxation=SmoothedIndicator(0.4)).matrix
    assert np.abs(policy.probabilities - Pi).max() < 1 / 1024 + 1e-9


class TestDraws:
    def test_shape_of_a_log(self):
        queries = queries_of([3, 1, 5], docid=True)
        policy = explore(queries, scores_of(queries), sigma=1.0, k=4, seed=0)
        shown = policy.draw([11, 10, 12, 12], seed=1)
        assert np.diff(shown.offsets).tolist() == [1, 3, 4, 4]
        table = shown.columns()
        assert table["session"].tolist() == [0, *[1] * 3, *[2] * 4, *[3] * 4]
        assert table["query"].tolist() == [11, *[10] * 3, *[12] * 8]
        assert table["position"].tolist() == [1, 1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4]
        assert table["doc"].tolist() == queries.docid[shown.rows].tolist()
        at = policy.probabilities[shown.rows, table["position"] - 1]
        assert table["propensity"].tolist() == at.tolist()
        log = shown.log(np.arange(12) == 5, value=np.arange(12))
        assert log.positions.tolist() == table["position"].tolist()
        assert log.propensity.tolist() == at.tolist()
        assert log.value.tolist() == list(range(12))
        assert log.n_clicks == 1

    def test_documents_without_names_are_rows(self):
        queries = queries_of([3])
        shown = explore(queries, scores_of(queries), sigma=1.0).draw(2)
        assert shown.columns()["doc"].tolist() == shown.rows.tolist()

    @pytest.mark.parametrize("docid", [False, True])
    def test_a_stored_table_is_read_as_the_log(self, docid):
        queries = queries_of([4, 3], docid=docid)
        shown = explore(queries, scores_of(queries), sigma=1.0, k=3, seed=0).draw(6, seed=0)
        clicked = np.arange(len(shown.rows)) % 4 == 0
        stored = pandas.DataFrame(shown.columns() | {"clicked": clicked})
        log, read = shown.log(clicked), read_clicks(stored, documents=queries)
        for name in ("rows", "clicked", "offsets", "propensity"):
            assert np.array_equal(getattr(read, name), getattr(log, name))

    def test_sessions_are_independent(self):
        queries = queries_of([20])
        policy = explore(queries, scores_of(queries), sigma=1.0, k=10, seed=0)
        p = policy.probabilities
        size, ratios = 500, []
        for seed in range(20):
            shown = policy.draw(size, seed=seed)
            cells = shown.rows * 10 + np.tile(np.arange(10), size)
            counts = np.bincount(cells, minlength=200).reshape(20, 10)
            assert not counts[p == 0].any()
            kept = (p > 0) & (p < 1)
            ratios.append(((counts - size * p)[kept] ** 2 / (size * p * (1 - p))[kept]).mean())
        # 1 if every session is drawn by itself, and far below if they share draws without replacement
        assert np.mean(ratios) == pytest.approx(1, abs=0.15)

    def test_seeds(self):
        queries = queries_of([5, 5])
        one, same = (explore(queries, scores_of(queries), sigma=1.0, seed=3) for _ in range(2))
        assert np.array_equal(one.rankings, same.rankings)
        assert np.array_equal(one.draw(9, seed=4).rows, same.draw(9, seed=4).rows)
        assert not np.array_equal(one.draw(9, seed=4).rows, one.draw(9, seed=5).rows)

    def test_queries_are_chosen_evenly(self):
        queries = queries_of([1, 1, 1, 1])
        shown = explore(queries, scores_of(queries), sigma=1.0).draw(4000, seed=0)
        assert np.abs(np.bincount(shown.rows) - 1000).max() < 5 * np.sqrt(4000 * 0.25 * 0.75)


class TestEstimates:
    """Clicks of simulated users with a known position bias."""

    curve = 1 / np.arange(1, 5)

    def estimates(self, sigma):
        """(policy, inverse-propensity estimates of relevance, their standard errors, the relevance)."""
        size, n = 40_000, 8
        queries = queries_of([n])
        rng = np.random.default_rng(1)
        relevance = rng.uniform(0.1, 0.9, n)
        policy = explore(queries, np.arange(n) / 3, sigma=sigma, k=4, seed=0)
        shown = policy.draw(size, seed=2)
        clicked = PositionBasedModel(self.curve).draw(relevance[shown.rows], shown.offsets, rng)
        log = shown.log(clicked)
        seen = policy.examination(self.curve)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.bincount(log.rows, log.clicked, n) / size
            return policy, share / seen, np.sqrt(share * (1 - share) / size) / seen, relevance

    def test_of_an_exploring_policy_are_unbiased_for_every_document(self):
        policy, estimate, error, relevance = self.estimates(sigma=2.0)
        assert policy.unseen == 0
        assert policy.examination(self.curve).min() > 0.05
        assert (np.abs(estimate - relevance) < 4 * error).all()

    def test_of_a_fixed_ranking_lack_the_documents_below(self):
        policy, estimate, error, relevance = self.estimates(sigma=1e-4)
        assert policy.unseen == 0.5
        assert np.isnan(estimate[:4]).all()
        assert (np.abs(estimate - relevance)[4:] < 4 * error[4:]).all()


def test_examination_is_the_sum_over_positions():
    queries = queries_of([4, 2])
    policy = explore(queries, scores_of(queries), sigma=1.0, k=3, seed=0)
    found = policy.examination([1.0, 0.5, 0.2, 0.1])
    for j in range(6):
        expected = sum(policy.probabilities[j, i] * e for i, e in enumerate([1.0, 0.5, 0.2]))
        assert found[j] == pytest.approx(expected)


def test_one_document():
    policy = explore(queries_of([1]), [3.0], sigma=1.0)
    shown = policy.draw(2)
    assert shown.rows.tolist() == [0, 0]
    assert shown.propensity.tolist() == [1, 1]


def test_tied_scores_are_shown_equally_often():
    policy = explore(queries_of([4]), np.zeros(4), sigma=0.1, n_rankings=1024, seed=0)
    assert policy.probabilities == pytest.approx(np.full((4, 4), 0.25), abs=1 / 1024)


class TestWidth:
    def queries(self):
        queries = queries_of([20] * 10)
        return queries, queries.y + scores_of(queries)

    @pytest.mark.parametrize("gain", ["ndcg@10", "p@5"])
    @pytest.mark.parametrize("loss", [0.005, 0.05])
    def test_costs_the_loss(self, gain, loss):
        queries, scores = self.queries()
        width = exploration_width(queries, scores, loss=loss, gain=gain)

        def expected(sigma):
            relaxation = SmoothedIndicator(sigma)
            return expected_gain(
                scores, queries.y, queries.qid, gain=gain, relaxation=relaxation, n_iter=500
            ).value

        assert expected(1e-5) - expected(width) == pytest.approx(loss, abs=1e-4)

    def test_the_loss_is_that_of_rankings_shown(self):
        queries, scores = self.queries()
        width = exploration_width(queries, scores, loss=0.03, gain="p@5")
        policy = explore(queries, scores, sigma=width, k=5, seed=0)
        relevant = (queries.y > 0).astype(float)
        shown = (policy.probabilities.sum(axis=1) * relevant).sum() / 5 / queries.n_queries
        best = evaluate(queries.y, scores, queries.qid, "p@5", "standard")["p@5"]
        assert best - shown == pytest.approx(0.03, abs=0.002)

    def test_any_loss_allows_the_widest(self):
        queries, scores = self.queries()
        assert exploration_width(queries, scores, loss=1.0) == pytest.approx(1e3 * scores.std())


class TestErrors:
    @pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((4, 1)), [0, 1, np.nan, 2], [0, np.inf, 1, 2]])
    def test_scores(self, scores):
        for call in (
            lambda q: explore(q, scores, sigma=1.0),
            lambda q: exploration_width(q, scores, loss=0.1),
        ):
            with pytest.raises(ValueError, match="scores must have one finite number per document"):
                call(queries_of([4]))

    def test_options(self):
        queries = queries_of([4])
        for name, wrong in {"sigma": 0.0, "k": 0, "n_rankings": 0}.items():
            with pytest.raises(ValueError, match=f"{name} must be"):
                explore(queries, np.zeros(4), **{"sigma": 1.0, name: wrong})

    def test_queries_that_are_unknown(self):
        policy = explore(queries_of([2]), [0, 1], sigma=1.0)
        with pytest.raises(ValueError, match="got 7, which is not one of them"):
            policy.draw([10, 7])
        with pytest.raises(ValueError, match=r"sessions must be ids.*got none"):
            policy.draw([])
        with pytest.raises(ValueError, match="sessions must be at least 1"):
            policy.draw(0)

    @pytest.mark.parametrize("curve", [[1.0], [1.0, 2.0], [1.0, np.nan], 0.5])
    def test_curve(self, curve):
        policy = explore(queries_of([2]), [0, 1], sigma=1.0)
        with pytest.raises(ValueError, match="curve must have one probability"):
            policy.examination(curve)

    def test_width_without_labels_or_differences(self):
        queries = Queries(np.zeros((3, 1)), [0, 0, 0], [1, 1, 1])
        with pytest.raises(ValueError, match="labels above 0"):
            exploration_width(queries, [1, 2, 3], loss=0.1)
        with pytest.raises(ValueError, match="scores must not all be equal"):
            exploration_width(queries_of([4]), np.ones(4), loss=0.1)
        with pytest.raises(ValueError, match="loss must be"):
            exploration_width(queries_of([4]), [1, 2, 3, 4], loss=0)
