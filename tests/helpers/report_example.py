"""The data of a small report with every awkward case: `data()`, the same each time, and `matrix()`.

Two data sets. "Small & <odd>" has two folds with a query of one document, one of ties, one without a relevant
document, one without docids, and 130 documents in the longest; a method's name is a script element. "Older"
has means, tests and values of queries only, as a file from before the report has.
"""

from __future__ import annotations

import base64
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np

from sinkprop import PartitionedMeasure, SmoothedIndicator, doubly_stochastic, evaluate
from sinkprop.calibration import RankCalibration, calibration_report
from sinkprop.common.plain_data import plain_data
from sinkprop.experiment import Comparison, Result

OURS, REFERENCE, ODD = "sinkprop", "regression", "<script>alert('x')</script> \"&"
METHODS = (OURS, REFERENCE, ODD)
METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map")
TITLE = "A small report </title><script>alert(1)</script> & \u2028 more"
FOLDS = {"Fold1": range(0, 7), "Fold2": range(7, 14)}
NOISE = {OURS: 0.5, REFERENCE: 1.5, ODD: 4.0}
SETTINGS = {
    OURS: {
        "kernel": "gaussian", "sigma": 0.4, "n_iter": 5, "epsilon": 1e-6,
        "own": True, "explanation": "Chosen in training.",
    },
    REFERENCE: {
        "kernel": "laplace", "sigma": 0.25, "n_iter": 0.5, "epsilon": 0.0,
        "own": False, "explanation": "A fourth of the scores' spread.",
    },
}  # fmt: skip


@cache
def _queries() -> tuple[tuple[list[int], dict[str, list[float]]], ...]:
    """Labels and scores of each query."""
    rng = np.random.default_rng(7)
    made = []
    for q in range(14):
        n = {0: 1, 1: 4, 5: 130}.get(q, 6 + q)
        labels = np.zeros(n, int) if q == 2 else rng.integers(0, 3, n)
        scores = {method: labels + noise * rng.standard_normal(n) for method, noise in NOISE.items()}
        if q == 1:
            labels = np.array([0, 2, 0, 1])
            scores = {OURS: np.zeros(4), REFERENCE: np.array([1.0, 1.0, 0.0, 1.0]), ODD: np.arange(4.0)}
        made.append((labels.tolist(), {method: own.tolist() for method, own in scores.items()}))
    return tuple(made)


def query_id(q: int) -> int | str:
    return 'q"<i>' if q == 3 else 100 + q


@cache
def _comparison(dataset: str) -> Comparison:
    results = []
    for fold, members in FOLDS.items():
        labels = [label for q in members for label in _queries()[q][0]]
        qid = [q for q in members for _ in _queries()[q][0]]
        for method in METHODS:
            scores = [score for q in members for score in _queries()[q][1][method]]
            found = evaluate(labels, scores, qid, METRICS, empty="skip" if dataset == "Older" else None)
            ids = tuple(query_id(q) for q in members)
            results.append(Result(dataset, fold, method, ids, found.per_query, dict(found), 0.5, 0.01))
    return Comparison(
        (dataset,),
        METHODS,
        METRICS,
        REFERENCE,
        "letor",
        tuple(results),
        {dataset: f"What {dataset} rests on."},
    )


def matrix(q: int) -> np.ndarray:
    """Pi of the third method on a query: a partitioned measure, which the page cannot compute."""
    scores = np.asarray(_queries()[q][1][ODD])
    theta = np.stack([-scores / 3, np.zeros_like(scores)], axis=1)
    return doubly_stochastic(theta, relaxation=PartitionedMeasure("logit-logistic"))


def distribution(method: str, q: int, width: float = 1.0) -> np.ndarray:
    """Pi of a query, documents in the order of the file, by the library."""
    own = SETTINGS[method]
    relaxation = SmoothedIndicator(own["sigma"] * width, own["kernel"])
    scores = _queries()[q][1][method]
    return doubly_stochastic(scores, relaxation=relaxation, n_iter=own["n_iter"], epsilon=own["epsilon"])


@cache
def calibration(method: str) -> RankCalibration:
    """A calibration of a method on queries of 3 to 12 documents like those of the report, with ties."""
    rng = np.random.default_rng(8)
    qid = np.repeat(np.arange(60), 3 + np.arange(60) % 10)
    labels = rng.integers(0, 3, len(qid))
    return RankCalibration.fit((labels + NOISE[method] * rng.standard_normal(len(qid))).round(1), labels, qid)


def calibrated(method: str) -> dict[str, Any]:
    """Settings of the explorer for the calibrated rank distributions of a method."""
    return {
        "mixture": {**plain_data(calibration(method).mixture.record()), "n_iter": 30, "epsilon": 1e-9},
        "calibrated_on": 60, "own": True, "explanation": "Seven in ten.",
    }  # fmt: skip


def _checked(method: str) -> dict[str, Any]:
    """The calibration of a method, compared with the labels of all queries."""
    labels = [label for own, _ in _queries() for label in own]
    scores = [score for _, own in _queries() for score in own[method]]
    qid = [q for q, (own, _) in enumerate(_queries()) for _ in own]
    return calibration_report(calibration(method), scores, labels, qid).record()


def _explored(q: int) -> dict[str, Any]:
    labels, scores = _queries()[q]
    n = len(labels)
    docids = None if q == 4 else [None if j == 1 else f"d{q}-{j}" + "<b>" * (q == 3) for j in range(n)]
    Pi = matrix(q)
    as_bytes = np.round(255 * Pi / Pi.max()).astype(np.uint8).tobytes()
    return {
        "query": q, "labels": labels, "docids": docids, "scores": scores, "peaks": {ODD: float(Pi.max())},
        "matrices": {ODD: base64.b64encode(as_bytes).decode()},
    }  # fmt: skip


def _steps() -> list[dict[str, Any]]:
    return [
        {
            "path": f"penalty {penalty:g}", "sigma": 2.0**-i, "expected_gain": 0.4 + 0.05 * i,
            "training": None if i == 0 else 0.5 + 0.04 * i, "validation": 0.5 + 0.03 * i - 0.01 * i * i,
        }
        for penalty in (0.1, 0.001) for i in range(6)
    ]  # fmt: skip


def _whole(dataset: str) -> dict[str, Any]:
    record = _comparison(dataset).as_record()["datasets"][0]
    own = {method["method"]: method for method in record["methods"]}
    queries = [
        {
            "id": query_id(q), "name": "how to <b>sort</b>" if q == 6 else None, "fold": fold,
            "documents": len(_queries()[q][0]), "relevant": sum(label > 0 for label in _queries()[q][0]),
        }
        for fold, members in FOLDS.items() for q in members
    ]  # fmt: skip
    return {
        "name": dataset,
        "statement": record["statement"],
        "means": {name: m["means"] for name, m in own.items()},
        "intervals": {name: m["intervals"] for name, m in own.items()},
        "folds": {name: {f["fold"]: f["means"] for f in m["folds"]} for name, m in own.items()},
        "seconds": {name: {"fit": 0.5, "predict": None} for name in own},
        "tests": record["tests"],
        "published": [{"method": "Other <i>", "means": {"ndcg@3": 0.51, "ndcg@10": 0.52, "map": 0.4}}],
        "queries": queries,
        "per_query": {
            name: {metric: [x for f in m["folds"] for x in f["per_query"][metric]] for metric in METRICS}
            for name, m in own.items()
        },
    }


@cache
def _data() -> dict[str, Any]:
    labels = [label for own, _ in _queries() for label in own]
    whole = _whole("Small & <odd>") | {
        "about": "Made for tests.",
        "glance": {
            "queries": 14, "documents": len(labels), "features": 3, "without_relevant": 1,
            "parts": [
                {"fold": fold, "part": part, "queries": 7, "documents": 90}
                for fold in FOLDS for part in ("train", "vali", "test")
            ],
            "lengths": {"values": [len(own) for own, _ in _queries()]},
            "labels": {"values": [0, 1, 2], "counts": [labels.count(value) for value in (0, 1, 2)]},
        },
        "training": {
            OURS: {
                fold: {
                    "criterion": "ndcg@10", "validated_on": "validation queries",
                    "status": "converged", "message": "Converged.", "unit": "stage",
                    "steps": _steps(), "chosen": 7, "stopped": [3, 9],
                }
                for fold in FOLDS
            }
        },
        "weights": {
            OURS: {
                "kind": "weight", "explanation": "Of standardized features.",
                "features": ["bm25", "<b>tf</b>", "length"],
                "folds": {"Fold1": [1.5, -0.4, 0.0], "Fold2": [1.2, -0.6, 0.1]},
            },
            ODD: {
                "kind": "importance", "explanation": "Share of the splits.",
                "features": ["bm25", "<b>tf</b>", "length"],
                "folds": {"Fold1": [0.7, None, 0.3], "Fold2": [0.5, 0.2, 0.3]},
            },
        },
        "calibration": {name: {"Fold1": _checked(name)} for name in (OURS, REFERENCE)},
        "explorer": {
            "note": "One query was left out.",
            "queries": [_explored(q) for q in range(13)],
            "distributions": {
                name: dict.fromkeys(FOLDS, own) for name, own in SETTINGS.items()
            },
        },
    }  # fmt: skip
    return {
        "format": "sinkprop-report", "version": 1, "library": "0.1.0",
        "title": TITLE, "subtitle": "Two data sets & three methods",
        "command": "sinkprop compare <data> --report report.html",
        "methods": [
            {"name": name, "description": f"the method {name}", "ours": name == OURS} for name in METHODS
        ],
        "metrics": list(METRICS), "main": "ndcg@10", "against": REFERENCE, "convention": "letor",
        "datasets": [whole, _whole("Older")],
    }  # fmt: skip


def data() -> dict[str, Any]:
    """The data of the report, as `comparison_report` would make them; the caller's own to change."""
    return deepcopy(_data())


def order(scores: list[float]) -> list[int]:
    """Documents by decreasing score, ties in the order in which they stand."""
    return sorted(range(len(scores)), key=lambda j: (-scores[j], j))
