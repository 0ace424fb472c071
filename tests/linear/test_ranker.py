"""SinkPropRanker and RegressionRanker as their users meet them."""

import dataclasses
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import sinkprop
from sinkprop import (
    Annealing,
    PartitionedMeasure,
    Selection,
    SinkPropRanker,
    choose_permutation,
    doubly_stochastic,
    evaluate,
)
from sinkprop.baselines import RegressionRanker
from sinkprop.linear.annealed import least_squares_of
from sinkprop.linear.ascent import Objective
from sinkprop.model_files import ModelFileError, read_model, write_model

QUICK = {"penalty": [1e-4, 1e-2], "annealing": Annealing(4, 1), "max_iter": 8}
BOTH = [RegressionRanker, SinkPropRanker]


def quick(**options):
    return SinkPropRanker(**{**QUICK, **options})


def ranking_data(n_queries=30, seed=0, n_features=5):
    """Labels by a linear score and noise whose level differs by query, so that least squares is not best."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 30, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.normal(size=(len(qid), n_features))
    noise = rng.standard_t(3, len(qid)) * np.exp(rng.normal(0, 0.7, n_queries))[qid]
    latent = 2 * X[:, 0] + X[:, 1] + noise + rng.normal(0, 2, n_queries)[qid]
    return X, np.digitize(latent, [2.0, 4.0]).astype(float), qid


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def fitted(data):
    X, y, qid = data
    return quick().fit(X, y, qid=qid)


# What scikit-learn's checks ask and a ranker must not give.
NEEDS_QID = {
    "check_fit_score_takes_y": "score without qid is an error: it would take all rows for one query",
    "check_pipeline_consistency": "calls score without qid",
}
EXPECTED = {
    RegressionRanker: NEEDS_QID,
    SinkPropRanker: NEEDS_QID
    | {"check_sample_weight_equivalence_on_dense_data": "a document of weight 0 still takes a rank"},
}


@pytest.mark.filterwarnings("ignore:fit. no qid was given:UserWarning")
@pytest.mark.parametrize("ranker", BOTH)
def test_scikit_learns_checks(ranker):
    made = RegressionRanker() if ranker is RegressionRanker else SinkPropRanker(penalty=1e-3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        results = check_estimator(made, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed.keys() == EXPECTED[ranker].keys(), failed
    assert sum(r["status"] == "passed" for r in results) >= 40


def confounded_data(n_queries, seed):
    """A feature that is low where a query's labels are high, but says within a query which are higher."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(5, 30, n_queries))
    X = rng.normal(size=(len(qid), 5))
    level = rng.normal(0, 2, n_queries)[qid]
    latent = 2 * X[:, 0] + X[:, 1] + rng.normal(size=len(qid)) + 2 * level
    X[:, 0] -= level
    return X, np.digitize(latent, [2.0, 4.0]).astype(float), qid


def test_sinkprop_is_far_above_least_squares_where_queries_differ_more_than_documents():
    train, test = confounded_data(60, 1), confounded_data(300, 2)
    scores = {}
    for ranker in (RegressionRanker(), SinkPropRanker()):
        scores[type(ranker)] = ranker.fit(*train[:2], qid=train[2]).score(*test[:2], qid=test[2])
    assert scores[SinkPropRanker] > scores[RegressionRanker] + 0.2


def test_the_record_of_the_fit(fitted):
    r = fitted.fit_result_
    assert r.status == "finished"
    assert r.message
    assert r.validated_on == "10-fold cross-validation over 30 queries"
    assert r.criterion == "ndcg@1-10"
    assert r.stages[0].penalty == np.inf
    assert {s.penalty for s in r.stages[1:]} == {1e-4, 1e-2}
    assert [s.sigma for s in r.stages if s.penalty == 1e-4][:1] == [4.0]
    best = max(r.stages, key=lambda s: s.criterion)
    assert best.standard_error == 0
    (chosen,) = (s for s in r.stages if s.chosen)
    assert chosen is best
    # the model is an average of stages by their distance to the best, in standard errors
    z = [(best.criterion - s.criterion) / s.standard_error if s is not best else 0 for s in r.stages]
    expected = np.exp(-np.square(z))
    assert_allclose([s.share for s in r.stages], expected / expected.sum(), atol=3e-3)
    assert r.evaluations == sum(s.evaluations for s in r.stages) > 100
    # the start and the first stage of each penalty have one sigma: there the value can only have risen
    start, *others = (s for s in r.stages if s.sigma == 4)
    assert all(s.expected_gain > start.expected_gain for s in others)


def test_coefficients_give_the_scores(fitted, data):
    X = data[0]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert_allclose(fitted.predict(X), Z @ fitted.coef_ + fitted.intercept_, atol=1e-12)


def test_outputs_are_the_scores_or_two_numbers_per_row(fitted, data):
    X, y, qid = data
    assert_array_equal(fitted.outputs(X), fitted.predict(X))
    by_query = quick(normalization="query").fit(X, y, qid=qid)
    assert_array_equal(by_query.outputs(X, qid=qid), by_query.predict(X, qid=qid))
    two = quick(relaxation=PartitionedMeasure("beta")).fit(X, y, qid=qid)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert_allclose(two.outputs(X), Z @ two.coef_.T + two.intercept_, atol=1e-12)
    regression = RegressionRanker().fit(X, y, qid=qid)
    assert_array_equal(regression.outputs(X), regression.predict(X))


@pytest.mark.parametrize(
    "options",
    [{}, {"normalization": "none"}, {"normalization": "query"}, {"relaxation": PartitionedMeasure("beta")}],
)
def test_the_start_of_a_fit_ranks_as_least_squares(options, data, tmp_path):
    X, y, qid = data
    # with an eval_set all of the queries train; without one, some of them are held out
    model = quick(**options).fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid])
    weights = model.coef_.copy()
    normalization = options.get("normalization", "standard")
    regression = RegressionRanker(normalization=normalization).fit(X, y, qid=qid)
    start = least_squares_of(model)
    assert_array_equal(start.rank(X, qid=qid), regression.rank(X, qid=qid))
    assert start.score(X, y, qid=qid) == regression.score(X, y, qid=qid)
    assert_array_equal(model.coef_, weights)
    model.save(tmp_path / "m.model")
    with pytest.raises(ValueError, match="loaded from a file"):
        least_squares_of(SinkPropRanker.load(tmp_path / "m.model"))


def test_a_single_sharp_penalty_is_the_regression():
    X, y, qid = ranking_data()
    regression = RegressionRanker().fit(X, y, qid=qid)
    held = quick(penalty=1e9, start="least-squares", selection=Selection(rule="best")).fit(X, y, qid=qid)
    assert_array_equal(held.rank(X, qid=qid), regression.rank(X, qid=qid))


@pytest.mark.parametrize("ranker", [RegressionRanker, quick])
def test_rows_in_any_order_and_ids_of_any_kind_make_the_same_model(ranker, data):
    X, y, qid = data
    model = ranker().fit(X, y, qid=qid)
    # queries by first appearance must stay in order for the folds to be the same
    order = np.argsort(
        np.random.default_rng(0).uniform(size=len(y)) * 1e-3 + (np.arange(len(y)) % 4), kind="stable"
    )
    first = np.array([np.flatnonzero(qid == q)[0] for q in np.unique(qid)])
    order = np.concatenate([first, order[~np.isin(order, first)]])
    names = np.array([f"q{q}" for q in qid])
    shuffled = ranker().fit(X[order], y[order], qid=names[order].tolist())
    assert_allclose(shuffled.predict(X), model.predict(X), rtol=1e-6, atol=1e-8)
    assert_array_equal(model.rank(X[order], qid=names[order]), model.rank(X, qid=qid)[order])


def test_group_is_an_alias_of_qid(data):
    X, y, qid = data
    sizes = np.bincount(qid)
    a, b = quick().fit(X, y, qid=qid), quick().fit(X, y, group=sizes)
    assert_array_equal(a.coef_, b.coef_)
    assert a.score(X, y, qid=qid) == b.score(X, y, group=sizes)
    assert_array_equal(a.rank(X, qid=qid), b.rank(X, group=sizes))
    for wrong, message in (
        (sizes[:-1], "must sum to the number of rows"),
        (sizes + 0.5, "whole numbers"),
        ([], "at least 1"),
        ([0, len(y)], "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            quick().fit(X, y, group=wrong)
    with pytest.raises(ValueError, match="not both"):
        a.rank(X, qid=qid, group=sizes)


def test_the_model_does_not_depend_on_the_number_of_threads(data):
    X, y, qid = data
    X, y, qid = np.tile(X, (20, 1)), np.tile(y, 20), np.concatenate([qid + 100 * i for i in range(20)])
    models = [quick(n_threads=n, selection="validation").fit(X, y, qid=qid) for n in (1, 2, 3)]
    for model in models[1:]:
        assert_array_equal(model.coef_, models[0].coef_)


def test_the_seed_decides_the_splits(data):
    X, y, qid = data
    a, b, c = (quick(random_state=seed).fit(X, y, qid=qid) for seed in (0, 0, 1))
    assert_array_equal(a.coef_, b.coef_)
    assert a.fit_result_.stages[1].criterion != c.fit_result_.stages[1].criterion
    quick(random_state=None).fit(X, y, qid=qid)
    quick(random_state=np.random.RandomState(0)).fit(X, y, qid=qid)


def test_score_is_the_metric_of_the_ranking(fitted, data):
    X, y, qid = data
    expected = evaluate(y, fitted.predict(X), qid, metrics=["ndcg@10"])["ndcg@10"]
    assert fitted.score(X, y, qid=qid) == pytest.approx(expected, abs=1e-15)
    weight = np.arange(30.0)
    per_query = evaluate(y, fitted.predict(X), qid, metrics=["ndcg@10"]).per_query["ndcg@10"]
    assert fitted.score(X, y, qid=qid, query_weight=weight) == pytest.approx(
        np.average(per_query, weights=weight)
    )
    assert clone(fitted).set_params(metric="map", convention="standard").fit(X, y, qid=qid).score(
        X, y, qid=qid
    ) == pytest.approx(evaluate(y, fitted.predict(X), qid, metrics=["map"], convention="standard")["map"])


@pytest.mark.parametrize("method", ["rank", "score", "expected_rank"])
def test_no_queries_is_an_error_never_one_big_query(fitted, data, method):
    X, y, _ = data
    with pytest.raises(ValueError, match=f"{method} needs qid="):
        getattr(fitted, method)(*((X, y) if method == "score" else (X,)))


def test_a_search_without_routing_says_how_queries_are_sent(data):
    from sklearn.model_selection import GridSearchCV, GroupKFold

    X, y, qid = data
    search = GridSearchCV(quick(), {"n_iter": [5]}, cv=GroupKFold(2), error_score="raise")
    with pytest.raises(
        ValueError, match=r"score needs .*sklearn\.set_config\(enable_metadata_routing=True\)"
    ):
        search.fit(X, y, qid=qid, groups=qid)


def test_fit_without_queries_warns(data):
    X, y, _ = data
    with pytest.warns(UserWarning, match="all .* rows count as one query"):
        quick().fit(X, y)


def test_what_newcomers_leave_in_a_frame(data):
    pd = pytest.importorskip("pandas", reason="frames are pandas'")
    X, y, qid = data
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])]).assign(constant=0.0)
    for extra, what in ((("grade", y), "the labels"), (("query", qid), "the query ids")):
        with pytest.warns(UserWarning, match=rf"the column '{extra[0]}' of X holds {what}") as caught:
            quick().fit(frame.assign(**dict([extra])), y, qid=qid)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="all labels of X are 0, so nothing can be learned") as caught:
        quick().fit(frame, np.zeros(len(y)), qid=qid)
    assert len(caught) == 1  # a constant feature is no label
    quick().fit(frame.assign(query=qid).to_numpy(), y, qid=qid)  # nor has an array names to go by
    names = np.array([f"q{q}" for q in qid])
    with pytest.raises(
        ValueError, match=r"X must hold numbers, but its column 'query' does not: .*'q"
    ) as error:
        quick().fit(frame.assign(query=names), y, qid=names)
    assert "X.drop(columns=['query'])" in str(error.value)
    fitted = quick().fit(frame, y, qid=names)
    with pytest.raises(ValueError, match="unseen at fit time"):  # scikit-learn names all that is too much
        fitted.predict(frame.assign(query=names, title="a"))
    with pytest.raises(ValueError, match=r"^eval_set X must hold numbers, but its column 'f1'"):
        quick().fit(frame, y, qid=qid, eval_set=[(frame.assign(f1="a"), y)], eval_qid=[qid])
    frame.iloc[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 3, column 1 \('f1'\) holds nan\. Fill in .*BoostedRanker"):
        quick(missing="error").fit(frame, y, qid=qid)
    for kind in (str, object):
        with pytest.raises(ValueError, match=r"^y must hold numbers; .*'bad'.* 0 for not relevant"):
            quick().fit(X, np.where(y > 0, "good", "bad").astype(kind), qid=qid)
    queries = sinkprop.Queries(X, y, qid)
    with pytest.raises(ValueError, match=r"Queries or a list of \(X, y\) pairs; item 1 is 'int'"):
        quick().fit(X, y, qid=qid, eval_set=[queries, 3])


def test_rank_distribution_of_several_queries_is_refused(fitted, data):
    X, _, qid = data
    rows = qid == 3
    assert_array_equal(fitted.rank_distribution(X[rows], qid=qid[rows]), fitted.rank_distribution(X[rows]))
    with pytest.raises(
        ValueError, match=r"takes one query, but qid has \d+\. Give the rows of one query, for example X"
    ):
        fitted.rank_distribution(X, qid=qid)
    with pytest.raises(ValueError, match="qid must have one id per row"):
        fitted.rank_distribution(X[rows], qid=qid)


def test_rank_distribution_and_expected_rank(fitted, data):
    X, _, qid = data
    rows = qid == 3
    Pi = fitted.rank_distribution(X[rows], calibrated=False)
    n = rows.sum()
    assert Pi.shape == (n, n)
    assert_allclose(Pi.sum(axis=1), 1, rtol=1e-12)
    assert_allclose(Pi, doubly_stochastic(fitted.predict(X[rows]), relaxation=fitted.relaxation_), rtol=1e-12)
    assert_allclose(
        fitted.rank_distribution(X[rows], ranks=[1, 3], calibrated=False), Pi[:, [0, 2]], atol=1e-5
    )
    expected = fitted.expected_rank(X, qid=qid, calibrated=False)
    assert_allclose(expected[rows], Pi @ np.arange(1, n + 1), rtol=1e-5)
    order = np.random.default_rng(0).permutation(len(X))
    permuted = fitted.expected_rank(X[order], qid=qid[order], calibrated=False)
    assert_allclose(permuted, expected[order])
    ranked = choose_permutation(Pi, method="hungarian")
    assert_array_equal(fitted.rank(X[rows], qid=qid[rows])[ranked], np.arange(1, n + 1))
    sharp = fitted.rank_distribution(X[rows], sigma=1e-9)
    assert_allclose(sharp.max(axis=1), 1, atol=1e-4)


@pytest.mark.parametrize(
    "relaxation", ["laplace", "logit-logistic", "probit", "beta", sinkprop.SmoothedIndicator(3)]
)
def test_every_relaxation_learns(relaxation):
    X, y, qid = ranking_data(40, 3)
    model = quick(relaxation=relaxation).fit(X, y, qid=qid)
    gains = [s.expected_gain for s in model.fit_result_.stages]
    assert max(gains) > gains[0]
    random = np.mean(
        [evaluate(y, np.random.default_rng(s).normal(size=len(y)), qid)["ndcg@10"] for s in range(5)]
    )
    assert model.score(X, y, qid=qid) > random + 0.1
    Pi = model.rank_distribution(X[qid == 0], calibrated=False)
    assert_allclose(Pi.sum(axis=1), 1, rtol=1e-9)
    ranks = model.rank(X, qid=qid)
    for q in (0, 7):
        assert sorted(ranks[qid == q]) == list(range(1, (qid == q).sum() + 1))
    if model.relaxation_.width == 2:
        assert model.coef_.shape == (2, 5)
        Pi = model.rank_distribution(X[qid == 2], calibrated=False)
        expected = choose_permutation(Pi, method="shortcut", top=200)
        assert_array_equal(np.argsort(ranks[qid == 2]), expected)
        # the one-number score is the middle of the distribution: nearly the same order
        assert np.corrcoef(model.predict(X[qid == 2]), -ranks[qid == 2])[0, 1] > 0.7
        with pytest.raises(ValueError, match="a partitioned measure has none"):
            model.rank_distribution(X[:3], sigma=1)


@pytest.mark.parametrize("gain", ["p@5", "rbp@0.8", sinkprop.NDCG(10, discount="log2"), "ndcg@3"])
def test_every_gain_trains_and_is_its_own_criterion(gain, data):
    X, y, qid = data
    model = quick(gain=gain, selection=Selection("validation", rule="best")).fit(X, y, qid=qid)
    if gain == "p@5":
        assert model.fit_result_.criterion == "p@5"
        # the criterion is the hard metric of the held-out queries
        held = SinkPropRanker(gain="p@5", **QUICK, selection=Selection("validation", rule="best")).fit(
            X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid]
        )
        best = max(s.criterion for s in held.fit_result_.stages)
        assert held.set_params(metric="p@5").score(X, y, qid=qid) == pytest.approx(best, abs=1e-12)


def test_a_gain_of_ones_own(data):
    X, y, qid = data
    own = sinkprop.RankLinear(gain=np.sqrt, discount=lambda k: 1 / k, normalize=True)
    model = quick(gain=own).fit(X, y, qid=qid)
    assert model.fit_result_.criterion == "gain"


@pytest.mark.parametrize("ranker", [RegressionRanker, quick])
@pytest.mark.parametrize("normalization", ["none", "standard", "query"])
def test_normalization_is_inside_the_model(ranker, normalization, data):
    X, y, qid = data
    model = ranker(normalization=normalization).fit(X, y, qid=qid)
    raw = X * 1000 + 7
    other = ranker(normalization=normalization).fit(raw, y, qid=qid)
    if normalization != "none":
        assert_allclose(other.predict(raw, qid=qid), model.predict(X, qid=qid), rtol=1e-4, atol=1e-5)
    if normalization == "query":
        with pytest.raises(ValueError, match="predict needs qid= with normalization='query'"):
            model.predict(X)
        order = np.random.default_rng(0).permutation(len(y))
        assert_allclose(model.predict(X[order], qid=qid[order]), model.predict(X, qid=qid)[order])
    else:
        model.predict(X)


def test_single_precision_features_train_without_a_copy_in_double(data):
    X, y, qid = data
    a = quick().fit(X, y, qid=qid)
    b = quick().fit(X.astype(np.float32), y, qid=qid)
    assert_allclose(b.predict(X.astype(np.float32)), a.predict(X), rtol=1e-2, atol=1e-2)


def test_a_validation_set_selects_and_is_not_trained_on(data):
    X, y, qid = data
    vali = ranking_data(12, 9)
    selection = Selection("validation", rule="best")
    model = quick(selection=selection).fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]])
    assert model.fit_result_.validated_on == "12 validation queries"
    best = max(s.criterion for s in model.fit_result_.stages)
    names = [f"ndcg@{k}" for k in range(1, 11)]
    by_hand = np.mean(list(evaluate(vali[1], model.predict(vali[0]), vali[2], metrics=names).values()))
    assert best == pytest.approx(by_hand, abs=1e-12)
    pooled = quick().fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]])
    assert pooled.fit_result_.validated_on == "10-fold cross-validation over 42 queries"
    assert (pooled.n_rows_, pooled.n_queries_) == (len(y), 30)
    by_size = quick().fit(X, y, qid=qid, eval_set=[vali[:2]], eval_group=[np.bincount(vali[2])])
    assert_array_equal(by_size.coef_, pooled.coef_)
    pair = quick().fit(X, y, qid=qid, eval_set=(vali[0], vali[1]), eval_qid=vali[2])
    assert_array_equal(pair.coef_, pooled.coef_)
    two = quick().fit(X, y, qid=qid, eval_set=[vali[:2], vali[:2]], eval_qid=[vali[2], vali[2]])
    assert two.fit_result_.validated_on == "10-fold cross-validation over 54 queries"
    held = quick(selection=selection).fit(X, y, qid=qid)
    assert held.fit_result_.validated_on == "6 queries held out"


def test_wrong_evaluation_sets_are_errors(data):
    X, y, qid = data
    for options, message in (
        ({"eval_qid": [qid]}, "need an eval_set"),
        ({"eval_set": [(X, y)]}, "eval_set qid is missing"),
        ({"eval_set": [(X, y)], "eval_qid": [qid, qid]}, "eval_qid must have one item"),
        (
            {"eval_set": [(X[:, :3], y)], "eval_qid": [qid]},
            "X has 3 features, but SinkPropRanker is expecting 5",
        ),
        ({"eval_set": [X], "eval_qid": [qid]}, r"list of \(X, y\) pairs"),
        ({"eval_set": [(X, y[:-1])], "eval_qid": [qid]}, "one value per row of eval_set X"),
    ):
        with pytest.raises(ValueError, match=message):
            quick().fit(X, y, qid=qid, **options)


@pytest.mark.parametrize("ranker", [RegressionRanker, quick])
def test_a_query_of_weight_zero_is_as_if_it_were_not_there(ranker, data):
    X, y, qid = data
    vali = ranking_data(12, 9)
    options = {"normalization": "none"}
    if ranker is quick:
        options["selection"] = Selection("validation")
    kept = qid % 3 > 0
    evaluation = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
    few = ranker(**options).fit(X[kept], y[kept], qid=qid[kept], **evaluation)
    weight = {q: float(q % 3 > 0) for q in range(30)}
    weighted = ranker(**options).fit(X, y, qid=qid, query_weight=weight, **evaluation)
    assert_allclose(weighted.predict(X), few.predict(X), rtol=1e-5, atol=1e-6)


def test_row_weights_change_what_is_learned(data):
    X, y, qid = data
    # documents whose third feature is high are worth little: others come first
    weight = np.where(X[:, 2] > 0, 0.01, 1.0)
    plain, weighted = quick().fit(X, y, qid=qid), quick().fit(X, y, qid=qid, sample_weight=weight)
    assert weighted.coef_[2] < plain.coef_[2] - 0.1


def interrupting(monkeypatch, at):
    """Make the `at`-th evaluation of the expected gain an interrupt."""
    calls = 0
    real = Objective.value

    def counted(*args, **options):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(Objective, "value", counted)


def test_an_interrupt_keeps_the_best_model_so_far(monkeypatch, data):
    X, y, qid = data
    interrupting(monkeypatch, 150)
    with pytest.warns(
        RuntimeWarning, match="interrupted; the model is the best of the stages that were finished"
    ):
        model = quick().fit(X, y, qid=qid)
    assert model.fit_result_.status == "interrupted"
    assert 1 < len(model.fit_result_.stages) < 7
    assert model.score(X, y, qid=qid) > 0


def test_an_interrupt_before_there_is_a_model_is_passed_on(monkeypatch, data):
    X, y, qid = data
    interrupting(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        quick().fit(X, y, qid=qid)


@pytest.mark.parametrize("at", [2, 60, 150, 250])
@pytest.mark.parametrize("resample", [0, 2])
def test_a_fit_resumes_from_its_checkpoint_to_the_same_model(monkeypatch, tmp_path, data, at, resample):
    X, y, qid = data
    path = tmp_path / "fit.checkpoint"
    whole = quick(resample=resample).fit(X, y, qid=qid)
    with monkeypatch.context() as patch:
        interrupting(patch, at)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            quick(resample=resample, checkpoint=path).fit(X, y, qid=qid)
    assert path.exists()
    done = len(read_model(path).state["stages"])
    evaluations = 0
    real = Objective.value

    def counted(*args, **options):
        nonlocal evaluations
        evaluations += 1
        return real(*args, **options)

    monkeypatch.setattr(Objective, "value", counted)
    resumed = quick(resample=resample, checkpoint=path, n_threads=2).fit(X, y, qid=qid)
    assert_array_equal(resumed.coef_, whole.coef_)
    rest = sum(stage.evaluations for stage in whole.fit_result_.stages[done:])
    # what was finished is not run again; where stages start, the values are known
    assert 0.5 * rest < evaluations <= rest
    strip = [dataclasses.replace(s, seconds=0) for s in resumed.fit_result_.stages]
    assert strip == [dataclasses.replace(s, seconds=0) for s in whole.fit_result_.stages]
    assert not path.exists()


def test_a_checkpoint_of_another_fit_is_an_error_and_stays(monkeypatch, tmp_path, data):
    X, y, qid = data
    path = tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        interrupting(patch, 100)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            quick(checkpoint=path).fit(X, y, qid=qid)
    before = path.read_bytes()
    for change in ({"penalty": 1.0}, {"gain": "p@5"}, {"random_state": 5}, {"normalization": "none"}):
        with pytest.raises(ModelFileError, match="other data or parameters"):
            quick(checkpoint=path, **change).fit(X, y, qid=qid)
    with pytest.raises(ModelFileError, match="other data or parameters"):
        quick(checkpoint=path).fit(X + 1, y, qid=qid)
    assert path.read_bytes() == before
    state = read_model(path).state
    for name, value in (
        ("weights", state["stages"][0]["weights"][:, :-1]),
        ("weights", "text"),
        ("validation", np.array([1.0])),
        ("stage", 0.5),
        ("value", []),
        ("other", 1),
    ):
        stages = [{**stage, name: value} if i == 0 else stage for i, stage in enumerate(state["stages"])]
        write_model(path, "SinkPropRankerCheckpoint", {**state, "stages": stages})
        with pytest.raises(ModelFileError, match="not a checkpoint of this fit"):
            quick(checkpoint=path).fit(X, y, qid=qid)
    write_model(path, "SinkPropRankerCheckpoint", {"fingerprint": state["fingerprint"]})
    with pytest.raises(ModelFileError, match="KeyError: 'stages'"):
        quick(checkpoint=path).fit(X, y, qid=qid)
    path.write_bytes(before[:-5])
    with pytest.raises(ModelFileError):
        quick(checkpoint=path).fit(X, y, qid=qid)


MODELS = {
    "regression": RegressionRanker(),
    "regression by query": RegressionRanker(normalization="query"),
    "gaussian": quick(),
    "laplace": quick(relaxation="laplace", normalization="query", gain="p@5"),
    "beta": quick(relaxation=PartitionedMeasure("beta"), selection=Selection(criterion=("ndcg@5", "map"))),
    "own gain": quick(gain=sinkprop.RankLinear(gain=np.sqrt, discount=lambda k: 1 / k)),
    "value gain": quick(gain=sinkprop.NDCG(10), random_state=np.random.RandomState(1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_the_same_model(tmp_path, data, name):
    X, y, qid = data
    model = clone(MODELS[name]).fit(X, y, qid=qid)
    path = tmp_path / "m.model"
    model.save(path)
    for loaded in (type(model).load(path), sinkprop.load_model(path)):
        assert type(loaded) is type(model)
        assert_array_equal(loaded.predict(X, qid=qid), model.predict(X, qid=qid))
        assert_array_equal(loaded.rank(X, qid=qid), model.rank(X, qid=qid))
        assert loaded.score(X, y, qid=qid) == model.score(X, y, qid=qid)
        again = tmp_path / "again.model"
        loaded.save(again)
        assert read_model(again).state["fitted"].keys() == read_model(path).state["fitted"].keys()
        if isinstance(model, SinkPropRanker):
            assert [dataclasses.replace(s, seconds=0) for s in loaded.fit_result_.stages] == [
                dataclasses.replace(s, seconds=0) for s in model.fit_result_.stages
            ]
            assert_array_equal(loaded.rank_distribution(X[qid == 1]), model.rank_distribution(X[qid == 1]))
        if name == "own gain":  # a function is not data
            with pytest.raises(ValueError, match="set it before the next fit"):
                loaded.fit(X, y, qid=qid)
        else:
            loaded.fit(X, y, qid=qid)


def test_files_that_are_not_the_model_asked_for(tmp_path, data, fitted):
    X, y, qid = data
    path = tmp_path / "m.model"
    RegressionRanker().fit(X, y, qid=qid).save(path)
    with pytest.raises(ModelFileError, match="SinkPropRanker"):
        SinkPropRanker.load(path)
    write_model(path, "TreeRanker", {})
    with pytest.raises(ModelFileError, match="TreeRanker"):
        sinkprop.load_model(path)
    write_model(path, "RegressionRanker", {"parameters": {}})
    with pytest.raises(ModelFileError, match="not a RegressionRanker"):
        sinkprop.load_model(path)
    with pytest.raises(FileNotFoundError):
        sinkprop.load_model(tmp_path / "none.model")
    with pytest.raises(NotFittedError):
        SinkPropRanker().save(path)
    assert read_model(path).kind == "RegressionRanker"


def test_a_model_of_other_features_says_so(data, fitted, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, qid = data
    with pytest.raises(ValueError, match="X has 4 features, but SinkPropRanker is expecting 5 features"):
        fitted.predict(X[:, :4])
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = quick().fit(frame, y, qid=pandas.Series(qid))
    path = tmp_path / "m.model"
    model.save(path)
    loaded = sinkprop.load_model(path)
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert_array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[list("abced")])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"relaxation": "gauss"}, "relaxation must be one of 'gaussian'"),
        ({"relaxation": 3}, "relaxation must be a name or a Relaxation"),
        ({"gain": "ndgc"}, "ndgc"),
        ({"penalty": -1}, "penalty must be a finite number, not below 0"),
        ({"penalty": []}, "penalty must be"),
        ({"penalty": "many"}, "penalty must be"),
        ({"annealing": 3}, "annealing must be an Annealing"),
        ({"selection": "loo"}, "method must be"),
        ({"selection": 5}, "selection must be"),
        ({"normalization": "minmax"}, "normalization must be"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"n_iter": 1.2}, "n_iter must be a number of iterations"),
        ({"resample": -1}, "resample must be at least 0"),
        ({"metric": "ndcg@"}, "ndcg@"),
        ({"convention": "mine"}, "mine"),
        ({"tol": np.nan}, "tol must be"),
        ({"epsilon": -1}, "epsilon must be"),
    ],
)
def test_wrong_parameters_are_errors(parameters, message, data):
    X, y, qid = data
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(X, y, qid=qid)


def test_wrong_arrays_are_errors_that_name_the_row(data):
    X, y, qid = data
    spoiled = X.copy()
    spoiled[7, 2] = np.inf
    negative = y.copy()
    negative[5] = -1
    for arguments, message in (
        ((spoiled, y, qid), "row 7, column 2 holds inf"),
        ((X, negative, qid), "row 5 holds -1"),
        ((X, y[:-1], qid), "one value per row of X"),
        ((X, y, qid[:-1]), "one id per row"),
        ((X, y, qid.astype(float) * np.nan), "qid must not hold NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            quick().fit(*arguments[:2], qid=arguments[2])


AWKWARD = {
    "one document a query": (np.eye(3), [0, 1, 2], [0, 1, 2]),
    "two queries of one": ([[1.0], [2.0]], [1, 0], [0, 1]),
    "no relevant document": (np.eye(4), [0, 0, 0, 0], [0, 0, 1, 1]),
    "all labels equal": (np.eye(4), [2, 2, 2, 2], [0, 0, 1, 1]),
    "all features equal": (np.full((4, 2), 1 / 3), [0, 1, 2, 0], [0, 0, 1, 1]),
    "huge features": (np.array([[1e150], [2e150], [3e150], [-1e150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "tiny features": (np.array([[1e-150], [2e-150], [3e-150], [-1e-150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "more features than rows": (np.random.default_rng(0).normal(size=(4, 9)), [0, 1, 2, 0], [0, 0, 1, 1]),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("relaxation", ["gaussian", "laplace", "logit-logistic", "beta"])
def test_awkward_data_gives_a_finite_model(name, relaxation):
    X, y, qid = AWKWARD[name]
    model = quick(relaxation=relaxation).fit(X, y, qid=qid)
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.coef_).all()
    assert 0 <= model.score(X, y, qid=qid) <= 1
    if name == "tiny features":
        assert model.score(X, y, qid=qid) == RegressionRanker().fit(X, y, qid=qid).score(X, y, qid=qid)


def test_not_fitted():
    for method in ("predict", "rank_distribution"):
        with pytest.raises(NotFittedError):
            getattr(SinkPropRanker(), method)(np.eye(2))


def test_pipelines_and_grid_search_by_query(data):
    import sklearn
    from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    X, y, qid = data
    pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), quick())
    pipeline.fit(X, y, sinkpropranker__qid=qid)
    assert pipeline.predict(X).shape == (len(y),)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(quick(), {"penalty": [1e-4, 1e4]}, cv=GroupKFold(3))
        search.fit(X, y, qid=qid, groups=qid)
        by_hand = []
        for train, test in GroupKFold(3).split(X, y, groups=qid):
            model = quick(penalty=1e4).fit(X[train], y[train], qid=qid[train])
            by_hand.append(model.score(X[test], y[test], qid=qid[test]))
        assert search.cv_results_["mean_test_score"][1] == pytest.approx(np.mean(by_hand), abs=1e-12)
        # qid reaches the last step of a pipeline, in fit and in score
        found = GridSearchCV(
            make_pipeline(PolynomialFeatures(2, include_bias=False), quick()),
            {"sinkpropranker__gain": ["ndcg", "p@5"]},
            cv=GroupKFold(3),
        ).fit(X, y, qid=qid, groups=qid)
        assert found.score(X, y, qid=qid) > 0.3
        scores = cross_validate(
            RegressionRanker(), X, y, cv=GroupKFold(3), params={"qid": qid, "groups": qid}
        )
        assert scores["test_score"].shape == (3,)


def test_the_progress_line_is_drawn_on_a_terminal_only(monkeypatch, capsys, data):
    import sys

    import sinkprop.common.progress

    X, y, qid = data
    quick().fit(X, y, qid=qid)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sinkprop.common.progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(sinkprop.common.progress, "_INTERVAL", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    quick().fit(X, y, qid=qid)
    out, err = capsys.readouterr()
    assert out == ""
    assert "penalty 0.0001, sigma 4" in err
    assert err.endswith("\r\x1b[K")
    quick(verbose=False).fit(X, y, qid=qid)
    assert capsys.readouterr() == ("", "")
