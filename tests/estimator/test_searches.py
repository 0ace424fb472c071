"""Cross-validation and searches of scikit-learn, with queries in any order, against loops by hand."""

import numpy as np
import pytest
import sklearn
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sinkprop import SinkPropRanker, evaluate
from sinkprop.datasets import make_ranking
from sinkprop.gbdt import BoostedRanker

CV = GroupKFold(3)
FORWARDS = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)


@pytest.fixture(scope="module")
def data():
    """Rows in random order, with the query ids as scikit-learn wants them."""
    queries = make_ranking(30, sizes=(8, 16))
    order = np.random.default_rng(0).permutation(len(queries))
    qid = np.array([f"query {i}" for i in queries.qid])[order]
    return queries.X[order], queries.y[order], {"qid": qid, "groups": qid}


@pytest.fixture(autouse=True)
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def quick(**settings):
    return SinkPropRanker(penalty=0.1, selection="validation", **settings)


def by_hand(make, X, y, qid):
    """NDCG@10 of each fold, and the scores of all rows by the rankers that were not trained on them."""
    values, scores = [], np.empty(len(y))
    for train, test in CV.split(X, y, qid):
        assert not set(qid[train]) & set(qid[test])
        ranker = make().fit(X[train], y[train], qid=qid[train])
        scores[test] = ranker.predict(X[test], qid=qid[test])
        values.append(evaluate(y[test], scores[test], qid[test])["ndcg@10"])
    return values, scores


@pytest.mark.parametrize("normalization", ["standard", "query"])
def test_cross_validation(data, normalization):
    X, y, params = data
    ranker = quick(normalization=normalization)
    values, scores = by_hand(lambda: quick(normalization=normalization), X, y, params["qid"])
    found = cross_val_score(ranker, X, y, cv=CV, params=params, error_score="raise")
    np.testing.assert_allclose(found, values, rtol=1e-12)
    if normalization == "standard":  # scikit-learn passes qid to fit, but not to predict
        np.testing.assert_array_equal(cross_val_predict(ranker, X, y, cv=CV, params=params), scores)


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_searches(data, search):
    X, y, params = data
    more = {"n_iter": 2, "random_state": 0} if search is RandomizedSearchCV else {}
    found = search(quick(), {"gain": ["ndcg", "map"]}, cv=CV, error_score="raise", **more)
    found.fit(X, y, **params)
    values = {
        gain: np.mean(by_hand(lambda gain=gain: quick(gain=gain), X, y, params["qid"])[0])
        for gain in ("ndcg", "map")
    }
    tried = [setting["gain"] for setting in found.cv_results_["params"]]
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], [values[gain] for gain in tried], rtol=1e-12
    )
    assert found.best_params_["gain"] == max(values, key=values.get)
    assert found.score(X, y, qid=params["qid"]) == found.best_estimator_.score(X, y, qid=params["qid"])


def test_halving_over_trees(data):
    X, y, params = data
    search = HalvingGridSearchCV(
        BoostedRanker(min_child_samples=5),
        {"num_leaves": [3, 4, 5]},
        resource="n_estimators",
        min_resources=3,
        max_resources=9,
        cv=CV,
        error_score="raise",
    )
    search.fit(X, y, **params)
    assert search.cv_results_["n_resources"].tolist() == [3, 3, 3, 9]
    best = search.best_params_
    assert best["n_estimators"] == 9
    values, _ = by_hand(lambda: BoostedRanker(min_child_samples=5, **best), X, y, params["qid"])
    assert search.best_score_ == pytest.approx(np.mean(values), rel=1e-12)


def test_several_metrics(data):
    X, y, params = data

    def scorer(metric):
        def value(y, scores, qid):
            return evaluate(y, scores, qid, metrics=metric)[metric]

        return make_scorer(value).set_score_request(qid=True)

    scoring = {metric: scorer(metric) for metric in ("ndcg@10", "map")}
    found = cross_validate(quick(), X, y, cv=CV, params=params, scoring=scoring, error_score="raise")
    values, scores = by_hand(quick, X, y, params["qid"])
    np.testing.assert_allclose(found["test_ndcg@10"], values, rtol=1e-12)
    maps = [
        evaluate(y[t], scores[t], params["qid"][t], "map")["map"] for _, t in CV.split(X, y, params["qid"])
    ]
    np.testing.assert_allclose(found["test_map"], maps, rtol=1e-12)


def test_weights_reach_the_methods_that_request_them(data):
    X, y, params = data
    ranker = quick().set_fit_request(query_weight=True, sample_weight=True)
    ranker.set_score_request(query_weight=True, sample_weight=False)
    # queries whose weight is 0 count neither in fits nor in scores
    qid = params["qid"]
    kept = np.isin(qid, np.unique(qid)[::2])
    weights = {"query_weight": kept.astype(float), "sample_weight": np.where(y > 0, 2.0, 1.0)}
    found = cross_val_score(ranker, X, y, cv=CV, params={**params, **weights}, error_score="raise")
    for value, (train, test) in zip(found, CV.split(X, y, qid), strict=True):
        own = quick().fit(
            X[train],
            y[train],
            qid=qid[train],
            **{name: weight[train] for name, weight in weights.items()},
        )
        some = test[kept[test]]
        assert value == pytest.approx(own.score(X[some], y[some], qid=qid[some]), rel=1e-12)


@pytest.mark.skipif(
    not FORWARDS, reason="scikit-learn 1.8 passes qid through pipelines and searches to score"
)
@pytest.mark.parametrize("nested", ["pipeline", "search"])
def test_pipelines_and_nested_searches(data, nested):
    X, y, params = data
    if nested == "pipeline":
        found = cross_val_score(
            make_pipeline(StandardScaler(), quick(normalization="none")), X, y, cv=CV, params=params
        )
        values, _ = by_hand(quick, X, y, params["qid"])
        np.testing.assert_allclose(found, values, rtol=1e-9)
    else:
        inner = GridSearchCV(quick(), {"gain": ["ndcg"]}, cv=GroupKFold(2))
        found = cross_val_score(inner, X, y, cv=CV, params=params, error_score="raise")
        np.testing.assert_allclose(found, by_hand(quick, X, y, params["qid"])[0], rtol=1e-12)


def test_without_routing_the_error_says_what_to_set(data):
    X, y, params = data
    with (
        sklearn.config_context(enable_metadata_routing=False),
        pytest.raises(ValueError, match=r"set_config\(enable_metadata_routing=True\) passes it on"),
    ):
        GridSearchCV(quick(), {"gain": ["ndcg"]}, cv=CV, error_score="raise").fit(X, y, **params)
