"""Scores that a search engine would compute from an exported model, in its single precision.

These scores check an export without running the engine. They follow the rules in the engines' documentation
and source code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Integers, Singles

__all__ = ["elasticsearch_scores", "solr_scores"]


def elasticsearch_scores(request: dict[str, Any], names: Sequence[str], X: NDArray[Any]) -> Singles:
    """Scores (N,) that the Elasticsearch plugin would compute for the rows of X.

    request  Model, as `to_elasticsearch` returns it.
    names    Names of the columns of X.
    """
    model = request["model"]["model"]
    definition, columns = json.loads(model["definition"]), _columns(names, X)
    for name, norm in model.get("feature_normalizers", {}).items():
        figures = norm["standard"]
        columns[name] = _normalized(columns[name], figures["mean"], figures["standard_deviation"])
    scores = np.zeros(len(X), dtype=np.float32)
    if model["type"] == "model/linear":
        for name in names:
            scores += np.float32(definition.get(name, 0.0)) * columns[name]
        return scores

    def step(node: dict[str, Any], rows: Integers) -> Any:
        if "leaf" in node:
            return np.float32(node["leaf"])
        value, threshold = columns[node["split"]][rows], np.float32(node["split_condition"])
        left = np.where(np.isnan(value), node["missing"] == node["yes"], threshold > value)
        return (*node["children"], left)

    for tree in definition:
        scores += _leaves(tree, len(X), step)
    return scores


def solr_scores(model: dict[str, Any], names: Sequence[str], X: NDArray[Any]) -> Singles:
    """Scores (N,) that Solr would compute for the rows of X.

    model  Model, as `to_solr` returns it.
    names  Names of the columns of X.
    """
    columns, parameters = _columns(names, X), model["params"]
    for feature in model["features"]:
        if "norm" in feature:
            figures, name = feature["norm"]["params"], feature["name"]
            columns[name] = _normalized(columns[name], float(figures["avg"]), float(figures["std"]))
    order = [feature["name"] for feature in model["features"]]
    scores = np.zeros(len(X), dtype=np.float32)
    if "weights" in parameters:
        for name in order:
            scores += columns[name] * np.float32(parameters["weights"][name])
        return scores
    if "layers" in parameters:
        units = [columns[name] for name in order]
        for layer in parameters["layers"]:
            units = [
                _activated(_sum(row, bias, units, len(X)), layer["activation"])
                for row, bias in zip(layer["matrix"], layer["bias"], strict=True)
            ]
        return units[0]

    def step(node: dict[str, Any], rows: Integers) -> Any:
        if "feature" not in node:
            return np.float32(node["value"])
        value, threshold = columns[node["feature"]][rows], np.float32(node["threshold"]) + np.float32(1e-6)
        left = np.where(np.isnan(value), node.get("missing") == "left", value <= threshold)
        return node["left"], node["right"], left

    for tree in parameters["trees"]:
        scores += np.float32(tree["weight"]) * _leaves(tree["root"], len(X), step)
    return scores


def _columns(names: Sequence[str], X: NDArray[Any]) -> dict[str, Singles]:
    with np.errstate(over="ignore"):
        return {name: X[:, i].astype(np.float32) for i, name in enumerate(names)}


def _normalized(values: Singles, mean: float, deviation: float) -> Singles:
    with np.errstate(over="ignore"):
        found: Singles = (values - np.float32(mean)) / np.float32(deviation)
    return found


def _sum(row: list[float], bias: float, units: list[Singles], n: int) -> Singles:
    total = np.full(n, bias, dtype=np.float32)
    for weight, unit in zip(row, units, strict=True):
        total += np.float32(weight) * unit
    return total


def _activated(x: Singles, name: str) -> Singles:
    if name == "identity":
        return x
    return np.tanh(x) if name == "tanh" else np.maximum(x, np.float32(0))


def _leaves(root: dict[str, Any], n: int, step: Callable[[dict[str, Any], Integers], Any]) -> Singles:
    """Send n rows through the tree below `root`, and return the value of the leaf that each row reaches.

    `step` is a function of a node and the indices of the rows that reach it. For a leaf, it returns the
    leaf's value. For an inner node, it returns the left child, the right child and a mask of the rows that go
    left.
    """
    out = np.zeros(n, dtype=np.float32)
    open_nodes = [(root, np.arange(n))]
    while open_nodes:
        node, rows = open_nodes.pop()
        found = step(node, rows)
        if isinstance(found, np.float32):
            out[rows] = found
        else:
            left, right, goes_left = found
            open_nodes += [(left, rows[goes_left]), (right, rows[~goes_left])]
    return out
