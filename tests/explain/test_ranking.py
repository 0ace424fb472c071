"""Contributions to expected ranks and metrics: the path integral, its axioms, and awkward queries."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.integrate import quad

from sinkprop import expected_gain, expected_ranks
from sinkprop.calibration import RankCalibration
from sinkprop.calibration.widths import WARPS, RankMixture, warp_slope, warped
from sinkprop.explain import explain_ranking
from sinkprop.explain.derivatives import Smoothing, rank_rates
from sinkprop.objective.relaxations import PartitionedMeasure, SmoothedIndicator


def contributions(n, n_features=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, n_features))


def mixture(warp=("exponential", 0.0)):
    weights = np.array([[0.3, 0.6, 0.1], [0.3, 0.6, 0.1]])
    own = RankMixture(1.3, warp, np.array([0.4, 1.5]), weights, np.array([5.0, 9.0]))
    return RankCalibration(own)


def sharp(**options):
    return SmoothedIndicator(0.7, accuracy="exact", **options)


def by_quadrature(f, C):
    """Shares of the features in f, with derivatives by central differences and an adaptive integral."""
    s, step = C.sum(axis=1), 1e-5

    def rate(t, d):
        return (f(t * s + step * C[:, d]) - f(t * s - step * C[:, d])) / (2 * step)

    return np.array([quad(rate, 0, 1, args=(d,), epsabs=1e-8, limit=200)[0] for d in range(C.shape[1])])


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
@pytest.mark.parametrize("n_iter", [1, 2.5, 5, "converged"])
def test_ranks_and_metric_are_the_path_integral(kernel, n_iter):
    C, y = contributions(6), [2, 0, 1, 0, 0, 1]
    setting = {"relaxation": sharp(kernel=kernel), "n_iter": n_iter}
    found = explain_ranking(C, labels=y, base=False, metric="ndcg@3", tol=1e-3, **setting)
    for i in (0, 3):
        own = by_quadrature(lambda s, i=i: expected_ranks(s, **setting)[i], C)
        assert found.ranks[i] == pytest.approx(own, abs=1e-3)
    own = by_quadrature(lambda s: expected_gain(s, y, gain="ndcg(discount=log2)@3", **setting).value, C)
    assert found.metric[0] == pytest.approx(own, abs=2e-5)
    assert found.metric_name == "ndcg@3"


@pytest.mark.parametrize("warp", WARPS)
def test_calibrated_ranks_are_the_path_integral(warp):
    C, calibration = contributions(7, 2, seed=3), mixture(warp)
    found = explain_ranking(C, base=False, calibration=calibration, tol=1e-3)
    assert found.expected_ranks == pytest.approx(calibration.expected_rank(C.sum(axis=1)), abs=1e-9)
    own = by_quadrature(lambda s: calibration.expected_rank(s)[2], C)
    assert found.ranks[2] == pytest.approx(own, abs=1e-3)
    assert found.metric is None


@pytest.mark.parametrize("warp", WARPS)
def test_the_slope_of_a_warp_is_its_derivative(warp):
    z = np.linspace(-4, 4, 41)
    by_differences = (warped(z + 1e-6, warp) - warped(z - 1e-6, warp)) / 2e-6
    assert warp_slope(z, warp) == pytest.approx(by_differences, abs=1e-8)
    assert np.isfinite(warp_slope(np.array([-1e15, 1e15]), warp)).all()


@pytest.mark.parametrize("width", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("half_steps", [1, 2, 7, 10, 60])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_rates_of_ranks_are_their_derivatives(width, half_steps, kernel):
    x = np.sort(contributions(12, 1)[:, 0])[::-1].copy()
    rates, step = contributions(12, 4, seed=1), 1e-6
    relaxation = SmoothedIndicator(width, kernel, accuracy="exact")

    def ranks(s):
        return expected_ranks(s, relaxation=relaxation, n_iter=half_steps / 2, epsilon=1e-6)

    own = rank_rates(x, rates, rates, Smoothing(kernel, width, half_steps, 1e-6))
    by_differences = np.stack(
        [(ranks(x + step * r) - ranks(x - step * r)) / (2 * step) for r in rates.T], axis=1
    )
    assert own == pytest.approx(by_differences, abs=2e-6 * max(1.0, np.abs(own).max()))


def test_many_iterations_are_explained_by_the_limit_only_if_that_is_close():
    C = contributions(60, 4, seed=2)
    calibration = RankCalibration(
        RankMixture(
            1.0, ("exponential", 0.0), np.array([0.05]), np.array([[0.99, 0.01]] * 2), np.full(2, 60.0)
        )
    )
    found = explain_ranking(C, base=False, calibration=calibration, tol=1e-3)
    change = calibration.expected_rank(C.sum(axis=1)) - 30.5
    assert found.ranks.sum(axis=1) == pytest.approx(change, abs=1.1e-3)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("metric", ["ndcg@10", "map", "err", "p@3", "rbp@0.8"])
def test_contributions_are_complete(calibrated, metric):
    rng = np.random.default_rng(5)
    qid = rng.integers(0, 6, 90)
    C, y = contributions(90, 5), rng.integers(0, 3, 90)
    setting = {"calibration": mixture()} if calibrated else {"relaxation": sharp()}
    found = explain_ranking(C, qid, y, base=False, metric=metric, **setting)
    sizes = np.bincount(qid)[qid]
    assert found.ranks.sum(axis=1) == pytest.approx(found.expected_ranks - (sizes + 1) / 2, abs=0.05)
    assert found.metric.sum(axis=1) == pytest.approx(found.expected_metric - found.random_metric, abs=1e-4)
    assert found.queries.tolist() == list(dict.fromkeys(qid.tolist()))
    if calibrated:  # after many iterations, the expected ranks of a query have a fixed sum
        totals = [found.ranks[qid == q].sum(axis=0) for q in found.queries]
        assert np.abs(totals).max() < 0.05


def test_the_random_metric_is_the_mean_over_all_orders():
    C, y = contributions(4, 2), np.array([0, 2, 0, 1])
    found = explain_ranking(C, labels=y, base=False, metric="ndcg@2", relaxation=sharp())
    discounts, gains = 1 / np.log2([2, 3]), 2.0**y - 1
    ideal = np.sort(gains)[::-1][:2] @ discounts
    mean = np.mean([gains[list(order[:2])] @ discounts for order in permutations(range(4))]) / ideal
    assert found.random_metric[0] == pytest.approx(mean, abs=1e-9)


def test_two_symmetric_features_have_equal_shares_and_one_without_effect_has_none():
    a = contributions(8, 1)
    found = explain_ranking(np.hstack([a, a, 0 * a]), labels=np.arange(8) % 2, base=False)
    assert found.ranks[:, 0] == pytest.approx(found.ranks[:, 1], abs=1e-12)
    assert found.metric[0, 0] == pytest.approx(found.metric[0, 1], abs=1e-12)
    assert not found.ranks[:, 2].any()
    assert found.metric[0, 2] == 0


def test_shares_are_those_of_shapley_for_two_documents():
    """With one difference of scores, f is a function of the sum over features, and near 0 it is linear."""
    C = 1e-3 * contributions(2, 3)
    found = explain_ranking(C, base=False, relaxation=sharp(), n_iter=5)

    def rank(features):
        return expected_ranks(C[:, list(features)].sum(axis=1), relaxation=sharp())[0]

    shapley = np.zeros(3)
    for order in permutations(range(3)):
        for at, feature in enumerate(order):
            shapley[feature] += (rank(order[: at + 1]) - rank(order[:at])) / 6
    # the rank is a quadratic function of a small difference, as the Gaussian kernel is flat at ties; for one,
    # the shares of Shapley and of Aumann and Shapley are the same
    assert found.ranks[0] == pytest.approx(shapley, rel=1e-4, abs=1e-12)


def test_a_constant_within_a_query_changes_nothing():
    qid, y = np.repeat([3, 1], 6), np.tile([0, 1, 2, 0, 0, 1], 2)
    C = contributions(12)
    shift = np.where(qid == 3, 7.0, -2.0)
    plain = explain_ranking(C, qid, y, base=False, relaxation=sharp())
    moved = explain_ranking(
        np.column_stack([C[:, 0] + shift, C[:, 1:], 5 * shift]), qid, y, base=False, relaxation=sharp()
    )
    assert moved.ranks[:, :3] == pytest.approx(plain.ranks, abs=1e-9)
    assert moved.ranks[:, 3] == pytest.approx(0, abs=1e-12)
    assert moved.metric[:, 3] == pytest.approx(0, abs=1e-12)
    based = explain_ranking(np.column_stack([C, shift]), qid, y, relaxation=sharp())
    assert based.ranks == pytest.approx(plain.ranks, abs=1e-9)


@pytest.mark.parametrize("metric", ["ndcg@10", "map"])
@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_the_rows_does_not_matter(ties, metric):
    rng = np.random.default_rng(7)
    C, y, qid = contributions(30, 4), rng.integers(0, 3, 30), rng.integers(0, 3, 30)
    if ties:  # equal sums of different contributions
        C = rng.integers(-2, 3, size=C.shape).astype(float)
    order = rng.permutation(30)
    setting = {"base": False, "calibration": mixture(), "metric": metric}
    plain = explain_ranking(C, qid, y, **setting)
    mixed = explain_ranking(C[order], qid[order], y[order], **setting)
    assert mixed.ranks == pytest.approx(plain.ranks[order], abs=1e-9)
    by_query = [mixed.queries.tolist().index(q) for q in plain.queries.tolist()]
    assert mixed.metric[by_query] == pytest.approx(plain.metric, abs=1e-9)


def test_tied_documents_are_the_mean_over_the_orders_of_their_places():
    """Two ways to break the ties by a little; their mean is what ties get."""
    C = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -0.5], [-1.0, 0.0]])
    y, little = [1, 0, 0, 2], 1e-6
    tied = explain_ranking(C, labels=y, base=False, relaxation=sharp(), tol=1e-3)
    ways = []
    for sign in (1, -1):
        broken = C.copy()
        broken[0, 0] += sign * little
        ways.append(explain_ranking(broken, labels=y, base=False, relaxation=sharp(), tol=1e-3))
    assert tied.expected_ranks[0] == pytest.approx(tied.expected_ranks[1], abs=1e-12)
    assert tied.ranks == pytest.approx((ways[0].ranks + ways[1].ranks) / 2, abs=1e-4)
    assert tied.metric == pytest.approx((ways[0].metric + ways[1].metric) / 2, abs=1e-5)
    assert np.abs(ways[0].metric - ways[1].metric).max() > 1e-3  # it does make a difference


def test_duplicates_are_explained_alike():
    C = np.repeat(contributions(5), 2, axis=0)
    found = explain_ranking(C, base=False, calibration=mixture())
    assert found.ranks[::2] == pytest.approx(found.ranks[1::2], abs=1e-12)


def test_a_feature_that_puts_a_document_first_moves_it_up():
    C = np.zeros((5, 2))
    C[:, 0], C[3, 1] = [0.5, 0.2, 0, -0.2, -0.5], 3.0
    found = explain_ranking(C, labels=[0, 0, 0, 1, 0], base=False, feature_names=["a", "b"])
    ((name, ranks), *_) = found.of_document(3)
    assert name == "b"
    assert -2 <= ranks < -1
    ((name, gain), *_) = found.of_query(0)
    assert name == "b"
    assert gain > 0
    ((name, ahead), *_) = found.of_pair(3, 0, top=1)
    assert (name, ahead > 0) == ("b", True)
    assert found.importances().argmax() == 1
    pair = dict(found.of_pair(3, 0))
    assert sum(pair.values()) == pytest.approx(found.expected_ranks[0] - found.expected_ranks[3], abs=0.1)


@pytest.mark.parametrize(
    ("C", "y"),
    [
        ([[2.0, -1.0]], [1]),  # one document
        ([[1.0, 2.0]] * 3, [0, 1, 0]),  # all tied, all alike
        ([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]], [0, 1, 0]),  # all tied, features cancel
    ],
)
@pytest.mark.parametrize("setting", [{}, {"calibration": mixture()}, {"relaxation": "laplace"}])
def test_queries_without_an_order_have_nothing_to_explain(C, y, setting):
    found = explain_ranking(C, labels=y, base=False, **setting)
    assert not found.ranks.any()
    assert not found.metric.any()
    assert found.expected_ranks == pytest.approx((len(C) + 1) / 2)
    assert found.rank_error.max() <= 1e-9


def test_a_query_without_relevant_documents_has_no_metric_to_explain():
    found = explain_ranking(contributions(10), labels=np.zeros(10), base=False)
    assert not found.metric.any()
    assert found.ranks.any()


@pytest.mark.parametrize("scale", [1e-250, 1e-9, 1e9, 1e250])
def test_units_of_the_scores_do_not_matter(scale):
    C = contributions(9)
    plain = explain_ranking(C, base=False)
    other = explain_ranking(C * scale, base=False)
    assert other.ranks == pytest.approx(plain.ranks, abs=1e-6)


def test_scores_far_apart_are_the_ranks_themselves():
    C = 100.0 * np.array([[3.0], [1.0], [2.0]])
    found = explain_ranking(C, base=False, relaxation=SmoothedIndicator(1.0))
    assert found.ranks[:, 0] == pytest.approx([-1, 1, 0], abs=0.06)


def test_documents_at_the_top_are_explained_as_among_all():
    C, y = contributions(320, 3), np.arange(320) % 3
    setting = {"base": False, "relaxation": SmoothedIndicator(0.5), "tol": 0.01}
    some = explain_ranking(C, labels=y, top=2, **setting)
    rows = np.flatnonzero(~np.isnan(some.ranks[:, 0]))
    assert sorted(rows) == sorted(np.argsort(-C.sum(axis=1))[:2])
    rates = explain_ranking(C[:300], labels=y[:300], **setting)
    few = explain_ranking(C[:300], labels=y[:300], top=2, **setting)
    known = ~np.isnan(few.ranks[:, 0])
    assert few.ranks[known] == pytest.approx(rates.ranks[known], abs=1e-9)
    change = some.expected_ranks[rows] - 160.5
    assert some.ranks[rows].sum(axis=1) == pytest.approx(change, abs=0.01)
    with pytest.raises(ValueError, match="was not explained"):
        some.of_document(int(np.argmin(C.sum(axis=1))))


def test_the_metric_of_a_hundred_thousand_documents():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(100_000, 2)).round(2)  # with ties
    y = (rng.random(100_000) < 0.01).astype(float)
    found = explain_ranking(C, labels=y, base=False, top=0, relaxation=SmoothedIndicator(0.5))
    assert np.isnan(found.ranks).all()
    assert found.metric_error[0] <= 1e-4
    assert found.metric.sum() == pytest.approx(found.expected_metric[0] - found.random_metric[0], abs=1e-4)
    with pytest.raises(ValueError, match="top=0"):
        found.importances()


def test_without_labels_the_metric_is_that_of_the_expected_gains():
    rng = np.random.default_rng(2)
    qid, C = np.repeat(np.arange(60), 10), rng.normal(size=(600, 2))
    y = np.digitize(C.sum(axis=1) + rng.normal(size=600), [0.5, 2])
    calibration = RankCalibration.fit(C.sum(axis=1), y, qid)
    found = explain_ranking(C, qid, base=False, calibration=calibration, top=0)
    p1, p2 = (calibration.relevance_probability(C.sum(axis=1), qid, threshold=t) for t in (1, 2))
    own = (p1 + 2 * p2)[:10]  # gains 1 and 3
    discounts = 1 / np.log2(np.arange(2, 12))
    Pi = calibration.rank_distribution(C[:10].sum(axis=1))
    value = own @ Pi @ discounts / (np.sort(own)[::-1] @ discounts)
    assert found.expected_metric[0] == pytest.approx(value, abs=1e-6)
    assert explain_ranking(C, qid, base=False, calibration=calibration, top=0, metric="map").metric is None


def test_an_explanation_of_shap_is_taken():
    class Explanation:
        values, base_values, feature_names = contributions(4), np.full(4, 2.0), ["a", "b", "c"]

    found = explain_ranking(Explanation())
    assert found.feature_names == ("a", "b", "c")
    assert found.ranks == pytest.approx(explain_ranking(contributions(4), base=False).ranks)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            np.zeros(3),
            {},
            r"contributions must be numbers of shape \(N, D \+ 1\).*got float64 of shape \(3,\)",
        ),
        ([["a", "b"]], {}, "contributions must be numbers"),
        (np.zeros((0, 3)), {}, "at least one row"),
        (np.zeros((3, 1)), {}, "at least one row and one feature; got 3 x 0"),
        ([[1.0, np.nan, 0.0]], {}, "row 0 is not"),
        ([[1.0, 2.0], [1.0, 3.0]], {}, "last column must be the base value.*varies by 1 in query 0"),
        (np.zeros((2, 3)), {"feature_names": ["a"]}, "feature_names has 1 names for 2 features"),
        (np.zeros((2, 3)), {"labels": [1]}, "one value per row of contributions: 2 rows, but 1 labels"),
        (np.zeros((2, 3)), {"top": -1}, "top"),
        (np.zeros((2, 3)), {"tol": 1e-9}, "tol must be at least 0.0001"),
        (np.zeros((2, 3)), {"relaxation": PartitionedMeasure(sigma=1.0)}, "partitioned measure"),
        (np.zeros((2, 3)), {"relaxation": "gaussian", "calibration": mixture()}, "not both"),
        (np.zeros((1001, 2)), {}, "1,001 documents.*give top="),
    ],
)
def test_wrong_arguments_are_named(given, options, message):
    with pytest.raises(ValueError, match=message):
        explain_ranking(given, **options)


def test_wrong_questions_are_answered():
    found = explain_ranking(contributions(4), [1, 1, 2, 2], base=False)
    with pytest.raises(ValueError, match="different queries"):
        found.of_pair(0, 3)
    with pytest.raises(IndexError, match="from 0 to 3; got 4"):
        found.of_document(4)
    with pytest.raises(ValueError, match="no metric to explain"):
        found.of_query(1)
    labeled = explain_ranking(contributions(4), [1, 1, 2, 2], [0, 1, 0, 1], base=False)
    with pytest.raises(ValueError, match="no query 7"):
        labeled.of_query(7)
    assert repr(labeled) == "RankingExplanation(2 queries, 4 documents, 3 features)"


def test_an_integral_that_does_not_converge_is_said():
    C = np.cumsum(np.exp(np.linspace(0, 60, 12)))[:, None] * [[1.0, -0.5]]
    with pytest.warns(UserWarning, match="1 of 1 queries, first 0, do not sum to what they should"):
        found = explain_ranking(C, base=False, relaxation=SmoothedIndicator(1e-9), tol=1e-4)
    assert found.rank_error[0] > 1e-4
