"""sinkprop for MLflow: the steps of a fit, and a fitted ranker with its metrics, report and model.

Needs MLflow's client: pip install "sinkprop[mlflow]".
"""

import importlib.util
from typing import TYPE_CHECKING

# MLflow's models need pandas, which its client alone does not bring
if not all(map(importlib.util.find_spec, ("mlflow", "pandas"))):
    raise ImportError('sinkprop.mlflow needs mlflow and pandas: pip install "sinkprop[mlflow]".')

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.mlflow.tracking import log_ranker, log_steps

__all__ = ["log_ranker", "log_steps"]

# Names are imported at first use: MLflow takes a second, which `sinkprop.mlflow.model` does without when it
# loads a model.
_LAZY = dict.fromkeys(__all__, "sinkprop.mlflow.tracking")

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
