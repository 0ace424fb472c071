"""Scores, rankings and probabilities of saved models in a service, with NumPy and native code alone."""

from sinkprop.model_files import ModelFileError
from sinkprop.serving.loading import load, loads
from sinkprop.serving.scorer import Scorer

__all__ = ["ModelFileError", "Scorer", "load", "loads"]
