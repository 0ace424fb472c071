"""Fitted rankers as plain numbers, from which every format is written.

A ranker scores by a linear function, by trees, or by a network. Each of the three has a class here:
`LinearScorer`, `TreeScorer` and `NetworkScorer`. Libraries such as PyTorch are imported only if needed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues
from sinkprop.gbdt.boosters import booster_text
from sinkprop.objective.relaxations import score_weights
from sinkprop.serving.tree_files.lightgbm_text import tree_fields, trees_of_fields
from sinkprop.serving.tree_files.tree import Tree, one_leaf
from sinkprop.serving.tree_files.xgboost_json import base_score_of, trees_of_learner

__all__ = [
    "FeatureNames",
    "Layer",
    "LinearScorer",
    "NetworkScorer",
    "Scorer",
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


def _lightgbm(ranker: Any) -> TreeScorer:
    trees = trees_of_fields(tree_fields(booster_text(ranker.booster_)))
    if any(tree.zero_missing for tree in trees):
        raise ValueError(
            "the model treats zeros as missing values (zero_as_missing) and sends them another way than "
            "their value, which no export format supports. Train without zero_as_missing."
        )
    learned = any((tree.missing_left != tree.zero_left).any() for tree in trees)
    # LightGBM writes no tree at all if it found no split, but the formats need at least one
    return TreeScorer(
        tuple(trees) or (one_leaf(0.0),), int(ranker.n_features_in_), _by_query(ranker), False, 0.0, learned
    )


def _xgboost(ranker: Any) -> TreeScorer:
    from sinkprop.baselines.xgboost_trees import learner_of

    learner = learner_of(ranker.booster_)
    trees = tuple(trees_of_learner(learner))
    constant = base_score_of(learner)
    return TreeScorer(trees, int(ranker.n_features_in_), _by_query(ranker), True, constant, False)


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
        tuple(trees) or (one_leaf(0.0),),
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
        return one_leaf(tree.leaves[0])
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
