"""The recipe of a linear fit: maximize the expected gain stage by stage, then average or select stages.

In each stage, L-BFGS maximizes, over the weights w of the features X,

    expected gain(X w; sigma) - penalty / 2 |w - w_0|^2

with one penalty and one sigma. w_0 are the weights of a ridge regression or of least squares on the labels.
A track is a sequence of stages, each of which continues from the result of the stage before; the first one
starts from w_0. By default there is one track: decreasing penalties at one sigma. In the paper's recipe there
is one track per penalty, with decreasing sigmas.

The result of every stage is a candidate for the model. It is evaluated on validation queries, on which it was
not trained. `Selection` decides whether the model is an average of the candidates, or one of them.

Every stage is run on several paths: each path trains on one set of queries, and the paths of a stage are
evaluated together, in one pass over the queries. With cross-validation, each fold is validated by a path that
trains on all other queries. If the model is one candidate, one more path trains it (`Split`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sinkprop.common.progress import Notify, silent
from sinkprop.common.types import Floats
from sinkprop.data.blocks import Source, one_blas_thread
from sinkprop.data.feature_scaling import Scaling, check_kind, scaling_of
from sinkprop.data.missing import MissingValues
from sinkprop.estimator.criteria import Criterion
from sinkprop.estimator.held_out import MOST_ROWS, HeldOut
from sinkprop.estimator.selection import Choice, Selection, average, choose, mean_over_queries
from sinkprop.linear.ascent import Evaluation, Moments, Objective, moments_of, regressions, scorer, spreads
from sinkprop.linear.exact_sums import exponent, until_it_fits
from sinkprop.linear.missing import learned, treated
from sinkprop.linear.paths import Arrangement, arrange
from sinkprop.linear.records import FitResult, Stage
from sinkprop.linear.tasks import Assess, Assessed, Extent, Linear, Score
from sinkprop.model_files import saved_floats
from sinkprop.objective.gains import Gain
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import PartitionedMeasure, Relaxation, SmoothedIndicator, score_weights

__all__ = ["Finished", "Recipe", "ResumeError", "Trained", "train"]

# Penalties of the ridge regressions among which the validation queries choose the start; 0 is least squares.
_RIDGES = (0.0, *(10.0 ** (i / 2) for i in range(-6, 4)))


@dataclass(frozen=True, eq=False)
class Recipe:
    """Checked settings of a fit. Fields that are not listed are parameters of `SinkPropRanker`.

    tracks        Sequences of stages; a stage is a pair (penalty, sigma). With a `PartitionedMeasure`, which
                  has no sigma, it is (penalty, None).
    averaged      Whether the model is an average of all candidates.
    seed          Seed of splits and resampling.
    criterion_of  Function of queries and scores that returns the criterion of each query.
    criterion     Name of the criterion.
    """

    gain: Gain
    relaxation: Relaxation
    tracks: tuple[tuple[tuple[float, float | None], ...], ...]
    start: str
    selection: Selection
    averaged: bool
    criterion_of: Criterion
    criterion: str
    n_iter: Iterations = 5
    epsilon: float = 1e-6
    max_iter: int = 20
    tol: float = 1e-9
    resample: int = 0
    top: int = 200
    seed: int = 0
    normalization: str = "standard"
    missing: str = "indicator"

    def at(self, sigma: float | None) -> Relaxation:
        """The relaxation with this sigma, unless every document has its own scale."""
        if sigma is None or not isinstance(self.relaxation, SmoothedIndicator | PartitionedMeasure):
            return self.relaxation
        return replace(self.relaxation, sigma=sigma)


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished stage: the optimization for one penalty and one sigma, on all paths.

    A path is the training on one set of queries.

    track        Index of the track of the stage; -1 for the regression from which all tracks start.
    stage        Index of the stage in its track.
    weights      Weights at the end of the stage, one array per path.
    value        Expected gain of the training queries of the first path.
    validation   (Q,) criterion of each validation query.
    evaluations  Number of evaluations of the expected gain and its gradient, over all paths.
    seconds      Wall-clock time of the stage.
    training     Mean criterion of the training queries of the first path; None for a partitioned measure.
    """

    track: int
    stage: int
    weights: tuple[Floats, ...]
    value: float
    validation: Floats
    evaluations: int
    seconds: float
    training: float | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Finished:
        """Make a stage from its record in a checkpoint, whose weights are one array.

        Raises a KeyError, TypeError or ValueError if the record is not valid.
        """
        given = dict(record)
        for name in ("track", "stage", "evaluations"):
            if type(given[name]) is not int:
                raise ValueError(f"{name} must be a whole number")
        for name in ("value", "seconds", *(["training"] if given.get("training") is not None else [])):
            given[name] = float(given[name])
        for name in ("weights", "validation"):
            shape = np.shape(given[name])
            # the criterion of a query may be NaN, if its convention leaves the query out
            given[name] = saved_floats(name, given[name], shape, finite=name == "weights")
        return cls(**{**given, "weights": tuple(given["weights"])})


@dataclass(frozen=True, eq=False)
class Trained:
    """Outcome of `train`.

    result    The model, and records of all stages.
    scaling   Scaling of the features.
    missing   Treatment of missing values; None if no value is missing.
    held_out  Scores of the validation queries; None if there are none.
    """

    result: FitResult
    scaling: Scaling
    missing: MissingValues | None
    held_out: HeldOut | None


class ResumeError(ValueError):
    """Finished stages do not belong to this fit."""


def train(
    data: Source,
    validation: Source | None,
    recipe: Recipe,
    *,
    resumed: Sequence[Finished] = (),
    checkpoint: Callable[[Sequence[Finished]], None] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
    notify: Notify = silent,
) -> Trained:
    """Fit a linear model with the settings `recipe`.

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
) -> Trained:
    extent = data.run(Extent())
    missing = learned(recipe.missing, data, extent, validation)
    if missing is not None:
        data = treated(data, missing)
        validation = None if validation is None else treated(validation, missing)
        extent = data.run(Extent())
    rng = np.random.default_rng([recipe.seed, 0])
    arrangement = arrange(data, validation, recipe.selection, rng, averaged=recipe.averaged)
    moments = moments_of(data, extent)
    scaling = scaling_of(recipe.normalization, moments.mean, moments.deviation)
    paths, regression = _objectives(arrangement, moments, scaling, recipe)
    weight = arrangement.weight
    known = {(record.track, record.stage): record for record in resumed}
    shapes = [path.start.shape for path in paths]
    for record in resumed:
        if [W.shape for W in record.weights] != shapes or len(record.validation) != arrangement.n_validation:
            raise ResumeError(f"the stage ({record.track}, {record.stage}) has arrays of other shapes")
    finished: list[Finished] = []
    total = sum(map(len, recipe.tracks))
    status = "finished"

    def run(track: int, stage: int, start: Sequence[Floats]) -> Finished:
        if (track, stage) in known:
            finished.append(known[track, stage])
            return finished[-1]
        finished.append(_run_stage(paths, arrangement, recipe, track, stage, start))
        if checkpoint is not None:
            checkpoint(finished)
        if on_stage is not None:
            on_stage(_record(finished[-1], recipe, mean_of(finished[-1])))
        return finished[-1]

    def mean_of(record: Finished) -> float:
        return float(mean_over_queries(record.validation, weight))

    try:
        run(-1, 0, [path.start for path in paths])
        done = 0
        for i, track in enumerate(recipe.tracks):
            W: Sequence[Floats] = [path.start for path in paths]
            best: Finished | None = None
            since = 0
            for j, (penalty, sigma) in enumerate(track):
                at = f"penalty {penalty:g}" + ("" if sigma is None else f", sigma {sigma:g}")
                reached = 0.0 if best is None else mean_of(best)
                notify(done + j, total, f"{at}, {recipe.criterion} {reached:.4f}")
                record = run(i, j, W)
                W = record.weights
                if best is None or mean_of(record) > mean_of(best):
                    best, since = record, 0
                elif not recipe.averaged or _hopeless(record, best, weight):
                    since += 1
                if since >= recipe.selection.patience:
                    break
            done += len(track)
    except KeyboardInterrupt:
        if not finished:
            raise
        status = "interrupted"
    n_queries = data.n_queries + (0 if validation is None else validation.n_queries)
    choice = _choice(finished, weight, recipe, n_queries)
    result = _result(paths, arrangement, finished, choice, recipe, status, regression)
    held_out = _held_out(paths, arrangement, finished, choice, recipe.at(result.sigma))
    return Trained(result, scaling, missing, held_out)


def _objectives(
    arrangement: Arrangement, moments: Moments, scaling: Scaling, recipe: Recipe
) -> tuple[list[Objective], Floats]:
    """Return the objective of each path, and the least-squares weights on all training queries.

    The objective starts from a regression on the labels: from least squares, or from the ridge regression
    with the penalty that has the best criterion on the validation queries.
    """
    ridges = _RIDGES if recipe.start == "ridge" else _RIDGES[:1]
    *found, every = regressions([*arrangement.paths, arrangement.every], moments, scaling, ridges)
    models = list(zip(arrangement.paths, found, strict=True))
    best = 0
    if len(ridges) > 1:
        means = []
        for i in range(len(ridges)):
            scorers = [scorer(own.weights[i], scaling) for own in found]
            values, _ = _assessed(arrangement, recipe, recipe.relaxation, scorers, training=False)
            means.append(mean_over_queries(values, arrangement.weight))
        best = int(np.argmax(means))
    widths = spreads([(path, own.weights[best]) for path, own in models], scaling)
    objectives = [
        Objective(path, moments, scaling, recipe.relaxation, own.weights[best], own.mean, width)
        for (path, own), width in zip(models, widths, strict=True)
    ]
    return objectives, every.weights[0]


def _hopeless(record: Finished, best: Finished, weight: Floats | None) -> bool:
    """Whether a stage is more than two standard errors worse than the best one so far."""
    choice = average(np.stack([best.validation, record.validation]), weight)
    return bool(choice.means[0] - choice.means[1] > 2 * choice.errors[1])


def _run_stage(
    paths: Sequence[Objective],
    arrangement: Arrangement,
    recipe: Recipe,
    track: int,
    stage: int,
    start: Sequence[Floats],
) -> Finished:
    began, evaluations = time.perf_counter(), 1
    penalty, sigma = recipe.tracks[max(track, 0)][stage]
    relaxation = recipe.at(sigma)
    of = Evaluation(recipe.gain, recipe.n_iter, recipe.epsilon, recipe.resample, recipe.seed)
    weights = list(start)
    if track >= 0:
        weights, count = of.maximize(
            paths, start, relaxation, penalty, max_iter=recipe.max_iter, tol=recipe.tol
        )
        evaluations += count
    value, _ = of.values(paths, {0: weights[0]}, relaxation)[0]
    scorers = [scorer(W, path.scaling) for path, W in zip(paths, weights, strict=True)]
    validation, training = _assessed(arrangement, recipe, relaxation, scorers, training=relaxation.width == 1)
    seconds = time.perf_counter() - began
    return Finished(track, stage, tuple(weights), value, validation, evaluations, seconds, training)


def _assessed(
    arrangement: Arrangement,
    recipe: Recipe,
    relaxation: Relaxation,
    scorers: Sequence[Linear],
    *,
    training: bool,
) -> tuple[Floats, float | None]:
    """Criterion (Q,) of each validation query, and the mean criterion of the training queries.

    Each validation query is scored by the scorer of the path that it validates. The mean is over the training
    queries of the first path; it is None unless `training` is set.

    scorers  Scorer of each path. A path is the training on one set of queries.
    """
    paths = arrangement.paths
    of_paths = {path.number: own for path, own in zip(paths, scorers, strict=True)}
    first = paths[0].number, scorers[0]

    def run(extra: int) -> list[Assessed]:
        return [
            source.run(
                Assess(
                    criterion_of=recipe.criterion_of,
                    scorers={number: of_paths[number] for number in numbers},
                    training=first if training and source in paths[0].sources else None,
                    relaxation=relaxation,
                    n_iter=recipe.n_iter,
                    epsilon=recipe.epsilon,
                    top=recipe.top,
                    exponent=exponent(paths[0].largest_weight) + 20 + extra,
                )
            )
            for source, numbers in arrangement.validation
        ]

    found = until_it_fits(run, lambda parts: all(p.training is None or p.training.fits for p in parts))
    values = [
        part.validation[path.number] for path in paths for part in found if path.number in part.validation
    ]
    sums = [part.training for part in found if part.training is not None]
    mean = None
    if sums:
        total, share = reduce(add, sums).value().tolist()
        mean = total / share if share > 0 else 0.0
    return np.concatenate(values), mean


def _choice(finished: Sequence[Finished], weight: Floats | None, recipe: Recipe, n_queries: int) -> Choice:
    """Return the share of each finished stage in the model."""
    if recipe.averaged:
        return average(np.stack([record.validation for record in finished]), weight)
    # `choose` needs the smoothest stages first: the regression, then the stages by decreasing sigma, and
    # those with the same sigma by decreasing penalty.
    order = sorted(
        range(len(finished)), key=lambda i: (finished[i].track >= 0, finished[i].stage, -finished[i].track)
    )
    choice = choose(
        np.stack([finished[i].validation for i in order]),
        np.array([_position(finished[i]) for i in order]),
        weight,
        smoothest=recipe.selection.takes_smoothest(n_queries),
    )
    back = np.argsort(order)
    return Choice(order[choice.taken], choice.means[back], choice.errors[back], choice.shares[back])


def _result(
    paths: Sequence[Objective],
    arrangement: Arrangement,
    finished: Sequence[Finished],
    choice: Choice,
    recipe: Recipe,
    status: str,
    regression: Floats,
) -> FitResult:
    """Return the model, made of the finished stages by their shares, with the records of all stages.

    Scores of the model have a standard deviation of 1 within queries, except those of a partitioned measure,
    which is not invariant to their scale.
    """
    stages = tuple(
        replace(
            _record(record, recipe, float(choice.means[i])),
            standard_error=float(choice.errors[i]),
            chosen=i == choice.taken,
            share=float(choice.shares[i]),
        )
        for i, record in enumerate(finished)
    )
    used = [i for i in range(len(finished)) if choice.shares[i] > 0]
    averaged = paths if arrangement.averaged else paths[:1]
    weights = [finished[i].weights[j] for i in used for j in range(len(averaged))]
    shares = np.repeat(choice.shares[used] / len(averaged), len(averaged))
    sigma = recipe.tracks[max(finished[used[0]].track, 0)][finished[used[0]].stage][1]
    if isinstance(recipe.relaxation, SmoothedIndicator):
        scaling, every = paths[0].scaling, arrangement.every
        widths = [width or 1.0 for width in spreads([(every, W) for W in weights], scaling)]
        sigmas = [stages[i].sigma or 0.0 for i in used for _ in averaged]
        # each model counts with scores of the same spread
        model = _sum(shares, [W / width for W, width in zip(weights, widths, strict=True)])
        sigma = math.fsum(
            share * own / width for share, own, width in zip(shares, sigmas, widths, strict=True)
        )
        (width,) = spreads([(every, model)], scaling)
        model, sigma = model / (width or 1.0), sigma / (width or 1.0)
    else:
        model = _sum(shares, weights)
    summary = (status, recipe.criterion, arrangement.validated_on)
    return FitResult(*summary, model, sigma, stages, start=regression)


def _held_out(
    paths: Sequence[Objective],
    arrangement: Arrangement,
    finished: Sequence[Finished],
    choice: Choice,
    relaxation: Relaxation,
) -> HeldOut | None:
    """Return the scores of the validation queries by the models of their paths, on the scale of the model's.

    A path is the training on one set of queries. Its model is made of the stages by the same shares as the
    model of all paths.
    """
    if arrangement.resubstituted:
        return None
    numbers = {number for _, numbers in arrangement.validation for number in numbers}
    validating = [j for j, path in enumerate(arrangement.paths) if path.number in numbers]
    used = [i for i in range(len(finished)) if choice.shares[i] > 0]
    scaling, every = paths[0].scaling, arrangement.every
    scorers = {}
    for j in validating:
        weights = [finished[i].weights[j] for i in used]
        if isinstance(relaxation, SmoothedIndicator):
            widths = [width or 1.0 for width in spreads([(every, W) for W in weights], scaling)]
            model = _sum(choice.shares[used], [W / width for W, width in zip(weights, widths, strict=True)])
            (width,) = spreads([(every, model)], scaling)
            model = model / (width or 1.0)
        else:
            model = _sum(choice.shares[used], weights)
        scorers[arrangement.paths[j].number] = scorer(model, scaling)
    sources = [(source, numbers) for source, numbers in arrangement.validation if numbers]
    share = arrangement.n_validation / sum(source.n_queries for source, _ in sources)
    step = max(1, math.ceil(share * sum(source.n_rows for source, _ in sources) / MOST_ROWS))
    found = [
        source.run(Score({number: scorers[number] for number in numbers}, score_weights(relaxation), step))
        for source, numbers in sources
    ]
    return HeldOut.joined(part for part in found if part is not None)


def _sum(shares: Floats, arrays: Sequence[Floats]) -> Floats:
    """Sum of arrays, each times its share, in the same order for any build of NumPy."""
    total = np.zeros_like(arrays[0])
    for share, array in zip(shares.tolist(), arrays, strict=True):
        total += share * array
    return total


def _record(finished: Finished, recipe: Recipe, criterion: float) -> Stage:
    return Stage(
        penalty=math.inf if finished.track < 0 else recipe.tracks[finished.track][finished.stage][0],
        sigma=recipe.tracks[max(finished.track, 0)][finished.stage][1],
        expected_gain=finished.value,
        criterion=criterion,
        evaluations=finished.evaluations,
        seconds=finished.seconds,
        training=finished.training,
    )


def _position(record: Finished) -> tuple[int, int]:
    """Position of a stage on the grid of tracks and their stages. The regression has no neighbors."""
    return (record.track, record.stage) if record.track >= 0 else (-9, -9)
