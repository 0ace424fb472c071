"""Scores of the tree models in model files, without the libraries that grew them.

The scores are equal to those of the library, to the last bit: a document's leaves are added in the order of
the trees, in the library's precision. This is what each library does with a value:

- LightGBM takes |x| <= 1e-35 (in single precision) as 0. At a split by category, the code is x without its
  decimal places; everything that is not in the set goes right. Sums are in double precision.
- XGBoost rounds x to float32. Sums are in single precision, and begin with base_score.
- CatBoost rounds x to float32, after it is brought into its range. A missing value is not above any border.
  Sums are in double precision, and the constant is added last. `CatBoostRanker` makes a column for each
  category, so a code must be equal to the category's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop import _native
from sinkprop.common.types import Floats, Integers
from sinkprop.serving.forest import Intervals, column_tables
from sinkprop.serving.tree_files.catboost_trees import checked_trees
from sinkprop.serving.tree_files.lightgbm_text import checked_fields, trees_of_fields
from sinkprop.serving.tree_files.tree import Tree
from sinkprop.serving.tree_files.xgboost_json import base_score_of, checked_model, trees_of_learner

__all__ = ["KINDS", "TreeModel", "trees_of"]

KINDS = ("BoostedRanker", "LightGBMRanker", "XGBoostRanker", "CatBoostRanker")

_ZERO = float(np.float32(1e-35))  # LightGBM's kZeroThreshold
_BELOW_ZERO = float(np.nextafter(-_ZERO, -np.inf))
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Trees that score documents. Several threads can use one model.

    n_features  Number of features D.
    n_trees     Number of trees.
    start       Number that the sum of each document begins with.
    constant    Number that is added to each sum.
    parts       Arguments of `_native.Forest`, which hold the trees.
    """

    n_features: int
    n_trees: int
    start: float
    constant: float
    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_forest", _native.Forest(*self.parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeModel, (self.n_features, self.n_trees, self.start, self.constant, self.parts)

    def scores(self, X: NDArray[Any]) -> Floats:
        """Scores (N,) of the rows of X.

        X  Array (N, D) of float64 or float32, in C order. A missing value is NaN, and a category is its code.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (N, {self.n_features}); got {X.shape}.")
        if X.dtype not in (np.float64, np.float32) or not X.flags.c_contiguous:
            raise ValueError(
                f"X must be an array of float64 or float32 in C order; got {X.dtype}. Convert it by "
                "np.ascontiguousarray(X, dtype=np.float64)."
            )
        out = np.empty(len(X))
        self._forest.score(X, self.start, out)  # type: ignore[attr-defined]
        if self.constant:
            out += self.constant
        return out


def trees_of(kind: str, state: dict[str, Any]) -> TreeModel:
    """Make the trees of a model file ready to score.

    Raises a ValueError, LookupError or TypeError if the file does not hold what a ranker of this kind writes.

    kind   Class of the ranker, one of `KINDS`.
    state  State of the ranker, `read_model(path).state`.
    """
    n_features, fitted = int(state["n_features"]), state["fitted"]
    if kind == "BoostedRanker":
        return _lightgbm("\n".join(fitted["lightgbm"]), n_features)
    if kind == "LightGBMRanker":
        return _lightgbm("\n".join(fitted["model"]["lightgbm"]), n_features)
    if kind == "XGBoostRanker":
        return _xgboost(fitted["model"]["xgboost"], n_features)
    if kind == "CatBoostRanker":
        return _catboost(fitted["model"]["catboost"], _meaning(n_features, fitted))
    raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")


def _lightgbm(text: str, n_features: int) -> TreeModel:
    trees = trees_of_fields(checked_fields(text, n_features))

    def cut(threshold: Floats) -> Floats:
        # values that count as 0 are on the side of 0 of each threshold
        within = np.abs(threshold) <= _ZERO
        return np.where(within, np.where(threshold >= 0, _ZERO, _BELOW_ZERO), threshold)

    def members(codes: Integers) -> tuple[Floats, Floats]:
        first, last = _runs(codes)
        return np.where(first == 0, -1.0, np.nextafter(first, -np.inf)), np.nextafter(last + 1, -np.inf)

    return _binary(trees, n_features, cut, members, single=False, start=0.0)


def _xgboost(text: str, n_features: int) -> TreeModel:
    learner = checked_model(text, n_features)["learner"]

    def below(x: Floats) -> Floats:
        return _rounded_at_most(np.nextafter(x.astype(np.float32), np.float32(-np.inf)))

    def members(codes: Integers) -> tuple[Floats, Floats]:
        first, last = _runs(codes)
        return below(first), below(last + 1)

    trees, start = trees_of_learner(learner), float(np.float32(base_score_of(learner)))
    return _binary(trees, n_features, _rounded_at_most, members, single=True, start=start)


def _rounded_at_most(bound: NDArray[Any]) -> Floats:
    """The largest double that is at most `bound` after it is rounded to float32, for float32 bounds."""
    low = bound.astype(np.float32)
    with np.errstate(over="ignore"):
        high = np.nextafter(low, np.float32(np.inf))
    # infinities stand for the numbers of the next exponent, from which values are rounded to them
    ends = [np.clip(end.astype(np.float64), -(2.0**128), 2.0**128) for end in (low, high)]
    middle = (ends[0] + ends[1]) / 2
    # a value in the middle is rounded to the number whose last bit is 0
    at_most = np.where(low.view(np.uint32) % 2 == 0, middle, np.nextafter(middle, -np.inf))
    return np.where(low == np.inf, np.inf, at_most)


def _runs(codes: Integers) -> tuple[Floats, Floats]:
    """First and last code of each run of successive codes, as floats."""
    codes = np.unique(codes)
    starts = np.concatenate([[True], np.diff(codes) > 1])[: len(codes)]
    ends = np.concatenate([np.diff(codes) > 1, [True]])[-len(codes) :] if len(codes) else starts
    return codes[starts].astype(np.float64), codes[ends].astype(np.float64)


def _binary(
    trees: Sequence[Tree],
    n_features: int,
    cut: Callable[[Floats], Floats],
    members: Callable[[Integers], tuple[Floats, Floats]],
    *,
    single: bool,
    start: float,
) -> TreeModel:
    """A model of binary trees.

    cut      Function from thresholds to the largest values that go left.
    members  Function from codes of categories to the ends of the intervals of their values.
    single   Whether sums are in single precision.
    """
    features, threshold, missing_left = (
        np.concatenate([np.zeros(0, kind), *(getattr(tree, name) for tree in trees)])
        for name, kind in (("feature", np.int64), ("threshold", np.float64), ("missing_left", bool))
    )
    at_most = cut(threshold)
    intervals, first = {}, 0
    for tree in trees:
        for node, codes in tree.members.items():
            intervals[first + node] = Intervals(*members(codes), bool(tree.missing_left[node]))
        for node in tree.zero_missing:
            high, by_default = at_most[first + node], bool(tree.missing_left[node])
            ends = (
                ((-np.inf, high), (_BELOW_ZERO, _ZERO))
                if by_default
                else ((-np.inf, _BELOW_ZERO), (_ZERO, high))
            )
            lows, highs = np.array(ends).T
            intervals[first + node] = Intervals(lows, highs, by_default)
        first += len(tree.feature)
    tables = column_tables(features, at_most, missing_left, intervals)
    left, right = (
        np.concatenate([np.zeros(0, np.int32), *(getattr(tree, side) for tree in trees)]).astype(np.int32)
        for side in ("left", "right")
    )
    return _model(n_features, tables, (left, right), [tree.leaves for tree in trees], single, start, 0.0)


def _model(
    n_features: int,
    tables: Any,
    sides: tuple[Any, Any],
    leaves: Sequence[Any],
    single: bool,
    start: float,
    constant: float,
) -> TreeModel:
    leaf_ends = np.cumsum([0, *map(len, leaves)], dtype=np.int64)
    values = np.concatenate([np.zeros(0), *leaves])
    parts = (n_features, *vars(tables).values(), *sides, leaf_ends, values, single)
    return TreeModel(n_features, len(leaves), start, constant, parts)


def _meaning(n_features: int, fitted: dict[str, Any]) -> list[tuple[int, int | None]]:
    """The (feature, category) of each column of CatBoost; the category is None for a numeric feature."""
    sizes = {int(feature): len(values) for feature, values in fitted.get("categories", {}).items()}
    unordered, found = fitted.get("unordered", []), []
    for feature in range(n_features):
        codes = range(sizes[feature]) if feature in unordered else [None]
        found += [(feature, code) for code in codes]
    return found


def _catboost(text: str, meaning: Sequence[tuple[int, int | None]]) -> TreeModel:
    model = checked_trees(text, len(meaning))
    n_features = meaning[-1][0] + 1
    columns = np.array([*chain.from_iterable(tree.columns for tree in model.trees)], dtype=np.int64)
    borders = np.array([*chain.from_iterable(tree.borders for tree in model.trees)], dtype=np.float64)
    at_most = np.where(borders == _LARGEST, np.inf, _rounded_at_most(borders))
    feature_of = np.array([feature for feature, _ in meaning], dtype=np.int64)
    of_category = np.array([code is not None for _, code in meaning])
    intervals = {
        k: _equal(meaning[columns[k]][1], borders[k]) for k in np.flatnonzero(of_category[columns]).tolist()
    }
    tables = column_tables(feature_of[columns], at_most, np.ones(len(columns), dtype=bool), intervals)
    leaves = [tree.leaves for tree in model.trees]
    # without trees, `CatBoostRanker` scores by 0
    constant = model.constant if leaves else 0.0
    return _model(n_features, tables, (None, None), leaves, False, 0.0, constant)


def _equal(code: Any, border: float) -> Intervals:
    """The question whether a column is above the border. It is 1 for values equal to the code, and else 0."""
    if not 0 <= border < 1:
        everywhere = np.array([np.inf]) if border >= 1 else np.zeros(0)
        return Intervals(-everywhere, everywhere, bool(border >= 1))
    return Intervals(np.array([-np.inf, code]), np.array([np.nextafter(code, -np.inf), np.inf]), True)
