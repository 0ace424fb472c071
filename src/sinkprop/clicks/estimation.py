"""Position bias of a log, by the method that assumes least of those that the log allows."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.interventions import harvest_bias, swap_bias
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.position_based import PositionBasedModel
from sinkprop.clicks.models.regression import tell_apart
from sinkprop.common.arguments import one_of

__all__ = ["BIAS_METHODS", "estimate_position_bias"]

BIAS_METHODS = ("auto", "swaps", "harvest", "documents", "linear", "trees")


def estimate_position_bias(
    log: ClickLog,
    method: Literal["auto", "swaps", "harvest", "documents", "linear", "trees"] = "auto",
    *,
    weight: ArrayLike | None = None,
) -> PositionBasedModel:
    """Estimate how probable it is that users examine each position.

    Parameters
    ----------
    log : ClickLog
        The log.
    method : {"auto", "swaps", "harvest", "documents", "linear", "trees"}, default "auto"
        "swaps" and "harvest" are experiments: see `swap_bias` and `harvest_bias`. "documents", "linear" and
        "trees" are the assumptions of `PositionBasedModel.fit` about the relevance. "auto" chooses "harvest"
        if the log has sessions of several rankers, "documents" if it has propensities, which rankings that
        explore log, and otherwise "linear" if a feature differs between documents and "documents" if none
        does.
    weight : array of shape (S,), optional
        Weight of each session, such as the number of times that it is in a bootstrap sample. It does not
        change the method that "auto" chooses.

    Returns
    -------
    PositionBasedModel
        The model. `fitted.method` names the method.

    Raises
    ------
    ValueError
        If the log cannot tell position bias from relevance in this way. The message says what to log.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkprop.clicks import PositionBasedModel, simulate_clicks
    >>> from sinkprop.datasets import make_ranking
    >>> queries = make_ranking(20, random_state=0)
    >>> users = PositionBasedModel([1, 0.6, 0.4])
    >>> log = simulate_clicks(queries, queries.X[:, :3].T, 30_000, users, k=3, seed=0)
    >>> found = estimate_position_bias(log)
    >>> found.fitted.method, bool(np.abs(found.examination - users.examination).max() < 0.05)
    ('harvest', True)
    """
    one_of("method", method, BIAS_METHODS)
    if method == "swaps":
        return swap_bias(log, weight=weight)
    several = log.policy is not None and len(np.unique(log.policy)) > 1
    if method == "harvest" or (method == "auto" and several):
        return harvest_bias(log, weight=weight)
    if method == "auto":
        explored = log.propensity is not None
        method = "documents" if explored or not tell_apart(log.documents) else "linear"
    return PositionBasedModel.fit(log, relevance=method, weight=weight)
