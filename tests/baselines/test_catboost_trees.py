"""CatBoostRanker, against CatBoost itself."""

import multiprocessing
import pickle
import sys

import numpy as np
import pytest
from forking import ALL_STEPS, steps_of_a_fork
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tree_problems import AWKWARD, evaluation, ranking_data

import sinkprop
from sinkprop import Selection, evaluate
from sinkprop.baselines import CatBoostRanker, LightGBMRanker
from sinkprop.experiment import METHODS, compare, parse_methods
from sinkprop.model_files import ModelFileError, read_model, write_model

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


def test_cross_validation(data):
    X, y, qid = data
    model = CatBoostRanker(**FEW, selection=Selection("cross-validation", n_splits=3)).fit(X, y, qid=qid)
    assert model.fit_result_.validated_on == "3-fold cross-validation over 20 queries"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_what_no_linear_ranker_can(objective):
    train, test = ranking_data(60, 5), ranking_data(100, 6)
    linear = sinkprop.baselines.RegressionRanker().fit(*train[:2], qid=train[2])
    settings = {**ONE, "depth": 5, "n_estimators": 150, "step": 150}
    trees = CatBoostRanker(objective, **settings).fit(*train[:2], qid=train[2])
    assert trees.score(*test[:2], qid=test[2]) > linear.score(*test[:2], qid=test[2]) + 0.15


def test_rows_in_any_order_and_ids_of_any_kind(data):
    X, y, qid = data
    model = CatBoostRanker(**ONE).fit(X, y, qid=qid)
    place = np.arange(len(y)) - np.append(0, np.cumsum(np.bincount(qid)))[qid]
    order = np.lexsort((qid, place))
    names = np.array([f"q{q:02}" for q in qid])
    mixed = CatBoostRanker(**ONE).fit(X[order], y[order], qid=names[order].tolist())
    assert_array_equal(mixed.predict(X), model.predict(X))
    assert_array_equal(model.rank(X[order], qid=names[order]), model.rank(X, qid=qid)[order])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_model_does_not_depend_on_the_number_of_threads(tmp_path, objective):
    X, y, qid = ranking_data(300, 2)
    files = []
    for n_threads in (1, 2, 3):
        model = CatBoostRanker(objective, **{**ONE, "n_estimators": 5, "step": 5}, n_threads=n_threads)
        model.fit(X, y, qid=qid).save(tmp_path / f"{n_threads}.model")
        files.append((tmp_path / f"{n_threads}.model").read_bytes())
    assert files[0] == files[1] == files[2]


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


def test_weights(data):
    X, y, qid = data
    few = CatBoostRanker(**ONE).fit(X[qid > 4], y[qid > 4], qid=qid[qid > 4])
    weight = {q: float(q > 4) for q in range(20)}
    assert_array_equal(
        CatBoostRanker(**ONE).fit(X, y, qid=qid, query_weight=weight).predict(X), few.predict(X)
    )
    with pytest.raises(ValueError, match="takes no sample_weight except equal weights: CatBoost"):
        CatBoostRanker(**ONE).fit(X, y, qid=qid, sample_weight=np.arange(len(y)))
    with pytest.raises(ValueError, match="query_weight must have a finite sum above 0"):
        CatBoostRanker(**ONE).fit(X, y, qid=qid, query_weight=np.zeros(20))


def test_a_saved_model_is_the_same_model(tmp_path, data):
    X, y, qid = data
    model = CatBoostRanker(**FEW).fit(X, y, qid=qid)
    path = tmp_path / "m.model"
    model.save(path)
    for loaded in (CatBoostRanker.load(path), sinkprop.load_model(path), pickle.loads(pickle.dumps(model))):
        assert type(loaded) is CatBoostRanker
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.fit_result_.trials == model.fit_result_.trials
        assert loaded.n_trees_ == model.n_trees_
        assert loaded.trees_ == model.trees_
        loaded.save(tmp_path / "again.model")
        assert (tmp_path / "again.model").read_bytes() == path.read_bytes()
        assert_array_equal(clone(loaded).fit(X, y, qid=qid).predict(X), model.predict(X))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_it_survives_a_fork():
    assert steps_of_a_fork(CatBoostRanker, **ONE) == ALL_STEPS


def test_files_that_are_not_such_a_model(tmp_path, data):
    X, y, qid = data
    path = tmp_path / "m.model"
    CatBoostRanker(**ONE).fit(X, y, qid=qid).save(path)
    state = read_model(path).state
    whole = state["fitted"]["model"]["catboost"]
    write_model(path, "CatBoostRanker", {**state, "n_features": 3})
    with pytest.raises(ModelFileError, match="must be an array of numbers of shape"):
        CatBoostRanker.load(path)
    state["fitted"]["model"]["catboost"] = whole[: len(whole) // 2]
    write_model(path, "CatBoostRanker", state)
    with pytest.raises(ModelFileError, match="not trees of CatBoost"):
        CatBoostRanker.load(path)
    del state["fitted"]["model"]["catboost"]
    write_model(path, "CatBoostRanker", state)
    with pytest.raises(ModelFileError, match="not a CatBoostRanker"):
        CatBoostRanker.load(path)
    with pytest.raises(NotFittedError):
        CatBoostRanker().predict(X)


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


def test_where_catboost_is_missing(monkeypatch, data, tmp_path):
    X, y, qid = data
    path = tmp_path / "m.model"
    CatBoostRanker(**ONE).fit(X, y, qid=qid).save(path)
    monkeypatch.setitem(sys.modules, "catboost", None)
    how = r'needs catboost: pip install "sinkprop\[catboost\]"'
    with pytest.raises(ImportError, match=f"CatBoostRanker {how}"):
        CatBoostRanker().fit(X, y, qid=qid)
    with pytest.raises(ImportError, match=f"CatBoostRanker {how}"):
        CatBoostRanker.load(path)
    with pytest.raises(ImportError, match=f"method 'catboost-ndcg' {how}"):
        parse_methods("regression,catboost-ndcg")
    assert "catboost-ndcg" not in parse_methods("trees,regression")
