"""Export to Solr's learning-to-rank module: linear models, trees, and networks with ReLU units.

Solr computes in single precision. In trees, a value goes left if it is not above the threshold plus 0.000001,
and numbers must be written as JSON strings. In weights and matrices, they must be JSON numbers with a decimal
point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkprop.common.types import Floats, Singles
from sinkprop.export.float32 import (
    Norm,
    checked_name,
    deepest,
    missing_values,
    norms,
    refuse_by_query,
    refuse_categories,
    refuse_missing,
    single,
    single_weights,
    thresholds,
)
from sinkprop.export.scorers import (
    FeatureNames,
    LinearScorer,
    NetworkScorer,
    TreeScorer,
    as_linear,
    feature_names,
    scorer_of,
)
from sinkprop.serving.tree_files.tree import Tree

__all__ = ["solr_features", "to_solr"]


_ENGINE = "Solr"
_MODELS = "org.apache.solr.ltr.model."
_SLACK = np.float32(1e-6)
_LARGEST_SCALE = 120  # largest e that `_scale` tries
_ZERO = np.float32(1.0000000180025095e-35)  # LightGBM's threshold that separates 0 from positive numbers


def to_solr(
    ranker: Any,
    *,
    name: str,
    features: FeatureNames = None,
    store: str | None = None,
    missing: str | None = None,
    transformed: bool = False,
) -> dict[str, Any]:
    """Convert a ranker to a Solr model, the body of `PUT /solr/<collection>/schema/model-store`.

    Constants that linear models and trees add to all scores are not exported, since they do not change
    rankings.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    name : str
        Name of the model: one word without "/".
    features : sequence of str or mapping, optional
        Names of the columns in the feature store; a mapping as for `solr_features` is also accepted. By
        default the names in the model, or feature_1, feature_2, and so on.
    store : str, optional
        Name of the feature store. By default Solr's default store.
    missing : {"zero", "nan"}, optional
        Treatment of missing values in trees. "zero" is for features that are 0 if a document has no value.
        With "nan", a missing value takes the branch that the model learned for NaN, in versions of Solr that
        have `isNullSameAsZero`. The default is "zero". There is no default if the trees were trained with
        missing values: you must then choose.
    transformed : bool, default False
        For networks with ``input_transform="log1p"``, a transform that Solr lacks. True states that the
        features in the store are already sign(x) log(1 + |x|) of the training features x.

    Returns
    -------
    dict
        The request body, to be sent as JSON.

    Raises
    ------
    ValueError
        If Solr cannot express the ranker. This is the case if features are scaled by query, for trees that
        split by sets of categories, and for linear models and networks that were trained with missing values.
        It is also the case for three kinds of networks: custom networks; networks that were trained with a
        `PartitionedMeasure`; and an `MLP` with
        ``layer_normalization="layer"`` or with an activation that Solr lacks. Solr has "relu", and for an
        `MLP` with ``linear=False`` also "tanh".

    Examples
    --------
    >>> from sinkprop.baselines import FeatureRanker
    >>> ranker = FeatureRanker(1).fit([[3.0], [1.0]], [1, 0], qid=[1, 1])
    >>> to_solr(ranker, name="by_score", features=["score"])["params"]
    {'weights': {'score': 1.0}}
    """
    checked_name(name)
    scorer, names = as_linear(scorer_of(ranker)), feature_names(ranker, features)
    if isinstance(scorer, LinearScorer):
        refuse_by_query(scorer.scaling.kind, _ENGINE)
        refuse_missing(scorer, _ENGINE)
        kind, normalizers = "LinearModel", norms(scorer.scaling, names)
        parameters: dict[str, Any] = {"weights": dict(zip(names, single_weights(scorer, names), strict=True))}
    elif isinstance(scorer, TreeScorer):
        refuse_by_query("query" if scorer.by_query else "none", _ENGINE)
        refuse_categories(scorer, names, _ENGINE)
        kind = "MultipleAdditiveTreesModel"
        normalizers, parameters = _trees(scorer, names, missing_values(scorer, missing))
    else:
        refuse_by_query(scorer.scaling.kind, _ENGINE)
        refuse_missing(scorer, _ENGINE)
        kind, normalizers = "NeuralNetworkModel", norms(scorer.scaling, names)
        parameters = {"layers": _layers(scorer, transformed=transformed)}
    return {
        **({} if store is None else {"store": store}),
        "class": _MODELS + kind,
        "name": name,
        "features": [
            {"name": feature, **({} if norm is None else {"norm": _norm(norm)})}
            for feature, norm in zip(names, normalizers, strict=True)
        ],
        "params": parameters,
    }


def solr_features(
    ranker: Any, *, features: FeatureNames = None, store: str | None = None, missing: str | None = None
) -> list[dict[str, Any]]:
    """Definitions of a ranker's features for Solr, the body of `PUT /solr/<collection>/schema/feature-store`.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    features : sequence of str or mapping, optional
        A mapping from the name of each feature to its definition: a Solr query as text, in which ${word} is
        replaced by the search parameter efi.word; or a complete definition with "class" and "params". With
        names only, each feature is defined as the numeric field of that name. Edit the definitions of
        features that are not fields.
    store : str, optional
        Name of the feature store. By default Solr's default store.
    missing : {"zero", "nan"}, optional
        "nan" makes a feature NaN instead of 0 if a document has no value, as `to_solr` with ``missing="nan"``
        requires. Complete definitions are not changed.

    Returns
    -------
    list of dict
        The request body, to be sent as JSON, with the features in the order of the columns.

    Examples
    --------
    >>> from sinkprop.baselines import FeatureRanker
    >>> ranker = FeatureRanker(1).fit([[3.0], [1.0]], [1, 0], qid=[1, 1])
    >>> solr_features(ranker, features={"title": "{!field f=title}${user_query}"})[0]["class"]
    'org.apache.solr.ltr.feature.SolrFeature'
    """
    scorer_of(ranker)
    names = feature_names(ranker, features)
    given = features if isinstance(features, Mapping) else {}
    return [
        {
            **({} if store is None else {"store": store}),
            "name": name,
            **_feature(name, given.get(name), {"defaultValue": "NaN"} if missing == "nan" else {}),
        }
        for name in names
    ]


def _feature(name: str, definition: Any, default: dict[str, str]) -> dict[str, Any]:
    classes = "org.apache.solr.ltr.feature."
    if definition is None:
        return {"class": classes + "FieldValueFeature", "params": {"field": name, **default}}
    if isinstance(definition, str):
        return {"class": classes + "SolrFeature", "params": {"q": definition, **default}}
    if not isinstance(definition, Mapping) or "class" not in definition:
        raise ValueError(
            f"features[{name!r}] must be a query as text, or a definition with 'class' and 'params'; got "
            f"{definition!r}."
        )
    return dict(definition)


def _norm(norm: Norm) -> dict[str, Any]:
    return {
        "class": "org.apache.solr.ltr.norm.StandardNormalizer",
        "params": {"avg": repr(norm.mean), "std": repr(norm.deviation)},
    }


def _trees(scorer: TreeScorer, names: list[str], missing: str) -> tuple[list[Norm | None], dict[str, Any]]:
    found = [thresholds(tree, names) for tree in scorer.trees]
    found = [np.where((part > 0) & (part <= _ZERO), np.float32(0), part) for part in found]
    scales = [0] * len(names)
    for feature in range(len(names)):
        parts = [part[tree.feature == feature] for tree, part in zip(scorer.trees, found, strict=True)]
        scales[feature] = _scale(np.concatenate([np.zeros(0, np.float32), *parts]), names[feature])
    normalizers = [
        Norm(0.0, single(math.ldexp(1.0, -scale), "a factor")) if scale else None for scale in scales
    ]
    trees = []
    for tree, part in zip(scorer.trees, found, strict=True):
        scaled = np.ldexp(part, np.array(scales)[tree.feature])
        trees.append({"weight": "1.0", "root": _tree(tree, _less_slack(scaled)[0], names, missing)})
    if missing == "zero":
        return normalizers, {"trees": trees}
    return normalizers, {"isNullSameAsZero": False, "trees": trees}


def _scale(values: Singles, name: str) -> int:
    """Find the smallest e for which the thresholds of a feature can be exported, scaled by 2^e.

    Solr adds 0.000001 to each threshold, in float32. A threshold t can be exported if some float32 becomes t
    by this addition; that number is then written in place of t. Small thresholds may have no such number
    until they are scaled. The model tells Solr to scale the feature by 2^e too. Scaling changes only the
    exponents of float32 numbers, so comparisons stay the same. Raises ValueError if no e is found.
    """
    for scale in range(_LARGEST_SCALE + 1):
        with np.errstate(over="ignore"):
            scaled = np.ldexp(values, scale)
        if not np.isfinite(scaled).all():
            break
        if _less_slack(scaled)[1]:
            return scale
    raise ValueError(
        f"Solr adds 0.000001 to every threshold, in single precision, and the thresholds of {name!r}, from "
        f"{values.min()} to {values.max()}, cannot be adjusted for that. Scale the feature and train again, "
        "or export to another format."
    )


def _less_slack(values: Singles) -> tuple[Singles, bool]:
    """Find numbers that become `values` when Solr adds 0.000001 to them in float32.

    Returns these numbers, and whether one was found for every value. For a value without such a number, the
    value minus 0.000001 is returned in its place.
    """
    near = values - _SLACK
    best = near.copy()
    for candidate in (np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))):
        best = np.where((best + _SLACK != values) & (candidate + _SLACK == values), candidate, best)
    return best, bool((best + _SLACK == values).all())


def _tree(tree: Tree, written: Singles, names: list[str], missing: str) -> dict[str, Any]:
    deepest(tree)
    leaves = [{"value": repr(single(leaf, "the value of a leaf"))} for leaf in tree.leaves.tolist()]
    nodes: list[dict[str, Any]] = [{}] * len(tree.feature)
    for k in reversed(range(len(nodes))):  # children first: their indices are larger than their parents'
        feature = names[tree.feature[k]]
        nodes[k] = {
            "feature": feature,
            "threshold": repr(single(written[k], f"a threshold of {feature!r}")),
            **({} if missing == "zero" else {"missing": "left" if tree.missing_left[k] else "right"}),
            **{
                side: nodes[i] if i >= 0 else leaves[-1 - i]
                for side, i in (("left", int(tree.left[k])), ("right", int(tree.right[k])))
            },
        }
    return nodes[0] if nodes else leaves[0]


def _layers(scorer: NetworkScorer, *, transformed: bool) -> list[dict[str, Any]]:
    """Convert a network to Solr's layers, each with a matrix, a bias and an activation.

    Raises ValueError if Solr cannot express the network.
    """
    if scorer.module is not None:
        raise ValueError(
            f"the network {type(scorer.module).__name__} is a custom one, and Solr has perceptrons only. "
            "Export to ONNX."
        )
    if scorer.transform == "log1p" and not transformed:
        raise ValueError(
            "the network takes sign(x) log(1 + |x|) of each feature (input_transform='log1p'), which Solr "
            "cannot compute from a feature. Define the features that way, such as {!func}ln(sum(1,field)), "
            "and say transformed=True; or train with input_transform='none'; or export to ONNX."
        )
    if len(scorer.combine) == 2:
        raise ValueError(
            "the network has the two outputs of a partitioned measure, and Solr takes one. Train with "
            "relaxation='gaussian' or 'laplace', or export to ONNX."
        )
    matrices, activations = _matrices(scorer)
    factor = np.where(scorer.scaling.factor == 0, 0.0, 1.0)  # 0 for a constant feature, which scaling makes 0
    matrices[0] = (matrices[0][0] * factor, matrices[0][1])
    return [
        {
            "matrix": [[single(x, "a weight") for x in row] for row in W.tolist()],
            "bias": [single(x, "a bias") for x in b.tolist()],
            "activation": activation,
        }
        for (W, b), activation in zip(matrices, [*activations, "identity"], strict=True)
    ]


def _matrices(scorer: NetworkScorer) -> tuple[list[tuple[Floats, Floats]], list[str]]:
    """Weights and biases (W, b) of the linear layers, and the names of the activations between them.

    A layer that scales its inputs is merged into the linear layer before it. Solr cannot add a linear
    function s of the features to the output of a perceptron. Each hidden layer therefore gets two more units,
    max(s, 0) and max(-s, 0), and the last layer adds their difference, which is s.
    """
    matrices: list[tuple[Floats, Floats]] = []
    activations: list[str] = []
    known = ("relu", "tanh") if scorer.linear is None else ("relu",)
    for layer in scorer.layers:
        weight, bias = layer.weight.astype(np.float64), layer.bias.astype(np.float64)
        if layer.kind == "linear":
            matrices.append((weight, bias))
        elif layer.kind == "scale":
            W, b = matrices[-1]
            matrices[-1] = weight[:, None] * W, weight * b + bias
        elif layer.kind in known:
            activations.append(layer.kind)
        else:
            what = "layer_normalization='layer'" if layer.kind == "layer" else f"activation={layer.kind!r}"
            beside = "" if scorer.linear is None else ", together with the network's linear part,"
            raise ValueError(
                f"the network has {what}, but Solr's layers{beside} can have activation "
                f"{' or '.join(map(repr, known))} only, and layer_normalization='batch' or None. Train "
                "such a network, or export to ONNX."
            )
    if scorer.linear is None:
        return matrices, activations
    linear = scorer.linear.weight.astype(np.float64), scorer.linear.bias.astype(np.float64)
    if not matrices:
        return [linear], []
    both = np.array([[1.0], [-1.0]])
    (W, b), *middle, last = matrices
    first = np.concatenate([W, both @ linear[0]]), np.concatenate([b, both[:, 0] * linear[1]])
    passed = [
        (
            np.block([[W, np.zeros((len(W), 2))], [np.zeros((2, W.shape[1])), np.eye(2)]]),
            np.concatenate([b, np.zeros(2)]),
        )
        for W, b in middle
    ]
    return [first, *passed, (np.concatenate([last[0], both.T], axis=1), last[1])], activations
