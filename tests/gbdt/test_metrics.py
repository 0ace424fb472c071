"""The means of metrics and gains that the libraries' evaluation functions share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import NDCG, RBP, Precision, RankLinear, evaluate
from sinkprop.data import group_rows
from sinkprop.gbdt.objectives.metrics import RankingMetrics, gain_name, gain_values

GAINS = [
    NDCG(),
    NDCG(3, discount="log2", gain="linear"),
    Precision(2, threshold=2),
    RBP(0.5),
    RankLinear(gain=lambda r: -r, discount=np.reciprocal),  # the most relevant last
    RankLinear(table=lambda labels, ranks: labels * (ranks % 2)),
]


@st.composite
def rows(draw):
    """Labels, tied scores and query ids in any order, and a weight a query."""
    n = draw(st.integers(1, 30))
    whole = st.integers(0, 3)
    y = np.array(draw(st.lists(whole, min_size=n, max_size=n)), float)
    x = np.array(draw(st.lists(whole, min_size=n, max_size=n)), float)
    qid = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.integers(1, 9), min_size=5, max_size=5)), float)
    return y, x, qid, weights[: len(np.unique(qid))]


@given(rows())
def test_means_are_of_queries_as_they_first_appear(problem):
    y, x, qid, weights = problem
    metrics = RankingMetrics.of("ndcg@3,map,p@2", "letor", {"ties": "average"})
    result = evaluate(y, x, qid, "ndcg@3,map,p@2", "letor", ties="average")
    groups = group_rows(qid, len(y))
    assert dict(metrics.values(y, x, groups)) == dict(result)
    for name, value in metrics.values(y, x, groups, weights):
        assert_allclose(value, np.average(result.per_query[name], weights=weights), rtol=1e-12, atol=1e-15)


@given(rows(), st.sampled_from(GAINS))
def test_a_gain_is_the_sum_over_ranks(problem, gain):
    y, x, qid, _ = problem
    found = gain_values(gain, y, x, group_rows(qid, len(y)))
    for value, q in zip(found, dict.fromkeys(qid.tolist()), strict=True):
        r = y[qid == q][np.argsort(-x[qid == q], kind="stable")]
        classes, D = gain.class_discounts(r, len(r))
        best = np.sort(gain.gains(r))[::-1] @ gain.discounts(len(r)) if gain.normalized else 1.0
        expected = D[classes, np.arange(len(r))].sum() / best if best else 0.0
        assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@given(rows(), st.sampled_from(GAINS), st.randoms())
def test_averaged_ties_do_not_depend_on_the_order_of_rows(problem, gain, random):
    y, x, qid, _ = problem
    order = list(range(len(y)))
    random.shuffle(order)
    a = gain_values(gain, y, x, group_rows(qid, len(y)), ties="average")
    b = gain_values(gain, y[order], x[order], group_rows(qid[order], len(y)), ties="average")
    first = group_rows(qid, len(y)).queries.tolist()
    second = group_rows(qid[order], len(y)).queries.tolist()
    assert_allclose(a, b[[second.index(q) for q in first]], rtol=1e-12, atol=1e-12)


@given(rows(), st.sampled_from([g for g in GAINS if g.separable]))
def test_ties_at_best_and_at_worst_enclose_the_others(problem, gain):
    y, x, qid, _ = problem
    groups = group_rows(qid, len(y))
    worst, file, average, best = (
        gain_values(gain, y, x, groups, ties=ties) for ties in ("worst", "file", "average", "best")
    )
    for between in (file, average):
        assert (worst <= between + 1e-12).all()
        assert (between <= best + 1e-12).all()


def test_a_perfect_ranking_is_worth_1():
    y = np.array([2.0, 0, 1, 3, 0, 0])
    groups = group_rows([1, 1, 1, 2, 2, 2], 6)
    assert_array_equal(gain_values(NDCG(2), y, y, groups), [1, 1])
    assert_array_equal(gain_values(NDCG(2), np.zeros(6), y, groups), [0, 0])


def test_names_say_all_of_a_gain():
    assert gain_name(RBP(0.9)) == "rbp@0.9"
    assert gain_name(GAINS[-1]) == "gain"
    for convention, discount in (("standard", "log2"), ("letor", "letor")):
        metrics = RankingMetrics.of(["ndcg@10", NDCG(10)], convention, {})
        name = f"ndcg(discount={discount},gain=exponential)@10"
        assert metrics.text() == f"'ndcg@10,{name}', convention='{convention}'"
    chosen = RankingMetrics.of(NDCG(10), "standard", {"discount": "letor"})
    assert chosen.metrics == (NDCG(10, discount="letor"),)
    with pytest.raises(TypeError, match="metrics must be names"):
        RankingMetrics.of([3], "standard", {})
