"""NeuralRanker: a network as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sinkprop.common.plain_data import plain_data
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_query_weight
from sinkprop.data.queries import Groups
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import BaseRanker
from sinkprop.estimator.external_queries import as_stored, no_arrays
from sinkprop.estimator.inputs import Ids
from sinkprop.metrics.evaluation import check_metric
from sinkprop.model_files import ModelFileError
from sinkprop.objective.gains import Gain, RankLinear
from sinkprop.objective.relaxations import (
    Relaxation,
    SmoothedIndicator,
    as_relaxation,
    relaxation_from,
    relaxation_record,
)
from sinkprop.torch.neural.files import read_network, write_network
from sinkprop.torch.neural.fit import FittedNetwork, fit_ranker, scoring_of
from sinkprop.torch.neural.network import MLP, Network, as_network, build_module
from sinkprop.torch.neural.optimizers import Optimizer, as_optimizer, optimizer_from, optimizer_record
from sinkprop.torch.neural.preparation import Preparation, transformed
from sinkprop.torch.neural.processes import OneProcess, processes_of, rank_here
from sinkprop.torch.neural.records import Epoch, NetworkFit
from sinkprop.torch.neural.scoring import Scoring
from sinkprop.torch.neural.settings import DTYPES, name_of
from sinkprop.torch.neural.stored import Data, StoredSet

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["NeuralRanker"]


class NeuralRanker(BaseRanker):
    """A neural ranker trained on the expected value of its metric, by Sinkhorn propagation; needs PyTorch.

    Parameters
    ----------
    loss : str or function
        "sinkprop"; "listnet", "approxndcg" or "lambdarank", for comparison; or a function loss(scores,
        labels, offsets=..., query_weight=...) that gives the mean over the queries, as all losses of
        `sinkprop.torch` do.
    gain, relaxation, n_iter, epsilon
        Settings of the loss "sinkprop", see `SinkPropRanker`.
    sigma : float or (float, float)
        Width of the relaxation in units of the network's scores: one for all epochs; or that of the first and
        of the last, with those between in geometric progression.
    network : MLP, torch.nn.Module or function, optional
        `MLP` with its settings; an `nn.Module`, which is copied; or a function that makes one for a number of
        features. None is `MLP()`.
    input_transform : "log1p" or "none"
        ``sign(x) log(1 + |x|)`` of each feature, or nothing. Part of the model.
    normalization : "standard", "query" or "none"
        Normalization of the transformed features, part of the model. With "query", `predict` needs qid.
    optimizer : Adam or LBFGS, optional
        `Adam` on minibatches, or `LBFGS` on all queries, with its settings. None is `Adam()`.
    max_epochs : int
        Passes over the training queries; for `LBFGS`, runs of its `max_iter` iterations.
    criterion : str or sequence of str, optional
        Metrics whose mean over the validation queries chooses the epoch. None is what `Selection` does.
    patience : int
        Epochs without improvement after which the fit stops.
    validation_fraction : float
        Share of the queries held out for validation where no eval_set is given; 0 trains on all and takes the
        last epoch.
    dtype : "float32" or "float64"
        Precision of the network.
    metric, convention : str
        Metric of `score`, and its convention.
    checkpoint : path, optional
        A file to which the fit writes as it goes, and from which it resumes; removed when done.
    distributed : "shared" or "own", optional
        All processes of torch.distributed, each of which calls `fit`, train one network. With "shared" every
        process gives the same queries, and they share the work; with "own" every process gives its own
        queries. Rank 0 writes. None is one process.
    on_epoch : function, optional
        Called with the `Epoch` that was finished, while the fit goes on.
    n_threads : int, optional
        Number of threads, see `expected_gain`.
    random_state : int, optional
        Seed of all random numbers. The same seed gives the same network for any number of threads.
    verbose : bool
        False hides the progress line on a terminal.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network of the best epoch.
    scaling_ : Scaling
        The normalization of the features.
    relaxation_ : Relaxation or None
        That of the network's scores; None where the loss has none.
    sigma_ : float or None
        The width of the relaxation in the best epoch.
    fit_result_ : NetworkFit
        The record of every epoch.

    Notes
    -----
    The module takes rows (N, D) as they are after `normalization` and gives scores (N,) or (N, 1), or (N, 2)
    for a partitioned measure. One whose `forward` has an argument `offsets` gets the queries as well: query q
    has the rows offsets[q] to offsets[q + 1]. Then `predict` needs qid. Training is on the CPU.

    An interrupt from the keyboard ends the fit with the best network so far. Scores that overflow are a
    `NetworkOverflowError`, after which the ranker has the best network of the epochs before; if there is
    none, it is what it was. An error in another process is a `RankError` here, whatever it is there.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.torch import MLP, Adam
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(np.abs(X[:, 0]) + 0.1 * rng.normal(size=400), [0.5, 1.5])
    >>> ranker = NeuralRanker(network=MLP(dropout=0.2), optimizer=Adam(0.003)).fit(X, y, qid=qid)
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
        network: Network | None = None,
        input_transform: str = "log1p",
        normalization: str = "standard",
        optimizer: Optimizer | None = None,
        max_epochs: int = 100,
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
        self.network = network
        self.input_transform = input_transform
        self.normalization = normalization
        self.optimizer = optimizer
        self.max_epochs = max_epochs
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

        X              `Queries`; or an array or a frame, with y and qid; or a `StoredQueries` or its path,
                       which is read as the fit goes; or a list of LETOR files, which are loaded
        eval_set       queries that help to choose and are not trained on: `Queries`, or [(X, y)] with
                       eval_qid or eval_group; an item may be `Queries` or a stored set
        sample_weight  (N,) row weights; not for stored sets
        query_weight   (Q,) by first appearance, (N,) by row, or {id: weight}
        """
        with processes_of(self.distributed) as processes:
            check_metric(self.metric, self.convention)
            data: Data
            if (stored := as_stored(X)) is not None:
                no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
                data = self._stored_set(stored, query_weight)
            else:
                data = self._training_set(
                    X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
                )
            self._train(data, self._evaluation_sets(eval_set, eval_qid, eval_group), processes)
        return self

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        self._train(data, [] if validation is None else [validation], OneProcess())

    def _stored_set(self, stored: StoredQueries, query_weight: Any) -> StoredSet:
        """A stored set to train on."""
        data = StoredSet.of(stored, type(self).__name__, self._transform_by_query)
        self._know_features(stored.n_features, stored.feature_names)
        if query_weight is None:
            return data
        weight = as_query_weight(query_weight, stored.groups, stored.n_rows)
        return dataclasses.replace(data, query_weight=weight)

    @property
    def _transform_by_query(self) -> str | None:
        return self.input_transform if self.normalization == "query" else None

    def _stored_eval_set(self, item: Any) -> StoredSet:
        stored = self._given_stored(item)
        assert stored is not None  # the path of none is an error before
        data = StoredSet.of(stored, type(self).__name__, self._transform_by_query)
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        return dataclasses.replace(data, columns=columns)

    def _train(self, data: Data, validation: list[Data], processes: OneProcess) -> None:
        """Train a network and take it; all processes do this together, with the same queries or their own."""
        fitted = fit_ranker(self, data, validation, processes)
        self._set_fitted(fitted)
        if fitted.overflow is not None:
            raise fitted.overflow
        if fitted.result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {fitted.result.message}", RuntimeWarning, stacklevel=3)

    def _set_fitted(self, fitted: FittedNetwork) -> None:
        for p in fitted.module.parameters():  # their own memory again, without what training hung on it
            p.data, p.grad = p.data.clone(), None
        self.module_, self.scaling_ = fitted.module, fitted.preparation.scaling
        self.fit_result_, self.sigma_, self.relaxation_ = (
            fitted.result,
            fitted.result.sigma,
            fitted.relaxation,
        )
        if isinstance(fitted.relaxation, SmoothedIndicator) and fitted.result.sigma is not None:
            self.relaxation_ = dataclasses.replace(fitted.relaxation, sigma=fitted.result.sigma)
        self.n_rows_, self.n_queries_ = fitted.n_rows, fitted.n_queries

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        if self.normalization == "query":
            X = transformed(X, self.input_transform)
        return super()._by_query(X, groups)

    @property
    def _preparation(self) -> Preparation:
        return Preparation(self.input_transform, self.scaling_, DTYPES[self.dtype])

    def _scoring(self) -> Scoring:
        check_is_fitted(self, "module_")
        return scoring_of(self, self._preparation, self.relaxation_)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._scoring().scores(self.module_, X, groups)

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        scoring = self._scoring()
        if scoring.n_outputs == 1:
            return super()._ranks(X, groups)
        return scoring.ranks(self.module_, X, groups)

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
        cls, path: str | os.PathLike[str], *, network: nn.Module | Callable[[int], nn.Module] | None = None
    ) -> NeuralRanker:
        """The model that `save` wrote.

        Parameters
        ----------
        path : path
            A damaged, newer or other file is a `ModelFileError`.
        network : torch.nn.Module or function, optional
            For a model whose network is not an `MLP`: what was given for it. Its code is not in the file,
            which has the weights alone.

        Returns
        -------
        NeuralRanker
            With the parameters and the network of the model that was saved.

        """
        model, tensors = read_network(path, kind=cls.__name__)
        parameters, fitted = (
            found if isinstance(found, dict) else {}
            for found in (model.state.get("parameters"), model.state.get("fitted"))
        )
        saved = parameters.get("network")
        state = {**model.state, "fitted": {**fitted, "tensors": tensors}}
        if not isinstance(saved, str):
            if network is not None:
                raise ValueError(
                    f"{os.fspath(path)}: holds an MLP with its settings; give no network to load it."
                )
            return cls._from_record(path, state)
        if network is None:
            raise ModelFileError(
                f"{os.fspath(path)}: holds the weights of a network of one's own, {saved}; give it: "
                f"{cls.__name__}.load(path, network=...)."
            )
        return cls._from_record(path, state, network=network)

    def _parameters_to_save(self) -> dict[str, Any]:
        of_the_run = ("checkpoint", "on_epoch", "n_threads", "distributed")
        saved = {k: plain_data(v) for k, v in self.get_params(deep=False).items() if k not in of_the_run}
        network = as_network(self.network)
        saved["network"] = type(self.module_).__name__
        if isinstance(network, MLP):
            saved["network"] = plain_data(dataclasses.asdict(network))
        saved["optimizer"] = optimizer_record(as_optimizer(self.optimizer))
        saved["loss"] = name_of(self.loss)
        saved["gain"] = None if isinstance(self.gain, RankLinear) else str(self.gain)
        saved["relaxation"] = relaxation_record(as_relaxation(self.relaxation))
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
        if isinstance(saved["network"], dict):
            given["network"] = MLP(**saved["network"])
        given["optimizer"] = optimizer_from(saved["optimizer"])
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
            "validated_on": r.validated_on,
            "epochs": [dataclasses.asdict(epoch) for epoch in r.epochs],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        epochs = tuple(Epoch(**epoch) for epoch in state["epochs"])
        result = NetworkFit(state["status"], state["criterion"], state["validated_on"], epochs)
        relaxation = None if state["relaxation"] is None else relaxation_from(state["relaxation"])
        n_outputs = 1 if relaxation is None else relaxation.width
        rows = np.zeros((1, self.n_features_in_))
        module = build_module(as_network(self.network), rows, self._preparation, n_outputs, 0)
        try:
            module.load_state_dict(state["tensors"])
        except RuntimeError as error:
            raise ValueError(f"its weights are not of this network: {' '.join(str(error).split())}") from None
        self._set_fitted(
            FittedNetwork(module, self._preparation, relaxation, result, self.n_rows_, self.n_queries_)
        )
