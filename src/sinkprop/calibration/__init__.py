"""Probabilities that can be trusted: of ranks, of relevance, and statements with a guarantee, from scores."""

from sinkprop.calibration.rank_calibration import RankCalibration
from sinkprop.calibration.reliability import (
    CalibrationReport,
    LogScores,
    Reliability,
    calibration_report,
    reliability,
)

__all__ = [
    "CalibrationReport",
    "LogScores",
    "RankCalibration",
    "Reliability",
    "calibration_report",
    "reliability",
]
