"""The fit of a ranker's network: the checks before it, the training, and the result."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import sinkprop
from sinkprop.common.arguments import number, threads
from sinkprop.common.progress import progress_line
from sinkprop.data.missing import DEFAULT
from sinkprop.data.training_set import TrainingSet, fingerprint
from sinkprop.estimator.base import seed_of
from sinkprop.estimator.criteria import Criterion, gain_criterion, gain_under, metric_criterion
from sinkprop.estimator.held_out import HeldOut
from sinkprop.estimator.selection import Selection
from sinkprop.objective.gains import Gain, RankLinear
from sinkprop.objective.relaxations import Relaxation
from sinkprop.torch.networks.ensemble import ensemble_of
from sinkprop.torch.neural.checkpoints import Checkpoint, shared_state
from sinkprop.torch.neural.feeds import Held, Streamed, feed_of, missing_values, training_moments
from sinkprop.torch.neural.held_out import held_out_scores
from sinkprop.torch.neural.network import OWN, as_network, build_module
from sinkprop.torch.neural.optimizers import Adam, as_optimizer
from sinkprop.torch.neural.preparation import Preparation, make_preparation
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.records import NetworkFit, Plan, State
from sinkprop.torch.neural.scoring import NetworkOverflowError, Scoring, takes_offsets
from sinkprop.torch.neural.settings import DTYPES, make_plan, name_of
from sinkprop.torch.neural.split import divided, totals
from sinkprop.torch.neural.stored import Data, StoredSet, digest_of, largest_label, sizes_of
from sinkprop.torch.neural.training import Watch, fit_network
from sinkprop.torch.neural.validation import MeanCriterion, graded, spread_within_queries

if TYPE_CHECKING:
    from sinkprop.torch.ranker import NeuralRanker

__all__ = ["FittedNetwork", "fit_ranker", "scoring_of"]

# Parameters that `_parameters_in_words` leaves out. They do not change the network, except random_state,
# whose seed is included instead.
_OF_THE_RUN = ("checkpoint", "on_epoch", "n_threads", "verbose", "distributed", "metric", "random_state")


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """Result of a fit.

    module      The network of the best epoch.
    n_rows      Number of documents in all processes, before validation queries were held out.
    n_queries   Number of queries, counted in the same way.
    overflow    Error that ended the fit if scores or gradients overflowed, else None. After an overflow,
                `module` is the best network of the earlier epochs, or the mean of the networks before.
    held_out    Scores of the validation queries by `module`; None if there are none.
    """

    module: nn.Module
    preparation: Preparation
    relaxation: Relaxation | None
    result: NetworkFit
    n_rows: int
    n_queries: int
    overflow: NetworkOverflowError | None = None
    held_out: HeldOut | None = None


@dataclass(frozen=True)
class _Agreed:
    """Settings of a fit that were checked in each process before the training.

    criterion  Name of the criterion.
    digests    Digest (hash) of each training and validation set, to tell whether two fits have the same data.
               If each process has its own queries, the list has one text per process, which contains the
               digests of that process. Digests are computed only if there is a checkpoint, or if several
               processes share the same queries.
    """

    seed: int
    n_threads: int
    criterion: str
    digests: list[str]


@torch.inference_mode(False)  # type: ignore[untyped-decorator]  # also if the caller is in inference mode
def fit_ranker(
    ranker: NeuralRanker, data: Data, validation: Sequence[Data], processes: OneProcess
) -> FittedNetwork:
    """Train a network with a ranker's parameters, and return it with a record of the fit.

    Every process of a distributed fit calls this function.

    validation  Validation sets. If empty, some queries of `data` are held out for validation.
    """
    agreed = _agreed(ranker, data, validation, processes)
    n_rows, n_queries = totals(data, processes)
    gain, n_labels = _fitted_gain(ranker, data, processes), _n_labels(data)
    relaxation, plan = make_plan(
        ranker,
        n_rows,
        data.sample_weight,
        gain,
        seed=agreed.seed,
        n_threads=agreed.n_threads,
        n_labels=n_labels,
    )
    part, held_out, validated_on = divided(
        data, validation, ranker.validation_fraction, agreed.seed, processes
    )
    preparation = _preparation(ranker, part, held_out, agreed.n_threads, processes)
    with processes.together():
        first = data.take(np.zeros(1, np.int64)) if isinstance(data, StoredSet) else data
        rows = first.X[: first.groups.offsets[1]]
        feed = None if part is None else feed_of(part, preparation, agreed.n_threads)
        feeds = [feed_of(each, preparation, agreed.n_threads) for each in held_out]
    scoring = scoring_of(ranker, preparation, relaxation)

    def mean_criterion(sets: Sequence[Data], feeds: Sequence[Held | Streamed]) -> MeanCriterion:
        convention = graded(ranker.criterion, ranker.convention, sets, processes)
        criterion_of = _criterion(ranker, data, convention, gain)[0]
        return MeanCriterion(feeds, scoring.validation_scores, criterion_of, processes)

    mean = mean_criterion(held_out, feeds) if validated_on else None
    on_training = None
    # Skip the training criterion for a partitioned measure: ranking would take as long as an epoch.
    if plan.n_outputs == 1:
        on_training = mean_criterion([] if part is None else [part], [] if feed is None else [feed])
    watched = _Watched(agreed.criterion if validated_on else "", validated_on, mean, on_training)
    modules: list[nn.Module] = []
    results: list[NetworkFit] = []
    overflow, interrupted, checkpoints = None, False, []
    while len(modules) < ranker.n_networks and overflow is None:
        number = len(modules)
        own = dataclasses.replace(plan, seed=_seed_of_network(agreed.seed, number))
        with processes.together():
            module = build_module(as_network(ranker.network), rows, preparation, plan.n_outputs, own.seed)
        processes.same(
            {"network": repr(module), "shapes": [tuple(x.shape) for x in module.state_dict().values()]}
        )
        processes.adopt(module.state_dict())
        checkpoint, resumed = None, None
        with processes.together():
            if ranker.checkpoint is not None and processes.rank == 0:
                checkpoint = _checkpoint(ranker, module, agreed, number)
                checkpoints.append(checkpoint.path)
                trained = [x.detach().reshape(-1) for x in module.parameters() if x.requires_grad]
                moments = torch.cat(trained) if isinstance(plan.optimizer, Adam) else None
                resumed = checkpoint.read(module.state_dict(), moments, plan.max_epochs)
        resumed = shared_state(resumed, processes)
        result, overflow = _trained(
            ranker, module, feed, own, watched, number, checkpoint, resumed, results, processes
        )
        if result is not None:
            modules.append(module)
            results.append(result)
        interrupted = result is None if overflow is None else False
        if interrupted or results[-1].status == "interrupted":
            break
    module, result = modules[0], results[0]
    if ranker.n_networks > 1:
        spreads = [spread_within_queries(each, feed, scoring, processes) for each in modules]
        module = ensemble_of(modules, spreads, listwise=takes_offsets(modules[0]))
        value = None if mean is None else mean(module)
        status = "interrupted" if interrupted else "overflowed" if overflow else results[-1].status
        result = dataclasses.replace(result, status=status, members=tuple(results), value=value)
    held = held_out_scores(module, held_out, scoring, processes) if validated_on else None
    if result.status not in ("interrupted", "overflowed"):
        for path in checkpoints:
            Path(path).unlink(missing_ok=True)
    return FittedNetwork(module, preparation, relaxation, result, n_rows, n_queries, overflow, held)


@dataclass(frozen=True, eq=False)
class _Watched:
    """The criterion of a fit: its name, its validation queries in words, and its two functions of a module.

    See `Watch`, whose fields these are.
    """

    criterion: str
    validated_on: str
    validation_criterion: MeanCriterion | None
    training_criterion: MeanCriterion | None


def _trained(
    ranker: NeuralRanker,
    module: nn.Module,
    feed: Held | Streamed | None,
    plan: Plan,
    watched: _Watched,
    number: int,
    checkpoint: Checkpoint | None,
    resumed: State | None,
    before: Sequence[NetworkFit],
    processes: OneProcess,
) -> tuple[NetworkFit | None, NetworkOverflowError | None]:
    """Train network `number` in place; return the record of its fit, and the error if its scores overflowed.

    An overflow or an interrupt in the first epoch leaves no network and no record. It is raised here, unless
    networks `before` this one have been trained.
    """
    leads, who = processes.rank == 0, type(ranker).__name__
    which = "" if ranker.n_networks == 1 else f"network {number + 1} of {ranker.n_networks}, "
    try:
        with progress_line(bool(ranker.verbose) and leads) as notify:
            watch = Watch(
                criterion=watched.criterion,
                validated_on=watched.validated_on,
                validation_criterion=watched.validation_criterion,
                training_criterion=watched.training_criterion,
                resumed=resumed,
                on_state=checkpoint,
                on_epoch=ranker.on_epoch if leads else None,
                notify=lambda done, total, text: notify(done, total, which + text),
                keep=ranker.n_networks > 1,
            )
            return fit_network(module, feed, plan, watch, processes), None
    except KeyboardInterrupt:
        if not before:
            raise
        return None, None
    except NetworkOverflowError as error:
        result = error.result
        if result is None and not before:
            raise NetworkOverflowError(f"{who}: {error}") from None
        if before:
            kept = f"The ranker has the mean of {len(before) + (result is not None)} networks."
        else:
            kept = f"The ranker has the best network of the {len(result.epochs)} epochs before."
        return result, NetworkOverflowError(f"{who}: {error} {kept}")


def _seed_of_network(seed: int, number: int) -> int:
    """Return the seed of network `number`; network 0 has the seed of the fit."""
    return seed if number == 0 else int(np.random.default_rng([seed, 5, number]).integers(2**31))


def scoring_of(ranker: NeuralRanker, preparation: Preparation, relaxation: Relaxation | None) -> Scoring:
    """Return the rules by which the ranker turns the outputs of its network into scores and ranks."""
    return Scoring(
        preparation,
        relaxation,
        ranker.n_iter,
        ranker.epsilon,
        exact=isinstance(as_network(ranker.network), OWN),
        n_threads=ranker.n_threads,
    )


def _agreed(ranker: NeuralRanker, data: Data, validation: Sequence[Data], processes: OneProcess) -> _Agreed:
    """Check the ranker's parameters, and return the settings on which all processes agree.

    Raises a ValueError if a parameter is invalid, or if the processes differ in the versions of sinkprop and
    PyTorch, in the parameters, in the features or, with distributed="shared", in the queries.
    """
    with processes.together():
        if data.sample_weight is not None and not data.sample_weight.sum() > 0:
            raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
        number("validation_fraction", ranker.validation_fraction, below=1)
        n_threads = threads(ranker.n_threads, int(sizes_of(data).sum()))
        # By default, divide the CPU cores among the processes that run on this machine.
        if ranker.n_threads is None and processes.size > 1:
            n_threads = max(1, n_threads // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        gain = gain_under(ranker.gain, ranker.convention)
        criterion = _criterion(ranker, data, ranker.convention, gain)[1]
        seed = seed_of(ranker.random_state)
        make_plan(
            ranker, 1, data.sample_weight, gain, seed=seed, n_threads=n_threads, n_labels=_n_labels(data)
        )
        digests: list[str] = []
        if ranker.checkpoint is not None or (processes.size > 1 and not processes.own):
            digests = [digest_of(part) for part in (data, *validation)]
    seed = int(processes.texts(str(seed))[0])
    facts = {
        "sinkprop version": sinkprop.__version__,
        "PyTorch version": torch.__version__,
        "distributed": ranker.distributed,
        "number of features": ranker.n_features_in_,
        "feature names": list(getattr(ranker, "feature_names_in_", [])),
        "parameters": _parameters_in_words(ranker, 0, criterion),
        "sample_weight (given or not)": data.sample_weight is not None,
        "eval_set (given or not)": bool(validation),
    }
    if not processes.own:
        facts |= {
            "number of documents": int(sizes_of(data).sum()),
            "number of queries": data.n_queries,
            "queries (compared by digest; with distributed='own' each process has its own queries)": digests,
        }
    processes.same(facts)
    return _Agreed(seed, n_threads, criterion, processes.texts(repr(digests)) if processes.own else digests)


def _preparation(
    ranker: NeuralRanker,
    part: Data | None,
    held_out: Sequence[Data],
    n_threads: int,
    processes: OneProcess,
) -> Preparation:
    """Return the transform of the features, the treatment of missing values and the scaling.

    The treatment and the scaling "standard" depend on the mean and the variation of each feature, which are
    computed here from the training rows.
    """
    transform, n_features, moments = ranker.input_transform, ranker.n_features_in_, None
    # rows that are scaled within their query have been transformed already
    still = "none" if ranker.normalization == "query" else transform
    missing = missing_values(ranker.missing, part, held_out, still, n_features, n_threads, processes)
    if ranker.normalization == "standard":
        n_columns = n_features if missing is None else missing.n_columns
        moments = training_moments(part, n_columns, transform, missing, n_threads, processes)
    with processes.together():
        dtype = DTYPES[ranker.dtype]
        return make_preparation(transform, ranker.normalization, moments, n_features, dtype, missing)


def _fitted_gain(ranker: NeuralRanker, data: Data, processes: OneProcess) -> Gain:
    """Return the gain of the loss, with the parameters that it takes from the labels of all processes."""
    gain = gain_under(ranker.gain, ranker.convention)
    if not gain.unfitted:
        return gain
    with processes.together():
        largest = data.labels.max(axis=0) if isinstance(data, TrainingSet) else largest_label(data)
    found = processes.gather(np.atleast_1d(largest)).reshape(-1, _n_labels(data))
    return gain.fitted(found.max(axis=0)[None])


def _n_labels(data: Data) -> int:
    """Return the number of label columns."""
    return 1 if not isinstance(data, TrainingSet) or data.columns is None else data.columns.shape[1]


def _criterion(ranker: NeuralRanker, data: Data, convention: Any, gain: Gain) -> tuple[Criterion, str]:
    """Return the function that computes the criterion of each query, and the name of the criterion.

    The criterion is the metric, or mean of metrics, that selects the best epoch. `gain` is that of the loss
    "sinkprop".
    """
    criterion: Any = ranker.criterion
    if criterion is not None and not isinstance(criterion, str):
        criterion = tuple(criterion)
    if isinstance(ranker.loss, str) and ranker.loss == "sinkprop":
        selection = Selection(criterion=criterion)
        weighted = data.sample_weight is not None
        return gain_criterion(gain, selection, convention, weighted=weighted)
    return metric_criterion("ndcg@1-10" if criterion is None else criterion, convention)


def _checkpoint(ranker: NeuralRanker, module: nn.Module, agreed: _Agreed, number: int) -> Checkpoint:
    """Return the checkpoint of network `number`, with a fingerprint of data, parameters and initial network.

    The checkpoint of the first network has the path that the user gave; the others have numbers at its end.
    """
    assert ranker.checkpoint is not None
    parameters = _parameters_in_words(ranker, agreed.seed, agreed.criterion)
    weights = [x.numpy(force=True) for x in module.state_dict().values()]
    about = repr((parameters, repr(module), agreed.digests))
    kind = f"{type(ranker).__name__}Checkpoint"
    path = os.fspath(ranker.checkpoint) + (f".{number + 1}" if number else "")
    return Checkpoint(path, kind, fingerprint(about, arrays=weights))


def _parameters_in_words(ranker: NeuralRanker, seed: int, criterion: str) -> str:
    """Return a text with every parameter on which the fit depends; equal parameters give equal texts."""
    given = {k: v for k, v in ranker.get_params(deep=False).items() if k not in _OF_THE_RUN}
    gain, network = gain_under(ranker.gain, ranker.convention), as_network(ranker.network)
    given["gain"] = gain.text or (name_of(gain.gain) if isinstance(gain, RankLinear) else repr(gain))
    given["loss"] = name_of(ranker.loss)
    # A custom network is left out here: the module that it creates is compared separately.
    given["network"] = network if isinstance(network, OWN) else None
    given["optimizer"] = as_optimizer(ranker.optimizer)
    for name, default in (("missing", DEFAULT), ("input_noise", 0), ("n_networks", 1)):
        if given[name] == default:  # left out, so that earlier checkpoints can be resumed
            del given[name]
    return repr((sorted(given.items()), seed, criterion))
