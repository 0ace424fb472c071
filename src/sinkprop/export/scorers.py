"""Fitted rankers as plain numbers, from which every format is written.

A ranker scores by a linear function, by trees, or by a network. Each of the three has a class here:
`LinearScorer`, `TreeScorer` and `NetworkScorer`. Libraries such as PyTorch are imported only if needed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues
from sinkprop.gbdt.boosters import booster_text
from sinkprop.gbdt.tree_text import numbers_of, tree_fields
from sinkprop.objective.relaxations import score_weights

__all__ = [
    "FeatureNames",
    "Layer",
    "LinearScorer",
    "NetworkScorer",
    "Scorer",
    "Tree",
    "TreeScorer",
    "as_linear",
    "feature_names",
    "scorer_of",
]

FeatureNames = Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """A ranker with H linear functions of its columns; the score of `predict` is their weighted sum.

    The columns are the D features and, behind them, the I indicators of missing values.

    scaling     Scaling of the columns, which is applied first, except that the scaling by query is applied
                before the treatment of missing values.
    weights     (D + I, H) weights of the scaled columns; H is 1, or 2 for a ranker that was trained with
                a `PartitionedMeasure`.
    intercepts  (H,) intercepts of the functions.
    combine     (H,) weights of the functions in the score.
    missing     Treatment of missing values; None if the ranker was trained without missing values. Then I is
                0.
    """

    scaling: Scaling
    weights: Floats
    intercepts: Floats
    combine: Floats
    missing: MissingValues | None = None

    @property
    def coefficients(self) -> Floats:
        """Coefficients (D + I,) of the scaled columns in the score; 0 if scaling makes a column 0."""
        return np.where(self.scaling.factor == 0, 0.0, self.weights @ self.combine)


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a network, applied to the row vector x of its inputs.

    kind     "linear" for x W' + b (W' is the transpose of W), "scale" for x * W + b with the elementwise
             product, "layer" for layer normalization, or the name of an activation.
    weight   W: (outputs, inputs) for "linear", (inputs,) for "scale" and "layer", empty for an activation.
    bias     b: (outputs,), or empty for an activation.
    epsilon  Added to the variance in layer normalization.
    """

    kind: str
    weight: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    bias: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class NetworkScorer:
    """A network that scores features: a perceptron plus a linear function, or a user's own torch module.

    transform  Input transform, "none" or "log1p", which is applied to the features first.
    scaling    Scaling of the features and of the indicators of missing values, which is applied after the
               treatment of missing values; only the scaling by query is applied before it.
    dtype      Precision of the scaled features: "float32" or "float64".
    layers     Layers of the perceptron; empty if there is no perceptron.
    linear     The linear function of the features that is added to the perceptron's outputs, or None.
    module     The user's own torch module, in place of `layers` and `linear`; otherwise None.
    combine    (H,) weights of the network's H outputs in the score.
    missing    Treatment of missing values, which is applied after the transform; None if the ranker was
               trained without missing values.
    """

    transform: str
    scaling: Scaling
    dtype: str
    layers: tuple[Layer, ...]
    linear: Layer | None
    module: Any
    combine: Floats
    missing: MissingValues | None = None


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree with K inner nodes, in which a value goes left if it is not above the threshold.

    feature, threshold  (K,) feature index and threshold of each inner node; node 0 is the root.
    left, right         (K,) left and right child of each inner node: the index i of an inner node, or
                        -1 - i for leaf i.
    missing_left        (K,) whether NaN goes left.
    leaves              (K + 1,) contribution of each leaf to the score.
    members             {inner node: codes of categories}. At such a node, these codes go left and all other
                        values go right; its threshold has no meaning.
    """

    feature: Integers
    threshold: Floats
    left: Integers
    right: Integers
    missing_left: Mask
    leaves: Floats
    members: Mapping[int, Integers] = field(default_factory=dict)

    @property
    def zero_left(self) -> Mask:
        """Whether 0 goes left at each inner node, (K,)."""
        left: Mask = self.threshold >= 0
        for node, codes in self.members.items():
            left[node] = 0 in codes
        return left


@dataclass(frozen=True, eq=False)
class TreeScorer:
    """A ranker whose score is a sum of trees.

    by_query         Whether features are first scaled within their query.
    single           Whether feature values are rounded to float32 before they are compared with thresholds,
                     as in XGBoost.
    constant         Constant that is added to all scores.
    learned_missing  Whether the trees were trained with missing values, and some inner node sends a missing
                     value to one child and 0 to the other.
    """

    trees: tuple[Tree, ...]
    n_features: int
    by_query: bool
    single: bool
    constant: float
    learned_missing: bool


Scorer = LinearScorer | NetworkScorer | TreeScorer


def as_linear(scorer: Scorer) -> Scorer:
    """Convert a network that is only a linear function to a `LinearScorer` with the same scores.

    The scores are equal up to rounding. Other scorers are returned unchanged, and so are networks with an
    input transform.
    """
    if (
        isinstance(scorer, NetworkScorer)
        and scorer.linear is not None
        and not scorer.layers
        and scorer.transform == "none"
    ):
        weights, bias = (x.astype(np.float64) for x in (scorer.linear.weight.T, scorer.linear.bias))
        return LinearScorer(scorer.scaling, weights, bias, scorer.combine, scorer.missing)
    return scorer


def scorer_of(ranker: Any) -> Scorer:
    """The ranker's scoring function as plain numbers.

    Raises ValueError if no format can express it, for example because a document's score depends on the other
    documents of its query.
    """
    from sklearn.utils.validation import check_is_fitted

    from sinkprop.baselines.boltzrank import BoltzRankRanker
    from sinkprop.baselines.feature import FeatureRanker
    from sinkprop.estimator.base import BaseRanker

    if not isinstance(ranker, BaseRanker):
        raise ValueError(
            f"ranker must be a ranker of sinkprop; got {type(ranker).__name__!r}. The earlier steps of a "
            "pipeline are not exported: export the ranker, and apply these steps to the features yourself."
        )
    check_is_fitted(ranker, "scaling_")
    if _is(ranker, "sinkprop.torch.ranker", "NeuralRanker"):
        return _network(ranker)
    if _is(ranker, "sinkprop.baselines.catboost.ranker", "CatBoostRanker"):
        return _catboost(ranker)
    if _is(ranker, "sinkprop.auto.ranker", "AutoRanker"):
        raise ValueError(
            "an AutoRanker combines several rankers, which no export format supports. Export a single one of "
            "them, from its members_, or a ranker that you fit to all queries."
        )
    if hasattr(ranker, "booster_"):
        return _lightgbm(ranker) if hasattr(ranker.booster_, "model_to_string") else _xgboost(ranker)
    n_features = ranker.n_features_in_
    if isinstance(ranker, FeatureRanker):
        weights = np.zeros((n_features, 1))
        weights[abs(ranker.feature_) - 1] = np.sign(ranker.feature_)
        return LinearScorer(ranker.scaling_, weights, np.zeros(1), np.ones(1))
    if isinstance(ranker, BoltzRankRanker) and len(ranker.strengths_):
        raise ValueError(
            "BoltzRankRanker(potential='pair') compares each document with the others of its query, which no "
            "export format supports. Train one with potential='single'."
        )
    weights = np.atleast_2d(np.asarray(ranker.coef_, dtype=np.float64)).T
    intercepts = np.array(ranker.intercept_, dtype=np.float64).reshape(-1)
    return LinearScorer(ranker.scaling_, weights, intercepts, _combine(ranker), ranker.missing_)


def feature_names(ranker: Any, given: FeatureNames) -> list[str]:
    """Names of the columns: those in `given`, or else the model's, or else feature_1, feature_2, ...

    The result is in the order of the columns. If `given` is a mapping, its keys are the names. The names in
    `given` must be in the order of the columns; only a mapping whose keys are the model's own names may have
    any order. Raises ValueError if names are invalid.
    """
    known = getattr(ranker, "feature_names_in_", None)
    own = None if known is None else [str(name) for name in known]
    n_features = int(ranker.n_features_in_)
    if given is None:
        names = own if own is not None else [f"feature_{i}" for i in range(1, n_features + 1)]
    elif isinstance(given, str):
        raise ValueError(f"features must be a sequence of names, or a mapping from names; got {given!r}.")
    else:
        names = list(given)
        if isinstance(given, Mapping) and own is not None and set(names) == set(own):
            names = own
    if len(names) != n_features:
        raise ValueError(
            f"features must name the {n_features} features of the model; got {len(names)} names."
        )
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"the name of a feature must be text that is not empty; got {name!r}.")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"feature names must be distinct, but {name!r} occurs twice. Give other names by features=."
            )
        seen.add(name)
    return names


def _combine(ranker: Any) -> Floats:
    """Weights (H,) with which `predict` sums a ranker's H outputs to the score.

    H is 1, or 2 for a ranker that was trained with a `PartitionedMeasure`.
    """
    relaxation = getattr(ranker, "relaxation_", None)
    return np.ones(1) if relaxation is None else np.array(score_weights(relaxation))


def _is(ranker: Any, module: str, name: str) -> bool:
    """Whether a ranker is an instance of a class, without importing the module of the class."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(ranker, getattr(loaded, name))


def _network(ranker: Any) -> NetworkScorer:
    from sinkprop.torch.networks.perceptron import Perceptron
    from sinkprop.torch.neural.scoring import takes_offsets

    module = ranker.module_
    if takes_offsets(module):
        raise ValueError(
            f"the network {type(module).__name__} looks at the documents of a query together (its forward "
            "takes offsets), which no export format supports. Export a network that scores rows one by one."
        )
    own = type(module) is not Perceptron
    return NetworkScorer(
        ranker.input_transform,
        ranker.scaling_,
        ranker.dtype,
        () if own or module.layers is None else tuple(_layers(module.layers)),
        None if own or module.linear is None else _linear(module.linear),
        module if own else None,
        _combine(ranker),
        ranker.missing_,
    )


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.numpy(force=True).copy()
    return array


def _linear(layer: Any) -> Layer:
    return Layer("linear", _array(layer.weight), _array(layer.bias))


def _layers(modules: Any) -> list[Layer]:
    from torch import nn

    from sinkprop.torch.networks.layers import ACTIVATIONS

    names = {made: name for name, made in ACTIVATIONS.items()}
    found = []
    for module in modules:
        if isinstance(module, nn.Linear):
            found.append(_linear(module))
        elif isinstance(module, nn.BatchNorm1d):
            # after training, batch normalization multiplies by a constant and adds another
            mean, variance = (_array(x).astype(np.float64) for x in (module.running_mean, module.running_var))
            factor = _array(module.weight).astype(np.float64) / np.sqrt(variance + module.eps)
            found.append(Layer("scale", factor, _array(module.bias).astype(np.float64) - mean * factor))
        elif isinstance(module, nn.LayerNorm):
            found.append(Layer("layer", _array(module.weight), _array(module.bias), module.eps))
        elif type(module) in names:
            found.append(Layer(names[type(module)]))
        # dropout, the only other kind of module, has no effect after training
    return found


# LightGBM's codes for the values that a split treats as missing: no values, zeros, or NaN.
_NONE, _ZERO, _NAN = 0, 1, 2


def _lightgbm(ranker: Any) -> TreeScorer:
    """Read the trees from LightGBM's text format.

    In this format, each line of a tree is an array with one value per inner node or one per leaf.
    """
    trees, learned = [], False
    for fields in tree_fields(booster_text(ranker.booster_)):
        if int(fields.get("is_linear", "0")):
            raise ValueError(
                "the model has linear functions in its leaves (linear_tree), which no export format "
                "supports. Train without linear_tree."
            )
        tree, own_way = _lightgbm_tree(fields)
        trees.append(tree)
        learned |= own_way
    # LightGBM writes no tree at all if it found no split, but the formats need at least one
    return TreeScorer(
        tuple(trees) or (_one_leaf(0.0),), int(ranker.n_features_in_), _by_query(ranker), False, 0.0, learned
    )


def _lightgbm_tree(fields: dict[str, str]) -> tuple[Tree, bool]:
    leaves = numbers_of(fields, "leaf_value")
    if len(leaves) == 1:
        return _one_leaf(float(leaves[0])), False
    decision = numbers_of(fields, "decision_type").astype(np.int64)
    threshold = numbers_of(fields, "threshold")
    members = _lightgbm_members(fields, (decision & 1) > 0, threshold)
    default_left, kind = (decision & 2) > 0, (decision >> 2) & 3
    # at a split by category, LightGBM sends everything that is not in the set right, also missing values
    by_category = np.isin(np.arange(len(decision)), list(members))
    default_left, kind = default_left & ~by_category, np.where(by_category, _NAN, kind)
    zero_left = threshold >= 0
    if ((kind == _ZERO) & (default_left != zero_left)).any():
        raise ValueError(
            "the model treats zeros as missing values (zero_as_missing) and sends them another way than "
            "their value, which no export format supports. Train without zero_as_missing."
        )
    missing_left = np.where(kind == _NAN, default_left, zero_left)
    tree = Tree(
        numbers_of(fields, "split_feature").astype(np.int64),
        threshold,
        numbers_of(fields, "left_child").astype(np.int64),
        numbers_of(fields, "right_child").astype(np.int64),
        missing_left,
        leaves,
        members,
    )
    return tree, bool((missing_left != tree.zero_left).any())


def _lightgbm_members(fields: dict[str, str], categorical: Mask, threshold: Floats) -> dict[int, Integers]:
    """Return the codes that go left at each split by category, {inner node: codes}.

    LightGBM writes a set as bits of 32-bit words. The threshold of such a split is the number of its set, and
    `cat_boundaries` has the first word of each set.
    """
    members = {}
    for node in np.flatnonzero(categorical).tolist():
        ends = numbers_of(fields, "cat_boundaries").astype(np.int64)
        first, last = ends[int(threshold[node]) : int(threshold[node]) + 2]
        words = numbers_of(fields, "cat_threshold").astype(np.uint32)[first:last]
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
        members[node] = np.flatnonzero(bits).astype(np.int64)
    return members


def _one_leaf(value: float) -> Tree:
    none, no = np.zeros(0, np.int64), np.zeros(0, bool)
    return Tree(none, np.zeros(0), none, none, no, np.array([value]))


def _xgboost(ranker: Any) -> TreeScorer:
    """Read the trees from XGBoost's JSON format.

    XGBoost rounds feature values to float32, and sends values below the threshold left.
    """
    from sinkprop.baselines.xgboost_json import learner_of

    learner = learner_of(ranker.booster_)
    trees = []
    for record in learner["gradient_booster"]["model"]["trees"]:
        left, right, feature = (
            np.array(record[name], dtype=np.int64)
            for name in ("left_children", "right_children", "split_indices")
        )
        condition = np.array(record["split_conditions"], dtype=np.float32)
        is_leaf = left < 0
        if is_leaf[0]:
            trees.append(_one_leaf(float(condition[0])))
            continue
        place = np.where(is_leaf, -is_leaf.cumsum(), (~is_leaf).cumsum() - 1)
        inner = ~is_leaf
        # in float32, x < t means x <= the next float32 below t
        threshold = np.nextafter(condition[inner], np.float32(-math.inf)).astype(np.float64)
        members = _xgboost_members(record, place)
        by_category = np.isin(np.arange(len(threshold)), list(members))
        sides, default = (left, right), np.array(record["default_left"], dtype=bool)[inner]
        # XGBoost sends the categories of the set right, so both sides change places
        low, high = (place[np.where(by_category, sides[1 - i][inner], sides[i][inner])] for i in (0, 1))
        leaves = condition[is_leaf].astype(np.float64)
        trees.append(Tree(feature[inner], threshold, low, high, default ^ by_category, leaves, members))
    base = json.loads(learner["learner_model_param"]["base_score"])
    constant = float(base[0] if isinstance(base, list) else base)
    return TreeScorer(tuple(trees), int(ranker.n_features_in_), _by_query(ranker), True, constant, False)


def _xgboost_members(record: dict[str, Any], place: Integers) -> dict[int, Integers]:
    """Return the codes in the set of each split by category, {inner node: codes}.

    place  Index of each of XGBoost's nodes among the inner nodes.
    """
    codes = np.array(record["categories"], dtype=np.int64)
    sets = zip(
        record["categories_nodes"], record["categories_segments"], record["categories_sizes"], strict=True
    )
    return {int(place[node]): codes[first : first + size] for node, first, size in sets}


def _catboost(ranker: Any) -> TreeScorer:
    """Make binary trees from CatBoost's trees, which ask one question per level.

    CatBoost rounds feature values to float32, and treats a missing value as not above any border.
    """
    model, meaning = ranker.trees_, ranker.columns_
    trees, learned = [], False
    for tree in model.trees:
        trees.append(_level_tree(tree, meaning))
        questions = zip(tree.columns, tree.borders, strict=True)
        # a missing value goes where the smallest values go, and 0 goes there only if the border is not below
        learned |= any(column in model.missing and border < 0 for column, border in questions)
    return TreeScorer(
        tuple(trees) or (_one_leaf(0.0),),
        int(ranker.n_features_in_),
        _by_query(ranker),
        True,
        model.constant,
        learned,
    )


def _level_tree(tree: Any, meaning: Sequence[tuple[int, int | None]]) -> Tree:
    """Make a binary tree from an `ObliviousTree`; `meaning` has the (feature, category) of each column.

    Node p of level k, counted from 0, is where the answers to the questions before question k are the binary
    digits of p, the first answer being the lowest digit.
    """
    depth = len(tree.columns)
    if not depth:
        return _one_leaf(tree.leaves[0])
    level = np.repeat(np.arange(depth), 2 ** np.arange(depth))
    first = 2**level - 1  # index of the first node of the level
    path = np.arange(2**depth - 1) - first
    last = level == depth - 1
    no, yes = (np.where(last, -1 - to, 2 ** (level + 1) - 1 + to) for to in (path, path + 2**level))
    categories = [meaning[column][1] for column in tree.columns]
    # the codes of a set go left, so yes is left at a question for a category, and no at all others
    swapped = np.array([category is not None for category in categories])[level]
    return Tree(
        np.array([meaning[column][0] for column in tree.columns], dtype=np.int64)[level],
        np.array(tree.borders)[level],
        np.where(swapped, yes, no),
        np.where(swapped, no, yes),
        ~swapped,
        np.array(tree.leaves),
        {
            node: np.array([categories[k]], dtype=np.int64)
            for node, k in enumerate(level.tolist())
            if categories[k] is not None
        },
    )


def _by_query(ranker: Any) -> bool:
    return bool(getattr(ranker, "normalization", "none") == "query")
