"""Counterfactual evaluation: what another ranker would have earned, estimated from the log of an old one."""

from sinkprop.clicks.evaluation.counterfactual import compare_rankers, counterfactual_value
from sinkprop.clicks.evaluation.records import CounterfactualValue, RankerComparison

__all__ = ["CounterfactualValue", "RankerComparison", "compare_rankers", "counterfactual_value"]
