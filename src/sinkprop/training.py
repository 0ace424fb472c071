"""The paper's recipe: from the regression's weights, up the expected gain, at ever less smoothing.

For each penalty, L-BFGS maximizes

    expected gain(X w; sigma) - penalty / 2 |w - w_0|^2

from the least-squares weights w_0, then again from where it ended with a smaller sigma, and so on. Every
stage of every penalty is a candidate. Queries that took no part in its training judge it, and the model is
the smoothest of the candidates that these queries cannot tell from the best one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from numbers import Real
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.arrangement import Arrangement, arrange
from sinkprop.ascent import Objective, moments_of, scorer, starts
from sinkprop.exact import exponent, until_it_fits
from sinkprop.gains import Gain
from sinkprop.judging import Judge
from sinkprop.passes import Assess, Assessed
from sinkprop.progress import Notify, silent
from sinkprop.relaxations import Relaxation, SmoothedIndicator
from sinkprop.scaling import Scaling, check_kind, scaling_of
from sinkprop.selection import Selection, choose, mean_over_queries
from sinkprop.sources import Source, one_blas_thread

__all__ = ["Annealing", "FitResult", "Recipe", "Stage", "train"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Annealing:
    """The values of sigma from `start` down to `stop`, each `factor` times the one before.

    They are in units of the spread of the regression's scores: their standard deviation within queries. The
    default starts so smooth that the expected gain is nearly a quadratic function, and ends near the
    metric itself.

    >>> Annealing(4, 0.5).sigmas
    (4.0, 2.0, 1.0, 0.5)
    >>> [round(s, 3) for s in Annealing.smoothrank().sigmas[:3]]
    [5.657, 4.0, 2.828]
    """

    start: float = 16.0
    stop: float = 0.125
    factor: float = 0.5

    def __post_init__(self) -> None:
        for name in ("start", "stop", "factor"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
                raise ValueError(f"Annealing: {name} must be a finite number above 0; got {value!r}.")
        if self.stop > self.start:
            raise ValueError(f"Annealing: stop must be at most start, {self.start!r}; got {self.stop!r}.")
        if self.factor >= 1:
            raise ValueError(f"Annealing: factor must be below 1; got {self.factor!r}.")

    @classmethod
    def smoothrank(cls) -> Annealing:
        """Chapelle and Wu's: their sigma, which stands where 2 sigma^2 does here, halved from 2^6 to 2^-6."""
        return cls(2**2.5, 2**-3.5, 2**-0.5)

    @property
    def sigmas(self) -> tuple[float, ...]:
        steps = math.floor(math.log(self.stop / self.start) / math.log(self.factor) + 1e-9)
        return tuple(self.start * self.factor**i for i in range(steps + 1))


@dataclass(frozen=True)
class Stage:
    """One stage of the optimization: a penalty, a sigma, and what came of it.

    penalty         inf for the regression itself
    sigma           in units of the spread of the regression's scores; None for a partitioned measure
    expected_gain   of the training queries, at this sigma
    criterion       mean over the queries that judge: those held out in turn, or the validation set's;
                    averaged with the neighboring stages' where the smoothest is taken
    standard_error  of the criterion's difference to the best stage's, over these queries
    evaluations     of the expected gain and its gradient, over all the fits of the stage
    seconds         they took
    chosen          whether the stage is the model
    training        the criterion of the training queries, which the stage was fitted to, alone; None for a
                    partitioned measure, whose assignments would take as long as the stage
    """

    penalty: float
    sigma: float | None
    expected_gain: float
    criterion: float
    standard_error: float = math.nan
    evaluations: int = 0
    seconds: float = 0.0
    chosen: bool = False
    training: float | None = None


_SENTENCES = {
    "finished": "Every stage was run or stopped early by its criterion.",
    "interrupted": "The fit was interrupted; the model is the best of the stages that were finished.",
}


@dataclass(frozen=True, eq=False)
class FitResult:
    """What a fit came to.

    status        "finished" or "interrupted"; `message` says it in a sentence
    weights       (D,), or (D + 1, 2) with an intercept row for a partitioned measure, of normalized features
    sigma         of the model, in the units of its scores; None for a partitioned measure
    criterion     name of the criterion
    judged_by     how: "cross-validation over 84 queries in 5 parts", ...
    stages        every stage, in the order of their running
    """

    status: str
    weights: Floats
    sigma: float | None
    criterion: str
    judged_by: str
    stages: tuple[Stage, ...]

    @property
    def message(self) -> str:
        return _SENTENCES[self.status]

    @property
    def evaluations(self) -> int:
        return sum(stage.evaluations for stage in self.stages)


@dataclass(frozen=True, eq=False)
class Recipe:
    """The settings of a fit, checked; `judge(queries, scores)` gives the criterion of each query."""

    gain: Gain
    relaxation: Relaxation
    penalties: tuple[float, ...]
    sigmas: tuple[float | None, ...]  # None for each stage of a partitioned measure
    selection: Selection
    judge: Judge
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
        """The relaxation with this sigma; a partitioned measure has none."""
        if isinstance(self.relaxation, SmoothedIndicator) and sigma is not None:
            return replace(self.relaxation, sigma=sigma)
        return self.relaxation


@dataclass(frozen=True, eq=False)
class Finished:
    """A stage that was run: the weights of every path, and the criterion of every judging query."""

    penalty: int  # -1 for the start
    stage: int
    weights: tuple[Floats, ...]
    value: float
    judged: Floats
    evaluations: int
    seconds: float
    training: float | None = None  # a checkpoint of before it was kept has none


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
    """The recipe carried out, and the normalization of the features that it trained on.

    `checkpoint` is called with the stages finished so far after each of them; given as `resumed` to a later
    call with the same data and recipe, they are not run again, and the result is the same. `on_stage` is
    called with the record of each stage that was run; its criterion is that of the stage alone. An interrupt
    from the keyboard ends the fit with the best of the stages finished.
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
        return float(mean_over_queries(record.judged, weight))

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
    return _result(paths[0], finished, weight, recipe, status, arrangement.judged_by, smoothest), scaling


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
    judged, training = _assessed(paths, arrangement, recipe, relaxation, weights)
    return Finished(
        penalty,
        stage,
        weights,
        value,
        judged,
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
    """The criterion of every judging query, and the mean of the model's own training queries'."""
    scorers = [scorer(W, path.scaling) for path, W in zip(paths, weights, strict=True)]
    own = scorers[0] if relaxation.width == 1 else None

    def run(extra: int) -> list[Assessed]:
        return [
            source.run(
                Assess(
                    recipe.judge,
                    {number: scorers[number] for number in judged},
                    own if source in paths[0].path.sources else None,
                    relaxation,
                    recipe.n_iter,
                    recipe.epsilon,
                    recipe.top,
                    exponent(paths[0].path.largest_weight) + 20 + extra,
                )
            )
            for source, judged in arrangement.judges
        ]

    found = until_it_fits(run, lambda parts: all(p.training is None or p.training.fits for p in parts))
    values = [part.judged[number] for number in range(len(paths)) for part in found if number in part.judged]
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
    judged_by: str,
    smoothest: bool,
) -> FitResult:
    """The model of the stages finished."""
    # the regression, then the smoother stages, and of those the nearer to the regression
    order = sorted(
        range(len(finished)),
        key=lambda i: (finished[i].penalty >= 0, finished[i].stage, -finished[i].penalty),
    )
    choice = choose(
        np.stack([finished[i].judged for i in order]),
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
    if sigma is not None:  # in units in which the scores' spread within queries is 1
        width = model.spread(weights) or 1.0
        weights, sigma = weights / width, sigma / width
    return FitResult(status, weights, sigma, recipe.criterion, judged_by, tuple(stages))


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
    """Where the stage stands on the grid of penalties and sigmas; the regression stands apart."""
    return (record.penalty, record.stage) if record.penalty >= 0 else (-9, -9)
