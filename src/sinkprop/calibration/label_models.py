"""Models of labels: the probability of each grade, and of the best label, with what their guarantees need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkprop.calibration.guarantees import (
    AnswerScores,
    PrefixScores,
    answer_from,
    answer_record,
    answer_scores,
    prefix_from,
    prefix_record,
    prefix_scores,
)
from sinkprop.calibration.relevance import DocumentModel, Places, fit_document_model
from sinkprop.calibration.ridge import ridge_logistic, sigmoid
from sinkprop.common.types import Floats, Mask
from sinkprop.model_files import saved_floats

__all__ = ["Best", "Relevance", "fit_best", "fit_grades", "of_firsts"]

_MOST_GRADES = 8


@dataclass(frozen=True, eq=False)
class Relevance:
    """Probability that the label of a document is at least `grade`, with what its guarantees need."""

    grade: float
    model: DocumentModel
    lists: PrefixScores
    answers: AnswerScores

    def record(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {
            "grade": self.grade,
            "model": self.model.record(),
            "lists": prefix_record(self.lists),
            "answers": answer_record(self.answers),
        }

    @classmethod
    def from_record(cls, state: dict[str, Any]) -> Relevance:
        """Read what `record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
        grade = state["grade"]
        if type(grade) is not float or not 0 < grade < math.inf:
            raise ValueError(f"calibration: a grade must be a finite float above 0; got {grade!r:.40}")
        model = DocumentModel.from_record(state["model"])
        return cls(grade, model, prefix_from(state["lists"]), answer_from(state["answers"]))


@dataclass(frozen=True, eq=False)
class Best:
    """Probability that a document has the best label of its query; `first` corrects it for first documents.

    The logit of a first document's probability is first[0] + first[1] times the model's.
    """

    model: DocumentModel
    first: Floats
    sets: PrefixScores

    def __call__(self, documents: Places) -> Floats:
        """Probability for each document."""
        logits = self.model.logits(documents)
        first = documents.ranks == 1
        logits[first] = self.first[0] + self.first[1] * logits[first]
        return sigmoid(logits)

    def record(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {"model": self.model.record(), "first": self.first, "sets": prefix_record(self.sets)}

    @classmethod
    def from_record(cls, state: dict[str, Any]) -> Best:
        """Read what `record` wrote; raises a LookupError, TypeError or ValueError if it is not valid."""
        first = saved_floats("first", state["first"], (2,))
        return cls(DocumentModel.from_record(state["model"]), first, prefix_from(state["sets"]))


def fit_grades(documents: Places, labels: Floats) -> tuple[Relevance, ...]:
    """Models of label >= grade for the grades above 0, at most eight of them."""
    grades = np.unique(labels[labels > 0])
    if len(grades) > _MOST_GRADES:
        grades = np.unique(np.quantile(grades, np.linspace(0, 1, _MOST_GRADES), method="nearest"))
    return tuple(_fit_grade(documents, labels, grade) for grade in grades.tolist())


def _fit_grade(documents: Places, labels: Floats, grade: float) -> Relevance:
    wanted = labels >= grade
    model, logits = fit_document_model(documents, wanted)
    p = sigmoid(logits)
    answers = answer_scores(of_firsts(p, documents), of_firsts(wanted, documents))
    return Relevance(grade, model, prefix_scores(p, wanted, documents.scores, documents.groups), answers)


def fit_best(documents: Places, labels: Floats) -> Best:
    """Model of the best label of each query."""
    groups = documents.groups
    wanted = labels == np.maximum.reduceat(labels, groups.offsets[:-1])[groups.codes]
    model, logits = fit_document_model(documents, wanted)
    first = _first_line(of_firsts(logits, documents), of_firsts(wanted, documents))
    return Best(model, first, prefix_scores(sigmoid(logits), wanted, documents.scores, groups))


def _first_line(logits: Floats, right: Mask) -> Floats:
    """Intercept and slope that correct the logits of first documents, near 0 and 1 for few queries."""
    known = ~np.isnan(logits)
    x, t = logits[known].clip(-20, 20), right[known].astype(np.float64)
    Z, prior = np.stack([np.ones(len(x)), x], axis=1), np.array([0.0, 1.0])
    penalty = np.array([1.0, 4.0])  # as much as a few queries
    return ridge_logistic(Z, t, penalty, np.array([False, True]), prior, center=prior)


def of_firsts(values: Any, documents: Places) -> Any:
    """Values (Q,) of the first document of each query."""
    rows = np.flatnonzero(documents.ranks == 1)
    found = np.empty(len(rows), dtype=values.dtype)
    found[documents.groups.codes[rows]] = values[rows]
    return found
