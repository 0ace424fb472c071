"""Oblivious trees of CatBoost: taken from a model as plain data, and made into a model again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sinkprop.serving.tree_files.catboost_trees import ObliviousTree, Trees

__all__ = ["booster_of", "trees_of"]


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
    # CatBoost rounds the decimal numbers of its JSON format to neighbors of the doubles that were written
    if trees.trees:
        booster.set_leaf_values(np.concatenate([tree.leaves for tree in trees.trees]))
    booster.set_scale_and_bias(1, trees.constant)
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
