"""The kinds of rankers by name, and the loading of saved models of any kind."""

from __future__ import annotations

import os

from sinkprop.estimator.base import BaseRanker
from sinkprop.model_files import ModelFileError, read_model

__all__ = ["load_model"]


def load_model(path: str | os.PathLike[str]) -> BaseRanker:
    """The ranker saved in a file, of whatever kind it is."""
    if _holds_network(path):
        try:
            from sinkprop.torch.ranker import NeuralRanker
        except ImportError as error:
            raise ImportError(
                'the file holds a network, which needs PyTorch: pip install "sinkprop[torch]"'
            ) from error
        return NeuralRanker.load(path)
    kind = read_model(path).kind
    from sinkprop import baselines
    from sinkprop.gbdt.ranker import BoostedRanker
    from sinkprop.linear.ranker import SinkPropRanker

    rankers = (SinkPropRanker, BoostedRanker, *(getattr(baselines, name) for name in baselines.__all__))
    kinds: dict[str, type[BaseRanker]] = {ranker.__name__: ranker for ranker in rankers}
    if kind not in kinds:
        raise ModelFileError(
            f"{os.fspath(path)}: holds a {kind!r}; this sinkprop knows {', '.join(sorted(kinds))}."
        )
    return kinds[kind].load(path)


def _holds_network(path: str | os.PathLike[str]) -> bool:
    """Whether the file is one of `sinkprop.torch.neural.files`, told without an import of torch."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as handle:
        return handle.read(35)[8:] == b'{"__metadata__":{"sha256":"'
