"""Where the queries of a linear fit are: the source of whatever the fit was given."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkprop.data.blocks import ArraySource, Source, StoredSource
from sinkprop.data.checks import as_query_weight
from sinkprop.data.kinds import is_elsewhere, is_stored_set
from sinkprop.data.training_set import TrainingSet, joined
from sinkprop.estimator.external_queries import as_stored, in_memory, no_arrays

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["Places"]


class Places:
    """The sources of a fit of `ranker`, open for as long as the stack is."""

    def __init__(self, ranker: Any, stack: ExitStack, cluster: Any) -> None:
        self._ranker, self._stack = ranker, stack
        self._by_query = ranker.normalization == "query"
        self._client = None
        self._dtype: np.dtype[Any] | None = None  # of training rows that were given as arrays
        if cluster is not None:
            from sinkprop.cluster import connected

            self._client = stack.enter_context(connected(cluster))

    def training(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any, query_weight: Any) -> Source:
        if not is_elsewhere(X):
            data = self._ranker._training_set(
                X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
            )
            self._dtype = data.X.dtype
            return self._of_rows(data)
        on_cluster = self._client is not None
        no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight, cluster=on_cluster)
        source, names = self._elsewhere(X, y, qid, query_weight)
        self._ranker.n_features_in_ = source.n_features
        if names is not None:
            self._ranker.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self._ranker, "feature_names_in_"):
            del self._ranker.feature_names_in_
        return source

    def validation(self, sets: Any, eval_qid: Any, eval_group: Any) -> Source | None:
        if isinstance(sets, list | tuple) and any(map(is_stored_set, sets)):
            if len(sets) > 1:
                raise ValueError(
                    f"eval_set: {len(sets)} sets were given, and one of them is stored; give that one alone, "
                    "or convert all their files into one."
                )
            if eval_qid is not None or eval_group is not None:
                raise ValueError("eval_qid and eval_group are for arrays: a stored eval_set has its own.")
            source, names = self._elsewhere(sets[0], None, None, None, name="eval_set ")
            self._check_features(source.n_features, names)
            return source
        found = self._ranker._evaluation_sets(sets, eval_qid, eval_group)
        if not found:
            return None
        judging = reduce(joined, found)
        if self._dtype is not None:  # as in a fit without a cluster
            judging = replace(judging, X=judging.X.astype(self._dtype, copy=False))
        return self._of_rows(judging)

    def _of_rows(self, data: TrainingSet) -> Source:
        source: Source
        if self._client is None:
            source = self._stack.enter_context(closing(ArraySource(data, self._ranker.n_threads)))
        else:
            source = self._on_cluster(data)
        return source

    def _elsewhere(
        self, X: Any, y: Any, qid: Any, query_weight: Any, *, name: str = ""
    ) -> tuple[Source, tuple[str, ...] | None]:
        """The source of queries that are no arrays, and the names of their features."""
        stored = as_stored(X)
        if stored is not None:
            check_trainable(stored)
        if self._client is not None:
            source = self._on_cluster(
                X if stored is None else stored, y, qid, query_weight=query_weight, name=name
            )
            return source, source.feature_names
        if stored is None:
            loaded = in_memory(X)
            data = self._ranker._training_set(
                loaded.X, loaded.y, loaded.qid, None, query_weight=query_weight, name=name
            )
            return self._of_rows(data), None
        stored.verify(n_threads=self._ranker.n_threads)
        weight = None
        if query_weight is not None:
            groups = stored.groups
            weight = as_query_weight(query_weight, groups, len(stored))
        source = StoredSource(stored, self._ranker.n_threads, by_query=self._by_query, query_weight=weight)
        return self._stack.enter_context(closing(source)), stored.feature_names

    def _on_cluster(self, X: Any, y: Any = None, qid: Any = None, **options: Any) -> Any:
        from sinkprop.cluster import cluster_source

        return self._stack.enter_context(
            cluster_source(self._client, X, y, qid, by_query=self._by_query, **options)
        )

    def _check_features(self, n_features: int, names: tuple[str, ...] | None) -> None:
        own = getattr(self._ranker, "feature_names_in_", None)
        if n_features != self._ranker.n_features_in_:
            raise ValueError(
                f"eval_set has {n_features} features, but {type(self._ranker).__name__} is fitted to "
                f"{self._ranker.n_features_in_}."
            )
        if own is not None and names is not None and tuple(own) != tuple(names):
            at = next(i for i, (a, b) in enumerate(zip(own, names, strict=True)) if a != b)
            raise ValueError(
                f"eval_set has other features: its column {at} is {names[at]!r}, that of the training set "
                f"{own[at]!r}."
            )


def check_trainable(stored: StoredQueries) -> None:
    """A ValueError where a linear scorer cannot be trained on the set."""
    if not stored.labeled:
        raise ValueError(
            f"{stored.path}: the documents have no labels, without which nothing can be trained."
        )
    if stored.has_nan:
        raise ValueError(
            f"{stored.path}: some features are NaN, for missing. Fill in what is missing before the data are "
            "converted, or take boosted trees, BoostedRanker, for which NaN is a value."
        )
