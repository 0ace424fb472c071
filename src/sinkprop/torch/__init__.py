"""sinkprop for PyTorch: the loss, differentiable layers, and a neural ranker.

Needs torch: pip install "sinkprop[torch]".
"""

import importlib.util
from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if importlib.util.find_spec("torch") is None:
    raise ImportError('sinkprop.torch needs PyTorch: pip install "sinkprop[torch]".')

from sinkprop.torch.losses.baselines import approx_ndcg_loss, lambda_loss, listnet_loss
from sinkprop.torch.losses.layers import (
    doubly_stochastic,
    expected_ranks,
    gumbel_sinkhorn,
    partitioned,
    sinkhorn,
    top_k,
)
from sinkprop.torch.losses.sinkprop import SinkPropLoss, sinkprop_loss

if TYPE_CHECKING:
    from sinkprop.torch.networks.attention import ListTransformer
    from sinkprop.torch.networks.perceptron import MLP
    from sinkprop.torch.neural.optimizers import LBFGS, Adam
    from sinkprop.torch.neural.processes import RankError
    from sinkprop.torch.neural.records import Epoch, NetworkFit
    from sinkprop.torch.neural.scoring import NetworkOverflowError
    from sinkprop.torch.ranker import NeuralRanker

__all__ = [
    "LBFGS",
    "MLP",
    "Adam",
    "Epoch",
    "ListTransformer",
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

# names that need scikit-learn; each is imported when it is first used
_LAZY = {
    "Adam": "sinkprop.torch.neural.optimizers",
    "Epoch": "sinkprop.torch.neural.records",
    "LBFGS": "sinkprop.torch.neural.optimizers",
    "ListTransformer": "sinkprop.torch.networks.attention",
    "MLP": "sinkprop.torch.networks.perceptron",
    "NetworkFit": "sinkprop.torch.neural.records",
    "NetworkOverflowError": "sinkprop.torch.neural.scoring",
    "NeuralRanker": "sinkprop.torch.ranker",
    "RankError": "sinkprop.torch.neural.processes",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
