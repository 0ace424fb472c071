"""XGBoostRanker, against XGBoost itself."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tree_problems import AWKWARD, evaluation, ranking_data

import sinkprop
from sinkprop import evaluate
from sinkprop.baselines import XGBoostRanker
from sinkprop.experiment import METHODS, compare

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: it comes with the extra xgboost")

ONE = {"num_leaves": 5, "min_child_weight": 0.5, "learning_rate": 0.1, "n_estimators": 15, "step": 15}
FEW = {"num_leaves": (3, 6), "min_child_weight": (1.0, 0.1), "n_estimators": 12, "step": 5}


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(15, 1)


def direct(X, y, qid, *, weight=None, rounds=15, **parameters):
    """The scores of XGBoost without sinkprop."""
    given = {
        "objective": "rank:ndcg",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": 5,
        "min_child_weight": 0.5,
        "learning_rate": 0.1,
        "seed": 0,
        "nthread": 1,
        "verbosity": 0,
        **parameters,
    }
    rows = xgboost.DMatrix(X, y, qid=qid, weight=weight)
    return xgboost.train(given, rows, rounds).predict(xgboost.DMatrix(X), output_margin=True)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_is_xgboost(data, weighted, dtype):
    X, y, qid = data
    X = X.astype(dtype)
    queries = np.random.default_rng(3).uniform(0.5, 2, 20) if weighted else None
    model = XGBoostRanker(**ONE).fit(X, y, qid=qid, query_weight=queries)
    assert_array_equal(model.predict(X), direct(X, y, qid, weight=queries))
    assert model.booster_.num_boosted_rounds() == model.n_trees_ == 15
    if weighted:
        assert not np.array_equal(model.predict(X), XGBoostRanker(**ONE).fit(X, y, qid=qid).predict(X))


def test_the_best_candidate_on_the_validation_queries_is_taken(data, validation):
    X, y, qid = data
    model = XGBoostRanker(**FEW).fit(X, y, qid=qid, **evaluation(validation))
    result = model.fit_result_
    assert result.validated_on == "15 validation queries"
    assert [t.setting["trees"] for t in result.trials] == [5, 10, 12] * 4
    assert [(t.setting["num_leaves"], t.setting["min_child_weight"]) for t in result.trials[::3]] == [
        (3, 1.0), (3, 0.1), (6, 1.0), (6, 0.1)
    ]  # fmt: skip
    names = [f"ndcg@{k}" for k in range(1, 11)]
    for trial in result.trials:
        setting = dict(trial.setting)
        trees = setting.pop("trees")
        alone = XGBoostRanker(**setting, n_estimators=trees, step=trees).fit(X, y, qid=qid)
        values = evaluate(validation[1], alone.predict(validation[0]), validation[2], metrics=names)
        assert trial.criterion == pytest.approx(np.mean(list(values.values())), abs=1e-12)
        assert trial.value == evaluate(y, alone.predict(X), qid, metrics=["ndcg"])["ndcg"]
        if trial.chosen:
            assert_array_equal(alone.predict(X), model.predict(X))
            assert model.n_trees_ == trees
    assert result.chosen.criterion == max(t.criterion for t in result.trials)


def test_it_learns_what_no_linear_ranker_can():
    train, test = ranking_data(60, 5), ranking_data(100, 6)
    linear = sinkprop.baselines.RegressionRanker().fit(*train[:2], qid=train[2])
    trees = XGBoostRanker(**{**ONE, "n_estimators": 60, "step": 60}).fit(*train[:2], qid=train[2])
    assert trees.score(*test[:2], qid=test[2]) > linear.score(*test[:2], qid=test[2]) + 0.15


def test_labels_that_xgboost_does_not_take_become_gains(data):
    X, y, qid = data
    # the gains of 0, 1 and 2 themselves, which XGBoost can be given in place of the labels
    assert_array_equal(
        direct(X, 2**y - 1, qid, ndcg_exp_gain=False), XGBoostRanker(**ONE).fit(X, y, qid=qid).predict(X)
    )
    half = XGBoostRanker(**ONE).fit(X, y / 2, qid=qid).predict(X)
    assert_allclose(half, direct(X, 2 ** (y / 2) - 1, qid, ndcg_exp_gain=False), rtol=1e-4, atol=1e-6)
    high = np.array([0.0, 33.0, 40.0])[y.astype(int)]
    assert np.isfinite(XGBoostRanker(**ONE).fit(X, high, qid=qid).predict(X)).all()
    with pytest.raises(ValueError, match="below 960"):
        XGBoostRanker(**ONE).fit(X, y * 500, qid=qid)


def test_long_queries(capfd):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(10_011, 1)), np.array(["long"] * 10_001 + ["short"] * 10)
    y = (X[:, 0] > 1).astype(float)
    model = XGBoostRanker(**{**ONE, "n_estimators": 2, "step": 2}).fit(X, y, qid=qid)
    assert model.score(X, y, qid=qid) > 0.9
    assert capfd.readouterr() == ("", "")


def test_missing_values_are_taken_and_infinite_ones_are_not(data, tmp_path):
    X, y, qid = data
    holes = X.copy()
    holes[np.random.default_rng(0).uniform(size=X.shape) < 0.3] = np.nan
    model = XGBoostRanker(**ONE).fit(holes, y, qid=qid)
    assert_array_equal(model.predict(holes), direct(holes, y, qid))
    model.save(tmp_path / "m.model")
    assert_array_equal(XGBoostRanker.load(tmp_path / "m.model").predict(holes), model.predict(holes))
    holes[7, 2] = np.inf
    with pytest.raises(ValueError, match="X must be finite, or NaN for missing; row 7, column 2 holds inf"):
        model.predict(holes)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_data_gives_a_finite_model(capfd, name):
    X, y, qid = AWKWARD[name]
    if name == "huge features":  # past single precision, XGBoost's
        X = X / 1e120
    model = XGBoostRanker(**FEW).fit(X, y, qid=qid)
    assert np.isfinite(model.predict(X)).all()
    assert len(model.fit_result_.trials) == 12
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_leaves": 1}, "num_leaves must be at least 2"),
        ({"num_leaves": ()}, "num_leaves must be a number, or several; got none"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0"),
        ({"min_child_weight": 0}, "min_child_weight must be a finite number above 0"),
        ({"min_child_weight": [1, "a"]}, "min_child_weight must be a finite number above 0"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"step": 0}, "step must be at least 1"),
        ({"normalization": "standard"}, "normalization must be 'none' or 'query'"),
    ],
)
def test_wrong_parameters_are_errors(data, parameters, message):
    X, y, qid = data
    with pytest.raises(ValueError, match=message):
        XGBoostRanker(**parameters).fit(X, y, qid=qid)


def test_the_method_of_compare():
    def queries(seed):
        return sinkprop.Queries(*ranking_data(8, seed))

    fold = sinkprop.Fold("f", queries(1), queries(2), queries(3))
    ranker = METHODS["xgboost-ndcg"].make()
    found = compare([fold], {"xgboost-ndcg": ranker.set_params(**FEW)}, metrics="ndcg@5", n_jobs=1)
    assert 0 < found.mean("data", "xgboost-ndcg", "ndcg@5") <= 1
