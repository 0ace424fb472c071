"""Several networks as one module, whose output is a weighted sum of theirs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Ensemble", "ListEnsemble", "RowEnsemble", "ensemble_of"]


class Ensemble(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Weighted sum of the outputs of several networks, the base of the two classes below.

    networks  The networks, in evaluation mode.
    weights   (K,) weight of each network; a buffer, so that it is saved with the networks.
    """

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.eval()

    def _sum(self, outputs: Sequence[Tensor]) -> Tensor:
        together = torch.stack(list(outputs), dim=-1)
        total: Tensor = (together * self.weights.to(together.dtype)).sum(dim=-1)
        return total


class RowEnsemble(Ensemble):
    """Weighted sum of the outputs of several networks that score each row by itself."""

    def forward(self, rows: Tensor) -> Tensor:
        return self._sum([network(rows) for network in self.networks])


class ListEnsemble(Ensemble):
    """Weighted sum of the outputs of several networks that look at the documents of a query together."""

    def forward(self, rows: Tensor, offsets: Tensor) -> Tensor:
        return self._sum([network(rows, offsets=offsets) for network in self.networks])


def ensemble_of(networks: Sequence[nn.Module], spreads: Sequence[float], *, listwise: bool) -> Ensemble:
    """Return the mean of the networks' outputs, each divided by its spread, in the units of the first one.

    Thus networks whose scores are further apart count no more than the others. A network whose spread is 0
    does not tell documents apart, and its output is not divided.

    spreads   (K,) standard deviation of each network's outputs within a query.
    listwise  Whether the networks take `offsets`.
    """
    unit = spreads[0] if spreads[0] > 0 else 1.0
    weights = [(unit / spread if spread > 0 else 1.0) / len(networks) for spread in spreads]
    return (ListEnsemble if listwise else RowEnsemble)(networks, weights)
