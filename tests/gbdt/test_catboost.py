"""The objective and the metric for CatBoost: that it sees whole queries, and refuses what would hide them."""

import copy
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from tree_problems import by_hand, hard_gain, qid_of, queries, slopes

from sinkprop import NDCG, evaluate
from sinkprop.gbdt import catboost_metric, catboost_objective
from sinkprop.gbdt.derivatives import GAIN
from sinkprop.gbdt.objectives.catboost import CatBoostRows

catboost = pytest.importorskip(
    "catboost", reason="catboost is not installed: it comes with the extra catboost"
)

SMALL = {
    "iterations": 10,
    "depth": 3,
    "learning_rate": 0.3,
    "thread_count": 2,
    "random_seed": 0,
    "verbose": False,
    "allow_writing_files": False,
}
BARE = {"bootstrap_type": "No", "random_strength": 0, "l2_leaf_reg": 0.5}


def objective_of(y, sizes, gain=GAIN, **more):
    return catboost_objective(gain, labels=y, qid=qid_of(sizes), **more)


def train(objective, X, *, pool=None, fit=None, metric="ndcg@10", kind=None, **parameters):
    given = {
        **SMALL,
        "loss_function": objective,
        "eval_metric": catboost_metric(metric, objective=objective),
        **parameters,
    }
    model = catboost.CatBoost(given) if kind is None else kind(**given)
    return model.fit(catboost.Pool(X, objective.label, **(pool or {})), **(fit or {}))


def ndcg(y, scores, sizes):
    return evaluate(y, scores, qid_of(sizes), "ndcg@10", "standard")["ndcg@10"]


@pytest.fixture
def calls(monkeypatch):
    """What CatBoost asked of objectives and what it was told: rows, scores, derivatives."""
    from sinkprop.gbdt.objectives.catboost import CatBoostObjective

    kept, plain = [], CatBoostObjective.calc_ders_range

    def watched(self, approxes, targets, weights):
        found = plain(self, approxes, targets, weights)
        kept.append((self.rows.find(targets), np.array(approxes), np.array(found)))
        return found

    monkeypatch.setattr(CatBoostObjective, "calc_ders_range", watched)
    return kept


@pytest.mark.parametrize("kind", [None, "CatBoostRegressor"])
def test_trees_raise_the_metric(kind):
    X, y, sizes = queries(60)
    objective = objective_of(y, sizes, "ndcg@10")
    model = train(objective, X, iterations=40, kind=kind and getattr(catboost, kind))
    assert ndcg(y, model.predict(X), sizes) > ndcg(y, np.zeros(len(y)), sizes) + 0.1


@pytest.mark.parametrize("n_queries", [20, 200])
@pytest.mark.parametrize("shuffled", [False, True])
def test_every_part_of_every_round_gets_the_derivatives_of_whole_queries(n_queries, shuffled, calls):
    X, y, sizes = queries(n_queries)
    qid = qid_of(sizes)
    if shuffled:
        order = np.random.default_rng(1).permutation(len(y))
        X, y, qid = X[order], y[order], qid[order]
    objective = catboost_objective(labels=y, qid=qid)
    model = train(objective, X, iterations=5)
    derivatives = by_hand(y, sizes) if not shuffled else objective._derivatives
    seen = np.zeros(len(y), dtype=int)
    for rows, scores, found in calls:
        seen[rows] += 1
        (iteration,) = {
            t for t in range(5) if np.allclose(staged(model, X, t)[rows], scores, rtol=0, atol=1e-12)
        }
        gradient, hessian = derivatives(staged(model, X, iteration))
        assert_allclose(found[:, 0], -gradient[rows], rtol=1e-5, atol=1e-7)
        assert_allclose(found[:, 1], -hessian[rows], rtol=1e-5, atol=1e-7)
    assert_array_equal(seen, 10)  # for splits and for leaves, in each of the rounds
    assert len(calls) > (20 if n_queries == 200 else 9)


def staged(model, X, trees):
    return model.predict(X, ntree_end=trees) if trees else np.zeros(len(X))


@pytest.mark.parametrize("weighted", ["", "rows", "queries", "both"])
@pytest.mark.parametrize("gain", ["ndcg", "ndcg(gain=linear)@5", "p@3", "rbp@0.7"])
def test_the_derivatives_are_those_of_the_weighted_sum(gain, weighted):
    _, y, sizes = queries(6, labels="real" if "linear" in gain else "graded")
    rng = np.random.default_rng(5)
    scores = rng.normal(size=len(y))
    rows = rng.uniform(0.5, 2, len(y)) if weighted in ("rows", "both") else None
    weights = np.array([1, 0, 2, 0.5, 3, 1.5]) if weighted in ("queries", "both") else None
    named = None if weights is None else dict(enumerate(weights))
    objective = objective_of(
        y, sizes, gain, sample_weight=rows, query_weight=named, init_score=scores, noise=0
    )
    found = np.array(objective.calc_ders_range(scores, objective.label, None))
    value = by_hand(y, sizes, gain, sample_weight=rows, query_weight=weights).value
    total = len(y) if weights is None else weights @ sizes
    assert_allclose(found[:, 0], total * slopes(value, scores), rtol=2e-4, atol=1e-7)
    assert (found[:, 1] <= 0).all()


def test_leaves_are_newton_steps_of_the_right_rows():
    X, y, sizes = queries(30)
    start = np.random.default_rng(0).normal(size=len(y))
    objective = objective_of(y, sizes, init_score=start, noise=0)  # a pool rounds them, and draws other noise
    model = train(objective, X, pool={"baseline": start}, iterations=1, depth=2, **BARE)
    gradient, hessian = by_hand(y, sizes, loss={"noise": 0})(start)
    leaf = model.calc_leaf_indexes(X)[:, 0]
    sums = [np.bincount(leaf, weights=d, minlength=4) for d in (gradient, hessian)]
    step = -0.3 * sums[0] / (sums[1] + BARE["l2_leaf_reg"])
    assert len(set(leaf)) == 4
    assert_allclose(model.get_leaf_values(), step, rtol=1e-5)


def test_the_order_of_the_rows_does_not_matter():
    X, y, sizes = queries(80)
    rng = np.random.default_rng(0)
    start, order = rng.normal(size=len(y)), rng.permutation(len(y))
    models = []
    for o in (np.arange(len(y)), order):
        objective = catboost_objective(labels=y[o], qid=qid_of(sizes)[o], init_score=start[o], noise=0)
        models.append(train(objective, X[o], pool={"baseline": start[o]}, **BARE))
    assert_allclose(models[0].predict(X), models[1].predict(X), atol=1e-9)
    assert np.ptp(models[0].predict(X)) > 0.5


@pytest.mark.parametrize(
    "setting",
    [
        {"bootstrap_type": "MVS"},
        {"bootstrap_type": "Bernoulli", "subsample": 0.5},
        {"bootstrap_type": "Bayesian", "bagging_temperature": 2.0},
        {"grow_policy": "Depthwise"},
        {"grow_policy": "Lossguide", "max_leaves": 6},
        {"leaf_estimation_method": "Gradient"},
        {"rsm": 0.5, "score_function": "L2"},
        {"monotone_constraints": [1, 0, 0, 0]},
        {"langevin": True},
        {"thread_count": 1},
    ],
    ids=lambda setting: "-".join(map(str, setting.values())),
)
def test_the_ways_of_boosting(setting, calls):
    X, y, sizes = queries(90)
    model = train(objective_of(y, sizes), X, **setting)
    assert model.tree_count_ == 10
    assert sum(len(rows) for rows, *_ in calls) == 20 * len(y)
    assert np.ptp(model.predict(X)) > 0.01


@pytest.mark.parametrize(
    "setting",
    [
        {"boosting_type": "Ordered"},
        {"leaf_estimation_iterations": 3},
        {"metric_period": 3},
        {"model_shrink_rate": 0.3},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_what_would_cut_queries_apart_is_refused(setting):
    X, y, sizes = queries(90)
    with pytest.raises(catboost.CatBoostError, match=next(iter(setting))):
        train(objective_of(y, sizes), X, **setting)


def test_the_metric_has_to_come_along():
    X, y, sizes = queries()
    objective = objective_of(y, sizes)
    with pytest.raises(catboost.CatBoostError, match="eval_metric=catboost_metric"):
        train(objective, X, eval_metric="RMSE")
    other = catboost_metric(objective=objective_of(y, sizes))
    with pytest.raises(catboost.CatBoostError, match="with the same objective"):
        train(objective, X, eval_metric=other)


def test_categorical_features():
    X, y, sizes = queries(60)
    rng = np.random.default_rng(0)
    color = rng.integers(0, 5, len(y))
    y = np.where(rng.random(len(y)) < 0.7, color % 3, y)
    table = np.column_stack([X, color]).astype(object)
    table[:, 4] = color
    given = {"pool": {"cat_features": [4]}, "iterations": 20}
    start = ndcg(y, np.zeros(len(y)), sizes)
    for setting in ({"one_hot_max_size": 5}, {"one_hot_max_size": 2, "has_time": True}):
        model = train(objective_of(y, sizes), table, **given, **setting)
        assert ndcg(y, model.predict(table), sizes) > start + 0.2
        assert model.get_feature_importance()[4] > 30
    with pytest.raises(catboost.CatBoostError, match="one_hot_max_size"):
        train(objective_of(y, sizes), table, **given, one_hot_max_size=2)


def test_missing_features_are_catboosts_matter():
    X, y, sizes = queries(40)
    X[::7, 0] = np.nan
    model = train(objective_of(y, sizes), X)
    assert ndcg(y, model.predict(X), sizes) > ndcg(y, np.zeros(len(y)), sizes)


def test_training_starts_from_a_model_or_a_baseline():
    X, y, sizes = queries(80)
    first = train(objective_of(y, sizes, noise=0), X, **BARE, iterations=4)
    whole = train(objective_of(y, sizes, noise=0), X, **BARE, iterations=9)
    scores = first.predict(X)
    objective = objective_of(y, sizes, init_score=scores, noise=0)
    second = train(objective, X, fit={"init_model": first}, **BARE, iterations=5)
    assert second.tree_count_ == 9
    assert_allclose(second.predict(X), whole.predict(X), atol=1e-7)
    rest = train(objective, X, pool={"baseline": scores}, **BARE, iterations=5)
    assert_allclose(scores + rest.predict(X), whole.predict(X), atol=1e-5)  # a baseline is float32
    constant = objective_of(y, sizes, init_score=np.full(len(y), 0.1), noise=0)
    same = train(constant, X, pool={"baseline": np.full(len(y), 0.1)}, **BARE, iterations=9)
    assert_allclose(same.predict(X), whole.predict(X), atol=1e-6)
    with pytest.raises(catboost.CatBoostError, match="init_score"):
        train(objective_of(y, sizes), X, fit={"init_model": first})


def test_labels_of_any_value_and_long_lists():
    X, y, sizes = queries(sizes=[5, 5, 12_000], labels="real")
    objective = objective_of(y, sizes)
    model = train(objective, X, l2_leaf_reg=1e-3)
    assert evaluate_ndcg(y, model.predict(X), sizes) > evaluate_ndcg(y, np.zeros(len(y)), sizes) + 0.02


def evaluate_ndcg(y, scores, sizes):
    return evaluate(y, scores, qid_of(sizes), "ndcg", "standard")["ndcg"]


def test_early_stopping_keeps_the_round_that_is_best():
    X, y, sizes = queries(40)
    valid = [queries(20, 7), queries(10, 8)]
    sets = [(yv, qid_of(s)) for _, yv, s in valid]
    objective = objective_of(y, sizes, eval_set=sets)
    pools = [catboost.Pool(v[0], label) for v, label in zip(valid, objective.eval_labels, strict=True)]
    model = train(
        objective,
        X,
        metric="map",
        iterations=200,
        early_stopping_rounds=5,
        use_best_model=True,
        fit={"eval_set": pools},
    )
    record = model.evals_result_
    values = record["validation_1"]["CatBoostMetric"]  # CatBoost goes by the last
    assert model.tree_count_ == 1 + np.argmax(values) < 200
    for (Xv, yv, s), name in zip(valid, ("validation_0", "validation_1"), strict=True):
        found = evaluate(yv, model.predict(Xv), qid_of(s), "map", "standard")["map"]
        assert_allclose(record[name]["CatBoostMetric"][model.tree_count_ - 1], found)
    at_best = evaluate(y, model.predict(X), qid_of(sizes), "map", "standard")["map"]
    assert_allclose(record["learn"]["CatBoostMetric"][model.tree_count_ - 1], at_best)


def test_the_metric_under_a_convention_and_of_a_gain():
    _, y, sizes = queries()
    scores = np.random.default_rng(0).normal(size=len(y))
    objective = objective_of(y, sizes)
    order = np.random.default_rng(1).permutation(len(y))  # CatBoost may show the rows in any order
    for metric, expected in (
        (
            catboost_metric("ndcg@5", objective=objective, convention="letor", empty=1),
            evaluate(y, scores, qid_of(sizes), "ndcg@5", "letor", empty=1)["ndcg@5"],
        ),
        (
            catboost_metric(NDCG(3), objective=objective, convention="letor"),
            hard_gain(NDCG(3, discount="letor"), y, scores, sizes),
        ),
        (
            catboost_metric(NDCG(3), objective=objective),
            hard_gain(NDCG(3, discount="log2"), y, scores, sizes),
        ),
    ):
        error, weight = metric.evaluate([scores[order]], objective.label[order], None)
        assert_allclose(metric.get_final_error(error, weight), expected)
        assert metric.is_max_optimal() is True
    assert repr(metric).startswith("catboost_metric('ndcg(discount=log2,gain=exponential)@3'")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["Base", "Exp"])
def test_the_metric_is_catboosts_ndcg_under_its_convention(kind, tied):
    """Linear gain unless it is told otherwise, 1 for a query without a relevant document, ties at worst."""
    from catboost.utils import eval_metric

    _, y, sizes = queries()
    scores = np.random.default_rng(0).normal(size=len(y)).round(0 if tied else 9)
    theirs = eval_metric(y, scores, f"NDCG:top=5;type={kind}", group_id=qid_of(sizes))
    gain = {"Base": "linear", "Exp": "exponential"}[kind]
    objective = objective_of(y, sizes)
    ours = catboost_metric("ndcg@5", objective=objective, gain=gain, empty=1, ties="worst")
    assert_allclose(ours.evaluate([scores], objective.label, None)[0], theirs[0], rtol=1e-12)


def test_queries_need_not_stand_together():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 3, 30), rng.normal(size=30)
    qid = np.array(list(itertools.islice(itertools.cycle("cab"), 30)))
    objective = catboost_objective(labels=y, qid=qid)
    metric = catboost_metric("ndcg@4", objective=objective)
    expected = evaluate(y, scores, qid, "ndcg@4", "standard")["ndcg@4"]
    assert_allclose(metric.evaluate([scores], objective.label, None)[0], expected)


def test_targets_tell_every_row_and_go_by_the_labels():
    y = np.array([3.0, 0, 1, 0, 2.5])
    objective = catboost_objective(labels=y, qid=np.zeros(5), eval_set=[([1, 0], [4, 4]), ([5], [1])])
    assert_array_equal(np.lexsort((np.arange(5), y)), np.argsort(objective.label))
    every = np.concatenate([objective.label, *objective.eval_labels])
    assert len(np.unique(every.astype(np.float32))) == 8
    last = CatBoostRows.of("labels", np.zeros(1000), np.zeros(1000), 2**24 - 1000)
    assert_array_equal(last.find(last.target.astype(np.float32)), np.arange(1000))
    assert last.find(last.target - last.target[1] + last.target[0]) is None
    with pytest.raises(ValueError, match=r"at most 2\*\*24 rows"):
        CatBoostRows.of("labels", [0.0], [0], 2**24)


def test_the_pools_must_have_the_objectives_labels_and_no_weights():
    X, y, sizes = queries()
    objective = objective_of(y, sizes, eval_set=[(y, qid_of(sizes))])
    given = {**SMALL, "loss_function": objective, "eval_metric": catboost_metric(objective=objective)}
    with pytest.raises(catboost.CatBoostError, match="must be this objective's `label`"):
        catboost.CatBoost(given).fit(catboost.Pool(X, y))
    with pytest.raises(catboost.CatBoostError, match="`label` and `eval_labels`"):
        train(objective, X, fit={"eval_set": catboost.Pool(X, y)})
    with pytest.raises(catboost.CatBoostError, match="the Pool must have no weights"):
        train(objective, X, pool={"weight": np.full(len(y), 2.0)})
    part = catboost.Pool(X, objective.label).slice(np.arange(50))
    with pytest.raises(catboost.CatBoostError, match="every row of its data set once"):
        catboost.CatBoost(given).fit(part)
    with pytest.raises(catboost.CatBoostError, match="every row of its data set once"):
        catboost.cv(catboost.Pool(X, objective.label), given, fold_count=3)


def test_arguments_that_do_not_fit():
    _, y, sizes = queries()
    qid = qid_of(sizes)
    for arguments, message in (
        ({"labels": y, "qid": qid[:-1]}, "qid must have one id per row"),
        ({"labels": y, "qid": None}, "qid must hold the query of each row"),
        ({"labels": y - 1, "qid": qid}, "labels must be finite and not below 0"),
        ({"labels": np.full(len(y), np.nan), "qid": qid}, "labels must be finite"),
        ({"labels": [], "qid": []}, "at least one document"),
        ({"labels": y, "qid": qid, "init_score": [1.0]}, "init_score must have one value per row"),
        ({"labels": y, "qid": qid, "sample_weight": [1.0]}, "sample_weight"),
        ({"labels": y, "qid": qid, "query_weight": {0: 1.0}}, "query_weight must have a weight for every"),
        ({"labels": y, "qid": qid, "eval_set": [y]}, r"pairs \(labels, qid\)"),
        ({"labels": y, "qid": qid, "eval_set": [(y - 1, qid)]}, "labels must be finite and not below 0"),
    ):
        with pytest.raises(ValueError, match=message):
            catboost_objective(**arguments)
    with pytest.raises(TypeError, match=r"catboost_objective\(\) has no argument 'widht'"):
        catboost_objective(labels=y, qid=qid, widht=1)
    with pytest.raises(TypeError, match="must be a catboost_objective"):
        catboost_metric(objective="ndcg")
    with pytest.raises(ValueError, match="one metric, as CatBoost takes no more"):
        catboost_metric("ndcg@1,map", objective=catboost_objective(labels=y, qid=qid))


def test_one_objective_serves_one_training_after_another():
    X, y, sizes = queries(60)
    objective = objective_of(y, sizes)
    a, b = (train(objective, X).predict(X) for _ in range(2))
    assert_array_equal(a, b)
    model = catboost.CatBoostRegressor(
        **SMALL, loss_function=objective, eval_metric=catboost_metric(objective=objective)
    )
    assert_array_equal(clone(model).fit(X, objective.label).predict(X), a)


def test_copies_stay_together_and_pickles_too():
    X, y, sizes = queries(60)
    objective = objective_of(y, sizes)
    pair = {"loss_function": objective, "eval_metric": catboost_metric(objective=objective)}
    expected = train(objective, X).predict(X)
    for given in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert given["eval_metric"].objective is given["loss_function"]
        model = catboost.CatBoost({**SMALL, **given}).fit(catboost.Pool(X, objective.label))
        assert_array_equal(model.predict(X), expected)
    assert copy.copy(objective) is objective
    assert repr(objective) == "catboost_objective('ndcg(discount=log2)', labels=..., qid=...)"


def test_a_saved_model_predicts_the_same(tmp_path):
    X, y, sizes = queries(30)
    model = train(objective_of(y, sizes), X)
    model.save_model(str(tmp_path / "model.cbm"))
    again = catboost.CatBoost().load_model(str(tmp_path / "model.cbm"))
    assert_array_equal(again.predict(X), model.predict(X))


def test_the_number_of_threads_changes_nothing():
    X, y, sizes = queries(100)
    a, b = (train(objective_of(y, sizes, n_threads=n), X, thread_count=n, **BARE).predict(X) for n in (1, 2))
    assert_allclose(a, b, atol=1e-12)


def test_catboost_is_not_imported_with_the_objective():
    code = (
        "import sys, sinkprop.gbdt as g; g.lightgbm_objective, g.xgboost_metric, g.catboost_metric; "
        "print([m for m in ('lightgbm', 'xgboost', 'catboost', 'sklearn', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
