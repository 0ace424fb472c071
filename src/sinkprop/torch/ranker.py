"""NeuralRanker: a network as a scikit-learn estimator."""

from __future__ import annotations

import copy
import dataclasses
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import sinkprop
from sinkprop.common.arguments import number, threads
from sinkprop.common.progress import progress_line
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_query_weight
from sinkprop.data.kinds import is_elsewhere
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet, fingerprint
from sinkprop.estimator.base import BaseRanker, Ids, seed_of
from sinkprop.estimator.criteria import Judge, gain_judge, metric_judge
from sinkprop.estimator.external_queries import as_stored, in_memory, no_arrays
from sinkprop.estimator.selection import Selection
from sinkprop.metrics.evaluation import evaluate
from sinkprop.model_files import ModelFileError
from sinkprop.objective.gains import Gain, RankLinear, as_gain
from sinkprop.objective.rank_distribution import partitioned_ranks
from sinkprop.objective.relaxations import (
    Relaxation,
    SmoothedIndicator,
    as_relaxation,
    relaxation_from,
    relaxation_record,
    score_weights,
)
from sinkprop.torch.neural.checkpoints import Checkpoint, shared_state
from sinkprop.torch.neural.feeds import feed_of, training_moments
from sinkprop.torch.neural.files import read_network, write_network
from sinkprop.torch.neural.network import MLP
from sinkprop.torch.neural.preparation import Preparation, make_preparation, transformed
from sinkprop.torch.neural.processes import OneProcess, processes_of, rank_here
from sinkprop.torch.neural.records import Epoch, NetworkFit
from sinkprop.torch.neural.scoring import NetworkOverflowError, checked_scores, network_scores, takes_offsets
from sinkprop.torch.neural.settings import DTYPES, make_plan, name_of
from sinkprop.torch.neural.split import divided, totals
from sinkprop.torch.neural.stored import Data, StoredSet, digest_of, sizes_of
from sinkprop.torch.neural.training import fit_network
from sinkprop.torch.neural.validation import Judgment, graded

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["NeuralRanker"]


_TOP = 200  # documents to which the Hungarian algorithm is applied when a partitioned measure ranks


class NeuralRanker(BaseRanker):
    """A neural ranker trained on the expected value of its metric, by Sinkhorn propagation; needs PyTorch.

    loss            "sinkprop"; "listnet", "approxndcg" or "lambdarank", which are there for comparison; or a
                    function loss(scores, labels, offsets=..., query_weight=...) that gives the mean over the
                    queries, as all losses of `sinkprop.torch` do
    gain            of "sinkprop", with `relaxation`, `n_iter` and `epsilon`: see `SinkPropRanker`
    sigma           of the relaxation, in units of the network's scores; or two, of the first and of the last
                    epoch, with those between in geometric progression
    module          the network: an `nn.Module`, which is copied, or a function that makes one for a number of
                    features, or None for the default, an `MLP` with these settings:
    hidden          widths of its hidden layers; () for a linear model
    activation      "relu", "gelu", "silu", "elu" or "tanh"
    dropout         the share of a hidden layer's outputs that is left out in training
    layer_normalization
                    of hidden layers: "batch", "layer" or None
    input_transform "log1p": sign(x) log(1 + |x|) of each feature, or "none"
    normalization   of the features after that: "standard", "query" (then `predict` needs qid) or "none". Both
                    are part of the model
    optimizer       "adam" with minibatches, or "lbfgs", whose epochs are `max_iter` iterations on all queries
    learning_rate   of Adam, constant or falling to 0 as a half cosine: `schedule` "constant" or "cosine"
    weight_decay    for "adam" the share by which matrices shrink, times the learning rate, at each step; for
                    "lbfgs" the penalty weight_decay / 2 |W|^2
    clip_norm       the largest norm of a gradient, longer ones are shortened to it; None for any
    batch_documents of a minibatch, which has whole queries: as many as fit, or one that is larger. None takes
                    an eighth of the training documents, but 256 at least and 4096 at most
    max_epochs      passes over the training queries
    criterion       metrics whose mean over the judging queries chooses the epoch; None: see `Selection`
    patience        epochs without improvement after which the fit stops
    validation_fraction
                    share of the queries held out to judge where no eval_set is given; 0 trains on all and
                    takes the last epoch
    dtype           of the network: "float32" or "float64"
    metric          of `score`, under `convention`
    checkpoint      a file to which the fit writes as it goes, and from which it resumes; removed when done
    distributed     None: one process. "shared" or "own": all processes of torch.distributed, each of which
                    calls `fit`, train one network; with "shared" every one gives the same queries, and they
                    share the work, with "own" every one gives its own queries. Rank 0 writes
    on_epoch        a function called with the `Epoch` that was finished, while the fit goes on
    n_threads       see `expected_gain`        verbose     False: no progress line even on a terminal
    random_state    of all that is drawn. The same gives the same network, whatever the number of threads

    The module gets rows (N, D) as they are after `normalization` and gives scores (N,) or (N, 1), or (N, 2)
    for a partitioned measure. One whose `forward` has an argument `offsets` gets the queries as well: query q
    has the rows offsets[q] to offsets[q + 1]. Then `predict` needs qid. Training is on the CPU. An error on
    another rank is a `RankError` here, whatever it is there.

    After `fit`: `module_`, the network of the best epoch; `scaling_`; `sigma_` and `relaxation_` of its
    scores, None where the loss has none; `fit_result_`, the record of every epoch. An interrupt from the
    keyboard ends the fit with the best network so far. Scores that overflow are a `NetworkOverflowError`,
    after which the ranker has the best network of the epochs before; if there is none, it is what it was.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(np.abs(X[:, 0]) + 0.1 * rng.normal(size=400), [0.5, 1.5])
    >>> ranker = NeuralRanker(dropout=0.2).fit(X, y, qid=qid)
    >>> ranker.rank([[0, 0, 0], [-2, 0, 0], [1, 0, 0]], qid=[1, 1, 1])
    array([3, 1, 2])
    """

    def __init__(
        self,
        loss: str | Callable[..., Tensor] = "sinkprop",
        *,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        sigma: float | tuple[float, float] = (1.0, 0.25),
        n_iter: float = 5,
        epsilon: float = 1e-6,
        module: nn.Module | Callable[[int], nn.Module] | None = None,
        hidden: Sequence[int] = (64, 32),
        activation: str = "relu",
        dropout: float = 0.5,
        layer_normalization: str | None = None,
        input_transform: str = "log1p",
        normalization: str = "standard",
        optimizer: str = "adam",
        learning_rate: float = 3e-3,
        weight_decay: float = 0.0,
        schedule: str = "constant",
        clip_norm: float | None = None,
        batch_documents: int | None = None,
        max_epochs: int = 100,
        max_iter: int = 20,
        criterion: str | Sequence[str] | None = None,
        patience: int = 20,
        validation_fraction: float = 0.2,
        dtype: str = "float32",
        metric: str = "ndcg@10",
        convention: str = "letor",
        checkpoint: str | os.PathLike[str] | None = None,
        distributed: str | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.loss = loss
        self.gain = gain
        self.relaxation = relaxation
        self.sigma = sigma
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.module = module
        self.hidden = hidden
        self.activation = activation
        self.dropout = dropout
        self.layer_normalization = layer_normalization
        self.input_transform = input_transform
        self.normalization = normalization
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.batch_documents = batch_documents
        self.max_epochs = max_epochs
        self.max_iter = max_iter
        self.criterion = criterion
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.dtype = dtype
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.distributed = distributed
        self.on_epoch = on_epoch
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        eval_set: Any = None,
        eval_qid: Sequence[Ids] | None = None,
        eval_group: Sequence[ArrayLike] | None = None,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    ) -> NeuralRanker:
        """Fit to the documents X (N, D) with labels y (N,) of the queries qid (N,), or to a stored set.

        X              an array or a frame; or a `StoredQueries` or its path, which has labels and queries of
                       its own and is read as the fit goes; or a list of LETOR files, which are loaded
        eval_set       [(X, y)], with eval_qid or eval_group: queries that help to choose, not trained on; an
                       item may be a stored set, which is read as they are judged
        sample_weight  (N,) row weights; not for stored sets
        query_weight   (Q,) by first appearance, (N,) by row, or {id: weight}
        """
        with processes_of(self.distributed) as processes:
            # a wrong metric or convention fails before the work rather than after it
            evaluate([1.0], [0.0], [0], metrics=[self.metric], convention=self.convention)
            data: Data
            stored = as_stored(X)
            if is_elsewhere(X):
                no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
                if stored is None:  # files of text
                    loaded = in_memory(X)
                    X, y, qid = loaded.X, loaded.y, loaded.qid
            if stored is None:
                data = self._training_set(
                    X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
                )
            else:
                data = self._stored_set(stored, query_weight)
            self._train(data, self._evaluation_sets(eval_set, eval_qid, eval_group), processes)
        return self

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        self._train(data, [] if validation is None else [validation], OneProcess())

    def _stored_set(self, stored: StoredQueries, query_weight: Any) -> StoredSet:
        """A stored set to train on."""
        data = StoredSet.of(stored, type(self).__name__, self._transform_by_query)
        self.n_features_in_ = int(stored.n_features)
        if stored.feature_names is not None:
            self.feature_names_in_ = np.array(stored.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if query_weight is None:
            return data
        groups = Groups(stored.offsets, None, stored.query_ids, stored.longest)
        return dataclasses.replace(data, query_weight=as_query_weight(query_weight, groups, stored.n_rows))

    @property
    def _transform_by_query(self) -> str | None:
        return self.input_transform if self.normalization == "query" else None

    def _stored_judges(self, item: Any) -> StoredSet:
        stored = self._given_stored(item)
        assert stored is not None  # the path of none is an error before
        data = StoredSet.of(stored, type(self).__name__, self._transform_by_query)
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        return dataclasses.replace(data, columns=columns)

    @torch.inference_mode(False)  # type: ignore[untyped-decorator]  # whatever the caller's mode is
    def _train(self, data: Data, validation: list[Data], processes: OneProcess) -> None:
        """Train a network and take it; all processes do this together, with their own queries or the same."""
        with processes.together():
            n_features = self.n_features_in_
            if data.sample_weight is not None and not data.sample_weight.sum() > 0:
                raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
            if number("validation_fraction", self.validation_fraction) >= 1:
                raise ValueError(f"validation_fraction must be below 1; got {self.validation_fraction!r}.")
            n_threads = threads(self.n_threads, int(sizes_of(data).sum()))
            if self.n_threads is None and processes.size > 1:  # those of a machine share its processors
                n_threads = max(1, n_threads // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
            criterion = self._criterion(data, self.convention)[1]
            seed = seed_of(self.random_state)
            make_plan(self, 1, data.sample_weight, seed=seed, n_threads=n_threads)
            digests: list[str] = []
            if self.checkpoint is not None or (processes.size > 1 and not processes.own):
                digests = [digest_of(part) for part in (data, *validation)]
        seed = int(processes.texts(str(seed))[0])
        processes.same(self._facts(data, validation, digests, criterion, processes))
        if processes.own:
            digests = processes.texts(repr(digests))
        n_rows, n_queries = totals(data, processes)
        relaxation, plan = make_plan(self, n_rows, data.sample_weight, seed=seed, n_threads=n_threads)
        part, judging, judged_by = divided(data, validation, self.validation_fraction, seed, processes)
        moments = None
        if self.normalization == "standard":
            moments = training_moments(part, n_features, self.input_transform, n_threads, processes)
        with processes.together():
            dtype = DTYPES[self.dtype]
            preparation = make_preparation(
                self.input_transform, self.normalization, moments, n_features, dtype
            )
            first = data.take(np.zeros(1, np.int64)) if isinstance(data, StoredSet) else data
            module = self._network(first.X[: first.groups.offsets[1]], preparation, plan.n_outputs, seed)
            feed = None if part is None else feed_of(part, preparation, n_threads)
            feeds = [feed_of(each, preparation, n_threads) for each in judging]
        processes.same(
            {"network": repr(module), "shapes": [tuple(x.shape) for x in module.state_dict().values()]}
        )
        processes.adopt(module.state_dict())
        scores = partial(self._judged_scores, preparation=preparation, relaxation=relaxation)
        mean, on_training = None, None
        if judged_by:
            judge, _ = self._criterion(data, graded(self.criterion, self.convention, judging, processes))
            mean = Judgment(feeds, scores, judge, processes)
        if plan.n_outputs == 1:  # the assignments of a partitioned measure would take as long as an epoch
            trained = [] if part is None else [part]
            judge, _ = self._criterion(data, graded(self.criterion, self.convention, trained, processes))
            on_training = Judgment([] if feed is None else [feed], scores, judge, processes)
        checkpoint, resumed = None, None
        with processes.together():
            if self.checkpoint is not None and processes.rank == 0:
                kind = f"{type(self).__name__}Checkpoint"
                about = repr((self._settings(seed, criterion), repr(module), digests))
                weights = [x.numpy(force=True) for x in module.state_dict().values()]
                checkpoint = Checkpoint(self.checkpoint, kind, fingerprint(about, arrays=weights))
                resumed = checkpoint.read()
        resumed = shared_state(resumed, processes)
        leads = processes.rank == 0
        try:
            with progress_line(bool(self.verbose) and leads) as notify:
                result = fit_network(
                    module,
                    feed,
                    plan,
                    judge=mean,
                    judge_training=on_training,
                    resumed=resumed,
                    on_state=checkpoint,
                    on_epoch=self.on_epoch if leads else None,
                    notify=notify,
                    criterion=criterion if judged_by else "",
                    judged_by=judged_by,
                    processes=processes,
                )
        except NetworkOverflowError as error:
            if error.result is None:
                raise NetworkOverflowError(f"{type(self).__name__}: {error}") from None
            self._set_fitted(module, preparation, relaxation, error.result)
            self.n_rows_, self.n_queries_ = n_rows, n_queries
            raise NetworkOverflowError(
                f"{type(self).__name__}: {error} The ranker has the best network of the "
                f"{len(error.result.epochs)} epochs before."
            ) from None
        self._set_fitted(module, preparation, relaxation, result)
        self.n_rows_, self.n_queries_ = n_rows, n_queries
        if result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {result.message}", RuntimeWarning, stacklevel=4)
        elif checkpoint is not None:
            Path(checkpoint.path).unlink(missing_ok=True)

    def _facts(
        self, data: Data, validation: list[Data], digests: list[str], criterion: str, processes: OneProcess
    ) -> dict[str, Any]:
        """What must be the same on all processes, in the order in which it is compared."""
        facts = {
            "sinkprop version": sinkprop.__version__,
            "PyTorch version": torch.__version__,
            "distributed": self.distributed,
            "number of features": self.n_features_in_,
            "feature names": list(getattr(self, "feature_names_in_", [])),
            "parameters": self._settings(0, criterion),
            "sample_weight (given or not)": data.sample_weight is not None,
            "eval_set (given or not)": bool(validation),
        }
        if not processes.own:
            facts |= {
                "number of documents": int(sizes_of(data).sum()),
                "number of queries": data.n_queries,
                "queries, by their digest (distributed='own' is for queries of one's own)": digests,
            }
        return facts

    def _set_fitted(
        self, module: nn.Module, preparation: Preparation, relaxation: Relaxation | None, result: NetworkFit
    ) -> None:
        for p in module.parameters():  # their own memory again, without what training hung on it
            p.data, p.grad = p.data.clone(), None
        self.module_, self.scaling_, self.fit_result_ = module, preparation.scaling, result
        self.sigma_, self.relaxation_ = result.sigma, relaxation
        if isinstance(relaxation, SmoothedIndicator) and result.sigma is not None:
            self.relaxation_ = dataclasses.replace(relaxation, sigma=result.sigma)

    def _criterion(self, data: Data, convention: Any) -> tuple[Judge, str]:
        """The function that gives the criterion of each query, and its name."""
        criterion: Any = self.criterion
        if criterion is not None and not isinstance(criterion, str):
            criterion = tuple(criterion)
        if isinstance(self.loss, str) and self.loss == "sinkprop":
            selection = Selection(criterion=criterion)
            weighted = data.sample_weight is not None
            return gain_judge(as_gain(self.gain), selection, convention, weighted=weighted)
        return metric_judge("ndcg@1-10" if criterion is None else criterion, convention)

    def _judged_scores(
        self,
        network: nn.Module,
        rows: Any,
        offsets: Integers,
        *,
        preparation: Preparation,
        relaxation: Relaxation | None,
    ) -> Floats:
        """Scores (N,) by whose order queries are judged; rows stand query by query."""
        groups = Groups(offsets, None, np.arange(len(offsets) - 1), int(np.diff(offsets).max()))
        scores = self._outputs(network, rows, groups, preparation, relaxation)
        if relaxation is not None and scores.ndim == 2:
            return -self._partitioned(scores, groups, relaxation).astype(np.float64)
        return scores

    def _network(self, rows: NDArray[Any], preparation: Preparation, n_outputs: int, seed: int) -> nn.Module:
        """A network to be trained, of the estimator's own; the rows are of one query."""
        n, n_features = rows.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.module is None:
                made: Any = self._mlp(n_features, n_outputs)
            elif isinstance(self.module, nn.Module):
                made = copy.deepcopy(self.module)
            else:
                made = self.module(n_features)
                if not isinstance(made, nn.Module):
                    raise ValueError(f"module({n_features}) must give an nn.Module; it gave {made!r}.")
            made = made.to(preparation.dtype)
            # A first look at what it gives; it also makes the parameters of torch's lazy layers.
            more = {"offsets": torch.tensor([0, n])} if takes_offsets(made) else {}
            made.eval()
            with torch.no_grad():
                try:
                    scores = made(preparation(rows), **more)
                except RuntimeError as error:
                    raise ValueError(
                        f"module must take rows (N, {n_features}); {type(made).__name__} says: "
                        f"{' '.join(str(error).split())}."
                    ) from error
                checked_scores(scores, n, n_outputs)
        if not any(p.requires_grad for p in made.parameters()):
            raise ValueError(f"module must have parameters to train; {type(made).__name__} has none.")
        if any(p.device.type != "cpu" for p in made.parameters()):
            raise ValueError("module must be on the CPU, where NeuralRanker trains.")
        return made

    def _mlp(self, n_features: int, n_outputs: int) -> MLP:
        return MLP(
            n_features,
            self.hidden,
            n_outputs=n_outputs,
            activation=self.activation,
            dropout=self.dropout,
            layer_normalization=self.layer_normalization,
        )

    def _settings(self, seed: int, criterion: str) -> str:
        """All parameters on which the fit depends, as text that is the same in every process."""
        given = self.get_params(deep=False)
        of_the_run = ("checkpoint", "on_epoch", "n_threads", "verbose", "distributed")
        for name in (*of_the_run, "module", "metric", "random_state"):
            del given[name]
        gain = as_gain(self.gain)
        given["gain"] = name_of(gain.gain) if isinstance(gain, RankLinear) else str(gain)
        given["loss"] = name_of(self.loss)
        return repr((sorted(given.items()), seed, criterion))

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        if self.normalization == "query":
            X = transformed(X, self.input_transform)
        return super()._by_query(X, groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        check_is_fitted(self, "module_")
        preparation = Preparation(self.input_transform, self.scaling_, DTYPES[self.dtype])
        return self._outputs(self.module_, X, groups, preparation, self.relaxation_)

    def _outputs(
        self,
        module: nn.Module,
        X: Any,
        groups: Groups | None,
        preparation: Preparation,
        relaxation: Relaxation | None,
    ) -> Floats:
        """What the network gives rows that are prepared already (a tensor) or are not: (N,) or (N, 2)."""
        rows = None if groups is None else groups.rows
        theta = network_scores(
            module,
            X if rows is None else X[rows],
            None if groups is None else groups.offsets,
            preparation,
            n_outputs=1 if relaxation is None else relaxation.width,
            exact=self.module is None,
            n_threads=threads(self.n_threads, len(X)),
        )
        if rows is None:
            return theta
        unsorted = np.empty_like(theta)
        unsorted[rows] = theta
        return unsorted

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        theta = self._theta(X, groups)
        if theta.ndim == 1 or self.relaxation_ is None:
            return theta
        scores: Floats = theta @ np.array(score_weights(self.relaxation_))
        return scores

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        if self.relaxation_ is None or self.relaxation_.width == 1:
            return super()._ranks(X, groups)
        return self._partitioned(self._theta(X, groups), groups, self.relaxation_)

    def _partitioned(self, theta: Floats, groups: Groups, relaxation: Relaxation) -> Integers:
        settings: dict[str, Any] = {"n_iter": self.n_iter, "epsilon": self.epsilon, "top": _TOP}
        return partitioned_ranks(theta, groups, relaxation, **settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a safetensors file with a checksum; an old file stays until the new is whole.

        Of processes that were fitted together, which all have the same network, rank 0 writes.
        """
        check_is_fitted(self, "module_")
        if self.distributed is not None and rank_here() > 0:
            return
        tensors = dict(self.module_.state_dict())
        write_network(path, type(self).__name__, self._record(), tensors, about=self._about())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, module: nn.Module | Callable[[int], nn.Module] | None = None
    ) -> NeuralRanker:
        """The model that `save` wrote; a damaged, newer or other file is a `ModelFileError`.

        A network of one's own is not data: the file has its weights, and `module` what they are weights of.
        """
        model, tensors = read_network(path, kind=cls.__name__)
        parameters, fitted = (
            found if isinstance(found, dict) else {}
            for found in (model.state.get("parameters"), model.state.get("fitted"))
        )
        own = parameters.get("module")
        if own is not None and module is None:
            raise ModelFileError(
                f"{os.fspath(path)}: holds the weights of a network of one's own, {own}; give it: "
                f"{cls.__name__}.load(path, module=...)."
            )
        if own is None and module is not None:
            raise ValueError(f"{os.fspath(path)}: holds {cls.__name__}'s default network; give no module.")
        state = {**model.state, "fitted": {**fitted, "tensors": tensors}}
        return cls._from_record(path, state, module=module)

    def _parameters_to_save(self) -> dict[str, Any]:
        of_the_run = ("checkpoint", "on_epoch", "n_threads", "distributed")
        saved = {k: _plain(v) for k, v in self.get_params(deep=False).items() if k not in of_the_run}
        saved["module"] = None if self.module is None else type(self.module_).__name__
        saved["loss"] = name_of(self.loss)
        saved["gain"] = None if isinstance(self.gain, RankLinear) else str(self.gain)
        saved["relaxation"] = relaxation_record(as_relaxation(self.relaxation))
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
        given["relaxation"] = relaxation_from(saved["relaxation"])
        if given["gain"] is None:  # a function of the user's own is not data; predictions do not need it
            given["gain"] = "ndcg"
        return given

    def _fitted_state(self) -> dict[str, Any]:
        r = self.fit_result_
        return {
            "relaxation": None if self.relaxation_ is None else relaxation_record(self.relaxation_),
            "status": r.status,
            "criterion": r.criterion,
            "judged_by": r.judged_by,
            "epochs": [dataclasses.asdict(epoch) for epoch in r.epochs],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        epochs = tuple(Epoch(**epoch) for epoch in state["epochs"])
        result = NetworkFit(state["status"], state["criterion"], state["judged_by"], epochs)
        relaxation = None if state["relaxation"] is None else relaxation_from(state["relaxation"])
        n_outputs = 1 if relaxation is None else relaxation.width
        preparation = Preparation(self.input_transform, self.scaling_, DTYPES[self.dtype])
        module = self._network(np.zeros((1, self.n_features_in_)), preparation, n_outputs, 0)
        try:
            module.load_state_dict(state["tensors"])
        except RuntimeError as error:
            raise ValueError(f"its weights are not of this network: {' '.join(str(error).split())}") from None
        self._set_fitted(module, preparation, relaxation, result)


def _plain(value: Any) -> Any:
    """The value as a model file can hold it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(item) for item in value]
    return value
