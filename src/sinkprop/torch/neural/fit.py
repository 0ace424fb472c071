"""The fit of a ranker's network: the checks before it, the training, and the result."""

from __future__ import annotations

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
from sinkprop.data.training_set import fingerprint
from sinkprop.estimator.base import seed_of
from sinkprop.estimator.criteria import Criterion, gain_criterion, metric_criterion
from sinkprop.estimator.selection import Selection
from sinkprop.objective.gains import RankLinear, as_gain
from sinkprop.objective.relaxations import Relaxation
from sinkprop.torch.neural.checkpoints import Checkpoint, shared_state
from sinkprop.torch.neural.feeds import Held, Streamed, feed_of, training_moments
from sinkprop.torch.neural.network import MLP, as_network, build_module
from sinkprop.torch.neural.optimizers import as_optimizer
from sinkprop.torch.neural.preparation import Preparation, make_preparation
from sinkprop.torch.neural.processes import OneProcess
from sinkprop.torch.neural.records import NetworkFit
from sinkprop.torch.neural.scoring import NetworkOverflowError, Scoring
from sinkprop.torch.neural.settings import DTYPES, make_plan, name_of
from sinkprop.torch.neural.split import divided, totals
from sinkprop.torch.neural.stored import Data, StoredSet, digest_of, sizes_of
from sinkprop.torch.neural.training import Watch, fit_network
from sinkprop.torch.neural.validation import MeanCriterion, graded

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
                `module` is the best network of the earlier epochs.
    """

    module: nn.Module
    preparation: Preparation
    relaxation: Relaxation | None
    result: NetworkFit
    n_rows: int
    n_queries: int
    overflow: NetworkOverflowError | None = None


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
    relaxation, plan = make_plan(
        ranker, n_rows, data.sample_weight, seed=agreed.seed, n_threads=agreed.n_threads
    )
    part, held_out, validated_on = divided(
        data, validation, ranker.validation_fraction, agreed.seed, processes
    )
    preparation = _preparation(ranker, part, agreed.n_threads, processes)
    with processes.together():
        first = data.take(np.zeros(1, np.int64)) if isinstance(data, StoredSet) else data
        rows = first.X[: first.groups.offsets[1]]
        module = build_module(as_network(ranker.network), rows, preparation, plan.n_outputs, agreed.seed)
        feed = None if part is None else feed_of(part, preparation, agreed.n_threads)
        feeds = [feed_of(each, preparation, agreed.n_threads) for each in held_out]
    processes.same(
        {"network": repr(module), "shapes": [tuple(x.shape) for x in module.state_dict().values()]}
    )
    processes.adopt(module.state_dict())
    scores = scoring_of(ranker, preparation, relaxation).validation_scores

    def mean_criterion(sets: Sequence[Data], feeds: Sequence[Held | Streamed]) -> MeanCriterion:
        convention = graded(ranker.criterion, ranker.convention, sets, processes)
        return MeanCriterion(feeds, scores, _criterion(ranker, data, convention)[0], processes)

    mean = mean_criterion(held_out, feeds) if validated_on else None
    on_training = None
    # Skip the training criterion for a partitioned measure: ranking would take as long as an epoch.
    if plan.n_outputs == 1:
        on_training = mean_criterion([] if part is None else [part], [] if feed is None else [feed])
    checkpoint, resumed = None, None
    with processes.together():
        if ranker.checkpoint is not None and processes.rank == 0:
            checkpoint = _checkpoint(ranker, module, agreed)
            resumed = checkpoint.read()
    resumed = shared_state(resumed, processes)
    leads, overflow = processes.rank == 0, None
    try:
        with progress_line(bool(ranker.verbose) and leads) as notify:
            watch = Watch(
                criterion=agreed.criterion if validated_on else "",
                validated_on=validated_on,
                validation_criterion=mean,
                training_criterion=on_training,
                resumed=resumed,
                on_state=checkpoint,
                on_epoch=ranker.on_epoch if leads else None,
                notify=notify,
            )
            result = fit_network(module, feed, plan, watch, processes)
    except NetworkOverflowError as error:
        who, result = type(ranker).__name__, error.result
        if result is None:
            raise NetworkOverflowError(f"{who}: {error}") from None
        before = f"The ranker has the best network of the {len(result.epochs)} epochs before."
        overflow = NetworkOverflowError(f"{who}: {error} {before}")
    if checkpoint is not None and result.status not in ("interrupted", "overflowed"):
        Path(checkpoint.path).unlink(missing_ok=True)
    return FittedNetwork(module, preparation, relaxation, result, n_rows, n_queries, overflow)


def scoring_of(ranker: NeuralRanker, preparation: Preparation, relaxation: Relaxation | None) -> Scoring:
    """Return the rules by which the ranker turns the outputs of its network into scores and ranks."""
    return Scoring(
        preparation,
        relaxation,
        ranker.n_iter,
        ranker.epsilon,
        exact=isinstance(as_network(ranker.network), MLP),
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
        if number("validation_fraction", ranker.validation_fraction) >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {ranker.validation_fraction!r}.")
        n_threads = threads(ranker.n_threads, int(sizes_of(data).sum()))
        # By default, divide the CPU cores among the processes that run on this machine.
        if ranker.n_threads is None and processes.size > 1:
            n_threads = max(1, n_threads // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        criterion = _criterion(ranker, data, ranker.convention)[1]
        seed = seed_of(ranker.random_state)
        make_plan(ranker, 1, data.sample_weight, seed=seed, n_threads=n_threads)
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
    ranker: NeuralRanker, part: Data | None, n_threads: int, processes: OneProcess
) -> Preparation:
    """Return the transform and scaling of the features.

    The scaling "standard" depends on the mean and the variation of each feature, which are computed here from
    the training rows.
    """
    transform, n_features, moments = ranker.input_transform, ranker.n_features_in_, None
    if ranker.normalization == "standard":
        moments = training_moments(part, n_features, transform, n_threads, processes)
    with processes.together():
        return make_preparation(transform, ranker.normalization, moments, n_features, DTYPES[ranker.dtype])


def _criterion(ranker: NeuralRanker, data: Data, convention: Any) -> tuple[Criterion, str]:
    """Return the function that computes the criterion of each query, and the name of the criterion.

    The criterion is the metric, or mean of metrics, that selects the best epoch.
    """
    criterion: Any = ranker.criterion
    if criterion is not None and not isinstance(criterion, str):
        criterion = tuple(criterion)
    if isinstance(ranker.loss, str) and ranker.loss == "sinkprop":
        selection = Selection(criterion=criterion)
        weighted = data.sample_weight is not None
        return gain_criterion(as_gain(ranker.gain), selection, convention, weighted=weighted)
    return metric_criterion("ndcg@1-10" if criterion is None else criterion, convention)


def _checkpoint(ranker: NeuralRanker, module: nn.Module, agreed: _Agreed) -> Checkpoint:
    """Return the checkpoint of this fit, with a fingerprint of its data, parameters and initial network."""
    assert ranker.checkpoint is not None
    parameters = _parameters_in_words(ranker, agreed.seed, agreed.criterion)
    weights = [x.numpy(force=True) for x in module.state_dict().values()]
    about = repr((parameters, repr(module), agreed.digests))
    kind = f"{type(ranker).__name__}Checkpoint"
    return Checkpoint(ranker.checkpoint, kind, fingerprint(about, arrays=weights))


def _parameters_in_words(ranker: NeuralRanker, seed: int, criterion: str) -> str:
    """Return a text with every parameter on which the fit depends; equal parameters give equal texts."""
    given = {k: v for k, v in ranker.get_params(deep=False).items() if k not in _OF_THE_RUN}
    gain, network = as_gain(ranker.gain), as_network(ranker.network)
    given["gain"] = name_of(gain.gain) if isinstance(gain, RankLinear) else str(gain)
    given["loss"] = name_of(ranker.loss)
    # A custom network is left out here: the module that it creates is compared separately.
    given["network"] = network if isinstance(network, MLP) else None
    given["optimizer"] = as_optimizer(ranker.optimizer)
    return repr((sorted(given.items()), seed, criterion))
