"""A fit of BoostedRanker on a Dask cluster: what it was given, as the workers take it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sinkprop.common.progress import progress_line
from sinkprop.data.kinds import is_elsewhere, is_frame_of_cluster, is_stored_set
from sinkprop.data.training_set import TrainingSet
from sinkprop.estimator.base import seed_of
from sinkprop.estimator.external_queries import no_arrays
from sinkprop.gbdt.boosters import booster_names
from sinkprop.gbdt.growing.rows import SparseRows, categorical_columns
from sinkprop.gbdt.growing.validation import check_row_weight, checked_criterion

if TYPE_CHECKING:
    from sinkprop.gbdt.ranker import BoostedRanker

__all__ = ["fit_on_cluster"]


def fit_on_cluster(
    ranker: BoostedRanker,
    X: Any,
    y: Any,
    qid: Any,
    group: Any,
    evaluation: tuple[Any, Any, Any],
    *,
    sample_weight: Any,
    query_weight: Any,
    categorical_feature: Any,
    init_model: Any,
    callbacks: Any,
) -> None:
    """Fit the ranker on its cluster; `evaluation` is eval_set, eval_qid and eval_group, all else of `fit`."""
    from sinkprop.cluster.connecting import check_workers, connected
    from sinkprop.gbdt.cluster.driver import check_lightgbm, divided_codes, grow_on_cluster, queries_on
    from sinkprop.gbdt.cluster.messages import Settings

    own, others = ranker._settings()
    for name, given in (("callbacks", callbacks), ("linear_tree", others.get("linear_tree"))):
        if given:
            raise ValueError(f"{name} cannot be given with cluster=: it is for a fit in one process.")
    seed = seed_of(own["random_state"])
    checked_criterion(ranker.criterion, ranker.convention, ranker.validation_fraction)
    with connected(ranker.cluster) as client, ExitStack() as stack:
        check_workers(client)
        check_lightgbm(client)
        if is_elsewhere(X):
            no_arrays(X, y=y, qid=qid, group=group, sample_weight=sample_weight, cluster=True)
            data = stack.enter_context(queries_on(client, X, y, qid, query_weight=query_weight))
            ranker._know(data.plan.n_features, data.plan.feature_names)
        else:
            rows = ranker._training_set(
                X, y, qid, group, sample_weight=sample_weight, query_weight=query_weight
            )
            check_row_weight(rows)
            data = stack.enter_context(queries_on(client, _dense(rows)))
        judges = [
            stack.enter_context(queries_on(client, *item, name="eval_set "))
            for item in _judges(ranker, *evaluation)
        ]
        names = getattr(ranker, "feature_names_in_", ())
        for part in judges:
            _check_judges(part.plan, ranker.n_features_in_, names)
        first = ranker._first_trees(init_model)
        codes, judged_by = divided_codes(data, judges, fraction=ranker.validation_fraction, seed=seed)
        plan, drawing = ranker._plan(
            seed,
            1,
            names=booster_names(names),
            categorical=categorical_columns(
                categorical_feature, ranker._categories, names, ranker.n_features_in_
            ),
        )
        criterion = ranker.criterion
        settings = Settings(
            ranker._loss(seed),
            plan,
            first=None if first is None else first.model_to_string(num_iteration=-1),
            drawing=drawing,
            criterion=criterion if criterion is None or isinstance(criterion, str) else tuple(criterion),
            convention=ranker.convention,
            judged_by=judged_by,
            n_threads=own["n_threads"],
        )
        with progress_line(bool(ranker.verbose) and ranker.verbose > 0) as notify:
            text, result, ranker.cluster_record_ = grow_on_cluster(
                client, data, judges, codes, settings, notify=notify
            )
    ranker._finish(text, result, ranker.n_features_in_)
    ranker.n_rows_, ranker.n_queries_ = data.plan.n_rows, data.plan.n_queries


def _judges(
    ranker: BoostedRanker, eval_set: Any, eval_qid: Any, eval_group: Any
) -> Iterator[tuple[Any, ...]]:
    """What judges, for a cluster: rows of this process, or what the workers read, with y and qid."""
    items = [eval_set] if is_stored_set(eval_set) else list(eval_set or ())
    if not any(is_elsewhere(item) or _is_frame_pair(item) for item in items):
        yield from ((_dense(part),) for part in ranker._evaluation_sets(eval_set, eval_qid, eval_group))
        return
    ids = list(eval_qid or ())  # of pairs only: the others have their own
    for item in items:
        if is_elsewhere(item):
            yield (item,)
            continue
        own = [ids.pop(0)] if ids else None
        if _is_frame_pair(item):
            yield (*item, *(own or [None]))
        else:
            yield (_dense(*ranker._evaluation_sets([item], own, None)),)
    if ids:
        raise ValueError("eval_qid must have an item for each pair of eval_set, and none for the others.")


def _check_judges(plan: Any, n_features: int, names: Sequence[str]) -> None:
    """A ValueError where queries on a cluster that judge have other features than X."""
    if plan.n_features != n_features:
        raise ValueError(f"eval_set has {plan.n_features} features, but X has {n_features}.")
    for at, (own, other) in enumerate(zip(names, plan.feature_names or (), strict=False)):
        if own != other:
            raise ValueError(
                f"eval_set has other features: its column {at} is {other!r}, that of X is {own!r}."
            )


def _is_frame_pair(item: Any) -> bool:
    """Whether it is (X, y) of a Dask DataFrame."""
    return isinstance(item, tuple | list) and len(item) == 2 and is_frame_of_cluster(item[0])


def _dense(data: TrainingSet) -> TrainingSet:
    """Rows as they are sent to workers."""
    if isinstance(data.X, SparseRows):
        raise ValueError("a sparse matrix cannot be sent to a cluster: give X.toarray(), or a stored set.")
    return data
