"""Export to the learning-to-rank plugin of Elasticsearch and OpenSearch.

The plugin supports linear models, in which each feature can be scaled, and trees in the format of XGBoost. It
computes in single precision. Constants that a ranker adds to all scores are not exported, since they do not
change rankings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkprop.export.float32 import (
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
    TreeScorer,
    as_linear,
    feature_names,
    scorer_of,
)
from sinkprop.serving.tree_files.tree import Tree

__all__ = ["elasticsearch_features", "to_elasticsearch"]

_ENGINE = "the plugin"


def to_elasticsearch(
    ranker: Any, *, name: str, features: FeatureNames = None, missing: str | None = None
) -> dict[str, Any]:
    """Convert a ranker to a model of the Elasticsearch or OpenSearch learning-to-rank plugin.

    The result is the body of `POST _ltr/_featureset/<feature set>/_createmodel`. Constants that the ranker
    adds to all scores are not exported, since they do not change rankings.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    name : str
        Name of the model: one word without "/".
    features : sequence of str or mapping, optional
        Names of the columns in the feature set; a mapping as for `elasticsearch_features` is also accepted.
        By default the names in the model, or feature_1, feature_2, and so on.
    missing : {"zero", "nan"}, optional
        Treatment of missing values in trees. With "zero", a missing value takes the same branch as 0, in
        every version of the plugin. With "nan", it takes the branch that the model learned for NaN, in
        versions of the plugin that distinguish a missing value from 0. The default is "zero". There is no
        default if the trees were trained with missing values: you must then choose.

    Returns
    -------
    dict
        The request body, to be sent as JSON.

    Raises
    ------
    ValueError
        If the plugin cannot express the ranker. This is the case if features are scaled by query, for trees
        that split by sets of categories, for linear models that were trained with missing values, and for
        networks, except for an `MLP` that is only a linear function and has no input transform.

    Examples
    --------
    >>> from sinkprop.baselines import FeatureRanker
    >>> ranker = FeatureRanker(1).fit([[3.0], [1.0]], [1, 0], qid=[1, 1])
    >>> to_elasticsearch(ranker, name="by_score", features=["score"])["model"]["model"]
    {'type': 'model/linear', 'definition': '{"score": 1.0}'}
    """
    checked_name(name)
    scorer, names = as_linear(scorer_of(ranker)), feature_names(ranker, features)
    if isinstance(scorer, LinearScorer):
        refuse_by_query(scorer.scaling.kind, _ENGINE)
        refuse_missing(scorer, _ENGINE)
        weights = single_weights(scorer, names)
        model: dict[str, Any] = {
            "type": "model/linear",
            "definition": _text(dict(zip(names, weights, strict=True))),
        }
        found = zip(names, norms(scorer.scaling, names), strict=True)
        normalizers = {
            feature: {"standard": {"mean": norm.mean, "standard_deviation": norm.deviation}}
            for feature, norm in found
            if norm is not None
        }
        if normalizers:
            model["feature_normalizers"] = normalizers
    elif isinstance(scorer, TreeScorer):
        refuse_by_query("query" if scorer.by_query else "none", _ENGINE)
        refuse_categories(scorer, names, _ENGINE)
        missing = missing_values(scorer, missing)
        # The model names no objective: with one, the plugin would apply a function to the sum of the trees.
        model = {
            "type": "model/xgboost+json",
            "definition": _text([_tree(tree, names, missing) for tree in scorer.trees]),
        }
    else:
        raise ValueError(
            "the learning-to-rank plugin of Elasticsearch and OpenSearch has no networks, only linear models "
            "and trees. Export to ONNX or Solr, or train a SinkPropRanker or a BoostedRanker."
        )
    return {"model": {"name": name, "model": model}}


def elasticsearch_features(ranker: Any, *, features: FeatureNames = None) -> dict[str, Any]:
    """Feature set of a ranker, the body of `POST _ltr/_featureset/<feature set>`.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    features : sequence of str or mapping, optional
        A mapping from the name of each feature to its definition: an Elasticsearch query, in which {{word}}
        is a parameter, or a complete definition with "template". If only names are given, each feature is
        defined as the numeric field of that name, with 0 for documents without the field. Edit the
        definitions of features that are not fields.

    Returns
    -------
    dict
        The request body, to be sent as JSON, with the features in the order of the columns.

    Examples
    --------
    >>> from sinkprop.baselines import FeatureRanker
    >>> ranker = FeatureRanker(1).fit([[3.0], [1.0]], [1, 0], qid=[1, 1])
    >>> query = {"match": {"title": "{{keywords}}"}}
    >>> elasticsearch_features(ranker, features={"title": query})["featureset"]["features"][0]["params"]
    ['keywords']
    """
    scorer_of(ranker)
    names = feature_names(ranker, features)
    given = features if isinstance(features, Mapping) else {}
    return {"featureset": {"features": [_feature(name, given.get(name)) for name in names]}}


def _feature(name: str, definition: Any) -> dict[str, Any]:
    if definition is None:
        field = {"field": name, "missing": 0.0}
        definition = {
            "function_score": {
                "query": {"match_all": {}}, "field_value_factor": field, "boost_mode": "replace"
            }
        }  # fmt: skip
    elif not isinstance(definition, Mapping):
        raise ValueError(f"features[{name!r}] must be a query, such as {{'match': ...}}; got {definition!r}.")
    if "template" in definition:
        return {"name": name, **definition}
    words = re.findall(r"\{\{#?(?:toJson\}\})?\s*([\w.]+)\s*\}\}", json.dumps(definition))
    return {
        "name": name,
        "params": list(dict.fromkeys(words)),
        "template_language": "mustache",
        "template": dict(definition),
    }


def _tree(tree: Tree, names: list[str], missing: str) -> dict[str, Any]:
    """Convert a tree to XGBoost's format, in which a value goes left if it is below the threshold."""
    depth = deepest(tree).tolist()
    count = len(tree.feature)
    leaves = [
        {"nodeid": count + i, "leaf": single(leaf, "the value of a leaf")}
        for i, leaf in enumerate(tree.leaves.tolist())
    ]
    above = np.nextafter(thresholds(tree, names), np.float32(np.inf))
    missing_left = tree.missing_left if missing == "nan" else tree.zero_left
    nodes: list[dict[str, Any]] = [{}] * count
    for k in reversed(range(count)):  # children first: their indices are larger than their parents'
        children = [nodes[i] if i >= 0 else leaves[-1 - i] for i in (int(tree.left[k]), int(tree.right[k]))]
        yes, no = (child["nodeid"] for child in children)
        feature = names[tree.feature[k]]
        nodes[k] = {
            "nodeid": k,
            "depth": depth[k],
            "split": feature,
            "split_condition": single(above[k], f"a threshold of {feature!r}"),
            "yes": yes,
            "no": no,
            "missing": yes if missing_left[k] else no,
            "children": children,
        }
    return nodes[0] if nodes else leaves[0]


def _text(definition: Any) -> str:
    return json.dumps(definition, ensure_ascii=False, allow_nan=False)
