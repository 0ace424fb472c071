"""Plots: Hinton diagrams, Sinkhorn iterations, rank distributions, reliability, position bias and regret.

Every function draws on ordinary matplotlib axes, the caller's or new ones, and returns a record of the
artists, which you can restyle with matplotlib. pyplot is not used, so its current figure does not change.
A record made without `ax` shows itself in a notebook; elsewhere, call `record.figure.savefig("file.png")`.

Needs matplotlib: pip install "sinkprop[plot]".
"""

from sinkprop.plot.examination import ExaminationCurve, examination_curve
from sinkprop.plot.hinton import Hinton, hinton
from sinkprop.plot.iterations import SinkhornHinton, sinkhorn_animation, sinkhorn_hinton
from sinkprop.plot.ranks import RankDistribution, rank_distribution
from sinkprop.plot.regret import RegretCurve, regret_curve
from sinkprop.plot.reliability import (
    ReliabilityDiagram,
    ReliabilityDiagrams,
    reliability_diagram,
    reliability_diagrams,
)

__all__ = [
    "ExaminationCurve",
    "Hinton",
    "RankDistribution",
    "RegretCurve",
    "ReliabilityDiagram",
    "ReliabilityDiagrams",
    "SinkhornHinton",
    "examination_curve",
    "hinton",
    "rank_distribution",
    "regret_curve",
    "reliability_diagram",
    "reliability_diagrams",
    "sinkhorn_animation",
    "sinkhorn_hinton",
]
