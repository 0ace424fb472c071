"""Numbers in single precision, as search engines store them, with shortest decimal text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.common.types import Integers, Singles
from sinkprop.data.feature_scaling import Scaling
from sinkprop.export.scorers import LinearScorer, NetworkScorer, TreeScorer
from sinkprop.serving.tree_files.tree import Tree

__all__ = [
    "Norm",
    "checked_name",
    "deepest",
    "missing_values",
    "norms",
    "refuse_by_query",
    "refuse_categories",
    "refuse_missing",
    "single",
    "single_weights",
    "thresholds",
]


_DEEPEST = 200  # maximum number of levels of a tree; JSON readers may refuse a thousand nested levels


def single(value: Any, what: str) -> float:
    """Round a value to float32, and return the shortest decimal that reads back as that float32.

    For example, 0.1 stays 0.1 and does not become 0.10000000149011612. Raises ValueError, with `what` as the
    name of the value, if the value is too large for float32.

    >>> single(0.1, "a weight"), single(np.float32(0.1), "a weight"), single(16777217.0, "a weight")
    (0.1, 0.1, 16777216.0)
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    if not np.isfinite(nearest):
        raise ValueError(
            f"{what} is {value}, too large for search engines, which compute in single precision. Scale the "
            "features and train again, or export to ONNX."
        )
    short = float(str(nearest))
    return short if np.float32(short) == nearest else float(nearest)


@dataclass(frozen=True)
class Norm:
    """Scaling of one feature: (x - mean) / deviation."""

    mean: float
    deviation: float


def norms(scaling: Scaling, names: list[str]) -> list[Norm | None]:
    """Return the scaling of each feature, with None for a feature that is exported without scaling.

    If the ranker does not standardize features, all are None. If it does, only features that were constant
    in training are None; their weights are 0. Raises ValueError if a standard deviation is 0 in float32.
    """
    if scaling.kind != "standard":
        return [None] * len(names)
    found: list[Norm | None] = []
    for name, shift, factor in zip(names, scaling.shift.tolist(), scaling.factor.tolist(), strict=True):
        if factor == 0:
            found.append(None)
            continue
        mean = single(shift, f"the mean of {name!r}")
        deviation = single(1 / factor, f"the standard deviation of {name!r}")
        if deviation == 0:
            raise ValueError(
                f"the standard deviation of {name!r} is {1 / factor}, which is 0 in the single precision of "
                "search engines. Scale the feature and train again, or export to ONNX."
            )
        found.append(Norm(mean, deviation))
    return found


def single_weights(scorer: LinearScorer, names: list[str]) -> list[float]:
    weights = zip(names, scorer.coefficients.tolist(), strict=True)
    return [single(weight, f"the weight of {name!r}") for name, weight in weights]


def refuse_by_query(kind: str, engine: str) -> None:
    if kind == "query":
        raise ValueError(
            "features are scaled within each query (normalization='query'), which needs all documents of a "
            f"query at once, but {engine} scores them one by one. Train with normalization='standard' or "
            "'none', or export to ONNX, which takes one query at a time."
        )


def refuse_categories(scorer: TreeScorer, names: list[str], engine: str) -> None:
    """Raise a ValueError that names the features at which the trees split by sets of categories, if any."""
    found = {int(tree.feature[node]) for tree in scorer.trees for node in tree.members}
    if found:
        raise ValueError(
            f"the trees split {', '.join(repr(names[i]) for i in sorted(found))} by sets of categories, but "
            f"{engine} has thresholds only. Encode the categories as columns of 0 and 1 and train again, or "
            "export to ONNX."
        )


def refuse_missing(scorer: LinearScorer | NetworkScorer, engine: str) -> None:
    if scorer.missing is not None:
        raise ValueError(
            "the model was trained with missing values (NaN), for which it has means and indicators, but "
            f"{engine} takes a feature without a value for 0. Fill missing values in before training, train "
            "trees, such as BoostedRanker, or export to ONNX."
        )


def thresholds(tree: Tree, names: list[str]) -> Singles:
    """Round the thresholds of a tree's K inner nodes down to float32, (K,).

    Rounded down, they send every float32 value the same way as the model's thresholds. Raises ValueError if a
    threshold is too large for float32.
    """
    with np.errstate(over="ignore"):
        nearest = tree.threshold.astype(np.float32)
    below = np.where(nearest > tree.threshold, np.nextafter(nearest, np.float32(-math.inf)), nearest)
    if not np.isfinite(below).all():
        node = int(np.argmin(np.isfinite(below)))
        raise ValueError(
            f"a threshold of {names[tree.feature[node]]!r} is {tree.threshold[node]}, too large for search "
            "engines, which compute in single precision. Scale the feature and train again."
        )
    return below


def missing_values(scorer: TreeScorer, given: str | None) -> str:
    """Treatment of missing values in trees: `given`, or "zero" if `given` is None.

    Raises ValueError if `given` is None and the trees were trained with missing values.
    """
    if given not in (None, "zero", "nan"):
        raise ValueError(f"missing must be 'zero', 'nan' or None; got {given!r}.")
    if given is None and scorer.learned_missing:
        raise ValueError(
            "the model was trained with missing values (NaN), which its trees send left or right separately. "
            "Choose how to treat a feature without a value: missing='nan', for engines that support missing "
            "values, or missing='zero', which sends them where 0 goes."
        )
    return given or "zero"


def deepest(tree: Tree) -> Integers:
    """Depth of each of the K inner nodes of a tree, (K,); the root has depth 0.

    Raises ValueError if the tree is deeper than JSON readers may accept.
    """
    depth = np.zeros(len(tree.feature), dtype=np.int64)
    for node, (left, right) in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        for child in (left, right):
            if child >= 0:
                depth[child] = depth[node] + 1
    if len(depth) and depth.max() >= _DEEPEST:
        raise ValueError(
            f"a tree has {depth.max() + 1} levels of splits; engines may refuse JSON nested deeper than "
            f"{_DEEPEST} levels. Train with max_depth."
        )
    return depth


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name or name.split() != [name] or "/" in name:
        raise ValueError(f"name must be one word without '/', since it is part of a URL; got {name!r}.")
    return name
