"""Exports written to files, and the check of an export against its model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.calibration import RankCalibration
from sinkprop.calibration.widths import RANKS
from sinkprop.common.atomic import StrPath, write_atomically
from sinkprop.common.types import Floats
from sinkprop.data.queries import Groups
from sinkprop.export.elasticsearch import elasticsearch_features, to_elasticsearch
from sinkprop.export.engine_scores import elasticsearch_scores, solr_scores
from sinkprop.export.onnx_models import to_onnx
from sinkprop.export.scorers import FeatureNames, feature_names
from sinkprop.export.solr import solr_features, to_solr

__all__ = [
    "FORMATS",
    "OPTIONS",
    "Agreement",
    "Export",
    "agreement",
    "export",
    "probability_difference",
    "write_export",
]


FORMATS = ("onnx", "elasticsearch", "opensearch", "solr")

OPTIONS = {  # {option: formats that have it}
    "name": ("elasticsearch", "opensearch", "solr"),
    "store": ("solr",),
    "missing": ("elasticsearch", "opensearch", "solr"),
    "transformed": ("solr",),
    "dtype": ("onnx",),
    "probabilities": ("onnx",),
}
# Errors of exported scores up to this share of the scores' standard deviation are taken for rounding errors.
_OFF = 1e-3
# Errors of exported probabilities up to this are taken for rounding to single precision, or for the
# small errors of the library's sums in linear time.
_PROBABILITY_OFF = 1e-5


@dataclass(frozen=True, eq=False)
class Export:
    """An exported model.

    format       Name of the format, one of `FORMATS`.
    model        The ONNX model, or the body of the request that stores the model in a search engine.
    names        Names of the columns.
    content      Content of the file to write.
    definitions  Definitions of the features as JSON; None for ONNX.
    """

    format: str
    model: Any
    names: list[str]
    content: bytes
    definitions: str | None

    def scores(self, X: NDArray[Any], groups: Groups) -> Floats:
        """Scores (N,) of the rows of X, by onnxruntime or as the search engine would compute them."""
        if self.format == "onnx":
            return self.outputs(X, groups)["scores"]
        engine = solr_scores if self.format == "solr" else elasticsearch_scores
        return engine(self.model, self.names, X).astype(np.float64)

    def outputs(self, X: NDArray[Any], groups: Groups) -> dict[str, Floats]:
        """Outputs of an ONNX model by onnxruntime: arrays of N rows, and of Q rows for `confidence`."""
        return _onnx_outputs(self.content, X, groups)


def export(
    ranker: Any,
    *,
    format: str,
    name: str | None = None,
    features: FeatureNames = None,
    store: str | None = None,
    missing: str | None = None,
    transformed: bool = False,
    dtype: str | None = None,
    probabilities: bool = False,
) -> Export:
    """Export a ranker to a format, without writing a file.

    The options are those of `to_onnx`, `to_elasticsearch` and `to_solr`. The default `name` of a search
    engine's model is the name of the ranker's class. Raises ValueError if the format lacks a given option.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be {' or '.join(map(repr, FORMATS))}; got {format!r}.")
    given = {
        "name": name, "store": store, "missing": missing, "transformed": transformed, "dtype": dtype,
        "probabilities": probabilities,
    }  # fmt: skip
    for option, value in given.items():
        if value and format not in OPTIONS[option]:
            raise ValueError(f"{option} is for {' and '.join(OPTIONS[option])}; format is {format!r}.")
    if format == "onnx":
        model = to_onnx(ranker, features=features, dtype=dtype or "float64", probabilities=probabilities)
        return Export(
            format, model, feature_names(ranker, features), model.SerializeToString(deterministic=True), None
        )
    named = type(ranker).__name__ if name is None else name
    if format == "solr":
        request: Any = to_solr(
            ranker, name=named, features=features, store=store, missing=missing, transformed=transformed
        )
        definitions: Any = solr_features(ranker, features=features, store=store, missing=missing)
    else:
        request = to_elasticsearch(ranker, name=named, features=features, missing=missing)
        definitions = elasticsearch_features(ranker, features=features)
    # Solr's trees and matrices have too many numbers to put each on its own line
    content = _json(request, indent=format != "solr" or "weights" in request["params"]).encode("utf-8")
    return Export(format, request, feature_names(ranker, features), content, _json(definitions))


def write_export(ranker: Any, path: StrPath, *, format: str, **options: Any) -> None:
    """Export a ranker to a file.

    An existing file is replaced only when the new one is complete.

    Parameters
    ----------
    ranker : ranker of sinkprop
        A fitted ranker.
    path : path
        File to write.
    format : {"onnx", "elasticsearch", "opensearch", "solr"}
        Format of the file.
    **options
        Options of `to_onnx`, `to_elasticsearch` or `to_solr`. The default `name` of a search engine's model
        is the name of the file without its suffix.
    """
    if format in FORMATS and format != "onnx" and options.get("name") is None:
        options["name"] = Path(path).stem
    write_atomically(path, export(ranker, format=format, **options).content)


@dataclass(frozen=True)
class Agreement:
    """Comparison of an export's scores with those of its model.

    difference  Largest difference between an exported score and the model's. If the format drops constants,
                the median difference of each query is subtracted first.
    spread      Standard deviation of the model's scores within queries.
    queries     Number of queries.
    same        Number of queries whose documents the export and the model sort in the same order. Documents
                with equal scores keep the order of the rows.
    turned      Largest difference between the model's scores of two documents that the export sorts in the
                opposite order; 0 if there are none.
    largest     Largest absolute value of the model's scores.
    probabilities  Largest difference of probabilities, by `probability_difference`; None if not compared.
    """

    difference: float
    spread: float
    queries: int
    same: int
    turned: float
    largest: float
    probabilities: float | None = None

    @property
    def sound(self) -> bool:
        """Whether the differences are small enough to result from rounding to single precision."""
        bound = _OFF * self.spread + 1e-6 * self.largest
        same = self.probabilities is None or self.probabilities <= _PROBABILITY_OFF
        return same and self.difference <= bound and self.turned <= bound  # also False if a number is NaN


def agreement(exported: Floats, scores: Floats, groups: Groups, *, up_to_constant: bool) -> Agreement:
    """Compare the scores (N,) of an export, `exported`, with the scores (N,) of its model.

    If `up_to_constant`, the median difference of each query is subtracted from the differences first. This
    allows a constant difference per query, for formats that do not export constants.
    """
    difference, turned, same, squares = 0.0, 0.0, 0, 0.0
    for first, last in zip(groups.offsets[:-1].tolist(), groups.offsets[1:].tolist(), strict=True):
        rows: Any = slice(first, last) if groups.rows is None else groups.rows[first:last]
        a, b = exported[rows], scores[rows]
        away = a - b
        if up_to_constant:
            away = away - np.median(away)
        difference = float(np.maximum(difference, np.abs(away).max()))  # Python's max would ignore NaN
        squares += float(np.square(b - b.mean()).sum())
        order = np.argsort(-a, kind="stable")
        same += bool(np.array_equal(order, np.argsort(-b, kind="stable")))
        ordered = b[order]
        turned = max(turned, float((ordered - np.minimum.accumulate(ordered)).max()))
    spread = float(np.sqrt(squares / len(scores)))
    largest = float(np.abs(scores).max())
    return Agreement(difference, spread, len(groups.offsets) - 1, same, turned, largest)


def probability_difference(outputs: dict[str, Floats], calibration: RankCalibration, groups: Groups) -> float:
    """Largest difference between an ONNX model's probabilities and those of a calibration, for equal scores.

    Expected ranks are divided by the number of documents of their query. The scores are those in `outputs`,
    because documents with nearly equal scores may be in another order by the scores of the model.
    """
    scores, codes = outputs["scores"], groups.codes
    ranks = np.arange(1, groups.longest + 1)
    tops = (ranks <= np.arange(1, RANKS + 1)[:, None]).astype(np.float64)
    sums = calibration.mixture.project(scores, groups, np.concatenate([tops, ranks[None]]))
    expected = {"top_k": sums[:, :RANKS].clip(0, 1), "expected_rank": sums[:, RANKS]}
    if calibration.relevance:
        grades = calibration.grades.tolist()
        p = [calibration.relevance_probability(scores, codes, threshold=grade) for grade in grades]
        expected["relevance"] = np.stack(p, axis=1)
    if calibration.best is not None:
        expected["confidence"] = calibration.confidence(scores, codes)
    away = {name: np.abs(outputs[name] - values) for name, values in expected.items()}
    away["expected_rank"] /= groups.sizes[codes]
    return float(np.max([values.max() for values in away.values()]))


def _onnx_outputs(content: bytes, X: NDArray[Any], groups: Groups) -> dict[str, Floats]:
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError as error:
        raise ImportError("a check of an ONNX file needs onnxruntime: pip install onnxruntime") from error
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    dtype = np.float32 if taken.type == "tensor(float)" else np.float64
    names = [output.name for output in session.get_outputs()]
    rows = X.astype(dtype, copy=False)
    if session.get_modelmeta().custom_metadata_map["rows"] != "one query":
        found = session.run(names, {taken.name: rows})
        return {name: values.astype(np.float64) for name, values in zip(names, found, strict=True)}
    order = np.arange(len(X)) if groups.rows is None else groups.rows
    parts = [session.run(names, {taken.name: rows[each]}) for each in np.split(order, groups.offsets[1:-1])]
    outputs = {}
    for name, values in zip(names, zip(*parts, strict=True), strict=True):
        joined = np.concatenate(values).astype(np.float64)
        if name != "confidence":  # which has one row per query
            joined[order] = joined.copy()
        outputs[name] = joined
    return outputs


def _json(request: Any, *, indent: bool = True) -> str:
    return json.dumps(request, ensure_ascii=False, allow_nan=False, indent=2 if indent else None) + "\n"
