"""The network of a ranker: one of the library's, or the user's own module, built and tested before a fit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import nn

from sinkprop.torch.networks.attention import ListTransformer
from sinkprop.torch.networks.perceptron import MLP
from sinkprop.torch.neural.preparation import Preparation
from sinkprop.torch.neural.scoring import checked_scores, takes_offsets

__all__ = ["OWN", "Network", "as_network", "build_module", "network_from_record", "network_record"]

OWN = (MLP, ListTransformer)  # settings of the library's own networks, which model files contain

Network: TypeAlias = MLP | ListTransformer | nn.Module | Callable[[int], nn.Module]


def as_network(value: Any) -> Network:
    """Return the network for the parameter `network` of a ranker: the value itself, or `MLP()` for None.

    Raises a ValueError for any other value that is not callable.
    """
    if value is None:
        return MLP()
    # Any callable is allowed, also a module class, but not the class MLP: it takes widths, not n_features.
    if value in OWN or not callable(value):
        raise ValueError(
            "network must be MLP(...), ListTransformer(...), an nn.Module, a function that makes one for a "
            f"number of features, or None for MLP(); got {value!r}."
        )
    network: Network = value
    return network


def network_record(network: MLP | ListTransformer) -> dict[str, Any]:
    """Return the settings of one of the library's networks as a dictionary of plain values.

    >>> network_record(ListTransformer(16))["type"]
    'ListTransformer'
    """
    # the settings of an MLP have no type, as in the files of earlier versions
    kind = {} if isinstance(network, MLP) else {"type": type(network).__name__}
    return {**kind, **asdict(network)}


def network_from_record(record: dict[str, Any]) -> MLP | ListTransformer:
    """Create the settings from the result of `network_record`.

    Raises a KeyError, TypeError or ValueError for an invalid record.
    """
    settings = dict(record)
    kind: Any = {made.__name__: made for made in OWN}[settings.pop("type", "MLP")]
    made: MLP | ListTransformer = kind(**settings)
    return made


def build_module(
    network: Network, rows: NDArray[Any], preparation: Preparation, n_outputs: int, seed: int
) -> nn.Module:
    """Create the module to be trained, and test it on the rows of one query.

    If `network` is a module, it is copied. Raises a ValueError if the module cannot be trained.
    """
    n, n_features = len(rows), preparation.n_columns
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(network, OWN):
            made: Any = network(n_features, n_outputs)
        elif isinstance(network, nn.Module):
            made = copy.deepcopy(network)
        else:
            made = network(n_features)
            if not isinstance(made, nn.Module):
                raise ValueError(f"network({n_features}) must return an nn.Module; it returned {made!r}.")
        made = made.to(preparation.dtype)
        # A first call checks the shape of the scores. It also creates the parameters of torch's lazy layers.
        more = {"offsets": torch.tensor([0, n])} if takes_offsets(made) else {}
        made.eval()
        with torch.no_grad():
            try:
                scores = made(preparation(rows), **more)
            except RuntimeError as error:
                raise ValueError(
                    f"network must take rows (N, {n_features}); {type(made).__name__} says: "
                    f"{' '.join(str(error).split())}."
                ) from error
            checked_scores(scores, n, n_outputs)
    if not any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"network must have parameters to train; {type(made).__name__} has none.")
    if any(p.device.type != "cpu" for p in made.parameters()):
        raise ValueError("network must be on the CPU, where NeuralRanker trains.")
    return made
