"""Queries of a fit of boosted trees on a Dask cluster, made from the arguments of `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sinkprop.cluster.connecting import check_workers, connected
from sinkprop.data.kinds import is_elsewhere, is_frame_of_cluster
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.fit_arguments import evaluation_items
from sinkprop.gbdt.cluster.driver import ClusterQueries, check_lightgbm, queries_on
from sinkprop.gbdt.growing.rows import SparseRows

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterData", "check_features", "cluster_data"]


class ClusterData:
    """Connection to a cluster that keeps the data of one fit on the workers until the fit ends."""

    def __init__(self, client: Client, stack: ExitStack) -> None:
        self.client, self._stack = client, stack

    def queries(self, X: Any, *columns: Any, **options: Any) -> ClusterQueries:
        """Check queries, divide them into partitions for the workers, and return them.

        X        Checked rows (a `TrainingSet`), or data that the workers read themselves.
        columns  y and qid, if X is a Dask DataFrame.
        options  Further arguments of `queries_on`.
        """
        if isinstance(X, TrainingSet) and isinstance(X.X, SparseRows):
            raise ValueError(
                "a sparse matrix cannot be sent to a cluster: give X.toarray(), or a stored set."
            )
        return self._stack.enter_context(queries_on(self.client, X, *columns, **options))

    def evaluation_sets(
        self, eval_set: Any, eval_qid: Any, eval_group: Any, checked: Callable[..., list[TrainingSet]]
    ) -> list[ClusterQueries]:
        """Return the queries of each evaluation set, checked and divided into partitions for the workers.

        checked  Function that checks evaluation sets in this process and returns their rows.
        """
        return [
            self.queries(*item, name="eval_set ") for item in _items(eval_set, eval_qid, eval_group, checked)
        ]


@contextmanager
def cluster_data(cluster: Any) -> Iterator[ClusterData]:
    """Context that connects to a cluster, checks its workers and yields the `ClusterData` of a fit."""
    with connected(cluster) as client, ExitStack() as stack:
        check_workers(client)
        check_lightgbm(client)
        yield ClusterData(client, stack)


def check_features(sets: Sequence[ClusterQueries], n_features: int, names: Sequence[str]) -> None:
    """Raise a ValueError if the number or names of an evaluation set's features differ from those of X."""
    for plan in (part.plan for part in sets):
        if plan.n_features != n_features:
            raise ValueError(f"eval_set has {plan.n_features} features, but X has {n_features}.")
        for at, (own, other) in enumerate(zip(names, plan.feature_names or (), strict=False)):
            if own != other:
                raise ValueError(
                    f"eval_set has other features: its column {at} is {other!r}, but that of X is {own!r}."
                )


def _items(
    eval_set: Any, eval_qid: Any, eval_group: Any, checked: Callable[..., list[TrainingSet]]
) -> Iterator[tuple[Any, ...]]:
    """Iterate over the evaluation sets, each as a tuple of arguments for `ClusterData.queries`.

    The tuple is (X, y, qid) for a Dask DataFrame. Otherwise it has one item: checked rows, or data that the
    workers read themselves.
    """
    items = [] if eval_set is None else evaluation_items(eval_set)
    if not any(is_elsewhere(item) or _is_frame_pair(item) for item in items):
        yield from ((part,) for part in checked(eval_set, eval_qid, eval_group))
        return
    ids = list(eval_qid or ())  # query ids of the pairs (X, y); other items of eval_set have their own
    for item in items:
        if is_elsewhere(item):
            yield (item,)
            continue
        own = [ids.pop(0)] if ids else None
        if _is_frame_pair(item):
            yield (*item, *(own or [None]))
        else:
            yield tuple(checked([item], own, None))
    if ids:
        raise ValueError("eval_qid must have an item for each pair of eval_set, and none for the others.")


def _is_frame_pair(item: Any) -> bool:
    """Whether the item is (X, y) with a Dask DataFrame X."""
    return isinstance(item, tuple | list) and len(item) == 2 and is_frame_of_cluster(item[0])
