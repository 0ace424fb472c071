"""Oblivious trees of CatBoost as plain data: taken from a model, checked, and made into a model again.

An oblivious tree asks the same question of all documents at one level: is the value of a column above a
border? So a tree of depth d has d questions and 2^d leaves. CatBoost trusts the files that it reads, and a
wrong number in one can end the process. A model file may come from a stranger. So CatBoost never reads a
part of a model file: `checked_trees` checks plain numbers, and `booster_of` writes them anew for CatBoost.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

__all__ = ["ObliviousTree", "Trees", "booster_of", "checked_trees", "text_of", "trees_of"]

_DEEPEST = 16  # greatest depth that CatBoost takes
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ObliviousTree:
    """One tree of depth d.

    columns  Column of each question, d numbers.
    borders  Border of each question, d numbers of single precision; the answer is yes if the value is above
             it. A missing value is not above any border.
    leaves   2^d values. The leaf of a document has number a_0 + 2 a_1 + 4 a_2 + ..., where a_k is 1 if the
             answer to question k is yes, and otherwise 0.
    weights  2^d sums of the weights of the training documents in each leaf.
    """

    columns: tuple[int, ...]
    borders: tuple[float, ...]
    leaves: tuple[float, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Trees:
    """Trees whose sum, plus a constant, is the score of a document.

    n_columns  Number of columns of the data.
    missing    Columns that had missing values in training.
    """

    n_columns: int
    missing: tuple[int, ...]
    constant: float
    trees: tuple[ObliviousTree, ...]


def trees_of(booster: Any, n_trees: int) -> Trees:
    """Return the first trees of a `catboost.CatBoost` that was fitted to columns of numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        booster.save_model(str(path), format="json")
        model = json.loads(path.read_text(encoding="utf-8"))
    factor, (constant,) = model["scale_and_bias"]
    features = model["features_info"]["float_features"]
    trees = [
        ObliviousTree(
            tuple(split["float_feature_index"] for split in tree["splits"]),
            tuple(float(split["border"]) for split in tree["splits"]),
            tuple(factor * float(x) for x in tree["leaf_values"]),
            tuple(float(x) for x in tree["leaf_weights"]),
        )
        for tree in model["oblivious_trees"][:n_trees]
    ]
    return Trees(
        len(features),
        tuple(i for i, feature in enumerate(features) if feature["has_nans"]),
        float(constant),
        tuple(trees),
    )


def text_of(trees: Trees) -> str:
    """Return the trees as JSON text, which `checked_trees` reads."""
    return json.dumps({**vars(trees), "trees": [vars(tree) for tree in trees.trees]})


def checked_trees(text: str, n_columns: int) -> Trees:
    """Read what `text_of` wrote. Raises a ValueError unless it holds valid trees on `n_columns` columns."""
    try:
        record = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"not trees of CatBoost ({error})") from None
    _check_names(record, Trees)
    if record["n_columns"] != n_columns or type(record["n_columns"]) is not int:
        raise ValueError(f"trees on another number of columns than {n_columns}")
    missing = _whole_numbers(record["missing"], n_columns, "missing")
    (constant,) = _finite_numbers([record["constant"]], "the constant")
    if not isinstance(record["trees"], list):
        raise ValueError("its trees are not a list")
    trees: list[ObliviousTree] = []
    try:
        for tree in record["trees"]:
            trees.append(_checked_tree(tree, n_columns))  # noqa: PERF401  # the error names the tree
    except ValueError as error:
        raise ValueError(f"tree {len(trees)}: {error}") from None
    return Trees(n_columns, missing, constant, tuple(trees))


def _checked_tree(tree: Any, n_columns: int) -> ObliviousTree:
    _check_names(tree, ObliviousTree)
    columns = _whole_numbers(tree["columns"], n_columns, "columns")
    borders, leaves, weights = (
        _finite_numbers(tree[name], name) for name in ("borders", "leaves", "weights")
    )
    if len(columns) > _DEEPEST:
        raise ValueError(f"it asks {len(columns)} questions; CatBoost asks at most {_DEEPEST}")
    if len(borders) != len(columns) or len(leaves) != 2 ** len(columns) or len(weights) != len(leaves):
        raise ValueError("its arrays have lengths that do not fit together")
    if any(abs(border) > _LARGEST or float(np.float32(border)) != border for border in borders):
        raise ValueError("a border is not a number of single precision")
    if min(weights) < 0:
        raise ValueError("the weight of a leaf is below 0")
    return ObliviousTree(columns, borders, leaves, weights)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


def _check_names(record: Any, kind: type) -> None:
    names = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if not isinstance(record, Mapping) or set(record) != names:
        raise ValueError(f"not trees of CatBoost: expected a record of {', '.join(sorted(names))}")


def _whole_numbers(values: Any, limit: int, name: str) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(x) is int and 0 <= x < limit for x in values):
        raise ValueError(f"{name} has an entry that is not the number of one of {limit} columns")
    return tuple(values)


def _finite_numbers(values: Any, name: str) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(
        type(x) in (int, float) and abs(x) < 1e300 and math.isfinite(x) for x in values
    ):
        raise ValueError(f"{name} has an entry that is not a finite number")
    return tuple(float(x) for x in values)


def booster_of(trees: Trees, catboost: Any) -> Any:
    """Return a `catboost.CatBoost` that sums the trees; `catboost` is the imported package."""
    borders: list[set[float]] = [set() for _ in range(trees.n_columns)]
    for tree in trees.trees:
        for column, border in zip(tree.columns, tree.borders, strict=True):
            borders[column].add(border)
    # CatBoost numbers the questions by column, then by border
    questions = [(column, border) for column, own in enumerate(borders) for border in sorted(own)]
    number = {question: i for i, question in enumerate(questions)}
    features = [
        {
            "borders": sorted(own),
            "feature_id": "",
            "feature_index": column,
            "flat_feature_index": column,
            "has_nans": column in trees.missing,
            "nan_value_treatment": "AsFalse" if column in trees.missing else "AsIs",
        }
        for column, own in enumerate(borders)
    ]
    model = {
        "features_info": {"float_features": features},
        # CatBoost cannot score by no tree at all, but by one leaf
        "oblivious_trees": [_record(tree, number) for tree in trees.trees]
        or [{"leaf_values": [0.0], "leaf_weights": [0.0], "splits": []}],
        "scale_and_bias": [1, [trees.constant]],
    }
    booster = catboost.CatBoost()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        path.write_text(json.dumps(model), encoding="utf-8")
        booster.load_model(str(path), format="json")
    return booster


def _record(tree: ObliviousTree, number: Mapping[tuple[int, float], int]) -> dict[str, Any]:
    questions = zip(tree.columns, tree.borders, strict=True)
    return {
        "leaf_values": list(tree.leaves),
        "leaf_weights": list(tree.weights),
        "splits": [
            {
                "border": border,
                "float_feature_index": column,
                "split_index": number[column, border],
                "split_type": "FloatFeature",
            }
            for column, border in questions
        ],
    }
