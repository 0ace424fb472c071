"""The training of a network on queries: minibatches, optimizers, early stopping, exact resumption.

A minibatch consists of whole queries up to a limit of documents, flat, without padding. It is cut into shards
of whole queries, and runs of consecutive shards form lanes. Gradients are summed within each lane, then over
the lanes, always in the same order. Lanes are computed in parallel by several threads or processes. Random
numbers, such as the order of the queries and dropout, depend only on the seed, the epoch, the minibatch and
the shard. So the result is the same to the last bit for any number of threads, for any number of processes
that share their queries, and for a fit that was interrupted and resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import torch
from torch import Tensor, nn

from sinkprop.common.lbfgs import descend
from sinkprop.common.progress import Notify
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import offsets_of
from sinkprop.torch.networks.layers import drawing_from
from sinkprop.torch.neural.feeds import Held, Rows, Shard, Streamed
from sinkprop.torch.neural.optimizers import LBFGS, Adam, AdamSteps
from sinkprop.torch.neural.processes import LANES, OneProcess
from sinkprop.torch.neural.records import Epoch, NetworkFit, Plan, State
from sinkprop.torch.neural.scoring import (
    NetworkOverflowError,
    checked_scores,
    cut,
    one_torch_thread,
    takes_offsets,
    thread_pool,
)

__all__ = ["Watch", "fit_network"]


# The criterion on the training queries is computed only in the first and every fourth epoch, because it takes
# about a fifth of an epoch's time.
_EVERY = 4
# Documents per shard, a group of queries that are computed together: few enough to fit the CPU
# caches, and enough to outweigh the overhead of a shard.
_SHARD_DOCUMENTS = 2048


@dataclass(frozen=True, eq=False)
class Watch:
    """The state from which a fit starts, and the functions that are called after each epoch.

    criterion             Name of the criterion, for the record of the fit.
    validated_on          Description of the validation queries, for the record of the fit.
    validation_criterion  Criterion of a module on the validation queries; if None, the last epoch is taken.
    training_criterion    Criterion of a module on the training queries, for the record; None leaves it out.
    resumed               State of an unfinished fit that is to be continued, or None for a new fit.
    on_state              Called with (state, False) after each epoch, and with (state, True) if the fit was
                          interrupted; or None.
    on_epoch              Called with each finished epoch; or None.
    notify                Updates the progress line.
    keep                  Whether to call on_state with (state, True) also at the end of the fit.
    """

    criterion: str
    validated_on: str
    validation_criterion: Callable[[nn.Module], float] | None
    training_criterion: Callable[[nn.Module], float] | None
    resumed: State | None
    on_state: Callable[[State, bool], None] | None
    on_epoch: Callable[[Epoch], None] | None
    notify: Notify
    keep: bool = False


def fit_network(
    module: nn.Module, feed: Held | Streamed | None, plan: Plan, watch: Watch, processes: OneProcess
) -> NetworkFit:
    """Train the module in place, and leave it in evaluation mode with the weights of its best epoch.

    feed       Training queries, all of positive weight; None for a process that has none.
    processes  The processes that train together. `watch` has on_state and on_epoch only on rank 0.
    """
    with one_torch_thread(), thread_pool(plan.n_threads) as pool, torch.random.fork_rng(devices=[]):
        return _Trainer(module, feed, plan, pool, processes).run(watch)


class _Trainer:
    """One fit of a network: its parameters as one vector, and the loop over epochs and minibatches."""

    def __init__(
        self,
        module: nn.Module,
        feed: Held | Streamed | None,
        plan: Plan,
        pool: ThreadPoolExecutor | None,
        processes: OneProcess,
    ) -> None:
        self._module, self._plan, self._pool, self._processes = module, plan, pool, processes
        self._takes_offsets = takes_offsets(module)
        # Whether several threads may call the network in parallel; None until the first minibatch, when
        # `_is_pure` finds out.
        self._parallel: bool | None = None
        self._feed = feed
        self._sizes = np.empty(0, np.int64) if feed is None else feed.sizes
        weight = None if feed is None else feed.weight
        self._query_weight = weight
        self._weight = np.ones(len(self._sizes)) if weight is None else weight
        totals = np.array([self._weight.sum(), float(self._sizes.sum())])
        self._total_weight, self._documents = (processes.total(totals) if processes.own else totals).tolist()
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        # All parameters are views of one vector, so that an optimizer updates them through this vector.
        self._flat = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._decayed = torch.cat([torch.full((p.numel(),), float(p.ndim > 1)) for p in self._parameters])
        self._decayed = self._decayed.to(self._flat.dtype)
        begin = 0
        for p in self._parameters:
            p.data = self._flat[begin : begin + p.numel()].view(p.shape)
            begin += p.numel()
        self._adam: AdamSteps | None = None
        if isinstance(plan.optimizer, Adam):
            self._adam = AdamSteps(plan.optimizer, self._flat, self._decayed)
        # Number of shards (groups of queries) that this process has computed since `_settle` last made the
        # network the same in all processes.
        self._runs = 0

    def run(self, watch: Watch) -> NetworkFit:
        plan, processes, validate, on_state = (
            self._plan,
            self._processes,
            watch.validation_criterion,
            watch.on_state,
        )
        epochs: list[Epoch] = []
        best, best_tensors, status, failure = -1, self._snapshot(), "finished", None
        state = watch.resumed
        if state is not None:
            epochs, best = list(state.epochs), state.best
            best_tensors = self._continue(state)
        try:
            for number in range(len(epochs), plan.max_epochs):
                if validate is not None and epochs and number - 1 - best >= plan.patience:
                    status = "stopped early"
                    break
                epochs.append(self._epoch(number, watch))
                if validate is None or best < 0 or epochs[-1].criterion > epochs[best].criterion:
                    best, best_tensors = number, self._snapshot()
                with processes.together():
                    if on_state is not None:
                        state = self._state(epochs, best, best_tensors)
                        on_state(state, False)
                    if watch.on_epoch is not None:
                        watch.on_epoch(epochs[-1])
                    at = (
                        ""
                        if validate is None
                        else f", {watch.criterion} {max(epochs[best].criterion, 0):.4f}"
                    )
                    watch.notify(number + 1, plan.max_epochs, f"epoch {number + 1}{at}")
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
        last = status == "interrupted" or watch.keep
        if last and on_state is not None and state is not None:
            on_state(state, True)
        result = NetworkFit(status, watch.criterion, watch.validated_on, tuple(chosen))
        if failure is not None:
            failure.result = result
            raise failure
        return result

    def _epoch(self, number: int, watch: Watch) -> Epoch:
        began, optimizer = time.perf_counter(), self._plan.optimizer
        self._module.train()
        if isinstance(optimizer, LBFGS):
            loss = self._descend(number, optimizer)
        else:
            loss = self._pass(number, optimizer)
        self._module.eval()
        self._settle()
        value = math.nan if watch.validation_criterion is None else watch.validation_criterion(self._module)
        training = None
        if watch.training_criterion is not None and (number == 0 or (number + 1) % _EVERY == 0):
            training = watch.training_criterion(self._module)
        # All processes continue with the numbers of rank 0, because those of other ranks may differ slightly.
        mine = np.array([loss, value, time.perf_counter() - began])
        loss, value, seconds = self._processes.first(mine).tolist()
        return Epoch(loss, value, self._plan.sigmas[number], seconds, training=training)

    def _settle(self) -> None:
        """Make the network the same in all processes.

        The parameters are those of rank 0. Buffers, such as running statistics, are averaged.
        """
        self._processes.average(dict(self._module.named_buffers()), self._runs)
        self._processes.adopt({"parameters": self._flat})
        self._runs = 0

    def _pass(self, number: int, adam: Adam) -> float:
        """Run one epoch of Adam and return the mean loss."""
        assert self._adam is not None
        groups = self._batches(number)
        n_batches = sum(map(len, groups))
        # Divide by the mean weight of a minibatch, not by the weight of each minibatch. So a query counts the
        # same in a minibatch of few queries as in one of many.
        share = n_batches / self._total_weight
        lanes = [[self._lanes(batch) for batch in group] for group in groups]
        total, step = 0.0, 0
        with closing(self._sources(lanes)) as sources:
            for batch in (batch for group in lanes for batch in group):
                loss, gradient = self._gradient(batch, sources, share, number, step)
                total += loss
                self._adam.step(gradient, adam.rate(number + step / n_batches, self._plan.max_epochs))
                step += 1
        return total / n_batches

    def _batches(self, number: int) -> list[list[Integers]]:
        """Return the minibatches of an epoch, grouped by window: queries that are read from disk together."""
        processes, budget = self._processes, self._plan.batch_documents
        rng = np.random.default_rng([self._plan.seed, 1, number, *self._number_of_own()])
        windows = [] if self._feed is None else self._feed.windows(rng)
        if processes.own:
            budget = max(1, round(budget * float(self._sizes.sum()) / self._documents))
        groups = [cut(window, self._sizes, budget) for window in windows]
        if not processes.own:
            return groups
        # All processes make as many steps as the one with the most minibatches. The others have some empty
        # minibatches, spread evenly.
        n = sum(map(len, groups))
        steps = int(processes.gather(np.array([float(n)])).max())
        if not groups:
            return [[np.empty(0, np.int64)] * steps]
        at = 0
        spread: list[list[Integers]] = []
        for group in groups:
            spread.append([])
            for batch in group:
                spread[-1].append(batch)
                at += 1
                gap = at * steps // n - (at - 1) * steps // n - 1
                spread[-1] += [np.empty(0, np.int64)] * gap
        return spread

    def _number_of_own(self) -> tuple[int, ...]:
        """Return what is appended to the seed: the rank of this process, or nothing.

        If every process has its own queries, each appends its rank if that is above 0, so that each draws
        different random numbers. If all processes have the same queries, nothing is appended, so that all
        draw the same numbers.
        """
        return (self._processes.rank,) if self._processes.own and self._processes.rank else ()

    def _lanes(self, batch: Integers) -> _Lanes:
        """Cut a minibatch into shards, group them into lanes, and return the lanes of this process.

        A shard is a group of queries that are computed together. A lane is a list of consecutive shards,
        which one thread computes one after another.
        """
        shards = list(enumerate(_shards(batch, self._sizes, _SHARD_DOCUMENTS)))
        n = min(len(shards), LANES)
        mine = range(n) if self._processes.own else self._processes.share(n)
        bounds = [len(shards) * i // max(n, 1) for i in range(n + 1)]
        return _Lanes([shards[bounds[i] : bounds[i + 1]] for i in mine], n)

    def _sources(self, lanes: list[list[_Lanes]]) -> Generator[Rows, None, None]:
        """Yield, for each minibatch in turn, a `Rows` object that returns the rows of its queries.

        Yields nothing if this process has no queries.

        lanes  The minibatches, grouped by window (queries that are read from disk together).
        """
        if self._feed is None:
            return
        yield from self._feed.sources([[batch.queries for batch in group] for group in lanes])

    def _descend(self, number: int, lbfgs: LBFGS) -> float:
        """Run one epoch of L-BFGS on all queries and return the final loss."""
        processes = self._processes
        lanes, share = self._lanes(np.arange(len(self._sizes))), 1 / self._total_weight
        rows = None if self._feed is None else self._feed.everything()

        def loss(x: Floats) -> tuple[float, Floats]:
            self._flat.copy_(torch.from_numpy(x))
            value, gradient = self._gradient(lanes, repeat(rows), share, number, 0)
            decayed = x * self._decayed.numpy()
            penalty = lbfgs.weight_decay / 2 * float(decayed @ x)
            return value + penalty, gradient.double().numpy() + lbfgs.weight_decay * decayed

        def asked(x: Floats) -> tuple[float, Floats]:
            processes.first(np.append(x, 1.0))
            return loss(x)

        if processes.rank == 0:
            x = descend(asked, self._flat.double().numpy(), max_iter=lbfgs.max_iter, tol=1e-9)
            value = asked(x)[0]
            processes.first(np.zeros(len(x) + 1))
            return value
        # Only rank 0 runs L-BFGS. Until it ends, the other ranks wait for the points x that rank 0 sends, and
        # compute their part of the loss and gradient at each of them.
        value, blank = math.nan, np.zeros(len(self._flat) + 1)
        while (sent := processes.first(blank))[-1]:
            value = loss(sent[:-1])[0]
        return value

    def _gradient(
        self, lanes: _Lanes, sources: Iterator[Rows | None], share: float, epoch: int, step: int
    ) -> tuple[float, Tensor]:
        """Return the weighted loss of a minibatch, and the gradient of this loss.

        The weighted loss is the sum of share * weight * loss over the minibatch's queries in all processes.
        The factor `share` makes it a mean over queries.

        lanes    The minibatch, divided into parts that are computed in parallel.
        sources  Iterator whose next item returns the rows of the minibatch.
        """
        with self._processes.together() as said:
            rows = next(sources, None)
            parts = [] if rows is None else self._of_lanes(lanes, rows, share, epoch, step)
            values = [value for value, _ in parts]
            said.values = [math.fsum(values)] if self._processes.own else values
        gradient = self._processes.gradient([part for _, part in parts], lanes.n, self._flat)
        return math.fsum(said.heard.ravel()), gradient

    def _of_lanes(
        self, lanes: _Lanes, rows: Rows, share: float, epoch: int, step: int
    ) -> list[tuple[float, Tensor]]:
        """Return the weighted loss and its gradient, see `_gradient`, for each lane of this process.

        A lane is a part of the minibatch that one thread computes.
        """

        def one(number: int, queries: Integers, shard: Shard) -> tuple[float, Tensor]:
            rng = np.random.default_rng([self._plan.seed, 2, epoch, step, number, *self._number_of_own()])
            return self._shard(queries, shard, share, rng, epoch)

        def along(lane: list[tuple[int, Integers]]) -> tuple[float, Tensor]:
            values, total = [], None
            for (number, queries), shard in zip(lane, rows.shards([q for _, q in lane]), strict=True):
                value, gradient = one(number, queries, shard)
                values.append(value)
                total = gradient if total is None else total.add_(gradient)
            return math.fsum(values), total

        if self._parallel is None and lanes.mine:
            (number, queries), *_ = lanes.mine[0]
            self._parallel = self._pool is not None and self._is_pure(
                lambda: one(number, queries, next(rows.shards([queries])))
            )
        self._runs += sum(map(len, lanes.mine))
        if self._parallel and len(lanes.mine) > 1 and self._pool is not None:
            return list(self._pool.map(along, lanes.mine))
        return [along(lane) for lane in lanes.mine]

    def _is_pure(self, run: Callable[[], object]) -> bool:
        """Whether calls of the network have no side effects, so that several threads may call it in parallel.

        Calls `run`, which computes the loss and gradient of some queries, and checks that it neither draws
        from torch's global generator nor changes the network, such as its running statistics. Restores the
        network afterwards.
        """
        before = self._snapshot()
        state = torch.get_rng_state()
        run()
        drawn = not torch.equal(state, torch.get_rng_state())
        changed = any(not torch.equal(before[name], x) for name, x in self._snapshot().items())
        self._restore(before)
        return not drawn and not changed

    def _shard(
        self,
        queries: Integers,
        shard: Shard,
        share: float,
        rng: np.random.Generator,
        epoch: int,
    ) -> tuple[float, Tensor]:
        """Return the weighted loss of a shard (some queries of a minibatch), and the gradient of this loss.

        The weighted loss is the mean loss of the queries, times the sum of their weights, times `share`.
        Raises a NetworkOverflowError if scores or gradients are NaN or infinite.
        """
        offsets = torch.from_numpy(offsets_of(self._sizes[queries]))
        seed = int(rng.integers(2**63))
        if self._parallel is False:
            # torch.manual_seed would also seed unused devices, which takes longer
            torch.default_generator.manual_seed(seed)
        weight = None if self._query_weight is None else torch.from_numpy(self._query_weight[queries])
        with torch.enable_grad(), drawing_from(rng):
            scores = self._scores(self._noisy(shard.features, rng), offsets)
            if not bool(scores.isfinite().all()):
                raise self._overflow("scores", epoch)
            value = self._plan.loss(
                scores,
                shard.labels,
                epoch,
                offsets=offsets,
                sample_weight=shard.sample_weight,
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

    def _noisy(self, features: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the features with normal noise added to them; unchanged if the plan has no noise."""
        if not self._plan.input_noise:
            return features
        noise = torch.from_numpy(rng.standard_normal(tuple(features.shape), dtype=np.float32))
        return features + self._plan.input_noise * noise.to(features.dtype)

    def _overflow(self, what: str, epoch: int) -> NetworkOverflowError:
        return NetworkOverflowError(
            f"the {what} of the network became NaN or infinite in epoch {epoch + 1}. "
            f"{self._plan.optimizer.advice}"
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
        steps = 0
        if self._adam is not None:
            tensors, steps = tensors | self._adam.tensors(), self._adam.n
        return State(tensors, tuple(epochs), best, steps)

    def _continue(self, state: State) -> dict[str, Tensor]:
        """Restore the network and Adam from a state, and return the tensors of the best network so far."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): x for name, x in state.tensors.items() if name.startswith(prefix)
            }

        self._restore(part("network."))
        if self._adam is not None:
            self._adam.resume(state.tensors, state.steps)
        return part("best.")


@dataclass(frozen=True, eq=False)
class _Lanes:
    """A minibatch, cut into shards that are grouped into lanes; lanes are computed in parallel.

    A shard is a group of queries that are computed together, stored as (index of the shard in the minibatch,
    indices of the queries). A lane is a list of consecutive shards, computed one after another.

    mine  Lanes that this process computes.
    n     Number of lanes of the minibatch, including those that other processes compute.
    """

    mine: list[list[tuple[int, Integers]]]
    n: int

    @property
    def queries(self) -> Integers:
        """Indices of the queries of the minibatch that this process computes."""
        parts = [queries for lane in self.mine for _, queries in lane]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _shards(batch: Integers, sizes: Integers, budget: int) -> list[Integers]:
    """Cut the queries, in order, into parts of about `budget` documents each, of similar size.

    >>> [part.tolist() for part in _shards(np.array([0, 1, 2, 3]), np.array([3, 1, 2, 2]), 4)]
    [[0, 1], [2, 3]]
    """
    if not len(batch):
        return []
    ends = np.cumsum(sizes[batch])
    count = max(1, round(int(ends[-1]) / budget))
    cuts = np.searchsorted(ends, ends[-1] / count * np.arange(1, count) - 0.5) + 1
    return [part for part in np.split(batch, cuts) if len(part)]
