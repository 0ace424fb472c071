"""`counterfactual_value` and `compare_rankers`: what rankers would have earned, from the log of another."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.evaluation.estimators import (
    reciprocal_values,
    self_normalized_values,
    session_values,
    standard_error,
)
from sinkprop.clicks.evaluation.records import CounterfactualValue, RankerComparison
from sinkprop.clicks.evaluation.signals import Relevance, Signal, relevance_table, signal_of
from sinkprop.clicks.evaluation.targets import Target, scores_of, target_of
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.common.arguments import number, one_of
from sinkprop.common.types import Floats

__all__ = ["compare_rankers", "counterfactual_value"]

Method = Literal["doubly robust", "ips", "snips"]
Per = Literal["session", "query"]

_UNCOVERED = 0.01  # share of the weight that may be uncovered without a warning
_NAMED = 5  # largest number of rows that a warning lists
_NOISE = 2.0  # standard errors by which the mean weight may be below its expectation without a warning
_UNKNOWN = float("nan"), 0  # standard error of a value that does not come from clicks, and degrees of freedom
_OF_ONE = 0.2  # share of the variance that one of at least 30 sessions may have without a warning


def counterfactual_value(
    log: ClickLog,
    ranker: Any,
    model: ClickModel | None = None,
    *,
    metric: str = "dcg@10",
    method: Method = "doubly robust",
    relevance: Relevance = None,
    exposure: ArrayLike | None = None,
    clip: float | None = None,
    per: Per = "session",
    level: float = 0.95,
) -> CounterfactualValue:
    """Value of a ranker per session, estimated from the click log of other rankers.

    With a click model, each click is divided by the expected examination of its document: the mean, over
    the sessions of the query, of the probability that the document is examined where it is shown, and 0 where
    it is not shown (the policy-aware estimator of Oosterhuis and de Rijke, 2020). Without a model, the log
    needs `propensity`. A click then counts only if the document is at the same position in the new ranking,
    divided by the probability of that (the item-position estimator of Li et al., 2018). This assumes nothing
    about examination. If the log is of several rankers, name them by `policy`. Sessions whose ranker does not
    cover the new ranking, such as a deterministic one, then count by the number of those that show the
    document there (see `sinkprop.clicks.evaluation.same_position`).

    Parameters
    ----------
    log : ClickLog
        Sessions with clicks. Which ranking a session showed must not depend on the user.
    ranker : array of shape (N,) or object with a method predict
        Scores of the documents `log.documents`, larger for better ones, or a ranker that computes them by
        ``predict(X)`` or ``predict(X, qid=qid)``. It must not have been trained on the clicks of the log.
    model : ClickModel, optional
        Position bias, taken as exact.
    metric : str, default "dcg@10"
        "dcg@k", the sum of relevance / log2(rank + 1) over the first k documents; "ctr@k", the expected
        number of clicks on them; or "mrr@k", the expected value of 1 / rank of the first click, 0 without
        one. Relevance is the probability of a click when examined. DCG and MRR need a model. For CTR and MRR,
        its examination must depend only on the position.
    method : {"doubly robust", "ips", "snips"}, default "doubly robust"
        "ips" gives an unbiased estimate if all documents that count have been shown, and counts the others as
        0. "snips" gives the others the mean value of those. "doubly robust" gives them `relevance`, and adds
        the difference between clicks and `relevance` for those that have been shown; it is unbiased for them
        even if `relevance` is wrong. If all documents have been shown and their exposure is estimated, the
        three methods give the same value unless there is a `clip`. MRR has no "snips".
    relevance : array of shape (N,) or function, optional
        Relevance for "doubly robust": an array that was not estimated from these sessions, or a function of a
        `ClickLog` that returns one. With known exposure, the function is called on four fifths of the
        sessions for each other fifth. By default, clicks per examination with the mean as a weak prior,
        from the other sessions as well; documents that were never examined have `model.relevance`, if there
        is one.
    exposure : array of shape (N,), optional
        Expected examination of each document in a session, if the rankings were drawn with known
        probabilities. By default, its mean over the sessions of the query in the log.
    clip : float, optional
        Lower limit, at most 1, of the expected examination or of the propensity. It lowers the variance and
        causes bias, which is not in the interval.
    per : {"session", "query"}, default "session"
        "session" takes the sessions as independent, with the queries that users ask. "query" takes queries as
        independent, for a log that has many sessions of a sample of queries, and a value for other queries.
    level : float, default 0.95
        Confidence level of the interval. The interval covers the randomness of sessions, positions and
        clicks. Errors of the estimated position bias and of `relevance` are not in it.

    Returns
    -------
    CounterfactualValue
        The estimate with its interval, and how much of the ranking the log covers. If it covers nothing, the
        value is that of `relevance` or of `model.relevance`, and the interval is NaN.

    Raises
    ------
    ValueError
        If the log cannot say anything about the ranker and there is no relevance, or an argument is wrong.

    Warns
    -----
    UserWarning
        If documents of the new ranking with more than 1 % of its weight were never shown where they would
        have been examined; if the log refutes its propensities; if one session makes a fifth of the variance;
        or if the error is unknown because there is only one session.

    Examples
    --------
    >>> from sinkprop import Queries
    >>> from sinkprop.clicks import PositionBasedModel, simulate_clicks
    >>> queries = Queries(np.eye(4), [0, 1, 0, 2], qid=[1, 1, 1, 1])
    >>> users = PositionBasedModel(1 / np.arange(1, 5))
    >>> log = simulate_clicks(queries, [3, 2, 1, 0], 20_000, users, seed=1)
    >>> found = counterfactual_value(log, [0, 1, 0, 2], users, metric="dcg@2")
    >>> round(found.value, 2), round(found.standard_error, 2), round(found.effective_sample_size)
    (1.26, 0.01, 5830)
    >>> round(float(1 + 0.4 / np.log2(3)), 2)  # the value, from the probabilities of clicks
    1.25
    """
    level = _checked(per, level)
    found = _estimated(log, ranker, "ranker", model, metric, method, relevance, exposure, clip)
    _warn(found)
    return _record(found, per, level)


def compare_rankers(
    log: ClickLog,
    first: Any,
    second: Any,
    model: ClickModel | None = None,
    *,
    metric: str = "dcg@10",
    method: Method = "doubly robust",
    relevance: Relevance = None,
    exposure: ArrayLike | None = None,
    clip: float | None = None,
    per: Per = "session",
    level: float = 0.95,
) -> RankerComparison:
    """Difference of the values of two rankers, paired by session.

    Both are estimated from the same sessions, so that errors they have in common cancel.

    Parameters
    ----------
    log : ClickLog
        Sessions with clicks.
    first : array of shape (N,) or object with a method predict
        Scores of the first ranker, or the ranker.
    second : array of shape (N,) or object with a method predict
        Scores of the second ranker, or the ranker.
    model : ClickModel, optional
        Position bias. This and the following are the arguments of `counterfactual_value`.
    metric : str, default "dcg@10"
        The metric: "dcg@k", "ctr@k" or "mrr@k".
    method : {"doubly robust", "ips", "snips"}, default "doubly robust"
        The estimator.
    relevance : array of shape (N,) or function, optional
        Relevance for "doubly robust".
    exposure : array of shape (N,), optional
        Expected examination of each document in a session.
    clip : float, optional
        Lower limit of the expected examination.
    per : {"session", "query"}, default "session"
        Whether errors are between sessions or between queries.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    RankerComparison
        The difference, with interval and p-value, and the value of each ranker.

    Examples
    --------
    >>> from sinkprop import Queries
    >>> from sinkprop.clicks import PositionBasedModel, simulate_clicks
    >>> queries = Queries(np.eye(4), [0, 1, 0, 2], qid=[1, 1, 1, 1])
    >>> users = PositionBasedModel(1 / np.arange(1, 5))
    >>> log = simulate_clicks(queries, [3, 2, 1, 0], 20_000, users, seed=1)
    >>> found = compare_rankers(log, [0, 1, 0, 2], [3, 2, 1, 0], users, metric="dcg@2")
    >>> round(found.difference, 2), found.p_value < 1e-9
    (0.91, True)
    """
    level = _checked(per, level)
    options = (model, metric, method, relevance, exposure, clip)
    one, two = (_estimated(log, x, name, *options) for name, x in (("first", first), ("second", second)))
    for found in (one, two):
        _warn(found)
    records = _record(one, per, level), _record(two, per, level)
    apart = one.values - two.values
    error, freedom = _UNKNOWN
    if one.covers and two.covers:
        error, freedom = standard_error(apart, log.queries if per == "query" else None)
    difference = float(apart.mean())
    interval = _interval(difference, error, freedom, level)
    return RankerComparison(*records, difference, interval, error, _p_value(difference, error, freedom))


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Values (S,) of the sessions for a ranker, and what they were computed from."""

    name: str
    metric: str
    method: str
    clip: float | None
    values: Floats
    signal: Signal
    target: Target
    relevance: Floats | None

    @property
    def covers(self) -> bool:
        """True if the log shows documents that count where they are examined."""
        return _covers(self.signal, self.target)


def _covers(signal: Signal, target: Target) -> bool:
    return bool((signal.covered & target.counted)[signal.rows].any())


def _estimated(
    log: ClickLog,
    ranker: Any,
    name: str,
    model: ClickModel | None,
    metric: str,
    method: str,
    given: Relevance,
    exposure: ArrayLike | None,
    clip: float | None,
) -> _Estimate:
    if not isinstance(log, ClickLog):
        hint = " Pass its attribute `log`." if isinstance(getattr(log, "log", None), ClickLog) else ""
        raise ValueError(f"log must be a ClickLog; got {type(log).__name__}.{hint}")
    one_of("method", method, get_args(Method))
    least = 0.0 if clip is None else number("clip", clip, above=True)
    if least > 1:
        raise ValueError(f"clip must be at most 1, as it limits probabilities from below; got {clip!r}.")
    if model is not None and not isinstance(model, ClickModel):
        raise ValueError(f"model must be a ClickModel, such as a PositionBasedModel, or None; got {model!r}.")
    if model is None and exposure is not None:
        raise ValueError("exposure must be None without a click model; the log's propensity is used.")
    if not log.n_clicks:
        raise ValueError("the log has no clicks, so nothing can be estimated. Log sessions with clicks.")
    target = target_of(log, scores_of(log, ranker, name), model, metric)
    if target.kind == "mrr" and (method == "snips" or exposure is not None):
        raise ValueError(
            "metric 'mrr' takes method 'doubly robust' or 'ips', and exposure=None: it needs independent "
            "estimates of the relevance of each document."
        )
    signal = signal_of(log, target, model, exposure)
    known = given is not None or _known(model, target, signal)
    if not _covers(signal, target) and not (known and method == "doubly robust"):
        where = "at that rank" if signal.drawn else "where they would have been examined"
        raise ValueError(
            f"{name}: the log shows none of the documents that count for {metric} {where}, so {method!r} "
            f"cannot estimate its value. {_ADVICE}"
        )
    table = None
    if method == "doubly robust":
        table = relevance_table(log, target, model, signal, given)
    values = _values(signal, target, method, table, least)
    return _Estimate(name, metric.lower(), method, clip, values, signal, target, table)


_ADVICE = (
    "Log rankings that explore: drawn at random, or of several rankers, so that all documents that the new "
    "ranker may choose are shown."
)


def _known(model: ClickModel | None, target: Target, signal: Signal) -> bool:
    """True if the model has the relevance of all documents that count in sessions of the log."""
    found = None if model is None else model.relevance
    if found is None or found.shape != signal.codes.shape:
        return False
    return bool(np.isfinite(found[(target.weights > 0) & (signal.shown > 0)]).all())


def _values(signal: Signal, target: Target, method: str, table: Floats | None, clip: float) -> Floats:
    if target.kind == "mrr":
        return reciprocal_values(signal, target, table, clip)
    if method == "snips":
        values = self_normalized_values(signal, target.weights, clip)
    else:
        values = session_values(signal, target.weights, signal.clicks, table, clip)
    return values + signal.by_query(target.base)


def _record(found: _Estimate, per: str, level: float) -> CounterfactualValue:
    signal = found.signal
    error, freedom = _UNKNOWN
    if found.covers:
        error, freedom = standard_error(found.values, signal.queries if per == "query" else None)
    value = float(found.values.mean())
    return CounterfactualValue(
        found.metric,
        found.method,
        value,
        _interval(value, error, freedom, level),
        error,
        level,
        _effective_sample_size(found),
        _overlap(signal, found.target),
        np.flatnonzero(_uncovered(found)),
        found.clip,
        signal.n_sessions,
        per,
    )


def _checked(per: str, level: float) -> float:
    one_of("per", per, get_args(Per))
    return number("level", level, above=True, below=1)


def _interval(value: float, error: float, freedom: int, level: float) -> tuple[float, float]:
    from scipy.special import stdtrit

    if not freedom:
        return float("nan"), float("nan")
    half = float(stdtrit(freedom, (1 + level) / 2)) * error
    return value - half, value + half


def _p_value(difference: float, error: float, freedom: int) -> float:
    from scipy.special import stdtr

    if not freedom:
        return float("nan")
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(freedom, -abs(difference) / error))


def _uncovered(found: _Estimate) -> Any:
    """Mask (N,) of the documents that count in sessions of the log, but which it does not cover."""
    signal, weights = found.signal, found.target.weights
    return (weights > 0) & (signal.shown > 0) & ~signal.covered


def _overlap(signal: Signal, target: Target) -> float:
    """Share of the weights that belongs to covered documents.

    With propensities, a document that could have been at its new rank may be absent from a small log, and
    some sessions may be of a ranker that cannot show it there. The sum of the weights of the sessions then
    estimates the covered part of the total. The variance of a sum of rare weights is its expectation, times
    the sum of their squares over their sum.
    """
    weights = target.weights * signal.shown
    total = float(weights.sum())
    if not total:
        return 0.0
    share = float(weights[signal.covered].sum()) / total
    if not signal.drawn or signal.estimated or not share:
        return share
    found = target.weights[signal.rows] / signal.chance
    error = np.sqrt(float((found**2).sum() / found.sum()) * total)
    return 1.0 if found.sum() > total - _NOISE * error else float(found.sum()) / total


def _effective_sample_size(found: _Estimate) -> float:
    """S sum_j lambda_j^2 / sum_i lambda_i^2 a_i / rho_i^2, with the first sum over documents of sessions.

    For rare clicks, the variance of a session's value is proportional to the second sum over S, and to the
    first one if the user examines every document that counts. Documents that are not covered are left out.
    The result is at most S.
    """
    signal, weights = found.signal, found.target.weights
    squares = weights**2
    chance = np.maximum(signal.chance, found.clip or 0.0)
    needed = float((squares[signal.rows] * signal.examined / chance**2).sum())
    if not needed:
        return 0.0
    share = float((squares * signal.shown)[signal.covered].sum()) / needed
    return signal.n_sessions * min(share, 1.0)


def _warn(found: _Estimate) -> None:
    """Warn of what the log cannot say."""
    overlap = _overlap(found.signal, found.target)
    if overlap < 1 - _UNCOVERED:
        _advise(f"{found.name}: {_of_uncovered(found, overlap)} {_ADVICE}")
    if found.signal.mean_weight is not None:
        _advise(f"{found.name}: {_of_propensities(found.signal.mean_weight)}")
    if found.signal.n_sessions == 1:
        _advise("the log has one session, so the error of the estimate is unknown; the interval is NaN.")
    if found.signal.n_sessions == 1 or not found.covers:
        return
    apart = (found.values - found.values.mean()) ** 2
    largest = float(apart.max() / max(float(apart.sum()), 1e-300))
    if largest > _OF_ONE and found.signal.n_sessions >= 30:
        _advise(
            f"{found.name}: session {int(apart.argmax())} alone makes {100 * largest:.0f} % of the variance, "
            "as a click on a rarely examined document can do. The interval may be too narrow; pass clip=, or "
            "log more sessions."
        )


def _of_uncovered(found: _Estimate, overlap: float) -> str:
    signal, missing = found.signal, _uncovered(found)
    rows = np.flatnonzero(missing).tolist()
    counted = np.count_nonzero(found.target.counted & (signal.shown > 0))
    named = ", ".join(map(str, rows[:_NAMED])) + (", ..." if len(rows) > _NAMED else "")
    where = "at that rank" if signal.drawn else "where they would have been examined"
    text = (
        f"the log never shows {len(rows)} of the {counted} documents that count for {found.metric} {where} "
        f"(rows {named}). "
    )
    uncertain = signal.drawn and not signal.estimated
    text += "According to the propensities, documents with " if uncertain else "They have "
    text += f"{100 * (1 - overlap):.0f} % of the weight of the ranking"
    text += " cannot be there. " if uncertain else ". "
    if found.method == "ips":
        return text + "They count as 0."
    if found.method == "snips":
        return text + "The mean value of the other documents was taken for them."
    unseen = found.target.weights * missing
    total, weights = (float((w * signal.shown).sum()) for w in (found.target.weights, unseen))
    by_model = signal.by_query(unseen * found.relevance.mean(axis=0)).mean()  # type: ignore[union-attr]
    share = by_model * (1 - overlap) * total / max(weights * float(found.values.mean()), 1e-300)
    source = "the clicks on others at the same rank" if signal.drawn else "`relevance`"
    text += f"Their value is taken from {source}, and is {100 * share:.0f} % of the estimate."
    return text if found.covers else text + " The interval is NaN, because no clicks say how wrong that is."


def _of_propensities(mean_weight: float) -> str:
    return (
        "`propensity` does not fit the log. The mean over sessions of 1 / propensity, summed over the "
        f"documents at their new ranks, is {100 * mean_weight:.0f} % of its expectation. So clicks were "
        "divided by the share of the query's sessions that show the document at this rank, and documents "
        "that are not shown there by chance are treated as if they could not be. If the log is of several "
        "rankers, name them by `policy`, and let `propensity` be that of the session's own ranker."
    )


def _advise(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)
