"""The paper's recipe: maximize the expected gain at decreasing smoothing, then select a stage.

For each penalty, L-BFGS maximizes, over the weights w of the features X,

    expected gain(X w; sigma) - penalty / 2 |w - w_0|^2

in stages. The first stage starts from the least-squares weights w_0 and has the largest sigma. Each further
stage continues from the result of the stage before, with a smaller sigma. The result of every stage of every
penalty is a candidate for the model. It is evaluated on validation queries, on which it was not trained.
`Selection` decides which candidate becomes the model: the best one, or the smoothest of those that the
validation queries cannot distinguish from the best.

With cross-validation, every stage is run on several paths: path 0 trains the final model, and each other path
trains on all queries but those of one fold (`estimator.splits.Split`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source, one_blas_thread
from sinkprop.data.feature_scaling import Scaling, check_kind, scaling_of
from sinkprop.estimator.criteria import Criterion
from sinkprop.estimator.selection import Selection, choose, mean_over_queries
from sinkprop.linear.ascent import Objective, moments_of, scorer, starts
from sinkprop.linear.exact_sums import exponent, until_it_fits
from sinkprop.linear.paths import Arrangement, arrange
from sinkprop.linear.records import FitResult, Stage
from sinkprop.linear.tasks import Assess, Assessed
from sinkprop.objective.gains import Gain
from sinkprop.objective.relaxations import Relaxation, SmoothedIndicator

__all__ = ["Recipe", "train"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """Checked settings of a fit. Fields that are not listed are parameters of `SinkPropRanker`.

    penalties     Regularization strengths to try.
    seed          Seed of splits and resampling.
    sigmas        One value of sigma per stage. With a `PartitionedMeasure`, which has no sigma, each is None.
    criterion_of  Function of queries and scores that returns the criterion of each query.
    criterion     Name of the criterion.
    """

    gain: Gain
    relaxation: Relaxation
    penalties: tuple[float, ...]
    sigmas: tuple[float | None, ...]
    selection: Selection
    criterion_of: Criterion
    criterion: str
    n_iter: float = 5
    epsilon: float = 1e-6
    max_iter: int = 20
    tol: float = 1e-9
    resample: int = 0
    top: int = 200
    seed: int = 0
    normalization: str = "standard"

    def at(self, sigma: float | None) -> Relaxation:
        """The relaxation with this sigma. A partitioned measure has no sigma and is returned unchanged."""
        if isinstance(self.relaxation, SmoothedIndicator) and sigma is not None:
            return replace(self.relaxation, sigma=sigma)
        return self.relaxation


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished stage: the optimization for one penalty and one sigma, on all paths.

    A path is the training on one set of queries. Path 0 trains the final model, and with cross-validation
    there is one more path per fold.

    penalty      Index of the penalty; -1 for the least-squares start.
    stage        Index of the stage, which is also the index of its sigma.
    weights      Weights at the end of the stage, one array per path.
    value        Expected gain of the training queries of path 0.
    validation   (Q,) criterion of each validation query.
    evaluations  Number of evaluations of the expected gain and its gradient, over all paths.
    seconds      Wall-clock time of the stage.
    training     Mean criterion of the training queries of path 0; None for a partitioned measure, or if
                 the stage comes from a checkpoint without this field.
    """

    penalty: int
    stage: int
    weights: tuple[Floats, ...]
    value: float
    validation: Floats
    evaluations: int
    seconds: float
    training: float | None = None


def train(
    data: Source,
    validation: Source | None,
    recipe: Recipe,
    *,
    resumed: Sequence[Finished] = (),
    checkpoint: Callable[[Sequence[Finished]], None] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
    notify: Notify = silent,
) -> tuple[FitResult, Scaling]:
    """Fit a linear model with the settings `recipe`; return the result and the scaling of the features.

    A stage is the optimization for one penalty and one sigma.

    resumed     Stages that an earlier call with the same data and recipe passed to `checkpoint`. They are not
                run again, and the result is the same.
    checkpoint  Function called after each stage with all stages finished so far.
    on_stage    Function called with the record of each stage that was run. Its criterion is that of the stage
                alone, not averaged with its neighbors.
    notify      Function called with the progress of the fit.

    A keyboard interrupt ends the fit with the best of the stages finished so far.
    """
    check_kind(recipe.normalization)
    with one_blas_thread():
        return _train(data, validation, recipe, resumed, checkpoint, on_stage, notify)


def _train(
    data: Source,
    validation: Source | None,
    recipe: Recipe,
    resumed: Sequence[Finished],
    checkpoint: Callable[[Sequence[Finished]], None] | None,
    on_stage: Callable[[Stage], None] | None,
    notify: Notify,
) -> tuple[FitResult, Scaling]:
    arrangement = arrange(data, validation, recipe.selection, np.random.default_rng([recipe.seed, 0]))
    moments = moments_of(data)
    scaling = scaling_of(recipe.normalization, moments.mean, moments.deviation)
    paths = [
        Objective(
            path,
            moments,
            scaling,
            recipe.relaxation,
            start,
            gain=recipe.gain,
            n_iter=recipe.n_iter,
            epsilon=recipe.epsilon,
            resample=recipe.resample,
            seed=recipe.seed,
        )
        for path, start in zip(arrangement.paths, starts(arrangement.paths, moments, scaling), strict=True)
    ]
    weight = arrangement.weight
    known = {(record.penalty, record.stage): record for record in resumed}
    finished: list[Finished] = []
    total = len(recipe.penalties) * len(recipe.sigmas)
    status = "finished"

    def run(penalty: int, stage: int, start: Sequence[Floats]) -> Finished:
        if (penalty, stage) in known:
            finished.append(known[penalty, stage])
            return finished[-1]
        finished.append(_run_stage(paths, arrangement, recipe, penalty, stage, start))
        if checkpoint is not None:
            checkpoint(finished)
        if on_stage is not None:
            on_stage(_record(finished[-1], recipe, mean_of(finished[-1])))
        return finished[-1]

    def mean_of(record: Finished) -> float:
        return float(mean_over_queries(record.validation, weight))

    try:
        run(-1, 0, [path.start for path in paths])
        for i, penalty in enumerate(recipe.penalties):
            W: Sequence[Floats] = [path.start for path in paths]
            best, since = -math.inf, 0
            for j, sigma in enumerate(recipe.sigmas):
                at = f"penalty {penalty:g}" + ("" if sigma is None else f", sigma {sigma:g}")
                notify(i * len(recipe.sigmas) + j, total, f"{at}, {recipe.criterion} {max(best, 0):.4f}")
                record = run(i, j, W)
                W = record.weights
                mean = mean_of(record)
                best, since = (mean, 0) if mean > best else (best, since + 1)
                if since >= recipe.selection.patience:
                    break
    except KeyboardInterrupt:
        if not finished:
            raise
        status = "interrupted"
    n_queries = data.n_queries + (0 if validation is None else validation.n_queries)
    smoothest = recipe.selection.takes_smoothest(n_queries)
    return _result(paths[0], finished, weight, recipe, status, arrangement.validated_on, smoothest), scaling


def _run_stage(
    paths: Sequence[Objective],
    arrangement: Arrangement,
    recipe: Recipe,
    penalty: int,
    stage: int,
    start: Sequence[Floats],
) -> Finished:
    began, before = time.perf_counter(), sum(path.evaluations for path in paths)
    relaxation = recipe.at(recipe.sigmas[stage])
    weights = tuple(start)
    if penalty >= 0:
        weights = tuple(
            path.maximize(W, relaxation, recipe.penalties[penalty], max_iter=recipe.max_iter, tol=recipe.tol)
            for path, W in zip(paths, start, strict=True)
        )
    value, _ = paths[0].value(weights[0], relaxation)
    validation, training = _assessed(paths, arrangement, recipe, relaxation, weights)
    return Finished(
        penalty,
        stage,
        weights,
        value,
        validation,
        sum(path.evaluations for path in paths) - before,
        time.perf_counter() - began,
        training,
    )


def _assessed(
    paths: Sequence[Objective],
    arrangement: Arrangement,
    recipe: Recipe,
    relaxation: Relaxation,
    weights: Sequence[Floats],
) -> tuple[Floats, float | None]:
    """Criterion (Q,) of each validation query, and the mean criterion of the training queries.

    A path is the training on one set of queries; path 0 trains the final model. Each validation query is
    scored with the weights of the path that it validates. The mean is over the training queries of path 0,
    scored with its weights; it is None for a partitioned measure.

    weights  Weights of each path after a stage, which is the optimization for one penalty and one sigma.
    """
    scorers = [scorer(W, path.scaling) for path, W in zip(paths, weights, strict=True)]
    own = scorers[0] if relaxation.width == 1 else None

    def run(extra: int) -> list[Assessed]:
        return [
            source.run(
                Assess(
                    criterion_of=recipe.criterion_of,
                    scorers={number: scorers[number] for number in numbers},
                    training=own if source in paths[0].path.sources else None,
                    relaxation=relaxation,
                    n_iter=recipe.n_iter,
                    epsilon=recipe.epsilon,
                    top=recipe.top,
                    exponent=exponent(paths[0].path.largest_weight) + 20 + extra,
                )
            )
            for source, numbers in arrangement.validation
        ]

    found = until_it_fits(run, lambda parts: all(p.training is None or p.training.fits for p in parts))
    values = [
        part.validation[number] for number in range(len(paths)) for part in found if number in part.validation
    ]
    sums = [part.training for part in found if part.training is not None]
    training = None
    if sums:
        total, share = reduce(add, sums).value().tolist()
        training = total / share if share > 0 else 0.0
    return np.concatenate(values), training


def _result(
    model: Objective,
    finished: Sequence[Finished],
    weight: Floats | None,
    recipe: Recipe,
    status: str,
    validated_on: str,
    smoothest: bool,
) -> FitResult:
    """Select the model among the finished stages, and return it with the records of all stages."""
    # `choose` needs the smoothest stages first: the least-squares start, then the stages by decreasing sigma,
    # and those with the same sigma by decreasing penalty.
    order = sorted(
        range(len(finished)),
        key=lambda i: (finished[i].penalty >= 0, finished[i].stage, -finished[i].penalty),
    )
    choice = choose(
        np.stack([finished[i].validation for i in order]),
        np.array([_position(finished[i]) for i in order]),
        weight,
        smoothest=smoothest,
    )
    stages: list[Any] = [None] * len(finished)
    for at, i in enumerate(order):
        stages[i] = replace(
            _record(finished[i], recipe, float(choice.means[at])),
            standard_error=float(choice.errors[at]),
            chosen=at == choice.taken,
        )
    taken = finished[order[choice.taken]]
    weights, sigma = taken.weights[0], recipe.sigmas[taken.stage]
    if sigma is not None:  # rescale, so that scores have standard deviation 1 within queries
        width = model.spread(weights) or 1.0
        weights, sigma = weights / width, sigma / width
    summary = (status, recipe.criterion, validated_on)
    return FitResult(*summary, weights, sigma, tuple(stages), start=model.regression)


def _record(finished: Finished, recipe: Recipe, criterion: float) -> Stage:
    return Stage(
        penalty=math.inf if finished.penalty < 0 else recipe.penalties[finished.penalty],
        sigma=recipe.sigmas[finished.stage],
        expected_gain=finished.value,
        criterion=criterion,
        evaluations=finished.evaluations,
        seconds=finished.seconds,
        training=finished.training,
    )


def _position(record: Finished) -> tuple[int, int]:
    """Position of a stage on the grid of penalties and sigmas. The least-squares start has no neighbors."""
    return (record.penalty, record.stage) if record.penalty >= 0 else (-9, -9)
