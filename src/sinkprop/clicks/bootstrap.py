"""Intervals of position bias by resampling the sessions or the queries of a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.common.arguments import number, one_of, whole
from sinkprop.common.types import Floats

__all__ = ["examination_interval"]


def examination_interval(
    fit: Callable[..., ClickModel],
    log: ClickLog,
    *,
    n: int = 200,
    level: float = 0.95,
    by: Literal["sessions", "queries"] = "sessions",
    seed: int | np.random.Generator | None = None,
) -> Floats:
    """Interval of the examination of each position, from fits to resampled logs.

    Parameters
    ----------
    fit : callable
        Function that fits a click model, `fit(log, weight=...)` with the weight of each session, such as
        `PositionBasedModel.fit`, `swap_bias`, `harvest_bias` or `estimate_position_bias`.
    log : ClickLog
        The log.
    n : int, default 200
        Number of resampled logs.
    level : float, default 0.95
        Probability with which the interval of a position contains its examination, if the model is right.
    by : {"sessions", "queries"}, default "sessions"
        What is drawn with replacement. Use "queries" if the relevance was predicted from features: with
        other queries the predictions would have erred otherwise. It needs sessions of two queries or more.
    seed : int or numpy.random.Generator, optional
        Seed of the draws.

    Returns
    -------
    array of shape (2, K)
        Lower and upper bounds.

    Examples
    --------
    >>> from sinkprop.clicks import PositionBasedModel, simulate_clicks
    >>> from sinkprop.datasets import make_ranking
    >>> queries = make_ranking(100, sizes=(3, 3))
    >>> users = PositionBasedModel([1, 0.6, 0.4])
    >>> rng = np.random.default_rng(0)
    >>> log = simulate_clicks(queries, rng.random((2, len(queries))), 20_000, users, seed=1)
    >>> examination_interval(PositionBasedModel.fit, log, n=50, seed=2).round(2)
    array([[1.  , 0.53, 0.37],
           [1.  , 0.58, 0.42]])
    """
    whole("n", n, 2)
    number("level", level, above=True, below=1)
    one_of("by", by, ("sessions", "queries"))
    if by == "queries" and (log.queries == log.queries[0]).all():
        raise ValueError(
            'by="queries" needs sessions of two queries or more, because all samples of one query are the '
            'same; the log has sessions of one. Use by="sessions".'
        )
    rng = np.random.default_rng(seed)
    curves = [_curve(fit, log, _resampled(log, by, rng)) for _ in range(n)]
    tail = (1 - level) / 2
    bounds: Floats = np.quantile(curves, [tail, 1 - tail], axis=0)
    return bounds


def _curve(fit: Callable[..., ClickModel], log: ClickLog, weight: Floats) -> Floats:
    try:
        return fit(log, weight=weight).examination_curve()
    except ValueError as error:
        raise ValueError(
            f"fit refused a resampled log, in which some sessions of the log are missing: {error} "
            "If fit accepts the log itself, its last positions have too few sessions for resampling; use "
            "log.first(k)."
        ) from error


def _resampled(log: ClickLog, by: str, rng: np.random.Generator) -> Floats:
    """Number of times that each session is drawn."""
    if by == "sessions":
        return rng.multinomial(log.n_sessions, np.full(log.n_sessions, 1 / log.n_sessions)).astype(np.float64)
    queries, of_sessions = np.unique(log.queries, return_inverse=True)
    size = len(queries)
    times: Floats = rng.multinomial(size, np.full(size, 1 / size))[of_sessions].astype(np.float64)
    return times
