"""Learning from clicks: logs, click models, training without position bias, and evaluation from a log."""

from sinkprop.clicks.exploring import ExploringPolicy, ShownRankings, exploration_width, explore
from sinkprop.clicks.interleaving import (
    Interleaving,
    InterleavingDesign,
    InterleavingTest,
    interleaving_test,
    optimized_interleaving,
    sessions_needed,
    team_draft,
)
from sinkprop.clicks.labels import DebiasedClicks, debias
from sinkprop.clicks.log import ClickCounts, ClickLog
from sinkprop.clicks.models.base import ClickModel, Propensities
from sinkprop.clicks.models.cascade import CascadeModel
from sinkprop.clicks.models.dependent_click import DependentClickModel
from sinkprop.clicks.models.position_based import PositionBasedModel
from sinkprop.clicks.reading import read_clicks
from sinkprop.clicks.relevance import ClipChoice
from sinkprop.clicks.simulation import click_relevance, simulate_clicks

__all__ = [
    "CascadeModel",
    "ClickCounts",
    "ClickLog",
    "ClickModel",
    "ClipChoice",
    "DebiasedClicks",
    "DependentClickModel",
    "ExploringPolicy",
    "Interleaving",
    "InterleavingDesign",
    "InterleavingTest",
    "PositionBasedModel",
    "Propensities",
    "ShownRankings",
    "click_relevance",
    "debias",
    "exploration_width",
    "explore",
    "interleaving_test",
    "optimized_interleaving",
    "read_clicks",
    "sessions_needed",
    "simulate_clicks",
    "team_draft",
]
