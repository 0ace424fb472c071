"""A fit of boosted trees on a Dask cluster: its queries, made from the arguments of `fit`, and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from sinkprop.cluster.connecting import check_workers, connected
from sinkprop.common.progress import Notify
from sinkprop.data.categories import Categories
from sinkprop.data.kinds import is_elsewhere, is_frame_of_cluster, is_stored_set
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.external_queries import as_stored
from sinkprop.estimator.fit_arguments import evaluation_items
from sinkprop.gbdt.boosters import booster_text
from sinkprop.gbdt.cluster.driver import (
    ClusterQueries,
    check_lightgbm,
    divided_codes,
    grow_on_cluster,
    queries_on,
)
from sinkprop.gbdt.cluster.messages import ClusterRecord, Settings
from sinkprop.gbdt.growing.loop import GrownModel
from sinkprop.gbdt.growing.rows import SparseRows
from sinkprop.gbdt.growing.settings import FitSettings
from sinkprop.gbdt.growing.validation import checked_criterion
from sinkprop.objective.gains import as_gain

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterData", "check_evaluation", "check_settings", "cluster_data"]


class ClusterData:
    """Connection to a cluster that keeps the data of one fit on the workers until the fit ends."""

    def __init__(self, client: Client, stack: ExitStack) -> None:
        self._client, self._stack = client, stack

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
        return self._stack.enter_context(queries_on(self._client, X, *columns, **options))

    def evaluation_sets(
        self, eval_set: Any, eval_qid: Any, eval_group: Any, checked: Callable[..., list[TrainingSet]]
    ) -> list[ClusterQueries]:
        """Return the queries of each evaluation set, checked and divided into partitions for the workers.

        checked  Function that checks evaluation sets in this process and returns their rows.
        """
        return [
            self.queries(*item, name="eval_set ") for item in _items(eval_set, eval_qid, eval_group, checked)
        ]

    def grow(
        self,
        data: ClusterQueries,
        eval_sets: Sequence[ClusterQueries],
        fit: FitSettings,
        *,
        first: Any,
        notify: Notify,
        **plan: Any,
    ) -> tuple[GrownModel, ClusterRecord]:
        """Grow the trees of a model on the workers, see `grow_on_cluster`.

        first  Booster whose trees come first, or None.
        plan   Fields of `Boosting` that are not parameters of the ranker, such as `names`.
        """
        codes, validated_on = divided_codes(data, eval_sets, fraction=fit.validation_fraction, seed=fit.seed)
        boosting, drawing = fit.boosting(1, **plan)
        criterion = fit.criterion
        settings = Settings(
            fit.loss,
            boosting,
            first=None if first is None else booster_text(first),
            drawing=drawing,
            criterion=criterion if criterion is None or isinstance(criterion, str) else tuple(criterion),
            convention=fit.convention,
            validated_on=validated_on,
            n_threads=fit.n_threads,
        )
        return grow_on_cluster(self._client, data, eval_sets, codes, settings, notify=notify)


@contextmanager
def cluster_data(cluster: Any) -> Iterator[ClusterData]:
    """Context that connects to a cluster, checks its workers and yields the `ClusterData` of a fit."""
    with connected(cluster) as client, ExitStack() as stack:
        check_workers(client)
        check_lightgbm(client)
        yield ClusterData(client, stack)


def check_settings(settings: FitSettings, **functions: Any) -> None:
    """Raise a ValueError if the ranker has parameters that do not work on a cluster.

    functions  Functions of the user that are called during the fit, by the name of the argument, or None.
    """
    settings.check_one_booster("cluster")
    gain = as_gain(settings.loss.gain)
    if gain.unfitted:
        raise ValueError(
            f"gain: on a cluster, no process sees all labels, so that {gain} must state the highest grade: "
            "set max_label=, or max_grade in the text form, such as 'err(max_grade=4)@10'."
        )
    for name, given in {**functions, "linear_tree": settings.others.get("linear_tree")}.items():
        if given:
            raise ValueError(f"{name} cannot be given with cluster=: it works only in one process.")
    checked_criterion(settings.criterion, settings.convention, settings.validation_fraction)


def check_evaluation(
    sets: Sequence[ClusterQueries],
    eval_set: Any,
    n_features: int,
    names: Sequence[str],
    categories: Categories,
) -> None:
    """Raise a ValueError if the features or categories of an evaluation set differ from those of X.

    eval_set    Argument of `fit` from which `sets` were made.
    n_features  Number of features of X, whose names and categories are `names` and `categories`.
    """
    for plan in (part.plan for part in sets):
        if plan.n_features != n_features:
            raise ValueError(f"eval_set has {plan.n_features} features, but X has {n_features}.")
        for at, (own, other) in enumerate(zip(names, plan.feature_names or (), strict=False)):
            if own != other:
                raise ValueError(
                    f"eval_set has other features: its column {at} is {other!r}, but that of X is {own!r}."
                )
    for stored in filter(is_stored_set, evaluation_items(eval_set or [])):
        if Categories.of(as_stored(stored)) != categories:
            raise ValueError(
                f"eval_set: the categories of {stored} must be those of X, in the same order, for a fit on a "
                "cluster."
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
