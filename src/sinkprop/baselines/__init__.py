"""The rivals of the paper, as scikit-learn estimators with the interface of `SinkPropRanker`."""

from sinkprop.baselines.regression import RegressionRanker

__all__ = ["RegressionRanker"]
