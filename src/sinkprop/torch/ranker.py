"""NeuralRanker: a network as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sinkprop.common.forks import guard_forked_process
from sinkprop.common.plain_data import plain_data, plain_parameter
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_query_weight
from sinkprop.data.feature_scaling import transformed
from sinkprop.data.queries import Groups, Ids
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import OF_THE_RUN, BaseRanker
from sinkprop.estimator.external_queries import as_stored, no_arrays
from sinkprop.estimator.fit_record import timeless
from sinkprop.estimator.keyword_habits import refuse
from sinkprop.model_files import START, ModelFileError
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import (
    Relaxation,
    SmoothedIndicator,
    as_relaxation,
    relaxation_from,
    relaxation_record,
)
from sinkprop.torch.networks.ensemble import ensemble_of
from sinkprop.torch.neural.files import network_from, write_network
from sinkprop.torch.neural.fit import FittedNetwork, fit_ranker, scoring_of
from sinkprop.torch.neural.network import (
    OWN,
    Network,
    as_network,
    build_module,
    network_from_record,
    network_record,
)
from sinkprop.torch.neural.optimizers import Optimizer, as_optimizer, optimizer_from, optimizer_record
from sinkprop.torch.neural.preparation import Preparation
from sinkprop.torch.neural.processes import OneProcess, processes_of, rank_here
from sinkprop.torch.neural.records import Epoch, NetworkFit
from sinkprop.torch.neural.scoring import Scoring, takes_offsets
from sinkprop.torch.neural.settings import DTYPES, name_of
from sinkprop.torch.neural.stored import Data, StoredSet

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["NeuralRanker"]


class NeuralRanker(BaseRanker):
    """A neural ranker trained on the expected value of its metric by Sinkhorn propagation; needs PyTorch.

    Parameters
    ----------
    loss : str or function, default "sinkprop"
        "sinkprop"; a baseline, "listnet", "approxndcg" or "lambdarank"; or a function ``loss(scores, labels,
        offsets=..., query_weight=...)`` that returns the mean over the queries, like all losses of
        `sinkprop.torch`.
    gain : str or Gain, default "ndcg"
        The metric whose expected value the loss "sinkprop" maximizes: an object or its name. If it does not
        state the discount of NDCG, the discount is that of `convention`.
    relaxation : str or Relaxation, default "gaussian"
        Map from the scores to the pre-Sinkhorn matrix in the loss "sinkprop". `sigma` replaces the width of a
        smoothed indicator.
    sigma : float or (float, float), default (1.0, 0.25)
        Width of a smoothed indicator in units of the network's scores: one width for all epochs, or the
        widths of the first and the last epoch, with a geometric progression between them. A `SinkPropLoss`
        that is given as `loss` keeps its own width; with `LBFGS` it needs a relaxation.
    start_epochs : float, default 5.0
        Time in epochs in which the loss "sinkprop" begins to dominate. At first, with nearly equal scores,
        its gradient is small. So the gradient of a cross entropy, between the gains of a query's documents
        and the softmax of their scores, is added to it, with the weight ``exp(-epoch / start_epochs)``. 0
        leaves it out, as do `LBFGS` and partitioned measures.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations, or their limit, in the loss "sinkprop", see `sinkprop_loss`.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix in the loss "sinkprop".
    network : MLP, ListTransformer, torch.nn.Module or function, optional
        An `MLP`, which scores each document by itself; a `ListTransformer`, with attention between the
        documents of a query; an `nn.Module`, which is copied; or a function that takes the number of features
        and returns an `nn.Module`. By default `MLP()`.
    input_transform : {"log1p", "none"}, default "log1p"
        Transform of each feature: ``sign(x) log(1 + |x|)``, or none. Part of the model.
    input_noise : float, default 0.0
        Standard deviation of the normal noise that is added to the inputs of the network in training, after
        `normalization`.
    normalization : {"standard", "query", "none"}, default "standard"
        Feature scaling after the transform, part of the model. With "query", `predict` needs qid.
    missing : {"indicator", "mean", "error"}, default "indicator"
        Treatment of missing values (NaN), part of the model. "indicator" puts the mean of the transformed
        feature in their place, and adds a column that says where the feature was missing, for each feature
        with missing values in training. "mean" adds no columns. "error" refuses missing values.
    optimizer : Adam or LBFGS, optional
        `Adam` on minibatches, or `LBFGS` on all queries together. By default `Adam()`.
    n_networks : int, default 1
        Number of networks with different random numbers, which are trained one after another. The score is
        the mean of their scores, each divided by the spread of its network's scores within the queries.
    max_epochs : int, default 100
        Largest number of passes over the training queries. With `LBFGS`, an epoch is `max_iter` iterations.
    criterion : str or sequence of str, optional
        Metrics whose mean over the validation queries selects the epoch. By default, the loss "sinkprop" uses
        the default criterion of `Selection` for the gain, and other losses use "ndcg@1-10".
    patience : int, default 20
        Number of epochs without improvement after which training stops early.
    validation_fraction : float, default 0.2
        Fraction of the queries held out for validation if no eval_set is given. 0 trains on all queries and
        takes the last epoch.
    dtype : {"float32", "float64"}, default "float32"
        Precision of the network.
    metric : str, default "ndcg@10"
        Metric of `score`.
    convention : str, default "standard"
        Name of the convention by which `metric` and `criterion` are computed; see `evaluate`.
    checkpoint : path, optional
        File to which the fit saves its state and from which an unfinished fit resumes. Removed when the
        fit has finished.
    distributed : {"shared", "own"}, optional
        Train one network with all processes of torch.distributed, each of which calls `fit`. With "shared"
        every process passes the same queries and they divide the work; with "own" every process passes its
        own queries. Rank 0 writes files. By default one process trains alone.
    on_epoch : function, optional
        Called with each finished `Epoch` during the fit.
    n_threads : int, optional
        Number of threads, see `expected_gain`. Does not change the model.
    random_state : int, optional, default 0
        Seed of all random numbers. The same seed gives the same network for any number of threads.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network of the best epoch; the mean of `n_networks` networks if there are several.
    scaling_ : Scaling
        The feature scaling.
    missing_ : MissingValues or None
        The treatment of missing values; None if there were none in the fit. With indicators, `scaling_` and
        the input of the network have D + I columns: the features, then one indicator for each of I features.
    relaxation_ : Relaxation or None
        Relaxation of the network's scores; None if the loss has none.
    sigma_ : float or None
        Width of the relaxation in the best epoch; None if the loss has none.
    fit_result_ : NetworkFit
        Record of every epoch, and of each network if there are several.

    Notes
    -----
    The module takes rows (N, D) after `normalization` and returns scores of shape (N,) or (N, 1), or (N, 2)
    for a partitioned measure. If its `forward` has an argument `offsets`, it also receives the queries: query
    q has the rows ``offsets[q]`` to ``offsets[q + 1]``. Then `predict` needs qid. Training runs on the CPU.

    A keyboard interrupt ends the fit with the best network so far. Scores that overflow raise a
    `NetworkOverflowError`, after which the ranker has the best network of the earlier epochs; if there is
    none, the ranker is unchanged. An error in another process is raised here as a `RankError`.

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

    _takes_label_columns = True

    def __init__(
        self,
        loss: str | Callable[..., Tensor] = "sinkprop",
        *,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        sigma: float | tuple[float, float] = (1.0, 0.25),
        start_epochs: float = 5.0,
        n_iter: Iterations = 5,
        epsilon: float = 1e-6,
        network: Network | None = None,
        input_transform: str = "log1p",
        input_noise: float = 0.0,
        normalization: str = "standard",
        missing: str = "indicator",
        optimizer: Optimizer | None = None,
        n_networks: int = 1,
        max_epochs: int = 100,
        criterion: str | Sequence[str] | None = None,
        patience: int = 20,
        validation_fraction: float = 0.2,
        dtype: str = "float32",
        metric: str = "ndcg@10",
        convention: str = "standard",
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
        self.start_epochs = start_epochs
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.network = network
        self.input_transform = input_transform
        self.input_noise = input_noise
        self.normalization = normalization
        self.missing = missing
        self.optimizer = optimizer
        self.n_networks = n_networks
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
        **unknown: NoReturn,
    ) -> NeuralRanker:
        """Train the network and select its best epoch on validation queries.

        Parameters
        ----------
        X : array of shape (N, D), frame, Queries, StoredQueries, path(s) or ClickLog
            Features of the documents, as an array or a frame with `y` and `qid`; `Queries`; a stored set or
            its path, which is read during the fit; or a list of LETOR files, which are loaded.
        y : array of shape (N,), optional
            Labels of the documents, not below 0. Leave out if `X` contains the labels.
        qid : sequence of shape (N,), optional
            Query id of each row.
        group : array of shape (Q,), optional
            Number of rows of each query, in order, instead of `qid`.
        eval_set : Queries or list, optional
            Validation queries, which select the epoch and are not trained on: `Queries`, or a list of
            ``(X, y)`` with `eval_qid` or `eval_group`. An item may also be `Queries` or a stored set.
        eval_qid : list of sequences, optional
            Query ids of each item of `eval_set`.
        eval_group : list of arrays, optional
            Numbers of rows per query of each item of `eval_set`, instead of `eval_qid`.
        sample_weight : array of shape (N,), optional
            Row weights. Not available for stored sets.
        query_weight : array of shape (Q,) or (N,), or mapping, optional
            Query weights: one per query in order of first appearance, one per row, or {id: weight}.
        **unknown
            Not accepted: any other keyword raises a TypeError that says what to write instead.

        Returns
        -------
        NeuralRanker
            The fitted ranker itself.
        """
        refuse(type(self), unknown, method="fit")
        with processes_of(self.distributed) as processes:
            self._check_parameters()
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
        """Check a stored set that is given for training, and attach the query weights, if any."""
        data = self._all_of(stored)
        self._know_features(stored.n_features, stored.feature_names)
        if query_weight is None:
            return data
        weight = as_query_weight(query_weight, stored.groups, stored.n_rows)
        return dataclasses.replace(data, query_weight=weight)

    def _all_of(self, stored: StoredQueries, name: str = "") -> StoredSet:
        by_query = self._transform_by_query
        return StoredSet.of(stored, type(self).__name__, by_query, allow_nan=self._allow_nan, name=name)

    @property
    def _transform_by_query(self) -> str | None:
        return self.input_transform if self.normalization == "query" else None

    def _stored_eval_set(self, item: Any) -> StoredSet:
        stored = self._given_stored(item)
        assert stored is not None  # `_given_stored` raises an error for a path that is not a stored set
        data = self._all_of(stored, "eval_set ")
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        return dataclasses.replace(data, columns=columns)

    def _train(self, data: Data, validation: list[Data], processes: OneProcess) -> None:
        """Train a network and store it in this ranker; every process of a distributed fit calls this.

        Raises a NetworkOverflowError after an overflow, and warns after an interrupt. In both cases the
        ranker has the best network of the finished epochs. If no epoch was finished, the ranker is unchanged,
        and an interrupt raises a KeyboardInterrupt.
        """
        guard_forked_process()
        fitted = fit_ranker(self, data, validation, processes)
        self._set_fitted(fitted)
        self._keep_held_out(fitted.held_out)
        if fitted.overflow is not None:
            raise fitted.overflow
        if fitted.result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {fitted.result.message}", RuntimeWarning, stacklevel=4)

    def _set_fitted(self, fitted: FittedNetwork) -> None:
        # After training, all parameters are views of one vector. Give each its own memory, and no gradient.
        for p in fitted.module.parameters():
            p.data, p.grad = p.data.clone(), None
        self.module_, self.scaling_ = fitted.module, fitted.preparation.scaling
        self.missing_ = fitted.preparation.missing
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
        return Preparation(self.input_transform, self.scaling_, DTYPES[self.dtype], self.missing_)

    def _filled(self, X: NDArray[Any]) -> NDArray[Any]:
        return X  # missing values are treated after the transform, by `Preparation`

    def _scoring(self) -> Scoring:
        check_is_fitted(self, "module_")
        return scoring_of(self, self._preparation, self.relaxation_)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._scoring().scores(self.module_, X, groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        return self._scoring().outputs(self.module_, X, groups)

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        scoring = self._scoring()
        if scoring.n_outputs == 1:
            return super()._ranks(X, groups)
        return scoring.ranks(self.module_, X, groups)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a safetensors file with a checksum.

        An existing file is replaced only when the new one is complete. After a distributed fit all processes
        have the same network, and only rank 0 writes.

        Parameters
        ----------
        path : path
            File to write.
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
        """Load a model that `save` wrote.

        Parameters
        ----------
        path : path
            File to read.
        network : torch.nn.Module or function, optional
            The network that was passed to the ranker, if it is not an `MLP` or a `ListTransformer`. The file
            contains its weights but not its code.

        Returns
        -------
        NeuralRanker
            A fitted ranker with the parameters and the network of the saved model.

        Raises
        ------
        ModelFileError
            If the file is damaged, has a newer format, or is not a neural ranker.
        """
        with open(path, "rb") as handle:
            return cls._from_file(path, handle, handle.read(START), network)

    @classmethod
    def _from_file(
        cls, path: str | os.PathLike[str], handle: IO[bytes], start: bytes, network: Any = None
    ) -> NeuralRanker:
        """Load a model from the open file `path`, whose first `START` bytes have been read; see `load`."""
        model, tensors = network_from(handle, start, path, kind=cls.__name__)
        parameters, fitted = (
            found if isinstance(found, dict) else {}
            for found in (model.state.get("parameters"), model.state.get("fitted"))
        )
        saved = parameters.get("network")
        state = {**model.state, "fitted": {**fitted, "tensors": tensors}}
        if not isinstance(saved, str):
            if network is not None:
                raise ValueError(
                    f"{os.fspath(path)}: holds the settings of its network; load it without network=."
                )
            return cls._from_record(path, state)
        if network is None:
            raise ModelFileError(
                f"{os.fspath(path)}: holds the weights of a custom network, {saved}, but not its code; call "
                f"{cls.__name__}.load(path, network=...)."
            )
        return cls._from_record(path, state, network=network)

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = {k: plain_parameter(v) for k, v in self.get_params(deep=False).items() if k not in OF_THE_RUN}
        network = as_network(self.network)
        module = self.module_.networks[0] if self.n_networks > 1 else self.module_
        saved["network"] = type(module).__name__
        if isinstance(network, OWN):
            saved["network"] = None if self.network is None else plain_data(network_record(network))
        if self.optimizer is not None:
            saved["optimizer"] = optimizer_record(as_optimizer(self.optimizer))
        saved["loss"] = name_of(self.loss)
        saved["gain"] = as_gain(self.gain).text
        if not isinstance(self.relaxation, str):
            saved["relaxation"] = relaxation_record(self.relaxation)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = dict(saved)
        if isinstance(saved["network"], dict):
            given["network"] = network_from_record(saved["network"])
        if saved["optimizer"] is not None:
            given["optimizer"] = optimizer_from(saved["optimizer"])
        if isinstance(saved["relaxation"], dict):
            given["relaxation"] = relaxation_from(saved["relaxation"])
        as_relaxation(given["relaxation"])
        # The functions of a custom gain are not saved. Predictions do not need them, so any gain will do.
        if given["gain"] is None:
            given["gain"] = "ndcg"
        return given

    def _fitted_state(self) -> dict[str, Any]:
        r = self.fit_result_
        network = as_network(self.network)
        own = {"network": plain_data(network_record(network))} if isinstance(network, OWN) else {}
        members = {"members": [_fit_record(member) for member in r.members], "value": r.value}
        return {
            "relaxation": None if self.relaxation_ is None else relaxation_record(self.relaxation_),
            **own,
            **_fit_record(r),
            **(members if r.members else {}),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        members = tuple(_fit_from(member) for member in state.get("members", ()))
        result = dataclasses.replace(_fit_from(state), members=members, value=state.get("value"))
        relaxation = None if state["relaxation"] is None else relaxation_from(state["relaxation"])
        n_outputs = 1 if relaxation is None else relaxation.width
        rows = np.zeros((1, self.n_features_in_))
        guard_forked_process()
        # the settings with which the network was fitted, also if other settings become the default
        saved, prepared = state.get("network"), self._preparation
        network = as_network(self.network) if saved is None else network_from_record(saved)
        modules = [build_module(network, rows, prepared, n_outputs, 0) for _ in range(len(members) or 1)]
        module = modules[0]
        if members:
            module = ensemble_of(modules, [1.0] * len(members), listwise=takes_offsets(module))
        try:
            module.load_state_dict(state["tensors"])
        except RuntimeError as error:
            raise ValueError(f"its weights do not fit this network: {' '.join(str(error).split())}") from None
        self._set_fitted(
            FittedNetwork(module, self._preparation, relaxation, result, self.n_rows_, self.n_queries_)
        )


def _fit_record(fit: NetworkFit) -> dict[str, Any]:
    """Return the record of the fit of one network as plain values."""
    return {
        "status": fit.status,
        "criterion": fit.criterion,
        "validated_on": fit.validated_on,
        "epochs": [timeless(epoch) for epoch in fit.epochs],
    }


def _fit_from(record: dict[str, Any]) -> NetworkFit:
    epochs = tuple(Epoch(**epoch) for epoch in record["epochs"])
    return NetworkFit(record["status"], record["criterion"], record["validated_on"], epochs)


def network_ranker(path: str | os.PathLike[str], handle: IO[bytes], start: bytes) -> NeuralRanker:
    """Load a model from the open file `path`, of which the `START` bytes `start` have been read."""
    return NeuralRanker._from_file(path, handle, start)
