"""Checks of the inputs of a ranker's methods: features, labels and queries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sinkprop.common.types import Floats
from sinkprop.data.categories import refuse_categories
from sinkprop.data.checks import as_features, as_label_columns, as_labels, as_query_weight, nan_for_masked
from sinkprop.data.doubtful_data import warn_of_column_values, warn_of_equal_labels
from sinkprop.data.feature_scaling import scale_by_query
from sinkprop.data.kinds import has_own_queries, is_elsewhere, is_stored_set
from sinkprop.data.queries import Groups, Ids, Queries, group_rows, ids_of_sizes
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.external_queries import as_stored, in_memory, no_arrays, nothing_beside
from sinkprop.estimator.fit_arguments import (
    evaluation_items,
    expanded_weight,
    label_column,
    one_each,
    text_column,
)
from sinkprop.objective.gains import as_gain, bound
from sinkprop.objective.gains.base import with_bound_arrays

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["RankerInputs"]


class RankerInputs(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class that turns the arguments of a ranker's methods into checked rows grouped by query."""

    @property
    def _allow_nan(self) -> bool:
        """Whether features may be missing (NaN)."""
        return bool(self.__sklearn_tags__().input_tags.allow_nan)

    def _know_features(self, n_features: int, names: Sequence[str] | None) -> None:
        """Set the number of features and their names for an X that is not an array or a frame."""
        self.n_features_in_ = int(n_features)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _given_stored(self, X: Any, **given: Any) -> StoredQueries | None:
        """Return X if it is a stored set, or open it if it is the path of one. None for any other X.

        Raises a ValueError if the set does not have the model's number of features, or if it has missing
        values and the ranker does not accept them. `given` are further arguments, such as y, which the stored
        set already holds. If one of them is not None, a ValueError is raised too.
        """
        stored = as_stored(X)
        if stored is None:
            return None
        check_is_fitted(self, "n_features_in_")
        nothing_beside(f"the stored set {stored.path}", **given)
        if not self._allow_nan:
            stored.require_finite(type(self).__name__)
        if stored.n_features != self.n_features_in_:
            raise ValueError(
                f"{stored.path} has {stored.n_features} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        self._coding(stored)
        return stored

    def _coding(
        self, data: Queries | StoredQueries, name: str = "X", *, reset: bool = False
    ) -> Callable[[Any], NDArray[Any]]:
        """Return a function of rows of `data` that replaces codes of their categories by the ranker's codes.

        With `reset`, which is True during a fit, the codes stay as they are. Raises a ValueError if the
        ranker does not accept the categories. `name` is the name of the rows in messages. Rankers that accept
        categories override this method.
        """
        refuse_categories(data, type(self).__name__, str(getattr(data, "path", "")))
        return lambda X: X

    def _rows(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, **given: Any
    ) -> tuple[NDArray[Any], Groups | None]:
        """Return the checked features of the rows X, and the queries of these rows.

        The queries are None if X is not `Queries` and neither `qid` nor `group` is given.

        given  Further arguments, such as y. They must be None if X is `Queries`, which holds these values.
        """
        if isinstance(X, Queries):
            nothing_beside("the Queries", qid=qid, group=group, **given)
            return self._features_of(X), X.groups
        features = self._features(X)
        return features, self._optional_groups(qid, group, len(features))

    def _rows_in_queries(
        self, X: Any, qid: Ids | None, group: ArrayLike | None, what: str, **given: Any
    ) -> tuple[NDArray[Any], Groups]:
        """Return the checked features of the rows X, and their queries.

        Raises a ValueError that names the method `what` if no queries are given.
        """
        features, groups = self._rows(X, qid, group, **given)
        return features, self._required(groups, len(features), what)

    def _rows_of_one_query(self, X: Any, qid: Ids | None, what: str) -> tuple[NDArray[Any], Groups]:
        """Return the features of the rows X of one query, prepared for scoring, and a `Groups` of this query.

        `qid` may be None. Raises a ValueError that names the method `what` if `qid` holds several queries.
        """
        features, groups = self._rows(X, qid, None)
        if groups is not None and len(groups.queries) > 1:
            first = groups.queries.tolist()[0]
            raise ValueError(
                f"{what} takes one query, but qid has {len(groups.queries)}. Give the rows of one query, for "
                f"example X[qid == {first!r}]."
            )
        one = group_rows(None, len(features))
        return self._prepared(features, one), one

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
        """Check arguments of `fit` and return them as a `TrainingSet`, whose rows are sorted by query.

        name  Prefix of argument names in errors: "eval_set " for an evaluation set, empty for training data.
        """
        if is_elsewhere(X) or isinstance(X, Queries):
            no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight)
            queries = X if isinstance(X, Queries) else in_memory(X, allow_nan=self._allow_nan)
            X = self._features_of(queries, reset=not name, name=f"{name}X")
            warn_of_equal_labels([queries.y], name=name)
            y, columns = self._label_columns(queries.y, name)
            return self._sorted_set(X, y, queries.groups, sample_weight, query_weight, columns)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: one label per row."
            )
        X = self._features(X, reset=not name, name=f"{name}X")
        n = len(X)
        if _several_columns(y) and self._takes_label_columns:
            labels, columns = self._label_columns(as_label_columns(y, n, rows_of=f"{name}X"), name)
        else:
            labels = as_labels(label_column(y, name), n, rows_of=f"{name}X")
            labels, columns = self._label_columns(labels, name)
        warn_of_equal_labels([labels], name=name)
        if not name:
            warn_of_column_values(X, getattr(self, "feature_names_in_", None), labels, qid)
        if qid is None and group is None:
            if name:
                raise ValueError(f"{name}qid is missing: one query id per row of {name}X.")
            warnings.warn(
                f"fit: no qid was given, so all {n} rows count as one query. Pass qid=, one id per row.",
                UserWarning,
                stacklevel=4,  # the warning shows the line that called fit
            )
            groups = group_rows(None, n)
        else:
            groups = self._required(self._optional_groups(qid, group, n, name=name), n, "fit")
        return self._sorted_set(X, labels, groups, sample_weight, query_weight, columns)

    _takes_label_columns = False  # whether the ranker has a gain, which may read several labels per document

    def _label_columns(self, labels: Floats, name: str) -> tuple[Floats, Floats | None]:
        """Return one label per document, (N,), and all label columns (N, L), or None if there is only one.

        Arrays that the ranker's gain holds become columns of the training labels.
        """
        gain = getattr(self, "gain", None) if self._takes_label_columns else None
        if gain is None:
            return labels, None
        gain = as_gain(gain)
        if bound(gain)[1] and name:
            raise ValueError(
                f"gain: {gain} holds an array with one row per training document, and eval_set has other "
                "documents. Pass the array as a further column of both label arrays, and the number of the "
                "column to the gain."
            )
        gain, labels = with_bound_arrays(gain, labels)
        return gain.relevance(labels), None if labels.ndim == 1 else labels

    def _sorted_set(
        self,
        X: NDArray[Any],
        labels: Floats,
        groups: Groups,
        sample_weight: Any,
        query_weight: Any,
        columns: Floats | None = None,
    ) -> TrainingSet:
        n = len(labels)
        row_weight = None if sample_weight is None else expanded_weight(sample_weight, n)
        weight = None if query_weight is None else as_query_weight(query_weight, groups, n)
        X = self._by_query(X, groups)
        if groups.rows is not None:
            rows = groups.rows
            X, labels = X[rows], labels[rows]
            row_weight = None if row_weight is None else row_weight[rows]
            columns = None if columns is None else columns[rows]
            groups = groups.sorted
        return TrainingSet(X, labels, groups, row_weight, weight, columns)

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
                found.append(self._stored_eval_set(item))
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

    def _stored_eval_set(self, item: Any) -> Any:
        """Load a stored validation set, and match its features to those of the training set by name.

        Rankers that read stored sets block by block override this method.
        """
        return self._training_set(self._given_stored(item), name="eval_set ")

    def _features_of(self, queries: Queries, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        """Return the checked features of `Queries`.

        With `reset`, which is True during a fit, the names of the features become the feature names of the
        ranker. Otherwise, if the ranker and `Queries` both have feature names, the columns are put in the
        order of the ranker's names.
        """
        columns = None if reset else queries.columns_of(getattr(self, "feature_names_in_", None))
        X = self._coding(queries, name, reset=reset)(queries.X)
        X = X if columns is None else np.ascontiguousarray(X[:, columns])
        # `Queries` hold the names of the features. scikit-learn finds names only in frames, and would
        # warn that they are missing.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            features = self._features(X, reset=reset, name=name)
        if reset and queries.feature_names is not None:
            self.feature_names_in_ = np.array(queries.feature_names, dtype=object)
        return features

    def _features(self, X: ArrayLike, *, reset: bool = False, name: str = "X") -> NDArray[Any]:
        if not reset:
            check_is_fitted(self, "n_features_in_")
        X = nan_for_masked(X)
        try:
            values = validate_data(
                self, X, reset=reset, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
            )
        except (TypeError, ValueError) as error:
            column = None if "feature names" in str(error) else text_column(X)
            if column is None:
                raise
            raise ValueError(
                f"{name} must hold numbers, but its column {column!r} does not: {error}. Leave it out, for "
                f"example with X.drop(columns=[{column!r}]), or encode it as numbers; pass query ids as qid=."
            ) from None
        names = getattr(self, "feature_names_in_", None) if hasattr(X, "columns") else None
        return as_features(values, name=name, allow_nan=self._allow_nan, columns=names)

    def _required(self, groups: Groups | None, n: int, what: str) -> Groups:
        """The queries of n rows. Raises a ValueError that names the method `what` if they are not known."""
        if groups is None:
            hint = ""
            if what == "score":
                hint = (
                    " In cross-validation, sklearn.set_config(enable_metadata_routing=True) passes it on, "
                    "through pipelines and nested searches from scikit-learn 1.8 on."
                )
            raise ValueError(
                f"{what} needs qid=, one query id per row ({n} rows), or group=, the sizes of consecutive "
                f"queries. For a single query, give all rows the same id.{hint}"
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

    def _by_query(self, X: NDArray[Any], groups: Groups | None) -> NDArray[Any]:
        """Return X, with features scaled within each query if `normalization` is "query".

        `groups` holds the queries of the rows. Raises a ValueError if it is None although the scaling needs
        it.
        """
        if getattr(self, "normalization", "none") != "query":
            return X
        if groups is None:
            raise ValueError(
                "predict needs qid= with normalization='query', which scales features within each query."
            )
        return scale_by_query(X, groups)


def _several_columns(y: Any) -> bool:
    """Whether labels have several columns."""
    if hasattr(y, "nnz"):  # a sparse matrix
        return True
    shape = getattr(y, "shape", None)
    if not isinstance(shape, tuple):
        shape = np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1
