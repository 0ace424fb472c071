"""Rankers as ONNX graphs from features to scores, with feature scaling inside the graph."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.common.atomic import StrPath, write_atomically
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues
from sinkprop.export.scorers import (
    FeatureNames,
    Layer,
    LinearScorer,
    NetworkScorer,
    TreeScorer,
    feature_names,
    scorer_of,
)

__all__ = ["ML_OPSET", "OPSET", "to_onnx"]

OPSET = 18
ML_OPSET = 5  # version of the operators in ai.onnx.ml, for trees; the first one that sums in double precision
_IR_VERSION = 8
_DTYPES = ("float32", "float64")


def to_onnx(
    ranker: Any, path: StrPath | None = None, *, features: FeatureNames = None, dtype: str = "float64"
) -> Any:
    """Convert a ranker to an ONNX model, and optionally write it to a file; needs onnx.

    The input of the graph is `features` (documents, D), as they are passed to `fit`, with any number of rows.
    Its output is `scores` (documents,), the scores of `predict`. For a ranker that was trained with a
    `PartitionedMeasure`, there is a second output, `parameters` (documents, 2). From these parameters, the
    ranker's method `rank` computes an assignment of documents to ranks, whose order may differ from that of
    `scores`. If features are scaled by query, the rows of one call must be the documents of one query.
    Missing values (NaN) are treated as by the ranker if it was trained with missing values; otherwise the
    scores of linear models and networks are NaN.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    path : path, optional
        File to write. An existing file is replaced only when the new one is complete.
    features : sequence of str or mapping, optional
        Names of the columns, for the metadata; a mapping's keys are names. By default the names in the model,
        or feature_1, feature_2, and so on.
    dtype : {"float64", "float32"}, default "float64"
        Precision of the input and the scores. The scaling, linear functions and trees in between are computed
        in double precision.

    Returns
    -------
    onnx.ModelProto
        The model.

    Notes
    -----
    The graph uses the operators of opset 18, and for trees those of ai.onnx.ml 5. `metadata_props` has the
    version of sinkprop, the kind of ranker, its metric and convention, the names of the features as JSON, and
    "rows", which is "one query" or "any". If the ranker has categorical features, `metadata_props` also has
    "categories", a JSON object {feature: list of categories}. The input holds the position of a category in
    this list, from 0, and NaN for a missing category or one that is not in the list.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be {' or '.join(map(repr, _DTYPES))}; got {dtype!r}.")
    _onnx()
    scorer, names = scorer_of(ranker), feature_names(ranker, features)
    graph = _Graph(dtype, len(names), one_query=_one_query(scorer))
    if isinstance(scorer, LinearScorer):
        _add_linear(graph, scorer)
    elif isinstance(scorer, TreeScorer):
        _add_trees(graph, scorer)
    else:
        _add_network(graph, scorer)
    model = graph.model(
        {
            "sinkprop": sinkprop.__version__,
            "ranker": type(ranker).__name__,
            "metric": str(ranker.metric),
            "convention": str(ranker.convention),
            "features": json.dumps(names, ensure_ascii=False),
            "rows": "one query" if graph.one_query else "any",
            **_categories(ranker, names),
        }
    )
    if path is not None:
        write_atomically(path, model.SerializeToString(deterministic=True))
    return model


def _categories(ranker: Any, names: list[str]) -> dict[str, str]:
    """Metadata with the categories of the ranker's categorical features; empty if it has none."""
    own = [str(name) for name in getattr(ranker, "feature_names_in_", names)]
    known = getattr(ranker, "categories_", {})
    found = {name: list(known[mine]) for name, mine in zip(names, own, strict=True) if mine in known}
    return {"categories": json.dumps(found, ensure_ascii=False)} if found else {}


def _one_query(scorer: LinearScorer | NetworkScorer | TreeScorer) -> bool:
    return scorer.by_query if isinstance(scorer, TreeScorer) else scorer.scaling.kind == "query"


class _Graph:
    """An ONNX graph under construction. Its values have names, which the methods take and return."""

    def __init__(self, dtype: str, n_features: int, *, one_query: bool) -> None:
        self._onnx = _onnx()
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._outputs: list[Any] = []
        self._opsets = {"": OPSET}
        self._functions: list[Any] = []
        self.one_query = one_query
        self.rows_name = "documents_of_one_query" if one_query else "documents"
        self.dtype = dtype
        self._input = self._info("features", [self.rows_name, n_features])
        self.features = "features" if dtype == "float64" else self.cast("features", "float64")

    def _info(self, name: str, shape: list[Any]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._type(self.dtype), shape)

    def _type(self, dtype: str) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, array: Any) -> str:
        """Add an array as a constant in its own dtype, and return its name."""
        name = f"constant_{len(self._constants) + 1}"
        self._constants[name] = self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def double(self, array: NDArray[Any]) -> str:
        """Add an array as a constant, cast it to double precision in the graph, and return the result's name.

        The file stores the array in its own dtype, so float32 weights take half the space of double ones.
        """
        name = self.constant(array)
        return name if array.dtype == np.float64 else self.cast(name, "float64")

    def call(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"value_{len(self._nodes) + 1}"
        domain = "ai.onnx.ml" if operator == "TreeEnsemble" else ""
        if domain:
            self._opsets[domain] = ML_OPSET
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def cast(self, value: str, dtype: str, output: str | None = None) -> str:
        return self.call("Cast", value, to=self._type(dtype), output=output)

    def give(self, name: str, value: str, shape: list[Any]) -> None:
        """Make a value the output `name` of the graph, cast to the graph's dtype."""
        self.cast(value, self.dtype, output=name)
        self._outputs.append(self._info(name, shape))

    def merge(self, module: Any, prepared: str) -> str:
        """Insert the graph of the ONNX model `module`, and return the name of its output.

        The value `prepared` becomes the input of the inserted graph.
        """
        prefixed = self._onnx.compose.add_prefix(module, "module_")
        renamed = {prefixed.graph.input[0].name: prepared}
        for node in prefixed.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            # PyTorch writes paths of source files into these fields
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
            self._nodes.append(node)
        for tensor in prefixed.graph.initializer:
            self._constants[tensor.name] = tensor
        for entry in prefixed.opset_import:
            self._opsets.setdefault(entry.domain, entry.version)
        self._functions += prefixed.functions
        return str(prefixed.graph.output[0].name)

    def model(self, metadata: dict[str, str]) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, "sinkprop", [self._input], self._outputs, list(self._constants.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in self._opsets.items()],
            functions=self._functions,
            producer_name="sinkprop",
            producer_version=sinkprop.__version__,
        )
        model.ir_version = _IR_VERSION
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return model


def _add_scores(graph: _Graph, outputs: str, combine: NDArray[Any]) -> None:
    """Add the graph's output `scores`, the sum of the ranker's H outputs, weighted by `combine` (H,).

    `outputs` is the name of the value that has the ranker's outputs, (N, H). If H is 2, as for a ranker that
    was trained with a `PartitionedMeasure`, this value becomes the graph's second output, `parameters`.
    """
    if len(combine) == 1:
        scores = graph.call("Reshape", outputs, graph.constant(np.array([-1])))
    else:
        scores = graph.call("MatMul", outputs, graph.constant(combine))
    graph.give("scores", scores, [graph.rows_name])
    if len(combine) > 1:
        graph.give("parameters", outputs, [graph.rows_name, len(combine)])


def _scaled(graph: _Graph, rows: str, scaling: Scaling, missing: MissingValues | None) -> str:
    if scaling.kind == "query":
        rows = _scaled_by_query(graph, rows)
    rows = _filled(graph, rows, missing)
    if scaling.kind != "standard":
        return rows
    centered = graph.call("Sub", rows, graph.constant(scaling.shift))
    return graph.call("Mul", centered, graph.constant(scaling.factor))


def _filled(graph: _Graph, rows: str, missing: MissingValues | None) -> str:
    """Add nodes that treat missing values as the ranker does, and return the name of the result.

    Without a treatment, which needs missing values in training, a missing value makes the score NaN.
    """
    if missing is None:
        return rows
    absent = graph.call("IsNaN", rows)
    known = graph.call("Where", absent, graph.constant(missing.mean), rows)
    if not len(missing.indicators):
        return known
    columns = graph.call("Gather", absent, graph.constant(missing.indicators), axis=1)
    return graph.call("Concat", known, graph.cast(columns, "float64"), axis=1)


def _scaled_by_query(graph: _Graph, rows: str) -> str:
    """Add nodes that scale each feature x to (x - min) / (max - min), and return the name of the result.

    min and max are over the rows of the call. A constant feature becomes 0. NaN stays NaN and does not count
    in min and max.
    """
    missing, axis = graph.call("IsNaN", rows), graph.constant(np.array([0]))
    ends = []
    for operator, neutral in (("ReduceMin", np.inf), ("ReduceMax", -np.inf)):
        known = graph.call("Where", missing, graph.constant(np.array(neutral)), rows)
        ends.append(graph.call(operator, known, axis, keepdims=1))
    width = graph.call("Sub", ends[1], ends[0])
    zero, one = graph.constant(np.array(0.0)), graph.constant(np.array(1.0))
    is_constant = graph.call("Equal", width, zero)
    factor = graph.call("Div", one, graph.call("Where", is_constant, one, width))
    factor = graph.call("Where", is_constant, zero, factor)
    return graph.call("Mul", graph.call("Sub", rows, ends[0]), factor)


def _add_linear(graph: _Graph, scorer: LinearScorer) -> None:
    """Add nodes that compute a linear scorer, with feature scaling folded into weights and intercepts.

    `predict` does the same. A separate node that multiplies by the scaling factors would lose precision: if
    there is only one feature, onnxruntime fuses that node with the matrix product and computes both in single
    precision.
    """
    scaling = scorer.scaling
    rows = _scaled_by_query(graph, graph.features) if scaling.kind == "query" else graph.features
    rows = _filled(graph, rows, scorer.missing)
    outputs = graph.call("MatMul", rows, graph.constant(scorer.weights * scaling.factor[:, None]))
    intercepts = scorer.intercepts - (scaling.shift * scaling.factor) @ scorer.weights
    if intercepts.any():
        outputs = graph.call("Add", outputs, graph.constant(intercepts))
    _add_scores(graph, outputs, scorer.combine)


def _add_trees(graph: _Graph, scorer: TreeScorer) -> None:
    onnx = _onnx()
    if not onnx.defs.has("TreeEnsemble", "ai.onnx.ml"):
        raise ImportError(
            f'trees need onnx 1.17 or newer; {onnx.__version__} is installed: pip install "onnx>=1.17"'
        )
    rows = _scaled_by_query(graph, graph.features) if scorer.by_query else graph.features
    if scorer.single:
        rows = graph.cast(graph.cast(rows, "float32"), "float64")
    grown = [tree for tree in scorer.trees if len(tree.feature)]
    constant = scorer.constant + sum(float(tree.leaves[0]) for tree in scorer.trees if not len(tree.feature))
    if grown:
        scores = graph.call("TreeEnsemble", rows, **_ensemble(onnx, grown))
    else:  # no tree has a split, so the trees add 0 to each row; these nodes make one zero per row
        scores = graph.call("MatMul", rows, graph.constant(np.zeros((scorer.n_features, 1))))
        scores = graph.call("Where", graph.call("IsNaN", scores), graph.constant(np.array(0.0)), scores)
    if constant:
        scores = graph.call("Add", scores, graph.constant(np.array(constant)))
    _add_scores(graph, scores, np.ones(1))


def _ensemble(onnx: Any, trees: list[Any]) -> dict[str, Any]:
    """Attributes of the ONNX operator TreeEnsemble that describe the trees.

    Inner nodes are numbered consecutively over all trees. Leaves are numbered separately, in the same way.
    """
    first_node = np.cumsum([0, *(len(tree.feature) for tree in trees)])
    first_leaf = np.cumsum([0, *(len(tree.leaves) for tree in trees)])
    children: dict[str, list[int]] = {}
    for name, side in (("true", "left"), ("false", "right")):
        numbers, is_leaf = [], []
        for i, tree in enumerate(trees):
            child = getattr(tree, side)
            numbers += np.where(child < 0, first_leaf[i] - 1 - child, first_node[i] + child).tolist()
            is_leaf += (child < 0).astype(np.int64).tolist()
        children |= {f"nodes_{name}nodeids": numbers, f"nodes_{name}leafs": is_leaf}
    n_nodes, n_leaves = int(first_node[-1]), int(first_leaf[-1])
    tensor = onnx.numpy_helper.from_array
    modes = np.zeros(n_nodes, np.uint8)  # 0 means x <= split
    sets: list[float] = []  # of all nodes in order, with NaN after each
    for i, tree in enumerate(trees):
        for node in sorted(tree.members):
            modes[first_node[i] + node] = 6  # 6 means that x is in a set
            sets += [*tree.members[node].tolist(), np.nan]
    return {
        "n_targets": 1,
        "aggregate_function": 1,  # means SUM: the trees are summed
        "post_transform": 0,  # means NONE: no function is applied to the sum
        "tree_roots": first_node[:-1].tolist(),
        "nodes_featureids": np.concatenate([tree.feature for tree in trees]).tolist(),
        "nodes_modes": tensor(modes, "nodes_modes"),
        "nodes_splits": tensor(np.concatenate([tree.threshold for tree in trees]), "nodes_splits"),
        "nodes_missing_value_tracks_true": np.concatenate(
            [tree.missing_left for tree in trees]
        ).astype(np.int64).tolist(),
        "leaf_targetids": [0] * n_leaves,
        "leaf_weights": tensor(np.concatenate([tree.leaves for tree in trees]), "leaf_weights"),
        **({"membership_values": tensor(np.array(sets), "membership_values")} if sets else {}),
        **children,
    }  # fmt: skip


def _add_network(graph: _Graph, scorer: NetworkScorer) -> None:
    rows = graph.features
    if scorer.transform == "log1p":  # sign(x) log(1 + |x|)
        size = graph.call("Add", graph.call("Abs", rows), graph.constant(np.array(1.0)))
        rows = graph.call("Mul", graph.call("Sign", rows), graph.call("Log", size))
    rows = _scaled(graph, rows, scorer.scaling, scorer.missing)
    if scorer.module is not None:
        prepared = graph.cast(rows, scorer.dtype)
        n_columns = len(scorer.scaling.shift)
        outputs = graph.merge(_exported(scorer.module, n_columns, scorer.dtype), prepared)
        shape = graph.constant(np.array([-1, len(scorer.combine)]))
        outputs = graph.cast(graph.call("Reshape", outputs, shape), "float64")
        _add_scores(graph, outputs, scorer.combine)
        return
    # As in `predict`: features are rounded to the network's precision, sums are in double precision, and
    # scores are rounded to float32, so that documents with the same features have the same score.
    if scorer.dtype == "float32":
        rows = graph.cast(graph.cast(rows, "float32"), "float64")
    parts = []
    if scorer.layers:
        value = rows
        for layer in scorer.layers:
            value = _add_layer(graph, value, layer)
        parts.append(value)
    if scorer.linear is not None:
        parts.append(_add_layer(graph, rows, scorer.linear))
    outputs = parts[0] if len(parts) == 1 else graph.call("Add", *parts)
    outputs = graph.cast(graph.cast(outputs, "float32"), "float64")
    _add_scores(graph, outputs, scorer.combine)


def _add_layer(graph: _Graph, value: str, layer: Layer) -> str:
    if layer.kind == "relu":
        return graph.call("Relu", value)
    if layer.kind == "tanh":
        return graph.call("Tanh", value)
    if layer.kind == "elu":
        return graph.call("Elu", value)
    if layer.kind == "silu":
        return graph.call("Mul", value, graph.call("Sigmoid", value))
    if layer.kind == "gelu":  # x (1 + erf(x / sqrt 2)) / 2; onnxruntime has erf for float32 only
        part = graph.cast(graph.call("Mul", value, graph.constant(np.array(np.sqrt(0.5)))), "float32")
        share = graph.cast(graph.call("Erf", part), "float64")
        share = graph.call("Add", share, graph.constant(np.array(1.0)))
        return graph.call("Mul", graph.call("Mul", value, share), graph.constant(np.array(0.5)))
    weight, bias = graph.double(layer.weight), graph.double(layer.bias)
    if layer.kind == "layer":
        return graph.call("LayerNormalization", value, weight, bias, epsilon=layer.epsilon)
    if layer.kind == "scale":
        return graph.call("Add", graph.call("Mul", value, weight), bias)
    return graph.call("Gemm", value, weight, bias, transB=1)


def _exported(module: Any, n_features: int, dtype: str) -> Any:
    """Let PyTorch export a user's network to ONNX, and return the ONNX model.

    Raises ValueError if PyTorch cannot export the network.
    """
    import torch

    onnx = _onnx()
    rows = torch.zeros(2, n_features, dtype=getattr(torch, dtype))
    written = io.BytesIO()
    module = module.eval()
    dynamo = importlib.util.find_spec("onnxscript") is not None
    settings: dict[str, Any] = (
        {"dynamo": True, "dynamic_shapes": ({0: torch.export.Dim("documents")},), "verbose": False}
        if dynamo
        else {"dynamo": False, "dynamic_axes": {"rows": {0: "documents"}}}
    )
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about future versions of PyTorch
            # the older exporter warns if the graph would be wrong for other inputs; make that an error
            warnings.simplefilter("error", torch.jit.TracerWarning)
            log.setLevel(logging.ERROR)  # hides messages about missing packages that are not needed
            torch.onnx.export(module, (rows,), written, input_names=["rows"], opset_version=OPSET, **settings)
    except Exception as error:  # a user's network can fail to export in many ways
        hint = "" if dynamo else ' PyTorch\'s newer exporter may: pip install "onnxscript".'
        raise ValueError(
            f"PyTorch cannot export the network {type(module).__name__} to ONNX: "
            f"{' '.join(str(error).split())[:300]}.{hint}"
        ) from error
    finally:
        log.setLevel(level)
    return onnx.load_model_from_string(written.getvalue())


def _onnx() -> Any:
    try:
        import onnx
        import onnx.compose
    except ImportError as error:
        raise ImportError('to_onnx needs onnx: pip install "sinkprop[onnx]"') from error
    return onnx
