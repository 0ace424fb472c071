"""CatBoostRanker, against CatBoost itself."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tree_problems import AWKWARD, evaluation, ranking_data

import sinkprop
from sinkprop import evaluate
from sinkprop.baselines import CatBoostRanker, LightGBMRanker
from sinkprop.experiment import METHODS, compare, parse_methods

catboost = pytest.importorskip(
    "catboost", reason="catboost is not installed: it comes with the extra catboost"
)

OBJECTIVES = {
    "yetirank": "YetiRank",
    "yetirank-ndcg": "YetiRank:mode=NDCG",
    "queryrmse": "QueryRMSE",
    "stochasticrank": "StochasticRank:metric=NDCG",
}
ONE = {"depth": 3, "l2_leaf_reg": 2.0, "learning_rate": 0.1, "n_estimators": 15, "step": 15}
FEW = {"depth": (2, 3), "n_estimators": 12, "step": 5}
# CatBoost's reader of JSON rounds the values of leaves to the nearest or the next number
NEAR = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def validation():
    return ranking_data(15, 1)


def direct(X, y, qid, *, objective="yetirank", weight=None, eval_set=None, **parameters):
    """A model of CatBoost, without sinkprop."""
    given = {"depth": 3, "l2_leaf_reg": 2.0, "learning_rate": 0.1, "iterations": 15, **parameters}
    model = catboost.CatBoost(
        {
            "loss_function": OBJECTIVES[objective],
            "random_seed": 0,
            "thread_count": 1,
            "allow_writing_files": False,
            "verbose": False,
            **given,
        }
    )
    return model.fit(catboost.Pool(X, y, group_id=qid, group_weight=weight), eval_set=eval_set)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_is_catboost(data, objective, weighted):
    X, y, qid = data
    queries = np.random.default_rng(3).uniform(0.5, 2, 20) if weighted else None
    model = CatBoostRanker(objective, **ONE).fit(X, y, qid=qid, query_weight=queries)
    expected = direct(X, y, qid, objective=objective, weight=queries[qid] if weighted else None)
    assert_allclose(model.predict(X), expected.predict(X), **NEAR)
    assert model.booster_.tree_count_ == model.n_trees_ == 15
    importances = expected.get_feature_importance(type="PredictionValuesChange")
    assert_allclose(model.feature_importances_, importances, rtol=1e-9, atol=1e-9)
    if weighted:
        plain = CatBoostRanker(objective, **ONE).fit(X, y, qid=qid)
        assert not np.allclose(model.predict(X), plain.predict(X))


def test_its_trees_are_plain_numbers(data):
    X, y, qid = data
    model = CatBoostRanker(**ONE).fit(X, y, qid=qid)
    scores = np.full(len(X), model.trees_.constant)
    for tree in model.trees_.trees:
        above = X[:, list(tree.columns)].astype(np.float32) > np.array(tree.borders, dtype=np.float32)
        scores += np.array(tree.leaves)[above @ (1 << np.arange(len(tree.columns)))]
    assert_allclose(model.predict(X), scores, **NEAR)
    assert sum(model.trees_.trees[0].weights) == len(X)


def test_the_best_candidate_on_the_validation_queries_is_taken(data, validation):
    X, y, qid = data
    model = CatBoostRanker(**FEW).fit(X, y, qid=qid, **evaluation(validation))
    result = model.fit_result_
    assert result.validated_on == "15 validation queries"
    assert [t.setting["trees"] for t in result.trials] == [5, 10, 12] * 4
    assert [(t.setting["depth"], t.setting["l2_leaf_reg"]) for t in result.trials[::3]] == [
        (2, 10.0), (2, "default"), (3, 10.0), (3, "default")
    ]  # fmt: skip
    names = [f"ndcg@{k}" for k in range(1, 11)]
    for trial in result.trials:
        setting = {name: None if value == "default" else value for name, value in trial.setting.items()}
        trees = setting.pop("trees")
        alone = CatBoostRanker(**setting, n_estimators=trees, step=trees).fit(X, y, qid=qid)
        values = evaluate(validation[1], alone.predict(validation[0]), validation[2], metrics=names)
        assert trial.criterion == pytest.approx(np.mean(list(values.values())), abs=1e-12)
        assert trial.value == pytest.approx(evaluate(y, alone.predict(X), qid, metrics=["ndcg"])["ndcg"])
        if trial.chosen:
            assert_allclose(alone.predict(X), model.predict(X), **NEAR)
            assert model.n_trees_ == trees
    assert result.chosen.criterion == max(t.criterion for t in result.trials)


def test_without_a_step_catboost_takes_the_number_of_trees_by_its_own_metric(data, validation):
    X, y, qid = data
    own = {"depth": 6, "l2_leaf_reg": None, "learning_rate": None, "n_estimators": 60, "step": None}
    model = CatBoostRanker(**own).fit(X, y, qid=qid, **evaluation(validation))
    held_out = catboost.Pool(validation[0], validation[1], group_id=validation[2])
    plain = catboost.CatBoost(
        {"loss_function": "YetiRank", "iterations": 60, "random_seed": 0, "verbose": False, "thread_count": 1,
         "allow_writing_files": False}
    ).fit(catboost.Pool(X, y, group_id=qid), eval_set=held_out)  # fmt: skip
    assert plain.tree_count_ < 60
    assert model.n_trees_ == plain.tree_count_
    assert_allclose(model.predict(X), plain.predict(X), **NEAR)
    (trial,) = model.fit_result_.trials
    assert trial.setting == {
        "depth": 6, "l2_leaf_reg": "default", "learning_rate": "default", "trees": plain.tree_count_
    }  # fmt: skip
    names = [f"ndcg@{k}" for k in range(1, 11)]
    values = evaluate(validation[1], model.predict(validation[0]), validation[2], metrics=names)
    assert trial.criterion == pytest.approx(np.mean(list(values.values())), abs=1e-12)
    assert model.fit_result_.validated_on == "15 validation queries"
    alone = CatBoostRanker(**own).fit(X, y, qid=qid)
    assert alone.fit_result_.validated_on.endswith("queries held out")
    with pytest.raises(ValueError, match=r"step=None takes one combination .* got 6"):
        CatBoostRanker(step=None).fit(X, y, qid=qid)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_what_no_linear_ranker_can(objective):
    train, test = ranking_data(60, 5), ranking_data(100, 6)
    linear = sinkprop.baselines.RegressionRanker().fit(*train[:2], qid=train[2])
    settings = {**ONE, "depth": 5, "n_estimators": 150, "step": 150}
    trees = CatBoostRanker(objective, **settings).fit(*train[:2], qid=train[2])
    assert trees.score(*test[:2], qid=test[2]) > linear.score(*test[:2], qid=test[2]) + 0.15


def test_labels_of_any_size(data):
    X, y, qid = data
    for objective in OBJECTIVES:
        for labels in (y / 3, y * 400):
            model = CatBoostRanker(objective, **ONE).fit(X, labels, qid=qid)
            assert_allclose(
                model.predict(X),
                direct(X, labels, qid, objective=objective).predict(X),
                rtol=1e-12,
                atol=1e-12,
            )


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "stochasticrank"])
def test_long_queries(capfd, objective):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(10_011, 1)), np.array(["long"] * 10_001 + ["short"] * 10)
    y = (X[:, 0] > 1).astype(float)
    model = CatBoostRanker(objective, **{**ONE, "n_estimators": 2, "step": 2}).fit(X, y, qid=qid)
    assert model.score(X, y, qid=qid) > 0.9
    assert capfd.readouterr() == ("", "")


def test_missing_values_are_taken_and_infinite_ones_are_not(data, tmp_path):
    X, y, qid = data
    holes = X.copy()
    holes[np.random.default_rng(0).uniform(size=X.shape) < 0.3] = np.nan
    model = CatBoostRanker(**ONE).fit(holes, y, qid=qid)
    assert_allclose(model.predict(holes), direct(holes, y, qid).predict(holes), **NEAR)
    # values that are missing only later count as the smallest
    later = CatBoostRanker(**ONE).fit(X, y, qid=qid)
    assert_allclose(later.predict(holes), later.predict(np.where(np.isnan(holes), -1e30, holes)), **NEAR)
    model.save(tmp_path / "m.model")
    assert_array_equal(CatBoostRanker.load(tmp_path / "m.model").predict(holes), model.predict(holes))
    holes[7, 2] = np.inf
    with pytest.raises(ValueError, match="X must be finite, or NaN for missing; row 7, column 2 holds inf"):
        model.predict(holes)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_data_gives_a_finite_model(capfd, name, objective):
    X, y, qid = AWKWARD[name]
    model = CatBoostRanker(objective, **FEW).fit(X, y, qid=qid)
    assert np.isfinite(model.predict(X)).all()
    assert len(model.fit_result_.trials) == 12
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))
    own = CatBoostRanker(objective, depth=2, l2_leaf_reg=None, n_estimators=5, step=None).fit(X, y, qid=qid)
    assert np.isfinite(own.predict(X)).all()
    assert capfd.readouterr() == ("", "")


def test_where_there_is_nothing_to_learn_there_are_no_trees(tmp_path, data):
    X, y, qid = data
    for given in ((X, y * 0), (X * 0, y)):
        model = CatBoostRanker(**FEW).fit(*given, qid=qid)
        assert model.n_trees_ == 0
        assert_array_equal(model.predict(X), np.zeros(len(X)))
        assert_array_equal(model.feature_importances_, np.zeros(4))
        model.save(tmp_path / "m.model")
        assert_array_equal(sinkprop.load_model(tmp_path / "m.model").predict(X), np.zeros(len(X)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "ndcg"}, "objective must be 'yetirank' or 'yetirank-ndcg' or 'queryrmse' or"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"depth": 17}, "depth must be at most 16; got 17"),
        ({"depth": ()}, "depth must be a number, or several; got none"),
        ({"l2_leaf_reg": ()}, "l2_leaf_reg must be a number, or several; got none"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0"),
        ({"l2_leaf_reg": [None, "a"]}, "l2_leaf_reg must be a finite number above 0"),
        ({"n_estimators": 0}, "n_estimators must be at least 1"),
        ({"step": 0}, "step must be at least 1"),
        ({"normalization": "standard"}, "normalization must be 'none' or 'query'"),
    ],
)
def test_wrong_parameters_are_errors(data, parameters, message):
    X, y, qid = data
    with pytest.raises(ValueError, match=message):
        CatBoostRanker(**parameters).fit(X, y, qid=qid)


def test_there_are_as_many_candidates_as_for_lightgbm():
    ours, theirs = CatBoostRanker(), LightGBMRanker()
    assert ours._sizes() == theirs._sizes()
    assert len(ours._grid()) == len(theirs._grid()) == 6
    assert {"depth": 6, "l2_leaf_reg": None, "learning_rate": 0.05} in ours._grid()


def test_the_methods_of_compare():
    def queries(seed):
        return sinkprop.Queries(*ranking_data(8, seed))

    names = [name for name in METHODS if name.startswith("catboost-")]
    assert names == [
        "catboost-yetirank", "catboost-ndcg", "catboost-queryrmse", "catboost-stochasticrank",
        "catboost-default",
    ]  # fmt: skip
    rankers = {name: METHODS[name].make() for name in names}
    assert [ranker.objective for ranker in rankers.values()] == [*OBJECTIVES, "yetirank"]
    own = rankers["catboost-default"]
    assert (own.n_estimators, own.step, len(own._grid())) == (1000, None, 1)
    for name, ranker in rankers.items():
        ranker.set_params(**({"n_estimators": 12} if name == "catboost-default" else FEW))
    fold = sinkprop.Fold("f", queries(1), queries(2), queries(3))
    found = compare([fold], rankers, metrics="ndcg@5", n_jobs=1)
    for name in names:
        assert 0 < found.mean("data", name, "ndcg@5") <= 1
    assert set(names) <= set(parse_methods("trees"))
