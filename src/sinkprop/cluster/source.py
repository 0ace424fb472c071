"""The queries of a fit on a Dask cluster: tasks are sent to the workers, and their results are combined."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.cluster.calls import call
from sinkprop.cluster.connecting import check_workers, connected, while_connected
from sinkprop.cluster.errors import ClusterLost
from sinkprop.cluster.partitions import FitPartition, evaluate, share
from sinkprop.cluster.placement import Placement
from sinkprop.cluster.plan import Plan, plan_of
from sinkprop.cluster.reduction import Node, covered, root
from sinkprop.common.types import Floats

if TYPE_CHECKING:
    from distributed import Client, Future

    from sinkprop.data.blocks import Task

__all__ = ["ClusterSource", "cluster_source"]

P = TypeVar("P")

# Maximum number of rounds of a task. The first round computes the results of all partitions. If workers are
# lost, the next round computes the results that are missing.
_ROUNDS = 30


@contextlib.contextmanager
def cluster_source(
    cluster: Any,
    X: Any,
    y: Any = None,
    qid: Any = None,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    by_query: bool = False,
    allow_nan: bool = False,
    n_features: int | None = None,
    name: str = "",
) -> Iterator[ClusterSource]:
    """Check queries and put them on the workers of a cluster for the duration of a `with` block.

    Parameters
    ----------
    cluster : dask.distributed.Client, Dask cluster, str or int
        Cluster to use, see `connected`. For two sources on one cluster, call `connected` once and pass its
        client to both.
    X : StoredQueries, path, list of paths, Dask DataFrame, Queries, TrainingSet or array of shape (N, D)
        Features of the documents. Stored sets (or the path of one) and `Queries` have their own labels and
        query ids; a list of paths names LETOR files.
    y : array of shape (N,), str or Dask Series, optional
        Labels, if X is an array or a Dask DataFrame. For a Dask DataFrame, the name of a column, or a Dask
        Series with the same partitions.
    qid : array of shape (N,), str or Dask Series, optional
        Query ids, if X is an array or a Dask DataFrame; given like `y`.
    query_weight : array of shape (Q,) or mapping from query id to float, optional
        Query weights, in the order of the queries or by query id.
    by_query : bool, default False
        Whether to normalize the features query by query.
    allow_nan : bool, default False
        Whether features of files and Dask DataFrames may be missing. NULL in a file becomes NaN.
    n_features : int, optional
        Number of features in LETOR files. By default the largest feature number in a file, which must then be
        the same in all files.
    name : str, default ""
        Text before "X" in error messages, such as "eval_set ".

    Yields
    ------
    ClusterSource
        The queries on the workers.
    """
    with connected(cluster) as client:
        with while_connected(client):
            check_workers(client)
            plan = plan_of(
                client, X, y, qid, by_query=by_query, allow_nan=allow_nan, n_features=n_features, name=name
            )
        with contextlib.ExitStack() as stack:
            stack.callback(plan.release)
            source = ClusterSource(client, plan, query_weight=plan.weights_of_queries(query_weight))
            stack.callback(source.close)
            yield source


class ClusterSource:
    """Queries on the workers of a cluster, in partitions of whole queries.

    Made by `cluster_source`.

    Parameters
    ----------
    client : dask.distributed.Client
        Client of the cluster.
    plan : Plan
        Division of the data into partitions.
    query_weight : array of shape (Q,), optional
        Query weights.
    codes : array of shape (Q,), optional
        Integer per query that tells tasks how to use the query; see `with_codes`. Tasks read the codes of
        their block as `block.codes`.
    placement : Placement, optional
        Placement of the partitions on workers, if the source shares it with another source.

    Attributes
    ----------
    n_rows : int
        Number of documents.
    n_queries : int
        Number of queries.
    n_features : int
        Number of features.
    longest : int
        Number of documents of the largest query.
    sizes : array of shape (Q,)
        Number of documents of each query.
    query_ids : array of shape (Q,)
        Query ids.
    feature_names : tuple of str or None
        Names of the features, if the data has names.
    weighted_rows : bool
        Whether the rows have weights.
    digest : str
        Checksum of the rows. For a stored set or arrays it is the same as in a fit in a single process.
    """

    def __init__(
        self,
        client: Client,
        plan: Plan,
        *,
        query_weight: Floats | None = None,
        codes: NDArray[np.int16] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.n_rows, self.n_queries, self.n_features = plan.n_rows, plan.n_queries, plan.n_features
        self.sizes, self.query_ids = plan.sizes, plan.query_ids
        self.longest = int(plan.sizes.max())
        self.feature_names, self.digest = plan.feature_names, plan.digest
        self.weighted_rows = plan.weighted_rows
        self.query_weight, self._codes = query_weight, codes
        self._client, self._plan = client, plan
        self._placement = placement or plan.placement or Placement(client, plan.recipes, plan.rows)
        self._shares: dict[str, Future] = {}
        self._shared_version = -1
        self._views: list[ClusterSource] = []

    def with_codes(self, codes: NDArray[np.int16]) -> ClusterSource:
        """Attach a code to each query: an integer for the tasks, such as its fold of cross-validation.

        Parameters
        ----------
        codes : array of shape (Q,)
            Code of each query, a 16-bit integer.

        Returns
        -------
        ClusterSource
            The same queries with these codes. Both sources use the same partitions on the workers, and
            `close` of this source also closes the new one.
        """
        given = np.asarray(codes, dtype=np.int16)
        if given.shape != (self.n_queries,):
            raise ValueError(f"codes must have one value per query, ({self.n_queries},); got {given.shape}.")
        view = ClusterSource(
            self._client,
            self._plan,
            query_weight=self.query_weight,
            codes=given,
            placement=self._placement,
        )
        self._views.append(view)
        return view

    def run(self, task: Task[P]) -> P:
        """Run a task on all blocks and combine the results in the order of the partitions.

        If a worker is lost, other workers compute its results again.

        Parameters
        ----------
        task : Task
            Function of a block, with a method `combine` for results.

        Returns
        -------
        object
            Combined result. It does not depend on the number of workers or on their speed.

        Raises
        ------
        ClusterLost
            If no worker is left, the scheduler is gone, or workers are lost too often.
        """
        from distributed.protocol.pickle import dumps

        payload = dumps(task)
        with while_connected(self._client):
            return self._run(task, payload)

    def _run(self, task: Task[P], payload: bytes) -> P:
        n = len(self._plan.recipes)
        nodes: dict[Node, P] = {}
        self._placement.refresh()
        for _ in range(_ROUNDS):
            missing = set(range(n)) - covered(nodes, n)
            if not missing:
                return root(nodes, n, task.combine)
            found, lost = self._round(payload, n, missing)
            nodes.update(found)
            if lost:
                self._placement.refresh(at_once=True)
        raise ClusterLost(
            f"workers were lost {_ROUNDS} times in one evaluation. If they run out of memory, cut the "
            "data into smaller partitions, or convert it to a stored set, which is read block by block."
        )

    def close(self) -> None:
        """Free the memory that this source, and sources made from it by `with_codes`, use on the workers."""
        for view in self._views:
            view.close()
        self._forget_shares()
        self._placement.release()

    def _round(self, payload: bytes, n: int, missing: set[int]) -> tuple[dict[Node, Any], bool]:
        """Run the pickled task on the partitions with the indices `missing`, out of n.

        Returns the results, and whether a worker was lost. The results are {(level, i): result} for nodes of
        the tree in which results are combined; see `sinkprop.cluster.reduction`.
        """
        shares = self._all_shares() if len(missing) == n else self._shared(missing)
        count = len(shares)
        answers = call(
            self._client,
            evaluate,
            list(shares),
            list(shares.values()),
            [payload] * count,
            [n] * count,
            name="sinkprop-evaluation",
        )
        found: dict[Node, Any] = {}
        for part in answers.values():
            found.update(part)
        return found, len(answers) < count

    def _forget_shares(self) -> None:
        for future in self._shares.values():
            future.release()
        self._shares = {}

    def _all_shares(self) -> dict[str, Future]:
        """Return {worker address: future of its `Share`}; a `Share` has all partitions that a worker holds.

        The shares stay on the workers, and are made again only after a partition was made or moved.
        """
        if self._shared_version != self._placement.version:
            self._forget_shares()
            self._shares = self._shared(set(range(len(self._plan.recipes))))
            self._shared_version = self._placement.version
        return self._shares

    def _shared(self, numbers: set[int]) -> dict[str, Future]:
        """Return {worker address: future of a `Share`} for the partitions with the indices `numbers`.

        Each of these partitions is in the `Share` of the worker that holds it.
        """
        by_worker: dict[str, list[int]] = {}
        for number in sorted(numbers):
            by_worker.setdefault(self._placement.where[number], []).append(number)
        return {
            worker: self._client.submit(
                share,
                [self._entry(number) for number in own],
                *(self._placement.loaded[number] for number in own),
                workers=[worker],
                key=f"sinkprop-share-{uuid4().hex}",
                pure=False,
            )
            for worker, own in by_worker.items()
        }

    def _entry(self, number: int) -> FitPartition:
        """Return the partition's index, with the weights and codes (see `with_codes`) of its queries.

        number  Index of the partition.
        """
        first, stop = self._plan.first[number], self._plan.first[number + 1]
        weight, codes = self.query_weight, self._codes
        return FitPartition(
            number,
            first,
            None if weight is None else weight[first:stop],
            None if codes is None else codes[first:stop],
        )
