"""Boosted trees on the expected gain: `BoostedRanker`, and objectives for three tree libraries.

LightGBM, XGBoost and CatBoost are optional; each is imported only when you call something that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names
from sinkprop.gbdt.derivatives import Derivatives, TreeLoss

if TYPE_CHECKING:
    from sinkprop.gbdt.growing.loop import BoostingFit, Round
    from sinkprop.gbdt.objectives.catboost import catboost_objective
    from sinkprop.gbdt.objectives.lightgbm import lightgbm_objective
    from sinkprop.gbdt.objectives.metrics import catboost_metric, lightgbm_metric, xgboost_metric
    from sinkprop.gbdt.objectives.xgboost import xgboost_objective
    from sinkprop.gbdt.ranker import BoostedRanker

__all__ = [
    "BoostedRanker",
    "BoostingFit",
    "Derivatives",
    "Round",
    "TreeLoss",
    "catboost_metric",
    "catboost_objective",
    "lightgbm_metric",
    "lightgbm_objective",
    "xgboost_metric",
    "xgboost_objective",
]

# Names that are imported on first use, and their modules. For example, `sinkprop.gbdt.ranker` needs
# scikit-learn, which is then imported only by users of `BoostedRanker`.
_LAZY = {
    "BoostedRanker": "sinkprop.gbdt.ranker",
    "BoostingFit": "sinkprop.gbdt.growing.loop",
    "Round": "sinkprop.gbdt.growing.loop",
    "catboost_metric": "sinkprop.gbdt.objectives.metrics",
    "catboost_objective": "sinkprop.gbdt.objectives.catboost",
    "lightgbm_metric": "sinkprop.gbdt.objectives.metrics",
    "lightgbm_objective": "sinkprop.gbdt.objectives.lightgbm",
    "xgboost_metric": "sinkprop.gbdt.objectives.metrics",
    "xgboost_objective": "sinkprop.gbdt.objectives.xgboost",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
