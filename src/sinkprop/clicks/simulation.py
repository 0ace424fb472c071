"""Simulated click logs: sessions of a production ranker, with clicks drawn from a click model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.clicks.models.sequences import checked_relevance
from sinkprop.common.arguments import number, one_of, whole
from sinkprop.common.types import Floats, Integers, Mask
from sinkprop.data.queries import Queries, offsets_of

__all__ = ["click_relevance", "simulate_clicks"]


def click_relevance(labels: ArrayLike, noise: float = 0.1) -> Floats:
    """Probability that a user who examines a document clicks it: noise + (1 - noise) (2^y - 1) / (2^max - 1).

    Parameters
    ----------
    labels : array of shape (N,)
        Labels of documents, 0 or more.
    noise : float, default 0.1
        Probability of a click on a document with the label 0; that of the highest label is 1.

    Returns
    -------
    array of shape (N,)
        The probabilities.

    Examples
    --------
    >>> click_relevance([0, 1, 2]).round(3)
    array([0.1, 0.4, 1. ])
    """
    y = np.asarray(labels, dtype=np.float64)
    gains = 2.0**y - 1
    return noise + (1 - number("noise", noise, below=1)) * gains / max(float(gains.max(initial=0.0)), 1e-300)


def simulate_clicks(
    queries: Queries,
    scores: ArrayLike,
    n_sessions: int,
    model: ClickModel,
    *,
    relevance: ArrayLike | None = None,
    k: int | None = None,
    swaps: Literal["none", "pairs"] = "none",
    policies: Sequence[Hashable] | None = None,
    seed: int | np.random.Generator | None = None,
) -> ClickLog:
    """Clicks of simulated users on the rankings of one or several production rankers.

    Each session is of a query chosen at random, and shows its documents in the order of the scores.

    Parameters
    ----------
    queries : Queries
        Labeled documents. They become the documents of the log.
    scores : array of shape (N,) or (P, N)
        Scores by which a production ranker orders the documents, larger first; or those of P rankers, of
        which each session uses one at random.
    n_sessions : int
        Number of sessions.
    model : ClickModel
        How users examine and click, with a probability for each position that is shown.
    relevance : array of shape (N,), optional
        Probability, from 0 to 1, that a user who examines a document clicks it. By default
        `click_relevance(queries.y)`.
    k : int, optional
        Number of positions shown. By default all documents of the query.
    swaps : {"none", "pairs"}, default "none"
        With "pairs", each session exchanges the documents of the first position and of another one, which is
        chosen at random from the first to the last: an experiment from which `swap_bias` estimates position
        bias.
    policies : sequence, optional
        Names of the P rankers, by default 0, 1, and so on.
    seed : int or numpy.random.Generator, optional
        Seed of the draws.

    Returns
    -------
    ClickLog
        The sessions. With several rankers, `policy` is the ranker of each session.

    Examples
    --------
    >>> from sinkprop.clicks import PositionBasedModel
    >>> queries = Queries(np.eye(4), [0, 1, 0, 2], qid=[1, 1, 1, 1])
    >>> users = PositionBasedModel(1 / np.arange(1, 5))
    >>> simulate_clicks(queries, [3, 2, 1, 0], 1000, users, seed=0)
    <ClickLog: 1,000 sessions of 1 query, 4,000 impressions of 4 documents, 585 clicks, positions 1 to 4>
    """
    count = whole("n_sessions", n_sessions, 1)
    one_of("swaps", swaps, ("none", "pairs"))
    rng = np.random.default_rng(seed)
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if table.ndim != 2 or table.shape[1] != len(queries) or not len(table):
        raise ValueError(
            f"scores must have the shape ({len(queries)},) or (P, {len(queries)}), one score per document; "
            f"got {np.shape(scores)}."
        )
    if np.isnan(table).any():
        ranker, row = np.argwhere(np.isnan(table))[0]
        raise ValueError(
            f"scores must be numbers by which documents can be ordered; that of row {row} by ranker {ranker} "
            "is nan."
        )
    names = tuple(range(len(table)) if policies is None else policies)
    if len(names) != len(table):
        raise ValueError(f"policies must name the {len(table)} rankers of scores; got {len(names)} names.")
    clicking = click_relevance(queries.y) if relevance is None else checked_relevance(relevance)
    if len(clicking) != len(queries):
        raise ValueError(
            f"relevance must have one number per document, ({len(queries)},); got ({len(clicking)},)."
        )
    shown_k = queries.groups.longest if k is None else whole("k", k, 1)
    orders = [_order(queries, s) for s in table]
    groups = queries.groups
    query = rng.integers(queries.n_queries, size=count)
    policy = rng.integers(len(table), size=count).astype(np.int32)
    sizes = np.minimum(groups.sizes[query], shown_k)
    offsets = offsets_of(sizes)
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    if swaps == "pairs":
        at = _swapped(at, offsets, sizes, rng)
    rows = np.stack(orders)[np.repeat(policy, sizes), np.repeat(groups.offsets[query], sizes) + at]
    clicked = _clicks(model, clicking[rows], offsets, rng)
    several = {"policy": policy, "policies": names} if len(table) > 1 or policies is not None else {}
    return ClickLog(queries, rows, clicked, offsets, **several)  # type: ignore[arg-type]


def _clicks(model: ClickModel, relevance: Floats, offsets: Integers, rng: np.random.Generator) -> Mask:
    try:
        return model.draw(relevance, offsets, rng)
    except IndexError as error:  # models index the values that they hold per position
        raise ValueError(
            f"model has too few positions for sessions of {int(np.diff(offsets).max())}; give k, the number "
            "of positions shown, or a model with as many positions as the longest query has documents."
        ) from error


def _order(queries: Queries, scores: Floats) -> Integers:
    """Rows of the documents, query after query, by decreasing score; ties keep the order of the rows."""
    codes = queries.groups.codes
    return np.lexsort((-scores, codes))


def _swapped(at: Integers, offsets: Integers, sizes: Integers, rng: np.random.Generator) -> Integers:
    """Positions (from 0) in the production ranking of the documents shown, after one exchange per session."""
    other = rng.integers(sizes)
    at = at.copy()
    at[offsets[:-1]] = other
    at[offsets[:-1] + other] = 0
    return at
