"""Queries, weights, threads and model files of the rankers of LightGBM, XGBoost and CatBoost."""

import multiprocessing
import pickle
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
from forking import ALL_STEPS, steps_of_a_fork
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tree_problems import ranking_data

import sinkprop
from sinkprop import Selection
from sinkprop.baselines import CatBoostRanker, LightGBMRanker, XGBoostRanker
from sinkprop.common.packages import installed
from sinkprop.experiment import parse_methods
from sinkprop.model_files import ModelFileError, read_model, write_model

OF_ALL = {"learning_rate": 0.1, "n_estimators": 15, "step": 15}


@dataclass(frozen=True)
class Kind:
    """A ranker of one library.

    one, few       Parameters that give one candidate, and twelve.
    methods        Names of its methods in `METHODS`.
    damaged        Error of a file with half of the trees.
    near           Largest difference between the scores of two fits that grow the same trees.
    names          Format of query ids. CatBoost draws at random for one query after another, sorted by id.
    many_queries   Number of queries that several threads share.
    """

    ranker: type
    one: dict
    few: dict
    methods: tuple
    damaged: str
    objectives: tuple = ()
    near: float = 0.0
    names: str = "q{}"
    many_queries: int = 150
    threaded: dict = field(default_factory=dict)

    @property
    def library(self):
        return self.ranker.__name__.removesuffix("Ranker").lower()

    def __str__(self):
        return self.ranker.__name__


LIGHTGBM = Kind(
    LightGBMRanker,
    {"num_leaves": 5, "min_child_samples": 10, **OF_ALL},
    {"num_leaves": (3, 6), "min_child_samples": (30, 10), "n_estimators": 12, "step": 5},
    ("lambdamart", "ranknet-trees"),
    r"tree \d+ is not where the header has it",
    ("lambdarank", "rank_xendcg", "ranknet", "sinkprop"),
)
XGBOOST = Kind(
    XGBoostRanker,
    {"num_leaves": 5, "min_child_weight": 0.5, **OF_ALL},
    {"num_leaves": (3, 6), "min_child_weight": (1.0, 0.1), "n_estimators": 12, "step": 5},
    ("xgboost-ndcg",),
    "not trees that XGBoost wrote",
    many_queries=400,
)
CATBOOST = Kind(
    CatBoostRanker,
    {"depth": 3, "l2_leaf_reg": 2.0, **OF_ALL},
    {"depth": (2, 3), "n_estimators": 12, "step": 5},
    ("catboost-ndcg",),
    "not trees of CatBoost",
    ("yetirank", "yetirank-ndcg", "queryrmse", "stochasticrank"),
    near=1e-12,
    names="q{:02}",
    many_queries=300,
    threaded={"n_estimators": 5, "step": 5},
)


def case(kind, *values, name=""):
    missing = pytest.mark.skipif(not installed(kind.library), reason=f"{kind.library} is not installed")
    return pytest.param(kind, *values, id=f"{kind} {name}".strip(), marks=missing)


of_each_library = pytest.mark.parametrize("kind", [case(kind) for kind in (LIGHTGBM, XGBOOST, CATBOOST)])
of_each_objective = pytest.mark.parametrize(
    ("kind", "objective"),
    [
        case(kind, given, name=given.get("objective", ""))
        for kind in (LIGHTGBM, XGBOOST, CATBOOST)
        for given in ([{"objective": name} for name in kind.objectives] or [{}])
    ],
)


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@of_each_library
def test_cross_validation(data, kind):
    X, y, qid = data
    model = kind.ranker(**kind.few, selection=Selection("cross-validation", n_splits=3)).fit(X, y, qid=qid)
    assert model.fit_result_.validated_on == "3-fold cross-validation over 20 queries"
    chosen = model.fit_result_.chosen.setting
    setting = {name: None if value == "default" else value for name, value in chosen.items()}
    trees = setting.pop("trees")
    alone = kind.ranker(**setting, n_estimators=trees, step=trees).fit(X, y, qid=qid)
    assert_allclose(alone.predict(X), model.predict(X), rtol=0, atol=kind.near)


@of_each_objective
def test_rows_in_any_order_and_ids_of_any_kind(data, kind, objective):
    X, y, qid = data
    model = kind.ranker(**objective, **kind.one).fit(X, y, qid=qid)
    # the first rows of all queries, the second, ...: in a query their order matters where scores are tied
    place = np.arange(len(y)) - np.append(0, np.cumsum(np.bincount(qid)))[qid]
    order = np.lexsort((qid, place))
    names = np.array([kind.names.format(q) for q in qid])
    mixed = kind.ranker(**objective, **kind.one).fit(X[order], y[order], qid=names[order].tolist())
    assert_array_equal(mixed.predict(X), model.predict(X))
    assert_array_equal(model.rank(X[order], qid=names[order]), model.rank(X, qid=qid)[order])
    grouped = kind.ranker(**objective, **kind.one).fit(X, y, group=np.bincount(qid))
    assert_array_equal(grouped.predict(X), model.predict(X))


@of_each_objective
def test_a_query_of_weight_zero_is_as_if_it_were_not_there(data, kind, objective):
    X, y, qid = data
    few = kind.ranker(**objective, **kind.one).fit(X[qid > 4], y[qid > 4], qid=qid[qid > 4])
    weight = {q: float(q > 4) for q in range(20)}
    all_of_them = kind.ranker(**objective, **kind.one).fit(X, y, qid=qid, query_weight=weight)
    assert_array_equal(all_of_them.predict(X), few.predict(X))


@of_each_library
def test_weights_that_are_errors(data, kind):
    X, y, qid = data
    with pytest.raises(ValueError, match="query_weight must have a finite sum above 0"):
        kind.ranker(**kind.one).fit(X, y, qid=qid, query_weight=np.zeros(20))
    if kind is not LIGHTGBM:
        name = str(kind).removesuffix("Ranker")
        with pytest.raises(ValueError, match=f"takes no sample_weight except equal weights: {name}"):
            kind.ranker(**kind.one).fit(X, y, qid=qid, sample_weight=np.arange(len(y)))


@of_each_objective
def test_the_model_does_not_depend_on_the_number_of_threads(tmp_path, kind, objective):
    X, y, qid = ranking_data(kind.many_queries, 2)
    files = []
    for n_threads in (1, 2, 3):
        model = kind.ranker(**objective, **{**kind.one, **kind.threaded}, n_threads=n_threads)
        model.fit(X, y, qid=qid).save(tmp_path / f"{n_threads}.model")
        files.append((tmp_path / f"{n_threads}.model").read_bytes())
    assert files[0] == files[1] == files[2]


@of_each_objective
def test_a_saved_model_is_the_same_model(tmp_path, data, kind, objective):
    X, y, qid = data
    model = kind.ranker(**objective, **kind.few).fit(X, y, qid=qid)
    path = tmp_path / "m.model"
    model.save(path)
    for loaded in (kind.ranker.load(path), sinkprop.load_model(path), pickle.loads(pickle.dumps(model))):
        assert type(loaded) is kind.ranker
        assert_array_equal(loaded.predict(X), model.predict(X))
        assert_array_equal(loaded.rank(X, qid=qid), model.rank(X, qid=qid))
        assert loaded.fit_result_.trials == model.fit_result_.trials
        assert loaded.n_trees_ == model.n_trees_
        assert getattr(loaded, "trees_", None) == getattr(model, "trees_", None)
        loaded.save(tmp_path / "again.model")
        assert (tmp_path / "again.model").read_bytes() == path.read_bytes()
        assert_array_equal(clone(loaded).fit(X, y, qid=qid).predict(X), model.predict(X))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@of_each_library
def test_it_survives_a_fork(kind):
    assert steps_of_a_fork(kind.ranker, **kind.one) == ALL_STEPS


@of_each_library
def test_files_that_are_not_such_a_model(tmp_path, data, kind):
    X, y, qid = data
    path = tmp_path / "m.model"
    kind.ranker(**kind.one).fit(X, y, qid=qid).save(path)
    state = read_model(path).state
    model = state["fitted"]["model"]
    whole = model[kind.library]
    write_model(path, str(kind), {**state, "n_features": 3})
    with pytest.raises(ModelFileError, match="must be an array of numbers of shape"):
        kind.ranker.load(path)
    model[kind.library] = whole[: len(whole) // 2]
    write_model(path, str(kind), state)
    with pytest.raises(ModelFileError, match=kind.damaged):
        kind.ranker.load(path)
    del model[kind.library]
    write_model(path, str(kind), state)
    with pytest.raises(ModelFileError, match=f"not a {kind}"):
        kind.ranker.load(path)
    with pytest.raises(NotFittedError):
        kind.ranker().predict(X)


@of_each_library
def test_where_the_library_is_missing(monkeypatch, data, tmp_path, kind):
    X, y, qid = data
    path = tmp_path / "m.model"
    kind.ranker(**kind.one).fit(X, y, qid=qid).save(path)
    monkeypatch.setitem(sys.modules, kind.library, None)
    how = rf'needs {kind.library}: pip install "sinkprop\[{kind.library}\]"'
    with pytest.raises(ImportError, match=f"{kind} {how}"):
        kind.ranker().fit(X, y, qid=qid)
    with pytest.raises(ImportError, match=f"{kind} {how}"):
        kind.ranker.load(path)
    for method in kind.methods:
        for given in (f"regression,{method}", {"mine": method}):
            with pytest.raises(ImportError, match=f"method '{method}' {how}"):
                parse_methods(given)
        assert method not in parse_methods("trees,regression")
        assert method not in parse_methods("all")
    assert "smoothrank" in parse_methods("all")
