"""The queries of a fit on a Dask cluster, as the trainer sees them: tasks go out, sums come back."""

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

_ROUNDS = 30  # losses of workers that one task survives


@contextlib.contextmanager
def cluster_source(
    cluster: Any,
    X: Any,
    y: Any = None,
    qid: Any = None,
    *,
    query_weight: ArrayLike | Mapping[Hashable, float] | None = None,
    by_query: bool = False,
    n_features: int | None = None,
    name: str = "",
) -> Iterator[ClusterSource]:
    """The queries of X on the workers of a cluster, checked, for as long as the block lasts.

    cluster       see `connected`; to have two sources on one, open it once and give both the client
    X             a StoredQueries or the path of one; a list of files of LETOR text; a Dask DataFrame, with y
                  and qid the names of its columns or Dask Series of the same partitions; a `Queries`; a
                  `TrainingSet`; or arrays X (N, D), y (N,) and qid (N,)
    query_weight  (Q,) in the order of the queries, or {id: weight}
    by_query      whether features are normalized query by query
    n_features    of LETOR text; None takes the largest id, which must be the same in every file
    name          what comes before X in messages: "eval_set "
    """
    with connected(cluster) as client:
        with while_connected(client):
            check_workers(client)
            plan = plan_of(client, X, y, qid, by_query=by_query, n_features=n_features, name=name)
        with contextlib.ExitStack() as stack:
            stack.callback(plan.release)
            source = ClusterSource(client, plan, query_weight=plan.weights_of_queries(query_weight))
            stack.callback(source.close)
            yield source


class ClusterSource:
    """Whole queries in partitions on the workers of a cluster.

    n_rows, n_queries, n_features, longest  sizes of the set, and of its largest query
    sizes          (Q,) documents of each query
    query_ids      (Q,)
    feature_names  or None
    query_weight   (Q,) or None
    digest         of the rows: of a stored set and of arrays, the same as in a single process
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
        """The same queries, with a code (Q,) each."""
        given = np.asarray(codes, dtype=np.int16)
        if given.shape != (self.n_queries,):
            raise ValueError(f"codes must be one a query, ({self.n_queries},); got {given.shape}.")
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
        """The task on every block, combined in the order of the partitions, whoever came first.

        What a lost worker had is computed again elsewhere; `ClusterLost` where no worker is left.
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
            f"workers were lost {_ROUNDS} times in one evaluation. If the system ends them for their memory, "
            "cut the data into smaller partitions, or convert it to a stored set, which is read as it goes."
        )

    def close(self) -> None:
        """Let the workers forget what they hold, of this source and of those made from it."""
        for view in self._views:
            view.close()
        self._forget_shares()
        self._placement.release()

    def _round(self, payload: bytes, n: int, missing: set[int]) -> tuple[dict[Node, Any], bool]:
        """The task on the partitions missing: nodes of the tree, and whether a worker was lost meanwhile."""
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
        if self._shared_version != self._placement.version:
            self._forget_shares()
            self._shares = self._shared(set(range(len(self._plan.recipes))))
            self._shared_version = self._placement.version
        return self._shares

    def _shared(self, numbers: set[int]) -> dict[str, Future]:
        """The partitions of these numbers, gathered into one share for each worker that has some."""
        by_worker: dict[str, list[int]] = {}
        for number in sorted(numbers):
            by_worker.setdefault(self._placement.where[number], []).append(number)
        return {
            worker: self._client.submit(
                share,
                [self._piece(number) for number in own],
                *(self._placement.loaded[number] for number in own),
                workers=[worker],
                key=f"sinkprop-share-{uuid4().hex}",
                pure=False,
            )
            for worker, own in by_worker.items()
        }

    def _piece(self, number: int) -> FitPartition:
        first, stop = self._plan.first[number], self._plan.first[number + 1]
        weight, codes = self.query_weight, self._codes
        return FitPartition(
            number,
            first,
            None if weight is None else weight[first:stop],
            None if codes is None else codes[first:stop],
        )
