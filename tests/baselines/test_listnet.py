"""ListNetRanker: what it minimizes, what chooses the penalty, and its awkward cases."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from ohsumed import five_fold_means, needs_ohsumed, published
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from sinkprop import evaluate, load_model
from sinkprop.baselines import ListNetRanker, RegressionRanker
from sinkprop.baselines.listnet_loss import listnet_loss
from sinkprop.estimator.selection import Selection


def ranking_data(n_queries=30, seed=0, n_features=5):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 30, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.normal(size=(len(qid), n_features))
    latent = 2 * X[:, 0] + X[:, 1] + rng.normal(size=len(qid)) + rng.normal(0, 2, n_queries)[qid]
    return X, np.digitize(latent, [2.0, 4.0]).astype(float), qid


@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_the_weights_minimize_the_penalized_loss(gain):
    X, y, qid = ranking_data()
    ranker = ListNetRanker(penalty=0.05, gain=gain, normalization="none", tol=1e-14, max_iter=1000)
    ranker.fit(X, y, qid=qid)
    target = y if gain == "linear" else 2**y - 1

    def loss(w):
        values = [-softmax(target[qid == q]) @ log_softmax(X[qid == q] @ w) for q in np.unique(qid)]
        return np.mean(values) + 0.025 * w @ w

    least = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    assert_allclose(ranker.coef_, least.x, atol=1e-5)
    assert ranker.fit_result_.chosen.value == pytest.approx(
        loss(ranker.coef_) - 0.025 * ranker.coef_ @ ranker.coef_
    )


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_gradient_of_the_loss_is_the_penaltys_at_the_minimum(top_k):
    X, y, qid = ranking_data(8)
    ranker = ListNetRanker(penalty=0.2, top_k=top_k, tol=1e-15, max_iter=1000).fit(X, y, qid=qid)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    g = listnet_loss(Z @ ranker.coef_, y, qid, top_k=top_k).gradient
    assert_allclose(Z.T @ g, -0.2 * ranker.coef_, atol=1e-6)


def test_the_penalties_go_from_the_largest_down_and_validation_queries_choose():
    X, y, qid = ranking_data(60)
    train, vali = qid < 30, qid >= 30
    ranker = ListNetRanker(penalty=[0.01, 100, 1]).fit(
        X[train], y[train], qid=qid[train], eval_set=[(X[vali], y[vali])], eval_qid=[qid[vali]]
    )
    r = ranker.fit_result_
    assert [trial.setting for trial in r.trials] == [{"penalty": 100}, {"penalty": 1}, {"penalty": 0.01}]
    assert r.validated_on == "30 validation queries"
    assert r.criterion == "ndcg@1-10"
    losses = [trial.value for trial in r.trials]
    assert losses == sorted(losses, reverse=True)  # less penalty, less loss
    assert r.chosen.criterion == max(trial.criterion for trial in r.trials)
    found = evaluate(y[vali], ranker.predict(X[vali]), qid[vali], metrics="ndcg@1-10")
    assert r.chosen.criterion == pytest.approx(np.mean(list(found.values())), rel=1e-12)
    alone = ListNetRanker(penalty=r.chosen.setting["penalty"], max_iter=1000).fit(
        X[train], y[train], qid=qid[train]
    )
    assert_allclose(alone.coef_, ranker.coef_, atol=1e-3)


def test_it_ranks_well_and_better_than_least_squares_where_queries_differ():
    rng = np.random.default_rng(5)

    def confounded(n_queries):
        qid = np.repeat(np.arange(n_queries), 20)
        X = rng.normal(size=(len(qid), 4))
        level = rng.normal(0, 2, n_queries)[qid]
        y = np.digitize(2 * X[:, 0] + X[:, 1] + rng.normal(size=len(qid)) + 2 * level, [2.0, 4.0])
        X[:, 0] -= level
        return X, y, qid

    X, y, qid = confounded(60)
    Xt, yt, qt = confounded(200)
    scores = [r.fit(X, y, qid=qid).score(Xt, yt, qid=qt) for r in (ListNetRanker(), RegressionRanker())]
    assert scores[0] > scores[1] + 0.2


@pytest.mark.parametrize("selection", ["validation", "cross-validation", "auto"])
def test_every_selection(selection):
    X, y, qid = ranking_data()
    ranker = ListNetRanker(penalty=[0.1, 1], selection=selection).fit(X, y, qid=qid)
    in_file_order = evaluate(y, np.zeros(len(y)), qid)["ndcg@10"]
    assert ranker.score(X, y, qid=qid) > in_file_order + 0.2


def test_query_weights_are_repeated_queries_and_row_weights_an_error():
    X, y, qid = ranking_data(10)
    ranker = ListNetRanker(penalty=0.1, normalization="none", tol=1e-14, max_iter=1000)
    weighted = ranker.fit(X, y, qid=qid, query_weight={q: 1 + (q < 3) for q in range(10)}).coef_
    twice = qid < 3
    repeated = ranker.fit(
        np.concatenate([X, X[twice]]),
        np.concatenate([y, y[twice]]),
        qid=np.concatenate([qid, qid[twice] + 10]),
    ).coef_
    assert_allclose(weighted, repeated, atol=1e-6)
    with pytest.raises(ValueError, match="ListNetRanker takes no sample_weight"):
        ranker.fit(X, y, qid=qid, sample_weight=np.arange(1.0, len(y) + 1))


def test_queries_without_weight_do_not_count_even_where_a_part_has_no_other():
    X, y, qid = ranking_data(4)
    ranker = ListNetRanker(penalty=[0.1, 1], selection=Selection("cross-validation", n_splits=2))
    ranker.fit(X, y, qid=qid, query_weight=[1, 0, 0, 0])
    assert np.isfinite(ranker.coef_).all()


@pytest.mark.parametrize("top_k", [1, 2])
def test_awkward_data(top_k):
    ranker = ListNetRanker(penalty=[0.1, 1], top_k=top_k)
    one_document = ranker.fit([[1.0], [2.0], [0.5]], [1, 0, 2], qid=[1, 2, 3])
    assert_array_equal(one_document.coef_, 0)
    X, y, qid = ranking_data(6)
    with pytest.warns(UserWarning, match="all labels of X are 0, so nothing can be learned"):
        nothing_relevant = ranker.fit(X, np.zeros(len(y)), qid=qid)
    assert np.abs(nothing_relevant.coef_).max() < 0.1  # the uniform target is met best by equal scores
    with_constant = ranker.fit(np.column_stack([X, np.full(len(y), 7.0)]), y, qid=qid)
    assert with_constant.coef_[-1] == 0
    far = ranker.fit(X * 1e150, y, qid=qid)
    assert_array_equal(far.rank(X * 1e150, qid=qid), ranker.fit(X, y, qid=qid).rank(X, qid=qid))
    large = ranker.fit(X, 400 * y, qid=qid).coef_  # only the most relevant count then
    assert np.argmax(large) == 0
    assert large[0] > 0
    assert np.isfinite(large).all()


def test_float32_gives_nearly_the_same_model():
    X, y, qid = ranking_data()
    double = ListNetRanker(penalty=0.1).fit(X, y, qid=qid)
    single = ListNetRanker(penalty=0.1).fit(X.astype(np.float32), y, qid=qid)
    assert_allclose(single.coef_, double.coef_, atol=1e-3)


def test_threads_and_the_order_of_rows_do_not_change_the_model():
    X, y, qid = ranking_data(400)
    first, second = (ListNetRanker(penalty=[1, 0.1], n_threads=t).fit(X, y, qid=qid) for t in (1, 3))
    assert first.coef_.tobytes() == second.coef_.tobytes()
    assert len(y) > 4000  # or the native threads were not used
    order = np.argsort(np.arange(len(y)) % 5, kind="stable")
    other = ListNetRanker(penalty=0.1).fit(X[order], y[order], qid=qid[order])
    assert_allclose(other.coef_, ListNetRanker(penalty=0.1).fit(X, y, qid=qid).coef_, atol=1e-5)


def test_saved_and_loaded(tmp_path):
    X, y, qid = ranking_data()
    ranker = ListNetRanker(top_k=2, gain="exponential", penalty=(1, 0.1)).fit(X, y, qid=qid)
    ranker.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, ListNetRanker)
    assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.fit_result_.trials == ranker.fit_result_.trials
    assert (loaded.top_k, loaded.gain, list(loaded.penalty)) == (2, "exponential", [1, 0.1])
    again = loaded.fit(X, y, qid=qid)
    assert_array_equal(again.coef_, ranker.coef_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"gain": "square"}, "gain must be 'linear' or 'exponential'"),
        ({"penalty": -1}, "penalty must be a finite number"),
        ({"penalty": []}, "penalty must be a finite number"),
        ({"penalty": "large"}, "penalty must be a finite number"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": -1e-9}, "tol must be a number, not below 0"),
        ({"normalization": "max"}, "normalization must be"),
        ({"metric": "ndgc"}, "metric 'ndgc' is not known"),
        ({"top_k": 9}, "top_k = 9 takes more than"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y, qid = ranking_data()
    with pytest.raises(ValueError, match=message):
        ListNetRanker(**parameters).fit(X, y, qid=qid)


@needs_ohsumed
def test_ohsumed_is_at_least_as_published():
    assert (five_fold_means(ListNetRanker) > published("ListNet") - 0.015).all()
