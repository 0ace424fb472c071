"""SinkPropRanker: the paper's method as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from sinkprop.arguments import whole
from sinkprop.data import Groups
from sinkprop.estimator import BaseRanker, Ids, seed_of
from sinkprop.gains import NDCG, Gain, RankLinear, as_gain
from sinkprop.judging import Judge, metric_judge
from sinkprop.linear import TrainingSet, linear_scores, partitioned_ranks
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.objective import doubly_stochastic, expected_gain, expected_ranks
from sinkprop.progress import progress_line
from sinkprop.ranked import ranking
from sinkprop.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator
from sinkprop.scaling import fit_scaling
from sinkprop.selection import Selection, as_selection, selection_from, selection_record
from sinkprop.training import Annealing, Finished, FitResult, Recipe, Stage, train

__all__ = ["SinkPropRanker"]

Floats = NDArray[np.float64]

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
RELAXATIONS: dict[str, Relaxation] = {
    "gaussian": SmoothedIndicator(kernel="gaussian"),
    "laplace": SmoothedIndicator(kernel="laplace"),
    "logit-logistic": PartitionedMeasure("logit-logistic"),
    "probit": PartitionedMeasure("probit"),
    "beta": PartitionedMeasure("beta"),
}
_CHECKPOINT = "SinkPropRankerCheckpoint"


class SinkPropRanker(BaseRanker):
    """A linear ranker trained on the expected value of its metric, by Sinkhorn propagation.

    Starts at the least-squares weights on the labels, maximizes the expected gain less a penalty on the
    squared distance to them by L-BFGS, at ever less smoothing, and lets queries that took no part judge where
    to stop (Adams and Zemel 2011; the choice is `Selection`'s).

    gain           what is maximized: "ndcg", "ndcg@10", "p@5", "rbp@0.8", or a `Gain`
    relaxation     "gaussian" (the paper's smoothed indicator) or "laplace"; or a partitioned measure
                   "logit-logistic", "probit" or "beta", with two outputs a document; or a `Relaxation`, whose
                   sigma the annealing sets
    penalty        the penalties tried, or one of them
    annealing      `Annealing`: the sigmas, from smooth to sharp. A partitioned measure has as many stages
                   without a sigma
    selection      `Selection`, or the name of its method
    normalization  of features: "standard", "query" (LETOR's QueryLevelNorm; then `predict` needs qid) or
                   "none". It is part of the model. The penalty is on weights of normalized features
    resample       copies of each training query with its documents drawn anew, 20 in the paper; 0 for none
    n_iter         Sinkhorn iterations        epsilon     what is added to every entry of A
    max_iter       L-BFGS iterations a stage  tol         relative improvement below which a stage ends
    top            documents to which the Hungarian algorithm is applied when a partitioned measure ranks
    metric         of `score`                 convention  of the metrics, see `evaluate`
    checkpoint     a file to which the fit writes as it goes, and from which it resumes; removed when done
    on_stage       a function called with the `Stage` that was finished, while the fit goes on
    n_threads      see `expected_gain`        verbose     False: no progress line even on a terminal
    random_state   of splits and resampling. The same gives the same model, whatever the number of threads

    A row's weight multiplies the gain of its document, in the best ranking too.

    After `fit`: `coef_` (D,), the weights of normalized features; `intercept_`; `sigma_` and `relaxation_` of
    the model's scores; `fit_result_`, the record of every stage; `scaling_`. An interrupt from the keyboard
    ends the fit with the best model so far.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> ranker = SinkPropRanker().fit(X, y, qid=qid)
    >>> ranker.rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        *,
        penalty: float | Sequence[float] = PENALTIES,
        annealing: Annealing | None = None,
        selection: str | Selection = "auto",
        normalization: str = "standard",
        resample: int = 0,
        n_iter: int = 5,
        epsilon: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-9,
        top: int = 200,
        metric: str = "ndcg@10",
        convention: str = "letor",
        checkpoint: str | os.PathLike[str] | None = None,
        on_stage: Callable[[Stage], None] | None = None,
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.gain = gain
        self.relaxation = relaxation
        self.penalty = penalty
        self.annealing = annealing
        self.selection = selection
        self.normalization = normalization
        self.resample = resample
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.tol = tol
        self.top = top
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.on_stage = on_stage
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        recipe = self._recipe(weighted=data.sample_weight is not None)
        scaling = fit_scaling(self.normalization, data.X)
        resumed, write = self._checkpointing(data, validation, recipe)
        with progress_line(bool(self.verbose)) as notify:
            result = train(
                data,
                validation,
                scaling,
                recipe,
                resumed=resumed,
                checkpoint=write,
                on_stage=self.on_stage,
                notify=notify,
            )
        if result.status == "interrupted":
            warnings.warn(f"SinkPropRanker: {result.message}", RuntimeWarning, stacklevel=3)
        elif self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        self.scaling_, self.relaxation_ = scaling, recipe.at(result.sigma)
        self._set_result(result)

    def rank_distribution(
        self,
        X: ArrayLike,
        *,
        ranks: ArrayLike | None = None,
        sigma: float | None = None,
    ) -> Floats:
        """Pi of one query, the rows of X: Pi[j, k - 1] is the probability that row j is at rank k.

        `ranks` asks for some columns only. `sigma` is in units of the model's scores, whose spread within
        training queries is 1; the default is that of the fit.
        """
        theta, relaxation = self._theta_of_query(X), self._relaxation_at(sigma)
        return doubly_stochastic(
            theta, ranks=ranks, relaxation=relaxation, n_iter=self.n_iter, epsilon=self.epsilon
        )

    def expected_rank(
        self,
        X: ArrayLike,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        sigma: float | None = None,
    ) -> Floats:
        """Expected rank of each row in its query, (N,): sum_k k Pi[j, k]."""
        X = self._features(X)
        groups = self._groups(qid, group, len(X), "expected_rank")
        theta = self._theta(self._by_query(X, groups))
        return self._expected_ranks(theta, groups, self._relaxation_at(sigma))

    def _expected_ranks(self, theta: Floats, groups: Groups, relaxation: Relaxation) -> Floats:
        codes = np.repeat(np.arange(len(groups.queries)), np.diff(groups.offsets))
        rows: Any = slice(None) if groups.rows is None else groups.rows
        out = np.empty(len(theta))
        out[rows] = expected_ranks(
            theta[rows],
            codes,
            relaxation=relaxation,
            n_iter=self.n_iter,
            epsilon=self.epsilon,
            n_threads=self.n_threads,
        )
        return out

    def _theta(self, X: NDArray[Any]) -> Floats:
        return linear_scores(X, self._weights, self.scaling_)

    def _theta_of_query(self, X: ArrayLike) -> Floats:
        X = self._features(X)
        one = Groups(np.array([0, len(X)]), None, np.zeros(1, np.int64), len(X))
        return self._theta(self._by_query(X, one))

    def _relaxation_at(self, sigma: float | None) -> Relaxation:
        check_is_fitted(self)
        if sigma is None:
            return self.relaxation_
        if not isinstance(self.relaxation_, SmoothedIndicator):
            raise ValueError("sigma is a setting of the smoothed indicator; a partitioned measure has none.")
        return dataclasses.replace(self.relaxation_, sigma=sigma)

    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        theta = self._theta(X)
        if theta.ndim == 1:
            return theta
        # the middle of the document's distribution over (0, 1), where 0 is the top
        return theta[:, 1] - theta[:, 0] if self._is_beta() else -theta[:, 0]

    def _is_beta(self) -> bool:
        return isinstance(self.relaxation_, PartitionedMeasure) and self.relaxation_.family == "beta"

    def _ranks(self, X: NDArray[Any], groups: Groups) -> NDArray[np.int64]:
        if self.relaxation_.width == 1:  # the best assignment under ln Pi is the sorted order
            return super()._ranks(X, groups)
        return partitioned_ranks(
            self._theta(X),
            groups,
            self.relaxation_,
            n_iter=self.n_iter,
            epsilon=self.epsilon,
            top=self.top,
        )

    def _recipe(self, *, weighted: bool) -> Recipe:
        """The parameters, checked."""
        gain = as_gain(self.gain)
        relaxation = self.relaxation
        if isinstance(relaxation, str):
            if relaxation not in RELAXATIONS:
                raise ValueError(
                    f"relaxation must be one of {', '.join(map(repr, RELAXATIONS))} or a Relaxation; "
                    f"got {relaxation!r}."
                )
            relaxation = RELAXATIONS[relaxation]
        elif not isinstance(relaxation, Relaxation):
            raise ValueError(f"relaxation must be a name or a Relaxation; got {relaxation!r}.")
        selection = as_selection(self.selection)
        annealing = Annealing() if self.annealing is None else self.annealing
        if not isinstance(annealing, Annealing):
            raise ValueError(f"annealing must be an Annealing or None; got {annealing!r}.")
        judge, criterion = _judge(gain, selection, self.convention, weighted=weighted)
        self._check_metric()
        if not isinstance(self.tol, int | float) or not 0 <= self.tol < math.inf:
            raise ValueError(f"tol must be a number, not below 0; got {self.tol!r}.")
        return Recipe(
            gain=gain,
            relaxation=relaxation,
            penalties=_penalties(self.penalty),
            sigmas=annealing.sigmas if relaxation.width == 1 else (None,) * len(annealing.sigmas),
            selection=selection,
            judge=judge,
            criterion=criterion,
            n_iter=whole("n_iter", self.n_iter, 0),
            epsilon=self.epsilon,
            max_iter=whole("max_iter", self.max_iter, 1),
            tol=float(self.tol),
            resample=whole("resample", self.resample, 0),
            top=whole("top", self.top, 1),
            seed=seed_of(self.random_state),
            n_threads=self.n_threads,
        )

    def _checkpointing(
        self, data: TrainingSet, validation: TrainingSet | None, recipe: Recipe
    ) -> tuple[list[Finished], Callable[[Sequence[Finished]], None] | None]:
        """The stages of an earlier, unfinished fit, and the function that writes those of this one."""
        if self.checkpoint is None:
            return [], None
        path = self.checkpoint
        fingerprint = _fingerprint(data, validation, recipe, self.normalization, self.convention)

        def write(finished: Sequence[Finished]) -> None:
            stages = [dataclasses.asdict(record) for record in finished]
            for stage in stages:
                stage["weights"] = np.stack(stage["weights"])
            write_model(path, _CHECKPOINT, {"fingerprint": fingerprint, "stages": stages})

        if not os.path.exists(path):
            return [], write
        state = read_model(path, kind=_CHECKPOINT).state
        if state["fingerprint"] != fingerprint:
            raise ModelFileError(
                f"{os.fspath(path)}: a checkpoint of a fit with other data or parameters, left as it is. "
                "Give another file, or remove this one."
            )
        return [Finished(**{**stage, "weights": tuple(stage["weights"])}) for stage in state["stages"]], write

    def _set_result(self, result: FitResult) -> None:
        self.fit_result_, self._weights, self.sigma_ = result, result.weights, result.sigma
        n_features = self.n_features_in_
        self.coef_ = result.weights if result.weights.ndim == 1 else result.weights[:n_features].T
        self.intercept_ = 0.0 if result.weights.ndim == 1 else result.weights[n_features]

    def _parameters_to_save(self) -> dict[str, Any]:
        of_the_run = ("checkpoint", "on_stage", "n_threads")
        saved = {k: v for k, v in self.get_params(deep=False).items() if k not in of_the_run}
        saved["gain"] = None if isinstance(self.gain, RankLinear) else str(self.gain)
        saved["relaxation"] = _relaxation_record(self.relaxation_)
        saved["penalty"] = [float(p) for p in _penalties(self.penalty)]
        saved["selection"] = selection_record(self.selection)
        if self.annealing is not None:
            saved["annealing"] = dataclasses.asdict(self.annealing)
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return saved

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        given = dict(saved)
        given["relaxation"] = _relaxation_from(given["relaxation"])
        given["penalty"] = tuple(given["penalty"])
        if given["annealing"] is not None:
            given["annealing"] = Annealing(**given["annealing"])
        given["selection"] = selection_from(given["selection"])
        if given["gain"] is None:  # a function of the user's own is not data; predictions do not need it
            given["gain"] = "ndcg"
        return given

    def _fitted_state(self) -> dict[str, Any]:
        r = self.fit_result_
        return {
            "weights": r.weights,
            "sigma": r.sigma,
            "relaxation": _relaxation_record(self.relaxation_),
            "status": r.status,
            "criterion": r.criterion,
            "judged_by": r.judged_by,
            "stages": [dataclasses.asdict(stage) for stage in r.stages],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.relaxation_ = _relaxation_from(state["relaxation"])
        result = FitResult(
            state["status"],
            state["weights"],
            state["sigma"],
            state["criterion"],
            state["judged_by"],
            tuple(Stage(**stage) for stage in state["stages"]),
        )
        rows = self.n_features_in_ + (self.relaxation_.width == 2)
        if result.weights.shape != ((rows,) if self.relaxation_.width == 1 else (rows, 2)):
            raise ValueError(f"weights of shape {result.weights.shape} for {self.n_features_in_} features")
        self._set_result(result)


def _penalties(penalty: float | Sequence[float]) -> tuple[float, ...]:
    try:
        values = tuple(float(p) for p in np.atleast_1d(np.asarray(penalty, dtype=np.float64)))
    except (TypeError, ValueError):
        values = ()
    if not values or not all(0 <= p < math.inf for p in values):
        raise ValueError(f"penalty must be a finite number, not below 0, or several; got {penalty!r}.")
    return tuple(sorted(set(values)))


def _judge(gain: Gain, selection: Selection, convention: str, *, weighted: bool) -> tuple[Judge, str]:
    """The function that gives the criterion of each query, and its name."""
    if selection.criterion is None and (weighted or not isinstance(gain, NDCG)):

        def gain_itself(part: TrainingSet, scores: Floats) -> Floats:
            # whole numbers, twenty sigmas apart: Pi is the permutation matrix to the last bit
            apart = -ranking(scores, part.codes).ranks.astype(np.float64)
            return expected_gain(
                apart,
                part.y,
                part.codes,
                gain=gain,
                relaxation=SmoothedIndicator(0.05),
                n_iter=1,
                epsilon=0,
                sample_weight=part.sample_weight,
            ).per_query

        return gain_itself, "gain" if isinstance(gain, RankLinear) else str(gain)
    names: Any = selection.criterion
    if names is None:
        names = "ndcg@1-10"
        convention = "letor" if gain.discount == "letor" else "standard"  # type: ignore[attr-defined]
    return metric_judge(names, convention)


def _fingerprint(
    data: TrainingSet,
    validation: TrainingSet | None,
    recipe: Recipe,
    normalization: str,
    convention: str,
) -> str:
    """A digest of everything on which the stages of a fit depend."""
    digest = hashlib.sha256()
    # The judge is its criterion and convention; the text of a function holds its address, which changes from
    # one process to the next.
    settings = [
        (field.name, getattr(recipe, field.name))
        for field in dataclasses.fields(recipe)
        if field.name not in ("judge", "n_threads")
    ]
    digest.update(repr((settings, normalization, convention)).encode())
    for part in (data, validation):
        for array in (
            ()
            if part is None
            else (part.X, part.y, part.groups.offsets, part.sample_weight, part.query_weight)
        ):
            if array is not None:
                digest.update(repr((array.shape, array.dtype)).encode())
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _relaxation_record(relaxation: Relaxation) -> dict[str, Any]:
    return {"type": type(relaxation).__name__, **dataclasses.asdict(relaxation)}  # type: ignore[call-overload]


def _relaxation_from(record: dict[str, Any]) -> Relaxation:
    kinds = {"SmoothedIndicator": SmoothedIndicator, "PartitionedMeasure": PartitionedMeasure}
    kind = kinds[record["type"]]
    made: Relaxation = kind(**{name: value for name, value in record.items() if name != "type"})
    return made
