"""RegressionRanker with penalties: the choice, the files, and LETOR's published row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from places import DATA
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge

import sinkprop
from sinkprop import Selection, evaluate
from sinkprop.baselines import RegressionRanker
from sinkprop.baselines.regression import PENALTIES
from sinkprop.experiment import METHODS, compare
from sinkprop.model_files import ModelFileError, read_model, write_model


def ranking_data(n_queries=30, seed=0, n_features=12, noise=2.0):
    """Few rows, and features that say nearly the same: where a penalty helps."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(10, 20, n_queries))
    latent = rng.normal(size=len(qid))
    X = latent[:, None] + rng.normal(size=(len(qid), n_features)) * np.linspace(0.3, 3, n_features)
    return X, np.digitize(latent + noise * rng.normal(size=len(qid)), [0.5, 2.0]).astype(float), qid


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(40, 1)


def evaluation(validation):
    return {"eval_set": [validation[:2]], "eval_qid": [validation[2]]}


@pytest.mark.parametrize("normalization", ["none", "standard"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_penalty_is_ordinary_least_squares(data, normalization, dtype):
    X, y, qid = data
    X = X.astype(dtype)
    model = RegressionRanker(normalization=normalization).fit(X, y, qid=qid)
    expected = LinearRegression().fit(X.astype(np.float64), y)
    tolerance = {"rtol": 1e-9} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    assert_allclose(model.predict(X), expected.predict(X.astype(np.float64)), **tolerance)
    assert model.penalty_ == 0
    assert model.fit_result_.validated_on == ""
    assert_allclose(model.fit_result_.chosen.value, np.square(y - expected.predict(X)).mean(), rtol=1e-4)


@pytest.mark.parametrize("normalization", ["none", "standard"])
def test_a_penalty_is_scikit_learns_ridge(data, normalization):
    X, y, qid = data
    Z = X if normalization == "none" else (X - X.mean(axis=0)) / X.std(axis=0)
    model = RegressionRanker(penalty=0.3, normalization=normalization).fit(X, y, qid=qid)
    ridge = Ridge(alpha=0.3 * len(y), solver="svd").fit(Z, y)
    assert_allclose(model.coef_, ridge.coef_, rtol=1e-9)
    assert_allclose(model.predict(X), ridge.predict(Z), rtol=1e-9)
    assert model.penalty_ == 0.3


def test_row_and_query_weights_multiply(data):
    X, y, qid = data
    rng = np.random.default_rng(2)
    rows, queries = rng.uniform(0, 2, len(y)), rng.uniform(0, 2, 30)
    model = RegressionRanker(penalty=0.1).fit(X, y, qid=qid, sample_weight=rows, query_weight=queries)
    weight = rows * queries[qid]
    ridge = Ridge(alpha=0.1 * weight.sum(), solver="svd").fit(X, y, sample_weight=weight)
    assert_allclose(model.coef_, ridge.coef_, rtol=1e-9)
    assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-9)


def test_the_best_penalty_on_the_validation_queries_is_taken(data, validation):
    X, y, qid = data
    grid = [10.0, 0.0, 1.0, 1e-2, 1.0]
    model = RegressionRanker(penalty=grid).fit(X, y, qid=qid, **evaluation(validation))
    assert [trial.setting["penalty"] for trial in model.fit_result_.trials] == [10, 1, 1e-2, 0]
    assert model.fit_result_.validated_on == "40 validation queries"
    names = [f"ndcg@{k}" for k in range(1, 11)]
    by_hand = {}
    for penalty in (10, 1, 1e-2, 0):
        alone = RegressionRanker(penalty=penalty).fit(X, y, qid=qid)
        values = evaluate(validation[1], alone.predict(validation[0]), validation[2], metrics=names)
        by_hand[penalty] = np.mean(list(values.values()))
    for trial in model.fit_result_.trials:
        assert trial.criterion == pytest.approx(by_hand[trial.setting["penalty"]], abs=1e-12)
    assert model.penalty_ == max(by_hand, key=by_hand.get)
    chosen = RegressionRanker(penalty=model.penalty_).fit(X, y, qid=qid)
    assert_allclose(model.coef_, chosen.coef_, rtol=1e-12)


def test_auto_is_the_default_grid(data, validation):
    X, y, qid = data
    assert tuple(10.0**k for k in range(2, -7, -1)) == PENALTIES
    auto = RegressionRanker(penalty="auto", normalization="standard").fit(
        X, y, qid=qid, **evaluation(validation)
    )
    given = RegressionRanker(penalty=PENALTIES, normalization="standard").fit(
        X, y, qid=qid, **evaluation(validation)
    )
    assert auto.fit_result_.trials == given.fit_result_.trials
    assert len(auto.fit_result_.trials) == 9
    test = ranking_data(300, 5)
    plain = RegressionRanker().fit(X, y, qid=qid)
    assert auto.penalty_ > 0
    assert auto.score(*test[:2], qid=test[2]) > plain.score(*test[:2], qid=test[2])


def test_without_validation_queries_some_are_held_out_or_all_validate_in_turn(data):
    X, y, qid = data
    held = RegressionRanker(penalty="auto").fit(X, y, qid=qid)
    assert held.fit_result_.validated_on == "6 queries held out"
    crossed = RegressionRanker(penalty="auto", selection="cross-validation").fit(X, y, qid=qid)
    assert crossed.fit_result_.validated_on == "5-fold cross-validation over 30 queries"
    alone = RegressionRanker(penalty=crossed.penalty_).fit(X, y, qid=qid)
    assert_allclose(crossed.coef_, alone.coef_, rtol=1e-10)


def test_the_criterion_is_the_selections(data, validation):
    X, y, qid = data
    model = RegressionRanker(penalty="auto", selection=Selection("validation", criterion="map"))
    model.fit(X, y, qid=qid, **evaluation(validation))
    assert model.fit_result_.criterion == "map"
    values = {}
    for penalty in PENALTIES:
        scores = RegressionRanker(penalty=penalty).fit(X, y, qid=qid).predict(validation[0])
        values[penalty] = evaluate(validation[1], scores, validation[2], metrics=["map"])["map"]
    assert model.penalty_ == max(values, key=values.get)


def test_rows_in_any_order_make_the_same_model(data, validation):
    X, y, qid = data
    order = np.random.default_rng(0).permutation(len(y))
    a = RegressionRanker(penalty="auto").fit(X, y, qid=qid, **evaluation(validation))
    b = RegressionRanker(penalty="auto").fit(X[order], y[order], qid=qid[order], **evaluation(validation))
    assert a.penalty_ == b.penalty_
    assert_allclose(b.coef_, a.coef_, rtol=1e-10)
    assert_array_equal(a.rank(X[order], qid=qid[order]), a.rank(X, qid=qid)[order])


AWKWARD = {
    "one document a query": (np.eye(3), [0, 1, 2], [0, 1, 2]),
    "one query": (np.eye(3), [0, 1, 2], [0, 0, 0]),
    "no relevant document": (np.eye(4), [0, 0, 0, 0], [0, 0, 1, 1]),
    "all labels equal": (np.eye(4), [2, 2, 2, 2], [0, 0, 1, 1]),
    "all features equal": (np.full((4, 2), 1 / 3), [0, 1, 2, 0], [0, 0, 1, 1]),
    "huge features": (np.array([[1e150], [2e150], [3e150], [-1e150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "tiny features": (np.array([[1e-150], [2e-150], [3e-150], [-1e-150]]), [0, 1, 2, 0], [0, 0, 1, 1]),
    "more features than rows": (np.random.default_rng(0).normal(size=(4, 9)), [0, 1, 2, 0], [0, 0, 1, 1]),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("normalization", ["none", "standard", "query"])
def test_awkward_data_gives_a_finite_model(name, normalization):
    X, y, qid = AWKWARD[name]
    for penalty in (0.0, 1.0, "auto"):
        model = RegressionRanker(penalty=penalty, normalization=normalization).fit(X, y, qid=qid)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(model.predict(X, qid=qid)).all()
        assert 0 <= model.score(X, y, qid=qid) <= 1


@pytest.mark.parametrize("penalty", [-1, np.inf, np.nan, [], "many", [1, -1], None, "1"])
def test_wrong_penalties(data, penalty):
    X, y, qid = data
    with pytest.raises(ValueError, match=r"penalty must be a (finite )?number"):
        RegressionRanker(penalty=penalty).fit(X, y, qid=qid)


@pytest.mark.parametrize("penalty", [0.0, 0.3, (1.0, 0.1), "auto", np.array([1.0, 0.0])])
def test_a_saved_model_is_the_same_model(tmp_path, data, penalty):
    X, y, qid = data
    model = RegressionRanker(penalty=penalty, normalization="standard").fit(X, y, qid=qid)
    model.save(tmp_path / "m.model")
    for loaded in (RegressionRanker.load(tmp_path / "m.model"), sinkprop.load_model(tmp_path / "m.model")):
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.penalty_ == model.penalty_
        assert [t.setting for t in loaded.fit_result_.trials] == [t.setting for t in model.fit_result_.trials]
        assert_array_equal(clone(loaded).fit(X, y, qid=qid).coef_, model.coef_)


def test_a_file_of_other_weights_is_refused(tmp_path, data):
    X, y, qid = data
    path = tmp_path / "m.model"
    RegressionRanker().fit(X, y, qid=qid).save(path)
    state = read_model(path).state
    state["fitted"]["model"]["coef"] = np.zeros(3)
    write_model(path, "RegressionRanker", state)
    with pytest.raises(ModelFileError, match="weights must be an array of numbers"):
        RegressionRanker.load(path)


def test_the_method_of_compare():
    def queries(seed):
        return sinkprop.Queries(*ranking_data(10, seed))

    fold = sinkprop.Fold("f", queries(1), queries(2), queries(3))
    found = compare([fold], "regression,ridge", metrics="ndcg@5", n_jobs=1)
    assert found.results[1].summary["candidates"] == 9
    assert found.results[1].summary["setting"].keys() == {"penalty"}
    assert METHODS["ridge"].make().get_params()["normalization"] == "standard"


@pytest.mark.skipif(not (DATA / "ohsumed").is_dir(), reason="OHSUMED is not in the folder SINKPROP_DATA")
def test_the_published_rows_of_ohsumed():
    """Regression to the fourth digit; L2 Regression within .005 by LETOR's own rule, MAP on validation."""
    parts = [sinkprop.load_letor(DATA / "ohsumed" / f"S{i}.txt.xz") for i in range(1, 6)]
    folds = []
    for first in range(5):
        train, vali, test = ([parts[(first + i) % 5] for i in those] for those in ((0, 1, 2), (3,), (4,)))
        joined = sinkprop.Queries(
            *(np.concatenate([getattr(p, a) for p in train]) for a in ("X", "y", "qid"))
        )
        folds.append(sinkprop.Fold(f"Fold{first + 1}", joined, vali[0], test[0]))
    by_map = RegressionRanker(
        penalty="auto", normalization="standard", selection=Selection("validation", criterion="map")
    )
    metrics = ["ndcg@3", "ndcg@5", "ndcg@10"]
    found = compare(
        folds,
        {"regression": "regression", "by map": by_map},
        metrics=metrics,
        convention="letor",
        n_jobs=1,
    )
    means = {method: [found.mean("data", method, metric) for metric in metrics] for method in found.methods}
    assert_allclose(means["regression"], [0.4426, 0.4278, 0.4110], atol=5e-5)
    assert_allclose(means["by map"], [0.4740, 0.4568, 0.4436], atol=5e-3)
