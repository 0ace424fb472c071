"""Search engines as they describe themselves, one document at a time, for the tests of exports.

Written from the sources and manuals of the learning-to-rank plugin of Elasticsearch and OpenSearch and of
Solr's ltr module, and from nothing in sinkprop: what is refused there is refused here, every number is a
float32, sums are taken in the engine's order, and a model is read from JSON text as it would arrive.
"""

from __future__ import annotations

import json
import math

import numpy as np

F = np.float32


class RefusedError(Exception):
    """What the engine would answer with an error."""


def java_float(value):
    """A JSON number as a Java float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"not a number: {value!r}")
    with np.errstate(over="ignore"):
        return F(value)


def parse_float(text):
    """Float.parseFloat."""
    if not isinstance(text, str):
        raise RefusedError(f"not text: {text!r}")
    return F(text)


class Elasticsearch:
    """The plugin: POST _ltr/_featureset/<set>/_createmodel, then scores of documents.

    knows_missing  whether this version tells a feature without a value (NaN) from 0
    """

    def __init__(self, body, features, *, knows_missing=True):
        request = json.loads(body)
        if set(request) != {"model"} or set(request["model"]) != {"name", "model"}:
            raise RefusedError("the body of _createmodel")
        model = request["model"]["model"]
        if set(model) - {"type", "definition", "feature_normalizers"}:
            raise RefusedError("an unknown field")
        if len(set(features)) != len(features):
            raise RefusedError("feature names must be unique in a set")
        self.features, self.knows_missing = list(features), knows_missing
        self.normalizers = {}
        for name, norm in model.get("feature_normalizers", {}).items():
            (kind,) = norm
            if kind != "standard" or name not in self.features:
                raise RefusedError(f"normalizer {kind} of {name}")
            mean, deviation = (java_float(norm[kind][key]) for key in ("mean", "standard_deviation"))
            if not deviation > 0:
                raise RefusedError("Standard Deviation Must Be Positive")
            self.normalizers[self.features.index(name)] = (mean, deviation)
        definition = json.loads(model["definition"])
        self.linear = model["type"] == "model/linear"
        if self.linear:
            self.weights = [F(0)] * len(self.features)
            for name, weight in definition.items():
                if name not in self.features:
                    raise RefusedError(f"Feature [{name}] is unknown")
                self.weights[self.features.index(name)] = java_float(weight)
        elif model["type"] == "model/xgboost+json":
            if not isinstance(definition, list) or not definition:
                raise RefusedError("XGBoost model must define at least one tree")
            self.trees = definition
            for tree in self.trees:
                self._check(tree)
        else:
            raise RefusedError(model["type"])

    def _check(self, node):
        if "leaf" in node:
            if set(node) - {"nodeid", "leaf", "depth"} or "nodeid" not in node:
                raise RefusedError("a leaf's fields")
            return
        known = {"nodeid", "depth", "split", "split_condition", "yes", "no", "missing", "children"}
        if set(node) != known or len(node["children"]) != 2 or node["split"] not in self.features:
            raise RefusedError("a split's fields")
        left, right = node["children"]
        if (left["nodeid"], right["nodeid"]) != (node["yes"], node["no"]):
            raise RefusedError("yes and no must be the children, in this order")
        if node["missing"] not in (node["yes"], node["no"]):
            raise RefusedError("missing must be a child")
        for child in node["children"]:
            self._check(child)

    def score(self, document):
        vector = [F(x) for x in document]
        if not self.knows_missing:
            vector = [F(0) if math.isnan(x) else x for x in vector]
        for place, (mean, deviation) in self.normalizers.items():
            vector[place] = (vector[place] - mean) / deviation
        total = F(0)
        if self.linear:
            for weight, value in zip(self.weights, vector, strict=True):
                total = total + weight * value
            return total
        for tree in self.trees:
            total = total + F(1) * self._leaf(tree, vector)
        return total

    def _leaf(self, node, vector):
        while "leaf" not in node:
            value = vector[self.features.index(node["split"])]
            if self.knows_missing and math.isnan(value):
                left = node["missing"] == node["yes"]
            else:
                left = java_float(node["split_condition"]) > value
            node = node["children"][0 if left else 1]
        return java_float(node["leaf"])


class Solr:
    """The ltr module: a feature store and a model put into their stores, then scores of documents."""

    def __init__(self, body, features):
        model = json.loads(body)
        if set(model) - {"store"} != {"class", "name", "features", "params"}:
            raise RefusedError("an unknown field")
        self.kind = model["class"].removeprefix("org.apache.solr.ltr.model.")
        names = [feature["name"] for feature in model["features"]]
        if len(set(names)) != len(names) or not names:
            raise RefusedError("duplicated feature, or none")
        if set(names) - set(features):
            raise RefusedError("a feature that is not in the store")
        self.places = [features.index(name) for name in names]
        self.names, self.norms = names, [self._norm(feature.get("norm")) for feature in model["features"]]
        parameters = model["params"]
        self.null_is_zero = parameters.pop("isNullSameAsZero", True)
        getattr(self, f"_read_{self.kind}")(**parameters)

    @staticmethod
    def _norm(norm):
        if norm is None:
            return None
        if norm["class"] != "org.apache.solr.ltr.norm.StandardNormalizer" or set(norm["params"]) - {
            "avg",
            "std",
        }:
            raise RefusedError(norm["class"])
        average, deviation = (parse_float(norm["params"][key]) for key in ("avg", "std"))
        if not deviation > 0:
            raise RefusedError("Standard Normalizer standard deviation must be positive")
        return average, deviation

    @staticmethod
    def _double(value):
        if type(value) is not float:  # a whole number arrives as a Long, which is no Double
            raise RefusedError(f"ClassCastException: {value!r}")
        return F(value)

    def _read_LinearModel(self, weights):
        self.weights = [self._double(weights[name]) for name in self.names]

    def _read_NeuralNetworkModel(self, layers):
        self.layers, width = [], len(self.names)
        for layer in layers:
            matrix = [[self._double(x) for x in row] for row in layer["matrix"]]
            bias = [self._double(x) for x in layer["bias"]]
            if len(matrix) != len(bias) or any(len(row) != width for row in matrix):
                raise RefusedError("Dimension mismatch")
            if layer["activation"] not in ("identity", "relu", "leakyrelu", "sigmoid", "tanh"):
                raise RefusedError("Invalid activation function")
            self.layers.append((matrix, bias, layer["activation"]))
            width = len(bias)
        if width != 1:
            raise RefusedError("should only have one row")

    def _read_MultipleAdditiveTreesModel(self, trees):
        self.trees = [(parse_float(tree["weight"]), self._node(tree["root"])) for tree in trees]

    def _node(self, node):
        if "feature" not in node:
            if set(node) != {"value"}:
                raise RefusedError("tree node is leaf with left or right")
            return parse_float(node["value"])
        if set(node) - {"missing"} != {"feature", "threshold", "left", "right"}:
            raise RefusedError("tree node is missing threshold, left or right")
        return (
            self.names.index(node["feature"]),
            parse_float(node["threshold"]) + F(1e-6),
            self._node(node["left"]),
            self._node(node["right"]),
            node.get("missing"),
        )

    def score(self, document):
        vector = [F(document[place]) for place in self.places]
        for i, norm in enumerate(self.norms):
            if self.null_is_zero and math.isnan(vector[i]):
                vector[i] = F(0)
            if norm is not None and not math.isnan(vector[i]):
                with np.errstate(over="ignore"):
                    vector[i] = (vector[i] - norm[0]) / norm[1]
        if self.kind == "LinearModel":
            total = F(0)
            for value, weight in zip(vector, self.weights, strict=True):
                total = total + value * weight
            return total
        if self.kind == "NeuralNetworkModel":
            for matrix, bias, activation in self.layers:
                vector = [self._unit(row, b, vector, activation) for row, b in zip(matrix, bias, strict=True)]
            return vector[0]
        total = F(0)
        for weight, root in self.trees:
            node = root
            while isinstance(node, tuple):
                place, threshold, left, right, missing = node
                if math.isnan(vector[place]):
                    node = left if missing == "left" else right
                else:
                    node = left if vector[place] <= threshold else right
            total = total + weight * node
        return total

    @staticmethod
    def _unit(row, bias, vector, activation):
        total = bias
        for weight, value in zip(row, vector, strict=True):
            total = total + weight * value
        if activation == "relu":
            return F(0) if total < 0 else total
        if activation == "tanh":
            return F(math.tanh(float(total)))
        return total


def scores(engine, X):
    """(N,) of all documents."""
    return np.array([engine.score(row) for row in X])


def same_order(found, expected, groups):
    """Whether every query has the same order, ties in the order of the rows."""
    for first, last in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        rows = np.arange(first, last) if groups.rows is None else groups.rows[first:last]
        orders = [np.argsort(-values[rows], kind="stable").tolist() for values in (found, expected)]
        if orders[0] != orders[1]:
            return False
    return True
