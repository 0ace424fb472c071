"""Learning from clicks: logs, click models, training without position bias, and evaluation from a log."""

from sinkprop.clicks.labels import DebiasedClicks, debias
from sinkprop.clicks.log import ClickCounts, ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.clicks.models.position_based import PositionBasedModel
from sinkprop.clicks.reading import read_clicks
from sinkprop.clicks.relevance import ClipChoice
from sinkprop.clicks.simulation import click_relevance, simulate_clicks

__all__ = [
    "ClickCounts",
    "ClickLog",
    "ClickModel",
    "ClipChoice",
    "DebiasedClicks",
    "PositionBasedModel",
    "Propensities",
    "click_relevance",
    "debias",
    "read_clicks",
    "simulate_clicks",
]
