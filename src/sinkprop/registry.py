"""The kinds of rankers by name, and the loading of saved models of any kind."""

from __future__ import annotations

import os
from importlib import import_module

from sinkprop.estimator.base import BaseRanker
from sinkprop.model_files import ModelFileError, holds_network, read_model

__all__ = ["RANKERS", "load_model"]

# the module of each kind of ranker; a model file names the kind
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
    """The ranker saved in a file, of whatever kind it is."""
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
