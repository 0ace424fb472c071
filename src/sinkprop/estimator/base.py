"""The base class of all rankers: scikit-learn's interface, with queries.

`fit(X, y, qid=...)`, `predict(X)`, `rank(X, qid=...)`, `score(X, y, qid=...)`, `save` and `load`. A subclass
fits and turns features into scores; what is given is checked here, by the functions of `fit_arguments.py`.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

import sinkprop
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_features, as_labels, as_query_weight
from sinkprop.data.feature_scaling import Scaling, scale_by_query
from sinkprop.data.kinds import has_own_queries, is_elsewhere, is_stored_set
from sinkprop.data.queries import Groups, Queries, group_rows
from sinkprop.data.training_set import TrainingSet, joined, with_dtype
from sinkprop.estimator.external_queries import as_stored, in_memory, no_arrays, nothing_beside
from sinkprop.estimator.fit_arguments import (
    evaluation_items,
    expanded_weight,
    ids_of_sizes,
    label_column,
    one_each,
    text_column,
    warn_of_what_is_no_feature,
)
from sinkprop.metrics.evaluation import check_metric, evaluate, evaluate_blocks
from sinkprop.metrics.ranking import ranking
from sinkprop.model_files import ModelFileError, read_model, write_model

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["BaseRanker"]

Ids = ArrayLike | Sequence[Hashable]
R = TypeVar("R", bound="BaseRanker")


class BaseRanker(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A ranker as a scikit-learn estimator.

    Rows are documents, `qid` says which query each belongs to: any hashable ids, in any order. `group=`, the
    sizes of consecutive queries, is taken in its place. Labels are relevance, not below 0; larger scores
    rank higher.
    """

    # where scikit-learn routes metadata, queries go along without being asked for
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"qid": True}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

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
    ) -> R:
        """Fit to the documents X (N, D) with labels y (N,) of the queries qid (N,).

        X              `Queries`; or an array or a frame, with y and qid; or a `StoredQueries` or its path, or
                       a list of LETOR files: rankers that cannot read them as they go load them. With
                       cluster= also a Dask DataFrame, with y and qid the names of its columns or Dask Series
                       of the same partitions
        eval_set       queries that help to choose and are not trained on: `Queries`, or [(X, y)] with
                       eval_qid or eval_group; an item may be `Queries` or a stored set
        sample_weight  (N,) row weights
        query_weight   (Q,) by first appearance, (N,) by row, or {id: weight}
        """
        check_metric(self.metric, self.convention)
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
        """Whether the ranker was fitted to queries where they are: on disk, or on a cluster.

        evaluation  eval_set, eval_qid and eval_group;  weights  sample_weight and query_weight, of `fit`
        """
        return False

    def _know_features(self, n_features: int, names: Sequence[str] | None) -> None:
        """Remember the number of features and their names, where X is not an array that tells them."""
        self.n_features_in_ = int(n_features)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @abstractmethod
    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        """Set `scaling_` and what `_score_rows` needs."""

    @abstractmethod
    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of rows that `_by_query` has seen, and their queries where they were given."""

    def predict(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Scores of the rows, (N,): larger ranks higher. They compare documents of one query, nothing else.

        `qid` is needed only where features are normalized per query. X may be `Queries`, or a `StoredQueries`
        or its path, which is read a block at a time; both without qid.
        """
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            scores = np.empty(len(stored))
            self._fill(scores, stored, self._score_rows)
            return scores
        X, groups = self._rows(X, qid, group)
        return self._score_rows(self._by_query(X, groups), groups)

    def outputs(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Outputs of the model: one score per row, (N,), or two numbers, (N, 2), with a partitioned measure.

        `qid` is needed only where features are normalized per query. X may be `Queries`, without qid.
        """
        X, groups = self._rows(X, qid, group)
        return self._theta(self._by_query(X, groups), groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """The outputs of rows that `_by_query` has seen."""
        return self._score_rows(X, groups)

    def rank(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Integers:
        """Ranks of the rows in their queries, (N,): 1 for the top. Of equal scores the earlier row wins.

        X may be `Queries`, or a `StoredQueries` or its path, which is read a block at a time; both without
        qid.
        """
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            ranks = np.empty(len(stored), np.int64)
            self._fill(ranks, stored, self._ranks)
            return ranks
        X, groups = self._rows_in_queries(X, qid, group, "rank")
        return self._ranks(self._by_query(X, groups), groups)

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
        """Mean of `metric` over the queries, under `convention`.

        X may be `Queries`, or a `StoredQueries` or its path, which is read a block at a time; both without y
        and qid.
        `sample_weight` is there because scikit-learn's Pipeline passes it: metrics have no row weights.
        """
        if sample_weight is not None:
            raise ValueError("score: a ranking metric has no row weights; give query_weight.")
        stored = self._given_stored(X, y=y, qid=qid, group=group)
        if stored is not None:
            return self._stored_score(stored, query_weight)
        labels = X.y if isinstance(X, Queries) else y
        if labels is None:
            raise ValueError("score needs y, one label a row.")
        X, groups = self._rows_in_queries(X, qid, group, "score", y=y)
        labels = as_labels(labels, len(X), rows_of="X")
        ranks = self._ranks(self._by_query(X, groups), groups)
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

    def _given_stored(self, X: Any, **given: Any) -> StoredQueries | None:
        """The stored set that X is or names, if it has the features of the model; None for other data."""
        stored = as_stored(X)
        if stored is None:
            return None
        check_is_fitted(self, "n_features_in_")
        nothing_beside(f"the stored set {stored.path}", **given)
        if not self.__sklearn_tags__().input_tags.allow_nan:
            stored.require_finite(type(self).__name__)
        if stored.n_features != self.n_features_in_:
            raise ValueError(
                f"{stored.path} has {stored.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return stored

    def _rows(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, **given: Any
    ) -> tuple[NDArray[Any], Groups | None]:
        """Features of the rows, checked, and their queries where they are known."""
        if isinstance(X, Queries):
            nothing_beside("the Queries", qid=qid, group=group, **given)
            return self._features_of(X), X.groups
        features = self._features(X)
        return features, self._optional_groups(qid, group, len(features))

    def _rows_in_queries(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, what: str, **given: Any
    ) -> tuple[NDArray[Any], Groups]:
        """The same for `what`, a method that cannot do without the queries."""
        features, groups = self._rows(X, qid, group, **given)
        return features, self._required(groups, len(features), what)

    def _fill(self, out: NDArray[Any], stored: StoredQueries, work: Any) -> None:
        """What work(X, groups) gives the rows of each block, one block after another."""
        first = 0
        for X, block in self._stored_rows(stored):
            out[first : first + len(block)] = work(X, block.groups)
            first += len(block)

    def _stored_rows(self, stored: StoredQueries) -> Iterator[tuple[NDArray[Any], Queries]]:
        """Each block of a stored set, with its features as `_score_rows` takes them."""
        columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        for block in stored.blocks():
            X = block.X if columns is None else np.ascontiguousarray(block.X[:, columns])
            yield self._by_query(X, block.groups), block

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
        """Write the model as readable text with a checksum; an old file stays until the new one is whole."""
        check_is_fitted(self)
        write_model(path, type(self).__name__, self._record(), about=self._about())

    @classmethod
    def load(cls: type[R], path: str | os.PathLike[str]) -> R:
        """The model that `save` wrote; a damaged, newer or other file is a `ModelFileError`."""
        return cls._from_record(path, read_model(path, kind=cls.__name__).state)

    def _about(self) -> dict[str, Any]:
        """What a person who opens the file should know."""
        return {
            "metric": str(self.metric),
            "convention": str(self.convention),
            "training": {"rows": self.n_rows_, "queries": self.n_queries_, "features": self.n_features_in_},
        }

    def _record(self) -> dict[str, Any]:
        """The fitted ranker as plain data."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "parameters": self._parameters_to_save(),
            "n_features": self.n_features_in_,
            "feature_names": None if names is None else [str(name) for name in names],
            "n_rows": self.n_rows_,
            "n_queries": self.n_queries_,
            "normalization": {
                "kind": self.scaling_.kind, "shift": self.scaling_.shift, "factor": self.scaling_.factor
            },
            "fitted": self._fitted_state(),
        }  # fmt: skip

    @classmethod
    def _from_record(
        cls: type[R], path: str | os.PathLike[str], state: dict[str, Any], **parameters: Any
    ) -> R:
        """The ranker that `_record` described; `parameters` take the place of those in the record."""
        try:
            ranker = cls(**{**cls._parameters_from_saved(state["parameters"]), **parameters})
            ranker.n_features_in_ = int(state["n_features"])
            ranker.n_rows_, ranker.n_queries_ = int(state["n_rows"]), int(state["n_queries"])
            if state["feature_names"] is not None:
                ranker.feature_names_in_ = np.array(state["feature_names"], dtype=object)
            scaling = state["normalization"]
            ranker.scaling_ = Scaling(scaling["kind"], scaling["shift"], scaling["factor"])
            ranker._restore(state["fitted"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"{os.fspath(path)}: a whole file, but not a {cls.__name__} that sinkprop "
                f"{sinkprop.__version__} can read ({type(error).__name__}: {error})."
            ) from None
        return ranker

    def _parameters_to_save(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _parameters_from_saved(cls, saved: dict[str, Any]) -> dict[str, Any]:
        return saved

    @abstractmethod
    def _fitted_state(self) -> dict[str, Any]:
        """What `_restore` needs, as plain data."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None: ...

    def _ranks(self, X: NDArray[Any], groups: Groups) -> Integers:
        """Ranks of normalized rows in their queries."""
        return ranking(self._score_rows(X, groups), groups.codes).ranks

    def _training_set(
        self,
        X: Any,
        y: Any = None,
        qid: Ids | None = None,
        group: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        name: str = "",
    ) -> TrainingSet:
        """Checked rows, sorted by query. `name` tells an evaluation set's arrays from the training ones."""
        if is_elsewhere(X) or isinstance(X, Queries):
            no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
            queries = X if isinstance(X, Queries) else in_memory(X)
            X = self._features_of(queries, reset=not name, name=f"{name}X")
            return self._sorted_set(X, queries.y, queries.groups, sample_weight, query_weight)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: one label a row."
            )
        X = self._features(X, reset=not name, name=f"{name}X")
        n = len(X)
        labels = as_labels(label_column(y, name), n, rows_of=f"{name}X")
        if not name:
            warn_of_what_is_no_feature(X, getattr(self, "feature_names_in_", None), labels, qid)
        if qid is None and group is None:
            if name:
                raise ValueError(f"{name}qid is missing: one query id a row of {name}X.")
            warnings.warn(
                f"fit: no qid was given, so all {n} rows count as one query. Pass qid=, one id a row.",
                UserWarning,
                stacklevel=3,  # where fit was called
            )
            groups = group_rows(None, n)
        else:
            groups = self._required(self._optional_groups(qid, group, n, name=name), n, "fit")
        return self._sorted_set(X, labels, groups, sample_weight, query_weight)

    def _sorted_set(
        self, X: NDArray[Any], labels: Floats, groups: Groups, sample_weight: Any, query_weight: Any
    ) -> TrainingSet:
        n = len(labels)
        row_weight = None if sample_weight is None else expanded_weight(sample_weight, n)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        X = self._by_query(X, groups)
        if groups.rows is not None:
            rows = groups.rows
            X, labels = X[rows], labels[rows]
            row_weight = None if row_weight is None else row_weight[rows]
            groups = groups.sorted
        return TrainingSet(X, labels, groups, row_weight, weight)

    def _evaluation_sets(
        self,
        eval_set: Any,
        eval_qid: Sequence[Ids] | None,
        eval_group: Sequence[ArrayLike] | None,
    ) -> list[Any]:
        if eval_set is None:
            if eval_qid is not None or eval_group is not None:
                raise ValueError("eval_qid and eval_group need an eval_set: [(X, y)].")
            return []
        sets = evaluation_items(eval_set)
        n_pairs = sum(not has_own_queries(item) for item in sets)
        if not n_pairs and not (eval_qid is None and eval_group is None):
            raise ValueError("eval_qid and eval_group need an eval_set: [(X, y)].")
        ids = iter(one_each(eval_qid, n_pairs, "eval_qid"))
        sizes = iter(one_each(eval_group, n_pairs, "eval_group"))
        found: list[Any] = []
        for i, item in enumerate(sets):
            if is_stored_set(item):
                found.append(self._stored_judges(item))
            elif isinstance(item, Queries):
                found.append(self._training_set(item, name="eval_set "))
            elif isinstance(item, tuple | list) and len(item) == 2:
                X, y = item
                found.append(self._training_set(X, y, next(ids), next(sizes), name="eval_set "))
            else:
                raise ValueError(
                    "eval_set must be Queries or a list of (X, y) pairs; item "
                    f"{i} is {type(item).__name__!r}."
                )
        return found

    def _stored_judges(self, item: Any) -> Any:
        """A stored set to judge by, its features in the order of the training set's by their names.

        Here it is loaded; rankers that read it as they go have their own way.
        """
        return self._training_set(self._given_stored(item), name="eval_set ")

    def _features_of(self, queries: Queries, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        """Features of `Queries`, checked, in the order of those fitted to by their names."""
        columns = None if reset else queries.columns_of(getattr(self, "feature_names_in_", None))
        X = queries.X if columns is None else np.ascontiguousarray(queries.X[:, columns])
        with warnings.catch_warnings():  # they may have names; scikit-learn looks for those of frames
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            features = self._features(X, reset=reset, name=name)
        if reset and queries.feature_names is not None:
            self.feature_names_in_ = np.array(queries.feature_names, dtype=object)
        return features

    def _features(self, X: ArrayLike, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        if not reset:
            check_is_fitted(self, "n_features_in_")
        try:
            values = validate_data(
                self, X, reset=reset, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
            )
        except (TypeError, ValueError) as error:
            column = None if "feature names" in str(error) else text_column(X)
            if column is None:
                raise
            raise ValueError(
                f"{name} must hold numbers, but its column {column!r} does not: {error}. Leave it out, as by "
                f"X.drop(columns=[{column!r}]), or encode it as numbers; query ids are passed as qid=."
            ) from None
        allow_nan = self.__sklearn_tags__().input_tags.allow_nan
        names = getattr(self, "feature_names_in_", None) if hasattr(X, "columns") else None
        return as_features(values, name=name, allow_nan=allow_nan, columns=names)

    def _required(self, groups: Groups | None, n: int, what: str) -> Groups:
        """The queries of n rows; a ValueError where `what` needs them and they are not known."""
        if groups is None:
            hint = ""
            if what == "score":
                hint = (
                    " In cross-validation, sklearn.set_config(enable_metadata_routing=True) sends it there."
                )
            raise ValueError(
                f"{what} needs qid=, one query id a row ({n} rows), or group=, the sizes of consecutive "
                f"queries. For one query give its rows one id.{hint}"
            )
        return groups

    def _optional_groups(
        self, qid: Ids | None, group: ArrayLike | None, n: int, *, name: str = ""
    ) -> Groups | None:
        if qid is not None and group is not None:
            raise ValueError(f"give {name}qid or {name}group, not both.")
        if group is not None:
            qid = ids_of_sizes(group, n)
        return None if qid is None else group_rows(qid, n)

    def _rows_of_one_query(self, X: Any, qid: Ids | None, what: str) -> tuple[NDArray[Any], Groups]:
        """Normalized features of one query; a ValueError where `qid`, which may be left out, has several."""
        features, groups = self._rows(X, qid, None)
        if groups is not None and len(groups.queries) > 1:
            first = groups.queries.tolist()[0]
            raise ValueError(
                f"{what} is of one query, but qid has {len(groups.queries)}. Give the rows of one, as "
                f"X[qid == {first!r}]."
            )
        one = group_rows(None, len(features))
        return self._by_query(features, one), one

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        """X, normalized where that is done query by query."""
        if getattr(self, "normalization", "none") != "query":
            return X
        if groups is None:
            raise ValueError(
                "predict needs qid= where normalization='query': its queries' ranges are not known."
            )
        return scale_by_query(X, groups)


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes as random_state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
