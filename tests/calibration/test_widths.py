"""The mixture of smoothed indicators against dense matrices of the reference, and its fit against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from sinkprop import SmoothedIndicator
from sinkprop.calibration import widths
from sinkprop.calibration.ideal import ideal_ranks
from sinkprop.calibration.widths import EPSILON, N_ITER, WARPS, RankMixture, fit_mixture, log_score
from sinkprop.data.queries import Groups, group_rows
from sinkprop.reference import pre_sinkhorn, sinkhorn

WEIGHTS = np.array([[0.5, 0.4, 0.1], [0.1, 0.6, 0.3]])


def mixture(warp=("exponential", 0.0), scale=1.5, weights=WEIGHTS, lengths=(3.0, 12.0)):
    return RankMixture(scale, warp, np.array([0.3, 1.1]), weights, np.array(lengths))


def warped(z, warp):
    """The functions g, by arithmetic."""
    kind, parameter = warp
    if kind == "softplus":
        return np.log(1 + np.exp(2 * (z - parameter))) / 2
    return z if parameter == 0 else (np.exp(parameter * z) - 1) / parameter


def dense(model, scores):
    """The matrix Pi of one query: a mixture of dense matrices of the reference."""
    n = len(scores)
    x = warped((scores - scores.mean()) / model.scale, model.warp)
    low, high = np.log(model.lengths)
    t = np.clip((np.log(n) - low) / (high - low), 0, 1)
    weights = (1 - t) * model.weights[0] + t * model.weights[1]
    total = np.full((n, n), weights[-1] / n)
    for weight, width in zip(weights, model.widths, strict=False):
        total += weight * sinkhorn(pre_sinkhorn(x, SmoothedIndicator(width)) + EPSILON, N_ITER)
    return total


def data(seed=0, sizes=(4, 1, 9, 14, 2), tied=False):
    rng = np.random.default_rng(seed)
    qid = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = rng.normal(size=len(qid)) * 2
    return (scores.round() if tied else scores), qid


class TestProject:
    @pytest.mark.parametrize("warp", WARPS)
    @pytest.mark.parametrize("tied", [False, True])
    def test_dense_mixture_of_several_queries(self, warp, tied):
        scores, qid = data(tied=tied)
        groups, model = group_rows(qid, len(qid)), mixture(warp)
        columns = np.random.default_rng(1).normal(size=(3, groups.longest))
        found = model.project(scores, groups, columns)
        for q in np.unique(qid):
            own = np.flatnonzero(qid == q)
            expected = dense(model, scores[own]) @ columns[:, : len(own)].T
            assert_allclose(found[own], expected, atol=2e-7)

    def test_lengths_that_are_equal_use_the_first_weights(self):
        scores = np.array([0.3, -1.0, 2.0])
        one = mixture(lengths=(5.0, 5.0)).project(scores, group_rows(None, 3), np.eye(3))
        both = mixture(weights=WEIGHTS[[0, 0]]).project(scores, group_rows(None, 3), np.eye(3))
        assert_array_equal(one, both)

    def test_one_document_is_first(self):
        assert_allclose(mixture().project(np.array([3.0]), group_rows(None, 1), np.eye(1)), [[1.0]])

    def test_rows_and_columns_sum_to_one(self):
        scores, _ = data(3, sizes=(60,))
        Pi = mixture().project(scores, group_rows(None, 60), np.eye(60))
        assert_allclose(Pi.sum(axis=1), 1, atol=1e-7)
        assert_allclose(Pi.sum(axis=0), 1, atol=1e-3)

    def test_shift_of_each_query_and_scale(self):
        scores, qid = data()
        groups, shift = group_rows(qid, len(qid)), np.array([5.0, -3.0, 100.0, 0.25, 7.0])
        columns = np.eye(2, groups.longest)
        once = mixture().project(scores, groups, columns)
        assert_allclose(mixture().project(scores + shift[qid], groups, columns), once, atol=1e-6)
        assert_array_equal(mixture(scale=12.0).project(8 * scores, groups, columns), once)

    @pytest.mark.parametrize(
        "scores", [[1.7e308, -1.7e308, 0.0], [1e-320, 0.0, -1e-320], [1e300, 1e299, 0.0]]
    )
    @pytest.mark.parametrize("scale", [1e-310, 1.0, 1e300])
    def test_any_finite_scores(self, scores, scale):
        found = mixture(scale=scale).project(np.array(scores), group_rows(None, 3), np.eye(3))
        assert_allclose(found.sum(axis=1), 1, atol=1e-6)

    def test_number_of_threads_changes_no_bit(self):
        scores, qid = data(2, sizes=(3000, 17, 2500, 1))
        groups = group_rows(qid, len(qid))
        columns = np.eye(5, groups.longest)
        assert_array_equal(
            mixture().project(scores, groups, columns, 1), mixture().project(scores, groups, columns, 3)
        )


class TestSpread:
    def test_mean_of_standard_deviations(self):
        scores, qid = data()
        expected = np.mean([scores[qid == q].std() for q in np.unique(qid)])
        assert widths.typical_spread(scores, group_rows(qid, len(qid))) == pytest.approx(expected)

    @pytest.mark.parametrize("power", [-900, -3, 5, 900])
    def test_powers_of_two_are_exact(self, power):
        scores, qid = data()
        groups = group_rows(qid, len(qid))
        once = widths.typical_spread(scores, groups)
        assert widths.typical_spread(np.ldexp(scores, power), groups) == np.ldexp(once, power)

    @pytest.mark.parametrize("scores", [[2.0, 2.0], [0.0, 0.0], [5e-324, 0.0]])
    def test_one_if_there_is_none(self, scores):
        assert widths.typical_spread(np.array(scores), group_rows(None, 2)) == 1


class TestLogScore:
    def test_arithmetic(self):
        # Ideal ranks: the first document is first, and the other two share the ranks 2 and 3.
        Pi = np.array([[0.5, 0.25, 0.25], [0.3, 0.4, 0.3], [0.2, 0.35, 0.45]])
        terms = [np.log(0.5), 0.5 * (np.log(0.4) + np.log(0.35)), 0.5 * (np.log(0.3) + np.log(0.45))]
        found = log_score(Pi, np.array([1.0, 0.0, 0.0]), group_rows(None, 3))
        assert_allclose(found, -np.mean(terms))

    def test_uniform_forecasts_score_the_logarithm_of_the_size(self):
        labels, groups = np.array([0.0, 1.0, 0.0, 2.0, 2.0, 0.0]), Groups.of_sizes(np.array([4, 1, 1]))
        Pi = np.repeat(1 / groups.sizes, groups.sizes)[:, None] * np.ones((1, 4))
        assert_allclose(log_score(Pi, labels, groups), np.log([4, 1, 1]), atol=1e-12)

    def test_a_probability_of_zero_that_happened_is_infinite(self):
        assert log_score(np.array([[0.0], [1.0]]), np.array([1.0, 0.0]), group_rows(None, 2))[0] == np.inf


class TestEM:
    @pytest.mark.parametrize("two", [False, True])
    @pytest.mark.parametrize("seed", range(4))
    def test_optimum_is_scipys(self, seed, two):
        rng = np.random.default_rng(seed)
        P, T = rng.gamma(0.5, size=(4, 200)) + 1e-6, rng.random(200)
        t = rng.random(200) if two else np.zeros(200)

        def loss(logits):
            a, b = (np.exp(v) / np.exp(v).sum() for v in logits.reshape(2, 4))
            return -(T @ np.log((1 - t) * (a @ P) + t * (b @ P))) / T.sum()

        options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8}
        least = minimize(loss, np.zeros(8), method="L-BFGS-B", options=options).fun
        weights, found = widths._em(P, T, t, 300)
        assert_allclose(weights.sum(axis=1), 1)
        assert found == pytest.approx(least, abs=2e-5)
        if not two:
            assert_array_equal(weights[0], weights[1])

    def test_more_steps_never_have_a_larger_loss(self):
        rng = np.random.default_rng(0)
        P, T, t = rng.gamma(0.3, size=(9, 300)) + 1e-9, rng.random(300), rng.random(300)
        losses = [widths._em(P, T, t, n)[1] for n in range(40)]
        assert (np.diff(losses) <= 0).all()
        assert losses[-1] < losses[0]


def noisy(n_queries, size, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n_queries * size)
    labels = np.digitize(scores + noise * rng.normal(size=len(scores)), [0.5, 2]).astype(float)
    return scores, labels, Groups.of_sizes(np.full(n_queries, size))


class TestFit:
    def test_better_than_any_single_width_and_than_no_ranking(self):
        scores, labels, groups = noisy(150, 12)
        model = fit_mixture(scores, labels, groups)
        found = log_score(model.project(scores, groups, np.eye(10, 12)), labels, groups).mean()
        for width in widths.WIDTHS:
            weights = np.tile([1 - 1e-3, 1e-3], (2, 1))
            single = RankMixture(model.scale, ("exponential", 0.0), np.array([width]), weights, np.ones(2))
            score = log_score(single.project(scores, groups, np.eye(10, 12)), labels, groups).mean()
            assert found < score
        assert found < np.log(12)

    def test_noisier_scores_give_flatter_probabilities(self):
        first = [
            fit_mixture(*noisy(80, 10, noise)).project(np.arange(10.0), group_rows(None, 10), np.eye(1, 10))[
                -1, 0
            ]
            for noise in (0.1, 1.0, 4.0)
        ]
        assert first[0] > first[1] + 0.05 > first[2] + 0.1

    def test_reversed_scores_are_worth_nothing(self):
        scores, labels, groups = noisy(80, 10)
        model = fit_mixture(-scores, labels, groups)
        Pi = model.project(-scores, groups, np.eye(10))
        assert log_score(Pi, labels, groups).mean() == pytest.approx(np.log(10), abs=0.01)

    def test_short_and_long_queries_have_weights_of_their_own(self):
        short, long = noisy(100, 5, noise=0.2), noisy(100, 40, noise=3.0, seed=1)
        groups = Groups.of_sizes(np.repeat([5, 40], 100))
        model = fit_mixture(np.concatenate([short[0], long[0]]), np.concatenate([short[1], long[1]]), groups)
        assert model.lengths.tolist() == [5, 40]
        mean_width = model.weights[:, :-1] @ model.widths / model.weights[:, :-1].sum(axis=1)
        assert mean_width[0] < mean_width[1]

    def test_equal_scores_give_equal_probabilities(self):
        _, labels, groups = noisy(30, 6)
        model = fit_mixture(np.zeros(180), labels, groups)
        assert_allclose(model.project(np.zeros(180), groups, np.eye(6)), 1 / 6, atol=1e-9)

    def test_one_long_query_does_not_displace_the_others(self):
        scores, labels, groups = noisy(100, 15)
        n = 200_000
        sizes = np.append(groups.sizes, n)
        rng = np.random.default_rng(1)
        scores, labels = np.append(scores, rng.normal(size=n)), np.append(labels, rng.integers(0, 2, n))
        chosen = widths._some_queries(scores, labels, Groups.of_sizes(sizes), 6000)
        assert chosen[2].sizes.tolist() == [15] * 100
        assert_array_equal(chosen[0], scores[:1500])

    @pytest.mark.parametrize(("n_queries", "size"), [(12, 2000), (40, 700), (3000, 10), (5, 3)])
    def test_some_queries_are_whole_and_enough(self, n_queries, size):
        scores, labels = np.arange(float(n_queries * size)), np.zeros(n_queries * size)
        groups = Groups.of_sizes(np.full(n_queries, size))
        few, _, chosen = widths._some_queries(scores, labels, groups, 6000)
        assert len(few) == chosen.sizes.sum()
        assert len(few) <= max(6000, 10 * size)
        assert len(chosen.queries) >= min(n_queries, 10)
        starts = few[chosen.offsets[:-1]]
        assert (starts % size == 0).all()
        assert_array_equal(few, np.concatenate([start + np.arange(size) for start in starts]))


class TestRecord:
    def test_round_trip_is_exact(self):
        model = fit_mixture(*noisy(60, 8))
        read = RankMixture.from_record(model.record())
        scores, groups = np.linspace(-2, 3, 9), group_rows(None, 9)
        assert_array_equal(read.project(scores, groups, np.eye(9)), model.project(scores, groups, np.eye(9)))

    @pytest.mark.parametrize(
        "change",
        [
            {"scale": 0.0}, {"scale": -1.0}, {"scale": float("nan")}, {"scale": float("inf")}, {"scale": "1"},
            {"scale": 10**400}, {"warp": ["cubic", 0.0]}, {"warp": ["exponential", 3.0]}, {"warp": []},
            {"warp": None}, {"widths": np.array([0.3, -1.1])}, {"widths": np.array([0.3])},
            {"widths": [0.3, 1.1]}, {"weights": 2 * WEIGHTS}, {"weights": WEIGHTS - 0.2},
            {"weights": np.full((2, 3), 1e308)}, {"weights": WEIGHTS[0]}, {"lengths": np.array([12.0, 3.0])},
            {"lengths": np.array([0.0, 3.0])}, {"lengths": np.array([np.nan, 3.0])},
        ],
    )  # fmt: skip
    def test_what_is_not_valid(self, change):
        with pytest.raises((LookupError, TypeError, ValueError)):
            RankMixture.from_record(mixture().record() | change)

    @pytest.mark.parametrize("key", ["scale", "warp", "widths", "weights", "lengths"])
    def test_what_is_missing(self, key):
        state = {name: value for name, value in mixture().record().items() if name != key}
        with pytest.raises(KeyError):
            RankMixture.from_record(state)


def test_ideal_ranks_of_perfect_scores_are_likely():
    labels, groups = np.tile([3.0, 2.0, 1.0, 0.0], 30), Groups.of_sizes(np.full(30, 4))
    model = fit_mixture(labels, labels, groups)
    Pi = model.project(labels[:4], group_rows(None, 4), np.eye(4))
    T = ideal_ranks(labels[:4], group_rows(None, 4))
    assert (Pi[np.arange(4), T.first - 1] > 0.95).all()
