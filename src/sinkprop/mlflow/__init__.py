"""sinkprop for MLflow: the steps of a fit, and a fitted ranker with its metrics, report and model.

Needs MLflow's client: pip install "sinkprop[mlflow]".
"""

import importlib.util

# MLflow's models need pandas, which its client alone does not bring
if not all(map(importlib.util.find_spec, ("mlflow", "pandas"))):
    raise ImportError('sinkprop.mlflow needs mlflow and pandas: pip install "sinkprop[mlflow]".')

from sinkprop.mlflow.tracking import log_ranker, log_steps

__all__ = ["log_ranker", "log_steps"]
