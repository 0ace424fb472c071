"""Checks of the plain data of a comparison, before a `Comparison` is made from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["check_record", "finite_number"]


@dataclass(frozen=True)
class _Optional:
    """A form whose value may be None, or whose key may be missing."""

    form: Any


@dataclass(frozen=True)
class _Each:
    """A mapping of any text keys to values of one form."""

    form: Any


_NUMBER = (int, float)
_ID = (int, float, str)
_DETAILS = {
    "scores": [[_NUMBER]],
    "parameters": _Optional([[[_NUMBER]]]),
    "distribution": _Optional(dict),
    "training": _Optional({"steps": _Each(list)}),
    "weights": _Optional({"kind": str, "explanation": str, "values": [_Optional(_NUMBER)]}),
}
_FOLD_DATA = {
    "parts": _Each([int]),
    "n_features": int,
    "feature_names": _Optional([str]),
    "lengths": [int],
    "relevant": [int],
    "labels": _Each([int]),
    "shown": [int],
    "shown_labels": [[_NUMBER]],
    "shown_docids": _Optional([[_ID]]),
}
_FOLD = {
    "fold": str,
    "queries": [_ID],
    "per_query": _Each([_Optional(_NUMBER)]),
    "means": _Each(_Optional(_NUMBER)),
    "fit_seconds": _Optional(_NUMBER),
    "predict_seconds": _NUMBER,
    "summary": dict,
    "warnings": [str],
    "details": _Optional(_DETAILS),
}
_DATA_SET = {
    "dataset": str,
    "statement": str,
    "methods": [{"method": str, "folds": [_FOLD]}],
    "data": _Optional(_Each(_FOLD_DATA)),
}
_COMPARISON = {
    "methods": [str],
    "metrics": [str],
    "against": str,
    "convention": str,
    "descriptions": _Optional(_Each(str)),
    "ours": _Optional([str]),
    "datasets": [_DATA_SET],
}


def finite_number(text: str) -> float:
    """Return a number of JSON text, such as 0.5, 1e999 or NaN. Raises a ValueError unless it is finite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is not finite")
    return number


def check_record(record: Mapping[str, Any]) -> None:
    """Raise a ValueError, which says where, unless the record of a comparison is whole and consistent."""
    _check_form(record, _COMPARISON, "the file")
    methods, metrics = record["methods"], record["metrics"]
    _require(
        bool(record["datasets"] and methods and metrics), "a comparison has data sets, methods and metrics"
    )
    for name in ("methods", "metrics"):
        _require(len(set(record[name])) == len(record[name]), f"{name} must be different from each other")
    _require(
        record["against"] in methods, f"against is {record['against']!r}, which is not among the methods"
    )
    names = [data["dataset"] for data in record["datasets"]]
    _require(len(set(names)) == len(names), "the names of data sets must be different from each other")
    for data in record["datasets"]:
        _check_data_set(data, methods, metrics)


def _require(fine: bool, what: str) -> None:
    if not fine:
        raise ValueError(what)


def _check_form(value: Any, form: Any, where: str) -> None:
    """Raise a ValueError unless a value has a form: types, [form], {key: form}, _Each or _Optional."""
    if isinstance(form, _Optional):
        if value is not None:
            _check_form(value, form.form, where)
    elif isinstance(form, _Each):
        _check_form(value, dict, where)
        for key, item in value.items():
            _check_form(item, form.form, f"{where}, {key!r}")
    elif isinstance(form, list):
        _check_form(value, list, where)
        for i, item in enumerate(value):
            _check_form(item, form[0], f"{where}[{i}]")
    elif isinstance(form, dict):
        _check_form(value, dict, where)
        for key, own in form.items():
            _require(key in value or isinstance(own, _Optional), f"{where} lacks {key!r}")
            _check_form(value.get(key), own, f"{where}, {key!r}")
    else:
        kinds = form if isinstance(form, tuple) else (form,)
        fine = isinstance(value, kinds) and not isinstance(value, bool)
        _require(
            fine,
            f"{where} must be {' or '.join(kind.__name__ for kind in kinds)}; got {type(value).__name__}",
        )
        _require(not isinstance(value, int) or abs(value) < 2**63, f"{where} is too large")


def _check_data_set(data: Mapping[str, Any], methods: Sequence[str], metrics: Sequence[str]) -> None:
    where = f"data set {data['dataset']!r}"
    _require([m["method"] for m in data["methods"]] == list(methods), f"{where} has other methods")
    first = data["methods"][0]["folds"]
    folds = [fold["fold"] for fold in first]
    _require(bool(folds) and len(set(folds)) == len(folds), f"{where} must have folds of different names")
    known = data.get("data") or {}
    _require(not known or list(known) == folds, f"{where} describes other folds than it has results of")
    for fold, own in known.items():
        _check_fold_data(own, f"{where}, fold {fold!r}")
    for method in data["methods"]:
        _require(
            [fold["fold"] for fold in method["folds"]] == folds,
            f"{where}: {method['method']!r} has other folds",
        )
        for fold, reference in zip(method["folds"], first, strict=True):
            place = f"{where}, method {method['method']!r}, fold {fold['fold']!r}"
            _require(
                fold["queries"] == reference["queries"], f"{place} has other queries than the first method"
            )
            _check_fold(fold, metrics, known.get(fold["fold"]), place)


def _check_fold(fold: Mapping[str, Any], metrics: Sequence[str], data: Any, where: str) -> None:
    n = len(fold["queries"])
    _require(n > 0 and len(set(fold["queries"])) == n, f"{where} must have queries of different ids")
    for metric in metrics:
        _require(fold["means"].get(metric) is not None, f"{where} has no mean of {metric!r}")
        _require(len(fold["per_query"].get(metric, ())) == n, f"{where} must have {n} values of {metric!r}")
    details = fold.get("details")
    if data is None:
        return
    _require(len(data["lengths"]) == n, f"{where} has {n} queries, its data {len(data['lengths'])}")
    if not details:
        return
    sizes = [len(labels) for labels in data["shown_labels"]]
    scores = [len(own) for own in details["scores"]]
    _require(not scores or scores == sizes, f"{where} has scores of other documents than its data")
    if details.get("parameters") is not None:
        both = [[len(column) for column in own] for own in details["parameters"]]
        _require(both == [[size, size] for size in sizes], f"{where} has parameters of other documents")
    weights = details.get("weights")
    if weights is not None:
        _require(len(weights["values"]) == data["n_features"], f"{where} has weights of other features")


def _check_fold_data(data: Mapping[str, Any], where: str) -> None:
    n = len(data["lengths"])
    _require(len(data["relevant"]) == n, f"{where}: lengths and relevant must be as many")
    _require(all(len(own) == n for own in data["labels"].values()), f"{where}: labels must count {n} queries")
    _require(all(len(sizes) == 2 for sizes in data["parts"].values()), f"{where}: a part has two sizes")
    names = data.get("feature_names")
    _require(names is None or len(names) == data["n_features"], f"{where} has other names than features")
    _require(all(0 <= i < n for i in data["shown"]), f"{where} shows a query that it does not have")
    sizes = [len(own) for own in data["shown_labels"]]
    _require(len(sizes) == len(data["shown"]), f"{where} shows other queries than it has labels of")
    docids = data.get("shown_docids")
    _require(
        docids is None or [len(own) for own in docids] == sizes, f"{where} has other docids than documents"
    )
