"""Stochastic rankings: drawn from rank probabilities, or optimized under constraints on exposure."""

from sinkprop.policies.decomposition import birkhoff
from sinkprop.policies.exposure import (
    ExposureGapAtMost,
    ExposurePolicy,
    MaxExposure,
    MinExposure,
    ProportionalExposure,
    exposure_policy,
)
from sinkprop.policies.mixture import RankingMixture
from sinkprop.policies.sampling import SampledRankings, sample_rankings

__all__ = [
    "ExposureGapAtMost",
    "ExposurePolicy",
    "MaxExposure",
    "MinExposure",
    "ProportionalExposure",
    "RankingMixture",
    "SampledRankings",
    "birkhoff",
    "exposure_policy",
    "sample_rankings",
]
