"""Fitted rankers as plain numbers, from which every format is written.

A ranker scores by a linear function, by trees, or by a network. Each of the three is a record here, read off
the ranker without the library that fitted it where that is possible.
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
    """Outputs, normalized features times weights plus intercepts, and the score, a sum of them.

    scaling     of the features
    weights     (D, H) with H = 1, or 2 for a partitioned measure
    intercepts  (H,)
    combine     (H,) what the outputs are multiplied with to make the score of `predict`
    """

    scaling: Scaling
    weights: Floats
    intercepts: Floats
    combine: Floats

    @property
    def coefficients(self) -> Floats:
        """(D,) those of the score, 0 where normalization makes a feature 0."""
        return np.where(self.scaling.factor == 0, 0.0, self.weights @ self.combine)


@dataclass(frozen=True, eq=False)
class Layer:
    """A step of a network: "linear" x W' + b, "scale" x * W + b, "layer" normalization, or an activation.

    weight  W, (after, before) of "linear", (D,) of "scale" and "layer"; empty for an activation
    bias    b
    """

    kind: str
    weight: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    bias: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class NetworkScorer:
    """A network of prepared features.

    transform, scaling  what happens to the features before
    dtype               of the prepared features: "float32" or "float64"
    layers              of the perceptron; none where there is the linear part only
    linear              the linear part beside it, or None
    module              where the network is the user's own, and `layers` is empty: the torch module
    combine             (H,) what the outputs are multiplied with to make the score
    """

    transform: str
    scaling: Scaling
    dtype: str
    layers: tuple[Layer, ...]
    linear: Layer | None
    module: Any
    combine: Floats


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree: a value goes left where it is not above the threshold.

    feature, threshold  (K,) of the inner nodes, of which 0 is the root
    left, right         (K,) the child: the number of an inner node, or -1 - leaf
    missing_left        (K,) whether NaN goes left
    leaves              (K + 1,) what the leaves add to the score
    """

    feature: Integers
    threshold: Floats
    left: Integers
    right: Integers
    missing_left: Mask
    leaves: Floats

    @property
    def zero_left(self) -> Mask:
        """(K,) whether 0 goes left."""
        return self.threshold >= 0


@dataclass(frozen=True, eq=False)
class TreeScorer:
    """A sum of trees.

    by_query          whether features are first normalized within their query
    single            whether values are rounded to float32 before they are compared, as XGBoost does
    constant          what is added to all scores
    learned_missing   whether the training data had missing values, which go their own way in some tree
    """

    trees: tuple[Tree, ...]
    n_features: int
    by_query: bool
    single: bool
    constant: float
    learned_missing: bool


Scorer = LinearScorer | NetworkScorer | TreeScorer


def as_linear(scorer: Scorer) -> Scorer:
    """A network without hidden layers as the linear function that it is, up to the rounding of its scores."""
    if (
        isinstance(scorer, NetworkScorer)
        and scorer.linear is not None
        and not scorer.layers
        and scorer.transform == "none"
    ):
        weights, bias = (x.astype(np.float64) for x in (scorer.linear.weight.T, scorer.linear.bias))
        return LinearScorer(scorer.scaling, weights, bias, scorer.combine)
    return scorer


def scorer_of(ranker: Any) -> Scorer:
    """The ranker's scores as plain numbers; a ValueError where they are no function of a document alone."""
    from sklearn.utils.validation import check_is_fitted

    from sinkprop.baselines.boltzrank import BoltzRankRanker
    from sinkprop.baselines.feature import FeatureRanker
    from sinkprop.estimator.base import BaseRanker

    if not isinstance(ranker, BaseRanker):
        raise ValueError(
            f"ranker must be a ranker of sinkprop; got {type(ranker).__name__!r}. What a pipeline does "
            "before its last step is not exported: export the ranker, and do the same to the features."
        )
    check_is_fitted(ranker, "scaling_")
    if _is(ranker, "sinkprop.torch.ranker", "NeuralRanker"):
        return _network(ranker)
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
            "format has. Train one with potential='single'."
        )
    weights = np.asarray(ranker.coef_, dtype=np.float64).reshape(-1, n_features).T
    intercepts = np.array(ranker.intercept_, dtype=np.float64).reshape(-1)
    return LinearScorer(ranker.scaling_, weights, intercepts, _combine(ranker))


def feature_names(ranker: Any, given: FeatureNames) -> list[str]:
    """Names of the columns: those given, the model's, or feature_1, feature_2, ...

    A mapping's keys are names; where the model has names of its own they may stand in any order.
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
                f"the name of a feature must be given once, but {name!r} stands twice. Give other names by "
                "features=."
            )
        seen.add(name)
    return names


def _combine(ranker: Any) -> Floats:
    """As `predict` makes one score of a ranker's outputs, two of which are a partitioned measure's."""
    relaxation = getattr(ranker, "relaxation_", None)
    return np.ones(1) if relaxation is None else np.array(score_weights(relaxation))


def _is(ranker: Any, module: str, name: str) -> bool:
    """Whether it is an instance of a class whose module need not have been imported."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(ranker, getattr(loaded, name))


def _network(ranker: Any) -> NetworkScorer:
    from sinkprop.torch.neural.network import Perceptron
    from sinkprop.torch.neural.scoring import takes_offsets

    module = ranker.module_
    if takes_offsets(module):
        raise ValueError(
            f"the network {type(module).__name__} looks at the documents of a query together (its forward "
            "takes offsets), which no format has. Export a network that scores rows one by one."
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
    )


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.numpy(force=True).copy()
    return array


def _linear(layer: Any) -> Layer:
    return Layer("linear", _array(layer.weight), _array(layer.bias))


def _layers(modules: Any) -> list[Layer]:
    from torch import nn

    from sinkprop.torch.neural.network import ACTIVATIONS

    names = {made: name for name, made in ACTIVATIONS.items()}
    found = []
    for module in modules:
        if isinstance(module, nn.Linear):
            found.append(_linear(module))
        elif isinstance(module, nn.BatchNorm1d):
            # with its running figures it is a factor and a shift
            mean, variance = (_array(x).astype(np.float64) for x in (module.running_mean, module.running_var))
            factor = _array(module.weight).astype(np.float64) / np.sqrt(variance + module.eps)
            found.append(Layer("scale", factor, _array(module.bias).astype(np.float64) - mean * factor))
        elif isinstance(module, nn.LayerNorm):
            found.append(Layer("layer", _array(module.weight), _array(module.bias), module.eps))
        elif type(module) in names:
            found.append(Layer(names[type(module)]))
        # what is left is dropout, which does nothing to a trained network
    return found


_NONE, _ZERO, _NAN = 0, 1, 2  # LightGBM's kinds of missing values


def _lightgbm(ranker: Any) -> TreeScorer:
    """The trees of LightGBM's text, whose lines have the arrays of inner nodes and leaves."""
    if ranker.booster_.pandas_categorical:
        raise ValueError(
            "the model was trained on columns of categories, which no format here has. Give them as columns "
            "of 0 and 1, and train again."
        )
    _, *sections = ranker.booster_.model_to_string().split("\nTree=")
    trees, learned = [], False
    for section in sections:
        fields = dict(
            line.split("=", 1) for line in section.partition("\n\n")[0].split("\n")[1:] if "=" in line
        )
        if int(fields["num_cat"]):
            raise ValueError(
                "the model has splits by category (categorical_feature), which no format here has. Give "
                "categories as columns of 0 and 1, and train again."
            )
        if int(fields.get("is_linear", "0")):
            raise ValueError(
                "the model has linear functions in its leaves (linear_tree), which no format here has. Train "
                "without."
            )
        tree, own_way = _lightgbm_tree(fields)
        trees.append(tree)
        learned |= own_way
    # LightGBM writes no tree at all where it found no split; formats want one
    return TreeScorer(
        tuple(trees) or (_one_leaf(0.0),), int(ranker.n_features_in_), _by_query(ranker), False, 0.0, learned
    )


def _lightgbm_tree(fields: dict[str, str]) -> tuple[Tree, bool]:
    leaves = _numbers(fields, "leaf_value")
    if len(leaves) == 1:
        return _one_leaf(float(leaves[0])), False
    decision = _numbers(fields, "decision_type").astype(np.int64)
    threshold = _numbers(fields, "threshold")
    default_left, kind = (decision & 2) > 0, (decision >> 2) & 3
    zero_left = threshold >= 0
    if ((kind == _ZERO) & (default_left != zero_left)).any():
        raise ValueError(
            "the model takes zeros for missing values (zero_as_missing), and sends them another way than "
            "their value: no format here has this. Train without zero_as_missing."
        )
    missing_left = np.where(kind == _NAN, default_left, zero_left)
    tree = Tree(
        _numbers(fields, "split_feature").astype(np.int64),
        threshold,
        _numbers(fields, "left_child").astype(np.int64),
        _numbers(fields, "right_child").astype(np.int64),
        missing_left,
        leaves,
    )
    return tree, bool((missing_left != zero_left).any())


def _numbers(fields: dict[str, str], name: str) -> Floats:
    return np.array(fields[name].split(), dtype=np.float64)


def _one_leaf(value: float) -> Tree:
    none, no = np.zeros(0, np.int64), np.zeros(0, bool)
    return Tree(none, np.zeros(0), none, none, no, np.array([value]))


def _xgboost(ranker: Any) -> TreeScorer:
    """The trees of XGBoost's JSON: left is below the threshold, in float32."""
    learner = json.loads(bytes(ranker.booster_.save_raw("json")))["learner"]
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
        # below a float32 is not above the one before it
        threshold = np.nextafter(condition[inner], np.float32(-math.inf)).astype(np.float64)
        trees.append(
            Tree(
                feature[inner],
                threshold,
                place[left[inner]],
                place[right[inner]],
                np.array(record["default_left"], dtype=bool)[inner],
                condition[is_leaf].astype(np.float64),
            )
        )
    base = json.loads(learner["learner_model_param"]["base_score"])
    constant = float(base[0] if isinstance(base, list) else base)
    return TreeScorer(tuple(trees), int(ranker.n_features_in_), _by_query(ranker), True, constant, False)


def _by_query(ranker: Any) -> bool:
    return bool(getattr(ranker, "normalization", "none") == "query")
