"""sinkprop for JAX: the loss, expected gains, and differentiable ranks, with the conventions of Rax.

Needs JAX: pip install "sinkprop[jax]".
"""

import importlib.util

if importlib.util.find_spec("jax") is None:
    raise ImportError('sinkprop.jax needs JAX: pip install "sinkprop[jax]".')

from sinkprop.jax.losses import expected_gain, sinkprop_loss
from sinkprop.jax.ranks import expected_ranks, top_k

__all__ = ["expected_gain", "expected_ranks", "sinkprop_loss", "top_k"]
