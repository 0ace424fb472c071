"""NeuralRanker: a network as a scikit-learn estimator."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sinkprop.arguments import half_steps, number, threads, whole
from sinkprop.data import Groups
from sinkprop.estimator import BaseRanker, seed_of
from sinkprop.gains import Gain, RankLinear, as_gain
from sinkprop.judging import Judge, divide, gain_judge, metric_judge
from sinkprop.linear import TrainingSet, fingerprint, partitioned_ranks
from sinkprop.model_files import ModelFileError
from sinkprop.progress import progress_line
from sinkprop.relaxations import (
    Relaxation,
    SmoothedIndicator,
    as_relaxation,
    relaxation_from,
    relaxation_record,
    score_weights,
)
from sinkprop.scaling import SCALINGS
from sinkprop.selection import Selection, mean_over_queries
from sinkprop.torch.checkpoints import Checkpoint
from sinkprop.torch.files import read_network, write_network
from sinkprop.torch.fitting import Epoch, NetworkFit, Plan, fit_network
from sinkprop.torch.loss import SinkPropLoss, sinkprop_loss
from sinkprop.torch.network import ACTIVATIONS, MLP, NORMALIZATIONS
from sinkprop.torch.preparation import TRANSFORMS, Preparation, fit_preparation, transformed
from sinkprop.torch.scoring import NetworkOverflowError, checked_scores, network_scores, takes_offsets

__all__ = ["NeuralRanker"]

Floats = NDArray[np.float64]

_RIVALS = ("listnet", "approxndcg", "lambdarank")
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
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
    on_epoch        a function called with the `Epoch` that was finished, while the fit goes on
    n_threads       see `expected_gain`        verbose     False: no progress line even on a terminal
    random_state    of all that is drawn. The same gives the same network, whatever the number of threads

    The module gets rows (N, D) as they are after `normalization` and gives scores (N,) or (N, 1), or (N, 2)
    for a partitioned measure. One whose `forward` has an argument `offsets` gets the queries as well: query q
    has the rows offsets[q] to offsets[q + 1]. Then `predict` needs qid. Training is on the CPU.

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
        self.on_epoch = on_epoch
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @torch.inference_mode(False)  # type: ignore[untyped-decorator]  # whatever the caller's mode is
    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        if data.sample_weight is not None and not data.sample_weight.sum() > 0:
            raise ValueError("sample_weight must have a sum above 0; every weight is zero.")
        seed = seed_of(self.random_state)
        relaxation, plan = self._plan(data, seed)
        judge, criterion = self._criterion(weighted=data.sample_weight is not None)
        part, judging, judged_by = self._division(data, validation, seed)
        dtype = _DTYPES[self.dtype]
        preparation = fit_preparation(self.input_transform, self.normalization, part.X, dtype)
        module = self._network(part, preparation, plan.n_outputs, seed)
        checkpoint = None
        if self.checkpoint is not None:
            settings = self._settings(plan.seed, criterion)
            kind = f"{type(self).__name__}Checkpoint"
            weights = [x.numpy(force=True) for x in module.state_dict().values()]
            digest = fingerprint(repr((settings, repr(module))), data, validation, arrays=weights)
            checkpoint = Checkpoint(self.checkpoint, kind, digest)
        mean = None if judging is None else self._judgment(judging, preparation, relaxation, judge)
        on_training = None
        if plan.n_outputs == 1:  # the assignments of a partitioned measure would take as long as an epoch
            on_training = self._judgment(part, preparation, relaxation, judge)
        try:
            with progress_line(bool(self.verbose)) as notify:
                result = fit_network(
                    module,
                    part,
                    preparation,
                    plan,
                    judge=mean,
                    judge_training=on_training,
                    resumed=None if checkpoint is None else checkpoint.read(),
                    on_state=checkpoint,
                    on_epoch=self.on_epoch,
                    notify=notify,
                    criterion="" if judging is None else criterion,
                    judged_by=judged_by,
                )
        except NetworkOverflowError as error:
            if error.result is None:
                raise NetworkOverflowError(f"{type(self).__name__}: {error}") from None
            self._set_fitted(module, preparation, relaxation, error.result)
            self.n_rows_, self.n_queries_ = len(data.y), data.n_queries
            raise NetworkOverflowError(
                f"{type(self).__name__}: {error} The ranker has the best network of the "
                f"{len(error.result.epochs)} epochs before."
            ) from None
        if result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {result.message}", RuntimeWarning, stacklevel=3)
        elif self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        self._set_fitted(module, preparation, relaxation, result)

    def _set_fitted(
        self, module: nn.Module, preparation: Preparation, relaxation: Relaxation | None, result: NetworkFit
    ) -> None:
        for p in module.parameters():  # their own memory again, without what training hung on it
            p.data, p.grad = p.data.clone(), None
        self.module_, self.scaling_, self.fit_result_ = module, preparation.scaling, result
        self.sigma_, self.relaxation_ = result.sigma, relaxation
        if isinstance(relaxation, SmoothedIndicator) and result.sigma is not None:
            self.relaxation_ = dataclasses.replace(relaxation, sigma=result.sigma)

    def _plan(self, data: TrainingSet, seed: int) -> tuple[Relaxation | None, Plan]:
        """The parameters, checked."""
        relaxation, loss = self._loss(data)
        n_epochs = whole("max_epochs", self.max_epochs, 1)
        sigmas: tuple[float | None, ...] = (None,) * n_epochs
        if isinstance(relaxation, SmoothedIndicator):
            sigmas = _geometric(self.sigma, n_epochs)
            if isinstance(self.loss, SinkPropLoss):
                sigmas = (relaxation.sigma,) * n_epochs
        if self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be {_either(_DTYPES)}; got {self.dtype!r}.")
        for name, value, choices in (
            ("input_transform", self.input_transform, TRANSFORMS),
            ("normalization", self.normalization, SCALINGS),
            ("optimizer", self.optimizer, ("adam", "lbfgs")),
            ("schedule", self.schedule, ("constant", "cosine")),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be {_either(choices)}; got {value!r}.")
        if self.module is None:
            self._check_mlp()
        elif not callable(self.module):
            raise ValueError(
                "module must be an nn.Module, a function that makes one for a number of features, or None; "
                f"got {self.module!r}."
            )
        clip = None if self.clip_norm is None else number("clip_norm", self.clip_norm, above=True)
        return relaxation, Plan(
            loss=loss,
            sigmas=sigmas,
            optimizer=self.optimizer,
            learning_rate=number("learning_rate", self.learning_rate, above=True),
            weight_decay=number("weight_decay", self.weight_decay),
            schedule=self.schedule,
            clip_norm=clip,
            batch_documents=self._budget(len(data.y)),
            max_iter=whole("max_iter", self.max_iter, 1),
            patience=whole("patience", self.patience, 1),
            seed=seed,
            n_threads=threads(self.n_threads, len(data.y)),
            n_outputs=1 if relaxation is None else relaxation.width,
        )

    def _budget(self, n: int) -> int:
        """Documents of a minibatch, where there are n in all."""
        if self.batch_documents is None:
            return int(np.clip(n // 8, 256, 4096))
        return whole("batch_documents", self.batch_documents, 1)

    def _check_mlp(self) -> None:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
            raise ValueError(f"hidden must be a sequence of widths, as (64, 32); got {self.hidden!r}.")
        for width in self.hidden:
            whole("hidden", width, 1)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be {_either(ACTIVATIONS)}; got {self.activation!r}.")
        if self.layer_normalization is not None and self.layer_normalization not in NORMALIZATIONS:
            raise ValueError(
                f"layer_normalization must be {_either(NORMALIZATIONS)} or None; got "
                f"{self.layer_normalization!r}."
            )
        if number("dropout", self.dropout) >= 1:
            raise ValueError(f"dropout must be below 1; got {self.dropout!r}.")

    def _loss(self, data: TrainingSet) -> tuple[Relaxation | None, Callable[..., Tensor]]:
        """The relaxation, where the loss has one, and the loss as a `Plan` takes it."""
        given = self.loss
        if isinstance(given, str) and given == "sinkprop":
            gain, relaxation, epsilon = as_gain(self.gain), as_relaxation(self.relaxation), self.epsilon
            n_iter = half_steps(self.n_iter) / 2

            def sinkprop(scores: Tensor, labels: Tensor, sigma: float | None, **more: Any) -> Tensor:
                at = relaxation
                if isinstance(at, SmoothedIndicator) and sigma is not None:
                    at = dataclasses.replace(at, sigma=sigma)
                return sinkprop_loss(
                    scores,
                    labels,
                    gain=gain,
                    relaxation=at,
                    n_iter=n_iter,
                    epsilon=epsilon,
                    n_threads=1,
                    **more,
                )

            # what cannot be trained on fails here
            sinkprop(torch.zeros((1, 2) if relaxation.width == 2 else 1), torch.ones(1), None)
            return relaxation, sinkprop
        if isinstance(given, str):
            if given not in _RIVALS:
                raise ValueError(
                    f"loss must be 'sinkprop', {_either(_RIVALS)}, or a function "
                    f"loss(scores, labels, offsets=, query_weight=); got {given!r}."
                )
            from sinkprop.torch.rivals import LOSSES

            given = LOSSES[given]
            if isinstance(given, type):
                given = given()
        elif not callable(given):
            raise ValueError(f"loss must be a name or a function; got {given!r}.")
        name, with_rows = _name_of(given), False
        weight = data.sample_weight
        if weight is not None and not 0 < weight.min() == weight.max():
            with_rows = "sample_weight" in inspect.signature(getattr(given, "forward", given)).parameters
            if not with_rows:
                raise ValueError(
                    f"the loss {name} takes no sample_weight, so only equal ones can be given; use "
                    "query_weight, or loss='sinkprop'."
                )

        def own(
            scores: Tensor,
            labels: Tensor,
            sigma: float | None,
            *,
            offsets: Tensor,
            sample_weight: Tensor | None,
            query_weight: Tensor | None,
        ) -> Tensor:
            more = {"sample_weight": sample_weight} if with_rows else {}
            value = given(scores, labels, offsets=offsets, query_weight=query_weight, **more)
            if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
                what = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(
                    f"the loss {name} must give one number that depends on the scores, a mean over the "
                    f"queries; it gave {what}."
                )
            return value

        return (given.relaxation if isinstance(given, SinkPropLoss) else None), own

    def _division(
        self, data: TrainingSet, validation: TrainingSet | None, seed: int
    ) -> tuple[TrainingSet, TrainingSet | None, str]:
        """The queries to train on, those that judge, and how in words."""
        share = number("validation_fraction", self.validation_fraction)
        if share >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {self.validation_fraction!r}.")
        if validation is None and share == 0:
            return data, None, ""
        selection = Selection("validation", fraction=share or 0.5)
        division = divide(data, validation, selection, np.random.default_rng([seed, 0]))
        return division.parts[0], division.judges[0][1], division.judged_by

    def _criterion(self, *, weighted: bool) -> tuple[Judge, str]:
        """The function that gives the criterion of each query, and its name."""
        criterion: Any = self.criterion
        if criterion is not None and not isinstance(criterion, str):
            criterion = tuple(criterion)
        if isinstance(self.loss, str) and self.loss == "sinkprop":
            selection = Selection(criterion=criterion)
            return gain_judge(as_gain(self.gain), selection, self.convention, weighted=weighted)
        return metric_judge("ndcg@1-10" if criterion is None else criterion, self.convention)

    def _judgment(
        self, judging: TrainingSet, preparation: Preparation, relaxation: Relaxation | None, judge: Judge
    ) -> Callable[[nn.Module], float]:
        """The mean criterion of a network on the queries that judge."""
        rows, groups = preparation.kept(judging.X), judging.groups
        weight = judging.query_weight
        weight = weight if weight is not None and weight.sum() > 0 else None

        def mean(network: nn.Module) -> float:
            scores = self._outputs(network, rows, groups, preparation, relaxation)
            if relaxation is not None and scores.ndim == 2:
                scores = -self._partitioned(scores, groups, relaxation).astype(np.float64)
            return float(mean_over_queries(judge(judging, scores), weight))

        return mean

    def _network(self, data: TrainingSet, preparation: Preparation, n_outputs: int, seed: int) -> nn.Module:
        """A network to be trained, of the estimator's own."""
        n_features = data.X.shape[1]
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
            n = int(data.groups.offsets[1])
            more = {"offsets": torch.tensor([0, n])} if takes_offsets(made) else {}
            made.eval()
            with torch.no_grad():
                try:
                    scores = made(preparation(data.X[:n]), **more)
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
        for name in ("checkpoint", "on_epoch", "n_threads", "verbose", "module", "metric", "random_state"):
            del given[name]
        gain = as_gain(self.gain)
        given["gain"] = _name_of(gain.gain) if isinstance(gain, RankLinear) else str(gain)
        given["loss"] = _name_of(self.loss)
        return repr((sorted(given.items()), seed, criterion))

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        if self.normalization == "query":
            X = transformed(X, self.input_transform)
        return super()._by_query(X, groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        check_is_fitted(self, "module_")
        preparation = Preparation(self.input_transform, self.scaling_, _DTYPES[self.dtype])
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

    def _ranks(self, X: NDArray[Any], groups: Groups) -> NDArray[np.int64]:
        if self.relaxation_ is None or self.relaxation_.width == 1:
            return super()._ranks(X, groups)
        return self._partitioned(self._theta(X, groups), groups, self.relaxation_)

    def _partitioned(self, theta: Floats, groups: Groups, relaxation: Relaxation) -> NDArray[np.int64]:
        settings: dict[str, Any] = {"n_iter": self.n_iter, "epsilon": self.epsilon, "top": _TOP}
        return partitioned_ranks(theta, groups, relaxation, **settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a safetensors file with a checksum; an old file stays until the new is whole."""
        check_is_fitted(self, "module_")
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
        of_the_run = ("checkpoint", "on_epoch", "n_threads")
        saved = {k: _plain(v) for k, v in self.get_params(deep=False).items() if k not in of_the_run}
        saved["module"] = None if self.module is None else type(self.module_).__name__
        saved["loss"] = _name_of(self.loss)
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
        preparation = Preparation(self.input_transform, self.scaling_, _DTYPES[self.dtype])
        one = Groups(np.array([0, 1]), None, np.zeros(1, np.int64), 1)
        blank = TrainingSet(np.zeros((1, self.n_features_in_)), np.zeros(1), one)
        module = self._network(blank, preparation, n_outputs, 0)
        try:
            module.load_state_dict(state["tensors"])
        except RuntimeError as error:
            raise ValueError(f"its weights are not of this network: {' '.join(str(error).split())}") from None
        self._set_fitted(module, preparation, relaxation, result)


def _geometric(sigma: Any, n_epochs: int) -> tuple[float, ...]:
    """The sigma of each epoch: one for all, or from the first to the last, each the same times the last."""
    ends = [sigma, sigma] if isinstance(sigma, Real) else sigma
    if (
        not isinstance(ends, Sequence | np.ndarray)
        or len(ends) != 2
        or not all(isinstance(s, Real) and not isinstance(s, bool) and 0 < float(s) < math.inf for s in ends)
    ):
        raise ValueError(
            "sigma must be a finite number above 0, or two: of the first and of the last epoch; got "
            f"{sigma!r}."
        )
    first, last = (float(s) for s in ends)
    return tuple(first * (last / first) ** (i / max(n_epochs - 1, 1)) for i in range(n_epochs))


def _either(names: Any) -> str:
    return " or ".join(map(repr, names))


def _name_of(function: Any) -> str:
    """The name of a function or of an object's class, with its settings where they can be seen."""
    if isinstance(function, str):
        return function
    if isinstance(function, partial):
        return f"{_name_of(function.func)}{function.args}{sorted(function.keywords.items())}"
    if isinstance(function, nn.Module):
        return repr(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _plain(value: Any) -> Any:
    """The value as a model file can hold it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(item) for item in value]
    return value
