"""The training of a network on queries: minibatches, optimizers, early stopping, exact resumption.

A minibatch is a number of whole queries under a budget of documents, flat, without padding. It is cut into
shards of whole queries, whose gradients are computed beside each other on one thread each and added in their
order. What is drawn at random, as the order of the queries and what dropout leaves out, depends on the seed,
the epoch, the minibatch and the shard alone. So the result is the same to the last bit for any number of
threads, and for a fit that was interrupted and resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sinkprop.linear import TrainingSet, descend
from sinkprop.progress import Notify, silent
from sinkprop.torch.network import drawing_from
from sinkprop.torch.preparation import Preparation
from sinkprop.torch.scoring import (
    NetworkOverflowError,
    checked_scores,
    cut,
    one_torch_thread,
    takes_offsets,
    thread_pool,
)

__all__ = ["Epoch", "NetworkFit", "Plan", "State", "fit_network"]

Floats = NDArray[np.float64]

_EVERY = 4  # epochs between two looks at the training queries, which take a fifth of an epoch's time
_SHARD_DOCUMENTS = 2048  # few enough for the caches, many enough for what a step costs beside arithmetic


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


_SENTENCES = {
    "finished": "Every epoch was run.",
    "stopped early": "The criterion had stopped rising; the network is that of its best epoch.",
    "interrupted": "The fit was interrupted; the network is the best of the epochs that were finished.",
    "overflowed": "The scores overflowed; the network is the best of the epochs before.",
}


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """What a fit came to.

    status     "finished", "stopped early", "interrupted" or "overflowed"; `message` says it in a sentence
    criterion  name of the criterion
    judged_by  how: "21 validation queries", "17 queries held out"; empty where the last epoch is taken
    epochs     every epoch, in order
    """

    status: str
    criterion: str
    judged_by: str
    epochs: tuple[Epoch, ...]

    @property
    def message(self) -> str:
        return _SENTENCES[self.status]

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
    optimizer: str
    learning_rate: float
    weight_decay: float
    schedule: str
    clip_norm: float | None
    batch_documents: int
    max_iter: int
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


def fit_network(
    module: nn.Module,
    data: TrainingSet,
    preparation: Preparation,
    plan: Plan,
    *,
    judge: Callable[[nn.Module], float] | None,
    judge_training: Callable[[nn.Module], float] | None = None,
    resumed: State | None = None,
    on_state: Callable[[State, bool], None] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    notify: Notify = silent,
    criterion: str = "",
    judged_by: str = "",
) -> NetworkFit:
    """Train the module, in place, and leave it in evaluation mode as it was after its best epoch.

    judge     the criterion of the module; None takes the last epoch
    judge_training
              the same on the training queries, for the record
    on_state  called after each epoch with its state, and once more with True where the fit is interrupted; a
              state given as `resumed` to a later call continues with the same result
    """
    with one_torch_thread(), thread_pool(plan.n_threads) as pool, torch.random.fork_rng(devices=[]):
        trainer = _Trainer(module, data, preparation, plan, pool)
        return trainer.run(
            judge,
            judge_training,
            resumed,
            on_state,
            on_epoch,
            notify,
            NetworkFit("finished", criterion, judged_by, ()),
        )


class _Trainer:
    def __init__(
        self,
        module: nn.Module,
        data: TrainingSet,
        preparation: Preparation,
        plan: Plan,
        pool: ThreadPoolExecutor | None,
    ) -> None:
        self._module, self._plan, self._pool = module, plan, pool
        self._takes_offsets = takes_offsets(module)
        self._parallel: bool | None = None  # not known before the network was run once
        self._queries = _counting(data)
        self._rows, self._preparation = preparation.kept(self._queries.X), preparation
        self._labels = torch.from_numpy(self._queries.y)
        self._sizes = np.diff(self._queries.groups.offsets)
        self._starts = self._queries.groups.offsets[:-1]
        weight = self._queries.query_weight
        self._weight = np.ones(len(self._sizes)) if weight is None else weight
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        # One vector holds all parameters, which are views of it: a step of an optimizer moves this vector.
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._decayed = torch.cat([torch.full((p.numel(),), float(p.ndim > 1)) for p in self._parameters])
        self._decayed = self._decayed.to(self._flat.dtype)
        begin = 0
        for p in self._parameters:
            p.data = self._flat[begin : begin + p.numel()].view(p.shape)
            begin += p.numel()
        self._mean, self._square = torch.zeros_like(self._flat), torch.zeros_like(self._flat)
        self._steps = 0

    def run(
        self,
        judge: Callable[[nn.Module], float] | None,
        judge_training: Callable[[nn.Module], float] | None,
        resumed: State | None,
        on_state: Callable[[State, bool], None] | None,
        on_epoch: Callable[[Epoch], None] | None,
        notify: Notify,
        result: NetworkFit,
    ) -> NetworkFit:
        plan = self._plan
        epochs: list[Epoch] = []
        best, best_tensors, status, failure = -1, self._snapshot(), "finished", None
        state: State | None = None
        if resumed is not None:
            epochs, best, self._steps = list(resumed.epochs), resumed.best, resumed.steps
            best_tensors = self._continue(resumed)
            state = resumed
        try:
            for number in range(len(epochs), plan.max_epochs):
                if judge is not None and epochs and number - 1 - best >= plan.patience:
                    status = "stopped early"
                    break
                began = time.perf_counter()
                self._module.train()
                loss = self._descend(number) if plan.optimizer == "lbfgs" else self._pass(number)
                self._module.eval()
                sigma = plan.sigmas[number]
                value = math.nan if judge is None else judge(self._module)
                training = None
                if judge_training is not None and (number == 0 or (number + 1) % _EVERY == 0):
                    training = judge_training(self._module)
                epoch = Epoch(loss, value, sigma, time.perf_counter() - began, training=training)
                epochs.append(epoch)
                if judge is None or best < 0 or value > epochs[best].criterion:
                    best, best_tensors = number, self._snapshot()
                if on_state is not None:
                    state = self._state(epochs, best, best_tensors)
                    on_state(state, False)
                if on_epoch is not None:
                    on_epoch(epoch)
                at = "" if judge is None else f", {result.criterion} {max(epochs[best].criterion, 0):.4f}"
                notify(number + 1, plan.max_epochs, f"epoch {number + 1}{at}")
        except KeyboardInterrupt:
            if best < 0:
                raise
            status = "interrupted"
        except NetworkOverflowError as error:
            if best < 0:
                raise
            status, failure = "overflowed", error
        self._module.eval()
        self._restore(best_tensors)
        chosen = [replace(epoch, chosen=i == best) for i, epoch in enumerate(epochs)]
        if status == "interrupted" and on_state is not None and state is not None:
            on_state(state, True)
        result = replace(result, status=status, epochs=tuple(chosen))
        if failure is not None:
            failure.result = result
            raise failure
        return result

    def _pass(self, number: int) -> float:
        """An epoch of Adam; the mean loss."""
        plan = self._plan
        order = np.random.default_rng([plan.seed, 1, number]).permutation(len(self._sizes))
        batches = cut(order, self._sizes, plan.batch_documents)
        # A query counts the same in a minibatch of few as in one of many.
        share = len(batches) / self._weight.sum()
        total = 0.0
        for step, batch in enumerate(batches):
            loss, gradient = self._gradient(batch, share, number, step)
            total += loss
            if plan.clip_norm is not None:
                norm = float(gradient.norm())
                if norm > plan.clip_norm:
                    gradient *= plan.clip_norm / norm
            self._adam(gradient, plan.learning_rate * self._rate(number + step / len(batches)))
        return total / len(batches)

    def _rate(self, time: float) -> float:
        if self._plan.schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * time / self._plan.max_epochs))

    def _adam(self, gradient: Tensor, rate: float) -> None:
        self._steps += 1
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        spread = (self._square / (1 - 0.999**self._steps)).sqrt_().add_(1e-8)
        if self._plan.weight_decay:
            self._flat.addcmul_(self._flat, self._decayed, value=-rate * self._plan.weight_decay)
        self._flat.addcdiv_(self._mean, spread, value=-rate / (1 - 0.9**self._steps))

    def _descend(self, number: int) -> float:
        """An epoch of L-BFGS on all queries; the loss where it ended."""
        plan = self._plan
        everything, share = np.arange(len(self._sizes)), 1 / self._weight.sum()

        def loss(x: Floats) -> tuple[float, Floats]:
            self._flat.copy_(torch.from_numpy(x))
            value, gradient = self._gradient(everything, share, number, 0)
            decayed = x * self._decayed.numpy()
            penalty = plan.weight_decay / 2 * float(decayed @ x)
            return value + penalty, gradient.double().numpy() + plan.weight_decay * decayed

        x = descend(loss, self._flat.double().numpy(), max_iter=plan.max_iter, tol=1e-9)
        return loss(x)[0]

    def _gradient(
        self, batch: NDArray[np.int64], share: float, epoch: int, step: int
    ) -> tuple[float, Tensor]:
        """The sum over the batch's queries of share * weight * loss, and its gradient."""
        shards = list(enumerate(_shards(batch, self._sizes, _SHARD_DOCUMENTS)))

        def one(shard: tuple[int, NDArray[np.int64]]) -> tuple[float, Tensor]:
            rng = np.random.default_rng([self._plan.seed, 2, epoch, step, shard[0]])
            return self._shard(shard[1], share, rng, epoch)

        if self._parallel is None:
            self._parallel = self._pool is not None and self._is_pure(lambda: one(shards[0]))
        if self._parallel and len(shards) > 1 and self._pool is not None:
            parts = list(self._pool.map(one, shards))
        else:
            parts = [one(shard) for shard in shards]
        gradient = parts[0][1]
        for _, part in parts[1:]:
            gradient += part
        return math.fsum(value for value, _ in parts), gradient

    def _is_pure(self, run: Callable[[], object]) -> bool:
        """Whether the network neither draws from torch's one generator nor keeps statistics as it trains."""
        before = self._snapshot()
        state = torch.get_rng_state()
        run()
        drawn = not torch.equal(state, torch.get_rng_state())
        changed = any(not torch.equal(before[name], x) for name, x in self._snapshot().items())
        self._restore(before)
        return not drawn and not changed

    def _shard(
        self, queries: NDArray[np.int64], share: float, rng: np.random.Generator, epoch: int
    ) -> tuple[float, Tensor]:
        rows = _rows_of(queries, self._starts, self._sizes)
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(self._sizes[queries])]).astype(np.int64))
        index = torch.from_numpy(rows)
        kept = self._rows
        features = kept[index] if isinstance(kept, Tensor) else self._preparation(kept[rows])
        seed = int(rng.integers(2**63))
        if self._parallel is False:
            # torch.manual_seed would do the same for devices that are not used, at a higher price
            torch.default_generator.manual_seed(seed)
        data = self._queries
        weight = None if data.query_weight is None else torch.from_numpy(data.query_weight[queries])
        by_row = None if data.sample_weight is None else torch.from_numpy(data.sample_weight[rows])
        with torch.enable_grad(), drawing_from(rng):
            scores = self._scores(features, offsets)
            if not bool(scores.isfinite().all()):
                raise self._overflow("scores", epoch)
            value = self._plan.loss(
                scores,
                self._labels[index],
                self._plan.sigmas[epoch],
                offsets=offsets,
                sample_weight=by_row,
                query_weight=weight,
            )
            counted = share * float(self._weight[queries].sum())
            gradients = torch.autograd.grad(value * counted, self._parameters, allow_unused=True)
        flat = torch.cat(
            [
                torch.zeros(p.numel(), dtype=p.dtype) if g is None else g.reshape(-1)
                for p, g in zip(self._parameters, gradients, strict=True)
            ]
        )
        if not bool(flat.isfinite().all()):
            raise self._overflow("gradients", epoch)
        return float(value.detach()) * counted, flat

    def _overflow(self, what: str, epoch: int) -> NetworkOverflowError:
        plan = self._plan
        advice = f"Lower learning_rate ({plan.learning_rate:g}), or set clip_norm."
        if plan.optimizer == "lbfgs":
            advice = f"Raise weight_decay ({plan.weight_decay:g}), or use optimizer='adam'."
        return NetworkOverflowError(
            f"the {what} of the network became NaN or infinite in epoch {epoch + 1}. {advice}"
        )

    def _scores(self, features: Tensor, offsets: Tensor) -> Tensor:
        scores = self._module(features, offsets=offsets) if self._takes_offsets else self._module(features)
        return checked_scores(scores, len(features), self._plan.n_outputs)

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: x.detach().clone() for name, x in self._module.state_dict().items()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, x in self._module.state_dict().items():
                x.copy_(tensors[name])

    def _state(self, epochs: Sequence[Epoch], best: int, best_tensors: Mapping[str, Tensor]) -> State:
        tensors = {f"network.{name}": x for name, x in self._snapshot().items()}
        tensors |= {f"best.{name}": x for name, x in best_tensors.items()}
        if self._plan.optimizer == "adam":
            tensors |= {"mean": self._mean.clone(), "square": self._square.clone()}
        return State(tensors, tuple(epochs), best, self._steps)

    def _continue(self, state: State) -> dict[str, Tensor]:
        """Take up a state; the best network so far."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): x for name, x in state.tensors.items() if name.startswith(prefix)
            }

        self._restore(part("network."))
        if self._plan.optimizer == "adam":
            self._mean.copy_(state.tensors["mean"])
            self._square.copy_(state.tensors["square"])
        return part("best.")


def _counting(data: TrainingSet) -> TrainingSet:
    """The queries of some weight."""
    if data.query_weight is None or data.query_weight.all():
        return data
    if not data.query_weight.any():
        raise ValueError("query_weight must have a sum above 0; every weight is zero.")
    return data.select(np.flatnonzero(data.query_weight))


def _shards(batch: NDArray[np.int64], sizes: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """The queries in their order, cut into parts of about as many documents each, and about the budget.

    >>> [part.tolist() for part in _shards(np.array([0, 1, 2, 3]), np.array([3, 1, 2, 2]), 4)]
    [[0, 1], [2, 3]]
    """
    ends = np.cumsum(sizes[batch])
    count = max(1, round(int(ends[-1]) / budget))
    cuts = np.searchsorted(ends, ends[-1] / count * np.arange(1, count) - 0.5) + 1
    return [part for part in np.split(batch, cuts) if len(part)]


def _rows_of(
    queries: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The rows of these queries, one query after the other."""
    counts = sizes[queries]
    ends = np.cumsum(counts)
    rows: NDArray[np.int64] = np.arange(int(ends[-1])) + np.repeat(starts[queries] - (ends - counts), counts)
    return rows
