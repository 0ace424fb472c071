"""Check of a calibrated ranker's probabilities on labeled queries."""

from __future__ import annotations

from typing import Any

from sinkprop.calibration import CalibrationReport, calibration_report
from sinkprop.common.types import Floats
from sinkprop.experiment.folds.files import AnyQueries
from sinkprop.objective.relaxations import SmoothedIndicator

__all__ = ["checked_calibration"]


def checked_calibration(ranker: Any, scores: Floats, queries: AnyQueries) -> CalibrationReport:
    """Compare the probabilities of a calibrated ranker, before and after calibration, with labels.

    scores   (N,) scores of the documents by the ranker.
    queries  Queries with labels.

    Before calibration, the ranks have the probabilities of the relaxation with which the ranker was trained
    or, without one, of a relaxation as wide as the usual spread of scores.
    """
    relaxation = getattr(ranker, "relaxation_", None)
    sigma = relaxation.sigma if isinstance(relaxation, SmoothedIndicator) else None
    labels = queries.labels() if hasattr(queries, "labels") else queries.y
    return calibration_report(ranker.calibration_, scores, labels, queries.groups.codes, sigma=sigma)
