"""Rivals, as scikit-learn estimators with the interface of `SinkPropRanker`."""

from sinkprop.baselines.feature import FeatureRanker
from sinkprop.baselines.regression import RegressionRanker

__all__ = ["FeatureRanker", "RegressionRanker"]
