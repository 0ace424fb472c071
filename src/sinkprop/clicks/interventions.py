"""Position bias from experiments: exchanged documents, and the rankings of several rankers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.cells import cells_of
from sinkprop.clicks.models.conditional import all_pairs, pairs_with_first, unconnected
from sinkprop.clicks.models.position_based import (
    PositionBasedModel,
    named,
    position_model,
    require_finite,
)
from sinkprop.common.arguments import true_or_false

__all__ = ["harvest_bias", "swap_bias"]


def swap_bias(log: ClickLog, *, smooth: bool = True, weight: ArrayLike | None = None) -> PositionBasedModel:
    """Position bias from sessions in which documents exchanged places with that of the first position.

    Each position is compared with the first by the clicks of the same documents at both. The ratio of their
    click rates is the ratio of the examinations, for any relevance. The documents are weighted so
    that the error is least for rare clicks. Log all sessions of the experiment, and only those.

    Parameters
    ----------
    log : ClickLog
        Sessions whose ranking is that of a ranker, in which the documents of the first position and of
        another one, or none, were exchanged at random; or shuffled sessions.
    smooth : bool, default True
        Whether the curve is smoothed, as by `PositionBasedModel.fit`.
    weight : array of shape (S,), optional
        Weight of each session.

    Returns
    -------
    PositionBasedModel
        Examination, its interval, and the relevance of the documents.

    Examples
    --------
    >>> from sinkprop.clicks import simulate_clicks
    >>> from sinkprop.datasets import make_ranking
    >>> queries = make_ranking(100, sizes=(5, 5))
    >>> users = PositionBasedModel([1, 0.6, 0.4, 0.3, 0.2])
    >>> log = simulate_clicks(queries, queries.X[:, 0], 100_000, users, swaps="pairs", seed=1)
    >>> swap_bias(log).examination.round(2)
    array([1.  , 0.59, 0.41, 0.29, 0.21])
    """
    true_or_false("smooth", smooth)
    cells = cells_of(log, weight)
    alone = unconnected(cells, with_first=True)
    if alone:
        raise ValueError(
            f"no clicked document was shown at position 1 and at {named(alone)}; exchange the documents of "
            "position 1 and each of these positions in some sessions, or use harvest_bias, which compares "
            "all pairs of positions."
        )
    if weight is None:
        require_finite(cells, with_first=True)
    u, C = pairs_with_first(cells)
    return position_model(log, cells, "swaps", u, C, smooth=smooth)


def harvest_bias(
    log: ClickLog, *, smooth: bool = True, weight: ArrayLike | None = None
) -> PositionBasedModel:
    """Position bias from the rankings of several rankers, between which sessions were divided at random.

    Where rankers show the same document of a query at different positions, the difference of its click rates
    is due to the positions. All pairs of positions are used (Agarwal et al., 2019), in one likelihood that is
    free of the documents' relevance.

    Parameters
    ----------
    log : ClickLog
        Sessions of two rankers or more, with `policy`. Which ranker a session had must not depend on the
        user, as in an A/B test.
    smooth : bool, default True
        Whether the curve is smoothed, as by `PositionBasedModel.fit`.
    weight : array of shape (S,), optional
        Weight of each session.

    Returns
    -------
    PositionBasedModel
        Examination, its interval, and the relevance of the documents.

    Examples
    --------
    >>> from sinkprop.clicks import simulate_clicks
    >>> from sinkprop.datasets import make_ranking
    >>> queries = make_ranking(100, sizes=(5, 5))
    >>> users = PositionBasedModel([1, 0.6, 0.4, 0.3, 0.2])
    >>> rankers = [queries.X[:, 0], queries.X[:, 8]]
    >>> log = simulate_clicks(queries, rankers, 100_000, users, policies=["old", "new"], seed=1)
    >>> harvest_bias(log).examination.round(2)
    array([1.  , 0.6 , 0.41, 0.29, 0.21])
    """
    true_or_false("smooth", smooth)
    if log.policy is None or len(np.unique(log.policy)) < 2:
        got = "no `policy`" if log.policy is None else "sessions of one ranker only"
        raise ValueError(
            f"harvest_bias needs a log with the sessions of several rankers, named by `policy`; got {got}. "
            "Record which ranker made the list of each session. If documents changed their positions for "
            "another reason, unrelated to the users, use PositionBasedModel.fit(log, relevance='documents')."
        )
    cells = cells_of(log, weight)
    alone = unconnected(cells)
    if alone:
        raise ValueError(
            f"the rankers show no clicked documents by which {named(alone)} could be compared with position "
            "1; add sessions of rankers that order the documents differently, or use log.first(k)."
        )
    if weight is None:
        require_finite(cells)
    u, C = all_pairs(cells)
    return position_model(log, cells, "harvest", u, C, smooth=smooth)
