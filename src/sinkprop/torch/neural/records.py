"""The fit of a network as data: its settings, what each epoch came to, and all that the rest depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import Tensor

from sinkprop.estimator.fit_record import FitRecord
from sinkprop.torch.neural.optimizers import Optimizer

__all__ = ["Epoch", "Loss", "NetworkFit", "Plan", "State"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training queries.

    loss       mean over the training queries, each at the time of its minibatch
    criterion  mean over the queries that judge, after the epoch; NaN where there are none
    sigma      of the relaxation; None where the loss has none
    seconds    it took
    chosen     whether the network is the one after this epoch
    training   the criterion of the training queries after the epoch, of the first and every fourth; else None
    """

    loss: float
    criterion: float
    sigma: float | None
    seconds: float
    chosen: bool = False
    training: float | None = None


@dataclass(frozen=True, eq=False)
class NetworkFit(FitRecord):
    """Outcome of the fit of a network.

    status     "finished", "stopped early", "interrupted" or "overflowed"; `message` says it in a sentence
    criterion  name of the criterion
    validated_on  how: "21 validation queries", "17 queries held out"; empty where the last epoch is taken
    epochs     every epoch, in order
    """

    messages: ClassVar[Mapping[str, str]] = {
        "finished": "Every epoch was run.",
        "stopped early": "The criterion had stopped rising; the network is that of its best epoch.",
        "interrupted": "The fit was interrupted; the network is the best of the epochs that were finished.",
        "overflowed": "The scores overflowed; the network is the best of the epochs before.",
    }

    epochs: tuple[Epoch, ...]

    @property
    def chosen(self) -> Epoch:
        return next(epoch for epoch in self.epochs if epoch.chosen)

    @property
    def sigma(self) -> float | None:
        return self.chosen.sigma


Loss = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Plan:
    """The settings of a fit, checked.

    loss(scores, labels, sigma, offsets=, sample_weight=, query_weight=) is a mean over the queries.
    """

    loss: Loss
    sigmas: tuple[float | None, ...]
    optimizer: Optimizer
    batch_documents: int
    patience: int
    seed: int
    n_threads: int
    n_outputs: int

    @property
    def max_epochs(self) -> int:
        return len(self.sigmas)


@dataclass(frozen=True, eq=False)
class State:
    """All that the rest of a fit depends on, after an epoch.

    tensors  "network.*" and "best.*": parameters and buffers; "mean", "square": Adam's moments
    epochs   those that were run
    best     the number of the best of them, -1 where none is yet
    steps    that Adam has made
    """

    tensors: dict[str, Tensor]
    epochs: tuple[Epoch, ...]
    best: int
    steps: int

    def record(self) -> dict[str, Any]:
        """All but the tensors, as plain data."""
        return {"epochs": [asdict(epoch) for epoch in self.epochs], "best": self.best, "steps": self.steps}

    @classmethod
    def from_record(cls, tensors: dict[str, Tensor], record: dict[str, Any]) -> State:
        return cls(tensors, tuple(Epoch(**e) for e in record["epochs"]), record["best"], record["steps"])
