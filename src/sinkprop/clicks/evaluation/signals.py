"""Impressions and clicks of the documents of a new ranking in a log, and how probable they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.clicks.evaluation.folds import N_FOLDS, folds_of, sums_by_fold
from sinkprop.clicks.evaluation.same_position import chances_of
from sinkprop.clicks.evaluation.targets import Target
from sinkprop.clicks.log import ClickLog
from sinkprop.clicks.models.base import ClickModel
from sinkprop.clicks.models.sequences import sums
from sinkprop.common.types import Floats, Integers, Mask

__all__ = ["Relevance", "Signal", "relevance_table", "signal_of"]

Relevance: TypeAlias = ArrayLike | Callable[[ClickLog], ArrayLike] | None

_PRIOR = 1.0  # examinations that the mean relevance counts as, in the estimate for one document


@dataclass(frozen=True, eq=False)
class Signal:
    """The I impressions that count for a new ranking: of its first documents, where they may be examined.

    E[clicks] = examined * r for a document of relevance r, and E[sum over a session of examined] = chance.

    rows         (I,) row of the document.
    sessions     (I,) session.
    clicks       (I,) click, less the probability of a click without relevance.
    examined     (I,) probability of examination at the position shown.
    chance       (I,) expected examination of the document in a session of its query.
    counted      (I,) whether `chance` follows from the sum of `examined` over such impressions of the log.
    estimated    whether this holds for all impressions that there could have been.
    drawn        whether `chance` comes from propensities of what was shown, and is unknown for the others.
    covered      (N,) whether `chance` is above 0; if it is not known, whether there is an impression.
    codes        (N,) query of each document.
    queries      (S,) query of each session.
    shown        (N,) number of sessions of the document's query.
    shares       (F, N) share of the sessions of each fold in the expected sum of examined / chance, if it
                 depends on the session. Else None.
    mean_weight  the mean weight of the sessions, if it refutes the propensities. Else None.
    """

    rows: Integers
    sessions: Integers
    clicks: Floats
    examined: Floats
    chance: Floats
    counted: Mask
    estimated: bool
    drawn: bool
    covered: Mask
    codes: Integers
    queries: Integers
    shown: Integers
    shares: Floats | None = None
    mean_weight: float | None = None

    @property
    def n_sessions(self) -> int:
        """Number of sessions, S."""
        return len(self.queries)

    @property
    def n_queries(self) -> int:
        """Number of queries in the table of documents, Q."""
        return int(self.codes.max()) + 1

    def by_document(self, values: Floats) -> Floats:
        """Sums (N,) of values (I,) over the impressions of each document."""
        return sums(values, self.rows, len(self.codes))

    def by_session(self, values: Floats) -> Floats:
        """Sums (S,) of values (I,) over the impressions of each session."""
        return sums(values, self.sessions, self.n_sessions)

    def by_query(self, values: Floats) -> Floats:
        """Sums (S,) of values (N,) over the documents of the query of each session."""
        return sums(values, self.codes, self.n_queries)[self.queries]


def signal_of(log: ClickLog, target: Target, model: ClickModel | None, exposure: ArrayLike | None) -> Signal:
    """Return the impressions from which the value of the target is estimated."""
    codes, queries = log.documents.groups.codes, log.queries
    shown = np.bincount(queries, minlength=log.documents.n_queries)[codes]
    if model is None:
        return _same_position(log, target, codes, queries, shown)
    at = model.propensities(log)
    if not (np.isfinite(at.slope) & (at.slope >= 0)).all():
        raise ValueError("model: the probability of examination must be finite and at least 0.")
    kept = target.counted[log.rows] & (at.slope > 0)
    rows, sessions = log.rows[kept], log.sessions[kept]
    examined, clicks = at.slope[kept], log.clicked[kept] - at.intercept[kept]
    total = sums(examined, rows, len(codes))
    expected = total / np.maximum(shown, 1) if exposure is None else _exposure(exposure, total)
    return Signal(
        rows,
        sessions,
        clicks,
        examined,
        expected[rows],
        np.full(len(rows), exposure is None),
        exposure is None,
        False,
        expected > 0,
        codes,
        queries,
        shown,
    )


def _same_position(
    log: ClickLog, target: Target, codes: Integers, queries: Integers, shown: Integers
) -> Signal:
    """The impressions at which the log shows the document at its new rank."""
    found = chances_of(log, target, codes, shown)
    rows, sessions = log.rows[found.kept], log.sessions[found.kept]
    covered = np.bincount(rows, minlength=len(codes)) > 0
    clicks, examined = log.clicked[found.kept].astype(np.float64), np.ones(len(rows))
    return Signal(
        rows,
        sessions,
        clicks,
        examined,
        found.chance,
        found.counted,
        found.estimated,
        True,
        covered,
        codes,
        queries,
        shown,
        found.shares,
        found.mean_weight,
    )


def _exposure(exposure: ArrayLike, total: Floats) -> Floats:
    found = np.asarray(exposure, dtype=np.float64)
    if found.shape != total.shape or not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError(
            f"exposure must have one finite number of at least 0 per document of the log, {total.shape}; "
            f"got {found.shape}."
        )
    wrong = (found == 0) & (total > 0)
    if wrong.any():
        j = int(np.argmax(wrong))
        raise ValueError(
            f"exposure[{j}] is 0, but the log shows this document at an examined position. Its expected "
            "examination under the ranker that made the lists cannot be 0."
        )
    return found


def relevance_table(
    log: ClickLog, target: Target, model: ClickModel | None, signal: Signal, given: Relevance
) -> Floats:
    """Relevance (F, N) of documents; that in row f is for the sessions of fold f.

    With known chances, it does not depend on the clicks of these sessions. With estimated ones, F = 1.
    """
    folds = 1 if signal.estimated or log.n_sessions == 1 else N_FOLDS
    if given is None:
        return _shrunk(log, target, model, signal, folds)
    if model is None:
        raise ValueError(
            "relevance must be None without a click model: the doubly robust estimate then uses the click "
            "rate of each document at its new rank."
        )
    if not callable(given):
        return _checked(given, signal)[None]
    if folds == 1:
        return _checked(given(log), signal)[None]
    fold = folds_of(log.n_sessions, folds)
    return np.stack([_checked(given(log.select(fold != f)), signal) for f in range(folds)])


def _checked(relevance: Any, signal: Signal) -> Floats:
    found = np.asarray(relevance, dtype=np.float64)
    if found.shape != signal.codes.shape:
        raise ValueError(
            f"relevance must have one number per document of the log, {signal.codes.shape}; got "
            f"{found.shape}."
        )
    wrong = ~((found >= 0) & (found <= 1))
    if wrong.any():
        j = int(np.argmax(wrong))
        raise ValueError(
            f"relevance must be from 0 to 1, the probability of a click when examined; row {j} holds "
            f"{found[j]}."
        )
    return found


def _shrunk(log: ClickLog, target: Target, model: ClickModel | None, signal: Signal, folds: int) -> Floats:
    """Clicks per examination (F, N) in the other folds, with the mean over the log as a weak prior.

    Without a model, the mean is over the documents at the same rank. A document without examination in the
    whole log has the relevance of the model, if there is one.
    """
    n = len(signal.codes)
    clicks, examined = (
        _elsewhere(signal, signal.sessions, signal.rows, x, n, folds)
        for x in (signal.clicks, signal.examined)
    )
    prior = _mean(log, target, model, signal, folds)
    known = None if model is None else model.relevance
    if known is not None and known.shape == (n,):
        prior = np.where(signal.covered | ~np.isfinite(known), prior, known)
    return np.clip((clicks + _PRIOR * prior) / (examined + _PRIOR), 0.0, 1.0)


def _mean(log: ClickLog, target: Target, model: ClickModel | None, signal: Signal, folds: int) -> Floats:
    """Clicks per examination (F, N) in the other folds of the log; 0 where nothing was examined.

    They are those of all impressions, or without a model, of those at the new rank of the document.
    """
    clicks, examined = log.clicked.astype(np.float64), np.ones(len(log))
    kinds, kind = log.positions, target.ranks
    if model is not None:
        at = model.propensities(log)
        clicks, examined = clicks - at.intercept, at.slope
        kinds, kind = np.zeros_like(kinds), np.zeros_like(kind)
    n_kinds = 1 + int(max(kinds.max(), kind.max()))
    sessions = log.sessions
    of_kind, total = (_elsewhere(signal, sessions, kinds, x, n_kinds, folds) for x in (clicks, examined))
    mean: Floats = of_kind / np.where(total > 0, total, np.inf)
    return mean[:, kind]


def _elsewhere(
    signal: Signal, sessions: Integers, cells: Integers, values: Floats, size: int, folds: int
) -> Floats:
    """Sums (F, size) of values in each cell over the other folds; over all if the chances are estimated."""
    of_fold = sums_by_fold(folds_of(signal.n_sessions, folds)[sessions], cells, values, (folds, size))
    total = of_fold.sum(axis=0)
    return np.broadcast_to(total, of_fold.shape) if signal.estimated else total - of_fold
