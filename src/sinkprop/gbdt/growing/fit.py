"""A fit of one or several boosters in one process: validation, bagging, threads, and the growth of trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sinkprop.common.progress import Notify
from sinkprop.data.training_set import TrainingSet
from sinkprop.gbdt.boosters import lightgbm_module
from sinkprop.gbdt.derivatives import Derivatives
from sinkprop.gbdt.growing.bagging import QueryBagging, WithoutQueries
from sinkprop.gbdt.growing.ensemble import grow_together, queries_left_out, query_parts
from sinkprop.gbdt.growing.loop import Boosting, GrownModel, grow
from sinkprop.gbdt.growing.rows import StreamedRows
from sinkprop.gbdt.growing.settings import FitSettings
from sinkprop.gbdt.growing.validation import (
    Validation,
    check_row_weight,
    counting,
    cross_validation,
    divided,
)
from sinkprop.gbdt.threads import adapting_threads, most_threads

__all__ = ["fit_boosters"]


def fit_boosters(
    data: TrainingSet, eval_set: TrainingSet | None, settings: FitSettings, *, notify: Notify, **plan: Any
) -> GrownModel:
    """Grow the trees of a model.

    plan  Fields of `Boosting` that are not parameters of the ranker, such as `names`.
    """
    check_row_weight(data)
    if isinstance(data.X, StreamedRows) and settings.others.get("linear_tree"):
        raise ValueError(
            "linear_tree needs the features in memory: fit to the result of the stored set's load()."
        )
    loss, n_threads = settings.loss.fitted(data.labels), settings.n_threads
    part, validation = divided(
        counting(data),
        eval_set,
        loss=loss,
        criterion=settings.criterion,
        convention=settings.convention,
        fraction=settings.validation_fraction,
        seed=settings.seed,
        n_threads=n_threads,
    )
    most = most_threads(n_threads, len(part.y))
    boosting, drawing = settings.boosting(most, **plan)
    n_boosters = settings.count(boosting, part.n_queries)
    derivatives = [
        Derivatives(
            replace(loss, seed=loss.seed + number),
            part.labels,
            part.groups,
            sample_weight=part.sample_weight,
            query_weight=part.query_weight,
            n_threads=n_threads,
        )
        for number in range(n_boosters)
    ]
    functions: list[Any] = list(derivatives)
    if drawing is not None:
        functions = [
            QueryBagging(each, part.groups, **{**drawing, "seed": drawing["seed"] + number})
            for number, each in enumerate(derivatives)
        ]
    try:
        with adapting_threads(n_threads, most) as adapt:
            watched: dict[str, Any] = {"value": derivatives[0].value, "notify": notify, "adapt": adapt}
            if n_boosters == 1:
                return grow(part.X, functions[0], boosting, validation, **watched)
            return _grow_together(part, functions, boosting, validation, settings, **watched)
    except lightgbm_module().basic.LightGBMError as error:
        raise ValueError(f"LightGBM refuses this: {' '.join(str(error).split())}") from error


def _grow_together(
    part: TrainingSet,
    functions: list[Any],
    boosting: Boosting,
    validation: Validation | None,
    settings: FitSettings,
    **watched: Any,
) -> GrownModel:
    """Grow several boosters, each on some of the queries."""
    count, sizes, parts, seed = len(functions), part.groups.sizes, None, settings.seed
    if validation is None:
        split = query_parts(part.n_queries, count, seed)
        out, parts = split == np.arange(count)[:, None], np.repeat(split, sizes)
        validation = cross_validation(
            part,
            count,
            loss=settings.loss.fitted(part.labels),
            criterion=settings.criterion,
            convention=settings.convention,
            n_threads=settings.n_threads,
        )
    else:
        out = queries_left_out(part.n_queries, count, seed)
    functions = [WithoutQueries(f, np.repeat(o, sizes)) for f, o in zip(functions, out, strict=True)]
    return grow_together(part.X, functions, boosting, validation, parts=parts, **watched)
