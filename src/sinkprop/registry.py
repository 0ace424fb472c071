"""Ranker classes by name, and the loading of saved models of any class."""

from __future__ import annotations

import os
from importlib import import_module

from sinkprop.estimator.base import BaseRanker
from sinkprop.model_files import ModelFileError, holds_network, read_model

__all__ = ["RANKERS", "load_model"]

# The module of each ranker class. A model file holds the name of the class.
RANKERS = {
    "SinkPropRanker": "sinkprop.linear.ranker",
    "BoostedRanker": "sinkprop.gbdt.ranker",
    "NeuralRanker": "sinkprop.torch.ranker",
    "AdaRankRanker": "sinkprop.baselines.adarank",
    "BoltzRankRanker": "sinkprop.baselines.boltzrank",
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
    if holds_network(path):
        try:
            neural = _ranker("NeuralRanker")
        except ImportError as error:
            raise ImportError(
                'the file holds a network, which needs PyTorch: pip install "sinkprop[torch]"'
            ) from error
        return neural.load(path)
    kind = read_model(path).kind
    if kind not in RANKERS or kind == "NeuralRanker":
        known = ", ".join(sorted(set(RANKERS) - {"NeuralRanker"}))
        raise ModelFileError(f"{os.fspath(path)}: holds a {kind!r}; this sinkprop knows {known}.")
    return _ranker(kind).load(path)


def _ranker(kind: str) -> type[BaseRanker]:
    ranker: type[BaseRanker] = getattr(import_module(RANKERS[kind]), kind)
    return ranker
