"""SoftRankRanker: its fit, its grid, what balancing changes and what not, weights, files, and its errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sinkprop import RankLinear, choose_permutation, sinkhorn, sinkhorn_limit
from sinkprop.baselines import RegressionRanker, SoftRankRanker
from sinkprop.experiment.methods import parse_methods
from sinkprop.linear.least_squares import least_squares
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.objective.rank_binomial import soft_gain, soft_rank_distribution
from sinkprop.registry import load_model

QUICK = {"sigma": (2.0, 0.5), "penalty": (1e-1, 1e-3), "max_iter": 5}


def quick(**options):
    return SoftRankRanker(**{**QUICK, **options})


def data(seed=0, n_queries=20, n_features=4):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(10, 25, n_queries))
    X = rng.normal(size=(len(qid), n_features))
    level = rng.normal(0, 2, n_queries)[qid]
    latent = 2 * X[:, 0] + X[:, 1] + rng.normal(size=len(qid)) + 2 * level
    X[:, 0] -= level  # low where a query's labels are high, but within a query it says which are higher
    return X, np.digitize(latent, [2.0, 4.0]).astype(float), qid


@pytest.fixture(scope="module")
def fitted():
    X, y, qid = data()
    return quick().fit(X, y, qid=qid)


def test_the_candidates_are_the_grid_from_the_most_regular_on(fitted):
    r = fitted.fit_result_
    settings = [(trial.setting["sigma"], trial.setting["penalty"]) for trial in r.trials]
    assert settings == [(2.0, math.inf), (2.0, 0.1), (2.0, 1e-3), (0.5, 0.1), (0.5, 1e-3)]
    assert r.criterion == "ndcg@1-10"
    assert r.validated_on == "4 queries held out"
    # at one sigma a smaller penalty gives way to the gain
    values = [trial.value for trial in r.trials]
    assert values[0] < values[1] < values[2]
    assert values[3] < values[4]


def test_the_fit_is_a_stationary_point_of_its_objective():
    X, y, qid = data(1)
    ranker = SoftRankRanker(sigma=0.7, penalty=1e-2, max_iter=500, tol=0).fit(X, y, qid=qid)
    (only,) = ranker.fit_result_.trials
    assert only.setting == {"sigma": 0.7, "penalty": 1e-2}
    unit = 0.7 / ranker.sigma_  # what the spread was divided by
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    w = ranker.coef_ * unit
    start = least_squares(Z, y)[0]
    centered = Z @ start
    centered = centered - np.array([centered[qid == q].mean() for q in qid])
    start = start / centered.std()
    soft = soft_gain(Z @ w, y, qid, gain="ndcg(discount=log2)", sigma=0.7)  # of the convention "standard"
    assert soft.value == pytest.approx(only.value, rel=1e-12)
    assert_allclose(Z.T @ soft.gradient, 1e-2 * (w - start), atol=1e-6)


def test_it_is_far_above_least_squares_where_queries_differ_more_than_documents():
    train, test = data(1, 60), data(2, 300)
    scores = [
        ranker.fit(*train[:2], qid=train[2]).score(*test[:2], qid=test[2])
        for ranker in (RegressionRanker(), SoftRankRanker())
    ]
    assert scores[1] > scores[0] + 0.2


def test_coefficients_give_scores_of_spread_one(fitted):
    X, y, qid = data()
    ranker = quick(sigma=0.5, penalty=1e-3).fit(X, y, qid=qid)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = ranker.predict(X)
    assert_allclose(scores, Z @ ranker.coef_ + ranker.intercept_, atol=1e-12)
    means = np.array([scores[qid == q].mean() for q in qid])
    assert np.sqrt(np.mean((scores - means) ** 2)) == pytest.approx(1, rel=1e-12)


def test_the_annealing_starts_each_sigma_where_the_last_one_ended():
    X, y, qid = data(3)
    two = quick(sigma=(2.0, 0.5), penalty=0.0, max_iter=1).fit(
        X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid]
    )
    one = quick(sigma=0.5, penalty=0.0, max_iter=1).fit(X, y, qid=qid)
    by_setting = {t.setting["sigma"]: t.value for t in two.fit_result_.trials if t.setting["penalty"] == 0}
    assert by_setting[0.5] > one.fit_result_.chosen.value


def test_the_distribution_of_the_ranks(fitted):
    X = data()[0][:9]
    P = fitted.rank_distribution(X, calibrated=False)
    assert_array_equal(P, soft_rank_distribution(fitted.predict(X), fitted.sigma_))
    assert_allclose(P.sum(axis=1), 1, rtol=1e-13)
    assert_array_equal(fitted.rank_distribution(X, ranks=[3, 1], calibrated=False), P[:, [2, 0]])
    assert_array_equal(fitted.rank_distribution(X, ranks=9, calibrated=False), P[:, [8]])
    wide = fitted.rank_distribution(X, sigma=5.0)
    assert_array_equal(wide, soft_rank_distribution(fitted.predict(X), 5.0))
    for ranks, words in (([0], "from 1 to 9"), ([10], "got 10"), ([1.5], "whole numbers"), ([], "whole")):
        with pytest.raises(ValueError, match=words):
            fitted.rank_distribution(X, ranks=ranks, calibrated=False)
    with pytest.raises(ValueError, match="sigma must be finite and above 0"):
        fitted.rank_distribution(X, sigma=0)


def test_balancing_makes_columns_distributions_too(fitted):
    X = data()[0][:12]
    plain = fitted.rank_distribution(X, sigma=1.0)
    assert np.abs(plain.sum(axis=0) - 1).max() > 0.1
    model = clone(fitted).fit(*data()[:2], qid=data()[2])
    model.balance = True
    balanced = model.rank_distribution(X, sigma=1.0)
    assert_allclose(balanced.sum(axis=0), 1, atol=1e-8)
    assert_allclose(balanced.sum(axis=1), 1, atol=1e-8)
    assert_allclose(balanced, sinkhorn_limit(plain).matrix, atol=1e-8)
    model.balance = 3
    assert_allclose(model.rank_distribution(X, sigma=1.0), sinkhorn(plain, 3), rtol=1e-12)


def test_balancing_a_thousand_ties_shares_the_ranks_alike(fitted):
    model = clone(fitted).fit(*data()[:2], qid=data()[2])
    model.balance = 2
    P = model.rank_distribution(
        np.zeros((1300, 4)), calibrated=False
    )  # in some columns no probability is above 0
    assert_allclose(P, 1 / 1300, rtol=1e-6)


@pytest.mark.parametrize("balance", [1, 5, True])
def test_balancing_does_not_change_the_ranking(balance):
    X, y, qid = data(4)
    X[5:9] = X[5]  # ties
    X[15:17] = X[20]
    order = np.random.default_rng(0).permutation(len(y))  # queries in no order
    plain = quick().fit(X, y, qid=qid)
    balanced = quick(balance=balance).fit(X, y, qid=qid)
    assert_array_equal(balanced.coef_, plain.coef_)
    assert_array_equal(balanced.rank(X, qid=qid), plain.rank(X, qid=qid))
    assert_array_equal(balanced.rank(X[order], qid=qid[order]), plain.rank(X[order], qid=qid[order]))
    assert balanced.score(X, y, qid=qid) == plain.score(X, y, qid=qid)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 10.0])
def test_the_likeliest_assignment_is_the_sorted_order(sigma):
    # p_j is greater than p_k in the order of likelihood ratios where s_j < s_k, and a scaling keeps that
    scores = np.random.default_rng(5).normal(size=80)
    P = soft_rank_distribution(scores, sigma)
    for matrix in (P, sinkhorn(P, 1), sinkhorn_limit(P).matrix):
        for method in ("hungarian", "shortcut", "sort"):
            assert_array_equal(choose_permutation(matrix, method, top=30), np.argsort(-scores))


def test_a_query_of_weight_2_is_two_queries_and_one_of_weight_0_none():
    X, y, qid = data(6)
    weight = np.random.default_rng(0).integers(0, 3, 20).astype(float)
    rows = np.concatenate([np.flatnonzero(weight[qid] >= k) for k in (1, 2)])
    copies = np.concatenate([qid[weight[qid] >= 1], 100 + qid[weight[qid] >= 2]])
    # not normalized over rows, which are not the same
    ranker = quick(sigma=1.0, penalty=1e-2, max_iter=300, tol=0, normalization="none")
    weighted = ranker.fit(X, y, qid=qid, query_weight=weight).coef_
    repeated = ranker.fit(X[rows], y[rows], qid=copies).coef_
    assert_allclose(weighted, repeated, rtol=1e-5)
    assert np.abs(ranker.fit(X, y, qid=qid).coef_ - repeated).max() > 1e-3


def test_weights_of_rows_multiply_their_gains():
    X, y, qid = data(6)
    linear = RankLinear(gain=lambda r: r, discount=lambda k: 1 / np.log2(k + 1), normalize=True)
    ranker = quick(gain=linear, sigma=1.0, penalty=1e-3, max_iter=30)
    plain = ranker.fit(X, y, qid=qid)
    values = {"none": plain.fit_result_.chosen.value, "scores": plain.predict(X)}
    alike = ranker.fit(X, y, qid=qid, sample_weight=np.full(len(y), 3.0))
    assert_allclose(alike.predict(X), values["scores"], rtol=1e-6, atol=1e-8)
    assert alike.fit_result_.chosen.value == pytest.approx(values["none"], rel=1e-9)
    weight = np.where(y == 2, 4.0, 1.0)
    heavy = ranker.fit(X, y, qid=qid, sample_weight=weight)
    unit = 1.0 / heavy.sigma_
    found = soft_gain(heavy.predict(X) * unit, y * weight, qid, gain=linear, sigma=1.0)
    assert heavy.fit_result_.chosen.value == pytest.approx(found.value, rel=1e-9)
    assert np.abs(heavy.predict(X) - values["scores"]).max() > 1e-3


def test_without_a_relevant_document_the_rows_stay_as_they_are():
    X, y, qid = data(8)
    with pytest.warns(UserWarning, match="all labels of X are 0, so nothing can be learned"):
        nothing = quick().fit(X, np.zeros(len(y)), qid=qid)
    assert_array_equal(nothing.coef_, 0)
    assert nothing.rank(X[:3], qid=[1, 1, 1]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("gain", ["ndcg@5", "p@3", "rbp@0.8"])
def test_other_gains_are_climbed_and_validated(gain):
    X, y, qid = data(9)
    ranker = quick(gain=gain, sigma=1.0, penalty=(1.0, 1e-4)).fit(X, y, qid=qid)
    start, _, free = ranker.fit_result_.trials
    assert free.value > start.value
    assert ranker.fit_result_.criterion == ("ndcg@1-10" if gain == "ndcg@5" else gain)


def test_models_are_saved_and_loaded(tmp_path, fitted):
    X = data()[0]
    path = tmp_path / "model.json"
    quickly = quick(balance=2, gain=RankLinear(gain=lambda r: r, discount=lambda k: 1 / k), sigma=(1, 2))
    for model in (fitted, quickly.fit(*data()[:2], qid=data()[2])):
        model.save(path)
        loaded = load_model(path)
        assert type(loaded) is SoftRankRanker
        assert_array_equal(loaded.predict(X), model.predict(X))
        P = model.rank_distribution(X[:7], calibrated=False)
        assert_array_equal(loaded.rank_distribution(X[:7], calibrated=False), P)
        assert loaded.fit_result_.trials == model.fit_result_.trials
        assert loaded.sigma == model.sigma
        assert loaded.balance == model.balance
    state = read_model(path).state
    for change in ({"weights": np.zeros(3)}, {"sigma": -1.0}):
        fitted_state = {**state["fitted"], "model": {**state["fitted"]["model"], **change}}
        write_model(path, "SoftRankRanker", {**state, "fitted": fitted_state})
        with pytest.raises(ModelFileError, match="the file is complete, but it is not a SoftRankRanker"):
            SoftRankRanker.load(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sigma": 0.0}, "sigma must be a finite number, above 0, or several; got 0.0"),
        ({"sigma": [1.0, -1.0]}, "sigma must be a finite number, above 0"),
        ({"sigma": []}, "sigma must be a finite number"),
        ({"sigma": 1e-320}, "sigma must be from 1e-300 to 1e300"),
        ({"penalty": -1.0}, "penalty must be a finite number, not below 0"),
        ({"penalty": "small"}, "penalty must be a finite number"),
        ({"balance": 0}, "balance must be at least 1"),
        ({"balance": 1.5}, "balance must be a whole number"),
        ({"top": 0}, "top must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": -1}, "tol must be a number, not below 0"),
        ({"gain": "ndgc"}, "ndgc"),
        ({"selection": "best"}, "method must be"),
    ],
)
def test_wrong_parameters_are_said_before_the_work(options, words):
    X, y, qid = data()
    with pytest.raises(ValueError, match=words):
        quick(**options).fit(X, y, qid=qid)


def test_the_methods_of_the_comparison():
    methods = parse_methods("softrank,softrank-balanced")
    plain, balanced = (method.make() for method in methods.values())
    assert type(plain) is type(balanced) is SoftRankRanker
    assert (plain.balance, balanced.balance) == (False, True)
