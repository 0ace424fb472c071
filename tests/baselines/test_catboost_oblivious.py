"""Trees of CatBoost as plain data, which a stranger may have written."""

import json
import os

import numpy as np
import pytest
from forking import end_of_child, uses_of_changed_digits
from numpy.testing import assert_allclose, assert_array_equal

from sinkprop import load_model
from sinkprop.model_files import ModelFileError, read_model, write_model

catboost = pytest.importorskip("catboost", reason="catboost is not installed: it is in the extra catboost")

from sinkprop.baselines import CatBoostRanker  # noqa: E402
from sinkprop.baselines.catboost.oblivious import booster_of, trees_of  # noqa: E402
from sinkprop.serving.tree_files.catboost_trees import (  # noqa: E402
    ObliviousTree,
    Trees,
    checked_trees,
    text_of,
)


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    X[::9, 2] = np.nan
    return X, (X[:, 0] * X[:, 1] > 0.2) * 1.0


@pytest.fixture(scope="module")
def booster():
    X, y = rows()
    parameters = {"loss_function": "YetiRank", "iterations": 5, "depth": 3, "thread_count": 1}
    model = catboost.CatBoost({**parameters, "allow_writing_files": False, "verbose": False})
    return model.fit(catboost.Pool(X, y, group_id=np.repeat(np.arange(10), 50)))


@pytest.fixture(scope="module")
def text(booster):
    return text_of(trees_of(booster, 4))


def test_trees_come_back_as_they_were(booster, text):
    X, _ = rows()
    trees = checked_trees(text, 3)
    assert trees == trees_of(booster, 4)
    assert text_of(trees) == text
    assert trees.missing == (2,)
    again = booster_of(trees, catboost)
    assert again.tree_count_ == 4
    assert_allclose(again.predict(X), booster.predict(X, ntree_end=4), rtol=0, atol=1e-13)
    assert_array_equal(trees_of(again, 4).trees[0].borders, trees.trees[0].borders)


def test_a_score_by_hand():
    tree = ObliviousTree((1, 0), (0.5, 2.0), (1.0, 2.0, 4.0, 8.0), (1.0, 0.0, 0.0, 3.0))
    model = booster_of(Trees(2, (1,), 0.25, (tree,)), catboost)
    X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0], [2.0, 0.5], [3.0, np.nan], [np.nan, 1.0]])
    assert_array_equal(model.predict(X) - 0.25, [1, 2, 4, 8, 1, 4, 2])
    assert_array_equal(booster_of(Trees(2, (), 0.0, ()), catboost).predict(X), np.zeros(7))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("trees", 0, "columns", 0), 3, "tree 0: columns has an entry that is not the number of one of 3"),
        (("trees", 1, "columns", 0), -1, "tree 1: columns has an entry"),
        (("trees", 0, "columns", 0), 1.0, "columns has an entry"),
        (("trees", 0, "columns", 0), True, "columns has an entry"),
        (("trees", 0, "columns"), [0], "lengths that do not fit together"),
        (("trees", 0, "columns"), [0] * 17, "it asks 17 questions"),
        (("trees", 0, "columns"), {}, "columns has an entry"),
        (("trees", 0, "borders", 0), 1e39, "not a number of single precision"),
        (("trees", 0, "borders", 0), 0.1, "not a number of single precision"),
        (("trees", 0, "borders", 0), "1", "borders has an entry that is not a finite number"),
        (("trees", 0, "borders"), [], "lengths that do not fit together"),
        (("trees", 0, "leaves", 0), None, "leaves has an entry that is not a finite number"),
        (("trees", 0, "leaves", 0), 1e301, "leaves has an entry that is not a finite number"),
        (("trees", 0, "leaves", 0), 10**400, "leaves has an entry that is not a finite number"),
        (("trees", 0, "leaves"), [1.0], "lengths that do not fit together"),
        (("trees", 0, "weights"), [1.0], "lengths that do not fit together"),
        (("trees", 0, "weights", 0), -1.0, "the weight of a leaf is below 0"),
        (("trees", 0, "more"), 1, "tree 0: not trees of CatBoost"),
        (("trees", 0), 7, "tree 0: not trees of CatBoost"),
        (("trees",), 7, "its trees are not a list"),
        (("n_columns",), 4, "another number of columns than 3"),
        (("n_columns",), 3.0, "another number of columns than 3"),
        (("missing",), [3], "missing has an entry"),
        (("constant",), "0", "the constant has an entry"),
        (("more",), 0, "not trees of CatBoost"),
    ],
)
def test_what_catboost_could_not_read_is_refused(text, path, value, message):
    model = json.loads(text)
    place = model
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        checked_trees(json.dumps(model), 3)


@pytest.mark.parametrize("wrong", ["", "7", "[]", "{", "[" * 100_000, '{"trees": NaN}', None, 7])
def test_text_of_another_kind_is_refused(wrong):
    with pytest.raises(ValueError, match=r"not trees of CatBoost|not a finite number|nested too deeply"):
        checked_trees(wrong, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_no_changed_digit_ends_the_process(text):
    X, _ = rows()

    def use(trees):
        model = booster_of(trees, catboost)
        model.predict(X, thread_count=1)
        model.get_feature_importance(type="PredictionValuesChange", thread_count=1)

    def work():
        return uses_of_changed_digits([text], lambda changed: checked_trees(changed, 3), use, 200)

    assert end_of_child(work) == 0


def test_a_changed_file_is_a_model_file_error(tmp_path):
    X, y = rows()
    path = tmp_path / "m.model"
    settings = {"depth": 2, "l2_leaf_reg": None, "n_estimators": 3, "step": 3}
    CatBoostRanker(**settings).fit(X, y, qid=np.repeat(np.arange(10), 50)).save(path)
    state = read_model(path).state
    for wrong in ("{}", 7, None, ["a"], {"a": 1}):
        state["fitted"]["model"]["catboost"] = wrong
        write_model(path, "CatBoostRanker", state)
        with pytest.raises(ModelFileError, match="not trees of CatBoost"):
            load_model(path)
