"""What all rankers share: scikit-learn's interface, with queries.

`fit(X, y, qid=...)`, `predict(X)`, `rank(X, qid=...)`, `score(X, y, qid=...)`, `save` and `load`. A subclass
fits and turns features into scores; what is given is checked here, by the functions of `fit_arguments.py`.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from sinkprop.data.kinds import is_elsewhere, is_stored_set
from sinkprop.data.queries import Groups, Queries, group_rows
from sinkprop.data.training_set import TrainingSet, joined
from sinkprop.estimator.external_queries import as_stored, in_memory, no_arrays
from sinkprop.estimator.fit_arguments import (
    expanded_weight,
    ids_of_sizes,
    is_pair,
    label_column,
    one_each,
    row_codes,
    text_column,
    warn_of_what_is_no_feature,
)
from sinkprop.metrics.evaluation import evaluate, evaluate_blocks
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

        X              an array or a frame, with y and qid; or a `StoredQueries` or its path, or a list of
                       LETOR files, which have both: rankers that cannot read them as they go load them. With
                       cluster= also a Dask DataFrame, with y and qid the names of its columns or Dask Series
                       of the same partitions
        eval_set       [(X, y)], with eval_qid or eval_group: queries that help to choose, not trained on; an
                       item may be a stored set
        sample_weight  (N,) row weights
        query_weight   (Q,) by first appearance, (N,) by row, or {id: weight}
        """
        # a wrong metric or convention fails before the work rather than after it
        evaluate([1.0], [0.0], [0], metrics=[self.metric], convention=self.convention)
        weights, evaluation = (sample_weight, query_weight), (eval_set, eval_qid, eval_group)
        if self._fit_elsewhere(X, y, qid, group, evaluation, weights):
            return self
        names = None
        if is_elsewhere(X):
            no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
            loaded = in_memory(X)
            X, y, qid, names = loaded.X, loaded.y, loaded.qid, loaded.feature_names
        data = self._training_set(X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        sets = self._evaluation_sets(eval_set, eval_qid, eval_group)
        validation = reduce(joined, sets) if sets else None
        if validation is not None and validation.X.dtype != data.X.dtype:
            validation = replace(validation, X=validation.X.astype(data.X.dtype))
        self._fit(data, validation)
        self.n_rows_, self.n_queries_ = len(data.y), data.n_queries
        return self

    def _fit_elsewhere(
        self, X: Any, y: Any, qid: Any, group: Any, evaluation: tuple[Any, Any, Any], weights: tuple[Any, Any]
    ) -> bool:
        """Whether the ranker was fitted to queries where they are: on disk, or on a cluster.

        evaluation  eval_set, eval_qid and eval_group;  weights  sample_weight and query_weight, of `fit`
        """
        return False

    @abstractmethod
    def _fit(self, data: TrainingSet, validation: TrainingSet | None) -> None:
        """Set `scaling_` and what `_score_rows` needs."""

    @abstractmethod
    def _score_rows(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """Scores (N,) of rows that `_by_query` has seen, and their queries where they were given."""

    def predict(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Scores of the rows, (N,): larger ranks higher. They compare documents of one query, nothing else.

        `qid` is needed only where features are normalized per query. X may be a `StoredQueries` or its path,
        without qid: it is read a block at a time.
        """
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            scores = np.empty(len(stored))
            self._fill(scores, stored, self._score_rows)
            return scores
        X = self._features(X)
        groups = self._optional_groups(qid, group, len(X))
        return self._score_rows(self._by_query(X, groups), groups)

    def outputs(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Floats:
        """Outputs of the model: one score per row, (N,), or two numbers, (N, 2), with a partitioned measure.

        `qid` is needed only where features are normalized per query.
        """
        X = self._features(X)
        groups = self._optional_groups(qid, group, len(X))
        return self._theta(self._by_query(X, groups), groups)

    def _theta(self, X: NDArray[Any], groups: Groups | None) -> Floats:
        """The outputs of rows that `_by_query` has seen."""
        return self._score_rows(X, groups)

    def rank(self, X: Any, *, qid: Ids | None = None, group: ArrayLike | None = None) -> Integers:
        """Ranks of the rows in their queries, (N,): 1 for the top. Of equal scores the earlier row wins.

        X may be a `StoredQueries` or its path, without qid: it is read a block at a time.
        """
        stored = self._given_stored(X, qid=qid, group=group)
        if stored is not None:
            ranks = np.empty(len(stored), np.int64)
            self._fill(ranks, stored, self._ranks)
            return ranks
        X = self._features(X)
        groups = self._groups(qid, group, len(X), "rank")
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

        X may be a `StoredQueries` or its path, without y and qid: it is read a block at a time.
        `sample_weight` is there because scikit-learn's Pipeline passes it: metrics have no row weights.
        """
        if sample_weight is not None:
            raise ValueError("score: a ranking metric has no row weights; give query_weight.")
        stored = self._given_stored(X, y=y, qid=qid, group=group)
        if stored is not None:
            return self._stored_score(stored, query_weight)
        if y is None:
            raise ValueError("score needs y, one label a row.")
        X = self._features(X)
        groups = self._groups(qid, group, len(X), "score")
        labels = as_labels(y, len(X), rows_of="X")
        ranks = self._ranks(self._by_query(X, groups), groups)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, len(X))
        result = evaluate(
            labels,
            -ranks.astype(np.float64),
            row_codes(groups),
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
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name} is in the stored set {stored.path}, and is not to be given with it."
                )
        if not self.__sklearn_tags__().input_tags.allow_nan:
            stored.require_finite(type(self).__name__)
        if stored.n_features != self.n_features_in_:
            raise ValueError(
                f"{stored.path} has {stored.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return stored

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
        groups = Groups(stored.offsets, None, stored.query_ids, stored.longest)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, len(stored))
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
        return ranking(self._score_rows(X, groups), row_codes(groups)).ranks

    def _training_set(
        self,
        X: ArrayLike,
        y: ArrayLike,
        qid: Ids | None,
        group: ArrayLike | None,
        *,
        sample_weight: ArrayLike | None = None,
        query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
        name: str = "",
    ) -> TrainingSet:
        """Checked rows, sorted by query. `name` tells an evaluation set's arrays from the training ones."""
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
            groups = self._groups(qid, group, n, "fit", name=name)
        row_weight = None if sample_weight is None else expanded_weight(sample_weight, n)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        X = self._by_query(X, groups)
        if groups.rows is not None:
            rows = groups.rows
            X, labels = X[rows], labels[rows]
            row_weight = None if row_weight is None else row_weight[rows]
            groups = Groups(groups.offsets, None, groups.queries, groups.longest)
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
        sets: list[Any] = [eval_set] if is_pair(eval_set) or is_stored_set(eval_set) else list(eval_set)
        if any(map(is_stored_set, sets)):
            return self._with_stored(sets, eval_qid, eval_group)
        ids = one_each(eval_qid, len(sets), "eval_qid")
        sizes = one_each(eval_group, len(sets), "eval_group")
        found = []
        for i, pair in enumerate(sets):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(
                    f"eval_set must be a list of (X, y) pairs; item {i} is {type(pair).__name__!r}. Of "
                    "queries q, give eval_set=[(q.X, q.y)] and eval_qid=[q.qid]."
                )
            found.append(self._training_set(pair[0], pair[1], ids[i], sizes[i], name="eval_set "))
        return found

    def _with_stored(self, sets: Sequence[Any], eval_qid: Any, eval_group: Any) -> list[Any]:
        """Evaluation sets of which some are stored: eval_qid and eval_group have an item for each other."""
        pairs = [item for item in sets if not is_stored_set(item)]
        found = iter(self._evaluation_sets(pairs or None, eval_qid, eval_group))
        both = []
        for item in sets:
            if is_stored_set(item):
                both.append(self._stored_judges(item))
            else:
                both.append(next(found))
        return both

    def _stored_judges(self, item: Any) -> Any:
        """A stored set to judge by, its features in the order of the training set's by their names.

        Here it is loaded; rankers that read it as they go have their own way.
        """
        stored = self._given_stored(item)
        columns = None
        if stored is not None:
            columns = stored.columns_of(getattr(self, "feature_names_in_", None))
        loaded = in_memory(item if stored is None else stored)
        X = loaded.X if columns is None else np.ascontiguousarray(loaded.X[:, columns])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return self._training_set(X, loaded.y, loaded.qid, None, name="eval_set ")

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

    def _groups(
        self, qid: Ids | None, group: ArrayLike | None, n: int, what: str, *, name: str = ""
    ) -> Groups:
        groups = self._optional_groups(qid, group, n, name=name)
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

    def _check_one_query(self, qid: Ids | None, n: int, what: str) -> None:
        """A ValueError where the rows of a method that is of one query are of several."""
        groups = self._optional_groups(qid, None, n)
        if groups is not None and len(groups.queries) > 1:
            first = groups.queries.tolist()[0]
            raise ValueError(
                f"{what} is of one query, but qid has {len(groups.queries)}. Give the rows of one, as "
                f"X[qid == {first!r}]."
            )

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
