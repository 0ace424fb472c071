"""Scores of saved trees: equal to those of LightGBM, XGBoost and CatBoost, to the last bit."""

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkprop import _native
from sinkprop.model_files import read_model
from sinkprop.serving.tree_files.catboost_trees import ObliviousTree, Trees, text_of
from sinkprop.serving.tree_files.lightgbm_text import mean_of_models, tree_fields, trees_of_fields
from sinkprop.serving.trees import trees_of

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed: it is in the extra lightgbm")
xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: it is in the extra xgboost")
catboost = pytest.importorskip("catboost", reason="catboost is not installed: it is in the extra catboost")

from sinkprop.baselines import CatBoostRanker, LightGBMRanker, XGBoostRanker  # noqa: E402
from sinkprop.baselines.catboost.oblivious import booster_of  # noqa: E402
from sinkprop.gbdt import BoostedRanker  # noqa: E402

SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 33, 49, 63, 64, 65, 1000)
D, CATEGORY = 5, 3  # features, of which this one has categories
# values at which the rules of the libraries change
AWKWARD = [
    np.nan, 0.0, -0.0, 1e-35, -1e-35, 2e-35, -2e-35, float(np.float32(1e-35)), 1e-36, 5e-324, -5e-324, 1e-45,
    -7e-46, -8e-46, 1e38, -1e38, 0.5, -0.5, -1.0, 0.999, 1.5, 2.9999999999, 31.0, 32.0, 33.0, 63.5, 1e6,
    2.0**24, 2.0**31, -(2.0**31), 2.0**32 + 3,
]  # fmt: skip


def rows(n=600, seed=0):
    """Features with ties, zeros, missing values and a column of 40 categories, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[:, 1] = np.round(2 * X[:, 1])
    X[:, CATEGORY] = rng.integers(0, 40, n)
    X[rng.random(X.shape) < 0.05] = np.nan
    signal = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.isin(X[:, CATEGORY], [0, 3, 8, 21, 39])
    return X, np.digitize(signal + rng.normal(size=n) / 2, [0.0, 1.0]).astype(float)


def lightgbm_text(n_trees=12, X=None, y=None, *, categories=(CATEGORY,), **parameters):
    given_X, given_y = rows()
    X, y = given_X if X is None else X, given_y if y is None else y
    settings = {"objective": "regression", "num_leaves": 12, "min_data_in_leaf": 5, "verbose": -1, "seed": 1}
    settings |= {"cat_smooth": 1, "min_data_per_group": 5, "num_threads": 1}
    data = lightgbm.Dataset(X, y, categorical_feature=list(categories))
    if not n_trees:
        return lightgbm.Booster(settings, data).model_to_string()
    return lightgbm.train({**settings, **parameters}, data, n_trees).model_to_string()


def trees_in(text):
    return trees_of_fields(tree_fields(text))


def lightgbm_pair(text):
    """A model in LightGBM's text: the function that LightGBM scores with, and ours."""
    booster = lightgbm.Booster(model_str=text)
    state = {"n_features": booster.num_feature(), "fitted": {"lightgbm": text.split("\n")}}
    return lambda X: booster.predict(X, raw_score=True, num_threads=1), trees_of("BoostedRanker", state)


def xgboost_pair(n_trees=12, X=None, **parameters):
    given_X, y = rows()
    types = {"feature_types": ["c" if i == CATEGORY else "q" for i in range(D)], "enable_categorical": True}
    data = xgboost.DMatrix(given_X if X is None else X, y, group=[30] * 20, **types)
    settings = {"objective": "rank:ndcg", "tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0}
    settings |= {"max_leaves": 12, "max_cat_to_onehot": 2, "nthread": 1, "min_child_weight": 0.01}
    booster = xgboost.train({**settings, **parameters}, data, n_trees)
    text = bytes(booster.save_raw("json")).decode()
    assert any(
        tree["categories_nodes"] for tree in json.loads(text)["learner"]["gradient_booster"]["model"]["trees"]
    )

    def oracle(X):
        found = booster.predict(xgboost.DMatrix(X, nthread=1, **types), output_margin=True)
        return found.astype(np.float64)

    return oracle, trees_of("XGBoostRanker", {"n_features": D, "fitted": {"model": {"xgboost": text}}})


def catboost_pair(trees, categories=()):
    """Trees on the features, of which the one with categories has a column for each."""
    booster = booster_of(trees, catboost)
    state = {"n_features": D, "fitted": {"model": {"catboost": text_of(trees)}}}
    if categories:
        state["fitted"] |= {"categories": {str(CATEGORY): list(categories)}, "unordered": [CATEGORY]}

    def oracle(X):
        limit = float(np.finfo(np.float32).max)
        columns = [np.clip(X[:, [i]], -limit, limit) for i in range(D)]
        if categories:
            columns[CATEGORY] = X[:, [CATEGORY]] == np.arange(len(categories))
        return booster.predict(
            np.concatenate([c.astype(np.float32) for c in columns], axis=1), thread_count=1
        )

    return oracle, trees_of("CatBoostRanker", state)


def random_trees(
    depths, n_columns=D, constant=0.25, borders=(-1.0, -0.0, 0.5, 0.3, 1.0, 1e-45, 3.4028235e38)
):
    """Oblivious trees with borders at awkward places."""
    rng = np.random.default_rng(3)
    made = []
    for depth in depths:
        pairs = [(c, float(np.float32(b))) for c in range(n_columns) for b in borders]
        chosen = [pairs[i] for i in rng.choice(len(pairs), depth, replace=False)]
        leaves = tuple(rng.normal(size=2**depth).tolist())
        columns, own = zip(*chosen, strict=True) if chosen else ((), ())
        made.append(ObliviousTree(tuple(columns), tuple(own), leaves, (1.0,) * 2**depth))
    return Trees(n_columns, tuple(range(n_columns)), constant, tuple(made))


def random_forest_text():
    X = np.random.default_rng(5).normal(size=(3000, D))
    y = np.random.default_rng(6).normal(size=3000)
    return lightgbm_text(8, X, y, num_leaves=600, min_data_in_leaf=1, max_bin=1000, categories=())


LIGHTGBM = {
    "plain": lightgbm_text,
    "zeros are missing": lambda: lightgbm_text(zero_as_missing=True),
    "nothing is missing": lambda: lightgbm_text(use_missing=False),
    "dart": lambda: lightgbm_text(boosting="dart", drop_rate=0.5),
    "random forest": lambda: lightgbm_text(boosting="rf", bagging_freq=1, bagging_fraction=0.6),
    "one category at a time": lambda: lightgbm_text(max_cat_to_onehot=100),
    "one leaf": lambda: lightgbm_text(y=np.full(600, 0.3)),
    "no tree": lambda: lightgbm_text(0),
    "two leaves": lambda: lightgbm_text(num_leaves=2),
    "many leaves and cuts": random_forest_text,
    "mean of three": lambda: mean_of_models(
        [lightgbm_text(k, seed=k, feature_fraction=0.5) for k in (3, 5, 4)]
    ),
}


@pytest.fixture(scope="module")
def pairs():
    """All models: {name: (the library's function, ours)}."""
    found = {f"LightGBM, {name}": lightgbm_pair(make()) for name, make in LIGHTGBM.items()}
    found["XGBoost"] = xgboost_pair()
    found["XGBoost, base_score"] = xgboost_pair(base_score=0.3)
    found["XGBoost, many leaves"] = xgboost_pair(3, max_leaves=400, max_bin=900, min_child_weight=1e-9)
    found["CatBoost"] = catboost_pair(random_trees([0, 1, 3, 6, 7, 8, 5, 2, 4, 9, 10]))
    found["CatBoost, categories"] = catboost_pair(random_trees([3, 6, 8, 8], D + 3), "abcd")
    return found


NAMES = [
    *(f"LightGBM, {name}" for name in LIGHTGBM),
    *("XGBoost", "XGBoost, base_score", "XGBoost, many leaves", "CatBoost", "CatBoost, categories"),
]


def near_thresholds(model, n, seed):
    """Rows of the cuts of a model, of numbers next to them, and of awkward numbers."""
    rng = np.random.default_rng(seed)
    cuts = np.concatenate([model.parts[3], AWKWARD, np.arange(-2.0, 45.0)])
    cuts = cuts[np.isnan(cuts) | (np.abs(cuts) < 1e38)]
    pool = np.concatenate(
        [cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf), cuts.astype(np.float32)]
    )
    return rng.choice(pool, size=(n, model.n_features))


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_library_to_the_last_bit(pairs, name):
    oracle, model = pairs[name]
    X = np.concatenate([rows(500, seed=7)[0], near_thresholds(model, 4000, 8)])
    for values in (X, X.astype(np.float32)):
        assert model.scores(values).tobytes() == oracle(values).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_document_do_not_depend_on_the_number_of_documents(pairs, name):
    oracle, model = pairs[name]
    X = near_thresholds(model, 1000, 9)
    expected = oracle(X)
    for n in SIZES:
        assert model.scores(X[:n]).tobytes() == expected[:n].tobytes()
        assert model.scores(X[-n:]).tobytes() == expected[-n:].tobytes()
    assert model.scores(X[:0]).shape == (0,)


@pytest.mark.parametrize(
    "name", ["LightGBM, zeros are missing", "LightGBM, plain", "XGBoost", "CatBoost, categories"]
)
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_scores_of_any_values(pairs, name, data):
    oracle, model = pairs[name]
    value = st.one_of(
        st.sampled_from([*AWKWARD, *model.parts[3][np.abs(model.parts[3]) < 1e38].tolist()]),
        st.floats(-1e38, 1e38),
        st.integers(-3, 45).map(float),
    )
    X = np.array(data.draw(st.lists(st.tuples(*[value] * D), min_size=1, max_size=20)))
    assert model.scores(X).tobytes() == oracle(X).tobytes()


@pytest.mark.parametrize("isa", _native.instruction_sets())
def test_scores_do_not_depend_on_the_instruction_set(pairs, isa):
    used = _native.instruction_set()
    for name in NAMES:
        oracle, model = pairs[name]
        X = near_thresholds(model, 150, 10)
        _native.use_instruction_set(isa)
        try:
            found = model.scores(X)
        finally:
            _native.use_instruction_set(used)
        assert found.tobytes() == oracle(X).tobytes()


def test_the_models_have_what_the_tests_are_about():
    own_way = [tree.zero_missing for tree in trees_in(LIGHTGBM["zeros are missing"]())]
    assert any(own_way)
    trees = trees_in(LIGHTGBM["many leaves and cuts"]())
    assert len(trees[0].leaves) == 600
    cuts = np.concatenate([tree.threshold[tree.feature == 0] for tree in trees])
    assert len(np.unique(cuts)) > 2 * 255
    assert any(len(codes) > 1 for tree in trees_in(lightgbm_text()) for codes in tree.members.values())


def test_many_documents_in_several_threads(pairs):
    oracle, model = pairs["LightGBM, plain"]
    X = near_thresholds(model, 100_000, 11)
    expected = oracle(X)
    assert model.scores(X).tobytes() == expected.tobytes()
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(model.scores, np.array_split(X, 40)))
    assert np.concatenate(parts).tobytes() == expected.tobytes()


def test_a_pickled_model_has_the_same_scores(pairs):
    _, model = pairs["XGBoost"]
    X = near_thresholds(model, 20, 12)
    again = pickle.loads(pickle.dumps(model))
    assert again.scores(X).tobytes() == model.scores(X).tobytes()
    assert (again.n_features, again.n_trees) == (D, 12)


RANKERS = {
    "BoostedRanker": lambda: BoostedRanker(n_estimators=8, min_child_samples=5, verbose=False, n_threads=1),
    "BoostedRanker of several": lambda: BoostedRanker(
        n_estimators=4, n_boosters=3, min_child_samples=5, verbose=False, n_threads=1
    ),
    "LightGBMRanker": lambda: LightGBMRanker(
        n_estimators=8, num_leaves=7, min_child_samples=5, step=4, verbose=False, n_threads=1
    ),
    "XGBoostRanker": lambda: XGBoostRanker(
        n_estimators=8, num_leaves=7, min_child_weight=0.1, step=4, verbose=False, n_threads=1
    ),
    "CatBoostRanker": lambda: CatBoostRanker(
        n_estimators=8, depth=4, l2_leaf_reg=None, step=4, verbose=False, n_threads=1
    ),
}


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize("categorical", [False, True], ids=["numbers", "categories"])
def test_a_saved_ranker(name, categorical, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: it is in the extra test")
    X, y = rows()
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(D)])
    if categorical:
        codes = frame["x3"].fillna(-1).astype(int)
        frame["x3"] = pandas.Categorical.from_codes(codes, [f"c{i}" for i in range(40)])
    ranker = RANKERS[name]().fit(frame, y, qid=np.arange(600) // 20)
    path = tmp_path / "trees.model"
    ranker.save(path)
    file = read_model(path)
    model = trees_of(file.kind, file.state)
    assert model.scores(X).tobytes() == ranker.predict(frame).tobytes()
    assert model.n_trees == ranker.n_trees_


def test_catboost_keeps_the_values_of_the_leaves():
    trees = random_trees([6, 6, 6])
    found = booster_of(trees, catboost).get_leaf_values()
    assert found.tobytes() == np.concatenate([tree.leaves for tree in trees.trees]).tobytes()


def test_catboost_without_trees_scores_by_zero():
    state = {"n_features": D, "fitted": {"model": {"catboost": text_of(Trees(D, (), 2.0, ()))}}}
    assert trees_of("CatBoostRanker", state).scores(np.ones((3, D))).tolist() == [0, 0, 0]


def test_linear_functions_in_leaves_are_refused():
    X, y = np.nan_to_num(rows()[0]), rows()[1]
    with pytest.raises(ValueError, match="linear functions in its leaves"):
        lightgbm_pair(lightgbm_text(3, X, y, linear_tree=True, categories=()))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((3, D + 1)), r"X must have shape \(N, 5\); got \(3, 6\)"),
        (np.ones(D), r"X must have shape \(N, 5\); got \(5,\)"),
        (np.ones((3, D), dtype=np.int64), "X must be an array of float64 or float32 in C order; got int64"),
        (np.ones((D, 3)).T, "in C order"),
    ],
)
def test_other_arrays_are_refused(pairs, X, message):
    with pytest.raises(ValueError, match=message):
        pairs["LightGBM, plain"][1].scores(X)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"kind must be one of BoostedRanker, .*; got 'SinkPropRanker'"):
        trees_of("SinkPropRanker", {"n_features": 1, "fitted": {}})


def test_a_model_that_lies_about_its_features_is_refused():
    state = {"n_features": D + 1, "fitted": {"lightgbm": lightgbm_text().split("\n")}}
    with pytest.raises(ValueError, match="another number of features"):
        trees_of("BoostedRanker", state)


def test_sets_of_categories_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr("sinkprop.serving.forest._LARGEST", 100)
    with pytest.raises(ValueError, match="the sets of categories of its splits are too large"):
        lightgbm_pair(lightgbm_text())


def damaged(text, rng):
    """The lines of a model in which one number of a tree is another; the sizes of the trees are right."""
    lines = text.split("\n")
    names = ("split_feature", "left_child", "right_child", "cat_boundaries", "cat_threshold", "decision_type")
    place = rng.choice([i for i, line in enumerate(lines) if line.split("=")[0] in names])
    name, _, values = lines[place].partition("=")
    numbers = values.split(" ")
    numbers[rng.integers(len(numbers))] = str(rng.choice([-1, 0, 1, 2, 3, 9, 10**6, 2**31]))
    changed = f"{name}={' '.join(numbers)}"
    head = next(i for i, line in enumerate(lines) if line.startswith("tree_sizes="))
    sizes = [int(size) for size in lines[head].removeprefix("tree_sizes=").split(" ")]
    sizes[sum(line.startswith("Tree=") for line in lines[:place]) - 1] += len(changed) - len(lines[place])
    lines[place], lines[head] = changed, f"tree_sizes={' '.join(map(str, sizes))}"
    return lines


def test_a_damaged_model_is_refused_or_has_the_scores_of_the_library():
    text, refused, scored = lightgbm_text(2), 0, 0
    for seed in range(60):
        lines = damaged(text, np.random.default_rng(seed))
        try:
            model = trees_of("BoostedRanker", {"n_features": D, "fitted": {"lightgbm": lines}})
        except ValueError:
            refused += 1
            continue
        X = near_thresholds(model, 100, seed)
        found = lightgbm.Booster(model_str="\n".join(lines)).predict(X, raw_score=True, num_threads=1)
        assert model.scores(X).tobytes() == found.tobytes()
        scored += 1
    assert min(refused, scored) > 10


def test_nothing_but_numpy_is_imported(tmp_path):
    path = tmp_path / "trees.model"
    RANKERS["BoostedRanker"]().fit(*rows(), qid=np.arange(600) // 20).save(path)
    code = f"""
import sys, numpy
from sinkprop.model_files import read_model
from sinkprop.serving.trees import trees_of
file = read_model({str(path)!r})
trees_of(file.kind, file.state).scores(numpy.ones((2, {D})))
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"sklearn", "scipy", "lightgbm", "pandas"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
