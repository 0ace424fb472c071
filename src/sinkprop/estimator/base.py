"""The base class of all rankers: scikit-learn's interface, with queries.

`fit(X, y, qid=...)`, `predict(X)`, `rank(X, qid=...)`, `score(X, y, qid=...)`, `save` and `load`. A subclass
fits and turns features into scores; what is given is checked here, by the functions of `fit_arguments.py`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

import sinkprop
from sinkprop.common.types import Floats, Integers
from sinkprop.data.checks import as_labels, as_query_weight
from sinkprop.data.feature_scaling import Scaling
from sinkprop.data.queries import Groups, Queries
from sinkprop.data.training_set import TrainingSet, joined, with_dtype
from sinkprop.estimator.inputs import Ids, RankerInputs
from sinkprop.metrics.evaluation import check_metric, evaluate, evaluate_blocks
from sinkprop.metrics.ranking import ranking
from sinkprop.model_files import ModelFileError, read_model, write_model

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["BaseRanker"]

R = TypeVar("R", bound="BaseRanker")


class BaseRanker(RankerInputs):
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


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes as random_state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
