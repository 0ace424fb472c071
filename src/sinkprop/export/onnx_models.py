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
from sinkprop.calibration import RankCalibration
from sinkprop.common.atomic import StrPath, write_atomically
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.missing import MissingValues
from sinkprop.export.onnx_calibration import add_probabilities
from sinkprop.export.onnx_graph import OPSET, Graph, import_onnx
from sinkprop.export.scorers import (
    FeatureNames,
    Layer,
    LinearScorer,
    NetworkScorer,
    TreeScorer,
    feature_names,
    scorer_of,
)

__all__ = ["to_onnx"]


def to_onnx(
    ranker: Any,
    path: StrPath | None = None,
    *,
    features: FeatureNames = None,
    dtype: str = "float64",
    probabilities: bool = False,
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
        Precision of the input and the outputs. The scaling, linear functions, trees and probabilities in
        between are computed in double precision.
    probabilities : bool, default False
        Whether to add the outputs of `calibration_to_onnx`, which are computed from the scores. The rows of
        one call must then be the documents of one query. The ranker must be calibrated.

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
    scorer, names = scorer_of(ranker), feature_names(ranker, features)
    graph = Graph(dtype, "features", [len(names)], one_query=probabilities or _one_query(scorer))
    if isinstance(scorer, LinearScorer):
        _add_linear(graph, scorer)
    elif isinstance(scorer, TreeScorer):
        _add_trees(graph, scorer)
    else:
        _add_network(graph, scorer)
    grades = add_probabilities(graph, _calibration(ranker), "scores") if probabilities else {}
    model = graph.model(
        {
            "sinkprop": sinkprop.__version__,
            "ranker": type(ranker).__name__,
            "metric": str(ranker.metric),
            "convention": str(ranker.convention),
            "features": json.dumps(names, ensure_ascii=False),
            "rows": "one query" if graph.one_query else "any",
            **_categories(ranker, names),
            **grades,
        }
    )
    if path is not None:
        write_atomically(path, model.SerializeToString(deterministic=True))
    return model


def _calibration(ranker: Any) -> RankCalibration:
    if ranker.calibration_ is None:
        raise ValueError(
            f"probabilities=True needs a calibrated ranker; this {type(ranker).__name__} has no calibration. "
            "Call its method calibrate with at least ten held-out queries."
        )
    found: RankCalibration = ranker.calibration_
    return found


def _categories(ranker: Any, names: list[str]) -> dict[str, str]:
    """Metadata with the categories of the ranker's categorical features; empty if it has none."""
    own = [str(name) for name in getattr(ranker, "feature_names_in_", names)]
    known = getattr(ranker, "categories_", {})
    found = {name: list(known[mine]) for name, mine in zip(names, own, strict=True) if mine in known}
    return {"categories": json.dumps(found, ensure_ascii=False)} if found else {}


def _one_query(scorer: LinearScorer | NetworkScorer | TreeScorer) -> bool:
    return scorer.by_query if isinstance(scorer, TreeScorer) else scorer.scaling.kind == "query"


def _add_scores(graph: Graph, outputs: str, combine: NDArray[Any]) -> None:
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


def _scaled(graph: Graph, rows: str, scaling: Scaling, missing: MissingValues | None) -> str:
    if scaling.kind == "query":
        rows = _scaled_by_query(graph, rows)
    rows = _filled(graph, rows, missing)
    if scaling.kind != "standard":
        return rows
    centered = graph.call("Sub", rows, graph.constant(scaling.shift))
    return graph.call("Mul", centered, graph.constant(scaling.factor))


def _filled(graph: Graph, rows: str, missing: MissingValues | None) -> str:
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


def _scaled_by_query(graph: Graph, rows: str) -> str:
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


def _add_linear(graph: Graph, scorer: LinearScorer) -> None:
    """Add nodes that compute a linear scorer, with feature scaling folded into weights and intercepts.

    `predict` does the same. A separate node that multiplies by the scaling factors would lose precision: if
    there is only one feature, onnxruntime fuses that node with the matrix product and computes both in single
    precision.
    """
    scaling = scorer.scaling
    rows = _scaled_by_query(graph, graph.given) if scaling.kind == "query" else graph.given
    rows = _filled(graph, rows, scorer.missing)
    outputs = graph.call("MatMul", rows, graph.constant(scorer.weights * scaling.factor[:, None]))
    intercepts = scorer.intercepts - (scaling.shift * scaling.factor) @ scorer.weights
    if intercepts.any():
        outputs = graph.call("Add", outputs, graph.constant(intercepts))
    _add_scores(graph, outputs, scorer.combine)


def _add_trees(graph: Graph, scorer: TreeScorer) -> None:
    onnx = import_onnx()
    if not onnx.defs.has("TreeEnsemble", "ai.onnx.ml"):
        raise ImportError(
            f'trees need onnx 1.17 or newer; {onnx.__version__} is installed: pip install "onnx>=1.17"'
        )
    rows = _scaled_by_query(graph, graph.given) if scorer.by_query else graph.given
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


def _add_network(graph: Graph, scorer: NetworkScorer) -> None:
    rows = graph.given
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


def _add_layer(graph: Graph, value: str, layer: Layer) -> str:
    if layer.kind == "relu":
        return graph.call("Relu", value)
    if layer.kind == "tanh":
        return graph.call("Tanh", value)
    if layer.kind == "elu":
        return graph.call("Elu", value)
    if layer.kind == "silu":
        # x / (1 + exp(-x)): onnxruntime before 1.31 fuses x sigmoid(x) to an operator that takes float32 only
        share = graph.call("Exp", graph.call("Neg", value))
        return graph.call("Div", value, graph.call("Add", share, graph.constant(np.array(1.0))))
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

    onnx = import_onnx()
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
