"""Oblivious trees of CatBoost as plain data, checked.

An oblivious tree asks the same question of all documents at one level: is the value of a column above a
border? So a tree of depth d has d questions and 2^d leaves. CatBoost trusts the files that it reads, and a
wrong number in one can end the process. A model file may come from a stranger. So CatBoost never reads a
part of a model file: `checked_trees` checks plain numbers, which are written anew for CatBoost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

__all__ = ["ObliviousTree", "Trees", "checked_trees", "text_of"]

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
