"""The objective and the metrics for XGBoost, against XGBoost's own metrics and by differences."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tree_problems import by_hand, hard_gain, qid_of, queries, slopes

from sinkprop import NDCG, RankLinear, _native, evaluate
from sinkprop.gbdt import xgboost_metric, xgboost_objective
from sinkprop.gbdt.objectives.xgboost import XGBoostObjective

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: it comes with the extra xgboost")

SMALL = {
    "max_depth": 3,
    "min_child_weight": 0.01,
    "nthread": 1,
    "seed": 0,
    "disable_default_eval_metric": True,
    "verbosity": 0,
}
OWN = RankLinear(gain=np.sqrt, discount=np.reciprocal)


def matrix(X, y, sizes, *, kind=None, **more):
    return (kind or xgboost.DMatrix)(X, y, qid=qid_of(sizes), **more)


def train(objective, data, rounds=10, **parameters):
    given = {key: parameters.pop(key) for key in ("evals", "custom_metric") if key in parameters}
    return xgboost.train({**SMALL, **parameters}, data, rounds, obj=objective, verbose_eval=False, **given)


def ndcg(y, scores, sizes):
    return evaluate(y, scores, qid_of(sizes))["ndcg@10"]


class Recording:
    """An objective that keeps what it was called with and what it returned."""

    def __init__(self, objective):
        self.objective, self.calls = objective, []

    def __call__(self, scores, data):
        self.calls.append((scores.copy(), *self.objective(scores, data)))
        return self.calls[-1][1:]


class Parts(xgboost.DataIter):
    """Data in two parts, cut between queries."""

    def __init__(self, X, y, qid, cut, **more):
        self.parts = [(X[rows], y[rows], qid[rows]) for rows in (slice(None, cut), slice(cut, None))]
        self.at = 0
        super().__init__(**more)

    def next(self, input_data):
        if self.at == len(self.parts):
            return False
        X, y, qid = self.parts[self.at]
        input_data(data=X, label=y, qid=qid)
        self.at += 1
        return True

    def reset(self):
        self.at = 0


@pytest.mark.parametrize("kind", ["DMatrix", "QuantileDMatrix"])
def test_trees_raise_the_metric(kind):
    X, y, sizes = queries(30)
    data = matrix(X, y, sizes, kind=getattr(xgboost, kind))
    booster = train(xgboost_objective("ndcg@10"), data, 20)
    assert ndcg(y, booster.predict(data), sizes) > ndcg(y, np.zeros(len(y)), sizes) + 0.1


@pytest.mark.parametrize(
    "gain", ["ndcg", "ndcg(discount=log2,gain=linear)@5", "p@3", "rbp@0.7", OWN], ids=str
)
@pytest.mark.parametrize("weighted", ["", "rows", "queries", "both"])
def test_the_gradient_is_that_of_the_weighted_sum(gain, weighted):
    X, y, sizes = queries(6, labels="real" if "linear" in str(gain) else "graded")
    rng = np.random.default_rng(5)
    scores = rng.normal(size=len(y))
    rows = rng.uniform(0.5, 2, len(y)) if weighted in ("rows", "both") else None
    weights = np.array([1, 0, 2, 0.5, 3, 1.5]) if weighted in ("queries", "both") else None
    objective = xgboost_objective(gain, sample_weight=rows, noise=0)
    gradient, curvature = objective(scores, matrix(X, y, sizes, weight=weights))
    value = by_hand(y, sizes, gain, sample_weight=rows, query_weight=weights).value
    total = len(y) if weights is None else weights @ sizes
    assert gradient.dtype == curvature.dtype == np.float32
    assert_allclose(gradient, -total * slopes(value, scores), rtol=2e-4, atol=1e-7)
    assert (curvature >= 0).all()


def test_margins_in_float32_are_read_as_they_are(monkeypatch):
    """XGBoost's margins are float32; the derivatives are those of the same margins in float64."""
    X, y, sizes = queries(6)
    data, objective = matrix(X, y, sizes), xgboost_objective(noise=0.4)
    seen = Recording(objective)
    train(seen, data, 3)
    read, native = [], _native.tree_derivatives
    monkeypatch.setattr(_native, "tree_derivatives", lambda x, *a: (read.append(x), native(x, *a))[1])
    for scores, *found in seen.calls:
        assert scores.dtype == np.float32
        for one, two in zip(objective(scores, data), found, strict=True):
            assert_array_equal(one, two)
        assert read[-1] is scores
        for one, two in zip(objective(scores.astype(np.float64), data), found, strict=True):
            assert_array_equal(one, two)


def test_group_sizes_are_as_good_as_ids():
    X, y, sizes = queries()
    by_size = xgboost.DMatrix(X, y, group=sizes)
    a, b = (train(xgboost_objective(), data) for data in (by_size, matrix(X, y, sizes)))
    assert_array_equal(a.predict(by_size), b.predict(by_size))


@pytest.mark.parametrize("kind", ["QuantileDMatrix", "ExtMemQuantileDMatrix"])
def test_data_that_comes_in_parts(kind, tmp_path):
    if not hasattr(xgboost, kind):
        pytest.skip(f"this version of XGBoost has no {kind}")
    X, y, sizes = queries()
    cut = int(sizes[:9].sum())
    more = {"cache_prefix": str(tmp_path / "cache")} if kind.startswith("Ext") else {}
    data = getattr(xgboost, kind)(Parts(X.astype(np.float32), y, qid_of(sizes), cut, **more))
    seen = Recording(xgboost_objective())
    booster = train(seen, data)
    for scores, gradient, _ in seen.calls:
        assert_array_equal(gradient, by_hand(y, sizes)(scores)[0])
    assert booster.num_boosted_rounds() == 10


def test_labels_have_no_limit_of_31_and_any_value():
    X, y, sizes = queries(30, labels="real")
    data = matrix(X, y, sizes)
    with pytest.raises(xgboost.core.XGBoostError, match="31"):
        xgboost.train({**SMALL, "objective": "rank:ndcg"}, data, 1)
    seen = Recording(xgboost_objective("ndcg@10"))
    booster = train(seen, data, 20)
    scores, gradient, curvature = seen.calls[3]
    expected = by_hand(y, sizes, "ndcg@10")(scores)
    assert_array_equal(gradient, expected[0])
    assert_array_equal(curvature, expected[1])
    assert ndcg(y, booster.predict(data), sizes) > ndcg(y, np.zeros(len(y)), sizes) + 0.1


def test_a_list_of_12000_documents():
    X, y, sizes = queries(sizes=[5, 5, 12_000])
    data = matrix(X, y, sizes)
    booster = train(xgboost_objective("ndcg"), data, min_child_weight=1e-3)
    metric = xgboost_metric("ndcg")
    ((_, start),), ((_, end),) = metric(np.zeros(len(y)), data), metric(booster.predict(data), data)
    assert end > start + 0.02


def test_the_base_score_does_not_matter():
    X, y, sizes = queries()
    data = matrix(X, y, sizes)
    a, b = (
        train(xgboost_objective(noise=0), data, base_score=base).predict(data) - base for base in (0.0, 3.0)
    )
    assert_allclose(a, b, atol=1e-5)
    assert np.ptp(a) > 0.5


def test_training_starts_from_base_margins():
    X, y, sizes = queries()
    start = np.random.default_rng(3).normal(size=len(y)).astype(np.float32)
    data = matrix(X, y, sizes, base_margin=start)
    seen = Recording(xgboost_objective())
    train(seen, data, 2)
    assert_array_equal(seen.calls[0][0], start)
    assert_array_equal(seen.calls[0][1], by_hand(y, sizes)(start)[0])


def test_training_goes_on_from_a_model():
    X, y, sizes = queries()
    data = matrix(X, y, sizes)
    whole = train(xgboost_objective(), data, 10)
    first = train(xgboost_objective(), data, 4)
    second = xgboost.train(SMALL, data, 6, obj=xgboost_objective(), xgb_model=first)
    assert_allclose(second.predict(data), whole.predict(data), atol=1e-6)


@pytest.mark.parametrize(
    "setting",
    [
        {"booster": "dart", "rate_drop": 0.5},
        {"booster": "gblinear"},
        {"tree_method": "exact"},
        {"tree_method": "approx"},
        {"subsample": 0.5, "colsample_bytree": 0.5},
        {"num_parallel_tree": 3},
        {"grow_policy": "lossguide", "max_leaves": 6},
    ],
    ids=lambda setting: "-".join(map(str, setting.values())),
)
def test_the_ways_of_boosting(setting):
    X, y, sizes = queries()
    seen = Recording(xgboost_objective())
    train(seen, matrix(X, y, sizes), 10, **setting)
    assert len(seen.calls) == 10
    for at, gradient, _ in seen.calls[::3]:
        assert_array_equal(gradient, by_hand(y, sizes)(at)[0])
    assert np.ptp(seen.calls[-1][0]) > 0


def test_what_cannot_be_trained_on_is_refused():
    X, y, sizes = queries()
    n = len(y)
    for data, message in (
        (xgboost.DMatrix(X, y), "qid must hold the query of each row"),
        (xgboost.DMatrix(X, qid=qid_of(sizes)), "must have labels"),
        (matrix(X, y - 1, sizes), "labels must be finite and not below 0"),
        (matrix(X, y + 1000, sizes), "below 960"),
    ):
        with pytest.raises(ValueError, match=message):
            train(xgboost_objective(), data)
    with pytest.raises(ValueError, match="qid must hold the query of each row"):
        xgboost_metric()(np.zeros(n), xgboost.DMatrix(X, y))
    data = matrix(X, y, sizes)
    with pytest.raises(ValueError, match="scores must be finite; row 3"):
        xgboost_objective()(np.where(np.arange(n) == 3, np.nan, 0), data)
    with pytest.raises(ValueError, match=r"sample_weight must have one weight per row, \(\d+,\); got \(4,\)"):
        xgboost_objective(sample_weight=np.ones(4))(np.zeros(n), data)
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        xgboost_objective(sample_weight=np.full(n, np.nan))(np.zeros(n), data)
    with pytest.raises(TypeError, match=r"xgboost\.DMatrix; got a 'ndarray'"):
        xgboost_objective()(y, np.zeros(n))
    with pytest.raises(TypeError, match="'curvatur'"):
        xgboost_objective(curvatur="constant")
    with pytest.raises(ValueError, match="query_weight"):
        xgboost_metric(query_weight="rows")


def test_xgboost_itself_refuses_missing_labels_and_weights_and_unsorted_queries():
    X, y, sizes = queries()
    weights = np.where(np.arange(len(sizes)) == 2, np.nan, 1.0)
    for arguments, message in (
        ({"label": np.where(np.arange(len(y)) == 3, np.nan, y), "qid": qid_of(sizes)}, "Label contains NaN"),
        ({"label": y, "qid": qid_of(sizes), "weight": weights}, "Weights must be positive"),
        ({"label": y, "qid": qid_of(sizes)[::-1]}, "sorted"),
    ):
        with pytest.raises(xgboost.core.XGBoostError, match=message):
            xgboost.DMatrix(X, **arguments)


def test_xgbranker_refuses_functions_but_predicts_with_the_trees(tmp_path):
    with pytest.raises(ValueError, match="custom objective function not supported by XGBRanker"):
        xgboost.XGBRanker(objective=xgboost_objective())
    X, y, sizes = queries()
    booster = train(xgboost_objective(), matrix(X, y, sizes))
    booster.save_model(tmp_path / "model.json")
    ranker = xgboost.XGBRanker()
    ranker.load_model(tmp_path / "model.json")
    assert_array_equal(ranker.predict(X), booster.predict(matrix(X, y, sizes)))


def test_a_query_of_no_document_changes_nothing():
    X, y, sizes = queries(5)
    weights = np.arange(1.0, 6)
    plain = xgboost.DMatrix(X, y, group=sizes, weight=weights)
    padded = xgboost.DMatrix(
        X, y, group=np.insert(sizes, [0, 3, 5], 0), weight=np.insert(weights, [0, 3, 5], 9)
    )
    scores = np.random.default_rng(0).normal(size=len(y))
    assert_array_equal(xgboost_objective()(scores, plain)[0], xgboost_objective()(scores, padded)[0])
    assert xgboost_metric("ndcg,p@2")(scores, plain) == xgboost_metric("ndcg,p@2")(scores, padded)


def test_two_matrices_alternately_each_prepared_once(monkeypatch):
    problems = [queries(10, seed) for seed in (1, 2)]
    data = [matrix(*problem) for problem in problems]
    prepared = []
    plain = XGBoostObjective._prepare
    monkeypatch.setattr(
        XGBoostObjective, "_prepare", lambda self, *rows: prepared.append(1) or plain(self, *rows)
    )
    objective, rng = xgboost_objective(), np.random.default_rng(0)
    for _ in range(3):
        for (_, y, sizes), rows in zip(problems, data, strict=True):
            scores = rng.normal(size=len(y))
            assert_array_equal(objective(scores, rows)[0], by_hand(y, sizes)(scores)[0])
    assert len(prepared) == 2
    _, y, sizes = problems[0]
    data[0].set_label(y[::-1])
    scores = np.zeros(len(y))
    assert_array_equal(objective(scores, data[0])[0], by_hand(y[::-1], sizes)(scores)[0])
    data[0].set_weight(np.arange(10.0))
    expected = by_hand(y[::-1], sizes, query_weight=np.arange(10.0))(scores)[0]
    assert_array_equal(objective(scores, data[0])[0], expected)
    assert len(prepared) == 4


def test_no_matrix_is_kept_alive_and_none_is_pickled():
    X, y, sizes = queries()
    objective, data = xgboost_objective("p@5", widths=2.0), matrix(X, y, sizes)
    scores = np.random.default_rng(0).normal(size=len(y))
    expected = objective(scores, data)
    for other in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert_array_equal(other(scores, data)[0], expected[0])
        assert repr(other) == "xgboost_objective('p@5', widths=(2.0,))"
    assert len(pickle.dumps(objective)) < 1000
    gone = weakref.ref(data)
    del data
    gc.collect()
    assert gone() is None


def test_cross_validation_keeps_queries_whole():
    X, y, sizes = queries(24)
    lengths = []

    class Watching(Recording):
        def __call__(self, scores, data):
            lengths.append(np.diff(data.get_uint_info("group_ptr")).tolist())
            return super().__call__(scores, data)

    found = xgboost.cv(
        SMALL,
        matrix(X, y, sizes),
        3,
        nfold=3,
        obj=Watching(xgboost_objective()),
        custom_metric=xgboost_metric("ndcg@5"),
        as_pandas=False,
    )
    assert len(found["test-ndcg@5-mean"]) == 3
    assert found["train-ndcg@5-mean"][-1] > found["train-ndcg@5-mean"][0]
    assert len(lengths) == 9
    for fold in lengths:
        assert not set(fold) - set(sizes.tolist())


def test_cross_validation_drops_the_weights_of_queries():
    """XGBoost does: the documentation says so."""
    X, y, sizes = queries(24)
    weights = []

    def watched(scores, data):
        weights.append(data.get_weight().size)
        return xgboost_objective()(scores, data)

    xgboost.cv(
        SMALL, matrix(X, y, sizes, weight=np.arange(1.0, 25)), 1, nfold=3, obj=watched, as_pandas=False
    )
    assert weights == [0, 0, 0]


def test_early_stopping_keeps_the_round_that_is_best():
    X, y, sizes = queries(30)
    Xv, yv, sizes_v = queries(20, 7)
    valid, record = matrix(Xv, yv, sizes_v), {}
    booster = xgboost.train(
        {**SMALL, "eta": 0.7},
        matrix(X, y, sizes),
        100,
        obj=xgboost_objective("ndcg@5"),
        custom_metric=xgboost_metric("mrr,rbp@0.8", convention="letor"),
        evals=[(valid, "v")],
        evals_result=record,
        early_stopping_rounds=5,
        maximize=True,
        verbose_eval=False,
    )
    values = [
        evaluate(yv, booster.predict(valid, iteration_range=(0, i + 1)), qid_of(sizes_v), "rbp@0.8")[
            "rbp@0.8"
        ]
        for i in range(booster.num_boosted_rounds())
    ]
    assert len(values) < 100
    assert booster.best_iteration == np.argmax(np.round(values, 6))
    assert_allclose(record["v"]["rbp@0.8"], values, atol=1e-6)  # XGBoost keeps six digits


@pytest.mark.parametrize("weighted", [False, True])
def test_the_metrics_are_xgboosts_under_its_convention(weighted):
    X, y, sizes = queries(30)
    if weighted:
        y[np.r_[0, sizes.cumsum()[:-1]]] = 2
    binary = (y > 0).astype(float)  # of which alone XGBoost has a MAP
    weights = np.random.default_rng(0).integers(1, 5, len(sizes)).astype(float) if weighted else None
    for labels, names in ((y, ["ndcg@1", "ndcg@3", "ndcg@10", "ndcg"]), (binary, ["map@3", "map", "ndcg@5"])):
        data, record = matrix(X, labels, sizes, weight=weights), {}
        booster = xgboost.train(
            {**SMALL, "objective": "rank:pairwise", "eval_metric": names},
            data,
            5,
            evals=[(data, "t")],
            evals_result=record,
            verbose_eval=False,
        )
        found = xgboost_metric(names, convention="xgboost")(booster.predict(data), data)
        assert [name for name, _ in found] == names
        for name, value in found:
            assert_allclose(value, record["t"][name][-1], rtol=1e-6, err_msg=name)


def test_weights_of_queries_can_be_left_out_of_the_means():
    X, y, sizes = queries(6)
    weights = np.array([1.0, 0, 2, 5, 3, 1])
    scores = np.random.default_rng(0).normal(size=len(y)).astype(np.float32)
    data, gain = matrix(X, y, sizes, weight=weights), NDCG(3, discount="log2")
    plain = xgboost_metric(["ndcg@3", NDCG(3)], query_weight=None)
    ((_, value), (name, own)) = plain(scores, data)
    assert_allclose(value, evaluate(y, scores, qid_of(sizes), "ndcg@3", "standard")["ndcg@3"])
    assert name == "ndcg(discount=log2,gain=exponential)@3", "the discount of the convention"
    assert_allclose(own, hard_gain(gain, y, scores, sizes))
    weighted = xgboost_metric("ndcg@3")(scores, data)[0][1]
    each = evaluate(y, scores, qid_of(sizes), "ndcg@3", "standard").per_query["ndcg@3"]
    assert_allclose(weighted, np.average(each, weights=weights))
    assert repr(plain) == f"xgboost_metric('ndcg@3,{name}', convention='standard', query_weight=None)"
