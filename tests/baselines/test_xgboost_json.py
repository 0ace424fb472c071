"""Models in XGBoost's JSON format that a stranger may have written."""

import json
import os

import numpy as np
import pytest
from forking import end_of_child, uses_of_changed_digits
from numpy.testing import assert_array_equal

from sinkprop import load_model
from sinkprop.model_files import ModelFileError, read_model, write_model

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: it comes with the extra xgboost")

from sinkprop.baselines import XGBoostRanker  # noqa: E402
from sinkprop.baselines.xgboost_trees import _booster  # noqa: E402
from sinkprop.serving.tree_files.xgboost_json import checked_json  # noqa: E402


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    X[:, 2] = rng.integers(0, 12, 500)
    return X, (X[:, 0] + X[:, 2] > 5) * 1.0


def trained(**data):
    X, y = rows()
    parameters = {"objective": "rank:ndcg", "nthread": 1, "max_leaves": 6, "max_depth": 0}
    rows_of = xgboost.DMatrix(X, y, group=[50] * 10, nthread=1, **data)
    booster = xgboost.train({**parameters, "grow_policy": "lossguide"}, rows_of, 3)
    return bytes(booster.save_raw("json")).decode()


@pytest.fixture(scope="module")
def model():
    return trained()


def test_models_of_xgboost_are_accepted(model):
    X, _ = rows()
    kinds = ["q", "q", "c"]
    for text, types in ((model, None), (trained(feature_types=kinds, enable_categorical=True), kinds)):
        matrix = xgboost.DMatrix(X, nthread=1, feature_types=types, enable_categorical=types is not None)
        expected = _booster(text).predict(matrix)
        checked = _booster(checked_json(text, 3))
        assert_array_equal(checked.predict(matrix), expected)
        assert bytes(checked.save_raw("json")).decode() == text


def at(model, *path):
    for name in path[:-1]:
        model = model[name]
    return model, path[-1]


LEARNER = ("learner",)
TREES = ("learner", "gradient_booster", "model", "trees")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((*TREES, 0, "left_children", 0), 99, "a child is not among its nodes"),
        ((*TREES, 0, "left_children", 0), 0, "do not form a tree"),
        ((*TREES, 0, "left_children", 0), -1, "a node has one child"),
        ((*TREES, 0, "right_children", 0), 2**40, "right_children has an entry"),
        ((*TREES, 0, "right_children", 0), 1.5, "right_children has an entry"),
        ((*TREES, 0, "parents", 1), 2, "its parents are not those of its children"),
        ((*TREES, 0, "parents", 0), 3, "its first node has a parent"),
        ((*TREES, 0, "split_indices", 0), 3, "a feature that is not among the 3"),
        ((*TREES, 0, "split_indices", 0), -1, "a feature that is not among the 3"),
        ((*TREES, 0, "split_conditions", 0), 1e39, "split_conditions has an entry"),
        ((*TREES, 0, "split_conditions", 0), None, "split_conditions has an entry"),
        ((*TREES, 0, "split_type", 0), 1, "not those that have categories"),
        ((*TREES, 0, "split_type", 0), 7, "split_type has an entry"),
        ((*TREES, 0, "default_left", 0), 9, "neither left nor right"),
        ((*TREES, 0, "sum_hessian"), [1.0], "its arrays have different lengths"),
        ((*TREES, 0, "tree_param", "num_nodes"), "99999", "its sizes are not those of its arrays"),
        ((*TREES, 0, "tree_param", "num_feature"), "4", "its sizes are not those of its arrays"),
        ((*TREES, 1, "id"), 0, "tree 1: its number is 0"),
        ((*TREES, 1), None, "not trees that XGBoost wrote"),
        ((*TREES[:-1], "tree_info"), [0, 0, 7], "tree_info is not one 0"),
        ((*TREES[:-1], "iteration_indptr"), [0, 9, 2, 3], "iteration_indptr does not count"),
        ((*TREES[:-1], "gbtree_model_param", "num_trees"), "4", "the number of trees"),
        ((*LEARNER, "learner_model_param", "num_feature"), "4", "another number of features than 3"),
        ((*LEARNER, "learner_model_param", "num_target"), "2", "the model has several outputs"),
        ((*LEARNER, "learner_model_param", "base_score"), "[1e999]", "base_score is not a finite number"),
        ((*LEARNER, "learner_model_param", "base_score"), "x", "not trees that XGBoost wrote"),
        ((*LEARNER, "objective", "name"), "reg:squarederror", "rank:ndcg"),
        ((*LEARNER, "feature_names"), ["a"], "feature_names has another number"),
        ((*LEARNER, "gradient_booster", "name"), "gblinear", "rank:ndcg"),
        (("version",), [3], "the version of XGBoost"),
        (("learner",), {}, "not trees that XGBoost wrote"),
    ],
)
def test_what_xgboost_would_not_notice_is_refused(model, path, value, message):
    changed = json.loads(model)
    holder, name = at(changed, *path)
    holder[name] = value
    with pytest.raises(ValueError, match=message):
        checked_json(json.dumps(changed), 3)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"learner": NaN}', "{}"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  # any message: Python's JSON reader has its own
        checked_json(text, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a crash is watched for in a forked process")
def test_changed_digits_end_no_process(model):
    """Each of these models is refused, or works; XGBoost alone would crash or hang on some of them."""
    X = np.vstack([rows()[0], np.full((1, 3), np.nan)])

    def work():
        return uses_of_changed_digits(
            [model],
            lambda text: _booster(checked_json(text, 3)),
            lambda booster: booster.predict(xgboost.DMatrix(X, nthread=1)),
            200,
        )

    assert end_of_child(work) == 0


def test_a_model_file_with_other_trees_is_refused(tmp_path):
    X, y = rows()
    settings = {"n_estimators": 3, "num_leaves": 4, "min_child_weight": 1.0, "n_threads": 1}
    path = tmp_path / "m"
    XGBoostRanker(**settings).fit(X, y, qid=np.repeat(np.arange(10), 50)).save(path)
    state = read_model(path).state
    trees = json.loads(state["fitted"]["model"]["xgboost"])
    trees["learner"]["gradient_booster"]["model"]["trees"][0]["left_children"][0] = 0
    state["fitted"]["model"]["xgboost"] = json.dumps(trees)
    write_model(path, "XGBoostRanker", state)
    with pytest.raises(ModelFileError, match="tree 0: the children of its splits do not form a tree"):
        load_model(path)
