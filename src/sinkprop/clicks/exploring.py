"""Rankings that explore: drawn at random with known probabilities, so that their clicks can be corrected."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkprop.clicks.log import ClickLog
from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries, offsets_of
from sinkprop.objective.expected_gain import expected_gain
from sinkprop.objective.gains import Gain
from sinkprop.objective.relaxations import SmoothedIndicator
from sinkprop.policies.sampling import sample_rankings

__all__ = ["ExploringPolicy", "ShownRankings", "exploration_width", "explore"]

_NARROWEST, _WIDEST = 1e-4, 1e3  # widths that are searched, in standard deviations of the scores
_HALVINGS = 30
_ITERATIONS = 50.5  # of Sinkhorn normalization, in the expected gain


@dataclass(frozen=True, eq=False)
class ShownRankings:
    """The rankings of sessions, one per session, and the probability of every document at its position.

    Attributes
    ----------
    documents : Queries
        The documents of all queries.
    rows : array of int of shape (M,)
        Row in `documents` of each document shown, session after session, from the top down.
    offsets : array of int of shape (S + 1,)
        Session s has the entries offsets[s], ..., offsets[s + 1] - 1 of rows.
    propensity : array of shape (M,)
        Probability with which the policy shows this document at this position.
    """

    documents: Queries
    rows: Integers
    offsets: Integers
    propensity: Floats

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of a table with one line per document shown, as `read_clicks` reads it with the clicks.

        Returns
        -------
        dict
            The columns "session" (0, 1, and so on), "query" (its id), "doc" (its name, or its row if the
            documents have no names), "position" (1 for the top) and "propensity", each of shape (M,).
        """
        sizes = np.diff(self.offsets)
        names = self.documents.docid
        return {
            "session": np.repeat(np.arange(len(sizes)), sizes),
            "query": self.documents.qid[self.rows],
            "doc": self.rows if names is None else names[self.rows],
            "position": np.arange(1, len(self.rows) + 1) - np.repeat(self.offsets[:-1], sizes),
            "propensity": self.propensity,
        }

    def log(self, clicked: ArrayLike, value: ArrayLike | None = None) -> ClickLog:
        """Make a log of the rankings and of their clicks.

        Parameters
        ----------
        clicked : array of bool of shape (M,)
            Whether each document shown was clicked.
        value : array of shape (M,), optional
            Value of each impression, such as the time spent on the document.

        Returns
        -------
        ClickLog
            The log, with the propensities.
        """
        values = None if value is None else np.asarray(value, dtype=np.float64)
        return ClickLog(
            self.documents, self.rows, np.asarray(clicked), self.offsets, self.propensity, value=values
        )


@dataclass(frozen=True, eq=False)
class ExploringPolicy:
    """A table of rankings for each query, of which every session shows one at random.

    Sessions are independent of each other, and the probability of each document at each position is known
    exactly: the share of the table's rankings that have it there. No propensity is below 1 / R.

    Attributes
    ----------
    documents : Queries
        The documents of all queries.
    rankings : array of int of shape (Q, R, k)
        For each query, the rows in `documents` of R rankings, best first. Queries of fewer than k documents
        have -1 in the positions that are left.
    probabilities : array of shape (N, k)
        Probability of each document at each position.
    """

    documents: Queries
    rankings: NDArray[np.int32]
    probabilities: Floats

    def draw(
        self,
        sessions: int | Sequence[Hashable] | NDArray[Any],
        *,
        seed: int | np.random.Generator | None = None,
    ) -> ShownRankings:
        """Draw one ranking for each session.

        Parameters
        ----------
        sessions : int or sequence of ids
            Query id of each session; or the number of sessions, whose queries are then chosen at random.
        seed : int or numpy.random.Generator, optional
            Seed of the draws. By default every call draws anew.

        Returns
        -------
        ShownRankings
            The rankings.
        """
        rng = np.random.default_rng(seed)
        query = self._queries(sessions, rng)
        ranking = rng.integers(self.rankings.shape[1], size=len(query))
        shown = self.rankings[query, ranking]
        filled = shown >= 0
        rows: Integers = shown[filled].astype(np.int32, copy=False)
        at = np.broadcast_to(np.arange(shown.shape[1]), shown.shape)[filled]
        return ShownRankings(
            self.documents, rows, offsets_of(filled.sum(axis=1)), self.probabilities[rows, at]
        )

    def _queries(
        self, sessions: int | Sequence[Hashable] | NDArray[Any], rng: np.random.Generator
    ) -> Integers:
        """Index of the query of each session."""
        if isinstance(sessions, int | np.integer):
            return rng.integers(len(self.rankings), size=whole("sessions", int(sessions), 1))
        ids = sessions.tolist() if isinstance(sessions, np.ndarray) else list(sessions)
        index = {q: i for i, q in enumerate(self.documents.groups.queries.tolist())}
        unknown = [q for q in ids if q not in index]
        if unknown or not ids:
            got = f"{unknown[0]!r}, which is not one of them" if unknown else "none"
            raise ValueError(f"sessions must be ids of the {len(index)} queries of the policy; got {got}.")
        return np.array([index[q] for q in ids])

    def examination(self, curve: ArrayLike) -> Floats:
        """Probability that a session of its query examines each document: sum_k Pi[j, k] examination_k.

        Parameters
        ----------
        curve : array of shape (k,) or longer
            Probability that a user examines each position.

        Returns
        -------
        array of shape (N,)
            The probabilities. Clicks of a session divided by them are unbiased estimates of relevance, except
            for documents with 0, which are never shown.
        """
        e = np.asarray(curve, dtype=np.float64)
        k = self.probabilities.shape[1]
        if e.ndim != 1 or len(e) < k or not ((e >= 0) & (e <= 1)).all():
            raise ValueError(
                f"curve must have one probability from 0 to 1 for each of the {k} positions; got {curve!r}."
            )
        seen: Floats = self.probabilities @ e[:k]
        return seen

    @property
    def unseen(self) -> float:
        """Share of the documents that are never shown."""
        return float((self.probabilities.sum(axis=1) == 0).mean())


def explore(
    queries: Queries,
    scores: ArrayLike,
    *,
    sigma: float,
    k: int = 10,
    n_rankings: int = 512,
    seed: int | np.random.Generator | None = None,
) -> ExploringPolicy:
    """Rankings of many queries that explore: tables drawn with `sample_rankings`, one per query.

    Every session shows one ranking of its query's table, so that a session costs a lookup, while drawing
    independent rankings one by one takes tens or hundreds of microseconds each. The rankings of a table
    together are close to the rank probabilities of a smoothed indicator of the scores.

    Parameters
    ----------
    queries : Queries
        Documents. Labels are not used.
    scores : array of shape (N,)
        Scores, such as a ranker's `predict(queries.X)`; larger is better.
    sigma : float
        Width of the smoothed indicator, in units of the scores: documents whose scores differ by about this
        much exchange their positions. `exploration_width` finds one by what it costs.
    k : int, default 10
        Number of positions shown.
    n_rankings : int, default 512
        Number of rankings per table, R. It limits the weights: no propensity is below 1 / R. The tables take
        4 R k bytes per query.
    seed : int or numpy.random.Generator, optional
        Seed of the tables. By default every call draws others.

    Returns
    -------
    ExploringPolicy
        The tables, and the probability of each document at each position.

    Examples
    --------
    >>> queries = Queries(np.eye(4), [0, 1, 0, 2], qid=["a"] * 4)
    >>> policy = explore(queries, [2.0, 1.5, 1.0, 0.0], sigma=0.5, k=2, seed=0)
    >>> policy.probabilities.round(1)
    array([[0.6, 0.3],
           [0.3, 0.4],
           [0.1, 0.3],
           [0. , 0. ]])
    >>> shown = policy.draw(3, seed=0)
    >>> shown.log(clicked=[1, 0, 0, 0, 0, 1])
    <ClickLog: 3 sessions of 1 query, 6 impressions of 4 documents, 2 clicks, positions 1 to 2>
    """
    x = _checked_scores(queries, scores)
    relaxation = SmoothedIndicator(number("sigma", sigma, above=True))
    groups = queries.groups
    k = min(whole("k", k, 1), groups.longest)
    size = whole("n_rankings", n_rankings, 1)
    rng = np.random.default_rng(seed)
    order = np.arange(len(queries)) if groups.rows is None else groups.rows
    rankings = np.full((queries.n_queries, size, k), -1, dtype=np.int32)
    probabilities = np.zeros((len(queries), k))
    for q in range(queries.n_queries):
        rows = order[groups.offsets[q] : groups.offsets[q + 1]]
        drawn = sample_rankings(x[rows], size, k=min(k, len(rows)), seed=rng, relaxation=relaxation).rankings
        shown = drawn.shape[1]
        rankings[q, :, :shown] = rows[drawn]
        counts = np.bincount((drawn * shown + np.arange(shown)).ravel(), minlength=len(rows) * shown)
        probabilities[rows, :shown] = counts.reshape(len(rows), shown) / size
    return ExploringPolicy(queries, rankings, probabilities)


def exploration_width(
    queries: Queries, scores: ArrayLike, *, loss: float, gain: str | Gain = "ndcg@10"
) -> float:
    """Largest width of exploration whose rankings lose at most `loss` of the gain, on average.

    Parameters
    ----------
    queries : Queries
        Documents with labels.
    scores : array of shape (N,)
        Scores, larger is better.
    loss : float
        Mean over the queries of the gain of the sorted documents, less the expected gain of rankings that
        explore: .01 for one point of NDCG.
    gain : str or Gain, default "ndcg@10"
        The gain, or its text form.

    Returns
    -------
    float
        The width, for `explore`; at most 1,000 standard deviations of the scores, with which every ranking
        is about equally likely.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 200)
    >>> queries = Queries(rng.normal(size=(200, 1)), labels, qid=np.repeat(np.arange(10), 20))
    >>> scores = labels + rng.normal(size=200)
    >>> [round(exploration_width(queries, scores, loss=loss), 2) for loss in (0.01, 0.05)]
    [0.38, 0.79]
    """
    x = _checked_scores(queries, scores)
    number("loss", loss, above=True)
    if not queries.y.any():
        raise ValueError(
            "queries must have labels above 0, from which the loss is computed; give labeled queries, or "
            "choose sigma without them."
        )
    spread = float(x.std())
    if spread == 0:
        raise ValueError("scores must not all be equal, because no width changes their rankings.")

    def expected(width: float) -> float:
        relaxation = SmoothedIndicator(spread * width)
        return float(
            expected_gain(
                x, queries.y, queries.qid, gain=gain, relaxation=relaxation, n_iter=_ITERATIONS
            ).value
        )

    least = expected(_NARROWEST) - loss
    if expected(_WIDEST) >= least:
        return spread * _WIDEST
    low, high = _NARROWEST, _WIDEST
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if expected(middle) >= least else (low, middle)
    return spread * low


def _checked_scores(queries: Queries, scores: ArrayLike) -> Floats:
    x = np.asarray(scores, dtype=np.float64)
    if x.shape != (len(queries),) or not np.isfinite(x).all():
        got = f"shape {x.shape}" if x.shape != (len(queries),) else "an entry that is not finite"
        raise ValueError(f"scores must have one finite number per document, ({len(queries)},); got {got}.")
    return x
