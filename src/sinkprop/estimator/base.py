"""The base class of all rankers: scikit-learn's interface, with queries.

It defines `fit(X, y, qid=...)`, `predict(X)`, `rank(X, qid=...)`, `score(X, y, qid=...)`, `save` and `load`.
A subclass trains a model and computes scores from features. The base class checks the arguments, with the
functions of `fit_arguments.py`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from sinkprop.calibration import RankCalibration
from sinkprop.common.arguments import one_of
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_label_columns, as_query_weight
from sinkprop.data.missing import DEFAULT, MISSING, MissingValues, filled
from sinkprop.data.queries import Groups, Ids, Queries
from sinkprop.data.training_set import TrainingSet, joined, with_dtype
from sinkprop.estimator.calibrated import CalibratedRanker
from sinkprop.estimator.click_inputs import taking_clicks
from sinkprop.estimator.given_parameters import SETTINGS, given_from, given_record
from sinkprop.estimator.keyword_habits import answering, refuse
from sinkprop.estimator.selection import Selection
from sinkprop.explain.contributions import linear_contributions
from sinkprop.metrics.evaluation import check_metric, evaluate, evaluate_blocks
from sinkprop.metrics.ranking import ranking
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.serving.records import INVALID, SavedInputs, unreadable

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["OF_THE_RUN", "BaseRanker", "from_record", "record_of", "seed_of"]

R = TypeVar("R", bound="BaseRanker")

# Parameters that say how a fit runs: where, on how many threads, and what it writes and calls. A model file
# does not hold them. If a file from a stranger could set them, a later fit would write to a path, or connect
# to a cluster, of the stranger's choice.
OF_THE_RUN = frozenset(
    ("checkpoint", "cluster", "distributed", "n_threads", "on_epoch", "on_round", "on_stage")
)

_OLD_KEYS = {"judged_by": "validated_on"}  # of fitted models in files of earlier versions


class BaseRanker(CalibratedRanker):
    """A ranker as a scikit-learn estimator.

    Rows are documents. `qid` names the query of each row: any hashable ids, in any order. `group=`, the sizes
    of consecutive queries, may be given instead. Labels are relevance, 0 or more. Larger scores rank higher.
    """

    # If scikit-learn's metadata routing is enabled, a Pipeline or a search passes qid to fit, score and
    # predict. Users need not call set_fit_request, set_score_request or set_predict_request.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"qid": True}

    missing_: MissingValues | None = None  # treatment of missing values, if the training data had some
    _settings: ClassVar[tuple[type, ...]] = (*SETTINGS, Selection)  # dataclasses that parameters may hold
    _squares_labels: ClassVar[bool] = False  # whether the loss is the squared error of the labels themselves
    clicks_: dict[str, Any] | None = None  # summary of the clicks, if the training data were a click log

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = answering(vars(cls)["__init__"])  # type: ignore[method-assign]
        if "fit" in vars(cls):
            cls.fit = taking_clicks(vars(cls)["fit"])  # type: ignore[method-assign]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # rankers without the parameter `missing` refuse NaN, except trees, which set this tag themselves
        tags.input_tags.allow_nan = getattr(self, "missing", "error") != "error"
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    @taking_clicks
    def fit(
        self: R,
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
    ) -> R:
        """Fit the ranker to labeled documents, grouped into queries.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries, ClickLog, path or list of paths
            Documents. An array or a frame comes with `y` and `qid`. `Queries`, a `StoredQueries` or its path,
            and a list of LETOR files hold their own labels and query ids. A ranker that cannot stream a
            stored set or files loads them. With a `cluster` parameter, X may also be a Dask DataFrame. A
            `ClickLog` gives labels without position bias; `clicks.debias` has options.
        y : array of shape (N,) or (N, L), optional
            Labels: the relevance of each document, 0 or more. Linear rankers with a parameter `gain`,
            `BoostedRanker` and `NeuralRanker` take several label columns, for gains that read them, such as
            `AlphaNDCG` or `NDCG(10).on(1)`. With a Dask DataFrame, the name of its column or a Dask Series
            with the same partitions.
        qid : array of shape (N,), optional
            Query id of each row: any hashable values, in any order. With a Dask DataFrame, the name of its
            column or a Dask Series with the same partitions.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        eval_set : Queries, StoredQueries, path or list of (X, y) pairs, optional
            Validation queries. They help to choose the model, but the final model is not trained on them. An
            item of the list may also be `Queries` or a stored set.
        eval_qid : sequence of arrays, optional
            Query ids of each (X, y) pair of `eval_set`.
        eval_group : sequence of arrays, optional
            Sizes of consecutive queries for each (X, y) pair of `eval_set`, in place of `eval_qid`.
        sample_weight : array of shape (N,), optional
            Row weights.
        query_weight : array of shape (Q,) or (N,), or mapping, optional
            Query weights: one per query in order of first appearance, one per row, or {id: weight}.
        **unknown
            Not accepted: any other keyword raises a TypeError that says what to write instead.

        Returns
        -------
        self
            The fitted ranker.
        """
        refuse(type(self), unknown, method="fit")
        self._check_parameters()
        weights, evaluation = (sample_weight, query_weight), (eval_set, eval_qid, eval_group)
        if self._fit_elsewhere(X, y, qid, group, evaluation, weights):
            return self
        data = self._training_set(X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight)
        sets = self._evaluation_sets(eval_set, eval_qid, eval_group)
        self._fit(data, with_dtype(reduce(joined, sets), data.X.dtype) if sets else None)
        self.n_rows_, self.n_queries_ = len(data.y), data.n_queries
        return self

    def _fit_elsewhere(
        self, X: Any, y: Any, qid: Any, group: Any, evaluation: tuple[Any, Any, Any], weights: tuple[Any, Any]
    ) -> bool:
        """Fit to queries on disk or on a cluster without loading them; return whether that was done.

        evaluation  Arguments eval_set, eval_qid and eval_group of `fit`.
        weights     Arguments sample_weight and query_weight of `fit`.
        """
        return False

    def _check_parameters(self) -> None:
        """Raise a ValueError for a wrong parameter, before the data are read; subclasses check their own."""
        check_metric(self.metric, self.convention)
        if hasattr(self, "missing"):
            one_of("missing", self.missing, MISSING)

    @abstractmethod
    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        """Train the model; set `scaling_` and the attributes that `_score_rows` needs."""

    @abstractmethod
    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of rows X.

        The features in X have already been scaled within their queries if `normalization` is "query", and
        missing values have been treated; see `_prepared`. `groups` holds the queries of the rows; it is None
        if the caller did not give them.
        """

    def predict(
        self,
        X: Any,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        pred_contrib: bool = False,
    ) -> Floats:
        """Score documents, or explain their scores.

        Scores are comparable only between documents of the same query.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed only if features are normalized per query or if a document's score
            depends on the other documents of its query. Not allowed with `Queries` or a stored set.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        pred_contrib : bool, default False
            Whether to return the contribution of each feature to the score (its SHAP value) in place of the
            score. Linear rankers and trees have contributions. Those of a linear ranker are relative to the
            mean of the feature: over the training documents with ``normalization="standard"``, over the
            documents of the query with "query". With "none", the means are not known, and count as 0.

        Returns
        -------
        array of shape (N,) or (N, D + 1)
            Scores; larger ranks higher. With `pred_contrib`, one column for each feature, and a last column
            with the base value, the score of a document with the mean features or, for trees, the mean score;
            the sum of a row is the score.
        """
        work, width = self._score_rows, tuple[int, ...]()
        if pred_contrib:
            work, width = self._contributions, (self.n_features_in_ + 1,)
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            found = np.empty((len(stored), *width))
            self._fill(found, stored, work)
            return found
        X, groups = self._rows(X, qid, group)
        return work(self._prepared(X, groups), groups)

    def _contributions(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Contributions (N, D + 1) of the features to the scores of rows X, which `_prepared` returned."""
        model = self._linear_model()
        if model is None:
            raise ValueError(
                f"predict: {type(self).__name__} has no contributions of features (pred_contrib=True); "
                "linear rankers and trees have. Estimate them with a package such as shap, and give them to "
                "sinkprop.explain_ranking."
            )
        return linear_contributions(X, *model, self.scaling_, self.missing_, groups)

    @property
    def explainable(self) -> bool:
        """Whether `explain` works, and `predict` with `pred_contrib=True`."""
        return self._linear_model() is not None

    def _linear_model(self) -> tuple[Floats, float] | None:
        """Weights of the scaled columns and intercept of a linear ranker; None for others."""
        check_is_fitted(self)
        weights = getattr(self, "coef_", None)
        return None if weights is None else (weights, float(getattr(self, "intercept_", 0.0)))

    def outputs(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Compute the outputs of the model: one score per row, or two numbers for a partitioned measure.

        A partitioned measure is a relaxation that gives each document a distribution over ranks with two
        parameters. These are then the outputs.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame or Queries
            Documents.
        qid : array of shape (N,), optional
            Query id of each row. Needed only if features are normalized per query or if a document's score
            depends on the other documents of its query. Not allowed with `Queries`.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        array of shape (N,) or (N, 2)
            One score per row, or the two parameters of each row's distribution over ranks.
        """
        X, groups = self._rows(X, qid, group)
        return self._theta(self._prepared(X, groups), groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Outputs of the model for rows X, which `_prepared` returned: (N,) or (N, 2); see `outputs`."""
        return self._score_rows(X, groups)

    def _prepared(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        """Return the rows X as the model scores them, without the scaling by `scaling_`.

        The features are scaled within their queries if `normalization` is "query", and missing values are
        treated as in the fit.
        """
        return self._filled(self._by_query(X, groups))

    def _filled(self, X: NDArray[Any]) -> NDArray[Any]:
        # a ranker without the parameter `missing` either refuses NaN or, like trees, scores it
        return filled(X, self.missing_, self.scaling_) if hasattr(self, "missing") else X

    def rank(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Integers:
        """Rank documents within their queries.

        Of two documents with equal scores, the earlier row ranks higher.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.

        Returns
        -------
        array of shape (N,)
            Rank of each row in its query; 1 is the top.
        """
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            ranks = np.empty(len(stored), np.int64)
            self._fill(ranks, stored, self._ranks)
            return ranks
        X, groups = self._rows_in_queries(X, qid, group, "rank")
        return self._ranks(self._prepared(X, groups), groups)

    def score(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        sample_weight: None = None,
    ) -> float:
        """Mean, over the queries, of the metric that the ranker's `metric` and `convention` define.

        Parameters
        ----------
        X : array of shape (N, D), DataFrame, Queries, StoredQueries or path
            Documents. A stored set is read one block at a time.
        y : array of shape (N,) or (N, L), optional
            Labels. Not allowed with `Queries` or a stored set, which hold their own.
            Metrics of one label read the first of several columns.
        qid : array of shape (N,), optional
            Query id of each row. Needed, unless `group` is given or X holds its own queries.
        group : array of shape (Q,), optional
            Sizes of consecutive queries, in place of `qid`.
        query_weight : array of shape (Q,) or (N,), or mapping, optional
            Query weights: one per query in order of first appearance, one per row, or {id: weight}.
        sample_weight : None
            Must be None, since ranking metrics have no row weights. The parameter exists because
            scikit-learn's Pipeline passes it.

        Returns
        -------
        float
            The mean; larger is better.
        """
        if sample_weight is not None:
            raise ValueError("score: a ranking metric has no row weights; give query_weight.")
        stored = self._given_stored(X, y=y, qid=qid, group=group)
        if stored is not None:
            return self._stored_score(stored, query_weight)
        labels = X.y if isinstance(X, Queries) else y
        if labels is None:
            raise ValueError("score needs y, one label per row.")
        X, groups = self._rows_in_queries(X, qid, group, "score", y=y)
        labels = as_label_columns(labels, len(X), rows_of="X")
        ranks = self._ranks(self._prepared(X, groups), groups)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, len(X))
        result = evaluate(
            labels,
            -ranks.astype(np.float64),
            groups.codes,
            metrics=[self.metric],
            convention=self.convention,
            query_weight=weight,
        )
        return next(iter(result.values()))

    def _fill(self, out: NDArray[Any], stored: StoredQueries, work: Any) -> None:
        """Call work(X, groups) for each block of a stored set, and write the results to `out`.

        X are the features of a block and `groups` its queries. The function `work` returns one value per row;
        `out` has one value for each row of the stored set.
        """
        first = 0
        for X, block in self._stored_rows(stored):
            out[first : first + len(block)] = work(X, block.groups)
            first += len(block)

    def _stored_rows(self, stored: StoredQueries) -> Iterator[tuple[NDArray[Any], Queries]]:
        """Yield (X, block) for each block of a stored set, where X are the features that the model scores.

        The columns of X are in the order of the fit, and are prepared by `_prepared`.
        """
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        coded = self._coding(stored)
        for block in stored.blocks():
            X = coded(block.X) if columns is None else np.ascontiguousarray(coded(block.X)[:, columns])
            yield self._prepared(X, block.groups), block

    def _stored_score(
        self, stored: StoredQueries, query_weight: ArrayLike | Mapping[Hashable, float] | None
    ) -> float:
        weight = None if query_weight is None else as_query_weight(query_weight, stored.groups, len(stored))
        result = evaluate_blocks(
            (
                (block.y, -self._ranks(X, block.groups).astype(np.float64), block.groups)
                for X, block in self._stored_rows(stored)
            ),
            stored.query_ids,
            stored.largest_label,
            metrics=[self.metric],
            convention=self.convention,
            query_weight=weight,
        )
        return next(iter(result.values()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted ranker to a file: readable text with a checksum.

        An existing file is replaced only once the new one is complete.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        check_is_fitted(self)
        write_model(path, type(self).__name__, self._record(), about=self._about())

    @classmethod
    def load(cls: type[R], path: str | os.PathLike[str]) -> R:
        """Read a ranker that `save` wrote.

        Parameters
        ----------
        path : str or path
            File to read.

        Returns
        -------
        ranker
            The fitted ranker.

        Raises
        ------
        ModelFileError
            If the file is damaged, is in a newer format, or does not hold a ranker of this class.
        """
        return cls._from_record(path, read_model(path, kind=cls.__name__).state)

    def _about(self) -> dict[str, Any]:
        """Summary of the model, for a person who opens the model file."""
        return {
            "metric": str(self.metric),
            "convention": str(self.convention),
            "training": {"rows": self.n_rows_, "queries": self.n_queries_, "features": self.n_features_in_},
        }

    def _record(self) -> dict[str, Any]:
        """Return the fitted ranker as a dict of values that a model file can hold; see `write_model`."""
        names = getattr(self, "feature_names_in_", None)
        parameters = self._parameters_to_save()
        given = given_record(self._saved_params(), self._parameters_from_saved(parameters), self._settings)
        if parameters.get("missing") == DEFAULT:  # not written, so that earlier versions can read the file
            del parameters["missing"]
        return {
            "parameters": parameters,
            **({"given": given} if given else {}),
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else [str(name) for name in names],
            "n_rows": self.n_rows_,
            "n_queries": self.n_queries_,
            "normalization": {
                "kind": self.scaling_.kind, "shift": self.scaling_.shift, "factor": self.scaling_.factor
            },
            **({} if self.missing_ is None else {"missing": self.missing_.record()}),
            **({} if self.calibration_ is None else {"calibration": self.calibration_.record()}),
            **({} if self.clicks_ is None else {"clicks": self.clicks_}),
            "fitted": self._fitted_state(),
        }  # fmt: skip

    @classmethod
    def _from_record(
        cls: type[R], path: str | os.PathLike[str], state: dict[str, Any], **parameters: Any
    ) -> R:
        """Rebuild the ranker that `_record` described; `parameters` override those in the record.

        Raises a ModelFileError that names the file `path` if the record is not valid.
        """
        try:
            saved = cls._parameters_from_saved(state["parameters"])
            saved |= given_from(state.get("given", {}), cls._settings)
            if not OF_THE_RUN.isdisjoint(saved):
                names = sorted(OF_THE_RUN.intersection(saved))
                raise ValueError(f"a model file must not set {', '.join(names)}")
            cls._check_saved(saved)
            ranker = cls(**{**saved, **parameters})
            inputs = SavedInputs.of(state)
            ranker.n_features_in_, ranker.n_rows_ = inputs.n_features, state["n_rows"]
            ranker.n_queries_, ranker.scaling_ = state["n_queries"], inputs.scaling
            if inputs.feature_names is not None:
                ranker.feature_names_in_ = np.array(inputs.feature_names, dtype=object)
            if inputs.missing is not None:
                ranker.missing_ = inputs.missing
            if "calibration" in state:
                ranker._calibration = RankCalibration.from_record(state["calibration"])
            if "clicks" in state:
                ranker.clicks_ = dict(state["clicks"])
            ranker._restore({_OLD_KEYS.get(key, key): value for key, value in state["fitted"].items()})
        except INVALID as error:
            raise ModelFileError(unreadable(os.fspath(path), cls.__name__, error)) from None
        return ranker

    @property
    def _n_columns(self) -> int:
        """Number of columns that the model scores: the features, and the indicators of missing values."""
        return int(self.n_features_in_ if self.missing_ is None else self.missing_.n_columns)

    def _saved_params(self) -> dict[str, Any]:
        """Parameters that a model file may hold, with NumPy's numbers as Python's."""
        given = {k: v for k, v in self.get_params(deep=False).items() if k not in OF_THE_RUN}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}

    def _parameters_to_save(self) -> dict[str, Any]:
        """Return the parameters as plain data, each in a form that does not depend on how it was given."""
        raise NotImplementedError

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        return dict(saved)

    @classmethod
    def _check_saved(cls, parameters: dict[str, Any]) -> None:
        """Raise a ValueError if a model file must not set these parameters."""

    @abstractmethod
    def _fitted_state(self) -> dict[str, Any]:
        """Return the fitted model as a dict of values that a model file can hold; see `write_model`.

        From this dict, `_restore` sets the fitted attributes of a loaded ranker.
        """

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None: ...

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        """Rank (N,) of each row of X, which `_prepared` returned, within its query."""
        return ranking(self._score_rows(X, groups), groups.codes).ranks


def from_record(kind: type[R], path: str | os.PathLike[str], state: dict[str, Any]) -> R:
    """Rebuild a ranker of a class from the state in the model file `path`, which has been read."""
    return kind._from_record(path, state)


def record_of(ranker: BaseRanker) -> dict[str, Any]:
    """Return a fitted ranker as a dict of values that a model file can hold, for `from_record`."""
    check_is_fitted(ranker)
    return ranker._record()


def seed_of(random_state: Any) -> int:
    """Integer seed from any value that scikit-learn accepts as random_state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
