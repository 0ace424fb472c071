"""Ranker classes by name, and the loading of saved models of any class."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from sinkprop.estimator.base import BaseRanker, from_record
from sinkprop.model_files import START, ModelFileError, is_network, model_from

__all__ = ["RANKERS", "load_model"]

# The module of each ranker class. A model file holds the name of the class.
RANKERS = {
    "AutoRanker": "sinkprop.auto.ranker",
    "SinkPropRanker": "sinkprop.linear.ranker",
    "BoostedRanker": "sinkprop.gbdt.ranker",
    "NeuralRanker": "sinkprop.torch.ranker",
    "AdaRankRanker": "sinkprop.baselines.adarank",
    "BoltzRankRanker": "sinkprop.baselines.boltzrank",
    "CatBoostRanker": "sinkprop.baselines.catboost.ranker",
    "FeatureRanker": "sinkprop.baselines.feature",
    "LightGBMRanker": "sinkprop.baselines.trees",
    "ListNetRanker": "sinkprop.baselines.listnet",
    "RegressionRanker": "sinkprop.baselines.regression",
    "SmoothRankRanker": "sinkprop.baselines.smoothrank",
    "SoftRankRanker": "sinkprop.baselines.softrank",
    "XGBoostRanker": "sinkprop.baselines.xgboost_trees",
}


def load_model(path: str | os.PathLike[str]) -> BaseRanker:
    """Load a saved ranker of any class.

    Parameters
    ----------
    path : str or path
        File that the `save` method of a ranker wrote.

    Returns
    -------
    ranker
        The fitted ranker.

    Raises
    ------
    ModelFileError
        If the file is damaged, is in a newer format, or holds a class that this version does not know.
    ImportError
        If the file holds a network and PyTorch is not installed.
    """
    # The file is opened and read once: it may be a pipe, or be replaced in the meantime.
    with open(path, "rb") as handle:
        start = handle.read(START)
        if is_network(start):
            try:
                neural: Any = import_module(RANKERS["NeuralRanker"])
            except ImportError as error:
                raise ImportError(
                    'the file holds a network, which needs PyTorch: pip install "sinkprop[torch]"'
                ) from error
            network: BaseRanker = neural.network_ranker(path, handle, start)
            return network
        model = model_from(handle, start, path)
    if model.kind not in RANKERS or model.kind == "NeuralRanker":
        known = ", ".join(sorted(set(RANKERS) - {"NeuralRanker"}))
        raise ModelFileError(f"{os.fspath(path)}: holds a {model.kind!r}; this sinkprop knows {known}.")
    return from_record(_ranker(model.kind), path, model.state)


def _ranker(kind: str) -> type[BaseRanker]:
    ranker: type[BaseRanker] = getattr(import_module(RANKERS[kind]), kind)
    return ranker
