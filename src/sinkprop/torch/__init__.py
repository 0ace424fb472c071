"""sinkprop for PyTorch: the loss, differentiable layers, and a neural ranker.

Needs torch: pip install "sinkprop[torch]".
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("torch") is None:
    raise ImportError('sinkprop.torch needs PyTorch: pip install "sinkprop[torch]".')

from sinkprop.torch.layers import (
    doubly_stochastic,
    expected_ranks,
    gumbel_sinkhorn,
    partitioned,
    sinkhorn,
    top_k,
)
from sinkprop.torch.loss import SinkPropLoss, sinkprop_loss
from sinkprop.torch.rivals import approx_ndcg_loss, lambda_loss, listnet_loss

if TYPE_CHECKING:
    from sinkprop.torch.distributed import RankError
    from sinkprop.torch.network import MLP
    from sinkprop.torch.ranker import NeuralRanker
    from sinkprop.torch.records import Epoch, NetworkFit
    from sinkprop.torch.scoring import NetworkOverflowError

__all__ = [
    "MLP",
    "Epoch",
    "NetworkFit",
    "NetworkOverflowError",
    "NeuralRanker",
    "RankError",
    "SinkPropLoss",
    "approx_ndcg_loss",
    "doubly_stochastic",
    "expected_ranks",
    "gumbel_sinkhorn",
    "lambda_loss",
    "listnet_loss",
    "partitioned",
    "sinkhorn",
    "sinkprop_loss",
    "top_k",
]

# what needs scikit-learn
_LAZY = {
    "Epoch": "sinkprop.torch.records",
    "MLP": "sinkprop.torch.network",
    "NetworkFit": "sinkprop.torch.records",
    "NetworkOverflowError": "sinkprop.torch.scoring",
    "NeuralRanker": "sinkprop.torch.ranker",
    "RankError": "sinkprop.torch.distributed",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sinkprop.torch' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
