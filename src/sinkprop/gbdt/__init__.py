"""Boosted trees on the expected gain: `BoostedRanker`, and objectives for three tree libraries.

None of the three is imported before something that needs it is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sinkprop.gbdt.derivatives import Derivatives, TreeLoss

if TYPE_CHECKING:
    from sinkprop.gbdt.growing.loop import BoostingFit
    from sinkprop.gbdt.objectives.catboost import catboost_objective
    from sinkprop.gbdt.objectives.lightgbm import lightgbm_objective
    from sinkprop.gbdt.objectives.metrics import catboost_metric, lightgbm_metric, xgboost_metric
    from sinkprop.gbdt.objectives.xgboost import xgboost_objective
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
    "BoostingFit": "sinkprop.gbdt.growing.loop",
    "catboost_metric": "sinkprop.gbdt.objectives.metrics",
    "catboost_objective": "sinkprop.gbdt.objectives.catboost",
    "lightgbm_metric": "sinkprop.gbdt.objectives.metrics",
    "lightgbm_objective": "sinkprop.gbdt.objectives.lightgbm",
    "xgboost_metric": "sinkprop.gbdt.objectives.metrics",
    "xgboost_objective": "sinkprop.gbdt.objectives.xgboost",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sinkprop.gbdt' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
