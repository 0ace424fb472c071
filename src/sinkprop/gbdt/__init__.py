"""sinkprop for boosted trees: objectives for LightGBM, XGBoost and CatBoost, and a ranker of its own."""

from __future__ import annotations

import importlib
from typing import Any

from sinkprop.gbdt.derivatives import Derivatives, TreeLoss

__all__ = ["Derivatives", "TreeLoss"]

# what needs one of the tree libraries, or scikit-learn
_LAZY = {
    "BoostedRanker": "sinkprop.gbdt.ranker",
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
