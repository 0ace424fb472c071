"""sinkprop for boosted trees: objectives for LightGBM, XGBoost and CatBoost, and a ranker of its own.

None of the three is imported before something that needs it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sinkprop.gbdt.derivatives import Derivatives, TreeLoss

if TYPE_CHECKING:
    from sinkprop.gbdt.boosting import BoostingFit
    from sinkprop.gbdt.evaluation import catboost_metric, lightgbm_metric, xgboost_metric
    from sinkprop.gbdt.for_catboost import catboost_objective
    from sinkprop.gbdt.for_lightgbm import lightgbm_objective
    from sinkprop.gbdt.for_xgboost import xgboost_objective
    from sinkprop.gbdt.ranker import BoostedRanker

__all__ = [
    "BoostedRanker",
    "BoostingFit",
    "Derivatives",
    "TreeLoss",
    "catboost_metric",
    "catboost_objective",
    "lightgbm_metric",
    "lightgbm_objective",
    "xgboost_metric",
    "xgboost_objective",
]

# what needs scikit-learn
_LAZY = {
    "BoostedRanker": "sinkprop.gbdt.ranker",
    "BoostingFit": "sinkprop.gbdt.boosting",
    "catboost_metric": "sinkprop.gbdt.evaluation",
    "catboost_objective": "sinkprop.gbdt.for_catboost",
    "lightgbm_metric": "sinkprop.gbdt.evaluation",
    "lightgbm_objective": "sinkprop.gbdt.for_lightgbm",
    "xgboost_metric": "sinkprop.gbdt.evaluation",
    "xgboost_objective": "sinkprop.gbdt.for_xgboost",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sinkprop.gbdt' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
