"""Sources of the queries of a linear fit, built from the arguments of `fit`."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from sinkprop.data.blocks import ArraySource, Source, StoredSource
from sinkprop.data.categories import refuse_categories
from sinkprop.data.checks import as_query_weight
from sinkprop.data.doubtful_data import warn_of_equal_labels
from sinkprop.data.kinds import is_elsewhere, is_stored_set
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.external_queries import as_stored

if TYPE_CHECKING:
    from sinkprop.store import StoredQueries

__all__ = ["Sources"]


class Sources:
    """Builder of sources for the training queries and the validation queries of a fit.

    A source gives access to queries in memory, on disk or on a cluster, block by block.

    stack      Context stack that closes the sources when it is closed itself.
    cluster    Parameter `cluster` of the ranker; None to train in this process.
    by_query   Whether features are scaled within their query.
    allow_nan  Whether queries on disk or on a cluster may have missing values.
    n_threads  Number of threads.
    """

    def __init__(
        self, stack: ExitStack, cluster: Any, *, by_query: bool, allow_nan: bool, n_threads: int | None
    ) -> None:
        self._stack, self._by_query, self._n_threads = stack, by_query, n_threads
        self._allow_nan = allow_nan
        self._client = None
        if cluster is not None:
            from sinkprop.cluster import connected

            self._client = stack.enter_context(connected(cluster))

    def of_rows(self, data: TrainingSet) -> Source:
        """Return a source for the queries of a training set in memory.

        A source gives access to queries block by block. If the fit runs on a cluster, the rows are sent to
        the cluster.
        """
        if self._client is not None:
            source: Source = self._on_cluster(data)
            return source
        return self._stack.enter_context(closing(ArraySource(data, self._n_threads)))

    def takes(self, X: Any) -> bool:
        """Whether X holds queries that are read in place instead of loaded into this process."""
        return is_stored_set(X) or (self._client is not None and is_elsewhere(X))

    def elsewhere(
        self, X: Any, y: Any = None, qid: Any = None, *, query_weight: Any = None, name: str = ""
    ) -> tuple[Source, tuple[str, ...] | None]:
        """Return a source for the queries that X holds, and the names of their features.

        A source gives access to queries block by block. It reads the queries in place, on disk or on a
        cluster, instead of loading them into this process. X must be data that `takes` accepts.
        """
        stored = as_stored(X)
        if stored is not None:
            _check_trainable(stored, allow_nan=self._allow_nan)
            warn_of_equal_labels((labels for labels, _ in stored.labels_by_block()), name=name)
        if self._client is not None:
            X = X if stored is None else stored
            source = self._on_cluster(X, y, qid, query_weight=query_weight, name=name)
            return source, source.feature_names
        assert stored is not None  # without a cluster, `takes` accepts stored sets only
        stored.verify(n_threads=self._n_threads)
        weight = None if query_weight is None else as_query_weight(query_weight, stored.groups, len(stored))
        own = StoredSource(stored, self._n_threads, by_query=self._by_query, query_weight=weight)
        return self._stack.enter_context(closing(own)), stored.feature_names

    def _on_cluster(self, X: Any, y: Any = None, qid: Any = None, **options: Any) -> Any:
        from sinkprop.cluster import cluster_source

        return self._stack.enter_context(
            cluster_source(
                self._client, X, y, qid, by_query=self._by_query, allow_nan=self._allow_nan, **options
            )
        )


def _check_trainable(stored: StoredQueries, *, allow_nan: bool) -> None:
    """Raise a ValueError if a stored set has no labels, has categories, or lacks needed values."""
    if not stored.labeled:
        raise ValueError(f"{stored.path}: the documents have no labels, which training needs.")
    refuse_categories(stored, "a linear ranker", str(stored.path))
    if not allow_nan:
        stored.require_finite("a ranker with missing='error'")
