"""Calibrated probabilities of ranks and relevance as nodes of ONNX graphs, from the scores of one query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

import sinkprop
from sinkprop.calibration.rank_calibration import RankCalibration
from sinkprop.calibration.relevance import DocumentModel
from sinkprop.calibration.widths import EPSILON, N_ITER, RANKS, RankMixture
from sinkprop.common.atomic import StrPath, write_atomically
from sinkprop.export.onnx_graph import Graph

__all__ = ["add_probabilities", "calibration_to_onnx"]


def calibration_to_onnx(
    calibration: RankCalibration, path: StrPath | None = None, *, dtype: str = "float64"
) -> Any:
    """Convert a calibration to an ONNX model, and optionally write it to a file; needs onnx.

    The input of the graph is `scores` (documents,), the scores of the documents of one query, by the model
    that the calibration was fitted to. The outputs are:

    - `top_k` (documents, 10), where column k - 1 is the probability that the document is among the first k,
    - `expected_rank` (documents,), from 1 for the top,
    - `relevance` (documents, G), where column g is the probability that the label is at least ``grades[g]``,
    - `confidence` (1,), the probability that the first document has the best label of the query.

    Parameters
    ----------
    calibration : RankCalibration
        The calibration.
    path : path, optional
        File to write. An existing file is replaced only when the new one is complete.
    dtype : {"float64", "float32"}, default "float64"
        Precision of the input and the outputs. Everything in between is in double precision.

    Returns
    -------
    onnx.ModelProto
        The model.

    Notes
    -----
    Time and memory grow with the square of the number of documents n, because the graph forms the matrices
    that the methods of `RankCalibration` do without. The memory is about 34 n^2 bytes, which is 34 MB for a
    thousand documents. Documents with equal scores are ranked in the order of the rows. A score that is NaN
    or infinite makes all outputs NaN.

    The graph uses the operators of opset 18. `metadata_props` has the version of sinkprop, "grades" as a JSON
    list, and "rows", which is "one query". The output `relevance` is left out if the calibration has no
    grades, and `confidence` if it has no model of the best label.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.calibration import RankCalibration
    >>> rng = np.random.default_rng(0)
    >>> scores, qid = rng.normal(size=300), np.repeat(np.arange(30), 10)
    >>> y = scores + rng.normal(size=300) > 1
    >>> calibration = RankCalibration.fit(scores, y, qid)
    >>> model = calibration_to_onnx(calibration)
    >>> [output.name for output in model.graph.output]
    ['top_k', 'expected_rank', 'relevance', 'confidence']
    """
    graph = Graph(dtype, "scores", [], one_query=True)
    metadata = {"sinkprop": sinkprop.__version__, "rows": "one query"}
    model = graph.model(metadata | add_probabilities(graph, calibration, "scores"))
    if path is not None:
        write_atomically(path, model.SerializeToString(deterministic=True))
    return model


def add_probabilities(graph: Graph, calibration: RankCalibration, scores: str) -> dict[str, str]:
    """Add the outputs of `calibration_to_onnx` for scores (n,) of one query; return metadata about them."""
    documents = _documents(graph, graph.cast(scores, "float64"), calibration.mixture.scale)
    _add_ranks(graph, documents, calibration.mixture)
    features = _features(graph, documents, calibration.mixture.scale)
    if calibration.relevance:
        logits = [_logits(graph, features, each.model) for each in calibration.relevance]
        lowest = accumulate(logits, lambda lower, own: graph.call("Min", lower, own))
        p = _sigmoid(graph, graph.call("Concat", *lowest, axis=1))
        documents.give(graph, "relevance", p, [len(logits)])
    if calibration.best is not None:
        logits_of_best = _logits(graph, features, calibration.best.model)
        first = graph.call("Reshape", graph.slice(logits_of_best, 1), graph.constant(np.array(1)))
        intercept, slope = (graph.constant(value) for value in calibration.best.first)
        logit = graph.call("Add", intercept, graph.call("Mul", slope, first))
        graph.give("confidence", _sigmoid(graph, logit), [1])
    return {"grades": json.dumps(calibration.grades.tolist())}


@dataclass(frozen=True)
class _Documents:
    """Names of values of the n documents of a query, in rank order.

    scores  (n,) scores.
    away    (n,) scores less their mean, in units of the usual spread.
    ranks   (n,) ranks 1, 2, ..., n, in double precision.
    log_n   (1,) logarithm of n.
    places  (n,) index of each row of the input in the rank order.
    """

    scores: str
    away: str
    ranks: str
    log_n: str
    places: str

    def give(self, graph: Graph, name: str, value: str, shape: list[Any]) -> None:
        """Make a value in rank order an output of the graph, in the order of the input."""
        graph.give(name, graph.call("Gather", value, self.places), [graph.rows_name, *shape])


def _documents(graph: Graph, scores: str, scale: float) -> _Documents:
    size = graph.call("Shape", scores)
    order = graph.sorted_order(scores, size)
    scores = graph.call("Gather", scores, order)
    zero, one = (graph.call("Squeeze", graph.constant(np.array(i))) for i in (0, 1))
    indices = graph.call("Range", zero, graph.call("Squeeze", size), one)
    away = graph.call("Sub", scores, graph.mean(scores))
    return _Documents(
        scores,
        graph.call("Div", away, graph.constant(scale)),
        graph.cast(graph.call("Add", indices, one), "float64"),
        graph.call("Log", graph.cast(size, "float64")),
        graph.call("ScatterElements", order, order, indices),
    )


def _add_ranks(graph: Graph, documents: _Documents, mixture: RankMixture) -> None:
    """Add the outputs `top_k` and `expected_rank`, which are sums over columns of the mixture's matrix Pi."""
    ranks = graph.column(documents.ranks)
    tops = graph.call("LessOrEqual", ranks, graph.constant(np.arange(1.0, RANKS + 1)))
    columns = graph.call("Concat", graph.cast(tops, "float64"), ranks, axis=1)
    sums = _projected(graph, documents, mixture, columns)
    top_k = graph.clip(graph.slice(sums, RANKS, axis=1), 0.0, 1.0)
    documents.give(graph, "top_k", top_k, [RANKS])
    expected = graph.call("Gather", sums, graph.constant(np.array(RANKS)), axis=1)
    documents.give(graph, "expected_rank", graph.call("Squeeze", expected, graph.constant(np.array(1))), [])


def _projected(graph: Graph, documents: _Documents, mixture: RankMixture, columns: str) -> str:
    """Sums (n, C) of Pi[j, k] columns[k, c] over the ranks k, where Pi is the mixture's matrix.

    The part of width m is Pi_m = diag(u) A diag(v), where A is the smoothed indicator plus epsilon. In rank
    order A is symmetric, so that v and u are the last two of the vectors q_0 = 1, q_(t+1) = 1 / (A q_t). A
    loop over the widths holds one matrix A at a time.
    """
    x = _warped(graph, documents.away, mixture.warp)
    differences = graph.call("Sub", graph.column(x), x)
    squares = graph.call("Mul", differences, differences)
    exponents, epsilon = graph.constant(-0.5 / mixture.widths**2), graph.constant(EPSILON)
    weights = _weights(graph, documents, mixture)
    uniform = graph.call("Mul", graph.slice(weights, 1), graph.mean(columns))

    def add_part(m: str, sums: str) -> str:
        A = graph.call("Exp", graph.call("Mul", squares, graph.call("Gather", exponents, m)))
        A = graph.call("Add", A, epsilon)

        def next_q(q: str) -> str:
            return graph.call("Reciprocal", graph.call("MatMul", A, q))

        q = graph.call("Reciprocal", graph.call("ReduceSum", A, graph.constant(np.array(1))))
        v = graph.repeat(N_ITER - 1, lambda _, q: next_q(next_q(q)), q)
        part = graph.call("Mul", next_q(v), graph.call("MatMul", A, graph.call("Mul", v, columns)))
        weight = graph.call("Gather", weights, graph.call("Add", m, graph.constant(np.array(1))))
        return graph.call("Add", sums, graph.call("Mul", weight, part))

    sums = graph.call("Expand", uniform, graph.call("Shape", columns))
    return graph.repeat(len(mixture.widths), add_part, sums)


def _weights(graph: Graph, documents: _Documents, mixture: RankMixture) -> str:
    """Weights (1 + M,) of the uniform part and of the widths, for the number of documents."""
    short, long = np.roll(mixture.weights, 1, axis=1)
    low, high = np.log(mixture.lengths)
    if high == low:
        return graph.constant(short)
    away = graph.call("Sub", documents.log_n, graph.constant(low))
    t = graph.clip(graph.call("Div", away, graph.constant(high - low)), 0.0, 1.0)
    return graph.call("Add", graph.constant(short), graph.call("Mul", t, graph.constant(long - short)))


def _warped(graph: Graph, z: str, warp: tuple[str, float]) -> str:
    """The function g of standardized scores; see `sinkprop.calibration.widths.warped`."""
    kind, parameter = warp
    if kind == "exponential" and parameter == 0:
        return z
    one = graph.constant(1.0)
    if kind == "softplus":  # ln(1 + e^t) / 2 for t = 2 (z - parameter), as max(t, 0) + ln(1 + e^-|t|)
        t = graph.call("Mul", graph.constant(2.0), graph.call("Sub", z, graph.constant(parameter)))
        small = graph.call("Exp", graph.call("Neg", graph.call("Abs", t)))
        soft = graph.call("Add", graph.call("Relu", t), graph.call("Log", graph.call("Add", one, small)))
        return graph.call("Mul", graph.constant(0.5), soft)
    grown = graph.call("Exp", graph.clip(graph.call("Mul", graph.constant(parameter), z), -6.0, 6.0))
    return graph.call("Div", graph.call("Sub", grown, one), graph.constant(parameter))


@dataclass(frozen=True)
class _Features:
    """Names of the values from which models compute logits; see `sinkprop.calibration.relevance.places`.

    scores  (n, 1) scores in units of the usual spread.
    places  (n, 5) places of the documents in their query.
    query   (1, 5) properties of the query, and 1.
    """

    scores: str
    places: str
    query: str


def _features(graph: Graph, documents: _Documents, scale: float) -> _Features:
    s = graph.column(graph.call("Div", documents.scores, graph.constant(scale)))
    away, ranks = graph.column(documents.away), graph.column(documents.ranks)
    spread = graph.call("Sqrt", graph.mean(graph.call("Mul", away, away)))
    places = graph.call("Div", away, graph.call("Add", spread, graph.constant(0.25)))
    tops = graph.call("LessOrEqual", ranks, graph.constant(np.array([1.0, 3.0, 10.0])))
    falling = graph.call("Neg", graph.call("Log", ranks))
    level = graph.mean(graph.slice(s, 10))
    lead = graph.call("Sub", graph.slice(s, 1), level)
    log_n = graph.column(documents.log_n)
    return _Features(
        s,
        graph.call("Concat", places, falling, graph.cast(tops, "float64"), axis=1),
        graph.call("Concat", log_n, spread, level, lead, graph.constant(np.ones((1, 1))), axis=1),
    )


def _logits(graph: Graph, features: _Features, model: DocumentModel) -> str:
    """Logits (n, 1) of a model of documents."""
    low, high = model.knots[:-1], model.knots[1:]
    parts = np.split(model.coefficients[:, None], [1, len(model.knots), len(model.knots) + 5])
    values = [features.scores, "", features.places, features.query]
    if len(low):
        pieces = graph.call("Sub", features.scores, graph.constant(low))
        values[1] = graph.clip(graph.call("Div", pieces, graph.constant(high - low)), 0.0, 1.0)
    terms = [
        graph.call("MatMul", value, graph.constant(part))
        for value, part in zip(values, parts, strict=True)
        if value
    ]
    return graph.call("Sum", *terms)


def _sigmoid(graph: Graph, logits: str) -> str:
    half = graph.constant(0.5)
    tanh = graph.call("Tanh", graph.call("Mul", half, logits))
    return graph.call("Mul", half, graph.call("Add", graph.constant(1.0), tanh))
