"""BoostedRanker: boosted trees on the expected gain, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.plain_data import plain_parameter
from sinkprop.common.progress import Notify, progress_line
from sinkprop.data.categories import Categories
from sinkprop.data.feature_scaling import fit_scaling
from sinkprop.data.kinds import is_elsewhere
from sinkprop.data.queries import Ids
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import OF_THE_RUN
from sinkprop.estimator.cluster_parameter import cloned
from sinkprop.estimator.external_queries import as_stored, no_arrays
from sinkprop.estimator.keyword_habits import refuse
from sinkprop.gbdt.boosters import as_booster, booster_names, booster_of
from sinkprop.gbdt.derivatives import GAIN, TreeLoss
from sinkprop.gbdt.fitted import FittedTrees
from sinkprop.gbdt.growing.fit import fit_boosters
from sinkprop.gbdt.growing.loop import GrownModel
from sinkprop.gbdt.growing.rows import categorical_columns, joined_rows, streamed_training_set
from sinkprop.gbdt.growing.settings import FitSettings
from sinkprop.gbdt.growing.validation import check_row_weight
from sinkprop.gbdt.parameters import (
    DEFAULTS,
    canonical,
    check_names,
    check_no_files,
    names_a_file,
    resolved,
)
from sinkprop.gbdt.threads import watching_time
from sinkprop.objective.gains import Gain, as_gain
from sinkprop.objective.normalization import Iterations

__all__ = ["BoostedRanker"]

_MANY_TREES = 100  # a smaller number of trees is taken to be deliberate


class BoostedRanker(FittedTrees):
    """Boosted trees grown by LightGBM to maximize an expected metric.

    Takes the parameters of `lightgbm.LGBMRanker`, except those of its objective, and adds its own. Needs
    LightGBM: `pip install "sinkprop[lightgbm]"`.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain whose expected value the trees maximize, see `expected_gain`. If it does not state the discount
        of NDCG, the discount is that of `convention`.
    n_estimators : int, optional
        Maximum number of trees per booster. By default 500, and 1250 with `effort="best"`.
    learning_rate : float, optional
        Factor by which the output of each tree is multiplied. By default 0.05, and 0.02 with `effort="best"`.
    num_leaves : int, default 8
        Maximum number of leaves per tree, at least 2.
    min_child_samples : int, default 20
        Minimum number of documents per leaf.
    widths : float or sequence of float, default (0.1, 1.0)
        Widths of the Laplace kernel; the expected gain is the mean over them. See `TreeLoss`.
    blend : float, default 0.5
        Share of the query's mean in a document's curvature, from 0 to 1. See `TreeLoss`.
    noise : float, default 0.4
        Standard deviation of the noise that is added to the scores before each tree. See `TreeLoss`.
    n_iter : float, "converged" or Converged, default 2
        Number of Sinkhorn iterations (not of trees), or their limit. See `TreeLoss`.
    epsilon : float, default 1e-6
        Number added to every entry of the matrix A, see `expected_gain`, before the Sinkhorn iterations.
    effort : {"fast", "default", "best"}, default "default"
        Time to spend on the fit. Parameters that you set yourself take precedence over those of the effort.

        - "fast": one booster. Without validation queries, all its trees are kept.
        - "default": the mean of five boosters. Without validation queries, cross-validation selects the
          number of trees. Takes five to six times as long as "fast", and two to four times without
          validation queries.
        - "best": the mean of ten boosters with a smaller learning rate. Takes about four times as long as
          "default". Neither change had a measurable gain in our experiments.
    n_boosters : int, optional
        Number of boosters whose mean is the model. Each trains on 70% of the queries, drawn at random.
        Without validation queries, the queries are divided into as many parts as there are boosters instead;
        each booster trains on all parts but one, which validates it. By default the number is that of
        `effort`, but 1 if `n_estimators` is given without an effort of "best". See the notes.
    early_stopping_rounds : int, None or "auto", default "auto"
        Stop after this many trees without improvement of the criterion on the validation queries, and keep
        the trees up to the best round. None grows and keeps all trees. "auto" is 50, and 100 with
        `effort="best"`. Has no effect without validation queries, unless there are several boosters, or with
        `boosting_type="dart"`.
    criterion : str or sequence of str, optional
        Metrics whose mean over the validation queries selects the best round, such as "ndcg@10". By default
        the expected gain, which is less noisy than a metric of a single ranking.
    validation_fraction : float, optional
        Fraction of the queries to hold out as validation queries if `fit` gets no `eval_set`; below 1. By
        default none.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of `metric` and `criterion`, see `evaluate`. It also decides the discount of `gain`.
    importance_type : {"split", "gain"}, default "split"
        Kind of `feature_importances_`: the number of splits on a feature, or the total gain of these splits.
    n_threads : int, optional
        Number of threads, see `expected_gain`; on a cluster, the number per worker. Does not change the
        trees.
    random_state : int or None, default 0
        Seed of all random numbers. The same seed gives the same trees. With None, each fit draws a seed.
    verbose : bool or int, default True
        Whether to show a progress line on a terminal. False, or a number below 1, turns it off.
    cluster : optional
        Cluster to train on: a `dask.distributed.Client`, a Dask cluster, the address of a scheduler, or a
        number of local worker processes. By default the fit runs in this process.
    lightgbm_parameters : keyword arguments
        Other parameters of LightGBM, by any of their names. Unless given, they have LightGBM's defaults.
        Those of `lightgbm.LGBMRanker` are:

        - `boosting_type`: "gbdt", "dart" (drops trees at random) or "goss" (samples documents by the size of
          their gradient); not "rf".
        - `max_depth`: maximum depth of a tree; no limit if 0 or below.
        - `subsample_for_bin`: number of documents from which the bins of the features are computed.
        - `min_split_gain`: minimum loss reduction of a split.
        - `min_child_weight`: minimum sum of curvatures in a leaf.
        - `subsample`: fraction of the queries to grow each tree on. It draws whole queries;
          `bagging_by_query=False` draws rows.
        - `subsample_freq`: number of trees after which a new subsample is drawn; 1 unless given, and 0 turns
          subsampling off.
        - `colsample_bytree`: fraction of the features to grow each tree on.
        - `reg_alpha`, `reg_lambda`: L1 and L2 regularization strength of the leaf values.
        - `n_jobs`: another name of `n_threads`; negative numbers count back from the number of processors.

        Parameters of LightGBM's objectives, metrics, command line and network raise a ValueError in `fit`.

    Attributes
    ----------
    booster_ : lightgbm.Booster
        Trees of the model.
    n_trees_ : int
        Number of trees of the model, including those of all boosters and of `init_model`.
    n_boosters_ : int
        Number of boosters whose mean is the model.
    best_iteration_ : int
        Number of the best round, from 1. The model has the trees up to this round. Does not count the trees
        of `init_model`.
    fit_result_ : BoostingFit
        Record of the fit.
    cluster_record_ : ClusterRecord
        Workers, time and traffic of a fit on a cluster.
    categories_ : dict
        Categories of each categorical feature, {name: categories}. The code of a category is its position.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of shape (D,)
        Names of the features, if the training data has names.
    n_rows_ : int
        Number of documents that `fit` was given.
    n_queries_ : int
        Number of queries that `fit` was given.

    Notes
    -----
    The mean of several boosters is one model with all their trees, whose outputs are divided by the number of
    boosters: first the first tree of each booster, then the second of each, and so on. The best round is the
    same for all. There is always one booster on a cluster, with `init_model`, with `callbacks`, with
    `boosting_type="dart"`, and if there is only one query; more than one raise a ValueError, except for the
    last.

    `X` may be an array, a SciPy sparse matrix or a data frame. NaN is a missing value. Categorical features
    are the columns of a data frame with a categorical type, the features of `Queries` and stored sets that
    have categories, and those that `categorical_feature` of `fit` names.

    If you interrupt the fit from the keyboard, it ends with the best trees so far. Before the first tree, and
    with `boosting_type="dart"`, there is no model to keep, and `fit` raises the interrupt.

    Examples
    --------
    >>> from sinkprop.gbdt import BoostedRanker
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(np.abs(X[:, 0]) + 0.1 * rng.normal(size=400), [0.5, 1.5])
    >>> ranker = BoostedRanker(n_estimators=50).fit(X, y, qid=qid)
    >>> ranker.rank([[0, 0, 0], [-2, 0, 0], [1, 0, 0]], qid=[1, 1, 1])
    array([3, 1, 2])
    """

    _takes_label_columns = True

    def __init__(
        self,
        gain: str | Gain = GAIN,
        *,
        n_estimators: int | None = None,
        learning_rate: float | None = None,
        num_leaves: int = DEFAULTS.num_leaves,
        min_child_samples: int = DEFAULTS.min_child_samples,
        widths: float | Sequence[float] = TreeLoss.widths,
        blend: float = TreeLoss.blend,
        noise: float = TreeLoss.noise,
        n_iter: Iterations = TreeLoss.n_iter,
        epsilon: float = TreeLoss.epsilon,
        effort: str = "default",
        n_boosters: int | None = None,
        early_stopping_rounds: int | str | None = "auto",
        criterion: str | Sequence[str] | None = None,
        validation_fraction: float | None = None,
        metric: str = "ndcg@10",
        convention: str = "standard",
        importance_type: str = "split",
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool | int = True,
        cluster: Any = None,
        **lightgbm_parameters: Any,
    ) -> None:
        self.gain = gain
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.widths = widths
        self.blend = blend
        self.noise = noise
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.effort = effort
        self.n_boosters = n_boosters
        self.early_stopping_rounds = early_stopping_rounds
        self.criterion = criterion
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.convention = convention
        self.importance_type = importance_type
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
        self.cluster = cluster
        self._others: tuple[str, ...] = ()  # names of the LightGBM parameters that were given
        self._add(lightgbm_parameters)

    def _add(self, lightgbm_parameters: dict[str, Any]) -> None:
        check_names(lightgbm_parameters, self._get_param_names())
        for name, value in lightgbm_parameters.items():
            setattr(self, name, value)
        self._others = tuple(dict.fromkeys((*self._others, *lightgbm_parameters)))

    def __sklearn_clone__(self) -> Any:
        return cloned(self, super().__sklearn_clone__.__func__)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the ranker, including the LightGBM parameters that were given.

        Parameters
        ----------
        deep : bool, default True
            Has no effect, because no parameter of the ranker is an estimator.

        Returns
        -------
        dict
            Values by parameter name.
        """
        return {**super().get_params(deep=deep), **{name: getattr(self, name) for name in self._others}}

    def set_params(self, **parameters: Any) -> BoostedRanker:
        """Set parameters by name, including those of LightGBM.

        Parameters
        ----------
        **parameters
            New values by parameter name.

        Returns
        -------
        BoostedRanker
            The ranker itself.
        """
        own = set(self._get_param_names())
        others = {name: value for name, value in parameters.items() if name.partition("__")[0] not in own}
        try:
            self._add(others)
        except TypeError as error:
            raise ValueError(f"Invalid parameter for estimator {type(self).__name__}: {error}") from None
        super().set_params(**{name: value for name, value in parameters.items() if name not in others})
        return self

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
        categorical_feature: str | Sequence[str | int] = "auto",
        init_model: Any = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
        **unknown: NoReturn,
    ) -> BoostedRanker:
        """Fit the ranker to labeled documents.

        Parameters
        ----------
        X : array of shape (N, D), sparse matrix, data frame, Queries, StoredQueries, path(s) or ClickLog
            Features of the documents; arrays, matrices and data frames come with `y` and `qid` or `group`.
            `Queries` and stored sets (`StoredQueries`, or the path of one) have their own labels and query
            ids. Features of a stored set are read from disk and kept as one byte per value. A list of paths
            names LETOR files. On a cluster, X may also be a Dask DataFrame.
        y : array of shape (N,), optional
            Labels: relevance of the documents, not below 0. With a Dask DataFrame, the name of a column, or a
            Dask Series with the same partitions.
        qid : array of shape (N,), optional
            Query id of each row, in any order. With a Dask DataFrame, the name of a column, or a Dask Series
            with the same partitions.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        eval_set : Queries, (X, y) or list of these, optional
            Validation queries, which decide when to stop and are not trained on. Pairs (X, y) come with
            `eval_qid` or `eval_group`. An item may also be a stored set or its path; on a cluster, any kind
            of `X`.
        eval_qid : list of array of shape (N,), optional
            Query ids of the rows of each pair in `eval_set`.
        eval_group : list of array of shape (Q,), optional
            Query sizes of each pair in `eval_set`, in place of `eval_qid`.
        sample_weight : array of shape (N,), optional
            Row weights, see `expected_gain`.
        query_weight : array of shape (Q,) or (N,), or mapping from query id to float, optional
            Query weights: one per query in order of first appearance, one per row, or by query id.
        categorical_feature : "auto" or list of str or int, default "auto"
            Names or column numbers of the categorical features, whose values are whole numbers from 0 on.
            "auto" takes the features of X whose categories have no order.
        init_model : BoostedRanker, lightgbm.Booster or lightgbm.LGBMModel, optional
            Model to continue from: its trees come first. `best_iteration_` does not count them.
        callbacks : list of callable, optional
            LightGBM's callbacks, such as `lightgbm.log_evaluation()`. Not on a cluster.
        **unknown
            Not accepted: any other keyword raises a TypeError that says what to write instead.

        Returns
        -------
        BoostedRanker
            The fitted ranker itself.
        """
        refuse(type(self), unknown, method="fit")
        self._check_parameters()
        if self.cluster is not None:
            weights = {"sample_weight": sample_weight, "query_weight": query_weight}
            evaluation = (eval_set, eval_qid, eval_group)
            more = {"callbacks": callbacks, "categorical_feature": categorical_feature}
            self._fit_on_cluster(X, y, qid, group, evaluation, init_model=init_model, weights=weights, **more)
            return self
        if (stored := as_stored(X)) is not None:
            no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
            self._know_features(stored.n_features, stored.feature_names)
            self._categories = Categories.of(stored)
            data = streamed_training_set(stored, query_weight=query_weight)
        else:
            data = self._training_set(
                X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
            )
        sets = self._evaluation_sets(eval_set, eval_qid, eval_group)
        names, found = getattr(self, "feature_names_in_", ()), self._categories
        self._fit(
            data,
            reduce(joined_rows, sets) if sets else None,
            names=booster_names(names),
            categorical=categorical_columns(categorical_feature, found, names, self.n_features_in_),
            init_model=self._first_trees(init_model),
            callbacks=list(callbacks or ()),
        )
        self.n_rows_, self.n_queries_ = len(data.y), data.n_queries
        return self

    def _fit_on_cluster(
        self,
        X: Any,
        y: Any,
        qid: Any,
        group: Any,
        evaluation: tuple[Any, Any, Any],
        *,
        weights: dict[str, Any],
        categorical_feature: Any,
        init_model: Any,
        callbacks: Any,
    ) -> None:
        """Fit on the cluster, as `fit` does.

        evaluation  Arguments eval_set, eval_qid and eval_group of `fit`.
        weights     Arguments sample_weight and query_weight of `fit`, by name.
        """
        from sinkprop.gbdt.cluster.fit import check_evaluation, check_settings, cluster_data

        settings = self._fit_settings()
        check_settings(settings, callbacks)
        with cluster_data(self.cluster) as cluster:
            if is_elsewhere(X):
                no_arrays(X, y=y, qid=qid, group=group, sample_weight=weights["sample_weight"], cluster=True)
                data = cluster.queries(X, y, qid, query_weight=weights["query_weight"])
                self._know_features(data.plan.n_features, data.plan.feature_names)
                if (stored := as_stored(X)) is not None:
                    self._categories = Categories.of(stored)
            else:
                rows = self._training_set(X, y, qid, group, **weights)
                check_row_weight(rows)
                data = cluster.queries(rows)
            eval_sets = cluster.evaluation_sets(*evaluation, self._evaluation_sets)
            names, found = getattr(self, "feature_names_in_", ()), self._categories
            check_evaluation(eval_sets, evaluation[0], self.n_features_in_, names, found)
            with self._progress() as notify:
                grown, self.cluster_record_ = cluster.grow(
                    data,
                    eval_sets,
                    settings,
                    first=self._first_trees(init_model),
                    notify=notify,
                    names=booster_names(names),
                    categorical=categorical_columns(categorical_feature, found, names, self.n_features_in_),
                )
        self._finish(grown, self.n_features_in_)
        self.n_rows_, self.n_queries_ = data.plan.n_rows, data.plan.n_queries

    def _stored_eval_set(self, item: Any) -> TrainingSet:
        stored = as_stored(item)
        if stored is None or stored.n_features != self.n_features_in_:
            raise ValueError(
                f"eval_set: {item} has {getattr(stored, 'n_features', 'no')} features, but "
                f"{type(self).__name__} is fitted to {self.n_features_in_}."
            )
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        coded = self._coding(stored, "eval_set X")
        return streamed_training_set(
            stored, taken=coded if columns is None else lambda X: coded(X)[:, columns], name="eval_set "
        )

    def _fit(self, data: TrainingSet, validation: TrainingSet | None, **plan: Any) -> None:
        """Fit in this process; `plan` are fields of `Boosting` that are not parameters of the ranker."""
        with watching_time(type(self).__name__), self._progress() as notify:
            grown = fit_boosters(data, validation, self._fit_settings(), notify=notify, **plan)
        self._finish(grown, data.X.shape[1])

    def _fit_settings(self) -> FitSettings:
        return FitSettings.of(self.get_params(deep=False), self._others)

    def _resolved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return resolved(self.get_params(deep=False), self._others)

    def _progress(self) -> AbstractContextManager[Notify]:
        return progress_line(bool(self.verbose) and self.verbose > 0)

    def _finish(self, grown: GrownModel, n_features: int) -> None:
        result = grown.result
        if result.status == "interrupted":
            warnings.warn(f"{type(self).__name__}: {result.message}", RuntimeWarning, stacklevel=5)
        if result.still_rising and result.n_rounds >= _MANY_TREES:
            warnings.warn(
                f"{type(self).__name__}: the {result.criterion} of the validation queries still rose when "
                f"the {result.n_rounds} trees were grown. Set a larger n_estimators or learning_rate.",
                UserWarning,
                stacklevel=5,
            )
        self.scaling_ = fit_scaling("none", np.empty((0, n_features)))
        self._set_fitted(booster_of(grown.text), result, grown.n_boosters)
        self._keep_held_out(grown.held_out)

    def _first_trees(self, model: Any) -> Any:
        """Booster of `init_model`; raises a ValueError if its categories are not those of X."""
        booster = as_booster(model)
        ours = list(self._categories.values.values())
        if booster is not None and (booster.pandas_categorical or []) != ours:
            raise ValueError("init_model must have been fitted to the same categories as X has.")
        return booster

    def _parameters_to_save(self) -> dict[str, Any]:
        saved = {
            name: plain_parameter(value, Gain)
            for name, value in self.get_params(deep=False).items()
            if name not in OF_THE_RUN and not names_a_file(name)
        }
        saved["gain"] = as_gain(self.gain).text
        saved["metric"], saved["convention"] = str(self.metric), str(self.convention)
        if not isinstance(saved["random_state"], int):
            saved["random_state"] = None
        return {name: value for name, value in saved.items() if canonical(name) != "num_threads"}

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        check_no_files(saved)
        # a user-defined gain cannot be saved; predictions do not need it
        return {**saved, "gain": GAIN if saved["gain"] is None else saved["gain"]}
