"""sinkprop for PyTorch: the loss, differentiable layers, and a neural ranker.

Needs torch: pip install "sinkprop[torch]".
"""

import importlib.util

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

__all__ = [
    "SinkPropLoss",
    "doubly_stochastic",
    "expected_ranks",
    "gumbel_sinkhorn",
    "partitioned",
    "sinkhorn",
    "sinkprop_loss",
    "top_k",
]
