"""Records of the fit of a network: its settings, its epochs, and the state from which it can resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import Tensor

from sinkprop.estimator.fit_record import FitRecord, chosen_of
from sinkprop.torch.neural.optimizers import Optimizer

__all__ = ["Epoch", "Loss", "NetworkFit", "Plan", "State"]


@dataclass(frozen=True)
class Epoch:
    """Record of one pass over the training queries.

    Parameters
    ----------
    loss : float
        Mean loss over the training queries, each evaluated when its minibatch was used.
    criterion : float
        Mean criterion over the validation queries after the epoch; NaN without validation queries.
    sigma : float or None
        Width of the relaxation in this epoch; None if the loss has none.
    seconds : float, default nan
        Wall-clock time of the epoch; NaN in a model that was loaded from a file, which holds no times.
    chosen : bool, default False
        Whether the fitted network is the one after this epoch.
    training : float, optional
        Criterion on the training queries after the epoch. Computed for the first and every fourth epoch,
        but not for a partitioned measure.
    """

    loss: float
    criterion: float
    sigma: float | None
    seconds: float = math.nan
    chosen: bool = False
    training: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class NetworkFit(FitRecord):
    """Record of the fit of a network.

    Parameters
    ----------
    status : {"finished", "stopped early", "interrupted", "overflowed"}
        How the fit ended; `message` says it in a sentence.
    criterion : str
        Name of the criterion.
    validated_on : str
        Description of the validation queries, such as "21 validation queries" or "17 queries held out". Empty
        if the last epoch was taken without validation.
    epochs : tuple of Epoch
        All epochs, in order; of the first network if there are several.
    members : tuple of NetworkFit, default ()
        Record of each network if there are several.
    value : float or None, default None
        Criterion of the mean of several networks; None for one network, or without validation queries.
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every epoch was run.",
        "stopped early": "The criterion had stopped rising; the network is that of its best epoch.",
        "interrupted": "The fit was interrupted; the network is the best of the epochs that were finished.",
        "overflowed": "The scores overflowed; the network is the best of the epochs before.",
    }

    epochs: tuple[Epoch, ...]
    members: tuple[NetworkFit, ...] = ()
    value: float | None = None

    @property
    def chosen(self) -> Epoch:
        """The epoch after which the network became the fitted network."""
        return chosen_of(self.epochs)

    @property
    def sigma(self) -> float | None:
        """Width of the relaxation in the chosen epoch; None if the loss has none."""
        return self.chosen.sigma

    @property
    def choice(self) -> str:
        if self.members:
            epochs = (str(member.epochs.index(member.chosen) + 1) for member in self.members)
            return f"{len(self.members)} networks, of the epochs {', '.join(epochs)}"
        return f"epoch {self.epochs.index(self.chosen) + 1} of {len(self.epochs)}"

    def _value(self) -> float:
        return self.chosen.criterion if self.value is None else self.value

    def _seconds(self) -> float:
        fits = self.members or (self,)
        return math.fsum(epoch.seconds for fit in fits for epoch in fit.epochs)


Loss = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Plan:
    """The checked settings of a fit.

    loss             Function loss(scores, labels, epoch, offsets=, sample_weight=, query_weight=) that
                     returns the mean loss over the queries in the epoch, counted from 0.
    sigmas           Width of the relaxation in each epoch; None for each epoch if the loss has no width.
    batch_documents  Largest number of documents per minibatch.
    n_outputs        Scores per document: 1, or 2 for a partitioned measure.
    input_noise      Standard deviation of the noise that is added to the network's inputs in training.
    """

    loss: Loss
    sigmas: tuple[float | None, ...]
    optimizer: Optimizer
    batch_documents: int
    patience: int
    seed: int
    n_threads: int
    n_outputs: int
    input_noise: float = 0.0

    @property
    def max_epochs(self) -> int:
        """Number of epochs unless training stops early."""
        return len(self.sigmas)


@dataclass(frozen=True, eq=False)
class State:
    """State of a fit after an epoch, from which it can resume exactly.

    tensors  Parameters and buffers, by name: "network.*" of the current network and "best.*" of the best one.
             With Adam, also its moments, "mean" and "square".
    epochs   The finished epochs.
    best     Index of the best epoch, -1 before the first one.
    steps    Number of steps that Adam has made.
    """

    tensors: dict[str, Tensor]
    epochs: tuple[Epoch, ...]
    best: int
    steps: int

    def record(self) -> dict[str, Any]:
        """Return the state without its tensors, as a dictionary of plain values."""
        return {"epochs": [asdict(epoch) for epoch in self.epochs], "best": self.best, "steps": self.steps}

    @classmethod
    def from_record(cls, tensors: dict[str, Tensor], record: dict[str, Any]) -> State:
        return cls(tensors, tuple(Epoch(**e) for e in record["epochs"]), record["best"], record["steps"])
