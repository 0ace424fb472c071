"""Baseline rankers with the interface of `SinkPropRanker`: one module per method, and one per loss."""

from sinkprop.baselines.adarank import AdaRankRanker
from sinkprop.baselines.base import LinearBaseline
from sinkprop.baselines.boltzrank import BoltzRankRanker
from sinkprop.baselines.catboost.ranker import CatBoostRanker
from sinkprop.baselines.feature import FeatureRanker
from sinkprop.baselines.listnet import ListNetRanker
from sinkprop.baselines.regression import RegressionRanker
from sinkprop.baselines.smoothrank import SmoothRankRanker
from sinkprop.baselines.softrank import SoftRankRanker
from sinkprop.baselines.trees import LightGBMRanker
from sinkprop.baselines.xgboost_trees import XGBoostRanker
from sinkprop.estimator.tuning import Candidate

__all__ = [
    "AdaRankRanker",
    "BoltzRankRanker",
    "Candidate",
    "CatBoostRanker",
    "FeatureRanker",
    "LightGBMRanker",
    "LinearBaseline",
    "ListNetRanker",
    "RegressionRanker",
    "SmoothRankRanker",
    "SoftRankRanker",
    "XGBoostRanker",
]
