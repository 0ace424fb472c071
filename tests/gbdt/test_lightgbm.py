"""The objective and the metrics for LightGBM, against LightGBM's own metrics and by differences."""

import copy
import gc
import inspect
import pickle
import weakref
from dataclasses import FrozenInstanceError

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from tree_problems import by_hand, hard_gain, qid_of, queries, slopes

import sinkprop
from sinkprop import NDCG, RBP, Precision, RankLinear, evaluate
from sinkprop.gbdt import lightgbm_metric, lightgbm_objective
from sinkprop.gbdt.objectives.lightgbm import LightGBMObjective
from sinkprop.gbdt.objectives.metrics import gain_values

lightgbm = pytest.importorskip(
    "lightgbm", reason="lightgbm is not installed: it comes with the extra lightgbm"
)

SMALL = {"num_leaves": 5, "min_data_in_leaf": 5, "verbosity": -1, "num_threads": 1, "seed": 0}
GAINS = ["ndcg", "ndcg(discount=log2,gain=linear)@5", "p@3", "rbp@0.7"]
OWN = RankLinear(gain=np.sqrt, discount=np.reciprocal)


def dataset(X, y, sizes, **more):
    return lightgbm.Dataset(X, y, group=sizes, params={"verbosity": -1}, **more)


def train(objective, data, rounds=10, **parameters):
    return lightgbm.train({**SMALL, "objective": objective, **parameters}, data, rounds)


def ranker(objective, rounds=10, **parameters):
    return lightgbm.LGBMRanker(objective=objective, n_estimators=rounds, **{**SMALL, **parameters})


def validation_of(X, y, sizes):
    """An evaluation set of LGBMRanker.fit, as this version of LightGBM wants it."""
    if "eval_X" in inspect.signature(lightgbm.LGBMRanker.fit).parameters:
        return {"eval_X": (X,), "eval_y": (y,), "eval_group": [sizes]}
    return {"eval_set": [(X, y)], "eval_group": [sizes]}


def staged(booster, X):
    return [booster.predict(X, num_iteration=i + 1) for i in range(booster.num_trees())]


class Recording:
    """An objective that keeps what it was called with and what it returned."""

    def __init__(self, objective):
        self.objective, self.calls = objective, []

    def __call__(self, scores, data):
        self.calls.append((scores.copy(), *self.objective(scores, data)))
        return self.calls[-1][1:]

    def __deepcopy__(self, _):
        return self


def test_one_object_serves_train_and_the_ranker():
    X, y, sizes = queries()
    objective = lightgbm_objective("ndcg@10")
    booster = train(objective, dataset(X, y, sizes))
    fitted = ranker(objective).fit(X, y, group=sizes)
    assert booster.num_trees() == 10
    assert_array_equal(fitted.predict(X), booster.predict(X))
    start, end = (evaluate(y, s, qid_of(sizes))["ndcg@10"] for s in (np.zeros(len(y)), booster.predict(X)))
    assert end > start + 0.1


@pytest.mark.parametrize("gain", [*GAINS, OWN], ids=str)
@pytest.mark.parametrize("weighted", ["", "rows", "queries", "both"])
def test_the_gradient_is_that_of_the_weighted_sum(gain, weighted):
    X, y, sizes = queries(6, labels="real" if gain == GAINS[1] else "graded")
    rng = np.random.default_rng(5)
    scores = rng.normal(size=len(y))
    rows = rng.uniform(0.5, 2, len(y)).astype(np.float32) if weighted in ("rows", "both") else None
    weights = np.array([1, 0, 2, 0.5, 3, 1.5]) if weighted in ("queries", "both") else None
    objective = lightgbm_objective(gain, query_weight=weights, noise=0)
    gradient, curvature = objective(scores, dataset(X, y, sizes, weight=rows).construct())
    value = by_hand(y, sizes, gain, sample_weight=rows, query_weight=weights).value
    total = len(y) if weights is None else weights @ sizes
    assert gradient.dtype == curvature.dtype == np.float32
    assert_allclose(gradient, -total * slopes(value, scores), rtol=2e-4, atol=1e-7)
    assert (curvature >= 0).all()


def test_query_weights_are_in_the_order_of_the_queries():
    """A query of weight 3 is as three copies of it, and one of weight 0 as none."""
    _, y, sizes = queries(8)
    scores = np.random.default_rng(0).normal(size=len(y))
    gradient, _ = lightgbm_objective(query_weight=np.arange(8.0), noise=0)(y, scores, None, sizes)
    plain, _ = lightgbm_objective(noise=0)(y, scores, None, sizes)
    weights = np.arange(8)
    documents = np.average(sizes, weights=weights) / np.mean(sizes)  # a loss counts those of a query
    assert_allclose(gradient, documents * weights[qid_of(sizes)] * plain, rtol=1e-6)
    order = np.repeat(np.arange(8), weights)
    rows = np.concatenate([np.flatnonzero(qid_of(sizes) == q) for q in order])
    copied, _ = lightgbm_objective(noise=0)(y[rows], scores[rows], None, np.asarray(sizes)[order])
    assert_allclose(gradient[rows], weights[qid_of(sizes)[rows]] * copied, rtol=1e-6)


def test_the_weights_of_the_dataset_can_be_those_of_queries():
    X, y, sizes = queries(8)
    weights = np.arange(1.0, 9)
    by_row = dataset(X, y, sizes, weight=weights[qid_of(sizes)])
    a = train(lightgbm_objective(query_weight="dataset"), by_row)
    b = train(lightgbm_objective(query_weight=weights), dataset(X, y, sizes))
    assert_array_equal(a.predict(X), b.predict(X))
    with pytest.raises(ValueError, match="which has none"):
        train(lightgbm_objective(query_weight="dataset"), dataset(X, y, sizes))
    uneven = dataset(X, y, sizes, weight=np.arange(1.0, len(y) + 1))
    with pytest.raises(ValueError, match="equal, finite values within each query"):
        train(lightgbm_objective(query_weight="dataset"), uneven)


def test_weights_that_divide_out_are_told_of():
    X, y, sizes = queries(8)
    data = dataset(X, y, sizes, weight=np.arange(1.0, 9)[qid_of(sizes)])
    with pytest.warns(UserWarning, match="query_weight='dataset'"):
        weighted = train(lightgbm_objective("ndcg"), data)
    assert_allclose(weighted.predict(X), train(lightgbm_objective("ndcg"), dataset(X, y, sizes)).predict(X))
    train(lightgbm_objective("p@3"), data)  # a gain that is no share of the best does count them
    train(lightgbm_objective("ndcg"), dataset(X, y, sizes, weight=np.full(len(y), 2.0)))


def test_labels_have_no_limit_of_31_and_any_value():
    X, y, sizes = queries(30, labels="real")
    assert y.max() > 31
    assert (y != np.round(y)).any()
    with pytest.raises(lightgbm.basic.LightGBMError):
        train("lambdarank", dataset(X, y, sizes))
    seen = Recording(lightgbm_objective("ndcg@10"))
    booster = train(seen, dataset(X, y, sizes), 20)
    scores, gradient, curvature = seen.calls[3]
    expected = by_hand(y, sizes, "ndcg@10")(scores)
    assert_array_equal(gradient, expected[0])
    assert_array_equal(curvature, expected[1])
    ends = [evaluate(y, s, qid_of(sizes))["ndcg@10"] for s in (np.zeros(len(y)), booster.predict(X))]
    assert ends[1] > ends[0] + 0.1


def test_labels_beyond_31_need_lightgbms_own_metrics_off():
    X, y, sizes = queries(30, labels="real")
    given = {"eval_metric": lightgbm_metric("ndcg@5"), **validation_of(X, y, sizes)}
    with pytest.raises(lightgbm.basic.LightGBMError, match="label"):
        ranker(lightgbm_objective()).fit(X, y, group=sizes, **given)
    fitted = ranker(lightgbm_objective(), metric="None").fit(X, y, group=sizes, **given)
    assert list(fitted.best_score_["training"]) == ["ndcg@5"]


def test_lists_longer_than_lightgbm_takes():
    X, y, sizes = queries(sizes=[5, 5, 12_000])
    with pytest.raises(lightgbm.basic.LightGBMError, match="10000"):
        train("lambdarank", dataset(X, y, sizes))
    data = dataset(X, y, sizes)
    record = {}
    lightgbm.train(
        {**SMALL, "objective": lightgbm_objective("ndcg"), "metric": "None"},
        data,
        15,
        valid_sets=[data],
        feval=lightgbm_metric("ndcg"),
        callbacks=[lightgbm.record_evaluation(record)],
    )
    ((_, start, _),) = lightgbm_metric("ndcg")(np.zeros(len(y)), data)
    assert record["training"]["ndcg"][-1] > start + 0.02


def test_the_first_scores_are_zero_or_the_initial_ones():
    X, y, sizes = queries()
    start = np.random.default_rng(3).normal(size=len(y))
    for init_score, first in ((None, np.zeros(len(y))), (start, start)):
        seen = Recording(lightgbm_objective())
        train(seen, dataset(X, y, sizes, init_score=init_score), 2)
        assert_array_equal(seen.calls[0][0], first)
        assert_array_equal(seen.calls[0][1], by_hand(y, sizes)(first)[0])


def test_training_goes_on_from_a_model():
    X, y, sizes = queries()
    objective = lightgbm_objective()
    whole = train(objective, dataset(X, y, sizes, free_raw_data=False), 10)
    first = train(objective, dataset(X, y, sizes), 4)
    second = lightgbm.train(
        {**SMALL, "objective": objective}, dataset(X, y, sizes, free_raw_data=False), 6, init_model=first
    )
    assert second.num_trees() == 10
    assert_allclose(second.predict(X), whole.predict(X), atol=1e-6)


def test_a_saved_model_predicts_the_same(tmp_path):
    X, y, sizes = queries()
    booster = train(lightgbm_objective(), dataset(X, y, sizes))
    booster.save_model(tmp_path / "model.txt")
    assert_array_equal(lightgbm.Booster(model_file=tmp_path / "model.txt").predict(X), booster.predict(X))


@pytest.mark.parametrize(
    "setting",
    [
        {"boosting": "dart", "drop_rate": 0.5, "drop_seed": 1},
        {"boosting": "goss"},
        {"bagging_freq": 1, "bagging_fraction": 0.5},
        {"feature_fraction": 0.5, "extra_trees": True},
        {"lambda_l2": 1.0, "linear_tree": True},
    ],
    ids=lambda setting: "-".join(map(str, setting.values())),
)
def test_the_ways_of_boosting(setting):
    X, y, sizes = queries(30)
    seen = Recording(lightgbm_objective())
    scores = train(seen, dataset(X, y, sizes), 20, **setting).predict(X)
    for at, gradient, _ in seen.calls[::5]:
        assert_array_equal(gradient, by_hand(y, sizes)(at)[0])
    plain = evaluate(y, np.zeros(len(y)), qid_of(sizes))["ndcg@10"]
    assert evaluate(y, scores, qid_of(sizes))["ndcg@10"] > plain + 0.05


def test_random_forests_are_refused_by_lightgbm():
    with pytest.raises(lightgbm.basic.LightGBMError, match="RF mode do not support custom objective"):
        train(lightgbm_objective(), dataset(*queries()), boosting="rf", bagging_freq=1, bagging_fraction=0.7)


def test_a_dataset_without_groups_is_refused():
    X, y, _ = queries()
    with pytest.raises(ValueError, match="group must hold the number of documents of each query"):
        train(lightgbm_objective(), lightgbm.Dataset(X, y))
    with pytest.raises(ValueError, match="Pass group="):
        lightgbm_metric()(np.zeros(len(y)), lightgbm.Dataset(X, y))
    with pytest.raises(ValueError, match="Pass group="):
        lightgbm_objective()(y, np.zeros(len(y)), None, np.array([], dtype=int))


def test_wrong_groups_labels_weights_and_scores_are_refused():
    _, y, sizes = queries()
    n, f = len(y), lightgbm_objective()
    zeros, missing = np.zeros(n), np.where(np.arange(n) == 7, np.nan, 1.0)
    for arguments, message in (
        ((y, zeros, None, sizes[:-1]), f"{n} rows, but sizes that sum to {n - sizes[-1]}"),
        ((y, zeros, None, np.array([n + 1, -1])), "not below 0"),
        ((y, zeros, None, sizes / 2), "whole numbers"),
        ((y, zeros[:-1], None, sizes), "scores"),
        ((y, missing, None, sizes), "scores must be finite; row 7"),
        ((y, np.full(n, np.inf), None, sizes), "scores must be finite"),
        ((y, np.zeros((n, 2)), None, sizes), "scores"),
        ((missing, zeros, None, sizes), "labels must be finite and not below 0; row 7"),
        ((y - 1, zeros, None, sizes), "labels must be finite and not below 0"),
        ((y, zeros, missing, sizes), "sample_weight must be finite and not below 0; row 7"),
        ((y, zeros, -np.ones(n), sizes), "sample_weight must be finite and not below 0"),
        ((y + 1000, zeros, None, sizes), "below 960"),
    ):
        with pytest.raises(ValueError, match=message):
            f(*arguments)


def test_lightgbm_itself_makes_zeros_of_missing_labels():
    """So an objective cannot refuse them: the documentation says so. LGBMRanker does refuse them."""
    X, y, sizes = queries()
    y[3] = np.nan
    data = dataset(X, y, sizes, weight=np.where(np.arange(len(y)) == 4, np.nan, 2.0)).construct()
    assert data.get_label()[3] == 0
    assert data.get_weight()[4] == 0
    with pytest.raises(ValueError, match="NaN"):
        ranker(lightgbm_objective()).fit(X, y, group=sizes)


def test_a_query_of_no_document_changes_nothing():
    _, y, sizes = queries(5)
    weights = np.arange(1.0, 6)
    padded, padded_weights = np.insert(sizes, [0, 3, 5], 0), np.insert(weights, [0, 3, 5], 9)
    scores = np.random.default_rng(0).normal(size=len(y))
    for a, b in zip(
        lightgbm_objective(query_weight=weights)(y, scores, None, sizes),
        lightgbm_objective(query_weight=padded_weights)(y, scores, None, padded),
        strict=True,
    ):
        assert_array_equal(a, b)
    metric = lightgbm_metric("ndcg@3,map")
    assert metric(y, scores, None, sizes) == metric(y, scores, None, padded)


def test_arguments_that_do_not_fit():
    with pytest.raises(TypeError, match=r"lightgbm_objective\(\) has no argument 'widht'.*widths"):
        lightgbm_objective("ndcg", widht=2)
    with pytest.raises(ValueError, match="gain 'ndgc'"):
        lightgbm_objective("ndgc")
    with pytest.raises(ValueError, match="got 'rows'"):
        lightgbm_objective(query_weight="rows")
    with pytest.raises(ValueError, match="LightGBM keeps no query ids"):
        lightgbm_objective(query_weight={1: 2.0})
    with pytest.raises(ValueError, match="n_threads"):
        lightgbm_objective(n_threads=0)
    with pytest.raises(ValueError, match="query_weight"):
        lightgbm_metric(query_weight="rows")
    with pytest.raises(ValueError, match="metrics must name at least one"):
        lightgbm_metric([])
    with pytest.raises(TypeError, match="emtpy"):
        lightgbm_metric(emtpy=1)
    with pytest.raises(ValueError, match="convention"):
        lightgbm_metric(convention="letter")
    with pytest.raises(ValueError, match="metrics must have different names"):
        lightgbm_metric([OWN, RankLinear(gain=np.square, discount=np.reciprocal)])
    _, y, sizes = queries(5)
    with pytest.raises(ValueError, match=r"one weight per query, \(5,\)"):
        lightgbm_objective(query_weight=[1, 2])(y, np.zeros(len(y)), None, sizes)


def test_a_subset_is_trained_as_a_data_set_of_its_own():
    X, y, sizes = queries(12)
    keep = np.isin(qid_of(sizes), [1, 4, 5, 9, 11])
    whole = dataset(X, y, sizes).construct()
    seen, alone = Recording(lightgbm_objective()), Recording(lightgbm_objective())
    train(seen, whole.subset(np.flatnonzero(keep).tolist()), 1)
    train(alone, dataset(X[keep], y[keep], sizes[[1, 4, 5, 9, 11]]), 1)
    assert_array_equal(seen.calls[0][1], alone.calls[0][1])


def test_a_subset_that_cuts_queries_is_told_of():
    X, y, sizes = queries(12)
    whole = dataset(X, y, sizes).construct()
    with pytest.warns(UserWarning, match=r"1 of 3 queries .* query 2 has 3 of its"):
        train(lightgbm_objective(), whole.subset(list(range(sizes[:2].sum() + 3))), 1)


def test_cross_validation():
    X, y, sizes = queries(24)
    qid = qid_of(sizes)
    given = {**SMALL, "objective": lightgbm_objective("ndcg@10")}
    folds = GroupKFold(3)
    found = lightgbm.cv(
        given, dataset(X, y, sizes), 6, folds=folds, feval=lightgbm_metric("ndcg@10"), return_cvbooster=True
    )
    for booster, (train_rows, test_rows) in zip(
        found["cvbooster"].boosters, folds.split(X, y, qid), strict=True
    ):
        scores = [booster.predict(X[test_rows], num_iteration=i + 1) for i in range(6)]
        values = [evaluate(y[test_rows], s, qid[test_rows], "ndcg@10", "standard")["ndcg@10"] for s in scores]
        assert len(train_rows) + len(test_rows) == len(y)
        found.setdefault("by hand", []).append(values)
    assert_allclose(found["valid ndcg@10-mean"], np.mean(found["by hand"], axis=0), atol=1e-12)
    with pytest.warns(UserWarning, match=r"folds=sklearn.model_selection.GroupKFold"):
        lightgbm.cv(given, dataset(X, y, sizes), 1, nfold=3, feval=lightgbm_metric())


def test_two_datasets_alternately_each_prepared_once(monkeypatch):
    problems = [queries(10, seed) for seed in (1, 2)]
    data = [dataset(*problem).construct() for problem in problems]
    prepared = []
    plain = LightGBMObjective._prepare
    monkeypatch.setattr(
        LightGBMObjective, "_prepare", lambda self, *rows: prepared.append(1) or plain(self, *rows)
    )
    objective, rng = lightgbm_objective(), np.random.default_rng(0)
    for _ in range(3):
        for (_, y, sizes), rows in zip(problems, data, strict=True):
            scores = rng.normal(size=len(y))
            assert_array_equal(objective(scores, rows)[0], by_hand(y, sizes)(scores)[0])
    assert len(prepared) == 2
    _, y, sizes = problems[0]
    data[0].set_label(y[::-1])
    assert_array_equal(objective(scores := np.zeros(len(y)), data[0])[0], by_hand(y[::-1], sizes)(scores)[0])
    data[0].get_label()[:] = y  # in place
    assert_array_equal(objective(scores, data[0])[0], by_hand(y, sizes)(scores)[0])
    data[0].set_group(sizes[::-1])
    assert_array_equal(objective(scores, data[0])[0], by_hand(y, sizes[::-1])(scores)[0])
    weight = rng.uniform(1, 2, len(y)).astype(np.float32)
    data[0].set_weight(weight)
    expected = by_hand(y, sizes[::-1], sample_weight=weight)(scores)[0]
    assert_array_equal(objective(scores, data[0])[0], expected)
    assert len(prepared) == 6


def test_arrays_are_prepared_once_too(monkeypatch):
    prepared = []
    plain = LightGBMObjective._prepare
    monkeypatch.setattr(
        LightGBMObjective, "_prepare", lambda self, *rows: prepared.append(1) or plain(self, *rows)
    )
    X, y, sizes = queries()
    ranker(lightgbm_objective(), 8).fit(X, y, group=sizes)
    assert len(prepared) == 1


def test_no_data_set_is_kept_alive():
    X, y, sizes = queries()
    objective, data = lightgbm_objective(), dataset(X, y, sizes).construct()
    objective(np.zeros(len(y)), data)
    gone = weakref.ref(data)
    del data
    gc.collect()
    assert gone() is None


def test_copies_and_pickles(tmp_path):
    X, y, sizes = queries(10)
    objective = lightgbm_objective("ndcg@5", query_weight=np.arange(10.0), n_threads=1)
    scores = np.random.default_rng(0).normal(size=len(y))
    expected = objective(y, scores, None, sizes)
    for other in (copy.copy(objective), copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert_array_equal(other(y, scores, None, sizes)[0], expected[0])
    assert len(pickle.dumps(objective)) < 1000  # not the data it has seen
    fitted = clone(ranker(objective)).fit(X, y, group=sizes)
    joblib.dump(fitted, tmp_path / "ranker")
    again = joblib.load(tmp_path / "ranker")
    assert_array_equal(again.predict(X), fitted.predict(X))
    assert_array_equal(clone(again).fit(X, y, group=sizes).predict(X), fitted.predict(X))
    with pytest.raises(FrozenInstanceError):
        objective.query_weight = None  # or what was prepared with it would stay
    metric = pickle.loads(pickle.dumps(lightgbm_metric("ndcg@5", convention="letor", ties="average")))
    assert metric(y, scores, None, sizes)[0][0] == "ndcg@5"


def test_the_repr_makes_it_again():
    text = "lightgbm_objective('ndcg(discount=log2)@10', widths=(2.0,), blend=1.0)"
    assert repr(lightgbm_objective("ndcg@10", widths=2.0, blend=1.0)) == text
    assert repr(eval(text)) == text
    assert (
        repr(lightgbm_objective(query_weight="dataset"))
        == "lightgbm_objective('ndcg(discount=log2)', query_weight='dataset')"
    )
    assert repr(lightgbm_metric("map,p@3")) == "lightgbm_metric('map,p@3', convention='standard')"


def test_early_stopping_keeps_the_round_that_is_best():
    X, y, sizes = queries(30)
    Xv, yv, sizes_v = queries(20, 7)
    data = dataset(X, y, sizes)
    stop = lightgbm.early_stopping(5, verbose=False)
    booster = lightgbm.train(
        {**SMALL, "objective": lightgbm_objective("ndcg@5"), "learning_rate": 0.5},
        data,
        200,
        valid_sets=[dataset(Xv, yv, sizes_v, reference=data)],
        feval=lightgbm_metric("ndcg@5,map", convention="letor"),
        callbacks=[lightgbm.early_stopping(5, first_metric_only=True, verbose=False)],
    )
    assert booster.num_trees() < 200
    values = [evaluate(yv, s, qid_of(sizes_v), "ndcg@5", "letor")["ndcg@5"] for s in staged(booster, Xv)]
    assert booster.best_iteration == 1 + np.argmax(values)
    assert_allclose(booster.best_score["valid_0"]["ndcg@5"], max(values))
    fitted = ranker(lightgbm_objective("ndcg@5"), 200, learning_rate=0.5, metric="None").fit(
        X,
        y,
        group=sizes,
        eval_metric=lightgbm_metric("ndcg@5", convention="letor"),
        callbacks=[stop],
        **validation_of(Xv, yv, sizes_v),
    )
    assert fitted.best_iteration_ == booster.best_iteration
    assert_array_equal(fitted.predict(Xv), booster.predict(Xv))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_metrics_are_lightgbms_under_its_convention(weighted):
    """With weights too, a query's being the mean of its rows'.

    But LightGBM adds 1 for a query without a relevant document, whatever its weight: there is none then.
    """
    X, y, sizes = queries(30)
    if weighted:
        y[np.r_[0, sizes.cumsum()[:-1]]] = 2
    weight = np.random.default_rng(0).integers(1, 5, len(sizes)).astype(float)[qid_of(sizes)]
    data = dataset(X, y, sizes, weight=weight if weighted else None)
    record = {}
    booster = lightgbm.train(
        {**SMALL, "objective": "rank_xendcg", "metric": ["ndcg", "map"], "eval_at": [1, 3, 10]},
        data,
        5,
        valid_sets=[data],
        callbacks=[lightgbm.record_evaluation(record)],
    )
    names = [f"{name}@{k}" for name in ("ndcg", "map") for k in (1, 3, 10)]
    ours = lightgbm_metric(names, convention="lightgbm", query_weight="dataset" if weighted else None)
    found = ours(booster.predict(X), data)
    assert [name for name, *_ in found] == names
    for name, value, larger_is_better in found:
        assert larger_is_better is True
        assert_allclose(value, record["training"][name][-1], rtol=1e-9, err_msg=name)


def test_a_query_without_a_relevant_document_counts_as_is_said():
    _, y, sizes = queries()
    scores = np.random.default_rng(0).normal(size=len(y))
    ((_, nothing, _),) = lightgbm_metric("ndcg@10")(y, scores, None, sizes)
    ((_, all_of_it, _),) = lightgbm_metric("ndcg@10", empty=1)(y, scores, None, sizes)
    empty = np.count_nonzero([y[qid_of(sizes) == q].max() == 0 for q in range(len(sizes))])
    assert empty
    assert_allclose(all_of_it - nothing, empty / len(sizes))


@pytest.mark.parametrize(
    "gain", [NDCG(discount="letor"), NDCG(5, discount="log2"), Precision(4, threshold=2), RBP(0.6), OWN]
)
def test_a_gain_is_a_metric_of_its_own(gain):
    _, y, sizes = queries()
    scores = np.random.default_rng(0).normal(size=len(y)).round(1)
    ((name, value, _),) = lightgbm_metric(gain)(y, scores, None, sizes)
    assert_allclose(value, hard_gain(gain, y, scores, sizes), rtol=1e-12)
    assert not set(name) & {" ", ":"}
    if gain is not OWN:
        assert sinkprop.parse_gain(name) == gain
        named = evaluate(y, scores, qid_of(sizes), name, "standard")
        assert_allclose(value, named[name], rtol=1e-12)


def test_a_gain_is_the_limit_of_its_expectation():
    _, y, sizes = queries()
    scores = np.random.default_rng(0).permutation(len(y)).astype(float)
    sharp = sinkprop.expected_gain(
        scores,
        y,
        qid_of(sizes),
        gain=OWN,
        relaxation=sinkprop.SmoothedIndicator(0.01, kernel="laplace"),
        epsilon=0,
    )
    assert_allclose(lightgbm_metric(OWN)(y, scores, None, sizes)[0][1], sharp.value, rtol=1e-9)


def test_tables_and_separable_gains_agree_under_ties():
    rng = np.random.default_rng(1)
    _, y, sizes = queries()
    scores = rng.integers(0, 3, len(y)).astype(float)
    table = RankLinear(table=lambda labels, ranks: np.sqrt(labels) / ranks)
    for ties in ("file", "average"):
        values = [lightgbm_metric(g, ties=ties)(y, scores, None, sizes)[0][1] for g in (OWN, table)]
        assert_allclose(*values, rtol=1e-12)
    # the average over the orders of ties, by drawing them
    groups = sinkprop.data.group_rows(qid_of(sizes), len(y))
    exact = gain_values(OWN, y, scores, groups, ties="average").mean()
    drawn = [hard_gain(OWN, y, scores + 1e-6 * rng.random(len(y)), sizes) for _ in range(2000)]
    assert abs(exact - np.mean(drawn)) < 4 * np.std(drawn) / np.sqrt(len(drawn))
    best, worst = (gain_values(OWN, y, scores, groups, ties=t).mean() for t in ("best", "worst"))
    assert worst < min(drawn) <= max(drawn) < best
    with pytest.raises(ValueError, match="'file' or 'average'"):
        lightgbm_metric(table, ties="best")(y, scores, None, sizes)


def test_weighted_means_of_metrics_and_gains():
    X, y, sizes = queries(6)
    weight = np.array([1.0, 0, 2, 5, 3, 1])
    scores = np.random.default_rng(0).normal(size=len(y))
    data = dataset(X, y, sizes, weight=weight[qid_of(sizes)]).construct()
    names = ["ndcg@3", NDCG(3, discount="log2"), Precision(2)]
    found = lightgbm_metric(names, query_weight="dataset")(scores, data)
    per_query = [
        [value for _, value, _ in lightgbm_metric(names)(y[rows], scores[rows], None, [rows.sum()])]
        for rows in (qid_of(sizes) == q for q in range(6))
    ]
    assert_allclose([value for _, value, _ in found], np.average(per_query, axis=0, weights=weight))


def test_the_number_of_threads_changes_nothing():
    X, y, sizes = queries(400)
    a, b = (train(lightgbm_objective(n_threads=n), dataset(X, y, sizes), 3).predict(X) for n in (1, 2))
    assert_array_equal(a, b)
