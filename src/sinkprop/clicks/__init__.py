"""Learning from clicks: logs, click models, training without position bias, and evaluation from a log."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.clicks.bootstrap import examination_interval
    from sinkprop.clicks.clipping import ClipChoice
    from sinkprop.clicks.estimation import estimate_position_bias
    from sinkprop.clicks.evaluation.counterfactual import compare_rankers, counterfactual_value
    from sinkprop.clicks.evaluation.records import CounterfactualValue, RankerComparison
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
    from sinkprop.clicks.interventions import harvest_bias, swap_bias
    from sinkprop.clicks.labels import DebiasedClicks, debias
    from sinkprop.clicks.log import ClickCounts, ClickLog
    from sinkprop.clicks.models.base import ClickModel, Propensities
    from sinkprop.clicks.models.cascade import CascadeModel
    from sinkprop.clicks.models.dependent_click import DependentClickModel
    from sinkprop.clicks.models.position_based import PositionBasedModel, PositionFit
    from sinkprop.clicks.models.trust_bias import TrustBiasModel
    from sinkprop.clicks.reading import read_clicks
    from sinkprop.clicks.simulation import click_relevance, simulate_clicks

__all__ = [
    "CascadeModel",
    "ClickCounts",
    "ClickLog",
    "ClickModel",
    "ClipChoice",
    "CounterfactualValue",
    "DebiasedClicks",
    "DependentClickModel",
    "ExploringPolicy",
    "Interleaving",
    "InterleavingDesign",
    "InterleavingTest",
    "PositionBasedModel",
    "PositionFit",
    "Propensities",
    "RankerComparison",
    "ShownRankings",
    "TrustBiasModel",
    "click_relevance",
    "compare_rankers",
    "counterfactual_value",
    "debias",
    "estimate_position_bias",
    "examination_interval",
    "exploration_width",
    "explore",
    "harvest_bias",
    "interleaving_test",
    "optimized_interleaving",
    "read_clicks",
    "sessions_needed",
    "simulate_clicks",
    "swap_bias",
    "team_draft",
]

# Names are imported at first use, since every ranker imports the labels, and few programs read clicks.
_LAZY = {
    "CascadeModel": "sinkprop.clicks.models.cascade",
    "ClickCounts": "sinkprop.clicks.log",
    "ClickLog": "sinkprop.clicks.log",
    "ClickModel": "sinkprop.clicks.models.base",
    "ClipChoice": "sinkprop.clicks.clipping",
    "CounterfactualValue": "sinkprop.clicks.evaluation.records",
    "DebiasedClicks": "sinkprop.clicks.labels",
    "DependentClickModel": "sinkprop.clicks.models.dependent_click",
    "ExploringPolicy": "sinkprop.clicks.exploring",
    "Interleaving": "sinkprop.clicks.interleaving",
    "InterleavingDesign": "sinkprop.clicks.interleaving",
    "InterleavingTest": "sinkprop.clicks.interleaving",
    "PositionBasedModel": "sinkprop.clicks.models.position_based",
    "PositionFit": "sinkprop.clicks.models.position_based",
    "Propensities": "sinkprop.clicks.models.base",
    "RankerComparison": "sinkprop.clicks.evaluation.records",
    "ShownRankings": "sinkprop.clicks.exploring",
    "TrustBiasModel": "sinkprop.clicks.models.trust_bias",
    "click_relevance": "sinkprop.clicks.simulation",
    "compare_rankers": "sinkprop.clicks.evaluation.counterfactual",
    "counterfactual_value": "sinkprop.clicks.evaluation.counterfactual",
    "debias": "sinkprop.clicks.labels",
    "estimate_position_bias": "sinkprop.clicks.estimation",
    "examination_interval": "sinkprop.clicks.bootstrap",
    "exploration_width": "sinkprop.clicks.exploring",
    "explore": "sinkprop.clicks.exploring",
    "harvest_bias": "sinkprop.clicks.interventions",
    "interleaving_test": "sinkprop.clicks.interleaving",
    "optimized_interleaving": "sinkprop.clicks.interleaving",
    "read_clicks": "sinkprop.clicks.reading",
    "sessions_needed": "sinkprop.clicks.interleaving",
    "simulate_clicks": "sinkprop.clicks.simulation",
    "swap_bias": "sinkprop.clicks.interventions",
    "team_draft": "sinkprop.clicks.interleaving",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
