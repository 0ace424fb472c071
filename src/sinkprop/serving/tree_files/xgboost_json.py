"""Models in XGBoost's JSON format: taken apart, and checked before XGBoost reads them.

XGBoost trusts the file, as LightGBM does. A wrong number in it can end the process, or make XGBoost walk in a
circle. A model file may come from a stranger, so `checked_json` checks everything that XGBoost relies on.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import numpy as np

from sinkprop.common.types import Floats, Integers
from sinkprop.serving.tree_files.lightgbm_text import check_parents
from sinkprop.serving.tree_files.tree import Tree, one_leaf

__all__ = ["base_score_of", "checked_json", "checked_model", "integers_of", "singles_of", "trees_of_learner"]

_PER_NODE = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_NO_PARENT = (-1, 2**31 - 1)


def integers_of(tree: Any, name: str) -> Integers:
    """Return an array of whole numbers of a tree. Raises a ValueError if it holds anything else."""
    values = tree[name]
    if not isinstance(values, list) or not all(type(x) in (int, bool) and abs(x) < 2**32 for x in values):
        raise ValueError(f"{name} has an entry that is not a whole number")
    return np.array(values, dtype=np.int64)


def singles_of(tree: Any, name: str) -> Floats:
    """Return an array of floats of a tree. Raises a ValueError if one is not a finite float32."""
    values = tree[name]
    if not isinstance(values, list) or not all(type(x) in (int, float) and abs(x) < 2**128 for x in values):
        raise ValueError(f"{name} has an entry that is not a finite number")
    return np.array(values, dtype=np.float64)


def checked_json(text: str, n_features: int) -> str:
    """Return the model as JSON that XGBoost can safely read, if it is a model of `n_features` features.

    Raises a ValueError if it is not. The result has the same content. It is written anew, so that XGBoost
    reads what was checked, even if it takes an unusual text in another way than Python.
    """
    return json.dumps(checked_model(text, n_features))


def checked_model(text: str, n_features: int) -> Any:
    """Return what the JSON text holds, if it is a model of `n_features` features; else raise a ValueError."""
    try:
        model = json.loads(text, parse_constant=_no_constant)
        _check_model(model, n_features)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not trees that XGBoost wrote ({type(error).__name__}: {error})") from None
    return model


def trees_of_learner(learner: Any) -> list[Tree]:
    """The trees of the record "learner" of a model that XGBoost wrote, or that `checked_model` accepts.

    XGBoost rounds feature values to float32, and sends values below the threshold left.
    """
    return [_tree(record) for record in learner["gradient_booster"]["model"]["trees"]]


def base_score_of(learner: Any) -> float:
    """Return the constant of the scores in the record "learner"."""
    base = json.loads(learner["learner_model_param"]["base_score"])
    return float(base[0] if isinstance(base, list) else base)


def _tree(record: Any) -> Tree:
    left, right, feature = (
        np.array(record[name], dtype=np.int64)
        for name in ("left_children", "right_children", "split_indices")
    )
    with np.errstate(over="ignore"):
        condition = np.array(record["split_conditions"], dtype=np.float32)
        below = np.nextafter(condition, np.float32(-math.inf))
    is_leaf = left < 0
    if is_leaf[0]:
        return one_leaf(float(condition[0]))
    place = np.where(is_leaf, -is_leaf.cumsum(), (~is_leaf).cumsum() - 1)
    inner = ~is_leaf
    # in float32, x < t means x <= the next float32 below t
    threshold = below[inner].astype(np.float64)
    members = _members(record, place)
    by_category = np.isin(np.arange(len(threshold)), list(members))
    sides, default = (left, right), np.array(record["default_left"], dtype=bool)[inner]
    # XGBoost sends the categories of the set right, so both sides change places
    low, high = (place[np.where(by_category, sides[1 - i][inner], sides[i][inner])] for i in (0, 1))
    leaves = condition[is_leaf].astype(np.float64)
    return Tree(feature[inner], threshold, low, high, default ^ by_category, leaves, members)


def _members(record: Any, place: Integers) -> dict[int, Integers]:
    """Return the codes in the set of each split by category, {inner node: codes}.

    place  Index of each of XGBoost's nodes among the inner nodes.
    """
    codes = np.array(record["categories"], dtype=np.int64)
    sets = zip(
        record["categories_nodes"], record["categories_segments"], record["categories_sizes"], strict=True
    )
    return {int(place[node]): codes[first : first + size] for node, first, size in sets}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that XGBoost writes")


def _check_model(model: Any, n_features: int) -> None:
    learner = model["learner"]
    booster, shape = learner["gradient_booster"], learner["learner_model_param"]
    version = model["version"]
    if len(version) != 3 or not all(type(x) is int and 0 <= x < 1000 for x in version):
        raise ValueError("the version of XGBoost is not three whole numbers")
    if booster["name"] != "gbtree" or learner["objective"]["name"] != "rank:ndcg":
        raise ValueError("not trees for the objective 'rank:ndcg'")
    if shape["num_feature"] != str(n_features):
        raise ValueError(f"trees of another number of features than {n_features}")
    if shape.get("num_target", "1") != "1" or shape["num_class"] != "0":
        raise ValueError("the model has several outputs")
    if not math.isfinite(float(re.fullmatch(r"\[?([-+.0-9eE]{1,30})\]?", shape["base_score"])[1])):  # type: ignore[index]
        raise ValueError("base_score is not a finite number")
    for name in ("feature_names", "feature_types"):
        names = learner.get(name, [])
        if len(names) not in (0, n_features) or not all(type(x) is str for x in names):
            raise ValueError(f"{name} has another number of entries than {n_features}")
    for record in (learner.get("attributes", {}), *_parameter_records(learner["objective"])):
        if not all(type(value) is str for value in record.values()):
            raise ValueError("a parameter is not text")
    _check_trees(booster["model"], n_features)


def _parameter_records(objective: dict[str, Any]) -> list[dict[str, Any]]:
    return [record for name, record in objective.items() if name != "name"]


def _check_trees(model: Any, n_features: int) -> None:
    trees, sizes = model["trees"], model["gbtree_model_param"]
    if sizes["num_trees"] != str(len(trees)) or sizes.get("num_parallel_tree", "1") not in ("0", "1"):
        raise ValueError("the number of trees is not that of the model")
    if integers_of(model, "tree_info").tolist() != [0] * len(trees):
        raise ValueError("tree_info is not one 0 for each tree")
    if integers_of({"x": model.get("iteration_indptr", [])}, "x").tolist() not in (
        [],
        [*range(len(trees) + 1)],
    ):
        raise ValueError("iteration_indptr does not count the trees")
    if any(value for value in model.get("cats", {}).values()):
        raise ValueError("the model has its own table of categories")
    number = 0
    try:
        for number, tree in enumerate(trees):  # the error names the tree
            _check_tree(tree, n_features)
            if tree["id"] != number:
                raise ValueError(f"its number is {tree['id']}")
    except ValueError as error:
        raise ValueError(f"tree {number}: {error}") from None


def _check_tree(tree: Any, n_features: int) -> None:
    left, right, parents, feature, kind, default = (
        integers_of(tree, name)
        for name in (
            "left_children",
            "right_children",
            "parents",
            "split_indices",
            "split_type",
            "default_left",
        )
    )
    n, shape = len(left), tree["tree_param"]
    values = [singles_of(tree, name) for name in _PER_NODE]
    if not n or any(len(array) != n for array in (right, parents, feature, kind, default, *values)):
        raise ValueError("its arrays have different lengths")
    sizes = (shape["num_nodes"], shape["num_feature"], shape["num_deleted"])
    if sizes != (str(n), str(n_features), "0") or shape["size_leaf_vector"] not in ("0", "1"):
        raise ValueError("its sizes are not those of its arrays")
    is_leaf = left == -1
    if not np.array_equal(is_leaf, right == -1):
        raise ValueError("a node has one child")
    place = np.where(is_leaf, -is_leaf.cumsum(), (~is_leaf).cumsum() - 1)
    if is_leaf.all():
        if n != 1:
            raise ValueError("its nodes do not form a tree")
    else:
        inner = ~is_leaf
        children = np.concatenate([left[inner], right[inner]])
        if children.min() < 0 or children.max() >= n:
            raise ValueError("a child is not among its nodes")
        check_parents(place[left[inner]], place[right[inner]], int(is_leaf.sum()))
        if not np.array_equal(parents[children], np.tile(np.flatnonzero(inner), 2)):
            raise ValueError("its parents are not those of its children")
        if feature[inner].min() < 0 or feature[inner].max() >= n_features:
            raise ValueError(f"it splits by a feature that is not among the {n_features} of the model")
    if parents[0] not in _NO_PARENT or not (0 <= default.min() <= default.max() <= 1):
        raise ValueError("its first node has a parent, or a default direction is neither left nor right")
    _check_categories(tree, np.flatnonzero((kind == 1) & ~is_leaf), kind)


def _check_categories(tree: Any, nodes: Integers, kind: Integers) -> None:
    """Check the sets of categories of the nodes that split by category."""
    if not (0 <= kind.min() <= kind.max() <= 1):
        raise ValueError("split_type has an entry that XGBoost does not know")
    held, first, sizes, values = (
        integers_of(tree, name)
        for name in ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    )
    ends = first + sizes if len(first) == len(sizes) else first - 1
    if not np.array_equal(held, nodes) or len(first) != len(held):
        raise ValueError("the splits by category are not those that have categories")
    if len(held) and (first.min() < 0 or sizes.min() < 1 or ends.max() > len(values)):
        raise ValueError("the categories of a split are not among those of the tree")
    if len(values) and not (0 <= values.min() <= values.max() < 2**24):
        raise ValueError("a category is not a whole number from 0 on")
