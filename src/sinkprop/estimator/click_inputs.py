"""Click logs as training data: fit(log) of every ranker is a fit to the labels that `debias` estimates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from sinkprop.clicks.labels import DebiasedClicks, debias
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.reading import NO_FEATURES
from sinkprop.estimator.calibrated import take_held_out
from sinkprop.estimator.external_queries import nothing_beside
from sinkprop.metrics.measures import DCG, NormalizedDCG, RankBiasedPrecision, parse_metrics
from sinkprop.objective.gains import NDCG, Gain, as_gain

__all__ = ["taking_clicks"]

F = TypeVar("F", bound=Callable[..., Any])


def taking_clicks(fit: F) -> F:
    """Wrap the method `fit` of a ranker, so that X may be a `ClickLog` or `DebiasedClicks`.

    Logs in `eval_set` get labels from the same click model. After the fit, `clicks_` describes the clicks; it
    is None after a fit to labels. Relevance estimated from clicks is too noisy to calibrate probabilities, so
    that such a ranker is not calibrated.
    """

    @functools.wraps(fit)
    def wrapped(self: Any, X: Any, y: Any = None, **arguments: Any) -> Any:
        if not isinstance(X, ClickLog | DebiasedClicks):
            _no_log(arguments.get("eval_set"))
            fitted = fit(self, X, y, **arguments)
            fitted.clicks_ = None
            return fitted
        of_log = {name: arguments.get(name) for name in ("qid", "group", "sample_weight", "query_weight")}
        nothing_beside("the click log", y=y, **of_log)
        self._check_parameters()
        log = X.log if isinstance(X, DebiasedClicks) else X
        if log.documents.feature_names == (NO_FEATURES,):
            raise ValueError("the click log has no feature columns, from which a ranker could learn.")
        _check_metric(self.metric)
        clicks = X if isinstance(X, DebiasedClicks) else debias(X)
        squares = self._squares_labels
        gain = NDCG(gain="linear") if squares else _gain_of(getattr(self, "gain", None))
        if arguments.get("eval_set") is not None:
            arguments["eval_set"] = _labeled(arguments["eval_set"], clicks, gain)
        queries = clicks.queries(gain, shift="log" if squares else "query")
        fitted = fit(self, queries, **{**arguments, "query_weight": clicks.query_weight})
        fitted.clicks_ = clicks.summary()
        take_held_out(fitted)
        return fitted

    return wrapped  # type: ignore[return-value]


def _check_metric(metric: Any) -> None:
    """Raise a ValueError if a metric counts labels from a threshold on, which few estimates reach."""
    (parsed,) = parse_metrics([metric])
    linear = isinstance(parsed, RankBiasedPrecision) and parsed.threshold is None
    if not linear and not isinstance(parsed, NormalizedDCG | DCG):
        raise ValueError(
            f"metric: clicks give estimates of relevance, not grades, and {metric} counts grades. Use "
            "'ndcg@10', 'dcg@10' or 'rbp@0.8' for a fit to clicks, and measure any metric afterwards."
        )


def _no_log(eval_set: Any) -> None:
    items = eval_set if isinstance(eval_set, list) else [eval_set]
    if any(isinstance(item, ClickLog | DebiasedClicks) for item in items):
        raise ValueError(
            "eval_set is a click log, but the training data have labels of another kind. Give labeled "
            "queries, or fit to a click log."
        )


def _gain_of(gain: Any) -> Gain | None:
    """Gain on which a ranker trains, from its parameter `gain`; None if it has no such parameter."""
    if gain in ("exponential", "linear"):  # the gain of labels in a loss that has no discount
        return NDCG(gain=gain)
    return as_gain(gain) if isinstance(gain, str | Gain) else None


def _labeled(eval_set: Any, clicks: DebiasedClicks, gain: Gain | None) -> Any:
    """Evaluation sets with labels in place of click logs."""
    if isinstance(eval_set, list):
        return [_labeled(item, clicks, gain) for item in eval_set]
    if isinstance(eval_set, ClickLog):
        try:
            eval_set = debias(eval_set, clicks.model, method=clicks.method, clip=clicks.clip)
        except ValueError as error:
            raise ValueError(f"eval_set: {error}") from None
    return eval_set.queries(gain) if isinstance(eval_set, DebiasedClicks) else eval_set
