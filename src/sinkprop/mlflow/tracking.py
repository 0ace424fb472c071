"""Steps of a fit as metrics of an MLflow run, and a fitted ranker as parameters, metrics and artifacts."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Metric as Point
from sklearn.utils.validation import check_is_fitted

import sinkprop
from sinkprop.estimator.base import OF_THE_RUN, BaseRanker
from sinkprop.experiment.scoring import ranking_scores
from sinkprop.gbdt import Round
from sinkprop.metrics.evaluation import evaluate
from sinkprop.metrics.measures import Metric
from sinkprop.mlflow.model import log_model
from sinkprop.report import models_report, report_html

__all__ = ["log_ranker", "log_steps"]

_PAUSE = 1.0  # seconds between two calls of the store, which take longer than a round of small trees
_MOST = 1000  # points that MLflow's stores take in one call
# names of the metrics of a step, and the attributes of the records that have them
_OF_A_STEP = {
    "validation/criterion": "criterion",
    "training/criterion": "training",
    "training/expected_gain": "expected_gain",
    "training/loss": "loss",
}


class _Steps:
    """A function for `on_stage`, `on_round` and `on_epoch` that logs the records it is called with."""

    def __init__(self) -> None:
        self._run: str | None = None
        self._count, self._next = 0, -math.inf
        self._waiting: list[Point] = []

    def __call__(self, record: Any) -> None:
        run = _active_run()
        if run != self._run:
            self.flush()
            self._run, self._count = run, 0
        self._count += 1
        self._waiting += _points(record, self._count)
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        if self._run is not None and self._waiting:
            waiting, self._waiting = self._waiting, []
            _log_points(self._run, waiting)
            self._next = time.monotonic() + _PAUSE

    def has(self, run: str) -> bool:
        """Whether the steps of the last fit were logged to this run."""
        return self._run == run


def log_steps() -> Callable[[Any], None]:
    """Function for `on_stage`, `on_round` or `on_epoch` that logs each step to the active run of MLflow.

    The metrics are "validation/criterion" and, if the record has them, "training/expected_gain",
    "training/loss" and "training/criterion". Steps count from 1. They are sent at most once a second, and the
    last of them by `log_ranker`, so that the store does not slow down the fit.

    Returns
    -------
    callable
        The function. Make one for each fit.

    Examples
    --------
    >>> import mlflow
    >>> from sinkprop import SinkPropRanker
    >>> from sinkprop.datasets import load_pydocs
    >>> fold = load_pydocs()
    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     ranker = SinkPropRanker(on_stage=log_steps()).fit(fold.train)
    ...     log_ranker(ranker, fold.test)
    >>> callable(log_steps())
    True
    """
    return _Steps()


def log_ranker(
    ranker: Any,
    test: Any = None,
    *,
    metrics: str | Metric | Iterable[str | Metric] = "ndcg@1,ndcg@5,ndcg@10,map",
    report: bool = True,
) -> Any:
    """Log a fitted ranker to the active run of MLflow: parameters, steps, test metrics, report and model.

    Parameters
    ----------
    ranker : ranker
        The fitted ranker. The steps of its fit are logged, too, unless it was fitted with `log_steps` in the
        same run.
    test : Queries or StoredQueries, optional
        Test queries. By default no test metrics and no report are logged.
    metrics : str, Metric or iterable of these, optional
        Metrics to compute on the test queries, under the ranker's convention. MLflow allows no "@" in names:
        "ndcg@10" is logged as "test/ndcg_at_10".
    report : bool, default True
        Whether to log the page of `sinkprop report` about the test queries, as "report.html".

    Returns
    -------
    mlflow.models.model.ModelInfo
        The logged model. ``mlflow.pyfunc.load_model(info.model_uri)`` loads it; its `predict` takes a frame
        of features, with the query ids in a column "qid" if the ranker needs them, and its `get_raw_model`
        returns the ranker.

    Examples
    --------
    >>> import mlflow
    >>> from sinkprop import SinkPropRanker
    >>> from sinkprop.datasets import load_pydocs
    >>> fold = load_pydocs()
    >>> log_ranker(SinkPropRanker().fit(fold.train), fold.test)
    Traceback (most recent call last):
        ...
    ValueError: MLflow has no active run in this thread; call this inside `with mlflow.start_run():`.
    """
    if not isinstance(ranker, BaseRanker):
        raise TypeError(f"ranker must be a fitted ranker of sinkprop; got {type(ranker).__name__}.")
    check_is_fitted(ranker)
    run = _active_run()
    # everything is computed before anything is logged
    values, page = {}, None
    if test is not None:
        found = evaluate(test, ranking_scores(ranker, test), metrics=metrics, convention=ranker.convention)
        values = {f"test/{_plain(name)}": value for name, value in found.items() if math.isfinite(value)}
        if report:
            named = {type(ranker).__name__: ranker}
            page = report_html(
                models_report(named, test, name="test", metrics=metrics, convention=ranker.convention)
            )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ranker.model"
        ranker.save(file)
        mlflow.log_params(_parameters(ranker))
        mlflow.set_tags(_tags(ranker))
        _log_history(ranker, run)
        if values:
            mlflow.log_metrics(values)
        if page is not None:
            mlflow.log_text(page, "report.html")
        return log_model(ranker, file)


def _active_run() -> str:
    run = mlflow.active_run()
    if run is None:
        raise ValueError(
            "MLflow has no active run in this thread; call this inside `with mlflow.start_run():`."
        )
    return str(run.info.run_id)


def _parameters(ranker: BaseRanker) -> dict[str, Any]:
    given = ranker.get_params(deep=False)
    return {name: value for name, value in given.items() if name not in OF_THE_RUN and name != "verbose"}


def _tags(ranker: BaseRanker) -> dict[str, str]:
    tags = {"ranker": type(ranker).__name__, "sinkprop": sinkprop.__version__}
    result: Any = getattr(ranker, "fit_result_", None)
    if result is not None:
        tags |= {"criterion": result.criterion, "validated_on": result.validated_on, "fit": repr(result)}
    return tags


def _log_history(ranker: BaseRanker, run: str) -> None:
    """Log the steps of the fit, or what is left of them if they were logged during the fit."""
    functions = ranker.get_params(deep=False)
    for name in ("on_stage", "on_round", "on_epoch"):
        function = functions.get(name)
        if isinstance(function, _Steps) and function.has(run):
            function.flush()
            return
    points = [point for at, record in enumerate(_records(ranker), 1) for point in _points(record, at)]
    _log_points(run, points)


def _records(ranker: BaseRanker) -> Sequence[Any]:
    """Records of the steps of a fit; none for a ranker that keeps no history."""
    result: Any = getattr(ranker, "fit_result_", None)
    if hasattr(result, "epochs"):
        return [epoch for each in result.members or (result,) for epoch in each.epochs]
    if hasattr(result, "values"):
        return [Round(number, value) for number, value in enumerate(result.values, 1)]
    found: Sequence[Any] = getattr(result, "stages", getattr(result, "trials", ()))
    return found


def _points(record: Any, step: int) -> list[Point]:
    """Metrics of a step; those that are not known, or not numbers, are left out."""
    now = int(time.time() * 1000)
    values = {key: getattr(record, name, None) for key, name in _OF_A_STEP.items()}
    return [
        Point(key, float(value), now, step)
        for key, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def _log_points(run: str, points: Sequence[Point]) -> None:
    client = mlflow.MlflowClient()
    for first in range(0, len(points), _MOST):
        client.log_batch(run, metrics=points[first : first + _MOST])


def _plain(name: str) -> str:
    """Name of a metric in the characters that MLflow allows.

    >>> _plain("ndcg@10"), _plain("ndcg(discount=log2)@1-10")
    ('ndcg_at_10', 'ndcg_discount_log2_at_1-10')
    """
    text = "".join(
        c if c.isalnum() or c in "-._ /" else "_" for c in name.replace(")@", "_at_").replace("@", "_at_")
    )
    return text.strip("_")
